"""Runs the kernels of the real faults under compute-sanitizer on a GPU, and writes the column of README.md.

python real_faults.py run NVCC RESULTS PAGE     on a machine with a GPU; `suite.mk faults-on-gpu` calls it
python real_faults.py write RESULTS PAGE        the column of the page again, from the results
python real_faults.py launch PTX KERNEL         one kernel, once, by the driver API: what the sanitizer watches
"""

import ctypes
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from faults import FAULTS, SOURCE, Fault

TOOLS = ("memcheck", "synccheck", "racecheck")
KINDS = ("faulty", "repaired")
FOUND, HUNG = 99, 124  # exit statuses: of the sanitizer when it reports, of a run that was stopped
FAILED, LAUNCH_FAILED = 1, "cuCtxSynchronize returned 719"  # the GPU itself stopped the kernel
SECONDS = 40  # for a kernel that hangs
AT_ONCE = 8  # runs: most of their time is the start of a process
MACHINE = "machine.txt"
SUMMARY = re.compile(r"^========= (?:ERROR|RACECHECK) SUMMARY: (\d+) ", re.M)
TYPES = {"u32": np.uint32, "i32": np.int32, "f32": np.float32, "f16": np.float16}
PROGRAMMATIC_STREAM_SERIALIZATION = 6  # a CUlaunchAttributeID


# ---- one launch ----


def call(driver: ctypes.CDLL, name: str, *arguments: object) -> None:
    """Leaves with the name of the call that failed."""
    status = getattr(driver, name)(*arguments)
    if status:
        raise SystemExit(f"{name} returned {status}")


