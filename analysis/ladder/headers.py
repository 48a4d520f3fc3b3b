"""The ladder: the header block of every kernels/*/vNN_name.cu, and how much source a child changes.

    version = load(root(), "v10")
    version.idea, version.config, version.parent

Header blocks are data; docs/adding-a-version.md lists their keys. A new version is one new file: nothing is registered.
The backward pass and fp8 have ladders of their own, kernels/backward/bNN_name.cu and kernels/fp8/fNN_name.cu:
load_backward() and load_fp8() have them, load_all() does not.
The kernels of kernels/attention/ are read too: they have no parent, and what was changed last is in git. Those that
compute gradients, GRADIENTS, belong to load_backward().
"""

import difflib
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

from analysis.errors import AnalysisError
from analysis.files import in_checkout, read_text
from analysis.ladder.checks import Check, parse_checks
from analysis.ladder.claims import RUNG, Claim, parse_claims
from analysis.ladder.config import FIELDS, SMEM_MOST, ConfigError, KernelConfig, parse_short_form
from analysis.ladder.removed import replacement_of

REQUIRED_KEYS = ("parent", "idea", "config", "arch")
OPTIONAL_KEYS = ("credit", "predict", "claims", "others", "smaller", "serving", "ordered", "accurate")
KEYS_OF_ATTENTION = ("config", "arch")
WGMMA = "wgmma"  # the folder of the versions for sm_90a alone
ATTENTION = "attention"  # the folder of the kernels that are changed by commits
BACKWARD = "backward"  # the folder of the versions of the backward pass
GRADIENTS = (f"{ATTENTION}/backward", f"{ATTENTION}/backward_mma_sync")  # those of them that compute gradients
FP8 = "fp8"  # the folder of the versions that take e4m3
FOLDERS = ("mma_sync", WGMMA)
TO_FILL_IN = "FILL IN:"  # how a value begins that `./fl new` leaves to be written


@dataclass(frozen=True)
class Header:
    """The header block of a kernel file."""

    version: str  # "v10", "attention/wgmma"
    title: str  # "peel the first KV block"
    parent: str  # "v09", "" for the first version
    idea: str
    predict: str  # "" when the header has none
    claims: tuple[Claim, ...]  # the numbers of the prediction
    config: KernelConfig
    arch: str  # "sm_80", the least one; "sm_90a", the only one
    lines: int  # lines of the file that the block takes
    to_fill_in: tuple[str, ...] = ()  # keys whose values nobody has written yet
    others: tuple[KernelConfig, ...] = ()  # configs for other sizes of heads, one of each
    smaller: tuple[KernelConfig, ...] = ()  # configs for GPUs with less shared memory, of sizes that are there already
    serving: tuple[KernelConfig, ...] = ()  # configs that take serving_args

    ordered: tuple[KernelConfig, ...] = ()  # of a backward pass, configs with in_order
    accurate: tuple[KernelConfig, ...] = ()  # of fp8, configs with flush_N

    @property
    def additional(self) -> tuple[KernelConfig, ...]:
        """Configurations that are built by default in addition to `config`."""
        return (*self.others, *self.smaller, *self.serving, *self.ordered, *self.accurate)


def _number(arch: str) -> int:
    return int(arch.removeprefix("sm_").rstrip("af"))


