"""The versions whose m may lag behind: inputs built around the threshold of 2^8, and how often each of them rescales.

Q is 1 in column 0 and 0 elsewhere, so that a score is K's column 0 divided by sqrt(128): a level of 62.5 is 7.97 above
level 0 in units of log2, and 63 is 8.03. Both are exact in fp16 and bf16. One key in each block has the block's level,
the others lie 48 below it.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from support.emulation import Array
from support.versions import D_HEAD, Launch, Version, first_in_check, versions

SEQ = 512
CONFIGS = {version: version.config for version in versions()}
VERSIONS = [version for version in CONFIGS if CONFIGS[version].lazy_rescale and not CONFIGS[version].tensor_copies]
SLICED = [version for version in VERSIONS if version.config.split_tail]
ROWS = 32  # of a warp, in every one of these versions


@dataclass(frozen=True)
class GivenInputs(Launch):
    """A launch whose Q, K and V come from the files q, k and v of a folder, without slices unless asked for."""

    folder: Path = Path()
    slices: bool = False

    def grid(self) -> tuple[int, int, int]:
        return super().grid() if self.slices else (self.seq // self.config.B_r, self.heads, self.batch)

    def options(self) -> list[str]:
        options = super().options()
        for name in "qkv":
            options[-1] = options[-1].replace(":rand", f":@{self.folder / name}", 1)
        return options


def bits(values: Array, dtype: str) -> Array:
    if dtype == "fp16":
        return values.astype(np.float16).view(np.uint16)
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def write_inputs(folder: Path, launch: Launch, dtype: str, levels: Sequence[float], rows: slice) -> None:
    """Blocks in the order of the version: from the last on where it has no ring."""
    rng = np.random.default_rng(1)
    q, k, v = np.zeros((3, SEQ, D_HEAD))
    q[rows, 0] = 1
    v[:] = rng.integers(-8, 9, v.shape) / 8  # exact in bf16
    B_c = launch.config.B_c
    assert SEQ // B_c == len(levels)
    for block, level in enumerate(levels if launch.config.stages else levels[::-1]):
        k[block * B_c : (block + 1) * B_c, 0] = level - 48
        k[block * B_c + rng.integers(B_c), 0] = level
    for name, values in zip("qkv", (q, k, v), strict=True):
        bits(values, dtype).tofile(folder / name)


# levels of the eight blocks; times that a warp rescales, the first block included
CASES: dict[str, tuple[Sequence[float], int]] = {
    "always the same": ([0] * 8, 1),
    "just below the threshold": ([0] + [62.5] * 7, 1),
    "just above the threshold": ([0] + [63] * 7, 2),
    "below and above by turns": ([62 * block for block in range(8)], 4),
    "growing in every block": ([128 * block for block in range(8)], 8),
    "falling in every block": ([1024 - 128 * block for block in range(8)], 1),
    "very negative": ([-8192] * 8, 1),
    "very negative, then growing": ([-8192, -8192, -8192, -8192, -4096, -4096, 0, 0], 3),
    "the last block alone": ([-1024] * 7 + [1024], 2),
}


def rescales(path: Path) -> int:
    """Times that a warp let m catch up: by 8 shuffles, the first in the code. Those at the end of a Q block follow."""
    with path.open(newline="") as file:
        shuffles = [int(row["executed"]) for row in csv.DictReader(file) if row["ptx"].startswith("shfl.")]
    first = [executed for executed in shuffles if executed][:8]
    assert len(set(first)) == 1
    return first[0]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("version", first_in_check(VERSIONS, and_last=True))
def test_result_and_number_of_rescales(version: Version, case: str, tmp_path: Path) -> None:
    levels, times = CASES[case]
    dtype = "bf16" if version is VERSIONS[-1] else "fp16"
    launch = GivenInputs(version.entry(dtype), SEQ, folder=tmp_path)
    write_inputs(tmp_path, launch, dtype, levels, slice(None))
    counters = tmp_path / "counters.csv"
    error, findings = launch.worst(version.ptx, tmp_path, "--counters-csv", counters)
    assert error <= 1, findings
    assert rescales(counters) == times * (SEQ // ROWS)


@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.name)
def test_one_row_makes_its_warp_rescale_and_no_other(version: Version, tmp_path: Path) -> None:
    launch = GivenInputs(version.entry("fp16"), SEQ, folder=tmp_path)
    write_inputs(tmp_path, launch, "fp16", CASES["growing in every block"][0], slice(77, 78))
    counters = tmp_path / "counters.csv"
    error, findings = launch.worst(version.ptx, tmp_path, "--counters-csv", counters)
    assert error <= 1, findings
    assert rescales(counters) == SEQ // ROWS + 7


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("version", first_in_check(SLICED))
def test_slices_agree_on_a_maximum(version: Version, case: str, tmp_path: Path) -> None:
    """In a slice every warp has blocks, and an m, of its own."""
    launch = GivenInputs(version.entry("fp16"), SEQ, folder=tmp_path, slices=True)
    write_inputs(tmp_path, launch, "fp16", CASES[case][0], slice(None))
    error, findings = launch.worst(version.ptx, tmp_path)
    assert error <= 1, findings


@pytest.mark.parametrize("version", first_in_check(VERSIONS, and_last=True))
def test_a_threshold_beyond_fp16_would_be_seen(version: Version, tmp_path: Path) -> None:
    """With a threshold of 2^25 the exponentials of level 192, 2^24.5, overflow."""
    text = version.text()
    assert "0f41000000" in text  # 8
    broken = tmp_path / "broken.ptx"
    broken.write_text(text.replace("0f41000000", "0f41C80000"))
    launch = GivenInputs(version.entry("fp16"), SEQ, folder=tmp_path)
    write_inputs(tmp_path, launch, "fp16", [0] + [192] * 7, slice(None))
    assert launch.worst(version.ptx, tmp_path)[0] <= 1
    assert launch.worst(broken, tmp_path)[0] > 1
