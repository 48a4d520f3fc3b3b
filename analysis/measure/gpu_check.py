"""The checks that need a GPU: results over shapes, types, inputs and instances; sanitizers; exit statuses.

    python3 -m analysis gpu-check --versions v09,v10 --budget 300      # --quick: one short round over everything

The most important checks of every version come first, then the next group, so that a budget cuts the least important.
Every result is compared with the float64 reference by the executable itself, on a poisoned output. Exit status: 0 all
passed, 1 some failed, 4 all that ran passed but the budget ended it, 77 no GPU here.
"""

import argparse
import itertools
import math
import random
import re
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from analysis.errors import DIFFERENT, DONE, AnalysisError
from analysis.files import root
from analysis.ladder.config import KernelConfig, parse_config
from analysis.ladder.headers import load
from analysis.measure import compare, executables, records, sanitize
from analysis.measure.bench import clock_text
from analysis.measure.executables import CANNOT_RUN, RIGHT, SYSTEM, UNTRUSTED, USAGE, NoGpu, Outcome
from analysis.table import Cell, Table, add_table_arguments, print_table

TIMEOUT = 240.0
DTYPES = ("fp16", "bf16")
HEADS = "1,2,3,16,17,32"
D_HEAD = 128  # elements of a row of O in the outputs that are compared with the emulator's

# racecheck does not follow a __syncwarp to the arrival after it: docs/internals.md, one_lane_tells.
KNOWN_RACES = frozenset({"v25", "attention/mma_sync"})

# The matrix of PyTorch's own tests of its flash attention kernels: test_flash_attention_vs_math_ref_grads in
# test/test_transformers.py. Heads and KV heads; where it scales by 1 / d_head ("l1"), or by the usual root of it.
SDPA_SEQ_Q, SDPA_SEQ_K = "4,8,64,143,256,512,1024,2048", "4,8,64,127,256,579,1024,2048"
SDPA_HEADS = ((4, 4), (16, 8), (10, 2))
SDPA_BATCHES = ("1", "8")


@dataclass(frozen=True)
class Check:
    """One call. `verdict` returns "" for a pass, else what was wrong; `records` in the note come from the outcome."""

    group: str
    version: str
    name: str
    run: Callable[[], tuple[str, str]]  # (what was wrong, a note such as the largest error)


@dataclass(frozen=True)
class Result:
    check: Check
    wrong: str
    note: str
    seconds: float


# ---- groups of checks ------------------------------------------------------------------------------------------------


def right(version: str, arguments: Sequence[str]) -> tuple[str, str]:
    """The executable must find every result of the sweep correct. The note has the number of results and the error."""
    fixed = ["--backend", "gpu", "--runs", "1", "--warmup", "0", "--quiet", "--json", "-"]
    outcome = executables.run(executables.find(version), [*fixed, *arguments], TIMEOUT)
    found = [records.parse(raw, version) for raw in outcome.records]
    worst = max((record.error_over_bound or 0.0 for record in found), default=0.0)
    note = f"{len(found)} results, largest error {100 * worst:.0f} % of the tolerance"
    if outcome.status != RIGHT:
        failing = [f"{record.config} {record.problem}" for record in found if record.passed is False]
        return "; ".join([outcome.problem(), *failing[:3]]), note
    if not found or not all(record.passed for record in found):
        return "exit 0, but not every record says that its result was checked and correct", note
    return "", note


def shapes(version: str, config: KernelConfig, quick: bool) -> Iterator[Check]:
    """Lengths from one KV block on, batch and heads, inputs."""
    least = math.lcm(config.B_r, config.B_c)
    sizes = [least, 128, 256, 384, 512, 1024] + ([] if quick else [2048, 4096])
    lengths = ",".join(str(size) for size in dict.fromkeys(sizes) if size % least == 0)
    sweeps = {
        f"seq {lengths}": ["--batch", "1", "--heads", "2", "--seq", lengths],
        f"heads {HEADS}": ["--batch", "1,3", "--heads", HEADS, "--seq", "256"],
        "large inputs": ["--dist", "large", "--batch", "2", "--heads", "3", "--seq", f"{least},512,1024"],
    }
    if not quick:
        sweeps |= {
            "batch 16": ["--batch", "16", "--heads", "1,17", "--seq", f"{least},512"],
            "uniform inputs": ["--dist", "uniform", "--batch", "2", "--heads", "3", "--seq", "512"],
            "ramp inputs": ["--dist", "ramp", "--batch", "2", "--heads", "3", "--seq", "512"],
            "other seeds": ["--seed", "77", "--batch", "2", "--heads", "3", "--seq", "256"],
            "every row": ["--check", "all", "--batch", "2", "--heads", "3", "--seq", "256"],
        }
    for dtype in DTYPES:
        for name, arguments in sweeps.items():
            yield _right("shapes", version, f"{dtype} {name}", ["--dtype", dtype, *arguments])


