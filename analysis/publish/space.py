"""The configurations of a search, the machine code that some of them share, and the fastest: from committed files.

    space = read_space(root(), "v07")
    len(space.classes), space.winner

regs/tune.vNN.sm_90.csv holds registers and code hashes of `make regs VER=vNN KERNELS=tune`; the records of
`python3 -m analysis autotune` stand in logs/autotune/.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from analysis.ladder.config import KernelConfig, parse_short_form
from analysis.ladder.headers import load_all
from analysis.machine_code.regs import Row, read_csv
from analysis.measure import stats
from analysis.measure.records import read
from analysis.measure.summary import round_of
from analysis.publish.overview import HEADLINE
from analysis.table import Cell, Table

ARCH = "sm_90"


@dataclass(frozen=True)
class Space:
    """Classes are configurations of one machine code and one launch shape, largest class first."""

    version: str
    rows: Mapping[KernelConfig, Row]
    classes: Sequence[tuple[KernelConfig, ...]]
    stages: Mapping[KernelConfig, "Stages"]  # of those measured, at the headline problem; empty before a search

    @property
    def winner(self) -> KernelConfig | None:
        return max(self.stages, key=self.place) if self.stages else None

    def place(self, config: KernelConfig) -> tuple[int, float]:
        """The last stage that a measured configuration took part in, and its TFLOP/s there: larger is better.

        Stages do not compare by time: the clock falls during a search.
        """
        last = max(self.stages[config])
        times = [one.median_ns() for one in self.stages[config][last].values()]
        return last, HEADLINE.flop() / stats.median(times) / 1e3

    def slower(self, config: KernelConfig) -> stats.Interval | None:
        """A configuration's time over the winner's, in the rounds of the last stage that both took part in."""
        if self.winner is None or config not in self.stages:
            return None
        last = max(self.stages[config])
        found = stats.ratio(self.stages[config][last], self.stages[self.winner][last])
        return found[0] if found else None


Stages = dict[int, dict[tuple[str, int], stats.Round]]  # by stage, then by run and round


def read_space(folder: Path, version: str, dtype: str = "FP16") -> Space:
    """The space of one element type; empty where nothing is recorded."""
    path = folder / f"regs/tune.{version}.{ARCH}.csv"
    rows = {parse_short_form(row.config): row for row in read_csv(path)} if path.exists() else {}
    rows = {config: row for config, row in sorted(rows.items()) if config.dtype.name == dtype}
    groups: dict[tuple[object, ...], list[KernelConfig]] = {}
    for config, row in rows.items():
        groups.setdefault((row.code_hash, config.B_r, config.n_warps, config.smem_bytes()), []).append(config)
    classes = sorted((tuple(members) for members in groups.values()), key=lambda members: (-len(members), members))
    return Space(version, rows, classes, measured(folder, version))


def measured(folder: Path, version: str) -> dict[KernelConfig, Stages]:
    """The rounds of the newest search on the H200 at the headline problem; those with a wrong result are left out."""
    path = folder / f"logs/autotune/h200.{version}.jsonl"
    if not path.exists():
        return {}
    records = [record for record in read(path).records if record.problem == HEADLINE and record.passed is not False]
    newest = max((record.run_id for record in records), default="")
    found: dict[KernelConfig, Stages] = {}
    for record in records:
        if newest and record.run_id == newest and record.samples_ns:
            stages = found.setdefault(parse_short_form(record.config), {})
            stages.setdefault(record.run["stage"], {})[newest, record.round] = round_of(record)
    return found


def winners_table(folder: Path) -> Table:
    """docs/configurations.md's table: the search of every version that has one, and what its header says instead."""
    rows: list[Sequence[Cell]] = []
    for name, version in load_all(folder).items():
        space = read_space(folder, name)
        if space.winner is None:
            continue
        own, tflops = version.header.config, round(space.place(space.winner)[1], 1)
        slower = "the winner" if own == space.winner else str(space.slower(own) or "not measured")
        rows.append((name, space.winner.short_form(), tflops, own.short_form(), slower))
    return Table(("version", "fastest", "TFLOP/s", "header", "header's time / fastest's"), rows)


def class_table(space: Space) -> Table:
    """One row per class: its members, registers, spills and, where it was measured, its speed."""
    rows: list[Sequence[Cell]] = []
    for members in space.classes:
        row = space.rows[members[0]]
        stage, speed = max((space.place(config) for config in members if config in space.stages), default=(None, None))
        spilled = row.spill_stores + row.spill_loads
        measured_speed = None if speed is None else round(speed, 1)
        rows.append((members[0].short_form(), len(members), row.registers, spilled, stage, measured_speed))
    rows.sort(key=lambda row: (-float(row[4] or 0), -float(row[5] or 0)))
    return Table(("configuration", "members", "registers", "spill B", "last stage", "TFLOP/s"), rows)
