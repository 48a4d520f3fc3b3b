"""Measures the instruction counts of ncu_counts.csv anew: needs a GPU, ncu and the right to read counters.

python3 emulator/tests/ncu_record.py v37            # after `make v37`: replaces the rows of v37

Sums of ncu's source page by opcode, for the launch that ncu.py compares with: fp16, batch 1, 2 heads, seq 512.
The standard library is enough for it.
"""

from __future__ import annotations

import argparse
import csv
import io
import subprocess
from collections import defaultdict
from pathlib import Path

MEASURED = Path(__file__).resolve().parent / "records/ncu_counts.csv"
BINARIES = Path(__file__).resolve().parents[2] / "bin"
PROBLEM = {"seq": 512, "heads": 2, "batch": 1}
INSTRUCTIONS, WAVEFRONTS, IDEAL, SECTORS = "instructions", "wavefronts", "ideal", "sectors"
COLUMNS = {  # of the source page
    INSTRUCTIONS: "Instructions Executed",
    WAVEFRONTS: "L1 Wavefronts Shared",
    IDEAL: "L1 Wavefronts Shared Ideal",
    SECTORS: "L2 Theoretical Sectors Global",
}
FIELDS = ("version", "opcode", INSTRUCTIONS, WAVEFRONTS, IDEAL, SECTORS)
Counts = dict[str, dict[str, int]]  # by opcode and metric


def opcode_of(instruction: str) -> str:
    """ "HGMMA" of "@P0 HGMMA.64x128x16.F32 R24, gdesc[UR4], R24 ;"."""
    words = [word for word in instruction.split() if not word.startswith("@")]
    return words[0].split(".")[0]


def number(text: str) -> int:
    return round(float(text.replace(",", "") or 0))


def parse(text: str) -> Counts:
    """The sums of `ncu --page source --csv` of one launch; lines around its table are skipped."""
    rows = csv.reader(io.StringIO(text))
    heading = next((row for row in rows if "Source" in row and COLUMNS[INSTRUCTIONS] in row), None)
    if heading is None:
        raise ValueError(f"no table with the columns Source and {COLUMNS[INSTRUCTIONS]}")
    missing = [column for column in COLUMNS.values() if column not in heading]
    if missing:
        raise ValueError(f"the table has no column {missing[0]}; it has {', '.join(heading)}")
    counts: Counts = defaultdict(lambda: dict.fromkeys(COLUMNS, 0))
    for row in rows:
        if len(row) != len(heading):
            break
        fields = dict(zip(heading, row, strict=True))
        for metric, column in COLUMNS.items():
            counts[opcode_of(fields["Source"])][metric] += number(fields[column])
    return {opcode: sums for opcode, sums in sorted(counts.items()) if sums[INSTRUCTIONS]}


def measure(version: str) -> Counts:
    options = ["--csv", "--page", "source", "--print-source", "sass", "--print-units", "base", "--section",
               "SourceCounters", "--kernel-name", "flash_forward", "--launch-count", "1"]  # fmt: skip
    sizes = [word for name, value in PROBLEM.items() for word in (f"--{name}", str(value))]
    program = [str(BINARIES / version), "--backend", "gpu", "--profile", "--dtype", "fp16", *sizes]
    done = subprocess.run(["ncu", *options, *program], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"ncu ended with status {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return parse(done.stdout)


def replaced(record: str, version: str, counts: Counts) -> str:
    """The record with those rows for a version."""
    kept = [row for row in csv.DictReader(io.StringIO(record)) if row["version"] != version]
    out = io.StringIO()
    table = csv.DictWriter(out, FIELDS, lineterminator="\n")
    table.writeheader()
    table.writerows(kept)
    table.writerows({"version": version, "opcode": opcode, **sums} for opcode, sums in counts.items())
    return out.getvalue()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("version", help="such as v37: bin/VERSION must be built")
    chosen = parser.parse_args().version
    MEASURED.write_text(replaced(MEASURED.read_text(), chosen, measure(chosen)))
