"""Vectors of what sm_90 adds: bulk copies of one dimension, mbarriers that count bytes, elect."""

import numpy as np
from support.emulation import THREADS, Array, Case
from vectors.opcodes import CASES, SIZE, first_input

CTAS = SIZE // THREADS
SHARED_WORD = (
    ".reg .b32 %s, %n;\nmov.u32 %s, smem;\nmad.lo.s32 %n, %t, 4, %s;\n.reg .pred %first;\nsetp.eq.u32 %first, %t, 0;\n"
)
LOAD = (
    SHARED_WORD
    + """.reg .b64 %p, %policy;
.reg .pred %done;
mov.u64 %policy, 0; st.shared.u32 [%n], 0; @%first mbarrier.init.shared.b64 [%s+2048], 1;
@%first fence.mbarrier_init.release.cluster;
bar.sync 0;
@!%first bra wait;
mad.wide.u32 %p, %block, 512, %in; cp.async.bulk.prefetch.L2.global [%p], 16;
EXPECT
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytesHINT [%s+TO], [%p+FROM], BYTES, [%s+2048]POLICY;
wait:
mbarrier.try_wait.parity.shared.b64 %done, [%s+2048], 0;
@!%done bra wait;
ld.shared.u32 %d, [%n];
bar.sync 0;
@%first mbarrier.inval.shared.b64 [%s+2048];
bar.sync 0;"""
)
EXPECT = "mbarrier.arrive.expect_tx.shared.b64 _, [%s+2048], BYTES;"
EXPECT_APART = "mbarrier.expect_tx.relaxed.cta.shared.b64 [%s+2048], BYTES;\nmbarrier.arrive.shared.b64 _, [%s+2048];"
STORE = (
    SHARED_WORD
    + """.reg .b64 %g, %policy;
mov.u64 %policy, 0; mov.u64 %g, board; mad.wide.u32 %g, %block, 2048, %g;
.reg .b64 %own;
mad.wide.u32 %own, %t, 4, %g; st.global.u32 [%own], 0; st.shared.u32 [%n], %a;
PROXY
bar.sync 0;
@!%first bra stored;
cp.async.bulk.global.shared::cta.bulk_groupHINT [%g+TO], [%s+FROM], BYTESPOLICY;
cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0; cp.async.bulk.wait_group 0;
stored:
bar.sync 0;
ld.global.u32 %d, [%own];
bar.sync 0;"""
)
# (bytes, offset in the source, offset in the target): sizes that are no power of 2, a whole row, 16 bytes at the end
PIECES = [(16, 0, 0), (48, 16, 32), (272, 112, 64), (512, 0, 0), (16, 496, 496), (496, 16, 0)]


def filled(text: str, **parts: object) -> str:
    for name, part in parts.items():
        text = text.replace(name, str(part))
    return text


def moved(rows: Array, size: int, at: int, to: int) -> Array:
    """The piece at `at` of each row of 512 bytes, put at `to` among zeros."""
    out = np.zeros((CTAS, 512), np.uint8)
    out[:, to : to + size] = rows.view(np.uint8).reshape(CTAS, 512)[:, at : at + size]
    return out.view(np.uint32).reshape(-1)


def bulk_cases() -> None:
    data = np.random.default_rng(130).integers(0, 1 << 32, SIZE, dtype=np.uint32)
    source = first_input()
    for turn, (size, at, to) in enumerate(PIECES):
        hint = {"HINT": ".L2::cache_hint", "POLICY": ", %policy"} if turn % 2 else {"HINT": "", "POLICY": ""}
        parts = {"EXPECT": EXPECT_APART if turn % 3 else EXPECT} | hint | {"BYTES": size, "FROM": at, "TO": to}
        load = filled(LOAD, **parts)
        if turn % 2:
            load = load.replace("shared::cluster.global", "shared::cta.global")
        proxy = ("", ".shared::cta", ".shared::cluster")[turn % 3]
        store = filled(STORE, PROXY=f"fence.proxy.async{proxy};\nfence.proxy.async.global;", **parts)
        CASES.append(Case(f"cp.async.bulk to shared {size} at {to}", load, {}, {"d": moved(source, size, at, to)}))
        CASES.append(
            Case(f"cp.async.bulk to global {size} at {to}", store, {"a": data}, {"d": moved(data, size, at, to)})
        )


