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
from analysis.machine_code.ptxas_log import Note, Usage, demangle, looks_like_log, parse_log, read_log

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


def test_old_form_without_barriers_and_compile_time() -> None:
    log = read_log(FOLDER / "cuda9.sm_70.log")
    first, last = log.functions
    assert first == Usage(
        "_Z6reducePfi", "sm_70", True, 2, stack=8, spill_stores=0, spill_loads=0, registers=40,
        cumulative_stack=0, static_smem=1056, lmem=0, cmem=((0, 380), (2, 4)),
    )  # fmt: skip
    assert (last.name, last.registers, last.barriers, last.compile_ms) == ("_Z4copyPfPKf", 10, None, None)


def test_lines_of_other_programs_are_passed_over_and_device_functions_are_apart() -> None:
    log = read_log(FOLDER / "cuda11.sm_80.log")
    (entry,) = log.entries
    assert (entry.registers, entry.stack, entry.spill_stores, entry.spill_loads) == (255, 272, 336, 304)
    assert (entry.cumulative_stack, entry.cmem) == (272, ((0, 424), (2, 8)))
    helper = log.functions[1]
    assert (helper.name, helper.entry, helper.registers, helper.stack) == ("_Z6helperi", False, None, 0)
    (note,) = (note for note in log.notes if note.function == entry.name)
    assert "336 bytes spill stores" in note.text and note.code == ""


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


def test_the_last_function_and_one_without_time_are_not_dropped() -> None:
    plain = read_log(FOLDER / "demangled_without_times.sm_80.log")
    timed = read_log(FOLDER / "cuda13_two_instances.sm_80.log")
    assert len(plain.entries) == len(timed.entries) == 2
    assert [u.registers for u in plain.entries] == [u.registers for u in timed.entries]
    assert all(u.compile_ms is None for u in plain.entries) and all(u.compile_ms for u in timed.entries)


def test_a_demangled_name_with_commas_is_kept_whole() -> None:
    name = "void f<KernelConfig{(dtype)5, 128}>(x)"
    text = ONE.replace("'k'", f"'{name}'").replace("for k", f"for {name}")
    log = parse_log(f"ptxas warning : Local memory used for function '{name}', size of stack frame: 8 bytes\n{text}")
    assert log.entries[0].name == name and name in [note.function for note in log.notes]
    assert parse_log("ptxas info : (C7515) Potential Performance Loss: x in the function k\n" + ONE).notes == [
        Note(1, "Potential Performance Loss: x in the function k", "C7515", "k")
    ]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (", 360 bytes cmem[0]", ", 360 bytes dmem", ["log:4", "'360 bytes dmem'"]),
        (", 360 bytes cmem[0]", ", 3 bytes cmem[0], 3 bytes cmem[0]", ["log:4", "twice"]),
        (", 360 bytes cmem[0]", ", 8 bytes smem, 9 bytes smem", ["log:4", "'9 bytes smem'"]),
        ("Used 8 registers", "Used some registers", ["log:4", "Used some registers"]),
        ("ptxas info    : Used 8 registers, 360 bytes cmem[0]\n", "", ["log:1", "Used"]),
        ("    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n", "", ["log:3", "expected the stack"]),
        ("0 bytes spill loads", "none", ["log:3", "expected the stack"]),
        ("ptxas info    : Function properties for k\n", "", ["log:2", "not named"]),
        ("ptxas info    : Compiling entry function 'k' for 'sm_80'\n", "", ["log"]),
        ("Compiling entry function 'k' for 'sm_80'", "Compiling k", ["log:1", "Compiling k"]),
        ("ptxas info    : Used", "ptxas info Used", ["log:4", "not understood"]),
        (ONE[-20:], ONE[-20:] + "ptxas fatal   : Unresolved extern function 'f'\n", ["log:5", "failed"]),
        (ONE, "", ["no kernel"]),
        (ONE, "make: nothing\n", ["no kernel"]),
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


figures = st.integers(0, 999999)
ITEMS = ("used {} barriers", "{} bytes cumulative stack size", "{} bytes smem", "{} bytes lmem", "{} bytes cmem[0]",
         "{} bytes cmem[14]", "{} textures")  # fmt: skip


@given(figures, st.lists(st.tuples(st.sampled_from(ITEMS), figures), unique_by=lambda item: item[0]))
def test_the_list_may_hold_any_items_in_any_order(registers: int, items: list[tuple[str, int]]) -> None:
    listed = "".join(f", {item.format(value)}" for item, value in items)
    (usage,) = parse_log(ONE.replace("8 registers, 360 bytes cmem[0]", f"{registers} registers{listed}")).entries
    values = dict(items)
    assert usage.registers == registers
    assert usage.static_smem == values.get("{} bytes smem", 0)
    assert usage.barriers == values.get("used {} barriers")
    assert dict(usage.cmem).get(14) == values.get("{} bytes cmem[14]")


