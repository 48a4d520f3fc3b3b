"""Machine code of sm_100a and sm_120a: operands, the loops and warps of each role, and bounds of tcgen05.mma."""

import csv
import json
import re
from collections import Counter
from pathlib import Path

import pytest

from analysis.__main__ import main
from analysis.machine_code.liveness import count_live
from analysis.machine_code.loops import loops_of
from analysis.machine_code.losses import losses
from analysis.machine_code.opcodes import TENSOR_MEMORY
from analysis.machine_code.ptxas_log import read_log
from analysis.machine_code.regions import Graph
from analysis.machine_code.sass import Instruction, parse_listing
from analysis.machine_code.tcgen05 import constant_in, mma_cycles
from analysis.tests.support.blackwell import every_tcgen05, every_warp_product
from analysis.tests.support.compiled import assembled, cubin, listing
from analysis.tests.support.hopper import life_ranges, other_operands


def kernel(*defines: str) -> Path:
    return cubin("tcgen05.cu", "sm_100a", *defines)


def bound_rows(capsys: pytest.CaptureFixture[str], path: Path, *options: str) -> dict[str, list[str]]:
    assert main(["bound", str(path), "--csv", *options]) == 0
    return {row[0]: row for row in csv.reader(capsys.readouterr().out.splitlines())}


def test_registers_of_every_form_of_tcgen05_are_those_of_nvdisasm() -> None:
    path = assembled("forms", every_tcgen05(), "sm_103a")
    counted = Counter(text.split()[0].split(".")[0] for text, _ in life_ranges(path) if "TM" in text or "UTC" in text)
    assert (counted["UTCHMMA"], counted["UTCQMMA"], counted["UTCOMMA"], counted["UTCCP"]) == (13, 8, 4, 12)
    assert counted["LDTM"] > counted["STTM"] > 36
    assert list(other_operands(path)) == []
    assert listing(path, "forms").unknown == {}


def test_registers_of_products_of_sm_120a_are_those_of_nvdisasm() -> None:
    path = assembled("forms", every_warp_product(), "sm_120a")
    counted = Counter(text.split(".")[0] for text, _ in life_ranges(path) if "MMA" in text)
    assert counted == {"QMMA": 6, "OMMA": 3}
    assert list(other_operands(path)) == []


def test_loops_and_counts_are_named_by_role(capsys: pytest.CaptureFixture[str]) -> None:
    loops = loops_of(Graph(listing(kernel(), "_Z7tcgen05")))
    assert {each.role: each.multiplies for each in loops} == {"mma": True, "producer": False, "reader": False}
    for role, opcode, times in (("mma", "UTCHMMA", 4), ("producer", "UTMALDG", 1), ("reader", "LDTM", 1)):
        assert main(["loop", str(kernel()), "--loop", role, "--json"]) == 0
        rows = {row["opcode"]: row["loop"] for row in json.loads(capsys.readouterr().out)["rows"]}
        assert rows[opcode] == times
    assert main(["loop", str(kernel()), "--nest"]) == 0
    assert "matrix loop" in capsys.readouterr().out
    assert main(["map", str(kernel())]) == 0
    assert any("UTCHMMA" in line and "tcgen05.cu" in line for line in capsys.readouterr().out.splitlines())


def test_live_registers_are_those_of_nvdisasm(capsys: pytest.CaptureFixture[str]) -> None:
    graph = Graph(listing(kernel(), "_Z7tcgen05"))
    assert main(["live", str(kernel()), "--loop", "reader", "--json"]) == 0
    theirs = {int(at["address"], 16): at["GPR"] for at in json.loads(capsys.readouterr().out)["loop"]}
    ours = count_live(graph)
    assert {at: ours[at] for at in theirs} == theirs


def test_advisories_of_sm_100a_are_losses() -> None:
    text = every_tcgen05("sm_100a").partition("tcgen05.alloc")[0] + "setmaxnreg.dec.sync.aligned.u32 40;\nret;\n}\n"
    log = assembled("lost", text, "sm_100a").with_suffix(".log")
    assert [note.code for note in losses(read_log(log))] == ["C7508"]


