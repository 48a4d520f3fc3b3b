"""Cubins without debug sections hold the same kernels."""

from pathlib import Path

import pytest

from analysis.__main__ import main
from analysis.errors import DONE, REFUSED
from analysis.machine_code.cubin import Cubin
from analysis.machine_code.sass import disassemble
from analysis.tests.support.compiled import cubin


def loaded(path: Path) -> list[bytes]:
    """The bytes that the driver loads, by segment; the table of the segments itself moves."""
    cubin, data = Cubin.read(path), path.read_bytes()
    others = [segment for segment in cubin.segments if segment.offset != cubin.segments[0].offset]
    return [data[segment.offset : segment.offset + segment.file_size] for segment in others]


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_a_stripped_cubin_holds_the_same_kernels(tmp_path: Path, arch: str) -> None:
    whole, stripped = cubin("plain.cu", arch), tmp_path / "stripped.cubin"
    assert main(["strip", str(whole), "-o", str(stripped)]) == DONE
    before, after = Cubin.read(whole), Cubin.read(stripped)
    assert after.kernels == before.kernels
    assert [section.name for section in after.sections] == [section.name for section in before.sections]
    bytes_in_debug = sum(
        len(s.data) for s in after.sections if "debug" in s.name and not s.name.endswith(".debug_frame")
    )
    assert not bytes_in_debug
    assert loaded(stripped) == loaded(whole) and loaded(whole)
    assert disassemble(stripped, "triple(int*)") == disassemble(whole, "triple(int*)")


def test_what_is_no_cubin_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("notes", encoding="utf-8")
    for path, reason in ((text, "no ELF header"), (tmp_path / "none.cubin", "No such file")):
        assert main(["strip", str(path), "-o", str(tmp_path / "out")]) == REFUSED
        assert reason in capsys.readouterr().err and not (tmp_path / "out").exists()
