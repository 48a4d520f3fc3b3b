"""Pictures: what they show is what the records say; equal data gives an equal file."""

from pathlib import Path

import pytest

from analysis.__main__ import main
from analysis.errors import AnalysisError
from analysis.files import root
from analysis.ladder.config import KernelConfig, parse_short_form
from analysis.ladder.headers import Header, Version
from analysis.machine_code.traffic import Traffic
from analysis.measure import records
from analysis.measure.records import Problem
from analysis.publish import drawing, overview, plot
from analysis.publish.overview import Step
from analysis.publish.plot import Run
from analysis.tests.support.fake import fake_bin

PROBLEM = Problem("attention", "fp16", 16, 16, 4096, 128, "normal")
CONFIG = "(FP16, 128, 64, 64, 4): async+load_0_0_0_tiles"


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run of v01 (4 ms at 4096) and v02 (1 ms), without peers."""
    made = fake_bin(tmp_path, monkeypatch)
    made.set("v01", ns=4e6 / 64, sms=132, hz=1.7e9, peak=640.0)
    made.set("v02", ns=1e6 / 64, sms=132, hz=1.7e9, peak=640.0)
    path = tmp_path / "h200.jsonl"
    main(["bench", "--records", str(path), "--rounds", "2", "--quiet"])
    return path


def run_of(path: Path) -> Run:
    return plot.run_of(records.read(path).records, PROBLEM)


def version(name: str) -> Version:
    header = Header(name, "", "", "", "", (), parse_short_form(CONFIG), "sm_80", 0)
    return Version(Path(), "", header, "")


def step(name: str, wavefronts: int) -> Step:
    return Step(version(name), None, None, {}, {}, Traffic(name, CONFIG, 1, wavefronts, 1, 1))


def test_a_run_holds_what_was_measured(log: Path) -> None:
    run = run_of(log)
    assert (run.device, run.sms, run.arch, run.mma_peak) == ("NVIDIA H200", 132, "sm_90", 640.0)
    assert run.rows["v02"].tflops == pytest.approx(PROBLEM.flop() / 1e-3 / 1e12, rel=0.01)
    with pytest.raises(AnalysisError, match="no record of bf16"):
        plot.run_of(records.read(log).records, Problem("attention", "bf16", 16, 16, 4096, 128, "normal"))


def test_the_run_with_the_most_versions_is_drawn(log: Path) -> None:
    """Not the newest one: a later run of one version, or of energy too, would leave the other versions out."""
    first = [record.raw for record in records.read(log).records]
    again = [raw | {"run": raw["run"] | {"id": "b"}} for raw in first]
    heated = [raw | {"run": raw["run"] | {"id": "c"}, "energy": {"joules": 2.0}} for raw in first]
    alone = [raw | {"run": raw["run"] | {"id": "d"}} for raw in first if raw["version"] == "v02"]
    first = [raw | {"run": raw["run"] | {"id": "a"}} for raw in first]
    found = [records.parse(raw) for raw in (*first, *again, *heated, *alone)]
    assert plot.widest_run(found) == "b"
    assert plot.widest_run([record for record in found if record.run_id != "b"]) == "a"
    assert plot.widest_run([record for record in found if record.run_id in "cd"]) == "c"
    assert set(plot.run_of(found, PROBLEM).rows) == {"v01", "v02"}


def test_the_ladder_names_versions_speeds_and_the_peak(log: Path) -> None:
    text = drawing.svg(plot.ladder(run_of(log)))
    run = run_of(log)
    for shown in (
        "v01",
        "v02",
        f"{run.rows['v01'].tflops:.0f}",
        "×4.0",
        "measured peak of mma.sync 640",
        "NVIDIA H200",
    ):
        assert shown in text
    assert text == drawing.svg(plot.ladder(run_of(log)))


def test_the_roof_is_that_of_the_device(log: Path) -> None:
    run = run_of(log)
    assert plot.shared_roof(run) == pytest.approx(132 * 128 * 1.7e9 / 1e12)
    points = plot.roofline_points(run, [step("v01", 288768), step("v02", 45056), step("v03", 1)])
    assert [point.version for point in points] == ["v01", "v02"]
    assert points[1].intensity == pytest.approx(4 * 8 * 512**2 * 128 / (45056 * 128))
    text = drawing.svg(plot.roofline(run, points))
    assert "shared memory 29 TB/s" in text and "v02" in text
    with pytest.raises(AnalysisError, match="modelled traffic"):
        plot.roofline(run, [])


def test_points_that_lie_together_share_a_label() -> None:
    points = [plot.Point(f"v{number:02}", 20.0, 400.0 + number) for number in (3, 4, 5, 8)]
    apart = plot.Point("v06", 5.0, 400.0)
    groups = plot.neighbours([points[0], apart, *points[1:]])
    assert [plot.ranges([point.version for point in group]) for group in groups] == ["v03–05, v08", "v06"]


def test_measured_cycles_of_one_pass(log: Path) -> None:
    """All sub-partitions together spend time·clock·SMs·4 cycles on batch·heads·Q blocks·warps·KV blocks passes."""
    run = run_of(log)
    passes = 16 * 16 * 64 * 4 * 64
    cycles = plot.measured_cycles(run.rows["v01"], run, step("v01", 1))
    assert cycles == pytest.approx(4e-3 * 1.7e9 * 132 * 4 / passes, rel=0.01)


def test_the_time_chart_shows_shares(log: Path) -> None:
    text = drawing.svg(plot.time_chart(run_of(log), [plot.Share("v01", 100.0, {"tensor": 0.5, "lsu": 0.9})]))
    assert "tensor" in text and "v01" in text
    with pytest.raises(AnalysisError, match="sm_90"):
        plot.time_chart(run_of(log), [])


def test_shares_come_from_the_listings_of_the_repository(log: Path) -> None:
    run = run_of(log)
    found = plot.shares(run, overview.read_steps(root()))
    assert found, "v01 has a committed listing"
    first = found[0]
    assert first.version == "v01"
    config: KernelConfig = parse_short_form(CONFIG)
    per_pass = 2 * (config.B_r // config.n_warps // 16) * (config.B_c // 8) * (config.d_head // 16)
    assert first.pipes["tensor"] * first.cycles == pytest.approx(6 * per_pass)  # an HMMA every 6 cycles on sm_90


def test_the_command_writes_both_formats(log: Path, tmp_path: Path) -> None:
    for name in ("ladder.svg", "ladder.png"):
        assert main(["plot", "ladder", "--from", str(log), "-o", str(tmp_path / name)]) == 0
        assert (tmp_path / name).stat().st_size > 1000
    assert main(["plot", "ladder", "--from", str(log), "-o", str(tmp_path / "ladder.pdf")]) == 2
    assert main(["plot", "ladder", "--from", "a100", "-o", str(tmp_path / "ladder.svg")]) == 2
