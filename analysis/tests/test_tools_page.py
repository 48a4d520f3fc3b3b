"""docs/tools.md and docs/reading-sass.md: every example runs, and every command of the package is named."""

import csv
import re
import shlex
import subprocess

import pytest

from analysis.__main__ import COMMANDS, main
from analysis.files import root
from analysis.tests.support.compiled import built
from analysis.tests.support.kinds import some_in_check

TOOLS = (root() / "docs/tools.md").read_text(encoding="utf-8")
READING = (root() / "docs/reading-sass.md").read_text(encoding="utf-8")


def table_rows() -> list[list[str]]:
    rows = [
        line.strip("|").split("|")
        for line in TOOLS.partition("## In another project")[0].splitlines()
        if line.startswith("|")
    ]
    return [
        [cell.strip() for cell in row] for row in rows if not set(row[0].strip()) <= {"-"} and "example" not in row[-1]
    ]


def examples() -> list[str]:
    in_tables = [re.findall(r"`([^`]+)`", row[-1]) for row in table_rows()]
    indented = re.findall(r"^    (python3 -m analysis .*)$", TOOLS + READING, re.MULTILINE)
    return [*(text for found in in_tables for text in found), *indented]


QUICK = [example for example in dict.fromkeys(examples()) if " predict " not in example]  # 9 s, for what changes gain


@pytest.mark.parametrize("example", some_in_check(dict.fromkeys(examples()), QUICK))
def test_example_runs(example: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for version in ("v01", "v02"):
        built(version, "sm_80")
    monkeypatch.chdir(root())
    words = shlex.split(example)
    if words[:3] == ["python3", "-m", "analysis"]:
        if "--help" in words:
            with pytest.raises(SystemExit, match=r"^0$"):
                main(words[3:])
        else:
            assert main(words[3:]) == 0
        assert capsys.readouterr().out.strip()
    else:
        assert words[0] == "bin/v01"
        done = subprocess.run(words, cwd=root(), capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stderr


def test_every_row_has_an_example() -> None:
    rows = table_rows()
    assert len(rows) >= 20
    for row in rows:
        assert len(row) == 3, row
        assert re.fullmatch(r"`[^`]+`", row[2]), row


def tried(name: str, column: str) -> list[str]:
    """The cells of a column of what was tried."""
    lines = (root() / "analysis/data" / name).read_text(encoding="utf-8").splitlines()
    return [row[column] for row in csv.DictReader(lines)]


def total(name: str, column: str) -> int:
    return sum(int(cell) for cell in tried(name, column) if cell)


def test_what_was_tried_is_the_record() -> None:
    page = " ".join(TOOLS.partition("## Tried on")[2].split())
    readers, diffs = "tried_on.csv", "tried_sass_diff.csv"
    assert f"the registers of all {total(readers, 'kernels')} kernels are" in page
    assert f"graphs of all {total(readers, 'graphs compared')} that were drawn" in page
    assert f"calls {total(diffs, 'identical')} of {total(diffs, 'kernels')} kernels identical" in page
    for one, other in (("kernels", "registers equal"), ("graphs compared", "graphs equal")):
        assert tried(readers, one) == tried(readers, other)
    assert tried(diffs, "identical") == tried(diffs, "identical by cuobjdump -sass")
    assert total(diffs, "kernels") == total(diffs, "identical") + total(diffs, "changed")


@pytest.mark.parametrize("name", ["sass", "cfg", "counts", "loop", "sass-diff", "bound", "live", "ptx", "map", "slice"])
def test_commands_of_the_page_exist(name: str) -> None:
    assert name in {command.name for command in COMMANDS}
    assert re.search(rf"python3 -m analysis {name}\b", TOOLS + READING)


def test_control_code_of_the_page() -> None:
    """The line that the page takes apart is written the way listings are."""
    from analysis.machine_code.sass import parse_listing

    line = next(line for line in READING.splitlines() if line.strip().startswith("/*0a10*/"))
    (listing,) = parse_listing(line)
    control = listing.instructions[0].control
    assert control is not None
    assert (control.stall, control.wait, control.write, control.read, control.yields) == (4, 0b100, 1, 7, False)
