"""Vectors of f32, f64, f16 and bf16 arithmetic in every rounding, with every modifier, and of approximate functions."""

import itertools
import math
from collections.abc import Callable

import numpy as np
from support import exact
from support.emulation import Array, Case, same_bits, within
from support.exact import BFLOAT, DOUBLE, HALF, SINGLE, Format
from vectors.opcodes import CASES, SIZE, add_case, halves, same_halves, same_packed, same_single, singles

Bits = Callable[..., int]


def same_double(got: Array, want: Array) -> Array:
    return same_bits(got, want.view(np.float64))


def doubles(count: int, seed: int) -> list[Array]:
    """Edge values and values of every exponent; half of them so that sums cancel and quotients are near 1."""
    rng = np.random.default_rng([64, count, seed])
    edges = np.array([0, 1, 0x000FFFFFFFFFFFFF, 0x0010000000000000, 0x3FF0000000000000, 0x3FF0000000000001,
                      0x7FEFFFFFFFFFFFFF, 0x7FF0000000000000, 0x7FF8000000000000, 0x4340000000000000],
                     np.uint64)  # fmt: skip
    out = []
    for i in range(count):
        bits = rng.integers(0, 1 << 63, SIZE, dtype=np.uint64) * np.uint64(2) + np.uint64(i)
        near = (rng.normal(size=SIZE) * 2.0 ** rng.integers(-3, 4, SIZE)).view(np.uint64)
        bits[SIZE // 4 :] = near[SIZE // 4 :]
        bits[: SIZE // 8] = rng.choice(edges, SIZE // 8) | (
            rng.integers(0, 2, SIZE // 8).astype(np.uint64) << np.uint64(63)
        )
        out.append(bits.view(np.float64))
    return out


FUNCTIONS: dict[str, tuple[int, Callable[..., int]]] = {"add": (2, exact.add), "sub": (2, lambda a, b, to,
    mode: exact.add(a, -b, to, mode)), "mul": (2, exact.mul), "fma": (3, exact.fma), "mad": (3, exact.fma), "div": (2,
    exact.div), "rcp": (1, lambda a, to, mode: exact.div(1.0, a, to, mode)), "sqrt": (1, exact.sqrt)}  # fmt: skip


def saturated(bits: int) -> float:
    value = exact.decode(bits, SINGLE)
    return 0.0 if math.isnan(value) else min(max(value, 0.0), 1.0)


def flushed(x: float) -> float:
    return math.copysign(0.0, x) if abs(x) < 2.0**-126 else x


def float_cases() -> None:
    for (op, (count, function)), mode in itertools.product(FUNCTIONS.items(), ("", ".rn", ".rz", ".rm", ".rp")):
        if not mode and op not in ("add", "sub", "mul"):
            continue
        operands, rule = ", ".join(f"%{x}" for x in "abc"[:count]), mode[1:] or "rn"
        for ftz in ("", ".ftz"):

            def single(*row: float, f: Bits = function, rule: str = rule, ftz: str = ftz) -> int:
                bits = f(*(map(flushed, row) if ftz else row), SINGLE, rule)
                return exact.flush(bits, SINGLE) if ftz else bits

            name = f"{op}{mode}{ftz}.f32"
            add_case(name, f"{name} %d, {operands};", singles(count, 80), np.uint32, single, same_single, "f4")
            if op in ("add", "sub", "mul", "fma", "mad"):
                name = f"{op}{mode}{ftz}.sat.f32"
                add_case(name, f"{name} %d, {operands};", singles(count, 81), np.float32,
                         lambda *row, s=single: saturated(s(*row)), np.equal)  # fmt: skip
        for ftz in ("", ".ftz") if op == "rcp" else ("",):
            name = f"{op}{mode}{ftz}.f64"
            add_case(name, f"{name} %d, {operands};", doubles(count, 82), np.uint64,
                     lambda *row, f=function, rule=rule: f(*row, DOUBLE, rule), same_double, "f8")  # fmt: skip
    sign_cases()
    double_cases()
    half_modifiers()
    single_modifiers()
    approximate_cases()


def sign_cases() -> None:
    for ftz, (op, function) in itertools.product(("", ".ftz"), (("neg", lambda x: -x), ("abs", abs))):
        near = flushed if ftz else float
        add_case(f"{op}{ftz}.f32", f"{op}{ftz}.f32 %d, %a;", singles(1, 56), np.float32,
                 lambda a, n=near, f=function: f(n(a)))  # fmt: skip
        if not ftz:
            add_case(f"{op}.f64", f"{op}.f64 %d, %a;", doubles(1, 64), np.float64, function)
    add_case("copysign.f32", "copysign.f32 %d, %a, %b;", singles(2, 49), np.float32, lambda a, b: math.copysign(b, a))
    for op, pick in (("min", min), ("max", max)):
        add_case(f"{op}.f64", f"{op}.f64 %d, %a, %b;", doubles(2, 65), np.float64,
                 lambda a, b, pick=pick: extreme(a, b, pick))  # fmt: skip


def double_cases() -> None:
    a, b = doubles(2, 85)
    add_case("copysign.f64", "copysign.f64 %d, %a, %b;", [a, b], np.float64, lambda a, b: math.copysign(b, a))
    with np.errstate(all="ignore"):
        CASES.append(Case("rsqrt.approx.f64", "rsqrt.approx.f64 %d, %a;", {"a": a}, {"d": 1 / np.sqrt(a)},
                          lambda got, want: near_double(got, want, 2.0**-52)))  # fmt: skip
        # MUFU.RCP64H and RSQ64H: the upper 32 bits in and out, subnormals as zeros, 20 bits of the fraction right.
        high = (a.view(np.uint64) & np.uint64(0xFFFFFFFF00000000)).view(np.float64)
        high = np.where(np.abs(high) < 2.0**-1022, np.copysign(0.0, high), high)
        for op, want in (("rcp", 1 / high), ("rsqrt", 1 / np.sqrt(high))):
            want = np.where(np.abs(want) < 2.0**-1022, np.copysign(0.0, want), want)
            code = f"{op}.approx.ftz.f64 %d, %a;"
            CASES.append(Case(f"{op}.approx.ftz.f64", code, {"a": a}, {"d": want}, upper_words))


def near_double(got: Array, want: Array, relative: float) -> Array:
    with np.errstate(invalid="ignore"):
        near = np.abs(got - want) <= relative * np.abs(want)
    return near | same_bits(got, want)


def upper_words(got: Array, want: Array) -> Array:
    low = got.view(np.uint64) & np.uint64(0xFFFFFFFF)
    return (low == 0) & near_double(got, want, 2.0**-20)


def single_modifiers() -> None:
    """min and max of f32 with xorsign.abs: the smaller or larger magnitude, negative where the signs differ."""
    for op, nan, ftz in itertools.product(("min", "max"), ("", ".NaN"), ("", ".ftz")):
        pick = min if op == "min" else max

        def picked(a: float, b: float, pick: Callable[[float, float], float] = pick, nan: str = nan) -> float:
            return math.nan if nan and (math.isnan(a) or math.isnan(b)) else extreme(a, b, pick)

        def signed(a: float, b: float, f: Callable[[float, float], float] = picked) -> float:
            return f(abs(a), abs(b)) * math.copysign(1.0, a) * math.copysign(1.0, b)

        near = flushed if ftz else float
        for signs, function in (("", picked), (".xorsign.abs", signed)):
            name = f"{op}{ftz}{nan}{signs}.f32"
            add_case(f"{name}", f"{name} %d, %a, %b;", singles(2, 86), np.float32,
                     lambda a, b, f=function, n=near: f(n(a), n(b)))  # fmt: skip


def half_functions(of: Format) -> list[tuple[str, int, Bits]]:
    """Forms of f16 or bf16 as functions of bits, without ftz, sat and relu."""

    def v(x: int) -> float:
        return exact.decode(x, of)

    forms: list[tuple[str, int, Bits]] = [
        *((f"add{mode}", 2, lambda a, b: exact.add(v(a), v(b), of)) for mode in ("", ".rn")),
        *((f"sub{mode}", 2, lambda a, b: exact.add(v(a), -v(b), of)) for mode in ("", ".rn")),
        *((f"mul{mode}", 2, lambda a, b: exact.mul(v(a), v(b), of)) for mode in ("", ".rn")),
        ("fma.rn", 3, lambda a, b, c: exact.fma(v(a), v(b), v(c), of)),
        ("neg", 1, lambda a: a ^ 0x8000),
        ("abs", 1, lambda a: a & 0x7FFF),
    ]
    for op, nan, signs in itertools.product(("min", "max"), ("", ".NaN"), ("", ".xorsign.abs")):
        pick = min if op == "min" else max

        def picked(a: int, b: int, nan: str = nan, signs: str = signs, pick: Callable[..., float] = pick) -> int:
            x, y = v(a), v(b)
            if (math.isnan(x) and math.isnan(y)) or (nan and (math.isnan(x) or math.isnan(y))):
                return of.nan
            if not signs:
                return exact.convert(extreme(x, y, pick), of)
            return exact.convert(extreme(abs(x), abs(y), pick), of) | (a ^ b) & 0x8000

        forms.append((f"{op}{nan}{signs}", 2, picked))
    return forms


def half_modifiers() -> None:
    for t, of in (("f16", HALF), ("bf16", BFLOAT)):
        one = 0x3C00 if of is HALF else 0x3F80

        def is_nan(x: int, of: Format = of) -> bool:
            return x & 0x7FFF > of.infinity

        def saturate(x: int, one: int = one, nan: Callable[[int], bool] = is_nan) -> int:
            return 0 if nan(x) or x & 0x8000 else min(x, one)

        def relu(x: int, nan: Callable[[int], bool] = is_nan) -> int:
            return x if nan(x) or not x & 0x8000 else 0

        def flush(x: int, of: Format = of) -> int:
            return exact.flush(x, of)

        for op, count, function in half_functions(of):
            ends: list[tuple[str, Callable[[int], int]]] = [("", lambda x: x)]
            if of is HALF and op[:3] in ("add", "sub", "mul", "fma"):
                ends.append((".sat", saturate))
            if op == "fma.rn":
                ends.append((".relu", relu))
            for ftz, (tail, end) in itertools.product(("", ".ftz") if of is HALF else ("",), ends):

                def result(*row: int, f: Bits = function, ftz: str = ftz, end: Bits = end, flush: Bits = flush) -> int:
                    return end(flush(f(*map(flush, row)))) if ftz else end(f(*row))

                first, *rest = op.split(".")
                modifiers = filter(None, [ftz.strip("."), tail.strip(".")])
                name = ".".join(
                    [first, *[r for r in rest if r == "rn"], *modifiers, *[r for r in rest if r != "rn"], t]
                )
                operands = ", ".join(f"%{x}" for x in "abc"[:count])
                inputs = halves(count, 87, of)
                add_case(f"{name}", f"{name} %d, {operands};", inputs, np.uint16, result, same_halves(of))
                packed = [x.astype(np.uint32) | np.roll(x, 9).astype(np.uint32) << 16 for x in inputs]
                add_case(f"{name}x2", f"{name}x2 %d, {operands};", packed, np.uint32,
                         lambda *row, f=result: f(*(x & 0xFFFF for x in row)) | f(*(x >> 16 for x in row)) << 16,
                         same_packed(of))  # fmt: skip
        # 0x7ff7 and 0xfff7 stand for elements out of bounds, as factors only
        inputs = halves(3, 89, of)
        inputs[0][::5], inputs[1][1::5], inputs[2][2::5] = 0x7FF7, 0xFFF7, 0x7FF7
        ends = [("", int), (".relu", relu), *([(".sat", saturate)] if of is HALF else [])]
        for tail, end in ends:

            def bounded(a: int, b: int, c: int, of: Format = of, end: Bits = end) -> int:
                x, y, z = (exact.decode(value, of) for value in (a, b, c))
                return 0 if 0x7FF7 in (a & 0x7FFF, b & 0x7FFF) else end(exact.fma(x, y, z, of))

            name = f"fma.rn{tail}.oob.{t}"
            add_case(name, f"{name} %d, %a, %b, %c;", inputs, np.uint16, bounded, same_halves(of))
            packed = [x.astype(np.uint32) | np.roll(x, 9).astype(np.uint32) << 16 for x in inputs]
            add_case(f"{name}x2", f"{name}x2 %d, %a, %b, %c;", packed, np.uint32,
                     lambda *row, f=bounded: f(*(x & 0xFFFF for x in row)) | f(*(x >> 16 for x in row)) << 16,
                     same_packed(of))  # fmt: skip
        half_approximations(t, of)


def half_approximations(t: str, of: Format) -> None:
    """tanh and ex2: the PTX ISA gives 2^-10.987 for f16, 2^-8 or 2^-7 for bf16."""
    rng = np.random.default_rng(88)
    values = np.array([exact.convert(float(x), of) for x in rng.uniform(-9, 9, SIZE)], np.uint16)
    x = np.array([exact.decode(int(bits), of) for bits in values])
    relative = 2.0**-9.9 if of is HALF else 2.0**-7
    decode = np.vectorize(lambda bits: exact.decode(int(bits), of))

    def near(got: Array, want: Array) -> Array:
        ok: Array = within(relative)(decode(got), want)
        return ok

    ftz = "" if of is HALF else ".ftz"
    for op, want in ((f"tanh.approx.{t}", np.tanh(x)), (f"ex2.approx{ftz}.{t}", np.exp2(x))):
        kinds = {"d": np.dtype("u2")}
        CASES.append(Case(f"{op}", f"{op} %d, %a;", {"a": values}, {"d": want}, near, kinds))
        packed = values.astype(np.uint32) * 0x10001
        CASES.append(Case(f"{op}x2", f"{op}x2 %d, %a;", {"a": packed}, {"d": want},
                          lambda got, want: near(got >> 16, want) & (got >> 16 == got & 0xFFFF),
                          {"d": np.dtype("u4")}))  # fmt: skip


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


def near_smallest(compare: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    """With ftz, a result at the border of the subnormal numbers may round to either side."""

    def either(got: Array, want: Array) -> Array:
        border = np.abs(np.abs(want) - 2.0**-126) < 2.0**-147
        zero = (got == 0) & (np.abs(want) <= 2.0**-126 * (1 + 2.0**-21))
        return compare(got, want) | border | zero

    return either
