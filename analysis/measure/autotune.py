"""Finds the fastest configuration of a version for a problem, timing each distinct kernel once.

    ./fl autotune --versions v16 --seqs 4096 --budget 180    # builds it with KERNELS=tune below bin/tune/

Many configurations compile to the same machine code. The configurations in the executable are grouped by the hash of
their code, and one of each group is measured. Groups that can't win are left out: too much shared memory for the GPU,
or a stack of spills. The rest compete in stages: after each the slower half goes, but nothing within reach of the best,
and the time spent on each doubles. The last stage is several rounds, so that the result has an interval. Records are
kept as they come (logs/autotune/); --resume continues where a run was cut off. --exhaustive leaves out and halves
nothing.

Without a GPU it is a dry run: the groups are ranked by predicted times (docs/internals.md), those that the model does
not know by what the emulator counts.
"""

import argparse
import os
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from math import inf
from multiprocessing import Pool
from pathlib import Path
from typing import Any

from analysis.building import BUILDS
from analysis.errors import DONE, AnalysisError
from analysis.files import read_text, root, write_if_changed
from analysis.ladder.config import SMEM_MOST, Dtype, KernelConfig, config_set, parse_config, parse_short_form
from analysis.ladder.headers import load
from analysis.machine_code.cubin import Cubin, Kernel
from analysis.machine_code.images import read_images
from analysis.measure import executables, records, stats, summary
from analysis.measure.bench import (
    add_measuring_arguments,
    clock_text,
    dtypes_of,
    kept,
    new_run_id,
    refuse_wrong_rule,
    samples_kept,
)
from analysis.measure.executables import NoGpu
from analysis.measure.predicted import Prediction, predict, subject_named
from analysis.measure.records import Problem, Record
from analysis.measure.stats import Interval
from analysis.predict.kernels import kernel_of
from analysis.predict.launch import Shape
from analysis.predict.machine import model_digest, read_machine
from analysis.predict.tiles import GPU
from analysis.table import Cell, Table, add_table_arguments, print_table, read_columns

STACK_MOST = 128  # bytes per thread; a kernel that spills more has never won
REACH = 0.03  # a kernel this near to the best stays in the next stage
FINALISTS = 4
PREDICTED = "logs/autotune/predicted.csv"
PREDICTED_COLUMNS = ("version", "dtype", "seq", "config", "ms", "model")
WARM_SECONDS = 3.0  # of launches before the first stage, whose times would else begin at the clock of an idle GPU


@dataclass(frozen=True)
class Group:
    """Configurations with one machine code and one launch shape."""

    code_hash: str
    members: tuple[KernelConfig, ...]
    registers: int | None
    stack: int | None
    ldl: int
    static_smem: int

    @property
    def config(self) -> KernelConfig:
        """The one that is measured: the first with the fewest features."""
        return min(self.members, key=lambda config: (len(config.short_form()), config))

    @property
    def smem_bytes(self) -> int:
        """Shared memory of one CTA, dynamic and static."""
        return self.config.smem_bytes() + self.static_smem


@dataclass(frozen=True)
class Stage:
    """The measuring time of each group in one stage."""

    number: int
    rounds: int
    min_samples: int
    min_time: float
    timeout: float


def groups(kernels: Iterable[Kernel], wanted: Sequence[KernelConfig] | None = None) -> list[Group]:
    """Groups of equal code among the requested kernels, in the order of the file."""
    table: dict[tuple[str, int, int, int], list[tuple[KernelConfig, Kernel]]] = {}
    for kernel in kernels:
        if not kernel.entry:
            continue
        config = parse_config(kernel.symbol)
        if wanted is None or config in wanted:
            key = (kernel.code_hash, config.B_r, config.smem_bytes(), config.n_warps)
            table.setdefault(key, []).append((config, kernel))
    return [
        Group(
            key[0],
            tuple(config for config, _ in members),
            members[0][1].registers,
            members[0][1].stack,
            members[0][1].ldl,
            members[0][1].static_smem,
        )
        for key, members in table.items()
    ]


