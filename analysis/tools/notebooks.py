"""Runs the notebooks and keeps their outputs: `./fl notebooks --write` does all of notebooks/ in place.

A notebook reads committed files alone. Its outputs are committed; one whose text outputs differ from what a run
prints is stale.
"""

import argparse
import importlib
import json
import os
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from analysis.errors import DIFFERENT, DONE, AnalysisError
from analysis.files import read_text, root, write_if_changed

TIMEOUT = 600  # seconds per cell: it hangs, on any machine
AT_A_TIME = 2


def notebooks(folder: Path) -> list[Path]:
    """Every notebook in order."""
    return sorted((folder / "notebooks").glob("[0-9][0-9]_*.ipynb"))


def execute(path: Path) -> str:
    """The text of the notebook after a run of all its cells; a cell that fails is an error that shows it."""
    nbformat, nbclient = importlib.import_module("nbformat"), importlib.import_module("nbclient")
    book = nbformat.reads(read_text(path), as_version=4)
    environment = {**os.environ, "PYTHONPATH": str(root()), "MPLBACKEND": "Agg"}
    limits = {"timeout": TIMEOUT, "startup_timeout": TIMEOUT}
    client = nbclient.NotebookClient(book, **limits, resources={"metadata": {"path": str(path.parent)}})
    manager = client.create_kernel_manager()
    try:
        with tempfile.TemporaryDirectory() as folder:
            manager.transport, manager.ip = "ipc", f"{folder}/kernel"  # sockets that are files, not ports
            with client.setup_kernel(env=environment):
                for index, cell in enumerate(book.cells):
                    client.execute_cell(cell, index)
    except nbclient.exceptions.CellExecutionError as error:
        raise AnalysisError(f"{path}: {error}") from None
    return tidy(book)


def tidy(book: Any) -> str:
    """Notebook text without what differs from run to run: times, versions, random names."""
    count = 0
    cells = []
    for number, cell in enumerate(book["cells"], start=1):
        kept: dict[str, Any] = {"cell_type": cell["cell_type"], "id": f"cell-{number:02}", "metadata": {}}
        if cell["cell_type"] == "code":
            count += 1
            outputs = [_tidy_output(output, count) for output in _joined(cell.get("outputs", []))]
            kept |= {"execution_count": count, "outputs": outputs}
        kept["source"] = _lines(cell["source"])
        cells.append(kept)
    metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    whole = {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def _joined(outputs: Sequence[Any]) -> list[Any]:
    """The output of a cell as one text: its division into pieces differs from run to run."""
    found: list[Any] = []
    for output in outputs:
        if output["output_type"] == "stream" and found and output["name"] == found[-1].get("name"):
            found[-1] = output | {"text": "".join(found[-1]["text"]) + "".join(output["text"])}
        else:
            found.append(output)
    return found


def _tidy_output(output: Any, count: int) -> dict[str, Any]:
    kept = {key: output[key] for key in ("output_type", "name", "text", "data", "metadata") if key in output}
    if kept["output_type"] == "execute_result":
        kept["execution_count"] = count
    if "text" in kept:
        kept["text"] = _lines(kept["text"])
    if "data" in kept:
        kept["data"] = {kind: value if kind == "image/png" else _lines(value) for kind, value in kept["data"].items()}
    return kept


def _lines(text: str | Sequence[str]) -> list[str]:
    return (text if isinstance(text, str) else "".join(text)).splitlines(keepends=True)


def words(text: str) -> list[tuple[str, ...]]:
    """Sources and text outputs of a notebook: what is compared to find out whether it is stale."""
    found = []
    for cell in json.loads(text)["cells"]:
        said = ["".join(cell["source"])]
        for output in cell.get("outputs", []):
            said.append("".join(output.get("text") or output.get("data", {}).get("text/plain", "")))
        found.append(tuple(said))
    return found


# ---- the command -----------------------------------------------------------------------------------------------------


def add_notebooks_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="prefixes of file names, such as 02 (all notebooks)")
    parser.add_argument("--write", action="store_true", help="save the outputs in the files")
    parser.add_argument("--exit-code", action="store_true", help="exit status 1 if one is stale")


def run_notebooks(args: argparse.Namespace) -> int:
    """Run them, two at a time."""
    chosen = [
        path
        for path in notebooks(root())
        if not args.names or path.name.startswith(tuple(name.removeprefix("notebooks/") for name in args.names))
    ]
    if not chosen:
        there = ", ".join(path.stem for path in notebooks(root()))
        raise AnalysisError(f"no notebook's name begins with {' or '.join(args.names)}; there are {there}")
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        texts = list(pool.map(execute, chosen))
    stale = [path for path, text in zip(chosen, texts, strict=True) if words(read_text(path)) != words(text)]
    for path, text in zip(chosen, texts, strict=True):
        if args.write:
            write_if_changed(path, text)
        state = "ran" if path not in stale else "ran, outputs changed" if args.write else "ran, STALE"
        print(f"{path.relative_to(root())}: {state}")
    return DIFFERENT if args.exit_code and stale else DONE
