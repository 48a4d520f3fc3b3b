"""The predictions of the header blocks, taken apart into claims with a number, and what came of each.

    for claim in judge(read_steps(root())): print(claim.version, claim.text, claim.came, claim.score)

A prediction is a sentence; the forms below are those that can be scored. What is said in another form stays a sentence
and is counted as such. A claim about machine code is judged on sm_80, one about time on the H200.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from analysis.publish.overview import Step
from analysis.table import Cell, Table

ARCH, GPU = "sm_80", "h200"
HIT, NEAR, MISS, OPEN = "hit", "near", "miss", "not measured"
SCORES = (HIT, NEAR, MISS, OPEN)


@dataclass(frozen=True)
class Claim:
    """One number of a prediction. A value within low … high is a hit; within `slack` of it, near."""

    version: str
    text: str  # the words it was read from
    quantity: str  # "loop instructions", "registers", "of FA2", "speed over the parent's"
    low: float
    high: float
    slack: float
    came: float | None  # None: not recorded yet

    @property
    def score(self) -> str:
        if self.came is None:
            return OPEN
        if self.low <= self.came <= self.high:
            return HIT
        return NEAR if self.low - self.slack <= self.came <= self.high + self.slack else MISS

    @property
    def middle(self) -> float:
        return (self.low + self.high) / 2


# ---- what came -------------------------------------------------------------------------------------------------------


def _loop(step: Step, _: Step | None) -> float | None:
    return step.loop(ARCH)


def _loop_change(step: Step, parent: Step | None) -> float | None:
    before, after = (parent.loop(ARCH) if parent else None), step.loop(ARCH)
    return None if before is None or after is None else after - before


def _registers(step: Step, _: Step | None) -> float | None:
    return step.registers(ARCH)


def _register_change(step: Step, parent: Step | None) -> float | None:
    before, after = (parent.registers(ARCH) if parent else None), step.registers(ARCH)
    return None if before is None or after is None else after - before


def _share(step: Step, _: Step | None) -> float | None:
    speed = step.speeds.get(GPU)
    return speed.ratio.mid if speed and speed.ratio else None


def _speedup(step: Step, parent: Step | None) -> float | None:
    before, after = (_share(each, None) if each else None for each in (parent, step))
    return None if before is None or after is None else after / before


def _size_change(step: Step, parent: Step | None) -> float | None:
    """Instructions of the whole kernel over the parent's."""
    before, after = ((each.parts.get(ARCH) if each else None) for each in (parent, step))
    return len(after.listing.body) / len(before.listing.body) if before and after else None


# ---- forms of claims -------------------------------------------------------------------------------------------------

Came = Callable[[Step, Step | None], float | None]
Range = tuple[float, float, float]  # low, high, slack
N = r"([0-9]+(?:\.[0-9]+)?)"


def _about(value: float) -> Range:
    return value * 0.98, value * 1.02, value * 0.03


def _percent(share: float) -> Range:
    return 1 + share / 100 - 0.01, 1 + share / 100 + 0.01, 0.02


# form, quantity, how it came, from the numbers of the form to a range
FORMS: tuple[tuple[str, str, Came, Callable[..., Range]], ...] = (
    (rf"loop within {N} instructions of", "loop instructions, change", _loop_change, lambda n: (-n, n, n)),
    (
        rf"loop (?:is )?(?:about )?{N} instructions shorter",
        "loop instructions, change",
        _loop_change,
        lambda n: (-1.3 * n - 1, -0.7 * n + 1, n),
    ),
    (r"loop unchanged|same (?:loop|instructions)", "loop instructions, change", _loop_change, lambda: (-2, 2, 4)),
    (rf"(?:loop|loop grows to) about {N} instructions", "loop instructions", _loop, _about),
    (rf"{N} -> (?:about )?{N} instructions", "loop instructions", _loop, lambda _, n: _about(n)),
    (rf"about {N} instructions for 256 HMMA", "loop instructions", _loop, _about),
    (rf"{N} to {N} registers more", "registers, change", _register_change, lambda a, b: (a, b, (b - a) / 2)),
    (rf"{N} registers(?! fewer| more)", "registers", _registers, lambda n: (n - 4, n + 4, 8)),
    (r"registers unchanged", "registers, change", _register_change, lambda: (-2, 2, 4)),
    (
        rf"whole kernel {N} % longer",
        "kernel size over the parent's",
        _size_change,
        lambda n: (1 + n / 100 - 0.05, 1 + n / 100 + 0.05, 0.1),
    ),
    (rf"{N} of FA2", "of FA2", _share, lambda n: (n - 0.02, n + 0.02, 0.03)),
    (r"four times faster", "speed over the parent's", _speedup, lambda: (3.6, 4.4, 0.8)),
    (
        rf"{N} to {N} % faster",
        "speed over the parent's",
        _speedup,
        lambda low, high: (1 + low / 100, 1 + high / 100, 0.02),
    ),
    (rf"{N} % (?:faster(?! at [0-9])|in all)", "speed over the parent's", _speedup, _percent),
    (
        rf"time unchanged within {N} %",
        "speed over the parent's",
        _speedup,
        lambda n: (1 - n / 100, 1 + n / 100, n / 100),
    ),
    (r"time unchanged(?! within)", "speed over the parent's", _speedup, lambda: (0.99, 1.01, 0.01)),
)


def claims_of(step: Step, parent: Step | None) -> list[Claim]:
    """The claims of one header, in the order of its words. A word belongs to the first form that takes it."""
    text, taken, found = step.version.header.predict, set[int](), list[tuple[int, Claim]]()
    for form, quantity, came, to_range in FORMS:
        for match in re.finditer(form, text):
            span = set(range(*match.span()))
            if not span & taken:
                taken |= span
                low, high, slack = to_range(*(float(number) for number in match.groups()))
                found.append(
                    (match.start(), Claim(step.name, match[0], quantity, low, high, slack, came(step, parent)))
                )
    return [claim for _, claim in sorted(found, key=lambda pair: pair[0])]


def judge(steps: Sequence[Step]) -> list[Claim]:
    """Every claim of every header."""
    by_name = {step.name: step for step in steps}
    return [claim for step in steps for claim in claims_of(step, by_name.get(step.version.header.parent))]


def shown(value: float) -> str:
    """Three decimals for ratios, none for counts."""
    return f"{value:.3f}" if abs(value) < 10 and value != int(value) else f"{value:.0f}"


def table(claims: Sequence[Claim]) -> Table:
    """One row a claim."""
    rows: list[Sequence[Cell]] = [
        (
            claim.version,
            claim.text,
            claim.quantity,
            f"{shown(claim.low)} … {shown(claim.high)}",
            "–" if claim.came is None else shown(claim.came),
            claim.score,
        )
        for claim in claims
    ]
    return Table(("version", "predicted", "quantity", "counts as a hit", "came", "score"), rows)


def tally(claims: Sequence[Claim]) -> Table:
    """How many claims of each quantity came true."""
    quantities = list(dict.fromkeys(claim.quantity for claim in claims))
    rows: list[Sequence[Cell]] = [
        (name, *(sum(claim.quantity == name and claim.score == score for claim in claims) for score in SCORES))
        for name in quantities
    ]
    return Table(("quantity", *SCORES), rows)
