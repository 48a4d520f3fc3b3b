"""The small kernels for sm_90a of kernels/hopper: how each is launched, and what it must give.

ptx = compile_all(folder)
done, output = KERNELS["ring"].run(ptx, folder, "--schedule", 3)
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from support.emulation import ROOT, Array, ptxrun

SOURCES = Path(__file__).parent / "kernels/hopper"
NVCC = ROOT / ".venv/toolkit/bin/nvcc"


def compile_all(folder: Path) -> Path:
    """The kernels as one PTX file in a folder."""
    assert NVCC.exists(), f"{NVCC} is missing: run `make setup`"
    path = folder / "hopper.ptx"
    subprocess.run(
        [NVCC, "-std=c++20", "-O3", "-lineinfo", "-arch=compute_90a", "-ptx", "-o", path, SOURCES / "all.cu"],
        check=True,
    )
    return path


def entry_text(ptx: Path, entry: str) -> str:
    """The PTX with only that entry, on the same lines: the others are blanked."""
    lines, inside = ptx.read_text().split("\n"), False
    for i, line in enumerate(lines):
        if ".entry " in line:
            inside = f".entry {entry}(" not in line
        inside = inside and not line.startswith(("\t.file", "\t.section"))
        if inside:
            lines[i] = ""
    return "\n".join(lines)


def halves(seed: int, *shape: int) -> Array:
    """Integers from -4 to 4: every sum of their products is exact in f32."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float16)


@dataclass(frozen=True)
class Kernel:
    entry: str
    block: int
    shared_bytes: int
    inputs: tuple[Array, ...]  # written to files and taken by `arguments` as {0}, {1}, ...
    arguments: tuple[str, ...]
    output: int  # which argument it is
    expected: Callable[..., Array]  # of the inputs
    grid: int = 1

    def options(self, folder: Path) -> list[str]:
        files = []
        for i, array in enumerate(self.inputs):
            files.append(folder / f"{self.entry}.{i}.bin")
            if not files[-1].exists():
                files[-1].write_bytes(array.tobytes())
        words = ["--entry", self.entry, "--grid", self.grid, "--block", self.block, "--smem", self.shared_bytes]
        for spec in self.arguments:
            words += ["--arg", spec.format(*(f"@{file}" for file in files))]
        return [str(word) for word in words]

    def run(self, ptx: Path, folder: Path, *options: object) -> tuple[subprocess.CompletedProcess[str], bytes]:
        """What ptxrun said, and the bytes of the output; none where the launch was refused."""
        out = folder / "out.bin"
        out.unlink(missing_ok=True)
        done = ptxrun(ptx, *self.options(folder), "--dump", f"{self.output}={out}", *options)
        return done, out.read_bytes() if out.exists() else b""

    def right(self) -> bytes:
        return self.expected(*self.inputs).tobytes()


def product(a: Array, b: Array) -> Array:
    return a.astype(np.float32) @ b.astype(np.float32).T


def two_products(a: Array, b: Array) -> Array:
    return np.concatenate([3 * product(a, b[0]), product(a, b[1])], axis=1)


def doubled(x: Array) -> Array:
    return x + x


def stepped(x: Array) -> Array:
    return 2 * x + np.float32(1)


KERNELS = {
    "staged": Kernel(
        "multiply_staged", 128, 16384, (halves(1, 64, 128), halves(2, 128, 128)),
        ("buf:f16:8192:{0}", "buf:f16:16384:{1}", "out:f32:8192"), 2, product, grid=2,
    ),
    "fragments": Kernel(
        "multiply_fragments", 128, 8192, (halves(3, 64, 32), halves(4, 2, 64, 32)),
        ("buf:f16:2048:{0}", "buf:f16:4096:{1}", "out:f32:8192"), 2, two_products,
    ),
    "ring": Kernel(
        "multiply_ring", 160, 32800, (halves(5, 64, 320), halves(6, 64, 320)),
        (
            "tmap:320x64:64x64:128B:buf:f16:20480:{0}", "tmap:320x64:64x64:128B:buf:f16:20480:{1}", "out:f32:4096",
        ), 2, product,
    ),
    "stores": Kernel(
        "store_boxes", 128, 8192, (halves(7, 64, 192),),
        ("buf:f16:12288:{0}", "tmap:192x64:64x16:128B:out:f16:12288"), 1, doubled,
    ),
    "roles": Kernel(
        "multiply_roles", 384, 98368, (halves(8, 128, 320), halves(9, 64, 320)),
        (
            "tmap:320x128:64x64:128B:buf:f16:40960:{0}", "tmap:320x64:64x64:128B:buf:f16:20480:{1}", "out:f32:8192",
        ), 2, product,
    ),
    "turns": Kernel(
        "multiply_turns", 256, 8192, (halves(10, 256, 32), halves(11, 64, 32)),
        ("buf:f16:8192:{0}", "buf:f16:2048:{1}", "out:f32:16384"), 2, product,
    ),
    "pieces": Kernel(
        "copy_pieces", 128, 2080, (np.arange(640, dtype=np.float32),),
        ("buf:f32:640:{0}", "out:f32:640"), 1, stepped,
    ),
}  # fmt: skip
