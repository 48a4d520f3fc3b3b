"""Profile: ncu's CSV as it was saved on an H200, its other page, foreign kernels, and the command line of ncu."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from analysis.__main__ import main
from analysis.errors import AnalysisError
from analysis.measure import profile
from analysis.tests.support.fake import FakeBin, fake_tool

FIXTURES = Path(__file__).parents[1] / "fixtures"
RAW = FIXTURES / "ncu_raw.csv"

DETAILS = """==PROF== Connected to process 1 (bin/v02)
"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC","Section Name","Metric Name","Metric Unit","Metric Value"
"0","1","v02","here","void flash_forward<KernelConfig{15, 128, 128, 64, 4, 1, 1, 1, 2, 2, 2, 0, 1}>(forward_args)","1","7","(128, 1, 1)","(8, 2, 1)","0","9.0","GPU Speed Of Light Throughput","Duration","us","25.50"
"0","1","v02","here","void flash_forward<KernelConfig{15, 128, 128, 64, 4, 1, 1, 1, 2, 2, 2, 0, 1}>(forward_args)","1","7","(128, 1, 1)","(8, 2, 1)","0","9.0","Launch Statistics","Registers Per Thread","register/thread","255"
"0","1","v02","here","void flash_forward<KernelConfig{15, 128, 128, 64, 4, 1, 1, 1, 2, 2, 2, 0, 1}>(forward_args)","1","7","(128, 1, 1)","(8, 2, 1)","0","9.0","Memory Workload Analysis","L2 Hit Rate","%","91.25"
"1","1","python","here","void flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4>>(Flash_fwd_params)","1","7","(128, 1, 1)","(8, 2, 1)","0","9.0","GPU Speed Of Light Throughput","Duration","msecond","1,250.5"
==PROF== Disconnected from process 1
"""  # noqa: E501


def test_the_raw_page_of_two_versions() -> None:
    first, second = profile.parse(RAW.read_text(), "h200")
    assert first.figures["duration_ns"] == pytest.approx(38.83e6, rel=0.01)
    assert first.figures["cycles"] == 69874881
    assert first.figures["registers"] == 217
    assert first.figures["conflicts"] > 0.8 * first.figures["wavefronts"]
    assert second.figures["l2_hit"] == pytest.approx(95.2)
    assert second.seq() == 4096
    assert second.tflops() == pytest.approx(330.5, abs=0.1)
    assert max(first.stalls, key=lambda name: first.stalls[name]) == "short_scoreboard"
    assert second.pipes["tensor"] == pytest.approx(51.3)
    assert not any(name.startswith("tensor_") or name == "shared" for name in second.pipes)


def test_the_details_page_with_units_and_a_foreign_kernel() -> None:
    ours, foreign = profile.parse(DETAILS, "details")
    assert ours.figures == {"duration_ns": 25500.0, "registers": 255.0, "l2_hit": 91.25}
    assert ours.seq() == 1024
    assert ours.tflops() == pytest.approx(4 * 2 * 1024**2 * 128 / 25500 / 1e3)
    assert foreign.figures["duration_ns"] == pytest.approx(1250.5e6)
    assert foreign.tflops() is None
    assert profile.columns(foreign, 3)["kernel"] == foreign.kernel
    assert profile.columns(foreign, 3)["library"] == "FlashAttention-2"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no table of ncu"),
        ('"ID","Kernel Name"\n', "no column 'Grid Size'"),
        ('"ID","Kernel Name","Grid Size","a__b"\n"0","k","(1, 1, 1)","5"\n', "line of units"),
    ],
)
def test_what_is_no_table_is_an_error(text: str, message: str) -> None:
    with pytest.raises(AnalysisError, match=message):
        profile.parse(text, "broken")


def test_saved_files_need_no_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", str(RAW), "--json", "--sort", "us"]) == 0
    fast, slow = json.loads(capsys.readouterr().out)["rows"]
    assert fast["us"] < slow["us"] and (fast["from"], slow["from"]) == ("v07", "v01")
    assert slow["stall short_scoreboard"] > 20
    assert main(["profile", str(RAW), "--transpose"]) == 0
    assert "pipe tensor %" in capsys.readouterr().out


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeBin:
    return fake_tool("ncu", tmp_path, monkeypatch)


def test_the_table_shows_each_figure_in_its_place() -> None:
    one = profile.Profile(
        "v02",
        "k",
        (4, 2, 1),
        {
            **{"duration_ns": 12340.0, "cycles": 1.0, "registers": 2.0, "occupancy": 3.04, "l2_hit": 4.06},
            **{"instructions": 5.0, "wavefronts": 6.0, "conflicts": 7.0, "dram_bytes": 8.04e6, "shared_pipe": 9.06},
        },
        {"lsu": 10.0, "tensor": 20.0, "fma": 5.0},
        {"wait": 0.125, "barrier": 0.5},
        problem=(1, 2, 256),
    )
    expected = {
        **{"from": "v02", "kernel": "k", "seq": 256, "us": 12.3, "TFLOP/s": None, "cycles": 1, "registers": 2},
        **{"occupancy %": 3.0, "L2 hit %": 4.1, "DRAM MB": 8.0, "instructions": 5, "shared wavefronts": 6},
        **{"bank conflicts": 7, "L1 data pipe %": 9.1, "pipe tensor %": 20.0, "pipe lsu %": 10.0},
        **{"stall barrier": 0.5, "stall wait": 0.12},
    }
    assert profile.columns(one, 2) == expected
    shown = profile.table([one], 1, transpose=False)
    assert list(shown.columns) == [*list(expected)[:14], "pipe tensor %", "stall barrier"]
    assert [row[0] for row in profile.table([one], 1, transpose=True).rows] == list(shown.columns)[1:]
    assert profile.columns(replace(one, figures={"duration_ns": 1234.5e3}), 2)["us"] == 1234
    attention = profile.columns(profile.parse(RAW.read_text(), "h200")[1], 0)
    assert attention["TFLOP/s"] == pytest.approx(330.5, abs=0.1)


def test_ncu_is_run_and_its_output_kept(
    fake: FakeBin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.set("v02")
    fake.set("v03")
    monkeypatch.setenv("FAKE_TOOL", "0 " + DETAILS)
    folder = tmp_path / "kept"
    assert main(["profile", "--versions", "v02", "--seqs", "512", "--runs", "2", "--folder", str(folder), "--csv"]) == 0
    assert sorted(path.name for path in folder.iterdir()) == ["v02.fp16.512.1.csv", "v02.fp16.512.2.csv"]
    assert capsys.readouterr().out.splitlines()[1].startswith('v02,"(BF16, 128, 128, 64, 4)')
    (call, _) = fake.calls()
    assert "v03" not in "".join(fake.calls())
    assert "--profile --dtype fp16 --batch 16 --heads 16 --seq 512" in call


def test_no_gpu_is_77(fake: FakeBin, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.set("v02")
    monkeypatch.setenv("FAKE_TOOL", "77 nothing")
    assert main(["profile", "--versions", "v02"]) == 77
