"""Programs that go wrong in rare orders of their warps and copies only, each with its legal twin."""

from collections.abc import Sequence

from support.defects import MBARRIER, Defect


def warps(*roles: Sequence[str], start: str = "bar.sync 0;") -> str:
    """Warp n does what roles[n] says, each line of which has the source line 10 * (n + 1) + its index."""
    body = f"{MBARRIER}.reg .b32 %warp, %x;\n.reg .pred %is;\nshr.u32 %warp, %t, 5;\n{start}\n"
    for n in range(len(roles)):
        body += f"setp.eq.u32 %is, %warp, {n};\n@%is bra warp{n};\n"
    body += "bra.uni end;\n"
    for n, role in enumerate(roles):
        body += f"warp{n}:\n"
        for index, line in enumerate(role):
            body += f".loc 1 {10 * (n + 1) + index} 0\n{line.replace('LABEL', f'again{n}_{index}')}\n"
        body += "bra.uni end;\n"
    return body + "end:"


def init(*counts: int) -> str:
    """Mbarriers at 512, 520, ..., of which each waits for so many arrivals."""
    made = [f"@%q mbarrier.init.shared.b64 [%s+{512 + 8 * i}], {count};" for i, count in enumerate(counts)]
    return "\n".join([*made, "fence.mbarrier_init.release.cluster;", "bar.sync 0;"])


ELECT = "setp.ne.u32 %is, %warp, 9;\nelect.sync _|%is, -1;"


def arrive(index: int, lanes: str = "@%is ") -> str:
    return f"{ELECT}\n{lanes}mbarrier.arrive.shared.b64 %state, [%s+{512 + 8 * index}];"


def wait(index: int, phase: int) -> str:
    address = 512 + 8 * index
    return f"LABEL: mbarrier.try_wait.parity.shared.b64 %done, [%s+{address}], {phase & 1};\n@!%done bra LABEL;"


# A ring of one slot: warp 0 fills it, warp 1 empties it, and warp 2 looks on.
FILLS = [line for i in range(4) for line in ([wait(1, i - 1)] if i else []) + [arrive(0)]]
EMPTIES = [line for i in range(4) for line in (wait(0, i), arrive(1))]
LOOKS_ON = [wait(0, i) for i in range(4)]

COPY = "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%s], [%p], 64, [%s+512];"
POINTER = ".reg .b64 %p;\nld.param.u64 %p, [data];\n"
EXPECT = "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%s+512], 64;"
BYTES = {"params": ".param .u64 data", "args": ["buf:u32:64:ramp"]}
TELLS = "cp.async.mbarrier.arrive.noinc.shared.b64 [%s+512];"
CHUNK = "mad.lo.u32 %x, %lane, 16, %s;\ncp.async.cg.shared.global [%x+{to}], [%p], 16;"
LANES = ".reg .b32 %lane;\nand.b32 %lane, %t, 31;\n"
READS = "ld.shared.u32 %x, [%s];\nld.shared.u32 %x, [%s+1024];"

