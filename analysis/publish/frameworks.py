"""Figures of docs/frameworks.md, from logs/library/: prefills, several GPUs, and what was checked on a GPU.

text = figures_text(root())

A line of logs/library/GPU.jsonl is one figure: examples write it with --record.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from analysis.errors import AnalysisError
from analysis.files import read_text
from analysis.table import Cell, Table

FOLDER = "logs/library"
Figure = Mapping[str, Any]


def figures(folder: Path) -> list[Figure]:
    """Every figure of every GPU, in the order of the files. A line that is no figure is an error naming it."""
    found: list[Figure] = []
    for path in sorted((folder / FOLDER).glob("*.jsonl")):
        for number, line in enumerate(read_text(path).splitlines(), 1):
            try:
                figure = json.loads(line)
            except ValueError as error:
                raise AnalysisError(f"{path}:{number}: not a line of JSON: {error}") from error
            if not (isinstance(figure, dict) and {"figure", "gpu", "command"} <= figure.keys()):
                raise AnalysisError(f"{path}:{number}: expected an object with 'figure', 'gpu' and 'command'")
            found.append(figure)
    return found


def prefill_row(figure: Figure) -> Sequence[Cell]:
    ours, theirs = figure["median_ms"]["flashladder"], figure["median_ms"]["sdpa"]
    kernel = figure["sdpa_kernel"].lower().replace("_", " ")
    return (
        figure["gpu"],
        figure["model"],
        figure["seq"],
        f"{ours:.2f}",
        f"{theirs:.2f} ({kernel})",
        f"{theirs / ours:.3f}",
        len(figure["ms"]["flashladder"]),
    )


def ring_row(figure: Figure) -> Sequence[Cell]:
    problem, one, ring = figure["problem"], figure["ms_one_gpu"], figure["ms_ring"]
    heads = f"{problem['heads']} on {problem['kv_heads']}, d_head {problem['d_head']}, {problem['dtype']}"
    efficiency = one / (figure["ranks"] * ring)
    return figure["gpu"], figure["ranks"], problem["seq"], heads, f"{one:.2f}", f"{ring:.2f}", f"{efficiency:.3f}"


def check_row(figure: Figure) -> Sequence[Cell]:
    return figure["gpu"], figure["stage"], "passed" if figure["passed"] else "FAILED", figure["last_line"].strip("= ")


PARTS = {
    "prefill": (
        "Time of a whole prefill, batch 1, bf16, median of the rounds, both implementations in turns:",
        ("GPU", "model", "tokens", "flashladder, ms", "sdpa, ms", "sdpa / flashladder", "rounds"),
        prefill_row,
    ),
    "context_parallel": (
        "One causal sequence on several GPUs; efficiency is the time on one GPU / (GPUs · the ring's time):",
        ("GPU", "GPUs", "seq", "heads", "one GPU, ms", "ring, ms", "efficiency"),
        ring_row,
    ),
    "check": ("Checked on a GPU:", ("GPU", "what", "", "its last line"), check_row),
}


def figures_text(folder: Path) -> str:
    """A table for each kind of figure that is recorded."""
    recorded = figures(folder)
    tables = []
    for kind, (title, columns, row) in PARTS.items():
        if rows := [row(figure) for figure in recorded if figure["figure"] == kind]:
            tables.append(f"{title}\n\n{Table(columns, rows).markdown()}")
    return "\n".join(tables) or "Nothing is recorded yet.\n"
