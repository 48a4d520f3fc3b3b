"""cp.async.bulk.tensor: boxes at and beyond the edges of a tensor, pixels, and maps that the driver refuses."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support.emulation import ROOT, compiled, ptxrun
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


STORE = """.version 8.6
.target sm_90a
.address_size 64
.shared .align 128 .b8 tile[128];
.visible .entry store(.param .align 64 .b8 map[128])
{
.reg .b32 %c; .reg .b64 %map;
mov.b64 %map, map;
cvta.param.u64 %map, %map;
mov.b32 %c, 0;
ROWS
fence.proxy.async.shared::cta;
cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%map, {%c, %c}], [tile];
cp.async.bulk.commit_group;
cp.async.bulk.wait_group 0;
ret;
}
"""


@pytest.mark.parametrize(("rows", "columns"), [(1, 16), (2, 16), (2, 14)])
def test_a_store_needs_only_the_rows_and_columns_that_the_tensor_has(rows: int, columns: int, tmp_path: Path) -> None:
    """The tensor has two of the four rows of the box, each of 32 bytes."""
    words = [f"st.shared.b32 [tile+{32 * row + i}], %c;" for row in range(rows) for i in range(0, 2 * columns, 4)]
    (tmp_path / "k.ptx").write_text(STORE.replace("ROWS", "\n".join(words)))
    done = ptxrun(tmp_path / "k.ptx", "--block", 1, "--arg", f"tmap:{columns}x2/32:16x4:none:buf:u16:32")
    assert ("uninitialised-shared at" in done.stderr) == (rows == 1) and done.returncode == (rows == 1), done.stderr


PIXELS = """.version 8.6
.target sm_90a
.address_size 64
.shared .align 128 .b8 tile[384];
.shared .align 8 .b64 bar;
.visible .entry copy(.param .align 64 .b8 map[128], .param .align 64 .b8 other[128], .param .u64 out)
{
.reg .pred %p; .reg .b16 %h<3>; .reg .b32 %c<5>, %i, %x, %at; .reg .b64 %map, %other, %out;
mov.b64 %map, map;
cvta.param.u64 %map, %map;
mov.b64 %other, other;
cvta.param.u64 %other, %other;
mbarrier.init.shared.b64 [bar], 1;
fence.mbarrier_init.release.cluster;
mbarrier.arrive.expect_tx.shared.b64 _, [bar], 384;
SETUP
cp.async.bulk.prefetch.tensor.RANKd.L2.global.im2col [%map, {AT}], {BY};
cp.async.bulk.tensor.RANKd.SHARED.global.im2col.mbarrier::complete_tx::bytesMORE [tile], [%map, {AT}], [bar], {BY}MASK;
waits:
mbarrier.try_wait.parity.shared.b64 %p, [bar], 0;
@!%p bra waits;
cp.async.bulk.tensor.RANKd.global.shared::cta.im2col_no_offs.bulk_group [%other, {AT}], [tile];
cp.async.bulk.commit_group;
cp.async.bulk.wait_group 0;
cp.reduce.async.bulk.tensor.RANKd.global.shared::cta.add.im2col_no_offs.bulk_group [%other, {AT}], [tile];
cp.async.bulk.commit_group;
cp.async.bulk.wait_group 0;
ld.param.u64 %out, [out];
mov.u32 %i, 0;
mov.u32 %at, tile;
next:
ld.shared.b32 %x, [%at];
st.global.b32 [%out], %x;
add.u32 %at, %at, 4;
add.u64 %out, %out, 4;
add.u32 %i, %i, 1;
setp.lt.u32 %p, %i, 96;
@%p bra next;
ret;
}
"""
RUN_PIXELS = """import ctypes, sys
from ctypes import byref, c_int, c_uint32, c_uint64, c_void_p
cuda = ctypes.CDLL("libcuda.so.1")
folder, rank = sys.argv[1], int(sys.argv[2])
sizes, lower, upper, steps = (list(map(int, text.split(","))) for text in sys.argv[3:])
context, module, function, data, other, out = (c_void_p() for _ in range(6))
cuda.cuInit(0), cuda.cuDevicePrimaryCtxRetain(byref(context), 0), cuda.cuCtxSetCurrent(context)
source, result = open(folder + "/in.bin", "rb").read(), ctypes.create_string_buffer(384)
cuda.cuMemAlloc_v2(byref(data), c_uint64(len(source))), cuda.cuMemAlloc_v2(byref(out), c_uint64(384))
cuda.cuMemAlloc_v2(byref(other), c_uint64(len(source))), cuda.cuMemsetD8_v2(other, 0, c_uint64(len(source)))
cuda.cuMemcpyHtoD_v2(data, source, c_uint64(len(source)))
memory = ctypes.create_string_buffer(384)
at = (ctypes.addressof(memory) + 63) // 64 * 64
strides = [4 * sizes[0]]
for size in sizes[1:-1]:
    strides.append(strides[-1] * size)
for place, tensor in ((at, data), (at + 128, other)):
    made = cuda.cuTensorMapEncodeIm2col(
        c_void_p(place), 2, rank, tensor, (c_uint64 * rank)(*sizes), (c_uint64 * (rank - 1))(*strides),
        (c_int * (rank - 2))(*lower), (c_int * (rank - 2))(*upper), 8, 12, (c_uint32 * rank)(*steps), 0, 0, 0, 0)
