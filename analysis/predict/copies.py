"""TMA copies of a foreign kernel: the bytes of a pass, and the number of stages if the machine code shows it.

    copies = copies_of(parts, waits=2)
    copies.stages, copies.bytes    # 1, 32768

Machine code does not contain the size of a TMA copy, but a thread announces it to the mbarrier: expect_tx is a
SYNCS.ARRIVE.TRANS64 whose data register holds a constant.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from analysis.machine_code.opcodes import COPY_ENGINE
from analysis.machine_code.regions import Graph, Parts, producer_loops, reached
from analysis.machine_code.sass import Instruction


@dataclass(frozen=True)
class Copies:
    """The TMA copies of one pass of a kernel's loop."""

    count: int = 0  # or waits for them, if a producer starts them
    bytes: int | None = None  # None: not in the machine code
    stages: int | None = None  # 1: each pass waits for the copies that it starts; None: not in the machine code


NO_COPIES = Copies()


def copies_of(parts: Parts, waits: int) -> Copies:
    """The copies that the loop starts itself, else those of the loops that only copy; `waits` is the loop's number of
    waits for mbarriers in a pass.

    A loop that starts its copies has one stage if no other copy was started before it. A producer's loop may be
    unrolled in another way, but each wait of a consumer is for the bytes of one expect_tx.
    """
    graph = parts.graph
    own = _instructions(graph, parts.kv.blocks)
    count = sum(at.base in COPY_ENGINE for at in own)
    if count:
        sizes = expected_bytes(graph, own)
        return Copies(count, sum(sizes) if sizes else None, 1 if waits and not _copies_before(parts) else None)
    producers = [at for loop in producer_loops(graph) for at in _instructions(graph, loop.blocks)]
    sizes = expected_bytes(graph, producers)
    same = sizes and min(sizes) == max(sizes)
    return Copies(waits if producers else 0, waits * sizes[0] if sizes and same else None)


def _copies_before(parts: Parts) -> bool:
    """True if a copy outside the loop may be started before it."""
    graph = parts.graph
    before = reached(parts.kv.header, lambda block: graph.predecessors[block]) - parts.kv.blocks
    return any(at.base in COPY_ENGINE for at in _instructions(graph, before))


def expected_bytes(graph: Graph, code: Iterable[Instruction]) -> list[int]:
    """The bytes of each expect_tx in `code`; empty if one of them is not a constant."""
    sizes = [_constant_in(graph, at, at.operands.rsplit(",", 1)[-1].strip()) for at in code if _expects(at)]
    known = [size for size in sizes if size is not None]
    return known if len(known) == len(sizes) else []


def _expects(at: Instruction) -> bool:
    return at.opcode.startswith("SYNCS.ARRIVE.TRANS64") and ".A1T0" not in at.opcode


def _constant_in(graph: Graph, use: Instruction, register: str) -> int | None:
    """The constant that the nearest write above `use` stores in a register."""
    above = [at for at in _instructions(graph, graph.blocks) if at.address < use.address]
    for at in reversed(above):
        written, _, value = at.operands.partition(",")
        if written.strip() == register and not at.opcode.startswith(("ST", "RED")):
            found = re.fullmatch(r"(?:.*,)?\s*(0x[0-9a-f]+)", value)
            return int(found[1], 16) if found and "MOV" in at.opcode else None
    return None


def _instructions(graph: Graph, blocks: Iterable[int]) -> list[Instruction]:
    return [at for first in sorted(blocks) for at in graph.blocks[first].instructions]
