"""Every class of finding: a small PTX that has the defect, and a twin that is just legal and must stay silent."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from support.emulation import entry, ptxrun
from support.versions import Launch, versions

SHARED = ".shared .align 16 .b8 smem[1024];"
FILES = '.file 1 "lesson.cu"'
POINTER = ".param .u64 data"


@dataclass(frozen=True)
class Defect:
    """`bad` must give exactly one finding, of class `name`, whose message says all of `says`; `good` none."""

    name: str
    label: str
    bad: str
    good: str
    says: list[str] = field(default_factory=list)
    block: int = 64
    params: str = ""
    args: list[str] = field(default_factory=list)
    directives: str = SHARED
    options: list[str] = field(default_factory=list)
    status: int = 1


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
MBARRIER = """.reg .b32 %s, %t;
.reg .b64 %state;
.reg .pred %q, %done;
mov.u32 %t, %tid.x;
mov.u32 %s, smem;
setp.eq.u32 %q, %t, 0;
"""
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
# A warpgroup multiplies 64 x 16 by 16 x 8 zeros: A in the first 2 KB of shared memory, B behind.
WGMMA_SHARED = ".shared .align 128 .b8 smem[4096];"
WGMMA_START = """.reg .b32 %t, %s, %a, %w;
.reg .f32 %d<4>;
.reg .b64 %x, %y;
.reg .pred %q, %done;
mov.u32 %t, %tid.x;
mov.u32 %s, smem;
mad.lo.s32 %a, %t, 4, %s;
setp.lt.u32 %q, %t, 128;
@%q st.shared.u32 [%a], 0;
@%q st.shared.u32 [%a+512], 0;
@%q st.shared.u32 [%a+1024], 0;
@%q st.shared.u32 [%a+1536], 0;
@%q st.shared.u32 [%a+2048], 0;
PROXY
bar.sync 0;
shr.u32 %w, %s, 4;
cvt.u64.u32 %x, %w;
or.b64 %x, %x, 0x1000080000;
add.s64 %y, %x, 128;
mov.f32 %d0, 0f00000000;
mov.f32 %d1, 0f00000000;
mov.f32 %d2, 0f00000000;
mov.f32 %d3, 0f00000000;
"""
FENCED = WGMMA_START.replace("PROXY", "fence.proxy.async.shared::cta;")
PRODUCT = (
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%d0, %d1, %d2, %d3}, %x, %y, 1, 1, 1, 0, 0;\n"
    "wgmma.commit_group.sync.aligned;\n"
)
WGMMA = ".loc 1 30 0\nwgmma.fence.sync.aligned;\n" + PRODUCT
WGMMA_WAIT = ".loc 1 31 0\nwgmma.wait_group.sync.aligned 0;\n"
# Warps 4 to 7 fill the slot of A that warps 0 to 3 have read.
OTHER_WARPGROUP = (
    FENCED
    + "setp.ge.u32 %q, %t, 128;\n@%q bra.uni write;\n"
    + WGMMA
    + WGMMA_WAIT
    + "TELL\nbra.uni end;\nwrite:\nHEAR\n.loc 1 33 0\nst.shared.u32 [%a], 1;\nend:"
)
CHANGE = ".loc 1 32 0\nadd.f32 %d1, %d1, 0f3f800000;\n"
# One thread lets the copy engine bring 128 bytes to shared memory.
TENSOR = (
    MBARRIER
    + """.reg .b64 %m;
