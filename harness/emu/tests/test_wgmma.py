"""wgmma: sums and descriptors as an H200 has them, as wgmma.h200.csv holds them (wgmma_record.cu wrote it).

The emulator runs the PTX of the very kernels that ran on the GPU.
"""

from __future__ import annotations

import csv
import subprocess
from pathlib import Path

import numpy as np
import pytest
from support.emulation import ROOT, ptxrun

FOLDER = Path(__file__).parent
NVCC = ROOT / ".venv/toolkit/bin/nvcc"
WORDS = {"sums": 128 * 32, "rows": 2 * 128 * 32}
SHARED_BYTES = 2 * 32768 + 2048


def recorded() -> dict[str, list[int]]:
    hashes: dict[str, list[int]] = {}
    with (FOLDER / "records/wgmma.h200.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            hashes.setdefault(row["kernel"], []).append(int(row["hash"], 16))
    return hashes


@pytest.fixture(scope="module")
def ptx(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("wgmma") / "wgmma.ptx"
    source = FOLDER / "wgmma_record.cu"
    subprocess.run([NVCC, "-std=c++20", "-O3", "-arch=compute_90a", "-ptx", "-o", path, source], check=True)
    return path


def hashes_of(words: np.ndarray[tuple[int, int], np.dtype[np.uint32]]) -> list[int]:
    """FNV-1a over the words of each row."""
    sums = np.full(len(words), 0xCBF29CE484222325, np.uint64)
    for column in words.T:
        sums = (sums ^ column) * np.uint64(0x100000001B3)
    return sums.tolist()


@pytest.mark.parametrize("kernel", recorded())
def test_wgmma_is_that_of_the_gpu(kernel: str, ptx: Path, tmp_path: Path) -> None:
    want, words, out = recorded()[kernel], WORDS[kernel.split("_")[0]], tmp_path / "out.bin"
    done = ptxrun(
        ptx, "--entry", kernel, "--grid", len(want), "--block", 128, "--smem", SHARED_BYTES,
        "--arg", f"out:f32:{len(want) * words}", "--dump", f"0={out}", "--checks", "off",
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    got = hashes_of(np.fromfile(out, np.uint32).reshape(len(want), words))
    assert [cta for cta in range(len(want)) if got[cta] != want[cta]] == []


@pytest.mark.parametrize("kernel", ["sums_f16_shared", "rows_of_b_transposed"])
def test_nothing_is_found_in_it(kernel: str, ptx: Path) -> None:
    words = WORDS[kernel.split("_")[0]]
    done = ptxrun(
        ptx, "--entry", kernel, "--grid", 4, "--block", 128, "--smem", SHARED_BYTES, "--arg", f"out:f32:{4 * words}"
    )
    assert (done.returncode, done.stderr) == (0, "")
