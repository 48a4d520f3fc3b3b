"""The pictures of docs/learn that come from headers and records: small steps, masks, and what became of predictions.

    for name, text in chapter_pictures(read_steps(root())).items(): ...     # "mask": SVG of docs/learn/mask.svg

Those of layouts and pipelines are in lessons.py.
"""

from collections.abc import Sequence

from analysis.publish.drawing import BLACK, BLUE, GREEN, GREY, ORANGE, RED
from analysis.publish.lessons import Canvas
from analysis.publish.overview import HEADLINE, Step
from analysis.publish.predictions import HIT, NEAR, Judged, judge
from analysis.publish.story import GPU

SMALL = ("v10", "v11", "v12", "v13", "v14", "v15", "v16")
MASKED, DEALT, FOLDED, SCHEDULERS = "v39", "v47", "v51", 4
SEQ = 512  # of the picture of a mask
WIDTH = 760  # pixels


def _axis(canvas: Canvas, left: float, bottom: float, scale: float, values: Sequence[float], show: str) -> None:
    """Vertical lines at some values, the first at `left`, with what they stand for below."""
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
        gain = step.gains.get(GPU, {}).get(HEADLINE.seq)
        text = "" if gain is None else f"{100 * (gain - 1):+.1f} % over {step.version.header.parent}"
        canvas.words(WIDTH - 8, y + 4, text, 11, "end")
    canvas.words(left + 275, high + 34, f"speed / FlashAttention-2 at {HEADLINE.seq}, and its 95 % interval", 11)
    return canvas.svg(f"Speeds of {steps[0].name} to {steps[-1].name} with their intervals")


def keys_seen(first: int, rows: int, keys: int) -> tuple[int, int]:
    """Of KV blocks of `keys`, from key 0 on: how many all rows of a warp see whole, and how many any row sees."""
    return (first + 1) // keys, -(-(first + rows) // keys)


def mask(step: Step) -> str:
    """Which KV blocks a warp computes with the causal mask, and in which of them it masks scores."""
    config = step.version.header.config
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
            color = BLUE if block < whole else ORANGE if block < seen else GREY
            canvas.rectangle(left + wide * block, y, wide, high, color, 0.6 if block < seen else 0.12)
        computed, masked = computed + seen, masked + seen - whole
    for block in range(SEQ // config.B_r):
        canvas.outline(left, top + block * high * config.B_r / rows, wide * blocks, high * config.B_r / rows)
    words = (f"{computed} of {warps * blocks} computed,", f"{masked} of them masked", "outlined: a Q block")
    for line, text in enumerate(words):
        canvas.words(left + wide * blocks + 14, top + 14 + 18 * line, text, 12, "start")
    canvas.legend([(BLUE, "all rows see all keys"), (ORANGE, "computed, then masked"), (GREY, "not computed")], 190)
    return canvas.svg(f"KV blocks that each warp of {step.name} computes with the causal mask")


def shares(step: Step, folded: bool) -> list[list[int]]:
    """Of each scheduler the KV blocks at the diagonal that its warps see, a number for each warp."""
    config = step.version.header.config
    rows, warps = config.B_r // config.n_warps, config.n_warps
    places = [warp if warp < SCHEDULERS or not folded else warps + 3 - warp for warp in range(warps)]
    seen = [keys_seen(place * rows, rows, config.B_c)[1] for place in places]
    return [seen[scheduler::SCHEDULERS] for scheduler in range(SCHEDULERS)]


def diagonal(before: Step, after: Step) -> str:
    """How many KV blocks at the diagonal the tensor core of each scheduler has, in both versions."""
    canvas = Canvas(WIDTH, 248)
    for x, step, folded in ((70.0, before, False), (440.0, after, True)):
        canvas.words(x + 130, 16, f"{step.name}: KV blocks at the diagonal", 12)
        for scheduler, own in enumerate(shares(step, folded)):
            at, y = x + 70 * scheduler, 196.0
            canvas.words(at + 25, y + 14, f"scheduler {scheduler}", 9)
            for number, blocks in enumerate(own):
                warp = scheduler + SCHEDULERS * number
                for _ in range(blocks):
                    y -= 24
                    canvas.cell(at, y, 50, 24, (BLUE, ORANGE)[number], f"warp {warp}")
            canvas.words(at + 25, y - 5, str(sum(own)), 12)
    canvas.legend([(BLUE, f"warps 0 to {SCHEDULERS - 1}"), (ORANGE, "the other four")], 150)
    return canvas.svg(f"The diagonal's work of each scheduler in {before.name} and {after.name}")


def outcomes(claims: Sequence[Judged]) -> str:
    """Predicted gains over the parent as bars, what was measured as a mark in the colour of its score."""
    shown = [
        one for one in claims
        if (one.claim.quantity, one.claim.place) == ("speedup", str(HEADLINE.seq)) and one.measured is not None
    ]  # fmt: skip
    low, high, line = -0.25, 0.55, 15
    bottom, left, scale = line * len(shown) + 22, 60.0, 680 / (high - low)
    canvas = Canvas(WIDTH, bottom + 60)

    def place(gain: float) -> float:
        return round(left + scale * (min(high, max(low, gain)) - low), 1)

    _axis(canvas, place(-0.2), bottom, scale / 100, [*range(-20, 51, 10)], "{:+.0f} %")
    for row, one in enumerate(shown):
        y = 28 + line * row
        canvas.words(left - 10, y + 4, one.version, 10, "end")
        gain = (one.measured or 1.0) - 1
        if gain > high:
            words = f"predicted {one.claim.low:.1f} to {one.claim.high:.1f} times, measured {1 + gain:.1f} →"
            canvas.words(WIDTH - 20, y + 4, words, 10, "end")
            continue
        first, last = place(one.claim.low - 1), place(one.claim.high - 1)
        canvas.rectangle(first, y - 5, max(3.0, last - first), 10, GREY, 0.6)
        color = {HIT: GREEN, NEAR: ORANGE}.get(one.score, RED)
        canvas.rectangle(place(gain) - 2.5, y - 7, 5, 14, color, 1)
    canvas.upright(place(0), 12, bottom, BLACK)
    canvas.words(left + 300, bottom + 30, f"gain over the parent at {HEADLINE.seq}", 11)
    canvas.legend([(GREY, "predicted"), (GREEN, "measured: hit"), (ORANGE, "near"), (RED, "miss")], 150)
    return canvas.svg(f"Gains at {HEADLINE.seq}, predicted and measured")


def chapter_pictures(steps: Sequence[Step]) -> dict[str, str]:
    """Every picture by its name; those of which a version or its record is missing are left out."""
    by_name, made = {step.name: step for step in steps}, {}
    small = [by_name[name] for name in SMALL if name in by_name]
    if len(small) == len(SMALL) and all((at := step.speeds.get(GPU)) and at.ratio for step in small):
        made["small_steps"] = small_steps(small)
    if MASKED in by_name:
        made["mask"] = mask(by_name[MASKED])
    if DEALT in by_name and FOLDED in by_name:
        made["diagonal"] = diagonal(by_name[DEALT], by_name[FOLDED])
    claims = judge(steps)
    if any(one.measured is not None for one in claims):
        made["outcomes"] = outcomes(claims)
    return made
