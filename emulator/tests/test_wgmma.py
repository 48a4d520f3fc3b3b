"""wgmma: sums and descriptors as an H200 has them: hashes in records/wgmma.h200.csv.

The emulator runs the PTX of the very kernels that ran on the GPU.
"""

import csv
from pathlib import Path

import numpy as np
import pytest
from support.emulation import Array, compiled, ptxrun
from vectors import wgmma_integers

from analysis.tests.support.kinds import some_in_check

FOLDER = Path(__file__).parent
WORDS = {"sums": 32, "halves": 16, "tf32": 32, "rows": 2 * 32}  # of a thread, by kernel
SHARED_BYTES = 2 * 32768 + 2048


def recorded() -> dict[str, list[int]]:
    hashes: dict[str, list[int]] = {}
    with (FOLDER / "records/wgmma.h200.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            hashes.setdefault(row["kernel"], []).append(int(row["hash"], 16))
    return hashes


def words_of(kernel: str) -> int:
    """Rows of a CTA's output. Of bytes_44_halves_shared the third part says the type of the sums or their columns."""
    of_thread = (
        {"halves": 2, "256": 128}.get(kernel.split("_")[2], 4) if "bytes" in kernel else WORDS[kernel.split("_")[0]]
    )
    return 128 * of_thread


@pytest.fixture(scope="module")
def ptx(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(FOLDER / "support/kernels/wgmma.cu", tmp_path_factory.mktemp("wgmma"), "compute_90a")


def hashes_of(words: np.ndarray[tuple[int, int], np.dtype[np.uint32]]) -> list[int]:
    """FNV-1a over the words of each row."""
    sums = np.full(len(words), 0xCBF29CE484222325, np.uint64)
    for column in words.T:
        sums = (sums ^ column) * np.uint64(0x100000001B3)
    return sums.tolist()


@pytest.mark.parametrize("kernel", some_in_check(recorded(), list(recorded())[::3]))
def test_wgmma_is_that_of_the_gpu(kernel: str, ptx: Path, tmp_path: Path) -> None:
    want, words, out = recorded()[kernel], words_of(kernel), tmp_path / "out.bin"
    done = ptxrun(
        ptx, "--entry", kernel, "--grid", len(want), "--block", 128, "--smem", SHARED_BYTES,
        "--arg", f"out:f32:{len(want) * words}", "--dump", f"0={out}", "--checks", "off",
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    got = hashes_of(np.fromfile(out, np.uint32).reshape(len(want), words))
    assert [cta for cta in range(len(want)) if got[cta] != want[cta]] == []


@pytest.mark.parametrize("kernel", ["sums_f16_shared", "rows_of_b_transposed", "bytes_45_shared"])
def test_nothing_is_found_in_it(kernel: str, ptx: Path) -> None:
    words = words_of(kernel)
    done = ptxrun(
        ptx, "--entry", kernel, "--grid", 4, "--block", 128, "--smem", SHARED_BYTES, "--arg", f"out:f32:{4 * words}"
    )
    assert (done.returncode, done.stderr) == (0, "")


def chunks_of(rows: Array) -> Array:
    """Rows of 32 bytes as shared memory has them without a swizzle: halves of eight rows are adjacent."""
    return rows.view(np.uint32).reshape(-1, 8, 2, 4).transpose(0, 2, 1, 3)


def fragments_of(rows: Array) -> Array:
    """The four registers of A in each of 128 threads."""
    words = rows.view(np.uint32).reshape(4, 2, 8, 2, 4)  # [warp][upper row][row][half of k][lane of four]
    return words.transpose(0, 2, 4, 3, 1).reshape(128, 4)


def test_products_of_integers(tmp_path: Path) -> None:
    """Sums near both ends of 32 bits: they wrap, or stay there."""
    rng = np.random.default_rng(8)
    a, b = (rng.integers(0, 256, (rows, 32), dtype=np.uint8) for rows in (64, 256))
    before, want = [], []
    for product in wgmma_integers.products():
        shape = 64, product.columns
        ends = np.where(rng.integers(0, 2, shape), 2**31 - 1, -(2**31)) - rng.integers(-300000, 300000, shape)
        c = np.clip(ends, -(2**31), 2**31 - 1)
        before.append(wgmma_integers.registers_of((c % 2**32).astype(np.uint32)).ravel())
        want.append(wgmma_integers.registers_of(product.expected(a, b, c)).ravel())
    tiles = np.concatenate([chunks_of(a).ravel(), chunks_of(b).ravel()])
    inputs = {"tiles": tiles, "fragments": fragments_of(a).ravel(), "sums": np.concatenate(before)}
    ptx, out, arguments = tmp_path / "integers.ptx", tmp_path / "out.bin", []
    ptx.write_text(wgmma_integers.program())
    for name, words in inputs.items():
        words.astype(np.uint32).tofile(tmp_path / name)
        arguments += ["--arg", f"buf:u32:{words.size}:@{tmp_path / name}"]
    done = ptxrun(ptx, "--block", 128, *arguments, "--dump", f"2={out}")
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    starts = np.cumsum([0, *(len(each) for each in want)])
    got = np.fromfile(out, np.uint32)
    wrong = [
        product.instruction().split()[0]
        for product, start, each in zip(wgmma_integers.products(), starts, want, strict=False)
        if (got[start : start + len(each)] != each).any()
    ]
    assert wrong == []


UNUSED = """\
.version 8.0
.target sm_90a
.address_size 64
.entry unused(.param .u64 out)
{
    .reg .b32 %t, %s, %i, %kept<8>; .reg .f32 %d<4>; .reg .b64 %out, %A;
    .shared .align 128 .b8 tile[2304];
    mov.u32 %t, %tid.x; mov.u32 %s, tile; mad.lo.s32 %i, %t, 16, %s;
    st.shared.v4.b32 [%i], {0x3c003c00, 0x3c003c00, 0x3c003c00, 0x3c003c00}; fence.proxy.async;
    bar.sync 0;
    shr.u32 %s, %s, 4; cvt.u64.u32 %A, %s; add.s64 %A, %A, 0x1000080000; wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%d0, %d1, %d2, %d3}, %A, %A, 0, 1, 1, 0, 0;
    wgmma.commit_group.sync.aligned;
    KEEP
    wgmma.wait_group.sync.aligned 0; ld.param.u64 %out, [out]; mad.wide.u32 %out, %t, 32, %out;
    st.global.v4.b32 [%out], {%kept0, %kept1, %kept2, %kept3};
    st.global.v4.b32 [%out+16], {%kept4, %kept5, %kept6, %kept7};
    ret;
}
"""


def test_accumulators_that_nothing_reads_share_no_register(tmp_path: Path) -> None:
    """They are written when the product lands, and must not overwrite what came after it was issued."""
    keep = "\n    ".join(f"add.s32 %kept{i}, %t, {i};" for i in range(8))
    (tmp_path / "unused.ptx").write_text(UNUSED.replace("KEEP", keep))
    done = ptxrun(
        tmp_path / "unused.ptx", "--block", 128, "--arg", "out:u32:1024", "--dump", f"0={tmp_path / 'out.bin'}"
    )
    assert (done.returncode, done.stderr) == (0, "")
    want = np.arange(128)[:, None] + np.arange(8)
    assert (np.fromfile(tmp_path / "out.bin", np.uint32).reshape(128, 8) == want).all()
