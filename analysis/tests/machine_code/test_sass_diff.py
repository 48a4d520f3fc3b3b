"""sass-diff: verdicts, tables, the aligned text, and which configs a comparison uses."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from analysis.__main__ import main
from analysis.files import root
from analysis.ladder.config import parse_short_form
from analysis.ladder.headers import load
from analysis.ladder.pairs import pair_configs
from analysis.machine_code import subjects, toolkit
from analysis.machine_code.cubin import Cubin
from analysis.machine_code.regions import Parts, split
from analysis.machine_code.sass import parse_listing, select
from analysis.machine_code.sass_diff import (
    DIFFERS,
    IDENTICAL,
    RENAMED,
    REORDERED,
    RESCHEDULED,
    change_table,
    compare,
    text_diff,
)
from analysis.tests.support.compiled import built, cubin, listings

LOOP = ("FADD R4, R5, R6", "HMMA.16816.F32 R8, R4, R12, R8", "FMUL R7, R4, R4")


def kernel(*loop: str, before: int = 1, after: str = "STG.E [R2.64], R4") -> Parts:
    lines = [*["MOV R1, RZ"] * before, ".L:", *loop, "@P0 BRA `(.L_x_0)", after, "EXIT"]
    text, address = "//--------------------- .text.made --------------------------\n", 0
    for line in lines:
        if line == ".L:":
            text += ".L_x_0:\n"
            continue
        text += f"        /*{address:04x}*/  {line} ;\n"
        address += 16
    return split(parse_listing(text)[0])


def test_identical() -> None:
    change = compare(kernel(*LOOP), kernel(*LOOP))
    assert change.identical
    assert {region.likeness for region in change.regions} == {IDENTICAL}


def test_renamed_and_reordered() -> None:
    renamed = compare(kernel(*LOOP), kernel(*(line.replace("R4", "R40") for line in LOOP)))
    assert renamed.regions[0].likeness == RENAMED
    assert renamed.verdict == "the loop differs in registers only"
    reordered = compare(kernel(*LOOP), kernel(LOOP[2], LOOP[1], LOOP[0]))
    assert reordered.regions[0].likeness == REORDERED
    assert reordered.verdict == "the loop has the same opcode counts in another order"


def test_rows_are_ordered_by_change() -> None:
    longer = kernel(*LOOP, "FADD R1, R1, R1", "FADD R1, R1, R1", "MOV R3, RZ")
    change = compare(kernel(*LOOP), longer)
    assert change.verdict == "loop 4 -> 7 instructions"
    loop = change.regions[0]
    assert (loop.region, loop.likeness) == ("loop", DIFFERS)
    assert [(row.name, row.before, row.after, row.delta) for row in loop.rows[:1]] == [("TOTAL", 4, 7, 3)]
    assert [row.name for row in loop.rows[3:5]] == ["FADD", "MOV"]
    assert loop.rows[3].relative == 2.0
    assert loop.rows[4].relative is None
    shown = [row[1] for row in change_table(change, unchanged=False).rows if row[0] == "loop"]
    assert shown == ["TOTAL", "FADD", "MOV"]
    assert len([row for row in change_table(change, unchanged=True).rows if row[0] == "loop"]) == len(loop.rows)


def test_other_tiles_are_compared_per_matrix_instruction() -> None:
    double = kernel(*LOOP, *LOOP)
    change = compare(kernel(*LOOP), double)
    assert change.normalized
    total = change.regions[0].rows[0]
    assert (total.before, total.after) == (4.0, 3.5)
    assert change.verdict == "loop 4 -> 3.500 instructions per matrix instruction"


def test_text_diff() -> None:
    one, other = kernel(*LOOP), kernel(LOOP[0].replace("R4", "R9"), "IADD3 R1, R1, 0x1, RZ", *LOOP[1:])
    lines = list(text_diff(one, other, rename=False))
    assert lines[0] == "@@ loop: 4 -> 5 instructions @@"
    assert "- FADD R4, R5, R6" in lines
    assert "+ FADD R9, R5, R6" in lines
    renamed = list(text_diff(one, other, rename=True))
    assert [line for line in renamed if line[0] in "+-"] == ["+ IADD3 R, R, 0x1, RZ", "- @P BRA <-3>", "+ @P BRA <-4>"]


CODES = ("B------:R-:W-:-:S02", "B0-----:R-:W1:-:S04", "B------:R-:W-:Y:S05", "B------:R-:W-:-:S05")


def coded(*codes: str, loop: tuple[str, ...] = LOOP) -> Parts:
    lines = ["MOV R1, RZ", *loop, "@P0 BRA `(.L_x_0)", "EXIT"]
    text = "//--------------------- .text.made --------------------------\n"
    for index, (line, code) in enumerate(zip(lines, [CODES[0], *codes, CODES[0]], strict=True)):
        text += ".L_x_0:\n" if index == 1 else ""
        text += f"        /*{16 * index:04x}*/  {code}  {line} ;\n"
    return split(parse_listing(text)[0])


def test_stall_counts_are_part_of_the_machine_code() -> None:
    same = compare(coded(*CODES), coded(*CODES))
    assert (same.identical, same.verdict) == (True, "identical machine code")
    slower = compare(coded(*CODES), coded("B------:R-:W-:-:S15", *CODES[1:]))
    assert not slower.identical
    assert slower.verdict == "same instructions, +13 stall cycles in the loop"
    assert slower.regions[0].likeness == RESCHEDULED
    assert str(slower.regions[0].control) == "1 control codes differ: 1 stall counts"
    (row,) = [row for row in slower.regions[0].rows if row.name == "stall cycles"]
    assert (row.before, row.after) == (16, 29)
    lines = list(text_diff(coded(*CODES), coded("B------:R-:W-:-:S15", *CODES[1:]), rename=False))
    assert "- B------:R-:W-:-:S02 FADD R4, R5, R6" in lines
    assert "+ B------:R-:W-:-:S15 FADD R4, R5, R6" in lines


def test_changed_stalls_of_a_cubin_are_a_difference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Bits 105 to 108 of the words of the loop, which no other tool prints."""
    path = cubin("attention.cu")
    read = Cubin.read(path)
    chosen = select(read.entries, None, "f")
    loop = split(listings(path)[chosen.symbol]).loop
    data = bytearray(path.read_bytes())
    at = data.index(chosen.code)
    added = 0
    for each in loop:
        assert each.control is not None
        if 0 < each.control.stall < 10:  # nvdisasm refuses longer ones of some opcodes
            word = int.from_bytes(data[at + each.address : at + each.address + 16], "little") + (1 << 105)
            data[at + each.address : at + each.address + 16] = word.to_bytes(16, "little")
            added += 1
    slower = tmp_path / "slower.cubin"
    slower.write_bytes(data)
    assert main(["sass-diff", str(path), str(slower), "--exit-code"]) == 1
    assert f"same instructions, +{added} stall cycles in the loop" in capsys.readouterr().out
    chosen_ones = ["--a-config", chosen.symbol, "--b-config", chosen.symbol]
    assert main(["sass-diff", str(path), str(slower), *chosen_ones, "--exit-code"]) == 1
    out = capsys.readouterr().out
    assert f"same instructions, +{added} stall cycles in the loop" in out
    assert f"{added} control codes differ: {added} stall counts" in out


