"""Bench: rounds, order, records, budget, resumption and what happens when a version refuses or is wrong."""

import json
import re
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
from analysis.measure.bench import Plan, Progress, Unit
from analysis.measure.executables import Timing
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
    assert [(r.subject, r.round) for r in found if r.problem.seq == 512] == [
        ("v01", 1),
        ("v02", 1),
        ("v02", 2),
        ("v01", 2),
        ("v01", 3),
        ("v02", 3),
    ]
    assert {r.run_id for r in found} == {found[0].run_id}
    header, *lines = [line.split(",") for line in (tmp_path / "t.csv").read_text().splitlines()]
    table = {(line[0], line[4]): dict(zip(header, line, strict=True)) for line in lines}
    assert float(table["v02", "512"]["ratio to v01"]) == pytest.approx(4.0, rel=0.01)
    assert float(table["v02", "1024"]["low"]) < 4.0 < float(table["v02", "1024"]["high"])
    assert float(table["v01", "512"]["TFLOP/s"]) == pytest.approx(4 * 16 * 16 * 512**2 * 128 / 4000 / 1e3, rel=0.01)
    assert "round 2 · v02 fp16 · 3 of 6" in capsys.readouterr().err


def test_what_is_named_twice_is_measured_once(fake: FakeBin, tmp_path: Path) -> None:
    """Two records of one place in a run contradict each other, and no command would read the file any more."""
    words = ("--versions", "v01,v02 v01", "--dtypes", "fp16,fp16", "--seqs", "512,512", "--rounds", "1")
    assert run(tmp_path, *words) == 0
    assert [(one.subject, one.problem.seq) for one in found(tmp_path)] == [("v01", 512), ("v02", 512)]


@pytest.mark.parametrize(
    ("option", "value"),
    [("--min-time", "-1"), ("--max-noise", "nan"), ("--sample-timeout", "inf"), ("--budget", "nan"), ("--rounds", "0")],
)
def test_a_rule_that_cannot_be_followed_is_refused(
    fake: FakeBin, tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str, value: str
) -> None:
    for command in ("bench", "autotune"):
        assert main([command, "--versions", "v01", "--records", str(tmp_path / "out.jsonl"), option, value]) == 2
        assert f"{command}: {option} {value}: must be " in capsys.readouterr().err
    assert fake.calls() == []


def test_the_options_reach_the_executable(fake: FakeBin, tmp_path: Path) -> None:
    run(
        tmp_path,
        "--versions",
        "v02",
        "--dtypes",
        "bf16",
        "--rounds",
        "1",
        "--heads",
        "3",
        "--batch",
        "2",
        "--check",
        "0",
        "--min-time",
        "0.1",
        "--seqs",
        "512:2048:*2",
    )
    (call,) = fake.calls()
    for expected in (
        "--backend gpu",
        "--dtype bf16",
        "--seq 2048,1024,512",
        "--heads 3",
        "--batch 2",
        "--no-check",
        "--min-time 0.1",
        "--json -",
    ):
        assert expected in call


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


def test_a_number_of_tokens_alone(fake: FakeBin, tmp_path: Path) -> None:
    options = ("--versions", "v02", "--rounds", "1", "--seqs", "512,1024", "--tokens", "16384")
    assert run(tmp_path, *options, "--batch", "0") == 0
    assert [(record.problem.seq, record.problem.batch) for record in found(tmp_path)] == [(1024, 16), (512, 32)]
    assert run(tmp_path, *options, "--batch", "16", "--resume") == 0
    assert [record.problem.batch for record in found(tmp_path)[2:]] == [16, 16, 32], "another plan"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--tokens", "16384", "--seqs", "512,3000"], ["--tokens 16384", "multiple", "3000"]),
        (["--tokens", "0"], ["--tokens 0", "multiple"]),
        (["--batch", "0"], ["--batch 0: must be at least 1"]),
        (["--batch", "-1", "--tokens", "4096"], ["--batch -1", "0 beside --tokens"]),
    ],
)
def test_sizes_that_make_no_problem_are_refused(
    fake: FakeBin, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], words: list[str]
) -> None:
    assert run(tmp_path, *options) == 2
    said = capsys.readouterr().err
    assert all(word in said for word in words) and not fake.calls()


