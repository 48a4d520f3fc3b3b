"""The baseline for files of anybody: what differs from it, and what is no baseline."""

import json
from dataclasses import replace

import pytest

from analysis.errors import AnalysisError
from analysis.files import root
from analysis.machine_code.baseline import Accepted, accepted_now, findings, parse, read_files, text_of
from analysis.machine_code.library import Figures

FILE = "kernels.cubin"


def kernels() -> list[Figures]:
    """Two kernels and the file itself."""
    (found,) = read_files([root() / "build/v01/sm_80.cubin"]).values()
    assert [each.kind for each in found] == ["kernel", "kernel", "file"]
    return found


def with_fact(figures: Figures, name: str, value: str) -> Figures:
    return replace(figures, facts={**figures.facts, name: value})


def test_a_baseline_is_read_as_it_was_written() -> None:
    baseline = accepted_now({}, {FILE: kernels()}, "first")
    assert parse(text_of(baseline), "x") == baseline
    assert findings(parse(text_of(baseline), "x"), {FILE: kernels()}) == []


def test_what_differs_is_found() -> None:
    one, other, file = kernels()
    baseline = accepted_now({}, {FILE: [one, other, file]}, "first")
    fresh = [with_fact(one, "registers", "200"), replace(one, symbol="added"), replace(file, facts={**file.facts})]
    found = {(row[3], row[-1]) for row in findings(baseline, {FILE: fresh})}
    assert found == {("registers", "worse"), ("kernel", "not accepted yet"), ("kernel", "gone")}
    assert {row[-1] for row in findings({}, {FILE: kernels()})} == {"not accepted yet"}
    (local,) = findings(baseline, {FILE: [replace(one, local=1), other, file]})
    assert local[3:] == ("instructions with local memory", "0", "1", "worse")


def test_what_has_not_changed_keeps_its_reason() -> None:
    one, other, file = kernels()
    before = accepted_now({"another": [Accepted(one, "old")]}, {FILE: [one, other, file]}, "first")
    after = accepted_now(before, {FILE: [with_fact(one, "registers", "200"), other, file]}, "second")
    assert [each.why for each in after[FILE]] == ["second", "first", "first"]
    assert after["another"] == before["another"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": 1, "files": {"x": [{"why": ""}]}}'])
def test_what_is_no_baseline(text: str) -> None:
    with pytest.raises(AnalysisError, match=r"base\.json: not a baseline, as `accept` writes them"):
        parse(text, "base.json")
    with pytest.raises(AnalysisError, match=r"base\.json: schema 2, this program reads 1"):
        parse(json.dumps({"schema": 2, "files": {}}), "base.json")