# Each thread has an mbarrier of its own, which expects %a bytes and gets %b: is the phase complete after each step?
BYTES = """.reg .b32 %s, %one;
.reg .pred %done; .reg .b64 %state;
mov.u32 %s, smem; mad.lo.s32 %s, %t, 8, %s;
mbarrier.init.shared::cta.b64 [%s], 1;
bar.warp.sync -1;
ARRIVE
mbarrier.test_wait.shared.b64 %done, [%s], %state;
selp.u32 %d, 1, 0, %done;
mbarrier.complete_tx.relaxed.SCOPE.shared.b64 [%s], %b;
mbarrier.test_wait.ORDERSCOPE.shared.b64 %done, [%s], %state;
selp.u32 %one, 2, 0, %done; or.b32 %d, %d, %one; sub.s32 %one, %a, %b;
mbarrier.complete_tx.relaxed.SCOPE.shared::cta.b64 [%s], %one;
mbarrier.test_wait.parity.ORDERSCOPE.shared.b64 %done, [%s], 0;
selp.u32 %one, 4, 0, %done; or.b32 %d, %d, %one;
mbarrier.inval.shared.b64 [%s];
bar.sync 0;"""
ARRIVALS = (
    "mbarrier.arrive.expect_tx.shared.b64 %state, [%s], %a;",
    "mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 %state, [%s], %a;",
    "mbarrier.arrive.expect_tx.release.cluster.shared::cta.b64 %state, [%s], %a;",
    "mbarrier.expect_tx.relaxed.cluster.shared.b64 [%s], %a;\nmbarrier.arrive.release.cluster.shared.b64 %state, [%s];",
    "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%s], %a;\nmbarrier.arrive.shared.b64 %state, [%s], 1;",
)


def transaction_cases() -> None:
    rng = np.random.default_rng(131)
    expected = rng.integers(0, 1 << 10, SIZE, dtype=np.uint32) * 16
    part = np.minimum(expected, rng.integers(0, 1 << 10, SIZE, dtype=np.uint32) * 16)
    part[::3], expected[::7] = expected[::3], 0
    part[::7] = 0
    want = (expected == 0).astype(np.uint32) | 2 * (part == expected).astype(np.uint32) | 4
    for i, arrive in enumerate(ARRIVALS):
        code = filled(
            BYTES, ARRIVE=arrive, ORDER="relaxed." if i % 2 else "acquire.", SCOPE="cluster" if i > 2 else "cta"
        )
        CASES.append(Case(f"mbarrier transactions {i}", code, {"a": expected, "b": part}, {"d": want}))


# Each thread has an mbarrier of 7 arrivals: %a come first, then %b, then the rest; a drop counts in both phases.
DROP = """.reg .b32 %s, %rest, %one;
.reg .pred %done; .reg .b64 %state;
mov.u32 %s, smem; mad.lo.s32 %s, %t, 8, %s;
mbarrier.init.shared::cta.b64 [%s], 7;
bar.warp.sync -1;
mbarrier.arriveNO.release.cta.shared.b64 %state, [%s], %a;
mbarrier.pending_count.b64 %d, %state;
mbarrier.arrive_dropNO.ORDER.SCOPE.shared::cta.b64 %state, [%s], %b;
mbarrier.pending_count.b64 %e, %state;
sub.s32 %rest, 7, %a; sub.s32 %rest, %rest, %b;
mbarrier.arrive.ORDER.SCOPE.shared.b64 _, [%s], %rest;
mbarrier.test_wait.parity.shared.b64 %done, [%s], 0;
selp.u32 %f, 1, 0, %done;
mbarrier.arrive_drop.expect_tx.ORDER.SCOPE.shared.b64 _, [%s], 16;
sub.s32 %rest, 6, %b;
mbarrier.arrive.expect_tx.ORDER.SCOPE.shared::cta.b64 %state, [%s], 0;
mbarrier.pending_count.b64 %g, %state;
mbarrier.complete_tx.shared.b64 [%s], 16;
sub.s32 %rest, %rest, 1;
mbarrier.test_wait.parity.shared.b64 %done, [%s], 1;
selp.u32 %one, 2, 0, %done; or.b32 %f, %f, %one;
mbarrier.arrive.shared.b64 _, [%s], %rest;
mbarrier.test_wait.parity.shared.b64 %done, [%s], 1;
selp.u32 %one, 4, 0, %done; or.b32 %f, %f, %one;
mbarrier.inval.shared.b64 [%s];
bar.sync 0;"""


