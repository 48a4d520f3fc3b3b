"""Race and sanitize: verdicts on real messages of compute-sanitizer, and the emulator where there is no GPU."""

from pathlib import Path

import pytest

from analysis.__main__ import main
from analysis.measure import sanitize
from analysis.measure.executables import Outcome
from analysis.tests.support.fake import FakeBin, fake_tool

CLEAN = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"
CLEAN_RACES = "========= COMPUTE-SANITIZER\n========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n"
RACES = """========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at flash_forward+0x5b0 in v01_base.cu:120
=========     and Read access at flash_forward+0x9a0 in v01_base.cu:150 [8192 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""
OUT_OF_BOUNDS = """========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 16 bytes
=========     at flash_forward+0x1f20 in v01_base.cu:201
========= ERROR SUMMARY: 2 errors
"""
DID_NOT_START = "========= COMPUTE-SANITIZER\n========= Error: Device not supported. Please refer to the manual.\n"


def verdict(text: str, status: int) -> str:
    return sanitize.sanitizer_verdict(Outcome(("compute-sanitizer",), status, text, "", 1.0))


def test_clean_runs_are_clean() -> None:
    assert verdict(CLEAN, 0) == ""
    assert verdict(CLEAN_RACES, 0) == ""


def test_findings_are_counted_and_quoted() -> None:
    assert (
        verdict(RACES, 99)
        == "1 found: Error: Race reported between Write access at flash_forward+0x5b0 in v01_base.cu:120"
    )
    assert verdict(OUT_OF_BOUNDS, 99) == "2 found: Invalid __global__ write of size 16 bytes"
    assert verdict(OUT_OF_BOUNDS, 0)


@pytest.mark.parametrize("status", [0, 1, 99])
def test_a_tool_that_did_not_run_to_its_summary_is_not_clean(status: int) -> None:
    assert "Device not supported" in verdict(DID_NOT_START, status)
    assert verdict("", status)


def test_the_table_has_a_row_for_each_check() -> None:
    found = [
        sanitize.Finding("v01", "fp16", "memcheck", "", 1.26),
        sanitize.Finding("v02", "bf16", "racecheck", "1 found: x", 12.0),
    ]
    assert [tuple(row) for row in sanitize.table(found).rows] == [
        ("v01", "fp16", "memcheck", "clean", 1.3),
        ("v02", "bf16", "racecheck", "1 found: x", 12.0),
    ]


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeBin:
    made = fake_tool("compute-sanitizer", tmp_path, monkeypatch)
    monkeypatch.delenv("LAUNCH", raising=False)
    return made


def test_on_a_gpu(fake: FakeBin, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    fake.set("v01")
    monkeypatch.setenv("FAKE_TOOL", f"0 {CLEAN}")
    assert main(["sanitize", "--versions", "v01", "--exit-code"]) == 0
    assert capsys.readouterr().out.count("clean") == 8
    assert all("--profile" in call for call in fake.calls())
    monkeypatch.setenv("FAKE_TOOL", f"99 {RACES}")
    assert main(["race", "--versions", "v01"]) == 0
    assert main(["race", "--versions", "v01", "--exit-code"]) == 1
    assert "1 found: Error: Race" in capsys.readouterr().out


def test_without_a_gpu_the_emulator_checks(fake: FakeBin, capsys: pytest.CaptureFixture[str]) -> None:
    fake.set("v01", gpu=False)
    fake.set("v02", gpu=False, wrong=["(FP16, 128, 64, 64, 4): async+load_0_0_0_tiles"])
    assert main(["race", "--versions", "v01", "--schedules", "2", "--exit-code"]) == 0
    assert sum("--backend emu" in call and "--schedule 1" in call for call in fake.calls()) == 2
    assert main(["race", "--versions", "v02", "--exit-code"]) == 1
    assert "exit 1, wrong result" in capsys.readouterr().out


FINDINGS = """race at /common/ptx_sm80.cuh:25, called from /kernels/v04_interleave.cu:379, PTX line 527: cp.async
  CTA (0, 0, 0), warp 0, lane 0
  A race in shared memory at 0x8400

async-in-flight at /kernels/v04_interleave.cu:408, PTX line 1992: ldmatrix

2 findings: race (768 times), async-in-flight (4 times)
"""


def test_the_emulators_findings_read_like_the_sanitizers() -> None:
    def verdict(status: int, text: str) -> str:
        return sanitize.emulator_verdict(Outcome(("v04",), status, "v04 ...\n", text, 0.1))

    assert verdict(0, "") == ""
    assert verdict(1, FINDINGS) == "2 found: race at ptx_sm80.cuh:25, called from v04_interleave.cu:379"
    direct = FINDINGS.replace("/common/ptx_sm80.cuh:25, called from ", "")
    assert verdict(1, direct) == "2 found: race at v04_interleave.cu:379"
    assert verdict(1, "first wrong: row 3").startswith("exit 1, wrong result: first wrong: row 3")
