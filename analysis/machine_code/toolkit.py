"""The CUDA tools that analysis calls.

    listing = run("nvdisasm", ["-c", str(cubin)])

A tool comes from $CUDA/bin when that is set (make CUDA=... exports it), else from the pinned wheels in .venv, else from
the PATH.
"""

import os
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from analysis.errors import AnalysisError
from analysis.files import root


@cache
def find_tool(name: str) -> Path:
    """Path of a toolkit program; AnalysisError names the places looked at."""
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


def start(tool: str, arguments: Sequence[str], folder: Path | None = None) -> subprocess.Popen[str]:
    """Starts a tool, in `folder` when given; finish() waits for it. Two started tools run side by side."""
    return subprocess.Popen(
        [str(find_tool(tool)), *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )


def finish(process: subprocess.Popen[str]) -> str:
    """Standard output of a started tool; AnalysisError with its own message when it failed."""
    output, errors = process.communicate()
    if process.returncode != 0:
        command = [str(part) for part in process.args] if isinstance(process.args, list) else [str(process.args)]
        reason = errors.strip() or output.strip()[-400:] or "no message"
        raise AnalysisError(f"{Path(command[0]).name} {' '.join(command[1:])}: exit {process.returncode}: {reason}")
    return output


def run(tool: str, arguments: Sequence[str], folder: Path | None = None) -> str:
    return finish(start(tool, arguments, folder))
