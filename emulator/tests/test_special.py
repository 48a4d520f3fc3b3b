"""ex2, rcp and div for an eighth of all arguments, another one each time: sums over an H200's outputs, and a CRC."""

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
.reg .b64 %o, %d; .reg .f64 %x;
ld.param.u64 %o, [out]; mov.u32 %t, %tid.x; mov.u32 %b, %ctaid.x; mad.lo.u32 %i, %b, 128, %t;
mul.wide.u32 %d, %i, 4; add.u64 %o, %o, %d; add.u32 %h, %i, 0x3ff00000; mov.b64 %x, {%i, %h};
rcp.approx.ftz.f64 %x, %x; mov.b64 {_, %h}, %x;
st.global.u32 [%o], %h;"""
    (tmp_path / "rcp.ptx").write_text(entry(body, ".param .u64 out"))
    done = ptxrun(tmp_path / "rcp.ptx", "--grid", 1 << 14, "--block", 128, "--checks", "off",
                  "--arg", f"buf:u32:{1 << 21}", "--dump", f"0={tmp_path / 'out'}")  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert zlib.crc32((tmp_path / "out").read_bytes()) == 0x9A0E9AF1  # of an H200's output


EXPF = """.reg .b32 %i, %b, %t, %r<7>;
.reg .b64 %o, %d; .reg .f32 %f<18>;
ld.param.u64 %o, [out]; mov.u32 %t, %tid.x; mov.u32 %b, %ctaid.x; mad.lo.u32 %i, %b, 128, %t;
mul.wide.u32 %d, %i, 4; add.u64 %o, %o, %d; sub.s32 %t, %i, 32768; cvt.rn.f32.s32 %f1, %t;
mul.f32 %f1, %f1, 0f3A000000; fma.rn.f32 %f4, %f1, 0f3BBB989D, 0f3F000000; cvt.sat.f32.f32 %f5, %f4;
mov.f32 %f6, 0f4B400001; mov.f32 %f7, 0f437C0000; fma.rm.f32 %f8, %f5, %f7, %f6;
add.f32 %f9, %f8, 0fCB40007F; neg.f32 %f10, %f9; mov.f32 %f11, 0f3FB8AA3B;
fma.rn.f32 %f12, %f1, %f11, %f10; mov.f32 %f13, 0f32A57060; fma.rn.f32 %f14, %f1, %f13, %f12;
mov.b32 %r5, %f8; shl.b32 %r6, %r5, 23; mov.b32 %f15, %r6; ex2.approx.ftz.f32 %f16, %f14;
mul.f32 %f17, %f16, %f15;
st.global.f32 [%o], %f17;"""


def test_expf_gives_the_bits_of_the_gpu(tmp_path: Path) -> None:
    """nvcc's code for expf, for 65,536 arguments from -16 to 16: the CRC of an H200's results."""
    (tmp_path / "expf.ptx").write_text(entry(EXPF, ".param .u64 out"))
    done = ptxrun(tmp_path / "expf.ptx", "--grid", 512, "--block", 128, "--arg", "out:f32:65536",
                  "--dump", f"0={tmp_path / 'out'}")  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert zlib.crc32((tmp_path / "out").read_bytes()) == 0x2D6BAACF
