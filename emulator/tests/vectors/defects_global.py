"""Races in global memory, in a CTA and between CTAs: small programs with one defect each, and their legal twins."""

from typing import Any

from support.defects import SHARED, Defect

# Thread %t of %n in CTA %c; %p is its own word of a, %o that of the thread one warp further, %i their numbers.
START = """.reg .b32 %t, %c, %n, %g, %i, %x, %y, %s;
.reg .b64 %a, %b, %p, %o; .reg .pred %q, %first, %second;
ld.param.u64 %a, [a]; ld.param.u64 %b, [b]; mov.u32 %t, %tid.x; mov.u32 %c, %ctaid.x;
mov.u32 %n, %ntid.x; mov.u32 %g, %nctaid.x; mov.u32 %s, smem; setp.eq.u32 %first, %t, 0;
setp.eq.u32 %second, %c, 1; mad.lo.u32 %i, %c, %n, %t; mad.wide.u32 %p, %i, 4, %a;
xor.b32 %i, %i, 32; mad.wide.u32 %o, %i, 4, %a;
"""
BUFFERS: dict[str, Any] = {"params": ".param .u64 a, .param .u64 b", "args": ["buf:u32:1024", "buf:u32:1024"]}
CONSTANTS: dict[str, Any] = BUFFERS | {"directives": SHARED + ".const .align 4 .b8 table[256];"}
TWO: dict[str, Any] = BUFFERS | {"options": ["--grid", "2"], "block": 32}
FOUR: dict[str, Any] = BUFFERS | {"options": ["--grid", "4"]}


def after_store(between: str) -> str:
    """A word is stored, and the other warp's is loaded."""
    return START + f".loc 1 10 0\nst.global.u32 [%p], %t;\n{between}\n.loc 1 12 0\nld.global.u32 %x, [%o];"


def constant(between: str) -> str:
    """The same with constants, by the address that cuModuleGetGlobal gives to the host."""
    return (
        after_store(between)
        .replace("ld.global.u32", "ld.const.u32")
        .replace("ld.param.u64 %a, [a]", "mov.u64 %a, table")
    )


# Each CTA stores its part, one of its threads draws a ticket, and the CTA that comes last reads all parts.
LAST_CTA = (
    START
    + """.loc 1 20 0
st.global.u32 [%p], %t;
FENCE
MEET
@!%first bra drawn;
BEFORE
.loc 1 22 0
DRAW %x, [%b], 1;
BEHIND
st.shared.u32 [%s], %x;
drawn:
bar.sync 0;
ld.shared.u32 %x, [%s]; add.u32 %x, %x, 1; setp.lt.u32 %q, %x, %g;
@%q bra end;
AFTER
mov.u32 %x, 0;
sum:
mad.lo.u32 %i, %x, %n, %t; xor.b32 %i, %i, 32; mad.wide.u32 %o, %i, 4, %a;
.loc 1 26 0
ld.global.u32 %y, [%o]; add.u32 %x, %x, 1; setp.lt.u32 %q, %x, %g;
@%q bra sum;
end:"""
)
PLAIN, ACQ_REL = "atom.global.add.u32", "atom.acq_rel.gpu.global.add.u32"
BARRIER, THREADFENCE = "bar.sync 0;", "fence.acq_rel.gpu;"


def last_cta(draw: str = PLAIN, **lines: str) -> str:
    text = LAST_CTA.replace("DRAW", draw)
    for name in ("FENCE", "MEET", "BEFORE", "BEHIND", "AFTER"):
        text = text.replace(name, lines.get(name, BARRIER if name == "MEET" else ""))
    return text


# Thread 0 of CTA 1 stores a word and sets a flag, for which all threads of CTA 0 wait before they load the word.
FLAG = (
    START
    + """@%second bra set;
wait:
LOOK %x, [%b];
setp.eq.u32 %q, %x, 0;
@%q bra wait;
HEAR
.loc 1 31 0
ld.global.u32 %y, [%a];
bra.uni end;
set:
@!%first bra end;
.loc 1 32 0
st.global.u32 [%a], 7;
TELL
SET [%b], 1;
end:"""
)


