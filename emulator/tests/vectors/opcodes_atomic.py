"""Vectors of what one atomic does to one cell, of cache hints and policies, and of registers that tell the time."""

import itertools
import math
from collections.abc import Callable

import numpy as np
from support import exact
from support.emulation import Array, Case
from support.exact import BFLOAT, HALF, Format
from vectors.opcodes import CASES, SIZE, halves, integers, same_halves, same_packed, signed, singles

Model = Callable[[int, int], int]  # the new bits of a cell from its old ones and the operand

CELL = {
    "global": ".reg .b64 %p;\nmov.u64 %p, board;\nmad.wide.u32 %p, %i, 16, %p;\n",
    "shared": ".reg .b64 %p;\nmov.u64 %p, smem;\nmad.wide.u32 %p, %t, 16, %p;\n",
    "generic": ".reg .b64 %p;\nmov.u64 %p, smem;\nmad.wide.u32 %p, %t, 16, %p;\ncvta.shared.u64 %p, %p;\n",
}


def float_model(of: Format, op: str = "add", flush: bool = False) -> Model:
    def flushed(bits: int) -> int:
        small = bits & ((1 << (of.bits - 1)) - 1) < 1 << (of.precision - 1)
        return bits & 1 << (of.bits - 1) if flush and small else bits

    def result(old: int, x: int) -> int:
        a, b = exact.decode(flushed(old), of), exact.decode(flushed(x), of)
        if op == "add":
            return flushed(exact.convert(a + b, of))
        if math.isnan(a) or math.isnan(b):
            return of.nan if math.isnan(a) and math.isnan(b) else x if math.isnan(a) else old
        if a == b:  # both zero: -0 is below +0
            return old | x if op == "min" else old & x
        return old if (a < b) == (op == "min") else x

    return result


def packed(model: Model) -> Model:
    return lambda old, x: model(old & 0xFFFF, x & 0xFFFF) | model(old >> 16, x >> 16) << 16


def double_model(old: int, x: int) -> int:
    a, b = np.array([old, x], np.uint64).view(np.float64)
    with np.errstate(all="ignore"):
        return int(np.array([a + b]).view(np.uint64)[0])


