"""Copies of the checkout in which a test may change kernels: what is only read is a link, build outputs are new.

copy = checkout(tmp_path, ["kernels/mma_sync/v04_interleave.cu"])
make(copy, "DUMP=1", "v04")
"""

import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from analysis.files import root
from analysis.ladder.headers import kernel_files, read_version

LINKED = ("Makefile", "make", "requirements.lock", "common", "emulator", "runtime", "harness", ".venv")


def checkout(folder: Path, files: Iterable[str], linked: Iterable[str] = (*LINKED, "analysis")) -> Path:
    """A folder with copies of some files and links to the rest that make needs. A kernel brings its ancestors along."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in linked:
        (folder / name).symlink_to(root() / name)
    for name in dict.fromkeys(each for file in files for each in [*ancestors(file), file]):
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(root() / name, target)
    return folder


def ancestors(file: str) -> list[str]:
    """The kernel files that a kernel file descends from; a version without its parent is refused."""
    files = kernel_files(root())
    found: list[str] = []
    version = Path(file).name.partition("_")[0] if file.startswith("kernels/") else ""
    while version in files and (parent := read_version(files[version]).header.parent):
        found.insert(0, str(files[parent].relative_to(root())))
        version = parent
    return found


def lend_objects(folder: Path, variant: str = "") -> None:
    """Give the copy the harness objects that are built already; make finds out whether they are up to date."""
    for name in ("emulator", "runtime", "harness", "flags"):
        built, target = root() / "build" / name, folder / "build" / variant / name
        if built.is_dir():
            shutil.copytree(built, target, copy_function=shutil.copy2, dirs_exist_ok=True)


def whole_checkout(folder: Path) -> Path:
    """A copy of every file that is or may be committed, with the harness objects that are built already."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=root(), capture_output=True, text=True, check=True
    ).stdout.splitlines()
    for name in listed:
        if (root() / name).is_file() and name != ".venv":
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root() / name, folder / name)
    (folder / ".venv").symlink_to((root() / ".venv").resolve())
    lend_objects(folder)
    return folder


def environment() -> dict[str, str]:
    """Ours, without what a make that runs the tests has put there."""
    left_out = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "KERNELS", "PYTHONPATH", "LAUNCH", "BIN")
    return {name: value for name, value in os.environ.items() if name not in left_out}


def make(folder: Path, *arguments: str) -> str:
    """Run make in the copy; its output, or a failure that shows it."""
    done = subprocess.run(
        ["make", "--no-print-directory", *arguments],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"make {' '.join(arguments)}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout
