# mypy: ignore-errors
"""The PTX tests of ZLUDA with the results that they expect of a GPU, from a checkout of it.

python zluda_programs.py FOLDER      FOLDER: of the checkout; the tests are in ptx/src/test/spirv_run
"""

import ctypes
import re
import sys
from pathlib import Path

import numpy as np
from device import DeviceArray, check, cuda, report, start

TYPES = {"u8": "u1", "i8": "i1", "u16": "u2", "i16": "i2", "f16": "f2", "u32": "u4", "i32": "i4", "f32": "f4",
         "u64": "u8", "i64": "i8", "f64": "f8"}  # fmt: skip
SUFFIX = re.compile(r"_?([uif](?:8|16|32|64))$")
# Rust's notation of numbers other than digits.
NAMES = {
    r"std::f32::consts::PI / 2f32": "1.57079633f32",
    r"std::f32::consts::PI": "3.14159265f32",
    r"half::f16::from_f(?:32|64)\(([^()]*)\)": r"\1f16",
    r"(?:half::)?(f16|f32)::from_bits\(([^()]*)\)": r"bits_\2_\1",
    r"(?:half::)?(f16|f32)::NAN(\.to_bits\(\))?": r"nan_\1\2",
    r"nan_f16\.to_bits\(\)": "0x7e00u16",
    r"(?:half::)?(f16|f32)::NEG_INFINITY": r"-inf_\1",
    r"(?:half::)?(f16|f32)::INFINITY": r"inf_\1",
    r"(\w\d+)::MIN": r"min_\1",
    r"(\w\d+)::(?:MAX|max_value\(\))": r"max_\1",
}


def numbers(text):
    """An array of the items between Rust's brackets; the type of one number holds for all."""
    for name, short in NAMES.items():
        text = re.sub(name, short, text)
    words = [word.strip() for word in text.split(",") if word.strip()]
    found = [SUFFIX.search(word) for word in words]
    kinds = {
        each[1] for each, word in zip(found, words, strict=True) if each and (each[1][0] != "f" or word[:2] != "0x")
    }
    kind = kinds.pop() if kinds else "f64" if any("." in word for word in words) else "i32"
    if kinds:
        raise ValueError(f"two types in {text}")
    return np.array([number(word, np.dtype(TYPES[kind])) for word in words], TYPES[kind])


def number(word, type):
    word = SUFFIX.sub("", word) if not word.startswith("0x") else re.sub(r"[ui](8|16|32|64)$", "", word)
    if word.startswith("bits_"):
        bits = int(re.sub(r"[ui]\d+$", "", word.removeprefix("bits_")), 0)
        return np.array(bits, f"u{type.itemsize}").view(type)
    if word in ("min", "max"):
        return getattr(np.iinfo(type), word)
    if type.kind == "f" and not word.startswith("0x"):
        return float(word)
    value = int(re.sub("_+", "", word), 0)
    return value - (1 << 8 * type.itemsize) if type.kind == "i" and value > np.iinfo(type).max else value


def tests(folder):
    """Name, input (None for a warp's test) and output of each test that runs on a GPU."""
    text = re.sub(r"//.*", "", (folder / "mod.rs").read_text(encoding="utf-8"))
    for form in re.finditer(r"^test_ptx(?:_with_32)?!\(\s*(\w+),\s*\[([^][]*)\],\s*\[([^][]*)\],?\s*\);", text, re.M):
        yield form[1], numbers(form[2]), numbers(form[3])
    for form in re.finditer(r"^test_ptx_warp!\(\s*(\w+),\s*\[([^][]*)\],?\s*\);", text, re.M):
        yield form[1], None, numbers(form[2])


def program(folder, name, given, expected):
    def run():
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        text = (folder / f"{name}.ptx").read_bytes() + b"\0"
        check(cuda.cuModuleLoadData(ctypes.byref(module), text))
        check(cuda.cuModuleGetFunction(ctypes.byref(function), module, name.encode()))
        out = DeviceArray(np.zeros(expected.shape, expected.dtype), "bits")
        first = out if given is None else DeviceArray(given, "bits")
        addresses = [ctypes.c_uint64(each.address) for each in (first, out)]
        arguments = (ctypes.c_void_p * 2)(*(ctypes.addressof(each) for each in addresses))
        threads = 64 if given is None else 1
        check(cuda.cuLaunchKernel(function, 1, 1, 1, threads, 1, 1, 1024, None, arguments, None))
        check(cuda.cuCtxSynchronize())
        got = out.numpy()
        if got.tobytes() == expected.tobytes():
            return 0, 0
        print(f"{name}: {got} is not {expected}", file=sys.stderr)
        return 1, 0

    run.__name__ = name
    return run


if __name__ == "__main__":
    folder = Path(sys.argv[1]) / "ptx/src/test/spirv_run"
    start()
    report(program(folder, *each) for each in tests(folder))
