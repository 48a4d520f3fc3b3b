"""The loop three ways: each row names its lines of PTX and source; figures are those of the lists they come from."""

import html
import re

from analysis.files import root
from analysis.inspect.linked_code import (
    Counted,
    Linked,
    banks,
    by_line,
    linked_html,
    live_picture,
    ptx_rows,
    sass_rows,
    source_rows,
)  # fmt: skip
from analysis.ladder.headers import load
from analysis.machine_code.live import LiveLoop
from analysis.machine_code.loops import parts_of
from analysis.machine_code.maps import MapRow
from analysis.machine_code.sass import parse_listing

VERSION = load(root(), "v02")
FILE = f"kernels/{VERSION.file}"
LINE = next(at for at, text in enumerate(VERSION.source.splitlines(), start=1) if "ldmatrix_x4(" in text)
WRAPPER = ("common/ptx_sm80.cuh:9", f"{FILE}:{LINE}", f"{FILE}:{LINE + 200}")
PTX = ("// a", "\tldmatrix.sync  {%r1}, [%r2];", "\tadd.s32 %r1, %r2, 1;")


def made(conflicts: int) -> Linked:
    """Two instructions of the recorded loop of v02, from two lines of PTX."""
    listing = next(iter(parse_listing((root() / "sass/v02.sm_90.sass").read_text(), "v02")))
    parts = parts_of(listing)
    first, second = parts.loop[:2]
    rows = [MapRow(first, WRAPPER, 2), MapRow(second, (f"{FILE}:{LINE + 200}",), 3)]
    live = {at.address: {"GPR": 150 + (at is second)} for at in parts.loop}
    counted = [Counted(2, LINE, 64, 32 * conflicts, 32, 0), Counted(3, LINE, 64, 0, 0, 0)]
    return Linked(VERSION, PTX, LiveLoop(parts, 255, live), rows, counted)


def data(row: str) -> tuple[str | None, str | None]:
    found = [re.search(rf"data-{name}=(\d+)", row) for name in "pc"]
    return tuple(match[1] if match else None for match in found)  # type: ignore[return-value]


def test_rows_name_the_lines_that_they_belong_to() -> None:
    linked = made(1)
    assert [data(row) for row in sass_rows(linked)] == [("2", str(LINE)), ("3", str(LINE + 200))]
    assert [data(row) for row in ptx_rows(linked)] == [("2", str(LINE)), ("3", str(LINE + 200))]
    lit = [(row, line) for row in source_rows(linked) for _, line in [data(row)] if line]
    assert [line for _, line in lit] == [str(LINE), str(LINE + 200)]
    assert html.escape(VERSION.source.splitlines()[LINE - 1].strip()) in lit[0][0] and "150" in lit[0][0]
    assert "    64" in ptx_rows(linked)[0] and "ldmatrix.sync {%r1}" in ptx_rows(linked)[0]


def test_a_source_line_has_the_sum_of_its_ptx() -> None:
    assert by_line(made(8).counted, "line") == {LINE: Counted(2, LINE, 128, 256, 32, 0)}


def test_a_conflict_is_marked_and_told() -> None:
    assert "class=conflict" not in "".join(source_rows(made(1))) and "as many as without" in banks(made(1))
    assert "".join(source_rows(made(8))).count("class=conflict") == 1
    told = banks(made(8))
    assert "8.00 times" in told and f"v=v02&line={LINE}" in told and ": 256 for 32" in told


def test_the_block_is_one_for_markdown() -> None:
    text = linked_html(made(1))
    assert "\n\n" not in text and text.count("<li") == text.count("</li>") > 4
    assert "150 to 151; a thread has 255" in live_picture(made(1))
