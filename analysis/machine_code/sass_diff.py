"""Changes in the machine code between two kernels, loop first: `python3 -m analysis sass-diff v10 v11`.

    change = compare(parts_of(before), parts_of(after))
    print(change.verdict)

Counts are compared region by region. If the loops hold different numbers of matrix instructions, because tiles differ,
counts are divided by them. Regions with the same instructions are compared by control code: stall counts, yields,
scoreboards and reuse flags. The aligned text diff can rename registers away, so that moves of a value to another
register do not show. Everything else that the driver and the hardware read of a kernel counts as well (contents.py).
Two files are compared completely, kernel by kernel (library.py), unless --config chooses one kernel.
"""

import argparse
import difflib
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from analysis.errors import DIFFERENT, DONE, AnalysisError, NothingInCommon
from analysis.files import in_checkout
from analysis.ladder.config import KernelConfig
from analysis.ladder.headers import VERSION
from analysis.ladder.pairs import pair_named
from analysis.machine_code.contents import CODE, FactChange, changed_facts, describe, facts_of
from analysis.machine_code.counts import SUMMARY_ROWS, TOTAL, Counts, count_instructions, row_names
from analysis.machine_code.images import is_binary
from analysis.machine_code.library import (
    OTHER_NOPS,
    Library,
    LibraryChange,
    diff_folders,
    diff_libraries,
    follows_code,
    read_contents,
)
from analysis.machine_code.loops import add_loop_argument, parts_in, print_note
from analysis.machine_code.names import add_filter_argument
from analysis.machine_code.regions import REGIONS, WHOLE, Graph, Parts, unsplit
from analysis.machine_code.sass import INDIRECT, Instruction, Listing
from analysis.machine_code.subjects import A_VERSION, Subject, add_arch_argument, resolve, start
from analysis.table import Cell, Table, add_table_arguments, emit, json_text, print_table

IDENTICAL, RESCHEDULED = "identical", "same instructions, other control codes"
RENAMED, REORDERED, DIFFERS = "other registers", "same counts, other order", "different"
STALLS = "stall cycles"
REGISTER = re.compile(r"\b(UR|UP|R|P|B)(?:\d+)\b")
MATRIX_INSTRUCTION = "matrix instruction"
WARP_TILE = "m16n8k16 of a warp"  # the work of one HMMA.16816
WHOLE_PASS = "pass"
EXAMPLE = "v10 v11" if in_checkout() else "old.cubin new.cubin"


@dataclass(frozen=True)
class Row:
    """One instruction family in one region; values are per matrix instruction when the change is normalized."""

    name: str
    before: float
    after: float

    @property
    def delta(self) -> float:
        return self.after - self.before

    @property
    def relative(self) -> float | None:
        return self.delta / self.before if self.before else None


@dataclass(frozen=True)
class ControlChange:
    """The differences in control codes of a region in which both sides have the same instructions in the same order."""

    instructions: int  # with another code
    stalls: int  # with another stall count
    yields: int
    scoreboards: int  # which they set, or wait for
    reuse: int  # reuse flags
    stall_cycles: int  # sum of the stall counts after, less that before

    def __str__(self) -> str:
        parts = ((self.stalls, "stall counts"), (self.yields, "yields"), (self.scoreboards, "scoreboards"))
        counted = [f"{number} {name}" for number, name in (*parts, (self.reuse, "reuse flags")) if number]
        return f"{self.instructions} control codes differ: {', '.join(counted)}"


@dataclass(frozen=True)
class RegionChange:
    region: str
    likeness: str  # IDENTICAL, RESCHEDULED, RENAMED, REORDERED or DIFFERS
    rows: tuple[Row, ...]  # totals first, then by |delta|; rows that did not change are last
    control: ControlChange | None = None  # None: other instructions, or a side without control codes


