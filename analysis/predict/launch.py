"""Cycles of a whole launch: tiles on a multiprocessor, then waves, slices, memory and the start.

tile = tile_of(kernel, machine, ctas)
launch_cycles(kernel.config, tiles, Shape(batch=16, heads=16, seq=4096), machine, hz)
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

from analysis.errors import AnalysisError
from analysis.ladder.config import KernelConfig
from analysis.predict.copies import NO_COPIES, Copies
from analysis.predict.machine import Machine
from analysis.predict.multiprocessor import OF_ALL, SCHEDULERS, STALLS, Residents, Run, simulate, stall_kind
from analysis.predict.path import Path, has_producer

SHORT, LONG = 4, 12  # passes of the runs whose difference is that of a pass
SLICE_PASSES = 3  # the fixed cost of a slice, in passes (common/config.h)


@dataclass(frozen=True)
class Shape:
    """A launch: as many keys as queries."""

    batch: int
    heads: int
    seq: int
    causal: bool = False


@dataclass(frozen=True)
class Foreign:
    """The launch of a foreign kernel, instead of a config: every CTA makes this many passes through its loop."""

    launched: int  # CTAs
    n_warps: int  # that execute the loop: without those of a producer
    passes: int
    groups: int = 1  # warp groups, two where they take turns
    pass_bytes: int = 0  # that a CTA copies in a pass of the loop, with cp.async or TMA
    copies_of_pass: int = 0  # TMA copies that the loop starts and waits for


@dataclass(frozen=True)
class Tile:
    """Cycles of the resident CTAs together: of a pass, of a Q block outside its passes, and what the first Q block
    takes in addition.

    `busiest` are those cycles of a pass in which the busiest pipe works.
    """

    per_pass: float
    outside: float
    first: float
    busiest: float
    stalls: tuple[float, ...] = ()  # warps that wait for each issued instruction of a pass, by kind: STALLS

    def cycles(self, passes: float, excess: float) -> float:
        return self.outside + passes * (self.busiest + excess * (self.per_pass - self.busiest))


@dataclass(frozen=True)
class Kernel:
    """The subject of a prediction: the launch's division of the problem, and the path of a warp."""

    config: KernelConfig | Foreign
    path: Path
    ctas: int  # that a multiprocessor holds
    copies: Copies = NO_COPIES  # of a foreign kernel


def element_bytes(config: KernelConfig) -> int:
    """Bytes per element of Q, K and V; O has two."""
    return 1 if config.e4m3_inputs else 2


def residents_of(config: KernelConfig | Foreign, ctas: int) -> Residents:
    if isinstance(config, Foreign):
        return Residents(ctas, config.n_warps, config.groups, copies_of_pass=config.copies_of_pass)
    stages = max(1, config.stages) if config.tensor_copies else 0
    bytes_of_block = config.B_c * config.d_head * element_bytes(config)
    groups = config.n_warps // 4 if has_producer(config) else 1
    return Residents(ctas, config.n_warps, groups, stages, bytes_of_block, bool(config.double_buffer_Q))


def simulated(path: Path, machine: Machine, residents: Residents, passes: int, tiles: int) -> Run:
    return simulate(path.repeated(passes, tiles), machine, residents)


def tile_of(path: Path, machine: Machine, residents: Residents) -> Tile:
    """From three runs: few passes, many passes, several tiles."""
    short = simulated(path, machine, residents, SHORT, 1)
    more = simulated(path, machine, residents, LONG, 1)
    three = simulated(path, machine, residents, SHORT, 3)
    per_pass = (more.cycles - short.cycles) / (LONG - SHORT)
    outside = (three.cycles - short.cycles) / 2 - SHORT * per_pass
    busiest = max(
        (more.busy[pipe] - short.busy[pipe]) / (LONG - SHORT) / (1 if pipe in OF_ALL else SCHEDULERS)
        for pipe in more.busy
    )
    waited = dict.fromkeys(STALLS, 0.0)
    for reason in more.stalls:
        waited[stall_kind(reason)] += more.stalls[reason] - short.stalls[reason]
    stalls = tuple(cycles / (more.issued - short.issued) for cycles in waited.values())
    return Tile(per_pass, outside, short.cycles - SHORT * per_pass - outside, busiest, stalls)


def passes_of(config: KernelConfig, shape: Shape, row_block: int) -> int:
    """KV blocks that the Q block with this number within its head sees."""
    seen = (row_block + 1) * config.B_r if shape.causal else shape.seq
    return ceil(min(seen, shape.seq) / config.B_c)


