"""The path of one warp: the start of a tile, a pass of the KV loop, the end of a tile.

path = path_of(parts, machine, conflicts=1.0)
code = path.repeated(passes=12, tiles=1)
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from analysis.errors import AnalysisError
from analysis.ladder.config import KernelConfig
from analysis.machine_code.loops import named_loops, shares_outside
from analysis.machine_code.regions import Graph, Parts
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
ONCE = 0.1  # the same of a block outside the loop, of the Q blocks: one CTA computes 4 or 8 in the recorded problem


@dataclass(frozen=True)
class Path:
    """Operations of a warp: of a CTA before its first tile, of each tile, of a CTA after its last tile."""

    begin: list[Operation]
    start: list[Operation]
    loop: list[Operation]
    end: list[Operation]
    last: list[Operation]
    peeled: bool  # the first KV block has code of its own, before the loop

    def repeated(self, passes: int, tiles: int) -> list[Operation]:
        """The code of several tiles of one CTA."""
        opening = [] if self.start else [tile_start()]
        tile = [*([tile_start()] if self.start else []), *self.start, *(self.loop * passes), *self.end]
        return [*opening, *self.begin, *(tile * tiles), *self.last]


def has_producer(config: KernelConfig) -> bool:
    """True if a warp group brings the blocks and the others multiply them."""
    return bool(config.producer or config.e4m3_inputs)


def path_of(parts: Parts, config: KernelConfig | None, machine: Machine, conflicts: float = 1.0) -> Path:
    """The path through a kernel, by the regions around its KV loop and the recorded shares of its blocks."""
    producer = bool(config and has_producer(config))

    def made(code: Iterable[Instruction]) -> list[Operation]:
        operations = [operation_of(at, machine, conflicts) for at in code if at.base != "NOP"]
        return [each for each in operations if not _first_turn(each)]

    before, after = _regions(parts, "prologue", "peeled block"), _regions(parts, "remainder block", "epilogue")
    begin, start = _by_how_often(parts, before)
    last, end = _by_how_often(parts, after)
    if config and config.double_buffer_Q:
        begin, start = [*begin, *start], []
    loop = made(pass_of(parts))
    around = made(begin), made(start), made(end), made(last)
    stages = config.stages if config else 0
    for code in (*around, loop[:]):
        _name_blocks(code, *(_rings(loop, stages) if producer else ({}, {})), producer)
    if config and config.tensor_copies and not producer:
        loop = _with_releases(loop)
    return Path(around[0], around[1], loop, _last_tile(around[2]), around[3], "peeled block" in parts.regions)


def _by_how_often(parts: Parts, code: Sequence[Instruction]) -> tuple[list[Instruction], list[Instruction]]:
    """The code that a CTA executes once, and the code of every tile; the rest is omitted. All is of every tile if not
    recorded.

    The tiles of the recorded problem are few, so what a CTA executes once has a share that is not small. Another KV
    loop, such as that of slices, is left out whole.
    """
    once: list[Instruction] = []
    always: list[Instruction] = []
    graph = parts.graph
    shares = shares_outside(graph) | {first: 0.0 for loop in named_loops(graph) for first in loop.blocks}
    of_block = {at.address: first for first in graph.blocks for at in graph.blocks[first].instructions}
    for at in code:
        share = shares.get(of_block.get(at.address, 0), 1.0)
        if share >= MOSTLY:
            always.append(at)
        elif share >= ONCE:
            once.append(at)
    return once, always


def _regions(parts: Parts, *names: str) -> list[Instruction]:
    return [at for name in names for at in parts.regions.get(name, ())]


def pass_of(parts: Parts) -> list[Instruction]:
    """The instructions of a pass that most passes execute, in address order.

    An inner loop that waits at an mbarrier after a first try only repeats a try that failed.
    """
    shares, blocks = parts.shares or {}, parts.graph.blocks
    if parts.shares is None and len(parts.every_pass) < MOSTLY * len(parts.loop):
        raise AnalysisError(f"{parts.graph.listing.label}: which blocks of its loop run is not recorded")
    retries = {first for child in parts.kv.children for first in child.blocks if _tries_again(parts.graph, first)}
    in_line = {at.address for at in parts.loop}
    found: list[Instruction] = []
    for first in sorted(parts.kv.blocks - retries):
        code = blocks[first].instructions
        if shares.get(first, 1.0) < MOSTLY or (first not in in_line and len(code) < 3):
            continue
        found += [at for at in code if not at.predicate or at.never or shares.get(at.address, 1.0) >= SOMETIMES]
    return found


def _tries_again(graph: Graph, block: int) -> bool:
    """True if a block tries to wait at an mbarrier, and another before it has tried."""

    def tries(first: int) -> bool:
        return any("TRYWAIT" in at.opcode for at in graph.blocks[first].instructions)

    return tries(block) and any(tries(before) for before in graph.predecessors[block] if before != block)


def _first_turn(operation: Operation) -> bool:
    """True if it gives one of two warp groups the first turn, which the model does itself."""
    at = operation.instruction
    return operation.kind is Kind.ARRIVE and at is not None and bool(at.predicate)


def _rings(loop: Sequence[Operation], stages: int) -> tuple[dict[int, int], dict[int, int]]:
    """The blocks whose mbarriers a pass waits at, and those that it releases, by offset: K comes before V."""
    found: list[dict[int, int]] = []
    for kind in (Kind.PHASE_WAIT, Kind.RELEASE):
        first = list(dict.fromkeys(each.argument for each in loop if each.kind is kind))
        found.append({at + 8 * n: block for block, at in enumerate(first[:2]) for n in range(max(1, stages))})
    return found[0], found[1]


def _name_blocks(
    operations: Sequence[Operation], waits: dict[int, int], releases: dict[int, int], producer: bool
) -> None:
    """The offset of an mbarrier becomes the block that it guards."""
    for each in operations:
        if each.kind is Kind.PHASE_WAIT:
            known = waits if producer else {0: K_BLOCK, 8: V_BLOCK}
            each.argument = known.get(each.argument if producer else each.argument & 0xFF, Q_BLOCK)
        elif each.kind is Kind.RELEASE:
            each.argument = releases.get(each.argument, Q_BLOCK)


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
    """The step to the next tile, if the end contains both that and the end of the last tile."""
    values = [i for i, each in enumerate(end) if each.kind is Kind.PHASE_WAIT and each.argument == V_BLOCK]
    queries = [i for i, each in enumerate(end) if each.kind is Kind.PHASE_WAIT and each.argument == Q_BLOCK]
    return end[: values[0]] + end[queries[0] :] if len(values) == 2 and queries else end
