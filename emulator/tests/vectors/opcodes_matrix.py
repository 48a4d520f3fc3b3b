"""Vectors of mma with f16 sums, tf32, f64, 8-bit floats, integers and bits: matrices from registers, and back."""

import functools

import numpy as np
from support import exact
from support.emulation import Array, Case
from support.exact import DOUBLE, HALF, SINGLE, Format
from support.tensor_core import Form, byte_sum, fused_sum
from vectors.opcodes import CASES, SIZE

TF32 = Format(11, -126, 19)
BITS = {"f16": 16, "tf32": 32, "f64": 64, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8, "s4": 4, "u4": 4, "b1": 1, "f32": 32,
    "s32": 32}  # fmt: skip
Places = list[list[list[tuple[int, int]]]]  # [register][lane][element, lowest bits first] -> row and column

FORMS = [
    *((f"m16n8k{k}", "f16.f16.f16.f16", "") for k in (8, 16)),
    *((f"m16n8k{k}", "f32.tf32.tf32.f32", "") for k in (4, 8)),
    ("m16n8k32", "f32.e4m3.e5m2.f32", ""), ("m16n8k32", "f32.e5m2.e4m3.f32", ""),
    ("m16n8k16", "f32.e4m3.e4m3.f32", ""), ("m16n8k16", "f16.e5m2.e5m2.f16", ""), ("m16n8k32", "f16.e4m3.e4m3.f16", ""),
    *((shape, "f64.f64.f64.f64", "") for shape in ("m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16")),
    ("m8n8k16", "s32.s8.u8.s32", ""), ("m16n8k16", "s32.u8.s8.s32", ""), ("m16n8k32", "s32.s8.s8.s32", ".satfinite"),
    ("m16n8k32", "s32.u8.u8.s32", ""), ("m8n8k32", "s32.u4.s4.s32", ""), ("m16n8k32", "s32.s4.u4.s32", ".satfinite"),
    ("m16n8k64", "s32.s4.s4.s32", ""), ("m16n8k64", "s32.u4.u4.s32", ""), ("m8n8k128", "s32.b1.b1.s32", ".xor.popc"),
    ("m16n8k128", "s32.b1.b1.s32", ".xor.popc"), ("m16n8k256", "s32.b1.b1.s32", ".and.popc"),
]  # fmt: skip


