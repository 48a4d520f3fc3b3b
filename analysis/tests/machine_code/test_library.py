"""All kernels of a library: counted, and paired with those of another build."""

import json
import shutil
from pathlib import Path

import pytest

from analysis.__main__ import main
from analysis.errors import NOTHING_BELOW
from analysis.files import root
from analysis.machine_code import sass
from analysis.machine_code.images import RESOURCES
from analysis.machine_code.library import (
    LONGEST_COMMENT,
    Figures,
    LibraryChange,
    Pair,
    count_library,
    follows_code,
    pair_kernels,
)
from analysis.machine_code.names import name_of
from analysis.machine_code.occupancy import most_warps
from analysis.machine_code.opcodes import PIPES
from analysis.tests.support.compiled import cubin, fatbinary, listings

PLAIN = Path(__file__).parents[1] / "fixtures/code/plain.cu"


def later_build() -> Path:
    """triple needs local memory, sum has another constant, divide is gone and quadruple is new."""
    text = PLAIN.read_text(encoding="utf-8")
    for old, new in (
        (
            "x[threadIdx.x] *= 3;",
            "int t[256]; for (int i = 0; i < 256; i++) t[i] = x[i]; x[0] = t[x[300] & 255] + t[x[301] & 255];",
        ),
        ("s * x[i] + 1", "s * x[i] + 2"),
        ("__global__ void divide", "__global__ void quadruple"),
    ):
        assert old in text
        text = text.replace(old, new)
    return cubin("later.cu", "sm_80", text=text)


