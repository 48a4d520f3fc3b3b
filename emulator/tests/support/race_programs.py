"""Small random programs whose threads share words, and whether some order of theirs is a race: an oracle apart.

program = made_up(seed)
program.racy           # by happens-before over every pair of accesses, from what the program says alone
made_up(seed, lenient=True).racy    # the same where a fence counts for threads that are ordered before or after it
ptxrun(..., *program.options(program.text()))
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from support.defects import SHARED
from support.emulation import entry

LANES, WORDS, FLAGS, MBARRIERS = 32, 6, 512, 768  # the latter two: where they begin in shared memory
Lane = tuple[int, int]  # warp, lane
Clock = dict[Lane, int]

START = """.reg .b32 %t, %w, %l, %c, %x, %s, %bit;
.reg .b64 %a, %f, %state; .reg .pred %q, %done;
ld.param.u64 %a, [words]; ld.param.u64 %f, [flags]; mov.u32 %t, %tid.x; mov.u32 %c, %ctaid.x;
shr.u32 %w, %t, 5;
mad.lo.u32 %w, %c, WARPS, %w;
and.b32 %l, %t, 31; shl.b32 %bit, 1, %l; mov.u32 %s, smem; setp.ne.u32 %q, %t, 0;
@%q bra made;
INIT
made:
bar.sync 0;
"""


def join(to: Clock, other: Clock) -> None:
    for lane, time in other.items():
        to[lane] = max(to.get(lane, 0), time)


@dataclass
class Program:
    """Warps, in CTAs of as many, each with a list of instructions; written in an order that is one of their runs."""

    ctas: int
    warps: int  # of a CTA
    shared: bool  # the words are in shared memory
    lenient: bool = False  # fences count for other threads of the CTA, too
    code: list[list[str]] = field(default_factory=list)
    knows: dict[Lane, Clock] = field(default_factory=dict)
    fenced: dict[Lane, Clock] = field(default_factory=dict)
    heard: dict[Lane, tuple[int, Clock]] = field(default_factory=dict)
    last: dict[int, list[tuple[Lane, int, bool]]] = field(default_factory=dict)
    racy: bool = False
    labels: int = 0

    def __post_init__(self) -> None:
        self.code = [[] for _ in range(self.ctas * self.warps)]
        self.knows = {(w, i): {(w, i): 1} for w in range(len(self.code)) for i in range(LANES)}

    # ---- the oracle ----

    def tick(self, lane: Lane) -> None:
        self.knows[lane][lane] += 1

    def before(self, lane: Lane, other: Lane, time: int) -> bool:
        return self.knows[lane].get(other, 0) >= time

    def touch(self, lane: Lane, word: int, writes: bool) -> None:
        for other, time, wrote in self.last.setdefault(word, []):
            self.racy |= (writes or wrote) and not self.before(lane, other, time)
        self.last[word].append((lane, self.knows[lane][lane], writes))

    def meet(self, lanes: list[Lane], told: list[Lane] | None = None) -> None:
        """Each of `lanes` learns what those and `told`, who only arrive, know."""
        everything: Clock = {}
        for lane in [*lanes, *(told or [])]:
            join(everything, self.knows[lane])
        for lane in lanes:
            join(self.knows[lane], everything)
        for lane in [*lanes, *(told or [])]:
            self.tick(lane)

    def helps(self, lane: Lane, other: Lane) -> bool:
        """True if a fence of the one may count for the other."""
        return lane == other or (self.lenient and lane[0] // self.warps == other[0] // self.warps)

    def fence(self, lane: Lane) -> None:
        before: Clock = {}
        while before != self.knows[lane]:
            before = dict(self.knows[lane])
            for other, (time, clock) in self.heard.items():
                if self.helps(lane, other) and self.before(lane, other, time):
                    join(self.knows[lane], clock)
        self.fenced[lane] = dict(self.knows[lane])
        self.tick(lane)

    def learn(self, lane: Lane, told: Clock, acquires: bool) -> None:
        """At once, or at the next fence."""
        if acquires:
            join(self.knows[lane], told)
            return
        heard = dict(self.heard.get(lane, (0, {}))[1])
        join(heard, told)
        self.heard[lane] = (self.knows[lane][lane], heard)

    def released(self, lane: Lane) -> Clock:
        """The clock that a relaxed store publishes: that released by the fences before it."""
        told: Clock = {}
        for other, clock in self.fenced.items():
            if self.helps(lane, other) and self.before(lane, other, clock[other]):
                join(told, clock)
        return told

    # ---- instructions ----

    def put(self, warp: int, text: str) -> None:
        self.code[warp].append(text)

    def label(self) -> str:
        self.labels += 1
        return f"again{self.labels}"

    def access(self, warp: int, lanes: list[int], words: list[int], writes: bool) -> None:
        """Lane lanes[i] touches word words[i]; of the warp, all lanes or one."""
        alone = len(lanes) == 1
        guard = "@%q " if alone else ""
        if alone:
            self.put(warp, f"setp.eq.u32 %q, %l, {lanes[0]};")
        space, base = ("shared", "%s") if self.shared else ("global", "%a")
        if alone or len(set(words)) == 1:
            at = f"[{base}+{4 * words[0]}]"
        else:  # words in a row
            self.put(warp, f"mad.lo.u32 %x, %l, 4, {4 * words[0]};")
            self.put(warp, "add.u32 %x, %x, %s;" if self.shared else "cvt.u64.u32 %state, %x;")
            if not self.shared:
                self.put(warp, "add.u64 %state, %state, %a;")
            at = "[%x]" if self.shared else "[%state]"
        self.put(warp, f"{guard}st.{space}.u32 {at}, %t;" if writes else f"{guard}ld.{space}.u32 %x, {at};")
        for lane, word in zip(lanes, words, strict=True):
            self.touch((warp, lane), word, writes)

    def sync_warp(self, warp: int, lanes: list[int]) -> None:
        mask = sum(1 << lane for lane in lanes)
        if len(lanes) < LANES:
            self.put(warp, f"and.b32 %x, %bit, {mask};\nsetp.ne.u32 %q, %x, 0;")
        self.put(warp, f"{'@%q ' if len(lanes) < LANES else ''}bar.warp.sync {mask};")
        self.meet([(warp, lane) for lane in lanes])

    def barrier(self, number: int, warps: list[int], arrive: list[int]) -> None:
        threads = LANES * (len(warps) + len(arrive))
        for warp in arrive:
            self.put(warp, f"bar.arrive {number}, {threads};")
        for warp in warps:
            self.put(warp, f"bar.sync {number}, {threads};")
        self.meet([(w, i) for w in warps for i in range(LANES)], [(w, i) for w in arrive for i in range(LANES)])

    def mbarrier(self, number: int, warp: int, lane: int, waits: list[int], how: str) -> None:
        """One lane arrives, for which others wait; how: which of the two is relaxed, with a fence or without."""
        at, order = f"[%s+{MBARRIERS + 8 * number}]", "relaxed" if how in ("fence", "relaxed") else "release"
        self.put(warp, f"setp.eq.u32 %q, %l, {lane};")
        if how == "fence":
            self.put(warp, "@%q fence.acq_rel.cta;")
            self.fence((warp, lane))
        self.put(warp, f"@%q mbarrier.arrive.{order}.cta.shared::cta.b64 %state, {at};")
        told = dict(self.knows[warp, lane]) if order == "release" else self.released((warp, lane))
        self.tick((warp, lane))
        look = "relaxed" if how in ("hear", "deaf") else "acquire"
        for other in waits:
            again = self.label()
            wait = f"mbarrier.try_wait.parity.{look}.cta.shared::cta.b64 %done, {at}, 0;"
            self.put(
                other, f"{again}:\n{wait}\n@!%done bra {again};" + ("\nfence.acq_rel.cta;" if how == "hear" else "")
            )
            for i in range(LANES):
                self.learn((other, i), told, look == "acquire")
            for i in range(LANES if how == "hear" else 0):
                self.fence((other, i))

    def flag(self, number: int, warp: int, lane: int, waits: list[int], how: str) -> None:
        """One lane sets a flag, for which others wait: how it is set and read, and with which fences."""
        release, acquire, tells, hears = (bit == "1" for bit in how)
        alike = all(other // self.warps == warp // self.warps for other in waits)
        scope, space = ("cta", "shared") if alike else ("gpu", "global")
        at = f"[%s+{FLAGS + 4 * number}]" if alike else f"[%f+{4 * number}]"
        fence = f"fence.acq_rel.{scope};"
        self.put(warp, f"setp.eq.u32 %q, %l, {lane};")
        if tells:
            self.put(warp, f"@%q {fence}")
            self.fence((warp, lane))
        told = dict(self.knows[warp, lane]) if release else self.released((warp, lane))
        self.put(warp, f"@%q st.{'release' if release else 'relaxed'}.{scope}.{space}.u32 {at}, 1;")
        self.tick((warp, lane))
        for other in waits:
            again, look = self.label(), "acquire" if acquire else "relaxed"
            self.put(other, f"{again}:\nld.{look}.{scope}.{space}.u32 %x, {at};\nsetp.eq.u32 %done, %x, 0;")
            self.put(other, f"@%done bra {again};" + (f"\n{fence}" if hears else ""))
            for i in range(LANES):
                self.learn((other, i), told, acquire)
            for i in range(LANES if hears else 0):
                self.fence((other, i))

    # ---- the whole ----

    def text(self) -> str:
        words = "\n".join(f"st.shared.u32 [%s+{4 * i}], 0;" for i in range(WORDS + LANES)) if self.shared else ""
        init = [words, *(f"st.shared.u32 [%s+{FLAGS + 4 * i}], 0;" for i in range(16))]
        init += [f"mbarrier.init.shared.b64 [%s+{MBARRIERS + 8 * i}], 1;" for i in range(16)]
        text = START.replace("WARPS", str(self.warps)).replace("INIT", "\n".join(init))
        for warp in range(len(self.code)):
            text += f"setp.eq.u32 %q, %w, {warp};\n@%q bra warp{warp};\n"
        for warp, lines in enumerate(self.code):
            text += f"bra.uni end;\nwarp{warp}:\n" + "\n".join(lines) + "\n"
        return entry(text + "end:", ".param .u64 words, .param .u64 flags", directives=SHARED)

    def options(self, path: Path) -> list[object]:
        path.write_text(self.text())
        return [path, "--grid", self.ctas, "--block", LANES * self.warps, "--arg", "buf:u32:64", "--arg", "buf:u32:64"]


def link(program: Program, draw: random.Random, numbers: Iterator[int], holder: Lane) -> Lane:
    """Something that may order what a lane did before another one, which is drawn: that one."""
    warp, lane = holder
    if draw.random() < 0.15:
        lane = draw.randrange(LANES)  # one that need not know of it
    warps = range(len(program.code))
    own = [other for other in warps if other // program.warps == warp // program.warps]
    number, next_lane = next(numbers), draw.randrange(LANES)
    what = draw.choice(["warp", "half", "barrier", "named", "arrive", "mbarrier", "flag", "flag", "flag"])
    if what == "warp" or len(own) == 1:
        program.sync_warp(warp, list(range(LANES)))
    elif what == "half":
        program.sync_warp(warp, draw.choice([list(range(16)), list(range(16, LANES)), sorted({lane, 5, next_lane})]))
    elif what == "flag":
        waits = [other for other in draw.sample(warps, 2) if other != warp]
        how = draw.choice(["1100", "0011", "0110", "1001", "0000", "1000", "0100", "0010", "0001"])
        program.flag(number, warp, lane, waits, how)
        return waits[0], next_lane
    else:
        others = [other for other in own if other != warp]
        waits = draw.sample(others, draw.randrange(1, len(others) + 1))
        if what == "barrier":
            program.barrier(0, own, [])
        elif what == "mbarrier":
            program.mbarrier(
                number, warp, lane, waits, draw.choice(["release", "release", "fence", "relaxed", "hear", "deaf"])
            )
        elif draw.random() < 0.2:
            program.barrier(number, waits, [])  # without the one that should come
        else:
            program.barrier(number, waits if what == "arrive" else [warp, *waits], [warp] if what == "arrive" else [])
        return waits[0], next_lane
    return warp, next_lane


def made_up(seed: int, lenient: bool = False) -> Program:
    """Chains: a lane touches a word, links lead to another lane, and that touches the word; others look on."""
    draw = random.Random(seed)
    ctas = draw.choice([1, 1, 2])
    program = Program(ctas, draw.choice([2, 3]) if ctas == 1 else 2, ctas == 1 and draw.random() < 0.7, lenient)
    numbers = iter(range(1, 16))
    for word in range(draw.choice([1, 1, 2])):
        holder = draw.randrange(len(program.code)), draw.randrange(LANES)
        writes = draw.random() < 0.6
        # of global memory the emulator keeps the reads of two threads alone
        everybody = program.shared and not writes and draw.random() < 0.3
        lanes = list(range(LANES)) if everybody else [holder[1]]
        program.access(holder[0], lanes, [word] * len(lanes), writes)
        for _ in range(draw.randrange(1, 4)):
            holder = link(program, draw, numbers, holder)
        if draw.random() < 0.3:
            program.access(holder[0], list(range(LANES)), list(range(WORDS, WORDS + LANES)), writes)
        program.access(holder[0], [holder[1]], [word], not writes or draw.random() < 0.3)
    return program
