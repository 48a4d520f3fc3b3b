"""Small kernels for sm_90a: right, and without a finding under many schedules."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.hopper import KERNELS, compile_all


@pytest.fixture(scope="module")
def ptx(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_all(tmp_path_factory.mktemp("hopper"))


def check(name: str, ptx: Path, schedule: int) -> None:
    done, output = KERNELS[name].run(ptx, ptx.parent, "--schedule", schedule)
    assert (done.returncode, done.stderr) == (0, "")
    assert output == KERNELS[name].right()


@pytest.mark.parametrize("schedule", [0, 1, 2])
@pytest.mark.parametrize("name", KERNELS)
def test_it_is_right_and_nothing_is_found(name: str, schedule: int, ptx: Path) -> None:
    check(name, ptx, schedule)


@pytest.mark.long
@pytest.mark.parametrize("name", KERNELS)
def test_so_it_is_under_a_hundred_schedules(name: str, ptx: Path) -> None:
    for schedule in range(3, 103):
        check(name, ptx, schedule)
