"""docs/predict.md: what it says of kernels that are not ours, on made-up figures."""

import json
from pathlib import Path

import pytest

from analysis.errors import AnalysisError
from analysis.files import root
from analysis.predict.launch import Tile
from analysis.predict.machine import model_digest, read_machine
from analysis.publish.prediction_page import FOREIGN, FOREIGN_COLUMNS, foreign_table, foreign_text, stalls_of


def record(folder: Path, *rows: str) -> Path:
    path = folder / FOREIGN
    path.parent.mkdir(parents=True)
    path.write_text("\n".join([",".join(FOREIGN_COLUMNS), *rows]) + "\n")
    return folder


def test_a_kernel_is_as_near_as_the_worst_of_its_launches(tmp_path: Path) -> None:
    """1000 cycles measured: 5 % too slow and 5 % too fast, 12 % too fast, and 20 % too slow in one of two."""
    rows = ("one,a,1,4,1,8,,1,1,1050,", "one,b,1,4,1,8,,1,1,950,", "two,a,1,4,1,8,2,1,1,880,0123456789ab")
    now = f"three,a,1,4,1,8,,1,1,1200,{model_digest()}"
    folder = record(tmp_path, *rows, now, "three,b,1,4,1,8,,1,1,1000,")
    said, _, table = foreign_text(folder).partition("\n\n")
    assert said == (
        "Of 3 kernels 1 are within 10 % in all of their launches; mean error 8.4 % over 5 launches. "
        "An older state of the model predicted 4 of them."
    )
    spans = [[cell.strip() for cell in line.split("|")[1:4]] for line in table.splitlines()[2:]]
    assert spans == [["one", "2", "-5.0 … +5.0"], ["two", "1", "-12.0 … -12.0"], ["three", "2", "+0.0 … +20.0"]]
    assert foreign_table(folder).rows[2] == ["two", "a", "1,4,1,8 --loop 2", "-12.0"]


def test_what_excess_adds_to_a_pass_are_waits_for_data() -> None:
    """Half of a pass of 1000 cycles is not the busiest pipe's: with an excess of 1.2 it takes 1100, a tenth more."""
    tile = Tile(1000.0, 0.0, 0.0, 500.0, (1.0, 2.0, 0.5, 0.0, 0.25, 0.25))
    stalls = stalls_of(tile, read_machine("h200").with_values(excess=1.2))
    assert stalls == pytest.approx(
        {"issue": 1.0, "pipe": 2.0, "wait": 0.5, "barrier": 0.0, "queue": 0.25, "data": 0.25 + 0.1 * (4.0 + 1)}
    )


@pytest.mark.parametrize("row", ["one,a,1,4,1,8,,x,1,1050,", "one,a,1,4,1,8,,0,1,1050,"])
def test_a_launch_without_a_time_is_named(row: str, tmp_path: Path) -> None:
    with pytest.raises(AnalysisError, match=f"{FOREIGN}:2: "):
        foreign_text(record(tmp_path, row))


def test_the_page_has_what_pipes_measured_on_the_h100() -> None:
    page = " ".join((root() / "docs/predict.md").read_text().split())
    rows = json.loads((root() / "logs/bench/pipes.h100.json").read_text())["pipes"]
    group = "a group of 8 QGMMA.64x96x32"
    (ends,) = (row["ends"] for row in rows if row.get("order") == group and row["warps"] == 12)
    first, second, third = sorted(round(8 * end, -1) for end in ends)
    assert f"the youngest has its results after {first:.0f}, the others after {second:.0f} and {third:.0f}." in page
    copies = {(row["ahead"], row["sms"], row["pause"]): row["cycles"] for row in rows if "copy" in row}
    assert f"of 32 KB takes {round(copies[1, 1, 0], -1):.0f} alone (H100)" in page
