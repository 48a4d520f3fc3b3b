"""The gate: what makes it fail, what leaves it green, and the repository's own build against the accepted figures.

The first version is built here, whole and damaged in several ways, in a checkout of its own.
"""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from analysis.__main__ import main
from analysis.files import root
from analysis.ladder.config import KernelConfig
from analysis.ladder.headers import load, load_all, load_off_ladder
from analysis.ladder.instances import about_text, instances_text
from analysis.machine_code import gate, loops
from analysis.machine_code.contents import code_summary
from analysis.machine_code.cubin import OPCODE_MASK, Cubin
from analysis.machine_code.loops import figures_of, parts_of, read_loops
from analysis.machine_code.ptxas_log import read_log
from analysis.machine_code.regs import (
    FIGURES,
    Accepted,
    Row,
    merge_registers,
    read_accepted,
    read_registers,
    registers_path,
    rows_of_code,
)
from analysis.machine_code.sass import (
    Control,
    Instruction,
    Listing,
    format_listing,
    parse_listing,
    select,
    with_control,
)
from analysis.machine_code.toolkit import find_tool
from analysis.tests.support.kinds import newest_off_ladder, one_of_each_kind

ROW = Row("(FP16)", "sm_90", 200, 0, 0, 0, 0, 1, "424[0]", "hash", 0, 0)
KEY = ("v09", "sm_90", "(FP16)")
ACCEPTED = Accepted(gate.figures_hash(ROW), "", "source", "13.5.37", "because")


def judge(
    row: Row = ROW, advisories: str = "", accepted: Accepted | None = ACCEPTED, source: str = "source"
) -> list[str]:
    found = gate.judge(row, advisories, accepted, KEY, source)
    return [f"{one.figure}: {one.note}" for one in found]


@pytest.mark.parametrize("figure", [*FIGURES, "cmem", "code_hash"])
def test_every_figure_that_is_not_the_recorded_one_is_named(figure: str) -> None:
    recorded = getattr(ROW, figure)
    other = recorded + 1 if isinstance(recorded, int) else "other"
    (finding,) = gate.compare_rows("v09", [replace(ROW, **{figure: other})], [ROW])  # type: ignore[arg-type]
    assert (finding.version, finding.arch, finding.config) == KEY
    assert (finding.figure, finding.before, finding.after) == (figure, recorded, other)
    assert finding.note == ("changed" if figure in ("barriers", "cmem", "code_hash") else "worse")
    assert judge(replace(ROW, **{figure: other}))  # type: ignore[arg-type]


def test_a_figure_that_shrinks_is_better_and_needs_to_be_recorded() -> None:
    (finding,) = gate.compare_rows("v09", [replace(ROW, registers=199)], [ROW])
    assert finding.note == "better"
    assert gate.compare_rows("v09", [ROW], [ROW]) == []


def test_a_kernel_more_or_less_than_recorded_is_a_finding() -> None:
    other = replace(ROW, config="(BF16)")
    (finding,) = gate.compare_rows("v09", [ROW, other], [ROW])
    assert (finding.config, finding.before, finding.after) == ("(BF16)", "absent", "built")
    (finding,) = gate.compare_rows("v09", [ROW], [ROW, other])
    assert (finding.config, finding.before, finding.after) == ("(BF16)", "there", "not built")


def test_figures_that_nobody_accepted_fail_whatever_is_recorded() -> None:
    other = replace(ROW, code_hash="other")
    assert judge() == judge(source="new source") == []
    assert judge(other) == ["accepted: the figures changed though the source did not"]
    assert judge(other, source="new source") == ["accepted: the source changed: accept its figures"]


def test_a_new_advisory_fails_and_one_that_went_does_not() -> None:
    accepted = replace(ACCEPTED, advisories="C7510+C7515")
    assert judge(advisories="C7515", accepted=accepted) == []
    assert judge(advisories="", accepted=accepted) == []
    assert judge(advisories="C7508+C7510", accepted=accepted) == ["advisories: new: C7508"]


FENCE = Instruction(0, "", "MEMBAR.SC.GPU", "", Control.of_word(5 << 105 | 7 << 110 | 7 << 113))


def with_more(listing: Listing, more: Callable[[Instruction], list[Instruction]]) -> Listing:
    """The code with further instructions after some; later ones move on, and labels with them."""
    placed: list[Instruction] = []
    moved = {}
    for at in listing.instructions:
        moved[at.address] = 16 * len(placed)
        placed += [at, *more(at)]
    code = tuple(replace(at, address=16 * index) for index, at in enumerate(placed))
    return replace(listing, instructions=code, labels={name: moved[at] for name, at in listing.labels.items()})


