"""Reads what C source says without a compiler: calls with their arguments, string literals, integer expressions.

for call in calls(without_comments(source), "RULE", "common/config_fields.h"):
    name, holds, sentence = call.arguments
    predicate(holds, call.where, Names(("B_c",)))(config)   # holds is "cfg.B_c % 16 == 0"
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from analysis.errors import AnalysisError

Value = Callable[[Any], int]
STRING = r'"(?:[^"\\\n]|\\.)*"'

# Binary operators by precedence, loosest first (C11 6.5.5 to 6.5.14).
LEVELS = (
    ("||",),
    ("&&",),
    ("|",),
    ("^",),
    ("&",),
    ("==", "!="),
    ("<=", ">=", "<", ">"),
    ("<<", ">>"),
    ("+", "-"),
    ("*", "/", "%"),
)
WORD_BITS = 64
LONGEST_NUMBER = len("0xffffffffffffffff")
TOKEN = re.compile(r"\s*(0[xX][0-9a-fA-F]+|[0-9]+|[A-Za-z_]\w*|\|\||&&|[=!<>]=|<<|>>|[-+*/%<>()!~&|^.?:])")


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
    """The calls of a function or macro between two places of a source without comments, in their order."""
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


@dataclass(frozen=True)
class Names:
    """What an expression may name: `cfg.FIELD`, `CALL(&cfg)`, and constants."""

    fields: Collection[str]
    calls: Mapping[str, Value] = field(default_factory=dict)
    constants: Mapping[str, int] = field(default_factory=lambda: {"true": 1, "false": 0})


def predicate(expression: str, where: str, names: Names) -> Callable[[Any], bool]:
    """Whether a C integer expression is not zero, as a function of what it calls `cfg`."""
    value = _Parser(expression, where, names).parse()

    def holds(cfg: Any) -> bool:
        try:
            return value(cfg) != 0
        except (ZeroDivisionError, ValueError) as error:
            raise AnalysisError(f"{where}: {expression}: not defined for {cfg}") from error

    return holds


def _divide(a: int, b: int) -> int:
    """C division: towards zero."""
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _shift(a: int, b: int) -> int:
    """C leaves a shift by a negative number, or by the width of a word and more, undefined."""
    if not 0 <= b < WORD_BITS:
        raise ValueError(f"a shift by {b} bits")
    return a << b


OPERATORS: dict[str, Callable[[int, int], int]] = {
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
    "&": lambda a, b: a & b,
    "==": lambda a, b: int(a == b),
    "!=": lambda a, b: int(a != b),
    "<=": lambda a, b: int(a <= b),
    ">=": lambda a, b: int(a >= b),
    "<": lambda a, b: int(a < b),
    ">": lambda a, b: int(a > b),
    "<<": _shift,
    ">>": lambda a, b: a // _shift(1, b),
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": _divide,
    "%": lambda a, b: a - b * _divide(a, b),
}


class _Parser:
    """Turns a C expression into a function of the configuration, by precedence climbing."""

    def __init__(self, expression: str, where: str, names: Names) -> None:
        self.expression, self.where, self.names = expression, where, names
        self.tokens: list[str] = []
        self.next = 0
        position = 0
        while expression[position:].strip():
            token = TOKEN.match(expression, position)
            if not token:
                raise self.error(f"{expression[position:].strip()[0]!r} is not understood")
            self.tokens.append(token[1])
            position = token.end()

    def error(self, problem: str) -> AnalysisError:
        return AnalysisError(f"{self.where}: {self.expression}: {problem}")

    def peek(self) -> str:
        return self.tokens[self.next] if self.next < len(self.tokens) else ""

    def take(self) -> str:
        token = self.peek()
        self.next += 1
        return token

    def expect(self, token: str) -> None:
        found = self.take()
        if found != token:
            raise self.error(f"expected {token!r}, found {found or 'the end'!r}")

    def parse(self) -> Value:
        try:
            value = self.conditional()
        except RecursionError:
            raise self.error("nested too deeply") from None
        if self.peek():
            raise self.error(f"{self.peek()!r} is not understood here")
        return value

    def conditional(self) -> Value:
        test = self.binary(0)
        if self.peek() != "?":
            return test
        self.take()
        yes = self.conditional()
        self.expect(":")
        no = self.conditional()
        return lambda cfg: yes(cfg) if test(cfg) else no(cfg)

    def binary(self, level: int) -> Value:
        if level == len(LEVELS):
            return self.unary()
        left = self.binary(level + 1)
        while self.peek() in LEVELS[level]:
            left = self.joined(self.take(), left, self.binary(level + 1))
        return left

    @staticmethod
    def joined(operator: str, left: Value, right: Value) -> Value:
        if operator == "||":
            return lambda cfg: int(bool(left(cfg)) or bool(right(cfg)))
        if operator == "&&":
            return lambda cfg: int(bool(left(cfg)) and bool(right(cfg)))
        apply = OPERATORS[operator]
        return lambda cfg: apply(left(cfg), right(cfg))

    def unary(self) -> Value:
        token = self.take()
        if token in ("!", "-", "+", "~"):
            value = self.unary()
            signs: dict[str, Value] = {
                "!": lambda cfg: int(not value(cfg)),
                "-": lambda cfg: -value(cfg),
                "+": value,
                "~": lambda cfg: ~value(cfg),
            }
            return signs[token]
        if token == "(":
            value = self.conditional()
            self.expect(")")
            return value
        if token[:1].isdigit():
            if len(token) > 1 and token.isdigit() and token[0] == "0":
                raise self.error(f"octal number {token!r} is not understood")
            if len(token) > LONGEST_NUMBER:
                raise self.error(f"a number of {len(token)} digits is not understood")
            number = int(token, 0)
            return lambda cfg: number
        if token == "cfg":
            self.expect(".")
            return self.field(self.take())
        if token in self.names.calls:
            for part in ("(", "&", "cfg", ")"):
                self.expect(part)
            return self.names.calls[token]
        if token in self.names.constants:
            constant = self.names.constants[token]
            return lambda cfg: constant
        read = ["cfg.FIELD", "numbers", *self.names.constants, *(f"{call}(&cfg)" for call in self.names.calls)]
        raise self.error(f"{token or 'the end'!r} is not understood: only {', '.join(read)} are read")

    def field(self, name: str) -> Value:
        if name not in self.names.fields:
            raise self.error(f"cfg has no field {name!r}")
        return lambda cfg: int(getattr(cfg, name))
