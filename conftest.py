"""pytest collects the C test programs too: make runs each into build/tests*/NAME.tap."""

from __future__ import annotations

import gc
import os
import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parent
FOLDERS = {"": ROOT / "build/tests", " (sanitized)": ROOT / "build/tests-san"}
# Tests run side by side already: a product of small matrices on all cores costs several times what it needs on one.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Every run uses the same examples, so that a change that fails has broken something. `make check-long` draws others. No
# test fails because a busy machine draws or runs them slowly.
SLOW = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("fixed", derandomize=True, **SLOW)  # type: ignore[arg-type]
settings.register_profile("random", print_blob=True, **SLOW)  # type: ignore[arg-type]
settings.load_profile("fixed")
# Listings and records are kept by the million: Python need not look through all of them every few seconds.
gc.set_threshold(50_000, 10, 10)
TAP_LINE = re.compile(r"^(ok|not ok) (\d+)(?: - )?(.*)$")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shuffle", type=int, metavar="SEED", help="tests of a file, and the files, in another order")


def pytest_report_header(config: pytest.Config) -> str | None:
    seed = config.getoption("--shuffle")
    return None if seed is None else f"in the order of --shuffle {seed}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The longest tests start first, or one core would wait for them at the end.

    Shuffled, the tests of a file stay together, for what they share is made once for them.
    """
    seed = config.getoption("--shuffle")
    if seed is None:
        items.sort(key=lambda item: item.get_closest_marker("first") is None)
        return
    rng = random.Random(seed)
    files = sorted({item.path for item in items})
    rng.shuffle(files)
    order = {path: number for number, path in enumerate(files)}
    rng.shuffle(items)
    items.sort(key=lambda item: order[item.path])


class TapLine(pytest.Item):
    """A `not ok` line, or the verdict on the whole program (its plan and its exit status)."""

    def __init__(self, *, failure: str | None, **kwargs: object) -> None:
        super().__init__(**kwargs)  # type: ignore[arg-type]
        self.failure = failure

    def runtest(self) -> None:
        if self.failure is not None:
            raise AssertionError(self.failure)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: object = None) -> str:
        return str(excinfo.value)

    def reportinfo(self) -> tuple[Path, None, str]:
        return self.path, None, self.name


class TapProgram(pytest.File):
    """A test_*.c file; its programs have been run by make."""

    def collect(self) -> Iterator[pytest.Item]:
        for label, folder in FOLDERS.items():
            tap = folder / f"{self.path.stem}.tap"
            if not tap.exists():
                reason = f"{tap.relative_to(ROOT)} is missing: run `make check`, which builds and runs the C tests"
                yield TapLine.from_parent(self, name=f"built{label}", failure=reason)
                continue
            yield from self.lines(label, tap.read_text(errors="replace"))

    def lines(self, label: str, text: str) -> Iterator[pytest.Item]:
        rows = text.splitlines()
        results = [(match, i) for i, row in enumerate(rows) if (match := TAP_LINE.match(row))]
        for match, i in results:  # four thousand `ok` lines as tests would cost more than the programs
            if match[1] != "ok":
                context = "\n".join(rows[max(0, i - 8) : i + 1])
                yield TapLine.from_parent(self, name=f"{match[2]} {match[3]}{label}", failure=context)
        plan = next((int(row[3:]) for row in rows if re.fullmatch(r"1\.\.\d+", row)), None)
        status = next((row for row in reversed(rows) if row.startswith("# exit ")), "# exit unknown")
        sound = plan == len(results) and plan > 0 and (status == "# exit 0" or any(m[1] != "ok" for m, _ in results))
        tail = "\n".join(rows[-30:])
        problem = None if sound else f"plan {plan}, {len(results)} results, {status}\n{tail}"
        yield TapLine.from_parent(self, name=f"ran to its end{label}", failure=problem)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> TapProgram | None:
    if file_path.suffix == ".c" and file_path.name.startswith("test_"):
        return TapProgram.from_parent(parent, path=file_path)
    return None
