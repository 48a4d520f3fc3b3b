"""`make mutate` on a toy file of C and one of Python, each with a test that notices one kind of change."""

import mmap
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from analysis.errors import AnalysisError
from analysis.files import root
from analysis.tools.mutation.mutants import Line, Mutant, difference, lines_of, without_comments
from analysis.tools.mutation.mutate import State, Task, Worker, affordable, limit_of
from analysis.tools.mutation.pytest_child import TIMED_OUT, run_pytest
from analysis.tools.mutation.reach import Reach, c_reach, python_reach, read_reach
from analysis.tools.mutation.results import (
    GROUPS,
    KILLED,
    NONE,
    SURVIVED,
    Equivalent,
    Group,
    Result,
    csv_text,
    read_results,
    share,
    survivors,
)
from analysis.tools.mutation.trees import COVERAGE, MEMORY, Tree

PACKAGES = root() / ".venv/mutators"
pytestmark = pytest.mark.skipif(not PACKAGES.exists(), reason="no mutators: make setup")

TOY_C = """int smaller(int a, int b);
int smaller(int a, int b) {
    return a < b ? a : b;  /* the first where both are equal */
}
int unused(int a);
int unused(int a) { return a + 1; }
"""
TEST_C = """int smaller(int a, int b);
int main(void) { return smaller(1, 2) != 1; }
"""
TOY_PYTHON = '''"""A toy."""


def smaller(a: int, b: int) -> int:
    """The first where both are equal."""
    return a if a < b else b


def unused(a: int) -> int:
    print("one more")
    return a + 1
'''
TEST_PYTHON = """from toy import smaller


def test_the_smaller_one() -> None:
    assert smaller(1, 2) == 1
"""


