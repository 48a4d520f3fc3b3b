"""One sheet on a step of the ladder: what it meant to do, what changed in the machine code, what resulted.

    python3 -m analysis why v09 v10

Figures that do not exist, because nothing was measured or built, are said to be missing and never guessed. The verdict
is one of VERDICTS: it compares what the machine code suggests with what was measured.
"""

import argparse
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from analysis.building import built
from analysis.emulate.traffic import modelled_traffic
from analysis.errors import DONE, AnalysisError
from analysis.files import root
from analysis.ladder.headers import Version, changed_lines, load
from analysis.ladder.pairs import Pair, pair_named
from analysis.machine_code.bounds import UNKNOWN, Bound, executed, loop_bound
from analysis.machine_code.live import LIVE_OPTIONS, LiveLoop, read_live
from analysis.machine_code.loops import add_loop_argument, print_note
from analysis.machine_code.occupancy import Occupancy, occupancy_of
from analysis.machine_code.sass_diff import (
    IDENTICAL,
    MATRIX_INSTRUCTION,
    RENAMED,
    WARP_TILE,
    WHOLE_PASS,
    Change,
    change_table,
    compare,
)
from analysis.machine_code.subjects import Pending, Subject, add_arch_argument, resolve, start
from analysis.machine_code.traffic import TRAFFIC
from analysis.measure import records
from analysis.measure.compare import comparisons
from analysis.measure.records import Record
from analysis.measure.stats import SAME_WITHIN, Verdict
from analysis.table import Cell, Table, add_output_arguments, emit, json_text

# The expected effect of the loop, by recorded measurements ("" if there are none, or none that are certain).
VERDICTS = {
    ("identical", ""): "identical machine code",
    ("identical", "SAME"): "identical machine code",
    ("identical", "FASTER"): "identical machine code, other time: measure again",
    ("identical", "SLOWER"): "identical machine code, other time: measure again",
    ("elsewhere", ""): "same loop, elsewhere",
    ("elsewhere", "SAME"): "same loop, elsewhere; no difference in time",
    ("elsewhere", "FASTER"): "same loop, elsewhere; run faster",
    ("elsewhere", "SLOWER"): "same loop, elsewhere; run slower",
    ("shorter", ""): "loop shorter",
    ("shorter", "SAME"): "loop shorter, no difference in time",
    ("shorter", "FASTER"): "loop shorter, run faster",
    ("shorter", "SLOWER"): "counts and timing disagree: shorter loop, slower run",
    ("longer", ""): "loop longer",
    ("longer", "SAME"): "loop longer, no difference in time",
    ("longer", "FASTER"): "counts and timing disagree: longer loop, faster run",
    ("longer", "SLOWER"): "loop longer, run slower",
    ("other work", ""): "one loop multiplies without matrix instructions",
    ("other work", "SAME"): "one loop multiplies without matrix instructions; no difference in time",
    ("other work", "FASTER"): "one loop multiplies without matrix instructions; run faster",
    ("other work", "SLOWER"): "one loop multiplies without matrix instructions; run slower",
    ("rearranged", ""): "loop rearranged, as long as before",
    ("rearranged", "SAME"): "loop rearranged, no difference in time",
    ("rearranged", "FASTER"): "loop rearranged, run faster",
    ("rearranged", "SLOWER"): "loop rearranged, run slower",
}
SHORTER_BY = 0.005  # a loop is called shorter or longer from this share of its instructions on


@dataclass(frozen=True)
class Side:
    """One version as the sheet sees it."""

    version: Version
    subject: Subject
    loop: LiveLoop
    bound: Bound
    occupancy: Occupancy | None
    traffic: dict[str, int] | None  # totals of the emulator's counters

    def work(self, unit: str) -> float:
        """Executed instructions of a pass for each unit of a Change; dummies are not executed."""
        parts = self.loop.parts
        if unit == WHOLE_PASS:
            return executed(parts)
        return executed(parts) / ((parts.matrix_work if unit == WARP_TILE else parts.matrix_count) or 1)

    def local_memory(self) -> int:
        return sum(at.base in ("LDL", "STL") for at in self.loop.parts.loop)


