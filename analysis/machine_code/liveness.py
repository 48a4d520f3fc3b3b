"""Data-flow analysis of SASS: the registers that each instruction writes and reads, and the number of live ones.

    live = count_live(graph)                # address to the number of live registers

nvdisasm counts too, but gives up on the cubins of some versions of ptxas (live.py). Only the registers of a thread (R)
are followed. An instruction whose operands are not known here is refused by name.
"""

import re
from collections.abc import Sequence

from analysis.errors import AnalysisError
from analysis.machine_code.opcodes import MATRIX, TENSOR_MEMORY
from analysis.machine_code.regions import Graph
from analysis.machine_code.sass import Instruction

_REGISTER = re.compile(r"(?<![UA-Za-z0-9_.])R(\d+)(\.64)?(?![0-9])")
_STACK = 1  # R1 points to the stack until the end, as nvdisasm counts it
_PREDICATE = re.compile(r"!?U?P[0-9T]\b")
_PLAIN = re.compile(r"U?R[0-9Z]+")
_SPLIT = re.compile(r",\s*(?![^\[]*\])")  # not the commas inside brackets
# Opcodes whose first operand is a register that they read; that of all others is the result, or an address in brackets.
_ONLY_READ = (
    "BAR BRA BRX BRXU JMP JMX EXIT RET CALL BSSY BSYNC BREAK WARPSYNC NANOSLEEP YIELD MEMBAR ERRBAR FENCE DEPBAR "
    "LDGDEPBAR LDDEPBAR ARRIVES KILL BPT NOP R2P FCHK ISETP FSETP HSETP2 DSETP PSETP PLOP3 SETMAXREG USETMAXREG CGABAR "
    "PREEXIT ACQBULK UISETP UPLOP3 UFSETP UPSETP UR2UP"
)
_NO_RESULT = frozenset(_ONLY_READ.split())
# Registers of A and B, and for IMMA of C and D: a lane's share of a matrix. C and D of HMMA follow from their type.
_HMMA = {"16816": (4, 2), "1688": (2, 1)}
_TF32 = {"1688": (4, 2), "1684": (2, 1)}
_IMMA = {"16832": (4, 2, 4), "16816": (2, 1, 4), "8816": (1, 1, 2), "16864": (4, 2, 4)}
_WARP_GROUP = re.compile(r"[HIQB]GMMA(?:\.SP)?\.64x(\d+)x\d+(?:\.(F16)\b)?")
_VECTORS = {"128": 4, "64": 2, "F32x4": 4, "F32x2": 2, "F16x8": 4, "F16x4": 2, "BF16x8": 4, "BF16x4": 2}
# They use pairs of registers if a modifier is one of _PAIR.
_PAIRS = frozenset({"IADD", "IADD3", "MOV", "SEL", "ISETP", "UIADD3", "UIADD", "UMOV", "USEL", "UISETP"})
_PAIR = frozenset({"64", "U64", "S64"})
_GENERIC = frozenset({"LD", "LDG", "ST", "STG", "RED", "ATOM", "ATOMG", "CCTL", "LDGMC"})  # addresses of 64 bits
_MEMORY = _GENERIC - {"CCTL"} | {"LDS", "LDL", "LDC", "STS", "STL", "STAS", "ATOMS", "REDG", "REDS"}


def registers_of(at: Instruction) -> tuple[frozenset[int], frozenset[int]]:
    """The registers of a thread that an instruction writes and those that it reads, RZ left out."""
    result, sources = operands_of(at)
    widths = _widths(at)
    writes = _registers(result, widths[0])
    if at.opcode.startswith("LDTM.STAT"):  # two results: the least or largest element, and all of them
        writes |= _registers(sources.pop(0), widths[1])
    reads: set[int] = set()
    for location, text in enumerate(sources, start=1):
        reads |= _registers(text, _address(at, text) if "[" in text else widths[min(location, len(widths) - 1)])
    if at.base == "RET":
        reads |= {register + 1 for register in reads}
    if at.base == "EXIT":
        reads.add(_STACK)
    return frozenset(writes), frozenset(reads)


