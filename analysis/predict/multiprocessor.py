"""One multiprocessor: four schedulers with their pipes and warps, and what they share.

    run = simulate(code, machine, Residents(ctas=2, warps=4))
    run.cycles, run.busy["tensor"], run.stalls["barrier"]

All warps execute the same list of operations. In each step the scheduler that can issue first does: an operation waits
for its stall count, its scoreboards, its pipe and, by its kind, for a queue, a barrier, a copy or a product. If several
warps are ready, the last one continues unless it yielded, then the first in order.
"""

from collections import Counter
from dataclasses import dataclass, field
from math import inf

from analysis.errors import AnalysisError
from analysis.machine_code.sass import NO_BARRIER
from analysis.predict.machine import Machine
from analysis.predict.operations import QUEUED, Kind, Operation

SCHEDULERS = 4
OF_ALL = frozenset({"lsu", "copies"})  # pipes of which an SM has one
PLAIN = Kind.PLAIN
DECODE = 4  # cycles from the issue of a memory instruction to its service
STALLS = ("issue", "pipe", "wait", "barrier", "queue", "data")  # kinds of reasons, as ncu can be summed up, too
_KINDS = {"not selected": "issue", "wait": "wait", "barrier": "barrier", "turn": "barrier", "memory queue": "queue"}
_DATA = ("scoreboard", "copies", "tensor copy", "wgmma", "wgmma queue")
SHARED_LINE = 512  # bytes that a warp copies with one cp.async of 16 bytes for each lane


@dataclass(frozen=True)
class Residents:
    """The CTAs that a multiprocessor holds, and how their warps are fed."""

    ctas: int
    warps: int  # of a CTA, that execute the code; a producer's are not simulated
    groups: int = 1  # warp groups that go their own ways; two may take turns
    stages: int = 0  # of the ring that tensor copies fill; 0: no tensor copies, or they are there at once
    stage_bytes: int = 0
    queries_ready: bool = False  # Q of the next tile is copied early
    copies_of_pass: int = 0  # TMA copies that the warps start and wait for in a pass; 0: others start them


@dataclass(slots=True, eq=False)
class Warp:
    cta: int
    group: int
    scheduler: "Scheduler"
    ready: float
    issued: float
    at: int = 0  # index into the code
    boards: list[float] = field(default_factory=lambda: [0.0] * 6)
    copied: float = 0.0
    commits: list[float] = field(default_factory=list)
    products: list[float] = field(default_factory=list)  # ends of groups
    begun: list[float] = field(default_factory=list)  # starts of wgmma
    product_end: float = 0.0
    blocked: bool = False  # at a barrier where others are missing
    defers: bool = False  # it goes on to the next operation that is not plain
    passed: float = 0.0  # when the last barrier released it
    seen: list[int] = field(default_factory=lambda: [0] * 3)  # blocks of K, V, Q waited for
    freed: list[int] = field(default_factory=lambda: [0] * 3)
    turns: int = 0
    started: int = 0  # TMA copies
    chance: tuple[float, str] = (0.0, "")  # when it can issue next, and what it waits for
    data: float = 0.0  # when the scoreboards that it waits for are free


@dataclass(slots=True, eq=False)
class Scheduler:
    number: int
    warps: list[Warp] = field(default_factory=list)
    now: float = 0.0
    last: Warp | None = None
    pipes: dict[str, float] = field(default_factory=lambda: Counter())  # type: ignore[arg-type, return-value]
    queue: list[float] = field(default_factory=list)  # starts of service
    tensor: float = 0.0  # end of the wgmma under way
    choice: tuple[float, Warp | None] | None = None  # the next issue, where nothing has changed since


@dataclass(frozen=True)
class Issue:
    """An operation that a warp issued, for a time line; `at` is its index in the code."""

    cycle: float
    warp: int
    at: int


@dataclass(frozen=True)
class Work:
    """A pipe that is busy, for a time line."""

    pipe: str
    scheduler: int
    begin: float
    end: float


@dataclass
class Run:
    """The result of a simulation. `stalls` are warp cycles by reason, `busy` cycles by pipe, of all sub-partitions."""

    cycles: float = 0.0
    issued: int = 0
    stalls: Counter[str] = field(default_factory=Counter)
    busy: Counter[str] = field(default_factory=Counter)
    issues: list[Issue] = field(default_factory=list)
    work: list[Work] = field(default_factory=list)


def stall_kind(reason: str) -> str:
    """One of STALLS; a reason that is none of the others is a pipe."""
    return "data" if reason in _DATA else _KINDS.get(reason, "pipe")


