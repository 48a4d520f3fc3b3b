"""Pictures of docs/learn: layouts as the kernels' own functions give them, and a pipeline as traced.

Each is a function from regs/layouts.csv or regs/pipeline.csv to SVG text; `lessons(root())` has them by name. Most of
them are hundreds of small cells, which Canvas writes in a tenth of the space that matplotlib needs.
"""

import html
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from analysis.emulate.layouts import CHUNKS, TILE, Held, read_layouts
from analysis.emulate.pipeline import COPIES, Work, read_pipeline
from analysis.publish import banks
from analysis.publish.drawing import BLACK, BLUE, GREEN, GREY, ORANGE, PINK, RED, SKY, YELLOW
from analysis.publish.pictures import WORK, lane_of, lanes_of

REGISTERS = (SKY, ORANGE, GREEN, PINK)
WARPS = (BLUE, ORANGE, GREEN, PINK)
GROUPS = (BLUE, ORANGE, GREEN, PINK, SKY, RED, YELLOW, GREY)  # of banks
CELL = 19  # pixels
SHOWN_LANE = 5
SHOWN_CHUNK = 3
RING, SPECIALISED = "v28", ("v28", "v29", "v33")
Layouts = Mapping[str, Sequence[Held]]


@dataclass
class Canvas:
    """SVG text, made of rectangles and words; sizes are in pixels."""

    width: float
    height: float
    parts: list[str] = field(default_factory=list)

    def rectangle(self, x: float, y: float, width: float, height: float, color: str, opacity: float = 0.6) -> None:
        place = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"'
        self.parts.append(f'<rect {place} fill="{color}" fill-opacity="{opacity:g}" stroke="white"/>')

    def outline(self, x: float, y: float, width: float, height: float) -> None:
        place = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"'
        self.parts.append(f'<rect {place} fill="none" stroke="{BLACK}" stroke-width="2"/>')

    def upright(self, x: float, top: float, bottom: float, color: str) -> None:
        """A vertical line."""
        self.parts.append(f'<line x1="{x:g}" x2="{x:g}" y1="{top:g}" y2="{bottom:g}" stroke="{color}"/>')

    def words(self, x: float, y: float, text: str, size: float = 12, anchor: str = "middle") -> None:
        """Text whose baseline is at y and whose middle, start or end is at x."""
        self.parts.append(
            f'<text x="{x:g}" y="{y:g}" font-size="{size:g}" text-anchor="{anchor}">{html.escape(text)}</text>'
        )

    def cell(self, x: float, y: float, width: float, height: float, color: str, text: str = "") -> None:
        """A rectangle with small text in its middle."""
        self.rectangle(x, y, width, height, color)
        if text:
            self.words(x + width / 2, y + height / 2 + 3, text, 9)

    def legend(self, entries: Sequence[tuple[str, str]], apart: float) -> None:
        """Colours with their meaning in a row at the bottom, `apart` pixels from one to the next."""
        x = (self.width - apart * len(entries)) / 2
        for color, name in entries:
            self.rectangle(x, self.height - 18, 22, 11, color)
            self.words(x + 28, self.height - 8, name, 11, "start")
            x += apart

    def svg(self, title: str) -> str:
        size = f'width="{self.width:g}" height="{self.height:g}" viewBox="0 0 {self.width:g} {self.height:g}"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="DejaVu Sans, Arial, sans-serif">'
        back = '<rect width="100%" height="100%" fill="white"/>'
        return "\n".join([head, f"<title>{html.escape(title)}</title>", back, *self.parts, "</svg>", ""])


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
        """Each element with the number of the lane that holds it, in the colour of the lane's register."""
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
    canvas.legend(list(zip(REGISTERS, names, strict=True)), 185)
    return canvas.svg("Lanes and registers of the operands and the result of mma.m16n8k16")


