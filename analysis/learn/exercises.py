"""`./fl exercises` lists the exercises, `make exercise N=4` sets one up and grades it.

    python3 -m analysis exercises
    python3 -m analysis exercise 4

The learner's file is in exercises/NN_name/work/, which git ignores. Deleting that folder starts the exercise
again.
"""

import argparse
import hashlib
import re
from dataclasses import asdict, dataclass
from pathlib import Path

from analysis.errors import DIFFERENT, DONE, AnalysisError
from analysis.files import read_text, root, write_atomically
from analysis.ladder.headers import load, read_version
from analysis.learn.asked import Line
from analysis.learn.kernel_run import NotCompiledError, run_kernel
from analysis.learn.patches import apply
from analysis.learn.tasks import EXERCISES, Exercise
from analysis.table import Cell, Table, add_table_arguments, emit, json_text, print_table

ANSWERS = "answers.txt"
COMPILER_LINES = 12  # of what nvcc says


@dataclass(frozen=True)
class Verdict:
    """The checks of one file, as graded."""

    lines: tuple[Line, ...]

    @property
    def solved(self) -> bool:
        return all(line.ok for line in self.lines)


# ---- files -----------------------------------------------------------------------------------------------------------


def folder_of(exercise: Exercise) -> Path:
    return root() / "exercises" / exercise.slug


def shown(path: Path) -> Path:
    """A path as messages have it."""
    return path.relative_to(root())


def file_name(exercise: Exercise) -> str:
    """The learner's file, within its folder."""
    return load(root(), exercise.kernel).path.name if exercise.kernel else ANSWERS


def start_text(exercise: Exercise) -> str:
    """The initial contents of the learner's file."""
    if not exercise.kernel:
        rows = [f"# {question.text}\n{question.name} = ?\n" for question in exercise.questions]
        return f"# {exercise.title}: a number for each question mark, before you look.\n\n" + "\n".join(rows)
    patch, source = folder_of(exercise) / "start.patch", load(root(), exercise.kernel).source
    return apply(read_text(patch), source, str(shown(patch))) if patch.exists() else source


def find(text: str) -> Exercise:
    """The exercise of a number, as typed."""
    for exercise in EXERCISES:
        if text in (str(exercise.number), f"{exercise.number:02}"):
            return exercise
    raise AnalysisError(f"N={text}: must be from 1 to {len(EXERCISES)}; `./fl exercises` lists the exercises")


# ---- grading ---------------------------------------------------------------------------------------------------------


def grade(exercise: Exercise, path: Path) -> Verdict:
    """Judge a file. A compile error, and an answer that is not a number, are lines as well."""
    return Verdict(tuple(_grade_kernel(exercise, path) if exercise.kernel else _grade_answers(exercise, path)))


def _grade_kernel(exercise: Exercise, path: Path) -> list[Line]:
    version = load(root(), exercise.kernel)
    try:
        here = read_version(path).header
    except AnalysisError as error:
        return [Line("header", False, f"header block: {error}; it must stay that of {exercise.kernel}")]
    if here.config != version.header.config or here.arch != version.header.arch:
        kept = f"{version.header.config} for {version.header.arch}"
        return [Line("header", False, f"header block: {here.config} for {here.arch}: must stay {kept}")]
    try:
        runs = [run_kernel(path, version, case) for case in exercise.cases]
    except NotCompiledError as error:
        said = str(error).splitlines()
        return [Line("compile", False, "\n        ".join([f"{path.name} does not compile:", *said[:COMPILER_LINES]]))]
    return [check(runs) for check in exercise.checks]


def _grade_answers(exercise: Exercise, path: Path) -> list[Line]:
    answers: dict[str, str] = {}
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        name, equals, value = (word.strip() for word in text.partition("="))
        if not equals:
            return [Line("answers", False, f"{path.name}:{number}: expected `name = number`, found {text!r}")]
        answers[name] = value
    known = {question.name for question in exercise.questions}
    lines = [Line(name, False, f"{name}: must be the name of a question") for name in answers if name not in known]
    for question in exercise.questions:
        value = answers.get(question.name, "?")
        if re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", value):
            lines.append(question.judge(float(value)))
        else:
            lines.append(Line(question.name, False, f"{question.name} = {value}: must be a number, such as 12 or 0.5"))
    return lines


# ---- commands --------------------------------------------------------------------------------------------------------


def _fingerprint(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _mark(exercise: Exercise) -> Path:
    return folder_of(exercise) / "work/solved"


def state_of(exercise: Exercise) -> str:
    """Solved, as the file is now, or begun; nothing before it is set up."""
    path = folder_of(exercise) / "work" / file_name(exercise)
    if not path.exists():
        return ""
    mark = _mark(exercise)
    return "solved" if mark.exists() and read_text(mark).strip() == _fingerprint(read_text(path)) else "begun"


def add_exercise_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("number", metavar="N", help=f"number of the exercise, 1 to {len(EXERCISES)}")
    parser.add_argument("--json", action="store_true", help="print the result of each check as JSON")


def run_exercise(args: argparse.Namespace) -> int:
    """Set up, or grade: status 0 when it is set up or solved, 1 where it is not solved yet."""
    exercise = find(args.number)
    folder = folder_of(exercise)
    path = folder / "work" / file_name(exercise)
    mine, task = shown(path), shown(folder / "task.md")
    begins = not path.exists()
    if begins:
        write_atomically(path, start_text(exercise))
    if args.json:
        verdict = grade(exercise, path)
        checks = [asdict(at) for at in verdict.lines]
        emit(json_text({"file": str(mine), "solved": verdict.solved, "checks": checks}), None)
        return DONE if verdict.solved else DIFFERENT
    print(f"Exercise {exercise.number}: {exercise.title}")
    if begins:
        print(f"\n{read_text(folder / 'task.md').partition(chr(10))[2].partition('## Hint')[0].strip()}\n")
        print(f"Your file: {mine}. Change it, then run `make exercise N={exercise.number}` again to check it.")
        print(f"A hint is at the end of {task}.")
        return DONE
    verdict = grade(exercise, path)
    for line in verdict.lines:
        print(f"  {'ok' if line.ok else 'no':4}  {line.text}")
    if verdict.solved:
        write_atomically(_mark(exercise), _fingerprint(read_text(path)) + "\n")
        later, earlier = EXERCISES[exercise.number :], EXERCISES[: exercise.number]
        following = next((each for each in (*later, *earlier) if state_of(each) != "solved"), None)
        print(f"Solved. A solution with its reasons: exercises/solutions/{exercise.slug}.md")
        print(f"Next: make exercise N={following.number}" if following else "All are solved.")
        return DONE
    print(f"Not solved yet. Change {mine} and run this again; the task and a hint: {task}")
    return DIFFERENT


def add_exercises_arguments(parser: argparse.ArgumentParser) -> None:
    add_table_arguments(parser)


def run_exercises(args: argparse.Namespace) -> int:
    rows: list[list[Cell]] = [[each.number, each.title, each.kernel or "numbers", state_of(each)] for each in EXERCISES]
    print_table(Table(("N", "exercise", "starts from", "state"), rows), args)
    return DONE
