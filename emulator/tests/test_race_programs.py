"""Random programs: a race is reported where happens-before, found apart, says that there is one, and nowhere else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.emulation import ptxrun
from support.race_programs import made_up

SCHEDULES = (0, 1, 2)


def reported(seed: int, folder: Path) -> list[bool]:
    """By schedule, whether races were found; anything else is an error."""
    found = []
    for schedule in SCHEDULES:
        done = ptxrun(*made_up(seed).options(folder / "program.ptx"), "--schedule", schedule)
        classes = set(re.findall(r"^([a-z-]+) at ", done.stderr, re.M))
        assert classes <= {"race"} and done.returncode == bool(classes), (seed, done.returncode, done.stderr)
        found.append(bool(classes))
    return found


def check(seeds: range, folder: Path) -> int:
    """That verdicts agree; how many programs have a race."""
    racy = 0
    for seed in seeds:
        program, found = made_up(seed), reported(seed, folder)
        assert any(found) == program.racy, f"seed {seed}: {found}, and the oracle says {program.racy}"
        racy += program.racy
    return racy


def test_races_of_a_few_programs(tmp_path: Path) -> None:
    assert 2 <= check(range(8), tmp_path) <= 6


@pytest.mark.long
def test_races_of_many_programs(tmp_path: Path) -> None:
    assert 400 <= check(range(8, 1508), tmp_path) <= 800
