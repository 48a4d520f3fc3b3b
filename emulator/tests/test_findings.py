"""Every class of finding: a small PTX that has the defect, and a twin that is just legal and must stay silent."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.cluster_defects import CLUSTERS
from support.defects import FILES, MBARRIER, SHARED, Defect, check_reported, check_silent
from support.emulation import entry, ptxrun
from support.hopper_defects import HOPPER
from support.order_defects import ORDERS
from support.versions import Launch

POINTER = ".param .u64 data"

START = """.reg .b32 %s, %x, %y, %t;
.reg .b64 %p;
.reg .pred %q;
.loc 1 10 0
mov.u32 %t, %tid.x;
mov.u32 %s, smem;
mad.lo.s32 %s, %t, 4, %s;
"""
LOAD_POINTER = "ld.param.u64 %p, [data];\n"
# What HERE gives in %y is the result.
KEEP = START + LOAD_POINTER + "HERE\n.loc 1 14 0\nmad.wide.u32 %p, %t, 4, %p;\nst.global.u32 [%p], %y;"
ASYNC = START + LOAD_POINTER + "mad.wide.u32 %p, %t, 4, %p;\n.loc 1 20 0\ncp.async.ca.shared.global [%s], [%p], 4;\n"
# Warp 1 reads 32 words and one of its lanes says so at an mbarrier, at which warp 0 waits before it writes them.
HANDED_OVER = (
    MBARRIER
    + """.reg .b32 %a, %x;
.reg .pred %writes;
@%q mbarrier.init.shared.b64 [%s], 1;
and.b32 %a, %t, 31;
mad.lo.s32 %a, %a, 4, %s;
setp.lt.u32 %writes, %t, 32;
@%writes st.shared.u32 [%a+64], 0;
bar.sync 0;
@%writes bra wait;
.loc 1 11 0
ld.shared.u32 %x, [%a+64];
SYNC
setp.eq.u32 %q, %t, 32;
@%q mbarrier.arrive.shared.b64 %state, [%s];
bra.uni end;
wait:
mbarrier.try_wait.parity.shared.b64 %done, [%s], 0;
@!%done bra wait;
.loc 1 13 0
st.shared.u32 [%a+64], 1;
end:"""
)
# All lanes of a warp read one word and arrive at an mbarrier; lane 0 waits for ARRIVALS of them and writes the word.
READ_TOGETHER = (
    MBARRIER
    + """.reg .b32 %x;
.reg .pred %last;
@%q mbarrier.init.shared.b64 [%s], ARRIVALS;
@%q st.shared.u32 [%s+64], 0;
bar.sync 0;
.loc 1 11 0
ld.shared.u32 %x, [%s+64];
setp.lt.u32 %last, %t, ARRIVALS;
@%last mbarrier.arrive.shared.b64 %state, [%s];
wait:
mbarrier.try_wait.parity.shared.b64 %done, [%s], 0;
@!%done bra wait;
.loc 1 13 0
@%q st.shared.u32 [%s+64], 1;"""
)

# Thread 32 arrives at an mbarrier and stores a word, before or after; warp 0 waits there and reads the word.
TOLD = (
    MBARRIER
    + """.reg .b32 %x;
@%q mbarrier.init.shared.b64 [%s], 1;
@%q st.shared.u32 [%s+64], 0;
bar.sync 0;
setp.lt.u32 %q, %t, 32;
@%q bra wait;
setp.eq.u32 %q, %t, 32;
BEFORE
@%q mbarrier.arrive.shared.b64 %state, [%s];
AFTER
bra.uni end;
wait:
mbarrier.try_wait.parity.shared.b64 %done, [%s], 0;
@!%done bra wait;
.loc 1 13 0
ld.shared.u32 %x, [%s+64];
end:"""
)
STORE = ".loc 1 11 0\n@%q st.shared.u32 [%s+64], 1;"

# Warp 1 writes words and sets a flag, on which warp 0 waits before it reads them.
FLAGGED = (
    START
    + """setp.eq.u32 %q, %t, 0;
@%q st.shared.u32 [smem+512], 0;
bar.sync 0;
setp.lt.u32 %q, %t, 32;
@%q bra wait;
.loc 1 11 0
st.shared.u32 [%s], %t;
bar.warp.sync -1;
setp.eq.u32 %q, %t, 32;
@%q SET [smem+512], 1;
bra.uni end;
wait:
ld.acquire.cta.shared.u32 %x, [smem+512];
setp.eq.u32 %q, %x, 0;
@%q bra wait;
.loc 1 13 0
ld.shared.u32 %y, [%s+128];
end:"""
)
CTA_FENCE = "fence.acq_rel.cta;\n"


def relaxed_wait(fence: str) -> str:
    text = TOLD.replace("BEFORE", STORE).replace("AFTER", "").replace(".loc 1 13 0", f"{fence}.loc 1 13 0")
    return text.replace("try_wait.parity.shared", "try_wait.parity.relaxed.cta.shared::cta")


def relaxed_arrival(fence: str) -> str:
    text = TOLD.replace("BEFORE", f"{STORE}\n{fence}").replace("AFTER", "")
    return text.replace("arrive.shared", "arrive.relaxed.cta.shared::cta")


def relaxed(set_: str, look: str, tell: str = "", hear: str = "") -> str:
    """FLAGGED with these orders of the store and the load of the flag, and with fences."""
    text = FLAGGED.replace("@%q SET", f"{tell}@%q st.{set_}.cta.shared.u32")
    return text.replace("ld.acquire.cta", f"ld.{look}.cta").replace(".loc 1 13 0", f"{hear}.loc 1 13 0")


# A thread of each warp takes a lock, adds to a word and gives the lock back.
LOCKED = (
    START
    + """setp.eq.u32 %q, %t, 0;
