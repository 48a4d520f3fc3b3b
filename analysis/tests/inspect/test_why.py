"""The sheet on a step: its fixed verdicts, and figures that are missing rather than guessed."""

import itertools
import json
from dataclasses import replace
from pathlib import Path

import pytest

from analysis.__main__ import main
from analysis.files import root
from analysis.inspect import why
from analysis.inspect.why import VERDICTS, read_sheet
from analysis.ladder.headers import load
from analysis.ladder.pairs import pair_configs
from analysis.measure.stats import Interval, Verdict
from analysis.tests.support.compiled import built


def test_every_outcome_has_a_verdict() -> None:
    expectations = ("identical", "elsewhere", "shorter", "longer", "rearranged", "other work")
    assert set(VERDICTS) == set(itertools.product(expectations, ("", "SAME", "FASTER", "SLOWER")))
    assert VERDICTS["longer", "FASTER"] == "counts and timing disagree: longer loop, faster run"
    assert VERDICTS["shorter", "SLOWER"] == "counts and timing disagree: shorter loop, slower run"


def measured(*words: str) -> list[tuple[str, Verdict]]:
    return [("problem", Verdict(word, Interval(1, 1, 1), 3, True, None, 0.01, "made")) for word in words]


def test_outcome_of_several_problems() -> None:
    for version in ("v03", "v04"):
        built(version, "sm_80")
    sheet = replace(read_sheet("v03", "v04", "sm_80", None, emulate=False), measured=[])
    assert sheet.outcome == ""
    assert replace(sheet, measured=measured("SAME", "FASTER")).outcome == "FASTER"
    assert replace(sheet, measured=measured("UNSURE")).outcome == ""
    assert replace(sheet, measured=measured("SAME", "UNSURE")).outcome == "SAME"
    assert replace(sheet, measured=measured("SLOWER", "FASTER")).outcome == ""
    assert sheet.expectation == "shorter"
    assert replace(sheet, measured=measured("SLOWER")).verdict == "counts and timing disagree: shorter loop, slower run"
    assert replace(sheet, a=sheet.b, b=sheet.a).expectation == "longer"


def record(version: str, config: str, samples: list[float], round_number: int) -> str:
    return json.dumps(
        {
            "schema": 1,
            "version": version,
            "config": config,
            "backend": "gpu",
            "device": {"name": "NVIDIA H200", "cc": "9.0"},
            "problem": {"dtype": "fp16", "batch": 1, "heads": 2, "seq": 256, "d_head": 128, "dist": "normal"},
            "check": {"pass": True, "pass_after": True},
            "timing": {"samples_ns": samples, "sm_clock_hz": [], "discarded": 0},
            "run": {"id": "r", "round": round_number},
        }
    )


def test_measured_times_come_from_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    v03, v04 = load(root(), "v03"), load(root(), "v04")
    pair = pair_configs(v03, v04)
    lines = []
    for number in range(4):
        wobble = 1 + number / 1000
        lines.append(record("v03", str(pair.a), [200 * wobble] * 8, number))
        lines.append(record("v04", str(pair.b), [100 * wobble] * 8, number))
        lines.append(record("v04", "(FP16, 128, 64, 64, 4): async+load_0_0_0_tiles", [900.0] * 8, number))
    (tmp_path / "logs/bench").mkdir(parents=True)
    (tmp_path / "logs/bench/h200.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    monkeypatch.setattr(why, "root", lambda: tmp_path)
    found, arch = why._measured("v03", "v04", pair)
    assert arch == "sm_90"
    ((problem, verdict),) = found
    assert problem.startswith("NVIDIA H200, fp16 batch 1 heads 2 seq 256")
    assert verdict.word == "FASTER"
    assert verdict.speedup.mid == pytest.approx(2.0)
    assert why._measured("v01", "v02", pair) == ([], None)


def test_sheet(capsys: pytest.CaptureFixture[str]) -> None:
    for version in ("v03", "v04"):
        built(version, "sm_80")
    assert main(["why", "v03", "v04", "--arch", "sm_80", "--no-emulator"]) == 0
    text = capsys.readouterr().out
    header = load(root(), "v04").header
    assert text.startswith("# v03 -> v04: ")
    assert f"idea: {header.idea}" in text
    assert "each side its own config: v03 refuses that of v04" in text
    assert "| loop instructions" in text
    assert "modeled memory traffic: not built" in text
    assert main(["why", "v03", "v04", "--arch", "sm_80", "--no-emulator", "--json"]) == 0
    sheet = json.loads(capsys.readouterr().out)
    assert sheet["verdict"] in VERDICTS.values()
    figures = {row["figure"]: row for row in sheet["figures"]}
    assert figures["matrix instructions in it"]["v04"] == 128
    assert figures["registers"]["delta"] == figures["registers"]["v04"] - figures["registers"]["v03"]
