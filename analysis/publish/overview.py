"""Data of every version from committed files: headers, regs/, sass/ and logs/bench/.

    for step in read_steps(root()): print(step.version.version, step.loop("sm_90"), step.speed)

A figure whose file is not there is None and shown as missing; nothing is built or measured here.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from pathlib import Path

from analysis.errors import AnalysisError
from analysis.files import read_text
from analysis.ladder.config import Dtype, KernelConfig
from analysis.ladder.headers import Version, changed_lines, load_all
from analysis.machine_code.bounds import executed_opcodes
from analysis.machine_code.loops import REST, Part, parts_of, read_loops
from analysis.machine_code.opcodes import MATRIX, WARP_GROUP
from analysis.machine_code.regions import Parts
from analysis.machine_code.regs import Row, read_registers, registers_path
from analysis.machine_code.sass import parse_listing
from analysis.machine_code.traffic import Traffic, read_traffic
from analysis.measure.executables import standard_batch
from analysis.measure.records import Problem, Record, RecordError, latest_run, records_in
from analysis.measure.stats import Interval
from analysis.measure.summary import Row as Measured
from analysis.measure.summary import rows as summary_rows

ARCHS = ("sm_80", "sm_90")
LISTED = ARCHS[-1]  # sass/ keeps the code that was measured; of others regs/loops.csv has the lengths
PEER = "fa2"
GPU = "h200"  # whose speeds the pages show
HEADLINE = Problem("attention", "fp16", 16, 16, 4096, 128, "normal")
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
TOKENS = 16384  # rows of a problem of the second size


def problem_at(seq: int, dtype: str = "fp16") -> Problem:
    """The headline problem at another length, with the batch that the protocol takes there, or with another type."""
    return replace(HEADLINE, seq=seq, batch=standard_batch(seq), dtype=dtype)


def problem_of_tokens(seq: int, dtype: str = "fp16") -> Problem:
    """The second size: as many rows at every length, as FlashAttention-3 reports its speed."""
    return replace(HEADLINE, seq=seq, batch=TOKENS // seq, dtype=dtype)


@dataclass(frozen=True)
class Speed:
    """A version next to FlashAttention-2 in the newest run of both, on one GPU, at one problem."""

    device: str
    tflops: float
    ratio: Interval | None  # speed divided by FlashAttention-2's
    sm_ghz: float | None = None


@dataclass(frozen=True)
class Lengths:
    """Instructions of a kernel: of its KV loop, the matrix instructions in it, and all."""

    loop: int
    matrix: int
    kernel: int


@dataclass(frozen=True)
class Step:
    """One version and what is known of it."""

    version: Version
    parent: Version | None
    changed: int | None  # source lines, None for the first version
    rows: dict[str, Row]  # by architecture, of its own config
    parts: dict[str, Parts]  # by architecture, of its own config: one, that of `arch`
    lengths_of_code: dict[str, Lengths]  # by architecture, of its own config
    traffic: Traffic | None
    speeds: dict[str, Speed] = field(default_factory=dict)  # at the headline problem, by GPU file: "h200"
    lengths: dict[str, dict[int, Speed]] = field(default_factory=dict)  # of one run, by GPU file and seq
    gains: dict[str, dict[int, float]] = field(default_factory=dict)  # speed over the parent's, by GPU file and seq

    @property
    def name(self) -> str:
        return self.version.version

    def gain(self, seq: int = HEADLINE.seq) -> float | None:
        """Its speed divided by its parent's in one run that holds both; every page prints this value."""
        return self.gains.get(GPU, {}).get(seq)

    def arch_in(self, column: str) -> str:
        """The architecture whose numbers a column of ARCHS shows: sm_90a for sm_90 where it is the only one."""
        own = self.version.header.arch
        return own if self.version.one_arch and own.removesuffix("a") == column else column

    @property
    def arch(self) -> str:
        """The architecture whose disassembly is committed."""
        return self.arch_in(LISTED)

    def unit(self, arch: str) -> str:
        """The unit of the metrics of a loop: HMMA, or HGMMA if warpgroups multiply."""
        parts = self.parts.get(arch)
        return "HGMMA" if parts and parts.graph.matrix is WARP_GROUP else "HMMA"

    def loop(self, arch: str) -> int | None:
        """Instructions of the KV loop."""
        code = self.lengths_of_code.get(arch)
        return code.loop if code else None

    def loop_per_matrix(self, arch: str) -> float | None:
        """Instructions of the KV loop for each matrix instruction in it; None where it has none."""
        code = self.lengths_of_code.get(arch)
        return code.loop / code.matrix if code and code.matrix else None

    def executed_per_matrix(self, arch: str) -> float | None:
        """Instructions that a pass of the KV loop executes, on average, for each matrix instruction.

        Every pass executes the same number of HMMA, though the loop may hold a second copy of some for masked blocks.
        """
        parts = self.parts.get(arch)
        if not parts or not parts.matrix_count:
            return None
        found = executed_opcodes(parts)
        matrix = parts.matrix_count if parts.graph.matrix is WARP_GROUP else sum(found.get(base, 0) for base in MATRIX)
        return sum(found.values()) / matrix

    def registers(self, arch: str) -> int | None:
        return self.rows[arch].registers if arch in self.rows else None


