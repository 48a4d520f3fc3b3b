"""Machine code of sm_90a: what each instruction reads and writes, and the loops of warps with roles."""

import csv
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from analysis.__main__ import main
from analysis.errors import DAMAGED, AnalysisError
from analysis.machine_code import bounds
from analysis.machine_code.control import inconsistencies
from analysis.machine_code.live import LIVE_OPTIONS, live_in, live_registers
from analysis.machine_code.liveness import count_live, registers_of
from analysis.machine_code.loops import find, loops_of, nest_table, parts_of, passes_of
from analysis.machine_code.opcodes import pipe_of
from analysis.machine_code.regions import OTHER_COPIES, PRODUCER, Graph, matrix_work, split_at
from analysis.machine_code.sass import Instruction, Listing, parse_listing
from analysis.machine_code.warp_roles import limit_of, roles_in
from analysis.machine_code.wgmma_rates import parse_rates, read_rates
from analysis.tests.support.compiled import (
    SOURCES,
    assembled,
    cubin,
    disassembly,
    listing,
    listings,
    misread_opcodes,
)
from analysis.tests.support.hopper import every_wgmma, instruction, life_ranges, other_operands
from analysis.tests.support.kinds import some_in_check


def shapes() -> Path:
    return assembled("shapes", every_wgmma())


def copies() -> Path:
    return assembled("copies", (SOURCES / "hopper.ptx").read_text(encoding="utf-8"))


def pipeline(*defines: str) -> Path:
    return cubin("pipeline.cu", "sm_90a", *defines)


def code(*defines: str) -> Listing:
    return listing(pipeline(*defines), "pipeline")


# ---- operands --------------------------------------------------------------------------------------------------------


def test_registers_of_every_wgmma_are_those_of_nvdisasm() -> None:
    """Of all types, from registers and from shared memory, dense and sparse."""
    texts = [text for text, _ in life_ranges(shapes())]
    assert Counter(text.split(".")[0] for text in texts if "GMMA" in text) == {"HGMMA": 48, "QGMMA": 24, "IGMMA": 24,
                                                                               "BGMMA": 6}  # fmt: skip
    assert list(other_operands(shapes())) == []


def test_registers_of_copies_and_barriers_are_those_of_nvdisasm() -> None:
    bases = {instruction(text).base for text, _ in life_ranges(copies())}
    assert {"UTMALDG", "UTMASTG", "UTMAREDG", "UTMAPF", "UBLKCP", "UBLKRED", "SYNCS", "STAS", "ELECT", "STSM"} <= bases
    assert {"R2UR", "UTMACMDFLUSH", "UCGABAR_ARV", "REDUX", "BAR", "FENCE"} <= bases
    assert list(other_operands(copies())) == []


@pytest.mark.parametrize(
    "defines", some_in_check([(), ("-DUNROLL=2",), ("-DCOPIES",), ("-DPERSISTENT", "-DSLOW")], [()])
)
def test_registers_of_a_pipeline_are_those_of_nvdisasm(defines: tuple[str, ...]) -> None:
    assert list(other_operands(pipeline(*defines))) == []


@pytest.mark.parametrize(
    ("source", "arch"), [("attention.cu", "sm_90"), ("plain.cu", "sm_90a"), ("plain.cu", "sm_120")]
)
def test_registers_of_other_kernels_are_those_of_nvdisasm(source: str, arch: str) -> None:
    """From sm_90 on the text names all of them; on sm_80 the uniform ones of a memory descriptor are hidden."""
    assert list(other_operands(cubin(source, arch))) == []


