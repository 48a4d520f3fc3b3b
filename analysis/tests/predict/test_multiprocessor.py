"""The issue model on short synthetic code whose cycles are known."""

from dataclasses import replace

import pytest

from analysis.errors import AnalysisError
from analysis.machine_code.sass import Control, Instruction
from analysis.predict.machine import Machine, read_machine
from analysis.predict.multiprocessor import Residents, Run, simulate, stall_kind
from analysis.predict.operations import Kind, Operation, operation_of, stage_release, tile_start, wavefronts

NO = 7


LATENCIES = {"MUFU": 22.0, "LDS": 20.0, "LDSM": 20.0, "SHFL": 20.0, "SYNCS": 20.0, "other": 20.0}
BESIDE = {"fma": 1.0, "alu": 2.0, "imad": 2.0, "xu": 8.0}
ROUND: dict[str, float] = {
    **{"stagger": 0, "hmma": 6, "barrier": 20, "barrier_warp": 0, "operand_ports": 2, "wgmma_port": 0, "wgmma_end": 30},
    **{"copy_bytes": 64, "copy_latency": 270, "tensor_copy_latency": 600},
}


def machine(**values: float) -> Machine:
    """A GPU of round numbers, whose warps start together."""
    made = replace(read_machine("h200"), latencies=LATENCIES, wgmma_beside=BESIDE)
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


@pytest.mark.parametrize(("stages", "late"), [(0, 0), (2, 600)])
def test_a_wait_for_queries_is_late_where_tensor_copies_are_known(stages: int, late: int) -> None:
    """Of a kernel that is not ours they are not: its producer is not simulated, and its blocks are there."""
    wait = operation("SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4], R2", write=0)
    wait.argument = 2
    code = [tile_start(), wait, operation("IADD3 R0, R0, R0, RZ", wait=1)]
    assert run(code, warps=1, stages=stages, stage_bytes=64).cycles == max(late, 20) + 1


@pytest.mark.parametrize(
    ("text", "cycles"), [("IADD3", 2), ("FFMA", 1), ("IMAD", 2), ("MUFU.EX2", 8), ("HMMA.16816.F32", 6)]
)
def test_a_pipe_is_shared_by_the_warps_of_a_scheduler(text: str, cycles: int) -> None:
    """Four warps each: the pipe is never idle, and the last instruction waits for 39 before it."""
    found = run([operation(f"{text} R0, R0, R0")] * 10, warps=16)
    assert found.cycles == 39 * cycles and found.busy[operation(text).pipe] == 4 * 40 * cycles


def test_an_hmma_holds_the_dispatch_port() -> None:
    """Of two warps of a scheduler one multiplies: the other issues in the 5th cycle, not in the 1st."""
    code = [operation("HMMA.16816.F32 R0", stall=1), operation("FADD R9, R9, R9")]
    assert run(code, of=machine(hmma_dispatch=5)).cycles == 5
    assert run(code, of=machine(hmma_dispatch=1)).cycles == 1


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


def test_wavefronts_of_wide_accesses() -> None:
    widths = {"LDS": 1, "LDS.64": 2, "LDS.128": 4, "LDSM.16.M88.2": 2, "LDSM.16.MT88.4": 4, "STS.128": 4}
    assert {opcode: wavefronts(opcode) for opcode in widths} == widths


def test_a_barrier_ends_20_cycles_after_the_last_arrival() -> None:
    late = [operation("MUFU.EX2 R0, R0", write=0), operation("BAR.SYNC 0x0", wait=1), operation("EXIT")]
    assert run(late, warps=4).cycles == 8 + 22 + 20
    assert run([operation("BAR.SYNC 0x0"), operation("EXIT")], warps=4).stalls["barrier"] == 4 * 19


def test_a_deferred_barrier_holds_up_the_next_memory_instruction() -> None:
    """By ncu's samples of v16 warps wait behind the addresses that follow the barrier, not in front of them."""
    adds, load = [operation("IADD3 R0, R0, R0, RZ", stall=4)] * 4, operation("LDS R1, [R0]")
    assert run([operation("BAR.SYNC.DEFER_BLOCKING 0x0"), *adds, load]).cycles == 20
    assert run([operation("BAR.SYNC 0x0"), *adds, load]).cycles == 20 + 4 * 4


def test_conflicts_do_not_keep_instructions_in_the_queue() -> None:
    """Seven loads of one wavefront and 31 conflicts: shared memory has taken all, and their data are waited for."""
    load = operation("LDS R0, [R1]", write=0)
    load.cycles, load.ideal = 32, 1
    found = run([*[load] * 7, operation("FADD R2, R0, R0", wait=1)], warps=1)
    assert found.stalls["memory queue"] == 0 and found.stalls["scoreboard"] > 7 * 31
    load.ideal = 32
    assert run([*[load] * 7], warps=1).stalls["memory queue"] > 0


def test_waiting_for_data_and_then_for_a_pipe_are_two_reasons() -> None:
    """Both warps wait for a load; then one multiplies and the other one waits for the pipe."""
    code = [operation("LDS R0, [R1]", write=0), operation("HMMA.16816.F32 R4, R0", wait=1)]
    found = run(code, warps=8, of=machine(hmma_dispatch=1))
    assert found.stalls["tensor"] > 0 and found.stalls["scoreboard"] > 8 * 20


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