def elements(part: str, m: int, k: int, bits: int) -> Places:
    """Fragment layouts of the PTX ISA for mma: A is m x k, B is k x 8."""
    each = max(32 // bits, 1)
    out: Places = []
    if part in "cd":
        for i in range(0, m // 4, each):
            out.append([[(lane // 4 + 8 * ((i + j) // 2), lane % 4 * 2 + (i + j) % 2) for j in range(each)]
                        for lane in range(32)])  # fmt: skip
        return out
    for chunk in range(k // (4 * each)):
        for upper in range(m // 8 if part == "a" else 1):
            lanes = []
            for lane in range(32):
                depth = [chunk * 4 * each + lane % 4 * each + j for j in range(each)]
                line = lane // 4 + 8 * upper
                lanes.append([(line, d) if part == "a" else (d, line) for d in depth])
            out.append(lanes)
    return out


def gathered(registers: list[Array], where: Places, shape: tuple[int, int], bits: int) -> Array:
    """Bits of the matrices [mma, rows, columns], as Python integers."""
    out = np.zeros((SIZE // 32, *shape), object)
    for register, lanes in zip(registers, where, strict=True):
        for lane, places in enumerate(lanes):
            for j, (row, column) in enumerate(places):
                for mma in range(SIZE // 32):
                    word = int(register[32 * mma + lane])
                    out[mma, row, column] = word >> bits * j & ((1 << bits) - 1) if bits < 64 else word
    return out


def number(bits: int, kind: str) -> int:
    size = BITS[kind]
    return bits - (1 << size) if kind[0] == "s" and bits >> (size - 1) else bits


def output(a: list[int], b: list[int], c: int, kinds: list[str], suffix: str) -> int:
    """Bits of one element of D."""
    if kinds[1][0] == "e":
        return byte_sum(Form(len(a), kinds[1], kinds[0], kinds[2]), a, b, c)
    if kinds[1] == "f16":
        wide = exact.convert(exact.decode(c, HALF), SINGLE)
        return fused_sum(a, b, wide, HALF, HALF, "rn")
    if kinds[1] == "tf32":
        return fused_sum([x >> 13 for x in a], [x >> 13 for x in b], c, TF32)
    if kinds[1] == "f64":
        for x, y in zip(a, b, strict=True):
            c = exact.fma(exact.decode(x, DOUBLE), exact.decode(y, DOUBLE), exact.decode(c, DOUBLE), DOUBLE)
        return c
    total = number(c, "s32")
    for x, y in zip(a, b, strict=True):
        if kinds[1] == "b1":
            total += x & y if "and" in suffix else x ^ y
        else:
            total += number(x, kinds[1]) * number(y, kinds[2])
    if "satfinite" in suffix:
        total = max(min(total, (1 << 31) - 1), -1 << 31)
    return total % (1 << 32)


def random_words(rng: np.random.Generator, kind: str, count: int) -> list[Array]:
    def floats(spread: int) -> Array:
        return rng.normal(size=SIZE) * np.exp2(rng.integers(-spread, spread, SIZE))

    out: list[Array] = []
    for _ in range(count):
        if kind == "f64":
            out.append(floats(30).view(np.uint64))
        elif kind == "f16":
            low, high = (np.array([exact.convert(x, HALF) for x in floats(4).tolist()], np.uint32) for _ in range(2))
            out.append(low | high << 16)
        elif kind in ("tf32", "f32"):
            out.append(floats(8).astype(np.float32).view(np.uint32))
        elif kind == "s32":  # near the limits, so that sums pass them
            out.append(((rng.integers(0, 2, SIZE) << 31) - rng.integers(0, 3000, SIZE) & 0xFFFFFFFF).astype(np.uint32))
        else:
            out.append(rng.integers(0, 1 << 32, SIZE, dtype=np.uint32))
    return out


def mma_cases() -> None:
    CASES.extend(every_mma())


@functools.cache
def every_mma() -> tuple[Case, ...]:
    cases = []
    for seed, (shape, types, suffix) in enumerate(FORMS):
        m, k = int(shape[1 : shape.index("n")]), int(shape[shape.index("k") + 1 :])
        kinds = types.split(".")  # of d, a, b and c
        rng = np.random.default_rng([150, seed])
        where = {part: elements(part, m, k, BITS[kind]) for part, kind in zip("dabc", kinds, strict=True)}
        words = {p: random_words(rng, kind, len(where[p])) for p, kind in zip("abc", kinds[1:], strict=True)}
        a = gathered(words["a"], where["a"], (m, k), BITS[kinds[1]])
        b = gathered(words["b"], where["b"], (k, 8), BITS[kinds[2]])
        c = gathered(words["c"], where["c"], (m, 8), BITS[kinds[3]])
        bits = BITS[kinds[0]]
        outputs = []
        for lanes in where["d"]:
            values = []
            for mma in range(SIZE // 32):
                for places in lanes:
                    word = 0
                    for j, (row, column) in enumerate(places):
                        left, right = a[mma, row].tolist(), b[mma, :, column].tolist()
                        word |= output(left, right, c[mma, row, column], kinds, suffix) << bits * j
                    values.append(word)
            outputs.append(np.array(values, np.uint64 if bits == 64 else np.uint32))
        inputs = {f"{p}{i}": word for p in "abc" for i, word in enumerate(words[p])}
        counts = {"d": len(outputs)} | {p: len(words[p]) for p in "abc"}
        parts = [[f"{p}{i}" for i in range(count)] for p, count in counts.items()]
        operands = ", ".join("{" + ", ".join(f"%{name}" for name in names) + "}" for names in parts)
        extra = [x for x in suffix.split(".") if x]
        name = ".".join(["mma.sync.aligned", shape, "row.col", *([extra[0]] if "satfinite" in suffix else []), types,
                         *(extra if "popc" in suffix else [])])  # fmt: skip
        cases.append(Case(name, f"{name} {operands};", inputs, {f"d{i}": x for i, x in enumerate(outputs)}))
    return tuple(cases)
