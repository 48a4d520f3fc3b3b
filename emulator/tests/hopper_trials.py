"""Tries mutants of kernels for sm_90a (hopper_mutations.py) on the emulator: which go unnoticed?

The small kernels of kernels/hopper, and the versions whose architecture is sm_90a.

.venv/bin/python emulator/tests/hopper_trials.py            # tries those of the small kernels: a minute
.venv/bin/python emulator/tests/hopper_trials.py v26 v27    # those of versions, in fp16: minutes for each
.venv/bin/python emulator/tests/hopper_trials.py "attention/fp8 serving"    # of one of its configs

Both rewrite their rows of records/hopper_mutants.csv.
"""

from __future__ import annotations

import csv
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import survivors
from support.fp8 import MANY_HEADS
from support.hopper import KERNELS, compile_all, entry_text
from support.hopper_mutations import HopperMutant, hopper_mutants
from support.ladders import Backward, Narrow, ladders
from support.mutations import Mutant
from support.versions import Version, kernels, of_fp8
from survivors import ORDERS, Listed, classes

RECORD = Path(__file__).parent / "records/hopper_mutants.csv"
FIELDS = ("kernel", "kind", "mutants", "reported", "equivalent")
SCHEDULES = (0, 1, 2)
DATA = ("descriptor", "descriptor of a warp", "result")  # of a ladder one in eight of these is tried
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
            seen |= found - ORDERS
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


