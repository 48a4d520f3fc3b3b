"""Lower bounds of a loop's time, an estimate of it, and what its instructions wait for.

    bound = loop_bound(parts_of(listing))
    if bound.binding: print(bound.binding.pipe, bound.binding.cycles)

Two bounds: the sum of the stall counts is the least time in which one warp alone can issue the loop once; the work of
each pipe divided by its width is the least time in which a sub-partition can run the loop for one warp, however many
warps it holds. Cycles are those of one SM sub-partition.

wgmma and tcgen05.mma run on their own once they are started, so that other pipes work at the same time. The rate of
wgmma is the measured one (wgmma_rates.py), and "not measured" without a record; that of tcgen05.mma is published
(tcgen05.py).

A block that a pass may skip, and a predicated instruction, counts by the share of the passes that execute it. If that
is not recorded (loops.py), it counts as nothing in a bound, and fully in `at_most`.

The estimate takes a sub-partition to do one thing at a time: HMMA, the slots in which it issues, and the wavefronts
that bank conflicts add, where they are recorded (traffic.py). It has one scale, fitted to the times of the ladder, and
its error is printed next to it; waits are not included.
"""

import argparse
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from analysis.errors import DONE, AnalysisError
from analysis.files import root
from analysis.machine_code.loops import add_loop_argument, parts_of, print_note
from analysis.machine_code.opcodes import OTHER, TENSOR_MEMORY, WARP_GROUP, pipe_of
from analysis.machine_code.regions import Graph, Parts, matrix_count
from analysis.machine_code.sass import NO_BARRIER, Instruction
from analysis.machine_code.subjects import add_subject_arguments, start, subjects_of
from analysis.machine_code.tcgen05 import mma_cycles
from analysis.machine_code.traffic import conflicts_of
from analysis.machine_code.wgmma_rates import NOT_MEASURED, Rates, read_rates
from analysis.table import Cell, Table, add_table_arguments, print_table

UNKNOWN = "not known"
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
    matrix: float | None  # multiply-adds a clock and sub-partition of HMMA, fp32 accumulate; None: nobody published it
    faster: Mapping[str, int] = field(default_factory=lambda: {"HMMA": 1})  # opcode to its rate in those of HMMA


# HMMA: 1024 multiply-adds a clock and SM on sm_80 (A100 whitepaper), 512 on sm_86 and sm_89. On sm_90 an HMMA.16816 is
# issued every 6 cycles (measured: 645 TFLOP/s at 1.79 GHz on 132 SMs), two thirds of what warp-group ones reach. On
# sm_120 CUTLASS gives 8 bits Ada's rate of fp8, twice that of fp16, and 4 bits twice as much ("Blackwell SM120 GEMMs").
WIDTHS = {
    "sm_80": Widths(fp32=64, fma_int=64, alu=64, xu=16, fp64=32, matrix=256),
    "sm_86": Widths(fp32=128, fma_int=64, alu=64, xu=16, fp64=2, matrix=128),
    "sm_89": Widths(fp32=128, fma_int=64, alu=64, xu=16, fp64=2, matrix=128),
    "sm_90": Widths(fp32=128, fma_int=64, alu=64, xu=16, fp64=64, matrix=2048 / 6),
    "sm_100": Widths(fp32=128, fma_int=64, alu=64, xu=16, fp64=64, matrix=None),
    "sm_120": Widths(fp32=128, fma_int=64, alu=64, xu=16, fp64=2, matrix=128, faster={"HMMA": 1, "QMMA": 2, "OMMA": 4}),
}
LSU_BYTES = 128  # shared-memory and L1 bytes per clock and SM
UNIFORM = 64  # taken to be like the ALU; not documented


@dataclass(frozen=True)
class PipeLoad:
    pipe: str
    instructions: float  # of a pass, on average
    cycles: float | None  # of one sub-partition, for one warp and one pass; None where the width is not known
    at_most: float | None  # the same if every pass executed the whole loop


class Fitted(NamedTuple):
    """The estimate's scale on an architecture, and how far from it the times are that it was fitted to, in percent."""

    scale: float
    mean_error: float
    largest_error: float
    of: str


ESTIMATES = {"sm_90": Fitted(1.026, 4.5, 12.8, "v01 to v25 at seq 4096 on an H200")}


