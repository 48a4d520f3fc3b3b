"""The Makefile rebuilds exactly what depends on a change, names what is wrong, and leaves nothing half-made."""

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


# Instead of v01's: what make builds again does not depend on it, and it compiles in a third of the time.
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
    make(tree, "ARCHS=90a", "v01")
    assert (tree / "build/v01/sm_90a.cubin").exists()
    make(tree, "v01")


def test_only_a_wheel_has_code_for_gpus_that_archs_does_not_name(tree: Path) -> None:
    assert "library/sm_120.cubin" not in make(tree, "-n", "lib", "VER=v01")
    for goal in (("lib", "GPUS=all"), ("wheel",)):
        assert "library/sm_120.cubin" in make(tree, "-n", *goal, "VER=v01")


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


PEERS = ("-f", "harness/peers/peers.mk", "peer-fa3")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["v99"], ["v99: no such version", "ersions are v01 to v01, b01 to b"]),
        (["v1"], ["v1: no such version; did you mean v01?"]),
        (["exercise"], ["exercise needs N=; N is 1 to "]),
        (["exercise", "N=99"], ["N=99: no such exercise; N is 1 to "]),
        (["V01"], ["V01: no such version; did you mean v01?"]),
        (["sass-diff"], ["sass-diff needs A=, the version before the step, such as A=v10"]),
        (["sass-diff", "A=v01"], ["sass-diff needs B=, the version after the step"]),
        (["sass-diff", "A=v01", "B=v1"], ["v1: no such version; did you mean v01?"]),
        (["map"], ["map: is no longer a goal; type `./fl map v07`"]),
        (["why", "A=v01", "B=v01"], ["why: is no longer a goal; type `./fl why v10 v11`"]),
        (["v01", "KERNELS=(FP16, 128, 64, 64, 4): async+load_0_0_0_tiles+warp_speed"], ["warp_speed"]),
        (["v01", "CUDA=/nowhere"], ["CUDA=/nowhere: contains no bin/nvcc", "/usr/local/cuda"]),
        (["v01", "ARCHS=80 sm_90"], ["ARCHS: 'sm_90': must be a number", 'ARCHS="80 90"']),
        (["lib", "GPUS=some"], ["GPUS=some: must be all"]),
        (["v01", "ARCHS=75"], ["ARCHS: '75': must be a number", "from 80 on"]),
        (["sass-diff", "A=v01 v01", "B=v01"], ["A='v01 v01': must be a single version"]),
        (["v01", "DEBUG=0"], ["DEBUG=0: must be 1; remove DEBUG="]),
        (["diff", "CONFIG=bogus"], ["CONFIG=: diff does not accept it", "sass-diff", "KERNELS="]),
        (["race", "VER=v01"], ["race: is no longer a goal; type `./fl race --versions v07`"]),
        (["judge", "PROBLEM=softmax"], ["judge needs PROBLEM= and SUBMISSION=, such as PROBLEM=softmax SUBMISSION="]),
        (["chek"], ["chek: no such goal; did you mean check?"]),
        (["regs", "VERS=v01"], ["VERS=: no goal accepts it"]),
        ([*PEERS, "FA3=/nowhere"], ["FA3=/nowhere holds no hopper/", "checkout of flash-attention"]),
    ],
)
def test_wrong_words_are_named(tree: Path, arguments: list[str], words: list[str]) -> None:
    result = run_make(tree, *arguments)
    assert result.returncode == 2
    assert "  NVCC" not in result.stdout or "warp_speed" in words
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
    assert (": needs a GPU, but there is an NVIDIA driver, but no GPU" in result.stderr) == (status == 2)


def test_peer_fa3_compiles_what_is_listed(tree: Path, tmp_path: Path) -> None:
    """Nothing is compiled here: FlashAttention-3 takes minutes."""
    (tmp_path / "hopper").mkdir()
    (tmp_path / "hopper/flash_fwd_launch_template.h").touch()
    (tmp_path / "hopper/__init__.py").write_text('__version__ = "3.7.1"\n')
    header = tmp_path / "csrc/cutlass/include/cutlass/cutlass.h"
    header.parent.mkdir(parents=True)
    header.touch()
    numbers = {"MAJOR": 4, "MINOR": 9, "PATCH": 2, "BUILD": 0}
    (header.parent / "version.h").write_text("".join(f"#define CUTLASS_{n} {v}\n" for n, v in numbers.items()))
    goal = [*PEERS, "-n", f"FA3={tmp_path}"]
    wrong = run_make(tree, *goal, "FA3_KERNELS=fp16_d100_full_x2")
    assert wrong.returncode == 2 and "'fp16_d100_full_x2' is no kernel" in wrong.stderr
    said = make(tree, *goal, "FA3_KERNELS=bf16_d128_full_x2 fp16_d64_causal_x1")
    assert 'FA3_LIBRARY "FlashAttention-3 3.7.1, CUTLASS 4.9.2"' in said and said.count("fa3_kernel.cu") == 2
    assert "KERNEL(fa3_bf16_d128_full_x2, BF16, 128, false, 2)" in said
    assert "-DFA3_NAME=fa3_fp16_d64_causal_x1 -DFA3_D_HEAD=64" in " ".join(said.replace("\\\n", " ").split())