@pytest.mark.parametrize(("text", "pipe", "cycles"), [("FADD", "fma", 1.9), ("FMNMX", "alu", 4.5), ("MUFU", "xu", 11)])
def test_arithmetic_takes_longer_while_wgmma_runs(text: str, pipe: str, cycles: float) -> None:
    """Its pipe is taken for longer, and the scheduler by each of it, whatever its pipe."""
    product = operation("HGMMA.64x128x16.F32 R0, gdesc, gsb0")
    arithmetic = [operation(f"{text} R{n}, R{n}, R0") for n in range(6)]
    for each in arithmetic:
        each.beside = cycles
    assert run([product, *arithmetic], warps=4).cycles == pytest.approx(1 + 5 * cycles)
    assert run(arithmetic, warps=4).cycles == 5 * operation(f"{text} R0, R0, R0").cycles
    others = [operation("FADD R9, R9, R9"), operation("FMNMX R8, R8, R8"), operation("FADD R7, R7, R7")]
    assert run([product, *others], warps=4, of=machine(wgmma_port=4)).cycles == 1 + 2 * 5
    assert operation(f"{text} R0, R0").pipe == pipe


def test_three_registers_take_the_ports_for_longer_than_two() -> None:
    """Of four warps on a scheduler each issues one: the last one waits for those before it."""
    assert run([operation("FFMA R0, R1, R2, R3")], warps=16).cycles == pytest.approx(3 * 1.5)
    assert run([operation("FFMA R0, R1, R2, R2")], warps=16).cycles == 3


def test_arrivals_at_a_barrier_come_one_after_the_other() -> None:
    """Eight warps arrive in the cycles 0 and 1; the last one's arrival ends in cycle 16."""
    code = [operation("BAR.SYNC 0x0"), operation("EXIT")]
    assert run(code, warps=8, of=machine(barrier_warp=2)).cycles - run(code, warps=8).cycles == 16 - 1


def test_a_ring_of_tensor_copies() -> None:
    """Each block takes 1000 cycles of the channel and 600 more; with one stage a copy waits until it is released."""
    wait = operation("SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4], R0")
    wait.argument = 0
    blocks = [tile_start(), *[wait, stage_release(0)] * 3]
    each, released = 1000 + 600, 1 + 20
    assert run(blocks, warps=1, stages=1, stage_bytes=64000).cycles == 3 * each + 2 * released + 1
    assert run(blocks, warps=1, stages=3, stage_bytes=64000).cycles == 3 * 1000 + 600 + 1


def test_another_tile_finds_its_stages_free() -> None:
    """The last block of a tile is released by nobody: its CTA ends, and the next one has a ring of its own."""
    wait = operation("SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4], R0")
    wait.argument = 0
    assert run([tile_start(), wait] * 2, warps=1, stages=1).cycles > 2 * 600
    with pytest.raises(AnalysisError, match="wait for each other"):
        run([tile_start(), wait, wait], warps=1, stages=1)


def test_a_barrier_of_a_warp_group_waits_for_four_warps() -> None:
    """Of three groups the first has the most to do before it: the others do not wait for it."""
    code = [operation("BAR.SYNC 0x1, 0x80"), operation("FADD R0, R0, R0")]
    issues = simulate(code, machine().with_values(stagger=10), Residents(1, 12, 3), observed=True).issues
    ends = {issue.warp // 4: issue.cycle for issue in issues if issue.at == 1}
    assert ends[0] < ends[1] < ends[2] and ends[0] < 60


def test_wgmma_of_one_byte_multiplies_twice_the_depth_in_the_same_time() -> None:
    fp16, fp8 = (operation(f"{name} R24, gdesc[UR4], RZ, !UPT") for name in ("HGMMA.64x128x16.F32", "QGMMA.64x128x32"))
    assert fp8.kind is Kind.WGMMA and fp8.cycles == fp16.cycles == 64


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


def test_the_last_warp_goes_on_unless_it_yields() -> None:
    """Two warps of a scheduler leave a barrier together, at which warp 4 arrived last."""

    def order(yields: bool) -> list[int]:
        code = [operation("BAR.SYNC 0x0", yields=yields), *[operation("FADD R0, R0, R0", yields=yields)] * 2]
        issues = simulate(code, machine().with_values(stagger=10), Residents(1, 8), observed=True).issues
        return [issue.warp for issue in issues if issue.warp % 4 == 0 and issue.at > 0]

    assert order(False) == [4, 4, 0, 0]
    assert order(True) == [0, 0, 4, 4]


def test_what_is_never_executed_takes_no_pipe() -> None:
    dummy = operation_of(Instruction(0, "@!PT", "LDS", "RZ, [RZ]"), machine())
    assert dummy.kind is Kind.PLAIN and dummy.pipe == "control"


def test_reasons_to_wait_are_summed_up_as_ncu_has_them() -> None:
    """Two warps of a scheduler that multiply: one waits for the pipe; a load's result is data."""
    found = run([operation("HMMA.16816.F32 R0")] * 4, warps=8)
    assert {stall_kind(reason) for reason, cycles in found.stalls.items() if cycles > 0} <= {"pipe", "issue", "wait"}
    assert sum(found.stalls[reason] for reason in found.stalls if stall_kind(reason) == "pipe") > 0
    waits = [operation("LDS R0, [R1]", write=0), operation("FADD R2, R0, R0", wait=1)]
    assert max(run(waits).stalls, key=lambda reason: run(waits).stalls[reason]) == "scoreboard"
    assert stall_kind("scoreboard") == "data" and stall_kind("turn") == "barrier" and stall_kind("alu") == "pipe"
