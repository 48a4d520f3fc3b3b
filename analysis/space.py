"""The configurations of a search, the machine code that some of them share, and the fastest: from committed files.

    space = read_space(root(), "v07")
    len(space.classes), space.winner

regs/tune.vNN.sm_90.csv holds registers and code hashes of `make regs VER=vNN KERNELS=tune`; the records of
`python3 -m analysis autotune` stand in logs/autotune/.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from . import stats
from .config import KernelConfig, parse_short_form
from .overview import HEADLINE
from .records import read
from .regs import Row, read_csv
from .table import Cell, Table

ARCH = "sm_90"


@dataclass(frozen=True)
class Space:
    """Classes are configurations of one machine code and one launch shape, largest class first."""

    version: str
    rows: Mapping[KernelConfig, Row]
    classes: Sequence[tuple[KernelConfig, ...]]
    tflops: Mapping[KernelConfig, float]  # of those measured, at the headline problem; empty before a search

    @property
    def winner(self) -> KernelConfig | None:
        return max(self.tflops, key=lambda config: self.tflops[config]) if self.tflops else None


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


def measured(folder: Path, version: str) -> dict[KernelConfig, float]:
    """TFLOP/s at the headline problem by configuration, from the newest search on the H200."""
    path = folder / f"logs/autotune/h200.{version}.jsonl"
    if not path.exists():
        return {}
    records = [record for record in read(path).records if record.problem == HEADLINE and record.passed is not False]
    newest = max((record.run_id for record in records), default="")
    times: dict[str, list[float]] = {}
    for record in records:
        if record.run_id == newest and record.samples_ns:
            times.setdefault(record.config, []).append(stats.median(record.samples_ns))
    return {parse_short_form(form): HEADLINE.flop() / stats.median(ns) / 1e3 for form, ns in times.items()}


def class_table(space: Space) -> Table:
    """One row a class: its members, registers, spills and, where it was measured, its speed."""
    rows: list[Sequence[Cell]] = []
    for members in space.classes:
        row = space.rows[members[0]]
        speeds = [space.tflops[config] for config in members if config in space.tflops]
        speed = round(max(speeds), 1) if speeds else None
        spilled = row.spill_stores + row.spill_loads
        rows.append((members[0].short_form(), len(members), row.registers, spilled, speed))
    rows.sort(key=lambda row: -float(row[4] or 0))
    return Table(("configuration", "members", "registers", "spill B", "TFLOP/s"), rows)
