"""PTX of sm_90a with every shape of wgmma, and what nvdisasm says of each instruction's registers.

path = assembled("shapes", every_wgmma())
for text, files in life_ranges(path): files["GPR"].writes, files["UGPR"].reads
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from analysis.machine_code.liveness import registers_of
from analysis.machine_code.sass import Instruction
from analysis.tests.support.compiled import disassembly

_DEPTH = {"f16": 16, "bf16": 16, "tf32": 8, "e4m3": 32, "e5m2": 32, "s8": 32, "u8": 32, "b1": 256}
_TYPES = (("f32", "f16"), ("f16", "f16"), ("f32", "bf16"), ("f32", "tf32"), ("f32", "e4m3"), ("f16", "e5m2"),
          ("s32", "s8"), ("s32", "u8"), ("s32", "b1"))  # fmt: skip
_FILES = {"f32": "%f", "f16": "%h", "s32": "%i"}


def wgmma(n: int, d: str, a: str, from_registers: bool, sparse: bool) -> str:
    """One statement: D in registers, A in registers or by a descriptor, B by a descriptor."""
    results = ", ".join(f"{_FILES[d]}{index}" for index in range(n // (4 if d == "f16" else 2)))
    factor = "{%a0, %a1, %a2, %a3}" if from_registers else "%rd1"
    shape = f"m64n{n}k{_DEPTH[a] * (2 if sparse else 1)}.{d}.{a}.{a}" + (".and.popc" if a == "b1" else "")
    signs = ", 1, 1" if d != "s32" else ""
    transposed = (", 0" if from_registers else ", 0, 0") if a in ("f16", "bf16") else ""
    name = "wgmma.mma_async.sp" if sparse else "wgmma.mma_async"
    metadata = ", %a4, 0" if sparse else ""
    return f"{name}.sync.aligned.{shape} {{{results}}}, {factor}, %rd2{metadata}, p{signs}{transposed};"


def every_wgmma(columns: tuple[int, ...] = (8, 24, 128)) -> str:
    """A kernel with wgmma of all types, from registers and from shared memory, dense and sparse."""
    calls = [
        wgmma(n, d, a, from_registers, sparse)
        for n in columns
        for d, a in _TYPES
        for from_registers in (False, True)
        for sparse in ((False, True) if a != "b1" else (False,))
    ]
    loads = [f"ld.global.b32 {name}{index}, [%rd4+{4 * index}];" for name in ("%f", "%i", "%h") for index in range(64)]
    loads += [f"ld.global.b32 %a{index}, [%rd4+{4 * index}];" for index in range(5)]
    kept = [f"st.global.b32 [%rd3+{4 * index}], {name}0;" for index, name in enumerate(("%f", "%i", "%h"))]
    steps = [
        f"wgmma.fence.sync.aligned;\n{call}\nwgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;"
        for call in calls
    ]
    head = """.version 8.3
.target sm_90a
.address_size 64
.visible .entry shapes(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d)
{
.reg .pred p;
.reg .f32 %f<128>;
.reg .b32 %i<128>, %h<64>, %a<5>;
.reg .b64 %rd<5>;
ld.param.u64 %rd1, [a];
ld.param.u64 %rd2, [b];
ld.param.u64 %rd3, [c];
ld.param.u64 %rd4, [d];
setp.ne.u64 p, %rd1, %rd2;
"""
    return head + "\n".join([*loads, *steps, *kept, "ret;", "}"]) + "\n"


@dataclass(frozen=True)
class Marks:
    """Registers of one file."""

    writes: frozenset[int]
    reads: frozenset[int]


_CODE = re.compile(r"\s*/\*([0-9a-f]{4,})\*/\s+(.*?) ;")


def life_ranges(path: Path) -> Iterator[tuple[str, dict[str, Marks]]]:
    """Text and registers by file of every instruction of a cubin, from the columns of `nvdisasm -lrm narrow`."""
    names: list[str] = []
    digits: list[list[str]] = []
    for line in disassembly(path, "-c", "-lrm", "narrow").splitlines():
        left, _, right = line.rpartition("// |")
        cells = right.rstrip().removesuffix("|").split("|")
        found = _CODE.match(left)
        if found and names:
            yield found[2], {name: _marks(cell, [row[at] for row in digits]) for at, (name, cell) in
                             enumerate(zip(names, cells, strict=True))}  # fmt: skip
        elif not left.strip() and "GPR" in right:
            names, digits = [cell.strip() for cell in cells], []
        elif not left.strip() and re.search(r"[0-9#]", right) and not (digits and "#" in digits[-1][0]):
            digits.append(cells)


def _marks(cell: str, digits: list[str]) -> Marks:
    """`^` is written, `v` read, `x` both; the number of a column is printed above it, one digit per line."""
    written, read = set(), set()
    for index in range(digits[-1].index("#") + 2, len(cell)):
        if cell[index] in "^vx":
            number = int("".join(row[index : index + 1] for row in digits))
            if cell[index] != "v":
                written.add(number)
            if cell[index] != "^":
                read.add(number)
    return Marks(frozenset(written), frozenset(read))


def instruction(text: str) -> Instruction:
    found = re.fullmatch(r"(?:(@!?U?P\w+)\s+)?(\S+)\s*(.*)", text)
    assert found is not None
    return Instruction(0, found[1] or "", found[2], found[3])


def other_operands(path: Path) -> Iterator[str]:
    """Instructions whose registers, by our analysis, differ from those that nvdisasm marks.

    nvdisasm lets a call read what is live then, and we let the end of a kernel read the stack.
    """
    for text, files in life_ranges(path):
        at = instruction(text)
        if at.base in ("CALL", "EXIT", "RET") or at.never:
            continue
        found, theirs = registers_of(at), files.get("GPR")
        expected = (theirs.writes, theirs.reads) if theirs else (frozenset(), frozenset())
        if found != expected:
            yield f"{text}: {[sorted(each) for each in (*found, *expected)]}"
