"""The notebooks run from committed data alone, say what their committed outputs say, and read as they should."""

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from analysis import files
from analysis.__main__ import main
from analysis.errors import AnalysisError
from analysis.files import root
from analysis.ladder.config import LIBRARY
from analysis.tests.support.kept import raws, write
from analysis.tools import notebooks

ALL = notebooks.notebooks(root())
IN_CHECK = [path for path in ALL if path.name.startswith(("01", "15"))]  # the ladder, general attention
COMMITTED = ("analysis", "common", "kernels", "regs", "sass", "notebooks")


def cells(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_text())["cells"]
    return found


def text(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


def test_they_are_numbered_without_a_gap() -> None:
    assert [path.name[:2] for path in ALL] == [f"{number:02}" for number in range(1, len(ALL) + 1)] and len(ALL) >= 11


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
        assert [next(fresh) for _ in said] == said, f"{path.name}: run `make notebooks`"


@pytest.mark.parametrize("path", ALL, ids=[path.stem for path in ALL])
def test_a_notebook_asks_shows_and_concludes(path: Path) -> None:
    read = cells(path)
    assert re.search(r"^\*\*Question: .*\?\*\*", text(read[0]), re.MULTILINE | re.DOTALL)
    assert text(read[-1]).startswith("## What was learnt\n")
    outputs = [output for cell in read for output in cell.get("outputs", [])]
    kinds = {"image/png", "image/svg+xml"}
    pictures = [output for output in outputs if kinds & output.get("data", {}).keys()]
    assert pictures or path.stem.startswith("06")  # tables alone
    for output in pictures:
        assert len("".join(output["data"]["text/plain"])) > 20, "a picture needs a text that stands for it"
    assert not [output for output in outputs if output["output_type"] == "error" or output.get("name") == "stderr"]


@pytest.mark.parametrize("path", ALL, ids=[path.stem for path in ALL])
def test_no_output_shows_the_rounding_of_doubles(path: Path) -> None:
    """It depends on the processor's matrix product: a notebook says that a difference is below a limit."""
    said = "\n".join(line for one in notebooks.words(path.read_text()) for line in one[1:])
    assert re.findall(r"\b[\d.]+e-(?:1[3-9]|[2-9]\d)\b", said) == []


@pytest.mark.parametrize("path", ALL, ids=[path.stem for path in ALL])
def test_conclusions_are_asserted_just_before_they_are_drawn(path: Path) -> None:
    *_, said, checked, learnt = cells(path)
    assert text(learnt).startswith("## What was learnt\n")
    assert text(said) == "The conclusions below hold for these figures, or this cell fails:"
    assert checked["cell_type"] == "code" and text(checked).count("assert ") >= 2


def test_a_notebook_fails_when_the_records_contradict_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """v02 is said to be four times as fast as v01: not with a record in which v02 took ten times as long.

    The cells run here, in one interpreter with the other tests, and show nothing.
    """
    patterns = [folder + name for name in ("v01", "v02") for folder in ("kernels/*/", "sass/")]
    sides = [file for pattern in patterns for file in root().glob(f"{pattern}[._]*")]
    for file in [root() / "regs", *sides]:
        link = tmp_path / file.relative_to(root())
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(file)
    every = raws(root() / "logs/bench/h200.jsonl")
    records = [raw for raw in every if raw.get("version", raw.get("peer")) in ("v01", "v02", "fa2")]
    monkeypatch.setattr(files, "root", lambda: tmp_path)
    for name in ("show", "show_diff", "show_table"):
        monkeypatch.setattr(f"analysis.publish.notebooks.{name}", lambda *shown: None)

    def run(slower: int) -> None:
        for raw in records:
            if raw.get("version") == "v02":
                raw["timing"]["samples_ns"] = [slower * ns for ns in raw["timing"]["samples_ns"]]
        log = tmp_path / "logs/bench/h200.jsonl"
        log.parent.mkdir(parents=True, exist_ok=True)
        write(log, records)
        names: dict[str, Any] = {}
        for cell in read_code(next(path for path in ALL if path.name.startswith("02_"))):
            exec(text(cell), names)

    run(1)
    with pytest.raises(AssertionError):
        run(10)


@pytest.mark.parametrize("path", ALL, ids=[path.stem for path in ALL])
def test_a_notebook_parses_nothing(path: Path) -> None:
    code = "\n".join(text(cell) for cell in read_code(path))
    assert not re.search(r"\b(open|read_text|re\.|json|csv|Path)\b", code)


def read_code(path: Path) -> list[dict[str, Any]]:
    return [cell for cell in cells(path) if cell["cell_type"] == "code"]


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


def test_a_changed_output_is_stale(tmp_path: Path) -> None:
    path = written(tmp_path, "print(1)")
    fresh = notebooks.execute(path)
    assert notebooks.words(fresh) != notebooks.words(path.read_text())
    path.write_text(fresh)
    assert notebooks.execute(path) == fresh


# ---- the command, on a notebook whose run is made up -----------------------------------------------------------------


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


def test_what_a_cell_prints_in_pieces_is_one_output() -> None:
    pieces = [output("stream", name="stdout", text=[text]) for text in ("one\n", "two\n")]
    error = output("stream", name="stderr", text="three\n")
    (kept,) = (cell for cell in json.loads(notebooks.tidy(book([*pieces, error])))["cells"] if "outputs" in cell)
    assert [(one["name"], "".join(one["text"])) for one in kept["outputs"]] == [
        ("stdout", "one\ntwo\n"), ("stderr", "three\n"),
    ]  # fmt: skip


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


def test_a_picture_alone_does_not_make_a_notebook_stale() -> None:
    """Fonts draw it otherwise on another machine; the text that stands for it says what it shows."""
    one, other = (
        book([output("display_data", data={"image/png": png, "text/plain": "speed"}, metadata={})])
        for png in ("AAAA", "BBBB")
    )
    assert notebooks.words(notebooks.tidy(one)) == notebooks.words(notebooks.tidy(other))


def test_a_changed_source_makes_a_notebook_stale() -> None:
    one, other = (notebooks.tidy(book([], source=source)) for source in ("a", "b"))
    assert notebooks.words(one) != notebooks.words(other)
