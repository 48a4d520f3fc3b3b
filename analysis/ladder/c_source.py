"""Reads what C source says without a compiler: calls, string literals, integer expressions, small functions, structs.

for call in calls(without_comments(source), "RULE", "common/config_fields.h"):
    name, holds, sentence = call.arguments
    predicate(holds, call.where, Names({"cfg": ("B_c",)}))(config)   # holds is "cfg.B_c % 16 == 0"
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from analysis.errors import AnalysisError

Value = Callable[[Mapping[str, Any]], int]  # of the objects and numbers that an expression names
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
CASTS = ("int", "int64_t")
LONGEST_NUMBER = len("0xffffffffffffffff")
TOKEN = re.compile(r"\s*(0[xX][0-9a-fA-F]+|[0-9]+|[A-Za-z_]\w*|\|\||&&|->|[=!<>]=|<<|>>|[-+*/%<>()!~&|^.,?:])")


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
    """What an expression may name: members of objects, calls, constants, and numbers known when it is asked."""

    objects: Mapping[str, Collection[str]]  # "cfg" to its fields: `cfg.FIELD`, or `cfg->FIELD`
    calls: Mapping[str, Callable[..., int]] = field(default_factory=dict)  # `CALL(&cfg)`
    constants: Mapping[str, int] = field(default_factory=lambda: {"true": 1, "false": 0})
    numbers: tuple[str, ...] = ()


def predicate(expression: str, where: str, names: Names) -> Callable[[Any], bool]:
    """Whether a C integer expression is not zero, as a function of what it calls `cfg`."""
    value = _Parser(expression, where, names).parse()

    def holds(cfg: Any) -> bool:
        try:
            return value({"cfg": cfg}) != 0
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
        return lambda env: yes(env) if test(env) else no(env)

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
            return lambda env: int(bool(left(env)) or bool(right(env)))
        if operator == "&&":
            return lambda env: int(bool(left(env)) and bool(right(env)))
        apply = OPERATORS[operator]
        return lambda env: apply(left(env), right(env))

    def unary(self) -> Value:
        token = self.take()
        if token in ("!", "-", "+", "~"):
            value = self.unary()
            signs: dict[str, Value] = {
                "!": lambda env: int(not value(env)),
                "-": lambda env: -value(env),
                "+": value,
                "~": lambda env: ~value(env),
            }
            return signs[token]
        if token == "(" and self.peek() in CASTS:  # of a number that fits
            self.take()
            self.expect(")")
            return self.unary()
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
            return lambda env: number
        if token in self.names.objects:
            return self.field(token)
        if token in self.names.calls:
            return self.call(self.names.calls[token])
        if token in self.names.constants:
            constant = self.names.constants[token]
            return lambda env: constant
        if token in self.names.numbers:
            return lambda env: int(env[token])
        fields = [f"{name}.FIELD" for name in self.names.objects]
        read = [*fields, "numbers", *self.names.constants, *(f"{call}(&cfg)" for call in self.names.calls)]
        raise self.error(f"{token or 'the end'!r} is not understood: only {', '.join(read)} are read")

    def field(self, object_name: str) -> Value:
        if self.peek() == "->":
            self.take()
        else:
            self.expect(".")
        name = self.take()
        if name not in self.names.objects[object_name]:
            raise self.error(f"{object_name} has no field {name!r}")
        return lambda env: int(getattr(env[object_name], name))

    def call(self, function: Callable[..., int]) -> Value:
        self.expect("(")
        arguments = [self.argument()]
        while self.peek() == ",":
            self.take()
            arguments.append(self.argument())
        self.expect(")")
        return lambda env: function(*(argument(env) for argument in arguments))

    def argument(self) -> Callable[[Mapping[str, Any]], Any]:
        """An object, or its address, or an expression."""
        if self.peek() == "&":
            self.take()
        name, after = self.peek(), self.tokens[self.next + 1 : self.next + 2]
        if name in self.names.objects and after in ([","], [")"]):
            self.take()
            return lambda env: env[name]
        return self.conditional()


# ---- functions -------------------------------------------------------------------------------------------------------


def functions(
    source: str, macro: str, file: str, objects: Mapping[str, Collection[str]]
) -> dict[str, Callable[..., int]]:
    """The functions that a macro begins and that give a number: constants of one expression each, then one `return`.

    A parameter is one of `objects` or a number. A function may call those above it.
    """
    found: dict[str, Callable[..., int]] = {}
    bare = without_comments(source)
    for head in re.finditer(rf"^{macro} (?:int|int64_t) (\w+)\(([^)]*)\) \{{", bare, re.MULTILINE):
        where = f"{file}:{bare.count(chr(10), 0, head.start()) + 1}"
        body = bare[head.end() : closing_bracket(bare, head.end() - 1, "{", "}", where)]
        parameters = [re.split(r"\W+", one)[-1] for one in head[2].split(",")]
        found[head[1]] = _function(parameters, body, where, Names(objects, dict(found)))
    return found


def _function(parameters: list[str], body: str, where: str, names: Names) -> Callable[..., int]:
    numbers = [name for name in parameters if name not in names.objects]
    steps: list[tuple[str, Value]] = []
    *constants, last = [one_line(statement) for statement in body.split(";") if statement.strip()]
    for statement in constants:
        declared = re.match(r"const (?:int|int64_t|bool) ", statement)
        if not declared:
            raise AnalysisError(f"{where}: expected 'const int64_t NAME = EXPRESSION;', found {statement!r}")
        for one in _arguments(statement[declared.end() :]):
            name, expression = one.split(" = ", 1)
            steps.append((name, _Parser(expression, where, replace(names, numbers=tuple(numbers))).parse()))
            numbers.append(name)
    if not last.startswith("return "):
        raise AnalysisError(f"{where}: expected 'return EXPRESSION;' at the end, found {last!r}")
    result = _Parser(last.removeprefix("return "), where, replace(names, numbers=tuple(numbers))).parse()

    def value(*arguments: Any) -> int:
        env = dict(zip(parameters, arguments, strict=True))
        for name, step in steps:
            env[name] = step(env)
        return result(env)

    return value


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
