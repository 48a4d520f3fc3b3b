"""What the notebooks draw: bank maps against the emulator's counts, lines, spaces, scores, and pictures of nothing."""

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pytest
from matplotlib.path import Path as MplPath
from matplotlib.text import Text

from analysis.emulate.lines import Line, read_lines
from analysis.emulate.pipeline import read_pipeline
from analysis.emulate.ring import read_ring
from analysis.files import root
from analysis.ladder.claims import parse_claims
from analysis.ladder.config import KernelConfig
from analysis.ladder.headers import load
from analysis.machine_code.opcodes import KNOWN, MATRIX
from analysis.machine_code.sass import Instruction
from analysis.measure.stats import Interval, Round
from analysis.publish import banks, chapters, drawing, overview, pictures, plot, predictions, space
from analysis.publish.overview import HEADLINE, Speed, Step, read_steps
from analysis.publish.predictions import Judged
from analysis.publish.published import number_of, speeds
from analysis.tests.support.kept import raws, write

SEARCHES = root() / "logs/autotune"


@cache
def steps() -> list[Step]:
    return read_steps(root())


def steps_by_name() -> dict[str, Step]:
    return {step.name: step for step in steps()}


# ---- banks -----------------------------------------------------------------------------------------------------------


def test_rows_keep_all_their_chunks() -> None:
    for row in range(16):
        places = {banks.place_of(row, chunk, True) for chunk in range(banks.CHUNKS_IN_ROW)}
        assert places == set(range(banks.CHUNKS_IN_ROW))
        halves = {banks.place_of(row, chunk, True) // 8 for chunk in range(8)}
        assert halves == {0}


def test_conflicts_are_those_that_the_emulator_counts() -> None:
    """v01 and v02 read K with one ldmatrix a line; wavefronts over ideal are the ways of a phase."""
    recorded = read_lines(root())
    for version, swizzled in (("v01", False), ("v02", True)):
        source = load(root(), version).source.splitlines()
        reads = [line for line in recorded[version] if "ldmatrix_x4(K[" in source[line.line - 1]]
        assert reads
        assert {line.wavefronts / line.ideal for line in reads} == {banks.ldmatrix_ways(3, swizzled)}


# ---- the space of a search -------------------------------------------------------------------------------------------


def test_classes_share_machine_code_and_launch_shape() -> None:
    found = space.read_space(root(), "v07")
    assert sum(map(len, found.classes)) == len(found.rows) == 38
    for members in found.classes:
        assert len({found.rows[config].code_hash for config in members}) == 1
        assert len({(config.B_r, config.smem_bytes()) for config in members}) == 1
    assert len(found.classes) < len(found.rows)
    assert space.read_space(root(), "v98").winner is None


def searched(*trials: tuple[int, int, float]) -> space.Space:
    """A space of configurations 0, 1 ... by (configuration, stage, TFLOP/s)."""
    configs = list(space.read_space(root(), "v07").rows)
    stages: dict[KernelConfig, space.Stages] = {}
    for number, stage, tflops in trials:
        one = Round((HEADLINE.flop() / tflops / 1e3,))
        stages.setdefault(configs[number], {}).setdefault(stage, {})["run", stage] = one
    return space.Space("v07", {}, [], stages)


def test_a_later_stage_beats_a_faster_clock() -> None:
    found = searched((0, 1, 320.0), (1, 1, 310.0), (1, 2, 300.0), (2, 1, 315.0), (2, 2, 305.0))
    first, second, third = list(found.stages)
    assert found.winner == third and found.place(first) == pytest.approx((1, 320.0))
    slower = found.slower(second)
    assert slower and slower.mid == pytest.approx(305 / 300)
    faster = found.slower(first)  # in the only stage that both took part in
    assert faster and faster.mid == pytest.approx(315 / 320)


def test_the_winners_are_those_of_the_committed_searches() -> None:
    table = space.winners_table(root())
    searches = {(path.name.split(".")[1], path.name.split(".")[0].upper()) for path in SEARCHES.glob("*.v??.jsonl")}
    assert {(str(row[0]), str(row[1])) for row in table.rows} == searches >= {("v07", "H200")}
    assert len({row[:4] for row in table.rows}) == len(table.rows)


def test_each_problem_and_gpu_of_a_search_has_a_row(tmp_path: Path) -> None:
    (tmp_path / "logs/autotune").mkdir(parents=True)
    (tmp_path / "kernels").symlink_to(root() / "kernels")
    every = raws(SEARCHES / "h200.v37.jsonl")
    at_512 = [raw for raw in every if raw["problem"]["seq"] == 512]
    for gpu, kept in (("h100", at_512), ("h200", every)):
        write(tmp_path / f"logs/autotune/{gpu}.v37.jsonl", kept)
    found = [row[1:4] for row in space.winners_table(tmp_path).rows]
    assert found == [("H100", "fp16", 512), ("H100", "bf16", 512)] + [
        ("H200", dtype, seq) for dtype in ("fp16", "bf16") for seq in (512, 4096)
    ]


def test_what_has_the_machine_code_of_the_winner_is_the_winner() -> None:
    """The search measures one configuration of each class, and that needs not be the one of the header."""
    (found,) = (one for one in space.searched(root(), "v37") if one.problem == HEADLINE)
    header = load(root(), "v37").header.config
    assert found.winner and header not in found.stages and header != found.winner
    row = next(row for row in steps_by_name()["v37"].rows.values() if row.config == str(header))
    assert found.measured_as(header, row.code_hash) == found.winner
    assert found.measured_as(header, "another") == header and found.slower(header) is None
    assert found.measured_as(found.winner, "another") == found.winner
    rows = {row[2:4]: row[4:] for row in space.winners_table(root()).rows if row[:2] == ("v37", "H200")}
    assert rows["fp16", 4096][0] == "the header's" and rows["fp16", 4096][2] is None
    assert rows["fp16", 512][0] == "B_c 64, stages 4, ping_pong False"
    assert str(rows["fp16", 512][2]).startswith("1.014 [1.01")


def test_the_committed_space_is_of_the_committed_code() -> None:
    step = next(step for step in steps() if step.name == "v07")
    row = space.read_space(root(), "v07").rows[step.version.header.config]
    assert row.code_hash == step.rows["sm_90"].code_hash, "make regs VER=v07 KERNELS=tune, then copy its CSV"


# ---- pictures --------------------------------------------------------------------------------------------------------


def said(figure: Any) -> str:
    return "\n".join(text.get_text() for axes in figure.axes for text in axes.texts)


def test_every_opcode_has_a_kind() -> None:
    kinds = {opcode: pictures.kind_of(Instruction(0, "", opcode, "")) for opcode in KNOWN}
    assert set(kinds.values()) == set(pictures.KINDS)
    assert kinds["HMMA"] == "matrix" and "HMMA" in MATRIX
    assert pictures.kind_of(Instruction(0, "", "IMAD.MOV.U32", "")) == "moves"
    assert kinds["IMAD"] == kinds["LOP3"] == kinds["ULEA"] == "integer"


def test_a_picture_of_the_loop_shows_the_figure_of_the_tables() -> None:
    """Dummies that are never executed take an issue slot and count, in a picture as in a table."""
    for arch in overview.ARCHS:
        figure = pictures.loop_mix(steps(), arch)
        tops = [text.get_text() for text in figure.axes[0].texts]
        figures = {step.name: step.loop_per_matrix(arch) for step in steps() if arch in step.parts}
        assert tops == [f"{figure:.2f}" for figure in figures.values() if figure is not None]
        assert [name for name, figure in figures.items() if figure is None] == ["v00"], "it has no matrix instructions"


def test_bars_are_to_scale_and_their_values_clear_of_the_mark() -> None:
    values = [(f"v{number:02}", value, f"{value:.3f}") for number, value in enumerate((0.2, 0.9, 0.97, 1.0, 1.3))]
    figure = pictures.bars(values, "time, ms", 1.0, "goal")
    (axes,) = figure.axes
    assert [bar.get_width() for bar in axes.patches] == [value for _, value, _ in values]
    assert axes.get_xlim()[0] == 0
    assert axes.get_xlabel() == "time, ms"
    *written, of_mark = axes.texts
    assert [text.get_text() for text in written] == [text for _, _, text in values]
    assert {text.xy[0] > 1.3 for text in written} == {True}
    assert (of_mark.get_text(), of_mark.xy[0]) == ("goal", 1.0)
    assert crossed(figure) == []


def crossed(figure: Any) -> list[str]:
    """Texts of a figure whose box is touched by a line that is drawn in its axes."""
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()
    found = []
    texts = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip()]
    for axes in figure.axes:
        for line in axes.lines:
            places = line.get_transform().transform(line.get_xydata())
            if not len(line.get_xydata()):
                continue
            path = MplPath(places)
            for text in texts:
                box = text.get_window_extent(renderer)
                if box.width and path.intersects_bbox(box.padded(-0.5), filled=False):
                    found.append(text.get_text())
    plt.close(figure)
    return found


