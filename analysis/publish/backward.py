"""The versions of the backward pass: the table of kernels/backward/README.md.

print(versions_table(root()).markdown())
"""

from pathlib import Path

from analysis.ladder.headers import Version, load_backward
from analysis.machine_code.regs import Row, read_registers
from analysis.measure.records import Problem
from analysis.measure.stats import median
from analysis.publish.libraries import GPU, records_of
from analysis.table import Cell, Table

NOT_MEASURED = "not measured"
COLUMNS = (
    *("version", "idea", "arch", "registers", "spills, B", "shared memory, B"),
    *("registers of the small kernels", f"TFLOP/s, {GPU}"),
)
HEADLINE = Problem("attention", "fp16", 16, 16, 4096, 128, "normal", backward=True)


def versions_table(folder: Path) -> Table:
    """A row per version: figures of its own config in fp16, on the newest architecture that it is built for."""
    registers = read_registers(folder)
    return Table(COLUMNS, [_row(folder, version, registers.get(name, [])) for name, version in _versions(folder)])


def _versions(folder: Path) -> list[tuple[str, Version]]:
    return list(load_backward(folder).items())


def _row(folder: Path, version: Version, rows: list[Row]) -> list[Cell]:
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
        _speed(folder, version),
    ]


def _speed(folder: Path, version: Version) -> str:
    """Of the newest run of the headline problem."""
    records = [
        record
        for record in records_of(folder, GPU)
        if record.subject == version.version and record.problem == HEADLINE and record.passed is not False
    ]
    newest = max((record.run_id for record in records), default="")
    found = [ns for record in records if record.run_id == newest for ns in record.samples_ns]
    return f"{HEADLINE.flop() / median(found) / 1e3:.0f}" if found else NOT_MEASURED
