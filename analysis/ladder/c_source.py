"""Reads what C source says without a compiler: calls, string literals, integer expressions, structs.

for call in calls(without_comments(source), "static_assert", "v07_autotune.cu"):
    holds, sentence = call.arguments
    c_value(holds, {"cfg": config}, call.where)   # holds is "cfg.B_c % 16 == 0"
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType
from typing import Any

from analysis.errors import AnalysisError

STRING = r'"(?:[^"\\\n]|\\.)*"'


def without_comments(source: str) -> str:
    """The source with comments blanked out: the rest keeps its line and column. String literals are left alone."""

    def blank(found: re.Match[str]) -> str:
        return found[0] if found[0].startswith('"') else re.sub(r"[^\n]", " ", found[0])

    return re.sub(rf"{STRING}|//[^\n]*|/\*.*?\*/", blank, source, flags=re.DOTALL)


@dataclass(frozen=True)
class Call:
    """`NAME(argument, argument)` in a source: its line, "FILE:LINE" for messages, and the text of each argument."""

    line: int
    where: str
    arguments: tuple[str, ...]


def calls(bare: str, name: str, file: str, start: int = 0, end: int | None = None) -> Iterator[Call]:
    """The calls of a function or macro between two positions of a source without comments, in their order."""
    for found in re.compile(rf"\b{name}\s*\(").finditer(bare, start, len(bare) if end is None else end):
        line = bare.count("\n", 0, found.start()) + 1
        where = f"{file}:{line}"
        closing = closing_bracket(bare, found.end() - 1, "(", ")", where)
        yield Call(line, where, tuple(_arguments(bare[found.end() : closing])))


def closing_bracket(text: str, start: int, opening: str, closing: str, where: str) -> int:
    """Index of the bracket that closes the one at `start`; brackets in strings don't count."""
    depth = 0
    for token in re.compile(rf"{STRING}|[{re.escape(opening + closing)}]").finditer(text, start):
        depth += {opening: 1, closing: -1}.get(token[0], 0)
        if depth == 0:
            return token.start()
    raise AnalysisError(f"{where}: {opening!r} is never closed")


def _arguments(text: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for token in re.finditer(rf"{STRING}|[(),]", text):
        depth += {"(": 1, ")": -1}.get(token[0], 0)
        if token[0] == "," and depth == 0:
            parts.append(text[start : token.start()])
            start = token.end()
    return [part.strip() for part in (*parts, text[start:])]


def string_literal(text: str) -> str | None:
    """The value of a string literal or of several in a row; None for anything else."""
    if not re.fullmatch(rf"(?:{STRING}\s*)+", text):
        return None
    return re.sub(r"\\(.)", r"\1", "".join(part[1:-1] for part in re.findall(STRING, text)))


def one_line(text: str) -> str:
    """The text with each run of blanks and line ends made one blank."""
    return " ".join(text.split())


# ---- integer expressions ---------------------------------------------------------------------------------------------

OPERATORS = (("&&", " and "), (r"\|\|", " or "), ("!(?!=)", "NOT**"), ("->", "."), ("/", "//"), ("&(?=cfg)", ""))
COMPARISON = r"[=!<>]=|(?<![<>])[<>](?![<>=])"


class _Not:
    """`NOT**x` binds as `!x` does in C."""

    def __pow__(self, value: Any) -> bool:
        return not value


@lru_cache(maxsize=4096)
def c_expression(expression: str, where: str) -> CodeType:
    """A C integer expression as Python code. Numbers must not be negative where they are divided."""
    if unknown := re.search(r"\*\*|//|[^\w\s.,()&|!<>=+\-*/%~^?:]", expression):
        raise AnalysisError(f"{where}: {expression}: {unknown[0]!r} is not understood")
    try:
        return compile(_python(expression, where), where, "eval")
    except (SyntaxError, RecursionError) as error:
        raise AnalysisError(f"{where}: {expression}: not understood: {error}") from error


def c_value(expression: str, names: Mapping[str, Any], where: str) -> int:
    """The value of a C integer expression over `names`, objects, functions and numbers."""
    code = c_expression(expression, where)
    try:
        value = int(eval(code, {"__builtins__": {}}, {"NOT": _Not(), **names}))
        if value.bit_length() > 63:
            raise OverflowError("the value takes more than 64 bits")
        return value
    except (ArithmeticError, AttributeError, MemoryError, NameError, TypeError, ValueError) as error:
        raise AnalysisError(f"{where}: {expression}: not defined: {error}") from error


def _python(expression: str, where: str) -> str:
    """Return the expression in Python: translate each pair of brackets first, then `?:`, then operators."""
    parts, at = [], 0
    for found in re.finditer(r"\(", expression):
        if found.start() >= at:
            end = closing_bracket(expression, found.start(), "(", ")", where)
            parts += [expression[at : found.start()], f"({_python(expression[found.end() : end], where)})"]
            at = end + 1
    parts.append(expression[at:])
    flat = "".join(part if i % 2 == 0 else f"\0{i}\0" for i, part in enumerate(parts))
    return re.sub(r"\0(\d+)\0", lambda found: parts[int(found[1])], _chosen(flat, where))


def _chosen(flat: str, where: str) -> str:
    """Without brackets: `A ? B : C`, or operators alone."""
    test, question, rest = flat.partition("?")
    if not question:
        return _operators(flat, where)
    yes, _, no = rest.partition(":")
    return f"({_operators(yes, where)}) if ({_operators(test, where)}) else ({_chosen(no, where)})"


def _operators(flat: str, where: str) -> str:
    for term in re.split(r"&&|\|\|", flat):
        if len(re.findall(COMPARISON, term)) + bool(re.search(r"&(?!cfg)|[|^]", term)) > 1:
            raise AnalysisError(f"{where}: {term.strip()}: not understood without brackets")
    for pattern, word in OPERATORS:
        flat = re.sub(pattern, word, flat)
    return flat.strip()


# ---- structs ---------------------------------------------------------------------------------------------------------


def struct_members(source: str, name: str, file: str) -> list[tuple[str, str]]:
    """The members of `typedef struct NAME {...} NAME;` as (type, name), each of `int a, b[2];` by itself: a, b, b."""
    bare = without_comments(source)
    body = re.search(rf"typedef struct {name} \{{(.*?)\}} {name};", bare, re.DOTALL)
    if not body:
        raise AnalysisError(f"{file}: no typedef struct {name}")
    members = []
    for statement in filter(None, map(one_line, body[1].split(";"))):
        found = re.fullmatch(r"(?:const )?(\w+) (\*?\w+(?:\[\d+\])?(?:, \*?\w+(?:\[\d+\])?)*)", statement)
        if not found:
            raise AnalysisError(f"{file}: {name}: expected 'TYPE NAME;', found {statement!r}")
        for one in found[2].split(", "):
            number = re.search(r"\[(\d+)\]", one)
            member = re.sub(r"\W|\[\d+\]", "", one[: number.start()] if number else one)
            members += [("*" if one.startswith("*") else found[1], member)] * (int(number[1]) if number else 1)
    return members
