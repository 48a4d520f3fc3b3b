"""The shape of a tcgen05.mma, which its machine code does not name, and the least time for it.

    cycles = mma_cycles(graph, at)          # of one SM, at the published rate; None if the shape is not a constant

The opcode gives the kind (UTCHMMA: f16 and tf32, UTCQMMA: 8 bits and less, UTCIMMA: int8, UTCOMMA: 4 bits) and `2CTA`
for a pair of CTAs. M and N are in the instruction descriptor, a uniform register that compilers mostly fill with a
constant before the loop.
"""

import re

from analysis.machine_code.liveness import operands_of
from analysis.machine_code.regions import Graph
from analysis.machine_code.sass import Instruction

# CUTLASS's "Blackwell SM100 GEMMs" gives the rate of each kind as a multiple of Hopper's, and the H100's whitepaper
# gives 2048 multiply-adds of fp16 a clock and SM. Every kind multiplies 32 bytes of each row of A: 8 tf32, 16 fp16,
# 32 fp8 or int8, 64 fp4, at 2048, 4096, 8192 and 16384 multiply-adds a clock, so that all need M N / 256 cycles.
PRODUCTS_A_CYCLE = 256
_UNIFORM = re.compile(r"UR(\d+)")
_WIDE = {"64": 2, "128": 4, "256": 8}


def mma_cycles(graph: Graph, at: Instruction) -> float | None:
    """Cycles for which one tcgen05.mma keeps the tensor cores of an SM busy, at least."""
    register = re.search(r"idesc\[UR(\d+)\]", at.operands)
    descriptor = constant_in(graph, at, int(register[1])) if register else None
    if descriptor is None:
        return None
    m, n = shape_of(descriptor)
    pair = 2 if "2CTA" in at.opcode.split(".") else 1  # each SM computes half of the rows
    return m * n / PRODUCTS_A_CYCLE / pair


def shape_of(descriptor: int) -> tuple[int, int]:
    """M and N of an instruction descriptor (PTX ISA, "Instruction descriptor")."""
    return (descriptor >> 24 & 0x1F) << 4, (descriptor >> 17 & 0x3F) << 3


def constant_in(graph: Graph, at: Instruction, register: int) -> int | None:
    """The constant that a uniform register holds at an instruction on every path to it; None if there is another."""
    found: set[int | None] = set()
    first = next(first for first, block in graph.blocks.items() if at in block.instructions)
    code = graph.blocks[first].instructions
    work, seen = [(first, code[: code.index(at)])], set()
    while work:
        first, code = work.pop()
        writer = next((each for each in reversed(code) if _writes(each, register)), None)
        if writer is not None:
            found.add(_moved(writer, register))
            continue
        before = graph.predecessors[first]
        if not before:
            return None  # it comes from outside
        work += [(each, graph.blocks[each].instructions) for each in before if each not in seen]
        seen.update(before)
    return found.pop() if len(found) == 1 else None


def _writes(at: Instruction, register: int) -> bool:
    result = _UNIFORM.fullmatch(operands_of(at)[0])
    if result is None:
        return False
    width = next((_WIDE[each] for each in at.opcode.split(".") if each in _WIDE), 1)
    return int(result[1]) <= register < int(result[1]) + width


def _moved(at: Instruction, register: int) -> int | None:
    """The constant that an instruction moves into a register; None if it computes a value or may not be executed."""
    moved = re.fullmatch(rf"UR{register}, (0x[0-9a-f]+)", at.operands)
    return int(moved[1], 16) if moved and at.opcode in ("UMOV", "UMOV.U32") and not at.predicate else None
