"""Vectors of integer, logic, shift and bit-field instructions."""

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
        integer_case(f"mad.hi.{t}", bits, 3, lambda a, b, c, v=value, n=bits: (v(a) * v(b) >> n) + c)
        integer_case(f"sad.{t}", bits, 3, lambda a, b, c, v=value: abs(v(a) - v(b)) + c)
        if bits == 32:
            integer_case(f"mul24.lo.{t}", bits, 2, lambda a, b, s=sign: low24(a, s) * low24(b, s))
            integer_case(f"mul24.hi.{t}", bits, 2, lambda a, b, s=sign: low24(a, s) * low24(b, s) >> 16)
            integer_case(f"mad24.lo.{t}", bits, 3, lambda a, b, c, s=sign: low24(a, s) * low24(b, s) + c)
            integer_case(f"mad24.hi.{t}", bits, 3, lambda a, b, c, s=sign: (low24(a, s) * low24(b, s) >> 16) + c)
            extend_case(t, value)
        if bits > 16:
            find_cases(t, bits, value)
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
        integer_case(f"cnot.{t}", bits, 1, lambda a: a == 0)
        if bits > 16:
            integer_case(f"popc.{t}", bits, 1, lambda a: a.bit_count(), 32)
            integer_case(f"clz.{t}", bits, 1, lambda a, n=bits: n - a.bit_length(), 32)
            integer_case(f"brev.{t}", bits, 1, lambda a, n=bits: int(f"{a:0{n}b}"[::-1], 2))
            insert_case(t, bits)
    saturating_cases()
    dot_cases()
    pair_cases()
    carry_cases()


def clamp32(value: int) -> int:
    return min(max(value, -(1 << 31)), (1 << 31) - 1)


def saturating_cases() -> None:
    def v(x: int) -> int:
        return signed(x, 32)

    integer_case("add.sat.s32", 32, 2, lambda a, b: clamp32(v(a) + v(b)))
    integer_case("sub.sat.s32", 32, 2, lambda a, b: clamp32(v(a) - v(b)))
    integer_case("mad.hi.sat.s32", 32, 3, lambda a, b, c: clamp32((v(a) * v(b) >> 32) + v(c)))
    integer_case("mad24.hi.sat.s32", 32, 3, lambda a, b, c: clamp32((low24(a, "s") * low24(b, "s") >> 16) + v(c)))
    integer_case("min.relu.s32", 32, 2, lambda a, b: max(min(v(a), v(b)), 0))
    integer_case("max.relu.s32", 32, 2, lambda a, b: max(v(a), v(b), 0))


def find_cases(t: str, bits: int, value: Callable[[int], int]) -> None:
    def bfind(a: int) -> int:
        return (a if value(a) >= 0 else ~a % (1 << bits)).bit_length() - 1

    integer_case(f"bfind.{t}", bits, 1, bfind, 32)
    integer_case(f"bfind.shiftamt.{t}", bits, 1, lambda a: bits - 1 - bfind(a) if bfind(a) >= 0 else -1, 32)
    if t == "s32":

        def fns(mask: int, base: int, offset: int) -> int:
            ups = [i for i in range(base, 32) if mask >> i & 1]
            downs = [i for i in range(min(base, 31), -1, -1) if mask >> i & 1] if base < 32 else []
            found = ups if offset > 0 else downs if offset < 0 else [base] if mask >> base & 1 else []
            at = max(abs(offset) - 1, 0)
            return found[at] if at < len(found) else 0xFFFFFFFF

        mask, base, offset = integers(32, 3, 18)
        base, offset = base % 32, (offset % 19).astype(np.uint32) - np.uint32(9)
        add_case("fns.b32", "fns.b32 %d, %a, %b, %c;", [mask, base, offset], np.uint32,
                 lambda a, b, c: fns(a, b, signed(c, 32)))  # fmt: skip


