"""The input tensors of the executables, made again with array operations: a function of (seed, tensor, index).

    q = elements(numpy, "normal", seed=1, tensor=0, first=0, count=4096)     # or torch

Peers are given exactly the tensors that bin/vNN makes, see harness/inputs.c. Only additions, multiplications, divisions
and square roots are used, which IEEE 754 rounds in one way, so the values are equal to the last bit. `numbers` is NumPy
or, with a default device set, PyTorch: the functions used have the same names in both.
"""

from typing import Any

LOW = 0xFFFFFFFF
Words = tuple[Any, Any, Any, Any]


def philox(block: Any, tensor: int, seed: int, last: int = 0) -> Words:
    """Four random 32-bit words for each number in `block` (int64): Philox 4×32 with 10 rounds (Salmon et al., 2011).

    `last` is the fourth word of the counter, 1 where rows are chosen.
    """
    c0, c1, c2, c3 = block & LOW, (block >> 32) & LOW, block * 0 + tensor, block * 0 + last
    k0, k1 = seed & LOW, seed >> 32 & LOW
    for _ in range(10):
        a, b = c0 * 0xD2511F53, c2 * 0xCD9E8D57  # wrap around; the high half is taken from the bits
        c0, c1, c2, c3 = ((b >> 32) & LOW) ^ c1 ^ k0, b & LOW, ((a >> 32) & LOW) ^ c3 ^ k1, a & LOW
        k0, k1 = (k0 + 0x9E3779B9) & LOW, (k1 + 0xBB67AE85) & LOW
    return c0, c1, c2, c3


def natural_log(numbers: Any, x: Any) -> Any:
    """log x for x in (0, 1]: x = 2^e · m with m in [√½, √2), and log m = 2 atanh((m − 1) / (m + 1))."""
    m, e = numbers.frexp(x)
    small = m < 0.70710678118654752440
    m = numbers.where(small, m * 2, m)
    e = numbers.asarray(numbers.where(small, e - 1, e), dtype=numbers.float64)
    t = (m - 1) / (m + 1)
    square = t * t
    series = square * 0
    for n in range(21, 0, -2):
        series = series * square + 1.0 / n
    return e * 0.69314718055994530942 + 2 * t * series


def turn(numbers: Any, u: Any) -> tuple[Any, Any]:
    """Cosine and sine of 2πu for u in [0, 1): series on the eighth of a turn around the nearest quarter."""
    quarter = numbers.floor(4 * u + 0.5)
    x = (u - quarter * 0.25) * 6.28318530717958647693
    square = x * x
    c, s = square * 0, square * 0
    for n in range(16, 0, -2):
        c = (1 - c) * square / (n * (n - 1))
        s = (1 - s) * square / (n * (n + 1))
    c, s = 1 - c, x * (1 - s)
    quarter = quarter % 4
    odd, back = (quarter == 1) | (quarter == 3), (quarter == 1) | (quarter == 2)
    cosine, sine = numbers.where(odd, s, c), numbers.where(odd, c, s)
    return numbers.where(back, -cosine, cosine), numbers.where(quarter >= 2, -sine, sine)


def elements(numbers: Any, dist: str, seed: int, tensor: int, first: int, count: int) -> Any:
    """Elements first … first + count − 1 of Q, K or V (tensor 0, 1, 2), before their rounding.

    first and count are multiples of 4. The caller rounds to float32 and then to 16 bits, as the executables do.
    """
    if dist == "ramp":
        return (numbers.arange(first, first + count) % 251) / 256
    blocks = numbers.arange(first // 4, (first + count) // 4)
    words = [numbers.asarray(word, dtype=numbers.float64) for word in philox(blocks, tensor, seed)]
    if dist == "uniform":
        return numbers.stack([numbers.floor(word / 256) * 2.0**-24 for word in words], -1).reshape(-1)
    factor = {"normal": 1.0, "large": 8.0}[dist]
    values = []
    for one, two in ((words[0], words[1]), (words[2], words[3])):
        radius = numbers.sqrt(-2 * natural_log(numbers, (one + 1.0) * 2.0**-32))
        cosine, sine = turn(numbers, two * 2.0**-32)
        values += [factor * radius * cosine, factor * radius * sine]
    return numbers.stack(values, -1).reshape(-1)
