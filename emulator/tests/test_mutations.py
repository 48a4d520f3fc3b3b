"""Broken versions are reported by name: each mutant of a landed version's PTX, by a class that fits its defect."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from support.mutations import RULES, SYNCHRONISATION, Mutant, equivalent
from support.versions import Version, kernels
from survivors import Trials, all_wrong

from analysis.tests.support.kinds import some_in_check

VERSIONS = [version for version in kernels() if not version.for_sm_90a]  # the others: test_hopper_mutations.py
# The versions and the kinds that are tried in every check: plain code, unrolled code with two copies, and a ring.
CHECKED = {"v01": tuple(RULES), "v16": SYNCHRONISATION, "v19": ("warp barrier", "mbarrier wait", "mbarrier arrival")}


@cache
def trials(name: str, folder: Path) -> Trials:
    folder = folder / name
    folder.mkdir(exist_ok=True)
    return Trials(next(version for version in VERSIONS if version.name == name), "fp16", folder)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all tests, so that what the originals do is found out once."""
    return tmp_path_factory.mktemp("mutants")


def sample(found: list[Mutant]) -> list[Mutant]:
    """Every barrier, wait and commit, and one of each other kind."""
    picked = []
    for kind in RULES:
        group = [mutant for mutant in found if mutant.kind == kind]
        picked += group if kind in SYNCHRONISATION else group[len(group) // 2 :][:1]
    return picked


def checked(trials: Trials) -> list[Mutant]:
    """Of the code that one head executes."""
    executed = trials.original(trials.problems[0]).lines
    found = [mutant for mutant in trials.mutants() if mutant.line in executed]
    return [mutant for mutant in sample(found) if mutant.kind in CHECKED[trials.version.name]]


@pytest.mark.parametrize("name", some_in_check(CHECKED, ["v01"]))
def test_mutants_are_reported(name: str, folder: Path) -> None:
    of = trials(name, folder)
    wrong = [text for mutant in checked(of) if (text := of.survives(mutant))]
    assert not wrong, "\n".join(wrong)


def test_every_kind_of_mutant_is_tried(folder: Path) -> None:
    tried = set()
    for name in CHECKED:
        of = trials(name, folder)
        tried |= {mutant.kind for mutant in checked(of) if not equivalent(mutant, of.text)}
    assert tried == set(RULES)


@pytest.mark.first
@pytest.mark.long
@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.name)
def test_all_mutants_are_reported(version: Version, tmp_path: Path) -> None:
    """Of a version, whose code stays, a third of those that change data."""
    wrong = all_wrong(Trials(version, "fp16", tmp_path, share=3 if version.name.startswith("v") else 1))
    assert not wrong, "\n".join(wrong)
