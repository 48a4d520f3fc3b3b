"""Registers, spills and memory of every instance: one build's CSV, regs/registers.csv, the report, kept captures.

    python3 -m analysis regs --version v07 --arch sm_80 --log L --cubin C --csv -o build/regs/v07.sm_80.csv
    python3 -m analysis regs before.cubin after.cubin --exit-code      # or two CSVs: what differs, figure by figure
    python3 -m analysis registers --merge build/regs/v07.sm_80.csv     # its rows replace those of regs/registers.csv
    python3 -m analysis registers                  # the report, over regs/registers.csv
    python3 -m analysis capture --name before      # keep the logs of a whole build under a name
    python3 -m analysis captures before after      # compare two

Sizes are bytes. "0 bytes spill" does not mean no local memory, so LDL and STL are counted in the machine code. A figure
that the input can't hold is written n/a.
"""

import argparse
import datetime
import fcntl
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from analysis.errors import DIFFERENT, DONE, AnalysisError, NothingInCommon
from analysis.files import in_checkout, read_text, root, write_atomically, write_if_changed
from analysis.ladder.claims import RUNG
from analysis.ladder.config import ConfigError, parse_short_form
from analysis.ladder.headers import (
    attention_files,
    backward_files,
    fp8_files,
    kernel_files,
    load_all,
    name_of_stem,
    stem_of,
)
from analysis.machine_code.contents import CodeSummary, changed_facts, code_summary
from analysis.machine_code.images import is_binary
from analysis.machine_code.library import named, pair_kernels, read_contents
from analysis.machine_code.names import names_of
from analysis.machine_code.ptxas_log import Log, Usage, demangle, parse_log, read_log
from analysis.table import Cell, Table, add_table_arguments, emit, json_text, print_table, read_columns

NOT_APPLICABLE = "n/a"


@dataclass(frozen=True, order=True)
class Row:
    """One kernel in a register CSV; the fields are its columns in order. None is written n/a."""

    config: str  # short form; of a kernel that is not ours its demangled name
    arch: str
    registers: int
    stack: int
    spill_stores: int
    spill_loads: int
    static_smem: int
    barriers: int | None
    cmem: str  # "424[0]", several banks joined by "+"; n/a where ptxas does not print it
    code_hash: str | None
    ldl: int | None
    stl: int | None
    attributes: str | None = None  # a hash of what else the driver and the hardware read


COLUMNS = tuple(field.name for field in fields(Row))
KEYS = ("version", "arch", "config")
BUILD = re.compile(rf"({RUNG}|attention\.\w+)\.(sm_\w+)")  # what the files of a build are named
FIGURE_COLUMNS = tuple(name for name in COLUMNS if name not in KEYS)
FIGURES = ("registers", "stack", "spill_stores", "spill_loads", "static_smem", "barriers", "ldl", "stl")
Key = tuple[str, str, str]  # version, architecture, config


@dataclass(frozen=True)
class Accepted:
    """The accepted metrics of a kernel, their source, and the reason."""

    figures_hash: str  # of the figures that were accepted, not of those in the same line
    advisories: str
    source_hash: str  # of the kernel's source below its header block
    toolkit: str
    why: str


ACCEPTED_COLUMNS = tuple(field.name for field in fields(Accepted))
REGISTERS_COLUMNS = (*KEYS, *FIGURE_COLUMNS, *ACCEPTED_COLUMNS)


def rows_of(log: Log, code: dict[str, CodeSummary] | None) -> list[Row]:
    """A row for each kernel of a log, joined with its machine code by symbol; sorted. Both have to be of one build."""
    for usage in log.entries if code else ():
        summary = code.get(usage.name) if code else None
        for what in SAID_TWICE if summary else ():
            said, read = getattr(usage, what), getattr(summary, what)
            if None not in (said, read) and said != read:
                raise AnalysisError(
                    f"{usage.name}: {said} {SAID_TWICE[what]} in the log, {read} in the cubin: not of one build"
                )
    return rows_of_code(log, code)


