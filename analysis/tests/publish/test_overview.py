"""Data of the versions: the run of each speed, and one value of each gain on every page."""

import json
import re
from pathlib import Path

import pytest

from analysis.errors import AnalysisError
from analysis.files import read_text, root
from analysis.machine_code.regs import Row, registers_path, registers_text
from analysis.measure.records import Record
from analysis.publish import predictions
from analysis.publish.ladder_page import ladder_page, ladder_table, losses_text
from analysis.publish.libraries import libraries_table
from analysis.publish.overview import HEADLINE, Speed, read_steps, speeds_at
from analysis.publish.story import gain, gains_table, steps_table
from analysis.tests.support.ladder import V01, bench, record, small_ladder

NS = HEADLINE.flop() / 1e3  # of 1 TFLOP/s


@pytest.fixture
def ladder(tmp_path: Path) -> Path:
    return small_ladder(tmp_path)


def speed_of_v01(*records: Record) -> Speed | None:
    return speeds_at(records, HEADLINE, {"v01": V01}).get("v01")


def test_figures_come_from_the_files(ladder: Path) -> None:
    first, second = read_steps(ladder)
    assert (first.loop("sm_90"), second.loop("sm_90"), second.loop_per_matrix("sm_90")) == (10, 8, 2.0)
    assert (second.registers("sm_90"), second.registers("sm_80")) == (210, None)
    assert first.changed is None and second.changed and second.changed > 0
    row = dict(zip(*(lambda t: (t.columns, t.rows[1]))(ladder_table([first, second], links=False)), strict=True))
    assert (row["loop / HMMA sm_90"], row["wavefronts / ideal"], row["registers sm_80"]) == ("2.00", "1.00", "–")
    for path in [*ladder.glob("regs/*"), *ladder.glob("sass/*")]:
        path.unlink()
    assert ladder_table(read_steps(ladder)).rows[1][4:8] == ["–"] * 4


def test_a_register_file_of_another_config_is_refused(ladder: Path) -> None:
    other = Row("(other)", "sm_90", 1, 0, 0, 0, 0, 1, "n/a", None, 0, 0)
    registers_path(ladder).write_text(registers_text({"v01": [other]}, {}))
    with pytest.raises(AnalysisError, match="make regs VER=v01"):
        read_steps(ladder)


def test_speed_is_that_of_the_newest_run_with_the_peer() -> None:
    records = [
        *(record("v01", ns, f"2026-01-0{day}") for day, ns in ((1, 200.0), (2, 400.0), (3, 100.0))),
        *(record("fa2", 100.0, f"2026-01-0{day}") for day in (1, 2)),
    ]
    speed = speed_of_v01(*records)
    assert speed and speed.ratio and speed.ratio.mid == pytest.approx(0.25, rel=0.01)
    alone = speed_of_v01(records[0])
    assert alone and alone.ratio is None and alone.tflops == pytest.approx(HEADLINE.flop() / 200 / 1e3)
    assert speed_of_v01(record("v01", 200.0, "r", config="(other)"), record("fa2", 100.0, "r")) is None
    assert speed_of_v01(record("v01", 200.0, "r", check={"pass": False}), record("fa2", 100.0, "r")) is None


def test_libraries_stand_next_to_the_fastest_version(ladder: Path) -> None:
    steps = bench(ladder, record("v02", NS / 400, "r"), record("fa2", NS / 320, "r"))
    assert [list(row) for row in libraries_table(ladder, steps).rows] == [
        ["v02", "fp16", *["not measured"] * 3, "400 (1.25)", *["not measured"] * 2],
        ["FlashAttention-2", "fp16", *["not measured"] * 3, "320", *["not measured"] * 2],
    ]


