"""Defects of programs for sm_90a: wgmma, bulk copies, mbarriers that count bytes, setmaxnreg."""

from typing import Any

from support.defects import MBARRIER, Defect

# A warpgroup multiplies 64 x 16 by 16 x 8 zeros: A in the first 2 KB of shared memory, B behind.
WGMMA_SHARED = ".shared .align 128 .b8 smem[4096];"
WGMMA_START = """.reg .b32 %t, %s, %a, %w;
.reg .f32 %d<4>; .reg .b64 %x, %y; .reg .pred %q, %done;
mov.u32 %t, %tid.x; mov.u32 %s, smem; mad.lo.s32 %a, %t, 4, %s; setp.lt.u32 %q, %t, 128;
@%q st.shared.u32 [%a], 0; @%q st.shared.u32 [%a+512], 0; @%q st.shared.u32 [%a+1024], 0;
@%q st.shared.u32 [%a+1536], 0; @%q st.shared.u32 [%a+2048], 0;
PROXY
bar.sync 0;
shr.u32 %w, %s, 4; cvt.u64.u32 %x, %w; or.b64 %x, %x, 0x1000080000; add.s64 %y, %x, 128;
mov.f32 %d0, 0f00000000; mov.f32 %d1, 0f00000000; mov.f32 %d2, 0f00000000; mov.f32 %d3, 0f00000000;
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
# The same, by copies of warps that come later for sure: they poll a word which the others set.
POLL = "ld.param.u64 %x, [data];\npoll:\nld.volatile.global.u32 %w, [%x];\nsetp.eq.u32 %q, %w, 0;\n@%q bra poll;\n"
AFTER_THE_READERS = (
    OTHER_WARPGROUP.replace("TELL", "TELL\nld.param.u64 %x, [data];\nst.volatile.global.u32 [%x], 1;")
    .replace("HEAR", POLL + "HEAR\nsetp.eq.u32 %q, %t, 128;")
    .replace("st.shared.u32 [%a], 1;", "@%q cp.async.ca.shared.global [smem+512], [%x+16], 16;")
)
# A bulk copy fills A. Warp 0 waits for it and is the first to multiply; the others come later for sure.
COPIED = (
    ".reg .b64 %m, %state;\n"
    + FENCED
    + """ld.param.u64 %m, [data];
setp.eq.u32 %q, %t, 0;
@%q mbarrier.init.shared.b64 [%s+4088], 1;
fence.mbarrier_init.release.cluster;
bar.sync 0;
@%q mbarrier.arrive.expect_tx.shared.b64 %state, [%s+4088], 16;
.loc 1 35 0
@%q cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%s], [%m], 16, [%s+4088];
setp.ge.u32 %q, %t, 32;
poll:
@%q ld.volatile.global.u32 %w, [%m+16];
setp.eq.and.u32 %done, %w, 0, %q;
@%done bra poll;
OTHERS
wait:
mbarrier.try_wait.parity.shared.b64 %done, [%s+4088], 0;
@!%done bra wait;
@!%q st.volatile.global.u32 [%m+16], 1;
multiply:
"""
    + WGMMA
    + WGMMA_WAIT
)
CHANGE = ".loc 1 32 0\nadd.f32 %d1, %d1, 0f3f800000;\n"
# One thread lets the copy engine bring 128 bytes to shared memory.
TENSOR = (
    MBARRIER
    + """.reg .b64 %m;
@%q mbarrier.init.shared.b64 [%s+512], 1;
fence.mbarrier_init.release.cluster;
mov.b64 %m, data; cvta.param.u64 %m, %m;
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

# A from registers: the same product with the fragments in %r0 to %r3.
FRAGMENTS = ".reg .b32 %r<4>;\nmov.u32 %r0, %t;\nmov.u32 %r1, %t;\nmov.u32 %r2, 0;\nmov.u32 %r3, 0;\n"
FROM_REGISTERS = (
    FRAGMENTS
    + ".loc 1 30 0\nwgmma.fence.sync.aligned;\n"
    + PRODUCT.replace("%x, %y, 1, 1, 1, 0, 0", "{%r0, %r1, %r2, %r3}, %y, 1, 1, 1, 0")
)
READ = ".loc 1 32 0\nadd.f32 %unused, %d1, %d1;\n"
WIDE = ".reg .f32 %d<8>, %e<4>, %unused;"
# Sixteen columns, of which the first eight are the accumulators above.
SIXTEEN_COLUMNS = (
    "wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {%d0, %d1, %d2, %d3, %d4, %d5, %d6, %d7}, %x, %x, "
    "0, 1, 1, 0, 0;\nwgmma.commit_group.sync.aligned;\n"
)


def wide(text: str) -> str:
    return text.replace(".reg .f32 %d<4>;", WIDE)


