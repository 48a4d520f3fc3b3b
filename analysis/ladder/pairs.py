"""Which config each side of a comparison of two versions uses.

    pair = pair_named("v09", "v10")
    print(pair.a, pair.b, pair.rule)

A step is judged on one config: that of the later version, where the earlier one supports it. Where it does not, the
step is a flag of the config, and each side uses the config of its own header.
"""

import argparse
from dataclasses import dataclass

from analysis.errors import DONE
from analysis.files import root
from analysis.ladder.config import KernelConfig, parse_config
from analysis.ladder.headers import Version, load, refusals
from analysis.table import add_output_arguments, emit, json_text


@dataclass(frozen=True)
class Pair:
    a: KernelConfig
    b: KernelConfig
    rule: str  # one sentence


def pair_configs(a: Version, b: Version, override: KernelConfig | None = None) -> Pair:
    if override is not None:
        return Pair(override, override, "both sides: the config asked for")
    wanted = b.header.config
    reasons = refusals(a, wanted)
    if not reasons:
        return Pair(wanted, wanted, f"both sides: the config of {b.version}")
    return Pair(
        a.header.config, wanted, f"each side its own config: {a.version} refuses that of {b.version}: {reasons[0]}"
    )


def pair_named(a: str, b: str, config: str | None = None) -> Pair:
    """The same of two versions by name; a config overrides the rule."""
    return pair_configs(load(root(), a), load(root(), b), parse_config(config) if config else None)


def add_pair_config_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("a", metavar="A", help="the earlier version")
    parser.add_argument("b", metavar="B", help="the later version")
    parser.add_argument("--config", metavar="CONFIG", help="short form that overrides the rule")
    add_output_arguments(parser)


def run_pair_config(args: argparse.Namespace) -> int:
    """Prints `VERSION<TAB>CONFIG` for each side, for make to build: `default` for the one in the version's header."""
    pair = pair_named(args.a, args.b, args.config)
    if args.json:
        record = {"a": args.a, "a_config": str(pair.a), "b": args.b, "b_config": str(pair.b), "rule": pair.rule}
        emit(json_text(record), args.output)
    else:
        sides = ((load(root(), args.a), pair.a), (load(root(), args.b), pair.b))
        lines = [f"{v.version}\t{'default' if config == v.header.config else config}\n" for v, config in sides]
        emit("".join(lines), args.output)
    return DONE