print(made)
if not made:
    cuda.cuModuleLoad(byref(module), (folder + "/k.ptx").encode())
    cuda.cuModuleGetFunction(byref(function), module, b"copy")
    arguments = (c_void_p * 3)(at, at + 128, ctypes.addressof(out))
    assert 0 == cuda.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, arguments, None)
    assert 0 == cuda.cuCtxSynchronize()
    cuda.cuMemcpyDtoH_v2(result, out, c_uint64(384))
    open(folder + "/out.bin", "wb").write(result.raw)
    result = ctypes.create_string_buffer(len(source))
    cuda.cuMemcpyDtoH_v2(result, other, c_uint64(len(source)))
    open(folder + "/other.bin", "wb").write(result.raw)
"""


VARIANTS = {  # the space of the tile, further modifiers, the mask
    "cluster": ("shared::cluster", "", ""),
    "cta": ("shared::cta", "", ""),
    "multicast": ("shared::cluster", ".multicast::cluster.cta_group::1", ", 1"),
    "pair": ("shared::cluster", ".cta_group::2", ""),
}


def pixels_program(start: list[int], offsets: list[int], variant: str = "cluster") -> str:
    """Coordinates and offsets of the first pixel; channels from 4 on of image 1."""
    rank, inner = len(start) + 2, len(start)
    setup = [f"mov.b32 %c{i}, {value};" for i, value in enumerate([4, *start, 1])]
    setup += [f"mov.b16 %h{i}, {value};" for i, value in enumerate(offsets)]
    text = PIXELS.replace("SETUP", "\n".join(setup)).replace("RANK", str(rank))
    for name, value in zip(("SHARED", "MORE", "MASK"), VARIANTS[variant], strict=True):
        text = text.replace(name, value)
    if "cta_group" in text:
        text = text.replace("sm_90a", "sm_100a")
    text = text.replace("AT", ", ".join(f"%c{i}" for i in range(rank)))
    return text.replace("BY", ", ".join(f"%h{i}" for i in range(inner)))


def run_pixels(folder: Path, sizes: list[int], lower: list[int], upper: list[int], steps: list[int]) -> tuple[str, str]:
    (folder / "run.py").write_text(RUN_PIXELS)
    lists = [",".join(map(str, each)) for each in (sizes, lower, upper, steps)]
    arch = "sm_100a" if "sm_100a" in (folder / "k.ptx").read_text() else "sm_90a"
    program = [sys.executable, folder / "run.py", folder, str(len(sizes)), *lists]
    command = [ROOT / "bin/emulated-gpu", "--arch", arch, *program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip(), done.stderr


@pytest.mark.parametrize(
    ("rank", "step", "variant"),
    [(3, 1, "cluster"), (4, 1, "cta"), (4, 2, "cluster"), (4, 1, "multicast"), (4, 1, "pair"), (5, 1, "cluster")],
)
def test_pixels_are_copied_as_a_convolution_reads_them(rank: int, step: int, variant: str, tmp_path: Path) -> None:
    """12 pixels from one near the end of a row on, each moved by the offsets of a filter; zeros beyond the edges. Then
    they are stored without offsets, and added to what was stored."""
    inner = rank - 2
    sizes, lower, upper = [*[16, 5, 4, 3][: rank - 1], 6], [-1, -1, -1][:inner], [-1, 0, -1][:inner]
    start, offsets = [3, 1, 0][:inner], [2, 1, 0][:inner]
    source = (np.arange(np.prod(sizes)) * 7919).astype(np.uint32)
    source.tofile(tmp_path / "in.bin")
    tensor, pixel, image, want = source.reshape(sizes[::-1]), list(start), 1, []
    other = np.zeros_like(tensor)

    def place(moved: list[int]) -> tuple[int | slice, ...] | None:
        at = [a + b for a, b in zip(pixel, moved, strict=True)]
        inside = image < sizes[-1] and all(0 <= a < size for a, size in zip(at, sizes[1:], strict=False))
        return (image, *at[::-1], slice(4, 12)) if inside else None

    for _ in range(12):
        read, written = place(offsets), place([0] * inner)
        want.append(tensor[read] if read else np.zeros(8, np.uint32))
        if written:
            other[written] = 2 * want[-1]
        for i in range(inner):
            pixel[i] += step
            if pixel[i] < sizes[1 + i] + upper[i]:
                break
            pixel[i] = lower[i]
        else:
            image += 1
    (tmp_path / "k.ptx").write_text(pixels_program(start, offsets, variant))
    steps = [1, *[step] * inner, 1]
    assert run_pixels(tmp_path, sizes, lower, upper, steps) == ("0", "")
    assert (np.fromfile(tmp_path / "out.bin", np.uint32).reshape(12, 8) == np.array(want)).all()
    assert (np.fromfile(tmp_path / "other.bin", np.uint32) == other.reshape(-1)).all()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"lower": [-1, -129]}, "corners -129 and -1 of dimension 2: with 4 dimensions they are from -128 to 127"),
        ({"steps": [1, 9, 1, 1]}, "element stride 1 is 9: it must be from 1 to 8"),
        ({"steps": [1, 0, 1, 1]}, "element stride 1 is 0: it must be from 1 to 8"),
    ],
)
def test_a_map_of_pixels_that_is_none_is_refused(changes: dict[str, list[int]], says: str, tmp_path: Path) -> None:
    (tmp_path / "k.ptx").write_text(PIXELS)
    (tmp_path / "in.bin").write_bytes(bytes(4 * 16 * 5 * 4 * 6))
    given = {"sizes": [16, 5, 4, 6], "lower": [-1, -1], "upper": [-1, -1], "steps": [1, 1, 1, 1]} | changes
    made, said = run_pixels(tmp_path, **given)
    assert made == "1" and f"a tensor map is refused: {says}" in said