@dataclass(frozen=True)
class Change:
    normalized: bool
    regions: tuple[RegionChange, ...]
    controlled: bool = True  # both sides have control codes
    unit: str = MATRIX_INSTRUCTION  # what counts are divided by, where they are
    facts: tuple[FactChange, ...] = ()  # what else differs, of two cubins

    def region(self, name: str) -> RegionChange | None:
        return next((each for each in self.regions if each.region == name), None)

    @property
    def identical(self) -> bool:
        """Nothing differs, control codes included where both sides have them."""
        return not self.facts and self.same_instructions

    @property
    def same_instructions(self) -> bool:
        return all(each.likeness == IDENTICAL for each in self.regions)

    @property
    def also(self) -> str:
        """The differences other than instructions; "" if there are none."""
        same = self.same_instructions
        others = describe(change for change in self.facts if change[0] != CODE and (same or not follows_code(*change)))
        nops = same and any(name == CODE for name, _, _ in self.facts)
        return "; ".join(part for part in (OTHER_NOPS if nops else "", others) if part)

    @property
    def verdict(self) -> str:
        """One sentence."""
        if self.same_instructions:
            if self.facts:
                return f"identical instructions, but {self.also}"
            return "identical machine code" if self.controlled else "identical instructions; control codes not compared"
        loop = self.region("loop") or self.region(WHOLE)
        what = loop.region if loop and loop.region == "loop" else "kernel"
        likeness = loop.likeness if loop else DIFFERS
        elsewhere = [each.region for each in self.regions if each is not loop and each.likeness != IDENTICAL]
        if likeness == IDENTICAL:
            kinds = {each.likeness for each in self.regions if each.region in elsewhere}
            where = "elsewhere other control codes" if kinds == {RESCHEDULED} else "elsewhere"
            return f"identical loop, {where}: {', '.join(elsewhere)}"
        if likeness == RESCHEDULED and loop and loop.control:
            rest = [each.region for each in self.regions if each.likeness not in (IDENTICAL, RESCHEDULED)]
            cycles = (
                f"{loop.control.stall_cycles:+d} stall cycles" if loop.control.stall_cycles else "other control codes"
            )
            return f"same instructions, {cycles} in the {what}" + (f"; elsewhere: {', '.join(rest)}" if rest else "")
        if likeness == RENAMED:
            control = loop.control if loop else None
            also = f" and control codes, {control.stall_cycles:+d} stall cycles" if control else " only"
            return f"the {what} differs in registers{also}"
        if likeness == REORDERED:
            return f"the {what} has the same opcode counts in another order"
        total = next(row for row in loop.rows if row.name == TOTAL) if loop else None
        if total is None or total.delta == 0:
            return f"the {what} has other instructions, as many as before"
        unit = f" instructions per {self.unit}" if self.normalized else " instructions"
        return f"{what} {_number(total.before)} -> {_number(total.after)}{unit}"


def compare(before: Parts, after: Parts, modifiers: bool = False, per_matrix: bool = False) -> Change:
    divisors, unit = _divisors(before, after)
    normalized = divisors[0] != divisors[1] or (per_matrix and unit != WHOLE_PASS)
    regions = []
    for name in (WHOLE, *REGIONS):
        a, b = before.regions.get(name, ()), after.regions.get(name, ())
        if a or b:
            regions.append(_compare_region(name, a, b, before, after, modifiers, divisors if normalized else (1, 1)))
    order = sorted(regions, key=lambda each: each.region != "loop")
    return Change(normalized, tuple(order), _controlled(before.listing.body) and _controlled(after.listing.body), unit)


def _divisors(before: Parts, after: Parts) -> tuple[tuple[float, float], str]:
    """The divisor of each side's counts: matrix instructions, or their work if they are of two kinds.

    A loop without matrix instructions is counted as it is, and so is what it is compared with.
    """
    if not (before.matrix_count and after.matrix_count):
        return (1, 1), WHOLE_PASS
    if before.graph.matrix is not after.graph.matrix and before.matrix_work and after.matrix_work:
        return (before.matrix_work, after.matrix_work), WARP_TILE
    return (before.matrix_count, after.matrix_count), MATRIX_INSTRUCTION


def _controlled(code: Sequence[Instruction]) -> bool:
    return all(at.control is not None for at in code)


