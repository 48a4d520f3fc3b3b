"""The exercises in the browser: what a task names is there, exactly one line is made wrong, nothing is fetched."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.errors import AnalysisError
from analysis.files import read_text, root
from analysis.ladder.headers import load
from analysis.site import exercise_page


def test_each_task_has_what_its_kind_needs() -> None:
    found = exercise_page.tasks(root())
    assert len({task["id"] for task in found}) == len(found) >= 15
    needs = {
        "number": {"version", "seq", "measure", "asks"},
        "choice": {"options", "titles", "seq", "measure"},
        "line": {"version", "shown", "wrong"},
        "position": {"version", "seq", "cut", "before", "after"},
    }
    for task in found:
        assert {"id", "chapter", "title", "text", "why"} | needs[task["kind"]] <= set(task), task["id"]


def test_one_line_of_a_version_is_made_wrong() -> None:
    source = load(root(), "v02").source
    for task in exercise_page.tasks(root()):
        if task["kind"] == "line" and task["version"] == "v02":
            other = [line for line in task["shown"] if line not in source.splitlines()]
            assert other == [task["shown"][task["wrong"]]], task["id"]


def test_a_task_that_does_not_fit_its_version_is_named(tmp_path: Path) -> None:
    source = load(root(), "v02").source
    task = {"id": "x", "first": "void update_m(", "lines": 3, "right": "no such text", "wrong": ""}
    with pytest.raises(AnalysisError, match=r"x: expected 'no such text' in one of the lines .* found it in 0"):
        exercise_page.with_wrong_line(source, task)


def test_the_page_fetches_nothing_and_its_data_is_json() -> None:
    made = exercise_page.exercise_files(root())
    assert not [name for name, text in made.items() if re.search(r"https?://|fetch\(|@import|import\(", text)]
    assert json.loads(made["tasks.js"].removeprefix("window.tasks = ").removesuffix(";\n"))
    ids = set(re.findall(r'\bid="([\w-]+)"', read_text(root() / exercise_page.PAGES / "index.html")))
    assert set(re.findall(r'\$\("([\w-]+)"\)', made["exercises.js"])) <= ids


LESSON = root() / exercise_page.LESSON_FILE
WAITS = re.compile(r"^ +(@\S+ )?(tcgen05\.(alloc|dealloc|commit|wait|fence)|fence\.proxy|bar\.sync|mbarrier\.)")


def run_lesson(folder: Path, text: str, *options: str) -> tuple[bool, str]:
    """True if D is right, and what the emulator reports."""
    rng = np.random.default_rng(1)
    a, b = ((rng.integers(-8, 9, (rows, 64)) / 4).astype(np.float16) for rows in (128, 64))
    for name, values in (("a", a), ("b", b)):
        values.tofile(folder / name)
    (folder / "k.ptx").write_text(text)
    done = subprocess.run(
        [root() / "bin/ptxrun", folder / "k.ptx", "--block", "128", "--arg", f"buf:f16:8192:@{folder}/a",
         "--arg", f"buf:f16:4096:@{folder}/b", "--arg", "out:f32:8192", "--dump", f"2={folder}/d",
         "--counters-csv", folder / "counters", *options], capture_output=True, text=True, check=False,
    )  # fmt: skip
    want = a.astype(np.float32) @ b.astype(np.float32).T
    right = done.returncode < 2 and np.array_equal(np.fromfile(folder / "d", np.float32).reshape(128, 64), want)
    return right, done.stderr


def lesson_task(name: str) -> dict[str, Any]:
    return next(task for task in exercise_page.tasks(root()) if task["id"] == name)


@pytest.mark.parametrize("seed", ["0", "7"])
def test_the_lesson_is_right_and_strict(seed: str, tmp_path: Path) -> None:
    assert run_lesson(tmp_path, read_text(LESSON), "--schedule", seed, "--strict-tcgen05") == (True, "")
    executed = re.findall(r"tcgen05,(\d+),.*tcgen05\.ld", read_text(tmp_path / "counters"))
    assert executed == ["16"] and lesson_task("count-tcgen05-ld")["measure"] == "steps"


def test_each_line_of_the_lesson_that_synchronizes_is_missed(tmp_path: Path) -> None:
    """But for the two fences around the first barrier, before which nothing of tcgen05 is under way."""
    lines = read_text(LESSON).split("\n")
    found = [i for i, line in enumerate(lines) if WAITS.match(line)]
    silent = [
        i for i in found
        if not run_lesson(tmp_path, "\n".join([*lines[:i], "", *lines[i + 1 :]]), "--strict-tcgen05")[1]
    ]  # fmt: skip
    assert len(found) == 14 and [lines[i].split("::")[1] for i in silent] == [
        "before_thread_sync;",
        "after_thread_sync;",
    ]
    assert silent[1] == silent[0] + 2


def test_the_commit_belongs_in_one_place(tmp_path: Path) -> None:
    task, lines = lesson_task("lost-tcgen05-commit"), read_text(LESSON).split("\n")
    (at,) = [i for i, line in enumerate(lines) if task["cut"] in line]
    cut = lines.pop(at)
    rows = [i for i, line in enumerate(lines) if line.strip() and not line.lstrip().startswith("//")]
    middle = rows.index(at)
    good = []
    for i in rows[middle - task["before"] : middle + task["after"]]:
        text = "\n".join([*lines[:i], cut, *lines[i:]])
        good += [i] if all(run_lesson(tmp_path, text, "--schedule", seed) == (True, "") for seed in "07") else []
    assert good == [at]


def test_the_wrong_lanes_are_reported_as_the_task_says(tmp_path: Path) -> None:
    task, source = lesson_task("wrong-tcgen05-lanes"), read_text(LESSON)
    line = task["shown"][task["wrong"]]
    _, said = run_lesson(tmp_path, source.replace(line.replace("16;", "21;"), line))
    assert line not in source and said.startswith("tmem-misuse at ") and "tmem-misuse" in task["text"]
