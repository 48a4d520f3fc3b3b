"""Vectors of integer, logic, shift and bit-field instructions."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
from support.emulation import Array, Case
from vectors.opcodes import CASES, SIZE, Reference, add_case, integer_case, integers, signed, unsigned


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
