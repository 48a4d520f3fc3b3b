"""A bare machine suffices: headers and tools are those that README asks for and those that we pin, and no others."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from analysis.files import root
from analysis.tests.support.copies import checkout, lend_objects

# Programs of the packages that README names: compilers include binutils.
BROUGHT = {
    "gcc": ("gcc", "cc", "cpp", "as", "ld", "c++filt", "nm", "readelf"),
    "g++": ("g++", "c++"),
    "make": ("make",),
    "git": ("git",),
    "python3": ("python3",),
}
# Commands that every Debian-like system has: coreutils, diffutils, grep, sed, awk and a shell.
ESSENTIAL = """
awk basename bash cat chmod cksum cmp cp cut date dirname echo env expr false grep head ln ls mkdir mktemp mv
nproc paste printf pwd readlink rm rmdir sed sh sleep sort tail tee test touch tr true uname uniq wc
"""


def documented(readme: str) -> list[str]:
    """The tools that README asks for: `… with gcc, g++, make, git and python3 …`."""
    lists = re.findall(r"\bwith ([\w+]+(?:,\s[\w+]+)*\sand\s[\w+]+)", readme)
    (tools,) = (re.split(r",\s|\sand\s", text) for text in lists if re.match(r"gcc\b", text))
    return tools


def program(name: str) -> Path:
    """The program of that name; a compiler itself, not the cache before it."""
    if name == "python3":
        return Path(sys.executable).resolve()
    for folder in os.environ["PATH"].split(os.pathsep):
        found = shutil.which(name, path=folder)
        if found and Path(found).resolve().name != "ccache":
            return Path(found)
    raise AssertionError(f"{name} is not installed")


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds the documented tools alone."""
    folder = tmp_path_factory.mktemp("tools")
    asked_for = documented((root() / "README.md").read_text())
    for name in [*(name for tool in asked_for for name in BROUGHT[tool]), *ESSENTIAL.split()]:
        (folder / name).symlink_to(program(name))
    return folder


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = checkout(
        tmp_path_factory.mktemp("bare") / "copy",
        ["kernels/mma_sync/v01_base.cu", "kernels/mma_sync/v02_swizzle.cu", "fl"],
    )
    lend_objects(folder)
    return folder


def run_bare(copy: Path, tools: Path, command: str) -> subprocess.CompletedProcess[str]:
    bare = {"PATH": str(tools), "HOME": str(copy), "LC_ALL": "C.UTF-8"}
    return subprocess.run(["bash", "-c", command], cwd=copy, env=bare, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "command",
    [
        "make v01 && ./bin/v01 --seq 64 --heads 1 --check 16",
        "set -o pipefail; make -W emulator/tool/ptxrun.c bin/ptxrun | grep CC",
        "make regs VER=v01",
        pytest.param("make sass-diff A=v01 B=v02", marks=pytest.mark.long),
        "./fl counts v01",
        "make help",
    ],
)
def test_goals_need_the_documented_tools_alone(copy: Path, tools: Path, command: str) -> None:
    done = run_bare(copy, tools, command)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "not found" not in done.stdout + done.stderr
