"""speed.csv, the record of `make bench-emu ARGS=--write`: complete, and shown as it is."""

from __future__ import annotations

from dataclasses import replace

import pytest
from speed import RECORD, Limit, Record, Row, figure, find, limits, parse, recorded_table, table, write
from support.versions import hopper_versions, versions

LOAD = Limit("load", "sm_80", "load", 0, "off", 5)


def record() -> Record:
    return parse(RECORD.read_text())


def load(version: str, median: float) -> Row:
    return Row(version, "load", 0, "off", 1, "ms", median, median / 2)


def test_every_version_is_loaded() -> None:
    """Versions that are newer than the record are measured when it is made again, on the machine of all figures: the
    last ones, and those before v01."""
    loaded = [row.version for row in record().rows if row.what == "load" and not row.version.startswith("v00")]
    names = [version.name for version in versions() if not version.name.startswith("v00")]
    assert loaded == names[: len(loaded)] and len(loaded) > 1, "run make bench-emu ARGS=--write"


def test_the_machine_and_the_build_are_named() -> None:
    about = record().about
    assert all(about.get(key) for key in ("cpu", "compiler", "revision"))
    assert "changes" not in about["revision"], "measured with changes that were not committed"


def test_every_limit_has_its_figure() -> None:
    page = recorded_table()
    for limit in limits(record()):
        row = find(record().rows, limit)
        assert row, limit.text
        assert f"{limit.most:g} {row.unit} | {figure(row.median)} {row.unit} | {figure(row.least)} {row.unit}" in page


def test_one_thread_is_measured_but_for_the_answer() -> None:
    assert all(row.cores == 1 for row in record().rows if row.what != "answer")
    assert all(0 < row.least <= row.median for row in record().rows)


def test_a_record_reads_back_as_it_was_written() -> None:
    assert parse(write(record())) == record()
    assert write(record()) == RECORD.read_text()


def test_other_columns_are_refused() -> None:
    with pytest.raises(ValueError, match="the columns are not version"):
        parse("# cpu: x\nversion,ms\nv01,2\n")


def test_a_version_that_is_newer_than_the_record_has_no_limit_yet() -> None:
    measured = {row.version for row in record().rows if row.what == "run"}
    assert {limit.version for limit in limits(record())} - {"sm_80", "sm_90a"} == measured
    newer = Record(record().about, [*record().rows, load("v99", 1.0)])
    assert limits(newer) == limits(record())


def test_the_slowest_version_stands_for_all() -> None:
    rows = [load("v01", 2.0), load("v02", 4.0), load("v03", 3.0)]
    rows.append(load(hopper_versions()[-1], 9.0))  # for another architecture
    assert find(rows, LOAD) == rows[1]
    assert find(rows, replace(LOAD, version="v03")) == rows[2]
    assert find(rows, replace(LOAD, version="sm_90a")) == rows[3]
    assert find([], LOAD) is None


@pytest.mark.parametrize(("median", "said"), [(5.0, "met"), (9.9, "met by the least"), (10.2, "missed")])
def test_what_is_said_of_a_limit(median: float, said: str) -> None:
    others = [row for row in record().rows if row.what != "load"]
    lines = table(Record(record().about, [load("v01", 1.0), load("v07", median), *others])).splitlines()
    line = next(line for line in lines if line.startswith("| load and decode"))
    assert line.endswith(f"v07 | 5 ms | {figure(median)} ms | {figure(median / 2)} ms | {said} |")
