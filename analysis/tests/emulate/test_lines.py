"""Counts by source line: what is taken from a record, and the committed file."""

from pathlib import Path
from typing import Any

import pytest

from analysis.__main__ import main
from analysis.emulate import lines
from analysis.emulate.lines import Line, lines_of, read_lines
from analysis.files import root
from analysis.ladder.headers import load


def record(*rows: dict[str, Any]) -> dict[str, Any]:
    return {"counters": {"total": {}, "lines": list(rows)}}


def row(file: str, line: int, **counts: Any) -> dict[str, Any]:
    sectors = {"executed": 1184, "wavefronts": 1024, "ideal": 512, "sectors": 4096, "bytes": 131072}
    return {"file": file, "line": line, **sectors, **counts}


def test_lines_are_those_of_the_kernel_in_order() -> None:
    rows = (row("v01_base.cu", 340, ideal=1024), row("ptx_sm80.cuh", 12), row("v01_base.cu", 338))
    assert lines_of(record(*rows), "v01") == [
        Line("v01", 338, 1184, 1024, 512, 4096),
        Line("v01", 340, 1184, 1024, 1024, 4096),
    ]


@pytest.mark.whole_ladder
def test_the_committed_lines_are_fresh() -> None:
    for version in read_lines(root()):
        if not (root() / "bin" / version).exists():
            pytest.skip(f"bin/{version} is not built")
        assert read_lines(root())[version] == lines.emulate_lines(version), "run `python3 -m analysis lines --write`"


def test_lines_are_written_and_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(lines, "root", lambda: tmp_path)
    monkeypatch.setattr(lines, "load", lambda _, name: load(root(), name))
    monkeypatch.setattr(lines, "emulate_lines", lambda version: [Line(version, 1, 2, 3, 4, 5)])
    assert main(["lines"]) == 2
    assert main(["lines", "v01", "--exit-code"]) == 1
    assert main(["lines", "v01", "--write"]) == 0
    assert read_lines(tmp_path) == {"v01": [Line("v01", 1, 2, 3, 4, 5)]}
    assert main(["lines", "--exit-code"]) == 0
    (tmp_path / "regs/lines.csv").write_text("version,line,executed,wavefronts,ideal,sectors\nv01,1,x,3,4,5\n")
    assert main(["lines"]) == 2
    assert "lines.csv" in capsys.readouterr().err
