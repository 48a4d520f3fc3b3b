"""A newcomer's walk: docs/adding-a-version.md, command by command, in a copy of the checkout.

Two versions are added, one of each folder of kernels, and `make check VER=` looks at both.
"""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from analysis.files import root
from analysis.ladder.headers import TO_FILL_IN, kernel_files, load
from analysis.ladder.new import next_version
from analysis.tests.support.copies import environment, whole_checkout

PAGE = root() / "docs/adding-a-version.md"
EXAMPLE, ITS_PARENT = "v99", "v16"
NEEDS_A_GPU = "needs a GPU"
NOT_HERE = ("make check", "make ladder", "./fl notebooks")  # at the end of all walks; what follows a GPU's measurement


def steps() -> list[str]:
    """The commands of the page in order, without those that need a GPU."""
    lines = [line.strip() for line in PAGE.read_text().splitlines() if re.match(r" {7,}(make|\./bin/|\./fl)", line)]
    return [re.sub(r"\s{2,}#.*", "", line) for line in lines if NEEDS_A_GPU not in line]


def test_the_page_holds_the_whole_way() -> None:
    goals = [re.split(r" [A-Z]+=| && | v| --", step)[0] for step in steps()]
    assert [goal for goal in goals if goal.startswith(("make", "./fl"))] == [
        "./fl new", "make format", "make diff", "./fl configs", "make", "./fl race", "make sass-diff", "./fl why",
        "make adopt", "make check", "make check", "make ladder", "./fl notebooks",
    ]  # fmt: skip


def write_idea(path: Path, arch: str) -> None:
    """Steps 2 and 3 of the page: the lines to fill in, and one change."""
    text = path.read_text()
    values = {
        "idea": "nothing new, to see that a version is picked up everywhere",
        "predict": "loop within 20 instructions of its parent",
        "claims": f"loop_change@{arch}=0±20 speedup@4096=1.01±0.01",
    }
    for key, value in values.items():
        text, written = re.subn(rf"^( \* {key}\s+){TO_FILL_IN}.*$", rf"\g<1>{value}", text, flags=re.MULTILINE)
        assert written == 1, key
    text, changed = re.subn(r"(\bflash_forward\([^{;]*\{\n)", r"\1    if (gridDim.x < 1) return;\n", text)
    assert changed == 1
    path.write_text(text)


def run(folder: Path, command: str, status: int = 0) -> str:
    done = subprocess.run(
        ["bash", "-e", "-c", command], cwd=folder, env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == status, f"{command}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout + done.stderr


def walk(folder: Path, parent: str) -> str:
    """Adds a version, up to `make check`; its name."""
    version = next_version(folder)
    source = kernel_files(folder)[parent].with_name(f"{version}_my_idea.cu").relative_to(folder)
    archs = ["sm_90a"] if load(root(), parent).one_arch else ["sm_80", "sm_90"]
    said = {}
    for command in steps():
        if command.startswith(NOT_HERE):
            continue
        command = command.replace(EXAMPLE, version).replace(ITS_PARENT, parent)
        said[re.split(r" && | [A-Z]+=| --", command)[0]] = run(folder, command)
        if command.startswith("./fl new"):
            for goal in ("accept", "adopt"):
                left = run(folder, f"make {goal} VER={version} WHY=early", status=2)
                assert f'{source}: fill in the lines of its header block that say "FILL IN:"' in left
                assert not list((folder / "sass").glob(f"{version}.*"))  # nothing is recorded before
            write_idea(folder / source, archs[0])
    assert f"{source}: a copy of {parent}" in said["./fl new"]
    assert f"{parent} -> {version}: 1 lines" in said["make diff"]
    assert "loop" in said["make sass-diff"]
    assert f'make bench VER="{version}"' in said["make adopt"]  # what a GPU adds
    assert re.search(rf"{version} on h200, predicted, .* of {parent}'s speed", said["make adopt"])
    assert (folder / f"sass/{version}.{archs[-1]}.sass").exists()
    for arch in archs:
        assert re.search(rf"^{version},{arch},", (folder / "regs/registers.csv").read_text(), re.MULTILINE)
    table = (folder / "kernels/README.md").read_text().splitlines()
    assert any("not measured" in row for row in table if re.match(rf"\| \[?{version}\b", row))
    listed = f'"{version} ' in (folder / "notebooks/01_the_ladder.ipynb").read_text()
    assert listed == ("sm_80" in archs)  # the notebook compares loops of one kind
    return version


@pytest.mark.first
@pytest.mark.long
def test_a_newcomer_follows_a_version_of_each_folder(tmp_path: Path) -> None:
    folder = whole_checkout(tmp_path / "copy")
    for book in set((folder / "notebooks").glob("*.ipynb")) - set((folder / "notebooks").glob("01_*.ipynb")):
        book.unlink()  # the first has a row for each version
    added = [walk(folder, parent) for parent in ("v16", "v37")]
    run(folder, f'make check VER="{" ".join(added)}"')
    shutil.rmtree(folder)
