"""An example: pytest runs CUDA kernels without a GPU, and a missing barrier fails a test.

make emu-lib && PYTHONPATH=lib .venv/bin/python -m pytest emulator/python/example
"""

from pathlib import Path

import emu
import numpy as np
import pytest

SOURCE = Path(__file__).with_name("reverse.cu")


@pytest.fixture(scope="module")
def kernels() -> emu.Module:
    return emu.Module(SOURCE)


@pytest.mark.parametrize("schedule", [0, 1, 2])
def test_reverse(kernels: emu.Module, schedule: int) -> None:
    data = np.arange(8 * 64, dtype=np.int32)
    launched = kernels["_Z7reversePi"][8, 64](data, schedule=schedule)
    assert np.array_equal(data.reshape(8, 64), np.arange(8 * 64).reshape(8, 64)[:, ::-1])
    total = launched.counters.total
    assert total.wavefronts == total.ideal, "a bank conflict"


def test_a_missing_barrier_is_found(kernels: emu.Module) -> None:
    """The error with which a test of the racy kernel would fail."""
    with pytest.raises(emu.FindingsError) as caught:
        kernels["reverse_racy"][1, 64](np.arange(64, dtype=np.int32))
    race = next(finding for finding in caught.value.findings if finding.kind == "race")
    lines = SOURCE.read_text().splitlines()
    assert "copy[threadIdx.x] =" in lines[race.here.line - 1]
    assert "copy[63 - threadIdx.x]" in lines[race.other.line - 1]