def general(version: str, config: KernelConfig, quick: bool) -> Iterator[Check]:
    """Random cases of general attention, the same in every run: each call has the pairs of two lists of lengths.

    The problems of a version that supports any length: all head sizes, and masks and KV heads if its config has them.
    """
    if not config.any_length:
        return
    sizes = _sizes(version, config)
    for number in range(6 if quick else 48):
        draw = random.Random(f"{version} {number}")
        KV_heads, group = draw.randint(1, 3), draw.choice((1, 2, 4, 8)) if config.grouped_heads else 1
        arguments = ["--dtype", DTYPES[number % 2], "--d-head", str(sizes[number // 2 % len(sizes)])]
        arguments += ["--causal"] * (config.causal and number // 3 % 2)
        arguments += ["--kv-heads", str(KV_heads), "--heads", str(KV_heads * group), "--batch", str(draw.randint(1, 3))]
        arguments += ["--layout", draw.choice(("bshd", "bhsd", "padded")), "--seed", str(draw.randint(1, 10**9))]
        arguments += ["--dist", draw.choice(("normal", "normal", "uniform", "large"))]
        arguments += ["--scale", draw.choice(("0.02", "0.3"))] * draw.choice((0, 0, 1)) + ["--lse"] * draw.choice(
            (0, 1)
        )
        arguments += ["--seq-q", _lengths(draw, config.B_r), "--seq-k", _lengths(draw, config.B_c), "--check", "64"]
        yield _right("general", version, f"{number}: {' '.join(arguments)}", arguments)
    for dtype in DTYPES:
        long = [
            "--dtype",
            dtype,
            "--batch",
            "1",
            "--heads",
            "2",
            "--seq-q",
            "1,3,130",
            "--seq-k",
            "16385,131072",
            "--lse",
        ]
        yield _right("general", version, f"{dtype} few queries on many keys", long)
        if config.causal:
            yield _right("general", version, f"{dtype} the same with the mask", [*long, "--causal"])


def _sizes(version: str, config: KernelConfig) -> list[int]:
    """The version's own sizes of heads."""
    return [config.d_head, *(other.d_head for other in load(root(), version).header.others)]


def sdpa(version: str, config: KernelConfig, quick: bool) -> Iterator[Check]:
    """PyTorch's matrix of lengths, heads, masks and scales, for each type and size of heads; each call has 64 pairs.

    The two batches take turns, so that a neighbor in each of the others has the other one.
    """
    if not config.any_length:
        return
    masks = (False, True) if config.causal else (False,)
    heads = [pair for pair in SDPA_HEADS if pair[0] == pair[1] or config.grouped_heads]
    cases = list(itertools.product(DTYPES, _sizes(version, config), masks, enumerate(heads), (False, True)))
    for dtype, d_head, causal, (location, (n_heads, KV_heads)), l1 in cases[:: 7 if quick else 1]:
        batch = SDPA_BATCHES[(DTYPES.index(dtype) + d_head // 32 + causal + location + l1) % 2]
        arguments = ["--dtype", dtype, "--d-head", str(d_head), *["--causal"] * causal, "--batch", batch]
        arguments += ["--heads", str(n_heads), "--kv-heads", str(KV_heads), *["--scale", f"{1 / d_head:.9g}"] * l1]
        name = " ".join(arguments)
        arguments += ["--seq-q", SDPA_SEQ_Q, "--seq-k", SDPA_SEQ_K, "--dist", "uniform", "--lse", "--check", "64"]
        yield _right("sdpa", version, name, arguments)


def _lengths(draw: random.Random, block: int) -> str:
    """Eight lengths: any up to a thousand, small ones, and some about whole blocks."""
    near = [max(1, block * draw.randint(1, 4) + draw.randint(-2, 2)) for _ in range(3)]
    return ",".join(map(str, [*near, draw.randint(1, 20), *(draw.randint(1, 1000) for _ in range(4))]))


def big(version: str) -> Iterator[Check]:
    """The problems that bench times."""
    for dtype in DTYPES:
        yield _right("big", version, f"{dtype} standard problems", ["--dtype", dtype, "--seq", "4096,8192,16384"])


def instances(version: str) -> Iterator[Check]:
    """Every configuration that is in the executable."""
    arguments = ["--config", "all", "--batch", "2", "--heads", "3"]
    yield _right("instances", version, "every instance", [*arguments, "--seq", "256,512"])
    yield _right("instances", version, "every instance, large inputs", [*arguments, "--seq", "256", "--dist", "large"])


def _right(group: str, version: str, name: str, arguments: Sequence[str]) -> Check:
    return Check(group, version, name, partial(right, version, arguments))


def launches(config: KernelConfig) -> list[Sequence[str]]:
    """Small problems for what takes its time: whole blocks; where a version takes any length, partial ones with all it
    can, several KV blocks and Q blocks of them."""
    if not config.any_length:
        return [sanitize.SMALL]
    odd = ["--batch", "2", "--heads", "4", "--seq-q", "197", "--seq-k", "333", "--lse"]
    return [sanitize.SMALL, [*odd, *["--kv-heads", "2"] * config.grouped_heads, *["--causal"] * config.causal]]


def sanitizers(version: str, config: KernelConfig) -> Iterator[Check]:
    """The four tools of compute-sanitizer over one launch."""
    for tool, launch, dtype in itertools.product(sanitize.TOOLS, launches(config), DTYPES):
        name = f"{dtype} {tool} {' '.join(launch)}"
        yield Check("sanitizers", version, name, partial(_sanitized, version, dtype, tool, launch))


def _sanitized(version: str, dtype: str, tool: str, launch: Sequence[str]) -> tuple[str, str]:
    found = sanitize.on_gpu(version, dtype, tool, launch, timeout=TIMEOUT).found
    known = tool == "racecheck" and version in KNOWN_RACES and "Race reported" in found
    return ("", f"known: {found}") if known else (found, "")


def statuses(version: str) -> Iterator[Check]:
    """Exit statuses other than 0; they are the harness's own and the same in every version."""
    small = ["--backend", "gpu", "--batch", "1", "--heads", "1", "--seq", "512"]
    unstable = [
        "--strict",
        "--no-check",
        "--max-noise",
        "0",
        "--min-samples",
        "3",
        "--min-time",
        "0",
        "--timeout",
        "0.2",
    ]
    unbuilt = "(FP16, 128, 16, 16, 1): load_0_0_0_tiles"
    cases: list[tuple[str, int, list[str], dict[str, str]]] = [
        ("an unknown option is 2", USAGE, ["--no-such-option"], {}),
        ("seq 0 is 2", USAGE, [*small[:-1], "0"], {}),
        ("a config that is not built is 2", USAGE, [*small, "--config", unbuilt], {}),
        ("a full disk is 3", SYSTEM, [*small, "--runs", "1", "--json", "/dev/full"], {}),
        ("an unstable time with --strict is 4", UNTRUSTED, [*small, *unstable], {}),
        ("no visible GPU is 77", CANNOT_RUN, small, {"CUDA_VISIBLE_DEVICES": ""}),
    ]
    for name, expected, arguments, environment in cases:
        yield Check("statuses", version, name, partial(_status, version, expected, arguments, environment))


def _status(version: str, expected: int, arguments: list[str], environment: dict[str, str]) -> tuple[str, str]:
    outcome = executables.run(executables.find(version), arguments, TIMEOUT, environment)
    if outcome.status == expected:
        return ("", "") if outcome.stderr.strip() else ("no message", "")
    return f"exit {outcome.status} instead of {expected}: {outcome.problem()}", ""


def emulator(version: str, config: KernelConfig) -> Iterator[Check]:
    """The GPU's output compared with the emulator's, for the same inputs."""
    for launch, dtype in itertools.product(launches(config), DTYPES):
        name = f"{dtype} output as the emulator's, {' '.join(launch)}"
        yield Check("emulator", version, name, partial(same_output, version, dtype, launch))


COMPARED = ("--seed 1", "--seed 2", "--seed 3", "--dist uniform", "--dist large")


def same_output(version: str, dtype: str, launch: Sequence[str] = sanitize.SMALL) -> tuple[str, str]:
    """At most one rounding step between the two back ends in every element, for several inputs."""
    notes = []
    with tempfile.TemporaryDirectory() as folder:
        for inputs in COMPARED:
            outputs = []
            for backend in ("gpu", "emu"):
                path = Path(folder) / backend
                arguments = ["--backend", backend, "--dtype", dtype, *launch, *inputs.split()]
                arguments += ["--output", str(path), *(["--runs", "1"] if backend == "gpu" else [])]
                outcome = executables.run(executables.find(version), arguments, TIMEOUT)
                if outcome.status != RIGHT:
                    return f"{inputs}, {backend}: {outcome.problem()}", ""
                outputs.append(path.read_bytes())
            wrong, note = compare_outputs(outputs[0], outputs[1], dtype)
            if wrong:
                return f"{inputs}: {wrong}", note
            notes.append(note)
    return "", "; ".join(notes)


def compare_outputs(ours: bytes, theirs: bytes, dtype: str) -> tuple[str, str]:
    """Elements that differ, and those that differ by more than a rounding step.

    P and the fp32 sums round differently on the two, so an element's error is a step of the size of what was summed,
    not of a result that happens to be near 0: the step is taken at the larger of the element and the mean magnitude.
    """
    if len(ours) != len(theirs) or not ours:
        return f"{len(ours)} bytes and {len(theirs)}", ""
    mantissa = 11 if dtype == "fp16" else 8
    a, b = halves(ours, dtype), halves(theirs, dtype)
    if not all(map(math.isfinite, (*a, *b))):
        return "not every element is finite", ""
    mean = sum(map(abs, b)) / len(b)
    differing, worst, far = 0, 0.0, list[int]()
    for index, (x, y) in enumerate(zip(a, b, strict=True)):
        if x != y:
            differing += 1
            step = math.ldexp(1.0, math.frexp(max(abs(x), abs(y), mean))[1] - mantissa)
            far += [index // D_HEAD] if abs(x - y) > step else []
            worst = max(worst, abs(x - y) / step)
    rows = len(set(far))
    note = f"{100 * differing / len(a):.2f} % differ, by at most {worst:.2f} steps"
    note += f", {len(far)} by more than one in {rows} of {len(a) // D_HEAD} rows" if far else ""
    return ("" if worst <= 1 else f"an element differs by {worst:.2f} rounding steps"), note


def halves(data: bytes, dtype: str) -> list[float]:
    """16-bit elements as numbers."""
    count = len(data) // 2
    if dtype == "fp16":
        return list(struct.unpack(f"<{count}e", data))
    return list(struct.unpack(f"<{count}f", b"".join(b"\0\0" + data[i : i + 2] for i in range(0, 2 * count, 2))))


def steady(version: str) -> Iterator[Check]:
    """A version measured against itself is the same."""
    yield Check("steady", version, "two runs of one version are SAME", partial(_steady, version))


def _steady(version: str) -> tuple[str, str]:
    parser = argparse.ArgumentParser()
    compare.add_compare_arguments(parser)
    with tempfile.TemporaryDirectory() as folder:
        args = parser.parse_args([version, version, "--quiet", "--rounds", "5", "--records", f"{folder}/records.jsonl"])
        (one,) = compare.measure(version, version, args)
    return ("" if one.verdict.word == "SAME" else f"{one.verdict.word}: {one.verdict.reason}"), str(one.verdict.speedup)


# ---- running them ----------------------------------------------------------------------------------------------------


def plan(versions: Sequence[str], configs: dict[str, KernelConfig], quick: bool, groups: Sequence[str]) -> list[Check]:
    """Every check, group by group over all versions."""
    first = versions[0]
    by_group: dict[str, list[Check]] = {
        "shapes": [check for version in versions for check in shapes(version, configs[version], quick)],
        "general": [check for version in versions for check in general(version, configs[version], quick)],
        "sdpa": [check for version in versions for check in sdpa(version, configs[version], quick)],
        "statuses": list(statuses(first)),
        "instances": [check for version in versions for check in instances(version)],
        "sanitizers": [check for version in versions for check in sanitizers(version, configs[version])],
        "emulator": [check for version in versions for check in emulator(version, configs[version])],
        "big": [] if quick else [check for version in versions for check in big(version)],
        "steady": [] if quick else list(steady(versions[-1])),
    }
    return [check for group in groups for check in by_group[group]]


TIMED = ("statuses", "steady")  # groups with a check that depends on the time it takes
GROUPS = ("shapes", "general", "sdpa", "statuses", "instances", "sanitizers", "emulator", "big", "steady")


def run_checks(checks: Sequence[Check], budget: float | None, jobs: int, quiet: bool) -> tuple[list[Result], int]:
    """Results in the order of the checks, and how many the budget left out.

    Several run at a time, since most of a check is the start of a process; what is timed runs alone at the end.
    """
    begin = time.monotonic()
    results: dict[int, Result] = {}
    for alone in (False, True):
        waiting = [index for index, check in enumerate(checks) if (check.group in TIMED) == alone]
        with ThreadPoolExecutor(1 if alone else jobs) as pool:
            for index, result in pool.map(partial(_run_one, checks, results, begin, budget), waiting):
                if result is None:
                    continue
                results[index] = result
                if not quiet:
                    _tell(result, len(results), len(checks), time.monotonic() - begin)
    return [results[index] for index in sorted(results)], len(checks) - len(results)


def _run_one(
    checks: Sequence[Check], results: dict[int, Result], begin: float, budget: float | None, index: int
) -> tuple[int, Result | None]:
    """One check; None when it is not expected to end within the budget."""
    check, start = checks[index], time.monotonic()
    alike = [result.seconds for result in list(results.values()) if result.check.group == check.group]
    if budget is not None and start - begin + max(alike, default=0.0) > budget:
        return index, None
    try:
        wrong, note = check.run()
    except NoGpu:
        raise
    except AnalysisError as error:
        wrong, note = str(error), ""
    return index, Result(check, wrong, note, time.monotonic() - start)


def _tell(result: Result, done: int, count: int, seconds: float) -> None:
    word = f"FAILED: {result.wrong}" if result.wrong else f"ok {result.note}"
    where = f"{clock_text(seconds)} {done}/{count} {result.check.version} {result.check.name}"
    print(f"{where}: {word}", file=sys.stderr, flush=True)


def table(results: Sequence[Result], versions: Sequence[str], groups: Sequence[str]) -> Table:
    """One row per version, one column per group: passed of all."""
    lines: list[Sequence[Cell]] = []
    for version in versions:
        cells: list[Cell] = []
        for group in groups:
            mine = [r for r in results if r.check.version == version and r.check.group == group]
            cells.append(f"{sum(not r.wrong for r in mine)}/{len(mine)}" if mine else None)
        seconds = sum(r.seconds for r in results if r.check.version == version)
        lines.append((version, *cells, round(seconds, 1)))
    return Table(("version", *groups, "seconds"), lines)


def own_config(version: str) -> tuple[str, KernelConfig]:
    """Device and the version's own configuration, from one run on the GPU. NoGpu without one."""
    arguments = ["--backend", "gpu", "--batch", "1", "--heads", "1", "--seq", "512", "--runs", "1", "--no-check"]
    outcome: Outcome = executables.run(executables.find(version), [*arguments, "--quiet", "--json", "-"], TIMEOUT)
    executables.checked(outcome)
    if not outcome.records:
        raise AnalysisError(f"bin/{version} printed no record")
    record = records.parse(outcome.records[0], version)
    return record.device, parse_config(record.config)


def _probed(versions: Sequence[str]) -> dict[str, tuple[str, KernelConfig]]:
    """own_config() of each version that runs here; the others are named. AnotherGpu if none does."""
    probed, lacking = {}, []
    for version in versions:
        try:
            probed[version] = own_config(version)
        except executables.AnotherGpu as error:
            lacking.append(error)
            print(f"left out: {error}", file=sys.stderr)
    if not probed:
        raise lacking[0]
    return probed


def add_gpu_check_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--versions", metavar="LIST", help="versions, separated by commas or spaces (all that are built)"
    )
    parser.add_argument(
        "--groups", default=",".join(GROUPS), metavar="LIST", help=f"groups of checks: {', '.join(GROUPS)} (all)"
    )
    parser.add_argument("--quick", action="store_true", help="use fewer shapes and no large problems")
    parser.add_argument("--budget", type=float, metavar="S", help="stop before this many seconds are used")
    parser.add_argument("--jobs", type=int, default=6, metavar="N", help="parallel checks (6)")
    parser.add_argument("--quiet", action="store_true", help="do not show progress")
    add_table_arguments(parser)


def run_gpu_check(args: argparse.Namespace) -> int:
    """Run the checks and print the table."""
    versions = executables.chosen_versions(args.versions)
    groups = [name for name in re.split(r"[,\s]+", args.groups) if name]
    if unknown := [name for name in groups if name not in GROUPS]:
        raise AnalysisError(f"--groups {unknown[0]!r}: there are {', '.join(GROUPS)}")
    try:
        probed = _probed(versions)
        versions = list(probed)
        device = probed[versions[0]][0]
        checks = plan(versions, {name: config for name, (_, config) in probed.items()}, args.quick, groups)
        results, left_out = run_checks(checks, args.budget, args.jobs, args.quiet)
    except NoGpu as error:
        print(f"no GPU: gpu-check needs one ({error})", file=sys.stderr)
        return CANNOT_RUN
    print_table(table(results, versions, groups), args)
    failed = [result for result in results if result.wrong]
    for result in failed:
        print(f"FAILED {result.check.version} {result.check.name}: {result.wrong}", file=sys.stderr)
    print(
        f"{device}: {len(results) - len(failed)} of {len(results)} checks passed, {left_out} not run", file=sys.stderr
    )
    return DIFFERENT if failed else UNTRUSTED if left_out else DONE