ORDERS = [
    Defect("phase-overrun", "a warp that only looks on is not waited for", warps(FILLS, EMPTIES, LOOKS_ON, start=init(1,
           1)), ["This wait is for phase 0 of the mbarrier", "phase 1 completes before it", "where warp 2 is delayed"],
           twin=warps(FILLS, EMPTIES, [line for i in range(4) for line in (wait(0, i), arrive(1))], start=init(1, 2)),
           block=96),
    Defect("phase-overrun", "a warp arrives twice without a wait between", warps([arrive(0), arrive(0)], [arrive(0),
           arrive(0)], start=init(2)), ["This arrival counts in phase 1", "In another order it counts in phase 0"],
           twin=warps([arrive(0), wait(0, 0), arrive(0)], [arrive(0), wait(0, 0), arrive(0)], start=init(2))),
    Defect("phase-overrun", "a warp waits for the second phase and not for the first", warps([arrive(0), wait(1, 0),
           arrive(0)], [wait(0, 0), arrive(1), wait(0, 1)], [wait(0, 1)], start=init(1, 1)),
           ["This wait is for phase 1", "returns before that phase is complete", "where warp 0 is delayed"],
           twin=warps([arrive(0), wait(1, 0), arrive(0)], *2 * [[wait(0, 0), arrive(1), wait(0, 1)]], start=init(1, 2)),
           block=128),
    Defect("order-dependent", "bytes are announced by a thread that does not arrive", warps([arrive(0)], [ELECT + "\n"
           "@%is " + EXPECT, "@%is " + COPY, wait(0, 0)], start=POINTER + init(1)), ["announces bytes of phase 0",
           "where warp 1 is delayed", "other instruction is at lesson.cu:21"], twin=warps([arrive(0)], [ELECT + "\n"
           "@%is " + EXPECT, "@%is " + COPY, arrive(0), wait(0, 0)], start=POINTER + init(2)), **BYTES),
    Defect("phase-overrun", "a barrier of two warps is used again by another pair", warps(["bar.sync 1, 64;",
           "bar.sync <<1||2>>, 64;"], ["bar.sync <<1||2>>, 64;"], ["bar.sync 1, 64;"]),
           ["comes to barrier 1 for the next time", "nothing makes it wait for warp"], block=96),
    Defect("async-in-flight", "who knows that a cp.async was issued does not know that it landed",
           warps([CHUNK.format(to=0), TELLS, arrive(2)], [CHUNK.format(to=1024), TELLS.replace("512", "520")], [wait(2,
           0), wait(1, 0), READS], start=POINTER + LANES + init(32, 32, 1)), ["a cp.async is still in flight"],
           twin=warps([CHUNK.format(to=0), TELLS, arrive(2)], [CHUNK.format(to=1024), TELLS.replace("512", "520")],
           [wait(2, 0), wait(1, 0), wait(0, 0), READS], start=POINTER + LANES + init(32, 32, 1)), block=96,
           directives=".shared .align 16 .b8 smem[2048];", **BYTES),
]  # fmt: skip

# Two CTAs of a cluster with two warps each, warp 0 of the second being 2: %f is the memory of the other CTA.
MEET = "barrier.cluster.arrive;\nbarrier.cluster.wait;"
MASK = ".reg .b16 %mask, %first;\nmov.u16 %mask, 2;\nmov.u16 %first, 1;\n"


def pair(*roles: Sequence[str], counts: Sequence[int], start: str = "") -> str:
    ranks = ".reg .b32 %f;\nmov.u32 %x, %cluster_ctarank;\nmad.lo.u32 %warp, %x, 2, %warp;\nxor.b32 %x, %x, 1;\n"
    ranks += "mapa.shared::cluster.u32 %f, %s, %x;\n"
    return warps(*roles, start=start + ranks + init(*counts).replace("bar.sync 0;", MEET)) + "\n" + MEET


def arrive_there(index: int) -> str:
    return f"{ELECT}\n@%is mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%f+{512 + 8 * index}];"


def expect(index: int) -> str:
    return f"{ELECT}\n@%is mbarrier.arrive.expect_tx.shared.b64 _, [%s+{512 + 8 * index}], 64;"


def copy_there(index: int, to: int) -> str:
    """To the second CTA alone."""
    form = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
    return f"{ELECT}\n@%is {form} [%s+{to}], [%p], 64, [%s+{512 + 8 * index}], %mask;"


IN_PAIRS = {"options": ["--grid", "2", "--cluster", "2"]}
FILLS_THERE = [line for i in range(4) for line in ([wait(1, i - 1)] if i else []) + [arrive_there(0)]]
EMPTIES_HERE = [line for i in range(4) for line in (wait(0, i), arrive_there(1))]
BOTH_KNOW = [line for i in range(2) for line in (arrive(0), arrive_there(0), wait(0, i))]
ANNOUNCES_THERE = f"{ELECT}\n@%is mbarrier.expect_tx.relaxed.cluster.shared::cluster.b64 [%f+512], 64;"
ARRIVES_THERE = f"{ELECT}\n@%is mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 _, [%f+512], 64;"
COPY_BACK = copy_there(0, 0).replace("%mask;", "%first;")
READ_BOTH = "ld.shared.u32 %x, [%s];\nld.shared.u32 %x, [%s+64];"
SENDS = [copy_there(0, 0), copy_there(1, 64)]


