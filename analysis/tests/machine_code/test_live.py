"""Live registers and occupancy."""

import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from analysis.__main__ import main
from analysis.errors import AnalysisError
from analysis.files import root
from analysis.ladder.config import parse_short_form
from analysis.machine_code import live, maps
from analysis.machine_code.cubin import Cubin
from analysis.machine_code.live import LiveLine, live_by_line, live_registers
from analysis.machine_code.liveness import count_live, registers_of
from analysis.machine_code.maps import MapRow
from analysis.machine_code.occupancy import occupancy, occupancy_of, register_steps
from analysis.machine_code.regions import Graph
from analysis.machine_code.sass import Instruction, Job, parse_listing
from analysis.tests.support.compiled import ARCHS, built, cubin, disassembly
from analysis.tests.support.kinds import some_in_check

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


def test_the_most_live_registers_are_told_with_the_first_address() -> None:
    counts = {0x00: {"GPR": 9}, 0x10: {"GPR": 4}, 0x20: {"GPR": 7, "PRED": 1}, 0x30: {"GPR": 7}, 0x40: {"GPR": 6}}
    parts = SimpleNamespace(loop=[Instruction(at, "", "MOV", "") for at in (0x10, 0x20, 0x30, 0x40)])
    found = live.LiveLoop(parts, 168, counts)  # type: ignore[arg-type]
    assert found.most() == (7, -0x20) and found.most("PRED") == (1, -0x20) and found.most("UGPR") == (0, -0x10)
    assert found.record() == {"at_entry": 4, "most": 7, "at": "0020", "allocated": 168}


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


@pytest.mark.parametrize("arch", some_in_check(ARCHS, ("sm_80", "sm_90a", "sm_120")))
@pytest.mark.parametrize("defines", some_in_check([(), ("-DPEELED",), ("-DPERSISTENT",)], [("-DPERSISTENT",)]))
def test_our_count_is_that_of_nvdisasm(arch: str, defines: tuple[str, ...]) -> None:
    """At every instruction of kernels with loops, copies and matrix instructions, wherever nvdisasm counts."""
    path = cubin("attention.cu", arch, *defines)
    kernel = next(each for each in Cubin.read(path).entries if "L5dtype5E" in each.symbol)
    text = disassembly(path, *live.LIVE_OPTIONS, "-c", "-fun", str(kernel.index))
    theirs = {at: counts["GPR"] for at, counts in live_registers(text, "f").items()}
    listing = next(each for each in parse_listing(text, "f") if each.symbol == kernel.symbol)
    ours = count_live(Graph(listing))
    assert len(ours) > 50
    assert ours == {at: theirs[at] for at in ours}


@pytest.mark.parametrize(
    ("text", "writes", "reads"),
    [
        ("HMMA.16816.F32 R4, R8.reuse, R12, RZ", "4 5 6 7", "8 9 10 11 12 13"),
        ("HMMA.1688.F32.TF32 R4, R8, R12, R4", "4 5 6 7", "4 5 6 7 8 9 10 11 12 13"),
        ("HMMA.16816.F16 R4, R8, R12, R4", "4 5", "4 5 8 9 10 11 12 13"),
        ("LDSM.16.MT88.4 R4, [R2+0x10]", "4 5 6 7", "2"),
        ("LDG.E.128 R4, desc[UR4][R2.64]", "4 5 6 7", "2 3"),
        ("LDG.E.SYS R6, [R2]", "6", "2 3"),
        ("LDS.64 R6, [R2.X4+UR5]", "6 7", "2"),
        ("STG.E.64 [R2.64+0x8], R10", "", "2 3 10 11"),
        ("LDGSTS.E.BYPASS.128 [R5+0x100], [R2.64]", "", "2 3 5"),
        ("IMAD.WIDE R4, P0, R3, c[0x0][0x198], R20", "4 5", "3 20 21"),
        ("ISETP.GE.AND P0, PT, R4, R5, PT", "", "4 5"),
        ("SHFL.BFLY PT, R5, R4, 0x1, 0x1f", "5", "4"),
        ("IADD3.X R7, P1, RZ, R8, UR4, P0, !PT", "7", "8"),
        ("CS2R R4, SRZ", "4 5", ""),
        ("CS2R.32 R4, SR_CLOCKLO", "4", ""),
        ("F2F.F64.F32 R4, R6", "4 5", "6"),
        ("DFMA R4, R6, R8, -R10", "4 5", "6 7 8 9 10 11"),
        ("UIADD3 UR4, UR5, 0x1, URZ", "", ""),
    ],
)
def test_registers_of_an_instruction(text: str, writes: str, reads: str) -> None:
    opcode, _, operands = text.partition(" ")
    found = registers_of(Instruction(0, "", opcode, operands))
    assert [sorted(each) for each in found] == [[int(word) for word in words.split()] for words in (writes, reads)]


def test_a_shape_that_is_not_known_is_refused() -> None:
    with pytest.raises(AnalysisError, match=r"HMMA\.16832\.F32 .*: the registers of its operands are not known"):
        registers_of(Instruction(0, "", "HMMA.16832.F32", "R24, R4, R8, R24"))


def test_a_predicated_write_ends_no_range_and_no_range_begins_before_a_write() -> None:
    lines = ["MOV R0, 0x1", "@P0 MOV R2, R0", "@!P0 MOV R2, 0x3", "STS [R2], R2", "EXIT"]
    text = "".join(f"        /*{16 * place:04x}*/  {line} ;\n" for place, line in enumerate(lines))
    counts = count_live(Graph(parse_listing("//------ .text.made -----\n" + text)[0]))
    assert counts == {0x00: 1, 0x10: 2, 0x20: 1, 0x30: 1, 0x40: 1}


