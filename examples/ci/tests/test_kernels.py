"""A kernel on the emulator, compared with NumPy. A race or an access out of bounds fails the test."""

from pathlib import Path

import numpy as np
import pytest

from flashladder_tools import emu


@pytest.mark.parametrize("schedule", [0, 1, 2])
def test_scale_mirrored(schedule: int) -> None:
    kernel = emu.Module(Path(__file__).with_name("scale.cu"))["scale_mirrored"]
    x = np.arange(128, dtype=np.float32)
    launched = kernel[2, 64](x, 2.0, schedule=schedule)
    assert np.array_equal(x.reshape(2, 64), 2 * np.arange(128).reshape(2, 64)[:, ::-1])
    assert launched.counters.total.wavefronts == launched.counters.total.ideal, "a bank conflict"
