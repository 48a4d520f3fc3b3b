"""The table of docs/emulator.md about other people's kernels, from two records.

corpus.csv is what `make corpus DIR=... ARGS="--csv -o FILE"` printed of a folder with one subfolder for each project;
the PTX comes from the pinned toolkit, Triton's from Triton. corpus_runs.csv says by hand which project that is, how
many kernels were launched with real inputs, how many gave the right result, and what the emulator found in them.
hopper_runs.csv has each kernel for sm_90a that ran, and its largest error beside NumPy: by hand too, but for the fp8
kernels of DeepGEMM and FlashMLA, whose rows `make suite-fp8` writes.
"""

from __future__ import annotations

import csv
import re
import textwrap
from pathlib import Path

RECORDS = Path(__file__).resolve().parent / "records"
HEADING = "| project | entries | accepted | refused | launched | right | with findings | the findings |"


def rows(name: str) -> dict[str, dict[str, str]]:
    """The rows of a record by their folder."""
    with (RECORDS / name).open(newline="", encoding="utf-8") as file:
        return {row["folder"]: row for row in csv.DictReader(file)}


def table() -> str:
    """Markdown, a row for each project and their sums."""
    tried, runs = rows("corpus.csv"), rows("corpus_runs.csv")
    if set(tried) - {"all"} != set(runs):
        raise ValueError(f"corpus.csv and corpus_runs.csv have other folders: {sorted(set(tried) ^ set(runs))}")
    lines = [HEADING, "|---|---:|---:|---|---:|---:|---:|---|"]
    for folder, run in runs.items():
        figures = [tried[folder]["entries"], tried[folder]["accepted"], tried[folder]["refused"]]
        ran = [run["launched"], run["right"], run["findings"], run["what"]]
        lines.append(f"| {' | '.join([run['project'], *figures, *ran])} |")
    sums = [str(sum(int(run[name]) for run in runs.values())) for name in ("launched", "right", "findings")]
    whole = tried["all"]
    lines.append(f"| {' | '.join(['all', whole['entries'], whole['accepted'], whole['refused'], *sums, ''])} |")
    return "\n".join(lines)


def summary() -> str:
    """The sums of the table, and its projects, in three sentences."""
    runs, whole = rows("corpus_runs.csv"), rows("corpus.csv")["all"]
    launched, right, findings = (
        sum(int(run[name]) for run in runs.values()) for name in ("launched", "right", "findings")
    )
    projects = [re.split(r"[ ,:]", run["project"])[0] for run in runs.values()]
    text = (
        f"{int(whole['entries']):,} entries of {', '.join(projects[:-1])} and {projects[-1]}: "
        f"{int(whole['accepted']):,} are accepted (refused: {whole['refused']}). "
        f"{launched} ran with real inputs: {right} gave the right result, and {findings} had findings."
    )
    return textwrap.fill(text, 120)


HOPPER = "| project | kernel | problem | what it uses | largest error | of | findings |"


def hopper_table() -> str:
    """Markdown, a row for each kernel for sm_90a."""
    lines = [HOPPER, "|---|---|---|---|---:|---:|---|"]
    with (RECORDS / "hopper_runs.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            project = f"{row['project']} {row['version']} ({row['licence']})"
            figures = [row[name] for name in ("kernel", "problem", "uses", "error", "largest", "findings")]
            lines.append(f"| {' | '.join([project, *figures])} |")
    return "\n".join(lines)
