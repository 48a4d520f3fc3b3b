"""--trace-events: a trace whose rows are CTAs, warps, copies and mbarriers, and errors where it cannot be written."""

import itertools
import json
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from made_up_gpu import NEEDS_V01, ROOT, SMALL, on_fake, run

pytestmark = NEEDS_V01
Event = dict[str, Any]


def traced(program: Path, file: Path, *arguments: str) -> tuple[list[Event], int]:
    """The events of a launch, and the warp instructions that its record counts."""
    command = [str(program), "--backend", "emu", "--no-check", "--json", "-", "--trace-events", str(file), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    found = json.loads(file.read_text())
    assert "no time of a GPU" in found["otherData"]["time"]
    return found["traceEvents"], json.loads(done.stdout)["counters"]["total"]["executed"]


def rows(events: list[Event], kind: str) -> dict[tuple[int, int], list[Event]]:
    found = defaultdict(list)
    for event in events:
        if event["ph"] == kind:
            found[event["pid"], event["tid"]].append(event)
    return found


def names(events: list[Event]) -> dict[tuple[int, int], str]:
    return {(one["pid"], one["tid"]): one["args"]["name"] for one in events if one["ph"] == "M"}


def test_every_instruction_is_in_the_row_of_its_warp(tmp_path: Path) -> None:
    events, executed = traced(ROOT / "bin/v01", tmp_path / "v01.json", *SMALL)
    named, slices = names(events), rows(events, "X")
    lines = {at: [one for one in mine if one["name"].startswith("line ")] for at, mine in slices.items()}
    instructions = sum(one["args"]["instructions"] for mine in lines.values() for one in mine)
    assert 0.99 * executed <= instructions <= executed  # those whose guard is false have no event
    assert all(named[at].startswith("warp ") for at in lines if lines[at])
    for pid in {pid for pid, _ in lines}:
        assert named[pid, 0].startswith(f"CTA {pid - 1} ") and "no time" in named[pid, 0]
        times = sorted(
            (one["ts"], one["ts"] + one["dur"]) for at, mine in lines.items() if at[0] == pid for one in mine
        )
        assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(times)), "one at a time"
    waits = {one["name"] for mine in slices.values() for one in mine} - {
        one["name"] for mine in lines.values() for one in mine
    }
    assert waits == {"waits at a barrier"}
    counts = [one["args"]["cp.async"] for mine in rows(events, "C").values() for one in mine]
    assert max(counts) > 32 and 0 in counts


@pytest.mark.skipif(not (ROOT / "bin/v28").exists(), reason="bin/v28 is not built: make v28")
def test_copies_and_mbarriers_have_rows(tmp_path: Path) -> None:
    events, _ = traced(ROOT / "bin/v28", tmp_path / "v28.json", "--batch", "1", "--heads", "1", "--seq", "256")
    begins, ends = ([one for one in events if one["ph"] == kind] for kind in "be")
    loads = [one["args"]["bytes"] for one in begins if one["name"].startswith("copy ")]
    stores = [one["args"]["bytes"] for one in begins if one["name"].startswith("store ")]
    row = 2 * 128  # bytes
    assert sum(loads) == 2 * row * (128 + 2 * 256), "of two CTAs: 128 rows of Q, all of K and V"
    assert sum(stores) == row * 256, "O"
    assert sorted(one["id"] for one in begins) == sorted(one["id"] for one in ends)
    last = {one["id"]: one["ts"] for one in ends}
    assert all(one["ts"] <= last[one["id"]] for one in begins)
    named, phases = names(events), defaultdict(list)
    for at, mine in rows(events, "X").items():
        if named[at].startswith("mbarrier at "):
            phases[at] += mine
    assert phases and all([one["name"] for one in mine] == [f"phase {i}" for i in range(len(mine))]
                          for mine in phases.values())  # fmt: skip
    kinds = {one["name"] for mine in rows(events, "X").values() for one in mine}
    assert "waits at an mbarrier" in kinds
    assert any("wgmma" in one["args"] for mine in rows(events, "C").values() for one in mine)


@pytest.mark.parametrize(
    ("file", "words"), [("/dev/full", "No space left"), ("/nowhere/x", "No such file"), ("/", "Is a directory")]
)
def test_a_file_that_cannot_be_written_is_an_error(file: str, words: str) -> None:
    done = run("--backend", "emu", *SMALL, "--trace-events", file)
    assert done.returncode == 3 and f"--trace-events {file}: cannot be written: {words}" in done.stderr


def test_it_acts_on_the_emulator_only(driver: str, tmp_path: Path) -> None:
    done = on_fake(driver, "", "--trace-events", str(tmp_path / "t"))
    assert done.returncode == 2 and "--trace-events: acts only on the emulator; add --backend emu" in done.stderr
    assert not (tmp_path / "t").exists()
