"""The exercises: every start fails for the reason that its row states, every solution passes, bad input is named."""

import json
import re
from pathlib import Path

import pytest

from analysis.__main__ import main
from analysis.errors import AnalysisError
from analysis.files import read_text, root
from analysis.ladder.headers import load
from analysis.learn import exercises
from analysis.learn.asked import Line, at_least, barriers, results
from analysis.learn.exercises import ANSWERS, Verdict, file_name, folder_of, grade, start_text
from analysis.learn.kernel_run import SILENT, Case, Run
from analysis.learn.patches import apply
from analysis.learn.tasks import EXERCISES, Exercise
from analysis.machine_code.loops import PTXRUN

IN_CHECK = (1, 7)  # of the kernels; the others run in check-long
SOLUTIONS = root() / "exercises/solutions"
KERNELS = [each for each in EXERCISES if each.kernel]
NUMBERS = [each for each in EXERCISES if not each.kernel]
NEEDS_PTXRUN = pytest.mark.skipif(not PTXRUN.exists(), reason="bin/ptxrun is not built: make bin/ptxrun")


def by_slug(found: list[Exercise]) -> pytest.MarkDecorator:
    marks = {each.number: [] if each.number in IN_CHECK or not each.kernel else [pytest.mark.long] for each in found}
    rows = [pytest.param(each, id=each.slug, marks=marks[each.number]) for each in found]
    return pytest.mark.parametrize("exercise", rows)


def solution_text(exercise: Exercise) -> str:
    """The patch of the solution; without one, a version's own source or the answers of the page."""
    patch = SOLUTIONS / f"{exercise.slug}.patch"
    if patch.exists():
        return apply(read_text(patch), start_text(exercise), patch.name)
    if exercise.kernel:
        return load(root(), exercise.kernel).source
    answers = re.findall(r"^    (\w+ = [0-9.]+)$", read_text(SOLUTIONS / f"{exercise.slug}.md"), re.MULTILINE)
    return "\n".join(answers)


def graded(exercise: Exercise, text: str, folder: Path) -> Verdict:
    path = folder / file_name(exercise)
    path.write_text(text)
    return grade(exercise, path)


def failing(verdict: Verdict) -> tuple[str, ...]:
    return tuple(line.kind for line in verdict.lines if not line.ok)


@pytest.mark.parametrize("exercise", KERNELS, ids=lambda exercise: exercise.slug)
def test_starts_and_solutions_fit_their_versions(exercise: Exercise) -> None:
    """In every check: a line more in a version's header moves the lines of a patch."""
    assert start_text(exercise) != solution_text(exercise)


@NEEDS_PTXRUN
@by_slug(KERNELS)
def test_a_start_fails_for_its_reason(exercise: Exercise, tmp_path: Path) -> None:
    verdict = graded(exercise, start_text(exercise), tmp_path)
    assert failing(verdict) == exercise.fails != (), [line.text for line in verdict.lines]


@NEEDS_PTXRUN
@by_slug(KERNELS)
def test_a_solution_passes(exercise: Exercise, tmp_path: Path) -> None:
    verdict = graded(exercise, solution_text(exercise), tmp_path)
    assert verdict.solved, [line.text for line in verdict.lines]


@by_slug(NUMBERS)
def test_answers(exercise: Exercise, tmp_path: Path) -> None:
    names = tuple(question.name for question in exercise.questions)
    assert failing(graded(exercise, start_text(exercise), tmp_path)) == names, "question marks are no numbers"
    assert graded(exercise, solution_text(exercise), tmp_path).solved
    wrong = graded(exercise, re.sub(r"= (\d+)", r"= 1\1", solution_text(exercise)), tmp_path)
    assert failing(wrong) == names and all("too high" in line.text for line in wrong.lines)
    figures = [f"{question.figure():g}" for question in exercise.questions]
    assert not [one for line, one in zip(wrong.lines, figures, strict=True) if re.search(rf"\b{one}\b", line.text)]


