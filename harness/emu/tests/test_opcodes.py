"""Every opcode form against arithmetic done here, over random and edge values, widths and rounding modes."""

from __future__ import annotations

import itertools
import math
import subprocess
from collections.abc import Callable
from pathlib import Path

import exact
import numpy as np
import pytest
import tensor_core
from emulation import ROOT, Array, Batch, Case, same_bits, within
from exact import BFLOAT, DOUBLE, HALF, SINGLE, Format
from forms import missing, read_forms

SIZE = 256
CASES: list[Case] = []
Reference = Callable[..., int]


def unsigned(bits: int) -> np.dtype[np.unsignedinteger]:  # type: ignore[type-arg]
    return np.dtype(f"u{bits // 8}")


def signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value


# --- Inputs -----------------------------------------------------------------------------------------------------------


def integers(bits: int, count: int, seed: int) -> list[Array]:
    """`count` arrays: all pairs of edge values first, then random ones of random magnitude."""
    rng = np.random.default_rng([bits, count, seed])
    top = 1 << bits
    edges = [0, 1, 2, 3, top // 2 - 1, top // 2, top // 2 + 1, top - 1, top - 2, 1 << (bits // 2), 31, 32, 0xAA, 7]
    rows = (
        list(itertools.islice(itertools.product([e % top for e in edges], repeat=count), SIZE // 2))
        if count < 3
        else [tuple(int(rng.choice(edges)) % top for _ in range(count)) for _ in range(SIZE // 2)]
    )
    while len(rows) < SIZE:
        rows.append(tuple(int(rng.integers(0, 1 << 63)) * 2 % top >> int(rng.integers(0, bits)) for _ in range(count)))
    return [np.array([row[i] for row in rows], unsigned(bits)) for i in range(count)]


FLOAT_EDGES = [
    0x00000000, 0x80000000, 0x00000001, 0x807FFFFF, 0x00800000, 0x80800000, 0x3F800000, 0xBF800000, 0x3F800001,
    0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0x3EFFFFFF, 0x4B800000, 0x33800000, 0x00400000,
]  # fmt: skip


def singles(count: int, seed: int) -> list[Array]:
    rng = np.random.default_rng([32, count, seed])
    rows = (
        list(itertools.islice(itertools.product(FLOAT_EDGES, repeat=count), SIZE * 3 // 4))
        if count < 3
        else [tuple(int(rng.choice(FLOAT_EDGES)) for _ in range(count)) for _ in range(SIZE // 2)]
    )
    near = np.array(rng.normal(size=(SIZE, count)) * 4, np.float32).view(np.uint32)
    rows += [tuple(int(x) for x in near[i]) for i in range((SIZE - len(rows)) // 2)]
    while len(rows) < SIZE:
        rows.append(tuple(int(x) for x in rng.integers(0, 1 << 32, count)))
    rng.shuffle(rows)
    return [np.array([row[i] for row in rows], np.uint32).view(np.float32) for i in range(count)]


def halves(count: int, seed: int, of: Format) -> list[Array]:
    rng = np.random.default_rng([16, count, seed])
    edges = [0, 0x8000, 1, 0x8001, 0x3C00, 0xBC00, 0x3F80, 0x7BFF, of.infinity, of.infinity | 0x8000, of.nan, 0x0400,
             0x03FF, 0x0080, 0x007F, of.infinity - 1]  # fmt: skip
    rows = [tuple(int(rng.choice(edges)) for _ in range(count)) for _ in range(SIZE // 2)]
    for _ in range(SIZE // 4):
        rows.append(tuple(exact.convert(float(x), of) for x in rng.normal(size=count) * 3))
    while len(rows) < SIZE:
        rows.append(tuple(int(x) for x in rng.integers(0, 1 << 16, count)))
    return [np.array([row[i] for row in rows], np.uint16) for i in range(count)]


# --- Cases ------------------------------------------------------------------------------------------------------------


def add_case(name: str, code: str, inputs: list[Array], to: np.dtype | type, reference: Callable[..., object],  # type: ignore[type-arg]
             compare: Callable[[Array, Array], Array] = same_bits, result: str = "") -> None:  # fmt: skip
    """A case of one output %d. The reference gets Python integers for unsigned inputs and floats for floating ones."""
    columns = [[x.item() for x in array] for array in inputs]
    want = np.array([reference(*row) for row in zip(*columns, strict=True)], to)
    kinds = {"d": np.dtype(result)} if result else {}
    CASES.append(Case(name, code, dict(zip("abc", inputs, strict=False)), {"d": want}, compare, kinds))


def integer_case(op: str, bits: int, count: int, reference: Reference, out_bits: int = 0) -> None:
    """`op` names the type, as in add.s32; the result is taken modulo its width."""
    out_bits = out_bits or bits
    operands = ", ".join(f"%{x}" for x in "abc"[:count])
    add_case(op, f"{op} %d, {operands};", integers(bits, count, len(CASES)), unsigned(out_bits),
             lambda *row: reference(*row) % (1 << out_bits))  # fmt: skip


def integer_cases() -> None:
    for sign, bits in itertools.product("us", (16, 32, 64)):
        t = f"{sign}{bits}"

        def value(x: int, bits: int = bits, sign: str = sign) -> int:
            return signed(x, bits) if sign == "s" else x

        integer_case(f"add.{t}", bits, 2, lambda a, b: a + b)
        integer_case(f"sub.{t}", bits, 2, lambda a, b: a - b)
        integer_case(f"mul.lo.{t}", bits, 2, lambda a, b: a * b)
        integer_case(f"mul.hi.{t}", bits, 2, lambda a, b, v=value, n=bits: v(a) * v(b) >> n)
        integer_case(f"mad.lo.{t}", bits, 3, lambda a, b, c: a * b + c)
        integer_case(f"min.{t}", bits, 2, lambda a, b, v=value: min(v(a), v(b)))
        integer_case(f"max.{t}", bits, 2, lambda a, b, v=value: max(v(a), v(b)))
        shift_case("shr", t, bits, lambda a, n, v=value: v(a) >> n)
        if bits == 32:
            integer_case(f"mad.hi.{t}", bits, 3, lambda a, b, c, v=value: (v(a) * v(b) >> 32) + c)
            integer_case(f"mul24.lo.{t}", bits, 2, lambda a, b, s=sign: low24(a, s) * low24(b, s))
            integer_case(f"sad.{t}", bits, 3, lambda a, b, c, v=value: abs(v(a) - v(b)) + c)
            integer_case(
                f"bfind.{t}", bits, 1, lambda a, v=value: (a if v(a) >= 0 else ~a & 0xFFFFFFFF).bit_length() - 1
            )
            extend_case(t, value)
        if bits < 64:
            integer_case(f"mul.wide.{t}", bits, 2, lambda a, b, v=value: v(a) * v(b), bits * 2)
            a, b, c = integers(bits, 2, 5) + integers(bits * 2, 1, 6)
            CASES.append(elementwise(f"mad.wide.{t}", f"mad.wide.{t} %d, %a, %b, %c;", [a, b, c], unsigned(bits * 2),
                                     lambda a, b, c, v=value, n=bits: (v(a) * v(b) + c) % (1 << 2 * n)))  # fmt: skip
        if bits > 16:
            extract_case(t, bits, sign)
        if sign == "s":
            integer_case(f"neg.{t}", bits, 1, lambda a: -a)
            integer_case(f"abs.{t}", bits, 1, lambda a, v=value: abs(v(a)))
        divide_cases(t, bits, value)
    for bits in (16, 32, 64):
        t = f"b{bits}"
        integer_case(f"and.{t}", bits, 2, lambda a, b: a & b)
        integer_case(f"or.{t}", bits, 2, lambda a, b: a | b)
        integer_case(f"xor.{t}", bits, 2, lambda a, b: a ^ b)
        integer_case(f"not.{t}", bits, 1, lambda a: ~a)
        shift_case("shl", t, bits, lambda a, n: a << n)
        shift_case("shr", t, bits, lambda a, n: a >> n)
        if bits > 16:
            integer_case(f"popc.{t}", bits, 1, lambda a: a.bit_count(), 32)
            integer_case(f"clz.{t}", bits, 1, lambda a, n=bits: n - a.bit_length(), 32)
            integer_case(f"brev.{t}", bits, 1, lambda a, n=bits: int(f"{a:0{n}b}"[::-1], 2))
            insert_case(t, bits)


def low24(a: int, sign: str) -> int:
    low = a & 0xFFFFFF
    return low - (1 << 24) if sign == "s" and low >> 23 else low


def extend_case(t: str, value: Callable[[int], int]) -> None:
    """szext.clamp: the value of the low b bits, with their sign in the signed form."""

    def szext(a: int, b: int) -> int:
        if b >= 32:
            return a
        low = a & ((1 << b) - 1)
        negative = t[0] == "s" and b > 0 and low >> (b - 1) & 1
        return (low - (1 << b) if negative else low) % (1 << 32)

    add_case(
        f"szext.clamp.{t}",
        f"szext.clamp.{t} %d, %a, %b;",
        [integers(32, 1, 14)[0], small_counts(32, 15)],
        np.uint32,
        szext,
    )
    if t == "u32":
        add_case(
            "bmsk.clamp.b32",
            "bmsk.clamp.b32 %d, %a, %b;",
            [small_counts(32, 16), small_counts(32, 17)],
            np.uint32,
            lambda a, b: ((1 << min(b, 32)) - 1 << min(a, 32)) % (1 << 32),
        )


def elementwise(name: str, code: str, inputs: list[Array], to: np.dtype, reference: Callable[..., object]) -> Case:  # type: ignore[type-arg]
    add_case(name, code, inputs, to, reference)
    return CASES.pop()


def small_counts(limit: int, seed: int) -> Array:
    """32-bit counts around the limits of a field or a shift."""
    rng = np.random.default_rng(seed)
    edges = [0, 1, limit - 1, limit, limit + 1, 255, 256, 257, 0xFFFFFFFF, 0x80000000]
    return np.array([int(rng.choice(edges)) if i % 3 else int(rng.integers(0, limit)) for i in range(SIZE)], np.uint32)


def shift_case(op: str, t: str, bits: int, reference: Reference) -> None:
    """Shift amounts are 32-bit and clamp at the width."""
    a, n = integers(bits, 1, 7)[0], small_counts(bits, 8)
    add_case(f"{op}.{t}", f"{op}.{t} %d, %a, %b;", [a, n], unsigned(bits),
             lambda a, n: reference(a, min(n, bits)) % (1 << bits))  # fmt: skip


def divide_cases(t: str, bits: int, value: Callable[[int], int]) -> None:
    a, b = integers(bits, 2, 9)
    b[b == 0] = 3  # the result of a division by zero is not specified
    if t[0] == "s":
        a[(a == 1 << (bits - 1)) & (b == (1 << bits) - 1)] = 5  # neither is that of an overflow

    def quotient(a: int, b: int) -> int:
        size = abs(value(a)) // abs(value(b))
        return size if (value(a) < 0) == (value(b) < 0) else -size

    add_case(f"div.{t}", f"div.{t} %d, %a, %b;", [a, b], unsigned(bits), lambda a, b: quotient(a, b) % (1 << bits))
    add_case(f"rem.{t}", f"rem.{t} %d, %a, %b;", [a, b], unsigned(bits),
             lambda a, b: (value(a) - quotient(a, b) * value(b)) % (1 << bits))  # fmt: skip


def extract_case(t: str, bits: int, sign: str) -> None:
    def bfe(a: int, pos: int, length: int) -> int:
        pos, length = pos & 255, length & 255
        top = min(pos + length - 1, bits - 1)
        fill = 0 if sign == "u" or length == 0 else a >> top & 1
        field = [a >> (pos + i) & 1 if i < length and pos + i < bits else fill for i in range(bits)]
        return sum(bit << i for i, bit in enumerate(field))

    add_case(f"bfe.{t}", f"bfe.{t} %d, %a, %b, %c;", [integers(bits, 1, 10)[0], small_counts(bits, 11),
             small_counts(bits, 12)], unsigned(bits), bfe)  # fmt: skip


def insert_case(t: str, bits: int) -> None:
    a, b = integers(bits, 2, 13)
    for pos, length in ((0, 8), (5, 13), (bits - 4, 9), (bits, 3), (7, 0), (0, bits), (16, 16), (255, 255)):

        def bfi(a: int, b: int, pos: int = pos, length: int = length) -> int:
            return sum((a >> (i - pos) if pos <= i < pos + length else b >> i) % 2 << i for i in range(bits))

        add_case(f"bfi.{t} {pos} {length}", f"bfi.{t} %d, %a, %b, {pos}, {length};", [a, b], unsigned(bits), bfi)


def logic_cases() -> None:
    a, b, c = integers(32, 3, 20)
    for lut in (0x00, 0xFF, 0xCA, 0x96, 0xE8, 0x80, 0xFE, 0x1B, 0x3C):

        def lop3(a: int, b: int, c: int, lut: int = lut) -> int:
            return sum((lut >> ((a >> i & 1) * 4 + (b >> i & 1) * 2 + (c >> i & 1)) & 1) << i for i in range(32))

        add_case(f"lop3.b32 {lut:#x}", f"lop3.b32 %d, %a, %b, %c, {lut};", [a, b, c], np.uint32, lop3)

    def prmt(a: int, b: int, selector: int) -> int:
        source = (a | b << 32).to_bytes(8, "little")
        picks = [(source[selector >> 4 * i & 7], selector >> (4 * i + 3) & 1) for i in range(4)]
        return sum(
            (0xFF if byte & 0x80 else 0) << 8 * i if sign else byte << 8 * i for i, (byte, sign) in enumerate(picks)
        )

    add_case("prmt.b32", "prmt.b32 %d, %a, %b, %c;", [a, b, c], np.uint32, prmt)
    for mode, clamp in (("wrap", False), ("clamp", True)):

        def count(n: int, clamp: bool = clamp) -> int:
            return min(n, 32) if clamp else n & 31

        amounts = small_counts(32, 21)
        add_case(f"shf.l.{mode}.b32", f"shf.l.{mode}.b32 %d, %a, %b, %c;", [a, b, amounts], np.uint32,
                 lambda a, b, n, count=count: ((b << 32 | a) << count(n) >> 32) % (1 << 32))  # fmt: skip
        add_case(f"shf.r.{mode}.b32", f"shf.r.{mode}.b32 %d, %a, %b, %c;", [a, b, amounts], np.uint32,
                 lambda a, b, n, count=count: ((b << 32 | a) >> count(n)) % (1 << 32))  # fmt: skip


COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b, "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
}  # fmt: skip
UNSIGNED_NAMES = {"lt": "lo", "le": "ls", "gt": "hi", "ge": "hs"}


def select_code(setp: str) -> str:
    return f".reg .pred %p;\n{setp} %p, %a, %b;\nselp.u32 %d, 1, 0, %p;"


def compare_cases() -> None:
    for (name, test), bits, sign in itertools.product(COMPARISONS.items(), (16, 32, 64), "us"):
        a, b = integers(bits, 2, 30)
        b[1::3] = a[1::3]

        def result(
            a: int, b: int, test: Callable[[float, float], bool] = test, bits: int = bits, sign: str = sign
        ) -> int:
            return int(test(signed(a, bits), signed(b, bits)) if sign == "s" else test(a, b))

        op = f"setp.{name}.{sign}{bits}"
        add_case(op, select_code(op), [a, b], np.uint32, result)
        if sign == "u" and name in UNSIGNED_NAMES and bits == 32:
            op = f"setp.{UNSIGNED_NAMES[name]}.u32"
            add_case(op, select_code(op), [a, b], np.uint32, result)
        if sign == "u" and name in ("eq", "ne"):
            op = f"setp.{name}.b{bits}"
            add_case(op, select_code(op), [a, b], np.uint32, result)
    x, y = singles(2, 31)
    y[1::3] = x[1::3]
    for (name, test), ftz in itertools.product(COMPARISONS.items(), ("", ".ftz")):
        for unordered in (False, True):
            op = f"setp.{name}{'u' if unordered else ''}{ftz}.f32"
            add_case(op, select_code(op), [x, y], np.uint32,
                     lambda a, b, t=test, u=unordered, f=ftz: int(float_compare(a, b, t, u, bool(f))))  # fmt: skip
    nan = math.isnan
    add_case(
        "setp.num.f32", select_code("setp.num.f32"), [x, y], np.uint32, lambda a, b: int(not nan(a) and not nan(b))
    )
    add_case("setp.nan.f32", select_code("setp.nan.f32"), [x, y], np.uint32, lambda a, b: int(nan(a) or nan(b)))
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
            CASES.append(Case(f"setp.{name}{ftz}.{t} again", plain, {"a": a, "b": b}, {"d": left.astype(np.uint32)}))


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
    add_case(
        "selp.f32",
        ".reg .pred %p;\nsetp.gt.f32 %p, %a, 0f00000000;\nselp.f32 %d, %a, %b, %p;",
        [f, g],
        np.float32,
        lambda a, b: a if a > 0 else b,
    )


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
    float_convert_cases()


def float_convert_cases() -> None:
    for source in ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"):
        bits = int(source[1:])

        def value(a: int, bits: int = bits, source: str = source) -> exact.Ratio:
            return signed(a, bits) if source[0] == "s" else a, 1

        a = integers(bits, 1, 43)[0]
        add_case(f"cvt.rn.f32.{source}", f"cvt.rn.f32.{source} %d, %a;", [a], np.uint32,
                 lambda a, v=value: exact.encode(v(a), SINGLE), result="f4")  # fmt: skip
        add_case(f"cvt.rn.f64.{source}", f"cvt.rn.f64.{source} %d, %a;", [a], np.uint64,
                 lambda a, v=value: exact.encode(v(a), DOUBLE), result="f8")  # fmt: skip
        if bits in (16, 32):
            add_case(f"cvt.rn.f16.{source}", f"cvt.rn.f16.{source} %d, %a;", [a], np.uint16,
                     lambda a, v=value: exact.encode(v(a), HALF))  # fmt: skip
    x = singles(1, 44)[0]
    x[::4] = np.random.default_rng(45).normal(size=len(x[::4])).astype(np.float32) * 1000
    x[::16] = np.round(x[::16]) + np.float32(0.5)
    for mode, to, ftz in itertools.product(("rni", "rzi", "rmi", "rpi"), ("s32", "u32", "s64", "u64", "s16", "u16"),
                                           ("", ".ftz")):  # fmt: skip
        op = f"cvt.{mode}{ftz}.{to}.f32"
        add_case(
            op, f"{op} %d, %a;", [x], unsigned(int(to[1:])), lambda a, m=mode, t=to, f=ftz: to_integer(a, m, t, bool(f))
        )
    for mode, ftz in itertools.product(("rni", "rzi", "rmi", "rpi"), ("", ".ftz")):
        op = f"cvt.{mode}{ftz}.f32.f32"
        add_case(op, f"{op} %d, %a;", [x], np.float32, lambda a, m=mode, f=ftz: to_integral(a, m, bool(f)))
    for mode, (t, of) in itertools.product(("rn", "rz"), (("f16", HALF), ("bf16", BFLOAT))):
        add_case(f"cvt.{mode}.{t}.f32", f"cvt.{mode}.{t}.f32 %d, %a;", [near_halves(of)], np.uint16,
                 lambda a, m=mode, of=of: exact.convert(a, of, m), compare=same_halves(of))  # fmt: skip
        pair = [near_halves(of), np.roll(near_halves(of), 7)]
        add_case(f"cvt.{mode}.{t}x2.f32", f"cvt.{mode}.{t}x2.f32 %d, %a, %b;", pair, np.uint32,
                 lambda a, b, m=mode, of=of: exact.convert(a, of, m) << 16 | exact.convert(b, of, m),
                 compare=same_packed(of))  # fmt: skip
    for t, of in (("f16", HALF), ("bf16", BFLOAT)):
        relu = lambda a, of=of: 0 if a <= 0 else exact.convert(a, of)  # noqa: E731
        pair = [near_halves(of), np.roll(near_halves(of), 7)]
        add_case(f"cvt.rn.relu.{t}x2.f32", f"cvt.rn.relu.{t}x2.f32 %d, %a, %b;", pair, np.uint32,
                 lambda a, b, r=relu: r(a) << 16 | r(b), compare=same_packed(of))  # fmt: skip
    small = np.array(FLOAT_EDGES * 15, np.uint32)[:SIZE].view(np.float32)
    add_case(
        "cvt.rn.ftz.f16.f32",
        "cvt.rn.ftz.f16.f32 %d, %a;",
        [small],
        np.uint16,
        lambda a: exact.convert(math.copysign(0.0, a) if abs(a) < 2.0**-126 else a, HALF),
        same_halves(HALF),
    )
    add_case("cvt.ftz.f64.f32", "cvt.ftz.f64.f32 %d, %a;", [small], np.float64,
             lambda a: math.copysign(0.0, a) if abs(a) < 2.0**-126 else a)  # fmt: skip
    add_case("cvt.sat.f32.f32", "cvt.sat.f32.f32 %d, %a;", [x], np.float32,
             lambda a: 0.0 if math.isnan(a) or a <= 0 else min(a, 1.0))  # fmt: skip
    add_case(
        "cvt.ftz.f32.f32",
        "cvt.ftz.f32.f32 %d, %a;",
        [x],
        np.float32,
        lambda a: math.copysign(0.0, a) if abs(a) < 2**-126 else a,
    )
    add_case("cvt.f64.f32", "cvt.f64.f32 %d, %a;", [x], np.float64, lambda a: a)
    wide = np.concatenate([x[: SIZE // 2].astype(np.float64), np.random.default_rng(46).normal(size=SIZE // 2)])
    add_case("cvt.rn.f32.f64", "cvt.rn.f32.f64 %d, %a;", [wide], np.uint32,
             lambda a: exact.convert(a, SINGLE), result="f4", compare=same_single)  # fmt: skip
    more = np.concatenate([x[: SIZE // 2].astype(np.float64), np.random.default_rng(47).normal(size=SIZE // 2) * 1e6])
    for mode, to in itertools.product(("rni", "rzi", "rmi", "rpi"), ("s32", "u32", "s64", "u64", "s16", "u16")):
        op = f"cvt.{mode}.{to}.f64"
        add_case(
            op, f"{op} %d, %a;", [more], unsigned(int(to[1:])), lambda a, m=mode, t=to: to_integer(a, m, t, False, 64)
        )
    half = halves(1, 48, HALF)[0]
    for mode, to in itertools.product(("rni", "rzi"), ("s32", "u32", "s16")):
        op = f"cvt.{mode}.{to}.f16"
        add_case(op, f"{op} %d, %a;", [half], unsigned(int(to[1:])),
                 lambda a, m=mode, t=to: to_integer(exact.decode(a, HALF), m, t, False))  # fmt: skip
    add_case(
        "cvt.rzi.sat.f32.f32",
        "cvt.rzi.sat.f32.f32 %d, %a;",
        [x],
        np.float32,
        lambda a: 0.0 if math.isnan(a) or a < 1 else 1.0,
        np.equal,
    )


def to_integer(a: float, mode: str, to: str, ftz: bool, source: int = 32) -> int:
    bits = int(to[1:])
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if to[0] == "s" else (0, (1 << bits) - 1)
    if math.isnan(a):
        # PTX ISA, cvt: NaN becomes 0 for narrow and unsigned 32-bit results, and 2^63 for 64-bit ones.
        return 1 << 63 if bits == 64 else 0
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


def same_single(got: Array, want: Array) -> Array:
    return same_bits(got, want.view(np.float32))


def same_halves(of: Format) -> Callable[[Array, Array], Array]:
    """Equal bits, any NaN equal to any other."""
    return lambda got, want: (got == want) | ((got & 0x7FFF > of.infinity) & (want & 0x7FFF > of.infinity))


def same_packed(of: Format) -> Callable[[Array, Array], Array]:
    half = same_halves(of)
    return lambda got, want: half(got & 0xFFFF, want & 0xFFFF) & half(got >> 16, want >> 16)


def float_cases() -> None:
    flush = exact.flush
    for mode, ftz in itertools.product(("", ".rn"), ("", ".ftz")):

        def prepared(*row: float, ftz: str = ftz) -> list[float]:
            return [math.copysign(0.0, x) if ftz and abs(x) < 2.0**-126 else x for x in row]

        def finish(bits: int, ftz: str = ftz) -> int:
            return flush(bits, SINGLE) if ftz else bits

        for op, function in (("add", exact.add), ("mul", exact.mul)):
            add_case(
                f"{op}{mode}{ftz}.f32",
                f"{op}{mode}{ftz}.f32 %d, %a, %b;",
                singles(2, 50),
                np.uint32,
                lambda a, b, p=prepared, f=finish, g=function: f(g(*p(a, b), SINGLE)),
                same_single,
                "f4",
            )
        add_case(f"sub{mode}{ftz}.f32", f"sub{mode}{ftz}.f32 %d, %a, %b;", singles(2, 51), np.uint32,
                 lambda a, b, p=prepared, f=finish: f(exact.add(*p(a, -b), SINGLE)), same_single, "f4")  # fmt: skip
        if mode:
            add_case(
                f"fma{mode}{ftz}.f32",
                f"fma{mode}{ftz}.f32 %d, %a, %b, %c;",
                singles(3, 52),
                np.uint32,
                lambda a, b, c, p=prepared, f=finish: f(exact.fma(*p(a, b, c), SINGLE)),
                same_single,
                "f4",
            )
            add_case(
                f"mad{mode}{ftz}.f32",
                f"mad{mode}{ftz}.f32 %d, %a, %b, %c;",
                singles(3, 49),
                np.uint32,
                lambda a, b, c, p=prepared, f=finish: f(exact.fma(*p(a, b, c), SINGLE)),
                same_single,
                "f4",
            )
            add_case(
                f"div{mode}{ftz}.f32",
                f"div{mode}{ftz}.f32 %d, %a, %b;",
                singles(2, 53),
                np.uint32,
                lambda a, b, p=prepared, f=finish: f(exact.div(*p(a, b), SINGLE)),
                same_single,
                "f4",
            )
    for ftz in ("", ".ftz"):

        def near(x: float, ftz: str = ftz) -> float:
            return math.copysign(0.0, x) if ftz and abs(x) < 2.0**-126 else x

        for op, pick in (("min", min), ("max", max)):
            add_case(f"{op}{ftz}.f32", f"{op}{ftz}.f32 %d, %a, %b;", singles(2, 54), np.float32,
                     lambda a, b, n=near, pick=pick: extreme(n(a), n(b), pick))  # fmt: skip
            if not ftz:
                add_case(
                    f"{op}.NaN.f32",
                    f"{op}.NaN.f32 %d, %a, %b;",
                    singles(2, 55),
                    np.float32,
                    lambda a, b, pick=pick: math.nan if math.isnan(a) or math.isnan(b) else extreme(a, b, pick),
                )
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
        add_case(
            op,
            f"{op} %d, {operands};",
            inputs,
            np.uint64,
            reference,
            lambda got, want: same_bits(got, want.view(np.float64)),
            "f8",
        )

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
            wants = {
                f"ex2.approx{ftz}.f32": (np.exp2(a), within(ulps, 2.0**-149)),
                f"lg2.approx{ftz}.f32": (np.log2(a), within(ulps, ulps)),
                f"rcp.approx{ftz}.f32": (1 / a, within(ulps, 2.0**-149)),
                f"rsqrt.approx{ftz}.f32": (1 / np.sqrt(a), within(ulps)),
                f"sqrt.approx{ftz}.f32": (np.sqrt(a), within(ulps)),
            }
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

        add_case(
            f"sqrt.rn{ftz}.f32",
            f"sqrt.rn{ftz}.f32 %d, %a;",
            [np.abs(singles(1, 63)[0])],
            np.uint32,
            lambda a, n=flushed, f=finish: f(exact.convert(math.sqrt(n(a)), SINGLE)),
            same_single,
            "f4",
        )
        add_case(
            f"rcp.rn{ftz}.f32",
            f"rcp.rn{ftz}.f32 %d, %a;",
            [x],
            np.uint32,
            lambda a, n=flushed, f=finish: f(exact.div(1.0, n(a), SINGLE)),
            same_single,
            "f4",
        )
    small = np.random.default_rng(65).uniform(-10, 10, SIZE).astype(np.float16)
    want = np.exp2(small.astype(np.float64))

    def near_half(got: Array, want: Array) -> Array:
        return np.abs(got.view(np.float16).astype(np.float64) - want) <= 2.0**-9.9 * want

    CASES.append(Case("ex2.approx.f16", "ex2.approx.f16 %d, %a;", {"a": small.view(np.uint16)}, {"d": want}, near_half,
                      {"d": np.dtype("u2")}))  # fmt: skip
    packed = small.view(np.uint16).astype(np.uint32) * 0x10001
    CASES.append(
        Case(
            "ex2.approx.f16x2",
            "ex2.approx.f16x2 %d, %a;",
            {"a": packed},
            {"d": want},
            lambda got, want: near_half((got >> 16).astype(np.uint16), want) & (got >> 16 == got & 0xFFFF),
            {"d": np.dtype("u4")},
        )
    )


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
            forms += [
                (f"add{mode}.{t}", two, lambda a, b, v=value, of=of: exact.add(v(a), v(b), of)),
                (f"sub{mode}.{t}", two, lambda a, b, v=value, of=of: exact.add(v(a), -v(b), of)),
                (f"mul{mode}.{t}", two, lambda a, b, v=value, of=of: exact.mul(v(a), v(b), of)),
            ]
        for op, inputs, function in forms:
            operands = ", ".join(f"%{x}" for x in "abc"[: len(inputs)])
            add_case(op, f"{op} %d, {operands};", inputs, np.uint16, function, same_halves(of))
            packed = [array.astype(np.uint32) | np.roll(array, 5).astype(np.uint32) << 16 for array in inputs]
            add_case(f"{op}x2", f"{op}x2 %d, {operands};", packed, np.uint32,
                     lambda *row, f=function: f(*(x & 0xFFFF for x in row)) | f(*(x >> 16 for x in row)) << 16,
                     same_packed(of))  # fmt: skip


def data_cases() -> None:
    """Moves, packing, vectors in memory with cache operators, special registers."""
    a16, b16 = integers(16, 2, 80)
    a32, b32 = integers(32, 2, 81)
    a64 = integers(64, 1, 82)[0]
    f = singles(1, 83)[0]
    add_case("mov.u16", "mov.u16 %d, %a;", [a16], np.uint16, lambda a: a)
    add_case("mov.u32", "mov.u32 %d, %a;", [a32], np.uint32, lambda a: a)
    add_case("mov.b64", "mov.b64 %d, %a;", [a64], np.uint64, lambda a: a)
    add_case("mov.f32", "mov.f32 %d, %a;", [f], np.float32, lambda a: a)
    add_case("mov.f32 immediate", "mov.f32 %d, 0fC0490FDB;", [f], np.float32, lambda a: np.float32(-math.pi))
    add_case("mov.u32 negative", "mov.u32 %d, -2;", [a32], np.uint32, lambda a: 0xFFFFFFFE)
    add_case(
        "add.s32 immediates", "add.s32 %d, %a, 0x7fffffff;", [a32], np.uint32, lambda a: (a + 0x7FFFFFFF) % (1 << 32)
    )
    add_case("add.s64 immediate", "add.s64 %d, %a, -1000;", [a64], np.uint64, lambda a: (a - 1000) % (1 << 64))
    add_case("mov.b32 of a pair", "mov.b32 %d, {%a, %b};", [a16, b16], np.uint32, lambda a, b: a | b << 16)
    add_case("mov.b32 to a pair", ".reg .b16 %x, %y;\nmov.b32 {%x, %y}, %a;\nmov.b32 %d, {%y, %x};", [a32], np.uint32,
             lambda a: a >> 16 | (a & 0xFFFF) << 16)  # fmt: skip
    add_case("mov.b64 of a pair", "mov.b64 %d, {%a, %b};", [a32, b32], np.uint64, lambda a, b: a | b << 32)
    add_case("mov.b64 to a pair", ".reg .b32 %x, %y;\nmov.b64 {%x, %y}, %a;\nmov.b64 %d, {%y, %x};", [a64], np.uint64,
             lambda a: a >> 32 | (a & 0xFFFFFFFF) << 32)  # fmt: skip
    add_case("mov.b64 to a pair with _", ".reg .b32 %x;\nmov.b64 {_, %x}, %a;\nmov.b32 %d, %x;", [a64], np.uint32,
             lambda a: a >> 32)  # fmt: skip
    add_case("mov.b128", ".reg .b128 %q;\n.reg .b64 %x, %y;\nmov.b128 %q, {%a, %b};\nmov.b128 {%x, %y}, %q;\n"
             "sub.s64 %d, %x, %y;", integers(64, 2, 84), np.uint64, lambda a, b: (a - b) % (1 << 64))  # fmt: skip
    index, lane = np.arange(SIZE), np.arange(SIZE) % 32
    for register, want in {
        "tid.x": index % 128, "tid.y": 0 * index, "ntid.x": 0 * index + 128, "ntid.y": 0 * index + 1,
        "ctaid.x": index // 128, "ctaid.y": 0 * index, "nctaid.x": 0 * index + SIZE // 128, "nctaid.z": 0 * index + 1,
        "laneid": lane, "warpid": index % 128 // 32, "lanemask_eq": 1 << lane, "lanemask_lt": (1 << lane) - 1,
        "lanemask_le": (2 << lane) - 1, "lanemask_ge": (1 << 32) - (1 << lane), "lanemask_gt": (1 << 32) - (2 << lane),
    }.items():  # fmt: skip
        CASES.append(Case(f"%{register}", f"mov.u32 %d, %{register};", {}, {"d": want.astype(np.uint32)}))
    memory_cases()


def memory_cases() -> None:
    rng = np.random.default_rng(90)
    data = rng.integers(0, 1 << 32, SIZE, dtype=np.uint32)
    groups = data.reshape(-1, 4)
    # Four threads share a 16-byte row; each thread puts its word there and reads all of it back.
    shared = (
        ".reg .b32 %s, %row, %x, %y, %z, %w;\nmov.u32 %s, smem;\nmad.lo.s32 %row, %t, 4, %s;\n"
        "st.shared.u32 [%row], %a;\nbar.sync 0;\nand.b32 %row, %t, 124;\nmad.lo.s32 %row, %row, 4, %s;\n"
    )
    tail = "xor.b32 %d, %x, %y;\nbar.sync 0;"
    pairs, quads = groups[:, 0] ^ groups[:, 1], groups[:, 0] ^ groups[:, 1] ^ groups[:, 2] ^ groups[:, 3]
    for t in ("u32", "b32", "s32"):
        for modifier in ("", ".volatile"):
            code = f"ld{modifier}.shared.v2.{t} {{%x, %y}}, [%row];\n{tail}"
            CASES.append(Case(f"ld{modifier}.shared.v2.{t}", shared + code, {"a": data}, {"d": np.repeat(pairs, 4)}))
    code = f"ld.shared.v4.u32 {{%x, %y, %z, %w}}, [%row];\nxor.b32 %x, %x, %z;\nxor.b32 %y, %y, %w;\n{tail}"
    CASES.append(Case("ld.shared.v4.u32", shared + code, {"a": data}, {"d": np.repeat(quads, 4)}))
    code = ".reg .b64 %u, %v;\nld.shared.v2.b64 {%u, %v}, [%row];\nxor.b64 %u, %u, %v;\nmov.b64 {%x, %y}, %u;\n" + tail
    CASES.append(Case("ld.shared.v2.b64", shared + code, {"a": data}, {"d": np.repeat(quads, 4)}))
    code = ".reg .b64 %u;\nld.shared.u64 %u, [%row+8];\nmov.b64 {%x, %y}, %u;\n" + tail
    CASES.append(Case("ld.shared.u64 with an offset", shared + code, {"a": data},
                      {"d": np.repeat(groups[:, 2] ^ groups[:, 3], 4)}))  # fmt: skip
    for t, function in (
        ("u8", lambda row: row & 0xFF), ("s8", lambda row: (row & 0xFF) | 0xFFFFFF00 * (row >> 7 & 1)),
        ("u16", lambda row: row & 0xFFFF), ("s16", lambda row: (row & 0xFFFF) | 0xFFFF0000 * (row >> 15 & 1)),
    ):  # fmt: skip
        code = f"ld.shared.{t} %d, [%row];\nbar.sync 0;"
        want = np.array([function(int(x)) & 0xFFFFFFFF for x in np.repeat(groups[:, 0], 4)], np.uint32)
        CASES.append(Case(f"ld.shared.{t}", shared + code, {"a": data}, {"d": want}))
    for store in (
        "st.shared.v2.u32 [%row], {%a, %b};",
        "st.shared.v2.f32 [%row], {%u, %v};",
        "st.volatile.shared.v2.b32 [%row], {%a, %b};",
    ):
        code = (
            ".reg .b32 %s, %row, %x, %y;\n.reg .f32 %u, %v;\nmov.u32 %s, smem;\nmad.lo.s32 %row, %t, 8, %s;\n"
            "mov.b32 %u, %a;\nmov.b32 %v, %b;\n"
            f"{store}\nld.shared.u32 %x, [%row];\nld.shared.u32 %y, [%row+4];\nsub.s32 %d, %x, %y;\nbar.sync 0;"
        )
        CASES.append(
            Case(store.split(" ")[0], code, {"a": data, "b": np.roll(data, 1)}, {"d": data - np.roll(data, 1)})
        )
    global_cases(data)
    more_memory_cases(data)
    local = (
        ".local .align 16 .b8 stack[64];\n.reg .b64 %p, %q;\n.reg .b32 %n;\nmov.u64 %p, stack;\n"
        "and.b32 %n, %a, 15;\nmad.wide.u32 %q, %n, 4, %p;\nst.local.u32 [%q], %a;\nst.local.u32 [%p+60], %lane;\n"
        "ld.local.u32 %d, [%q];"
    )
    CASES.append(
        Case(
            "ld.local",
            local,
            {"a": data},
            {"d": np.where(data % 16 == 15, np.arange(SIZE) % 32, data).astype(np.uint32)},
        )
    )
    generic = (
        ".local .align 4 .b8 cell[4];\n.reg .b64 %p, %q;\n.reg .b32 %s, %n;\nmov.u64 %p, cell;\n"
        "cvta.local.u64 %p, %p;\nst.u32 [%p], %a;\nmov.u64 %q, smem;\ncvta.shared.u64 %q, %q;\n"
        "mad.wide.u32 %q, %t, 4, %q;\nld.u32 %n, [%p];\nst.u32 [%q], %n;\nbar.sync 0;\ncvta.to.shared.u64 %q, %q;\n"
        "ld.shared.u32 %d, [%q];\nbar.sync 0;"
    )
    CASES.append(Case("generic addresses", generic, {"a": data}, {"d": data}))


ORDERS = ["", ".weak", ".volatile", ".relaxed.cta", ".relaxed.cluster", ".relaxed.gpu", ".relaxed.sys"]
HINTS = ["", ".L1::evict_normal", ".L1::evict_unchanged", ".L1::evict_first", ".L1::evict_last", ".L1::no_allocate"]
LINES = [".L2::64B", ".L2::128B", ".L2::256B"]


def global_cases(data: Array) -> None:
    """Every order, cache operator and hint loads and stores the same; every width and vector."""
    first = first_input()
    address = ".reg .b64 %p;\nmad.wide.u32 %p, %i, 4, %in;\n"
    loads = [f"ld{order}.global" for order in [*ORDERS, ".acquire.gpu"]]
    loads += [f"ld.global{x}" for x in [".ca", ".cg", ".cs", ".lu", ".cv", ".nc", ".nc.L2::256B", *HINTS[1:], *LINES]]
    loads += ["ldu.global"]
    for op in loads:
        CASES.append(Case(f"{op}.u32", f"{address}{op}.u32 %d, [%p];", {}, {"d": first}))
    space = ".reg .b64 %p;\nmov.u64 %p, board;\nmad.wide.u32 %p, %i, 16, %p;\n"
    stores = [f"st{order}.global" for order in [*ORDERS, ".release.gpu"]]
    stores += [f"st.global{x}" for x in [".wb", ".cg", ".cs", ".wt", *HINTS[1:]]]
    for op in stores:
        CASES.append(Case(f"{op}.u32", f"{space}{op}.u32 [%p], %a;\nld.global.u32 %d, [%p];", {"a": data}, {"d": data}))
    for load, t, words in itertools.product(
        ("ld.global", "ld.global.nc", "ldu.global"), ("u32", "f32", "u16", "b16", "u64", "s64", "f64", "b8"), (1, 2, 4)
    ):
        vector_case(load, t, words, data)


def vector_case(load: str, t: str, words: int, data: Array) -> None:
    """The case's words are written as 32-bit stores, read as a vector of t, and its last element is the result."""
    bits = int(t[1:])
    if bits * words > 128:
        return
    reg = f".{t if t[0] == 'f' else f'b{max(bits, 16)}'}"
    names = [f"%e{i}" for i in range(words)]
    vector = f".v{words}" if words > 1 else ""
    both = ".reg .b64 %p;\nmov.u64 %p, board;\nmad.wide.u32 %p, %i, 16, %p;\nst.global.v4.u32 [%p], {%a, %b, %c, %h};\n"
    inputs = {name: np.roll(data, i) for i, name in enumerate("abch")}
    rows = np.stack(list(inputs.values()), 1).view(np.uint8).reshape(len(data), 16)
    last = rows[:, (words - 1) * bits // 8 : words * bits // 8].copy().view(f"u{bits // 8}").ravel()
    code = (
        f"{both}.reg {reg} {', '.join(names)};\n{load}{vector}.{t} "
        f"{'{' + ', '.join(names) + '}' if words > 1 else names[0]}, [%p];\n"
    )
    if t[0] == "f" and words > 1:
        code += f"mov.b{bits} %d, {names[-1]};"
    elif t[0] == "f":
        code += f"st.global{vector}.{t} [%p], {names[0]};\nld.global.u{bits} %d, [%p];"
    elif bits >= 16:  # once more through a store of the same type
        listed = "{" + ", ".join(names) + "}" if words > 1 else names[0]
        code += f"st.global{vector}.{t} [%p], {listed};\nld.global.u{bits} %d, [%p+{(words - 1) * bits // 8}];"
    else:
        listed = "{" + ", ".join(names) + "}" if words > 1 else names[0]
        code += f"st.global{vector}.{t} [%p], {listed};\nmov.b16 %d, {names[-1]};"
    out = last.astype(np.uint16) if bits == 8 else last
    CASES.append(Case(f"{load}{vector}.{t} of a row", code, inputs, {"d": out}))


def more_memory_cases(data: Array) -> None:
    shared = ".reg .b32 %s;\nmov.u32 %s, smem;\nmad.lo.s32 %s, %t, 8, %s;\n"
    for t in ("b8", "u8", "s8", "b16", "u16", "s16", "b32", "s32"):
        bits = int(t[1:])
        code = (
            f"{shared}st.shared::cta.u64 [%s], 0;\nst.shared.{t} [%s], %a;\nld.shared::cta.u32 %d, [%s];\nbar.sync 0;"
        )
        CASES.append(Case(f"st.shared.{t}", code, {"a": data}, {"d": data & np.uint32((1 << bits) - 1)}))
    code = (
        ".reg .b64 %p;\n.reg .b128 %q;\n.reg .b64 %x, %y, %z;\nmov.u64 %p, board;\nmad.wide.u32 %p, %i, 16, %p;\n"
        "mov.b64 %x, {%a, %b};\nmov.b64 %y, {%b, %a};\nmov.b128 %q, {%x, %y};\nst.global.b128 [%p], %q;\n"
        "ld.global.b128 %q, [%p];\nmov.b128 {%x, %z}, %q;\nxor.b64 %x, %x, %z;\nmov.b64 {%d, _}, %x;"
    )
    CASES.append(
        Case(
            "ld.global.b128 and st.global.b128",
            code,
            {"a": data, "b": np.roll(data, 1)},
            {"d": data ^ np.roll(data, 1)},
        )
    )
    index = np.arange(SIZE)
    code = (
        ".reg .b32 %x;\n.reg .b64 %p;\nand.b32 %x, %t, 3;\nmov.u64 %p, table;\nmad.wide.u32 %p, %x, 4, %p;\n"
        "ld.const.u32 %d, [%p];"
    )
    CASES.append(Case("ld.const", code, {}, {"d": np.array([11, 22, 33, 44], np.uint32)[index % 4]}))
    code = ".reg .b64 %p;\nld.param::entry.u64 %p, [out];\nsub.s64 %p, %p, %out;\ncvt.u32.u64 %d, %p;"
    CASES.append(Case("ld.param::entry", code, {}, {"d": np.zeros(SIZE, np.uint32)}))
    spaces = {"global": "board", "shared": "smem", "const": "table", "local": "cell"}
    for name, space in itertools.product(spaces, spaces):
        code = (
            ".local .align 4 .b8 cell[4];\n.reg .b64 %p;\n.reg .pred %q;\n"
            f"mov.u64 %p, {spaces[name]};\ncvta.{name}.u64 %p, %p;\nisspacep.{space} %q, %p;\nselp.u32 %d, 1, 0, %q;"
        )
        CASES.append(Case(f"isspacep.{space} of {name}", code, {}, {"d": np.full(SIZE, name == space, np.uint32)}))
    for space in ("global", "const"):
        code = (
            f".reg .b64 %p, %q;\nmov.u64 %p, {spaces[space]};\ncvta.{space}.u64 %q, %p;\ncvta.to.{space}.u64 %q, %q;\n"
            "sub.s64 %q, %q, %p;\ncvt.u32.u64 %d, %q;"
        )
        CASES.append(Case(f"cvta.to.{space}", code, {}, {"d": np.zeros(SIZE, np.uint32)}))
    nothing = [
        "prefetch.global.L1 [%p];",
        "prefetch.global.L2 [%p];",
        "prefetch.local.L1 [%q];",
        "prefetch.L1 [%p];",
        "prefetchu.L1 [%p];",
        "membar.cta;",
        "membar.gl;",
        "membar.sys;",
        "fence.sc.cta;",
        "fence.acq_rel.gpu;",
        "fence.sc.sys;",
        "fence.acq_rel.cluster;",
        "nanosleep.u32 20;",
    ]
    code = (
        ".local .align 4 .b8 spot[4];\n.reg .b64 %p, %q;\nmov.u64 %q, spot;\nmov.u64 %p, board;\n"
        + "\n".join(nothing)
        + "\nmov.b32 %d, %a;"
    )
    CASES.append(Case("prefetches and fences", code, {"a": data}, {"d": data}))


ATOMICS: dict[str, Callable[[int, int], int]] = {
    "add": lambda old, x: old + x, "min": min, "max": max, "and": lambda old, x: old & x, "or": lambda old, x: old | x,
    "xor": lambda old, x: old ^ x,
}  # fmt: skip
ATOMIC_TYPES = {"add": ("u32", "s32", "u64"), "min": ("u32", "s32", "u64", "s64"), "max": ("u32", "s32", "u64", "s64"),
                "and": ("b32", "b64"), "or": ("b32", "b64"), "xor": ("b32", "b64")}  # fmt: skip


def atomic_cases() -> None:
    """Eight threads share a cell: its final value, and the sum of all results, do not depend on the order."""
    modifiers = itertools.cycle(
        ["", ".relaxed.cta", ".acquire.gpu", ".release.sys", ".acq_rel.cluster", ".relaxed.gpu"]
    )
    for op, types in ATOMIC_TYPES.items():
        for t, space in itertools.product(types, ("global", "shared", "shared::cta")):
            bits = int(t[1:])
            values = integers(bits, 1, 130)[0]
            seed = 0 if op in ("add", "or", "xor", "max") else (1 << bits) - 1
            if t[0] == "s":
                seed = 1 << (bits - 1) if op == "max" else (1 << (bits - 1)) - 1
            want = []
            for row in values.reshape(-1, 8):
                total = signed(seed, bits) if t[0] == "s" else seed
                for x in row:
                    total = ATOMICS[op](total, signed(int(x), bits) if t[0] == "s" else int(x))
                want += [total % (1 << bits)] * 8
            words = f".reg .b{bits} %old, %start;\nmov.b{bits} %start, {seed};\n"
            base = ".reg .b64 %p;\n.reg .b32 %x;\n.reg .pred %q;\n"
            where = "shr.u32 %x, %i, 3;\nmov.u64 %p, board;\nmad.wide.u32 %p, %x, 8, %p;\n" if space == "global" else \
                    "shr.u32 %x, %t, 3;\nmov.u64 %p, smem;\nmad.wide.u32 %p, %x, 8, %p;\n"  # fmt: skip
            start = f"and.b32 %x, %t, 7;\nsetp.eq.u32 %q, %x, 0;\n@%q st.{space}.b{bits} [%p], %start;\nbar.sync 0;\n"
            end = f"bar.sync 0;\nld.{space}.b{bits} %d, [%p];\nbar.sync 0;"
            for form in (f"atom{next(modifiers)}.{space}.{op}.{t} %old, [%p], %a;", f"red.{space}.{op}.{t} [%p], %a;"):
                CASES.append(Case(form.split(" ")[0], words + base + where + start + form + "\n" + end, {"a": values},
                                  {"d": np.array(want, unsigned(bits))}))  # fmt: skip
    more_atomic_cases()


def more_atomic_cases() -> None:
    head = ".reg .b64 %p;\n.reg .b32 %x;\n.reg .pred %q;\nmov.u64 %p, board;\n"
    shared = (
        ".reg .b32 %s, %x;\n.reg .pred %q;\nmov.u32 %s, smem;\nsetp.eq.u32 %q, %t, 0;\n"
        "@%q st.shared.u32 [%s], 0;\nbar.sync 0;\n"
    )
    mine = "mad.wide.u32 %p, %i, 16, %p;\nst.global.v4.b32 [%p], {%a, %a, %a, %a};\n"
    values = integers(32, 2, 131)
    values[1][::2] = values[0][::2]
    add_case(
        "atom.global.exch.b32",
        f"{head}{mine}atom.global.exch.b32 %x, [%p], %b;\nld.global.u32 %d, [%p];\nxor.b32 %d, %d, %x;",
        values,
        np.uint32,
        lambda a, b: a ^ b,
    )
    add_case(
        "atom.global.cas.b32",
        f"{head}{mine}atom.global.cas.b32 %x, [%p], %b, 77;\nld.global.u32 %d, [%p];\nadd.u32 %d, %d, %x;",
        values,
        np.uint32,
        lambda a, b: ((77 if a == b else a) + a) % (1 << 32),
    )
    wide = integers(64, 2, 132)
    wide[1][::2] = wide[0][::2]
    mine = ".reg .b64 %x2;\nmad.wide.u32 %p, %i, 16, %p;\nst.global.v2.b64 [%p], {%a, %a};\n"
    add_case(
        "atom.global.exch.b64",
        f"{head}{mine}atom.global.exch.b64 %x2, [%p], %b;\nld.global.u64 %d, [%p];\nxor.b64 %d, %d, %x2;",
        wide,
        np.uint64,
        lambda a, b: a ^ b,
    )
    add_case(
        "atom.global.cas.b64",
        f"{head}{mine}atom.global.cas.b64 %x2, [%p], %b, 77;\nld.global.u64 %d, [%p];\nadd.u64 %d, %d, %x2;",
        wide,
        np.uint64,
        lambda a, b: ((77 if a == b else a) + a) % (1 << 64),
    )
    small = np.arange(SIZE, dtype=np.float32) % 16
    for op in (
        "atom.shared.add.f32 %y, [%s], %a;",
        "red.shared.add.f32 [%s], %a;",
        "red.relaxed.cta.shared.add.f32 [%s], %a;",
    ):
        CASES.append(
            Case(
                op.split(" ")[0],
                f"{shared}.reg .f32 %y;\n{op}\nbar.sync 0;\nld.shared.f32 %d, [%s];\nbar.sync 0;",
                {"a": small},
                {"d": small.reshape(-1, 128).sum(1).repeat(128)},
            )
        )
    for scope in ("release.gpu", "relaxed.sys", "release.cluster"):
        CASES.append(
            Case(
                f"red.{scope}.shared.add.u32",
                f"{shared}red.{scope}.shared.add.u32 [%s], 2;\nbar.sync 0;\nld.shared.u32 %d, [%s];\nbar.sync 0;",
                {},
                {"d": np.full(SIZE, 256, np.uint32)},
            )
        )


def first_input() -> Array:
    """The first words of the input file, which FIRST puts there."""
    return FIRST.inputs["a"]


FIRST = Case("first", "mov.u32 %d, %a;", {"a": np.random.default_rng(1).integers(0, 1 << 32, SIZE, dtype=np.uint32)},
             {"d": np.random.default_rng(1).integers(0, 1 << 32, SIZE, dtype=np.uint32)})  # fmt: skip


# --- Warp instructions ------------------------------------------------------------------------------------------------


def warps(array: Array) -> Array:
    return array.reshape(-1, 32)


def shuffle_cases() -> None:
    rng = np.random.default_rng(100)
    data = rng.integers(0, 1 << 32, SIZE, dtype=np.uint32)
    amount = rng.integers(0, 32, SIZE // 32, dtype=np.uint32).repeat(32)
    mixed = rng.integers(0, 40, SIZE, dtype=np.uint32)
    for mode, (label, b) in itertools.product(("up", "down", "bfly", "idx"), (("", amount), (" by lane", mixed))):
        for width in (32, 16, 8, 2):
            clamp = 0 if mode == "up" else 31
            c = (32 - width) << 8 | clamp
            value, valid = shuffle(data, b, mode, c)
            code = (
                f".reg .pred %p;\n.reg .b32 %v;\nshfl.sync.{mode}.b32 %v|%p, %a, %b, {c:#x}, 0xffffffff;\n"
                "selp.u32 %e, 1, 0, %p;\nmov.b32 %d, %v;"
            )
            CASES.append(Case(f"shfl.sync.{mode}.b32 width {width}{label}", code, {"a": data, "b": b},
                              {"d": value, "e": valid.astype(np.uint32)}))  # fmt: skip
    # Half of the warp takes part; lanes 13 to 15 stay within it by the clamp of c.
    code = (
        ".reg .pred %p;\nsetp.lt.u32 %p, %lane, 16;\n"
        "@%p shfl.sync.down.b32 %d, %a, 3, 0x100f, 0x0000ffff;\n@!%p shfl.sync.bfly.b32 %d, %a, 5, 0x1f, 0xffff0000;"
    )
    lanes = np.arange(SIZE) % 32
    rows = np.arange(SIZE) - lanes
    source = np.where(lanes < 16, np.where(lanes + 3 < 16, lanes + 3, lanes), lanes ^ 5)
    CASES.append(Case("shfl.sync with part of the warp", code, {"a": data}, {"d": data[rows + source]}))


def shuffle(data: Array, b: Array, mode: str, c: int) -> tuple[Array, Array]:
    """PTX ISA, shfl.sync."""
    out, valid = np.empty_like(data), np.empty(len(data), bool)
    mask, clamp = c >> 8 & 31, c & 31
    for i in range(len(data)):
        lane, amount = i % 32, int(b[i]) & 31
        top = (lane & mask) | (clamp & ~mask)
        bottom = lane & mask
        if mode == "up":
            j = lane - amount
            inside = j >= top
        elif mode == "down":
            j = lane + amount
            inside = j <= top
        elif mode == "bfly":
            j = lane ^ amount
            inside = j <= top
        else:
            j = bottom | (amount & ~mask)
            inside = j <= top
        out[i], valid[i] = data[i - lane + (j if inside else lane)], inside
    return out, valid


def vote_cases() -> None:
    rng = np.random.default_rng(101)
    data = rng.integers(0, 2, SIZE, dtype=np.uint32)
    data[:32], data[32:64], data[64:96] = 0, 1, 0
    rows = warps(data) == 1
    ballots = (rows.astype(np.uint64) << np.arange(32, dtype=np.uint64)).sum(axis=1).astype(np.uint32)
    test = ".reg .pred %p, %q;\nsetp.eq.u32 %p, %a, 1;\n"
    for mode, want in (("all", rows.all(1)), ("any", rows.any(1)), ("uni", rows.all(1) | ~rows.any(1))):
        code = f"{test}vote.sync.{mode}.pred %q, %p, 0xffffffff;\nselp.u32 %d, 1, 0, %q;"
        CASES.append(Case(f"vote.sync.{mode}.pred", code, {"a": data}, {"d": want.repeat(32).astype(np.uint32)}))
    CASES.append(
        Case(
            "vote.sync.all.pred of !p",
            f"{test}vote.sync.all.pred %q, !%p, 0xffffffff;\nselp.u32 %d, 1, 0, %q;",
            {"a": data},
            {"d": (~rows.any(1)).repeat(32).astype(np.uint32)},
        )
    )
    CASES.append(Case("vote.sync.ballot.b32", f"{test}vote.sync.ballot.b32 %d, %p, 0xffffffff;", {"a": data},
                      {"d": ballots.repeat(32)}))  # fmt: skip
    code = f"{test}mov.u32 %d, 0;\n@%p vote.sync.ballot.b32 %d, %p, %b;"
    masks = ballots.repeat(32)
    CASES.append(Case("vote.sync.ballot.b32 with part of the warp", code, {"a": data, "b": masks},
                      {"d": np.where(data == 1, masks, 0).astype(np.uint32)}))  # fmt: skip
    code = f"{test}mov.u32 %d, 0;\n@%p activemask.b32 %d;"
    CASES.append(Case("activemask.b32", code, {"a": data}, {"d": np.where(data == 1, masks, 0).astype(np.uint32)}))
    values = rng.integers(0, 1 << 32, SIZE, dtype=np.uint32)
    rows32 = warps(values)
    reductions = {
        "add.u32": rows32.astype(np.uint64).sum(1), "min.u32": rows32.min(1), "max.u32": rows32.max(1),
        "min.s32": rows32.view(np.int32).min(1), "max.s32": rows32.view(np.int32).max(1),
        "add.s32": rows32.astype(np.uint64).sum(1), "and.b32": np.bitwise_and.reduce(rows32, 1),
        "or.b32": np.bitwise_or.reduce(rows32, 1), "xor.b32": np.bitwise_xor.reduce(rows32, 1),
    }  # fmt: skip
    for op, want in reductions.items():
        CASES.append(Case(f"redux.sync.{op}", f"redux.sync.{op} %d, %a, 0xffffffff;", {"a": values},
                          {"d": (want.astype(np.int64) & 0xFFFFFFFF).astype(np.uint32).repeat(32)}))  # fmt: skip
    few = rng.integers(0, 4, SIZE, dtype=np.uint32)
    same = (warps(few)[:, :, None] == warps(few)[:, None, :]).astype(np.uint64) << np.arange(32, dtype=np.uint64)
    CASES.append(
        Case(
            "match.any.sync.b32",
            "match.any.sync.b32 %d, %a, 0xffffffff;",
            {"a": few},
            {"d": same.sum(2).astype(np.uint32).ravel()},
        )
    )

    wide = few.astype(np.uint64) << np.uint64(40)
    CASES.append(Case("match.any.sync.b64", "match.any.sync.b64 %d, %a, 0xffffffff;", {"a": wide},
                      {"d": same.sum(2).astype(np.uint32).ravel()}))  # fmt: skip


def matrix_cases() -> None:
    rng = np.random.default_rng(110)
    words = rng.integers(0, 1 << 32, SIZE, dtype=np.uint32)
    # One warp at a time owns 512 bytes: 32 rows of 8 halves, each lane writes 16 bytes of them.
    for count, trans in itertools.product((1, 2, 4), ("", ".trans")):
        names = ["%d", "%e", "%f", "%g"][:count]
        space = "shared::cta" if count == 2 else "shared"
        code = (
            ".reg .b32 %s, %row, %x;\nmov.u32 %s, smem;\nshr.u32 %x, %t, 5;\nmad.lo.s32 %s, %x, 512, %s;\n"
            "mad.lo.s32 %row, %lane, 16, %s;\nst.shared.v4.u32 [%row], {%a, %b, %c, %h};\nbar.warp.sync 0xffffffff;\n"
            # rows in another order than memory: lane l gives the address of row (5 l + 3) mod 32
            "mad.lo.s32 %x, %lane, 5, 3;\nand.b32 %x, %x, 31;\nmad.lo.s32 %row, %x, 16, %s;\n"
            f"ldmatrix.sync.aligned.m8n8.x{count}{trans}.{space}.b16 {{{', '.join(names)}}}, [%row];\nbar.sync 0;"
        )
        inputs = {"a": words, "b": np.roll(words, 1), "c": np.roll(words, 2), "h": np.roll(words, 3)}
        rows = np.stack(list(inputs.values()), 1).view(np.uint16).reshape(-1, 32, 8)  # [warp, row, half]
        order = (np.arange(32) * 5 + 3) % 32
        fragments = []
        for i in range(count):
            matrix = rows[:, order[8 * i : 8 * i + 8], :]
            matrix = matrix.transpose(0, 2, 1) if trans else matrix
            pair = matrix.reshape(-1, 32, 2).astype(np.uint32)  # lane l holds row l/4, columns 2(l%4) and the next
            fragments.append((pair[:, :, 0] | pair[:, :, 1] << 16).ravel())
        CASES.append(Case(f"ldmatrix.x{count}{trans}", code, inputs, dict(zip("defg", fragments, strict=False))))
    for seed, form in enumerate(tensor_core.FORMS):
        registers = tensor_core.random_registers(form, SIZE // 32, seed)
        outputs = tensor_core.spread(tensor_core.fused_sums(form, registers))
        for name, in_place in (("", False), (" in place", True)):
            code = tensor_core.instruction(form, in_place)
            CASES.append(Case(f"mma.{form}{name}", code, registers, outputs))


def copy_cases() -> None:
    """cp.async of every size, with zero fill, and an mbarrier that waits for copies."""
    first = first_input()
    for size, kept in ((4, 4), (8, 8), (16, 16), (16, 8), (16, 0), (16, 5), (8, 3), (4, 0)):
        for cache in ("ca", "cg") if size == 16 else ("ca",):
            fill = f", {kept}" if kept != size else ""
            code = (
                ".reg .b32 %s, %n, %x;\n.reg .b64 %p;\nmov.u32 %s, smem;\nmad.lo.s32 %s, %t, 16, %s;\n"
                "st.shared.v4.u32 [%s], {%lane, %lane, %lane, %lane};\n"
                f"and.b32 %n, %i, {SIZE - 4};\n"
                "mad.wide.u32 %p, %n, 4, %in;\n"
                f"cp.async.{cache}.shared.global [%s], [%p], {size}{fill};\ncp.async.commit_group;\n"
                f"cp.async.wait_group 0;\n"
                "ld.shared.u32 %d, [%s];\nld.shared.u32 %e, [%s+4];\nld.shared.u32 %f, [%s+12];\nbar.sync 0;"
            )
            rows = first[np.arange(SIZE) & SIZE - 4, None]
            rows = np.concatenate([first[(np.arange(SIZE) & SIZE - 4) + i, None] for i in range(4)], 1)
            raw = rows.copy().view(np.uint8).reshape(SIZE, 16).copy()
            raw[:, kept:size] = 0
            lanes = (
                (np.arange(SIZE, dtype=np.uint32) % 32)[:, None].repeat(4, 1).copy().view(np.uint8).reshape(SIZE, 16)
            )
            raw[:, size:] = lanes[:, size:]
            result = raw.view(np.uint32).reshape(SIZE, 4)
            CASES.append(
                Case(
                    f"cp.async.{cache} {size}{fill}",
                    code,
                    {},
                    {"d": result[:, 0].copy(), "e": result[:, 1].copy(), "f": result[:, 3].copy()},
                )
            )
    for i, op in enumerate(("ca.shared.global.L2::64B", "cg.shared::cta.global.L2::128B", "cg.shared.global.L2::256B")):
        code = (
            ".reg .b32 %s, %n;\n.reg .b64 %p;\nmov.u32 %s, smem;\nmad.lo.s32 %s, %t, 16, %s;\n"
            f"and.b32 %n, %i, {SIZE - 4};\nmad.wide.u32 %p, %n, 4, %in;\n"
            f"cp.async.{op} [%s], [%p], 16;\ncp.async.wait_all;\nld.shared.u32 %d, [%s+{4 * i}];\nbar.sync 0;"
        )
        CASES.append(Case(f"cp.async.{op}", code, {}, {"d": first[(np.arange(SIZE) & SIZE - 4) + i]}))
    wait_all = (
        ".reg .b32 %s;\n.reg .b64 %p;\nmov.u32 %s, smem;\nmad.lo.s32 %s, %t, 4, %s;\nmad.wide.u32 %p, %i, 4, %in;\n"
        "cp.async.ca.shared.global [%s], [%p], 4;\ncp.async.wait_all;\nld.shared.u32 %d, [%s];\nbar.sync 0;"
    )
    CASES.append(Case("cp.async.wait_all", wait_all, {}, {"d": first}))
    barrier = """
.reg .b32 %s, %x, %y;
.reg .b64 %p, %state;
.reg .pred %first, %done;
mov.u32 %s, smem;
setp.eq.u32 %first, %t, 0;
@%first mbarrier.init.shared.b64 [%s], 128;
bar.sync 0;
mad.lo.s32 %x, %t, 4, %s;
mad.wide.u32 %p, %i, 4, %in;
cp.async.ca.shared.global [%x+64], [%p], 4;
cp.async.mbarrier.arrive.noinc.shared.b64 [%s];
again:
mbarrier.test_wait.parity.shared.b64 %done, [%s], 0;
@!%done bra again;
xor.b32 %y, %t, 64;
mad.lo.s32 %y, %y, 4, %s;
ld.shared.u32 %d, [%y+64];
mbarrier.arrive.shared.b64 %state, [%s];
more:
mbarrier.test_wait.shared.b64 %done, [%s], %state;
@!%done bra more;
bar.sync 0;
@%first mbarrier.inval.shared.b64 [%s];
bar.sync 0;
"""
    for label, changes in {
        "": {},
        " with shared::cta": {".shared.b64": ".shared::cta.b64"},
        " with try_wait": {"test_wait": "try_wait"},
        " with orders": {
            "arrive.shared": "arrive.release.cta.shared",
            "test_wait.parity": "test_wait.parity.acquire.cta",
            "test_wait.shared": "try_wait.acquire.cta.shared",
        },
    }.items():
        code = barrier
        for old, new in changes.items():
            code = code.replace(old, new)
        CASES.append(Case(f"mbarrier{label}", code, {}, {"d": first[np.arange(SIZE) ^ 64]}))


def flow_cases() -> None:
    rng = np.random.default_rng(120)
    data = rng.integers(0, 60, SIZE, dtype=np.uint32)
    collatz = """
.reg .b32 %n, %odd;
.reg .pred %p, %q;
add.s32 %n, %a, 1;
mov.u32 %d, 0;
next:
setp.le.u32 %p, %n, 1;
@%p bra done;
add.s32 %d, %d, 1;
and.b32 %odd, %n, 1;
setp.eq.u32 %q, %odd, 0;
@%q bra even;
mad.lo.s32 %n, %n, 3, 1;
bra.uni next;
even:
shr.u32 %n, %n, 1;
bra.uni next;
done:
"""

    def steps(n: int) -> int:
        count = 0
        while n > 1:
            n, count = (n // 2 if n % 2 == 0 else 3 * n + 1), count + 1
        return count

    CASES.append(
        Case("divergent loop", collatz, {"a": data}, {"d": np.array([steps(int(n) + 1) for n in data], np.uint32)})
    )
    nested = """
.reg .pred %p, %q;
setp.lt.u32 %p, %a, 30;
mov.u32 %d, 1;
@!%p bra big;
setp.lt.u32 %q, %a, 10;
@%q bra small;
add.s32 %d, %d, 10;
bra.uni leave;
small:
add.s32 %d, %d, 20;
bra.uni leave;
big:
setp.gt.u32 %q, %a, 50;
@%q add.s32 %d, %d, 5;
leave:
.reg .b32 %m;
activemask.b32 %m;
popc.b32 %m, %m;
add.s32 %d, %d, %m;
"""
    want = np.where(data < 30, np.where(data < 10, 21, 11), np.where(data > 50, 6, 1)) + 32
    CASES.append(Case("nested branches join again", nested, {"a": data}, {"d": want.astype(np.uint32)}))
    sync = """
.reg .pred %p;
.reg .b32 %v;
setp.lt.u32 %p, %a, 30;
mov.u32 %v, 0;
@!%p bra join;
add.s32 %v, %a, 7;
join:
shfl.sync.bfly.b32 %d, %v, 1, 0x1f, 0xffffffff;
"""
    value = np.where(data < 30, data + 7, 0).astype(np.uint32)
    CASES.append(Case("shuffle after a divergent branch", sync, {"a": data}, {"d": value[np.arange(SIZE) ^ 1]}))
    named = """
.reg .b32 %s, %x;
.reg .pred %p;
mov.u32 %s, smem;
mad.lo.s32 %x, %t, 4, %s;
st.shared.u32 [%x], %a;
setp.lt.u32 %p, %t, 64;
@%p bar.sync 1, 64;
@!%p bar.sync 2, 64;
xor.b32 %x, %t, 32;
mad.lo.s32 %x, %x, 4, %s;
ld.shared.u32 %d, [%x];
bar.sync 0;
"""
    CASES.append(Case("named barriers of half a CTA", named, {"a": data}, {"d": data[np.arange(SIZE) ^ 32]}))
    atoms = """
.reg .b32 %s, %x;
.reg .pred %p;
mov.u32 %s, smem;
setp.eq.u32 %p, %t, 0;
mov.u32 %x, 0;
@%p st.shared.u32 [%s], %x;
bar.sync 0;
atom.shared.add.u32 %x, [%s], %a;
bar.sync 0;
ld.shared.u32 %d, [%s];
bar.sync 0;
"""
    CASES.append(Case("atom.shared.add.u32", atoms, {"a": data},
                      {"d": data.reshape(-1, 128).sum(1).astype(np.uint32).repeat(128)}))  # fmt: skip
    ones = (data > 20).reshape(-1, 128)
    for mode, want in (("popc", ones.sum(1)), ("and", ones.all(1)), ("or", ones.any(1))):
        for op, aligned in (("bar.red", ""), ("bar.cta.red", ""), ("barrier.red", ""), ("barrier.cta.red", ".aligned")):
            name = f"{op}.{mode}{aligned}.{'u32' if mode == 'popc' else 'pred'}"
            tail = f"{name} %d, 0, %p;" if mode == "popc" else f"{name} %q, 0, %p;\nselp.u32 %d, 1, 0, %q;"
            code = f".reg .pred %p, %q;\nsetp.gt.u32 %p, %a, 20;\n{tail}"
            CASES.append(Case(name, code, {"a": data}, {"d": want.astype(np.uint32).repeat(128)}))
    for op in ("bar{}", "bar.cta{}", "barrier{}", "barrier{}.aligned", "barrier.cta{}", "barrier.cta{}.aligned"):
        # The upper half of the CTA produces, the lower half waits for it and consumes.
        arrive, sync = op.format(".arrive"), op.format(".sync")
        code = (
            ".reg .b32 %s, %x;\n.reg .pred %p;\nmov.u32 %s, smem;\nmad.lo.s32 %x, %t, 4, %s;\nsetp.lt.u32 %p, %t, 64;\n"
            f"mov.u32 %d, %a;\n@%p bra consume;\nst.shared.u32 [%x], %a;\n{arrive} 3, 128;\nbra.uni join;\n"
            f"consume:\n{sync} 3, 128;\nld.shared.u32 %d, [%x+256];\njoin:\n{sync} 0;"
        )
        CASES.append(
            Case(
                f"{arrive} and {sync}",
                code,
                {"a": data},
                {"d": np.where(np.arange(SIZE) % 128 < 64, np.roll(data, -64), data)},
            )
        )


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


GROUPS = (
    integer_cases,
    logic_cases,
    compare_cases,
    convert_cases,
    float_cases,
    data_cases,
    atomic_cases,
    shuffle_cases,
    vote_cases,
    matrix_cases,
    table_cases,
    copy_cases,
    flow_cases,
)


def build(make: Callable[[], None]) -> Batch:
    CASES.clear()
    if make is not table_cases:  # those are longer
        CASES.append(FIRST)
    make()
    return Batch(CASES)


@pytest.mark.parametrize("make", GROUPS, ids=lambda make: make.__name__)
def test_opcodes(make: Callable[[], None], tmp_path: Path) -> None:
    wrong = {name: text for name, text in build(make).run(tmp_path).items() if text}
    assert not wrong, f"{len(wrong)} of {len(CASES)} cases\n" + "\n".join(
        f"{name}: {text}" for name, text in wrong.items()
    )


# What no vector uses, with the reason.
ELSEWHERE = {
    "call": "printf and assert: test_findings.py",
    "trap": "test_findings.py",
    "brkpt": "does nothing",
    "exit": "test_findings.py",
    "ret": "uni changes nothing",
    "ldu": "as ld",
    "fence proxy async": "needs sm_90",
    "cvta": "param: no address of a parameter is taken",
    "ld": "L2 eviction needs sm_100, release is no order of a load",
    "st": "hints of other architectures; param: calls",
    "cvt ftz? f64 f32|f64": "f64 to f64",
}


def test_every_form_has_a_vector() -> None:
    """Each row of the table, and each alternative of its modifiers, is used by a case above."""
    text = "".join(build(make).text()[0] for make in GROUPS)
    unused = [
        line
        for line in missing(read_forms(), text)
        if not line.startswith(tuple(f"{name} " for name in ELSEWHERE)) and line.split(":")[0] not in ELSEWHERE
    ]
    assert not unused, "\n".join(unused)


def test_vectors_are_legal_ptx(tmp_path: Path) -> None:
    """ptxas of the pinned toolkit accepts every vector: nothing is tested that PTX does not have."""
    ptxas = ROOT / ".venv/toolkit/bin/ptxas"
    for make in GROUPS:
        path = tmp_path / f"{make.__name__}.ptx"
        path.write_text(build(make).text()[0])
        done = subprocess.run([ptxas, "-O0", "-arch=sm_90", "-o", "/dev/null", path], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
