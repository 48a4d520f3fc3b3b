"""Layouts as the kernels' functions give them: the committed file is fresh, and says what the PTX manual says."""

from dataclasses import replace
from pathlib import Path

import pytest

from analysis.__main__ import main
from analysis.emulate import layouts
from analysis.emulate.layouts import Held, Location, emulate_layouts, read_layouts, table
from analysis.errors import AnalysisError
from analysis.files import root

RECORDED = read_layouts(root())


def accumulator(lane: int) -> tuple[Location, ...]:
    """PTX ISA, "Matrix Fragments for mma.m16n8k16": two adjacent results, or one operand A."""
    row, column = lane // 4, lane % 4 * 2
    return tuple((row + down, column + right + e) for right in (0, 8) for down in (0, 8) for e in (0, 1))


@pytest.mark.whole_ladder
def test_the_committed_layouts_are_fresh() -> None:
    fresh = emulate_layouts()
    assert [one for held in RECORDED.values() for one in held] == fresh, "run `python3 -m analysis layouts --write`"


@pytest.mark.parametrize("layout", ["A", "S", "P", "B of K"])
def test_a_lane_holds_what_the_manual_says(layout: str) -> None:
    assert [one.holds for one in RECORDED[layout]] == [accumulator(lane) for lane in range(32)]


def test_the_command_writes_and_compares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    held = [Held("A", 0, ((0, 0), (0, 1))), Held("A", 1, ((0, 2), (0, 3)))]
    (tmp_path / "regs").mkdir()
    monkeypatch.setattr(layouts, "root", lambda: tmp_path)
    monkeypatch.setattr(layouts, "emulate_layouts", lambda: held)
    assert main(["layouts", "--exit-code"]) == 1
    assert main(["layouts", "--write"]) == 0
    assert read_layouts(tmp_path) == {"A": held}
    assert main(["layouts", "--exit-code"]) == 0
    monkeypatch.setattr(layouts, "emulate_layouts", lambda: [replace(held[0], who=2), held[1]])
    assert main(["layouts", "--exit-code"]) == 1
    path = layouts.layouts_path(tmp_path)
    path.write_text(table(held).csv().replace("0.2", "0"))
    with pytest.raises(AnalysisError, match=r"layouts\.csv"):
        read_layouts(tmp_path)
    assert "layout" in capsys.readouterr().out