def _compare_region(
    name: str,
    a: Sequence[Instruction],
    b: Sequence[Instruction],
    before: Parts,
    after: Parts,
    modifiers: bool,
    divisors: tuple[float, float],
) -> RegionChange:
    counts_a, counts_b = (count_instructions(name, code, modifiers) for code in (a, b))
    rows = count_rows(counts_a, counts_b, *divisors)
    found = likeness(a, b, before.listing, after.listing)
    controlled = _controlled(a) and _controlled(b)
    if controlled:
        stalls = [sum(_stall(at) for at in code) for code in (a, b)]
        rows = (
            *rows[: len(SUMMARY_ROWS)],
            Row(STALLS, stalls[0] / (divisors[0] or 1), stalls[1] / (divisors[1] or 1)),
            *rows[len(SUMMARY_ROWS) :],
        )
    control = control_change(a, b) if controlled and found in (IDENTICAL, RENAMED) else None
    if control and found == IDENTICAL and control.instructions:
        found = RESCHEDULED
    return RegionChange(name, found, rows, control if control and control.instructions else None)


def _stall(at: Instruction) -> int:
    """Cycles until the next instruction of the warp may issue, as loop bounds count them."""
    return max(1, at.control.stall) if at.control else 0


def control_change(a: Sequence[Instruction], b: Sequence[Instruction]) -> ControlChange:
    """Differences between the control codes of equal instructions. The text of an instruction has its reuse flags."""
    codes = stalls = yields = scoreboards = reuse = 0
    for before, after in zip(a, b, strict=True):
        one, other = before.control, after.control
        assert one is not None
        assert other is not None
        other_boards = (one.write, one.read, one.wait) != (other.write, other.read, other.wait)
        other_reuse = _reused(before) != _reused(after)
        codes += other_boards or other_reuse or (one.stall, one.yields) != (other.stall, other.yields)
        stalls += one.stall != other.stall
        yields += one.yields != other.yields
        scoreboards += other_boards
        reuse += other_reuse
    return ControlChange(codes, stalls, yields, scoreboards, reuse, sum(map(_stall, b)) - sum(map(_stall, a)))


def _reused(at: Instruction) -> list[bool]:
    return [".reuse" in operand for operand in at.operands.split(",")]


def count_rows(a: Counts, b: Counts, divide_a: float = 1, divide_b: float = 1) -> tuple[Row, ...]:
    rows = [Row(name, a.row(name) / (divide_a or 1), b.row(name) / (divide_b or 1)) for name in row_names((a, b))]
    totals, others = rows[: len(SUMMARY_ROWS)], rows[len(SUMMARY_ROWS) :]
    return (*totals, *sorted(others, key=lambda row: (-abs(row.delta), row.name)))


def likeness(a: Sequence[Instruction], b: Sequence[Instruction], of_a: Listing, of_b: Listing) -> str:
    exact_a, exact_b = relative_text(a, of_a), relative_text(b, of_b)
    if exact_a == exact_b:
        return IDENTICAL
    renamed_a, renamed_b = [without_registers(text) for text in exact_a], [without_registers(text) for text in exact_b]
    if renamed_a == renamed_b:
        return RENAMED
    if sorted(at.opcode for at in a) == sorted(at.opcode for at in b):
        return REORDERED
    return DIFFERS


def relative_text(code: Sequence[Instruction], listing: Listing) -> list[str]:
    """Instructions with branch targets as distances, so that moved code compares equal.

    Reuse flags belong to the control codes, and are left out where those are there.
    """
    lines = []
    for at in code:
        target = listing.target(at) if "(" in at.operands or at.base in ("BRA", "CALL", "BSSY") else None
        text = at.text.replace(".reuse", "") if at.control else at.text
        if target is not None:
            inside = code[0].address <= target <= code[-1].address + 16
            where = f"{(target - at.address) // 16:+d}" if inside else "outside"
            text = re.sub(r"`\([^)]+\)|0x[0-9a-f]+$", f"<{where}>", text)
        elif at.base in INDIRECT:  # the number after the register is the address of the branch itself
            locations = ", ".join(f"{(each - at.address) // 16:+d}" for each in listing.targets(at))
            text = re.sub(r" -?0x[0-9a-f]+.*", f" <{locations}>", text)
        lines.append(text)
    return lines


