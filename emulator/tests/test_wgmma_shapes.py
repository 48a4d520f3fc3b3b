"""wgmma of every number of columns, type, layout, sign and scale-d, against NumPy."""

from pathlib import Path

import numpy as np
import pytest
from support.emulation import Array, ptxrun
from vectors.wgmma_shapes import AREA, KINDS, SWIZZLES, Product, bits_of, fragments, products, program, sums_of

SEED = 9  # one with which every layout comes up


def inputs(product: Product, rng: np.random.Generator) -> tuple[bytes, Array]:
    """The bytes of a product's input, and D."""
    a, b = (rng.integers(-4, 5, (rows, product.depth)) for rows in (64, product.columns))
    memory = np.zeros(product.area, np.uint8)
    if product.a:
        product.a.put(memory, bits_of(a, product.kind))
    product.b.put(memory, bits_of(b, product.kind))
    c = rng.integers(-100, 100, (128, product.registers * (2 if product.narrow else 1))).astype(
        np.float16 if product.narrow else np.float32
    )
    adds = product.scale_d in ("1", "%yes")
    want = product.signs[0] * product.signs[1] * (a @ b.T) + adds * sums_of(c, product)
    return memory.tobytes() + fragments(bits_of(a, product.kind)).tobytes() + c.tobytes(), want


def check(made: list[Product], folder: Path) -> None:
    rng = np.random.default_rng(7)
    cases = [inputs(product, rng) for product in made]
    (folder / "in.bin").write_bytes(b"".join(data for data, _ in cases))
    (folder / "shapes.ptx").write_text(program(made))
    bytes_in, words_out = sum(len(data) for data, _ in cases), sum(128 * product.registers for product in made)
    done = ptxrun(
        folder / "shapes.ptx", "--block", 128, "--smem", AREA, "--arg", f"buf:u8:{bytes_in}:@{folder / 'in.bin'}",
        "--arg", f"out:u32:{words_out}", "--dump", f"1={folder / 'out.bin'}",
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    words, at = np.fromfile(folder / "out.bin", np.uint32), 0
    for product, (_, want) in zip(made, cases, strict=True):
        got = sums_of(words[at : at + 128 * product.registers], product)
        at += 128 * product.registers
        assert (got == want).all(), product


def test_every_shape(tmp_path: Path) -> None:
    made = products(SEED)
    assert {(p.columns, p.kind) for p in made} == {(n, kind) for n in range(8, 257, 8) for kind in KINDS}
    assert {(p.b.swizzle, p.b.transposed) for p in made} == {(s, t) for s in SWIZZLES for t in (False, True)}
    assert {(p.a.swizzle, p.a.transposed) for p in made if p.a} == {(s, t) for s in SWIZZLES for t in (False, True)}
    assert {(p.a is None, p.scale_d) for p in made} == {
        (r, d) for r in (False, True) for d in ("0", "1", "%no", "%yes")
    }
    assert {p.signs for p in made} == {(i, j) for i in (1, -1) for j in (1, -1)}
    check(made, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, 9))
def test_every_shape_with_other_layouts(seed: int, tmp_path: Path) -> None:
    check(products(seed), tmp_path)
