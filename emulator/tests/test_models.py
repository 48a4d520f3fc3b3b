"""Arithmetic beside models in C (support/models.c): random operands with NaN, infinities, subnormals and extremes."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.emulation import Array, Batch, Case

SOURCE = Path(__file__).parent / "support/models.c"
# By letter of a type: its bits, and the bits of its infinity and of one, where it is a float.
TYPES = {"f": (32, 0x7F800000, 0x3F800000), "g": (64, 0x7FF << 52, 0x3FF << 52), "h": (16, 0x7C00, 0x3C00),
         "b": (16, 0x7F80, 0x3F80), "i": (32, 0, 0), "j": (64, 0, 0), "k": (16, 0, 0), "e": (16, 0, 0)}  # fmt: skip


def operands(kind: str, count: int, rng: np.random.Generator) -> Array:
    """A quarter edges, a quarter random bits, the rest of like magnitude: sums cancel and quotients are near 1."""
    bits, infinity, one = TYPES[kind]
    top = 1 << bits - 1
    edges = [0, 1, 2, top - 1, top, top + 1, 2 * top - 1]
    if infinity:
        least = infinity & -infinity  # the smallest normal number: the lowest bit of the exponent
        edges += [infinity, infinity - 1, infinity + least // 2, least, least - 1, one, one + 1, one - 1, one + least]
        edges += [edge | top for edge in edges]
    array = rng.choice(np.array(edges, np.uint64), count)
    random = rng.integers(0, 1 << 64, count, dtype=np.uint64, endpoint=False)
    array[count // 4 :] = random[count // 4 :] & np.uint64(2 * top - 1)
    near = array[count // 2 :]
    if infinity:
        exponents = rng.integers(-2, 3, len(near)) * (infinity & -infinity)
        near[:] = (near & np.uint64(top | (infinity & -infinity) - 1)) | (one + exponents).astype(np.uint64)
    else:
        near >>= rng.integers(0, bits, len(near)).astype(np.uint64)
    return array.astype(f"u{bits // 8}")


def same(kind: str) -> Callable[[Array, Array], Array]:
    """Equal, and any NaN equal to any other."""
    bits, infinity, _ = TYPES[kind]

    def is_nan(x: Array) -> Array:
        size = x & ((1 << bits - 1) - 1)
        return size > infinity if infinity else np.zeros(len(x), bool)

    def compare(got: Array, want: Array) -> Array:
        if kind == "e":  # 0x7f and 0xff are NaN
            got, want = (np.stack([x & 255, x >> 8]) for x in (got, want))
            equal: Array = ((got == want) | ((got & 127 == 127) & (want & 127 == 127))).all(0)
            return equal
        got = got.view(want.dtype)
        equal = (got == want) | (is_nan(got) & is_nan(want))
        return equal

    return compare


def build(folder: Path) -> ctypes.CDLL:
    command = ["cc", "-std=gnu11", "-O1", "-frounding-math", "-Wall", "-Wno-parentheses", "-shared", "-fPIC"]
    subprocess.run([*command, "-o", folder / "models.so", SOURCE, "-lm"], check=True, timeout=600)
    return ctypes.CDLL(str(folder / "models.so"))


def rows(library: ctypes.CDLL) -> list[tuple[str, str, str]]:
    """Types of the sources, type of the result, and the instruction of each model."""
    table = ctypes.cast(library.model_rows, ctypes.POINTER(ctypes.c_char_p))
    found = []
    while text := table[len(found)]:
        match = re.fullmatch(r"(\w+)\.(\w) (.*)", text.decode())
        assert match, text
        found.append((match[1], match[2], match[3]))
    return found


def cases(library: ctypes.CDLL, count: int, seed: int) -> list[Case]:
    rng = np.random.default_rng(seed)
    made = []
    for index, (sources, result, code) in enumerate(rows(library)):
        inputs = {name: operands(kind, count, rng) for name, kind in zip("abc", sources, strict=False)}
        wide = [inputs.get(name, np.zeros(count)).astype(np.uint64) for name in "abc"]
        out = np.zeros(count, np.uint64)
        pointers = [array.ctypes.data_as(ctypes.POINTER(ctypes.c_uint64)) for array in (*wide, out)]
        library.run_model(index, *pointers, count)
        views = {"f": "f4", "g": "f8"}
        typed = {name: array.view(views.get(kind, array.dtype))
                 for (name, array), kind in zip(inputs.items(), sources, strict=True)}  # fmt: skip
        want = out.astype(f"u{TYPES[result][0] // 8}")
        kinds = {"d": np.dtype(views[result])} if result in views else {}
        made.append(Case(f"{index}: {code}", code.replace("; ", ";\n"), typed, {"d": want}, same(result), kinds))
    return made


def check(folder: Path, count: int, seed: int) -> None:
    wrong = {name: text for name, text in Batch(cases(build(folder), count, seed)).run(folder).items() if text}
    assert not wrong, f"seed {seed}: {len(wrong)}\n" + "\n".join(f"{name}: {text}" for name, text in wrong.items())


def test_arithmetic_agrees_with_models(tmp_path: Path) -> None:
    check(tmp_path, 512, 1)


@pytest.mark.long
def test_arithmetic_agrees_with_models_for_other_operands(tmp_path: Path) -> None:
    first = int.from_bytes(os.urandom(4))
    for seed in range(first, first + 6):
        check(tmp_path, 16384, seed)


def test_a_wrong_model_shows(tmp_path: Path) -> None:
    """A wrong bit in a few results of each model is found; one that is NaN stays so."""
    made = cases(build(tmp_path), 128, 2)
    for case in made:
        case.outputs["d"][-8:] ^= 2
    names = {name for name, text in Batch(made).run(tmp_path).items() if text}
    assert len(names) == len(made)
