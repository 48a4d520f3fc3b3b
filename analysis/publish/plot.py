"""docs/roofline.svg and docs/time.svg: what holds up the versions with mma.sync, from one run of the H200.

    figure = roofline(root(), read_steps(root()))

Both pictures show the run at the headline problem that holds the most versions, and the versions of the story.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.emulate.traffic import MODELED
from analysis.machine_code.bounds import SUB_PARTITIONS, loop_bound
from analysis.measure import records, stats, summary
from analysis.measure.records import Record
from analysis.measure.summary import Row
from analysis.publish.drawing import BLUE, GREEN, GREY, ORANGE, PINK, RED, SKY, new_figure
from analysis.publish.jumps import STEPS
from analysis.publish.libraries import records_of
from analysis.publish.overview import HEADLINE, Step

WAVEFRONT_BYTES = 128  # one clock of an SM's shared memory
CROWDED = 15  # FLOP per byte from which on points are close together
PIPES = {
    "lsu": ("shared memory (lsu)", SKY),
    "tensor": ("tensor cores", BLUE),
    "issue": ("issue slots", GREEN),
    "xu": ("exponentials (xu)", ORANGE),
    "fma": ("fp32 (fma)", PINK),
    "alu": ("integer, logic (alu)", RED),
}


@dataclass(frozen=True)
class Run:
    """One run at the headline problem: a row per version, and what the device reached by the executables' measure."""

    title: str
    sms: int
    arch: str  # sm_90
    rows: dict[str, Row]
    clock_ghz: float
    mma_peak: float  # TFLOP/s of mma.sync, median over the records of the run


def headline_run(found: Sequence[Record]) -> Run | None:
    """The run with the most versions; of several, the newest that did not measure energy too."""
    mine = [record for record in found if record.problem == HEADLINE]
    versions: dict[str, set[str]] = {}
    for record in mine:
        versions.setdefault(record.run_id, set()).update([] if record.is_peer else [record.subject])
    heated = records.runs_with_energy(mine)
    chosen = max(versions, key=lambda run: (len(versions[run]), run not in heated, run), default="")
    mine = [record for record in mine if record.run_id == chosen]
    rows = {row.subject: row for row in summary.rows(mine)[0] if row.passed is not False and row.tflops} if mine else {}
    raws = [record.raw for record in mine if not record.is_peer]
    clocks = [row.sm_ghz for row in rows.values() if row.sm_ghz]
    peaks = [peak for raw in raws if (peak := (raw.get("derived") or {}).get("peak_tflops"))]
    if not (clocks and peaks):
        return None
    device = raws[0]["device"]
    arch = "sm_" + str(device["cc"]).replace(".", "")
    title = f"{mine[0].device}, {HEADLINE}"
    return Run(title, int(device["sms"]), arch, rows, stats.median(clocks), stats.median(peaks))


def _shown(run: Run, steps: Sequence[Step]) -> list[Step]:
    """The versions with mma.sync that have a record."""
    return [step for step in steps if step.name in run.rows and not step.version.one_arch]


def intensity(step: Step) -> float:
    """FLOP for each byte of shared-memory wavefronts, as the emulator models them."""
    assert step.traffic is not None
    return MODELED.flop() / (step.traffic.wavefronts * WAVEFRONT_BYTES)