@dataclass(frozen=True)
class Version:
    """A kernel file: its path, header and source text."""

    path: Path
    name: str  # "autotune" for v07_autotune.cu
    header: Header
    source: str

    @property
    def version(self) -> str:
        return self.header.version

    @property
    def stem(self) -> str:
        """The stem of file names: "v10", "attention.wgmma"."""
        return stem_of(self.version)

    @property
    def file(self) -> str:
        """Its path within kernels/."""
        return f"{self.path.parent.name}/{self.path.name}"

    @cached_property
    def checks(self) -> list[Check]:
        """The rules by which the source rejects configurations at compile time."""
        return parse_checks(self.source, str(self.path))

    @property
    def one_arch(self) -> bool:
        """True if the architecture of the header is the only one that the machine code is for, as sm_90a is."""
        return self.header.arch.endswith("a")

    def archs(self, chosen: Iterable[str]) -> list[str]:
        """The architectures that `make` builds this version for where `chosen` are asked for: sm_90a for sm_90, sm_120a
        also for sm_90, and instead of older ones than that of the header that one."""
        own = self.header.arch
        if self.one_arch:
            also = ("sm_90", "sm_90a") if own == "sm_120a" else ()
            return [own] if {own, own.removesuffix("a"), *also} & {*chosen} else []
        return list(dict.fromkeys(max(own, arch, key=_number) for arch in chosen))

    def body(self) -> list[str]:
        """The source lines below the header block."""
        return self.source.splitlines()[self.header.lines :]

    @property
    def is_backward(self) -> bool:
        """True if it is a version of the backward pass, or one of GRADIENTS."""
        return self.version.startswith("b") or self.version in GRADIENTS

    @property
    def is_fp8(self) -> bool:
        """True if it is a version that takes e4m3."""
        return self.version.startswith("f")

    @property
    def is_of_ladder(self) -> bool:
        """True if it is a version of the ladder: vNN."""
        return self.version.startswith("v")

    @property
    def is_attention(self) -> bool:
        """True if it is a kernel of kernels/attention/ that computes attention, not a version of the ladder."""
        return self.version.startswith(f"{ATTENTION}/") and not self.is_backward


def stem_of(version: str) -> str:
    """The stem of file names of a version or kernel: "v10", "attention.wgmma"."""
    return version.replace(f"{ATTENTION}/", f"{ATTENTION}.")


@lru_cache(maxsize=256)  # a command reads the ladder several times
def parse_header(source: str, name: str) -> Header:
    """Read the comment a kernel file begins with; `name` is the file's, for messages."""
    lines = source.splitlines()
    first = re.fullmatch(rf"/\* ({RUNG}|{ATTENTION}/\w+) - (\S.*)", lines[0].rstrip()) if lines else None
    if not first:
        raise AnalysisError(f"{name}:1: expected '/* vNN - title', found {lines[0] if lines else ''!r}")
    values: dict[str, str] = {}
    keys: dict[str, int] = {}
    key, end = "", 0
    for number, line in enumerate(lines[1:], start=2):
        if line.strip() == "*/":
            end = number
            break
        if line.rstrip() == " *":
            continue
        entry = re.fullmatch(r" \* ([a-z]+)(  +)(\S.*)", line.rstrip())
        more = re.fullmatch(r" \* ( +)(\S.*)", line.rstrip())
        if entry:
            key = entry[1]
            if key not in REQUIRED_KEYS + OPTIONAL_KEYS:
                known = ", ".join(REQUIRED_KEYS + OPTIONAL_KEYS)
                raise AnalysisError(f"{name}:{number}: unknown key {key!r}: expected one of {known}")
            if key in values:
                raise AnalysisError(f"{name}:{number}: key {key!r} is repeated (first on line {keys[key]})")
            values[key], keys[key] = entry[3], number
        elif more and key:
            values[key] += " " + more[2]
        else:
            raise AnalysisError(
                f"{name}:{number}: expected 'key  value' with two or more spaces between, found {line!r}"
            )
    if not end:
        raise AnalysisError(f"{name}: the header block is not closed by a line ' */'")
    required = REQUIRED_KEYS if re.fullmatch(RUNG, first[1]) else KEYS_OF_ATTENTION
    missing = [key for key in required if key not in values]
    if missing:
        raise AnalysisError(f"{name}: the header block lacks {', '.join(missing)}")
    return _checked_header(first[1], first[2], values, keys, end, name)


