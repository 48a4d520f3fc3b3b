"""Values that threads may read from each other: by the axioms of PTX, and by delayed accesses.

    program = parse(["W x 1; R y", "W y 1; R x"])
    allowed(program)  # {(0, 0), (0, 1), (1, 0), (1, 1)}: what PTX allows
    late(program)     # what --orders all runs: here the same

A thread is a list of steps: `W` stores and `R` loads, `X` exchanges, `F` is fence.acq_rel and `F.sc` fence.sc; `.rel`,
`.acq` and `.vol` say what else they are. All are of scope .gpu, and words begin as 0. An outcome is what was read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations, product


@dataclass(frozen=True)
class Step:
    thread: int
    kind: str  # W, R, X or F
    order: str = ""  # rel, acq, vol or sc
    word: str = ""
    value: int = 0

    @property
    def reads(self) -> bool:
        return self.kind in "RX"

    @property
    def writes(self) -> bool:
        return self.kind in "WX"


Program = list[list[Step]]
Outcome = tuple[int, ...]  # by thread and step
Event = tuple[int, int]  # thread and index; the first write of word n is (-1, n)
Pairs = frozenset[tuple[Event, Event]]


def parse(threads: list[str]) -> Program:
    def step(thread: int, text: str) -> Step:
        what, word, value = (*text.split(), "", "0")[:3]
        kind, _, order = what.partition(".")
        return Step(thread, kind, order, word, int(value or 0))

    return [[step(n, text) for text in thread.split("; ")] for n, thread in enumerate(threads)]


def words_of(program: Program) -> list[str]:
    return sorted({step.word for thread in program for step in thread if step.word})


# ---- the axioms: PTX ISA, "Memory Consistency Model" -----------------------------------------------------------------


def closure(pairs: Pairs) -> Pairs:
    found = set(pairs)
    while True:
        more = {(a, d) for a, b in found for c, d in found if b == c} - found
        if not more:
            return frozenset(found)
        found |= more


class Execution:
    """An execution of a program: the write that each read reads from, the order of the writes of each word, and of all
    fence.sc."""

    def __init__(
        self, program: Program, sources: dict[Event, Event], coherence: list[list[Event]], fences: list[Event]
    ) -> None:
        self.steps = {(n, i): step for n, thread in enumerate(program) for i, step in enumerate(thread)}
        self.sources = sources
        self.coherence_index = {write: i for order in coherence for i, write in enumerate(order)}
        self.program_order = frozenset(
            ((n, i), (n, k)) for n, thread in enumerate(program) for k in range(len(thread)) for i in range(k)
        )
        self.fences = frozenset((a, b) for i, a in enumerate(fences) for b in fences[i + 1 :])
        self.words = words_of(program)

    def word(self, event: Event) -> str:
        return self.words[event[1]] if event[0] < 0 else self.steps[event].word

    def observed(self) -> Pairs:
        """Writes and the reads that observe them, perhaps through atomics that read them and write."""
        direct = {(write, read) for read, write in self.sources.items()}
        through = frozenset((a, b) for a, b in direct if self.steps[b].writes)
        return frozenset(direct | {(a, d) for a, b in closure(through) for c, d in direct if b == c})

    def releases(self, write: Event) -> set[Event]:
        """Starts of release patterns that end with a write."""
        found = {write} if self.steps[write].order == "rel" else set()
        for a, b in self.program_order:
            step = self.steps[a]
            if b == write and (step.kind == "F" or (step.order == "rel" and step.word == self.word(write))):
                found.add(a)
        return found

    def acquires(self, read: Event) -> set[Event]:
        """Ends of acquire patterns that begin with a read."""
        found = {read} if self.steps[read].order == "acq" else set()
        return found | {b for a, b in self.program_order if a == read and self.steps[b].kind == "F"}

    def causality(self) -> Pairs:
        met = {
            (a, b)
            for write, read in self.observed()
            if write[0] >= 0
            for a in self.releases(write)
            for b in self.acquires(read)
            if a[0] != b[0]
        }
        base = closure(frozenset(self.program_order | met | self.fences))
        return frozenset(base | {(a, d) for a, b in self.observed() for c, d in base if b == c})

    def same_word(self, a: Event, b: Event) -> bool:
        return bool(self.word(a)) and self.word(a) == self.word(b)

    def before_in_coherence(self, write: Event, other: Event) -> bool:
        return self.same_word(write, other) and self.coherence_index[write] < self.coherence_index[other]

    def communication(self) -> Pairs:
        writes = [*self.coherence_index]
        then = {(a, b) for a in writes for b in writes if self.before_in_coherence(a, b)}
        overtaken = {
            (read, b)
            for read, a in self.sources.items()
            for b in writes
            if self.before_in_coherence(a, b) and b != read
        }
        return frozenset(then | overtaken | {(write, read) for read, write in self.sources.items()})

    def is_allowed(self) -> bool:
        causality = self.causality()
        if any(a == b for a, b in causality) or any((b, a) in causality for a, b in self.fences):
            return False
        same_address = frozenset((a, b) for a, b in self.program_order if self.same_word(a, b))
        if any(a == b for a, b in closure(frozenset(same_address | self.communication()))):
            return False  # sequential consistency of each word
        for event, step in self.steps.items():  # atomicity
            if step.kind == "X" and self.coherence_index[self.sources[event]] != self.coherence_index[event] - 1:
                return False
        for a, b in causality:
            if a in self.coherence_index and b in self.coherence_index and self.before_in_coherence(b, a):
                return False  # coherence
            if a in self.sources and self.sources[a] == b:
                return False  # causality
            if a in self.coherence_index and b in self.sources and self.before_in_coherence(self.sources[b], a):
                return False
        return True


def executions(program: Program) -> Iterator[Execution]:
    words = words_of(program)
    steps = {(n, i): step for n, thread in enumerate(program) for i, step in enumerate(thread)}
    writes = {word: [e for e, s in steps.items() if s.writes and s.word == word] for word in words}
    reads = [e for e, s in steps.items() if s.reads]
    fences = [e for e, s in steps.items() if s.order == "sc"]
    first = {word: (-1, n) for n, word in enumerate(words)}
    sources = [[first[steps[e].word], *(w for w in writes[steps[e].word] if w != e)] for e in reads]
    orders = [[[first[word], *order] for order in permutations(writes[word])] for word in words]
    for chosen in product(*sources):
        for coherence in product(*orders):
            for order in permutations(fences):
                yield Execution(program, dict(zip(reads, chosen, strict=True)), [*coherence], [*order])


def allowed(program: Program) -> set[Outcome]:
    found: set[Outcome] = set()
    for execution in executions(program):
        read = (execution.sources[e] for e, step in execution.steps.items() if step.reads)
        outcome = tuple(0 if write[0] < 0 else execution.steps[write].value for write in read)
        if outcome not in found and execution.is_allowed():
            found.add(outcome)
    return found


# ---- accesses that come late -----------------------------------------------------------------------------------------


def may_come_late(thread: list[Step], i: int) -> bool:
    """A store; or a load that orders nothing, if another access follows at once."""
    step = thread[i]
    followed = thread[i + 1].kind in "RWX" if i + 1 < len(thread) else False
    return step.kind == "W" or (step.kind == "R" and step.order != "acq" and followed)


def must_wait(thread: list[Step], earlier: int, later: int) -> bool:
    """True if an access follows an earlier, delayed one; for a load, only if that is a load."""
    first, second = thread[earlier], thread[later]
    if first.word == second.word:
        return first.kind == "R" or second.kind != "R"
    if second.kind == "R":
        return False
    if second.kind == "F":
        return first.kind == "R" or second.order == "sc"
    fenced = any(step.kind == "F" for step in thread[earlier:later])
    return fenced or second.order == "rel"


@dataclass(frozen=True)
class State:
    positions: tuple[int, ...]
    waiting: frozenset[Event]
    memory: tuple[int, ...]
    read: frozenset[tuple[Event, int]]


def next_states(program: Program, words: list[str], now: State) -> Iterator[State]:
    """A delayed access comes, or a thread does its next step."""

    def come(n: int, i: int, positions: tuple[int, ...], waiting: frozenset[Event]) -> State:
        step = program[n][i]
        at = words.index(step.word) if step.word else 0
        own = [k for m, k in now.waiting if m == n and k < i and program[n][k].kind == "W"]
        stored = [k for k in sorted(own) if program[n][k].word == step.word]
        value = program[n][stored[-1]].value if stored else (*now.memory, 0)[at]
        read = {((n, i), value)} if step.reads else set()
        memory = tuple(step.value if k == at and step.writes else there for k, there in enumerate(now.memory))
        return State(positions, waiting, memory, now.read | read)

    for n, i in now.waiting:
        if not any(k == n and j < i and must_wait(program[n], j, i) for k, j in now.waiting):
            yield come(n, i, now.positions, now.waiting - {(n, i)})
    for n, thread in enumerate(program):
        i = now.positions[n]
        own = sorted(k for m, k in now.waiting if m == n)
        positions = tuple(index + (k == n) for k, index in enumerate(now.positions))
        if i == len(thread):
            continue
        blocked = any(must_wait(thread, k, i) for k in own)
        if thread[i].kind == "W" or (may_come_late(thread, i) and not blocked):
            yield State(positions, now.waiting | {(n, i)}, now.memory, now.read)
        elif not blocked:
            yield come(n, i, positions, now.waiting)


def late(program: Program) -> set[Outcome]:
    """Values that threads may read if stores and loads, except acquire loads, take effect at any time that PTX
    allows."""
    words = words_of(program)
    first = State(tuple(0 for _ in program), frozenset(), tuple(0 for _ in words), frozenset())
    seen, left, found = {first}, [first], set()
    while left:
        now = left.pop()
        more = {*next_states(program, words, now)} - seen
        if all(index == len(thread) for index, thread in zip(now.positions, program, strict=True)) and not now.waiting:
            found.add(tuple(value for _, value in sorted(now.read)))
        seen |= more
        left += more
    return found


def outcomes(program: Program) -> list[Outcome]:
    """All that could be, for what is stored where."""
    steps = [step for thread in program for step in thread]
    values = {step.word: sorted({0, *(s.value for s in steps if s.writes and s.word == step.word)}) for step in steps}
    return [*product(*(values[step.word] for step in steps if step.reads))]
