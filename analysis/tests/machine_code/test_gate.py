"""The gate: what makes it fail, what leaves it green, and the repository's own build against its baseline.

The first version is built here, whole and damaged in several ways, in a checkout of its own.
"""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.__main__ import main
from analysis.errors import AnalysisError
from analysis.files import root
from analysis.ladder.config import KernelConfig
from analysis.ladder.headers import load, load_all
from analysis.ladder.instances import about_text, instances_text
from analysis.machine_code import gate
from analysis.machine_code.cubin import Cubin
from analysis.machine_code.gate import Accepted, Figures, judge
from analysis.machine_code.sass import Listing, parse_listing, select, with_control
from analysis.machine_code.toolkit import find_tool
from analysis.tests.support.compiled import disassembly

FIGURES = Figures("v09", "sm_80", "(FP16)", 200, 0, 0, 0, 0, 0, 0, 892, 0, 0, "", "hash")
ACCEPTED = Accepted(FIGURES, "source", "13.5.37", "because")


@pytest.mark.parametrize(
    ("figure", "value"),
    [(name, 1 if getattr(FIGURES, name) == 0 else getattr(FIGURES, name) + 1) for name in gate.WORSE_WHEN_MORE],
)
def test_every_figure_that_grows_fails_and_is_named(figure: str, value: int) -> None:
    (finding,) = judge(replace(FIGURES, **{figure: value}), ACCEPTED, "source")  # type: ignore[arg-type]
    assert finding.fails and finding.version == "v09"
    assert (finding.figure, finding.before, finding.after) == (figure, getattr(FIGURES, figure), value)


def test_a_figure_that_shrinks_is_reported_and_does_not_fail() -> None:
    (finding,) = judge(replace(FIGURES, registers=199), ACCEPTED, "source")
    assert (finding.fails, finding.note) == (False, "better: accept it")


def test_a_changed_hash_fails_when_the_source_did_not_change() -> None:
    (finding,) = judge(replace(FIGURES, code_hash="other"), ACCEPTED, "source")
    assert finding.fails and finding.figure == "code_hash"
    (finding,) = judge(replace(FIGURES, code_hash="other"), ACCEPTED, "new source")
    assert not finding.fails
    assert judge(FIGURES, ACCEPTED, "new source") == []


def test_a_new_advisory_fails_and_one_that_went_does_not() -> None:
    accepted = Accepted(replace(FIGURES, advisories="C7510+C7515"), "source", "13.5.37", "because")
    assert judge(replace(FIGURES, advisories="C7515"), accepted, "source") == []
    (finding,) = judge(replace(FIGURES, advisories="C7508+C7510"), accepted, "source")
    assert finding.fails and finding.note == "new: C7508"


def test_a_kernel_without_a_baseline_fails() -> None:
    (finding,) = judge(FIGURES, None, "source")
    assert finding.fails and finding.figure == "baseline"


counts = st.integers(0, 9999)
figures_strategy = st.builds(
    Figures, st.just("v01") | st.just("v02"), st.sampled_from(["sm_80", "sm_90"]), st.text('(a", \n', min_size=1),
    *[counts] * 7, *[st.none() | counts] * 3, st.sampled_from(["", "C7510"]), st.just("hash"),
)  # fmt: skip


accepted_strategy = st.builds(Accepted, figures_strategy, st.just("s"), st.just("13.5"), st.text('because, "\n'))


@given(st.lists(accepted_strategy, max_size=4, unique_by=lambda line: line.figures.key))
def test_baseline_reads_back_equal(lines: list[Accepted]) -> None:
    assert gate.parse_baseline(gate.baseline_text(lines), "b") == {line.figures.key: line for line in lines}


@given(st.text(max_size=100))
def test_any_text_is_a_baseline_or_refused(text: str) -> None:
    for source in (text, ",".join(gate.COLUMNS) + "\n" + text):
        try:
            gate.parse_baseline(source, "b")
        except AnalysisError:
            continue


def test_a_baseline_line_twice_is_refused() -> None:
    text = gate.baseline_text([ACCEPTED, ACCEPTED])
    with pytest.raises(AnalysisError, match="twice"):
        gate.parse_baseline(text, "b")


# ---- a checkout of its own -------------------------------------------------------------------------------------------


