"""The Makefile rebuilds exactly what depends on a change, names what is wrong, and leaves nothing half-made."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from analysis.machine_code.cubin import Cubin
from analysis.tests.support.copies import lend_objects
from analysis.tests.support.kinds import some_in_check

ROOT = Path(__file__).resolve().parents[2]
OF_MAKE = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "KERNELS", "CI", "OMP_NUM_THREADS")  # nproc takes notice of the last
CLEAN_ENV = {k: v for k, v in os.environ.items() if k not in OF_MAKE}


def run_make(tree: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["make", *arguments], cwd=tree, env=CLEAN_ENV, capture_output=True, text=True, timeout=600)


def make(tree: Path, *arguments: str) -> str:
    result = run_make(tree, *arguments)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def rebuilt(tree: Path, *arguments: str) -> set[str]:
    """The files whose time stamps `make v01` changes, by name, without stamps and dependency files."""
    times = {path: path.stat().st_mtime_ns for path in tree.rglob("*") if path.is_file()}
    make(tree, *arguments, "v01")
    after = {path: path.stat().st_mtime_ns for path in tree.rglob("*") if path.is_file()}
    changed = {path for path, t in after.items() if times.get(path) != t}
    return {
        path.name for path in changed if path.suffix in (".o", ".ptx", ".cubin", ".log") or path.parent.name == "bin"
    }


def edit(path: Path) -> None:
    """A change of the text that does not change the meaning."""
    time.sleep(0.02)
    path.write_text(path.read_text() + "\n// edited\n")


# In the place of v01's: what make builds again does not depend on it, and it compiles in a third of the time.
SHORT_BODY = """
#include "common/abi.h"
#include "common/config.h"
#include "common/ptx_sm80.cuh"

template <KernelConfig cfg>
__device__ constexpr void check_config() {
    static_assert(cfg.d_head == 128, "d_head must be 128");
}
template <KernelConfig cfg>
__global__ void flash_forward(const __grid_constant__ forward_args args) {
    check_config<cfg>();
    __syncwarp();  // nvcc gives what it inlines here a random name
    for (int i = threadIdx.x; i < args.seq; i += cfg.d_head) {
        ((float *)args.O)[i] = ((const float *)args.Q)[i];
    }
}
#include "instances.cuh"
"""


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources with v01 alone and a short body, built on our host objects, in a path with a space."""
    target = tmp_path_factory.mktemp("flash ladder")
    listing = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    for name in listing.stdout.splitlines():
        other_kernel = re.match(r"kernels/\w+/v", name) and "/v01_" not in name
        if (ROOT / name).is_file() and not other_kernel and not name.startswith(("notebooks", "logs", "sass", "docs")):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    (target / ".venv").symlink_to(ROOT / ".venv")
    kernel = target / "kernels/mma_sync/v01_base.cu"
    kernel.write_text(kernel.read_text().partition("*/\n")[0] + "*/\n" + SHORT_BODY)
    lend_objects(target)
    make(target, "-j2", "v01")
    return target


def complete(tree: Path) -> None:
    """All files of the chain. All targets are .SECONDARY: make v01 does without a cubin while code.o is newer."""
    make(tree, "-j2", "v01", "build/v01/v01.ptx", "build/v01/sm_80.cubin", "build/v01/sm_90.cubin")


CHAIN = {"v01.ptx", "sm_80.cubin", "sm_90.cubin", "v01.sm_80.log", "v01.sm_90.log", "code.o", "v01"}


def test_second_make_does_nothing(tree: Path) -> None:
    complete(tree)
    assert rebuilt(tree) == set()


def test_kernel_edit_rebuilds_its_own_chain(tree: Path) -> None:
    edit(next(tree.glob("kernels/mma_sync/v01_*.cu")))
    assert rebuilt(tree) == CHAIN


def test_device_header_edit_rebuilds_the_chain_but_no_host_object(tree: Path) -> None:
    edit(tree / "common/ptx_sm80.cuh")
    changed = rebuilt(tree)
    assert CHAIN <= changed
    assert "main.o" not in changed and "stats.o" not in changed


def test_the_instances_depend_on_every_module_that_writes_them(tree: Path) -> None:
    script = """
import sys, analysis.ladder.instances
print(*(module.__file__ for name, module in sys.modules.items() if name.split(".")[0] == "analysis"), sep="\\n")
"""
    python = [str(tree / ".venv/bin/python"), "-c", script]
    done = subprocess.run(python, cwd=tree, env=CLEAN_ENV, capture_output=True, text=True, check=True)
    needed = {str(Path(file).relative_to(tree)) for file in done.stdout.splitlines()}
    database = make(tree, "-pn", "v01")
    (rule,) = (line for line in database.splitlines() if line.startswith("build/v01/instances.stamp:"))
    assert {word for word in rule.split() if word.startswith("analysis/")} == needed


