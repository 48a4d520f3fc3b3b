"""Vectors of what sm_100 and sm_120 add: f32x2, minima of three, f32 with halves, four bytes, numbers of 8, 6 and 4
bits, stochastic rounding, powers of two, matrices of bytes."""

import itertools

import numpy as np
from support.emulation import Array, Case
from support.exact import BFLOAT, HALF, SINGLE
from vectors.opcodes import CASES, SIZE, halves, singles
from vectors.opcodes_float import FUNCTIONS, flushed, saturated


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


def floats(bits: Array, kind: str) -> Array:
    """f16 or bf16 as f32."""
    wide: Array = bits.view(np.float16).astype(np.float32)
    return wide if kind == "f16" else (bits.astype(np.uint32) << 16).view(np.float32)


def mixed_cases() -> None:
    """The first source, or the first two of fma, are halves."""
    for kind, op, mode, sat in itertools.product(
        ("f16", "bf16"), ("add", "sub", "fma"), ("", ".rn", ".rz", ".rm", ".rp"), ("", ".sat")
    ):
        if op == "fma" and not mode:
            continue
        count, function = FUNCTIONS[op]
        short = halves(count - 1, 107, HALF if kind == "f16" else BFLOAT)
        inputs = dict(zip("abc", [*short, singles(count, 108)[-1]], strict=False))
        rows = zip(*(floats(x, kind).tolist() for x in short), inputs["abc"[count - 1]].tolist(), strict=True)
        bits = [function(*row, SINGLE, mode[1:] or "rn") for row in rows]
        want = np.array(bits, np.uint32).view(np.float32)
        if sat:
            want = np.array([saturated(x) for x in bits], np.float32)
        form = f"{op}{mode}{sat}.f32.{kind}"
        code = f"{form} %d, {', '.join(f'%{x}' for x in inputs)};"
        CASES.append(Case(form, code, inputs, {"d": want}, *([np.equal] if sat else [])))


def geforce_cases() -> None:
    """Four integers of 8 bits in a register, of sm_120."""
    rng = np.random.default_rng(109)
    words = [rng.choice(np.array([0, 1, 127, 128, 129, 255, 77, 200], np.uint8), (SIZE, 4)) for _ in range(2)]
    inputs = {name: word.view(np.uint32).ravel() for name, word in zip("ab", words, strict=True)}
    for kind, type_ in (("u8x4", np.uint8), ("s8x4", np.int8)):
        x, y = (word.view(type_).astype(np.int32) for word in words)
        least, most = np.iinfo(type_).min, np.iinfo(type_).max
        results = {
            "min": np.minimum(x, y), "max": np.maximum(x, y), "add": x + y, "sub": x - y,
            "add.sat": np.clip(x + y, least, most), "sub.sat": np.clip(x - y, least, most),
        }  # fmt: skip
        for op, result in results.items():
            want = result.astype(np.uint8).view(np.uint32).ravel()
            CASES.append(Case(f"{op}.{kind}", f"{op}.{kind} %d, %a, %b;", inputs, {"d": want}))
    want = (-words[0].view(np.int8).astype(np.int32)).astype(np.uint8).view(np.uint32).ravel()
    CASES.append(Case("neg.s8x4", "neg.s8x4 %d, %a;", {"a": inputs["a"]}, {"d": want}))


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


# Bits of exponent and fraction, and of both numbers of a pair. The largest numbers of 8 bits are below NaN.
SMALL = {"e2m1x2": (2, 1, 4), "e2m3x2": (2, 3, 8), "e3m2x2": (3, 2, 8), "e4m3x2": (4, 3, 8), "e5m2x2": (5, 2, 8)}
NUMBERS = {"e4m3x2": 0x7F, "e5m2x2": 0x7C}


def table_of(exponents: int, fraction: int) -> Array:
    """Magnitudes by their bits."""
    bits, bias = np.arange(1 << (exponents + fraction)), (1 << (exponents - 1)) - 1
    field, part = bits >> fraction, bits % (1 << fraction)
    values: Array = np.where(field > 0, part + (1 << fraction), part) * 2.0 ** (np.maximum(field, 1) - bias - fraction)
    return values


