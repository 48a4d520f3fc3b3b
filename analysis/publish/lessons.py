"""Pictures of docs/learn: layouts as the kernels' own functions give them, a pipeline as traced, predictions as scored.

for name, text in lessons(root(), read_steps(root())).items(): ...     # "mma": SVG of docs/learn/mma.svg
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from analysis.emulate.layouts import CHUNKS, TILE, Held, read_layouts
from analysis.emulate.pipeline import COPIES, Work, read_pipeline
from analysis.ladder.headers import Version, load_attention
from analysis.publish.drawing import BLACK, BLUE, GREEN, GREY, ORANGE, PALE, PINK, RED, SKY, YELLOW, Canvas
from analysis.publish.overview import GPU, HEADLINE, Step
from analysis.publish.predictions import HIT, NEAR, Judged, judge

REGISTERS = (SKY, ORANGE, GREEN, PINK)
WARPS = (BLUE, ORANGE, GREEN, PINK)
GROUPS = (BLUE, ORANGE, GREEN, PINK, SKY, RED, YELLOW, GREY)  # of banks
CELL = 19  # pixels
SHOWN_LANE = 5
SHOWN_CHUNK = 3
RING, SPECIALIZED = "v28", ("v28", "v29", "v33")
SMALL = ("v10", "v11", "v12", "v13", "v14", "v15", "v16")
MASKED = "attention/mma_sync"
SEQ = 512  # of the picture of a mask
WIDTH = 760  # pixels
Layouts = Mapping[str, Sequence[Held]]
# Work of a pipeline: color and words.
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


@dataclass
class Matrix:
    """A matrix on a canvas, its first cell at (x, y)."""

    canvas: Canvas
    x: float
    y: float
    columns: int
    title: str
    first_row: int = 0

    def __post_init__(self) -> None:
        self.canvas.words(self.x + CELL * self.columns / 2, self.y - 20, self.title)
        for column in range(0, self.columns, 8):
            self.canvas.words(self.x + CELL * (column + 0.5), self.y - 4, str(column), 9)

    def cell(self, row: int, column: int, color: str, text: str = "", width: int = 1) -> None:
        self.canvas.cell(self.x + CELL * column, self.y + CELL * row, CELL * width, CELL, color, text)
        if column == 0 and row % 8 == 0:
            self.canvas.words(self.x - 4, self.y + CELL * (row + 0.5) + 3, str(row + self.first_row), 9, "end")

    def held(self, held: Sequence[Held], end: int = 8) -> None:
        """Each element with the number of the lane that holds it, in the color of the lane's register."""
        for one in held:
            for index, (row, column) in enumerate(one.holds[:end]):
                self.cell(row - self.first_row, column, REGISTERS[index // 2], str(one.who % 32))

    def outline(self, held: Held) -> None:
        for row, column in held.holds:
            self.canvas.outline(self.x + CELL * column, self.y + CELL * row, CELL, CELL)


def mma(layouts: Layouts) -> str:
    """The operands and the result of mma.m16n8k16: which lane holds an element, and in which register."""
    canvas = Canvas(760, 400)
    Matrix(canvas, 30, 45, TILE, "A: 16 rows, 16 steps").held(layouts["A"])
    Matrix(canvas, 380, 45, 8, "B: 16 steps, 8 columns").held(layouts["B of V"], 4)
    Matrix(canvas, 580, 45, 8, "result: 16 rows, 8 columns").held(layouts["S"], 4)
    names = ("register 0 (floats 0, 1)", "register 1 (floats 2, 3)", "register 2", "register 3")
    canvas.legend(list(zip(REGISTERS, names, strict=True)))
    return canvas.svg("Lanes and registers of the operands and the result of mma.m16n8k16")


def ldmatrix(layouts: Layouts) -> str:
    """The row whose address each lane provides to ldmatrix, and the elements that it receives, plainly and
    transposed."""
    canvas = Canvas(1010, 400)
    named = Matrix(canvas, 30, 45, TILE, "lane that gives the address of 8 elements")
    for one in layouts["address"]:
        ((row, chunk),) = one.holds
        named.cell(row, 8 * chunk, REGISTERS[one.who // 8], f"lane {one.who}", 8)
    Matrix(canvas, 360, 45, TILE, "ldmatrix: lane that gets the element").held(layouts["A"])
    Matrix(canvas, 690, 45, TILE, "ldmatrix .trans: lane that gets the element").held(layouts["B of V"])
    canvas.legend([(color, f"matrix {n}: register {n}") for n, color in enumerate(REGISTERS)])
    return canvas.svg("Addresses that lanes give to ldmatrix, and elements that they get")


def S_to_P(layouts: Layouts) -> str:
    """S as two results of mma, and P as an operand A: each lane has the same elements in both."""
    canvas = Canvas(760, 425)
    S, P = layouts["S"], layouts["P"]
    same = sum(s.holds == p.holds for s, p in zip(S, P, strict=True))
    canvas.words(380, 20, f"{same} of {len(S)} lanes hold the same elements in both; lane {SHOWN_LANE} is outlined", 13)
    for x, held, title in ((40, S, "S: two results, 8 floats per lane"), (410, P, "P: one operand A, 4 registers")):
        matrix = Matrix(canvas, x, 70, TILE, title)
        matrix.held(held)
        matrix.outline(held[SHOWN_LANE])
    canvas.legend([(color, f"floats {2 * n}, {2 * n + 1} → register {n}") for n, color in enumerate(REGISTERS)])
    return canvas.svg("S as results of mma and P as an operand of the next one")


def swizzle(layouts: Layouts) -> str:
    """Eight rows in shared memory with and without swizzle: the number of a chunk, and the color of its banks."""
    canvas = Canvas(760, 245)
    for x, layout in ((40, "plain"), (410, "swizzled")):
        rows = [list(enumerate(held.holds)) for held in layouts[layout]]
        group = {
            (row, location): (row * CHUNKS + location) % len(GROUPS) for row in range(8) for location in range(CHUNKS)
        }
        shown = [
            (row, location) for row, held in enumerate(rows) for location, (_, chunk) in held if chunk == SHOWN_CHUNK
        ]
        ways = max(Counter(group[at] for at in shown).values())
        ending = "s" if ways > 1 else ""
        matrix = Matrix(
            canvas, x, 45, CHUNKS, f"{layout}: chunk {SHOWN_CHUNK} of eight rows takes {ways} wavefront{ending}"
        )
        for row, held in enumerate(rows):
            for location, (_, chunk) in held:
                matrix.cell(row, location, GROUPS[group[row, location]], str(chunk))
        matrix.outline(Held(layout, 0, tuple(shown)))
    canvas.legend([(color, f"{4 * n}–{4 * n + 3}") for n, color in enumerate(GROUPS)], "banks")
    return canvas.svg("Chunks of eight rows in the banks of shared memory")


def wgmma(layouts: Layouts) -> str:
    """The first 16 columns of a wgmma result: a warp has 16 rows, laid out as the results of mma.m16n8k16."""
    canvas = Canvas(760, 400)
    canvas.words(150, 25, "64 rows of 16 columns: a warp has 16 rows")
    held = layouts["wgmma S"]
    for warp in range(4):
        rows = sorted({row for one in held[32 * warp : 32 * warp + 32] for row, _ in one.holds})
        text = f"warp {warp}: rows {rows[0]} to {rows[-1]}"
        canvas.cell(40, 45 + 76 * warp, 220, 76, WARPS[warp])
        canvas.words(150, 87 + 76 * warp, text)
    Matrix(canvas, 380, 45, TILE, "lanes of warp 1, columns 0 to 15", TILE).held(held[32:64])
    canvas.legend([(color, f"floats {2 * n}, {2 * n + 1}") for n, color in enumerate(REGISTERS)])
    return canvas.svg("Warps, lanes and registers of a wgmma result")


STEP, LANE = 34, 26  # pixels of a step and of a lane of a pipeline


def _steps(canvas: Canvas, x: float, y: float, end: int) -> None:
    for step in range(0, end + 1, 2):
        canvas.words(x + STEP * step, y, str(step), 9)
    canvas.words(x + STEP * end / 2, y + 15, "step: begins when all that the work waits for is done", 11)


def ring(work: Sequence[Work], stages: int = 2) -> str:
    """The slots of K and V over the steps of a pipeline: copied, full, read by each consumer, empty again.

    Above a slot are the phases of its two mbarriers, each at the step in which it completes.
    """
    end = max(one.step for one in work if one.what == "PV") + 1
    canvas = Canvas(110 + STEP * end, 2 * stages * 55 + 80)
    left, top = 80.0, 20.0
    for tensor, product in (("K", "QK"), ("V", "PV")):
        copied = {one.block: one.step for one in work if one.who == COPIES and one.what == tensor}
        for stage in range(stages):
            canvas.words(left - 8, top + 22, f"{tensor}, slot {stage}", 11, "end")
            for block in sorted(block for block in copied if block % stages == stage):
                reads = [one for one in work if one.what == product and one.block == block]
                full, empty = copied[block] + 1, max(one.step for one in reads) + 1
                canvas.cell(left + STEP * (full - 1), top, STEP, 34, GREY, f"copy {block}")
                canvas.rectangle(left + STEP * full, top, STEP * (empty - 1 - full), 34, YELLOW)
                for one in reads:
                    consumer = int(one.who.rpartition(" ")[2]) - 1
                    canvas.cell(left + STEP * one.step, top + 17 * consumer, STEP, 17, (BLUE, SKY)[consumer])
                for step, word in ((full, "full"), (empty, "empty")):
                    canvas.words(left + STEP * step, top - 3, f"{word} {block // stages}", 9)
            top += 55
    _steps(canvas, left, top, end)
    words = ((GREY, "copied"), (YELLOW, "full"), (BLUE, "read by consumer 1"), (SKY, "read by consumer 2"))
    canvas.legend(words)
    return canvas.svg(f"The slots of K and V of {work[0].version} and the phases of their mbarriers")


def lane_of(work: Work) -> str:
    return f"{COPIES} of {work.what}" if work.who == COPIES else work.who


def lanes_of(work: Sequence[Work]) -> list[str]:
    consumers = sorted({each.who.partition(" ")[2] for each in work if each.who != COPIES})
    threads = [f"{kind} {number}" for number in consumers for kind in ("products", "threads")]
    return [*(f"{COPIES} of {what}" for what in "QKV"), *threads, f"{COPIES} of O"]


def pipeline(versions: Mapping[str, Sequence[Work]]) -> str:
    """The block of each actor in each step; blocks of the second Q block are outlined."""
    end = max(one.step for work in versions.values() for one in work) + 1
    rows = sum(len(lanes_of(work)) + 1 for work in versions.values())
    canvas = Canvas(130 + STEP * end, LANE * rows + 70)
    left, top = 100.0, 20.0
    for version, work in versions.items():
        canvas.words(left, top, version, 14, "start")
        lanes = lanes_of(work)
        for location, lane in enumerate(lanes):
            canvas.words(left - 8, top + LANE * location + 22, lane, 10, "end")
        for one in work:
            color, _ = WORK.get(one.what, WORK["K"])
            at = (left + STEP * one.step, top + LANE * lanes.index(lane_of(one)) + 6, STEP, LANE - 4)
            twice = [other for other in work if (lane_of(other), other.step) == (lane_of(one), one.step)]
            text = ", ".join(str(other.block) for other in twice)
            if one == twice[0]:
                canvas.cell(*at, color, text)
                if one.Q_block % 2:
                    canvas.outline(*at)
        top += LANE * (len(lanes) + 1)
    _steps(canvas, left, top - 5, end)
    canvas.legend(list(WORK.values()))
    return canvas.svg(f"What waits for what in {', '.join(versions)}")


# ---- from header blocks and records ----------------------------------------------------------------------------------


def _axis(canvas: Canvas, left: float, bottom: float, scale: float, values: Sequence[float], show: str) -> None:
    """Vertical lines at some values, the first at `left`, with their meaning below."""
    for value in values:
        x = round(left + scale * (value - values[0]), 1)
        canvas.upright(x, 12, bottom, "#d0d0d0")
        canvas.words(x, bottom + 14, show.format(value), 10)


def small_steps(steps: Sequence[Step]) -> str:
    """Speeds of versions that differ by less than their intervals: a mark, and the 95 % interval as a bar."""
    high = 24 * len(steps) + 18
    canvas = Canvas(WIDTH, high + 44)
    low, scale, left = 1.07, 550 / 0.05, 60.0
    _axis(canvas, left, high, scale, [low + 0.01 * k for k in range(6)], "{:.2f}")
    for row, step in enumerate(steps):
        ratio, y = step.speeds[GPU].ratio, 30 + 24 * row
        assert ratio is not None
        canvas.words(left - 10, y + 4, step.name, 12, "end")
        canvas.rectangle(left + scale * (ratio.low - low), y - 6, scale * (ratio.high - ratio.low), 12, BLUE, 0.3)
        canvas.rectangle(left + scale * (ratio.mid - low) - 2, y - 9, 4, 18, BLUE, 1)
        gain = step.gain()
        text = "" if gain is None else f"{100 * (gain - 1):+.1f} % over {step.version.header.parent}"
        canvas.words(WIDTH - 8, y + 4, text, 11, "end")
    canvas.words(left + 275, high + 34, f"speed / FlashAttention-2 at {HEADLINE.seq}, and its 95 % interval", 11)
    return canvas.svg(f"Speeds of {steps[0].name} to {steps[-1].name} with their intervals")


def keys_seen(first: int, rows: int, keys: int) -> tuple[int, int]:
    """The number of KV blocks of `keys`, from key 0 on, to which all rows of a warp attend entirely, and to which any
    row attends."""
    return (first + 1) // keys, -(-(first + rows) // keys)


def mask(kernel: Version) -> str:
    """The KV blocks that a warp computes with the causal mask, and those in which it masks scores."""
    config = kernel.header.config
    rows, wide, high = config.B_r // config.n_warps, 44, 18
    warps, blocks = SEQ // rows, SEQ // config.B_c
    canvas = Canvas(WIDTH, high * warps + 96)
    left, top = 190.0, 36.0
    canvas.words(left + wide * blocks / 2, 14, f"{SEQ} keys, in KV blocks of {config.B_c}", 12)
    for block in range(blocks):
        canvas.words(left + wide * (block + 0.5), 30, str(block), 10)
    computed = masked = 0
    for warp in range(warps):
        first = warp * rows
        whole, seen = keys_seen(first, rows, config.B_c)
        y = top + high * warp
        canvas.words(left - 8, y + 13, f"rows {first} to {first + rows - 1}", 10, "end")
        for block in range(blocks):
            color = BLUE if block < whole else ORANGE if block < seen else PALE
            canvas.rectangle(left + wide * block, y, wide, high, color, 0.6)
        computed, masked = computed + seen, masked + seen - whole
    for block in range(SEQ // config.B_r):
        canvas.outline(left, top + block * high * config.B_r / rows, wide * blocks, high * config.B_r / rows)
    words = (f"{computed} of {warps * blocks} computed,", f"{masked} of them masked", "outlined: a Q block")
    for line, text in enumerate(words):
        canvas.words(left + wide * blocks + 14, top + 14 + 18 * line, text, 12, "start")
    canvas.legend([(BLUE, "all rows attend to all keys"), (ORANGE, "computed, then masked"), (PALE, "not computed")])
    return canvas.svg(f"KV blocks that each warp of {kernel.version} computes with the causal mask")


def outcomes(claims: Sequence[Judged]) -> str:
    """Predicted gains over the parent as bars, what was measured as a mark in the color of its score."""
    shown = [
        one for one in claims
        if (one.claim.quantity, one.claim.location) == ("speedup", str(HEADLINE.seq)) and one.measured is not None
    ]  # fmt: skip
    low, high, line = -0.25, 0.55, 15
    bottom, left, scale = line * len(shown) + 22, 60.0, 680 / (high - low)
    canvas = Canvas(WIDTH, bottom + 60)

    def location(gain: float) -> float:
        return round(left + scale * (min(high, max(low, gain)) - low), 1)

    _axis(canvas, location(-0.2), bottom, scale / 100, [*range(-20, 51, 10)], "{:+.0f} %")
    for row, one in enumerate(shown):
        y = 28 + line * row
        canvas.words(left - 10, y + 4, one.version, 10, "end")
        gain = (one.measured or 1.0) - 1
        if gain > high:
            words = f"predicted {one.claim.low:.1f} to {one.claim.high:.1f} times, measured {1 + gain:.1f} →"
            canvas.words(WIDTH - 20, y + 4, words, 10, "end")
            continue
        first, last = location(one.claim.low - 1), location(one.claim.high - 1)
        canvas.rectangle(first, y - 5, max(3.0, last - first), 10, GREY, 0.6)
        color = {HIT: GREEN, NEAR: ORANGE}.get(one.score, RED)
        canvas.rectangle(location(gain) - 2.5, y - 7, 5, 14, color, 1)
    canvas.upright(location(0), 12, bottom, BLACK)
    canvas.words(left + 300, bottom + 30, f"gain over the parent at {HEADLINE.seq}", 11)
    canvas.legend([(GREY, "predicted"), (GREEN, "measured: hit"), (ORANGE, "near"), (RED, "miss")])
    return canvas.svg(f"Gains at {HEADLINE.seq}, predicted and measured")


# ---- all of them -----------------------------------------------------------------------------------------------------


def lessons(folder: Path, steps: Sequence[Step]) -> dict[str, str]:
    """Every picture by its name; those of which a version or a record is missing are left out."""
    layouts, work, by_name = read_layouts(folder), read_pipeline(folder), {step.name: step for step in steps}
    drawn: tuple[Callable[[Layouts], str], ...] = (mma, ldmatrix, S_to_P, swizzle, wgmma)
    made = {one.__name__: one(layouts) for one in drawn} if layouts else {}
    if work.keys() >= {RING, *SPECIALIZED}:
        made |= {"ring": ring(work[RING]), "pipeline": pipeline({name: work[name] for name in SPECIALIZED})}
    if all(name in by_name and GPU in by_name[name].speeds for name in SMALL):
        made["small_steps"] = small_steps([by_name[name] for name in SMALL])
    if masked := load_attention(folder).get(MASKED):
        made["mask"] = mask(masked)
    claims = judge(steps)
    if any(one.measured is not None for one in claims):
        made["outcomes"] = outcomes(claims)
    return made
