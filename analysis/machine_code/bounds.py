"""Lower bounds of a loop's time, and what its instructions wait for. None of this is a prediction.

    bound = loop_bound(split(listing))
    print(bound.binding.pipe, bound.binding.cycles)

Two bounds: the sum of the stall counts is the least time in which one warp alone can issue the loop once; the work of
each pipe divided by its width is the least time in which a sub-partition can run the loop for one warp, however many
warps it holds. Cycles are those of one SM sub-partition.
"""

import argparse
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from analysis.errors import DONE, AnalysisError
from analysis.machine_code.opcodes import OTHER, pipe_of
from analysis.machine_code.regions import Parts, matrix_count, split
from analysis.machine_code.sass import NO_BARRIER, Instruction
from analysis.machine_code.subjects import add_subject_arguments, start, subjects_of
from analysis.table import Cell, Table, add_table_arguments, print_table

LANES = 32
SUB_PARTITIONS = 4


@dataclass(frozen=True)
class Widths:
    """Lanes per clock and SM: throughput table of the CUDA C++ Programming Guide ("Arithmetic Instructions")."""

    fp32: int
    fma_int: int  # IMAD
    alu: int
    xu: int
    fp64: int
    matrix: float | None  # multiply-adds a clock and sub-partition of HMMA, fp32 accumulate; None: not known
    wgmma: float | None = None  # the same of warp-group instructions


# HMMA: 1024 multiply-adds a clock and SM on sm_80 (A100 whitepaper), 512 on sm_86 and sm_89. On sm_90 an HMMA.16816 is
# issued every 6 cycles (measured: 645 TFLOP/s at 1.79 GHz on 132 SMs), two thirds of what warp-group ones reach.
WIDTHS = {
    "sm_80": Widths(fp32=64, fma_int=64, alu=64, xu=16, fp64=32, matrix=256),
    "sm_86": Widths(fp32=128, fma_int=64, alu=64, xu=16, fp64=2, matrix=128),
    "sm_89": Widths(fp32=128, fma_int=64, alu=64, xu=16, fp64=2, matrix=128),
    "sm_90": Widths(fp32=128, fma_int=64, alu=64, xu=16, fp64=64, matrix=2048 / 6, wgmma=512),
    "sm_100": Widths(fp32=128, fma_int=64, alu=64, xu=16, fp64=64, matrix=None),
    "sm_120": Widths(fp32=128, fma_int=64, alu=64, xu=16, fp64=2, matrix=128),
}
LSU_BYTES = 128  # shared-memory and L1 bytes per clock and SM
UNIFORM = 64  # taken to be like the ALU; not documented


@dataclass(frozen=True)
class PipeLoad:
    pipe: str
    instructions: int
    cycles: float | None  # of one sub-partition, for one warp and one pass; None where the width is not known


