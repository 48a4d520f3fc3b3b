"""Vectors of set, setp of packed types, slct, testp, selp of !p, and predicates that are numbers."""

import functools
import itertools
import math
import random
from collections.abc import Callable

import numpy as np
from support import exact
from support.emulation import Array, Case
from support.exact import BFLOAT, HALF, Format
from vectors.opcodes import CASES, FLOAT_EDGES, SIZE, add_case, halves, integers, signed, singles, unsigned
from vectors.opcodes_convert import COMPARISONS, UNSIGNED_NAMES, comparison
from vectors.opcodes_float import doubles

ALL_COMPARES = [*COMPARISONS, *(f"{name}u" for name in COMPARISONS), "num", "nan", *UNSIGNED_NAMES.values()]
ONES = {"f32": 0x3F800000, "f16": 0x3C00, "bf16": 0x3F80, "u32": 0xFFFFFFFF, "s32": 0xFFFFFFFF, "u16": 0xFFFF,
        "s16": 0xFFFF}  # fmt: skip
FORMATS: dict[str, Format] = {"f16": HALF, "bf16": BFLOAT}
COMBINES: dict[str, Callable[[bool, bool], bool]] = {"and": lambda p, q: p and q, "or": lambda p, q: p or q,
    "xor": lambda p, q: p != q}  # fmt: skip


def inputs_of(t: str) -> tuple[Array, Array]:
    if t in FORMATS:
        a, b = halves(2, 130, FORMATS[t])
    elif t in ("f32", "f64"):
        a, b = singles(2, 131) if t == "f32" else doubles(2, 132)
    else:
        a, b = integers(int(t[1:]), 2, 133)
    b[1::3] = a[1::3]
    return a, b


def value_of(t: str) -> Callable[[float], float]:
    if t in FORMATS:
        return lambda x: exact.decode(int(x), FORMATS[t])
    return (lambda x: signed(int(x), int(t[1:]))) if t[0] == "s" else float if t[0] == "f" else int


@functools.cache
def pair_of(t: str, high: bool = False) -> tuple[Array, Array]:
    """The sources of a type; high: those of the upper half of a packed one."""
    low = inputs_of(t)
    return (np.roll(low[0], 17), low[1][::-1].copy()) if high else low


@functools.cache
def holds(name: str, t: str, ftz: bool, high: bool = False) -> list[bool]:
    a, b = pair_of(t, high)
    value = value_of(t)
    smallest = 2.0 ** FORMATS[t].smallest if t in FORMATS else 2.0**-126

    def near(x: float) -> float:
        return 0.0 if ftz and abs(x) < smallest else x

    return [
        comparison(near(value(x)), near(value(y)), name, False) for x, y in zip(a.tolist(), b.tolist(), strict=True)
    ]


def names_of(t: str) -> list[str]:
    names = ["eq", "ne"] if t[0] == "b" and t not in FORMATS else list(COMPARISONS)
    if "f" in t:
        return [name for name in ALL_COMPARES if name not in UNSIGNED_NAMES.values()]
    return names + list(UNSIGNED_NAMES.values()) if t[0] == "u" else names


def set_cases() -> None:
    sources = ("b16", "u16", "s16", "b32", "u32", "s32", "b64", "u64", "s64", "f16", "bf16", "f32", "f64")
    targets = {"u32": sources, "s32": sources, "f32": [t for t in sources if t not in FORMATS], "u16": FORMATS,
               "s16": FORMATS, "f16": [t for t in sources if t != "bf16"], "bf16": sources}  # fmt: skip
    rng = random.Random(1)
    for to, froms in targets.items():
        for t in froms:
            for name in names_of(t):
                # each comparison of each pair of types alone and combined; the other modifiers by turns
                for combine in ("", rng.choice(("and", "or", "xor"))):
                    ftz = t in ("f16", "f32") and to != "bf16" and rng.randrange(3) == 0
                    one_set_case(name, combine, ftz, to, t)
    for t in FORMATS:
        for to, name in itertools.product((f"{t}x2", "u32", "s32"), names_of(t)):
            for combine in ("", rng.choice(("and", "or", "xor"))):
                packed_set_case(name, combine, t == "f16" and rng.randrange(3) == 0, to, t)
    packed_predicates()
    select_cases()
    test_cases()
    constant_cases()