def encoded(values: Array, numbers: Array, sign: int, relu: bool, share: Array | None = None) -> Array:
    """To the nearest, of two the one whose bits are even, or up if the part that is cut and `share` of a unit are a
    whole one; what is too large becomes the largest, and NaN that of 8 bits, if there is one."""
    value = np.where(values < 0, 0.0, values) if relu else values
    size = np.where(np.isnan(value), np.float32(np.inf), np.abs(value)).astype(np.float64)
    above = np.searchsorted(numbers, size).clip(1, len(numbers) - 1)
    low, high = numbers[above - 1], numbers[above]
    with np.errstate(invalid="ignore"):  # of infinities
        up = (size - low > high - size) | ((size - low == high - size) & (above % 2 == 0))
        if share is not None:
            up = (size - low) / (high - low) + share >= 1
    bits = np.where(up | (size >= high), above, above - 1)
    if len(numbers) in NUMBERS.values():
        bits = np.where(np.isnan(value), 0x7F, bits)
    negative = np.signbit(value) & ~np.isnan(value) & ~((value == 0) & relu)
    out: Array = (bits | np.where(negative, sign, 0)).astype(np.uint16)
    return out


def narrowed(form: str, name: str, operands: str) -> str:
    """A conversion into %d; two numbers of 4 bits are a register of 8."""
    if name != "e2m1x2":
        return f"{form} %d, {operands};"
    return f".reg .b8 %small;\n{form} %small, {operands};\ncvt.u16.u8 %d, %small;"


