"""Starts a version: a copy of its parent under the next free number, with a header block to fill in.

    ./fl new --parent v25 --name wide_loads

writes v26_wide_loads.cu next to its parent. The lines to fill in begin with TO_FILL_IN; `accept` refuses a version that
still has one.
"""

import argparse
import re
from pathlib import Path

from analysis.errors import DONE, AnalysisError
from analysis.files import root, write_atomically
from analysis.ladder.headers import TO_FILL_IN, Version, kernel_files, load
from analysis.ladder.removed import removed_versions

LAST = 99  # a version has two digits


def next_version(folder: Path) -> str:
    """The number after the largest that is or was taken: records in logs/ have those of removed versions."""
    number = int(max(*kernel_files(folder), *removed_versions())[1:3]) + 1
    if number > LAST:
        raise AnalysisError(f"v{LAST} is taken: a version has two digits")
    return f"v{number:02}"


def started(parent: Version, version: str, name: str) -> str:
    """The text of the new file: what the parent does, with a header block of its own."""
    lines = parent.source.splitlines(keepends=True)
    block = "".join(lines[: parent.header.lines])
    kept = re.search(r"^ \* config .*?(?=^ \* (?!   )|^ \*/)", block, re.MULTILINE | re.DOTALL)
    if not kept:
        raise AnalysisError(f"{parent.path}: its header block has no line ' * config'")
    header = (
        f"/* {version} - {name.replace('_', ' ')}\n"
        " *\n"
        f" * parent    {parent.version}\n"
        f" * idea      {TO_FILL_IN} what this version does that {parent.version} does not, in one sentence\n"
        f" * predict   {TO_FILL_IN} what that changes, and why, with a number that can turn out wrong\n"
        f" * claims    {TO_FILL_IN} those numbers, such as loop_change@sm_80=-10±2 speedup@4096=1.02±0.01\n"
        f"{kept[0]}"
        f" * arch      {parent.header.arch}\n"
        " */\n"
    )
    return header + "".join(lines[parent.header.lines :])


def start(folder: Path, parent: str, name: str) -> Path:
    """Write the file of a new version; nothing is overwritten."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise AnalysisError(f"--name {name}: must consist of lower-case letters, digits and _, such as wide_loads")
    version = next_version(folder)
    before = load(folder, parent)
    path = before.path.with_name(f"{version}_{name}.cu")
    write_atomically(path, started(before, version, name))
    return path


def add_new_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--parent", required=True, metavar="VER", help="the version to start from, such as v25")
    parser.add_argument("--name", required=True, metavar="NAME", help="the idea in a word or two, such as wide_loads")


def run_new(args: argparse.Namespace) -> int:
    path = start(root(), args.parent, args.name).relative_to(root())
    version = path.name.partition("_")[0]
    print(f"{path}: a copy of {args.parent}; fill in the lines that say {TO_FILL_IN!r}, and make the change")
    print(f"make diff A={args.parent} B={version}    # what is different so far")
    print(f"make {version} && ./bin/{version}          # builds it, checks it")
    return DONE