@%q st.shared.v2.u32 [smem+512], {0, 0};
bar.sync 0;
and.b32 %x, %t, 31;
setp.ne.u32 %q, %x, 0;
@%q bra end;
take:
atom.acquire.cta.shared.cas.b32 %x, [smem+512], 0, 1;
setp.ne.u32 %q, %x, 0;
@%q bra take;
.loc 1 11 0
ld.shared.u32 %y, [smem+516];
add.u32 %y, %y, 1;
st.shared.u32 [smem+516], %y;
GIVE %x, [smem+512], 0;
end:"""
)

# The same by addresses that may be of any memory, as compilers write them, and by accesses without an order and fences.
ANYWHERE = FLAGGED.replace("@%q SET [smem+512], 1;", "@%q st.STORE.u32 [%p+512], 1;").replace(
    "ld.acquire.cta.shared.u32 %x, [smem+512];", "ld.LOAD.u32 %x, [%p+512];"
)
ANYWHERE = ANYWHERE.replace(START, START + "mov.u64 %p, smem;\ncvta.shared.u64 %p, %p;\n")
FENCED = FLAGGED.replace("@%q SET", "FENCE\n@%q st.volatile.shared.u32").replace(
    "ld.acquire.cta.shared.u32 %x, [smem+512];", "ld.volatile.shared.u32 %x, [smem+512];"
)
FENCED = FENCED.replace("@%q bra wait;\n.loc 1 13 0", "@%q bra wait;\nFENCE\n.loc 1 13 0")
PLAIN_LOCK = LOCKED.replace("atom.acquire.cta", "atom").replace("GIVE", "FENCE\natom.shared.exch.b32")
PLAIN_LOCK = PLAIN_LOCK.replace("@%q bra take;\n", "@%q bra take;\nFENCE\n")

THREE_LANES = (
    START
    + """mov.u32 %s, smem;
setp.eq.u32 %q, %t, 0;
@%q st.shared.u32 [%s], 0;
bar.warp.sync -1;
.loc 1 11 0
@%q ld.shared.u32 %y, [%s];
SYNC
setp.eq.u32 %q, %t, 1;
.loc 1 13 0
@%q st.shared.u32 [%s], 1;
SYNC
setp.eq.u32 %q, %t, 2;
.loc 1 15 0
@%q ld.shared.u32 %y, [%s];"""
)
# Lane i names row i % 8 of a matrix, and a row lies behind the other.
ROWS = (
    START
    + """mad.lo.s32 %s, %t, 12, %s;
st.shared.v4.u32 [%s], {0, 0, 0, 0};
st.shared.v4.u32 [%s+512], {0, 0, 0, 0};
and.b32 %x, %t, 7;
shl.b32 %x, %x, 4;
mov.u32 %s, smem;
add.u32 %s, %s, %x;
bar.warp.sync -1;
.loc 1 12 0
ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%y}, ROW;"""
)

# Each lane stores a word, and reads that of the lane OTHER away: SYNC lies between.
BY_HALVES = (
    START
    + """.reg .b32 %o, %m;
