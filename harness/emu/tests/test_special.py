"""ex2, rcp and div for all 2^32 arguments: the sums over an H200's outputs, as special.h200.csv holds them."""

from __future__ import annotations

import csv
import subprocess
from pathlib import Path

import pytest
from support.emulation import ROOT

RECORD = Path(__file__).parent / "records/special.h200.csv"


def opcodes() -> list[str]:
    with RECORD.open(newline="") as file:
        return sorted({row["opcode"] for row in csv.DictReader(file)})


@pytest.mark.long
@pytest.mark.parametrize("opcode", opcodes())
def test_the_emulator_gives_the_bits_of_the_gpu(opcode: str) -> None:
    run = subprocess.run([ROOT / "build/tests/test_special", opcode], cwd=ROOT, capture_output=True, text=True)
    failed = [line for line in run.stdout.splitlines() if line.startswith("not ok")]
    assert run.returncode == 0 and not failed, failed[:5]
    assert run.stdout.count(f" - {opcode} of block ") == 512