def flag(look: str, set_: str, hear: str = "", tell: str = "") -> str:
    return FLAG.replace("LOOK", look).replace("SET", set_).replace("HEAR", hear).replace("TELL", tell)


RELEASED = flag("ld.acquire.gpu.global.u32", "st.release.gpu.global.u32")
# All CTAs meet at a counter, then each reads the words of the next one.
GRID = (
    START
    + """.loc 1 40 0
st.global.u32 [%p], %t;
bar.sync 0;
@!%first bra meet;
TELL
red.relaxed.gpu.global.add.u32 [%b], 1;
wait:
ld.relaxed.gpu.global.u32 %x, [%b]; setp.lt.u32 %q, %x, %g;
@%q bra wait;
HEAR
meet:
bar.sync 0;
add.u32 %x, %c, 1; rem.u32 %x, %x, %g; mad.lo.u32 %x, %x, %n, %t; mad.wide.u32 %o, %x, 4, %a;
.loc 1 44 0
ld.global.u32 %y, [%o];"""
)
# Thread 0 copies 64 bytes of shared memory to a, and the threads of the other warp load them.
STORED = (
    START
    + """mad.lo.u32 %x, %t, 4, %s;
st.shared.u32 [%x], %t; fence.proxy.async.shared::cta;
bar.sync 0;
@!%first bra copied;
.loc 1 50 0
cp.async.bulk.global.shared::cta.bulk_group [%a], [%s], 64; cp.async.bulk.commit_group;
WAIT
copied:
bar.sync 0;
and.b32 %x, %t, 15; mad.wide.u32 %p, %x, 4, %a;
.loc 1 54 0
ld.global.u32 %y, [%p];"""
)
# Every lane of the first warp copies. If all name the same copy, it is one.
BY_ALL_LANES = (
    STORED.replace("@!%first", "and.b32 %x, %t, <<16||32>>; mad.lo.u32 %x, %x, 4, %s; setp.ge.u32 %q, %t, 32;\n@%q")
    .replace("[%a], [%s]", "[%a], [%x]")
    .replace("WAIT", "cp.async.bulk.wait_group 0;")
)
# Threads store to a, and one of them lets the copy engine bring that to shared memory.
FETCHED = (
    START
    + """.reg .b64 %state;
@%first mbarrier.init.shared.b64 [%s+512], 1;
fence.mbarrier_init.release.cluster;
.loc 1 60 0
st.global.u32 [%p], %t;
FENCE
bar.sync 0;
@!%first bra wait;
BEHIND
mbarrier.arrive.expect_tx.shared.b64 %state, [%s+512], 64;
.loc 1 63 0
cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%s], [%a], 64, [%s+512];
wait:
mbarrier.try_wait.parity.shared.b64 %q, [%s+512], 0;
@!%q bra wait;"""
)


def fetched(fence: str = "", behind: str = "") -> str:
    return FETCHED.replace("FENCE", fence).replace("BEHIND", behind)


# CTAs draw tickets, and store two words for each: STEP words further for the next ticket.
TICKETS = (
    START
    + """@!%first bra end;
draw:
atom.relaxed.gpu.global.add.u32 %x, [%b], 1; setp.ge.u32 %q, %x, 8;
@%q bra end;
mad.wide.u32 %p, %x, STEP, %a;
.loc 1 72 0
st.global.u32 [%p], %x;
.loc 1 73 0
st.global.u32 [%p+4], 7;
bra draw;
end:"""
)
# A store to the source of a copy that is under way, and one behind the wait for it.
REFILLED = fetched().replace("st.global.u32 [%p], %t;", "").replace("wait:", "BEFOREwait:", 1) + "\nAFTER"
REFILL = ".loc 1 65 0\n@%first st.global.u32 [%a+32], 9;\n"
OWN_REFILL = ".loc 1 65 0\nst.global.u32 [%p], 9;\n"


def refilled(before: str, after: str) -> str:
    return REFILLED.replace("BEFORE", before).replace("AFTER", after)


# A tensor of two rows of eight words, of which the copy brings the first four of each.
MAPPED: dict[str, Any] = {
    "params": ".param .u64 a, .param .u64 b, .param .align 64 .b8 map[128]",
    "args": ["buf:u32:1024", "buf:u32:1024", "tmap:8x2:4x2:none:of:0"],
    "directives": ".shared .align 128 .b8 smem[1024];",
}


