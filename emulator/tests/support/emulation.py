"""Runs PTX on the emulator for the tests: many small cases in one file, one thread per element.

batch = Batch([Case("add.s32", "add.s32 %d, %a, %b;", {"a": a, "b": b}, {"d": a + b})])
outcome = batch.run(tmp_path)      # name of a case -> what is wrong with it, "" where nothing is
"""

import re
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

ROOT = Path(__file__).resolve().parents[3]
PTXRUN = ROOT / "bin/ptxrun"
NVCC = ROOT / ".venv/toolkit/bin/nvcc"
THREADS = 128
Array = npt.NDArray[Any]

# The beginning of a Python program that calls the driver, with a current context.
DRIVER = """
import ctypes, sys

driver = ctypes.CDLL("libcuda.so.1")

def call(name, *arguments):
    code = getattr(driver, name)(*arguments)
    if code:
        raise SystemExit(f"{name}: {code}")

context, module, function = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
call("cuInit", 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxSetCurrent", context)
"""
POINTERS = ".param .u64 a, .param .u64 b"
HEADER = ".version 9.2\n.target sm_90a\n.address_size 64\n"


def ptxrun(*args: object, timeout: float = 600) -> subprocess.CompletedProcess[str]:
    """One call of bin/ptxrun. A crash by a signal is an error of the test, never a result."""
    assert PTXRUN.exists(), "bin/ptxrun: not built; run `make bin/ptxrun`"
    done = subprocess.run([str(PTXRUN), *map(str, args)], capture_output=True, text=True, timeout=timeout)
    assert done.returncode >= 0, f"ptxrun died by signal {-done.returncode}: {done.stderr[-2000:]}"
    return done


def compiled(source: Path, folder: Path, arch: str = "compute_80", *flags: str) -> Path:
    """The PTX that nvcc makes of a CUDA file."""
    assert NVCC.exists(), f"{NVCC} is missing: run `make setup`"
    path = folder / f"{source.stem}.ptx"
    options = ["-std=c++20", "-O3", "-lineinfo", f"-arch={arch}", "-ptx", *flags]
    subprocess.run([NVCC, *options, "-o", path, source], check=True)
    return path


def entry(body: str, params: str = "", name: str = "test", directives: str = "") -> str:
    """A whole PTX file with one entry."""
    return f"{HEADER}{directives}\n.visible .entry {name}({params})\n{{\n{body}\nret;\n}}\n"


def same_bits(got: Array, want: Array) -> Array:
    """Equal bit for bit; any NaN equals any other."""
    equal: Array = got.view(f"u{got.itemsize}") == want.view(f"u{want.itemsize}")
    return equal | (np.isnan(got) & np.isnan(want)) if got.dtype.kind == "f" else equal


def within(relative: float, absolute: float = 0.0) -> Callable[[Array, Array], Array]:
    """Compares with float64 expectations: |got - want| <= relative * |want| + absolute; infinities and NaN exactly."""

    def compare(got: Array, want: Array) -> Array:
        with np.errstate(invalid="ignore", over="ignore"):
            near = np.abs(got.astype(np.float64) - want) <= relative * np.abs(want) + absolute
            as_single = want.astype(np.float32)
        exact = (got == as_single) & (np.signbit(got) == np.signbit(as_single))
        return np.where(np.isfinite(as_single), near, exact) | (np.isnan(got) & np.isnan(want))

    return compare


@dataclass(frozen=True)
class Case:
    """PTX over registers that are named as the inputs and outputs, and the outputs that are right.

    All arrays have one element per thread. In the code, `%i` is the thread's index in the grid, `%t` that in its CTA,
    `%lane` its lane, `%in` the address of the inputs, `smem` 4 KB of shared memory, `board` 16 bytes per thread of
    global memory and `table` four words of constant memory.
    """

    name: str
    code: str
    inputs: dict[str, Array]
    outputs: dict[str, Array]
    compare: Callable[[Array, Array], Array] = same_bits
    result: dict[str, np.dtype[Any]] = field(default_factory=dict)  # type of an output, where not that of `outputs`

    def output_type(self, name: str) -> np.dtype[Any]:
        return self.result.get(name, self.outputs[name].dtype)


def _register(kind: np.dtype[Any]) -> str:
    if kind.kind == "f" and kind.itemsize >= 4:
        return f".f{kind.itemsize * 8}"
    return f".b{max(kind.itemsize, 2) * 8}"


def _memory(kind: np.dtype[Any]) -> str:
    return f"f{kind.itemsize * 8}" if kind.kind == "f" and kind.itemsize >= 4 else f"u{kind.itemsize * 8}"


