"""The programs and libraries that the judge runs, and the jail that it runs them in.

    ended = in_jail(folder, [python, "run_submission.py"], environment, Limits(seconds=60))
    if ended.status == TIMEOUT: ...

bin/judge-jail shows a copy of the folder to a program that has no network, no other writable file, and limits of time,
memory, processes and files (emulator/judge/README.md).
"""

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from analysis.errors import AnalysisError
from analysis.files import in_checkout, root
from analysis.machine_code.toolkit import find_tool

EXITED, FAILED, SIGNAL, TIMEOUT, MEMORY, PROCESSES, FILES, ATTACKED, UNAVAILABLE = 0, 1, 11, 12, 13, 14, 15, 16, 20
MOST_BYTES = 256 << 20  # of a file that a jail has left
PATH = "/usr/bin:/bin"  # for submissions


WEAK = (
    "the submission then sees all processes and the network interfaces of this system, may not use them, and can "
    "change the user's other files where Linux has no Landlock (5.13)"
)


class NoJail(AnalysisError):
    """This machine cannot run the jail."""

    status = UNAVAILABLE


@dataclass(frozen=True)
class Limits:
    """The limits of one program in the jail; memory and files are in MiB. weak: a jail without namespaces."""

    seconds: int = 120
    memory: int = 4096
    processes: int = 64
    file: int = 256
    folder: int = 512
    weak: bool = False


@dataclass(frozen=True)
class Ended:
    """How a program in the jail ended: one of the statuses above, and a sentence."""

    status: int
    message: str
    said: str  # the end of its stderr, else of its stdout


def tool(name: str) -> Path:
    """A program of the emulator: judge-jail, judge-replay."""
    path = root() / "bin" / name
    if not path.is_file():
        remedy = "run `make judge-tools`" if in_checkout() else "install flashladder-tools again"
        raise AnalysisError(f"{path} is missing: {remedy}")
    return path


def inside(folder: Path, limits: Limits) -> Path:
    """The path of the folder as a program in the jail sees it."""
    return folder.resolve() if limits.weak else _inside()


@cache
def _inside() -> Path:
    asked = [str(tool("judge-jail")), "--where"]
    return Path(subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip())


def emulated() -> Path:
    """The folder of the emulated driver."""
    return root() / "lib/emulated"


def in_jail(folder: Path, command: Sequence[str], environment: Mapping[str, str], limits: Limits = Limits()) -> Ended:
    """Run a program to its end. Its files are in the folder afterwards, its output in the files stdout and stderr."""
    limit = [f"--{name}={value}" for name, value in vars(limits).items() if name != "weak"]
    limit += ["--weak"] if limits.weak else []
    with tempfile.TemporaryDirectory(prefix="flashladder.") as outside:
        report = Path(outside) / "report.json"
        jail = [str(tool("judge-jail")), *limit, f"--report={report}", str(folder), "--", *command]
        done = subprocess.run(
            jail, env=dict(environment), stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace"
        )
        message = json.loads(report.read_text(encoding="utf-8"))["message"] if report.is_file() else ""
    if done.returncode == UNAVAILABLE:
        raise NoJail(f"judge-jail: {message or done.stderr.strip()}. --weak-jail judges without them: {WEAK}")
    if done.returncode not in (EXITED, FAILED, SIGNAL, TIMEOUT, MEMORY, PROCESSES, FILES, ATTACKED):
        raise AnalysisError(f"judge-jail ended with status {done.returncode}: {done.stderr.strip()[-400:]}")
    said = [
        text
        for name in ("stderr", "stdout")
        if (text := read_plain(folder / name, 1 << 20).decode(errors="replace").strip())
    ]
    return Ended(done.returncode, message, said[0] if said else "")


