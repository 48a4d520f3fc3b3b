"""The fastest version beside the libraries that compute the same: TFLOP/s and ratios from the records of one GPU.

    print(libraries_table(root(), read_steps(root())).markdown())
    print(standing(root(), read_steps(root())))

Each row is of the newest run that holds its subject and FlashAttention-2 at all lengths; where there is none, each
figure of the newest run that holds both. A library that no run holds is left out: nothing is quoted from elsewhere.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from analysis.measure.records import Problem, Record, records_in
from analysis.measure.stats import Interval
from analysis.measure.summary import Row
from analysis.publish.overview import (
    HEADLINE,
    LENGTHS,
    PEER,
    TOKENS,
    Step,
    newest_ratio,
    newest_rows,
    of_one_run,
    own_records,
    problem_at,
    problem_of_tokens,
)
from analysis.table import Cell, Table

GPU = "h200"
NAMES = {
    "cudnn": "cuDNN",
    "fa3": "FlashAttention-3",
    "fa2": "FlashAttention-2",
    "efficient": "memory-efficient attention",
}
NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class Standing:
    """A library's row at one problem, and its package: "FlashAttention-3 3.0.0", or "PyTorch 2.11" that calls it."""

    name: str
    package: str
    row: Row


def libraries_at(records: Sequence[Record], steps: Sequence[Step], problem: Problem = HEADLINE) -> list[Standing]:
    """The libraries measured at the problem, in the order of NAMES; the versions of a run take part in its scatter."""
    rows = newest_rows(records, problem, {step.name: step.version for step in steps}, list(NAMES))
    packages = {record.subject: str(record.raw.get("library", "")) for record in records if record.is_peer}
    return [Standing(name, packages.get(peer, ""), rows[peer]) for peer, name in NAMES.items() if peer in rows]


def records_of(folder: Path, gpu: str = GPU) -> tuple[Record, ...]:
    """Every record of that GPU; none where it has no file."""
    path = folder / f"logs/bench/{gpu}.jsonl"
    return records_in(path) if path.exists() else ()


def fastest(steps: Sequence[Step]) -> Step:
    """The version that is fastest at the headline problem; the last of all where none was measured."""
    measured = [step for step in steps if GPU in step.speeds]
    return max(measured, key=lambda step: step.speeds[GPU].tflops) if measured else steps[-1]


def libraries_table(folder: Path, steps: Sequence[Step]) -> Table:
    """One row per subject and type, one column per length: TFLOP/s, and in brackets speed / FlashAttention-2's."""
    records, best = records_of(folder), fastest(steps)
    versions = {step.name: step.version for step in steps}
    rows: list[Sequence[Cell]] = []
    for dtype in ("fp16", "bf16"):
        problems = [problem_at(seq, dtype) for seq in LENGTHS]
        for subject, name in {best.name: best.name, **NAMES}.items():
            mine = of_one_run(records, [subject, PEER], problems)
            found = [newest_rows(mine, problem, versions, [subject]).get(subject) for problem in problems]
            if any(found):
                rows.append((name, dtype, *(_shown(row) for row in found)))
    return Table(("", "type", *map(str, LENGTHS)), rows)


SIZES: dict[str, Callable[[int, str], Problem]] = {
    "16, 8, 4": problem_at,
    f"{TOKENS} / length": problem_of_tokens,
}
COMPARED = ("fa3", "cudnn", "fa2")


def lead_table(folder: Path, steps: Sequence[Step]) -> Table:
    """How many times as fast as each library the fastest version is, at both sizes; what was not measured is left out.

    A problem of both sizes, such as 16 sequences of 1024, does not make a row of the second one alone.
    """
    records, best = records_of(folder), fastest(steps)
    versions = {step.name: step.version for step in steps}
    rows: list[Sequence[Cell]] = []
    for peer in COMPARED:
        for dtype in ("fp16", "bf16"):
            seen: set[Problem] = set()
            for size, problem in SIZES.items():
                problems = [problem(seq, dtype) for seq in LENGTHS]
                mine = of_one_run(records, [best.name, peer], problems)
                at = [own_records(mine, one, versions) for one in problems]
                ratios = [newest_ratio(each, best.name, peer) for each in at]
                if any(ratio and one not in seen for ratio, one in zip(ratios, problems, strict=True)):
                    rows.append((f"{best.name} / {NAMES[peer]}", dtype, size, *map(_interval, ratios)))
                seen |= {*problems}
    return Table(("speed", "type", "batch", *map(str, LENGTHS)), rows)


def _interval(ratio: Interval | None) -> str:
    return ratio.plus_minus() if ratio else NOT_MEASURED


def _shown(row: Row | None) -> str:
    if row is None:
        return NOT_MEASURED
    return f"{row.tflops:.0f}" + (f" ({row.ratio.mid:.2f})" if row.ratio and row.subject != PEER else "")


def _first_word(name: str) -> str:
    """The name at the beginning of a sentence; cuDNN is written so everywhere."""
    return name.capitalize() if name.islower() else name


def standing(folder: Path, steps: Sequence[Step]) -> str:
    """Where the ladder stands at the headline problem, in a sentence or two: what is faster comes first."""
    records, best = records_of(folder), fastest(steps)
    ours = best.speeds.get(GPU)
    if ours is None:
        return f"{best.name} is not measured on an {GPU.upper()}.\n"
    libraries = libraries_at(records, steps)
    faster = [one for one in libraries if one.row.tflops > ours.tflops]
    slower = [one for one in libraries if one.row.tflops <= ours.tflops]
    said = [
        f"{one.name} reaches {one.row.tflops:.0f} TFLOP/s and is {one.row.tflops / ours.tflops:.2f} times as fast as "
        f"{best.name}, which reaches {ours.tflops:.0f}."
        for one in faster
    ] or [f"{best.name} reaches {ours.tflops:.0f} TFLOP/s."]
    slower.sort(key=lambda one: -one.row.tflops)
    said += [f"{_first_word(one.name)} reaches {one.row.tflops:.0f}." for one in slower]
    for package in sorted({one.package for one in libraries if one.package.startswith("PyTorch")}):
        said.append(f"The libraries were called through {package}.")
    own = [f"{one.name} is {one.package}" for one in libraries if not one.package.startswith("PyTorch")]
    said += [f"{', '.join(own)}, built from its own source."] if own else []
    device = ours.device.removeprefix("NVIDIA ")
    return f"On an {device}, in {HEADLINE.dtype} at seq {HEADLINE.seq}: {' '.join(said)}\n"
