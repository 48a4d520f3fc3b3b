"""The configurations of a search, the machine code that some of them share, and the fastest: from committed files.

    space = read_space(root(), "v07")
    len(space.classes), space.winner

regs/tune.vNN.sm_90.csv, or sm_90a, holds registers and code hashes of `make regs VER=vNN KERNELS=tune`; the records of
`python3 -m analysis autotune` are in logs/autotune/, one file per GPU and version.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from analysis.ladder.config import FIELDS, Dtype, KernelConfig, parse_short_form
from analysis.ladder.headers import load_all
from analysis.machine_code.regs import Row, read_csv, read_registers
from analysis.measure import stats
from analysis.measure.records import Problem, Record, read
from analysis.measure.summary import round_of
from analysis.table import Cell, Table

GPU = "h200"
HEADLINE = Problem("attention", "fp16", 16, 16, 4096, 128, "normal")

HEADERS = "the header's"


@dataclass(frozen=True)
class Space:
    """Classes are configurations of one machine code and one launch shape, largest class first."""

    version: str
    rows: Mapping[KernelConfig, Row]
    classes: Sequence[tuple[KernelConfig, ...]]
    stages: Mapping[KernelConfig, "Stages"]  # of those measured, at the problem; empty before a search
    problem: Problem = HEADLINE
    hashes: Mapping[KernelConfig, str] = field(default_factory=dict)  # machine code of those measured

    @property
    def winner(self) -> KernelConfig | None:
        return max(self.stages, key=self.location) if self.stages else None

    def location(self, config: KernelConfig) -> tuple[int, float]:
        """The last stage that a measured configuration took part in, and its TFLOP/s there: larger is better.

        Stages do not compare by time: the clock falls during a search.
        """
        last = max(self.stages[config])
        times = [one.median_ns() for one in self.stages[config][last].values()]
        return last, self.problem.flop() / stats.median(times) / 1e3

    def slower(self, config: KernelConfig) -> stats.Interval | None:
        """A configuration's time over the winner's, in the rounds of the last stage that both took part in."""
        if self.winner is None or config not in self.stages:
            return None
        last = max(self.stages[config])
        found = stats.ratio(self.stages[config][last], self.stages[self.winner][last])
        return found[0] if found else None

    def measured_as(self, config: KernelConfig, code_hash: str | None) -> KernelConfig:
        """The configuration that was measured instead: itself, or the one of its class with this machine code."""
        if config in self.stages:
            return config
        return next((one for one, known in self.hashes.items() if known == code_hash), config)


Stages = dict[int, dict[tuple[str, int], stats.Round]]  # by stage, then by run and round


def read_space(folder: Path, version: str, dtype: str = "FP16") -> Space:
    """The space of one element type, with the search at the headline problem; empty where nothing is recorded."""
    paths = sorted((folder / "regs").glob(f"tune.{version}.sm_90*.csv"))
    rows = {parse_short_form(row.config): row for path in paths for row in read_csv(path)}
    rows = {config: row for config, row in sorted(rows.items()) if config.dtype.name == dtype}
    groups: dict[tuple[object, ...], list[KernelConfig]] = {}
    for config, row in rows.items():
        groups.setdefault((row.code_hash, config.B_r, config.n_warps, config.smem_bytes()), []).append(config)
    classes = sorted((tuple(members) for members in groups.values()), key=lambda members: (-len(members), members))
    searches = {space.problem: space for space in searched(folder, version)}
    found = searches.get(HEADLINE) or Space(version, {}, [], {})
    return Space(version, rows, classes, found.stages, found.problem, found.hashes)


def searched(folder: Path, version: str, gpu: str = GPU) -> list[Space]:
    """The newest search of a version on that GPU at each problem, without what it did not measure."""
    path = folder / f"logs/autotune/{gpu}.{version}.jsonl"
    by_problem: dict[Problem, list[Record]] = {}
    for record in read(path).records if path.exists() else ():
        if record.passed is not False and record.samples_ns:
            by_problem.setdefault(record.problem, []).append(record)
    order = sorted(by_problem, key=lambda problem: (problem.dtype != HEADLINE.dtype, problem))
    return [_of_newest(version, problem, by_problem[problem]) for problem in order]


def _of_newest(version: str, problem: Problem, records: Sequence[Record]) -> Space:
    newest = max(record.run_id for record in records)
    stages: dict[KernelConfig, Stages] = {}
    hashes: dict[KernelConfig, str] = {}
    for record in records:
        if record.run_id == newest:
            config = parse_short_form(record.config)
            stages.setdefault(config, {}).setdefault(record.run["stage"], {})[newest, record.round] = round_of(record)
            hashes[config] = str(record.raw.get("code_hash"))
    return Space(version, {}, [], stages, problem, hashes)


def winners_table(folder: Path) -> Table:
    """The fastest configuration of every search, and how the header's compares with it."""
    rows: list[Sequence[Cell]] = []
    registers = read_registers(folder)
    for name, version in load_all(folder).items():
        hashes = {row.config: row.code_hash for row in registers.get(name, []) if row.arch.startswith("sm_90")}
        for path in sorted((folder / "logs/autotune").glob(f"*.{name}.jsonl")):
            gpu = path.name.split(".")[0]
            for space in searched(folder, name, gpu):
                own = version.header.config.replace(dtype=Dtype[space.problem.dtype.upper()])
                found = _winner_next_to_default(space, own, hashes.get(str(own)))
                rows.append((name, gpu.upper(), space.problem.dtype, space.problem.seq, *found))
    return Table(("version", "GPU", "type", "length", "fastest", "TFLOP/s", "header's time / fastest's"), rows)


def _winner_next_to_default(space: Space, own: KernelConfig, code_hash: str | None) -> Sequence[Cell]:
    """The features that only the fastest configuration has, its TFLOP/s, and the header's time divided by its time."""
    winner, same = space.winner, space.measured_as(own, code_hash)
    assert winner is not None, "a search holds what it measured"
    tflops = round(space.location(winner)[1], 1)
    if same == winner:
        return (HEADERS, tflops, None)
    changed = [f"{one} {getattr(winner, one)}" for one in FIELDS if getattr(winner, one) != getattr(same, one)]
    return (", ".join(changed), tflops, str(space.slower(same) or "not measured"))


def class_table(space: Space) -> Table:
    """One row per class: its members, registers, spills and, where it was measured, its speed."""
    rows: list[Sequence[Cell]] = []
    for members in space.classes:
        row = space.rows[members[0]]
        stage, speed = max(
            (space.location(config) for config in members if config in space.stages), default=(None, None)
        )
        spilled = row.spill_stores + row.spill_loads
        measured_speed = None if speed is None else round(speed, 1)
        rows.append((members[0].short_form(), len(members), row.registers, spilled, stage, measured_speed))
    rows.sort(key=lambda row: (-float(row[4] or 0), -float(row[5] or 0)))
    return Table(("configuration", "members", "registers", "spill B", "last stage", "TFLOP/s"), rows)
