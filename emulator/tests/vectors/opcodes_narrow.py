"""Vectors of cvt: directed roundings, sat, relu, satfinite, tf32, e4m3 and e5m2, and cvt.pack."""

import itertools
import math
from collections.abc import Callable

import numpy as np
from support import exact
from support.emulation import Array, Case
from support.exact import BFLOAT, DOUBLE, HALF, SINGLE, TENSOR, Format
from vectors.opcodes import (
    CASES,
    SIZE,
    add_case,
    halves,
    integers,
    same_halves,
    same_packed,
    same_single,
    signed,
    singles,
    unsigned,
)
from vectors.opcodes_convert import near_halves, to_integer, to_integral
from vectors.opcodes_float import doubles, flushed, same_double

ROUNDINGS = ("rn", "rz", "rm", "rp")
INTEGERS = ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64")


def limits(t: str) -> tuple[int, int]:
    bits = int(t[1:])
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if t[0] == "s" else (0, (1 << bits) - 1)


def integer_value(t: str) -> Callable[[int], int]:
    return (lambda x: signed(x, int(t[1:]))) if t[0] == "s" else int


def narrow_cases() -> None:
    saturating_integers()
    integers_to_floats()
    floats_to_integers()
    floats_to_halves()
    floats_to_floats()
    tensor_floats()
    byte_floats()
    pack_cases()
    wide_targets()


def saturating_integers() -> None:
    for to, source in itertools.product(INTEGERS, INTEGERS):
        (low, high), (least, most) = limits(to), limits(source)
        if low <= least and most <= high:
            continue
        bits = max(int(to[1:]), 16)
        value = integer_value(source)
        add_case(f"cvt.sat.{to}.{source}", f"cvt.sat.{to}.{source} %d, %a;", [integers(int(source[1:]), 1, 140)[0]],
                 unsigned(bits), lambda a, v=value, low=low, high=high, n=bits:
                 min(max(v(a), low), high) % (1 << n))  # fmt: skip


def unit(bits: int, of: Format) -> int:
    """sat: into [0, 1], NaN to +0."""
    value = exact.decode(bits, of)
    return 0 if math.isnan(value) or value <= 0 else exact.convert(min(value, 1.0), of)


def ended(bits: int, of: Format, sat: str = "", ftz: str = "") -> int:
    bits = exact.flush(bits, of) if ftz else bits
    return unit(bits, of) if sat else bits


def integers_to_floats() -> None:
    targets = {"f16": (HALF, np.uint16, ""), "f32": (SINGLE, np.uint32, "f4"), "f64": (DOUBLE, np.uint64, "f8"),
               "bf16": (BFLOAT, np.uint16, "")}  # fmt: skip
    turn = itertools.count()
    for source, (to, (of, kind, result)), mode in itertools.product(INTEGERS, targets.items(), ROUNDINGS):
        if to == "bf16" and source in ("u8", "s8"):
            continue
        for sat in ("",) if to == "bf16" else ("", ".sat"):
            ftz = ".ftz" if to == "f32" and next(turn) % 3 == 0 else ""
            name = f"cvt.{mode}{ftz}{sat}.{to}.{source}"
            value = integer_value(source)
            add_case(name, f"{name} %d, %a;", [integers(int(source[1:]), 1, 141)[0]], kind,
                     lambda a, v=value, of=of, m=mode, s=sat: ended(exact.encode((v(a), 1), of, m), of, s),
                     result=result)  # fmt: skip


