"""What is said beside the output: progress of long work, and how many tools run at once."""

import io

import pytest

from analysis.machine_code.notes import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("out", "lines"), [(io.StringIO(), 2), (Terminal(), 0)])
def test_long_work_says_how_far_it_has_come(out: io.StringIO, lines: int, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 1.0, 4.0, 5.0, 14.5])
    monkeypatch.setattr("analysis.machine_code.notes.time.monotonic", lambda: next(clock))
    assert list(progress("abcd", "kernels", 4, out)) == ["a", "b", "c", "d"]
    said = out.getvalue()
    assert "1 of 4 kernels, 4 s" in said
    assert "3 of 4 kernels, 14 s" in said or "3 of 4 kernels, 15 s" in said
    assert said.count("\n") == lines
    assert said.endswith("\n" if lines else "\r")


def test_short_work_says_nothing() -> None:
    out = io.StringIO()
    assert list(progress(range(3), "kernels", 3, out)) == [0, 1, 2]
    assert out.getvalue() == ""
