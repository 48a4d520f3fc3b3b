"""Wording that readers stumbled on stays out of documents, comments and messages."""

import re
from pathlib import Path

import pytest

from analysis.files import root

COUNTED = "CTAs|threads|warps|rows|columns|bytes|registers|instructions|cycles|samples|seconds|blocks|scores"
UNITS = "CTA|SM|thread|warp|lane|row|column|round|run|clock|second|stage|element|HMMA|(?:matrix )?instruction|version"
# What is found, with an example of it, and what to write instead.
AVOIDED = (
    (rf"\b(?:{COUNTED}) an? (?:{UNITS})\b", "2 CTAs an SM", "2 CTAs per SM"),
    (r"\ba HMMA\b", "5.2 instructions for a HMMA", "per HMMA"),
    (r"\b(?:one|a) (?:row|column|line|file|thread|CTA) an? \w+", "one row a version", "one row per version"),
    (r"\banew\b", "is read anew", "is read again"),
    (r"\breckoning that\b", "reckoning that a warp", "a formula"),
    (r"\bno more[;,.]", "is live no more;", "is no longer live"),
    (r"\bnone runs on\b", "their numbers, none runs on", "no running pointers"),
    (r"\bjust come last\b", "the warp that has just come last", "the slowest warp"),
    (r"\bbarriers less\b", "two barriers less a Q block", "two barriers fewer per Q block"),
    (r"\bpast shared memory\b", "stores O past shared memory", "bypassing shared memory"),
    (r"\bconflicts, none\b", "the same bank conflicts, none", "still no bank conflicts"),
    (r"\bthe dear one\b", "the dear one", "the most expensive one"),
    (r"\bis said with\b", "the width is said with", "is reported with"),
    (r"\bfound by trial\b", "found by trial", "chosen by experiment"),
    (r"\bfrees of them\b", "v08 takes them up and frees of them", "v08 reuses them"),
    (r"\btold of\b", "those that mbarrier_init was told of", "the `count` of mbarrier_init"),
    (r"\bfor each other\b", "takes rows for each other", "swaps rows"),
    (r"\bcosts nothing\b[^;.\n]* any more\b", "costs nothing here any more", "free since v08"),
    (r"\b(?:put_down|take_up)_", "put_down_l", "spill_l, reload_l"),
)
WRITTEN = [
    path
    for pattern in ("*.md", "docs/**/*.md", "kernels/*", "common/*", "make/*", "harness/**/*.[ch]", "analysis/**/*.py")
    for path in sorted(root().glob(pattern))
    if "tests" not in path.relative_to(root()).parts
]


def stumbled_on(text: str) -> list[str]:
    """LINE: what is written there, and what is better."""
    return [
        f"{number}: {match[0]!r}, write {better!r}"
        for number, line in enumerate(text.splitlines(), 1)
        for pattern, _, better in AVOIDED
        for match in re.finditer(pattern, line)
    ]


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: str(path.relative_to(root())))
def test_nothing_is_written_that_readers_stumbled_on(path: Path) -> None:
    assert not stumbled_on(path.read_text())


@pytest.mark.parametrize(("pattern", "example", "better"), AVOIDED)
def test_an_example_of_each_is_found(pattern: str, example: str, better: str) -> None:
    match = re.search(pattern, example)
    assert match and stumbled_on(f"a line\n{example}") == [f"2: {match[0]!r}, write {better!r}"]
    assert not stumbled_on(better)
