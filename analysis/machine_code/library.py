"""All kernels of a library: counted, and paired by symbol with those of another build of it.

    for figures in read_library(Path("libold.so"), None).kernels: print(figures.arch, figures.symbol, figures.registers)

Two builds are compared by everything that the driver and the hardware read (contents.py): kernels, device functions,
variables, PTX texts, what is the files' own, and images that can't be read. Kernels with the same facts are identical.
Kernels of other code are disassembled, a group at a time, so that a library of any size fits in memory.
"""

import hashlib
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from analysis.errors import AnalysisError, NoDeviceCode, NothingBelow
from analysis.ladder.config import library_of
from analysis.machine_code.contents import (
    CODE,
    FILE,
    FILE_HASH,
    KERNEL,
    OF_FILE,
    Item,
    changed_facts,
    describe,
    items_of,
)
from analysis.machine_code.cubin import Cubin, Kernel
from analysis.machine_code.images import (
    RESOURCES,
    Image,
    Skipped,
    is_binary,
    read_images,
    resources,
    survey,
)
from analysis.machine_code.names import config_of, filter_by_name, names_of
from analysis.machine_code.notes import note, progress
from analysis.machine_code.occupancy import most_warps
from analysis.machine_code.opcodes import PIPES, pipe_of
from analysis.machine_code.sass import CHUNK_BYTES, Listing, Refused, count_all, disassemble_all
from analysis.machine_code.subjects import choose_arch, note_unknown, note_unknown_opcodes
from analysis.table import Cell, Table, json_text

PTX, UNREAD = "PTX", "image"
LONGEST_COMMENT = 65000  # characters; GitHub takes 65,536
OTHER_NOPS = "the same instructions; NOPs differ"  # in number, position or control codes


@dataclass(frozen=True)
class Figures:
    """One kernel as its cubin describes it, or something else that two builds are compared by."""

    arch: str
    symbol: str
    image: int  # in the library's list
    index: int  # of its symbol
    code_hash: str
    code_bytes: int
    registers: int | None
    stack: int | None
    local: int  # LDL and STL
    static_smem: int
    warps: int | None = None  # most that an SM holds
    kind: str = KERNEL
    facts: Mapping[str, str] = field(default_factory=dict)  # what else the driver and the hardware read of it

    def record(self) -> dict[str, object]:
        return {name: value for name, value in asdict(self).items() if name not in ("kind", "facts")}


@dataclass(frozen=True)
class Library:
    path: Path
    images: list[Image]  # cubins
    kernels: list[Figures]
    others: tuple[Figures, ...] = ()  # of read_contents(): what is no kernel

    def open(self, image: int, folder: Path) -> tuple[Cubin, Path]:
        return self.images[image].cubin(str(self.path)), self.images[image].as_file(folder)


def read_library(path: Path, arch: str | None) -> Library:
    """Every kernel of a file, or those of one architecture."""
    images = _cubins(path, read_images(path), arch)
    kernels = [
        _figures(image.arch, location, kernel)
        for location, image in enumerate(images)
        for kernel in image.cubin(str(path)).entries
    ]
    if not kernels:
        raise AnalysisError(f"{path}: no kernel in this file")
    return Library(path, images, kernels)


def _cubins(path: Path, images: Iterable[Image], arch: str | None) -> list[Image]:
    cubins = [image for image in images if image.kind == "cubin"]
    if not cubins:
        raise AnalysisError(f"{path}: holds PTX but no machine code")
    chosen = choose_arch((image.arch for image in cubins), arch, str(path)) if arch is not None else None
    return [image for image in cubins if chosen in (None, image.arch)]


def _figures(arch: str, image: int, kernel: Kernel) -> Figures:
    return Figures(
        arch,
        kernel.symbol,
        image,
        kernel.index,
        kernel.code_hash,
        len(kernel.code),
        kernel.registers,
        kernel.stack,
        kernel.ldl + kernel.stl,
        kernel.static_smem,
        most_warps(arch, kernel.registers, kernel.max_threads, kernel.static_smem),
    )