# Mutants of versions that are the same program.
GENERAL = "attention/wgmma"  # its consumers pass blocks that they do not see
FP8 = "attention/fp8.*"
RUNGS = "f0[1-8]"
OWN_TILE = "b0[5-7]|attention/backward"  # a CTA has one
IN_ORDER = "attention/backward ordered"
BACKWARD = f"{OWN_TILE}|{IN_ORDER}"
SAME = (
    Listed(
        f"v2[89]|v3[0-7]|{GENERAL}|{FP8}|{RUNGS}|{BACKWARD}",
        "registers taken",
        "",
        "a limit for ptxas, not for the program",
    ),
    Listed("v26", "copies commit", "", "its copies join the next group, which is waited for before they are read"),
    Listed("v3[0-2]", "barrier", "wait_for_turn", "turns say who issues first: no data depends on them"),
    Listed(
        f"v2[7-9]|v3[0-2]|{GENERAL}",
        "barrier",
        "group_threads|have read",
        "who waits for a wgmma knows that all four warps have read",
    ),
    Listed(
        f"v29|v3[0-7]|{GENERAL}|{FP8}|{RUNGS}",
        "wgmma fence",
        "start_PV|start_O",
        "nothing touched registers since the fence ahead of Q K^T",
    ),
    Listed(
        "v3[3-7]",
        "mbarrier wait|fewer arrivals",
        "Q_empty",
        "the K before was waited for: all products with that Q block had ended",
    ),
    Listed("v35", "warp barrier", "all lanes have read K", "no score outgrows m here, so that no lane reads K"),
    Listed("v29|v3[0-2]", "arrival|second arrival|early release", "n_blocks - 1", "nobody waits for the last phase"),
    Listed(
        GENERAL,
        "mbarrier wait",
        "pass_block",
        "of one block that the consumer does not see: turns keep both within a block of each other, so that both have "
        "released the block before it in its stage",
    ),
    Listed(
        GENERAL,
        "mbarrier wait",
        r"wait_for_phase\((at\.)?draw",
        "only the lengths of Q blocks depend on when a CTA draws",
    ),
    Listed(
        GENERAL,
        "mbarrier wait|second arrival|fewer arrivals|warp barrier",
        r"place_empty|places\.(empty|init|wait_until_empty)|^__syncwarp\(\); < (attend|finish)",
        "a CTA draws once the producer has a place for the Q block before: the consumers have read the place of four "
        "Q blocks earlier by then",
    ),
    Listed(
        FP8,
        "arrival|second arrival|early release",
        r"finish_O\(n\); < share\.step_across",
        "of the last Q block: nobody waits for that phase",
    ),
    Listed(
        f"{FP8}|f0[24-8]",
        "warp barrier",
        r"at\.V(\.empty\(n\)|_empty)",
        "another one stands right before it, and no lane reads V between the two",
    ),
    Listed(
        FP8,
        "mbarrier wait|second arrival|warp barrier",
        r"wait_until_empty\(turn\); < (if .*)?publish_tile|Q_blocks\.empty",
        "a place follows Q of the turn before, which waits until all have ended the turn two before that: who has, has "
        "read the place of the turn before, four turns ago",
    ),
    Listed(
        FP8,
        "mbarrier wait",
        r"wait_until_full\(n\); < skip_blocks\(at\.Vt, 0",
        "the first of its stage, and blocks are transposed in turn: the wait for the next one waits for it",
    ),
    Listed(
        "attention/decode",
        "warp barrier",
        r"no byte comes before|^__syncwarp\(\); < (if .*)?copier",
        "bytes may come first: a phase is not complete before the one arrival, which says how many they are",
    ),
    Listed(
        "f01|f03",
        "early release",
        r"at\.K_empty \+ 8 \* now",
        "the next copy of a K comes behind that of a V, whose place is free when this product has ended",
    ),
    Listed("f08", "warp barrier", r"at\.ended", "lane 0, which arrives, alone has stored whether a P is lost"),
    Listed(
        "f0[78]", "wgmma fence", r"begin\.stage.*, 1\)", "the second turn has registers of its own, untouched so far"
    ),
    Listed(
        "f07",
        "arrival|second arrival|early release",
        r"at\.Vt_empty \+ 8 \* last",
        "the second turn begins when all have ended the first, and behind it nobody waits",
    ),
    Listed(
        BACKWARD,
        "wgmma wait|wgmma wait for less|early release",
        r"^(wgmma_wait_group<0>\(d[KV]\);|.*arrive_as_warp\(at\.empty)",
        "two waits for all groups follow each other: one is enough",
    ),
    Listed(
        BACKWARD,
        "wgmma commit|early commit",
        r"start_sums<cfg>\(dV",
        "its products join the next group, and both are waited for together",
    ),
    Listed("b05", "wgmma fence", r"multiply_keys", "of dP: nothing touched its registers since the fence ahead of dV"),
    Listed(
        OWN_TILE,
        "mbarrier wait|early release",
        r"at\.dS_empty \+ 8 \* stage",
        "who copies the block has multiplied the dS that had the stage before, and so has its warpgroup",
    ),
    Listed(
        IN_ORDER,
        "mbarrier wait",
        r"compute_dS<true>",
        "of a tile's first block: its K was waited for, which comes when all dS of the tiles before are multiplied",
    ),
    Listed(
        IN_ORDER,
        "mbarrier wait",
        r"at\.empty.* < copier<cfg>\{args, maps, at\}\.copy_all",
        "behind the last tile: the wait for its K knows that all turns are read, as dQ waits for them",
    ),
    Listed(
        OWN_TILE,
        "mbarrier wait",
        r"at\.empty .*(copy_queries<cfg>\(args, maps, at(, all)?, 0\)|copy_step<cfg>\(args, maps, at, all, 0\))",
        "of the first block: its stage is empty",
    ),
    Listed(
        OWN_TILE, "mbarrier wait", r"at\.KV_full, 0", "of warpgroup 0: dS, which it waits for, comes behind K and V"
    ),
    Listed(
        BACKWARD,
        "warp barrier",
        r"arrive_as_warp\(at\.(\w*empty)",
        "its lanes meet at a wgmma behind their last reads: that is of the whole warp",
    ),
    Listed(
        OWN_TILE,
        "warp barrier",
        r"^__syncwarp\(\); < (copy_and_multiply_dQ|multiply_dQ_of_tile)",
        "all lanes wait at an mbarrier for what comes next: this one only brings them together again",
    ),
)
# Stores whose place only their own reader knows: the result is wrong.
READ_BY_OTHERS = (
    Listed("attention/decode", "result", r"part\.(O|lse)", "a part, which another CTA combines"),
    Listed(IN_ORDER, "result", r"store_sums", "sums, which the next tile in order takes up"),
)
# Wrong in orders that the seeds do not have.
BY_ORDER = (
    Listed(
        FP8,
        "mbarrier wait",
        r"wait_until_full\(n\); < skip_blocks\(at\.K, 0",
        "the copy would have to land after the warpgroup has computed S and P of the next block: then it takes this "
        "stage for filled again",
    ),
    Listed(
        IN_ORDER,
        "mbarrier wait",
        r"at\.empty.* < copier<cfg>\{args, maps, at\}\.copy_all",
        "an arrival may count in the phase before, at the end, when nobody waits for either",
    ),
)


