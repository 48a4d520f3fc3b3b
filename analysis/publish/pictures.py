"""The pictures of the notebooks, the README and the report, each a function from what is known to a figure.

    figure = progress(root(), read_steps(root()))
    write_if_changed(path, svg(figure))

Versions without a record or a listing are left out.
"""

import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from analysis.emulate.lines import Line
from analysis.emulate.ring import Stay
from analysis.machine_code.bounds import waits_of
from analysis.machine_code.regions import REGIONS
from analysis.machine_code.sass import Instruction
from analysis.publish.drawing import BLACK, BLUE, GREEN, GREY, ORANGE, PINK, RED, SKY, WIDE, YELLOW, new_figure
from analysis.publish.energy import energy_table
from analysis.publish.lessons import WORK
from analysis.publish.libraries import libraries_at
from analysis.publish.overview import GPU, HEADLINE, Step

# The purposes of a loop's instructions, in the order in which bars are stacked.
KINDS = {
    "matrix": BLUE,
    "shared memory to registers": SKY,
    "copies and barriers": GREEN,
    "softmax": ORANGE,
    "integer": RED,
    "moves": PINK,
    "local memory": BLACK,
    "control": GREY,
}
_KIND_OF = {
    "matrix": "HMMA HGMMA",
    "shared memory to registers": "LDSM LDS",
    "copies and barriers": "LDGSTS LDGDEPBAR DEPBAR BAR STG STS LDG UTMALDG SYNCS CCTL UTMASTG UBLKCP UTMACMDFLUSH "
    "WARPGROUP FENCE MEMBAR STSM",
    "softmax": "FADD FMUL FFMA FMNMX MUFU SHFL F2F F2FP FSETP FSEL HADD2 HMUL2 HFMA2 I2FP F2I FRND",
    "moves": "MOV CS2R PRMT UMOV",
    "local memory": "LDL STL",
    "control": "BRA CALL RET EXIT WARPSYNC NOP BSSY BSYNC S2R S2UR VOTE VOTEU R2UR",
}
_KIND = {opcode: kind for kind, opcodes in _KIND_OF.items() for opcode in opcodes.split()}
MOST_LEVEL = 24  # names or numbers that fit next to each other along the width of a picture


def kind_of(at: Instruction) -> str:
    """The purpose of an instruction. Arithmetic on addresses, logic and compares are "integer", dummies "control"."""
    if at.never:
        return "control"
    if at.opcode.startswith("IMAD.MOV"):
        return "moves"
    return _KIND.get(at.base, "integer")


def _legend(axes: Any, columns: int = 4, colors: Mapping[str, str] | None = None) -> None:
    """Above the axes: what is labeled in it, or these colors."""
    patch = importlib.import_module("matplotlib.patches").Patch
    handles = {"handles": [patch(color=color, label=name) for name, color in colors.items()]} if colors else {}
    axes.legend(**handles, frameon=False, ncols=columns, loc="lower left", bbox_to_anchor=(0, 1.0), fontsize=8)


def _name_versions(axes: Any, steps: Sequence[Step]) -> None:
    """The versions along the axis from 0 on, upright where they would overlap."""
    axes.set_xticks(range(len(steps)), [step.name for step in steps], rotation=90 if len(steps) > MOST_LEVEL else 0)


def bars(values: Sequence[tuple[str, float, str]], unit: str, mark: float, of_mark: str) -> Any:
    """Horizontal bars from zero: label, value, and the value as text right of all bars, clear of the line at `mark`.

    `unit` is written below the axis, `of_mark` above the line.
    """
    figure, axes = new_figure(WIDE, 0.9 + 0.22 * len(values))
    axes.barh([label for label, _, _ in values], [value for _, value, _ in values], 0.7, color=BLUE)
    most = max([value for _, value, _ in values] + [mark])
    for row, (_, _, text) in enumerate(values):
        axes.annotate(text, (1.04 * most, row), va="center", fontsize=8)
    axes.axvline(mark, color=BLACK, linewidth=0.8, linestyle="--")
    above: dict[str, Any] = {"xycoords": ("data", "axes fraction"), "xytext": (0, 4), "textcoords": "offset points"}
    axes.annotate(of_mark, (mark, 1), ha="center", fontsize=8, **above)
    axes.set_xlabel(unit)
    axes.set_xlim(0, 1.14 * most)
    axes.invert_yaxis()
    return figure


