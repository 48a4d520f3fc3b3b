"""Every configuration of `tune` that a version accepts gives right results on the emulator, with nothing found."""

import json
import subprocess

import pytest

from analysis.files import root
from analysis.ladder.config import config_set
from analysis.ladder.headers import load_all, refusals

VERSIONS = load_all(root())


@pytest.mark.long
@pytest.mark.parametrize("name", list(VERSIONS))
def test_every_tune_config_is_right(name: str) -> None:
    folder = root() / "build" / "bin-tune"
    command = ["make", "--no-print-directory", "-j2", f"BIN={folder.relative_to(root())}", name, "KERNELS=tune"]
    built = subprocess.run(command, cwd=root(), capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr[-2000:]
    header = VERSIONS[name].header.config
    seq = "512" if header.tensor_copies else "256"  # every stage of the ring is used twice
    arguments = ["--backend", "emu", "--config", "all", "--batch", "1", "--heads", "1", "--seq", seq, "--quiet"]
    done = subprocess.run([folder / name, *arguments, "--json", "-"], capture_output=True, text=True, check=False)
    records = [json.loads(line) for line in done.stdout.splitlines()]
    wrong = [record["config"] for record in records if not record["check"]["pass"] or record["counters"]["findings"]]
    assert not wrong and done.returncode == 0, done.stderr[-2000:]
    accepted = {str(config) for config in config_set("tune", header) if not refusals(VERSIONS[name], config)}
    assert accepted <= {record["config"] for record in records}
