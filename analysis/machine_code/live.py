"""Live registers over the KV loop, as nvdisasm's data-flow analysis counts them, and what they allow on an SM.

    table = live_registers(text_of_lrm)      # address to the number of live registers of each kind
    lines = live_by_line(listing, loop)      # most live registers of every source line of the kernel

The register file is 64 K registers per SM, given to warps in units of 256, so that occupancy falls in steps. If warps
have roles, setmaxnreg sets each role's number of registers, and its live registers are shown next to that limit.
"""

import argparse
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from analysis.errors import DONE, AnalysisError
from analysis.ladder.config import KernelConfig
from analysis.machine_code.liveness import count_live
from analysis.machine_code.loops import add_loop_argument, parts_of, print_note
from analysis.machine_code.maps import MapRow, location_order, note_newer_sources, source_line, source_map
from analysis.machine_code.notes import note
from analysis.machine_code.occupancy import occupancy_of, register_steps
from analysis.machine_code.regions import Graph, Parts
from analysis.machine_code.sass import Listing, parse_listing, with_control
from analysis.machine_code.subjects import Pending, Subject, add_subject_arguments, start, subjects_of
from analysis.machine_code.warp_roles import WarpRole, roles_in
from analysis.table import Cell, Table, add_table_arguments, emit, json_text, print_table

NO_DATA_FLOW = "flow analysis is disabled"  # nvdisasm says so, and prints nothing
LIVE_OPTIONS = ("-lrm", "count")  # nvdisasm prints the number of live registers next to each instruction

_COLUMNS = re.compile(r"//\s*\|((?:\s*[A-Z]+\s*\|)+)\s*$")
_CELLS = re.compile(r"/\*([0-9a-f]{4,})\*/.*//\s*\|((?:[^|]*\|)+)\s*$")


def live_registers(text: str, name: str) -> dict[int, dict[str, int]]:
    """Address to live registers by file (GPR, PRED, UGPR, ...) from a listing with `-lrm count`."""
    columns: list[str] = []
    live: dict[int, dict[str, int]] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        header = _COLUMNS.search(line)
        if header:
            columns = [word.strip() for word in header[1].strip().strip("|").split("|")]
            continue
        found = _CELLS.search(line)
        if found and columns:
            cells = [cell.strip() for cell in found[2].rstrip("|").split("|")]
            if len(cells) != len(columns) or not all(cell.isdecimal() or not cell for cell in cells):
                raise AnalysisError(f"{name}:{number}: live registers not understood: {line.strip()[-60:]!r}")
            live[int(found[1], 16)] = {c: int(cell) if cell else 0 for c, cell in zip(columns, cells, strict=True)}
    if not live:
        raise AnalysisError(f"{name}: no column of live registers: nvdisasm gave up its data-flow analysis")
    return live


@dataclass(frozen=True)
class LiveLoop:
    parts: Parts
    registers: int | None  # allocated by ptxas
    live: dict[int, dict[str, int]]

    def most(self, kind: str = "GPR") -> tuple[int, int]:
        """Most live registers in the loop and the address where."""
        return max((self.live[at.address].get(kind, 0), -at.address) for at in self.parts.loop)

    def record(self) -> dict[str, object]:
        most, at = self.most()
        entry = self.live[self.parts.loop[0].address].get("GPR", 0)
        return {"at_entry": entry, "most": most, "at": f"{-at:04x}", "allocated": self.registers}

    @cached_property
    def roles(self) -> list["LiveRole"]:
        """The live registers of each role of the kernel's warps; none where it has no setmaxnreg."""
        return [live_in(role, self.live, self.registers) for role in roles_in(self.parts.graph)]

    @property
    def limit(self) -> int | None:
        """Registers that a thread has in the loop."""
        first = self.parts.loop[0]
        return next((each.limit for each in self.roles if first in each.role.code), self.registers)