.reg .pred %low;
mov.u32 %o, smem;
xor.b32 %m, %t, OTHER;
mad.lo.s32 %o, %m, 4, %o;
setp.lt.u32 %low, %t, 16;
selp.b32 %m, 0xffff, 0xffff0000, %low;
.loc 1 11 0
st.shared.u32 [%s], %t;
SYNC
.loc 1 12 0
ld.shared.u32 %x, [%o];"""
)
ITS_HALF = "bar.warp.sync %m;"
APART = "@%low bra.uni low;\nbar.warp.sync 0xffff0000;\nbra.uni on;\nlow:\nbar.warp.sync 0xffff;\non:"


def by_halves(other: int, sync: str) -> str:
    return BY_HALVES.replace("OTHER", str(other)).replace("SYNC", sync)


# All threads wait for a phase, and thread 32 ends the mbarrier.
ENDED = """@%q mbarrier.init.shared.b64 [%s], 64;
bar.sync 0;
mbarrier.arrive.shared.b64 %state, [%s];
wait:
.loc 1 12 0
mbarrier.test_wait.shared.b64 %done, [%s], %state;
@!%done bra wait;
MEET
setp.eq.u32 %q, %t, 32;
.loc 1 13 0
@%q mbarrier.inval.shared.b64 [%s];
"""

DEFECTS = [
    Defect(
        "race",
        "a store and a load of another warp",
        START + "st.shared.u32 [%s], 0;\nbar.sync 0;\n.loc 1 11 0\nst.shared.u32 [%s], %t;\nxor.b32 %x, %s, 128;\n"
        ".loc 1 13 0\nld.shared.u32 %y, [%x];",
        START + ".loc 1 11 0\nst.shared.u32 [%s], %t;\nbar.sync 0;\nxor.b32 %x, %s, 128;\n.loc 1 13 0\n"
        "ld.shared.u32 %y, [%x];",
        ["lesson.cu:11", "lesson.cu:13", "CTA (0, 0, 0)", "warp 0", "warp 1", "lane"],
    ),
    Defect(
        "race",
        "lanes that the mask of a __syncwarp leaves out",
        by_halves(16, ITS_HALF),
        by_halves(15, ITS_HALF),
        ["in shared memory", "lesson.cu:11", "lesson.cu:12", "__syncwarp"],
        block=32,
    ),
    Defect(
        "race",
        "a __syncwarp of each half, at two places",
        by_halves(16, APART),
        by_halves(16, APART + "\nbar.warp.sync -1;"),
        ["in shared memory", "lesson.cu:11", "lesson.cu:12"],
        block=32,
    ),
    Defect(
        "race",
        "lanes outside of a __syncwarp write what those in it have read",
        by_halves(15, ITS_HALF + "\n.loc 1 13 0\n@%low st.shared.u32 [%s+64], 0;").replace(
            "ld.shared.u32", "@!%low ld.shared.u32"
        ),
        by_halves(15, "bar.warp.sync -1;\n.loc 1 13 0\n@%low st.shared.u32 [%s+64], 0;\nbar.warp.sync -1;").replace(
            "ld.shared.u32", "@!%low ld.shared.u32"
        ),
        ["in shared memory", "lesson.cu:11", "lesson.cu:13"],
        block=32,
    ),
    Defect(
        "race",
        "a store and a load of another lane of the warp",
        START + ".loc 1 11 0\nst.shared.u32 [%s], %t;\nxor.b32 %x, %s, 4;\n.loc 1 13 0\nld.shared.u32 %y, [%x];",
        START + ".loc 1 11 0\nst.shared.u32 [%s], %t;\nbar.warp.sync -1;\nxor.b32 %x, %s, 4;\n.loc 1 13 0\n"
        "ld.shared.u32 %y, [%x];",
        ["lesson.cu:11", "lesson.cu:13", "warp 0"],
        block=32,
    ),
    Defect(
        "race",
        "a store and a load of another lane behind a barrier of the warp",
        START + "st.shared.u32 [%s], 0;\nbar.warp.sync -1;\n.loc 1 11 0\nst.shared.u32 [%s], %t;\nxor.b32 %x, %s, 4;\n"
        ".loc 1 13 0\nld.shared.u32 %y, [%x];",
        START + "st.shared.u32 [%s], 0;\nbar.warp.sync -1;\n.loc 1 11 0\nst.shared.u32 [%s], %t;\nbar.warp.sync -1;\n"
        "xor.b32 %x, %s, 4;\n.loc 1 13 0\nld.shared.u32 %y, [%x];",
        ["lesson.cu:11", "lesson.cu:13", "warp 0"],
        block=32,
    ),
    Defect(
        "race",
        "a load of another lane and a store: a thread may load and store its own",
        START + "st.shared.u32 [%s], %t;\nbar.sync 0;\nxor.b32 %x, %s, 4;\n.loc 1 11 0\nld.shared.u32 %y, [%x];\n"
        ".loc 1 13 0\nst.shared.u32 [%s], %y;",
        START + "st.shared.u32 [%s], %t;\nbar.sync 0;\n.loc 1 11 0\nld.shared.u32 %y, [%s];\n.loc 1 13 0\n"
        "st.shared.u32 [%s], %y;",
        ["lesson.cu:11", "lesson.cu:13"],
    ),
    Defect(
        "race",
        "two stores of different values",
        START + "mov.u32 %x, smem;\n.loc 1 11 0\nst.shared.u32 [%x], %t;",
        START + "mov.u32 %x, smem;\nsetp.eq.u32 %q, %t, 0;\n.loc 1 11 0\n@%q st.shared.u32 [%x], %t;",
        ["lesson.cu:11"],
    ),
    Defect(
        "race",
        "two warps that load different values into one table",
        START + "and.b32 %x, %t, 31;\nshl.b32 %y, %x, 2;\nmov.u32 %s, smem;\nadd.s32 %s, %s, %y;\n.loc 1 11 0\n"
        "st.shared.u32 [%s], %t;",
        START + "and.b32 %x, %t, 31;\nshl.b32 %y, %x, 2;\nmov.u32 %s, smem;\nadd.s32 %s, %s, %y;\n.loc 1 11 0\n"
        "st.shared.u32 [%s], %x;",
        ["lesson.cu:11", "warp 0", "warp 1"],
    ),
    Defect(
        "race",
        "a flag that an ordinary store sets",
        FLAGGED.replace("SET", "st.volatile.shared.u32"),
        FLAGGED.replace("SET", "st.release.cta.shared.u32"),
        ["lesson.cu:11", "lesson.cu:13"],
    ),
    Defect(
        "race",
        "a flag that an ordinary store sets, at a generic address",
        ANYWHERE.replace("STORE", "volatile").replace("LOAD", "volatile"),
        ANYWHERE.replace("STORE", "release.cta").replace("LOAD", "acquire.cta"),
        ["lesson.cu:11", "lesson.cu:13"],
    ),
    *(
        Defect(
            "race",
            f"a relaxed flag {what}",
            relaxed(*bad),
            relaxed(*good),
            ["lesson.cu:11", "lesson.cu:13"],
        )
        for what, bad, good in (
            ("in a program without fences", ("relaxed", "relaxed"), ("release", "acquire")),
            ("that is acquired without a fence", ("release", "relaxed"), ("release", "relaxed", "", CTA_FENCE)),
            ("that is released without a fence", ("relaxed", "acquire"), ("relaxed", "acquire", CTA_FENCE)),
            ("with a fence on one side", ("relaxed", "relaxed", CTA_FENCE), ("relaxed",) * 2 + (CTA_FENCE,) * 2),
            ("with a fence on the other", ("relaxed", "relaxed", "", CTA_FENCE), ("relaxed",) * 2 + (CTA_FENCE,) * 2),
        )
    ),
    Defect(
        "race",
        "a relaxed wait at an mbarrier, without a fence",
        relaxed_wait(""),
        relaxed_wait(CTA_FENCE),
        ["lesson.cu:11", "lesson.cu:13"],
    ),
    Defect(
        "race",
        "a relaxed arrival at an mbarrier, without a fence",
        relaxed_arrival(""),
        relaxed_arrival(CTA_FENCE),
        ["lesson.cu:11", "lesson.cu:13"],
    ),
    Defect(
        "race",
        "a volatile flag without fences",
        FENCED.replace("FENCE", ""),
        FENCED.replace("FENCE", "membar.cta;"),
        ["lesson.cu:11", "lesson.cu:13"],
    ),
    Defect(
        "race",
        "a lock without fences",
        PLAIN_LOCK.replace("FENCE", ""),
        PLAIN_LOCK.replace("FENCE", "fence.acq_rel.cta;"),
        ["lesson.cu:11", "warp 1"],
    ),
    Defect(
        "race",
        "a lock that is given back without .release",
        LOCKED.replace("GIVE", "atom.shared.exch.b32"),
        LOCKED.replace("GIVE", "atom.release.cta.shared.exch.b32"),
        ["lesson.cu:11", "warp 1"],
    ),
    Defect(
        "race",
        "a load and a later store without a barrier between",
        START + "st.shared.u32 [%s], %t;\nbar.sync 0;\nxor.b32 %x, %s, 128;\nld.shared.u32 %y, [%x];\n"
        "st.shared.u32 [%s], %y;",
        START + "st.shared.u32 [%s], %t;\nbar.sync 0;\nxor.b32 %x, %s, 128;\nld.shared.u32 %y, [%x];\nbar.sync 0;\n"
        "st.shared.u32 [%s], %y;",
    ),
    Defect(
        "race",
        "a store and an atomic",
        START
        + "mov.u32 %x, smem;\nsetp.eq.u32 %q, %t, 0;\n@%q st.shared.u32 [%x], 0;\natom.shared.add.u32 %y, [%x], 1;",
        START + "mov.u32 %x, smem;\nsetp.eq.u32 %q, %t, 0;\n@%q st.shared.u32 [%x], 0;\nbar.sync 0;\n"
        "atom.shared.add.u32 %y, [%x], 1;",
    ),
    Defect(
        "race",
        "a lane that tells of its own reads alone",
        HANDED_OVER.replace("SYNC", ""),
        HANDED_OVER.replace("SYNC", "bar.warp.sync 0xffffffff;"),
        ["lesson.cu:11", "lesson.cu:13", "warp 0", "warp 1"],
    ),
    Defect(
        "race",
        "a lane that reads with its warp and does not arrive",
        READ_TOGETHER.replace("ARRIVALS", "31"),
        READ_TOGETHER.replace("ARRIVALS", "32"),
        ["lesson.cu:11", "lesson.cu:13", "lane 31"],
        block=32,
    ),
    Defect(
        "race",
        "a store and a load of another lane behind a barrier of some warps",
        START + "st.shared.u32 [%s], 0;\nbar.sync 1, 64;\n.loc 1 11 0\nst.shared.u32 [%s], %t;\nxor.b32 %x, %s, 4;\n"
        ".loc 1 13 0\nld.shared.u32 %y, [%x];",
        START + "st.shared.u32 [%s], 0;\nbar.sync 1, 64;\n.loc 1 11 0\nst.shared.u32 [%s], %t;\nbar.warp.sync -1;\n"
        "xor.b32 %x, %s, 4;\n.loc 1 13 0\nld.shared.u32 %y, [%x];",
        ["lesson.cu:11", "lesson.cu:13"],
    ),
    Defect(
        "race",
        "lanes that read, write and read one word",
        THREE_LANES.replace("SYNC", ""),
        THREE_LANES.replace("SYNC", "bar.warp.sync -1;"),
        ["lesson.cu:11", "lesson.cu:13", "lesson.cu:15"],
        block=32,
    ),
    Defect(
        "race",
        "a store after the arrival that tells of it",
        TOLD.replace("BEFORE", "").replace("AFTER", STORE),
        TOLD.replace("BEFORE", STORE).replace("AFTER", ""),
        ["lesson.cu:11", "lesson.cu:13"],
    ),
    Defect(
        "async-in-flight",
        "a copy that nothing waits for",
        ASYNC + "cp.async.commit_group;\n.loc 1 22 0\nld.shared.u32 %y, [%s];",
        ASYNC + "cp.async.commit_group;\ncp.async.wait_group 0;\n.loc 1 22 0\nld.shared.u32 %y, [%s];",
        ["lesson.cu:20", "lesson.cu:22", "cp.async", "lane"],
        params=POINTER,
        args=["buf:u32:64:ramp"],
    ),
    Defect(
        "async-in-flight",
        "a copy outside of the group that is waited for",
        ASYNC + "cp.async.wait_group 0;\n.loc 1 22 0\nld.shared.u32 %y, [%s];",
        ASYNC + "cp.async.wait_all;\n.loc 1 22 0\nld.shared.u32 %y, [%s];",
        ["lesson.cu:20", "lesson.cu:22"],
        params=POINTER,
        args=["buf:u32:64:ramp"],
    ),
    Defect(
        "async-in-flight",
        "the newest of two groups",
        ASYNC
        + "cp.async.commit_group;\n.loc 1 21 0\ncp.async.ca.shared.global [%s+512], [%p], 4;\ncp.async.commit_group;\n"
        "cp.async.wait_group 1;\n.loc 1 22 0\nld.shared.u32 %y, [%s+512];",
        ASYNC
        + "cp.async.commit_group;\n.loc 1 21 0\ncp.async.ca.shared.global [%s+512], [%p], 4;\ncp.async.commit_group;\n"
        "cp.async.wait_group 1;\n.loc 1 22 0\nld.shared.u32 %y, [%s];\ncp.async.wait_group 0;",
        ["lesson.cu:21", "lesson.cu:22"],
        params=POINTER,
        args=["buf:u32:64:ramp"],
    ),
    Defect(
        "uninitialised-shared",
        "a load before any store of all lanes but lane 0",
        KEEP.replace("HERE", "mov.u32 %y, 0;\nsetp.ne.u32 %q, %t, 0;\n@%q ld.shared.u32 %y, [%s];"),
        KEEP.replace(
            "HERE", "st.shared.u32 [%s], %t;\nmov.u32 %y, 0;\nsetp.ne.u32 %q, %t, 0;\n@%q ld.shared.u32 %y, [%s];"
        ),
        ["lesson.cu:14", "lane 1"],
        params=POINTER,
        args=["buf:u32:64:ramp"],
    ),
    Defect(
        "uninitialised-shared",
        "a load before any store",
        KEEP.replace("HERE", ".loc 1 12 0\nld.shared.u32 %y, [%s];"),
        KEEP.replace("HERE", "st.shared.u32 [%s], %t;\n.loc 1 12 0\nld.shared.u32 %y, [%s];"),
        ["lesson.cu:12", "lesson.cu:14", "lane 0"],
        params=POINTER,
        args=["buf:u32:64"],
    ),
    Defect(
        "uninitialised-shared",
        "half of a load was stored",
        KEEP.replace(
            "HERE",
            "mad.lo.s32 %s, %t, 4, %s;\nst.shared.u32 [%s], %t;\n.loc 1 12 0\nld.shared.v2.u32 {%x, %y}, [%s];",
        ),
        KEEP.replace(
            "HERE",
            "mad.lo.s32 %s, %t, 4, %s;\nst.shared.u32 [%s], %t;\n.loc 1 12 0\nld.shared.v2.u32 {%y, %x}, [%s];",
        ),
        ["lesson.cu:12"],
        params=POINTER,
        args=["buf:u32:64"],
    ),
    Defect(
        "uninitialised-register",
        "a register that only some lanes set",
        START + LOAD_POINTER + "setp.lt.u32 %q, %t, 5;\n@%q mov.u32 %x, 1;\nadd.u32 %y, %x, 1;\n"
        "mad.wide.u32 %p, %t, 4, %p;\n.loc 1 12 0\nst.global.u32 [%p], %y;",
        START
        + LOAD_POINTER
        + "setp.lt.u32 %q, %t, 5;\nmov.u32 %x, 0;\n@%q mov.u32 %x, 1;\n.loc 1 12 0\nadd.u32 %y, %x, 1;\n"
        "mad.wide.u32 %p, %t, 4, %p;\nst.global.u32 [%p], %y;",
        ["lesson.cu:12", "%x"],
        params=POINTER,
        args=["buf:u32:64"],
    ),
    Defect(
        "out-of-bounds",
        "a load past a buffer",
        START + LOAD_POINTER + "mad.wide.u32 %p, %t, 4, %p;\n.loc 1 12 0\nld.global.u32 %y, [%p+4];",
        START + LOAD_POINTER + "mad.wide.u32 %p, %t, 4, %p;\n.loc 1 12 0\nld.global.u32 %y, [%p];",
        ["lesson.cu:12", "warp 1", "lane 31", "argument 0"],
        params=POINTER,
        args=["buf:u32:64"],
    ),
    Defect(
        "out-of-bounds",
        "a load before a buffer",
        START + LOAD_POINTER + "ld.global.u32 %y, [%p+-4];",
        START + LOAD_POINTER + "ld.global.u32 %y, [%p+0];",
        params=POINTER,
        args=["buf:u32:64"],
    ),
    Defect(
        "out-of-bounds",
        "shared memory that is smaller",
        START + "add.u32 %s, %s, 772;\n.loc 1 12 0\nst.shared.u32 [%s], %t;",
        START + "add.u32 %s, %s, 768;\n.loc 1 12 0\nst.shared.u32 [%s], %t;",
        ["lesson.cu:12", "lane 31"],
    ),
    Defect(
        "misaligned",
        "a vector store at half of its size",
        START + "add.u32 %s, %s, %t;\nmad.lo.s32 %s, %t, 3, %s;\n.loc 1 12 0\nst.shared.v2.u32 [%s+4], {%t, %t};",
        START + "add.u32 %s, %s, %t;\nmad.lo.s32 %s, %t, 3, %s;\n.loc 1 12 0\nst.shared.v2.u32 [%s+8], {%t, %t};",
        ["lesson.cu:12", "8"],
    ),
    Defect(
        "misaligned",
        "a row of ldmatrix at half of 16 bytes",
        ROWS.replace("ROW", "[%s+8]"),
        ROWS.replace("ROW", "[%s+16]"),
        ["lesson.cu:12", "lane 0"],
        block=32,
    ),
    Defect(
        "out-of-bounds",
        "a row of ldmatrix behind shared memory",
        ROWS.replace("ROW", "[%s+912]"),
        ROWS.replace("ROW", "[%s+896]"),
        ["lesson.cu:12", "lane 7"],
        block=32,
    ),
    Defect(
        "misaligned",
        "a global load",
        START + LOAD_POINTER + "ld.global.u32 %y, [%p+2];",
        START + LOAD_POINTER + "ld.global.u16 %y, [%p+2];",
        params=POINTER,
        args=["buf:u32:64"],
    ),
    Defect(
        "barrier-misuse",
        "a count that is no multiple of the warp",
        START + "mov.u32 %x, 33;\n.loc 1 12 0\nbar.sync 1, %x;",
        START + "mov.u32 %x, 64;\n.loc 1 12 0\nbar.sync 1, %x;",
        ["lesson.cu:12", "33"],
        status=3,
    ),
    Defect(
        "barrier-misuse",
        "a barrier that does not exist",
        START + ".loc 1 12 0\nbar.sync 16;",
        START + ".loc 1 12 0\nbar.sync 15;",
        ["lesson.cu:12", "16"],
        status=3,
    ),
    Defect(
        "barrier-misuse",
        "an mbarrier that was not initialised",
        MBARRIER + "@%q st.shared.u64 [%s], 0;\nbar.sync 0;\nmbarrier.arrive.shared.b64 %state, [%s];",
        MBARRIER + "@%q mbarrier.init.shared.b64 [%s], 64;\nbar.sync 0;\nmbarrier.arrive.shared.b64 %state, [%s];",
    ),
    Defect(
        "barrier-misuse",
        "a wait at an mbarrier that was not initialised",
        MBARRIER + "@%q st.shared.u64 [%s], 0;\nbar.sync 0;\nwait:\n"
        "mbarrier.try_wait.parity.shared.b64 %done, [%s], 1;\n@!%done bra wait;",
        MBARRIER + "@%q mbarrier.init.shared.b64 [%s], 64;\nbar.sync 0;\nwait:\n"
        "mbarrier.try_wait.parity.shared.b64 %done, [%s], 1;\n@!%done bra wait;",
        ["There is no mbarrier at"],
    ),
    Defect(
        "barrier-misuse",
        "lanes that make one mbarrier with different counts",
        MBARRIER + "shr.u32 %t, %t, 4;\nadd.u32 %t, %t, 32;\nmbarrier.init.shared.b64 [%s], %t;",
        MBARRIER + "mbarrier.init.shared.b64 [%s], 32;",
        ["initialised a second time", "lane 16"],
        block=32,
    ),
    Defect(
        "barrier-misuse",
        "an mbarrier that is initialised twice",
        MBARRIER + "mbarrier.init.shared.b64 [%s], 32;\nmbarrier.init.shared.b64 [%s], 32;",
        MBARRIER + "mbarrier.init.shared.b64 [%s], 32;\n@%q mbarrier.inval.shared.b64 [%s];\nbar.warp.sync -1;\n"
        "@%q mbarrier.init.shared.b64 [%s], 32;",
        ["initialised a second time", "lane 0"],
        block=32,
    ),
    Defect(
        "race",
        "an mbarrier that ends while another warp may still wait",
        MBARRIER + ENDED.replace("MEET", ""),
        MBARRIER + ENDED.replace("MEET", "bar.sync 0;"),
        ["writes what another thread read", "lesson.cu:13", "The other instruction is at lesson.cu:12"],
    ),
    Defect(
        "divergent-sync",
        "a shuffle without lanes that its mask names",
        START
        + "setp.lt.u32 %q, %t, 5;\n@!%q bra skip;\n.loc 1 12 0\nshfl.sync.bfly.b32 %y, %t, 1, 0x1f, 0xffffffff;\nskip:",
        START
        + "setp.lt.u32 %q, %t, 6;\n@!%q bra skip;\n.loc 1 12 0\nshfl.sync.bfly.b32 %y, %t, 1, 0x1f, 0x0000003f;\nskip:",
        ["lesson.cu:12", "0xffffffff", "lane"],
        block=32,
    ),
    Defect(
        "deadlock",
        "a barrier that one warp never reaches",
        START + "setp.lt.u32 %q, %t, 32;\n@%q bra leave;\n.loc 1 12 0\nbar.sync 1, 64;\nleave:",
        START + "setp.lt.u32 %q, %t, 32;\n@%q bra leave;\n.loc 1 12 0\nbar.sync 1, 32;\nleave:",
        ["lesson.cu:12", "warp 1"],
        status=3,
    ),
    Defect(
        "livelock",
        "a flag that nobody sets",
        START
        + LOAD_POINTER
        + "wait:\n.loc 1 12 0\nld.volatile.global.u32 %x, [%p];\nsetp.eq.u32 %q, %x, 0;\n@%q bra wait;",
        START
        + LOAD_POINTER
        + "wait:\n.loc 1 12 0\nld.volatile.global.u32 %x, [%p];\nsetp.eq.u32 %q, %x, 1;\n@%q bra wait;",
        ["lesson.cu:12", "warp 0", "warp 1", "polls 0x"],
        params=POINTER,
        args=["buf:u32:64"],
        status=3,
    ),
    Defect(
        "step-limit",
        "a loop without an end",
        ".reg .b32 %x;\nmov.u32 %x, 0;\nagain:\nadd.u32 %x, %x, 1;\nbra.uni again;",
        ".reg .b32 %x;\n.reg .pred %q;\nmov.u32 %x, 0;\nagain:\nadd.u32 %x, %x, 1;\nsetp.lt.u32 %q, %x, 100;\n"
        "@%q bra again;",
        ["1000"],
        block=32,
        options=["--steps", "1000"],
        status=3,
    ),
    Defect(
        "output-never-written",
        "half of an output",
        START
        + LOAD_POINTER
        + "mad.wide.u32 %p, %t, 4, %p;\nst.global.u16 [%p], %t;".replace("u16 [%p], %t", "u16 [%p], 1"),
        START + LOAD_POINTER + "mad.wide.u32 %p, %t, 4, %p;\nst.global.u32 [%p], %t;",
        ["argument 0"],
        params=POINTER,
        args=["out:u32:64"],
    ),
    Defect(
        "output-written-twice",
        "by every thread",
        START + LOAD_POINTER + ".loc 1 12 0\nst.global.u32 [%p], 7;",
        START + LOAD_POINTER + "setp.eq.u32 %q, %t, 3;\n.loc 1 12 0\n@%q st.global.u32 [%p], 7;",
        ["lesson.cu:12", "argument 0"],
        params=POINTER,
        args=["out:u32:1"],
    ),
    Defect(
        "output-written-twice",
        "by three CTAs",
        START + LOAD_POINTER + "mad.wide.u32 %p, %t, 4, %p;\nsetp.lt.u32 %q, %t, 3;\n.loc 1 12 0\n"
        "@%q st.global.u32 [%p], 7;",
        START + LOAD_POINTER + "mad.wide.u32 %p, %t, 4, %p;\nmov.u32 %x, %ctaid.x;\nsetp.eq.u32 %q, %t, %x;\n"
        "@%q st.global.u32 [%p], 7;",
        ["lesson.cu:12", "12 bytes of this output", "by CTAs 0 and 2"],
        params=POINTER,
        args=["out:u32:3"],
        options=["--grid", "3"],
    ),
    Defect(
        "trap",
        "trap",
        START + "setp.eq.u32 %q, %t, 40;\n.loc 1 12 0\n@%q trap;",
        START + "setp.eq.u32 %q, %t, 64;\n.loc 1 12 0\n@%q trap;",
        ["lesson.cu:12", "warp 1", "lane 8"],
        status=3,
    ),
]

ASSERT_DIRECTIVES = """.file 1 "lesson.cu"
.shared .align 16 .b8 smem[1024];
.extern .func __assertfail(.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d, .param .b64 e);
.extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 v);
.global .align 1 .b8 what[6] = {120, 32, 62, 32, 48, 0};
.global .align 1 .b8 where[10] = {108, 101, 115, 115, 111, 110, 46, 99, 117, 0};
.global .align 1 .b8 format[11] = {120, 32, 61, 32, 37, 100, 44, 32, 37, 115, 0};
"""
ASSERT = """{ // callseq 0, 0
.reg .b64 %w, %f;
mov.u64 %w, what;
cvta.global.u64 %w, %w;
mov.u64 %f, where;
cvta.global.u64 %f, %f;
.param .b64 param0;
st.param.b64 [param0+0], %w;
.param .b64 param1;
st.param.b64 [param1+0], %f;
.param .b32 param2;
st.param.b32 [param2+0], 77;
.param .b64 param3;
st.param.b64 [param3+0], %f;
.param .b64 param4;
st.param.b64 [param4+0], 1;
call.uni __assertfail, (param0, param1, param2, param3, param4);
} // callseq 0
"""
DEFECTS.append(
    Defect(
        "assert", "a device assert",
        START + "setp.ne.u32 %q, %t, 40;\n@%q bra fine;\n" + ASSERT + "fine:",
        START + "setp.ne.u32 %q, %t, 64;\n@%q bra fine;\n" + ASSERT + "fine:",
        ["x > 0", "lesson.cu", "77", "warp 1"], directives=ASSERT_DIRECTIVES, status=3,
    )
)  # fmt: skip


@pytest.mark.parametrize("defect", DEFECTS, ids=str)
def test_defect_is_reported(defect: Defect, tmp_path: Path) -> None:
    check_reported(defect, tmp_path)


@pytest.mark.parametrize("defect", DEFECTS, ids=str)
def test_legal_twin_is_silent(defect: Defect, tmp_path: Path) -> None:
    check_silent(defect, tmp_path)


def test_every_class_has_a_defect() -> None:
    """The classes are those of emu.h."""
    header = (Path(__file__).resolve().parents[1] / "emu.h").read_text()
    body = header[header.index("typedef enum emu_class {") : header.index("} emu_class;")]
    names = [name.lower().replace("_", "-") for name in re.findall(r"^ +EMU_(\w+),", body, re.M)]
    assert {defect.name for defect in [*DEFECTS, *HOPPER, *CLUSTERS, *ORDERS]} == set(names)


def test_checks_off_finds_no_race(tmp_path: Path) -> None:
    race = DEFECTS[0]
    path = tmp_path / "race.ptx"
    path.write_text(entry(race.bad, directives=f"{FILES}\n{SHARED}"))
    assert ptxrun(path, "--block", 64).returncode == 1
    assert ptxrun(path, "--block", 64, "--checks", "off").returncode == 0


def test_run_ends_at_the_first_finding(tmp_path: Path) -> None:
    """Two loads past the end of shared memory, in each of two warps."""
    path = tmp_path / "twice.ptx"
    path.write_text(
        entry(START + "ld.shared.u32 %x, [%s+4096];\n.loc 1 11 0\nld.shared.u32 %y, [%s+8192];", directives=SHARED)
    )
    whole, first = ptxrun(path, "--block", 64), ptxrun(path, "--block", 64, "--first")
    assert (whole.returncode, whole.stderr.count("PTX line")) == (1, 2), whole.stderr
    assert (first.returncode, first.stderr.count("PTX line")) == (3, 1), first.stderr


def test_each_mbarrier_too_many_is_reported(tmp_path: Path) -> None:
    """Of the 288 that the lanes make 256 fit; that another is misaligned is said too."""
    body = START + "mad.lo.s32 %s, %t, 28, %s;\nsetp.eq.u32 %q, %t, 5;\n"
    body += "".join(f"mbarrier.init.shared.b64 [%s+{1024 * i}], 1;\n" for i in range(8))
    body += "@%q add.u32 %s, %s, 4;\n.loc 1 11 0\nmbarrier.init.shared.b64 [%s+8192], 1;"
    path = tmp_path / "many.ptx"
    path.write_text(entry(body, directives=f"{FILES}\n.shared .align 16 .b8 smem[9216];"))
    said = ptxrun(path, "--block", 32).stderr
    assert "barrier-misuse (31 times)" in said and "misaligned (1 times)" in said, said


def test_device_printf(tmp_path: Path) -> None:
    body = """.reg .b64 %f, %v;