def ldmatrix(layouts: Layouts) -> str:
    """Which row each lane names to ldmatrix, and what it gets, plainly and transposed."""
    canvas = Canvas(1010, 400)
    named = Matrix(canvas, 30, 45, TILE, "lane that gives the address of 8 elements")
    for one in layouts["address"]:
        ((row, chunk),) = one.holds
        named.cell(row, 8 * chunk, REGISTERS[one.who // 8], f"lane {one.who}", 8)
    Matrix(canvas, 360, 45, TILE, "ldmatrix: lane that gets the element").held(layouts["A"])
    Matrix(canvas, 690, 45, TILE, "ldmatrix .trans: lane that gets the element").held(layouts["B of V"])
    canvas.legend([(color, f"matrix {n}: register {n}") for n, color in enumerate(REGISTERS)], 185)
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
    canvas.legend([(color, f"floats {2 * n}, {2 * n + 1} → register {n}") for n, color in enumerate(REGISTERS)], 185)
    return canvas.svg("S as results of mma and P as an operand of the next one")


def swizzle(layouts: Layouts) -> str:
    """Eight rows in shared memory with and without swizzle: the number of a chunk, and the colour of its banks."""
    canvas = Canvas(760, 245)
    for x, layout in ((40, "plain"), (410, "swizzled")):
        rows = [list(enumerate(held.holds)) for held in layouts[layout]]
        group = {(row, place): (row * CHUNKS + place) % banks.GROUPS for row in range(8) for place in range(CHUNKS)}
        shown = [(row, place) for row, held in enumerate(rows) for place, (_, chunk) in held if chunk == SHOWN_CHUNK]
        ways = banks.conflict_ways(group[at] for at in shown)
        ending = "s" if ways > 1 else ""
        matrix = Matrix(
            canvas, x, 45, CHUNKS, f"{layout}: chunk {SHOWN_CHUNK} of eight rows takes {ways} wavefront{ending}"
        )
        for row, held in enumerate(rows):
            for place, (_, chunk) in held:
                matrix.cell(row, place, GROUPS[group[row, place]], str(chunk))
        matrix.outline(Held(layout, 0, tuple(shown)))
    canvas.legend([(color, f"{4 * n}–{4 * n + 3}") for n, color in enumerate(GROUPS)], 82)
    canvas.words(10, 237, "banks", 11, "start")
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
    canvas.legend([(color, f"floats {2 * n}, {2 * n + 1}") for n, color in enumerate(REGISTERS)], 140)
    return canvas.svg("Warps, lanes and registers of a wgmma result")


STEP, LANE = 34, 26  # pixels of a step and of a lane of a pipeline


def _steps(canvas: Canvas, x: float, y: float, end: int) -> None:
    for step in range(0, end + 1, 2):
        canvas.words(x + STEP * step, y, str(step), 9)
    canvas.words(x + STEP * end / 2, y + 15, "step: begins when all that the work waits for is done", 11)


def ring(work: Sequence[Work], stages: int = 2) -> str:
    """The places of K and V over the steps of a pipeline: copied, full, read by each consumer, empty again.

    Above a place stand the phases of its two mbarriers, each at the step in which it completes.
    """
    end = max(one.step for one in work if one.what == "PV") + 1
    canvas = Canvas(110 + STEP * end, 2 * stages * 55 + 80)
    left, top = 80.0, 20.0
    for tensor, product in (("K", "QK"), ("V", "PV")):
        copied = {one.block: one.step for one in work if one.who == COPIES and one.what == tensor}
        for stage in range(stages):
            canvas.words(left - 8, top + 22, f"{tensor}, place {stage}", 11, "end")
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
    canvas.legend(words, 150)
    return canvas.svg(f"The places of K and V of {work[0].version} and the phases of their mbarriers")


def pipeline(versions: Mapping[str, Sequence[Work]]) -> str:
    """Who works on which block in which step; blocks of the second Q block are outlined."""
    end = max(one.step for work in versions.values() for one in work) + 1
    rows = sum(len(lanes_of(work)) + 1 for work in versions.values())
    canvas = Canvas(130 + STEP * end, LANE * rows + 70)
    left, top = 100.0, 20.0
    for version, work in versions.items():
        canvas.words(left, top, version, 14, "start")
        lanes = lanes_of(work)
        for place, lane in enumerate(lanes):
            canvas.words(left - 8, top + LANE * place + 22, lane, 10, "end")
        for one in work:
            color, _ = WORK.get(one.what, WORK["K"])
            at = (left + STEP * one.step, top + LANE * lanes.index(lane_of(one)) + 6, STEP, LANE - 4)
            twice = [other for other in work if (lane_of(other), other.step) == (lane_of(one), one.step)]
            text = ", ".join(str(other.block) for other in twice)
            if one == twice[0]:
                canvas.cell(*at, color if color != BLACK else GREY, text)
                if one.Q_block % 2:
                    canvas.outline(*at)
        top += LANE * (len(lanes) + 1)
    _steps(canvas, left, top - 5, end)
    shown = {color if color != BLACK else GREY: name for color, name in WORK.values()}
    shown[GREY] = "copy of K, Q or O"
    canvas.legend(list(shown.items()), 150)
    return canvas.svg(f"What waits for what in {', '.join(versions)}")


def lessons(folder: Path) -> dict[str, str]:
    """Every picture by its name; none where the files that they are drawn from are missing."""
    layouts, work = read_layouts(folder), read_pipeline(folder)
    drawn: tuple[Callable[[Layouts], str], ...] = (mma, ldmatrix, S_to_P, swizzle, wgmma)
    made = {one.__name__: one(layouts) for one in drawn} if layouts else {}
    if RING in work:
        made["ring"] = ring(work[RING])
    if all(version in work for version in SPECIALISED):
        made["pipeline"] = pipeline({version: work[version] for version in SPECIALISED})
    return made
