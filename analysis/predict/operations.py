"""The model of an instruction: its unit, its duration, and what it waits for.

    operation = operation_of(instruction, machine, conflicts=1.0)

`conflicts` is the number of wavefronts of a shared access divided by that without bank conflicts (regs/lines.csv).
"""

import re
from dataclasses import dataclass, replace
from enum import IntEnum

from analysis.machine_code.opcodes import WARP_GROUP, pipe_of
from analysis.machine_code.sass import NO_BARRIER, Control, Instruction
from analysis.predict.machine import Machine


class Kind(IntEnum):
    """The kind of an operation in the SM; the numbers index tables of functions."""

    PLAIN = 0  # takes a pipe of the sub-partition
    MEMORY = 1  # takes the load-store unit, which all four share
    COPY = 2  # cp.async
    COMMIT = 3  # ends a group of copies
    COPIES_WAIT = 4
    BARRIER = 5
    ARRIVE = 6  # gives the other warp group its turn
    WGMMA = 7
    WGMMA_WAIT = 8
    PHASE_WAIT = 9  # for a block of K, V or Q at its mbarrier
    RELEASE = 10  # of the stage of a block
    TILE = 11  # a Q block begins
    TENSOR_COPY = 12  # a TMA copy for which the warps that start it wait


K_BLOCK, V_BLOCK, Q_BLOCK = 0, 1, 2
QUEUED = frozenset({Kind.MEMORY, Kind.COPY, Kind.PHASE_WAIT, Kind.RELEASE})
SHARED = frozenset({"LDS", "LDSM", "STS", "STSM"})
MEMORY = SHARED | {"SHFL", "STG", "LDG", "LD", "ST", "LDL", "STL"}
UNSCHEDULED = Control(1, False, NO_BARRIER, NO_BARRIER, 0, 0)


@dataclass(slots=True)
class Operation:
    kind: Kind
    pipe: str
    cycles: float  # of its pipe; wavefronts of MEMORY; tensor cycles of WGMMA; bytes of TENSOR_COPY
    latency: float  # from issue (PLAIN) or the end of service (MEMORY) to the scoreboard of the result
    stall: int
    yields: bool
    write: int  # scoreboard; NO_BARRIER for none
    read: int
    waits: tuple[int, ...]
    argument: int = 0  # groups that may be under way (waits), block (PHASE_WAIT, RELEASE), 1: last of its group (WGMMA)
    turn: bool = False  # a BARRIER at which two warp groups take turns
    of_group: bool = False  # a BARRIER of one warp group
    defers: bool = False  # a BARRIER that holds a warp up at its next operation that is not PLAIN
    during_wgmma: float = 0.0  # cycles of its pipe while wgmma runs; 0: as without
    ideal: float = 1.0  # wavefronts of MEMORY without bank conflicts
    port: float = 1.0  # cycles until the scheduler issues again
    instruction: Instruction | None = None


def tile_start() -> Operation:
    return Operation(Kind.TILE, "control", 1, 0, 1, False, NO_BARRIER, NO_BARRIER, ())


def stage_release(block: int) -> Operation:
    return Operation(Kind.RELEASE, "lsu", 1, 0, 1, False, NO_BARRIER, NO_BARRIER, (), block)


def tensor_copy(made: Operation, size: float) -> Operation:
    """The operation of a TMA copy of `size` bytes for which the warps that start it wait."""
    return replace(made, kind=Kind.TENSOR_COPY, pipe="lsu", cycles=size)


def operation_of(at: Instruction, machine: Machine, conflicts: float = 1.0) -> Operation:
    control = at.control or UNSCHEDULED
    waits = tuple(i for i in range(6) if control.wait >> i & 1)
    stall = max(1, control.stall)
    latency = machine.latency(at.base)
    made = Operation(
        Kind.PLAIN, pipe_of(at.base), 1, latency, stall, control.yields, control.write, control.read, waits
    )
    made.instruction = at
    if at.base in _SPECIAL:
        _SPECIAL[at.base](made, at, machine)
    elif at.never:
        made.pipe = "control"
    elif at.base in MEMORY:
        made.kind = Kind.MEMORY
        made.ideal = wavefronts(at.opcode)
        made.cycles = made.ideal * (conflicts if at.base in SHARED else 1.0)
    elif made.pipe == "lsu":
        made.pipe, made.cycles = "address", machine.address
    else:
        made.cycles = interval(at.base, made.pipe, machine)
        made.port = max(1.0, len(sources(at)) / machine.operand_ports)
        made.during_wgmma = machine.during_wgmma.get("imad" if at.base == "IMAD" else made.pipe, 0.0)
    return made


