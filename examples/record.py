"""Figures that examples measure: one line of JSON each, with the machine, the versions and the command that gave it."""

from __future__ import annotations

import argparse
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


def file(text: str) -> Path:
    """The file of --record, for argparse: one that can be appended to, as is known before anything is measured."""
    path = Path(text)
    try:
        with path.open("a"):
            return path
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{text}: {error.strerror}: name a file that can be written") from error


def append(path: Path, figure: str, **values: Any) -> None:
    """Adds one figure to a file: logs/library/GPU.jsonl holds what is published. If that fails, it ends the program
    with the measurement in its message."""
    where = torch.cuda.get_device_name() if torch.cuda.is_available() else "none: on the emulator"
    record = {"figure": figure, "gpu": where, **values, "versions": _versions(), "command": " ".join(sys.argv)}
    try:
        with path.open("a") as stream:
            stream.write(json.dumps(record) + "\n")
    except OSError as error:
        sys.exit(f"{path}: {error.strerror}; what it was to hold:\n{json.dumps(record)}")
