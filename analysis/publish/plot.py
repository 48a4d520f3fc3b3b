"""Pictures drawn from records: the ladder, the shared-memory roofline, where the time of a loop goes.

    python3 -m analysis plot ladder --from h200 -o docs/ladder.svg

A picture shows one run on one GPU and says which; the
same data gives the same file, so that a stale picture is found by comparing. What is not known is left out of it.
"""

import argparse
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.emulate.traffic import MODELLED
from analysis.errors import DONE, AnalysisError
from analysis.files import root, write_atomically, write_if_changed
from analysis.machine_code.bounds import SUB_PARTITIONS, loop_bound
from analysis.measure import records, stats, summary
from analysis.measure.records import Problem, Record
from analysis.measure.summary import Row
from analysis.publish import overview
from analysis.publish.drawing import BLACK, BLUE, GREEN, ORANGE, PINK, RED, SKY, new_figure, svg
from analysis.publish.overview import HEADLINE, Step

OURS, PEER, ROOF, SOFT = "#2f6f9f", "#b5651d", "#555555", "#c9d6df"
COLORS = (BLUE, ORANGE, GREEN, PINK, SKY, RED, BLACK)
SHAPES = "os^Dv<>PX"  # of a length prime to the colours', so that many pairs come before the first returns
WAVEFRONT_BYTES = 128  # one clock of an SM's shared memory
PEERS_SHOWN = {"fa2": "FlashAttention-2", "fa3": "FlashAttention-3", "cudnn": "cuDNN"}


@dataclass(frozen=True)
class Run:
    """One run at one problem: a row per subject, and what the device reached by the executables' own measure."""

    device: str
    sms: int
    arch: str  # sm_90
    problem: Problem
    rows: dict[str, Row]
    mma_peak: float | None  # TFLOP/s, median over the records of the run
    reference: str


def run_of(found: Sequence[Record], problem: Problem, run_id: str | None = None) -> Run:
    """The run that holds the most versions at the problem, the newest of several, or the one asked for."""
    mine = [record for record in found if record.problem == problem]
    if not mine:
        raise AnalysisError(
            f"no record of {problem}: python3 -m analysis records show GPU --wide shows what was measured"
        )
    chosen = run_id or widest_run(mine)
    mine = [record for record in mine if record.run_id == chosen]
    if not mine:
        raise AnalysisError(f"run {chosen} holds no record of {problem}")
    rows, reference = summary.rows(mine)
    ours = [record.raw for record in mine if not record.is_peer]
    peaks = [peak for raw in ours if (peak := (raw.get("derived") or {}).get("peak_tflops"))]
    device = ours[0]["device"] if ours else mine[0].raw["device"]
    return Run(
        device=mine[0].device,
        sms=int(device.get("sms") or 0),
        arch="sm_" + str(device.get("cc", "")).replace(".", ""),
        problem=problem,
        rows={row.subject: row for row in rows if row.passed is not False and row.tflops},
        mma_peak=stats.median(peaks) if peaks else None,
        reference=reference,
    )


def widest_run(found: Sequence[Record]) -> str:
    """The id of the run with the most versions; of several, the newest that did not measure energy too."""
    versions: dict[str, set[str]] = {}
    for record in found:
        versions.setdefault(record.run_id, set()).update([] if record.is_peer else [record.subject])
    heated = records.runs_with_energy(found)
    return max(versions, key=lambda run: (len(versions[run]), run not in heated, run))


# ---- the ladder ------------------------------------------------------------------------------------------------------


def ladder(run: Run) -> Any:
    """A bar per version, and a line for each peer and for the peak of mma.sync. Figures stand outside the axes."""
    versions = [row for name, row in run.rows.items() if name not in PEERS_SHOWN and name[:1] == "v"]
    if not versions:
        raise AnalysisError(f"no version was measured at {run.problem}")
    figure, axes = new_figure(max(6.0, 0.55 * len(versions) + 2), 3.6, font=8)
    places = range(len(versions))
    axes.bar(places, [row.tflops for row in versions], color=OURS, width=0.7)
    ratios = [f"\n×{row.ratio.mid:.2f}" if row.ratio else "" for row in versions]
    labels = [f"{row.subject}\n{row.tflops:.0f}{ratio}" for row, ratio in zip(versions, ratios, strict=True)]
    axes.set_xticks(list(places), labels, fontsize=7)
    lines = {name: run.rows[peer].tflops for peer, name in PEERS_SHOWN.items() if peer in run.rows}
    if run.mma_peak:
        lines["measured peak of mma.sync"] = run.mma_peak
    for name, height in lines.items():
        color = ROOF if name.startswith("measured") else PEER
        axes.axhline(height, color=color, linewidth=1, linestyle="--")
        _beside(axes, f"{name} {height:.0f}", height, color)
    axes.set_ylabel("TFLOP/s")
    axes.set_ylim(0, 1.12 * max([*lines.values(), *(row.tflops for row in versions)]))
    axes.set_xlim(-0.7, len(versions) - 0.3)
    against = f", × is speed over {PEERS_SHOWN.get(run.reference, run.reference)}" if run.reference in run.rows else ""
    axes.set_title(f"{run.device}, {run.problem}{against}", fontsize=8)
    return figure


