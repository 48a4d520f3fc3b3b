"""`make mutate`: changes a sample of lines, one at a time, and runs the tests that reach each.

A mutant that compiles to the machine code of the original is left out; one that does not compile too. A test that
fails, crashes or runs past its time limit kills it. Results are appended to build/mutate/results.csv as they come, so
that an interrupted run continues where it was; logs/mutants.csv holds the last complete ones.
"""

import argparse
import ast
import contextlib
import math
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cache
from multiprocessing import Queue, get_context
from pathlib import Path

from analysis.errors import DIFFERENT, DONE, AnalysisError
from analysis.files import read_text, root, write_if_changed
from analysis.table import add_table_arguments, print_table
from analysis.tools.mutation.mutants import Line, digest, lines_of
from analysis.tools.mutation.pytest_child import TIMED_OUT, preload, run_pytest
from analysis.tools.mutation.reach import Reach, c_reach, python_reach, read_reach
from analysis.tools.mutation.results import (
    GROUPS,
    KILLED,
    NONE,
    RESULTS,
    SURVIVED,
    Group,
    Result,
    csv_text,
    read_results,
    reviewed,
    share,
    shares_table,
    survivors,
)
from analysis.tools.mutation.trees import COVERAGE, SANITIZED, Tree, make_tree

TRIES = 12  # mutants of a line that are compiled in search of one that differs
MOST_SECONDS = 60.0  # of pytest's tests for one mutant, as they take without a change
MUTATORS = ".venv/mutators"


@dataclass(frozen=True)
class Task:
    """A line, the tests that reach it with their seconds, and the programs that those run."""

    line: Line
    tests: tuple[tuple[str, float], ...]
    programs: tuple[str, ...] = ()


def limit_of(seconds: float) -> float:
    """When tests that take so long are ended: a mutant may loop forever."""
    return 5.0 + 5.0 * seconds


def parses(path: Path) -> bool:
    """Whether this is Python."""
    with contextlib.suppress(SyntaxError):
        ast.parse(read_text(path))
        return True
    return False


def total(tests: Sequence[tuple[str, float]]) -> float:
    return sum(seconds for _, seconds in tests)


class Worker:
    """One process with its own copies of the checkout."""

    tree: Tree

    def start(self, source: Path, folder: Path, numbers: "Queue[int]") -> None:
        """A copy of its own, with byte code of all modules."""
        self.tree = make_tree(source, folder / f"tree.{numbers.get()}")
        subprocess.run(
            [sys.executable, "-m", "compileall", "-q", "analysis", "harness", "runtime", "emulator"],
            cwd=self.tree.folder,
            check=False,
        )

    def judge(self, task: Task) -> tuple[Line, str, str, str]:
        """The line, its mutant, the verdict and what killed it."""
        line = task.line
        for mutant in line.mutants[:TRIES]:
            with self.tree.changed(line.file, mutant.text), self.compiled(line.file, task.programs) as differs:
                if differs:
                    by = self.first_failure(line.file, task.tests)
                    return line, mutant.line, KILLED if by else SURVIVED, by or ""
        return line, "", NONE, ""

    @contextlib.contextmanager
    def compiled(self, file: str, programs: Sequence[str]) -> Iterator[bool]:
        """Whether the file as it is now yields another program; the object of the original is put back afterwards."""
        if file.endswith(".py"):
            yield parses(self.tree.folder / file)
            return
        objects = [self.tree.object_of(file, sanitized) for sanitized in (False, True)]
        objects = [path for path in objects if path.exists()]  # harness/main.c is in no program under the sanitizers
        originals = [path.read_bytes() for path in objects]
        try:
            differs = self.tree.compile(file) and objects[0].read_bytes() != originals[0]
            yield differs and all(self.tree.link(program) for program in programs)
        finally:
            for path, original in zip(objects, originals, strict=True):
                path.write_bytes(original)

    def first_failure(self, file: str, tests: Sequence[tuple[str, float]]) -> str | None:
        """Which test fails first: C programs, then those of pytest, then the C programs under the sanitizers."""
        programs = [(test, seconds) for test, seconds in tests if test.startswith("build/")]
        others = [(test, seconds) for test, seconds in tests if not test.startswith("build/")]
        for program, seconds in programs:
            if by := self.run_program(program, seconds):
                return by
        if others and (by := run_pytest(self.tree.folder, [test for test, _ in others], limit_of(total(others)))):
            return by
        if programs and self.tree.compile(file, sanitized=True):
            for program, seconds in programs:
                if by := self.run_program(program.replace("build/tests/", SANITIZED), 10 * seconds):
                    return by
        return None

    def run_program(self, program: str, seconds: float) -> str | None:
        """The program's name if it fails, with more to it if it does not end."""
        if not self.tree.link(program):
            return f"{program}: link"
        status = self.tree.run([f"./{program}"], limit_of(seconds), sanitized=program.startswith(SANITIZED))
        return f"{program}: {TIMED_OUT}" if status is None else program if status else None