def test_a_gain_is_that_of_one_run_of_both(ladder: Path) -> None:
    """Not the quotient of two ratios: v02 was measured alone later, ten times as fast."""
    both = [record("v01", 100.0, "r"), record("v02", 50.0, "r"), record("fa2", 80.0, "r")]
    steps = bench(ladder, *both, record("v02", 5.0, "s"), record("fa2", 80.0, "s"))
    assert gain(steps, "v02", 4096) == pytest.approx(2.0) and gain(steps, "v01", 4096) is None
    assert steps_table(steps, ["v02"]).rows[0][3:] == ["not measured"] * 3 + ["+100.0 %"] + ["not measured"] * 2
    (claim,) = [one for one in predictions.judge(steps) if one.claim.quantity == "speedup"]
    assert claim.measured == gain(steps, "v02", 4096)
    assert "| 2.000" in ladder_page(ladder, steps)
    slower = bench(ladder, record("v01", 50.0, "r"), record("v02", 100.0, "r"))
    assert "v02 (-50.0 %)" in losses_text(slower)


def test_every_page_prints_one_value_of_a_gain() -> None:
    """kernels/README.md, performance.md and notebook 07 agree with Step.gain() wherever they print a gain."""
    steps = {step.name: step for step in read_steps(root())}
    ladder = re.findall(r"^\| \[(v\w+)\].* (\S+) +\|$", read_text(root() / "kernels/README.md"), re.MULTILINE)
    assert len(ladder) == len(steps)
    for name, shown in ladder:
        own = steps[name].gain()
        assert shown == ("–" if own is None else f"{own:.3f}"), name
    page = read_text(root() / "docs/performance.md")
    assert gains_table(root(), [*steps.values()]).markdown() in page
    (book,) = (root() / "notebooks").glob("07_*.ipynb")
    text = "".join("".join(out) for cell in json.loads(read_text(book))["cells"] for out in [
        output.get("data", {}).get("text/plain", []) for output in cell.get("outputs", [])])  # fmt: skip
    shown_in_07 = re.findall(
        r"^(v\w+) +speed / parent's +(\d+) .*? (\d\.\d{3}) +(?:hit|near|miss)$", text, re.MULTILINE
    )
    assert len(shown_in_07) > 30
    for name, seq, value in shown_in_07:
        assert value == f"{steps[name].gain(int(seq)):.3f}", name


def test_every_number_that_is_printed_twice_has_one_value() -> None:
    """A row per version, in any table of any page, and the story's sentences: equal columns hold equal numbers."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    for page in [*root().glob("*.md"), *(root() / "docs").rglob("*.md"), *(root() / "kernels").rglob("*.md")]:
        header: list[str] = []
        for line in read_text(page).splitlines():
            cells = [cell.strip() for cell in line.strip("| ").split(" | ")]
            header = header if line.startswith("| ") and header else cells if line.startswith("| version ") else []
            if header and len(cells) == len(header) and (name := re.match(r"\[([vbf]\d\d[a-z]?)\]", cells[0])):
                for column, cell in zip(header[1:], cells[1:], strict=True):
                    found.setdefault((name[1], column), {})[str(page.relative_to(root()))] = cell
    told = re.findall(r"^<!-- (v\w+): generated.*?^- \*\*Measured\*\*: (\d+) TFLOP/s.*?$(.*?)^<!-- /",
                      read_text(root() / "docs/story.md"), re.MULTILINE | re.DOTALL)  # fmt: skip
    for name, speed, _ in told:
        found[name, "TFLOP/s, H200"]["docs/story.md"] = speed
    twice = {key: pages for key, pages in found.items() if len(pages) > 1}
    assert len(told) > 10 and len(twice) > 100
    ideas = ("idea", "what it removes")  # texts, which a page may shorten
    assert {key: pages for key, pages in twice.items() if len(set(pages.values())) > 1 and key[1] not in ideas} == {}


def test_no_interval_of_the_repository_is_a_coincidence() -> None:
    """Subjects of one run share their scatter, so no interval is a small fraction of what is usual."""
    ratios = [one.ratio for step in read_steps(root()) for one in step.speeds.values() if one.ratio]
    halves = sorted((ratio.high - ratio.low) / ratio.mid / 2 for ratio in ratios)
    assert halves[0] > 0.3 * halves[len(halves) // 2]
