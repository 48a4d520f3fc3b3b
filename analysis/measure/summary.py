"""Tables drawn from records: speed and ratio by subject and problem, from the rounds of one run; the command `records`.

print(render(records, args))       # args from add_table_arguments(), with `wide` and `against`
"""

import argparse
import sys
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.errors import DONE, AnalysisError
from analysis.measure import stats
from analysis.measure.plausible import refuse_implausible
from analysis.measure.records import (
    Problem,
    Record,
    RecordError,
    for_gpu,
    latest_run,
    merge,
    one_device,
    read,
    refuse_contradictions,
    write_merged,
)
from analysis.measure.stats import Interval, Round, Series
from analysis.table import Cell, Table, add_table_arguments, emit, print_table
from analysis.table import render as render_table


@dataclass(frozen=True)
class Row:
    """One subject on one problem. `ratio` is its speed divided by the reference's, from the rounds that hold both."""

    subject: str
    problem: Problem
    rounds: int
    samples: int
    tflops: float  # from the median over the rounds' median times
    sm_ghz: float | None
    ratio: Interval | None
    error_over_bound: float | None
    passed: bool | None
    discarded: int
    joules: float | None  # per launch, median over the rounds


def subject_name(record: Record) -> str:
    """The subject, with the label that tells two series of it apart."""
    label = str(record.run.get("label", ""))
    return f"{record.subject} {label}" if label else record.subject


def series(records: Iterable[Record]) -> dict[tuple[str, Problem], dict[tuple[str, int], Round]]:
    """Rounds by subject and problem. Records of wrong results are left out: they are no speed."""
    table: dict[tuple[str, Problem], dict[tuple[str, int], Round]] = {}
    for record in records:
        if record.passed is not False and record.samples_ns:
            mine = table.setdefault((subject_name(record), record.problem), {})
            mine[record.run_id, record.round] = round_of(record)
    return table


def round_of(record: Record) -> Round:
    """The numbers of one round of a record."""
    return Round(record.samples_ns, record.sm_clock_hz, record.discarded, record.timed)


REFERENCES = ("fa2", "fa3", "cudnn")


def references_of(subjects: Sequence[str], against: str | None) -> list[str]:
    """The subjects that ratios are taken to: those asked for, else the libraries, else the first."""
    asked = [name.strip() for name in (against or "").split(",") if name.strip()]
    for name in asked:
        if name not in subjects:
            raise AnalysisError(f"--against {name}: not in these records; there are {', '.join(subjects)}")
    return asked or [name for name in REFERENCES if name in subjects] or [subjects[0]]


def subjects_of(records: Sequence[Record]) -> list[str]:
    """Every subject once: versions by number, then peers by name."""
    return sorted({subject_name(record) for record in records}, key=subject_order(records))


def rows(
    records: Sequence[Record], against: str | None = None, of: Container[str] | None = None
) -> tuple[list[Row], str]:
    """A row for each subject and problem, in order of problem and name, and the name of the (first) reference.

    With `of` those of these subjects alone; the others still count in the scatter of a run.
    """
    one_device(records)
    rounds = series(records)
    subjects = subjects_of(records)
    reference = references_of(subjects, against)[0]
    found = []
    problems = sorted({record.problem for record in records}, key=lambda p: (p.kind, p.dtype != "fp16", p))
    for problem in problems:
        base: Series = rounds.get((reference, problem), {})
        for subject in subjects:
            mine = [r for r in records if r.problem == problem and subject_name(r) == subject]
            if mine and (of is None or subject in of):
                same_run = [
                    side
                    for (name, at), side in rounds.items()
                    if at == problem and name != subject and side.keys() == base.keys()
                ]
                own = rounds.get((subject, problem), {})
                found.append(_row(subject, problem, mine, own, base, stats.scatter(same_run)))
    return found, reference