def rows_of_code(log: Log, code: dict[str, CodeSummary] | None) -> list[Row]:
    """The rows, with the cubin's value where both have one."""
    names = names_of(usage.name for usage in log.entries)
    rows = [_row(usage, names[usage.name], code) for usage in log.entries]
    if code is not None:
        unseen = code.keys() - {usage.name for usage in log.entries}
        if unseen:
            raise AnalysisError(f"the log lacks {len(unseen)} kernels of the cubin, the first: {min(unseen)}")
    return sorted(rows, key=_order)


SAID_TWICE = {"registers": "registers", "stack": "bytes of stack frame", "static_smem": "bytes of shared memory",
              "barriers": "barriers"}  # fmt: skip


def _order(row: Row) -> tuple[str, str]:
    return (row.config, row.arch)


def _row(usage: Usage, name: str, code: dict[str, CodeSummary] | None) -> Row:
    summary = None if code is None else code.get(usage.name)
    if code is not None and summary is None:
        raise AnalysisError(f"the cubin lacks the kernel {usage.name!r} of the log")
    if usage.spill_stores is None:
        raise AnalysisError(f"{usage.name}: nvlink reports no spills: the log of ptxas -v must come before it")

    def figure(what: str) -> int | None:
        read = getattr(summary, what, None)
        found: int | None = getattr(usage, what) if read is None else read
        return found

    return Row(
        config=name,
        arch=usage.arch,
        registers=_known(figure("registers")),
        stack=_known(figure("stack")),
        spill_stores=_known(usage.spill_stores),
        spill_loads=_known(usage.spill_loads),
        static_smem=_known(figure("static_smem")),
        barriers=figure("barriers"),
        cmem="+".join(f"{size}[{bank}]" for bank, size in usage.cmem) or NOT_APPLICABLE,
        code_hash=None if summary is None else summary.code_hash,
        ldl=None if summary is None else summary.ldl,
        stl=None if summary is None else summary.stl,
        attributes=None if summary is None else summary.attributes,
    )


def _known(figure: int | None) -> int:
    assert figure is not None, "parse_log refuses an entry function without its figures"
    return figure


# ---- CSV -------------------------------------------------------------------------------------------------------------


def to_csv(rows: Iterable[Row]) -> str:
    """The text of a register CSV."""
    return Table(COLUMNS, [cells(row) for row in rows]).csv()


def cells(row: Row) -> list[Cell]:
    """The values of a row, n/a for what is not known."""
    values: list[Cell] = [getattr(row, name) for name in COLUMNS]
    return [NOT_APPLICABLE if value is None else value for value in values]


def parse_csv(text: str, name: str) -> list[Row]:
    """Read a register CSV back; a column or a value that does not belong is an error naming the line."""
    rows = [_parse_row(values, where) for where, values in read_columns(text, COLUMNS, name)]
    if not rows:
        raise AnalysisError(f"{name}: no kernel in this file")
    return rows


def _parse_row(values: dict[str, str], where: str) -> Row:
    def number(column: str) -> int:
        if not re.fullmatch(r"[0-9]{1,9}", values[column]):
            raise AnalysisError(f"{where}: {column} = {values[column]!r}: not a number")
        return int(values[column])

    def number_or_none(column: str) -> int | None:
        return None if values[column] == NOT_APPLICABLE else number(column)

    return Row(
        values["config"],
        values["arch"],
        number("registers"),
        number("stack"),
        number("spill_stores"),
        number("spill_loads"),
        number("static_smem"),
        number_or_none("barriers"),
        values["cmem"],
        None if values["code_hash"] == NOT_APPLICABLE else values["code_hash"],
        number_or_none("ldl"),
        number_or_none("stl"),
        None if values["attributes"] == NOT_APPLICABLE else values["attributes"],
    )


def read_csv(path: Path) -> list[Row]:
    """The rows of a register CSV file."""
    return parse_csv(read_text(path), str(path))


def read_folder(folder: Path) -> dict[str, list[Row]]:
    """Version to rows of every vNN.sm_XX.csv in a folder, and of attention.*, each of one build."""
    return _by_version(read_build(path) for path in sorted(folder.glob("*.sm_*.csv")) if BUILD.fullmatch(path.stem))


