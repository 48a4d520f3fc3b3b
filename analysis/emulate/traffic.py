"""Memory traffic that the emulator models for each version's own config: regs/traffic.csv, committed.

    python3 -m analysis traffic --write

Counts are exact and do not depend on the machine. They are modelled from the documented bank and sector rules, not
measured, and no time follows from them.
"""

import argparse
import json
import re
from dataclasses import dataclass
from pathlib import Path

from analysis.errors import DIFFERENT, DONE, AnalysisError
from analysis.files import read_text, root, write_if_changed
from analysis.ladder.config import KernelConfig
from analysis.ladder.headers import Version, load_all, load_chosen
from analysis.machine_code.subjects import Subject, resolve
from analysis.measure import executables
from analysis.measure.records import Problem
from analysis.table import Cell, Table, add_table_arguments, print_table, read_columns

TRAFFIC = ("executed", "wavefronts", "ideal", "sectors")
COLUMNS = ("version", "config", *TRAFFIC)
# Fills the emulator's 16 multiprocessors with CTAs of 256 rows, so that a split tail has nothing to split.
MODELLED = Problem("attention", "fp16", 1, 8, 512, 128, "normal")


@dataclass(frozen=True)
class Traffic:
    """Totals over the problem MODELLED. `ideal` is the wavefronts of the same accesses without conflicts."""

    version: str
    config: str
    executed: int  # PTX instructions, one a warp
    wavefronts: int
    ideal: int
    sectors: int  # of 32 bytes, global memory

    def cells(self) -> list[Cell]:
        return [self.version, self.config, self.executed, self.wavefronts, self.ideal, self.sectors]


def traffic_path(folder: Path) -> Path:
    return folder / "regs/traffic.csv"


def read_traffic(folder: Path) -> dict[str, Traffic]:
    """Version to traffic from the committed file; empty when there is none."""
    path = traffic_path(folder)
    if not path.exists():
        return {}
    found = {}
    for where, row in read_columns(read_text(path), COLUMNS, str(path)):
        for name in TRAFFIC:
            if not re.fullmatch(r"[0-9]+", row[name]):
                raise AnalysisError(f"{where}: {name} = {row[name]!r}: not a number")
        found[row["version"]] = Traffic(row["version"], row["config"], *(int(row[name]) for name in TRAFFIC))
    return found


def modelled_traffic(subject: Subject) -> dict[str, int] | None:
    """Totals of the emulator's counters for MODELLED; None where the executable is not built."""
    path = root() / "bin" / subject.name
    if not path.exists() or subject.config is None:
        return None
    arguments = ["--backend", "emu", "--checks", "off", "--no-check", "--counters", "--json", "-"]
    arguments += ["--config", str(subject.config)]
    arguments += ["--batch", str(MODELLED.batch), "--heads", str(MODELLED.heads), "--seq", str(MODELLED.seq)]
    outcome = executables.run_command([str(path), *arguments], 60)
    if outcome.status:
        return None
    return traffic_of(outcome.stdout)


def traffic_of(text: str) -> dict[str, int] | None:
    """The totals in an emulator record; None where the record holds no counters."""
    try:
        record = json.loads(text.strip().splitlines()[-1])
        total = record["counters"]["total"]
        return {name: int(total[name]) for name in TRAFFIC}
    except (ValueError, KeyError, IndexError, TypeError):
        return None


def emulate(version: Version) -> Traffic:
    """Run a built version on the emulator and count."""
    config: KernelConfig = version.header.config
    totals = modelled_traffic(resolve(version.version))
    if totals is None:
        raise AnalysisError(f"bin/{version.version} is missing or can't be emulated: run `make {version.version}`")
    return Traffic(version.version, str(config), *(totals[name] for name in TRAFFIC))


def to_csv(lines: list[Traffic]) -> str:
    return Table(COLUMNS, [line.cells() for line in sorted(lines, key=lambda line: line.version)]).csv()


def add_traffic_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--version", metavar="VER", help='versions to emulate, such as "v09 v10"; all without it')
    parser.add_argument("--write", action="store_true", help="write regs/traffic.csv instead of printing")
    parser.add_argument("--exit-code", action="store_true", help="status 1 when regs/traffic.csv says otherwise")
    add_table_arguments(parser)


def run_traffic(args: argparse.Namespace) -> int:
    recorded = read_traffic(root())
    fresh = {name: emulate(version) for name, version in load_chosen(root(), args.version).items()}
    if args.write:
        there = load_all(root())
        kept = {name: line for name, line in recorded.items() if name in there}
        write_if_changed(traffic_path(root()), to_csv(list((kept | fresh).values())))
    else:
        print_table(Table(COLUMNS, [line.cells() for line in fresh.values()]), args)
    stale = any(recorded.get(name) != line for name, line in fresh.items())
    return DIFFERENT if stale and args.exit_code else DONE