def _row(
    subject: str,
    problem: Problem,
    records: Sequence[Record],
    rounds: Series,
    base: Series,
    of_run: stats.Scatter | None,
) -> Row:
    time = stats.median([one.median_ns() for one in rounds.values()]) if rounds else None
    clocks = [hz for one in rounds.values() for hz in one.sm_clock_hz]
    measured = stats.ratio(base, rounds, of_run=of_run) if base and rounds and base is not rounds else None
    errors = [record.error_over_bound for record in records if record.error_over_bound is not None]
    verdicts = {record.passed for record in records}
    energies = [record.raw["energy"] for record in records if record.raw.get("energy")]
    joules = [energy["joules"] for energy in energies if energy.get("joules") is not None]
    return Row(
        subject=subject,
        problem=problem,
        rounds=len(rounds),
        samples=sum(one.timed for one in rounds.values()),
        tflops=problem.flop() / time / 1e3 if time else 0.0,
        sm_ghz=stats.median(clocks) / 1e9 if clocks else None,
        ratio=measured[0] if measured else None,
        error_over_bound=max(errors) if errors else None,
        passed=False if False in verdicts else None if None in verdicts else True,
        discarded=sum(record.discarded for record in records),
        joules=stats.median(joules) if joules else None,
    )


def subject_order(records: Iterable[Record]) -> Any:
    """Versions by number, then peers by name."""
    peers = {subject_name(record) for record in records if record.is_peer}
    return lambda name: (name in peers, name)


Also = Sequence[tuple[str, Sequence[Row]]]  # further references, each with the rows of the first one in their order


def _ends(row: Row) -> list[Cell]:
    ratio = row.ratio
    return [None, None, None] if ratio is None else [round(end, 4) for end in (ratio.mid, ratio.low, ratio.high)]


def long_table(found: Sequence[Row], reference: str, also: Also = ()) -> Table:
    """One row per subject and problem, with everything; joules per launch and the case where there are any."""
    with_joules = any(row.joules is not None for row in found)
    with_cases = any(row.problem.case() for row in found)
    columns = (
        "subject",
        "dtype",
        "batch",
        "heads",
        "seq",
        *(("case",) if with_cases else ()),
        "TFLOP/s",
        f"ratio to {reference}",
        "low",
        "high",
        *(f"{title}{name}" for name, _ in also for title in ("ratio to ", "low of ", "high of ")),
        "rounds",
        "samples",
        "SM GHz",
        *(("J",) if with_joules else ()),
        "error / tolerance",
        "check",
    )
    lines: list[Sequence[Cell]] = []
    for at, row in enumerate(found):
        p = row.problem
        kind = "" if p.kind == "attention" else f" {p.kind}"
        lines.append(
            (
                row.subject + kind,
                p.dtype,
                p.batch,
                p.heads,
                p.seq,
                *((p.case(),) if with_cases else ()),
                round(row.tflops, 1) if row.tflops else None,
                *_ends(row),
                *(end for _, others in also for end in _ends(others[at])),
                row.rounds,
                row.samples,
                None if row.sm_ghz is None else round(row.sm_ghz, 3),
                *((None if row.joules is None else float(f"{row.joules:.4g}"),) if with_joules else ()),
                None if row.error_over_bound is None else round(row.error_over_bound, 3),
                {True: "pass", False: "WRONG", None: "not checked"}[row.passed],
            )
        )
    return Table(columns, lines)


def wide_table(found: Sequence[Row], reference: str, also: Also = ()) -> Table:
    """One row per subject, one column per problem: TFLOP/s and in brackets the ratio to each reference.

    A length that was measured with several batches has a column for each, "fp16 512×32". A column names the case if the
    problems are of several.
    """
    problems = list(dict.fromkeys(row.problem for row in found if row.problem.kind == "attention"))
    problems.sort(key=lambda problem: (problem.dtype != "fp16", problem.seq, problem.batch))
    cases = {problem.case() for problem in problems}
    lengths = [(problem.dtype, problem.seq, problem.case()) for problem in problems]
    columns = ["subject"]
    for problem, length in zip(problems, lengths, strict=True):
        batch = f"×{problem.batch}" if lengths.count(length) > 1 else ""
        columns.append(f"{problem.dtype} {problem.seq}{batch} {problem.case() if len(cases) > 1 else ''}".rstrip())
    cells: dict[str, dict[Problem, str]] = {}
    for at, row in enumerate(found):
        text = "WRONG" if row.passed is False else f"{row.tflops:.1f}"
        ratios = [("–" if name == row.subject or each.ratio is None else f"{each.ratio.mid:.3f}")
                  for name, each in ((reference, row), *((name, others[at]) for name, others in also))]  # fmt: skip
        text += f" ({' '.join(ratios)})" if set(ratios) != {"–"} else ""
        cells.setdefault(row.subject, {})[row.problem] = text
    lines = [(subject, *(mine.get(problem) for problem in problems)) for subject, mine in cells.items()]
    return Table(columns, [line for line in lines if any(line[1:])])


