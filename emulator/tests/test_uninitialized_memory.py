"""Memory of cuMemAlloc() is uninitialized until something writes it: what reports a use, and what ends that state."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.emulation import ROOT

TOOL = ROOT / "bin/emulated-gpu"

PROGRAM = """
import ctypes, sys

driver = ctypes.CDLL("libcuda.so.1")

def call(name, *arguments):
    code = getattr(driver, name)(*arguments)
    if code:
        raise SystemExit(f"{name}: {code}")

def memory():
    address = ctypes.c_uint64()
    call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(4096))
    return address

def launch(name, *addresses, ctas=2):
    function = ctypes.c_void_p()
    call("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
    pointers = (ctypes.c_void_p * 2)(*(ctypes.addressof(each) for each in addresses))
    call("cuLaunchKernel", function, ctas, 1, 1, 32, 1, 1, 0, None, pointers, None)

context, module = ctypes.c_void_p(), ctypes.c_void_p()
call("cuInit", 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxSetCurrent", context)
call("cuModuleLoadData", ctypes.byref(module), open(sys.argv[1], "rb").read())
p, q = memory(), memory()
BYTES = ctypes.c_size_t(4096)
"""

BODY = """.visible .entry {name}(.param .u64 P, .param .u64 Q)
{{
.reg .b64 %p, %q, %o;
.reg .b32 %t, %n, %c, %x;
.reg .pred %d;
ld.param.u64 %p, [P];
ld.param.u64 %q, [Q];
mov.u32 %t, %tid.x;
mov.u32 %n, %ctaid.x;
mad.lo.u32 %t, %n, 32, %t;
mul.wide.u32 %o, %t, 4;
add.u64 %q, %q, %o;
{before}add.u64 %p, %p, %o;
{what}ret;
}}
"""
KERNELS = {
    "add": ("red.global.add.u32 [%p], 1;\n", ""),
    "copy": ("", "ld.global.u32 %x, [%p];\nst.global.u32 [%q], %x;\n"),
    "choose": ("", "ld.global.u32 %x, [%p];\nsetp.eq.u32 %d, %x, 0;\n@%d bra END;\nst.global.u32 [%q], 1;\nEND:\n"),
    "drop": ("", "ld.global.u32 %x, [%p];\nadd.u32 %x, %x, 1;\n"),
    "write": ("", "st.global.u32 [%p], 7;\nld.global.u32 %x, [%p];\nst.global.u32 [%q], %x;\n"),
    "exchange": ("atom.global.exch.b32 %x, [%p], 1;\n", ""),
}
HEADER = ".version 8.0\n.target sm_80\n.address_size 64\n"
TEXT = HEADER + "".join(BODY.format(name=k, before=b, what=w) for k, (b, w) in KERNELS.items())

FOUND = {
    "an atomic": "launch('add', p, q)",
    "a copied value": "launch('copy', p, q)",
    "a branch": "launch('choose', p, q)",
    "a copy of such memory": "call('cuMemcpyDtoD_v2', q, p, BYTES); launch('copy', q, p)",
    "the half that a kernel did not write": "launch('write', p, q, ctas=1); launch('copy', p, q)",
    "the rest of a memset": "call('cuMemsetD8_v2', p, 0, ctypes.c_size_t(5)); launch('copy', p, q)",
    "memory that was freed and allocated again": "launch('write', p, q); call('cuMemFree_v2', p); launch('copy', memory(), q)",
}
SILENT = {
    "a memset": "call('cuMemsetD8_v2', p, 0, BYTES); launch('add', p, q); launch('copy', p, q)",
    "a copy from the host": "call('cuMemcpyHtoD_v2', p, bytes(4096), BYTES); launch('copy', p, q)",
    "a copy of written memory": "launch('write', p, q); call('cuMemcpyDtoD_v2', q, p, ctypes.c_size_t(256)); launch('copy', q, p)",
    "a kernel before": "launch('write', p, q); launch('copy', p, q)",
    "a value that is dropped": "launch('drop', p, q)",
    "an exchange whose result is dropped": "launch('exchange', p, q)",
}


def run(steps: str, folder: Path) -> subprocess.CompletedProcess[str]:
    assert TOOL.exists(), "bin/emulated-gpu is missing: run `make libcuda`"
    (folder / "program.py").write_text(PROGRAM + steps + "\n")
    (folder / "k.ptx").write_text(TEXT)
    command = [str(TOOL), sys.executable, str(folder / "program.py"), str(folder / "k.ptx")]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env={**os.environ, "TMPDIR": str(folder)})


@pytest.mark.parametrize("case", FOUND)
def test_a_use_is_reported(case: str, tmp_path: Path) -> None:
    done = run(FOUND[case], tmp_path)
    assert done.returncode == 1, done.stderr
    classes = {line.split(": ")[1].split(" at ")[0] for line in done.stderr.splitlines() if line.startswith("kernel ")}
    assert classes == {"uninitialised-global"}, done.stderr
    assert "of buffer 'cuMemAlloc'" in done.stderr


@pytest.mark.parametrize("case", SILENT)
def test_written_memory_is_not_reported(case: str, tmp_path: Path) -> None:
    done = run(SILENT[case], tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
