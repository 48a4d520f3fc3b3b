"""Which tests reach which line: gcov for C, coverage.py for Python, one test at a time.

reach = c_reach(tree, programs, folders)
reach.tests("harness/stats.c", 31)          # the cheapest first
"""

import ast
import json
import os
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from analysis.errors import AnalysisError
from analysis.tools.mutation.pytest_child import enter, in_child, options, used
from analysis.tools.mutation.trees import Tree

SECONDS_OF_ALL = 3600.0
ROOMS = ("emulator", "runtime", "harness", "library")  # below build/
NOT_HERE = "not long and not tune and not gpu"


@dataclass
class Reach:
    """Tests by file and line, the seconds that each takes, and the lines of each function."""

    seconds: dict[str, float] = field(default_factory=dict)
    lines: dict[str, dict[int, set[str]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(set)))
    functions: dict[str, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))

    def tests(self, file: str, line: int) -> list[str]:
        """The tests that run a line. One outside of functions: all of the test files that run any line of the file."""
        known = self.lines.get(file, {})
        holder = [(a, b) for a, b in self.functions.get(file, {}).items() if a <= line <= b]
        if holder:
            first = max(a for a, _ in holder)
            last = dict(holder)[first]
            at = max((number for number in known if first <= number <= line), default=None)
            after = min((number for number in known if line <= number <= last), default=None)
            found = known[at] if at is not None else known[after] if after is not None else set()
        else:
            files = {test.partition("::")[0] for tests in known.values() for test in tests}
            found = {test for test in self.seconds if test.partition("::")[0] in files}
        return sorted(found, key=lambda test: (self.seconds.get(test, 0.0), test))

    def text(self) -> str:
        """As JSON, to keep."""
        tests = sorted(self.seconds)
        index = {test: i for i, test in enumerate(tests)}
        lines = {
            file: {line: sorted(index[test] for test in found if test in index) for line, found in known.items()}
            for file, known in self.lines.items()
        }
        return json.dumps(
            {"tests": [[test, self.seconds[test]] for test in tests], "lines": lines, "functions": self.functions}
        )


def read_reach(text: str) -> Reach:
    """What Reach.text() wrote."""
    made = json.loads(text)
    names = [test for test, _ in made["tests"]]
    reach = Reach(seconds=dict(map(tuple, made["tests"])))
    for file, known in made["lines"].items():
        for line, found in known.items():
            reach.lines[file][int(line)] = {names[i] for i in found}
    for file, spans in made["functions"].items():
        reach.functions[file] = {int(first): last for first, last in spans.items()}
    return reach


def executed(tree: Tree) -> Iterator[tuple[str, dict[str, Any]]]:
    """What gcov says of each file since the last call, which it forgets."""
    counted = sorted(path for room in ROOMS for path in (tree.folder / "build" / room).rglob("*.gcda"))
    if not counted:
        return
    said = subprocess.run(
        ["gcov", "--json-format", "--stdout", *map(str, counted)], cwd=tree.folder, capture_output=True, text=True
    )
    for path in counted:
        path.unlink()
    for row in said.stdout.splitlines():
        for file in json.loads(row)["files"]:
            yield file["file"], file


class Timed:
    """A pytest plugin: the processor time of each test, and which fail."""

    def __init__(self, reach: Reach) -> None:
        self.reach, self.began = reach, 0.0
        self.failed: set[str] = set()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.began = used()

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.failed.add(report.nodeid)

    def note(self, nodeid: str) -> None:
        """The test has ended."""
        self.reach.seconds[nodeid] = used() - self.began


class PerTest(Timed):
    """A pytest plugin: after each test, what it reached in C."""

    def __init__(self, tree: Tree, reach: Reach) -> None:
        super().__init__(reach)
        self.tree = tree

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self.note(nodeid)
        add_executed(self.tree, self.reach, nodeid)


def add_executed(tree: Tree, reach: Reach, test: str) -> None:
    for file, said in executed(tree):
        for line in said["lines"]:
            if line["count"]:
                reach.lines[file][line["line_number"]].add(test)
        for function in said["functions"]:
            reach.functions[file][function["start_line"]] = function["end_line"]


def drop(reach: Reach, failed: set[str]) -> None:
    """Forget tests that fail in the copy without any change: they say nothing."""
    for test in failed:
        reach.seconds.pop(test, None)
        for known in reach.lines.values():
            for found in known.values():
                found.discard(test)


