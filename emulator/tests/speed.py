"""How fast the emulator is: measured by bench_emu and executables, kept in speed.csv, which page.py shows.

make bench-emu                # measure and show
make bench-emu ARGS=--write   # on a machine at rest: measure, rewrite speed.csv
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

from support.markers import ROOT
from support.versions import hopper_versions

RECORD = Path(__file__).parent / "records/speed.csv"
ANSWERS = 5  # runs of an executable
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
    """A figure that is asked for, of the slowest version for an architecture or of the one that is named."""

    text: str
    version: str  # "sm_80", "sm_90a" or a name
    what: str
    seq: int
    checks: str
    most: float

    def holds_for(self, row: Row) -> bool:
        arch = "sm_90a" if row.version in hopper_versions() else "sm_80"
        return (row.what, row.seq, row.checks) == (self.what, self.seq, self.checks) and self.version in (
            row.version, arch
        )  # fmt: skip


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


def limits(record: Record) -> list[Limit]:
    """What is promised, of v16 and of the last version that the record has."""
    last = max(row.version for row in record.rows if row.what == "run")
    return [
        Limit("load and decode the PTX of a version for sm_80, the slowest", "sm_80", "load", 0, "off", 5),
        Limit("load and decode the PTX of a version for sm_90a, the slowest", "sm_90a", "load", 0, "off", 10),
        Limit("v16, seq 256, checks on", "v16", "run", 256, "on", 25),
        Limit("v16, seq 512, checks on", "v16", "run", 512, "on", 60),
        Limit("v16, seq 1024, checks on", "v16", "run", 1024, "on", 200),
        Limit("v16, seq 1024, checks off", "v16", "run", 1024, "off", 120),
        Limit("memory of the process at seq 1024", "v16", "memory", 1024, "on", 200),
        Limit("`./bin/v16` from start to end, elapsed", "v16", "answer", 256, "on", 500),
        Limit(f"{last}, seq 512, checks on", last, "run", 512, "on", 80),
        Limit(f"{last}, seq 1024, checks on", last, "run", 1024, "on", 300),
        Limit(f"`./bin/{last}` from start to end, elapsed", last, "answer", 256, "on", 1000),
    ]


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


def answer_of(version: str) -> Row:
    """Calls of an executable with its problem of seq 256."""
    answers = []
    for _ in range(ANSWERS):
        begin = time.perf_counter()
        subprocess.run([ROOT / "bin" / version], capture_output=True, check=True)
        answers.append((time.perf_counter() - begin) * 1e3)
    cores = len(os.sched_getaffinity(0))
    return Row(version, "answer", 256, "on", cores, "ms", round(median(answers), 2), round(min(answers), 2))


def measure(benches: list[Path], compiler: str, ptx: list[Path]) -> Record:
    """What each bench_emu measures of one thread, the first with the loads, and what its executable takes."""
    rows: list[Row] = []
    about = {"cpu": cpu_model(), "compiler": compiler}
    for number, bench in enumerate(benches):
        done = subprocess.run([bench, *([] if number else ptx)], capture_output=True, text=True, check=True)
        measured = parse(done.stdout)
        about |= measured.about
        version = next(row.version for row in measured.rows if row.what == "run")
        rows += [*measured.rows, answer_of(version)]
    return Record(about, rows)


def find(rows: list[Row], limit: Limit) -> Row | None:
    """The row of a limit, that with the largest median where it is about several versions; None where all of these are
    newer than the record."""
    return max((row for row in rows if limit.holds_for(row)), key=lambda row: row.median, default=None)


def figure(value: float) -> str:
    return f"{value:.1f}" if value < 10 else f"{value:.0f}"


def verdict(row: Row, most: float) -> str:
    """Other work on the machine raises the median before the least."""
    return "met" if row.median <= most else "met by the least" if row.least <= most else "missed"


def page_table(record: Record) -> str:
    """What page.py shows: where it was measured, and the limits."""
    about = record.about
    lines = [
        f"Measured on {about['cpu']}, compiled by {about['compiler']}, at revision {about['revision']}.",
        "",
        "| what | limit | median | least | |",
        "|---|---:|---:|---:|---|",
    ]
    for limit in limits(record):
        row = find(record.rows, limit)
        if row is None:
            lines.append(f"| {limit.text} | {limit.most:g} ms | | | not measured yet |")
            continue
        name = limit.text + (f": {row.version}" if limit.version != row.version else "")
        name += f" ({row.cores} cores)" if row.cores > 1 else ""
        numbers = f"{limit.most:g} {row.unit} | {figure(row.median)} {row.unit} | {figure(row.least)} {row.unit}"
        lines.append(f"| {name} | {numbers} | {verdict(row, limit.most)} |")
    return "\n".join(lines)


def table(record: Record) -> str:
    """The same, and the loads of all versions: what `make bench-emu` prints."""
    loads = [row for row in record.rows if row.what == "load"]
    lines = [page_table(record), "", "Load and decode, in ms, median (least):", ""]
    width = 5
    lines += ["| version | load " * width + "|", "|---|---:" * width + "|"]
    for i in range(0, len(loads), width):
        cells = [f"| {row.version} | {row.median:.1f} ({row.least:.1f}) " for row in loads[i : i + width]]
        lines.append("".join(cells) + "| | " * (width - len(cells)) + "|")
    return "\n".join(lines)


def recorded_table() -> str:
    return page_table(parse(RECORD.read_text()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="keep the figures")
    parser.add_argument("--compiler", default="cc", help="with its flags, for the record")
    parser.add_argument("--bench", type=Path, action="append", required=True, help="bench_emu of a version")
    parser.add_argument("ptx", type=Path, nargs="+")
    options = parser.parse_args()
    record = measure(options.bench, options.compiler, options.ptx)
    shown = table(record)
    print(shown)
    if options.write:
        RECORD.write_text(write(record))


if __name__ == "__main__":
    main()