@pytest.fixture(scope="module")
def static_stride() -> Listing:
    path = root() / "sass/v16.sm_90.sass"
    return parse_listing(path.read_text(), str(path))[0]


def against_accepted(listing: Listing) -> dict[str, tuple[object, object, str]]:
    """The gate's report on v16 with other machine code, once the listing of that code is committed."""
    fresh = gate.Fresh("v16", "sm_90", [], listing, "", format_listing(listing))
    found = gate.compare_loops(fresh, read_loops(root())["v16", "sm_90"])
    assert {one.version for one in found} <= {"v16"}
    return {one.figure: (one.before, one.after, one.note) for one in found if not one.figure.endswith(": first")}


def test_the_committed_code_has_the_accepted_figures(static_stride: Listing) -> None:
    assert against_accepted(static_stride) == {}


@pytest.mark.parametrize("role", ["16 heads", "any stride"])
def test_fences_in_a_loop_are_named_with_that_loop(role: str, static_stride: Listing) -> None:
    """Also in the loop that runs, which is not the longest, and in the one that does not."""
    parts = parts_of(static_stride, role)
    size, last = len(parts.loop), parts.loop[100].address
    found = against_accepted(with_more(static_stride, lambda at: [FENCE] * 205 if at.address == last else []))
    number = {"any stride": 1, "16 heads": 2}[role]
    name = f"loop {number} ({role})"
    accepted = figures_of(parts.loop)
    assert found == {
        f"{name}: instructions": (size, size + 205, "worse"),
        f"{name}: synchronisation": (accepted.synchronisation, accepted.synchronisation + 205, "worse"),
        f"{name}: stalls": (accepted.stalls, accepted.stalls + 5 * 205, "worse"),
    }
    if role == "16 heads":
        assert size == 867


def test_a_loop_more_or_less_is_a_finding(static_stride: Listing) -> None:
    fresh = gate.Fresh("v16", "sm_90", [], static_stride, "", "")
    first, *others = read_loops(root())["v16", "sm_90"]
    (finding,) = gate.compare_loops(fresh, others)
    assert (finding.figure, finding.before, finding.after) == ("KV loops", 1, 2)
    (finding,) = gate.compare_loops(fresh, [])
    assert (finding.figure, finding.note) == ("regs/loops.csv", "not accepted yet")
    other = replace(first, first="0010")
    (finding,) = gate.compare_loops(fresh, [other, *others])
    assert (finding.figure, finding.before, finding.after) == ("loop 1 (any stride): first", "0010", first.first)


def test_the_source_is_what_stands_below_the_header_block() -> None:
    version = load(root(), "v01")
    first, last = version.body()[0], version.body()[-1]
    assert gate.source_hash(version) != gate.source_hash(replace(version, source=version.source + "\n// more"))
    for line in (first, next(line for line in version.body() if "__syncthreads" in line), last):
        changed = replace(version, source=version.source.replace(line, line + " // note", 1))
        assert changed.body() != version.body()
        assert gate.source_hash(changed) != gate.source_hash(version)
    other_header = replace(version, source=version.source.replace(" * predict   ", " * predict   another ", 1))
    assert other_header.source != version.source
    assert gate.source_hash(other_header) == gate.source_hash(version)


