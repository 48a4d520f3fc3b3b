"""Live registers and occupancy."""

import json

import pytest

from analysis.__main__ import main
from analysis.errors import AnalysisError
from analysis.ladder.config import parse_short_form
from analysis.machine_code import live
from analysis.machine_code.cubin import Cubin
from analysis.machine_code.live import live_registers
from analysis.machine_code.liveness import count_live, registers_of
from analysis.machine_code.occupancy import occupancy, occupancy_of
from analysis.machine_code.regions import Graph
from analysis.machine_code.sass import Instruction, parse_listing
from analysis.tests.support.compiled import ARCHS, cubin, disassembly
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
        ("sm_80", 255, BIG, 2, "registers"),
        ("sm_90", 255, BIG, 2, "registers"),
        ("sm_80", 169, SMALL, 2, "registers"),
        ("sm_90", 128, SMALL, 4, "registers"),
    ],
)
def test_occupancy(arch: str, registers: int, config: object, ctas: int, limit: str) -> None:
    found = occupancy_of(arch, registers, config)  # type: ignore[arg-type]
    assert (found.ctas, found.limit) == (ctas, limit)


@pytest.mark.parametrize(("arch", "kib"), [("sm_80", 164), ("sm_86", 100), ("sm_90", 228), ("sm_120", 100)])
def test_shared_memory_of_an_sm(arch: str, kib: int) -> None:
    half = kib * 512 - 1024
    assert [occupancy(arch, 32, 32, taken).by_smem for taken in (half, half + 1)] == [2, 1]


@pytest.mark.parametrize("arch", ARCHS)
def test_command_on_a_compiled_kernel(arch: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = cubin("attention.cu", arch)
    assert main(["live", str(path), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    kernel = next(each for each in Cubin.read(path).entries if "L5dtype5E" in each.symbol)
    assert record["allocated"] == kernel.registers
    assert 16 <= record["most"] <= record["allocated"]
    assert record["most"] == max(row["GPR"] for row in record["loop"])


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
        ("HMMA.16816.F16 R4, R8, R12, R4", "4 5", "4 5 8 9 10 11 12 13"),
        ("LDSM.16.MT88.4 R4, [R2+0x10]", "4 5 6 7", "2"),
        ("LDG.E.SYS R6, [R2]", "6", "2 3"),
        ("LDGSTS.E.BYPASS.128 [R5+0x100], [R2.64]", "", "2 3 5"),
        ("IMAD.WIDE R4, P0, R3, c[0x0][0x198], R20", "4 5", "3 20 21"),
        ("IADD3.X R7, P1, RZ, R8, UR4, P0, !PT", "7", "8"),
        ("F2F.F64.F32 R4, R6", "4 5", "6"),
    ],
)
def test_registers_of_an_instruction(text: str, writes: str, reads: str) -> None:
    opcode, _, operands = text.partition(" ")
    found = registers_of(Instruction(0, "", opcode, operands))
    assert [sorted(each) for each in found] == [[int(word) for word in words.split()] for words in (writes, reads)]


def test_a_predicated_write_ends_no_range_and_no_range_begins_before_a_write() -> None:
    lines = ["MOV R0, 0x1", "@P0 MOV R2, R0", "@!P0 MOV R2, 0x3", "STS [R2], R2", "EXIT"]
    text = "".join(f"        /*{16 * index:04x}*/  {line} ;\n" for index, line in enumerate(lines))
    counts = count_live(Graph(parse_listing("//------ .text.made -----\n" + text)[0]))
    assert counts == {0x00: 1, 0x10: 2, 0x20: 1, 0x30: 1, 0x40: 1}
