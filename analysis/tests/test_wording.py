"""Wording that readers stumbled on stays out of documents, comments and messages."""

import json
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
    (r"\bgo(?:es)? on\b", "the run goes on", "the run continues"),
    (r"\bat the least\b", "what a pipe needs at the least", "what a pipe needs at least"),
    (r"\b(?:but|save) for\b", "busiest but for the data pipe", "second busiest, after the data pipe"),
    (r"\bone (?:CTA|register|block|instruction|row|thread|warp) (?:more|fewer)\b", "one CTA more", "one more CTA"),
    (r"\b[Ww]hoever\b", "whoever reads it", "the thread that reads it"),
    (r"\bbelongs? (?:a|an|the) (?:barrier|fence)\b", "here belongs a barrier", "a barrier must separate them"),
    (r"\bcame of\b", "what came of it", "what resulted"),
    (
        r"(?<![Tt]here )\bis no (?:PTX|cubin|version|variable|number|text|finding|record)\b",
        "3 is no cubin",
        "3 is not a cubin",
    ),
    (r"\bamid\b", "amid the objects", "among the objects"),
    (r"\bfor ever\b", "may wait for ever", "may wait forever"),
    (r"\bso many\b", "one of so many samples", "one of N samples"),
    (r"\b(?:of the|over its|within its) bound\b", "error 0.27 of the bound", "error 27 % of the tolerance"),
    (r"\berror/bound\b", "error/bound 0.27", "27 % of the tolerance"),
    (r"\bright: \d+ rows", "right: 256 rows", "correct: 256 rows"),
    (r"\bin such a way that\b", "thinned in such a way that", "thinned so that"),
    (r"\bstops the clock\b", "stops the clock from rising", "does not lock the clock"),
    (r"\bheld at its power\b", "held at its power", "power-limited"),
    (r"\bwith half of its\b", "with half of its 95 % interval", "± half-width of the 95 % interval"),
    (r"\bNo report is made\b", "No report is made on such programs", "Correct programs produce no findings"),
    (r"\bno speed of it\b", "no speed of it counts", "discard its timings"),
    (r"\bis not yet no\b", "no spills is not yet no local memory", "zero spills does not mean zero local memory"),
    (r"\bthe last stays\b", "of several problems the last stays", "only the last is kept"),
)
ANY = re.compile(rf"\b(?=[A-Za-z])(?:{'|'.join(pattern for pattern, _, _ in AVOIDED)})")  # one search instead of many
WRITTEN = [
    path
    for pattern in (
        "*.md",
        "docs/**/*.md",
        "kernels/*.md",
        "kernels/*/*",
        "common/*",
        "make/*",
        "harness/**/*.[ch]",
        "harness/**/*.cu",
        "analysis/**/*.py",
        "exercises/**/*.md",
        "exercises/**/*.cu",
        "notebooks/*.ipynb",
    )
    for path in sorted(root().glob(pattern))
    if "tests" not in path.relative_to(root()).parts
]


def text_of(path: Path) -> str:
    """What an author wrote: of a notebook the cells of text and code, without outputs."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".ipynb":
        return text
    return "\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"])


def stumbled_on(text: str) -> list[str]:
    """LINE: what is written there, and what is better."""
    if not ANY.search(text):
        return []
    found = [
        (text.count("\n", 0, match.start()) + 1, f"{match[0]!r}, write {better!r}")
        for pattern, _, better in AVOIDED
        for match in re.finditer(pattern, text)
    ]
    return [f"{number}: {said}" for number, said in sorted(found)]


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: str(path.relative_to(root())))
def test_nothing_is_written_that_readers_stumbled_on(path: Path) -> None:
    assert not stumbled_on(text_of(path))


@pytest.mark.parametrize(("pattern", "example", "better"), AVOIDED)
def test_an_example_of_each_is_found(pattern: str, example: str, better: str) -> None:
    match = re.search(pattern, example)
    assert match and stumbled_on(f"a line\n{example}") == [f"2: {match[0]!r}, write {better!r}"]
    assert not stumbled_on(better)