def cubin_for(path: Path, capability: str | None) -> Cubin:
    """The machine code in an executable that a GPU of this capability ("9.0") runs; the newest without one."""
    cubins = [image.cubin(path.name) for image in read_images(path) if image.kind == "cubin"]
    cubins = [cubin for cubin in cubins if any(k.symbol.startswith("_Z13flash_forward") for k in cubin.kernels)]
    numbers = {int("".join(filter(str.isdigit, cubin.arch))): cubin for cubin in cubins}
    if capability is not None:
        here = int(capability.replace(".", ""))
        numbers = {number: cubin for number, cubin in numbers.items() if here // 10 == number // 10 and number <= here}
    if not numbers:
        raise AnalysisError(f"{path}: holds no machine code of flash_forward for compute capability {capability}")
    return numbers[max(numbers)]


def left_out(group: Group, capability: str | None) -> str:
    """Why a group is not measured; "" when it is."""
    most = SMEM_MOST.get(capability or "", 227 << 10)
    if group.smem_bytes > most:
        return f"needs {group.smem_bytes} bytes of shared memory, the GPU has {most}"
    if (group.stack or 0) > STACK_MOST:
        return f"spills: a stack of {group.stack} bytes per thread"
    return ""


def survivors(times: dict[str, float]) -> list[str]:
    """The faster half, rounded up, and whatever is within reach of the best, fastest first."""
    ranked = sorted(times, key=lambda name: times[name])
    best = times[ranked[0]]
    half = (len(ranked) + 1) // 2
    return [name for location, name in enumerate(ranked) if location < half or times[name] <= best * (1 + REACH)]


def stages(count: int, exhaustive: bool, args: argparse.Namespace) -> list[Stage]:
    """Short stages until at most FINALISTS should be left, then the last one with all rounds."""
    last = Stage(0, args.rounds, args.min_samples, args.min_time, args.sample_timeout)
    short: list[Stage] = []
    while not exhaustive and count > FINALISTS:
        share = 2.0 ** len(short)
        short.append(
            Stage(len(short) + 1, 1, 5, min(0.02 * share, args.min_time), min(0.3 * share, args.sample_timeout))
        )
        count = (count + 1) // 2
    return [*short, Stage(len(short) + 1, last.rounds, last.min_samples, last.min_time, last.timeout)]


# ---- a search --------------------------------------------------------------------------------------------------------


@dataclass
class Search:
    """The search for one problem: what was measured so far is in `found`, by stage, round and short form."""

    version: str
    problem: Problem
    groups: list[Group]
    path: Path
    about: dict[str, Any]  # id and plan of the run
    found: dict[tuple[int, int, str], Record]
    deadline: float | None
    quiet: bool

    def sizes(self) -> list[str]:
        p = self.problem
        return ["--backend", "gpu", "--batch", str(p.batch), "--heads", str(p.heads), "--seq", str(p.seq)]

    def warm(self, form: str) -> None:
        """Launch a kernel until the GPU is as warm as in the middle of the search; its times are not kept."""
        arguments = [*self.sizes(), "--config", form, "--no-check", "--quiet", "--json", "-"]
        arguments += ["--min-time", f"{WARM_SECONDS:g}", "--timeout", f"{WARM_SECONDS:g}"]
        executables.checked(executables.run(executables.find(self.version), arguments, 60 + WARM_SECONDS))

    def measure(self, stage: Stage, number: int, forms: Sequence[str], check_rows: int, seed: int) -> bool:
        """One round of a stage over these configurations, one process; False when the time is up."""
        missing = [form for form in forms if (stage.number, number, form) not in self.found]
        arguments = [*self.sizes(), "--dist", self.problem.dist, "--seed", str(seed)]
        arguments += ["--min-samples", str(stage.min_samples)]
        arguments += ["--min-time", f"{stage.min_time:g}", "--timeout", f"{stage.timeout:g}", "--quiet", "--json", "-"]
        arguments += ["--check", str(check_rows)] if check_rows else ["--no-check"]
        for form in missing:
            arguments += ["--config", form]
        limit = 60 + len(missing) * (stage.timeout + 10)
        begin = time.monotonic()
        for done, raw in enumerate(
            executables.stream(executables.find(self.version), arguments, limit) if missing else ()
        ):
            raw["run"] = self.about | {"round": number, "stage": stage.number}
            record = records.parse(raw, self.version)
            records.append(self.path, [kept(raw, samples_kept(stage.rounds))])
            self.found[stage.number, number, record.config] = record
            self.tell(stage, number, done + 1, len(missing), begin)
            if self.deadline is not None and time.monotonic() > self.deadline:
                return False
        return True

    def tell(self, stage: Stage, number: int, done: int, count: int, begin: float) -> None:
        if self.quiet:
            return
        each = (time.monotonic() - begin) / done
        rest = each * (count - done + count * (stage.rounds - number))
        text = f"{self.problem.dtype} seq {self.problem.seq} · stage {stage.number} round {number}/{stage.rounds}"
        print(f"{text} · {done} of {count} · {clock_text(rest)} left in this stage", file=sys.stderr, flush=True)

    def times(self, stage: int, forms: Iterable[str]) -> dict[str, float]:
        """Median time over the rounds of a stage; wrong results have none."""
        table = {}
        for form in forms:
            mine = [record for (s, _, f), record in self.found.items() if s == stage and f == form]
            if mine and all(record.passed is not False and record.samples_ns for record in mine):
                table[form] = stats.median([stats.median(record.samples_ns) for record in mine])
        return table


@dataclass(frozen=True)
class Ranked:
    """One group's rank in the result."""

    group: Group
    time_ns: float | None
    slower: Interval | None  # time over the winner's
    samples: int
    stage: int  # the last it took part in, 0 for none
    remark: str


def run_search(search: Search, args: argparse.Namespace, capability: str | None) -> tuple[list[Ranked], bool]:
    """All stages; the ranking, best first, and whether the time sufficed."""
    forms = {group.config.short_form(): group for group in search.groups}
    pruned = (
        {} if args.exhaustive else {form: why for form, group in forms.items() if (why := left_out(group, capability))}
    )
    running = [form for form in forms if form not in pruned]
    reached: dict[str, int] = {}
    finished = True
    if running:
        search.warm(running[0])
    for stage in stages(len(running), args.exhaustive, args):
        for number in range(1, stage.rounds + 1):
            order = running if number % 2 else running[::-1]
            finished = search.measure(stage, number, order, args.check, args.seed) and finished
            if not finished:
                break
        times = search.times(stage.number, running)
        reached |= {form: stage.number for form in times}
        if not finished or not times:
            break
        running = survivors(times)
    return ranking(search, forms, pruned, reached), finished


def ranking(search: Search, forms: dict[str, Group], pruned: dict[str, str], reached: dict[str, int]) -> list[Ranked]:
    """By the last stage reached, then by time in it; the rest with its reason."""
    last = {form: search.times(stage, [form])[form] for form, stage in reached.items()}
    order = sorted(reached, key=lambda form: (-reached[form], last[form]))
    listed = []
    for form in order:
        mine = _rounds(search, form, reached[form])
        best = _rounds(search, order[0], reached[form])
        ratio = stats.ratio(mine, best) if form != order[0] else None
        remark = "winner" if form == order[0] else ""
        if ratio and reached[form] == reached[order[0]] and stats.speed_word(ratio[0].inverse()) in ("SAME", "UNSURE"):
            remark = "as fast as the winner, as far as can be told"
        samples = sum(r.timed for (_, _, f), r in search.found.items() if f == form)
        listed.append(Ranked(forms[form], last[form], ratio[0] if ratio else None, samples, reached[form], remark))
    for form, group in forms.items():
        if form not in reached:
            wrong = any(record.passed is False for (_, _, f), record in search.found.items() if f == form)
            why = "WRONG RESULT" if wrong else pruned.get(form, "not measured")
            listed.append(Ranked(group, None, None, 0, 0, why))
    return listed


def _rounds(search: Search, form: str, stage: int) -> dict[tuple[str, int], stats.Round]:
    return {
        (r.run_id, number): summary.round_of(r)
        for (s, number, f), r in search.found.items()
        if s == stage and f == form
    }


def table(version: str, problem: Problem, ranked: Sequence[Ranked]) -> Table:
    """The result of one search."""
    columns = (
        "version",
        "dtype",
        "seq",
        "rank",
        "config",
        "same code",
        "TFLOP/s",
        "time / best",
        "low",
        "high",
        "registers",
        "stack",
        "LDL",
        "smem",
        "samples",
        "stage",
        "remark",
    )
    lines: list[Sequence[Cell]] = []
    for location, one in enumerate(ranked, start=1):
        group = one.group
        ends = (None, None, None) if one.slower is None else (one.slower.mid, one.slower.low, one.slower.high)
        lines.append(
            (
                version,
                problem.dtype,
                problem.seq,
                location if one.time_ns else None,
                group.config.short_form(),
                len(group.members),
                round(problem.flop() / one.time_ns / 1e3, 1) if one.time_ns else None,
                *(None if end is None else round(end, 4) for end in ends),
                group.registers,
                group.stack,
                group.ldl,
                group.smem_bytes,
                one.samples,
                one.stage or None,
                one.remark,
            )
        )
    return Table(columns, lines)


def classes_text(found: Sequence[Group]) -> str:
    """The groups of configurations with equal machine code."""
    shared = [group for group in found if len(group.members) > 1]
    count = sum(len(group.members) for group in found)
    lines = [f"{count} configurations are {len(found)} distinct kernels"]
    for group in shared:
        lines.append(f"  {group.code_hash}:")
        lines += [f"    {config.short_form()}" for config in group.members]
    return "\n".join(lines)


# ---- without a GPU ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Unmeasured:
    """A group's rank without a GPU: its predicted launch, or what the emulator counts where the model fails."""

    group: Group
    predicted: Prediction | None
    counts: dict[str, int]

    def order(self) -> tuple[float, int, int]:
        """By time; those without one come last, by warp instructions, then by wavefronts of shared memory."""
        ms = self.predicted.ms if self.predicted else inf
        return ms, self.counts.get("executed", 0), self.counts.get("wavefronts", 0)


def ranked(version: str, found: Sequence[Group], problem: Problem, quiet: bool) -> list[Unmeasured]:
    """Groups in the order of the prediction of their launches, on the GPU that tiles are recorded for."""
    locations = []
    with Pool() as pool:
        launches = pool.imap(partial(_predicted, version, problem), found)
        for done, (group, predicted) in enumerate(zip(found, launches, strict=True), start=1):
            locations.append(Unmeasured(group, predicted, {} if predicted else counted(version, group)))
            if not quiet:
                print(f"{version} · {done} of {len(found)}", file=sys.stderr, flush=True)
    return sorted(locations, key=Unmeasured.order)


def dry_run(version: str, locations: Sequence[Unmeasured], problem: Problem) -> Table:
    columns = ("version", "dtype", "seq", "rank", "config", "same code", f"predicted TFLOP/s, {GPU.upper()}",
               "predicted ms", "PTX instructions", "modeled wavefronts", "registers", "stack")  # fmt: skip
    rows: list[Sequence[Cell]] = []
    for location, one in enumerate(locations, start=1):
        group, ms = one.group, one.predicted
        rows.append(
            (version, problem.dtype, problem.seq, location, group.config.short_form(), len(group.members),
             round(ms.tflops, 1) if ms else None, round(ms.ms, 4) if ms else None, one.counts.get("executed"),
             one.counts.get("wavefronts"), group.registers, group.stack)
        )  # fmt: skip
    return Table(columns, rows)


def keep_predicted(path: Path, version: str, problem: Problem, locations: Sequence[Unmeasured]) -> None:
    """Replaces the predicted times that the file has of this version and problem."""
    old, models = (read_predicted(path), models_of(path)) if path.exists() else ({}, {})
    key = version, problem.dtype, problem.seq
    old[key] = {one.group.config: one.predicted.ms for one in locations if one.predicted}
    models[key] = model_digest()
    rows = [
        (*which, config.short_form(), f"{ms:.4f}", models[which])
        for which, times in sorted(old.items())
        for config, ms in times.items()
    ]
    write_if_changed(path, Table(PREDICTED_COLUMNS, rows).csv())


def read_predicted(path: Path) -> dict[tuple[str, str, int], dict[KernelConfig, float]]:
    """Predicted milliseconds by version, type and length, then by configuration: of the groups of a dry run."""
    found: dict[tuple[str, str, int], dict[KernelConfig, float]] = {}
    for where, row in read_columns(read_text(path), PREDICTED_COLUMNS, str(path)):
        try:
            key = row["version"], row["dtype"], int(row["seq"])
            found.setdefault(key, {})[parse_short_form(row["config"])] = float(row["ms"])
        except ValueError as error:
            raise AnalysisError(f"{where}: {error}") from None
    return found


def models_of(path: Path) -> dict[tuple[str, str, int], str]:
    """By version, type and length: the digest of the state of the model that predicted, "" where it is not known."""
    rows = read_columns(read_text(path), PREDICTED_COLUMNS, str(path))
    return {(row["version"], row["dtype"], int(row["seq"])): row["model"] for _, row in rows}


def _predicted(version: str, problem: Problem, group: Group) -> Prediction | None:
    return predicted_launch(version, group, problem)


def predicted_launch(version: str, group: Group, problem: Problem) -> Prediction | None:
    """None where the model does not know the code."""
    machine = read_machine(GPU)
    try:
        subject = subject_named(str(executables.find(version)), group.config.short_form())
        return predict(kernel_of(subject, machine), machine, Shape(problem.batch, problem.heads, problem.seq))
    except AnalysisError:
        return None


def counted(version: str, group: Group) -> dict[str, int]:
    """The emulator's counters of a small launch."""
    arguments = ["--backend", "emu", "--config", group.config.short_form(), "--batch", "1", "--heads", "1"]
    arguments += ["--seq", "256", "--quiet", "--json", "-"]
    outcome = executables.checked(executables.run(executables.find(version), arguments, 300))
    total: dict[str, int] = (outcome.records[0].get("counters") or {}).get("total", {})
    return total


# ---- the command -----------------------------------------------------------------------------------------------------


def add_autotune_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--versions", metavar="LIST", help="versions, built with KERNELS=tune or another set (all that are built)"
    )
    parser.add_argument("--set", default="", metavar="SET", help="only members of this set; `configs` lists sets")
    parser.add_argument("--exhaustive", action="store_true", help="measure every distinct kernel in every round")
    parser.add_argument("--resume", action="store_true", help="continue the newest run of the same plan")
    parser.add_argument("--classes", action="store_true", help="only list the configurations that share machine code")
    parser.add_argument("--keep", action="store_true", help=f"of a dry run: record predicted times in {PREDICTED}")
    add_measuring_arguments(parser, rounds=5)
    add_table_arguments(parser)


