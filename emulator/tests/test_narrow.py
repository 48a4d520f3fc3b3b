"""mma.sync of 8, 6 and 4 bits, with and without block scales (sm_120a), against NumPy.

Values and scales are small powers and sums of few bits, so that float64 has each result exactly. What is cut of larger
sums is tested with tcgen05.mma, which has the same functions (test_tcgen05.py).
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from support.emulation import entry, ptxrun

Array = npt.NDArray[Any]
FIELDS = {"e4m3": (4, 3), "e5m2": (5, 2), "e2m3": (2, 3), "e3m2": (3, 2), "e2m1": (2, 1)}
LANE = np.arange(32)


@dataclass(frozen=True)
class Product:
    """A form; `selectors`: the byte and lanes of A's scales, then those of B's."""

    kind: str
    a: str
    b: str
    d: str = "f32"
    scales: str = ""  # their type
    vector: int = 0  # scales of a row
    selectors: tuple[int, int, int, int] = (0, 0, 0, 0)
    sparse: bool = False

    @property
    def each(self) -> int:
        """Numbers in a register."""
        return 8 if self.scales and self.kind != "mxf8f6f4" else 4

    def __str__(self) -> str:
        return f"{self.kind} {self.a} {self.b} {self.d} {self.scales} {self.vector} {self.selectors} {self.sparse}"


def value_of(bits: Array, name: str) -> Array:
    exponents, fraction = FIELDS[name]
    field, part = bits >> fraction & (1 << exponents) - 1, bits & (1 << fraction) - 1
    scale = 2.0 ** (np.maximum(field, 1) - (1 << exponents - 1) + 1 - fraction)
    return np.where(bits >> exponents + fraction & 1, -1, 1) * (part + (field > 0) * (1 << fraction)) * scale


def numbers(rng: np.random.Generator, name: str, shape: tuple[int, int]) -> Array:
    """Bits of numbers around 1, so that no sum needs more than 24 bits."""
    exponents, fraction = FIELDS[name]
    middle = (1 << exponents - 1) - 1
    field = rng.integers(max(0, middle - 1), middle + 2, shape)
    return rng.integers(0, 2, shape) << exponents + fraction | field << fraction | rng.integers(0, 1 << fraction, shape)


def in_registers(matrix: Array, name: str, each: int, registers: int, of_b: bool = False) -> Array:
    """Words of each register in each lane: a row belongs to four lanes, the next `each` numbers to the next lane."""
    shifted = matrix << 2 if name == "e2m1" and each == 4 else matrix
    words = np.zeros((registers, 32), np.uint32)
    for r in range(registers):
        step, row = (r, LANE // 4) if of_b else (r // 2, LANE // 4 + 8 * (r % 2))
        for i in range(each):
            k = 4 * each * step + LANE % 4 * each + i
            words[r] |= (shifted[row, k] << 32 // each * i).astype(np.uint32)
    return words


def scales_in_words(scales: Array, byte: int, lanes: Array) -> Array:
    """A word for each lane, full of what must not be read elsewhere."""
    words = np.full(32, 0x7E7E7E7E, np.uint32)
    for row, lane in enumerate(lanes):
        for i, scale in enumerate(scales[row]):
            words[lane] = words[lane] & ~np.uint32(255 << 8 * (byte + i)) | np.uint32(int(scale) << 8 * (byte + i))
    return words


def spread(rng: np.random.Generator, stored: Array, unit: int) -> tuple[Array, Array]:
    """Two of four units of a row are those that are stored; the row, and the word of indices of each lane."""
    pairs = np.array([(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)])
    chosen = pairs[rng.integers(0, 6, (len(stored), stored.shape[1] // unit // 2))]
    places = (chosen + 4 * np.arange(chosen.shape[1])[:, None]).reshape(len(stored), -1, 1) * unit + np.arange(unit)
    wide = np.zeros((len(stored), 2 * stored.shape[1]))
    np.put_along_axis(wide, places.reshape(len(stored), -1), stored, axis=1)
    bits = chosen.reshape(len(stored), 2, 16).astype(np.uint32) << 2 * np.arange(16, dtype=np.uint32)
    words = bits.sum(axis=2).astype(np.uint32)  # of a row: a word for each half of k
    return wide, words[LANE // 4 + 8 * (LANE % 2), LANE // 2 % 2]


def text_of(p: Product) -> str:
    c = ["%c0", "%c1"] if p.d == "f16" else ["%f0", "%f1", "%f2", "%f3"]
    form = f"m16n8k{8 * p.each * (1 + p.sparse)}.row.col.kind::{p.kind}"
    name, b = "mma", ["%b0", "%b1"]
    if p.sparse:
        name, b = "mma.sp::ordered_metadata", [f"%b{i}" for i in range(4)]
    if p.vector:
        form += f".block_scale.scale_vec::{p.vector}X"
    form += f".{p.d}.{p.a}.{p.b}.{p.d}" + (f".{p.scales}" if p.scales else "")
    last = f", %s0, {{{p.selectors[0]}, {p.selectors[1]}}}, %s1, {{{p.selectors[2]}, {p.selectors[3]}}}"
    loads = [f"ld.global.b32 {name}, [%p+{128 * i}];" for i, name in enumerate(
        [*(f"%a{i}" for i in range(4)), *b, *["%e"] * p.sparse, "%s0", "%s1", *c])]  # fmt: skip
    stores = [f"st.global.b32 [%q+{128 * i}], {name};" for i, name in enumerate(c)]
    d = ", ".join(c)
    return "\n".join([
        ".reg .b32 %t, %a<4>, %b<4>, %s<2>, %c<2>, %e; .reg .f32 %f<4>; .reg .b64 %p, %q, %o;",
        "mov.u32 %t, %tid.x; mul.wide.u32 %o, %t, 4;",
        "ld.param.u64 %p, [in]; add.s64 %p, %p, %o; ld.param.u64 %q, [out]; add.s64 %q, %q, %o;",
        *loads,
        f"{name}.sync.aligned.{form} {{{d}}}, {{%a0, %a1, %a2, %a3}}, {{{', '.join(b)}}}, {{{d}}}"
        f"{', %e, 0' * p.sparse}{last if p.scales else ''};",
        *stores,
    ])  # fmt: skip


def program_of(p: Product) -> str:
    return entry(text_of(p), ".param .u64 in, .param .u64 out").replace("sm_90a", "sm_120a")


PRODUCTS = [
    *(Product("f8f6f4", a, b) for a, b in (("e4m3", "e2m1"), ("e2m1", "e5m2"), ("e3m2", "e2m3"), ("e2m3", "e3m2"))),
    Product("f8f6f4", "e4m3", "e4m3", "f16"),
    Product("mxf8f6f4", "e4m3", "e4m3", scales="ue8m0", vector=1),
    Product("mxf8f6f4", "e2m1", "e3m2", scales="ue8m0", vector=1, selectors=(2, 1, 3, 2)),
    Product("mxf4", "e2m1", "e2m1", scales="ue8m0", vector=2, selectors=(2, 0, 0, 3)),
    Product("mxf4nvf4", "e2m1", "e2m1", scales="ue8m0", vector=2, selectors=(0, 1, 2, 1)),
    Product("mxf4nvf4", "e2m1", "e2m1", scales="ue4m3", vector=4, selectors=(0, 1, 0, 2)),
    Product("f8f6f4", "e4m3", "e2m1", sparse=True),
    Product("f8f6f4", "e5m2", "e3m2", "f16", sparse=True),
    Product("mxf8f6f4", "e4m3", "e4m3", scales="ue8m0", vector=1, selectors=(1, 1, 2, 3), sparse=True),
    Product("mxf4nvf4", "e2m1", "e2m1", scales="ue8m0", vector=2, selectors=(0, 1, 2, 1), sparse=True),
    Product("mxf4nvf4", "e2m1", "e2m1", scales="ue4m3", vector=4, selectors=(0, 1, 0, 2), sparse=True),
]


@pytest.mark.parametrize("p", PRODUCTS, ids=str)
def test_a_product_is_that_of_numpy(p: Product, tmp_path: Path) -> None:
    rng, k = np.random.default_rng(len(str(p))), 8 * p.each * (1 + p.sparse)
    a, b = numbers(rng, p.a, (16, 8 * p.each)), numbers(rng, p.b, (8, k))
    c = rng.integers(-8, 8, (16, 8)).astype(np.float16 if p.d == "f16" else np.float32)
    words = [in_registers(a, p.a, p.each, 4), in_registers(b, p.b, p.each, 2 * (1 + p.sparse), of_b=True)]
    wide_a, wide_b = value_of(a, p.a), value_of(b, p.b)
    if p.sparse:
        wide_a, indices = spread(rng, wide_a, p.each // 4)
        words.append(indices[None])
    scale_words = np.zeros((2, 32), np.uint32)
    if p.vector:
        rows, columns = np.arange(16), np.arange(8)
        lanes = (rows % 8 * 4 + rows // 8 + 2 * p.selectors[1], columns * 4 + p.selectors[3])
        for which, matrix in enumerate((wide_a, wide_b)):
            bits = rng.integers(125, 130, (len(matrix), p.vector)) if p.scales == "ue8m0" else rng.integers(
                0x30, 0x42, (len(matrix), p.vector))  # fmt: skip
            scale_words[which] = scales_in_words(bits, p.selectors[2 * which], lanes[which])
            each = 2.0 ** (bits - 127) if p.scales == "ue8m0" else value_of(bits, "e4m3")
            matrix *= np.repeat(each, k // p.vector, axis=1)
    row, column = LANE // 4, LANE % 4 * 2
    parts = [c[row + 8 * (i // 2), column + i % 2] for i in range(4)]
    accumulators = [x.view(np.uint32) for x in parts]
    if p.d == "f16":
        accumulators = [np.stack(parts[2 * i : 2 * i + 2], 1).reshape(-1).view(np.uint32) for i in range(2)] * 2
    given = np.concatenate([*words, scale_words, np.array(accumulators)])
    np.resize(given, (16, 32)).tofile(tmp_path / "in.bin")
    (tmp_path / "mma.ptx").write_text(program_of(p))
    done = ptxrun(tmp_path / "mma.ptx", "--block", 32, "--arg", f"buf:u32:512:@{tmp_path / 'in.bin'}",
                  "--arg", "buf:u32:128", "--dump", f"1={tmp_path / 'out.bin'}")  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    out = np.fromfile(tmp_path / "out.bin", np.uint32).reshape(-1, 32)
    found = np.zeros((16, 8))
    for i in range(4):
        values = out[i].view(np.float32) if p.d == "f32" else out[i // 2].view(np.float16).reshape(32, 2)[:, i % 2]
        found[row + 8 * (i // 2), column + i % 2] = values
    expected = c + wide_a @ wide_b.T
    assert np.array_equal(found, expected.astype(c.dtype))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("sm_120a", "sm_100a"), "needs .target sm_120f or later in the family, not sm_100a"),
        (("scale_vec::4X", "scale_vec::2X"), ".ue4m3 needs .scale_vec::4X"),
        (("%s1, {0, 2}", "%s1"), "7 operands where 8 are needed"),
        (("%s1, {0, 2}", "%s1, {0, 4}"), "the lane of the scales of B is 0 to 3"),
        (("%s1, {0, 2}", "%s1, {2, 2}"), "the byte of the scales of B is 0"),
    ],
)
def test_what_is_not_an_mma_is_refused(change: tuple[str, str], said: str, tmp_path: Path) -> None:
    text = program_of(next(p for p in PRODUCTS if p.vector == 4))
    assert change[0] in text
    (tmp_path / "mma.ptx").write_text(text.replace(*change))
    done = ptxrun(tmp_path / "mma.ptx", "--block", 32, "--arg", "buf:u32:384", "--arg", "buf:u32:128")
    assert done.returncode == 2 and said in done.stderr