@pytest.fixture(autouse=True)
def mutators(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(PACKAGES))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout of two files and their tests, with the objects that make would build."""
    folder = tmp_path_factory.mktemp("toy")
    made = {
        "harness/toy.c": TOY_C,
        "harness/main.c": "int main(void) { return 0; }\n",
        "v01/code.c": "extern int a;\n",
        "v01/about.c": "extern int a;\n",
        "device/code.c": "extern int a;\n",
        "dump/v01/code.c": "extern int a;\n",
        "dump/v01/about.c": "extern int a;\n",
        "dump/device/code.c": "extern int a;\n",
        "tests/test_toy.c": TEST_C,
    }
    copies = {"harness/toy.c": "san/harness/toy.o", "tests/test_toy.c": "tests-san/test_toy.o"}
    for name, text in made.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        for place in (str(Path(name).with_suffix(".o")), copies.get(name)):
            if place:
                (folder / "build" / place).parent.mkdir(parents=True, exist_ok=True)
                subprocess.run(["cc", "-c", "-O2", "-o", folder / "build" / place, path], check=True)
    (folder / "bin/dump").mkdir(parents=True)
    (folder / "toy.py").write_text(TOY_PYTHON)
    (folder / "test_toy.py").write_text(TEST_PYTHON)
    return folder


@pytest.fixture
def toy(built: Path, tmp_path: Path) -> Tree:
    """A copy of that checkout."""
    shutil.copytree(built, tmp_path / "toy")
    return Tree(tmp_path / "toy", ("cc", "-O2", "-Wall"), ("cc",))


def judged(tree: Tree, file: str, source: str, changed: str, tests: tuple[tuple[str, float], ...]) -> tuple[str, ...]:
    """Verdict and killer of one change."""
    text = (tree.folder / file).read_text()
    worker = Worker()
    worker.tree = tree
    line = Line(file, 1, source, 0, (Mutant(changed, text.replace(source, changed)),))
    _, mutant, verdict, by = worker.judge(Task(line, tests, ("bin/v01",)))
    assert (tree.folder / file).read_text() == text
    assert mutant == ("" if verdict == NONE else changed)
    return verdict, by


PROGRAM = "build/tests/test_toy"


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ("a > b ? a : b", (KILLED, PROGRAM)),
        ("b > a ? a : b", (NONE, "")),  # another spelling of the same function
        ("a < b ? a : 7", (SURVIVED, "")),
        pytest.param("a < b ? a ; b", (NONE, ""), marks=pytest.mark.long),
        pytest.param("a < b ? a : unknown(b)", (NONE, ""), marks=pytest.mark.long),
        ("a < b ? ({ for (;;) ; }), a : b", (KILLED, f"{PROGRAM}: {TIMED_OUT}")),
        ("a < b ? ((volatile int *)&a)[0 * b] : ((int[2]){0})[a]", (SURVIVED, "")),
        ("a < b ? ((volatile int *)&a)[4 * b], a : b", (KILLED, "build/tests-san/test_toy")),
    ],
)
def test_what_becomes_of_a_change_in_c(
    toy: Tree, changed: str, expected: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("analysis.tools.mutation.mutate.limit_of", lambda seconds: 0.3)
    assert judged(toy, "harness/toy.c", "a < b ? a : b", changed, ((PROGRAM, 0.0),)) == expected
    before = toy.object_of("harness/toy.c").read_bytes()
    assert toy.compile("harness/toy.c") and toy.object_of("harness/toy.c").read_bytes() == before


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ("a if a > b else b", (KILLED, "test_toy.py::test_the_smaller_one")),
        ("a if a <= b else b", (SURVIVED, "")),
        pytest.param("a if missing else b", (KILLED, "test_toy.py::test_the_smaller_one"), marks=pytest.mark.long),
    ],
)
def test_what_becomes_of_a_change_in_python(toy: Tree, changed: str, expected: tuple[str, str]) -> None:
    tests = (("test_toy.py::test_the_smaller_one", 0.1),)
    assert judged(toy, "toy.py", "a if a < b else b", changed, tests) == expected


def test_what_this_process_has_mapped_takes_no_memory_from_a_test(toy: Tree) -> None:
    """A runtime of WebAssembly, say, which a test before has loaded: gigabytes for each memory."""
    with mmap.mmap(-1, MEMORY, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=mmap.PROT_READ):
        test_what_becomes_of_a_change_in_python(toy, "a if a <= b else b", (SURVIVED, ""))


def test_a_line_that_no_test_reaches_survives(toy: Tree) -> None:
    assert judged(toy, "toy.py", "a + 1", "a - 1", ()) == (SURVIVED, "")


def test_a_test_that_never_ends_is_ended(toy: Tree) -> None:
    (toy.folder / "test_toy.py").write_text("def test_it() -> None:\n    while True:\n        pass\n")
    assert run_pytest(toy.folder, ["test_toy.py::test_it"], 1.0) == TIMED_OUT
    assert limit_of(2.0) > 2.0


def test_which_tests_reach_a_line_of_c(toy: Tree) -> None:
    counted = Tree(toy.folder, toy.compiler, toy.linker, COVERAGE)
    reach = read_reach(c_reach(counted, ["harness/toy.c"], [PROGRAM], [], ["bin/v01"]).text())
    assert reach.tests("harness/toy.c", 3) == [PROGRAM]
    assert reach.tests("harness/toy.c", 6) == []
    assert reach.tests("harness/toy.c", 1) == [PROGRAM]  # outside of functions: whatever runs the file


def test_a_program_that_a_test_links_reaches_its_lines(toy: Tree) -> None:
    (toy.folder / "test_link.py").write_text(
        "import subprocess\n\n\ndef test_it() -> None:\n"
        "    objects = ['build/tests/test_toy.o', 'build/harness/toy.o']\n"
        "    subprocess.run(['cc', '-o', 'linked', *objects], check=True)\n"
        "    subprocess.run(['./linked'], check=True)\n"
    )
    counted = Tree(toy.folder, toy.compiler, toy.linker, COVERAGE)
    reach = read_reach(c_reach(counted, ["harness/toy.c"], [], ["test_link.py"], []).text())
    assert reach.tests("harness/toy.c", 3) == ["test_link.py::test_it"]


@pytest.mark.long
def test_which_tests_reach_a_line_of_python(toy: Tree) -> None:
    (toy.folder / "analysis").mkdir()
    (toy.folder / "toy.py").rename(toy.folder / "analysis/toy.py")
    (toy.folder / "test_toy.py").write_text(
        TEST_PYTHON.replace("from toy", "import subprocess, sys\nfrom analysis.toy")
        + "def test_another_process() -> None:\n"
        "    code = 'from analysis.toy import unused; unused(1)'\n"
        "    subprocess.run([sys.executable, '-c', code], check=True)\n"
    )
    reach = python_reach(toy, ["analysis/toy.py"], ["test_toy.py"])
    assert reach.tests("analysis/toy.py", 6) == ["test_toy.py::test_the_smaller_one"]
    assert reach.tests("analysis/toy.py", 11) == ["test_toy.py::test_another_process"]


def test_the_cheapest_test_comes_first() -> None:
    reach = Reach(seconds={"slow": 2.0, "quick": 1.0, "other": 0.5})
    reach.lines["a.c"] = {3: {"slow", "quick"}, 9: {"other"}}
    reach.seconds |= {"t.py::one": 0.3, "t.py::two": 0.2, "u.py::one": 0.1}
    reach.lines["b.c"] = {3: {"t.py::one"}}
    reach.functions["a.c"] = {2: 5, 8: 9}
    assert reach.tests("a.c", 4) == ["quick", "slow"]  # the rest of the statement that begins above
    assert reach.tests("a.c", 2) == ["quick", "slow"]
    assert reach.tests("a.c", 9) == ["other"]
    assert reach.tests("a.c", 7) == ["other", "quick", "slow"]
    assert reach.tests("b.c", 7) == ["t.py::two", "t.py::one"]  # a constant may be read by a test that runs no line


def test_all_programs_run_and_pytest_as_long_as_it_may() -> None:
    reach = Reach(seconds={"build/tests/test_a": 500.0, "a": 50.0, "b": 51.0, "c": 52.0})
    reach.lines["a.c"] = {1: set(reach.seconds)}
    assert affordable(reach, "a.c", 1) == (("build/tests/test_a", 500.0), ("a", 50.0), ("b", 51.0))


def test_a_sample_stays_when_lines_move() -> None:
    def chosen(text: str) -> list[tuple[str, list[str]]]:
        return [(line.source, [mutant.line for mutant in line.mutants]) for line in lines_of("toy.py", text)]

    before = chosen(TOY_PYTHON)
    assert "return a if a <= b else b" in dict(before)["return a if a < b else b"]
    assert chosen("# moved\n\n" + TOY_PYTHON) == before
    assert dict(before)['print("one more")'] == ["print(None)"]  # what a message says is not changed


def test_changes_of_c_leave_comments_alone() -> None:
    assert without_comments('a /* b\nc */ d; // e\n"/* f */"') == 'a\n     d;\n"/* f */"'
    lines = {line.source: line for line in lines_of("toy.c", TOY_C)}
    assert "return a < b ? a : b;" in lines
    assert "return a <= b ? a : b;" in [mutant.line for mutant in lines["return a < b ? a : b;"].mutants]


def test_what_a_message_says_is_not_changed_in_c() -> None:
    (line,) = lines_of("toy.c", 'say("at %" PRIu64 " first.", n);\n')
    changes = [mutant.line for mutant in line.mutants]
    assert '/*say("at %" PRIu64 " first.", n);*/' in changes and 'say("", n);' not in changes


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (["a", "b + 1", "c"], (1, "b + 1")),
        (["a", "c"], (1, "")),
        (["a", "b", "continue;", "c"], (1, "b continue;")),
        (["a", "b", "c", "d"], (2, "c d")),
        (["z", "a", "b", "c"], (0, "z")),
        (["a", "x", "y", "c"], (1, "x y")),
    ],
)
def test_where_a_change_is(after: list[str], expected: tuple[int, str]) -> None:
    assert difference(["a", "b", "c"], after) == expected


ROW = Result("harness/a.c", 3, "a < b", 0, "a > b", KILLED, "build/tests/test_a", "0")


def test_what_counts() -> None:
    rows = [
        ROW,
        Result("harness/a.c", 4, "b < c", 0, "b <= c", SURVIVED, "", "0"),
        Result("harness/a.c", 9, "c < d", 0, "c <= d", SURVIVED, "", "0"),
        Result("harness/a.c", 7, "}", 0, "", NONE, "", "0"),
        Result("harness/b.c", 7, "d", 0, "e", SURVIVED, "", "0"),
    ]
    known = [
        Equivalent("harness/a.c", "b < c", "b <= c", "both are the same there"),
        Equivalent("harness/a.c", "a < b", "a > b", "is killed: counts"),
    ]
    one = share(rows, known, ["harness/a.c"])
    assert (one.mutants, one.killed, one.equivalent, one.counted, one.value) == (3, 1, 1, 2, 0.5)
    assert [row.line for row in survivors(rows, known)] == [9, 7]


def test_results_are_read_back(tmp_path: Path) -> None:
    (tmp_path / "results.csv").write_text(csv_text([ROW]))
    assert read_results(tmp_path / "results.csv") == [ROW]
    assert read_results(tmp_path / "missing.csv") == []
    (tmp_path / "results.csv").write_text("file,line\n")
    with pytest.raises(AnalysisError, match="expected the columns"):
        read_results(tmp_path / "results.csv")


def test_a_verdict_holds_until_what_it_rests_on_changes(tmp_path: Path) -> None:
    """A kill on the file and on the test that failed; a survival on all tests."""
    made = {
        "a.py": "x = 1\n",
        "tests/test_a.py": "def test_one() -> None: ...\ndef test_two() -> None: ...\n",
        "harness/tests/test_c.c": "int x;\n",
    }
    for name, text in made.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    group = Group("made", ("a.py",), ("tests", "harness/tests"))
    verdicts = [(KILLED, "tests/test_a.py::test_one[x-1]"), (KILLED, "build/tests/test_c: time limit")]
    verdicts += [(SURVIVED, ""), (NONE, "")]

    def states() -> list[str]:
        return [State(tmp_path, group).of("a.py", *one) for one in verdicts]

    before = states()
    assert len(set(before)) == 4 and states() == before
    (tmp_path / "tests/test_a.py").write_text("# more\n" + made["tests/test_a.py"].replace("two", "three"))
    assert [a == b for a, b in zip(before, states(), strict=True)] == [True, True, False, True]
    (tmp_path / "tests/test_a.py").write_text("@slow\n" + made["tests/test_a.py"])
    assert [a == b for a, b in zip(before, states(), strict=True)] == [False, True, False, True]
    (tmp_path / "harness/tests/test_c.c").write_text("int y;\n")
    assert [a == b for a, b in zip(before, states(), strict=True)] == [False, False, False, True]
    (tmp_path / "tests/test_a.py").write_text(made["tests/test_a.py"])
    (tmp_path / "harness/tests/test_c.c").write_text(made["harness/tests/test_c.c"])
    assert states() == before
    (tmp_path / "a.py").write_text("x = 2\n")
    assert not set(states()) & set(before)


def test_every_group_has_files_and_tests() -> None:
    for group in GROUPS:
        assert group.matches(root())
        assert all((root() / suite).exists() for suite in group.suites)
    assert Group("a", ("analysis/measure/*.py",), ()).matches(root())[0] == "analysis/measure/autotune.py"


def test_a_file_that_is_not_changed_is_refused() -> None:
    command = [sys.executable, "-m", "analysis", "mutate", "harness/none.c"]
    done = subprocess.run(command, cwd=root(), capture_output=True, text=True)
    assert done.returncode == 2 and "harness/none.c: not one of the files that are changed" in done.stderr
