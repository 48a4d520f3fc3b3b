"""What single instructions, copies and launches cost on this GPU: `python3 -m analysis pipes` runs bin/pipes.

The record, logs/bench/pipes.GPU.json, is what the machine of analysis/predict is made of. Beside the rows of bin/pipes
it has `power`: each operation executed by eight warps of all multiprocessors for two seconds, with the board's watts
between two moves of NVML's energy counter, a second apart.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from analysis.errors import DONE, AnalysisError
from analysis.files import root, write_if_changed
from analysis.measure import executables, records
from analysis.measure.executables import CANNOT_RUN
from analysis.measure.nvml import EnergyCounter

SECONDS = 120  # at most, for one run of bin/pipes
START_SECONDS, LEAST_SECONDS, HELD_SECONDS = 1.0, 1.0, 2.5  # of heating, of what is measured, of an operation
TOLD = (
    *("FFMA", "FADD", "FMUL", "FMNMX", "IMAD", "LOP3", "F2FP", "MUFU.EX2", "SHFL", "LDSM.x4", "LDS.32", "STS.128"),
    *("HMMA", "HMMA.reuse", "HGMMA.64x128x16", "HGMMA.64x128x16, A in registers", "LDGSTS.128", "BAR"),
    *("FFMA, chain", "LOP3, chain"),
)


def record_text(record: dict[str, Any]) -> str:
    """JSON with a line for each measurement."""
    lists = {name: value for name, value in record.items() if isinstance(value, list)}
    rest = {name: value for name, value in record.items() if name not in lists}
    parts = [
        f'"{name}": [\n' + ",\n".join(f"  {json.dumps(row)}" for row in rows) + "\n]" for name, rows in lists.items()
    ]
    return f"{json.dumps(rest)[:-1]}, {', '.join(parts)}}}\n"


def add_pipes_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print the record and keep nothing")
    parser.add_argument("--no-power", action="store_true", help="leave out the power of single operations")


def run_pipes(args: argparse.Namespace) -> int:
    path = root() / "bin/pipes"
    if not os.access(path, os.X_OK):
        raise AnalysisError(f"{path} is not there: `make pipes` builds it")
    try:
        found = executables.checked(executables.run(path, [], SECONDS)).records
    except executables.NoGpu as error:
        print(f"pipes measures on a GPU of compute capability 9.0: {error}", file=sys.stderr)
        return CANNOT_RUN
    if len(found) != 1:
        raise AnalysisError(f"{path}: printed {len(found)} records: expected one")
    record = found[0]
    if not args.no_power:
        record["power"] = power_of_all(path, record["device"]["bus"])
    text = record_text(record)
    if args.json:
        print(text, end="")
        return DONE
    kept = root() / "logs/bench" / f"pipes.{records.gpu_slug(records.device_name(record))}.json"
    write_if_changed(kept, text)
    print(f"{kept.relative_to(root())}: {len(record['pipes'])} measurements, {len(record.get('power', ()))} of power")
    return DONE


def power_of_all(path: Path, bus: str) -> list[dict[str, Any]]:
    """A row for each operation of TOLD; none where NVML has no such counter."""
    counter = EnergyCounter.at(bus)
    if counter is None:
        print("pipes: NVML has no energy counter of this GPU: power is left out", file=sys.stderr)
        return []
    try:
        return [row for name in TOLD if (row := power_of(path, name, counter)) is not None]
    finally:
        counter.close()


def power_of(path: Path, name: str, counter: EnergyCounter) -> dict[str, Any] | None:
    """None where the counter stood still."""
    with subprocess.Popen([str(path), name, str(HELD_SECONDS)], stdout=subprocess.PIPE, text=True) as process:
        time.sleep(START_SECONDS)
        first = next_move(counter, process)
        time.sleep(LEAST_SECONDS)
        last = next_move(counter, process)
        celsius = counter.celsius()
        out = process.communicate(timeout=SECONDS)[0]
    if process.returncode or not out:
        raise AnalysisError(f"{path} {name}: exit status {process.returncode}")
    if first is None or last is None:
        print(f"pipes: {name}: the energy counter did not move in time", file=sys.stderr)
        return None
    row = json.loads(out)
    watts = (last[1] - first[1]) / 1e3 / (last[0] - first[0])
    return {
        "operation": name,
        "warps": row["warps"],
        "cycles": row["cycles"],
        "sm_clock_hz": row["sm_clock_hz"],
        "watts": round(watts, 2),
        "celsius": celsius,
    }


def next_move(counter: EnergyCounter, process: "subprocess.Popen[str]") -> tuple[float, int] | None:
    """When the counter moves next, and to how many millijoules; None once the process has ended."""
    before = counter.millijoules()
    while process.poll() is None:
        now = counter.millijoules()
        if now is not None and now != before:
            return time.monotonic(), now
    return None
