"""The examples that need PyTorch, small, on the emulator. test_zigzag.py checks the ring where there is no PyTorch."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed, and make check does without it")
ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.long


def start(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1", **variables}
    return subprocess.run([sys.executable, *words], cwd=ROOT, env=environment, capture_output=True, text=True)


def run(*words: str) -> str:
    done = start(*words)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_block_with_attention_replaced() -> None:
    assert "they agree" in run("examples/transformer_block.py")


def test_two_threads_serve_requests() -> None:
    assert "requests from 2 threads: 0 differ" in run("examples/two_streams.py")


def test_a_model_trains_as_with_pytorchs_kernels(tmp_path: Path) -> None:
    losses = tmp_path / "losses.json"
    assert "mean of the last" in run("examples/train.py", str(losses))
    ours, theirs = json.loads(losses.read_text()).values()
    assert len(ours) == len(theirs) == 6 and ours[-1] < ours[0]


def test_a_model_of_transformers() -> None:
    pytest.importorskip("transformers", reason="transformers is not installed, and make check does without it")
    assert "the logits agree" in run("examples/transformers_model.py")


SMALL = ["--seq", "192", "--heads", "6", "--kv-heads", "3", "--d-head", "64"]
LAUNCH = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3"]


def test_a_sequence_is_shared_between_processes(tmp_path: Path) -> None:
    records = tmp_path / "records.jsonl"
    methods = ["gather", "ring", "heads", "training"]
    out = run(
        *(*LAUNCH, "examples/context_parallel.py", *SMALL, "--repeat", "1", "--method", *methods),
        *("--record", str(records), "--trace", str(tmp_path / "trace")),
    )
    for method in methods:
        assert f"{method}: 3 ranks, 192 rows" in out and (tmp_path / f"trace.{method}.json").stat().st_size
    assert out.count(": right") == len(methods)
    found = [json.loads(line) for line in records.read_text().splitlines()]
    assert [(record["method"], record["calls_in_a_row"]) for record in found] == [
        (method, calls) for method in methods for calls in (1, 4)
    ]
    assert all(record["ranks"] == 3 and record["efficiency"] > 0 for record in found)
    assert all(record["gpu"].startswith("none") for record in found)


FAULTY = """
import os, sys, time
sys.path.insert(0, "examples")
import context_parallel
whole = context_parallel.gather
def faulty(q, k, v, rank, ranks):
    if rank == 1:
        FAULT
    return whole(q, k, v, rank, ranks)
context_parallel.METHODS["gather"] = faulty
sys.exit(context_parallel.main())
"""


@pytest.mark.parametrize("fault", ["os._exit(0)", "time.sleep(10**6)"], ids=["dies", "hangs"])
def test_a_rank_that_fails_ends_all(tmp_path: Path, fault: str) -> None:
    """The test must end. Rank 1 exits with 0, as torchrun ends the others after an error before they print anything."""
    program = tmp_path / "faulty.py"
    program.write_text(FAULTY.replace("FAULT", fault))
    done = start(*LAUNCH, str(program), *SMALL, "--repeat", "0", "--timeout", "5")
    assert done.returncode != 0 and "right" not in done.stdout
    assert "no message from another rank: it has ended, or hangs" in done.stderr


def test_a_call_without_an_end_is_ended() -> None:
    """Between GPUs, where a message that does not come is no error by itself."""
    hangs = "import context_parallel, time\nwith context_parallel.limit(0.1, 3): time.sleep(10**6)"
    done = start("-c", f"import sys; sys.path.insert(0, 'examples')\n{hangs}")
    assert done.returncode == 1 and "rank 3: no answer in 0.1 s: another rank has ended, or hangs" in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--seq", "190"], "--seq 190 is no multiple of 2 x 3 ranks"),
        (["--kv-heads", "4"], "--heads 6 is no multiple of --kv-heads 4"),
        (["--kv-heads", "2", "--method", "heads"], "--kv-heads 2 is no multiple of 3 ranks"),
        (["--method", "rings"], "invalid choice: 'rings'"),
    ],
)
def test_what_cannot_be_shared_is_said(words: list[str], message: str) -> None:
    done = start("examples/context_parallel.py", *SMALL, *words, RANK="0", WORLD_SIZE="3")
    assert done.returncode == 2 and message in done.stderr


def test_the_example_says_how_it_is_started() -> None:
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
