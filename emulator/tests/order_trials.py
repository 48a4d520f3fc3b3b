"""Mutants whose synchronisation is broken: what one run says of other orders, beside what runs in three orders show.

.venv/bin/python emulator/tests/order_trials.py         # v28 and v37: minutes; rewrites records/order_mutants.csv
"""

from __future__ import annotations

import csv
import sys
import tempfile
from pathlib import Path

from hopper_trials import SCHEDULES, VersionTrials
from support.versions import Launch, Version, versions

RECORD = Path(__file__).parent / "records/order_mutants.csv"
FIELDS = ("kernel", "mutants", "one_order", "three_orders", "one_run_and_the_rules")
NAMES = ("v28", "v37")
KINDS = ("mbarrier", "arriv", "barrier", "expect", "release", "wait", "phase", "bytes", "init")
WITHOUT = ("--ignore", "phase-overrun", "--ignore", "order-dependent")
STEPS = 4_000_000


def row_of(version: Version, folder: Path) -> dict[str, str]:
    """Of the version in fp16 at seq 512 with one head: mutants, and in how many something is found."""
    launch = Launch(version.entry("fp16"), 512, 1)
    mutants = [m for m in VersionTrials(version, "fp16", folder).mutants() if any(kind in m.kind for kind in KINDS)]
    one = three = rules = 0
    for mutant in mutants:
        path = folder / "mutant.ptx"
        path.write_text(mutant.text)
        runs = [launch.run(path, "--steps", STEPS, "--schedule", seed, *WITHOUT).returncode != 0 for seed in SCHEDULES]
        one += runs[0]
        three += any(runs)
        rules += launch.run(path, "--steps", STEPS).returncode != 0
    values = (version.name, len(mutants), one, three, rules)
    return dict(zip(FIELDS, map(str, values), strict=True))


def recorded() -> list[dict[str, str]]:
    with RECORD.open(newline="") as file:
        return list(csv.DictReader(file))


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        rows = [row_of(version, Path(folder)) for version in versions() if version.name in NAMES]
    with RECORD.open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