def read_build(path: Path) -> tuple[str, list[Row]]:
    """The version that a file vNN.sm_XX.csv is named after, and its rows, all of the architecture in its name."""
    name = BUILD.fullmatch(path.name.removesuffix(".csv"))
    if not name or path.suffix != ".csv":
        raise AnalysisError(f"{path}: expected a file named vNN.sm_XX.csv, such as v07.sm_80.csv")
    rows = read_csv(path)
    other = next((row.arch for row in rows if row.arch != name[2]), None)
    if other:
        raise AnalysisError(f"{path}: holds a kernel for {other}")
    return name_of_stem(name[1]), rows


def _by_version(builds: Iterable[tuple[str, list[Row]]]) -> dict[str, list[Row]]:
    versions: dict[str, list[Row]] = {}
    for version, rows in builds:
        versions.setdefault(version, []).extend(rows)
    return versions


# ---- regs/registers.csv ----------------------------------------------------------------------------------------------


def registers_path(folder: Path) -> Path:
    return folder / "regs/registers.csv"


def registers_text(versions: Mapping[str, Iterable[Row]], accepted: Mapping[Key, Accepted]) -> str:
    """The text of registers.csv: one line per kernel, sorted by version, architecture and config.

    A line holds the kernel's figures, then what was accepted of it; the latter is empty where nobody accepted any.
    """
    lines = []
    for (version, config, arch), row in sorted(_by_key(versions).items(), key=lambda line: (line[0][0], line[0][::-1])):
        figures = dict(zip(COLUMNS, cells(row), strict=True))
        one = accepted.get((version, arch, config))
        reason = [getattr(one, name) if one else "" for name in ACCEPTED_COLUMNS]
        lines.append([version, arch, config, *(figures[name] for name in FIGURE_COLUMNS), *reason])
    return Table(REGISTERS_COLUMNS, lines).csv()


def parse_registers(text: str, name: str) -> tuple[dict[str, list[Row]], dict[Key, Accepted]]:
    """Return the rows of each version in registers.csv, and what was accepted for each kernel."""
    versions: dict[str, list[Row]] = {}
    accepted: dict[Key, Accepted] = {}
    seen = set()
    for where, values in read_columns(text, REGISTERS_COLUMNS, name):
        key = (values["version"], values["arch"], values["config"])
        if key in seen:
            raise AnalysisError(f"{where}: {' '.join(key)} is there twice")
        seen.add(key)
        versions.setdefault(values["version"], []).append(_parse_row(values, where))
        if values["figures_hash"]:
            accepted[key] = Accepted(**{column: values[column] for column in ACCEPTED_COLUMNS})
    return versions, accepted


def _read(folder: Path) -> tuple[dict[str, list[Row]], dict[Key, Accepted]]:
    path = registers_path(folder)
    return parse_registers(read_text(path), str(path)) if path.exists() else ({}, {})


def read_registers(folder: Path) -> dict[str, list[Row]]:
    """Version to rows of regs/registers.csv below `folder`; empty before the first `make regs`."""
    return _read(folder)[0]


def read_accepted(folder: Path) -> dict[Key, Accepted]:
    """The accepted metrics of each kernel; empty before the first `make accept`."""
    return _read(folder)[1]


def merge_registers(
    folder: Path, builds: Sequence[tuple[str, list[Row]]], newly_accepted: Mapping[Key, Accepted] | None = None
) -> list[Sequence[Cell]]:
    """Put the rows of builds into regs/registers.csv; return the figures that changed, as capture_changes() does.

    The rows of a build replace all of its version and architecture; what was accepted of a kernel stays, unless
    `newly_accepted` has it. Rows of versions whose source is gone are dropped. Several processes may merge at once:
    each waits for the others.
    """
    path = registers_path(folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        before, accepted = _read(folder)
        replaced = {(version, row.arch) for version, rows in builds for row in rows}
        kept = [(name, [row for row in rows if (name, row.arch) not in replaced]) for name, rows in before.items()]
        after = _by_version([*kept, *builds])
        files = kernel_files(folder) | attention_files(folder) | backward_files(folder) | fp8_files(folder)
        there = files.keys()
        after = {version: rows for version, rows in after.items() if version in there}
        write_if_changed(path, registers_text(after, accepted | dict(newly_accepted or {})))
    finally:
        os.close(lock)
    return capture_changes(_by_key(before), _by_key(after))


def _by_key(versions: Mapping[str, Iterable[Row]]) -> dict[tuple[str, str, str], Row]:
    return {(version, row.config, row.arch): row for version, rows in versions.items() for row in rows}


def _is_ours(row: Row) -> bool:
    try:
        parse_short_form(re.sub(r"^(row_sums|round_dQ) of ", "", row.config))
    except ConfigError:
        return False
    return True


def add_regs_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", type=Path, nargs="*", metavar="FILE",
                        help="two CSVs of this command, or two cubins or libraries, to compare")  # fmt: skip
    if in_checkout():
        parser.add_argument("--version", metavar="VER", help="version of the log: every kernel is then one of ours")
    else:
        parser.set_defaults(version=None)
    parser.add_argument("--arch", metavar="ARCH", help="architecture that every kernel must be for, such as sm_80")
    parser.add_argument("--log", type=Path, metavar="LOG", help="output of ptxas -v")
    parser.add_argument(
        "--cubin", type=Path, metavar="CUBIN", help="machine code of the same build, for its hash, LDL and STL"
    )
    parser.add_argument("--exit-code", action="store_true", help="with two files: exit status 1 if they differ")
    add_table_arguments(parser)


