"""The work that a replay did, from the emulator's counters, to compare with the floor of a problem.

Operations are counted generously: the floor proves that work is missing, never that it is too much.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

SECTOR = 32  # bytes
LANES = 32
PRODUCT = re.compile(r"(?:mma|wgmma|tcgen05)\S*?m(\d+)n(\d+)k(\d+)")
ARITHMETIC = re.compile(
    r"(fma|mad|mul|add|sub|div|ex2|lg2|rcp|rsqrt|sqrt|sin|cos|tanh|min|max|neg|abs|set|setp|cvt|dp4a|red|atom|selp|shfl)\b"
)
FLAG = re.compile(r"(atom|red)\b|(ld|st)\.(volatile|relaxed|acquire|release)\b")
PACKED = re.compile(r"\d\dx[24]\b")  # f16x2, f32x2


def operations_of(opcode: str) -> float:
    """The most arithmetic operations that one execution by a warp performs; infinite for a product of unknown shape."""
    product = PRODUCT.match(opcode)
    if product:
        m, n, k = (int(size) for size in product.groups())
        sharers = 4 if opcode.startswith("wgmma") else 1  # the warps of a warpgroup execute it together
        return 2 * m * n * k / sharers * (2 if ".sp" in opcode else 1)
    if re.match(r"mma|wmma|wgmma|tcgen05", opcode):
        return float("inf") if "mma" in opcode else 0
    if not ARITHMETIC.match(opcode):
        return 0
    return LANES * (2 if opcode.startswith(("fma", "mad")) else 1) * (4 if PACKED.search(opcode) else 1)


def opcode_of(instruction: str) -> str:
    """ld.global.f32 of ld.global.f32@12."""
    return instruction.rpartition("@")[0]


def line_of(instruction: str) -> int:
    """12 of ld.global.f32@12."""
    return int(instruction.rpartition("@")[2])


def operations(launches: Iterable[Mapping[str, Any]]) -> float:
    return sum(
        int(count) * operations_of(opcode_of(name)) for launch in launches for name, count in launch["executed"].items()
    )


def bytes_moved(launches: Iterable[Mapping[str, Any]], copied: int) -> int:
    """Bytes that kernels loaded and stored, at least in whole sectors, and that copies and memsets moved."""
    return copied + sum(int(max(SECTOR * each["sectors"], each["loaded"] + each["stored"])) for each in launches)


def flag_accesses(launches: Iterable[Mapping[str, Any]]) -> int:
    """Atomic operations and accesses to flags by warps: what other orders of a launch can change."""
    executed = [(opcode_of(name), count) for launch in launches for name, count in launch["executed"].items()]
    return sum(int(count) for opcode, count in executed if FLAG.match(opcode) and ".shared" not in opcode)


def is_store(instruction: str) -> bool:
    return bool(
        re.match(
            r"(st\.(global|async)|st\.(?!shared|local|param)|red|atom|cp\.reduce|cp\.async\.bulk\S*global\.shared)",
            opcode_of(instruction),
        )
    )
