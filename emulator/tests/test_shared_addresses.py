"""Addresses in shared memory: the first one, static and dynamic variables, and the rank of the CTA."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.emulation import entry, ptxrun

OUT = ".reg .b32 %r<8>;\n.reg .b64 %p<4>;\nld.param.u64 %p0, [out];\n"


def words(tmp_path: Path, text: str, count: int, *options: str | int, target: str = "sm_90") -> list[int]:
    """The values that the entry writes to its argument, without findings."""
    header, _, rest = text.partition(".target ")
    (tmp_path / "k.ptx").write_text(f"{header}.target {target}\n{rest.partition(chr(10))[2]}")
    done = ptxrun(tmp_path / "k.ptx", "--arg", f"out:u32:{count}", "--dump", f"0={tmp_path / 'out.bin'}", *options)
    assert (done.returncode, done.stderr) == (0, "")
    return [int(word) for word in np.fromfile(tmp_path / "out.bin", np.uint32)]


@pytest.mark.parametrize(
    ("target", "first"), [("sm_80", 0), ("sm_87", 0), ("sm_89", 0), ("sm_90", 1024), ("sm_90a", 1024)]
)
def test_the_target_says_where_shared_memory_begins(target: str, first: int, tmp_path: Path) -> None:
    """Halide addresses dynamic shared memory from 0: that is correct up to sm_89, whose ptxas adds no base."""
    body = f"""{OUT}st.shared.u32 [{first + 8}], 7;
    bar.sync 0;
    ld.shared.u32 %r0, [s+8];
    mov.u32 %r1, s;
    st.global.u32 [%p0], %r0;
    st.global.u32 [%p0+4], %r1;"""
    text = entry(body, ".param .u64 out", directives=".extern .shared .b8 s[];")
    assert words(tmp_path, text, 2, "--block", 1, "--smem", 64, target=target) == [7, first]


def test_an_external_variable_with_a_size_is_static(tmp_path: Path) -> None:
    """As for ptxas, which ignores .extern where it finds no definition; Taichi declares shared arrays like this.

    A definition that follows has the same bytes."""
    body = f"""{OUT}mov.u32 %r0, pad;
    mov.u32 %r1, defined; mov.u32 %r2, dynamic;
    st.global.v2.u32 [%p0], {{%r0, %r1}};
    st.global.u32 [%p0+8], %r2; st.shared.u32 [pad+252], %r0; mov.u32 %r3, %total_smem_size;
    st.global.u32 [%p0+12], %r3;"""
    declared = """.extern .shared .align 4 .b8 pad[256];
.extern .shared .align 4 .b8 defined[64];
.shared .align 4 .b8 defined[64];
.extern .shared .align 4 .b8 dynamic[];"""
    text = entry(body, ".param .u64 out", directives=declared)
    assert words(tmp_path, text, 4, "--block", 1) == [1024, 1280, 1344, 320]


@pytest.mark.parametrize(("declared", "begin"), [(4, 16), (16, 16), (128, 128), (1024, 1024)])
def test_dynamic_memory_is_aligned_as_declared(declared: int, begin: int, tmp_path: Path) -> None:
    """Swizzled tiles need 1,024 bytes. ptxas takes the largest alignment of all dynamic variables of the module."""
    body = f"""{OUT}st.shared.u32 [own], 1;
    mov.u32 %r0, dynamic; st.global.u32 [%p0], %r0; st.shared.u32 [dynamic+60], %r0;
    ld.shared.u32 %r1, [own];
    st.global.u32 [%p0+4], %r1;"""
    directives = f""".shared .align 4 .b32 own;
