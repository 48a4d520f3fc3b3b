"""Speeds of general attention: the tables of docs/general-attention.md, one for each run of logs/general/.

text = general_text(root())

The runs are kept apart from logs/bench/, which holds the one case that all versions compute.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from analysis.measure.records import Record, read
from analysis.measure.summary import Row, rows, subjects_of
from analysis.table import Cell, Table

RECORDS = "logs/general/h200.jsonl"
NAMES = {"fa2": "FlashAttention-2", "fa3": "FlashAttention-3", "cudnn": "cuDNN"}
REFERENCES = ("fa2", "fa3")


def runs(folder: Path) -> list[list[Record]]:
    """The records of each run, in the order in which they were measured."""
    found: dict[str, list[Record]] = {}
    for record in read(folder / RECORDS).records:
        found.setdefault(record.run_id, []).append(record)
    return list(found.values())


def run_table(records: Sequence[Record]) -> Table:
    """A row for each subject and type: TFLOP/s by length, in brackets divided by FlashAttention-2's and -3's."""
    references = [name for name in REFERENCES if name in subjects_of(records)]
    by_reference = [rows(records, name)[0] for name in references]
    lengths = sorted({row.problem.seq for row in by_reference[0]})
    lines: list[Sequence[Cell]] = []
    for dtype in ("fp16", "bf16"):
        for subject in subjects_of(records):
            cells: list[Cell] = []
            for length in lengths:
                places = [
                    place
                    for place, row in enumerate(by_reference[0])
                    if (row.subject, row.problem.dtype, row.problem.seq) == (subject, dtype, length)
                ]
                cells.append(_cell([of[places[0]] for of in by_reference], references) if places else None)
            if any(cells):
                lines.append((NAMES.get(subject, subject), dtype, *cells))
    return Table(("", "type", *map(str, lengths)), lines)


def _cell(found: Sequence[Row], references: Sequence[str]) -> str:
    ratios = [
        "–" if row.ratio is None or name == row.subject else f"{row.ratio.mid:.3f}"
        for name, row in zip(references, found, strict=True)
    ]
    return f"{found[0].tflops:.0f} ({', '.join(ratios)})"


def title(records: Sequence[Record]) -> str:
    """What the run computes: "d_head 64, causal, 32 heads, 2 rounds; in brackets: divided by ..."."""
    problem = records[0].problem
    case = f"d_head {problem.d_head}, {'causal' if problem.causal else 'non-causal'}"
    heads = f"{problem.heads} heads" + (f" on {problem.kv_heads}" if problem.kv_heads not in (0, problem.heads) else "")
    batches = {record.problem.batch for record in records}
    heads += f", batch {problem.batch}" if len(batches) == 1 else ""
    rounds = len({record.round for record in records})
    names = " and of ".join(NAMES[name] for name in REFERENCES if name in subjects_of(records))
    return (
        f"**{case}**, {heads}, {rounds} round{'s' if rounds > 1 else ''}; in brackets: divided by the speed of {names}"
    )


def general_text(folder: Path) -> str:
    """All tables, each below its title."""
    return "\n".join(f"{title(records)}:\n\n{run_table(records).markdown()}" for records in runs(folder))
