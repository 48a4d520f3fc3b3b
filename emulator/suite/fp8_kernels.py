"""Runs the fp8 kernels of other projects under bin/emulated-gpu and writes their rows of hopper_runs.csv.

python fp8_kernels.py TOOL RECORD PROJECT VERSION PROGRAM

PROGRAM: a host program of fp8/. Without an argument it names its problems; with one it runs that problem and compares
with float64, here under two schedules. The columns `licence`, `uses` and `findings` stay as they are: a person writes
them. `suite.mk suite-fp8` calls it.
"""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

LINE = re.compile(r"^KERNEL (right|wrong), error (\S+) of (\S+), problem (.+)$", re.M)
SECONDS = 1800  # for what hangs


@dataclass(frozen=True)
class Run:
    """The rows of one problem."""

    kernel: str
    right: bool
    error: str
    largest: str
    problem: str
    findings: Counter[str]


def run(tool: str, program: str, kernel: str, *options: str) -> Run:
    """Leaves with what the program said where it compared nothing."""
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "found.json"
        command = [tool, "--arch", "sm_90a", *options, "--json", str(found), program, kernel]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
        line = LINE.search(done.stdout)
        if not line:
            raise SystemExit(f"{program} compared nothing for {kernel!r}:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
        notes = json.loads(found.read_text(encoding="utf-8"))["notes"]
    findings = Counter(note.get("finding", note.get("note")) for note in notes)
    return Run(kernel, line[1] == "right", line[2], line[3], line[4], findings)


def put(rows: list[dict[str, str]], project: str, version: str, done: Run) -> dict[str, str]:
    """The row of the run, changed, or added after those of its project."""
    row = next((each for each in rows if (each["project"], each["kernel"]) == (project, done.kernel)), None)
    if row is None:
        row = dict.fromkeys(rows[0], "")
        rows.insert(max((i + 1 for i, each in enumerate(rows) if each["project"] == project), default=len(rows)), row)
    row |= {"project": project, "version": version, "kernel": done.kernel, "problem": done.problem}
    row |= {"error": done.error, "largest": done.largest}
    return row


def main(tool: str, record: Path, project: str, version: str, program: str) -> int:
    """1 where a result is wrong, or the column `findings` says another thing than the emulator."""
    with record.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    status = 0
    # Under the tool, too, which has the libraries that the program is linked to.
    for kernel in subprocess.run([tool, program], capture_output=True, text=True, check=True).stdout.splitlines():
        done, other = run(tool, program, kernel), run(tool, program, kernel, "--schedule", "1")
        right, findings = done.right and other.right, done.findings | other.findings
        row = put(rows, project, version, done)
        found = ", ".join(f"{count} {kind}" for kind, count in sorted(findings.items())) or "none"
        print(f"{project}, {kernel}: {'right' if right else 'wrong'}; findings: {found}")
        if not right:
            status = 1
        if bool(findings) != bool(row["findings"]):
            print(f"{record}: the column `findings` of {kernel!r} is {row['findings']!r}", file=sys.stderr)
            status = 1
    with record.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:]))
