"""The kernels by measured speed for each case: library/ranking.h, from which the library chooses one.

text = ranking_text(root(), kernels)      # name to Version: the ladder's and those of kernels/attention/

A case is a compute capability, a head size, and with or without the causal mask. A kernel's score is the geometric
mean, over the problems that another kernel was measured at too, of its speed divided by the fastest one's there. Where
a case has one kernel alone it is the first. What was measured with a kernel's machine code counts for it, whatever the
name: v52's records are those of attention/wgmma as long as their code hashes are equal.

The library embeds the kernels of kernels/attention/, each version that is faster than they are in some case, and one
for the emulator, which runs CTAs that draw tickets on one core: the first one of any length that draws none.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import geometric_mean, median

from analysis.ladder.config import Dtype
from analysis.ladder.headers import ATTENTION, Version
from analysis.machine_code.regs import read_registers
from analysis.measure.records import Problem, Record
from analysis.publish.overview import records_in

FOLDERS = ("logs/bench", "logs/general")
FILE = "library/ranking.h"
Case = tuple[str, int, bool]  # compute capability "9.0", head size, causal
TEXT = """\
/* ranking.h - the kernels by measured speed, for each compute capability, head size and mask.
 *
 * Made by `python3 -m analysis ladder --write` from logs/general/, logs/bench/ and the code hashes in regs/; edits here
 * are lost. make embeds these, unless VER names others:
 * EMBEDDED
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
    """Those of kernels, in a configuration of their header, whose result is right; again for each of the same code."""
    forms = _forms(kernels)
    found: list[Record] = []
    for record in records:
        if (record.subject, record.config) in forms and record.samples_ns and record.passed is not False:
            code = record.raw.get("code_hash")
            same = (name for name, hashes in held.items() if code in hashes and name != record.subject)
            found += [record, *(replace(record, subject=name) for name in same)]
    return found


def scores(records: Iterable[Record]) -> dict[Case, dict[str, float]]:
    """By case and version. Rounds and runs of a GPU count alike; GPUs of one compute capability stand side by side."""
    times: dict[tuple[str, str, Problem], dict[str, list[float]]] = {}  # by GPU and problem, then by version
    for record in records:
        place = (record.device, str(record.raw["device"]["cc"]), record.problem)
        times.setdefault(place, {}).setdefault(record.subject, []).append(median(record.samples_ns))
    ratios: dict[Case, dict[str, list[float]]] = {}
    alone: dict[Case, dict[str, float]] = {}
    for (_, capability, problem), by_version in times.items():
        of_version = {name: median(found) for name, found in by_version.items()}
        fastest = min(of_version.values())
        case = (capability, problem.d_head, problem.causal)
        for name, time in of_version.items():
            if len(of_version) > 1:
                ratios.setdefault(case, {}).setdefault(name, []).append(fastest / time)
            else:
                alone.setdefault(case, {})[name] = 1.0
    return alone | {case: {name: geometric_mean(found) for name, found in of.items()} for case, of in ratios.items()}


def ranked(scored: Mapping[Case, Mapping[str, float]]) -> dict[Case, list[str]]:
    """The fastest first. Of two that are equally fast one of kernels/attention/ comes first, else the newer one."""

    def key(case: Case, name: str) -> tuple[float, bool, str]:
        return scored[case][name], _is_living(name), name

    return {case: sorted(scored[case], key=lambda name: key(case, name), reverse=True) for case in sorted(scored)}


def _is_living(name: str) -> bool:
    return name.startswith(f"{ATTENTION}/")


def embedded(orders: Iterable[list[str]], kernels: Mapping[str, Version], held: Held) -> list[str]:
    """What the library embeds, as said above. A version with the machine code of a living kernel adds nothing."""
    living = [name for name in kernels if _is_living(name)]
    copied = set().union(*(held.get(name, set()) for name in living))
    general = {name: kernel.header.config for name, kernel in kernels.items() if kernel.header.config.any_length}
    chosen = {name for name in general if _is_living(name) or not held.get(name, set()) & copied}
    fastest = [next((name for name in order if name in chosen), "") for order in orders]
    on_all_cores = [name for name in general if not general[name].tickets and not kernels[name].one_arch]
    return [*living, *sorted({*fastest, *on_all_cores[:1]} - {*living, ""})]


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
    embeds = f"embedded: {' '.join(embedded(orders.values(), kernels, held))}"
    return TEXT.replace("EMBEDDED", embeds).replace("ROWS", "".join(f"{line}\n" for line in lines))


def _literal(order: list[str]) -> list[str]:
    """The names as a string literal, in lines of up to 80 characters."""
    parts = textwrap.wrap(" ".join(order), 80)
    return [f'     "{part} "' for part in parts[:-1]] + [f'     "{parts[-1]}"}},']
