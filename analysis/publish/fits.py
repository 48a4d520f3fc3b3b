"""Which versions fit on which GPUs: the table of docs/learn/new-gpu.md.

print(fits_table(root()).markdown())

A GPU fits where a CTA may have the shared memory of a version's own configurations and of what its code declares.
"""

from itertools import groupby
from pathlib import Path

from analysis.ladder.config import SMEM_MOST
from analysis.ladder.headers import load_all
from analysis.machine_code.regs import read_registers
from analysis.table import Cell, Table

CAPABILITIES = ("8.0", "8.6", "8.9", "9.0", "10.0", "12.0")  # of GPUs that the page names


def shared_memory(folder: Path) -> dict[str, int]:
    """Version to the most bytes that a CTA of it takes, of those with mma.sync that are recorded."""
    static = read_registers(folder)
    return {
        name: max(
            config.smem_bytes() + row.static_smem
            for config in (version.header.config, *version.header.others)
            for row in static[name]
            if row.config == config.short_form()
        )
        for name, version in load_all(folder).items()
        if not version.one_arch and name in static
    }


def fits_table(folder: Path) -> Table:
    """One row for versions in a row that take as much."""
    rows: list[list[Cell]] = []
    for most, members in groupby(shared_memory(folder).items(), key=lambda item: item[1]):
        names = [name for name, _ in members]
        where = [capability for capability in CAPABILITIES if most <= SMEM_MOST[capability]]
        span = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
        rows.append([span, f"{most:,}", "everywhere" if len(where) == len(CAPABILITIES) else ", ".join(where)])
    return Table(("versions", "bytes per CTA", "fit"), rows)
