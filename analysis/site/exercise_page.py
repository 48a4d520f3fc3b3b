"""The files of the exercises in the browser, a page of the site, graded by the machine's emulator.

    for name, text in exercise_files(root()).items(): ...     # build/site/sources/linked/exercises/NAME

The page is that of docs/site/exercises. tasks.json says what is asked; the lines of a version's source, of which one is
made wrong, and the titles of versions are added here. Chapter 9 has a kernel of its own, which is no version.
"""

import json
from pathlib import Path
from typing import Any

from analysis.errors import AnalysisError
from analysis.files import read_text
from analysis.ladder.headers import load_all

PAGES = Path("docs/site/exercises")
LESSON, LESSON_FILE = "first_tcgen05", Path("examples/first_tcgen05.ptx")
CHAPTER = "docs/learn/exercises.md"  # which links to the page, in the site
FILE = "`site/exercises/index.html`"


def exercise_files(folder: Path) -> dict[str, str]:
    """Every file by its name below exercises/."""
    made = {name: read_text(folder / PAGES / name) for name in ("index.html", "exercises.css", "exercises.js")}
    made["tasks.js"] = f"window.tasks = {json.dumps(tasks(folder), indent=1)};\n"
    return made


def with_link(chapter: str) -> str:
    """The chapter with a link instead of the file's name."""
    if FILE not in chapter:
        raise AnalysisError(f"{CHAPTER}: expected {FILE}, found no such name")
    return chapter.replace(FILE, '<a href="../../exercises/index.html">Exercises in the browser</a>')


def tasks(folder: Path) -> list[dict[str, Any]]:
    """The tasks with what they show of versions."""
    versions = load_all(folder)
    found: list[dict[str, Any]] = json.loads(read_text(folder / PAGES / "tasks.json"))
    for task in found:
        named = task.get("options") or [task["version"]]
        missing = [name for name in named if name not in versions and name != LESSON]
        if missing:
            raise AnalysisError(f"{PAGES}/tasks.json: {task['id']}: there is no version {missing[0]}")
        if task["kind"] == "choice":
            task["titles"] = {name: versions[name].header.title for name in named}
        if task["kind"] == "line":
            lesson = task["version"] == LESSON
            source = read_text(folder / LESSON_FILE) if lesson else versions[task["version"]].source
            task["shown"], task["wrong"] = with_wrong_line(source, task)
            del task["right"], task["first"], task["lines"]
    return found


def with_wrong_line(source: str, task: dict[str, Any]) -> tuple[list[str], int]:
    """Some lines of the source, of which one is made wrong, and its index among them."""
    lines = source.splitlines()
    first = next((i for i, line in enumerate(lines) if task["first"] in line), None)
    shown = [] if first is None else lines[first : first + task["lines"]]
    there = [i for i, line in enumerate(shown) if task["right"] in line]
    if len(there) != 1:
        raise AnalysisError(
            f"{PAGES}/tasks.json: {task['id']}: expected {task['right']!r} in one of the lines from {task['first']!r} "
            f"on, found it in {len(there)}"
        )
    shown[there[0]] = shown[there[0]].replace(task["right"], task["wrong"])
    return shown, there[0]