def test_one_check_that_fails_leaves_an_exercise_unsolved() -> None:
    good, bad = Line("results", True, "results: fine"), Line("race", False, "findings: a race")
    assert Verdict((good, good)).solved and not Verdict((good, bad)).solved


def made_up(error: float = 0.5, passed: int = 65) -> Run:
    """The result of a kernel in which this many warps passed a barrier."""
    counts = dict.fromkeys(("sectors", "wavefronts", "ideal", "executed"), str(passed))
    return Run(Case(128), SILENT, "", error, [{"ptx": "@%p1 bar.sync 0;", **counts}])


@pytest.mark.parametrize("exercise", KERNELS, ids=lambda exercise: exercise.slug)
def test_a_kernel_is_asked_for_results_and_findings_and_more(exercise: Exercise) -> None:
    """And a start is said to fail for what is asked, or for a class of findings."""
    kinds = [check([made_up()]).kind for check in exercise.checks]
    assert exercise.cases and kinds[:2] == ["results", "findings"]
    classes = re.findall(r"^ +EMU_(\w+),", read_text(root() / "emulator/emu.h"), re.MULTILINE)
    assert exercise.fails and {*exercise.fails} <= {*kinds, *(name.lower().replace("_", "-") for name in classes)}


def test_what_is_asked_is_said_with_its_limit() -> None:
    assert results()([made_up(0.5)]).text.endswith("the largest error is 50 % of the tolerance")
    assert results()([made_up(2)]).text.endswith("200 % of the tolerance, must be at most 100 %")
    most, least = barriers(64), at_least("turns", "turns", lambda run: run.total("executed", "bar"), 66)
    assert most([made_up()]).text.endswith(": 65, must be at most 64") and most([made_up(passed=64)]).ok
    assert least([made_up()]).text.endswith(": 65, must be at least 66")
    enough = least([made_up(passed=66)])
    assert enough.ok and enough.text.endswith(": 66")


def test_a_prediction_may_miss_by_its_tolerance(tmp_path: Path) -> None:
    exercise = exercises.find("11")
    (question,) = (each for each in exercise.questions if each.name == "v01")
    figure, share = question.figure(), question.tolerance
    assert question.judge(figure * (1 + 0.99 * share)).ok and question.judge(figure * (1 - 0.99 * share)).ok
    assert "too low by more than 10 %" in question.judge(figure * (1 - 1.01 * share)).text


def test_every_exercise_has_its_files_and_no_other_is_there() -> None:
    assert [each.number for each in EXERCISES] == list(range(1, len(EXERCISES) + 1)) and len(EXERCISES) >= 15
    folders = sorted(path.name for path in (root() / "exercises").iterdir() if path.name != "solutions")
    assert folders == [each.slug for each in EXERCISES]
    solutions = sorted(path.name for path in SOLUTIONS.glob("*.md"))
    assert solutions == [f"{each.slug}.md" for each in EXERCISES]
    assert {path.stem for path in SOLUTIONS.glob("*.patch")} <= {each.slug for each in KERNELS}
    page = read_text(root() / "docs/learn/exercises.md")
    linked = re.findall(r"\[(\d+)\]\(../../exercises/(\w+)/task.md\)", page)
    assert sorted(linked, key=lambda link: int(link[0])) == [(str(each.number), each.slug) for each in EXERCISES]


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.slug)
def test_a_task_says_everything_and_its_links_lead_somewhere(exercise: Exercise) -> None:
    task = folder_of(exercise) / "task.md"
    text = read_text(task)
    assert text.startswith(f"# Exercise {exercise.number}: {exercise.title}\n")
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == ["Goal", "Read", "Run", "Expect", "Hint"]
    assert f"    make exercise N={exercise.number}\n" in text
    assert f"`exercises/{exercise.slug}/work/{file_name(exercise)}`" in text
    for link in re.findall(r"\]\(([^)#]+)", text):
        assert (task.parent / link).exists(), link
    for path in re.findall(r"`((?:kernels|common)/[\w.]+)`", text):
        assert (root() / path).exists(), path


