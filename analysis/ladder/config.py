"""Kernel configurations: what compiled C says of them (lib/libflconfig.so), names that are not ours, the named sets.

    config = parse_short_form("(FP16, 128, 64, 64, 4): async+eager+swizzled+load_2_2_2_tiles+buffer")
    config.symbol()     # _Z13flash_forwardIXtl12KernelConfigL5dtype5ELi128E...
    config.family.name  # "ladder"

Families, fields, rules, features and launches are those of common/families.h. Every printed form parses back to an
equal value.
"""

import ctypes
import fcntl
import itertools
import json
import os
import re
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Any

from analysis.errors import AnalysisError
from analysis.files import root


class ConfigError(AnalysisError):
    """A configuration that can't be read or that breaks a rule; the message names the part."""


class Dtype(IntEnum):
    """Element type of Q, K, V and O, with the numbers that kernel symbols carry."""

    FP16 = 5
    BF16 = 15


class Instruction(IntEnum):
    """The instruction that multiplies, with the number that kernel symbols carry."""

    MMA_SYNC = 1
    WGMMA = 2
    FMA = 3
    FP8_WGMMA = 4
    FP8_MMA_SYNC = 5


TYPES: Mapping[str, type[int]] = {"dtype": Dtype, "instruction": Instruction, "int": int, "bool": bool}


# ---- compiled C ------------------------------------------------------------------------------------------------------

LIBRARY = "lib/libflconfig.so"
SOURCES = ("common/*.h", "runtime/*.h", "runtime/*.c", "analysis/ladder/*.c")


