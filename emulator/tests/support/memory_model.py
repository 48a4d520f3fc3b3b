"""Values that threads may read from each other by the axioms of PTX.

    program = parse(["W x 1; R y", "W y 1; R x"])
    allowed(program)  # {(0, 0), (0, 1), (1, 0), (1, 1)}

A thread is a list of steps: `W` stores and `R` loads, `X` exchanges, `F` is fence.acq_rel and `F.sc` fence.sc; `.rel`,
`.acq`, `.ar` (both) and `.vol` say what else they are, `.nc` and `.const` that a load has a proxy of its own, `.cta`
and `.sys` that the scope is not .gpu. Each thread is a CTA, unless the program names others. Words begin as 0. An
outcome is what was read.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations, product


@dataclass(frozen=True)
class Step:
    thread: int
    kind: str  # W, R, X or F
    order: str = ""  # rel, acq, ar, vol, sc, nc or const
    word: str = ""
    value: int = 0
    scope: str = "gpu"
    cta: int = 0

    @property
    def reads(self) -> bool:
        return self.kind in "RX"

    @property
    def is_generic(self) -> bool:
        """False: no fence of PTX orders it after generic stores."""
        return self.order not in ("nc", "const")

    @property
    def writes(self) -> bool:
        return self.kind in "WX"


Program = list[list[Step]]
Outcome = tuple[int, ...]  # by thread and step
Event = tuple[int, int]  # thread and index; the first write of word n is (-1, n)
Pairs = frozenset[tuple[Event, Event]]


def parse(threads: list[str], ctas: list[int] | None = None) -> Program:
    def step(thread: int, text: str) -> Step:
        what, word, value = (*text.split(), "", "0")[:3]
        kind, *words = what.split(".")
        scope = words.pop() if words and words[-1] in ("cta", "sys") else "gpu"
        cta = ctas[thread] if ctas else thread
        return Step(thread, kind, "".join(words), word, int(value or 0), scope, cta)

    return [[step(n, text) for text in thread.split("; ")] for n, thread in enumerate(threads)]


def words_of(program: Program) -> list[str]:
    return sorted({step.word for thread in program for step in thread if step.word})


def closure(pairs: Pairs) -> Pairs:
    found = set(pairs)
    while True:
        more = {(a, d) for a, b in found for c, d in found if b == c} - found
        if not more:
            return frozenset(found)
        found |= more


class Execution:
    """An execution of a program: the write that each read returns, the order of each word's writes and of fence.sc."""

    def __init__(
        self, program: Program, sources: dict[Event, Event], coherence: list[list[Event]], fences: list[Event]
    ) -> None:
        self.steps = {(n, i): step for n, thread in enumerate(program) for i, step in enumerate(thread)}
        self.sources = sources
        self.coherence_index = {write: i for order in coherence for i, write in enumerate(order)}
        self.program_order = frozenset(
            ((n, i), (n, k)) for n, thread in enumerate(program) for k in range(len(thread)) for i in range(k)
        )
        self.fences = frozenset(
            (a, b) for i, a in enumerate(fences) for b in fences[i + 1 :] if self.morally_strong(a, b)
        )
        self.words = words_of(program)

    def word(self, event: Event) -> str:
        return self.words[event[1]] if event[0] < 0 else self.steps[event].word

    def morally_strong(self, a: Event, b: Event) -> bool:
        """True if each of two steps has a scope that includes the thread of the other, and the generic proxy."""
        if a[0] < 0 or b[0] < 0:
            return True
        one, other = self.steps[a], self.steps[b]
        return one.is_generic and other.is_generic and (one.cta == other.cta or "cta" not in (one.scope, other.scope))

    def observed(self) -> Pairs:
        """Writes and the reads that observe them, perhaps through atomics that read them and write."""
        direct = {(write, read) for read, write in self.sources.items() if self.morally_strong(write, read)}
        through = frozenset((a, b) for a, b in direct if self.steps[b].writes)
        return frozenset(direct | {(a, d) for a, b in closure(through) for c, d in direct if b == c})

    def releases(self, write: Event) -> set[Event]:
        """Starts of release patterns that end with a write."""
        found = {write} if self.steps[write].order in ("rel", "ar") else set()
        for a, b in self.program_order:
            step = self.steps[a]
            if b == write and (step.kind == "F" or (step.order in ("rel", "ar") and step.word == self.word(write))):
                found.add(a)
        return found

    def acquires(self, read: Event) -> set[Event]:
        """Ends of acquire patterns that begin with a read."""
        found = {read} if self.steps[read].order in ("acq", "ar") else set()
        return found | {b for a, b in self.program_order if a == read and self.steps[b].kind == "F"}

    def causality(self) -> Pairs:
        met = {
            (a, b)
            for write, read in self.observed()
            if write[0] >= 0
            for a in self.releases(write)
            for b in self.acquires(read)
            if a[0] != b[0] and self.morally_strong(a, b)
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
        strong = {pair for pair in self.communication() if self.morally_strong(*pair)}
        if any(a == b for a, b in closure(frozenset(same_address | strong))):
            return False  # sequential consistency of each word
        for event, step in self.steps.items():  # atomicity
            if step.kind == "X" and self.coherence_index[self.sources[event]] != self.coherence_index[event] - 1:
                return False
        for a, b in causality:
            if a[0] >= 0 and not self.steps[b].is_generic:
                continue  # a store by another proxy than this load's
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


def outcomes(program: Program) -> list[Outcome]:
    """All that could be, for what is stored where."""
    steps = [step for thread in program for step in thread]
    values = {step.word: sorted({0, *(s.value for s in steps if s.writes and s.word == step.word)}) for step in steps}
    return [*product(*(values[step.word] for step in steps if step.reads))]
