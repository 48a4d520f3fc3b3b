"""Committed generated files: marked as generated, named with their maker, correct where a page quotes them."""

import fnmatch
import re
import subprocess

import pytest

from analysis.files import root

PAGE = root() / "analysis/measure/README.md"
RECORDS = ("regs", "sass", "logs", "analysis/data")


def git(*arguments: str) -> list[str]:
    if not (root() / ".git").exists():
        pytest.skip("not a git checkout")
    return subprocess.run(
        ["git", *arguments], cwd=root(), capture_output=True, text=True, check=True
    ).stdout.splitlines()


def marked(path: str, attribute: str) -> str:
    (line,) = git("check-attr", attribute, path)
    return line.rpartition(": ")[2]


@pytest.mark.parametrize("pattern", ["sass/*.sass", "regs/*.csv", "docs/*.svg", "notebooks/*.ipynb", "logs/*"])
def test_generated_files_are_marked(pattern: str) -> None:
    files = git("ls-files", pattern)
    assert files
    assert [path for path in files if marked(path, "linguist-generated") != "set"] == []


def rows_of_the_page() -> list[list[str]]:
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[1:]]


def test_every_record_is_on_the_page_with_what_makes_it() -> None:
    rows = rows_of_the_page()
    assert all(len(row) == 3 and all(row) for row in rows)
    names = [name for row in rows for name in re.findall(r"`([^`]+)`", row[1])]
    patterns = [re.sub(r"NN|XX", "??", re.sub(r"GPU|DTYPE|SEQ|NAME", "*", name)) for name in names]
    files = git("ls-files", *RECORDS)
    files = [path for path in files if not path.endswith("README.md") and (root() / path).exists()]
    unnamed = [path for path in files if not any(fnmatch.fnmatch(path, pattern) for pattern in patterns)]
    assert unnamed == []
    assert [p for p in patterns if not any(fnmatch.fnmatch(path, p) for path in files)] == []
