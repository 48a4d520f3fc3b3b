"""Find stores in PTX that run only for some data, and tests that look at the bits of an address.

    flow = Flow(kernel_lines(ptx, "softmax"))
    flow.depends_on_data(276)    # a store at line 276: may other inputs reach it in the same launch?
    flow.tests_of_addresses()    # ["setp.gt.u64 %p1, %rd9, 4 at line 31"]

Registers are followed in one pass to a fixed point, without regard to the order of instructions, so a register that
holds data anywhere counts as data everywhere. Whatever comes from memory other than parameters and constants is data.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

REGISTER = re.compile(r"%[a-zA-Z_][\w$]*")
LABEL = re.compile(r"^\s*(\$?[\w$]+):")
READS_MEMORY = re.compile(
    r"(ld|ldu|atom|tex|tld4|suld|ldmatrix|wmma\.load|call|shfl|tcgen05\.ld|mma|wgmma|match|vote|redux)\b"
)
NO_DATA = re.compile(r"ld\.(param|const)\b")
WITHOUT_RESULT = re.compile(
    r"(st|red|bar|barrier|membar|fence|bra|ret|exit|cp|prefetch|mbarrier\.(init|inval)|trap|brx|nanosleep)\b"
)
PART_OF_64_BITS = re.compile(r"(shr|and|bfe|cvt\.\w*\.?[us]32|setp|rem|div|xor|or|not|popc|bfind)\b")
MOST_PASSES = 200  # over the instructions of a kernel; compilers' output takes fewer than ten
LARGEST_ALIGNMENT = 4096  # honest code tests whether an address is aligned


@dataclass(frozen=True)
class Instruction:
    """One instruction; `writes` are the registers before the first source."""

    line: int
    opcode: str
    guard: str  # the predicate's register, "" where it always runs
    writes: tuple[str, ...]
    reads: tuple[str, ...]
    text: str


@dataclass
class Flow:
    """The instructions of a kernel and the line of each of its labels."""

    lines: Mapping[int, str]
    labels: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for number, text in self.lines.items():
            found = LABEL.match(text)
            if found:
                self.labels[found[1]] = number

    @cached_property
    def instructions(self) -> list[Instruction]:
        return [each for number, text in self.lines.items() for each in instructions_of(number, text)]

    def _reached_from(self, first: Iterable[str], through: Iterable[Instruction]) -> set[str]:
        """Registers whose values derive from these by such instructions."""
        found, through = set(first), list(through)
        for _ in range(MOST_PASSES):
            before = len(found)
            for each in through:
                if found.intersection(each.reads) or each.guard in found:
                    found.update(each.writes)
            if len(found) == before:
                return found
        return found.union(*(each.writes for each in through))  # a program that was made to take long

    @cached_property
    def data(self) -> set[str]:
        """Registers that may depend on what is in memory."""
        loads = (
            each for each in self.instructions if READS_MEMORY.match(each.opcode) and not NO_DATA.match(each.opcode)
        )
        return self._reached_from((name for each in loads for name in each.writes), self.instructions)

    @cached_property
    def _data_jumps(self) -> list[tuple[int, int]]:
        """From and to of each jump that the data decides; an exit jumps past the end, an indirect one anywhere."""
        end = max(self.lines, default=0) + 1
        found = []
        for each in self.instructions:
            decided = each.guard in self.data
            if each.opcode.startswith("brx"):
                found.append((0, end))
            elif decided and each.opcode.startswith(("ret", "exit", "trap")):
                found.append((each.line, end))
            elif decided and each.opcode.startswith("bra"):
                found.append((each.line, self._target(each, end)))
        return found

    def _target(self, jump: Instruction, end: int) -> int:
        return self.labels.get(jump.text.rstrip("; ").split()[-1], end)

    @cached_property
    def _skipped(self) -> list[tuple[int, int]]:
        """Lines that the data may skip: those below such a jump, and below each jump that may follow one."""
        end = max(self.lines, default=0) + 1
        first = min((begin for begin, _ in self._data_jumps), default=end)
        followers = (each for each in self.instructions if each.opcode.startswith("bra") and not each.guard)
        return self._data_jumps + [(each.line, self._target(each, end)) for each in followers if each.line > first]

    @cached_property
    def _guards(self) -> dict[int, set[str]]:
        """The predicates of the instructions of each line."""
        found: dict[int, set[str]] = {}
        for each in self.instructions:
            found.setdefault(each.line, set()).add(each.guard)
        return found

    def depends_on_data(self, line: int) -> bool:
        """True unless the launch alone decides whether the instruction at this line runs."""
        guards = self._guards.get(line)
        if guards is None or guards & self.data:
            return True
        return any(begin < line < target for begin, target in self._skipped)

    @cached_property
    def addresses(self) -> set[str]:
        """Registers that hold an address of memory, or what was computed from it in 64 bits."""
        pointers: set[str] = set()
        for each in self.instructions:
            if each.opcode.startswith("cvta.to.global"):
                pointers.update(each.reads)
        given = {
            name
            for each in self.instructions
            if each.opcode.startswith("ld.param") and "64" in each.opcode
            for name in each.writes
            if name in pointers
        }
        given.update(
            name
            for each in self.instructions
            if re.match(r"cvta\.(shared|local|global|const|param)", each.opcode)
            for name in each.writes
        )
        kept = (
            each
            for each in self.instructions
            if re.match(
                r"(cvta(?!\.to\.(shared|local))|mov\.[bus]64|add\.[us]64|sub\.[us]64|mad\.wide|mad\.lo\.[us]64|shr|and\.b64)",
                each.opcode,
            )
        )
        return self._reached_from(given, kept)

    def tests_of_addresses(self) -> list[str]:
        """Instructions that take an address apart; comparing two addresses or testing an alignment is no such one."""
        found = []
        for each in self.instructions:
            if not PART_OF_64_BITS.match(each.opcode) or not self.addresses.intersection(each.reads):
                continue
            constants = [int(word, 0) for word in re.findall(r"(?<![\w%])-?(?:0x[0-9a-fA-F]+|\d+)(?![\w.])", each.text)]
            is_alignment = each.opcode.startswith("and") and any(0 <= value < LARGEST_ALIGNMENT for value in constants)
            is_comparison = each.opcode.startswith("setp") and not constants
            is_null = each.opcode.startswith("setp") and constants == [0]
            if not (is_alignment or is_comparison or is_null):
                found.append(f"{each.text.strip()} at line {each.line}")
        return found


def instructions_of(number: int, text: str) -> Iterator[Instruction]:
    """The registers of one line of PTX."""
    code = LABEL.sub("", text.partition("//")[0])
    for part in code.split(";"):
        part = part.strip().strip("{}").strip()
        guarded = re.match(r"@!?(%[\w$]+)\s+(.*)", part, re.S)
        guard, part = (guarded[1], guarded[2]) if guarded else ("", part)
        if not part or part.startswith(".") or not re.match(r"[a-z]", part):
            continue
        opcode, _, operands = part.partition(" ")
        opcode = opcode.strip()
        if WITHOUT_RESULT.match(opcode):
            writes, reads = (), tuple(REGISTER.findall(operands))
        else:
            first = re.match(r"\s*(\{[^}]*\}|\([^)]*\)|[^,]*)", operands)
            target = first[1] if first else ""
            writes, reads = tuple(REGISTER.findall(target)), tuple(REGISTER.findall(operands[len(target) :]))
        yield Instruction(number, opcode, guard, writes, reads, part)


def kernel_lines(ptx: str, name: str) -> dict[int, str]:
    """The lines of a kernel's body by their numbers in the module; nothing where there is none of this name."""
    lines = ptx.splitlines()
    pattern = re.compile(rf"\.entry\s+{re.escape(name)}\s*(\(|$)")
    first = next((i for i, line in enumerate(lines) if pattern.search(line)), None)
    if first is None:
        return {}
    last = next((i for i in range(first, len(lines)) if lines[i].startswith("}")), len(lines) - 1)
    return {i + 1: lines[i] for i in range(first, last + 1)}
