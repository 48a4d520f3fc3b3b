"""The rules by which a kernel rejects configurations at compile time: the static_asserts of `check_config<cfg>()`.

    reasons = [check.sentence for check in parse_checks(source, "v01_base.cu") if not check.holds(config)]

A check is `static_assert(EXPRESSION, "sentence");` where EXPRESSION is a C integer expression over `cfg.FIELD`, the
calls `config_smem_bytes(&cfg)` and `config_threads(&cfg)`, FP16, BF16, true, false and numbers. So a version says in
one module, its own source, what it supports; a set of configurations is cut to that without compiling.
"""

import re
from dataclasses import dataclass

from analysis.errors import AnalysisError
from analysis.ladder.c_source import (
    c_expression,
    c_value,
    calls,
    closing_bracket,
    one_line,
    string_literal,
    without_comments,
)
from analysis.ladder.config import Dtype, Instruction, KernelConfig

CONSTANTS = {each.name: int(each) for each in (*Dtype, *Instruction)} | {"true": 1, "false": 0}
CALLS = {"config_smem_bytes": KernelConfig.smem_bytes, "config_threads": KernelConfig.threads}


@dataclass(frozen=True)
class Check:
    """One static_assert: its line, its expression as written, and its sentence."""

    line: int
    expression: str
    sentence: str
    where: str  # "v01_base.cu:60"

    def holds(self, config: KernelConfig) -> bool:
        """True if it accepts a configuration."""
        return c_value(self.expression, {"cfg": config, **CONSTANTS, **CALLS}, self.where) != 0


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
        c_expression(expression, call.where)  # an error where it is not understood
        checks.append(Check(call.line, expression, sentence, call.where))
    if not checks:
        raise AnalysisError(f"{name}: check_config<cfg>() holds no static_assert")
    return checks