def nothing_in_common(before: Path, after: Path) -> NothingInCommon:
    return NothingInCommon(f"{before} and {after} have no kernel in common: no name and architecture is in both")


def compare_files(before: Path, after: Path) -> list[Sequence[Cell]]:
    """(kernel, architecture, figure, before, after) of all that differs between two register CSVs or two binaries."""
    if is_binary(before) != is_binary(after):
        raise AnalysisError(f"{before} and {after}: two register CSVs or two binaries, not one of each")
    if not is_binary(before):
        one, other = ({("", row.config, row.arch): row for row in read_csv(path)} for path in (before, after))
        if not one.keys() & other.keys():
            raise nothing_in_common(before, after)
        return [change[1:] for change in capture_changes(one, other)]
    old, new = (read_contents(path, None) for path in (before, after))
    changes: list[Sequence[Cell]] = []
    pairs = pair_kernels([*old.kernels, *old.others], [*new.kernels, *new.others])
    if not any(pair.before and pair.after for pair in pairs if pair.figures.code_bytes):
        raise nothing_in_common(before, after)
    names = names_of(pair.figures.symbol for pair in pairs)
    for pair in pairs:
        who = (named(pair.figures, names), pair.figures.arch)
        if pair.before is None or pair.after is None:
            there = ("there" if side else "absent" for side in (pair.before, pair.after))
            changes.append((*who, pair.figures.kind, *there))
            continue
        changes += [(*who, *change) for change in changed_facts(pair.before.facts, pair.after.facts)]
    return changes


def run_regs(args: argparse.Namespace) -> int:
    if args.files:
        if len(args.files) != 2 or args.log or args.cubin:
            raise AnalysisError("two files are compared: regs BEFORE AFTER, without --log and --cubin")
        changes = compare_files(*args.files)
        if changes or args.json or args.csv:
            print_table(Table(("kernel", "arch", "figure", "before", "after"), changes), args)
        else:
            print(f"{args.files[0]} and {args.files[1]} are equal")
        return DIFFERENT if changes and args.exit_code else DONE
    if not args.log:
        raise AnalysisError("--log is missing: a log of ptxas -v, or two files to compare")
    log = read_log(args.log)
    rows = rows_of(log, code_summary(args.cubin) if args.cubin else None)
    for row in rows:
        if args.arch and row.arch != args.arch:
            raise AnalysisError(f"{args.log}: {row.config} is compiled for {row.arch}, not {args.arch}")
        if args.version and not _is_ours(row):
            raise AnalysisError(f"{args.log}: {row.config!r} is not a kernel of {args.version}")
    for note in log.notes:
        print(f"{args.log}:{note.line}: {f'{note.code}: ' if note.code else ''}{note.text}", file=sys.stderr)
    print_table(Table(COLUMNS, [cells(row) for row in rows]), args)
    return DONE


# ---- the report ------------------------------------------------------------------------------------------------------

JUMP = 8  # registers more or fewer than the parent's that are worth a mark: the allocation granularity of a warp


