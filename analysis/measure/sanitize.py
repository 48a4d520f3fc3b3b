"""Looks for races and bad memory accesses: compute-sanitizer on a GPU, the emulator's own checks without one.

    python3 -m analysis race --versions v09             # racecheck, or the emulator over several warp schedules
    python3 -m analysis sanitize                        # memcheck, initcheck, synccheck and racecheck

With --exit-code the status is 1 when something was found. The problem is small: checking is slow.
"""

import argparse
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from analysis.errors import DIFFERENT, DONE
from analysis.ladder.config import parse_config
from analysis.measure import executables
from analysis.measure.executables import CANNOT_RUN, RIGHT, TIMED_OUT, Outcome
from analysis.table import Cell, Table, add_table_arguments, print_table

TOOLS = ("memcheck", "initcheck", "synccheck", "racecheck")
FOUND_STATUS = 99  # what compute-sanitizer is told to end with when it found something
SMALL = ("--batch", "1", "--heads", "2", "--seq", "256")
TIMEOUT = 300.0
SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (\d+)")
EMULATED = re.compile(r"^([a-z-]+) at (\S+?)(?:, called from (\S+?))?, PTX line", re.MULTILINE)
EMULATED_COUNT = re.compile(r"^(?:\S+: )?(\d+) findings?:", re.MULTILINE)


@dataclass(frozen=True)
class Finding:
    """The outcome of one check of one version: `found` is "" when it is clean."""

    version: str
    dtype: str
    check: str
    found: str
    seconds: float


def on_gpu(version: str, dtype: str, tool: str, extra: Sequence[str] = SMALL, timeout: float = TIMEOUT) -> Finding:
    """One tool of compute-sanitizer over a single launch."""
    program = [str(executables.find(version)), "--backend", "gpu", "--profile", "--dtype", dtype, *extra]
    options = ["--tool", tool, "--error-exitcode", str(FOUND_STATUS), "--print-limit", "10"]
    sanitizer = executables.cuda_program("compute-sanitizer", "it comes with CUDA")
    outcome = executables.run_command([*executables.launcher(), sanitizer, *options, *program], timeout)
    return Finding(version, dtype, tool, sanitizer_verdict(outcome), outcome.seconds)


def sanitizer_verdict(outcome: Outcome) -> str:
    """ "" when the tool ran to its summary and counted nothing; otherwise what it said."""
    text = outcome.stdout + outcome.stderr
    summaries = SUMMARY.findall(text)
    if outcome.status == RIGHT and summaries and all(count == "0" for count in summaries):
        return ""
    if outcome.status == TIMED_OUT:
        return outcome.problem()
    lines = [line.strip("= ") for line in text.splitlines() if re.match(r"=+ +(?!COMPUTE-SANITIZER)\S", line)]
    first = next((line for line in lines if not line.startswith(("Target application", "Save"))), "")
    if summaries:
        return f"{sum(map(int, summaries))} found: {first}" if any(int(n) for n in summaries) else outcome.problem()
    return first or outcome.problem() or "no summary: the tool did not run to its end"


def on_emulator(version: str, dtype: str, schedule: int, extra: Sequence[str] = SMALL) -> Finding:
    """The emulator's checks with one order of warps."""
    arguments = ["--backend", "emu", "--dtype", dtype, "--schedule", str(schedule), *extra]
    outcome = executables.run(executables.find(version), arguments, TIMEOUT)
    name = f"emulator, schedule {schedule}"
    return Finding(version, dtype, name, emulator_verdict(outcome), outcome.seconds)


def emulator_verdict(outcome: Outcome) -> str:
    """ "" when the run is right; how many findings and the first, as for the sanitizer; else the problem."""
    text = outcome.stdout + outcome.stderr
    count, first = EMULATED_COUNT.search(text), EMULATED.search(text)
    if outcome.status == RIGHT or not count or not first:
        return outcome.problem()
    kind, *locations = first.groups()
    return f"{count[1]} found: {kind} at " + ", called from ".join(
        location.rsplit("/", 1)[-1] for location in locations if location
    )


def has_gpu(version: str) -> bool:
    """True if this version's executable can run on a GPU here."""
    arguments = ["--backend", "gpu", "--profile", "--batch", "1", "--heads", "1", "--seq", "512"]
    outcome = executables.run(executables.find(version), arguments, TIMEOUT)
    return executables.checked(outcome, (RIGHT, CANNOT_RUN)).status == RIGHT


def table(found: Sequence[Finding]) -> Table:
    """One row a check."""
    lines: list[Sequence[Cell]] = [
        (one.version, one.dtype, one.check, one.found or "clean", round(one.seconds, 1)) for one in found
    ]
    return Table(("version", "dtype", "check", "result", "seconds"), lines)


def _check(args: argparse.Namespace, tools: Sequence[str]) -> int:
    versions = executables.chosen_versions(args.versions)
    chosen = parse_config(args.config) if args.config else None
    if chosen:
        for version in versions:
            executables.require_config(version, chosen)
    extra = (*SMALL, "--config", str(chosen)) if chosen else SMALL
    dtypes = (chosen.dtype.name.lower(),) if chosen else ("fp16", "bf16")
    gpu = args.backend == "gpu" or (args.backend == "auto" and has_gpu(versions[0]))
    if not gpu:
        print("checked on the emulator, which finds races, unset data and bad accesses by itself", file=sys.stderr)
    found: list[Finding] = []
    for number, version in enumerate(versions, start=1):
        if len(versions) > 1:
            print(f"{version}: {number} of {len(versions)}", file=sys.stderr, flush=True)
        for dtype in dtypes:
            if gpu:
                found += [on_gpu(version, dtype, tool, extra) for tool in tools]
            else:
                found += [on_emulator(version, dtype, schedule, extra) for schedule in range(args.schedules)]
    print_table(table(found), args)
    return DIFFERENT if args.exit_code and any(one.found for one in found) else DONE


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--versions", metavar="LIST", help="versions, separated by commas or spaces (all that are built)"
    )
    parser.add_argument("--config", metavar="CONFIG", help="short form of a built configuration (the version's own)")
    parser.add_argument("--backend", choices=("auto", "gpu", "emu"), default="auto", help="where to run (auto)")
    parser.add_argument(
        "--schedules", type=int, default=3, metavar="N", help="on the emulator: number of warp schedules to run (3)"
    )
    parser.add_argument("--exit-code", action="store_true", help="exit status 1 if there is a finding")
    add_table_arguments(parser)


def add_race_arguments(parser: argparse.ArgumentParser) -> None:
    _add_arguments(parser)


def add_sanitize_arguments(parser: argparse.ArgumentParser) -> None:
    _add_arguments(parser)


def run_race(args: argparse.Namespace) -> int:
    """Races only."""
    return _check(args, ("racecheck",))


def run_sanitize(args: argparse.Namespace) -> int:
    """All four tools."""
    return _check(args, TOOLS)
