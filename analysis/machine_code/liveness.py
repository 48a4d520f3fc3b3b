"""Which registers each instruction writes and reads, and how many are live: our own data-flow analysis of SASS.

    live = count_live(graph)                # address to the number of live registers

nvdisasm counts too, but gives up on the cubins of some versions of ptxas (live.py). Only the registers of a thread (R)
are followed. An instruction whose operands are not known here is refused by name.
"""

import re
from collections.abc import Sequence

from analysis.errors import AnalysisError
from analysis.machine_code.regions import Graph
from analysis.machine_code.sass import Instruction

_REGISTER = re.compile(r"(?<![UA-Za-z0-9_.])R(\d+)(\.64)?(?![0-9])")
_STACK = 1  # R1 points to the stack until the end, as nvdisasm counts it
_PREDICATE = re.compile(r"!?U?P[0-9T]\b")
_PLAIN = re.compile(r"R[0-9Z]+")
_SPLIT = re.compile(r",\s*(?![^\[]*\])")  # not the commas inside brackets
_ONLY_READ = (
    "ST STS STG STL STSM LDGSTS RED REDG REDS BAR BRA BRX BRXU JMP JMX EXIT RET CALL BSSY BSYNC BREAK WARPSYNC "
    "NANOSLEEP YIELD MEMBAR ERRBAR FENCE DEPBAR LDGDEPBAR LDDEPBAR ARRIVES CCTL CCTLL CCTLT KILL BPT NOP R2P R2UR FCHK "
    "ISETP FSETP HSETP2 DSETP PSETP PLOP3 SETMAXREG USETMAXREG CGABAR PREEXIT ACQBULK"
)
_NO_RESULT = frozenset(_ONLY_READ.split())
# Registers of A and B, and for IMMA of C and D: a lane's share of a matrix. C and D of HMMA follow from their type.
_HMMA = {"16816": (4, 2), "1688": (2, 1)}
_TF32 = {"1688": (4, 2), "1684": (2, 1)}
_IMMA = {"16832": (4, 2, 4), "16816": (2, 1, 4), "8816": (1, 1, 2), "16864": (4, 2, 4)}


def registers_of(at: Instruction) -> tuple[frozenset[int], frozenset[int]]:
    """The registers that an instruction writes and those that it reads, RZ left out."""
    every = [text.strip() for text in _SPLIT.split(at.operands)] if at.operands else []
    operands = [text for text in every if not _PREDICATE.match(text)]
    result = -1
    if at.base not in _NO_RESULT and not at.base.startswith("U"):
        result = next((place for place, text in enumerate(operands) if _PLAIN.match(text)), -1)
    widths = _widths(at)
    writes = _registers(operands[result], widths[0]) if result >= 0 else set()
    reads: set[int] = set()
    sources = [text for place, text in enumerate(operands) if place != result]
    for place, text in enumerate(sources, start=1):
        reads |= _registers(text, _address(at, text) if "[" in text else widths[min(place, len(widths) - 1)])
    if at.base == "RET":
        reads |= {register + 1 for register in reads}
    if at.base == "EXIT":
        reads.add(_STACK)
    return frozenset(writes), frozenset(reads)


def _address(at: Instruction, text: str) -> int:
    """Registers of an address, where it does not say `.64` itself: on sm_75 `.E` stands for 64 bits."""
    extended = ".E" in at.opcode and not re.search(r"R\d+\.(64|U32)|desc|UR\d", text)
    return 2 if extended and at.base in ("LD", "LDG", "ST", "STG", "RED", "ATOM", "ATOMG") else 1


def _registers(text: str, width: int) -> set[int]:
    """Those that an operand names; of an address `.64` means two."""
    found: set[int] = set()
    for match in _REGISTER.finditer(text):
        first = int(match[1])
        found.update(range(first, first + max(width, 2 if match[2] else 1)))
    return found


