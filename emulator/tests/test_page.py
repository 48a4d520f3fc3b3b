"""docs/emulator.md states the limits that the emulator prints, and its counts are those of the records."""

import csv

import pytest
from support.emulation import ROOT, ptxrun
from support.forms import read_forms

PAGE = " ".join((ROOT / "docs/emulator.md").read_text().split())


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
