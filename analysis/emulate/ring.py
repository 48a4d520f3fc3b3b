"""When a warp copies, reads and releases the stages of its ring: regs/ring.csv, committed for a few versions.

    python3 -m analysis ring v19 v20 --write

v19 to v25 keep K and V blocks in a ring of stages in shared memory, and every thread copies its share of a block.
The emulator's trace of one warp says in which order it copies, waits and multiplies. Positions in that order
are counted in products: position 0 is before the first, position 1 between Q K^T and P V of block 0, position 2 after
both. They are no times: a product takes one position, whatever the warp waits for.
"""

import argparse
import re
from collections.abc import Iterable
from dataclasses import astuple, dataclass, field
from pathlib import Path

from analysis.errors import DIFFERENT, DONE, AnalysisError
from analysis.files import read_text, root, write_if_changed
from analysis.ladder.headers import load
from analysis.measure import executables
from analysis.table import Table, add_table_arguments, print_table, read_columns

COLUMNS = ("version", "block", "stage", "empty_parity", "copied", "full_parity", "awaited", "released")
SEQ, HEADS = 512, 16  # two Q blocks of 256 rows for each of the emulator's 16 multiprocessors
TIMEOUT = 600.0
MBARRIER_BYTES = 8


@dataclass(frozen=True, order=True)
class Stay:
    """A KV block in a stage of the ring, as one warp sees it."""

    version: str
    block: int  # counted for the CTA, over all of its Q blocks
    stage: int
    empty_parity: int  # of the phase of the empty mbarrier that the warp waits for before it copies
    copied: int  # position at which it starts its share of the copy
    full_parity: int  # of the phase of the full mbarrier that it waits for before it reads
    awaited: int  # position at which it begins to read
    released: int  # position at which it arrives at the empty mbarrier


_OP = re.compile(r"cta \d+ warp \d+  (?:\S+:\d+  )?\[\d+\]  (?:@!?%\w+ )?(?P<op>[a-z]\S*?)(?: (?P<rest>.*?))?;")
_VALUE = re.compile(r"        (?P<name>%r\d+) = 0x(?P<value>[0-9a-f]+) in ")
_TRUE = "        p = true in "


@dataclass
class _Reader:
    """Reads the trace of one warp. An mbarrier is known by its address, a phase by its parity."""

    registers: dict[str, int] = field(default_factory=dict)
    asked: tuple[int, int] | None = None  # mbarrier and parity of a test whose answer comes in the next line
    products: int = 0
    last: str = ""
    waits: list[tuple[int, int, int]] = field(default_factory=list)  # mbarrier, parity, position
    copies: list[tuple[int, int]] = field(default_factory=list)  # full mbarrier, position
    releases: list[tuple[int, int]] = field(default_factory=list)  # empty mbarrier, position

    def read(self, lines: Iterable[str]) -> None:
        for line in lines:
            if found := _OP.match(line):
                self._do(found["op"], found["rest"] or "")
            elif found := _VALUE.match(line):
                self.registers[found["name"]] = int(found["value"], 16)
            elif line.startswith(_TRUE) and self.asked:
                self.waits.append((*self.asked, self.products))
                self.asked = None

    def _operands(self, rest: str) -> list[int]:
        names = re.findall(r"%r\d+|\b\d+\b", rest.partition("[")[2])
        return [self.registers.get(name, 0) if name.startswith("%") else int(name) for name in names]

    def _do(self, op: str, rest: str) -> None:
        if op.startswith("mbarrier.test_wait.parity"):
            barrier, parity = self._operands(rest)[:2]
            self.asked = barrier, parity & 1
        elif op.startswith("cp.async.mbarrier.arrive"):
            self.copies.append((self._operands(rest)[0], self.products))
        elif op.startswith("mbarrier.arrive"):
            self.releases.append((self._operands(rest)[0], self.products))
        elif op.startswith("ldmatrix"):  # of Q and K, or transposed of V
            kind = "V" if ".trans" in op else "QK"
            self.products += kind != self.last
            self.last = kind


def stays_of(version: str, trace: Iterable[str]) -> list[Stay]:
    """The blocks that pass through the ring in the trace of one warp."""
    reader = _Reader()
    reader.read(trace)
    if not reader.copies or not reader.releases:
        raise AnalysisError(f"{version}: the trace contains no ring of cp.async copies; use v19 or a later version")
    full, empty = min(barrier for barrier, _ in reader.copies), min(barrier for barrier, _ in reader.releases)
    stages = (empty - full) // MBARRIER_BYTES
    before_copy = [wait for wait in reader.waits if wait[0] >= empty]
    before_read = [wait for wait in reader.waits if wait[0] < empty]
    counts = {len(events) for events in (reader.copies, reader.releases, before_copy, before_read)}
    if len(counts) != 1:
        raise AnalysisError(f"{version}: the trace ends within a block: {sorted(counts)} copies, waits and releases")
    stays = []
    for block, ((barrier, copied), (_, empty_parity, _), (_, full_parity, awaited), (_, released)) in enumerate(
        zip(reader.copies, before_copy, before_read, reader.releases, strict=True)
    ):
        stage = (barrier - full) // MBARRIER_BYTES % stages
        stays.append(Stay(version, block, stage, empty_parity, copied, full_parity, awaited, released))
    return stays


def emulate_ring(version: str) -> list[Stay]:
    """Run a built version on the emulator, and trace the first warp of its first CTA."""
    arguments = (
        f"--backend emu --no-check --checks off --batch 1 --heads {HEADS} --seq {SEQ} --trace cta=0,warp=0,lane=0"
    )
    outcome = executables.checked(executables.run(executables.find(version), arguments.split(), TIMEOUT))
    return stays_of(version, outcome.stdout.splitlines())


# ---- the committed file ----------------------------------------------------------------------------------------------


def ring_path(folder: Path) -> Path:
    return folder / "regs/ring.csv"


def read_ring(folder: Path) -> dict[str, list[Stay]]:
    """Version to its blocks from the committed file; empty when there is none."""
    path = ring_path(folder)
    found: dict[str, list[Stay]] = {}
    if path.exists():
        for where, row in read_columns(read_text(path), COLUMNS, str(path)):
            try:
                stay = Stay(row["version"], *(int(row[name]) for name in COLUMNS[1:]))
            except ValueError as error:
                raise AnalysisError(f"{where}: {error}") from None
            found.setdefault(stay.version, []).append(stay)
    return found


def add_ring_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("versions", nargs="*", metavar="VER", help="built versions (those of regs/ring.csv)")
    parser.add_argument(
        "--write", action="store_true", help="write them to regs/ring.csv and keep the rows of other versions"
    )
    parser.add_argument("--exit-code", action="store_true", help="exit status 1 if regs/ring.csv differs")
    add_table_arguments(parser)


def run_ring(args: argparse.Namespace) -> int:
    recorded = read_ring(root())
    chosen = args.versions or list(recorded)
    if not chosen:
        raise AnalysisError("regs/ring.csv: not found; name the versions to emulate, such as v19 v20")
    fresh = {load(root(), name).version: emulate_ring(name) for name in chosen}
    shown = recorded | fresh if args.write else fresh
    table = Table(COLUMNS, [astuple(stay) for _, stays in sorted(shown.items()) for stay in stays])
    if args.write:
        write_if_changed(ring_path(root()), table.csv())
    else:
        print_table(table, args)
    return DIFFERENT if args.exit_code and any(recorded.get(name) != stays for name, stays in fresh.items()) else DONE
