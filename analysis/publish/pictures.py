"""The pictures of the notebooks, the README and the report, each a function from what is known to a figure.

    figure = progress(read_steps(root()))
    write_if_changed(path, svg(figure))

What is not recorded yet is left out, and where nothing is left the picture says so.
"""

import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from analysis.emulate.lines import Line
from analysis.emulate.pipeline import COPIES, Work
from analysis.emulate.ring import Stay
from analysis.ladder.config import KernelConfig
from analysis.machine_code.bounds import waits_of
from analysis.machine_code.regions import REGIONS
from analysis.machine_code.sass import Instruction
from analysis.publish import banks, predictions
from analysis.publish.drawing import BLACK, BLUE, GREEN, GREY, ORANGE, PINK, RED, SKY, WIDE, YELLOW, new_figure
from analysis.publish.libraries import Standing
from analysis.publish.overview import HEADLINE, Step
from analysis.publish.published import number_of, percent_on_h200, speeds
from analysis.table import Table

# What the instructions of a loop are for, in the order in which bars are stacked.
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
MOST_LEVEL = 30  # names of versions that stand beside each other along the width of a picture
MOST_UPRIGHT = 55  # and so many upright in the usual size
_KIND = {opcode: kind for kind, opcodes in _KIND_OF.items() for opcode in opcodes.split()}


def kind_of(at: Instruction) -> str:
    """What an instruction is for. Arithmetic on addresses, logic and compares are "integer", dummies "control"."""
    if at.never:
        return "control"
    if at.opcode.startswith("IMAD.MOV"):
        return "moves"
    return _KIND.get(at.base, "integer")


# ---- figures ---------------------------------------------------------------------------------------------------------


def _nothing(text: str) -> Any:
    figure, axes = new_figure(WIDE, 0.8)
    axes.axis("off")
    axes.text(0.5, 0.5, text, ha="center", va="center", color=GREY)
    return figure


def _legend(axes: Any, columns: int) -> None:
    axes.legend(frameon=False, ncols=columns, loc="lower left", bbox_to_anchor=(0, 1.0), fontsize=8)


def _name_versions(axes: Any, steps: Sequence[Step]) -> None:
    """The versions along the axis from 0 on, upright where they would lie on each other."""
    many = len(steps) > MOST_LEVEL
    names = [step.name for step in steps]
    small = 7.5 if not many and max(map(len, names), default=0) > len("v01") else None
    if len(steps) > MOST_UPRIGHT:
        small = 7.5 * MOST_UPRIGHT / len(steps)
    axes.set_xticks(range(len(steps)), names, rotation=90 if many else 0, fontsize=small)


def bars(values: Sequence[tuple[str, float, str]], unit: str, mark: float, of_mark: str) -> Any:
    """Horizontal bars from zero: label, value, and the value as text right of all bars, clear of the line at `mark`.

    `unit` stands below the axis, `of_mark` above the line.
    """
    figure, axes = new_figure(WIDE, 0.9 + 0.22 * len(values))
    axes.barh([label for label, _, _ in values], [value for _, value, _ in values], 0.7, color=BLUE)
    most = max([value for _, value, _ in values] + [mark])
    for place, (_, _, text) in enumerate(values):
        axes.annotate(text, (1.04 * most, place), va="center", fontsize=8)
    axes.axvline(mark, color=BLACK, linewidth=0.8, linestyle="--")
    above: dict[str, Any] = {"xycoords": ("data", "axes fraction"), "xytext": (0, 4), "textcoords": "offset points"}
    axes.annotate(of_mark, (mark, 1), ha="center", fontsize=8, **above)
    axes.set_xlabel(unit)
    axes.set_xlim(0, 1.14 * most)
    axes.invert_yaxis()
    return figure


JUMP = 1.1  # times its parent: the least step that the picture names


STATES = {"FlashAttention-2": GREY, "v16": SKY, "v25": GREEN, "cuDNN": ORANGE, "FlashAttention-3": RED, "v37": BLUE}