def test_all_cores_unless_told_otherwise(tree: Path) -> None:
    def jobs(*arguments: str) -> list[str]:
        lines = make(tree, "-pn", *arguments, "help").splitlines()
        (flags,) = (line for line in lines if line.startswith("MAKEFLAGS = "))
        return [word for word in flags.split() if word.startswith("-j")]

    assert jobs() == [f"-j{len(os.sched_getaffinity(0))}"]
    assert jobs("-j1") == ["-j1"]


def test_host_header_edit_rebuilds_only_its_users(tree: Path) -> None:
    edit(tree / "harness/stats.h")
    changed = rebuilt(tree)
    users = {p.stem + ".o" for p in tree.glob("harness/*.c") if '"harness/stats.h"' in p.read_text()}
    assert {"stats.o", "v01"} <= changed and users <= changed
    assert not any(name.endswith((".ptx", ".cubin")) for name in changed)
    assert "options.o" not in changed


def test_host_flags_rebuild_host_objects_only(tree: Path, tmp_path: Path) -> None:
    """With a compiler that writes empty objects: which of them it is asked for is all that matters here."""
    compiler = tmp_path / "cc"
    empty = 'case "$word" in lib/*) cp lib/libflconfig.so "$word" ;; *) : >"$word" ;; esac'  # Python loads that one
    compiler.write_text(f'#!/bin/sh\nfor word; do case "$before" in -o | -MF) {empty} ;; esac; before=$word; done\n')
    compiler.chmod(0o755)
    for name in ("build", "bin"):
        shutil.copytree(tree / name, tmp_path / name)
    make(tree, "-j2", f"CC={compiler}", "v01")
    changed = rebuilt(tree, "-j2", f"CC={compiler}", "CFLAGS=-O0")
    for name in ("build", "bin"):
        shutil.rmtree(tree / name)
        (tmp_path / name).rename(tree / name)
    assert {"main.o", "stats.o", "v01"} <= changed
    assert not any(name.endswith((".ptx", ".cubin")) for name in changed)


@pytest.mark.long
def test_device_flags_rebuild_device_code_only(tree: Path) -> None:
    changed = rebuilt(tree, "NVCCFLAGS=-DNOTHING")
    assert CHAIN <= changed and "main.o" not in changed and "stats.o" not in changed
    make(tree, "v01")


def test_archs_embed_what_is_asked_for(tree: Path) -> None:
    complete(tree)
    changed = rebuilt(tree, "ARCHS=80")
    assert "code.o" in changed and "v01" in changed
    assert "v01.ptx" not in changed and "sm_80.cubin" not in changed
    listing = subprocess.run([tree / "bin/v01", "--info"], capture_output=True, text=True, check=True).stdout
    assert "sm_80" in listing and "sm_90" not in listing
    make(tree, "v01")


