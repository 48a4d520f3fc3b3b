"""Folded records: what is written is read back equal, once said where it is the same, and no line is misread."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.errors import AnalysisError
from analysis.files import root
from analysis.measure import records
from analysis.measure.folding import Headers, fold, unfold
from analysis.tests.measure.test_records import raw

SPECIAL = (
    "schema version argv problem check timing run energy of header same a.b run.id samples_ns sm_clock_hz samples_ns*32"
)
NAMES = st.sampled_from(SPECIAL.split()) | st.text(max_size=3)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)


def there_and_back(raws: list[dict[str, Any]]) -> list[dict[str, Any]]:
    text = "".join(records.to_line(line) + "\n" for line in fold(raws, {}))
    known: Headers = {}
    lines = [unfold(json.loads(line), known, "f") for line in text.split("\n")[:-1]]
    return [line for line in lines if line is not None]


@given(st.lists(st.dictionaries(NAMES, JSON, max_size=6), max_size=4))
def test_any_object_comes_back_equal(raws: list[dict[str, Any]]) -> None:
    whole = [value for value in raws if not {"of", "header"} & value.keys()]  # those cannot be told from this form
    assert json.dumps(there_and_back(whole), sort_keys=True) == json.dumps(whole, sort_keys=True)


def test_files_are_joined_with_cat(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a.jsonl", "b.jsonl")]
    for number, path in enumerate(paths):
        records.append(path, [raw(run={"id": "r", "round": number})])
    both = tmp_path / "both.jsonl"
    both.write_text("".join(path.read_text() for path in paths) + json.dumps(raw(version="v99")) + "\n")
    assert [(one.subject, one.round) for one in records.read(both).records] == [("v07", 0), ("v07", 1), ("v99", 1)]


def good() -> list[dict[str, Any]]:
    return fold([raw()], {})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda lines: lines[1:], "f:4: no line above has the header [0-9a-f]{8}, which this record is of"),
        (lambda lines: [*lines[:-1], lines[-1] | {"values": []}], "f:5: 0 values, but the headers name [0-9]+ columns"),
        (lambda lines: [lines[0] | {"same": 1}], "f:1: a header needs 'header'"),
        (lambda lines: [lines[0], lines[0] | {"same": {}}], "f:2: header [0-9a-f]{8} says something else"),
    ],
)
def test_a_line_that_makes_no_record_is_named(change: Any, said: str) -> None:
    lines = change(good())
    known: Headers = {}
    with pytest.raises(AnalysisError, match=f"^{said}"):
        for number, line in enumerate(lines, start=1):
            unfold(line, known, f"f:{number}")


def test_committed_records_are_folded() -> None:
    for path in (root() / "logs").glob("*/*.jsonl"):
        if path.parent.name != "library":
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            assert all({"of", "header"} & line.keys() for line in lines), path
