"""The page over all versions: complete without any record, escaped, self-contained, readable without its pictures."""

import re
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import pytest

from analysis.__main__ import main
from analysis.files import root
from analysis.publish import pictures, report
from analysis.publish.overview import HEADLINE, read_steps
from analysis.publish.report import Picture, Section, sections, to_html, to_markdown
from analysis.table import Table

BARS = [("v01", 0.5, "0.500"), ("v02", 1.2, "1.200")]
PAGE = [
    Section("First <one>", "Text & more.", [
        Table(("name", "a|b"), [("<script>", 1), ("x", 2.5), ("y", None)]),
        Picture("bars", "Bars", 'what "it" shows: v01 0.5, v02 1.2', pictures.bars(BARS, "unit", 1.0, "goal")),
    ]),
    Section("Second", "Nothing there.", [Table(("name",), [])]),
]  # fmt: skip


class Checker(HTMLParser):
    """Collects tags and complains of any that is not closed in order."""

    VOID = ("meta", "rect", "line")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag


def parsed(text: str) -> Checker:
    checker = Checker()
    checker.feed(text)
    checker.close()
    assert checker.open == []
    return checker


def test_html_is_well_formed_escaped_and_self_contained() -> None:
    text = to_html(PAGE)
    seen = parsed(text).seen
    assert "script" not in [tag for tag, _ in seen]
    assert "&lt;script&gt;" in text and "First &lt;one&gt;" in text
    assert not [attrs for _, attrs in seen if attrs.keys() & {"src", "onload", "onclick"}]
    assert all((attrs["href"] or "").startswith("#") for tag, attrs in seen if tag == "a")
    assert "http" not in text and "@import" not in text and not re.search(r"url\((?!#)", text)


