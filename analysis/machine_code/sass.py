"""Machine code as records: listings parsed and joined with the control codes of the instruction words.

    listing = disassemble(Path("build/v07/sm_80.cubin"), config)
    for at in listing.instructions: print(at.control, at.opcode, at.operands)

The text comes from `nvdisasm -c`; parse_listing also reads `cuobjdump -sass` and the files of sass/. Opcodes are
always the text's. nvdisasm does not print how an instruction waits and stalls, so that comes from bits 105 to 125 of
its 128-bit word.
"""

import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import takewhile
from pathlib import Path
from typing import Protocol, TypeVar

from analysis.errors import AnalysisError
from analysis.ladder.config import KernelConfig
from analysis.machine_code.cubin import NOP, OPCODE_MASK, WORD_BYTES, Cubin, Kernel
from analysis.machine_code.names import config_of, name_of, names_of
from analysis.machine_code.opcodes import KNOWN
from analysis.machine_code.toolkit import AT_ONCE, Running, finish, start

NO_BARRIER = 7
NAMED = 20  # kernels in a message


@dataclass(frozen=True, slots=True)
class Control:
    """The scheduler's fields of an instruction: `B0-2---:R0:W1:Y:S07`."""

    stall: int  # cycles until this warp's next instruction may issue
    yields: bool  # Y: the scheduler prefers another warp next
    write: int  # scoreboard released when the result is written; 7 is none
    read: int  # scoreboard released when the operands are read; 7 is none
    wait: int  # bit mask of the scoreboards this instruction waits for
    reuse: int  # bit mask of the operands kept in the reuse cache

    @staticmethod
    def of_word(word: int) -> "Control":
        """Bits 105-108 stall, 109 yield (0 yields), 110-112 write, 113-115 read, 116-121 wait, 122-125 reuse."""
        return _control_of_bits(word >> 105 & 0x1FFFFF)

    def __str__(self) -> str:
        wait = "".join(str(i) if self.wait >> i & 1 else "-" for i in range(6))
        read, write = ("-" if b == NO_BARRIER else str(b) for b in (self.read, self.write))
        return f"B{wait}:R{read}:W{write}:{'Y' if self.yields else '-'}:S{self.stall:02d}"


@cache  # a library of a million instructions has some thousand codes
def _control_of_bits(bits: int) -> Control:
    return Control(bits & 15, not bits >> 4 & 1, bits >> 5 & 7, bits >> 8 & 7, bits >> 11 & 63, bits >> 17 & 15)


@dataclass(frozen=True, slots=True)
class Instruction:
    address: int
    predicate: str  # "", "@P0", "@!UPT", ...
    opcode: str  # with modifiers
    operands: str
    control: Control | None = None
    source: tuple[str, ...] = ()  # "file:line" of -g, innermost first, when the listing holds it

    base: str = field(init=False, repr=False, compare=False)  # the opcode without modifiers

    def __post_init__(self) -> None:
        object.__setattr__(self, "base", self.opcode.split(".", 1)[0])

    @property
    def never(self) -> bool:
        """Predicated with a constant false: a dummy that ptxas inserted, never executed."""
        return self.predicate in ("@!PT", "@!UPT")

    @property
    def text(self) -> str:
        return " ".join(part for part in (self.predicate, self.opcode, self.operands) if part)


