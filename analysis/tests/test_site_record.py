"""logs/site.csv: what docs/testing.md says of the pages' times. Versions newer than its last are not measured yet."""

import csv

import pytest

from analysis.files import root
from analysis.ladder.headers import load_all

RECORD = list(csv.DictReader((root() / "logs/site.csv").open()))


def times(browser: str, what: str) -> dict[str, float]:
    return {row["version"]: float(row["ms"]) for row in RECORD if (row["browser"], row["what"]) == (browser, what)}


@pytest.mark.parametrize("browser", ["chromium", "firefox"])
def test_pages_are_as_quick_as_promised(browser: str) -> None:
    assert all(times(browser, f"first page {state}")[""] < 500 for state in ("painted", "loaded"))
    steps, launches = times(browser, "step drawn"), times(browser, "launch")
    assert len(steps) >= 4 and all(ms < 16 for ms in steps.values())
    assert set(launches) == {version for version in load_all(root()) if version <= max(launches)}
    assert {version for version, ms in launches.items() if not ms < 100} == {"v00"}
    assert launches["v00"] < 300
