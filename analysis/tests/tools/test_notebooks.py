"""The notebooks run from committed data alone, say what their committed outputs say, and read as they should."""

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from analysis.__main__ import main
from analysis.errors import AnalysisError
from analysis.files import root
from analysis.ladder.config import LIBRARY
from analysis.tools import notebooks

ALL = notebooks.notebooks(root())
IN_CHECK = [path for path in ALL if path.name.startswith(("01", "15"))]  # the ladder, general attention
COMMITTED = ("analysis", "common", "kernels", "regs", "sass", "notebooks")


def cells(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_text())["cells"]
    return found


def text(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


@pytest.fixture(scope="module")
def committed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with nothing in it that is built, but for the byte code of Python."""
    folder = tmp_path_factory.mktemp("committed")
    for name in COMMITTED:
        shutil.copytree(root() / name, folder / name, ignore=shutil.ignore_patterns("tests"))
    (folder / "lib").mkdir()
    shutil.copy(root() / LIBRARY, folder / LIBRARY)  # what reads configurations
    for name in ("bench", "autotune", "general", "profile"):
        if (root() / "logs" / name).is_dir():
            shutil.copytree(root() / "logs" / name, folder / "logs" / name)
    return folder


@pytest.mark.whole_ladder
@pytest.mark.parametrize(
    "paths", [pytest.param(IN_CHECK, id="some"), pytest.param(ALL, id="all", marks=pytest.mark.long)]
)
def test_notebooks_run_and_their_outputs_are_fresh(
    paths: list[Path], committed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one kernel that forgets all names between them: it starts, imports and reads the listings once.

    Pictures are made and not turned into PNG, which is most of the time and is not compared.
    """
    monkeypatch.setattr(notebooks, "root", lambda: committed)
    monkeypatch.setenv("PATH", os.pathsep.join(["/usr/bin", "/bin"]))  # no toolkit
    books = [json.loads(path.read_text()) for path in paths]

    def code(source: str) -> dict[str, Any]:
        return {"cell_type": "code", "metadata": {}, "execution_count": None, "outputs": [], "source": source}

    without_png = "from analysis.publish import notebooks\nnotebooks.png = lambda figure: ''"
    forget = code("%reset -f")
    joined = [code(without_png), *(cell for book in books for cell in [forget, *book["cells"]])]
    whole = committed / "notebooks/all.ipynb"
    whole.write_text(json.dumps(books[0] | {"cells": [cell | {"id": f"c{n}"} for n, cell in enumerate(joined)]}))
    fresh = iter(notebooks.words(notebooks.execute(whole)))
    whole.unlink()
    assert next(fresh) == (without_png,)
    for path in paths:
        assert next(fresh) == ("%reset -f",)
        said = notebooks.words(path.read_text())
        assert [next(fresh) for _ in said] == said, f"{path.name}: run `./fl notebooks --write`"


@pytest.mark.parametrize("path", ALL, ids=[path.stem for path in ALL])
def test_a_notebook_asks_shows_and_concludes(path: Path) -> None:
    read = cells(path)
    assert re.search(r"^\*\*Question: .*\?\*\*", text(read[0]), re.MULTILINE | re.DOTALL)
    assert text(read[-1]).startswith("## What was learned\n")
    outputs = [output for cell in read for output in cell.get("outputs", [])]
    kinds = {"image/png", "image/svg+xml"}
    pictures = [output for output in outputs if kinds & output.get("data", {}).keys()]
    assert pictures or path.stem.startswith("06")  # tables alone
    for output in pictures:
        assert len("".join(output["data"]["text/plain"])) > 20, "a picture needs a text that describes it"
    assert not [output for output in outputs if output["output_type"] == "error" or output.get("name") == "stderr"]


def written(folder: Path, source: str) -> Path:
    cell: dict[str, Any] = {
        "cell_type": "code",
        "id": "a",
        "metadata": {},
        "execution_count": None,
        "outputs": [],
        "source": source,
    }
    path = folder / "01_made.ipynb"
    path.write_text(json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    return path


def test_a_failing_cell_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(AnalysisError, match="ZeroDivisionError"):
        notebooks.execute(written(tmp_path, "1 / 0"))


def output(kind: str, **content: Any) -> dict[str, Any]:
    return {"output_type": kind, **content}


def book(*outputs: list[dict[str, Any]], source: str = "figure()") -> dict[str, Any]:
    """A notebook with a code cell for each list of outputs, and a text cell before each."""
    made: list[dict[str, Any]] = []
    for number, each in enumerate(outputs):
        made.append({"cell_type": "markdown", "id": f"t{number}", "metadata": {}, "source": "text"})
        cell = {"cell_type": "code", "id": f"c{number}", "metadata": {"execution": {"started": "12:00"}}}
        made.append(cell | {"execution_count": 40 + number, "outputs": each, "source": source})
    return {"cells": made, "metadata": {"kernelspec": {"name": "mine"}}, "nbformat": 4, "nbformat_minor": 5}


def test_cells_are_counted_from_one_however_often_they_were_run() -> None:
    result = output("execute_result", execution_count=41, data={"text/plain": "7"}, metadata={})
    kept = json.loads(notebooks.tidy(book([], [result])))["cells"]
    assert [cell.get("execution_count") for cell in kept] == [None, 1, None, 2]
    assert kept[3]["outputs"][0]["execution_count"] == 2
    assert [cell["id"] for cell in kept] == ["cell-01", "cell-02", "cell-03", "cell-04"]
    assert {json.dumps(cell["metadata"]) for cell in kept} == {"{}"}


TEXTS = {
    "stream": lambda text: output("stream", name="stdout", text=text),
    "execute_result": lambda text: output("execute_result", execution_count=1, data={"text/plain": text}, metadata={}),
    "display_data": lambda text: output("display_data", data={"text/plain": text, "image/png": "AAAA"}, metadata={}),
}


@pytest.mark.parametrize("kind", TEXTS)
def test_a_notebook_is_stale_when_a_text_output_differs(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "notebooks/01_made.ipynb"
    path.parent.mkdir()
    fresh = notebooks.tidy(book([TEXTS[kind]("676 instructions")]))
    monkeypatch.setattr(notebooks, "root", lambda: tmp_path)
    monkeypatch.setattr(notebooks, "execute", lambda path: fresh)

    def run(*options: str) -> tuple[int, str]:
        status = main(["notebooks", *options])
        return status, capsys.readouterr().out

    path.write_text(fresh)
    assert run("--exit-code") == (0, "notebooks/01_made.ipynb: ran\n")
    stale = notebooks.tidy(book([TEXTS[kind]("670 instructions")]))
    path.write_text(stale)
    assert run() == (0, "notebooks/01_made.ipynb: ran, STALE\n")
    assert run("--exit-code") == (1, "notebooks/01_made.ipynb: ran, STALE\n")
    assert path.read_text() == stale
    assert run("--write")[1] == "notebooks/01_made.ipynb: ran, outputs changed\n"
    assert path.read_text() == fresh
    assert run("--write", "--exit-code") == (0, "notebooks/01_made.ipynb: ran\n")
