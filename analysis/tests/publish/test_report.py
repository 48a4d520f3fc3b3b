"""The page over all versions: complete without any record, escaped, self-contained, sortable, readable on a phone."""

import re
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import pytest

from analysis.__main__ import main
from analysis.files import root
from analysis.publish import pictures, report
from analysis.publish.report import Picture, Section, sections, to_html
from analysis.table import Table

BARS = [("v01", 0.5, "0.500"), ("v02", 1.2, "1.200")]
ROWS = [("<script>", "1.102 ± 0.005", "12 HMMA"), ("x", "–", "a text of some length")]
PAGE = [
    Section("First <one>", "Text & more.", [
        Table(("name", "ratio", "mixed"), ROWS),
        Picture("bars", 'what "it" shows: v01 0.5, v02 1.2', pictures.bars(BARS, "unit", 1.0, "goal")),
    ]),
    Section("Second", "Nothing there.", [Table(("name",), [])]),
    Section("Third", "Folded.", []),
]  # fmt: skip


class Checker(HTMLParser):
    """Collects tags and complains of any that is not closed in order."""

    VOID = ("meta",)

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        self.open += [] if tag in self.VOID else [tag]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@cache
def page_of_the_repository() -> tuple[Section, ...]:
    return tuple(sections(root()))


def test_html_is_well_formed_escaped_and_self_contained() -> None:
    text = to_html(PAGE)
    seen = Checker(text).seen
    assert "&lt;script&gt;" in text and "First &lt;one&gt;" in text
    assert not [attrs for _, attrs in seen if attrs.keys() & {"src", "onload", "onclick"}]
    assert all((attrs["href"] or "").startswith("#") for tag, attrs in seen if tag == "a")
    assert not re.search(r"#000000|https?:|xlink|<image|@import|url\((?!#)", text)
    names = re.findall(r'\bid="([^"]+)"', text)
    assert len(names) == len(set(names)) and set(re.findall(r'href="#([^"]+)"', text)) <= set(names)


def test_the_summary_names_the_fastest_version_and_the_libraries() -> None:
    text = page_of_the_repository()[0].text
    assert "The fastest is v37 with " in text and "FlashAttention-3 " in text and "v02 (× 5." in text


@pytest.mark.long
def test_the_page_of_the_repository_is_light_and_names_every_version() -> None:
    text = to_html(page_of_the_repository())
    Checker(text)
    assert len(text.encode()) < 1_000_000
    assert all(f">{path.name.partition('_')[0]}<" in text for path in (root() / "kernels").glob("*/v*.cu"))


def test_the_page_needs_no_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "kernels").symlink_to(root() / "kernels")
    monkeypatch.setattr(report, "root", lambda: tmp_path)
    assert main(["report", "--out", str(tmp_path / "my report")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'my report/report.html'}\n"
    assert (tmp_path / "my report/report.html").read_text().count("Nothing is recorded yet.") == 2
    assert main(["report", "--json"]) == 0
    assert '"version": "v01"' in capsys.readouterr().out