def test_a_set_has_its_own_folder(tree: Path) -> None:
    wanted = "(BF16, 128, 128, 32, 4): async+load_0_0_0_tiles"
    default_ptx = (tree / "build/v01/v01.ptx").read_text()
    make(tree, "-j2", "v01", f"KERNELS={wanted}")
    listing = subprocess.run([tree / "bin/v01", "--list"], capture_output=True, text=True, check=True).stdout
    assert wanted in listing
    assert (tree / "build/v01/v01.ptx").read_text() == default_ptx
    make(tree, "v01")
    listing = subprocess.run([tree / "bin/v01", "--list"], capture_output=True, text=True, check=True).stdout
    assert wanted not in listing


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["v99"], ["no version 'v99'", "v01"]),
        (["sass-diff"], ["sass-diff needs A=", "v01"]),
        (["sass-diff", "A=v01", "B=v77"], ["no version 'v77'", "v01"]),
        (["v01", "KERNELS=(FP16, 128, 64, 64, 4): async+load_0_0_0_tiles+warp_speed"], ["warp_speed"]),
        (["v01", "KERNELS=(FP16, 128, 64"], ["(FP16, 128, 64"]),
        (["v01", "CUDA=/nowhere"], ["CUDA=/nowhere holds no bin/nvcc", "/usr/local/cuda"]),
        (["v01", "ARCHS=80 sm_90"], ["ARCHS: 'sm_90' is no architecture", 'ARCHS="80 90"']),
        (["v01", "ARCHS="], ["ARCHS", "expected"]),
        (["v01", "ARCHS=75"], ["ARCHS: '75' is no architecture", "from 80 on"]),
        (["compare", "A=v77", "B=v01"], ["no version 'v77'", "v01"]),
        (["sass-diff", "A=v01 v01", "B=v01"], ["A= is one version, not 'v01 v01'"]),
        (["debug", "VER=v01 v01"], ["VER= is one version, not 'v01 v01'"]),
        pytest.param(["autotune", "VER=v01", "SEQS=a b"], ["--seqs 'a b': expected"], marks=pytest.mark.long),
        (["logs", "VER=v01", 'NAME=a"b'], ['--name a"b: letters, digits']),
        (["check-tools"], ["check-tools needs FILES="]),
        (["v01", "DEBUG=0"], ["DEBUG=0: expected DEBUG=1, or no DEBUG="]),
        (["counts", "DUMP=1", "VER=v01"], ["counts takes no DUMP=", "not bin/dump/"]),
        (["configs"], ["configs needs VER=", "v01"]),
        (["race", "CONFIG=bogus"], ["race takes no CONFIG=", "sass-diff", "KERNELS="]),
        (["all", "VER=v01"], ["all takes no VER="]),
        (["chek"], ["no goal 'chek'; the nearest is check;"]),
        (["zzzzz"], ["no goal 'zzzzz'; the nearest is none;"]),
        (["regs", "VERS=v01"], ["no goal takes VERS="]),
        (["SEQS=512"], ["help takes no SEQS=", "what takes it: bench"]),
        (["peer-fa3"], ["peer-fa3 needs FA3=", "make peer-fa3 FA3=../flash-attention"]),
        (["peer-fa3", "FA3=/nowhere"], ["FA3=/nowhere holds no hopper/", "checkout of flash-attention"]),
    ],
)
def test_wrong_words_are_named(tree: Path, arguments: list[str], words: list[str]) -> None:
    result = run_make(tree, *arguments)
    assert result.returncode == 2
    for word in words:
        assert word in result.stdout + result.stderr
    if "v01" in arguments:  # what began to be built can be built
        make(tree, "v01")


def with_gpus(folder: Path, count: int) -> dict[str, str]:
    """An environment with an NVIDIA driver that has so many GPUs."""
    source = folder / "driver.c"
    source.write_text(
        f"int cuInit(int f) {{ return 0; }}\nint cuDeviceGetCount(int *n) {{ *n = {count}; return 0; }}\n"
    )
    subprocess.run(["cc", "-shared", "-o", folder / "libcuda.so.1", source], check=True)
    return CLEAN_ENV | {"LD_LIBRARY_PATH": str(folder)}


@pytest.mark.parametrize(
    ("arguments", "gpus", "status"),
    [
        (["gpu-check"], 0, 2),
        (["all", "bench"], 0, 2),
        (["peers"], 0, 2),
        (["peak"], 0, 2),
        (["pipes"], 0, 2),
        (["profile", "ARGS=--transpose"], 0, 2),
        (["profile", "ARGS=--most=2 saved.csv"], 0, 1),
        (["bench", "LAUNCH=srun"], 0, 1),
        (["gpu-check"], 1, 1),
        (["all"], 0, 1),
    ],
)
def test_what_needs_a_gpu_says_so_before_it_builds(
    tree: Path, tmp_path: Path, arguments: list[str], gpus: int, status: int
) -> None:
    """With -q make only says by 1 that there is something to do."""
    result = subprocess.run(
        ["make", "-q", *arguments], cwd=tree, env=with_gpus(tmp_path, gpus), capture_output=True, text=True, timeout=600
    )
    assert result.returncode == status, result.stderr
    assert (" needs a GPU, and there is none: there is an NVIDIA driver, but no GPU" in result.stderr) == (status == 2)