def states(table: Table) -> Any:
    """From cool to hot: TFLOP/s of a burst after rest, and at the power limit, with the SM clock if known.

    `table` is energy_table(): name, type, batch, then speed first and sustained, and clock first and sustained.
    """
    figure, axes = new_figure(WIDE, 3.6)
    shown = [row for row in table.rows if row[0] in STATES and row[1:3] == (HEADLINE.dtype, HEADLINE.batch)]
    for name, _, _, *figures in (row[:7] for row in shown):
        speeds_of, clocks = figures[:2], figures[2:]
        axes.plot((0, 1), speeds_of, color=STATES[str(name)], marker="o", linewidth=2)
        for place, (speed, clock) in enumerate(zip(speeds_of, clocks, strict=True)):
            text = f"{speed}" + (f", {clock} MHz" if clock else "")
            axes.annotate(
                f"{name}  {text}" if place == 0 else text,
                (place, speed),
                xytext=(-8 if place == 0 else 8, 0),
                textcoords="offset points",
                ha="right" if place == 0 else "left",
                va="center",
                fontsize=8,
            )
    axes.set_xlim(-0.9, 1.5)
    axes.set_xticks((0, 1), ("first: 50 ms after a second of rest", "sustained: after two seconds of launches"))
    axes.set_ylabel("TFLOP/s")
    return figure


def progress(steps: Sequence[Step], libraries: Sequence[Standing] = ()) -> Any:
    """Percent of FlashAttention-2's speed by version: ours where measured, the published ladder's, and libraries'.

    Versions without a figure are left out, and those of general attention, whose goal is another problem. A step that
    gains a tenth or more over its parent has its idea beside it, on the line of the last GPU.
    """
    figure, axes = new_figure(WIDE, 3.8)
    published = speeds()
    steps = [step for step in steps if not step.version.header.config.any_length]
    steps = [step for step in steps if step.speeds or number_of(step.name) in published]
    named = max((gpu for step in steps for gpu in step.speeds), default="")
    there = [step for step in steps if number_of(step.name) in published]
    places = {step.name: place for place, step in enumerate(steps)}
    theirs = {step.name: published[number_of(step.name)] for step in there}
    lines: list[tuple[str, str, dict[str, float], str, float]] = [
        ("published code, A100", SKY, {name: speed.a100_4096 for name, speed in theirs.items()}, "v", 1.0),
        ("published code, RTX 3090", GREEN, {name: speed.rtx3090_4096 for name, speed in theirs.items()}, "^", 1.0),
        ("published code, H200", GREY, {s.name: percent_on_h200()[number_of(s.name)] for s in there}, "s", 1.0),
    ]
    for gpu, color in zip(sorted({gpu for step in steps for gpu in step.speeds}), (BLUE, RED, ORANGE), strict=False):
        mine = {step.name: 100 * speed.ratio.mid for step in steps if (speed := step.speeds.get(gpu)) and speed.ratio}
        lines.append((f"this ladder, {gpu.upper()}", color, mine, "o", 2.2))
    for name, color, values, marker, width in lines:
        axes.plot(
            [places[version] for version in values],
            list(values.values()),
            color=color,
            marker=marker,
            markersize=2 + 2 * width,
            linewidth=width,
            label=name,
        )
    heights = {one.name: 100 * one.row.ratio.mid for one in libraries if one.row.ratio and one.row.ratio.mid > 1}
    heights = {"FlashAttention-2": 100.0} | heights
    for step in steps:
        speed = step.speeds.get(named)
        if speed and speed.ratio and step.gains.get(named, {}).get(HEADLINE.seq, 0) >= JUMP:
            at = 100 * speed.ratio.mid
            crossed = any(abs(at + 8 - height) < 10 for height in heights.values())
            axes.annotate(
                step.version.header.title,
                (places[step.name], at),
                xytext=(7, -24) if crossed else (-6, 5),
                textcoords="offset points",
                ha="left" if crossed else "right",
                fontsize=8,
            )
    for name, height in heights.items():
        axes.axhline(height, color=BLACK, linewidth=0.8, linestyle="--")
        axes.annotate(
            name,
            (1, height),
            xycoords=("axes fraction", "data"),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
        )
    _name_versions(axes, steps)
    axes.set_ylabel("% of FlashAttention-2, seq 4096")
    axes.set_ylim(0, None)
    axes.grid(axis="y", alpha=0.25)
    _legend(axes, 4)
    return figure