def again(waits: Sequence[str]) -> list[Sequence[str]]:
    """The first CTA copies twice to places of the second that count at one mbarrier; in between that says go on."""
    there = [[expect(0), wait(0, 0), expect(0), wait(0, 1)], [expect(1), *waits, wait(1, 0), arrive_there(2)]]
    return [[*SENDS, wait(2, 0), copy_there(0, 128)], [], *there]


# The first CTA copies to the second, and waits for its two warps: one of them arrives behind the other by these copies.
COPIES_THERE = [line for i in range(4) for line in ([wait(1, i - 1)] if i else []) + [copy_there(0, 0)]]
ANNOUNCES = [line for i in range(4) for line in (expect(0), wait(0, i), arrive_there(1))]

ORDERS += [
    Defect("phase-overrun", "a warp looks on at what another CTA copies, and is not waited for", pair(COPIES_THERE, [],
           ANNOUNCES, LOOKS_ON, counts=[1, 1], start=POINTER + MASK), ["This wait is for phase 0 of the mbarrier",
           "phase 1 completes before it", "where warp 1 is delayed"], twin=pair(COPIES_THERE, [], ANNOUNCES,
           EMPTIES_HERE, counts=[1, 2], start=POINTER + MASK), **BYTES, **IN_PAIRS),
    Defect("phase-overrun", "a warp looks on at what another CTA fills, and is not waited for", pair(EMPTIES_HERE,
           LOOKS_ON, FILLS_THERE, counts=[1, 1]), ["This wait is for phase 0 of the mbarrier",
           "phase 1 completes before it", "where warp 1 is delayed"], twin=pair(EMPTIES_HERE, EMPTIES_HERE, FILLS_THERE,
           counts=[1, 2]), **IN_PAIRS),
    Defect("phase-overrun", "warps of two CTAs arrive twice without a wait between", pair(2 * [arrive(0)], [],
           2 * [arrive_there(0)], counts=[2]), ["This arrival counts in phase 1", "of the CTA with rank",
           "In another order it counts in phase 0"], twin=pair(BOTH_KNOW, [], BOTH_KNOW, counts=[2]), **IN_PAIRS),
    Defect("phase-overrun", "a copy to another CTA that does not wait for the one before", pair(*again([]), counts=[1,
           1, 1], start=POINTER + MASK), ["This copy counts in phase 1", "In another order it counts in phase 0"],
           twin=pair(*again([wait(0, 0)]), counts=[1, 1, 1], start=POINTER + MASK), **BYTES, **IN_PAIRS),
    Defect("order-dependent", "bytes are announced to another CTA by a thread that does not arrive", pair([arrive(0),
           wait(0, 0)], [], [ANNOUNCES_THERE, COPY_BACK], counts=[1], start=POINTER + MASK),
           ["This expect_tx announces bytes of phase 0", "where warp 0 is delayed"], twin=pair([arrive(0), wait(0, 0)],
           [], [ARRIVES_THERE, COPY_BACK], counts=[2], start=POINTER + MASK), **BYTES, **IN_PAIRS),
    Defect("async-in-flight", "who knows that a copy from another CTA was issued does not know that it landed",
           pair(SENDS, [], [expect(0), wait(0, 0)], [expect(1), wait(1, 0), READ_BOTH], counts=[1, 1], start=POINTER
           + MASK), ["a bulk copy is still in flight", "of the CTA with rank 0"], twin=pair(SENDS, [], [expect(0),
           wait(0, 0)], [expect(1), wait(1, 0), wait(0, 0), READ_BOTH], counts=[1, 1], start=POINTER + MASK), **BYTES,
           **IN_PAIRS),
]  # fmt: skip
