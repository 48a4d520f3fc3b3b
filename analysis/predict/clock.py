"""The SM clock of a launch: the board has a limit of power, and every operation takes energy.

    activity = activity_of(kernel.path.loop)
    hz = clock_of(kernel.config, kernel.path.peeled, kernel.ctas, tiles, activity, shape, machine)

Energies are in nJ at REFERENCE. They grow with the clock, since a higher clock needs a higher voltage: power is that
of the clock squared. Launches are timed with a pause in between, in which the L2 cache is flushed and little power is
drawn.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from math import sqrt

from analysis.ladder.config import KernelConfig
from analysis.predict.launch import Foreign, Shape, Tile, launch_cycles, passes_in
from analysis.predict.machine import Machine
from analysis.predict.operations import Kind, Operation

REFERENCE = 1.5e9  # Hz
ENERGIES = ("mma_sync", "wgmma", "wavefront", "cycle", "pause")
ROUNDS = 4  # the clock decides the time of a launch, which decides the share of the pause


@dataclass(frozen=True)
class Activity:
    """The work of one warp in a pass."""

    mma_sync: float  # cycles of the tensor pipe
    wgmma: float
    wavefront: float  # of 128 bytes of shared memory, with those that wgmma reads


def activity_of(loop: Iterable[Operation]) -> Activity:
    mma_sync = wgmma = wavefront = 0.0
    for each in loop:
        at = each.instruction
        if each.kind is Kind.WGMMA and at is not None:
            wgmma += each.cycles
            wavefront += wgmma_wavefronts(at.opcode, at.operands)
        elif each.kind is Kind.MEMORY:
            wavefront += each.cycles
        elif each.kind is Kind.COPY:
            wavefront += 4  # 16 bytes for each lane
        elif at is not None and at.base == "HMMA":
            mma_sync += each.cycles
    return Activity(mma_sync, wgmma, wavefront)


def wgmma_wavefronts(opcode: str, operands: str) -> float:
    """A warp's share of what m64nNk16 reads: 32 bytes for each column, and 64 rows of 32 bytes unless in registers."""
    columns = re.search(r"64x(\d+)x", opcode)
    rows = 0 if re.search(r"R\d+, gdesc", operands.partition(",")[2]) else 64
    return (int(columns[1] if columns else 128) + rows) * 32 / 128 / 4


def work(activity: Activity, cycles: float, us: float, passes: float, machine: Machine) -> list[float]:
    """The factor of each of ENERGIES: its average over the launch and the pause after it, per cycle."""
    busy = us / (us + machine.pause_us)
    return [*(busy * of_pass * passes / cycles for of_pass in astuple(activity)), busy, 1 - busy]


def hz_of(amounts: Sequence[float], machine: Machine) -> float:
    """The clock at which that work draws the limit of power, or the limit of the clock."""
    energy = sum(machine.energies[name] * amount for name, amount in zip(ENERGIES, amounts, strict=True))
    return min(machine.clock_limit, sqrt(machine.power * REFERENCE / (machine.multiprocessors * energy * 1e-9)))


def clock_of(
    config: KernelConfig | Foreign,
    peeled: bool,
    ctas: int,
    tiles: Mapping[int, Tile],
    activity: Activity,
    shape: Shape,
    machine: Machine,
) -> float:
    """The clock of a launch in Hz."""
    passes = passes_in(config, shape) * config.n_warps / machine.multiprocessors
    hz = machine.clock_limit
    for _ in range(ROUNDS):
        cycles = launch_cycles(config, peeled, ctas, tiles, shape, machine, hz)
        hz = hz_of(work(activity, cycles, 1e6 * cycles / hz, passes, machine), machine)
    return hz
