"""The large steps of the ladder: README's table, and for docs/story.md a block and a picture of each.

print(jumps_text(root(), steps))
print(block_of("v08")(root(), steps))       # lines of its difference, the prediction, the measurement
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from analysis.emulate.ring import read_ring
from analysis.errors import AnalysisError
from analysis.ladder.headers import source_diff
from analysis.ladder.source_diff import KV_LOOP, part_of
from analysis.machine_code.bounds import issued
from analysis.publish.drawing import Canvas, svg
from analysis.publish.libraries import libraries_at
from analysis.publish.overview import GPU, HEADLINE, Step
from analysis.publish.pictures import KINDS, kind_of, rings
from analysis.publish.story import MISSING, held_up
from analysis.table import Cell, Table

FA3 = "FlashAttention-3"
LOOP = "v29"  # whose loop the README shows


@dataclass(frozen=True)
class Told:
    """The idea of a step, what it removes, and lines of its difference to the parent that the story shows.

    A piece of the difference is a number of lines from the next one on that holds a text; without pieces the loop
    itself is shown. Dumps and asserts are left out.
    """

    idea: str
    removes: str
    pieces: tuple[tuple[str, int], ...] = ()


STEPS: Mapping[str, Told] = {
    "v01": Told("plain `mma.sync` kernel", MISSING),
    "v02": Told("XOR swizzle", "shared-memory bank conflicts", (("chunk ^= row % 8", 1),)),
    "v08": Told("compile-time swizzle", "address arithmetic in the loop", (("return block + smem_offset", 2),)),
    "v09": Told(
        "row-major K fragments",
        "register moves before each product",
        (
            ("mma<cfg>(S[i][2 * n], Q[i], K[n][0], K[n][2])", 2),
            ("for (int n = 0; n < key_steps<cfg>; n++) {", 3),
            ("smem_offset<cfg>(lane % 16, lane / 16)}", 2),
        ),
    ),
    "v17": Told("lazy rescaling", "most multiplications of O by 1", (("if constexpr (kind.first) {", 13),)),
    "v19": Told(
        "mbarrier ring for K and V",
        "CTA-wide barriers in the loop",
        (
            ("wait_for_phase(empty + 8 * stage", 4),
            ("hand_over(); /* K has arrived", 1),
            ("wait_for_phase(full + 8 * stage", 1),
            ("mbarrier_arrive(empty + 8 * stage)", 1),
        ),
    ),
    "v25": Told(
        "persistent CTAs",
        "startup and drain of each Q block",
        (("if (next < end && block + 1 == n_blocks) copy_Q(next)", 3),),
    ),
    "v26": Told("`wgmma` (Hopper)", "K and V operand loads into registers"),
    "v28": Told(
        "producer and consumer warpgroups",
        "copies issued by threads that multiply",
        (("if (group == 0) { /* 168 registers", 7),),
    ),
    "v29": Told(
        "next scores issued early",
        "idle tensor cores during the softmax",
        (("start_QK<cfg>(S, Q_matrix, K_matrix + stage", 2), ("for (int block = 0; block + 1 < n_blocks", 7)),
    ),
    "v35": Told("no running maximum", "the wait for each row's maximum", (("row_values sum = {};", 12),)),
    "v37": Told(
        "Q in registers",
        "repeated shared-memory reads of Q, to save power",
        (("wgmma_m64n128k16_f16(S, Q_step", 1), ("wgmma_m64n128k16_f16(S, Q[k]", 1), ("start_QK<cfg>(S, Q_matrix", 2)),
    ),
}


# ---- the table -------------------------------------------------------------------------------------------------------


def jumps_text(folder: Path, steps: Sequence[Step]) -> str:
    """A sentence, and a row per step: idea, what it removes, TFLOP/s, and percent of FlashAttention-3."""
    library = libraries_at(folder, steps).get(FA3)
    rows: list[list[Cell]] = []
    for step in steps:
        if told := STEPS.get(step.name):
            speed = step.speeds.get(GPU)
            cells: list[Cell] = [f"[{step.name}](kernels/{step.version.file})", told.idea, told.removes]
            cells.append(round(speed.tflops) if speed else None)
            rows.append([*cells, round(100 * speed.tflops / library.tflops) if speed and library else None])
    columns = ("version", "idea", "what it removes", f"TFLOP/s, {GPU.upper()}", f"% of {FA3}")
    text = Table(columns, rows).markdown()
    if library is None:
        return text
    every = sum(step.name >= "v01" for step in steps)
    one = HEADLINE
    return (
        f"The table shows {len(rows)} of {every} versions on one problem: the forward pass in {one.dtype}, with "
        f"batch {one.batch}, {one.heads} heads, {one.seq}\nqueries and keys, d_head {one.d_head} and no mask. "
        f"The last column compares each speed with {FA3}, which reaches {library.tflops:.0f} TFLOP/s.\n\n{text}"
    )


def loop_text(_: Path, steps: Sequence[Step]) -> str:
    """The main loop of one version, without its configuration, as the README shows it."""
    version = next((step.version for step in steps if step.name == LOOP), None)
    lines = part_of(version, KV_LOOP)[1] if version else []
    shown = [plain(line) for line in lines if line.strip() and not is_left_out(line)]
    return "```cpp\n" + "".join(f"{line}\n" for line in shown) + "```\n"


# ---- a step ----------------------------------------------------------------------------------------------------------


def block_of(name: str) -> Callable[[Path, Sequence[Step]], str]:
    """The maker of the block of one step."""
    return lambda folder, steps: block(folder, next(step for step in steps if step.name == name))


def block(folder: Path, step: Step) -> str:
    """The lines of code that the story shows, then what was predicted and what was measured."""
    language, lines = code_of(step)
    text = f"```{language}\n" + "\n".join(lines) + "\n```\n\n"
    predicted = step.version.header.predict or "nothing"
    return text + f"- **Predicted**: {predicted}.\n- **Measured**: {measured(folder, step)}.\n"


def code_of(step: Step) -> tuple[str, list[str]]:
    """The language of the lines, and the lines: of the difference to the parent, or of the loop."""
    pieces = STEPS[step.name].pieces
    if step.parent is None or not pieces:
        lines = part_of(step.version, KV_LOOP)[1]
        return "cpp", [plain(line) for line in lines if line.strip() and not is_left_out(line)]
    lines = [line for line in source_diff(step.parent, step.version)[2:] if not is_left_out(line)]
    found: list[str] = []
    at = 0
    for first, count in pieces:
        begin = next((number for number in range(at, len(lines)) if first in lines[number]), None)
        if begin is None:
            raise AnalysisError(f"{step.name}: no line of its difference to {step.parent.version} holds {first!r}")
        at = begin + count
        piece = lines[begin:at]
        indent = min(len(line) - 1 - len(line[1:].lstrip()) for line in piece if line[1:].strip())
        found += [plain(line[0] + line[1 + indent :]).rstrip() for line in piece]
    return "diff", found


def plain(line: str) -> str:
    """A line as `make read` prints it: without the configuration, of which every version has one."""
    line = re.sub(r"if constexpr \(cfg\.[^()]*\) ", "", line)
    return re.sub(r"<cfg>|\bcfg\.|(?<=<)cfg, ", "", line)


def is_left_out(line: str) -> bool:
    """Lines that the reader of an idea can skip."""
    return line.lstrip("+- ").startswith(("dump_", "static_assert", '"', "@@", "#pragma"))


def measured(folder: Path, step: Step) -> str:
    """Speed, gain at the lengths that were predicted, instructions of the loop, and what ncu saw."""
    parts = []
    header = step.version.header
    if speed := step.speeds.get(GPU):
        parts.append(f"{speed.tflops:.0f} TFLOP/s at {HEADLINE.seq}")
    claimed = {int(one.location) for one in header.claims if one.quantity == "speedup"}
    gains = step.gains.get(GPU, {})
    lengths = [seq for seq in sorted({HEADLINE.seq} | claimed) if seq in gains]
    if lengths:
        parts.append(", ".join(f"{gains[seq]:.3f} × {header.parent} at {seq}" for seq in lengths))
    per = step.executed_per_matrix(step.arch)
    if per is not None:
        parts.append(f"{per:.2f} instructions executed per {step.unit(step.arch)} on {step.arch}")
    if step.traffic and step.traffic.ideal and step.traffic.wavefronts > 1.5 * step.traffic.ideal:
        parts.append(f"{step.traffic.wavefronts / step.traffic.ideal:.2f} wavefronts where one would do")
    if (seen := held_up(folder, step.name)) != MISSING:
        parts.append(f"tensor pipe busy {seen.replace(', ', '; stalls: ', 1)}")
    return "; ".join(parts) or "nothing yet"


# ---- pictures --------------------------------------------------------------------------------------------------------


MIXES = {"integer": ("v07", "v08", "v09"), "rescale": ("v16", "v17"), "maximum": ("v34", "v35")}
RINGS = {"ring": ("v19",), "persistent": ("v24", "v25")}
WIDTH, LEFT, BAR = 760, 60, 30  # pixels


def mix(steps: Sequence[Step]) -> str:
    """Instructions of a pass of the KV loop for each matrix instruction, by purpose: a bar each."""
    weights: list[dict[str, float]] = []
    for step in steps:
        parts = step.parts[step.arch]
        found = dict.fromkeys(KINDS, 0.0)
        for at, weight in issued(parts):
            found[kind_of(at)] += weight
        weights.append({kind: value / found["matrix"] for kind, value in found.items()})
    most = max(sum(one.values()) for one in weights)
    canvas = Canvas(WIDTH, (BAR + 12) * len(steps) + 70)
    scale = (WIDTH - LEFT - 60) / most
    for row, (step, one) in enumerate(zip(steps, weights, strict=True)):
        x, y = float(LEFT), 14 + (BAR + 12) * row
        canvas.words(LEFT - 8, y + 20, step.name, 13, "end")
        for kind, value in one.items():
            width = value * scale
            canvas.cell(round(x, 1), y, round(width, 1), BAR, KINDS[kind], f"{value:.2f}" if width > 28 else "")
            x += width
        canvas.words(round(x + 8, 1), y + 20, f"{sum(one.values()):.2f}", 13, "start")
    arch = steps[0].arch
    bottom = 14 + (BAR + 12) * len(steps)
    canvas.words(
        WIDTH / 2, bottom + 14, f"instructions that a pass issues for each {steps[0].unit(arch)} on {arch}", 12
    )
    used = [kind for kind in KINDS if any(one[kind] > 0 for one in weights)]
    x = 12.0
    for kind in used:
        canvas.rectangle(x, bottom + 30, 14, 11, KINDS[kind])
        canvas.words(x + 18, bottom + 40, kind, 10, "start")
        x += 30 + 5.6 * len(kind)
    return canvas.svg(f"What a pass of the KV loop issues in {', '.join(step.name for step in steps)}")


def operands(before: Step, after: Step) -> str:
    """Bytes that wgmma reads from shared memory for one consumer and KV block, by the configs of two versions."""
    canvas = Canvas(WIDTH, 2 * (BAR + 12) + 60)
    for row, step in enumerate((before, after)):
        config = step.version.header.config
        rows = config.B_r // (config.n_warps // 4)
        sizes = {"Q": rows, "K": config.B_c, "V": config.B_c}
        if row:
            del sizes["Q"]
        x, y = float(LEFT), 14 + (BAR + 12) * row
        canvas.words(LEFT - 8, y + 20, step.name, 13, "end")
        for name, size in sizes.items():
            kilobytes = size * config.d_head * 2 / 1024
            canvas.cell(x, y, 7 * kilobytes, BAR, KINDS["softmax" if name == "Q" else "matrix"])
            canvas.words(x + 3.5 * kilobytes, y + 20, f"{name}: {kilobytes:.0f} KB", 12)
            x += 7 * kilobytes
    canvas.words(WIDTH / 2, 118, "bytes that wgmma reads from shared memory, for one consumer and KV block", 12)
    return canvas.svg(f"What wgmma reads from shared memory in {before.name} and {after.name}")


def story_pictures(folder: Path, steps: Sequence[Step]) -> dict[str, str]:
    """The story's own pictures by name; those of which a version or its record is missing are left out."""
    by_name, stays = {step.name: step for step in steps if step.parts}, read_ring(folder)
    made = {
        name: mix([by_name[version] for version in versions])
        for name, versions in MIXES.items()
        if by_name.keys() >= set(versions)
    }
    made |= {
        name: svg(rings({version: stays[version] for version in versions}))
        for name, versions in RINGS.items()
        if stays.keys() >= set(versions)
    }
    return made | ({"operands": operands(by_name["v36"], by_name["v37"])} if "v37" in by_name else {})