@dataclass(frozen=True)
class Listing:
    """One kernel with the subroutines that follow it in its section."""

    symbol: str  # or the short form that replaces it in our own listings; "" where the text names no kernel
    arch: str  # "" where the text does not say
    instructions: tuple[Instruction, ...]
    labels: dict[str, int] = field(default_factory=dict)  # name to address
    indirect: dict[int, tuple[int, ...]] = field(default_factory=dict)  # of a BRX: its targets, from the cubin

    @property
    def label(self) -> str:
        """Short form or the demangled name of a foreign kernel."""
        return name_of(self.symbol) if self.symbol else "unnamed kernel"

    @property
    def config(self) -> KernelConfig | None:
        return config_of(self.symbol)

    @cached_property
    def index(self) -> dict[int, int]:
        """Address to position in instructions."""
        return {at.address: position for position, at in enumerate(self.instructions)}

    @cached_property
    def unknown(self) -> dict[str, int]:
        """Opcodes that no table has, with their number: they count as "other"."""
        return dict(Counter(at.base for at in self.instructions if at.base not in KNOWN))

    @cached_property
    def code(self) -> tuple[Instruction, ...]:
        """Without the NOP padding at the end and the branch to itself that closes the code."""
        end = len(self.instructions)
        while end and self.instructions[end - 1].base == "NOP":
            end -= 1
        return tuple(at for at in self.instructions[:end] if at.base != "BRA" or not self.closes(at))

    @cached_property
    def body(self) -> tuple[Instruction, ...]:
        """The counted instructions: the code without NOPs."""
        return tuple(at for at in self.code if at.base != "NOP")

    def closes(self, at: Instruction) -> bool:
        return at.base == "BRA" and not at.predicate and self.target(at) == at.address

    def target(self, at: Instruction) -> int | None:
        """Address that the operands name, None when they name none or one outside this code."""
        named = re.search(r"`\(([^)]+)\)", at.operands)
        if named:
            return self.labels.get(named[1])
        number = re.search(r"(?:^|[\s,])(0x[0-9a-f]+)$", at.operands)
        if number and int(number[1], 16) in self.index:
            return int(number[1], 16)
        return None

    def targets(self, at: Instruction) -> tuple[int, ...]:
        """The targets of an indirect branch: from the cubin, else from nvdisasm; empty if neither is known."""
        if at.address in self.indirect:
            return self.indirect[at.address]
        named = _BRANCH_TARGETS.search(at.operands)
        names = named[1].split(",") if named else []
        return tuple(
            self.labels[name] for name in dict.fromkeys(names) if name.startswith(".L") and name in self.labels
        )

    @cached_property
    def lost(self) -> tuple[Instruction, ...]:
        """Indirect branches of which no target is known: loops through them are missed."""
        return tuple(at for at in self.instructions if at.base in INDIRECT and not self.targets(at))


INDIRECT = frozenset({"BRX", "BRXU", "JMX", "JMXU"})
CONTROL = r"B[-0-5]{6}:R[-0-5]:W[-0-5]:[-Y]:S\d\d"
_INSTRUCTION = re.compile(
    rf"\s*/\*([0-9a-f]{{4,}})\*/\s+(?:({CONTROL})\s+)?(?:(@!?U?P[T0-9]+)\s+)?([A-Z][A-Z0-9_]*(?:\.[A-Za-z0-9_]+)*)\s*(.*)$"
)
_LABEL = re.compile(r"([.$\w]+):\s*(?://.*)?$")
_BRANCH_TARGETS = re.compile(r'\(\*"BRANCH_TARGETS ([^"]*)"\*\)')
_TABLE_LOAD = re.compile(r"(U?R\d+), c\[0x2\]\[U?R(?:\d+|Z)(?:\+(0x[0-9a-f]+))?\]")
_NUMBERED = re.compile(r"\.L_x_\d+")
_SECTION = re.compile(r"//-+ \.text\.(\S+)\s+-+$|\s*Function : (\S+)\s*$|//-+ kernel (\S.*?) -+$")
_ARCH = re.compile(r"\s*(?:\.target\s+|code for )(sm_\w+)")
_SOURCE = re.compile(r"\s*//## File \"([^\"]*)\", line ([0-9]{1,9})( inlined at .*)?$")
_ENCODING = re.compile(r"/\* 0x([0-9a-f]{16}) \*/")
_AFTER_OPERANDS = re.compile(r";|//|/\*")
_SKIPPED = re.compile(
    r"\s*(//.*|\.(section|sectioninfo|sectionflags|align|global|weak|type|size|other|elftype|headerflags|target|dword|"
    r"byte|zero|word|string|nv|local|common|short|quad|reloc|loc|file)\b.*|\.{3,}|#.*|Fatbin.*|=+|arch =.*|"
    r"code version =.*|host =.*|compile_size =.*|compressed|producer =.*|identifier:.*|code for.*|Function :.*|"
    r"/\*[0-9a-f]+\*/\s*[{}]?|[{}]|-+)?\s*$"
)


@cache  # a listing of thousands of lines has some hundred codes
def _control_of_text(text: str) -> Control:
    wait, read, write, yields, stall = text.split(":")
    mask = sum(1 << i for i, mark in enumerate(wait[1:]) if mark != "-")
    write_barrier, read_barrier = (NO_BARRIER if part[1] == "-" else int(part[1]) for part in (write, read))
    return Control(int(stall[1:]), yields == "Y", write_barrier, read_barrier, mask, 0)


