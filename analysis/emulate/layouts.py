"""Fragment layouts and the positions of chunks in shared memory: regs/layouts.csv, drawn in docs/learn.

    make emu-lib && python3 -m analysis layouts --write

The kernels' own functions say it: analysis/emulate/probes/ calls them on the emulator with matrices whose numbers name
their own position.
"""

import argparse
import importlib.util
import itertools
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.errors import DIFFERENT, DONE, AnalysisError
from analysis.files import read_text, root, write_if_changed
from analysis.table import Cell, Table, add_table_arguments, print_table, read_columns

COLUMNS = ("layout", "who", "holds")
TILE = 16  # rows and columns of the blocks that are asked about
CHUNKS, CHUNK_BYTES = 16, 16  # of a row of 128 elements
Array = Any  # of NumPy, which only the probes need
Location = tuple[int, int]  # row and column


@dataclass(frozen=True)
class Held:
    """The elements of one thread in the order of its registers, or the chunks of one row in the order of shared memory.

    `layout` is "A", "B of K", "B of V", "S", "P", "wgmma S", "address", "plain" or "swizzled". `holds` are rows and
    columns; columns of "address", "plain" and "swizzled" count chunks of 8 elements.
    """

    layout: str
    who: int
    holds: tuple[Location, ...]


def _emulator() -> Any:
    path = root() / "lib/emu.py"
    if not path.exists():
        raise AnalysisError("lib/emu.py: not built; run `make emu-lib`")
    if "emu" not in sys.modules:
        spec = importlib.util.spec_from_file_location("emu", path)
        assert spec and spec.loader
        sys.modules["emu"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules["emu"])
    return sys.modules["emu"]


def _probe(name: str, arch: str) -> Any:
    folder = Path("analysis/emulate/probes")
    flags = [f"-I{root()}", f"-I{root() / folder}", "-std=c++20", f"-arch=compute_{arch}"]
    return _emulator().Module(root() / folder / name, flags)


def _locations(layout: str, numbers: Array, columns: int = TILE) -> list[Held]:
    """Each thread's numbers, which are row * columns + column, as positions."""
    return [
        Held(layout, thread, tuple(divmod(int(number), columns) for number in mine))
        for thread, mine in enumerate(numbers)
    ]


def _scores(rows: int) -> tuple[Array, Array]:
    """Q and K in fp16 with Q K^T = 16 * row + key for the first 16 keys, every number exact."""
    import numpy as np

    Q, K = np.zeros((rows, 128), np.float16), np.zeros((rows, 128), np.float16)
    Q[:, 0], Q[:, 1] = TILE * np.arange(rows), 1
    K[:, 0], K[:, 1] = 1, np.arange(rows)
    return Q.view(np.uint16), K.view(np.uint16)


def emulate_layouts() -> list[Held]:
    """Run the probes on the emulator."""
    import numpy as np

    probe = _probe("layouts.cu", "80")
    swizzled, plain = np.zeros((32, CHUNKS), np.uint32), np.zeros((32, CHUNKS), np.uint32)
    probe["offsets"][1, 32](swizzled, plain)
    address = np.zeros(32, np.uint32)
    probe["addresses"][1, 32](address)
    found = _locations("address", address[:, None] // CHUNK_BYTES, CHUNKS)
    for layout, offsets in (("plain", plain), ("swizzled", swizzled)):
        chunk_at = np.argsort(offsets, axis=1)
        found += [Held(layout, row, tuple((row, int(chunk)) for chunk in chunk_at[row])) for row in range(8)]

    block = np.zeros((32, 128), np.uint16)
    block[:TILE, :TILE] = np.arange(TILE * TILE).reshape(TILE, TILE)
    held = [np.zeros((32, 4), np.uint32) for _ in range(3)]
    probe["operands"][1, 32](block, *held)
    for layout, registers in zip(("A", "B of K", "B of V"), held, strict=True):
        found += _locations(layout, registers.view(np.uint16))

    S, P = np.zeros((32, 8), np.float32), np.zeros((32, 4), np.uint32)
    probe["scores"][1, 32](*_scores(32), S, P)
    found += _locations("S", S) + _locations("P", P.view(np.float16))

    S = np.zeros((128, 8), np.float32)
    Q, K = _scores(64)
    _probe("layouts_wgmma.cu", "90a")["scores"][1, 128, 2 * Q.nbytes](Q, K, S)
    return found + _locations("wgmma S", S)


# ---- the committed file ----------------------------------------------------------------------------------------------


def layouts_path(folder: Path) -> Path:
    return folder / "regs/layouts.csv"


def table(found: Sequence[Held]) -> Table:
    """One row per thread or row; positions as row.column."""
    rows: list[list[Cell]] = []
    for one in found:
        rows.append([one.layout, one.who, " ".join(f"{row}.{column}" for row, column in one.holds)])
    return Table(COLUMNS, rows)


def read_layouts(folder: Path) -> dict[str, list[Held]]:
    """Layout to what each thread holds, from the committed file; empty when there is none."""
    path = layouts_path(folder)
    if not path.exists():
        return {}
    found = []
    for where, row in read_columns(read_text(path), COLUMNS, str(path)):
        try:
            locations = [location.split(".") for location in row["holds"].split()]
            holds = tuple((int(at), int(column)) for at, column in locations)
            found.append(Held(row["layout"], int(row["who"]), holds))
        except ValueError as error:
            raise AnalysisError(f"{where}: {error}") from None
    return {layout: list(held) for layout, held in itertools.groupby(found, lambda one: one.layout)}


def add_layouts_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--write", action="store_true", help="write them to regs/layouts.csv")
    parser.add_argument("--exit-code", action="store_true", help="exit status 1 if regs/layouts.csv differs")
    add_table_arguments(parser)


def run_layouts(args: argparse.Namespace) -> int:
    fresh = table(emulate_layouts())
    path = layouts_path(root())
    stale = not path.exists() or read_text(path) != fresh.csv()
    if args.write:
        write_if_changed(path, fresh.csv())
    else:
        print_table(fresh, args)
    return DIFFERENT if args.exit_code and stale else DONE