@%q mbarrier.init.shared.b64 [%s+512], 1;
mov.b64 %m, data;
cvta.param.u64 %m, %m;
bar.sync 0;
@!%q bra wait;
mbarrier.arrive.expect_tx.shared.b64 %state, [%s+512], BYTES;
.loc 1 40 0
cp.async.bulk.tensor.RANK.shared::cta.global.mbarrier::complete_tx::bytes [%s], [%m, AT], [%s+512];
wait:
mbarrier.try_wait.parity.shared.b64 %done, [%s+512], 0;
.loc 1 41 0
@!%done bra wait;"""
)


def tensor(rank: str = "1d", at: str = "{0}", size: int = 128) -> str:
    return TENSOR.replace("RANK", rank).replace("AT", at).replace("BYTES", str(size))


TENSOR_ENTRY = {
    "params": ".param .align 64 .b8 data[128]",
    "args": ["tmap:64:64:none:buf:f16:64"],
    "directives": ".shared .align 128 .b8 smem[1024];",
}

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
        "a store and a load of another lane of the warp",
        START + ".loc 1 11 0\nst.shared.u32 [%s], %t;\nxor.b32 %x, %s, 4;\n.loc 1 13 0\nld.shared.u32 %y, [%x];",
        START + ".loc 1 11 0\nst.shared.u32 [%s], %t;\nbar.warp.sync -1;\nxor.b32 %x, %s, 4;\n.loc 1 13 0\n"
        "ld.shared.u32 %y, [%x];",
        ["lesson.cu:11", "lesson.cu:13", "warp 0"],
        block=32,
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
        "trap",
        "trap",
        START + "setp.eq.u32 %q, %t, 40;\n.loc 1 12 0\n@%q trap;",
        START + "setp.eq.u32 %q, %t, 64;\n.loc 1 12 0\n@%q trap;",
        ["lesson.cu:12", "warp 1", "lane 8"],
        status=3,
    ),
    Defect(
        "register-in-flight",
        "an accumulator is read too early",
        FENCED + WGMMA + CHANGE + WGMMA_WAIT,
        FENCED + WGMMA + WGMMA_WAIT + CHANGE,
        ["%d1", "wgmma.wait_group", "lesson.cu:30"],
        block=128,
        directives=WGMMA_SHARED,
    ),
    Defect(
        "wgmma-misuse",
        "no wgmma.fence after a change",
        FENCED + WGMMA + WGMMA_WAIT + CHANGE + PRODUCT + WGMMA_WAIT,
        FENCED + WGMMA + WGMMA_WAIT + CHANGE + WGMMA + WGMMA_WAIT,
        ["%d1", "wgmma.fence"],
        block=128,
        directives=WGMMA_SHARED,
    ),
    Defect(
        "wgmma-misuse",
        "warps disagree",
        FENCED + "setp.ge.u32 %q, %t, 96;\n@%q add.s64 %y, %y, 1;\n" + WGMMA + WGMMA_WAIT,
        FENCED + "add.s64 %y, %y, 1;\n" + WGMMA + WGMMA_WAIT,
        ["warps 0 and 3", "different descriptors of B"],
        block=128,
        directives=WGMMA_SHARED,
    ),
    Defect(
        "out-of-bounds",
        "a descriptor beyond shared memory",
        FENCED + "add.s64 %y, %y, 256;\n" + WGMMA + WGMMA_WAIT,
        FENCED + WGMMA + WGMMA_WAIT,
        ["descriptor of B", "4096 bytes"],
        block=128,
        directives=WGMMA_SHARED,
    ),
    Defect(
        "missing-proxy-fence",
        "stores go to wgmma unfenced",
        WGMMA_START.replace("PROXY", "") + WGMMA + WGMMA_WAIT,
        FENCED + WGMMA + WGMMA_WAIT,
        ["fence.proxy.async", "ordinary store"],
        block=128,
        directives=WGMMA_SHARED,
    ),
    Defect(
        "async-in-flight",
        "a slot is filled while wgmma reads it",
        FENCED + WGMMA + ".loc 1 33 0\nst.shared.u32 [%a+2048], 1;\n" + WGMMA_WAIT,
        FENCED + WGMMA + WGMMA_WAIT + "bar.sync 1, 128;\n.loc 1 33 0\nst.shared.u32 [%a+2048], 1;\n",
        ["may still read it", "lesson.cu:33", "lesson.cu:30"],
        block=128,
        directives=WGMMA_SHARED,
    ),
    Defect(
        "race",
        "a slot is filled without asking the readers",
        OTHER_WARPGROUP.replace("TELL", "").replace("HEAR", ""),
        OTHER_WARPGROUP.replace("TELL", "bar.arrive 2, 256;").replace("HEAR", "bar.sync 2, 256;"),
        ["lesson.cu:33", "lesson.cu:30"],
        block=256,
        directives=WGMMA_SHARED,
    ),
    Defect(
        "bad-tensor-map",
        "another number of dimensions",
        tensor("2d", "{0, 0}").split("wait:")[0] + "wait:",
        tensor(),
        ["1 dimensions", "names 2"],
        **TENSOR_ENTRY,
    ),
    Defect(
        "deadlock",
        "more bytes expected than come",
        tensor(size=256),
        tensor(),
        ["128 bytes that no copy brings"],
        status=3,
        **TENSOR_ENTRY,
    ),
    Defect(
        "deadlock",
        "fewer bytes expected than come",
        tensor(size=64),
        tensor(),
        ["64 bytes too many"],
        status=3,
        **TENSOR_ENTRY,
    ),
    Defect(
        "async-in-flight",
        "read before the phase is complete",
        tensor().replace("wait:", "ld.shared.u32 %t, [%s];\nwait:"),
        tensor() + "\nld.shared.u32 %t, [%s];",
        ["bulk copy", "in flight"],
        **TENSOR_ENTRY,
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


def run(defect: Defect, body: str, folder: Path) -> tuple[int, str, str]:
    directives = defect.directives if defect.directives.startswith(".file") else f"{FILES}\n{defect.directives}"
    path = folder / "defect.ptx"
    path.write_text(entry(body, defect.params, directives=directives))
    args = [word for spec in defect.args for word in ("--arg", spec)]
    done = ptxrun(path, "--block", defect.block, *args, *defect.options)
    return done.returncode, done.stdout, done.stderr


def ids(defect: Defect) -> str:
    return f"{defect.name}: {defect.label}"


@pytest.mark.parametrize("defect", DEFECTS, ids=ids)
def test_defect_is_reported(defect: Defect, tmp_path: Path) -> None:
    status, _, text = run(defect, defect.bad, tmp_path)
    summary = re.search(r"^(\d+) findings?: (.*)$", text, re.M)
    assert status == defect.status and summary, f"status {status}\n{text}"
    assert {part.split(" ")[0] for part in summary[2].split(", ")} == {defect.name}, text
    missing = [words for words in defect.says if words not in text]
    assert not missing, f"{missing} is not said in:\n{text}"


@pytest.mark.parametrize("defect", DEFECTS, ids=ids)
def test_legal_twin_is_silent(defect: Defect, tmp_path: Path) -> None:
    status, _, text = run(defect, defect.good, tmp_path)
    assert (status, text) == (0, "")


def test_every_class_has_a_defect() -> None:
    """The classes are those of emu.h."""
    header = (Path(__file__).resolve().parents[1] / "emu.h").read_text()
    body = header[header.index("typedef enum emu_class {") : header.index("} emu_class;")]
    names = [name.lower().replace("_", "-") for name in re.findall(r"^ +EMU_(\w+),", body, re.M)]
    assert {defect.name for defect in DEFECTS} == set(names)


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
    (version,) = (one for one in versions() if one.name == "v18")
    launch, lines = Launch(version.entry("fp16"), 512), version.text().split("\n")
    found, broken = [], tmp_path / "broken.ptx"
    for at in [at for at, line in enumerate(lines) if re.match(r"\s*bar\.sync", line)]:
        broken.write_text("\n".join([*lines[:at], "", *lines[at + 1 :]]))
        said = re.search(r"^(\d+) findings?: ", launch.run(broken).stderr, re.MULTILINE)
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
        ("deadlock", "a CTA cannot go on after that"),
    ],
)
def test_what_cannot_be_ignored_is_refused(text: str, says: str, tmp_path: Path) -> None:
    status, said = unordered(tmp_path, "--ignore", text)
    assert status == 2 and says in said, said
