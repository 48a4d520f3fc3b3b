"""The error of the predictions, and the numbers that are fitted to measurements.

    cases = cases_of(root(), "h200", read_tiles(root()))
    found = leave_one_out(of_fit(cases), read_machine("h200"))
    found.cycles, found.time    # predicted / measured - 1 of each case, with numbers that the other versions chose

Measured cycles are the median over records of the median of time times SM clock of a sample, in fp16 with heads of 128.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import inf
from pathlib import Path

from analysis.ladder.config import Dtype, KernelConfig
from analysis.measure.records import Record, records_in
from analysis.measure.stats import median
from analysis.predict.clock import ENERGIES, REFERENCE, clock_of, work
from analysis.predict.launch import Shape, launch_cycles, passes_in
from analysis.predict.machine import Machine
from analysis.predict.tiles import FITTED_BY, Tiles

FOLDERS = ("bench", "general", "fp8")  # below logs/
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
BELOW_LIMIT = 0.99  # of the highest clock: a case whose clock is lower is bound by power
DIFFERENT = 0.01  # versions whose cycles differ by less have no order
FITTED: Mapping[str, Sequence[float]] = {
    "excess": (1.0, 1.1, 1.2, 1.3, 1.4, 1.6),
    "launch_us": (12.5, 15.0, 17.5, 20.0, 22.5),
    "crowd_bytes": (20.0, 24.0, 27.0, 30.0, 38.0, 64.0),
}


@dataclass(frozen=True)
class Case:
    """A version at a problem: cycles and SM clock that were measured."""

    tiles: Tiles
    shape: Shape
    cycles: float
    hz: float
    span: tuple[float, float] = (inf, -inf)  # the least and the most cycles of a record

    @property
    def version(self) -> str:
        return self.tiles.version

    def predicted(self, machine: Machine, hz: float) -> float:
        """Cycles at a clock."""
        tiles = self.tiles
        return launch_cycles(tiles.config, tiles.peeled, tiles.ctas, tiles.of, self.shape, machine, hz)

    def error(self, machine: Machine) -> float:
        """Error of cycles, at the measured clock."""
        return self.predicted(machine, self.hz) / self.cycles - 1

    def clock(self, machine: Machine) -> float:
        tiles = self.tiles
        of_tiles = tiles.config, tiles.peeled, tiles.ctas, tiles.of, tiles.activity
        return clock_of(*of_tiles, self.shape, machine)

    def error_of_time(self, machine: Machine) -> float:
        """Error of time, at the clock of the model."""
        hz = self.clock(machine)
        return self.predicted(machine, hz) / hz / (self.cycles / self.hz) - 1

    def work(self, machine: Machine) -> list[float]:
        """The factor of each of ENERGIES, at the measured clock."""
        cycles, config = self.predicted(machine, self.hz), self.tiles.config
        passes = passes_in(config, self.shape) * config.n_warps / machine.multiprocessors
        return work(self.tiles.activity, cycles, 1e6 * cycles / self.hz, passes, machine)


def cases_of(folder: Path, gpu: str, known: Mapping[str, Tiles]) -> list[Case]:
    """Every version and problem that was measured on a GPU and that the model knows."""
    found: dict[tuple[str, Shape], list[tuple[float, float]]] = {}
    for name in FOLDERS:
        path = folder / f"logs/{name}/{gpu}.jsonl"
        for record in records_in(path) if path.exists() else ():
            tiles = known.get(record.subject)
            if tiles and _fits(record, tiles.config):
                problem = record.problem
                shape = Shape(problem.batch, problem.heads, problem.seq, problem.causal)
                pairs = list(zip(record.samples_ns, record.sm_clock_hz, strict=True))
                cycles, hz = median([ns * clock / 1e9 for ns, clock in pairs]), median([clock for _, clock in pairs])
                found.setdefault((record.subject, shape), []).append((cycles, hz))
    return [
        Case(
            known[version],
            shape,
            median([cycles for cycles, _ in each]),
            median([hz for _, hz in each]),
            (min(each)[0], max(each)[0]),
        )
        for (version, shape), each in sorted(found.items(), key=lambda item: (item[0][0], str(item[0][1])))
    ]


def _fits(record: Record, config: KernelConfig) -> bool:
    problem = record.problem
    fp8 = config.e4m3_inputs
    plain = set(problem.case().split(", ")) <= {"", "causal", "O in bf16"} and problem.dist == "normal"
    timed = bool(record.sm_clock_hz) and record.passed is not False and not record.raw.get("energy")
    of_type = problem.dtype == ("e4m3" if fp8 else "fp16") and problem.heads == 16
    recorded = config.replace(dtype=Dtype.BF16) if fp8 else config
    return plain and timed and of_type and problem.seq in LENGTHS and record.config == str(recorded)


def of_fit(cases: Iterable[Case]) -> list[Case]:
    """The cases to which the numbers are fitted."""
    return [case for case in cases if case.version in FITTED_BY and not case.shape.causal]


def mean_error(errors: Iterable[float]) -> float:
    sizes = [abs(error) for error in errors]
    return sum(sizes) / len(sizes)


class Fit:
    """Chooses the fitted numbers one after another until none changes; errors are kept, as most choices repeat."""

    def __init__(self, cases: Sequence[Case], machine: Machine) -> None:
        self.cases, self.machine = cases, machine
        self.known: dict[tuple[int, tuple[float, ...]], float] = {}
        self.works: dict[tuple[int, tuple[float, ...]], list[float]] = {}

    def error(self, number: int, machine: Machine) -> float:
        key = number, _choice(machine)
        if key not in self.known:
            case = self.cases[number]
            self.known[key] = abs(case.error(machine))
        return self.known[key]

    def best(self, without: str = "") -> Machine:
        """The machine that has the least mean error over all versions but one."""
        chosen = [number for number, case in enumerate(self.cases) if case.version != without]
        machine, before = self.machine, None
        while machine != before:
            before = machine
            for name, values in FITTED.items():
                tried = [machine.with_values(**{name: value}) for value in values]
                machine = min(tried, key=lambda one: sum(self.error(number, one) for number in chosen))
        return self.with_energies(machine, chosen)

    def with_energies(self, machine: Machine, chosen: Sequence[int]) -> Machine:
        """The energies by which those cases draw the limit of power at their clocks: least squares."""
        import numpy as np  # not at the top: a GPU machine may lack it

        bound = [number for number in chosen if self.cases[number].hz < BELOW_LIMIT * machine.clock_limit]
        if len(bound) < len(ENERGIES):
            return machine
        rows = []
        for number in bound:
            key = number, _choice(machine)
            if key not in self.works:
                self.works[key] = self.cases[number].work(machine)
            budget = 1e9 * machine.power * REFERENCE / machine.multiprocessors / self.cases[number].hz ** 2
            rows.append([amount / budget for amount in self.works[key]])
        found = np.linalg.lstsq(np.array(rows), np.ones(len(rows)), rcond=None)[0]
        return replace(machine, energies=dict(zip(ENERGIES, map(float, found), strict=True)))


def _choice(machine: Machine) -> tuple[float, ...]:
    return tuple(getattr(machine, name) for name in FITTED)


@dataclass(frozen=True)
class LeftOut:
    """Errors of each version with numbers that the others chose, and what was chosen for each number."""

    cycles: dict[Case, float]
    time: dict[Case, float]
    chosen: dict[str, set[float]]


def leave_one_out(cases: Sequence[Case], machine: Machine) -> LeftOut:
    fit = Fit(cases, machine)
    found = LeftOut({}, {}, {name: set() for name in (*FITTED, *ENERGIES)})
    for version in sorted({case.version for case in cases}):
        own = fit.best(without=version)
        for name in FITTED:
            found.chosen[name].add(getattr(own, name))
        for name in ENERGIES:
            found.chosen[name].add(own.energies[name])
        mine = [case for case in cases if case.version == version]
        found.cycles.update({case: case.error(own) for case in mine})
        found.time.update({case: case.error_of_time(own) for case in mine})
    return found


@dataclass(frozen=True)
class Order:
    """Pairs of versions at one problem whose cycles differ by more than a limit."""

    pairs: int
    right: int  # in the order that was measured
    unclear: int  # of the others: records of both versions overlap, so their order is not known either

    @property
    def share(self) -> float:
        return self.right / self.pairs


def order(errors: Mapping[Case, float], different: float = DIFFERENT) -> Order:
    by_shape: dict[Shape, list[Case]] = {}
    for case in errors:
        by_shape.setdefault(case.shape, []).append(case)
    pairs = right = unclear = 0
    for here in by_shape.values():
        for a, b in combinations(here, 2):
            if abs(a.cycles / b.cycles - 1) > different:
                pairs += 1
                agree = (a.cycles < b.cycles) == (a.cycles * (1 + errors[a]) < b.cycles * (1 + errors[b]))
                right += agree
                unclear += not agree and max(a.span[0], b.span[0]) <= min(a.span[1], b.span[1])
    return Order(pairs, right, unclear)