def figures_by_version(steps: Sequence[Step]) -> Any:
    """Instructions of the loop per HMMA, registers and source lines changed, one above the other."""
    there = [step for step in steps if step.parts]
    if not there:
        return _nothing("no listing in sass/ yet")
    figure, axes = new_figure(WIDE, 4.6, nrows=3, sharex=True)
    for arch, color, offset in (("sm_80", BLUE, -0.2), ("sm_90", ORANGE, 0.2), ("sm_90a", GREEN, 0.0)):
        if not any(arch in step.rows for step in steps):
            continue  # no entry in the legend without a bar
        places = [place + offset for place in range(len(steps))]
        loops = [(step.loop_per_matrix(arch) or 0) if step.unit(arch) == "HMMA" else 0 for step in steps]
        axes[0].bar(places, loops, 0.4, color=color, label=arch)
        axes[1].bar(places, [step.registers(arch) or 0 for step in steps], 0.4, color=color)
        spilled = [
            (place, step.rows[arch].registers)
            for place, step in zip(places, steps, strict=True)
            if arch in step.rows and (step.rows[arch].ldl or step.rows[arch].stl)
        ]
        axes[1].scatter(
            [p for p, _ in spilled],
            [y + 10 for _, y in spilled],
            marker="v",
            s=14,
            color=BLACK,
            label="local memory in use" if arch == "sm_80" else None,
        )
    axes[2].bar(range(len(steps)), [step.changed or 0 for step in steps], 0.6, color=PINK)
    axes[0].axhline(1, color=BLACK, linewidth=0.8, linestyle="--", label="the HMMA itself")
    axes[0].set_ylabel("loop\ninstr. / HMMA")
    axes[1].set_ylabel("registers")
    axes[1].set_ylim(0, 285)
    axes[2].set_ylabel("source lines\nchanged")
    _name_versions(axes[2], steps)
    _legend(axes[0], 4)
    if any(row.ldl or row.stl for step in steps for row in step.rows.values()):
        axes[1].legend(frameon=False, loc="lower right", fontsize=8)
    return figure


def _multiplying(steps: Sequence[Step], arch: str) -> list[Step]:
    """The versions with a listing whose loop has matrix instructions, for figures that are counted for each of them."""
    return [step for step in steps if arch in step.parts and step.parts[arch].matrix_count]


def loop_strips(steps: Sequence[Step], arch: str) -> Any:
    """The KV loop of each version from left to right, one stroke per instruction, coloured by what it is for."""
    there = _multiplying(steps, arch)
    if not there:
        return _nothing(f"no listing for {arch} in sass/ yet")
    figure, axes = new_figure(WIDE, 0.8 + 0.42 * len(there))
    for row, step in enumerate(there):
        code = step.parts[arch].loop
        for kind, color in KINDS.items():
            spans = [
                (place / step.parts[arch].matrix_count, 1 / step.parts[arch].matrix_count)
                for place, at in enumerate(code)
                if kind_of(at) == kind
            ]
            axes.broken_barh(spans, (row - 0.38, 0.76), color=color, linewidth=0)
    axes.set_yticks(range(len(there)), [step.name for step in there])
    axes.invert_yaxis()
    axes.set_xlabel(f"one pass through the KV loop, {arch}: instructions per HMMA")
    _kinds_legend(axes)
    return figure


MOST_BARS = 24  # that have room for a number of four digits above each


def loop_mix(steps: Sequence[Step], arch: str) -> Any:
    """Instructions of the loop per HMMA by what they are for, stacked."""
    figure, axes, tops = _stacked_kinds(steps, arch, 3.6, lambda _: 1)
    if not tops:
        return figure
    upright = len(tops) > MOST_BARS
    for place, top in enumerate(tops):
        axes.annotate(f"{top:.2f}", (place, top), ha="center", va="bottom", fontsize=8, rotation=90 if upright else 0)
    if upright:
        axes.set_ylim(0, 1.12 * axes.get_ylim()[1])
    axes.set_ylabel(f"instructions / {steps_unit(steps, arch)}, {arch}")
    return figure


def steps_unit(steps: Sequence[Step], arch: str) -> str:
    """What the loops of an architecture are counted for."""
    return next((step.unit(arch) for step in steps if arch in step.parts), "HMMA")


def stall_mix(steps: Sequence[Step], arch: str) -> Any:
    """Stall counts of the loop per HMMA by what the stalling instruction is for: one warp's issue time."""
    figure, axes, tops = _stacked_kinds(steps, arch, 3.2, lambda at: max(1, at.control.stall) if at.control else 0)
    if tops:
        axes.set_ylabel(f"least issue cycles of one warp\nper HMMA, {arch}")
    return figure