def dot_cases() -> None:
    def parts(x: int, bits: int, sign: str) -> list[int]:
        fields = [x >> i & ((1 << bits) - 1) for i in range(0, 32, bits)]
        return [signed(field, bits) if sign == "s" else field for field in fields]

    for left, right in itertools.product("us", "us"):
        integer_case(f"dp4a.{left}32.{right}32", 32, 3, lambda a, b, c, x=left, y=right: c + sum(
            p * q for p, q in zip(parts(a, 8, x), parts(b, 8, y), strict=True)))  # fmt: skip
        for half, first in (("lo", 0), ("hi", 2)):
            integer_case(f"dp2a.{half}.{left}32.{right}32", 32, 3, lambda a, b, c, x=left, y=right, i=first: c + sum(
                p * q for p, q in zip(parts(a, 16, x), parts(b, 8, y)[i : i + 2], strict=True)))  # fmt: skip


def pair_cases() -> None:
    """Two integers of 16 bits in a register."""

    def by_half(op: Reference, sign: str) -> Reference:
        def value(x: int) -> int:
            return signed(x & 0xFFFF, 16) if sign == "s" else x & 0xFFFF

        return lambda a, b: op(value(a), value(b)) % (1 << 16) | op(value(a >> 16), value(b >> 16)) % (1 << 16) << 16

    for sign in "us":
        integer_case(f"add.{sign}16x2", 32, 2, by_half(lambda a, b: a + b, sign))
        integer_case(f"min.{sign}16x2", 32, 2, by_half(min, sign))
        integer_case(f"max.{sign}16x2", 32, 2, by_half(max, sign))
    integer_case("min.relu.s16x2", 32, 2, by_half(lambda a, b: max(min(a, b), 0), "s"))
    integer_case("max.relu.s16x2", 32, 2, by_half(lambda a, b: max(a, b, 0), "s"))


def carry_cases() -> None:
    """A chain: the first instruction leaves a carry, the second takes it and leaves one, the third shows that."""
    for t in ("u32", "s32", "u64", "s64"):
        bits = int(t[1:])
        a, b, c = integers(bits, 3, 22)
        h = np.roll(a, 3)
        c[::4] = ~h[::4]  # a carry goes all the way through
        top = 1 << bits

        def value(x: int, t: str = t, bits: int = bits) -> int:
            return signed(x, bits) if t[0] == "s" else x

        def low(x: int, y: int, n: int = bits) -> int:
            return x * y % (1 << n)

        def high(x: int, y: int, v: Callable[[int], int] = value, n: int = bits) -> int:
            return (v(x) * v(y) >> n) % (1 << n)

        # name, instructions, and the sums of which they are the digits
        chains: list[tuple[str, str, str, str, Callable[..., tuple[int, int]]]] = [
            ("add", f"add.cc.{t} %x, %a, %b;", f"addc.cc.{t} %d, %c, %h;", f"addc.{t} %e, 0, 0;",
             lambda a, b, c, h: (a + b, c + h)),
            ("mad.lo", f"mad.lo.cc.{t} %x, %a, %b, %c;", f"madc.lo.cc.{t} %d, %b, %c, %h;", f"madc.lo.{t} %e, 0, 0, 0;",
             lambda a, b, c, h, f=low: (f(a, b) + c, f(b, c) + h)),
            ("mad.hi", f"mad.hi.cc.{t} %x, %a, %b, %c;", f"madc.hi.cc.{t} %d, %b, %c, %h;", f"madc.hi.{t} %e, 0, 0, 0;",
             lambda a, b, c, h, f=high: (f(a, b) + c, f(b, c) + h)),
        ]  # fmt: skip
        for name, first, second, third, sums in chains:
            rows = [sums(*row) for row in zip(a.tolist(), b.tolist(), c.tolist(), h.tolist(), strict=True)]
            digits = [y + (x >= top) for x, y in rows]
            want = {"d": np.array([z % top for z in digits], unsigned(bits)),
                    "e": np.array([int(z >= top) for z in digits], unsigned(bits))}  # fmt: skip
            code = f".reg .b{bits} %x;\n{first}\n{second}\n{third}"
            CASES.append(Case(f"{name}.cc.{t} and its chain", code, {"a": a, "b": b, "c": c, "h": h}, want))
        code = f".reg .b{bits} %x;\nsub.cc.{t} %x, %a, %b;\nsubc.cc.{t} %d, %c, %h;\nsubc.{t} %e, 0, 0;"
        rows = list(zip(a.tolist(), b.tolist(), c.tolist(), h.tolist(), strict=True))
        rests = [z - w - (x < y) for x, y, z, w in rows]
        want = {"d": np.array([rest % top for rest in rests], unsigned(bits)),
                "e": np.array([(top - 1) * (rest < 0) for rest in rests], unsigned(bits))}  # fmt: skip
        CASES.append(Case(f"sub.cc.{t} and its chain", code, {"a": a, "b": b, "c": c, "h": h}, want))
        # there is one carry, and a subtraction adds the complement, as an H200 does
        code = f".reg .b{bits} %x;\nsub.cc.{t} %x, %a, %b;\naddc.cc.{t} %d, %c, %h;\nsubc.{t} %e, 0, 0;"
        digits = [z + w + (x >= y) for x, y, z, w in rows]
        want = {"d": np.array([z % top for z in digits], unsigned(bits)),
                "e": np.array([(top - 1) * (z < top) for z in digits], unsigned(bits))}  # fmt: skip
        CASES.append(Case(f"addc.{t} between sub.cc and subc", code, {"a": a, "b": b, "c": c, "h": h}, want))
    small_carry_cases()


