"""cp.async.bulk.tensor: boxes within, across and beyond the edges of a tensor, and maps that the driver refuses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.emulation import compiled, ptxrun
from vectors.tensor_boxes import BOX, PROGRAMS, SIZES, Boxes

SOURCE = Path(__file__).parent / "support/kernels/boxes.cu"
HEIGHT, WIDTH, PITCH = 13, 40, 48  # of the tensor; 96 bytes from row to row
ROWS, COLUMNS = 8, 32  # of a box
GRID = (8, 7)
MASKS = {"none": 0, "32B": 1, "64B": 3, "128B": 7}


@pytest.fixture(scope="module")
def ptx(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(SOURCE, tmp_path_factory.mktemp("boxes"), "compute_90a")


@pytest.mark.parametrize("swizzle", ["none", "64B", "128B"])
@pytest.mark.parametrize("seed", [0, 3])
def test_boxes_arrive_swizzled_with_zeros_beyond_the_edges(swizzle: str, seed: int, ptx: Path, tmp_path: Path) -> None:
    ctas, words = GRID[0] * GRID[1], ROWS * COLUMNS // 2
    tensor = f"tmap:{WIDTH}x{HEIGHT}/{2 * PITCH}:{COLUMNS}x{ROWS}:{swizzle}:buf:u16:{HEIGHT * PITCH}"
    done = ptxrun(
        ptx, "--grid", "8,7", "--block", 32, "--smem", 9000, "--schedule", seed, "--arg", f"{tensor}:ramp",
        "--arg", tensor, "--arg", f"out:u32:{ctas * words}", "--dump", f"2={tmp_path / 'raw.bin'}",
        "--dump", f"1={tmp_path / 'to.bin'}",
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    raw = np.fromfile(tmp_path / "raw.bin", np.uint16).reshape(GRID[1], GRID[0], ROWS * COLUMNS)
    whole = np.zeros((HEIGHT + 40, WIDTH + 80), np.uint16)  # with zeros around
    source = np.arange(HEIGHT * PITCH, dtype=np.uint16).reshape(HEIGHT, PITCH)[:, :WIDTH]
    whole[10 : 10 + HEIGHT, 20 : 20 + WIDTH] = source
    offsets = np.arange(ROWS * COLUMNS) * 2
    positions = (offsets ^ ((offsets >> 7) & MASKS[swizzle]) << 4) // 2
    for y in range(GRID[1]):
        for x in range(GRID[0]):
            top, left = 10 + 3 * y - 3, 20 + 8 * x - 8
            box = whole[top : top + ROWS, left : left + COLUMNS].reshape(-1)
            assert (raw[y, x][positions] == box).all(), (x, y)
    # what went back is the tensor, and nothing between its rows
    to = np.fromfile(tmp_path / "to.bin", np.uint16).reshape(HEIGHT, PITCH)
    assert (to[:, :WIDTH] == source).all() and not to[:, WIDTH:].any()


@pytest.mark.parametrize("boxes", PROGRAMS, ids=lambda boxes: f"{boxes.rank}d")
@pytest.mark.parametrize("schedule", [0, 5])
def test_boxes_of_every_rank(boxes: Boxes, schedule: int, tmp_path: Path) -> None:
    """At corners of which some are before the tensor and some past it; no two boxes store another value. Every second
    box has no negative coordinate, so it is stored."""
    rng = np.random.default_rng(boxes.rank)
    corners = np.zeros((12, 5), np.int32)
    for i in range(boxes.rank):
        step = 1 if i else 8  # 16 bytes
        corners[:, i] = step * rng.integers(-BOX[i] // step, SIZES[i] // step + 1, 12)
    corners[1::2] = corners[1::2].clip(0)
    corners[0] = 0
    source = rng.integers(1, 1 << 16, int(np.prod(SIZES[: boxes.rank])), dtype=np.uint16)
    source.tofile(tmp_path / "source.bin")
    corners.tofile(tmp_path / "corners.bin")
    (tmp_path / "boxes.ptx").write_text(boxes.text())
    done = ptxrun(
        tmp_path / "boxes.ptx", "--grid", 12, "--block", 32, "--schedule", schedule,
        "--arg", boxes.tensor(f":@{tmp_path / 'source.bin'}"), "--arg", boxes.tensor(""),
        "--arg", f"buf:i32:60:@{tmp_path / 'corners.bin'}", "--arg", f"out:u16:{12 * boxes.elements}",
        "--dump", f"1={tmp_path / 'target.bin'}", "--dump", f"3={tmp_path / 'raw.bin'}",
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    found, reached = boxes.boxes(source, corners)
    assert (np.fromfile(tmp_path / "raw.bin", np.uint16).reshape(12, -1) == found).all()
    assert (np.fromfile(tmp_path / "target.bin", np.uint16) == reached).all()


@pytest.mark.parametrize(
    ("tensor", "says"),
    [
        ("64x16:300x8:none:buf:f16:1024", "size 0 of the box is 300: it must be from 1 to 256"),
        ("64x16:64x0:none:buf:f16:1024", "size 1 of the box is 0"),
        ("64x16/100:64x8:none:buf:f16:1024", "stride 1 is 100 bytes: it must be a multiple of 16"),
        ("64x16:64x8:64B:buf:f16:1024", "a row of the box has 128 bytes: with this swizzle it has at most 64"),
        ("64x16:4x8:none:buf:f16:1024", "a row of the box has 8 bytes: it must be a multiple of 16"),
        ("64x16:64x8:16B:buf:f16:1024", "must be tmap:SIZES"),
        ("64x16:64:none:buf:f16:1024", "must be tmap:SIZES"),
        ("64x16:64x8:none:f16:1024", "must be tmap:SIZES"),
        ("64x16:64x8:none:of:7", "'of:7': must be the number of an earlier argument"),
        ("64x17:64x8:none:buf:f16:1024", "the tensor reaches byte 2176 of a buffer of 2048"),
    ],
)
def test_a_map_that_the_driver_would_refuse(tensor: str, says: str, ptx: Path) -> None:
    good = "tmap:40x13/96:32x8:none:buf:u16:624"
    done = ptxrun(ptx, "--smem", 9000, "--arg", f"tmap:{tensor}", "--arg", good, "--arg", "out:u32:128")
    assert done.returncode == 2 and says in done.stderr, done.stderr