def _beside(axes: Any, text: str, height: float, color: str) -> None:
    """The name of a horizontal line, right of the axes, where nothing crosses it."""
    axes.annotate(
        text,
        (1, height),
        xycoords=("axes fraction", "data"),
        xytext=(4, 0),
        textcoords="offset points",
        fontsize=7,
        color=color,
        va="center",
    )


# ---- the roofline ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Point:
    """One version under the roof of shared memory. `intensity` is FLOP for each byte of modelled wavefronts."""

    version: str
    intensity: float
    tflops: float


def roofline_points(run: Run, steps: Sequence[Step]) -> list[Point]:
    """The versions with both a record and modelled traffic."""
    return [
        Point(step.name, MODELLED.flop() / (step.traffic.wavefronts * WAVEFRONT_BYTES), run.rows[step.name].tflops)
        for step in steps
        if step.traffic is not None and step.name in run.rows
    ]


def shared_roof(run: Run) -> float:
    """Terabytes per second that the SMs' shared memories deliver at the clock of the run."""
    clocks = [row.sm_ghz for row in run.rows.values() if row.sm_ghz]
    if not clocks or not run.sms:
        raise AnalysisError("the roof of shared memory needs SM clocks and the number of SMs in the records")
    return run.sms * WAVEFRONT_BYTES * stats.median(clocks) / 1e3


def neighbours(points: Sequence[Point], within: float = 0.04) -> list[list[Point]]:
    """Points that lie together share a sign of the legend; in the order of the versions."""
    groups: list[list[Point]] = []
    for point in points:
        for group in groups:
            if all(abs(math.log(point.intensity / p.intensity)) < within for p in group) and all(
                abs(math.log(point.tflops / p.tflops)) < within for p in group
            ):
                group.append(point)
                break
        else:
            groups.append([point])
    return groups


def ranges(names: Sequence[str]) -> str:
    """v03, v04, v05, v08 as v03–05, v08."""
    runs: list[list[str]] = []
    for name in names:
        if runs and name[1:].isdigit() and runs[-1][-1][1:].isdigit() and int(name[1:]) == int(runs[-1][-1][1:]) + 1:
            runs[-1].append(name)
        else:
            runs.append([name])
    return ", ".join(run[0] + (f"–{run[-1][1:]}" if len(run) > 1 else "") for run in runs)


