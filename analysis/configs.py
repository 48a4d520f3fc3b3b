"""`python3 -m analysis configs`: list a set without building anything, say what a version refuses, compare two."""

import argparse
import os

from .config import SET_HELP, KernelConfig, config_set, differences, parse_config
from .errors import DIFFERENT, DONE
from .files import root
from .ladder import Version, load, refusals
from .table import Table, add_table_arguments, emit, print_table


def set_table(configs: list[KernelConfig], version: Version | None) -> Table:
    """One row a configuration: short form, threads, shared memory and, for a version, why it refuses it."""
    rows = [
        (config.short_form(), config.threads(), config.smem_bytes(), *((verdict(version, config),) if version else ()))
        for config in configs
    ]
    return Table(("config", "threads", "smem bytes", *((version.version,) if version else ())), rows)


def verdict(version: Version, config: KernelConfig) -> str:
    """Either "builds" or the first reason against it and how many more there are."""
    reasons = refusals(version, config)
    if not reasons:
        return "builds"
    return reasons[0] + (f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else "")


def add_configs_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--version", metavar="VER", help="the version whose default set and refusals are meant")
    parser.add_argument(
        "--set",
        metavar="SET",
        default=os.environ.get("KERNELS", ""),
        help=f"{SET_HELP}; without it $KERNELS, else default",
    )
    parser.add_argument("--compare", nargs=2, metavar=("A", "B"), help="compare two configurations field by field")
    parser.add_argument("--exit-code", action="store_true", help="with --compare: status 1 when they differ")
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
    version = load(root(), args.version) if args.version else None
    print_table(set_table(config_set(args.set, version.header.config if version else None), version), args)
    return DONE