class Batch:
    """Cases that run as one PTX entry. Cases that are refused are taken out and named, the others run without them."""

    def __init__(self, cases: Sequence[Case], target: str = "sm_90a") -> None:
        self.cases = list(cases)
        self.target = target
        self.size = len(next(iter(self.cases[0].outputs.values())))
        assert self.size % THREADS == 0
        names = [case.name for case in cases]
        assert len(set(names)) == len(names), (
            f"two cases have one name: {sorted({n for n in names if names.count(n) > 1})}"
        )

    def text(self) -> tuple[str, list[int]]:
        """The PTX, and the line on which each case begins."""
        lines = f"""{HEADER.replace("sm_90a", self.target)}
.shared .align 128 .b8 smem[4096];
.global .align 16 .b8 board[{self.size * 16}];
.const .align 4 .u32 table[4] = {{11, 22, 33, 44}};
.visible .entry vectors(.param .u64 in, .param .u64 out)
{{
.reg .b32 %i, %block, %t, %lane;
.reg .b64 %in, %out, %in1, %in2, %in4, %in8, %out1, %out2, %out4, %out8;
ld.param.u64 %in, [in];
ld.param.u64 %out, [out];
mov.u32 %t, %tid.x;
mov.u32 %block, %ctaid.x;
mad.lo.s32 %i, %block, {THREADS}, %t;
and.b32 %lane, %t, 31;""".splitlines()
        for size in (1, 2, 4, 8):
            lines += [f"mad.wide.u32 %{base}{size}, %i, {size}, %{base};" for base in ("in", "out")]
        starts: list[int] = []
        in_at = out_at = 0
        for case in self.cases:
            starts.append(len(lines) + 1)
            lines.append("{")
            for name, array in case.inputs.items():
                lines.append(f".reg {_register(array.dtype)} %{name};")
                size = array.dtype.itemsize
                lines.append(f"ld.global.{_memory(array.dtype)} %{name}, [%in{size}+{in_at}];")
                in_at += array.nbytes + -array.nbytes % 16
            lines += [f".reg {_register(case.output_type(name))} %{name};" for name in case.outputs]
            lines += case.code.strip().splitlines()
            for name, array in case.outputs.items():
                kind = case.output_type(name)
                lines.append(f"st.global.{_memory(kind)} [%out{kind.itemsize}+{out_at}], %{name};")
                out_at += len(array) * kind.itemsize + -(len(array) * kind.itemsize) % 16
            lines.append("}")
        lines += ["ret;", "}"]
        return "\n".join(lines) + "\n", starts

    def run(self, folder: Path, *options: object) -> dict[str, str]:
        refused: dict[str, str] = {}
        while True:
            outcome = self._run_once(folder, options)
            if isinstance(outcome, dict):
                return refused | outcome
            index, message = outcome
            refused[self.cases.pop(index).name] = message

    def _run_once(self, folder: Path, options: Sequence[object]) -> dict[str, str] | tuple[int, str]:
        if not self.cases:
            return {}
        ptx, starts = self.text()
        (folder / "cases.ptx").write_text(ptx)
        blob = bytearray()
        for case in self.cases:
            for array in case.inputs.values():
                blob += array.tobytes()
                blob += bytes(-array.nbytes % 16)
        (folder / "in.bin").write_bytes(bytes(blob) or bytes(16))
        sizes = [len(array) * c.output_type(name).itemsize for c in self.cases for name, array in c.outputs.items()]
        out_bytes = sum(size + -size % 16 for size in sizes)
        done = ptxrun(
            folder / "cases.ptx", "--grid", self.size // THREADS, "--block", THREADS,
            "--arg", f"buf:u8:{len(blob) or 16}:@{folder / 'in.bin'}", "--arg", f"buf:u8:{out_bytes}",
            "--dump", f"1={folder / 'out.bin'}", *options,
        )  # fmt: skip
        if done.returncode == 2:
            line = re.search(r"cases\.ptx:(\d+): (.*)", done.stderr)
            assert line, done.stderr
            index = max((i for i, start in enumerate(starts) if start <= int(line[1])), default=-1)
            assert index >= 0, done.stderr
            return index, f"refused: {line[2]}"
        outcome = self._compare((folder / "out.bin").read_bytes())
        if done.returncode != 0:
            lines = [int(line) for line in re.findall(r"PTX line (\d+)", done.stderr)]
            assert lines, done.stderr
            for at in lines:
                name = self.cases[max(i for i, start in enumerate(starts) if start <= at)].name
                outcome[name] = outcome[name] or done.stderr
        return outcome

    def _compare(self, blob: bytes) -> dict[str, str]:
        at, outcome = 0, {}
        for case in self.cases:
            wrong = ""
            for name, want in case.outputs.items():
                kind = case.output_type(name)
                got = np.frombuffer(blob, kind, len(want), at)
                at += got.nbytes + -got.nbytes % 16
                bad = np.flatnonzero(~case.compare(got, want))
                if len(bad) and not wrong:
                    first = int(bad[0])
                    values = ", ".join(f"{key} = {_show(array[first])}" for key, array in case.inputs.items())
                    wrong = (
                        f"{len(bad)} of {len(want)} differ, first at {first}: {values} gives {name} = "
                        f"{_show(got[first])}, expected {_show(want[first])}\n{case.code}"
                    )
            outcome[case.name] = wrong
        return outcome


def _show(value: Any) -> str:
    bits = int.from_bytes(value.tobytes(), "little")
    return f"{value} (0x{bits:0{value.itemsize * 2}x})"
