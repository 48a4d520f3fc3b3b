"""The C interface as tables: the part `abi` of docs/library.md, made from include/flashladder.h itself.

text = abi_text(root())
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from analysis.errors import AnalysisError
from analysis.files import read_text
from analysis.table import Table

HEADER = "include/flashladder.h"
COMMENT = r"(?:^/\*(?P<comment>(?:(?!\*/).)*)\*/\s*)?"
FUNCTION = re.compile(COMMENT + r"^(?P<code>[a-z]\w*[^;{}#()]*?\b(?P<name>fl_\w+)\([^;]*\));", re.DOTALL | re.MULTILINE)
TYPE = re.compile(
    COMMENT + r"^typedef (?P<kind>enum|struct) (?P<name>fl_\w+) \{(?P<body>.*?)\} (?P=name);", re.DOTALL | re.MULTILINE
)


@dataclass(frozen=True)
class Declared:
    """A function, an enum or a struct with what the header says of it. `members`: code and meaning of each."""

    name: str
    code: str
    comment: str
    members: tuple[tuple[str, str], ...] = ()


def _words(comment: str | None) -> str:
    """A comment in one line, without the stars at the beginnings of its lines."""
    return " ".join(re.sub(r"^\s*\*(?!/)", "", comment or "", flags=re.MULTILINE).split())


def functions(text: str) -> list[Declared]:
    return [
        Declared(found["name"], " ".join(found["code"].split()), _words(found["comment"]))
        for found in FUNCTION.finditer(text)
    ]


def types(text: str, kind: str) -> list[Declared]:
    """The enums or the structs."""
    return [
        Declared(found["name"], "", _words(found["comment"]), tuple(_members(found["body"])))
        for found in TYPE.finditer(text)
        if found["kind"] == kind
    ]


def _members(body: str) -> list[tuple[str, str]]:
    """Fields of a struct, or numbers of an enum: those of one line that has no comment stay together."""
    found: list[tuple[str, str]] = []
    rest = body.strip()
    while rest:
        code, _, rest = rest.partition(";") if ";" in rest else (rest, "", "")
        if ";" not in body:  # an enum
            entries = re.findall(r"(\w+ = \d+),?\s*(?:/\*((?:(?!\*/).)*)\*/)?", code, re.DOTALL)
            return [(entry, _words(comment)) for entry, comment in entries]
        comment = re.match(r"\s*/\*((?:(?!\*/).)*)\*/", rest, re.DOTALL)
        found.append((" ".join(code.split()), _words(comment[1] if comment else "")))
        rest = rest[comment.end() :].strip() if comment else rest.strip()
    return found


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _table(first: str, rows: list[tuple[str, str]]) -> str:
    return Table((first, "meaning"), [(f"`{_cell(code)}`", _cell(meaning)) for code, meaning in rows]).markdown()


def abi_text(folder: Path) -> str:
    """Tables of the functions, then of each struct and enum."""
    text = read_text(folder / HEADER)
    _, pushed, body = text.partition("#pragma GCC visibility push(default)\n")
    if not pushed:
        raise AnalysisError(f"{HEADER}: expected '#pragma GCC visibility push(default)' before what is declared")
    parts = [_table("function", [(each.code, each.comment) for each in functions(body)])]
    for kind in ("struct", "enum"):
        for each in types(body, kind):
            sentence = f": {_cell(each.comment)}" if each.comment else ""
            rows = _table("field" if kind == "struct" else "value", list(each.members))
            parts.append(f"**`{each.name}`**{sentence}\n\n{rows}")
    return "\n".join(parts)
