"""Speeds of the production kernels as models call them: the table of docs/general-attention.md.

print(speeds_table(root()).markdown())

Every line of logs/decode/serving.GPU.csv is one subject of a case; subjects of a case were measured in one run.
"""

import csv
from collections.abc import Mapping
from pathlib import Path

from analysis.files import read_text
from analysis.table import Cell, Table

GPUS = ("h200", "h100")
NONE = "–"
OURS, READ, FA3 = "flashladder", "read", "FlashAttention-3"
# Kernel and case as the page names them, and the case in the record.
CASES = (
    *(
        ("`wgmma`, causal", f"{16384 // seq} × {seq}", f"{16384 // seq} x {seq}, one length, causal, d_head 128")
        for seq in (512, 2048, 16384)
    ),
    ("`wgmma`, causal, 8 packed sequences", "16384 tokens", "8 ragged sequences, 16384 tokens, causal, d_head 128"),
    ("`wgmma`, causal, window 1024", "1 × 16384", "window 1024 at 16384, causal, d_head 128"),
    *(
        ("`decode`, 32 heads on 8", shape, f"{shape.replace(' × ', ' x ')}, 32 heads on 8")
        for shape in ("16 × 32768", "128 × 2048", "1 × 32768")
    ),
)
Rates = Mapping[str, Mapping[str, float]]  # by case and subject: GB/s or TFLOP/s


def rates_in(folder: Path, gpu: str) -> Rates:
    found: dict[str, dict[str, float]] = {}
    for line in csv.DictReader(read_text(folder / f"logs/decode/serving.{gpu}.csv").splitlines()):
        found.setdefault(line["case"], {})[line["subject"]] = float(line["rate"])
    return found


def speeds_table(folder: Path) -> Table:
    """A row per case, and for each GPU the speed and the speed divided by FlashAttention-3's."""
    of_gpus = {gpu: rates_in(folder, gpu) for gpu in GPUS}
    rows: list[list[Cell]] = []
    for kernel, shape, case in CASES:
        cells: list[Cell] = [kernel, shape]
        for rates in of_gpus.values():
            of = rates.get(case, {})
            if not of:
                cells += [NONE, NONE]
                continue
            read = f"{100 * of[OURS] / of[READ]:.0f} % of read bandwidth" if READ in of else f"{of[OURS]:.0f} TFLOP/s"
            cells += [read, f"{of[OURS] / of[FA3]:.2f}"]
        rows.append(cells)
    columns = [column for gpu in GPUS for column in (gpu.upper(), f"{gpu.upper()} × FlashAttention-3")]
    return Table(("kernel", "batch × keys", *columns), rows)