def without_registers(text: str) -> str:
    return REGISTER.sub(lambda found: found[1], text).replace(".reuse", "")


def text_diff(before: Parts, after: Parts, rename: bool) -> Iterator[str]:
    """Aligned lines of each region that differs, with ' ', '-' and '+' in front.

    Control codes are shown where nothing else differs.
    """
    for name in sorted((WHOLE, *REGIONS), key=lambda each: each != "loop"):
        a, b = before.regions.get(name, ()), after.regions.get(name, ())
        lines_a, lines_b = relative_text(a, before.listing), relative_text(b, after.listing)
        if lines_a == lines_b and _controlled(a) and _controlled(b):
            lines_a, lines_b = ([f"{at.control} {at.text}" for at in code] for code in (a, b))
        elif rename:
            lines_a, lines_b = [without_registers(text) for text in lines_a], [without_registers(t) for t in lines_b]
        if lines_a == lines_b:
            continue
        yield f"@@ {name}: {len(a)} -> {len(b)} instructions @@"
        matcher = difflib.SequenceMatcher(None, lines_a, lines_b, autojunk=False)
        for kind, a_first, a_last, b_first, b_last in matcher.get_opcodes():
            if kind == "equal":
                yield from (f"  {text}" for text in _middle_cut(lines_a[a_first:a_last]))
            else:
                yield from (f"- {text}" for text in lines_a[a_first:a_last])
                yield from (f"+ {text}" for text in lines_b[b_first:b_last])


def _middle_cut(lines: list[str], context: int = 3) -> list[str]:
    if len(lines) <= 2 * context + 1:
        return lines
    return [*lines[:context], f"... {len(lines) - 2 * context} equal", *lines[-context:]]


# ---- printing --------------------------------------------------------------------------------------------------------


def _number(value: float) -> str:
    return f"{value:.0f}" if value == int(value) else f"{value:.3f}"


def change_table(change: Change, unchanged: bool) -> Table:
    rows: list[list[Cell]] = []
    for region in change.regions:
        for row in region.rows:
            if unchanged or row.delta or row.name == TOTAL:
                relative = None if row.relative is None else f"{100 * row.relative:+.1f} %"
                rows.append([region.region, row.name, _cell(row.before), _cell(row.after), _cell(row.delta), relative])
    return Table(("region", "instruction", "before", "after", "delta", "relative"), rows)


def _cell(value: float) -> Cell:
    return int(value) if value == int(value) else round(value, 4)


@dataclass(frozen=True)
class Side:
    subject: Subject
    parts: Parts

    def record(self) -> dict[str, object]:
        kernel = self.subject.kernel
        return {
            "name": self.subject.name,
            "config": self.subject.label,
            "arch": self.subject.arch,
            "registers": kernel.registers if kernel else None,
            "code_hash": kernel.code_hash if kernel else None,
        }


def read_sides(a: Subject, b: Subject, wanted: str | None = None) -> tuple[Side, Side]:
    """Both sides, disassembled side by side, each at the KV loop that parts_of() chooses, or both whole."""
    pending = [start(a), start(b)]
    graphs = [Graph(each.listing()) for each in pending]
    looping = all(graph.nest for graph in graphs) or wanted is not None
    one, other = (
        Side(subject, parts_in(graph, wanted, subject) if looping else unsplit(graph))
        for subject, graph in zip((a, b), graphs, strict=True)
    )
    return one, other


def fact_changes(a: Subject, b: Subject) -> tuple[FactChange, ...]:
    """The differences between two kernels of cubins, and their files, in everything that the driver and the hardware
    read."""
    if a.cubin is None or b.cubin is None:
        return ()
    one, other = (facts_of(each.cubin, each.symbol) for each in (a, b) if each.cubin)
    return tuple(changed_facts(one, other))


