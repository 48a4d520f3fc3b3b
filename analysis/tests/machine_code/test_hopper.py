"""Machine code of sm_90a: what each instruction reads and writes, and the loops of warps with roles."""

import csv
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from analysis.__main__ import main
from analysis.machine_code import bounds
from analysis.machine_code.live import LIVE_OPTIONS, live_in, live_registers
from analysis.machine_code.liveness import count_live
from analysis.machine_code.loops import loops_of
from analysis.machine_code.regions import Graph, split_at
from analysis.machine_code.sass import Listing, parse_listing
from analysis.machine_code.warp_roles import roles_in
from analysis.machine_code.wgmma_rates import read_rates
from analysis.tests.support.compiled import assembled, cubin, disassembly, listing
from analysis.tests.support.hopper import every_wgmma, life_ranges, other_operands


def shapes() -> Path:
    return assembled("shapes", every_wgmma())


def pipeline(*defines: str) -> Path:
    return cubin("pipeline.cu", "sm_90a", *defines)


def code(*defines: str) -> Listing:
    return listing(pipeline(*defines), "pipeline")


def test_registers_of_every_wgmma_are_those_of_nvdisasm() -> None:
    """Products of all types, from registers and from shared memory, dense and sparse."""
    texts = [text for text, _ in life_ranges(shapes())]
    assert Counter(text.split(".")[0] for text in texts if "GMMA" in text) == {"HGMMA": 48, "QGMMA": 24, "IGMMA": 24,
                                                                               "BGMMA": 6}  # fmt: skip
    assert list(other_operands(shapes())) == []


@pytest.mark.parametrize(
    ("source", "arch"), [("attention.cu", "sm_90"), ("plain.cu", "sm_90a"), ("plain.cu", "sm_120")]
)
def test_registers_of_other_kernels_are_those_of_nvdisasm(source: str, arch: str) -> None:
    """From sm_90 on the text names all of them; on sm_80 the uniform ones of a memory descriptor are hidden."""
    assert list(other_operands(cubin(source, arch))) == []


def roles(*defines: str) -> dict[str, int]:
    """Role of a loop to its matrix instructions, and for producers to the copies that it starts."""
    graph = Graph(code(*defines))
    found = {}
    for each in loops_of(graph):
        bases = Counter(at.base for at in graph.instructions(each.loop.blocks))
        found[each.role or ""] = bases["UTMALDG"] if each.produces else bases["HGMMA"]
    return found


def test_loops_are_named_by_role() -> None:
    """nvcc repeats the producer's loop four times and adds one for what is left over."""
    assert roles() == {"consumer": 6, "producer 1": 4, "producer 2": 1}
    assert roles("-DCOPIES") == {"consumer 1": 6, "consumer 2": 6, "producer 1": 4, "producer 2": 1}
    assert roles("-DPERSISTENT", "-DSLOW") == {"consumer": 6, "producer": 4}


@pytest.mark.parametrize("defines", [(), ("-DCOPIES",), ("-DPERSISTENT", "-DSLOW")], ids=" ".join)
def test_live_registers_are_those_of_nvdisasm(defines: tuple[str, ...]) -> None:
    """If it gives up, we count, including the accumulators of an unfinished wgmma."""
    graph = Graph(code(*defines))
    theirs = live_registers(disassembly(pipeline(*defines), *LIVE_OPTIONS, "-c"), "f")
    assert count_live(graph) == {at.address: theirs[at.address]["GPR"] for at in graph.code}


