"""CUDA source, PTX and SASS side by side, and slices of the PTX back to the kernel's entry.

    for row in source_map(subject): print(row.source, row.ptx_lines, row.instruction.text)
    lines = {at.line for at in backward_slice(function, 397)}

The maps come from nvdisasm: -gi names the source line of an instruction with the calls it was inlined through, -gp the
line of the PTX. PTX line numbers are those of the file that ptxas read.
"""

import argparse
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from analysis.errors import DONE, AnalysisError
from analysis.files import root
from analysis.ladder.headers import VERSION
from analysis.machine_code.names import name_of
from analysis.machine_code.notes import note
from analysis.machine_code.ptx import EMBEDDED, Function, Module, Statement, find_ptx, parse_ptx
from analysis.machine_code.sass import Instruction, Listing, select
from analysis.machine_code.subjects import A_VERSION, Subject, add_subject_arguments, start, subject_of
from analysis.table import Cell, Table, add_table_arguments, print_table


@dataclass(frozen=True)
class MapRow:
    instruction: Instruction
    source: tuple[str, ...]  # "file:line", innermost first, then where that was inlined
    ptx_line: int | None


def source_map(subject: Subject) -> tuple[Listing, list[MapRow]]:
    """Every instruction of a kernel with its source lines and PTX line."""
    subject.cubin_or_refuse("a map")
    by_source, by_ptx = start(subject, ["-gi"]), start(subject, ["-gp"])
    listing, ptx_listing = by_source.listing(), by_ptx.listing()
    ptx_lines = {at.address: _ptx_line(at.source) for at in ptx_listing.instructions}
    if not any(at.source for at in listing.instructions):
        raise AnalysisError(f"{subject.name}: no line information: build with -lineinfo and --generate-line-info")
    rows = [
        MapRow(at, tuple(short_path(location) for location in at.source), ptx_lines.get(at.address))
        for at in listing.body
    ]
    return listing, rows


def note_newer_sources(subject: Subject, rows: Iterable[MapRow]) -> None:
    """Names the source files that were changed after the code was made: their lines may have moved since."""
    file = Path(subject.name) if Path(subject.name).is_file() else subject.path
    made = file.stat().st_mtime_ns
    names = sorted({location.rpartition(":")[0] for row in rows for location in row.source})
    newer = [name for name in names if (root() / name).is_file() and (root() / name).stat().st_mtime_ns > made]
    if newer:
        build = f"run `make {subject.name}`" if VERSION.fullmatch(subject.name) else "build it again"
        note(f"{subject.name}: older than {', '.join(newer)}: its lines may be others by now; {build}")


def _ptx_line(source: Iterable[str]) -> int | None:
    for location in source:
        file, _, line = location.rpartition(":")
        if file == EMBEDDED:
            return int(line)
    return None


def short_path(location: str) -> str:
    """`file:line` with the file relative to the checkout, or only its name if it is elsewhere."""
    file, _, line = location.rpartition(":")
    path = Path(file)
    try:
        return f"{path.relative_to(root())}:{line}"
    except ValueError:
        return f"{path.name if path.is_absolute() else path}:{line}"


def location_order(location: str) -> tuple[str, int]:
    """Sorts positions by file, then by line."""
    file, _, line = location.rpartition(":")
    return file, int(line)


@cache
def source_lines(file: str) -> tuple[str, ...]:
    """The lines of a source file by its short path; none if it is not in the checkout."""
    path = root() / file
    return tuple(path.read_text(encoding="utf-8", errors="replace").splitlines()) if path.is_file() else ()


def source_line(location: str) -> str:
    """The text of `file:line` in a short path, "" where it is not to be had."""
    file, line = location_order(location)
    lines = source_lines(file)
    return lines[line - 1] if 0 < line <= len(lines) else ""


# ---- slices ----------------------------------------------------------------------------------------------------------


