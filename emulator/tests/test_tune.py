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

pytestmark = pytest.mark.tune


VERSIONS = load_all(ROOT)


def accepted(version: Version) -> list[KernelConfig]:
    return [config for config in config_set("tune", version.header.config) if not refusals(version, config)]


def in_turn(configs: list[KernelConfig]) -> list[KernelConfig]:
    """One of each pair that differs in the element type alone, now of the first and now of the second."""
    pairs: dict[KernelConfig, list[KernelConfig]] = {}
    for config in configs:
        pairs.setdefault(config.replace(dtype=configs[0].dtype), []).append(config)
    return [pair[number % len(pair)] for number, pair in enumerate(pairs.values())]


@pytest.mark.parametrize("name", VERSIONS)
def test_every_tune_config_is_right(name: str, tmp_path: Path) -> None:
    version = VERSIONS[name]
    if not (configs := in_turn(accepted(version))):
        pytest.skip(f"{name} accepts none")
    ptx, said = compiled(version, configs, tmp_path)
    assert ptx.exists(), said
    for config in configs:
        seq = 512 if config.tensor_copies else 256  # every stage of the ring is used twice
        worst, findings = Launch(config.symbol(), seq).worst(ptx, tmp_path)
        assert worst <= 1 and not findings, f"{config}: {worst}\n{findings}"


@pytest.mark.parametrize("one_arch", [False, True], ids=["mma_sync", "wgmma"])
def test_the_executable_has_every_tune_config(one_arch: bool) -> None:
    """Of the version with the fewest."""
    configs = {name: accepted(version) for name, version in VERSIONS.items() if version.one_arch == one_arch}
    name = min((name for name in configs if configs[name]), key=lambda name: len(configs[name]))
    folder = ROOT / "build/bin-tune"
    command = ["make", "--no-print-directory", f"BIN={folder.relative_to(ROOT)}", name, "KERNELS=tune"]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr[-2000:]
    arguments = ["--backend", "emu", "--config", "all", "--batch", "1", "--heads", "1", "--seq", "512", "--quiet"]
    done = subprocess.run([folder / name, *arguments, "--json", "-"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    records = [json.loads(line) for line in done.stdout.splitlines()]
    assert {str(config) for config in configs[name]} <= {record["config"] for record in records}
    assert not [record for record in records if not record["check"]["pass"] or record["counters"]["findings"]]
