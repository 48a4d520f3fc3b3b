"""mma.sync as an H200's tensor cores compute it, in Python integers, and the registers of its operands.

registers = random_registers("m16n8k16.f16", mmas=4, seed=1)
fused_sums("m16n8k16.f16", registers)  # bits of D[mma, 16, 8]
"""

from __future__ import annotations

import math

import numpy as np
from support import exact
from support.emulation import Array
from support.exact import BFLOAT, HALF, SINGLE, Format

FORMATS = {"f16": HALF, "bf16": BFLOAT}
FORMS = [f"m16n8k{k}.{kind}" for k in (16, 8) for kind in FORMATS]
PLACES = 25  # of the unit below the largest exponent
LANE = np.arange(32)


def shape_of(form: str) -> tuple[int, str]:
    """k and the type of the operands of "m16n8k16.bf16"."""
    shape, kind = form.split(".")
    return int(shape.removeprefix("m16n8k")), kind


def registers_of(form: str) -> tuple[list[str], list[str], list[str]]:
    """Names of the registers of A, B and C."""
    k, _ = shape_of(form)
    return [f"a{i}" for i in range(k // 4)], [f"b{i}" for i in range(k // 8)], [f"c{i}" for i in range(4)]


def random_registers(form: str, mmas: int, seed: int) -> dict[str, Array]:
    """A and B of normal deviates with exponents spread over 16 binades, C over 30."""
    rng, (_, kind) = np.random.default_rng(seed), shape_of(form)
    a, b, c = registers_of(form)
    registers: dict[str, Array] = {}
    for name in a + b:
        values = rng.normal(size=(2, 32 * mmas)) * np.exp2(rng.integers(-8, 8, (2, 32 * mmas)))
        low, high = (np.array([exact.convert(x, FORMATS[kind]) for x in half], np.uint32) for half in values)
        registers[name] = low | high << 16
    for name in c:
        values = rng.normal(size=32 * mmas) * np.exp2(rng.integers(-15, 15, 32 * mmas))
        registers[name] = values.astype(np.float32).view(np.uint32)
    return registers


def matrices(form: str, registers: dict[str, Array]) -> tuple[Array, Array, Array]:
    """Bits of A[mma, 16, k], B[mma, k, 8] and C[mma, 16, 8] (PTX ISA, matrix fragments for mma.m16n8k16, m16n8k8)."""
    k, _ = shape_of(form)
    group, pair, mmas = LANE // 4, LANE % 4 * 2, len(registers["a0"]) // 32
    a, b, c = np.zeros((mmas, 16, k), int), np.zeros((mmas, k, 8), int), np.zeros((mmas, 16, 8), int)
    for half in range(2):
        for i in range(k // 4):
            bits = registers[f"a{i}"].reshape(mmas, 32) >> 16 * half & 0xFFFF
            a[:, group + 8 * (i % 2), pair + 8 * (i // 2) + half] = bits
        for i in range(k // 8):
            b[:, pair + 8 * i + half, group] = registers[f"b{i}"].reshape(mmas, 32) >> 16 * half & 0xFFFF
    for i in range(4):
        c[:, group + 8 * (i // 2), pair + i % 2] = registers[f"c{i}"].reshape(mmas, 32)
    return a, b, c


def mantissa_and_exponent(bits: int, of: Format) -> tuple[int, int]:
    """A finite value is mantissa * 2**(exponent - of.precision + 1)."""
    size = bits & ((1 << (of.bits - 1)) - 1)
    field, mantissa = size >> (of.precision - 1), size & ((1 << (of.precision - 1)) - 1)
    mantissa += (field > 0) << (of.precision - 1)
    return (-mantissa if bits >> (of.bits - 1) else mantissa), max(field, 1) + of.smallest - 1


def fused_sum(a: list[int], b: list[int], c: int, of: Format, to: Format = SINGLE, mode: str = "rz") -> int:
    """Bits of c + a . b: terms are cut to whole units of the largest exponent, their sum to an f32, towards zero, or
    rounded once to f16. Sums too large for an f32 are infinite."""
    values = [(exact.decode(x, of), exact.decode(y, of)) for x, y in zip(a, b, strict=True)]
    total = exact.decode(c, SINGLE) + sum(x * y for x, y in values)
    if not math.isfinite(total):
        return exact.convert(total, to)
    terms = []  # value is first * 2**second, and the exponent that counts
    for x, y in zip(a, b, strict=True):
        (m, e), (n, f) = mantissa_and_exponent(x, of), mantissa_and_exponent(y, of)
        terms.append((m * n, e + f - 2 * of.precision + 2, e + f))
    m, e = mantissa_and_exponent(c, SINGLE)
    terms.append((m, e - 23, e))
    unit = max((top for m, _, top in terms if m), default=PLACES) - PLACES
    units = sum(int(math.copysign(1, m)) * (abs(m) << max(e - unit, 0) >> max(unit - e, 0)) for m, e, _ in terms)
    if abs(units) << max(unit, 0) >= 1 << 128 + max(-unit, 0):
        return exact.convert(math.copysign(math.inf, units), to)
    return exact.encode((units << max(unit, 0), 1 << max(-unit, 0)), to, mode)


def fused_sums(form: str, registers: dict[str, Array]) -> Array:
    """D[mma, 16, 8], bits."""
    a, b, c = matrices(form, registers)
    of = FORMATS[shape_of(form)[1]]
    return np.array(
        [
            [[fused_sum(row, column, int(c[mma, i, j]), of) for j, column in enumerate(b[mma].T.tolist())]
             for i, row in enumerate(a[mma].tolist())]
            for mma in range(len(a))
        ],
        np.uint32,
    )  # fmt: skip


def spread(sums: Array) -> dict[str, Array]:
    """The registers d0 to d3 of D[mma, 16, 8]."""
    return {f"d{i}": sums[:, LANE // 4 + 8 * (i // 2), LANE % 4 * 2 + i % 2].ravel() for i in range(4)}


def instruction(form: str, in_place: bool = False) -> str:
    """PTX for registers of those names; in place, the accumulators are the results' registers."""
    (k, kind), (a, b, c), d = shape_of(form), registers_of(form), [f"d{i}" for i in range(4)]
    operands = [", ".join(f"%{name}" for name in names) for names in (d, a, b, d if in_place else c)]
    moves = "".join(f"mov.b32 %{to}, %{by};\n" for to, by in zip(d, c, strict=True)) if in_place else ""
    return (
        f"{moves}mma.sync.aligned.m16n8k{k}.row.col.f32.{kind}.{kind}.f32 "
        + ", ".join(f"{{{each}}}" for each in operands)
        + ";"
    )
