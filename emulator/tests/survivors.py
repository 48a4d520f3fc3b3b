"""Runs mutants of a kernel's PTX (mutations.py) on the emulator and says which of them go unnoticed.

wrong = all_wrong(Trials(version, "fp16", folder))
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from support import fp8, general, ladders
from support.emulation import ROOT
from support.mutations import SYNCHRONISATION, TOGETHER, Mutant, equivalent, lines_of, mutants, together
from support.versions import Launch, Version

SCHEDULES = (0, 1, 2)
BY_RESULT = ("copy", "shifted store")  # kinds that only the result may tell from right programs
AT_ONCE = 100  # mutants in one launch: the emulator keeps 256 findings
ROW_HEADS = 16  # a version may have a copy of the code for the row stride of 16 heads


@dataclass(frozen=True)
class Listed:
    """Mutants that are the same program for a reason that is not seen in the PTX around them."""

    versions: str  # regular expressions, of all of a name or kind
    kinds: str
    source: str  # found in the lines of the source that the PTX line comes from, the innermost first, with " < "
    reason: str


GENERAL = "attention/mma_sync"  # it draws Q blocks and slices, and its warps skip blocks that they do not see
SAME = (
    Listed(
        "v0[12]",
        "barrier",
        "both may be overwritten",
        "the last barrier of the loop: the copy that follows overwrites K, which every warp has read before the "
        "barrier ahead of P.V, and V is overwritten only after the next barrier",
    ),
    Listed(
        GENERAL,
        "warp barrier",
        r"copy_ahead\(all_read - 1 - read\)",
        "a warp gets there that sees no key: it has not read Q",
    ),
    Listed(
        GENERAL,
        "warp barrier",
        r"copy_Q\((Q_block|own|\))",
        "ahead of a CTA's first Q block or of a slice: no lane reads a Q; a barrier of the CTA follows each slice",
    ),
    Listed(
        GENERAL,
        "barrier|warp barrier|wait",
        r"^(cp_async_wait_group<0>\(\);|slice \? __syncthreads\(\) : __syncwarp\(\);)",
        "of Q: a warp reads it with its first K block, whose mbarrier waits for the copies of Q, too",
    ),
    Listed(
        GENERAL,
        "commit",
        "copy_Q",
        "arrivals at an mbarrier come after all copies of a thread, in a group or not",
    ),
    Listed(
        GENERAL,
        "mbarrier wait|mbarrier arrival",
        r"(full|empty) \+ 8 \* \(read % cfg.stages\)",
        "of a block that the warp does not see: those that read it wait for its copies, and what nobody reads is zeros "
        "that nobody misses; a slice copies nothing over such blocks",
    ),
    Listed(
        GENERAL,
        "warp barrier",
        r"find_queries\(own",
        "two follow each other, after the rows' queries are written and before they are read: one of them is enough",
    ),
    Listed(
        GENERAL,
        "warp barrier",
        r"find_queries\(next",
        "the next rows' queries are read after the warp barrier with which the copy of their Q begins",
    ),
    Listed(
        GENERAL,
        "warp barrier",
        r"^__syncwarp\(\); < (attend<cfg, false>|find_next)",
        "all lanes wait at an mbarrier for the place that one of them draws: this one only brings them together again",
    ),
    Listed(
        GENERAL,
        "shifted store",
        r"^place\.number",
        "only the debug hooks read it, and nothing lies behind it",
    ),
    Listed(
        GENERAL,
        "mbarrier wait",
        r"copy_KV\(true, n_blocks",
        "ahead of the first Q block's first copies: a barrier of the CTA follows the slices, which have read theirs",
    ),
)
# Code that no launch executes.
NEVER = (
    Listed(
        "v00",
        "shifted store",
        r"^block\[i\] = ",
        "what is left of the copies when four at a time are done: nothing, as each thread has a multiple of four",
    ),
    Listed(
        "v00[ab]",
        "shifted store|copy|misaligned|overrun",
        r"gmem \+ i / row_chunks",
        "as in v00: each thread has a multiple of four chunks",
    ),
    Listed(
        GENERAL,
        ".*",
        r"copy_ahead\(all_read - 1 - read\); < .*attend<cfg, true>",
        "blocks that a slice does not see only fill up to `ahead`, and nothing is copied behind them",
    ),
)


def problems(version: Version, dtype: str) -> list[Launch]:
    """What mutants are tried on, the cheapest first.

    Two KV blocks, and as many as go through the ring twice. One head, or what gives a persistent CTA two Q blocks and
    the last CTAs a slice. Rows as they lie with one head and with 16, of which as many are used; all 16 in the end, as
    only then the whole output is expected. A kernel that takes any length has other problems.
    """
    symbol = version.entry(dtype)
    config = Launch(symbol).config
    if version in ladders.ladders():
        return [*ladders.problems(symbol)]
    if config.e4m3_inputs:
        return [*fp8.problems(symbol)]
    if config.any_length:
        return [*general.problems(symbol)]
    short = max(config.B_r, 2 * config.B_c)
    long = max(256, 2 * config.B_r, 2 * max(config.stages, 2) * config.B_c)
    heads = (1, 5) if config.persistent else (1,)
    some = [Launch(symbol, seq, h, row_heads=rows) for seq in (short, long) for rows in (0, ROW_HEADS) for h in heads]
    return [*some, Launch(symbol, short, ROW_HEADS)]


# What is said of other orders is no part of the records: a mutant may give the same in every order, and its barriers
# other phases.
ORDERS = frozenset({"phase-overrun", "order-dependent"})


def classes(text: str) -> frozenset[str]:
    """The classes in ptxrun's last line, "2 findings: race (32 times), ..."."""
    summary = re.search(r"^\d+ findings?: (.*)$", text, re.M)
    return frozenset(re.findall(r"([a-z-]+) \(\d+ times\)", summary[1])) if summary else frozenset()


