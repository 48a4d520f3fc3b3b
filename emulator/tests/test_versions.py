"""Every version of the ladder once on the emulator: a right result, no finding, and the counts of regs/traffic.csv.

The versions are closed: their code hashes show that they have not changed. harness/tests/ runs the other kernels.
"""

import json
import subprocess
from dataclasses import asdict
from pathlib import Path

import pytest
from support.emulation import ROOT
from support.versions import Launch

from analysis.ladder.headers import load_all
from analysis.machine_code.traffic import HEADS, SEQ, TRAFFIC, read_traffic
from analysis.tests.support.kinds import one_of_each_kind, some_in_check

VERSIONS = load_all(ROOT)
QUICK = [name for name in VERSIONS if name != "v00"]  # which executes 40 times as many instructions as the others
KINDS = one_of_each_kind(VERSIONS)
PRODUCTION = ["attention/mma_sync", "attention/wgmma"]  # their counters in memory are left to test_all_orders.py


@pytest.mark.parametrize("name", some_in_check(VERSIONS, QUICK))
def test_version_is_right(name: str) -> None:
    problem = ["--batch", "1", "--heads", str(HEADS), "--seq", str(SEQ)]
    command = [ROOT / "bin" / name, "--backend", "emu", *problem, "--json", "-", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert record["check"]["pass"] and record["counters"]["findings"] == 0
    recorded, counted = asdict(read_traffic(ROOT)[name]), record["counters"]["total"]
    again = f"if the change is meant, run `python3 -m analysis traffic --version {name} --write`"
    assert {field: counted[field] for field in TRAFFIC} == {field: recorded[field] for field in TRAFFIC}, again


@pytest.mark.parametrize("name", KINDS)
def test_no_order_is_a_race_or_a_deadlock(name: str) -> None:
    done = Launch(name).run("--orders")
    assert (done.returncode, done.stderr) == (0, "orders: no race, no deadlock in any order\n")


@pytest.mark.parametrize("name", [*KINDS, *PRODUCTION])
def test_schedules_and_threads_change_no_bit(name: str, tmp_path: Path) -> None:
    found = set()
    for options in (["--threads", 1], ["--threads", 5], ["--schedule", 1], ["--schedule", 2]):
        done = Launch(name, heads=3).run(*options, "--dump", f"0.3={tmp_path / 'O'}")
        assert (done.returncode, done.stderr) == (0, ""), f"{options}: {done.stderr}"
        found.add((tmp_path / "O").read_bytes())
    assert len(found) == 1
