"""A page for each version: its difference side by side, what it claimed, and its loop."""

import html
import re
from functools import cache

from analysis.files import root
from analysis.ladder.folding import folded_body
from analysis.ladder.headers import changed_lines
from analysis.publish.overview import Step, read_steps
from analysis.site.version_pages import difference, side_by_side, sides, version_pages


@cache
def steps() -> dict[str, Step]:
    return {step.name: step for step in read_steps(root())}


@cache
def pages() -> dict[str, str]:
    return version_pages(root(), list(steps().values()))


def test_changed_lines_stand_beside_each_other() -> None:
    old, new = [*"abcdefgh", "x", "z"], [*"abcdefgh", "y", "w", "z"]
    (group,) = sides(old, new)
    assert group[:3] == [(6, "f", 6, "f"), (7, "g", 7, "g"), (8, "h", 8, "h")]
    assert group[3:] == [(9, "x", 9, "y"), (None, "", 10, "w"), (10, "z", 11, "z")]
    assert sides(old, old) == []


def test_the_difference_holds_what_changed() -> None:
    for name in ("v02", "v09", "v29"):
        step = steps()[name]
        assert step.parent
        table = side_by_side(step.parent.version, step.name, difference(step.parent, step.version, {}))
        marked = re.findall(r'class="(gone|come)"><code>(.*?)</code>', table)
        lines = {"gone": step.parent.source.splitlines(), "come": step.version.source.splitlines()}
        assert all(html.unescape(text) in lines[side] for side, text in marked)
        count = changed_lines(step.parent, step.version)
        assert len([text for _, text in marked if text.strip()]) >= 0.9 * count


def test_a_page_shows_what_make_read_prints() -> None:
    bodies = {name: folded_body(steps()[name].version) for name in ("v01", "v02")}
    page = version_pages(root(), [steps()[name] for name in bodies], None, bodies)
    beside = page["versions/v02.md"].partition("## Compared with v01")[2].partition("##")[0]
    assert "chunk ^= row % 8;" in beside and "static_assert" not in beside
    assert "static_assert" in pages()["versions/v02.md"]
    assert all(f"\n{body}```\n" in page[f"versions/{name}.md"] for name, body in bodies.items())
    assert "## The kernel" not in pages()["versions/v02.md"]


def test_every_version_has_a_page_that_leads_on() -> None:
    assert list(pages()) == [f"versions/{step.name}.md" for step in steps().values()]
    for step, (name, text) in zip(steps().values(), pages().items(), strict=True):
        assert text.startswith(f"# {step.name}: {step.version.header.title}\n")
        assert f"**Idea**: {step.version.header.idea}." in text
        assert all(f"versions/{other}" in pages() for other in re.findall(r"\]\((v\d\d\.md)\)", text)), name
        assert ("## Compared with" in text) == (step.parent is not None)
    assert "machine/index.html?v=v02&kind=ldmatrix&warp=0" in pages()["versions/v02.md"]
    assert "machine/index.html?v=v03" in pages()["versions/v03.md"]