def test_two_builds_of_a_library(capsys: pytest.CaptureFixture[str]) -> None:
    before, after = str(cubin("plain.cu")), str(later_build())
    assert main(["sass-diff", before, after, "--json", "--exit-code"]) == 1
    record = json.loads(capsys.readouterr().out)
    status = {each["kernel"]: each["status"] for each in record["kernels"]}
    assert status == {
        "_Z6triplePi": "changed",
        "_Z3sumPfi": "changed",
        "_Z11local_arrayPii": "identical",
        "_Z7divergePii": "identical",
        "_Z6dividePlPKl": "removed",
        "_Z9quadruplePlPKl": "added",
    }
    counted = {name: number for name, number in record["summary"].items() if number}
    assert counted.pop("more registers", 1) == 1
    assert counted == {"identical": 2, "changed": 2, "added": 1, "removed": 1, "grew": 1, "more local memory": 1}
    triple = next(each for each in record["kernels"] if each["kernel"] == "_Z6triplePi")
    old, new = triple["instructions"]
    assert old < new
    assert (triple["before"]["local"], triple["before"]["stack"]) == (0, 0)
    assert triple["after"]["local"] > 0
    assert triple["after"]["stack"] == 1024
    assert main(["sass-diff", before, after]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[:4] == ["changed", "sm_80", str(old), "->"]  # what spills comes first
    assert lines[-1].startswith(f"{before} -> {after}: 6 kernels: 2 identical, 2 changed, 1 added, 1 removed, 1 grew")
    assert "_Z7divergePii" not in "\n".join(lines)
    assert main(["sass-diff", before, before, "--exit-code", "--all", "--csv"]) == 0
    assert capsys.readouterr().out.count("identical,sm_80") == 5 + 1  # what is the file's own


def test_every_architecture_of_a_file_is_compared(capsys: pytest.CaptureFixture[str]) -> None:
    path = str(fatbinary("plain.cu", "fatbin"))
    assert main(["sass-diff", path, path]) == 0
    assert "10 kernels: 10 identical" in capsys.readouterr().out
    assert main(["sass-diff", path, path, "--arch", "90"]) == 0
    assert "5 kernels: 5 identical" in capsys.readouterr().out


def figures(symbol: str, code_hash: str = "0", arch: str = "sm_80") -> Figures:
    return Figures(arch, symbol, 0, 0, code_hash, 16, 10, 0, 0, 0)


def test_kernels_are_paired_by_name() -> None:
    own, other = "_ZN57_INTERNAL_c9c18139_16_silu_bw_3956runE", "_ZN57_INTERNAL_00aa8139_16_silu_bw_77runE"
    before = [figures("a"), figures("a"), figures("a", arch="sm_90"), figures(own), figures("gone")]
    after = [figures("a", "1"), figures("a", arch="sm_90"), figures("new"), figures(other)]
    found = [
        (pair.before.symbol if pair.before else "", pair.after.symbol if pair.after else "", pair.status)
        for pair in pair_kernels(before, after)
    ]
    assert found == [
        ("a", "a", "changed"),
        ("a", "a", "identical"),
        ("a", "", "removed"),
        (own, "", "removed"),
        ("gone", "", "removed"),
        ("", "new", "added"),
        ("", other, "added"),
    ]


def test_names_with_the_hash_of_their_file_are_paired() -> None:
    name = "_ZN2at54_GLOBAL__N__{}_16_silu_bw_fused_cu_{}_395645unrolledEv"
    (pair,) = pair_kernels(
        [figures(name.format("c9c18139", "be4c82d4"))], [figures(name.format("01c18139", "0a0b0c0d"))]
    )
    assert pair.status == "identical"


def test_counts_of_all_kernels(capsys: pytest.CaptureFixture[str]) -> None:
    path = fatbinary("plain.cu", "fatbin")
    assert main(["counts", str(path), "--all", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["arch"] for row in rows] == ["sm_80"] * 5 + ["sm_90"] * 5
    by_name = {row["kernel"]: row for row in rows if row["arch"] == "sm_80"}
    for symbol, whole in listings(cubin("plain.cu")).items():
        row = by_name[name_of(symbol)]
        assert row["instructions"] == len(whole.body) == sum(row[pipe] for pipe in PIPES)
    assert by_name["local_array(int*, int)"]["local"] == 66
    assert {row["max threads"] for row in rows} == {None}
    assert by_name["local_array(int*, int)"]["warps"] == 48  # of 40 registers
    assert main(["counts", "v01", "--all"]) == 2
    assert "--all counts the kernels of one file" in capsys.readouterr().err


def test_resources_of_a_bounded_kernel(capsys: pytest.CaptureFixture[str]) -> None:
    """128 threads with 512 bytes: the registers of the kernel leave room for more than its warps."""
    path = str(cubin("contents.cu", "sm_80"))
    assert main(["counts", path, "--all", "--json"]) == 0
    (bounded,) = [row for row in json.loads(capsys.readouterr().out)["rows"] if row["kernel"] == "bounded"]
    assert (bounded["smem"], bounded["max threads"], bounded["warps"]) == (512, 128, 64)
    assert main(["images", "list", path, "--json"]) == 0
    (listed,) = [row for row in json.loads(capsys.readouterr().out)["rows"] if row["kernel"] == "bounded"]
    assert {name: listed[name] for name in RESOURCES} == {name: bounded[name] for name in RESOURCES}
    assert most_warps("sm_99", 32, None, 0) is None
    assert most_warps("sm_90a", 168, 384, 200 << 10) == 12


def test_two_folders_of_builds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A changed file, one that is the same, one of either side alone, host code and text."""
    old, new = tmp_path / "old", tmp_path / "new"
    for folder, changed, name in ((old, cubin("plain.cu"), "gone"), (new, later_build(), "new")):
        (folder / "below").mkdir(parents=True)
        shutil.copyfile(changed, folder / "below/plain.cubin")
        shutil.copyfile(cubin("contents.cu"), folder / "same.cubin")
        shutil.copyfile(cubin("jumps.cu"), folder / f"{name}.cubin")
        shutil.copyfile("/bin/true", folder / "host")
        (folder / "notes.txt").write_text("text", encoding="utf-8")
    assert main(["sass-diff", str(old), str(new), "--markdown", "--exit-code"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"{old} -> {new}: 11 kernels: 5 identical, 2 changed, 2 added, 2 removed")
    assert lines[2].startswith("| status ")
    assert len([line for line in lines if line.startswith(("| changed ", "| added ", "| removed "))]) > 5
    assert main(["sass-diff", str(old), str(old), "--exit-code"]) == 0
    assert main(["sass-diff", str(old), str(old / "same.cubin")]) == 2
    assert "two folders of builds or two files" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    assert main(["sass-diff", str(old), str(tmp_path / "empty")]) == NOTHING_BELOW
    assert "no file below it holds device code" in capsys.readouterr().err
    (new / "same.cubin").write_bytes((old / "same.cubin").read_bytes()[:3000])
    assert main(["sass-diff", str(old), str(new)]) == 0
    found = capsys.readouterr()
    assert "images added: 1" in found.out and "truncated" in found.err


def test_a_comment_is_no_longer_than_github_takes() -> None:
    pairs = [
        Pair(with_registers(f"kernel_{number}", 10), with_registers(f"kernel_{number}", 12)) for number in range(2000)
    ]
    change = LibraryChange(Path("old"), Path("new"), pairs)
    whole = change.comment(change.table(False))
    assert len(whole) <= LONGEST_COMMENT < len(change.table(False).markdown())
    shown = whole.count("| changed |")
    assert shown > 300 and f"\nand {2000 - shown} more, which --json has\n" in whole
    assert whole.startswith("old -> new: 2000 kernels: 2000 changed, 2000 more registers\n")
    short = LibraryChange(Path("old"), Path("new"), pairs[:3])
    assert short.comment(short.table(False)).endswith(short.table(False).markdown())


def with_registers(symbol: str, registers: int) -> Figures:
    facts = {"registers": str(registers)}
    return Figures("sm_80", symbol, 0, 0, "", 16, registers, 0, 0, 0, None, facts=facts)


@pytest.mark.parametrize(
    ("fact", "before", "after", "follows"),
    [
        ("exits", "16", "32", True),
        ("registers", "8", "9", True),
        (".text: header", "0x1 0x6 0 128 0 .symtab 198 self", "0x1 0x6 0 128 0 .symtab 205 self", True),
        (".text: header", "0x1 0x6 0 128 0 .symtab 198 self", "0x1 0x6 0 256 0 .symtab 198 self", False),
        ("symbol self", "2 1 0x10 .text 0 17152", "2 1 0x10 .text 0 19456", True),
        ("symbol self", "2 1 0x10 .text 0 17152", "2 1 0x12 .text 0 17152", False),
        ("max threads", "128", "256", False),
        ("shared memory", "0", "16", False),
        ("exits", None, "16", False),
    ],
)
def test_what_other_code_changes_along(fact: str, before: str | None, after: str | None, follows: bool) -> None:
    assert follows_code(fact, before, after) == follows


@pytest.mark.parametrize("arch", ["80", "90"])
def test_counting_parses_no_listing(arch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """That takes twice as long, and is for kernels whose text does not have what their bytes have."""
    path = root() / f"build/device/sm_{arch}.cubin"
    counted = count_library(path, None, None)

    def no_listing(*_: object) -> None:
        raise AssertionError("a listing is parsed")

    monkeypatch.setattr(sass, "disassemble_all", no_listing)
    assert count_library(path, None, None) == counted
    monkeypatch.undo()
    monkeypatch.setattr(sass, "_counted", lambda text: iter(()))
    assert count_library(path, None, None) == counted


def test_a_branch_to_itself_closes_a_kernel() -> None:
    branch, predicated = "/*0090*/  BRA `(.L_x_0) ;", "/*00a0*/  @P0 BRA `(.L_x_0) ;"
    lines = (".L_x_0:", branch, predicated, branch, "/*00c0*/  NOP ;")
    text = "//--------------------- .text.k --------------------------\n" + "\n".join(lines) + "\n"
    assert list(sass._counted(text)) == [("k", {"BRA": 2, "NOP": 1}, 0)]
