"""Autotune: groups of equal code, halving, pruning, resumption and the budget, with made-up kernels and times."""

import csv
import io
from argparse import Namespace
from collections.abc import Callable
from dataclasses import astuple
from pathlib import Path
from typing import Any

import pytest

from analysis.__main__ import main
from analysis.ladder.config import config_set, parse_short_form
from analysis.machine_code.cubin import Kernel
from analysis.measure import autotune, records
from analysis.measure.predicted import Prediction
from analysis.measure.records import Problem
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


def test_the_budget_ends_the_search(
    fake: Callable[..., FakeBin], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The clock is read three times for each kernel, and goes on by a second each time."""
    fake({form: 1000.0 + 60 * index for index, form in enumerate(SHAPES)})
    ticking(monkeypatch, autotune)
    assert tune(tmp_path, "--budget", "30", "--rounds", "500") == 0
    assert "--resume continues" in capsys.readouterr().err
    assert 5 <= len(records.read(tmp_path / "tune.jsonl").records) <= 15


def test_a_dry_run_ranks_by_predicted_times(
    fake: Callable[..., FakeBin], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Configurations that the model does not know come last; the emulator runs only for them."""
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


def test_halving_keeps_what_is_within_reach() -> None:
    assert autotune.survivors({"a": 100.0, "b": 101.0, "c": 102.0, "d": 120.0}) == ["a", "b", "c"]
    assert autotune.survivors({"a": 100.0, "b": 150.0, "c": 160.0}) == ["a", "b"]


def test_stages_grow_up_to_the_last_one() -> None:
    """17 configurations leave 9, 5 and 3; each stage takes twice as long, never longer than the last."""
    options = Namespace(rounds=7, min_samples=20, min_time=0.05, sample_timeout=1.0)
    found = [astuple(stage) for stage in autotune.stages(17, False, options)]
    assert found == [(1, 1, 5, 0.02, 0.3), (2, 1, 5, 0.04, 0.6), (3, 1, 5, 0.05, 1.0), (4, 7, 20, 0.05, 1.0)]
