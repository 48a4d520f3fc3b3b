"""bin/emulated-gpu: findings at the program's own lines, exit statuses, and arguments that are wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.emulation import ROOT

TOOL = ROOT / "bin/emulated-gpu"

# A program as Python packages call the driver: launches the entry `k` of a text of PTX.
PROGRAM = """
import ctypes, os, sys

driver = ctypes.CDLL("libcuda.so.1")

def call(name, *arguments):
    code = getattr(driver, name)(*arguments)
    if code:
        raise SystemExit(f"{name}: {code}")

context, module, function = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
call("cuInit", 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxSetCurrent", context)
major = ctypes.c_int()
call("cuDeviceGetAttribute", ctypes.byref(major), 75, 0)
print("major", major.value)
call("cuModuleLoadData", ctypes.byref(module), open(sys.argv[1], "rb").read())
call("cuModuleGetFunction", ctypes.byref(function), module, b"k")
call("cuLaunchKernel", function, 1, 1, 1, 64, 1, 1, 0, None, None, None)
raise SystemExit(int(sys.argv[2]))
"""

HEADER = ".version 8.0\n.target sm_80\n.address_size 64\n"
RACE = (
    HEADER
    + '.visible .entry k()\n{\n.shared .b32 s;\n.reg .b32 %r;\n.file 1 "own.py"\n.loc 1 17 3\n'
    + "mov.u32 %r, %tid.x;\nst.shared.u32 [s], %r;\nret;\n}\n"
)
ENDLESS = HEADER + ".visible .entry k()\n{\n.reg .b32 %r;\nmov.u32 %r, 0;\nAGAIN:\nadd.u32 %r, %r, 1;\nbra AGAIN;\n}\n"
REFUSED = HEADER + ".visible .entry k()\n{\n.reg .b32 %r;\nfrobnicate.u32 %r, 1;\n}\n"
RIGHT = HEADER + ".visible .entry k()\n{\nret;\n}\n"


def run(
    text: str, folder: Path, *options: str, status: int = 0, **environment: str
) -> subprocess.CompletedProcess[str]:
    assert TOOL.exists(), "bin/emulated-gpu is missing: run `make libcuda`"
    (folder / "program.py").write_text(PROGRAM)
    (folder / "k.ptx").write_text(text)
    command = [str(TOOL), *options, sys.executable, str(folder / "program.py"), str(folder / "k.ptx"), str(status)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=300, env={**os.environ, "TMPDIR": str(folder), **environment}
    )


@pytest.mark.parametrize("status", [0, 7])
def test_the_status_is_the_program_s(status: int, tmp_path: Path) -> None:
    done = run(RIGHT, tmp_path, "--arch", "sm_80", status=status)
    assert (done.returncode, done.stdout, done.stderr) == (status, "major 8\n", "")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["k.ptx", "program.py"]


def test_a_race_is_printed_at_the_program_s_line(tmp_path: Path) -> None:
    done = run(RACE, tmp_path, "--json", str(tmp_path / "found.json"))
    assert done.returncode == 1 and done.stdout == "major 9\n"
    assert done.stderr.startswith("kernel k: race at own.py:17, PTX line 11: st.shared.u32 [s], %r;\n")
    assert done.stderr.endswith("\nemulated-gpu: 1 finding\n")
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["status"] == 0 and len(found["notes"]) == 1
    note = found["notes"][0]
    assert (note["finding"], note["kernel"], note["here"]["file"], note["here"]["line"]) == ("race", "k", "own.py", 17)


def test_a_kernel_that_never_ends_is_stopped(tmp_path: Path) -> None:
    done = run(ENDLESS, tmp_path, EMULATED_GPU_STEPS="100000")
    assert done.returncode == 1 and "cuLaunchKernel: 702" in done.stderr
    assert "step-limit" in done.stderr and "100000" in done.stderr


def test_a_refusal_names_line_and_instruction(tmp_path: Path) -> None:
    done = run(REFUSED, tmp_path, "--json", str(tmp_path / "found.json"))
    assert done.returncode == 1 and "cuModuleGetFunction: 218" in done.stderr
    assert "kernel k is refused at PTX line 7: opcode 'frobnicate'" in done.stderr
    assert "frobnicate" in json.loads((tmp_path / "found.json").read_text())["notes"][0]["note"]


def test_a_program_that_dies_is_told_by_its_signal(tmp_path: Path) -> None:
    command = [str(TOOL), sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"]
    assert subprocess.run(command, timeout=60).returncode == 128 + 9


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        ([], 2, "which program?"),
        (["--arch", "sm_70", "true"], 2, "not sm_70"),
        (["--arch"], 2, "a value is missing behind --arch"),
        (["--schedule", "-1", "true"], 2, "--schedule is a number from 0 on, not -1"),
        (["--fast", "1", "true"], 2, "there is no such option; see --help: --fast"),
        (["--json", "/nowhere/found.json", "true"], 2, "cannot write /nowhere/found.json"),
        (["no-such-program"], 127, "cannot start no-such-program: No such file"),
    ],
)
def test_arguments_that_are_wrong(arguments: list[str], status: int, text: str) -> None:
    done = subprocess.run([str(TOOL), *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == status and text in done.stderr, done.stderr


def test_the_stand_in_for_ptxas_hands_ptx_through(tmp_path: Path) -> None:
    ptxas = ROOT / "lib/emulated/ptxas"
    (tmp_path / "k.ptx").write_text(RIGHT)
    subprocess.run([ptxas, "-lineinfo", "--gpu-name=sm_80", tmp_path / "k.ptx", "-o", tmp_path / "k.cubin"], check=True)
    assert (tmp_path / "k.cubin").read_bytes() == RIGHT.encode() + b"\0"
    assert "release 12.9" in subprocess.run([ptxas, "--version"], capture_output=True, text=True).stdout
    assert subprocess.run([ptxas, "k.ptx"], capture_output=True).returncode == 1
