"""The pictures of docs/learn: what they say comes from the data, and changes with it."""

import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import pytest

from analysis.emulate.layouts import read_layouts
from analysis.emulate.pipeline import read_pipeline
from analysis.files import root
from analysis.ladder.claims import parse_claims
from analysis.ladder.headers import load_attention
from analysis.publish import drawing, lessons
from analysis.publish.lessons import lane_of
from analysis.publish.overview import read_steps
from analysis.publish.predictions import Judged

LAYOUTS, PIPELINES = read_layouts(root()), read_pipeline(root())


def words(svg: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


def test_every_picture_is_drawn_and_shown_by_a_chapter() -> None:
    made = lessons.lessons(root(), read_steps(root()))
    pages = "".join(page.read_text(encoding="utf-8") for page in (root() / "docs/learn").glob("*.md"))
    assert set(made) == {
        *("mma", "ldmatrix", "S_to_P", "swizzle", "wgmma", "ring", "pipeline"),
        *("small_steps", "mask", "outcomes"),
    }
    assert all(f"]({name}.svg)" in pages for name in made)
    assert all(words(svg) for svg in made.values())


def test_nothing_is_drawn_without_data(tmp_path: Path) -> None:
    (tmp_path / "kernels").mkdir()
    assert lessons.lessons(tmp_path, []) == {}


def test_every_element_has_its_lane() -> None:
    drawn = words(lessons.mma(LAYOUTS))
    assert [drawn.count(str(lane)) for lane in (5, 31)] == [8 + 4 + 4] * 2
    rows = [text for text in words(lessons.ldmatrix(LAYOUTS)) if text.startswith("lane ") and text[5:].isdigit()]
    assert sorted(rows) == sorted(f"lane {lane}" for lane in range(32))


def test_conflicts_are_counted_from_the_places() -> None:
    assert "plain: chunk 3 of eight rows takes 8 wavefronts" in words(lessons.swizzle(LAYOUTS))
    assert "swizzled: chunk 3 of eight rows takes 1 wavefront" in words(lessons.swizzle(LAYOUTS))
    half = [*LAYOUTS["swizzled"][:4], *(replace(LAYOUTS["swizzled"][row], who=row + 4) for row in range(4))]
    drawn = words(lessons.swizzle({**LAYOUTS, "swizzled": half}))
    assert "swizzled: chunk 3 of eight rows takes 2 wavefronts" in drawn


def test_lanes_that_hold_other_elements_are_not_counted() -> None:
    assert "32 of 32 lanes hold the same elements in both; lane 5 is outlined" in words(lessons.S_to_P(LAYOUTS))
    P = [replace(LAYOUTS["P"][0], holds=LAYOUTS["P"][1].holds), *LAYOUTS["P"][1:]]
    assert "31 of 32 lanes" in lessons.S_to_P({**LAYOUTS, "P": P})


@pytest.mark.parametrize("version", ["v28", "v29"])
def test_a_place_is_full_before_it_is_read_and_empty_after(version: str) -> None:
    work = PIPELINES[version]
    drawn = words(lessons.ring(work))
    copies = [one for one in work if one.who == "copies" and one.what in "KV"]
    assert len([text for text in drawn if text.startswith("copy ")]) == len(copies)
    for word in ("full", "empty"):
        phases = [text for text in drawn if re.fullmatch(rf"{word} \d", text)]
        assert len(phases) == len(copies) and set(phases) == {f"{word} {one.block // 2}" for one in copies}


def test_a_pipeline_has_a_cell_for_each_piece_of_work() -> None:
    work = PIPELINES["v29"]
    cells = lessons.pipeline({"v29": work}).count("<rect") - 1 - 8  # the back and the legend
    assert cells == len({(lane_of(one), one.step) for one in work})


def test_a_warp_sees_no_key_behind_its_last_row() -> None:
    for first in range(0, 256, 32):
        whole, seen = lessons.keys_seen(first, 32, 64)
        assert whole == sum(64 * block + 63 <= first for block in range(8))
        assert seen == sum(64 * block <= first + 31 for block in range(8))
    drawn = words(lessons.mask(load_attention(root())["attention/mma_sync"]))
    assert "72 of 128 computed," in drawn and "16 of them masked" in drawn


def test_outcomes_have_a_mark_in_the_color_of_its_score() -> None:
    claims = [Judged("v02", claim, measured) for claim, measured in zip(
        parse_claims("speedup@4096=1.10..1.20 speedup@4096=1.10..1.20 speedup@512=1.1..1.2 speedup@4096=3.6..4.4"),
        (1.15, 0.80, 1.15, 5.0), strict=True)]  # fmt: skip
    svg = lessons.outcomes(claims)
    marks = [svg.count(f'fill="{color}" fill-opacity="1"') for color in (drawing.GREEN, drawing.RED)]
    assert marks == [1, 1] and "predicted 3.6 to 4.4 times, measured 5.0 →" in words(svg)
