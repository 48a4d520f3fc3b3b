"""Races and hangs of public projects, cut down: the faulty kernel is reported, the repaired one is silent and right.

docs/real-faults.md tells where each comes from.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.emulation import ROOT, ptxrun
from support.hopper import NVCC

SOURCE = Path(__file__).parent / "support/kernels/real_faults.cu"
PAGE = ROOT / "docs/real-faults.md"


@dataclass(frozen=True)
class Fault:
    name: str  # of the kernels: with _faulty or _repaired behind it
    found: str  # the class of the finding
    says: str
    block: int
    args: str
    grid: int = 1


FAULTS = [
    Fault("store_ring", "race", "another thread read", 128, "out:u32:512"),
    Fault("zero_state", "missing-proxy-fence", "no fence.proxy.async lies between", 128, "out:u32:128"),
    Fault("staged_copy", "async-in-flight", "a bulk copy may still read it", 32, "out:u32:256 buf:u32:256:ramp"),
    Fault("polled_copy", "missing-proxy-fence", "global memory", 32, "buf:u32:32 buf:u32:32 buf:i32:1", grid=2),
    Fault("lanes_arrive", "barrier-misuse", "more arrive than mbarrier.init said", 32, "out:u32:32 buf:u32:32:ramp"),
    Fault("histogram_rounds", "race", "another thread", 128, "out:u32:128"),
    Fault("maximum_scratch", "race", "another thread", 128, "out:f32:256 buf:f32:256:ramp"),
    Fault("warp_list", "race", "within a warp", 32, "out:u32:32 buf:u32:32:ramp"),
    Fault("scales_behind", "race", "within a warp", 32, "out:u32:18 buf:u32:16:ramp"),
    Fault("sum_of_one", "race", "bar.sync", 128, "out:u32:128 buf:u32:128:ramp"),
    Fault("barrier_of_some", "race", "bar.sync", 128, "out:u32:128 buf:u32:128:ramp"),
    Fault("barrier_in_branch", "divergent-sync", "took another path", 64, "out:u32:64 buf:u32:64:ramp i32:40"),
    Fault("hoisted_barrier", "race", "bar.sync", 64, "out:u32:64 buf:u32:64:ramp"),
    Fault(
        "single_buffer", "async-in-flight", "a wgmma or a bulk copy may still read it", 128, "out:f32:512 buf:u32:512"
    ),
    Fault("one_lane_tells", "race", "within a warp", 64, "out:u32:128"),
]
BY_NAME = pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)


@pytest.fixture(scope="session")
def ptx(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("faults") / "real_faults.ptx"
    flags = ["-std=c++17", "-O3", "-lineinfo", "-arch=compute_90a", "-ptx"]
    subprocess.run([NVCC, *flags, "-o", path, SOURCE], check=True)
    return path


def run(fault: Fault, ptx: Path, kind: str, *options: object) -> subprocess.CompletedProcess[str]:
    args = [word for spec in fault.args.split() for word in ("--arg", spec)]
    entry = f"{fault.name}_{kind}"
    return ptxrun(ptx, "--entry", entry, "--grid", fault.grid, "--block", fault.block, *args, *options)


@BY_NAME
def test_faulty_kernel_is_reported(fault: Fault, ptx: Path) -> None:
    done = run(fault, ptx, "faulty")
    found = re.search(r"^\d+ findings?: (.*)$", done.stderr, re.M)
    assert done.returncode in (1, 3) and found, done.stderr
    assert fault.found in found[1], done.stderr
    assert fault.says in done.stderr, done.stderr


@BY_NAME
def test_repaired_kernel_is_silent(fault: Fault, ptx: Path) -> None:
    for seed in (0, 1):
        done = run(fault, ptx, "repaired", "--schedule", seed)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr


def test_every_fault_is_told() -> None:
    told = re.findall(r"^## .*`(\w+)`$", PAGE.read_text(), re.M)
    assert told == [fault.name for fault in FAULTS]