def test_demangling_changes_names_only() -> None:
    text = (FOLDER / "cuda13_two_instances.sm_80.log").read_text()
    plain = demangle(text)
    assert "_Z" not in plain and "void flash_forward<KernelConfig{(dtype)15, 128, 64" in plain
    assert len(plain.splitlines()) == len(text.splitlines())
    assert [u.registers for u in parse_log(plain).entries] == [u.registers for u in parse_log(text).entries]
    assert demangle("no names here\n") == "no names here\n"


def test_demangle_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "a b" / "demangled.log"
    assert main(["demangle", str(FOLDER / "cuda9.sm_70.log"), "-o", str(out)]) == 0
    assert "reduce(float*, int)" in out.read_text()
    assert main(["demangle", str(FOLDER / "cuda9.sm_70.log"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["names"]["_Z6reducePfi"] == "reduce(float*, int)"
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert main(["demangle", str(FOLDER / "cuda9.sm_70.log")]) == 2
    assert "c++filt" in capsys.readouterr().err


# ---- other programs' names, colours, time stamps, nvlink -------------------------------------------------------------


@pytest.mark.parametrize(
    "dressed",
    [
        lambda line: line.replace("ptxas", "ptxas-blackwell"),
        lambda line: line.replace("ptxas", "\x1b[01m\x1b[35mptxas").replace("info", "info\x1b[0m"),
        lambda line: f"\x1b[32m{line}\x1b[0m",
        lambda line: f"2026-01-31T12:00:00.1234567Z {line}",
        lambda line: f"[12:00:00] {line}",
        lambda line: f"#12 34.56 {line}",
        lambda line: f"builder-1  | {line}\r",
    ],
)
def test_what_a_build_puts_around_each_line_plays_no_part(dressed: Callable[[str], str]) -> None:
    for path in sorted(FOLDER.glob("*.log")):
        plain = path.read_text()
        text = "\n".join(dressed(line) for line in plain.splitlines())
        assert parse_log(text).entries == parse_log(plain).entries
        assert [note.code for note in parse_log(text).notes] == [note.code for note in parse_log(plain).notes]


def test_a_line_that_is_not_understood_is_an_error_after_a_time_stamp_too() -> None:
    with pytest.raises(AnalysisError, match="log:4: not understood"):
        parse_log("\n".join(f"[12:00:00] {line}" for line in ONE.replace("Used", "Wasted").splitlines()))


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


def test_nvlink_alone_gives_no_row_of_registers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log"
    log.write_text(LINKED.format(" (target: sm_80)"))
    assert main(["check-tools", str(log)]) == 0
    assert "34 registers, 256 bytes stack" in capsys.readouterr().out
    assert main(["regs", "--log", str(log)]) == 2
    assert "k: nvlink says nothing of spills" in capsys.readouterr().err


def test_figures_that_are_not_known_are_not_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert Usage("f", "sm_80", False, 1).sentence() == "no figures"
    assert main(["check-tools", str(FOLDER / "cuda11.sm_80.log")]) == 0
    out = capsys.readouterr().out
    assert "None" not in out
    assert "0 bytes stack" in out


def test_deeply_nested_templates_are_demangled() -> None:
    """c++filt stops at its own limit of recursion unless it is told not to."""
    depth = 400
    name = "_Z1fI" + "1AI" * depth + "i" + "E" * depth + "Evv"
    assert demangle(name).startswith("void f<A<A<A<")


def test_projects_that_visual_studio_builds_at_a_time() -> None:
    """Each line begins with the number of its project, and the lines of two projects take turns."""
    logs = [
        f"""ptxas info    : Compiling entry function '{name}' for 'sm_86'
ptxas info    : Function properties for {name}
    {stack} bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used {registers} registers, used 1 barriers, 368 bytes cmem[0]
"""
        for name, stack, registers in (("first", 0, 20), ("second", 16, 30))
    ]
    lines = [f"{project}>{line}" for pair in zip(*(log.splitlines() for log in logs), strict=True)
             for project, line in enumerate(pair, start=1)]  # fmt: skip
    text = "\n".join(["1>------ Build started: Project: kernels, Configuration: Release x64 ------", *lines])
    assert looks_like_log(text)
    usages = parse_log(text).entries
    assert [(each.name, each.stack, each.registers) for each in usages] == [("first", 0, 20), ("second", 16, 30)]
    cut = "\n".join(line for line in text.splitlines() if not line.startswith("2>    "))
    with pytest.raises(AnalysisError, match="expected the stack frame and spills"):
        parse_log(cut)
