"""The ladders of the backward pass and of fp8: the tables of kernels/backward/README.md and kernels/fp8/README.md.

print(fp8_table(root()).markdown())
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from analysis.ladder.headers import Version, load_backward, load_fp8
from analysis.machine_code.regs import Row, read_registers
from analysis.measure.records import Problem, Record, records_in
from analysis.measure.stats import median
from analysis.publish.overview import GPU
from analysis.table import Cell, Table

NOT_MEASURED = "not measured"
COLUMNS = ("version", "idea", "arch", "registers", "spills, B", "shared memory, B")
ROWS, HEADS = 16384, 16  # queries of all sequences, as --tokens 16384 makes them
CASES = ((512, False), (4096, False), (16384, False), (4096, True), (16384, True))  # length, with the causal mask
SPEEDS = tuple(f"{'causal ' if causal else ''}{seq}" for seq, causal in CASES)
GRADIENTS = Problem("attention", "bf16", 0, HEADS, 0, 128, "normal", backward=True)
FP8 = Problem("attention", "e4m3", 0, HEADS, 0, 128, "normal", output_dtype="bf16")


def backward_table(folder: Path) -> Table:
    """A row per version: figures of its own config in fp16, on the newest architecture that it is built for."""
    return Table((*COLUMNS, *SPEEDS), _rows(folder, load_backward(folder), GRADIENTS, "backward"))


def fp8_table(folder: Path) -> Table:
    """The same of the versions that take e4m3, with O in fp16."""
    return Table((*COLUMNS, *SPEEDS), _rows(folder, load_fp8(folder), FP8, "fp8"))


def _rows(folder: Path, versions: Mapping[str, Version], shape: Problem, ladder: str) -> list[list[Cell]]:
    registers, path = read_registers(folder), folder / f"logs/{ladder}/{GPU}.jsonl"
    records = records_in(path) if path.exists() else ()
    page = folder / f"kernels/{ladder}"
    return [_row(version, registers.get(name, []), shape, records, page) for name, version in versions.items()]


def _row(version: Version, rows: list[Row], shape: Problem, records: Sequence[Record], page: Path) -> list[Cell]:
    config = version.header.config
    arch = max((row.arch for row in rows), default=version.header.arch)
    of_arch = {row.config: row for row in rows if row.arch == arch}
    own = of_arch.get(config.short_form())
    return [
        f"[{version.version}]({os.path.relpath(version.path, page)})",
        version.header.title,
        arch,
        own.registers if own else None,
        own.spill_stores + own.spill_loads if own else None,
        config.smem_bytes(),
        *(_speed(version, replace(shape, batch=ROWS // seq, seq=seq, causal=causal), records) for seq, causal in CASES),
    ]


def _speed(version: Version, problem: Problem, records: Sequence[Record]) -> Cell:
    """TFLOP/s of the newest run of a problem; nothing for a mask that the version has not."""
    if problem.causal and not version.header.config.causal:
        return None
    own = [each for each in records if each.subject == version.version and each.problem == problem]
    newest = max((record.run_id for record in own), default="")
    found = [ns for record in own if record.run_id == newest and record.passed for ns in record.samples_ns]
    return f"{problem.flop() / median(found) / 1e3:.0f}" if found else NOT_MEASURED
