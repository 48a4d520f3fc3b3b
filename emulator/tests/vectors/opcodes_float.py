"""Vectors of f32, f64, f16 and bf16 arithmetic and of the approximate functions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
from support import exact
from support.emulation import Array, Case, same_bits, within
from support.exact import BFLOAT, DOUBLE, HALF, SINGLE, Format
from vectors.opcodes import CASES, SIZE, add_case, halves, same_halves, same_packed, same_single, singles


def float_cases() -> None:
    flush = exact.flush
    for mode, ftz in itertools.product(("", ".rn"), ("", ".ftz")):

        def prepared(*row: float, ftz: str = ftz) -> list[float]:
            return [math.copysign(0.0, x) if ftz and abs(x) < 2.0**-126 else x for x in row]

        def finish(bits: int, ftz: str = ftz) -> int:
            return flush(bits, SINGLE) if ftz else bits

        for op, function in (("add", exact.add), ("mul", exact.mul)):
            add_case(f"{op}{mode}{ftz}.f32", f"{op}{mode}{ftz}.f32 %d, %a, %b;", singles(2, 50), np.uint32, lambda a, b,
                     p=prepared, f=finish, g=function: f(g(*p(a, b), SINGLE)), same_single, "f4")  # fmt: skip
        add_case(f"sub{mode}{ftz}.f32", f"sub{mode}{ftz}.f32 %d, %a, %b;", singles(2, 51), np.uint32,
                 lambda a, b, p=prepared, f=finish: f(exact.add(*p(a, -b), SINGLE)), same_single, "f4")  # fmt: skip
        if mode:
            add_case(f"fma{mode}{ftz}.f32", f"fma{mode}{ftz}.f32 %d, %a, %b, %c;", singles(3, 52), np.uint32, lambda a,
                     b, c, p=prepared, f=finish: f(exact.fma(*p(a, b, c), SINGLE)), same_single, "f4")  # fmt: skip
            add_case(f"mad{mode}{ftz}.f32", f"mad{mode}{ftz}.f32 %d, %a, %b, %c;", singles(3, 49), np.uint32, lambda a,
                     b, c, p=prepared, f=finish: f(exact.fma(*p(a, b, c), SINGLE)), same_single, "f4")  # fmt: skip
            add_case(f"div{mode}{ftz}.f32", f"div{mode}{ftz}.f32 %d, %a, %b;", singles(2, 53), np.uint32, lambda a, b,
                     p=prepared, f=finish: f(exact.div(*p(a, b), SINGLE)), same_single, "f4")  # fmt: skip
    for ftz in ("", ".ftz"):

        def near(x: float, ftz: str = ftz) -> float:
            return math.copysign(0.0, x) if ftz and abs(x) < 2.0**-126 else x

        for op, pick in (("min", min), ("max", max)):
            add_case(f"{op}{ftz}.f32", f"{op}{ftz}.f32 %d, %a, %b;", singles(2, 54), np.float32,
                     lambda a, b, n=near, pick=pick: extreme(n(a), n(b), pick))  # fmt: skip
            if not ftz:
                add_case(f"{op}.NaN.f32", f"{op}.NaN.f32 %d, %a, %b;", singles(2, 55), np.float32, lambda a, b,
                         pick=pick: math.nan if math.isnan(a) or math.isnan(b) else extreme(a, b, pick))  # fmt: skip
        add_case(f"neg{ftz}.f32", f"neg{ftz}.f32 %d, %a;", singles(1, 56), np.float32, lambda a, n=near: -n(a))
        add_case(f"abs{ftz}.f32", f"abs{ftz}.f32 %d, %a;", singles(1, 57), np.float32, lambda a, n=near: abs(n(a)))
    add_case("copysign.f32", "copysign.f32 %d, %a, %b;", singles(2, 49), np.float32, lambda a, b: math.copysign(b, a))
    saturate_cases()
    double_cases()
    approximate_cases()
    half_cases()


def saturate_cases() -> None:
    """sat: into [0, 1], NaN to 0. The sign of a zero is left open."""

    def saturated(bits: int) -> float:
        value = exact.decode(bits, SINGLE)
        return 0.0 if math.isnan(value) else min(max(value, 0.0), 1.0)

    for ftz in ("", ".ftz"):
        clean = [np.where(np.abs(x) < 2.0**-60, np.float32(0.25), x) for x in singles(3, 58)]
        for op, function in (("add", exact.add), ("mul", exact.mul), ("sub", lambda a, b, to: exact.add(a, -b, to))):
            add_case(f"{op}{ftz}.sat.f32", f"{op}{ftz}.sat.f32 %d, %a, %b;", clean[:2], np.float32,
                     lambda a, b, f=function: saturated(f(a, b, SINGLE)), np.equal)  # fmt: skip
        add_case(f"fma.rn{ftz}.sat.f32", f"fma.rn{ftz}.sat.f32 %d, %a, %b, %c;", clean, np.float32,
                 lambda a, b, c: saturated(exact.fma(a, b, c, SINGLE)), np.equal)  # fmt: skip


def double_cases() -> None:
    a, b, c = (np.concatenate([x[: SIZE // 2].astype(np.float64), np.random.default_rng(i).normal(size=SIZE // 2)])
               for i, x in enumerate(singles(3, 64)))  # fmt: skip

    def case(op: str, inputs: list[Array], reference: Callable[..., int]) -> None:
        operands = ", ".join(f"%{x}" for x in "abc"[: len(inputs)])
        add_case(op, f"{op} %d, {operands};", inputs, np.uint64, reference, lambda got, want: same_bits(got,
                 want.view(np.float64)), "f8")  # fmt: skip

    for mode in ("", ".rn"):
        case(f"add{mode}.f64", [a, b], lambda a, b: exact.add(a, b, DOUBLE))
        case(f"sub{mode}.f64", [a, b], lambda a, b: exact.add(a, -b, DOUBLE))
        case(f"mul{mode}.f64", [a, b], lambda a, b: exact.mul(a, b, DOUBLE))
    case("fma.rn.f64", [a, b, c], lambda a, b, c: exact.fma(a, b, c, DOUBLE))
    case("div.rn.f64", [a, b], lambda a, b: exact.div(a, b, DOUBLE))
    case("rcp.rn.f64", [a], lambda a: exact.div(1.0, a, DOUBLE))
    case("sqrt.rn.f64", [np.abs(a)], lambda a: exact.convert(math.sqrt(a), DOUBLE))
    case("neg.f64", [a], lambda a: exact.convert(-a, DOUBLE))
    case("abs.f64", [a], lambda a: exact.convert(abs(a), DOUBLE))
    case("min.f64", [a, b], lambda a, b: exact.convert(extreme(a, b, min), DOUBLE))
    case("max.f64", [a, b], lambda a, b: exact.convert(extreme(a, b, max), DOUBLE))


def extreme(a: float, b: float, pick: Callable[[float, float], float]) -> float:
    """min and max: a number beats NaN, and -0 is less than +0."""
    if math.isnan(a) or math.isnan(b):
        return b if math.isnan(a) else a
    if a == b == 0:
        return math.copysign(0.0, pick(math.copysign(1.0, a), math.copysign(1.0, b)))
    return pick(a, b)


def approximate_cases() -> None:
    """Bounds of the PTX ISA: ex2 and rcp and rsqrt relative 2^-22, lg2 absolute 2^-22, div.approx and sqrt 2 ulp."""
    ulps = 2.0**-22
    x, y = singles(2, 60)
    x[::3] = np.random.default_rng(61).uniform(-140, 140, len(x[::3])).astype(np.float32)
    tiny = 2.0**-126
    with np.errstate(all="ignore"):
        for ftz in ("", ".ftz"):
            a = x.astype(np.float64)
            b = y.astype(np.float64)
            if ftz:
                a = np.where(np.abs(a) < tiny, np.copysign(0.0, a), a)
                b = np.where(np.abs(b) < tiny, np.copysign(0.0, b), b)
            wants = {f"ex2.approx{ftz}.f32": (np.exp2(a), within(ulps, 2.0**-149)), f"lg2.approx{ftz}.f32": (np.log2(a),
                within(ulps, ulps)), f"rcp.approx{ftz}.f32": (1 / a, within(ulps, 2.0**-149)),
                f"rsqrt.approx{ftz}.f32": (1 / np.sqrt(a), within(ulps)), f"sqrt.approx{ftz}.f32": (np.sqrt(a),
                within(ulps))}  # fmt: skip
            for op, (want, compare) in wants.items():
                want = np.where(np.abs(want) < tiny, np.copysign(0.0, want), want) if ftz else want
                margin = near_smallest(compare) if ftz else compare
                CASES.append(Case(op, f"{op} %d, %a;", {"a": x}, {"d": want}, margin, {"d": np.dtype("f4")}))
            # div.approx is specified for 2^-126 <= |b| <= 2^126 to 2 ulp, beyond that it may give 0.
            divisor = np.where((np.abs(b) >= tiny) & (np.abs(b) <= 2.0**126), y, np.float32(3))
            ratio = a / divisor.astype(np.float64)
            ratio = np.where(np.abs(ratio) < tiny, np.copysign(0.0, ratio), ratio) if ftz else ratio
            for op in (f"div.approx{ftz}.f32", f"div.full{ftz}.f32"):
                compare = near_smallest(within(ulps)) if ftz else within(ulps, 2.0**-149)
                CASES.append(Case(op, f"{op} %d, %a, %b;", {"a": x, "b": divisor}, {"d": ratio}, compare,
                                  {"d": np.dtype("f4")}))  # fmt: skip
        angle = np.random.default_rng(62).uniform(-math.pi, math.pi, SIZE).astype(np.float32)
        wide = angle.astype(np.float64)
        for op, want in (
            ("sin.approx.f32", np.sin(wide)),
            ("cos.approx.f32", np.cos(wide)),
            ("tanh.approx.f32", np.tanh(wide)),
            ("sin.approx.ftz.f32", np.sin(wide)),
            ("cos.approx.ftz.f32", np.cos(wide)),
        ):
            bound = within(2.0**-10.9) if op.startswith("tanh") else within(0, 2.0**-20.5)
            CASES.append(Case(op, f"{op} %d, %a;", {"a": angle}, {"d": want}, bound, {"d": np.dtype("f4")}))
    for ftz in ("", ".ftz"):

        def flushed(x: float, ftz: str = ftz) -> float:
            return math.copysign(0.0, x) if ftz and abs(x) < tiny else x

        def finish(bits: int, ftz: str = ftz) -> int:
            return exact.flush(bits, SINGLE) if ftz else bits

        add_case(f"sqrt.rn{ftz}.f32", f"sqrt.rn{ftz}.f32 %d, %a;", [np.abs(singles(1, 63)[0])], np.uint32, lambda a,
                 n=flushed, f=finish: f(exact.convert(math.sqrt(n(a)), SINGLE)), same_single, "f4")  # fmt: skip
        add_case(f"rcp.rn{ftz}.f32", f"rcp.rn{ftz}.f32 %d, %a;", [x], np.uint32, lambda a, n=flushed,
                 f=finish: f(exact.div(1.0, n(a), SINGLE)), same_single, "f4")  # fmt: skip
    small = np.random.default_rng(65).uniform(-10, 10, SIZE).astype(np.float16)
    want = np.exp2(small.astype(np.float64))

    def near_half(got: Array, want: Array) -> Array:
        return np.abs(got.view(np.float16).astype(np.float64) - want) <= 2.0**-9.9 * want

    CASES.append(Case("ex2.approx.f16", "ex2.approx.f16 %d, %a;", {"a": small.view(np.uint16)}, {"d": want}, near_half,
                      {"d": np.dtype("u2")}))  # fmt: skip
    packed = small.view(np.uint16).astype(np.uint32) * 0x10001
    CASES.append(Case("ex2.approx.f16x2", "ex2.approx.f16x2 %d, %a;", {"a": packed}, {"d": want}, lambda got,
                 want: near_half((got >> 16).astype(np.uint16), want) & (got >> 16 == got & 0xFFFF),
                 {"d": np.dtype("u4")}))  # fmt: skip


def near_smallest(compare: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    """With ftz, a result at the border of the subnormal numbers may round to either side."""

    def either(got: Array, want: Array) -> Array:
        border = np.abs(np.abs(want) - 2.0**-126) < 2.0**-147
        zero = (got == 0) & (np.abs(want) <= 2.0**-126 * (1 + 2.0**-21))
        return compare(got, want) | border | zero

    return either


def half_cases() -> None:
    for t, of in (("f16", HALF), ("bf16", BFLOAT)):

        def value(x: int, of: Format = of) -> float:
            return exact.decode(x, of)

        two, three = halves(2, 70, of), halves(3, 71, of)
        forms: list[tuple[str, list[Array], Callable[..., int]]] = [
            (f"fma.rn.{t}", three, lambda a, b, c, v=value, of=of: exact.fma(v(a), v(b), v(c), of)),
            (f"min.{t}", two, lambda a, b, v=value, of=of: exact.convert(extreme(v(a), v(b), min), of)),
            (f"max.{t}", two, lambda a, b, v=value, of=of: exact.convert(extreme(v(a), v(b), max), of)),
            (f"neg.{t}", two[:1], lambda a, v=value, of=of: exact.convert(-v(a), of)),
            (f"abs.{t}", two[:1], lambda a, v=value, of=of: exact.convert(abs(v(a)), of)),
        ]
        for mode in ("", ".rn"):
            forms += [(f"add{mode}.{t}", two, lambda a, b, v=value, of=of: exact.add(v(a), v(b), of)),
                (f"sub{mode}.{t}", two, lambda a, b, v=value, of=of: exact.add(v(a), -v(b), of)), (f"mul{mode}.{t}",
                two, lambda a, b, v=value, of=of: exact.mul(v(a), v(b), of))]  # fmt: skip
        for op, inputs, function in forms:
            operands = ", ".join(f"%{x}" for x in "abc"[: len(inputs)])
            add_case(op, f"{op} %d, {operands};", inputs, np.uint16, function, same_halves(of))
            packed = [array.astype(np.uint32) | np.roll(array, 5).astype(np.uint32) << 16 for array in inputs]
            add_case(f"{op}x2", f"{op}x2 %d, {operands};", packed, np.uint32,
                     lambda *row, f=function: f(*(x & 0xFFFF for x in row)) | f(*(x >> 16 for x in row)) << 16,
                     same_packed(of))  # fmt: skip