DELAY = re.compile(r"ptxrun --delay (\d+@\d+)")  # in a finding about other orders: in this one the fault is seen
AT_LINE = re.compile(r"^([a-z-]+) at PTX line (\d+):", re.M)  # a finding in code without .loc
LOC = re.compile(r"\t\.loc\t(\d+) (\d+) (\d+)(?:, function_name \S+, inlined_at (\d+) (\d+) (\d+))?")
FILE = re.compile(r'^\t\.file\t(\d+) "(?:.*/)?(kernels/[^"]*)"', re.M)


@dataclass(frozen=True)
class Sources:
    """The kernel's own files of a PTX text."""

    ptx: tuple[str, ...]  # lines
    files: dict[str, list[str]]  # number in the PTX -> lines

    @classmethod
    def of(cls, text: str) -> Sources:
        files = {number: (ROOT / path).read_text().split("\n") for number, path in FILE.findall(text)}
        return cls(lines_of(text), files)

    def lines(self, at: int) -> list[str]:
        """The lines that a line of the PTX, from 0, comes from: where it stands, and where that was inlined."""
        found, wanted = [], None
        for line in reversed(self.ptx[:at]):
            place = LOC.match(line)
            if not place or wanted not in (None, place.group(1, 2, 3)):
                continue
            if place[1] in self.files:
                found.append(self.files[place[1]][int(place[2]) - 1].strip())
            if not place[4]:
                break
            wanted = place.group(4, 5, 6)
        return found


@dataclass(frozen=True)
class Original:
    """What the unchanged program does in one problem."""

    lines: frozenset[int]  # of the PTX that are executed
    output: bytes
    steps: int  # warp instructions of all CTAs


