"""Runs pytest in a forked process that has its libraries loaded already, over the files of one copy of the checkout.

preload()
run_pytest(tree.folder, ["harness/tests/test_cli.py::test_help"], 30.0)     # the first test that fails, or None
"""

import contextlib
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from analysis.tools.mutation.trees import MEMORY, WAITING, limit_resources

TIMED_OUT = "time limit"
NO_START = "import"


def preload() -> None:
    """Load what tests import beside the files under test, once for all children."""
    import hypothesis
    import numpy
    import pytest

    _ = hypothesis, numpy, pytest


class FirstFailure:
    """Remembers which test failed first."""

    def __init__(self) -> None:
        self.name = ""

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed and not self.name:
            self.name = report.nodeid


def enter(folder: Path) -> None:
    """Make this process one that works in the copy: its modules, its working folder, no byte code."""
    os.setsid()
    quiet = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(quiet, descriptor)
    for name in [name for name in sys.modules if name.partition(".")[0] in ("analysis", "conftest")]:
        del sys.modules[name]
    home = str(Path(__file__).resolve().parents[3])
    sys.path[:] = [str(folder), *(path for path in sys.path if path not in ("", home))]
    os.chdir(folder)
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(folder), *filter(lambda path: path and path != home, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    )
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    os.environ.pop("PYTEST_CURRENT_TEST", None)
    sys.dont_write_bytecode = True
    sys.stdout = sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115


def options(folder: Path) -> list[str]:
    """What pytest is told besides the tests."""
    return ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", f"--basetemp={folder}.tmp", f"--rootdir={folder}"]


def used() -> float:
    """Seconds of a processor that this process and those that it waited for have used."""
    return sum(os.times()[:4])


def address_space() -> int:
    """Bytes that this process has mapped: what a forked one has from the start."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    return pages * resource.getpagesize()


def in_child(work: Callable[[], str], seconds: float) -> str | None:
    """What `work` returns when a forked process does it; None when it ran past the limit, with all its processes.

    The seconds are those of a processor.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            limit_resources(seconds, address_space() + MEMORY)
            os.write(writing, work().encode())
        finally:
            os._exit(0)
    os.close(writing)
    deadline = time.monotonic() + WAITING * seconds
    parts: list[bytes] = []
    ended = False
    try:
        while not ended and select.select([reading], [], [], max(0.0, deadline - time.monotonic()))[0]:
            parts.append(os.read(reading, 1 << 16))
            ended = not parts[-1]
    finally:
        os.close(reading)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child, signal.SIGKILL)
        if not ended:
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    return b"".join(parts).decode() if ended and os.WTERMSIG(status) != signal.SIGXCPU else None


def run_pytest(folder: Path, tests: Sequence[str], seconds: float) -> str | None:
    """The first of these tests that fails, or what else went wrong; None when all pass."""

    def work() -> str:
        import pytest

        enter(folder)
        first = FirstFailure()
        status = pytest.main([*options(folder), *tests], plugins=[first])
        return first.name or ("passed" if status == pytest.ExitCode.OK else NO_START)

    said = in_child(work, seconds)
    if said is None:
        return TIMED_OUT
    return None if said == "passed" else said or "crash"
