"""The Hopper versions whose m may lag behind: inputs on both sides of the threshold, in no, some and all rows.

Q is 1 in column 0 of the chosen rows and 0 elsewhere, so that a score is K's column 0 divided by sqrt(128). In each
block one key has the block's level, the others lie 240 below it. In v31 to v34 m catches up where an exponential
would be more than 2^8, by four shuffles of a warp. From v35 on it catches up where the exponentials of a lane add up
to more than 2^15 in fp16 or 2^60 in bf16, after the warp has computed its scores again by mma.sync.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from support.emulation import Array
from support.versions import D_HEAD, Launch, Version, first_in_check, versions

from analysis.ladder.config import KernelConfig

SEQ = 512
CONFIGS = {version: version.config for version in versions()}
VERSIONS = [version for version in CONFIGS if CONFIGS[version].lazy_rescale and CONFIGS[version].tensor_copies]
WARP_ROWS = 16
SHUFFLES = 4  # of update_m, and as many of divide_O_by_l
MMA = 8 * 16  # of one warp and block, to compute its scores again

# A level stands for level * log2(e) / sqrt(128) binary places: 62.5 for 7.97, 63 for 8.03; 117.5 for 14.98, 118 for
# 15.05; 470 for 59.94, 472 for 60.19. All are exact in both types.
LEVELS = {("lazy", "fp16"): (62.5, 63.0), ("lazy", "bf16"): (62.5, 63.0), ("first_max", "fp16"): (117.5, 118.0),
          ("first_max", "bf16"): (470.0, 472.0)}  # fmt: skip
ROWS = {
    "no row": slice(0, 0),
    "a warp's rows": slice(144, 160),
    "a row of two warps": slice(47, 49),
    "all": slice(None),
}


@dataclass(frozen=True)
class GivenInputs(Launch):
    """A launch whose Q, K and V come from the files q, k and v of a folder."""

    folder: Path = Path()

    def options(self) -> list[str]:
        options = super().options()
        for name in "qkv":
            place = next(i for i, option in enumerate(options) if ":rand" in option)
            options[place] = options[place].replace(":rand", f":@{self.folder / name}", 1)
        return options


def bits(values: Array, dtype: str) -> Array:
    if dtype == "fp16":
        return values.astype(np.float16).view(np.uint16)
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def write_inputs(folder: Path, dtype: str, config: KernelConfig, level: float, rows: slice) -> None:
    """The second and the last block have the level, the others level 0."""
    B_c = config.B_c
    rng = np.random.default_rng(1)
    q, k, v = np.zeros((3, SEQ, D_HEAD))
    q[rows, 0] = 1
    v[:] = rng.integers(-8, 9, v.shape) / 8
    turns = range(SEQ // B_c)
    for block in turns:
        top = level if block in (1, turns[-1]) else 0.0
        k[block * B_c : (block + 1) * B_c, 0] = top - 240
        k[block * B_c + rng.integers(B_c), 0] = top
    for name, values in zip("qkv", (q, k, v), strict=True):
        bits(values, dtype).tofile(folder / name)


def executed(path: Path, words: str) -> int:
    with path.open(newline="") as file:
        return sum(int(row["executed"]) for row in csv.DictReader(file) if row["ptx"].startswith(words))


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("above", [False, True], ids=["below", "above"])
@pytest.mark.parametrize("dtype", ["fp16", pytest.param("bf16", marks=pytest.mark.long)])
@pytest.mark.parametrize("version", first_in_check(VERSIONS, and_last=True))
def test_a_warp_catches_up_where_the_threshold_says(
    version: Version, dtype: str, above: bool, rows: str, tmp_path: Path
) -> None:
    launch = GivenInputs(version.entry(dtype), seq=SEQ, folder=tmp_path)
    kind = "first_max" if launch.config.first_max else "lazy"
    write_inputs(tmp_path, dtype, launch.config, LEVELS[kind, dtype][above], ROWS[rows])
    ratio, said = launch.worst(version.ptx, tmp_path, "--counters-csv", tmp_path / "counters.csv")
    assert ratio <= 1, f"largest error is {ratio} of its bound\n{said}"
    warps = SEQ // WARP_ROWS
    late = len({row // WARP_ROWS for row in range(SEQ)[ROWS[rows]]}) if above else 0  # warps that catch up once
    shuffles = executed(tmp_path / "counters.csv", "shfl.sync.bfly")
    assert shuffles == SHUFFLES * (2 * warps + late)
    assert executed(tmp_path / "counters.csv", "mma.sync") == (MMA * late if kind == "first_max" else 0)
