"""The model of the emulator against a device: what ncu counted on an H200 for v01 and v02."""

from __future__ import annotations

from pathlib import Path

import ncu
import ncu_record
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


@pytest.mark.skipif(not ncu.measured(ncu.HOPPER), reason="the record has no counts of it yet")
def test_what_both_count_alike_agrees_for_sm_90a(tmp_path: Path) -> None:
    rows = ncu.compare(ncu.HOPPER, tmp_path, ncu.HOPPER_PAIRS)
    assert [row.pair.name for row in rows if row.ours != row.measured and not row.pair.why] == []


def test_every_opcode_of_a_version_for_sm_90a_is_in_one_row(tmp_path: Path) -> None:
    rows = ncu.compare(ncu.HOPPER, tmp_path, ncu.HOPPER_PAIRS)
    *parts, everything = rows
    assert everything.pair.name == "all instructions" and all(row.ours for row in rows)
    assert sum(row.ours for row in parts) == everything.ours


SOURCE_PAGE = """==PROF== Disconnected
"#","Source","Instructions Executed","L1 Wavefronts Shared","L1 Wavefronts Shared Ideal","L2 Theoretical Sectors Global"
"1","      @P0 HGMMA.64x128x16.F32 R24, gdesc[UR4], R24 ;","1,024","0","0","0"
"2","      STSM.16.M88.4 [R2], R4 ;","16","128","128","0"
"3","      @!UPT UTMALDG.5D [UR8], [UR4] ;","0","0","0","0"
"4","      HGMMA.64x128x16.F32 R24, gdesc[UR4], R24 ;","24","","","0"
==WARNING== something
"""


def test_ncu_s_source_page_is_summed_by_opcode() -> None:
    counts = ncu_record.parse(SOURCE_PAGE)
    assert {opcode: sums[ncu.INSTRUCTIONS] for opcode, sums in counts.items()} == {"HGMMA": 1048, "STSM": 16}
    assert (counts["STSM"][ncu.WAVEFRONTS], counts["STSM"][ncu.IDEAL]) == (128, 128)
    record = "version,opcode,instructions,wavefronts,ideal,sectors\nv01,BAR,1,0,0,0\nv36,BAR,9,9,9,9\n"
    assert ncu_record.replaced(record, "v36", counts).splitlines()[1:] == [
        "v01,BAR,1,0,0,0", "v36,HGMMA,1048,0,0,0", "v36,STSM,16,128,128,0",
    ]  # fmt: skip


def test_a_page_without_the_counts_is_refused() -> None:
    with pytest.raises(ValueError, match="no column L1 Wavefronts Shared"):
        ncu_record.parse('"Source","Instructions Executed"\n')
    with pytest.raises(ValueError, match="no table"):
        ncu_record.parse("==ERROR== no permission\n")
