"""Vectors of setp, selp, slct, set and cvt."""

import itertools
import math
from collections.abc import Callable

import numpy as np
from support import exact
from support.emulation import Array, Case
from support.exact import BFLOAT, HALF, Format
from vectors.opcodes import CASES, FLOAT_EDGES, SIZE, add_case, halves, integers, same_halves, signed, singles, unsigned

COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b, "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
}  # fmt: skip
UNSIGNED_NAMES = {"lt": "lo", "le": "ls", "gt": "hi", "ge": "hs"}


def compare_cases() -> None:
    combine_cases()
    compare_types()


def compare_types() -> None:
    """Every comparison of every type, combined with a third predicate."""
    combines = itertools.cycle(("and", "or", "xor"))
    for t in ("b16", "b32", "b64", "u16", "s16", "u32", "s32", "u64", "s64", "f16", "bf16", "f32", "f64"):
        floating, bits = "f" in t, 64 if t == "f64" else int(t.strip("busf"))
        of = {"f16": HALF, "bf16": BFLOAT}.get(t)
        if of:
            a, b = halves(2, 35, of)
        elif t == "f64":
            a, b = (x.astype(np.float64) for x in singles(2, 36))
        else:
            a, b = singles(2, 37) if floating else integers(bits, 2, 38)
        b[1::3] = a[1::3]
        names = ["eq", "ne"] if t[0] == "b" and not of else list(COMPARISONS)
        names += [f"{name}u" for name in COMPARISONS] + ["num", "nan"] if floating else []
        names += list(UNSIGNED_NAMES.values()) if t[0] == "u" else []
        for name in names:
            ftz = ".ftz" if t == "f32" and name in ("lt", "geu") else ""

            def value(x: float, of: Format | None = of, t: str = t, bits: int = bits) -> float:
                return exact.decode(int(x), of) if of else signed(int(x), bits) if t[0] == "s" else x

            def result(
                a: float, b: float, value: Callable[[float], float] = value, name: str = name, ftz: str = ftz
            ) -> bool:
                return comparison(value(a), value(b), name, bool(ftz))

            combine = next(combines)
            code = (
                f".reg .pred %p, %q;\nsetp.lt.u32 %q, %lane, 9;\nsetp.{name}.{combine}{ftz}.{t} %p, %a, %b, %q;\n"
                "selp.u32 %d, 1, 0, %p;"
            )
            pairs = zip(a.tolist(), b.tolist(), strict=True)
            left = np.array([comparison(value(x), value(y), name, bool(ftz)) for x, y in pairs])
            right = np.arange(SIZE) % 32 < 9
            want = {"and": left & right, "or": left | right, "xor": left ^ right}[combine]
            CASES.append(Case(f"setp.{name}.{combine}{ftz}.{t}", code, {"a": a, "b": b}, {"d": want.astype(np.uint32)}))
            plain = f".reg .pred %p;\nsetp.{name}{ftz}.{t} %p, %a, %b;\nselp.u32 %d, 1, 0, %p;"
            CASES.append(Case(f"setp.{name}{ftz}.{t}", plain, {"a": a, "b": b}, {"d": left.astype(np.uint32)}))


def comparison(a: float, b: float, name: str, ftz: bool) -> bool:
    unordered = math.isnan(a) or math.isnan(b)
    if name in ("num", "nan"):
        return unordered == (name == "nan")
    plain = {other: name for name, other in UNSIGNED_NAMES.items()}.get(name, name)
    return float_compare(a, b, COMPARISONS[plain[:2]], name.endswith("u"), ftz)


def float_compare(a: float, b: float, test: Callable[[float, float], bool], unordered: bool, ftz: bool) -> bool:
    if math.isnan(a) or math.isnan(b):
        return unordered
    tiny = 2.0**-126 if ftz else 0.0
    return test(0.0 if abs(a) < tiny else a, 0.0 if abs(b) < tiny else b)


