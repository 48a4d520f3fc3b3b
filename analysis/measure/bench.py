"""Measures versions and peers in rounds and appends the records to logs/bench/GPU.jsonl.

    python3 -m analysis bench --versions v09,v10 --seqs 512:16384:*2 --dtypes fp16,bf16 --rounds 5 --budget 300 --peers
    python3 -m analysis bench --versions v25 --peers fa2,cudnn,fa3 --seqs 512:16384:*2 --tokens 16384

A round runs everything once, briefly: each executable and each peer once a dtype, over all lengths. The next round goes
through them in reverse. So slow changes of clock and heat fall on all alike, and each round gives one ratio for
every pair. All records of a run carry its id and round number. With --resume an unfinished run with the same plan goes
on: its broken round is measured again under a new number, so that a round never spans a pause.
"""

import argparse
import secrets
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from analysis.errors import DIFFERENT, DONE, AnalysisError
from analysis.files import root
from analysis.ladder.headers import load_backward
from analysis.measure import executables, records, summary
from analysis.measure.executables import CANNOT_RUN, RIGHT, UNTRUSTED, WRONG, Timing
from analysis.measure.peers import BUILT, Peers, chosen, yardstick
from analysis.measure.records import Problem
from analysis.table import add_table_arguments, emit

STARTUP_SECONDS = 60.0  # a run may take this much longer than its timed part: driver, inputs, reference
LONGEST = 1e6  # seconds, about what a timer of Python can wait


@dataclass(frozen=True)
class Unit:
    """The unit that one process, or one request to the baselines, measures: a subject over the lengths of one dtype."""

    subject: str
    is_peer: bool
    dtype: str
    label: str = ""  # tells two series of one subject apart; "" otherwise

    def __str__(self) -> str:
        return f"{self.subject}{self.label and ' ' + self.label} {self.dtype}"