def parse_listing(text: str, name: str = "listing") -> list[Listing]:
    """The kernels of a listing in its order. A line that is not understood is an AnalysisError that names the line."""
    lines = text.splitlines()
    listings = list(each_listing(lines, name))
    if not listings:
        raise AnalysisError(f"{name}: no instruction recognized in {len(lines)} lines")
    return listings


def each_listing(lines: Iterable[str], name: str) -> Iterator[Listing]:
    """The kernels of a listing, one after another."""
    state = _Reader(name)
    for number, line in enumerate(lines, start=1):
        finished = state.line(number, line)
        if finished:
            yield finished
    last = state.finish()
    if last:
        yield last


class _Reader:
    """Collects one kernel after another from the lines of a listing."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.arch = ""
        self.symbol = ""
        self.instructions: list[Instruction] = []
        self.pending: list[str] = []  # labels before the next instruction
        self.labels: dict[str, int] = {}
        self.source: list[str] = []
        self.fresh_source = False

    def finish(self) -> Listing | None:
        if not self.instructions:
            return None
        end = self.instructions[-1].address + WORD_BYTES
        self.labels |= dict.fromkeys(self.pending, end)
        listing = Listing(self.symbol, self.arch, tuple(self.instructions), self.labels)
        self.instructions, self.labels, self.pending, self.symbol, self.source = [], {}, [], "", []
        return listing

    def line(self, number: int, line: str) -> Listing | None:
        found = _INSTRUCTION.match(line)
        if found:
            return self._instruction(number, line, found)
        section = _SECTION.match(line)
        if section:
            finished = self.finish()
            self.symbol = section[1] or section[2] or section[3]
            return finished
        label = _LABEL.match(line)
        source = _SOURCE.match(line)
        arch = _ARCH.match(line)
        encoding = _ENCODING.search(line)
        if source:
            if not self.fresh_source:
                self.source = []
            self.source.append(f"{source[1]}:{source[2]}")
            self.fresh_source = True
        elif label:
            self.pending.append(label[1])
        elif arch:
            self.arch = arch[1]
        elif encoding and self.instructions:
            last = self.instructions[-1]
            self.instructions[-1] = replace(last, control=Control.of_word(int(encoding[1], 16) << 64))
        elif not _SKIPPED.match(line):
            raise AnalysisError(f"{self.name}:{number}: line not understood: {line.strip()[:100]!r}")
        return None

    def _instruction(self, number: int, line: str, found: re.Match[str]) -> Listing | None:
        address, control, predicate, opcode, rest = found.groups()
        finished = None
        at = int(address, 16)
        if self.instructions and at <= self.instructions[-1].address:
            if at:
                before = self.instructions[-1].address
                raise AnalysisError(f"{self.name}:{number}: address {address} after {before:04x}")
            finished = self.finish()
        after = _AFTER_OPERANDS.search(rest)
        operands = rest[: after.start() if after else None].rstrip()
        if self.pending:
            self.labels |= dict.fromkeys(self.pending, at)
            self.pending = []
        decoded = _control_of_text(control) if control else None
        self.instructions.append(Instruction(at, predicate or "", opcode, operands, decoded, tuple(self.source)))
        self.fresh_source = False
        return finished


# ---- cubins ----------------------------------------------------------------------------------------------------------


class Named(Protocol):
    """A kernel of a cubin or of a listing."""

    @property
    def symbol(self) -> str: ...


N = TypeVar("N", bound=Named)


def select(kernels: Sequence[N], choice: KernelConfig | str | None, name: str) -> N:
    """The kernel that a config, short form, symbol, demangled name or index from 0 chooses.

    Without a choice: the only one, or the lowest config of ours. Two that fit are an error that names both.
    """
    if not kernels:
        raise AnalysisError(f"{name}: no kernel in this file")
    configs = [config_of(kernel.symbol) for kernel in kernels]

    def there() -> str:
        names = names_of(kernel.symbol for kernel in kernels[:NAMED])
        shown = "; ".join(f"{position}: {names[kernel.symbol]}" for position, kernel in enumerate(kernels[:NAMED]))
        return shown + (f"; and {len(kernels) - NAMED} more, see `sass --list`" if len(kernels) > NAMED else "")

    if choice is None:
        if len(kernels) == 1:
            return kernels[0]
        choice = min((config for config in configs if config), default=None)
        if choice is None:
            raise AnalysisError(f"{name}: {len(kernels)} kernels, choose one with --config: {there()}")
    if isinstance(choice, str) and choice.isdecimal():
        if int(choice) >= len(kernels):
            raise AnalysisError(f"{name}: no kernel {choice}; there are {there()}")
        return kernels[int(choice)]
    wanted = choice if isinstance(choice, KernelConfig) else config_of(choice)
    chosen = [
        kernel
        for kernel, config in zip(kernels, configs, strict=True)
        if kernel.symbol == choice or (wanted is not None and config == wanted)
    ]
    if not chosen and isinstance(choice, str) and wanted is None:
        names = names_of(kernel.symbol for kernel in kernels)
        chosen = [kernel for kernel in kernels if names[kernel.symbol] == choice]
    if not chosen:
        raise AnalysisError(f"{name}: no kernel {choice}; there are {there()}")
    if len(chosen) > 1:
        symbols = ", ".join(kernel.symbol for kernel in chosen)
        raise AnalysisError(f"{name}: {len(chosen)} kernels of the config {choice}, choose one by symbol: {symbols}")
    return chosen[0]


@dataclass(frozen=True)
class Job:
    """A disassembly under way; several run side by side."""

    cubin: Cubin
    kernel: Kernel
    process: Running

    def text(self) -> str:
        """The output of nvdisasm."""
        return finish(self.process)

    def listing(self) -> Listing:
        found = parse_listing(self.text(), f"nvdisasm of {self.cubin.name}")
        mine = [each for each in found if each.symbol == self.kernel.symbol]
        if len(mine) != 1:
            raise AnalysisError(f"{self.cubin.name}: nvdisasm printed {len(mine)} listings of {self.kernel.symbol}")
        return with_control(replace(mine[0], arch=self.cubin.arch), self.kernel)


def start_job(cubin: Cubin, kernel: Kernel, path: Path, options: Sequence[str] = ()) -> Job:
    """Begin to disassemble one kernel of the cubin at `path`, with more nvdisasm options."""
    return Job(cubin, kernel, start("nvdisasm", ["-c", "-fun", str(kernel.index), *options, str(path)]))


def disassemble(path: Path, choice: KernelConfig | str | None = None) -> Listing:
    """The listing of one kernel of a cubin, with control codes."""
    cubin = Cubin.read(path)
    kernel = select(cubin.entries, choice, str(path))
    return start_job(cubin, kernel, path).listing()


@dataclass(frozen=True)
class Refused:
    """A kernel that nvdisasm or the parser does not read, and why."""

    kernel: Kernel
    reason: str


COUNTING = ("--no-dataflow",)  # where no branch is followed
CHUNK_BYTES = 2 << 20  # of code for one run of nvdisasm: its text is ten times as long


def disassemble_all(
    cubins: Iterable[tuple[Cubin, Path, Sequence[Kernel]]], options: Sequence[str] = ()
) -> Iterator[tuple[Cubin, Kernel, Listing | Refused]]:
    """These kernels of the cubins at their paths, from a few runs of nvdisasm; one that is not read stops no other."""
    started = deque[tuple[Cubin, Path, list[Kernel], Running]]()
    for cubin, path, wanted in cubins:
        for kernels in _chunks(wanted):
            started.append((cubin, path, kernels, _start_chunk(kernels, path, options)))
            if len(started) > AT_ONCE:  # one more than run at once: the next begins as soon as one ends
                yield from _read_chunk(options, *started.popleft())
    while started:
        yield from _read_chunk(options, *started.popleft())


def count_all(
    cubins: Iterable[tuple[Cubin, Path, Sequence[Kernel]]],
) -> Iterator[tuple[Cubin, Kernel, Counter[str] | Refused]]:
    """The number of occurrences of each opcode without modifiers in each kernel, as counted in Listing.body.

    The text is not parsed line by line, as for a listing, but where it does not have what the bytes have.
    """
    started = deque[tuple[Cubin, Path, list[Kernel], Running]]()

    def read(cubin: Cubin, path: Path, kernels: Sequence[Kernel], running: Running) -> Iterator[
        tuple[Cubin, Kernel, Counter[str] | Refused]
    ]:  # fmt: skip
        left = {kernel.symbol: kernel for kernel in kernels}
        try:
            for symbol, counted, nops in _counted(finish(running)):
                kernel = left.get(symbol)
                if kernel and counted.total() - nops == len(kernel.code) // WORD_BYTES - kernel.count(NOP):
                    del counted["NOP"], left[symbol]
                    yield cubin, kernel, counted
        except AnalysisError:
            pass  # a kernel that nvdisasm refuses: the others are read without it
        for _, kernel, listing in disassemble_all([(cubin, path, list(left.values()))]) if left else ():
            yield cubin, kernel, listing if isinstance(listing, Refused) else Counter(at.base for at in listing.body)

    for cubin, path, wanted in cubins:
        for kernels in _chunks(wanted):
            started.append((cubin, path, kernels, _start_chunk(kernels, path, COUNTING)))
            if len(started) > AT_ONCE:
                yield from read(*started.popleft())
    while started:
        yield from read(*started.popleft())


# They begin with text that occurs nowhere else, which is searched for much faster than the beginnings of lines.
_OF_SECTION = re.compile(r"//-+ \.text\.(\S+)\s+-+$", re.MULTILINE)
_OPCODE = re.compile(r"\*/ +(?:@\S+ +)?([A-Z][A-Z0-9_]*)")
_BRANCH = re.compile(r"\*/ +BRA `\((\.L\w+)\)")


def _counted(text: str) -> Iterator[tuple[str, Counter[str], int]]:
    """Symbol, opcodes without the closing branch, and how many of them are NOPs less those branches."""
    locations = [(found[1], found.start()) for found in _OF_SECTION.finditer(text)]
    ends = [location for _, location in locations[1:]] + [len(text)]
    for (symbol, location), end in zip(locations, ends, strict=True):
        counted = Counter(_OPCODE.findall(text, location, end))
        closing = sum(_is_own_label(text, branch) for branch in _BRANCH.finditer(text, location, end))
        nops = counted["NOP"] - closing
        counted["BRA"] -= closing
        yield symbol, +counted, nops


def _is_own_label(text: str, branch: re.Match[str]) -> bool:
    """True if the line before a branch is the label that it branches to."""
    line = text.rfind("\n", 0, branch.start())
    return text[text.rfind("\n", 0, line) + 1 : line] == f"{branch[1]}:"


def _chunks(kernels: Iterable[Kernel]) -> Iterator[list[Kernel]]:
    """Kernels in groups of about CHUNK_BYTES."""
    chunk: list[Kernel] = []
    size = 0
    for kernel in kernels:
        if chunk and size + len(kernel.code) > CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
        chunk.append(kernel)
        size += len(kernel.code)
    if chunk:
        yield chunk


def _start_chunk(kernels: Sequence[Kernel], path: Path, options: Sequence[str]) -> Running:
    indices = ",".join(str(kernel.index) for kernel in kernels)
    return start("nvdisasm", ["-c", "-fun", indices, *options, str(path)])


def _read_chunk(
    options: Sequence[str], cubin: Cubin, path: Path, kernels: Sequence[Kernel], running: Running
) -> Iterator[tuple[Cubin, Kernel, Listing | Refused]]:
    waiting = {kernel.symbol: kernel for kernel in kernels}
    reason = "nvdisasm printed no listing of it"
    try:
        for listing in each_listing(finish(running).splitlines(), f"nvdisasm of {cubin.name}"):
            kernel = waiting.get(listing.symbol)
            if kernel is not None:
                joined = with_control(_numbered_by_address(replace(listing, arch=cubin.arch)), kernel)
                del waiting[listing.symbol]
                yield cubin, kernel, joined
    except AnalysisError as error:
        reason = str(error)
        if "fatal" not in reason and len(waiting) > 1:  # one of them: halve them until it is alone
            half = len(waiting) // 2
            for part in (list(waiting.values())[:half], list(waiting.values())[half:]):
                yield from _read_chunk(options, cubin, path, part, _start_chunk(part, path, options))
            return
    yield from ((cubin, kernel, Refused(kernel, reason)) for kernel in waiting.values())


def _numbered_by_address(listing: Listing) -> Listing:
    """The labels numbered by their position, as nvdisasm counts them through all kernels that it prints."""
    numbered = [(address, int(name[5:]), name) for name, address in listing.labels.items() if _NUMBERED.fullmatch(name)]
    names = {name: f".L_x_{location}" for location, (_, _, name) in enumerate(sorted(numbered))}

    def renamed(text: str) -> str:
        return _NUMBERED.sub(lambda found: names.get(found[0], found[0]), text)

    instructions = tuple(
        Instruction(at.address, at.predicate, at.opcode, renamed(at.operands), at.control, at.source)
        if ".L_x_" in at.operands
        else at
        for at in listing.instructions
    )
    labels = {renamed(name): address for name, address in listing.labels.items()}
    return replace(listing, instructions=instructions, labels=labels)


def with_control(listing: Listing, kernel: Kernel) -> Listing:
    """Join each instruction with its word. Only padding may be missing from the text."""
    words = dict(enumerate(kernel.words))
    joined = []
    for at in listing.instructions:
        word = words.pop(at.address // WORD_BYTES, None)
        if word is None or at.address % WORD_BYTES:
            raise AnalysisError(f"{kernel.symbol}: no code at {at.address:04x}, where the listing has {at.text!r}")
        joined.append(Instruction(at.address, at.predicate, at.opcode, at.operands, Control.of_word(word), at.source))
    left = [location for location, word in words.items() if word & OPCODE_MASK != NOP]
    if left:
        raise AnalysisError(
            f"{kernel.symbol}: {len(left)} instructions are not in the listing, the first at {left[0] * WORD_BYTES:04x}"
        )
    return replace(listing, instructions=tuple(joined), indirect=_indirect(listing, kernel))


def _indirect(listing: Listing, kernel: Kernel) -> dict[int, tuple[int, ...]]:
    """Targets of the indirect branches: from .nv.info, else from the jump table that the code before a branch loads."""
    known = {branch.address: branch for branch in kernel.branches}
    found = {}
    for position, at in enumerate(listing.instructions):
        if at.base not in INDIRECT:
            continue
        branch = known.get(at.address)
        targets = branch.targets if branch and any(branch.targets) else ()
        if not targets:
            targets = _jump_table(listing, position, kernel.jump_tables, len(branch.targets) if branch else None)
        inside = tuple(dict.fromkeys(target for target in targets if target in listing.index))
        if inside:
            found[at.address] = inside
    return found


def _jump_table(listing: Listing, position: int, bank: bytes, count: int | None) -> tuple[int, ...]:
    """The entries of the table that is loaded into the register of a BRX, up to one that is no address in the code."""
    at = listing.instructions[position]
    register, _, displacement = at.operands.partition(" ")
    offset = re.match(r"-?0x[0-9a-f]+", displacement.strip())
    base = at.address + WORD_BYTES + (int(offset[0], 16) if offset else 0)
    for before in reversed(listing.instructions[max(0, position - 64) : position]):
        load = _TABLE_LOAD.match(before.operands)
        if load and load[1] == register:
            start = int(load[2] or "0", 16)
            words = [int.from_bytes(bank[i : i + 4], "little", signed=True) for i in range(start, len(bank) - 3, 4)]
            entries = list(takewhile(lambda target: target in listing.index, (base + word for word in words[:count])))
            return tuple(entries)
    return ()


# ---- printing --------------------------------------------------------------------------------------------------------


def format_listing(listing: Listing) -> str:
    """A listing with control codes; names are short forms, so that only machine code differs between two listings."""
    return "\n".join(_listing_lines(listing)) + "\n"


def _listing_lines(listing: Listing) -> Iterator[str]:
    at_address: dict[int, list[str]] = {}
    for name, address in listing.labels.items():
        if listing.symbol not in name or not listing.symbol:
            at_address.setdefault(address, []).append(name)
    if listing.arch:
        yield f"\t.target\t{listing.arch}"
    if listing.symbol:
        name = listing.config.short_form() if listing.config else listing.symbol
        yield f"//--------------------- kernel {name} ---------------------"
    for at in listing.code:
        for name in at_address.get(at.address, []):
            yield f"{name}:"
        control = f"{at.control}  " if at.control else ""
        yield f"  /*{at.address:04x}*/  {control}{at.predicate:>6} {at.opcode} {at.operands}".rstrip() + " ;"


def bare(text: str) -> str:
    """Any listing without addresses, encodings and control codes: what diff(1) can compare."""
    lines = []
    for line in text.splitlines():
        found = _INSTRUCTION.match(line)
        if found:
            _, _, predicate, opcode, rest = found.groups()
            operands = re.sub(r"\s*(;.*|//.*|/\*.*)$", "", rest).rstrip()
            lines.append("        " + " ".join(part for part in (predicate, opcode, operands) if part) + " ;")
        elif not _ENCODING.search(line):
            lines.append(line.rstrip())
    return "\n".join(lines) + "\n"
