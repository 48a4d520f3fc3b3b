"""The kernels of kernels/attention/: short functions, a header block that says what is built, and names."""

import re
from pathlib import Path

import pytest

from analysis.errors import AnalysisError
from analysis.files import root
from analysis.ladder.c_source import closing_bracket, without_comments
from analysis.ladder.config import parse_short_form
from analysis.ladder.headers import (
    load,
    load_all,
    load_attention,
    load_chosen,
    name_of_stem,
    read_version,
    refusals,
    stem_of,
)
from analysis.ladder.instances import select

KERNELS = load_attention(root())
SOURCES = sorted((root() / "kernels/attention").glob("*.cu*"))
LONGEST = 42
WGMMA = "(FP16, 128, 128, 128, 8): wgmma+stages_2+exp_32+ping_pong"


def function_lengths(source: str) -> dict[str, int]:
    """Lines of every function's signature and body, by name; of several of one name the most."""
    bare, found = without_comments(source), dict[str, int]()
    for start in re.finditer(r"\b__(?:device|global)__\b[^;{}]*?(\w+)\([^;{}]*\{", bare):
        end = closing_bracket(bare, start.end() - 1, "{", "}", "source")
        found[start[1]] = max(found.get(start[1], 0), bare.count("\n", start.start(), end) + 1)
    return found


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_functions_fit_a_screen(path: Path) -> None:
    lengths = function_lengths(path.read_text())
    assert lengths and {name: lines for name, lines in lengths.items() if lines > LONGEST} == {}


def test_instances_are_those_of_the_header() -> None:
    for kernel in KERNELS.values():
        built, cut = select(kernel, "default")
        header = kernel.header
        assert not cut and len(built) == 2 * len((header.config, *header.additional))
        assert [each.kernel for each in built if each.family.name != "ladder"] == [kernel.name] * len(built)


def test_a_kernel_is_found_by_its_name_and_by_that_of_its_files() -> None:
    assert {"attention/mma_sync", "attention/wgmma"} <= KERNELS.keys()
    for name, kernel in KERNELS.items():
        assert load(root(), name).path == load(root(), kernel.stem).path == kernel.path
        assert name_of_stem(stem_of(name)) == name and "/" not in stem_of(name)
    assert list(load_chosen(root(), "v01 attention.wgmma")) == ["v01", "attention/wgmma"]
    assert not KERNELS.keys() & load_all(root()).keys()
    assert not any(kernel.header.parent for kernel in KERNELS.values())
    assert KERNELS["attention/fp8_mma_scaled"].archs(["sm_80", "sm_90"]) == ["sm_120a"]
    with pytest.raises(AnalysisError, match="no version 'attention/none'"):
        load(root(), "attention/none")


def test_configurations_of_another_kernel_are_refused() -> None:
    wgmma, config = KERNELS["attention/wgmma"], parse_short_form(WGMMA)
    assert not refusals(wgmma, config)
    assert refusals(KERNELS["attention/mma_sync"], config)
    assert refusals(wgmma, load(root(), "v37").header.config)
    assert refusals(load(root(), "v37"), config)
    assert refusals(wgmma, config.replace(exp_columns=0)) and refusals(wgmma, config.replace(B_c=32))
    assert refusals(wgmma, config.replace(stages=4)) == [
        "shared memory must be at most 232448 bytes, what a CTA of sm_90a may have"
    ]


def test_the_header_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "kernels/attention/other.cu"
    path.parent.mkdir(parents=True)
    path.write_text(KERNELS["attention/wgmma"].source)
    with pytest.raises(AnalysisError, match="the header says attention/wgmma, the file is attention/other"):
        read_version(path)