def small_carry_cases() -> None:
    """The forms that take a carry and leave none."""
    a, b = integers(32, 2, 23)
    set_carry = ".reg .b32 %x;\nadd.cc.u32 %x, %a, %b;\n"
    carries = [int(x + y >= 1 << 32) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    p, q, r = integers(32, 3, 24)
    rows32 = [(signed(x, 32), signed(y, 32), signed(z, 32), k)
              for x, y, z, k in zip(p.tolist(), q.tolist(), r.tolist(), carries, strict=True)]  # fmt: skip
    forms: dict[str, Callable[[int, int, int, int], int]] = {
        "addc.sat.s32 %d, %p, %q": lambda x, y, z, k: clamp32(x + y + k)
    }
    for code, reference in forms.items():
        want = np.array([reference(*row) % (1 << 32) for row in rows32], np.uint32)
        CASES.append(Case(code, f"{set_carry}{code};", {"a": a, "b": b, "p": p, "q": q, "r": r}, {"d": want}))
    borrow = ".reg .b32 %x;\nsub.cc.u32 %x, %a, %b;\n"
    want = np.array([clamp32(row[0] - row[1] - (x < y)) % (1 << 32)
                     for row, x, y in zip(rows32, a.tolist(), b.tolist(), strict=True)], np.uint32)  # fmt: skip
    CASES.append(
        Case("subc.sat.s32", f"{borrow}subc.sat.s32 %d, %p, %q;", {"a": a, "b": b, "p": p, "q": q}, {"d": want})
    )
    for sign in "us":
        narrow = [x.astype(np.uint16) for x in (p, q, r)]
        rows = list(zip(*(x.tolist() for x in narrow), carries, strict=True))
        halves: dict[str, Callable[[int, int, int, int], int]] = {f"addc.{sign}16 %d, %p, %q": lambda x, y, z, k: x + y
            + k, f"madc.lo.{sign}16 %d, %p, %q, %r": lambda x, y, z, k: x * y + z + k}  # fmt: skip
        for code, reference in halves.items():
            want = np.array([reference(*row) % (1 << 16) for row in rows], np.uint16)
            inputs = dict(zip("abpqr", [a, b, *narrow], strict=True))
            CASES.append(Case(code, f"{set_carry}{code};", inputs, {"d": want}))
        want = np.array([(x - y - (i < j)) % (1 << 16) for (x, y, _, _), i, j in zip(rows, a.tolist(), b.tolist(),
                         strict=True)], np.uint16)  # fmt: skip
        CASES.append(Case(f"subc.{sign}16", f"{borrow}subc.{sign}16 %d, %p, %q;",
                          {"a": a, "b": b, "p": narrow[0], "q": narrow[1]}, {"d": want}))  # fmt: skip


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

    add_case(f"szext.clamp.{t}", f"szext.clamp.{t} %d, %a, %b;", [integers(32, 1, 14)[0], small_counts(32, 15)],
             np.uint32, szext)  # fmt: skip
    add_case(f"szext.wrap.{t}", f"szext.wrap.{t} %d, %a, %b;", [integers(32, 1, 14)[0], small_counts(32, 15)],
             np.uint32, lambda a, b: szext(a, b & 31))  # fmt: skip
    if t == "u32":
        add_case("bmsk.clamp.b32", "bmsk.clamp.b32 %d, %a, %b;", [small_counts(32, 16), small_counts(32, 17)],
                 np.uint32, lambda a, b: ((1 << min(b, 32)) - 1 << min(a, 32)) % (1 << 32))  # fmt: skip
        add_case("bmsk.wrap.b32", "bmsk.wrap.b32 %d, %a, %b;", [small_counts(32, 16), small_counts(32, 17)], np.uint32,
                 lambda a, b: ((1 << (b & 31)) - 1 << (a & 31)) % (1 << 32))  # fmt: skip


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
    # only the low eight bits of a position and of a length count
    registers = f".reg .b32 %n, %m;\nmov.u32 %n, 261;\nmov.u32 %m, 520;\nbfi.{t} %d, %a, %b, %n, %m;"
    add_case(f"bfi.{t} modulo 256", registers, [a, b], unsigned(bits), lambda a, b: b & ~0x1FE0 | (a & 0xFF) << 5)


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
    # The bytes that each mode picks, the upper one first, by the low two bits of c (PTX ISA, prmt).
    modes = {"f4e": ("3210", "4321", "5432", "6543"), "b4e": ("5670", "6701", "7012", "0123"),
             "rc8": ("0000", "1111", "2222", "3333"), "ecl": ("3210", "3211", "3222", "3333"),
             "ecr": ("0000", "1110", "2210", "3210"), "rc16": ("1010", "3232", "1010", "3232")}  # fmt: skip
    for mode, picks in modes.items():
        add_case(f"prmt.b32.{mode}", f"prmt.b32.{mode} %d, %a, %b, %c;", [a, b, c], np.uint32,
                 lambda a, b, c, picks=picks: prmt(a, b, int(picks[c & 3], 16)))  # fmt: skip
    for combine, bang in itertools.product(("and", "or"), ("", "!")):
        code = (f".reg .pred %p, %q;\n.reg .b32 %x;\nsetp.lt.u32 %q, %lane, 13;\n"
                f"lop3.{combine}.b32 %x|%p, %a, %b, %c, 0x80, {bang}%q;\nselp.u32 %d, %x, 7, %p;")  # fmt: skip
        some = [np.where(np.arange(SIZE) % 3 == 0, 0, x).astype(np.uint32) for x in (a, b, c)]
        values = some[0] & some[1] & some[2]
        third = (np.arange(SIZE) % 32 < 13) != bool(bang)
        holds = (values != 0) & third if combine == "and" else (values != 0) | third
        CASES.append(Case(f"lop3.{combine}.b32 {bang}q", code, dict(zip("abc", some, strict=True)),
                          {"d": np.where(holds, values, 7).astype(np.uint32)}))  # fmt: skip
    for mode, clamp in (("wrap", False), ("clamp", True)):

        def count(n: int, clamp: bool = clamp) -> int:
            return min(n, 32) if clamp else n & 31

        amounts = small_counts(32, 21)
        add_case(f"shf.l.{mode}.b32", f"shf.l.{mode}.b32 %d, %a, %b, %c;", [a, b, amounts], np.uint32,
                 lambda a, b, n, count=count: ((b << 32 | a) << count(n) >> 32) % (1 << 32))  # fmt: skip
        add_case(f"shf.r.{mode}.b32", f"shf.r.{mode}.b32 %d, %a, %b, %c;", [a, b, amounts], np.uint32,
                 lambda a, b, n, count=count: ((b << 32 | a) >> count(n)) % (1 << 32))  # fmt: skip
