"""Vectors of what sm_100 adds to registers: f32x2, minima of three, numbers of 6 and 4 bits, powers of two."""

from __future__ import annotations

import itertools

import numpy as np
from support.emulation import Array, Case
from support.exact import SINGLE
from vectors.opcodes import CASES, SIZE, singles
from vectors.opcodes_float import FUNCTIONS, flushed


def pairs_of(low: Array, high: Array) -> Array:
    return low.view(np.uint32).astype(np.uint64) | high.view(np.uint32).astype(np.uint64) << np.uint64(32)


def same_pairs(got: Array, want: Array) -> Array:
    """Any NaN equals any other, in each half."""
    x, y = got.view(np.uint32).reshape(-1, 2), want.view(np.uint32).reshape(-1, 2)
    nan = np.isnan(x.view(np.float32)) & np.isnan(y.view(np.float32))
    equal: Array = ((x == y) | nan).all(axis=1)
    return equal


def pair_cases() -> None:
    for op, mode, ftz in itertools.product(
        ("add", "sub", "mul", "fma"), ("", ".rn", ".rz", ".rm", ".rp"), ("", ".ftz")
    ):
        if op == "fma" and not mode:
            continue
        count, function = FUNCTIONS[op]
        halves = [singles(count, seed) for seed in (100, 101)]
        results = []
        for values in halves:
            rows = zip(*(value.tolist() for value in values), strict=True)
            bits = [function(*(map(flushed, row) if ftz else row), SINGLE, mode[1:] or "rn") for row in rows]
            if ftz:
                bits = [bit if bit & 0x7F800000 else bit & 0x80000000 for bit in bits]
            results.append(np.array(bits, np.uint32))
        names, operands = "abc"[:count], ", ".join(f"%{x}" for x in "abc"[:count])
        inputs = {name: pairs_of(low, high) for name, low, high in zip(names, *halves, strict=True)}
        form = f"{op}{mode}{ftz}.f32x2"
        CASES.append(Case(form, f"{form} %d, {operands};", inputs, {"d": pairs_of(*results)}, same_pairs))


def extreme(values: list[Array], most: bool, nan: bool) -> Array:
    """Three operands: NaN only if all are, or with .NaN if any is; -0 is below +0."""
    keys = [np.where(value == 0, np.copysign(1e-300, value.astype(np.float64)), value) for value in values]
    stack, numbers = np.array(values), np.where(np.isnan(keys), -np.inf if most else np.inf, keys)
    best = numbers.argmax(axis=0) if most else numbers.argmin(axis=0)
    any_nan, all_nan = np.isnan(stack).any(axis=0), np.isnan(stack).all(axis=0)
    taken = np.take_along_axis(stack, best[None], axis=0)[0]
    lost = np.isnan(taken) & ~all_nan  # an infinity on the wrong side ties with what stands for NaN
    taken = np.where(lost, -np.inf if most else np.inf, taken)
    out: Array = np.where(any_nan if nan else all_nan, np.nan, taken).astype(np.float32)
    return out


def three_cases() -> None:
    values = singles(3, 102)
    for op, nan, magnitudes in itertools.product(("min", "max"), ("", ".NaN"), ("", ".abs")):
        used = [np.abs(value) for value in values] if magnitudes else values
        want = extreme(used, op == "max", bool(nan))
        form = f"{op}{nan}{magnitudes}.f32"
        inputs = dict(zip("abc", values, strict=True))
        CASES.append(Case(f"{form} of three", f"{form} %d, %a, %b, %c;", inputs, {"d": want}))
        flush = [np.array([flushed(x) for x in value.tolist()], np.float32) for value in used]
        want = extreme(flush, op == "max", bool(nan))
        form = f"{op}.ftz{nan}{magnitudes}.f32"
        CASES.append(Case(f"{form} of three", f"{form} %d, %a, %b, %c;", inputs, {"d": want}))
    rows = values[0].reshape(-1, 32)
    for op, nan, magnitudes in itertools.product(("min", "max"), ("", ".NaN"), ("", ".abs")):
        used = np.abs(rows) if magnitudes else rows
        want = extreme(list(used.T), op == "max", bool(nan)).repeat(32)
        form = f"redux.sync.{op}{magnitudes}{nan}.f32"
        CASES.append(Case(form, f"{form} %d, %a, 0xffffffff;", {"a": values[0]}, {"d": want}))


SMALL = {"e2m1x2": (2, 1, 4), "e2m3x2": (2, 3, 8), "e3m2x2": (3, 2, 8)}  # bits of exponent and fraction, and apart


def table_of(exponents: int, fraction: int) -> Array:
    """Magnitudes by their bits."""
    bits, bias = np.arange(1 << (exponents + fraction)), (1 << (exponents - 1)) - 1
    field, part = bits >> fraction, bits % (1 << fraction)
    values: Array = np.where(field > 0, part + (1 << fraction), part) * 2.0 ** (np.maximum(field, 1) - bias - fraction)
    return values


