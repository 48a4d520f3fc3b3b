"""bin/ptxrun with a CUDA file: which nvcc compiles it, with what flags, and when it is compiled again."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support.emulation import PTXRUN, ROOT

RACE = """__global__ void reverse(int *data) {
    __shared__ int copy[64];
    copy[threadIdx.x] = data[threadIdx.x];
    data[threadIdx.x] = copy[63 - threadIdx.x];
}
"""
# Keeps how it is called, and writes what the environment names: the PTX, and the files that it says it has read.
MADE_UP = r"""#!/bin/sh
echo "$*" >>"$(dirname "$0")/calls"
while [ $# -gt 0 ]; do
    case $1 in
        -MF) rule=$2 ;;
        -o) made=$2 ;;
        -DFAIL) echo "$0: it broke" >&2; exit 3 ;;
        -DEDIT) [ -e edited ] || { sleep 0.05; echo "int late;" >>a.cu; touch edited; } ;;
    esac
    shift
done
printf 'x.o : %s %s\n' "$SOURCE" "$INCLUDED" >"$rule"
cp "$PTX" "$made"
"""
PTX = ".version 8.3\n.target sm_80\n.address_size 64\n.entry made()\n{\nret;\n}\n"

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """ptxrun with a cache of its own, in tmp_path."""

    def call(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
        own = {"XDG_CACHE_HOME": str(tmp_path / "cache"), **environment}
        clean = {key: value for key, value in os.environ.items() if key != "CUDA"}
        command = [str(PTXRUN), *map(str, arguments)]
        return subprocess.run(command, cwd=tmp_path, env={**clean, **own}, capture_output=True, text=True, timeout=600)

    return call


def test_from_a_cuda_file_to_its_race(run: Run, tmp_path: Path) -> None:
    (tmp_path / "reverse.cu").write_text(RACE)
    done = run("reverse.cu", "--block", 64, "--arg", "buf:i32:64:ramp")
    assert done.returncode == 1 and done.stderr.startswith(f"race at {tmp_path}/reverse.cu:3, "), done.stderr
    assert "2 findings: race (64 times), uninitialised-shared (32 times)" in done.stderr


@pytest.fixture
def made_up(tmp_path: Path, run: Run) -> Callable[..., list[str]]:
    """Runs ptxrun on a.cu with a made-up nvcc; the calls of nvcc that this caused."""
    toolkit = tmp_path / "toolkit/bin"
    toolkit.mkdir(parents=True)
    (toolkit / "nvcc").write_text(MADE_UP)
    (toolkit / "nvcc").chmod(0o755)
    for name, text in (("a.cu", "int a;\n"), ("with space.h", "int b;\n"), ("a.ptx", PTX)):
        (tmp_path / name).write_text(text)

    def call(*flags: str, status: int = 0) -> list[str]:
        (toolkit / "calls").write_text("")
        environment = {"SOURCE": "a.cu", "INCLUDED": r"with\ space.h", "PTX": "a.ptx"}
        done = run("a.cu", "--list", *(["--", *flags] if flags else []), CUDA=str(toolkit.parent), **environment)
        assert done.returncode == status, done.stderr
        if not status:
            assert done.stdout.startswith("made\n") and not done.stderr
        return (toolkit / "calls").read_text().splitlines()

    return call


def test_nvcc_is_called_once_for_each_state(made_up: Callable[..., list[str]], tmp_path: Path) -> None:
    def again(what: str) -> None:
        assert len(made_up()) == 1, what
        assert made_up() == [], what

    again("the first time")
    (tmp_path / "a.cu").write_text("int c;\n")
    again("another source")
    (tmp_path / "with space.h").write_text("int d;\n")
    again("another header")
    os.utime(tmp_path / "with space.h", (1, 1))
    assert made_up() == [], "only the time of the header"
    assert len(made_up("-DX=1")) == 1, "other flags"
    assert made_up("-DX=1") == [] and made_up() == [], "both stay"
    (tmp_path / "toolkit/bin/nvcc").write_text(MADE_UP + "# newer\n")
    again("another toolkit")
    for path in (tmp_path / "cache/flashladder").glob("*.ptx"):
        path.unlink()
    again("PTX that was removed")
    (tmp_path / "cache/flashladder").rename(tmp_path / "gone")
    again("an emptied cache")
    assert not [
        path for path in (tmp_path / "cache/flashladder").iterdir() if path.suffix not in (".ptx", ".deps", ".log")
    ]


def test_a_file_that_changes_under_nvcc_is_compiled_again(made_up: Callable[..., list[str]]) -> None:
    """It is unknown if nvcc has read the old file or the new one."""
    assert len(made_up("-DEDIT")) == 1
    assert len(made_up("-DEDIT")) == 1, "its PTX is not kept"
    assert made_up("-DEDIT") == []


def test_flags(made_up: Callable[..., list[str]]) -> None:
    (call,) = made_up()
    assert call.startswith("-ptx -lineinfo -arch=compute_80 a.cu -MD -MF ")
    (call,) = made_up("-arch=sm_90a", "-I", "some folder")
    assert call.startswith("-ptx -lineinfo -arch=sm_90a -I some folder a.cu -MD -MF ")
    assert "compute_80" not in made_up("--generate-code", "arch=compute_90,code=compute_90")[0]


def test_what_nvcc_says_is_shown(made_up: Callable[..., list[str]], run: Run, tmp_path: Path) -> None:
    assert made_up("-DFAIL", status=2)
    assert made_up("-DFAIL", status=2), "a failure is not kept"
    (tmp_path / "wrong.cu").write_text("__global__ void f() { y = 1; }\n")
    done = run("wrong.cu")
    assert done.returncode == 2 and 'wrong.cu(1): error: identifier "y" is undefined' in done.stderr
    assert done.stderr.splitlines()[-1].startswith("ptxrun: nvcc ended with status ")
    full = run("wrong.cu", TMPDIR="/proc")  # has no room
    assert full.stderr.endswith("; /proc is full: free space on it or set TMPDIR to another folder\n")


def test_no_nvcc(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.cu").write_text(RACE)
    done = run("a.cu", CUDA="/nothing/here")
    assert done.returncode == 2
    assert done.stderr == (
        "ptxrun: CUDA=/nothing/here holds no bin/nvcc: name the folder of a toolkit such as /usr/local/cuda, "
        "or leave CUDA= out\n"
    )
    lonely = tmp_path / "bin/ptxrun"
    lonely.parent.mkdir()
    lonely.write_bytes(PTXRUN.read_bytes())
    lonely.chmod(0o755)
    clean = {key: value for key, value in os.environ.items() if key != "CUDA"}
    found = subprocess.run([lonely, "a.cu"], cwd=tmp_path, env=clean, capture_output=True, text=True, timeout=600)
    assert found.returncode == 2
    where = f"{lonely.parent}/../.venv/toolkit"
    assert found.stderr.startswith(
        f"ptxrun: a.cu: there is no nvcc to compile it in {where}; `make setup` installs one"
    )


def test_other_files(run: Run) -> None:
    done = run("none.cu")
    assert done.returncode == 2 and "cannot read none.cu: No such file" in done.stderr
    assert (ROOT / ".venv/toolkit/bin/nvcc").exists()


# Code of CUDA's C++ libraries: groups of threads, barriers of libcu++, and a sum of CUB, each over 64 threads.
LIBRARIES = """#include <cooperative_groups.h>
#include <cub/block/block_reduce.cuh>
#include <cuda/barrier>

extern "C" __global__ void k(int *out) {
    __shared__ cuda::barrier<cuda::thread_scope_block> barrier;
    __shared__ typename cub::BlockReduce<int, 64>::TempStorage storage;
    __shared__ int copy[64];
    const auto block = cooperative_groups::this_thread_block();
    if (block.thread_rank() == 0) init(&barrier, 64);
    block.sync();
    copy[63 - threadIdx.x] = cooperative_groups::this_grid().thread_rank();
    barrier.arrive_and_wait();
    const int sum = cub::BlockReduce<int, 64>(storage).Sum(copy[threadIdx.x]);
    if (threadIdx.x == 0) out[0] = sum, out[1] = copy[0];
}
"""


def test_the_libraries_of_cuda_are_there(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.cu").write_text(LIBRARIES)
    done = run("a.cu", "--block", 64, "--arg", "out:i32:2", "--print", "0:2")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"{63 * 64 // 2} 63" in done.stdout
