"""Defects between the CTAs of a cluster: small programs with one defect each, and their legal twins."""

from typing import Any

from support.defects import Defect

# Two CTAs of one cluster: each thread stores a word, and %f is where the same thread of the other CTA has its own.
CLUSTER = """.reg .b32 %s, %f, %r, %t, %x;
.reg .b64 %state; .reg .pred %q, %done;
mov.u32 %t, %tid.x; mov.u32 %s, smem; mad.lo.u32 %s, %t, 8, %s; mov.u32 %r, %cluster_ctarank;
setp.eq.u32 %q, %r, 0; xor.b32 %x, %r, 1; mapa.shared::cluster.u32 %f, %s, %x;
st.shared.u32 [%s], %t;
"""
MEET = "barrier.cluster.arrive;\nbarrier.cluster.wait;\n"
REMOTE_READ = ".loc 1 50 0\nld.shared::cluster.u32 %x, [%f];\n"
REMOTE_WRITE = ".loc 1 51 0\nst.shared::cluster.u32 [%f], 1;\n"
TWO_CTAS = {"block": 32, "options": ["--grid", "2", "--cluster", "2"]}
# Each CTA has an mbarrier at which a thread of the other arrives.
REMOTE_ARRIVE = (
    CLUSTER.replace("st.shared.u32 [%s], %t;", "setp.eq.u32 %q, %t, 0;")
    + "@%q mbarrier.init.shared.b64 [%s], 1;\nAHEAD@%q mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%f];\n"
    "mov.u32 %s, smem;\nwait:\nmbarrier.try_wait.parity.shared.b64 %done, [%s], 0;\n.loc 1 52 0\n@!%done bra wait;\n"
    + MEET
)
# The threads of CTA 1 send a word each to CTA 0, which waits for all of them.
SENT = (
    CLUSTER
    + """.reg .b32 %m, %n;
.reg .pred %first;
setp.eq.u32 %first, %t, 0; mov.u32 %m, smem; add.u32 %m, %m, 512; xor.b32 %x, %r, 1;
mapa.shared::cluster.u32 %n, %m, %x; @%first mbarrier.init.shared.b64 [%m], 1;
@%first mbarrier.arrive.expect_tx.shared.b64 _, [%m], 128;
fence.mbarrier_init.release.cluster;
"""
    + MEET
    + """.loc 1 57 0
@!%q st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%f], %t, [%n];
@!%q bra end;
.loc 1 58 0
FIRSTwait:
mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %done, [%m], 0;
@!%done bra wait;
LASTend:
"""
    + MEET
)
# As before, but CTA 0 ends its mbarrier, and may start it again.
ENDED = (
    SENT[: SENT.index(".loc 1 57 0")]
    + """.loc 1 63 0
@!%q st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%f], %t, [%n];
"""
    + MEET
    + """@!%q bra end;
BEFORE.loc 1 64 0
@%first mbarrier.inval.shared.b64 [%m];
AFTERend:
"""
    + MEET
)
ALL_THERE = "wait:\nmbarrier.try_wait.parity.shared.b64 %done, [%m], 0;\n@!%done bra wait;\nbar.sync 0;\n"
START_AGAIN = """@%first mbarrier.init.shared.b64 [%m], 1;
@%first mbarrier.arrive.expect_tx.shared.b64 _, [%m], 128;
bar.sync 0;
"""
RELAXED_READ = ".loc 1 62 0\nld.relaxed.cluster.shared::cluster.u32 %x, [%f];\n"
# The first CTA stores to the memory of the second, which lets the copy engine bring that to global memory.
REMOTE_STORE = """.reg .b32 %s, %f, %r, %t;
.reg .b64 %p; .reg .pred %q, %first;
ld.param.u64 %p, [to]; mov.u32 %t, %tid.x; mov.u32 %s, smem; mov.u32 %r, %cluster_ctarank;
setp.eq.u32 %q, %r, 0; setp.eq.u32 %first, %t, 0; mapa.shared::cluster.u32 %f, %s, 1;
mad.lo.u32 %f, %t, 4, %f;
barrier.cluster.arrive;
barrier.cluster.wait;
.loc 1 70 0
@%q st.shared::cluster.u32 [%f], %t;
BEFOREbarrier.cluster.arrive;
barrier.cluster.wait;
BEHIND@%q bra end;
@!%first bra end;
.loc 1 72 0
cp.async.bulk.global.shared::cta.bulk_group [%p], [%s], 128; cp.async.bulk.commit_group;
cp.async.bulk.wait_group 0;
end:"""


def remote_store(before: str = "", behind: str = "") -> str:
    return REMOTE_STORE.replace("BEFORE", before).replace("BEHIND", behind)


TO_GLOBAL: dict[str, Any] = TWO_CTAS | {"params": ".param .u64 to", "args": ["buf:u32:32"]}
# CTA 1 sends a word and sets a flag; CTA 0 waits for the flag and reads the word.
FLAGGED = (
    CLUSTER
    + """.reg .b32 %flag, %there;
mov.u32 %flag, smem; add.u32 %flag, %flag, 512; xor.b32 %x, %r, 1;
mapa.shared::cluster.u32 %there, %flag, %x; st.shared.u32 [%flag], 0;
"""
    + MEET
    + """@%q bra wait;
.loc 1 60 0
st.shared::cluster.u32 [%f], 7;
SET
bra.uni end;
wait:
ld.acquire.cluster.shared::cta.u32 %x, [%flag]; setp.eq.u32 %done, %x, 0;
@%done bra wait;
.loc 1 61 0
ld.shared.u32 %x, [%s];
end:
"""
    + MEET
)

