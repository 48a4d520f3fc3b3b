"""wmma: products of matrices in memory, over shapes, types, layouts, strides and spaces; what they say when wrong."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.emulation import HEADER, Array, ptxrun
from support.exact import SINGLE, convert

SHAPES = ((16, 16, 16), (32, 8, 16), (8, 32, 16))
FORMS = [
    *((shape, ("f16", "f16", c, d)) for shape in SHAPES for c, d in itertools.product(("f16", "f32"), repeat=2)),
    *((shape, (kind, kind, acc, acc)) for shape in SHAPES for kind, acc in
      (("bf16", "f32"), ("s8", "s32"), ("u8", "s32"))),
    ((16, 16, 8), ("tf32", "tf32", "f32", "f32")), ((8, 8, 4), ("f64", "f64", "f64", "f64")),
    ((8, 8, 32), ("s4", "s4", "s32", "s32")), ((8, 8, 32), ("u4", "u4", "s32", "s32")),
    ((8, 8, 128), ("b1", "b1", "s32", "s32")),
]  # fmt: skip
BITS = {"f16": 16, "bf16": 16, "tf32": 32, "f32": 32, "f64": 64, "s8": 8, "u8": 8, "s4": 4, "u4": 4, "b1": 1, "s32": 32}


def registers(part: str, shape: tuple[int, int, int], kind: str) -> int:
    m, n, k = shape
    if kind == "f16" and part in "ab":
        return 8
    size = {"a": m * k, "b": k * n}.get(part, m * n)
    return max(size * BITS[kind] // 32 // (64 if kind == "f64" else 32), 1)


def encoded(values: Array, kind: str, columns: bool, stride: int) -> bytes:
    """Whole numbers as a matrix in memory, line after line of `stride` elements; the gaps are NaN or -1."""
    lines = values.T if columns else values
    padded = np.full((len(lines), stride), -1)
    padded[:, : lines.shape[1]] = lines
    if kind in ("f16", "f64", "f32", "tf32"):
        out = padded.astype({"f16": np.float16, "f64": np.float64}.get(kind, np.float32))
        out[:, lines.shape[1] :] = np.nan
        return out.tobytes()
    if kind == "bf16":
        return np.array([convert(float(x), SINGLE) >> 16 for x in padded.ravel()], np.uint16).tobytes()
    if BITS[kind] >= 8:
        return padded.astype({"s8": np.int8, "u8": np.uint8, "s32": np.int32}[kind]).tobytes()
    bits = (padded.ravel()[:, None] >> np.arange(BITS[kind]) & 1).astype(np.uint8)
    return np.packbits(bits.ravel(), bitorder="little").tobytes()


def decoded(data: bytes, kind: str, rows: int, width: int, columns: bool, stride: int) -> Array:
    types = {"f16": np.float16, "f32": np.float32, "f64": np.float64, "s32": np.int32}
    lines = np.frombuffer(data, types[kind]).reshape(-1, stride)
    values: Array = lines[:, :rows].T if columns else lines[:, :width]
    return values


def program(shape: tuple[int, int, int], kinds: tuple[str, ...], layouts: dict[str, bool], strides: dict[str, int],
            space: str, suffix: str = "") -> str:  # fmt: skip
    """One warp: D = A * B + C, all in memory; the product in shared memory where that is the space."""
    name = "m{}n{}k{}".format(*shape)
    word = {part: ("col" if layouts[part] else "row") for part in "abcd"}
    lines, lists = [], {}
    for part, kind in zip("abcd", kinds, strict=True):
        reg = {"f32": "f32", "f64": "f64"}.get(kind, "b32")
        names = [f"%{part}{i}" for i in range(registers(part, shape, kind))]
        lines += [f".reg .{reg} {', '.join(names)};", f".reg .b64 %p{part};", f"ld.param.u64 %p{part}, [{part}];"]
        lists[part] = "{" + ", ".join(names) + "}"
    for part, kind in zip("abc", kinds[:3], strict=True):
        where = "" if part == "b" else ".global"  # a generic address is that of global memory
        lines.append(f"wmma.load.{part}.sync.aligned.{word[part]}.{name}{where}.{kind} {lists[part]}, [%p{part}], "
                     f"{strides[part]};")  # fmt: skip
    types = {"f16": f"{kinds[3]}.{kinds[2]}", "b1": "s32.b1.b1.s32"}.get(
        kinds[0], f"{kinds[3]}.{kinds[0]}.{kinds[1]}.{kinds[2]}"
    )
    operation, last = (suffix or ".xor.popc", "") if kinds[0] == "b1" else ("", suffix)
    opcode = f"wmma.mma{operation}.sync.aligned.{word['a']}.{word['b']}.{name}{last}.{types}"
    lines.append(f"{opcode} {', '.join(lists[part] for part in 'dabc')};")
    target = "[%pd]"
    if space != "global":
        lines += [".shared .align 128 .b8 tile[16384];", ".reg .b64 %s;", "mov.u64 %s, tile;"]
        target = "[%s]"
    lines.append(
        f"wmma.store.d.sync.aligned.{word['d']}.{name}.{space}.{kinds[3]} {target}, {lists['d']}, {strides['d']};"
    )
    if space != "global":  # and back through a fragment of C
        lines += ["bar.warp.sync -1;"]
        lines.append(
            f"wmma.load.c.sync.aligned.{word['d']}.{name}.{space}.{kinds[3]} {lists['d']}, [%s], {strides['d']};"
        )
        lines.append(f"wmma.store.d.sync.aligned.{word['d']}.{name}.{kinds[3]} [%pd], {lists['d']}, {strides['d']};")
    params = ", ".join(f".param .u64 {part}" for part in "abcd")
    return f"{HEADER}.visible .entry k({params})\n{{\n" + "\n".join(lines) + "\nret;\n}\n"


def product(shape: tuple[int, int, int], kinds: tuple[str, ...], seed: int, folder: Path, suffix: str = "") -> None:
    m, n, k = shape
    rng = np.random.default_rng([160, seed])
    low, high = {"u8": (0, 255), "s8": (-128, 127), "s4": (-8, 7), "u4": (0, 15), "b1": (0, 1)}.get(kinds[0], (-9, 9))
    values = {"a": rng.integers(low, high + 1, (m, k)), "b": rng.integers(low, high + 1, (k, n)),
              "c": rng.integers(-50, 50, (m, n))}  # fmt: skip
    fixed = BITS[kinds[0]] < 8  # a by rows, b by columns
    layouts = {
        "a": not fixed and bool(seed & 1),
        "b": fixed or bool(seed & 2),
        "c": bool(seed & 4),
        "d": bool(seed & 8),
    }
    sides = {"a": (m, k), "b": (k, n), "c": (m, n), "d": (m, n)}
    strides = {
        p: sides[p][0 if layouts[p] else 1] + 128 // BITS[kind] * (seed % 3)
        for p, kind in zip("abcd", kinds, strict=True)
    }
    space = ("global", "shared", "shared::cta")[seed % 3]
    (folder / "k.ptx").write_text(program(shape, kinds, layouts, strides, space, suffix))
    arguments: list[object] = []
    for part, kind in zip("abc", kinds, strict=False):
        data = encoded(values[part], kind, layouts[part], strides[part])
        (folder / part).write_bytes(data)
        arguments += ["--arg", f"buf:u8:{len(data)}:@{folder / part}"]
    size = (n if layouts["d"] else m) * strides["d"] * BITS[kinds[3]] // 8
    done = ptxrun(folder / "k.ptx", *arguments, "--arg", f"buf:u8:{size}", "--dump", f"3={folder / 'd'}")
    assert (done.returncode, done.stderr) == (0, "")
    got = decoded((folder / "d").read_bytes(), kinds[3], m, n, layouts["d"], strides["d"])
    if kinds[0] == "b1":
        a, b = values["a"][:, :, None], values["b"][None]
        want = values["c"] + ((a & b) if "and" in suffix else (a ^ b)).sum(1)
    else:
        want = values["c"] + values["a"] @ values["b"]
    assert (got == want).all()


@pytest.mark.parametrize(("shape", "kinds"), FORMS, ids=lambda x: ".".join(map(str, x)))
def test_products(shape: tuple[int, int, int], kinds: tuple[str, ...], tmp_path: Path) -> None:
    """Whole numbers, exact in every type: each form with two of the layouts, strides and spaces."""
    at = FORMS.index((shape, kinds))
    product(shape, kinds, at, tmp_path)
    product(shape, kinds, 15 - at % 16, tmp_path)


def test_and_of_bits(tmp_path: Path) -> None:
    product((8, 8, 128), ("b1", "b1", "s32", "s32"), 1, tmp_path, ".and.popc")


def every_form() -> Iterator[str]:
    for at, (shape, kinds) in enumerate(FORMS):
        fixed = BITS[kinds[0]] < 8
        layouts = {"a": not fixed and bool(at & 1), "b": fixed, "c": False, "d": True}
        suffix = ".satfinite" if kinds[3] == "s32" and kinds[0] != "b1" else ""
        yield program(shape, kinds, layouts, dict.fromkeys("abcd", 128), "shared", suffix)


def test_a_matrix_out_of_bounds_is_found(tmp_path: Path) -> None:
    kinds = ("f16", "f16", "f32", "f32")
    sides = dict.fromkeys("abcd", 16)
    (tmp_path / "k.ptx").write_text(program((16, 16, 16), kinds, dict.fromkeys("abcd", False), sides, "global"))
    run = [tmp_path / "k.ptx", *("--arg", "buf:f16:255"), *("--arg", "buf:f16:256"), *("--arg", "buf:f32:256")]
    done = ptxrun(*run, "--arg", "out:f32:256")
    assert done.returncode == 1 and "byte 510 of buffer 'argument 0', which has 510" in done.stderr
    assert "output" not in done.stderr


def test_a_race_with_a_matrix_is_found(tmp_path: Path) -> None:
    text = program((16, 16, 16), ("f16", "f16", "f32", "f32"), dict.fromkeys("abcd", False),
                   dict.fromkeys("abcd", 16), "shared")  # fmt: skip
    (tmp_path / "k.ptx").write_text(text.replace("bar.warp.sync -1;\n", ""))
    arguments = [x for spec in ("buf:f16:256", "buf:f16:256", "buf:f32:256", "buf:f32:256") for x in ("--arg", spec)]
    assert "race" in ptxrun(tmp_path / "k.ptx", "--block", 64, *arguments).stderr
