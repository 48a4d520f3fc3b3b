"""Is B faster than A? SAME, FASTER, SLOWER or UNSURE, from samples and clocks.

    python3 -m analysis compare v09 v10 --exit-code           # measures both now, in rounds, where there is a GPU
    python3 -m analysis compare v09 v10 --from h200           # of each type from the newest run that holds both
    python3 -m analysis compare before.jsonl after.jsonl      # two files, subject by subject
    python3 -m analysis compare before.txt after.txt          # times of anything, one round a line

The verdict is about B, from the intervals of its speedup: SAME when the entire 95 % interval is within the tolerance
of 1 (--same-within, 1 %), else FASTER or SLOWER when the entire 99 % interval is on one side of 1 and its middle
beyond the tolerance, else UNSURE, with the number of rounds that would decide. A measurement ends after four or seven
of its ten rounds where wider intervals say so already, such that all looks together are wrong no more often than one.
With --exit-code the status is 0 SAME, 10 FASTER, 11 SLOWER, 12 UNSURE; of several problems the worst counts: SLOWER,
UNSURE, then FASTER.
"""

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from analysis.errors import DONE, AnalysisError
from analysis.files import in_checkout, read_text
from analysis.measure import bench, executables, records, stats, summary
from analysis.measure.executables import CANNOT_RUN
from analysis.measure.plausible import refuse_implausible
from analysis.measure.records import Problem, Record, RecordError
from analysis.measure.stats import Verdict
from analysis.table import Cell, Table, add_table_arguments, print_table

STATUS = {"SAME": 0, "FASTER": 10, "SLOWER": 11, "UNSURE": 12}
ROUNDS = 10  # at the usual scatter, 0.5 % a round, they find four of five differences of 1 %
WORST_FIRST = ("SLOWER", "UNSURE", "FASTER", "SAME")


@dataclass(frozen=True)
class Comparison:
    """The verdict on one problem."""

    first: str
    second: str
    problem: Problem | str
    verdict: Verdict


def comparisons(
    first: Sequence[Record],
    second: Sequence[Record],
    same_within: float,
    across_devices: bool = False,
    share: float = 1.0,
) -> list[Comparison]:
    """One verdict for each problem that both sides have. Records of different devices are refused unless asked for."""
    if not across_devices:
        records.one_device([*first, *second])
    sides = [summary.series(side) for side in (first, second)]
    names = [{name for name, _ in side} for side in sides]
    pairs = [(name, name) for name in sorted(names[0] & names[1])]
    if not pairs and all(len(side) == 1 for side in names):
        pairs = [(min(names[0]), min(names[1]))]
    found = [
        Comparison(a, b, problem, stats.compare(sides[0][a, problem], sides[1][b, problem], same_within, share))
        for a, b in pairs
        for problem in sorted({problem for _, problem in sides[0]})
        if (a, problem) in sides[0] and (b, problem) in sides[1]
    ]
    if not found:
        raise RecordError("the two sides have no problem in common, or only wrong results")
    return found


def read_times(path: Path) -> stats.Series:
    """A text of times in one unit, as another program measured them: a line a round, what it timed in it side by side.

    Text from # on is a comment.
    """
    rounds: dict[tuple[str, int], stats.Round] = {}
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        words = line.partition("#")[0].replace(",", " ").split()
        if not words:
            continue
        try:
            times = tuple(float(word) for word in words)
        except ValueError as error:
            raise AnalysisError(f"{path}:{number}: {line.strip()!r} is not a line of times: {error}") from error
        if not all(0 < time < math.inf for time in times):
            raise AnalysisError(f"{path}:{number}: a time is not above zero: {line.strip()!r}")
        rounds["", len(rounds) + 1] = stats.Round(times)
    if not rounds:
        raise AnalysisError(f"{path}: no times: one round a line, its times separated by spaces")
    return rounds


def compare_times(first: Path, second: Path, same_within: float) -> Comparison:
    """One verdict on two texts of times, whose rounds are paired in order."""
    one, other = read_times(first), read_times(second)
    if len(one) != len(other):
        raise AnalysisError(
            f"{first} has {len(one)} rounds and {second} {len(other)}: measure both sides in each round, one after the "
            "other, so that a drift of the clock is common to them"
        )
    return Comparison(str(first), str(second), "", stats.compare(one, other, same_within))


def table(found: Sequence[Comparison]) -> Table:
    """One row per problem."""
    lines: list[Sequence[Cell]] = []
    for one in found:
        verdict = one.verdict
        subject = one.first if one.first == one.second else f"{one.first} -> {one.second}"
        clock = None if verdict.clock_ratio is None else round(verdict.clock_ratio, 4)
        lines.append(
            (
                subject,
                str(one.problem),
                verdict.word,
                round(verdict.speedup.mid, 4),
                round(verdict.speedup.low, 4),
                round(verdict.speedup.high, 4),
                clock,
                round(100 * verdict.same_within, 4),
                verdict.reason,
            )
        )
    return Table(
        ("subject", "problem", "verdict", "speedup", "low", "high", "clock ratio", "same within %", "because"), lines
    )


def worst(found: Sequence[Comparison]) -> str:
    """The word that decides the exit status."""
    return min((one.verdict.word for one in found), key=WORST_FIRST.index)


