"""The versions with a ring of stages: what is wrong with an mbarrier is reported, under several schedules.

Changes are made to one place of the PTX at a time, in the code that the launches execute. Waits and arrivals that are
left out are among the mutants of test_mutations.py. Of kernels for sm_90a all this is in test_hopper_mutations.py.
"""

from __future__ import annotations

import csv
import re
from functools import cache
from pathlib import Path

import pytest
from support.versions import Launch, Version, drawn, first_in_check, versions

VERSIONS = [version for version in versions() if version.config.stages]
BROKEN = [version for version in VERSIONS if not version.for_sm_90a]
SEQ = 768  # twelve blocks: a ring of four stages is gone round three times
SCHEDULES = (0, 1, 2)

ARRIVE_OF_COPIES = r"\tcp\.async\.mbarrier\.arrive\.noinc\.shared\.b64 \[%\w+\];"
ARRIVE_OF_WARP = r"\t\{ \.reg \.b64 state; mbarrier\.arrive\.shared\.b64 .*"
WAIT = r"\t\{ \.reg \.pred p; mbarrier\.test_wait\.parity\.shared\.b64 p, (\[%\w+\]), (%\w+); selp\.u32 (%\w+), .* \}"
INIT = r"\tmbarrier\.init\.shared\.b64 (\[%\w+\]), (%\w+);"
# name -> lines of that form, what stands there instead
CHANGES = {
    "the copies arrive twice": (ARRIVE_OF_COPIES, r"\g<0>\n\g<0>"),
    "a warp arrives twice": (ARRIVE_OF_WARP, r"\g<0>\n\g<0>"),
    "the other parity": (
        WAIT,
        r"\t{ .reg .pred p; .reg .b32 t; xor.b32 t, \2, 1; mbarrier.test_wait.parity.shared.b64 p, \1, t; "
        r"selp.u32 \3, 1, 0, p; }",
    ),
    "one arrival too few": (INIT, r"\t{ .reg .b32 t; sub.s32 t, \2, 1; mbarrier.init.shared.b64 \1, t; }"),
    "one arrival too many": (INIT, r"\t{ .reg .b32 t; add.s32 t, \2, 1; mbarrier.init.shared.b64 \1, t; }"),
}


def launches(version: Version) -> list[Launch]:
    """One head, and what makes a kernel that draws Q blocks use all its places and cut slices."""
    symbol = version.entry("fp16")
    return [Launch(symbol, SEQ), *drawn(symbol)[:1]]


@cache
def executed(version: Version, launch: Launch, folder: Path) -> frozenset[int]:
    """PTX lines that a launch executes."""
    path = folder / "counters.csv"
    assert launch.run(version.ptx, "--counters-csv", path).returncode == 0
    with path.open(newline="") as file:
        return frozenset(int(row["ptx_line"]) for row in csv.DictReader(file) if row["executed"] != "0")


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("version", first_in_check(BROKEN))
def test_a_broken_mbarrier_is_reported(version: Version, change: str, tmp_path: Path) -> None:
    """A place counts as reported if one launch with one schedule shows findings, a fault or a wrong result: whether a
    warp reads too early depends on who runs first."""
    pattern, instead = CHANGES[change]
    lines, tried = version.text().split("\n"), launches(version)
    runs = frozenset().union(*(executed(version, launch, tmp_path) for launch in tried))
    places = [i for i in range(len(lines)) if re.fullmatch(pattern, lines[i]) and i + 1 in runs]
    assert places
    silent = []
    for i in places:
        broken = tmp_path / "broken.ptx"
        broken.write_text("\n".join([*lines[:i], re.sub(pattern, instead, lines[i]), *lines[i + 1 :]]))
        options = ["--first", "--steps", 1_000_000, "--schedule"]
        errors = (launch.worst(broken, tmp_path, *options, schedule)[0] for launch in tried for schedule in SCHEDULES)
        if not any(error > 1 for error in errors):
            silent.append(lines[i].strip())
    assert not silent


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("version", first_in_check(VERSIONS, and_last=True))
def test_no_schedule_breaks_the_ring(version: Version, seed: int, tmp_path: Path) -> None:
    for launch in launches(version):
        error, findings = launch.worst(version.ptx, tmp_path, "--schedule", seed)
        assert error <= 1, findings