def _stacked_kinds(
    steps: Sequence[Step], arch: str, height: float, weight: Callable[[Instruction], int]
) -> tuple[Any, Any, list[float]]:
    """A bar per version, the weights of its loop per HMMA stacked by kind; figure, axes and the tops of the bars.

    Without a listing the figure says so, and there are no bars.
    """
    there = _multiplying(steps, arch)
    if not there:
        return _nothing(f"no listing for {arch} in sass/ yet"), None, []
    figure, axes = new_figure(WIDE, height)
    tops = [0.0] * len(there)
    for kind, color in KINDS.items():
        heights = [
            sum(weight(at) for at in step.parts[arch].loop if kind_of(at) == kind) / step.parts[arch].matrix_count
            for step in there
        ]
        axes.bar(range(len(there)), heights, 0.7, bottom=tops, color=color)
        tops = [a + b for a, b in zip(tops, heights, strict=True)]
    _name_versions(axes, there)
    _kinds_legend(axes)
    return figure, axes, tops


def _kinds_legend(axes: Any) -> None:
    patch = importlib.import_module("matplotlib.patches").Patch
    handles = [patch(color=color, label=kind) for kind, color in KINDS.items()]
    axes.legend(handles=handles, frameon=False, ncols=4, loc="lower left", bbox_to_anchor=(0, 1.0), fontsize=8)


def region_sizes(steps: Sequence[Step], arch: str) -> Any:
    """Instructions of the whole kernel by region."""
    there = [step for step in steps if arch in step.parts]
    if not there:
        return _nothing(f"no listing for {arch} in sass/ yet")
    figure, axes = new_figure(WIDE, 3.4)
    bottom = [0] * len(there)
    for name, color in zip(REGIONS, (GREEN, SKY, BLUE, ORANGE, PINK, GREY, RED, YELLOW), strict=True):
        heights = [len(step.parts[arch].regions.get(name, ())) for step in there]
        if any(heights):
            axes.bar(range(len(there)), heights, 0.7, bottom=bottom, color=color, label=name)
        bottom = [a + b for a, b in zip(bottom, heights, strict=True)]
    _name_versions(axes, there)
    axes.set_ylabel(f"instructions, {arch}")
    _legend(axes, 6)
    return figure


def bank_maps() -> Any:
    """Which group of banks holds each chunk of eight rows, as kept plainly and swizzled; one column is outlined."""
    figure, axes = new_figure(WIDE, 3.6, ncols=2, sharey=True)
    rectangle = importlib.import_module("matplotlib.patches").Rectangle
    colors = [BLUE, ORANGE, GREEN, PINK, SKY, RED, YELLOW, GREY]
    for one, swizzled in zip(axes, (False, True), strict=True):
        for row in range(8):
            for chunk in range(banks.CHUNKS_IN_ROW):
                place = banks.place_of(row, chunk, swizzled)
                group = banks.bank_group(row, chunk, swizzled)
                one.add_patch(rectangle((place, row), 1, 1, facecolor=colors[group], alpha=0.85, edgecolor="white"))
                one.text(place + 0.5, row + 0.5, str(chunk), ha="center", va="center", fontsize=7)
                if chunk == 3:
                    one.add_patch(rectangle((place, row), 1, 1, fill=False, edgecolor=BLACK, linewidth=2, zorder=3))
        ways = banks.ldmatrix_ways(3, swizzled)
        name = "swizzled: chunk XOR (row mod 8)" if swizzled else "plain"
        one.set_title(f"{name}\nchunk 3 of eight rows: {ways} wavefront{'s' if ways > 1 else ''}", fontsize=9)
        one.set_xlim(0, banks.CHUNKS_IN_ROW)
        one.set_ylim(8, 0)
        one.set_xticks([0, 8, 16], ["0", "128", "256"])
        one.set_xlabel("place in the row, bytes")
        one.set_yticks([row + 0.5 for row in range(8)], [str(row) for row in range(8)])
    axes[0].set_ylabel("row")
    names = [f"banks {4 * group}–{4 * group + 3}" for group in range(len(colors))]
    handles = [rectangle((0, 0), 1, 1, facecolor=c, alpha=0.85, label=n) for c, n in zip(colors, names, strict=True)]
    figure.legend(handles=handles, frameon=False, ncols=8, loc="outside lower center", fontsize=7, columnspacing=1)
    return figure


