"""ptxas logs: every form of line on files of CUDA 9 to 13, and an error for whatever is not understood."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.__main__ import main
from analysis.errors import AnalysisError
from analysis.machine_code.ptxas_log import parse_log, read_log

FOLDER = Path(__file__).parents[1] / "fixtures/ptxas"
ONE = """ptxas info    : Compiling entry function 'k' for 'sm_80'
ptxas info    : Function properties for k
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers, 360 bytes cmem[0]
"""


def test_every_file_of_the_collection_is_read() -> None:
    files = sorted(FOLDER.glob("*.log"))
    assert len(files) >= 6
    for path in files:
        assert all(usage.registers for usage in read_log(path).entries)


def test_advisories_and_suffixed_architectures() -> None:
    log = read_log(FOLDER / "cuda12.sm_90a.log")
    assert [(note.line, note.code, note.function) for note in log.notes] == [
        (1, "C7510", "_Z4gemmPv"),
        (2, "C7519", "_Z4gemmPv"),
    ]
    (entry,) = log.entries
    assert (entry.arch, entry.barriers, entry.static_smem, entry.textures) == ("sm_90a", 16, 1024, 1)
    assert entry.compile_ms == 1034.5
    assert read_log(FOLDER / "cuda13_device_function.sm_100f.log").entries[0].arch == "sm_100f"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (", 360 bytes cmem[0]", ", 360 bytes dmem", ["log:4", "'360 bytes dmem'"]),
        (", 360 bytes cmem[0]", ", 3 bytes cmem[0], 3 bytes cmem[0]", ["log:4", "twice"]),
        ("Used 8 registers", "Used some registers", ["log:4", "Used some registers"]),
        ("    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n", "", ["log:3", "expected the stack"]),
        ("Compiling entry function 'k' for 'sm_80'", "Compiling k", ["log:1", "Compiling k"]),
        (ONE[-20:], ONE[-20:] + "ptxas fatal   : Unresolved extern function 'f'\n", ["log:5", "failed"]),
        (ONE, "", ["no kernel"]),
    ],
)
def test_what_is_not_understood_is_an_error_with_its_line(old: str, new: str, words: list[str]) -> None:
    assert old in ONE
    with pytest.raises(AnalysisError) as error:
        parse_log(ONE.replace(old, new))
    assert all(word in str(error.value) for word in words), str(error.value)


@given(st.integers(0, len(ONE)), st.text(max_size=30))
def test_damaged_logs_are_read_or_refused(cut: int, noise: str) -> None:
    for text in (ONE[:cut], ONE[:cut] + noise + ONE[cut:], ONE + "ptxas info : " + noise):
        try:
            assert all(usage.registers is not None for usage in parse_log(text).entries)
        except AnalysisError:
            continue


def test_demangle_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "a b" / "demangled.log"
    assert main(["demangle", str(FOLDER / "cuda9.sm_70.log"), "-o", str(out)]) == 0
    assert "reduce(float*, int)" in out.read_text()
    assert main(["demangle", str(FOLDER / "cuda9.sm_70.log"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["names"]["_Z6reducePfi"] == "reduce(float*, int)"
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert main(["demangle", str(FOLDER / "cuda9.sm_70.log")]) == 2
    assert "c++filt" in capsys.readouterr().err


@pytest.mark.parametrize(
    "dressed",
    [
        lambda line: line.replace("ptxas", "ptxas-blackwell"),
        lambda line: f"\x1b[32m{line}\x1b[0m",
        lambda line: f"[12:00:00] {line}",
    ],
)
def test_what_a_build_puts_around_each_line_plays_no_part(dressed: Callable[[str], str]) -> None:
    for path in sorted(FOLDER.glob("*.log")):
        plain = path.read_text()
        text = "\n".join(dressed(line) for line in plain.splitlines())
        assert parse_log(text).entries == parse_log(plain).entries
        assert [note.code for note in parse_log(text).notes] == [note.code for note in parse_log(plain).notes]


LINKED = """nvlink info    : 0 bytes gmem{0}
nvlink info    : Function properties for 'k':{0}
nvlink info    : used 34 registers, used 1 barriers, 256 stack, 128 bytes smem, 360 bytes cmem[0], 0 bytes lmem{0}
"""


@pytest.mark.parametrize("target", ["", " (target: sm_80)"])
def test_figures_of_nvlink_replace_those_of_ptxas(target: str) -> None:
    (usage,) = parse_log(ONE + LINKED.format(target)).entries
    assert (usage.arch, usage.registers, usage.barriers, usage.stack) == ("sm_80", 34, 1, 256)
    assert (usage.static_smem, usage.spill_stores, usage.cmem) == (128, 0, ((0, 360),))
    both = parse_log(ONE + ONE.replace("sm_80", "sm_90") + LINKED.format(" (target: sm_80)"))
    assert {each.arch: each.registers for each in both.entries} == {"sm_80": 34, "sm_90": 8}
    with pytest.raises(AnalysisError, match="log:6: not understood: '9 spoons'"):
        parse_log(ONE + "nvlink info    : Function properties for 'k':\nnvlink info    : used 3 registers, 9 spoons\n")
    with pytest.raises(AnalysisError, match="log:5: the log of a build that failed"):
        parse_log(ONE + "nvlink error   : Undefined reference to 'f'\n")
