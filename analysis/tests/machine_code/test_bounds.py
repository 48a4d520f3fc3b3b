"""Bounds of a loop and its scoreboard view, on code written by hand and on compiled kernels."""

import json
from dataclasses import replace

import pytest

from analysis.__main__ import main
from analysis.files import root
from analysis.ladder.config import parse_short_form
from analysis.ladder.headers import load
from analysis.machine_code.bounds import ESTIMATES, bound_table, cost_of, loop_bound, waits_of, widths_of
from analysis.machine_code.loops import parts_of
from analysis.machine_code.opcodes import PIPE_OF
from analysis.machine_code.regions import Graph, Parts, kv_loops, split, split_at
from analysis.machine_code.sass import Instruction, parse_listing
from analysis.machine_code.subjects import resolve, start
from analysis.machine_code.traffic import conflicts_of
from analysis.measure import records, stats, summary
from analysis.tests.support.compiled import cubin, listing

PLAIN = "B------:R-:W-:-"


def loop_of(*lines: str, arch: str = "sm_80") -> Parts:
    text = f"\t.target\t{arch}\n//--------------------- .text.made --------------------------\n"
    body = [f"{PLAIN}:S02 MOV R1, RZ", ".L_x_0:", *lines, f"{PLAIN}:S05 @P0 BRA `(.L_x_0)", f"{PLAIN}:S05 EXIT"]
    address = 0
    for line in body:
        if line.endswith(":"):
            text += f"{line}\n"
        else:
            text += f"        /*{address:04x}*/  {line} ;\n"
            address += 16
    return split(parse_listing(text)[0])


def test_stalls_and_pipes_add_up() -> None:
    bound = loop_bound(
        loop_of(
            f"{PLAIN}:S04 FADD R4, R5, R6",
            f"{PLAIN}:S02 HMMA.16816.F32 R8, R4, R12, R8",
            f"{PLAIN}:S00 IADD3 R1, R1, 0x1, RZ",
            f"{PLAIN}:S01 MUFU.EX2 R7, R7",
            f"{PLAIN}:S01 @!PT LDS RZ, [RZ]",
        )
    )
    assert bound.issue_cycles == 4 + 2 + 1 + 1 + 1 + 5
    loads = {load.pipe: (load.instructions, load.cycles) for load in bound.pipes}
    assert loads == {"issue": (6, 6.0), "fma": (1, 2.0), "tensor": (1, 8.0), "alu": (1, 2.0), "xu": (1, 8.0)}
    assert bound.binding and bound.binding.pipe == "tensor"
    assert bound.warps_to_fill == 2


@pytest.mark.parametrize(
    ("opcode", "arch", "cycles"),
    [
        ("FFMA", "sm_80", 2.0),
        ("FFMA", "sm_90", 1.0),
        ("MUFU.EX2", "sm_90", 8.0),
        ("HMMA.1688.F32", "sm_80", 4.0),
        ("HMMA.1684.F32.TF32", "sm_80", 4.0),
        ("HMMA.16816.F32.BF16", "sm_90", 6.0),
        ("LDSM.16.M88.4", "sm_80", 16.0),
        ("DADD", "sm_80", 4.0),
        ("FFMA2", "sm_100a", 2.0),
        ("LDTM.x32", "sm_100a", None),
        ("HMMA.16816.F32", "sm_100a", None),
        ("QMMA.16832.F32.E4M3.E4M3", "sm_120a", 16.0),
        ("QMMA.SF.SP.16864.F32.E4M3.E2M1.E8", "sm_120a", 16.0),
        ("OMMA.SF.16864.F32.E2M1.E2M1.E8", "sm_120a", 16.0),
        ("QMMA.16832.F32.E4M3.E4M3", "sm_89", None),
    ],
)
def test_costs(opcode: str, arch: str, cycles: float | None) -> None:
    at = Instruction(0, "", opcode, "")
    found = cost_of(at, PIPE_OF[at.base], widths_of(arch))
    assert found == cycles if cycles is None else found == pytest.approx(cycles)


def test_the_estimate_by_hand() -> None:
    """On sm_90 an HMMA.16816 keeps the pipe for 6 cycles, and each of three instructions takes a slot."""
    code = [f"{PLAIN}:S02 HMMA.16816.F32 R8, R4, R12, R8", f"{PLAIN}:S01 FADD R4, R5, R6"]
    bound = loop_bound(loop_of(*code))
    issued = next(load.cycles for load in bound.pipes if load.pipe == "issue")
    assert bound.arch == "sm_80" and bound.estimate is None
    measured = replace(bound, arch="sm_90")
    tensor = next(load.cycles for load in bound.pipes if load.pipe == "tensor")
    assert issued and tensor and measured.estimate == pytest.approx(1.026 * (tensor + issued))
    assert replace(measured, conflicts=100.0).estimate == pytest.approx(1.026 * (tensor + issued + 100))
    (row,) = [row for row in bound_table(measured).rows if row[0] == "estimate"]
    label = "tensor and issue without overlap, bank conflicts not recorded; mean error 4.5 %, at most 12.8 %"
    assert str(row[-1]).startswith(label)
    assert replace(measured, asynchronous="wgmma").estimate is None


def test_bank_conflicts_of_a_pass_are_those_recorded() -> None:
    """v01: 64 LDSM.x4 a pass for K and V take 32 wavefronts each, not 4; 16 for Q once in the record's 8 passes."""
    v01, v02 = (load(root(), name).header.config for name in ("v01", "v02"))
    assert conflicts_of(root(), v01) == 64 * 28 + 16 * 28 / 8
    assert conflicts_of(root(), v02) == 0
    assert conflicts_of(root(), parse_short_form("(FP16, 128, 32, 64, 2): load_0_0_0_tiles")) is None
    assert conflicts_of(root(), None) is None


