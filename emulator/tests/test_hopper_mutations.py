"""Broken programs for sm_90a are reported by name: each mutant of a small kernel, by a class that fits its defect."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hopper_trials import EQUIVALENT, LadderTrials, Trials, VersionTrials, hopper_versions, recorded, try_version
from support.hopper import KERNELS
from support.hopper_mutations import MOVES, RULES, HopperMutant
from support.ladders import ladders
from support.versions import Version, of_fp8

STALE = "stale: run .venv/bin/python emulator/tests/hopper_trials.py"


def sample(hopper_ptx: Path) -> Iterator[tuple[Trials, HopperMutant]]:
    """One mutant of each kind, from one kernel after the other, as far as they have such a line."""
    names = list(KERNELS)
    for turn, kind in enumerate([*RULES, *MOVES]):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            found = [mutant for mutant in Trials(name, hopper_ptx).mutants() if mutant.kind == kind]
            if found:
                yield Trials(name, hopper_ptx), found[turn % len(found)]
                break


def test_one_mutant_of_each_kind_is_reported(hopper_ptx: Path) -> None:
    tried = list(sample(hopper_ptx))
    wrong = [text for trials, mutant in tried if (text := trials.wrong(mutant))]
    assert not wrong, "\n".join(wrong)
    assert {mutant.kind for _, mutant in tried} == {*RULES, *MOVES}, "a rule that fits no kernel"


def test_the_record_counts_these_mutants(hopper_ptx: Path) -> None:
    rows = [row for name in KERNELS for row in Trials(name, hopper_ptx).rows()]
    assert [row for row in recorded() if row["kernel"] in KERNELS] == rows, STALE


def test_listed_mutants_exist(hopper_ptx: Path) -> None:
    for name, kind, ordinal in EQUIVALENT:
        assert any((m.kind, m.ordinal) == (kind, ordinal) for m in Trials(name, hopper_ptx).mutants())


def test_an_order_that_a_finding_names_is_tried(tmp_path: Path) -> None:
    """A warp that has not seen a block which its warpgroup passes on sleeps for ever, if it comes late."""
    trials = VersionTrials(of_fp8()[0], "fp16", tmp_path)
    trials.problems = trials.problems[4:5]
    lines = "skip_blocks(at.K, 0, skipped); < share.begin()"
    (mutant,) = (each for each in trials.mutants() if each.kind == "barrier" and lines in trials.place(each)[1])
    assert trials.survives(mutant) == ""


@pytest.mark.parametrize("name", ["f01", "b05", "attention/backward"])
def test_a_missing_arrival_is_reported(name: str, tmp_path: Path) -> None:
    trials = LadderTrials(next(version for version in ladders() if version.name == name), "fp16", tmp_path)
    mutant = next(each for each in trials.mutants() if each.kind == "arrival")
    assert trials.survives(mutant) == ""


@pytest.mark.long
@pytest.mark.parametrize("name", KERNELS)
def test_all_mutants_are_reported(name: str, hopper_ptx: Path) -> None:
    trials = Trials(name, hopper_ptx)
    wrong = [text for mutant in trials.mutants() if (text := trials.wrong(mutant))]
    assert not wrong, "\n".join(wrong)


@pytest.mark.first
@pytest.mark.long
@pytest.mark.parametrize("version", hopper_versions(), ids=lambda version: version.name)
def test_all_mutants_of_a_version_are_reported(version: Version, tmp_path: Path) -> None:
    wrong, rows = try_version(version, tmp_path)
    assert not wrong, "\n".join(wrong)
    assert [row for row in recorded() if row["kernel"] == version.name] == rows, f"{STALE} '{version.name}'"
