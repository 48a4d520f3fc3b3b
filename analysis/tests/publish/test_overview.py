"""What is known of the versions: from which run a speed comes, and one value of each gain on every page."""

import json
import re
from pathlib import Path

import pytest

from analysis.errors import AnalysisError
from analysis.files import read_text, root
from analysis.machine_code.regs import Row, registers_path, registers_text
from analysis.machine_code.traffic import read_traffic
from analysis.measure.records import Record
from analysis.measure.stats import Interval
from analysis.publish import predictions
from analysis.publish.energy import energy_table, joules_and_watts, states_table
from analysis.publish.ladder_page import ladder_page, ladder_table, losses_text
from analysis.publish.libraries import libraries_table
from analysis.publish.overview import HEADLINE, LENGTHS, Speed, problem_at, read_steps, speeds_at
from analysis.publish.story import gain, gains_table, steps_table
from analysis.tests.support.ladder import OWN, V01, bench, record, small_ladder

NS = HEADLINE.flop() / 1e3  # of 1 TFLOP/s


@pytest.fixture
def ladder(tmp_path: Path) -> Path:
    return small_ladder(tmp_path)


def speed_of_v01(*records: Record) -> Speed | None:
    return speeds_at(records, HEADLINE, {"v01": V01}).get("v01")


def test_figures_come_from_the_files(ladder: Path) -> None:
    first, second = read_steps(ladder)
    assert (first.loop("sm_80"), second.loop("sm_80"), second.loop_per_matrix("sm_80")) == (10, 8, 2.0)
    assert (second.registers("sm_80"), second.registers("sm_90")) == (210, None)
    assert first.changed is None and second.changed and second.changed > 0
    row = dict(zip(*(lambda t: (t.columns, t.rows[1]))(ladder_table([first, second], links=False)), strict=True))
    assert (row["loop / HMMA sm_80"], row["wavefronts / ideal"], row["registers sm_90"]) == ("2.00", "1.00", "–")
    for path in [*ladder.glob("regs/*"), *ladder.glob("sass/*")]:
        path.unlink()
    assert ladder_table(read_steps(ladder)).rows[1][4:8] == ["–"] * 4


def test_a_register_file_of_another_config_is_refused(ladder: Path) -> None:
    other = Row("(other)", "sm_80", 1, 0, 0, 0, 0, 1, "n/a", None, 0, 0)
    registers_path(ladder).write_text(registers_text({"v01": [other]}, {}))
    with pytest.raises(AnalysisError, match="make regs VER=v01"):
        read_steps(ladder)


def test_a_damaged_traffic_file_is_refused(ladder: Path) -> None:
    path = ladder / "regs/traffic.csv"
    path.write_text(path.read_text().replace(",64,", ",many,"))
    with pytest.raises(AnalysisError, match="wavefronts = 'many'"):
        read_traffic(ladder)


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


def test_a_version_in_bf16_is_its_configuration_with_another_type() -> None:
    problem = problem_at(4096, "bf16")
    own = record("v01", 200.0, "r", problem, config=OWN["v01"].replace("FP16", "BF16"))
    records = [record("fa2", 100.0, "r", problem), own]
    assert list(speeds_at(records, problem, {"v01": V01})) == ["v01"]
    assert not speeds_at(records, HEADLINE, {"v01": V01})


def test_libraries_stand_next_to_the_fastest_version(ladder: Path) -> None:
    steps = bench(ladder, record("v02", NS / 400, "r"), record("fa2", NS / 320, "r"))
    assert [list(row) for row in libraries_table(ladder, steps).rows] == [
        ["v02", "fp16", *["not measured"] * 3, "400 (1.25)", *["not measured"] * 2],
        ["FlashAttention-2", "fp16", *["not measured"] * 3, "320", *["not measured"] * 2],
    ]


def test_a_half_width_is_never_shown_as_zero() -> None:
    assert Interval(1.104, 1.1041, 1.1042).plus_minus() == "1.104 ± < 0.0005"
    assert Interval(1.09, 1.1, 1.11).plus_minus() == "1.100 ± 0.010"


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


def test_joules_are_those_of_the_newest_run_that_measured_them(ladder: Path) -> None:
    clocks = {"sm_clock_hz": 1.5e9, "first_sm_clock_hz": 1.7e9, "celsius": 60, "idle": 0.0012}
    found = {"joules": 1.25, "watts": 650.0, "launches": 9, "seconds": 1.1, "first_ns": NS / 800} | clocks
    records = [record("v02", 80.0, "r"), record("fa2", 100.0, "r")]
    assert not energy_table(ladder, bench(ladder, *records)).rows
    records += [record("v02", 80.0, "s", energy=found | {"joules": 9.0}), record("v02", 80.0, "x")]
    records += [record("v02", 80.0, "t", energy=found | {"joules": 1e3}, check={"pass": False})]
    records += [record("v02", 80.0, "s2", energy=found), record("fa3", 70.0, "s", energy={"joules": 2.5})]
    steps, sustained, each = bench(ladder, *records), round(HEADLINE.flop() / 1.25 * 650 / 1e12), HEADLINE.flop() / 1e12
    assert [list(row) for row in energy_table(ladder, steps).rows] == [
        ["v02", "fp16", 16, 800, sustained, 1700, 1500, "1.25", f"{each / 1.25:.3f}", 650, 60, "0.12 %"],
        ["FlashAttention-3", "fp16", 16, *[None] * 4, "2.5", f"{each / 2.5:.3f}", *[None] * 3],
    ]
    assert list(states_table(ladder, steps).rows[0]) == ["v02", 800, sustained, f"{each / 1.25:.3f}"]
    assert joules_and_watts(ladder, steps) == {"v02": (1.25, 650.0)}
    with pytest.raises(AnalysisError, match="no joules"):
        energy_table(ladder, bench(ladder, *records, record("v02", 80.0, "y", energy={"launches": 3})))


def test_no_interval_of_the_repository_is_a_coincidence() -> None:
    """Subjects of one run share their scatter, so no interval is a small fraction of what is usual."""
    ratios = [one.ratio for step in read_steps(root()) for one in step.speeds.values() if one.ratio]
    halves = sorted((ratio.high - ratio.low) / ratio.mid / 2 for ratio in ratios)
    assert halves[0] > 0.3 * halves[len(halves) // 2]


def test_a_loop_without_matrix_instructions_has_no_figure_per_hmma() -> None:
    (plain,) = (each for each in read_steps(root()) if each.name == "v00")
    assert plain.loop("sm_80") and plain.loop_per_matrix("sm_80") is plain.executed_per_matrix("sm_80") is None
    assert len(LENGTHS) == 6