# ---- of the documents ------------------------------------------------------------------------------------------------

JUMP = 1.1  # times its parent: the least step that the picture names
STATES = {"FlashAttention-2": GREY, "v16": SKY, "v25": GREEN, "cuDNN": ORANGE, "FlashAttention-3": RED, "v37": BLUE}


def states(folder: Path, steps: Sequence[Step]) -> Any:
    """From cool to hot: TFLOP/s of a burst after rest, and at the power limit, with the SM clock if known."""
    rows = energy_table(folder, steps).rows
    shown = [row for row in rows if row[0] in STATES and row[1:3] == (HEADLINE.dtype, HEADLINE.batch)]
    if not shown:
        return None
    figure, axes = new_figure(WIDE, 3.6)
    sides = ((-8, "right"), (8, "left"))
    for name, _, _, *numbers in (row[:7] for row in shown):
        axes.plot((0, 1), numbers[:2], color=STATES[str(name)], marker="o", linewidth=2)
        for at, (speed, clock, (offset, align)) in enumerate(zip(numbers[:2], numbers[2:], sides, strict=True)):
            text = f"{speed}" + (f", {clock} MHz" if clock else "")
            where: dict[str, Any] = {"xytext": (offset, 0), "textcoords": "offset points", "ha": align, "va": "center"}
            axes.annotate(text if at else f"{name}  {text}", (at, speed), fontsize=8, **where)
    axes.set_xlim(-0.9, 1.5)
    axes.set_xticks((0, 1), ("first: 50 ms after a second of rest", "sustained: after two seconds of launches"))
    axes.set_ylabel("TFLOP/s")
    return figure


def progress(folder: Path, steps: Sequence[Step]) -> Any:
    """Percent of FlashAttention-2's speed by version on each GPU, with the libraries as horizontal lines.

    A step that gains a tenth or more over its parent has its idea next to it, on the line of the last GPU.
    """
    steps = [step for step in steps if any(speed.ratio for speed in step.speeds.values())]
    if not steps:
        return None
    figure, axes = new_figure(WIDE, 3.8)
    position = {step.name: at for at, step in enumerate(steps)}
    for gpu, color in zip(sorted({gpu for step in steps for gpu in step.speeds}), (SKY, BLUE, ORANGE), strict=False):
        mine = {step.name: 100 * one.ratio.mid for step in steps if (one := step.speeds.get(gpu)) and one.ratio}
        axes.plot([position[name] for name in mine], [*mine.values()], color=color, marker="o", label=gpu.upper())
    ratios = {name: row.ratio.mid for name, row in libraries_at(folder, steps).items() if row.ratio}
    heights = {name: 100 * ratio for name, ratio in ratios.items() if ratio > 1}
    heights = {"FlashAttention-2": 100.0} | heights
    note: dict[str, Any] = {"textcoords": "offset points", "fontsize": 8}
    for step in steps:
        speed = step.speeds.get(GPU)
        if speed and speed.ratio and (step.gain() or 0) >= JUMP:
            at = 100 * speed.ratio.mid
            crossed = any(abs(at + 8 - height) < 10 for height in heights.values())
            offset, align = ((7, -24), "left") if crossed else ((-6, 5), "right")
            axes.annotate(step.version.header.title, (position[step.name], at), xytext=offset, ha=align, **note)
    for name, height in heights.items():
        axes.axhline(height, color=BLACK, linewidth=0.8, linestyle="--")
        axes.annotate(name, (1, height), xycoords=("axes fraction", "data"), xytext=(4, 0), va="center", **note)
    _name_versions(axes, steps)
    axes.set_ylabel("% of FlashAttention-2, 4096 keys")
    axes.set_ylim(0, None)
    axes.grid(axis="y", alpha=0.25)
    _legend(axes)
    return figure


# ---- of the notebooks ------------------------------------------------------------------------------------------------


def _multiplying(steps: Sequence[Step], arch: str) -> list[Step]:
    """The versions with a listing whose loop has matrix instructions, for numbers that are counted for each of them."""
    return [step for step in steps if arch in step.parts and step.parts[arch].matrix_count]


