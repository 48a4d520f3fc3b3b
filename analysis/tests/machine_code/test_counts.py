"""Opcode counts: families, regions, dummies, and the commands that print them."""

import json
from pathlib import Path

import pytest

from analysis.__main__ import main
from analysis.machine_code.counts import NEVER, PREDICATED, TOTAL, count, row_names
from analysis.machine_code.opcodes import family
from analysis.machine_code.regions import split
from analysis.machine_code.sass import parse_listing
from analysis.tests.support.compiled import cubin

CODE = """//--------------------- .text.made --------------------------
        /*0000*/  IMAD.MOV.U32 R1, RZ, RZ, c[0x0][0x28] ;
        /*0010*/  MOV R2, RZ ;
.L_x_0:
        /*0020*/  @!PT LDS RZ, [RZ] ;
        /*0030*/  HMMA.16816.F32 R4, R8, R12, R4 ;
        /*0040*/  HMMA.16816.F32 R4, R8, R12, R4 ;
        /*0050*/  IADD3.X R3, R3, R4, RZ, P0, !PT ;
        /*0060*/  @P1 IADD3 R3, R3, 0x1, RZ ;
        /*0070*/  NOP ;
        /*0080*/  @P0 CALL.REL.NOINC `(.L_x_1) ;
        /*0090*/  BRA `(.L_x_0) ;
.L_x_1:
        /*00a0*/  EXIT ;
.L_x_2:
        /*00b0*/  BRA `(.L_x_2) ;
        /*00c0*/  NOP ;
"""


def test_counts_by_region() -> None:
    parts = split(parse_listing(CODE)[0])
    whole, prologue, loop, epilogue = count(parts)
    assert [each.region for each in (whole, prologue, loop, epilogue)] == ["whole", "prologue", "loop", "epilogue"]
    assert (whole.total, prologue.total, loop.total, epilogue.total) == (10, 2, 7, 1)
    assert loop.by_name == {"LDS !PT": 1, "HMMA": 2, "IADD3": 2, "CALL": 1, "BRA": 1}
    assert (loop.matrix, loop.never, loop.predicated) == (2, 1, 3)
    assert loop.per_matrix("IADD3") == 1.0
    assert loop.per_matrix(TOTAL) == 3.5
    assert epilogue.per_matrix(TOTAL) is None
    assert row_names([loop])[:4] == [TOTAL, NEVER, PREDICATED, "HMMA"]


@pytest.mark.parametrize(
    ("opcode", "row"),
    [
        ("IADD3.X", "IADD3"),
        ("MUFU.EX2", "MUFU.EX2"),
        ("LDSM.16.MT88.4", "LDSM.MT88"),
        ("F2FP.PACK_AB", "F2F/F2FP"),
        ("IMAD.MOV.U32", "IMAD.MOV.U32"),
        ("IMAD.X", "IMAD"),
        ("UIADD3", "uniform(U*)"),
        ("HMMA.16816.F32.BF16", "HMMA"),
    ],
)
def test_families(opcode: str, row: str) -> None:
    assert family(opcode) == row


def test_counts_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "made.sass"
    file.write_text(CODE, encoding="utf-8")
    assert main(["counts", str(file), "--json"]) == 0
    rows = {row["opcode"]: row for row in json.loads(capsys.readouterr().out)["rows"]}
    assert rows["HMMA"] == {"opcode": "HMMA", "whole": 2, "prologue": 0, "loop": 2, "epilogue": 0}
    assert main(["loop", str(file), "--csv", "--per-hmma"]) == 0
    assert "IADD3,1.0" in capsys.readouterr().out.splitlines()
    assert main(["counts", str(file), str(file), "--csv"]) == 0
    assert capsys.readouterr().out.splitlines()[1] == "TOTAL,10,10"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["loop"], "SUBJECT: missing"),
        (["loop", "missing.cubin"], "missing.cubin: No such file or directory"),
        (["loop", "{plain}"], "5 kernels, choose one"),
    ],
)
def test_refusals(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    plain = str(cubin("plain.cu"))
    assert main([word.replace("{plain}", plain) for word in arguments]) == (6 if message == "no device code" else 2)
    assert message in capsys.readouterr().err
