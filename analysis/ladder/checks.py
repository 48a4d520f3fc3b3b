"""What a kernel refuses at compile time, read from its source: the static_asserts of `check_config<cfg>()`.

    reasons = [check.sentence for check in parse_checks(source, "v01_base.cu") if not check.holds(config)]

A check is `static_assert(EXPRESSION, "sentence");` where EXPRESSION is a C integer expression over `cfg.FIELD`, the
calls `config_smem_bytes(&cfg)` and `config_threads(&cfg)`, FP16, BF16, true, false and numbers. So a version says in
one place, its own source, what it supports; a set of configurations is cut to that without compiling.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from analysis.errors import AnalysisError
from analysis.ladder import config
from analysis.ladder.c_source import calls, closing_bracket, one_line, predicate, string_literal, without_comments
from analysis.ladder.config import KernelConfig

NAMES = replace(config.NAMES, calls={name: config.LAUNCH[name] for name in ("config_smem_bytes", "config_threads")})


@dataclass(frozen=True)
class Check:
    """One static_assert: its line, its expression as written, its sentence, and what it says of a configuration."""

    line: int
    expression: str
    sentence: str
    holds: Callable[[KernelConfig], bool]


def parse_checks(source: str, name: str) -> list[Check]:
    """The checks of a kernel source in their order; `name` is the file's, for messages."""
    bare = without_comments(source)
    start = re.search(r"\bcheck_config\s*\(\s*\)\s*\{", bare)
    if not start:
        raise AnalysisError(f"{name}: no check_config<cfg>() with the static_asserts on its configuration")
    end = closing_bracket(bare, start.end() - 1, "{", "}", name)
    checks = []
    for call in calls(bare, "static_assert", name, start.end(), end):
        sentence = string_literal(call.arguments[1]) if len(call.arguments) == 2 else None
        if sentence is None:
            raise AnalysisError(f'{call.where}: expected static_assert(EXPRESSION, "sentence")')
        expression = one_line(call.arguments[0])
        checks.append(Check(call.line, expression, sentence, predicate(expression, call.where, NAMES)))
    if not checks:
        raise AnalysisError(f"{name}: check_config<cfg>() holds no static_assert")
    return checks
