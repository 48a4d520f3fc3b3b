"""All kernels of a library: counted, and paired with those of another build."""

import json
import shutil
from pathlib import Path

import pytest

from analysis.__main__ import main
from analysis.errors import NOTHING_BELOW
from analysis.machine_code.library import Figures, follows_code, pair_kernels
from analysis.tests.support.compiled import cubin

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
    assert "must be two folders or two files" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    assert main(["sass-diff", str(old), str(tmp_path / "empty")]) == NOTHING_BELOW
    assert "no file below it holds device code" in capsys.readouterr().err
    (new / "same.cubin").write_bytes((old / "same.cubin").read_bytes()[:3000])
    assert main(["sass-diff", str(old), str(new)]) == 0
    found = capsys.readouterr()
    assert "images added: 1" in found.out and "truncated" in found.err


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
