"""python/tools/never_nan.py on the emulator: NaN where no kernel may read changes no bit of a result."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

PROGRAM = Path(__file__).resolve().parents[1] / "tools/never_nan.py"


@pytest.fixture(scope="module")
def program() -> Any:
    spec: Any = importlib.util.spec_from_file_location("never_nan", PROGRAM)
    sys.modules["never_nan"] = made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.mark.parametrize("first", [0, *(pytest.param(n, marks=pytest.mark.long) for n in range(40, 440, 40))])
def test_hidden_values_change_no_bit(program: Any, first: int) -> None:
    """Windows are left out: NaN in V that a window hides reaches queries of the same KV block."""
    cases = [program.make_case(number, 160) for number in range(first, first + 40)]
    cases = [case for case in cases if "window" not in case.options and case.size != "beyond"]
    assert len(cases) > 10 and {program.check(case, program.ours) for case in cases} == {"right"}


@pytest.mark.parametrize(
    ("change", "outcome"),
    [
        (lambda o, hidden: np.where(np.isnan(hidden), np.nan, o), "NaN although no NaN is seen"),
        (lambda o, hidden: o + np.nan, "NaN from finite values"),
        (lambda o, hidden: o + np.isnan(hidden), "other bits than with zeros"),
        (lambda o, hidden: o + 100, "outside the values of V"),
    ],
)
def test_a_wrong_result_is_named(program: Any, change: Any, outcome: str) -> None:
    case = next(case for case in map(program.make_case, range(1, 100, 5), [100] * 20) if case.size == "usual")

    def compute(case: Any, arrays: dict[str, Any]) -> Any:
        o, _ = program.ours(case, arrays)
        return [change(o.astype(np.float32), arrays["v"].astype(np.float32).max())]

    assert program.check(case, compute) == outcome
    assert "| x | usual | 1 | 0 | 0 | 1 |" in program.table({("x", "usual"): program.Counter([outcome])})
