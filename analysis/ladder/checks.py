"""What a kernel refuses at compile time, read from its source: the static_asserts of `check_config<cfg>()`.

    reasons = [check.sentence for check in parse_checks(source, "kernels/v01_base.cu") if not check.holds(config)]

A check is `static_assert(EXPRESSION, "sentence");` where EXPRESSION is a C integer expression over `cfg.FIELD`, the
calls `config_smem_bytes(&cfg)` and `config_threads(&cfg)`, FP16, BF16, true, false and numbers. So a version says in
one place, its own source, what it supports; a set of configurations is cut to that without compiling.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from analysis.errors import AnalysisError
from analysis.ladder.config import FIELD_TYPES, Dtype, KernelConfig

Value = Callable[[KernelConfig], int]

CALLS: dict[str, Value] = {
    "config_smem_bytes": lambda config: config.smem_bytes(),
    "config_threads": lambda config: config.threads(),
}
CONSTANTS = {"FP16": int(Dtype.FP16), "BF16": int(Dtype.BF16), "true": 1, "false": 0}

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
TOKEN = re.compile(r"\s*(0[xX][0-9a-fA-F]+|[0-9]+|[A-Za-z_]\w*|\|\||&&|[=!<>]=|<<|>>|[-+*/%<>()!~&|^.?:])")


@dataclass(frozen=True)
class Check:
    """One static_assert: its line, its expression as written, its sentence, and what it says of a configuration."""

    line: int
    expression: str
    sentence: str
    holds: Callable[[KernelConfig], bool]


def parse_checks(source: str, name: str) -> list[Check]:
    """The checks of a kernel source in their order; `name` is the file's, for messages."""
    bare = _without_comments(source)
    start = re.search(r"\bcheck_config\s*\(\s*\)\s*\{", bare)
    if not start:
        raise AnalysisError(f"{name}: no check_config<cfg>() with the static_asserts on its configuration")
    body_end = _closing(bare, start.end() - 1, "{", "}", name)
    checks = []
    for found in re.finditer(r"\bstatic_assert\s*\(", bare[:body_end]):
        if found.start() < start.end():
            continue
        line = bare.count("\n", 0, found.start()) + 1
        end = _closing(bare, found.end() - 1, "(", ")", f"{name}:{line}")
        parts = re.fullmatch(r'(.*?),\s*((?:"(?:[^"\\]|\\.)*"\s*)+)', bare[found.end() : end].strip(), re.DOTALL)
        if not parts:
            raise AnalysisError(f'{name}:{line}: expected static_assert(EXPRESSION, "sentence")')
        expression = " ".join(parts[1].split())
        sentence = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', parts[2]))
        checks.append(
            Check(line, expression, re.sub(r"\\(.)", r"\1", sentence), _predicate(expression, f"{name}:{line}"))
        )
    if not checks:
        raise AnalysisError(f"{name}: check_config<cfg>() holds no static_assert")
    return checks


def _without_comments(source: str) -> str:
    """The source with comments blanked out and line numbers kept; string literals are left alone."""
    pattern = r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*.*?\*/'
    return re.sub(
        pattern,
        lambda m: m[0] if m[0][0] == '"' else "\n" * m[0].count("\n") or " ",
        source,
        flags=re.DOTALL,
    )


def _closing(text: str, start: int, opening: str, closing: str, where: str) -> int:
    """Index of the bracket that closes the one at `start`; brackets in strings don't count."""
    depth = 0
    for token in re.finditer(rf'"(?:[^"\\]|\\.)*"|[{re.escape(opening + closing)}]', text[start:]):
        depth += {opening: 1, closing: -1}.get(token[0], 0)
        if depth == 0:
            return start + token.start()
    raise AnalysisError(f"{where}: {opening!r} is never closed")


def _predicate(expression: str, where: str) -> Callable[[KernelConfig], bool]:
    value = _Parser(expression, where).parse()

    def holds(config: KernelConfig) -> bool:
        try:
            return value(config) != 0
        except (ZeroDivisionError, ValueError) as error:
            raise AnalysisError(f"{where}: {expression}: not defined for {config}") from error

    return holds


def _divide(a: int, b: int) -> int:
    """C division: towards zero."""
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


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
    "<<": lambda a, b: a << b,
    ">>": lambda a, b: a >> b,
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": _divide,
    "%": lambda a, b: a - b * _divide(a, b),
}


class _Parser:
    """Turns a C expression into a function of the configuration, by precedence climbing."""

    def __init__(self, expression: str, where: str) -> None:
        self.expression, self.where = expression, where
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
        return AnalysisError(f"{self.where}: static_assert({self.expression}, ...): {problem}")

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
        return lambda config: yes(config) if test(config) else no(config)

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
            return lambda config: int(bool(left(config)) or bool(right(config)))
        if operator == "&&":
            return lambda config: int(bool(left(config)) and bool(right(config)))
        apply = OPERATORS[operator]
        return lambda config: apply(left(config), right(config))

    def unary(self) -> Value:
        token = self.take()
        if token in ("!", "-", "+", "~"):
            value = self.unary()
            signs: dict[str, Value] = {
                "!": lambda config: int(not value(config)),
                "-": lambda config: -value(config),
                "+": value,
                "~": lambda config: ~value(config),
            }
            return signs[token]
        if token == "(":
            value = self.conditional()
            self.expect(")")
            return value
        if token[:1].isdigit():
            if len(token) > 1 and token.isdigit() and token[0] == "0":
                raise self.error(f"octal number {token!r} is not understood")
            number = int(token, 0)
            return lambda config: number
        if token == "cfg":
            self.expect(".")
            return self.field(self.take())
        if token in CALLS:
            for part in ("(", "&", "cfg", ")"):
                self.expect(part)
            return CALLS[token]
        if token in CONSTANTS:
            constant = CONSTANTS[token]
            return lambda config: constant
        raise self.error(
            f"{token or 'the end'!r} is not understood: only cfg.FIELD, numbers, {', '.join(CONSTANTS)} "
            f"and {', '.join(f'{call}(&cfg)' for call in CALLS)} are read"
        )

    def field(self, name: str) -> Value:
        if name not in FIELD_TYPES:
            raise self.error(f"cfg has no field {name!r}")
        return lambda config: int(getattr(config, name))
