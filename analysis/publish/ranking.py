"""The kernels of kernels/attention/ by measured speed for each case: library/ranking.h, from which the library chooses.

text = ranking_text(root(), load_attention(root()))

A case is a compute capability, a head size, and with or without the causal mask. Times are compared within one run on
one GPU alone, as the clock differs from run to run. Each run and problem has a level, each kernel a speed; the two are
fitted to the logarithms of all times (least squares), and libraries that were measured next to the kernels tie runs
together. A kernel's score is its speed divided by the fastest one's, and 0 where no chain of runs leads to the others.
The records of a removed version count for a kernel with the same code hash: v52's are those of attention/wgmma. Only
forward passes of one type and of whole sequences count, because the measurements of caches or tensors in e4m3, of
sequence lengths and of gradients compare other problems.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np

from analysis.ladder.config import Dtype
from analysis.ladder.headers import Version
from analysis.ladder.removed import replacement_of
from analysis.machine_code.regs import read_registers
from analysis.measure.records import Problem, Record, records_in

FOLDERS = ("logs/bench", "logs/general")
FILE = "library/ranking.h"
Case = tuple[str, int, bool]  # compute capability "9.0", head size, causal
TEXT = """\
/* ranking.h - the kernels by measured speed, for each compute capability, head size and mask.
 *
 * Made by `python3 -m analysis ladder --write` from logs/general/, logs/bench/ and the code hashes in regs/; edits here
 * are lost.
 */
#ifndef FL_LIBRARY_RANKING_H
#define FL_LIBRARY_RANKING_H

#include <stdbool.h>

struct ranking {
    int major, minor, d_head;
    bool causal;
    const char *versions; /* the fastest first */
};

/* clang-format off */
static const struct ranking RANKINGS[] = {
ROWS};
/* clang-format on */

#endif
"""


Held = Mapping[str, set[str]]  # name to code hashes


def held_code(folder: Path, kernels: Mapping[str, Version]) -> Held:
    """The code hashes that regs/ has of each kernel, in the configurations of its header."""
    forms = _forms(kernels)
    return {
        name: {str(row.code_hash) for row in rows if (name, row.config) in forms}
        for name, rows in read_registers(folder).items()
        if name in kernels
    }


def _forms(kernels: Mapping[str, Version]) -> set[tuple[str, str]]:
    return {
        (name, str(config.replace(dtype=dtype)))
        for name, kernel in kernels.items()
        for config in (kernel.header.config, *kernel.header.others)
        for dtype in Dtype
    }


def measured(records: Iterable[Record], kernels: Mapping[str, Version], held: Held) -> list[Record]:
    """Right results of libraries, of kernels in a config of their header, and of removed versions with their code."""
    forms = _forms(kernels)
    return [
        record
        for old in records
        for record in with_present_names([old], held)
        if record.samples_ns and record.passed is not False and _is_plain(record.problem)
        if record.is_peer or record is not old or (record.subject, record.config) in forms
    ]


def with_present_names(records: Iterable[Record], held: Held) -> Iterator[Record]:
    """The records; those of a removed version under the name of the kernel with its machine code, or not at all."""
    for record in records:
        if record.is_peer or not replacement_of(record.subject):
            yield record
            continue
        code = record.raw.get("code_hash")
        yield from (replace(record, subject=name) for name, hashes in held.items() if code in hashes)


def _is_plain(problem: Problem) -> bool:
    return not (problem.served or problem.backward or problem.output_dtype or problem.cache_dtype)


Times = Mapping[str, float]  # of one run, problem and GPU: subject to nanoseconds


def scores(records: Iterable[Record]) -> dict[Case, dict[str, float]]:
    """By case and kernel. The rounds of a run count together."""
    samples: dict[Case, dict[Hashable, dict[str, list[float]]]] = {}
    kernels: dict[Case, set[str]] = {}
    for number, record in enumerate(records):
        problem, run = record.problem, record.run_id or number
        case = (str(record.raw["device"]["cc"]), problem.d_head, problem.causal)
        of_run = samples.setdefault(case, {}).setdefault((record.device, run, problem), {})
        of_run.setdefault(record.subject, []).append(median(record.samples_ns))
        if not record.is_peer:
            kernels.setdefault(case, set()).add(record.subject)
    return {
        case: _scores_of(
            kernels[case], [{name: median(found) for name, found in one.items()} for one in samples[case].values()]
        )
        for case in kernels
    }


def _scores_of(kernels: set[str], runs: Sequence[Times]) -> dict[str, float]:
    """To six digits: two kernels with the same times have the same score, however the fit is rounded."""
    compared = _largest_group(kernels, runs)
    mine = [run for run in runs if run.keys() <= compared]
    subjects = sorted(compared)
    rows, logs = [], []
    for number, run in enumerate(mine):
        for name, time in run.items():
            row = np.zeros(len(mine) + len(subjects))
            row[number] = row[len(mine) + subjects.index(name)] = 1
            rows.append(row)
            logs.append(math.log(time))
    fitted = np.linalg.lstsq(np.array(rows), np.array(logs), rcond=None)[0][len(mine) :]
    slowness = dict(zip(subjects, fitted.tolist(), strict=True))
    least = min(slowness[name] for name in kernels & compared)
    return {name: round(math.exp(least - slowness[name]), 6) if name in compared else 0.0 for name in kernels}


def _largest_group(kernels: set[str], runs: Sequence[Times]) -> set[str]:
    """The group of subjects connected by a chain of runs that has the most kernels."""
    groups: list[set[str]] = []
    for run in runs:
        touched = [group for group in groups if group & run.keys()]
        groups = [group for group in groups if group not in touched] + [set(run).union(*touched)]
    return max(groups, key=lambda group: (len(group & kernels), sorted(group)))


def ranked(scored: Mapping[Case, Mapping[str, float]]) -> dict[Case, list[str]]:
    """The fastest first, equally fast ones by name."""
    return {case: sorted(found, key=lambda name: (-found[name], name)) for case, found in sorted(scored.items())}


def ranking_text(folder: Path, kernels: Mapping[str, Version]) -> str:
    """The whole header file."""
    files = sorted(path for name in FOLDERS for path in (folder / name).glob("*.jsonl"))
    held = held_code(folder, kernels)
    records = [record for path in files for record in measured(records_in(path), kernels, held)]
    orders = ranked(scores(records))
    lines = []
    for (capability, d_head, causal), order in orders.items():
        major, minor = capability.split(".")
        lines += [f"    {{{major}, {minor}, {d_head}, {'true' if causal else 'false'},", *_literal(order)]
    return TEXT.replace("ROWS", "".join(f"{line}\n" for line in lines))


def _literal(order: list[str]) -> list[str]:
    """The names as a string literal, in lines of up to 80 characters."""
    parts = textwrap.wrap(" ".join(order), 80)
    return [f'     "{part} "' for part in parts[:-1]] + [f'     "{parts[-1]}"}},']