def third(combine: str) -> tuple[str, str]:
    return (".reg .pred %q;\nsetp.lt.u32 %q, %lane, 11;\n", ", %q") if combine else ("", "")


def combined(combine: str, first: list[bool]) -> Array:
    second = (np.arange(len(first)) % 32 < 11).tolist()
    return np.array([COMBINES[combine](p, q) for p, q in zip(first, second, strict=True)] if combine else first)


def one_set_case(name: str, combine: str, ftz: bool, to: str, t: str) -> None:
    op = ".".join(filter(None, ["set", name, combine, "ftz" if ftz else "", to, t]))
    before, operand = third(combine)
    want = combined(combine, holds(name, t, ftz))
    kind = unsigned(32 if to.endswith("32") else 16)
    CASES.append(Case(op, f"{before}{op} %d, %a, %b{operand};", dict(zip("ab", pair_of(t), strict=True)),
                      {"d": np.where(want, ONES[to], 0).astype(kind)},
                      result={"d": np.dtype("f4")} if to == "f32" else {},
                      compare=lambda got, want: got.view(want.dtype) == want))  # fmt: skip


def packed(t: str) -> dict[str, Array]:
    """Both sources of a packed type."""
    halves = zip(pair_of(t), pair_of(t, True), strict=True)
    return dict(zip("ab", (x.astype(np.uint32) | y.astype(np.uint32) << 16 for x, y in halves), strict=True))


def packed_set_case(name: str, combine: str, ftz: bool, to: str, t: str) -> None:
    before, operand = third(combine)
    op = ".".join(filter(None, ["set", name, combine, "ftz" if ftz else "", to, f"{t}x2"]))
    one = ONES[t] if to.endswith("x2") else 0xFFFF
    parts = [np.where(combined(combine, holds(name, t, ftz, high)), one, 0).astype(np.uint32) for high in (False, True)]
    CASES.append(Case(op, f"{before}{op} %d, %a, %b{operand};", packed(t), {"d": parts[0] | parts[1] << 16}))


def packed_predicates() -> None:
    rng = random.Random(1)
    show = "selp.u32 %d, 1, 0, %p;\nselp.u32 %e, 1, 0, %r;"

    def results(name: str, combine: str, t: str, ftz: bool) -> dict[str, Array]:
        halves = zip("de", (False, True), strict=True)
        return {key: combined(combine, holds(name, t, ftz, high)).astype(np.uint32) for key, high in halves}

    for t in FORMATS:
        for name, ftz in itertools.product(names_of(t), (False, True) if t == "f16" else (False,)):
            for combine in ("", rng.choice(("and", "or", "xor"))):
                op = ".".join(filter(None, ["setp", name, combine, "ftz" if ftz else "", f"{t}x2"]))
                before, operand = third(combine)
                code = f"{before}.reg .pred %p, %r;\n{op} %p|%r, %a, %b{operand};\n{show}"
                CASES.append(Case(op, code, packed(t), results(name, combine, t, ftz)))
        # The predicate that is combined with is the first result, too.
        code = (".reg .pred %p, %r;\nsetp.lt.u32 %p, %lane, 11;\n"
                f"setp.lt.and.{t}x2 %p|%r, %a, %b, %p;\n{show}")  # fmt: skip
        CASES.append(Case(f"setp.lt.and.{t}x2 p|r of p", code, packed(t), results("lt", "and", t, False)))


