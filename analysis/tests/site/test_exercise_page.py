"""The exercises in the browser: what a task names is there, exactly one line is made wrong, nothing is fetched."""

import json
import re
from pathlib import Path

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
    version = load(root(), "v02")
    task = {"id": "x", "first": "void update_m(", "lines": 3, "right": "no such text", "wrong": ""}
    with pytest.raises(AnalysisError, match=r"x: expected 'no such text' in one of the lines .* found it in 0"):
        exercise_page.with_wrong_line(version, task)


def test_the_page_fetches_nothing_and_its_data_is_json() -> None:
    made = exercise_page.exercise_files(root())
    assert not [name for name, text in made.items() if re.search(r"https?://|fetch\(|@import|import\(", text)]
    assert json.loads(made["tasks.js"].removeprefix("window.tasks = ").removesuffix(";\n"))
    ids = set(re.findall(r'\bid="([\w-]+)"', read_text(root() / exercise_page.PAGES / "index.html")))
    assert set(re.findall(r'\$\("([\w-]+)"\)', made["exercises.js"])) <= ids