def report_table(versions: dict[str, list[Row]], parents: dict[str, str]) -> Table:
    """Every kernel of every version, the most registers and spills first, with what differs notably from the parent."""
    table = []
    for version, rows in versions.items():
        parent_rows = versions.get(parents.get(version, ""), [])
        for row in rows:
            parent = counterpart(row, parent_rows)
            change = row.registers - parent.registers if parent else None
            table.append((version, row, change, marks(row, parent)))
    table.sort(key=lambda line: (-(line[1].spill_stores + line[1].spill_loads), -line[1].registers, line[0]))
    columns = ("version", "arch", "config", "registers", "change", "stack", "stores", "loads", "LDL", "STL", "note")
    return Table(
        columns,
        [
            (
                version,
                row.arch,
                row.config,
                row.registers,
                change,
                row.stack,
                row.spill_stores,
                row.spill_loads,
                row.ldl,
                row.stl,
                note,
            )
            for version, row, change, note in table
        ],
    )


def counterpart(row: Row, parent_rows: list[Row]) -> Row | None:
    """The parent's kernel to compare with: of the same config, else its only one of the same dtype."""
    same = [each for each in parent_rows if _order(each) == _order(row)]
    if same:
        return same[0]
    dtype = row.config.split(",")[0]
    near = [each for each in parent_rows if each.arch == row.arch and each.config.split(",")[0] == dtype]
    return near[0] if len(near) == 1 else None


def marks(row: Row, parent: Row | None) -> str:
    """Notable rows: spills, local memory without spills, a jump in registers from the parent."""
    found = []
    if row.spill_stores or row.spill_loads:
        found.append("SPILLS")
    elif row.ldl or row.stl or row.stack:
        found.append("LOCAL MEMORY")
    if parent and (parent.spill_stores or parent.spill_loads) and "SPILLS" not in found:
        found.append("spills gone")
    if parent and abs(row.registers - parent.registers) >= JUMP:
        found.append("MORE REGISTERS" if row.registers > parent.registers else "fewer registers")
    return ", ".join(found)


def add_registers_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--version", metavar="VER", help='versions to show, such as "v09 v10"; all without it')
    parser.add_argument("--arch", metavar="ARCH", help="one architecture, such as sm_80")
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--folder", type=Path, metavar="FOLDER", help="builds, vNN.sm_XX.csv; not regs/registers.csv")
    source.add_argument("--merge", type=Path, nargs="+", metavar="CSV",
                        help="builds whose rows first replace those of regs/registers.csv")  # fmt: skip
    add_table_arguments(parser)


def run_registers(args: argparse.Namespace) -> int:
    if args.merge:
        changes = merge_registers(root(), [read_build(path) for path in args.merge])
        if changes:
            table = Table(("version", "config", "arch", "figure", "before", "after"), changes)
            print(f"{registers_path(root()).relative_to(root())} changed:\n{table.text()}", file=sys.stderr)
    versions = read_folder(args.folder) if args.folder else read_registers(root())
    if not versions:
        raise AnalysisError(f"{args.folder or registers_path(root())}: no registers there: run `make regs`")
    parents = {name: version.header.parent for name, version in load_all(root()).items()}
    table = report_table(versions, parents)
    chosen = [name_of_stem(word) for word in (args.version or "").replace(",", " ").split()]
    unknown = [name for name in chosen if name not in versions]
    if unknown:
        there = " ".join(versions)
        raise AnalysisError(
            f"no registers of {unknown[0]}: run `make regs VER={stem_of(unknown[0])}`; there are: {there}"
        )
    rows = [row for row in table.rows if (not chosen or row[0] in chosen) and (not args.arch or row[1] == args.arch)]
    print_table(Table(table.columns, rows), args)
    return DONE


# ---- captures --------------------------------------------------------------------------------------------------------


def captures_folder() -> Path:
    """The folder of captures; git ignores it, because logs contain times."""
    return root() / "logs" / "build"


def add_capture_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--name", metavar="NAME", help="name of the capture; a time stamp without it")
    parser.add_argument("--logs", type=Path, nargs="*", metavar="LOG", help="logs to keep; logs/ptxas/ without it")
    parser.add_argument("--force", action="store_true", help="replace a capture of this name")
    parser.add_argument("--json", action="store_true", help="print the files written as JSON")


