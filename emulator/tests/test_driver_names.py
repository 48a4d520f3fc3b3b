"""The emulated driver exports every name of NVIDIA's: programs that miss one fall back to the CPU without a message."""

import ctypes
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.emulation import ROOT

TABLE = ROOT / "emulator/driver/functions_table.h"
LIBRARY = ROOT / "lib/emulated/libcuda.so.1"
NOT_SUPPORTED = 801
RUNTIME, PROFILER = "brings NVIDIA's CUDA runtime, which cannot start here", "NVIDIA's profiler, needs tables"

# Functions of NVIDIA's library that its cuda.h does not declare, or as the target of a macro only.
UNDECLARED = {"cuLinkComplete", "cuLinkDestroy", "cuProfilerInitialize", "cuProfilerStart", "cuProfilerStop"}


def declared() -> set[str]:
    """The names that NVIDIA's headers declare, and those that they give functions for programs of all ages and both
    streams. Dr.Jit needs those of graphics as well."""
    headers = ("cuda.h", "cudaGL.h", "cudaEGL.h", "cudaVDPAU.h")
    text = "".join((ROOT / ".venv/toolkit/include" / name).read_text() for name in headers)
    text = text.replace("CUresult CUDAAPI cuWGL", "")  # of Windows
    names = set(re.findall(r"^\s*(?:__CUDA_DEPRECATED )?CUresult CUDAAPI (cu[A-Z]\w+)\s*\(", text, re.MULTILINE))
    renamed = r"#\s*define (cu[A-Z]\w+)\s+(?:__CUDA_API_(PTSZ|PTDS)\((\w+)\)|(cu[A-Z]\w+))"
    for name, suffix, per_thread, other in re.findall(renamed, text):
        names |= {name, f"{per_thread}_{suffix.lower()}" if suffix else other}
    return names


def rows(kind: str) -> list[list[str]]:
    return [row.split(", ") for row in re.findall(rf"^{kind}\((.*)\)$", TABLE.read_text(), re.MULTILINE)]


def address(library: ctypes.CDLL, name: str) -> int | None:
    return ctypes.cast(getattr(library, name), ctypes.c_void_p).value


def test_every_name_is_exported() -> None:
    library = ctypes.CDLL(str(LIBRARY))
    names = declared() | UNDECLARED
    assert len(names) > 650
    assert [name for name in sorted(names) if not hasattr(library, name)] == []
    in_table = {row[0] for kind in ("SERVED", "ALIAS", "REFUSED") for row in rows(kind)}
    assert names <= in_table


def test_an_alias_is_the_function_that_it_names() -> None:
    library = ctypes.CDLL(str(LIBRARY))
    aliases = rows("ALIAS")
    assert len(aliases) > 100
    assert [alias for alias in aliases if address(library, alias[0]) != address(library, alias[1])] == []


def test_per_thread_names_follow_the_function() -> None:
    """A function that is served is served to threads with default streams of their own, too."""
    kinds = {row[0]: kind for kind in ("SERVED", "ALIAS", "REFUSED") for row in rows(kind)}
    for name, kind in kinds.items():
        base, _, suffix = name.rpartition("_")
        if suffix in ("ptsz", "ptds"):
            assert (kind == "REFUSED") == (kinds.get(base, "REFUSED") == "REFUSED"), name


@pytest.mark.parametrize("name", ["cuTexRefSetBorderColor", "cuMemcpy2D", "cuMemcpyBatchAsync_ptsz"])
def test_other_names_are_rejected_by_name(name: str) -> None:
    code = f"import ctypes, sys; sys.exit(ctypes.CDLL({str(LIBRARY)!r}).{name}() != {NOT_SUPPORTED})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert f"{name} is not supported: it returns CUDA_ERROR_NOT_SUPPORTED" in done.stderr


PER_THREAD = """
#include <cuda.h>
#include <stdio.h>
int main(void) {
    CUdevice device; CUcontext context; CUdeviceptr memory; CUresult status; int there = 0, value = 5;
    status = cuInit(0) | cuDeviceGet(&device, 0) | cuDevicePrimaryCtxRetain(&context, device);
    status |= cuCtxSetCurrent(context) | cuMemAlloc(&memory, 4) | cuMemcpyHtoD(memory, &value, 4);
    status |= cuMemcpyDtoHAsync(&there, memory, 4, CU_STREAM_PER_THREAD) | cuStreamSynchronize(CU_STREAM_PER_THREAD);
    printf("%d %d\\n", status, there);
}
"""


def test_a_program_with_a_default_stream_for_each_thread(tmp_path: Path) -> None:
    source, program = tmp_path / "program.c", tmp_path / "program"
    source.write_text(PER_THREAD)
    build = ["cc", "-DCUDA_API_PER_THREAD_DEFAULT_STREAM", "-isystem", str(ROOT / ".venv/toolkit/include"), str(source)]
    subprocess.run([*build, "-o", str(program), str(LIBRARY)], check=True)
    done = subprocess.run([ROOT / "bin/emulated-gpu", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "0 5\n"), done.stderr


@pytest.mark.parametrize(
    ("name", "says"),
    [("libnvrtc.so.13", ""), ("libnvJitLink.so.13", ""), ("libx.so", RUNTIME), ("libcupti.so", PROFILER)],
)
def test_a_compiler_may_ask_for_the_runtime_s_tables(name: str, says: str, tmp_path: Path) -> None:
    """NVRTC asks for them and works without; a program with NVIDIA's runtime or its profiler ends, and is told so."""
    source, asking = tmp_path / "asking.c", tmp_path / name
    source.write_text(
        "int cuGetExportTable(const void **, const void *);\nint ask(void) { return cuGetExportTable(0, 0); }"
    )
    subprocess.run(["cc", "-shared", "-fPIC", str(source), "-o", str(asking), str(LIBRARY)], check=True)
    code = f"import ctypes; ask = ctypes.CDLL({str(asking)!r}).ask; print(ask(), ask())"
    tool = [str(ROOT / "bin/emulated-gpu"), sys.executable, "-c", code]
    done = subprocess.run(tool, capture_output=True, text=True, check=False)
    assert done.stdout == ("" if says == PROFILER else f"{NOT_SUPPORTED} {NOT_SUPPORTED}\n")
    assert says in done.stderr if says else not done.stderr