def combine_cases() -> None:
    """setp with a second predicate in and out, logic on predicates, guards and selp."""
    a, b, c = integers(32, 3, 32)
    for name, combine in (("and", lambda x, y: x and y), ("or", lambda x, y: x or y), ("xor", lambda x, y: x != y)):
        for bang in ("", "!"):
            code = (
                ".reg .pred %p, %q, %r;\n.reg .b32 %x;\nsetp.lt.s32 %r, %c, 0;\n"
                f"setp.gt.{name}.s32 %p|%q, %a, %b, {bang}%r;\nselp.u32 %d, 2, 0, %p;\nselp.u32 %x, 1, 0, %q;\n"
                "add.s32 %d, %d, %x;"
            )

            def pair(a: int, b: int, c: int, combine: Callable[[bool, bool], bool] = combine, bang: str = bang) -> int:
                more, other = signed(a, 32) > signed(b, 32), (signed(c, 32) < 0) != bool(bang)
                return 2 * combine(more, other) + combine(not more, other)

            add_case(f"setp.{name} p|q {bang}r", code, [a, b, c], np.uint32, pair)
        code = (
            f".reg .pred %p, %q;\nsetp.lt.s32 %p, %a, 0;\nsetp.lt.s32 %q, %b, 0;\n{name}.pred %p, %p, %q;\n"
            "selp.b32 %d, %a, %b, %p;"
        )
        add_case(f"{name}.pred", code, [a, b], np.uint32,
                 lambda a, b, f=combine: a if f(a >> 31 == 1, b >> 31 == 1) else b)  # fmt: skip
    code = ".reg .pred %p, %q;\nsetp.lt.s32 %p, %a, 0;\nnot.pred %q, %p;\nselp.b32 %d, %a, %b, %q;"
    add_case("not.pred", code, [a, b], np.uint32, lambda a, b: b if a >> 31 else a)
    code = ".reg .pred %p;\nsetp.lt.s32 %p, %a, %b;\nmov.u32 %d, 5;\n@%p add.s32 %d, %a, 1;\n@!%p sub.s32 %d, %b, 1;"
    add_case("guards", code, [a, b], np.uint32,
             lambda a, b: (a + 1 if signed(a, 32) < signed(b, 32) else b - 1) % (1 << 32))  # fmt: skip
    for bits in (16, 32, 64):
        x, y = integers(bits, 2, 33)
        add_case(f"selp.b{bits}", f".reg .pred %p;\nsetp.lo.u{bits} %p, %a, 100;\nselp.b{bits} %d, %a, %b, %p;", [x, y],
                 unsigned(bits), lambda a, b: a if a < 100 else b)  # fmt: skip
    for t in ("u16", "s16", "s32", "u64", "s64"):
        x, y = integers(int(t[1:]), 2, 39)
        code = f".reg .pred %p;\nsetp.lt.u32 %p, %lane, 7;\nmov.{t} %d, %a;\nselp.{t} %d, %d, %b, %p;"
        want = np.where(np.arange(SIZE) % 32 < 7, x, y)
        CASES.append(Case(f"mov.{t} and selp.{t}", code, {"a": x, "b": y}, {"d": want}))
    code = (
        ".reg .pred %p, %q;\nsetp.lt.u32 %p, %lane, 7;\nmov.pred %q, %p;\n.reg .f64 %e;\n"
        "mov.f64 %e, 0d3FF0000000000000;\n"
        "selp.f64 %d, %e, 0dC000000000000000, %q;"
    )
    CASES.append(Case("mov.pred and selp.f64", code, {}, {"d": np.where(np.arange(SIZE) % 32 < 7, 1.0, -2.0)}))
    f, g = singles(2, 34)
    add_case("selp.f32", ".reg .pred %p;\nsetp.gt.f32 %p, %a, 0f00000000;\nselp.f32 %d, %a, %b, %p;", [f, g],
             np.float32, lambda a, b: a if a > 0 else b)  # fmt: skip


def convert_cases() -> None:
    kinds = [f"{sign}{bits}" for bits in (8, 16, 32, 64) for sign in "us"]
    for to, source in itertools.product(kinds, kinds):
        to_bits, from_bits = int(to[1:]), int(source[1:])
        a = integers(from_bits, 1, 40)[0]

        def narrow(
            a: int, to: str = to, source: str = source, to_bits: int = to_bits, from_bits: int = from_bits
        ) -> int:
            value = signed(a, from_bits) if source[0] == "s" else a
            low = value % (1 << to_bits)
            return signed(low, to_bits) % (1 << max(to_bits, 16)) if to[0] == "s" else low

        if to == source:
            continue
        add_case(f"cvt.{to}.{source}", f"cvt.{to}.{source} %d, %a;", [a], unsigned(max(to_bits, 16)), narrow)
    # A source register may be wider than the source type: its low bits are read.
    for to, source, reg_bits in (("s64", "s32", 64), ("u64", "u32", 64), ("u32", "u16", 32), ("s32", "s8", 32),
                                 ("u16", "u8", 32), ("f32", "s32", 64), ("f32", "u16", 32)):  # fmt: skip
        a = integers(reg_bits, 1, 41)[0]
        bits = int(source[1:])

        def low(a: int, source: str = source, bits: int = bits) -> int:
            return signed(a % (1 << bits), bits) if source[0] == "s" else a % (1 << bits)

        name = f"cvt.{to}.{source} of a {reg_bits}-bit register"
        if to == "f32":
            add_case(name, f"cvt.rn.{to}.{source} %d, %a;", [a], np.float32, lambda a, low=low: np.float32(low(a)))
        else:
            out = unsigned(int(to[1:]))
            add_case(
                name, f"cvt.{to}.{source} %d, %a;", [a], out, lambda a, low=low, n=out.itemsize * 8: low(a) % (1 << n)
            )