def tensor_refilled(before: str, after: str) -> str:
    text = refilled(before, after).replace("[%a], 64, [%s+512]", "[%m, {0, 0}], [%s+512]")
    text = text.replace("bulk.shared", "bulk.tensor.2d.shared").replace("%s+512], 64;", "%s+512], 32;")
    return text.replace(".reg .b64 %state;", ".reg .b64 %state, %m;\nmov.b64 %m, map;\ncvta.param.u64 %m, %m;")


HALVES = ".reg .b32 %m;\n.reg .pred %low;\nand.b32 %m, %t, 31;\nsetp.lt.u32 %low, %m, 16;\n"
HALVES += "selp.b32 %m, 0xffff, 0xffff0000, %low;\nbar.warp.sync %m;"
ASYNC = "mad.lo.u32 %s, %t, 4, %s;\ncp.async.ca.shared.global [%s], [%o], 4;\ncp.async.wait_all;"
BETWEEN_CTAS = ["in global memory", "of buffer 'argument 0'", "Only the end of the kernel orders CTAs"]


def updated(between: str) -> str:
    """Threads 0 and 32 update a word, and thread 32 loads it."""
    return (
        START
        + f"""and.b32 %y, %t, 31;
setp.eq.u32 %q, %y, 0;
.loc 1 18 0
@%q red.global.add.u32 [%b], 1;
{between}
setp.eq.u32 %q, %t, 32;
.loc 1 19 0
@%q ld.global.u32 %x, [%b];"""
    )


