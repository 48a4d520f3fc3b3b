"""What docs/story.md and README.md show of the large steps: a table of them, and a block and a picture of each.

    print(jumps_table(steps, "../kernels/").markdown())
    print(block(root(), steps[2]))              # lines of its difference, what was predicted, what was measured

A speed beside its parent's is that of the newest run that holds both, so that no two runs are compared.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from analysis.emulate.ring import read_ring
from analysis.errors import AnalysisError
from analysis.ladder.headers import source_diff
from analysis.ladder.source_diff import KV_LOOP, part_of
from analysis.machine_code.bounds import issued
from analysis.publish.drawing import svg
from analysis.publish.lessons import Canvas
from analysis.publish.overview import HEADLINE, Step
from analysis.publish.pictures import KINDS, kind_of, rings
from analysis.publish.story import GPU, MISSING, held_up
from analysis.table import Cell, Table

FOLDER = "docs/story"  # of the pictures


@dataclass(frozen=True)
class Told:
    """What the story tells of a step: what waited before it, and lines of its difference to the parent.

    A piece of the difference is a number of lines from the next one on that holds a text; without pieces the loop
    itself is shown. Dumps and asserts are left out.
    """

    waited: str
    pieces: tuple[tuple[str, int], ...] = ()


STEPS: Mapping[str, Told] = {
    "v01": Told("(this table begins here)"),
    "v02": Told("every read of shared memory, eight times", (("chunk ^= row % 8", 1),)),
    "v08": Told("products, for addresses to be computed", (("return block + smem_offset", 2),)),
    "v09": Told(
        "products, for registers to be moved",
        (
            ("mma<cfg>(S[i][2 * n], Q[i], K[n][0], K[n][2])", 2),
            ("for (int n = 0; n < key_steps<cfg>; n++) {", 3),
            ("smem_offset<cfg>(lane % 16, lane / 16)}", 2),
        ),
    ),
    "v17": Told("products, for O to be multiplied by 1", (("if constexpr (kind.first) {", 13),)),
    "v19": Told(
        "every warp, for the slowest of its CTA",
        (
            ("wait_for_phase(empty + 8 * stage", 4),
            ("hand_over(); /* K has arrived", 1),
            ("wait_for_phase(full + 8 * stage", 1),
            ("mbarrier_arrive(empty + 8 * stage)", 1),
        ),
    ),
    "v25": Told(
        "the CTA, for its first and last copies",
        (("if (next < end && block + 1 == n_blocks) copy_Q(next)", 3),),
    ),
    "v26": Told("tensor cores, for operands in registers"),
    "v28": Told("products, for threads that copy", (("if (group == 0) { /* 168 registers", 7),)),
    "v29": Told(
        "tensor cores, for the softmax",
        (("start_QK<cfg>(S, Q_matrix, K_matrix + stage", 2), ("for (int block = 0; block + 1 < n_blocks", 7)),
    ),
    "v35": Told("exponentials, for the largest score", (("row_values sum = {};", 12),)),
    "v37": Told(
        "nobody: power is the limit",
        (("wgmma_m64n128k16_f16(S, Q_step", 1), ("wgmma_m64n128k16_f16(S, Q[k]", 1), ("start_QK<cfg>(S, Q_matrix", 2)),
    ),
}


def story_steps(steps: Sequence[Step]) -> list[Step]:
    return [step for step in steps if step.name in STEPS]


# ---- the table -------------------------------------------------------------------------------------------------------


def jumps_table(steps: Sequence[Step], link: str) -> Table:
    """A row per step of the story: idea, speed, and gain over its parent; `link` leads from the page to kernels/."""
    rows: list[list[Cell]] = []
    for step in story_steps(steps):
        speed = step.speeds.get(GPU)
        cells: list[Cell] = [f"[{step.name}]({link}{step.version.file})", step.version.header.title]
        cells += [STEPS[step.name].waited, f"{speed.tflops:.0f}" if speed else MISSING, gain_text(step)]
        rows.append(cells)
    return Table(("version", "idea", "what waited before it", f"TFLOP/s, {GPU.upper()}", "× its parent"), rows)


def gain_text(step: Step) -> str:
    """Its speed divided by its parent's in the newest run of both, with the parent's name: "4.99 (v01)"."""
    found = step.gains.get(GPU, {}).get(HEADLINE.seq)
    return f"{found:.2f} ({step.version.header.parent})" if found else MISSING


# ---- a step ----------------------------------------------------------------------------------------------------------


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
    """What a reader of an idea passes over."""
    return line.lstrip("+- ").startswith(("dump_", "static_assert", '"', "@@", "#pragma"))


def measured(folder: Path, step: Step) -> str:
    """Speed, gain at the lengths that were predicted, instructions of the loop, and what ncu saw."""
    parts = []
    header = step.version.header
    if speed := step.speeds.get(GPU):
        parts.append(f"{speed.tflops:.0f} TFLOP/s at {HEADLINE.seq}")
    claimed = {int(one.place) for one in header.claims if one.scored and one.quantity == "speedup"}
    gains = step.gains.get(GPU, {})
    ratios = [f"{gains[seq]:.3f} at {seq}" for seq in sorted({HEADLINE.seq} | claimed) if seq in gains]
    if ratios:
        parts.append(f"{header.parent} × {', '.join(ratios)}")
    arch = step.arch_in("sm_90") if step.version.one_arch else "sm_80"
    per = step.executed_per_matrix(arch)
    if per is not None:
        parts.append(f"{per:.2f} instructions executed per {step.unit(arch)}")
    if step.traffic and step.traffic.ideal and step.traffic.wavefronts > 1.5 * step.traffic.ideal:
        parts.append(f"{step.traffic.wavefronts / step.traffic.ideal:.2f} wavefronts where one would do")
    if (seen := held_up(folder, step.name)) != MISSING:
        parts.append(f"tensor pipe and stalls: {seen}")
    return "; ".join(parts) or "nothing yet"


# ---- pictures --------------------------------------------------------------------------------------------------------


MIXES = {"integer": ("v07", "v08", "v09"), "rescale": ("v16", "v17"), "maximum": ("v34", "v35")}
RINGS = {"ring": ("v19",), "persistent": ("v24", "v25")}
WIDTH, LEFT, BAR = 760, 60, 30  # pixels


def mix(steps: Sequence[Step]) -> str:
    """What a pass of the KV loop issues for each matrix instruction, by what the instructions are for: a bar each."""
    weights: list[dict[str, float]] = []
    for step in steps:
        parts = step.parts[step.arch_in("sm_90") if step.version.one_arch else "sm_80"]
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
    unit = steps[0].unit(steps[0].arch_in("sm_90") if steps[0].version.one_arch else "sm_80")
    bottom = 14 + (BAR + 12) * len(steps)
    canvas.words(WIDTH / 2, bottom + 14, f"instructions that a pass issues for each {unit}", 12)
    used = [kind for kind in KINDS if any(one[kind] > 0 for one in weights)]
    x = 12.0
    for kind in used:
        canvas.rectangle(x, bottom + 30, 14, 11, KINDS[kind])
        canvas.words(x + 18, bottom + 40, kind, 10, "start")
        x += 30 + 5.6 * len(kind)
    return canvas.svg(f"What a pass of the KV loop issues in {', '.join(step.name for step in steps)}")


def operands(before: Step, after: Step) -> str:
    """What wgmma reads from shared memory for one consumer and KV block, by the configs of two versions."""
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


def story_pictures(folder: Path, steps: Sequence[Step]) -> dict[Path, str]:
    """The story's own pictures by their file; those of which a version or its record is missing are left out."""
    by_name = {step.name: step for step in steps}
    made = {
        name: mix([by_name[version] for version in versions])
        for name, versions in MIXES.items()
        if all(version in by_name and by_name[version].parts for version in versions)
    }
    stays = read_ring(folder)
    for name, versions in RINGS.items():
        if all(version in stays for version in versions):
            made[name] = svg(rings({version: stays[version] for version in versions}))
    if {"v36", "v37"} <= by_name.keys():
        made["operands"] = operands(by_name["v36"], by_name["v37"])
    return {folder / FOLDER / f"{name}.svg": text for name, text in made.items()}
