"""Memory traffic that the emulator models for each version's own config: regs/traffic.csv, committed.

    python3 -m analysis traffic --write

Counts are exact and do not depend on the machine. They are modeled from the documented bank and sector rules, not
measured, and no time follows from them.
"""

import argparse
import json

from analysis.errors import DIFFERENT, DONE, AnalysisError
from analysis.files import root, write_if_changed
from analysis.ladder.config import KernelConfig
from analysis.ladder.headers import Version, load_all, load_chosen, load_off_ladder
from analysis.machine_code.subjects import Subject, resolve
from analysis.machine_code.traffic import COLUMNS, HEADS, SEQ, TRAFFIC, Traffic, read_traffic, traffic_path
from analysis.measure import executables
from analysis.measure.records import Problem
from analysis.table import Table, add_table_arguments, print_table

MODELED = Problem("attention", "fp16", 1, HEADS, SEQ, 128, "normal")


def modelled_traffic(subject: Subject) -> dict[str, int] | None:
    """Totals of the emulator's counters for MODELED; None where the executable is not built."""
    path = root() / "bin" / subject.name
    if not path.exists() or subject.config is None:
        return None
    arguments = ["--backend", "emu", "--checks", "off", "--no-check", "--counters", "--json", "-"]
    arguments += ["--config", str(subject.config)]
    arguments += ["--batch", str(MODELED.batch), "--heads", str(MODELED.heads), "--seq", str(MODELED.seq)]
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
        raise AnalysisError(f"bin/{version.version} is missing or cannot be emulated; run `make {version.version}`")
    return Traffic(version.version, str(config), *(totals[name] for name in TRAFFIC))


def to_csv(lines: list[Traffic]) -> str:
    return Table(COLUMNS, [line.cells() for line in sorted(lines, key=lambda line: line.version)]).csv()


def add_traffic_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--version", metavar="VER", help='versions to emulate, such as "v09 v10" (all)')
    parser.add_argument("--write", action="store_true", help="write regs/traffic.csv instead of printing")
    parser.add_argument("--exit-code", action="store_true", help="exit status 1 if regs/traffic.csv differs")
    add_table_arguments(parser)


def run_traffic(args: argparse.Namespace) -> int:
    recorded, production = read_traffic(root()), load_off_ladder(root())
    chosen = load_chosen(root(), args.version)
    if not args.version:
        chosen |= {name: version for name, version in production.items() if name in recorded}
    fresh = {name: emulate(version) for name, version in chosen.items()}
    if args.write:
        there = load_all(root()) | production
        kept = {name: line for name, line in recorded.items() if name in there}
        write_if_changed(traffic_path(root()), to_csv(list((kept | fresh).values())))
    else:
        print_table(Table(COLUMNS, [line.cells() for line in fresh.values()]), args)
    stale = any(recorded.get(name) != line for name, line in fresh.items())
    return DIFFERENT if stale and args.exit_code else DONE