def _checked_header(
    version: str, title: str, values: dict[str, str], keys: dict[str, int], end: int, name: str
) -> Header:
    parent = values.get("parent", "none").removesuffix("none")
    if parent and not re.fullmatch(RUNG, parent):
        raise AnalysisError(f"{name}:{keys['parent']}: parent must be a version such as v09 or none, found {parent!r}")
    if parent == version:
        raise AnalysisError(f"{name}:{keys['parent']}: {version} is its own parent")
    if not re.fullmatch(r"sm_[0-9]+[af]?", values["arch"]):
        raise AnalysisError(f"{name}:{keys['arch']}: arch must be of the form sm_80, found {values['arch']!r}")
    config = _config_of(values["config"], keys["config"], name)
    others, smaller, serving, ordered, accurate = (
        [_config_of(form, keys[key], name) for form in values.get(key, "").split(";") if form.strip()]
        for key in ("others", "smaller", "serving", "ordered", "accurate")
    )
    sizes = [each.d_head for each in (config, *others)]
    if len(set(sizes)) < len(sizes):
        raise AnalysisError(
            f"{name}:{keys['others']}: config and others must have a d_head of their own each, found "
            + ", ".join(map(str, sizes))
        )
    for each in smaller:
        own = next((one for one in (config, *others) if one.d_head == each.d_head), None)
        if own is None or each.smem_bytes() >= own.smem_bytes():
            most = "no config" if own is None else f"{own.smem_bytes()} bytes of the config"
            raise AnalysisError(
                f"{name}:{keys['smaller']}: must take less shared memory than the config for d_head {each.d_head}, "
                f"found {each.smem_bytes()} bytes in addition to {most}"
            )
    misplaced = [each for each in (config, *others, *smaller) if each.serves]
    misplaced += [each for each in serving if not each.serves]
    if misplaced:
        raise AnalysisError(f"{name}: configs with serve belong under the key serving, found {misplaced[0]}")
    if not all(each.in_order for each in ordered):
        raise AnalysisError(f"{name}:{keys['ordered']}: must be configs with in_order, found {ordered[0]}")
    if not all(each.flush_blocks for each in accurate):
        raise AnalysisError(f"{name}:{keys['accurate']}: must be configs with flush_N, found {accurate[0]}")
    to_fill_in = tuple(key for key, value in values.items() if value.startswith(TO_FILL_IN))
    try:
        claims = parse_claims("" if "claims" in to_fill_in else values.get("claims", ""))
    except AnalysisError as error:
        raise AnalysisError(f"{name}:{keys['claims']}: {error}") from error
    return Header(
        version,
        title,
        parent,
        values.get("idea", ""),
        values.get("predict", ""),
        claims,
        config,
        values["arch"],
        end,
        to_fill_in,
        tuple(others),
        tuple(smaller),
        tuple(serving),
        tuple(ordered),
        tuple(accurate),
    )


def _config_of(form: str, line: int, name: str) -> KernelConfig:
    try:
        return parse_short_form(form)
    except ConfigError as error:
        raise AnalysisError(f"{name}:{line}: {error}") from error


def read_version(path: Path) -> Version:
    """Read one kernel file; its name and its header must agree on the version."""
    if path.parent.name == ATTENTION:
        return _read_attention(path)
    name = re.fullmatch(rf"({RUNG})_([a-z0-9_]+)\.cu", path.name)
    if not name:
        raise AnalysisError(f"{path}: the name of a kernel file has the form vNN_name.cu")
    source = read_text(path)
    header = parse_header(source, str(path))
    if header.version != name[1]:
        raise AnalysisError(f"{path}:1: the header says {header.version}, the file name {name[1]}")
    if path.parent.name in FOLDERS and (path.parent.name == WGMMA) != (header.arch == "sm_90a"):
        raise AnalysisError(f"{path}: its header says arch {header.arch}; versions for sm_90a are in kernels/{WGMMA}/")
    return Version(path, name[2], header, source)


def _read_attention(path: Path) -> Version:
    source = read_text(path)
    header = parse_header(source, str(path))
    if header.version != f"{ATTENTION}/{path.stem}":
        raise AnalysisError(f"{path}:1: the header says {header.version}, the file is {ATTENTION}/{path.stem}")
    return Version(path, path.stem, header, source)


def attention_files(root: Path) -> dict[str, Path]:
    """Name, such as "attention/wgmma", to file of every kernel of kernels/attention/ that computes attention."""
    files = {f"{ATTENTION}/{path.stem}": path for path in sorted((root / "kernels" / ATTENTION).glob("*.cu"))}
    return {name: path for name, path in files.items() if name not in GRADIENTS}


# The user's name of a version or kernel. If there are none, every name is that of a file.
VERSION = re.compile(rf"{RUNG}|{ATTENTION}[./][a-z0-9_]+" if in_checkout() else "(?!)")


def name_of_stem(stem: str) -> str:
    """The version or kernel that files of this name are of, the opposite of stem_of()."""
    return stem.replace(f"{ATTENTION}.", f"{ATTENTION}/")


