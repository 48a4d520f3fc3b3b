"""Memory of cuMemAlloc(): what uses it before something writes it, or while the launch before may still write it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.emulation import DRIVER, ROOT

TOOL = ROOT / "bin/emulated-gpu"

PROGRAM = """
def memory():
    address = ctypes.c_uint64()
    call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(4096))
    return address

def write(p, q, **options):
    launch("write", p, q, **options)

def copy(p, q, **options):
    launch("copy", p, q, **options)

def memcpy(to, source, count=4096):
    call("cuMemcpyDtoD_v2", to, source, ctypes.c_size_t(count))

class Attribute(ctypes.Structure):
    _fields_ = [("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_int * 16)]

class Config(ctypes.Structure):
    _fields_ = [("sizes", ctypes.c_uint * 8), ("stream", ctypes.c_void_p), ("attributes", ctypes.POINTER(Attribute)),
                ("count", ctypes.c_uint)]

PROGRAMMATIC_STREAM_SERIALIZATION = 6

def launch(name, *addresses, ctas=2, overlaps=False, on=None):
    function = ctypes.c_void_p()
    call("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
    pointers = (ctypes.c_void_p * 2)(*(ctypes.addressof(each) for each in addresses))
    attribute = Attribute(PROGRAMMATIC_STREAM_SERIALIZATION, 0, (ctypes.c_int * 16)(overlaps))
    config = Config((ctypes.c_uint * 8)(ctas, 1, 1, 64, 1, 1), on, ctypes.pointer(attribute), 1)
    call("cuLaunchKernelEx", ctypes.byref(config), function, pointers, None)

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
mad.lo.u32 %t, %n, 64, %t;
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
    "dependent": ("griddepcontrol.wait;\n", "ld.global.u32 %x, [%p];\nst.global.u32 [%q], %x;\n"),
    "late": ("", "ld.global.u32 %x, [%p];\ngriddepcontrol.wait;\nst.global.u32 [%q], %x;\n"),
    "one_waits": (
        "setp.ne.u32 %d, %t, 0;\n@%d bra MEET;\ngriddepcontrol.wait;\nMEET:\n",
        "ld.global.u32 %x, [%p];\nst.global.u32 [%q], %x;\n",
    ),
    "all_meet": (
        "mov.u32 %c, %tid.x;\nsetp.ne.u32 %d, %c, 0;\n@%d bra MEET;\ngriddepcontrol.wait;\nMEET:\nbar.sync 0;\n",
        "ld.global.u32 %x, [%p];\nst.global.u32 [%q], %x;\n",
    ),
    "look_up": ("mov.u64 %p, table;\n", "ld.const.u32 %x, [%p];\nst.global.u32 [%q], %x;\n"),
    "exchange": ("atom.global.exch.b32 %x, [%p], 1;\n", ""),
}
HEADER = ".version 8.0\n.target sm_90\n.address_size 64\n.const .align 4 .b8 table[4096];\n"
TEXT = HEADER + "".join(BODY.format(name=k, before=b, what=w) for k, (b, w) in KERNELS.items())

FOUND = {
    "an atomic": "launch('add', p, q)",
    "a copied value": "copy(p, q)",
    "a branch": "launch('choose', p, q)",
    "a copy of such memory": "memcpy(q, p); copy(q, p)",
    "the half that a kernel did not write": "write(p, q, ctas=1); copy(p, q)",
    "the rest of a memset": "call('cuMemsetD8_v2', p, 0, ctypes.c_size_t(5)); copy(p, q)",
    "memory that was freed and allocated again": "write(p, q); call('cuMemFree_v2', p); copy(memory(), q)",
}
RACES = {
    "a dependent launch that does not wait": "write(p, q); copy(p, q, overlaps=1)",
    "a dependent launch that waits too late": "write(p, q); launch('late', p, q, overlaps=1)",
    "a store over the launch before": "write(p, q); write(p, q, overlaps=1)",
    "threads that nothing orders after the one that waits": "write(p, q); launch('one_waits', p, q, overlaps=1)",
}
SILENT = {
    "a dependent launch that waits": "write(p, q); launch('dependent', p, q, overlaps=1)",
    "a barrier after the thread that waits": "write(p, q); launch('all_meet', p, q, overlaps=1)",
    "a launch that may not overlap": "write(p, q); copy(p, q)",
    "what a launch before the last wrote": "write(p, q); launch('drop', p, q); launch('drop', p, q, overlaps=1)",
    "a copy between the launches": "write(p, q); memcpy(q, p); copy(p, q, overlaps=1)",
    "a memset": "call('cuMemsetD8_v2', p, 0, BYTES); launch('add', p, q); copy(p, q)",
    "a copy from the host": "call('cuMemcpyHtoD_v2', p, bytes(4096), BYTES); copy(p, q)",
    "a copy of written memory": "write(p, q); memcpy(q, p, 512); copy(q, p)",
    "a kernel before": "write(p, q); copy(p, q)",
    "a value that is dropped": "launch('drop', p, q)",
    "an exchange whose result is dropped": "launch('exchange', p, q)",
}


def run(steps: str, folder: Path) -> subprocess.CompletedProcess[str]:
    assert TOOL.exists(), "bin/emulated-gpu is missing: run `make libcuda`"
    (folder / "program.py").write_text(DRIVER + PROGRAM + steps + "\n")
    (folder / "k.ptx").write_text(TEXT)
    command = [str(TOOL), sys.executable, str(folder / "program.py"), str(folder / "k.ptx")]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=300, env={**os.environ, "TMPDIR": str(folder)}
    )


@pytest.mark.parametrize(
    ("class_", "case"), [("uninitialised-global", c) for c in FOUND] + [("race", c) for c in RACES]
)
def test_a_use_is_reported(class_: str, case: str, tmp_path: Path) -> None:
    done = run((FOUND | RACES)[case], tmp_path)
    assert done.returncode == 1, done.stderr
    classes = {line.split(": ")[1].split(" at ")[0] for line in done.stderr.splitlines() if line.startswith("kernel ")}
    assert classes == {class_}, done.stderr
    assert "of buffer 'cuMemAlloc'" in done.stderr


@pytest.mark.parametrize("case", SILENT)
def test_written_memory_is_not_reported(case: str, tmp_path: Path) -> None:
    done = run(SILENT[case], tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


MEMSETS = """
host = (ctypes.c_uint8 * 12288)()
p = ctypes.c_uint64()
call("cuMemAlloc_v2", ctypes.byref(p), ctypes.c_size_t(12288))
for element, value in ((1, 0x5A), (2, 0x1234), (4, 0x89ABCDEF)):
    for count in (1, 3, 1023, 2049):
        call("cuMemsetD8_v2", p, 0xEE, ctypes.c_size_t(12288))
        call(f"cuMemsetD{8 * element}_v2", p, value, ctypes.c_size_t(count))
        call("cuMemcpyDtoH_v2", host, p, ctypes.c_size_t(12288))
        right = value.to_bytes(element, "little") * count
        assert bytes(host) == right + bytes([0xEE]) * (12288 - len(right)), (element, count)
"""


def test_memsets_of_every_width(tmp_path: Path) -> None:
    done = run(MEMSETS, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
