"""The issue model on short synthetic code whose cycles are known."""

from dataclasses import replace

import pytest

from analysis.errors import AnalysisError
from analysis.machine_code.sass import Control, Instruction
from analysis.predict.machine import Machine, read_machine
from analysis.predict.multiprocessor import Residents, Run, simulate, stall_kind
from analysis.predict.operations import Operation, operation_of, stage_release, tile_start

NO = 7


LATENCIES = {"MUFU": 22.0, "LDS": 20.0, "LDSM": 20.0, "SHFL": 20.0, "SYNCS": 20.0, "other": 20.0}
DURING_WGMMA = {"fma": 1.0, "alu": 2.0, "imad": 2.0, "xu": 8.0}
ROUND: dict[str, float] = {
    **{"stagger": 0, "hmma": 6, "barrier": 20, "barrier_warp": 0, "operand_ports": 2, "wgmma_port": 0, "wgmma_end": 30},
    **{"copy_bytes": 64, "copy_latency": 270, "tensor_copy_latency": 600},
}


def machine(**values: float) -> Machine:
    """A GPU of round numbers, whose warps start together."""
    made = replace(read_machine("h200"), latencies=LATENCIES, during_wgmma=DURING_WGMMA)
    return made.with_values(**(ROUND | values))


def operation(
    text: str, stall: int = 1, write: int = NO, wait: int = 0, read: int = NO, yields: bool = False
) -> Operation:
    opcode, _, operands = text.partition(" ")
    return operation_of(Instruction(0, "", opcode, operands, Control(stall, yields, write, read, wait, 0)), machine())


def run(
    code: list[Operation],
    warps: int = 4,
    ctas: int = 1,
    of: Machine | None = None,
    groups: int = 1,
    stages: int = 0,
    stage_bytes: int = 0,
) -> Run:
    return simulate(code, of or machine(), Residents(ctas, warps, groups, stages, stage_bytes))


def test_one_warp_issues_by_its_stall_counts() -> None:
    """The last of ten is issued after nine stalls."""
    assert run([operation("IADD3 R0, R0, R0, RZ", stall=4)] * 10).cycles == 36


@pytest.mark.parametrize(
    ("text", "cycles"), [("IADD3", 2), ("FFMA", 1), ("IMAD", 2), ("MUFU.EX2", 8), ("HMMA.16816.F32", 6)]
)
def test_a_pipe_is_shared_by_the_warps_of_a_scheduler(text: str, cycles: int) -> None:
    """Four warps each: the pipe is never idle, and the last instruction waits for 39 before it."""
    found = run([operation(f"{text} R0, R0, R0")] * 10, warps=16)
    assert found.cycles == 39 * cycles and found.busy[operation(text).pipe] == 4 * 40 * cycles


def test_a_result_releases_its_scoreboard() -> None:
    """A load of one wavefront: 4 cycles to its service, 1 of service, 20 of latency."""
    code = [operation("LDS R0, [R1]", write=0), operation("FADD R0, R0, R0", wait=1)]
    assert run(code, warps=1).cycles == 25
    assert run([operation("LDS.128 R0, [R1]", write=0), code[1]], warps=1).cycles == 28
    assert run([code[0], operation("FADD R0, R0, R0", wait=2)], warps=1).cycles == 1, "another scoreboard"


def test_all_schedulers_share_shared_memory() -> None:
    """Eight warps load 20 times 4 wavefronts; the queue lets 5 of a scheduler wait."""
    found = run([operation("LDSM.16.M88.4 R0, [R1]")] * 20, warps=8)
    assert found.busy["lsu"] == 8 * 20 * 4
    assert 640 - 5 * 4 * 4 - 8 <= found.cycles <= 640, "as long as its wavefronts, less those in the queues"
    conflicts = operation_of(Instruction(0, "", "LDSM.16.M88.4", "R0, [R1]"), machine(), conflicts=8.0)
    assert run([conflicts] * 20, warps=8).busy["lsu"] == 8 * 640


def test_a_barrier_ends_20_cycles_after_the_last_arrival() -> None:
    late = [operation("MUFU.EX2 R0, R0", write=0), operation("BAR.SYNC 0x0", wait=1), operation("EXIT")]
    assert run(late, warps=4).cycles == 8 + 22 + 20
    assert run([operation("BAR.SYNC 0x0"), operation("EXIT")], warps=4).stalls["barrier"] == 4 * 19


def test_copies_are_waited_for_by_group() -> None:
    """A copy of 512 bytes takes 8 cycles of the channel and 270 of latency; one group may be under way."""
    copy, commit = operation("LDGSTS.E.128 [R0], [R1]"), operation("LDGDEPBAR")
    both = [copy, commit, copy, commit]
    assert run([*both, operation("DEPBAR.LE SB0, 0x0")], warps=1).cycles == 4 + 8 + 8 + 270
    assert run([*both, operation("DEPBAR.LE SB0, 0x1")], warps=1).cycles == 4 + 8 + 270


def test_wgmma_runs_beside_its_warp() -> None:
    """Two m64n128k16 of 64 cycles, and 30 until a wait for them ends."""
    products = [operation("HGMMA.64x128x16.F32 R0, gdesc"), operation("HGMMA.64x128x16.F32 R0, gdesc, gsb0")]
    wait = operation("WARPGROUP.DEPBAR.LE gsb0, 0x0")
    assert run([*products, wait], warps=4).cycles == 128 + 30


def test_a_ring_of_tensor_copies() -> None:
    """Each block takes 1000 cycles of the channel and 600 more; with one stage a copy waits until it is released."""
    wait = operation("SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4], R0")
    wait.argument = 0
    blocks = [tile_start(), *[wait, stage_release(0)] * 3]
    each, released = 1000 + 600, 1 + 20
    assert run(blocks, warps=1, stages=1, stage_bytes=64000).cycles == 3 * each + 2 * released + 1
    assert run(blocks, warps=1, stages=3, stage_bytes=64000).cycles == 3 * 1000 + 600 + 1


def test_two_warp_groups_take_turns() -> None:
    """The second may multiply when the first has given it its turn."""
    code = [operation("BAR.SYNC R1, 0x100"), operation("FADD R0, R0, R0", stall=15), operation("BAR.ARV R2, 0x100")]
    found = run(code, warps=8, groups=2)
    assert found.cycles == 16 + 20 + 16


def test_warps_that_wait_for_each_other_are_an_error() -> None:
    wait = operation("SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4], R0")
    wait.argument = 0
    with pytest.raises(AnalysisError, match=r"wait for each other.*SYNCS"):
        run([wait] * 2, warps=1, stages=1)


def test_reasons_to_wait_are_summed_up_as_ncu_has_them() -> None:
    """Two warps of a scheduler that multiply: one waits for the pipe; a load's result is data."""
    found = run([operation("HMMA.16816.F32 R0")] * 4, warps=8)
    assert {stall_kind(reason) for reason, cycles in found.stalls.items() if cycles > 0} <= {"pipe", "issue", "wait"}
    assert sum(found.stalls[reason] for reason in found.stalls if stall_kind(reason) == "pipe") > 0
    waits = [operation("LDS R0, [R1]", write=0), operation("FADD R2, R0, R0", wait=1)]
    assert max(run(waits).stalls, key=lambda reason: run(waits).stalls[reason]) == "scoreboard"
    assert stall_kind("scoreboard") == "data" and stall_kind("turn") == "barrier" and stall_kind("alu") == "pipe"
