"""One pass of the KV loop in the steady state: its cycles, what binds it, a time line, what a change would be worth.

iteration = iteration_of(kernel, machine)
print(time_line(iteration))
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from analysis.predict.launch import LONG, SHORT, Kernel, residents_of
from analysis.predict.machine import Machine
from analysis.predict.multiprocessor import OF_ALL, SCHEDULERS, Run, simulate
from analysis.predict.operations import Kind, Operation

COLUMNS = 64  # of a time line
SHOWN = LONG - SHORT  # the pass of it: a middle one
PIPES = ("tensor", "wgmma", "lsu", "fma", "alu", "xu", "uniform", "copies")
LEGEND = "M product, E exponential, S shared memory, C copy, + arithmetic, | barrier, . nothing issued"


@dataclass(frozen=True)
class Iteration:
    """A pass of all resident warps, in cycles of the multiprocessor."""

    cycles: float
    issued: float  # instructions of a scheduler
    busy: dict[str, float]  # share of the cycles, by pipe; "issue" is the scheduler's
    stalls: dict[str, float]  # warps that wait, for each issued instruction, as ncu prints them
    code: list[Operation]
    first: int  # index of the shown pass in the code, of its first operation
    length: int
    run: Run  # observed

    @property
    def busiest(self) -> str:
        return max(self.busy, key=lambda pipe: self.busy[pipe])

    @property
    def longest_stall(self) -> str:
        return max(self.stalls, key=lambda reason: self.stalls[reason])


def iteration_of(kernel: Kernel, machine: Machine) -> Iteration:
    """From the difference of a run with many passes and one with few."""
    residents = residents_of(kernel.config, kernel.ctas)
    few = simulate(kernel.path.repeated(SHORT, 1), machine, residents)
    code = kernel.path.repeated(LONG, 1)
    many = simulate(code, machine, residents, observed=True)
    passes = LONG - SHORT
    cycles, issued = (many.cycles - few.cycles) / passes, (many.issued - few.issued) / passes
    busy = {
        pipe: (many.busy[pipe] - few.busy[pipe]) / passes / (1 if pipe in OF_ALL else SCHEDULERS) / cycles
        for pipe in many.busy
    }
    busy["issue"] = issued / SCHEDULERS / cycles
    stalls = {why: (many.stalls[why] - few.stalls[why]) / passes / issued for why in many.stalls}
    length = len(kernel.path.loop)
    first = 1 + len(kernel.path.begin) + len(kernel.path.start) + SHOWN * length
    return Iteration(cycles, issued / SCHEDULERS, busy, stalls, code, first, length, many)


# ---- the time line ---------------------------------------------------------------------------------------------------


def window(iteration: Iteration) -> tuple[float, float]:
    """From the first operation of the shown pass of warp 0 to that of its next pass."""
    begins = {issue.at: issue.cycle for issue in iteration.run.issues if issue.warp == 0}
    return begins[iteration.first], begins[iteration.first + iteration.length]


def time_line(iteration: Iteration) -> str:
    """The pipes of a sub-partition in tenths of their time, then what each of its warps issues."""
    begin, end = window(iteration)
    width = (end - begin) / COLUMNS
    lines = [f"{'cycle':>8}  {f'{begin:.0f}':<{COLUMNS - 8}}{end:>8.0f}"]
    for pipe in PIPES:
        load = [0.0] * COLUMNS
        for work in iteration.run.work:
            if work.pipe == pipe and (work.scheduler == 0 or pipe in OF_ALL):
                for column in range(COLUMNS):
                    left = begin + column * width
                    load[column] += max(0.0, min(work.end, left + width) - max(work.begin, left))
        if any(load):
            lines.append(f"{pipe:>8}  " + "".join(_tenth(part / width) for part in load))
    return "\n".join([*lines, *_warps(iteration, begin, width)]) + "\n"


def _tenth(share: float) -> str:
    return "#" if share > 0.95 else "." if share < 0.05 else str(max(1, int(10 * share)))


def _warps(iteration: Iteration, begin: float, width: float) -> Iterator[str]:
    rows: dict[int, list[list[str]]] = {}
    for issue in iteration.run.issues:
        column = int((issue.cycle - begin) // width)
        if issue.warp % SCHEDULERS == 0 and 0 <= column < COLUMNS:
            row = rows.setdefault(issue.warp, [[] for _ in range(COLUMNS)])
            row[column].append(letter(iteration.code[issue.at]))
    for warp, row in sorted(rows.items()):
        yield f"{f'warp {warp}':>8}  " + "".join(min(each, key=_RARE.index) if each else "." for each in row)


_RARE = "|MCES+"  # the letter that represents a column: the first of these that it contains


def letter(operation: Operation) -> str:
    if operation.kind in (Kind.BARRIER, Kind.ARRIVE):
        return "|"
    if operation.pipe == "tensor":
        return "M"
    if operation.kind in (Kind.COPY, Kind.PHASE_WAIT, Kind.COPIES_WAIT):
        return "C"
    if operation.pipe == "xu":
        return "E"
    return "S" if operation.pipe == "lsu" else "+"


# ---- what a change would be worth ------------------------------------------------------------------------------------


def without(code: list[Operation], drops: Callable[[Operation], bool]) -> list[Operation]:
    """The code without some operations; what they wait for, the next one does."""
    found: list[Operation] = []
    waits: tuple[int, ...] = ()
    for each in code:
        if drops(each):
            waits += each.waits
        else:
            found.append(replace(each, waits=each.waits + waits) if waits else each)
            waits = ()
    return found


IDEAS: dict[str, Callable[[Operation], bool]] = {
    "without integer and logic instructions": lambda each: each.kind is Kind.PLAIN and each.pipe == "alu",
    "without fp32 instructions": lambda each: each.kind is Kind.PLAIN and each.pipe == "fma",
    "without exponentials": lambda each: each.kind is Kind.PLAIN and each.pipe == "xu",
    "without barriers": lambda each: each.kind in (Kind.BARRIER, Kind.ARRIVE),
    "without shared loads and shuffles": lambda each: each.kind is Kind.MEMORY,
}


def worth(kernel: Kernel, machine: Machine) -> dict[str, float]:
    """Cycles of a pass without something that it has, or with something faster, the least first."""
    residents = residents_of(kernel.config, kernel.ctas)

    def cycles(changed: Kernel, other: Machine) -> float:
        runs = [simulate(changed.path.repeated(passes, 1), other, residents).cycles for passes in (SHORT, LONG)]
        return (runs[1] - runs[0]) / (LONG - SHORT)

    found = {}
    for idea, drops in IDEAS.items():
        loop = without(kernel.path.loop, drops)
        if len(loop) < len(kernel.path.loop):
            found[idea] = cycles(replace(kernel, path=replace(kernel.path, loop=loop)), machine)
    at_once = machine.with_values(copy_latency=0.0, tensor_copy_latency=0.0, copy_bytes=1e9)
    found["with copies that are there at once"] = cycles(kernel, at_once)
    halved = [replace(each, cycles=each.cycles / 2) if each.pipe == "tensor" else each for each in kernel.path.loop]
    found["with tensor cores of twice the rate"] = cycles(
        replace(kernel, path=replace(kernel.path, loop=halved)), machine
    )
    return dict(sorted(found.items(), key=lambda item: item[1]))
