"""Broken versions are reported by name: each mutant of a landed version's PTX, by a class that fits its defect."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from mutations import RULES, Mutant, equivalent, mutants
from versions import DTYPES, Launch, Version, versions

VERSIONS = versions()
SEQ = 256


def classes(text: str) -> set[str]:
    """The classes in ptxrun's last line, "2 findings: race (32 times), ..."."""
    summary = re.search(r"^\d+ findings?: (.*)$", text, re.M)
    return set(re.findall(r"([a-z-]+) \(\d+ times\)", summary[1])) if summary else set()


def launch_of(version: Version, dtype: str) -> Launch:
    symbol = version.entry(dtype)
    _, rows, columns, _ = Launch(symbol).shape()
    return Launch(symbol, max(SEQ, 2 * rows, 4 * columns))


def all_mutants(version: Version, dtype: str) -> list[Mutant]:
    return list(mutants(version.entry_text(dtype), Launch(version.entry(dtype)).shape()))


def chosen(found: list[Mutant], most: int) -> list[Mutant]:
    """Every barrier, wait and commit; of the other kinds at most so many, evenly spread."""
    picked = []
    for kind in RULES:
        group = [mutant for mutant in found if mutant.kind == kind]
        if kind not in ("barrier", "warp barrier", "wait", "commit") and len(group) > most:
            group = [group[i * (len(group) - 1) // (most - 1)] for i in range(most)]
        picked += group
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


def survivors(version: Version, dtype: str, chosen_mutants: list[Mutant], folder: Path) -> list[str]:
    """The mutants that are neither reported as they should be nor equivalent. A copy left out of a loop leaves the data
    of the block before, which no check can tell from right data: there the result must be wrong."""
    path, launch, wrong = folder / "mutant.ptx", launch_of(version, dtype), []
    original = version.entry_text(dtype)
    path.write_text(original)
    dump = ["--dump", f"0.3={folder / 'out.bin'}"]
    assert launch.run(path, *dump).returncode == 0
    right = (folder / "out.bin").read_bytes()
    for mutant in chosen_mutants:
        path.write_text(mutant.text)
        done = launch.run(path, *dump)
        found = classes(done.stderr)
        same = (folder / "out.bin").read_bytes() == right
        excused = equivalent(mutant, original) or EQUIVALENT.get((version.name, mutant.kind, mutant.ordinal), "")
        if excused:
            reported = found or not same  # then it is not equivalent, and the reason is wrong
            wrong += [f"{mutant}: {sorted(found)}, called equivalent because {excused}"] if reported else []
        elif not found & mutant.expected and (mutant.kind != "copy" or same):
            wrong.append(f"{mutant}: {sorted(found) or 'no finding'}, result {'same' if same else 'wrong'}")
    return wrong


def too_many_excused(version: Version, found: list[Mutant], text: str) -> str:
    """Some barrier, wait, commit and initialisation of every version must be caught."""
    for kind in ("barrier", "wait", "commit", "initialisation"):
        group = [mutant for mutant in found if mutant.kind == kind]
        excused = [m for m in group if equivalent(m, text) or (version.name, kind, m.ordinal) in EQUIVALENT]
        if len(excused) == len(group):
            return f"all {len(group)} mutants of kind {kind} are called equivalent"
    return ""


@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.name)
def test_mutants_are_reported(version: Version, tmp_path: Path) -> None:
    found = all_mutants(version, "fp16")
    assert {mutant.kind for mutant in found} >= {"barrier", "wait", "commit", "copy", "shifted fragment", "overrun"}
    assert not too_many_excused(version, found, version.entry_text("fp16"))
    wrong = survivors(version, "fp16", chosen(found, 2), tmp_path)
    assert not wrong, "\n".join(wrong)


@pytest.mark.long
@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.name)
@pytest.mark.parametrize("dtype", DTYPES)
def test_all_mutants_are_reported(version: Version, dtype: str, tmp_path: Path) -> None:
    wrong = survivors(version, dtype, all_mutants(version, dtype), tmp_path)
    assert not wrong, "\n".join(wrong)