def test_each_role_has_the_limit_of_its_setmaxnreg(capsys: pytest.CaptureFixture[str]) -> None:
    path = pipeline("-DKEEP=120")
    assert main(["live", str(path), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    entry, consumer, producer = record["roles"]
    assert [each["role"] for each in record["roles"]] == ["before setmaxnreg", "consumer", "producer"]
    assert (entry["limit"], consumer["limit"], producer["limit"]) == (record["allocated"], 120, 24)
    assert record["most"] == consumer["most live"] > producer["most live"]
    assert not any(each["note"] for each in record["roles"])
    assert sum(each["instructions"] for each in record["roles"]) == len(code("-DKEEP=120").body)
    assert main(["live", str(path)]) == 0
    out = capsys.readouterr().out
    assert f"allocated: {record['allocated']} at entry, 120 here" in out
    assert re.search(r"producer +24 ", out)


def test_registers_over_the_limit_are_a_finding() -> None:
    lines = ["@P0 BRA `(.L_x_0)", "USETMAXREG.DEALLOC.CTAPOOL 0x18", "UTMALDG.2D [UR8], [UR4]", "MOV R24, 0x1",
             "EXIT", "USETMAXREG.TRY_ALLOC.CTAPOOL UP0, 0xf0", "@!UP0 BRA `(.L_x_0)",
             "HGMMA.64x64x16.F32 R24, gdesc[UR4], R24", "EXIT"]  # fmt: skip
    text = "".join(f"        /*{16 * index:04x}*/  {line} ;\n" for index, line in enumerate(lines))
    text = text.replace("        /*0050*/", ".L_x_0:\n        /*0050*/")
    graph = Graph(parse_listing("//------ .text.made -----\n" + text)[0])
    live = {at.address: {"GPR": 20} for at in graph.code}
    live[0x80] = {"GPR": 250}
    found = [live_in(role, live, 168) for role in roles_in(graph)]
    assert [(each.role.name, each.limit, each.most, each.role.highest, each.over) for each in found] == [
        ("before setmaxnreg", 168, 20, None, 0),
        ("producer", 24, 20, 24, 1),
        ("consumer", 240, 250, 55, 10),
    ]
    assert found[1].cells()[-1] == "1 over the limit"


RECORD: dict[str, Any] = {
    "device": {"name": "made up", "cc": "9.0"},
    "wgmma": [
        {"n": 64, "k": 16, "a": "smem", "companion": "", "cycles": 34},
        {"n": 64, "k": 16, "a": "registers", "companion": "", "cycles": 33.5},
        {"n": 64, "k": 16, "a": "smem", "companion": "FFMA", "cycles": 36.5, "companion_cycles": 2.25},
    ],
}


def bound_lines(capsys: pytest.CaptureFixture[str]) -> dict[str, list[str]]:
    assert main(["bound", str(pipeline()), "--csv"]) == 0
    return {row[0]: row for row in csv.reader(capsys.readouterr().out.splitlines())}


def test_bounds_take_the_least_measured_cycles(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Six wgmma of 32 columns, where 64 were measured: half as many cycles each."""
    (tmp_path / "logs/bench").mkdir(parents=True)
    (tmp_path / "logs/bench/wgmma.made_up.json").write_text(json.dumps(RECORD))
    monkeypatch.setattr(bounds, "root", lambda: tmp_path)
    rows = bound_lines(capsys)
    assert float(rows["tensor"][2]) == 100.5 == 6 * 33.5 / 2
    assert rows["tensor"][-1] == "binds"
    assert rows["fma"][-1] == "overlaps wgmma; with FFMA wgmma takes 36.5 cycles, not 34, FFMA takes 2.25"
    assert rows["xu"][-1] == "overlaps wgmma"
    assert read_rates(tmp_path, "sm_100a") is None
    rates = read_rates(tmp_path, "sm_90a")
    assert rates is not None
    assert (rates.cycles(128, 16), rates.cycles(64, 8), rates.with_companion("MUFU.EX2")) == (None, None, None)


def test_a_wait_for_wgmma_names_the_group_that_it_waits_for() -> None:
    """`gsb0, 0x1` lets the last group continue, so that it waits for the one before."""
    lines = ["HGMMA.64x8x16.F32 R24, gdesc[UR4], R24, gsb0", "FADD R1, R2, R3",
             "HGMMA.64x8x16.F32 R28, gdesc[UR4], R28, gsb0", "WARPGROUP.DEPBAR.LE gsb0, 0x1",
             "WARPGROUP.DEPBAR.LE gsb0, 0x0", "BRA `(.L_x_0)"]  # fmt: skip
    text = "".join(f"        /*{16 * at:04x}*/  B------:R-:W-:-:S02  {line} ;\n" for at, line in enumerate(lines))
    listed = parse_listing("//------ .text.made -----\n.L_x_0:\n" + text)[0]
    graph = Graph(listed)
    waits = [wait for wait in bounds.waits_of(split_at(graph, graph.nest[0])) if wait.kind == "group"]
    assert [(wait.waiter.address, wait.setter and wait.setter.address, wait.matrix) for wait in waits] == [
        (0x30, 0x00, 1),
        (0x40, 0x20, 0),
    ]
    assert {wait.scoreboard for wait in waits} == {"gsb0"}
