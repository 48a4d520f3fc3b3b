"""Broken versions are reported by name: each mutant of a landed version's PTX, by a class that fits its defect."""

from __future__ import annotations

import csv
import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from mutations import RULES, SYNCHRONISATION, Mutant, equivalent, mutants
from versions import DTYPES, Launch, Version, versions

VERSIONS = versions()
SEQ = 256


def classes(text: str) -> frozenset[str]:
    """The classes in ptxrun's last line, "2 findings: race (32 times), ..."."""
    summary = re.search(r"^\d+ findings?: (.*)$", text, re.M)
    return frozenset(re.findall(r"([a-z-]+) \(\d+ times\)", summary[1])) if summary else frozenset()


def launch_of(version: Version, dtype: str) -> Launch:
    symbol = version.entry(dtype)
    config = Launch(symbol).config
    return Launch(symbol, max(SEQ, 2 * config.B_r, 2 * max(config.stages, 2) * config.B_c))


def all_mutants(version: Version, dtype: str) -> list[Mutant]:
    return list(mutants(version.entry_text(dtype), Launch(version.entry(dtype)).config))


def sample(found: list[Mutant]) -> list[Mutant]:
    """Every barrier, wait and commit, and one of each other kind."""
    picked = []
    for kind in RULES:
        group = [mutant for mutant in found if mutant.kind == kind]
        picked += group if kind in SYNCHRONISATION else group[len(group) // 2 :][:1]
    return picked


# Mutants that are the same program for a reason that is not seen in the lines around them: (version, kind, ordinal).
EQUIVALENT = {
    (
        version,
        "barrier",
        2,
    ): "the last barrier of the loop: the copy that follows overwrites K, which every warp has read "
    "before the barrier ahead of P.V, and V is overwritten only after the next barrier"
    for version in ("v01", "v02")
}


def executed_lines(ptx: Path, launch: Launch, folder: Path) -> set[int]:
    path = folder / "counters.csv"
    assert launch.run(ptx, "--counters-csv", path).returncode == 0
    with path.open(newline="") as file:
        return {int(row["ptx_line"]) for row in csv.DictReader(file) if row["executed"] != "0"}


def survivors(version: Version, dtype: str, mutants_to_try: list[Mutant], folder: Path) -> list[str]:
    """The mutants that are neither reported as they should be nor equivalent.

    A mutant of code that one head does not execute (a copy of the kernel for 16 heads) is tried with 16. A copy left
    out of a loop leaves the data of the block before, and a store may go where nobody else writes: no check can tell
    those from right programs, so there the result must be wrong. A wait at an mbarrier may be redundant, as the ring's
    other waits order the same accesses in most of its rounds: it may stay silent where the result is right.
    """
    path, out, original = folder / "mutant.ptx", folder / "out.bin", version.entry_text(dtype)
    one = launch_of(version, dtype)
    path.write_text(original)
    executed = executed_lines(path, one, folder)

    @cache
    def run(text: str, launch: Launch) -> tuple[frozenset[str], bytes]:
        path.write_text(text)
        done = launch.run(path, "--dump", f"0.3={out}")
        assert done.returncode in (0, 1, 3), done.stderr
        return classes(done.stderr), out.read_bytes()

    wrong = []
    for mutant in mutants_to_try:
        launch = one if mutant.line in executed else replace(one, heads=16)
        silent, right = run(original, launch)
        assert not silent
        found, result = run(mutant.text, launch)
        same = result == right
        excused = equivalent(mutant, original) or EQUIVALENT.get((version.name, mutant.kind, mutant.ordinal), "")
        reported = found & mutant.expected or (mutant.kind in ("copy", "shifted store") and not same)
        excused = excused or (mutant.kind == "mbarrier wait" and "redundant")
        if not reported and (found or not same or not excused):
            wrong.append(f"{mutant}: {sorted(found) or 'no finding'}, result {'same' if same else 'wrong'}")
    return wrong


# The versions and the kinds that are tried in every check: plain code, unrolled code with two copies, and a ring.
CHECKED = {"v01": tuple(RULES), "v16": SYNCHRONISATION, "v19": ("mbarrier wait", "mbarrier arrival")}


def checked(version: Version, folder: Path) -> list[Mutant]:
    """Of the code that one head executes."""
    path = folder / "original.ptx"
    path.write_text(version.entry_text("fp16"))
    executed = executed_lines(path, launch_of(version, "fp16"), folder)
    found = [mutant for mutant in all_mutants(version, "fp16") if mutant.line in executed]
    return [mutant for mutant in sample(found) if mutant.kind in CHECKED[version.name]]


@pytest.mark.parametrize("name", CHECKED)
def test_mutants_are_reported(name: str, tmp_path: Path) -> None:
    version = next(version for version in VERSIONS if version.name == name)
    wrong = survivors(version, "fp16", checked(version, tmp_path), tmp_path)
    assert not wrong, "\n".join(wrong)


def test_every_kind_of_mutant_is_tried(tmp_path: Path) -> None:
    tried = {
        mutant.kind
        for version in VERSIONS
        if version.name in CHECKED
        for mutant in checked(version, tmp_path)
        if not equivalent(mutant, version.entry_text("fp16"))
    }
    assert tried == set(RULES)


@pytest.mark.long
@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.name)
@pytest.mark.parametrize("dtype", DTYPES)
def test_all_mutants_are_reported(version: Version, dtype: str, tmp_path: Path) -> None:
    wrong = survivors(version, dtype, all_mutants(version, dtype), tmp_path)
    assert not wrong, "\n".join(wrong)