def sources(at: Instruction) -> set[str]:
    """Registers that an arithmetic instruction reads."""
    return set(re.findall(r"\bR\d+\b", at.operands.partition(",")[2]))


def interval(base: str, pipe: str, machine: Machine) -> float:
    """Cycles for which an instruction of fixed latency takes its pipe."""
    if pipe == "fma":
        return machine.imad if base == "IMAD" else machine.fma
    known = {"alu": machine.alu, "xu": machine.xu, "uniform": machine.uniform, "fp64": machine.fp64, "other": 2.0}
    return known.get(pipe, 1.0)


def wavefronts(opcode: str) -> int:
    """Wavefronts of a shared access without conflicts, of 128 bytes each."""
    if ".128" in opcode or ".x4" in opcode or "88.4" in opcode:
        return 4
    return 2 if ".64" in opcode or "88.2" in opcode else 1


def _hmma(made: Operation, at: Instruction, machine: Machine) -> None:
    made.cycles = machine.hmma * (0.5 if ".1688." in at.opcode else 1.0)


def _wgmma(made: Operation, at: Instruction, machine: Machine) -> None:
    columns = re.search(r"64x(\d+)x", at.opcode)
    made.kind, made.argument = Kind.WGMMA, int("gsb0" in at.operands)
    made.cycles = int(columns[1] if columns else 128) / machine.wgmma_columns


def _warpgroup(made: Operation, at: Instruction, machine: Machine) -> None:
    del machine
    made.pipe = "control"
    if "DEPBAR" in at.opcode:
        made.kind, made.argument = Kind.WGMMA_WAIT, _last_number(at)


def _depbar(made: Operation, at: Instruction, machine: Machine) -> None:
    del machine
    made.kind, made.argument = Kind.COPIES_WAIT, _last_number(at) if "," in at.operands else 0


def _bar(made: Operation, at: Instruction, machine: Machine) -> None:
    del machine
    made.kind = Kind.ARRIVE if ".ARV" in at.opcode else Kind.BARRIER
    made.turn, made.of_group = "0x100" in at.operands, "0x80" in at.operands
    made.defers = ".DEFER_BLOCKING" in at.opcode


def _commit(made: Operation, at: Instruction, machine: Machine) -> None:
    del at, machine
    made.kind = Kind.COMMIT


def _copy(made: Operation, at: Instruction, machine: Machine) -> None:
    del at
    made.kind, made.pipe, made.cycles = Kind.COPY, "lsu", machine.copy_wavefronts


def _mbarrier(made: Operation, at: Instruction, machine: Machine) -> None:
    del machine
    made.pipe = "lsu"
    offset = re.search(r"\+0x([0-9a-f]+)\]", at.operands)
    made.argument = int(offset[1], 16) & 0xFFF if offset else 0
    if "PHASECHK" in at.opcode and ".TRYWAIT" in at.opcode:
        made.kind = Kind.PHASE_WAIT
    elif "ARRIVE" in at.opcode and ".A1T0" in at.opcode:
        made.kind = Kind.RELEASE


def _last_number(at: Instruction) -> int:
    return int(at.operands.split(",")[-1].strip(), 0)


_SPECIAL = {
    "HMMA": _hmma,
    **dict.fromkeys(WARP_GROUP, _wgmma),
    "WARPGROUP": _warpgroup,
    "DEPBAR": _depbar,
    "BAR": _bar,
    "LDGDEPBAR": _commit,
    "LDGSTS": _copy,
    "SYNCS": _mbarrier,
}
