"""The fields of a configuration and the rules between them: the rows of common/config_fields.h, which C includes.

    FIELDS["stages"].word       # "stages_N"
    ATTENTION.items[0].word     # "mma_sync|wgmma": the rows of common/attention_fields.h
    DECODE.items[1].word        # "tensor": the rows of common/decode_fields.h
    BACKWARD.items[1].word      # "dq_sums": the rows of common/backward_fields.h
    FP8.items[0].word           # "fp8_wgmma": the rows of common/fp8_fields.h

The header says what each column means. Nothing is compiled: a row is a call with string literals in it.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

from analysis.errors import AnalysisError
from analysis.files import read_text, root
from analysis.ladder.c_source import Call, calls, one_line, string_literal, without_comments

LIST = "common/config_fields.h"
ATTENTION_LIST = "common/attention_fields.h"
DECODE_LIST = "common/decode_fields.h"
BACKWARD_LIST = "common/backward_fields.h"
FP8_LIST = "common/fp8_fields.h"
PARENTHESIS = "()"  # the word of the fields in the parenthesis of a short form
TYPES = ("enum dtype", "enum instruction", "int", "bool")


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
        return [name for name in (*FIELDS, *LIVING, "instruction") if name in named and name != self.field]


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


@dataclass(frozen=True)
class FieldList:
    """The rows of a file: fields, rules, and by name the fields of the ladder whose values follow from them."""

    fields: dict[str, Field]
    rules: list[Rule]
    follows: dict[str, str]

    @cached_property
    def shape(self) -> tuple[Field, ...]:
        """The fields in the parenthesis of a short form."""
        return tuple(field for field in self.fields.values() if field.word == PARENTHESIS)

    @cached_property
    def items(self) -> tuple[Item, ...]:
        """What stands behind the parenthesis."""
        behind = [field for field in self.fields.values() if field.word != PARENTHESIS]
        return tuple(Item(word, tuple(fields)) for word, fields in groupby(behind, lambda field: field.word))


def parse_fields(source: str, name: str, versions: bool = True) -> dict[str, Field]:
    """The rows FIELD(type, name, word, mma_sync, wgmma, help) by field name; `name` is the file's, for messages.

    Without `versions` the rows have no columns of first versions.
    """
    found: dict[str, Field] = {}
    for call in _rows(source, "FIELD", name, 6 if versions else 4):
        kind, field, *words = call.arguments
        texts = [string_literal(word) for word in words]
        if not versions:
            texts[1:1] = "", ""
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


def parse_follows(source: str, name: str) -> dict[str, str]:
    """The rows FOLLOWS(name, value) by name."""
    return {field: value for field, value in (call.arguments for call in _rows(source, "FOLLOWS", name, 2))}


def _read(name: str, versions: bool) -> FieldList:
    source = read_text(root() / name)
    return FieldList(parse_fields(source, name, versions), parse_rules(source, name), parse_follows(source, name))


LADDER = _read(LIST, versions=True)
ATTENTION = _read(ATTENTION_LIST, versions=False)
DECODE = _read(DECODE_LIST, versions=False)
BACKWARD = _read(BACKWARD_LIST, versions=False)
FP8 = _read(FP8_LIST, versions=False)
FIELDS, RULES = LADDER.fields, LADDER.rules
SHAPE = LADDER.shape
# Fields of the kernels of kernels/attention/, kernels/backward/ and kernels/fp8/ that the ladder lacks.
LIVING = {
    name: row
    for name, row in (ATTENTION.fields | DECODE.fields | BACKWARD.fields | FP8.fields).items()
    if name not in FIELDS and row.type != "enum instruction"
}
