"""Races in global memory: each small PTX that has one is reported, and its legal twin is silent, in several orders."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.defects import SHARED, Defect, check_reported, check_silent, run
from support.emulation import entry, ptxrun
from support.global_defects import BUFFERS, FOUR, GLOBAL, START


@pytest.mark.parametrize("defect", GLOBAL, ids=str)
def test_defect_is_reported(defect: Defect, tmp_path: Path) -> None:
    check_reported(defect, tmp_path)


@pytest.mark.parametrize("seed", [0, 1, 5])
@pytest.mark.parametrize("defect", GLOBAL, ids=str)
def test_legal_twin_is_silent(defect: Defect, seed: int, tmp_path: Path) -> None:
    check_silent(replace(defect, options=[*defect.options, "--schedule", str(seed)]), tmp_path)


def test_reports_do_not_depend_on_threads(tmp_path: Path) -> None:
    """Each CTA stores to the words of its neighbour too, and what is said is the same."""
    neighbour = START + "st.global.u32 [%p], %c;\nst.global.u32 [%p+4], %c;\nld.global.u32 %x, [%p+132];"
    racy = Defect("race", "", neighbour, neighbour, **BUFFERS | {"options": ["--grid", "15"]})
    texts = {run(replace(racy, options=[*racy.options, "--threads", str(n)]), racy.bad, tmp_path) for n in (1, 2, 5, 5)}
    assert len(texts) == 1 and next(iter(texts))[0] == 1


def test_the_same_value_is_no_race(tmp_path: Path) -> None:
    """All CTAs say by one store that something was found."""
    found = START + "st.global.u32 [%b], 1;"
    check_silent(Defect("race", "", found, found, **FOUR), tmp_path)
    other = START + "st.global.u32 [%b], %c;"
    check_reported(Defect("race", "", other, other, **FOUR), tmp_path)


def test_spent_memory_is_said(tmp_path: Path) -> None:
    path = tmp_path / "store.ptx"
    path.write_text(
        entry(
            START + "st.global.u32 [%p], %c;",
            BUFFERS["params"],
            directives=SHARED,
        )
    )
    options = ["--grid", "4", "--block", "64", "--arg", "buf:u32:1024", "--arg", "buf:u32:1024"]
    assert ptxrun(path, *options).stderr == ""
    done = ptxrun(path, *options, "--race-memory", "1000")
    assert done.returncode == 0 and "note: races in global memory were not all looked for" in done.stderr, done.stderr
    assert "--race-memory" in done.stderr