.extern .shared .align {declared} .b8 other[];
.extern .shared .align 4 .b8 dynamic[];"""
    text = entry(body, ".param .u64 out", directives=directives)
    assert words(tmp_path, text, 2, "--block", 1, "--smem", 64) == [1024 + begin, 1]


# %r0 is the address of a word that each of four CTAs has set to its rank. The code computes another address in %r1; the
# function returns the rank that is stored there, given that of the CTA.
ARITHMETIC: dict[str, tuple[str, Callable[[int], int]]] = {
    "and": ("and.b32 %r1, %r0, 0xfeffffff;", lambda rank: rank & ~1),
    "and, folded with another": ("or.b32 %r1, %r0, 3;\nand.b32 %r1, %r1, 0xfefffff8;", lambda rank: rank & ~1),
    "xor": ("xor.b32 %r1, %r0, 0x3000000;", lambda rank: rank ^ 3),
    "lop3": ("lop3.b32 %r1, %r0, 0x1000000, 0x2000000, 0xba;", lambda rank: rank & ~1 | 2),
    "shifts": ("shl.b32 %r1, %r0, 8;\nshr.b32 %r1, %r1, 8;", lambda rank: 0),
    "bfi": ("bfi.b32 %r1, 3, %r0, 24, 8;", lambda rank: 3),
    "difference": ("sub.u32 %r1, %r0, %r2;\nadd.u32 %r1, %r1, 0x2000000;", lambda rank: 2),
    "comparison": ("min.u32 %r1, %r0, 0x1ffffff;\nand.b32 %r1, %r1, 0x1000400;", lambda rank: 0 if rank == 0 else 1),
    "prmt": ("prmt.b32 %r1, %r0, 1, 0x4210;", lambda rank: 1),
}


@pytest.mark.parametrize("form", ARITHMETIC)
@pytest.mark.parametrize("generic", [False, True])
def test_addresses_hold_the_rank_in_every_arithmetic(form: str, generic: bool, tmp_path: Path) -> None:
    """Kernels find the first CTA of a pair by such arithmetic, and compilers fold it with others."""
    made, reads = ARITHMETIC[form]
    load = "ld.shared::cluster.u32 %r3, [%r1];"
    if generic:
        load = "cvt.u64.u32 %p1, %r1;\ncvta.shared::cluster.u64 %p1, %p1;\nld.u32 %r3, [%p1];"
    body = f"""{OUT}mov.u32 %r4, %cluster_ctarank;
    st.shared.u32 [own], %r4;
    barrier.cluster.arrive;
    barrier.cluster.wait;
    mad.wide.u32 %p0, %r4, 4, %p0; shl.b32 %r2, %r4, 24; mov.u32 %r0, own;
    {made}
    {load}
    st.global.u32 [%p0], %r3;
    barrier.cluster.arrive;
    barrier.cluster.wait;"""
    text = entry(body, ".param .u64 out", directives=".shared .align 8 .b32 own;")
    assert words(tmp_path, text, 4, "--grid", 4, "--cluster", 4, "--block", 1) == [reads(rank) for rank in range(4)]


def test_mbarriers_and_copies_of_the_first_cta_of_a_pair(tmp_path: Path) -> None:
    """Both CTAs arrive at the mbarrier of the first, whose address they compute; isspacep tells them apart."""
    body = f"""{OUT}.reg .pred %q<3>;
    mov.u32 %r4, %cluster_ctarank; mov.u32 %r0, bar; setp.ne.u32 %q0, %r4, 0;
    @!%q0 mbarrier.init.shared::cta.b64 [%r0], 2;
    fence.mbarrier_init.release.cluster;
    barrier.cluster.arrive;
    barrier.cluster.wait;
    and.b32 %r1, %r0, 0xfefffff8;
    mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r1];
    WAIT:
    @!%q0 mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %q1, [%r0], 0;
    @%q0 setp.eq.u32 %q1, 0, 0;
    @!%q1 bra WAIT;
    cvt.u64.u32 %p1, %r1; cvta.shared::cluster.u64 %p1, %p1; isspacep.shared::cta %q2, %p1;
    selp.u32 %r2, 1, 0, %q2; getctarank.u64 %r3, %p1; mad.wide.u32 %p0, %r4, 8, %p0;
    st.global.v2.u32 [%p0], {{%r2, %r3}};
    barrier.cluster.arrive;
    barrier.cluster.wait;"""
    text = entry(body, ".param .u64 out", directives=".shared .align 8 .b64 bar;")
    assert words(tmp_path, text, 4, "--grid", 2, "--cluster", 2, "--block", 1) == [1, 0, 0, 0]