@dataclass(frozen=True)
class Sheet:
    a: Side
    b: Side
    pair: Pair
    source_lines: int
    change: Change
    measured: list[tuple[str, Verdict]]  # problem and verdict
    measured_arch: str | None  # of the GPU that the times are of; None where there are none

    @property
    def expectation(self) -> str:
        loop = self.change.region("loop")
        if self.change.identical:
            return "identical"
        if loop is not None and loop.likeness in (IDENTICAL, RENAMED):
            return "elsewhere"
        if bool(self.a.loop.parts.matrix_count) != bool(self.b.loop.parts.matrix_count):
            return "other work"
        before, after = self.a.work(self.change.unit), self.b.work(self.change.unit)
        if abs(after - before) < SHORTER_BY * before:
            return "rearranged"
        return "shorter" if after < before else "longer"

    @property
    def outcome(self) -> str:
        """The measured verdict when the problems agree: SAME counts with either, a contradiction is no outcome."""
        words = {verdict.word for _, verdict in self.measured} - {"SAME", "UNSURE"}
        if len(words) == 1:
            return words.pop()
        return "SAME" if not words and any(verdict.word == "SAME" for _, verdict in self.measured) else ""

    @property
    def verdict(self) -> str:
        return VERDICTS[self.expectation, self.outcome]


def read_sheet(
    a_name: str, b_name: str, arch: str | None, config: str | None, emulate: bool = True, wanted: str | None = None
) -> Sheet:
    a, b = load(root(), a_name), load(root(), b_name)
    pair = pair_named(a_name, b_name, config)
    found, measured_arch = _measured(a_name, b_name, pair)
    if emulate:
        built(a.stem, b.stem)
    subjects = [resolve(name, arch, choice) for name, choice in ((a_name, pair.a), (b_name, pair.b))]
    pending = [start(subject, LIVE_OPTIONS) for subject in subjects]
    sides = [_side(version, each, emulate, wanted) for version, each in zip((a, b), pending, strict=True)]
    change = compare(sides[0].loop.parts, sides[1].loop.parts)
    return Sheet(sides[0], sides[1], pair, changed_lines(a, b), change, found, measured_arch)


def _side(version: Version, pending: Pending, emulate: bool, wanted: str | None) -> Side:
    subject = pending.subject
    cubin, kernel = subject.cubin_or_refuse("why")
    loop = read_live(pending, wanted)
    print_note(subject.name, loop.parts)
    config = subject.config
    resident = occupancy_of(cubin.arch, kernel.registers, config) if config and kernel.registers else None
    traffic = modelled_traffic(subject) if emulate else None
    return Side(version, subject, loop, loop_bound(loop.parts), resident, traffic)


# ---- figures from elsewhere ------------------------------------------------------------------------------------------

_TRAFFIC_TITLES = ("instructions", "shared wavefronts", "... without conflict", "global sectors")


def _measured(a: str, b: str, pair: Pair) -> tuple[list[tuple[str, Verdict]], str | None]:
    """Verdicts by problem from logs/bench, and the architecture of the device they were measured on."""
    found: list[tuple[str, Verdict]] = []
    arch = None
    for path in sorted((root() / "logs" / "bench").glob("*.jsonl")):
        measured = records.records_in(path)
        first = [each for each in measured if each.subject == a and each.config in ("", str(pair.a))]
        second = [each for each in measured if each.subject == b and each.config in ("", str(pair.b))]
        common = {each.problem for each in first} & {each.problem for each in second}
        first = [each for each in first if each.problem in common]
        second = [each for each in second if each.problem in common]
        if not common:
            continue
        for one in comparisons(_unlabelled(first, "A"), _unlabelled(second, "B"), SAME_WITHIN):
            found.append((f"{first[0].device}, {one.problem}", one.verdict))
        arch = arch or device_arch(first[0].raw)
    return found, arch


def _unlabelled(found: list[Record], subject: str) -> list[Record]:
    """The records under one name, so that the two sides pair whatever they are called."""
    return [replace(each, subject=subject, raw={**each.raw, "run": {}}) for each in found]


def device_arch(raw: dict[str, Any]) -> str | None:
    """sm_90 from a record's device.cc, which is "9.0", 9.0, 90 or [9, 0]."""
    cc = (raw.get("device") or {}).get("cc")
    digits = "".join(str(part) for part in cc) if isinstance(cc, list) else str(cc or "").replace(".", "")
    return f"sm_{digits}" if digits.isdecimal() and len(digits) >= 2 else None


# ---- printing --------------------------------------------------------------------------------------------------------