def kernel_files(root: Path) -> dict[str, Path]:
    """Version to file of every kernels/FOLDER/vNN_name.cu, in order; two files of one version are an error."""
    files: dict[str, Path] = {}
    named = (path for path in (root / "kernels").glob("*/v*.cu") if re.match(f"{RUNG}_", path.name))
    for path in sorted(named, key=lambda path: path.name):
        version = path.name.partition("_")[0]
        if version in files:
            raise AnalysisError(f"{files[version].name} and {path.name} are both {version}")
        files[version] = path
    if not files:
        raise AnalysisError(f"{root / 'kernels'}: no file vNN_name.cu in {' or '.join(FOLDERS)}")
    return files


def backward_files(root: Path) -> dict[str, Path]:
    """Version to file of every kernels/backward/bNN_name.cu, in order, and of GRADIENTS."""
    files = {path.name[:3]: path for path in sorted((root / "kernels" / BACKWARD).glob("b[0-9][0-9]_*.cu"))}
    production = {name: root / f"kernels/{name}.cu" for name in GRADIENTS}
    return files | {name: path for name, path in production.items() if path.exists()}


def fp8_files(root: Path) -> dict[str, Path]:
    """Version to file of every kernels/fp8/fNN_name.cu, in order."""
    return {path.name[:3]: path for path in sorted((root / "kernels" / FP8).glob("f[0-9][0-9]_*.cu"))}


def read_ladder_version(path: Path) -> Version:
    """Read one kernel file of a checkout, whose parent must be there too."""
    if path.parent.name == ATTENTION:
        return _read_attention(path)
    if path.parent.name == BACKWARD:
        return _with_parent(read_version(path), backward_files(path.parents[2]))
    if path.parent.name == FP8:
        return _with_parent(read_version(path), fp8_files(path.parents[2]))
    return _with_parent(read_version(path), kernel_files(path.parents[2]))


def _with_parent(version: Version, there: Collection[str]) -> Version:
    parent = version.header.parent
    if parent and parent not in there:
        raise AnalysisError(f"{version.path}: its parent {parent} is not a version; there are: {' '.join(there)}")
    return version


def load(root: Path, version: str) -> Version:
    """One version by its number, such as "v10", or a kernel by its name, "attention/wgmma" or "attention.wgmma"."""
    files = kernel_files(root) | attention_files(root) | backward_files(root) | fp8_files(root)
    version = name_of_stem(version)
    if version not in files:
        if kernel := replacement_of(version):
            raise AnalysisError(f"{version} was removed from the ladder: {kernel} replaces it")
        raise AnalysisError(f"no version {version!r}{_nearest(version, files)} are {_ranges(files)}")
    return read_ladder_version(files[version])


def _nearest(typed: str, files: Collection[str]) -> str:
    """The version that a name may mean, as the middle of a message: v07 for V7."""
    plain = re.sub(r"^([vbf])(\d[a-z]?)$", r"\g<1>0\2", typed.lower())
    numbered = re.fullmatch(r"[vbf]\d\d[a-z]?", plain) is not None
    near = [plain] if plain in files else [] if numbered else difflib.get_close_matches(plain, files, 1)
    return f"; did you mean {near[0]}? Versions" if near else "; versions"


def _ranges(files: Collection[str]) -> str:
    """The names of all versions, those with numbers as ranges."""
    kinds = [[name for name in files if re.match(rf"{kind}\d\d", name)] for kind in "vbf"]
    ranges = [f"{names[0]} to {names[-1]}" if len(names) > 1 else names[0] for names in kinds if names]
    return ", ".join([*ranges, *(name for name in files if "/" in name)])


def load_all(root: Path) -> dict[str, Version]:
    """Every version of the ladder in order."""
    files = kernel_files(root)
    return {version: _with_parent(read_version(path), files) for version, path in files.items()}


def load_attention(root: Path) -> dict[str, Version]:
    """Every kernel of kernels/attention/."""
    return {name: _read_attention(path) for name, path in attention_files(root).items()}


def load_backward(root: Path) -> dict[str, Version]:
    """Every version of the backward pass in order, and GRADIENTS."""
    return {version: read_ladder_version(path) for version, path in backward_files(root).items()}


def load_fp8(root: Path) -> dict[str, Version]:
    """Every version that takes e4m3 in order."""
    return {version: read_ladder_version(path) for version, path in fp8_files(root).items()}