def roofline(run: Run, points: Sequence[Point]) -> Any:
    """Speed against FLOP per byte of shared memory, under its bandwidth and the measured peak of mma.sync."""
    if not points:
        raise AnalysisError("no version has both a record and modelled traffic (python3 -m analysis traffic --write)")
    slope = shared_roof(run)
    figure, axes = new_figure(6.4, 4.2, font=8)
    least, most = min(p.intensity for p in points) / 2, max(p.intensity for p in points) * 3
    peak = run.mma_peak or 0.0
    xs = [least, peak / slope, most] if peak and least < peak / slope < most else [least, most]
    axes.plot(xs, [min(slope * x, peak) if peak else slope * x for x in xs], color=ROOF, linewidth=1.2)
    offset = {"textcoords": "offset points", "fontsize": 7, "color": ROOF}
    axes.annotate(f"shared memory {slope:.0f} TB/s", (least, slope * least), xytext=(16, -2), **offset)
    if peak:
        axes.annotate(f"mma.sync {peak:.0f} TFLOP/s", (most, peak), xytext=(0, 3), ha="right", **offset)
    for number, group in enumerate(neighbours(points)):
        color, sign = COLORS[number % len(COLORS)], SHAPES[number % len(SHAPES)]
        name = ranges([point.version for point in group])
        places = ([point.intensity for point in group], [point.tflops for point in group])
        axes.scatter(*places, color=color, marker=sign, s=18, zorder=3, label=name)
    axes.legend(fontsize=7, frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis, low, high in ((axes.xaxis, least, most), (axes.yaxis, slope * least, peak or slope * most)):
        ticks = [tick for power in range(4) for tick in (10**power, 2 * 10**power, 5 * 10**power)]
        axis.set_ticks([tick for tick in ticks if low <= tick <= high], minor=False)
        axis.set_ticks([], minor=True)
        axis.set_major_formatter("{x:g}")
    axes.set_xlabel("FLOP per byte of shared-memory wavefronts, modelled by the emulator")
    axes.set_ylabel("TFLOP/s")
    axes.set_title(f"{run.device}, {run.problem}", fontsize=8)
    return figure


# ---- where the time goes ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Share:
    """Of the measured cycles of one pass through the KV loop, what each pipe needs at least (0 … 1)."""

    version: str
    cycles: float  # measured, of one sub-partition for one warp's pass
    pipes: dict[str, float]


def measured_cycles(row: Row, run: Run, step: Step) -> float:
    """Cycles of an SM sub-partition for each pass of a warp through its KV loop, from the time of the whole launch."""
    config, p = step.version.header.config, run.problem
    passes = p.batch * p.heads * (p.seq // config.B_r) * config.n_warps * (p.seq / config.B_c)
    seconds = p.flop() / (row.tflops * 1e12)
    return seconds * (row.sm_ghz or 0.0) * 1e9 * run.sms * SUB_PARTITIONS / passes


def shares(run: Run, steps: Sequence[Step]) -> list[Share]:
    """The versions with a record, a clock and a listing for the run's architecture."""
    found = []
    for step in steps:
        row, parts = run.rows.get(step.name), step.parts.get(run.arch)
        if row is None or parts is None or not row.sm_ghz:
            continue
        cycles = measured_cycles(row, run, step)
        pipes = {load.pipe: load.cycles / cycles for load in loop_bound(parts).pipes if load.cycles is not None}
        found.append(Share(step.name, cycles, pipes))
    return found


def time_chart(run: Run, found: Sequence[Share]) -> Any:
    """A group of bars per version: the least time of each pipe as a share of the measured time of the loop."""
    if not found:
        raise AnalysisError(f"no version has both a record with clocks and a listing sass/*.{run.arch}.sass")
    names = sorted(
        {pipe for one in found for pipe in one.pipes}, key=lambda pipe: -max(o.pipes.get(pipe, 0) for o in found)
    )
    names = names[:6]
    figure, axes = new_figure(min(12.0, max(6.0, 0.8 * len(found) + 2)), 3.6, font=8)
    width = 0.8 / len(names)
    palette = ["#2f6f9f", "#b5651d", "#5b8c5a", "#8a6fae", "#a0a0a0", "#d0a040"]
    for index, (name, color) in enumerate(zip(names, palette, strict=False)):
        places = [place - 0.4 + (index + 0.5) * width for place in range(len(found))]
        axes.bar(places, [100 * one.pipes.get(name, 0.0) for one in found], width, label=name, color=color)
    axes.axhline(100, color=SOFT, linewidth=1)
    axes.set_xticks(range(len(found)), [f"{one.version}\n{one.cycles:.0f}" for one in found])
    axes.set_xlabel("version, and measured cycles of a sub-partition for one warp's pass through the loop", fontsize=8)
    axes.set_ylabel("least time of the pipe, % of measured")
    axes.legend(fontsize=7, ncols=len(names), frameon=False, loc="lower left", bbox_to_anchor=(0, 1.0))
    axes.set_title(f"{run.device}, {run.problem}; bounds of the {run.arch} code", fontsize=8, pad=18)
    return figure


def headline_run(folder: Path) -> Run | None:
    """The run at the headline problem on the H200 that holds the most versions; None where none is recorded."""
    path = folder / "logs/bench/h200.jsonl"
    found = records.records_in(path) if path.exists() else ()
    return run_of(found, HEADLINE) if any(record.problem == HEADLINE for record in found) else None


# ---- files and the command -------------------------------------------------------------------------------------------


PICTURES = ("ladder", "roofline", "time")


def draw(picture: str, run: Run, steps: Sequence[Step]) -> Any:
    """The figure of that name."""
    if picture == "ladder":
        return ladder(run)
    if picture == "roofline":
        return roofline(run, roofline_points(run, steps))
    return time_chart(run, shares(run, steps))


def add_plot_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("picture", choices=PICTURES, help="ladder: speed by version; roofline; time: pipes of the loop")
    parser.add_argument("--from", dest="source", default="h200", metavar="GPU|FILE", help="records to draw (h200)")
    parser.add_argument("--run", metavar="ID", help="the run to draw (the one that holds the most versions)")
    parser.add_argument("--seq", type=int, default=4096, metavar="N", help="length (4096)")
    parser.add_argument("--dtype", default="fp16", choices=("fp16", "bf16"), help="element type (fp16)")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="an .svg or .png file")


def run_plot(args: argparse.Namespace) -> int:
    """Draw one picture."""
    from analysis.measure.executables import standard_batch

    if args.output.suffix not in (".svg", ".png"):
        raise AnalysisError(f"-o {args.output}: expected a name that ends in .svg or .png")
    found = records.read(records.for_gpu(args.source)).records
    problem = Problem("attention", args.dtype, standard_batch(args.seq), 16, args.seq, 128, "normal")
    run = run_of(found, problem, args.run)
    figure = draw(args.picture, run, [] if args.picture == "ladder" else overview.read_steps(root()))
    if args.output.suffix == ".png":
        picture = io.BytesIO()
        figure.savefig(picture, format="png", dpi=150)
        write_atomically(args.output, picture.getvalue())
    else:
        write_if_changed(args.output, svg(figure))
    return DONE
