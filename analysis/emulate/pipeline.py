"""The block that each actor works on, by step: regs/pipeline.csv, committed for a few Hopper versions.

    python3 -m analysis pipeline v28 v29 --write

The emulator's trace of one CTA says what each warp does, in its order, and what it waits for. From that every piece of
work gets a step: a copy, a product of a warpgroup, the search for maxima, the exponentials and the storing of a block
each take one step, and begin in the first step in which all that they wait for is done. So steps show what has to
wait for what. They are no times: pieces of work that take different times on a GPU all take one step, and both
warpgroups' products may share a step, although they share the tensor cores.
"""

import argparse
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import astuple, dataclass, field
from pathlib import Path

from analysis.errors import DIFFERENT, DONE, AnalysisError
from analysis.files import read_text, root, write_if_changed
from analysis.ladder.headers import load
from analysis.measure import executables
from analysis.table import Table, add_table_arguments, print_table, read_columns

COLUMNS = ("version", "who", "what", "block", "Q_block", "step")
SEQ, HEADS = 512, 8  # the emulator's 16 multiprocessors then have two Q blocks of 128 rows each
TIMEOUT = 600.0
WARPS = 4  # of a warpgroup
SEVERAL = 8  # one or two max or ex2 do not make a search for the maxima or the exponentials of a block
COPIES = "copies"


@dataclass(frozen=True, order=True)
class Work:
    """One piece of work. `who` is "copies", "products N" or "threads N" of warpgroup N; `block` counts for the CTA."""

    version: str
    who: str
    what: str  # Q, K, V, O of copies; QK, PV of products; max, exp, store of threads
    block: int
    Q_block: int
    step: int


# ---- what the trace says: the events of each warp --------------------------------------------------------------------


@dataclass(frozen=True)
class Event:
    """An event of a warp: `location` is a barrier, tensor or count, `number` a phase, a count or a number of lanes."""

    kind: str
    location: int = 0
    number: int = 0


_OP = re.compile(
    r"cta \d+ warp (?P<warp>\d+)  (?:\S+:\d+  )?\[\d+\]  (?:@!?%\w+ )?(?P<op>[a-z]\S*?)(?: (?P<rest>.*?))?;"
    r"(?:   lanes 0x(?P<lanes>[0-9a-f]{8}))?$"
)
_VALUE = re.compile(r"        (?P<name>%rd?\d+) = 0x(?P<value>[0-9a-f]+) in ")
_NAMED = re.compile(r"%\w+|\b\d+\b")


