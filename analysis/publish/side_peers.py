"""attention/backward and attention/fp8 beside libraries: tables of the pages of the two ladders.

print(backward_peers(root()).markdown())
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from analysis.files import read_text
from analysis.measure.records import Record, records_in
from analysis.measure.stats import median
from analysis.publish.overview import GPU
from analysis.publish.side_ladders import FP8, ROWS
from analysis.table import Cell, Table

LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
Speeds = Mapping[int, float]  # TFLOP/s by length

# A row of a record that a table shows, and the rows of ours, of which the first that is there is divided by it. The
# first measured the order of products that heads of 64 and 128 have now, in a build before it was committed.
OWN = ("its form before, with rotated starts", "attention/backward")
SHOWN = {OWN[0]: "attention/backward, an earlier build", "attention/backward, in_order": "in_order, an earlier build"}
IN_ORDER = ("attention/backward, in_order",)
BACKWARD = {"FlashAttention-3": OWN, "cuDNN 9.19": OWN, "FlashAttention-3, deterministic": IN_ORDER}
MASKS = ("", ", causal")
FA3 = "FlashAttention-3"
FA3_ORDERED = "fa3_ordered"
H100 = "h100"
FAST, ACCURATE = "attention/fp8", "attention/fp8, accurate sums"
CUDNN, BACK_TO_BACK = "cuDNN", "cuDNN, back to back"


def row(name: str, speeds: Speeds, ours: Speeds) -> list[Cell]:
    """Speeds, and in brackets ours divided by them."""
    cells: list[Cell] = [name]
    for seq in LENGTHS:
        ratio = f" ({ours[seq] / speeds[seq]:.2f})" if seq in ours and seq in speeds else ""
        cells.append(f"{speeds[seq]:.0f}{ratio}" if seq in speeds else "")
    return cells


def backward_peers(folder: Path) -> Table:
    """Of the two runs of FlashAttention-3 the faster counts at each length."""
    record = json.loads(read_text(folder / f"logs/backward/compared.{GPU}.json"))["TFLOP/s"]
    rows: list[list[Cell]] = []
    for case, subjects in record.items():
        d_head, mask = case.removeprefix("d").split()
        for names in (OWN, IN_ORDER):
            ours = next((name for name in names if name in subjects), "")
            peers = [name for name, divided in BACKWARD.items() if divided == names]
            for name in (ours, *peers):
                if name in subjects:
                    beside = {} if name == ours else _best(subjects, ours)
                    cells = row(SHOWN.get(name, name), _best(subjects, name), beside)
                    rows.append([int(d_head), "causal" if mask == "causal" else "", *cells])
    return Table(("d_head", "mask", "TFLOP/s", *map(str, LENGTHS)), rows)


def in_order_table(folder: Path) -> Table:
    """On an H100 the newest build's gradients in order, beside those in any order, FlashAttention-3's and cuDNN's."""
    records = [record for record in records_in(folder / f"logs/backward/{H100}.jsonl") if record.passed]
    build = next(each.raw["revision"] for each in reversed(records) if "in_order" in each.config)
    own = [record for record in records if record.raw.get("revision") == build]
    subjects = {
        "attention/backward, in_order": [record for record in own if "in_order" in record.config],
        "in any order": [
            record for record in own if "backward_wgmma" in record.config and "in_order" not in record.config
        ],
        "FlashAttention-3, deterministic": [record for record in records if record.subject == FA3_ORDERED],
        "cuDNN 9.19, in any order": [record for record in records if record.subject == "cudnn"],
    }
    rows: list[list[Cell]] = []
    for d_head in sorted({record.problem.d_head for record in own}):
        for causal in (False, True):
            ours: Speeds = {}
            for name, of in subjects.items():
                found = [each for each in of if (each.problem.d_head, each.problem.causal) == (d_head, causal)]
                speeds = {each.problem.seq: each.problem.flop() / median(each.samples_ns) / 1e3 for each in found}
                if speeds:
                    rows.append([d_head, "causal" if causal else "", *row(name, speeds, ours)])
                ours = ours or speeds
    return Table(("d_head", "mask", "TFLOP/s", *map(str, LENGTHS)), rows)


def _best(subjects: Mapping[str, Mapping[str, float]], name: str) -> Speeds:
    """Of all runs of a row, without a name of none."""
    runs = [_by_length(subjects[each]) for each in (name, f"{name}, again") if each in subjects]
    return {seq: max(run[seq] for run in runs) for seq in (runs[0] if runs else {})}


def fp8_peers(folder: Path) -> Table:
    """A run beside FlashAttention-3, and one beside cuDNN."""
    records = records_in(folder / f"logs/fp8/{GPU}.jsonl")
    newest = max(record.run_id for record in records if record.subject == "fa3")
    run = [record for record in records if record.run_id == newest]
    beside_fa3 = {}
    for mask in MASKS:
        beside_fa3[FAST + mask] = _measured(run, FAST, bool(mask), accurate=False)
        beside_fa3[FA3 + mask] = _measured(run, "fa3", bool(mask), accurate=False)
        beside_fa3[ACCURATE + mask] = _measured(run, FAST, bool(mask), accurate=True)
    other = json.loads(read_text(folder / f"logs/fp8/cudnn.{GPU}.json"))
    beside_cudnn = {name: _by_length(speeds) for name, speeds in other["TFLOP/s"].items()}
    back_to_back = other["TFLOP/s of cuDNN, back to back for 60 ms"]
    beside_cudnn |= {BACK_TO_BACK + mask: _by_length(back_to_back[CUDNN + mask]) for mask in MASKS}
    rows: list[list[Cell]] = []
    for title, speeds, peers in (("1", beside_fa3, (FA3,)), ("2", beside_cudnn, (CUDNN, BACK_TO_BACK))):
        for mask in MASKS:
            ours = speeds[FAST + mask]
            rows.append([title, *row(FAST + mask, ours, {})])
            rows += [[title, *row(peer + mask, speeds[peer + mask], ours)] for peer in peers]
            if speeds.get(ACCURATE + mask):
                rows.append([title, *row(ACCURATE + mask, speeds[ACCURATE + mask], ours)])
    return Table(("run", "TFLOP/s", *map(str, LENGTHS)), rows)


def _by_length(speeds: Mapping[str, float]) -> Speeds:
    return {int(seq): speed for seq, speed in speeds.items()}


def _measured(run: Sequence[Record], subject: str, causal: bool, accurate: bool) -> Speeds:
    """Of the config with accurate sums, or of that without and of peers."""
    speeds = {}
    for seq in LENGTHS:
        problem = replace(FP8, batch=ROWS // seq, seq=seq, causal=causal)
        found = [
            ns
            for record in run
            if record.subject == subject and record.problem == problem and record.passed
            if ("rounded_l" in record.config) == accurate
            for ns in record.samples_ns
        ]
        if found:
            speeds[seq] = problem.flop() / median(found) / 1e3
    return speeds
