"""Damaged inputs: every parser of text reads them or refuses them with a message, and never ends in a traceback.

The inputs are real ones of each format with a few edits. `make check` tries the same 300 of each every time,
`make check-long` 1500 others.
"""

import re
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.errors import AnalysisError
from analysis.files import root
from analysis.ladder.checks import parse_checks
from analysis.ladder.config import parse_config
from analysis.ladder.headers import parse_header
from analysis.machine_code.loops import parse_loops, parts_of
from analysis.machine_code.ptxas_log import demangle, parse_log
from analysis.machine_code.regs import parse_csv, parse_registers, rows_of, to_csv
from analysis.machine_code.sass import parse_listing
from analysis.measure.profile import columns, parse
from analysis.measure.records import parse_lines

FORM = "(FP16, 128, 64, 64, 4): async+eager+swizzled+load_2_2_2_tiles+buffer+opt_softmax"
LISTING = """//--------------------- .text.made --------------------------
        /*0000*/  B------:R-:W0:-:S02 LDL R1, [R2] ;
.L_x_0:
        /*0010*/  B0-----:R-:W-:-:S04 HMMA.16816.F32 R4, R8, R12, R4 ;
        /*0020*/  B------:R-:W-:Y:S05 @P0 BRA `(.L_x_0) ;
        /*0030*/  B------:R-:W-:-:S05 EXIT ;
"""
# Difficult input for parsers: numbers too large or of other alphabets, ends of lines, halves of pairs.
PIECES = st.sampled_from(
    [
        *"0123456789[]{}(),.:;+-*/|\"'\\<>=!@&\n\r\t \0x",
        *("é", "²", "٣", "\ud800", "\u2028", "9" * 5000, "-1", "1e999", "1.2.3", "nan", "Infinity", "010", "0x"),
        *("<< 99999999", "/ 0", "(" * 3000, "[" * 3000),
    ]
)
EXAMPLES = 60 if settings().derandomize else 1500  # of each format


def text(*paths: str) -> list[str]:
    return [path.read_text() for pattern in paths for path in sorted(root().glob(pattern))]


def read_kernel(source: str) -> None:
    parse_header(source, "f")
    for check in parse_checks(source, "f"):
        check.holds(parse_config(FORM))


def read_log(log: str) -> None:
    demangle(log)
    parse_csv(to_csv(rows_of(parse_log(log, "f"), None)), "f")


LOGS = text("analysis/tests/fixtures/ptxas/*.log")
PARSERS: dict[str, tuple[list[str], Callable[[str], object]]] = {
    "kernel source": (text("kernels/mma_sync/v07_*.cu", "kernels/mma_sync/v25_*.cu"), read_kernel),
    "ptxas log": (LOGS, read_log),
    "ncu csv": (
        text("analysis/tests/fixtures/ncu_*.csv"),
        lambda table: [columns(one, 9) for one in parse(table, "f")],
    ),
    "listing": ([LISTING], lambda listing: [parts_of(each) for each in parse_listing(listing, "f")]),
    "register csv": ([to_csv(rows_of(parse_log(log, "f"), None)) for log in LOGS], lambda table: parse_csv(table, "f")),
    "registers": (
        ["\n".join(text("regs/registers.csv")[0].splitlines()[:20])],
        lambda table: parse_registers(table, "f"),
    ),
    "loops": (["\n".join(text("regs/loops.csv")[0].splitlines()[:20])], lambda table: parse_loops(table, "f")),
    "record": (
        [  # the first records with their headers, and a whole one
            "\n".join(text("logs/bench/*.jsonl")[0].split("\n")[:8]),
            text("analysis/tests/fixtures/same_version_h200.jsonl")[0].split("\n")[0],
        ],
        lambda lines: list(parse_lines(lines.split("\n"), "f")),
    ),
    "configuration": ([FORM, "KernelConfig{5, 128, 64, 64, 4, 1, 1, 1, 2, 2, 2, 0, 0}"], parse_config),
}


@st.composite
def damaged(draw: st.DrawFn, name: str) -> str:
    """A real input in which up to four parts are cut out, doubled, or hold something else."""
    whole: str = draw(st.sampled_from(PARSERS[name][0]))
    for _ in range(draw(st.integers(1, 4))):
        spans = [found.span() for found in re.finditer(draw(st.sampled_from(["[0-9]+", r"\w+", r"\W", ".+\n"])), whole)]
        start, end = draw(st.sampled_from(spans)) if spans else (0, 0)
        whole = whole[:start] + draw(st.sampled_from(["", whole[start:end] * 2]) | PIECES) + whole[end:]
    return whole[: draw(st.integers(0, len(whole)))] if draw(st.integers(0, 9)) == 0 else whole


@pytest.mark.parametrize("name", PARSERS)
@settings(max_examples=EXAMPLES)
@given(st.data())
def test_a_damaged_input_is_read_or_refused(name: str, data: st.DataObject) -> None:
    try:
        PARSERS[name][1](data.draw(damaged(name)))
    except AnalysisError as error:
        assert str(error)
