"""When bulk copies land: as late as allowed, and with a schedule seed in any order that is allowed."""

from pathlib import Path

import numpy as np
import pytest
from support.emulation import ptxrun

# Thread 0 starts loads of two numbers, does something else, and looks at both without waiting; it waits for the second
# and looks at the first; it waits for that too, and stores both to one address.
TWO_OF_EACH = """.version 8.3
.target sm_90
.address_size 64
.visible .entry two(.param .u64 in, .param .u64 out)
{
.reg .b32 %s, %x, %i; .reg .b64 %in, %out; .reg .pred %p;
.shared .align 128 .b8 smem[128];
ld.param.u64 %in, [in]; ld.param.u64 %out, [out]; mov.u32 %s, smem;
mbarrier.init.shared.b64 [%s+64], 1;
mbarrier.init.shared.b64 [%s+72], 1;
fence.mbarrier_init.release.cluster;
mbarrier.arrive.expect_tx.shared.b64 _, [%s+64], 16;
mbarrier.arrive.expect_tx.shared.b64 _, [%s+72], 16;
cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%s], [%in], 16, [%s+64];
cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%s+16], [%in+16], 16, [%s+72];
mov.u32 %i, 0;
busy:
add.u32 %i, %i, 1; setp.lt.u32 %p, %i, 200;
@%p bra busy;
ld.shared.u32 %x, [%s]; st.global.u32 [%out], %x; ld.shared.u32 %x, [%s+16];
st.global.u32 [%out+4], %x;
second:
mbarrier.try_wait.parity.shared.b64 %p, [%s+72], 0;
@!%p bra second;
ld.shared.u32 %x, [%s]; st.global.u32 [%out+8], %x;
first:
mbarrier.try_wait.parity.shared.b64 %p, [%s+64], 0;
@!%p bra first;
cp.async.bulk.global.shared::cta.bulk_group [%out+16], [%s], 16;
cp.async.bulk.global.shared::cta.bulk_group [%out+16], [%s+16], 16; cp.async.bulk.commit_group;
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
.reg .b32 %s, %a, %b, %r, %x; .reg .b64 %in, %out; .reg .pred %p;
.shared .align 128 .b8 smem[128];
ld.param.u64 %in, [in]; ld.param.u64 %out, [out]; mov.u32 %s, smem;
mbarrier.init.shared.b64 [%s+64], 1;
fence.mbarrier_init.release.cluster;
mbarrier.arrive.expect_tx.shared.b64 _, [%s+64], 16;
barrier.cluster.arrive;
barrier.cluster.wait;
mov.u32 %r, %cluster_ctarank; setp.eq.u32 %p, %r, 1;
@%p bra meet;
mapa.shared::cluster.u32 %a, %s, 1; add.u32 %b, %a, 64;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%a], [%in+16], 16, [%b];
cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%s], [%in+16], 16, [%s+64];
own:
mbarrier.try_wait.parity.shared.b64 %p, [%s+64], 0;
@!%p bra own;
ld.shared.u32 %x, [%s]; st.global.u32 [%out], %x; ld.shared::cluster.u32 %x, [%a];
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
