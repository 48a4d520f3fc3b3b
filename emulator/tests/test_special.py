"""ex2, rcp and div for an eighth of all arguments, another one each time: sums over an H200's outputs, and a CRC."""

from __future__ import annotations

import csv
import random
import subprocess
import zlib
from pathlib import Path

import pytest
from support.emulation import ROOT, entry, ptxrun

RECORD = Path(__file__).parent / "records/special.h200.csv"


def opcodes() -> list[str]:
    with RECORD.open(newline="") as file:
        return sorted({row["opcode"] for row in csv.DictReader(file)})


@pytest.mark.long
@pytest.mark.parametrize("opcode", opcodes())
def test_the_emulator_gives_the_bits_of_the_gpu(opcode: str) -> None:
    command = [ROOT / "build/tests/test_special", opcode, str(random.randrange(8))]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    failed = [line for line in run.stdout.splitlines() if line.startswith("not ok")]
    assert run.returncode == 0 and not failed, failed[:5]
    assert run.stdout.count(f" - {opcode} of block ") >= 512 / 8


def test_rcp_of_f64_gives_the_bits_of_the_gpu(tmp_path: Path) -> None:
    """The upper words of 1/x for all fractions of two exponents; the lower words of x are other ones each time."""
    body = """.reg .b32 %i, %b, %t, %h;
.reg .b64 %o, %d;
.reg .f64 %x;
ld.param.u64 %o, [out];
mov.u32 %t, %tid.x;
mov.u32 %b, %ctaid.x;
mad.lo.u32 %i, %b, 128, %t;
mul.wide.u32 %d, %i, 4;
add.u64 %o, %o, %d;
add.u32 %h, %i, 0x3ff00000;
mov.b64 %x, {%i, %h};
rcp.approx.ftz.f64 %x, %x;
mov.b64 {_, %h}, %x;
st.global.u32 [%o], %h;"""
    (tmp_path / "rcp.ptx").write_text(entry(body, ".param .u64 out"))
    done = ptxrun(tmp_path / "rcp.ptx", "--grid", 1 << 14, "--block", 128, "--checks", "off",
                  "--arg", f"buf:u32:{1 << 21}", "--dump", f"0={tmp_path / 'out'}")  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert zlib.crc32((tmp_path / "out").read_bytes()) == 0x9A0E9AF1  # of an H200's output