def read_contents(path: Path, arch: str | None) -> Library:
    """The table with the facts of each kernel, and with everything else by which two builds are compared."""
    images, skipped = survey(path)
    if skipped and not images:
        raise skipped[0].error
    cubins = _cubins(path, images, arch)
    kernels: list[Figures] = []
    others = [_unread(each) for each in skipped]
    files: dict[str, dict[str, set[str]]] = {}  # architecture to the facts of its cubins
    for location, image in enumerate(cubins):
        cubin = image.cubin(str(path))
        code = {kernel.index: kernel for kernel in cubin.kernels}
        for item in items_of(cubin):
            kernel = code.get(item.index)
            if item.kind == FILE:
                of_arch = files.setdefault(image.arch, {})
                for name, value in item.facts.items():
                    of_arch.setdefault(name, set()).add(value)
            elif kernel is None:
                others.append(_without_code(image.arch, location, item))
            else:
                found = replace(_figures(image.arch, location, kernel), kind=item.kind, facts=item.facts)
                (kernels if item.kind == KERNEL else others).append(found)
    for name, facts in files.items():
        joined = {fact: " | ".join(sorted(values)) for fact, values in facts.items()}
        others.append(_without_code(name, 0, Item(FILE, OF_FILE, joined)))
    if not any(each.code_bytes for each in (*kernels, *others)):
        raise AnalysisError(f"{path}: no kernel in this file")
    others += [_of_ptx(image) for image in images if image.kind == "ptx" and arch is None]
    return Library(path, cubins, kernels, tuple(others))


def _without_code(arch: str, image: int, item: Item) -> Figures:
    return Figures(arch, item.symbol, image, item.index, "", 0, None, None, 0, 0, None, item.kind, item.facts)


def _of_ptx(image: Image) -> Figures:
    digest = hashlib.sha256(image.comparable_ptx().encode()).hexdigest()[:16]
    first = min(image.entries(), default="")
    return _without_code(image.arch, 0, Item(PTX, first, {"text": f"#{digest}"}))


def _unread(skipped: Skipped) -> Figures:
    note(f"compared by its bytes alone: {skipped.reason}")
    return _without_code("", 0, Item(UNREAD, "not read", {"bytes": f"#{skipped.digest[:16]}"}))


def chosen_from(library: Library, pattern: str | None) -> Library:
    """The library with those of its kernels that the pattern fits."""
    kernels = filter_by_name(library.kernels, lambda figures: figures.symbol, pattern, str(library.path))
    return replace(library, kernels=kernels)


def opened(library: Library, folder: Path) -> Iterator[tuple[int, Cubin, Path, list[Kernel]]]:
    """The images that hold the library's kernels, one after another: number, cubin, its file, these kernels."""
    wanted: dict[int, set[int]] = {}
    for figures in library.kernels:
        wanted.setdefault(figures.image, set()).add(figures.index)
    for image, indices in wanted.items():
        cubin, path = library.open(image, folder)
        yield image, cubin, path, [kernel for kernel in cubin.entries if kernel.index in indices]


def disassemble_library(library: Library) -> Iterator[tuple[Figures, Listing]]:
    """The listings of the library's kernels; notes name those that are not read."""
    figures = {(each.image, each.index): each for each in library.kernels}
    numbers: dict[str, int] = {}  # of the images, by their cubins' names
    with tempfile.TemporaryDirectory(prefix="flashladder.") as folder:

        def cubins() -> Iterator[tuple[Cubin, Path, list[Kernel]]]:
            for image, cubin, path, kernels in opened(library, Path(folder)):
                numbers[cubin.name] = image
                yield cubin, path, kernels

        for cubin, kernel, listing in progress(disassemble_all(cubins()), "kernels", len(library.kernels)):
            if isinstance(listing, Refused):
                note(f"skipped: {cubin.name}: {kernel.symbol}: {listing.reason}")
                continue
            note_unknown(str(library.path), listing)
            yield figures[numbers[cubin.name], kernel.index], listing


