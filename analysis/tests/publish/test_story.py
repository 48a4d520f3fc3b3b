"""The table of docs/performance.md: from header blocks, records and ncu's output; a missing figure is shown as such."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from analysis.files import root
from analysis.machine_code.sass import Instruction
from analysis.measure import records
from analysis.measure.profile import kept
from analysis.publish.energy import energy_table, joules_and_watts
from analysis.publish.libraries import NOT_MEASURED
from analysis.publish.overview import LENGTHS, Step, read_steps
from analysis.publish.story import (
    MISSING,
    busy,
    busy_table,
    gain,
    gains_table,
    held_up,
    measured_gains,
    steps_table,
    story_table,
)
from analysis.tests.support.kept import raws, write


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """v01 and v02 without any figure."""
    (tmp_path / "kernels/mma_sync").mkdir(parents=True)
    (tmp_path / "logs/profile").mkdir(parents=True)
    (tmp_path / "logs/bench").mkdir()
    for name in ("v01_base", "v02_swizzle"):
        shutil.copy(root() / f"kernels/mma_sync/{name}.cu", tmp_path / "kernels/mma_sync")
    return tmp_path


def keep_profile(checkout: Path, version: str) -> None:
    """The committed launch of one version under ncu."""
    name = "logs/profile/h200.fp16.4096.csv"
    names, units, *launches = (root() / name).read_text().splitlines()
    mine = [launch for launch in launches if f'"{version}"' in launch]
    assert len(mine) == 1
    (checkout / name).write_text("\n".join([names, units, *mine]) + "\n")


def test_what_is_not_measured_is_shown_as_missing(checkout: Path) -> None:
    rows = story_table(checkout, read_steps(checkout)).rows
    assert [row[0] for row in rows] == ["v01", "v02"]
    assert all(row[3:] == [*[NOT_MEASURED] * 5, MISSING] for row in rows)
    assert "four times faster" in str(rows[1][2])


def test_figures_are_those_of_the_records_and_of_ncu(checkout: Path) -> None:
    shutil.copy(root() / "logs/bench/h200.jsonl", checkout / "logs/bench")
    keep_profile(checkout, "v01")
    steps = read_steps(checkout)
    first, second = story_table(checkout, steps).rows
    at = steps[0].lengths["h200"][4096]
    assert at.ratio is not None and first[4] == f"{at.ratio.mid:.3f}" and first[6] == f"{at.tflops:.0f}"
    assert 1000 < float(str(first[7])) < 2100
    assert str(first[8]).startswith("9 %, short_scoreboard") and second[8] == MISSING


def test_the_largest_stalls_come_first(checkout: Path) -> None:
    keep_profile(checkout, "v16")
    text = held_up(checkout, "v16")
    share, first, second = text.split(", ")
    assert share.endswith(" %") and float(first.split()[1]) >= float(second.split()[1]) > 0
    assert "selected" not in text


# ---- gains of the versions for sm_90a --------------------------------------------------------------------------------


def measured_as(raw: dict[str, Any], step: Step, batch: int, seq: int, factor: float) -> dict[str, Any]:
    """A committed record made into one of another version and problem, so many times as fast."""
    record: dict[str, Any] = json.loads(json.dumps(raw))
    header = step.version.header
    record |= {"version": step.name, "config": str(header.config), "run": record["run"] | {"id": "20990101T000000Z-x"}}
    record["problem"] |= {"batch": batch, "seq": seq, "dtype": "fp16"}
    record["timing"]["samples_ns"] = [ns / factor for ns in record["timing"]["samples_ns"]]
    return record


def test_gains_are_those_over_the_parent_at_each_size(checkout: Path) -> None:
    for name in ("v26_wgmma", "v27_tensor_copies"):
        source = (root() / f"kernels/wgmma/{name}.cu").read_text()
        (checkout / "kernels/wgmma").mkdir(exist_ok=True)
        (checkout / f"kernels/wgmma/{name}.cu").write_text(source.replace("parent    v25", "parent    v02"))
    steps = read_steps(checkout)
    before, after = (step for step in steps if step.version.one_arch)
    _, row = gains_table(checkout, steps).rows
    assert list(row) == ["v27", "tensor copies", "speedup@4096=1.05±0.03", "16, 8, 4", *[NOT_MEASURED] * 6]
    log = checkout / "logs/bench/h200.jsonl"
    raw = next(raw for raw in raws(root() / "logs/bench/h200.jsonl") if raw.get("version") == "v25")
    made = [
        measured_as(raw, before, 32, 512, 1), measured_as(raw, after, 32, 512, 1.25),
        measured_as(raw, before, 16, 4096, 1), measured_as(raw, after, 16, 4096, 0.5),
        measured_as(raw, before, 16, 1024, 1), measured_as(raw, after, 16, 1024, 1.5),
    ]  # fmt: skip
    write(log, made)
    _, first, second = (list(row[3:]) for row in gains_table(checkout, steps).rows)
    assert first == ["16, 8, 4", NOT_MEASURED, "1.500", NOT_MEASURED, "0.500", *[NOT_MEASURED] * 2]
    assert second == ["16384 / length", "1.250", "1.500", *[NOT_MEASURED] * 4]
    (shown,) = measured_gains(checkout, steps).rows
    assert list(shown) == ["v27", first[1], first[4], first[6]]
    write(log, [raw for raw in made if raw["problem"]["seq"] != 512])
    assert [row[3] for row in gains_table(checkout, steps).rows] == ["16, 8, 4", "16, 8, 4"]


HELD = {  # version and length: what docs/performance.md says of it, as least and most of its gain
    ("v26", 4096): (1.02, 1.6),
    ("v28", 512): (0.88, 1.0),
    ("v28", 4096): (1.02, 1.1),
    ("v29", 4096): (1.1, 1.4),
    ("v30", 4096): (0.96, 1.03),
    ("v31", 4096): (0.96, 1.04),
    ("v32", 4096): (0.96, 1.05),
    ("v33", 512): (1.15, 1.4),
    ("v33", 16384): (0.94, 1.04),
    ("v34", 4096): (0.96, 1.05),
    ("v35", 4096): (1.05, 1.25),
    ("v36", 4096): (0.97, 1.04),
    ("v37", 4096): (0.99, 1.1),
}


def test_the_prose_on_wgmma_holds_where_it_is_measured() -> None:
    assert "### From v26 on: wgmma" in (root() / "docs/performance.md").read_text()
    table = gains_table(root(), read_steps(root()))
    gains = [(str(row[0]), dict(zip(LENGTHS, row[4:], strict=True))) for row in table.rows]
    for version, by_length in gains:
        for seq, (least, most) in ((seq, limits) for (name, seq), limits in HELD.items() if name == version):
            assert by_length[seq] == NOT_MEASURED or least <= float(str(by_length[seq])) <= most, (version, seq)
    general = {step.name for step in read_steps(root()) if step.version.header.config.any_length}
    measured = {name for name, by_length in gains if set(by_length.values()) != {NOT_MEASURED}}
    assert {name for name, _ in HELD} == measured - {"v27"} - general


def test_the_prose_on_energy_holds() -> None:
    """docs/performance.md after the table of joules, and at the end of what bound each step."""
    rows = energy_table(root(), read_steps(root())).rows
    figures = {(str(row[1]), str(row[0])): (float(str(row[8])), float(str(row[9]))) for row in rows}  # TFLOP per J, W
    at_the_limit = {name: watts for (_, name), (_, watts) in figures.items() if name not in ("v00", "v01")}
    assert all(675 < watts <= 700 * 1.0075 for watts in at_the_limit.values())
    for dtype in ("fp16", "bf16"):
        last = figures[dtype, "v37"][0]
        for other, least, most in (("FlashAttention-3", 8.5, 9.5), ("cuDNN", 17.5, 18.5), ("FlashAttention-2", 51, 53)):
            assert least < 100 * (1 - figures[dtype, other][0] / last) < most, (dtype, other)
        saved = {
            f"v{n}": 100 * (1 - figures[dtype, f"v{n - 1}"][0] / figures[dtype, f"v{n}"][0]) for n in range(26, 38)
        }
        assert {name for name, percent in saved.items() if percent > 7} == {"v26", "v28", "v29", "v35"}
        assert all(percent < 3 for percent in saved.values() if percent <= 7)
        assert 2.3 < saved["v37"] < 2.5


def test_the_prose_on_what_bound_each_step_holds() -> None:
    launches = kept(root())
    tensor = {name: round(launch.pipes["tensor"]) for name, launch in launches.items()}
    assert [tensor[f"v{n}"] for n in range(26, 38)] == [62, 66, 66, 80, 80, 80, 82, 85, 87, 96, 97, 97]
    largest = {name: held_up(root(), name).split(", ")[1].split()[0] for name in launches if name >= "v26"}
    assert largest == {name: "barrier" if name < "v29" else "wait" for name in largest}
    assert "BAR" not in {instruction.opcode.split(".")[0] for instruction in loop_of("v28")}
    cycles = {name: launch.figures["cycles"] for name, launch in launches.items()}
    fewer = {f"v{n}": 100 * (1 - cycles[f"v{n}"] / cycles[f"v{n - 1}"]) for n in range(26, 38)}
    assert all(1.4 < fewer[name] <= 2.55 for name in ("v32", "v33", "v34"))
    assert fewer["v28"] < 1 and 9.5 < fewer["v35"] < 10.5 and 0.5 < fewer["v37"] < 0.65
    assert f"{cycles['v25'] / cycles['v37']:.2f}" == "1.90"
    gained = launches["v36"].figures["wavefronts"] / launches["v37"].figures["wavefronts"]
    assert round(100 * (1 - 1 / gained)) == 18


def loop_of(name: str) -> Sequence[Instruction]:
    """The instructions of the KV loop on the H200."""
    step = next(step for step in read_steps(root()) if step.name == name)
    return step.parts[step.arch_in("sm_90")].loop


def test_a_gain_is_that_of_the_newest_run_of_both(checkout: Path) -> None:
    assert gain(read_steps(checkout), "v02", 4096) is None and gain(read_steps(checkout), "v01", 4096) is None
    assert steps_table(read_steps(checkout), ["v02"]).rows[0][3:] == [NOT_MEASURED] * len(LENGTHS)
    shutil.copy(root() / "logs/bench/h200.jsonl", checkout / "logs/bench")
    steps = read_steps(checkout)
    first, second = (step.lengths["h200"][4096].ratio for step in steps)
    both = gain(steps, "v02", 4096)
    assert first and second and both is not None and both == pytest.approx(second.mid / first.mid, rel=0.002)
    (row,) = steps_table(steps, ["v02"]).rows
    assert row[:3] == ["v02", "swizzling", "speedup@4096=4±0.4"]
    assert row[3 + LENGTHS.index(4096)] == f"{100 * (both - 1):+.1f} %"
    log = checkout / "logs/bench/h200.jsonl"
    raw = next(raw for raw in raws(log) if raw.get("version") == "v02")
    records.append(log, [measured_as(raw, steps[1], 16, 4096, 10.0)])  # a newer run of v02 alone, ten times as fast
    assert gain(read_steps(checkout), "v02", 4096) == both


def test_the_tensor_cores_are_as_busy_as_ncu_says() -> None:
    """Within 3 percent of all cycles: ncu's launch is another one, at another clock."""
    steps = {step.name: step for step in read_steps(root())}
    for name, profile in kept(root()).items():
        share = busy(steps[name], 4096)
        assert share and abs(100 * share - profile.pipes["tensor"]) < 3, name


