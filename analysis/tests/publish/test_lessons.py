"""The pictures of docs/learn: what they say comes from the data, and changes with it."""

import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import pytest

from analysis.emulate.layouts import read_layouts
from analysis.emulate.pipeline import read_pipeline
from analysis.files import root
from analysis.publish import lessons
from analysis.publish.overview import read_steps

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


def test_conflicts_are_counted_from_the_places() -> None:
    assert "plain: chunk 3 of eight rows takes 8 wavefronts" in words(lessons.swizzle(LAYOUTS))
    assert "swizzled: chunk 3 of eight rows takes 1 wavefront" in words(lessons.swizzle(LAYOUTS))
    half = [*LAYOUTS["swizzled"][:4], *(replace(LAYOUTS["swizzled"][row], who=row + 4) for row in range(4))]
    drawn = words(lessons.swizzle({**LAYOUTS, "swizzled": half}))
    assert "swizzled: chunk 3 of eight rows takes 2 wavefronts" in drawn


@pytest.mark.parametrize("version", ["v28", "v29"])
def test_a_place_is_full_before_it_is_read_and_empty_after(version: str) -> None:
    work = PIPELINES[version]
    drawn = words(lessons.ring(work))
    copies = [one for one in work if one.who == "copies" and one.what in "KV"]
    assert len([text for text in drawn if text.startswith("copy ")]) == len(copies)
    for word in ("full", "empty"):
        phases = [text for text in drawn if re.fullmatch(rf"{word} \d", text)]
        assert len(phases) == len(copies) and set(phases) == {f"{word} {one.block // 2}" for one in copies}
