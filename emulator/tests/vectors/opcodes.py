"""Inputs and cases that the vectors of all opcodes share: edge values and random ones of each type."""

import itertools
from collections.abc import Callable

import numpy as np
from support import exact
from support.emulation import Array, Case, same_bits
from support.exact import Format

SIZE = 256
CASES: list[Case] = []
Reference = Callable[..., int]


def unsigned(bits: int) -> np.dtype[np.unsignedinteger]:  # type: ignore[type-arg]
    return np.dtype(f"u{bits // 8}")


def signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value


# --- Inputs -----------------------------------------------------------------------------------------------------------


def integers(bits: int, count: int, seed: int) -> list[Array]:
    """`count` arrays: all pairs of edge values first, then random ones of random magnitude."""
    rng = np.random.default_rng([bits, count, seed])
    top = 1 << bits
    edges = [0, 1, 2, 3, top // 2 - 1, top // 2, top // 2 + 1, top - 1, top - 2, 1 << (bits // 2), 31, 32, 0xAA, 7]
    rows = (
        list(itertools.islice(itertools.product([e % top for e in edges], repeat=count), SIZE // 2))
        if count < 3
        else [tuple(int(rng.choice(edges)) % top for _ in range(count)) for _ in range(SIZE // 2)]
    )
    while len(rows) < SIZE:
        rows.append(tuple(int(rng.integers(0, 1 << 63)) * 2 % top >> int(rng.integers(0, bits)) for _ in range(count)))
    return [np.array([row[i] for row in rows], unsigned(bits)) for i in range(count)]


FLOAT_EDGES = [
    0x00000000, 0x80000000, 0x00000001, 0x807FFFFF, 0x00800000, 0x80800000, 0x3F800000, 0xBF800000, 0x3F800001,
    0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0x3EFFFFFF, 0x4B800000, 0x33800000, 0x00400000,
]  # fmt: skip


def singles(count: int, seed: int) -> list[Array]:
    rng = np.random.default_rng([32, count, seed])
    rows = (
        list(itertools.islice(itertools.product(FLOAT_EDGES, repeat=count), SIZE * 3 // 4))
        if count < 3
        else [tuple(int(rng.choice(FLOAT_EDGES)) for _ in range(count)) for _ in range(SIZE // 2)]
    )
    near = np.array(rng.normal(size=(SIZE, count)) * 4, np.float32).view(np.uint32)
    rows += [tuple(int(x) for x in near[i]) for i in range((SIZE - len(rows)) // 2)]
    while len(rows) < SIZE:
        rows.append(tuple(int(x) for x in rng.integers(0, 1 << 32, count)))
    rng.shuffle(rows)
    return [np.array([row[i] for row in rows], np.uint32).view(np.float32) for i in range(count)]


def halves(count: int, seed: int, of: Format) -> list[Array]:
    rng = np.random.default_rng([16, count, seed])
    edges = [0, 0x8000, 1, 0x8001, 0x3C00, 0xBC00, 0x3F80, 0x7BFF, of.infinity, of.infinity | 0x8000, of.nan, 0x0400,
             0x03FF, 0x0080, 0x007F, of.infinity - 1]  # fmt: skip
    rows = [tuple(int(rng.choice(edges)) for _ in range(count)) for _ in range(SIZE // 2)]
    for _ in range(SIZE // 4):
        rows.append(tuple(exact.convert(float(x), of) for x in rng.normal(size=count) * 3))
    while len(rows) < SIZE:
        rows.append(tuple(int(x) for x in rng.integers(0, 1 << 16, count)))
    return [np.array([row[i] for row in rows], np.uint16) for i in range(count)]


# --- Cases ------------------------------------------------------------------------------------------------------------


def add_case(name: str, code: str, inputs: list[Array], to: np.dtype | type, reference: Callable[..., object],  # type: ignore[type-arg]
             compare: Callable[[Array, Array], Array] = same_bits, result: str = "") -> None:  # fmt: skip
    """A case of one output %d. The reference gets Python integers for unsigned inputs and floats for floating ones."""
    columns = [[x.item() for x in array] for array in inputs]
    want = np.array([reference(*row) for row in zip(*columns, strict=True)], to)
    kinds = {"d": np.dtype(result)} if result else {}
    CASES.append(Case(name, code, dict(zip("abc", inputs, strict=False)), {"d": want}, compare, kinds))


def integer_case(op: str, bits: int, count: int, reference: Reference, out_bits: int = 0) -> None:
    """`op` names the type, as in add.s32; the result is taken modulo its width."""
    out_bits = out_bits or bits
    operands = ", ".join(f"%{x}" for x in "abc"[:count])
    add_case(op, f"{op} %d, {operands};", integers(bits, count, len(CASES)), unsigned(out_bits),
             lambda *row: reference(*row) % (1 << out_bits))  # fmt: skip


def same_single(got: Array, want: Array) -> Array:
    return same_bits(got, want.view(np.float32))


def same_halves(of: Format) -> Callable[[Array, Array], Array]:
    """Equal bits, any NaN equal to any other."""
    return lambda got, want: (got == want) | ((got & 0x7FFF > of.infinity) & (want & 0x7FFF > of.infinity))


def same_packed(of: Format) -> Callable[[Array, Array], Array]:
    half = same_halves(of)
    return lambda got, want: half(got & 0xFFFF, want & 0xFFFF) & half(got >> 16, want >> 16)


def first_input() -> Array:
    """The first words of the input file, which FIRST puts there."""
    return FIRST.inputs["a"]


FIRST = Case("first", "mov.u32 %d, %a;", {"a": np.random.default_rng(1).integers(0, 1 << 32, SIZE, dtype=np.uint32)},
             {"d": np.random.default_rng(1).integers(0, 1 << 32, SIZE, dtype=np.uint32)})  # fmt: skip