def loop_strips(steps: Sequence[Step], arch: str) -> Any:
    """The KV loop of each version from left to right, one stroke per instruction, colored by what it is for."""
    there = _multiplying(steps, arch)
    figure, axes = new_figure(WIDE, 0.8 + 0.42 * len(there))
    for row, step in enumerate(there):
        count = step.parts[arch].matrix_count
        for kind, color in KINDS.items():
            code = enumerate(step.parts[arch].loop)
            spans = [(at / count, 1 / count) for at, instruction in code if kind_of(instruction) == kind]
            axes.broken_barh(spans, (row - 0.38, 0.76), color=color, linewidth=0)
    axes.set_yticks(range(len(there)), [step.name for step in there])
    axes.invert_yaxis()
    axes.set_xlabel(f"one pass through the KV loop, {arch}: instructions per HMMA")
    _legend(axes, colors=KINDS)
    return figure


def loop_mix(steps: Sequence[Step], arch: str, weight: Callable[[Instruction], int] = lambda _: 1) -> Any:
    """Instructions of the loop per matrix instruction by what they are for, stacked; or the sum of their weights."""
    there = _multiplying(steps, arch)
    parts: dict[str, list[float]] = {kind: [0.0] * len(there) for kind in KINDS}
    for number, step in enumerate(there):
        for at in step.parts[arch].loop:
            parts[kind_of(at)][number] += weight(at) / step.parts[arch].matrix_count
    unit = there[0].unit(arch) if there else "HMMA"
    return _stacked(there, parts, KINDS, f"instructions / {unit}, {arch}", "{:.2f}")


def stall_mix(steps: Sequence[Step], arch: str) -> Any:
    """Stall counts of the loop per HMMA by what the stalling instruction is for: one warp's issue time."""
    figure = loop_mix(steps, arch, lambda at: max(1, at.control.stall) if at.control else 0)
    figure.axes[0].set_ylabel(f"least issue cycles of one warp\nper HMMA, {arch}")
    return figure


def region_sizes(steps: Sequence[Step], arch: str) -> Any:
    """Instructions of the whole kernel by region."""
    there = [step for step in steps if arch in step.parts]
    colors = dict(zip(REGIONS, (GREEN, SKY, BLUE, ORANGE, PINK, GREY, RED, YELLOW), strict=True))
    parts = {name: [float(len(step.parts[arch].regions.get(name, ()))) for step in there] for name in REGIONS}
    return _stacked(there, parts, colors, f"instructions, {arch}", "{:.0f}")


def _stacked(
    steps: Sequence[Step], parts: Mapping[str, Sequence[float]], colors: Mapping[str, str], unit: str, number: str
) -> Any:
    """A bar per version, its parts stacked, with the sum above it."""
    figure, axes = new_figure(WIDE, 3.6)
    tops = [0.0] * len(steps)
    for name, heights in parts.items():
        axes.bar(range(len(steps)), heights, 0.7, bottom=tops, color=colors[name])
        tops = [a + b for a, b in zip(tops, heights, strict=True)]
    upright = len(steps) > MOST_LEVEL
    for at, top in enumerate(tops):
        axes.annotate(number.format(top), (at, top), ha="center", va="bottom", fontsize=8, rotation=90 * upright)
    axes.set_ylim(0, (1.12 if upright else 1.05) * max(tops))
    _name_versions(axes, steps)
    axes.set_ylabel(unit)
    _legend(axes, colors={name: colors[name] for name, heights in parts.items() if any(heights)})
    return figure


def load_distances(steps: Sequence[Step], arch: str) -> Any:
    """For every wait on a load from shared memory, how many HMMAs were issued since: the room to hide it in."""
    there = _multiplying(steps, arch)
    figure, axes = new_figure(WIDE, 0.9 + 0.42 * len(there))
    for row, step in enumerate(there):
        waits = [wait for wait in waits_of(step.parts[arch]) if wait.setter is not None and wait.kind == "result"]
        found = [wait.matrix for wait in waits if wait.setter is not None and wait.setter.base == "LDSM"]
        spread = [row + 0.28 * ((number % 7) / 3 - 1) for number in range(len(found))]
        axes.scatter(found, spread, s=12, color=BLUE, alpha=0.6)
    axes.set_yticks(range(len(there)), [step.name for step in there])
    axes.invert_yaxis()
    axes.grid(axis="x", alpha=0.25)
    axes.set_xlabel(f"HMMAs between an LDSM and the instruction that waits for it, {arch}; one dot per wait")
    return figure