def test_how_busy_is_shown_with_the_clock(checkout: Path) -> None:
    assert busy(read_steps(checkout)[0], 4096) is None
    assert busy_table(read_steps(checkout), ["v01"]).rows[0][2:] == [NOT_MEASURED] * len(LENGTHS)
    shutil.copytree(root() / "sass", checkout / "sass", ignore=lambda _, names: [x for x in names if x[:3] != "v02"])
    shutil.copy(root() / "logs/bench/h200.jsonl", checkout / "logs/bench")
    steps = read_steps(checkout)
    share, ghz = busy(steps[1], 4096), steps[1].speeds["h200"].sm_ghz
    assert (
        share
        and ghz
        and busy_table(steps, ["v02"]).rows[0][2 + LENGTHS.index(4096)] == (f"{100 * share:.1f} %, {ghz:.2f} GHz")
    )


def test_joules_are_those_of_the_table() -> None:
    steps = read_steps(root())
    found = joules_and_watts(root(), steps)
    rows = [row for row in energy_table(root(), steps).rows if row[0] in found and row[1:3] == ("fp16", 16)]
    assert len(found) >= 13
    assert {name: (f"{one[0]:.3g}", round(one[1])) for name, one in found.items()} == {
        str(row[0]): (row[7], row[9]) for row in rows
    }


def test_a_file_that_changed_is_read_again(checkout: Path) -> None:
    log = checkout / "logs/bench/h200.jsonl"
    shutil.copy(root() / "logs/bench/h200.jsonl", log)
    before = records.records_in(log)
    assert records.records_in(log) is before
    assert records.records_in(root() / "logs/bench/h200.jsonl") is before  # of what it was copied from
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:-1]))
    assert len(records.records_in(log)) == len(before) - 1


def test_the_title_of_the_story_has_the_speeds_of_its_first_and_last_step() -> None:
    story = (root() / "docs/story.md").read_text()
    steps = (root() / "README.md").read_text().partition("<!-- /steps -->")[0]
    rows = [[cell.strip() for cell in line.split("|")] for line in steps.splitlines() if line.startswith("| [v")]
    title = f"From {rows[0][4]} to {rows[-1][4]} TFLOP/s"
    assert story.startswith(f"# {title}\n") and rows[-1][1].startswith("[v37]")
    assert all(f"[{title}]" in (root() / page).read_text() for page in ("README.md", "docs/index.md"))
