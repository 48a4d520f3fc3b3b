"""Defects that one CTA without wgmma and TMA can have."""

from support.defects import MBARRIER, Defect

POINTER = ".param .u64 data"

START = """.reg .b32 %s, %x, %y, %t;
.reg .b64 %p; .reg .pred %q;
.loc 1 10 0
mov.u32 %t, %tid.x; mov.u32 %s, smem; mad.lo.s32 %s, %t, 4, %s;
"""
LOAD_POINTER = "ld.param.u64 %p, [data];\n"
# HERE computes the result in %y.
KEEP = START + LOAD_POINTER + "HERE\n.loc 1 14 0\nmad.wide.u32 %p, %t, 4, %p;\nst.global.u32 [%p], %y;"
# Warp 2 adds to a word; warp 0 sets a flag; warp 1 waits for it, adds to the word and reads it.
COVERED = """.reg .b32 %s, %t, %x;
.reg .pred %first, %adds, %waits;
mov.u32 %t, %tid.x; mov.u32 %s, smem; setp.eq.u32 %first, %t, 0; setp.eq.u32 %adds, %t, 64;
setp.eq.u32 %waits, %t, 32; @%first st.shared.u32 [%s], 0; @%first st.shared.u32 [%s+4], 0;
bar.sync 0;
.loc 1 11 0
@%adds red.shared.add.u32 [%s], 1;
HELD@%first st.release.cta.shared.u32 [%s+4], 1;
@!%waits bra end;
wait:
ld.acquire.cta.shared.u32 %x, [%s+4]; setp.eq.u32 %first, %x, 0;
@%first bra wait;
red.shared.add.u32 [%s], 1;
.loc 1 12 0
ld.shared.u32 %x, [%s];
end:"""
ASYNC = START + LOAD_POINTER + "mad.wide.u32 %p, %t, 4, %p;\n.loc 1 20 0\ncp.async.ca.shared.global [%s], [%p], 4;\n"
# Warp 1 reads 32 words and one of its lanes says so at an mbarrier, at which warp 0 waits before it writes them.
HANDED_OVER = (
    MBARRIER
    + """.reg .b32 %a, %x;
.reg .pred %writes;
@%q mbarrier.init.shared.b64 [%s], 1; and.b32 %a, %t, 31; mad.lo.s32 %a, %a, 4, %s;
setp.lt.u32 %writes, %t, 32; @%writes st.shared.u32 [%a+64], 0;
bar.sync 0;
@%writes bra wait;
.loc 1 11 0
ld.shared.u32 %x, [%a+64];
SYNC
setp.eq.u32 %q, %t, 32; @%q mbarrier.arrive.shared.b64 %state, [%s];
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
@%q mbarrier.init.shared.b64 [%s], 1; @%q st.shared.u32 [%s+64], 0;
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
ld.acquire.cta.shared.u32 %x, [smem+512]; setp.eq.u32 %q, %x, 0;
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
and.b32 %x, %t, 31; setp.ne.u32 %q, %x, 0;
@%q bra end;
take:
atom.acquire.cta.shared.cas.b32 %x, [smem+512], 0, 1; setp.ne.u32 %q, %x, 0;
@%q bra take;
.loc 1 11 0
ld.shared.u32 %y, [smem+516]; add.u32 %y, %y, 1; st.shared.u32 [smem+516], %y;
GIVE %x, [smem+512], 0;
end:"""
)

# Accesses by generic addresses, as compilers write them, and by accesses without an order and fences.
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
setp.eq.u32 %q, %t, 0; @%q st.shared.u32 [%s], 0;
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
st.shared.v4.u32 [%s], {0, 0, 0, 0}; st.shared.v4.u32 [%s+512], {0, 0, 0, 0}; and.b32 %x, %t, 7;
shl.b32 %x, %x, 4; mov.u32 %s, smem; add.u32 %s, %s, %x;
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
mad.lo.s32 %o, %m, 4, %o; setp.lt.u32 %low, %t, 16; selp.b32 %m, 0xffff, 0xffff0000, %low;
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
mov.u64 %w, what; cvta.global.u64 %w, %w; mov.u64 %f, where; cvta.global.u64 %f, %f;
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

