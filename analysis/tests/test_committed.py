"""What is committed beside sources: marked as generated, named with what makes it, true where a page quotes it."""

import fnmatch
import re
import subprocess
from pathlib import Path

import pytest

from analysis.files import read_text, root
from analysis.measure.searches import read_space
from analysis.table import read_columns

PAGE = root() / "analysis/measure/README.md"
TRIED = ("variant", "dtype", "seq", "tflops", "of_fa2", "samples", "run")
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


def test_what_nobody_reads_line_by_line_is_not_printed_in_diffs() -> None:
    for pattern in ("sass/*.sass", "docs/*.svg", "logs/*.jsonl"):
        assert {marked(path, "diff") for path in git("ls-files", pattern)} == {"unset"}, pattern


def test_sources_are_not_marked() -> None:
    for path in (
        "kernels/mma_sync/v01_base.cu",
        "analysis/files.py",
        "README.md",
        "docs/architecture.md",
        "analysis/data/README.md",
    ):
        assert marked(path, "linguist-generated") == "unspecified" == marked(path, "diff"), path


def rows_of_the_page() -> list[list[str]]:
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[1:]]


def test_every_record_is_on_the_page_with_what_makes_it() -> None:
    rows = rows_of_the_page()
    assert all(len(row) == 3 and all(row) for row in rows)
    names = [name for row in rows for name in re.findall(r"`([^`]+)`", row[1])]
    patterns = [re.sub(r"NN|XX", "??", re.sub(r"GPU|DTYPE|SEQ|NAME", "*", name)) for name in names]
    files = git("ls-files", *RECORDS)
    files = [path for path in files if not path.endswith(".md") and (root() / path).exists()]
    unnamed = [path for path in files if not any(fnmatch.fnmatch(path, pattern) for pattern in patterns)]
    assert unnamed == []
    assert [p for p in patterns if not any(fnmatch.fnmatch(path, p) for path in files)] == []


def test_the_exhaustive_search_found_the_four_that_the_search_found() -> None:
    path = root() / "logs/autotune/h200.v07.exhaustive.csv"
    columns = path.read_text().partition("\n")[0].split(",")
    found = read_columns(read_text(path), columns, str(path))
    speeds = [float(row["tflops"]) for _, row in found]
    assert speeds == sorted(speeds, reverse=True) and len(found) == 28
    space = read_space(root(), "v07")
    finalists = {config for config, stages in space.stages.items() if max(stages) == 4}
    assert {row["config"] for _, row in found[:4]} == {str(config) for config in finalists}
    assert float(found[4][1]["low"]) > 1.01 > max(float(row["time_over_fastest"]) for _, row in found[:4])


def tried_speeds(path: Path) -> dict[tuple[str, str, str], dict[str, float]]:
    """Variant to TFLOP/s by run, dtype and length."""
    found: dict[tuple[str, str, str], dict[str, float]] = {}
    for _, row in read_columns(read_text(path), TRIED, str(path)):
        found.setdefault((row["run"], row["dtype"], row["seq"]), {})[row["variant"]] = float(row["tflops"])
    return found


def test_what_was_tried_did_what_the_page_says() -> None:
    most = {"O stored 8 bytes a lane": 1.0, "next Q copied after the KV block": 1.0}  # percent, either way
    for (_, _, seq), speeds in tried_speeds(root() / "logs/bench/tried.h200.csv").items():
        for variant, speed in speeds.items():
            change = 100 * (speed / speeds["persistent"] - 1)
            what = variant.partition("; ")[2]
            if what in most:
                assert abs(change) <= (2.1 if seq == "8192" else most[what]), (variant, seq, change)
            elif what:
                assert what == "block counter in a vector register" and round(-change) in (1, 2), (seq, change)
