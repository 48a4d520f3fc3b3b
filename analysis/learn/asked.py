"""The requirements of an exercise, each with the sentence that explains how it is missed.

    for line in findings()(runs): print(line.text)

A check of a kernel is a function of its runs; one of an answer compares a number with a figure of the repository.
"""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from analysis.learn.kernel_run import SILENT, Run

SHOWN, WIDTH = 9, 180  # lines of a finding, and characters of a line: a wgmma names a hundred registers


@dataclass(frozen=True)
class Line:
    """The result of one check; `kind` is "results", a class of findings such as "race", or the name of a metric."""

    kind: str
    ok: bool
    text: str


Check = Callable[[Sequence[Run]], Line]


def results() -> Check:
    """Every output is within the tolerance of the float64 reference."""

    def check(runs: Sequence[Run]) -> Line:
        wrong = next((run for run in runs if not run.error <= 1), None)
        run = wrong or max(runs, key=lambda each: each.error)
        if math.isinf(run.error):
            return Line("results", False, f"results ({run.case}): an output is missing, infinite or no number")
        text = f"results ({run.case}): the largest error is {100 * run.error:.0f} % of the tolerance"
        return Line("results", wrong is None, text if wrong is None else f"{text}, must be at most 100 %")

    return check


def _cut(line: str) -> str:
    """The line without the folder of the file that it names, which is the reader's own."""
    line = re.sub(r"(?<= at )/\S*/(?=[^/\s]+:\d)", "", line)
    return line if len(line) <= WIDTH else line[: WIDTH - 2] + " …"


def findings() -> Check:
    """The emulator finds nothing, in any order of the warps that is tried."""

    def check(runs: Sequence[Run]) -> Line:
        for run in runs:
            if run.status != SILENT:
                said = [_cut(line) for line in run.said.strip().splitlines() if line.strip()]
                more = [f"… and {len(said) - SHOWN} more lines"] if len(said) > SHOWN else []
                return Line(run.finding, False, "\n        ".join([f"findings ({run.case}):", *said[:SHOWN], *more]))
        return Line("findings", True, "findings: none")

    return check


def at_most(kind: str, what: str, measure: Callable[[Run], int], limit: Callable[[Run], int] | int) -> Check:
    """A counter of the last case is at most a limit."""

    def check(runs: Sequence[Run]) -> Line:
        run = runs[-1]
        got, most = measure(run), limit(run) if callable(limit) else limit
        text = f"{what} ({run.case}): {got}"
        return Line(kind, got <= most, text if got <= most else f"{text}, must be at most {most}")

    return check


def at_least(kind: str, what: str, measure: Callable[[Run], int], limit: int) -> Check:
    """A counter of the last case is at least a limit: a solution that leaves work out is none."""

    def check(runs: Sequence[Run]) -> Line:
        got = measure(runs[-1])
        text = f"{what} ({runs[-1].case}): {got}"
        return Line(kind, got >= limit, text if got >= limit else f"{text}, must be at least {limit}")

    return check


def no_bank_conflicts() -> Check:
    """As many wavefronts of shared memory as the same accesses take without bank conflicts."""
    return at_most(
        "wavefronts",
        "wavefronts of shared memory",
        lambda run: run.total("wavefronts"),
        lambda run: run.total("ideal"),
    )


def barriers(most: int) -> Check:
    """At most `most` warps pass __syncthreads()."""
    return at_most("barriers", "warps that pass a barrier of the CTA", lambda run: run.total("executed", "bar"), most)


@dataclass(frozen=True)
class Question:
    """A number to predict: it counts when it is within `tolerance` (a share) of the figure."""

    name: str
    text: str
    figure: Callable[[], float]
    tolerance: float
    where: str  # how to see the figure

    def judge(self, answer: float) -> Line:
        figure = self.figure()
        ok = abs(answer - figure) <= self.tolerance * abs(figure)
        if ok:
            measured = "" if answer == figure else f"; the figure is {figure:g}"
            return Line(self.name, True, f"{self.name} = {answer:g}{measured}: {self.where}")
        by = f" by more than {100 * self.tolerance:.0f} %" if self.tolerance else ""
        return Line(self.name, False, f"{self.name} = {answer:g} is too {'high' if answer > figure else 'low'}{by}")