@pytest.mark.long
def test_a_build_for_a_debugger_has_the_same_machine_code(tree: Path) -> None:
    make(tree, "DEBUG=1", "v01")
    codes = [
        [kernel.code for kernel in Cubin.read(tree / folder / "v01/sm_80.cubin").kernels]
        for folder in ("build", "build/debug")
    ]
    assert codes[0] == codes[1] and codes[0]


@pytest.fixture
def hopper(tree: Path) -> Iterator[Path]:
    """A child of v01 for sm_90a alone."""
    text = (tree / "kernels/mma_sync/v01_base.cu").read_text().replace("/* v01", "/* v90", 1)
    text = text.replace("parent    none", "parent    v01").replace("arch      sm_80", "arch      sm_90a")
    kernel = tree / "kernels/wgmma/v90_exact.cu"
    kernel.parent.mkdir(exist_ok=True)
    kernel.write_text(text)
    yield kernel
    kernel.unlink()
    make(tree, "v01")


def test_a_version_for_sm_90a_alone_needs_that_architecture(tree: Path, hopper: Path) -> None:
    refused = run_make(tree, "v90", "ARCHS=80")
    assert refused.returncode == 2
    assert 'v90: needs sm_90a, because it uses wgmma; add 90 to ARCHS="80"' in refused.stderr
    said = make(tree, "-n", "all", "ARCHS=80")
    assert "build/v01" in said and "build/v90" not in said
    assert 'ARCHS="80" leaves out these versions, which need sm_90a: v90' in said


READS_EARLY = """
    float d[4] = {};
    for (int i = 0; i < args.heads; i++) {
        asm volatile("wgmma.fence.sync.aligned;\\n"
                     "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %4, 1, 1, 1, 0, 0;\\n"
                     "wgmma.commit_group.sync.aligned;"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(args.seq_stride));
        d[0] += 1;
        asm volatile("wgmma.wait_group.sync.aligned 0;");
    }
    ((float *)args.O)[threadIdx.x] = d[0] + d[1] + d[2] + d[3];
"""


def test_a_version_whose_wgmma_is_serialised_is_not_built(tree: Path, hopper: Path) -> None:
    hopper.write_text(hopper.read_text().replace("    __syncwarp();", READS_EARLY + "    __syncwarp();"))
    for _ in range(2):  # nothing is left of the first time that would look finished
        done = run_make(tree, "v90")
        assert done.returncode == 2
        assert "each wgmma waits for the one before it, which can halve the speed; look at this: " in done.stderr
        assert "logs/ptxas/v90.sm_90a.log:1: C75" in done.stderr
        assert not (tree / "bin/v90").exists() and not (tree / "build/v90/sm_90a.cubin").exists()


@pytest.mark.long
def test_a_renamed_kernel_file_is_built_again(tree: Path) -> None:
    """A renamed file keeps its time, which is older than what was built from the file of the old name."""
    old, new = tree / "kernels/mma_sync/v01_base.cu", tree / "kernels/mma_sync/v01_plain.cu"
    old.rename(new)
    try:
        assert CHAIN <= rebuilt(tree)
        assert "v01_plain.cu" in (tree / "build/v01/v01.ptx").read_text()
    finally:
        new.rename(old)
    assert CHAIN <= rebuilt(tree)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("v01_second.cu", "v01: two files have this number, kernels/mma_sync/v01_base.cu kernels/"),
        ("v02_a b.cu", "b.cu: must be vNN_name.cu in kernels/mma_sync or kernels/wgmma"),
        ("v02_child.cu", "kernels/mma_sync/v02_child.cu: its parent v88 is not a version; there are: v01 v02"),
    ],
)
def test_a_kernel_file_that_is_no_version_is_refused(tree: Path, name: str, message: str) -> None:
    text = (tree / "kernels/mma_sync/v01_base.cu").read_text().replace("/* v01", "/* v02", 1)
    kernel = tree / "kernels/mma_sync" / name
    kernel.write_text(text.replace("parent    none", "parent    v88", 1))
    try:
        result = run_make(tree, name[:3])
    finally:
        kernel.unlink()
    assert result.returncode == 2 and message in result.stderr


