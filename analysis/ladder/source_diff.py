"""`python3 -m analysis diff v09 v10`: what changed in the source between two versions, header blocks left out."""

import argparse
import json

from analysis.errors import DIFFERENT, DONE
from analysis.files import root
from analysis.ladder.headers import changed_lines, load, source_diff
from analysis.table import add_output_arguments, emit


def add_diff_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("a", metavar="A", help="version, such as v09")
    parser.add_argument("b", metavar="B", help="version, such as v10")
    parser.add_argument("--exit-code", action="store_true", help="status 1 when the sources differ")
    add_output_arguments(parser)


def run_diff(args: argparse.Namespace) -> int:
    a, b = load(root(), args.a), load(root(), args.b)
    lines, count = source_diff(a, b), changed_lines(a, b)
    if args.json:
        emit(json.dumps({"a": a.version, "b": b.version, "changed_lines": count, "diff": lines}) + "\n", args.output)
    else:
        summary = f"{a.version} -> {b.version}: {count} lines added or removed, header blocks not counted"
        emit("\n".join([*lines, summary, ""]), args.output)
    return DIFFERENT if count and args.exit_code else DONE
