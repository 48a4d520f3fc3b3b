"""docs/library.md and docs/frameworks.md: their figures are computed from the lines of logs/library/."""

import json
from pathlib import Path
from typing import Any

from analysis.files import root
from analysis.publish.drawing import svg
from analysis.publish.library_figures import (
    FOLDER,
    TIMELINE,
    figures,
    frameworks_text,
    library_text,
    timeline,
)  # fmt: skip

PREFILL: dict[str, Any] = {
    "figure": "prefill",
    "gpu": "NVIDIA H200",
    "model": "2 layers",
    "seq": 512,
    "median_ms": {"flashladder": 10.0, "sdpa": 12.5},
    "ms": {"flashladder": [9.0, 10.0, 11.0], "sdpa": [12.5] * 3},
    "sdpa_kernel": "FLASH_ATTENTION",
    "versions": {},
    "command": "examples/transformers_model.py --bench",
}
RING: dict[str, Any] = {
    "figure": "context_parallel",
    "gpu": "NVIDIA H200",
    "ranks": 4,
    "problem": {"seq": 4096, "heads": 8, "kv_heads": 2, "d_head": 64, "dtype": "fp16"},
    "ms_one_gpu": 40.0,
    "method": "ring",
    "ms_parallel": 12.5,
    "versions": {},
    "command": "examples/context_parallel.py",
}
GATHER = {**RING, "ranks": 4, "method": "gather", "ms_parallel": 25.0, "nccl": {"NCCL_VERSION": "2"}}
IN_A_ROW = {**GATHER, "calls_in_a_row": 4, "ms_parallel": 22.0, "efficiency": 0.909}
CHECK: dict[str, Any] = {
    "figure": "check",
    "gpu": "NVIDIA H200",
    "stage": "torch",
    "passed": False,
    "last_line": "==== 1 failed in 2 s ====",
    "versions": {},
    "command": "python3 -m pytest",
}


def write(folder: Path, *lines: str) -> None:
    (folder / FOLDER).mkdir(parents=True, exist_ok=True)
    (folder / FOLDER / "h200.jsonl").write_text("".join(f"{line}\n" for line in lines))


def rows_of(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]


def test_each_kind_of_figure_has_its_table(tmp_path: Path) -> None:
    passed = CHECK | {"stage": "jax", "passed": True}
    fewer, limited = RING | {"ranks": 2}, RING | {"nccl": {"NCCL_MAX_CTAS": "8"}}
    write(tmp_path, *map(json.dumps, (RING, fewer, limited, GATHER, IN_A_ROW, PREFILL, CHECK, passed)))
    text = frameworks_text(tmp_path)
    rows = rows_of(text)
    assert ["H200", "2 layers", "512", "10.00", "12.50 (flash attention)", "1.250"] in rows
    assert "GPUs (8 heads on 2, d_head 64, fp16)" in text
    assert ["H200", "4", "4096", "ring", "12.50", "0.800", "–"] in rows
    assert ["H200", "4", "4096", "gather", "25.00", "0.400", "0.909"] in rows
    assert text.endswith("FAILED on an H200: torch (1 failed in 2 s).\n") and len(rows) == 7


def test_each_method_has_a_line_for_each_kind_of_kernel(tmp_path: Path) -> None:
    write(tmp_path)
    lines = ("gather,attention,0.5,1", "gather,messages,0,0.5", "ring,other,2,0.25")
    (tmp_path / TIMELINE).write_text("\n".join(("method,kernel,start_ms,ms", *lines)))
    text = svg(timeline(tmp_path))
    for method in ("gather", "ring"):
        for kind in ("attention", "messages", "other"):
            assert f"{method}: {kind}" in text


def test_host_times_are_those_of_the_records(tmp_path: Path) -> None:
    common = {"gpu": "NVIDIA H200", "passed": True, "versions": {}, "command": "build/tests/gpu_library"}
    first = {
        "d_head 64": {"import_ms": 15.0, "first_call_ms": 9.0},
        "d_head 128": {"import_ms": 19.25, "first_call_ms": 8},
    }
    over = {"torch": 11.62, "torch_out": 7.3, "torch_lse": 15.6, "torch_stream": 18.8, "cupy": 7.7, "sdpa": 11.8}
    lines: list[dict[str, Any]] = [
        {"figure": "c_library", "what": "overhead", "overhead_us": 0.844, **common},
        {"figure": "c_library", "what": "three threads", **common},
        {"figure": "python_package", "what": "overhead", "over_bare_us": over, **common},
        {"figure": "python_package", "what": "first_call", **first, **common},
    ]
    write(tmp_path, *map(json.dumps, lines))
    text = library_text(tmp_path)
    rows = rows_of(text)
    assert ["H200", "`fl_forward`, beyond a bare launch", "0.8 µs"] in rows
    assert ["H200", "`import flashladder`", "19.2 ms"] in rows
    assert ["H200", "the first call from Python", "9.0 ms"] in rows


def test_what_is_recorded_is_known_and_passed() -> None:
    recorded = figures(root())
    assert {figure["figure"] for figure in recorded} <= {
        "prefill",
        "context_parallel",
        "c_library",
        "python_package",
        "check",
    }
    assert all(figure.get("passed", True) for figure in recorded)
