"""The ring as one warp sees it: from a trace of a few lines, and the committed file."""

from pathlib import Path

import pytest

from analysis.__main__ import main
from analysis.emulate import ring
from analysis.emulate.ring import Stay, read_ring
from analysis.files import root
from analysis.ladder.headers import load

RECORDED = read_ring(root())


@pytest.mark.parametrize(
    "version", [pytest.param(name, marks=[] if name == "v20" else pytest.mark.long) for name in RECORDED]
)
def test_the_committed_ring_is_fresh(version: str) -> None:
    if not (root() / "bin" / version).exists():
        pytest.skip(f"bin/{version} is not built")
    assert RECORDED[version] == ring.emulate_ring(version), "run `python3 -m analysis ring --write`"


def test_rings_are_written_and_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ring, "root", lambda: tmp_path)
    monkeypatch.setattr(ring, "load", lambda _, name: load(root(), name))
    monkeypatch.setattr(ring, "emulate_ring", lambda version: [Stay(version, 0, 0, 1, 0, 0, 0, 2)])
    assert main(["ring"]) == 2
    assert main(["ring", "v19", "--exit-code"]) == 1
    assert main(["ring", "v19", "--write"]) == 0
    assert main(["ring", "v20", "--write"]) == 0
    assert read_ring(tmp_path) == {name: [Stay(name, 0, 0, 1, 0, 0, 0, 2)] for name in ("v19", "v20")}
    assert main(["ring", "--exit-code"]) == 0
    (tmp_path / "regs/ring.csv").write_text(",".join(ring.COLUMNS) + "\nv19,0,0,1,x,0,0,2\n")
    assert main(["ring"]) == 2
    assert "ring.csv" in capsys.readouterr().err