def test_peer_fa3_says_what_a_checkout_lacks_and_compiles_what_is_listed(tree: Path, tmp_path: Path) -> None:
    """Nothing is compiled here: FlashAttention-3 takes minutes."""
    (tmp_path / "hopper").mkdir()
    (tmp_path / "hopper/flash_fwd_launch_template.h").touch()
    (tmp_path / "hopper/__init__.py").write_text('__version__ = "3.7.1"\n')
    goal = ["peer-fa3", "-n", f"FA3={tmp_path}"]
    without = run_make(tree, *goal)
    assert without.returncode == 2 and f"CUTLASS={tmp_path}/csrc/cutlass holds no include/cutlass" in without.stderr
    assert "git submodule" in without.stderr
    header = tmp_path / "csrc/cutlass/include/cutlass/cutlass.h"
    header.parent.mkdir(parents=True)
    header.touch()
    numbers = {"MAJOR": 4, "MINOR": 9, "PATCH": 2, "BUILD": 0}
    (header.parent / "version.h").write_text("".join(f"#define CUTLASS_{n} {v}\n" for n, v in numbers.items()))
    for word in ("fp8_d128_full_x2", "fp16_d100_full_x2", "fp16_d128_full_x3", "fp16_d128"):
        wrong = run_make(tree, *goal, f"FA3_KERNELS={word}")
        assert wrong.returncode == 2 and f"'{word}' is no kernel" in wrong.stderr
    said = make(tree, *goal, "FA3_KERNELS=bf16_d128_full_x2 fp16_d64_causal_x1")
    assert 'FA3_LIBRARY "FlashAttention-3 3.7.1, CUTLASS 4.9.2"' in said
    assert (
        "KERNEL(fa3_bf16_d128_full_x2, BF16, 128, false, 2) KERNEL(fa3_fp16_d64_causal_x1, FP16, 64, true, 1)" in said
    )
    flags = "-DFA3_NAME=fa3_fp16_d64_causal_x1 -DFA3_D_HEAD=64 -DFA3_ELEMENT=cutlass::half_t -DFA3_CAUSAL=true"
    assert " ".join(said.replace("\\\n", " ").split()).count(flags) == 1
    assert said.count("fa3_kernel.cu") == 2
    every = re.findall(r"KERNEL\(fa3_(\w+), ", make(tree, *goal))
    sizes = ["d128_full_x2", "d128_full_x1", "d128_causal_x1", "d64_full_x1", "d64_causal_x1"]
    sizes += ["d256_full_x2", "d256_full_x1", "d256_causal_x1"]
    assert every == [f"{dtype}_{size}" for size in sizes for dtype in ("fp16", "bf16")]
    goal[0] = "peer-fa3-backward"
    wrong = run_make(tree, *goal, "FA3_BACKWARD_KERNELS=bf16_d96_full_any")
    assert wrong.returncode == 2 and "'bf16_d96_full_any' is no kernel" in wrong.stderr
    said = make(tree, *goal, "FA3_BACKWARD_KERNELS=fp16_d64_causal_ordered")
    assert "KERNEL(fa3_fp16_d64_causal_ordered, FP16, 64, true, true)" in said
    assert said.count("fa3_backward_kernel.cu") == 1 and "-DFA3_IN_ORDER=true" in said


@pytest.mark.long
def test_a_build_for_a_debugger_has_the_same_machine_code(tree: Path) -> None:
    make(tree, "DEBUG=1", "v01")
    codes = [
        [kernel.code for kernel in Cubin.read(tree / folder / "v01/sm_80.cubin").kernels]
        for folder in ("build", "build/debug")
    ]
    assert codes[0] == codes[1] and codes[0]


def test_a_suffix_of_an_architecture_is_taken(tree: Path) -> None:
    make(tree, "ARCHS=90a", "v01")
    assert (tree / "build/v01/sm_90a.cubin").exists()
    make(tree, "v01")


@pytest.mark.long
def test_a_version_for_sm_90a_alone_has_that_cubin(tree: Path) -> None:
    source = (tree / "kernels/mma_sync/v01_base.cu").read_text()
    for old, new in (
        ("/* v01", "/* v90"),
        ("parent    none", "parent    v01"),
        ("arch      sm_80", "arch      sm_90a"),
    ):
        assert old in source
        source = source.replace(old, new)
    kernel = tree / "kernels/wgmma/v90_exact.cu"
    kernel.parent.mkdir(exist_ok=True)
    kernel.write_text(source)
    try:
        refused = run_make(tree, "v90", "ARCHS=80")
        assert refused.returncode == 2
        assert 'v90 is for sm_90a alone, as all that uses wgmma: ARCHS="80" must have 90 in it' in refused.stderr
        said = make(tree, "-n", "all", "ARCHS=80")
        assert "build/v01" in said and "build/v90" not in said
        assert 'left out with ARCHS="80", as they are for sm_90a alone: v90' in said
        for archs in ([], ["ARCHS=90a 80"]):
            make(tree, "-j2", "v90", *archs)
            info = subprocess.run([tree / "bin/v90", "--info"], capture_output=True, text=True, check=True).stdout
            assert set(re.findall(r"sm_\w+", info)) == {"sm_90a"}
        assert ".target sm_90a" in (tree / "build/v90/v90.ptx").read_text()
        make(tree, "regs", "VER=v90")
        assert (tree / "logs/ptxas/v90.sm_90a.log").exists() and not (tree / "build/v90/sm_90.cubin").exists()
        assert "v90,sm_90a," in (tree / "regs/registers.csv").read_text()
    finally:
        kernel.unlink()
        (tree / "bin/v90").unlink(missing_ok=True)
    make(tree, "v01")


