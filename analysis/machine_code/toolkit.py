"""The CUDA tools that analysis calls.

    listing = run("nvdisasm", ["-c", str(cubin)])

A tool comes from $CUDA/bin when that is set (make CUDA=... exports it), else from the pinned wheels in .venv, else from
the PATH. If this package is installed without a checkout, $CUDA_HOME has the meaning of $CUDA, and NVIDIA's wheels next
to it replace the pinned ones.
"""

import os
import shutil
import subprocess
import threading
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from analysis.errors import AnalysisError
from analysis.files import in_checkout, root

DEFAULT_TOOLKIT = Path("/usr/local/cuda")
AT_ONCE = 2  # nvdisasm takes 150 MB for a cubin of 2 MB
_SLOTS = threading.BoundedSemaphore(AT_ONCE)


@cache
def find_tool(name: str) -> Path:
    """Path of a toolkit program; AnalysisError names the folders that were searched."""
    if not in_checkout():
        return _find_installed(name)
    cuda = os.environ.get("CUDA")
    pinned = [root() / ".venv/toolkit/bin", *(root() / ".venv/lib").glob("python3*/site-packages/nvidia/cu13/bin")]
    folders = [Path(cuda) / "bin"] if cuda else pinned
    for folder in folders:
        if os.access(folder / name, os.X_OK):
            return folder / name
    found = None if cuda else shutil.which(name)
    if found:
        return Path(found)
    looked = ", ".join(str(folder) for folder in folders)
    raise AnalysisError(f"{name} not found in {looked}: run `make setup`, or set CUDA to an installed toolkit")


PACKAGES = {"nvcc": "flashladder-tools[nvcc]"}  # those of other tools are called as they are


def _find_installed(name: str) -> Path:
    """The tool if there is no checkout."""
    named = [Path(os.environ[each]) / "bin" for each in ("CUDA", "CUDA_HOME") if os.environ.get(each)]
    wheels = sorted((root().parent / "nvidia").glob("*/bin"), reverse=True)  # cu13, or a folder a tool in CUDA 12's
    on_path = [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    for folder in (*named, *wheels, *on_path, DEFAULT_TOOLKIT / "bin"):
        if (folder / name).is_file() and os.access(folder / name, os.X_OK):
            return folder / name
    looked = ", ".join(map(str, [*named, "the PATH", DEFAULT_TOOLKIT / "bin"]))
    package = PACKAGES.get(name, f"nvidia-cuda-{name}")
    raise AnalysisError(
        f"{name} is neither next to this package nor in {looked}: run `pip install '{package}'`, or set CUDA_HOME to "
        "an installed toolkit"
    )


def execute(command: Sequence[str], folder: Path | None) -> subprocess.CompletedProcess[str]:
    """Runs a tool to its end."""
    return subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
        errors="replace",
        check=False,
    )


class Running:
    """A tool at work, or waiting until fewer than AT_ONCE others are."""

    def __init__(self, command: list[str], folder: Path | None) -> None:
        self.command = command
        self.folder = folder
        self.done: subprocess.CompletedProcess[str] | None = None
        self.failure: OSError | None = None
        self.thread = threading.Thread(target=self._work, daemon=True)
        self.thread.start()

    def _work(self) -> None:
        with _SLOTS:
            try:
                self.done = execute(self.command, self.folder)
            except OSError as error:
                self.failure = error


def start(tool: str, arguments: Sequence[str], folder: Path | None = None) -> Running:
    """Starts a tool, in `folder` when given; finish() waits for it. Started tools run side by side, AT_ONCE of them."""
    return Running([str(find_tool(tool)), *arguments], folder)


def finish(running: Running) -> str:
    """Standard output of a started tool; AnalysisError with its own message when it failed."""
    running.thread.join()
    if running.failure:
        raise running.failure
    done = running.done
    assert done is not None
    if done.returncode != 0:
        reason = done.stderr.strip() or done.stdout.strip()[-400:] or "no message"
        command = " ".join(running.command[1:])
        raise AnalysisError(f"{Path(running.command[0]).name} {command}: exit {done.returncode}: {reason}")
    return done.stdout


def run(tool: str, arguments: Sequence[str], folder: Path | None = None) -> str:
    return finish(start(tool, arguments, folder))
