"""A folder of made-up executables for tests of the commands that run bin/vNN."""

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

FIXTURES = Path(__file__).parents[1] / "fixtures"


def fake_program(script: str, program: Path) -> None:
    """An executable that runs a script of fixtures/ with this Python: `env python3` may be a slow wrapper of one.

    The script's first argument is the path of the executable.
    """
    command = shlex.join([sys.executable, "-I", "-S", str(FIXTURES / script)])
    program.write_text(f'#!/bin/sh\nexec {command} "$0" "$@"\n')
    program.chmod(0o755)


class FakeBin:
    """Executables v01, v02, … that print records; `set()` says how one behaves (see fixtures/fake_executable.py)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.how: dict[str, dict[str, Any]] = {}

    def set(self, version: str, **how: Any) -> None:
        """Add an executable or change its behavior."""
        fake_program("fake_executable.py", self.folder / version)
        self.how[version] = how
        (self.folder / "fake.json").write_text(json.dumps(self.how))

    def calls(self) -> list[str]:
        """The command lines so far."""
        path = self.folder / "calls.txt"
        return path.read_text().splitlines() if path.exists() else []


def fake_bin(folder: Path, monkeypatch: pytest.MonkeyPatch) -> FakeBin:
    """Executables where the commands look for them, and nothing to put before them."""
    made = FakeBin(folder / "bin")
    monkeypatch.setenv("BIN", str(made.folder))
    monkeypatch.setattr("analysis.measure.executables.peer_folder", lambda: folder / "peers")
    monkeypatch.delenv("LAUNCH", raising=False)
    return made


def fake_tool(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> FakeBin:
    """Executables, and a tool of that name on the PATH: it prints what FAKE_TOOL holds."""
    tools = folder / "tools"
    tools.mkdir()
    fake_program("fake_sanitizer.py", tools / name)
    monkeypatch.setenv("PATH", str(tools), prepend=":")
    return fake_bin(folder, monkeypatch)
