"""Costs of single instructions, copies and launches on this GPU: `python3 -m analysis pipes` runs bin/pipes.

The record, logs/bench/pipes.GPU.json, is what the machine of analysis/predict is made of. In addition to the rows of
bin/pipes it has `power`: each operation executed by eight warps of all multiprocessors for two seconds, with the
board's watts between two moves of NVML's energy counter, a second apart.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from analysis.errors import DONE, AnalysisError
from analysis.files import root
from analysis.measure import microbenchmarks
from analysis.measure.executables import CANNOT_RUN, NoGpu
from analysis.measure.microbenchmarks import SECONDS
from analysis.measure.nvml import EnergyCounter

START_SECONDS, LEAST_SECONDS, HELD_SECONDS = 1.0, 1.0, 2.5  # of heating, of what is measured, of an operation
TOLD = (
    *("FFMA", "FADD", "FMUL", "FMNMX", "IMAD", "LOP3", "F2FP", "MUFU.EX2", "SHFL", "LDSM.x4", "LDS.32", "STS.128"),
    *("HMMA", "HMMA.reuse", "HGMMA.64x128x16", "HGMMA.64x128x16, A in registers", "LDGSTS.128", "BAR"),
    *("FFMA, chain", "LOP3, chain", "QGMMA.64x128x32", "QGMMA.64x128x32, A in registers"),
)


def add_pipes_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print the record and save nothing")
    parser.add_argument("--no-power", action="store_true", help="leave out the power of single operations")


def run_pipes(args: argparse.Namespace) -> int:
    try:
        record = microbenchmarks.measured("pipes")
    except NoGpu as error:
        print(error, file=sys.stderr)
        return CANNOT_RUN
    if not args.no_power:
        record["power"] = power_of_all(root() / "bin/pipes", record["device"]["bus"])
    if args.json:
        print(microbenchmarks.record_text(record), end="")
        return DONE
    kept, power = microbenchmarks.keep("pipes", record), len(record.get("power", ()))
    print(f"{kept}: {len(record['pipes'])} measurements, {power} of power")
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
