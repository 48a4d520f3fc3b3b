"""The sheet on a step: its fixed verdicts, and figures that are missing rather than guessed."""

import argparse
import importlib
import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analysis.__main__ import COMMANDS, main
from analysis.files import root
from analysis.inspect import why
from analysis.inspect.why import VERDICTS, device_arch, read_sheet
from analysis.ladder.headers import load
from analysis.ladder.pairs import pair_configs
from analysis.machine_code.subjects import DEFAULT_ARCH
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


def test_a_loop_without_matrix_instructions_is_neither_shorter_nor_longer() -> None:
    for version in ("v00", "v01"):
        built(version, "sm_80")
    sheet = replace(read_sheet("v00", "v01", "sm_80", None, emulate=False), measured=[])
    assert sheet.expectation == "other work" and sheet.a.work(sheet.change.unit) == len(sheet.a.loop.parts.loop)
    assert replace(sheet, measured=measured("FASTER")).verdict.endswith("; run faster")


@pytest.mark.parametrize(
    ("cc", "arch"), [("9.0", "sm_90"), (90, "sm_90"), ([8, 0], "sm_80"), ("12.0", "sm_120"), (None, None), ("x", None)]
)
def test_device_arch(cc: Any, arch: str | None) -> None:
    assert device_arch({"device": {"cc": cc}}) == arch
    assert device_arch({}) is None


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
    assert "modelled memory traffic: not built" in text
    assert main(["why", "v03", "v04", "--arch", "sm_80", "--no-emulator", "--json"]) == 0
    sheet = json.loads(capsys.readouterr().out)
    assert sheet["verdict"] in VERDICTS.values()
    figures = {row["figure"]: row for row in sheet["figures"]}
    assert figures["matrix instructions in it"]["v04"] == 128
    assert figures["registers"]["delta"] == figures["registers"]["v04"] - figures["registers"]["v03"]


def test_times_of_another_architecture_are_told_apart_from_the_code(capsys: pytest.CaptureFixture[str]) -> None:
    for version in ("v03", "v04"):
        built(version, "sm_80")
        built(version, "sm_90")
    assert main(["why", "v03", "v04", "--no-emulator"]) == 0
    text = capsys.readouterr().out
    assert "architecture: sm_80" in text
    assert "times are of sm_90, the machine code on this sheet is of sm_80: --arch sm_90 shows" in text
    assert main(["why", "v03", "v04", "--no-emulator", "--arch", "sm_90"]) == 0
    assert "times are of" not in capsys.readouterr().out
    assert main(["why", "v03", "v04", "--no-emulator", "--json"]) == 0
    sheet = json.loads(capsys.readouterr().out)
    assert (sheet["arch"], sheet["measured_arch"]) == ("sm_80", "sm_90")


def test_commands_about_machine_code_take_one_architecture_by_default() -> None:
    found: dict[str, argparse.Action] = {}
    for command in COMMANDS:
        module = importlib.import_module(f"analysis.{command.module}")
        parser = argparse.ArgumentParser()
        getattr(module, f"add_{command.name.replace('-', '_')}_arguments")(parser)
        for action in parser._actions:
            if action.dest == "arch":
                found[command.name] = action
    filters = {"regs", "registers"}  # there it says what a log must be of, and which rows to show
    assert {"loop", "bound", "live", "sass", "sass-diff", "ptx", "map", "slice", "why"} <= found.keys()
    for name in found.keys() - filters:
        assert found[name].default is None, name  # subjects.choose_arch: the default one, or the only one of a file
        assert f"({DEFAULT_ARCH})" in str(found[name].help), name


def test_why_is_for_versions(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["why", "a.cubin", "v04"]) == 2
    assert "why compares versions" in capsys.readouterr().err
