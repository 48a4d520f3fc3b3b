"""`python3 -m analysis diff v09 v10`: what changed in the source between two versions, header blocks left out.

part_diff(v19, v20, KV_LOOP)       # only the lines of the loop
part_diff(v19, v20, "copy_KV")     # only those of a function
"""

import argparse
import re

from analysis.errors import DIFFERENT, DONE, AnalysisError
from analysis.files import root
from analysis.ladder.c_source import closing_bracket, without_comments
from analysis.ladder.folding import folded_body
from analysis.ladder.headers import Version, changed_lines, load, source_diff, unified_diff
from analysis.table import add_output_arguments, emit, json_text


def add_diff_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("a", metavar="A", help="version, such as v09")
    parser.add_argument("b", metavar="B", help="version, such as v10")
    parser.add_argument("--folded", action="store_true", help="compare the output of `make read` for both")
    parser.add_argument("--exit-code", action="store_true", help="exit status 1 if the sources differ")
    add_output_arguments(parser)


def run_diff(args: argparse.Namespace) -> int:
    a, b = load(root(), args.a), load(root(), args.b)
    if args.folded:
        names = f"{a.version}, folded", f"{b.version}, folded"
        lines = unified_diff(names, (folded_body(a).splitlines(), folded_body(b).splitlines()), (1, 1))
        count = sum(line[0] in "+-" for line in lines[2:])
    else:
        lines, count = source_diff(a, b), changed_lines(a, b)
    if args.json:
        emit(json_text({"a": a.version, "b": b.version, "changed_lines": count, "diff": lines}), args.output)
    else:
        summary = f"{a.version} -> {b.version}: {count} lines added or removed, header blocks not counted"
        emit("\n".join([*lines, summary, ""]), args.output)
    return DIFFERENT if count and args.exit_code else DONE


# ---- parts of a kernel -----------------------------------------------------------------------------------------------

KV_LOOP = "KV loop"  # of a consumer, where warps have roles: the last loop that is not unrolled


def part_diff(a: Version, b: Version, part: str) -> list[str]:
    """The unified diff of the KV loops of two versions, or of a function of that name; empty where they are equal."""
    (old_first, old), (new_first, new) = part_of(a, part), part_of(b, part)
    names = f"{a.version}, {part}", f"{b.version}, {part}"
    return unified_diff(names, (old, new), (old_first, new_first))


def part_of(version: Version, part: str) -> tuple[int, list[str]]:
    """The number of the first line of a part, and its lines without their common indentation."""
    bare, where = without_comments(version.source), str(version.path)
    if part == KV_LOOP:
        found = [*re.finditer(r"#pragma unroll 1\n *for \(", bare)][-1:]
    else:
        found = [at for at in re.finditer(rf"[^\n]*\b{part}(?: = \[&\])?\(", bare) if _body(bare, at.end(), where)]
    if not found:
        raise AnalysisError(f"{where}: no function {part!r}: give {KV_LOOP!r} or the name of one in it")
    opened = _body(bare, found[0].end(), where)
    if opened is None:  # the loop calls a function with the block's number
        called = re.compile(r"\w+(?=\()").search(bare, closing_bracket(bare, found[0].end() - 1, "(", ")", where))
        return part_of(version, called[0] if called else "")
    first = bare.count("\n", 0, found[0].start())
    last = bare.count("\n", 0, closing_bracket(bare, opened, "{", "}", where))
    lines = version.source.splitlines()[first : last + 1]
    indents = [len(line) - len(line.lstrip()) for line in lines if line and not line.startswith("#")]
    return first + 1, [line if line.startswith("#") else line[min(indents) :] for line in lines]


def _body(bare: str, inside: int, where: str) -> int | None:
    """The start of the body that follows brackets; None if the brackets hold a call's arguments."""
    found = re.compile(r"\)\s*(?:const\s*)?\{").match(bare, closing_bracket(bare, inside - 1, "(", ")", where))
    return found and found.end() - 1