class Multiprocessor:
    """The state of a simulation; simulate() drives it."""

    def __init__(self, code: list[Operation], machine: Machine, residents: Residents, observed: bool) -> None:
        self.code, self.machine, self.residents, self.observed = code, machine, residents, observed
        self.queue_depth, self.wgmma_queue = int(machine.queue), int(machine.wgmma_queue)
        self.schedulers = [Scheduler(number) for number in range(SCHEDULERS)]
        self.warps = [self._warp(cta, n) for cta in range(residents.ctas) for n in range(residents.warps)]
        self.run = Run()
        self.taken = self.shared = 0.0  # ends of service: memory instructions from the queues, shared memory
        self.channel = self.barriers = 0.0  # the same of copies from L2, arrivals at barriers
        self.met: dict[tuple[int, int | None], list[Warp]] = {}
        first_turn = residents.warps // residents.groups
        self.turns = {(cta, group): first_turn * (group == 0) for cta in range(residents.ctas) for group in (0, 1)}
        self.turn_size = first_turn
        self.born: Counter[int] = Counter()
        self.arrived: dict[tuple[int, int], list[float]] = {}  # CTA and block to when its copies are there
        self.frees: dict[tuple[int, int, int], list[float]] = {}
        self.completed: dict[tuple[int, int], float] = {(cta, 0): 0.0 for cta in range(residents.ctas)}  # CTA, copies

    def _warp(self, cta: int, number: int) -> Warp:
        scheduler = self.schedulers[number % SCHEDULERS]
        group = number // 4 if self.residents.groups > 1 else 0
        start = self.machine.stagger * (number + cta * self.residents.warps)
        warp = Warp(cta, group, scheduler, start, start)
        scheduler.warps.append(warp)
        return warp

    # ---- when a warp can issue ----

    def earliest(self, warp: Warp) -> tuple[float, str]:
        """The first cycle in which a warp can issue its next operation, and what it waits for."""
        operation = self.code[warp.at]
        time, reason = warp.ready, "wait"
        if operation.kind is not PLAIN or not warp.defers:
            if warp.blocked:
                return inf, "barrier"
            if warp.passed > time:
                time, reason = warp.passed, "barrier"
        warp.data = 0.0
        for board in operation.waits:
            if warp.boards[board] > time:
                warp.data = time = warp.boards[board]
                reason = "scoreboard"
        if operation.kind is PLAIN:
            free = warp.scheduler.pipes[operation.pipe]
            return (free, operation.pipe) if free > time else (time, reason)
        until, why = self._until(warp, operation)
        return (until, why) if until > time else (time, reason)

    def _until(self, warp: Warp, operation: Operation) -> tuple[float, str]:
        """The conditions, besides its scoreboards, for which a special operation waits."""
        kind = operation.kind
        if kind in QUEUED:
            queue = warp.scheduler.queue
            waiting = queue[-self.queue_depth] if len(queue) >= self.queue_depth else 0.0
            if kind is Kind.PHASE_WAIT and self.residents.copies_of_pass:
                return max((self.completed[warp.cta, warp.started], "tensor copy"), (waiting, "memory queue"))
            if kind is Kind.PHASE_WAIT and self.residents.stages and operation.argument < 2:
                return max((self._arrival(warp, operation.argument), "tensor copy"), (waiting, "memory queue"))
            return waiting, "memory queue"
        if kind is Kind.COPIES_WAIT:
            group = len(warp.commits) - operation.argument
            return (warp.commits[group - 1] if group > 0 else 0.0), "copies"
        if kind is Kind.WGMMA_WAIT:
            group = len(warp.products) - operation.argument
            return (warp.products[group - 1] + self.machine.wgmma_end if group > 0 else 0.0), "wgmma"
        if kind is Kind.WGMMA and len(warp.begun) >= self.wgmma_queue:
            return warp.begun[-self.wgmma_queue], "wgmma queue"
        if kind is Kind.BARRIER and operation.turn and self.residents.groups == 2:
            due = self.turns[warp.cta, warp.group] < self.turn_size * (warp.turns + 1)
            return (inf if due else 0.0), "turn"
        return 0.0, "wait"

    def _arrival(self, warp: Warp, block: int) -> float:
        """When the block that a warp waits for is there: a copy waits for a stage, the channel and the latency."""
        done = self.arrived.setdefault((warp.cta, block), [])
        while len(done) <= warp.seen[block]:
            number, released = len(done), 0.0
            if number >= self.residents.stages:
                freed = self.frees.get((warp.cta, block, number - self.residents.stages), ())
                if len(freed) < (1 if self.residents.groups == 1 else self.residents.warps):
                    return inf
                released = max(freed)
            start = max(released, self.channel, self.born[warp.cta])
            self.channel = start + self.residents.stage_bytes / self.machine.copy_bytes
            done.append(self.channel + self.machine.tensor_copy_latency)
        return done[warp.seen[block]]

    def choose(self, scheduler: Scheduler) -> tuple[float, Warp | None]:
        """The next issue of a scheduler."""
        if scheduler.choice is None:
            best, at, last, now = None, inf, scheduler.last, scheduler.now
            for warp in scheduler.warps:
                warp.chance = self.earliest(warp)
                time = warp.chance[0]
                if time < now:
                    time = now
                if time < at or (time == at and time < inf and warp is last):
                    best, at = warp, time
            scheduler.choice = at, best
        return scheduler.choice

    # ---- what an issue does ----

    def issue(self, warp: Warp, time: float) -> None:
        operation, scheduler = self.code[warp.at], warp.scheduler
        self._count(warp, operation, time)
        warp.issued = time
        scheduler.choice = None
        scheduler.last = None if operation.yields else warp
        scheduler.now = time + operation.port
        if operation.during_wgmma and scheduler.tensor > time:
            scheduler.now += self.machine.wgmma_port
        warp.ready = max(warp.ready, time + operation.stall)
        done = _ISSUE[operation.kind](self, warp, operation, time)
        if operation.write != NO_BARRIER and done > warp.boards[operation.write]:
            warp.boards[operation.write] = done
        warp.at += 1
        if warp.at == len(self.code):
            scheduler.warps.remove(warp)
            self.run.cycles = max(self.run.cycles, time)

    def _count(self, warp: Warp, operation: Operation, time: float) -> None:
        ready, reason = warp.chance
        stalls = self.run.stalls
        stalls["wait"] += warp.ready - warp.issued - 1  # type: ignore[assignment]
        known = max(warp.ready, min(warp.data, ready))
        stalls["scoreboard"] += known - warp.ready  # type: ignore[assignment]
        stalls[reason] += ready - known  # type: ignore[assignment]
        stalls["not selected"] += time - max(ready, warp.ready)  # type: ignore[assignment]
        self.run.issued += 1
        if self.observed:
            self.run.issues.append(Issue(time, self.warps.index(warp), warp.at))

    def _busy(self, pipe: str, scheduler: Scheduler, begin: float, cycles: float) -> None:
        self.run.busy[pipe] += cycles  # type: ignore[assignment]
        if self.observed:
            self.run.work.append(Work(pipe, scheduler.number, begin, begin + cycles))

    def changed(self) -> None:
        """Something that warps of other schedulers may wait for has changed."""
        for scheduler in self.schedulers:
            scheduler.choice = None

    def plain(self, warp: Warp, operation: Operation, time: float) -> float:
        cycles = operation.during_wgmma if operation.during_wgmma and warp.scheduler.tensor > time else operation.cycles
        warp.scheduler.pipes[operation.pipe] = time + cycles
        self._busy(operation.pipe, warp.scheduler, time, cycles)
        if operation.instruction is not None and operation.instruction.base == "HMMA":
            warp.scheduler.now = time + self.machine.hmma_dispatch
        return time + operation.cycles + operation.latency

    def memory(self, warp: Warp, operation: Operation, time: float) -> float:
        taken = max(time + DECODE, self.taken)
        self.taken = taken + self.machine.wavefront * operation.ideal
        warp.scheduler.queue.append(taken)
        start = max(taken, self.shared)
        self.shared = start + self.machine.wavefront * operation.cycles
        self._busy("lsu", warp.scheduler, start, self.machine.wavefront * operation.cycles)
        if operation.read != NO_BARRIER:
            warp.boards[operation.read] = max(warp.boards[operation.read], start + self.machine.operands_read)
        if operation.kind is Kind.MEMORY:
            return self.shared + operation.latency
        self.channel = max(start, self.channel) + SHARED_LINE / self.machine.copy_bytes
        warp.copied = max(warp.copied, self.channel + self.machine.copy_latency)
        return time + operation.latency

    def commit(self, warp: Warp, operation: Operation, time: float) -> float:
        del operation
        warp.commits.append(warp.copied)
        return time + 2

    def no_more(self, warp: Warp, operation: Operation, time: float) -> float:
        del self, warp
        return time + operation.latency

    def wgmma(self, warp: Warp, operation: Operation, time: float) -> float:
        start = max(time, warp.scheduler.tensor, warp.product_end)
        warp.scheduler.tensor = warp.product_end = start + operation.cycles
        warp.begun.append(start)
        self._busy("wgmma", warp.scheduler, start, operation.cycles)
        if operation.argument:
            warp.products.append(warp.product_end)
        return time + operation.latency

    def phase_wait(self, warp: Warp, operation: Operation, time: float) -> float:
        warp.seen[operation.argument] += 1
        late = operation.argument == 2 and self.residents.stages and not self.residents.queries_ready
        return max(time + operation.latency, time + self.machine.tensor_copy_latency if late else 0.0)

    def tensor_copy(self, warp: Warp, operation: Operation, time: float) -> float:
        """The first warp of a CTA that arrives here starts the copy for all."""
        warp.started += 1
        if (warp.cta, warp.started) not in self.completed:
            begin, cycles = max(time, self.channel), operation.cycles / self.machine.shared_copy_bytes
            self._busy("copies", warp.scheduler, begin, cycles)
            self.channel = begin + cycles
            self.completed[warp.cta, warp.started] = self.channel + self.machine.tensor_copy_latency
        return time + operation.latency

    def release(self, warp: Warp, operation: Operation, time: float) -> float:
        block = operation.argument
        self.frees.setdefault((warp.cta, block, warp.freed[block]), []).append(time + self.machine.latency("SYNCS"))
        warp.freed[block] += 1
        self.changed()
        return time + operation.latency

    def arrive(self, warp: Warp, operation: Operation, time: float) -> float:
        if self.residents.groups == 2:
            self.turns[warp.cta, 1 - warp.group] += 1
            for other in self.warps:
                waits = other.at < len(self.code) and self.code[other.at].kind is Kind.BARRIER
                if waits and other.cta == warp.cta and other.group != warp.group:
                    other.ready = max(other.ready, time + self.machine.barrier)
            self.changed()
        return time + operation.latency

    def barrier(self, warp: Warp, operation: Operation, time: float) -> float:
        done = time + operation.latency
        if operation.turn and self.residents.groups == 2:
            warp.turns += 1
            return done
        here = self.met.setdefault((warp.cta, warp.group if operation.of_group else None), [])
        here.append(warp)
        warp.blocked, warp.defers = True, operation.defers
        self.barriers = max(self.barriers, time) + self.machine.barrier_warp
        if len(here) == self.residents.warps // (self.residents.groups if operation.of_group else 1):
            for one in here:
                one.blocked, one.passed = False, self.barriers + self.machine.barrier
            here.clear()
            self.changed()
        return done

    def tile(self, warp: Warp, operation: Operation, time: float) -> float:
        """Another CTA, or the next tile of this one: no stage is held any longer."""
        self.born[warp.cta] = time  # type: ignore[assignment]
        for block in range(2):
            for number in range(warp.freed[block], warp.seen[block]):
                self.frees.setdefault((warp.cta, block, number), []).append(time)
            warp.freed[block] = max(warp.freed[block], warp.seen[block])
        self.changed()
        return time + operation.latency


