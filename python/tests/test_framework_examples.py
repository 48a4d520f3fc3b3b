"""The examples that need PyTorch, small, on the emulator. test_zigzag.py checks the ring where there is no PyTorch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed, and make check does without it")
ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.long


def start(*words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, *words], cwd=ROOT, env=environment, capture_output=True, text=True)


def run(*words: str) -> str:
    done = start(*words)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_block_with_attention_replaced() -> None:
    assert "they agree" in run("examples/transformer_block.py")


def test_two_threads_serve_requests() -> None:
    assert "requests from 2 threads: 0 differ" in run("examples/two_streams.py")


def test_a_model_of_transformers() -> None:
    pytest.importorskip("transformers", reason="transformers is not installed, and make check does without it")
    assert "the logits agree" in run("examples/transformers_model.py")


def test_the_ring_between_processes(tmp_path: Path) -> None:
    records = tmp_path / "records.jsonl"
    small = ["--seq", "192", "--heads", "2", "--kv-heads", "1", "--d-head", "64", "--repeat", "1"]
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3"]
    out = run(*launch, "examples/context_parallel.py", *small, "--record", str(records))
    assert "3 ranks, 192 rows" in out and "right" in out
    record = json.loads(records.read_text())
    assert record["ranks"] == 3 and record["efficiency"] > 0 and record["gpu"].startswith("none")


def test_the_ring_says_how_it_is_started() -> None:
    done = start("examples/context_parallel.py", "--seq", "192")
    assert done.returncode == 2 and "RANK is not set: start it by torchrun" in done.stderr


@pytest.mark.parametrize("example", ["context_parallel", "transformers_model"])
def test_a_record_that_cannot_be_written_is_told_first(example: str) -> None:
    if example == "transformers_model":
        pytest.importorskip("transformers", reason="transformers is not installed, and make check does without it")
    done = start(f"examples/{example}.py", "--record", "/nowhere/figures.jsonl")
    assert done.returncode == 2 and "/nowhere/figures.jsonl: No such file or directory: name a file" in done.stderr


def test_a_figure_is_not_lost_on_a_full_disk() -> None:
    code = "import pathlib, record; record.append(pathlib.Path('/dev/full'), 'prefill', ms=3)"
    done = start("-c", f"import sys; sys.path.insert(0, 'examples'); {code}")
    assert done.returncode == 1 and "No space left on device" in done.stderr and '"ms": 3' in done.stderr
