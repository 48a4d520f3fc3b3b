"""Lanes of a warp that have parted wait for the others where an instruction needs them, and none of them starves."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from support.emulation import POINTERS, Array, compiled, entry, ptxrun

SOURCE = Path(__file__).resolve().parent / "support/kernels/threaded.cu"
SEEDS = range(21)  # of --schedule
LANES = np.arange(32)
START = """.reg .b32 %t, %m, %x, %y, %n, %r;
.reg .b64 %out, %in, %own;
.reg .pred %p, %q;
ld.param.u64 %in, [a];
ld.param.u64 %out, [b];
mov.u32 %t, %tid.x;
mad.wide.u32 %own, %t, 4, %out;
"""
# mask of the half that a lane belongs to
HALVES = START + "setp.lt.u32 %p, %t, 16;\nselp.b32 %m, 0xffff, 0xffff0000, %p;\n"


def run(ptx: Path, folder: Path, seed: int, block: int = 32, *options: object) -> tuple[int, str, Array]:
    """Arguments: a buffer of 32 zeros, an output with one u32 a thread."""
    done = ptxrun(
        ptx, "--block", block, "--arg", "buf:u32:32", "--arg", f"out:u32:{block}", "--dump", f"1={folder / 'out.bin'}",
        "--schedule", seed, *options,
    )  # fmt: skip
    return done.returncode, done.stderr, np.fromfile(folder / "out.bin", np.uint32)


def save(body: str, folder: Path, directives: str = "") -> Path:
    ptx = folder / "test.ptx"
    ptx.write_text(entry(body, POINTERS, directives=directives))
    return ptx


@dataclass(frozen=True)
class Right:
    """PTX that is right whatever the order of paths, and what each thread writes."""

    label: str
    body: str
    want: Array


def half(values: Array) -> Array:
    return values.astype(np.uint32)


RIGHT = [
    Right("a trap that no lane takes, in a loop", START
          + "mov.u32 %n, 0;\nmov.u32 %x, 0;\nagain:\nadd.u32 %n, %n, 1;\nsetp.gt.u32 %p, %n, 4;\n@%p bra end;\n"
          "setp.eq.u32 %q, %n, 9;\n@%q trap;\nmul.lo.u32 %y, %n, 2;\nmul.lo.u32 %r, %t, 5;\nadd.u32 %y, %y, %r;\n"
          "add.u32 %x, %x, %y;\nbra again;\nend:\nst.global.u32 [%own], %x;", 20 + 20 * LANES),
    Right("ballot by halves", HALVES
          + "and.b32 %x, %t, 1;\nsetp.ne.u32 %q, %x, 0;\nvote.sync.ballot.b32 %x, %q, %m;\nst.global.u32 [%own], %x;",
          half(np.where(LANES < 16, 0xAAAA, 0xAAAA0000))),
    Right("all by halves", HALVES + "setp.lt.u32 %q, %t, 20;\nvote.sync.all.pred %q, %q, %m;\nselp.u32 %x, 1, 0, %q;\n"
          "st.global.u32 [%own], %x;", half(LANES < 16)),
    Right("sum by halves", HALVES + "redux.sync.add.u32 %x, %t, %m;\nst.global.u32 [%own], %x;",
          half(np.where(LANES < 16, 120, 376))),
    Right("match by halves", HALVES + "and.b32 %y, %t, 3;\nmatch.any.sync.b32 %x, %y, %m;\nst.global.u32 [%own], %x;",
          half(np.where(LANES < 16, 0x1111 << (LANES & 3), 0x11110000 << (LANES & 3)))),
    Right("shuffle by halves", HALVES
          + "shfl.sync.down.b32 %x, %t, 1, 0x100f, %m;\nbar.warp.sync %m;\nst.global.u32 [%own], %x;",
          half(np.where(LANES % 16 == 15, LANES, LANES + 1))),
    Right("tiles of four that part around the vote", START
          + "and.b32 %x, %t, 0x1c;\nshl.b32 %m, 0xf, %x;\nand.b32 %y, %t, 1;\nsetp.ne.u32 %p, %y, 0;\n@%p bra odd;\n"
          "add.u32 %y, %y, 2;\nbra.uni vote;\nodd:\nadd.u32 %y, %y, 4;\nvote:\nredux.sync.add.u32 %x, %y, %m;\n"
          "st.global.u32 [%own], %x;", half(np.full(32, 2 * 2 + 2 * 5))),
    Right("the two halves at shuffles of their own", HALVES
          + "@%p bra low;\nshfl.sync.bfly.b32 %x, %t, 1, 0x1f, %m;\nbra.uni end;\nlow:\n"
          "shfl.sync.bfly.b32 %x, %t, 2, 0x1f, %m;\nend:\nst.global.u32 [%own], %x;", half(np.where(LANES < 16, LANES
          ^ 2, LANES ^ 1))),
    # A condition of the whole warp, threaded through `if (lane == 0)`: all paths meet only after the sums.
    Right("sums that lane 0 comes to by another path", START
          + "ld.global.u32 %n, [%in];\nsetp.eq.u32 %p, %t, 0;\n@%p bra first;\nsetp.eq.u32 %q, %n, 0;\n@%q bra sum;\n"
          "bra.uni other;\nfirst:\nsetp.ne.u32 %q, %n, 0;\nst.global.u32 [%in+4], %n;\n@%q bra other;\nsum:\n"
          + "".join(f"shfl.sync.bfly.b32 %x, %t, {d}, 0x1f, -1;\nadd.u32 %t, %t, %x;\n" for d in (16, 8, 4, 2, 1))
          + "st.global.u32 [%own], %t;\nbra.uni end;\nother:\nst.global.u32 [%own], 7;\nend:", half(np.full(32, 496))),
    Right("a branch by index", START
          + "rem.u32 %x, %t, 3;\nts: .branchtargets A, B, A;\nbrx.idx %x, ts;\nA:\nadd.u32 %y, %t, 100;\n"
          "bra.uni end;\nB:\nmov.u32 %y, 5;\nend:\nsetp.lt.u32 %p, %t, 4;\nmov.u32 %m, 0;\n"
          "us: .branchtargets C;\n@%p brx.idx.uni %m, us;\n"
          "add.u32 %y, %y, 1000;\nC:\nadd.u32 %y, %y, 10000;\nst.global.u32 [%own], %y;", half(np.where(LANES % 3 == 1,
          5, LANES + 100) + 10000 + np.where(LANES < 4, 0, 1000))),
    Right("bar.warp.sync at two addresses", START
          + "setp.lt.u32 %p, %t, 7;\n@%p bra few;\nbar.warp.sync -1;\nbra.uni end;\nfew:\nbar.warp.sync -1;\nend:\n"
          "st.global.u32 [%own], %t;", half(LANES)),
    Right("barrier.sync at two addresses", START
          + "setp.lt.u32 %p, %t, 7;\n@%p bra few;\nshr.u32 %x, %t, 5;\nadd.u32 %y, %x, 32;\nbarrier.sync %x, %y;\n"
          "bra.uni end;\nfew:\nmov.u32 %x, 9;\nshr.u32 %n, %t, 5;\nadd.u32 %m, %n, 32;\nbarrier.sync %n, %m;\nend:\n"
          "and.b32 %x, %x, 16;\nadd.u32 %t, %t, %x;\nst.global.u32 [%own], %t;", half(LANES)),
    Right("a barrier after lanes have ended", START
          + "st.global.u32 [%own], %t;\nsetp.lt.u32 %p, %t, 7;\n@%p bra end;\nbar.sync 0;\nend:", half(LANES)),
    Right("a lock in the loop that takes it", START
          + "again:\natom.global.cas.b32 %x, [%in], 0, 1;\nsetp.ne.u32 %p, %x, 0;\n@%p bra again;\n"
          "ld.volatile.global.u32 %y, [%in+4];\nadd.u32 %n, %y, 1;\nst.volatile.global.u32 [%in+4], %n;\nmembar.gl;\n"
          "atom.global.exch.b32 %x, [%in], 0;\nbar.warp.sync -1;\nld.volatile.global.u32 %y, [%in+4];\n"
          "st.global.u32 [%own], %y;", half(np.full(32, 32))),
    Right("a lane that waits for the flag of another", START
          + "setp.ne.u32 %p, %t, 3;\n@%p bra others;\nwait:\nld.volatile.global.u32 %x, [%in];\n"
          "setp.eq.u32 %q, %x, 0;\n@%q bra wait;\nbra.uni end;\nothers:\nmov.u32 %x, 5;\nsetp.eq.u32 %q, %t, 9;\n"
          "@%q st.volatile.global.u32 [%in], 5;\nend:\nst.global.u32 [%own], %x;", half(np.full(32, 5))),
    Right("a lane that waits for the flag of another, the other way round", START
          + "setp.eq.u32 %p, %t, 3;\n@%p bra wait;\nmov.u32 %x, 5;\nsetp.eq.u32 %q, %t, 9;\n"
          "@%q st.volatile.global.u32 [%in], 5;\nbra.uni end;\nwait:\nld.volatile.global.u32 %x, [%in];\n"
          "setp.eq.u32 %q, %x, 0;\n@%q bra wait;\nend:\nst.global.u32 [%own], %x;", half(np.full(32, 5))),
]  # fmt: skip


@pytest.mark.parametrize("case", RIGHT, ids=lambda case: case.label)
def test_right(case: Right, tmp_path: Path) -> None:
    ptx = save(case.body, tmp_path)
    for seed in SEEDS:
        status, said, out = run(ptx, tmp_path, seed)
        assert (status, said) == (0, ""), seed
        assert np.array_equal(out, case.want), (seed, out)


# Ones times ones in m64n8k16, to which lane 0 of each warp comes by another path, as to the sums above.
MULTIPLY = """.version 8.3
.target sm_90a
.address_size 64
.visible .entry test(.param .u64 a, .param .u64 b)
{
.reg .b32 %t, %n, %x;
.reg .b64 %in, %out, %da, %db;
.reg .pred %p, %q;
.reg .f32 %d<4>;
.shared .align 128 .b8 ones[4096];
ld.param.u64 %in, [a];
ld.param.u64 %out, [b];
mov.u32 %t, %tid.x;
mad.wide.u32 %out, %t, 4, %out;
mov.u32 %x, ones;
cvt.u64.u32 %da, %x;
shr.u64 %da, %da, 4;
add.s64 %da, %da, 0x1000080000;
add.s64 %db, %da, 128;
mad.lo.u32 %x, %t, 32, %x;
mov.u32 %n, 0x3c003c00;
st.shared.v4.u32 [%x], {%n, %n, %n, %n};
st.shared.v4.u32 [%x+16], {%n, %n, %n, %n};
fence.proxy.async;
bar.sync 0;
ld.global.u32 %n, [%in];
and.b32 %x, %t, 31;
setp.eq.u32 %p, %x, 0;
@%p bra first;
setp.eq.u32 %q, %n, 0;
@%q bra multiply;
bra.uni other;
first:
setp.ne.u32 %q, %n, 0;
@%q bra other;
multiply:
WHAT
st.global.f32 [%out], %d0;
bra.uni end;
other:
st.global.u32 [%out], 7;
end:
ret;
}
"""
PRODUCT = """setmaxnreg.dec.sync.aligned.u32 40;
wgmma.fence.sync.aligned;
wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%d0, %d1, %d2, %d3}, %da, %db, 0, 1, 1, 0, 0;
wgmma.commit_group.sync.aligned;
wgmma.wait_group.sync.aligned 0;"""


@pytest.mark.parametrize("first", range(5))
def test_lanes_wait_for_each_other_at_a_product(first: int, tmp_path: Path) -> None:
    """Whichever of its instructions is the first that they meet at; those before it are above the paths."""
    above, lines = PRODUCT.splitlines()[:first], PRODUCT.splitlines()[first:]
    text = MULTIPLY.replace("ld.global.u32 %n, [%in];\n", "\n".join([*above, "ld.global.u32 %n, [%in];\n"]))
    (tmp_path / "multiply.ptx").write_text(text.replace("WHAT", "\n".join(lines)))
    for seed in SEEDS[:3]:
        status, said, out = run(tmp_path / "multiply.ptx", tmp_path, seed, 128)
        assert (status, said) == (0, ""), (first, seed)
        assert (out.view(np.float32) == 16).all(), (first, seed)


def test_mbarrier_within_a_warp(tmp_path: Path) -> None:
    """Lane 0 completes the phase that the other lanes of its warp wait for, whichever of them goes first."""
    for negated in ("", "!"):
        body = START + (
            ".reg .b64 %state;\nsetp.eq.u32 %p, %t, 0;\n@%p mbarrier.init.shared.b64 [bar], 1;\nbar.warp.sync -1;\n"
            f"setp.{'ne' if negated else 'eq'}.u32 %q, %t, 0;\n@{negated}%q bra arrive;\nwait:\n"
            "mbarrier.try_wait.parity.shared.b64 %p, [bar], 0;\n@!%p bra wait;\nbra.uni end;\narrive:\n"
            "mbarrier.arrive.shared.b64 %state, [bar];\nend:\nst.global.u32 [%own], %t;"
        )
        ptx = save(body, tmp_path, ".shared .align 8 .b8 bar[8];")
        for seed in SEEDS:
            status, said, out = run(ptx, tmp_path, seed)
            assert (status, said) == (0, ""), (negated, seed)
            assert np.array_equal(out, LANES), (negated, seed)


def test_barriers_that_nvcc_threads(tmp_path: Path) -> None:
    ptx = compiled(SOURCE, tmp_path)
    lanes = np.arange(64)
    for n, want in ((5, lanes ^ 33), (2, 2 * (lanes ^ 34))):
        for seed in SEEDS:
            done = ptxrun(
                ptx, "--block", 64, "--arg", "buf:i32:66", "--arg", f"i32:{n}", "--dump", f"0={tmp_path / 'out.bin'}",
                "--schedule", seed,
            )  # fmt: skip
            assert (done.returncode, done.stderr) == (0, ""), (n, seed)
            assert np.array_equal(np.fromfile(tmp_path / "out.bin", np.int32)[:64], want), (n, seed)


STORE = "\nst.global.u32 [%own], %t;"
WRONG = [
    ("shfl.sync.bfly.b32 %x, %t, 1, 0x1f, %m;", "selp.b32 %m, 0xffff, 0xfffffff0, %p;", ["same member mask"], 1),
    ("redux.sync.add.u32 %x, %t, %m;", "selp.b32 %m, 0xffff, 0xfffe0000, %p;", ["lane 16", "does not name it"], 1),
    ("bar.warp.sync 0xffff;", "", ["lane 16", "does not name it"], 1),
    ("@%p bra end;\nvote.sync.any.pred %q, %p, -1;\nend:", "", ["0xffffffff", "lane 0", "took another path"], 1),
    ("@%p bra end;\nbar.sync 0;\nbra.uni last;\nend:\nbar.sync 0;\nlast:", "", ["took another path"], 3),
    ("@%p bra end;\nbarrier.sync 0;\nbra.uni last;\nend:\nbarrier.sync 1;\nlast:", "", ["took another path"], 3),
    ("@%p bra end;\nbarrier.sync 0, 32;\nbra.uni last;\nend:\nbarrier.sync 0;\nlast:", "", ["took another path"], 3),
    ("@%p bra end;\nshfl.sync.idx.b32 %x, %t, 0, 0x1f, -1;\nbra.uni last;\nend:\nbar.warp.sync -1;\nlast:", "",
     ["took another path"], 1),
]  # fmt: skip


def test_index_beyond_the_targets(tmp_path: Path) -> None:
    ptx = save(START + "ts: .branchtargets A, B;\nbrx.idx %t, ts;\nA:\nB:" + STORE, tmp_path)
    status, said, _ = run(ptx, tmp_path, 0)
    assert status == 3
    assert "The index of this branch is beyond its .branchtargets." in said and "lane 2" in said


@pytest.mark.parametrize(("code", "mask", "says", "wanted"), WRONG, ids=range(len(WRONG)))
def test_wrong(code: str, mask: str, says: list[str], wanted: int, tmp_path: Path) -> None:
    """Lanes that cannot be complete are reported, in every order; later code keeps the lanes from ending."""
    body = HALVES + mask + "\n" + code + STORE + "\nbar.warp.sync -1;"
    ptx = save(body, tmp_path)
    for seed in SEEDS[:7]:
        status, said, _ = run(ptx, tmp_path, seed)
        assert status == wanted, (seed, said)
        assert said.startswith("divergent-sync") and "divergent-sync (" in said, (seed, said)
        for words in says:
            assert words in said, (seed, said)
