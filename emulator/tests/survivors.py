"""Runs mutants of a version's PTX (mutations.py) on the emulator and says which of them go unnoticed.

trials = Trials(version, "fp16", folder)
wrong = [text for mutant in mutants if (text := trials.survives(mutant))]
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from support.mutations import SYNCHRONISATION, Mutant, equivalent, mutants
from support.versions import Launch, Version, drawn

SCHEDULES = (0, 1, 2)
ROW_HEADS = 16  # a version may have a copy of the code for the row stride of 16 heads

# Mutants that are the same program for a reason that is not seen in the lines around them: versions, kind, ordinals.
SAME = (
    (
        ("v01", "v02"),
        "barrier",
        (2,),
        "the last barrier of the loop: the copy that follows overwrites K, which every warp has read before the "
        "barrier ahead of P.V, and V is overwritten only after the next barrier",
    ),
    (
        ("v50", "v51"),
        "barrier",
        (2,),
        "of a slice's Q: a warp reads Q with its first K block, whose mbarrier waits for the copies of Q, too",
    ),
    (
        ("v50", "v51"),
        "warp barrier",
        (5,),
        "of a Q block's Q, which is waited for with the first K block, as in a slice",
    ),
    (("v50", "v51"), "wait", (0,), "of the same copies of a slice's Q"),
    (("v50", "v51"), "commit", (0, 1), "arrivals at an mbarrier come after all copies of a thread, in a group or not"),
    (
        ("v50", "v51"),
        "mbarrier wait",
        (6,),
        "ahead of the first Q block's first copies: a barrier of the CTA follows the slices, which have read theirs",
    ),
    (
        ("v50", "v51"),
        "warp barrier",
        (6,),
        "a warp gets there that saw no key: it has not read Q, and the queries have a warp barrier of their own",
    ),
    (
        ("v50", "v51"),
        "warp barrier",
        (0, 1, 3, 4),
        "two follow each other, after the rows' queries are written and before they are read: one of them is enough",
    ),
    (
        ("v50", "v51"),
        "warp barrier",
        (9,),
        "the next rows' queries are read after the warp barrier with which the copy of their Q begins",
    ),
    (
        ("v50", "v51"),
        "warp barrier",
        (10,),
        "all lanes wait at an mbarrier for the place that one of them draws: this one only brings them together again",
    ),
)
EQUIVALENT = {
    (version, kind, ordinal): reason
    for names, kind, ordinals, reason in SAME
    for version in names
    for ordinal in ordinals
}


def problems(version: Version, dtype: str) -> list[Launch]:
    """What mutants are tried on, the cheapest first.

    Two KV blocks, and as many as go through the ring twice. One head, or what gives a persistent CTA two Q blocks and
    the last CTAs a slice. Rows as they lie with one head and with 16, of which as many are used; all 16 in the end, as
    only then the whole output is expected. At last what a kernel needs that draws Q blocks.
    """
    symbol = version.entry(dtype)
    config = Launch(symbol).config
    short = max(config.B_r, 2 * config.B_c)
    long = max(256, 2 * config.B_r, 2 * max(config.stages, 2) * config.B_c)
    heads = (1, 5) if config.persistent else (1,)
    some = [Launch(symbol, seq, h, row_heads=rows) for seq in (short, long) for rows in (0, ROW_HEADS) for h in heads]
    return [*some, Launch(symbol, short, ROW_HEADS), *drawn(symbol)]


def classes(text: str) -> frozenset[str]:
    """The classes in ptxrun's last line, "2 findings: race (32 times), ..."."""
    summary = re.search(r"^\d+ findings?: (.*)$", text, re.M)
    return frozenset(re.findall(r"([a-z-]+) \(\d+ times\)", summary[1])) if summary else frozenset()


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
    originals: dict[Launch, Original] = field(default_factory=dict)
    same: list[Mutant] = field(default_factory=list)  # of those that were tried: the same programs

    @cached_property
    def text(self) -> str:
        return self.version.entry_text(self.dtype)

    @cached_property
    def problems(self) -> list[Launch]:
        return problems(self.version, self.dtype)

    def mutants(self) -> list[Mutant]:
        return list(mutants(self.text, self.problems[0].config))

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
        """Classes of what is found, and the output."""
        path, out = self.folder / "mutant.ptx", self.folder / "out.bin"
        path.write_text(text)
        done = launch.run(path, "--dump", f"0.3={out}", "--threads", 1, *options)
        assert done.returncode in (0, 1, 3), done.stderr
        return classes(done.stderr), out.read_bytes()

    def schedules(self, mutant: Mutant) -> tuple[int, ...]:
        """Orders of the warps that a mutant is tried with."""
        return SCHEDULES if mutant.kind in SYNCHRONISATION else (0,)

    def excuse(self, mutant: Mutant) -> str:
        """Why a mutant is the same program; "" where nothing says so."""
        listed = EQUIVALENT.get((self.version.name, mutant.kind, mutant.ordinal), "")
        return equivalent(mutant, self.text) or listed

    def survives(self, mutant: Mutant) -> str:
        """What is wrong with a mutant that is neither reported as it should be nor equivalent; else "".

        It is enough to be reported in one problem, with one order of the warps. A copy left out of a loop leaves the
        data of the block before, and a store may go where nobody else writes: no check can tell those from right
        programs, so there the result must be wrong.
        """
        seen: set[str] = set()
        same, tried = True, False
        for launch in self.problems:
            original = self.original(launch)
            if mutant.line not in original.lines or (mutant.kind == "output" and launch.row_heads):
                continue
            tried = True
            limit = ["--steps", 4 * original.steps + 1_000_000]
            for schedule in self.schedules(mutant):
                options = [*limit, "--schedule", schedule]
                found, output = self.run(mutant.text, launch, *options, "--first")
                if found and not found & mutant.expected:
                    found, output = self.run(mutant.text, launch, *options)
                if found & mutant.expected or (mutant.kind in ("copy", "shifted store") and output != original.output):
                    return ""
                seen |= found
                same = same and output == original.output
        if tried and same and not seen and self.excuse(mutant):
            self.same.append(mutant)
            return ""
        outcome = f"{sorted(seen) or 'no finding'}, result {'same' if same else 'wrong'}"
        return f"{mutant}: {outcome if tried else 'executed in no problem'}"