def resolve_pair(args: argparse.Namespace) -> tuple[Subject, Subject, str]:
    """The two kernels to compare and the sentence that says which configs they have."""
    a_name, b_name = args.a_cubin or args.a, args.b_cubin or args.b
    if not a_name or not b_name:
        raise AnalysisError(
            f"name two {'versions' if in_checkout() else 'builds'} or files, for example: sass-diff {EXAMPLE}"
        )
    choice_a: KernelConfig | str | None = args.config
    choice_b: KernelConfig | str | None = args.config
    rule = "both sides: the config asked for" if args.config else ""
    if VERSION.fullmatch(args.a or "") and VERSION.fullmatch(args.b or ""):
        pair = pair_named(args.a, args.b, args.config)
        choice_a, choice_b, rule = pair.a, pair.b, pair.rule
    choice_a, choice_b = args.a_config or choice_a, args.b_config or choice_b
    a, b = resolve(a_name, args.arch, choice_a), resolve(b_name, args.arch, choice_b)
    if not rule:
        rule = "both sides: one config" if a.config == b.config else "the sides differ in their configs"
    return a, b, rule


def add_pair_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("a", nargs="?", metavar="A", help=f"{A_VERSION}file or folder before")
    parser.add_argument("b", nargs="?", metavar="B", help=f"{A_VERSION}file or folder after")
    parser.add_argument("--a-cubin", metavar="FILE", help="the cubin of A")
    parser.add_argument("--b-cubin", metavar="FILE", help="the cubin of B")
    parser.add_argument("--config", metavar="CONFIG", help="symbol or short form of the kernel on both sides")
    parser.add_argument("--a-config", metavar="CONFIG", help="symbol, name or index of the kernel of A")
    parser.add_argument("--b-config", metavar="CONFIG", help="symbol, name or index of the kernel of B")
    add_arch_argument(parser)


def add_sass_diff_arguments(parser: argparse.ArgumentParser) -> None:
    add_pair_arguments(parser)
    add_loop_argument(parser)
    parser.add_argument("--text", action="store_true", help="also print the aligned text diff")
    parser.add_argument("--rename", action="store_true", help="with --text: ignore register numbers")
    parser.add_argument("--modifiers", action="store_true", help="one row per opcode with its modifiers")
    parser.add_argument("--per-hmma", action="store_true", help="divide by the matrix instructions of the loop")
    parser.add_argument("--all", action="store_true", help="also show what did not change")
    add_filter_argument(parser, "of two libraries: the kernels")
    parser.add_argument("--exit-code", action="store_true", help="exit status 1 if the machine code differs")
    add_table_arguments(parser)


def verdict_of(before: Listing, after: Listing) -> str:
    """One sentence on two listings of any kernels; "" where all instructions are the same."""
    graphs = Graph(before), Graph(after)
    split = parts_in if all(graph.nest for graph in graphs) else unsplit
    one, other = (split(graph) for graph in graphs)
    change = compare(one, other)
    return "" if change.identical else change.verdict


def _libraries(args: argparse.Namespace) -> tuple[Library, Library] | None:
    """The two files with all that they hold, where nothing says which of several kernels is meant."""
    names = [args.a_cubin or args.a, args.b_cubin or args.b]
    chosen = args.config or args.a_config or args.b_config or args.loop
    if chosen or any(not name or VERSION.fullmatch(name) or not is_binary(Path(name)) for name in names):
        return None
    one, other = (read_contents(Path(name), args.arch) for name in names)
    return one, other


def _folders(args: argparse.Namespace) -> tuple[Path, Path] | None:
    """The two folders of builds, where one is named."""
    one, other = Path(args.a_cubin or args.a or ""), Path(args.b_cubin or args.b or "")
    given = [bool(name) and Path(name).is_dir() for name in (args.a, args.b)]
    if not any(given):
        return None
    if not all(given):
        raise AnalysisError(f"{one}, {other}: must be two folders or two files, not one of each")
    if args.config or args.a_config or args.b_config or args.loop:
        raise AnalysisError("of two folders all kernels are compared; --filter chooses some, and no other option")
    return one, other