def select_cases() -> None:
    for t in ("b16", "u16", "s16", "b32", "u32", "s32", "b64", "u64", "s64", "f32", "f64"):
        a, b = inputs_of(t)
        (c,) = integers(32, 1, 135)
        x = np.array((FLOAT_EDGES * 15)[:SIZE], np.uint32).view(np.float32)
        kind = a.dtype
        add_case(f"slct.{t}.s32", f"slct.{t}.s32 %d, %a, %b, %c;", [a, b, c], kind,
                 lambda a, b, c: a if signed(c, 32) >= 0 else b)  # fmt: skip
        for ftz in ("", ".ftz"):
            add_case(f"slct{ftz}.{t}.f32", f"slct{ftz}.{t}.f32 %d, %a, %b, %c;", [a, b, x], kind,
                     lambda a, b, c, ftz=ftz: a if c >= 0 or (ftz and abs(c) < 2.0**-126) else b)  # fmt: skip
    a, b = integers(32, 2, 136)
    code = ".reg .pred %p;\nsetp.lt.u32 %p, %lane, 9;\nselp.b32 %d, %a, %b, !%p;"
    CASES.append(Case("selp.b32 !p", code, {"a": a, "b": b}, {"d": np.where(np.arange(SIZE) % 32 < 9, b, a)}))


def test_cases() -> None:
    for t, array, tiny in (("f32", singles(1, 137)[0], 2.0**-126), ("f64", doubles(1, 138)[0], 2.0**-1022)):
        tests: dict[str, Callable[[float], bool]] = {"finite": math.isfinite, "infinite": math.isinf,
            "number": lambda x: not math.isnan(x), "notanumber": math.isnan, "normal": lambda x,
            tiny=tiny: math.isfinite(x) and (x == 0 or abs(x) >= tiny), "subnormal": lambda x,
            tiny=tiny: 0 < abs(x) < tiny}  # fmt: skip
        for name, test in tests.items():
            code = f".reg .pred %p;\ntestp.{name}.{t} %p, %a;\nselp.u32 %d, 1, 0, %p;"
            add_case(f"testp.{name}.{t}", code, [array], np.uint32, lambda a, test=test: int(test(a)))


def constant_cases() -> None:
    """Predicates that are numbers or negated, where ptxas takes them."""
    first = np.arange(SIZE) % 32 < 9
    start = ".reg .pred %p, %q;\nsetp.lt.u32 %p, %lane, 9;\n"
    tests: dict[str, Array] = {
        "and.pred %q, %p, 1": first,
        "and.pred %q, 0, %p": first & False,
        "or.pred %q, !%p, 0": ~first,
        "xor.pred %q, %p, !%p": first | True,
        "not.pred %q, !%p": first,
        "not.pred %q, 1": first & False,
        "mov.pred %q, !%p": ~first,
        "mov.pred %q, 1": first | True,
        "setp.ge.and.u32 %q, %lane, 0, 1": first | True,
        "setp.ge.xor.u32 %q, %lane, 0, !%p": first,
        "vote.sync.any.pred %q, 1, 0xffffffff": first | True,
        "vote.sync.all.pred %q, 0, 0xffffffff": first & False,
    }
    for code, want in tests.items():
        CASES.append(Case(code, f"{start}{code};\nselp.u32 %d, 1, 0, %q;", {}, {"d": want.astype(np.uint32)}))
    ballots = {"1": 0xFFFFFFFF, "0": 0, "!%p": 0xFFFFFE00}
    for operand, mask in ballots.items():
        code = f"{start}vote.sync.ballot.b32 %d, {operand}, 0xffffffff;"
        CASES.append(Case(f"vote.sync.ballot.b32 {operand}", code, {}, {"d": np.full(SIZE, mask, np.uint32)}))
    few = np.random.default_rng(139).integers(0, 2, SIZE, dtype=np.uint32)
    few[64:128] = 7
    same = (few.reshape(-1, 32) == few.reshape(-1, 32)[:, :1]).all(1).repeat(32)
    for bits, array in ((32, few), (64, few.astype(np.uint64) << np.uint64(40))):
        code = f".reg .pred %p;\nmatch.all.sync.b{bits} %d|%p, %a, 0xffffffff;\nselp.u32 %e, 1, 0, %p;"
        CASES.append(Case(f"match.all.sync.b{bits}", code, {"a": array},
                          {"d": np.where(same, 0xFFFFFFFF, 0).astype(np.uint32),
                           "e": same.astype(np.uint32)}))  # fmt: skip