def test_energy_is_measured_where_it_is_asked_for(
    fake: FakeBin, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """1 us at 700 W."""
    for options, joules in (([], None), (["--energy"], 7e-4)):
        assert run(tmp_path, "--versions", "v02", "--rounds", "1", "--seqs", "512", "--json", *options) == 0
        assert json.loads(capsys.readouterr().out)["rows"][0].get("J") == joules
    assert [record.raw["energy"] is not None for record in found(tmp_path)] == [False, True]


def test_launch_stands_in_front(fake: FakeBin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAUNCH", f'env LAUNCHED=1 sh -c \'echo $LAUNCHED > "{tmp_path}/launched"; exec "$@"\' sh')
    assert run(tmp_path, "--versions", "v01", "--rounds", "1") == 0
    assert (tmp_path / "launched").read_text() == "1\n"


def test_a_record_that_is_none_is_refused_with_its_subject(
    fake: FakeBin, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.set("v02", device=7)
    assert run(tmp_path, "--versions", "v02", "--rounds", "1", "--seqs", "512") == 2
    assert re.search(r"analysis bench: v02.*: .*device", capsys.readouterr().err)


def test_no_rounds_are_refused(fake: FakeBin, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, "--rounds", "0") == 2
    assert "--rounds 0: must be at least 1" in capsys.readouterr().err


def test_a_version_for_another_gpu_is_left_out_by_name(
    fake: FakeBin, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.set("v02", status=77, message="v02 is for sm_90a alone: it needs a GPU of compute capability 9.0")
    assert run(tmp_path, "--versions", "v01,v02") == 0
    said = capsys.readouterr()
    assert "v01" in said.out and "v02" not in said.out
    assert "v02 is for sm_90a alone: it needs a GPU of compute capability 9.0" in said.err
    (tmp_path / "out.jsonl").unlink()
    assert run(tmp_path, "--versions", "v02") == 2
    said = capsys.readouterr()
    assert "v02 is for sm_90a alone" in said.err and said.err.endswith("analysis bench: nothing was measured\n")


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


def test_an_unknown_version_lists_what_is_built(
    fake: FakeBin, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, "--versions", "v03") == 2
    assert "make v03" in (text := capsys.readouterr().err) and "v01, v02" in text


@pytest.mark.parametrize(
    "options",
    [["--seqs", "0"], ["--seqs", "512:4096:*1"], ["--seqs", "1:9:2"], ["--dtypes", "fp32"], ["--rounds", "0"]],
)
def test_bad_options_are_usage(fake: FakeBin, tmp_path: Path, options: list[str]) -> None:
    assert run(tmp_path, *options) == 2
    assert not fake.calls()


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


@pytest.mark.parametrize("run_of_record", [{}, {"run": None}])
def test_resume_passes_over_records_that_an_executable_wrote_by_itself(
    fake: FakeBin, tmp_path: Path, capsys: pytest.CaptureFixture[str], run_of_record: dict[str, None]
) -> None:
    done = subprocess.run([fake.folder / "v01", "--json", "-"], capture_output=True, text=True, check=True)
    path = tmp_path / "out.jsonl"
    path.write_text(json.dumps(json.loads(done.stdout) | run_of_record) + "\n")
    assert run(tmp_path, "--rounds", "1", "--resume") == 0
    assert "nothing to resume: a new run" in capsys.readouterr().err
    assert [record.run_id == "" for record in records.read(path).records] == [True, False, False]
    assert run(tmp_path, "--rounds", "2", "--resume") == 0
    assert "after 1 rounds" in capsys.readouterr().err


def test_resume_knows_units_that_were_refused(fake: FakeBin, tmp_path: Path) -> None:
    fake.set("v00", status=2)
    run(tmp_path, "--rounds", "1")
    calls = len(fake.calls())
    run(tmp_path, "--rounds", "1", "--resume")
    assert len(fake.calls()) == calls


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


def test_progress_tells_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    ticking(monkeypatch, bench, step=0.1)
    progress = Progress(rounds=2, units=3, budget=100.0, start=0.0, done=2, total_seconds=20.0)
    assert progress.left() == 40.0
    assert progress.room_for(99.0) and not progress.room_for(101.0)
    assert "3 of 6 · 0:40 left (1:39 of the budget)" in progress.line(1, Unit("v01", False, "fp16"))


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


def test_what_has_no_clocks_or_was_not_timed_is_thinned_too() -> None:
    kept = bench.thinned({"timing": {"samples_ns": [1.0] * 100, "sm_clock_hz": []}}, 16)["timing"]
    assert (len(kept["samples_ns"]), kept["sm_clock_hz"], kept["kept_of"]) == (16, [], 100)
    assert bench.thinned({"timing": None}, 16) == {"timing": None}


def test_a_single_round_keeps_more_samples(fake: FakeBin, tmp_path: Path) -> None:
    for rounds, most in (("1", 64), ("2", 16)):
        run(tmp_path, "--versions", "v01", "--rounds", rounds, "--min-samples", "200")
        assert len(records.read(tmp_path / "out.jsonl").records[-1].samples_ns) == most


def test_records_hold_no_digits_that_no_clock_has() -> None:
    timing = {"samples_ns": [64000.0029, 31999.998], "sm_clock_hz": [1_654_349_999, 1_654_350_001], "noise": 0.0012345}
    kept = bench.kept({"timing": timing | {"median": 47999.5, "min": 31999.998}}, 16)["timing"]
    assert kept["samples_ns"] == [64000, 32000] and kept["sm_clock_hz"] == [1_654_300_000, 1_654_400_000]
    assert (kept["median"], kept["min"], kept["noise"]) == (48000, 32000, 0.0012345) and "q1" not in kept
    assert bench.kept({"timing": {"samples_ns": [1.6]}}, 16)["timing"] == {"samples_ns": [2]}


def test_records_hold_no_folder_of_the_machine(tmp_path: Path) -> None:
    assert bench.kept({"argv": [str(tmp_path / "bin/v07"), "--seq", "512"]}, 16)["argv"][0] == "bin/v07"
    assert bench.kept({"peer": "fa2"}, 16) == {"peer": "fa2"}
    assert bench.kept({"peer": "fa3", "argv": ["/x/bin/peers/fa3", "--hot"]}, 16)["argv"] == ["bin/peers/fa3", "--hot"]


def test_records_of_a_run_hold_nothing_that_nobody_reads() -> None:
    raw = {"utc": "2026-11-22T08:21:40Z", "timing": None, "derived": {"tflops": 1.5, "share_of_peak": 0.5}}
    assert bench.without_unread(raw) == {"timing": None, "derived": {"tflops": 1.5}}
    timing = {"samples_ns": [32], "wall_s": 0.25, "noise": 0.5}
    assert bench.kept(raw | {"timing": timing}, 16) == {
        "timing": {"samples_ns": [32], "noise": 0.5},
        "derived": {"tflops": 1.5},
    }
    assert bench.kept({"peer": "fa2", "check": None}, 16) == {"peer": "fa2", "check": None}


def test_peers_stand_among_the_versions() -> None:
    versions = [Unit(f"v{i:02}", False, "fp16") for i in range(1, 7)]
    peers = [Unit(name, True, "fp16") for name in ("fa2", "cudnn")]
    order = [unit.subject for unit in bench.interleave(versions, peers)]
    assert sorted(order) == sorted([unit.subject for unit in (*versions, *peers)])
    assert 0 < order.index("fa2") < order.index("cudnn") < 7


def test_a_plan_is_named_by_what_it_measures() -> None:
    plan = Plan((Unit("v01", False, "fp16"),), (512,), None, 16, "normal", 1, 64, Timing())
    assert plan.name() == Plan(plan.units, (512,), None, 16, "normal", 1, 64, Timing()).name()
    assert plan.name() != Plan(plan.units, (1024,), None, 16, "normal", 1, 64, Timing()).name()
    assert [
        problem.batch
        for problem in Plan(plan.units, (4096, 8192, 16384), None, 16, "normal", 1, 0, Timing()).problems("fp16")
    ] == [16, 8, 4]


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
