"""The files of the machine: what they hold, and where the story's links lead."""

import base64
import gzip
import re
from pathlib import Path, PurePosixPath

import pytest

from analysis.errors import AnalysisError
from analysis.files import root
from analysis.ladder.headers import kernel_files
from analysis.publish.jumps import STEPS
from analysis.site import machine_page

PTX = """//
.version 9.5
.visible .entry a(
)
{
// a comment
\tret;
}
\t// .globl\tb
.visible .entry b(
)
{
\tret;
}
\t.file 1 "x.cu"
"""


def test_one_entry_is_kept_with_what_stands_around() -> None:
    kept = machine_page.first_entry(PTX)
    assert kept == '.version 9.5\n.visible .entry a(\n)\n{\n\tret;\n}\n\t.file 1 "x.cu"\n'
    with pytest.raises(AnalysisError, match=r"expected PTX with an \.entry"):
        machine_page.first_entry(".version 9.5\n")


def test_places_are_those_of_the_story() -> None:
    (dumped,) = re.findall(r"^IN_STORY := ([v0-9a-z ]+)$", (root() / "make/inspect.mk").read_text(), re.MULTILINE)
    assert dumped.split() == list(machine_page.PLACES)
    assert list(machine_page.PLACES) == list(STEPS) and set(STEPS) <= set(kernel_files(root()))


def test_each_step_of_the_story_has_a_link() -> None:
    story = (root() / "docs/story.md").read_text()
    linked = re.findall(r'href="machine/index\.html\?v=(v\d\d)&', machine_page.with_places(story))
    assert linked == list(STEPS)


def documents() -> list[tuple[str, str]]:
    """Name and text of every chapter and notebook."""
    paths = [*sorted((root() / "docs/learn").glob("*.md")), *sorted((root() / "notebooks").glob("*.ipynb"))]
    return [(str(path.relative_to(root())), path.read_text()) for path in paths]


def test_chapters_and_notebooks_lead_into_the_machine() -> None:
    found = {name: machine_page.MACHINE_LINK.findall(text) for name, text in documents()}
    assert len([name for name, places in found.items() if places]) >= 10
    for name, text in documents():
        assert text.count("<!-- machine:") == len(found[name]), f"{name}: a place that is not understood"
    assert {version for places in found.values() for version, _, _ in places} <= set(kernel_files(root()))
    text = machine_page.with_machine_links("a\n\n<!-- machine: v28 wgmma 4 -->\n", PurePosixPath("docs/learn"))
    assert 'href="../../machine/index.html?v=v28&kind=wgmma&warp=4"' in text and "<!--" not in text


def test_kinds_of_places_are_those_of_the_page() -> None:
    script = (root() / machine_page.PAGES / "machine.js").read_text()
    kinds = set(re.findall(r'^  "(\w+)": \(code\) =>', script, re.MULTILINE))
    linked = {kind for _, text in documents() for _, kind, _ in machine_page.MACHINE_LINK.findall(text)}
    assert {kind for kind, _ in machine_page.PLACES.values()} | linked <= kinds


def test_without_the_module_there_is_no_page(tmp_path: Path) -> None:
    assert machine_page.machine_files(tmp_path) == {}


def test_packed_data_is_the_same_each_time() -> None:
    data = bytes(range(256)) * 9
    text = machine_page.packed(data)
    assert text == machine_page.packed(data) and gzip.decompress(base64.b64decode(text)) == data


def test_the_page_fetches_nothing() -> None:
    for name in ("index.html", "machine.css", "pictures.js", "machine.js", "worker.js"):
        text = (root() / machine_page.PAGES / name).read_text()
        assert not re.search(r"https?://|fetch\(|@import|import\(", text), name