def render(records: Sequence[Record], args: argparse.Namespace) -> str:
    """The table of a run in the form that the options ask for."""
    if not records:
        return "nothing was measured\n"
    references = references_of(subjects_of(records), args.against)
    (found, reference), *others = [rows(records, name) for name in references]
    also = [(name, rows_of_it) for rows_of_it, name in others]
    if not args.wide:
        return render_table(long_table(found, reference, also), args)
    text = render_table(wide_table(found, reference, also), args)
    names = " ".join(references)
    cases = {record.problem.case() for record in records if record.problem.kind == "attention"}
    about = "".join(f", {case}" for case in cases if case and len(cases) == 1)
    return text if args.json or args.csv else f"TFLOP/s (ratio to {names}), {one_device(records)}{about}\n{text}"


def runs_table(records: Sequence[Record]) -> Table:
    """One row per run: when, on what, which subjects, rounds and records."""
    lines: list[Sequence[Cell]] = []
    for run in sorted({record.run_id for record in records}):
        mine = [record for record in records if record.run_id == run]
        subjects = sorted({subject_name(record) for record in mine}, key=subject_order(mine))
        revisions = sorted({str(record.raw.get("revision")) for record in mine if not record.is_peer})
        rounds = len({record.round for record in mine})
        lines.append((run or "(none)", one_device(mine), " ".join(revisions), rounds, len(mine), " ".join(subjects)))
    return Table(("run", "device", "revision", "rounds", "records", "subjects"), lines)


# ---- the command -----------------------------------------------------------------------------------------------------


def add_records_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action",
        choices=("show", "runs", "check", "merge"),
        help="show: print the table of a run; runs: list the runs of a file; check: reject impossible values; "
        "merge: join shards",
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="a file of records, or a GPU's name for show and runs")
    parser.add_argument("--run", metavar="ID", help="the run to show (the newest)")
    parser.add_argument("--against", metavar="LIST", help="baselines of the ratios: fa2,fa3,cudnn (the first subject)")
    parser.add_argument("--wide", action="store_true", help="one row per subject, one column per problem")
    add_table_arguments(parser)


def run_records(args: argparse.Namespace) -> int:
    """Show, list, check or merge files of records."""
    if args.action == "merge":
        if args.output is None:
            raise RecordError("merge: requires -o FILE")
        merged = merge([Path(name) for name in args.files])
        write_merged(merged, args.output)
        print(
            f"{args.output}: {len(merged.records)} records; left out: {merged.duplicates} duplicates, "
            f"{len(merged.torn)} torn last lines"
        )
        return DONE
    logs = [read(for_gpu(name)) for name in args.files]
    refuse_contradictions((record, str(log.path)) for log in logs for record in log.records)
    found = [record for log in logs for record in log.records]
    if args.action != "check":
        for log in logs:
            if log.torn:
                print(f"{log.path}: the last line is torn and left out", file=sys.stderr)
    if args.action == "check":
        for log in logs:
            refuse_implausible(log.records, str(log.path))
            print(
                f"{log.path}: {len(log.records)} records of {one_device(log.records)}"
                + ("; the last line is torn" if log.torn else "")
            )
    elif args.action == "runs":
        print_table(runs_table(found), args)
    else:
        run = args.run or latest_run(found)
        mine = [record for record in found if record.run_id == run]
        if not mine:
            raise RecordError(f"--run {run}: no such run; `records runs {' '.join(args.files)}` lists those there are")
        emit(render(mine, args), args.output)
    return DONE
