"""`./fl new`: the file it writes, what it refuses, and that a version with lines to fill in is not accepted."""

import re
from pathlib import Path

import pytest

from analysis.errors import AnalysisError
from analysis.files import root
from analysis.ladder import new
from analysis.ladder.headers import changed_lines, kernel_files, load, parse_header
from analysis.machine_code import gate

PARENT = """\
/* v07 - a title
 *
 * parent    none
 * idea      the parent's
 *           idea
 * predict   the parent's prediction
 * claims    loop@sm_80=10±2
 * config    (FP16, 128, 64, 64, 4):
 *           async+load_0_0_0_tiles
 * arch      sm_90
 */
#include "common/abi.h"
/* v07 stays in the text */
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "kernels/mma_sync").mkdir(parents=True)
    (tmp_path / "kernels/mma_sync/v07_first.cu").write_text(PARENT)
    return tmp_path


def test_a_copy_of_the_parent_under_the_next_number(folder: Path) -> None:
    """Numbers of removed versions are not used again: records in logs/ carry them."""
    path = new.start(folder, "v07", "wide_loads")
    assert path == folder / "kernels/mma_sync/v53_wide_loads.cu"
    child, parent = load(folder, "v53"), load(folder, "v07")
    assert (child.header.title, child.header.parent, child.header.arch) == ("wide loads", "v07", "sm_90")
    assert child.header.config == parent.header.config and child.header.claims == ()
    assert child.header.to_fill_in == ("idea", "predict", "claims") and parent.header.to_fill_in == ()
    assert changed_lines(parent, child) == 0
    assert "the parent's" not in path.read_text()


def test_nothing_is_overwritten(folder: Path) -> None:
    first = new.start(folder, "v07", "one")
    first.write_text(first.read_text() + "// mine\n")
    assert new.start(folder, "v07", "one").name == "v54_one.cu"
    assert first.read_text().endswith("// mine\n")


@pytest.mark.parametrize("name", ["", "Wide", "wide-loads", "../wide", "2wide", "wide loads", "a:b"])
def test_a_name_that_make_could_not_build_is_refused(folder: Path, name: str) -> None:
    with pytest.raises(AnalysisError, match="lower-case letters, digits and _"):
        new.start(folder, "v07", name)
    assert list(kernel_files(folder)) == ["v07"]


def test_a_parent_that_is_no_version_is_refused(folder: Path) -> None:
    with pytest.raises(AnalysisError, match="no version 'v88'; versions are v07"):
        new.start(folder, "v88", "wide")


@pytest.mark.parametrize("version", list(kernel_files(root())))
def test_every_version_can_be_a_parent(version: str) -> None:
    parent = load(root(), version)
    header = parse_header(new.started(parent, "v98", "idea"), "v98_idea.cu")
    assert (header.config, header.arch, header.parent) == (parent.header.config, parent.header.arch, version)


def test_a_header_with_lines_to_fill_in_is_not_accepted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new.start(folder, "v07", "wide")
    monkeypatch.setattr(gate, "toolkit_version", lambda _: "13.5.37")
    monkeypatch.setattr(gate, "pinned_toolkit", lambda _: "13.5.37")
    with pytest.raises(AnalysisError, match=r"v53_wide.cu: its header block still has .* idea, predict, claims"):
        gate.accept(folder, {"v53": load(folder, "v53")}, ["sm_80"], "early")
    path = kernel_files(folder)["v53"]
    path.write_text(re.sub(r"FILL IN:.*", "said", path.read_text()).replace(" * claims    said\n", ""))
    with pytest.raises(AnalysisError, match=r"v53_wide.cu: no line differs from v07: make its change first"):
        gate.accept(folder, {"v53": load(folder, "v53")}, ["sm_80"], "early")