def read_steps(folder: Path) -> list[Step]:
    """Every version in order."""
    versions = load_all(folder)
    traffic, registers, loops = read_traffic(folder), read_registers(folder), read_loops(folder)
    measured = {path.stem: _measured(path, versions) for path in sorted((folder / "logs/bench").glob("*.jsonl"))}
    steps = []
    for name, version in versions.items():
        mine = {
            gpu: {seq: found[name] for seq, found in by_seq.items() if name in found}
            for gpu, (_, by_seq, _) in measured.items()
        }
        parent, parts = versions.get(version.header.parent), _own_parts(folder, version)
        steps.append(
            Step(
                version=version,
                parent=parent,
                changed=changed_lines(parent, version) if parent else None,
                rows=_own_rows(folder, version, registers.get(name, [])),
                parts={arch: found for arch, found in parts.items() if arch.startswith(LISTED)},
                lengths_of_code=_lengths_of_code(version, loops, parts),
                traffic=traffic.get(name),
                speeds={gpu: standard[name] for gpu, (standard, _, _) in measured.items() if name in standard},
                lengths={gpu: found for gpu, found in mine.items() if found},
                gains={gpu: gains[name] for gpu, (_, _, gains) in measured.items() if gains.get(name)},
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
    for arch in version.archs(ARCHS):
        path = folder / f"sass/{version.version}.{arch}.sass"
        if path.exists():
            found[arch] = _parts_of_text(read_text(path), str(path))
    return found


def _lengths_of_code(
    version: Version, loops: Mapping[tuple[str, str], Sequence[Part]], parts: Mapping[str, Parts]
) -> dict[str, Lengths]:
    """By architecture: from the listing where there is one, else from the record of the loops."""
    found = {}
    for arch in version.archs(ARCHS):
        recorded = loops.get((version.version, arch), [])
        running = max((part for part in recorded if part.part != REST), key=lambda part: part.passes, default=None)
        if own := parts.get(arch):
            found[arch] = Lengths(len(own.loop), own.matrix_count, len(own.listing.body))
        elif running:
            whole = sum(part.figures.instructions for part in recorded)
            found[arch] = Lengths(running.figures.instructions, running.figures.matrix, whole)
    return found


Figures = tuple[dict[str, Speed], dict[int, dict[str, Speed]], dict[str, dict[int, float]]]


def _measured(path: Path, versions: Mapping[str, Version]) -> Figures:
    """Speeds in the standard problem, by length, and gains: kept while the file and the versions stay the same."""
    state = path.stat()
    return _measured_in(path, state.st_mtime_ns, state.st_size, tuple(versions.values()))


@lru_cache(8)
def _measured_in(path: Path, _changed: int, _size: int, versions: tuple[Version, ...]) -> Figures:
    records, by_name = records_in(path), {version.version: version for version in versions}
    standard = speeds_at(records, HEADLINE, by_name)
    return standard, lengths_in(records, by_name), gains_in(records, by_name)


@cache
def _parts_of_text(text: str, name: str) -> Parts:
    """Kept: most of the time of read_steps() goes into listings, which several readers ask for."""
    return parts_of(parse_listing(text, name)[0])


def newest_rows(
    records: Iterable[Record], problem: Problem, versions: Mapping[str, Version], subjects: Sequence[str]
) -> dict[str, Measured]:
    """Each subject's row in the newest run that holds it and FlashAttention-2; one that no such run holds is left out.

    A version counts in its own configuration alone, with the problem's type. Give all versions, also those that are not
    asked for: the scatter of all that a run holds makes the width of each interval.
    """
    mine = own_records(records, problem, versions)
    by_run: dict[str, list[str]] = {}
    for subject in subjects:
        try:
            by_run.setdefault(latest_run(mine, [subject, PEER]), []).append(subject)
        except RecordError:
            continue
    found: dict[str, Measured] = {}
    for run, there in by_run.items():
        rows, _ = summary_rows([record for record in mine if record.run_id == run], against=PEER, of=there)
        found |= {row.subject: row for row in rows if row.passed is not False}
    return {subject: found[subject] for subject in subjects if subject in found}


def own_records(records: Iterable[Record], problem: Problem, versions: Mapping[str, Version]) -> list[Record]:
    """The records of the problem: of libraries, and of versions in their own configuration with the problem's type."""
    dtype = Dtype[problem.dtype.upper()]
    configs = {name: _of_type(version.header.config, dtype) for name, version in versions.items()}
    return [
        record
        for record in records
        if record.problem.seq == problem.seq  # most differ in that
        and record.problem == problem
        and (record.is_peer or configs.get(record.subject) == record.config)
    ]


@cache
def _of_type(config: KernelConfig, dtype: Dtype) -> str:
    """The short form of the configuration with that type."""
    return str(config.replace(dtype=dtype))


def run_of_row(records: Iterable[Record], subjects: Sequence[str], problems: Sequence[Problem]) -> str | None:
    """The newest run that holds all subjects at all problems, for a row of figures that one day made."""
    wanted = {(subject, problem) for subject in subjects for problem in problems}
    there: dict[str, set[tuple[str, Problem]]] = {}
    heated = set()
    for record in records:
        there.setdefault(record.run_id, set()).add((record.subject, record.problem))
        if record.raw.get("energy"):
            heated.add(record.run_id)
    return max((run for run, found in there.items() if run not in heated and wanted <= found), default=None)


def of_one_run(records: Sequence[Record], subjects: Sequence[str], problems: Sequence[Problem]) -> Sequence[Record]:
    """The records of that run; all where there is none."""
    run = run_of_row(records, subjects, problems)
    return [record for record in records if record.run_id == run] if run else records


def newest_ratio(records: Sequence[Record], subject: str, reference: str) -> Interval | None:
    """Speed of one subject divided by another's, in the newest run of both.

    `records` are all of one problem, those of other subjects too: the run's scatter makes the width of the interval.
    """
    try:
        run = latest_run(records, [subject, reference])
    except RecordError:
        return None
    rows, _ = summary_rows([record for record in records if record.run_id == run], against=reference, of=[subject])
    return rows[0].ratio


def speeds_at(records: Sequence[Record], problem: Problem, versions: Mapping[str, Version]) -> dict[str, Speed]:
    """The speed of every version that was measured at the problem.

    It comes from the newest run that also holds FlashAttention-2, or else from the newest run, without a ratio.
    """
    rows = newest_rows(records, problem, versions, list(versions))
    found = {name: speed_of(records, row) for name, row in rows.items()}
    own = own_records(records, problem, versions)
    for name in versions.keys() - found.keys():
        mine = [record for record in own if record.subject == name and record.passed is not False]
        if mine:
            newest = [record for record in mine if record.run_id == latest_run(mine, [name])]
            (row,), _ = summary_rows(newest, against=name, of=[name])
            found[name] = replace(speed_of(newest, row), ratio=None)
    return found


def speed_of(records: Sequence[Record], row: Measured) -> Speed:
    return Speed(records[0].device, row.tflops, row.ratio, row.sm_ghz)


def lengths_in(records: Sequence[Record], versions: Mapping[str, Version]) -> dict[int, dict[str, Speed]]:
    """The speed of every version at every length: a version's are those of one run where one holds them all."""
    problems = [problem_at(seq) for seq in LENGTHS]
    own = [record for problem in problems for record in own_records(records, problem, versions)]
    by_run: dict[str | None, dict[str, Version]] = {}
    for name, version in versions.items():
        pair = (name, PEER)
        run = run_of_row([record for record in own if record.subject in pair], pair, problems)
        by_run.setdefault(run, {})[name] = version
    found: dict[int, dict[str, Speed]] = {seq: {} for seq in LENGTHS}
    for run, mine in by_run.items():
        there = [record for record in own if run in (None, record.run_id)]
        for seq, problem in zip(LENGTHS, problems, strict=True):
            rows = newest_rows(there, problem, versions, list(mine))
            found[seq] |= {name: speed_of(there, row) for name, row in rows.items()}
    return found


def gains_in(records: Sequence[Record], versions: Mapping[str, Version]) -> dict[str, dict[int, float]]:
    """By version and length, its speed divided by its parent's; fp16, 16 heads.

    In the newest run that holds both at all lengths; where there is none, at each length in the newest of both.
    """
    found: dict[str, dict[int, float]] = {name: {} for name in versions}
    problems = {seq: problem_at(seq) for seq in LENGTHS}
    by_subject: dict[str, list[Record]] = {}
    for problem in problems.values():
        for record in own_records(records, problem, versions):
            by_subject.setdefault(record.subject, []).append(record)
    for name, version in versions.items():
        pair = [version.header.parent, name]
        both = [record for one in pair for record in by_subject.get(one, [])]
        mine = of_one_run(both, pair, list(problems.values()))
        for seq, problem in problems.items():
            measured = newest_ratio([record for record in mine if record.problem == problem], name, pair[0])
            if measured:
                found[name][seq] = measured.mid
    return found
