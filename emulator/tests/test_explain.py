"""`ptxrun --explain` reports for a form: its bits, its operation, its limits."""

import re

import pytest
from support.emulation import ROOT, ptxrun
from support.forms import read_forms

TABLE = (ROOT / "emulator/ptx/forms_table.h").read_text()


def explain(form: str) -> str:
    return ptxrun("--explain", form).stdout


def test_each_form_states_its_bits() -> None:
    """Their origin is a destination register, if there is one; the state of an mbarrier has no meaning."""
    for form in read_forms():
        writes = re.match(r"[dp]\b|d0|\{d", form.operands) and form.opcode != "mbarrier"
        assert form.bits in ("exact", "recorded", "formula", "") and (form.bits or not writes), form


@pytest.mark.parametrize(
    ("form", "bits"),
    [
        ("add.rn.f32", "exact: the PTX ISA defines every bit"),
        ("sqrt.rn.f32", "exact"),
        ("sqrt.approx.f32", "by formula"),
        ("ex2.approx.ftz.f32", "recorded"),
        ("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64", "by formula"),
        ("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", "recorded"),
        ("bar.sync", "none: the form computes no value"),
    ],
)
def test_a_form_is_explained(form: str, bits: str) -> None:
    text = explain(form)
    assert text.count("  bits ") == 1 and f"  bits      {bits}" in text and text.startswith(form.split(".")[0])


def test_an_opcode_alone_explains_all_of_its_forms() -> None:
    assert explain("ex2").count("  bits ") == sum(form.opcode == "ex2" for form in read_forms()) > 2


def test_an_operation_is_explained() -> None:
    assert "operation OP_SHUFFLE: r[0] = r[1] of another lane" in explain("shfl.sync.idx.b32")
    assert "lanes     the lanes of the member mask together" in explain("shfl.sync.idx.b32")


def test_a_note_that_repeats_is_spelled_out() -> None:
    assert "likewise" not in explain("barrier") + explain("mbarrier") + explain("wgmma") + explain("fence")


def test_limits_stand_where_people_look() -> None:
    limits = explain("limits").splitlines()
    assert len(limits) == TABLE.count("BLIND_ROW(") - 1 and "Two streams" in limits[0]
    assert "limit: A dependent grid begins when" in explain("griddepcontrol.wait")
    assert "limit:" not in explain("add.f32")


@pytest.mark.parametrize("form", ["nonsense", "add.f31", "", "." * 300])
def test_an_unknown_form_is_an_error(form: str) -> None:
    done = ptxrun("--explain", form)
    assert (
        done.returncode == 2
        and not done.stdout
        and re.match(r"ptxrun: --explain .*(no form has|should be an opcode)", done.stderr)
    )
