"""The part `trust` of docs/testing.md: promises, the tests that hold them, how much was tried, read from files.

trust_text(root())
"""

import ast
import re
from dataclasses import dataclass
from math import prod
from pathlib import Path

from analysis.errors import AnalysisError
from analysis.files import read_text
from analysis.table import Cell, Table

TRIED = "Tried, with inputs drawn at random as `make check-long` draws them:"


@dataclass(frozen=True)
class Promise:
    """A sentence that a user may rely on, and the files of the tests that hold it."""

    text: str
    tests: tuple[str, ...]


PROMISES = (
    Promise(
        "A wrong output is never called correct: every sampled row is compared with float64, within a bound that comes "
        "from the formats.",
        ("harness/tests/test_verify.c", "harness/tests/test_reference.c", "harness/tests/test_timing.py"),
    ),
    Promise(
        "A time is the kernel's own: launches are apart, the L2 is flushed as asked, clocks are measured.",
        ("harness/tests/test_timing.py",),
    ),
    Promise(
        "A measurement that is not certain says so, and ends with status 4 under `--strict`.",
        ("harness/tests/test_timing.py", "harness/tests/test_stats.c"),
    ),
    Promise(
        "A record that is torn, contradicts another one or holds impossible values is refused.",
        ("harness/tests/test_report.c", "analysis/tests/measure/test_records.py"),
    ),
    Promise(
        "FASTER and SLOWER are said only where the whole interval lies outside the tolerance.",
        ("analysis/tests/measure/test_stats.py", "analysis/tests/measure/test_compare.py"),
    ),
    Promise(
        "The emulator computes what a GPU computes, `mma.sync` as an H200 does, to the last bit.",
        (
            "emulator/tests/test_opcodes.py",
            "emulator/tests/test_mma.py",
            "emulator/tests/test_nvcc_kernels.py",
        ),
    ),
    Promise(
        "The emulator reports a barrier, a wait or an arrival that is missing, and is silent about correct programs.",
        (
            "emulator/tests/test_mutations.py",
            "emulator/tests/test_hopper_mutations.py",
            "emulator/tests/test_findings.py",
            "emulator/tests/test_versions.py",
        ),
    ),
    Promise(
        "The emulator's counters stand beside those that ncu read from a GPU.",
        ("emulator/tests/test_ncu.py", "emulator/tests/test_trace_and_counters.py"),
    ),
    Promise(
        "Machine code changes only when the change is accepted with a reason.",
        ("analysis/tests/machine_code/test_gate.py", "analysis/tests/machine_code/test_landed.py"),
    ),
    Promise(
        "Broken input is refused with a message that names the place: no traceback, no crash, no hang.",
        (
            "analysis/tests/test_parsers.py",
            "harness/tests/test_options.c",
            "runtime/tests/test_config.c",
            "runtime/tests/test_image.c",
            "emulator/tests/test_fuzz.c",
        ),
    ),
    Promise(
        "Exit statuses hold where the disk is full, standard output is closed or a run is interrupted.",
        ("harness/tests/test_cli.py", "analysis/tests/measure/test_bench.py"),
    ),
    Promise(
        "A call of the library is right, is made in the caller's stream and context, and is refused by name where it "
        "cannot be.",
        ("library/tests/test_emulator.c", "library/tests/test_gpu.c", "library/tests/test_shared_object.py"),
    ),
    Promise(
        "The documents agree with the records, and their commands exist.",
        ("analysis/tests/test_docs.py", "analysis/tests/publish/test_readme.py"),
    ),
    Promise("The tests notice small changes of the code.", ("analysis/tests/mutation/test_mutants.py",)),
)


@dataclass(frozen=True)
class Count:
    """A figure of a test file: the product of the numbers in the one place of a pattern, times the size of tables."""

    text: str
    file: str
    pattern: str = ""
    tables: tuple[str, ...] = ()

    def value(self, folder: Path) -> int:
        """The figure, read from the file."""
        text = read_text(folder / self.file)
        numbers = []
        if self.pattern:
            found = re.findall(self.pattern, text)
            if len(found) != 1:
                raise AnalysisError(f"{self.file}: {len(found)} places read {self.pattern!r}: expected one")
            numbers = [int(number) for number in ([found[0]] if isinstance(found[0], str) else found[0])]
        return prod(numbers + [entries(text, table, self.file) for table in self.tables])


def entries(text: str, name: str, file: str) -> int:
    """How many entries the table of this name has: a dict, list or tuple at the top of a Python file."""
    for node in ast.parse(text).body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            table = getattr(node, "value", None)
            if isinstance(table, ast.Dict):
                return len(table.keys)
            if isinstance(table, (ast.List, ast.Tuple)):
                return len(table.elts)
    raise AnalysisError(f"{file}: no table {name} at its top")


COUNTS = (
    Count(
        "damaged inputs of the parsers in Python",
        "analysis/tests/test_parsers.py",
        r"EXAMPLES = \d+ if [^\n]* else (\d+)",
        ("PARSERS",),
    ),
    Count("random command lines of bin/vNN", "harness/tests/test_options.c", r"round < (\d+)"),
    Count("random configurations", "runtime/tests/test_config.c", r"round < (\d+)"),
    Count("damaged cubins", "runtime/tests/test_image.c", r"rounds < (\d{3,})"),
    Count("broken PTX texts", "emulator/tests/test_fuzz.c", r"BLOCK = (\d+), BLOCKS = (\d+)"),
    Count(
        "kinds of faults put into PTX for mma.sync",
        "emulator/tests/support/mutations.py",
        tables=("RULES",),
    ),
    Count(
        "into PTX for wgmma",
        "emulator/tests/support/hopper_mutations.py",
        tables=("RULES",),
    ),
)


def link(file: str) -> str:
    return f"[{Path(file).name}](../{file})"


def promises_table() -> Table:
    rows: list[list[Cell]] = [[one.text, ", ".join(map(link, one.tests))] for one in PROMISES]
    return Table(("promise", "held by"), rows)


def trust_text(folder: Path) -> str:
    """What is promised and, in a sentence, how much was tried."""
    tried = "; ".join(f"{one.value(folder):,} {one.text} ({link(one.file)})" for one in COUNTS)
    return f"{promises_table().markdown()}\n{TRIED} {tried}.\n"
