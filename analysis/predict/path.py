"""What one warp executes: the start of a tile, a pass of the KV loop, the end of a tile.

path = path_of(parts, machine, conflicts=1.0)
code = path.repeated(passes=12, tiles=1)
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from analysis.ladder.config import KernelConfig
from analysis.machine_code.regions import Parts
from analysis.machine_code.sass import Instruction
from analysis.predict.machine import Machine
from analysis.predict.operations import (
    K_BLOCK,
    Q_BLOCK,
    V_BLOCK,
    Kind,
    Operation,
    operation_of,
    stage_release,
    tile_start,
)

MOSTLY = 0.5  # a block that fewer passes execute is left out
SOMETIMES = 0.2  # the same of a predicated instruction


@dataclass(frozen=True)
class Path:
    """Operations of a warp. `once`: the start belongs to the first tile of a CTA alone."""

    start: list[Operation]
    loop: list[Operation]
    end: list[Operation]
    peeled: bool  # the first KV block has code of its own, before the loop
    once: bool

    def repeated(self, passes: int, tiles: int) -> list[Operation]:
        """The code of several tiles of one CTA."""
        tile = self.loop * passes + self.end
        if self.once:
            return [tile_start(), *self.start, *(tile * tiles)]
        return [tile_start(), *self.start, *tile] * tiles


def path_of(parts: Parts, config: KernelConfig | None, machine: Machine, conflicts: float = 1.0) -> Path:
    """The path through a kernel, by the regions around its KV loop and the recorded shares of its blocks."""
    producer = bool(config and config.producer)

    def made(code: Iterable[Instruction]) -> list[Operation]:
        operations = [operation_of(at, machine, conflicts) for at in code if at.base != "NOP"]
        kept = [each for each in operations if not _first_turn(each)]
        _name_blocks(kept, producer)
        return kept

    start = made(_regions(parts, "prologue", "peeled block"))
    loop = made(pass_of(parts))
    end = made(_regions(parts, "remainder block", "epilogue"))
    if config and config.tensor_copies and not producer:
        loop = _with_releases(loop)
    return Path(start, loop, _last_tile(end), "peeled block" in parts.regions, bool(config and config.double_buffer_Q))


def _regions(parts: Parts, *names: str) -> list[Instruction]:
    return [at for name in names for at in parts.regions.get(name, ())]


def pass_of(parts: Parts) -> list[Instruction]:
    """The instructions of a pass that most passes execute, in address order.

    An inner loop waits at an mbarrier, and only repeats a try that failed.
    """
    shares, blocks = parts.shares or {}, parts.graph.blocks
    retries = {
        first
        for child in parts.kv.children
        for first in child.blocks
        if any("TRYWAIT" in at.opcode for at in blocks[first].instructions)
    }
    in_line = {at.address for at in parts.loop}
    found: list[Instruction] = []
    for first in sorted(parts.kv.blocks - retries):
        code = blocks[first].instructions
        if shares.get(first, 1.0) < MOSTLY or (first not in in_line and len(code) < 3):
            continue
        found += [at for at in code if not at.predicate or at.never or shares.get(at.address, 1.0) >= SOMETIMES]
    return found


def _first_turn(operation: Operation) -> bool:
    """Whether it gives one of two warp groups the first turn, which the model does itself."""
    at = operation.instruction
    return operation.kind is Kind.ARRIVE and at is not None and bool(at.predicate)


def _name_blocks(operations: Sequence[Operation], producer: bool) -> None:
    """The number of an mbarrier becomes the block that it stands for, by where the versions place them."""
    for each in operations:
        if each.kind is Kind.PHASE_WAIT:
            number = each.argument >> 4 if producer else {0: 0, 8: 1, 16: 2}.get(each.argument & 0xFF, 2)
            each.argument = {0: K_BLOCK, 1: V_BLOCK}.get(number & 0xF, Q_BLOCK)
        elif each.kind is Kind.RELEASE:
            each.argument = {2: K_BLOCK, 3: V_BLOCK}.get(each.argument >> 4 & 0xF, Q_BLOCK)


def _with_releases(loop: Sequence[Operation]) -> list[Operation]:
    """Without a producer the barrier of the CTA frees a stage: the first that of K, the second that of V."""
    found: list[Operation] = []
    barriers = 0
    for each in loop:
        found.append(each)
        if each.kind is Kind.BARRIER:
            found.append(stage_release(barriers))
            barriers += 1
    return found


def _last_tile(end: list[Operation]) -> list[Operation]:
    """Where the end holds both that of the last tile and the step to the next one: the step."""
    values = [i for i, each in enumerate(end) if each.kind is Kind.PHASE_WAIT and each.argument == V_BLOCK]
    queries = [i for i, each in enumerate(end) if each.kind is Kind.PHASE_WAIT and each.argument == Q_BLOCK]
    return end[: values[0]] + end[queries[0] :] if len(values) == 2 and queries else end
