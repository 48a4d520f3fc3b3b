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


SHAPE = "m64n64k16.f32.f16.f16"
TO_SHARED, TO_GLOBAL = " copies to shared memory", " copies to global memory"
ENGINES = {  # executed by warps, and bytes of copies
    "ring": {SHAPE: [5 * 4 * 4, 0], "tensor" + TO_SHARED: [10, 10 * 8192]},
    "stores": {"tensor" + TO_GLOBAL: [4 * 3, 64 * 192 * 2]},
    "pieces": {"bulk" + TO_SHARED: [5, 640 * 4], "bulk" + TO_GLOBAL: [5, 640 * 4]},
}


@pytest.mark.parametrize("name", ENGINES)
def test_shapes_of_wgmma_and_bytes_of_copies_are_counted(name: str, hopper_ptx: Path) -> None:
    done, _ = KERNELS[name].run(hopper_ptx, hopper_ptx.parent, "--counters")
    _, behind = done.stdout.split("wgmma and copies", 1)
    table, said = behind.split("\n\n")[:2]
    rows = (line.rsplit(maxsplit=5) for line in table.splitlines()[1:])
    assert {row[0]: [int(row[1]), int(row[5])] for row in rows} == ENGINES[name]
    assert " ".join(said.split()).endswith("takes wavefronts, too: these are not modelled.")
