"""The order of modifiers: the emulator takes those that the pinned ptxas takes, and refuses the others."""

from __future__ import annotations

import itertools
import random
import re
import subprocess
from pathlib import Path

from support.emulation import ROOT, ptxrun

PTXAS = ROOT / ".venv/toolkit/bin/ptxas"
HEAD = """.version 8.6
.target sm_90
.address_size 64
.shared .align 128 .b8 smem[1024];
"""
REGISTERS = (
    ".reg .pred %p<4>;\n.reg .b16 %h<4>;\n.reg .b32 %r<12>;\n.reg .f32 %f<12>;\n.reg .b64 %d<4>;\n.reg .f64 %g<4>;\n"
)
# An opcode with its modifiers in the order of the manual, and operands.
INSTRUCTIONS = """\
ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r1, %r2, %r3, %r4}, [%r5];
stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r5], {%r1};
movmatrix.sync.aligned.m8n8.trans.b16 %r1, %r2;
ld.relaxed.gpu.global.u32 %r1, [%d1];
ld.volatile.global.v4.f32 {%f1, %f2, %f3, %f4}, [%d1];
ld.global.nc.L1::no_allocate.L2::128B.v2.b32 {%r1, %r2}, [%d1];
st.release.cta.global.u32 [%d1], %r1;
st.global.wt.v2.f32 [%d1], {%f1, %f2};
atom.relaxed.gpu.global.add.u32 %r1, [%d1], %r2;
atom.global.add.noftz.bf16x2 %r1, [%d1], %r2;
atom.global.add.v2.f32 {%f1, %f2}, [%d1], {%f3, %f4};
atom.shared.cas.b32 %r1, [%r5], %r2, %r3;
red.release.sys.global.add.f64 [%d1], %g1;
mul.lo.s32 %r1, %r2, %r3;
mul.wide.u32 %d1, %r2, %r3;
mad.lo.s32 %r1, %r2, %r3, %r4;
fma.rn.ftz.sat.f32 %f1, %f2, %f3, %f4;
div.full.ftz.f32 %f1, %f2, %f3;
div.approx.ftz.f32 %f1, %f2, %f3;
setp.lt.and.ftz.f32 %p1|%p2, %f1, %f2, %p3;
cvt.rn.ftz.f16.f32 %h1, %f1;
cvt.rzi.ftz.s32.f32 %r1, %f1;
cvt.rn.relu.bf16x2.f32 %r1, %f1, %f2;
cvta.to.shared.u64 %d1, %d2;
shf.l.wrap.b32 %r1, %r2, %r3, %r4;
bar.cta.sync 0;
bar.red.popc.u32 %r1, 0, %p1;
barrier.cta.sync.aligned 0;
barrier.red.and.aligned.pred %p1, 0, %p2;
barrier.cta.arrive.aligned 0, 32;
shfl.sync.bfly.b32 %r1|%p1, %r2, 1, 31, -1;
vote.sync.ballot.b32 %r1, %p1, -1;
redux.sync.add.s32 %r1, %r2, -1;
match.any.sync.b32 %r1, %r2, -1;
cp.async.cg.shared.global.L2::128B [%r5], [%d1], 16;
cp.async.mbarrier.arrive.noinc.shared.b64 [%r5];
cp.async.wait_group 0;
mbarrier.init.shared.b64 [%r5], 4;
mbarrier.try_wait.parity.acquire.cta.shared.b64 %p1, [%r5], %r1;
fence.acq_rel.gpu;
fence.proxy.alias;
prefetch.global.L2::evict_last [%d1];
applypriority.global.L2::evict_normal [%d1], 128;
createpolicy.fractional.L2::evict_last.L2::evict_unchanged.b64 %d1;
mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1,%f2,%f3,%f4}, {%r1,%r2,%r3,%r4}, {%r5,%r6}, {%f5,%f6,%f7,%f8};
"""


def reordered(line: str, most: int = 10) -> list[str]:
    """The instruction with its modifiers in several orders, its own first."""
    opcode, operands = re.match(r"(\S+)(.*)", line).groups()  # type: ignore[union-attr]
    name, *modifiers = opcode.split(".")
    rng = random.Random(line)
    orders = {tuple(modifiers): None}
    if len(modifiers) < 4:
        orders |= dict.fromkeys(itertools.permutations(modifiers))
    while len(orders) < most and len(modifiers) >= 4:
        others = modifiers.copy()
        if rng.random() < 0.5:  # neighbours change places
            at = rng.randrange(len(others) - 1)
            others[at : at + 2] = reversed(others[at : at + 2])
        else:
            rng.shuffle(others)
        orders[tuple(others)] = None
    return [".".join([name, *order]) + operands for order in orders]


def refused_by_ptxas(lines: list[str], folder: Path) -> set[str]:
    """What ptxas says is wrong; it looks at meaning only once no line is malformed."""
    refused: set[str] = set()
    while True:
        kept = [line for line in lines if line not in refused]
        text = f"{HEAD}.visible .entry k()\n{{\n{REGISTERS}" + "\n".join(kept) + "\nret;\n}\n"
        (folder / "k.ptx").write_text(text)
        done = subprocess.run(
            [PTXAS, "-O0", "-arch=sm_90", "-o", "/dev/null", folder / "k.ptx"], capture_output=True, text=True
        )
        wrong = {int(at) for at in re.findall(r"line (\d+); (?:error|fatal)", done.stdout + done.stderr)}
        if not wrong:
            assert done.returncode == 0, done.stderr
            return refused
        refused |= {text.splitlines()[at - 1] for at in wrong}


def test_orders_of_modifiers_are_those_of_ptxas(tmp_path: Path) -> None:
    lines = [each for line in INSTRUCTIONS.splitlines() for each in reordered(line)]
    text = HEAD + "".join(f".visible .entry k{i}()\n{{\n{REGISTERS}{line}\nret;\n}}\n" for i, line in enumerate(lines))
    (tmp_path / "all.ptx").write_text(text)
    listed = ptxrun(tmp_path / "all.ptx", "--list").stdout
    refused = {lines[int(i)] for i in re.findall(r"^k(\d+)\n  refused", listed, re.M)}
    want = refused_by_ptxas(lines, tmp_path)
    own = set(INSTRUCTIONS.splitlines()) & want
    assert not own, "\n".join(own)
    assert len(want) > 50 and len(lines) - len(want) > 150
    assert refused == want, "\n".join(
        f"{'refused' if line in refused else 'taken'} here only: {line}" for line in sorted(refused ^ want)
    )