def drop_cases() -> None:
    a = (np.arange(SIZE) % 3 + 1).astype(np.uint32)
    b = (np.arange(SIZE) // 3 % 3 + 1).astype(np.uint32)
    orders = (("release", "cta"), ("relaxed", "cluster"), ("release", "cluster"), ("relaxed", "cta"))
    for no in ("", ".noComplete"):
        for order, scope in orders[: 1 if no else 4]:
            CASES.append(Case(f"mbarrier.arrive_drop{no}.{order}.{scope}", filled(DROP, NO=no, ORDER=order,
                         SCOPE=scope), {"a": a, "b": b}, {"d": np.full(SIZE, 7, np.uint32), "e": 7 - a,
                         "f": np.full(SIZE, 5, np.uint32), "g": 6 - b}))  # fmt: skip


ELECT = """.reg .b32 %bit;
.reg .pred %in, %leads;
mov.u32 %d, 99; mov.u32 %e, 99; shr.u32 %bit, %a, %lane; and.b32 %bit, %bit, 1;
setp.eq.u32 %in, %bit, 1;
@!%in bra apart;
elect.sync TO|%leads, %a; selp.u32 %e, 1, 0, %leads;
apart:"""


def elect_cases() -> None:
    masks = np.random.default_rng(132).integers(1, 1 << 32, SIZE // 32, dtype=np.uint32)
    masks[:3] = 0xFFFFFFFF, 0x80000000, 0x00010000
    mask, lane = masks.repeat(32), np.arange(SIZE, dtype=np.uint32) % 32
    leader = np.array([int(m & -int(m)).bit_length() - 1 for m in masks.astype(np.int64)], np.uint32).repeat(32)
    taking = mask >> lane & 1 == 1
    leads = np.where(taking, lane == leader, 99).astype(np.uint32)
    CASES.append(Case("elect.sync", ELECT.replace("TO", "%d"), {"a": mask}, {"d": np.where(taking, leader,
                 99).astype(np.uint32), "e": leads}))  # fmt: skip
    CASES.append(Case("elect.sync without a lane", ELECT.replace("TO", "_"), {"a": mask}, {"d": np.full(SIZE, 99,
                 np.uint32), "e": leads}))  # fmt: skip


def parameter_cases() -> None:
    """The address of a parameter as a generic one."""
    code = (
        ".reg .b64 %p, %v, %w;\n.reg .pred %same;\nmov.u64 %p, out;\ncvta.param.u64 %p, %p;\nld.u64 %v, [%p];\n"
        "ld.param.u64 %w, [out];\nsetp.eq.u64 %same, %v, %w;\nselp.u32 %d, %a, 0, %same;\n"
        "griddepcontrol.wait;\ngriddepcontrol.launch_dependents;"
    )
    data = np.arange(1, SIZE + 1, dtype=np.uint32)
    CASES.append(Case("cvta.param.u64", code, {"a": data}, {"d": data}))
    CASES.append(
        Case("cvta.param::entry.u64", code.replace("cvta.param", "cvta.param::entry"), {"a": data}, {"d": data})
    )
    code = (
        ".reg .b64 %p;\n.reg .b32 %s;\nmov.u64 %p, smem;\ncvta.shared::cta.u64 %p, %p;\n"
        ".reg .b64 %own;\nmul.wide.u32 %own, %t, 4;\nadd.s64 %p, %p, %own;\nst.u32 [%p], %a;\nmov.u32 %s, smem;\n"
        "mad.lo.s32 %s, %t, 4, %s;\nld.shared.u32 %d, [%s];\nbar.sync 0;"
    )
    CASES.append(Case("cvta.shared::cta.u64", code, {"a": data}, {"d": data}))


def hopper_cases() -> None:
    bulk_cases()
    transaction_cases()
    drop_cases()
    elect_cases()
    parameter_cases()
