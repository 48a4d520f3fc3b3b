"""The ladders of the backward pass and of fp8: the tables of kernels/backward/README.md and kernels/fp8/README.md.

print(fp8_table(root()).markdown(), backward_peers(root()).markdown())
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from analysis.files import read_text
from analysis.ladder.headers import Version, load_backward, load_fp8
from analysis.machine_code.regs import Row, read_registers
from analysis.measure.records import Problem, Record, records_in
from analysis.measure.stats import median
from analysis.publish.libraries import NOT_MEASURED
from analysis.publish.overview import GPU, LENGTHS
from analysis.table import Cell, Table

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
    """The table of the e4m3 versions, with O in fp16."""
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


# ---- next to libraries -----------------------------------------------------------------------------------------------

Speeds = Mapping[int, float]  # TFLOP/s by length
FA2, FA3 = "FlashAttention-2", "FlashAttention-3"
FAST, ACCURATE = "attention/fp8", "attention/fp8, accurate sums"
BACKWARD = "attention/backward"
CUDNN, BACK_TO_BACK, CUDNN_919 = "cuDNN", "cuDNN, back to back", "cuDNN 9.19"
MASKS = ("", ", causal")


def row(name: str, speeds: Speeds, ours: Speeds) -> list[Cell]:
    """Speeds, and in brackets ours divided by them."""
    cells: list[Cell] = [name]
    for seq in LENGTHS:
        ratio = f" ({ours[seq] / speeds[seq]:.2f})" if seq in ours and seq in speeds else ""
        cells.append(f"{speeds[seq]:.0f}{ratio}" if seq in speeds else "")
    return cells


def backward_peers(folder: Path) -> Table:
    """attention/backward and the libraries that one run measured with it."""
    record = json.loads(read_text(folder / f"logs/backward/compared.{GPU}.json"))["TFLOP/s"]
    rows: list[list[Cell]] = []
    for case, subjects in record.items():
        d_head, mask = case.removeprefix("d").split()
        speeds = {name: _by_length(found) for name, found in subjects.items()}
        ours = speeds.get(BACKWARD, {})
        for name in (BACKWARD, FA3, CUDNN_919):
            if name in speeds:
                ratios = {} if name == BACKWARD else ours
                rows.append([int(d_head), "causal" if mask == "causal" else "", *row(name, speeds[name], ratios)])
    return Table(("d_head", "mask", "TFLOP/s", *map(str, LENGTHS)), rows)


def backward_forms(folder: Path) -> Table:
    """FlashAttention-2 and the forms of attention/backward_mma_sync, in brackets divided by it."""
    record = json.loads(read_text(folder / f"logs/backward/mma_sync.{GPU}.json"))["TFLOP/s"]
    rows: list[list[Cell]] = []
    for case, subjects in record.items():
        d_head, mask = case.removeprefix("d").split()
        speeds = {name: _by_length(found) for name, found in subjects.items()}
        for name, own in speeds.items():
            ratios = {seq: "" if name == FA2 else f" ({own[seq] / speeds[FA2][seq]:.2f})" for seq in own}
            cells = [f"{own[seq]:.0f}{ratios[seq]}" if seq in own else "" for seq in LENGTHS]
            rows.append([int(d_head), "causal" if mask == "causal" else "", name, *cells])
    return Table(("d_head", "mask", "TFLOP/s", *map(str, LENGTHS)), rows)


def fp8_peers(folder: Path) -> Table:
    """A run with FlashAttention-3, and one with cuDNN."""
    records = records_in(folder / f"logs/fp8/{GPU}.jsonl")
    newest = max(record.run_id for record in records if record.subject == "fa3")
    run = [record for record in records if record.run_id == newest]
    other = json.loads(read_text(folder / f"logs/fp8/cudnn.{GPU}.json"))
    with_fa3: dict[str, Speeds] = {}
    with_cudnn = {name: _by_length(speeds) for name, speeds in other["TFLOP/s"].items()}
    for mask in MASKS:
        with_fa3[FAST + mask] = _measured(run, FAST, bool(mask), accurate=False)
        with_fa3[FA3 + mask] = _measured(run, "fa3", bool(mask), accurate=False)
        with_fa3[ACCURATE + mask] = _measured(run, FAST, bool(mask), accurate=True)
        with_cudnn[BACK_TO_BACK + mask] = _by_length(other["TFLOP/s of cuDNN, back to back for 60 ms"][CUDNN + mask])
    rows: list[list[Cell]] = []
    for title, speeds, peers in (("1", with_fa3, (FA3,)), ("2", with_cudnn, (CUDNN, BACK_TO_BACK))):
        for mask in MASKS:
            ours = speeds[FAST + mask]
            rows.append([title, *row(FAST + mask, ours, {})])
            names = [name + mask for name in (*peers, ACCURATE) if speeds.get(name + mask)]
            rows += [[title, *row(name, speeds[name], ours)] for name in names]
    return Table(("run", "TFLOP/s", *map(str, LENGTHS)), rows)


def _by_length(speeds: Mapping[str, float]) -> Speeds:
    return {int(seq): speed for seq, speed in speeds.items()}


def _measured(run: Sequence[Record], subject: str, causal: bool, accurate: bool) -> Speeds:
    """The rows of the config with accurate sums, or of that without and of baselines."""
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
