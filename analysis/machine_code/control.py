"""Checks that decoded control codes make sense, since no tool prints them to compare with.

    for problem in inconsistencies(Graph(listing)): print(problem)

Three rules that compiled code keeps: a wait names a scoreboard that an earlier instruction on some path set, except
one for all six, which precedes a fence whatever is set; an
instruction of fixed latency sets none; between an arithmetic instruction and one that reads its result there are at
least the cycles of the shortest known latency. A decoder that reads the wrong bits breaks them at once. Code for a
debugger is not scheduled: every stall count in it is 0, and the last rule says nothing of it.
"""

import re
from collections.abc import Iterator
from functools import lru_cache

from analysis.machine_code.opcodes import FIXED_LATENCY
from analysis.machine_code.regions import Graph
from analysis.machine_code.sass import NO_BARRIER, Control, Instruction, Listing

SHORTEST_LATENCY = 4  # cycles from issue to a dependent issue, FFMA after FFMA on sm_80 and later
ALL_SCOREBOARDS = 0b111111
_COMPARE = frozenset({"ISETP", "FSETP", "PLOP3"})
_NONE: frozenset[int] = frozenset()
_PREDICATE = re.compile(r"\s*U?P[T0-9]")
_REGISTER = re.compile(r"(?<![A-Z_])R([0-9]{1,3})")


def inconsistencies(graph: Graph) -> list[str]:
    """One sentence for each broken rule; empty for code that a compiler wrote and that was decoded rightly."""
    scheduled = any(_stall(at.control) for at in graph.listing.body)
    return [*_unset_waits(graph), *_fixed_setters(graph.listing), *(_short_stalls(graph) if scheduled else ())]


def _location(at: Instruction) -> str:
    return f"{at.address:04x} {at.control} {at.text}"


def _unset_waits(graph: Graph) -> Iterator[str]:
    """Scoreboards that may be set, by block, as a union over paths; a subroutine may find any set by its caller."""
    may_be_set = {first: 0 for first in graph.blocks}
    entry = graph.code[0].address
    for first in graph.blocks:
        if first != entry and not graph.predecessors[first]:
            may_be_set[first] = ALL_SCOREBOARDS
    work = list(graph.blocks)
    while work:
        first = work.pop(0)
        after = may_be_set[first]
        for at in graph.blocks[first].instructions:
            after |= _set_by(at)
        for successor in graph.blocks[first].successors:
            if after & ~may_be_set[successor]:
                may_be_set[successor] |= after
                work.append(successor)
    for first, block in sorted(graph.blocks.items()):
        known = may_be_set[first]
        for at in block.instructions:
            missing = at.control.wait & ~known if at.control else 0
            if missing and at.control and at.control.wait != ALL_SCOREBOARDS:
                names = ", ".join(str(i) for i in range(6) if missing >> i & 1)
                yield f"waits for scoreboard {names}, which no path has set: {_location(at)}"
            known |= _set_by(at)


def _set_by(at: Instruction) -> int:
    if at.base == "CALL":
        return ALL_SCOREBOARDS
    control = at.control
    if control is None:
        return 0
    return sum(1 << each for each in (control.write, control.read) if each < 6)


def _fixed_setters(listing: Listing) -> Iterator[str]:
    for at in listing.body:
        control = at.control
        if control and at.base in FIXED_LATENCY and (control.write, control.read) != (NO_BARRIER, NO_BARRIER):
            yield f"sets a scoreboard though its latency is fixed: {_location(at)}"


def _short_stalls(graph: Graph) -> Iterator[str]:
    for _, block in sorted(graph.blocks.items()):
        written: dict[int, tuple[int, Instruction]] = {}  # register to cycle of issue and writer
        cycle = 0
        for at in block.instructions:
            results, sources = registers(at)
            for register in sources:
                issued, writer = written.get(register, (-SHORTEST_LATENCY, at))
                if cycle - issued < _latency(writer, register):
                    yield f"reads R{register} {cycle - issued} cycles after {_location(writer)}: {_location(at)}"
            for register in results:
                written.pop(register, None)
            if at.base in FIXED_LATENCY and not at.predicate:
                written |= {register: (cycle, at) for register in results}
            cycle += _stall(at.control)


def _latency(writer: Instruction, register: int) -> int:
    """Cycles until a register is ready: the low half of a wide product comes one early (seen in ptxas' sm_90 code)."""
    low = register + 1 in registers(writer)[0]
    return SHORTEST_LATENCY - 1 if ".WIDE" in writer.opcode and low else SHORTEST_LATENCY


def _stall(control: Control | None) -> int:
    return control.stall if control else SHORTEST_LATENCY


def registers(at: Instruction) -> tuple[frozenset[int], frozenset[int]]:
    """(general registers written, read) of an arithmetic instruction, as its text names them; none of others."""
    if at.base not in FIXED_LATENCY or at.base.startswith("U") or at.never:
        return _NONE, _NONE
    return _registers_of(at.opcode, at.operands)


@lru_cache(maxsize=1 << 14)
def _registers_of(opcode: str, text: str) -> tuple[frozenset[int], frozenset[int]]:
    operands = text.split(",")
    first = 0
    while first < len(operands) and _PREDICATE.fullmatch(operands[first]):
        first += 1
    into = _REGISTER.fullmatch(operands[first].strip()) if first < len(operands) else None
    if opcode.split(".", 1)[0] in _COMPARE:
        into = None  # only predicates are written; the first register is read
    results = {int(into[1])} if into else set()
    if into and ".WIDE" in opcode:
        results.add(int(into[1]) + 1)
    rest = operands[first + 1 :] if into else operands[first:]
    return frozenset(results), frozenset(int(number) for each in rest for number in _REGISTER.findall(each))