@dataclass
class Trials:
    version: Version
    dtype: str
    folder: Path  # for files that are written again and again
    other: Trials | None = None  # of the same kernel with another element type, all of whose mutants were tried
    listed: tuple[Listed, ...] = SAME
    never: tuple[Listed, ...] = NEVER
    read_elsewhere: tuple[Listed, ...] = ()
    by_order: tuple[Listed, ...] = ()  # that only a finding about other orders names
    share: int = 1  # of mutants one in so many is tried; of a kernel for mma.sync all that synchronise or are listed
    originals: dict[Launch, Original] = field(default_factory=dict)
    reported: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)  # kind, ordinal -> problem, schedule
    same: list[Mutant] = field(default_factory=list)  # of those that were tried: the same programs
    used: set[Listed] = field(default_factory=set)
    delays: list[str] = field(default_factory=list)  # of the last run

    @cached_property
    def text(self) -> str:
        return self.version.entry_text(self.dtype)

    @cached_property
    def problems(self) -> list[Launch]:
        return problems(self.version, self.dtype)

    @cached_property
    def sources(self) -> Sources:
        return Sources.of(self.text)

    def mutants(self) -> list[Mutant]:
        found = mutants(self.text, self.problems[0].config)
        return [
            mutant
            for mutant in found
            if mutant.kind in SYNCHRONISATION or mutant.ordinal % self.share == 0 or self.row(mutant, self.lists)
        ]

    @property
    def tries_late(self) -> bool:
        """Whether orders that findings name are tried."""
        return False

    @property
    def lists(self) -> tuple[Listed, ...]:
        return (*self.listed, *self.never, *self.read_elsewhere, *self.by_order)

    @property
    def tries_all(self) -> bool:
        """Whether a row of the lists that excuses no mutant is wrong."""
        return self.other is None

    def original(self, launch: Launch) -> Original:
        if launch not in self.originals:
            counters = self.folder / "counters.csv"
            found, output = self.run(self.text, launch, "--counters-csv", counters)
            assert not found, f"{self.version.name} {self.dtype}: {sorted(found)}"
            with counters.open(newline="") as file:
                executed = {int(row["ptx_line"]): int(row["executed"]) for row in csv.DictReader(file)}
            lines = frozenset(line for line, count in executed.items() if count)
            self.originals[launch] = Original(lines, output, sum(executed.values()))
        return self.originals[launch]

    def run(self, text: str, launch: Launch, *options: object) -> tuple[frozenset[str], bytes]:
        """Classes of what is found, and all that is written. `delays`: what findings about other orders name."""
        path = self.write(text)
        files = {member: self.folder / f"{member}.bin" for member in launch.dumps()}
        dumps = [f"--dump={member}={file}" for member, file in files.items()]
        done = launch.run(path, *dumps, "--threads", 1, *options)
        assert done.returncode in (0, 1, 3), done.stderr
        self.delays = sorted(set(DELAY.findall(done.stderr)))
        return classes(done.stderr), b"".join(file.read_bytes() for file in files.values())

    def write(self, text: str) -> Path:
        path = self.folder / "mutant.ptx"
        path.write_text(text)
        return path

    def schedules(self, mutant: Mutant) -> tuple[int, ...]:
        """Orders of the warps that a mutant is tried with."""
        return SCHEDULES if mutant.kind in SYNCHRONISATION else (0,)

    def tries(self, mutant: Mutant) -> list[tuple[int, int]]:
        """Numbers of the problems that execute the mutant, and orders of the warps.

        What reported it with another element type comes first. For what only has to be confirmed one order is enough,
        in each problem the next one.
        """
        reached = [
            i
            for i, launch in enumerate(self.problems)
            if mutant.line in self.original(launch).lines and not (mutant.kind == "output" and launch.row_heads)
        ]
        hint = self.other and self.other.reported.get((mutant.kind, mutant.ordinal))
        orders = self.schedules(mutant)
        if not hint and (equivalent(mutant, self.text) or self.row(mutant, self.listed)):
            return [(i, orders[(i + 1) % len(orders)]) for i in reached]
        return sorted(((i, order) for i in reached for order in orders), key=lambda each: each != hint)

    def changed(self, mutant: Mutant) -> int:
        """The line of the PTX, from 0, that says where in the source a mutant is."""
        return mutant.line - 1

    def row(self, mutant: Mutant, rows: Iterable[Listed]) -> Listed | None:
        """The one that a mutant is in."""
        lines = " < ".join(self.sources.lines(self.changed(mutant)))
        for row in rows:
            mine = re.fullmatch(row.versions, self.version.name) and re.fullmatch(row.kinds, mutant.kind)
            if mine and re.search(row.source, lines):
                return row
        return None

    def excuse(self, mutant: Mutant, listed: Iterable[Listed]) -> str:
        """Why a mutant is the same program; "" where nothing says so."""
        if reason := equivalent(mutant, self.text):
            return reason
        row = self.row(mutant, listed)
        if row:
            self.used.add(row)
        return row.reason if row else ""

    def survives(self, mutant: Mutant) -> str:
        """What is wrong with a mutant that is neither reported as it should be nor equivalent; else "".

        It is enough to be reported in one problem, with one order of the warps. A copy left out of a loop leaves the
        data of the block before, and a store may go where nobody else writes: no check can tell those from right
        programs, so there the result must be wrong.
        """
        seen: set[str] = set()
        overrun = False
        delayed: set[str] = set()
        same, tries = True, self.tries(mutant)
        for number, schedule in tries:
            launch = self.problems[number]
            original = self.original(launch)
            options = ["--steps", 4 * original.steps + 1_000_000, "--schedule", schedule]
            found, output = self.run(mutant.text, launch, *options, "--first")
            if found and not found & mutant.expected:
                found, output = self.run(mutant.text, launch, *options)
                if self.tries_late:
                    found |= self.found_late(mutant, launch, delayed, *options[:2])
            differs = output != original.output
            by_result = differs and not found & mutant.expected and self.row(mutant, self.read_elsewhere)
            if by_result:
                self.used.add(by_result)
            if found & mutant.expected or by_result or (differs and mutant.kind in BY_RESULT):
                self.reported[mutant.kind, mutant.ordinal] = number, schedule
                return ""
            seen |= found - ORDERS
            overrun = overrun or bool(found & ORDERS)
            same = same and not differs
        if same and not seen and overrun and (row := self.row(mutant, self.by_order)):
            self.used.add(row)
            return ""
        listed = self.listed if tries else self.never
        if same and not seen and self.excuse(mutant, listed):
            self.same.append(mutant)
            return ""
        outcome = f"{sorted(seen) or 'no finding'}, result {'same' if same else 'wrong'}"
        where = " < ".join(self.sources.lines(self.changed(mutant)))
        return f"{mutant}: {outcome if tries else 'executed in no problem'}; {where}"

    def found_late(self, mutant: Mutant, launch: Launch, delayed: set[str], *options: object) -> frozenset[str]:
        """What is found in the orders that the last run's findings name, of those that were not tried yet."""
        for delay in [each for each in self.delays if each not in delayed]:
            delayed.add(delay)
            only = [word for name in ORDERS for word in ("--ignore", name)]
            found, _ = self.run(mutant.text, launch, *options, *only, "--first", "--delay", delay)
            if found & mutant.expected:
                return found
        return frozenset()

    def report_together(self, found: Iterable[Mutant]) -> None:
        """Tries many in one launch, where each must be reported at the line that it changes."""
        for number, launch in enumerate(self.problems):
            executed = self.original(launch).lines
            left = [m for m in found if m.line in executed and (m.kind, m.ordinal) not in self.reported]
            for i in range(0, len(left), AT_ONCE):
                some = left[i : i + AT_ONCE]
                limit = 4 * self.original(launch).steps + 1_000_000  # a wrong address may hold what ends the program
                done = launch.run(self.write(together(some)), "--threads", 1, "--steps", limit)
                assert done.returncode in (0, 1, 3), done.stderr
                named = set(AT_LINE.findall(done.stderr))
                some = [m for m in some if any((each, str(m.line)) in named for each in m.expected)]
                self.reported |= {(m.kind, m.ordinal): (number, 0) for m in some}

    def all_wrong(self) -> list[str]:
        """Of all mutants; and the rows of the lists that excuse none of them, where all are tried.

        With another element type before, of those that were reported there: the others are the same program in both.
        """
        found = self.mutants()
        if self.other:
            found = [mutant for mutant in found if (mutant.kind, mutant.ordinal) in self.other.reported]
        for kind in TOGETHER:
            self.report_together([mutant for mutant in found if mutant.kind == kind])
        alone = [mutant for mutant in found if (mutant.kind, mutant.ordinal) not in self.reported]
        wrong = [text for mutant in alone if (text := self.survives(mutant))]
        lists = self.lists if self.tries_all else ()
        rows = {row for row in lists if re.fullmatch(row.versions, self.version.name)}
        wrong += [f"listed, but excuses no mutant: {row}" for row in rows - self.used]
        return [f"{self.version.name} {self.dtype}, {text}" for text in wrong]


def all_wrong(first: Trials) -> list[str]:
    """Of both element types, whose code has the same mutants: bf16 changes the products and conversions, no address."""
    second = type(first)(first.version, "bf16", first.folder, first, share=8)
    return first.all_wrong() + second.all_wrong()