@pytest.mark.long
def test_no_label_is_crossed_by_a_line() -> None:
    run = plot.headline_run(root())
    assert run
    drawn = [
        pictures.progress(steps()),
        pictures.progress(steps()[:3]),
        pictures.figures_by_version(steps()),
        pictures.loop_mix(steps(), "sm_80"),
        pictures.stall_mix(steps(), "sm_80"),
        pictures.load_distances(steps(), "sm_80"),
        pictures.predicted_and_measured(predictions.judge(steps())),
        *(plot.draw(picture, run, steps()) for picture in plot.PICTURES),
    ]
    assert [crossed(figure) for figure in drawn] == [[]] * len(drawn)


def test_a_crossed_label_is_found() -> None:
    figure, axes = plt.subplots()
    axes.axhline(1.0)
    axes.annotate("crossed", (0.5, 1.0), va="center")
    axes.annotate("free", (0.5, 0.5))
    assert crossed(figure) == ["crossed"]


def test_pictures_of_nothing_say_so() -> None:
    bare = [replace(step, rows={}, parts={}, speeds={}) for step in steps()[:3]]
    for figure in (
        pictures.figures_by_version(bare),
        pictures.loop_strips(bare, "sm_80"),
        pictures.loop_mix(bare, "sm_80"),
        pictures.stall_mix(bare, "sm_80"),
        pictures.region_sizes(bare, "sm_80"),
        pictures.load_distances(bare, "sm_80"),
    ):
        assert "sass/ yet" in said(figure)
    assert "recorded" in said(pictures.predicted_and_measured([]))
    assert "recorded" in said(pictures.config_space([], None))
    assert "lines.csv" in said(pictures.wavefronts_by_line({}, {}))
    assert "pipeline.csv" in said(pictures.pipelines({}))
    assert "ring.csv" in said(pictures.rings({}))


