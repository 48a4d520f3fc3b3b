"""gpu-check without a GPU: what it would run, what it makes of the answers, its budget and its exit statuses."""

import re
import struct
from pathlib import Path

import pytest

from analysis.__main__ import main
from analysis.files import read_text, root
from analysis.ladder.config import parse_short_form
from analysis.ladder.headers import kernel_files
from analysis.measure import gpu_check
from analysis.tests.support.clock import ticking
from analysis.tests.support.fake import FakeBin, fake_tool

CLEAN = "0 ========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors"
OWN = "(FP16, 128, 64, 64, 4): async+load_0_0_0_tiles"
GENERAL = "(FP16, 128, 128, 32, 4): mma_sync+stages_2"


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeBin:
    made = fake_tool("compute-sanitizer", tmp_path, monkeypatch)
    monkeypatch.setenv("FAKE_TOOL", CLEAN)
    monkeypatch.delenv("LAUNCH", raising=False)
    return made


def test_everything_that_was_promised_is_run_and_passes(fake: FakeBin, capsys: pytest.CaptureFixture[str]) -> None:
    fake.set("v01")
    fake.set("v18", status=77, message="v18: needs 106496 bytes of shared memory per CTA, 8192 of them static")
    assert main(["gpu-check"]) == 0
    captured = capsys.readouterr()
    assert "0 not run" in captured.err and "left out: " in captured.err
    told = re.findall(r"^[0-9]+:[0-9]{2} ([0-9]+)/([0-9]+) v01 (?:fp16|bf16|.*?): ok", captured.err, re.MULTILINE)
    assert [int(number) for number, _ in told] == list(range(1, len(told) + 1)) and int(told[-1][1]) == len(told) > 20
    header, line = (row.split() for row in captured.out.splitlines())
    cells = dict(
        zip((group for group in header if group not in ("general", "sdpa")), line, strict=True)
    )  # an empty cell
    assert cells["sanitizers"] == "8/8" and cells["statuses"] == "6/6" and cells["emulator"] == "2/2"
    calls = "\n".join(fake.calls())
    expected = ("--heads 1,2,3,16,17,32", "--batch 16", "--dist large", "--seq 64,128,", "--config all", "16384")
    for text in (*expected, "--dtype bf16", "--check all", "--backend emu"):
        assert text in calls


def test_the_matrix_of_pytorch_is_asked_in_full(fake: FakeBin) -> None:
    config = parse_short_form(GENERAL)
    checks = list(gpu_check.sdpa("v25", config, quick=False))
    calls = [check.name for check in checks]
    assert len(set(calls)) == 24
    for option in ("--causal", "--scale 0.0078125", "--dtype bf16"):
        assert sum(option in call for call in calls) == 12, option
    for heads in ("--heads 4 --kv-heads 4", "--heads 16 --kv-heads 8", "--heads 10 --kv-heads 2"):
        assert sum(heads in call for call in calls) == 8, heads
    assert {call.split("--batch ")[1][0] for call in calls} == {"1", "8"}
    assert len(list(gpu_check.sdpa("v25", config, quick=True))) == 4
    fake.set("v25")
    assert checks[0].run()[0] == ""
    assert f"--seq-q {gpu_check.SDPA_SEQ_Q} --seq-k {gpu_check.SDPA_SEQ_K}" in fake.calls()[-1]
    assert "--lse" in fake.calls()[-1]
    assert list(gpu_check.sdpa("v25", parse_short_form(OWN), quick=False)) == []


def test_a_wrong_result_fails(fake: FakeBin, capsys: pytest.CaptureFixture[str]) -> None:
    fake.set("v01")
    fake.set("v02", wrong=[OWN])
    assert main(["gpu-check", "--groups", "shapes,instances"]) == 1
    err = capsys.readouterr().err
    assert "FAILED v02" in err and "FAILED v01" not in err
    assert OWN in err


def test_an_unchecked_result_is_no_pass(fake: FakeBin, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.set("v01")
    wrong, _ = gpu_check.right("v01", ["--seq", "512", "--no-check"])
    assert "not every record" in wrong


def test_a_sanitizer_finding_fails(fake: FakeBin, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.set("v01")
    monkeypatch.setenv("FAKE_TOOL", "99 ========= ERROR SUMMARY: 3 errors")
    assert main(["gpu-check", "--groups", "sanitizers"]) == 1


def test_no_gpu_is_77(fake: FakeBin, capsys: pytest.CaptureFixture[str]) -> None:
    fake.set("v01", gpu=False)
    assert main(["gpu-check"]) == 77
    assert "no GPU" in capsys.readouterr().err


def test_the_budget_leaves_out_and_says_so(
    fake: FakeBin, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.set("v01")
    ticking(monkeypatch, gpu_check)
    assert main(["gpu-check", "--budget", "5", "--quiet"]) == 4
    assert re.search(r"\b[1-9]\d* not run", capsys.readouterr().err)


def test_outputs_may_differ_by_one_step() -> None:
    ours = struct.pack("<4e", 1.0, 0.5, 0.25, 1e-4)
    step = struct.pack("<4e", 1.0 + 2**-10, 0.5, 0.25, 2e-4)
    wrong, note = gpu_check.compare_outputs(ours, step, "fp16")
    assert wrong == "" and note.startswith("50.00 % differ, by at most 1.00")


def test_a_gpu_that_disagrees_with_the_emulator_fails(fake: FakeBin) -> None:
    fake.set("v01", emu=[1.0, -0.5, 0.75, 2.0])
    assert main(["gpu-check", "--groups", "emulator"]) == 1


def test_a_gpu_is_set_beside_the_emulator_for_several_inputs(fake: FakeBin) -> None:
    fake.set("v01")
    assert main(["gpu-check", "--groups", "emulator"]) == 0
    for inputs in gpu_check.COMPARED:
        backends = [call.split("--backend ")[1].split()[0] for call in fake.calls() if f"{inputs} " in call]
        assert sorted(backends) == ["emu", "emu", "gpu", "gpu"], inputs  # in two types


def test_outputs_are_the_emulators() -> None:
    """No output of the GPU is more than a rounding step from the emulator's, in any version up to the last checked."""
    log = read_text(root() / "logs/gpu-check.h200.txt")
    found = re.findall(r"(v\d\d) (?:fp16|bf16) output as the emulator's: ok (.*)", log)
    names = list(kernel_files(root()))
    versions = [version for version, _ in found]
    checked = [name for name in names if min(versions) <= name <= max(versions)]
    assert versions == [name for name in checked for _ in gpu_check.DTYPES]
    for _, text in found:
        notes = re.findall(r"[\d.]+ % differ, by at most ([\d.]+) steps", text)
        assert len(notes) == len(gpu_check.COMPARED) and all(float(steps) <= 1 for steps in notes)