@dataclass(frozen=True)
class LiveRole:
    """The registers that the code of one role needs, of those that its warps have."""

    role: WarpRole
    limit: int | None
    most: int
    at: int  # the address where most are live

    @property
    def over(self) -> int:
        """Registers beyond the limit, live or named."""
        named = 0 if self.role.highest is None else self.role.highest + 1
        return max(0, max(self.most, named) - self.limit) if self.limit is not None else 0

    def cells(self) -> list[Cell]:
        note = f"{self.over} over the limit" if self.over else ""
        count = len(self.role.code)
        highest = None if self.role.highest is None else f"R{self.role.highest}"
        return [self.role.name, self.limit, self.most, f"{self.at:04x}", highest, count, note]


ROLE_COLUMNS = ("role", "limit", "most live", "at", "highest", "instructions", "note")


def live_in(role: WarpRole, live: "Live", at_entry: int | None) -> LiveRole:
    """The most live registers of a role; `at_entry` are those that ptxas allocated."""
    counts = [(live.get(at.address, {}).get("GPR", 0), -at.address) for at in role.code]
    most, at = max(counts)
    return LiveRole(role, at_entry if role.limit is None else role.limit, most, -at)


Live = dict[int, dict[str, int]]  # address to live registers by file (GPR, PRED, UGPR, ...)


def read_live(pending: Pending, wanted: str | None = None) -> LiveLoop:
    """A KV loop, as parts_of() chooses it, of a subject that was started with LIVE_OPTIONS."""
    listing, live = live_everywhere(pending)
    _, kernel = pending.subject.cubin_or_refuse("live registers")
    return LiveLoop(parts_of(listing, wanted, pending.subject), kernel.registers, live)


def live_everywhere(pending: Pending) -> tuple[Listing, Live]:
    """A kernel that was started with LIVE_OPTIONS, and what is live at every instruction.

    nvdisasm disables its analysis for the cubins of ptxas 11.8 to 12.9; then liveness.py counts.
    """
    subject = pending.subject
    cubin, kernel = subject.cubin_or_refuse("live registers")
    assert pending.job is not None
    name = f"nvdisasm of {subject.name}"
    try:
        text = pending.job.text()
    except AnalysisError as error:
        if NO_DATA_FLOW not in str(error):
            raise
        note(f"{subject.name}: nvdisasm does not analyze the data flow of this cubin: live registers are counted here")
        listing = start(subject).listing()
        return listing, {at: {"GPR": live} for at, live in count_live(Graph(listing)).items()}
    listing = next(each for each in parse_listing(text, name) if each.symbol == kernel.symbol)
    return with_control(replace(listing, arch=cubin.arch), kernel), live_registers(text, name)


@dataclass(frozen=True)
class LiveLine:
    """A source line with the calls inlined into it."""

    location: str  # "file:line"
    most: int  # live registers where most are live
    at: int  # the first address of that
    in_loop: int | None  # the most inside the loop; None where none of its instructions is there
    instructions: int


def live_by_line(rows: Iterable[MapRow], live: Live, loop: Collection[int]) -> list[LiveLine]:
    """The lines that the instructions of `rows` come from, file by file. `loop` holds addresses."""
    by_place: dict[str, list[int]] = {}
    for row in rows:
        if row.instruction.address in live:
            for location in dict.fromkeys(row.source):
                by_place.setdefault(location, []).append(row.instruction.address)
    found = []
    for location, addresses in by_place.items():
        counts = {at: live[at].get("GPR", 0) for at in addresses}
        most = max(counts.values())
        first = min(at for at in addresses if counts[at] == most)
        inside = max((counts[at] for at in addresses if at in loop), default=None)
        found.append(LiveLine(location, most, first, inside, len(addresses)))
    return sorted(found, key=lambda each: location_order(each.location))


def lines_table(subject: Subject, loop: LiveLoop) -> Table:
    """Every source line of a kernel with its live registers and its text, as far as the file is there."""
    _, rows = source_map(subject)
    note_newer_sources(subject, rows)
    inside = {at.address for at in loop.parts.loop}
    cells: list[list[Cell]] = []
    for line in live_by_line(rows, loop.live, inside):
        text = source_line(line.location).strip()
        cells.append([line.location, line.most, f"{line.at:04x}", line.in_loop, line.instructions, text[:60]])
    return Table(("line", "live", "at", "in the loop", "instructions", "source"), cells)


