"""Samples of ncu by instruction: what `ncu --import FILE --page source --print-source sass --csv` prints.

    for kernel in parse_samples(text, "v02.csv"):
        for at in kernel.instructions: print(at.offset, at.opcode, at.samples)

The warp sampler notes the current instruction of a warp: many samples mean that warps wait there, or issue it often.
"""

import csv
import io
import re
from dataclasses import dataclass

from analysis.errors import AnalysisError

ADDRESS, SOURCE, SAMPLES, EXECUTED = "Address", "Source", "# Samples", "Instructions Executed"
NEEDED = (ADDRESS, SOURCE, SAMPLES, EXECUTED)


@dataclass(frozen=True, slots=True)
class Sampled:
    offset: int  # from the kernel's first instruction
    opcode: str  # with modifiers
    samples: int
    executed: int  # by warps


@dataclass(frozen=True)
class SampledKernel:
    name: str
    instructions: tuple[Sampled, ...]


def parse_samples(text: str, source: str) -> list[SampledKernel]:
    """Every launch in ncu's output, in its order. Other columns than NEEDED are not read."""
    found: list[SampledKernel] = []
    header: list[str] = []
    reader = csv.reader(io.StringIO(text, newline=""))
    name, rows = "", list[Sampled]()
    try:
        for row in reader:
            where = f"{source}:{reader.line_num}"
            if row[:1] == ["Kernel Name"]:
                if rows:
                    found.append(SampledKernel(name, tuple(rows)))
                name, rows, header = row[1] if len(row) > 1 else "", [], []
            elif row[:1] == [ADDRESS]:
                header = row
                for column in NEEDED:
                    if column not in header:
                        raise AnalysisError(f"{where}: no column {column!r}; {_wanted()}")
            elif header and row:
                first = rows[0].offset if rows else None
                rows.append(_sampled(dict(zip(header, row, strict=False)), where, first))
    except csv.Error as error:
        raise AnalysisError(f"{source}:{reader.line_num}: {error}") from error
    if rows:
        found.append(SampledKernel(name, tuple(rows)))
    if not found:
        raise AnalysisError(f"{source}: holds no instruction with samples; {_wanted()}")
    return [SampledKernel(each.name, _from_zero(each.instructions)) for each in found]


def _wanted() -> str:
    return "expected what `ncu --import REPORT --page source --print-source sass --csv` prints"


def _sampled(cells: dict[str, str], where: str, first: int | None) -> Sampled:
    address = cells.get(ADDRESS, "")
    opcode = re.match(r"\s*(?:@!?U?P[T0-9]+\s+)?([A-Z][\w.]*)", cells.get(SOURCE, ""))
    counts = [cells.get(column, "").replace(",", "") for column in (SAMPLES, EXECUTED)]
    if not re.fullmatch("0x[0-9a-f]{1,16}", address) or not opcode or not all(map(_WHOLE.fullmatch, counts)):
        raise AnalysisError(f"{where}: not understood: {', '.join(list(cells.values())[:4])[:80]!r}")
    if first is not None and int(address, 16) < first:
        raise AnalysisError(f"{where}: address {address} is before the kernel's first, {first:#x}")
    return Sampled(int(address, 16), opcode[1], int(counts[0]), int(counts[1]))


_WHOLE = re.compile("[0-9]{1,18}")


def _from_zero(rows: tuple[Sampled, ...]) -> tuple[Sampled, ...]:
    first = rows[0].offset
    return tuple(Sampled(row.offset - first, row.opcode, row.samples, row.executed) for row in rows)
