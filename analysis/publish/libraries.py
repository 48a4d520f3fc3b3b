"""The fastest version next to the libraries that compute the same: TFLOP/s and ratios from the records of one GPU.

    print(libraries_table(root(), read_steps(root())).markdown())

Each row is of the newest run that holds its subject and FlashAttention-2 at all lengths; where there is none, each
figure of the newest run that holds both. A library that no run holds is left out: nothing is quoted from elsewhere.
"""

from collections.abc import Sequence
from pathlib import Path

from analysis.measure.records import Record, records_in
from analysis.measure.summary import Row
from analysis.publish.overview import GPU, HEADLINE, LENGTHS, PEER, Step, newest_rows, of_one_run, problem_at
from analysis.table import Cell, Table

NAMES = {
    "cudnn": "cuDNN",
    "fa3": "FlashAttention-3",
    "fa2": "FlashAttention-2",
    "efficient": "memory-efficient attention",
}
NOT_MEASURED = "not measured"


def libraries_at(folder: Path, steps: Sequence[Step]) -> dict[str, Row]:
    """The libraries measured at the headline problem, by name; the versions of a run take part in its scatter."""
    versions = {step.name: step.version for step in steps}
    rows = newest_rows(records_of(folder), HEADLINE, versions, list(NAMES))
    return {name: rows[peer] for peer, name in NAMES.items() if peer in rows}


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


def _shown(row: Row | None) -> str:
    if row is None:
        return NOT_MEASURED
    return f"{row.tflops:.0f}" + (f" ({row.ratio.mid:.2f})" if row.ratio and row.subject != PEER else "")
