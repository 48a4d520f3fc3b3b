"""docs/tools.md and docs/reading-sass.md: every example runs, and every command of the package is named."""

import re
import shlex
import subprocess

import pytest

from analysis.__main__ import main
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
