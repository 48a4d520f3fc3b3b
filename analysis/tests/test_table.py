"""Tables in their four forms, sorting, and reading columns back."""

import csv
import io
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.errors import AnalysisError
from analysis.files import write_atomically, write_if_changed
from analysis.table import Cell, Table, read_columns

TABLE = Table(("name", "count", "share"), [("a", 9, 0.25), ("long name", 10, None), ("b", None, 1.0)])

cells = st.none() | st.integers() | st.booleans() | st.text(st.characters(codec="utf-8", exclude_characters="\r\0"))


def test_text_aligns_numbers_to_the_right() -> None:
    assert TABLE.text().splitlines() == [
        "name       count  share",
        "a              9   0.25",
        "long name     10",
        "b                     1",
    ]


@given(st.lists(st.tuples(cells, cells), max_size=5))
def test_csv_and_json_hold_every_cell(rows: list[tuple[Cell, Cell]]) -> None:
    table = Table(("a", "b"), rows)
    back = list(csv.reader(io.StringIO(table.csv(), newline="")))
    assert back[1:] == [["" if cell is None else str(cell) for cell in row] for row in rows]
    assert [list(row.values()) for row in json.loads(table.json())["rows"]] == [list(row) for row in rows]


def test_reading_columns_back_names_the_line() -> None:
    assert read_columns("a,b\n1,2\n", ("a", "b"), "f") == [("f:2", {"a": "1", "b": "2"})]
    for text, word in (("a\n1\n", "f:1"), ("a,b\n1\n", "f:2"), ("", "f:1"), ('a,b\n"1,2', "f:2"), ("a,b\r\r", "f")):
        with pytest.raises(AnalysisError, match=word):
            read_columns(text, ("a", "b"), "f")


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomically(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_atomically(path, "\ud800")
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]
    assert not write_if_changed(path, "old") and write_if_changed(path, "new")
    assert path.read_text() == "new" and path.stat().st_mode & 0o444


def test_links_and_pipes_stay_what_they_are(tmp_path: Path) -> None:
    """`-o /dev/stdout` and `-o /dev/null` must not replace them by a file."""
    target, link, pipe = tmp_path / "target", tmp_path / "link", tmp_path / "pipe"
    target.write_text("old")
    link.symlink_to("target")
    write_atomically(link, "new")
    assert link.is_symlink() and target.read_text() == "new"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    assert write_if_changed(pipe, "through")
    assert os.read(reader, 100) == b"through" and pipe.is_fifo()
    os.close(reader)
