"""docs/emulator.md shows what the emulator prints, and its counts are those of the records."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from support.emulation import ROOT, entry, ptxrun
from support.forms import read_forms

PAGE = " ".join((ROOT / "docs/emulator.md").read_text().split())
# A tile that is reversed without a barrier between the store and the load.
RACE = """.reg .b32 %r<5>;
.reg .b64 %rd<3>;
.shared .align 4 .b8 tile[256];
.loc 1 6 5
mov.u32 %r1, %tid.x;
shl.b32 %r2, %r1, 2;
mov.u32 %r3, tile;
add.s32 %r3, %r3, %r2;
st.shared.u32 [%r3], %r1;
.loc 1 7 5
xor.b32 %r2, %r2, 252;
mov.u32 %r3, tile;
add.s32 %r3, %r3, %r2;
ld.shared.u32 %r4, [%r3];
mul.wide.u32 %rd1, %r1, 4;
ld.param.u64 %rd2, [out];
add.s64 %rd1, %rd1, %rd2;
st.global.u32 [%rd1], %r4;"""


def test_the_message_of_a_race_is_on_the_page(tmp_path: Path) -> None:
    text = entry(RACE, ".param .u64 out", "reverse", '.file 1 "reverse.cu"').replace("sm_90", "sm_80")
    (tmp_path / "reverse.ptx").write_text(text)
    said = ptxrun(tmp_path / "reverse.ptx", "--block", 64, "--arg", "out:u32:64").stderr
    message = next(part for part in said.split("\n\n") if part.startswith("race"))
    assert " ".join(message.split()) in PAGE


def test_the_limits_are_on_the_page() -> None:
    limits = ptxrun("--explain", "limits").stdout
    assert " ".join(limits.split()) in PAGE, limits


@pytest.mark.parametrize("bits", ["exact", "recorded", "formula"])
def test_the_page_says_which_forms_compute_the_bits_of_a_gpu(bits: str) -> None:
    forms = read_forms()
    if bits == "exact":
        exact = sum(form.bits == bits for form in forms)
        assert f"{exact} of the {len(forms)} forms compute exactly the bits that the PTX ISA defines." in PAGE
    begin = PAGE.index(" forms compute exactly")
    missing = {form.opcode for form in forms if form.bits == bits != "exact" and form.opcode not in PAGE[begin:]}
    assert not missing


def test_the_page_counts_what_was_tried() -> None:
    rows = {}
    for name in ("corpus", "corpus_runs"):
        with (ROOT / f"logs/emulator/{name}.csv").open(newline="", encoding="utf-8") as file:
            rows[name] = {row["folder"]: row for row in csv.DictReader(file)}
    whole, runs = rows["corpus"]["all"], rows["corpus_runs"].values()
    assert f"{int(whole['entries']):,} entries of" in PAGE and f"{int(whole['accepted']):,} are accepted" in PAGE
    launched, right, found = (sum(int(run[name]) for run in runs) for name in ("launched", "right", "findings"))
    assert f"{launched} ran with real inputs: {right} gave the right result, and {found} had findings." in PAGE
