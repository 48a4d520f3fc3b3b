"""When bulk copies land: as late as allowed, and with a schedule seed in any order that is allowed."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from support.emulation import ptxrun

# Thread 0 starts loads of two numbers, does something else, and looks at both without waiting; it waits for the second
# and looks at the first; it waits for that too, and stores both to one place.
TWO_OF_EACH = """.version 8.3
.target sm_90
.address_size 64
.visible .entry two(.param .u64 in, .param .u64 out)
{
.reg .b32 %s, %x, %i;
.reg .b64 %in, %out;
.reg .pred %p;
.shared .align 128 .b8 smem[128];
ld.param.u64 %in, [in];
ld.param.u64 %out, [out];
mov.u32 %s, smem;
mbarrier.init.shared.b64 [%s+64], 1;
mbarrier.init.shared.b64 [%s+72], 1;
fence.mbarrier_init.release.cluster;
mbarrier.arrive.expect_tx.shared.b64 _, [%s+64], 16;
mbarrier.arrive.expect_tx.shared.b64 _, [%s+72], 16;
cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%s], [%in], 16, [%s+64];
cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%s+16], [%in+16], 16, [%s+72];
mov.u32 %i, 0;
busy:
add.u32 %i, %i, 1;
setp.lt.u32 %p, %i, 200;
@%p bra busy;
ld.shared.u32 %x, [%s];
st.global.u32 [%out], %x;
ld.shared.u32 %x, [%s+16];
st.global.u32 [%out+4], %x;
second:
mbarrier.try_wait.parity.shared.b64 %p, [%s+72], 0;
@!%p bra second;
ld.shared.u32 %x, [%s];
st.global.u32 [%out+8], %x;
first:
mbarrier.try_wait.parity.shared.b64 %p, [%s+64], 0;
@!%p bra first;
cp.async.bulk.global.shared::cta.bulk_group [%out+16], [%s], 16;
cp.async.bulk.global.shared::cta.bulk_group [%out+16], [%s+16], 16;
cp.async.bulk.commit_group;
cp.async.bulk.wait_group 0;
ret;
}
"""


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> list[list[int]]:
    """By schedule: both numbers at first, the first after the second was waited for, and what the stores leave."""
    folder = tmp_path_factory.mktemp("order")
    (folder / "two.ptx").write_text(TWO_OF_EACH)
    np.repeat(np.array([1, 2], np.uint32), 4).tofile(folder / "in.bin")
    found = []
    for schedule in range(25):
        ptxrun(
            folder / "two.ptx", "--block", 1, "--checks", "off", "--schedule", schedule, "--arg",
            f"buf:u32:8:@{folder / 'in.bin'}", "--arg", "buf:u32:8", "--dump", f"1={folder / 'out.bin'}",
        )  # fmt: skip
        found.append(np.fromfile(folder / "out.bin", np.uint32)[[0, 1, 2, 4]].tolist())
    return found


def test_copies_are_late_and_in_the_order_of_waits(seen: list[list[int]]) -> None:
    assert seen[0] == [0, 0, 0, 2]


def test_seeds_try_every_order(seen: list[list[int]]) -> None:
    assert {(first, second) for first, second, _, _ in seen} == {(0, 0), (1, 0), (0, 2), (1, 2)}
    assert {after for _, _, after, _ in seen} == {0, 1}
    assert {left for *_, left in seen} == {1, 2}


# CTA 0 starts a copy to CTA 1, which does not wait for it, and one to itself, both with an mbarrier at one address. It
# waits for its own, and looks at what CTA 1 has.
ONE_FOR_EACH_CTA = """.version 8.3
.target sm_90
.address_size 64
.visible .entry two(.param .u64 in, .param .u64 out)
{
.reg .b32 %s, %a, %b, %r, %x;
.reg .b64 %in, %out;
.reg .pred %p;
.shared .align 128 .b8 smem[128];
ld.param.u64 %in, [in];
ld.param.u64 %out, [out];
mov.u32 %s, smem;
mbarrier.init.shared.b64 [%s+64], 1;
fence.mbarrier_init.release.cluster;
mbarrier.arrive.expect_tx.shared.b64 _, [%s+64], 16;
barrier.cluster.arrive;
barrier.cluster.wait;
mov.u32 %r, %cluster_ctarank;
setp.eq.u32 %p, %r, 1;
@%p bra meet;
mapa.shared::cluster.u32 %a, %s, 1;
add.u32 %b, %a, 64;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%a], [%in+16], 16, [%b];
cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%s], [%in+16], 16, [%s+64];
own:
mbarrier.try_wait.parity.shared.b64 %p, [%s+64], 0;
@!%p bra own;
ld.shared.u32 %x, [%s];
st.global.u32 [%out], %x;
ld.shared::cluster.u32 %x, [%a];
st.global.u32 [%out+4], %x;
meet:
barrier.cluster.arrive;
barrier.cluster.wait;
last:
mbarrier.try_wait.parity.shared.b64 %p, [%s+64], 0;
@!%p bra last;
barrier.cluster.arrive;
barrier.cluster.wait;
ret;
}
"""


def test_a_wait_of_one_cta_lands_no_copy_to_another(tmp_path: Path) -> None:
    (tmp_path / "two.ptx").write_text(ONE_FOR_EACH_CTA)
    done = ptxrun(
        tmp_path / "two.ptx", "--grid", 2, "--block", 1, "--cluster", 2, "--checks", "off", "--arg",
        "buf:u32:8:ramp", "--arg", "buf:u32:2", "--dump", f"1={tmp_path / 'out.bin'}",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert np.fromfile(tmp_path / "out.bin", np.uint32).tolist() == [4, 0]


# Thread 0 of two warps copies 1 KB twice to one place; between the two, warp 1 reads the upper half of it and TELLS.
REUSE = """.version 8.3
.target sm_90
.address_size 64
.visible .entry reuse(.param .u64 in, .param .u64 out)
{
.reg .b32 %s, %t, %x, %a;
.reg .b64 %in, %out;
.reg .pred %p, %q;
.shared .align 128 .b8 smem[1152];
ld.param.u64 %in, [in];
ld.param.u64 %out, [out];
mov.u32 %s, smem;
mov.u32 %t, %tid.x;
setp.ne.u32 %q, %t, 0;
@%q bra ready;
mbarrier.init.shared.b64 [%s+1024], 1;
mbarrier.init.shared.b64 [%s+1032], COUNT;
fence.mbarrier_init.release.cluster;
ready:
bar.sync 0;
setp.gt.u32 %p, %t, 31;
@%p bra reader;
@%q bra end;
mbarrier.arrive.expect_tx.shared.b64 _, [%s+1024], 1024;
cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%s], [%in], 1024, [%s+1024];
ASKS
mbarrier.arrive.expect_tx.shared.b64 _, [%s+1024], 1024;
cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%s], [%in], 1024, [%s+1024];
again:
mbarrier.try_wait.parity.shared.b64 %p, [%s+1024], 1;
@!%p bra again;
bra end;
reader:
mbarrier.try_wait.parity.shared.b64 %p, [%s+1024], 0;
@!%p bra reader;
shl.b32 %a, %t, 2;
add.u32 %a, %a, %s;
ld.shared.u32 %x, [%a+512];
TELLS
st.global.u32 [%out], %x;
end:
ret;
}
"""
ASKS = "asks:\nmbarrier.try_wait.parity.shared.b64 %p, [%s+1032], 0;\n@!%p bra asks;"
BUSY = "full:\nmbarrier.try_wait.parity.shared.b64 %p, [%s+1024], 0;\n@!%p bra full;"


@pytest.mark.parametrize(
    ("tells", "count", "asks", "race"),
    [
        ("mbarrier.arrive.shared.b64 _, [%s+1032];", 32, ASKS, False),
        ("setp.eq.u32 %q, %t, 32;\n@%q mbarrier.arrive.shared.b64 _, [%s+1032];", 1, ASKS, True),
        ("bar.warp.sync -1;\nsetp.eq.u32 %q, %t, 32;\n@%q mbarrier.arrive.shared.b64 _, [%s+1032];", 1, ASKS, False),
        ("", 32, BUSY, True),
    ],
    ids=["each lane tells", "one lane tells", "one lane tells for all", "nobody tells"],
)
def test_a_copy_over_what_is_read(tells: str, count: int, asks: str, race: bool, tmp_path: Path) -> None:
    """Where many cells are overwritten at once, each lane that has read one of them counts."""
    text = REUSE.replace("TELLS", tells).replace("COUNT", str(count)).replace("ASKS", asks)
    (tmp_path / "reuse.ptx").write_text(text)
    buffers = ("--arg", "buf:u32:256:ramp", "--arg", "buf:u32:8")
    done = ptxrun(tmp_path / "reuse.ptx", "--block", 64, *buffers, "--ignore", "phase-overrun")
    assert ("writes what another thread read" in done.stderr) == race, done.stderr


# CTA 0, thread 0 copies 1 KB from `in`; thread WHO of CTA WHERE stores to its byte 132 unless it is CTA 0, thread 0.
STORE = """.version 8.3
.target sm_90
.address_size 64
.visible .entry store(.param .u64 in)
{
.reg .b32 %s, %t, %b;
.reg .b64 %in;
.reg .pred %p, %q;
.shared .align 128 .b8 smem[1152];
ld.param.u64 %in, [in];
mov.u32 %s, smem;
mov.u32 %t, %tid.x;
mov.u32 %b, %ctaid.x;
setp.ne.u32 %q, %t, WHO;
setp.ne.or.u32 %q, %b, WHERE, %q;
or.b32 %t, %t, %b;
setp.ne.u32 %p, %t, 0;
@%p bra other;
mbarrier.init.shared.b64 [%s+1024], 1;
fence.mbarrier_init.release.cluster;
mbarrier.arrive.expect_tx.shared.b64 _, [%s+1024], 1024;
cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%s], [%in], 1024, [%s+1024];
full:
mbarrier.try_wait.parity.shared.b64 %p, [%s+1024], 0;
@!%p bra full;
bra end;
other:
@!%q st.global.u32 [%in+132], %t;
end:
ret;
}
"""


@pytest.mark.parametrize(("who", "where"), [(32, 0), (0, 1), (32, 1), (0, 0)])
def test_a_store_to_what_a_copy_has_read(who: int, where: int, tmp_path: Path) -> None:
    """The copy reads pieces of 128 bytes, of which the store changes four."""
    (tmp_path / "store.ptx").write_text(STORE.replace("WHO", str(who)).replace("WHERE", str(where)))
    done = ptxrun(tmp_path / "store.ptx", "--grid", 2, "--block", 64, "--arg", "buf:u32:256:ramp")
    raced = re.findall(r"race in global memory at \S+, byte (\d+) of", done.stderr)
    assert raced == ([] if who == where == 0 else ["132"]), done.stderr
