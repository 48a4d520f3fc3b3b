"""The tiles of the versions as the model has them: regs/tiles.csv, from sass/ and regs/ as they are committed.

    python3 -m analysis predict --write          # every version, on all processors

Nothing that a tile depends on is fitted to times: what is plays a part in the launch alone (launch.py, clock.py).
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from multiprocessing import Pool
from pathlib import Path

from analysis.errors import AnalysisError
from analysis.files import read_text, root
from analysis.ladder.config import KernelConfig, parse_short_form
from analysis.ladder.headers import GRADIENTS, load_all, load_attention, load_fp8
from analysis.predict.clock import Activity, activity_of
from analysis.predict.kernels import committed
from analysis.predict.launch import Foreign, Tile, residents_of, tile_of
from analysis.predict.machine import Machine, read_machine
from analysis.predict.multiprocessor import STALLS
from analysis.table import Table, read_columns

FITTED_BY = tuple(f"v{number:02d}" for number in range(1, 38))
DECODE = "attention/decode"  # a launch of it is divided by keys
GPU = "h200"  # whose description the tiles are of; another GPU differs in what a launch adds
NUMBERS = ("per_pass", "outside", "first", "busiest")
COUNTS = ("mma_sync", "wgmma", "wavefront")  # of a warp in a pass: what takes energy
STALL_COLUMNS = tuple(f"stall_{kind}" for kind in STALLS)
COLUMNS = ("version", "config", "peeled", "ctas", *COUNTS, *NUMBERS, *STALL_COLUMNS)


@dataclass(frozen=True, eq=False)
class Tiles:
    """A version's kernel: its tiles by resident CTAs, which are `ctas` or one."""

    version: str
    config: KernelConfig
    peeled: bool
    ctas: int
    activity: Activity
    of: dict[int, Tile]


def tiles_path(folder: Path) -> Path:
    return folder / "regs/tiles.csv"


def simulate_version(version: str, machine: Machine) -> Tiles:
    kernel = committed(version, machine)
    config = kernel.config
    assert not isinstance(config, Foreign), "a version has a config"
    of = {ctas: tile_of(kernel.path, machine, residents_of(config, ctas)) for ctas in sorted({1, kernel.ctas})}
    return Tiles(version, config, kernel.path.peeled, kernel.ctas, activity_of(kernel.path.loop), of)


def all_names() -> list[str]:
    """Kernels of the forward pass that the model may know."""
    living = [name for name in load_attention(root()) if not name.startswith(DECODE) and name not in GRADIENTS]
    return [name for name in load_all(root()) if name >= FITTED_BY[0]] + living + list(load_fp8(root()))


def rows_of(tiles: Tiles) -> Iterator[list[str | float | int]]:
    for ctas, tile in sorted(tiles.of.items()):
        counts = [_rounded(getattr(tiles.activity, name)) for name in COUNTS]
        numbers = [_rounded(getattr(tile, name)) for name in NUMBERS]
        stalls = [f"{stall:.3f}" for stall in tile.stalls or [0.0] * len(STALLS)]
        yield [tiles.version, str(tiles.config), int(tiles.peeled), ctas, *counts, *numbers, *stalls]


def _rounded(number: float) -> float:
    return float(f"{number:.6g}")


def tiles_text(every: Iterable[Tiles]) -> str:
    return Table(COLUMNS, [row for tiles in every for row in rows_of(tiles)]).csv()


def parse_tiles(text: str, name: str) -> dict[str, Tiles]:
    found: dict[str, Tiles] = {}
    for where, row in read_columns(text, COLUMNS, name):
        if not re.fullmatch("[0-9]{1,3}", row["ctas"]) or row["peeled"] not in ("0", "1"):
            raise AnalysisError(f"{where}: ctas = {row['ctas']!r}, peeled = {row['peeled']!r}: not understood")
        try:
            stalls = tuple(float(row[column]) for column in STALL_COLUMNS)
            per_pass, outside, first, busiest = (float(row[column]) for column in NUMBERS)
            tile = Tile(per_pass, outside, first, busiest, stalls)
            activity = Activity(*(float(row[column]) for column in COUNTS))
        except ValueError as error:
            raise AnalysisError(f"{where}: {error}") from None
        version, ctas = row["version"], int(row["ctas"])
        old = found.get(version) or Tiles(
            version, parse_short_form(row["config"]), row["peeled"] == "1", ctas, activity, {}
        )
        old.of[ctas] = tile
        found[version] = replace(old, ctas=max(old.ctas, ctas))
    return found


def read_tiles(folder: Path) -> dict[str, Tiles]:
    """By version; AnalysisError where the record is missing."""
    path = tiles_path(folder)
    return _read_once(path, path.stat().st_mtime_ns if path.exists() else 0)


@lru_cache(maxsize=2)
def _read_once(path: Path, _: int) -> dict[str, Tiles]:
    return parse_tiles(read_text(path), str(path))


def simulated_all(names: Iterable[str]) -> Iterator[Tiles | str]:
    """The tiles of each, or a sentence that says why the model does not know it; on all processors."""
    with Pool() as pool:
        yield from pool.imap(_simulated, names)


def _simulated(name: str) -> Tiles | str:
    try:
        return simulate_version(name, read_machine(GPU))
    except AnalysisError as error:
        return f"{name}: {error}"
