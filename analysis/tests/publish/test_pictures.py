"""Pictures of the notebooks and the report: kinds of instructions, bars, schedules, rings, roofs, and shares."""

from functools import cache
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

from analysis.emulate.lines import read_lines
from analysis.files import root
from analysis.ladder.headers import load
from analysis.publish import drawing, overview, pictures, plot
from analysis.publish.libraries import records_of
from analysis.publish.overview import HEADLINE, Step, read_steps
from analysis.tests.support.ladder import bench, record, small_ladder


@cache
def steps() -> list[Step]:
    return read_steps(root())


def test_conflicts_are_those_that_the_emulator_counts() -> None:
    """v01 and v02 read K with one ldmatrix a line; wavefronts over ideal are the ways of a phase."""
    recorded = read_lines(root())
    for version, ways in (("v01", 8), ("v02", 1)):
        source = load(root(), version).source.splitlines()
        reads = [line for line in recorded[version] if "ldmatrix_x4(K[" in source[line.line - 1]]
        assert reads and {line.wavefronts / line.ideal for line in reads} == {ways}


def test_a_picture_of_the_loop_shows_the_figure_of_the_tables() -> None:
    """Dummies that are never executed take an issue slot and count, in a picture as in a table."""
    arch = overview.LISTED
    figure = pictures.loop_mix(steps(), arch)
    tops = [text.get_text() for text in figure.axes[0].texts]
    figures = {step.name: step.loop_per_matrix(arch) for step in steps() if arch in step.parts}
    assert tops == [f"{figure:.2f}" for figure in figures.values() if figure is not None]
    assert [name for name, figure in figures.items() if figure is None] == ["v00"], "it has no matrix instructions"
    plt.close(figure)


def test_progress_shows_the_versions_that_were_measured_and_the_libraries(tmp_path: Path) -> None:
    ladder = small_ladder(tmp_path)
    assert pictures.progress(ladder, read_steps(ladder)) is None
    ns = HEADLINE.flop() / 1e3
    made = bench(ladder, record("v02", ns / 160, "r"), record("fa2", ns / 320, "r"), record("fa3", ns / 480, "r"))
    (axes,) = pictures.progress(ladder, made).axes
    (line,) = [line for line in axes.lines if line.get_label() == "H200"]
    assert list(line.get_ydata()) == pytest.approx([50.0])
    libraries = {text.get_text(): text.xy[1] for text in axes.texts}
    assert libraries == pytest.approx({"FlashAttention-2": 100, "FlashAttention-3": 150})


def test_the_roofline_and_the_time_chart_show_the_widest_run() -> None:
    run = plot.headline_run(records_of(root()))
    assert run and run.sms == 132 and run.arch == "sm_90" and {"v01", "v25", "fa2"} <= run.rows.keys()
    assert plot.headline_run([]) is None
    names = [text.get_text() for text in plot.roofline(root(), steps()).axes[0].texts]
    assert names[2:] == ["v01", "v02", "v08", "v09", "v17", "v19", "v25"]
    assert names[1] == f"peak of mma.sync: {run.mma_peak:.0f} TFLOP/s"
    v01, v25 = (next(step for step in steps() if step.name == name) for name in ("v01", "v25"))
    assert plot.intensity(v01) < 2 < 20 < plot.intensity(v25)
    (axes,) = plot.time_chart(root(), steps()).axes
    labels = [label.get_text() for label in axes.get_xticklabels()]
    assert labels[0] == f"v01\n{plot.measured_cycles(run, v01):.0f} cycles" and len(labels) == 7
    assert all(0 < bar.get_height() < 100 for bar in axes.patches)


def test_a_picture_is_the_same_twice() -> None:
    assert drawing.svg(pictures.progress(root(), steps()[:9])) == drawing.svg(pictures.progress(root(), steps()[:9]))
