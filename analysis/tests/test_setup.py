"""Packages that make installs: requirements.lock pins all of them, and a goal fetches only the group that it needs."""

import importlib.util
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from analysis.files import read_text, root
from analysis.tests.support.copies import environment

PROJECT = tomllib.loads(read_text(root() / "pyproject.toml"))
LOCK = read_text(root() / "requirements.lock")
GROUPS = dict(re.findall(r"^# group (\w+)\n((?:.+\n)+)", LOCK, re.MULTILINE))


def locked(group: str) -> dict[str, str]:
    """Versions by package."""
    return dict(re.findall(r"^(\S+)==(\S+)", GROUPS[group], re.MULTILINE))


def test_the_lock_holds_every_group_as_it_is_pinned() -> None:
    assert list(GROUPS) == list(PROJECT["dependency-groups"])
    for group, pins in PROJECT["dependency-groups"].items():
        assert {tuple(pin.split("==")) for pin in pins} <= set(locked(group).items()), group
    assert PROJECT["build-system"]["requires"] == PROJECT["dependency-groups"]["wheel"]


def test_every_package_of_the_lock_has_a_hash_and_no_address() -> None:
    for text in GROUPS.values():
        packages = re.split(r"\n(?=\S)", text.strip())
        assert all(
            re.fullmatch(r"[a-z0-9.-]+==\S+( ; .*)?( \\\n    --hash=sha256:[0-9a-f]{64})+", each) for each in packages
        )
    assert "://" not in LOCK


@pytest.fixture
def lock(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("lock", root() / "make/lock.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "lock", module)
    spec.loader.exec_module(module)
    return module


PYTHON = """#!/bin/sh
case "$*" in
  "-m venv "*) mkdir -p "$3/bin"; cp "$0" "$3/bin/python" ;;
  "-m pip --version") ;;
  "-m pip install "*)
    for file; do :; done
    echo "$(cat "$file" | sed -n 's/==.*//p' | tr '\\n' ' ')" >>"$FETCHED"; [ ! -e "$FETCHED.fails" ] ;;
  *print*) echo 3.99 ;;
esac
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The files that make needs to install, with a Python that records the packages that pip should fetch."""
    for name in ("Makefile", "make", "kernels"):
        (tmp_path / name).symlink_to(root() / name)
    (tmp_path / "python").write_text(PYTHON)
    (tmp_path / "python").chmod(0o755)
    text = "# Wheels for Python 3.11, 3.12 on Linux.\n\n# group compiler\nnvcc==1\ncrt==1\n\n# group tests\npytest==1\n"
    (tmp_path / "requirements.lock").write_text(text)
    return tmp_path


def setup(tree: Path, goal: str) -> subprocess.CompletedProcess[str]:
    command = ["make", f"PYTHON={tree}/python", goal]
    return subprocess.run(
        command, cwd=tree, env=environment() | {"FETCHED": str(tree / "fetched")}, capture_output=True, text=True
    )


def fetched(tree: Path) -> list[str]:
    """The arguments of pip since the last call of this function."""
    file = tree / "fetched"
    lines = file.read_text().splitlines() if file.exists() else []
    file.unlink(missing_ok=True)
    return [line.strip() for line in lines]


COMPILER, TESTS = ".venv/compiler.installed", ".venv/tests.installed"


def test_one_group_is_fetched_with_one_line(tree: Path) -> None:
    done = setup(tree, COMPILER)
    assert (done.returncode, done.stderr, fetched(tree)) == (0, "", ["nvcc crt"])
    assert re.fullmatch(r"  SETUP    pinned CUDA toolkit .* into \.venv, once\n", done.stdout)
    assert (tree / ".venv/toolkit").is_symlink()
    assert setup(tree, TESTS).returncode == 0 and fetched(tree) == ["pytest"]


def test_only_a_group_that_changed_is_fetched_again(tree: Path) -> None:
    lock = tree / "requirements.lock"
    setup(tree, COMPILER)
    setup(tree, TESTS)
    assert fetched(tree) == ["nvcc crt", "pytest"]
    lock.write_text(lock.read_text().replace("pytest==1", "pytest==2"))
    os.utime(lock, (2e9, 2e9))
    for goal in (COMPILER, TESTS, COMPILER, TESTS):
        assert setup(tree, goal).returncode == 0
    assert fetched(tree) == ["pytest"]


def test_what_failed_says_how_to_go_on_and_is_tried_again(tree: Path) -> None:
    (tree / "fetched.fails").touch()
    for _ in range(2):
        failed = setup(tree, TESTS)
        assert failed.returncode == 2 and fetched(tree) == ["pytest"] and not (tree / TESTS).exists()
        assert "the packages cannot be reached; run make again to continue" in failed.stderr
        wheels = "requirements.lock has wheels for Python 3.11, 3.12, and .venv has 3.99: run `make distclean`"
        assert wheels in failed.stderr
    (tree / "fetched.fails").unlink()
    assert setup(tree, TESTS).returncode == 0 and fetched(tree) == ["pytest"]


def test_a_version_is_built_with_the_compiler_alone(tmp_path: Path) -> None:
    sources = ["analysis", "common", "emulator", "harness", "kernels", "make", "runtime"]
    for name in ("Makefile", "requirements.lock", *sources):
        (tmp_path / name).symlink_to(root() / name)
    said = subprocess.run(["make", "-n", "v07"], cwd=tmp_path, env=environment(), capture_output=True, text=True)
    assert said.returncode == 0 and "compiler.installed" in said.stdout
    assert "tests.installed" not in said.stdout and "wheel.installed" not in said.stdout
