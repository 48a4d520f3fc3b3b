"""The static site without its generator: what is laid out for it, where links go, and what a broken link is."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from analysis.__main__ import main
from analysis.errors import REFUSED, AnalysisError
from analysis.files import root
from analysis.site import stage as site
from analysis.site.stage import broken_links, links_of, moved, moved_notebook, navigation, read_site

Checkout = Callable[[dict[str, str]], Path]


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    """A repository with these files."""

    def made(files: dict[str, str]) -> Path:
        subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        return tmp_path

    return made


def test_links_within_code_are_none() -> None:
    text = (
        "[a](a.md) `[b](b.md)` ``[`c](c.md)`` [`d`\nwraps](d.md) ![e](e.svg)\n\n"
        "    [f](f.md)\n\n```c\n[g](g.md)\n```\n- item\n    [h](h.md)\n"
    )
    assert links_of(text) == ["a.md", "d.md", "e.svg", "h.md"]


def test_links_to_pages_stay_and_those_to_files_get_a_page(checkout: Checkout) -> None:
    files = ["README.md", "docs/story.md", "docs/a.md", "docs/p.svg", "make/x.mk", "make/in/y.mk"]
    folder = checkout(dict.fromkeys(files, ""))
    laid = read_site(folder)
    expected = {
        "[a](../README.md#x)": "[a](../README.md#x)",
        "[a](story.md#x)": "[a](../index.md#x)",
        "[a](#here) [b](https://x.org)": "[a](#here) [b](https://x.org)",
        "[`x`](../make/x.mk#L12)": '<a href="../source/make/x.mk.html#L-12">`x`</a>',
        "[all](../make)": '<a href="../source/make/index.html">all</a>',
        "![alt](p.svg)": "![alt](p.svg)",
        "[big](p.svg)": '<a href="p.svg">big</a>',
    }
    for text, link in expected.items():
        assert moved(laid, "docs/a.md", text) == link
    assert laid.sources == {"make/x.mk": None, "make": ["x.mk"]}
    assert laid.pictures == {"docs/p.svg": "docs/p.svg", "linked/docs/p.svg": "docs/p.svg"}
    with pytest.raises(AnalysisError, match=r"docs/a\.md: the link to none\.md leads to no file"):
        moved(laid, "docs/a.md", "[n](none.md)")


def test_every_document_of_the_repository_can_be_laid_out() -> None:
    laid = read_site(root())
    placed = [name for names in navigation(laid).values() for name in names]
    assert len(placed) == len(set(placed))
    assert {page for page in laid.pages if page.startswith(("docs/", "notebooks/"))} - {site.FRONT} < set(placed)
    for page in laid.pages:
        text = (root() / page).read_text()
        (moved_notebook if page.endswith(".ipynb") else moved)(laid, page, text)
    assert len(laid.sources) > 50


def test_broken_links_of_pages_are_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.html").write_text(
        '<link rel="icon" href="https://x.org/i"><h1 id="top">A</h1><a href="sub/b.html#L-2">b</a><a href="#top">t</a>'
        '<a href="sub/b.html?x=1">q</a><a href="https://x.org">x</a><img src="data:x">'
        '<a name="n"></a><a href="#n">n</a>'
    )
    (tmp_path / "sub/b.html").write_text('<a id="L-2"></a><a href="../a.html">a</a>')
    assert broken_links(tmp_path) == []
    assert main(["site", "--check", str(tmp_path)]) == 0
    (tmp_path / "sub/b.html").write_text(
        '<a href="../none.html">n</a><a href="../a.html#none">n</a><script src="https://x.org/s.js"></script>'
        '<link rel="stylesheet" href="//x.org/s.css"><img src="p.png">'
    )
    assert broken_links(tmp_path) == [
        "a.html: sub/b.html#L-2 leads to no heading or line of its page",
        "sub/b.html: fetches https://x.org/s.js",
        "sub/b.html: fetches //x.org/s.css",
        "sub/b.html: ../none.html leads to no file",
        "sub/b.html: ../a.html#none leads to no heading or line of its page",
        "sub/b.html: p.png leads to no file",
    ]
    capsys.readouterr()
    assert main(["site", "--check", str(tmp_path)]) == REFUSED
    assert re.search(r"expected no broken link, found 6:\n.*L-2", capsys.readouterr().err)
    (tmp_path / "sub/none").mkdir()
    assert main(["site", "--check", str(tmp_path / "sub/none")]) == REFUSED