def operands_of(at: Instruction) -> tuple[str, list[str]]:
    """The operand that holds the result, "" where there is none, and the others; predicates are left out."""
    every = [text.strip() for text in _SPLIT.split(at.operands)] if at.operands else []
    operands = [text for text in every if not _PREDICATE.match(text)]
    if operands and at.base not in _NO_RESULT and _PLAIN.match(operands[0]):
        return operands[0], operands[1:]
    return "", operands


def _address(at: Instruction, text: str) -> int:
    """Registers of an address, where it does not say `.64` itself: on sm_75 `.E` means 64 bits."""
    extended = ".E" in at.opcode and not re.search(r"R\d+\.(64|U32)|desc|UR\d", text)
    return 2 if extended and at.base in _GENERIC else 1


def _registers(text: str, width: int) -> set[int]:
    """The registers that an operand names; `.64` in an address means two."""
    found: set[int] = set()
    for match in _REGISTER.finditer(text):
        first = int(match[1])
        found.update(range(first, first + max(width, 2 if match[2] else 1)))
    return found


def _widths(at: Instruction) -> Sequence[int]:
    """Registers of the result, then of each operand but predicates; the last width is that of all that follow."""
    base, *modifiers = at.opcode.split(".")
    if base in MATRIX:
        return _matrix_widths(at, modifiers)
    if base in ("LDSM", "STSM"):
        count = {"4": 4, "2": 2}.get(modifiers[-1], 1) * (2 if "MT1616" in modifiers else 1)
        return (count, count)
    if base in ("LDTM", "STTM"):
        count = tensor_memory_words(at.opcode)
        return (1 if "STAT" in modifiers else count, count)
    size = next((_VECTORS[each] for each in modifiers if each in _VECTORS), 1)
    if base in _MEMORY:
        return (size, size)
    if base == "SYNCS":
        return (2, 1)  # the state of an mbarrier, and the bytes that an arrival expects
    if base == "IMAD" and modifiers[:1] in (["WIDE"], ["HI"]):
        return (2 if modifiers[0] == "WIDE" else 1, 1, 1, 2)
    if (base in _PAIRS and _PAIR & set(modifiers)) or base in ("BRX", "JMX"):
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


def tensor_memory_words(opcode: str) -> int:
    """Registers of a thread that LDTM loads or STTM stores: the repetitions times the registers of one."""
    repeated = re.search(r"\.x(\d+)\b", opcode)
    of_one = 4 if "dp256bit" in opcode else 2 if "dp128bit" in opcode else 1
    return of_one * (int(repeated[1]) if repeated else 1)


def _matrix_widths(at: Instruction, modifiers: Sequence[str]) -> Sequence[int]:
    """The registers of a matrix instruction."""
    shape = modifiers[0] if modifiers else ""
    if at.base in TENSOR_MEMORY:
        return (1,)  # all operands are uniform registers
    if at.base in ("QMMA", "OMMA"):
        sparse, d = "SP" in modifiers, 2 if "F16" in modifiers else 4
        # The scales of A share a pair of registers with the metadata of a sparse A.
        return (d, 4, 4 if sparse else 2, d, 2 if sparse and "SF" in modifiers else 1, 1)
    if at.base == "HMMA":
        a_b = (_TF32 if "TF32" in modifiers else _HMMA).get(shape)
        if a_b:
            d = 4 if "F32" in modifiers[1:2] else 2
            return (d, *a_b, d)
    elif at.base == "IMMA" and shape in _IMMA:
        a, b, d = _IMMA[shape]
        return (d, a, b, d)
    elif group := _WARP_GROUP.match(at.opcode):
        # A thread holds a 128th of D: 32 · N elements of 4 or 2 bytes. A comes from four registers, or like B from
        # shared memory. The operand after C is the metadata of a sparse A.
        d = int(group[1]) // (4 if group[2] else 2)
        return (d, 1, d, 1) if "gdesc[" in at.operands.split(",")[1] else (d, 4, 1, d, 1)
    raise AnalysisError(f"{at.text!r}: the registers of its operands are not known")


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
