"""The table of docs/performance.md: from header blocks, records and ncu's output; a missing figure is shown as such."""

import shutil
from pathlib import Path

import pytest

from analysis.files import root
from analysis.publish.libraries import NOT_MEASURED
from analysis.publish.overview import read_steps
from analysis.publish.readme import documents
from analysis.publish.story import MISSING, held_up, story_table


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """v01 and v02 without any figure."""
    (tmp_path / "kernels").mkdir()
    (tmp_path / "logs/profile").mkdir(parents=True)
    (tmp_path / "logs/bench").mkdir()
    for name in ("v01_base", "v02_swizzle"):
        shutil.copy(root() / f"kernels/{name}.cu", tmp_path / "kernels")
    return tmp_path


def test_what_is_not_measured_is_shown_as_missing(checkout: Path) -> None:
    rows = story_table(checkout, read_steps(checkout)).rows
    assert [row[0] for row in rows] == ["v01", "v02"]
    assert all(row[3:] == [*[NOT_MEASURED] * 5, MISSING] for row in rows)
    assert "four times faster" in str(rows[1][2])


def test_figures_are_those_of_the_records_and_of_ncu(checkout: Path) -> None:
    shutil.copy(root() / "logs/bench/h200.jsonl", checkout / "logs/bench")
    shutil.copy(root() / "logs/profile/v01.fp16.4096.csv", checkout / "logs/profile")
    steps = read_steps(checkout)
    first, second = story_table(checkout, steps).rows
    speed = steps[0].speeds["h200"].ratio
    assert speed is not None and first[4] == f"{speed.mid:.3f}"
    assert first[6] == f"{steps[0].speeds['h200'].tflops:.0f}"
    assert 1000 < float(str(first[7])) < 2100
    assert str(first[8]).startswith("9 %, short_scoreboard") and second[8] == MISSING


def test_the_largest_stalls_come_first(checkout: Path) -> None:
    shutil.copy(root() / "logs/profile/v16.fp16.4096.csv", checkout / "logs/profile")
    text = held_up(checkout, "v16")
    share, first, second = text.split(", ")
    assert share.endswith(" %") and float(first.split()[1]) >= float(second.split()[1]) > 0
    assert "selected" not in text


def test_the_page_takes_the_table(checkout: Path) -> None:
    (checkout / "docs").mkdir()
    page = checkout / "docs/performance.md"
    shutil.copy(root() / "docs/performance.md", page)
    steps = read_steps(checkout)
    assert story_table(checkout, steps).markdown() in documents(checkout, steps)[page]
