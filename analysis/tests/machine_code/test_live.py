"""Live registers and occupancy."""

import json

import pytest

from analysis.__main__ import main
from analysis.errors import AnalysisError
from analysis.ladder.config import parse_short_form
from analysis.machine_code.cubin import Cubin
from analysis.machine_code.live import live_registers, occupancy, occupancy_of, register_steps
from analysis.tests.support.compiled import ARCHS, cubin

BIG = parse_short_form("(FP16, 128, 128, 64, 4): async+eager+swizzled+load_2_2_2_tiles+opt_softmax")
SMALL = parse_short_form("(FP16, 128, 64, 64, 4): async+load_0_0_0_tiles")

LISTING = """
                            // +-------+--------+--------+
                            // | GPR   | PRED   | UGPR   |
                            // |   #   |   #    |   #    |
        /*0000*/    MOV R1, RZ ;   // |   1   |        |   2    |
.L_x_0:                     // |   3   |        |        |
        /*0010*/    MOV R2, RZ ;   // |  12   |   1    |        |
"""


def test_columns() -> None:
    assert live_registers(LISTING, "f") == {
        0x00: {"GPR": 1, "PRED": 0, "UGPR": 2},
        0x10: {"GPR": 12, "PRED": 1, "UGPR": 0},
    }
    with pytest.raises(AnalysisError, match="f: no column of live registers"):
        live_registers("        /*0000*/ MOV R1, RZ ;\n", "f")
    with pytest.raises(AnalysisError, match="f:5: live registers not understood"):
        live_registers(LISTING.replace("|   1   |        |   2    |", "|   x   |        |   2    |"), "f")


@pytest.mark.parametrize(
    ("arch", "registers", "config", "ctas", "limit"),
    [
        ("sm_80", 255, BIG, 2, "registers"),  # published: two CTAs of 64 KiB on an A100, one on an RTX 3090
        ("sm_86", 255, BIG, 1, "shared memory"),
        ("sm_90", 255, BIG, 2, "registers"),
        ("sm_80", 168, SMALL, 3, "registers"),
        ("sm_80", 169, SMALL, 2, "registers"),
        ("sm_80", 128, SMALL, 3, "shared memory"),
        ("sm_90", 128, SMALL, 4, "registers"),
        ("sm_90a", 32, SMALL, 4, "shared memory"),
    ],
)
def test_occupancy(arch: str, registers: int, config: object, ctas: int, limit: str) -> None:
    found = occupancy_of(arch, registers, config)  # type: ignore[arg-type]
    assert (found.ctas, found.limit) == (ctas, limit)


def test_occupancy_by_warps() -> None:
    assert occupancy("sm_80", 16, 1024, 0).ctas == 2
    assert occupancy("sm_86", 16, 1024, 0).ctas == 1
    with pytest.raises(AnalysisError, match="sm_70: occupancy is known for"):
        occupancy("sm_70", 16, 1024, 0)


# KiB that an SM gives to CTAs ("Compute Capabilities" of the CUDA C++ Programming Guide); each CTA takes 1 KiB more.
@pytest.mark.parametrize(
    ("arch", "kib"),
    [("sm_80", 164), ("sm_86", 100), ("sm_89", 100), ("sm_90", 228), ("sm_100", 228), ("sm_120", 100)],
)
def test_shared_memory_of_an_sm(arch: str, kib: int) -> None:
    half = kib * 512 - 1024
    assert occupancy(arch, 32, 32, half).by_smem == 2
    assert occupancy(arch, 32, 32, half + 1).by_smem == 1


def test_the_registers_of_a_warp_come_from_one_sub_partition() -> None:
    """192 registers: each of four sub-partitions has room for 2⅔ warps, so the SM holds 8, not 10."""
    assert occupancy("sm_90", 192, 64, 0).by_registers == 4


def test_register_steps() -> None:
    steps = dict(register_steps(128))
    assert (steps[2], steps[3], steps[4], steps[5]) == (255, 168, 128, 96)
    assert dict(register_steps(256))[1] == 255


@pytest.mark.parametrize("arch", ARCHS)
def test_command_on_a_compiled_kernel(arch: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = cubin("attention.cu", arch)
    assert main(["live", str(path), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    kernel = next(each for each in Cubin.read(path).entries if "L5dtype5E" in each.symbol)
    assert record["allocated"] == kernel.registers
    assert 16 <= record["most"] <= record["allocated"]
    assert record["most"] == max(row["GPR"] for row in record["loop"])


def test_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["live", str(cubin("attention.cu"))]) == 0
    out = capsys.readouterr().out
    assert "most live registers in the loop:" in out
    assert "3 CTAs per SM on sm_80, limited by shared memory" in out


def test_a_listing_is_refused(tmp_path: object, capsys: pytest.CaptureFixture[str]) -> None:
    file = f"{tmp_path}/x.sass"
    assert main(["sass", str(cubin("attention.cu")), "-o", file]) == 0
    assert main(["live", file]) == 2
    assert "live registers needs a cubin, this is a listing" in capsys.readouterr().err


def test_several_subjects_are_set_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    paths = [str(cubin("attention.cu", arch)) for arch in ("sm_80", "sm_90")]
    assert main(["live", *paths, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["arch"] for row in rows] == ["sm_80", "sm_90"]
    assert [row["allocated"] for row in rows] == [32, 32]
