"""docs/emulator.md says what the emulator does: its tables and its example are those of the program."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from page import EXAMPLE, PAGE, PARTS, ROOT, fill, generate, main, outputs


def test_generated_parts_are_current(tmp_path: Path) -> None:
    page = PAGE.read_text()
    assert generate(page, tmp_path) == page, "stale: run .venv/bin/python emulator/tests/page.py"


def test_a_project_that_is_missing_shows(tmp_path: Path) -> None:
    page = PAGE.read_text()
    assert page.count(" cuda-samples,") == 1
    assert generate(page.replace(" cuda-samples,", ""), tmp_path) == page


@pytest.mark.parametrize("part", PARTS)
def test_what_the_page_leaves_out_is_printed(part: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([part]) == 0 and f"page.py {part} " in PAGE.read_text()
    assert capsys.readouterr().out.count("\n| ") > 8


def test_a_part_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["forms"]) == 2
    said = capsys.readouterr().err
    assert "page.py: there are hopper, ncu, ncu-hopper, speed, tried, tried-hopper, not forms" in said


def test_a_page_without_the_block_is_an_error() -> None:
    with pytest.raises(ValueError, match="0 blocks 'tried'"):
        fill("no block", "tried", "text")


def test_the_largest_difference_of_outputs_is_named() -> None:
    line = "1/9 {} output as the emulator's: ok {} % differ, by at most {} steps; 0.00 % differ, by at most {} steps\n"
    equal, other = line.format("v01 fp16", "0.00", "0.00", "0.00"), line.format("v03 bf16", "1.50", "0.10", "0.25")
    assert outputs({"a": equal}) == "v01 to v01 on a: no output differs"
    difference = ": at most 1.50 % of the outputs differ, by up to 0.25 rounding steps"
    assert outputs({"a": equal + other, "b": equal + other}) == "v01 to v03 on a and b" + difference
    assert outputs({"a": equal + other, "b": equal}) == "v01 to v03 on a and v01 to v01 on b" + difference


def test_the_example_is_right_with_its_barrier(tmp_path: Path) -> None:
    source = tmp_path / "reverse.ptx"
    source.write_text(EXAMPLE.replace("@MISSING ", ""))
    done = subprocess.run(
        [ROOT / "bin" / "ptxrun", source, "--block", "64", "--arg", "out:u32:64", "--print", "0:3"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "63 62 61" in done.stdout