def encoded(values: Array, numbers: Array, sign: int, relu: bool) -> Array:
    """To the nearest, of two the one whose bits are even; NaN and what is too large become the largest."""
    value = np.where(values < 0, 0.0, values) if relu else values
    size = np.where(np.isnan(value), np.inf, np.abs(value.astype(np.float64)))
    above = np.searchsorted(numbers, size).clip(1, len(numbers) - 1)
    low, high = numbers[above - 1], numbers[above]
    up = (size - low > high - size) | ((size - low == high - size) & (above % 2 == 0))
    bits = np.where(up | (size >= high), above, above - 1)
    negative = np.signbit(value) & ~np.isnan(value) & ~((value == 0) & relu)
    out: Array = (bits | np.where(negative, sign, 0)).astype(np.uint16)
    return out


def small_float_cases() -> None:
    rng = np.random.default_rng(103)
    for name, (exponents, fraction, apart) in SMALL.items():
        numbers, sign = table_of(exponents, fraction), 1 << (exponents + fraction)
        values = [np.concatenate([x[: SIZE // 2], (rng.normal(size=SIZE // 2) * 3).astype(np.float32)])
                  for x in singles(2, 104)]  # fmt: skip
        for relu in ("", ".relu"):
            high, low = (encoded(value, numbers, sign, bool(relu)) for value in values)
            form = f"cvt.rn.satfinite{relu}.{name}.f32"
            code = f"{form} %d, %a, %b;"
            if apart == 4:
                code = f".reg .b8 %small;\n{form} %small, %a, %b;\ncvt.u16.u8 %d, %small;"
            CASES.append(Case(form, code, dict(zip("ab", values, strict=True)), {"d": high << apart | low}))
            codes = rng.integers(0, 2 * sign, (2, SIZE)).astype(np.uint16)
            decoded = np.where(codes & sign, -1.0, 1.0) * numbers[codes % sign]
            if relu:
                decoded = np.where(decoded > 0, decoded, 0.0)
            halves = decoded.astype(np.float16).view(np.uint16).astype(np.uint32)
            form = f"cvt.rn{relu}.f16x2.{name}"
            code = f"{form} %d, %a;"
            if apart == 4:
                code = f".reg .b8 %small;\ncvt.u8.u16 %small, %a;\n{form} %d, %small;"
            CASES.append(Case(form, code, {"a": codes[1] << apart | codes[0]}, {"d": halves[1] << 16 | halves[0]}))


def powers(values: Array, mode: str, finite: str) -> Array:
    bits = values.view(np.uint32) & 0x7FFFFFFF
    field, fraction = bits >> 23, bits & 0x7FFFFF
    out = field + ((mode == "rp") & np.where(field > 0, fraction > 0, fraction > 0x400000))
    out = np.where(bits > 0x7F800000, 0xFF, np.minimum(out, 0xFE) if finite else out)
    return out.astype(np.uint16)


def power_cases() -> None:
    values = singles(2, 105)
    short = [(value.view(np.uint32) & 0xFFFF0000).view(np.float32) for value in values]
    for mode, finite in itertools.product(("rz", "rp"), ("", ".satfinite")):
        high, low = (powers(value, mode, finite) for value in values)
        form = f"cvt.{mode}{finite}.ue8m0x2.f32"
        CASES.append(Case(form, f"{form} %d, %a, %b;", dict(zip("ab", values, strict=True)), {"d": high << 8 | low}))
        high, low = (powers(value, mode, finite) for value in short)
        pair = short[0].view(np.uint32) | short[1].view(np.uint32) >> 16
        form = f"cvt.{mode}{finite}.ue8m0x2.bf16x2"
        CASES.append(Case(form, f"{form} %d, %a;", {"a": pair}, {"d": high << 8 | low}))
    codes = np.arange(SIZE).astype(np.uint16)
    bits = np.where(codes == 255, 0x7FFF, np.where(codes > 0, codes << 7, 0x40)).astype(np.uint32)
    CASES.append(Case("cvt.rn.bf16x2.ue8m0x2", "cvt.rn.bf16x2.ue8m0x2 %d, %a;",
                      {"a": codes << 8 | codes[::-1]}, {"d": bits << 16 | bits[::-1]}))  # fmt: skip


def memory_cases() -> None:
    """32 bytes at once, through memory of the thread's own warp: two lanes share a chunk."""
    data = np.arange(SIZE, dtype=np.uint32) * 2654435761
    code = (
        ".reg .b32 %v<8>, %half;\n.reg .b64 %at;\nmov.u64 %at, board;\nand.b32 %half, %i, 0xfffffffe;\n"
        "mad.wide.u32 %at, %half, 16, %at;\n"
        + "".join(f"add.u32 %v{i}, %a, {i};\n" for i in range(8))
        + ".reg .pred %even;\nand.b32 %half, %i, 1;\nsetp.eq.u32 %even, %half, 0;\n"
        + "@%even st.global.v8.b32 [%at], {%v0, %v1, %v2, %v3, %v4, %v5, %v6, %v7};\nbar.warp.sync 0xffffffff;\n"
        + "ld.global.v8.b32 {%v0, %v1, %v2, %v3, %v4, %v5, %v6, %v7}, [%at];\nadd.u32 %d, %v0, %v7;"
    )
    CASES.append(Case("ld.global.v8.b32", code, {"a": data}, {"d": 2 * data[np.arange(SIZE) // 2 * 2] + np.uint32(7)}))


def blackwell_cases() -> None:
    pair_cases()
    three_cases()
    small_float_cases()
    power_cases()
    memory_cases()