def run_capture(args: argparse.Namespace) -> int:
    name = args.name or datetime.datetime.now().strftime("%Y-%m-%dT%H%M%S")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise AnalysisError(f"--name {name}: letters, digits, '.', '_' and '-' only")
    logs = args.logs or sorted(
        path for path in (root() / "logs/ptxas").glob("*.sm_*.log") if BUILD.fullmatch(path.stem)
    )
    if not logs:
        raise AnalysisError("no ptxas log in logs/ptxas: run `make all`")
    folder = captures_folder()
    target = folder / f"{name}.log"
    if target.exists() and args.name and not args.force:
        raise AnalysisError(f"{target} is there already: choose another name, or --force")
    text = "".join(f"# {path.name}\n{read_text(path)}" for path in logs)
    texts = {"log": text, "demangled.log": demangle(text), "csv": capture_csv(text, str(target))}
    for suffix, content in texts.items():
        write_atomically(folder / f"{name}.{suffix}", content)
    if args.json:
        emit(json_text({"files": [str(folder / f"{name}.{suffix}") for suffix in texts]}), None)
    else:
        print(f"kept as {target.relative_to(root())}, .demangled.log and .csv ({len(logs)} logs)")
    return DONE


def capture_csv(text: str, name: str) -> str:
    """The CSV of a captured build: the log each kernel stood in, then the columns of a register CSV."""
    rows: list[list[Cell]] = []
    for part in re.split(r"^# (?=\S+\.log$)", text, flags=re.MULTILINE)[1:]:
        source, _, body = part.partition("\n")
        log = parse_log(body, f"{name}, {source}")
        stem = BUILD.fullmatch(source.removesuffix(".log"))
        cubin = root() / "build" / stem[1] / f"{stem[2]}.cubin" if stem else None
        code = code_summary(cubin) if cubin and cubin.exists() else None
        rows += [[source.removesuffix(".log"), *cells(row)] for row in rows_of(log, code)]
    return Table(("source", *COLUMNS), rows).csv()


def read_capture(name: str) -> dict[tuple[str, str, str], Row]:
    """(source, config, arch) to row of a capture, by its name."""
    path = captures_folder() / f"{name}.csv"
    if not path.exists():
        there = sorted(each.name.removesuffix(".csv") for each in captures_folder().glob("*.csv"))
        raise AnalysisError(f"no capture {name!r}; there are: {' '.join(there) or 'none'}")
    lines = read_text(path).splitlines()
    if not lines or not lines[0].startswith("source,"):
        raise AnalysisError(f"{path}:1: not the CSV of a capture")
    sources = [line.split(",", 1)[0] for line in lines[1:]]
    rest = "\n".join(line.split(",", 1)[1] for line in lines)
    return {
        (source, row.config, row.arch): row for source, row in zip(sources, parse_csv(rest, str(path)), strict=True)
    }


def capture_changes(
    before: dict[tuple[str, str, str], Row], after: dict[tuple[str, str, str], Row]
) -> list[Sequence[Cell]]:
    """(source, config, arch, figure, before, after) of all that differs between two captures."""
    changes: list[Sequence[Cell]] = []
    for key in sorted(before.keys() | after.keys()):
        old, new = before.get(key), after.get(key)
        if old is None or new is None:
            changes.append((*key, "kernel", "there" if old else "absent", "there" if new else "absent"))
            continue
        for name in (*FIGURES, "cmem", "code_hash", "attributes"):
            if getattr(old, name) != getattr(new, name):
                changes.append((*key, name, getattr(old, name), getattr(new, name)))
    return changes


def add_captures_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("before", metavar="BEFORE", help="name of a capture")
    parser.add_argument("after", metavar="AFTER", help="name of another")
    parser.add_argument("--exit-code", action="store_true", help="status 1 when they differ")
    add_table_arguments(parser)


def run_captures(args: argparse.Namespace) -> int:
    changes = capture_changes(read_capture(args.before), read_capture(args.after))
    if not changes and not (args.json or args.csv):
        print(f"{args.before} and {args.after} are equal")
    else:
        print_table(Table(("source", "config", "arch", "figure", args.before, args.after), changes), args)
    return DIFFERENT if changes and args.exit_code else DONE
