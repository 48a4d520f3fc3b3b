"""Element types of tensors in NumPy, and strided tensors as bytes of a buffer."""

from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.generic]
Floats = NDArray[np.float64]

# How NumPy stores each type. It has no e4m3, whose codes are bytes, and no bf16, whose codes are the upper halves of
# floats.
STORED = {
    "f64": np.float64,
    "f32": np.float32,
    "f16": np.float16,
    "bf16": np.uint16,
    "e4m3": np.uint8,
    "i64": np.int64,
    "i32": np.int32,
    "u8": np.uint8,
}
SIGN_E4M3, NAN_E4M3 = 0x80, 0x7F


def _values_of_e4m3() -> Floats:
    """The value of each code: sign, 4 bits of exponent with bias 7, 3 of fraction; no infinity."""
    codes = np.arange(256)
    exponent, fraction = codes >> 3 & 15, codes & 7
    values = np.where(exponent == 0, fraction * 2.0**-9, (8 + fraction) * 2.0 ** (exponent - 10.0))
    values[codes & NAN_E4M3 == NAN_E4M3] = np.nan
    return np.where(codes & SIGN_E4M3, -values, values)


E4M3 = _values_of_e4m3()


def to_floats(array: Array, kind: str) -> Floats:
    """The values that stored elements stand for."""
    if kind == "e4m3":
        return np.asarray(E4M3[array.astype(np.uint8)])
    if kind == "bf16":
        with np.errstate(invalid="ignore"):  # NaN
            return (array.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return array.astype(np.float64)


def from_floats(values: Floats, kind: str) -> Array:
    """Stored elements, rounded to nearest even; e4m3 saturates at 448."""
    with np.errstate(over="ignore"):
        if kind == "e4m3":
            finite = E4M3[:NAN_E4M3]
            size = np.minimum(np.abs(values), finite[-1])
            above = np.clip(np.searchsorted(finite, size), 1, len(finite) - 1)
            below = above - 1
            twice = size * 2 - finite[below] - finite[above]
            code = np.where((twice > 0) | ((twice == 0) & (above % 2 == 0)), above, below)
            return np.asarray(
                np.where(np.isnan(values), NAN_E4M3, code) | np.where(np.signbit(values), SIGN_E4M3, 0)
            ).astype(np.uint8)
        if kind == "bf16":
            bits = values.astype(np.float32).view(np.uint32)
            rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
            return np.asarray(np.where(np.isnan(values), 0x7FC0, rounded)).astype(np.uint16)
        return values.astype(STORED[kind])


@dataclass(frozen=True)
class Tensor:
    """Type, shape and strides, in elements, of an input or output; no strides: contiguous."""

    kind: str
    shape: tuple[int, ...]
    strides: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in STORED:
            raise ValueError(f"element type {self.kind!r}: must be one of {', '.join(STORED)}")
        if not self.strides:
            dense = tuple(prod(self.shape[i + 1 :]) for i in range(len(self.shape)))
            object.__setattr__(self, "strides", dense)

    @property
    def span(self) -> int:
        """Number of elements from the first to the last, gaps included."""
        return sum((extent - 1) * stride for extent, stride in zip(self.shape, self.strides, strict=True)) + 1

    @property
    def size(self) -> int:
        return self.span * np.dtype(STORED[self.kind]).itemsize

    def view(self, flat: Array) -> Array:
        """The elements among those of a buffer, which may hold any type."""
        strides = [stride * flat.itemsize for stride in self.strides]
        return np.lib.stride_tricks.as_strided(flat, self.shape, strides)

    def laid_out(self, values: Array) -> bytes:
        """The buffer of these values. Every byte between them is 0xff, a NaN in each floating-point type."""
        flat = np.frombuffer(bytearray(b"\xff" * self.size), STORED[self.kind])
        self.view(flat)[...] = values
        return flat.tobytes()

    def described(self) -> dict[str, object]:
        return {"kind": self.kind, "shape": list(self.shape), "strides": list(self.strides), "bytes": self.size}
