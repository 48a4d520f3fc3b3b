"""docs/frameworks.md: its figures are computed from the lines that examples record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from analysis.errors import AnalysisError
from analysis.files import root
from analysis.publish.frameworks import FOLDER, PARTS, figures, figures_text

PREFILL: dict[str, Any] = {
    "figure": "prefill",
    "gpu": "NVIDIA H200",
    "model": "2 layers",
    "seq": 512,
    "median_ms": {"flashladder": 10.0, "sdpa": 12.5},
    "ms": {"flashladder": [9.0, 10.0, 11.0], "sdpa": [12.5] * 3},
    "sdpa_kernel": "FLASH_ATTENTION",
    "command": "examples/transformers_model.py --bench",
}
RING: dict[str, Any] = {
    "figure": "context_parallel",
    "gpu": "NVIDIA H200",
    "ranks": 4,
    "problem": {"seq": 4096, "heads": 8, "kv_heads": 2, "d_head": 64, "dtype": "fp16"},
    "ms_one_gpu": 40.0,
    "ms_ring": 12.5,
    "command": "examples/context_parallel.py",
}
CHECK: dict[str, Any] = {
    "figure": "check",
    "gpu": "NVIDIA H200",
    "stage": "torch",
    "passed": False,
    "last_line": "==== 1 failed in 2 s ====",
    "command": "python3 -m pytest",
}


def write(folder: Path, *lines: str) -> None:
    (folder / FOLDER).mkdir(parents=True, exist_ok=True)
    (folder / FOLDER / "h200.jsonl").write_text("".join(f"{line}\n" for line in lines))


def test_each_kind_of_figure_has_its_table(tmp_path: Path) -> None:
    write(tmp_path, *(json.dumps(figure) for figure in (RING, PREFILL, CHECK)))
    text = figures_text(tmp_path)
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]
    assert ["NVIDIA H200", "2 layers", "512", "10.00", "12.50 (flash attention)", "1.250", "3"] in rows
    assert ["NVIDIA H200", "4", "4096", "8 on 2, d_head 64, fp16", "40.00", "12.50", "0.800"] in rows
    assert ["NVIDIA H200", "torch", "FAILED", "1 failed in 2 s"] in rows
    assert len(rows) == 3 * len(PARTS)


def test_without_records_the_page_says_so(tmp_path: Path) -> None:
    assert figures_text(tmp_path) == "Nothing is recorded yet.\n"


@pytest.mark.parametrize("line", ["{", "[]", '{"figure": "prefill", "gpu": "x"}'])
def test_a_line_that_is_no_figure_is_named(tmp_path: Path, line: str) -> None:
    write(tmp_path, json.dumps(PREFILL), line)
    with pytest.raises(AnalysisError, match=r"h200\.jsonl:2: "):
        figures(tmp_path)


def test_what_is_recorded_is_known_and_passed() -> None:
    recorded = figures(root())
    assert {figure["figure"] for figure in recorded} <= PARTS.keys()
    assert all(figure.get("passed", True) for figure in recorded)
