"""Tries mutants of kernels for sm_90a (hopper_mutations.py) on the emulator: which go unnoticed?

The small kernels of kernels/hopper, and the versions whose architecture is sm_90a.

.venv/bin/python emulator/tests/hopper_trials.py            # tries those of the small kernels: a minute
.venv/bin/python emulator/tests/hopper_trials.py v26 v27    # those of versions, in fp16: minutes for each

Both rewrite their rows of records/hopper_mutants.csv.
"""

from __future__ import annotations

import csv
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import survivors
from support.emulation import ROOT
from support.hopper import KERNELS, compile_all, entry_text
from support.hopper_mutations import HopperMutant, hopper_mutants
from support.mutations import Mutant
from support.versions import Version, versions
from survivors import classes

RECORD = Path(__file__).parent / "records/hopper_mutants.csv"
FIELDS = ("kernel", "kind", "mutants", "reported", "equivalent")
SCHEDULES = (0, 1, 2)
STEPS = 200_000  # warp instructions: no kernel runs so many

# Mutants that are the same program: (kernel, kind, ordinal).
EQUIVALENT = {
    ("roles", "registers taken", 0): "how many registers a thread may use is a limit for ptxas, not for the program",
}


@dataclass(frozen=True)
class Trials:
    name: str  # of a kernel
    ptx: Path  # of all kernels

    @property
    def folder(self) -> Path:
        return self.ptx.parent

    @cache  # noqa: B019
    def mutants(self) -> list[HopperMutant]:
        return list(hopper_mutants(entry_text(self.ptx, KERNELS[self.name].entry)))

    def wrong(self, mutant: HopperMutant) -> str:
        """What is wrong with a mutant that is neither reported as it should be nor equivalent; else ""."""
        kernel, path = KERNELS[self.name], self.folder / "mutant.ptx"
        path.write_text(mutant.text)
        seen: set[str] = set()
        right = True
        for schedule in SCHEDULES:
            done, output = kernel.run(path, self.folder, "--schedule", schedule, "--steps", STEPS)
            assert done.returncode in (0, 1, 3), done.stderr
            found = classes(done.stderr)
            if found & mutant.expected:
                return ""
            seen |= found
            right = right and output == kernel.right()
        if right and not seen and self.excuse(mutant):
            return ""
        return f"{self.name}, {mutant}: {sorted(seen) or 'no finding'}, result {'right' if right else 'wrong'}"

    def excuse(self, mutant: HopperMutant) -> str:
        return EQUIVALENT.get((self.name, mutant.kind, mutant.ordinal), "")

    def rows(self) -> list[dict[str, str]]:
        """Of the record, if every mutant is reported or equivalent."""
        return rows_of(self.name, self.mutants(), [mutant for mutant in self.mutants() if self.excuse(mutant)])


def rows_of(name: str, tried: Iterable[Mutant], same: Iterable[Mutant]) -> list[dict[str, str]]:
    """How many mutants there are of each kind, and how many of them are the same program."""
    total, equal = (Counter(mutant.kind for mutant in each) for each in (tried, same))
    values = [(name, kind, n, n - equal[kind], equal[kind]) for kind, n in total.items()]
    return [dict(zip(FIELDS, map(str, row), strict=True)) for row in values]


# Mutants of versions that are the same program: their kind, the lines of the source that they are about, the reason.
SAME = (
    ("registers taken", "", "how many registers a thread may use is a limit for ptxas, not for the program"),
    ("copies commit", "", "its copies join the next group, and a wait for that follows before they are read"),
    ("barrier", "wait_for_turn", "turns say who issues first: no data depends on them"),
    ("barrier", "group_threads|have read", "who waits for a wgmma knows that all four warps have read"),
    ("wgmma fence", "start_PV", "nothing touched registers since the fence ahead of Q K^T"),
    (
        "mbarrier wait|fewer arrivals",
        "Q_empty",
        "the K before was waited for: all products with that Q block had ended",
    ),
    ("warp barrier", "all lanes have read K", "no score outgrows m in these problems, so that no lane reads K"),
    ("arrival|second arrival|early release", "n_blocks - 1", "nobody waits for that phase: it is the last"),
)
LOC = re.compile(r"\t\.loc\t(\d+) (\d+) (\d+)(?:, function_name \S+, inlined_at (\d+) (\d+) (\d+))?")


