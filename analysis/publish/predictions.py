"""The predictions of the header blocks, taken apart into claims with a number, and what was measured for each.

    for claim in judge(read_steps(root())): print(claim.version, claim.text, claim.measured, claim.score)

A prediction is a sentence; the forms below are those that can be scored. What is said in another form is not scored.
A claim about machine code is judged on sm_80, one about time on the H200, at the length that it names or else at the
headline problem's. Where the records lack that length, the score is "not measured".
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from analysis.publish.overview import HEADLINE, LENGTHS, Step
from analysis.table import Cell, Table

ARCH, GPU = "sm_80", "h200"
HIT, NEAR, MISS, OPEN = "hit", "near", "miss", "not measured"
SCORES = (HIT, NEAR, MISS, OPEN)


@dataclass(frozen=True)
class Claim:
    """One number of a prediction. A value within low … high is a hit; within `slack` of it, near."""

    version: str
    text: str  # the words it was read from
    quantity: str  # "loop instructions", "registers", "speed / FA2", "speed / parent's"
    low: float
    high: float
    slack: float
    measured: float | None  # None: not recorded yet
    seq: int | None = None  # the length at which a speed is judged

    @property
    def score(self) -> str:
        if self.measured is None:
            return OPEN
        if self.low <= self.measured <= self.high:
            return HIT
        return NEAR if self.low - self.slack <= self.measured <= self.high + self.slack else MISS

    @property
    def middle(self) -> float:
        return (self.low + self.high) / 2


# ---- what was measured -----------------------------------------------------------------------------------------------


def _loop(step: Step, _: Step | None, __: int) -> float | None:
    return step.loop(ARCH)


def _loop_change(step: Step, parent: Step | None, _: int) -> float | None:
    before, after = (parent.loop(ARCH) if parent else None), step.loop(ARCH)
    return None if before is None or after is None else after - before


def _registers(step: Step, _: Step | None, __: int) -> float | None:
    return step.registers(ARCH)


def _register_change(step: Step, parent: Step | None, _: int) -> float | None:
    before, after = (parent.registers(ARCH) if parent else None), step.registers(ARCH)
    return None if before is None or after is None else after - before


def _share(step: Step, _: Step | None, seq: int) -> float | None:
    speed = step.lengths.get(GPU, {}).get(seq)
    return speed.ratio.mid if speed and speed.ratio else None


def _speedup(step: Step, parent: Step | None, seq: int) -> float | None:
    before, after = (_share(each, None, seq) if each else None for each in (parent, step))
    return None if before is None or after is None else after / before


def _size_change(step: Step, parent: Step | None, _: int) -> float | None:
    """Instructions of the whole kernel divided by the parent's."""
    before, after = ((each.parts.get(ARCH) if each else None) for each in (parent, step))
    return len(after.listing.body) / len(before.listing.body) if before and after else None


def _unrecorded(_: Step, __: Step | None, ___: int) -> float | None:
    """Of a problem that no run holds."""
    return None


# ---- forms of claims -------------------------------------------------------------------------------------------------

Measured = Callable[[Step, Step | None, int], float | None]
Range = tuple[float, float, float]  # low, high, slack
N = r"([0-9]+(?:\.[0-9]+)?)"
AT = r"at (?P<seq>[0-9]+)"
LOOP, LOOP_CHANGE = "loop instructions", "loop instructions, change"
REGISTERS, REGISTER_CHANGE = "registers", "registers, change"
SIZE, SHARE, SPEEDUP = "kernel size / parent's", "speed / FA2", "speed / parent's"


def _about(value: float) -> Range:
    return value * 0.98, value * 1.02, value * 0.03


def _percent(share: float) -> Range:
    return 1 + share / 100 - 0.01, 1 + share / 100 + 0.01, 0.02


def _unchanged(within: float = 1.0) -> Range:
    return 1 - within / 100, 1 + within / 100, within / 100


