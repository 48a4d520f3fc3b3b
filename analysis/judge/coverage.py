"""Tracks which stores of a kernel the replays reached, and which outcomes of its tests of data.

    coverage = Coverage()
    coverage.add(ptx_of_call(recording), results)     # for each case
    for point in coverage.points(): verdict.reserve(point)

Code that no input reached was not judged. A kernel that is wrong for one secret value has such a store, or such a test.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from analysis.judge import work
from analysis.judge.dataflow import Flow, kernel_lines
from analysis.judge.outcomes import marked, outcomes_of
from analysis.judge.replay import Replayed
from analysis.judge.verdict import Point

SHOWN = 3


@dataclass
class KernelCoverage:
    """One kernel of one module, in all cases."""

    kernel: str
    flow: Flow
    tests: dict[tuple[int, int], str]  # of data, by line and number in the line
    reached: set[str] = field(default_factory=set)  # instructions
    never: set[str] = field(default_factory=set)
    outcomes: set[tuple[int, int, bool]] = field(default_factory=set)

    def hidden_stores(self) -> list[str]:
        """Stores that no input reached, and that other data may reach."""
        never = sorted(self.never - self.reached)
        return [name for name in never if work.is_store(name) and self.flow.depends_on_data(work.line_of(name))]

    def one_sided_tests(self) -> list[str]:
        """Tests of data that ran and had the same outcome for every input."""
        had = {key: [outcome for *at, outcome in self.outcomes if tuple(at) == key] for key in self.tests}
        return [
            f"{self.tests[key]} at line {key[0]}, always {str(found[0]).lower()}"
            for key, found in sorted(had.items())
            if len(found) == 1
        ]


class Coverage:
    """All kernels of a judgment."""

    def __init__(self) -> None:
        self.kernels: dict[tuple[str, str], KernelCoverage] = {}

    def add(self, kernels: Iterable[tuple[str, str]], results: Sequence[Replayed]) -> None:
        """Take in the replays of a case; kernels are their names and the text of their modules."""
        for kernel, ptx in kernels:
            key = kernel, hashlib.sha256(ptx.encode(errors="surrogateescape")).hexdigest()
            if key not in self.kernels:
                tests = {(line, n): text for (of, line, n), text in marked(ptx)[1].items() if of in (kernel, "")}
                self.kernels[key] = KernelCoverage(kernel, Flow(kernel_lines(ptx, kernel)), tests)
            known = self.kernels[key]
            for launch in (each for result in results for each in result.launches if each["kernel"] == kernel):
                known.reached.update(launch["executed"])
                known.never.update(launch["never"])
                known.outcomes |= outcomes_of(launch)

    def points(self) -> list[Point]:
        """Return a reservation for each store and each outcome that no replay reached."""
        found = []
        for each in self.kernels.values():
            for mechanism, names in (
                ("unreached store", each.hidden_stores()),
                ("one-sided test", each.one_sided_tests()),
            ):
                if names:
                    left = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
                    found.append(Point(mechanism, f"{', '.join(names[:SHOWN])}{left} of {each.kernel}"))
        return found
