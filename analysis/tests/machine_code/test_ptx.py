"""The PTX grammar, where PTX is found, the maps and the slicer."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.__main__ import main
from analysis.errors import AnalysisError
from analysis.machine_code.cubin import Cubin
from analysis.machine_code.maps import backward_slice
from analysis.machine_code.ptx import Function, Statement, embedded_ptx, parse_ptx
from analysis.tests.support.compiled import ARCHS, cubin, ptx

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"


def function(body: str, registers: str = ".reg .pred %p<9>;\n.reg .b32 %r<99>;\n.reg .b64 %rd<99>;\n") -> Function:
    return parse_ptx(f"{HEAD}.visible .entry f(.param .u64 a)\n{{\n{registers}{body}\n}}\n").functions[0]


def one(body: str) -> Statement:
    return function(body).statements[0]


@pytest.mark.parametrize(
    ("text", "opcode", "defines", "uses"),
    [
        ("st.global.v2.b32 [%rd1+8], {%r1, %r2};", "st.global.v2.b32", [], ["%rd1", "%r1", "%r2"]),
        ("mov.b64 {%r1,%r2}, %rd3;", "mov.b64", ["%r1", "%r2"], ["%rd3"]),
        ("setp.lt.s32 %p1|%p2, %r1, 5;", "setp.lt.s32", ["%p1", "%p2"], ["%r1"]),
        ("cp.async.cg.shared.global [%r1], [%rd1], 16;", "cp.async.cg.shared.global", [], ["%r1", "%rd1"]),
        ("atom.global.add.u32 %r1, [%rd1], %r2;", "atom.global.add.u32", ["%r1"], ["%rd1", "%r2"]),
        ("mbarrier.arrive.shared.b64 _, [%r1];", "mbarrier.arrive.shared.b64", [], ["%r1"]),
        ("@!%p1 mov.u32 %r1, %r2;", "mov.u32", ["%r1"], ["%p1", "%r2"]),
        ("call (%r1), g, (%r2, %r3);", "call", ["%r1"], ["%r2", "%r3"]),
    ],
)
def test_definitions_and_uses(text: str, opcode: str, defines: list[str], uses: list[str]) -> None:
    at = one(text)
    assert (at.opcode, list(at.defines), list(at.uses)) == (opcode, defines, uses)


def test_matrix_instructions() -> None:
    mma = one(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%r1,%r2,%r3,%r4}, {%r5,%r6,%r7,%r8}, {%r9,%r10}, "
        "{%r11,%r12,%r13,%r14};"
    )
    assert list(mma.defines) == ["%r1", "%r2", "%r3", "%r4"]
    assert list(mma.uses) == [f"%r{n}" for n in range(5, 15)]
    load = one("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1,%r2,%r3,%r4}, [%r9+16];")
    assert (list(load.defines), list(load.uses)) == (["%r1", "%r2", "%r3", "%r4"], ["%r9"])
    group = one("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%r1,%r2}, %rd1, %rd2, %p1, 1, 1, 0, 0;")
    assert list(group.defines) == ["%r1", "%r2"]
    assert list(group.uses) == ["%r1", "%r2", "%rd1", "%rd2", "%p1"]  # the accumulator is read too


def test_lines_and_locations() -> None:
    body = function('.file 1 "/src/a.cu"\n.loc 1 7 3\nmov.u32 %r1, 1; mov.u32 %r2, 2;\n// comment\n.loc 1 9 1\nret;')
    assert [(at.line, at.location) for at in body.statements] == [
        (11, "/src/a.cu:7"),
        (11, "/src/a.cu:7"),
        (14, "/src/a.cu:9"),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"f:1: not PTX: \.version or \.target is missing"),
        (HEAD, "f:1: no function"),
        (HEAD + ".entry f()\n{\nmov.u32 %r1, {1;\n}\n", "f:6: the text ends inside|f:6: unbalanced operands"),
        (HEAD + ".entry f()\n{\nMOV R1;\n}\n", "f:6: not an instruction: 'MOV R1'"),
        (HEAD + ".entry f()\n{\nret;\n", "the text ends inside a function"),
    ],
)
def test_refused_text(text: str, message: str) -> None:
    with pytest.raises(AnalysisError, match=message):
        parse_ptx(text, "f")


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("source", ["attention.cu", "plain.cu"])
def test_embedded_text_is_the_input_of_ptxas(source: str, arch: str) -> None:
    """ptxas keeps the lines of its input, so that the statements of both are the same at the same lines."""
    outside = parse_ptx(ptx(source, arch).read_text(encoding="utf-8"))
    inside = parse_ptx(embedded_ptx(Cubin.read(cubin(source, arch))))
    assert [f.name for f in inside.functions] == [f.name for f in outside.functions]
    for a, b in zip(inside.functions, outside.functions, strict=True):
        assert [(at.line, at.text) for at in a.statements] == [(at.line, at.text) for at in b.statements]


def test_sections(capsys: pytest.CaptureFixture[str]) -> None:
    path = str(cubin("attention.cu"))
    assert main(["ptx", path, "--sections"]) == 0
    names = capsys.readouterr().out.splitlines()
    assert ".nv_debug_ptx_txt" in names
    assert main(["ptx", path, "--section", ".shstrtab"]) == 0
    assert ".nv.info" in capsys.readouterr().out.splitlines()
    assert main(["ptx", path, "--section", ".nv.info"]) == 0
    assert capsys.readouterr().out.startswith("000000  042f0800")
    assert main(["ptx", path, "--section", ".none"]) == 2
    assert "no section .none; there are .shstrtab" in capsys.readouterr().err


def test_map_joins_source_ptx_and_sass(capsys: pytest.CaptureFixture[str]) -> None:
    path = cubin("attention.cu")
    assert main(["map", str(path), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    lines = embedded_ptx(Cubin.read(path)).splitlines()
    matrix = [row for row in rows if row["sass"].startswith("HMMA")]
    assert len(matrix) == 3
    source = (Path(__file__).parents[1] / "fixtures/code/attention.cu").read_text(encoding="utf-8").splitlines()
    for row in matrix:
        assert lines[row["ptx_line"] - 1].lstrip().startswith("mma.sync")
        parts = [line.rpartition(":") for line in row["source"]]
        assert {name for name, _, _ in parts} == {"attention.cu"}
        named = " ".join(source[int(line) - 1] for _, _, line in parts)
        assert "mma" in named  # the asm, or the calls it was inlined through
    assert len({tuple(row["source"]) for row in matrix}) >= 2  # the calls they were inlined through tell them apart


def sliced(body: str, line: int) -> list[str]:
    made = function(body)
    return [at.text for at in backward_slice(made, made.statements[0].line - 1 + line)]


def test_slice_follows_values_and_not_addresses_of_stores() -> None:
    kept = sliced(
        "mov.u32 %r1, 1;\nmov.u32 %r2, 2;\nst.shared.u32 [%r1], %r2;\nadd.u32 %r3, %r1, 5;\nst.shared.u32 [%r3], %r1;",
        5,
    )
    assert kept == ["mov.u32 %r1, 1;", "add.u32 %r3, %r1, 5;", "st.shared.u32 [%r3], %r1;"]


def test_slice_through_matrix_instructions(capsys: pytest.CaptureFixture[str]) -> None:
    """From the last mma back: its operands come from ldmatrix, from the softmax and so from the first mma."""
    path = cubin("attention.cu")
    text = embedded_ptx(Cubin.read(path))
    made = next(f for f in parse_ptx(text).functions if "L5dtype5E" in f.name)
    last = [at for at in made.statements if at.opcode.startswith("mma.sync")][-1]
    kept = backward_slice(made, last.line)
    opcodes = {at.opcode.split(".")[0] for at in kept}
    assert {"mma", "ldmatrix", "ex2", "cvt", "shfl"} <= opcodes
    assert not any(at.opcode.startswith(("st.", "cp.async", "bar")) for at in kept)
    assert main(["slice", str(path), "--line", str(last.line), "--show", "both", "--numbers", "--csv"]) == 0
    table = capsys.readouterr().out.splitlines()
    assert table[0] == "line,ptx,address,sass"
    assert sum("HMMA" in row for row in table) == 3
    assert main(["slice", str(path), "--line", str(last.line), "--show", "sass"]) == 0
    assert "mma.sync" not in capsys.readouterr().out
    assert main(["slice", str(path), "--last", "mma.sync", "--show", "both", "--numbers", "--csv"]) == 0
    assert capsys.readouterr().out.splitlines() == table
    assert main(["slice", str(path), "--last", "wgmma"]) == 2
    assert (
        "no instruction of (FP16, 128, 64, 64, 4): async+load_0_0_0_tiles begins with wgmma" in capsys.readouterr().err
    )


PIECES = st.sampled_from(
    (
        *(".entry f()", "{", "}", ".reg .b32 %r<9>;", "mov.u32 %r1, %r2;", "L: ", "bra L;", "@%p1 ", ";", ",", '"'),
        *("{%r1, %r2}", "[%rd1+4]", ".loc 1 2 3\n", "//", "/*", "*/", "\n", "call (%r1), g, (%r2);", '.file 1 "a"\n'),
    )
)


@given(st.one_of(st.text(max_size=200), st.lists(PIECES, max_size=40).map("".join)))
@settings(max_examples=300)
def test_any_text_is_ptx_or_refused(text: str) -> None:
    for whole in (text, HEAD + text, f"{HEAD}.entry f()\n{{{text}}}\n"):
        try:
            assert parse_ptx(whole, "any").functions
        except AnalysisError as error:
            assert str(error).startswith("any:")