class _Reader:
    """Reads a trace line by line; keeps what each warp's registers hold."""

    def __init__(self) -> None:
        self.events: dict[int, list[Event]] = defaultdict(list)
        self._registers: dict[int, dict[str, int]] = defaultdict(dict)
        self._waited: dict[tuple[int, int], int] = {}
        self._warp = -1

    def read(self, lines: Iterable[str]) -> None:
        for line in lines:
            if found := _OP.match(line):
                self._warp = int(found["warp"])
                lanes = int(found["lanes"] or "ffffffff", 16).bit_count()
                if event := self._event(found["op"], found["rest"] or "", lanes):
                    self.events[self._warp].append(event)
            elif found := _VALUE.match(line):
                self._registers[self._warp][found["name"]] = int(found["value"], 16)

    def _values(self, rest: str) -> list[int]:
        """The operands that are integers, as numbers."""
        names = _NAMED.findall(rest)
        return [int(name) if name.isdigit() else self._registers[self._warp].get(name, 0) for name in names]

    def _event(self, op: str, rest: str, lanes: int) -> Event | None:
        if op.startswith("wgmma.mma_async"):
            return Event("PV" if rest.endswith("1") else "QK")  # the last operand says whether b is transposed
        if op.startswith("wgmma.commit_group"):
            return Event("commit")
        if op.startswith("wgmma.wait_group"):
            return Event("wait_products", number=int(rest))
        if op.startswith("cp.async.bulk.tensor") and ".shared::cluster.global" in op:
            _, tensor, *_, barrier = self._values(rest)
            return Event("copy_in", barrier, tensor)
        if op.startswith("cp.async.bulk.tensor"):
            return Event("copy_out")
        if op.startswith("cp.async.bulk.wait_group"):
            return Event("wait_copies_out", number=int(rest))
        if op.startswith("mbarrier.init"):
            barrier, count = self._values(rest)
            return Event("init", barrier, count)
        if op.startswith("mbarrier.arrive"):
            return Event("arrive", self._values(rest.partition("[")[2])[0], lanes)
        if op.startswith("mbarrier.try_wait.parity"):
            return self._wait(*self._values(rest.partition("[")[2])[:2])
        if op in ("bar.sync", "barrier.sync", "bar.arrive", "barrier.arrive"):
            number, *threads = self._values(rest)
            return Event(op.rpartition(".")[2] + "_named", number, threads[0] // 32 if threads else 0)
        for kind, prefix in (("max", "max."), ("exp", "ex2."), ("store", "stmatrix.")):
            if op.startswith(prefix):
                return Event(kind)
        return None

    def _wait(self, barrier: int, parity: int) -> Event:
        """A warp waits for one phase after the other: for the next one of this parity. Number -1 was never begun."""
        phase = self._waited.get((self._warp, barrier), -2) + 1
        phase += (phase & 1) != parity
        self._waited[self._warp, barrier] = phase
        return Event("wait", barrier, phase)


# ---- steps: every warp goes through its events, and waits where it waited --------------------------------------------


@dataclass
class _Barrier:
    """An mbarrier or a named barrier: the step of each arrival; a phase also waits for copies."""

    count: int
    arrivals: list[int] = field(default_factory=list)
    copies: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))

    def done(self, phase: int) -> int | None:
        """The step after which the phase is complete; None before it is."""
        if phase < 0:
            return 0
        mine = self.arrivals[phase * self.count : (phase + 1) * self.count]
        return max([*mine, *self.copies[phase]]) if len(mine) == self.count else None


@dataclass
class _Warp:
    """The progress of a warp, and its step."""

    number: int
    events: list[Event]
    at: int = 0
    step: int = 0
    open: str = ""  # the kind of the product that is not yet committed
    products: int = 0  # committed
    S: int = -1  # number of the scores last waited for
    seen: dict[str, int] = field(default_factory=lambda: defaultdict(int))  # max, ex2 and stmatrix since then
    out: list[int] = field(default_factory=list)  # steps after which the copies of O have been read

    @property
    def group(self) -> int:
        return self.number // WARPS


