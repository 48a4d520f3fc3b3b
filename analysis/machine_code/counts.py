"""Opcode counts of a kernel and of its regions, whole and for each matrix instruction.

    table = count(parts_of(disassemble(cubin)))
    print(format_counts(table))

Predicated instructions count like all others. Dummies predicated with a constant false are counted in rows of their own
("LDS !PT"), so that they neither hide nor look like work. NOP padding and the closing branch to itself are left out.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from analysis.errors import DONE, AnalysisError
from analysis.ladder.headers import VERSION
from analysis.machine_code.library import count_library
from analysis.machine_code.loops import add_loop_argument, nest_table, parts_of, print_note
from analysis.machine_code.names import add_filter_argument
from analysis.machine_code.opcodes import MATRIX, family, main_matrix
from analysis.machine_code.regions import WHOLE, Graph, Parts, matrix_count
from analysis.machine_code.sass import Instruction
from analysis.machine_code.subjects import add_subject_arguments, start, subject_of, subjects_of
from analysis.table import Cell, Table, add_table_arguments, print_table

TOTAL, PREDICATED, NEVER = "TOTAL", "predicated", "never executed"
SUMMARY_ROWS = (TOTAL, NEVER, PREDICATED)


@dataclass(frozen=True)
class Counts:
    """Counts by family, or by opcode with modifiers, of one stretch of code."""

    region: str
    total: int
    matrix: int
    never: int  # dummies that are never executed, part of the total
    predicated: int  # part of the total, dummies included
    by_name: dict[str, int]

    def row(self, name: str) -> int:
        if name in SUMMARY_ROWS:
            return {TOTAL: self.total, NEVER: self.never, PREDICATED: self.predicated}[name]
        return self.by_name.get(name, 0)

    def per_matrix(self, name: str) -> float | None:
        """Instructions for each matrix instruction of the region; None where there is none."""
        return self.row(name) / self.matrix if self.matrix else None


def count_instructions(
    region: str, code: Sequence[Instruction], modifiers: bool = False, matrix: frozenset[str] = MATRIX
) -> Counts:
    names = Counter(_row_name(at, modifiers) for at in code)
    return Counts(
        region=region,
        total=len(code),
        matrix=matrix_count(code, matrix),
        never=sum(at.never for at in code),
        predicated=sum(bool(at.predicate) for at in code),
        by_name=dict(names),
    )


def _row_name(at: Instruction, modifiers: bool) -> str:
    name = at.opcode if modifiers else family(at.opcode)
    return f"{at.base} {at.predicate[1:]}" if at.never else name


def count(parts: Parts, modifiers: bool = False) -> list[Counts]:
    """The whole kernel first, then its regions in order."""
    return [
        count_instructions(name, code, modifiers, parts.graph.matrix)
        for name, code in {WHOLE: parts.listing.body, **parts.regions}.items()
    ]


def row_names(columns: Iterable[Counts]) -> list[str]:
    """Totals first, then by falling count over all columns, then by name."""
    sums: Counter[str] = Counter()
    for column in columns:
        sums.update(column.by_name)
    return [*SUMMARY_ROWS, *sorted(sums, key=lambda name: (-sums[name], name))]


# ---- commands --------------------------------------------------------------------------------------------------------


def counts_table(columns: Sequence[tuple[str, Counts]], per_matrix: bool) -> Table:
    """One row a family, one column for each named count; divided by the column's matrix instructions on request."""
    names = row_names(column for _, column in columns)
    rows: list[list[Cell]] = [
        [name, *(column.per_matrix(name) if per_matrix else column.row(name) for _, column in columns)]
        for name in names
    ]
    return Table(("opcode", *(title for title, _ in columns)), rows)


def add_counts_arguments(parser: argparse.ArgumentParser) -> None:
    _add_arguments(parser)
    parser.add_argument("--all", action="store_true", help="one row per kernel of a file: instructions by pipe")
    add_filter_argument(parser, "with --all: the kernels")


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_subject_arguments(parser, many=True)
    add_loop_argument(parser)
    parser.add_argument("--modifiers", action="store_true", help="one row per opcode with its modifiers")
    parser.add_argument("--per-hmma", action="store_true", help="divide by the matrix instructions of the region")
    add_table_arguments(parser)


def run_counts(args: argparse.Namespace) -> int:
    """All regions of one subject, the whole kernel of several side by side, or with --all every kernel of a file."""
    if args.all:
        names = [*args.subjects, *([args.cubin] if args.cubin else [])]
        if len(names) != 1 or VERSION.fullmatch(names[0]):
            raise AnalysisError("--all: requires one file: an executable, a library or a cubin")
        print_table(count_library(Path(names[0]), args.arch, args.filter), args)
        return DONE
    if args.filter is not None:
        raise AnalysisError("--filter: requires --all")
    return _print_counts(args, loop_only=False)


def add_loop_arguments(parser: argparse.ArgumentParser) -> None:
    _add_arguments(parser)
    parser.add_argument("--nest", action="store_true", help="show the loop nest by level instead of opcode counts")


def run_loop(args: argparse.Namespace) -> int:
    """Opcode counts of the KV loop, of one or several subjects side by side, or the loop nest."""
    if args.nest:
        subject = subject_of(args)
        print_table(nest_table(Graph(start(subject).listing()), subject), args)
        return DONE
    return _print_counts(args, loop_only=True)


def _print_counts(args: argparse.Namespace, loop_only: bool) -> int:
    subjects = subjects_of(args)
    columns: list[tuple[str, Counts]] = []
    for subject, pending in zip(subjects, [start(subject) for subject in subjects], strict=True):
        listing = pending.listing()
        if not loop_only and (len(subjects) > 1 or not Graph(listing).nest):
            matrix = main_matrix(at.base for at in listing.body)
            columns.append((subject.name, count_instructions(WHOLE, listing.body, args.modifiers, matrix)))
        else:
            parts = parts_of(listing, args.loop, subject)
            print_note(subject.name, parts)
            title = f"{subject.name} loop" if len(subjects) > 1 else "loop"
            loop = count_instructions("loop", parts.loop, args.modifiers, parts.graph.matrix)
            regions = [(counts.region, counts) for counts in count(parts, args.modifiers)]
            columns += [(title, loop)] if loop_only else regions
        if not (args.json or args.csv):
            print(f"{subject.name}: {listing.label} {listing.arch}", file=sys.stderr)
    print_table(counts_table(columns, args.per_hmma), args)
    return DONE
