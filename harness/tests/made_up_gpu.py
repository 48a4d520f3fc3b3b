"""bin/v01 as a person would run it, without a GPU or with the made-up driver of faulty_cuda.c."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
V01 = ROOT / "bin/v01"
OWN = "(FP16, 128, 64, 64, 4): async+load_0_0_0_tiles"
SMALL = ("--batch", "1", "--heads", "2", "--seq", "128")
NOISY = "times=20:40"  # ms: its median is never certain
SLOW = "clocks=500"  # MHz: a third of the peak clock
NEEDS_V01 = pytest.mark.skipif(not V01.exists(), reason="bin/v01 is not built: make v01")


def run(*arguments: str, program: Path = V01, **environment: str) -> subprocess.CompletedProcess[str]:
    """bin/v01 or another with no driver to be found, unless the environment says where one is."""
    env = {"PATH": "/usr/bin:/bin", "LD_LIBRARY_PATH": "/nowhere", **environment}
    return subprocess.run([program, *arguments], capture_output=True, text=True, env=env, timeout=600, cwd=ROOT)


def made_up(driver: str, how: str) -> dict[str, str]:
    """The environment of a made-up GPU and of its host; `how` is FAKE_CUDA."""
    return {"LD_LIBRARY_PATH": driver, "LD_PRELOAD": f"{driver}/libcuda.so.1", "FAKE_CUDA": how}


def on_fake(driver: str, how: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """bin/v01 with a small problem on the made-up GPU."""
    return run(*SMALL, "--min-time", "0.1", *arguments, **made_up(driver, how), **environment)


def records(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    """The records of a run with --json -."""
    return [json.loads(line) for line in done.stdout.splitlines()]


def timing(driver: str, how: str, *arguments: str) -> dict[str, Any]:
    """The timing of one record."""
    (record,) = records(on_fake(driver, how, *arguments, "--json", "-"))
    measured: dict[str, Any] = record["timing"]
    return measured