def figures_table(sheet: Sheet) -> Table:
    """Static and modeled figures of both sides."""
    rows: list[list[Cell]] = []

    def add(name: str, values: list[int | float | str | None]) -> None:
        before, after = values
        delta = after - before if isinstance(before, (int, float)) and isinstance(after, (int, float)) else None
        rows.append([name, before, after, None if delta is None else round(delta, 3)])

    sides = (sheet.a, sheet.b)
    add("loop instructions", [len(side.loop.parts.loop) for side in sides])
    add("matrix instructions in it", [side.loop.parts.matrix_count for side in sides])
    unit = sheet.change.unit
    each = "executed instructions each" if unit == MATRIX_INSTRUCTION else f"executed per {unit}"
    add(each, [round(side.work(unit), 3) for side in sides])
    add("local memory in the loop", [side.local_memory() for side in sides])
    add("registers", [side.loop.registers for side in sides])
    add("most live in the loop", [side.loop.most()[0] for side in sides])
    add("CTAs per SM", [side.occupancy.ctas if side.occupancy else None for side in sides])
    add("limited by", [side.occupancy.limit if side.occupancy else None for side in sides])
    add("bound: one warp alone, cycles", [side.bound.issue_cycles for side in sides])
    bindings = [side.bound.binding for side in sides]
    add("bound: pipe cycles", [round(each.cycles, 1) if each and each.cycles else None for each in bindings])
    add("binding pipe", [each.pipe if each else UNKNOWN for each in bindings])
    for name, title in zip(TRAFFIC, _TRAFFIC_TITLES, strict=True):
        if all(side.traffic for side in sides):
            add(f"modeled {title}", [(side.traffic or {}).get(name) for side in sides])
    return Table(("figure", sheet.a.version.version, sheet.b.version.version, "delta"), rows)


def format_sheet(sheet: Sheet) -> str:
    a, b = sheet.a, sheet.b
    header = b.version.header
    lines = [
        f"# {a.version.version} -> {b.version.version}: {sheet.verdict}",
        "",
        f"{header.version}: {header.title}",
        f"idea: {header.idea}",
        f"predicted: {header.predict or 'nothing'}",
        f"source: {sheet.source_lines} lines changed",
        f"config: {sheet.pair.rule}",
        *(f"  {side.version.version}: {side.subject.label}" for side in (a, b)),
        f"architecture: {' and '.join(dict.fromkeys(side.subject.arch for side in (a, b)))}",
        "",
        figures_table(sheet).markdown(),
    ]
    if not (a.traffic and b.traffic):
        lines += ["modeled memory traffic: not built, or the executable has no such config", ""]
    lines += ["## Measured", ""]
    for problem, verdict in sheet.measured:
        lines.append(f"{problem}: {verdict.word}, {verdict.speedup} times as fast ({verdict.reason})")
    if sheet.measured_arch not in (None, a.subject.arch):
        lines += [
            "",
            f"These times are of {sheet.measured_arch}, the machine code on this sheet is of {a.subject.arch}: "
            f"--arch {sheet.measured_arch} shows the code that was timed.",
        ]
    if not sheet.measured:
        lines.append("not measured: logs/bench holds no run of both")
    lines += ["", "## Machine code", "", f"{sheet.change.verdict}", ""]
    for region in sheet.change.regions:
        rows = [row[1:] for row in change_table(sheet.change, False).rows if row[0] == region.region]
        lines.append(f"{region.region}: {region.likeness}")
        if region.likeness != IDENTICAL:
            lines += ["", Table(("instruction", "before", "after", "delta", "relative"), rows[:16]).markdown()]
    return "\n".join(lines).rstrip() + "\n"


def sheet_record(sheet: Sheet) -> dict[str, object]:
    header = sheet.b.version.header
    return {
        "a": sheet.a.version.version,
        "b": sheet.b.version.version,
        "verdict": sheet.verdict,
        "title": header.title,
        "idea": header.idea,
        "predict": header.predict,
        "source_lines": sheet.source_lines,
        "a_config": str(sheet.pair.a),
        "b_config": str(sheet.pair.b),
        "rule": sheet.pair.rule,
        "arch": sheet.a.subject.arch,
        "measured_arch": sheet.measured_arch,
        "machine_code": sheet.change.verdict,
        "figures": json.loads(figures_table(sheet).json())["rows"],
        "measured": [
            {
                "problem": problem,
                "verdict": verdict.word,
                "speedup": [verdict.speedup.low, verdict.speedup.mid, verdict.speedup.high],
            }
            for problem, verdict in sheet.measured
        ],
    }


def add_why_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("a", metavar="A", help="the earlier version")
    parser.add_argument("b", metavar="B", help="the later version")
    add_arch_argument(parser)
    parser.add_argument("--config", metavar="CONFIG", help="short form used on both sides")
    add_loop_argument(parser)
    parser.add_argument("--no-emulator", action="store_true", help="leave out the modeled memory traffic")
    add_output_arguments(parser)


def run_why(args: argparse.Namespace) -> int:
    for name in (args.a, args.b):
        if Path(name).suffix:
            raise AnalysisError(f"{name}: must be a version, such as v07; sass-diff also compares files")
    sheet = read_sheet(args.a, args.b, args.arch, args.config, not args.no_emulator, args.loop)
    emit(json_text(sheet_record(sheet)) if args.json else format_sheet(sheet), args.output)
    return DONE