def wavefronts_by_line(lines: Mapping[str, Sequence[Line]], sources: Mapping[str, Sequence[str]]) -> Any:
    """Wavefronts of every source line that touches shared memory, beside those without conflicts."""
    if not lines:
        return _nothing("regs/lines.csv is not there: python3 -m analysis lines v01 v02 --write")
    figure, axes = new_figure(
        WIDE,
        1.0 + 0.26 * sum(bool(line.wavefronts) for found in lines.values() for line in found),
        nrows=len(lines),
        sharex=True,
        squeeze=False,
    )
    for one, (version, found) in zip(axes[:, 0], lines.items(), strict=True):
        busy = [line for line in found if line.wavefronts]
        names = [_shortened(sources[version][line.line - 1]) for line in busy]
        for shift, counts, color, label in (
            (-0.2, [line.wavefronts for line in busy], RED, "counted by the emulator"),
            (0.2, [line.ideal for line in busy], SKY, "the same accesses without conflicts"),
        ):
            drawn = one.barh([p + shift for p in range(len(busy))], counts, 0.4, color=color, label=label)
            one.bar_label(drawn, [f"{count:,}" for count in counts], padding=3, fontsize=7)
        one.set_yticks(
            range(len(busy)),
            [f"{line.line}: {name}" for line, name in zip(busy, names, strict=True)],
            family="monospace",
            fontsize=7,
        )
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
    what: str  # a key of WORK
    block: int
    begin: float
    end: float
    pale: bool = False


def schedules(pictures: Mapping[str, Sequence[Span]], unit: str) -> Any:
    """Who does what from when to when, a picture above the other: a lane for each who, a box for each piece of work."""
    lanes = {title: list(dict.fromkeys(span.lane for span in spans)) for title, spans in pictures.items()}
    figure, axes = new_figure(
        WIDE, 0.9 + sum(0.4 + 0.3 * len(own) for own in lanes.values()), nrows=len(lanes), sharex=True, squeeze=False
    )
    for one, (title, spans) in zip(axes[:, 0], pictures.items(), strict=True):
        for span in spans:
            color, alpha = WORK[span.what][0], 0.5 if span.pale else 1.0
            lane, width = lanes[title].index(span.lane), span.end - span.begin
            one.broken_barh([(span.begin, width)], (lane - 0.42, 0.84), facecolor=color, alpha=alpha, edgecolor="white")
            place = ((span.begin + span.end) / 2, lane)
            ink = BLACK if span.pale or color in (SKY, ORANGE) else "white"
            one.text(*place, str(span.block), ha="center", va="center", fontsize=7, color=ink, clip_on=True)
        one.set_yticks(range(len(lanes[title])), lanes[title], fontsize=7)
        one.invert_yaxis()
        one.set_title(title, loc="left", fontsize=10, pad=2)
    axes[-1, 0].set_xlabel(unit)
    patch = importlib.import_module("matplotlib.patches").Patch
    used = dict.fromkeys(span.what for spans in pictures.values() for span in spans)
    handles = [patch(color=WORK[what][0], label=WORK[what][1]) for what in used]
    figure.legend(handles=handles, frameon=False, ncols=len(handles), loc="outside upper center", fontsize=8)
    return figure


# Work of a pipeline: colour and words.
WORK = {
    "K": (GREY, "copy of K, Q"),
    "V": (PINK, "copy of V"),
    "O": (YELLOW, "copy of O"),
    "QK": (BLUE, "S = Q Kᵀ"),
    "PV": (SKY, "O += P V"),
    "max": (RED, "largest scores"),
    "exp": (ORANGE, "exponentials"),
    "store": (GREEN, "divide and store O"),
}


