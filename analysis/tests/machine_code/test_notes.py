"""What is said beside the output: progress of long work, and how many tools run at once."""

import io
import subprocess
import threading
from typing import Any

import pytest

from analysis.machine_code import toolkit
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


def test_few_tools_run_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    lock, at_work, most = threading.Lock(), [0], [0]
    meeting = threading.Barrier(toolkit.AT_ONCE, timeout=60)

    def work(*_: Any, **__: Any) -> subprocess.CompletedProcess[str]:
        with lock:
            at_work[0] += 1
            most[0] = max(most[0], at_work[0])
        meeting.wait()  # for as many others as may run at once
        with lock:
            at_work[0] -= 1
        return subprocess.CompletedProcess([], 0, "done", "")

    monkeypatch.setattr("analysis.machine_code.toolkit.subprocess.run", work)
    running = [toolkit.start("nvdisasm", [str(number)]) for number in range(6 * toolkit.AT_ONCE)]
    assert [toolkit.finish(each) for each in running] == ["done"] * 6 * toolkit.AT_ONCE
    assert most[0] == toolkit.AT_ONCE