@pytest.mark.long
def test_the_error_of_the_estimate_is_the_one_that_is_printed() -> None:
    """Times of one run each, fp16 at 4096: 16 batches of 16 heads on the four sub-partitions of 132 SMs."""
    found = records.records_in(root() / "logs/bench/h200.jsonl")
    errors = []
    for version in (f"v{number:02}" for number in range(1, 26)):
        mine = [r for r in found if summary.subject_name(r) == version and str(r.problem.dtype) == "fp16"]
        mine = [r for r in mine if r.problem.seq == 4096]
        rounds = [r for r in mine if r.run_id == max(each.run_id for each in mine)]
        subject = resolve(version, "sm_90")
        parts = parts_of(start(subject).listing(), None, subject)
        hmmas = 16 * 16 * (4096 // 16) * (4096 // 8) * (128 // 16) * 2  # of 16 x 8 x 16, for QK and for PV
        estimate = loop_bound(parts).estimate
        assert estimate is not None
        cycles = hmmas / parts.matrix_count * estimate / (132 * 4)
        ns = stats.median([stats.median(r.samples_ns) for r in rounds])
        hz = stats.median([stats.median(r.sm_clock_hz) for r in rounds])
        errors.append(abs(cycles / hz * 1e9 / ns - 1))
    fitted = ESTIMATES["sm_90"]
    assert 100 * sum(errors) / len(errors) == pytest.approx(fitted.mean_error, abs=0.06)
    assert 100 * max(errors) == pytest.approx(fitted.largest_error, abs=0.06)


SKIPPED = """
        /*0000*/  B------:R-:W-:-:S01 @P1 BRA `(.L_x_1) ;
        /*0010*/  B------:R-:W-:-:S04 LDGSTS.E.128 [R2], desc[UR4][R6.64] ;
.L_x_1:
        /*0020*/  B------:R-:W-:-:S02 HMMA.16816.F32 R4, R8, R12, R4 ;
        /*0030*/  B------:R-:W-:-:S03 @P2 STS.128 [R2], R4 ;
        /*0040*/  B------:R-:W-:-:S05 @P0 BRA `(.L_x_0) ;
        /*0050*/  B------:R-:W-:-:S05 EXIT ;
"""


def test_what_a_pass_may_skip_counts_by_the_passes_that_execute_it() -> None:
    (listing,) = parse_listing(f"\t.target\tsm_80\n//------ .text.made -----\n.L_x_0:{SKIPPED}")
    graph = Graph(listing)
    (kv,) = kv_loops(graph)

    def bound(shares: dict[int, float] | None) -> tuple[float, float | None, float | None, float, int]:
        found = loop_bound(split_at(graph, kv, shares))
        lsu = next(load for load in found.pipes if load.pipe == "lsu")
        return lsu.instructions, lsu.cycles, lsu.at_most, found.issued, found.issue_cycles

    assert bound(None) == (0, 0, 32, 4, 11)  # not known: nothing in the bound, all of it at most
    assert bound({}) == (2, 32, 32, 5, 15)
    assert bound({0x10: 0.75}) == (1.75, 28, 28, 4.75, 14)
    assert bound({0x30: 0.5}) == (1.5, 24, 24, 5, 15)  # a predicated instruction is issued in any case


def test_scoreboards() -> None:
    parts = loop_of(
        "B--2---:R-:W-:-:S01 MOV R3, R20",
        "B------:R0:W1:-:S01 LDSM.16.M88.4 R4, [R1]",
        f"{PLAIN}:S01 HMMA.16816.F32 R8, R4, R12, R8",
        f"{PLAIN}:S01 @!PT LDS RZ, [RZ]",
        "B01----:R-:W-:-:S01 FADD R2, R4, R4",
        "B------:R-:W2:-:S01 MUFU.EX2 R20, R2",
        "B------:R-:W3:-:S01 LDGDEPBAR",
        f"{PLAIN}:S01 DEPBAR.LE SB3, 0x0",
        "B-----5:R-:W-:-:S01 MOV R3, R21",
    )
    waits = list(waits_of(parts))
    shown = [
        (wait.waiter.base, wait.scoreboard, wait.setter.base if wait.setter else None, wait.kind, wait.instructions)
        for wait in waits
    ]
    assert shown == [
        ("MOV", 2, "MUFU", "result", 4),
        ("FADD", 0, "LDSM", "operands read", 2),
        ("FADD", 1, "LDSM", "result", 2),
        ("DEPBAR", 3, "LDGDEPBAR", "result", 0),
        ("MOV", 5, None, "", 0),
    ]
    assert [wait.previous_pass for wait in waits] == [True, False, False, False, False]
    assert waits[1].matrix == 1


def test_command(capsys: pytest.CaptureFixture[str]) -> None:
    path = cubin("attention.cu", "sm_90")
    assert main(["bound", str(path), "--json"]) == 0
    rows = {row["bound"]: row for row in json.loads(capsys.readouterr().out)["rows"]}
    loop = split(listing(path, "_Z13flash_forwardIXtl12KernelConfigL5dtype5")).loop
    assert rows["stalls of one warp"]["cycles"] == sum(max(1, at.control.stall) for at in loop if at.control)
    assert rows["tensor"]["cycles"] == 18.0
    assert main(["bound", str(path), "--scoreboard", "--csv"]) == 0
    table = capsys.readouterr().out
    assert "LDSM" in table
    assert "HMMA" in table
