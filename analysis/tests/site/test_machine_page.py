"""The files of the machine: what they hold, and where the story's links lead."""

import re
from pathlib import PurePosixPath

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


def test_mangled_names_become_short() -> None:
    assert machine_page.short_name("_Z13flash_forwardIXtl12KernelConfigLi15EEEEv14attention_args") == "flash_forward"
    assert machine_page.short_name("_ZZ4lostILb1ELb0EEvPiE1h") == "h"
    text = ".visible .entry _Z1kv(\n.param .u64 _Z1kv_param_0\n)\nmov.b64 %r, _ZZ1kvE4smem;\nld [_ZZ1jvE4smem];\n"
    short, entry, symbol = machine_page.with_short_names(text)
    assert (entry, symbol) == ("k", "_Z1kv")
    assert short == ".visible .entry k(\n.param .u64 k_param_0\n)\nmov.b64 %r, smem_2;\nld [smem];\n"


def test_the_single_page_is_current() -> None:
    """But for what compilers make of these sources: another toolkit makes other bytes."""
    page = (root() / machine_page.SINGLE).read_text()
    assert len(page) <= 1_500_000
    page = re.sub(r'"(wasm|ptx|entry|symbol)": "[^"]*"', r'"\1": ""', page)
    page = re.sub(r'"hidden": \[[^]]*\]', '"hidden": []', page)
    assert page == machine_page.single_page(root(), built=False), "run `make site`, which writes it"


def test_places_are_those_of_the_story() -> None:
    (dumped,) = re.findall(r"^IN_STORY := ([v0-9a-z ]+)$", (root() / "make/inspect.mk").read_text(), re.MULTILINE)
    assert dumped.split() == list(machine_page.STARTS)
    assert list(machine_page.STARTS) == list(STEPS) and set(STEPS) <= set(kernel_files(root()))


def documents() -> list[tuple[str, str]]:
    """Name and text of every chapter and notebook."""
    paths = [*sorted((root() / "docs/learn").glob("*.md")), *sorted((root() / "notebooks").glob("*.ipynb"))]
    return [(str(path.relative_to(root())), path.read_text()) for path in paths]


def test_chapters_and_notebooks_lead_into_the_machine() -> None:
    found = {name: machine_page.MACHINE_LINK.findall(text) for name, text in documents()}
    assert len([name for name, links in found.items() if links]) >= 10
    for name, text in documents():
        assert text.count("<!-- machine:") == len(found[name]), f"{name}: a comment that is not understood"
    assert {version for links in found.values() for version, _, _ in links} <= set(kernel_files(root()))
    text = machine_page.with_machine_links("a\n\n<!-- machine: v28 wgmma 4 -->\n", PurePosixPath("docs/learn"))
    assert 'href="../../machine/index.html?v=v28&kind=wgmma&warp=4"' in text and "<!--" not in text


def test_the_page_fetches_nothing() -> None:
    for name in ("index.html", "machine.css", "pictures.js", "machine.js", "worker.js"):
        text = (root() / machine_page.PAGES / name).read_text()
        assert not re.search(r"https?://|fetch\(|@import|import\(", text), name
