"""Every version's prediction, its speed at three lengths and what held it up, and what each step gained.

    story_table(root(), read_steps(root())).markdown()

Speeds are those of fp16 with 16 heads in the newest run on the H200 that holds the version and FlashAttention-2,
divided by FlashAttention-2's. What held it up is what ncu said of one launch that is kept in logs/profile.
"""

from collections.abc import Sequence
from pathlib import Path

from analysis.machine_code.bounds import SUB_PARTITIONS, loop_bound
from analysis.measure.profile import kept
from analysis.measure.records import Problem
from analysis.publish.libraries import NOT_MEASURED, SIZES, records_of
from analysis.publish.overview import HEADLINE, LENGTHS, Step, newest_ratio, own_records
from analysis.table import Cell, Table

GPU = "h200"
MULTIPROCESSORS = 132  # of the H200
OPERATIONS = 2 * 16 * 8 * 16  # of one m16n8k16
SHOWN_LENGTHS = (512, 4096, 16384)
MISSING = "–"

SHOWN = (512, 4096, 16384)  # lengths on the page of what each step gained


def story_table(folder: Path, steps: Sequence[Step]) -> Table:
    """One row per version: idea, prediction, ratio to FlashAttention-2, clock of the SMs, and what ncu saw."""
    columns = (
        "version",
        "idea",
        "predicted",
        *(f"speed / FA2 at {seq}" for seq in SHOWN_LENGTHS),
        f"TFLOP/s at {HEADLINE.seq}",
        "SM MHz",
        "tensor pipe, stalls",
    )
    table: list[list[Cell]] = []
    for step in steps:
        header = step.version.header
        measured = [step.lengths.get(GPU, {}).get(seq) for seq in SHOWN_LENGTHS]
        cells: list[Cell] = [f"{speed.ratio.mid:.3f}" if speed and speed.ratio else NOT_MEASURED for speed in measured]
        headline = step.speeds.get(GPU)
        cells.append(f"{headline.tflops:.0f}" if headline else NOT_MEASURED)
        cells.append(f"{1000 * headline.sm_ghz:.0f}" if headline and headline.sm_ghz else NOT_MEASURED)
        table.append([step.name, header.title, header.predict or "nothing", *cells, held_up(folder, step.name)])
    return Table(columns, table)


def held_up(folder: Path, version: str) -> str:
    """How busy the tensor pipe was, and the two largest reasons why warps did not issue, per issued instruction."""
    launch = kept(folder).get(version)
    if launch is None:
        return MISSING
    reasons = {name: stall for name, stall in launch.stalls.items() if name not in ("selected", "not_selected")}
    largest = sorted(reasons, key=lambda name: -reasons[name])[:2]
    return ", ".join([f"{launch.pipes['tensor']:.0f} %", *(f"{name} {reasons[name]:.2f}" for name in largest)])


def gain(steps: Sequence[Step], name: str, seq: int) -> float | None:
    """Speed of a version divided by its parent's in the newest run of both; None where no run holds both."""
    return next((step.gains.get(GPU, {}).get(seq) for step in steps if step.name == name), None)


def steps_table(steps: Sequence[Step], names: Sequence[str]) -> Table:
    """A row per version: what its header block claims of the speed, and the gain over its parent at every length."""
    by_name = {step.name: step for step in steps}
    rows: list[list[Cell]] = []
    for name in names:
        header = by_name[name].version.header
        claims = [claim.text for claim in header.claims if claim.scored and claim.quantity == "speedup"]
        gains = [gain(steps, name, seq) for seq in LENGTHS]
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


def gains_table(folder: Path, steps: Sequence[Step]) -> Table:
    """A row per version for sm_90a and size: speed divided by the parent's, in the newest run that holds both.

    A second size has a row only where a problem was measured that the first one does not have.
    """
    records = records_of(folder)
    rows: list[list[Cell]] = []
    for step in steps:
        parent = step.parent
        if not step.version.one_arch or parent is None:
            continue
        versions = {parent.version: parent, step.name: step.version}
        claims = [claim.text for claim in step.version.header.claims if claim.scored and claim.quantity == "speedup"]
        seen: set[Problem] = set()
        for size, problem in SIZES.items():
            problems = [problem(seq, HEADLINE.dtype) for seq in LENGTHS]
            mine = [own_records(records, one, versions) for one in problems]
            ratios = [newest_ratio(each, step.name, parent.version) for each in mine]
            if not seen or any(ratio and one not in seen for ratio, one in zip(ratios, problems, strict=True)):
                shown = [f"{ratio.mid:.3f}" if ratio else NOT_MEASURED for ratio in ratios]
                rows.append([step.name, step.version.header.title, ", ".join(claims), size, *shown])
            seen |= {*problems}
    return Table(("version", "idea", "predicted", "batch", *map(str, LENGTHS)), rows)


def measured_gains(folder: Path, steps: Sequence[Step]) -> Table:
    """The same at the first size and three lengths, of versions measured at several, without what was predicted."""
    whole = gains_table(folder, steps)
    first = next(iter(SIZES))
    rows = [row for row in whole.rows if row[3] == first and sum(cell != NOT_MEASURED for cell in row[4:]) > 1]
    left_out = {"idea", "predicted", "batch", *(str(seq) for seq in LENGTHS if seq not in SHOWN)}
    return Table(whole.columns, rows).without(left_out)
