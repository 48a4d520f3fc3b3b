"""Figures that examples measure: one line of JSON each, with the machine, the versions and the command that gave it."""

from __future__ import annotations

import contextlib
import json
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

import flashladder


def _versions() -> dict[str, str]:
    found = {"flashladder": flashladder.backend().release, "python": sys.version.split()[0], "torch": torch.__version__}
    with contextlib.suppress(PackageNotFoundError):
        found["transformers"] = version("transformers")
    return found


def append(path: Path, figure: str, **values: Any) -> None:
    """Adds one figure to a file: logs/library/GPU.jsonl holds what is published."""
    where = torch.cuda.get_device_name() if torch.cuda.is_available() else "none: on the emulator"
    record = {"figure": figure, "gpu": where, **values, "versions": _versions(), "command": " ".join(sys.argv)}
    with path.open("a") as file:
        file.write(json.dumps(record) + "\n")