def source_lines(ptx: list[str], at: int, source: list[str]) -> list[str]:
    """The lines of the kernel's file that a line of its PTX comes from: where it stands, and where that was inlined."""
    found, wanted = [], None
    for line in reversed(ptx[:at]):
        place = LOC.match(line)
        if not place or wanted not in (None, place.group(1, 2, 3)):
            continue
        if place[1] == "1":
            found.append(source[int(place[2]) - 1].strip())
        if not place[4]:
            break
        wanted = place.group(4, 5, 6)
    return found


class VersionTrials(survivors.Trials):
    """Of a version for sm_90a."""

    def mutants(self) -> list[Mutant]:
        return list(hopper_mutants(self.text))

    def schedules(self, mutant: Mutant) -> tuple[int, ...]:
        return SCHEDULES

    @cached_property
    def source(self) -> list[str]:
        (path,) = (ROOT / "kernels").glob(f"*/{self.version.name}_*.cu")
        return path.read_text().split("\n")

    def excuse(self, mutant: Mutant) -> str:
        assert isinstance(mutant, HopperMutant)
        lines = " < ".join(source_lines(mutant.original.split("\n"), max(mutant.changes), self.source))
        for kinds, pattern, reason in SAME:
            if re.fullmatch(kinds, mutant.kind) and re.search(pattern, lines):
                return reason
        return ""


def hopper_versions() -> list[Version]:
    return [version for version in versions() if version.for_sm_90a]


def recorded() -> list[dict[str, str]]:
    with RECORD.open(newline="") as file:
        return list(csv.DictReader(file))


def table() -> str:
    """Markdown: a row for each kernel, and their sums."""
    lines = ["| kernel | kinds | mutants | reported by name | equivalent |", "|---|---:|---:|---:|---:|"]
    rows = recorded()
    for name in [*dict.fromkeys(row["kernel"] for row in rows), "all"]:
        of = [row for row in rows if name in (row["kernel"], "all")]
        sums = [sum(int(row[field]) for row in of) for field in FIELDS[2:]]
        lines.append(f"| {name} | {len({row['kind'] for row in of})} | {' | '.join(map(str, sums))} |")
    return "\n".join(lines)


def try_kernels(folder: Path) -> tuple[list[dict[str, str]], list[str]]:
    """Rows of the record, and what went unnoticed."""
    rows, wrong, ptx = [], [], compile_all(folder)
    for name in KERNELS:
        trials = Trials(name, ptx)
        wrong += [text for mutant in trials.mutants() if (text := trials.wrong(mutant))]
        rows += trials.rows()
    return rows, wrong


def try_versions(names: list[str], folder: Path) -> tuple[list[dict[str, str]], list[str]]:
    rows, wrong = [], []
    for version in hopper_versions():
        if version.name in names:
            trials = VersionTrials(version, "fp16", folder)
            found = [text for mutant in trials.mutants() if (text := trials.survives(mutant))]
            wrong += [f"{version.name}, {text}" for text in found]
            rows += rows_of(version.name, trials.mutants(), trials.same)
    return rows, wrong


def main(names: list[str]) -> int:
    with tempfile.TemporaryDirectory() as folder:
        rows, wrong = try_versions(names, Path(folder)) if names else try_kernels(Path(folder))
    if wrong:
        print("\n".join(wrong), file=sys.stderr)
        return 1
    tried = {row["kernel"] for row in rows}
    rows = [*rows, *(row for row in recorded() if row["kernel"] not in tried)]
    order = [*KERNELS, *(version.name for version in hopper_versions())]
    rows.sort(key=lambda row: order.index(row["kernel"]))
    with RECORD.open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
