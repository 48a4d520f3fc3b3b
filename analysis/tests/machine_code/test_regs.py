"""Register CSVs, the report with its marks, and kept captures."""

import csv
import io
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.__main__ import main
from analysis.errors import AnalysisError
from analysis.files import root
from analysis.machine_code import regs
from analysis.machine_code.contents import CodeSummary
from analysis.machine_code.ptxas_log import read_log
from analysis.machine_code.regs import (
    Row,
    merge_registers,
    parse_csv,
    read_registers,
    registers_path,
    report_table,
    rows_of,
    to_csv,
)

FOLDER = Path(__file__).parents[1] / "fixtures/ptxas"
TWO = FOLDER / "cuda13_two_instances.sm_80.log"
ROW = Row("(FP16, 128, 64, 64, 4): async+load_0_0_0_tiles", "sm_80", 205, 0, 0, 0, 0, 1, "424[0]", "12ab", 0, 0)


def summaries(registers: int = 205) -> dict[str, CodeSummary]:
    return {
        usage.name: CodeSummary(usage.name, None, f"hash{index}", 3, index, registers, 0, 0, 1)
        for index, usage in enumerate(read_log(TWO).entries)
    }


def test_rows_join_log_and_code() -> None:
    rows = rows_of(read_log(TWO), summaries())
    assert [row.config for row in rows] == [
        "(BF16, 128, 64, 64, 4): async+load_0_0_0_tiles",
        "(FP16, 128, 64, 64, 4): async+load_0_0_0_tiles",
    ]
    assert [(row.registers, row.cmem, row.code_hash, row.ldl, row.stl) for row in rows] == [
        (205, "424[0]", "hash0", 3, 0),
        (205, "424[0]", "hash1", 3, 1),
    ]


def test_log_and_cubin_of_different_builds_are_refused() -> None:
    log = read_log(TWO)
    with pytest.raises(AnalysisError, match="205 registers in the log, 204 in the cubin"):
        rows_of(log, summaries(204))
    short = dict(list(summaries().items())[:1])
    with pytest.raises(AnalysisError, match="cubin lacks"):
        rows_of(log, short)
    extra = summaries() | {"_Z5otherv": next(iter(summaries().values()))}
    with pytest.raises(AnalysisError, match="log lacks 1 kernels"):
        rows_of(log, extra)


optional = st.none() | st.integers(0, 9999)
rows_strategy = st.builds(
    Row,
    st.just(ROW.config) | st.text("ab,\"' ", min_size=1),
    st.sampled_from(["sm_80", "sm_90a"]),
    *[st.integers(0, 9999)] * 5,
    optional,
    st.sampled_from(["n/a", "424[0]", "424[0]+8[2]"]),
    st.none() | st.just("12ab"),
    optional,
    optional,
    st.none() | st.just("34cd"),
)


@given(st.lists(rows_strategy, min_size=1, max_size=5))
def test_csv_reads_back_equal(rows: list[Row]) -> None:
    assert parse_csv(to_csv(rows), "x.csv") == rows


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (",205,", ",many,", ["x.csv:2", "registers = 'many'"]),
        (",205,", ",n/a,", ["x.csv:2", "registers = 'n/a'"]),
        (",205,", ",,", ["x.csv:2", "registers"]),
        (",12ab,0,0", ",12ab,0", ["x.csv:2", "12 values"]),
        ("registers", "regs", ["x.csv:1", "regs"]),
    ],
)
def test_a_damaged_csv_is_refused(old: str, new: str, words: list[str]) -> None:
    text = to_csv([ROW])
    assert old in text
    with pytest.raises(AnalysisError) as error:
        parse_csv(text.replace(old, new), "x.csv")
    assert all(word in str(error.value) for word in words)


def test_report_ranks_spills_then_registers() -> None:
    versions = {
        "v01": [ROW],
        "v02": [replace(ROW, registers=232)],
        "v03": [replace(ROW, registers=100, spill_stores=8)],
    }
    table = report_table(versions, {"v02": "v01", "v03": "v02"})
    shown = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    assert [(row["version"], row["change"], row["note"]) for row in shown] == [
        ("v03", -132, "SPILLS, fewer registers"),
        ("v02", 27, "MORE REGISTERS"),
        ("v01", None, ""),
    ]


def test_a_step_that_is_a_flag_is_compared_with_the_parents_own_config() -> None:
    child = replace(ROW, config="(FP16, 128, 64, 64, 4): async+swizzled+load_0_0_0_tiles")
    bf16 = replace(ROW, config=ROW.config.replace("FP16", "BF16"))
    other = replace(ROW, config="(FP16, 128, 128, 64, 4): async+load_0_0_0_tiles")
    assert regs.counterpart(child, [bf16, ROW, replace(ROW, arch="sm_90")]) == ROW
    assert regs.counterpart(child, [ROW, other]) is None
    assert regs.counterpart(ROW, [other, ROW]) == ROW
    assert regs.counterpart(ROW, []) is None


