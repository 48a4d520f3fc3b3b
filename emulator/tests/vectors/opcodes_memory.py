"""Vectors of moves, loads, stores and atomics."""

import itertools
import math
from collections.abc import Callable

import numpy as np
from support.emulation import Array, Case
from vectors.opcodes import CASES, SIZE, add_case, first_input, integers, signed, singles, unsigned


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
    CASES.append(Case("ld.local", local, {"a": data}, {"d": np.where(data % 16 == 15, np.arange(SIZE) % 32,
                 data).astype(np.uint32)}))  # fmt: skip
    generic = (
        ".local .align 4 .b8 cell[4];\n.reg .b64 %p, %q;\n.reg .b32 %s, %n;\nmov.u64 %p, cell;\n"
        "cvta.local.u64 %p, %p;\nst.u32 [%p], %a;\nmov.u64 %q, smem;\ncvta.shared.u64 %q, %q;\n"
        "mad.wide.u32 %q, %t, 4, %q;\nld.u32 %n, [%p];\nst.u32 [%q], %n;\nbar.sync 0;\ncvta.to.shared.u64 %q, %q;\n"
        "ld.shared.u32 %d, [%q];\nbar.sync 0;"
    )
    CASES.append(Case("generic addresses", generic, {"a": data}, {"d": data}))
    constant = (
        ".reg .b64 %p;\n.reg .b32 %n;\nmov.u64 %p, table;\ncvta.const.u64 %p, %p;\nand.b32 %n, %a, 3;\n"
        "mad.wide.u32 %p, %n, 4, %p;\nld.u32 %d, [%p];"
    )
    table = np.array([11, 22, 33, 44], np.uint32)
    CASES.append(Case("generic address of a constant", constant, {"a": data}, {"d": table[data % 4]}))


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
    CASES.append(Case("ld.global.b128 and st.global.b128", code, {"a": data, "b": np.roll(data, 1)}, {"d": data
                 ^ np.roll(data, 1)}))  # fmt: skip
    index = np.arange(SIZE)
    code = (
        ".reg .b32 %x;\n.reg .b64 %p;\nand.b32 %x, %t, 3;\nmov.u64 %p, table;\nmad.wide.u32 %p, %x, 4, %p;\n"
        "ld.const.u32 %d, [%p];"
    )
    CASES.append(Case("ld.const", code, {}, {"d": np.array([11, 22, 33, 44], np.uint32)[index % 4]}))
    code = ".reg .b64 %p;\nld.param::entry.u64 %p, [out];\nsub.s64 %p, %p, %out;\ncvt.u32.u64 %d, %p;"
    CASES.append(Case("ld.param::entry", code, {}, {"d": np.zeros(SIZE, np.uint32)}))
    spaces = {"global": "board", "shared": "smem", "const": "table", "local": "cell"}
    for name, space in itertools.product(spaces, [*spaces, "shared::cta", "param", "param::entry"]):
        code = (
            ".local .align 4 .b8 cell[4];\n.reg .b64 %p;\n.reg .pred %q;\n"
            f"mov.u64 %p, {spaces[name]};\ncvta.{name}.u64 %p, %p;\nisspacep.{space} %q, %p;\nselp.u32 %d, 1, 0, %q;"
        )
        CASES.append(Case(f"isspacep.{space} of {name}", code, {}, {"d": np.full(SIZE,
                     name == space.removesuffix("::cta"), np.uint32)}))  # fmt: skip
    for space in ("global", "const"):
        code = (
            f".reg .b64 %p, %q;\nmov.u64 %p, {spaces[space]};\ncvta.{space}.u64 %q, %p;\ncvta.to.{space}.u64 %q, %q;\n"
            "sub.s64 %q, %q, %p;\ncvt.u32.u64 %d, %q;"
        )
        CASES.append(Case(f"cvta.to.{space}", code, {}, {"d": np.zeros(SIZE, np.uint32)}))
    nothing = [
        "prefetch.global.L1 [%p];", "prefetch.global.L2 [%p];", "prefetch.local.L1 [%q];", "prefetch.L1 [%p];",
        "prefetchu.L1 [%p];", "membar.cta;", "membar.gl;", "membar.sys;", "fence.sc.cta;", "fence.acq_rel.gpu;",
        "fence.sc.sys;", "fence.acq_rel.cluster;", "fence.acquire.gpu;", "fence.release.cta;", "nanosleep.u32 20;",
        "fence.acquire.sync_restrict::shared::cluster.cluster;", "fence.release.sync_restrict::shared::cta.cluster;",
    ]  # fmt: skip
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
            cell = "shr.u32 %x, %i, 3;\nmov.u64 %p, board;\nmad.wide.u32 %p, %x, 128, %p;\n"  # within the CTA's part
            if space != "global":
                cell = "shr.u32 %x, %t, 3;\nmov.u64 %p, smem;\nmad.wide.u32 %p, %x, 8, %p;\n"
            start = f"and.b32 %x, %t, 7;\nsetp.eq.u32 %q, %x, 0;\n@%q st.{space}.b{bits} [%p], %start;\nbar.sync 0;\n"
            end = f"bar.sync 0;\nld.{space}.b{bits} %d, [%p];\nbar.sync 0;"
            for form in (f"atom{next(modifiers)}.{space}.{op}.{t} %old, [%p], %a;", f"red.{space}.{op}.{t} [%p], %a;"):
                CASES.append(Case(form.split(" ")[0], words + base + cell + start + form + "\n" + end, {"a": values},
                                  {"d": np.array(want, unsigned(bits))}))  # fmt: skip