def test_where_nvdisasm_analyses_no_data_flow_we_count(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As for the cubins of ptxas 11.8 to 12.9."""
    path = str(cubin("attention.cu"))
    assert main(["live", path, "--json"]) == 0
    theirs = json.loads(capsys.readouterr().out)
    original = Job.text

    def text(job: Job) -> str:
        printed = original(job)
        if "-lrm" in job.process.command:
            raise AnalysisError("nvdisasm: exit 1: Cannot print life ranges as flow analysis is disabled")
        return printed

    monkeypatch.setattr(Job, "text", text)
    assert main(["live", path, "--json"]) == 0
    said = capsys.readouterr()
    ours = json.loads(said.out)
    assert "nvdisasm does not analyse the data flow" in said.err
    assert {name: ours[name] for name in ("at_entry", "most", "at")} == {
        name: theirs[name] for name in ("at_entry", "most", "at")
    }
    assert main(["live", path]) == 0


def test_a_source_line_has_the_most_of_all_that_comes_from_it() -> None:
    """Also of what is inlined into it; addresses without a count, such as padding, are left out."""
    places = [("f.cu:9",), ("g.cuh:3", "f.cu:10"), ("g.cuh:3", "f.cu:10", "f.cu:10"), ("f.cu:9",), ("f.cu:11",)]
    rows = [MapRow(Instruction(16 * n, "", "MOV", ""), source, None) for n, source in enumerate(places)]
    live = {16 * n: {"GPR": count, "PRED": 1} for n, count in enumerate([5, 8, 8, 7])}
    assert live_by_line(rows, live, {0x00, 0x20}) == [
        LiveLine("f.cu:9", 7, 0x30, 5, 2),
        LiveLine("f.cu:10", 8, 0x10, 8, 2),
        LiveLine("g.cuh:3", 8, 0x10, 8, 2),
    ]
    assert [line.in_loop for line in live_by_line(rows, live, {0x00})] == [5, None, None]


def test_source_lines_of_a_compiled_kernel(capsys: pytest.CaptureFixture[str]) -> None:
    """As the map and nvdisasm's counts have them."""
    path = cubin("attention.cu")
    assert main(["live", str(path), "--lines", "--json"]) == 0
    lines = {row["line"]: row for row in json.loads(capsys.readouterr().out)["rows"]}
    assert main(["map", str(path), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert main(["live", str(path), "--json"]) == 0
    loop = {int(row["address"], 16) for row in json.loads(capsys.readouterr().out)["loop"]}
    kernel = next(each for each in Cubin.read(path).entries if "L5dtype5E" in each.symbol)
    counts = live_registers(disassembly(path, *live.LIVE_OPTIONS, "-c", "-fun", str(kernel.index)), "f")
    assert set(lines) == {place for row in rows for place in row["source"]}
    assert any(row["in the loop"] is None for row in lines.values())
    for place, line in lines.items():
        here = {row["address"]: counts[row["address"]]["GPR"] for row in rows if place in row["source"]}
        assert (line["live"], line["instructions"]) == (max(here.values()), len(here))
        assert here[int(line["at"], 16)] == line["live"]
        assert line["in the loop"] == max((count for at, count in here.items() if at in loop), default=None)
    assert main(["live", str(path), str(path), "--lines"]) == 2
    assert "--lines takes one version or file at a time" in capsys.readouterr().err


def test_a_source_line_shows_its_text(capsys: pytest.CaptureFixture[str]) -> None:
    built("v01", "sm_80")
    assert main(["live", "v01", "--lines", "--json"]) == 0
    rows = [
        row for row in json.loads(capsys.readouterr().out)["rows"] if row["line"].startswith("kernels/mma_sync/v01")
    ]
    source = next((root() / "kernels").glob("*/v01_*.cu")).read_text(encoding="utf-8").splitlines()
    assert len(rows) > 30
    for row in rows:
        assert row["source"] == source[int(row["line"].rpartition(":")[2]) - 1].strip()[:60]


def test_a_listing_is_refused(tmp_path: object, capsys: pytest.CaptureFixture[str]) -> None:
    file = f"{tmp_path}/x.sass"
    assert main(["sass", str(cubin("attention.cu")), "-o", file]) == 0
    assert main(["live", file]) == 2
    assert "live registers needs a cubin, this is a listing" in capsys.readouterr().err


def test_several_subjects_are_set_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    paths = [str(cubin("attention.cu", arch)) for arch in ("sm_80", "sm_90")]
    assert main(["live", *paths, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["arch"] for row in rows] == ["sm_80", "sm_90"]
    assert [row["allocated"] for row in rows] == [32, 32]


@pytest.mark.parametrize("command", [["map"], ["live", "--lines"], ["map", "--html"]], ids=" ".join)
def test_code_that_is_older_than_its_source_is_noted(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Lines shown from the file would be others than those that were compiled."""
    path = tmp_path / "some.cubin"
    path.write_bytes(cubin("attention.cu").read_bytes())
    (tmp_path / "attention.cu").write_text("// changed\n")
    written = (tmp_path / "attention.cu").stat().st_mtime
    monkeypatch.setattr(maps, "root", lambda: tmp_path)
    told = f"note: {path}: older than attention.cu: its lines may be others by now; build it again"
    for seconds, noted in ((10, False), (-10, True)):
        os.utime(path, (written + seconds, written + seconds))
        assert main([command[0], str(path), *command[1:]]) == 0
        assert (told in capsys.readouterr().err) == noted