def doubles() -> list[Array]:
    rng = np.random.default_rng(140)
    edges = [0.0, -0.0, 5e-324, -2.5e-310, 1.0, -1.0, 1.7e308, -1.7e308, math.inf, -math.inf, math.nan, 2.0**-53]
    a = np.array([edges[i % 12] if i < 144 else rng.normal() * 2.0 ** rng.integers(-60, 60) for i in range(SIZE)])
    b = np.array([edges[i // 12] if i < 144 else rng.normal() * 2.0 ** rng.integers(-60, 60) for i in range(SIZE)])
    return [a.view(np.uint64), b.view(np.uint64)]


def same_doubles(got: Array, want: Array) -> Array:
    both = np.isnan(got.view(np.float64)) & np.isnan(want.view(np.float64))
    same: Array = (got == want) | both
    return same


def same_single_bits(got: Array, want: Array) -> Array:
    same: Array = (got == want) | (np.isnan(got.view(np.float32)) & np.isnan(want.view(np.float32)))
    return same


ATOM_ORDERS = itertools.cycle([".relaxed.cta", ".acquire.gpu", ".release.sys", ".acq_rel.cluster", ""])
RED_ORDERS = itertools.cycle([".relaxed.cta", ".release.gpu", ".relaxed.sys", ".release.cluster", ""])


def cell_case(op: str, inputs: list[Array], model: Model, spaces: tuple[str, ...], compare=None) -> None:  # type: ignore[no-untyped-def]
    """The old and the new value of a cell of each thread; `op` is "add.u32" and the like."""
    bits = inputs[0].dtype.itemsize * 8
    new = np.array([model(int(a), int(b)) for a, b in zip(*inputs, strict=True)], inputs[0].dtype)
    extra = {"compare": compare} if compare else {}
    for space in spaces:
        dot = "" if space == "generic" else f".{space}"
        dot = ".shared::cta" if space == "shared" and len(CASES) % 2 else dot
        for opcode, to in (("atom", "%d, "), ("red", "")):
            if opcode == "red" and op.startswith(("exch", "cas")):
                continue
            order = next(ATOM_ORDERS if opcode == "atom" else RED_ORDERS)
            first, *rest = op.split(".")
            name = f"{opcode}.{first}{order}{dot}.{'.'.join(rest)}"  # in an order of modifiers that is not the manual's
            swap = ", %a" if op.startswith("cas") else ""
            code = (
                f"{CELL[space]}st{dot}.b{bits} [%p], %a;\n{'' if to else f'mov.b{bits} %d, %a;'}\n"
                f"{name} {to}[%p], %b{swap};\nld{dot}.b{bits} %e, [%p];"
            )
            CASES.append(Case(f"{name} of a cell in {space}", code, dict(zip("ab", inputs, strict=True)),
                              {"d": inputs[0], "e": new}, **extra))  # fmt: skip


def cell_cases() -> None:
    words, longs = integers(32, 2, 141), integers(64, 2, 142)
    words[1][::7] = words[0][::7]
    spaces = ("global", "shared", "generic")
    cell_case("inc.u32", words, lambda old, x: 0 if old >= x else old + 1, spaces)
    cell_case("dec.u32", words, lambda old, x: x if old == 0 or old > x else old - 1, spaces)
    cell_case("min.s64", longs, lambda old, x: min(old, x, key=lambda v: signed(v, 64)), ("global",))
    cell_case("add.f64", doubles(), double_model, spaces, same_doubles)
    single = [x.view(np.uint32) for x in singles(2, 143)]
    for space in spaces:
        cell_case("add.f32", single, float_model(exact.SINGLE, flush=space == "global"), (space,), same_single_bits)
    for name, of in (("f16", HALF), ("bf16", BFLOAT)):
        pairs = halves(4, 144, of)
        both = [pairs[0] | pairs[1].astype(np.uint32) << 16, pairs[2] | pairs[3].astype(np.uint32) << 16]
        both = [x.astype(np.uint32) for x in both]
        cell_case(f"add.noftz.{name}", pairs[:2], float_model(of), spaces, same_halves(of))
        cell_case(f"add.noftz.{name}x2", both, packed(float_model(of)), spaces, same_packed(of))
        for op in ("add", "min", "max"):
            for kind, data, same in ((name, pairs[:2], same_halves(of)), (f"{name}x2", both, same_packed(of))):
                model = float_model(of, op) if kind == name else packed(float_model(of, op))
                for count in (2, 4):
                    vector_case(f"{op}.noftz", kind, count, data, model, same)
    for count in (2, 4):
        vector_case("add", "f32", count, single, float_model(exact.SINGLE, flush=True), same_single_bits)
    shorts = integers(16, 2, 145)
    shorts[1][::2] = shorts[0][::2]
    for bits, pairs in ((16, shorts), (32, words), (64, longs)):
        cell_case(f"cas.b{bits}", pairs, lambda old, x: old, spaces)
        if bits > 16:
            cell_case(f"exch.b{bits}", pairs, lambda old, x: x, spaces)
    wide_cases()
    counter_cases()


def vector_case(op: str, kind: str, count: int, data: list[Array], model: Model, same: Callable[..., Array]) -> None:
    """Element k of a vector is the input of the thread k further on; the last one is looked at."""
    bits = data[0].dtype.itemsize * 8
    move = f"b{bits}"
    names = {x: [f"%{x}{i}" for i in range(count)] for x in "xyz"}
    lists = {x: "{" + ", ".join(each) + "}" for x, each in names.items()}
    inputs = {chr(ord("a") + i): np.roll(data[i % 2], i // 2) for i in range(2 * count)}
    reg = ".f32" if kind == "f32" else f".b{bits}"
    loads = "".join(
        f"mov.b{bits} {names[x][k]}, %{chr(ord('a') + 2 * k + j)};\n" for k in range(count) for j, x in enumerate("xy")
    )
    head = CELL["global"] + f".reg {reg} {', '.join(names['x'] + names['y'] + names['z'])};\n{loads}"
    head += f"st.global.v{count}.{move} [%p], {lists['x']};\n"
    last = count - 1
    old = inputs[chr(ord("a") + 2 * last)]
    new = np.array(
        [model(int(a), int(b)) for a, b in zip(old, inputs[chr(ord("b") + 2 * last)], strict=True)], old.dtype
    )
    outputs = {"o": old, "n": new}
    tail = f"ld.global.{move} %n, [%p+{last * bits // 8}];"
    first = op.split(".")[0]
    rest = op.removeprefix(first)
    name = f"atom.global.v{count}.{kind}.{first}{rest}"
    code = f"{head}{name} {lists['z']}, [%p], {lists['y']};\nmov.b{bits} %o, {names['z'][last]};\n{tail}"
    CASES.append(Case(name, code, inputs, outputs, same))
    name = f"red.relaxed.gpu.global.{op}.v{count}.{kind}"
    code = f"{head}{name} [%p], {lists['y']};\nmov.b{bits} %o, {names['x'][last]};\n{tail}"
    CASES.append(Case(name, code, inputs, outputs, same))


def wide_cases() -> None:
    """128 bits: half of the comparisons hold."""
    a, b = integers(64, 2, 146)
    compared = np.where(np.arange(SIZE) % 2, a, b)
    setup = (
        ".reg .b128 %q, %old, %x, %y;\n.reg .b64 %u, %v;\n"
        "mov.b128 %q, {%a, %b};\nmov.b128 %x, {%h, %b};\nmov.b128 %y, {%b, %a};\n"
    )
    for space in ("global", "shared"):
        head, look = CELL[space] + setup + f"st.{space}.b128 [%p], %q;\n", f"ld.{space}.b128 %q, [%p];\n"
        parts = "mov.b128 {%u, %v}, %q;\nxor.b64 %d, %u, %v;\nmov.b64 %e, %u;\n"
        parts += "mov.b128 {%u, %v}, %old;\nsub.s64 %f, %u, %v;"
        swapped = compared == a
        for name, code, exchanged in (
            (f"atom.{space}.exch.b128", f"atom.{space}.exch.b128 %old, [%p], %y;\n", np.full(SIZE, True)),
            (f"atom.cas.{space}.b128", f"atom.cas.{space}.b128 %old, [%p], %x, %y;\n", swapped),
        ):
            CASES.append(Case(name, head + code + look + parts, {"a": a, "b": b, "h": compared},
                              {"d": a ^ b, "e": np.where(exchanged, b, a), "f": a - b}))  # fmt: skip


def counter_cases() -> None:
    """Thirty-two threads share a counter that wraps."""
    head = (
        ".reg .b32 %s, %x;\n.reg .pred %q;\nmov.u32 %s, smem;\nand.b32 %x, %t, 96;\nadd.u32 %s, %s, %x;\n"
        "setp.eq.u32 %q, %lane, 0;\nbar.sync 0;\n@%q st.shared.u32 [%s], 0;\nbar.sync 0;\n"
    )
    for op, end in (("inc", 32 % 10), ("dec", 8)):  # from 0: dec goes 9, 8, ... 0, 9, ...
        code = f"{head}red.shared.{op}.u32 [%s], 9;\nbar.sync 0;\nld.shared.u32 %d, [%s];\nbar.sync 0;"
        CASES.append(Case(f"red.shared.{op}.u32 by 32 threads", code, {}, {"d": np.full(SIZE, end, np.uint32)}))


def hint_cases() -> None:
    """Policies and cache hints change nothing; clocks go on."""
    data = np.random.default_rng(147).integers(0, 1 << 32, SIZE, dtype=np.uint32)
    for policy in (
        "createpolicy.fractional.L2::evict_last.b64 %h;", "createpolicy.fractional.L2::evict_first.b64 %h, 0.5;",
        "createpolicy.fractional.L2::evict_normal.L2::evict_unchanged.b64 %h, 0f3F800000;",
        "createpolicy.fractional.b64.L2::evict_unchanged.L2::evict_first %h;",
        "createpolicy.range.global.L2::evict_last.L2::evict_unchanged.b64 %h, [%p], 64, 128;",
        "createpolicy.range.L2::evict_first.b64 %h, [%p], 64, 128;",
        "createpolicy.range.L2::evict_normal.L2::evict_first.b64 %h, [%p], 64, 128;",
        "createpolicy.range.L2::evict_unchanged.b64 %h, [%p], 64, 128;", "createpolicy.cvt.L2.b64 %h, %p;",
    ):  # fmt: skip
        code = (
            f"{CELL['global']}.reg .b64 %h;\n.reg .b32 %x;\n{policy}\nst.global.L2::cache_hint.b32 [%p], %a, %h;\n"
            "atom.global.add.L2::cache_hint.u32 %x, [%p], 1, %h;\nred.global.add.L2::cache_hint.u32 [%p], 1, %h;\n"
            "ld.global.L2::cache_hint.u32 %x, [%p], %h;\n"
            "ld.global.nc.L1::no_allocate.L2::cache_hint.L2::256B.b32 %x, [%p], %h;\n"
            "sub.u32 %d, %x, 2;"
        )
        CASES.append(Case(policy.split(";")[0], code, {"a": data}, {"d": data}))
    for op in (
        "min.u32 %x, [%p], %a", "and.b32 %x, [%p], %a", "inc.u32 %x, [%p], %a", "exch.b32 %x, [%p], %a",
        "add.noftz.f16x2 %x, [%p], %a", "add.v2.f32 {%x, %y}, [%p], {%a, %a}",
        "max.noftz.v2.bf16x2 {%x, %y}, [%p], {%a, %a}",
    ):  # fmt: skip
        hinted = op.replace(" ", ".L2::cache_hint ", 1)
        code = (
            f"{CELL['global']}.reg .b64 %h;\n.reg .b32 %x, %y;\ncreatepolicy.fractional.L2::evict_last.b64 %h;\n"
            f"st.global.b32 [%p], %a;\natom.global.{hinted}, %h;\nmov.b32 %d, %x;\n"
        )
        if not op.startswith("exch"):  # the first operand is what red has not
            name, _, rest = hinted.partition(" ")
            code += f"red.global.{name} {rest[rest.index('[') :]}, %h;"
        CASES.append(Case(f"atom.global.{hinted}", code, {"a": data}, {"d": data}))
    lines = (
        f"{CELL['global']}and.b64 %p, %p, -128;\napplypriority.global.L2::evict_normal [%p], 128;\n"
        "applypriority.L2::evict_normal [%p], 128;\ndiscard.global.L2 [%p], 128;\ndiscard.L2 [%p], 128;\n"
        "prefetch.global.L2::evict_last [%p];\nprefetch.global.L2::evict_normal [%p];\nmov.b32 %d, %a;"
    )
    CASES.append(Case("lines of the cache", lines, {"a": data}, {"d": data}))
    fences = ["fence.gpu;", "fence.sys;", "fence.proxy.alias;"]
    CASES.append(Case("more fences", "\n".join([*fences, "mov.b32 %d, %a;"]), {"a": data}, {"d": data}))
    clock_cases()


def clock_cases() -> None:
    ones = np.ones(SIZE, np.uint32)
    for register, bits in (("clock", 32), ("clock64", 64), ("globaltimer", 64), ("globaltimer_lo", 32)):
        code = (
            f".reg .b{bits} %x, %y;\n.reg .pred %q;\nmov.u{bits} %x, %{register};\nbar.sync 0;\n"
            f"mov.u{bits} %y, %{register};\nsetp.lt.u{bits} %q, %x, %y;\nselp.u32 %d, 1, 0, %q;"
        )
        CASES.append(Case(f"%{register} goes on", code, {}, {"d": ones}))
    for register in ("clock_hi", "globaltimer_hi", "envreg0", "envreg31"):
        CASES.append(Case(f"%{register}", f"mov.b32 %d, %{register};", {}, {"d": 0 * ones}))
    # the reserved memory lies beside the shared memory of the kernel: both keep what they are given
    code = (
        ".reg .b32 %s, %u, %e, %f;\nmov.u32 %s, smem;\nmov.u32 %u, %reserved_smem_offset_1;\n"
        "mad.lo.s32 %s, %t, 4, %s;\nmad.lo.s32 %u, %t, 4, %u;\nst.shared.u32 [%s], 1;\nst.shared.u32 [%u], %a;\n"
        "ld.shared.u32 %e, [%s];\nld.shared.u32 %d, [%u];\nmov.u32 %s, %reserved_smem_offset_begin;\n"
        "mov.u32 %u, %reserved_smem_offset_end;\nsub.u32 %f, %u, %s;\nadd.u32 %d, %d, %f;\n"
        "mov.u32 %s, %reserved_smem_offset_0;\nmov.u32 %u, %reserved_smem_offset_cap;\nsub.u32 %f, %u, %s;\n"
        "sub.u32 %d, %d, %f;\nsub.u32 %e, %e, 1;\nadd.u32 %d, %d, %e;\nbar.sync 0;"
    )
    data = integers(32, 1, 148)[0]
    CASES.append(Case("reserved shared memory", code, {"a": data}, {"d": data}))
