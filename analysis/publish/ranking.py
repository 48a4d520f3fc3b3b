"""The versions by measured speed for each case: library/ranking.h, from which the library chooses a version.

text = ranking_text(root(), versions)      # name to Version

A case is a compute capability, a head size, and with or without the causal mask. A version's score is the geometric
mean, over the problems that another version was measured at too, of its speed divided by the fastest one's there. Where
a case has one version alone it is the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import geometric_mean, median

from analysis.ladder.config import Dtype
from analysis.ladder.headers import Version
from analysis.measure.records import Problem, Record
from analysis.publish.overview import records_in

FOLDERS = ("logs/bench", "logs/general")
FILE = "library/ranking.h"
Case = tuple[str, int, bool]  # compute capability "9.0", head size, causal
TEXT = """\
/* ranking.h - the versions by measured speed, for each compute capability, head size and mask.
 *
 * Made by `python3 -m analysis ladder --write` from logs/general/ and logs/bench/; edits here are lost.
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


def measured(records: Iterable[Record], versions: Mapping[str, Version]) -> list[Record]:
    """Those of versions, in a configuration of their header, whose result is right."""
    forms = {
        (name, str(config.replace(dtype=dtype)))
        for name, version in versions.items()
        for config in (version.header.config, *version.header.others)
        for dtype in Dtype
    }
    return [
        record
        for record in records
        if (record.subject, record.config) in forms and record.samples_ns and record.passed is not False
    ]


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


def ranking_text(folder: Path, versions: Mapping[str, Version]) -> str:
    """The whole header file. Of two versions that are equally fast the newer one comes first."""
    files = sorted(path for name in FOLDERS for path in (folder / name).glob("*.jsonl"))
    records = [record for path in files for record in measured(records_in(path), versions)]
    lines = []
    for (capability, d_head, causal), of_version in sorted(scores(records).items()):
        major, minor = capability.split(".")
        order = sorted(of_version, key=lambda name: (of_version[name], name), reverse=True)
        lines += [f"    {{{major}, {minor}, {d_head}, {'true' if causal else 'false'},", *_literal(order)]
    return TEXT.replace("ROWS", "".join(f"{line}\n" for line in lines))


def _literal(order: list[str]) -> list[str]:
    """The names as a string literal, at most 20 a line."""
    parts = [" ".join(order[at : at + 20]) for at in range(0, len(order), 20)]
    return [f'     "{part} "' for part in parts[:-1]] + [f'     "{parts[-1]}"}},']