class _Replay:
    def __init__(self, version: str, events: dict[int, list[Event]], blocks: int) -> None:
        self.version, self.blocks = version, blocks  # KV blocks of a Q block
        self.warps = [_Warp(number, mine) for number, mine in sorted(events.items())]
        self.barriers: dict[int, _Barrier] = {}
        self.named: dict[int, _Barrier] = {}
        self.products: dict[tuple[int, int], list[int]] = defaultdict(list)  # by group: when each warp committed it
        self.kinds: dict[tuple[int, int], tuple[str, int]] = {}  # of a product: QK or PV, and which block's
        self.copied: dict[int, int] = defaultdict(int)
        self.work: set[Work] = set()
        tensors = [event.number for mine in events.values() for event in mine if event.kind == "copy_in"]
        self.first_tensor = min(tensors, default=0)
        groups = sorted({warp.group for warp in self.warps if any(event.kind == "commit" for event in warp.events)})
        self.consumers = {group: number for number, group in enumerate(groups, start=1)}

    def run(self) -> list[Work]:
        """All work, the first in step 0."""
        while any(warp.at < len(warp.events) for warp in self.warps):
            before = [warp.at for warp in self.warps]
            for warp in self.warps:
                while warp.at < len(warp.events) and self._do(warp, warp.events[warp.at]):
                    warp.at += 1
            if before == [warp.at for warp in self.warps]:
                held = [(warp.number, warp.events[warp.at]) for warp in self.warps if warp.at < len(warp.events)]
                stuck = ", ".join(f"warp {number} ({event.kind})" for number, event in held)
                raise AnalysisError(f"{self.version}: the trace waits for what never comes: {stuck}")
        return sorted(self.work)

    def _add(self, who: str, what: str, block: int, Q_block: int, step: int) -> None:
        self.work.add(Work(self.version, who, what, block, Q_block, step))

    def _do(self, warp: _Warp, event: Event) -> bool:
        """Go on by one event; False where the warp has to wait for another one."""
        do: Callable[[_Warp, Event], bool] = getattr(self, f"_do_{event.kind}")
        return do(warp, event)

    def _wait_until(self, warp: _Warp, done: int | None) -> bool:
        warp.step = warp.step if done is None else max(warp.step, done)
        return done is not None

    def _do_init(self, _: _Warp, event: Event) -> bool:
        self.barriers[event.location] = _Barrier(event.number)
        return True

    def _do_arrive(self, warp: _Warp, event: Event) -> bool:
        self.barriers[event.location].arrivals += [warp.step] * event.number
        return True

    def _do_wait(self, warp: _Warp, event: Event) -> bool:
        return self._wait_until(warp, self.barriers[event.location].done(event.number))

    def _arrive_named(self, warp: _Warp, event: Event) -> int:
        barrier = self.named.setdefault(event.location, _Barrier(event.number or len(self.warps)))
        barrier.arrivals.append(warp.step)
        return (len(barrier.arrivals) - 1) // barrier.count

    def _do_arrive_named(self, warp: _Warp, event: Event) -> bool:
        self._arrive_named(warp, event)
        return True

    def _do_sync_named(self, warp: _Warp, event: Event) -> bool:
        warp.events.insert(warp.at + 1, Event("synced", event.location, self._arrive_named(warp, event)))
        return True

    def _do_synced(self, warp: _Warp, event: Event) -> bool:
        return self._wait_until(warp, self.named[event.location].done(event.number))

    def _do_copy_in(self, warp: _Warp, event: Event) -> bool:
        what = "QKV"[(event.number - self.first_tensor) // 128]
        barrier = self.barriers[event.location]
        barrier.copies[(len(barrier.arrivals) - 1) // barrier.count].append(warp.step + 1)
        number = self.copied[event.number]
        self.copied[event.number] += 1
        if what == "Q":  # a copy for each consumer
            number //= len(self.consumers)
        self._add(COPIES, what, number, number if what == "Q" else number // self.blocks, warp.step)
        return True

    def _do_copy_out(self, warp: _Warp, _: Event) -> bool:
        self._add(COPIES, "O", len(warp.out), len(warp.out), warp.step)
        warp.out.append(warp.step + 1)
        return True

    def _do_wait_copies_out(self, warp: _Warp, event: Event) -> bool:
        finished = warp.out[: len(warp.out) - event.number]
        return self._wait_until(warp, max(finished, default=0))

    def _do_QK(self, warp: _Warp, event: Event) -> bool:
        warp.open = event.kind
        return True

    _do_PV = _do_QK

    def _do_commit(self, warp: _Warp, _: Event) -> bool:
        key = warp.group, warp.products
        if key not in self.kinds:
            before = [kind for (group, _), (kind, _) in self.kinds.items() if group == warp.group]
            self.kinds[key] = warp.open, before.count(warp.open)
        self.products[key].append(warp.step)
        warp.products += 1
        return True

    def _product_end(self, group: int, product: int) -> int | None:
        """The step after the product: it begins once all warps have committed it and the one before it has ended."""
        if len(self.products[group, product]) < WARPS:
            return None
        before = self._product_end(group, product - 1) if product else 0
        return None if before is None else max(before, *self.products[group, product]) + 1

    def _do_wait_products(self, warp: _Warp, event: Event) -> bool:
        last = warp.products - event.number - 1
        end = self._product_end(warp.group, last)
        for product in range(last + 1):
            kind, number = self.kinds[warp.group, product]
            after = self._product_end(warp.group, product)
            if after is None:
                return False
            self._add(f"products {self.consumers[warp.group]}", kind, number, number // self.blocks, after - 1)
            if kind == "QK" and number > warp.S:
                warp.S = number
                warp.seen.clear()
        return self._wait_until(warp, end)

    def _do_thread(self, warp: _Warp, event: Event, several: int) -> bool:
        warp.seen[event.kind] += 1
        if warp.seen[event.kind] == several:
            stores = event.kind == "store"  # its block is a Q block
            Q_block = len(warp.out) if stores else warp.S // self.blocks
            who = f"threads {self.consumers[warp.group]}"
            self._add(who, event.kind, Q_block if stores else warp.S, Q_block, warp.step)
            warp.step += 1
        return True

    def _do_max(self, warp: _Warp, event: Event) -> bool:
        return self._do_thread(warp, event, SEVERAL)

    _do_exp = _do_max

    def _do_store(self, warp: _Warp, event: Event) -> bool:
        return self._do_thread(warp, event, 1)


def work_of(version: str, trace: Iterable[str], blocks: int) -> list[Work]:
    """The work that the trace of one CTA shows, with `blocks` KV blocks per Q block."""
    reader = _Reader()
    reader.read(trace)
    work = _Replay(version, reader.events, blocks).run()
    if not work:
        raise AnalysisError(f"{version}: the trace contains no wgmma and no TMA copy; use v27 or a later version")
    return work


def emulate_pipeline(version: str) -> list[Work]:
    """Run a built version on the emulator, and trace its first CTA."""
    arguments = f"--backend emu --no-check --checks off --batch 1 --heads {HEADS} --seq {SEQ} --trace cta=0,lane=0"
    outcome = executables.checked(executables.run(executables.find(version), arguments.split(), TIMEOUT))
    config = load(root(), version).header.config
    return work_of(version, outcome.stdout.splitlines(), SEQ // config.B_c)


# ---- the committed file ----------------------------------------------------------------------------------------------


def pipeline_path(folder: Path) -> Path:
    return folder / "regs/pipeline.csv"


def read_pipeline(folder: Path) -> dict[str, list[Work]]:
    """Version to its work from the committed file; empty when there is none."""
    path = pipeline_path(folder)
    found: dict[str, list[Work]] = {}
    if path.exists():
        for where, row in read_columns(read_text(path), COLUMNS, str(path)):
            try:
                block, Q_block, step = (int(row[name]) for name in COLUMNS[3:])
            except ValueError as error:
                raise AnalysisError(f"{where}: {error}") from None
            work = Work(row["version"], row["who"], row["what"], block, Q_block, step)
            found.setdefault(work.version, []).append(work)
    return found


def add_pipeline_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("versions", nargs="*", metavar="VER", help="built versions (those of regs/pipeline.csv)")
    parser.add_argument(
        "--write", action="store_true", help="write them to regs/pipeline.csv and keep the rows of other versions"
    )
    parser.add_argument("--exit-code", action="store_true", help="exit status 1 if regs/pipeline.csv differs")
    add_table_arguments(parser)


def run_pipeline(args: argparse.Namespace) -> int:
    recorded = read_pipeline(root())
    chosen = args.versions or list(recorded)
    if not chosen:
        raise AnalysisError("regs/pipeline.csv: not found; name the versions to emulate, such as v28 v29")
    for name in chosen:
        if not load(root(), name).one_arch:
            raise AnalysisError(f"{name}: has no warpgroups that multiply; the first version with them is v26")
    fresh = {load(root(), name).version: emulate_pipeline(name) for name in chosen}
    shown = recorded | fresh if args.write else fresh
    table = Table(COLUMNS, [astuple(work) for _, all_work in sorted(shown.items()) for work in all_work])
    if args.write:
        write_if_changed(pipeline_path(root()), table.csv())
    else:
        print_table(table, args)
    return DIFFERENT if args.exit_code and any(recorded.get(name) != work for name, work in fresh.items()) else DONE
