"""The ladders of the backward pass and of fp8: the tables of kernels/backward/README.md and kernels/fp8/README.md.

print(fp8_table(root()).markdown())
"""

from collections.abc import Mapping
from pathlib import Path

from analysis.ladder.headers import Version, load_backward, load_fp8
from analysis.machine_code.regs import Row, read_registers
from analysis.measure.records import Problem
from analysis.measure.stats import median
from analysis.publish.libraries import GPU, records_of
from analysis.table import Cell, Table

NOT_MEASURED = "not measured"
COLUMNS = ("version", "idea", "arch", "registers", "spills, B", "shared memory, B")
SMALL, SPEED = "registers of the small kernels", f"TFLOP/s, {GPU}"
GRADIENTS = Problem("attention", "fp16", 16, 16, 4096, 128, "normal", backward=True)
FP8 = Problem("attention", "e4m3", 16, 16, 4096, 128, "normal", output_dtype="fp16")


def backward_table(folder: Path) -> Table:
    """A row per version: figures of its own config in fp16, on the newest architecture that it is built for."""
    rows = _rows(folder, load_backward(folder), GRADIENTS)
    return Table((*COLUMNS, SMALL, SPEED), rows)


def fp8_table(folder: Path) -> Table:
    """The same of the versions that take e4m3, with O in fp16; they have no small kernels."""
    rows = _rows(folder, load_fp8(folder), FP8)
    return Table((*COLUMNS, SPEED), [[*row[:-2], row[-1]] for row in rows])


def _rows(folder: Path, versions: Mapping[str, Version], headline: Problem) -> list[list[Cell]]:
    registers = read_registers(folder)
    return [_row(folder, version, registers.get(name, []), headline) for name, version in versions.items()]


def _row(folder: Path, version: Version, rows: list[Row], headline: Problem) -> list[Cell]:
    config = version.header.config
    arch = max((row.arch for row in rows), default=version.header.arch)
    of_arch = {row.config: row for row in rows if row.arch == arch}
    own = of_arch.get(config.short_form())
    small = [row.registers for name, row in of_arch.items() if name.endswith(f" of {config.short_form()}")]
    return [
        f"[{version.version}]({version.path.name})",
        version.header.title,
        arch,
        own.registers if own else None,
        own.spill_stores + own.spill_loads if own else None,
        config.smem_bytes(),
        ", ".join(map(str, small)),
        _speed(folder, version, headline),
    ]


def _speed(folder: Path, version: Version, headline: Problem) -> str:
    """Of the newest run of the headline problem."""
    records = [
        record
        for record in records_of(folder, GPU)
        if record.subject == version.version and record.problem == headline and record.passed is not False
    ]
    newest = max((record.run_id for record in records), default="")
    found = [ns for record in records if record.run_id == newest for ns in record.samples_ns]
    return f"{headline.flop() / median(found) / 1e3:.0f}" if found else NOT_MEASURED
