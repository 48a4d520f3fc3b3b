"""The claims of the header blocks with what was measured for each: hit, near, miss or not measured.

    for one in judge(read_steps(root())): print(one.version, one.claim.text, one.measured, one.score)

Figures of machine code are those of regs/ and sass/, speeds those of the H200 at the length that is claimed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from analysis.ladder.claims import QUANTITIES, Claim
from analysis.publish.overview import GPU, Step
from analysis.table import Cell, Table

HIT, NEAR, MISS, OPEN = "hit", "near", "miss", "not measured"
SCORES = (HIT, NEAR, MISS, OPEN)
NEARLY = 0.05  # of the figure: a value outside of the range by no more than this is near
OF_PARENT = 2  # tolerances by which a number relative to the parent may miss the range and be near


@dataclass(frozen=True)
class Judged:
    """One claim and what was measured for it."""

    version: str
    claim: Claim
    measured: float | None  # None: not recorded yet

    @property
    def quantity(self) -> str:
        return QUANTITIES[self.claim.quantity]

    @property
    def middle(self) -> float:
        return (self.claim.low + self.claim.high) / 2

    @property
    def score(self) -> str:
        if self.measured is None:
            return OPEN
        if self.claim.low <= self.measured <= self.claim.high:
            return HIT
        off = max(self.claim.low - self.measured, self.measured - self.claim.high)
        limits = [] if self.claim.quantity in CHANGES else [NEARLY * abs(self.measured)]
        if self.claim.quantity in CHANGES | RATIOS:
            limits.append(OF_PARENT * (self.claim.high - self.claim.low) / 2)
        return NEAR if off <= min(limits) else MISS


def figure(quantity: str, location: str, step: Step) -> float | None:
    """A recorded quantity of one version: `loop`, `registers`, `code` (instructions of the entire kernel) or `fa2`."""
    if quantity == "loop":
        return step.loop(location)
    if quantity == "registers":
        return step.registers(location)
    if quantity == "code":
        return step.lengths_of_code[location].kernel if location in step.lengths_of_code else None
    speed = step.lengths.get(GPU, {}).get(int(location))
    return speed.ratio.mid if speed and speed.ratio else None


# A quantity that compares with the parent, and the number that it compares. A gain in speed is that of one run.
CHANGES = {"loop_change": "loop", "registers_change": "registers"}
RATIOS = {"code_ratio": "code", "speedup": ""}


def measured_for(claim: Claim, step: Step, parent: Step | None) -> float | None:
    """The number that the claim is about; None where one that it needs is not recorded."""
    if claim.quantity == "speedup":
        return step.gain(int(claim.location))
    name = CHANGES.get(claim.quantity) or RATIOS.get(claim.quantity)
    if name is None:
        return figure(claim.quantity, claim.location, step)
    after = figure(name, claim.location, step)
    before = figure(name, claim.location, parent) if parent else None
    if after is None or before is None:
        return None
    return after - before if claim.quantity in CHANGES else after / before


def judge(steps: Sequence[Step]) -> list[Judged]:
    """Every claim of every header about the ladder's own problem."""
    by_name = {step.name: step for step in steps}
    return [
        Judged(step.name, claim, measured_for(claim, step, by_name.get(step.version.header.parent)))
        for step in steps
        for claim in step.version.header.claims
    ]


def shown(value: float) -> str:
    """Three decimals for ratios, none for counts."""
    return f"{value:.3f}" if abs(value) < 10 and value != int(value) else f"{value:.0f}"


def table(judged: Sequence[Judged]) -> Table:
    """One row per claim."""
    rows: list[Sequence[Cell]] = [
        (
            one.version,
            one.quantity,
            one.claim.location,
            f"{shown(one.claim.low)} … {shown(one.claim.high)}",
            "–" if one.measured is None else shown(one.measured),
            one.score,
        )
        for one in judged
    ]
    return Table(("version", "predicted", "at", "counts as a hit", "measured", "score"), rows)


def tally(judged: Sequence[Judged]) -> Table:
    """The number of claims of each quantity that hold."""
    quantities = list(dict.fromkeys(one.quantity for one in judged))
    rows: list[Sequence[Cell]] = [
        (name, *(sum(one.quantity == name and one.score == score for one in judged) for score in SCORES))
        for name in quantities
    ]
    return Table(("quantity", *SCORES), rows)