def test_goals_that_call_make_share_their_jobs(tree: Path) -> None:
    """Or the inner make warns. That the short body's loop is guessed has nothing to do with it."""
    result = run_make(tree, "-j2", "sass-diff", "A=v01", "B=v01")
    others = [line for line in result.stderr.splitlines() if not line.startswith("note: v01: loop at ")]
    assert (result.returncode, others) == (0, [])


def test_fl_builds_what_it_shows_and_nothing_else(tree: Path) -> None:
    edit(next(tree.glob("kernels/mma_sync/v01_*.cu")))
    done = subprocess.run([tree / "fl", "counts", "v01"], cwd="/", env=CLEAN_ENV, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("opcode "), done.stderr
    assert "build/v01/sm_90.cubin" in done.stderr and "sm_80.cubin" not in done.stderr


def test_what_takes_minutes_says_so_before(tree: Path) -> None:
    whole, one = (run_make(tree, "-q", "regs", *version).stdout for version in ([], ["VER=v01"]))
    assert whole.startswith("make: regs takes about ") and not one


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


def test_makes_side_by_side_write_to_names_of_their_own(tree: Path, tmp_path: Path) -> None:
    compiler, seen = tmp_path / "cc", tmp_path / "seen"
    compiler.write_text(f"""#!/bin/sh
for word; do [ "$before" = -o ] && echo "$word" >>"{seen}"; before=$word; done
exec {shutil.which("cc")} "$@"
""")
    compiler.chmod(0o755)
    for _ in range(2):
        edit(tree / "harness/stats.c")
        environment = {**CLEAN_ENV, "PATH": f"{tmp_path}:{CLEAN_ENV['PATH']}"}
        subprocess.run(["make", "build/harness/stats.o"], cwd=tree, env=environment, check=True, timeout=600)
    written = [name for name in seen.read_text().split() if "stats.o" in name]
    assert len(set(written)) == 2 and "build/harness/stats.o" not in written
    assert not [path for path in tree.rglob("*") if re.search(r"\.(o|ptx|cubin|h|log|d)\.\d+$", path.name)]


def test_a_file_that_is_cut_short_is_named(tree: Path) -> None:
    """By what reads it. To make it looks up to date."""
    complete(tree)
    path = tree / "build/v01/sm_80.cubin"
    times = path.stat()
    path.write_bytes(path.read_bytes()[: times.st_size // 2])
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    for made in ("build/v01/code.o", "bin/v01"):
        (tree / made).unlink()
    failed = run_make(tree, "v01")
    path.unlink()
    complete(tree)
    assert failed.returncode == 2
    assert "make: build/v01/sm_80.cubin is cut short: delete it and run make again" in failed.stderr


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


def test_a_sign_in_the_path_that_cannot_be_quoted_is_refused(tree: Path) -> None:
    """Before nvcc or the shell reads it."""
    folder = tree.parent / "a $name"
    folder.mkdir()
    for name in ("Makefile", "make", "kernels"):
        (folder / name).symlink_to(tree / name)
    done = run_make(folder, "help")
    assert done.returncode == 2 and "a $name: the path contains $" in done.stderr


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
    assert {"check", "sass-diff", "bench"} < short < whole and "accept" in whole - short


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
    assert [number for number, line in lines if len(line.replace("\t", " " * 8)) > 120] == []


def test_instances_are_remade_where_a_part_of_their_generator_changes() -> None:
    """The generator is what it imports, and the library that it asks."""
    script = "import analysis.ladder.instances, sys; print(*(sys.modules[n].__file__ for n in sys.modules if {}))"
    script = script.format("n.split('.')[0] == 'analysis'")
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    imported = {str(Path(name).relative_to(ROOT)) for name in done.stdout.split()}
    database = subprocess.run(["make", "-npq", "v01"], cwd=ROOT, env=CLEAN_ENV, capture_output=True, text=True).stdout
    (rule,) = re.findall(r"^build/v01/instances\.stamp: kernels/mma_sync/v01_base\.cu (.*)$", database, re.MULTILINE)
    assert set(rule.split()) == imported | {"lib/libflconfig.so", "common/removed_versions.h", "build/v01/source"}
