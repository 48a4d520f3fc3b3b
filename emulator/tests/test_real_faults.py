"""Races and hangs of public projects, cut down: the faulty kernel is reported, the repaired one is silent and right.

emulator/suite/README.md tells where each comes from.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.emulation import ROOT, compiled, ptxrun

from emulator.suite.faults import FAULTS, SOURCE, Fault

PAGE = ROOT / "emulator/suite/README.md"


BY_NAME = pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)


@pytest.fixture(scope="session")
def ptx(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(SOURCE, tmp_path_factory.mktemp("faults"), "compute_90a")


def launched(kernel: str, ptx: Path, *options: object) -> subprocess.CompletedProcess[str]:
    """By the driver API, as for compute-sanitizer."""
    script = ROOT / "emulator/suite/real_faults.py"
    command = [ROOT / "bin/emulated-gpu", *options, sys.executable, script, "launch", ptx, kernel]
    return subprocess.run([*map(str, command)], capture_output=True, text=True)


def run(fault: Fault, ptx: Path, kind: str, *options: object) -> subprocess.CompletedProcess[str]:
    if fault.overlaps:
        return launched(f"{fault.name}_{kind}", ptx, *options)
    if fault.right:
        right = ptx.parent / fault.name
        right.write_bytes(fault.right().tobytes())
        options = (*options, "--expect", f"0={right}")
    args = [word for spec in fault.args.split() for word in ("--arg", spec)]
    entry = f"{fault.name}_{kind}"
    return ptxrun(ptx, "--entry", entry, "--grid", fault.grid, "--block", fault.block, *args, *fault.options, *options)


@BY_NAME
def test_faulty_kernel_is_reported(fault: Fault, ptx: Path) -> None:
    done = run(fault, ptx, "faulty")
    found = re.search(r"^(?:\d+ findings?|kernel \w+|--expect \S+): (.*)$", done.stderr, re.M)
    assert done.returncode in (1, 3) and found, done.stderr
    assert fault.found in found[1], done.stderr
    assert fault.says in done.stderr, done.stderr


@BY_NAME
def test_repaired_kernel_is_silent(fault: Fault, ptx: Path) -> None:
    for seed in (0, 1):
        done = run(fault, ptx, "repaired", "--schedule", seed)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr


def test_every_fault_is_told() -> None:
    told = re.findall(r"^\| `(\w+)` \| `", PAGE.read_text(), re.M)
    assert told == [fault.name for fault in FAULTS]


@pytest.mark.parametrize(("kernel", "status"), [("barrier_in_branch_faulty", 1), ("maximum_scratch_repaired", 0)])
def test_the_sanitizer_s_program_launches_as_ptxrun_does(kernel: str, status: int, ptx: Path) -> None:
    done = launched(kernel, ptx)
    assert done.returncode == status, done.stderr
    assert ("divergent-sync" in done.stderr) == (status == 1), done.stderr
