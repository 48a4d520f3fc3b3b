"""The fields of a configuration and the rules between them: the rows of common/config_fields.h, which C includes.

    FIELDS["stages"].word       # "stages_N"

The header says what each column means. Nothing is compiled: a row is a call with string literals in it.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path

from analysis.errors import AnalysisError
from analysis.files import read_text, root
from analysis.ladder.c_source import Call, calls, one_line, string_literal, without_comments

LIST = "common/config_fields.h"
PARENTHESIS = "()"  # the word of the fields in the parenthesis of a short form
TYPES = ("enum dtype", "int", "bool")


@dataclass(frozen=True)
class Field:
    """A field: its C type, its name, its word of the short form, the first versions that act on it, and its meaning."""

    type: str
    name: str
    word: str
    mma_sync: str  # of kernels/mma_sync, "" where none does
    wgmma: str  # of kernels/wgmma
    help: str


@dataclass(frozen=True)
class Rule:
    """What must hold of a configuration: the field it is reported for, the C expression, the sentence for a reader."""

    field: str
    holds: str
    sentence: str
    where: str  # "common/config_fields.h:60"

    def others(self) -> list[str]:
        """The other fields that the expression names, in their order."""
        named = set(re.findall(r"\bcfg\.(\w+)", self.holds))
        return [name for name in FIELDS if name in named and name != self.field]


@dataclass(frozen=True)
class Item:
    """An item of the short form: a word, whose capital letters are numbers, and the fields that it gives values to."""

    word: str
    fields: tuple[Field, ...]

    @property
    def required(self) -> bool:
        """Whether the item is always there: one that several fields share is, any other only where it is not zero."""
        return len(self.fields) > 1

    @cached_property
    def start(self) -> str:
        """What stands before the first number; empty for a word without numbers."""
        found = re.match(r"([^A-Z]*)[A-Z]", self.word)
        return found[1] if found else ""

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """What the item looks like, with a group for each number."""
        number = "([0-9]{1,9})" if self.required else "([1-9][0-9]{0,8})"
        return re.compile(re.sub("[A-Z]", lambda _: number, self.word))


def parse_fields(source: str, name: str) -> dict[str, Field]:
    """The rows FIELD(type, name, word, mma_sync, wgmma, help) by field name; `name` is the file's, for messages."""
    found: dict[str, Field] = {}
    for call in _rows(source, "FIELD", name, 6):
        kind, field, *words = call.arguments
        texts = [string_literal(word) for word in words]
        if kind not in TYPES or not re.fullmatch(r"[A-Za-z_]\w*", field) or field in found or None in texts:
            raise AnalysisError(
                f'{call.where}: expected FIELD(type, name, "word", "mma_sync", "wgmma", "help") with a type of '
                f"{', '.join(TYPES)} and a new name, found FIELD({', '.join(call.arguments)})"
            )
        found[field] = Field(kind, field, *(text or "" for text in texts))
    return found


def parse_rules(source: str, name: str) -> list[Rule]:
    """The rows RULE(name, holds, sentence) in their order."""
    found = []
    for call in _rows(source, "RULE", name, 3):
        field, holds, sentence = call.arguments
        text = string_literal(sentence)
        if text is None:
            raise AnalysisError(f'{call.where}: expected RULE(name, expression, "sentence")')
        found.append(Rule(field, one_line(holds), text, call.where))
    return found


def _rows(source: str, macro: str, name: str, columns: int) -> Iterator[Call]:
    bare = re.sub(r"^#.*", "", without_comments(source), flags=re.MULTILINE)
    for call in calls(bare, macro, name):
        if len(call.arguments) != columns:
            raise AnalysisError(f"{call.where}: {macro} has {columns} columns, found {len(call.arguments)}")
        yield call


def _read(path: Path) -> tuple[dict[str, Field], list[Rule]]:
    source = read_text(path)
    return parse_fields(source, LIST), parse_rules(source, LIST)


FIELDS, RULES = _read(root() / LIST)
SHAPE = tuple(field for field in FIELDS.values() if field.word == PARENTHESIS)
ITEMS = tuple(
    Item(word, tuple(fields))
    for word, fields in groupby(FIELDS.values(), lambda field: field.word)
    if word != PARENTHESIS
)
