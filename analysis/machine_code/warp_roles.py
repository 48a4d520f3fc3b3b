"""The registers that setmaxnreg gives the warps of each role, and how many of them their code needs.

    for role in roles_in(graph): print(role.name, role.limit, len(role.code))

A kernel of sm_90a and later starts with as many registers for every thread. Then each warpgroup asks for the number
that its part of the work needs: the producers give some back, the consumers take them. It appears as USETMAXREG in the
machine code, and applies to the code that only such warps reach.
"""

import re
from dataclasses import dataclass
from functools import cached_property

from analysis.errors import AnalysisError
from analysis.machine_code.liveness import registers_of
from analysis.machine_code.opcodes import COPY_ENGINE
from analysis.machine_code.regions import PRODUCER, READER, Graph
from analysis.machine_code.sass import Instruction

BEFORE, JOINED, OTHER = "before setmaxnreg", "all", "other"
Limits = frozenset[int | None]  # that may hold at an instruction; None is the number at entry


@dataclass(frozen=True)
class WarpRole:
    """The code that runs with one number of registers."""

    name: str
    limit: int | None  # registers of a thread after setmaxnreg; None: those at entry, or several
    code: tuple[Instruction, ...]

    @cached_property
    def highest(self) -> int | None:
        """The highest number of a register that the code names; None for none, or where operands are not known."""
        try:
            named = [registers_of(at) for at in self.code if not at.never]
            return max((number for both in named for each in both for number in each), default=None)
        except AnalysisError:
            return None


def limit_of(at: Instruction) -> int | None:
    """The number of registers that an instruction sets; None if it sets none."""
    if at.base != "USETMAXREG":
        return None
    limit = at.operands.split(",")[-1].strip()
    if not re.fullmatch("0x[0-9a-f]{1,3}", limit):
        raise AnalysisError(f"{at.text!r} at {at.address:04x}: expected a number of registers such as 0x18")
    return int(limit, 16)


def roles_in(graph: Graph) -> list[WarpRole]:
    """The roles of a kernel's warps in address order; none where it has no setmaxnreg."""
    if not any(at.base == "USETMAXREG" for at in graph.code):
        return []
    by_limits: dict[Limits, list[Instruction]] = {}
    for first, limits in sorted(_limits(graph).items()):
        for at in graph.blocks[first].instructions:
            new = limit_of(at)
            limits = limits if new is None else frozenset({new})
            if at.base != "NOP":
                by_limits.setdefault(limits, []).append(at)
    return [
        WarpRole(_name(graph, limits, code), next(iter(limits)) if len(limits) == 1 else None, tuple(code))
        for limits, code in by_limits.items()
    ]


def _name(graph: Graph, limits: Limits, code: list[Instruction]) -> str:
    bases = {at.base for at in code}
    if len(limits) > 1:
        return JOINED
    if limits == {None}:
        return BEFORE
    if bases & graph.matrix:
        return graph.multiplier
    return PRODUCER if bases & COPY_ENGINE else READER if "LDTM" in bases else OTHER


def _limits(graph: Graph) -> dict[int, Limits]:
    """Block to the limits that may hold where it begins. A warp continues trying until it has its registers."""
    entering: dict[int, Limits] = {first: frozenset() for first in graph.order}
    entering[graph.order[0]] = frozenset({None})
    work = list(graph.order)
    while work:
        block = graph.blocks[work.pop(0)]
        limits = entering[block.first]
        for at in block.instructions:
            new = limit_of(at)
            limits = limits if new is None else frozenset({new})
        for successor in block.successors:
            known = entering[successor]
            again = successor == block.first and any(at.base == "USETMAXREG" for at in block.instructions)
            if not limits <= known and not again:
                entering[successor] = known | limits
                work.append(successor)
    return entering