def test_colours_are_told_in_a_legend_and_cut_lines_end_in_an_ellipsis() -> None:
    def legend(figure: Any) -> list[str]:
        drawn = figure.legends or [axes.get_legend() for axes in figure.axes if axes.get_legend()]
        plt.close(figure)
        return [text.get_text() for one in drawn for text in one.get_texts()]

    assert legend(pictures.bank_maps()) == [f"banks {first}–{first + 3}" for first in range(0, 32, 4)]
    assert "paler: next Q block" in legend(pictures.pipelines({"v36": read_pipeline(root())["v36"]}))
    one = load(root(), "v07").header.config
    two = one.replace(B_c=32)
    assert legend(pictures.config_space([("a", [one]), ("b", [two])], two))[0] == "the fastest"
    source = ["  for (int i = 0; i < rows; i++) ldmatrix_x4(Q[i], Q_addr.at(16 * i, 16 * k), and + more);", "short();"]
    figure = pictures.wavefronts_by_line(
        {"v01": [Line("v01", 1, 2, 64, 8, 0), Line("v01", 2, 2, 8, 8, 0)]}, {"v01": source}
    )
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert names == ["1: ldmatrix_x4(Q[i], Q_addr.at(16 * i, 16 * k)…", "2: short();"]
    assert [text.get_text() for text in figure.axes[0].texts] == ["64", "8", "8", "8"]
    plt.close(figure)