def measure(first: str, second: str, args: argparse.Namespace) -> list[Comparison]:
    """Both versions side by side in rounds, now; a version against itself is measured as two series.

    After some of the rounds (stats.LOOKS) it is looked whether the verdict on every problem is known already.
    """
    labels = ("A", "B") if first == second else ("", "")
    units = [
        bench.Unit(subject, False, dtype, label)
        for dtype in bench.dtypes_of(args)
        for subject, label in zip((first, second), labels, strict=True)
    ]
    plan = bench.plan_of(args, units)
    looks = stats.looks(args.rounds)
    found: list[Comparison] = []

    def look(path: Path, run: str, share: float) -> list[Comparison]:
        mine = [record for record in records.read(path).records if record.run_id == run]
        sides = [
            [record for record in mine if summary.subject_name(record) == name]
            for name in (f"{first} {labels[0]}".strip(), f"{second} {labels[1]}".strip())
        ]
        return comparisons(sides[0], sides[1], args.same_within / 100, args.across_gpus, share)

    def decided(path: Path, run: str, number: int) -> bool:
        nonlocal found
        if number not in looks or number == args.rounds:
            return False
        found = look(path, run, looks[number])
        return all(one.verdict.word != "UNSURE" for one in found)

    path, run = bench.rounds_of(plan, args.rounds, args.budget, None, args.records, False, args.quiet, decided)
    if found and all(one.verdict.word != "UNSURE" for one in found):
        return found
    return look(path, run, looks[args.rounds])


def recorded(first: str, second: str, source: str) -> tuple[list[Record], list[Record]]:
    """For each element type both come from the newest run in which both were measured, else each from its own newest
    run."""
    found = records.read(records.for_gpu(source)).records
    names = (first, second)
    dtypes = [{record.problem.dtype for record in found if summary.subject_name(record) == name} for name in names]
    for name, measured in zip(names, dtypes, strict=True):
        if not measured:
            raise RecordError(f"no run holds {name}")
    sides: tuple[list[Record], list[Record]] = ([], [])
    for dtype in sorted(dtypes[0] & dtypes[1], reverse=True):
        of_type = [record for record in found if record.problem.dtype == dtype]
        try:
            runs = [records.latest_run(of_type, names)] * 2
        except RecordError:
            runs = [records.latest_run(of_type, (name,)) for name in names]
        for side, run, name in zip(sides, runs, names, strict=True):
            side += [one for one in of_type if one.run_id == run and summary.subject_name(one) == name]
    return sides


def add_compare_arguments(parser: argparse.ArgumentParser) -> None:
    files = "a file of records (.jsonl) or of times, one round a line"
    parser.add_argument("A", help=f"a version, a peer's name, or {files}" if in_checkout() else files)
    parser.add_argument("B", help="the side that is compared with A")
    if in_checkout():
        parser.add_argument("--from", dest="source", metavar="GPU|FILE", help="use recorded runs instead of measuring")
    parser.add_argument(
        "--same-within",
        type=float,
        default=100 * stats.SAME_WITHIN,
        metavar="PERCENT",
        help="tolerance: SAME if the entire 95 %% interval of the speedup is this close to 1 (1)",
    )
    parser.add_argument("--across-gpus", action="store_true", help="compare records of different GPU models too")
    parser.add_argument("--exit-code", action="store_true", help="exit status: 0 SAME, 10 FASTER, 11 SLOWER, 12 UNSURE")
    if in_checkout():
        bench.add_measuring_arguments(parser, rounds=ROUNDS)
        bench.add_tokens_argument(parser)
    add_table_arguments(parser)


def _refuse_measuring_options(args: argparse.Namespace) -> None:
    """An option of a measurement would change nothing where records are read."""
    parser = argparse.ArgumentParser()
    bench.add_measuring_arguments(parser, rounds=ROUNDS)
    bench.add_tokens_argument(parser)
    for action in parser._actions:
        if action.dest != "help" and getattr(args, action.dest) != action.default:
            raise AnalysisError(f"{action.option_strings[0]}: must not be used with recorded runs")


def run_compare(args: argparse.Namespace) -> int:
    """Measure or read both sides and print the verdicts."""
    if not 0 <= args.same_within < 100:
        raise AnalysisError(f"--same-within {args.same_within:g}: must be a percentage from 0 to less than 100")
    names = (args.A, args.B)
    records_there = all(name.endswith(".jsonl") for name in names)
    times = not records_there and (all(Path(name).is_file() for name in names) or not in_checkout())
    if in_checkout() and (records_there or times or args.source):
        _refuse_measuring_options(args)
    found = (
        [compare_times(Path(args.A), Path(args.B), args.same_within / 100)]
        if times
        else _of_records(args, records_there)
    )
    if found is None:
        return CANNOT_RUN
    print_table(table(found), args)
    return STATUS[worst(found)] if args.exit_code else DONE


def _of_records(args: argparse.Namespace, files: bool) -> list[Comparison] | None:
    """The verdicts from records, which are measured now unless they are there; None without a GPU."""
    try:
        if files:
            logs = [records.read(Path(name)) for name in (args.A, args.B)]
            records.refuse_contradictions((record, str(log.path)) for log in logs for record in log.records)
            for log in logs:
                refuse_implausible(log.records, str(log.path))
            first, second = (list(log.records) for log in logs)
        elif args.source:
            first, second = recorded(args.A, args.B, args.source)
        else:
            executables.need_gpu()
            executables.chosen_versions(f"{args.A} {args.B}")
            return measure(args.A, args.B, args)
    except executables.NoGpu as error:
        print(f"compare measures on a GPU, and there is none (--from reads records): {error}", file=sys.stderr)
        return None
    return comparisons(first, second, args.same_within / 100, args.across_gpus)