CLUSTERS = [
    *(
        Defect("missing-proxy-fence", f"a bulk copy of what another CTA stored, {where} a fence", remote_store(),
               ["lesson.cu:70", "lesson.cu:72", "of the CTA with rank 0"],
               twin=remote_store(**{where: "fence.proxy.async;\n"}), **TO_GLOBAL)
        for where in ("before", "behind")
    ),
    Defect("race", "a load from another CTA without a barrier of the cluster", CLUSTER + "<<bar.sync 0;\n||" + MEET
           + ">>" + REMOTE_READ + MEET, ["lesson.cu:50", "of the CTA with rank 0", "barrier.cluster.arrive and wait"],
           **TWO_CTAS),
    Defect("race", "a store to another CTA that reads without a barrier between", CLUSTER + MEET + ".loc 1 49 0\n"
           "ld.shared.u32 %x, [%s];\n<<||" + MEET + ">>" + REMOTE_WRITE + MEET, ["lesson.cu:49", "lesson.cu:51",
           "with rank 1"], **TWO_CTAS),
    Defect("race", "a relaxed arrival at the barrier of the cluster without a fence", CLUSTER
           + "<<||fence.acq_rel.cluster;\n>>" + MEET.replace("arrive", "arrive.relaxed") + REMOTE_READ + MEET,
           ["lesson.cu:50"], **TWO_CTAS),
    Defect("cta-not-started", "a store to a CTA that may not have started",
           CLUSTER.replace("st.shared.u32 [%s], %t;\n", "")
           + "<<||" + MEET + ">>" + REMOTE_WRITE + MEET, ["lesson.cu:51", "with rank 1", "may not have started"],
           **TWO_CTAS),
    Defect("cta-exited", "a load from a CTA that waits for nobody", CLUSTER + MEET + REMOTE_READ + "<<||" + MEET + ">>",
           ["lesson.cu:50", "barrier.cluster"], **TWO_CTAS),
    Defect("cta-exited", "a load from the CTA that ends last, but may end first", CLUSTER + MEET + "@%q bra end;\n"
           + REMOTE_READ + "end:<<||\n" + MEET + ">>", ["lesson.cu:50", "that CTA may end before"], **TWO_CTAS),
    Defect("cta-exited", "a relaxed load from a CTA that may end before", CLUSTER + MEET + "@%q bra end;\n"
           + RELAXED_READ + "end:<<||\n" + MEET + ">>", ["lesson.cu:62", "that CTA may end before"], **TWO_CTAS),
    Defect("barrier-misuse", "an mbarrier ends while a copy of another CTA counts at it", ENDED.replace("BEFORE", "<<||"
           + ALL_THERE + ">>").replace("AFTER", "<<" + START_AGAIN + ALL_THERE + "||>>"), ["lesson.cu:63",
           "lesson.cu:64", "copy of 4 bytes that the CTA with rank 1 started"], **TWO_CTAS),
    Defect("barrier-misuse", "an arrival at an mbarrier of another CTA that it may not have initialized",
           REMOTE_ARRIVE.replace("AHEAD", "<<||fence.mbarrier_init.release.cluster;\n>>" + MEET.replace("arrive",
           "arrive.relaxed")), ["fence.mbarrier_init.release.cluster", "with rank"], **TWO_CTAS),
    Defect("barrier-misuse", "a second arrival at the barrier of the cluster", CLUSTER + ".loc 1 53 0\n"
           "<<barrier.cluster.arrive;\n||" + MEET + ">>" + MEET, ["lesson.cu:53", "a second time"], **TWO_CTAS),
    Defect("barrier-misuse", "a wait at the barrier of the cluster without an arrival", CLUSTER + MEET + ".loc 1 53 0\n"
           "<<barrier.cluster.wait;||" + MEET + ">>", ["lesson.cu:53", "without barrier.cluster.arrive"], **TWO_CTAS),
    Defect("deadlock", "a barrier of the cluster that one CTA never reaches", CLUSTER
           + "setp.lt.and.u32 %q, %t, 32, %q;\n@!%q bra meet;\n.loc 1 54 0\nbar.sync 1, <<64||32>>;\nmeet:\n"
           ".loc 1 55 0\n" + MEET, ["CTA rank 1, warps 0 to 1: source line 55", "waits for 1 warp of CTA rank 0",
           "CTA rank 0, warp 0: source line 54"], status=3, **TWO_CTAS | {"block": 64}),
    Defect("out-of-bounds", "a rank that the cluster does not have", CLUSTER + "add.u32 %r, %r, <<1||0>>;\n"
           ".loc 1 56 0\nmapa.shared::cluster.u32 %f, %s, %r;", ["lesson.cu:56", "rank 2", "2 CTAs"], **TWO_CTAS),
    Defect("async-in-flight", "a word that st.async brings, read before its mbarrier has counted it",
           SENT.replace("FIRST", "<<ld.shared.u32 %x, [%s];\n||>>").replace("LAST", "<<||ld.shared.u32 %x, [%s];\n>>"),
           ["lesson.cu:57", "lesson.cu:58", "st.async", "of the CTA with rank"], **TWO_CTAS),
    Defect("barrier-misuse", "an arrival that completes a phase and says that it does not", CLUSTER
           + "add.u32 %x, %s, 512;\nmbarrier.init.shared.b64 [%x], 2;\n.loc 1 59 0\n"
           "mbarrier.arrive.noComplete.shared.b64 %state, [%x], <<2||1>>;", ["lesson.cu:59", ".noComplete says"],
           **TWO_CTAS),
    Defect("race", "a flag that is set by an ordinary store", FLAGGED.replace("SET",
           "<<st.shared::cluster.u32||st.release.cluster.shared::cluster.u32>> [%there], 1;"), ["lesson.cu:60",
           "lesson.cu:61", "with rank 1"], block=1, options=["--grid", "2", "--cluster", "2"]),
]  # fmt: skip