@dataclass
class VersionTrials(survivors.Trials):
    """Of a version for sm_90a."""

    listed: tuple[Listed, ...] = SAME
    never: tuple[Listed, ...] = ()
    read_elsewhere: tuple[Listed, ...] = READ_BY_OTHERS
    by_order: tuple[Listed, ...] = BY_ORDER
    tried: frozenset[tuple[str, str]] = frozenset()  # kinds and lines of the source, with other configs

    def place(self, mutant: Mutant) -> tuple[str, str]:
        return mutant.kind, " < ".join(self.sources.lines(self.changed(mutant)))

    def mutants(self) -> list[Mutant]:
        """A share of all, or those that were not tried with another config."""
        found = hopper_mutants(self.text)
        if self.tried:
            return [mutant for mutant in found if self.place(mutant) not in self.tried]
        return [mutant for mutant in found if mutant.ordinal % self.share == 0]

    @property
    def tries_all(self) -> bool:
        return super().tries_all and not self.tried

    @property
    def of_fp8(self) -> bool:
        """Whether it is attention/fp8, whose products take long to emulate."""
        return self.problems[0].config.e4m3_inputs

    @property
    def tries_late(self) -> bool:
        return True

    def schedules(self, mutant: Mutant) -> tuple[int, ...]:
        return SCHEDULES[:2] if self.of_fp8 else SCHEDULES

    def tries(self, mutant: Mutant) -> list[tuple[int, int]]:
        """The problem of attention/fp8 with many Q blocks is for wrong numbers of arrivals alone, in one order."""
        found = super().tries(mutant)
        many = [each for each in found if self.of_fp8 and self.problems[each[0]].heads == MANY_HEADS]
        return [*many[:1] * ("arrival" in mutant.kind), *(each for each in found if each not in many)]

    def changed(self, mutant: Mutant) -> int:
        assert isinstance(mutant, HopperMutant)
        return max(mutant.changes)


@dataclass
class LadderTrials(VersionTrials):
    """Of a version of fp8 or of the backward pass: all that synchronises, and a share of the products and stores."""

    def mutants(self) -> list[Mutant]:
        return [each for each in hopper_mutants(self.text) if each.kind not in DATA or each.ordinal % 8 == 0]

    def schedules(self, mutant: Mutant) -> tuple[int, ...]:
        return SCHEDULES[:2]

    def tries(self, mutant: Mutant) -> list[tuple[int, int]]:
        """Problems of many blocks are for wrong numbers of arrivals alone, in one order."""
        found = survivors.Trials.tries(self, mutant)
        many = [i for i, each in enumerate(self.problems) if isinstance(each, (Narrow, Backward)) and each.many]
        few = sorted((each for each in found if each[0] not in many), key=lambda each: each[1])
        return [*few, *((i, 0) for i in many if (i, 0) in found and "arrival" in mutant.kind)]


def hopper_versions() -> list[Version]:
    return [version for version in [*kernels(), *of_fp8(), *ladders()] if version.for_sm_90a]


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


def try_version(version: Version, folder: Path) -> tuple[list[str], list[dict[str, str]]]:
    """What went unnoticed, and rows of the record, which counts those of fp16.

    Of the further configs of attention/fp8 only what no config before has: mutants of other lines of the source.
    """
    first = VersionTrials(version, "fp16", folder)
    if version in ladders():
        first = LadderTrials(version, "fp16", folder)
        wrong = first.all_wrong()
    elif version not in of_fp8():
        wrong = survivors.all_wrong(first)
    else:  # fp16 and bf16 are of O alone
        before = [VersionTrials(each, "fp16", folder) for each in of_fp8()[: of_fp8().index(version)]]
        first.tried = frozenset(each.place(mutant) for each in before for mutant in each.mutants())
        wrong = first.all_wrong()
    return wrong, rows_of(version.name, first.mutants(), first.same)


def try_versions(names: list[str], folder: Path) -> tuple[list[dict[str, str]], list[str]]:
    rows, wrong = [], []
    for version in hopper_versions():
        if version.name in names:
            found, counted = try_version(version, folder)
            rows, wrong = [*rows, *counted], [*wrong, *found]
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