def test_every_tool_reads_sm_120a(capsys: pytest.CaptureFixture[str]) -> None:
    path = cubin("warp_product.cu", "sm_120a")
    printed = {}
    for command in ("counts", "loop", "map", "live", "bound"):
        assert main([command, str(path)]) == 0
        printed[command] = capsys.readouterr().out
    assert re.search(r"^OMMA +1 +0 +1 +0$", printed["counts"], re.MULTILINE)
    assert re.search(r"^OMMA +1$", printed["loop"], re.MULTILINE)
    assert re.search(r"^warp_product.cu:\d+ .*mma\.sync.*OMMA\.SF", printed["map"], re.MULTILINE)
    assert re.search(r" OMMA\.SF", printed["live"]) and "most live registers in the loop: " in printed["live"]
    assert re.search(r"^tensor +1 +16 ", printed["bound"], re.MULTILINE)
    assert losses(read_log(assembled("forms", every_warp_product(), "sm_120a").with_suffix(".log"))) == []


@pytest.mark.parametrize(("defines", "cycles"), [((), 32), (("-DPAIR",), 32)], ids=["one CTA", "two CTAs"])
def test_tensor_cores_bind_at_the_published_rate(
    defines: tuple[str, ...], cycles: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """128 x 64 x 16 multiply-adds, 4,096 a cycle and SM; two CTAs multiply 256 rows on two SMs."""
    rows = bound_rows(capsys, kernel(*defines))
    assert rows["tensor"][1:3] == ["4", str(4 * cycles)]
    assert rows["tensor"][-1] == "binds"
    assert rows["uniform"][-1] == "overlaps tcgen05.mma"


def test_a_shape_that_the_code_does_not_show_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    rows = bound_rows(capsys, kernel("-DUNKNOWN"))
    assert rows["tensor"][2:] == ["", "", "the shape of a tcgen05.mma is not a constant here"]
    assert rows["stalls of one warp"][-1].endswith("the shape of tcgen05.mma is not constant")
    rows = bound_rows(capsys, kernel(), "--loop", "reader")
    assert rows["tmem"][2:] == ["", "", "width not known: nobody published that of sm_100a"]


def test_a_descriptor_is_constant_only_if_every_path_says_the_same() -> None:
    """A move that may not be executed, another value on one path, and the second register of a pair."""

    def at_end(*lines: str) -> tuple[int | None, float | None]:
        code = [*lines, "UTCHMMA gdesc[UR8], gdesc[UR8], tmem[UR4], tmem[UR6], idesc[UR7], UPT", "EXIT"]
        text = "".join(f"        /*{16 * at:04x}*/  {line} ;\n" for at, line in enumerate(code))
        text = text.replace(f"        /*{16 * len(lines):04x}*/", f".L_x_0:\n        /*{16 * len(lines):04x}*/")
        graph = Graph(parse_listing("//------ .text.made -----\n" + text)[0])
        product = next(at for at in graph.code if at.base in TENSOR_MEMORY)
        return constant_in(graph, product, 7), mma_cycles(graph, product)

    assert at_end("UMOV UR7, 0x8100010", "UMOV UR6, 0x0") == (0x8100010, 128 * 64 / 256)
    assert at_end("UMOV UR7, 0x8100010", "@P0 BRA `(.L_x_0)", "UMOV UR7, 0x8100010")[0] == 0x8100010
    assert at_end("UMOV UR7, 0x8100010", "@P0 BRA `(.L_x_0)", "UMOV UR7, 0x8200010") == (None, None)
    assert at_end("UMOV UR7, 0x8100010", "@UP0 UMOV UR7, 0x8200010")[0] is None
    assert at_end("UMOV UR7, 0x8100010", "LDCU.64 UR6, c[0x0][0x380]")[0] is None
    assert at_end("UMOV UR6, 0x0")[0] is None
    without = Instruction(0, "", "UTCHMMA", "gdesc[UR8], gdesc[UR8], tmem[UR4]")
    assert mma_cycles(Graph(listing(kernel(), "_Z7tcgen05")), without) is None