def count_kernels(library: Library) -> Iterator[tuple[Figures, Kernel, Counter[str]]]:
    """The opcodes of the library's kernels; notes name those that are not read."""
    figures = {(each.image, each.index): each for each in library.kernels}
    numbers: dict[str, int] = {}  # of the images, by their cubins' names
    with tempfile.TemporaryDirectory(prefix="flashladder.") as folder:

        def cubins() -> Iterator[tuple[Cubin, Path, list[Kernel]]]:
            for image, cubin, path, kernels in opened(library, Path(folder)):
                numbers[cubin.name] = image
                yield cubin, path, kernels

        for cubin, kernel, counted in progress(count_all(cubins()), "kernels", len(library.kernels)):
            if isinstance(counted, Refused):
                note(f"skipped: {cubin.name}: {kernel.symbol}: {counted.reason}")
                continue
            note_unknown_opcodes(str(library.path), kernel.symbol, counted)
            yield figures[numbers[cubin.name], kernel.index], kernel, counted


# ---- two builds ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pair:
    """A kernel, or something else, of both builds or of one of them."""

    before: Figures | None
    after: Figures | None
    verdict: str = ""  # what sass-diff says of what changed
    instructions: tuple[int, int] | None = None  # of a changed kernel

    @property
    def figures(self) -> Figures:
        found = self.after or self.before
        assert found is not None
        return found

    @property
    def status(self) -> str:
        if self.before is None or self.after is None:
            return "removed" if self.after is None else "added"
        same = self.before.code_hash == self.after.code_hash and self.before.facts == self.after.facts
        return "identical" if same else "changed"

    @property
    def other_code(self) -> bool:
        """A kernel of both builds whose machine code differs."""
        if self.before is None or self.after is None or not self.before.code_bytes:
            return False
        one, other = self.before, self.after
        return one.code_hash != other.code_hash or one.facts.get(CODE) != other.facts.get(CODE)

    @property
    def other_facts(self) -> str:
        """Other differences in words; if the code differs, only those that do not follow from it."""
        if self.before is None or self.after is None:
            return ""
        changes = changed_facts(self.before.facts, self.after.facts)
        return describe(
            change for change in changes if change[0] != CODE and not (self.other_code and follows_code(*change))
        )

    @property
    def grew(self) -> int:
        """Instructions more than before."""
        return self.instructions[1] - self.instructions[0] if self.instructions else 0

    @property
    def more_registers(self) -> int:
        if self.before is None or self.after is None:
            return 0
        return (self.after.registers or 0) - (self.before.registers or 0)

    @property
    def spilled(self) -> bool:
        """More local memory, or more instructions that reach it."""
        if self.before is None or self.after is None:
            return False
        return self.after.local > self.before.local or (self.after.stack or 0) > (self.before.stack or 0)

    def record(self) -> dict[str, object]:
        sides = {"before": self.before, "after": self.after}
        return {
            "status": self.status,
            "kind": self.figures.kind,
            "arch": self.figures.arch,
            "kernel": self.figures.symbol,
            "library": library_of(self.figures.symbol),
            "verdict": self.verdict,
            "instructions": self.instructions,
            "changes": [
                {"fact": name, "before": one, "after": other}
                for name, one, other in changed_facts(*(side.facts if side else {} for side in sides.values()))
            ]
            if all(sides.values())
            else [],
            **{name: side.record() if side else None for name, side in sides.items()},
        }


# Facts that change together with the code: the addresses of some of its instructions, its length, its registers, of
# which the last two have columns of their own.
_FOLLOWS = re.compile(r"exits|registers|(warp-wide )?instructions\b.*|indirect branches|call stack")
_WITHOUT = {".text: header": r" \d+( \S+)$", "symbol self": r" \d+()$"}  # registers in the header, bytes of a symbol


def follows_code(name: str, before: str | None, after: str | None) -> bool:
    """True if a fact differs in nothing but what other code has other values of."""
    if before is None or after is None:
        return False
    if name in _WITHOUT:
        one, other = (re.sub(_WITHOUT[name], r"\1", value) for value in (before, after))
        return one == other
    return _FOLLOWS.fullmatch(name) is not None


