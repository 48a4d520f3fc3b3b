"""The gain of each step, its stalls, and the utilization of the tensor cores: for the story and the notebooks.

    steps_table(read_steps(root()), ["v26", "v27"]).markdown()

A gain is Step.gain(): the version's speed divided by its parent's in one run of the H200 that holds both.
"""

from collections.abc import Sequence
from pathlib import Path

from analysis.machine_code.bounds import SUB_PARTITIONS, loop_bound
from analysis.measure.profile import kept
from analysis.publish.libraries import NOT_MEASURED
from analysis.publish.overview import GPU, LENGTHS, Step
from analysis.table import Cell, Table

MULTIPROCESSORS = 132  # of the H200
OPERATIONS = 2 * 16 * 8 * 16  # of one m16n8k16
SHOWN = (512, 4096, 16384)  # lengths on the page
MISSING = "–"


def held_up(folder: Path, version: str) -> str:
    """The utilization of the tensor pipe, and the two largest reasons why warps did not issue, per issued
    instruction."""
    launch = kept(folder).get(version)
    if launch is None:
        return MISSING
    reasons = {name: stall for name, stall in launch.stalls.items() if name not in ("selected", "not_selected")}
    largest = sorted(reasons, key=lambda name: -reasons[name])[:2]
    return ", ".join([f"{launch.pipes['tensor']:.0f} %", *(f"{name} {reasons[name]:.2f}" for name in largest)])


def gain(steps: Sequence[Step], name: str, seq: int) -> float | None:
    """The gain of one version at one length; None where no run holds it and its parent."""
    return next((step.gain(seq) for step in steps if step.name == name), None)


def gains_table(folder: Path, steps: Sequence[Step]) -> Table:
    """The gains of the versions with wgmma, at three lengths."""
    rows = [
        [step.name, *(NOT_MEASURED if (one := step.gain(seq)) is None else f"{one:.3f}" for seq in SHOWN)]
        for step in steps
        if step.version.one_arch and step.parent
    ]
    return Table(("version", *map(str, SHOWN)), rows)


def steps_table(steps: Sequence[Step], names: Sequence[str]) -> Table:
    """A row per version: what its header block claims of the speed, and the gain over its parent at every length."""
    by_name = {step.name: step for step in steps}
    rows: list[list[Cell]] = []
    for name in names:
        header = by_name[name].version.header
        claims = [claim.text for claim in header.claims if claim.quantity == "speedup"]
        gains = [by_name[name].gain(seq) for seq in LENGTHS]
        shown = [NOT_MEASURED if one is None else f"{100 * (one - 1):+.1f} %" for one in gains]
        rows.append([name, header.title, ", ".join(claims) or MISSING, *shown])
    return Table(("version", "idea", "predicted", *(f"at {seq}" for seq in LENGTHS)), rows)


def busy(step: Step, seq: int) -> float | None:
    """Share of the cycles in which the H200's tensor cores were busy; None where the speed or clock is not recorded.

    They are busy for as long as their instructions take at full rate: for the multiplications of the problem, divided
    by those per cycle. ncu's figure of its own launch differs by up to 3 percent of all cycles.
    """
    parts = step.parts.get(step.arch_in("sm_90"))
    speed = step.lengths.get(GPU, {}).get(seq)
    if parts is None or speed is None or not speed.sm_ghz or parts.matrix_work is None:
        return None
    tensor = next(load.cycles for load in loop_bound(parts).pipes if load.pipe == "tensor")
    operations = SUB_PARTITIONS * parts.matrix_work * OPERATIONS / tensor if tensor else 0.0  # a cycle
    return 1e3 * speed.tflops / (MULTIPROCESSORS * operations * speed.sm_ghz) if operations else None


def busy_table(steps: Sequence[Step], names: Sequence[str]) -> Table:
    """A row per version: how busy the tensor cores were, and at which clock, at every length."""
    by_name = {step.name: step for step in steps}
    rows: list[list[Cell]] = []
    for name in names:
        shares = [busy(by_name[name], seq) for seq in LENGTHS]
        clocks = [speed.sm_ghz if (speed := by_name[name].lengths.get(GPU, {}).get(seq)) else None for seq in LENGTHS]
        cells = [
            f"{100 * share:.1f} %, {ghz:.2f} GHz" if share and ghz else NOT_MEASURED
            for share, ghz in zip(shares, clocks, strict=True)
        ]
        rows.append([name, by_name[name].version.header.title, *cells])
    return Table(("version", "idea", *(f"at {seq}" for seq in LENGTHS)), rows)
