"""Counters of each source line on the emulator: regs/lines.csv, committed for a few versions.

    python3 -m analysis lines v01 v02 --write

Counts are exact and do not depend on the machine; see traffic.py, which keeps the totals of every version.
"""

import argparse
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from analysis.errors import DIFFERENT, DONE, AnalysisError
from analysis.files import read_text, root, write_if_changed
from analysis.ladder.headers import load
from analysis.measure import executables
from analysis.table import Table, add_table_arguments, print_table, read_columns

COLUMNS = ("version", "line", "executed", "wavefronts", "ideal", "sectors")
TIMEOUT = 600.0


@dataclass(frozen=True, order=True)
class Line:
    """One line of a kernel's source. `ideal` is the wavefronts of the same accesses without bank conflicts."""

    version: str
    line: int
    executed: int  # PTX instructions, one a warp
    wavefronts: int  # of shared memory
    ideal: int
    sectors: int  # of 32 bytes, global memory


def lines_of(record: dict[str, Any], version: str) -> list[Line]:
    """The lines of the version's own file in a record that `--counters` made."""
    try:
        rows = record["counters"]["lines"]
        mine = [row for row in rows if row["file"].startswith(f"{version}_")]
        return sorted(Line(version, *(int(row[name]) for name in COLUMNS[1:])) for row in mine)
    except (KeyError, TypeError, ValueError) as error:
        raise AnalysisError(f"{version}: the record holds no counters by source line ({error!r})") from None


def emulate_lines(version: str) -> list[Line]:
    """Run a built version on the emulator's default problem and count."""
    arguments = ["--backend", "emu", "--no-check", "--counters", "--json", "-"]
    outcome = executables.checked(executables.run(executables.find(version), arguments, TIMEOUT))
    if len(outcome.records) != 1:
        raise AnalysisError(f"{version}: {len(outcome.records)} records of one problem on the emulator")
    return lines_of(outcome.records[0], version)


def lines_path(folder: Path) -> Path:
    return folder / "regs/lines.csv"


def read_lines(folder: Path) -> dict[str, list[Line]]:
    """Version to lines from the committed file; empty when there is none."""
    path = lines_path(folder)
    found: dict[str, list[Line]] = {}
    if path.exists():
        for where, row in read_columns(read_text(path), COLUMNS, str(path)):
            try:
                line = Line(row["version"], *(int(row[name]) for name in COLUMNS[1:]))
            except ValueError as error:
                raise AnalysisError(f"{where}: {error}") from None
            found.setdefault(line.version, []).append(line)
    return found


def to_table(lines: list[Line]) -> Table:
    return Table(COLUMNS, [astuple(line) for line in sorted(lines)])


def add_lines_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("versions", nargs="*", metavar="VER", help="built versions (those of regs/lines.csv)")
    parser.add_argument("--write", action="store_true", help="write these versions to regs/lines.csv")
    parser.add_argument("--exit-code", action="store_true", help="exit status 1 if regs/lines.csv differs")
    add_table_arguments(parser)


def run_lines(args: argparse.Namespace) -> int:
    recorded = read_lines(root())
    chosen = args.versions or list(recorded)
    if not chosen:
        raise AnalysisError("regs/lines.csv: not found; name the versions to emulate, such as v01 v02")
    fresh = {load(root(), name).version: emulate_lines(name) for name in chosen}
    table = to_table([line for lines in fresh.values() for line in lines])
    if args.write:
        write_if_changed(lines_path(root()), table.csv())
    else:
        print_table(table, args)
    return DIFFERENT if args.exit_code and any(recorded.get(name) != lines for name, lines in fresh.items()) else DONE