def test_pair_uses_the_later_config_where_the_earlier_supports_it() -> None:
    v01, v02 = load(root(), "v01"), load(root(), "v02")
    own = pair_configs(v01, v02)
    assert (own.a, own.b) == (v01.header.config, v02.header.config)
    assert own.rule.startswith("each side its own config: v01 refuses that of v02: swizzled must be off")
    same = pair_configs(v02, v01)
    assert same.a == same.b == v01.header.config or same.rule.startswith("each side")
    both = pair_configs(v01, v01)
    assert both.rule == "both sides: the config of v01"
    wanted = parse_short_form("(FP16, 128, 64, 64, 4): load_0_0_0_tiles")
    assert pair_configs(v01, v02, wanted).a == wanted


def test_command_on_cubins(capsys: pytest.CaptureFixture[str]) -> None:
    plain, peeled = str(cubin("attention.cu")), str(cubin("attention.cu", "sm_80", "-DPEELED"))
    first = ["--a-config", "0", "--b-config", "0"]
    assert main(["sass-diff", plain, peeled, *first, "--json", "--exit-code"]) == 1
    record = json.loads(capsys.readouterr().out)
    assert record["verdict"].startswith(("identical loop, elsewhere", "the loop", "loop "))
    assert record["regions"][0]["region"] == "loop"
    assert "peeled block" in [region["region"] for region in record["regions"]]
    assert record["before"]["config"] == record["after"]["config"]
    assert main(["sass-diff", "--a-cubin", plain, "--b-cubin", plain, *first, "--exit-code"]) == 0
    out = capsys.readouterr().out
    assert "identical machine code" in out
    assert "config: both sides: one config" in out
    assert main(["sass-diff", plain, peeled, *first, "--markdown", "--text", "--rename"]) == 0
    assert "```diff" in capsys.readouterr().out


def test_sides_with_other_configs_say_so(capsys: pytest.CaptureFixture[str]) -> None:
    path = str(cubin("attention.cu"))
    assert main(["sass-diff", path, path, "--a-config", "0", "--b-config", "1"]) == 0
    assert "the sides differ in their configs" in capsys.readouterr().out


def test_missing_sides_and_builds(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["sass-diff"]) == 2
    assert "name two versions or files, for example: sass-diff v10 v11" in capsys.readouterr().err
    monkeypatch.setattr(subjects, "cubins_of_version", lambda version, arch: [])
    assert main(["sass-diff", "v01", "v02"]) == 2
    assert "v01 is not built for sm_90: run `make v01 ARCHS=90`" in capsys.readouterr().err


def test_of_two_built_versions_one_kernel_is_disassembled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """nvdisasm takes most of the time; both run side by side."""
    started, start = [], toolkit.start

    def counted(tool: str, arguments: Sequence[str], folder: Path | None = None) -> toolkit.Running:
        started.append((tool, "-fun" in arguments, arguments[-1]))
        return start(tool, arguments, folder)

    monkeypatch.setattr("analysis.machine_code.sass.start", counted)
    sides = [built(version, "sm_90") for version in ("v03", "v04")]
    assert main(["sass-diff", "v03", "v04", "--json"]) == 0
    assert started == [("nvdisasm", True, str(side)) for side in sides]