def build(folder: Path, sed: tuple[str, str] | None = None, few_registers: bool = False) -> None:
    """Build v01 below `folder` for sm_90 in FP16, with one text in its source replaced by another.

    With few_registers it has 128 registers per thread, which it can't do without spills.
    """
    out = folder / "build/v01"
    out.mkdir(parents=True, exist_ok=True)
    for part in ("kernels/mma_sync", "common", "logs/ptxas", "regs", "sass"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    shutil.copytree(root() / "common", folder / "common", dirs_exist_ok=True)
    original = load(root(), "v01")
    source = original.source
    if sed:
        assert sed[0] in source
        source = source.replace(*sed)
    (folder / "kernels" / original.file).write_text(source)
    (folder / "requirements.lock").write_text("nvidia-cuda-nvcc==13.5.37\n")
    (folder / "build/toolkit.h").write_text('#define FL_TOOLKIT "13.5.37"\n')
    (out / "instances.cuh").write_text(instances_text([original.header.config]))
    (out / "about.h").write_text(about_text(original))
    ptx, log = out / "v01.ptx", folder / "logs/ptxas/v01.sm_90.log"
    nvcc: list[str | Path] = [
        find_tool("nvcc"),
        "-std=c++20",
        "-O3",
        "--use_fast_math",
        "-lineinfo",
        "-arch=compute_80",
        "-ptx",
    ]
    subprocess.run([*nvcc, "-I.", "-Ibuild/v01", "-o", ptx, folder / "kernels" / original.file], cwd=folder, check=True)
    if few_registers:
        text = re.sub(r"^\.(maxntid|minnctapersm|maxnreg).*\n", "", ptx.read_text(), flags=re.MULTILINE)
        ptx.write_text(re.sub(r"(\.entry [^{]*)\{", r"\1.maxnreg 128\n{", text))
    assemble: list[str | Path] = [find_tool("ptxas"), "-O3", "-v", "--generate-line-info", "-arch=sm_90"]
    done = subprocess.run(
        [*assemble, "-o", out / "sm_90.cubin", ptx], capture_output=True, text=True, check=True, cwd=folder
    )
    log.write_text(done.stdout + done.stderr)


def record(folder: Path) -> None:
    """Write the committed files as `make regs sass` does."""
    fresh = gate.measure(folder, load(folder, "v01"), "sm_90")
    merge_registers(folder, [("v01", fresh.rows)])
    (folder / "sass/v01.sm_90.sass").write_text(fresh.sass_text)


@pytest.fixture(scope="module", autouse=True)
def short_problems() -> Iterator[None]:
    """`accept` emulates little here, because these tests do not check how often a loop runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loops, "PROBLEMS", tuple(replace(problem, seq=128) for problem in loops.PROBLEMS))
        yield


@pytest.fixture(scope="module")
def accepted_build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if os.environ.get("CUDA"):
        pytest.skip("skipped: accepted figures are of the pinned toolkit, CUDA= names another one")
    folder = tmp_path_factory.mktemp("accepted checkout")
    build(folder)
    record(folder)
    assert gate.accept(folder, load_all(folder), ["sm_90"], "first") == 1
    return folder


@pytest.fixture
def checkout(accepted_build: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the accepted build that commands take for the repository."""
    shutil.copytree(accepted_build, tmp_path, dirs_exist_ok=True)
    monkeypatch.setattr(gate, "root", lambda: tmp_path)
    monkeypatch.setenv("ARCHS", "90")
    yield tmp_path


def failing(capsys: pytest.CaptureFixture[str]) -> dict[str, tuple[str | int, str | int]]:
    """Figure to (before, after) of the findings that `gate` fails on; all must name v01."""
    capsys.readouterr()
    assert main(["gate", "--json", "--exit-code"]) == 1
    said = capsys.readouterr()
    assert 'make accept VER="v01"' in said.err
    found = json.loads(said.out)["rows"]
    assert {finding["version"] for finding in found} == {"v01"}
    return {finding["figure"]: (finding["before"], finding["after"]) for finding in found}


def test_an_accepted_build_is_green(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gate", "--exit-code"]) == 0
    assert capsys.readouterr().out == "the build is as accepted\n"


def test_spills_fail(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build(checkout, few_registers=True)
    found = failing(capsys)
    assert {"stack", "spill_stores", "spill_loads", "ldl", "stl", "code_hash"} <= found.keys()
    loop = "loop 1 (every problem)"
    assert {f"{loop}: instructions", f"{loop}: local_loads"} <= found.keys()
    assert int(found["stack"][1]) > int(found["stack"][0]) and int(found["registers"][1]) < int(found["registers"][0])


def test_a_longer_loop_fails_also_when_it_is_recorded(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build(checkout, sed=("__syncthreads();", "__syncthreads();\n    __syncthreads();"))
    longer = {f"loop 1 (every problem): {name}" for name in ("instructions", "synchronisation", "stalls")}
    found = failing(capsys)
    assert found.keys() >= {*longer, "code_hash", "accepted"}
    before, after = map(int, found["loop 1 (every problem): synchronisation"])
    assert after > before
    record(checkout)
    found = failing(capsys)
    assert found.keys() >= {*longer, "accepted"} and "code_hash" not in found


def test_stale_and_missing_files_fail(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sass = checkout / "sass/v01.sm_90.sass"
    sass.write_text(sass.read_text().replace("HMMA", "IMMA", 1))
    registers_path(checkout).unlink()
    found = failing(capsys)
    assert found.pop("accepted")[0] == "nothing"
    assert found == {"regs/registers.csv": ("absent", "built"), "sass/v01.sm_90.sass": ("stale", "fresh")}
    sass.unlink()
    assert failing(capsys)["sass/v01.sm_90.sass"] == ("missing", "fresh")


def test_leftovers_of_removed_versions_fail(checkout: Path) -> None:
    for name in ("regs/registers.csv", "regs/loops.csv"):
        path = checkout / name
        path.write_text(path.read_text() + path.read_text().splitlines()[1].replace("v01", "v99", 1) + "\n")
    shutil.copy(checkout / "sass/v01.sm_90.sass", checkout / "sass/v99.sm_90.sass")
    found = gate.leftover_files(checkout, ["v01"])
    assert [finding.figure for finding in found] == [*("sass/v99.sm_90.sass", "regs/registers.csv", "regs/loops.csv")]
    assert {finding.version for finding in found} == {"v99"}


def test_another_toolkit_is_skipped_and_never_accepted(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (checkout / "build/toolkit.h").write_text('#define FL_TOOLKIT "13.0.88"\n')
    assert main(["gate", "--exit-code"]) == 0
    assert capsys.readouterr().out == "skipped: the accepted figures are of 13.5.37, this build is of 13.0.88\n"
    assert main(["accept", "--version", "v01", "--why", "no"]) == 2
    assert "the pinned one, 13.5.37" in capsys.readouterr().err


def test_accept_records_the_reason_and_makes_the_gate_green(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build(checkout, few_registers=True)
    record(checkout)
    assert main(["gate", "--exit-code"]) == 1
    assert main(["accept", "--version", "v01", "--why", " fewer  registers "]) == 0
    record(checkout)  # keeps what was accepted
    assert main(["gate", "--exit-code"]) == 0
    (line,) = read_accepted(checkout).values()
    assert line.why == "fewer registers"
    assert main(["accept", "--version", "v01", "--why", "again"]) == 0
    (line,) = read_accepted(checkout).values()
    assert line.why == "fewer registers"
    capsys.readouterr()
    for arguments, word in (
        (["--why", "x"], "--version: missing"),
        (["--version", "v01", "--why", " "], "--why: must not be empty"),
        (["--version", "v77", "--why", "x"], "no version 'v77'"),
    ):
        assert main(["accept", *arguments]) == 2
        assert word in capsys.readouterr().err


def test_a_version_that_is_not_built_is_refused(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (checkout / "build/v01/sm_90.cubin").unlink()
    assert main(["gate"]) == 2
    assert "run `make v01 ARCHS=90`" in capsys.readouterr().err


def own_archs() -> list[str]:
    return [f"sm_{arch}" for arch in (os.environ.get("ARCHS") or gate.DEFAULT_ARCHS).split()]


BRA = 0x947


def committed_listing(path: Path, choice: KernelConfig) -> Listing:
    """The listing of a kernel as it is committed, with the control codes of the cubin that is built."""
    file = root() / f"sass/{path.parent.name}.{path.stem}.sass"
    (listing,) = parse_listing(file.read_text(), str(file))
    kernel = select(Cubin.read(path).entries, choice, str(path))
    listed = {at.address: at for at in listing.instructions}
    for address in range(0, 16 * len(kernel.words), 16):
        # A listing leaves out the branch to itself that closes the code.
        if address not in listed and kernel.words[address // 16] & OPCODE_MASK == BRA:
            listed[address] = Instruction(address, "", "BRA", f"{address:#x}")
    return with_control(replace(listing, instructions=tuple(listed[at] for at in sorted(listed))), kernel)


@pytest.mark.parametrize("name", [*load_all(root()), *load_off_ladder(root())])
def test_the_machine_code_is_as_accepted(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without nvdisasm, which takes half a second for each cubin: the next test runs it for a version of each kind.

    The hash of the code is the accepted one, and every instruction of the listing has the built control code. For an
    architecture without a listing in sass/, the metrics and the hash are compared.
    """
    reason = gate.skip_reason(root())
    if reason:
        pytest.skip(reason)
    monkeypatch.setattr(gate, "disassemble", committed_listing)
    version, listed = load(root(), name), []
    for arch in version.archs(own_archs()):
        if (root() / f"sass/{version.stem}.{arch}.sass").exists():
            listed.append(arch)
            continue
        log = read_log(root() / f"logs/ptxas/{version.stem}.{arch}.log")
        rows = rows_of_code(log, code_summary(gate.cubin_of(root(), version, arch)))
        recorded = [row for row in read_registers(root())[name] if row.arch == arch]
        assert_accepted(gate.compare_rows(name, rows, recorded))
    assert_accepted(gate.check(root(), {name: version}, listed))


@pytest.mark.parametrize("name", [*one_of_each_kind(load_all(root())), *newest_off_ladder()])
def test_the_build_is_as_accepted(name: str) -> None:
    reason = gate.skip_reason(root())
    if reason:
        pytest.skip(reason)
    assert_accepted(gate.check(root(), {name: load(root(), name)}, own_archs()))


def assert_accepted(found: list[gate.Finding]) -> None:
    """A failure prints the figures and the line that accepts them."""
    assert not found, f"\n{gate.differences(found).text()}{gate.accept_line(one.version for one in found)}"


def test_nothing_is_left_of_removed_versions() -> None:
    assert gate.leftover_files(root(), load_all(root()) | load_off_ladder(root())) == []