WARPS = [
    Defect("race", "a store and a load of another warp", START + "<<st.shared.u32 [%s], 0;\nbar.sync 0;\n.loc 1 11 0\n"
           "st.shared.u32 [%s], %t;\n||.loc 1 11 0\nst.shared.u32 [%s], %t;\nbar.sync 0;\n>>xor.b32 %x, %s, 128;\n"
           ".loc 1 13 0\nld.shared.u32 %y, [%x];", ["lesson.cu:11", "lesson.cu:13", "CTA (0, 0, 0)", "warp 0", "warp 1",
           "lane"]),
    Defect("race", "lanes that the mask of a __syncwarp leaves out", by_halves(16, ITS_HALF), ["in shared memory",
           "lesson.cu:11", "lesson.cu:12", "__syncwarp"], twin=by_halves(15, ITS_HALF), block=32),
    Defect("race", "a __syncwarp of each half, at two places", by_halves(16, APART + "<<||\nbar.warp.sync -1;>>"),
           ["in shared memory", "lesson.cu:11", "lesson.cu:12"], block=32),
    Defect("race", "lanes outside of a __syncwarp write what those in it have read", by_halves(15, "<<" + ITS_HALF
           + "\n.loc 1 13 0\n@%low st.shared.u32 [%s+64], 0;||bar.warp.sync -1;\n.loc 1 13 0\n"
           "@%low st.shared.u32 [%s+64], 0;\nbar.warp.sync -1;>>").replace("ld.shared.u32", "@!%low ld.shared.u32"),
           ["in shared memory", "lesson.cu:11", "lesson.cu:13"], block=32),
    Defect("race", "a store and a load of another lane of the warp", START + ".loc 1 11 0\nst.shared.u32 [%s], %t;\n"
           "<<||bar.warp.sync -1;\n>>xor.b32 %x, %s, 4;\n.loc 1 13 0\nld.shared.u32 %y, [%x];", ["lesson.cu:11",
           "lesson.cu:13", "warp 0"], block=32),
    Defect("race", "a store and a load of another lane behind a barrier of the warp", START + "st.shared.u32 [%s], 0;\n"
           "bar.warp.sync -1;\n.loc 1 11 0\nst.shared.u32 [%s], %t;\n<<||bar.warp.sync -1;\n>>xor.b32 %x, %s, 4;\n"
           ".loc 1 13 0\nld.shared.u32 %y, [%x];", ["lesson.cu:11", "lesson.cu:13", "warp 0"], block=32),
    Defect("race", "a load of another lane and a store: a thread may load and store its own", START
           + "st.shared.u32 [%s], %t;\nbar.sync 0;\n<<xor.b32 %x, %s, 4;\n.loc 1 11 0\nld.shared.u32 %y, [%x];\n"
           "||.loc 1 11 0\nld.shared.u32 %y, [%s];\n>>.loc 1 13 0\nst.shared.u32 [%s], %y;", ["lesson.cu:11",
           "lesson.cu:13"]),
    Defect("race", "two stores of different values", START + "mov.u32 %x, smem;\n<<.loc 1 11 0\n"
           "st.shared.u32 [%x], %t;||setp.eq.u32 %q, %t, 0;\n.loc 1 11 0\n@%q st.shared.u32 [%x], %t;>>",
           ["lesson.cu:11"]),
    Defect("race", "two warps that load different values into one table", START + "and.b32 %x, %t, 31;\n"
           "shl.b32 %y, %x, 2;\nmov.u32 %s, smem;\nadd.s32 %s, %s, %y;\n.loc 1 11 0\nst.shared.u32 [%s], <<%t||%x>>;",
           ["lesson.cu:11", "warp 0", "warp 1"]),
    Defect("race", "a flag that an ordinary store sets", FLAGGED.replace("SET",
           "<<st.volatile.shared.u32||st.release.cta.shared.u32>>"), ["lesson.cu:11", "lesson.cu:13"]),
    Defect("race", "a flag that an ordinary store sets, at a generic address", ANYWHERE.replace("STORE",
           "<<volatile||release.cta>>").replace("LOAD", "<<volatile||acquire.cta>>"), ["lesson.cu:11", "lesson.cu:13"]),
    *(
        Defect("race", f"a relaxed flag {what}", relaxed(*bad), ["lesson.cu:11", "lesson.cu:13"], twin=relaxed(*good))
        for what, bad, good in (
            ("in a program without fences", ("relaxed", "relaxed"), ("release", "acquire")),
            ("that is acquired without a fence", ("release", "relaxed"), ("release", "relaxed", "", CTA_FENCE)),
            ("that is released without a fence", ("relaxed", "acquire"), ("relaxed", "acquire", CTA_FENCE)),
            ("with a fence on one side", ("relaxed", "relaxed", CTA_FENCE), ("relaxed",) * 2 + (CTA_FENCE,) * 2),
            ("with a fence on the other", ("relaxed", "relaxed", "", CTA_FENCE), ("relaxed",) * 2 + (CTA_FENCE,) * 2),
        )
    ),
    Defect("race", "a relaxed wait at an mbarrier, without a fence", relaxed_wait("<<||" + CTA_FENCE + ">>"),
           ["lesson.cu:11", "lesson.cu:13"]),
    Defect("race", "a relaxed arrival at an mbarrier, without a fence", relaxed_arrival("<<||" + CTA_FENCE + ">>"),
           ["lesson.cu:11", "lesson.cu:13"]),
    Defect("race", "a volatile flag without fences", FENCED.replace("FENCE", "<<||membar.cta;>>"), ["lesson.cu:11",
           "lesson.cu:13"]),
    Defect("race", "a lock without fences", PLAIN_LOCK.replace("FENCE", "<<||fence.acq_rel.cta;>>"), ["lesson.cu:11",
           "warp 1"]),
    Defect("race", "a lock that is given back without .release", LOCKED.replace("GIVE",
           "<<atom.shared.exch.b32||atom.release.cta.shared.exch.b32>>"), ["lesson.cu:11", "warp 1"]),
    Defect("race", "a store and an atomic", START + "mov.u32 %x, smem;\nsetp.eq.u32 %q, %t, 0;\n"
           "@%q st.shared.u32 [%x], 0;\n<<||bar.sync 0;\n>>atom.shared.add.u32 %y, [%x], 1;"),
    Defect("race", "an atomic over one of another warp, which a load would miss",
           COVERED.replace("HELD", "<<||bar.sync 0;\n>>"),
           ["lesson.cu:11", "lesson.cu:12", "updated"], block=96),
    Defect("race", "a lane that tells of its own reads alone", HANDED_OVER.replace("SYNC",
           "<<||bar.warp.sync 0xffffffff;>>"), ["lesson.cu:11", "lesson.cu:13", "warp 0", "warp 1"]),
    Defect("race", "a lane that reads with its warp and does not arrive", READ_TOGETHER.replace("ARRIVALS",
           "<<31||32>>"), ["lesson.cu:11", "lesson.cu:13", "lane 31"], block=32),
    Defect("race", "a store and a load of another lane behind a barrier of some warps", START
           + "st.shared.u32 [%s], 0;\nbar.sync 1, 64;\n.loc 1 11 0\nst.shared.u32 [%s], %t;\n<<||bar.warp.sync -1;\n"
           ">>xor.b32 %x, %s, 4;\n.loc 1 13 0\nld.shared.u32 %y, [%x];", ["lesson.cu:11", "lesson.cu:13"]),
    Defect("race", "lanes that read, write and read one word", THREE_LANES.replace("SYNC", "<<||bar.warp.sync -1;>>"),
           ["lesson.cu:11", "lesson.cu:13", "lesson.cu:15"], block=32),
    Defect("race", "a store after the arrival that tells of it", TOLD.replace("BEFORE", "<<||" + STORE
           + ">>").replace("AFTER", "<<" + STORE + "||>>"), ["lesson.cu:11", "lesson.cu:13"]),
    Defect("async-in-flight", "a copy that nothing waits for", ASYNC + "cp.async.commit_group;\n"
           "<<||cp.async.wait_group 0;\n>>.loc 1 22 0\nld.shared.u32 %y, [%s];", ["lesson.cu:20", "lesson.cu:22",
           "cp.async", "lane"], params=POINTER, args=["buf:u32:64:ramp"]),
    Defect("async-in-flight", "a copy outside of the group that is waited for", ASYNC
           + "<<cp.async.wait_group 0||cp.async.wait_all>>;\n.loc 1 22 0\nld.shared.u32 %y, [%s];", ["lesson.cu:20",
           "lesson.cu:22"], params=POINTER, args=["buf:u32:64:ramp"]),
    Defect("async-in-flight", "the newest of two groups", ASYNC + "cp.async.commit_group;\n.loc 1 21 0\n"
           "cp.async.ca.shared.global [%s+512], [%p], 4;\ncp.async.commit_group;\ncp.async.wait_group 1;\n.loc 1 22 0\n"
           "ld.shared.u32 %y, [%s<<+512]||];\ncp.async.wait_group 0>>;", ["lesson.cu:21", "lesson.cu:22"],
           params=POINTER, args=["buf:u32:64:ramp"]),
    Defect("async-in-flight", "lanes that copy several words to one place", START + LOAD_POINTER + "mov.u32 %s, smem;\n"
           "<<mad.wide.u32 %p, %t, 4, %p;\n||>>.loc 1 20 0\ncp.async.ca.shared.global [%s], [%p], 4;\n"
           "cp.async.wait_all;", ["lesson.cu:20", "lane 1"], params=POINTER, args=["buf:u32:64:ramp"], block=32),
    Defect("uninitialised-shared", "a load before any store of all lanes but lane 0", KEEP.replace("HERE",
           "<<||st.shared.u32 [%s], %t;\n>>mov.u32 %y, 0;\nsetp.ne.u32 %q, %t, 0;\n@%q ld.shared.u32 %y, [%s];"),
           ["lesson.cu:14", "lane 1"], params=POINTER, args=["buf:u32:64:ramp"]),
    Defect("uninitialised-shared", "a load before any store", KEEP.replace("HERE", "<<||st.shared.u32 [%s], %t;\n"
           ">>.loc 1 12 0\nld.shared.u32 %y, [%s];"), ["lesson.cu:12", "lesson.cu:14", "lane 0"], params=POINTER,
           args=["buf:u32:64"]),
    Defect("uninitialised-shared", "half of a load was stored", KEEP.replace("HERE", "mad.lo.s32 %s, %t, 4, %s;\n"
           "st.shared.u32 [%s], %t;\n.loc 1 12 0\nld.shared.v2.u32 {<<%x, %y||%y, %x>>}, [%s];"), ["lesson.cu:12"],
           params=POINTER, args=["buf:u32:64"]),
    Defect("uninitialised-register", "a register that only some lanes set", START + LOAD_POINTER
           + "setp.lt.u32 %q, %t, 5;\n<<@%q mov.u32 %x, 1;\nadd.u32 %y, %x, 1;\nmad.wide.u32 %p, %t, 4, %p;\n"
           ".loc 1 12 0\n||mov.u32 %x, 0;\n@%q mov.u32 %x, 1;\n.loc 1 12 0\nadd.u32 %y, %x, 1;\n"
           "mad.wide.u32 %p, %t, 4, %p;\n>>st.global.u32 [%p], %y;", ["lesson.cu:12", "%x"], params=POINTER,
           args=["buf:u32:64"]),
    Defect("out-of-bounds", "a load past a buffer", START + LOAD_POINTER + "mad.wide.u32 %p, %t, 4, %p;\n.loc 1 12 0\n"
           "ld.global.u32 %y, [%p<<+4||>>];", ["lesson.cu:12", "warp 1", "lane 31", "argument 0"], params=POINTER,
           args=["buf:u32:64"]),
    Defect("out-of-bounds", "a load before a buffer", START + LOAD_POINTER + "ld.global.u32 %y, [%p+<<-4||0>>];",
           params=POINTER, args=["buf:u32:64"]),
    Defect("out-of-bounds", "shared memory that is smaller", START + "add.u32 %s, %s, <<772||768>>;\n.loc 1 12 0\n"
           "st.shared.u32 [%s], %t;", ["lesson.cu:12", "lane 31"]),
    Defect("misaligned", "a vector store at half of its size", START + "add.u32 %s, %s, %t;\n"
           "mad.lo.s32 %s, %t, 3, %s;\n.loc 1 12 0\nst.shared.v2.u32 [%s+<<4||8>>], {%t, %t};", ["lesson.cu:12", "8"]),
    Defect("misaligned", "a row of ldmatrix at half of 16 bytes", ROWS.replace("ROW", "[%s+<<8||16>>]"),
           ["lesson.cu:12", "lane 0"], block=32),
    Defect("out-of-bounds", "a row of ldmatrix behind shared memory", ROWS.replace("ROW", "[%s+<<912||896>>]"),
           ["lesson.cu:12", "lane 7"], block=32),
    Defect("misaligned", "a global load", START + LOAD_POINTER + "<<ld.global.u32||ld.global.u16>> %y, [%p+2];",
           params=POINTER, args=["buf:u32:64"]),
    Defect("barrier-misuse", "a count that is no multiple of the warp", START + "mov.u32 %x, <<33||64>>;\n.loc 1 12 0\n"
           "bar.sync 1, %x;", ["lesson.cu:12", "33"], status=3),
    Defect("barrier-misuse", "a barrier that does not exist", START + ".loc 1 12 0\nbar.sync <<16||15>>;",
           ["lesson.cu:12", "16"], status=3),
    Defect("barrier-misuse", "an mbarrier that was not initialized", MBARRIER
           + "@%q <<st.shared.u64 [%s], 0||mbarrier.init.shared.b64 [%s], 64>>;\nbar.sync 0;\n"
           "mbarrier.arrive.shared.b64 %state, [%s];"),
    Defect("barrier-misuse", "a wait at an mbarrier that was not initialized", MBARRIER
           + "@%q <<st.shared.u64 [%s], 0||mbarrier.init.shared.b64 [%s], 64>>;\nbar.sync 0;\nwait:\n"
           "mbarrier.try_wait.parity.shared.b64 %done, [%s], 1;\n@!%done bra wait;", ["There is no mbarrier at"],
           status=3),
    Defect("out-of-bounds", "a wait at an mbarrier past the shared memory, for ever", MBARRIER
           + "@%q mbarrier.init.shared.b64 [%s], 1;\nbar.sync 0;\nwait:\nmbarrier.test_wait.parity.shared.b64 %done, "
           "[%s+<<8192||0>>], 1;\n@<<||!>>%done bra wait;", ["uses the mbarrier of 8 bytes"], status=3),
    Defect("barrier-misuse", "lanes that make one mbarrier with different counts", MBARRIER + "<<shr.u32 %t, %t, 4;\n"
           "add.u32 %t, %t, 32;\nmbarrier.init.shared.b64 [%s], %t;||mbarrier.init.shared.b64 [%s], 32;>>",
           ["initialized a second time", "lane 16"], block=32),
    Defect("barrier-misuse", "an mbarrier that is initialized twice", MBARRIER + "mbarrier.init.shared.b64 [%s], 32;\n"
           "<<mbarrier.init.shared.b64 [%s], 32;||@%q mbarrier.inval.shared.b64 [%s];\nbar.warp.sync -1;\n"
           "@%q mbarrier.init.shared.b64 [%s], 32;>>", ["initialized a second time", "lane 0"], block=32),
    Defect("race", "an mbarrier that ends while another warp may still wait", MBARRIER + ENDED.replace("MEET", ""),
           ["writes what another thread read", "lesson.cu:13", "The other instruction is at lesson.cu:12"],
           twin=MBARRIER + ENDED.replace("MEET", "bar.sync 0;")),
    Defect("divergent-sync", "a shuffle from a lane that has ended", START + LOAD_POINTER + "mad.wide.u32 %p, %t, 4, "
           "%p;\nsetp.lt.u32 %q, %t, <<5||6>>;\n@!%q bra skip;\n.loc 1 12 0\n"
           "shfl.sync.bfly.b32 %y, %t, 1, 0x1f, 0xffffffff;\n.loc 1 13 0\nst.global.u32 [%p], %y;\nskip:",
           ["lesson.cu:13", "does not take part in the shuffle", "lesson.cu:12"], block=32, params=POINTER,
           args=["buf:u32:64"]),
    Defect("divergent-sync", "a value of a lane outside a shuffle's mask", START + LOAD_POINTER + "mad.wide.u32 %p, "
           "%t, 4, %p;\nmov.u32 %y, %t;\nsetp.lt.u32 %q, %t, 6;\n@!%q bra skip;\n.loc 1 12 0\n"
           "shfl.sync.idx.b32 %x, %t, 6, 0x1f, 0x0000003f;\n<<add.u32 %y, %x, 1;||>>\nst.global.u32 [%p], %y;\nskip:",
           ["does not take part in the shuffle", "lesson.cu:12"], block=32, params=POINTER, args=["buf:u32:64"]),
    Defect("deadlock", "a barrier that one warp never reaches", START + "setp.lt.u32 %q, %t, 32;\n@%q bra leave;\n"
           ".loc 1 12 0\nbar.sync 1, <<64||32>>;\nleave:", ["lesson.cu:12", "warp 1"], status=3),
    Defect("livelock", "a flag that nobody sets", START + LOAD_POINTER + "wait:\n.loc 1 12 0\n"
           "ld.volatile.global.u32 %x, [%p];\nsetp.eq.u32 %q, %x, <<0||1>>;\n@%q bra wait;", ["lesson.cu:12", "warp 0",
           "warp 1", "polls 0x"], params=POINTER, args=["buf:u32:64"], status=3),
    Defect("step-limit", "a loop without an end", ".reg .b32 %x;\n<<mov.u32 %x, 0;\nagain:\nadd.u32 %x, %x, 1;\n"
           "bra.uni again;||.reg .pred %q;\nmov.u32 %x, 0;\nagain:\nadd.u32 %x, %x, 1;\nsetp.lt.u32 %q, %x, 100;\n"
           "@%q bra again;>>", ["1000"], block=32, options=["--steps", "1000"], status=3),
    Defect("output-never-written", "half of an output", START + LOAD_POINTER + "mad.wide.u32 %p, %t, 4, %p;\n"
           "st.global.u16 [%p], %t;".replace("u16 [%p], %t", "u16 [%p], 1"), ["argument 0"], twin=START + LOAD_POINTER
           + "mad.wide.u32 %p, %t, 4, %p;\nst.global.u32 [%p], %t;", params=POINTER, args=["out:u32:64"]),
    Defect("output-never-written", "half of an output, the rest by atomics", START + LOAD_POINTER + "and.b32 %t, %t, "
           "<<31||63>>;\nmad.wide.u32 %p, %t, 4, %p;\nred.global.add.u32 [%p], 1;\nred.global.add.u32 [%p], 1;",
           ["argument 0", "128 of 256 bytes"], params=POINTER, args=["out:u32:64"]),
    Defect("output-written-twice", "by every thread", START + LOAD_POINTER + "<<.loc 1 12 0\n"
           "st.global.u32 [%p], 7;||setp.eq.u32 %q, %t, 3;\n.loc 1 12 0\n@%q st.global.u32 [%p], 7;>>", ["lesson.cu:12",
           "argument 0"], params=POINTER, args=["out:u32:1"]),
    Defect("output-written-twice", "by three CTAs", START + LOAD_POINTER + "mad.wide.u32 %p, %t, 4, %p;\n"
           "<<setp.lt.u32 %q, %t, 3;\n.loc 1 12 0\n||mov.u32 %x, %ctaid.x;\nsetp.eq.u32 %q, %t, %x;\n"
           ">>@%q st.global.u32 [%p], 7;", ["lesson.cu:12", "12 bytes of this output", "by CTAs 0 and 2"],
           params=POINTER, args=["out:u32:3"], options=["--grid", "3"]),
    Defect("trap", "trap", START + "setp.eq.u32 %q, %t, <<40||64>>;\n.loc 1 12 0\n@%q trap;", ["lesson.cu:12", "warp 1",
           "lane 8"], status=3),
    Defect("assert", "a device assert", START + "setp.ne.u32 %q, %t, <<40||64>>;\n@%q bra fine;\n" + ASSERT + "fine:",
           ["x > 0", "lesson.cu", "77", "warp 1"], directives=ASSERT_DIRECTIVES, status=3),
]  # fmt: skip
