"""wgmma of 8-bit integers, of every number of columns, in one program: A and B are 64 and 256 rows of 32 bytes."""

from dataclasses import dataclass

import numpy as np
from support.emulation import Array

COLUMNS = (8, 16, 24, *range(32, 257, 16))
TILES = 64 * 32 + 256 * 32  # bytes
HEAD = """\
.version 8.4
.target sm_90a
.address_size 64
.visible .entry integers(.param .u64 tiles, .param .u64 fragments, .param .u64 sums)
{
.reg .pred %no, %yes; .reg .b32 %t, %s, %a<4>, %x<4>; .reg .b64 %at, %from, %to, %A, %B;
.shared .align 128 .b8 tile[10240];
mov.u32 %t, %tid.x; setp.eq.u32 %no, %t, 1000; setp.ne.u32 %yes, %t, 1000; mul.wide.u32 %at, %t, 16;
ld.param.u64 %from, [tiles]; add.s64 %from, %from, %at; mov.u32 %s, tile; shr.u32 %x0, %s, 4;
cvt.u64.u32 %A, %x0; mad.lo.s32 %s, %t, 16, %s; add.s64 %A, %A, 0x1000080000; add.s64 %B, %A, 128;
"""


@dataclass(frozen=True)
class Integers:
    columns: int
    first: str
    second: str
    limits: bool
    registers: bool  # A
    scale_d: str

    def instruction(self) -> str:
        to = ", ".join(f"%c{i}" for i in range(self.columns // 2))
        a = "{%a0, %a1, %a2, %a3}" if self.registers else "%A"
        types = f"m64n{self.columns}k32{'.satfinite' if self.limits else ''}.s32.{self.first}.{self.second}"
        return f"wgmma.mma_async.sync.aligned.{types} {{{to}}}, {a}, %B, {self.scale_d};"

    def expected(self, a: Array, b: Array, c: Array) -> Array:
        left, right = (x.view(np.int8) if kind == "s8" else x for x, kind in ((a, self.first), (b, self.second)))
        adds = self.scale_d in ("1", "%yes")
        sums = c * adds + left.astype(np.int64) @ right[: self.columns].astype(np.int64).T
        limited = np.clip(sums, -(2**31), 2**31 - 1) if self.limits else sums
        return (limited % 2**32).astype(np.uint32)


def products() -> list[Integers]:
    """Types and ends go round with the numbers of columns."""
    kinds = ("s8", "u8")
    return [
        Integers(
            columns, kinds[i % 2], kinds[i // 2 % 2], i % 3 > 0, i // 4 % 2 == 0, ("1", "%yes", "1", "0", "%no")[i % 5]
        )
        for i, columns in enumerate(COLUMNS)
    ]  # fmt: skip


def program() -> str:
    text = [HEAD]
    for at in range(0, TILES, 2048):
        text += [f"ld.global.v4.b32 {{%x0, %x1, %x2, %x3}}, [%from+{at}];"]
        text += [f"st.shared.v4.b32 [%s+{at}], {{%x0, %x1, %x2, %x3}};"]
    text += ["ld.param.u64 %from, [fragments];", "add.s64 %from, %from, %at;"]
    text += ["ld.global.v4.b32 {%a0, %a1, %a2, %a3}, [%from];", "fence.proxy.async;", "bar.sync 0;"]
    to = 0
    for product in products():
        count = product.columns // 2
        text += ["{", f".reg .b32 %c<{count}>;", "ld.param.u64 %to, [sums];"]
        text += [f"mul.wide.u32 %at, %t, {4 * count};", "add.s64 %to, %to, %at;"]
        text += [f"ld.global.b32 %c{i}, [%to+{to + 4 * i}];" for i in range(count)]
        text += ["wgmma.fence.sync.aligned;", product.instruction()]
        text += ["wgmma.commit_group.sync.aligned;", "wgmma.wait_group.sync.aligned 0;"]
        text += [f"st.global.b32 [%to+{to + 4 * i}], %c{i};" for i in range(count)]
        text += ["}"]
        to += 128 * 4 * count
    return "\n".join([*text, "ret;", "}"]) + "\n"


def registers_of(matrix: Array) -> Array:
    """The elements of 64 rows of accumulators that the threads of a warpgroup hold."""
    blocks = matrix.reshape(4, 2, 8, -1, 4, 2)  # [warp][upper row][row][eight columns][lane of four][column]
    return blocks.transpose(0, 2, 4, 3, 1, 5).reshape(128, -1)
