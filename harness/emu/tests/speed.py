"""How fast the emulator is: measured by bench_emu and bin/v16, kept in speed.csv, shown in docs/emulator.md.

make bench-emu                # measure and show
make bench-emu ARGS=--write   # on a machine at rest: measure, rewrite speed.csv and the page
"""

from __future__ import annotations

import argparse
import csv
import io
import os
import platform
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from support.markers import PAGE, ROOT, fill

RECORD = Path(__file__).parent / "records/speed.csv"
ANSWERS = 5  # runs of bin/v16
FIELDS = ("version", "what", "seq", "checks", "cores", "unit", "median", "least")


@dataclass(frozen=True)
class Row:
    """A figure: `what` is load (and decode one entry), run, memory, or answer (of a whole call of the executable)."""

    version: str
    what: str
    seq: int
    checks: str  # "on" or "off"
    cores: int  # that the work was spread over
    unit: str
    median: float
    least: float


@dataclass(frozen=True)
class Record:
    about: dict[str, str]  # cpu, compiler, revision
    rows: list[Row]


@dataclass(frozen=True)
class Limit:
    """A figure that is asked for, of the slowest version where none is named."""

    text: str
    version: str
    what: str
    seq: int
    checks: str
    most: float


LIMITS = (
    Limit("load and decode the PTX of a version, the slowest", "", "load", 0, "off", 5),
    Limit("v16, seq 256, checks on", "v16", "run", 256, "on", 25),
    Limit("v16, seq 512, checks on", "v16", "run", 512, "on", 60),
    Limit("v16, seq 1024, checks on", "v16", "run", 1024, "on", 200),
    Limit("v16, seq 1024, checks off", "v16", "run", 1024, "off", 120),
    Limit("memory of the process at seq 1024", "v16", "memory", 1024, "on", 200),
    Limit("`./bin/v16` from start to end, elapsed", "v16", "answer", 256, "on", 500),
)


def parse(text: str) -> Record:
    """Lines "# key: value", then CSV."""
    lines = text.splitlines()
    about = dict(line[2:].split(": ", 1) for line in lines if line.startswith("# "))
    table = csv.DictReader(line for line in lines if not line.startswith("#"))
    if tuple(table.fieldnames or ()) != FIELDS:
        raise ValueError(f"the columns are not {', '.join(FIELDS)}")
    rows = [
        Row(
            row["version"], row["what"], int(row["seq"]), row["checks"], int(row["cores"]), row["unit"],
            float(row["median"]), float(row["least"]),
        )
        for row in table
    ]  # fmt: skip
    return Record(about, rows)


def write(record: Record) -> str:
    out = io.StringIO()
    for key, value in record.about.items():
        out.write(f"# {key}: {value}\n")
    table = csv.writer(out, lineterminator="\n")
    table.writerow(FIELDS)
    for row in record.rows:
        table.writerow([getattr(row, field) for field in FIELDS])
    return out.getvalue()


def cpu_model() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    found = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return " ".join(found[0].split()) if found else platform.machine()


def measure(bench: Path, compiler: str, ptx: list[Path]) -> Record:
    """What bench_emu measures of one thread, and calls of the executable of its version with its problem of seq 256."""
    done = subprocess.run([bench, *ptx], capture_output=True, text=True, check=True)
    measured = parse(done.stdout)
    version = next(row.version for row in measured.rows if row.what == "run")
    answers = []
    for _ in range(ANSWERS):
        begin = time.perf_counter()
        subprocess.run([ROOT / "bin" / version], capture_output=True, check=True)
        answers.append((time.perf_counter() - begin) * 1e3)
    cores = len(os.sched_getaffinity(0))
    answer = Row(version, "answer", 256, "on", cores, "ms", round(median(answers), 2), round(min(answers), 2))
    about = {"cpu": cpu_model(), "compiler": compiler, **measured.about}
    return Record(about, [*measured.rows, answer])


def find(rows: list[Row], limit: Limit) -> Row:
    """The row of a limit; the one with the largest median where it is about every version."""
    among = [
        row
        for row in rows
        if (row.what, row.seq, row.checks) == (limit.what, limit.seq, limit.checks)
        and row.version == (limit.version or row.version)
    ]
    if not among:
        raise ValueError(f"the record has no figure for: {limit.text}")
    return max(among, key=lambda row: row.median)


def figure(value: float) -> str:
    return f"{value:.1f}" if value < 10 else f"{value:.0f}"


def verdict(row: Row, most: float) -> str:
    """Other work on the machine raises the median before the least."""
    return "met" if row.median <= most else "met by the least" if row.least <= most else "missed"


def table(record: Record) -> str:
    """What docs/emulator.md says: where it was measured, the limits, and the loads of all versions."""
    about = record.about
    lines = [
        f"Measured on {about['cpu']}, compiled by {about['compiler']}, at revision {about['revision']}.",
        "",
        "| what | limit | median | least | |",
        "|---|---:|---:|---:|---|",
    ]
    for limit in LIMITS:
        row = find(record.rows, limit)
        name = limit.text + ("" if limit.version else f": {row.version}")
        name += f" ({row.cores} cores)" if row.cores > 1 else ""
        numbers = f"{limit.most:g} {row.unit} | {figure(row.median)} {row.unit} | {figure(row.least)} {row.unit}"
        lines.append(f"| {name} | {numbers} | {verdict(row, limit.most)} |")
    loads = [row for row in record.rows if row.what == "load"]
    lines += ["", "Load and decode, in ms, median (least):", ""]
    width = 5
    lines += ["| version | load " * width + "|", "|---|---:" * width + "|"]
    for i in range(0, len(loads), width):
        cells = [f"| {row.version} | {row.median:.1f} ({row.least:.1f}) " for row in loads[i : i + width]]
        lines.append("".join(cells) + "| | " * (width - len(cells)) + "|")
    return "\n".join(lines)


def recorded_table() -> str:
    return table(parse(RECORD.read_text()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="keep the figures, and put them on the page")
    parser.add_argument("--compiler", default="cc", help="with its flags, for the record")
    parser.add_argument("bench", type=Path)
    parser.add_argument("ptx", type=Path, nargs="+")
    options = parser.parse_args()
    record = measure(options.bench, options.compiler, options.ptx)
    shown = table(record)
    print(shown)
    if options.write:
        RECORD.write_text(write(record))
        PAGE.write_text(fill(PAGE.read_text(), "speed", recorded_table()))


if __name__ == "__main__":
    main()