def load_off_ladder(root: Path) -> dict[str, Version]:
    """All that is built as versions are and is none of the ladder: kernels/attention/, the backward pass and fp8."""
    return load_attention(root) | load_backward(root) | load_fp8(root)


def load_chosen(root: Path, chosen: str | None) -> dict[str, Version]:
    """The versions of a list such as "v09 attention/wgmma", all of the ladder when it is empty."""
    words = (chosen or "").replace(",", " ").split()
    versions = [load(root, word) for word in words]
    return {version.version: version for version in versions} if words else load_all(root)


def refusals(version: Version, config: KernelConfig) -> list[str]:
    """Why a version does not support a configuration, a sentence each; empty when it does.

    The reasons for which the source rejects a configuration. If there are none: fields in use on which only later
    versions of its folder act, or none, and more shared memory than the only architecture of a version has.
    """
    name = config.family.name
    if version.is_attention:
        if name == "ladder" or config.kernel != version.name:
            return [f"{config.short_form()} is no configuration of {version.version}"]
    elif version.is_backward:
        if name != "backward":
            return [f"{config.short_form()} is no configuration of the backward pass"]
        if config.any_rows and version.version not in GRADIENTS:
            return [f"any_rows must be off: only {' and '.join(GRADIENTS)} act on it"]
    elif version.is_fp8:
        if name != "fp8" or config.kernel != FP8:
            return [f"{config.short_form()} is no configuration of fp8"]
    elif name != "ladder":
        return [f"configurations that name {config.instruction.name.lower()} are those of kernels/{ATTENTION}/"]
    own = [check.sentence for check in version.checks if not check.holds(config)]
    return own or _not_acted_on(version, config) + _too_much_shared_memory(version, config)


def _not_acted_on(version: Version, config: KernelConfig) -> list[str]:
    found: list[str] = []
    if not version.is_of_ladder:
        return found
    for row in FIELDS.values():
        first, line = (row.wgmma, "wgmma") if version.one_arch else (row.mma_sync, "mma.sync")
        if getattr(config, row.name) and (not first or first > version.version):
            who = f"{first} is the first version with {line} that" if first else f"no version with {line}"
            found.append(f"{row.name} must be {'off' if row.type == 'bool' else '0'}: {who} acts on it")
    return found


def _too_much_shared_memory(version: Version, config: KernelConfig) -> list[str]:
    arch = version.header.arch
    most = SMEM_MOST.get("{}.{}".format(*divmod(_number(arch), 10))) if version.one_arch else None
    if most is None or config.smem_bytes() <= most:
        return []
    return [f"shared memory must be at most {most} bytes, what a CTA of {arch} may have"]


# ---- source changes --------------------------------------------------------------------------------------------------


def source_diff(a: Version, b: Version) -> list[str]:
    """The unified diff of two kernel sources without their header blocks; line numbers are those of the files."""
    files = f"kernels/{a.file}", f"kernels/{b.file}"
    return unified_diff(files, (a.body(), b.body()), (a.header.lines + 1, b.header.lines + 1))


def unified_diff(names: tuple[str, str], texts: tuple[list[str], list[str]], first: tuple[int, int]) -> list[str]:
    """The unified diff of two texts, empty where they are equal; `first` is the number of each one's first line."""
    old, new = texts
    lines = [f"--- {names[0]}", f"+++ {names[1]}"]
    for group in difflib.SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes(3):
        spans = (group[0][1], group[-1][2], group[0][3], group[-1][4])
        lines.append(f"@@ -{first[0] + spans[0]},{spans[1] - spans[0]} +{first[1] + spans[2]},{spans[3] - spans[2]} @@")
        for tag, old_from, old_to, new_from, new_to in group:
            if tag == "equal":
                lines += [f" {line}" for line in old[old_from:old_to]]
            else:
                lines += [f"-{line}" for line in old[old_from:old_to]]
                lines += [f"+{line}" for line in new[new_from:new_to]]
    return lines if len(lines) > 2 else []


@lru_cache(maxsize=256)
def changed_lines(a: Version, b: Version) -> int:
    """Lines added plus lines removed between two sources, header blocks not counted."""
    return sum(line[0] in "+-" for line in source_diff(a, b)[2:])
