"""docs/debug-your-kernel.md: its kernel has the findings that the page shows, and its commands run."""

import re
import subprocess
from pathlib import Path

import pytest
from support.emulation import PTXRUN, ROOT

PAGE = (ROOT / "docs/debug-your-kernel.md").read_text()
KERNEL, STAGED = re.findall(r"```cuda\n(.*?)```", PAGE, re.S)
LAUNCHES = [line.strip() for line in PAGE.splitlines() if line.startswith("    ./bin/ptxrun ")]
SHOWN = re.findall(r"```text\n(.*?)```", PAGE, re.S)
BARRIER = ("threadIdx.x];\n", "threadIdx.x];\n    __syncthreads();\n")
FENCE = 'asm volatile("fence.proxy.async.shared::cta;" ::: "memory");'
PADDED = ("tile[32][32]", "tile[32][33]")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One CUDA file of each state, as sums.cu in a folder of its own."""
    top = tmp_path_factory.mktemp("page")
    fixed = KERNEL.replace(*BARRIER)
    for name, text in (("racy", KERNEL), ("fixed", fixed), ("padded", fixed.replace(*PADDED))):
        (top / name).mkdir()
        (top / name / "sums.cu").write_text(text)
    assert len({path.read_text() for path in top.glob("*/sums.cu")}) == 3
    ahead = STAGED.replace("__syncthreads();", f"{FENCE} __syncthreads();")
    fenced = STAGED.replace("    if (", f"    if (threadIdx.x == 0) {FENCE}\n    if (")
    unwaited = re.sub(r".*wait_group.*\n", "", fenced)
    for name, text in (("unfenced", STAGED), ("fenced", ahead), ("unwaited", unwaited)):
        (top / name).mkdir()
        (top / name / "doubled.cu").write_text(text)
    assert len({path.read_text() for path in top.glob("*/doubled.cu")}) == 3
    return top


def run(folder: Path, command: str) -> tuple[int, str]:
    """Exit status and output of a command of the page, without the folder in names of files."""
    words = [str(PTXRUN), *command.split()[1:]]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=600)
    return done.returncode, (done.stdout + done.stderr).replace(f"{folder}/", "")


def test_the_page_has_what_is_tested_here() -> None:
    assert len(LAUNCHES) == 6 and len(SHOWN) == 5 and FENCE in PAGE
    assert len(KERNEL.splitlines()) <= 10


def test_the_race(folder: Path) -> None:
    status, text = run(folder / "racy", LAUNCHES[0])
    assert status == 1 and SHOWN[0] in text and "uninitialised-shared" in text
    assert run(folder / "fixed", LAUNCHES[0]) == (0, "")


def test_the_bank_conflicts(folder: Path) -> None:
    status, text = run(folder / "fixed", LAUNCHES[1])
    assert status == 0 and all(line in text.splitlines() for line in SHOWN[1].splitlines())
    row = next(line.split() for line in run(folder / "padded", LAUNCHES[1])[1].splitlines() if "sums.cu:7" in line)
    assert row[2:4] == ["64", "64"]


def test_the_unset_data(folder: Path) -> None:
    status, text = run(folder / "fixed", LAUNCHES[2])
    assert status == 1 and SHOWN[2] in text


def test_the_output(folder: Path) -> None:
    assert run(folder / "fixed", LAUNCHES[4]) == (0, SHOWN[4])
    assert SHOWN[4].split()[6:8] == [str(sum(range(32))), str(sum(range(32, 64)))]


def test_the_proxy_fence(folder: Path) -> None:
    status, text = run(folder / "unfenced", LAUNCHES[3])
    assert status == 1 and SHOWN[3] in text and "1 finding:" in text
    assert run(folder / "fenced", LAUNCHES[3]) == (0, "")
    status, text = run(folder / "unwaited", LAUNCHES[3])
    assert status == 1 and "async-in-flight at doubled.cu:8" in text and "1 finding:" in text


def test_flags(folder: Path) -> None:
    status, text = run(folder / "fixed", LAUNCHES[5])
    assert status == 0 and text.startswith("_Z4sumsPKfPf\n")
