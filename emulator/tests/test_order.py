"""CTAs and warps run in an order that host threads do not change, that is fair to polling, and that ends deadlocks."""

from pathlib import Path

import numpy as np
import pytest
from support.emulation import entry, ptxrun

FILES = '.file 1 "lesson.cu"\n'
START = """.reg .b32 %t, %c, %n, %x, %y, %s;
.reg .b64 %a, %b, %p; .reg .f32 %f, %g; .reg .pred %q, %first;
ld.param.u64 %a, [a]; ld.param.u64 %b, [b]; mov.u32 %t, %tid.x; mov.u32 %c, %ctaid.x;
mov.u32 %n, %nctaid.x; setp.eq.u32 %first, %t, 0;
"""
POINTERS = ".param .u64 a, .param .u64 b"
# Every thread adds another fraction to one sum.
SUM = (
    START
    + """mad.lo.s32 %x, %c, 32, %t;
add.u32 %x, %x, 1; cvt.rn.f32.u32 %f, %x; rcp.approx.f32 %f, %f;
red.global.add.f32 [%a], %f;"""
)
# The CTA that comes n-th writes its number to b[n].
TICKET = (
    START
    + """@!%first bra end;
atom.global.add.u32 %x, [%a], 1; mad.wide.u32 %p, %x, 4, %b; st.global.u32 [%p], %c;
end:"""
)
# All CTAs of the grid meet, twice; then each writes how many had come.
GRID_BARRIER = (
    START
    + """mov.u32 %y, 0;
again:
add.u32 %y, %y, %n;
@!%first bra meet;
red.release.gpu.global.add.u32 [%a], 1;
.loc 1 21 0
wait:
ld.acquire.gpu.global.u32 %x, [%a]; setp.lt.u32 %q, %x, %y;
@%q bra wait;
meet:
.loc 1 24 0
bar.sync 0;
add.u32 %x, %n, %n; setp.lt.u32 %q, %y, %x;
@%q bra again;
mad.lo.s32 %x, %c, 64, %t; mad.wide.u32 %p, %x, 4, %b;
st.global.u32 [%p], %y;"""
)
# The barrier of a cooperative launch, as cooperative groups find it, holds two words of zeros.
COOPERATIVE = GRID_BARRIER.replace(
    "mov.u32 %y, 0;\n",
    "mov.u32 %x, %envreg1;\nmov.u32 %y, %envreg2;\nmov.b64 %a, {%y, %x};\nadd.s64 %a, %a, 4;\nmov.u32 %y, 0;\n",
    1,
).replace(".global.", ".", 2)
# CTA 0 waits for what the last CTA writes.
WAITS_FOR_LAST = (
    START
    + """sub.u32 %x, %n, 1;
setp.eq.u32 %q, %c, %x; @%q st.volatile.global.u32 [%a], 7; setp.ne.u32 %q, %c, 0;
@%q bra end;
wait:
ld.volatile.global.u32 %x, [%a]; setp.eq.u32 %q, %x, 0;
@%q bra wait;
@%first st.global.u32 [%b], %x;
end:"""
)


def lock(space: str, address: str) -> str:
    """One lane of every warp takes a lock, counts with plain accesses, and gives the lock back."""
    return (
        START
        + f"""and.b32 %x, %t, 31;
setp.ne.u32 %q, %x, 0; mov.u32 %s, smem; @%first st.shared.u32 [%s], 0;
bar.sync 0;
@%q bra end;
take:
atom.{space}.cas.b32 %x, [{address}], 0, 1;
setp.ne.u32 %q, %x, 0;
@%q bra take;
ld.volatile.global.u32 %y, [%b]; add.u32 %y, %y, 1; st.volatile.global.u32 [%b], %y;
atom.{space}.exch.b32 %x, [{address}], 0;
end:"""
    )


SHARED = ".shared .align 4 .b8 smem[16];"


def run(body: str, folder: Path, grid: int, block: int, *options: object, out: int = 4096) -> tuple[int, bytes, str]:
    path = folder / "order.ptx"
    path.write_text(entry(body, POINTERS, directives=FILES + SHARED))
    done = ptxrun(path, "--grid", grid, "--block", block, "--arg", "buf:u32:64", "--arg", f"buf:u32:{out}",
                  "--dump", f"0={folder / 'a'}", "--dump", f"1={folder / 'b'}", *options)  # fmt: skip
    written = (folder / "a").read_bytes() + (folder / "b").read_bytes() if done.returncode != 2 else b""
    return done.returncode, written, done.stderr


