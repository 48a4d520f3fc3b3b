"""`make wheel FOR=`: what is in it, and that its library computes the same bits, where qemu or Wine is installed."""

import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest
from fake_frameworks import ROOT

pytestmark = pytest.mark.site  # which has zig
LIBC = Path("/usr/aarch64-linux-gnu")
# Rows of pseudo-random numbers, so that a fused a * b + c would show; O and log-sum-exp in hexadecimal.
PROGRAM = r"""
#include "flashladder.h"
#include <inttypes.h>
#include <stdio.h>

enum { SEQ = 70, HEADS = 2, D_HEAD = 128, SIZE = SEQ * HEADS * D_HEAD };
static uint16_t tensors[4][SIZE];
static union {
    float number;
    uint32_t bits;
} lse[HEADS * SEQ];

int main(void) {
    uint32_t random = 7;
    for (int i = 0; i < 3 * SIZE; i++) {
        random = random * 1664525 + 1013904223;
        tensors[i / SIZE][i % SIZE] = (uint16_t)(random >> 31 << 15 | (0x3000 + (random >> 12) % 0x0c00));
    }
    fl_library *library;
    fl_problem problem = {.size = sizeof problem, .dtype = FL_FP16, .memory = FL_HOST_MEMORY, .device = -1};
    fl_tensors call = {.size = sizeof call, .q = tensors[0], .k = tensors[1], .v = tensors[2], .o = tensors[3]};
    call.lse = &lse[0].number, problem.batch = 1, problem.heads = problem.kv_heads = HEADS, problem.d_head = D_HEAD;
    problem.seq_q = problem.seq_k = SEQ, problem.causal = 1;
    if (fl_open(FL_EMULATOR, &library) || fl_forward(library, &problem, &call, NULL)) return puts(fl_error()), 1;
    for (int i = 0; i < SIZE; i++) printf("%04x ", tensors[3][i]);
    for (int i = 0; i < HEADS * SEQ; i++) printf("%08" PRIx32 " ", lse[i].bits);
    return 0;
}
"""


def run(*command: object, **variables: str) -> str:
    words, environment = list(map(str, command)), {**os.environ, **variables}
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_another_machine_needs_a_name() -> None:
    done = subprocess.run(["make", "lib", "FOR=arm"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode and "FOR=arm: one of: aarch64 windows; without FOR= it is for this machine" in done.stderr


@pytest.mark.parametrize(
    ("host", "tag", "name", "begin"),
    [
        ("aarch64", "manylinux_2_17_aarch64", "libflashladder.so", b"\x7fELF"),
        ("windows", "win_amd64", "flashladder.dll", b"MZ"),
    ],
)
def test_the_wheel_says_its_machine(host: str, tag: str, name: str, begin: bytes) -> None:
    run("make", "wheel")
    run("make", "wheel", f"FOR={host}")
    assert list((ROOT / "dist").glob("flashladder-*_x86_64.whl")), "the wheel of this machine stays"
    (wheel,) = (ROOT / "dist").glob(f"flashladder-*-py3-none-{tag}.whl")
    packed = zipfile.ZipFile(wheel)
    libraries = [file for file in packed.namelist() if file.endswith((".so", ".dll"))]
    assert libraries == [f"flashladder/{name}"]
    library = packed.read(libraries[0])
    assert library.startswith(begin) and str(ROOT).encode() not in library
    assert host == "windows" or library[18] == 183


def built(target: str, library: Path, folder: Path) -> Path:
    """The program for another machine, next to a library."""
    cache = {f"ZIG_{kind}_CACHE_DIR": str(folder) for kind in ("LOCAL", "GLOBAL")}
    zig = [ROOT / ".venv/wasm/ziglang/zig", "cc", "-target", target, "-w"]
    run(*zig, "-Iinclude", folder / "program.c", library, "-o", folder / "there.exe", **cache)
    return folder / "there.exe"


def here_and_there(folder: Path, name: str, target: str, library: str) -> tuple[str, Path]:
    """The numbers on this machine, and the program for another one next to its library."""
    (folder / "program.c").write_text(PROGRAM)
    run("make", "lib")
    run("cc", "-Iinclude", folder / "program.c", "-o", folder / "here", "-Llib", "-lflashladder")
    numbers = run(folder / "here", LD_LIBRARY_PATH=str(ROOT / "lib"))
    assert len(numbers.split()) == 70 * 2 * 129
    run("make", "lib", f"FOR={name}")
    (folder / library).symlink_to(ROOT / "lib" / name / library.removesuffix(".1"))
    return numbers, built(target, folder / library, folder)


def test_arm_computes_the_same_bits(tmp_path: Path) -> None:
    emulator = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
    if not emulator or not LIBC.is_dir():
        pytest.skip("apt-get install qemu-user-static libc6-arm64-cross: then this test runs the library")
    expected, there = here_and_there(tmp_path, "aarch64", "aarch64-linux-gnu.2.17", "libflashladder.so.1")
    assert run(emulator, "-L", LIBC, "-E", f"LD_LIBRARY_PATH={tmp_path}", there) == expected


def test_windows_computes_the_same_bits(tmp_path: Path) -> None:
    wine = shutil.which("wine64") or shutil.which("wine")
    if not wine:
        pytest.skip("apt-get install wine: then this test runs the library")
    expected, there = here_and_there(tmp_path, "windows", "x86_64-windows-gnu", "flashladder.dll")
    assert run(wine, there, WINEPREFIX=str(tmp_path / "wine"), WINEDEBUG="-all") == expected