@pytest.mark.parametrize(
    ("text", "writes", "reads"),
    [
        ("HGMMA.64x128x16.F32 R24, gdesc[UR8], RZ, !UPT", range(24, 88), []),
        ("HGMMA.64x8x16.F32.BF16 R24, R8, gdesc[UR20].tnspB, R24, UP0, gsb0", range(24, 28),
         [*range(8, 12), *range(24, 28)]),
        ("HGMMA.64x256x16.F16 R24, gdesc[UR4], R24", range(24, 88), range(24, 88)),
        ("UTMALDG.5D [UR8], [UR4], desc[UR24]", [], []),
        ("UTMASTG.2D [UR8], [UR4]", [], []),
        ("SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [R3+URZ+0x8], R2", [], [2, 3]),
    ],
)  # fmt: skip
def test_registers_of_an_instruction(text: str, writes: Iterable[int], reads: Iterable[int]) -> None:
    """So many of D, four of A; none of a descriptor and of a copy's coordinates, which are uniform registers."""
    at = instruction(text)
    assert registers_of(at) == (frozenset(writes), frozenset(reads))


def test_a_wgmma_of_another_form_is_refused() -> None:
    with pytest.raises(AnalysisError, match=r"'HGMMA\.128x8x16\.F32 R4, .*': the registers of its operands are not"):
        registers_of(instruction("HGMMA.128x8x16.F32 R4, gdesc[UR4], R4"))


@pytest.mark.parametrize("made", [shapes, copies, pipeline], ids=lambda each: each.__name__)
def test_listings_and_control_codes(made: Callable[[], Path]) -> None:
    file = made()
    assert misread_opcodes(file, listings(file)) == []
    for each in listings(file).values():
        assert each.unknown == {}
        assert inconsistencies(Graph(each)) == []
        assert all(pipe_of(at.base) == "tensor" for at in each.body if "GMMA" in at.base)


# ---- loops -----------------------------------------------------------------------------------------------------------


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
    assert roles("-DUNROLL=2") == {"consumer": 12, "producer 1": 4, "producer 2": 1}
    assert roles("-DCOPIES") == {"consumer 1": 6, "consumer 2": 6, "producer 1": 4, "producer 2": 1}
    assert roles("-DPERSISTENT", "-DSLOW") == {"consumer": 6, "producer": 4}


def test_a_slow_path_of_mma_sync_does_not_hide_the_loop_of_wgmma() -> None:
    """Its loop stands inside, with matrix instructions of its own."""
    graph = Graph(code("-DPERSISTENT", "-DSLOW"))
    parts = parts_of(graph.listing)
    assert parts.matrix_count == 6
    assert Counter(at.base for at in graph.instructions(parts.kv.blocks))["HMMA"] == 1
    what = [row[-1] for row in nest_table(graph).rows]
    assert "multiplies by mma.sync" in what
    assert "around consumer" in what
    assert what.count("waits for registers") == 1
    assert (what.count("repeats for other lanes"), what.count("waits")) == (7, 8)


def test_each_role_has_its_region() -> None:
    listed = code("-DCOPIES")
    parts = parts_of(listed)
    assert sum(len(code) for code in parts.regions.values()) == len(listed.body)
    found = {name: Counter(at.base for at in code) for name, code in parts.regions.items()}
    assert {name: bases["UTMALDG"] for name, bases in found.items() if bases["UTMALDG"]} == {PRODUCER: 5}
    assert {name: bases["HGMMA"] for name, bases in found.items() if bases["HGMMA"]} == {"loop": 6, OTHER_COPIES: 6}
    of_producer = parts_of(listed, "producer 1")
    assert sum(at.base == "UTMALDG" for at in of_producer.loop) == 4


def test_a_loop_is_chosen_by_role() -> None:
    loops = loops_of(Graph(code("-DCOPIES")))
    assert find(loops, "consumer 2", "x").number == 2
    with pytest.raises(AnalysisError, match=r"no such loop; it has loop 1 \(consumer 1\) at .*\(producer 1\)"):
        find(loops, "producer", "x")


def test_counts_are_for_each_wgmma(capsys: pytest.CaptureFixture[str]) -> None:
    """Not for those of the slow path."""
    assert main(["loop", str(pipeline("-DPERSISTENT", "-DSLOW")), "--per-hmma", "--csv"]) == 0
    said = capsys.readouterr()
    rows = dict(line.split(",") for line in said.out.splitlines()[1:])
    assert float(rows["HGMMA"]) == 1.0
    assert float(rows["MUFU.EX2"]) == 8 / 6
    assert "loop 1 (consumer) of 2 at " in said.err
    assert "the one that multiplies; --loop takes another: loop 2 (producer)" in said.err


