"""Small kernels for sm_90a: right, and without a finding under many schedules."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.hopper import KERNELS


def check(name: str, hopper_ptx: Path, schedule: int) -> None:
    done, output = KERNELS[name].run(hopper_ptx, hopper_ptx.parent, "--schedule", schedule)
    assert (done.returncode, done.stderr) == (0, "")
    assert output == KERNELS[name].right()


@pytest.mark.parametrize("schedule", [0, 1, 2])
@pytest.mark.parametrize("name", KERNELS)
def test_it_is_right_and_nothing_is_found(name: str, schedule: int, hopper_ptx: Path) -> None:
    check(name, hopper_ptx, schedule)


@pytest.mark.long
@pytest.mark.parametrize("name", KERNELS)
def test_so_it_is_under_a_hundred_schedules(name: str, hopper_ptx: Path) -> None:
    for schedule in range(3, 103):
        check(name, hopper_ptx, schedule)