WORKER = Worker()


def judge(task: Task) -> tuple[Line, str, str, str]:
    return WORKER.judge(task)


def sample(group: Group, file: str, text: str) -> list[Line]:
    """The lines of a file that are changed."""
    lines = lines_of(file, text)
    return lines[: math.ceil(len(lines) / group.one_line_in)]


class State:
    """What verdicts rest on: all on the file, a kill on the test that failed, a survival on all tests of the group."""

    def __init__(self, folder: Path, group: Group) -> None:
        self.folder = folder
        files = [path for suite in group.suites for path in [folder / suite, *(folder / suite).rglob("*")]]
        self.tests = sorted(path for path in files if path.suffix in (".c", ".py"))
        self.all_tests = digest(*(path.read_bytes() for path in self.tests))

    def of(self, file: str, verdict: str, by: str) -> str:
        """The state for a result with this verdict and killer."""
        tests = {KILLED: self.test(by), SURVIVED: self.all_tests, NONE: ""}
        return digest(self.text(file), tests[verdict])

    def test(self, by: str) -> str:
        """The text of a C program, or of the function that is the test."""
        if by.startswith("build/"):
            name = Path(by.partition(":")[0]).name
            found = [path for path in self.tests if path.name == f"{name}.c"]
            return self.text(str(found[0].relative_to(self.folder))) if found else ""
        file, _, name = by.partition("::")
        return self.functions(file).get(re.split(r"\W", name)[0], self.all_tests)

    @cache  # noqa: B019
    def text(self, file: str) -> str:
        return digest(read_text(self.folder / file))

    @cache  # noqa: B019
    def functions(self, file: str) -> dict[str, str]:
        """The functions at the top of a Python file, with their decorators."""
        if not (self.folder / file).is_file():
            return {}
        text = read_text(self.folder / file)
        functions = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
        parts = {node.name: [*node.decorator_list, node] for node in functions}
        return {name: digest(*(ast.get_source_segment(text, node) for node in nodes)) for name, nodes in parts.items()}


def reach_of(group: Group, files: Sequence[str], folder: Path) -> Reach:
    """Which tests reach which line: kept in build/mutate until a file or a test changes."""
    work = folder / "build/mutate"
    state = State(folder, group)
    kept = work / f"reach.{group.name}.{digest(state.all_tests, *(state.text(file) for file in files))}.json"
    if kept.exists():
        return read_reach(read_text(kept))
    print(f"mutate: finding the tests that reach each line of {group.name}", file=sys.stderr, flush=True)
    tree = make_tree(folder, work / f"reach.{group.name}", COVERAGE)
    if files[0].endswith(".py"):
        reach = python_reach(tree, files, group.suites)
    else:
        found = [path for suite in group.suites for path in [folder / suite, *(folder / suite).glob("test_*")]]
        names = sorted(path.stem for path in found if path.suffix == ".c")
        suites = [str(path.relative_to(folder)) for path in found if path.suffix == ".py"]
        reach = c_reach(tree, files, [f"build/tests/{name}" for name in names], sorted(suites), group.programs)
    kept.write_text(reach.text(), encoding="utf-8")
    return reach


def affordable(reach: Reach, file: str, line: int) -> tuple[tuple[str, float], ...]:
    """The tests of a line: all C programs, and the cheapest of pytest's up to a limit on their time together."""
    found = [(test, reach.seconds[test]) for test in reach.tests(file, line)]
    chosen = [pair for pair in found if pair[0].startswith("build/")]
    spent = 0.0
    for test, seconds in found:
        if (test, seconds) not in chosen and spent <= MOST_SECONDS:
            chosen.append((test, seconds))
            spent += seconds
    return tuple(chosen)


