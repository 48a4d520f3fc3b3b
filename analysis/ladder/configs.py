"""`python3 -m analysis configs`: list a set without building anything, say what a version refuses, compare two."""

import argparse
import os

from analysis.errors import DIFFERENT, DONE
from analysis.files import root
from analysis.ladder.config import FIELDS, PARENTHESIS, SET_HELP, KernelConfig, config_set, differences, parse_config
from analysis.ladder.headers import Version, load_chosen, refusals
from analysis.table import Cell, Table, add_table_arguments, emit, print_table


def fields_table() -> Table:
    """One row for each field that a short form lists after its parenthesis: meaning and first versions."""
    named = [row for row in FIELDS.values() if row.word != PARENTHESIS]
    rows: list[list[Cell]] = [[f"`{row.word}`", row.name, row.help, row.mma_sync, row.wgmma] for row in named]
    return Table(("feature", "field", "meaning", "mma.sync", "wgmma"), rows)


def set_table(set_text: str, versions: list[Version]) -> Table:
    """One row a configuration: short form, threads, shared memory and, for each version, why it refuses it."""
    sets = [config_set(set_text, version.header.config, version.header.additional) for version in versions]
    members = dict.fromkeys(config for members in sets or [config_set(set_text)] for config in members)
    rows: list[list[Cell]] = [
        [config.short_form(), config.threads(), config.smem_bytes(), *(verdict(each, config) for each in versions)]
        for config in members
    ]
    return Table(("config", "threads", "smem bytes", *(version.version for version in versions)), rows)


def verdict(version: Version, config: KernelConfig) -> str:
    """Either "builds" or the first reason against it and how many more there are."""
    reasons = refusals(version, config)
    if not reasons:
        return "builds"
    return reasons[0] + (f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else "")


def add_configs_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--version",
        metavar="VER",
        help='list the default sets and rejected configurations of these versions, such as "v09 v10"',
    )
    parser.add_argument(
        "--set",
        metavar="SET",
        default=os.environ.get("KERNELS", ""),
        help=f"{SET_HELP}; without it $KERNELS, else default",
    )
    parser.add_argument("--compare", nargs=2, metavar=("A", "B"), help="compare two configurations field by field")
    parser.add_argument("--exit-code", action="store_true", help="with --compare: exit status 1 if they differ")
    add_table_arguments(parser)


def run_configs(args: argparse.Namespace) -> int:
    if args.compare:
        a, b = (parse_config(text) for text in args.compare)
        changes = differences(a, b)
        if not changes and not (args.json or args.csv):
            emit(f"equal: {a}\n", args.output)
        else:
            print_table(Table(("field", "A", "B"), changes), args)
        return DIFFERENT if changes and args.exit_code else DONE
    versions = list(load_chosen(root(), args.version).values()) if args.version else []
    print_table(set_table(args.set, versions), args)
    return DONE