def to_integer(a: float, mode: str, to: str, ftz: bool, source: int = 32) -> int:
    bits = int(to[1:])
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if to[0] == "s" else (0, (1 << bits) - 1)
    if math.isnan(a):
        # PTX ISA, cvt: NaN becomes the top bit where either type has 64 bits, else 0.
        return 1 << (bits - 1) if 64 in (bits, source) else 0
    if math.isinf(a):
        return (high if a > 0 else low) % (1 << bits)
    if ftz and abs(a) < 2.0**-126:
        a = 0.0
    size = exact.round_to_integer(abs(a).as_integer_ratio(), mode[:2], a < 0)
    return min(max(-size if a < 0 else size, low), high) % (1 << bits)


def to_integral(a: float, mode: str, ftz: bool) -> float:
    if not math.isfinite(a):
        return a
    if ftz and abs(a) < 2.0**-126:
        a = math.copysign(0.0, a)
    return math.copysign(float(exact.round_to_integer(abs(a).as_integer_ratio(), mode[:2], a < 0)), a)


def near_halves(of: Format) -> Array:
    """float32 values around the rounding points of a 16-bit format."""
    rng = np.random.default_rng(of.precision)
    values = []
    for i in range(SIZE):
        bits = int(rng.integers(0, of.infinity))
        low, high = exact.decode(bits, of), exact.decode(bits + 1, of)
        middle = (low + high) / 2 if math.isfinite(high) else low * (1 + 2.0**-of.precision)
        value = np.float32((low, middle, np.nextafter(np.float32(middle), np.float32(0)),
                            np.nextafter(np.float32(middle), np.float32(np.inf)))[i % 4])  # fmt: skip
        values.append(-value if rng.integers(2) else value)
    for i, edge in enumerate(FLOAT_EDGES):
        values[i * 7] = np.array(edge, np.uint32).view(np.float32)[()]
    return np.array(values, np.float32)


def table_cases() -> None:
    """All 65,536 values of the 16-bit types to f32 and back, and every midpoint between two of them."""
    bits = np.arange(1 << 16).astype(np.uint16)
    for t, of in (("f16", HALF), ("bf16", BFLOAT)):
        wide = (
            bits.view(np.float16).astype(np.float32) if of is HALF else (bits.astype(np.uint32) << 16).view(np.float32)
        )
        CASES.append(Case(f"cvt.f32.{t} table", f"cvt.f32.{t} %d, %a;", {"a": bits}, {"d": wide}))
        if of is HALF:
            CASES.append(Case("cvt.ftz.f32.f16 table", "cvt.ftz.f32.f16 %d, %a;", {"a": bits}, {"d": wide}))
        finite = bits & 0x7FFF < of.infinity - 1  # and so is the next one away from zero
        low = np.where(finite, bits, 0).astype(np.uint16)
        with np.errstate(invalid="ignore"):
            middle = ((wide[low].astype(np.float64) + wide[low + 1]) / 2).astype(np.float32)
        even = low + (low & 1)
        for mode, halfway in (("rn", even), ("rz", low)):
            op = f"cvt.{mode}.{t}.f32"
            CASES.append(Case(f"{op} table", f"{op} %d, %a;", {"a": wide}, {"d": bits}, same_halves(of)))
            CASES.append(Case(f"{op} midpoints", f"{op} %d, %a;", {"a": middle}, {"d": halfway}))
            packed, want = f"cvt.{mode}.{t}x2.f32", halfway.astype(np.uint32) << 16 | np.roll(halfway, 3)
            CASES.append(Case(f"{packed} midpoints", f"{packed} %d, %a, %b;", {"a": middle, "b": np.roll(middle, 3)},
                              {"d": want}))  # fmt: skip