def pipelines(versions: Mapping[str, Sequence[Work]]) -> Any:
    """Who works on which KV block in which step: a lane for each kind of copy, and two for each consumer warpgroup.

    Numbers are those of KV blocks, or of Q blocks for Q, O and stores. Every second Q block is paler.
    """
    if not versions:
        return _nothing("regs/pipeline.csv is not there: python3 -m analysis pipeline v28 v29 --write")
    lanes = {version: lanes_of(work) for version, work in versions.items()}
    figure, axes = new_figure(
        WIDE, 0.6 + sum(0.4 + 0.26 * len(own) for own in lanes.values()), nrows=len(versions), sharex=True,
        squeeze=False, gridspec_kw={"height_ratios": [1.5 + len(own) for own in lanes.values()]},
    )  # fmt: skip
    for one, (version, work) in zip(axes[:, 0], versions.items(), strict=True):
        for each in work:
            color, _ = WORK.get(each.what, WORK["K"])
            lane, stages = lanes[version].index(lane_of(each)), 2 if lane_of(each) in _IN else 1
            height = 0.84 / stages
            bottom = lane - 0.42 + each.block % stages * height
            pale = 0.45 if each.Q_block % 2 else 1.0
            one.broken_barh(
                [(each.step, 1)], (bottom, height), facecolor=color, alpha=pale, edgecolor="white", linewidth=0.8
            )
            ink = BLACK if pale < 1 or color in (SKY, ORANGE, PINK, YELLOW) else "white"
            place = (each.step + 0.5, bottom + height / 2)
            one.text(*place, str(each.block), ha="center", va="center", fontsize=6 if stages == 1 else 4.5, color=ink)
        one.set_yticks(range(len(lanes[version])), lanes[version], fontsize=7)
        one.invert_yaxis()
        one.set_title(version, loc="left", fontsize=10, pad=2)
        one.grid(axis="x", alpha=0.2)
    last = max(each.step for work in versions.values() for each in work)
    axes[-1, 0].set_xticks(range(0, last + 2, 2))
    axes[-1, 0].set_xlabel("step: begins when all that the work waits for is done")
    patch = importlib.import_module("matplotlib.patches").Patch
    handles = [patch(color=color, label=label) for color, label in WORK.values()]
    if any(each.Q_block % 2 for work in versions.values() for each in work):
        handles.append(patch(color=BLUE, alpha=0.45, label="paler: next Q block"))
    columns = (len(handles) + 1) // 2
    figure.legend(handles=handles, frameon=False, ncols=columns, loc="outside upper center", fontsize=8)
    return figure


_IN = [f"{COPIES} of {what}" for what in "QKV"]  # their blocks take two places in turn


def lane_of(work: Work) -> str:
    return f"{COPIES} of {work.what}" if work.who == COPIES else work.who


def lanes_of(work: Sequence[Work]) -> list[str]:
    consumers = sorted({each.who.partition(" ")[2] for each in work if each.who != COPIES})
    return [*_IN, *(f"{kind} {number}" for number in consumers for kind in ("products", "threads")), f"{COPIES} of O"]


def rings(versions: Mapping[str, Sequence[Stay]]) -> Any:
    """What the stages of a ring hold, in the order of one warp: a block on its way, or being read; white is neither."""
    if not versions:
        return _nothing("regs/ring.csv is not there: python3 -m analysis ring v19 v20 --write")
    stages = {version: 1 + max(stay.stage for stay in stays) for version, stays in versions.items()}
    figure, axes = new_figure(
        WIDE, 0.9 + sum(0.5 + 0.3 * count for count in stages.values()), nrows=len(versions), sharex=True, squeeze=False
    )
    for one, (version, stays) in zip(axes[:, 0], versions.items(), strict=True):
        for stay in stays:
            for start, end, color in ((stay.copied, stay.awaited, GREY), (stay.awaited, stay.released, BLUE)):
                one.broken_barh([(start, end - start)], (stay.stage - 0.42, 0.84), facecolor=color, edgecolor="white")
            place = (stay.awaited + 1, stay.stage)
            one.text(*place, str(stay.block), ha="center", va="center", fontsize=7, color="white")
        one.set_yticks(range(stages[version]), [f"stage {stage}" for stage in range(stages[version])], fontsize=7)
        one.invert_yaxis()
        one.set_title(version, loc="left", fontsize=10, pad=2)
        one.grid(axis="x", alpha=0.2)
    axes[-1, 0].set_xlabel("products that the warp has finished: two for each KV block")
    patch = importlib.import_module("matplotlib.patches").Patch
    legend = ((GREY, "copied, not yet read"), (BLUE, "read by this warp"), ("white", "released by this warp"))
    handles = [patch(facecolor=color, edgecolor=GREY, label=label) for color, label in legend]
    figure.legend(handles=handles, frameon=False, ncols=3, loc="outside upper center", fontsize=8)
    return figure


