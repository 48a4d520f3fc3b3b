"""What the notebooks and the report draw: kinds of instructions, bars, schedules, rings, states, roofs, and shares."""

from functools import cache
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pytest

from analysis.emulate.lines import Line, read_lines
from analysis.emulate.ring import read_ring
from analysis.files import root
from analysis.ladder.headers import load
from analysis.machine_code.opcodes import KNOWN, MATRIX
from analysis.machine_code.sass import Instruction
from analysis.publish import banks, drawing, overview, pictures, plot
from analysis.publish.libraries import records_of
from analysis.publish.overview import HEADLINE, Step, read_steps
from analysis.publish.pictures import Span
from analysis.table import Table
from analysis.tests.support.ladder import bench, record, small_ladder


@cache
def steps() -> list[Step]:
    return read_steps(root())


def boxes(figure: Any) -> list[tuple[float, float, int]]:
    """Begin, end and lane of the boxes of the first axes."""
    paths = [path.get_extents() for drawn in figure.axes[0].collections for path in drawn.get_paths()]
    plt.close(figure)
    return sorted((box.x0, box.x1, round(box.y0 + 0.42)) for box in paths)


def test_conflicts_are_those_that_the_emulator_counts() -> None:
    """v01 and v02 read K with one ldmatrix a line; wavefronts over ideal are the ways of a phase."""
    recorded = read_lines(root())
    for version, swizzled in (("v01", False), ("v02", True)):
        source = load(root(), version).source.splitlines()
        reads = [line for line in recorded[version] if "ldmatrix_x4(K[" in source[line.line - 1]]
        assert reads and {line.wavefronts / line.ideal for line in reads} == {banks.ldmatrix_ways(3, swizzled)}


def test_every_opcode_has_a_kind() -> None:
    kinds = {opcode: pictures.kind_of(Instruction(0, "", opcode, "")) for opcode in KNOWN}
    assert set(kinds.values()) == set(pictures.KINDS)
    assert kinds["HMMA"] == "matrix" and "HMMA" in MATRIX
    assert pictures.kind_of(Instruction(0, "", "IMAD.MOV.U32", "")) == "moves"
    assert kinds["IMAD"] == kinds["LOP3"] == kinds["ULEA"] == "integer"


@pytest.mark.parametrize("arch", overview.ARCHS)
def test_a_picture_of_the_loop_shows_the_figure_of_the_tables(arch: str) -> None:
    """Dummies that are never executed take an issue slot and count, in a picture as in a table."""
    figure = pictures.loop_mix(steps(), arch)
    tops = [text.get_text() for text in figure.axes[0].texts]
    figures = {step.name: step.loop_per_matrix(arch) for step in steps() if arch in step.parts}
    assert tops == [f"{figure:.2f}" for figure in figures.values() if figure is not None]
    assert [name for name, figure in figures.items() if figure is None] == ["v00"], "it has no matrix instructions"
    plt.close(figure)


def test_bars_are_to_scale_and_their_values_clear_of_the_mark() -> None:
    values = [(f"v{number:02}", value, f"{value:.3f}") for number, value in enumerate((0.2, 0.9, 1.0, 1.3))]
    (axes,) = pictures.bars(values, "time, ms", 1.0, "goal").axes
    assert [bar.get_width() for bar in axes.patches] == [value for _, value, _ in values]
    *written, of_mark = axes.texts
    assert [(text.get_text(), text.xy[0] > 1.3) for text in written] == [(text, True) for _, _, text in values]
    assert (of_mark.get_text(), of_mark.xy[0], axes.get_xlim()[0]) == ("goal", 1.0, 0)


def test_cut_lines_of_source_end_in_an_ellipsis() -> None:
    source = ["  for (int i = 0; i < rows; i++) ldmatrix_x4(Q[i], Q_addr.at(16 * i, 16 * k), and + more);", "short();"]
    lines = {"v01": [Line("v01", 1, 2, 64, 8, 0), Line("v01", 2, 2, 8, 8, 0)]}
    (axes,) = pictures.wavefronts_by_line(lines, {"v01": source}).axes
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names == ["1: ldmatrix_x4(Q[i], Q_addr.at(16 * i, 16 * k)…", "2: short();"]
    assert [text.get_text() for text in axes.texts] == ["64", "8", "8", "8"]


def test_a_ring_has_a_box_for_each_copy_and_each_reading() -> None:
    stays = read_ring(root())["v20"]
    wanted = [(one.copied, one.awaited, one.stage) for one in stays]
    wanted += [(one.awaited, one.released, one.stage) for one in stays]
    assert boxes(pictures.rings({"v20": stays})) == sorted(wanted)


def test_a_schedule_has_a_box_for_each_span_in_its_lane() -> None:
    spans = [Span("tensor", "QK", 0, 0, 512), Span("softmax", "exp", 7, 512, 700.5, True)]
    figure = pictures.schedules({"made": spans}, "cycles")
    assert [text.get_text() for text in figure.axes[0].texts] == ["0", "7"]
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["tensor", "softmax"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["S = Q Kᵀ", "exponentials"]
    assert boxes(figure) == [(0, 512, 0), (512, 700.5, 1)]


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


def test_large_steps_are_named() -> None:
    (axes,) = pictures.progress(root(), steps()).axes
    words = {text.get_text() for text in axes.texts}
    assert {"swizzling", "wgmma", "scores one block ahead", "no maximum in the loop"} < words
    assert "Q in registers" not in words and axes.get_xticklabels()[0].get_text() == "v00"


def test_a_line_leads_from_cool_to_hot(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the standard problem alone; a library's clock is not known."""
    rows = [
        ("v37", "fp16", 16, 786, 675, 1533, 1315), ("cuDNN", "fp16", 16, 642, 555, None, None),
        ("v37", "bf16", 16, 800, 700, 1500, 1300), ("v37", "fp16", 4, 700, 600, 1500, 1300),
        ("v05", "fp16", 16, 321, 287, 1798, 1611),
    ]  # fmt: skip
    monkeypatch.setattr(pictures, "energy_table", lambda *_: Table(("",) * 7, rows))
    (axes,) = pictures.states(root(), []).axes
    assert [list(line.get_ydata()) for line in axes.lines] == [[786, 675], [642, 555]]
    texts = [text.get_text() for text in axes.texts]
    assert texts == ["v37  786, 1533 MHz", "675, 1315 MHz", "cuDNN  642", "555"]


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