def run_autotune(args: argparse.Namespace) -> int:
    """Search for each version, dtype and length; the table, the classes and the winners."""
    refuse_wrong_rule(args)
    if os.environ.get(BUILDS) and args.versions:  # bin/vNN keeps the version's own configuration
        os.environ |= {"BIN": "bin/tune", "KERNELS": args.set or "tune"}
    versions = executables.chosen_versions(args.versions)
    try:
        device, capability = probe(versions[0])
    except NoGpu:
        device, capability = "", None
    found = {version: groups_of(version, capability, args.set) for version in versions}
    if args.classes:
        for version, mine in found.items():
            print(f"{version}: {classes_text(mine)}")
        return DONE
    problems = [
        Problem("attention", dtype, args.batch or executables.standard_batch(seq), args.heads, seq, 128, args.dist)
        for dtype in dtypes_of(args)
        for seq in executables.numbers(args.seqs, "--seqs")
    ]
    if capability is not None:
        tables = search_all(found, problems, device, capability, args)
    else:
        print("no GPU: a dry run that ranks by predicted times; these are no measured times", file=sys.stderr)
        tables = []
        for version, mine in found.items():
            for problem in problems:
                locations = ranked(version, of_dtype(mine, problem.dtype), problem, args.quiet)
                tables.append(dry_run(version, locations, problem))
                if args.keep:
                    keep_predicted(root() / PREDICTED, version, problem, locations)
    print_table(Table(tables[0].columns, [row for one in tables for row in one.rows]), args)
    return DONE


