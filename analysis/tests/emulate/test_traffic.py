"""Modeled traffic: the totals that are taken from an emulator record."""

import json
import shutil
from pathlib import Path

import pytest

from analysis.__main__ import main
from analysis.emulate import traffic
from analysis.emulate.traffic import traffic_of
from analysis.files import root
from analysis.ladder.headers import Version
from analysis.machine_code.traffic import Traffic, read_traffic


def test_traffic_of_a_record() -> None:
    total = {"executed": 10, "wavefronts": 4, "ideal": 3, "sectors": 2, "lanes": 320}
    found = traffic_of(json.dumps({"schema": 1, "counters": {"total": total}}) + "\n")
    assert found == {"executed": 10, "wavefronts": 4, "ideal": 3, "sectors": 2}
    for text in ("", "no JSON", "{}", '{"counters": null}', '{"counters": {"total": {"executed": 1}}}'):
        assert traffic_of(text) is None


def test_the_committed_traffic_is_fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["traffic", "--version", "v02", "--exit-code"]) == 0
    recorded = read_traffic(root())
    monkeypatch.setattr(traffic, "emulate", lambda version: recorded["v01"])
    assert main(["traffic", "--version", "v02", "--exit-code"]) == 1


def test_rows_of_other_ladders_stay_and_those_of_no_kernel_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def emulated(version: Version) -> Traffic:
        return Traffic(version.version, "c", 2, 1, 1, 1)

    shutil.copytree(root() / "kernels", tmp_path / "kernels")
    (tmp_path / "regs").mkdir()
    rows = [Traffic(name, "c", 1, 1, 1, 1) for name in ("f01", "v01", "v99")]
    (tmp_path / "regs/traffic.csv").write_text(traffic.to_csv(rows))
    monkeypatch.setattr(traffic, "root", lambda: tmp_path)
    monkeypatch.setattr(traffic, "emulate", emulated)
    assert main(["traffic", "--version", "v01", "--write"]) == 0
    read = {name: line.executed for name, line in read_traffic(tmp_path).items()}
    assert read == {"f01": 1, "v01": 2}
    assert main(["traffic", "--write"]) == 0
    read = {name: line.executed for name, line in read_traffic(tmp_path).items()}
    assert read["f01"] == read["v37"] == 2 and not {"f02", "v99"} & read.keys()
