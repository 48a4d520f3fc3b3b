"""Autotune: groups of equal code, halving, pruning, resumption and the budget, with made-up kernels and times."""

import csv
import io
from argparse import Namespace
from collections.abc import Callable
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import pytest

from analysis.__main__ import main
from analysis.errors import AnalysisError
from analysis.ladder.config import config_set, parse_short_form
from analysis.machine_code.cubin import Kernel
from analysis.measure import autotune, records
from analysis.measure.predicted import Prediction
from analysis.measure.records import Problem, Record
from analysis.predict.machine import model_digest
from analysis.tests.support.clock import ticking
from analysis.tests.support.fake import FakeBin, fake_bin

BLOCKS = ((64, 32), (128, 32), (128, 64))
SHAPES = [
    f"(FP16, 128, {B_r}, {B_c}, 4): async+eager+swizzled+load_2_2_{V}_tiles{rest}"
    for B_r, B_c in BLOCKS
    for V in (0, 2)
    for rest in ("", "+buffer", "+opt_softmax")
]


def kernel(form: str, code: bytes, stack: int = 0) -> Kernel:
    config = parse_short_form(form)
    return Kernel(config.symbol(), 1, True, code.ljust(16), b"", 128, stack, 0, 1)


class FakeCubin:
    def __init__(self, kernels: list[Kernel]) -> None:
        self.kernels = kernels


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., FakeBin]:
    def make(
        times: dict[str, float], code: dict[str, bytes] | None = None, stack: dict[str, int] | None = None, **how: Any
    ) -> FakeBin:
        made = fake_bin(tmp_path, monkeypatch)
        made.set("v16", configs=times, **how)
        kernels = [kernel(form, (code or {}).get(form, form.encode()), (stack or {}).get(form, 0)) for form in times]
        monkeypatch.setattr(autotune, "cubin_for", lambda path, capability: FakeCubin(kernels))
        return made

    return make


def tune(tmp_path: Path, *options: str) -> int:
    path = str(tmp_path / "tune.jsonl")
    return main(["autotune", "--versions", "v16", "--records", path, "--seqs", "512", "--rounds", "3", *options])


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_the_tuning_space_is_grouped_by_code_and_shape() -> None:
    kernels = [kernel(form, b"same") for form in SHAPES]
    found = autotune.groups(kernels)
    assert [len(group.members) for group in found] == [6, 6, 6]
    assert {group.config.B_r for group in found} == {64, 128}
    only = config_set("128,32")
    assert [len(group.members) for group in autotune.groups(kernels, only)] == [6]
    assert "18 configurations are 3 distinct kernels" in autotune.classes_text(found)