def pair_kernels(before: Sequence[Figures], after: Sequence[Figures]) -> list[Pair]:
    """By architecture and symbol; what is left, by the symbol without hashes of files, where that names one of each.

    A kernel that is alone on both sides, or alone of its type among ours, is that of the other side, whatever its name.
    """
    left, right = _numbered(before), _numbered(after)
    pairs = [Pair(each, right.pop(key)) for key, each in list(left.items()) if key in right and left.pop(key)]
    stable = _by_stable_name(right.values())
    for key, each in _by_stable_name(left.values()).items():
        if key in stable:
            pairs.append(Pair(each, stable[key]))
    paired = {id(figures) for pair in pairs for figures in (pair.before, pair.after)}
    alone = _alone(after)
    for kind, each in _alone(before).items():
        if kind in alone and not {id(each), id(alone[kind])} & paired:
            pairs.append(Pair(each, alone[kind]))
            paired |= {id(each), id(alone[kind])}
    pairs += [Pair(each, None) for each in left.values() if id(each) not in paired]
    return pairs + [Pair(None, each) for each in right.values() if id(each) not in paired]


def _numbered(kernels: Iterable[Figures]) -> dict[tuple[str, str, str, int], Figures]:
    """By kind, architecture, symbol and the how-manieth of that symbol: each file may hold a copy of a template."""
    seen: Counter[tuple[str, str, str]] = Counter()
    found = {}
    for each in kernels:
        key = (each.kind, each.arch, each.symbol)
        found[(*key, seen[key])] = each
        seen[key] += 1
    return found


def _by_stable_name(kernels: Iterable[Figures]) -> dict[tuple[str, str, str], Figures]:
    """By kind, architecture and symbol without hashes of files; names that several kernels share are left out."""
    found: dict[tuple[str, str, str], list[Figures]] = {}
    for each in kernels:
        found.setdefault((each.kind, each.arch, FILE_HASH.sub("", each.symbol)), []).append(each)
    return {key: group[0] for key, group in found.items() if len(group) == 1}


def _alone(figures: Iterable[Figures]) -> dict[tuple[str, str], Figures]:
    """By architecture and, of our kernels, type of the elements: the kernel that no other has these of."""
    found: dict[tuple[str, str], list[Figures]] = {}
    for each in figures:
        if each.kind == KERNEL:
            config = config_of(each.symbol)
            found.setdefault((each.arch, config.dtype.name if config else ""), []).append(each)
    return {key: group[0] for key, group in found.items() if len(group) == 1}


def compare_pairs(
    before: Library, after: Library, pairs: Sequence[Pair], verdict: Callable[[Listing, Listing], str]
) -> Iterator[Pair]:
    """The pairs, those that changed with what `verdict` says of their listings and what else is another."""
    groups: dict[tuple[int, int], list[Pair]] = {}
    for pair in pairs:
        if not pair.other_code:
            yield replace(pair, verdict=pair.other_facts)
            continue
        assert pair.before is not None
        assert pair.after is not None
        groups.setdefault((pair.before.image, pair.after.image), []).append(pair)
    with tempfile.TemporaryDirectory(prefix="flashladder.") as folder:
        (Path(folder) / "before").mkdir()
        (Path(folder) / "after").mkdir()
        for (old, new), group in groups.items():
            one, other = before.open(old, Path(folder) / "before"), after.open(new, Path(folder) / "after")
            for chunk in _chunks(group):
                yield from _compare_group(chunk, one, other, verdict)


def _chunks(pairs: Sequence[Pair]) -> Iterator[list[Pair]]:
    """Groups of pairs whose listings fit in memory together."""
    chunk: list[Pair] = []
    size = 0
    for pair in pairs:
        if chunk and size > CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
        chunk.append(pair)
        size += pair.figures.code_bytes
    if chunk:
        yield chunk


def _compare_group(
    pairs: Sequence[Pair],
    before: tuple[Cubin, Path],
    after: tuple[Cubin, Path],
    verdict: Callable[[Listing, Listing], str],
) -> Iterator[Pair]:
    """The pairs of one cubin and one other, all disassembled."""
    sides = [{pair.before.index for pair in pairs if pair.before}, {pair.after.index for pair in pairs if pair.after}]
    wanted = [
        (cubin, path, [kernel for kernel in cubin.kernels if kernel.index in indices])
        for (cubin, path), indices in zip((before, after), sides, strict=True)
    ]
    found: list[dict[int, Listing | Refused]] = [{}, {}]
    for cubin, kernel, listing in disassemble_all(wanted):
        found[cubin is not before[0]][kernel.index] = listing
    for pair in pairs:
        assert pair.before is not None
        assert pair.after is not None
        a, b = found[0][pair.before.index], found[1][pair.after.index]
        refused = next((each for each in (a, b) if isinstance(each, Refused)), None)
        if refused:
            note(f"skipped: {pair.figures.symbol}: {refused.reason}")
            yield replace(pair, verdict="not disassembled")
            continue
        assert isinstance(a, Listing)
        assert isinstance(b, Listing)
        said = "; ".join(part for part in (verdict(a, b), pair.other_facts) if part)
        yield replace(pair, verdict=said or OTHER_NOPS, instructions=(len(a.body), len(b.body)))