@dataclass(frozen=True)
class Plan:
    """Everything that decides what a run measures."""

    units: tuple[Unit, ...]
    seqs: tuple[int, ...]
    batch: int | None  # None: the published protocol's batch for each length; 0: no such problem
    heads: int
    dist: str
    seed: int
    check_rows: int
    timing: Timing
    tokens: int | None = None  # then also the problems of batch · seq = tokens
    energy: bool = False
    d_head: int = 128
    kv_heads: int = 0  # 0: as many as heads
    causal: bool = False
    backward: bool = False  # of the problems that PyTorch gets: executables are of one pass each

    def name(self) -> str:
        """Equal for equal plans; kept in the records so that a run can be resumed."""
        return records.fingerprint(asdict(self))

    def sizes(self) -> list[tuple[list[str], list[tuple[int, int]]]]:
        """The arguments of the executables for each size, and its lengths with their batches, without repetition.

        A problem that both sizes name, such as 16 sequences of 1024 for 16384 tokens, belongs to the first.
        """
        found: list[tuple[list[str], list[tuple[int, int]]]] = []
        if self.batch != 0:
            batches = [(seq, self.batch or executables.standard_batch(seq)) for seq in self.seqs]
            found.append(([] if self.batch is None else ["--batch", str(self.batch)], batches))
        if self.tokens:
            there = {pair for _, pairs in found for pair in pairs}
            batches = [(seq, self.tokens // seq) for seq in self.seqs]
            found.append((["--tokens", str(self.tokens)], [pair for pair in batches if pair not in there]))
        return [(arguments, pairs) for arguments, pairs in found if pairs]

    def problems(self, dtype: str) -> list[Problem]:
        plain = Problem("attention", dtype, 0, self.heads, 0, self.d_head, self.dist, self.causal, self.kv_heads)
        plain = replace(plain, backward=self.backward)
        return [replace(plain, batch=batch, seq=seq) for _, pairs in self.sizes() for seq, batch in pairs]


def new_run_id() -> str:
    """Sorts by time; the end makes runs started in the same second on several machines differ."""
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()) + "-" + secrets.token_hex(2)


# ---- one unit --------------------------------------------------------------------------------------------------------


def program_of(unit: Unit) -> Path:
    """The executable that measures a unit."""
    return executables.find_peer(unit.subject) if unit.is_peer else executables.find(unit.subject)


def executable_arguments(plan: Plan, unit: Unit, size: Sequence[str], seqs: Sequence[int]) -> list[str]:
    """The command line of an executable for one unit and one size, without the program."""
    timing = plan.timing
    longest_first = sorted(seqs, reverse=True)  # an executable draws its inputs once, for the largest problem
    arguments = ["--backend", "gpu", "--dtype", unit.dtype, "--seq", ",".join(map(str, longest_first)), *size]
    arguments += ["--heads", str(plan.heads), "--dist", plan.dist, "--seed", str(plan.seed)]
    arguments += ["--d-head", str(plan.d_head)] if plan.d_head != 128 else []
    arguments += ["--kv-heads", str(plan.kv_heads)] if plan.kv_heads else []
    arguments += ["--causal"] if plan.causal else []
    arguments += ["--energy"] if plan.energy else []
    arguments += ["--check", str(plan.check_rows)] if plan.check_rows else ["--no-check"]
    arguments += ["--warmup", str(timing.warmup), "--min-samples", str(timing.min_samples)]
    arguments += ["--max-noise", f"{timing.max_noise:g}", "--min-time", f"{timing.min_time:g}"]
    return [*arguments, "--timeout", f"{timing.timeout:g}", "--quiet", "--json", "-"]


def measure_executable(plan: Plan, unit: Unit) -> tuple[list[dict[str, Any]], str]:
    """The records of one executable, and what to tell about it ("" when all went well)."""
    found: list[dict[str, Any]] = []
    notes: dict[str, None] = {}
    for size, pairs in plan.sizes():
        timeout = STARTUP_SECONDS + len(pairs) * (plan.timing.timeout + 20)
        arguments = executable_arguments(plan, unit, size, [seq for seq, _ in pairs])
        outcome = executables.run(program_of(unit), arguments, timeout)
        if outcome.status == CANNOT_RUN and not outcome.needs_another_gpu:
            executables.checked(outcome)
        found += outcome.records if outcome.status in (RIGHT, WRONG, UNTRUSTED) else []
        notes |= {outcome.problem(): None} if outcome.problem() else {}
    return found, "; ".join(notes)


def measure_in_worker(plan: Plan, unit: Unit, peers: Peers) -> tuple[list[dict[str, Any]], str]:
    """The unit of a baseline that is called through PyTorch."""
    problems = [yardstick(unit.dtype)] if unit.subject == "cublas" else plan.problems(unit.dtype)
    found, notes = [], []
    for problem in problems:
        try:
            rows = min(plan.check_rows, 64)
            found.append(peers.measure(unit.subject, problem, plan.seed, plan.timing, rows, plan.energy))
        except AnalysisError as error:
            notes.append(str(error))
    return found, "; ".join(notes)


# ---- a run -----------------------------------------------------------------------------------------------------------


@dataclass
class Progress:
    """The finished units, their durations, and the remaining ones."""

    rounds: int
    units: int
    budget: float | None  # seconds
    start: float
    done: int = 0
    total_seconds: float = 0.0

    def mean(self) -> float:
        """Seconds of one unit so far."""
        return self.total_seconds / self.done if self.done else 0.0

    def left(self) -> float | None:
        """Seconds that the remaining units will take."""
        return self.mean() * (self.rounds * self.units - self.done) if self.done else None

    def room_for(self, expected: float) -> bool:
        """True if something that takes this long ends within the budget."""
        return self.budget is None or time.monotonic() - self.start + expected <= self.budget

    def line(self, round_number: int, unit: Unit) -> str:
        left = self.left()
        end = "" if left is None else f" · {clock_text(left)} left"
        if left is not None and self.budget is not None:
            rest = max(0.0, self.budget - (time.monotonic() - self.start))
            end += f" ({clock_text(rest)} of the budget)"
        return f"round {round_number} · {unit} · {self.done + 1} of {self.rounds * self.units}{end}"


def clock_text(seconds: float) -> str:
    """Minutes and seconds."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def order(units: Sequence[Unit], round_number: int) -> Sequence[Unit]:
    """Odd rounds forward, even rounds backward: a steady drift cancels over two rounds."""
    return units if round_number % 2 else units[::-1]


def resumed(path: Path, plan: Plan) -> tuple[str, int, int]:
    """(run id, rounds done, last round number used) of the newest run with this plan; ("", 0, 0) without one."""
    if not path.exists():
        return "", 0, 0
    mine = [record for record in records.read(path).records if record.run.get("plan") == plan.name()]
    if not mine:
        return "", 0, 0
    run = max(record.run_id for record in mine)
    done: dict[int, set[Unit]] = {}
    for record in mine:
        if record.run_id == run:
            label = str(record.run.get("label", ""))
            unit = Unit(record.subject, record.is_peer, record.problem.dtype, label)
            done.setdefault(record.round, set()).add(unit)
    refused = {Unit(**unit) for record in mine for unit in record.run.get("refused", [])}
    whole = [number for number, units in done.items() if set(plan.units) <= units | refused]
    return run, len(whole), max(done)


def rounds_of(
    plan: Plan,
    rounds: int,
    budget: float | None,
    peers: Peers | None,
    output: Path | None,
    resume: bool,
    quiet: bool = False,
    decided: Callable[[Path, str, int], bool] | None = None,
) -> tuple[Path, str]:
    """Measure up to `rounds` rounds of the plan within the budget; the file and the id of the run.

    `decided` is asked after each round, with the file, the id and the number of the round, whether that is enough.
    Every unit's records are appended as soon as they are there. A unit that the executable or library refuses is told
    once and left out of later rounds.
    """
    path, run_id, first, last = output, "", 0, 0
    if path is None and peers is not None:
        path = records.bench_path(peers.device["name"])
    if path is None:
        path = records.bench_path(gpu_name(plan.units))
    if resume:
        run_id, first, last = resumed(path, plan)
        _say(f"resuming {run_id} after {first} rounds" if run_id else "nothing to resume: a new run", quiet)
    run_id = run_id or new_run_id()
    seconds: dict[Unit, float] = {}
    refused: list[Unit] = []
    progress = Progress(rounds - first, len(plan.units), budget, time.monotonic())
    for number in range(last + 1, last + 1 + max(0, rounds - first)):
        for unit in order(plan.units, number):
            if unit in refused:
                progress.done += 1
                continue
            if not progress.room_for(seconds.get(unit, progress.mean())):
                _say(f"budget of {budget:g} s used in round {number}; --resume continues", quiet)
                return path, run_id
            _say(progress.line(number, unit), quiet)
            begin = time.monotonic()
            worker = peers if unit.is_peer and unit.subject not in BUILT else None
            found, note = measure_in_worker(plan, unit, worker) if worker else measure_executable(plan, unit)
            seconds[unit] = time.monotonic() - begin
            progress.total_seconds += seconds[unit]
            progress.done += 1
            if note:
                _say(f"{unit}: {note}", False)
            if not found:
                refused.append(unit)
                continue
            about = {"id": run_id, "round": number, "plan": plan.name()}
            about |= {"label": unit.label} if unit.label else {}
            about |= {"refused": [asdict(one) for one in refused]} if refused else {}
            for raw in found:
                records.parse(raw, str(unit))
            records.append(path, [kept(raw, samples_kept(rounds)) | {"run": about} for raw in found])
        if decided and decided(path, run_id, number):
            break
    return path, run_id


def samples_kept(rounds: int) -> int:
    """The number of samples of a round that a file keeps. Several rounds are compared by their medians, one by its
    samples."""
    return 16 if rounds > 1 else 64


def kept(raw: dict[str, Any], most: int) -> dict[str, Any]:
    """The record as a file keeps it: with few samples, and the program's name without the folders of this machine."""
    raw, argv = without_unread(rounded(thinned(raw, most))), raw.get("argv")
    if not argv:
        return raw
    folder = "bin/peers" if "peer" in raw else "bin"
    return raw | {"argv": [f"{folder}/{Path(argv[0]).name}", *argv[1:]]}


def without_unread(raw: dict[str, Any]) -> dict[str, Any]:
    """The record without what nobody reads there: its time, which its run's id has, and a quotient of two fields."""
    unread = {"timing": "wall_s", "derived": "share_of_peak"}
    shorter = {
        part: {name: value for name, value in raw[part].items() if name != left_out}
        for part, left_out in unread.items()
        if raw.get(part)
    }
    return {name: shorter.get(name, value) for name, value in raw.items() if name != "utc"}


def rounded(raw: dict[str, Any]) -> dict[str, Any]:
    """The record without digits that no clock has: events are 32 ns apart, so a clock of 10 µs is known to 0.3 %."""
    timing = raw.get("timing")
    if not timing:
        return raw
    times = {"samples_ns": [round(ns) for ns in timing["samples_ns"]]}
    clocks = (
        {"sm_clock_hz": [round(hz / 1e5) * 100_000 for hz in timing["sm_clock_hz"]]} if "sm_clock_hz" in timing else {}
    )
    figures = {name: round(timing[name]) for name in ("median", "q1", "q3", "min") if timing.get(name)}
    return raw | {"timing": timing | times | clocks | figures}


def thinned(raw: dict[str, Any], most: int) -> dict[str, Any]:
    """The record with at most `most` samples and their clocks, in their order; `kept_of` says of how many.

    Short kernels give thousands of samples per round. The kept samples have evenly spaced ranks, including the middle,
    so that their median is the median of all.
    """
    timing = raw.get("timing")
    if not timing or len(timing["samples_ns"]) <= most:
        return raw
    times = timing["samples_ns"]
    by_time = sorted(range(len(times)), key=lambda index: times[index])
    chosen = sorted(by_time[rank] for rank in spread_ranks(len(times), most))
    some = {name: [timing[name][index] for index in chosen] for name in ("samples_ns", "sm_clock_hz") if timing[name]}
    return raw | {"timing": timing | some | {"kept_of": len(times)}}


def spread_ranks(count: int, most: int) -> list[int]:
    """At most `most` of the ranks 0 … count - 1: as many below the median as above, and the one or two that make it."""
    half, side = count // 2, most // 2 - count % 2
    below = [index * (half - 1) // max(1, side - 1) for index in range(side)]
    middle = [half] if count % 2 else []
    return [*below, *middle, *(count - 1 - rank for rank in reversed(below))]


def gpu_name(units: Sequence[Unit]) -> str:
    """The device that the first executable made for it finds; NoGpu without one.

    One launch of the smallest standard problem tells.
    """
    arguments = ["--backend", "gpu", "--seq", "512", "--batch", "1", "--heads", "1", "--no-check", "--runs", "1"]
    for unit in units:
        outcome = executables.run(program_of(unit), [*arguments, "--quiet", "--json", "-"], STARTUP_SECONDS)
        if not outcome.needs_another_gpu:
            break
    executables.checked(outcome)
    if not outcome.records:
        raise AnalysisError(f"{program_of(unit)} printed no record")
    return records.device_name(outcome.records[0])


def _say(text: str, quiet: bool) -> None:
    if not quiet:
        print(text, file=sys.stderr, flush=True)


# ---- the command -----------------------------------------------------------------------------------------------------


def add_measuring_arguments(parser: argparse.ArgumentParser, rounds: int) -> None:
    """Options that bench, compare and autotune share."""
    parser.add_argument("--seqs", default="4096", metavar="LIST", help="lengths: 512,1024 or 512:16384:*2 (4096)")
    parser.add_argument("--dtypes", default="fp16", metavar="LIST", help="fp16,bf16 (fp16)")
    parser.add_argument("--batch", type=int, metavar="N", help="sequences (16; 8 at 8192; 4 at 16384)")
    parser.add_argument("--heads", type=int, default=16, metavar="N", help="heads (16)")
    parser.add_argument("--dist", default="normal", metavar="NAME", help="distribution of the inputs (normal)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="seed of the inputs (1)")
    parser.add_argument("--rounds", type=int, default=rounds, metavar="N", help=f"rounds ({rounds})")
    parser.add_argument("--budget", type=float, metavar="S", help="stop before this many seconds are used")
    parser.add_argument("--check", type=int, default=64, metavar="ROWS", help="rows to check per run; 0: none (64)")
    parser.add_argument(
        "--min-samples",
        type=int,
        default=Timing.min_samples,
        metavar="N",
        help=f"samples per round ({Timing.min_samples})",
    )
    parser.add_argument(
        "--min-time",
        type=float,
        default=Timing.min_time,
        metavar="S",
        help=f"timed seconds per run ({Timing.min_time})",
    )
    parser.add_argument(
        "--max-noise",
        type=float,
        default=Timing.max_noise,
        metavar="PERCENT",
        help=f"stop at this noise ({Timing.max_noise})",
    )
    parser.add_argument(
        "--sample-timeout",
        type=float,
        default=Timing.timeout,
        metavar="S",
        help=f"time limit of a run in seconds ({Timing.timeout})",
    )
    parser.add_argument("--records", type=Path, metavar="FILE", help="append to FILE instead of the record in logs/")
    parser.add_argument("--quiet", action="store_true", help="do not show progress")


def add_tokens_argument(parser: argparse.ArgumentParser) -> None:
    """The second size, which bench and compare share."""
    parser.add_argument(
        "--tokens", type=int, metavar="N", help="also run N / length sequences; with --batch 0 only those"
    )


def refuse_wrong_rule(args: argparse.Namespace) -> None:
    """A number of rounds, seconds or percent that no measurement can follow."""
    if args.rounds < 1:
        raise AnalysisError(f"--rounds {args.rounds}: must be at least 1")
    for name in ("min_time", "max_noise", "sample_timeout", "budget"):
        value = getattr(args, name)
        if value is not None and not 0 <= value < LONGEST:
            raise AnalysisError(f"--{name.replace('_', '-')} {value:g}: must be from 0 to less than {LONGEST:g}")


def plan_of(args: argparse.Namespace, units: Sequence[Unit]) -> Plan:
    """The plan that the options describe."""
    refuse_wrong_rule(args)
    timing = Timing(3, args.min_samples, args.max_noise, args.min_time, args.sample_timeout)
    seqs = tuple(executables.numbers(args.seqs, "--seqs"))
    plan = Plan(tuple(units), seqs, args.batch, args.heads, args.dist, args.seed, args.check, timing)
    tokens = args.tokens
    for seq in seqs if tokens is not None else ():
        if tokens < 1 or tokens % seq:
            raise AnalysisError(f"--tokens {tokens}: must be a multiple of every length, and {seq} is one")
    if args.batch is not None and args.batch < (0 if tokens else 1):
        raise AnalysisError(f"--batch {args.batch}: must be at least 1" + (", or 0 with --tokens" if tokens else ""))
    return replace(plan, tokens=tokens)


def dtypes_of(args: argparse.Namespace) -> list[str]:
    """fp16 and bf16 as asked for, each once."""
    names = list(dict.fromkeys(name.strip().lower() for name in args.dtypes.split(",")))
    for name in names:
        if name not in ("fp16", "bf16"):
            raise AnalysisError(f"--dtypes {name!r}: expected fp16 or bf16")
    return names


def add_bench_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--versions", metavar="LIST", help="versions, separated by commas or spaces (all that are built)"
    )
    parser.add_argument(
        "--peers",
        nargs="?",
        const="all",
        default="",
        metavar="LIST",
        help="also run fa2, cudnn, efficient, fa3, cublas; without a list all of them",
    )
    parser.add_argument("--causal", action="store_true", help="use the causal mask")
    parser.add_argument("--d-head", type=int, default=128, metavar="N", help="elements of a head (128)")
    parser.add_argument("--kv-heads", type=int, default=0, metavar="N", help="KV heads (as many as heads)")
    parser.add_argument(
        "--energy",
        action="store_true",
        help="also measure cold-start and power-limited speed and joules: five more seconds per problem",
    )
    parser.add_argument("--python", metavar="PATH", help="interpreter that has PyTorch, for the peers")
    parser.add_argument("--against", metavar="LIST", help="baselines of the ratios: fa2,fa3,cudnn (the first subject)")
    parser.add_argument("--resume", action="store_true", help="continue the newest unfinished run of the same plan")
    parser.add_argument("--wide", action="store_true", help="one row per subject, one column per problem")
    add_measuring_arguments(parser, rounds=5)
    add_tokens_argument(parser)
    add_table_arguments(parser)


def run_bench(args: argparse.Namespace) -> int:
    """Measure and print the table of the run. Status 77 without a GPU, 1 when a result was wrong."""
    versions = executables.chosen_versions(args.versions)
    names = chosen(args.peers) if args.peers else []
    units = [Unit(version, False, dtype) for dtype in dtypes_of(args) for version in versions]
    backward = is_backward(versions) if set(names) - set(BUILT) else False
    try:
        peers = Peers.start(args.python) if set(names) - set(BUILT) else None
        try:
            missing = dict(peers.missing if peers else {}) | unbuilt(names)
            for name in [name for name in names if name in missing]:
                _say(f"{name} is left out: {missing[name]}", args.quiet)
                names.remove(name)
            units = interleave(units, [Unit(name, True, dtype) for dtype in dtypes_of(args) for name in names])
            kv_heads = 0 if args.kv_heads == args.heads else args.kv_heads
            plan = replace(
                plan_of(args, units),
                energy=args.energy,
                d_head=args.d_head,
                kv_heads=kv_heads,
                causal=args.causal,
                backward=backward,
            )
            path, run = rounds_of(plan, args.rounds, args.budget, peers, args.records, args.resume, args.quiet)
        finally:
            if peers:
                peers.close()
    except executables.NoGpu as error:
        print(f"bench measures on a GPU, and there is none: {error}", file=sys.stderr)
        return CANNOT_RUN
    found = [record for record in records.read(path).records if record.run_id == run] if path.exists() else []
    if not found:
        raise AnalysisError("nothing was measured")
    emit(summary.render(found, args), args.output)
    _say(f"run {run} in {path}", args.quiet)
    return DIFFERENT if any(record.passed is False for record in found) else DONE


def is_backward(versions: Sequence[str]) -> bool:
    """True if versions compute gradients: then peers through PyTorch do, too."""
    gradients = [version for version in versions if version in load_backward(root())]
    if gradients and len(gradients) < len(versions):
        other = next(version for version in versions if version not in gradients)
        raise AnalysisError(
            f"--versions: {gradients[0]} computes gradients, {other} does not, and peers do what versions do: "
            f"name those of one pass"
        )
    return bool(gradients)


def unbuilt(names: Iterable[str]) -> dict[str, str]:
    """The missing executables of baselines, and how to build them."""
    found = {}
    for name in names:
        if name in BUILT:
            try:
                executables.find_peer(name)
            except AnalysisError as error:
                found[name] = str(error)
    return found


def add_peers_arguments(parser: argparse.ArgumentParser) -> None:
    add_bench_arguments(parser)
    parser.set_defaults(peers="all")


def run_peers(args: argparse.Namespace) -> int:
    """A bench of the last version that is built, or of those asked for, with every peer."""
    args.versions = args.versions or ",".join(executables.built_versions()[-1:])
    return run_bench(args)


def interleave(versions: Sequence[Unit], peers: Sequence[Unit]) -> list[Unit]:
    """Peers spread evenly among the versions of their dtype, so that each runs near some version in time."""
    units: list[Unit] = []
    for dtype in dict.fromkeys(unit.dtype for unit in (*versions, *peers)):
        ours = [unit for unit in versions if unit.dtype == dtype]
        theirs = [unit for unit in peers if unit.dtype == dtype]
        locations = list(_spread(len(theirs), len(ours)))
        for index, unit in enumerate(ours):
            units += [theirs[peer] for peer, location in enumerate(locations) if location == index]
            units.append(unit)
        units += [theirs[peer] for peer, location in enumerate(locations) if location >= len(ours)]
    return units


def _spread(count: int, among: int) -> Iterator[int]:
    for index in range(count):
        yield (2 * index + 1) * (among + 1) // (2 * count)