def _widths(at: Instruction) -> Sequence[int]:
    """Registers of the result, then of each operand but predicates; the last width is that of all that follow."""
    base, *modifiers = at.opcode.split(".")
    if base == "HMMA":
        shape = modifiers[0]
        a_b = (_TF32 if "TF32" in modifiers else _HMMA).get(shape)
        if a_b is None:
            raise AnalysisError(f"{at.text!r}: the registers of its operands are not known")
        d = 4 if "F32" in modifiers[1:2] else 2
        return (d, *a_b, d)
    if base == "IMMA":
        if modifiers[0] not in _IMMA:
            raise AnalysisError(f"{at.text!r}: the registers of its operands are not known")
        a, b, d = _IMMA[modifiers[0]]
        return (d, a, b, d)
    if base in ("HGMMA", "IGMMA", "BGMMA", "QGMMA", "QMMA", "OMMA", "DMMA", "BMMA") or base.startswith("UTC"):
        raise AnalysisError(f"{at.text!r}: the registers of its operands are not known")
    if base in ("LDSM", "STSM"):
        count = {"4": 4, "2": 2}.get(modifiers[-1], 1)
        return (count, count)
    size = {"128": 4, "64": 2}.get(next((m for m in modifiers if m in ("128", "64")), ""), 1)
    if base in ("LD", "LDG", "LDS", "LDL", "LDC", "ST", "STG", "STS", "STL", "ATOM", "ATOMG", "ATOMS", "RED", "REDG"):
        return (size, size)
    if base == "IMAD" and "WIDE" in modifiers:
        return (2, 1, 1, 2)
    if base in ("IADD", "IADD3", "MOV", "ISETP", "BRX", "JMX") and (size == 2 or base in ("BRX", "JMX")):
        return (2, 2)
    if base in ("DADD", "DMUL", "DFMA", "DMNMX", "DSETP"):
        return (2, 2)
    if base == "CS2R":
        return (1 if "32" in modifiers else 2, 1)
    if base in ("F2F", "FRND"):
        to, of = modifiers[-2:] if len(modifiers) > 1 else ("F32", "F32")
        return (2 if to == "F64" else 1, 2 if of == "F64" else 1)
    if base in ("I2F", "F2I"):
        double, long = "F64" in modifiers, bool({"U64", "S64"} & set(modifiers))
        return (2 if (double if base == "I2F" else long) else 1, 2 if (long if base == "I2F" else double) else 1)
    return (1, 1)


def count_live(graph: Graph) -> dict[int, int]:
    """Address to the number of registers that hold a value needed there or later, those it writes included.

    A predicated instruction may leave the old value, so it ends no live range; but no range begins before the first
    instruction that may have written the register.
    """
    known = {at.address: registers_of(at) for at in graph.code if not at.never}
    written = _written(graph, known)
    counts = {}
    for first, live in _live_at_end(graph, known).items():
        for at in reversed(graph.blocks[first].instructions):
            writes, reads = known.get(at.address, _NOTHING)
            counts[at.address] = len(live & written[at.address] | writes | reads)
            live = (live if at.predicate else live - writes) | reads
    return counts


Registers = frozenset[int]
Known = dict[int, tuple[Registers, Registers]]  # address to registers written and read
_NOTHING: tuple[Registers, Registers] = (frozenset(), frozenset())


def _live_at_end(graph: Graph, known: Known) -> dict[int, Registers]:
    """Block to the registers that are live when it ends."""
    entering: dict[int, Registers] = dict.fromkeys(graph.blocks, frozenset())
    ends: dict[int, Registers] = {}
    work = sorted(graph.blocks)
    while work:
        first = work.pop()
        block = graph.blocks[first]
        ends[first] = live = frozenset().union(*(entering[each] for each in block.successors))
        for at in reversed(block.instructions):
            writes, reads = known.get(at.address, _NOTHING)
            live = (live if at.predicate else live - writes) | reads
        if live != entering[first]:
            entering[first] = live
            work += [each for each in graph.predecessors[first] if each not in work]
    return ends


def _written(graph: Graph, known: Known) -> dict[int, Registers]:
    """Address to the registers that an instruction before it may have written."""
    entering: dict[int, Registers] = dict.fromkeys(graph.blocks, frozenset())
    found: dict[int, Registers] = {}
    work = sorted(graph.blocks, reverse=True)
    while work:
        first = work.pop()
        block = graph.blocks[first]
        so_far = entering[first]
        for at in block.instructions:
            found[at.address] = so_far
            so_far |= known.get(at.address, _NOTHING)[0]
        for each in block.successors:
            if not so_far <= entering[each]:
                entering[each] |= so_far
                work += [each] if each not in work else []
    return found