@dataclass(frozen=True)
class LibraryChange:
    before: Path
    after: Path
    pairs: list[Pair]

    @property
    def identical(self) -> bool:
        return all(pair.status == "identical" for pair in self.pairs)

    @property
    def kernels(self) -> list[Pair]:
        return [pair for pair in self.pairs if pair.figures.kind == KERNEL]

    @property
    def only_kernel(self) -> tuple[Figures, Figures] | None:
        """The two kernels of files with one kernel each, if nothing differs that facts_of() omits."""
        apart = any(pair.figures.kind in (PTX, UNREAD) and pair.status != "identical" for pair in self.others)
        pairs = [(pair.before, pair.after) for pair in self.kernels]
        before, after = pairs[0] if len(pairs) == 1 and not apart else (None, None)
        return (before, after) if before and after else None

    @property
    def others(self) -> list[Pair]:
        return [pair for pair in self.pairs if pair.figures.kind != KERNEL]

    def summary(self) -> dict[str, int]:
        """The totals of the kernels."""
        both = [pair for pair in self.kernels if pair.before and pair.after]
        return {
            **{status: 0 for status in ("identical", "changed", "added", "removed")},
            **Counter(pair.status for pair in self.kernels),
            "grew": sum(pair.grew > 0 for pair in both),
            "shrank": sum(pair.grew < 0 for pair in both),
            "more registers": sum(pair.more_registers > 0 for pair in both),
            "fewer registers": sum(pair.more_registers < 0 for pair in both),
            "more local memory": sum(pair.spilled for pair in both),
        }

    def sentence(self) -> str:
        counts = ", ".join(f"{number} {name}" for name, number in self.summary().items() if number)
        differ = Counter((pair.figures.kind, pair.status) for pair in self.others if pair.status != "identical")
        also = "".join(f"; {kind}s {status}: {number}" for (kind, status), number in sorted(differ.items()))
        kernels = "1 kernel" if len(self.kernels) == 1 else f"{len(self.kernels)} kernels"
        return f"{self.before} -> {self.after}: {kernels}: {counts}{also}"

    def table(self, unchanged: bool) -> Table:
        """One row a kernel, those that spill more first, then by how much they grew."""
        shown = [pair for pair in self.pairs if unchanged or pair.status != "identical"]
        shown.sort(key=lambda pair: (pair.figures.kind != KERNEL, not pair.spilled, -pair.grew, -pair.more_registers,
                                     pair.figures.symbol))  # fmt: skip
        columns = (
            *("status", "arch", "instructions", "delta", "registers", "local", "smem", "warps"),
            *("verdict", "library", "kernel"),
        )
        names = names_of(pair.figures.symbol for pair in shown)
        return Table(columns, [self._row(pair, named(pair.figures, names)) for pair in shown])

    @staticmethod
    def _row(pair: Pair, name: str) -> list[Cell]:
        one, other = pair.before, pair.after
        sides = [side for side in (one, other) if side]
        return [
            pair.status,
            pair.figures.arch,
            _steps(pair.instructions) if pair.instructions else None,
            pair.grew if pair.instructions else None,
            _steps([side.registers for side in sides]),
            *(
                (_steps([getattr(side, name) for side in sides]) if pair.figures.code_bytes else None)
                for name in ("local", "static_smem", "warps")
            ),
            pair.verdict,
            library_of(pair.figures.symbol),
            name,
        ]

    def comment(self, table: Table) -> str:
        """The sentence and the rows of table(), as Markdown; no more of them than a comment on GitHub may have."""
        text = f"{self.sentence()}\n"
        for shown in range(len(table.rows), 0, -max(1, len(table.rows) // 64)):
            left = len(table.rows) - shown
            more = f"\nand {left} more, which --json has\n" if left else ""
            whole = f"{text}\n{Table(table.columns, table.rows[:shown]).markdown()}{more}"
            if len(whole) <= LONGEST_COMMENT:
                return whole
        return text

    def json(self) -> str:
        names = names_of(pair.figures.symbol for pair in self.pairs)
        record = {
            "before": str(self.before),
            "after": str(self.after),
            "summary": self.summary(),
            "kernels": [pair.record() | {"name": names[pair.figures.symbol]} for pair in self.kernels],
            "others": [pair.record() | {"name": named(pair.figures, names)} for pair in self.others],
        }
        return json_text(record)


def named(figures: Figures, names: Mapping[str, str]) -> str:
    """A kernel's name, of others with what they are before it."""
    name = names[figures.symbol]
    return name if figures.kind in (KERNEL, FILE) else f"{figures.kind} {name}"


def _steps(values: Sequence[int | None]) -> Cell:
    """One value, or "before -> after" where they differ."""
    if len(set(values)) == 1:
        return values[0]
    return " -> ".join(str(value) for value in values)


def diff_libraries(
    before: Library, after: Library, verdict: Callable[[Listing, Listing], str], pattern: str | None
) -> LibraryChange:
    pairs = filter_by_name(
        pair_kernels([*before.kernels, *before.others], [*after.kernels, *after.others]),
        lambda pair: pair.figures.symbol,
        pattern,
        f"{before.path} and {after.path}",
    )
    compared = compare_pairs(before, after, pairs, verdict)
    return LibraryChange(before.path, after.path, list(progress(compared, "kernels", len(pairs))))


# ---- two builds of many files ----------------------------------------------------------------------------------------


def read_folder(folder: Path, arch: str | None) -> dict[str, Library]:
    """The files below a folder that hold device code, by their paths in it."""
    found = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and is_binary(path)):
        try:
            found[str(path.relative_to(folder))] = read_contents(path, arch)
        except NoDeviceCode:
            continue
        except AnalysisError as error:
            skipped = Skipped(error, hashlib.sha256(path.read_bytes()).hexdigest())
            found[str(path.relative_to(folder))] = Library(path, [], [], (_unread(skipped),))
    if not found:
        raise NothingBelow(f"{folder}: no file below it holds device code")
    return found


def diff_folders(
    before: Path, after: Path, arch: str | None, verdict: Callable[[Listing, Listing], str], pattern: str | None
) -> LibraryChange:
    """The changes between two builds, file by file; every kernel of a file that only one build has is added or
    removed."""
    old, new = read_folder(before, arch), read_folder(after, arch)
    pairs: list[Pair] = []
    for name in sorted(old.keys() | new.keys()):
        one, other = (
            side.get(name) or Library(folder / name, [], []) for side, folder in ((old, before), (new, after))
        )
        own = pair_kernels([*one.kernels, *one.others], [*other.kernels, *other.others])
        pairs += compare_pairs(one, other, own, verdict)
    chosen = filter_by_name(pairs, lambda pair: pair.figures.symbol, pattern, f"{before} and {after}")
    return LibraryChange(before, after, chosen)


# ---- counts of all kernels -------------------------------------------------------------------------------------------


def count_library(path: Path, arch: str | None, pattern: str | None) -> Table:
    """One row a kernel: its instructions, whole and by pipe; a kernel that is not read is named in a note."""
    library = chosen_from(read_library(path, arch), pattern)
    names = names_of(figures.symbol for figures in library.kernels)
    rows: list[list[Cell]] = []
    for figures, kernel, counted in count_kernels(library):
        pipes: Counter[str] = Counter()
        for base, times in counted.items():
            pipes[pipe_of(base)] += times
        numbers = [*resources(figures.arch, kernel), counted.total(), *(pipes[pipe] for pipe in PIPES)]
        rows.append([figures.arch, *numbers, library_of(figures.symbol), names[figures.symbol]])
    if not rows:
        raise AnalysisError(f"{path}: none of {len(library.kernels)} kernels is read, see the notes")
    return Table(("arch", *RESOURCES, "instructions", *PIPES, "library", "kernel"), rows)
