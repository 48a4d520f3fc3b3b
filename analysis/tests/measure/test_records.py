"""Records: what is read, what is refused by name, and that files hold whole lines whatever happens."""

import fcntl
import json
import multiprocessing
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.__main__ import main
from analysis.measure import records, schema
from analysis.measure.records import RecordError


def raw(**changes: Any) -> dict[str, Any]:
    value: dict[str, Any] = {
        "schema": 1,
        "version": "v07",
        "config": "(FP16, 128, 64, 64, 4): async+load_0_0_0_tiles",
        "backend": "gpu",
        "device": {"name": "NVIDIA H200"},
        "problem": {"dtype": "fp16", "batch": 16, "heads": 16, "seq": 512, "d_head": 128, "dist": "normal"},
        "check": {"rows": 64, "max_error_over_bound": 0.5, "pass": True, "pass_after": True},
        "timing": {"samples_ns": [1000.0, 1010.0, 990.0], "sm_clock_hz": [1.7e9, 1.7e9, 1.7e9], "discarded": 0},
        "run": {"id": "20260101T000000Z-aaaa", "round": 1},
    }
    return value | changes


def without(value: dict[str, Any], *path: str) -> dict[str, Any]:
    copy: dict[str, Any] = json.loads(json.dumps(value))
    inner = copy
    for name in path[:-1]:
        inner = inner[name]
    del inner[path[-1]]
    return copy


def test_a_record_is_taken_apart() -> None:
    record = records.parse(raw())
    assert (record.subject, record.is_peer, record.round) == ("v07", False, 1)
    assert record.problem.flop() == 4 * 16 * 16 * 512 * 512 * 128
    assert record.samples_ns == (1000.0, 1010.0, 990.0)
    assert record.passed is True and record.error_over_bound == 0.5 and record.discarded == 0
    assert records.parse(raw(timing={"samples_ns": [1.0], "discarded": 3})).discarded == 3
    assert records.parse(raw(timing=None)).discarded == 0


@pytest.mark.parametrize("schema", [0, 2, None, "1"])
def test_another_schema_is_refused_by_number(schema: object) -> None:
    with pytest.raises(RecordError, match=f"schema {schema!r}.*reads schema 1"):
        records.parse(raw(schema=schema))


@pytest.mark.parametrize(
    ("broken", "named"),
    [
        (without(raw(), "timing", "samples_ns"), "samples_ns"),
        (without(raw(), "version"), "version"),
        (raw(timing={"samples_ns": [1.0, "2"]}), "samples_ns"),
        (raw(timing={"samples_ns": [1.0, 0.0]}), r"timing\.samples_ns\[1\] = 0\.0: must be a time"),
        (raw(problem=raw()["problem"] | {"heads": 0}), r"problem\.heads = 0: must be a positive"),
        (raw(problem=raw()["problem"] | {"dtype": "fp8"}), r"problem\.dtype = 'fp8': must be fp16, bf16 or e4m3"),
        (raw(run={"id": "\ud800"}), r"run\.id = '\\ud800': must be a text"),
        (raw(timing={"samples_ns": [1.0, 2.0], "sm_clock_hz": [1e9]}), "2 samples but 1 clocks"),
    ],
)
def test_a_broken_record_is_refused_with_the_field_and_the_place(broken: dict[str, Any], named: str) -> None:
    with pytest.raises(RecordError, match=rf"^file:3.*{named}"):
        records.parse(broken, "file:3")


def test_append_and_read(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "h200.jsonl"
    records.append(path, [raw()])
    records.append(path, [raw(version="v08"), raw(version="v09")])
    assert [record.subject for record in records.read(path).records] == ["v07", "v08", "v09"]
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert sum("of" in line for line in lines) == 3


@pytest.mark.parametrize("cut", [1, 20, 200])
def test_a_torn_last_line_is_set_aside_and_then_replaced(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "h200.jsonl"
    records.append(path, [raw(), raw(version="v08")])
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) - 1 - cut])
    log = records.read(path)
    assert [record.subject for record in log.records] == ["v07"]
    assert log.torn
    records.append(path, [raw(version="v09")])
    assert [record.subject for record in records.read(path).records] == ["v07", "v09"]
    assert not records.read(path).torn


def test_a_broken_line_in_the_middle_is_an_error_with_its_number(tmp_path: Path) -> None:
    path = tmp_path / "h200.jsonl"
    path.write_text(json.dumps(raw()) + "\n{broken\n" + json.dumps(raw()) + "\n")
    with pytest.raises(RecordError, match=r"h200\.jsonl:2"):
        records.read(path)


def unfit(kind: schema.Kind) -> Any:
    return next(value for value in ({"a": 1}, 7.5, [None]) if not kind.fits(value))


@pytest.mark.parametrize("field", schema.FIELDS, ids=[field.path for field in schema.FIELDS])
def test_every_field_is_checked(field: schema.Field) -> None:
    parent, _, name = field.path.rpartition(".")
    inner: dict[str, Any] = {"counters.total": {}, "counters": {}, "derived": {}}.get(parent, raw().get(parent, {}))
    broken = raw(**{parent: inner | {name: unfit(field.kind)}}) if parent else raw(**{name: unfit(field.kind)})
    with pytest.raises(RecordError, match=f"^file:3: {re.escape(field.path)} = .*: must be |reads schema 1"):
        records.parse(broken, "file:3")
    if field.kind.each:
        element = {name: [unfit(field.kind.each)]}
        with pytest.raises(RecordError, match=rf"^file:3: {re.escape(field.path)}\[0\] = .*: must be "):
            records.parse(raw(**{parent: inner | element}) if parent else raw(**element), "file:3")