EARLY = """/* v90 - reads an accumulator early
 *
 * parent    v01
 * idea      none
 * config    (FP16, 128, 64, 64, 4): async+load_0_0_0_tiles
 * arch      sm_90a
 */
#include "common/abi.h"
#include "common/config.h"
template <KernelConfig cfg>
__device__ constexpr void check_config() {
    static_assert(cfg.d_head == 128, "d_head must be 128");
}
template <KernelConfig cfg>
__global__ void flash_forward(const __grid_constant__ forward_args args) {
    check_config<cfg>();
    float d[4] = {};
    for (int i = 0; i < args.heads; i++) {
        asm volatile("wgmma.fence.sync.aligned;\\n"
                     "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %4, 1, 1, 1, 0, 0;\\n"
                     "wgmma.commit_group.sync.aligned;"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "l"(args.seq_stride));
        d[0] += 1;
        asm volatile("wgmma.wait_group.sync.aligned 0;");
    }
    ((float *)args.O)[threadIdx.x] = d[0] + d[1] + d[2] + d[3];
}
#include "instances.cuh"
"""


def test_a_version_whose_wgmma_is_serialised_is_not_built(tree: Path) -> None:
    kernel = tree / "kernels/wgmma/v90_early.cu"
    kernel.parent.mkdir(exist_ok=True)
    kernel.write_text(EARLY)
    shutil.rmtree(tree / "build/v90", ignore_errors=True)
    try:
        for _ in range(2):  # nothing is left of the first time that would look finished
            done = run_make(tree, "v90")
            assert done.returncode == 2
            assert "ptxas waits where the source does not, and what should overlap does not" in done.stderr
            assert "each wgmma waits for the one before it, which can halve the speed; look at this: " in done.stderr
            assert "logs/ptxas/v90.sm_90a.log:1: C75" in done.stderr
            assert not (tree / "bin/v90").exists() and not (tree / "build/v90/sm_90a.cubin").exists()
    finally:
        kernel.unlink()
    make(tree, "v01")


@pytest.mark.long
def test_a_renamed_kernel_file_is_built_again(tree: Path) -> None:
    """A renamed file keeps its time, which is older than what was built from the file of the old name."""
    old, new = tree / "kernels/mma_sync/v01_base.cu", tree / "kernels/mma_sync/v01_plain.cu"
    old.rename(new)
    try:
        assert CHAIN <= rebuilt(tree)
        assert ".loc" in (tree / "build/v01/v01.ptx").read_text()
        assert "v01_plain.cu" in (tree / "build/v01/v01.ptx").read_text()
        edit(new)
        assert CHAIN <= rebuilt(tree)
    finally:
        new.rename(old)
    assert CHAIN <= rebuilt(tree)


def test_two_files_of_one_number_are_refused_by_name(tree: Path) -> None:
    second = tree / "kernels/mma_sync/v01_second.cu"
    shutil.copy2(tree / "kernels/mma_sync/v01_base.cu", second)
    try:
        result = run_make(tree, "v01")
    finally:
        second.unlink()
    assert result.returncode == 2
    (line,) = result.stderr.splitlines()
    assert "two files are v01: kernels/mma_sync/v01_base.cu kernels/mma_sync/v01_second.cu" in line


@pytest.mark.parametrize("name", ["v02_a:b.cu", "v02_a b.cu"])
def test_a_name_that_make_cannot_hold_is_refused(tree: Path, name: str) -> None:
    (tree / "kernels/mma_sync" / name).touch()
    try:
        result = run_make(tree, "v01")
    finally:
        (tree / "kernels/mma_sync" / name).unlink()
    assert (
        result.returncode == 2 and "a kernel file is vNN_name.cu in kernels/mma_sync or kernels/wgmma" in result.stderr
    )


def test_a_parent_that_is_no_version_is_refused(tree: Path) -> None:
    child = tree / "kernels/mma_sync/v02_child.cu"
    text = (tree / "kernels/mma_sync/v01_base.cu").read_text()
    child.write_text(text.replace("/* v01", "/* v02", 1).replace("parent    none", "parent    v88", 1))
    try:
        result = run_make(tree, "v02")
    finally:
        child.unlink()
    assert result.returncode == 2
    assert "kernels/mma_sync/v02_child.cu: its parent v88 is not a version; there are: v01 v02" in result.stderr


def test_goals_that_call_make_share_their_jobs(tree: Path) -> None:
    """Or the inner make warns. That the short body's loop is guessed has nothing to do with it."""
    result = run_make(tree, "-j2", "sass-diff", "A=v01", "B=v01")
    others = [line for line in result.stderr.splitlines() if not line.startswith("note: v01: loop at ")]
    assert (result.returncode, others) == (0, [])