def test_html_suits_phones_darkness_and_readers_without_pictures() -> None:
    text = to_html(PAGE)
    seen = parsed(text).seen
    assert ("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}) in seen
    assert "prefers-color-scheme: dark" in text
    pictures = [attrs for tag, attrs in seen if tag == "svg"]
    assert [(p["role"], p["aria-label"]) for p in pictures] == [("img", 'what "it" shows: v01 0.5, v02 1.2')]
    assert text.count("<table>") == len(re.findall(r'<div class="wide" tabindex="0" [^>]*><table>', text)) == 1
    assert text.count('<div class="scroll" tabindex="0" ') == len(pictures)
    assert report.NOTHING in text


def test_the_answer_is_open_and_the_rest_is_folded() -> None:
    page = [PAGE[0], Section("Third", "More.", PAGE[0].blocks), PAGE[1]]
    for text, table in ((to_html(page), "<table>"), (to_markdown(page), "| name")):
        opened, folded = text.split('<details class="more"><summary>1 chart, 1 table</summary>')
        assert opened.count(table) == folded.count(table) == 1 and "</details>" in folded
        assert folded.index("</details>") < folded.index("Second") < folded.index(report.NOTHING)
    long = Picture("speed-h200", "Long", "bars", pictures.bars(BARS, "unit", 1.0, "goal"))
    assert "<summary>1 chart</summary>" in to_html([Section("First", "Text.", [PAGE[0].blocks[0], long])])


def test_columns_of_numbers_are_aligned_right_with_their_heads() -> None:
    rows = [("v01", "1.102 ± 0.005", "367.1 (1.239)", "5 %", "12 HMMA"), ("v02", "–", "286.6", "41/39", "3")]
    text = to_html([Section("One", "Text.", [Table(("version", "ratio", "speed", "share", "mixed"), rows)])])
    assert re.findall(r"<th( [^>]*)>", text) == [' scope="col"', *[' scope="col" class="number"'] * 3, ' scope="col"']
    assert re.findall(r"<td([^>]*)>", text) == ["", *[' class="number"'] * 3, ""] * 2


def test_pictures_are_part_of_the_page_follow_its_colours_and_have_words() -> None:
    figure = pictures.progress(read_steps(root())[:3])
    text = to_html([Section("One", "Text.", [Picture("progress", "Speed", 'of "v01" & more', figure)])])
    (svg,) = [attrs for tag, attrs in parsed(text).seen if tag == "svg"]
    assert (svg["role"], svg["aria-label"]) == ("img", 'of "v01" & more')
    assert "currentColor" in text
    assert not re.search(r"#000000|https?:|xlink|<image|@import", text)
    names = re.findall(r'\bid="([^"]+)"', text)
    assert len(names) == len(set(names))
    assert set(re.findall(r'href="#([^"]+)"', text)) <= set(names)
    assert set(re.findall(r"url\(#([^)]+)\)", text)) <= set(names)


@cache
def page_of_the_repository() -> list[Section]:
    return list(sections(root()))


@pytest.mark.long
def test_the_page_of_the_repository_is_light() -> None:
    text = to_html(page_of_the_repository())
    parsed(text)
    assert len(text.encode()) < 3_000_000
    names = re.findall(r'\bid="([^"]+)"', text)
    assert len(names) == len(set(names))


def test_markdown_holds_the_tables() -> None:
    text = to_markdown(PAGE)
    assert "## First <one>" in text and "| <script> |" in text and report.NOTHING in text


def test_loops_of_sm_90a_have_a_section_and_their_unit() -> None:
    page = page_of_the_repository()
    titles = [section.title for section in page]
    assert [title for title in titles if title.startswith("KV loop")] == [f"KV loop, {arch}" for arch in
                                                                       ("sm_80", "sm_90", "sm_90a")]  # fmt: skip
    mix, table = page[titles.index("KV loop, sm_90a")].blocks
    assert isinstance(mix, Picture) and isinstance(table, Table)
    assert mix.title == "Instructions per HGMMA by purpose"
    assert table.columns[:2] == ("opcode", "v26")
    assert any(row[0] == "HGMMA" for row in table.rows)


def test_bars_in_cells_do_not_split_a_markdown_row() -> None:
    text = Table(("a|b",), [("c|d",)]).markdown()
    assert all(len(re.findall(r"(?<!\\)\|", line)) == 2 for line in text.splitlines())


def test_the_page_of_the_repository_names_every_version() -> None:
    text = to_markdown(page_of_the_repository())
    for path in sorted((root() / "kernels").glob("*/v*.cu")):
        assert f"| {path.name.partition('_')[0]} " in text


def rules() -> dict[str, str]:
    """The declarations of the style sheet by selector; those of media queries are left out."""
    plain = re.sub(r"@media[^{]*\{(?:[^{}]*\{[^{}]*\})*[^{}]*\}", "", report.STYLE)
    found: dict[str, str] = {}
    for selectors, body in re.findall(r"([^{}]+)\{([^}]*)\}", plain):
        for selector in selectors.split(","):
            found[selector.strip()] = found.get(selector.strip(), "") + body
    return found


def test_headings_of_tables_wrap_and_stay_in_view() -> None:
    """A sticky cell stays within the nearest ancestor that scrolls: that one must scroll in both directions."""
    style = rules()
    assert "nowrap" not in style["th"] + style.get("thead th", "") + style["table"]
    assert "position: sticky" in style["thead th"] and "top: 0" in style["thead th"]
    assert "overflow: auto" in style[".wide"] and "max-height" in style[".wide"]
    assert "overflow" not in style["table"] and "collapse: separate" in style["table"]
    assert "position: sticky" in style["td:first-child"] and "left: 0" in style["td:first-child"]


def test_one_type_is_named_above_the_table_of_that_type() -> None:
    page = page_of_the_repository()
    headline = HEADLINE.dtype
    versions, speed = page[0], page[1]
    charts = [block for block in versions.blocks if isinstance(block, Picture) and block.name.startswith("speed-")]
    assert headline in versions.text and charts and all(headline in chart.title for chart in charts)
    tables = [block for block in speed.blocks if isinstance(block, Table)]
    assert [{name.split()[0] for name in table.columns[1:]} for table in tables] == [{"fp16"}, {"bf16"}]
    assert tables[0].columns[1].startswith(headline)


def test_the_page_needs_no_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "kernels").symlink_to(root() / "kernels")
    monkeypatch.setattr(report, "root", lambda: tmp_path)
    out = tmp_path / "my report"
    assert main(["report", "--out", str(out)]) == 0
    assert capsys.readouterr().out.split("\n")[:2] == [str(out / "report.md"), str(out / "report.html")]
    assert (out / "report.md").read_text().count(report.NOTHING) >= 5
    for name in re.findall(r"\]\((report/[^)]+)\)", (out / "report.md").read_text()):
        assert (out / name).read_text().startswith("<?xml")
    assert main(["report", "--json"]) == 0
    assert '"version": "v01"' in capsys.readouterr().out