def roofline(folder: Path, steps: Sequence[Step]) -> Any:
    """Speed against FLOP per byte of shared memory, under its bandwidth and the measured peak of mma.sync."""
    run = headline_run(records_of(folder))
    shown = [step for step in _shown(run, steps) if step.traffic] if run else []
    if run is None or not shown:
        return None
    slope = run.sms * WAVEFRONT_BYTES * run.clock_ghz / 1e3  # TB/s of all SMs
    figure, axes = new_figure(6.8, 4.2, font=8)
    least, most = min(map(intensity, shown)) / 2, 100.0
    xs = [least, run.mma_peak / slope, most]
    axes.plot(xs, [min(slope * x, run.mma_peak) for x in xs], color=GREY, linewidth=1.2)
    note: dict[str, Any] = {"textcoords": "offset points", "fontsize": 7}
    axes.annotate(f"shared memory: {slope:.0f} TB/s", (least, slope * least), xytext=(12, -4), **note)
    axes.annotate(
        f"peak of mma.sync: {run.mma_peak:.0f} TFLOP/s", (most, run.mma_peak), xytext=(0, 4), ha="right", **note
    )
    told = [step for step in shown if step.name in STEPS]
    crowded = [step for step in told if intensity(step) > CROWDED]
    for step in shown:
        told_here = step in told
        point = (intensity(step), run.rows[step.name].tflops)
        axes.scatter(*point, color=BLUE if told_here else GREY, s=18 if told_here else 8, zorder=3 if told_here else 2)
    for step in told:
        point, line = (intensity(step), run.rows[step.name].tflops), {}
        where: dict[str, Any] = {"xytext": (5, -9), **note}
        if step in crowded:  # in a column to the right, each with a line to its point
            where = {
                "xytext": (40, 300 * 1.16 ** crowded.index(step)),
                "textcoords": "data",
                "fontsize": 7,
                "va": "center",
            }
            line = {"arrowprops": {"arrowstyle": "-", "color": GREY, "linewidth": 0.5}}
        axes.annotate(step.name, point, **where, **line)
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis, ticks in ((axes.xaxis, (1, 2, 5, 10, 20, 50, 100)), (axes.yaxis, (20, 50, 100, 200, 500))):
        axis.set_ticks(ticks, minor=False)
        axis.set_ticks([], minor=True)
        axis.set_major_formatter("{x:g}")
    axes.set_xlabel("FLOP per byte of shared-memory wavefronts, modeled by the emulator")
    axes.set_ylabel("TFLOP/s")
    axes.set_title(run.title, fontsize=8)
    return figure


def measured_cycles(run: Run, step: Step) -> float:
    """Cycles of an SM sub-partition for each pass of a warp through its KV loop, from the time of the whole launch."""
    config, row = step.version.header.config, run.rows[step.name]
    passes = HEADLINE.batch * HEADLINE.heads * (HEADLINE.seq // config.B_r) * config.n_warps
    seconds = HEADLINE.flop() / (row.tflops * 1e12)
    return seconds * (row.sm_ghz or 0.0) * 1e9 * run.sms * SUB_PARTITIONS / (passes * HEADLINE.seq / config.B_c)


def time_chart(folder: Path, steps: Sequence[Step]) -> Any:
    """A group of bars per version: the least time of each pipe as a share of the measured time of the loop."""
    run = headline_run(records_of(folder))
    shown = (
        [step for step in _shown(run, steps) if run and run.arch in step.parts and step.name in STEPS] if run else []
    )
    if run is None or not shown:
        return None
    figure, axes = new_figure(8.0, 3.6, font=8)
    width = 0.8 / len(PIPES)
    cycles = [measured_cycles(run, step) for step in shown]
    for index, (pipe, (name, color)) in enumerate(PIPES.items()):
        least = [
            next((load.cycles or 0.0 for load in loop_bound(step.parts[run.arch]).pipes if load.pipe == pipe), 0.0)
            for step in shown
        ]
        shares = [100 * a / b for a, b in zip(least, cycles, strict=True)]
        axes.bar([at - 0.4 + (index + 0.5) * width for at in range(len(shown))], shares, width, label=name, color=color)
    axes.set_xticks(range(len(shown)), [f"{s.name}\n{c:.0f} cycles" for s, c in zip(shown, cycles, strict=True)])
    axes.set_ylim(0, 100)
    axes.set_ylabel("least time of the pipe, % of measured")
    axes.legend(fontsize=7, ncols=len(PIPES), frameon=False, loc="lower left", bbox_to_anchor=(0, 1.0), columnspacing=1)
    axes.set_title(f"{run.title}; cycles of a sub-partition for one warp's pass through the loop", fontsize=8, pad=18)
    return figure
