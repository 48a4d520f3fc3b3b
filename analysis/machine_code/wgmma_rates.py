"""The speed of wgmma, as measured on a GPU: logs/bench/wgmma.GPU.json, from the microbenchmark in harness/device/.

    rates = read_rates(root(), "sm_90a")    # None where nothing is recorded
    if rates: print(rates.cycles(128, 16), rates.with_companion("FFMA"))

The record holds an object a measurement: the shape m64nNkK, where A comes from, what ran with it, and the cycles of
one wgmma at full rate. A bound takes the least of those measured, as it is the least time.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from analysis.errors import AnalysisError
from analysis.files import read_text

NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class Rate:
    """One measurement."""

    n: int
    k: int
    a: str  # "smem" or "registers"
    companion: str  # the opcode of instructions that run with it, "" for none
    cycles: float  # of one wgmma
    companion_cycles: float | None  # of one of those instructions


@dataclass(frozen=True)
class Companion:
    """The cost of an instruction to wgmma, and of wgmma to it."""

    opcode: str
    alone: float  # cycles of a wgmma
    cycles: float  # of the same wgmma with it
    own_cycles: float | None  # of the instruction


@dataclass(frozen=True)
class Rates:
    rates: tuple[Rate, ...]

    def cycles(self, n: int, k: int) -> float | None:
        """Least cycles of one m64nNkK; where this N was not measured, in proportion to the next larger one's."""
        alone = [rate for rate in self.rates if not rate.companion and rate.k == k and rate.n >= n]
        if not alone:
            return None
        nearest = min(rate.n for rate in alone)
        return min(rate.cycles for rate in alone if rate.n == nearest) * n / nearest

    def with_companion(self, opcode: str) -> Companion | None:
        """The largest shape that was measured both alone and with an instruction, A from the same memory."""
        for rate in sorted(self.rates, key=lambda each: -each.n):
            alone = [
                each
                for each in self.rates
                if (each.n, each.k, each.a) == (rate.n, rate.k, rate.a) and not each.companion
            ]
            if rate.companion == opcode and alone:
                return Companion(opcode, min(each.cycles for each in alone), rate.cycles, rate.companion_cycles)
        return None


def read_rates(folder: Path, arch: str) -> Rates | None:
    """The rates measured on GPUs of an architecture; None if none is recorded."""
    files = sorted((folder / "logs/bench").glob("wgmma.*.json"))
    found = [rate for path in files for rate in _read_once(path, path.stat().st_mtime_ns, arch)]
    return Rates(tuple(found)) if found else None


@lru_cache(maxsize=8)
def _read_once(path: Path, _: int, arch: str) -> tuple[Rate, ...]:
    return tuple(parse_rates(read_text(path), str(path), arch))


def parse_rates(text: str, name: str, arch: str) -> Iterator[Rate]:
    """The measurements of a record of that architecture; an AnalysisError names a field that is not as it should be."""
    try:
        record = json.loads(text)
        capability = record["device"]["cc"].replace(".", "")
        rows = record["wgmma"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise AnalysisError(f"{name}: not a record of wgmma rates: {error!r}") from None
    if f"sm_{capability}" != arch.rstrip("af"):
        return
    for number, row in enumerate(rows):
        yield _rate(row, f"{name}: wgmma[{number}]")


def _rate(row: dict[str, Any], where: str) -> Rate:
    wanted: dict[str, tuple[type, ...]] = {
        "n": (int,),
        "k": (int,),
        "a": (str,),
        "companion": (str,),
        "cycles": (int, float),
    }
    for field, types in wanted.items():
        if not isinstance(row.get(field), types):
            raise AnalysisError(f"{where}: {field} = {row.get(field)!r}: expected {types[-1].__name__}")
    if row["cycles"] <= 0:
        raise AnalysisError(f"{where}: cycles = {row['cycles']!r}: expected a positive number")
    own = row.get("companion_cycles")
    return Rate(
        row["n"], row["k"], row["a"], row["companion"], float(row["cycles"]), None if own is None else float(own)
    )
