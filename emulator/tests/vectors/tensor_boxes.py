"""Boxes of tensors with one to five dimensions: one program for each, which brings a box and stores it elsewhere."""

from dataclasses import dataclass

import numpy as np
from support.emulation import Array

SIZES = (24, 5, 4, 3, 6)  # of the tensor, of 16-bit values
BOX = (16, 3, 2, 2, 3)


@dataclass(frozen=True)
class Boxes:
    rank: int
    tile: bool  # whether the instruction says so, and has a cache hint
    swizzle: str  # "none" or "32B", which is a row of the box

    @property
    def elements(self) -> int:
        return int(np.prod(BOX[: self.rank]))

    def tensor(self, fill: str) -> str:
        sizes, box = ("x".join(map(str, each[: self.rank])) for each in (SIZES, BOX))
        return f"tmap:{sizes}:{box}:{self.swizzle}:buf:u16:{int(np.prod(SIZES[: self.rank]))}{fill}"

    def program(self) -> str:
        """CTA i brings the box at the coordinates at 20 i of the input, writes it to raw, and stores it to the other
        tensor where none of them is negative."""
        r, bytes_ = self.rank, 2 * self.elements
        at = ", ".join(f"%x{i}" for i in range(r))
        tile, hint, policy = (".tile", ".L2::cache_hint", ", %policy") if self.tile else ("", "", "")
        loads = "\n".join(f"ld.global.s32 %x{i}, [%p+{4 * i}];" for i in range(r))
        signs = "\n".join(f"or.b32 %block, %block, %x{i};" for i in range(r))
        return f"""{{
.reg .b32 %t, %s, %i, %x<5>, %block;
.reg .b64 %p, %raw, %from, %to, %policy, %q;
.reg .pred %first, %done, %more;
ld.param.u64 %p, [at];
ld.param.u64 %raw, [raw];
mov.b64 %from, source;
cvta.param.u64 %from, %from;
mov.b64 %to, target;
cvta.param.u64 %to, %to;
mov.u64 %policy, 0;
mov.u32 %t, %tid.x;
mov.u32 %s, smem;
mov.u32 %block, %ctaid.x;
mad.wide.u32 %p, %block, 20, %p;
mad.wide.u32 %raw, %block, {bytes_}, %raw;
{loads}
shl.b32 %i, %t, 2;
fill:
setp.ge.u32 %more, %i, {bytes_};
@%more bra filled;
add.u32 %block, %s, %i;
st.shared.u32 [%block], 0xffffffff;
add.u32 %i, %i, 128;
bra.uni fill;
filled:
setp.eq.u32 %first, %t, 0;
@%first mbarrier.init.shared.b64 [%s+4096], 1;
@%first fence.mbarrier_init.release.cluster;
bar.sync 0;
@!%first bra wait;
prefetch.param.tensormap [source];
cp.async.bulk.prefetch.tensor.{r}d.L2.global{tile}{hint} [%from, {{{at}}}]{policy};
mbarrier.arrive.expect_tx.shared.b64 _, [%s+4096], {bytes_};
cp.async.bulk.tensor.{r}d.shared::{"cta" if self.tile else "cluster"}.global{tile}.mbarrier::complete_tx::bytes{hint}
[%s], [%from, {{{at}}}], [%s+4096]{policy};
wait:
mbarrier.try_wait.parity.shared.b64 %done, [%s+4096], 0;
@!%done bra wait;
shl.b32 %i, %t, 1;
again:
setp.ge.u32 %more, %i, {bytes_};
@%more bra stored;
cvt.u64.u32 %q, %i;
add.s64 %q, %q, %raw;
add.u32 %block, %s, %i;
ld.shared.u16 %x4, [%block];
st.global.u16 [%q], %x4;
add.u32 %i, %i, 64;
bra.uni again;
stored:
@!%first bra end;
{loads}
mov.b32 %block, 0;
{signs}
setp.lt.s32 %more, %block, 0;
@%more bra end;
cp.async.bulk.tensor.{r}d.global.shared::cta{tile}.bulk_group{hint} [%to, {{{at}}}], [%s]{policy};
cp.async.bulk.commit_group;
cp.async.bulk.wait_group 0;
end:
ret;
}}""".replace("bytes\n", "bytes ").replace(".L2::cache_hint\n", ".L2::cache_hint ")

    def text(self) -> str:
        return f""".version 8.6
.target sm_90
.address_size 64
.shared .align 1024 .b8 smem[4104];
.visible .entry boxes(.param .align 64 .b8 source[128], .param .align 64 .b8 target[128],
    .param .u64 at, .param .u64 raw)
{self.program()}
"""

    def order(self) -> Array:
        """The element of the box at each offset of shared memory."""
        at = 2 * np.arange(self.elements)
        return (at ^ (at >> 7 & (self.swizzle == "32B")) << 4) // 2

    def boxes(self, source: Array, corners: Array) -> tuple[Array, Array]:
        """Contents of the boxes at the corners, with zeros past the tensor, and the tensor that they are stored to."""
        sizes, box = SIZES[: self.rank][::-1], BOX[: self.rank][::-1]
        room = [(12, 12)] * (self.rank - 1) + [(32, 32)]
        whole = np.pad(source.reshape(sizes), room)
        reached = np.zeros_like(whole)
        found = []
        for corner in corners[:, : self.rank][:, ::-1]:
            part = tuple(slice(at + pad[0], at + pad[0] + n) for at, pad, n in zip(corner, room, box, strict=True))
            found.append(whole[part].ravel()[self.order()])
            if corner.min() >= 0:
                reached[part] = whole[part]
        inner = tuple(slice(pad[0], pad[0] + n) for pad, n in zip(room, sizes, strict=True))
        return np.array(found), reached[inner].ravel()


PROGRAMS = [Boxes(rank, rank % 2 == 0, "32B" if rank > 2 else "none") for rank in range(1, 6)]
