"""Figures of the published ladder and of data sheets, from analysis/data/ (its README.md names the sources).

listing = nearest_listing(version.header.config, "v09")
print(listing.name, listing.loop, listing.opcodes["HMMA"])
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path

from analysis.errors import AnalysisError
from analysis.files import read_text
from analysis.ladder.config import KernelConfig, parse_short_form
from analysis.machine_code.opcodes import family
from analysis.table import read_columns

FOLDER = Path(__file__).parents[1] / "data"
PEAK_FACTORS = ("sms", "multiply_adds", "boost_mhz")
PREDICATED = "predicated"  # a row that counts instructions of other rows again


@dataclass(frozen=True)
class PublishedListing:
    """One published listing for sm_80. `opcodes` are those of its KV loop, by family."""

    name: str
    kernel: int
    config: KernelConfig
    registers: int
    stack: int
    loop: int
    loop_hmma: int
    total: int
    opcodes: Mapping[str, int]


@dataclass(frozen=True)
class PublishedSpeed:
    """Percent of FlashAttention-2's speed of one published kernel."""

    kernel: int
    name: str
    a100_4096: float
    a100_mean: float
    rtx3090_4096: float
    rtx3090_mean: float


def _rows(name: str, columns: Iterable[str]) -> list[tuple[str, dict[str, str]]]:
    path = FOLDER / name
    return read_columns(read_text(path), list(columns), str(path))


def _number(where: str, text: str) -> int:
    if not re.fullmatch(r"[0-9]+", text):
        raise AnalysisError(f"{where}: {text!r} is not a number")
    return int(text)


@cache
def listings() -> tuple[PublishedListing, ...]:
    """Every published listing."""
    loops: dict[str, dict[str, int]] = {}
    for where, row in _rows("published_ladder_loops.csv", ("listing", "opcode", "count")):
        loops.setdefault(row["listing"], {})[row["opcode"]] = _number(where, row["count"])
    columns = ["listing", "kernel", "config", "registers", "stack", "loop", "loop_hmma"]
    columns += ["loop_integer_and_moves", "total"]
    found = []
    for where, row in _rows("published_ladder_listings.csv", columns):
        numbers = {name: _number(where, row[name]) for name in columns if name not in ("listing", "config")}
        config = parse_short_form(row["config"])
        opcodes = loops[row["listing"]]
        del numbers["loop_integer_and_moves"]
        found.append(PublishedListing(name=row["listing"], config=config, opcodes=opcodes, **numbers))
    return tuple(found)


@cache
def speeds() -> dict[int, PublishedSpeed]:
    """Published percentages by kernel number."""
    columns = ["a100_4096_percent", "a100_hmean_percent", "rtx3090_4096_percent", "rtx3090_hmean_percent"]
    return {
        int(row["kernel"]): PublishedSpeed(int(row["kernel"]), row["name"], *(float(row[name]) for name in columns))
        for _, row in _rows("published_ladder_speed.csv", ["kernel", "name", *columns])
    }


@cache
def percent_on_h200() -> dict[int, float]:
    """Percent of FlashAttention-2 that the published kernels reach on an H200 at seq 4096, by kernel number."""
    rows = _rows("published_ladder_on_h200.csv", ["kernel", "tflops", "percent_of_fa2"])
    return {int(row["kernel"]): float(row["percent_of_fa2"]) for _, row in rows}


@cache
def peaks() -> dict[str, float]:
    """Dense fp16 TFLOP/s of the data sheets, by the name of the GPU's records.

    A figure must follow from the multiprocessors, their multiply-adds per cycle and the boost clock.
    """
    found = {}
    for where, row in _rows("peaks.csv", ["gpu", "dense_fp16_tflops", *PEAK_FACTORS, "source"]):
        said = _number(where, row["dense_fp16_tflops"])
        computed = 2e-6 * prod(_number(where, row[name]) for name in PEAK_FACTORS)
        if said != round(computed):
            raise AnalysisError(f"{where}: dense_fp16_tflops is {said}; {' · '.join(PEAK_FACTORS)} give {computed:.1f}")
        found[row["gpu"]] = float(said)
    return found


def number_of(version: str) -> int:
    """The number that the published ladder gives to a version; -1 for one between two numbers, such as v00a."""
    return int(version[1:]) if version[1:].isdigit() else -1


def nearest_listing(config: KernelConfig, version: str) -> PublishedListing | None:
    """The listing of the same step that is most like a config: equal if there is one, else of the same blocks."""
    number = number_of(version)

    def distance(listing: PublishedListing) -> tuple[int, int]:
        other = listing.config
        blocks = (other.B_r, other.B_c, other.n_warps) != (config.B_r, config.B_c, config.n_warps)
        fields = sum(a != b for a, b in zip(other.values(), config.values(), strict=True))
        return (int(blocks), fields)

    return min((listing for listing in listings() if listing.kernel == number), key=distance, default=None)


def family_counts(opcodes: Iterable[str]) -> Counter[str]:
    """Opcodes in the families of the published counts; dummies that are never executed count with the others."""
    return Counter(family(opcode) for opcode in opcodes)


def differences(ours: Mapping[str, int], listing: PublishedListing) -> list[tuple[str, int, int]]:
    """(opcode, ours, published) of every family that differs, the largest difference first."""
    names = (ours.keys() | listing.opcodes.keys()) - {PREDICATED}
    rows = [(name, ours.get(name, 0), listing.opcodes.get(name, 0)) for name in names]
    return sorted((row for row in rows if row[1] != row[2]), key=lambda row: (-abs(row[1] - row[2]), row[0]))
