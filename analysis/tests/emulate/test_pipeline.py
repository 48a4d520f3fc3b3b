"""Steps of a pipeline: from a trace of a few lines, and the committed file."""

from pathlib import Path

import pytest

from analysis.__main__ import main
from analysis.emulate import pipeline
from analysis.emulate.pipeline import Work, read_pipeline
from analysis.files import root
from analysis.ladder.headers import load

RECORDED = read_pipeline(root())


@pytest.mark.parametrize(
    "version", [pytest.param(name, marks=[] if name == "v36" else pytest.mark.long) for name in RECORDED]
)
def test_the_committed_steps_are_fresh(version: str) -> None:
    if not (root() / "bin" / version).exists():
        pytest.skip(f"bin/{version} is not built")
    fresh = pipeline.emulate_pipeline(version)
    assert RECORDED[version] == fresh, "run `python3 -m analysis pipeline --write`"


def test_steps_are_written_and_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pipeline, "root", lambda: tmp_path)
    monkeypatch.setattr(pipeline, "load", lambda _, name: load(root(), name))
    monkeypatch.setattr(pipeline, "emulate_pipeline", lambda version: [Work(version, "copies", "K", 2, 0, 5)])
    assert main(["pipeline"]) == 2
    assert main(["pipeline", "v28", "--exit-code"]) == 1
    assert main(["pipeline", "v28", "--write"]) == 0
    assert read_pipeline(tmp_path) == {"v28": [Work("v28", "copies", "K", 2, 0, 5)]}
    assert main(["pipeline", "v29", "--write"]) == 0
    assert set(read_pipeline(tmp_path)) == {"v28", "v29"}  # the rows of other versions stay
    assert main(["pipeline", "--exit-code"]) == 0
    (tmp_path / "regs/pipeline.csv").write_text("version,who,what,block,Q_block,step\nv28,copies,K,x,0,5\n")
    assert main(["pipeline"]) == 2
    assert "pipeline.csv" in capsys.readouterr().err