# Thread 0 copies 64 bytes from `data` to shared memory, by the mbarrier at 512, and warps wait for it at line 41.
BYTES_IN = (
    MBARRIER
    + """.reg .b64 %p;
.reg .b32 %y, %bytes;
ld.param.u64 %p, [data]; @%q mbarrier.init.shared.b64 [%s+512], 1;
INIT_FENCE
bar.sync 0;
mov.u32 %bytes, 64;
BEFORE
@!%q bra wait;
ARRIVE
.loc 1 40 0
cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%s], [%p], %bytes, [%s+512];
AFTER
wait:
.loc 1 41 0
mbarrier.try_wait.parity.shared.b64 %done, [%s+512], 0;
@!%done bra wait;
END"""
)


# Another arrival, which announces the bytes, and a wait for the phase that it completes.
AGAIN = "mbarrier.arrive.expect_tx.shared.b64 %state, [%s+512], 64;"
START_AGAIN = "mbarrier.init.shared.b64 [%s+512], 1;\nfence.mbarrier_init.release.cluster;\n" + AGAIN
SECOND = "again:\nmbarrier.try_wait.parity.shared.b64 %done, [%s+512], 1;\n@!%done bra again;"
COPY_IN = "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%s], [%p], 64, [%s+512];\n"
COPY_TWICE = "bar.sync 0;\n@%q " + AGAIN + "\n.loc 1 42 0\n@%q " + COPY_IN


def bytes_in(**parts: str) -> str:
    usual = {
        "INIT_FENCE": "fence.mbarrier_init.release.cluster;",
        "BEFORE": "",
        "ARRIVE": "mbarrier.arrive.expect_tx.shared.b64 %state, [%s+512], 64;",
        "AFTER": "",
        "END": "ld.shared.u32 %y, [%s];",
    }
    text = BYTES_IN
    for name, part in (usual | parts).items():
        text = text.replace(name, part)
    return text


# Thread 0 copies 64 bytes that it stored before to `data`.
BYTES_OUT = (
    MBARRIER
    + """.reg .b64 %p;
ld.param.u64 %p, [data];
@!%q bra end;
.loc 1 50 0
STORES
fence.proxy.async.shared::cta;
COPIES
end:"""
)
STORES = "".join(f"st.shared.u32 [%s+{i}], {i};\n" for i in range(0, 64, 4))
COPY_OUT = ".loc 1 51 0\ncp.async.bulk.global.shared::cta.bulk_group [%p], [%s], 64;\ncp.async.bulk.commit_group;\n"
WAIT_OUT = "cp.async.bulk.wait_group.read 0;\n"


def bytes_out(copies: str, stores: str = STORES) -> str:
    return BYTES_OUT.replace("STORES", stores).replace("COPIES", copies)


BYTES: dict[str, Any] = {
    "params": ".param .u64 data",
    "args": ["buf:u32:32:ramp"],
    "directives": ".shared .align 128 .b8 smem[1024];",
}
OUTPUT = BYTES | {"args": ["out:u32:16"]}
ON_WARPGROUP: dict[str, Any] = {"block": 128, "directives": WGMMA_SHARED}
# Warps 0 to 3 give registers or none, warps 4 to 7 take some: 256 threads begin with 248 registers each.
TAKE = (
    ".reg .b32 %t;\n.reg .pred %q;\nmov.u32 %t, %tid.x;\nsetp.lt.u32 %q, %t, 128;\n@!%q bra.uni take;\nGIVE\n"
    "bra.uni end;\ntake:\n.loc 1 60 0\nsetmaxnreg.inc.sync.aligned.u32 256;\nend:"
)

