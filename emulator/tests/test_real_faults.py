"""Races and hangs of public projects, cut down: the faulty kernel is reported, the repaired one is silent and right.

docs/real-faults.md tells where each comes from.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.emulation import NVCC, ROOT, ptxrun
from support.faults import FAULTS, SOURCE, Fault

PAGE = ROOT / "docs/real-faults.md"


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
    return ptxrun(ptx, "--entry", entry, "--grid", fault.grid, "--block", fault.block, *args, *fault.options, *options)


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
    told = re.findall(r"^- `(\w+)`: ", PAGE.read_text(), re.M)
    assert told == [fault.name for fault in FAULTS]


# ---- the column of compute-sanitizer ----

SCRIPT = ROOT / "emulator/suite/real_faults.py"
CLEAN = {
    "memcheck": "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n",
    "synccheck": "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n",
    "racecheck": "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n",
}
RACE = (
    "========= Error: Race reported between Read access at k+0x1 and Write access at k+0x2 [4 hazards]\n"
    "========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)\n"
)


def made_up(folder: Path, kernel: str, **said: tuple[int, str]) -> None:
    for tool, text in CLEAN.items():
        status, words = said.get(tool, (0, text))
        (folder / f"{kernel}.{tool}.txt").write_text(f"status {status}\n{words}")


def column_of(page: Path) -> dict[str, str]:
    return dict(re.findall(r"^\| `(\w+)` \|[^|]*\| (.*) \|$", page.read_text(), re.M))


def written(folder: Path) -> tuple[subprocess.CompletedProcess[str], dict[str, str], str]:
    """The script's end, the column by kernel, and the table's heading."""
    page = folder / "page.md"
    page.write_text(PAGE.read_text())
    done = subprocess.run([sys.executable, SCRIPT, "write", folder, page], capture_output=True, text=True)
    heading = re.search(r"^\| kernel .*$", page.read_text(), re.M)
    assert heading
    return done, column_of(page), heading[0]


def test_the_column_is_written_from_the_sanitizer_s_outputs(tmp_path: Path) -> None:
    (tmp_path / "machine.txt").write_text("NVIDIA H200, 2025.4.0\n")
    made_up(tmp_path, "sum_of_one_faulty", racecheck=(99, RACE))
    made_up(tmp_path, "sum_of_one_repaired")
    made_up(tmp_path, "barrier_in_branch_faulty", synccheck=(99, "========= ERROR SUMMARY: 24 errors\n"))
    (tmp_path / "barrier_in_branch_faulty.racecheck.txt").write_text("status 124\n========= COMPUTE-SANITIZER\n")
    made_up(tmp_path, "barrier_in_branch_repaired", racecheck=(99, RACE))
    made_up(tmp_path, "warp_list_faulty", racecheck=(99, RACE))  # its repaired kernel did not run
    stopped = "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\ncuCtxSynchronize returned 719\n"
    made_up(tmp_path, "lanes_arrive_faulty", racecheck=(1, stopped))
    made_up(tmp_path, "lanes_arrive_repaired")
    done, column, heading = written(tmp_path)
    assert done.returncode == 0 and list(column) == [fault.name for fault in FAULTS], done.stderr
    assert column.pop("sum_of_one") == "faulty: racecheck"
    assert column.pop("barrier_in_branch") == "faulty: synccheck, racecheck hung; repaired: racecheck"
    assert column.pop("lanes_arrive") == "faulty: racecheck launch failed"
    assert set(column.values()) == {"not run"}
    assert heading.endswith("compute-sanitizer on a GPU (NVIDIA H200, 2025.4.0) |")


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (1, "cuInit returned 100\n"),
        (0, "Killed\n"),
        (99, CLEAN["racecheck"]),
        (0, RACE),
    ],
    ids=["no-gpu", "no-summary", "status-without-report", "report-without-status"],
)
def test_a_run_that_was_none_is_no_verdict(status: int, text: str, tmp_path: Path) -> None:
    made_up(tmp_path, "sum_of_one_faulty", racecheck=(status, text))
    made_up(tmp_path, "sum_of_one_repaired")
    done, column, _ = written(tmp_path)
    assert done.returncode == 1 and "sum_of_one_faulty.racecheck.txt is no finished run" in done.stderr
    assert column == column_of(PAGE)


@pytest.mark.parametrize(("kernel", "status"), [("barrier_in_branch_faulty", 1), ("maximum_scratch_repaired", 0)])
def test_the_sanitizer_s_program_launches_as_ptxrun_does(kernel: str, status: int, ptx: Path) -> None:
    command = [ROOT / "bin/emulated-gpu", sys.executable, SCRIPT, "launch", ptx, kernel]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == status, done.stderr
    assert ("divergent-sync" in done.stderr) == (status == 1), done.stderr