def groups_of(version: str, capability: str | None, members: str) -> list[Group]:
    """The groups of a version's executable that belong to the set."""
    path = executables.find(version)
    header = load(root(), version).header
    wanted = config_set(members, header.config, header.additional) if members else None
    chosen = groups(cubin_for(path, capability).kernels, wanted)
    if not chosen:
        raise AnalysisError(f"{path} holds no configuration of {members!r}: make {version} KERNELS='{members}'")
    return chosen


def of_dtype(found: Sequence[Group], dtype: str) -> list[Group]:
    """The groups for one element type."""
    return [group for group in found if group.config.dtype is Dtype[dtype.upper()]]


def search_all(
    found: dict[str, list[Group]], problems: Sequence[Problem], device: str, capability: str, args: argparse.Namespace
) -> list[Table]:
    """One search for each version and problem, each with its share of the budget."""
    begin, run = time.monotonic(), new_run_id()
    tasks = [(version, mine, problem) for version, mine in found.items() for problem in problems]
    tables = []
    for index, (version, groups_found, problem) in enumerate(tasks):
        output = args.records or root() / "logs" / "autotune" / f"{records.gpu_slug(device)}.{version}.jsonl"
        deadline = None if args.budget is None else begin + args.budget * (index + 1) / len(tasks)
        mine = of_dtype(groups_found, problem.dtype)
        search = start_search(args, version, problem, mine, output, run, deadline)
        ranked, finished = run_search(search, args, capability)
        tables.append(table(version, problem, ranked))
        _say_winner(version, problem, ranked, mine, finished, args.quiet)
    return tables