def passes_in(config: KernelConfig | Foreign, shape: Shape) -> int:
    """KV blocks that all Q blocks of a launch see together."""
    return sum(_blocks(config, shape, peeled=False))


def launch_cycles(
    config: KernelConfig | Foreign,
    peeled: bool,
    ctas: int,
    tiles: Mapping[int, Tile],
    shape: Shape,
    machine: Machine,
    hz: float,
) -> float:
    """Cycles of a launch. `tiles` has the tile for `ctas` resident CTAs, and for one. A foreign one has no shape."""
    if isinstance(config, Foreign):
        cycles = _waves(config, peeled, ctas, tiles, shape, machine) + tiles[ctas].first
        copied = config.launched * config.passes * config.pass_bytes
        return max(cycles, copied / machine.l2_bytes * hz) + machine.launch_us * hz / 1e6
    if shape.seq < 1 or shape.batch < 1 or shape.heads < 1:
        raise AnalysisError(f"batch {shape.batch}, heads {shape.heads}, seq {shape.seq}: each must be positive")
    work = _persistent if config.persistent or config.split_tail else _waves
    cycles = work(config, peeled, ctas, tiles, shape, machine) + tiles[ctas].first
    elements = shape.batch * shape.heads * shape.seq * config.d_head
    tensor_bytes = elements * (3 * element_bytes(config) + 2)
    return max(cycles, tensor_bytes / machine.dram_bytes * hz) + machine.launch_us * hz / 1e6


def _blocks(config: KernelConfig | Foreign, shape: Shape, peeled: bool) -> list[int]:
    """Passes of each Q block, the longest first with the causal mask."""
    if isinstance(config, Foreign):
        return [config.passes - peeled] * config.launched
    of_head = [passes_of(config, shape, row) - peeled for row in range(ceil(shape.seq / config.B_r))]
    return sorted(of_head * (shape.batch * shape.heads), reverse=True)


def _waves(
    config: KernelConfig | Foreign,
    peeled: bool,
    ctas: int,
    tiles: Mapping[int, Tile],
    shape: Shape,
    machine: Machine,
) -> float:
    """A CTA for each Q block: full waves, and a last one, which runs alone where one CTA per multiprocessor is left."""
    blocks, locations = _blocks(config, shape, peeled), int(machine.multiprocessors) * ctas
    total = 0.0
    for first in range(0, len(blocks), locations):
        wave = blocks[first : first + locations]
        alone = len(wave) <= machine.multiprocessors and ctas > 1
        total += tiles[1 if alone else ctas].cycles(sum(wave) / len(wave), machine.excess)
    return total


def _persistent(
    config: KernelConfig, peeled: bool, ctas: int, tiles: Mapping[int, Tile], shape: Shape, machine: Machine
) -> float:
    """One CTA per multiprocessor takes Q blocks in turn; those left over may be cut into slices."""
    blocks, locations, tile = _blocks(config, shape, peeled), int(machine.multiprocessors), tiles[ctas]
    full, left = divmod(len(blocks), locations)
    mean = sum(blocks) / len(blocks)
    whole = tile.cycles(mean, machine.excess)
    if not left:
        return full * whole
    waves = slice_waves(config, left, blocks[0], shape.causal, locations)
    if not waves:
        fills = shape.causal or (config.tickets and config.split_tail)
        return (full + (left / locations if fills else 1)) * whole
    return full * whole + waves * _slice(config, tile, mean, min(left * config.n_warps, locations), machine)


def slice_waves(config: KernelConfig, left: int, passes: int, causal: bool, locations: int) -> int:
    """Rounds of slices of the Q blocks left over, 0 where they are not cut (config_slice_waves in common/config.h)."""
    waves = ceil(left * config.n_warps / locations)
    faster = waves * (passes + SLICE_PASSES * config.n_warps) < config.n_warps * passes
    return waves if config.split_tail and not config.tickets and not causal and faster else 0


def _slice(config: KernelConfig, tile: Tile, passes: float, ctas: int, machine: Machine) -> float:
    """A slice reads all KV blocks of its head: each warp multiplies a part of them, and L2 gives all CTAs the bytes."""
    bytes_read = passes * config.B_c * config.d_head * 4
    rate = min(machine.copy_bytes, machine.crowd_bytes * machine.multiprocessors / ctas)
    return max(tile.cycles(passes / config.n_warps, machine.excess), bytes_read / rate)