def build(folder: Path, sed: tuple[str, str] | None = None, few_registers: bool = False) -> None:
    """Build v01 below `folder` for sm_80 in FP16, with one text in its source replaced by another.

    With few_registers it has 128 registers a thread, which it can't do without spills.
    """
    out = folder / "build/v01"
    out.mkdir(parents=True, exist_ok=True)
    for part in ("kernels", "common", "logs/ptxas", "regs", "sass"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    shutil.copytree(root() / "common", folder / "common", dirs_exist_ok=True)
    original = load(root(), "v01")
    source = original.source
    if sed:
        assert sed[0] in source
        source = source.replace(*sed)
    (folder / "kernels" / original.path.name).write_text(source)
    (folder / "requirements.txt").write_text("nvidia-cuda-nvcc==13.5.37\n")
    (folder / "build/toolkit.h").write_text('#define FL_TOOLKIT "13.5.37"\n')
    (out / "instances.cuh").write_text(instances_text([original.header.config]))
    (out / "about.h").write_text(about_text(original))
    ptx, log = out / "v01.ptx", folder / "logs/ptxas/v01.sm_80.log"
    nvcc: list[str | Path] = [
        find_tool("nvcc"),
        "-std=c++20",
        "-O3",
        "--use_fast_math",
        "-lineinfo",
        "-arch=compute_80",
        "-ptx",
    ]
    subprocess.run(
        [*nvcc, "-I.", "-Ibuild/v01", "-o", ptx, folder / "kernels" / original.path.name], cwd=folder, check=True
    )
    if few_registers:
        text = re.sub(r"^\.(maxntid|minnctapersm|maxnreg).*\n", "", ptx.read_text(), flags=re.MULTILINE)
        ptx.write_text(re.sub(r"(\.entry [^{]*)\{", r"\1.maxnreg 128\n{", text))
    assemble: list[str | Path] = [find_tool("ptxas"), "-O3", "-v", "--generate-line-info", "-arch=sm_80"]
    done = subprocess.run(
        [*assemble, "-o", out / "sm_80.cubin", ptx], capture_output=True, text=True, check=True, cwd=folder
    )
    log.write_text(done.stdout + done.stderr)


def record(folder: Path) -> None:
    """Write the committed files as `make regs sass` does."""
    fresh = gate.measure(folder, load(folder, "v01"), "sm_80")
    (folder / "regs/v01.sm_80.csv").write_text(fresh.regs_text)
    (folder / "sass/v01.sm_80.sass").write_text(fresh.sass_text)


@pytest.fixture(scope="module")
def accepted_build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if os.environ.get("CUDA"):
        pytest.skip("skipped: baseline is for the pinned toolkit, CUDA= names another one")
    folder = tmp_path_factory.mktemp("accepted checkout")
    build(folder)
    record(folder)
    assert gate.accept(folder, load_all(folder), ["sm_80"], "first") == 1
    return folder


@pytest.fixture
def checkout(accepted_build: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the accepted build that commands take for the repository."""
    shutil.copytree(accepted_build, tmp_path, dirs_exist_ok=True)
    monkeypatch.setattr(gate, "root", lambda: tmp_path)
    monkeypatch.setenv("ARCHS", "80")
    yield tmp_path


def failing(capsys: pytest.CaptureFixture[str]) -> dict[str, tuple[str | int, str | int]]:
    """Figure to (before, after) of the findings that `gate` fails on; all must name v01."""
    capsys.readouterr()
    assert main(["gate", "--json", "--exit-code"]) == 1
    said = capsys.readouterr()
    assert 'make accept VER="v01"' in said.err
    found = [finding for finding in json.loads(said.out) if finding["fails"]]
    assert {finding["version"] for finding in found} == {"v01"}
    return {finding["figure"]: (finding["before"], finding["after"]) for finding in found}


def test_an_accepted_build_is_green(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gate", "--exit-code"]) == 0
    assert capsys.readouterr().out == "the build is as accepted\n"


def test_edits_that_change_no_code_are_green(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    header = checkout / "common/ptx_sm80.cuh"
    header.write_text("/* one more comment */\n" + header.read_text())
    build(checkout, sed=(" * predict   ", " * predict   another "))
    assert main(["gate", "--exit-code"]) == 0, capsys.readouterr().out


def test_spills_fail(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build(checkout, few_registers=True)
    found = failing(capsys)
    assert {"stack", "spill_stores", "spill_loads", "ldl", "stl", "loop", "loop_ldl", "code_hash"} <= found.keys()
    assert "registers" not in found


def test_an_extra_register_fails(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    baseline = checkout / "regs/baseline.csv"
    registers = next(iter(gate.read_baseline(checkout).values())).figures.registers
    baseline.write_text(baseline.read_text().replace(f",{registers},", f",{registers - 1},", 1))
    assert failing(capsys) == {"registers": (registers - 1, registers)}


def test_a_longer_loop_fails(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build(checkout, sed=("__syncthreads();", "__syncthreads();\n    __syncthreads();"))
    before, after = failing(capsys)["loop"]
    assert int(after) > int(before)


def test_stale_and_missing_files_fail(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sass = checkout / "sass/v01.sm_80.sass"
    sass.write_text(sass.read_text().replace("HMMA", "IMMA", 1))
    (checkout / "regs/v01.sm_80.csv").unlink()
    assert failing(capsys) == {"regs/v01.sm_80.csv": ("missing", "fresh"), "sass/v01.sm_80.sass": ("stale", "fresh")}


def test_leftovers_of_removed_versions_fail(checkout: Path) -> None:
    shutil.copy(checkout / "regs/v01.sm_80.csv", checkout / "regs/v99.sm_80.csv")
    found = gate.leftover_files(checkout, ["v01"])
    assert [(finding.version, finding.figure) for finding in found] == [("v99", "regs/v99.sm_80.csv")]


def test_another_toolkit_is_skipped_and_never_accepted(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (checkout / "build/toolkit.h").write_text('#define FL_TOOLKIT "13.0.88"\n')
    assert main(["gate", "--exit-code"]) == 0
    assert capsys.readouterr().out == "skipped: baseline is for 13.5.37, this build is of 13.0.88\n"
    assert main(["accept", "--version", "v01", "--why", "no"]) == 2
    assert "the pinned one, 13.5.37" in capsys.readouterr().err


def test_accept_records_the_reason_and_makes_the_gate_green(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build(checkout, few_registers=True)
    record(checkout)
    assert main(["gate", "--exit-code"]) == 1
    assert main(["accept", "--version", "v01", "--why", " fewer  registers "]) == 0
    assert main(["gate", "--exit-code"]) == 0
    (line,) = gate.read_baseline(checkout).values()
    assert line.why == "fewer registers" and line.figures.spill_stores > 0
    assert main(["accept", "--version", "v01", "--why", "again"]) == 0
    (line,) = gate.read_baseline(checkout).values()
    assert line.why == "fewer registers"
    capsys.readouterr()
    for arguments, word in (
        (["--why", "x"], "--version is missing"),
        (["--version", "v01", "--why", " "], "--why is empty"),
        (["--version", "v77", "--why", "x"], "no version 'v77'"),
    ):
        assert main(["accept", *arguments]) == 2
        assert word in capsys.readouterr().err


def test_a_version_that_is_not_built_is_refused(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (checkout / "build/v01/sm_80.cubin").unlink()
    assert main(["gate"]) == 2
    assert "run `make v01`" in capsys.readouterr().err


# ---- the repository's own build --------------------------------------------------------------------------------------


def own_archs() -> list[str]:
    return [f"sm_{arch}" for arch in (os.environ.get("ARCHS") or gate.DEFAULT_ARCHS).split()]


def kept_listing(path: Path, config: KernelConfig) -> Listing:
    """As disassemble() makes it, from what nvdisasm printed of this cubin when it was new."""
    cubin = Cubin.read(path)
    kernel = select(cubin.entries, config, path.name)
    found = parse_listing(disassembly(path, "-c", "-fun", str(kernel.index)))
    (own,) = (listing for listing in found if listing.symbol == kernel.symbol)
    return with_control(replace(own, arch=cubin.arch), kernel)


@pytest.mark.parametrize("name", list(load_all(root())))
def test_the_build_is_as_accepted(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "disassemble", kept_listing)
    baseline = gate.read_baseline(root())
    reason = gate.skip_reason(root(), baseline)
    if reason:
        pytest.skip(reason)
    found = gate.check(root(), {name: load(root(), name)}, own_archs())
    fails = [finding for finding in found if finding.fails]
    assert fails == [], gate.accept_line([name])


def test_nothing_is_left_of_removed_versions() -> None:
    assert gate.leftover_files(root(), load_all(root())) == []
