"""What is known of every version, from committed files alone: headers, regs/, sass/ and logs/bench/.

    for step in read_steps(root()): print(step.version.version, step.loop("sm_80"), step.speed)

A figure whose file is not there is None and shown as missing; nothing is built or measured here.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from analysis.emulate.traffic import Traffic, read_traffic
from analysis.errors import AnalysisError
from analysis.files import read_text
from analysis.ladder.headers import Version, changed_lines, load_all
from analysis.machine_code.regions import Parts, split
from analysis.machine_code.regs import Row, read_registers, registers_path
from analysis.machine_code.sass import parse_listing
from analysis.measure.records import Problem, Record, RecordError, latest_run, read
from analysis.measure.stats import Interval
from analysis.measure.summary import rows as summary_rows

ARCHS = ("sm_80", "sm_90")
PEER = "fa2"
HEADLINE = Problem("attention", "fp16", 16, 16, 4096, 128, "normal")


@dataclass(frozen=True)
class Speed:
    """A version beside FlashAttention-2 in the newest run of both, on one GPU, at the headline problem."""

    device: str
    tflops: float
    ratio: Interval | None  # speed over FlashAttention-2's


@dataclass(frozen=True)
class Step:
    """One version and what is known of it."""

    version: Version
    parent: Version | None
    changed: int | None  # source lines, None for the first version
    rows: dict[str, Row]  # by architecture, of its own config
    parts: dict[str, Parts]  # by architecture, of its own config
    traffic: Traffic | None
    speeds: dict[str, Speed] = field(default_factory=dict)  # by GPU file: "h200"

    @property
    def name(self) -> str:
        return self.version.version

    def loop(self, arch: str) -> int | None:
        """Instructions of the KV loop."""
        parts = self.parts.get(arch)
        return len(parts.loop) if parts else None

    def loop_per_matrix(self, arch: str) -> float | None:
        """Instructions of the KV loop for each matrix instruction in it."""
        parts = self.parts.get(arch)
        return len(parts.loop) / parts.matrix_count if parts else None

    def registers(self, arch: str) -> int | None:
        return self.rows[arch].registers if arch in self.rows else None


def read_steps(folder: Path) -> list[Step]:
    """Every version in order."""
    versions = load_all(folder)
    traffic, registers = read_traffic(folder), read_registers(folder)
    benches = {path.stem: read(path).records for path in sorted((folder / "logs/bench").glob("*.jsonl"))}
    steps = []
    for name, version in versions.items():
        parent = versions.get(version.header.parent)
        steps.append(
            Step(
                version=version,
                parent=parent,
                changed=changed_lines(parent, version) if parent else None,
                rows=_own_rows(folder, version, registers.get(name, [])),
                parts=_own_parts(folder, version),
                traffic=traffic.get(name),
                speeds={gpu: speed for gpu, records in benches.items() if (speed := headline_speed(records, version))},
            )
        )
    return steps


def _own_rows(folder: Path, version: Version, rows: Sequence[Row]) -> dict[str, Row]:
    """By architecture, the registers of the version's own config; empty where nothing is recorded of the version."""
    own = {row.arch: row for row in rows if row.config == str(version.header.config)}
    lacking = {row.arch for row in rows} - own.keys()
    if lacking:
        raise AnalysisError(
            f"{registers_path(folder)}: {version.version} {min(lacking)} lacks {version.header.config}: "
            f"run `make regs VER={version.version}`"
        )
    return own


def _own_parts(folder: Path, version: Version) -> dict[str, Parts]:
    found = {}
    for arch in ARCHS:
        path = folder / f"sass/{version.version}.{arch}.sass"
        if path.exists():
            found[arch] = split(parse_listing(read_text(path), str(path))[0])
    return found


def headline_speed(records: tuple[Record, ...], version: Version) -> Speed | None:
    """The version's speed at the headline problem in the newest run that holds it and the peer; None without one."""
    config = str(version.header.config)
    mine = [
        record
        for record in records
        if record.problem == HEADLINE
        and ((record.subject == version.version and record.config == config) or record.subject == PEER)
    ]
    try:
        run = latest_run(mine, [version.version, PEER])
    except RecordError:
        return None
    found, _ = summary_rows([record for record in mine if record.run_id == run], against=PEER)
    row = next(row for row in found if row.subject == version.version)
    return Speed(mine[0].device, row.tflops, row.ratio) if row.passed is not False else None
