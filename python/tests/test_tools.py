"""The programs of python/tools/ that run many random problems, here with few of them on the emulator."""

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

TOOLS = Path(__file__).resolve().parents[1] / "tools"


@pytest.fixture
def program(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(TOOLS)
    return importlib.import_module(getattr(request, "param", "never_nan"))


@pytest.mark.parametrize("first", [0, *(pytest.param(n, marks=pytest.mark.long) for n in range(40, 440, 40))])
def test_hidden_values_change_no_bit(program: Any, first: int) -> None:
    cases = [program.make_case(number, 160) for number in range(first, first + 40)]
    assert {program.check(case, program.ours) for case in cases} == {"right"}


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


@pytest.mark.parametrize("program", ["batch_invariant"], indirect=True)
@pytest.mark.parametrize("count", [3, pytest.param(60, marks=pytest.mark.long)])
def test_a_sequence_has_the_same_bits_in_every_batch(program: Any, count: int, capsys: Any, monkeypatch: Any) -> None:
    given = ["--compositions", str(count), "--most", "150"]
    assert not program.main(given) and f"| prefill, packed | {count} | {count} | 0 |" in capsys.readouterr().out

    def later(chosen: Any, *others: Any) -> Any:
        return [(o, lse + len(chosen)) for o, lse in program.cached(chosen, *others)]

    monkeypatch.setitem(program.FORMS, "decoding, caches", ("decode", later, program.cached))
    assert program.main(given) == 1