def test_registers_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "v01.sm_80.csv").write_text(to_csv([ROW]))
    (tmp_path / "v01.sm_90.csv").write_text(to_csv([replace(ROW, arch="sm_90", registers=211)]))
    assert main(["registers", "--folder", str(tmp_path), "--csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [(row["arch"], row["registers"]) for row in rows] == [("sm_90", "211"), ("sm_80", "205")]
    assert main(["registers", "--folder", str(tmp_path), "--arch", "sm_80", "--sort=-registers"]) == 0
    assert "211" not in capsys.readouterr().out
    assert main(["registers", "--folder", str(tmp_path), "--version", "v02"]) == 2
    assert main(["registers", "--folder", str(tmp_path / "none")]) == 2
    assert "run `make regs`" in capsys.readouterr().err


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """v01 and v02 recorded, and a build of v01 with other registers in build/regs/."""
    for name in ("kernels/mma_sync", "build/regs"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("v01_base.cu", "v02_swizzle.cu"):
        shutil.copy(root() / "kernels/mma_sync" / name, tmp_path / "kernels/mma_sync")
    both = [ROW, replace(ROW, arch="sm_90")]
    merge_registers(tmp_path, [("v02", both), ("v01", both)])
    (tmp_path / "build/regs/v01.sm_80.csv").write_text(to_csv([replace(ROW, registers=207)]))
    monkeypatch.setattr(regs, "root", lambda: tmp_path)
    return tmp_path


def recorded(folder: Path) -> dict[tuple[str, str], int]:
    return {(version, row.arch): row.registers for version, rows in read_registers(folder).items() for row in rows}


def test_a_build_replaces_its_version_and_architecture_alone(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    build = str(checkout / "build/regs/v01.sm_80.csv")
    assert main(["registers", "--version", "v01", "--merge", build]) == 0
    said = capsys.readouterr()
    assert "regs/registers.csv changed" in said.err and re.search(r"registers +205 +207", said.err)
    assert "v02" not in said.out
    assert recorded(checkout) == {
        ("v01", "sm_80"): 207, ("v01", "sm_90"): 205, ("v02", "sm_80"): 205, ("v02", "sm_90"): 205,
    }  # fmt: skip
    before = registers_path(checkout).stat()
    assert main(["registers", "--merge", build]) == 0
    assert "changed" not in capsys.readouterr().err
    assert registers_path(checkout).stat().st_mtime_ns == before.st_mtime_ns
    Path(build).write_text(to_csv([replace(ROW, config=ROW.config.replace("FP16", "BF16"))]))
    assert main(["registers", "--merge", build]) == 0
    assert registers_path(checkout).read_text().count("\nv01,sm_80,") == 1, "the kernel of before is gone"


def test_a_merge_drops_versions_whose_source_is_gone(checkout: Path) -> None:
    (checkout / "kernels/mma_sync/v02_swizzle.cu").unlink()
    merge_registers(checkout, [("v01", [ROW])])
    assert recorded(checkout).keys() == {("v01", "sm_80"), ("v01", "sm_90")}


def test_what_is_no_build_is_not_merged(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = registers_path(checkout).read_text()
    for name, content, words in (
        ("registers.csv", to_csv([ROW]), "expected a file named vNN.sm_XX.csv"),
        ("v01.sm_90.csv", to_csv([ROW]), "holds a kernel for sm_80"),
        ("v01.sm_80.csv", "config\n", "expected the columns"),
    ):
        (checkout / name).write_text(content)
        assert main(["registers", "--merge", str(checkout / name)]) == 2
        assert words in capsys.readouterr().err
    assert registers_path(checkout).read_text() == text


def test_captures_are_kept_and_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(regs, "root", lambda: tmp_path)
    logs = tmp_path / "logs/ptxas"
    logs.mkdir(parents=True)
    (logs / "v01.sm_80.log").write_text(TWO.read_text())
    (logs / "v01.sm_80.demangled.log").write_text("not a log")
    assert main(["capture", "--name", "before"]) == 0
    assert main(["capture", "--name", "before"]) == 2
    assert "there already" in capsys.readouterr().err
    assert main(["capture"]) == 0
    folder = tmp_path / "logs/build"
    assert len(list(folder.iterdir())) == 6
    assert "_Z" not in (folder / "before.demangled.log").read_text()
    (logs / "v01.sm_80.log").write_text(TWO.read_text().replace("Used 205 registers", "Used 207 registers", 1))
    assert main(["capture", "--name", "after"]) == 0
    capsys.readouterr()
    assert main(["captures", "before", "after", "--csv", "--exit-code"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "source,config,arch,figure,before,after",
        'v01.sm_80,"(BF16, 128, 64, 64, 4): async+load_0_0_0_tiles",sm_80,registers,205,207',
    ]
    assert main(["captures", "before", "before", "--exit-code"]) == 0
    assert main(["captures", "before", "missing"]) == 2
    assert main(["capture", "--name", "../out"]) == 2