def test_a_full_disk_is_an_error_and_leaves_no_half_line() -> None:
    with pytest.raises(OSError, match=r"not kept: No space left.*/dev/full"):
        records.append(Path("/dev/full"), [raw()])


def _append_one(path: Path) -> None:
    records.append(path, [raw(version="v08")])


def test_writers_wait_for_each_other(tmp_path: Path) -> None:
    path = tmp_path / "h200.jsonl"
    records.append(path, [raw()])
    with path.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        writer = multiprocessing.Process(target=_append_one, args=(path,))
        writer.start()
        writer.join(0.3)
        assert writer.is_alive()
        assert len(records.read(path).records) == 1
        fcntl.flock(held, fcntl.LOCK_UN)
    writer.join()
    assert len(records.read(path).records) == 2


def shards(folder: Path) -> list[Path]:
    first, second, third = (folder / f"shard {i}.jsonl" for i in range(3))
    records.append(first, [raw(), raw(run={"id": "20260101T000000Z-aaaa", "round": 2})])
    records.append(second, [raw(), raw(version="v08")])
    records.append(third, [raw(version="v01", run={"id": "20260102T000000Z-bbbb", "round": 1})])
    third.write_bytes(third.read_bytes() + b'{"schema":1,"vers')
    return [first, second, third]


def test_merge_drops_duplicates_and_torn_lines_and_orders(tmp_path: Path) -> None:
    paths = shards(tmp_path)
    merged = records.merge(paths)
    assert merged.duplicates == 1
    assert merged.torn == (paths[2],)
    assert [(r.subject, r.round) for r in merged.records] == [("v07", 1), ("v08", 1), ("v07", 2), ("v01", 1)]
    assert records.merge(reversed(paths)).records == merged.records
    again = tmp_path / "merged.jsonl"
    records.write_merged(merged, again)
    assert records.merge([again, *paths]).records == merged.records


def test_merge_refuses_records_that_contradict_each_other(tmp_path: Path) -> None:
    paths = shards(tmp_path)
    records.append(paths[1], [raw(seed=2)])
    with pytest.raises(RecordError, match=r"20260101T000000Z-aaaa round 1 of v07 .* differs"):
        records.merge(paths)


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("command", ["records show", "records runs", "records check", "records merge", "compare"])
def test_records_that_contradict_each_other_are_refused_by_every_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, together: bool
) -> None:
    paths = [str(tmp_path / f"{name}.jsonl") for name in "ab"]
    records.append(Path(paths[0]), [raw(), raw(seed=2)] if together else [raw()])
    records.append(Path(paths[1]), [raw()] if together else [raw(seed=2)])
    end = ["-o", str(tmp_path / "merged.jsonl")] if command == "records merge" else []
    assert main([*command.split(), *paths, *end]) == 2
    said = capsys.readouterr()
    assert "run 20260101T000000Z-aaaa round 1 of v07" in said.err and "differs" in said.err and said.out == ""
    assert not (tmp_path / "merged.jsonl").exists()


ODD_TEXT = st.text(st.characters(codec=None), max_size=3)  # halves of surrogate pairs too
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.integers(-2, 2) | st.floats() | ODD_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ODD_TEXT, inner, max_size=3),
    max_leaves=4,
)
PATHS = [(name,) for name in raw()] + [
    (name, inner) for name, value in raw().items() if isinstance(value, dict) for inner in (*value, "kept_of")
]


def changed_at(path: tuple[str, ...], value: Any) -> dict[str, Any]:
    return raw(**{path[0]: raw()[path[0]] | {path[1]: value} if len(path) == 2 else value})


@given(st.sampled_from(PATHS), json_values)
def test_any_value_at_any_path_is_read_or_refused(path: tuple[str, ...], value: Any) -> None:
    changed = changed_at(path, value)
    try:
        record = records.parse(changed, "file:3")
    except RecordError as error:
        assert str(error).startswith("file:3")
    else:
        assert hash(record.key()) is not None and (record.run.get("id") or "") == record.run_id


def test_merge_refuses_two_gpu_models(tmp_path: Path) -> None:
    paths = shards(tmp_path)
    records.append(paths[1], [raw(device={"name": "NVIDIA A100"})])
    with pytest.raises(RecordError, match=r"different devices.*A100, NVIDIA H200"):
        records.merge(paths)


def test_the_newest_run_with_all_subjects_is_found(tmp_path: Path) -> None:
    found = [record for path in shards(tmp_path) for record in records.read(path).records]
    assert records.latest_run(found) == "20260102T000000Z-bbbb"
    assert records.latest_run(found, ["v07", "v08"]) == "20260101T000000Z-aaaa"
    with pytest.raises(RecordError, match="v01 and v08"):
        records.latest_run(found, ["v08", "v01"])


def test_the_command_merges_and_shows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    merged = tmp_path / "merged.jsonl"
    assert main(["records", "merge", *map(str, shards(tmp_path)), "-o", str(merged)]) == 0
    assert "4 records; left out: 1 duplicates, 1 torn" in capsys.readouterr().out
    assert main(["records", "check", str(merged)]) == 0
    assert "4 records of NVIDIA H200" in capsys.readouterr().out
    assert main(["records", "runs", str(merged)]) == 0
    assert "v07 v08" in capsys.readouterr().out
    assert main(["records", "show", str(merged), "--run", "20260101T000000Z-aaaa", "--csv"]) == 0
    assert capsys.readouterr().out.splitlines()[1].startswith("v07,fp16,16,16,512,")
    assert main(["records", "show", str(merged), "--run", "2026"]) == 2
    assert "--run 2026: no such run" in capsys.readouterr().err
    assert main(["records", "merge", str(merged)]) == 2