# form, quantity, how it is measured, from the numbers of the form to a range
FORMS: tuple[tuple[str, str, Measured, Callable[..., Range]], ...] = (
    (rf"loop within {N} instructions of", LOOP_CHANGE, _loop_change, lambda n: (-n, n, n)),
    (
        rf"loop (?:is )?(?:about )?{N} instructions shorter",
        LOOP_CHANGE,
        _loop_change,
        lambda n: (-1.3 * n - 1, -0.7 * n + 1, n),
    ),
    (r"loop unchanged|same (?:loop|instructions)", LOOP_CHANGE, _loop_change, lambda: (-2, 2, 4)),
    (rf"(?:loop|loop grows to) about {N} instructions", LOOP, _loop, _about),
    (rf"{N} -> (?:about )?{N} instructions", LOOP, _loop, lambda _, n: _about(n)),
    (rf"about {N} instructions for 256 HMMA", LOOP, _loop, _about),
    (rf"{N} to {N} registers more", REGISTER_CHANGE, _register_change, lambda a, b: (a, b, (b - a) / 2)),
    (rf"{N} registers(?! fewer| more)", REGISTERS, _registers, lambda n: (n - 4, n + 4, 8)),
    (r"registers unchanged", REGISTER_CHANGE, _register_change, lambda: (-2, 2, 4)),
    (rf"whole kernel {N} % longer", SIZE, _size_change, lambda n: (1 + n / 100 - 0.05, 1 + n / 100 + 0.05, 0.1)),
    (rf"{N} of FA2", SHARE, _share, lambda n: (n - 0.02, n + 0.02, 0.03)),
    (r"four times faster", SPEEDUP, _speedup, lambda: (3.6, 4.4, 0.8)),
    (rf"{N} to {N} % faster", SPEEDUP, _speedup, lambda low, high: (1 + low / 100, 1 + high / 100, 0.02)),
    (rf"{N} % (?:faster |better )?{AT}", SPEEDUP, _speedup, _percent),
    (rf"{N} % (?:faster|in all)(?: there)?", SPEEDUP, _speedup, _percent),
    (rf"time unchanged within {N} %", SPEEDUP, _speedup, _unchanged),
    (rf"(?:time unchanged|nothing to see) {AT}", SPEEDUP, _speedup, _unchanged),
    (r"time unchanged", SPEEDUP, _speedup, _unchanged),
    (r"unchanged with others", SPEEDUP, _unrecorded, _unchanged),
)


def _length(match: re.Match[str], step: Step) -> int:
    """The length that a claim is about: the one named, or for "there" the one named last; else the headline problem's.

    A number below every length that is measured counts KV blocks.
    """
    named = match.groupdict().get("seq")
    if match[0].endswith(" there"):
        named = re.findall(AT, match.string[: match.start()])[-1]
    number = int(named) if named else HEADLINE.seq
    return number if number >= min(LENGTHS) else number * step.version.header.config.B_c


def claims_of(step: Step, parent: Step | None) -> list[Claim]:
    """The claims of one header, in the order of its words. A word belongs to the first form that takes it."""
    text, taken, found = step.version.header.predict, set[int](), list[tuple[int, Claim]]()
    for form, quantity, measured, to_range in FORMS:
        for match in re.finditer(form, text):
            span = set(range(*match.span()))
            if not span & taken:
                taken |= span
                seq_group = match.re.groupindex.get("seq")
                numbers = [float(value) for place, value in enumerate(match.groups(), 1) if place != seq_group]
                seq = _length(match, step)
                came = measured(step, parent, seq)
                at = seq if quantity in (SHARE, SPEEDUP) else None
                found.append((match.start(), Claim(step.name, match[0], quantity, *to_range(*numbers), came, at)))
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
            "–" if claim.seq is None else str(claim.seq),
            f"{shown(claim.low)} … {shown(claim.high)}",
            "–" if claim.measured is None else shown(claim.measured),
            claim.score,
        )
        for claim in claims
    ]
    return Table(("version", "predicted", "quantity", "seq", "counts as a hit", "measured", "score"), rows)


def tally(claims: Sequence[Claim]) -> Table:
    """How many claims of each quantity came true."""
    quantities = list(dict.fromkeys(claim.quantity for claim in claims))
    rows: list[Sequence[Cell]] = [
        (name, *(sum(claim.quantity == name and claim.score == score for claim in claims) for score in SCORES))
        for name in quantities
    ]
    return Table(("quantity", *SCORES), rows)