class Flow:
    """The control flow between statements, and the definitions that reach a use."""

    def __init__(self, function: Function) -> None:
        self.statements = function.statements
        self.by_label = {label: at for at, each in enumerate(self.statements) for label in each.label}
        self.before: list[list[int]] = [[] for _ in self.statements]
        for at, each in enumerate(self.statements):
            for successor in self._successors(at, each):
                self.before[successor].append(at)

    def _successors(self, at: int, statement: Statement) -> list[int]:
        following = [at + 1] if at + 1 < len(self.statements) else []
        if statement.target:
            if statement.target not in self.by_label:
                raise AnalysisError(f"line {statement.line}: no label {statement.target}")
            jump = [self.by_label[statement.target]]
            return jump + following if statement.predicate else jump
        if statement.opcode.split(".")[0] in ("ret", "exit") and not statement.predicate:
            return []
        if statement.opcode.startswith("brx"):
            return sorted(set(self.by_label.values()))
        return following

    def definitions(self, at: int, register: str) -> set[int]:
        """Statements whose value of a register may reach statement `at`. A guarded one lets older values through."""
        found: set[int] = set()
        seen: set[int] = set()
        work = list(self.before[at])
        while work:
            location = work.pop()
            if location in seen:
                continue
            seen.add(location)
            statement = self.statements[location]
            if register in statement.defines:
                found.add(location)
                if not statement.predicate:
                    continue
            work += self.before[location]
        return found


def backward_slice(function: Function, line: int) -> list[Statement]:
    """The statements that the values used at a line come from, that of the line included, in text order."""
    at_line = [at for at, each in enumerate(function.statements) if each.line == line]
    if not at_line:
        near = min((each.line for each in function.statements), key=lambda each: abs(each - line), default=None)
        raise AnalysisError(f"line {line} holds no instruction of {function.name}; the nearest is line {near}")
    flow = Flow(function)
    kept: set[int] = set()
    work = list(at_line)
    while work:
        at = work.pop()
        if at in kept:
            continue
        kept.add(at)
        for register in function.statements[at].uses:
            work += flow.definitions(at, register)
    return [function.statements[at] for at in sorted(kept)]


# ---- commands --------------------------------------------------------------------------------------------------------


def add_slice_arguments(parser: argparse.ArgumentParser) -> None:
    add_subject_arguments(parser)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--line", type=int, metavar="LINE", help="line number of the PTX text, from 1")
    where.add_argument("--last", metavar="OPCODE", help="start at the kernel's last instruction with this prefix")
    parser.add_argument("--show", choices=("ptx", "sass", "both"), default="ptx", help="what to print (ptx)")
    parser.add_argument("--numbers", action="store_true", help="show PTX line numbers and SASS addresses")
    add_table_arguments(parser)


def run_slice(args: argparse.Namespace) -> int:
    name = args.cubin or args.subject
    if not name:
        raise AnalysisError(f"SUBJECT: missing; name a {A_VERSION}cubin, executable or PTX file")
    module = parse_ptx(find_ptx(name, args.arch), name)
    function, line = _slice_start(module, args, name)
    kept = backward_slice(function, line)
    sass: dict[int, list[Instruction]] = {}
    if args.show != "ptx":
        args.config = function.name
        subject = subject_of(args)
        _, rows = source_map(subject)
        note_newer_sources(subject, rows)
        for row in rows:
            if row.ptx_line is not None:
                sass.setdefault(row.ptx_line, []).append(row.instruction)
    print_table(slice_table(kept, sass, args), args)
    return DONE


def _slice_start(module: Module, args: argparse.Namespace, name: str) -> tuple[Function, int]:
    """The function and line where the slice begins."""
    if args.last is not None:
        chosen = select([each for each in module.functions if each.entry], args.config, name)
        lines = [at.line for at in chosen.statements if at.opcode.startswith(args.last)]
        if not lines:
            raise AnalysisError(f"{name}: no instruction of {name_of(chosen.name)} begins with {args.last}")
        return chosen, lines[-1]
    function = module.function_at(args.line)
    if function is None:
        bodies = ", ".join(f"{each.line}-{each.statements[-1].line}" for each in module.functions if each.statements)
        raise AnalysisError(f"{name}: line {args.line} is in no function; their lines are {bodies}")
    return function, args.line


def slice_table(kept: list[Statement], sass: dict[int, list[Instruction]], args: argparse.Namespace) -> Table:
    show, numbers = args.show, args.numbers or args.json
    columns = [
        *(["line"] if numbers and show != "sass" else []),
        *(["ptx"] if show != "sass" else []),
        *(["address"] if numbers and show != "ptx" else []),
        *(["sass"] if show != "ptx" else []),
    ]
    rows: list[list[Cell]] = []
    for statement in kept:
        instructions: list[Instruction | None] = [*sass.get(statement.line, [])]
        if show == "sass" and not instructions:
            continue
        for location, at in enumerate(instructions or [None]):
            row: dict[str, Cell] = {
                "line": statement.line if location == 0 else None,
                "ptx": statement.text if location == 0 else "",
                "address": f"{at.address:04x}" if at else "",
                "sass": at.text if at else "",
            }
            rows.append([row[column] for column in columns])
    return Table(columns, rows)