# Warps 4 to 7 store A once more, later than warps 1 to 3 come, and tell warps 0 to 3.
STORED_AGAIN = (
    FENCED.replace(
        "mov.f32 %d0",
        "setp.eq.u32 %q, %t, 0;\n@%q mbarrier.init.shared.b64 [smem+3072], 128;\nbar.sync 0;\nmov.f32 %d0",
        1,
    )
    + """.reg .b64 %state;
.reg .pred %other;
setp.ge.u32 %other, %t, 32; setp.ge.u32 %q, %t, 128; @%q bra.uni store;
AHEAD
wait:
mbarrier.try_wait.parity.shared.b64 %done, [smem+3072], 0;
@!%done bra wait;
ready:
"""
    + WGMMA
    + "BEHIND"
    + WGMMA_WAIT
    + """bra.uni end;
store:
.loc 1 33 0
bar.sync 1, 224;
st.shared.u32 [%a+-512], 0;
fence.proxy.async.shared::cta;
mbarrier.arrive.shared.b64 %state, [smem+3072];
end:"""
)
ARRIVE_LATER = "@%other bar.arrive 1, 224;\n"
# Warp 1 stores words and arrives at an mbarrier, at which warp 0 waits before it loads them.
WAITED_ONCE = (
    MBARRIER
    + """.reg .b32 %a, %x, %ok;
@%q mbarrier.init.shared.b64 [%s], 32; and.b32 %a, %t, 31; mad.lo.s32 %a, %a, 4, %s;
setp.ge.u32 %q, %t, 32;
bar.sync 0;
@%q bra store;
wait:
.loc 1 70 0
mbarrier.try_wait.parity.shared.b64 %done, [%s], 0;
CHECK
.loc 1 72 0
ld.shared.u32 %x, [%a+64];
bra.uni end;
store:
.loc 1 73 0
st.shared.u32 [%a+64], %t;
mbarrier.arrive.shared.b64 %state, [%s];
end:"""
)
ASKED_ONCE = WAITED_ONCE.replace("try_wait", "test_wait")
# Warps 0 to 3 wait for their products, then the four, or warp 0 alone, tell warps 4 to 7.
TOLD_BY = AFTER_THE_READERS.replace("HEAR", "bar.sync 1, HEARD;")
TOLD_BY_ONE = TOLD_BY.replace("TELL", "setp.lt.u32 %q, %t, 32;\n@%q bar.arrive 1, 160;").replace("HEARD", "160")
# Two products. Warps 1 to 3 wait for both, and then warp 0 waits for as many as OWN leaves and tells warps 4 to 7.
LATE_WAIT = (
    FENCED
    + "ld.param.u64 %flag, [data];\nsetp.ge.u32 %q, %t, 128;\n@%q bra.uni write;\n"
    + WGMMA
    + PRODUCT
    + """setp.lt.u32 %q, %t, 32;
@%q bra.uni poll;
.loc 1 31 0
wgmma.wait_group.sync.aligned 0; st.volatile.global.u32 [%flag], 1;
bra.uni end;
poll:
ld.volatile.global.u32 %w, [%flag]; setp.eq.u32 %q, %w, 0;
@%q bra poll;
wgmma.wait_group.sync.aligned OWN;
bar.arrive 1, 160;
wgmma.wait_group.sync.aligned 0;
bra.uni end;
write:
bar.sync 1, 160;
.loc 1 33 0
st.shared.u32 [%a], 1;
end:"""
).replace(".reg .b64 %x, %y;", ".reg .b64 %x, %y, %flag;")
# Thread 0 copies 64 bytes twice, by two mbarriers: warp 1 waits for the first copy, warp 0 for what WAITS says.
TWO_COPIES = (
    MBARRIER
    + """.reg .b32 %x;
.reg .b64 %p;
ld.param.u64 %p, [data]; @%q mbarrier.init.shared.b64 [%s+512], 1;
@%q mbarrier.init.shared.b64 [%s+520], 1;
fence.mbarrier_init.release.cluster;
bar.sync 0;
@!%q bra copied;
mbarrier.arrive.expect_tx.shared.b64 %state, [%s+512], 64;
mbarrier.arrive.expect_tx.shared.b64 %state, [%s+520], 64;
.loc 1 45 0
cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%s], [%p], 64, [%s+512];
.loc 1 46 0
cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%s+64], [%p], 64, [%s+520];
copied:
setp.ge.u32 %q, %t, 32;
@%q bra first;
second:
mbarrier.try_wait.parity.shared.b64 %done, [%s+520], 0;
@!%done bra second;
@%q bra end;
WAITS
.loc 1 47 0
ld.shared.u32 %x, [%s];
bra.uni end;
first:
mbarrier.try_wait.parity.shared.b64 %done, [%s+512], 0;
@!%done bra first;
end:"""
)

FENCE_OF_WARP_0 = "setp.lt.u32 %q, %t, 32;\n@%q fence.proxy.async.shared::cta;"
# Thread 32 copies by the mbarrier that thread 0 initializes.
BY_WARP_1 = bytes_in(INIT_FENCE="").replace("@!%q bra wait;", "setp.eq.u32 %q, %t, 32;\n@!%q bra wait;")

