"""How fast wgmma runs on this GPU: `python3 -m analysis peak` runs bin/peak and keeps what it says.

The record, logs/bench/wgmma.GPU.json, is what bounds of machine code for sm_90a are made of.
"""

import argparse
import json
import os
import sys
from typing import Any

from analysis.errors import DONE, AnalysisError
from analysis.files import root, write_if_changed
from analysis.measure import executables, records
from analysis.measure.executables import CANNOT_RUN

SECONDS = 120


def record_text(record: dict[str, Any]) -> str:
    """JSON with a line for each measurement."""
    rows = ",\n".join(f"  {json.dumps(row)}" for row in record["wgmma"])
    rest = {name: value for name, value in record.items() if name != "wgmma"}
    return f'{json.dumps(rest)[:-1]}, "wgmma": [\n{rows}\n]}}\n'


def add_peak_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print the record and keep nothing")


def run_peak(args: argparse.Namespace) -> int:
    path = root() / "bin/peak"
    if not os.access(path, os.X_OK):
        raise AnalysisError(f"{path} is not there: `make peak` builds it")
    try:
        found = executables.checked(executables.run(path, [], SECONDS)).records
    except executables.NoGpu as error:
        print(f"peak measures on a GPU of compute capability 9.0: {error}", file=sys.stderr)
        return CANNOT_RUN
    if len(found) != 1:
        raise AnalysisError(f"{path}: printed {len(found)} records: expected one")
    text = record_text(found[0])
    if args.json:
        print(text, end="")
        return DONE
    kept = root() / "logs/bench" / f"wgmma.{records.gpu_slug(records.device_name(found[0]))}.json"
    write_if_changed(kept, text)
    print(f"{kept.relative_to(root())}: {len(found[0]['wgmma'])} measurements")
    return DONE
