"""Peers: the worker's protocol with a made-up interpreter, and the statistics of the real worker that need no GPU."""

import importlib.util
import json
from pathlib import Path

import pytest

from analysis.__main__ import main
from analysis.errors import AnalysisError
from analysis.measure import peers, records
from analysis.measure.executables import Timing
from analysis.measure.records import Problem
from analysis.tests.support.fake import FakeBin, fake_bin

FAKE_TORCH = str(Path(__file__).parents[1] / "fixtures" / "fake_torch.py")
PROBLEM = Problem("attention", "fp16", 16, 16, 512, 128, "normal")


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeBin:
    made = fake_bin(tmp_path, monkeypatch)
    made.set("v01", ns=4000.0)
    made.set("v02", ns=1600.0)
    return made


def test_versions_and_peers_share_rounds(fake: FakeBin, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.jsonl"
    options = ["--rounds", "3", "--seqs", "512", "--records", str(out), "--json"]
    assert main(["bench", "--peers", "fa2,fa3,efficient,cublas", "--python", FAKE_TORCH, *options]) == 0
    captured = capsys.readouterr()
    table = {row["subject"]: row for row in json.loads(captured.out)["rows"]}
    assert table["v02"]["ratio to fa2"] == pytest.approx(2000 / 1600, rel=0.01)
    assert table["v02"]["low"] <= 1.25 * 1.01
    assert "efficient" not in table and "cublas matmul" in table
    assert "no kernel for this problem" in captured.err
    assert "fa3 is left out: " in captured.err and "peer-fa3" in captured.err
    matmul = [record for record in records.read(out).records if record.subject == "cublas"]
    assert matmul[0].problem.flop() == 2 * 8192**3


def test_fa3_is_an_executable_and_needs_no_pytorch(
    fake: FakeBin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(peers.Peers, "start", lambda python: pytest.fail("PyTorch was started"))
    built = FakeBin(tmp_path / "peers")
    built.set("fa3", ns=2000.0, peer=True)
    out = tmp_path / "out.jsonl"
    options = ["--versions", "v01", "--rounds", "2", "--seqs", "512,1024", "--tokens", "16384", "--records", str(out)]
    assert main(["bench", "--peers", "fa3", *options, "--json"]) == 0
    found = records.read(out).records
    assert [(r.subject, r.round) for r in found if r.problem.batch == 32] == [
        *(("v01", 1), ("fa3", 1), ("fa3", 2), ("v01", 2))
    ]
    assert all(record.is_peer == (record.subject == "fa3") for record in found)
    table = [row for row in json.loads(capsys.readouterr().out)["rows"] if row["subject"] == "v01"]
    assert [row["ratio to fa3"] for row in table] == pytest.approx([0.5] * 3, rel=0.01)
    assert {call.split("--quiet")[0] for call in built.calls()} == {
        call.split("--quiet")[0].replace("v01", "fa3", 1) for call in fake.calls()
    }


@pytest.mark.parametrize(("version", "flop"), [("b07", 10), ("v02", 4)])
def test_beside_gradients_the_libraries_compute_gradients(
    fake: FakeBin, tmp_path: Path, version: str, flop: int
) -> None:
    fake.set("b07", ns=4000.0)
    out = tmp_path / "out.jsonl"
    options = ["--versions", version, "--rounds", "1", "--seqs", "512", "--heads", "2", "--records", str(out)]
    assert main(["bench", "--peers", "fa2", "--python", FAKE_TORCH, *options]) == 0
    (found,) = [record for record in records.read(out).records if record.subject == "fa2"]
    assert found.problem.flop() == flop * 16 * 2 * 512**2 * 128


def test_ratios_are_taken_to_each_library(fake: FakeBin, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """v02 takes 1.6 us, FlashAttention-2 2.0 and FlashAttention-3 1.0."""
    FakeBin(tmp_path / "peers").set("fa3", ns=1000.0, peer=True)
    out = str(tmp_path / "out.jsonl")
    options = ["--versions", "v02", "--rounds", "2", "--seqs", "512,1024", "--tokens", "16384", "--records", out]
    assert main(["bench", "--peers", "fa3,fa2", "--python", FAKE_TORCH, *options, "--json"]) == 0
    rows = {(row["subject"], row["batch"]): row for row in json.loads(capsys.readouterr().out)["rows"]}
    for batch in (16, 32):
        row = rows["v02", batch]
        assert row["ratio to fa2"] == pytest.approx(1.25, rel=0.01)
        assert row["low of fa3"] < row["ratio to fa3"] < row["high of fa3"]
        assert row["ratio to fa3"] == pytest.approx(0.625, rel=0.01)
        assert rows["fa3", batch]["ratio to fa3"] is None and rows["fa2", batch]["ratio to fa3"] is not None
    assert main(["records", "show", out, "--wide"]) == 0
    title, header, ours, fa2, fa3 = [line.split("  ") for line in capsys.readouterr().out.splitlines()]
    assert title == ["TFLOP/s (ratio to fa2 fa3), NVIDIA H200"]
    names = ["subject", "fp16 512×16", "fp16 512×32", "fp16 1024"]
    assert [name.strip() for name in header if name.strip()] == names
    ratios = [[cell[cell.index("(") :].strip() for cell in line if "(" in cell] for line in (ours, fa2, fa3)]
    assert all(cell.startswith("(1.2") and " 0.6" in cell for cell in ratios[0])
    assert all(cell.startswith("(– 0.") for cell in ratios[1]) and all(cell.endswith(" –)") for cell in ratios[2])
    assert main(["records", "show", out, "--against", "fa3,v02", "--wide"]) == 0
    assert "(ratio to fa3 v02)" in capsys.readouterr().out
    assert main(["records", "show", out, "--against", "fa3,v07"]) == 2
    assert "--against v07: not in these records" in capsys.readouterr().err


def test_a_worker_that_dies_is_an_error_not_a_hang(fake: FakeBin, tmp_path: Path) -> None:
    with peers.Peers.start(FAKE_TORCH) as worker, pytest.raises(AnalysisError, match="ended with status 9"):
        worker.measure("cudnn", PROBLEM, 1, Timing(), 8)


def test_no_pytorch_is_one_sentence(
    fake: FakeBin, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(peers.shutil, "which", lambda name: None)  # type: ignore[attr-defined]
    assert main(["peers"]) == 2
    assert "need PyTorch" in capsys.readouterr().err
