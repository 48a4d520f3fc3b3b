"""Records that cannot be are refused; the committed ones all can."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from analysis.__main__ import main
from analysis.files import root
from analysis.measure.plausible import implausible
from analysis.measure.records import parse, records_in

BENCH = root() / "logs/bench/h200.jsonl"


def one() -> dict[str, Any]:
    """A committed record of one of our executables, with what all of its samples say."""
    found = next(record for record in records_in(BENCH) if not record.is_peer and record.run_id and record.sm_clock_hz)
    return copy.deepcopy(found.raw)


def faults(*raws: dict[str, Any]) -> list[str]:
    return list(implausible(parse(raw) for raw in raws))


def scaled(raw: dict[str, Any], factor: float) -> dict[str, Any]:
    """All times in another unit, and what is computed from them."""
    timing = raw["timing"]
    timing["samples_ns"] = [value * factor for value in timing["samples_ns"]]
    for name in ("median", "q1", "q3", "min"):
        timing[name] *= factor
    raw["derived"]["tflops"] /= factor
    return raw


@pytest.mark.parametrize("gpu", ["h100", "h200"])
def test_committed_records_can_be(gpu: str) -> None:
    assert list(implausible(records_in(BENCH.with_stem(gpu)))) == []


def test_microseconds_for_nanoseconds() -> None:
    assert faults(one()) == []
    assert faults(scaled(one(), 2.0)) == []  # slower can be
    (fault,) = faults(scaled(one(), 1e-3))
    assert "is a time in another unit than ns?" in fault


def test_figures_that_contradict_the_samples() -> None:
    raw = one()
    raw["derived"]["tflops"] *= 1.02
    assert ["tflops is" in fault for fault in faults(raw)] == [True]
    raw = one()
    raw["timing"]["min"] = 2 * raw["timing"]["median"]
    assert ["the shortest sample is" in fault for fault in faults(raw)] == [True]
    raw = one()
    for name in ("kept_of", "kept_every"):
        raw["timing"].pop(name, None)
    middle = sorted(raw["timing"]["samples_ns"])[len(raw["timing"]["samples_ns"]) // 2]
    raw["timing"]["samples_ns"] = [1.02 * max(middle, raw["timing"]["median"])] * len(raw["timing"]["samples_ns"])
    assert any("that of its samples" in fault for fault in faults(raw))


def test_check_and_compare_refuse_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = tmp_path / "good.jsonl", tmp_path / "bad.jsonl"
    good.write_text(json.dumps(one()) + "\n", encoding="utf-8")
    bad.write_text(json.dumps(scaled(one(), 1e-3) | {"run": None}) + "\n", encoding="utf-8")
    assert main(["records", "check", str(good)]) == 0
    assert main(["records", "check", str(bad)]) == 2
    assert "another unit" in capsys.readouterr().err
    assert main(["compare", str(good), str(bad)]) == 2
    assert f"{bad}: " in capsys.readouterr().err