def link_counters(folder: Path) -> None:
    """Let `cc` link gcov's functions: programs that tests link from the objects need them too."""
    compiler = shutil.which("cc")
    folder.mkdir(exist_ok=True)
    (folder / "cc").write_text(f'#!/bin/sh\nexec {compiler} "$@" -lgcov\n', encoding="utf-8")
    (folder / "cc").chmod(0o755)
    os.environ["PATH"] = os.pathsep.join([str(folder), os.environ["PATH"]])


def c_reach(
    tree: Tree, files: Sequence[str], programs: Sequence[str], suites: Sequence[str], versions: Sequence[str]
) -> Reach:
    """Compiles the files with gcov's counters, links the programs and the versions, and runs all tests."""
    for file in files:
        if not tree.compile(file):
            raise AnalysisError(f"{tree.folder / file} does not compile with {' '.join(tree.flags)}")
    reach = Reach()
    for program in programs:
        if not tree.link(program):
            raise AnalysisError(f"{tree.folder / program} does not link")
        began = used()
        status = tree.run([f"./{program}"], SECONDS_OF_ALL)
        if status == 0:
            reach.seconds[program] = used() - began
            add_executed(tree, reach, program)
    for version in versions:
        if not tree.link(version):
            raise AnalysisError(f"{tree.folder / version} does not link")

    def work() -> str:
        import pytest

        enter(tree.folder)
        link_counters(tree.folder / "build/counting")
        plugin = PerTest(tree, reach)
        pytest.main([*options(tree.folder)[1:], "-m", NOT_HERE, *suites], plugins=[plugin])
        drop(reach, plugin.failed)
        return reach.text()

    said = in_child(work, SECONDS_OF_ALL) if suites else reach.text()
    if not said:
        raise AnalysisError("the tests did not end, or pytest failed")
    return read_reach(said)


START = """import coverage
coverage.process_startup()
"""


class Contexts(Timed):
    """A pytest plugin: coverage.py counts each test for itself."""

    def __init__(self, coverage: Any, reach: Reach) -> None:
        super().__init__(reach)
        self.coverage = coverage

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.coverage.switch_context(nodeid)
        self.began = used()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self.note(nodeid)
        self.coverage.switch_context("")


def python_reach(tree: Tree, files: Sequence[str], suites: Sequence[str]) -> Reach:
    """Runs the tests under coverage.py, those processes too that a test starts."""
    work_folder = tree.folder.with_suffix(".coverage")
    (work_folder / "start").mkdir(parents=True, exist_ok=True)
    (work_folder / "start/sitecustomize.py").write_text(START, encoding="utf-8")
    settings = work_folder / "settings.ini"
    sources = sorted({str(tree.folder / Path(file).parts[0]) for file in files})
    settings.write_text(
        f"[run]\ndata_file = {work_folder}/data\nparallel = true\ncontext = ${{PYTEST_CURRENT_TEST}}\n"
        f"source = {','.join(sources)}\ndisable_warnings = no-data-collected\n",
        encoding="utf-8",
    )

    def work() -> str:
        import coverage
        import pytest

        enter(tree.folder)
        os.environ["COVERAGE_PROCESS_START"] = str(settings)
        packages = str(Path(coverage.__file__).parents[1])
        os.environ["PYTHONPATH"] = os.pathsep.join([f"{work_folder}/start", os.environ["PYTHONPATH"], packages])
        counting = coverage.Coverage(config_file=str(settings))
        counting.start()
        reach = Reach()
        plugin = Contexts(counting, reach)
        pytest.main([*options(tree.folder)[1:], "-m", NOT_HERE, *suites], plugins=[plugin])
        counting.stop()
        counting.save()
        counting.combine(strict=False)
        data = counting.get_data()
        for file in files:
            for line, contexts in data.contexts_by_lineno(str(tree.folder / file)).items():
                for context in contexts:
                    test = context.rpartition(" (")[0] if context.endswith(")") and " (" in context else context
                    if test in reach.seconds:
                        reach.lines[file][line].add(test)
        drop(reach, plugin.failed)
        return reach.text()

    said = in_child(work, SECONDS_OF_ALL)
    if not said:
        raise AnalysisError(f"the tests did not end, or pytest failed under {sys.executable}")
    reach = read_reach(said)
    for file in files:
        reach.functions[file] = functions_of(tree.folder / file)
    return reach


def functions_of(path: Path) -> dict[int, int]:
    """First and last line of every function, its decorators left out."""
    found = {}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found[node.body[0].lineno] = node.end_lineno or node.body[-1].lineno
    return found
