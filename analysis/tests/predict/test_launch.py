"""Paths, tiles and launches: counts by hand, and the rules of common/config.h."""

import pytest

from analysis.files import root
from analysis.ladder.config import KernelConfig, parse_short_form
from analysis.machine_code.sass import Instruction
from analysis.machine_code.subjects import resolve
from analysis.predict.kernels import committed, foreign_kernel
from analysis.predict.launch import Foreign, Shape, Tile, launch_cycles, residents_of, slice_waves, tile_of
from analysis.predict.machine import read_machine
from analysis.predict.operations import Kind, Operation, operation_of
from analysis.predict.path import Path

H200 = read_machine("h200").with_values(launch_us=0.0, excess=1.0)
PLAIN = parse_short_form("(FP16, 128, 64, 64, 4): async+eager+swizzled+load_2_2_2_tiles+opt_softmax")
STAYS = "(FP16, 128, 256, 64, 8): async+eager+load_2_2_2_tiles+opt_softmax+lazy+stages_4+slack_1+padded+split_tail"
V25 = parse_short_form(f"{STAYS}+persistent")
TILE = Tile(per_pass=1000.0, outside=500.0, first=30.0, busiest=1000.0)


def alu(stall: int) -> Operation:
    made = operation_of(Instruction(0, "", "IADD3", "R0, R0, R0, RZ"), H200)
    made.stall = stall
    return made


def cycles(config: KernelConfig, shape: Shape, ctas: int = 1, **values: float) -> float:
    tiles = {1: TILE, ctas: Tile(2000.0, 1000.0, 30.0, 2000.0) if ctas > 1 else TILE}
    return launch_cycles(config, False, ctas, tiles, shape, H200.with_values(dram_bytes=1e18, **values), 1e9)


def test_a_tile_is_split_into_passes_and_the_rest() -> None:
    """Four warps, one on each scheduler: 10 cycles a pass, 7 around them."""
    path = Path([], [alu(3)], [alu(6), alu(4)], [alu(4)], [], peeled=False)
    tile = tile_of(path, H200.with_values(stagger=0), residents_of(PLAIN, 1))
    assert (tile.per_pass, tile.outside) == (10.0, 8.0), "1 for the start of a tile, 3 and 4 around the passes"
    assert tile.first == -4.0, "nothing waits for the last stall of the last tile"
    assert tile.busiest == 4.0, "two instructions on a pipe that takes 2 cycles"
    assert tile.cycles(3, excess=1.25) == 8 + 3 * (4 + 1.25 * 6)


def test_a_launch_of_full_waves_and_a_part() -> None:
    """132 multiprocessors hold one CTA each: 264 CTAs are two waves, one more is a third."""
    one = 500 + 8 * 1000  # 512 keys
    assert cycles(PLAIN, Shape(1, 33, 512)) == 2 * one + 30, "8 CTAs of each of 33 heads"
    assert cycles(PLAIN, Shape(1, 34, 512)) == 3 * one + 30


def test_what_is_left_over_runs_alone() -> None:
    """Two CTAs each: 264 at once; 8 more are a wave of CTAs that have a multiprocessor for themselves."""
    both, alone = 1000 + 8 * 2000, 500 + 8 * 1000
    assert cycles(PLAIN, Shape(1, 33, 512), ctas=2) == both + 30
    assert cycles(PLAIN, Shape(1, 34, 512), ctas=2) == both + alone + 30


@pytest.mark.parametrize("seq", [512, 1024, 2048, 4096, 8192, 16384])
@pytest.mark.parametrize("batch", [1, 2, 4, 16, 32])
def test_slices_are_those_of_the_launch(seq: int, batch: int) -> None:
    """The rows of the grid for slices, as the harness launches them."""
    rows = V25.grid(seq, 16, batch, 132)[1] - 1
    blocks = seq // 256 * 16 * batch
    assert slice_waves(V25, blocks % 132, seq // 64, False, 132) == rows


def test_a_launch_is_no_faster_than_memory_and_begins_late() -> None:
    shape = Shape(1, 33, 512)
    found = launch_cycles(PLAIN, False, 1, {1: TILE}, shape, H200.with_values(dram_bytes=1e9, launch_us=10.0), 1e9)
    assert found == 4 * 33 * 512 * 256 + 10e3, "a byte a nanosecond, and 10 µs"


def test_the_causal_mask_halves_the_passes() -> None:
    causal, full = (cycles(V25, Shape(33, 4, 4096, mask)) for mask in (True, False))
    passes = sum(4 * (row + 1) for row in range(16)) / 16
    assert (causal - 30) / (full - 30) == pytest.approx((500 + passes * 1000) / (500 + 64 * 1000))


def test_the_path_of_a_version() -> None:
    """v02 executes its loop whole: 128 HMMA, 64 LDSM and 16 copies in a pass."""
    kernel = committed("v02", read_machine("h200"))
    kinds = [each.kind for each in kernel.path.loop]
    hmma = [each for each in kernel.path.loop if each.instruction and each.instruction.base == "HMMA"]
    assert len(hmma) == 128 and kinds.count(Kind.COPY) == 16 and kernel.path.repeated(2, 1).count(hmma[0]) == 2
    assert kernel.ctas == 3 or kernel.ctas == 2


def test_bank_conflicts_are_those_of_the_emulator() -> None:
    """v01's matrices take 8 times the wavefronts, v02's one."""

    def loads(version: str) -> set[float]:
        loop = committed(version, read_machine("h200")).path.loop
        return {each.cycles for each in loop if each.instruction and each.instruction.base == "LDSM"}

    assert loads("v02") == {4.0}
    assert all(cycles > 28 for cycles in loads("v01"))


def foreign(version: str, arch: str, launch: Foreign) -> Foreign:
    """The facts of a version's launch when it is treated as a foreign kernel."""
    if not (root() / f"build/{version}/{arch}.cubin").exists():
        pytest.skip(f"{version} is not built: make {version}")
    found = foreign_kernel(resolve(version, arch), launch, 1, None, H200).config
    assert isinstance(found, Foreign)
    return found


def test_what_the_loop_of_a_kernel_that_is_not_ours_says_of_its_launch() -> None:
    """v16 copies K and V, 64 rows of 256 bytes each, with four warps; the warp groups of v30 take turns."""
    assert foreign("v16", "sm_90", Foreign(8192, 4, 64)) == Foreign(8192, 4, 64, groups=1, pass_bytes=2 * 64 * 256)
    assert foreign("v30", "sm_90a", Foreign(8192, 8, 32)) == Foreign(8192, 8, 32, groups=2, pass_bytes=2 * 128 * 256)


def test_a_launch_is_no_faster_than_l2_gives_its_copies() -> None:
    """132 CTAs of ten passes: 500 and 10 x 1000 cycles and the first 30, or 132 x 10 x 1 MB at 66 TB/s and 1 GHz."""
    for bytes_of_pass, expected in ((0, 10530), (500_000, 10530), (1_000_000, 20000)):
        launch = Foreign(132, 4, 10, pass_bytes=bytes_of_pass)
        machine = H200.with_values(l2_bytes=66e12)
        assert launch_cycles(launch, False, 1, {1: TILE}, Shape(1, 1, 1), machine, 1e9) == pytest.approx(expected)
