"""tcgen05 and tensor memory: products of every kind, loads, copies and shifts against NumPy, and what is reported.

A program copies bytes to shared memory, executes the statements of a case, and stores columns of tensor memory. Values
are small, so that float64 has each sum exactly; test_sums has those that are cut.
"""

import csv
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from support.emulation import DRIVER, ROOT, ptxrun

Array = npt.NDArray[Any]
BYTES = 32768  # of the tile in shared memory

PROGRAM = """\
.version 9.0
.target sm_100a
.address_size 64
.shared .align 1024 .b8 tile[32768];
.shared .align 8 .b8 bar[16];
.shared .align 4 .b8 slot[8];
.visible .entry test(.param .u64 in, .param .u64 out) CLUSTER
{
.reg .pred %p, %one, %on, %off, %mine;
.reg .b16 %both;
.reg .b32 %t, %w, %slab, %tile, %base, %i, %x<36>, %rank, %bar;
.reg .b64 %in, %out, %at, %desc, %da, %db, %l<4>;
mov.u32 %t, %tid.x;
mov.u32 %rank, %cluster_ctarank;
mov.u32 %tile, tile;
mov.u32 %bar, bar;
shr.u32 %w, %t, 5;
shl.b32 %slab, %w, 21;
setp.eq.u32 %one, %t, 0;
setp.eq.u32 %on, %t, %t;
setp.ne.u32 %off, %t, %t;
setp.ne.u32 %p, %w, 0;
@%p bra allocated;
ALLOC
allocated:
@%one mbarrier.init.shared.b64 [%bar], 1;
ld.param.u64 %in, [in];
mad.wide.u32 %in, %rank, 32768, %in;
mov.u32 %i, 0;
copy:
add.u32 %x0, %i, %t;
mul.wide.u32 %at, %x0, 16;
add.s64 %at, %at, %in;
ld.global.v4.b32 {%x1, %x2, %x3, %x4}, [%at];
mad.lo.u32 %x0, %x0, 16, %tile;
st.shared.v4.b32 [%x0], {%x1, %x2, %x3, %x4};
add.u32 %i, %i, 128;
setp.lt.u32 %p, %i, 2048;
@%p bra copy;
fence.proxy.async.shared::cta;
bar.sync 0;
SYNC
ld.shared.b32 %base, [slot];
add.u32 %slab, %slab, %base;
bfe.u32 %x0, %tile, 4, 14;
cvt.u64.u32 %desc, %x0;
SETUP
tcgen05.wait::st.sync.aligned;
tcgen05.fence::before_thread_sync;
bar.sync 0;
SYNC
tcgen05.fence::after_thread_sync;
and.pred %mine, %one, %on;
ISSUER
@!%mine bra issued;
JOBS
COMMIT
issued:
WAIT
tcgen05.fence::after_thread_sync;
ld.param.u64 %out, [out];
mad.lo.u32 %x0, %rank, 128, %t;
mad.wide.u32 %out, %x0, OUT_BYTES, %out;
LOADS
tcgen05.fence::before_thread_sync;
bar.sync 0;
SYNC
tcgen05.fence::after_thread_sync;
setp.ne.u32 %p, %w, 0;
@%p bra end;
DEALLOC
end:
ret;
}
"""
ALLOC = "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [slot], 512;"
DEALLOC = "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %base, 512;"
COMMIT = "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [bar];"
WAIT = "wait:\nmbarrier.try_wait.parity.shared::cta.b64 %p, [bar], 0;\n@!%p bra wait;"
SYNC = "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;"


def loads(columns: int) -> str:
    """Each thread stores the columns of its lane."""
    lines = []
    for c in range(0, columns, 8):
        names = ", ".join(f"%x{i}" for i in range(8))
        lines += [f"tcgen05.ld.sync.aligned.32x32b.x8.b32 {{{names}}}, [%slab+{c}];", "tcgen05.wait::ld.sync.aligned;"]
        for i in (0, 4):
            values = f"{{%x{i}, %x{i + 1}, %x{i + 2}, %x{i + 3}}}"
            lines.append(f"st.global.v4.b32 [%out+{4 * (c + i)}], {values};")
    return "\n".join(lines)


def fill(columns: int, word: int) -> str:
    """Each thread stores the word to the columns of its lane."""
    stores = [f"tcgen05.st.sync.aligned.32x32b.x1.b32 [%slab+{c}], {{%x2}};" for c in range(columns)]
    return "\n".join([f"mov.b32 %x2, {word};", *stores])


def program(jobs: str, setup: str = "", columns: int = 8, pair: bool = False, **changes: str) -> str:
    parts = {
        "CLUSTER": ".explicitcluster .reqnctapercluster 2" if pair else "",
        "ALLOC": ALLOC, "SETUP": setup, "JOBS": jobs, "COMMIT": COMMIT, "WAIT": WAIT, "LOADS": loads(columns),
        "DEALLOC": DEALLOC, "OUT_BYTES": str(4 * columns), "SYNC": SYNC if pair else "", "ISSUER": "", **changes,
    }  # fmt: skip
    text = re.sub(r"\b(" + "|".join(parts) + r")\b", lambda match: parts[match[0]], PROGRAM)
    if pair:
        text = re.sub(r"(tcgen05\.(?:alloc|dealloc|commit|mma|cp)[.\w]*?cta_group)::1", r"\1::2", text)
    return text


def run(folder: Path, text: str, tile: bytes, columns: int = 8, ctas: int = 1, *options: object) -> tuple[str, Array]:
    (folder / "k.ptx").write_text(text)
    (folder / "in.bin").write_bytes(tile.ljust(BYTES * ctas, b"\0"))
    done = ptxrun(
        folder / "k.ptx", "--grid", ctas, "--block", 128, "--arg", f"buf:u32:{BYTES * ctas // 4}:@{folder}/in.bin",
        "--arg", f"buf:u32:{ctas * 128 * columns}", "--dump", f"1={folder}/out.bin", *options,
    )  # fmt: skip
    out = np.fromfile(folder / "out.bin", np.uint32) if done.returncode in (0, 1) else np.zeros(0, np.uint32)
    return done.stderr, out.reshape(-1, columns) if len(out) else out


# ---- formats ---------------------------------------------------------------------------------------------------------


def small_floats(exponents: int, fraction: int) -> Array:
    """The value of each bit pattern; NaN and infinities are not used here."""
    bits = np.arange(1 << (1 + exponents + fraction))
    part, bias = bits % (1 << fraction), (1 << (exponents - 1)) - 1
    field_ = bits >> fraction & ((1 << exponents) - 1)
    value = np.where(field_ > 0, part + (1 << fraction), part) * 2.0 ** (np.maximum(field_, 1) - bias - fraction)
    values: Array = np.where(bits >> (exponents + fraction) & 1, -value, value)
    return values


FORMATS = {"e4m3": (4, 3), "e5m2": (5, 2), "e2m3": (2, 3), "e3m2": (3, 2), "e2m1": (2, 1)}
CODES = {"f16": 0, "bf16": 1, "tf32": 2, "e4m3": 0, "e5m2": 1, "e2m3": 3, "e3m2": 4, "e2m1": 5, "u8": 0, "s8": 1}


def elements(rng: np.random.Generator, kind: str, rows: int, k: int, packed: bool = False) -> tuple[Array, Array]:
    """Values, and their rows of bytes along k as the tensor core takes them."""
    values: Array
    words: Array
    if kind in ("u8", "s8"):
        values = rng.integers(-128 if kind == "s8" else 0, 128 if kind == "s8" else 256, (rows, k))
        return values.astype(np.float64), values.astype(np.uint8)
    if kind not in FORMATS:
        values = rng.integers(-8, 9, (rows, k)) / 4
        words = (
            values.astype(np.float16).view(np.uint16) if kind == "f16" else values.astype(np.float32).view(np.uint32)
        )
        if kind == "bf16":
            words = (words >> 16).astype(np.uint16)
        return values, words.view(np.uint8).reshape(rows, -1)
    table = small_floats(*FORMATS[kind])
    good = np.flatnonzero(np.abs(table) <= 8)
    bits = rng.choice(good[np.abs(table[good]) >= 0.25], (rows, k))
    return table[bits], small_bits(bits, kind, packed)