.reg .b32 %t, %r;
.reg .pred %q;
.local .align 8 .b8 frame[16];
mov.u32 %t, %tid.x;
setp.ne.u32 %q, %t, 3;
@%q exit;
mov.u64 %v, frame;
cvta.local.u64 %v, %v;
st.u32 [%v], %t;
mov.u64 %f, what;
cvta.global.u64 %f, %f;
st.u64 [%v+8], %f;
mov.u64 %f, format;
cvta.global.u64 %f, %f;
{
.param .b64 param0;
st.param.b64 [param0+0], %f;
.param .b64 param1;
st.param.b64 [param1+0], %v;
.param .b32 retval0;
call.uni (retval0), vprintf, (param0, param1);
ld.param.b32 %r, [retval0+0];
}
"""
    path = tmp_path / "printf.ptx"
    path.write_text(entry(body, directives=ASSERT_DIRECTIVES))
    done = ptxrun(path, "--grid", 2)
    assert (done.returncode, done.stdout, done.stderr) == (0, "x = 3, x > 0" * 2, "")


def test_a_barrier_that_is_missing_is_a_few_findings(tmp_path: Path) -> None:
    """One cause per pair of lines, not one finding for each pair of unrolled instructions."""
    launch = Launch("v18", seq=512)
    lines = launch.ptx.read_text().split("\n")
    found, broken = [], tmp_path / "broken.ptx"
    for at in [at for at, line in enumerate(lines) if re.match(r"\s*bar\.sync", line)]:
        broken.write_text("\n".join([*lines[:at], "", *lines[at + 1 :]]))
        said = re.search(r"^(\d+) findings?: ", launch.run(ptx=broken).stderr, re.MULTILINE)
        found += [int(said[1])] if said else []
    assert len(found) >= 3 and max(found) <= 8, f"{found}: docs/emulator.md says one to eight"


def unordered(folder: Path, *options: str) -> tuple[int, str]:
    """A race between the lines 11 and 13, and an output of which one word is written twice at line 15."""
    race = DEFECTS[0]
    body = race.bad.replace(START, START + LOAD_POINTER) + "\n.loc 1 15 0\nst.global.u32 [%p], 1;"
    path = folder / "race.ptx"
    path.write_text(entry(body, POINTER, directives=f"{FILES}\n{SHARED}"))
    done = ptxrun(path, "--block", 64, "--arg", "out:u32:1", *options)
    return done.returncode, " ".join(re.findall(r"^([a-z-]+) at ", done.stderr, re.M)) or done.stderr


def test_classes_and_lines_are_ignored(tmp_path: Path) -> None:
    twice = "output-written-twice: buffer"
    assert unordered(tmp_path)[0] == 1
    for options, left in [
        (("--ignore", "race"), "twice"),
        (("--ignore", "race@11"), "twice"),
        (("--ignore", "race@13"), "twice"),
        (("--ignore", "race@12"), "both"),
        (("--ignore", "output-written-twice"), "race"),
        (("--ignore", "output-written-twice@15"), "race"),
        (("--ignore", "race", "--ignore", "output-written-twice@15"), ""),
        (("--ignore", "race,output-written-twice"), ""),
    ]:
        status, text = unordered(tmp_path, *options)
        assert status == (1 if left else 0), (options, text)
        assert ("race" in text) == (left in ("race", "both")), (options, text)
        assert (twice in text) == (left in ("twice",)) or left == "both", (options, text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("races", "no such class of findings; there are race, async-in-flight"),
        ("race@", "should be CLASS or CLASS@LINE"),
        ("race@x", "should be CLASS or CLASS@LINE"),
        ("race@0", "should be CLASS or CLASS@LINE"),
        ("deadlock", "a CTA cannot continue after that"),
    ],
)
def test_what_cannot_be_ignored_is_refused(text: str, says: str, tmp_path: Path) -> None:
    status, said = unordered(tmp_path, "--ignore", text)
    assert status == 2 and says in said, said
