"""Vectors of what the lanes of a warp or the threads of a CTA do together: shuffles, votes, matrices, copies, flow."""

import itertools

import numpy as np
from support import tensor_core
from support.emulation import Array, Case
from vectors.opcodes import CASES, SIZE, first_input


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
    CASES.append(Case("vote.sync.all.pred of !p",
                 f"{test}vote.sync.all.pred %q, !%p, 0xffffffff;\nselp.u32 %d, 1, 0, %q;", {"a": data},
                 {"d": (~rows.any(1)).repeat(32).astype(np.uint32)}))  # fmt: skip
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
    CASES.append(Case("match.any.sync.b32", "match.any.sync.b32 %d, %a, 0xffffffff;", {"a": few},
                 {"d": same.sum(2).astype(np.uint32).ravel()}))  # fmt: skip

    wide = few.astype(np.uint64) << np.uint64(40)
    CASES.append(Case("match.any.sync.b64", "match.any.sync.b64 %d, %a, 0xffffffff;", {"a": wide},
                      {"d": same.sum(2).astype(np.uint32).ravel()}))  # fmt: skip


def matrix_cases() -> None:
    rng = np.random.default_rng(110)
    words = rng.integers(0, 1 << 32, SIZE, dtype=np.uint32)
    # One warp at a time owns 512 bytes: 32 rows of 8 halves, each lane writes 16 bytes of them.
    whole, parts = ("m8n8", "b16", 0), (("m8n16", "b8x16.b6x16_p32", 6), ("m8n16", "b8x16.b4x16_p64", 4))
    forms = [(count, trans, *whole) for count in (1, 2, 4) for trans in ("", ".trans")]
    for count, trans, shape, type_, bits in [*forms, *((count, "", *each) for count in (1, 2, 4) for each in parts)]:
        form = f"{shape}.x{count}{trans}"
        names = ["%d", "%e", "%f", "%g"][:count]
        space = "shared::cta" if count == 2 else "shared"
        code = (
            ".reg .b32 %s, %row, %x;\nmov.u32 %s, smem;\nshr.u32 %x, %t, 5;\nmad.lo.s32 %s, %x, 512, %s;\n"
            "mad.lo.s32 %row, %lane, 16, %s;\nst.shared.v4.u32 [%row], {%a, %b, %c, %h};\nbar.warp.sync 0xffffffff;\n"
            # rows in another order than memory: lane l gives the address of row (5 l + 3) mod 32
            "mad.lo.s32 %x, %lane, 5, 3;\nand.b32 %x, %x, 31;\nmad.lo.s32 %row, %x, 16, %s;\n"
            f"ldmatrix.sync.aligned.{form}.{space}.{type_} {{{', '.join(names)}}}, [%row];\nbar.sync 0;"
        )
        inputs = {"a": words, "b": np.roll(words, 1), "c": np.roll(words, 2), "h": np.roll(words, 3)}
        rows = np.stack(list(inputs.values()), 1).view(np.uint16).reshape(-1, 32, 8)  # [warp, row, half]
        if bits:  # 16 numbers at the start of a row are a byte each
            ones = np.unpackbits(rows.view(np.uint8), axis=2, bitorder="little")[:, :, : 16 * bits]
            rows = np.packbits(ones.reshape(-1, 32, 16, bits), axis=3, bitorder="little").reshape(-1, 32, 16)
            rows = rows.view(np.uint16)
        order = (np.arange(32) * 5 + 3) % 32
        fragments = []
        for i in range(count):
            matrix = rows[:, order[8 * i : 8 * i + 8], :]
            matrix = matrix.transpose(0, 2, 1) if trans else matrix
            pair = matrix.reshape(-1, 32, 2).astype(np.uint32)  # lane l holds row l/4, columns 2(l%4) and the next
            fragments.append((pair[:, :, 0] | pair[:, :, 1] << 16).ravel())
        CASES.append(Case(f"ldmatrix.{form}.{type_}", code, inputs, dict(zip("defg", fragments, strict=False))))
    store_matrix_cases(words)
    for seed, form in enumerate(tensor_core.FORMS):
        registers = tensor_core.random_registers(form, SIZE // 32, seed)
        outputs = tensor_core.spread(tensor_core.fused_sums(form, registers))
        for name, in_place in (("", False), (" in place", True)):
            code = tensor_core.instruction(form, in_place)
            CASES.append(Case(f"mma.{form}{name}", code, registers, outputs))


def store_matrix_cases(words: Array) -> None:
    """stmatrix is the inverse of ldmatrix: a lane reads back the 16 bytes of its row."""
    inputs = {"a": words, "b": np.roll(words, 1), "c": np.roll(words, 2), "h": np.roll(words, 3)}
    halves = np.stack(list(inputs.values())).view(np.uint16).reshape(4, -1, 32, 2)  # [matrix, warp, lane, half]
    for count, trans in itertools.product((1, 2, 4), ("", ".trans")):
        names = ", ".join(f"%{x}" for x in "abch"[:count])
        space, address = [(".shared", "%s"), (".shared::cta", "%s"), ("", "%p")][count // 2]
        code = (
            ".reg .b32 %s, %x, %own;\n.reg .b64 %p;\nmov.u32 %s, smem;\nshr.u32 %x, %t, 5;\n"
            "mad.lo.s32 %s, %x, 512, %s;\nmad.lo.s32 %own, %lane, 16, %s;\n"
            "st.shared.v4.u32 [%own], {0, 0, 0, 0};\nbar.warp.sync -1;\n"
            "mad.lo.s32 %x, %lane, 5, 3;\nand.b32 %x, %x, 31;\nmad.lo.s32 %x, %x, 16, %s;\ncvt.u64.u32 %p, %x;\n"
            f"cvta.shared.u64 %p, %p;\nmov.u32 %s, %x;\nstmatrix.sync.aligned.x{count}{trans}.m8n8{space}.b16 "
            f"[{address}], {{{names}}};\nbar.warp.sync -1;\nld.shared.v4.u32 {{%d, %e, %f, %g}}, [%own];\nbar.sync 0;"
        )
        rows = np.zeros((SIZE // 32, 32, 8), np.uint16)
        for i in range(count):
            matrix = halves[i].reshape(-1, 8, 8)
            rows[:, (np.arange(8 * i, 8 * i + 8) * 5 + 3) % 32] = matrix.transpose(0, 2, 1) if trans else matrix
        out = rows.reshape(-1, 8).copy().view(np.uint32)
        CASES.append(
            Case(f"stmatrix.x{count}{trans}", code, inputs, {x: out[:, i].copy() for i, x in enumerate("defg")})
        )
    turned = halves[0].reshape(-1, 8, 8).transpose(0, 2, 1).copy().view(np.uint32).ravel()
    code = "movmatrix.sync.aligned.m8n8.trans.b16 %d, %a;\nmov.b32 %e, %a;"
    CASES.append(Case("movmatrix", code, {"a": words}, {"d": turned, "e": words}))


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
            CASES.append(Case(f"cp.async.{cache} {size}{fill}", code, {}, {"d": result[:, 0].copy(), "e": result[:,
                         1].copy(), "f": result[:, 3].copy()}))  # fmt: skip
    # a predicate that is true ignores the source, and a policy changes nothing
    for p, negated in (("%p", False), ("!%p", True)):
        code = (
            ".reg .b32 %s;\n.reg .b64 %q, %h;\n.reg .pred %p;\nmov.u32 %s, smem;\nmad.lo.s32 %s, %t, 4, %s;\n"
            "mad.wide.u32 %q, %i, 4, %in;\nsetp.lt.u32 %p, %lane, 9;\ncreatepolicy.fractional.L2::evict_first.b64 %h;\n"
            f"cp.async.ca.shared.global [%s], [%q], 4, {p};\ncp.async.wait_all;\nld.shared.u32 %d, [%s];\n"
            "cp.async.ca.shared.global.L2::cache_hint [%s], [%q], 4, 4, %h;\ncp.async.wait_all;\n"
            "ld.shared.u32 %e, [%s];\nbar.sync 0;"
        )
        ignored = (np.arange(SIZE) % 32 < 9) != negated
        want = {"d": np.where(ignored, 0, first).astype(np.uint32), "e": first}
        CASES.append(Case(f"cp.async with {p}", code, {}, want))
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
.reg .b32 %s, %x, %y; .reg .b64 %p, %state; .reg .pred %first, %done;
mov.u32 %s, smem; setp.eq.u32 %first, %t, 0; @%first mbarrier.init.shared.b64 [%s], 128;
bar.sync 0;
mad.lo.s32 %x, %t, 4, %s; mad.wide.u32 %p, %i, 4, %in; cp.async.ca.shared.global [%x+64], [%p], 4;
cp.async.mbarrier.arrive.noinc.shared.b64 [%s];
again:
mbarrier.test_wait.parity.shared.b64 %done, [%s], 0;
@!%done bra again;
xor.b32 %y, %t, 64; mad.lo.s32 %y, %y, 4, %s; ld.shared.u32 %d, [%y+64];
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
    sync = """
.reg .pred %p; .reg .b32 %v;
setp.lt.u32 %p, %a, 30; mov.u32 %v, 0;
@!%p bra join;
add.s32 %v, %a, 7;
join:
shfl.sync.bfly.b32 %d, %v, 1, 0x1f, 0xffffffff;
"""
    value = np.where(data < 30, data + 7, 0).astype(np.uint32)
    CASES.append(Case("shuffle after a divergent branch", sync, {"a": data}, {"d": value[np.arange(SIZE) ^ 1]}))
    named = """
.reg .b32 %s, %x; .reg .pred %p;
mov.u32 %s, smem; mad.lo.s32 %x, %t, 4, %s; st.shared.u32 [%x], %a; setp.lt.u32 %p, %t, 64;
@%p bar.sync 1, 64; @!%p bar.sync 2, 64; xor.b32 %x, %t, 32; mad.lo.s32 %x, %x, 4, %s;
ld.shared.u32 %d, [%x];
bar.sync 0;
"""
    CASES.append(Case("named barriers of half a CTA", named, {"a": data}, {"d": data[np.arange(SIZE) ^ 32]}))
    atoms = """
.reg .b32 %s, %x; .reg .pred %p;
mov.u32 %s, smem; setp.eq.u32 %p, %t, 0; mov.u32 %x, 0; @%p st.shared.u32 [%s], %x;
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
        CASES.append(Case(f"{arrive} and {sync}", code, {"a": data}, {"d": np.where(np.arange(SIZE) % 128 < 64,
                     np.roll(data, -64), data)}))  # fmt: skip