def test_the_fastest_wins_and_losers_get_few_samples(
    fake: Callable[..., FakeBin], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    times = {form: 1000.0 + 60 * index for index, form in enumerate(SHAPES)}
    times[SHAPES[11]] = 900.0
    fake(times)
    assert tune(tmp_path, "--csv") == 0
    captured = capsys.readouterr()
    table = rows(captured.out)
    assert [row["config"] for row in table[:2]] == [SHAPES[11], SHAPES[0]]
    assert table[0]["remark"] == "winner"
    assert f"v16: winner at fp16 batch 16 heads 16 seq 512 normal: {SHAPES[11]}" in captured.err
    samples = {row["config"]: int(row["samples"]) for row in table}
    assert samples[SHAPES[11]] >= 5 * samples[SHAPES[17]]
    assert len(table) == len(SHAPES)
    assert float(table[1]["time / best"]) == pytest.approx(1000 / 900, rel=0.01)


def test_equal_code_is_measured_once(
    fake: Callable[..., FakeBin], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = {form: b"one" if parse_short_form(form).B_c == 32 else form.encode() for form in SHAPES}
    made = fake({form: 1000.0 for form in SHAPES}, code)
    assert tune(tmp_path, "--csv") == 0
    table = rows(capsys.readouterr().out)
    assert len(table) == 8
    assert sorted(int(row["same code"]) for row in table)[-2:] == [6, 6]
    measured = {form for form in SHAPES for call in made.calls() if form in call}
    assert len(measured) == 8
    assert tune(tmp_path, "--classes") == 0
    assert "18 configurations are 8 distinct kernels" in capsys.readouterr().out


def test_equal_times_share_the_place(
    fake: Callable[..., FakeBin], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake({SHAPES[0]: 1000.0, SHAPES[1]: 1000.0, SHAPES[2]: 1200.0})
    assert tune(tmp_path, "--csv") == 0
    remarks = [row["remark"] for row in rows(capsys.readouterr().out)]
    assert remarks == ["winner", "as fast as the winner, as far as can be told", ""]


def test_what_cannot_win_is_left_out_with_the_reason_unless_exhaustive(
    fake: Callable[..., FakeBin], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    big = "(FP16, 128, 128, 192, 4): async+eager+swizzled+load_2_2_2_tiles"
    times = {SHAPES[0]: 1000.0, SHAPES[1]: 1100.0, big: 900.0}
    made = fake(times, stack={SHAPES[1]: 272}, device="NVIDIA GeForce RTX 3090", cc="8.6")
    assert tune(tmp_path, "--csv") == 0
    table = rows(capsys.readouterr().out)
    assert table[0]["config"] == SHAPES[0] and len(table) == 3
    assert "a stack of 272 bytes" in table[1]["remark"] + table[2]["remark"]
    assert not any(SHAPES[1] in call for call in made.calls())
    assert tune(tmp_path, "--csv", "--exhaustive") == 0
    table = rows(capsys.readouterr().out)
    assert table[0]["config"] == big
    assert len({row["samples"] for row in table}) == 1


def test_shared_memory_is_that_of_the_gpu() -> None:
    config = parse_short_form("(FP16, 128, 128, 128, 4): load_0_0_0_tiles")
    group = autotune.Group("x", (config,), 255, 0, 0, 0)
    assert autotune.left_out(group, "9.0") == ""
    assert autotune.left_out(group, "8.0") == ""
    big = autotune.Group("x", (config.replace(B_c=256),), 255, 0, 0, 3072)
    assert autotune.left_out(big, "8.0") == ""
    assert "166912 bytes of shared memory" in autotune.left_out(big, "8.6")
    assert "needs 166913 bytes of shared memory" in autotune.left_out(replace(big, static_smem=3073), "8.0")


def test_a_wrong_result_never_wins(
    fake: Callable[..., FakeBin], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake({SHAPES[0]: 1000.0, SHAPES[1]: 500.0}, wrong=[SHAPES[1]])
    assert tune(tmp_path, "--csv") == 0
    table = rows(capsys.readouterr().out)
    assert table[0]["config"] == SHAPES[0]
    assert table[1]["remark"] == "WRONG RESULT"
    fake({SHAPES[0]: 1000.0}, wrong=[SHAPES[0]])
    assert tune(tmp_path / "other") == 2
    assert "nothing could be measured on fp16 batch 16 heads 16 seq 512" in capsys.readouterr().err


def test_a_search_that_was_killed_goes_on(
    fake: Callable[..., FakeBin], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    times = {form: 1000.0 + 60 * index for index, form in enumerate(SHAPES)}
    made = fake(times, **{"stop after": SHAPES[11]})
    assert tune(tmp_path) == 2
    assert "SIGKILL" in capsys.readouterr().err
    kept = len(records.read(tmp_path / "tune.jsonl").records)
    assert kept == 12
    made.set("v16", configs=times)
    before = len(made.calls())
    assert tune(tmp_path, "--resume", "--csv") == 0
    captured = capsys.readouterr()
    assert "with 12 records" in captured.err
    first = made.calls()[before + 2]  # after the probe and what warms the GPU
    assert SHAPES[11] not in first and SHAPES[12] in first
    assert rows(captured.out)[0]["config"] == SHAPES[0]
    assert len({record.run_id for record in records.read(tmp_path / "tune.jsonl").records}) == 1


def test_rounds_of_a_stage_alternate_in_order(fake: Callable[..., FakeBin], tmp_path: Path) -> None:
    """So that a clock that falls during a round hits each configuration as often at its start as at its end."""
    fake({SHAPES[0]: 1000.0, SHAPES[1]: 1010.0, SHAPES[2]: 1020.0})
    assert tune(tmp_path) == 0
    found = records.read(tmp_path / "tune.jsonl").records
    assert [record.config for record in found] == [*SHAPES[:3], *SHAPES[2::-1], *SHAPES[:3]]


def test_the_gpu_is_warm_before_the_first_stage(fake: Callable[..., FakeBin], tmp_path: Path) -> None:
    made = fake({SHAPES[0]: 1000.0, SHAPES[1]: 1010.0})
    assert tune(tmp_path) == 0
    warming = [call for call in made.calls() if "--min-time 3 " in call]
    assert warming == made.calls()[1:2] and "--seq 512" in warming[0], "once, after the probe"
    assert len(records.read(tmp_path / "tune.jsonl").records) == 6, "its times are not kept"


@pytest.mark.parametrize(
    "option", ["--seed 2", "--check 8", "--rounds 2", "--min-samples 11", "--min-time 0.3", "--exhaustive"]
)
def test_resume_goes_on_only_with_a_run_of_the_same_plan(
    fake: Callable[..., FakeBin], tmp_path: Path, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fake({SHAPES[0]: 1000.0, SHAPES[1]: 1010.0})
    for more, said in (([], False), ([], True), (option.split(), False), (option.split(), True)):
        assert tune(tmp_path, "--resume", *more) == 0
        assert ("resuming" in capsys.readouterr().err) == said


def test_resume_takes_the_newest_run_alone(
    fake: Callable[..., FakeBin],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The newest run was cut off before its last round; what an older one measured on another day is not its."""
    made = fake({SHAPES[0]: 1000.0, SHAPES[1]: 1100.0})
    ids = iter(["20260101T000000Z-aaaa", "20260102T000000Z-bbbb", "20260103T000000Z-cccc"])
    monkeypatch.setattr(autotune, "new_run_id", lambda: next(ids))
    assert tune(tmp_path) == 0
    made.set("v16", configs={SHAPES[0]: 2000.0, SHAPES[1]: 1900.0})
    assert tune(tmp_path) == 0
    path = tmp_path / "tune.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-2]))
    capsys.readouterr()
    assert tune(tmp_path, "--resume", "--csv") == 0
    captured = capsys.readouterr()
    assert "resuming 20260102T000000Z-bbbb with 4 records" in captured.err
    assert [row["config"] for row in rows(captured.out)] == [SHAPES[1], SHAPES[0]]
    kept = records.read(path).records
    assert [record.run_id for record in kept].count("20260102T000000Z-bbbb") == len(kept) / 2 == 6


def test_a_kernel_that_is_wrong_in_one_round_has_no_time() -> None:
    def record(form: str, number: int, passed: bool | None, ns: float = 1000.0) -> Record:
        problem = Problem("attention", "fp16", 16, 16, 512, 128, "normal")
        return Record({}, "v16", False, form, problem, "gpu", (ns,), (), 1, 0, passed, None, "run", number)

    outcomes = {"right": (True, True), "unchecked": (None, None), "once": (True, False), "wrong": (False, False)}
    found = {(1, n, form): record(form, n, each[n]) for form, each in outcomes.items() for n in (0, 1)}
    search = autotune.Search("v16", found[1, 0, "right"].problem, [], Path(), {}, found, None, True)
    assert search.times(1, [*outcomes, "never run"]) == {"right": 1000.0, "unchecked": 1000.0}
    assert search.times(2, outcomes) == {}


def test_the_budget_ends_the_search(
    fake: Callable[..., FakeBin],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The clock is read three times for each kernel, and goes on by a second each time."""
    fake({form: 1000.0 + 60 * index for index, form in enumerate(SHAPES)})
    ticking(monkeypatch, autotune)
    assert tune(tmp_path, "--budget", "30", "--rounds", "500") == 0
    assert "--resume continues" in capsys.readouterr().err
    assert 5 <= len(records.read(tmp_path / "tune.jsonl").records) <= 15


def test_without_a_gpu_it_is_a_dry_run(
    fake: Callable[..., FakeBin], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = fake({SHAPES[0]: 1100.0, SHAPES[1]: 1000.0}, gpu=False)
    assert tune(tmp_path, "--csv") == 0
    captured = capsys.readouterr()
    assert "no measured times" in captured.err
    table = rows(captured.out)
    assert [row["config"] for row in table] == [SHAPES[1], SHAPES[0]]
    assert "TFLOP/s" not in table[0]
    counts = {(row["PTX instructions"], row["modelled wavefronts"], row["predicted ms"]) for row in table}
    assert counts == {("250", "7", ""), ("275", "7", "")}, "machine code that is made up has no prediction"
    assert sum("--backend emu" in call for call in made.calls()) == 2


def test_a_dry_run_ranks_by_predicted_times(
    fake: Callable[..., FakeBin], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those that the model does not know come last; the emulator runs for them alone."""
    made = fake({SHAPES[0]: 1100.0, SHAPES[1]: 1000.0, SHAPES[2]: 900.0}, gpu=False)
    cycles = {SHAPES[0]: 2e6, SHAPES[1]: 3e6}

    def launch(version: str, group: autotune.Group, problem: Problem) -> Prediction | None:
        assert (version, problem.batch, problem.heads) == ("v16", 16, 16)
        known = cycles.get(group.config.short_form())
        return Prediction(known, 1e9, problem.flop()) if known else None

    monkeypatch.setattr(autotune, "predicted_launch", launch)
    assert tune(tmp_path, "--csv") == 0
    table = rows(capsys.readouterr().out)
    assert [(row["config"], row["predicted ms"]) for row in table] == [
        (SHAPES[0], "2.0"),
        (SHAPES[1], "3.0"),
        (SHAPES[2], ""),
    ]
    assert sum("--backend emu" in call for call in made.calls()) == 1


def test_predicted_times_are_kept_by_version_and_problem(
    fake: Callable[..., FakeBin], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A newer dry run takes the place of those of its version and length alone."""
    fake({SHAPES[0]: 1100.0, SHAPES[1]: 1000.0}, gpu=False)
    path = tmp_path / "predicted.csv"
    monkeypatch.setattr(autotune, "PREDICTED", str(path))
    old = [("v09", 4096, SHAPES[0]), ("v16", 512, SHAPES[2]), ("v16", 4096, SHAPES[2])]
    lines = [f'{version},fp16,{seq},"{config}",7.0,before' for version, seq, config in old]
    path.write_text("\n".join(["version,dtype,seq,config,ms,model", *lines, ""]))
    monkeypatch.setattr(autotune, "predicted_launch", lambda *_: Prediction(2e6, 1e9, 1.0))
    assert tune(tmp_path, "--csv", "--keep") == 0
    found = autotune.read_predicted(path)
    times = {(version, seq): list(of.values()) for (version, _, seq), of in found.items()}
    assert times == {("v09", 4096): [7.0], ("v16", 512): [2.0, 2.0], ("v16", 4096): [7.0]}
    models = {(version, seq): model for (version, _, seq), model in autotune.models_of(path).items()}
    assert models == {("v09", 4096): "before", ("v16", 512): model_digest(), ("v16", 4096): "before"}


def test_results_are_checked_unless_they_shall_not_be(fake: Callable[..., FakeBin], tmp_path: Path) -> None:
    made = fake({SHAPES[0]: 1000.0})
    assert tune(tmp_path, "--check", "17") == 0
    calls = made.calls()
    assert any("--check 17" in call for call in calls) and not any("--check 0" in call for call in calls)
    assert all(("--check" in call) != ("--no-check" in call) for call in calls)


def test_results_are_not_checked_where_no_row_shall_be(fake: Callable[..., FakeBin], tmp_path: Path) -> None:
    made = fake({SHAPES[0]: 1000.0})
    assert tune(tmp_path, "--check", "0") == 0
    assert made.calls() and not any("--check" in call.replace("--no-check", "") for call in made.calls())


def test_progress_tells_the_time_left(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """2 of 4 took 10 s: two more of this round, and four in each of two others."""
    problem = Problem("attention", "fp16", 16, 16, 512, 128, "normal")
    search = autotune.Search("v16", problem, [], Path("x"), {}, {}, None, False)
    stage = autotune.Stage(number=1, rounds=3, min_samples=5, min_time=0.1, timeout=1.0)
    monkeypatch.setattr(autotune.time, "monotonic", lambda: 110.0)  # type: ignore[attr-defined]
    search.tell(stage, 1, 2, 4, 100.0)
    assert "stage 1 round 1/3 · 2 of 4 · 0:50 left" in capsys.readouterr().err


def test_halving_keeps_what_is_within_reach() -> None:
    assert autotune.survivors({"a": 100.0, "b": 101.0, "c": 102.0, "d": 120.0}) == ["a", "b", "c"]
    assert autotune.survivors({"a": 100.0, "b": 150.0, "c": 160.0, "d": 170.0}) == ["a", "b"]
    assert autotune.survivors({"a": 1.0}) == ["a"]
    assert autotune.survivors({"a": 100.0, "b": 150.0, "c": 160.0}) == ["a", "b"]


def test_the_machine_code_is_that_of_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    class Image:
        kind = "cubin"

        def __init__(self, arch: str) -> None:
            self.made = FakeCubin([kernel(SHAPES[0], b"x")])
            self.made.arch = arch  # type: ignore[attr-defined]

        def cubin(self, name: str) -> FakeCubin:
            return self.made

    monkeypatch.setattr(autotune, "read_images", lambda path: [Image("sm_80"), Image("sm_90"), Image("sm_86")])
    for capability, arch in (("9.0", "sm_90"), ("8.0", "sm_80"), ("8.9", "sm_86"), (None, "sm_90")):
        assert autotune.cubin_for(Path("v16"), capability).arch == arch
    with pytest.raises(AnalysisError, match=r"12\.0"):
        autotune.cubin_for(Path("v16"), "12.0")


def test_a_kernel_that_spills_a_little_is_measured() -> None:
    group = autotune.Group("x", (parse_short_form(SHAPES[0]),), 255, autotune.STACK_MOST, 0, 0)
    assert autotune.left_out(group, "9.0") == "" == autotune.left_out(replace(group, stack=None), "9.0")
    why = autotune.left_out(replace(group, stack=autotune.STACK_MOST + 1), "9.0")
    assert why == f"spills: a stack of {autotune.STACK_MOST + 1} bytes per thread"


def test_stages_grow_up_to_the_last_one() -> None:
    """17 configurations leave 9, 5 and 3; each stage takes twice as long, never longer than the last."""
    options = Namespace(rounds=7, min_samples=20, min_time=0.05, sample_timeout=1.0)
    last = (7, 20, 0.05, 1.0)
    found = [astuple(stage) for stage in autotune.stages(17, False, options)]
    assert found == [(1, 1, 5, 0.02, 0.3), (2, 1, 5, 0.04, 0.6), (3, 1, 5, 0.05, 1.0), (4, *last)]
    assert [astuple(stage) for stage in autotune.stages(autotune.FINALISTS, False, options)] == [(1, *last)]
    assert len(autotune.stages(autotune.FINALISTS + 1, False, options)) == 2
    assert [astuple(stage) for stage in autotune.stages(17, True, options)] == [(1, *last)]


def test_only_a_finalist_can_be_as_fast_as_the_winner() -> None:
    """Times of a short stage say too little for that."""
    problem = Problem("attention", "fp16", 16, 16, 512, 128, "normal")
    times = {SHAPES[0]: 1000.0, SHAPES[1]: 1000.0, SHAPES[2]: 1200.0, SHAPES[3]: 1000.0}
    last_stage = {SHAPES[0]: 2, SHAPES[1]: 2, SHAPES[2]: 2, SHAPES[3]: 1}
    found = {
        (stage, number, form): Record(
            {}, "v16", False, form, problem, "gpu", (ns,) * 5, (), 5, 0, True, None, "run", number
        )
        for form, ns in times.items()
        for stage in range(1, last_stage[form] + 1)
        for number in (1, 2, 3)
    }
    search = autotune.Search("v16", problem, [], Path(), {}, found, None, True)
    groups = {form: autotune.Group("x", (parse_short_form(form),), 255, 0, 0, 0) for form in times}
    ranked = autotune.ranking(search, groups, {}, last_stage)
    assert [one.group.config.short_form() for one in ranked] == [*SHAPES[:3], SHAPES[3]]
    assert [one.remark for one in ranked] == ["winner", "as fast as the winner, as far as can be told", "", ""]