def test_a_pipeline_has_a_box_for_each_work_at_its_step() -> None:
    work = read_pipeline(root())["v36"]
    (axes,) = pictures.pipelines({"v36": work}).axes
    boxes = [path.get_extents() for drawn in axes.collections for path in drawn.get_paths()]
    assert sorted(box.x0 for box in boxes) == sorted(one.step for one in work)
    assert all(box.x1 == box.x0 + 1 for box in boxes)
    assert sorted(text.get_text() for text in axes.texts) == sorted(str(one.block) for one in work)
    places = {(round(box.x0), round(box.y0, 2)) for box in boxes}
    assert len(places) == len(work)  # none lies upon another


def test_a_ring_has_a_grey_and_a_blue_box_for_each_block() -> None:
    stays = read_ring(root())["v20"]
    (axes,) = pictures.rings({"v20": stays}).axes
    boxes = [path.get_extents() for drawn in axes.collections for path in drawn.get_paths()]
    wanted = [(one.copied, one.awaited) for one in stays] + [(one.awaited, one.released) for one in stays]
    assert sorted((box.x0, box.x1) for box in boxes) == sorted(wanted)
    assert {round(box.y0 + 0.42) for box in boxes} == {one.stage for one in stays}
    assert [text.get_text() for text in axes.texts] == [str(one.block) for one in stays]