# ---- registers by role -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("defines", [(), ("-DCOPIES",), ("-DPERSISTENT", "-DSLOW")], ids=" ".join)
def test_live_registers_are_those_of_nvdisasm(defines: tuple[str, ...]) -> None:
    """Where it gives up, we count: the accumulators of an unfinished wgmma too."""
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
    text = "".join(f"        /*{16 * place:04x}*/  {line} ;\n" for place, line in enumerate(lines))
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


def test_a_kernel_without_setmaxnreg_has_no_roles() -> None:
    assert roles_in(Graph(listing(cubin("attention.cu", "sm_90a")))) == []


# ---- bounds ----------------------------------------------------------------------------------------------------------

RECORD: dict[str, Any] = {
    "device": {"name": "made up", "cc": "9.0"},
    "wgmma": [
        {"n": 64, "k": 16, "a": "smem", "beside": "", "cycles": 34},
        {"n": 64, "k": 16, "a": "registers", "beside": "", "cycles": 33.5},
        {"n": 64, "k": 16, "a": "smem", "beside": "FFMA", "cycles": 36.5, "beside_cycles": 2.25},
    ],
}


def bound_lines(capsys: pytest.CaptureFixture[str]) -> dict[str, list[str]]:
    assert main(["bound", str(pipeline()), "--csv"]) == 0
    return {row[0]: row for row in csv.reader(capsys.readouterr().out.splitlines())}


def test_without_a_record_the_rate_of_wgmma_is_not_measured(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(bounds, "root", lambda: tmp_path)
    rows = bound_lines(capsys)
    assert rows["tensor"][2:] == ["", "", "rate of wgmma not measured"]
    assert rows["stalls of one warp"][-1] == "which pipe binds is not known: the rate of wgmma is not measured"
    assert rows["xu"][-1] == rows["fma"][-1] == "beside wgmma"


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
    assert rows["fma"][-1] == "beside wgmma; with FFMA wgmma takes 36.5 cycles, not 34, FFMA takes 2.25"
    assert rows["xu"][-1] == "beside wgmma"
    assert read_rates(tmp_path, "sm_100a") is None
    rates = read_rates(tmp_path, "sm_90a")
    assert rates is not None
    assert (rates.cycles(128, 16), rates.cycles(64, 8), rates.beside("MUFU.EX2")) == (None, None, None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "f: not a record of wgmma rates: "),
        ('{"device": {"cc": "9.0"}}', "f: not a record of wgmma rates: KeyError"),
        (json.dumps({**RECORD, "wgmma": [{"n": "64"}]}), r"f: wgmma\[0\]: n = '64': expected int"),
        (json.dumps({**RECORD, "wgmma": [{**RECORD["wgmma"][0], "cycles": 0}]}),
         r"f: wgmma\[0\]: cycles = 0: expected a positive number"),
    ],
)  # fmt: skip
def test_a_record_of_rates_that_is_not_one_is_refused(text: str, message: str) -> None:
    with pytest.raises(AnalysisError, match=message):
        list(parse_rates(text, "f", "sm_90a"))


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


def test_passes_are_those_of_most_wgmma() -> None:
    """One has the line of a loop that waits, one stands at the end of a tile."""
    code = [Instruction(16 * at, "", "HGMMA.64x8x16.F32", "R24, gdesc[UR4], R24") for at in range(5)]
    lines: dict[int, int | None] = {0x00: 7, 0x10: 8, 0x20: 9, 0x30: 10, 0x40: 11}
    executed = {7: 64, 8: 64, 9: 128, 10: 64, 11: 2}
    assert passes_of(code, lines, executed) == 64
    assert passes_of([*code[2:3], *code[4:]], lines, executed) == 128
    copies = [Instruction(0, "", "UTMALDG.5D", "[UR8], [UR4]")]
    assert passes_of(copies, lines, executed) == 64
    single = [Instruction(at.address, "", "HMMA.16816.F32", "R4, R8, R12, R4") for at in code]
    assert passes_of(single, lines, executed) == 64


