"""The contents of notebooks: figures, tables, and parts of versions.

    show(figure, "what it shows, in words")
    show_table(table)
    show_diff(v19, v20, KV_LOOP)
    show_code(v20, "copy_KV")

`./fl notebooks --write` runs the notebooks (analysis/tools/notebooks.py).
"""

import base64
import importlib
import io
from typing import Any

from analysis.ladder.headers import Version
from analysis.ladder.source_diff import part_diff, part_of
from analysis.table import Table

DPI = 110


def show(figure: Any, alt: str) -> None:
    """Display a figure, or the SVG text of a picture, with a text for those who do not see it."""
    if isinstance(figure, str):
        _display({"image/svg+xml": figure, "text/plain": alt}, alt)
        return
    image = png(figure)
    importlib.import_module("matplotlib.pyplot").close(figure)
    _display({"image/png": image, "text/plain": alt}, alt)


def png(figure: Any) -> str:
    """The picture in base64."""
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=DPI, facecolor="white", metadata={"Software": None})
    return base64.b64encode(out.getvalue()).decode("ascii")


def show_table(table: Table) -> None:
    """Display a table, as Markdown where that can be shown."""
    _display({"text/markdown": table.markdown(), "text/plain": table.text()}, "")


def show_diff(a: Version, b: Version, *parts: str) -> None:
    """Display how parts of two versions differ: the KV loop, or functions by name."""
    lines = [line for part in parts for line in part_diff(a, b, part)]
    text = "\n".join(lines)
    _display({"text/markdown": f"```diff\n{text}\n```", "text/plain": text}, "")


def show_code(version: Version, *parts: str) -> None:
    """Display parts of a version: the KV loop, or functions by name."""
    text = "\n".join(line for part in parts for line in part_of(version, part)[1])
    _display({"text/markdown": f"```cpp\n{text}\n```", "text/plain": text}, "")


def _display(data: dict[str, str], alt: str) -> None:
    metadata = {kind: {"alt": alt} for kind in data if kind.startswith("image/")}
    importlib.import_module("IPython.display").display(data, metadata=metadata, raw=True)