def probe(version: str) -> tuple[str, str]:
    """Name and compute capability of the GPU; NoGpu without one."""
    arguments = ["--backend", "gpu", "--seq", "512", "--batch", "1", "--heads", "1", "--no-check", "--runs", "1"]
    outcome = executables.run(executables.find(version), [*arguments, "--quiet", "--json", "-"], 120)
    executables.checked(outcome)
    raw = outcome.records[0]
    return records.device_name(raw), str(raw["device"]["cc"])


def start_search(
    args: argparse.Namespace,
    version: str,
    problem: Problem,
    mine: list[Group],
    output: Path,
    run: str,
    deadline: float | None,
) -> Search:
    """A new search, or with --resume the newest one of the same problem, groups and options."""
    hashes = sorted(group.code_hash for group in mine)
    plan = records.fingerprint(
        [
            version,
            asdict(problem),
            hashes,
            args.rounds,
            args.min_samples,
            args.min_time,
            args.exhaustive,
            args.seed,
            args.check,
        ]
    )
    found: dict[tuple[int, int, str], Record] = {}
    if args.resume and output.exists():
        same = [r for r in records.read(output).records if r.run.get("plan") == plan]
        if same:
            run = max(record.run_id for record in same)
            found = {(r.run.get("stage") or 0, r.round, r.config): r for r in same if r.run_id == run}
            print(f"resuming {run} with {len(found)} records", file=sys.stderr)
    return Search(version, problem, mine, output, {"id": run, "plan": plan}, found, deadline, args.quiet)


def _say_winner(
    version: str, problem: Problem, ranked: Sequence[Ranked], mine: Sequence[Group], finished: bool, quiet: bool
) -> None:
    if not ranked or ranked[0].time_ns is None:
        raise AnalysisError(f"nothing could be measured on {problem}")
    best = ranked[0]
    assert best.time_ns is not None
    if not quiet:
        print(classes_text(mine), file=sys.stderr)
    if not finished:
        print("the budget ended the search; --resume continues", file=sys.stderr)
    tflops = problem.flop() / best.time_ns / 1e3
    print(f"{version}: winner at {problem}: {best.group.config.short_form()}  {tflops:.1f} TFLOP/s", file=sys.stderr)