def _print_change(args: argparse.Namespace, found: LibraryChange) -> int:
    if not any(pair.before and pair.after for pair in found.pairs if pair.figures.code_bytes):
        one = sum(pair.before is not None for pair in found.kernels)
        choose = "" if Path(found.before).is_dir() else "; --a-config and --b-config choose one of each"
        raise NothingInCommon(
            f"{found.before} and {found.after} have no kernel in common: none of {one} and {len(found.kernels) - one} "
            f"kernels has the same symbol and architecture{choose}"
        )
    if args.json:
        emit(found.json(), args.output)
    elif args.markdown:  # as a comment on a pull request
        table = found.table(args.all)
        table = table.sorted_by(args.sort) if args.sort else table
        emit(found.comment(table), args.output)
    else:
        print_table(found.table(args.all), args)
        print(found.sentence(), file=sys.stderr if args.csv else sys.stdout)
    return DIFFERENT if args.exit_code and not found.identical else DONE


def run_sass_diff(args: argparse.Namespace) -> int:
    folders = _folders(args)
    if folders:
        return _print_change(args, diff_folders(*folders, args.arch, verdict_of, args.filter))
    libraries = _libraries(args)
    found = diff_libraries(*libraries, verdict_of, args.filter) if libraries else None
    only = found.only_kernel if found and args.filter is None else None
    if found and not only:
        return _print_change(args, found)
    if args.filter is not None and not found:
        raise AnalysisError("--filter: requires two libraries")
    if only:
        args.a_config, args.b_config = (side.symbol for side in only)
    a, b, rule = resolve_pair(args)
    before, after = read_sides(a, b, args.loop)
    for side in (before, after):
        print_note(side.subject.name, side.parts)
    change = replace(compare(before.parts, after.parts, args.modifiers, args.per_hmma), facts=fact_changes(a, b))
    emit(_report(args, before, after, change, rule), args.output)
    return DIFFERENT if args.exit_code and not change.identical else DONE


def _report(args: argparse.Namespace, before: Side, after: Side, change: Change, rule: str) -> str:
    table = change_table(change, args.all)
    if args.sort:
        table = table.sorted_by(args.sort)
    if args.json:
        record = {
            "before": before.record(),
            "after": after.record(),
            "rule": rule,
            "verdict": change.verdict,
            "changes": [{"fact": name, "before": one, "after": other} for name, one, other in change.facts],
            "per_matrix": change.normalized,
            "regions": [
                {
                    "region": each.region,
                    "likeness": each.likeness,
                    "control": asdict(each.control) if each.control else None,
                    "rows": [
                        {"instruction": row.name, "before": row.before, "after": row.after, "delta": row.delta}
                        for row in each.rows
                    ],
                }
                for each in change.regions
            ],
        }
        return json_text(record)
    if args.csv:
        return table.csv()
    parts = [_heading(args, before, after, change, rule)]
    for region in change.regions:
        rows = [row[1:] for row in table.rows if row[0] == region.region]
        parts.append(f"{'## ' if args.markdown else ''}{region.region}: {region.likeness}\n")
        if region.control:
            parts.append(f"{region.control}\n")
        shown = Table(table.columns[1:], rows)
        if region.likeness != IDENTICAL or args.all:
            parts.append(shown.markdown() if args.markdown else shown.text())
    if args.text:
        lines = [*text_diff(before.parts, after.parts, args.rename)]
        body = "\n".join(lines) + "\n"
        parts.append(f"```diff\n{body}```\n" if args.markdown else body)
    return "\n".join(parts)


def _heading(args: argparse.Namespace, before: Side, after: Side, change: Change, rule: str) -> str:
    lines = [f"{'# ' if args.markdown else ''}{before.subject.name} -> {after.subject.name}: {change.verdict}", ""]
    for side in (before, after):
        kernel = side.subject.kernel
        registers = f", {kernel.registers} registers" if kernel and kernel.registers is not None else ""
        lines.append(f"{side.subject.name}: {side.subject.label} {side.subject.arch}{registers}")
    lines.append(f"config: {rule}")
    if change.also and not change.same_instructions:
        lines.append(f"also: {change.also}")
    if change.normalized:
        lines.append(f"counts are for each {change.unit} in the loop")
    elif change.unit == WARP_TILE:
        lines.append(f"both loops multiply as much, {before.parts.matrix_work:.0f} times {WARP_TILE}")
    if change.unit == WARP_TILE:
        lines.append("an HMMA.16816 does that once, an HGMMA.64x128x16 16 times for each of its four warps")
    return "\n".join(lines) + "\n"
