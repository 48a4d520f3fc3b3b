"""A newcomer's walk: docs/adding-a-version.md, command by command, in a copy of the checkout."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from analysis.files import root
from analysis.ladder.headers import kernel_files
from analysis.tests.support.copies import LINKED, checkout, environment, lend_objects

PAGE = root() / "docs/adding-a-version.md"
NEEDS_A_GPU = "needs a GPU"
NOT_HERE = ("make check", "make notebooks")  # the whole test run; the notebooks, of which the walk runs the first
HEADER = re.compile(r"/\* v\d\d - .*?\*/\n", re.DOTALL)


def steps() -> list[str]:
    """The commands of the page in order, without those that need a GPU."""
    lines = [line.strip() for line in PAGE.read_text().splitlines() if re.match(r" {7,}(cp|make|\./bin/)", line)]
    return [re.sub(r"\s{2,}#.*", "", line) for line in lines if NEEDS_A_GPU not in line]


def test_the_page_holds_the_whole_way() -> None:
    text = "\n".join(steps())
    for word in (
        "cp ",
        "make diff",
        "make v99",
        "make sass-diff",
        "make regs sass",
        "make accept",
        "make ladder",
        "make check",
    ):
        assert word in text


def write_idea(folder: Path, parent: str) -> None:
    """Steps 2 and 3 of the page: a header block of its own, and one change."""
    path = folder / "kernels/v99_my_idea.cu"
    text = path.read_text()
    found = re.search(r"^ \* config .*?(?=^ \* arch)", text, re.MULTILINE | re.DOTALL)
    assert found
    header = (
        "/* v99 - wait less in the hand-over\n *\n"
        f" * parent    {parent}\n"
        " * idea      nothing new, to see that a version is picked up everywhere\n"
        " * predict   loop within 2 instructions of its parent\n"
        f"{found[0]} * arch      sm_80\n */\n"
    )
    text = HEADER.sub(lambda _: header, text, count=1)
    text, changed = re.subn(r"\n(#pragma unroll 1\n)", r"\n    if (n_blocks < 1) return;\n\1", text, count=1)
    assert changed == 1
    path.write_text(text)


def run(folder: Path, command: str) -> str:
    done = subprocess.run(
        ["bash", "-e", "-c", command], cwd=folder, env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout + done.stderr


def walk(folder: Path, parent: str, archs: str) -> None:
    file = kernel_files(root())[parent]
    checkout(folder, [f"kernels/{file.name}", "README.md"], [name for name in LINKED])
    for name in ("analysis", "docs", "notebooks"):
        shutil.copytree(root() / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "tests"))
    lend_objects(folder)
    said = {}
    for command in steps():
        if command in NOT_HERE:
            continue
        command = command.replace("kernels/v16_static_stride.cu", f"kernels/{file.name}").replace("v16", parent)
        said[command.split(" && ")[0].split(" VER=")[0]] = run(folder, f"export ARCHS='{archs}'; {command}")
        if command.startswith("cp "):
            write_idea(folder, parent)
    assert f"{parent} -> v99: 1 lines" in said[f"make diff A={parent} B=v99"]
    assert "correct:" in said["make v99"]
    assert "loop" in said[f"make sass-diff A={parent} B=v99"]
    for arch in archs.split():
        assert (folder / f"sass/v99.sm_{arch}.sass").exists()
        assert re.search(rf"^v99,sm_{arch},", (folder / "regs/baseline.csv").read_text(), re.MULTILINE)
    run(folder, f".venv/bin/python -m analysis gate --version v99 --archs '{archs}' --exit-code")
    for page in ("kernels/README.md", "README.md", "build/report.md", "build/report.html", "docs/ladder.svg"):
        assert "v99" in (folder / page).read_text(), page
    assert re.search(r"^v99,", (folder / "regs/traffic.csv").read_text(), re.MULTILINE)
    run(folder, ".venv/bin/python -m analysis notebooks 01 --write")
    (book,) = (folder / "notebooks").glob("01_*.ipynb")
    outputs = [output for cell in json.loads(book.read_text())["cells"] for output in cell.get("outputs", [])]
    assert any("v99" in "".join(output.get("data", {}).get("text/plain", "")) for output in outputs)


def test_a_newcomer_adds_a_small_version(tmp_path: Path) -> None:
    walk(tmp_path / "copy", "v02", "80")


@pytest.mark.long
def test_a_newcomer_follows_the_last_version(tmp_path: Path) -> None:
    walk(tmp_path / "copy", max(kernel_files(root())), "80 90")