GLOBAL = [
    Defect("race", "a word that another warp has stored, without a barrier", after_store("<<||bar.sync 0;>>"),
           ["in global memory", "this thread writes what another thread read", "lesson.cu:10", "lesson.cu:12",
           "The other thread: CTA (0, 0, 0), warp 0", "__syncthreads"], **BUFFERS),
    Defect("race", "a word that another warp's atom.cas updates, and which ours does not compare with",
           START + "ld.global.u32 %x, [%b];\nadd.u32 %y, %x, 1;\natom.global.cas.b32 %i, [%b], <<%y||%x>>, %y;",
           ["this thread updates what another thread read"], **BUFFERS),
    Defect("race", "a word that another warp still reads", START + "ld.global.u32 %x, [%o];\n"
           "<<.loc 1 13 0||bar.sync 0;>>\nst.global.u32 [%p], 1;", ["this thread reads what another thread wrote",
           "lesson.cu:13"], **BUFFERS),
    Defect("race", "a word of another lane, without __syncwarp",
           after_store("<<||bar.warp.sync -1;>>").replace("xor.b32 %i, %i, 32", "xor.b32 %i, %i, 1"),
           ["in global memory", "__syncwarp"], **BUFFERS),
    Defect("race", "a word of a lane that the mask of a __syncwarp leaves out",
           after_store(HALVES).replace("xor.b32 %i, %i, 32", "xor.b32 %i, %i, <<16||15>>"), ["in global memory",
           "__syncwarp"], **BUFFERS),
    Defect("race", "cp.async from a word that another warp has stored", START + "st.global.u32 [%p], %t;\n"
           "<<.loc 1 14 0||bar.sync 0;>>\n" + ASYNC, ["in global memory", "lesson.cu:14"], **BUFFERS),
    Defect("race", "CTAs that store to the same words", START + "<<.loc 1 15 0\nmad.wide.u32 %p, %t, 4, %a;\n"
           "||>>st.global.u32 [%p], %c;", [*BETWEEN_CTAS, "this thread writes what another thread wrote",
           "The other thread: CTA (0, 0, 0)", "CTA (3, 0, 0), warp 0, lane 0"], **FOUR),
    Defect("race", "a CTA that loads what another stores", START + "<<mad.wide.u32 %o, %t, 4, %a;\n"
           "ld.global.u32 %x, [%o];\n.loc 1 16 0\n||ld.global.u32 %x, [%b];\n>>st.global.u32 [%p], 1;", [*BETWEEN_CTAS,
           "this thread writes what another thread read", "lesson.cu:16"], **FOUR),
    Defect("race", "the sum of atomics, loaded by each CTA", START + "<<.loc 1 17 0\nred.global.add.u32 [%b], 1;\n"
           "ld.global.u32 %x, [%b];||red.global.add.u32 [%b], 1;\nld.global.u32 %x, [%a];>>", ["of buffer 'argument 1'",
           "this thread"], **TWO),
    Defect("race", "a word that another thread updates too, loaded after an update of one's own", updated(""),
           ["this thread reads what another thread updated", "lesson.cu:18", "lesson.cu:19", "warp 0, lane 0"],
           twin=updated(BARRIER), **BUFFERS),
    Defect("race", "atomics of CTAs whose scope is the CTA", START + "<<.loc 1 18 0\n"
           "red.relaxed.cta.global.add.u32||red.relaxed.gpu.global.add.u32>> [%b], 1;",
           ["in a scope that leaves out one of the two", "lesson.cu:18"], **FOUR),
    Defect("race", "atomics of clusters whose scope is the cluster", START
           + "<<red.relaxed.cluster.global.add.u32||red.relaxed.sys.global.add.u32>> [%b], 1;",
           ["in a scope that leaves out one of the two"], **FOUR),
    Defect("race", "ld.global.nc of a word that another warp has stored", after_store(BARRIER).replace("ld.global.u32",
           "ld.global.nc.u32"), ["by ld.global.nc what this kernel wrote", "lesson.cu:10", "lesson.cu:12"],
           twin=after_store(BARRIER), **BUFFERS),
    Defect("race", "ld.const of a word that another warp has stored", constant(BARRIER),
           ["by ld.const what this kernel wrote", "lesson.cu:10", "lesson.cu:12"],
           twin=constant("").replace("st.global.u32 [%p], %t;", ""), **CONSTANTS),
    Defect("race", "ld.const of a thread's own store", constant("fence.proxy.alias;").replace("%i, 32", "%i, 0"),
           ["by ld.const what this kernel wrote"], twin=constant(BARRIER).replace("ld.const", "ld.global"),
           **CONSTANTS),
    Defect("race", "ld.const of a word that nothing orders after a store", constant(""),
           ["writes what another thread read, and nothing orders the two"], twin=constant(BARRIER).replace(
           "ld.const.u32 %x, [%o", "cvta.const.u64 %o, %o; ld.u32 %x, [%o"), **CONSTANTS),
    Defect("race", "the last CTA without its barrier", last_cta(MEET="", BEFORE=THREADFENCE, AFTER=THREADFENCE),
           [*BETWEEN_CTAS, "lesson.cu:20", "lesson.cu:26"], twin=last_cta(BEFORE=THREADFENCE, AFTER=THREADFENCE),
           **FOUR),
    Defect("race", "the last CTA, whose ticket is relaxed", last_cta("atom.relaxed.gpu.global.add.u32"), BETWEEN_CTAS,
           twin=last_cta(ACQ_REL), **FOUR),
    Defect("race", "the last CTA, whose ticket only acquires", last_cta("atom.acquire.gpu.global.add.u32"),
           BETWEEN_CTAS, twin=last_cta(ACQ_REL), **FOUR),
    Defect("race", "the last CTA, whose ticket only releases", last_cta("atom.release.gpu.global.add.u32"),
           BETWEEN_CTAS, twin=last_cta("atom.release.gpu.global.add.u32", BEHIND=THREADFENCE), **FOUR),
    Defect("race", "the last CTA, whose ticket has the scope of the CTA", last_cta("atom.acq_rel.cta.global.add.u32"),
           [], twin=last_cta(ACQ_REL), **FOUR),
    Defect("race", "the last CTA without the fence behind the stores", last_cta(AFTER=THREADFENCE), BETWEEN_CTAS,
           twin=last_cta(FENCE="membar.gl;", AFTER="membar.gl;"), **FOUR),
    Defect("race", "the last CTA without the fence before the loads", last_cta(FENCE=THREADFENCE), BETWEEN_CTAS,
           twin=last_cta(BEFORE=THREADFENCE, BEHIND=THREADFENCE), **FOUR),
    Defect("race", "the last CTA with fences of the scope of the CTA",
           last_cta(BEFORE="<<fence.acq_rel.cta||fence.sc.gpu>>;", BEHIND="<<fence.acq_rel.cta||fence.sc.sys>>;"),
           BETWEEN_CTAS, **FOUR),
    Defect("race", "a relaxed flag", flag("ld.acquire.gpu.global.u32", "st.relaxed.gpu.global.u32"), [*BETWEEN_CTAS,
           "this thread reads what another thread wrote", "lesson.cu:31", "lesson.cu:32"], twin=RELEASED, **TWO),
    Defect("race", "a flag that is not acquired", flag("ld.relaxed.gpu.global.u32", "st.release.gpu.global.u32"),
           BETWEEN_CTAS, twin=flag("ld.relaxed.gpu.global.u32", "st.release.gpu.global.u32", hear=THREADFENCE), **TWO),
    Defect("race", "a volatile flag without fences", flag("ld.volatile.global.u32", "st.volatile.global.u32"),
           BETWEEN_CTAS, twin=flag("ld.volatile.global.u32", "st.volatile.global.u32", "membar.gl;", "membar.gl;"),
           **TWO),
    Defect("race", "a flag that is set by a plain store", flag("ld.volatile.global.u32", "st.global.u32", "membar.gl;",
           "membar.gl;"), [], twin=RELEASED, **TWO),
    Defect("race", "a barrier of the grid that releases nothing", GRID.replace("TELL", "<<||" + THREADFENCE
           + ">>").replace("HEAR", THREADFENCE), BETWEEN_CTAS, **FOUR),
    Defect("race", "a barrier of the grid that acquires nothing", GRID.replace("TELL", THREADFENCE).replace("HEAR",
           "<<||" + THREADFENCE + ">>"), BETWEEN_CTAS, **FOUR),
    Defect("async-in-flight", "a bulk copy of which only the reading is waited for", STORED.replace("WAIT",
           "<<cp.async.bulk.wait_group.read||cp.async.bulk.wait_group>> 0;"), ["reads global memory",
           "cp.async.bulk.wait_group without .read", "lesson.cu:50", "lesson.cu:54"], **BUFFERS),
    Defect("async-in-flight", "a bulk copy that is not waited for", STORED.replace("WAIT",
           "<<||cp.async.bulk.wait_group 0;>>"), **BUFFERS),
    Defect("async-in-flight", "lanes of a warp copy two tiles to one target", BY_ALL_LANES,
           ["writes global memory", "while a bulk copy may still write it", "lesson.cu:50"], **BUFFERS),
    Defect("race", "words of two tickets overlap, which the first CTA may draw both", TICKETS.replace("STEP",
           "<<4||8>>"), [*BETWEEN_CTAS, "lesson.cu:72", "lesson.cu:73"], **TWO),
    Defect("async-in-flight", "a store to what a bulk copy still reads", refilled(REFILL, ""), ["writes global memory",
           "while a bulk copy may still read it", "lesson.cu:63", "lesson.cu:65"], twin=refilled("", REFILL),
           **BUFFERS),
    Defect("async-in-flight", "a store to what a tensor copy still reads", tensor_refilled(REFILL, ""),
           ["while a bulk copy may still read it", "lesson.cu:63", "lesson.cu:65"],
           twin=tensor_refilled(REFILL.replace("+32", "+16"), ""), **MAPPED),
    Defect("async-in-flight", "a store to what cp.async still reads", START + ASYNC.replace("%o",
           "%p").replace("cp.async.wait_all;", OWN_REFILL) + "cp.async.wait_all;",
           ["while a cp.async may still read it", "lesson.cu:65"], twin=START + ASYNC.replace("%o", "%p") + "\n"
           + OWN_REFILL, **BUFFERS),
    Defect("missing-proxy-fence", "a bulk copy of what was stored, without a fence", fetched(),
           ["fence.proxy.async.global", "reads global memory", "lesson.cu:60", "lesson.cu:63"],
           twin=fetched(fence="fence.proxy.async.global;"), **BUFFERS),
    Defect("missing-proxy-fence", "a fence for shared memory only", fetched(fence="fence.proxy.async.shared::cta;"),
           twin=fetched(behind="fence.proxy.async;"), **BUFFERS),
]  # fmt: skip
