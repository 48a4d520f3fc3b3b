"""expf, pow, sin and their like, as nvcc makes them without --use_fast_math, beside the host's libm."""

from __future__ import annotations

import math
import subprocess
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.emulation import ROOT, entry, ptxrun

SOURCE = Path(__file__).resolve().parent / "support/kernels/mathematics.cu"
COUNT = 1024
FUNCTIONS: list[tuple[str, Callable[[float], float]]] = [
    ("exp", math.exp),
    ("log", lambda x: math.log(abs(x))),
    ("sin", math.sin),
    ("cos", math.cos),
    ("pow", lambda x: math.pow(abs(x), float(np.float32(1.7)))),
    ("tanh", math.tanh),
    ("erf", math.erf),
    ("divide", lambda x: 1 / x),
    ("sqrt", lambda x: math.sqrt(abs(x))),
]
# The largest errors in units of the last place, of f32 and f64.
LARGEST = {"exp": (2, 1), "log": (1, 1), "sin": (2, 2), "cos": (2, 2), "pow": (4, 2), "tanh": (2, 2), "erf": (2, 2),
           "divide": (0, 0), "sqrt": (0, 0)}  # fmt: skip


@pytest.fixture(scope="module")
def ptx(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("mathematics") / "mathematics.ptx"
    nvcc = ROOT / ".venv/toolkit/bin/nvcc"
    subprocess.run([nvcc, "-O3", "-arch=compute_80", "-ptx", "-o", path, SOURCE], check=True, timeout=600)
    return path


@pytest.mark.long
@pytest.mark.parametrize(("name", "kind"), [("single", np.float32), ("wide", np.float64)], ids=["f32", "f64"])
def test_mathematics_as_libm(name: str, kind: type[np.floating], ptx: Path, tmp_path: Path) -> None:  # type: ignore[type-arg]
    rng = np.random.default_rng(1)
    # everyday numbers, numbers of all magnitudes, and angles whose reduction takes the long way
    x = np.concatenate([rng.normal(size=COUNT // 2) * 3, np.exp(rng.uniform(-80, 80, COUNT // 4)),
                        rng.uniform(-1e7, 1e7, COUNT // 4)]).astype(kind)  # fmt: skip
    (tmp_path / "in.bin").write_bytes(x.tobytes())
    bits = x.itemsize * 8
    lines = [line for line in ptx.read_text().splitlines() if ".entry" in line and name in line]
    done = ptxrun(
        ptx, "--entry", lines[0].split("(")[0].split()[-1], "--grid", 8, "--block", 128,
        "--arg", f"buf:f{bits}:{COUNT}:@{tmp_path / 'in.bin'}", "--arg", f"out:f{bits}:{9 * COUNT}",
        "--arg", f"i32:{COUNT}", "--dump", f"1={tmp_path / 'out.bin'}",
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    results = np.fromfile(tmp_path / "out.bin", kind).reshape(9, COUNT)
    for (function, reference), got in zip(FUNCTIONS, results, strict=True):
        largest = LARGEST[function][bits == 64]
        exponent = 1.7 if bits == 64 else float(np.float32(1.7))
        for value, result in zip(x.tolist(), got.tolist(), strict=True):
            want = math.pow(abs(value), exponent) if function == "pow" else safe(reference, value)
            with np.errstate(over="ignore"):
                near = float(kind(want))
            unit = float(np.spacing(kind(abs(want)))) if math.isfinite(near) else 0.0
            # libm's own last place, and half a unit of rounding
            assert result == near or abs(result - want) <= (largest + 0.5 + (bits == 64)) * unit, (function, value)


def safe(function: Callable[[float], float], value: float) -> float:
    try:
        return function(value)
    except OverflowError:
        return math.inf


EXPF = """.reg .b32 %i, %b, %t, %r<7>;
.reg .b64 %o, %d;
.reg .f32 %f<18>;
ld.param.u64 %o, [out];
mov.u32 %t, %tid.x;
mov.u32 %b, %ctaid.x;
mad.lo.u32 %i, %b, 128, %t;
mul.wide.u32 %d, %i, 4;
add.u64 %o, %o, %d;
sub.s32 %t, %i, 32768;
cvt.rn.f32.s32 %f1, %t;
mul.f32 %f1, %f1, 0f3A000000;
fma.rn.f32 %f4, %f1, 0f3BBB989D, 0f3F000000;
cvt.sat.f32.f32 %f5, %f4;
mov.f32 %f6, 0f4B400001;
mov.f32 %f7, 0f437C0000;
fma.rm.f32 %f8, %f5, %f7, %f6;
add.f32 %f9, %f8, 0fCB40007F;
neg.f32 %f10, %f9;
mov.f32 %f11, 0f3FB8AA3B;
fma.rn.f32 %f12, %f1, %f11, %f10;
mov.f32 %f13, 0f32A57060;
fma.rn.f32 %f14, %f1, %f13, %f12;
mov.b32 %r5, %f8;
shl.b32 %r6, %r5, 23;
mov.b32 %f15, %r6;
ex2.approx.ftz.f32 %f16, %f14;
mul.f32 %f17, %f16, %f15;
st.global.f32 [%o], %f17;"""


def test_expf_gives_the_bits_of_the_gpu(tmp_path: Path) -> None:
    """What nvcc makes of expf, for 65,536 arguments from -16 to 16: the CRC of an H200's results."""
    (tmp_path / "expf.ptx").write_text(entry(EXPF, ".param .u64 out"))
    done = ptxrun(tmp_path / "expf.ptx", "--grid", 512, "--block", 128, "--arg", "out:f32:65536",
                  "--dump", f"0={tmp_path / 'out'}")  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert zlib.crc32((tmp_path / "out").read_bytes()) == 0x2D6BAACF