@dataclass(frozen=True)
class Bound:
    arch: str
    issue_cycles: int  # sum of stall counts: one warp alone
    pipes: tuple[PipeLoad, ...]  # longest first; "issue" is one instruction a cycle

    @property
    def binding(self) -> PipeLoad:
        return self.pipes[0]

    @property
    def warps_to_fill(self) -> int:
        """Warps that a sub-partition needs before the binding pipe can be the limit, not the stalls of each warp."""
        return -(-self.issue_cycles // max(1, round(self.binding.cycles or 1)))


def widths_of(arch: str) -> Widths:
    base = arch.rstrip("af")
    if base not in WIDTHS:
        raise AnalysisError(f"{arch or 'unknown architecture'}: pipe widths are known for {', '.join(WIDTHS)}")
    return WIDTHS[base]


def loop_bound(parts: Parts) -> Bound:
    """Bounds of one pass through the KV loop, by the instructions that every pass executes."""
    return bound_of(parts.every_pass, parts.listing.arch)


def bound_of(code: Sequence[Instruction], arch: str) -> Bound:
    widths = widths_of(arch)
    if any(at.control is None for at in code):
        raise AnalysisError("the bound needs control codes: a cubin, or a listing that holds them")
    counts: dict[str, int] = {"issue": len(code)}
    cycles: dict[str, float | None] = {"issue": float(len(code))}
    for at in code:
        pipe = pipe_of(at.base)
        if pipe == "control" or at.never:
            continue
        cost = cost_of(at, pipe, widths)
        counts[pipe] = counts.get(pipe, 0) + 1
        so_far = cycles.get(pipe, 0.0)
        cycles[pipe] = None if cost is None or so_far is None else so_far + cost
    loads = [PipeLoad(pipe, counts[pipe], cycles[pipe]) for pipe in counts]
    loads.sort(key=lambda load: (-(load.cycles or 0), load.pipe))
    return Bound(arch, sum(max(1, at.control.stall) for at in code if at.control), tuple(loads))


def cost_of(at: Instruction, pipe: str, widths: Widths) -> float | None:
    """Cycles for which one warp's instruction keeps its pipe of a sub-partition busy."""
    if pipe == OTHER:
        return None
    if pipe == "tensor":
        return _matrix_cost(at, widths)
    if pipe == "lsu":
        return LANES * _lane_bytes(at.opcode) / (LSU_BYTES / SUB_PARTITIONS)
    if pipe == "fma":
        lanes = widths.fma_int if at.base.startswith(("IMAD", "IDP", "IMUL", "XMAD")) else widths.fp32
    else:
        lanes = {"alu": widths.alu, "xu": widths.xu, "fp64": widths.fp64, "uniform": UNIFORM}[pipe]
    return LANES / (lanes / SUB_PARTITIONS)


def _matrix_cost(at: Instruction, widths: Widths) -> float | None:
    if at.base in ("WARPGROUP", "WARPGROUPSET"):
        return 0.0
    group = re.search(r"\.(\d+)x(\d+)x(\d+)", at.opcode)
    if group and at.base == "HGMMA":
        m, n, k = map(int, group.groups())
        return m * n * k / SUB_PARTITIONS / widths.wgmma if widths.wgmma else None
    work = {"HMMA.16816": 16 * 8 * 16, "HMMA.1688": 16 * 8 * 8}.get(".".join(at.opcode.split(".")[:2]))
    return work / widths.matrix if work and widths.matrix else None


def _lane_bytes(opcode: str) -> int:
    """Bytes a lane moves: .128 and LDSM.4 move 16, .64 and LDSM.2 move 8, others 4."""
    base, *modifiers = opcode.split(".")
    if base in ("LDSM", "STSM") and modifiers and modifiers[-1] in ("2", "4"):
        return 4 * int(modifiers[-1])
    return {"128": 16, "64": 8}.get(next((m for m in modifiers if m in ("128", "64")), ""), 4)


# ---- scoreboards -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Wait:
    """An instruction that waits for a scoreboard, and the last one before it in the loop that set it."""

    waiter: Instruction
    scoreboard: int
    setter: Instruction | None  # None: set before the loop
    kind: str  # "result" or "operands read"
    instructions: int  # between setter and waiter
    matrix: int  # matrix instructions among them
    previous_pass: bool  # the setter stands later in the loop, so it belongs to the pass before


def waits_of(parts: Parts) -> Iterator[Wait]:
    """Every wait of the loop in order."""
    code = parts.loop
    for position, at in enumerate(code):
        for scoreboard in waited_scoreboards(at):
            found = None
            for distance in range(1, len(code) + 1):
                before = code[position - distance]
                kind = sets(before, scoreboard)
                if kind and not before.never:
                    found = (before, kind, distance)
                    break
            if found is None:
                yield Wait(at, scoreboard, None, "", 0, 0, False)
                continue
            setter, kind, distance = found
            wrapped = position - distance < 0
            between = [code[position - step] for step in range(1, distance)]
            yield Wait(at, scoreboard, setter, kind, len(between), matrix_count(between), wrapped)


def waited_scoreboards(at: Instruction) -> list[int]:
    if at.control is None or at.never:
        return []
    waited = [i for i in range(6) if at.control.wait >> i & 1]
    named = re.match(r"SB(\d)", at.operands) if at.base == "DEPBAR" else None
    return waited + ([int(named[1])] if named and int(named[1]) not in waited else [])


def sets(at: Instruction, scoreboard: int) -> str:
    """ "result" or "operands read" when the instruction sets this scoreboard, else nothing."""
    if at.control is None or scoreboard == NO_BARRIER:
        return ""
    if at.control.write == scoreboard:
        return "result"
    return "operands read" if at.control.read == scoreboard else ""


# ---- commands --------------------------------------------------------------------------------------------------------


def bound_table(bound: Bound) -> Table:
    rows: list[list[Cell]] = []
    for load in bound.pipes:
        note = "binds" if load is bound.binding else ""
        cycles = None if load.cycles is None else round(load.cycles, 1)
        missing = "pipe not known" if load.pipe == OTHER else "width not known"
        rows.append([load.pipe, load.instructions, cycles, note if cycles is not None else missing])
    note = f"{bound.warps_to_fill} warps per sub-partition to fill the {bound.binding.pipe} pipe"
    rows.append(["stalls of one warp", _issued(bound), bound.issue_cycles, note])
    return Table(("bound", "instructions", "cycles", "note"), rows)


def _issued(bound: Bound) -> int:
    return next(load.instructions for load in bound.pipes if load.pipe == "issue")


def scoreboard_table(parts: Parts) -> Table:
    rows: list[list[Cell]] = []
    for wait in waits_of(parts):
        setter = wait.setter
        rows.append(
            [
                f"{wait.waiter.address:04x}",
                wait.waiter.opcode,
                wait.scoreboard,
                wait.kind or "set before the loop",
                f"{setter.address:04x}" if setter else None,
                setter.opcode if setter else None,
                wait.instructions if setter else None,
                wait.matrix if setter else None,
                "pass before" if wait.previous_pass else "",
            ]
        )
    columns = ("address", "waits", "scoreboard", "for", "set at", "by", "instructions", "matrix", "when")
    return Table(columns, rows)


def summary_table(names: Sequence[str], bounds: Sequence[Bound]) -> Table:
    """One row a subject: what binds, and the least time of one warp alone."""
    rows: list[list[Cell]] = []
    for name, bound in zip(names, bounds, strict=True):
        cycles = {load.pipe: load.cycles for load in bound.pipes}
        tensor = cycles.get("tensor")
        binding = bound.binding
        rows.append([name, bound.arch, binding.pipe, binding.cycles, tensor, bound.issue_cycles, bound.warps_to_fill])
    return Table(("subject", "arch", "binding pipe", "cycles", "tensor", "one warp alone", "warps to fill"), rows)


def add_bound_arguments(parser: argparse.ArgumentParser) -> None:
    add_subject_arguments(parser, many=True)
    parser.add_argument("--scoreboard", action="store_true", help="each wait of the loop and what it waits for")
    add_table_arguments(parser)


def run_bound(args: argparse.Namespace) -> int:
    pending = [start(subject) for subject in subjects_of(args)]
    parts = [split(each.listing()) for each in pending]
    if args.scoreboard:
        if len(parts) > 1:
            raise AnalysisError("--scoreboard shows one version or file at a time")
        print_table(scoreboard_table(parts[0]), args)
    elif len(parts) > 1:
        bounds = [loop_bound(each) for each in parts]
        print_table(summary_table([each.subject.name for each in pending], bounds), args)
    else:
        print_table(bound_table(loop_bound(parts[0])), args)
    return DONE