@pytest.mark.parametrize("body", [SUM, TICKET], ids=["sum of fractions", "tickets"])
@pytest.mark.parametrize("seed", [0, 5])
def test_results_do_not_depend_on_threads(body: str, seed: int, tmp_path: Path) -> None:
    results = {run(body, tmp_path, 500, 32, "--threads", n, "--schedule", seed)[:2] for n in (1, 2, 3, 8, 8, 8)}
    assert len(results) == 1 and next(iter(results))[0] == 0


def test_a_seed_changes_the_order_of_ctas(tmp_path: Path) -> None:
    orders = {run(TICKET, tmp_path, 64, 32, "--schedule", seed)[1] for seed in (0, 1, 2)}
    assert len(orders) == 3
    for order in orders:
        assert sorted(np.frombuffer(order, np.uint32)[64:128]) == list(range(64))


@pytest.mark.parametrize("seed", [0, 3])
def test_resident_ctas_meet(seed: int, tmp_path: Path) -> None:
    status, written, text = run(GRID_BARRIER, tmp_path, 40, 64, "--schedule", seed)
    assert (status, text) == (0, "")
    assert (np.frombuffer(written, np.uint32)[64 : 64 + 40 * 64] == 80).all()


def test_a_cooperative_launch_meets_each_time(tmp_path: Path) -> None:
    status, written, text = run(COOPERATIVE, tmp_path, 20, 64)
    assert (status, text) == (0, "")
    assert not np.frombuffer(written, np.uint32)[0] and (np.frombuffer(written, np.uint32)[64 : 64 + 1280] == 40).all()


def test_a_grid_that_does_not_fit_is_named(tmp_path: Path) -> None:
    status, _, text = run(GRID_BARRIER, tmp_path, 110, 64, "--smem", 120000)
    assert status == 3 and text.startswith("livelock at lesson.cu:21, PTX line"), text
    assert "108 CTAs are resident together; 2 more start only when one of these ends" in text
    assert "CTA 0, warp 0: source line 21" in text and "polls 0x" in text
    assert "CTA 0, warp 1: source line 24" in text  # it waits at the barrier


@pytest.mark.parametrize("seed", [0, 3])
def test_a_cta_may_wait_for_a_later_one(seed: int, tmp_path: Path) -> None:
    status, written, text = run(WAITS_FOR_LAST, tmp_path, 50, 64, "--schedule", seed)
    assert (status, text) == (0, "")
    assert np.frombuffer(written, np.uint32)[64] == 7


@pytest.mark.parametrize(("space", "address"), [("shared", "%s"), ("global", "%a")])
@pytest.mark.parametrize("seed", [0, 3])
def test_a_lock_is_taken_by_all(space: str, address: str, seed: int, tmp_path: Path) -> None:
    grid = 1 if space == "shared" else 6
    status, written, text = run(lock(space, address), tmp_path, grid, 128, "--schedule", seed)
    assert (status, text) == (0, "")
    assert np.frombuffer(written, np.uint32)[64] == 4 * grid


# Nobody sets the flag: polled from global and from shared memory, and not at all.
FOREVER = {
    "volatile": "ld.volatile.global.u32 %x, [%a];\nsetp.eq.u32 %q, %x, 0;\n@%q bra wait;",
    "compare and swap": "atom.global.cas.b32 %x, [%a], 1, 2;\nsetp.eq.u32 %q, %x, 0;\n@%q bra wait;",
    "shared": "ld.volatile.shared.u32 %x, [smem];\nsetp.eq.u32 %q, %x, 0;\n@%q bra wait;",
    "empty": "bra wait;",
}


SLOW = pytest.param("compare and swap", marks=pytest.mark.long)


@pytest.mark.parametrize("kind", [kind if kind != "compare and swap" else SLOW for kind in FOREVER])
def test_polling_for_nothing_is_named(kind: str, tmp_path: Path) -> None:
    body = START + "@%first st.shared.u32 [smem], 0;\nbar.sync 0;\n.loc 1 12 0\nwait:\n" + FOREVER[kind]
    status, _, text = run(body, tmp_path, 1, 32)
    assert status == 3 and text.startswith("livelock at lesson.cu:12"), text
    assert "no store changed memory in the last" in text and "CTA 0, warp 0: source line 12" in text


def test_a_loop_that_counts_is_none(tmp_path: Path) -> None:
    """It runs for longer than a turn, and ends."""
    body = START + "mov.u32 %x, 0;\nagain:\nadd.u32 %x, %x, 1;\nsetp.lt.u32 %q, %x, 500000;\n@%q bra again;"
    assert run(body, tmp_path, 1, 32)[::2] == (0, "")