# ---- comparing -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("opcode", "work"),
    [
        ("HMMA.16816.F32", 1),
        ("HMMA.1688.F32.TF32", 0.5),
        ("HGMMA.64x128x16.F32.BF16", 16),
        ("HGMMA.64x8x16.F32", 1),
        ("HGMMA.64x64x8.F32.TF32", 4),
        ("IMMA.16832.S8.S8", None),
        ("FADD", None),
    ],
)
def test_work_of_a_matrix_instruction_for_a_warp(opcode: str, work: float | None) -> None:
    assert matrix_work(Instruction(0, "", opcode, "")) == work


def test_hmma_and_hgmma_are_compared_by_their_work(capsys: pytest.CaptureFixture[str]) -> None:
    """Three HMMA on one side; six HGMMA of 32 columns on the other, each four times the work for a warp."""
    ours = f"{cubin('attention.cu', 'sm_90')}"
    assert main(["sass-diff", ours, str(pipeline()), "--a-config", "0"]) == 0
    out = capsys.readouterr().out
    assert "counts are for each m16n8k16 of a warp in the loop" in out
    assert " sm_90, " in out and " sm_90a, " in out
    rows = {line.split()[0]: line.split()[1:3] for line in out.splitlines() if line.startswith(("HMMA", "HGMMA"))}
    assert rows["HMMA"] == ["1", "0"]
    assert rows["HGMMA"] == ["0", "0.25"]


# ---- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["loop", "live", "bound", "map", "sass", "counts", "cfg"])
def test_a_cubin_cut_short_is_refused_by_name(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = pipeline().read_bytes()
    path = tmp_path / "short.cubin"
    path.write_bytes(whole[: len(whole) // 2])
    assert main([command, str(path)]) == DAMAGED
    assert re.search(
        rf"^analysis {command}: .*short\.cubin: truncated: .* of {len(whole) // 2}$", capsys.readouterr().err
    )


def test_an_opcode_that_no_table_has_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its registers are taken to stand as in most instructions, and it counts as "other"."""
    path = tmp_path / "made.sass"
    assert main(["sass", str(pipeline()), "-o", str(path)]) == 0
    text = path.read_text()
    path.write_text(text.replace("UTMALDG.2D", "UNEWCOPY.2D"))
    assert main(["loop", str(path), "--nest"]) == 0
    said = capsys.readouterr()
    assert 'opcodes not known, read as printed and counted as "other": UNEWCOPY (5)' in said.err
    assert "producer" not in said.out


def test_a_limit_that_is_no_number_is_refused() -> None:
    with pytest.raises(
        AnalysisError, match=r"'USETMAXREG\.DEALLOC\.CTAPOOL UR4' at 0000: expected a number of registers"
    ):
        limit_of(instruction("USETMAXREG.DEALLOC.CTAPOOL UR4"))


def test_roles_of_code_with_unknown_operands_are_shown_without_registers() -> None:
    """As of matrix instructions of other architectures, which setmaxnreg stands beside too."""
    text = "USETMAXREG.DEALLOC.CTAPOOL 0x18", "QMMA.16832.F32.E4M3.E4M3 R4, R8, R12, R4", "EXIT"
    code = "".join(f"        /*{16 * at:04x}*/  {line} ;\n" for at, line in enumerate(text))
    graph = Graph(parse_listing("//------ .text.made -----\n" + code)[0])
    (role,) = roles_in(graph)
    assert (role.limit, role.highest) == (24, None)
    assert live_in(role, {at.address: {"GPR": 9} for at in graph.code}, 168).cells()[2:] == [9, "0000", None, 3, ""]
