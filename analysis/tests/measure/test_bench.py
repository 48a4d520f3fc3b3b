"""Bench: rounds, order, records, budget, resumption and what happens when a version refuses or is wrong."""

import json
import statistics
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.__main__ import main
from analysis.files import root
from analysis.measure import bench, records, summary
from analysis.measure.bench import Unit
from analysis.measure.records import Record
from analysis.tests.support.clock import ticking
from analysis.tests.support.fake import FakeBin, fake_bin


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeBin:
    made = fake_bin(tmp_path, monkeypatch)
    made.set("v01", ns=4000.0)
    made.set("v02", ns=1000.0)
    return made


def run(tmp_path: Path, *options: str) -> int:
    return main(["bench", "--records", str(tmp_path / "out.jsonl"), *options])


def found(tmp_path: Path) -> tuple[Record, ...]:
    return records.read(tmp_path / "out.jsonl").records


def test_rounds_are_interleaved_and_reversed(fake: FakeBin, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, "--seqs", "512,1024", "--rounds", "3", "--csv", "-o", str(tmp_path / "t.csv")) == 0
    found = records.read(tmp_path / "out.jsonl").records
    order = [("v01", 1), ("v02", 1), ("v02", 2), ("v01", 2), ("v01", 3), ("v02", 3)]
    assert [(r.subject, r.round) for r in found if r.problem.seq == 512] == order
    assert {r.run_id for r in found} == {found[0].run_id}
    header, *lines = [line.split(",") for line in (tmp_path / "t.csv").read_text().splitlines()]
    table = {(line[0], line[4]): dict(zip(header, line, strict=True)) for line in lines}
    assert float(table["v02", "512"]["ratio to v01"]) == pytest.approx(4.0, rel=0.01)
    assert float(table["v02", "1024"]["low"]) < 4.0 < float(table["v02", "1024"]["high"])
    assert float(table["v01", "512"]["TFLOP/s"]) == pytest.approx(4 * 16 * 16 * 512**2 * 128 / 4000 / 1e3, rel=0.01)
    assert "round 2 · v02 fp16 · 3 of 6" in capsys.readouterr().err


def test_the_options_reach_the_executable(fake: FakeBin, tmp_path: Path) -> None:
    options = "--versions v02 --dtypes bf16 --rounds 1 --heads 3 --batch 2 --check 0 --min-time 0.1 --seqs 512:2048:*2"
    run(tmp_path, *options.split())
    (call,) = fake.calls()
    expected = ("backend gpu", "dtype bf16", "seq 2048,1024,512", "heads 3", "batch 2", "no-check", "min-time 0.1")
    assert all(f"--{option}" in call for option in expected)


def test_a_case_of_attention_reaches_the_executables_and_the_tables(
    fake: FakeBin, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = ("--causal", "--d-head", "64", "--heads", "32", "--kv-heads", "8")
    size = ("--rounds", "1", "--seqs", "512,1024", "--tokens", "16384", "--batch", "0")
    assert run(tmp_path, *case, *size, "--json") == 0
    for call in fake.calls()[-2:]:
        assert "--d-head 64 --kv-heads 8 --causal" in call
    pairs = 512 * 513 // 2
    rows = {(row["subject"], row["seq"]): row for row in json.loads(capsys.readouterr().out)["rows"]}
    assert rows["v02", 512]["TFLOP/s"] == pytest.approx(4 * 32 * 32 * pairs * 64 / 1000 / 1e3, rel=0.01)
    assert rows["v02", 512]["case"] == "causal, d_head 64, 8 KV heads"
    assert run(tmp_path, "--resume", *case, *size, "--wide") == 0
    assert "NVIDIA H200, causal, d_head 64, 8 KV heads\n" in capsys.readouterr().out and len(found(tmp_path)) == 4
    assert run(tmp_path, "--kv-heads", "16", "--versions", "v01", "--rounds", "1", "--wide") == 0
    assert "NVIDIA H200\n" in capsys.readouterr().out
    assert "--kv-heads" not in fake.calls()[-1] and "--causal" not in fake.calls()[-1]
    both = summary.wide_table(summary.rows(found(tmp_path))[0], "v01")
    assert both.columns[1:] == [
        "fp16 512 causal, d_head 64, 8 KV heads",
        "fp16 1024 causal, d_head 64, 8 KV heads",
        "fp16 4096",
    ]


def test_a_number_of_tokens_is_a_second_size_in_the_same_rounds(fake: FakeBin, tmp_path: Path) -> None:
    """16 sequences of 1024 are both sizes: they are measured once."""
    assert run(tmp_path, "--versions", "v02", "--rounds", "2", "--seqs", "512,1024,2048", "--tokens", "16384") == 0
    sizes = [(record.round, record.problem.seq, record.problem.batch) for record in found(tmp_path)]
    once = [(2048, 16), (1024, 16), (512, 16), (2048, 8), (512, 32)]
    assert sizes == [(number, *size) for number in (1, 2) for size in once]
    standard, tokens = fake.calls()[:2]
    assert "--seq 2048,1024,512 --heads" in standard and "--tokens" not in standard
    assert "--seq 2048,512 --tokens 16384 --heads" in tokens and "--batch" not in tokens


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--tokens", "16384", "--seqs", "512,3000"], ["--tokens 16384", "multiple", "3000"]),
        (["--tokens", "0"], ["--tokens 0", "multiple"]),
        (["--batch", "0"], ["--batch 0: must be at least 1"]),
        (["--batch", "-1", "--tokens", "4096"], ["--batch -1", "0 with --tokens"]),
    ],
)
def test_sizes_that_make_no_problem_are_refused(
    fake: FakeBin, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], words: list[str]
) -> None:
    assert run(tmp_path, *options) == 2
    said = capsys.readouterr().err
    assert all(word in said for word in words) and not fake.calls()


