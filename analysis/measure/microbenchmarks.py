"""bin/peak and bin/pipes: one record each, and its file.

record = measured("peak")
"""

import json
import os
from typing import Any

from analysis.errors import AnalysisError
from analysis.files import root, write_if_changed
from analysis.measure import executables, records

SECONDS = 120  # at most, for one run


def measured(program: str) -> dict[str, Any]:
    """The record of a run; executables.NoGpu where there is no GPU of compute capability 9.0."""
    path = root() / "bin" / program
    if not os.access(path, os.X_OK):
        raise AnalysisError(f"{path} is not there: `make {program}` builds it")
    try:
        found = executables.checked(executables.run(path, [], SECONDS)).records
    except executables.NoGpu as error:
        raise executables.NoGpu(f"{program} measures on a GPU of compute capability 9.0: {error}") from None
    if len(found) != 1:
        raise AnalysisError(f"{path}: printed {len(found)} records: expected one")
    return found[0]


def record_text(record: dict[str, Any]) -> str:
    """JSON with a line for each measurement."""
    lists = {name: value for name, value in record.items() if isinstance(value, list)}
    rest = {name: value for name, value in record.items() if name not in lists}
    parts = [
        f'"{name}": [\n' + ",\n".join(f"  {json.dumps(row)}" for row in rows) + "\n]" for name, rows in lists.items()
    ]
    return f"{json.dumps(rest)[:-1]}, {', '.join(parts)}}}\n"


def keep(name: str, record: dict[str, Any]) -> str:
    """Writes logs/bench/NAME.GPU.json; its path below the checkout."""
    kept = root() / "logs/bench" / f"{name}.{records.gpu_slug(records.device_name(record))}.json"
    write_if_changed(kept, record_text(record))
    return str(kept.relative_to(root()))