def live_table(loop: LiveLoop, every: bool) -> Table:
    """The loop cut in sixteen stretches with the most live registers of each, or every instruction."""
    code = loop.parts.loop
    step = 1 if every else max(1, -(-len(code) // 16))
    rows: list[list[Cell]] = []
    for first in range(0, len(code), step):
        stretch = code[first : first + step]
        peak = max(stretch, key=lambda at: loop.live[at.address].get("GPR", 0))
        counts = loop.live[peak.address]
        rows.append(
            [
                f"{stretch[0].address:04x}",
                len(stretch),
                counts.get("GPR", 0),
                counts.get("UGPR"),
                counts.get("PRED"),
                peak.text[:60],
            ]
        )
    return Table(("from", "instructions", "live", "uniform", "predicates", "at most at"), rows)


def occupancy_lines(loop: LiveLoop, config: KernelConfig | None) -> list[str]:
    arch = loop.parts.listing.arch
    most, at = loop.most()
    allocated = f"{loop.registers}" + (f" at entry, {loop.limit} here" if loop.roles else "")
    lines = [f"most live registers in the loop: {most} at {-at:04x}; allocated: {allocated}"]
    if config is not None and loop.registers:
        now = occupancy_of(arch, loop.registers, config)
        lines.append(f"{now.ctas} CTAs per SM on {arch}, limited by {now.limit}")
        for ctas, registers in register_steps(config.threads()):
            mark = " <- here" if ctas == now.by_registers else ""
            if ctas <= now.by_registers + 2:
                lines.append(f"  up to {registers} registers: {ctas} CTAs{mark}")
    return lines


def summary_table(subjects: Sequence[Subject], loops: Sequence[LiveLoop]) -> Table:
    """One row a subject."""
    rows: list[list[Cell]] = []
    for subject, loop in zip(subjects, loops, strict=True):
        config = subject.config
        resident = occupancy_of(subject.arch, loop.registers, config) if config and loop.registers else None
        ctas, limit = (resident.ctas, resident.limit) if resident else (None, None)
        rows.append([subject.name, subject.arch, loop.most()[0], loop.limit, loop.registers, ctas, limit])
    return Table(("subject", "arch", "most live", "limit", "allocated", "CTAs per SM", "limited by"), rows)


def add_live_arguments(parser: argparse.ArgumentParser) -> None:
    add_subject_arguments(parser, many=True)
    add_loop_argument(parser)
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--every", action="store_true", help="list every instruction of the loop")
    shown.add_argument("--lines", action="store_true", help="list the source lines of one entire kernel; "
                       "--sort=-live puts the fullest first")  # fmt: skip
    add_table_arguments(parser)


def run_live(args: argparse.Namespace) -> int:
    subjects = subjects_of(args)
    for subject in subjects:
        subject.cubin_or_refuse("live registers")
    loops = [read_live(pending, args.loop) for pending in [start(subject, LIVE_OPTIONS) for subject in subjects]]
    for subject, one in zip(subjects, loops, strict=True):
        print_note(subject.name, one.parts)
    if args.lines:
        if len(subjects) > 1:
            raise AnalysisError("--lines: accepts one version or file at a time")
        print_table(lines_table(subjects[0], loops[0]), args)
        return DONE
    if len(subjects) > 1:
        print_table(summary_table(subjects, loops), args)
        return DONE
    loop, config = loops[0], subjects[0].config
    if args.json:
        steps = register_steps(config.threads()) if config else []
        record = {
            **loop.record(),
            "steps": [{"ctas": ctas, "registers": most} for ctas, most in steps],
            "roles": [dict(zip(ROLE_COLUMNS, each.cells(), strict=True)) for each in loop.roles],
            "loop": [{"address": f"{at.address:04x}", **loop.live[at.address]} for at in loop.parts.loop],
        }
        emit(json_text(record), args.output)
        return DONE
    print_table(live_table(loop, args.every), args)
    if not args.csv:
        emit("\n" + "\n".join(occupancy_lines(loop, config)) + "\n", None)
        if loop.roles:
            emit("\n" + Table(ROLE_COLUMNS, [each.cells() for each in loop.roles]).text(), None)
    return DONE