def argument(driver: ctypes.CDLL, spec: str) -> ctypes.Array[ctypes.c_char]:
    """The bytes of a kernel's argument: a number, or the address of a buffer."""
    kind, *rest = spec.split(":")
    if kind in TYPES:
        return ctypes.create_string_buffer(TYPES[kind](rest[0]).tobytes())
    count = int(rest[1])
    values = np.arange(count) if rest[2:] == ["ramp"] else np.zeros(count)
    held, address = values.astype(TYPES[rest[0]]), ctypes.c_uint64()
    call(driver, "cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(held.nbytes))
    call(driver, "cuMemcpyHtoD_v2", address, ctypes.c_void_p(held.ctypes.data), ctypes.c_size_t(held.nbytes))
    return ctypes.create_string_buffer(bytes(address))


class Attribute(ctypes.Structure):
    """CUlaunchAttribute."""

    _fields_ = [("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_int * 16)]


class Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = [
        ("sizes", ctypes.c_uint * 6),  # grid and block
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(Attribute)),
        ("attribute_count", ctypes.c_uint),
    ]


def launch(ptx: Path, kernel: str) -> None:
    """As test_real_faults.py launches it. A launch that overlaps may begin before the kernel before it has ended."""
    fault = next(each for each in FAULTS if kernel.rpartition("_")[0] == each.name)
    driver = ctypes.CDLL("libcuda.so.1")
    context, module = ctypes.c_void_p(), ctypes.c_void_p()
    call(driver, "cuInit", 0)
    call(driver, "cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    call(driver, "cuCtxSetCurrent", context)
    call(driver, "cuModuleLoadData", ctypes.byref(module), ptx.read_bytes() + b"\0")
    held = [argument(driver, spec) for spec in fault.args.split()]
    pointers = (ctypes.c_void_p * len(held))(*(ctypes.addressof(each) for each in held))
    attribute = Attribute(PROGRAMMATIC_STREAM_SERIALIZATION, 0, (ctypes.c_int * 16)(1))
    for name in [f"{fault.name}_before", kernel] if fault.overlaps else [kernel]:
        function = ctypes.c_void_p()
        call(driver, "cuModuleGetFunction", ctypes.byref(function), module, name.encode())
        sizes = (ctypes.c_uint * 6)(fault.grid, 1, 1, fault.block, 1, 1)
        config = Config(sizes, 0, None, ctypes.pointer(attribute), fault.overlaps and name == kernel)
        call(driver, "cuLaunchKernelEx", ctypes.byref(config), function, pointers, None)
    call(driver, "cuCtxSynchronize")


# ---- under the sanitizer ----


def output(command: list[str]) -> str:
    """The output of a command that must succeed."""
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def run(nvcc: str, results: Path) -> None:
    """Writes a file for each kernel and tool: its exit status, and what the tool said."""
    results.mkdir(parents=True, exist_ok=True)
    gpu = output(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]).splitlines()[0]
    version = re.search(r"Version ([\d.]+)", output(["compute-sanitizer", "--version"]))
    (results / MACHINE).write_text(f"{gpu}, {version[1] if version else 'unknown version'}\n", encoding="utf-8")
    ptx = results / "real_faults.ptx"
    subprocess.run([nvcc, "-std=c++17", "-O3", "-lineinfo", "-arch=compute_90a", "-ptx", "-o", ptx, SOURCE], check=True)
    runs = [(f"{fault.name}_{kind}", tool) for fault in FAULTS for kind in KINDS for tool in TOOLS]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for number, done in enumerate(pool.map(lambda one: watch(ptx, *one, results), runs), 1):
            print(f"{number}/{len(runs)} {done}", file=sys.stderr)


def watch(ptx: Path, kernel: str, tool: str, results: Path) -> str:
    """One kernel under one tool, written to its file; the file's name."""
    watched = [sys.executable, __file__, "launch", str(ptx), kernel]
    command = ["timeout", str(SECONDS), "compute-sanitizer", "--tool", tool, "--error-exitcode", str(FOUND)]
    done = subprocess.run([*command, *watched], capture_output=True, text=True, check=False)
    path = results / f"{kernel}.{tool}.txt"
    path.write_text(f"status {done.returncode}\n{done.stdout}{done.stderr}", encoding="utf-8")
    return path.name


# ---- the page ----


def verdict(path: Path) -> str:
    """Reported, silent, hung or failed; leaves with the file's name where the run was none."""
    first, _, text = path.read_text(encoding="utf-8").partition("\n")
    status, summary = int(first.removeprefix("status ")), SUMMARY.search(text)
    if status == HUNG:
        return "hung"
    if status == FAILED and LAUNCH_FAILED in text:
        return "launch failed"
    if not summary or status not in (0, FOUND) or (status == FOUND) != (int(summary[1]) > 0):
        raise SystemExit(f"{path} is no finished run of compute-sanitizer: status {status}, {text[-300:].strip()!r}")
    return "reported" if status == FOUND else "silent"


def cell(fault: Fault, results: Path) -> str:
    """A cell of the column: the report of each tool for the two kernels; "not run" until all of them were."""
    files = {kind: [results / f"{fault.name}_{kind}.{tool}.txt" for tool in TOOLS] for kind in KINDS}
    if not all(path.exists() for paths in files.values() for path in paths):
        return "not run"
    said = []
    for kind, paths in files.items():
        verdicts = {tool: verdict(path) for tool, path in zip(TOOLS, paths, strict=True)}
        loud = [
            tool if found == "reported" else f"{tool} {found}" for tool, found in verdicts.items() if found != "silent"
        ]
        said.append(f"{kind}: {', '.join(loud) or 'silent'}")
    return "; ".join(one for one in said if one != "repaired: silent")


def write(results: Path, page: Path) -> None:
    """The last column of the table, and the machine in its heading; the rest of the page stays."""
    text = page.read_text(encoding="utf-8")
    machine = results / MACHINE
    heading = f" ({machine.read_text(encoding='utf-8').strip()})" if machine.exists() else ""
    table = r"(?m)^(\| kernel \| reported as, seen in \| compute-sanitizer on a GPU).*$"
    text, count = re.subn(table, rf"\1{heading} |", text)
    for fault in FAULTS:
        said = cell(fault, results)
        text, rows = re.subn(rf"(?m)^(\| `{fault.name}` \|[^|]*\|).*$", lambda m, c=said: f"{m[1]} {c} |", text)
        count *= rows
    if count != 1:
        raise SystemExit(f"{page} has no table with one row for each fault")
    page.write_text(text, encoding="utf-8")


def main(what: str, *arguments: str) -> None:
    """One of the three uses."""
    if what == "launch":
        launch(Path(arguments[0]), arguments[1])
    elif what == "write":
        write(Path(arguments[0]), Path(arguments[1]))
    elif what == "run":
        run(arguments[0], Path(arguments[1]))
        write(Path(arguments[1]), Path(arguments[2]))
    else:
        raise SystemExit(__doc__)


if __name__ == "__main__":
    main(*sys.argv[1:])
