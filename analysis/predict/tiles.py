"""The tiles of the versions as the model has them: regs/tiles.csv, from sass/ and regs/ as they are committed.

    python3 -m analysis predict --write          # minutes: every version, every choice of the numbers that are fitted

A tile depends on two numbers that no microbenchmark gave yet. Versions that the choice of these is made by have a row
for each choice, so that docs/predict.md can leave one version out; the others have the chosen ones alone.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from analysis.errors import AnalysisError
from analysis.files import read_text, root
from analysis.ladder.config import KernelConfig, parse_short_form
from analysis.ladder.headers import GRADIENTS, load_all, load_attention, load_fp8
from analysis.predict.clock import Activity, activity_of
from analysis.predict.kernels import committed
from analysis.predict.launch import Kernel, Tile, residents_of, tile_of
from analysis.predict.machine import Machine, read_machine
from analysis.predict.operations import Kind
from analysis.table import Table, read_columns

SIMULATED = {
    "hmma_dispatch": (3.0, 4.0, 5.0, 6.0),
    "wgmma_dispatch": (1.0, 1.5, 2.0),
}
FITTED_BY = tuple(f"v{number:02d}" for number in range(1, 38))
DECODE = "attention/decode"  # a launch of it is divided by keys
GPU = "h200"  # whose description the tiles are of; another GPU differs in what a launch adds
NUMBERS = ("per_pass", "beside", "first", "busiest")
COUNTS = ("mma_sync", "wgmma", "wavefront")  # of a warp in a pass: what takes energy
COLUMNS = ("version", "config", "peeled", "ctas", *COUNTS, *SIMULATED, *NUMBERS)
Choice = tuple[float, ...]  # values of SIMULATED; 0: it plays no part


@dataclass(frozen=True, eq=False)
class Tiles:
    """A version's kernel: its tiles by choice and by resident CTAs, which are `ctas` or one."""

    version: str
    config: KernelConfig
    peeled: bool
    ctas: int
    activity: Activity
    of: dict[Choice, dict[int, Tile]]

    def _choice(self, machine: Machine) -> Choice:
        some = next(iter(self.of))
        return tuple(getattr(machine, name) if value else 0.0 for name, value in zip(SIMULATED, some, strict=True))

    def knows(self, machine: Machine) -> bool:
        """Whether the fitted numbers of a machine were simulated."""
        return self._choice(machine) in self.of

    def at(self, machine: Machine) -> dict[int, Tile]:
        """The tiles for the fitted numbers of a machine."""
        if not self.knows(machine):
            raise AnalysisError(
                f"regs/tiles.csv: no row of {self.version} for {self._choice(machine)}: run `predict --write`"
            )
        return self.of[self._choice(machine)]


def tiles_path(folder: Path) -> Path:
    return folder / "regs/tiles.csv"


def plays(kernel: Kernel) -> dict[str, bool]:
    """Which of SIMULATED matter for a kernel."""
    code = kernel.path.begin + kernel.path.start + kernel.path.loop
    kinds = {each.kind for each in code}
    hmma = any(each.instruction is not None and each.instruction.base == "HMMA" for each in code)
    return {"hmma_dispatch": hmma, "wgmma_dispatch": Kind.WGMMA in kinds}


def choices(kernel: Kernel, machine: Machine, every: bool) -> Iterator[Choice]:
    """The machine's values, and with `every` each other value of one number that matters, beside the machine's."""
    matters = plays(kernel)
    own = tuple(getattr(machine, name) if matters[name] else 0.0 for name in SIMULATED)
    yield own
    for place, (name, values) in enumerate(SIMULATED.items()):
        if every and matters[name]:
            yield from ((*own[:place], value, *own[place + 1 :]) for value in values if value != own[place])


def simulate_version(version: str, machine: Machine, every: bool) -> Tiles:
    of: dict[Choice, dict[int, Tile]] = {}
    kernel = committed(version, machine)
    for choice in choices(kernel, machine, every):
        changed = {name: value for name, value in zip(SIMULATED, choice, strict=True) if value}
        other = machine.with_values(**changed)
        of[choice] = {
            ctas: tile_of(kernel.path, other, residents_of(kernel.config, ctas)) for ctas in sorted({1, kernel.ctas})
        }
    return Tiles(version, kernel.config, kernel.path.peeled, kernel.ctas, activity_of(kernel.path.loop), of)


def all_names() -> list[str]:
    """Kernels of the forward pass that the model may know."""
    living = [name for name in load_attention(root()) if name not in (DECODE, GRADIENTS)]
    return [name for name in load_all(root()) if name >= FITTED_BY[0]] + living + list(load_fp8(root()))


def rows_of(tiles: Tiles) -> Iterator[list[str | float | int]]:
    for choice, by_ctas in sorted(tiles.of.items()):
        for ctas, tile in sorted(by_ctas.items()):
            counts = [_rounded(getattr(tiles.activity, name)) for name in COUNTS]
            numbers = [_rounded(getattr(tile, name)) for name in NUMBERS]
            yield [tiles.version, str(tiles.config), int(tiles.peeled), ctas, *counts, *choice, *numbers]


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
            choice = tuple(float(row[column]) for column in SIMULATED)
            tile = Tile(*(float(row[column]) for column in NUMBERS))
            activity = Activity(*(float(row[column]) for column in COUNTS))
        except ValueError as error:
            raise AnalysisError(f"{where}: {error}") from None
        version, ctas = row["version"], int(row["ctas"])
        old = found.get(version) or Tiles(
            version, parse_short_form(row["config"]), row["peeled"] == "1", ctas, activity, {}
        )
        old.of.setdefault(choice, {})[ctas] = tile
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
    """The tiles of each, or a sentence that says why the model does not know it."""
    machine = read_machine(GPU)
    for name in names:
        try:
            yield simulate_version(name, machine, name in FITTED_BY)
        except AnalysisError as error:
            yield f"{name}: {error}"