HOPPER = [
    Defect("barrier-misuse", "a wait whose answer nothing looks at", WAITED_ONCE.replace("CHECK",
           "<<||@!%done bra wait;>>"), ["ignores the result of this mbarrier.try_wait", "Repeat it in a loop",
           "lesson.cu:70"]),
    Defect("race", "a wait that is no loop", WAITED_ONCE.replace("CHECK",
           "<<selp.u32 %ok, 1, 0, %done;||selp.u32 %ok, 1, 0, %done;\nsetp.eq.u32 %q, %ok, 0;\n@%q bra wait;>>"),
           ["in shared memory", "lesson.cu:72", "lesson.cu:73"], options=["--schedule", "2"]),
    Defect("barrier-misuse", "a test_wait whose answer nothing looks at", ASKED_ONCE.replace("CHECK",
           "<<||@!%done bra wait;>>"), ["ignores the result of this mbarrier.test_wait", "it does not wait",
           "lesson.cu:70"]),
    Defect("race", "one warp's wgmma.wait_group taken for its warpgroup", TOLD_BY_ONE, ["what another thread read",
           "The other thread: warp 1", "lesson.cu:30", "lesson.cu:33"], twin=TOLD_BY.replace("TELL",
           "bar.arrive 1, 256;").replace("HEARD", "256"), block=256, directives=WGMMA_SHARED, params=".param .u64 data",
           args=["buf:u32:8"], options=["--wgmma-wait-per-warp"]),
    Defect("race", "a wait for the first of two products, of which other warps have waited for both",
           LATE_WAIT.replace("OWN", "<<1||0>>"), ["what another thread read", "lesson.cu:30", "lesson.cu:33"],
           block=256, directives=WGMMA_SHARED, params=".param .u64 data", args=["buf:u32:1"]),
    Defect("async-in-flight", "one warp of a warpgroup waits for A", STORED_AGAIN.replace("AHEAD",
           "<<@%other bra.uni ready;||" + ARRIVE_LATER + ">>").replace("BEHIND", "<<" + ARRIVE_LATER + "||>>"),
           ["This thread writes shared memory", "while a wgmma or a bulk copy may still read it", "lesson.cu:33"],
           block=256, directives=WGMMA_SHARED),
    Defect("async-in-flight", "one warp of a warpgroup waits for what its product reads", COPIED.replace("OTHERS",
           "<<@%q bra.uni multiply;||>>"), ["reads shared memory", "lesson.cu:30", "lesson.cu:35"],
           block=128, directives=WGMMA_SHARED, params=".param .u64 data", args=["buf:u32:5"]),
    Defect("async-in-flight", "a wait for the copy behind", TWO_COPIES.replace("WAITS", "<<||third:\n"
           "mbarrier.try_wait.parity.shared.b64 %done, [%s+512], 0;\n@!%done bra third;>>"), ["reads shared memory",
           "lesson.cu:45", "lesson.cu:47"], **BYTES),
    Defect("register-in-flight", "an accumulator is read too early", FENCED + WGMMA + CHANGE + WGMMA_WAIT, ["%d1",
           "wgmma.wait_group", "lesson.cu:30"], twin=FENCED + WGMMA + WGMMA_WAIT + CHANGE, block=128,
           directives=WGMMA_SHARED),
    Defect("wgmma-misuse", "no wgmma.fence after a change", FENCED + WGMMA + WGMMA_WAIT + CHANGE + "<<" + PRODUCT + "||"
           + WGMMA + ">>" + WGMMA_WAIT, ["%d1", "wgmma.fence"], block=128, directives=WGMMA_SHARED),
    Defect("wgmma-misuse", "warps disagree", FENCED + "<<setp.ge.u32 %q, %t, 96;\n@%q add.s64 %y, %y, 1;\n"
           "||add.s64 %y, %y, 1;\n>>" + WGMMA + WGMMA_WAIT, ["warps 0 and 3", "different descriptors of B"], block=128,
           directives=WGMMA_SHARED),
    Defect("out-of-bounds", "a descriptor beyond shared memory", FENCED + "<<add.s64 %y, %y, 256;\n||>>" + WGMMA
           + WGMMA_WAIT, ["descriptor of B", "4096 bytes"], block=128, directives=WGMMA_SHARED),
    Defect("missing-proxy-fence", "stores go to wgmma unfenced", WGMMA_START.replace("PROXY", "") + WGMMA + WGMMA_WAIT,
           ["fence.proxy.async", "ordinary store"], twin=FENCED + WGMMA + WGMMA_WAIT, block=128,
           directives=WGMMA_SHARED),
    Defect("async-in-flight", "a slot is filled while wgmma reads it", FENCED + WGMMA + "<<.loc 1 33 0\n"
           "st.shared.u32 [%a+2048], 1;\n" + WGMMA_WAIT + "||" + WGMMA_WAIT + "bar.sync 1, 128;\n.loc 1 33 0\n"
           "st.shared.u32 [%a+2048], 1;\n>>", ["may still read it", "lesson.cu:33", "lesson.cu:30"], block=128,
           directives=WGMMA_SHARED),
    Defect("race", "a slot is filled without asking the readers", OTHER_WARPGROUP.replace("TELL",
           "<<||bar.arrive 2, 256;>>").replace("HEAR", "<<||bar.sync 2, 256;>>"), ["lesson.cu:33", "lesson.cu:30"],
           block=256, directives=WGMMA_SHARED),
    Defect("race", "a flag in global memory says that a slot was read", AFTER_THE_READERS.replace("TELL",
           "<<||bar.arrive 2, 256;>>").replace("HEAR", "<<||bar.sync 2, 256;>>"), ["lesson.cu:33", "lesson.cu:30",
           "writes what another thread read"], block=256, params=".param .u64 data", args=["buf:u32:8"],
           directives=WGMMA_SHARED),
    Defect("bad-tensor-map", "another number of dimensions", tensor("2d", "{0, 0}").split("wait:")[0] + "wait:",
           ["1 dimensions", "names 2"], twin=tensor(), **TENSOR_ENTRY),
    Defect("deadlock", "more bytes expected than come", tensor(size=256), ["128 bytes that no copy brings"],
           twin=tensor(), status=3, **TENSOR_ENTRY),
    Defect("deadlock", "fewer bytes expected than come", tensor(size=64), ["64 bytes too many"], twin=tensor(),
           status=3, **TENSOR_ENTRY),
    Defect("async-in-flight", "read before the phase is complete", tensor().replace("wait:", "ld.shared.u32 %t, [%s];\n"
           "wait:"), ["bulk copy", "in flight"], twin=tensor() + "\nld.shared.u32 %t, [%s];", **TENSOR_ENTRY),
    Defect("register-in-flight", "an accumulator of two halves is read too early", FENCED + ".reg .b32 %h<2>;\n"
           + WGMMA.replace("f32.f16.f16 {%d0, %d1, %d2, %d3}, %x, %y, 1,", "f16.f16.f16 {%h0, %h1}, %x, %y, 0,")
           + "<<.loc 1 32 0\nadd.u32 %t, %h1, 1;\n||>>" + WGMMA_WAIT + "add.u32 %t, %h1, 1;", ["%h1", "lesson.cu:32"],
           **ON_WARPGROUP),
    Defect("register-in-flight", "a part of A is changed too early", FENCED + FROM_REGISTERS + "<<.loc 1 32 0\n"
           "add.u32 %r1, %t, 1;\n" + WGMMA_WAIT + "||" + WGMMA_WAIT + ".loc 1 32 0\nadd.u32 %r1, %t, 1;\n>>", ["%r1",
           "written", "a part of A", "lesson.cu:32", "lesson.cu:30"], **ON_WARPGROUP),
    Defect("register-in-flight", "a part of A is read too early", FENCED + FROM_REGISTERS + "<<.loc 1 32 0\n"
           "add.u32 %t, %r1, 1;\n" + WGMMA_WAIT + "||" + WGMMA_WAIT + ".loc 1 32 0\nadd.u32 %t, %r1, 1;\n>>", ["%r1",
           "read", "a part of A"], **ON_WARPGROUP),
    Defect("register-in-flight", "an unfinished accumulator is a part of A", wide(FENCED) + WGMMA + "<<||" + WGMMA_WAIT
           + "wgmma.fence.sync.aligned;\n>>" + PRODUCT.replace("%x, %y, 1, 1, 1, 0, 0",
           "{%b0, %b1, %b2, %b3}, %y, 1, 1, 1, 0").replace("%d", "%e").replace("%b", "%d") + WGMMA_WAIT, ["%d0", "read",
           "adds to it"], **ON_WARPGROUP),
    Defect("wgmma-misuse", "no wgmma.fence at all", FENCED + PRODUCT + WGMMA_WAIT, ["the first wgmma of the warp",
           "wgmma.fence"], twin=FENCED + WGMMA + WGMMA_WAIT, **ON_WARPGROUP),
    Defect("wgmma-misuse", "no wgmma.fence after a read", wide(FENCED) + WGMMA + WGMMA_WAIT + READ + "<<" + PRODUCT
           + "||" + WGMMA + ">>" + WGMMA_WAIT, ["%d1", "was used by another instruction"], **ON_WARPGROUP),
    Defect("wgmma-misuse", "products of two shapes add to a register", wide(FENCED) + WGMMA + "<<||" + WGMMA_WAIT + ">>"
           + SIXTEEN_COLUMNS + WGMMA_WAIT, ["%d0", "with 16 columns", "an unfinished one with 8"], **ON_WARPGROUP),
    Defect("wgmma-misuse", "an address in bytes as a descriptor", FENCED + "<<or.b64 %y, %y, 0x4000;\n||>>" + WGMMA
           + WGMMA_WAIT, ["descriptor of B", "bits 0x4000 that belong to no field"], **ON_WARPGROUP),
    Defect("wgmma-misuse", "lanes disagree on a descriptor", FENCED
           + "<<setp.eq.u32 %q, %t, 5||setp.ge.u32 %q, %t, 0>>;\n@%q add.s64 %y, %y, 1;\n" + WGMMA + WGMMA_WAIT,
           ["different descriptors of B", "lane 5"], **ON_WARPGROUP),
    Defect("wgmma-misuse", "lanes disagree on scale-d", FENCED + "setp.ne.u32 %q, %t, <<5||128>>;\n"
           + WGMMA.replace("%y, 1,", "%y, %q,") + WGMMA_WAIT, ["scale-d", "31 of 32", "lane 5"], **ON_WARPGROUP),
    Defect("deadlock", "a warp of the warpgroup stays away", FENCED + "setp.ge.u32 %q, %t, <<96||128>>;\n@%q bra end;\n"
           + WGMMA + WGMMA_WAIT + "end:", ["warp 3 has issued 0 wgmma, this warp 1", "lesson.cu"], status=3,
           **ON_WARPGROUP),
    Defect("uninitialised-shared", "wgmma takes what nothing wrote", FENCED.replace("@%q st.shared.u32 [%a+2048], 0;\n",
           "") + WGMMA + WGMMA_WAIT, ["has not written", "lesson.cu:30"], twin=FENCED + WGMMA + WGMMA_WAIT,
           **ON_WARPGROUP),
    Defect("wgmma-misuse", "setmaxnreg.inc to fewer registers", TAKE.replace("256", "<<240||248>>").replace("GIVE", ""),
           ["setmaxnreg.inc 240 in a warp whose threads have 248", "may only grow"], block=256),
    Defect("wgmma-misuse", "setmaxnreg.dec to more registers", TAKE.replace("GIVE",
           "setmaxnreg.dec.sync.aligned.u32 256;").replace("inc.sync.aligned.u32 256", "inc.sync.aligned.u32 248"),
           ["setmaxnreg.dec 256 in a warp whose threads have 248", "may only shrink"], twin=TAKE.replace("GIVE",
           "setmaxnreg.dec.sync.aligned.u32 240;"), block=256),
    Defect("wgmma-misuse", "warps of a warpgroup ask for different registers", TAKE.replace("@!%q bra.uni take;",
           "setp.ge.u32 %q, %t, 96;\n@%q bra.uni take;").replace("GIVE",
           "setmaxnreg.dec.sync.aligned.u32 <<40||32>>;").replace("inc", "dec").replace("256", "32"), ["Warps 3 and 0",
           "ask for 32 and 40"], block=128),
    Defect("deadlock", "more registers than the CTA has", TAKE.replace("GIVE",
           "<<||setmaxnreg.dec.sync.aligned.u32 240;>>"), ["lesson.cu",
           "it requests 256 registers per thread, 8192 in all; the CTA began with 63488", "leave 7936"], block=256,
           status=3),
    Defect("barrier-misuse", "a phase completes without the bytes of its copy", bytes_in(ARRIVE="",
           AFTER="mbarrier.arrive.shared.b64 %state, [%s+512];\n" + AGAIN, END=SECOND), ["Phase 0 of the mbarrier",
           "this copy of 64 bytes was still under way", "lesson.cu:40"], twin=bytes_in(ARRIVE="", AFTER=AGAIN),
           **BYTES),
    Defect("barrier-misuse", "an mbarrier expects a megabyte",
           bytes_in(AFTER="mbarrier.expect_tx.relaxed.cta.shared.b64 [%s+512], <<1048576;\n"
           "mbarrier.complete_tx.relaxed.cta.shared.b64 [%s+512], 1048576||1048511;\n"
           "mbarrier.complete_tx.relaxed.cta.shared.b64 [%s+512], 1048511>>;"), ["expects 1048640 bytes",
           "up to 1048575"], **BYTES),
    Defect("barrier-misuse", "no mbarrier for the bytes of a copy",
           bytes_in().replace("bytes [%s], [%p], %bytes, [%s+512]",
           "bytes [%s], [%p], %bytes, [%s+520]").replace("expect_tx.shared.b64 %state, [%s+512], 64",
           "expect_tx.shared.b64 %state, [%s+512], 0").replace("ld.shared.u32 %y, [%s];", ""),
           ["There is no mbarrier at", "for this copy"], twin=bytes_in(), **BYTES),
    Defect("barrier-misuse", "an mbarrier ends while a copy counts at it",
           bytes_in(AFTER="mbarrier.inval.shared.b64 [%s+512];\n" + START_AGAIN).replace("wait:\n", "wait:\n"
           "bar.sync 0;\n", 1), ["ends while a copy of 64 bytes", "lesson.cu:40"], twin=bytes_in(END="bar.sync 0;\n"
           "@!%q bra end;\nmbarrier.inval.shared.b64 [%s+512];\nend:"), **BYTES),
    Defect("missing-init-fence", "a copy counts at an mbarrier that was not fenced", bytes_in(INIT_FENCE=""),
           ["fence.mbarrier_init", "lesson.cu:40", "mbarrier at"], twin=bytes_in(), **BYTES),
    Defect("missing-init-fence", "a thread that did not initialize executes the fence",
           bytes_in(INIT_FENCE="<<@!%q fence.mbarrier_init.release.cluster||fence.proxy.async.shared::cta>>;"),
           ["fence.mbarrier_init"], **BYTES),
    Defect("async-in-flight", "a phase is waited for twice", bytes_in(END=COPY_TWICE + "again:\n"
           "<<mbarrier.try_wait.parity.shared.b64 %done, [%s+512], 0;\n@!%done bra again;\n.loc 1 43 0\n"
           "ld.shared.u32 %y, [%s];\nmore:\nmbarrier.try_wait.parity.shared.b64 %done, [%s+512], 1;\n"
           "@!%done bra more;\n||mbarrier.try_wait.parity.shared.b64 %done, [%s+512], 1;\n@!%done bra again;\n"
           ".loc 1 43 0\nld.shared.u32 %y, [%s];\n>>"), ["phase 1 of the mbarrier",
           "last waited for phase 0, more than once: its parity did not change", "lesson.cu:42", "lesson.cu:43"],
           **BYTES),
    Defect("async-in-flight", "a second copy to where a phase was waited for once", bytes_in(END=COPY_TWICE
           + "<<.loc 1 43 0\nld.shared.u32 %y, [%s];\n" + SECOND + "||" + SECOND + "\n.loc 1 43 0\n"
           "ld.shared.u32 %y, [%s];>>"), ["phase 1 of the mbarrier", "last waited for phase 0.", "lesson.cu:42",
           "lesson.cu:43"], **BYTES),
    Defect("async-in-flight", "a copy to where another is in flight", bytes_in(AFTER=COPY_IN.replace("[%s],",
           "[%s<<||+64>>],"), ARRIVE=AGAIN.replace("64;", "128;")), ["starts another copy", "lesson.cu:40"], **BYTES),
    Defect("race", "a copy to where a thread has stored", bytes_in(BEFORE="@!%q st.shared.u32 [%s+<<0||64>>], 1;"),
           ["writes what another thread wrote", "lesson.cu:40"], **BYTES),
    Defect("deadlock", "a warp comes too late for two phases", MBARRIER + "@%q mbarrier.init.shared.b64 [%s], 1;\n"
           "bar.sync 0;\nsetp.ge.u32 %q, %t, 32;\n@%q bra.uni late;\nsetp.eq.u32 %q, %t, 0;\n"
           "@%q mbarrier.arrive.shared.b64 %state, [%s];\nbar.sync 1, 64;\n"
           "@%q mbarrier.arrive.shared.b64 %state, [%s];\n<<@%q mbarrier.arrive.shared.b64 %state, [%s];\n"
           "||>>bar.sync 2, 64;\nbra.uni end;\nlate:\nmbarrier.try_wait.parity.shared.b64 %done, [%s], 0;\n"
           "@!%done bra late;\nbar.sync 1, 64;\nbar.sync 2, 64;\n.loc 1 70 0\nwait:\n"
           "mbarrier.try_wait.parity.shared.b64 %done, [%s], 1;\n@!%done bra wait;\nend:", ["warp 1: source line 70",
           "last waited for phase 0; phases 1 to 2 have completed since"], status=3),
    Defect("async-in-flight", "the CTA ends before a copy has landed", bytes_in(END="").replace("wait:\n", "bra end;\n"
           "wait:\n").replace("bra wait;\nmbarrier", "bra end;\nmbarrier") + "end:", ["The CTA ends",
           "may still write its shared memory", "lesson.cu:40"], twin=bytes_in(), **BYTES),
    Defect("async-in-flight", "the CTA ends while a copy reads its memory", bytes_out(COPY_OUT + "<<||" + WAIT_OUT
           + ">>"), ["The CTA ends", "may still read its shared memory", "wait_group.read 0", "lesson.cu:51"],
           **OUTPUT),
    Defect("async-in-flight", "a copy that is in no group", bytes_out(COPY_OUT.replace("cp.async.bulk.commit_group;\n",
           "") + WAIT_OUT), ["The CTA ends", "commit_group"], twin=bytes_out(COPY_OUT + WAIT_OUT), **OUTPUT),
    Defect("async-in-flight", "what a copy reads is overwritten", bytes_out(COPY_OUT + "<<.loc 1 52 0\n"
           "st.shared.u32 [%s+8], 1;\n" + WAIT_OUT + "||" + WAIT_OUT + ".loc 1 52 0\nst.shared.u32 [%s+8], 1;\n>>"),
           ["may still read it", "lesson.cu:52", "lesson.cu:51"], **OUTPUT),
    Defect("missing-proxy-fence", "warps fence after the barrier that tells of their stores",
           WGMMA_START.replace("PROXY", FENCE_OF_WARP_0).replace("bar.sync 0;", "bar.sync 0;\n"
           "@!%q fence.proxy.async.shared::cta;") + WGMMA + WGMMA_WAIT, ["fence.proxy.async", "ordinary store"],
           twin=FENCED + WGMMA + WGMMA_WAIT, options=["--schedule", "1"], **ON_WARPGROUP),
    Defect("missing-proxy-fence", "the warp that reads fences before it knows of the stores",
           WGMMA_START.replace("PROXY", FENCE_OF_WARP_0) + WGMMA + WGMMA_WAIT, ["fence.proxy.async", "ordinary store"],
           twin=WGMMA_START.replace("PROXY", "").replace("bar.sync 0;", "bar.sync 0;\nfence.proxy.async.shared::cta;")
           + WGMMA + WGMMA_WAIT, **ON_WARPGROUP),
    Defect("missing-init-fence", "another warp copies before it knows of the fence", BY_WARP_1.replace("bar.sync 0;",
           "<<bar.sync 0;\n@%q fence.mbarrier_init.release.cluster||fence.mbarrier_init.release.cluster;\n"
           "bar.sync 0>>;"), ["fence.mbarrier_init", "lesson.cu:40"], options=["--schedule", "2"], **BYTES),
    Defect("missing-proxy-fence", "the fence is of global memory", bytes_out(COPY_OUT
           + WAIT_OUT).replace("async.shared::cta;", "<<async.global||async>>;"), ["fence.proxy.async", "lesson.cu:50",
           "lesson.cu:51"], **OUTPUT),
    Defect("uninitialised-shared", "a copy takes what nothing wrote", bytes_out(COPY_OUT + WAIT_OUT,
           STORES.replace("st.shared.u32 [%s+60], 60;\n", "")), ["has not written", "lesson.cu:51"],
           twin=bytes_out(COPY_OUT + WAIT_OUT), **OUTPUT),
    Defect("output-never-written", "a copy is too short", bytes_out(COPY_OUT.replace("64;", "48;") + WAIT_OUT),
           ["16 of 64 bytes"], twin=bytes_out(COPY_OUT + WAIT_OUT), **OUTPUT),
    Defect("output-written-twice", "two copies to one address", bytes_out(COPY_OUT + "<<cp.async.bulk.wait_group 0;\n"
           + COPY_OUT + "||>>" + WAIT_OUT), ["lesson.cu:51"], **OUTPUT),
    Defect("misaligned", "a size that is no multiple of 16", bytes_in(BEFORE="mov.u32 %bytes, 40;",
           ARRIVE="mbarrier.arrive.shared.b64 %state, [%s+512];", END=""), ["A bulk copy of 40 bytes",
           "a multiple of 16", "lesson.cu:40"], twin=bytes_in(), **BYTES),
    Defect("misaligned", "a target at half of 16 bytes", bytes_in(END="",
           ARRIVE="mbarrier.arrive.shared.b64 %state, [%s+512];").replace("[%s],", "[%s+8],"), ["target of a bulk copy",
           "a multiple of 16", "lesson.cu:40"], twin=bytes_in(END="").replace("[%s],", "[%s+16],"), **BYTES),
    Defect("misaligned", "a box at half of 128 bytes",
           tensor().replace("bytes [%s], [%m", "bytes [%s+64], [%m").split("wait:")[0] + "wait:",
           ["target of a bulk copy", "a multiple of 128", "lesson.cu:40"], twin=tensor().replace("bytes [%s], [%m",
           "bytes [%s+128], [%m"), **TENSOR_ENTRY),
    Defect("out-of-bounds", "a box beyond shared memory",
           tensor().replace("bytes [%s], [%m", "bytes [%s+1024], [%m").split("wait:")[0] + "wait:",
           ["target of a bulk copy", "1024 bytes of the CTA", "lesson.cu:40"], twin=tensor().replace("bytes [%s], [%m",
           "bytes [%s+896], [%m"), **TENSOR_ENTRY),
    Defect("out-of-bounds", "a bulk copy beyond a buffer", bytes_in(END="",
           ARRIVE="mbarrier.arrive.shared.b64 %state, [%s+512];").replace("[%p]", "[%p+80]"), ["argument 0",
           "lesson.cu:40"], twin=bytes_in().replace("[%p]", "[%p+64]"), **BYTES),
    Defect("misaligned", "a tensor map at half of 64 bytes",
           tensor().replace("cvta.param.u64 %m, %m;", "cvta.param.u64 %m, %m;\nadd.s64 %m, %m, 32;").split("wait:")[0]
           + "wait:", ["The tensor map is at", "a multiple of 64", "lesson.cu:40"], twin=tensor(), **TENSOR_ENTRY),
    Defect("bad-tensor-map", "other bytes as a tensor map",
           tensor().replace("mov.b64 %m, data; cvta.param.u64 %m, %m;", "ld.param.u64 %m, [data+128];")
           .split("wait:")[0] + "wait:", ["are not a tensor map", "emu_make_tensor_map", "lesson.cu:40"], twin=tensor(),
           params=".param .align 64 .b8 data[192]", args=["struct:[tmap:64:64:none:buf:f16:64,buf:u8:128]"],
           directives=".shared .align 128 .b8 smem[1024];"),
]  # fmt: skip