def wavefronts_by_line(lines: Mapping[str, Sequence[Line]], sources: Mapping[str, Sequence[str]]) -> Any:
    """Wavefronts of every source line that touches shared memory, next to those without conflicts."""
    busy = {version: [line for line in found if line.wavefronts] for version, found in lines.items()}
    height = 1.0 + 0.26 * sum(map(len, busy.values()))
    figure, axes = new_figure(WIDE, height, nrows=len(busy), sharex=True, squeeze=False)
    for one, (version, found) in zip(axes[:, 0], busy.items(), strict=True):
        for shift, counts, color, label in (
            (-0.2, [line.wavefronts for line in found], RED, "counted by the emulator"),
            (0.2, [line.ideal for line in found], SKY, "the same accesses without conflicts"),
        ):
            drawn = one.barh([row + shift for row in range(len(found))], counts, 0.4, color=color, label=label)
            one.bar_label(drawn, [f"{count:,}" for count in counts], padding=3, fontsize=7)
        names = [f"{line.line}: {_shortened(sources[version][line.line - 1])}" for line in found]
        one.set_yticks(range(len(found)), names, family="monospace", fontsize=7)
        one.invert_yaxis()
        one.set_xscale("log")
        one.set_title(version, loc="left", fontsize=10)
    axes[-1, 0].set_xlabel("shared-memory wavefronts of the emulator's default problem, logarithmic")
    axes[0, 0].legend(frameon=False, ncols=2, loc="lower right", bbox_to_anchor=(1, 1.0), fontsize=8)
    return figure


def _shortened(line: str, most: int = 44) -> str:
    """A line of source without the loop that it begins with, and with an ellipsis where it is cut."""
    text = re.sub(r"^for \(.*?\+\+\) ", "", " ".join(line.split()))
    return text if len(text) <= most else text[: most - 1] + "…"


class Span(NamedTuple):
    """A box of a schedule."""

    lane: str
    what: str  # a key of the colors
    block: int | str
    begin: float
    end: float
    pale: bool = False


def schedules(pictures: Mapping[str, Sequence[Span]], unit: str, colors: Mapping[str, tuple[str, str]] = WORK) -> Any:
    """The work of each actor over time, one picture above the other: a lane for each actor, a box for each piece of
    work.

    `colors` has the color and the words of each kind of work.
    """
    lanes = {title: list(dict.fromkeys(span.lane for span in spans)) for title, spans in pictures.items()}
    height = 0.9 + sum(0.45 + 0.3 * len(own) for own in lanes.values())
    figure, axes = new_figure(WIDE, height, nrows=len(lanes), sharex=True, squeeze=False)
    for one, (title, spans) in zip(axes[:, 0], pictures.items(), strict=True):
        for span in spans:
            color, lane = colors[span.what][0], lanes[title].index(span.lane)
            box, alpha = (span.begin, span.end - span.begin), 0.5 if span.pale else 1.0
            one.broken_barh([box], (lane - 0.42, 0.84), facecolor=color, alpha=alpha, edgecolor="white")
            ink = BLACK if span.pale or color in (SKY, ORANGE) else "white"
            middle = ((span.begin + span.end) / 2, lane)
            one.text(*middle, str(span.block), ha="center", va="center", fontsize=7, color=ink, clip_on=True)
        one.set_yticks(range(len(lanes[title])), lanes[title], fontsize=7)
        one.invert_yaxis()
        one.set_title(title, loc="left", fontsize=10, pad=2)
        one.grid(axis="x", alpha=0.2)
    axes[-1, 0].set_xlabel(unit)
    patch = importlib.import_module("matplotlib.patches").Patch
    used = dict.fromkeys(span.what for spans in pictures.values() for span in spans)
    handles = [patch(facecolor=colors[what][0], label=colors[what][1]) for what in used]
    figure.legend(handles=handles, frameon=False, ncols=len(handles), loc="outside upper center", fontsize=8)
    return figure


RING = {"copied": (GREY, "copied, not yet read"), "read": (BLUE, "read by this warp")}


def rings(versions: Mapping[str, Sequence[Stay]]) -> Any:
    """The contents of a ring's stages, in the order of one warp: a block in flight, or being read; white is neither."""
    pictures = {
        version: [
            span
            for stay in sorted(stays, key=lambda one: one.stage)
            for span in (
                Span(f"stage {stay.stage}", "copied", "", stay.copied, stay.awaited),
                Span(f"stage {stay.stage}", "read", stay.block, stay.awaited, stay.released),
            )
        ]
        for version, stays in versions.items()
    }
    return schedules(pictures, "products that the warp has finished: two for each KV block", RING)
