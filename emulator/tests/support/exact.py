"""Floating point from first principles: exact rationals rounded once, for expectations that share no code with C.

encode((1, 3), SINGLE, "rz")  # bits of the float32 next to a third, towards zero
"""

import math
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Format:
    """An IEEE binary format: precision with the hidden bit, and the exponent of the smallest normal number."""

    precision: int
    smallest: int
    bits: int

    @cached_property
    def bias(self) -> int:
        return 1 - self.smallest

    @cached_property
    def infinity(self) -> int:
        return ((1 << (self.bits - self.precision)) - 1) << (self.precision - 1)

    @cached_property
    def nan(self) -> int:
        return (1 << (self.bits - 1)) - 1


HALF = Format(11, -14, 16)
BFLOAT = Format(8, -126, 16)
TENSOR = Format(11, -126, 19)  # tf32, without the 13 zeros below it
SINGLE = Format(24, -126, 32)
DOUBLE = Format(53, -1022, 64)


Ratio = tuple[int, int]  # numerator and positive denominator; Fraction would reduce it at every step


def round_to_integer(value: Ratio, mode: str, negative: bool) -> int:
    """Rounds a magnitude; `negative` says which way rm and rp go."""
    low, rest = divmod(*value)
    if mode == "rna":
        return low + (2 * rest >= value[1])
    if mode == "rn":
        return low + (2 * rest > value[1] or (2 * rest == value[1] and low % 2 == 1))
    away = (mode == "rp" and not negative) or (mode == "rm" and negative)
    return low + (away and rest > 0)


def encode(value: Ratio, to: Format, mode: str = "rn", zero_sign: int = 0) -> int:
    """Bits of a rational in a format, rounded once. `zero_sign` is that of an exact zero."""
    sign_bit = 1 << (to.bits - 1)
    top, bottom = abs(value[0]), value[1]
    if top == 0:
        return sign_bit * zero_sign
    negative = value[0] < 0
    guess = top.bit_length() - bottom.bit_length()  # of the binary logarithm, or one too many
    guess -= top << max(-guess, 0) < bottom << max(guess, 0)
    exponent = max(guess, to.smallest)
    shift = exponent - to.precision + 1
    steps = round_to_integer((top << max(-shift, 0), bottom << max(shift, 0)), mode, negative)
    bits = ((exponent - to.smallest) << (to.precision - 1)) + steps
    if bits >= to.infinity:
        to_infinity = mode in ("rn", "rna") or (mode == "rp" and not negative) or (mode == "rm" and negative)
        bits = to.infinity if to_infinity else to.infinity - 1
    return bits | (sign_bit if negative else 0)


def decode(bits: int, of: Format) -> float:
    """The value as a Python float, which holds every format exactly."""
    sign = -1.0 if bits >> (of.bits - 1) else 1.0
    size = bits & ((1 << (of.bits - 1)) - 1)
    if size >= of.infinity:
        return math.nan if size > of.infinity else sign * math.inf
    exponent, mantissa = size >> (of.precision - 1), size & ((1 << (of.precision - 1)) - 1)
    if exponent:
        mantissa += 1 << (of.precision - 1)
    return sign * math.ldexp(mantissa, max(exponent, 1) + of.smallest - of.precision)


def flush(bits: int, of: Format) -> int:
    """ftz: a subnormal becomes a zero of its sign."""
    size = bits & ((1 << (of.bits - 1)) - 1)
    return bits if size >> (of.precision - 1) else bits - size


def convert(value: float, to: Format, mode: str = "rn") -> int:
    """Bits of a float in a format."""
    if math.isnan(value):
        return to.nan
    sign = int(math.copysign(1.0, value) < 0)
    if math.isinf(value):
        return to.infinity | sign << (to.bits - 1)
    return encode(value.as_integer_ratio(), to, mode, sign)


def add(a: float, b: float, to: Format, mode: str = "rn") -> int:
    if not (math.isfinite(a) and math.isfinite(b)):
        return convert(a + b, to)
    (x, below_x), (y, below_y) = a.as_integer_ratio(), b.as_integer_ratio()
    return encode((x * below_y + y * below_x, below_x * below_y), to, mode, _zero_sign(a, b, mode))


def mul(a: float, b: float, to: Format, mode: str = "rn") -> int:
    if not (math.isfinite(a) and math.isfinite(b)):
        return convert(a * b, to)
    sign = int(math.copysign(1.0, a) * math.copysign(1.0, b) < 0)
    (x, below_x), (y, below_y) = a.as_integer_ratio(), b.as_integer_ratio()
    return encode((x * y, below_x * below_y), to, mode, sign)


def fma(a: float, b: float, c: float, to: Format, mode: str = "rn") -> int:
    if not (math.isfinite(a) and math.isfinite(b)):
        return convert(a * b + c, to)
    if not math.isfinite(c):
        return convert(c, to)
    (x, below_x), (y, below_y), (z, below_z) = a.as_integer_ratio(), b.as_integer_ratio(), c.as_integer_ratio()
    # of a zero sum, or of one whose product and c cancel: the product has the sign of the sources, however small it is
    product = math.copysign(1.0, a) * math.copysign(1.0, b) * (0.0 if x * y == 0 else 1.0)
    sign = _zero_sign(product, c, mode)
    return encode((x * y * below_z + z * below_x * below_y, below_x * below_y * below_z), to, mode, sign)


def div(a: float, b: float, to: Format, mode: str = "rn") -> int:
    sign = int(math.copysign(1.0, a) * math.copysign(1.0, b) < 0)
    if math.isnan(a) or math.isnan(b) or (a == 0 and b == 0) or (math.isinf(a) and math.isinf(b)):
        return to.nan
    if b == 0 or math.isinf(a):
        return to.infinity | sign << (to.bits - 1)
    if math.isinf(b):
        return sign << (to.bits - 1)
    (x, below_x), (y, below_y) = a.as_integer_ratio(), abs(b).as_integer_ratio()
    return encode((int(math.copysign(1.0, b)) * x * below_y, below_x * y), to, mode, sign)


def sqrt(a: float, to: Format, mode: str = "rn") -> int:
    """The integer root of a square with 200 more bits, and a last digit that shows if anything was lost."""
    if math.isnan(a) or a < 0:
        return to.nan
    if a == 0 or math.isinf(a):
        return convert(a, to)
    top, bottom = a.as_integer_ratio()
    square = top * bottom << 400
    root = math.isqrt(square)
    return encode((2 * root + (root * root != square), bottom << 201), to, mode)


def _zero_sign(a: float, b: float, mode: str) -> int:
    """Sign of a sum that is exactly zero: that of two zeros of one sign, else negative when rounding down."""
    signs = (math.copysign(1.0, a) < 0, math.copysign(1.0, b) < 0)
    return int(all(signs) or (mode == "rm" and any(signs)))