_ISSUE = {
    Kind.PLAIN: Multiprocessor.plain,
    Kind.MEMORY: Multiprocessor.memory,
    Kind.COPY: Multiprocessor.memory,
    Kind.COMMIT: Multiprocessor.commit,
    Kind.COPIES_WAIT: Multiprocessor.no_more,
    Kind.BARRIER: Multiprocessor.barrier,
    Kind.ARRIVE: Multiprocessor.arrive,
    Kind.WGMMA: Multiprocessor.wgmma,
    Kind.WGMMA_WAIT: Multiprocessor.no_more,
    Kind.PHASE_WAIT: Multiprocessor.phase_wait,
    Kind.RELEASE: Multiprocessor.release,
    Kind.TILE: Multiprocessor.tile,
    Kind.TENSOR_COPY: Multiprocessor.tensor_copy,
}


def simulate(code: list[Operation], machine: Machine, residents: Residents, observed: bool = False) -> Run:
    """All warps execute `code` to its end. AnalysisError where they wait for each other for ever."""
    state = Multiprocessor(code, machine, residents, observed)
    active = [scheduler for scheduler in state.schedulers if scheduler.warps]
    while active:
        time, warp = inf, None
        for scheduler in active:
            at, first = scheduler.choice or state.choose(scheduler)
            if at < time:
                time, warp = at, first
        if warp is None:
            stuck = {_text(code[one.at]) for scheduler in active for one in scheduler.warps}
            raise AnalysisError(f"the model has warps that wait for each other: at {'; '.join(sorted(stuck))}")
        state.issue(warp, time)
        if not warp.scheduler.warps:
            active.remove(warp.scheduler)
    return state.run


def _text(operation: Operation) -> str:
    return operation.instruction.text if operation.instruction else operation.kind.name