def small_float_cases() -> None:
    rng = np.random.default_rng(103)
    for name, (exponents, fraction, apart) in SMALL.items():
        sign = 1 << (exponents + fraction)
        numbers = table_of(exponents, fraction)[: NUMBERS.get(name)]
        values = [np.concatenate([x[: SIZE // 2], (rng.normal(size=SIZE // 2) * 3).astype(np.float32)])
                  for x in singles(2, 104)]  # fmt: skip
        short = {"f16x2": halves(2, 105, HALF), "bf16x2": halves(2, 106, BFLOAT)}
        for relu in ("", ".relu"):
            high, low = (encoded(value, numbers, sign, bool(relu)) for value in values)
            form, inputs = f"cvt.rn.satfinite{relu}.{name}.f32", dict(zip("ab", values, strict=True))
            CASES.append(Case(form, narrowed(form, name, "%a, %b"), inputs, {"d": high << apart | low}))
            for kind, (upper, lower) in short.items():
                high, low = (encoded(floats(x, kind[:-2]), numbers, sign, bool(relu)) for x in (upper, lower))
                pairs = {"a": upper.astype(np.uint32) << 16 | lower}
                form = f"cvt.rn.satfinite{relu}.{name}.{kind}"
                CASES.append(Case(form, narrowed(form, name, "%a"), pairs, {"d": high << apart | low}))
            codes = rng.integers(0, 2 * sign, (2, SIZE)).astype(np.uint16)
            codes = np.where(codes % sign < len(numbers), codes, 0).astype(np.uint16)
            decoded = np.where(codes & sign, -1.0, 1.0) * numbers[codes % sign]
            if relu:
                decoded = np.where(decoded > 0, decoded, 0.0)
            for kind, bits in (("f16x2", decoded.astype(np.float16).view(np.uint16)),
                               ("bf16x2", decoded.astype(np.float32).view(np.uint32) >> 16)):  # fmt: skip
                form = f"cvt.rn{relu}.{kind}.{name}"
                code = f"{form} %d, %a;"
                if apart == 4:
                    code = f".reg .b8 %small;\ncvt.u8.u16 %small, %a;\n{form} %d, %small;"
                want = {"d": bits[1].astype(np.uint32) << 16 | bits[0]}
                CASES.append(Case(form, code, {"a": codes[1] << apart | codes[0]}, want))


def random_cases() -> None:
    """Stochastic rounding: which of the random bits belong to a number is the PTX ISA's text, read in one way."""
    rng = np.random.default_rng(110)
    random = rng.integers(0, 1 << 32, SIZE, dtype=np.uint32)
    values = [np.concatenate([x[: SIZE // 4], (rng.normal(size=3 * SIZE // 4) * 3).astype(np.float32)])
              for x in singles(4, 111)]  # fmt: skip
    inputs = {**dict(zip("abce", values, strict=True)), "f": random}
    for name, (exponents, fraction, apart) in SMALL.items():
        sign = 1 << (exponents + fraction)
        numbers = table_of(exponents, fraction)[: NUMBERS.get(name)]
        bytes_ = [random >> np.uint32(8 * i) & 255 for i in range(4)]
        shares = (
            (bytes_[3] << 8 | bytes_[1], bytes_[2] << 8 | bytes_[0]) if apart == 4 else (random >> 16, random & 65535)
        )
        for relu in ("", ".relu"):
            want = np.zeros(SIZE, np.uint32)
            for i, value in enumerate(values):
                part = encoded(value, numbers, sign, bool(relu), shares[i // 2] / 65536)
                want = want << apart | part
            form = f"cvt.rs{relu}.satfinite.{name[:-1]}4.f32"
            want = want.astype(np.uint16) if apart == 4 else want
            CASES.append(Case(form, f"{form} %d, {{%a, %b, %c, %e}}, %f;", inputs, {"d": want}))
    pair = {"a": values[0], "b": values[1], "c": random}
    for kind, relu, finite in itertools.product(("f16x2", "bf16x2"), ("", ".relu"), ("", ".satfinite")):
        bits = 13 if kind == "f16x2" else 16
        codes = np.arange(0x7C00 if bits == 13 else 0x7F80, dtype=np.uint16)
        numbers, parts = floats(codes, kind[:-2]).astype(np.float64), []
        if not finite:  # the number after the largest is infinity
            numbers = np.append(numbers, 2 * numbers[-1] - numbers[-2])
        for value, share in ((values[0], random >> 16), (values[1], random)):
            part = encoded(value, numbers, 0x8000, bool(relu), (share & ((1 << bits) - 1)) / (1 << bits))
            parts.append(np.where(np.isnan(value), 0x7FFF, part).astype(np.uint32))
        form = f"cvt.rs{relu}{finite}.{kind}.f32"
        CASES.append(Case(form, f"{form} %d, %a, %b, %c;", pair, {"d": parts[0] << 16 | parts[1]}))


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


def single_precision_cases() -> None:
    """tf32 whose infinities become the largest number."""
    values = singles(1, 112)[0]
    for mode, relu in itertools.product((".rn", ".rz"), ("", ".relu")):
        bits = values.view(np.uint32)
        size, sign = bits & 0x7FFFFFFF, bits & 0x80000000
        up = 0xFFF + (size >> 13 & 1) if mode == ".rn" else 0
        rounded = np.minimum(size + up & 0xFFFFE000, 0x7F7FE000) | sign
        rounded = np.where((sign > 0) & bool(relu), 0, rounded)
        want = np.where(size > 0x7F800000, 0x7FFFE000, rounded).astype(np.uint32)
        form = f"cvt{mode}.satfinite{relu}.tf32.f32"
        CASES.append(Case(form, f"{form} %d, %a;", {"a": values}, {"d": want}))


ROWS = """\
.reg .b32 %s, %row, %x;
mov.u32 %s, smem;
shr.u32 %x, %t, 5;
mad.lo.s32 %s, %x, 512, %s;
mad.lo.s32 %row, %lane, 16, %s;
st.shared.v4.u32 [%row], {%a, %b, %c, %h};
bar.warp.sync 0xffffffff;
"""


def byte_matrix_cases() -> None:
    """A warp owns 512 bytes, 32 rows of 16. Lane l gives the address of row l + 16 mod 32."""
    words = np.random.default_rng(113).integers(0, 1 << 32, SIZE, dtype=np.uint32)
    inputs = {"a": words, "b": np.roll(words, 1), "c": np.roll(words, 2), "h": np.roll(words, 3)}
    memory = np.stack(list(inputs.values()), 1).view(np.uint8).reshape(-1, 32, 16)  # [warp, row, byte]
    turn = f"{ROWS}add.u32 %x, %lane, 16;\nand.b32 %x, %x, 31;\nmad.lo.s32 %row, %x, 16, %s;\n"
    lane, of_four = np.arange(32), np.arange(4)
    for count, (type_, bits) in itertools.product((1, 2), (("b8", 8), ("b8x16.b6x16_p32", 6), ("b8x16.b4x16_p64", 4))):
        ones = np.unpackbits(memory, axis=2, bitorder="little")[:, :, : 16 * bits].reshape(-1, 32, 16, bits)
        rows = np.packbits(ones, axis=3, bitorder="little")[..., 0][:, (lane + 16) % 32]
        outputs = {}
        for i in range(2 * count):  # each register: four rows of a column
            column = lane // 4 + i % 2 * 8
            taken = rows[:, (i // 2 * 16 + lane[:, None] % 4 * 4 + of_four), column[:, None]]
            outputs["defg"[i]] = np.ascontiguousarray(taken).view(np.uint32).ravel()
        names = ", ".join(f"%{x}" for x in outputs)
        form = f"ldmatrix.sync.aligned.m16n16.x{count}.trans.shared{'::cta' * (count == 2)}.{type_}"
        CASES.append(Case(form, f"{turn}{form} {{{names}}}, [%row];\nbar.sync 0;", inputs, outputs))
    registers = np.stack(list(inputs.values())).view(np.uint8).reshape(4, -1, 32, 4)  # [matrix, warp, lane, byte]
    for count in (1, 2, 4):
        stored = memory.copy()
        for i, byte in itertools.product(range(count), range(4)):
            row = (8 * i + lane % 4 * 2 + byte % 2 + 16) % 32
            stored[:, row, lane // 4 + byte // 2 * 8] = registers[i, :, :, byte]
        out = stored.reshape(-1, 16).copy().view(np.uint32)
        form = f"stmatrix.sync.aligned.m16n8.x{count}.trans.shared.b8"
        code = (
            f"{turn}{form} [%row], {{{', '.join(f'%{x}' for x in 'abch'[:count])}}};\nbar.warp.sync -1;\n"
            "mad.lo.s32 %row, %lane, 16, %s;\nld.shared.v4.u32 {%d, %e, %f, %g}, [%row];\nbar.sync 0;"
        )
        CASES.append(Case(form, code, inputs, {x: out[:, i].copy() for i, x in enumerate("defg")}))


def zero_cases() -> None:
    """A lane sets every other 8 bytes of its 16 to zeros."""
    words = np.random.default_rng(114).integers(1, 1 << 32, SIZE, dtype=np.uint32)
    inputs = {"a": words, "b": np.roll(words, 1), "c": np.roll(words, 2), "h": np.roll(words, 3)}
    code = (
        f"{ROWS}.reg .b64 %bytes;\nmov.u64 %bytes, 8;\nst.bulk.weak.shared::cta [%row+8], %bytes, 0;\n"
        "ld.shared.v4.u32 {%d, %e, %f, %g}, [%row];\nbar.sync 0;"
    )
    zeros = np.zeros(SIZE, np.uint32)
    CASES.append(Case("st.bulk.weak.shared::cta", code, inputs,
                      {"d": words, "e": inputs["b"], "f": zeros, "g": zeros}))  # fmt: skip


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
    want = {"d": 2 * data[np.arange(SIZE) // 2 * 2] + np.uint32(7)}
    CASES.append(Case("ld.global.v8.b32", code, {"a": data}, want))
    skipped = code.replace("@%even", "bar.sync 0;\n@%even", 1)
    skipped = skipped.replace(
        "bar.warp", "@%even st.global.v8.b32 [%at], {_, %v0, %v1, %v2, %v3, %v4, %v5, _};\nbar.warp"
    )
    CASES.append(Case("st.global.v8.b32", skipped.replace("%d, %v0, %v7", "%d, %v1, %v7"), {"a": data}, want))
    CASES.append(
        Case(
            "ld.v8.b32",
            code.replace("st.global", "st").replace("ld.global", "ld").replace("@%even", "bar.sync 0;\n@%even"),
            {"a": data},
            want,
        )
    )


def blackwell_cases() -> None:
    pair_cases()
    mixed_cases()
    three_cases()
    small_float_cases()
    random_cases()
    power_cases()
    single_precision_cases()
    byte_matrix_cases()
    zero_cases()
    memory_cases()
