"""What became of each mutant: logs/mutants.csv, the reviewed equivalents, and the shares that are promised.

rows = read_results(root() / RESULTS)
share(rows, reviewed(root()), GROUPS[0])    # killed / (all - those that were reviewed and change nothing)
"""

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from analysis.files import read_text
from analysis.table import Cell, Table, read_columns

RESULTS = "logs/mutants.csv"
REVIEWED = "analysis/tools/mutation/equivalents.csv"
KILLED, SURVIVED, NONE = "killed", "survived", "none"


@dataclass(frozen=True)
class Group:
    """Files, and the tests that hold them: files or folders of tests, and the programs that those run.

    One in `one_line_in` of the lines that can be changed is. `promised` is the least share of killed ones.
    """

    name: str
    files: tuple[str, ...]
    suites: tuple[str, ...]
    programs: tuple[str, ...] = ()
    promised: float = 0.95
    one_line_in: int = 8

    def matches(self, folder: Path) -> list[str]:
        """The files of this group in a checkout."""
        found = {str(path.relative_to(folder)) for pattern in self.files for path in folder.glob(pattern)}
        return sorted(name for name in found if not name.endswith("__init__.py"))


EMULATOR_FILES = (
    *(f"emulator/machine/{name}.c" for name in ("alu", "mbarrier", "memory", "sync")),
    "emulator/check/shadow.c",
)
EMULATOR_TESTS = (
    *("opcodes", "modifiers", "findings", "hopper_findings", "undefined", "clusters", "bulk_order", "order"),
    *("reconvergence", "polling", "memory_limits"),
)
MEASURE_TESTS = ("analysis/tests/measure", "analysis/tests/machine_code/test_gate.py", "analysis/tests/test_parsers.py")
LIBRARY_TESTS = tuple(f"library/tests/test_{name}.c" for name in ("choice", "emulator", "gpu", "xla_ffi"))
GROUPS = (
    Group("harness", ("harness/*.c", "runtime/*.c"), ("harness/tests", "runtime/tests"), ("bin/v01", "bin/dump/v01")),
    Group("library", ("library/[!v]*.c",), LIBRARY_TESTS),  # version.c is compiled once for each kernel
    Group("python", ("python/flashladder/*.py",), ("python/tests",), one_line_in=4),
    Group("measure", ("analysis/measure/*.py", "analysis/machine_code/gate.py"), MEASURE_TESTS),
    Group("learn", ("analysis/learn/*.py",), ("analysis/tests/learn",)),
    Group(
        "emulator",
        EMULATOR_FILES,
        ("emulator/tests/test_emu.c", *(f"emulator/tests/test_{name}.py" for name in EMULATOR_TESTS)),
        ("bin/ptxrun",),
        promised=0.90,
        one_line_in=12,
    ),
)


@dataclass(frozen=True)
class Result:
    """One line and its mutant. `state` names what the verdict rests on: the file's text and the tests'.

    A line of which no mutant compiles to other machine code has the verdict `none` and does not count.
    """

    file: str
    line: int
    source: str
    copy: int
    mutant: str
    verdict: str
    by: str
    state: str

    @property
    def place(self) -> tuple[str, str, int]:
        """What names the line, wherever it moves."""
        return self.file, self.source, self.copy


COLUMNS = tuple(field.name for field in fields(Result))


def read_results(path: Path) -> list[Result]:
    """The rows of a file of results; none where it is missing."""
    if not path.exists():
        return []
    rows = [row for _, row in read_columns(read_text(path), COLUMNS, str(path))]
    return [
        Result(r["file"], int(r["line"]), r["source"], int(r["copy"]), r["mutant"], r["verdict"], r["by"], r["state"])
        for r in rows
    ]


def csv_text(rows: Iterable[Result], header: bool = True) -> str:
    """Rows as comma-separated text."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    if header:
        writer.writerow(COLUMNS)
    writer.writerows(astuple(row) for row in rows)
    return out.getvalue()


@dataclass(frozen=True)
class Equivalent:
    """A mutant that nobody can tell from the original, and why; for all lines that read like this one."""

    file: str
    source: str
    mutant: str
    reason: str


def reviewed(folder: Path) -> list[Equivalent]:
    """The reviewed equivalents, keyed by the text of the line, so that they stay valid when lines move."""
    path = folder / REVIEWED
    columns = tuple(field.name for field in fields(Equivalent))
    return [Equivalent(**row) for _, row in read_columns(read_text(path), columns, REVIEWED)] if path.exists() else []


@dataclass(frozen=True)
class Share:
    """How many mutants of some files there were, and what became of them."""

    mutants: int
    killed: int
    equivalent: int

    @property
    def counted(self) -> int:
        return self.mutants - self.equivalent

    @property
    def value(self) -> float:
        return self.killed / self.counted if self.counted else 1.0


def share(rows: Iterable[Result], known: Sequence[Equivalent], files: Sequence[str]) -> Share:
    """The share of killed mutants of some files."""
    same = {(one.file, one.source, one.mutant) for one in known}
    chosen = [row for row in rows if row.file in files and row.verdict != NONE]
    killed = sum(row.verdict == KILLED for row in chosen)
    equivalent = sum(row.verdict == SURVIVED and (row.file, row.source, row.mutant) in same for row in chosen)
    return Share(len(chosen), killed, equivalent)


def percent(one: Share) -> str:
    """The share in words."""
    return f"{100 * one.value:.1f} %" if one.counted else "–"


def survivors(rows: Iterable[Result], known: Sequence[Equivalent]) -> list[Result]:
    """The mutants that no test noticed and nobody reviewed."""
    same = {(one.file, one.source, one.mutant) for one in known}
    return [row for row in rows if row.verdict == SURVIVED and (row.file, row.source, row.mutant) not in same]


def shares_table(folder: Path, rows: Sequence[Result]) -> Table:
    """One row for each file, and one for each group."""
    known = reviewed(folder)
    table: list[Sequence[Cell]] = []
    for group in GROUPS:
        files = group.matches(folder)
        for name, members in [*((file, [file]) for file in files), (f"all of {group.name}", files)]:
            one = share(rows, known, members)
            table.append([name, one.mutants, one.killed, one.equivalent, one.counted - one.killed, percent(one)])
    return Table(("file", "mutants", "killed", "equivalent", "survived", "killed share"), table)


def equivalents_table(folder: Path) -> Table:
    """The reviewed equivalents with their reasons."""

    def code(text: str) -> str:
        return f"`` {text} ``" if "`" in text else f"`{text}`" if text else "nothing"

    rows = [[one.file, code(one.source), code(one.mutant), one.reason] for one in reviewed(folder)]
    return Table(("file", "line", "becomes", "why no test can tell"), rows)