@pytest.fixture
def apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Exercises whose learner's files are elsewhere, so that no learner's own file is touched."""
    copies = tmp_path / "copies"
    for each in EXERCISES:
        (copies / each.slug).mkdir(parents=True)
        (copies / each.slug / "task.md").write_text(read_text(folder_of(each) / "task.md"))
        if (folder_of(each) / "start.patch").exists():
            (copies / each.slug / "start.patch").write_text(read_text(folder_of(each) / "start.patch"))
    monkeypatch.setattr(exercises, "folder_of", lambda exercise: copies / exercise.slug)
    monkeypatch.setattr(exercises, "shown", lambda path: path.relative_to(copies))
    return copies


def test_an_exercise_from_its_first_call_to_its_last(apart: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = apart / "06_predict_a_tile/work" / ANSWERS
    assert main(["exercise", "6"]) == 0 and mine.exists()
    first = capsys.readouterr().out
    assert "## Goal" in first and str(mine.relative_to(apart)) in first and "## Hint" not in first
    assert main(["exercise", "6"]) == 1
    assert "no    smem_bytes = ?: must be a number" in capsys.readouterr().out
    mine.write_text("smem_bytes = 1\nhmma 3\n")
    assert main(["exercise", "6"]) == 1
    assert "answers.txt:2: expected `name = number`, found 'hmma 3'" in capsys.readouterr().out
    mine.write_text("registers = 3\n")
    assert main(["exercise", "6"]) == 1
    assert "registers: must be the name of a question" in capsys.readouterr().out
    mine.write_text(solution_text(exercises.find("6")))
    assert exercises.state_of(exercises.find("6")) == "begun"
    assert main(["exercise", "6"]) == 0
    assert "Solved." in capsys.readouterr().out and exercises.state_of(exercises.find("6")) == "solved"
    assert main(["exercises", "--csv"]) == 0
    assert "6,predict what a tile costs,numbers,solved" in capsys.readouterr().out
    assert main(["exercise", "6", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["solved"] is True and [check["ok"] for check in record["checks"]] == [True] * 5
    mine.write_text("smem_bytes = 1\n")
    assert exercises.state_of(exercises.find("6")) == "begun", "the file has changed since"


@pytest.mark.parametrize("number", ["99", "abc", ""])
def test_a_number_that_is_none_is_named(number: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["exercise", "--", number]) == 2
    assert f"N={number}: must be from 1 to {len(EXERCISES)}" in capsys.readouterr().err


@NEEDS_PTXRUN
def test_a_file_that_does_not_compile_is_said_with_the_line(tmp_path: Path) -> None:
    exercise = exercises.find("1")
    verdict = graded(exercise, start_text(exercise).replace("float s = 0;", "float s = ;"), tmp_path)
    assert failing(verdict) == ("compile",)
    (line,) = verdict.lines
    assert "v00_plain.cu does not compile" in line.text and "expected an expression" in line.text


def test_another_header_block_is_refused(tmp_path: Path) -> None:
    exercise = exercises.find("1")
    other = graded(exercise, start_text(exercise).replace("64, 32, 4)", "64, 16, 4)"), tmp_path)
    assert failing(other) == ("header",) and "must stay (FP16, 128, 64, 32, 4)" in other.lines[0].text
    broken = graded(exercise, "int main() {}\n", tmp_path)
    assert failing(broken) == ("header",) and "must stay that of v00" in broken.lines[0].text


@pytest.mark.parametrize(
    ("patch", "said"),
    [
        ("@@ -1,2 +1,2 @@\n a\n-x\n+y\n", "p:3: expected 'x' at line 2, found 'b'"),
        ("@@ -2,1 +2,1 @@\n b\n@@ -1,1 +1,1 @@\n a\n", "the hunks overlap"),
        ("", "p: holds no hunk"),
    ],
)
def test_a_patch_that_does_not_fit_is_refused(patch: str, said: str) -> None:
    with pytest.raises(AnalysisError, match=re.escape(said)):
        apply(patch, "a\nb\nc\n", "p")