def load_distances(steps: Sequence[Step], arch: str) -> Any:
    """For every wait on a load from shared memory, how many HMMAs were issued since: the room to hide it in."""
    there = _multiplying(steps, arch)
    if not there:
        return _nothing(f"no listing for {arch} in sass/ yet")
    figure, axes = new_figure(WIDE, 0.9 + 0.42 * len(there))
    for row, step in enumerate(there):
        found = [
            wait
            for wait in waits_of(step.parts[arch])
            if wait.setter is not None and wait.setter.base == "LDSM" and wait.kind == "result"
        ]
        spread = [row + 0.28 * ((place % 7) / 3 - 1) for place in range(len(found))]
        axes.scatter([wait.matrix for wait in found], spread, s=12, color=BLUE, alpha=0.6)
    axes.set_yticks(range(len(there)), [step.name for step in there])
    axes.invert_yaxis()
    axes.grid(axis="x", alpha=0.25)
    axes.set_xlabel(f"HMMAs between an LDSM and the instruction that waits for it, {arch}; one dot per wait")
    return figure


def config_space(classes: Sequence[tuple[str, Sequence[KernelConfig]]], winner: KernelConfig | None) -> Any:
    """Configurations as dots by tile and options; those joined by a colour are one machine code."""
    if not classes:
        return _nothing("no machine code of a search is recorded yet")
    figure, axes = new_figure(WIDE, 3.8)
    tiles = sorted({(config.B_r, config.B_c) for _, members in classes for config in members})
    options = sorted({_options(config) for _, members in classes for config in members})
    palette = [BLUE, ORANGE, GREEN, PINK, SKY, RED, YELLOW, GREY]
    for number, (_, members) in enumerate(classes):
        color = palette[number % len(palette)] if len(members) > 1 else "white"
        for config in members:
            place = (options.index(_options(config)), tiles.index((config.B_r, config.B_c)))
            axes.scatter(*place, s=110, color=color, edgecolor=BLACK, linewidth=0.6, zorder=2)
            if config == winner:
                axes.scatter(*place, s=45, marker="*", color=BLACK, zorder=3, label="the fastest")
    axes.set_xticks(range(len(options)), options, rotation=60, ha="right", fontsize=7)
    axes.set_yticks(range(len(tiles)), [f"{a} × {b}" for a, b in tiles])
    axes.set_ylabel("B_r × B_c")
    axes.set_xlabel("slices of Q, K and V that are read at a time (0: the whole block), flags")
    line = importlib.import_module("matplotlib.lines").Line2D
    for color, label in ((BLUE, "one colour in a row: the same machine code"), ("white", "machine code of its own")):
        dot = line([], [], linestyle="", marker="o", markersize=9, color=color, markeredgecolor=BLACK, label=label)
        axes.add_line(dot)
    _legend(axes, 3)
    axes.margins(0.04, 0.3)
    return figure


def _options(config: KernelConfig) -> str:
    text = f"{config.Q_mma_load_K_tiles}_{config.K_mma_load_K_tiles}_{config.V_mma_load_K_tiles}"
    text += "+buffer" if config.mma_double_buffer_loads else ""
    return text + ("+opt_softmax" if config.optimized_softmax else "")


def predicted_and_measured(claims: Sequence[predictions.Judged]) -> Any:
    """How far each scored claim lies from the middle of its prediction, in percent of the prediction."""
    judged = [one for one in claims if one.measured is not None and one.middle]
    if not judged:
        return _nothing("nothing is recorded yet that a prediction could be held against")
    figure, axes = new_figure(WIDE, 0.9 + 0.22 * len(judged))
    colors = {predictions.HIT: GREEN, predictions.NEAR: ORANGE, predictions.MISS: RED}
    for row, one in enumerate(judged):
        off = 100 * ((one.measured or 0.0) - one.middle) / abs(one.middle)
        shown = max(-60.0, min(60.0, off))
        axes.plot([0, shown], [row, row], color=colors[one.score], linewidth=1.5)
        axes.scatter(
            [shown],
            [row],
            color=colors[one.score],
            s=28,
            marker={predictions.HIT: "o", predictions.NEAR: "D", predictions.MISS: "X"}[one.score],
        )
    axes.axvline(0, color=BLACK, linewidth=0.8)
    axes.set_yticks(range(len(judged)), [f"{one.version}: {one.claim.text}" for one in judged], fontsize=7)
    axes.invert_yaxis()
    axes.set_xlim(-65, 65)
    axes.set_xlabel("measured above or below the prediction, % (cut at 60): ● hit, ◆ near, ✖ miss")
    return figure
