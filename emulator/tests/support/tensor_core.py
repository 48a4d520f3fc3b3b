"""mma.sync as an H200's tensor cores compute it, in Python integers, and the registers of its operands.

registers = random_registers("m16n8k16.f16", mmas=4, seed=1)
fused_sums("m16n8k16.f16", registers)  # bits of D[mma, 16, 8]
"""

import math
from dataclasses import dataclass

import numpy as np
from support import exact
from support.emulation import Array
from support.exact import BFLOAT, HALF, SINGLE, Format

TF32 = Format(11, -126, 19)
E4M3 = Format(4, -6, 9)  # a bit wider than it is, so that its largest exponent is an ordinary one
FORMATS = {"f16": HALF, "bf16": BFLOAT, "tf32": TF32}
FORMS = [f"m16n8k{k}.{kind}" for k in (16, 8) for kind in ("f16", "bf16")]
PLACES = 25  # of the unit below the largest exponent
LANE = np.arange(32)


@dataclass(frozen=True)
class Form:
    """The k, the types of A and B and that of the sums of "m16n8k16.bf16", "m16n8k16.f16.f16", "m16n8k32.e4m3.e5m2"."""

    k: int
    kind: str
    sums: str
    second: str = ""

    @property
    def kinds(self) -> tuple[str, str]:
        return self.kind, self.second or self.kind

    @property
    def in_register(self) -> int:
        """Factors."""
        return {"tf32": 1, "e4m3": 4, "e5m2": 4}.get(self.kind, 2)


def parse_form(form: str) -> Form:
    shape, kind, *others = form.split(".")
    sums, second = [name for name in others if name[0] == "f"], [name for name in others if name[0] == "e"]
    return Form(int(shape.removeprefix("m16n8k")), kind, *(sums or ["f32"]), *second)


def registers_of(form: str) -> tuple[list[str], list[str], list[str]]:
    """Names of the registers of A, B and C."""
    of = parse_form(form)
    count = of.k // 4 // of.in_register  # of B
    return [f"a{i}" for i in range(2 * count)], [f"b{i}" for i in range(count)], [f"c{i}" for i in range(sums_of(of))]


def sums_of(of: Form) -> int:
    """Registers of C and of D."""
    return 4 if of.sums == "f32" else 2


def random_registers(form: str, mmas: int, seed: int) -> dict[str, Array]:
    """A and B of normal deviates with exponents spread over 16 binades, C over 30."""
    rng, kind = np.random.default_rng(seed), parse_form(form).kind
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
    """Bits of A[mma, 16, k], B[mma, k, 8] and C[mma, 16, 8] (PTX ISA, matrix fragments for mma)."""
    of, group, mmas = parse_form(form), LANE // 4, len(registers["a0"]) // 32
    step, bits = of.in_register, 32 // of.in_register
    first, chunk = LANE % 4 * step, 4 * step  # of a register along k
    a, b, c = np.zeros((mmas, 16, of.k), int), np.zeros((mmas, of.k, 8), int), np.zeros((mmas, 16, 8), int)
    names_a, names_b, _ = registers_of(form)
    for element in range(step):
        for i, name in enumerate(names_a):
            at = first + chunk * (i // 2) + element
            a[:, group + 8 * (i % 2), at] = registers[name].reshape(mmas, 32) >> bits * element & (1 << bits) - 1
        for i, name in enumerate(names_b):
            at = first + chunk * i + element
            b[:, at, group] = registers[name].reshape(mmas, 32) >> bits * element & (1 << bits) - 1
    for i in range(4):
        name, shift = (f"c{i}", 0) if of.sums == "f32" else (f"c{i // 2}", i % 2 * 16)
        mask = 0xFFFFFFFF if of.sums == "f32" else 0xFFFF
        c[:, group + 8 * (i // 2), LANE % 4 * 2 + i % 2] = registers[name].reshape(mmas, 32) >> shift & mask
    return a, b, c


def mantissa_and_exponent(bits: int, of: Format) -> tuple[int, int]:
    """A finite value is mantissa * 2**(exponent - of.precision + 1)."""
    size = bits & ((1 << (of.bits - 1)) - 1)
    field, mantissa = size >> (of.precision - 1), size & ((1 << (of.precision - 1)) - 1)
    mantissa += (field > 0) << (of.precision - 1)
    return (-mantissa if bits >> (of.bits - 1) else mantissa), max(field, 1) + of.smallest - 1


def fused_sum(a: list[int], b: list[int], c: int, of: Format, to: Format = SINGLE, mode: str = "rz") -> int:
    """Bits of c + a . b: terms are cut to whole units of the largest exponent, their sum to an f32, towards zero, or
    rounded once to f16. Sums too large for an f32 are infinite, and those cut to nothing are +0."""
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
    bits = exact.encode((units << max(unit, 0), 1 << max(-unit, 0)), to, mode)
    return 0 if to is SINGLE and bits == 1 << 31 else bits


def as_half(byte: int, kind: str) -> int:
    """e5m2 is the upper byte of an f16; the largest code of e4m3 is NaN."""
    if kind == "e5m2":
        return byte << 8
    wide = (byte & 0x80) << 1 | byte & 0x7F
    return HALF.nan if byte & 0x7F == 0x7F else exact.convert(exact.decode(wide, E4M3), HALF)


def byte_sum(of: Form, a: list[int], b: list[int], c: int) -> int:
    """Two sums of products of f16, of bytes 0 and 1 of each register and of bytes 2 and 3; C is added at the end."""
    to = HALF if of.sums == "f16" else SINGLE
    x, y = ([as_half(byte, kind) for byte in bytes_] for bytes_, kind in zip((a, b), of.kinds, strict=True))
    total = 0
    for some in ((0, 1), (2, 3)):
        at = [k for k in range(of.k) if k % 4 in some]
        before = exact.convert(exact.decode(total, to), SINGLE)
        total = fused_sum([x[k] for k in at], [y[k] for k in at], before, HALF, to, "rn" if to is HALF else "rz")
    return exact.add(exact.decode(total, to), exact.decode(c, to), to)


def one_sum(of: Form, a: list[int], b: list[int], c: int) -> int:
    """Bits of an element of D: sums of halves are rounded to the nearest, and of a tf32 number 19 bits count."""
    if of.kind == "tf32":
        a, b = [x >> 13 for x in a], [x >> 13 for x in b]
    if of.in_register == 4:
        return byte_sum(of, a, b, c)
    if of.sums == "f16":
        return fused_sum(a, b, exact.convert(exact.decode(c, HALF), SINGLE), HALF, HALF, "rn")
    return fused_sum(a, b, c, FORMATS[of.kind])


def fused_sums(form: str, registers: dict[str, Array]) -> Array:
    """D[mma, 16, 8], bits."""
    a, b, c = matrices(form, registers)
    of = parse_form(form)
    return np.array(
        [
            [[one_sum(of, row, column, int(c[mma, i, j])) for j, column in enumerate(b[mma].T.tolist())]
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
    of, (a, b, c) = parse_form(form), registers_of(form)
    first, second = of.kinds
    d = [name.replace("c", "d") for name in c]
    operands = [", ".join(f"%{name}" for name in names) for names in (d, a, b, d if in_place else c)]
    moves = "".join(f"mov.b32 %{to}, %{by};\n" for to, by in zip(d, c, strict=True)) if in_place else ""
    return (
        f"{moves}mma.sync.aligned.m16n8k{of.k}.row.col.{of.sums}.{first}.{second}.{of.sums} "
        + ", ".join(f"{{{each}}}" for each in operands)
        + ";"
    )