def test_a_schedule_has_a_box_for_each_span_in_its_lane() -> None:
    spans = [pictures.Span("tensor", "QK", 0, 0, 512), pictures.Span("softmax", "exp", 7, 512, 700.5, True)]
    (axes,) = pictures.schedules({"made": spans}, "cycles").axes
    boxes = [path.get_extents() for drawn in axes.collections for path in drawn.get_paths()]
    assert [(box.x0, box.x1, round(box.y0 + 0.42)) for box in boxes] == [(0, 512, 0), (512, 700.5, 1)]
    assert [text.get_text() for text in axes.texts] == ["0", "7"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["tensor", "softmax"]


def test_measured_versions_are_drawn() -> None:
    speed = Speed("H200", 1.0, Interval(0.5, 0.5, 0.5))
    measured, plain = replace(steps()[1], speeds={"h200": speed}), replace(steps()[0], speeds={})
    assert traced(pictures.progress([plain, measured])) == {"this ladder, H200": [50.0]}
    assert traced(pictures.progress([plain])) == {}


def test_large_steps_are_named_and_versions_without_a_figure_left_out() -> None:
    figure = pictures.progress(steps())
    labels = [label.get_text() for label in figure.axes[0].get_xticklabels()]
    assert labels[0] == "v00" and "v37" in labels and "v38" not in labels
    words = [text.get_text() for text in figure.axes[0].texts]
    assert {"swizzling", "wgmma", "scores one block ahead", "no maximum in the loop"} < set(words)
    assert "Q in registers" not in words
    plt.close(figure)


def traced(figure: Any) -> dict[str, list[float]]:
    lines_drawn = [line for axes in figure.axes for line in axes.lines]
    return {line.get_label(): list(line.get_ydata()) for line in lines_drawn if "this" in str(line.get_label())}


@pytest.mark.parametrize("picture", [pictures.progress, pictures.figures_by_version])
def test_names_of_versions_do_not_lie_on_each_other(picture: Callable[[list[Step]], Any]) -> None:
    figure = picture(steps())
    figure.canvas.draw()
    boxes = [label.get_window_extent() for label in figure.axes[-1].get_xticklabels()]
    ladder = [step for step in steps() if not step.version.header.config.any_length]
    drawn = [step for step in ladder if step.speeds or number_of(step.name) in speeds()]
    assert len(boxes) == len(drawn if picture is pictures.progress else steps())
    assert all(a.x1 <= b.x0 for a, b in pairwise(boxes))
    plt.close(figure)


def test_a_legend_names_what_is_drawn() -> None:
    old = [step for step in steps() if not step.version.one_arch]
    labels = [text.get_text() for text in pictures.figures_by_version(old).axes[0].get_legend().get_texts()]
    assert sorted(labels) == ["sm_80", "sm_90", "the HMMA itself"]


def test_names_with_a_letter_do_not_lie_on_each_other() -> None:
    old = [step for step in steps() if not step.version.one_arch and not step.version.header.config.any_length]
    figure = pictures.loop_mix(old, "sm_80")
    figure.canvas.draw()
    boxes = [label.get_window_extent() for label in figure.axes[0].get_xticklabels()]
    assert all(left.x1 < right.x0 for left, right in pairwise(boxes))


# ---- pictures of chapters --------------------------------------------------------------------------------------------


def words(svg: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


def test_every_chapter_with_versions_shows_a_picture() -> None:
    chapters_of = {page.name: page.read_text(encoding="utf-8") for page in (root() / "docs/learn").glob("[1-8]-*.md")}
    assert len(chapters_of) == 8 and all(re.search(r"!\[.+\]\(\S+\.svg\)", text) for text in chapters_of.values())
    made = chapters.chapter_pictures(steps())
    assert set(made) == {"small_steps", "mask", "diagonal", "outcomes"}
    for name, svg in made.items():
        assert any(f"]({name}.svg)" in text for text in chapters_of.values()) and words(svg)


def test_a_mask_leaves_the_products_that_the_emulator_counts() -> None:
    drawn = words(chapters.mask(steps_by_name()["v39"]))
    assert "72 of 128 computed," in drawn and "16 of them masked" in drawn
    chapter = (root() / "docs/learn/7-general-attention.md").read_text(encoding="utf-8")
    counted = [int(count) for count in re.findall(r"of them mma +(\d+)", chapter)[:2]]
    assert counted[1] * 128 == counted[0] * 72


def test_a_warp_sees_no_key_behind_its_last_row() -> None:
    for first in range(0, 256, 32):
        whole, seen = chapters.keys_seen(first, 32, 64)
        assert whole == sum(64 * block + 63 <= first for block in range(8))
        assert seen == sum(64 * block <= first + 31 for block in range(8))


def test_the_diagonal_is_shared_equally_once_rows_are_folded() -> None:
    by_name = steps_by_name()
    assert [sum(own) for own in chapters.shares(by_name["v47"], False)] == [4, 4, 6, 6]
    assert [sum(own) for own in chapters.shares(by_name["v51"], True)] == [5, 5, 5, 5]
    assert "(warp < 4 ? warp : cfg.n_warps + 3 - warp)" in by_name["v51"].version.source


def test_outcomes_have_a_mark_in_the_colour_of_its_score() -> None:
    claims = [Judged("v02", claim, measured) for claim, measured in zip(
        parse_claims("speedup@4096=1.10..1.20 speedup@4096=1.10..1.20 speedup@512=1.1..1.2 speedup@4096=3.6..4.4"),
        (1.15, 0.80, 1.15, 5.0), strict=True)]  # fmt: skip
    svg = chapters.outcomes(claims)
    marks = [svg.count(f'fill="{color}" fill-opacity="1"') for color in (drawing.GREEN, drawing.RED)]
    assert marks == [1, 1] and "predicted 3.6 to 4.4 times, measured 5.0 →" in words(svg)


def test_chapters_have_no_picture_of_what_is_not_recorded() -> None:
    assert chapters.chapter_pictures([replace(steps_by_name()["v10"], speeds={}, gains={})]) == {}