def small_bits(bits: Array, kind: str, packed: bool) -> Array:
    """Rows of numbers of 8, 6 or 4 bits; packed: two of 4 bits in each byte."""
    rows, k = bits.shape
    if packed:
        return (bits[:, ::2] | bits[:, 1::2] << 4).astype(np.uint8)
    if kind not in ("e2m1", "e2m3", "e3m2"):
        return bits.astype(np.uint8)
    width = 4 if kind == "e2m1" else 6  # 16 numbers side by side at the start of 16 bytes
    flat = np.zeros((rows, k // 16, 128), np.uint8)
    for bit in range(width):
        flat[:, :, bit : 16 * width : width] = (bits >> bit & 1).reshape(rows, k // 16, 16)
    return np.packbits(flat, axis=2, bitorder="little").reshape(rows, k)


def core_matrices(rows: Array) -> bytes:
    """Without a swizzle: 8 rows of 16 bytes side by side, then the next 8 rows, then the next 16 bytes."""
    count, width = rows.shape
    return rows.reshape(count // 8, 8, width // 16, 16).transpose(2, 0, 1, 3).tobytes()


def descriptor(offset: int, rows: int) -> int:
    return offset >> 4 | rows << 16 | (128 >> 4) << 32 | 1 << 46


def wrapped(rows: Array) -> bytes:
    """Rows of 48 bytes: 32 at the end of rows of 128 with their swizzle, and 16 at the start of the same ones."""
    tile = np.zeros((len(rows), 8, 16), np.uint8)
    for chunk, at in enumerate((6, 7, 0)):
        tile[np.arange(len(rows)), at ^ np.arange(len(rows)) % 8] = rows[:, 16 * chunk : 16 * chunk + 16]
    return tile.tobytes()


def descriptor_of(offset: int, rows: int, wraps: bool) -> str:
    """A statement that makes one in %da; a wrapped tile is its own successor."""
    if not wraps:
        return f"add.s64 %da, %desc, {descriptor(offset, rows)};"
    fields = offset + 96 >> 4 | offset >> 4 << 16 | (1024 >> 4) << 32 | 1 << 46 | 1 << 52 | 2 << 61
    return f"shl.b64 %da, %desc, 16;\nadd.s64 %da, %da, %desc;\nadd.s64 %da, %da, {fields};"


# ---- products --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Product:
    kind: str
    a: str = "f16"
    b: str = "f16"
    m: int = 128
    n: int = 16
    d: int = 1  # 0 f16, 1 f32, 2 s32
    more: int = 0  # bits of the instruction descriptor
    scales: int = 0  # of a row
    modifiers: str = ""
    there: bool = False  # A is in tensor memory
    pair: bool = False
    off: tuple[int, ...] = ()
    start: str = ""  # scale-input-d
    zeroed: tuple[int, str] = (0, "")  # descriptor of a zero-column mask, and columns of B by 1 (zeros) or 0
    wide: bool = False  # K = 96, of sm_103a
    wraps: bool = False  # rows of 48 bytes from byte 96 of a tile of 128 bytes on, and then from byte 0 of the next one

    @property
    def has_parts(self) -> bool:
        return self.there and (self.pair or ".ws" in self.modifiers)

    @property
    def k(self) -> int:
        if self.wide:
            return 96
        dense = 64 if "mxf4" in self.kind else {"f16": 16, "bf16": 16, "tf32": 8}.get(self.a, 32)
        return dense * (2 if ".sp" in self.modifiers else 1)


PRODUCTS = {
    "f16": Product("f16"),
    "bf16, 64 rows": Product("f16", "bf16", "bf16", 64, 8),
    "8 columns": Product("f16", n=8),
    "bf16 by f16": Product("f16", "bf16", "f16"),
    "f16 sums": Product("f16", d=0),
    "negated": Product("f16", more=3 << 13),
    "tf32": Product("tf32", "tf32", "tf32"),
    "e4m3 by e5m2": Product("f8f6f4", "e4m3", "e5m2"),
    "e2m1 by e3m2": Product("f8f6f4", "e2m1", "e3m2"),
    "e2m3 negated": Product("f8f6f4", "e2m3", "e4m3", more=1 << 13),
    "bytes": Product("i8", "s8", "u8", d=2),
    "collector": Product("f16", modifiers=".collector::a::fill"),
    "A in tensor memory": Product("f16", there=True),
    "shifted": Product("f16", there=True, modifiers=".ashift"),
    "A there, stationary": Product("f16", m=32, n=64, there=True, modifiers=".ws"),
    "A there, 128 rows of two": Product("f16", m=128, n=32, there=True, pair=True),
    "A there, 64 rows": Product("f16", m=64, there=True),
    "lanes off": Product("f16", off=(0xF0, 0, 1, 1 << 31)),
    "scale-input-d": Product("f16", start=", 3"),
    "stationary, 32 rows": Product("f16", m=32, n=64, modifiers=".ws"),
    "stationary, 64 rows": Product("f8f6f4", "e4m3", "e4m3", 64, 64, modifiers=".ws"),
    # Each half of the columns has a mask: four columns that count and two zeros, or these zeros less one first.
    "columns of zeros": Product("f16", m=64, n=64, modifiers=".ws", zeroed=(
        1 << 48 | 3 << 40 | 1 << 39 | 1 << 33 | 1 << 8, ("000011" * 6)[:32] + ("110000" * 6)[1:33])),
    "sparse": Product("f16", modifiers=".sp"),
    "sparse, the next column": Product("f16", modifiers=".sp", more=1),
    "sparse bytes": Product("i8", "s8", "s8", d=2, modifiers=".sp"),
    "sparse e3m2": Product("f8f6f4", "e3m2", "e4m3", modifiers=".sp"),
    "sparse e2m1": Product("mxf8f6f4", "e2m1", "e2m3", scales=1, modifiers=".sp"),
    "sparse tf32": Product("tf32", "tf32", "tf32", modifiers=".sp"),
    "mxf8f6f4": Product("mxf8f6f4", "e4m3", "e2m1", scales=1),
    "mxf4": Product("mxf4", "e2m1", "e2m1", scales=2),
    "mxf4nvf4": Product("mxf4nvf4", "e2m1", "e2m1", scales=4, modifiers=".scale_vec::4X"),
    "mxf4nvf4 by 32": Product("mxf4nvf4", "e2m1", "e2m1", scales=2, modifiers=".scale_vec::2X"),
    "mxf4, K = 96": Product("mxf4", "e2m1", "e2m1", scales=3, wide=True),
    "mxf4nvf4, K = 96": Product("mxf4nvf4", "e2m1", "e2m1", n=48, scales=6, modifiers=".block16", wide=True),
    "K = 96 in two tiles": Product("mxf4", "e2m1", "e2m1", scales=3, wide=True, wraps=True),
    "256 rows": Product("f16", m=256, n=32, pair=True),
    "128 rows of two": Product("f16", m=128, n=32, pair=True),
    "scaled pair": Product("mxf8f6f4", "e4m3", "e4m3", 256, 32, scales=1, pair=True),
}  # fmt: skip


def in_pairs_of_rows(words: Array) -> Array:
    """A word of each row, as tensor memory has those of f16 and tf32: lanes r and r + 8 have the first and the second
    half of k, in lower halves of row r and in upper ones of row r + 8."""
    rows = words.reshape(-1, 2, 8)
    first = rows[:, 0] & 0xFFFF | (rows[:, 1] & 0xFFFF) << 16
    second = rows[:, 0] >> 16 | rows[:, 1] >> 16 << 16
    return np.stack([first, second], 1).reshape(-1, 1)


def sparse_indices(rng: np.random.Generator, what: Product, rows: int) -> tuple[Array, Array]:
    """For each stored element its index along k, and the words that say so."""
    if what.a == "tf32":
        second = rng.integers(0, 2, (rows, what.k // 2))
        words = (np.where(second, 0xE, 4) << 4 * np.arange(what.k // 2)).sum(axis=1)
        return 2 * np.arange(what.k // 2) + second, words.astype(np.uint32).reshape(rows, 1)
    pairs = np.array([(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)])[rng.integers(0, 6, (rows, what.k // 4))]
    columns = (pairs + 4 * np.arange(what.k // 4)[:, None]).reshape(rows, -1)
    bits = pairs.reshape(rows, -1, 16).astype(np.uint64) << (2 * np.arange(16, dtype=np.uint64))
    return columns, bits.sum(axis=2).astype(np.uint32)


def store_words(words: Array, column: int, offset: int, rank: int = 0) -> tuple[str, bytes]:
    """Statements that bring words of 128 lanes from the tile at an offset to columns."""
    lines = [f"mad.lo.u32 %x0, %t, {4 * words.shape[1]}, %tile;"]
    for c in range(words.shape[1]):
        lines.append(f"ld.shared.b32 %x1, [%x0+{offset + 4 * c}];")
        lines.append(f"tcgen05.st.sync.aligned.32x32b.x1.b32 [%slab+{column + c}], {{%x1}};")
    return "\n".join(lines), words.astype(np.uint32).tobytes()


def on_lanes(rows: Array, what: Product) -> Array:
    """Rows of A as lanes of tensor memory. Each part of D has its own A: the rows, in odd parts the last one first."""
    out = np.zeros((128, rows.shape[1]), rows.dtype)
    if what.has_parts:
        return np.tile(np.concatenate([rows, rows[::-1]]), (2, 1))[:128]
    out[[r // 16 * 32 + r % 16 if what.m == 64 else r for r in range(len(rows))]] = rows
    return out


def position(what: Product, row: int, n: int) -> tuple[int, int, int]:
    """CTA, lane and column of an element of D: PTX ISA, "Data Path Layout Organization"."""
    if what.pair:
        cta, row = divmod(row, what.m // 2)
        return (cta, row, n) if what.m == 256 else (cta, row + n // (what.n // 2) * 64, n % (what.n // 2))
    if "ws" in what.modifiers:
        width = what.n * what.m // 128
        return 0, row + n // width * what.m, n % width
    return 0, row // 16 * 32 + row % 16 if what.m == 64 else row, n


A_COLUMN, INDEX_COLUMN, SCALE_COLUMNS = 256, 300, (320, 330)


@dataclass
class Parts:
    setup: list[str]
    tile: bytes = b""

    def add(self, statements_and_data: tuple[str, bytes]) -> None:
        statements, data = statements_and_data
        self.setup.append(statements)
        self.tile += data

    def store(self, words: Array, column: int) -> None:
        self.add(store_words(words, column, len(self.tile)))


def scale_words(rng: np.random.Generator, rows: int, scales: int, ue8m0: bool) -> tuple[Array, Array]:
    """Scales of rows, and the words of 32 lanes and some columns, four times: each warp writes its own lanes."""
    exponents = rng.integers(-2, 3, (rows, scales))
    bits = exponents + 127 if ue8m0 else (exponents + 7) << 3
    return 2.0**exponents, words_of_scales(bits)


def words_of_scales(bits: Array) -> Array:
    rows, scales = bits.shape
    unit = 128 if scales > 4 else 32
    padded = np.zeros(((rows + unit - 1) // unit * unit, (scales + 3) // 4 * 4), np.uint8)
    padded[:rows, :scales] = bits
    words: Array = padded.view(np.uint32).T.reshape(-1, 32).T  # the first words of all rows, then the second ones
    return np.tile(words, (4, 1))


WORDS_OF: list[Callable[[Array], Array]] = [
    lambda v: v.astype(np.float16).view(np.uint16).astype(np.uint32),
    lambda v: v.astype(np.float32).view(np.uint32),
    lambda v: v.astype(np.int32).view(np.uint32),
]


def build(what: Product, seed: int) -> tuple[str, bytes, Array, int]:
    """The program, the bytes of its tile, the words of D by CTA, and the columns of D."""
    rng = np.random.default_rng(seed)
    sparse, fours, ctas = ".sp" in what.modifiers, "mxf4" in what.kind, 1 + what.pair
    rows, cols = what.m // ctas, what.n // ctas
    stored, raw_a = elements(rng, what.a, what.m, what.k // (1 + sparse), fours)
    b, raw_b = elements(rng, what.b, what.n, what.k, fours)
    a = stored
    indices: Array = np.zeros((what.m, 1), np.uint32)
    if sparse:
        columns, indices = sparse_indices(rng, what, what.m)
        a = np.zeros((what.m, what.k))
        np.put_along_axis(a, columns, stored, axis=1)
    ue8m0 = what.kind != "mxf4nvf4" or what.scales == 2
    scales = [np.ones((side, 1)) for side in (what.m, what.n)]
    tiles = []
    scaled = [scale_words(rng, side, what.scales, ue8m0) for side in (what.m, what.n)] if what.scales else []
    for i, (values, _) in enumerate(scaled):
        scales[i] = values
    for cta in range(ctas):
        a_bytes, b_bytes = raw_a[cta * rows : (cta + 1) * rows], raw_b[cta * cols : (cta + 1) * cols]
        arranged = wrapped if what.wraps else core_matrices
        parts = Parts([], arranged(a_bytes) + arranged(b_bytes))
        if what.there:
            parts.store(on_lanes(a_bytes.view(np.uint32), what), A_COLUMN)
        if sparse:
            arranged_indices = indices if raw_a.shape[1] == what.k // 2 else in_pairs_of_rows(indices)
            parts.store(on_lanes(arranged_indices, what), INDEX_COLUMN + (what.more & 3))
        for i, (_, words) in enumerate(scaled):
            width = words.shape[1] // (ctas if i == 0 else 1)
            parts.store(words[:, cta * width : (cta + 1) * width] if i == 0 else words, SCALE_COLUMNS[i])
        tiles.append(parts.tile.ljust(BYTES, b"\0"))
    full = [np.repeat(s, what.k // s.shape[1], axis=1) for s in scales]
    if "ashift" in what.modifiers:
        a = np.vstack([a[:1], a[:-1]])
    if what.zeroed[1]:
        b = np.where(np.array(list(what.zeroed[1]))[:, None] == "1", 0, b)
    signs = (-1.0) ** (what.more >> 13 & 1) * (-1.0) ** (what.more >> 14 & 1)
    product = signs * (a * full[0]) @ (b * full[1]).T
    idesc = what.more | what.n // 8 << 17 | what.m // 16 << 24
    idesc |= ue8m0 << 23 if what.scales else what.d << 4
    idesc |= what.wide << 31
    codes = [1 if fours else CODES[name] for name in (what.a, what.b)]
    idesc |= codes[0] << 7 | codes[1] << 10 | sparse << 2
    columns = max(position(what, r, n)[2] for r in (0, what.m - 1) for n in range(what.n)) + 1
    start = np.full((ctas, 128, columns), 96, np.float64)  # what D has before
    d = start.copy()
    for r in range(what.m):
        for n in range(what.n):
            cta, lane, column = position(what, r, n)
            if what.off and what.off[lane // 32] >> lane % 32 & 1:
                continue
            row = (2 * (r // rows) + 1) * rows - 1 - r if what.has_parts and lane // rows % 2 else r
            d[cta, lane, column] = product[row, n] + start[cta, lane, column] / (8 if what.start else 1)
    to_words = WORDS_OF[what.d]
    before = int(to_words(np.array([96.0]))[0])
    parts.setup.insert(0, fill(columns, before))
    sp = ".sp" if sparse else ""
    ws = ".ws" if ".ws" in what.modifiers else ""
    modifiers = what.modifiers.replace(".sp", "").replace(".ws", "")
    scale = ".block_scale" if what.scales else ""
    operands = ["[%x4]" if what.there else "%da", "%db"]
    operands += [f"[%base+{INDEX_COLUMN}]"] * sparse + [str(idesc)]
    operands += [f"[%base+{column}]" for column in SCALE_COLUMNS if what.scales]
    if what.off:
        operands.append("{" + ", ".join(f"%x{10 + i}" for i in range(4)) + "}")
    jobs = "\n".join([
        *(f"mov.b32 %x{10 + i}, {word};" for i, word in enumerate(what.off)),
        f"add.u32 %x4, %base, {A_COLUMN};",
        descriptor_of(rows * 128 if what.wraps else raw_a[:rows].size, cols, what.wraps).replace("%da", "%db"),
        descriptor_of(0, rows, what.wraps),
        f"mov.b64 %l0, {what.zeroed[0]};",
        f"tcgen05.mma{ws}{sp}.cta_group::1.kind::{what.kind}{scale}{modifiers} [%base], "
        + ", ".join(operands) + f", %on{what.start}{', %l0' * (what.zeroed[0] > 0)};",
    ])  # fmt: skip
    changes = {}
    if what.pair:
        changes["ISSUER"] = "setp.eq.and.u32 %mine, %rank, 0, %one;"
        changes["COMMIT"] = COMMIT.replace(".b64 [bar]", ".multicast::cluster.b64 [bar], %both").replace(
            "tcgen05", "mov.b16 %both, 3;\ntcgen05"
        )
    text = program(jobs, "\n".join(parts.setup), (columns + 7) // 8 * 8, what.pair, **changes)
    if what.wide:
        text = text.replace("sm_100a", "sm_103a")
    return text, b"".join(tiles), to_words(d), columns


@pytest.mark.parametrize("name", PRODUCTS)
def test_products(name: str, tmp_path: Path) -> None:
    what = PRODUCTS[name]
    text, tile, want, columns = build(what, 7)
    wide = (columns + 7) // 8 * 8
    text = text.replace("32x32b.x1.b32 [%slab+0]", "32x32b.x1.b32 [%slab]")
    for seed in (0, 3):
        said, out = run(tmp_path, text, tile, wide, 1 + what.pair, "--schedule", seed, "--strict-tcgen05")
        assert said == ""
        assert (out.reshape(-1, 128, wide)[:, :, :columns] == want).all()


# ---- sums that are cut -----------------------------------------------------------------------------------------------

# Row 0 of A and column 0 of B, D before, and the sum: by hand from the rule in tcgen05_mma.c.
SUMS = {
    # the unit is 2^-25: 2^-26 is cut each time, though two of them are a whole unit
    "f16": ("f16", [1.0] + [2.0**-13] * 2, [1.0] + [2.0**-13] * 2, 0.0, 1.0),
    # 33 terms are one sum: the unit is 2^(16 - 25), which 32 terms of 2^-10 are all below
    "e4m3": ("f8f6f4", [256.0] + [2.0**-5] * 31, [256.0] + [2.0**-5] * 31, 0.0, 65536.0),
    "to zero": ("f16", [-1.0, 2.0**-12], [1.0, 2.0**-12], -0.5, -1.5 + 2.0**-23),
    "e5m2 is exact": ("f8f6f4", [2.0**10, 1.0], [2.0**10, 1.0], -(2.0**20), 1.0),
}


@pytest.mark.parametrize("name", SUMS)
def test_sums(name: str, tmp_path: Path) -> None:
    kind, left, right, start, want = SUMS[name]
    number = "f16" if kind == "f16" else "e5m2" if "e5m2" in name else "e4m3"
    sides = []
    for values in (left, right):
        if kind == "f16":
            raw = np.zeros((8, 16), np.float16)
            raw[0, : len(values)] = values
            sides.append(raw.view(np.uint8))
        else:
            table = small_floats(*FORMATS[number])
            raw8 = np.zeros((8, 32), np.uint8)
            raw8[0, : len(values)] = [int(np.flatnonzero(table == value)[0]) for value in values]
            sides.append(raw8)
    a, b = (np.pad(side, ((0, rows - 8), (0, 0))) for side, rows in zip(sides, (128, 16), strict=True))
    code = CODES[number]
    idesc = 1 << 4 | code << 7 | code << 10 | 2 << 17 | 8 << 24
    setup = fill(16, int(np.float32(start).view(np.uint32)))
    jobs = f"""add.s64 %da, %desc, {descriptor(0, 128)};
        add.s64 %db, %desc, {descriptor(a.size, 16)};
        tcgen05.mma.cta_group::1.kind::{kind} [%base], %da, %db, {idesc}, %on;"""
    said, out = run(tmp_path, program(jobs, setup), core_matrices(a) + core_matrices(b))
    assert (said, float(out[0, :1].view(np.float32)[0])) == ("", want)


B200 = Path(__file__).parent / "records/b200.csv"


def b200(kind: str, result: str) -> tuple[Array, Array, Array, Array]:
    """Rows of bytes of A and of B, and C and D, of wmma on a B200, which is HMMA and not tcgen05."""
    with B200.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["kind"] == kind]
    a, b = (np.array([list(bytes.fromhex(row[name])) for row in rows], np.uint8) for name in "ab")
    c = np.array([int(row["c"], 16) for row in rows], np.uint32)
    return a, b, c, np.array([int(row[result], 16) for row in rows], np.uint32)


@pytest.mark.parametrize(("kind", "result"), [("f16", "f32"), ("f16", "f16"), ("bf16", "f32"), ("tf32", "f32")])
def test_sums_are_those_of_a_b200(kind: str, result: str, tmp_path: Path) -> None:
    """Row i of A meets column i of B, and D has C before."""
    a, b, c, want = b200(kind, result)
    sides = [core_matrices(np.pad(side, ((0, 0), (0, 32 - side.shape[1])))) for side in (a, b)]
    if result == "f16":
        c = c.view(np.float32).astype(np.float16).view(np.uint16).astype(np.uint32)
    code = CODES[kind]
    idesc = (result == "f32") << 4 | code << 7 | code << 10 | 16 << 17 | 8 << 24
    setup = f"mad.lo.u32 %x0, %t, 4, %tile;\nld.shared.b32 %x2, [%x0+{len(sides[0]) + len(sides[1])}];\n"
    setup += "\n".join(f"tcgen05.st.sync.aligned.32x32b.x1.b32 [%slab+{i}], {{%x2}};" for i in range(128))
    jobs = f"""add.s64 %da, %desc, {descriptor(0, 128)};
        add.s64 %db, %desc, {descriptor(len(sides[0]), 128)};
        tcgen05.mma.cta_group::1.kind::{"tf32" if kind == "tf32" else "f16"} [%base], %da, %db, {idesc}, %on;"""
    said, out = run(tmp_path, program(jobs, setup, 128), b"".join([*sides, c.tobytes()]), 128)
    assert said == "" and (np.diag(out) == want).all()


TCGEN05 = Path(__file__).parent / "records/tcgen05.b200.csv"
with TCGEN05.open(newline="") as opened:
    RECORDED = list(csv.DictReader(opened))
KINDS = list(dict.fromkeys((r["kind"], r["a_type"], r["b_type"], r["d_type"], "sat" in r["case"]) for r in RECORDED))


def numbers(rows: list[dict[str, str]], name: str) -> Array:
    return np.array([[int(word, 16) for word in row[name].split()] for row in rows], np.uint32)


@pytest.mark.parametrize("which", KINDS, ids=lambda which: "-".join(map(str, which)))
def test_words_are_those_of_tcgen05_of_a_b200(which: tuple[str, str, str, str, bool], tmp_path: Path) -> None:
    """Row i of A meets column i of B, and lane i of D has C before."""
    full_kind, a_type, b_type, d_type, saturates = which
    rows = [r for r in RECORDED if (r["kind"], r["a_type"], r["b_type"], r["d_type"], "sat" in r["case"]) == which]
    kind, _, how = full_kind.partition(".")
    fours, sides = "mxf4" in kind, []
    for name, of in (("a", a_type), ("b", b_type)):
        bits = np.zeros((128, len(rows[0][name].split())), np.uint32)
        bits[: len(rows)] = numbers(rows, name)
        wide = {"tf32": np.uint32, "bf16": np.uint16, "f16": np.uint16}.get(of)
        raw = bits.astype(wide).view(np.uint8).reshape(128, -1) if wide else small_bits(bits, of, fours)
        sides.append(core_matrices(raw))
    parts = Parts([], b"".join(sides))
    for name, column in zip(("scale_a", "scale_b"), SCALE_COLUMNS, strict=True):
        if rows[0][name]:
            scales = numbers(rows, name)
            parts.store(words_of_scales(np.pad(scales, ((0, 128 - len(rows)), (0, 0)))), column)
    start = np.zeros((128, 1), np.uint32)
    start[: len(rows)] = numbers(rows, "c")
    for column in range(16):
        parts.store(start, column)
    codes = [1 if fours else CODES[of] for of in (a_type, b_type)]
    idesc = codes[0] << 7 | codes[1] << 10 | 16 << 17 | 8 << 24 | saturates << 3
    idesc |= ("ue4m3" not in how) << 23 if "mx" in kind else {"f16": 0, "f32": 1, "s32": 2}[d_type] << 4
    vector = f".block_scale{f'.scale_vec::{how[:2]}' if how else ''}" if "mx" in kind else ""
    scales_at = "".join(f", [%base+{column}]" for column in SCALE_COLUMNS) if "mx" in kind else ""
    jobs = f"""add.s64 %da, %desc, {descriptor(0, 128)};
        add.s64 %db, %desc, {descriptor(len(sides[0]), 128)};
        tcgen05.mma.cta_group::1.kind::{kind}{vector} [%base], %da, %db, {idesc}{scales_at}, %on;"""
    said, out = run(tmp_path, program(jobs, "\n".join(parts.setup), 16), parts.tile, 16)
    want = numbers(rows, "d")[:, 0]
    assert said == "" and [f"{word:08x}" for word in np.diag(out)[: len(rows)]] == [f"{word:08x}" for word in want]


# ---- loads, stores, copies and shifts --------------------------------------------------------------------------------

WORDS = np.arange(128)[:, None] * 1000 + np.arange(64)  # of lanes and columns, as FILL stores them
FILL = "mad.lo.u32 %x0, %t, 1000, 0;\n" + "\n".join(
    f"add.u32 %x1, %x0, {c};\ntcgen05.st.sync.aligned.32x32b.x1.b32 [%slab+{c}], {{%x1}};" for c in range(64)
)
T, R = np.arange(32)[:, None], np.arange(8)  # lane of the warp and register
LOADS = {  # row and column of each register: PTX ISA, "tcgen05.ld"
    "32x32b.x8": (T + 0 * R, R + 0 * T, ""),
    "16x64b.x8": (T // 4 + T % 2 * 8 + 0 * R, T // 2 % 2 + 2 * R, ""),
    "16x128b.x4": (T // 4 + R % 2 * 8, T % 4 + R // 2 * 4, ""),
    "16x256b.x2": (T // 4 + R // 2 % 2 * 8, T % 4 * 2 + R % 2 + R // 4 * 8, ""),
    "16x32bx2.x8": (T % 16 + 0 * R, R + T // 16 * 24, ", 24"),
}


def registers(first: int = 0) -> str:
    return "{" + ", ".join(f"%x{first + i}" for i in range(8)) + "}"


def keep(load: str) -> str:
    stores = "\n".join(f"st.global.v4.b32 [%out+{4 * i}], {{%x{i}, %x{i + 1}, %x{i + 2}, %x{i + 3}}};" for i in (0, 4))
    return f"{load}\ntcgen05.wait::ld.sync.aligned;\n{stores}"


@pytest.mark.parametrize("shape", LOADS)
@pytest.mark.parametrize("packed", [False, True])
def test_loads(shape: str, packed: bool, tmp_path: Path) -> None:
    rows, columns, split = LOADS[shape]
    load = f"tcgen05.ld.sync.aligned.{shape}{'.pack::16b' * packed}.b32 {registers()}, [%slab]{split};"
    said, out = run(tmp_path, program("", FILL, LOADS=keep(load)), b"")
    for w in range(4):
        own = WORDS[32 * w : 32 * w + 32]
        at = 2 * columns - (T // 16 * 24 if split else 0) if packed else columns
        want = own[rows, at] if not packed else own[rows, at] & 0xFFFF | own[rows, at + 1] << 16
        assert (out[32 * w : 32 * w + 32] == want.astype(np.uint32)).all()
    assert said == ""


@pytest.mark.parametrize("shape", LOADS)
@pytest.mark.parametrize("packed", [False, True])
def test_stores_are_the_inverse_of_loads(shape: str, packed: bool, tmp_path: Path) -> None:
    split = LOADS[shape][2]
    values = "\n".join(f"mad.lo.u32 %x{i}, %t, 65537, {i};" for i in range(8))
    store = f"tcgen05.st.sync.aligned.{shape}{'.unpack::16b' * packed}.b32 [%slab]{split}, {registers()};"
    load = f"tcgen05.ld.sync.aligned.{shape}{'.pack::16b' * packed}.b32 {registers(8)}, [%slab]{split};"
    moves = "\n".join(f"mov.b32 %x{i}, %x{8 + i};" for i in range(8))
    text = program("", f"{values}\n{store}", LOADS=keep(f"{load}\ntcgen05.wait::ld.sync.aligned;\n{moves}"))
    said, out = run(tmp_path, text, b"")
    assert said == "" and (out == np.arange(128)[:, None] * 65537 + np.arange(8)).all()


# The registers hold lane * 1000 + column as integers, or those bits as floats.
REDUCTIONS: dict[str, Callable[[Array], Array]] = {
    "32x32b.x8.max.u32": lambda own: own[:, :8].max(axis=1),
    "32x32b.x8.min.s32": lambda own: own[:, :8].min(axis=1),
    "32x32b.x8.max.abs.NaN.f32": lambda own: own[:, :8].max(axis=1),
    "16x32bx2.x8.min.u32": lambda own: np.concatenate([own[:16, 0], own[:16, 24]]),
}


@pytest.mark.parametrize("form", REDUCTIONS)
def test_loads_that_reduce(form: str, tmp_path: Path) -> None:
    split = ", 24" if "x2.x8" in form else ""
    load = f"tcgen05.ld.red.sync.aligned.{form} {registers(8)}, %x0, [%slab]{split};"
    said, out = run(tmp_path, program("", FILL, LOADS=keep(load + "\nmov.b32 %x1, %x8;" + "".join(
        f"mov.b32 %x{i}, 0;" for i in R[2:]))).replace("100a", "103a"), b"", 8, 1, "--strict-tcgen05")  # fmt: skip
    want = np.concatenate([REDUCTIONS[form](WORDS[32 * w : 32 * w + 32]) for w in range(4)])
    assert (out[:, 0] == want).all()
    assert "register-in-flight" in said  # the moves use what nothing has waited for


COPIES = {  # rows of the source that lanes get, chunk by chunk
    "128x256b": [(lane, lane) for lane in range(128)],
    "128x128b": [(lane, lane) for lane in range(128)],
    "4x256b": [(32 * i, i) for i in range(4)],
    "64x128b.warpx2::02_13": [(lane, lane % 64) for lane in range(128)],
    "64x128b.warpx2::01_23": [(lane, lane // 64 * 32 + lane % 32) for lane in range(128)],
    "32x128b.warpx4": [(lane, lane % 32) for lane in range(128)],
}


@pytest.mark.parametrize("shape", COPIES)
def test_copies(shape: str, tmp_path: Path) -> None:
    wide = "256b" in shape
    rows = 1 + max(row for _, row in COPIES[shape])
    source = (np.arange((rows + 7) // 8 * 8 * 32) % 251).astype(np.uint8).reshape(-1, 32)
    jobs = f"add.s64 %da, %desc, {descriptor(0, len(source))};\ntcgen05.cp.cta_group::1.{shape} [%base], %da;"
    said, out = run(tmp_path, program(jobs, fill(8, 0)), core_matrices(source))
    want = np.zeros((128, 8), np.uint32)
    for lane, row in COPIES[shape]:
        want[lane, : 8 if wide else 4] = source[row].view(np.uint32)[: 8 if wide else 4]
    assert said == "" and (out == want).all()


@pytest.mark.parametrize(("form", "bits"), [("b4x16_p64", 4), ("b6x16_p32", 6)])
def test_copies_expand(form: str, bits: int, tmp_path: Path) -> None:
    numbers = np.arange(128 * 16).reshape(128, 16) * 5 % (1 << bits)
    flat = np.zeros((128, 128), np.uint8)
    for bit in range(bits):
        flat[:, bit : 16 * bits : bits] = numbers >> bit & 1
    jobs = f"add.s64 %da, %desc, {descriptor(0, 128)};\ntcgen05.cp.cta_group::1.128x128b.b8x16.{form} [%base], %da;"
    said, out = run(tmp_path, program(jobs, FILL), core_matrices(np.packbits(flat, axis=1, bitorder="little")))
    want = (numbers << (2 if bits == 4 else 0)).astype(np.uint8).view(np.uint32)
    assert said == "" and (out[:, :4] == want).all()


def test_shift(tmp_path: Path) -> None:
    said, out = run(tmp_path, program("tcgen05.shift.cta_group::1.down [%base+2097152];", FILL), b"")
    want = WORDS[:, :8].copy()
    want[33:64] = WORDS[32:63, :8]
    assert said == "" and (out == want).all()


# ---- what is reported ------------------------------------------------------------------------------------------------

F16 = 1 << 4 | 2 << 17 | 8 << 24
MMA = f"tcgen05.mma.cta_group::1.kind::f16 [%base], %da, %db, {F16}, %off;"
JOB = f"add.s64 %da, %desc, {descriptor(0, 128)};\nadd.s64 %db, %desc, {descriptor(4096, 16)};\n{MMA}"


def scaled(more: int) -> dict[str, str]:
    scales = MMA.replace("kind::f16", "kind::mxf4.block_scale").replace("%off", "[%base+32], [%base+36], %off")
    return {MMA: scales.replace(str(F16), str((F16 | 9 << 7) + more))}


def of_a(more: int) -> dict[str, str]:
    return {f"{descriptor(0, 128)};": f"{descriptor(0, 128) + more};"}


LOAD_OF_WARP_1 = """setp.ne.u32 %p, %w, 1;
@%p bra loaded;
tcgen05.ld.sync.aligned.32x32b.x1.b32 {%x9}, [%slab];
tcgen05.wait::ld.sync.aligned;
loaded:"""
STORE = "st.shared.v4.b32 [%x0], {%x1, %x2, %x3, %x4}"
OF_F8F6F4 = {"kind::f16": "kind::f8f6f4", STORE: "st.shared.v2.b32 [%x0], {%x1, %x2}"}  # half of each 16 bytes
FAULTS: dict[str, tuple[dict[str, str], str, str]] = {  # what is changed, the class, and a part of its text
    "512 columns twice": ({"JOBS": JOB, "LOADS": ALLOC}, "deadlock", "requests 512 adjacent columns of tensor memory"),
    "48 columns": ({"ALLOC": ALLOC.replace("512", "48")}, "tmem-misuse", "a power of two from 32 to 512"),
    "after relinquishing": ({"ALLOC": "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;\n" + ALLOC},
                            "tmem-misuse", "may not allocate anymore"),
    "no dealloc": ({"DEALLOC": ""}, "tmem-misuse", "tcgen05.dealloc is missing"),
    "freed twice": ({"DEALLOC": DEALLOC + "\n" + DEALLOC}, "tmem-misuse", "or they are free already"),
    "a column too far": ({"+0]": "+505]"}, "out-of-bounds", "has columns 0 to 511"),
    "not allocated": ({"512": "32", "LOADS": loads(40)}, "out-of-bounds", "which is not allocated"),
    "another warp's lanes": ({"LOADS": "xor.b32 %slab, %slab, 2097152;\n" + loads(8)}, "out-of-bounds", "warp reaches"),
    "a lane's own row": ({"LOADS": "mad.lo.u32 %slab, %t, 65536, %base;\n" + loads(8)}, "tmem-misuse", "different"),
    "16 lanes from lane 8 on": ({"32x32b.x8": "16x64b.x8", "+0]": "+524288]"}, "tmem-misuse", "a multiple of 16 lanes"),
    "used after it was freed": ({"LOADS": DEALLOC + "\n" + loads(8), "DEALLOC": ""}, "out-of-bounds", "was freed"),
    "no wait": ({"WAIT": ""}, "tmem-in-flight", "may still write it"),
    "no commit": ({"COMMIT": "", "WAIT": ""}, "tmem-in-flight", "may still be at work"),
    "committed by lane 1": ({"COMMIT": "", "issued:\n": f"issued:\nsetp.eq.u32 %p, %t, 1;\n@%p {COMMIT}\n"},
                            "tmem-misuse", "executed by lane 1, but lane 0 issued"),
    "committed twice": ({"COMMIT": COMMIT + "\n" + COMMIT}, "phase-overrun", "phase 1 completes before it"),
    "N of 0": ({str(F16): str(F16 - (2 << 17))}, "tmem-misuse", "N is a multiple of 8"),
    "N of 24 with scales": (scaled(1 << 17), "tmem-misuse", "N is a multiple of 16"),
    "64 rows with scales": (scaled(-(4 << 24)), "tmem-misuse", "with .block_scale and .cta_group::1 M is 128"),
    "scales in ue4m3": (scaled(0), "tmem-misuse", "bit 23 is 0, for scales in ue4m3"),
    "scales from byte 1 on": (scaled(1 << 23), "tmem-misuse", "bits 4 and 29 are 0 for two scales in a row"),
    "a type of A of no kind": ({str(F16): str(F16 | 3 << 7)}, "tmem-misuse", "A has type 3 and B type 0"),
    "sums of f32 of bytes": ({"kind::f16": "kind::i8"}, "tmem-misuse", "types of this kind are 2 (s32)"),
    "a bit of no field": ({str(F16): str(F16 | 1 << 23)}, "tmem-misuse", "bits 0x800000 must be 0 for this kind"),
    "a shift without .ws": ({str(F16): str(F16 | 1 << 30)}, "tmem-misuse", "bits 0x40000000 must be 0 for this kind"),
    "sparse by its bit": ({str(F16): str(F16 | 4)}, "tmem-misuse", "needs tcgen05.mma.sp"),
    "a descriptor of wgmma": (of_a(-(1 << 46)), "tmem-misuse", "its bits 46 to 48 are 0, and tcgen05 needs 1 there"),
    "an offset above 14 bits": (of_a(1 << 30), "tmem-misuse", "its bits 0x40000000 belong to no field"),
    "a swizzle of no kind": (of_a(3 << 61), "tmem-misuse", "its bits 61 to 63 are 3"),
    "D in lane 16": ({"[%base],": "[%base+1048576],"}, "tmem-misuse", "lane 16 of tensor memory: it must be in lane 0"),
    "copy to lane 32": ({MMA: "tcgen05.cp.cta_group::1.128x256b [%base+2097152], %da;"}, "tmem-misuse", "be in lane 0"),
    "A within D": ({MMA: MMA.replace("%da", "[%base+8]")}, "tmem-misuse", "columns 8 to 15: the two overlap"),
    "D outside": ({"[%base],": "[%base+500],"}, "out-of-bounds", "no column 512"),
    "A outside": (of_a(32768 >> 4), "out-of-bounds", "descriptor"),
    "half of e4m3": (OF_F8F6F4, "uninitialised-shared", "which this CTA has not written"),
    "no proxy fence": ({"fence.proxy.async.shared::cta;": ""}, "missing-proxy-fence", "async proxy"),
    "tile overwritten": ({"COMMIT": COMMIT + "\nst.shared.b32 [tile], %t;"}, "async-in-flight", "may still read it"),
    "D never set": ({"JOBS": JOB.replace("%off", "%on")}, "tmem-uninitialised", "which was not written since"),
    "loaded by others": ({"SETUP": FILL, "ISSUER": f"setp.eq.u32 %mine, %t, 96;\n{LOAD_OF_WARP_1}"},
                         "tmem-race", "nothing orders"),
    "accumulators as A": ({"JOBS": JOB + "\n" + MMA.replace("%da", "[%base]").replace("[%base],", "[%base+64],", 1)},
                          "tmem-race", "PTX promises no order"),
    "shifted zeros": ({"JOBS": JOB.replace("mma", "mma.ws").replace(str(F16), str(F16 + (6 << 17))).replace(
        "%off", f"%off, {1 << 56}")}, "tmem-misuse", "a mask that shifts columns"),
    "another CTA of a pair": ({"group::1": "group::2"}, "tmem-misuse", "the CTA has no partner"),
    "no mbarrier": ({"COMMIT": COMMIT.replace("[bar]", "[bar+8]"), "WAIT": ""}, "barrier-misuse", "mbarrier.init"),
}  # fmt: skip
STRICT = {
    "registers early": ({"LOADS": loads(8).replace("tcgen05.wait::ld.sync.aligned;", "")}, "register-in-flight"),
    "no wait::st": ({"SETUP": FILL, "tcgen05.wait::st.sync.aligned;": ""}, "tmem-race"),
    "no fence after": ({"WAIT\ntcgen05.fence::after_thread_sync;": "WAIT"}, "tmem-misuse"),
    "no fence before": ({"SETUP": FILL, "st.sync.aligned;\ntcgen05.fence::before_thread_sync;": "st.sync.aligned;"},
                        "tmem-misuse"),
}  # fmt: skip


def changed(changes: dict[str, str]) -> str:
    """The program of JOB with some of its parts, or of its text, replaced."""
    parts = {name: text for name, text in changes.items() if re.fullmatch(r"[A-Z]+", name)}
    text = program(parts.pop("JOBS", JOB), parts.pop("SETUP", ""), 8, False, **parts)
    for old, new in changes.items():
        if old in parts or re.fullmatch(r"[A-Z]+", old):
            continue
        old, new = (part.replace("WAIT", WAIT) for part in (old, new))
        assert old in text
        text = text.replace(old, new)
    return text


@pytest.mark.parametrize("name", FAULTS)
def test_faults(name: str, tmp_path: Path) -> None:
    changes, class_, said = FAULTS[name]
    text = changed(changes)
    last = ("--delay", f"3@{text.splitlines().index(MMA) + 1}") if name == "loaded by others" else ()
    error, _ = run(tmp_path, text, bytes(BYTES), 8, 1, *last)
    assert f"{class_} at " in error and said in error


LEGAL = {
    "no barrier of the allocating warp": {"ALLOC": ALLOC + "\nld.shared.b32 %base, [slot];"},  # CUTLASS's example 93
    "padding of e2m1": {**OF_F8F6F4, str(F16): str(F16 | 45 << 7)},  # Triton stores none
}


@pytest.mark.parametrize("name", LEGAL)
def test_legal(name: str, tmp_path: Path) -> None:
    assert run(tmp_path, changed(LEGAL[name]), bytes(BYTES))[0] == ""


def test_a_warp_reaches_its_own_lanes(tmp_path: Path) -> None:
    """All warps name the lanes of the first, and each gets its own, as example 93, DeepGEMM and FlashMLA need."""
    text = program("", FILL, LOADS=loads(8).replace("[%slab", "[%base"))
    for options, found in (((), False), (("--strict-tcgen05",), True)):
        said, out = run(tmp_path, text, b"", 8, 1, *options)
        assert ("out-of-bounds at " in said) == found and (out == WORDS[:, :8]).all()


def test_every_class_has_a_fault() -> None:
    header = (ROOT / "emulator/emu.h").read_text()
    names = {name.lower().replace("_", "-") for name in re.findall(r"^ +EMU_(TMEM_\w+),", header, re.M)}
    assert names and names <= {class_ for _, class_, _ in FAULTS.values()}


def test_every_synchronization_is_missed(tmp_path: Path) -> None:
    """Each statement of a kernel that allocates, commits, waits, fences or frees is removed once."""
    lines = changed({"SETUP": FILL}).split("\n")
    synchronizes = re.compile(r"tcgen05\.(alloc|dealloc|commit|wait|fence)|fence\.proxy|bar\.sync|mbarrier\.")
    found = [i for i, line in enumerate(lines) if synchronizes.search(line)]
    silent = []
    for number, i in enumerate(found):
        text = "\n".join([*lines[:i], "", *lines[i + 1 :]])
        error, _ = run(tmp_path, text, bytes(BYTES), 8, 1, "--strict-tcgen05")
        silent += [] if error else [number]
    assert len(found) == 16 and not silent


@pytest.mark.parametrize("name", STRICT)
def test_strict_rules(name: str, tmp_path: Path) -> None:
    changes, class_ = STRICT[name]
    assert run(tmp_path, changed(changes), bytes(BYTES))[0] == ""
    error, _ = run(tmp_path, changed(changes), bytes(BYTES), 8, 1, "--strict-tcgen05")
    assert f"{class_} at " in error


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"target sm_100a": "target sm_90a"}, "needs .target sm_100f, sm_110f or later in the"),
        ({"target sm_100a": "target sm_100"}, "not sm_100: nvcc -arch=sm_100a"),
        ({"alloc.cta_group::1": "alloc.cta_group::2"}, "line 24 .cta_group::2: all tcgen05 of a kernel have"),
        ({"kind::f16 [%base], %da": "kind::f16.ashift [%base], %da"}, ".ashift needs A in tensor memory"),
        ({", %off;": ", {0, 0}, %off;"}, "a vector of 4 words"),
        ({", %off;": ", %off, 16;"}, "a number from 0 to 15"),
        ({"32x32b.x8": "16x256b.x64"}, "the most are 128"),
    ],
)
def test_refused(changes: dict[str, str], message: str, tmp_path: Path) -> None:
    assert message in run(tmp_path, changed(changes), b"")[0]


# ---- devices ---------------------------------------------------------------------------------------------------------

LOAD_MODULE = """
major = ctypes.c_int()
call("cuDeviceGetAttribute", ctypes.byref(major), 75, 0)
print(major.value, driver.cuModuleLoadData(ctypes.byref(module), open(sys.argv[1], "rb").read() + bytes(1)))
"""


@pytest.mark.parametrize(
    ("architecture", "answer", "said"),
    [
        ("sm_100a", "10 0", ""),
        ("sm_90a", "9 218", "a module is PTX for sm_100a, which does not run on sm_90a"),
        ("sm_103a", "10 218", "which does not run on sm_103a"),
        ("sm_120a", "12 218", "which does not run on sm_120a"),
    ],
)
def test_devices(architecture: str, answer: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "k.ptx").write_text(program(JOB))
    (tmp_path / "load.py").write_text(DRIVER + LOAD_MODULE)
    done = subprocess.run(
        [ROOT / "bin/emulated-gpu", "--arch", architecture, sys.executable, tmp_path / "load.py", tmp_path / "k.ptx"],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout.strip() == answer and said in done.stderr


# ---- copies of tensors, and clusters that are cancelled --------------------------------------------------------------

COPY = """.version 9.0
.target sm_100a
.address_size 64
.shared .align 1024 .b8 tile[1024];
.shared .align 8 .b8 bar[8];
.visible .entry copy(.param .align 64 .b8 map[128], .param .u64 out) .explicitcluster .reqnctapercluster 2
{
.reg .pred %p; .reg .b16 %both; .reg .b32 %t, %rank, %bar, %x; .reg .b64 %map, %out;
mov.u32 %t, %tid.x;
mov.u32 %rank, %cluster_ctarank;
mov.u32 %bar, bar;
mov.b64 %map, map;
cvta.param.u64 %map, %map;
setp.ne.u32 %p, %t, 0;
@%p bra ready;
mbarrier.init.shared.b64 [%bar], 1;
fence.mbarrier_init.release.cluster;
mbarrier.arrive.expect_tx.shared.b64 _, [%bar], BYTES;
ready:
barrier.cluster.arrive;
barrier.cluster.wait;
mov.b16 %both, 3;
setp.ge.or.u32 %p, %rank, ISSUERS, %p;
@%p bra issued;
and.b32 %bar, %bar, MASK;
cp.async.bulk.tensor.2d.shared::cluster.global.FORM [tile], [%map, {COORDINATES}], [%bar]TARGETS;
issued:
setp.ge.u32 %p, %rank, CTAS;
@%p bra done;
waits:
mbarrier.try_wait.parity.shared.b64 %p, [bar], 0;
@!%p bra waits;
done:
barrier.cluster.arrive;
barrier.cluster.wait;
ld.param.u64 %out, [out];
mad.lo.u32 %x, %rank, 256, %t;
mad.wide.u32 %out, %x, 4, %out;
mov.u32 %x, tile;
mad.lo.u32 %x, %t, 4, %x;
setp.lt.u32 %p, %t, WORDS;
@%p ld.shared.b32 %x, [%x];
@%p st.global.b32 [%out], %x;
ret;
}
"""
RUN_COPY = """import ctypes, sys
from ctypes import byref, c_uint32, c_uint64, c_void_p
cuda = ctypes.CDLL("libcuda.so.1")
folder, type_, width, columns, rows, swizzle = sys.argv[1], *map(int, sys.argv[2:])
context, module, function, data, out = (c_void_p() for _ in range(5))
cuda.cuInit(0), cuda.cuDevicePrimaryCtxRetain(byref(context), 0), cuda.cuCtxSetCurrent(context)
cuda.cuMemAlloc_v2(byref(data), c_uint64(4096)), cuda.cuMemAlloc_v2(byref(out), c_uint64(2048))
source, result = open(folder + "/in.bin", "rb").read(), ctypes.create_string_buffer(2048)
cuda.cuMemcpyHtoD_v2(data, source, c_uint64(len(source)))
cuda.cuMemsetD8_v2(out, 0, c_uint64(2048))
memory = ctypes.create_string_buffer(256)
at = (ctypes.addressof(memory) + 63) // 64 * 64
sizes, strides, box = (c_uint64 * 2)(width, 16), (c_uint64 * 1)(len(source) // 16), (c_uint32 * 2)(columns, rows)
assert 0 == cuda.cuTensorMapEncodeTiled(
    c_void_p(at), type_, 2, data, sizes, strides, box, (c_uint32 * 2)(1, 1), 0, swizzle, 0, 0)
assert 0 == cuda.cuModuleLoad(byref(module), (folder + "/k.ptx").encode())
cuda.cuModuleGetFunction(byref(function), module, b"copy")
arguments = (c_void_p * 2)(at, ctypes.addressof(out))
assert 0 == cuda.cuLaunchKernel(function, 2, 1, 1, 256, 1, 1, 0, None, arguments, None)
assert 0 == cuda.cuCtxSynchronize()
cuda.cuMemcpyDtoH_v2(result, out, c_uint64(2048))
open(folder + "/out.bin", "wb").write(result.raw)
"""
SOURCE: Array = (np.arange(16 * 128) % 253).astype(np.uint8).reshape(16, 128)


def spread(rows: Array, stored: int) -> Array:
    """Chunks of so many bytes at the start of 16 each."""
    out = np.zeros((rows.shape[0], rows.shape[1] // stored, 16), np.uint8)
    out[:, :, :stored] = rows.reshape(rows.shape[0], -1, stored)
    return out.reshape(rows.shape[0], -1)


def swizzled_by_32(rows: Array) -> Array:
    out = np.zeros(1024, np.uint8)
    at = np.arange(rows.size)
    out[at ^ (at >> 7 & 3) << 5] = rows.reshape(-1)
    return out.reshape(rows.shape)


TILE, GATHER = "mbarrier::complete_tx::bytes", "tile::gather4.mbarrier::complete_tx::bytes"
BOXES: dict[str, tuple[int, int, int, int, int, str, str, Array, int]] = {
    # type, columns of the tensor and of the box, rows of the box, swizzle, form, coordinates, the tile, bytes counted
    "bytes": (0, 128, 64, 4, 0, TILE, "32, 2", SOURCE[2:6, 32:96], 256),
    "fours side by side": (13, 256, 128, 4, 0, TILE, "64, 2", SOURCE[2:6, 32:96], 256),
    "fours": (14, 256, 128, 4, 0, TILE, "128, 2", spread(SOURCE[2:6, 64:128], 8), 256),
    "sixes": (15, 160, 64, 4, 0, TILE, "64, 2", spread(SOURCE[2:6, 48:96], 12), 192),
    "chunks of 32 bytes": (0, 128, 128, 8, 4, TILE, "0, 4", swizzled_by_32(SOURCE[4:12]), 1024),
    "gathered rows": (0, 128, 64, 1, 0, GATHER, "32, 9, 2, 2, 15", SOURCE[[9, 2, 2, 15], 32:96], 256),
}


def copy_program(name: str, pair: bool, both: bool = False) -> str:
    form, coordinates, want, counted = BOXES[name][5:]
    parts = {
        "BYTES": f"{counted * (1 + pair)}", "MASK": "0xfeffffff" if pair else "-1", "CTAS": f"{2 - pair}",
        "FORM": f"{form}{'.multicast::cluster' * both}.cta_group::{1 + pair}", "ISSUERS": f"{2 - both}",
        "TARGETS": ", %both" * both, "COORDINATES": coordinates, "WORDS": f"{want.size // 4}",
    }  # fmt: skip
    return re.sub(r"\b(" + "|".join(parts) + r")\b", lambda match: parts[match[0]], COPY)


@pytest.mark.parametrize("name", BOXES)
@pytest.mark.parametrize(("pair", "both"), [(False, False), (True, False), (True, True)])
def test_boxes(name: str, pair: bool, both: bool, tmp_path: Path) -> None:
    """Each CTA copies the box, or the first one to both; the bytes of a pair count at the first one's mbarrier."""
    want = BOXES[name][7]
    (tmp_path / "k.ptx").write_text(copy_program(name, pair, both))
    (tmp_path / "in.bin").write_bytes(SOURCE.tobytes())
    (tmp_path / "run.py").write_text(RUN_COPY)
    done = subprocess.run(
        [ROOT / "bin/emulated-gpu", "--arch", "sm_100a", sys.executable, tmp_path / "run.py", tmp_path,
         *map(str, BOXES[name][:5])], capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    out = np.fromfile(tmp_path / "out.bin", np.uint8).reshape(2, 1024)
    assert (out[:, : want.size] == want.reshape(-1)).all()


SCATTER = """.version 9.0
.target sm_100a
.address_size 64
.shared .align 128 .b8 rows[128];
.visible .entry scatter(.param .align 64 .b8 map[128])
{
.reg .pred %p; .reg .b32 %t, %x, %at; .reg .b64 %map;
mov.u32 %t, %tid.x;
mov.u32 %at, rows;
mad.lo.u32 %at, %t, 4, %at;
mul.lo.u32 %x, %t, 0x01010101;
st.shared.b32 [%at], %x;
fence.proxy.async.shared::cta;
bar.warp.sync -1;
setp.ne.u32 %p, %t, 0;
@%p exit;
mov.b64 %map, map;
cvta.param.u64 %map, %map;
cp.async.bulk.tensor.2d.global.shared::cta.tile::scatter4.bulk_group [%map, {16, 9, 2, 14, 5}], [rows];
cp.async.bulk.commit_group;
cp.async.bulk.wait_group 0;
ret;
}
"""


def test_rows_are_scattered(tmp_path: Path) -> None:
    """Four rows of 32 bytes go to columns 16 to 47 of the rows that the instruction names."""
    (tmp_path / "k.ptx").write_text(SCATTER)
    done = ptxrun(tmp_path / "k.ptx", "--block", 32, "--arg", "tmap:64x16/64:32x1:none:buf:u8:1024",
                  "--dump", f"0={tmp_path}/out.bin")  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    want = np.zeros((16, 64), np.uint8)
    want[[9, 2, 14, 5], 16:48] = np.repeat(np.arange(32), 4).reshape(4, 32)
    assert (np.fromfile(tmp_path / "out.bin", np.uint8).reshape(16, 64) == want).all()


CANCEL = """.version 9.0
.target sm_100a
.address_size 64
.shared .align 16 .b8 response[16];
.shared .align 8 .b8 bar[8];
.visible .entry cancel(.param .u64 out)
{
.reg .pred %p, %one; .reg .b32 %t, %tile, %phase, %y, %z; .reg .b64 %out, %at; .reg .b128 %r;
mov.u32 %t, %tid.x;
mov.u32 %tile, %ctaid.x;
mov.u32 %phase, 0;
ld.param.u64 %out, [out];
setp.eq.u32 %one, %t, 0;
@%one mbarrier.init.shared.b64 [bar], 1;
@%one fence.mbarrier_init.release.cluster;
next:
bar.sync 0;
@!%one bra asked;
mbarrier.arrive.expect_tx.shared.b64 _, [bar], 16;
clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [response], [bar];
asked:
mad.lo.u32 %y, %tile, 32, %t;
mad.wide.u32 %at, %y, 4, %out;
st.global.b32 [%at], %tile;
waits:
mbarrier.try_wait.parity.shared.b64 %p, [bar], %phase;
@!%p bra waits;
xor.b32 %phase, %phase, 1;
ld.shared.b128 %r, [response];
fence.proxy.async.shared::cta;
clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p, %r;
clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {%tile, %y, %z, _}, %r;
@%p bra next;
ret;
}
"""


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_clusters_are_cancelled(seed: int, tmp_path: Path) -> None:
    """The first CTA does the work of all, unless a request fails; each tile is written once."""
    (tmp_path / "k.ptx").write_text(CANCEL)
    done = ptxrun(tmp_path / "k.ptx", "--grid", 12, "--block", 32, "--arg", "out:u32:384", "--counters-csv",
                  tmp_path / "c.csv", "--dump", f"0={tmp_path}/out.bin", "--schedule", seed)  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert (np.fromfile(tmp_path / "out.bin", np.uint32) == np.arange(384) // 32).all()
    begun = re.findall(r"move,(\d+),.*%ctaid", (tmp_path / "c.csv").read_text())
    assert (begun == ["1"]) == (seed == 0)