def running(session: int) -> list[str]:
    """The names of the processes of a session."""
    names = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            name, _, rest = path.read_text().partition("(")[2].rpartition(")")
            if rest.split()[3] == str(session):
                names.append(name)
    return names


def test_an_interrupted_build_leaves_nothing_half_made(tree: Path) -> None:
    """A build that ends before its compiler was seen to run is begun again."""
    for _ in range(20):
        edit(tree / "common/ptx_sm80.cuh")
        build = subprocess.Popen(
            ["make", "v01"], cwd=tree, env=CLEAN_ENV, stdout=subprocess.PIPE, start_new_session=True
        )
        while build.poll() is None and not {"cicc", "ptxas"} & set(running(build.pid)):
            time.sleep(0.01)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(build.pid, signal.SIGINT)
        if build.wait(timeout=600) != 0:
            break
    assert build.returncode != 0
    make(tree, "v01")
    assert rebuilt(tree) == set()
    result = subprocess.run([tree / "bin/v01", "--list"], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_check_of_a_version_builds_and_chooses_what_it_touches(tree: Path) -> None:
    whole, own = make(tree, "-n", "check"), make(tree, "-n", "check", "VER=v01")
    assert "build/tests/test_stats.tap" in whole and "mypy" in whole and "whole_ladder" not in whole
    assert ".tap" not in own and "mypy" not in own and '-k "whole_ladder or v01"' in own
    assert "clang-format --dry-run -Werror kernels/mma_sync/v01_base.cu\n" in own


@pytest.fixture
def hanging(tree: Path) -> Path:
    """A C test program, as far as make knows, that tells that it runs and then hangs."""
    program = tree / "build/tests/hanging"
    program.parent.mkdir(exist_ok=True)
    program.write_text('#!/bin/sh\necho "ok 1 - begins"\n: >"$0.runs"\nexec sleep infinity\n')
    program.chmod(0o755)
    for left in program.parent.glob("hanging.*"):
        left.unlink()
    return program


def test_a_test_program_that_hangs_is_stopped_and_said_to_hang(tree: Path, hanging: Path, tmp_path: Path) -> None:
    """Here timeout gives it a second in place of those of make/tests.mk."""
    real, impatient = shutil.which("timeout"), tmp_path / "timeout"
    impatient.write_text(f'#!/bin/bash\necho "$@" >{tmp_path}/arguments\nexec {real} 1 "${{@: -1}}"\n')
    impatient.chmod(0o755)
    environment = {**CLEAN_ENV, "PATH": f"{tmp_path}:{CLEAN_ENV['PATH']}"}
    subprocess.run(["make", "build/tests/hanging.tap"], cwd=tree, env=environment, check=True, timeout=600)
    seconds = (tmp_path / "arguments").read_text().split()[-2]
    said = hanging.with_suffix(".tap").read_text()
    assert said.endswith(f"# stopped after {seconds} s: it hangs\n# exit 124\n") and int(seconds) >= 600


def test_an_interrupted_test_program_leaves_no_tap(tree: Path, hanging: Path) -> None:
    """Half of its lines would be up to date from then on."""
    command = ["make", "build/tests/hanging.tap"]
    run = subprocess.Popen(command, cwd=tree, env=CLEAN_ENV, stdout=subprocess.PIPE, start_new_session=True)
    while not Path(f"{hanging}.runs").exists():
        assert run.poll() is None
    os.killpg(run.pid, signal.SIGKILL)
    assert run.wait(timeout=600) != 0
    assert not hanging.with_suffix(".tap").exists()


@pytest.fixture
def broken_kernel(tree: Path) -> Iterator[Path]:
    kernel = next(tree.glob("kernels/mma_sync/v01_*.cu"))
    text = kernel.read_text()
    yield kernel
    kernel.write_text(text)
    make(tree, "v01")


def test_a_failing_compiler_prints_its_log(tree: Path, broken_kernel: Path) -> None:
    ptx = tree / "build/v01/v01.ptx"
    before = ptx.read_text()
    broken_kernel.write_text(broken_kernel.read_text().replace("__global__", "__global__ surprise"))
    result = run_make(tree, "v01")
    assert result.returncode == 2 and "surprise" in result.stdout + result.stderr
    assert not ptx.exists() or ptx.read_text() == before  # nothing half-written


def test_a_log_that_the_disk_does_not_hold_fails_the_build(tree: Path, tmp_path: Path) -> None:
    """ptxas takes no notice of a full disk. Here cat, which writes the log, meets one."""
    log, text = tree / "logs/ptxas/v01.sm_80.log", (tree / "logs/ptxas/v01.sm_80.log").read_text()
    full = tmp_path / "cat"
    full.write_text('#!/bin/sh\n[ $# -gt 0 ] || exec >/dev/full\nexec /bin/cat "$@"\n')
    full.chmod(0o755)
    edit(next(tree.glob("kernels/mma_sync/v01_*.cu")))
    environment = {**CLEAN_ENV, "PATH": f"{tmp_path}:{CLEAN_ENV['PATH']}"}
    failed = subprocess.run(["make", "v01"], cwd=tree, env=environment, capture_output=True, text=True, timeout=600)
    assert failed.returncode == 2 and "No space left on device" in failed.stderr
    assert not log.exists() or log.read_text() == text, "or the next make would take half of it for a whole one"
    make(tree, "v01")
    assert "Used" in log.read_text() and len(log.read_text().splitlines()) == len(text.splitlines())


def test_two_makes_in_one_folder_build_the_same_things(tree: Path, tmp_path: Path) -> None:
    """Each writes to names of its own. The compilers of an object wait for each other: who opens a pipe to read waits
    for who opens it to write."""
    compiler, seen, pipe = tmp_path / "cc", tmp_path / "seen", tmp_path / "pipe"
    seen.mkdir()
    os.mkfifo(pipe)
    compiler.write_text(f"""#!/bin/sh
for word; do [ "$before" = -o ] && out=$word; before=$word; last=$word; done
case " $* " in *" -c "*stats.c*) ;; *) exec {shutil.which("cc")} "$@" ;; esac
echo "$out" >"{seen}/$$"
if mkdir "{tmp_path}/first" 2>/dev/null; then : <"{pipe}"; else : >"{pipe}"; fi
exec {shutil.which("cc")} "$@"
""")
    compiler.chmod(0o755)
    edit(tree / "harness/stats.c")
    edit(next(tree.glob("kernels/mma_sync/v01_*.cu")))
    command = ["make", "-j2", "build/harness/stats.o", "build/v01/sm_80.cubin", "build/revision.h"]
    environment = {**CLEAN_ENV, "PATH": f"{tmp_path}:{CLEAN_ENV['PATH']}"}
    makes = [
        subprocess.Popen(
            command, cwd=tree, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for _ in range(2)
    ]
    said = [each.communicate(timeout=300)[0] for each in makes]
    assert [each.returncode for each in makes] == [0, 0], said
    written = {file.read_text().strip() for file in seen.iterdir()}
    assert len(written) == 2 and "build/harness/stats.o" not in written
    assert not [path for path in tree.rglob("*") if re.search(r"\.(o|ptx|cubin|h|log|d)\.\d+", path.name)], (
        "parts are left"
    )
    make(tree, "v01")
    assert rebuilt(tree) == set()


@pytest.mark.long
def test_the_same_sources_give_the_same_bytes_in_every_folder(tree: Path) -> None:
    other = tree.parent / "a longer name of a folder"
    shutil.copytree(tree, other, symlinks=True)
    files = ["build/v01/v01.ptx", "build/v01/sm_80.cubin", "bin/v01", "lib/libflashladder.so"]
    for folder in (tree, other):
        for made in ("build/v01", "build/device", "build/runtime", "build/library", "bin", "lib"):
            shutil.rmtree(folder / made, ignore_errors=True)
        make(folder, "-j2", "v01")
        make(folder, "-j2", "lib", "VER=v01")
    try:
        for file in files:
            built = (tree / file).read_bytes()
            assert built == (other / file).read_bytes(), file
            assert str(tree.parent).encode() not in built, file
        names = re.findall(r'^\t\.file\t\d+ "(.*)"', (tree / "build/v01/v01.ptx").read_text(), re.MULTILINE)
        assert names[0] == "kernels/mma_sync/v01_base.cu" and not any(name.startswith("/") for name in names)
    finally:
        shutil.rmtree(other)


@pytest.mark.parametrize(
    ("file", "user"),
    [
        pytest.param("build/harness/stats.o", "bin/v01", marks=pytest.mark.long),
        ("build/v01/sm_80.cubin", "build/v01/code.o"),
        pytest.param("build/v01/v01.ptx", "build/v01/code.o", marks=pytest.mark.long),
        pytest.param("build/v01/v01.ptx", "build/v01/sm_90.cubin", marks=pytest.mark.long),
    ],
)
def test_a_file_that_is_cut_short_is_named(tree: Path, file: str, user: str) -> None:
    """By what reads it. To make it looks up to date."""
    complete(tree)
    path = tree / file
    whole, times = path.read_bytes(), path.stat()
    path.write_bytes(whole[: len(whole) // 2])
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    for outdated in {user, "build/v01/code.o", "bin/v01"}:
        (tree / outdated).unlink()
    try:
        failed = run_make(tree, "v01")
        assert failed.returncode == 2
        assert f"make: {file} is cut short: delete it and run make again" in failed.stderr
    finally:
        path.unlink()
        complete(tree)


def test_clean_ends_before_the_goals_beside_it_begin(tree: Path, tmp_path: Path) -> None:
    slow = tmp_path / "bin/rm"
    slow.parent.mkdir()
    slow.write_text('#!/bin/sh\nsleep 0.3\nexec /bin/rm "$@"\n')
    slow.chmod(0o755)
    for name in ("Makefile", "make", "kernels", "harness", "emulator", ".venv"):
        (tmp_path / name).symlink_to(tree / name)
    environment = {**CLEAN_ENV, "PATH": f"{slow.parent}:{CLEAN_ENV['PATH']}"}
    (tmp_path / "build").mkdir()
    done = subprocess.run(["make", "clean", "build/emu.map"], cwd=tmp_path, env=environment, capture_output=True)
    assert done.returncode == 0 and (tmp_path / "build/emu.map").exists()


@pytest.mark.parametrize("sign", some_in_check(['"', "'", "$"], ["$"]))
def test_a_sign_in_the_path_that_cannot_be_quoted_is_refused(tree: Path, sign: str) -> None:
    """Before nvcc or the shell reads it."""
    folder = tree.parent / f"a {sign}name"
    folder.mkdir()
    for name in ("Makefile", "make", "kernels"):
        (folder / name).symlink_to(tree / name)
    done = run_make(folder, "help")
    assert done.returncode == 2 and f"a {sign}name has a {sign} in its path" in done.stderr


ATTENTION = tuple((ROOT / "kernels/attention").glob("*.cu"))


def test_help_lists_every_goal(tree: Path) -> None:
    database = make(tree, "-pn", "help")
    (goals,) = re.findall(r"^\.PHONY: (.*)$", database, re.MULTILINE)
    not_for_users = {"FORCE", "cubins", "v01"} | {f"attention.{path.stem}" for path in ATTENTION}
    not_for_users |= {path.name[:3] for path in (ROOT / "kernels").glob("*/[bf][0-9][0-9]_*.cu")}
    assert {"check", "sass-diff", "regs", "gpu-check"} < set(goals.split())
    short, whole = (
        {goal for line in make(tree, name).splitlines() for goal in line[2:25].split()} for name in ("help", "help-all")
    )
    assert set(goals.split()) - not_for_users <= whole
    assert {"check", "sass-diff", "bench"} < short < whole and "fuzz" in whole - short


def test_what_a_goal_takes_is_what_its_line_names(tree: Path) -> None:
    awk = ["awk", "-v", "show=variables", "-f", "make/help.awk", "make/measure.mk"]
    found = subprocess.run(awk, cwd=tree, capture_output=True, text=True, check=True).stdout.split()
    taken = {name for goal, name in (pair.split(":") for pair in found) if goal == "debug"}
    assert taken == {"VER", "CONFIG", "SEQ", "DTYPE", "DIST", "ARGS"}
    given = [f"{name}={value}" for name, value in {"VER": "v01", "SEQ": "64", "ARGS": "--csv"}.items()]
    assert "--seq '64'" in (plan := make(tree, "-n", "debug", *given)) and "--csv" in plan


def test_lines_of_makefiles_and_c_fit_a_window() -> None:
    """Also those that clang-format leaves alone."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )
    files = [name for name in listed if re.fullmatch(r"Makefile|.*\.(mk|awk|c|h|cu|cuh|S)", name)]
    assert {"Makefile", "make/version.mk", "common/config_fields.h", "kernels/mma_sync/v01_base.cu"} < set(files)
    lines = [(f"{name}:{n}", line) for name in files for n, line in enumerate((ROOT / name).read_text().split("\n"), 1)]
    assert [place for place, line in lines if len(line.replace("\t", " " * 8)) > 120] == []


def test_instances_are_remade_where_a_part_of_their_generator_changes() -> None:
    """The generator is what it imports, and the library that it asks."""
    script = "import analysis.ladder.instances, sys; print(*(sys.modules[n].__file__ for n in sys.modules if {}))"
    script = script.format("n.split('.')[0] == 'analysis'")
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    imported = {str(Path(name).relative_to(ROOT)) for name in done.stdout.split()}
    database = subprocess.run(["make", "-npq", "v01"], cwd=ROOT, env=CLEAN_ENV, capture_output=True, text=True).stdout
    (rule,) = re.findall(r"^build/v01/instances\.stamp: kernels/mma_sync/v01_base\.cu (.*)$", database, re.MULTILINE)
    assert set(rule.split()) == imported | {"lib/libflconfig.so", "common/removed_versions.h", "build/v01/source"}
