"""Golden counters: what each version and living kernel executes on a fixed problem.

    .venv/bin/python emulator/tests/golden.py [VER ...]    # counts these built ones, or all

A change of a kernel or of the toolkit changes them; a change of the emulator should not.
"""

from __future__ import annotations

import csv
import io
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from support.fp8 import Fp8
from support.versions import Launch, Version, with_fp8

from analysis.files import write_if_changed

GOLDEN = Path(__file__).resolve().parent / "records/golden_counters.csv"
FIELDS = ["version", "warp_instructions", "mma", "wavefronts", "ideal", "sectors"]


def counters(version: Version, folder: Path, *options: object) -> dict[str, str]:
    path = folder / "counters.csv"
    symbol = version.entry("fp16")
    of_bytes = version.config.e4m3_inputs
    launch = Fp8(symbol, seq=256, seq_k=256) if of_bytes else Launch(symbol, seq=256)
    done = launch.run(version.ptx, "--counters-csv", path, *options)
    assert done.returncode == 0, f"{version.name}: status {done.returncode}\n{done.stderr}"
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))

    def total(field: str, group: str = "") -> str:
        return str(sum(int(row[field]) for row in rows if group in ("", row["group"])))

    return {
        "version": version.name, "warp_instructions": total("executed"), "mma": total("executed", "mma"),
        "wavefronts": total("wavefronts"), "ideal": total("ideal"), "sectors": total("sectors"),
    }  # fmt: skip


def read() -> dict[str, dict[str, str]]:
    with GOLDEN.open(newline="") as file:
        return {row["version"]: row for row in csv.DictReader(file)}


def main(names: list[str]) -> None:
    rows = read()
    there = [version for version in with_fp8() if version.name in names or not names]
    with tempfile.TemporaryDirectory() as folder:
        rows |= {version.name: counters(version, Path(folder)) for version in there}
    kept = [rows[version.name] for version in with_fp8() if version.name in rows]
    text = io.StringIO()
    writer = csv.DictWriter(text, FIELDS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(kept)
    write_if_changed(GOLDEN, text.getvalue())
    print(f"{GOLDEN.name}: counted {len(there)} of {len(kept)} kernels")


if __name__ == "__main__":
    main(sys.argv[1:])
