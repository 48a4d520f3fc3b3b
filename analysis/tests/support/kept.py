"""Committed records for tests that change them: `raws(path)` reads a file, `write(path, raws)` writes whole records."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from analysis.measure import records


def raws(path: Path) -> list[dict[str, Any]]:
    """The records of a file in its order, each free to be changed."""
    return [json.loads(records.to_line(record.raw)) for record in records.records_in(path)]


def write(path: Path, found: Iterable[dict[str, Any]]) -> None:
    path.write_text("".join(records.to_line(raw) + "\n" for raw in found))
