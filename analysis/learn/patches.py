"""Applies a unified diff to a text, exactly: a line that is not where the diff says is an error.

text = apply(read_text(patch), source, "exercises/04_lost_barrier/start.patch")
"""

import re

from analysis.errors import AnalysisError

_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@.*")


def apply(patch: str, source: str, name: str) -> str:
    """The source after the patch; `name` is the patch's, for messages."""
    old, new, at = source.splitlines(), list[str](), 0
    hunk: re.Match[str] | None = None
    for number, line in enumerate(patch.splitlines(), start=1):
        if found := _HUNK.fullmatch(line):
            hunk = found
            first = int(found[1]) - 1
            if first < at:
                raise AnalysisError(f"{name}:{number}: the hunks overlap")
            new += old[at:first]
            at = first
        elif hunk is None:
            if not line.startswith(("--- ", "+++ ")):
                raise AnalysisError(f"{name}:{number}: expected '--- ', '+++ ' or '@@ ', found {line!r}")
        elif line[:1] == "+":
            new.append(line[1:])
        elif line[:1] in ("-", " ", ""):
            there = old[at] if at < len(old) else "the end of the file"
            if there != line[1:]:
                raise AnalysisError(f"{name}:{number}: expected {line[1:]!r} at line {at + 1}, found {there!r}")
            if line[:1] != "-":
                new.append(there)
            at += 1
        else:
            raise AnalysisError(f"{name}:{number}: expected a line of a hunk, found {line!r}")
    if hunk is None:
        raise AnalysisError(f"{name}: holds no hunk")
    return "\n".join([*new, *old[at:]]) + "\n"
