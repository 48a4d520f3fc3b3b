"""Small changes of source files, made by universalmutator (C) and by mutmut's operators (Python).

for line in lines_of("harness/stats.c", text):
    line.number, line.source, line.mutants     # each mutant is the whole changed file, and the changed line

The order of lines and of the mutants of a line is that of their hashes: a sample is the same in every run, and a line
that is added or moved changes no choice elsewhere.
"""

import contextlib
import hashlib
import io
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

C_RULES = ("universal.rules", "c_like.rules", "c.rules")
# A string that changes is a message that changes: a test that notices is one that repeats the text.
LEFT_OUT = ("operator_string",)
COMMENT_OR_STRING = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.DOTALL)
ONE_STRING = r'"(?:\\.|[^"\\\n])*"'
STRING = re.compile(rf"{ONE_STRING}(?:\s*(?:PRI\w+\s*)?{ONE_STRING})*")  # with the names of formats between


@dataclass(frozen=True)
class Mutant:
    """One change: the line as it reads then (several lines are joined), and the whole file."""

    line: str
    text: str


@dataclass(frozen=True)
class Line:
    """A line with its mutants in the order in which they are tried; `copy` counts earlier lines that read the same."""

    file: str
    number: int
    source: str
    copy: int
    mutants: tuple[Mutant, ...]


def digest(*parts: object) -> str:
    """A short name for a content."""
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()[:12]


def without_comments(text: str) -> str:
    """C source with blanks for comments, every line where it was."""

    def blank(found: re.Match[str]) -> str:
        return re.sub(r"[^\n]", " ", found[0]) if found[0].startswith("/") else found[0]

    return "\n".join(line.rstrip() for line in COMMENT_OR_STRING.sub(blank, text).split("\n"))


def c_changes(text: str) -> Iterator[str]:
    """The file with each change that universalmutator's rules for C make."""
    from universalmutator.mutator import mutants_regexp

    rows = text.splitlines(keepends=True)
    with contextlib.redirect_stdout(io.StringIO()):  # it names its rules
        found = mutants_regexp(rows, ruleFiles=list(C_RULES), ignorePatterns=[], ignoreStringOnly=True)
    for number, changed, *_ in found:
        if STRING.sub('""', changed) == STRING.sub('""', rows[number - 1]):
            continue  # as in Python
        yield "".join(rows[: number - 1]) + changed + "".join(rows[number:])


def python_changes(text: str) -> Iterator[str]:
    """The file with each change of mutmut's operators, except those of strings; annotations are left alone."""
    import libcst
    from libcst.metadata import MetadataWrapper, WhitespaceInclusivePositionProvider
    from mutmut.mutation.file_mutation import MutationVisitor
    from mutmut.mutation.mutators import mutation_operators
    from mutmut.mutation.pragma_handling import IgnoredCode

    operators = [pair for pair in mutation_operators if pair[1].__name__ not in LEFT_OUT]
    wrapper = MetadataWrapper(libcst.parse_module(text))
    visitor = MutationVisitor(operators, IgnoredCode(set(), set(), set()))
    wrapper.visit(visitor)
    places = wrapper.resolve(WhitespaceInclusivePositionProvider)
    rows = text.splitlines(keepends=True)
    starts = [0]
    for row in rows:
        starts.append(starts[-1] + len(row))
    for mutation in visitor.mutations:
        place: Any = places[mutation.original_node]
        begin = starts[place.start.line - 1] + place.start.column
        end = starts[place.end.line - 1] + place.end.column
        if text[begin:end] != wrapper.module.code_for_node(mutation.original_node):
            continue  # a compound statement, whose indentation stands elsewhere
        yield text[:begin] + wrapper.module.code_for_node(mutation.mutated_node) + text[end:]


def difference(before: list[str], after: list[str]) -> tuple[int, str]:
    """The index of the first row that differs, and what stands there afterwards, in one line.

    A row that is added belongs to the one before it.
    """
    shorter = min(len(before), len(after))
    first = next((i for i in range(shorter) if before[i] != after[i]), shorter)
    last = 0
    while last < shorter - first and before[-1 - last] == after[-1 - last]:
        last += 1
    first -= first > 0 and first + last == len(before)
    return first, " ".join(" ".join(after[first : len(after) - last]).split())


def lines_of(file: str, text: str) -> list[Line]:
    """The lines of a file that have mutants, in the order in which a sample takes them."""
    text = text if file.endswith(".py") else without_comments(text)
    rows = text.splitlines()
    by_row: dict[int, dict[str, str]] = defaultdict(dict)
    for changed in python_changes(text) if file.endswith(".py") else c_changes(text):
        row, line = difference(rows, changed.splitlines())
        by_row[row].setdefault(changed, line)
    copies: Counter[str] = Counter()
    made = []
    for row, changes in sorted(by_row.items()):
        source = " ".join(rows[row].split())
        mutants = [Mutant(line, changed) for changed, line in changes.items()]
        mutants.sort(key=lambda mutant: digest(file, source, mutant.line))
        made.append(Line(file, row + 1, source, copies[source], tuple(mutants)))
        copies[source] += 1
    return sorted(made, key=lambda line: digest(line.file, line.source, line.copy))
