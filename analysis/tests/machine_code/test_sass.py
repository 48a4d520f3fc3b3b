"""Listings: control codes, the grammar of the text, the choice of a kernel, and what is refused."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.__main__ import main
from analysis.errors import AnalysisError
from analysis.ladder.config import parse_short_form
from analysis.machine_code.control import inconsistencies
from analysis.machine_code.cubin import Cubin
from analysis.machine_code.names import config_of
from analysis.machine_code.regions import Graph
from analysis.machine_code.sass import Control, format_listing, parse_listing, select, with_control
from analysis.machine_code.toolkit import find_tool
from analysis.tests.support.compiled import ARCHS, cubin, listing, listings

HEAD = "\t.target\tsm_80\n//--------------------- .text.one --------------------------\n"


def listing_of(*lines: str) -> str:
    return HEAD + "".join(f"        /*{16 * n:04x}*/  {line} ;\n" for n, line in enumerate(lines))


@pytest.mark.parametrize(
    ("upper", "code"),
    [
        (0x000FE400078E00FF, "B------:R-:W-:-:S02"),  # IMAD.MOV.U32 R1, RZ, RZ, c[0x0][0x28]
        (0x000E620000002100, "B------:R-:W1:-:S01"),  # S2R R0, SR_TID.X
        (0x002FCA00078E00FF, "B-1----:R-:W-:Y:S05"),  # IMAD.SHL.U32 R22, R0, 0x10, RZ
        (0x0003E80000000000, "B------:R1:W-:-:S04"),
        (0x7FFFE00000000000, "B012345:R-:W-:-:S00"),
    ],
)
def test_control_codes_of_known_words(upper: int, code: str) -> None:
    assert str(Control.of_word(upper << 64)) == code


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("source", ["attention.cu", "plain.cu"])
def test_own_listing_reads_back(source: str, arch: str) -> None:
    for whole in listings(cubin(source, arch)).values():
        (again,) = parse_listing(format_listing(whole))
        assert again.arch == arch
        assert [(at.text, str(at.control)) for at in again.code] == [(at.text, str(at.control)) for at in whole.code]
        assert again.label == whole.label


def test_cuobjdump_says_the_same() -> None:
    """cuobjdump prints the words next to its text, so its listing gives control codes without the cubin's bytes."""
    path = cubin("attention.cu")
    text = subprocess.run(
        [str(find_tool("cuobjdump")), "-sass", str(path)], capture_output=True, text=True, check=True
    ).stdout
    parsed = {each.symbol: each for each in parse_listing(text)}
    read = Cubin.read(path)
    for kernel in read.entries:
        ours, theirs = listings(path)[kernel.symbol].code, parsed[kernel.symbol].code
        assert [str(at.control) for at in ours] == [str(at.control) for at in theirs]
        assert [at.opcode for at in ours] == [at.opcode for at in theirs]


def check_control(path: Path) -> None:
    for each in listings(path).values():
        assert inconsistencies(Graph(each)) == []


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("source", ["attention.cu", "plain.cu"])
def test_control_codes_make_sense(source: str, arch: str) -> None:
    check_control(cubin(source, arch))


def test_labels_predicates_and_padding() -> None:
    text = listing_of("ISETP.NE.AND P0, PT, R1, RZ, PT", "@!P0 BRA `(.L_x_0)", "EXIT", "BRA `(.L_x_1)", "NOP")
    text = text.replace("        /*0020*/", ".L_x_0:\n        /*0020*/").replace(
        "        /*0030*/", ".L_x_1:\n        /*0030*/"
    )
    (listing,) = parse_listing(text)
    assert listing.symbol == "one"
    assert [at.opcode for at in listing.body] == ["ISETP.NE.AND", "BRA", "EXIT"]
    assert listing.target(listing.instructions[1]) == 0x20
    assert listing.instructions[1].predicate == "@!P0"
    assert not listing.instructions[1].never


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (listing_of("frob R1, R2"), r"x\.sass:3: line not understood"),
        (listing_of("EXIT") + "what is this\n", r"x\.sass:4: line not understood: 'what is this'"),
        (listing_of("NOP", "NOP") + "        /*0010*/  EXIT ;\n", r"x\.sass:5: address 0010 after 0010"),
        ("", r"x\.sass: no instruction recognized in 0 lines"),
        ("// nothing\n", r"x\.sass: no instruction recognized in 1 lines"),
    ],
)
def test_refused_listings(text: str, message: str) -> None:
    with pytest.raises(AnalysisError, match=message):
        parse_listing(text, "x.sass")


def test_code_and_text_must_agree() -> None:
    path = cubin("attention.cu")
    read = Cubin.read(path)
    fp16, bf16 = read.entries
    listing = listings(path)[fp16.symbol]
    longer = parse_listing(format_listing(listing) + "        /*fff0*/  EXIT ;\n")[0]
    with pytest.raises(AnalysisError, match="no code at fff0"):
        with_control(longer, fp16)
    shorter = parse_listing("\n".join(format_listing(listing).splitlines()[:-3]) + "\n")[0]
    with pytest.raises(AnalysisError, match=r"\d+ instructions are not in the listing"):
        with_control(shorter, bf16)


def test_opcodes_that_are_not_known_are_read_and_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code = "B------:R-:W-:-:S05  "
    loop = [code + line for line in ("FADD R1, R2, R3", "FROB.X R1, R2", "@P0 BRA `(.L_x_0)", "EXIT")]
    file = tmp_path / "made.sass"
    text = listing_of(*loop).replace("        /*0000*/", ".L_x_0:\n        /*0000*/")
    file.write_text(text, encoding="utf-8")
    assert main(["counts", str(file), "--csv"]) == 0
    counted = capsys.readouterr()
    assert "other,1" in counted.out
    assert 'opcodes not known, read as printed and counted as "other": FROB (1)' in counted.err
    assert main(["bound", str(file), "--csv"]) == 0
    assert "other,1,,,pipe not known" in capsys.readouterr().out


def test_select() -> None:
    path = cubin("attention.cu")
    kernels = Cubin.read(path).entries
    small = parse_short_form("(FP16, 128, 64, 64, 4): async+load_0_0_0_tiles")
    for choice in (None, small, small.short_form(), small.symbol()):
        assert config_of(select(kernels, choice, "f").symbol) == small
    assert select(kernels, "1", "f") is kernels[1]
    with pytest.raises(AnalysisError, match="f: no kernel 2; there are 0: "):
        select(kernels, "2", "f")
    with pytest.raises(AnalysisError, match="f: no kernel nothing; there are"):
        select(kernels, "nothing", "f")
    with pytest.raises(AnalysisError, match="f: no kernel in this file"):
        select([], None, "f")
    with pytest.raises(AnalysisError, match="5 kernels, choose one with --config"):
        select(Cubin.read(cubin("plain.cu")).entries, None, "f")


@given(st.data())
@settings(max_examples=60)
def test_a_damaged_listing_is_read_or_refused(data: st.DataObject) -> None:
    lines = format_listing(listing(cubin("attention.cu"))).splitlines()
    index = data.draw(st.integers(0, len(lines) - 1))
    line = lines[index]
    cut = data.draw(st.integers(0, len(line)))
    lines[index] = line[:cut] + data.draw(st.text(max_size=5)) + line[cut + data.draw(st.integers(0, 5)) :]
    try:
        parse_listing("\n".join(lines), "damaged")
    except AnalysisError as error:
        assert str(error).startswith("damaged:")