def _built() -> str:
    """The path of the library, which make builds in a checkout where it is missing or older than its sources."""
    path = root() / LIBRARY
    if (root() / "Makefile").exists() and not _is_new(path):
        (root() / "build").mkdir(exist_ok=True)
        with (root() / "build/config.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # programs that start together
            command = ["make", "--silent", "--no-print-directory", LIBRARY]
            environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
            try:
                if not _is_new(path):
                    subprocess.run(command, cwd=root(), env=environment, check=True, stdout=subprocess.DEVNULL)
                    path.touch()
            except (OSError, subprocess.CalledProcessError) as error:
                raise AnalysisError(f"{LIBRARY} cannot be built ({error}): it needs make and a C compiler") from error
    if not path.exists():
        raise AnalysisError(f"{path} is missing: copy it from a checkout, where `make {LIBRARY}` builds it")
    return str(path)


def _is_new(path: Path) -> bool:
    """True if it was built after the last change of a source."""
    sources = (file for pattern in SOURCES for file in root().glob(pattern))
    return path.exists() and path.stat().st_mtime_ns >= max(file.stat().st_mtime_ns for file in sources)


@lru_cache(maxsize=1)
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(_built())
    for name in ("families", "read", "describe"):
        getattr(library, f"flconfig_{name}").restype = ctypes.c_char_p
    return library


def _asked(function: str, *arguments: Any) -> Any:
    """The answer to a question, which is JSON."""
    return json.loads(getattr(_library(), f"flconfig_{function}")(*arguments))


@dataclass(frozen=True)
class Field:
    """A field: name, type, word of the short form, meaning; of the ladder the first versions that act on it."""

    name: str
    type: str
    word: str
    help: str
    mma_sync: str = ""  # of kernels/mma_sync, "" where none does
    wgmma: str = ""  # of kernels/wgmma


@dataclass(frozen=True)
class Family:
    """A kind of kernel: a row of common/families.h."""

    number: int
    name: str
    type: str  # "KernelConfig", the struct
    function: str  # "flash_forward"
    fields: Mapping[str, Field]
    unused: int  # values of the struct after the fields, always 0


def _families() -> tuple[tuple[str, ...], dict[str, Family]]:
    """Features by their bits, and families by name."""
    answer = _asked("families")
    families = {}
    for number, row in enumerate(answer["families"]):
        fields = [Field(each["name"], each["type"], each["word"], *each["notes"]) for each in row["fields"]]
        named = {field.name: field for field in fields if field.word}
        unused = len(fields) - len(named)
        families[row["name"]] = Family(number, row["name"], row["type"], row["function"], named, unused)
    return tuple(name.lower() for name in answer["features"]), families


FEATURES, FAMILIES = _families()
ROWS = tuple(FAMILIES.values())  # by their numbers
FIELDS = FAMILIES["ladder"].fields
PARENTHESIS = "()"  # the word of the fields in the parenthesis of a short form
SHAPE = [field for field in FIELDS.values() if field.word == PARENTHESIS]
# The zero of every field that some family has: what a configuration of another family says of it.
_ZEROS = {
    name: TYPES[field.type](0)
    for family in FAMILIES.values()
    for name, field in family.fields.items()
    if field.type in ("int", "bool")
}


def _ints(family: int, numbers: tuple[int, ...]) -> "ctypes.Array[ctypes.c_int]":
    """The values of all fields of a struct."""
    return (ctypes.c_int * (len(numbers) + ROWS[family].unused))(*numbers)


@lru_cache(maxsize=4096)
def _described(family: int, numbers: tuple[int, ...]) -> Any:
    return _asked("describe", family, _ints(family, numbers))


@dataclass(frozen=True, order=True)
class KernelConfig:
    """One kernel instance: its family and the values of its fields. Construction checks the rules.

    An attribute is a field of the family, else a feature such as `causal`, else 0 for a field of another family.
    """

    number: int  # of the family
    numbers: tuple[int, ...]  # the values of its fields

    def __post_init__(self) -> None:
        self._described  # noqa: B018

    @cached_property
    def family(self) -> Family:
        """Its kind."""
        return ROWS[self.number]

    @cached_property
    def _values(self) -> dict[str, int]:
        fields = self.family.fields.values()
        return {field.name: TYPES[field.type](value) for field, value in zip(fields, self.numbers, strict=True)}

    @cached_property
    def _described(self) -> dict[str, Any]:
        answer: dict[str, Any] = _described(self.number, self.numbers)
        if "error" in answer:
            raise ConfigError(answer["error"])
        return answer

    @property
    def dtype(self) -> Dtype:
        return Dtype(self.numbers[0])

    @property
    def instruction(self) -> Instruction:
        """The instruction that multiplies, for families that have the field."""
        return Instruction(self._values["instruction"])

    def __getattr__(self, name: str) -> int:
        if name in FIELDS or name in _ZEROS or name in FEATURES:
            if name in self.family.fields:
                return self._values[name]
            if name in FEATURES:
                return bool(self._described["features"] >> FEATURES.index(name) & 1)
            return _ZEROS[name]
        raise AttributeError(name)

    def replace(self, **values: int) -> "KernelConfig":
        """A copy with other values of some fields."""
        if unknown := values.keys() - self._values.keys():
            raise TypeError(f"{self.family.type} has no field {', '.join(sorted(unknown))}")
        for name, value in values.items():
            kind = TYPES[self.family.fields[name].type]
            if type(value) is not kind:
                raise ConfigError(f"{name} = {value!r}: must be of type {kind.__name__}")
        return KernelConfig(self.number, tuple(int(value) for value in (self._values | values).values()))

    def short_form(self, include_d_head: bool = True, include_tuple: bool = True) -> str:
        """`(FP16, 128, 64, 64, 4): async+load_0_0_0_tiles`, without the head size or the parenthesis on request."""
        shape, _, features = self._described["short_form"].partition(": ")
        dtype, _, rest = shape.partition(", ")
        if not include_d_head:
            shape = f"{dtype}, {rest.partition(', ')[2]}"
        return f"{shape}: {features}" if include_tuple else features

    def __str__(self) -> str:
        return self.short_form()

    def to_cpp(self) -> str:
        """The C++ literal, as instances.cuh spells it: `KernelConfig{FP16, 128, 64, 64, 4, true, ...}`."""
        return f"{self.family.type}{{{', '.join(map(cpp_literal, self.values()))}}}"

    def symbol(self) -> str:
        """The mangled name of the kernel for this configuration (Itanium C++ ABI 5.1.5, `tl` braced lists)."""
        return str(self._described["symbol"])

    def values(self) -> tuple[int, ...]:
        """The field values in order, each of its field's type."""
        return tuple(self._values.values())

    @property
    def kernel(self) -> str:
        """The file of kernels/attention/ that an instance is of."""
        if self.family.name == "decode" and self.cp_async:
            return "decode_mma_sync"
        if self.block_scaled:
            return "fp8_mma_scaled"
        of_instruction = self.family.name == "attention" or self.instruction == Instruction.FP8_MMA_SYNC
        return self.instruction.name.lower() if of_instruction else self.family.name

    def parameter_types(self) -> list[str]:
        """The types of the kernel's parameters."""
        return [self._described["args"], *(["tensor_maps"] * self.tensor_copies)]

    def threads(self) -> int:
        """Threads of one CTA."""
        return int(self._described["threads"])

    def smem_bytes(self) -> int:
        """Dynamic shared memory of one CTA in bytes."""
        return int(self._described["smem_bytes"])

    def grid(
        self, seq: int, heads: int, batch: int, multiprocessors: int, seq_k: int | None = None
    ) -> tuple[int, int, int]:
        """CTAs of a launch without a mask; as many keys as queries by default."""
        sizes = (ctypes.c_int * 5)(seq, seq_k or seq, heads, batch, multiprocessors)
        grid = (ctypes.c_uint32 * 3)()
        _library().flconfig_grid(self.number, _ints(self.number, self.numbers), sizes, grid)
        return grid[0], grid[1], grid[2]

    def box_rows(self) -> tuple[int, int, int, int]:
        """Rows that one tensor copy of Q, K, V and O moves (runtime/tensor_maps.h)."""
        Q, K, V, O = self._described["box_rows"]  # noqa: E741
        return Q, K, V, O

    def element_bytes(self) -> tuple[int, int, int, int]:
        """The type of an element of Q, K, V and O."""
        Q, K, V, O = self._described["element_bytes"]  # noqa: E741
        return Q, K, V, O

    def tickets_bytes(self, ctas: int) -> int:
        """Memory of attention_args.tickets for so many CTAs, at most."""
        return self.counter_bytes() + ctas * int(self._described["bytes_of_cta"])

    def counter_bytes(self) -> int:
        """The bytes of it that are zero before and after a launch."""
        return int(self._described["counter_bytes"])


# Shared memory that one CTA may have, in bytes, by compute capability (CUDA C++ Programming Guide, table of limits).
SMEM_MOST = {
    "8.0": 163 << 10,
    "8.6": 99 << 10,
    "8.7": 163 << 10,
    "8.9": 99 << 10,
    "9.0": 227 << 10,
    "10.0": 227 << 10,
    "12.0": 99 << 10,
}


def cpp_literal(value: int) -> str:
    """A value of a field as C++ spells it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.name if isinstance(value, IntEnum) else str(value)


# ---- parsers ---------------------------------------------------------------------------------------------------------


def _read(text: str) -> tuple[KernelConfig, int]:
    """The configuration of a short form or of a symbol, and which kernel of a pass that is (runtime/config.h)."""
    answer = _asked("read", text.encode(errors="backslashreplace"))
    if "error" in answer:
        raise ConfigError(answer["error"])
    number = answer["family"]
    return KernelConfig(number, tuple(answer["values"][: len(ROWS[number].fields)])), answer["part"]


@lru_cache(maxsize=1024)  # readers make the configs of the versions many times
def parse_short_form(text: str, base: KernelConfig | None = None) -> KernelConfig:
    """Read a short form, or a table row that begins with one: what follows the first `|` is not read.

    dtype may be a name in any case or its number; features may appear in any order. A text printed without d_head or
    without the parenthesis takes these fields from `base`. Unknown, repeated, missing or trailing parts are errors.
    """
    form = text.split("|", 1)[0].strip()
    if base is not None and form and not form.startswith("("):
        form = f"{base.short_form().partition(':')[0]}: {form}"
    elif base is not None and form.partition(":")[0].count(",") == len(SHAPE) - 2:
        form = form.replace(",", f", {base.d_head},", 1)
    else:
        form = text
    return _read(form)[0]


def parse_braces(text: str) -> KernelConfig:
    """Read a demangled name: the values of `KernelConfig{...}` in it, or of one of the other structs.

    With casts or without: takes `{5, 128, ..., 1, 0}` (ncu), `{(dtype)5, 128, ..., true}` (c++filt) and
    `{FP16, 128, ..., false}` (C++). Values past the last field must be zero, and those that are missing are.
    """
    families = {family.type: family for family in FAMILIES.values()}
    match = re.search(rf"\b({'|'.join(families)})\s*\{{([^{{}}]*)\}}", text)
    if not match or re.search(r"\b(row_sums|round_dQ)\b", text):
        raise ConfigError(f"{text!r}: holds no KernelConfig{{...}}")
    family = families[match[1]]
    words = [part.strip() for part in match[2].split(",")]
    kinds = [(field.name, field.type) for field in family.fields.values()]
    kinds += [("a later field", "")] * (len(words) - len(kinds))
    values = [_value_of(name, kind, word, text) for (name, kind), word in zip(kinds, words, strict=False)]
    least = len(SHAPE) + ("instruction" in family.fields)
    if len(values) < least:
        raise ConfigError(f"{text!r}: {family.type} holds {len(values)} values, expected at least {least}")
    count = len(family.fields)
    try:
        return KernelConfig(family.number, (*values[:count], *[0] * (count - len(values))))
    except ConfigError as error:
        raise ConfigError(f"{text!r}: {error}") from None


def _value_of(name: str, kind: str, word: str, text: str) -> int:
    """A value, perhaps with a cast to the type of its field; of a field that is not known, 0."""
    named = {each.name: int(each) for each in (*Dtype, *Instruction)} | {"false": 0, "true": 1}
    found = re.fullmatch(rf"(?:\((?:{kind or '[a-z]+'})\)\s*)?([A-Z0-9_]+|true|false|-[0-9]+)", word)
    digits = found[1] if found else ""
    value = int(digits) if re.fullmatch("-?[0-9]{1,9}", digits) else named.get(digits)
    allowed: Mapping[str, Iterable[int]] = {"dtype": Dtype, "instruction": Instruction, "bool": (0, 1), "": (0,)}
    if value is None or (kind in allowed and value not in [int(each) for each in allowed[kind]]):
        raise ConfigError(f"{text!r}: {name} = {word}: not a value of type {kind or 'bool or int that is 0'}")
    return value


def parse_symbol(symbol: str) -> KernelConfig:
    """Read a mangled kernel name: `_Z13flash_forwardIXtl12KernelConfigL5dtype5ELi128E...EEEv12forward_args`."""
    config, part = _read(symbol) if symbol.startswith("_Z") else (None, 0)
    if config is None or part != MAIN:
        raise ConfigError(f"{symbol!r}: not the symbol of a kernel with a configuration")
    return config


MAIN = 2  # PART_MAIN of runtime/config.h


def parse_small_kernel(symbol: str) -> tuple[str, KernelConfig] | None:
    """The name and configuration of a small kernel of a backward pass, `_Z8row_sumsIXtl15backward_config...`."""
    name = re.match(r"_Z[0-9](row_sums|round_dQ)I", symbol)
    return (name[1], _read(symbol)[0]) if name else None


def parse_config(text: str) -> KernelConfig:
    """Read any printed form: mangled symbol, name with `KernelConfig{...}`, short form or a table row with one."""
    stripped = text.strip()
    if stripped.startswith("_Z"):
        return parse_symbol(stripped)
    if "{" in stripped:
        return parse_braces(stripped)
    return parse_short_form(text)


# ---- names that are not ours -----------------------------------------------------------------------------------------

# First match wins. Mangled and demangled spellings share these words.
FOREIGN_KERNELS = (
    ("FlashAttention-3", r"FlashAttn(Fwd|Bwd)|enable_sm90|compute_attn_ws|flash::.*_sm90"),
    ("FlashAttention-2", r"flash_(fwd|bwd)(_\w*)?_kernel|Flash_(fwd|bwd)_kernel_traits"),
    ("cuDNN attention", r"cudnn.*(sdpa|flash|fmha|mha)|(sdpa|flash_fprop).*cudnn"),
    ("cuDNN", r"cudnn"),
    ("PyTorch memory-efficient attention", r"fmha_cutlass[FB]|PyTorchMemEffAttention"),
    ("ThunderKittens", r"kittens|(fwd|bwd)_attend_(prep_)?ker"),
    ("Triton", r"triton|^_attn_(fwd|bwd)"),
    ("published ladder", r"FlashForwardKernelConfig|flash_forward_kernel"),
    ("CUTLASS", r"cutlass"),
    ("cuBLAS", r"nvjet|cublas|xmma_gemm|(ampere|turing|volta|sm\d+)_.*gemm"),
)


@cache
def library_of(name: str) -> str:
    """The library that the name of a foreign kernel speaks of, "" where it speaks of none; of our kernels too."""
    try:
        parse_config(name)
    except ConfigError:
        found = (label for label, pattern in FOREIGN_KERNELS if re.search(pattern, name, re.IGNORECASE))
        return next(found, "")
    return ""


# ---- sets ------------------------------------------------------------------------------------------------------------


PROGRESSION = tuple(
    parse_short_form(f"(FP16, 128, 64, 64, 4): {features}")
    for features in (
        "async+load_0_0_0_tiles",
        "async+swizzled+load_0_0_0_tiles",
        "async+eager+swizzled+load_0_0_0_tiles",
        "async+eager+swizzled+load_2_2_2_tiles",
        "async+eager+swizzled+load_2_2_2_tiles+buffer",
        "async+eager+swizzled+load_2_2_2_tiles+buffer+opt_softmax",
        "async+eager+swizzled+load_0_2_2_tiles+opt_softmax",
    )
)


def progression_of_all_shapes() -> list[KernelConfig]:
    """The progression at B_r 128, 64 by B_c 128, 64, 32 by 4, 8 warps, without B_r < B_c and 64 rows for 8 warps."""
    shapes = [
        (B_r, B_c, n_warps)
        for B_r, B_c, n_warps in itertools.product((128, 64), (128, 64, 32), (4, 8))
        if B_r >= B_c and not (B_r < 128 and n_warps == 8)
    ]
    return [config.replace(B_r=B_r, B_c=B_c, n_warps=n_warps) for B_r, B_c, n_warps in shapes for config in PROGRESSION]


def tuning_space() -> list[KernelConfig]:
    """The auto-tune product, BF16 first, without what `worth_tuning` drops: 80 configurations."""
    product = itertools.product(
        (Dtype.BF16, Dtype.FP16), (64, 128), (32, 64), (0, 2), (0, 2), (0, 2), (False, True), (False, True)
    )
    space = []
    for dtype, B_r, B_c, Q_tiles, K_tiles, V_tiles, buffer, opt_softmax in product:
        if not worth_tuning(B_r, B_c, Q_tiles, K_tiles):
            continue
        config = PROGRESSION[0].replace(
            dtype=dtype,
            B_r=B_r,
            B_c=B_c,
            async_copy=True,
            eager_load_blocks=True,
            swizzled=True,
            Q_mma_load_K_tiles=Q_tiles,
            K_mma_load_K_tiles=K_tiles,
            V_mma_load_K_tiles=V_tiles,
            mma_double_buffer_loads=buffer,
            optimized_softmax=opt_softmax,
        )
        space.append(config)
    return space


# The search space of a version that copies by tensor maps. A field that is zero in its own configuration stays zero.
TENSOR_TUNING: Mapping[str, tuple[int, ...]] = {
    "B_c": (64, 128),
    "stages": (2, 3, 4),
    "exp_columns": (16, 32, 64),
    "ping_pong": (False, True),
}


def tuning_space_of(header: KernelConfig) -> list[KernelConfig]:
    """The auto-tune product of a version: over its own fields where it copies by tensor maps, else the common one."""
    if not header.tensor_copies:
        return tuning_space()
    tried = {name: values for name, values in TENSOR_TUNING.items() if getattr(header, name)}
    return [
        header.replace(dtype=dtype, **dict(zip(tried, values, strict=True)))
        for dtype in (Dtype.BF16, Dtype.FP16)
        for values in itertools.product(*tried.values())
    ]


def worth_tuning(B_r: int, B_c: int, Q_tiles: int, K_tiles: int) -> bool:
    """The filter of the auto-tune product.

    Q and K are sliced together unless Q stays in registers. 64×64 blocks leave room for Q in registers and are
    tuned only so; 64×32 and 128-row blocks are tuned only with Q read again from shared memory.
    """
    if Q_tiles not in (0, K_tiles):
        return False
    return Q_tiles == 0 if (B_r, B_c) == (64, 64) else Q_tiles != 0


NAMED_SETS: dict[str, Callable[[], Iterable[KernelConfig]]] = {
    "prog": lambda: PROGRESSION,
    "progall": progression_of_all_shapes,
    "all": lambda: sorted(set(tuning_space())),
    "tune": tuning_space,
}
SET_HELP = (
    "default, prog, progall, all, tune, B_r,B_c (members of tune with these blocks), or short forms separated by ';'"
)


def default_set(header: KernelConfig, others: Sequence[KernelConfig] = ()) -> list[KernelConfig]:
    """A version's default instances: the configurations of its header, each in FP16 and in BF16."""
    return [config.replace(dtype=dtype) for config in (header, *others) for dtype in Dtype]


def is_named_set(text: str) -> bool:
    """True if the text names a family of configurations rather than spelling out each of them."""
    return all("(" not in part for part in text.split(";"))


def config_set(
    text: str, header: KernelConfig | None = None, others: Sequence[KernelConfig] = ()
) -> list[KernelConfig]:
    """The configurations that a set names, each once and in order.

    `default` needs the version's header config and its others, and `tune` follows from the first where it is given.
    """
    parts = [part.strip() for part in text.split(";")] if text.strip() else ["default"]
    members: list[KernelConfig] = []
    for part in parts:
        members += _set_part(part, header, others)
    return list(dict.fromkeys(members))


def _set_part(part: str, header: KernelConfig | None, others: Sequence[KernelConfig]) -> Iterable[KernelConfig]:
    if part == "tune" and header is not None:
        return tuning_space_of(header)
    if part in NAMED_SETS:
        return NAMED_SETS[part]()
    if part == "default":
        if header is None:
            raise ConfigError("--set default: belongs to a version; name one with --version, or name another set")
        return default_set(header, others)
    blocks = re.fullmatch(r"([0-9]{1,9})\s*,\s*([0-9]{1,9})", part)
    if blocks:
        shape = (int(blocks[1]), int(blocks[2]))
        chosen = [config for config in tuning_space() if (config.B_r, config.B_c) == shape]
        if not chosen:
            there = sorted({(config.B_r, config.B_c) for config in tuning_space()})
            raise ConfigError(
                f"no configuration of tune has the blocks {part!r}: there are "
                + " ".join(f"{B_r},{B_c}" for B_r, B_c in there)
            )
        return chosen
    if "(" in part:
        return [parse_short_form(part)]
    raise ConfigError(f"unknown set {part!r}: expected {SET_HELP}")


# ---- comparison ------------------------------------------------------------------------------------------------------


def differences(a: KernelConfig, b: KernelConfig) -> list[tuple[str, str, str]]:
    """(field, value in a, value in b) of every field in which two configurations differ, as C++ spells the values."""
    if a.family != b.family:
        return [("family", a.family.name, b.family.name)]
    return [
        (name, cpp_literal(left), cpp_literal(right))
        for name, left, right in zip(a.family.fields, a.values(), b.values(), strict=True)
        if left != right
    ]
