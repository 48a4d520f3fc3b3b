"""The page that shows CUDA, PTX and SASS side by side: its links, its counts, and that it needs no other file."""

import json
import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

import pytest

from analysis.__main__ import main
from analysis.files import read_text, root
from analysis.tests.support.compiled import built, cubin


@dataclass
class Row:
    """A line of a pane."""

    marked: bool  # as part of the KV loop
    cells: list[str] = field(default_factory=list)
    titles: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)  # of the cells that say what it comes from


class Page(HTMLParser):
    """The contents of a page: rows by id, every link and everything that a browser would fetch."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: dict[str, Row] = {}
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.row: Row | None = None
        self.in_cell, self.in_from = False, False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        of = {name: value or "" for name, value in attrs}
        self.fetched += [f"{tag} {name}={of[name]}" for name in ("src", "srcset", "data") if name in of]
        self.fetched += [tag] * (tag in ("link", "img", "iframe", "object", "base"))
        if tag == "tr":
            self.row = Row(of.get("class") == "loop") if "id" in of else None
            if self.row is not None:
                assert of["id"] not in self.rows
                self.rows[of["id"]] = self.row
        if tag == "td" and self.row is not None:
            self.in_cell, self.in_from = True, of.get("class") == "from"
            self.row.cells.append("")
            self.row.titles.append(of.get("title", ""))
        if tag == "a":
            self.links.append(of["href"])
            if self.in_from and self.row is not None:
                self.row.links.append(of["href"].removeprefix("#"))

    def handle_endtag(self, tag: str) -> None:
        if tag == "td":
            self.in_cell = self.in_from = False

    def handle_data(self, data: str) -> None:
        if self.in_cell and self.row is not None:
            self.row.cells[-1] += data

    def pane(self, first: str) -> dict[str, Row]:
        """The rows of a pane by the letter that their ids begin with."""
        return {name[1:]: row for name, row in self.rows.items() if name[0] == first}


def made(arguments: list[str], tmp_path: Path) -> tuple[str, Page]:
    out = tmp_path / "map.html"
    assert main(["map", *arguments, "--html", "-o", str(out)]) == 0
    text = read_text(out)
    return text, Page(text)


def printed(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    capsys.readouterr()
    assert main([*arguments, "--json"]) == 0
    rows: list[dict[str, object]] = json.loads(capsys.readouterr().out)["rows"]
    return rows


def test_the_page_stands_alone_and_its_links_lead_to_lines(tmp_path: Path) -> None:
    text, page = made([str(cubin("attention.cu"))], tmp_path)
    assert page.fetched == []
    assert not re.search(r"https?:|@import|url\(|fetch\(|XMLHttp|import\(", text)
    assert len(page.links) > 200
    assert {link.removeprefix("#") for link in page.links} <= set(page.rows)
    assert all(page.pane(letter) for letter in "cps")


def test_rows_are_those_of_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every instruction with its links, every source line with its instructions and live registers."""
    path = str(cubin("attention.cu"))
    _, page = made([path], tmp_path)
    rows = printed(["map", path], capsys)
    sass = page.pane("s")
    assert list(sass) == [f"{row['address']:04x}" for row in rows]
    assert max(len(set(row.links)) for row in sass.values()) >= 3
    named: dict[str, int] = {}
    for row, shown in zip(rows, sass.values(), strict=True):
        assert shown.cells[-1] == row["sass"]
        sources = {str(line).rpartition(":")[2] for line in row["source"]}  # type: ignore[attr-defined]
        assert {link.partition("-")[2] for link in shown.links if link[0] == "c"} == sources
        ptx = [] if row["ptx_line"] is None else [f"p{row['ptx_line']}"]
        assert [link for link in shown.links if link[0] == "p"] == ptx
        for line in sources:
            named[line] = named.get(line, 0) + 1
    source = {name.partition("-")[2]: row for name, row in page.pane("c").items()}
    assert {line: int(row.cells[1]) for line, row in source.items()} == named
    live = {str(row["line"]).rpartition(":")[2]: row for row in printed(["live", path, "--lines"], capsys)}
    assert {line: int(row.cells[2]) for line, row in source.items()} == {at: live[at]["live"] for at in source}
    assert {line for line, row in source.items() if row.marked} == {
        line for line, row in live.items() if row["in the loop"] is not None
    }


def test_source_lines_are_those_of_the_file(tmp_path: Path) -> None:
    built("v01", "sm_80")
    _, page = made(["v01", "--arch", "80"], tmp_path)
    lines = next((root() / "kernels").glob("*/v01_*.cu")).read_text(encoding="utf-8").splitlines()
    source = page.pane("c")
    assert [source[f"0-{n}"].cells[-1] for n in range(1, len(lines) + 1)] == lines