@dataclass(frozen=True)
class Bound:
    arch: str
    issue_cycles: int  # sum of stall counts: one warp alone
    pipes: tuple[PipeLoad, ...]  # longest first; "issue" is one instruction a cycle
    asynchronous: str = ""  # the matrix instructions that run while other pipes work: "wgmma", "tcgen05.mma" or none
    rates: Rates | None = None  # of wgmma
    conflicts: float | None = None  # cycles of a sub-partition for what bank conflicts add; None: not recorded

    @property
    def binding(self) -> PipeLoad | None:
        """The pipe with the most cycles; None where the width of a pipe is not known, as that one may take more."""
        return self.pipes[0] if all(load.cycles is not None for load in self.pipes) else None

    @property
    def estimate(self) -> float | None:
        """Cycles of a sub-partition for one warp and pass; None without HMMA and where nothing was fitted."""
        cycles = {load.pipe: load.cycles for load in self.pipes}
        tensor, issue, fitted = cycles.get("tensor"), cycles["issue"], ESTIMATES.get(self.arch.rstrip("af"))
        if tensor is None or issue is None or fitted is None or self.asynchronous:
            return None
        return fitted.scale * (tensor + issue + (self.conflicts or 0))

    @property
    def warps_to_fill(self) -> int | None:
        """Warps that a sub-partition needs before the binding pipe can be the limit, not the stalls of each warp."""
        binding = self.binding
        return None if binding is None else -(-self.issue_cycles // max(1, round(binding.cycles or 1)))

    @property
    def issued(self) -> float:
        """Instructions that a pass issues, on average."""
        return next(load.instructions for load in self.pipes if load.pipe == "issue")


def widths_of(arch: str) -> Widths:
    base = arch.rstrip("af")
    if base not in WIDTHS:
        raise AnalysisError(f"{arch or 'unknown architecture'}: pipe widths are known for {', '.join(WIDTHS)}")
    return WIDTHS[base]


class Share(NamedTuple):
    """The shares of the passes that issue an instruction, that are known to execute it, and that may."""

    issued: float
    executed: float
    at_most: float


ALWAYS = Share(1.0, 1.0, 1.0)


def shares_in(parts: Parts) -> dict[int, Share]:
    """The shares of all instructions of the KV loop, by address."""
    always = {at.address for at in parts.every_pass}
    found = {}
    for first in parts.kv.blocks:
        for at in parts.graph.blocks[first].instructions:
            if parts.shares is None:
                issued = float(at.address in always)
                found[at.address] = Share(issued, 0.0 if at.predicate else issued, 1.0)
            else:
                executed = parts.shares.get(at.address, 1.0)
                found[at.address] = Share(parts.shares.get(first, 1.0), executed, executed)
    return found


def executed(parts: Parts) -> float:
    """Instructions that a pass executes on average; all in-line ones of the loop if the shares are not known."""
    return sum(executed_opcodes(parts).values())


def executed_opcodes(parts: Parts) -> dict[str, float]:
    """Executions per pass by base opcode, such as FMUL, on average."""
    found: dict[str, float] = {}
    for at, share in issued(parts):
        found[at.base] = found.get(at.base, 0.0) + share
    return found


def issued(parts: Parts) -> list[tuple[Instruction, float]]:
    """Issues per pass by instruction, on average."""
    shares = None if parts.shares is None else shares_in(parts)
    code = parts.loop if shares is None else parts.graph.instructions(parts.kv.blocks)
    return [(at, 1.0 if shares is None else shares[at.address].issued) for at in code if not at.never]


def loop_bound(parts: Parts) -> Bound:
    """Bounds of one pass through the KV loop, with its out-of-line blocks."""
    code = parts.graph.instructions(parts.kv.blocks)
    bound = bound_of(code, parts.listing.arch, parts.graph, shares_in(parts))
    lost = conflicts_of(root(), parts.listing.config)
    return replace(bound, conflicts=None if lost is None else lost * SUB_PARTITIONS)  # an SM has one wavefront a cycle


def bound_of(code: Sequence[Instruction], arch: str, graph: Graph, shares: Mapping[int, Share] | None = None) -> Bound:
    """Bounds of one run through some code. A predicated instruction takes its turn to issue, executed or not."""
    widths = widths_of(arch)
    bases = {at.base for at in code}
    asynchronous = "tcgen05.mma" if bases & TENSOR_MEMORY else "wgmma" if bases & WARP_GROUP else ""
    rates = read_rates(root(), arch) if asynchronous == "wgmma" else None
    if any(at.control is None for at in code):
        raise AnalysisError("the bound needs control codes: use a cubin, or a disassembly that contains them")
    loads: dict[str, PipeLoad] = {"issue": PipeLoad("issue", 0.0, 0.0, 0.0)}
    stalls = 0.0

    def add(pipe: str, cost: float | None, least: float, most: float) -> None:
        before = loads.get(pipe, PipeLoad(pipe, 0.0, 0.0, 0.0))
        cycles = None if cost is None or before.cycles is None else before.cycles + least * cost
        at_most = None if cost is None or before.at_most is None else before.at_most + most * cost
        loads[pipe] = PipeLoad(pipe, before.instructions + least, cycles, at_most)

    for at in code:
        share = shares[at.address] if shares is not None else ALWAYS
        add("issue", 1.0, share.issued, max(share.issued, share.at_most))
        stalls += share.issued * max(1, at.control.stall if at.control else 0)
        pipe = pipe_of(at.base)
        if pipe != "control" and not at.never:
            own = at.base in TENSOR_MEMORY
            cost = mma_cycles(graph, at) if own else cost_of(at, pipe, widths, rates)
            add(pipe, cost, share.executed, share.at_most)
    ordered = sorted(loads.values(), key=lambda load: (-(load.cycles or 0), load.pipe))
    return Bound(arch, round(stalls), tuple(ordered), asynchronous, rates)


def cost_of(at: Instruction, pipe: str, widths: Widths, rates: Rates | None = None) -> float | None:
    """Cycles for which one warp's instruction keeps its pipe of a sub-partition busy."""
    if pipe in (OTHER, "tmem"):
        return None
    if pipe == "tensor":
        return _matrix_cost(at, widths, rates)
    if pipe == "lsu":
        return LANES * _lane_bytes(at.opcode) / (LSU_BYTES / SUB_PARTITIONS)
    if pipe == "fma":
        lanes = widths.fma_int if at.base.startswith(("IMAD", "IDP", "IMUL", "XMAD")) else widths.fp32
    else:
        lanes = {"alu": widths.alu, "xu": widths.xu, "fp64": widths.fp64, "uniform": UNIFORM}[pipe]
    results = 2 if at.base in _PACKED else 1
    return results * LANES / (lanes / SUB_PARTITIONS)


_PACKED = frozenset({"FFMA2", "FADD2", "FMUL2"})  # two results a lane: f32x2


def _matrix_cost(at: Instruction, widths: Widths, rates: Rates | None) -> float | None:
    if at.base in ("WARPGROUP", "WARPGROUPSET"):
        return 0.0
    group = re.match(r"HGMMA\.64x(\d+)x(\d+)\.", at.opcode)
    if group or at.base in WARP_GROUP:  # a warp's quarter runs on its sub-partition, while the others run on theirs
        return rates.cycles(int(group[1]), int(group[2])) if group and rates else None
    shape, *types = at.opcode.split(".")[1:] or [""]
    shape = next((each for each in (shape, *types) if each.isdecimal()), "")
    work = _WORK.get(shape) if at.base in widths.faster else None
    halved = 2 if "TF32" in types else 0.5 if "SP" in at.opcode.split(".") else 1  # 32 bits; half of A is not there
    return work * halved / widths.matrix / widths.faster[at.base] if work and widths.matrix else None


# Multiply-adds of a warp's instruction by its shape.
_WORK = {"16816": 16 * 8 * 16, "1688": 16 * 8 * 8, "1684": 16 * 8 * 4, "16832": 16 * 8 * 32, "16864": 16 * 8 * 64,
         "168128": 16 * 8 * 128}  # fmt: skip


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
    scoreboard: int | str  # "gsb0" counts groups of wgmma
    setter: Instruction | None  # None: set before the loop
    kind: str  # "result" or "operands read"
    instructions: int  # between setter and waiter
    matrix: int  # matrix instructions among them
    previous_pass: bool  # the setter comes later in the loop, so it belongs to the previous pass


def waits_of(parts: Parts) -> Iterator[Wait]:
    """Every wait of the loop in order."""
    code = parts.loop
    for position, at in enumerate(code):
        group = _GROUP_WAIT.fullmatch(at.text)
        if group:
            yield _wait_for_group(code, position, group[1], int(group[2], 16))
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


_GROUP_WAIT = re.compile(r"WARPGROUP\.DEPBAR\.LE (gsb\d), (0x[0-9a-f]+)")


def _wait_for_group(code: Sequence[Instruction], position: int, name: str, left: int) -> Wait:
    """The wgmma that ends the group which a WARPGROUP.DEPBAR waits for: as many later groups may be unfinished."""
    for distance in range(1, len(code) + 1):
        before = code[position - distance]
        if before.operands.endswith(f", {name}") and before.base in WARP_GROUP:
            left -= 1
            if left < 0:
                between = [code[position - step] for step in range(1, distance)]
                return Wait(
                    code[position], name, before, "group", len(between), matrix_count(between), position < distance
                )
    return Wait(code[position], name, None, "", 0, 0, False)


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
        note = _pipe_note(bound, load)
        rows.append([load.pipe, *(_rounded(x) for x in (load.instructions, load.cycles, load.at_most)), note])
    rows.append(["stalls of one warp", _rounded(bound.issued), bound.issue_cycles, None, _fill_note(bound)])
    if bound.estimate is not None:
        fitted = ESTIMATES[bound.arch.rstrip("af")]
        error = f"mean error {fitted.mean_error} %, at most {fitted.largest_error} %, over {fitted.of}"
        lost = "bank conflicts not recorded" if bound.conflicts is None else "with the config's bank conflicts"
        note = f"tensor and issue without overlap, {lost}; {error}"
        rows.append(["estimate", None, _rounded(bound.estimate), None, note])
    return Table(("bound", "instructions", "cycles", "at most", "note"), rows)


def _pipe_note(bound: Bound, load: PipeLoad) -> str:
    notes = ["binds"] if load is bound.binding else []
    if load.cycles is None:
        notes = [_why_unknown(bound, load.pipe)]
    if bound.asynchronous and load.pipe not in ("tensor", "issue"):
        notes.append(f"overlaps {bound.asynchronous}")
        for opcode in _SLOWING.get(load.pipe, ()):
            found = bound.rates.with_companion(opcode) if bound.rates else None
            if found:
                own = f", {opcode} takes {found.own_cycles:.3g}" if found.own_cycles else ""
                notes.append(f"with {opcode} wgmma takes {found.cycles:.3g} cycles, not {found.alone:.3g}{own}")
    return "; ".join(notes)


def _why_unknown(bound: Bound, pipe: str) -> str:
    if pipe == OTHER:
        return "pipe not known"
    if pipe == "tensor" and bound.asynchronous == "wgmma":
        return f"rate of wgmma {NOT_MEASURED}"
    if pipe == "tensor" and bound.asynchronous:
        return "the shape of a tcgen05.mma is not a constant here"
    published = pipe == "tensor" and WIDTHS[bound.arch.rstrip("af")].matrix
    return "width not known" if published else f"width not known: nobody published that of {bound.arch}"


_SLOWING = {"fma": ("FFMA", "FADD"), "alu": ("FMNMX", "F2FP"), "xu": ("MUFU.EX2",)}  # what may slow wgmma down, by pipe


def _rounded(value: float | None) -> Cell:
    return None if value is None else int(value) if value == int(value) else round(value, 1)


def _fill_note(bound: Bound) -> str:
    if bound.binding is None:
        unknown = ", ".join(load.pipe for load in bound.pipes if load.cycles is None)
        if unknown == "tensor" and bound.asynchronous:
            why = {"wgmma": f"rate of wgmma is {NOT_MEASURED}", "tcgen05.mma": "shape of tcgen05.mma is not constant"}
            return f"which pipe binds is not known: the {why[bound.asynchronous]}"
        return f"which pipe binds is not known: the width of {unknown} is not"
    return f"{bound.warps_to_fill} warps per sub-partition to fill the {bound.binding.pipe} pipe"


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
        pipe, most = (binding.pipe, _rounded(binding.cycles)) if binding else (UNKNOWN, None)
        alone, fill = bound.issue_cycles, bound.warps_to_fill
        rows.append([name, bound.arch, pipe, most, _rounded(tensor), alone, fill, _rounded(bound.estimate)])
    columns = ("subject", "arch", "binding pipe", "cycles", "tensor", "one warp alone", "warps to fill", "estimate")
    return Table(columns, rows)


def add_bound_arguments(parser: argparse.ArgumentParser) -> None:
    add_subject_arguments(parser, many=True)
    add_loop_argument(parser)
    parser.add_argument("--scoreboard", action="store_true", help="list each wait of the loop and what it waits for")
    add_table_arguments(parser)


def run_bound(args: argparse.Namespace) -> int:
    pending = [start(subject) for subject in subjects_of(args)]
    parts = [parts_of(each.listing(), args.loop, each.subject) for each in pending]
    for each, one in zip(pending, parts, strict=True):
        print_note(each.subject.name, one)
    if args.scoreboard:
        if len(parts) > 1:
            raise AnalysisError("--scoreboard: accepts one version or file at a time")
        print_table(scoreboard_table(parts[0]), args)
    elif len(parts) > 1:
        bounds = [loop_bound(each) for each in parts]
        print_table(summary_table([each.subject.name for each in pending], bounds), args)
    else:
        print_table(bound_table(loop_bound(parts[0])), args)
    return DONE
