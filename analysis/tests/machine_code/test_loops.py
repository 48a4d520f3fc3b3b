"""The KV loop of a kernel that runs: the record, the choice, and the emulator's counts."""

from dataclasses import replace
from pathlib import Path

import pytest

from analysis.__main__ import main
from analysis.errors import AnalysisError
from analysis.files import root
from analysis.ladder.headers import load
from analysis.machine_code import loops, regions
from analysis.machine_code.loops import REST, Part, Problem, find, loops_of, parts_of, read_loops
from analysis.machine_code.regions import Graph, split
from analysis.machine_code.sass import Listing, parse_listing
from analysis.machine_code.subjects import resolve, start
from analysis.tests.support.compiled import landed

SHORT = (Problem(16, 256, 1), Problem(16, 128, 1), Problem(2, 128, 1))  # instead of PROBLEMS: quick to emulate


def committed(version: str, arch: str = "sm_90") -> Listing:
    path = root() / f"sass/{version}.{arch}.sass"
    return parse_listing(path.read_text(), str(path))[0]


@pytest.fixture(scope="module")
def static_stride() -> Listing:
    return committed("v16")


def recorded(version: str, arch: str = "sm_90") -> dict[str, Part]:
    return {part.role: part for part in read_loops(root())[version, arch]}


def test_the_loop_that_runs_is_taken_and_not_the_first_of_the_largest(static_stride: Listing) -> None:
    """Both loops of v16 hold 256 matrix instructions; the one for any stride comes first."""
    running, first = parts_of(static_stride), split(static_stride)
    assert f"{running.kv.header:04x}" == recorded("v16")["16 heads"].first
    assert f"{first.kv.header:04x}" == recorded("v16")["any stride"].first
    assert running.matrix_count == first.matrix_count == 256
    assert len(running.loop) == recorded("v16")["16 heads"].figures.instructions < len(first.loop)


def test_a_loop_is_chosen_by_number_role_and_address(static_stride: Listing) -> None:
    graph = Graph(static_stride)
    any_stride, heads = loops_of(graph)
    for wanted, expected in (
        ("1", any_stride),
        ("any stride", any_stride),
        (f"{any_stride.loop.header:04x}", any_stride),
        ("2", heads),
        ("16 heads", heads),
        (f"0x{heads.loop.header:x}", heads),
    ):
        assert find(loops_of(graph), wanted, "v16") == expected
    with pytest.raises(AnalysisError, match=r"--loop 3: v16 has no such loop; it has loop 1 \(any stride\) at "):
        find(loops_of(graph), "3", "v16")


def test_a_kernel_of_other_code_has_no_record(static_stride: Listing) -> None:
    """One instruction more in a loop, another architecture or another config: none of them is the recorded kernel."""
    assert all(each.recorded for each in loops_of(Graph(static_stride)))
    for other in (
        replace(static_stride, arch="sm_80"),
        replace(static_stride, symbol=str(load(root(), "v07").header.config)),
        replace(static_stride, instructions=static_stride.instructions[1:]),
    ):
        parts = parts_of(other)
        if other.instructions == static_stride.instructions:
            assert not any(each.recorded for each in loops_of(Graph(other)))
            assert parts.kv.header == split(other).kv.header
            assert "which of them runs is not recorded" in (loops.note_on(parts) or "")


def test_commands_show_the_loop_that_was_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    path = str(root() / "sass/v16.sm_90.sass")
    roles = recorded("v16")
    assert main(["loop", path, "--csv"]) == 0
    said = capsys.readouterr()
    assert f"TOTAL,{roles['16 heads'].figures.instructions}\n" in said.out
    assert f"loop 2 (16 heads) of 2 at {roles['16 heads'].first}: the one that runs" in said.err
    assert main(["sass", path, "--loop", "any stride"]) == 0
    assert capsys.readouterr().out.count(";") == roles["any stride"].figures.instructions
    assert main(["bound", path, "--loop", "tail slice"]) == 2
    assert "it has loop 1 (any stride)" in capsys.readouterr().err


def test_a_kernel_without_a_record_is_emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    """As another configuration of a version is. A listing cannot be, nor a cubin where ptxrun is not built."""
    monkeypatch.setattr(loops, "loops_path", lambda _: Path("nothing"))
    monkeypatch.setattr(loops, "PROBLEMS", SHORT)
    subject = resolve("v16", "sm_90")
    listing = start(subject).listing()
    parts = parts_of(listing, None, subject)
    assert (loops.note_on(parts) or "").startswith("loop 2 (16 heads) of 2 at ")
    monkeypatch.setattr(loops, "PTXRUN", Path("nothing"))
    for of in (subject, None):
        parts = parts_of(listing, None, of)
        assert (loops.note_on(parts) or "").startswith("loop 1 of 2 at ")
        assert "which of them runs is not recorded" in (loops.note_on(parts) or "")


def descent(version: str) -> list[str]:
    """The version, its parent, the parent's parent and so on."""
    parent = load(root(), version).header.parent
    return [version, *(descent(parent) if parent else [])]


def test_every_version_has_a_record_of_both_architectures() -> None:
    parts = read_loops(root())
    assert [subject for subject in parts if subject[0].startswith("v")] == landed()  # the others stay
    for version, arch in landed():
        kernel = parts[version, arch]
        assert {part.config for part in kernel} == {str(load(root(), version).header.config)}
        assert [part.part for part in kernel] == [*map(str, range(1, len(kernel))), REST]
        assert loops.NEVER not in {part.role for part in kernel}
        if version == "v00":  # it multiplies without matrix instructions: none of its loops has a name
            assert len(kernel) == 1
            continue
        running = max(kernel, key=lambda part: part.passes)
        static_stride = "v16" in descent(version)
        of_warps = "16 heads" if static_stride else "every problem"
        assert running.role == of_warps if arch != "sm_90a" else running.role.startswith(regions.CONSUMER)


def test_the_emulator_tells_the_copies_of_a_kernel_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """On shorter sequences than the record's: the same roles and addresses, and as many passes as there must be."""
    monkeypatch.setattr(loops, "PROBLEMS", SHORT)
    config = load(root(), "v16").header.config
    found = loops.measure_loops(resolve("v16", "sm_90"), "v16")
    passes = 256 // config.B_r * (256 // config.B_c - 1) * config.n_warps  # the first block is peeled
    assert [(part.role, part.first, part.passes) for part in found] == [
        ("any stride", recorded("v16")["any stride"].first, 0),
        ("16 heads", recorded("v16")["16 heads"].first, passes),
        ("", "", config.n_warps),  # of one Q block
    ]
    # K of the next block is copied in all passes but the last.
    (share,) = loops.read_shares(found[1].shares).values()
    assert share == pytest.approx(1 - 1 / (256 // config.B_c - 1), abs=1e-4)


@pytest.mark.long
@pytest.mark.parametrize("version", dict.fromkeys(version for version, _ in landed()))
def test_the_record_is_what_the_emulator_counts(version: str) -> None:
    """One test for both architectures: what the emulator counts in the one PTX is shared in a process."""
    for arch in (arch for name, arch in landed() if name == version):
        assert loops.measure_loops(resolve(version, arch), version) == read_loops(root())[version, arch]
