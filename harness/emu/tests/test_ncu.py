"""The model of the emulator against a device: what ncu counted on an H200 for v01 and v02."""

from __future__ import annotations

from pathlib import Path

import ncu
import pytest


@pytest.mark.parametrize("version", ncu.VERSIONS)
def test_what_both_count_alike_agrees(version: str, tmp_path: Path) -> None:
    rows = ncu.compare(version, tmp_path)
    assert all(row.ours and row.measured for row in rows)
    assert [row.pair.name for row in rows if row.ours != row.measured] == [
        row.pair.name for row in rows if row.pair.why
    ]


@pytest.mark.parametrize("metric", [ncu.INSTRUCTIONS, ncu.WAVEFRONTS, ncu.SECTORS])
def test_every_opcode_is_in_one_row(metric: str, tmp_path: Path) -> None:
    """The rows of a metric together hold all that was counted."""
    rows = [row for row in ncu.compare("v02", tmp_path) if row.pair.metric == metric]
    rows = [row for row in rows if row.pair.name != "all instructions" and ncu.KERNEL_COUNTER not in row.pair.machine]
    whole, counted = ncu.emulated("v02", tmp_path)[metric], ncu.measured("v02")[metric]
    assert sum(row.ours for row in rows) == sum(whole.values())
    assert sum(row.measured for row in rows) == sum(counted.values()) - counted[ncu.KERNEL_COUNTER]