def measured(tasks: Sequence[Task], folder: Path) -> Iterator[tuple[Line, str, str, str]]:
    """Verdicts as they come, from one process for each core."""
    preload()
    processes = len(os.sched_getaffinity(0))
    context = get_context("fork")
    numbers = context.Queue()
    for number in range(processes):
        numbers.put(number)
    arguments = (folder, folder / "build/mutate", numbers)
    with ProcessPoolExecutor(processes, context, initializer=WORKER.start, initargs=arguments) as pool:
        futures: list[Future[tuple[Line, str, str, str]]] = [pool.submit(judge, task) for task in tasks]
        try:
            for future in as_completed(futures):
                yield future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def progress(done: int, total: int, began: float, survived: int) -> str:
    left = (time.monotonic() - began) / done * (total - done) if done else 0.0
    return f"mutate: {done} of {total}, {survived} survived, {left / 60:.0f} min left"


def run_group(group: Group, files: Sequence[str], folder: Path, old: Sequence[Result]) -> list[Result]:
    """The results of some files of a group; those that still hold are taken from the old ones."""
    state = State(folder, group)
    known = {result.place: result for result in old}
    results, open_lines = [], []
    for file in files:
        for line in sample(group, file, read_text(folder / file)):
            result = known.get((line.file, line.source, line.copy))
            if result and result.state == state.of(file, result.verdict, result.by):
                results.append(result)
            else:
                open_lines.append(line)
    if not open_lines:
        return results
    reach = reach_of(group, group.matches(folder), folder)
    tasks = [Task(line, affordable(reach, line.file, line.number), group.programs) for line in open_lines]
    began, survived = time.monotonic(), 0
    log = folder / "build/mutate/results.csv"
    for done, (line, mutant, verdict, by) in enumerate(measured(tasks, folder), 1):
        held = state.of(line.file, verdict, by)
        result = Result(line.file, line.number, line.source, line.copy, mutant, verdict, by, held)
        with log.open("a", encoding="utf-8") as appended:
            appended.write(csv_text([result], header=False))
        results.append(result)
        survived += verdict == SURVIVED
        if sys.stderr.isatty() or done % 25 == 0 or done == len(tasks):
            end = "\r" if sys.stderr.isatty() and done < len(tasks) else "\n"
            print(progress(done, len(tasks), began, survived), file=sys.stderr, end=end, flush=True)
    return results


def add_mutate_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="*", metavar="FILE", help="change these files only")
    parser.add_argument("--write", action="store_true", help=f"keep the results in {RESULTS}")
    add_table_arguments(parser)
    parser.add_argument(
        "--exit-code",
        action="store_true",
        help="status 1 when less of a group than promised is killed",
    )


def run_mutate(args: argparse.Namespace) -> int:
    folder = root()
    if not (folder / MUTATORS).exists():
        raise AnalysisError(f"needs the packages in {MUTATORS}: run `make mutate`, which installs them")
    sys.path.append(str(folder / MUTATORS))
    by_group = {group: group.matches(folder) for group in GROUPS}
    unknown = [file for file in args.files if not any(file in files for files in by_group.values())]
    if unknown:
        raise AnalysisError(
            f"{unknown[0]}: not one of the files that are changed: "
            + ", ".join(pattern for group in GROUPS for pattern in group.files)
        )
    log = folder / "build/mutate/results.csv"
    log.parent.mkdir(parents=True, exist_ok=True)
    committed = read_results(folder / RESULTS)
    if not log.exists():
        log.write_text(csv_text([]), encoding="utf-8")
    old = [*committed, *read_results(log)]
    results = []
    for group, files in by_group.items():
        chosen = [file for file in files if not args.files or file in args.files]
        results += [result for result in committed if result.file in files and result.file not in chosen]
        results += run_group(group, chosen, folder, old)
    results.sort(key=lambda result: (result.file, result.line, result.copy))
    if args.write:
        write_if_changed(folder / RESULTS, csv_text(results))
    known = reviewed(folder)
    for result in survivors(results, known):
        if not args.files or result.file in args.files:
            print(f"{result.file}:{result.line}: {result.source}\n    survived as: {result.mutant}", file=sys.stderr)
    print_table(shares_table(folder, results), args)
    low = [group for group, files in by_group.items() if share(results, known, files).value < group.promised]
    for group in low:
        print(
            f"mutate: {group.name}: less than {100 * group.promised:.0f} % of the mutants are killed", file=sys.stderr
        )
    return DIFFERENT if low and args.exit_code else DONE
