"""Products of every shape of wgmma, in one program: operands laid out by an independent model of the PTX ISA.

The layouts are the canonical ones of the PTX ISA ("Asynchronous Warpgroup Level Matrix Shared Memory Layout"), by the
offset of each element; factors are small integers, so that every sum is exact.
"""

import itertools
from dataclasses import dataclass

import numpy as np
from support.emulation import Array

SWIZZLES = ("none", "128B", "64B", "32B")  # by bits 62 and 63 of a descriptor
WIDTHS = {"none": 16, "128B": 128, "64B": 64, "32B": 32}  # bytes of a row of the pattern
KINDS = {"f16": ("f32", "f16"), "bf16": ("f32", "bf16"), "f16 sums": ("f16", "f16"), "tf32": ("f32", "tf32"),
    "e4m3": ("f32", "e4m3"), "e5m2, f16 sums": ("f16", "e5m2")}  # fmt: skip
BYTES = {"f16": 2, "bf16": 2, "tf32": 4, "e4m3": 1, "e5m2": 1}  # of a factor
AREA = 48 * 1024  # bytes of shared memory: A in the first 8 KB, B behind
B_AT = 8 * 1024


@dataclass(frozen=True)
class Operand:
    """A matrix of rows along M or N and `depth` values along K in shared memory."""

    rows: int
    depth: int
    bytes: int  # of a value
    swizzle: str
    transposed: bool  # values of one k lie side by side
    start: int  # byte in shared memory

    @property
    def offsets(self) -> tuple[int, int]:
        """The leading and the stride offset, in bytes; with a gap, so that they matter."""
        width = WIDTHS[self.swizzle]
        if self.swizzle == "none":
            return (128, 272) if not self.transposed else (self.rows // 8 * 128 + 16, 128)
        if not self.transposed:
            return 0, 8 * width
        return 16 * width, 8 * width

    def places(self, row: Array, k: Array) -> Array:
        """The bytes of elements."""
        leading, stride = self.offsets
        width, values = WIDTHS[self.swizzle], 16 // self.bytes  # of a row of 16 bytes
        if self.swizzle == "none" and not self.transposed:
            at = row // 8 * stride + k // values * leading + row % 8 * 16 + k % values * self.bytes
        elif self.swizzle == "none":
            at = row // 8 * stride + k // 8 * leading + k % 8 * 16 + row % 8 * self.bytes
        elif not self.transposed:
            at = row // 8 * stride + row % 8 * width + k * self.bytes
        else:
            side = width // self.bytes  # rows that lie side by side
            at = row // side * leading + row % side * self.bytes + k // 8 * stride + k % 8 * width
        at = at + self.start
        return at ^ (at >> 7 & {"none": 0, "32B": 1, "64B": 3, "128B": 7}[self.swizzle]) << 4

    @property
    def descriptor(self) -> int:
        leading, stride = self.offsets
        return self.start // 16 | leading // 16 << 16 | stride // 16 << 32 | SWIZZLES.index(self.swizzle) << 62

    def put(self, memory: Array, bits: Array) -> None:
        rows, ks = np.indices((self.rows, self.depth))
        memory.view(f"u{self.bytes}")[self.places(rows, ks) // self.bytes] = bits


@dataclass(frozen=True)
class Product:
    columns: int
    kind: str
    a: Operand | None  # None: in registers
    b: Operand
    scale_d: str  # "0", "1", or predicates that are false or true: "%no", "%yes"
    signs: tuple[int, int]

    @property
    def depth(self) -> int:
        return 32 // BYTES[KINDS[self.kind][1]]

    @property
    def narrow(self) -> bool:
        return KINDS[self.kind][0] == "f16"

    @property
    def registers(self) -> int:
        return self.columns // (4 if self.narrow else 2)

    @property
    def area(self) -> int:
        """Bytes of shared memory that it needs, in pieces that 128 threads bring."""
        last = self.b.places(*np.indices((self.columns, self.depth))).max()
        return int(last) // 2048 * 2048 + 2048

    def instruction(self) -> str:
        sums, factors = KINDS[self.kind]
        to = ", ".join(f"%c{i}" for i in range(self.registers))
        a = "%A" if self.a else "{%a0, %a1, %a2, %a3}"
        words = [f"{{{to}}}", a, "%B", self.scale_d, *map(str, self.signs)]
        if BYTES[factors] == 2:
            words += [str(int(self.a.transposed))] if self.a else []
            words += [str(int(self.b.transposed))]
        shape = f"m64n{self.columns}k{self.depth}"
        return f"wgmma.mma_async.sync.aligned.{shape}.{sums}.{factors}.{factors} {', '.join(words)};"


def products(seed: int) -> list[Product]:
    """Every number of columns with every kind; the other properties go round."""
    rng = np.random.default_rng(seed)
    made = []
    for columns, (turn, kind) in itertools.product(range(8, 257, 8), enumerate(KINDS)):
        turn += columns // 8
        size = BYTES[KINDS[kind][1]]
        depth = 32 // size
        swizzles = rng.permutation(SWIZZLES)
        flips = rng.integers(0, 2, 3).astype(bool) & (size == 2)
        b_width = WIDTHS[str(swizzles[1])]
        b_transposed = bool(flips[0]) and (swizzles[1] == "none" or columns * size % b_width == 0)
        a = Operand(64, depth, size, str(swizzles[0]), bool(flips[1]), 0) if turn % 3 else None
        b = Operand(columns, depth, size, str(swizzles[1]), b_transposed, B_AT)
        signs = (int(rng.choice([1, -1])), int(rng.choice([1, -1])))
        made.append(Product(columns, kind, a, b, ("0", "1", "%no", "%yes")[turn // 2 % 4], signs))
    return made


def bits_of(values: Array, kind: str) -> Array:
    """Small integers, which all formats represent exactly."""
    factors = KINDS[kind][1]
    halves = values.astype(np.float16).view(np.uint16)
    if factors == "e5m2":
        return (halves >> 8).astype(np.uint8)
    if factors == "e4m3":  # a bit more of fraction, and a bias of 7 instead of 15
        return np.where(values == 0, 0, (halves >> 8 & 0x80) | ((halves & 0x7FFF) >> 7) - (8 << 3)).astype(np.uint8)
    if factors == "f16":
        return halves
    words = values.astype(np.float32).view(np.uint32)
    return words if kind == "tf32" else (words >> 16).astype(np.uint16)


def fragments(bits: Array) -> Array:
    """The registers of A in 128 threads, four each."""
    words = np.ascontiguousarray(bits).view(np.uint32)  # [64][8]
    row, word = np.arange(128) // 32 * 16 + np.arange(128) % 32 // 4, np.arange(128) % 4
    return np.stack([words[row + i % 2 * 8, word + i // 2 * 4] for i in range(4)], 1)


def sums_of(accumulators: Array, product: Product) -> Array:
    """D of 64 rows as float32, from the registers of 128 threads."""
    d = np.zeros((64, product.columns), np.float32)
    row, column = np.arange(128) // 32 * 16 + np.arange(128) % 32 // 4, np.arange(128) % 4 * 2
    values = accumulators.view(np.float16 if product.narrow else np.float32).reshape(128, -1).astype(np.float32)
    for i in range(product.columns // 2):
        d[row + i % 4 // 2 * 8, i // 4 * 8 + column + i % 2] = values[:, i]
    return d


HEAD = """.version 8.3
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 smem[];
.visible .entry shapes(.param .u64 in, .param .u64 out)
{
.reg .b32 %t, %s, %i; .reg .b64 %in, %out, %own, %from, %A, %B; .reg .pred %more, %no, %yes;
ld.param.u64 %in, [in]; ld.param.u64 %out, [out]; mov.u32 %t, %tid.x; setp.eq.u32 %no, %t, 1000;
setp.ne.u32 %yes, %t, 1000;
"""


def program(made: list[Product]) -> str:
    """Input: for each product its shared memory, A's fragments and the accumulators; output: the latter."""
    text = [HEAD]
    at = to = 0
    for product in made:
        n = product.registers
        text += ["{", f".reg .b32 %a<4>, %x<4>;\n.reg .b32 %c<{n}>;", "bar.sync 0;", "mul.lo.u32 %i, %t, 16;"]
        text += ["fill:", "cvt.u64.u32 %own, %i;", "add.s64 %from, %in, %own;", "mov.u32 %s, smem;",
            "add.s32 %s, %s, %i;"]  # fmt: skip
        text += [f"ld.global.v4.b32 {{%x0, %x1, %x2, %x3}}, [%from+{at}];",
            "st.shared.v4.b32 [%s], {%x0, %x1, %x2, %x3};"]  # fmt: skip
        text += ["add.s32 %i, %i, 2048;", f"setp.lt.u32 %more, %i, {product.area};", "@%more bra fill;"]
        at += product.area
        text += ["mul.wide.u32 %own, %t, 16;", "add.s64 %from, %in, %own;"]
        text += [f"ld.global.v4.b32 {{%a0, %a1, %a2, %a3}}, [%from+{at}];"]
        at += 128 * 16
        text += [f"mul.wide.u32 %own, %t, {4 * n};", "add.s64 %from, %in, %own;"]
        text += [f"ld.global.b32 %c{i}, [%from+{at + 4 * i}];" for i in range(n)]
        at += 128 * 4 * n
        text += ["fence.proxy.async;", "bar.sync 0;", "mov.u32 %s, smem;", "shr.u32 %s, %s, 4;",
            "cvt.u64.u32 %own, %s;"]  # fmt: skip
        text += [f"add.s64 %B, %own, {product.b.descriptor:#x};"]
        text += [f"add.s64 %A, %own, {product.a.descriptor:#x};"] if product.a else []
        text += ["wgmma.fence.sync.aligned;", product.instruction()]
        text += ["wgmma.commit_group.sync.aligned;", "wgmma.wait_group.sync.aligned 0;"]
        text += [f"mul.wide.u32 %own, %t, {4 * n};", "add.s64 %from, %out, %own;"]
        text += [f"st.global.b32 [%from+{to + 4 * i}], %c{i};" for i in range(n)]
        to += 128 * 4 * n
        text.append("}")
    return "\n".join([*text, "ret;", "}"])