def read_plain(path: Path, most: int = MOST_BYTES) -> bytes:
    """A file that a jail has left, "" if there is none. Links, pipes and larger files are not opened to their end."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return b""
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(handle)
        return file.read(most) if stat.S_ISREG(found.st_mode) and found.st_size <= most else b""


def submission_environment(arch: str, gpu: str, folder: Path, runs: bool = True) -> dict[str, str]:
    """Environment of a submission's process: emulated drivers, also for Triton and Numba, and where it is recorded.

    `folder` is the path that the process sees. Its kernels are recorded only unless it `runs` them.
    """
    library, ptxas = str(emulated()), str(emulated() / "ptxas")
    try:
        nvcc = find_tool("nvcc")
        compiler = {"JUDGE_NVCC": str(nvcc), "CUDA_HOME": str(nvcc.parent.parent)}
    except AnalysisError:
        compiler = {}  # a submission that brings PTX needs none
    return (
        compiler
        | {
            "PATH": ":".join([*([str(Path(compiler["JUDGE_NVCC"]).parent)] if compiler else []), PATH]),
            "LD_LIBRARY_PATH": library,
            "TRITON_LIBCUDA_PATH": library,
            "TRITON_PTXAS_PATH": ptxas,
            "TRITON_PTXAS_BLACKWELL_PATH": ptxas,
            "TRITON_CACHE_DIR": str(folder / "triton"),
            "NUMBA_CUDA_DRIVER": f"{library}/libcuda.so.1",
            "NUMBA_CACHE_DIR": str(folder / "numba"),
            "HOME": str(folder),
            "TMPDIR": str(folder),
            "PYTHONHASHSEED": "0",
            "PYTHONDONTWRITEBYTECODE": "1",
            "OMP_NUM_THREADS": "1",
            "LANG": "C.UTF-8",
            "JUDGE_ARCH": arch,
            "EMULATED_GPU_ARCH": arch,
            "EMULATED_GPU_STEPS": "20000000",
            "EMULATED_GPU_NOTES": str(folder / "notes"),
            "EMULATED_GPU_RECORD": str(folder / "recording"),
        }
        | ({"EMULATED_GPU_MODEL": gpu} if gpu else {})
        | ({} if runs else {"EMULATED_GPU_RECORD_ONLY": "1"})
    )


def refuse_unknown_gpu(arch: str, gpu: str) -> None:
    """Raise if the emulated driver knows no such architecture or GPU."""
    ask = "import ctypes; raise SystemExit(ctypes.CDLL('libcuda.so.1').cuInit(0))"
    wanted = {"LD_LIBRARY_PATH": str(emulated()), "EMULATED_GPU_ARCH": arch, "EMULATED_GPU_MODEL": gpu}
    done = subprocess.run([sys.executable, "-c", ask], env=wanted, capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.strip().removeprefix("emulated GPU: ")
        raise AnalysisError(said.replace("EMULATED_GPU_ARCH=", "--arch ").replace("EMULATED_GPU_MODEL=", "--gpu "))


def refuse_missing_tool(said: str, python: str) -> None:
    """Raise if the output of a submission complains about a compiler that this machine really lacks."""
    if "No such file or directory: 'nvcc'" in said:
        find_tool("nvcc")
    needs_compiler = "Failed to find C compiler" in said or "Failed to preprocess host compiler" in said  # Triton, nvcc
    if needs_compiler and not any(shutil.which(each, path=PATH) for each in ("gcc", "clang")):
        raise AnalysisError(f"no compiler for the host is in {PATH}: install g++ and, for Triton, python3-dev")
    if "Python.h: No such file" in said:
        ask = "import sysconfig; print(sysconfig.get_path('include'))"
        folder = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=False).stdout.strip()
        if not Path(folder, "Python.h").exists():
            raise AnalysisError(
                f"Triton needs {folder}/Python.h: install the headers of this Python, on Debian python3-dev"
            )


def interpreter(name: str) -> str:
    """Absolute path of the Python that runs submissions: this one, or the one that --python names."""
    path = Path(name or sys.executable)
    if not os.access(path, os.X_OK):
        raise AnalysisError(f"--python {name}: cannot be executed")
    if path.absolute().is_relative_to(_inside()):
        raise AnalysisError(f"{path}: the jail replaces {_inside()} by a folder of its own; move this Python elsewhere")
    return str(path.absolute())
