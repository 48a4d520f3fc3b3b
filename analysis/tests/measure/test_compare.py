"""Compare: verdicts from executables run side by side, from records and from files, with their exit statuses."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from analysis.__main__ import main
from analysis.measure import bench, records, stats, summary
from analysis.measure.compare import Comparison, comparisons, worst
from analysis.measure.records import Problem
from analysis.tests.support.fake import FakeBin, fake_bin


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeBin:
    made = fake_bin(tmp_path, monkeypatch)
    made.set("v01", ns=1000.0, drift=0.002)
    made.set("v02", ns=900.0, drift=0.002)
    made.set("v03", ns=1000.0, drift=0.002)
    return made


def compare(tmp_path: Path, a: str, b: str, *options: str) -> int:
    recorded = "--from" in options or a.endswith(".jsonl")
    kept = [] if recorded else ["--records", str(tmp_path / "out.jsonl")]
    return main(["compare", a, b, "--exit-code", *kept, *options])


@pytest.mark.parametrize(
    ("a", "b", "status", "word"),
    [("v01", "v02", 10, "FASTER"), ("v02", "v01", 11, "SLOWER"), ("v01", "v03", 0, "SAME"), ("v01", "v01", 0, "SAME")],
)
def test_side_by_side(
    fake: FakeBin, tmp_path: Path, capsys: pytest.CaptureFixture[str], a: str, b: str, status: int, word: str
) -> None:
    assert compare(tmp_path, a, b, "--json") == status
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert row["verdict"] == word


@pytest.mark.parametrize(("b", "rounds"), [("v02", 4), ("v04", 10)])
def test_a_measurement_ends_when_it_is_decided(fake: FakeBin, tmp_path: Path, b: str, rounds: int) -> None:
    """A tenth of a percent is not: neither FASTER nor the same by a tolerance of as much."""
    fake.set("v04", ns=999.0, drift=0.002)
    compare(tmp_path, "v01", b, "--seqs", "512", "--same-within", "0.1", "--quiet")
    found = records.read(tmp_path / "out.jsonl").records
    assert {record.raw["run"]["round"] for record in found} == set(range(1, rounds + 1))


def test_from_recorded_runs(fake: FakeBin, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "out.jsonl")
    main(["bench", "--records", path, "--seqs", "512,1024"])
    calls = len(fake.calls())
    capsys.readouterr()
    assert compare(tmp_path, "v01", "v02", "--from", path, "--json") == 10
    assert len(json.loads(capsys.readouterr().out)["rows"]) == 2
    assert compare(tmp_path, "v01", "v03", "--from", path) == 0
    assert len(fake.calls()) == calls
    assert compare(tmp_path, "v01", "v09", "--from", path) == 2
    assert "no run holds v09" in capsys.readouterr().err
    for option, value in (("--seqs", "512"), ("--heads", "4"), ("--tokens", "512")):
        assert compare(tmp_path, "v01", "v02", "--from", path, option, value) == 2
        assert f"{option}: must not be used with recorded runs" in capsys.readouterr().err


def test_one_version_measured_twice_on_an_h200_is_the_same() -> None:
    """Times moved by 1.8 % with the clock, by 10 MHz steps of a power-limited card; the cycles did not move."""
    found = records.read(Path(__file__).parents[1] / "fixtures" / "same_version_h200.jsonl").records
    first, second = ([r for r in found if summary.subject_name(r) == f"v07 {label}"] for label in "AB")
    (one,) = comparisons(first, second, 0.01)
    assert (one.verdict.word, one.verdict.rounds) == ("SAME", 5)
    (other,) = comparisons(
        first, [replace(r, samples_ns=tuple(0.98 * ns for ns in r.samples_ns)) for r in second], 0.01
    )
    assert other.verdict.word == "FASTER"


def verdicts(*words: str) -> list[Comparison]:
    point = stats.Interval(1, 1, 1)
    problem = Problem("attention", "fp16", 16, 16, 512, 128, "normal")
    return [
        Comparison("v01", "v02", problem, stats.Verdict(word, point, 3, True, None, 0.01, "because")) for word in words
    ]


def test_of_several_problems_the_worst_decides() -> None:
    """A loss anywhere decides, then what is not known; a gain is reported only where all the rest is the same."""
    assert worst(verdicts("SAME", "FASTER", "UNSURE", "SLOWER")) == "SLOWER"
    assert worst(verdicts("FASTER", "UNSURE", "SAME")) == "UNSURE"
    assert worst(verdicts("SAME", "FASTER", "SAME")) == "FASTER"
    assert worst(verdicts("SAME", "SAME")) == "SAME"


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every run begins a second after the one before it: ids sort by their time."""
    ids = (f"20260101T0000{second:02}Z-aaaa" for second in range(60))
    monkeypatch.setattr(bench, "new_run_id", lambda: next(ids))


def bench_run(fake: FakeBin, path: str, versions: str, **ns: float) -> None:
    for version, value in ns.items():
        fake.set(version, ns=value)
    assert main(["bench", "--versions", versions, "--records", path, "--seqs", "512"]) == 0


def test_recorded_sides_come_from_the_newest_run_that_holds_both(
    fake: FakeBin, later: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """v01 alone was measured again later, on a slower day: that run is not taken for one with v02."""
    path = str(tmp_path / "runs.jsonl")
    bench_run(fake, path, "v01,v02", v01=1000.0, v02=2000.0)
    bench_run(fake, path, "v01,v02", v01=1000.0, v02=900.0)
    bench_run(fake, path, "v01", v01=3000.0)
    capsys.readouterr()
    assert compare(tmp_path, "v01", "v02", "--from", path, "--json") == 10
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert row["speedup"] == pytest.approx(10 / 9, rel=0.01)
    assert "side by side" in row["because"]


def test_two_files(fake: FakeBin, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = str(tmp_path / "before.jsonl"), str(tmp_path / "after.jsonl")
    main(["bench", "--versions", "v02", "--records", before])
    fake.set("v02", ns=1100.0)
    main(["bench", "--versions", "v02", "--records", after])
    capsys.readouterr()
    assert main(["compare", before, after, "--exit-code"]) == 11
    assert "not measured side by side" in capsys.readouterr().out


def test_two_gpu_models_are_never_compared_silently(
    fake: FakeBin, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here, there = str(tmp_path / "here.jsonl"), str(tmp_path / "there.jsonl")
    main(["bench", "--versions", "v01", "--records", here])
    fake.set("v01", ns=1000.0, device="NVIDIA A100")
    main(["bench", "--versions", "v01", "--records", there])
    assert main(["compare", here, there]) == 2
    assert "NVIDIA A100, NVIDIA H200" in capsys.readouterr().err
    assert main(["compare", here, there, "--across-gpus"]) == 0


def test_wrong_results_are_not_compared(fake: FakeBin, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fake.set("v02", ns=500.0, status=1)
    assert compare(tmp_path, "v01", "v02") == 2
    assert "wrong results" in capsys.readouterr().err


def test_no_gpu_is_77(fake: FakeBin, tmp_path: Path) -> None:
    fake.set("v01", status=77)
    fake.set("v02", status=77)
    assert compare(tmp_path, "v01", "v02") == 77