def floats_to_integers() -> None:
    x = singles(1, 142)[0]
    x[::3] = np.random.default_rng(143).normal(size=len(x[::3])).astype(np.float32) * 100
    x[::12] = np.round(x[::12]) + np.float32(0.5)
    half, bfloat = halves(1, 144, HALF)[0], halves(1, 145, BFLOAT)[0]
    wide = np.concatenate([x[: SIZE // 2].astype(np.float64), doubles(1, 146)[0][SIZE // 2 :] * 1000])
    sources: dict[str, tuple[Array, Callable[..., float]]] = {"f16": (half, lambda a: exact.decode(a, HALF)),
        "bf16": (bfloat, lambda a: exact.decode(a, BFLOAT)), "f32": (x, float), "f64": (wide, float)}  # fmt: skip
    for (source, (array, value)), mode in itertools.product(sources.items(), ("rni", "rzi", "rmi", "rpi")):
        for to in INTEGERS if source != "bf16" else INTEGERS[2:]:
            ends = {"bf16": [""], "f32": ["", ".ftz", ".sat", ".ftz.sat"]}.get(source, ["", ".sat"])
            for end in ends:
                name = f"cvt.{mode}{end}.{to}.{source}"
                bits = max(int(to[1:]), 16)
                add_case(name, f"{name} %d, %a;", [array], unsigned(bits),
                         lambda a, m=mode, t=to, v=value, n=bits, ftz="ftz" in end, source=source: extended(
                             to_integer(v(a), m, t, ftz, 64 if source == "f64" else 32), t, n))  # fmt: skip
        # to an integral value of the own type
        formats = {"f16": HALF, "bf16": BFLOAT, "f32": SINGLE, "f64": DOUBLE}
        of = formats[source]
        for end in ends if source != "f32" else ["", ".ftz", ".sat"]:
            name = f"cvt.{mode}{end}.{source}.{source}"
            add_case(name, f"{name} %d, %a;", [array], unsigned(of.bits),
                     lambda a, m=mode, v=value, of=of, ftz="ftz" in end, s="sat" in end: ended(
                         exact.convert(to_integral(v(a), m, ftz), of), of, "sat" if s else ""),
                     {"f32": same_single, "f64": same_double}.get(source, same_halves(of)),
                     {"f32": "f4", "f64": "f8"}.get(source, ""))  # fmt: skip


def extended(bits: int, t: str, to_bits: int) -> int:
    return signed(bits, int(t[1:])) % (1 << to_bits) if t[0] == "s" else bits


def relu(x: float) -> float:
    return 0.0 if x <= 0 else x


def finite(bits: int, of: Format) -> int:
    """satfinite: the largest number instead of an infinity."""
    size = bits & (1 << (of.bits - 1)) - 1
    return bits - 1 if size == of.infinity else bits


def floats_to_halves() -> None:
    for (t, of), mode in itertools.product((("f16", HALF), ("bf16", BFLOAT)), ROUNDINGS):
        x = near_halves(of)
        for ftz, sat in itertools.product(("", ".ftz"), ("", ".sat") if of is HALF else ("",)):
            name = f"cvt.{mode}{ftz}{sat}.{t}.f32"
            add_case(name, f"{name} %d, %a;", [x], np.uint16, lambda a, m=mode, of=of, s=sat, ftz=ftz:
                     ended(exact.convert(flushed(a) if ftz else a, of, m), of, s), same_halves(of))  # fmt: skip
        wide = doubles(1, 147)[0]
        wide[: SIZE // 2] = x[: SIZE // 2].astype(np.float64) * (1 + 2.0**-40 * np.arange(-64, 64))
        for sat in ("", ".sat") if of is HALF else ("",):
            name = f"cvt.{mode}{sat}.{t}.f64"
            add_case(name, f"{name} %d, %a;", [wide], np.uint16,
                     lambda a, m=mode, of=of, s=sat: ended(exact.convert(a, of, m), of, s),
                     same_halves(of))  # fmt: skip
        if mode in ("rn", "rz"):
            finite_cases(t, of, mode, x)


def finite_cases(t: str, of: Format, mode: str, x: Array) -> None:
    for positive, limit in itertools.product(("", ".relu"), ("", ".satfinite")):

        def bits(a: float, positive: str = positive, limit: str = limit) -> int:
            bits = exact.convert(relu(a) if positive else a, of, mode)
            return finite(bits, of) if limit else bits

        name = f"cvt.{mode}{positive}{limit}.{t}"
        if positive or limit:
            add_case(f"{name}.f32", f"{name}.f32 %d, %a;", [x], np.uint16, bits, same_halves(of))
        add_case(f"{name}x2.f32", f"{name}x2.f32 %d, %a, %b;", [x, np.roll(x, 5)], np.uint32,
                 lambda a, b, f=bits: f(a) << 16 | f(b), same_packed(of))  # fmt: skip


def floats_to_floats() -> None:
    wide = np.concatenate([singles(1, 148)[0][: SIZE // 2].astype(np.float64), doubles(1, 149)[0][: SIZE // 2]])
    single, half, bfloat = singles(1, 150)[0], halves(1, 151, HALF)[0], halves(1, 152, BFLOAT)[0]
    for mode, ftz, sat in itertools.product(ROUNDINGS, ("", ".ftz"), ("", ".sat")):
        name = f"cvt.{mode}{ftz}{sat}.f32.f64"
        add_case(name, f"{name} %d, %a;", [wide], np.uint32, lambda a, m=mode, s=sat, ftz=ftz: ended(
                 exact.convert(a, SINGLE, m), SINGLE, s, ftz), same_single, "f4")  # fmt: skip
    for ftz, sat in itertools.product(("", ".ftz"), ("", ".sat")):
        add_case(f"cvt{ftz}{sat}.f32.f16", f"cvt{ftz}{sat}.f32.f16 %d, %a;", [half], np.uint32,
                 lambda a, s=sat: ended(exact.convert(exact.decode(a, HALF), SINGLE), SINGLE, s),
                 same_single, "f4")  # fmt: skip
        for t, of, end in (("f32", SINGLE, same_single), ("f64", DOUBLE, same_double)):
            name = f"cvt{ftz}{sat}.{t}.f32"
            add_case(name, f"{name} %d, %a;", [single], unsigned(of.bits), lambda a, of=of, s=sat, ftz=ftz:
                     ended(exact.convert(flushed(a) if ftz else a, of), of, s), end, f"f{of.bits // 8}")  # fmt: skip
    for sat in ("", ".sat"):
        add_case(f"cvt{sat}.f64.f64", f"cvt{sat}.f64.f64 %d, %a;", [wide], np.uint64,
                 lambda a, s=sat: ended(exact.convert(a, DOUBLE), DOUBLE, s), same_double, "f8")  # fmt: skip
        add_case(f"cvt{sat}.f64.f16", f"cvt{sat}.f64.f16 %d, %a;", [half], np.uint64,
                 lambda a, s=sat: ended(exact.convert(exact.decode(a, HALF), DOUBLE), DOUBLE, s),
                 same_double, "f8")  # fmt: skip
        add_case(f"cvt{sat}.f16.f16", f"cvt{sat}.f16.f16 %d, %a;", [half], np.uint16,
                 lambda a, s=sat: ended(a, HALF, s), same_halves(HALF))  # fmt: skip
    add_case("cvt.bf16.bf16", "cvt.bf16.bf16 %d, %a;", [bfloat], np.uint16, lambda a: a, same_halves(BFLOAT))
    for mode in ("", *ROUNDINGS):
        dot = f".{mode}" if mode else ""
        for to, of, source, of_source, array in (
            ("bf16", BFLOAT, "f16", HALF, half),
            ("f16", HALF, "bf16", BFLOAT, bfloat),
        ):
            name = f"cvt{dot}.{to}.{source}"
            add_case(name, f"{name} %d, %a;", [array], np.uint16, lambda a, m=mode or "rn", of=of, source=of_source:
                     exact.convert(exact.decode(a, source), of, m), same_halves(of))  # fmt: skip
        add_case(f"cvt{dot}.f64.bf16", f"cvt{dot}.f64.bf16 %d, %a;", [bfloat], np.uint64,
                 lambda a: exact.convert(exact.decode(a, BFLOAT), DOUBLE), same_double, "f8")  # fmt: skip
        for ftz in ("", ".ftz"):
            name = f"cvt{dot}{ftz}.f32.bf16"
            add_case(name, f"{name} %d, %a;", [bfloat], np.uint32, lambda a, ftz=ftz: ended(
                     exact.convert(exact.decode(a, BFLOAT), SINGLE), SINGLE, "", ftz), same_single, "f4")  # fmt: skip


def tensor_floats() -> None:
    """tf32: 19 bits and 13 zeros below them."""
    x = near_halves(TENSOR)

    def same(got: Array, want: Array) -> Array:
        ok: Array = (got == want) | ((got & 0x7FFFFFFF > 0x7F800000) & (want & 0x7FFFFFFF > 0x7F800000))
        return ok

    for mode, positive in itertools.product(("rn", "rz"), ("", ".relu")):
        add_case(f"cvt.{mode}{positive}.tf32.f32", f"cvt.{mode}{positive}.tf32.f32 %d, %a;", [x], np.uint32,
                 lambda a, m=mode, p=positive: exact.convert(relu(a) if p else a, TENSOR, m) << 13, same)  # fmt: skip
    for limit in ("", ".satfinite"):
        add_case(f"cvt.rna{limit}.tf32.f32", f"cvt.rna{limit}.tf32.f32 %d, %a;", [x[~np.isnan(x)].repeat(2)[:SIZE]],
                 np.uint32, lambda a, s=limit:
                 (finite if s else lambda b, _: b)(exact.convert(a, TENSOR, "rna"), TENSOR)
                 << 13, same)  # fmt: skip


def byte_tables() -> dict[str, Array]:
    """The values of all 256 codes: e4m3 has no infinity and NaN at 0x7f and 0xff, e5m2 is a short f16."""
    codes = range(256)
    four = [math.nan if code & 127 == 127 else exact.decode(code, Format(4, -6, 8)) if code & 0x78 != 0x78 else
            math.copysign(2.0**8 * (1 + (code & 7) / 8), -1 if code & 128 else 1) for code in codes]  # fmt: skip
    return {
        "e4m3x2": np.array(four),
        "e5m2x2": np.array([exact.decode(int(code), Format(3, -14, 8)) for code in codes]),
    }


def byte_floats() -> None:
    for t, table in byte_tables().items():
        largest = 0x7E if t == "e4m3x2" else 0x7B
        numbers = table[: largest + 1]

        def encode(a: float, numbers: Array = numbers, largest: int = largest) -> int:
            """The nearest number of the table, the even code of two that are as near; the largest beyond it."""
            if math.isnan(a):
                return 0x7F
            sign = 0x80 if math.copysign(1.0, a) < 0 else 0
            if abs(a) >= numbers[-1]:
                return sign | largest
            at = int(np.searchsorted(numbers, abs(a), "right")) - 1
            below, above = abs(a) - float(numbers[at]), float(numbers[at + 1]) - abs(a)
            return sign | (at + (above < below or (above == below and at % 2)))

        rng = np.random.default_rng(153)
        middles = np.concatenate([numbers, (numbers[1:] + numbers[:-1]) / 2, numbers * (1 + 2.0**-9)])
        x = (rng.choice(middles, SIZE) * rng.choice([-1.0, 1.0, 1.001], SIZE)).astype(np.float32)
        x[:64] = singles(1, 154)[0][:64]
        y = np.roll(x, 11)
        with np.errstate(over="ignore"):
            half = [z.astype(np.float16).view(np.uint16) for z in (x, y)]
        both = half[0].astype(np.uint32) | half[1].astype(np.uint32) << 16
        for positive in ("", ".relu"):
            near: Callable[[float], float] = relu if positive else float
            name = f"cvt.rn.satfinite{positive}.{t}"
            add_case(f"{name}.f32", f"{name}.f32 %d, %a, %b;", [x, y], np.uint16,
                     lambda a, b, f=encode, n=near: f(n(a)) << 8 | f(n(b)), same_bytes)  # fmt: skip
            add_case(f"{name}.f16x2", f"{name}.f16x2 %d, %a;", [both], np.uint16,
                     lambda a, f=encode, n=near: f(n(exact.decode(a >> 16, HALF))) << 8
                     | f(n(exact.decode(a & 0xFFFF, HALF))), same_bytes)  # fmt: skip
            codes = rng.integers(0, 1 << 16, SIZE).astype(np.uint16)
            codes[:256] = np.arange(256) | np.arange(256)[::-1] << 8
            add_case(f"cvt.rn{positive}.f16x2.{t}", f"cvt.rn{positive}.f16x2.{t} %d, %a;", [codes], np.uint32,
                     lambda a, table=table, n=near: exact.convert(n(float(table[a >> 8])), HALF) << 16
                     | exact.convert(n(float(table[a & 255])), HALF), same_packed(HALF))  # fmt: skip


def same_bytes(got: Array, want: Array) -> Array:
    """Equal; the sign of a NaN is open."""

    def same(x: Array, y: Array) -> Array:
        ok: Array = (x == y) | ((x & 0x7F == 0x7F) & (y & 0x7F == 0x7F))
        return ok

    return same(got >> 8, want >> 8) & same(got & 255, want & 255)


def pack_cases() -> None:
    a, b, c = integers(32, 3, 155)
    a[::2] %= 1 << 17
    b[::3] = (b[::3] % 37).astype(np.uint32) - np.uint32(18)
    for to in ("u16", "s16", "u8", "s8", "u4", "s4", "u2", "s2"):
        bits, (low, high) = int(to[1:]), limits(to)

        def field(x: int, low: int = low, high: int = high, bits: int = bits) -> int:
            return min(max(signed(x, 32), low), high) % (1 << bits)

        if bits == 16:
            add_case(f"cvt.pack.sat.{to}.s32", f"cvt.pack.sat.{to}.s32 %d, %a, %b;", [a, b], np.uint32,
                     lambda a, b, f=field: f(a) << 16 | f(b))  # fmt: skip
        else:
            add_case(f"cvt.pack.sat.{to}.s32.b32", f"cvt.pack.sat.{to}.s32.b32 %d, %a, %b, %c;", [a, b, c], np.uint32,
                     lambda a, b, c, f=field, n=bits: (c << 2 * n | f(a) << n | f(b)) % (1 << 32))  # fmt: skip


def wide_targets() -> None:
    """A register that is wider than an integer result holds it extended by its sign."""
    x = np.random.default_rng(156).normal(size=SIZE).astype(np.float32) * 100
    for to, bits in (("s8", 32), ("u8", 32), ("s8", 64), ("u16", 64), ("s16", 32)):
        add_case(f"cvt.rzi.{to}.f32 to {bits} bits", f"cvt.rzi.{to}.f32 %d, %a;", [x], unsigned(bits),
                 lambda a, t=to, n=bits: extended(to_integer(a, "rzi", t, False), t, n))  # fmt: skip
    a = integers(32, 1, 157)[0]
    for to, bits in (("s8", 32), ("u8", 64)):
        low, high = limits(to)
        CASES.append(Case(f"cvt.sat.{to}.s32 to {bits} bits", f"cvt.sat.{to}.s32 %d, %a;", {"a": a},
                          {"d": np.array([min(max(signed(int(x), 32), low), high) % (1 << bits) for x in a],
                                         unsigned(bits))}))  # fmt: skip