def test_launch_stands_in_front(fake: FakeBin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAUNCH", f'env LAUNCHED=1 sh -c \'echo $LAUNCHED > "{tmp_path}/launched"; exec "$@"\' sh')
    assert run(tmp_path, "--versions", "v01", "--rounds", "1") == 0
    assert (tmp_path / "launched").read_text() == "1\n"


def test_no_gpu_is_77(fake: FakeBin, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fake.set("v01", status=77, message="no libcuda.so.1")
    assert run(tmp_path, "--versions", "v01") == 77
    assert "there is none" in capsys.readouterr().err
    assert not (tmp_path / "out.jsonl").exists()


def test_a_wrong_result_is_kept_but_is_no_speed(
    fake: FakeBin, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.set("v02", ns=1000.0, status=1)
    assert run(tmp_path, "--rounds", "2", "--json") == 1
    right, wrong = json.loads(capsys.readouterr().out)["rows"]
    assert wrong["check"] == "WRONG" and wrong["TFLOP/s"] is None and wrong["ratio to v01"] is None
    assert right["check"] == "pass" and right["TFLOP/s"] > 0
    assert len(records.read(tmp_path / "out.jsonl").records) == 4


def test_a_version_that_refuses_is_told_once_and_left_out(
    fake: FakeBin, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.set("v02", status=2, message="config not built")
    assert run(tmp_path, "--rounds", "3") == 0
    assert capsys.readouterr().err.count("config not built") == 1
    assert sum(call.startswith("v02") for call in fake.calls()) == 1


def test_resume_goes_on_with_the_same_plan(fake: FakeBin, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "out.jsonl"
    run(tmp_path, "--rounds", "2")
    whole, last = path.read_text().rstrip("\n").rsplit("\n", 1)
    path.write_text(f"{whole}\n{last[:50]}")  # cut off in the middle of the second round
    fake_calls = len(fake.calls())
    assert run(tmp_path, "--rounds", "2", "--resume") == 0
    found = records.read(path).records
    assert len({r.run_id for r in found}) == 1
    assert [(r.subject, r.round) for r in found] == [("v01", 1), ("v02", 1), ("v02", 2), ("v01", 3), ("v02", 3)]
    assert len(fake.calls()) - fake_calls == 2
    assert run(tmp_path, "--rounds", "2", "--resume") == 0
    assert len(fake.calls()) - fake_calls == 2
    capsys.readouterr()
    assert run(tmp_path, "--rounds", "1", "--resume", "--seqs", "512") == 0
    assert "nothing to resume" in capsys.readouterr().err


def test_the_budget_ends_the_run(
    fake: FakeBin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A unit takes a second between two of the readings that it costs: four, and three for the first."""
    ticking(monkeypatch, bench)
    assert run(tmp_path, "--rounds", "1000", "--budget", "20") == 0
    assert "budget of 20 s used in round 3" in capsys.readouterr().err
    assert [(record.subject, record.round) for record in found(tmp_path)] == [
        ("v01", 1), ("v02", 1), ("v02", 2), ("v01", 2), ("v01", 3),
    ]  # fmt: skip


def test_the_default_file_is_that_of_the_gpu(fake: FakeBin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "root", lambda: tmp_path)
    fake.set("v01", ns=1.0, device="NVIDIA GeForce RTX 3090")
    assert main(["bench", "--versions", "v01", "--rounds", "1"]) == 0
    assert len(records.read(tmp_path / "logs" / "bench" / "rtx-3090.jsonl").records) == 1


@given(st.lists(st.floats(1.0, 1e9), min_size=1, max_size=200), st.sampled_from([16, 64]))
def test_many_samples_are_thinned_and_keep_their_median_and_their_order(times: list[float], most: int) -> None:
    timing = {"samples_ns": times, "sm_clock_hz": list(range(len(times))), "q1": 5.0}
    kept = bench.thinned({"timing": timing}, most)["timing"]
    chosen = kept["sm_clock_hz"]
    assert chosen == sorted(set(chosen)) and kept["samples_ns"] == [times[index] for index in chosen]
    assert statistics.median(kept["samples_ns"]) == statistics.median(times)
    assert len(chosen) == len(times) if len(times) <= most else most - 1 <= len(chosen) <= most
    assert {min(times), max(times)} <= set(kept["samples_ns"])
    assert kept["q1"] == 5.0 and kept.get("kept_of", len(times)) == len(times)


def test_peers_stand_among_the_versions() -> None:
    versions = [Unit(f"v{i:02}", False, "fp16") for i in range(1, 7)]
    peers = [Unit(name, True, "fp16") for name in ("fa2", "cudnn")]
    order = [unit.subject for unit in bench.interleave(versions, peers)]
    assert sorted(order) == sorted([unit.subject for unit in (*versions, *peers)])
    assert 0 < order.index("fa2") < order.index("cudnn") < 7


def test_records_are_json_lines_below_one_header_of_the_run(fake: FakeBin, tmp_path: Path) -> None:
    run(tmp_path, "--rounds", "2")
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert sum("of" in line for line in lines) == 4 and all({"of", "header"} & line.keys() for line in lines)
    assert sum("run.id" in line.get("same", {}) for line in lines) == 1


def test_what_runs_on_a_gpu_machine_needs_the_standard_library_alone() -> None:
    modules = [path.stem for path in (root() / "analysis/measure").glob("*.py")]
    code = "import sys; sys.modules |= dict.fromkeys(('numpy', 'matplotlib', 'torch'))\n"
    code += "\n".join(f"import analysis.measure.{module}" for module in modules)
    subprocess.run([sys.executable, "-c", code], check=True, cwd=root())
