"""make suite-fp8: its problems have rows in hopper_runs.csv, and what a run changes in a row."""

from __future__ import annotations

import csv
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.emulation import ROOT

SUITE = ROOT / "emulator/suite"
RECORD = ROOT / "logs/emulator/hopper_runs.csv"
HEADING = "project,version,licence,kernel,problem,uses,error,largest,findings\n"

LAST = "Q,old,MIT,first,1 x 1,wgmma,0,1,\n"

# Stands for bin/emulated-gpu and the program: two problems, of which the second has a finding; it is {verdict}, and
# with a seed {scheduled}.
TOOL = """#!/bin/bash
[ "$1" = --arch ] || exec printf 'first\\nsecond\\n'
[ "$3" = --schedule ] && verdict={scheduled} || verdict={verdict}
if [ "${{@: -1}}" = first ]; then
    echo '{{"notes": []}}' > "${{@: -3:1}}"; echo 'KERNEL right, error 0.5 of 8, problem 2 x 2'
else
    echo '{{"notes": [{{"finding": "race"}}]}}' > "${{@: -3:1}}"; echo "KERNEL $verdict, error 1 of 9, problem 3 x 3"
fi
"""


def rows(record: Path) -> list[dict[str, str]]:
    with record.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def run(
    folder: Path, findings: str, verdict: str = "right", scheduled: str = "right"
) -> tuple[subprocess.CompletedProcess[str], Path]:
    """With a record that has a row of `second`, and others."""
    tool, record = folder / "tool", folder / "runs.csv"
    tool.write_text(TOOL.format(verdict=verdict, scheduled=scheduled))
    tool.chmod(0o755)
    record.write_text(f"{HEADING}P,old,MIT,other,1 x 1,wgmma,0,1,\nP,old,MIT,second,1 x 1,wgmma,0,1,{findings}\n{LAST}")
    command = [sys.executable, SUITE / "fp8_kernels.py", tool, record, "P", "new", "program"]
    return subprocess.run(command, capture_output=True, text=True, check=False), record


@pytest.mark.parametrize(("project", "source"), [("DeepGEMM", "deepgemm.cu"), ("FlashMLA", "flashmla.cu")])
def test_each_problem_has_a_whole_row(project: str, source: str) -> None:
    table = (SUITE / "fp8" / source).read_text().partition("const Problem problems[]")[2].partition("};\n")[0]
    names = re.findall(r'^ *\{"([^"]+)"', table, re.M)
    recorded = [row for row in rows(RECORD) if row["project"] == project and "bf16_gemm" not in row["kernel"]]
    assert names == [row["kernel"] for row in recorded]
    assert all(row[column] for row in recorded for column in HEADING.split(",")[:-1])


def test_a_run_leaves_what_a_person_wrote(tmp_path: Path) -> None:
    done, record = run(tmp_path, findings="true: no barrier")
    assert (done.returncode, done.stderr) == (0, "")
    assert record.read_text() == (
        f"{HEADING}P,old,MIT,other,1 x 1,wgmma,0,1,\nP,new,MIT,second,3 x 3,wgmma,1,9,true: no barrier\n"
        f"P,new,,first,2 x 2,,0.5,8,\n{LAST}"
    )


def test_findings_that_nobody_judged_fail(tmp_path: Path) -> None:
    done, _ = run(tmp_path, findings="")
    assert done.returncode == 1 and "the column `findings` of 'second' is ''" in done.stderr
    assert "P, second: right; findings: 1 race\n" in done.stdout


@pytest.mark.parametrize("verdicts", [("wrong", "right"), ("right", "wrong")])
def test_a_wrong_result_fails(verdicts: tuple[str, str], tmp_path: Path) -> None:
    done, _ = run(tmp_path, "true: no barrier", *verdicts)
    assert done.returncode == 1 and "P, second: wrong" in done.stdout


def test_a_program_that_compares_nothing_is_told(tmp_path: Path) -> None:
    done, _ = run(tmp_path, findings="", verdict="unknown")
    assert done.returncode == 1 and "program compared nothing for 'second'" in done.stderr
