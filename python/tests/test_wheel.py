"""`make wheel`: what is in the wheel, that its tag is true, that it installs and runs. The build fetches setuptools."""

import os
import platform
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from fake_frameworks import ROOT

pytestmark = pytest.mark.long


def run(*command: object, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=600, **options)  # type: ignore[call-overload, no-any-return]


def holds_the_package_and_the_library(wheel: Path) -> None:
    names = {re.sub(r"^flashladder-[^/]*/", "", name) for name in zipfile.ZipFile(wheel).namelist()}
    sources = {f"flashladder/{path.name}" for path in (ROOT / "python/flashladder").glob("*.py")}
    wanted = sources | {"flashladder/libflashladder.so", "flashladder/py.typed"}
    assert {name for name in names if name.startswith("flashladder/")} == wanted and "licenses/LICENSE" in names
    assert wheel.stat().st_size < 40 << 20


def says_what_it_is(wheel: Path) -> None:
    """The version differs with what is packed; no path of the machine that built it is inside."""
    with zipfile.ZipFile(wheel) as packed:
        contents = {name: packed.read(name) for name in packed.namelist()}
    (metadata,) = (data.decode() for name, data in contents.items() if name.endswith("/METADATA"))
    assert re.search(r"^Version: \d+\.\d+\.\d+\+sha[0-9a-f]{12}$", metadata, re.MULTILINE)
    assert "Project-URL: FlashAttention" in metadata and "help(flashladder.attention)" in metadata
    assert [name for name, data in contents.items() if str(ROOT).encode() in data] == []


def is_the_same_each_time(wheel: Path) -> None:
    before = wheel.read_bytes()
    done = run("make", "wheel", cwd=ROOT)
    assert done.returncode == 0 and wheel.read_bytes() == before, done.stderr


def has_a_true_tag(wheel: Path) -> None:
    """The newest glibc among the imported symbols; nothing else than glibc is needed."""
    library = ROOT / "lib/libflashladder.so"
    symbols = run("objdump", "-T", library, check=True).stdout
    newest = max((int(a), int(b)) for a, b in re.findall(r"GLIBC_(\d+)\.(\d+)", symbols))
    assert wheel.name.endswith(f"-py3-none-manylinux_{newest[0]}_{newest[1]}_x86_64.whl")
    needed = set(re.findall(r"NEEDED +(\S+)", run("objdump", "-p", library, check=True).stdout))
    assert needed <= {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "ld-linux-x86-64.so.2"}


def installs_and_runs(wheel: Path, folder: Path) -> None:
    """In an empty environment, without an index."""
    run(sys.executable, "-m", "venv", folder / "venv", check=True)
    python = folder / "venv/bin/python"
    run(python, "-m", "pip", "install", "--no-index", "--disable-pip-version-check", wheel, check=True)
    program = (
        "import flashladder; print(flashladder.backend().library); print(*[v.name for v in flashladder.versions()])"
    )
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "FLASHLADDER_LIBRARY")}
    library, versions = run(python, "-c", program, cwd=folder, env=clean, check=True).stdout.splitlines()
    assert Path(library).is_relative_to(folder / "venv") and "attention/wgmma" in versions.split()


def says_what_is_missing() -> None:
    command = (sys.executable, "-m", "pip", "wheel", "--no-deps", "-w", "build", ".")
    done = run(*command, cwd=ROOT, env={"PATH": "/nowhere"})
    said = "make is missing: docs/building.md says what else a build needs"
    assert done.returncode and said in done.stdout + done.stderr


def test_the_wheel(tmp_path: Path) -> None:
    """One test, as its builds share a folder."""
    done = run("make", "wheel", cwd=ROOT)
    assert done.returncode == 0, done.stderr
    (wheel,) = (ROOT / "dist").glob(f"flashladder-*linux*_{platform.machine()}.whl")  # `make wheel FOR=` has others
    holds_the_package_and_the_library(wheel)
    says_what_it_is(wheel)
    is_the_same_each_time(wheel)
    has_a_true_tag(wheel)
    installs_and_runs(wheel, tmp_path)
    says_what_is_missing()
