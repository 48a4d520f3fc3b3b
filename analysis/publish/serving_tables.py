"""What servers call beside its peers: tables of docs/general-attention.md from logs/decode/serving.GPU.csv.

print(decode_table(root()).markdown())
"""

import csv
from collections.abc import Mapping
from pathlib import Path

from analysis.files import read_text
from analysis.publish.libraries import GPU
from analysis.table import Cell, Table

OURS, BATCH, READ, CUDNN, FA3 = "flashladder", 'flashladder, "batch"', "read", "cuDNN", "FlashAttention-3"
GROUPED = ", 32 heads on 8"
CASES = (
    *((shape, GROUPED, "") for shape in ("16 x 32768", "128 x 2048", "64 of 101 to 29595", "1 x 32768")),
    *(("16 x 32768", f"{GROUPED}, {rows} rows", "") for rows in (32, 64, 128)),
    *(("16 x 32768", f"{GROUPED}, {rows} rows", ", d_head 64") for rows in (64, 128)),
    ("16 x 32768", f"{GROUPED}, e4m3", ""),
)
PAGES = (16, 64, 256)
WHOLE = (
    *("8 ragged sequences, 16384 tokens", "8 x 2048", "window 1024 at 16384", "16384"),
    *(f"{16384 // seq} x {seq}, one length" for seq in (512, 1024, 2048, 4096, 8192, 16384)),
)
MIXED = (
    "8 ragged sequences, 16384 tokens, 16 heads on 16",
    "4 of 2048 queries on 8192 keys, 64 of 1 on 4096, 32 heads on 8",
)
PACKED = "flashladder, packed keys"
GPUS = (GPU, "h100")
NONE = "–"
Rates = Mapping[str, Mapping[str, float]]  # of a case, of a subject: GB/s or TFLOP/s


def rates_in(folder: Path, gpu: str = GPU) -> Rates:
    found: dict[str, dict[str, float]] = {}
    for line in csv.DictReader(read_text(folder / f"logs/decode/serving.{gpu}.csv").splitlines()):
        found.setdefault(line["case"], {})[line["subject"]] = float(line["rate"])
    return found


def ratio(of: Mapping[str, float], subject: str, other: str) -> str:
    return f"{of[subject] / of[other]:.3f}" if subject in of and other in of else NONE


def decode_table(folder: Path) -> Table:
    """Speeds divided by that of a kernel that only reads and by the libraries', whole and in pages of three sizes."""
    rates, rows = rates_in(folder), []
    for shape, grouped, rest in CASES:
        whole = rates.get(shape + grouped + rest, {})
        paged = [rates.get(f"{shape}{grouped}, pages of {size}{rest}", {}) for size in PAGES]
        cells: list[Cell] = [(shape + grouped.removeprefix(GROUPED) + rest).replace(" x ", " × ")]
        for pair in ((OURS, READ), (BATCH, READ), (OURS, CUDNN), (OURS, FA3)):
            cells.append(ratio(whole, *pair))
        for pair in ((OURS, READ), (BATCH, READ), (OURS, FA3)):
            each = [ratio(of, *pair) for of in paged]
            cells.append(NONE if set(each) == {NONE} else " / ".join(each))
        rows.append(cells)
    columns = ("sequences × keys", "of read", "parts", "/ cuDNN", "/ FA3", "pages of 16 / 64 / 256", "parts", "/ FA3")
    return Table(columns, rows)


def whole_table(folder: Path) -> Table:
    """Whole sequences by attention/wgmma, causal, d_head 128, of each GPU."""
    of_gpus, rows = [rates_in(folder, gpu) for gpu in GPUS], []
    for case in WHOLE:
        cells: list[Cell] = [case.replace(" x ", " × ")]
        for rates in of_gpus:
            of = rates.get(f"{case}, causal, d_head 128", {})
            cells += [f"{of[OURS]:.0f}" if OURS in of else NONE, ratio(of, OURS, FA3)]
        rows.append(cells)
    columns = [column for gpu in GPUS for column in (f"{gpu.upper()}, TFLOP/s", "/ FA3")]
    return Table(("causal, d_head 128", *columns), rows)


def pages_table(folder: Path) -> Table:
    """Queries of several lengths over pages by attention/wgmma, causal, d_head 128: / packed keys and (FA3)."""
    rates, rows, pages = rates_in(folder, "h100"), [], (16, 64, 128, 256)
    for case in MIXED:
        paged = [rates.get(f"{case}, pages of {page}, causal", {}) for page in pages]
        rows.append([case, *(f"{ratio(of, OURS, PACKED)} ({ratio(of, OURS, FA3)})" for of in paged)])
    return Table(("causal, d_head 128", *(f"pages of {page}" for page in pages)), rows)
