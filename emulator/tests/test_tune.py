"""Every configuration of `tune` that a version accepts gives right results, with nothing found.

In one element type of two, in turn: the other one changes no other field. ptxas, which takes most of the time of
`make KERNELS=tune`, has nothing to do with it; that the executable holds and runs them all is seen of two versions.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from support.compiled import compiled
from support.emulation import ROOT
from support.versions import Launch

from analysis.ladder.config import KernelConfig, config_set
from analysis.ladder.headers import Version, load_all, refusals

pytestmark = pytest.mark.long


def accepted(version: Version) -> list[KernelConfig]:
    return [config for config in config_set("tune", version.header.config) if not refusals(version, config)]


TUNED = [version for version in load_all(ROOT).values() if accepted(version)]
# Of each folder the one with the fewest.
BUILT = {version.one_arch: version for version in sorted(TUNED, key=lambda each: len(accepted(each)), reverse=True)}


def in_turn(configs: list[KernelConfig]) -> list[KernelConfig]:
    """One of each pair that differs in the element type alone, now of the first and now of the second."""
    others: dict[KernelConfig, list[KernelConfig]] = {}
    for config in configs:
        others.setdefault(config.replace(dtype=configs[0].dtype), []).append(config)
    return [pair[number % len(pair)] for number, pair in enumerate(others.values())]


@pytest.mark.parametrize("version", TUNED, ids=lambda version: version.version)
def test_every_tune_config_is_right(version: Version, tmp_path: Path) -> None:
    configs = in_turn(accepted(version))
    ptx, said = compiled(version, configs, tmp_path)
    assert ptx.exists(), said
    for config in configs:
        seq = 512 if config.tensor_copies else 256  # every stage of the ring is used twice
        worst, findings = Launch(config.symbol(), seq).worst(ptx, tmp_path)
        assert worst <= 1 and not findings, f"{config}: {worst}\n{findings}"


@pytest.mark.parametrize("version", BUILT.values(), ids=lambda version: version.version)
def test_the_executable_has_every_tune_config(version: Version) -> None:
    name, folder = version.version, ROOT / "build/bin-tune"
    command = ["make", "--no-print-directory", f"BIN={folder.relative_to(ROOT)}", name, "KERNELS=tune"]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr[-2000:]
    arguments = ["--backend", "emu", "--config", "all", "--batch", "1", "--heads", "1", "--seq", "512", "--quiet"]
    done = subprocess.run([folder / name, *arguments, "--json", "-"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert {str(config) for config in accepted(version)} <= {
        json.loads(line)["config"] for line in done.stdout.splitlines()
    }
