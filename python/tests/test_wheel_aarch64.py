"""`make wheel FOR=aarch64`: what is in it, and that its library computes the same bits, where qemu is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest
from made_up import ROOT

pytestmark = pytest.mark.site  # which has zig
LIBC = Path("/usr/aarch64-linux-gnu")
# Rows of pseudo-random numbers, so that a fused a * b + c would show; O and log-sum-exp in hexadecimal.
PROGRAM = r"""
#include "flashladder.h"
#include <inttypes.h>
#include <stdio.h>

enum { SEQ = 70, HEADS = 2, D_HEAD = 128, SIZE = SEQ * HEADS * D_HEAD };
static uint16_t tensors[4][SIZE];
static float lse[HEADS * SEQ];

int main(void) {
    uint32_t random = 7;
    for (int i = 0; i < 3 * SIZE; i++) {
        random = random * 1664525 + 1013904223;
        tensors[i / SIZE][i % SIZE] = (uint16_t)(random >> 31 << 15 | (0x3000 + (random >> 12) % 0x0c00));
    }
    fl_library *library;
    fl_problem problem = {.size = sizeof problem, .dtype = FL_FP16, .memory = FL_HOST_MEMORY, .device = -1};
    fl_tensors call = {.size = sizeof call, .q = tensors[0], .k = tensors[1], .v = tensors[2], .o = tensors[3]};
    call.lse = lse, problem.batch = 1, problem.heads = problem.kv_heads = HEADS, problem.d_head = D_HEAD;
    problem.seq_q = problem.seq_k = SEQ, problem.causal = 1;
    if (fl_open(FL_EMULATOR, &library) || fl_forward(library, &problem, &call, NULL)) return puts(fl_error()), 1;
    for (int i = 0; i < SIZE; i++) printf("%04x ", tensors[3][i]);
    for (int i = 0; i < HEADS * SEQ; i++) printf("%a ", lse[i]);
    return 0;
}
"""


def run(*command: object, **variables: str) -> str:
    words, environment = list(map(str, command)), {**os.environ, **variables}
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_another_processor_needs_a_name() -> None:
    done = subprocess.run(["make", "lib", "FOR=arm"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode and "FOR=arm: one of: aarch64; without FOR= it is for this machine" in done.stderr


def test_the_wheel_says_its_processor() -> None:
    run("make", "wheel")
    run("make", "wheel", "FOR=aarch64")
    assert list((ROOT / "dist").glob("flashladder-*_x86_64.whl")), "the wheel of this machine stays"
    (wheel,) = (ROOT / "dist").glob("flashladder-*-py3-none-manylinux_2_17_aarch64.whl")
    library = zipfile.ZipFile(wheel).read("flashladder/libflashladder.so")
    assert library[:4] == b"\x7fELF" and library[18] == 183 and str(ROOT).encode() not in library


def test_it_computes_the_same_bits(tmp_path: Path) -> None:
    emulator = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
    if not emulator or not LIBC.is_dir():
        pytest.skip("apt-get install qemu-user-static libc6-arm64-cross: then this test runs the library")
    run("make", "lib", "FOR=aarch64")
    run("make", "lib")
    (tmp_path / "program.c").write_text(PROGRAM)
    (tmp_path / "libflashladder.so.1").symlink_to(ROOT / "lib/aarch64/libflashladder.so")
    library = [tmp_path / "libflashladder.so.1", "-Iinclude", tmp_path / "program.c", "-o"]
    cache = {f"ZIG_{kind}_CACHE_DIR": str(tmp_path) for kind in ("LOCAL", "GLOBAL")}
    zig = [ROOT / ".venv/site/bin/python", "-m", "ziglang", "cc", "-target", "aarch64-linux-gnu.2.17"]
    run(*zig, *library, tmp_path / "there", **cache)
    run("cc", "-Iinclude", tmp_path / "program.c", "-o", tmp_path / "here", "-Llib", "-lflashladder")
    there = run(emulator, "-L", LIBC, "-E", f"LD_LIBRARY_PATH={tmp_path}", tmp_path / "there")
    here = run(tmp_path / "here", LD_LIBRARY_PATH=str(ROOT / "lib"))
    assert there == here and len(here.split()) == 70 * 2 * 129
