"""Header blocks, the list of versions, and the budget of changed lines."""

import statistics
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.__main__ import main
from analysis.errors import AnalysisError
from analysis.files import root
from analysis.ladder.config import FIELDS, Field
from analysis.ladder.headers import (
    Header,
    changed_lines,
    kernel_files,
    load,
    load_all,
    load_chosen,
    parse_header,
    read_version,
    source_diff,
)

GOOD = """/* v10 - peel the first KV block
 *
 * parent    v09
 * idea      the first block has no previous maximum: give it
 *           its own copy
 * predict   loop 892 -> about 870
 * claims    loop@sm_80=870±2% speedup@4096=1.01..1.03
 * config    (FP16, 128, 128, 64, 4): async+eager+swizzled+load_2_2_2_tiles+opt_softmax
 * arch      sm_80
 */
body
"""


def test_header_is_read() -> None:
    header = parse_header(GOOD, "k.cu")
    assert (header.version, header.title, header.parent) == ("v10", "peel the first KV block", "v09")
    assert header.idea == "the first block has no previous maximum: give it its own copy"
    assert header.predict == "loop 892 -> about 870"
    assert [claim.text for claim in header.claims] == ["loop@sm_80=870±2%", "speedup@4096=1.01..1.03"]
    assert (header.config.B_r, header.arch, header.lines) == (128, "sm_80", 10)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("/* v10 - peel", "/* v10 peel", ["k.cu:1", "vNN - title"]),
        (" * idea   ", " * idae   ", ["k.cu:4", "'idae'"]),
        (" * predict   loop", " * idea      loop", ["k.cu:6", "repeated", "line 4"]),
        (" * parent    v09\n", "", ["lacks parent"]),
        ("parent    v09", "parent    nine", ["k.cu:3", "'nine'"]),
        ("parent    v09", "parent    v10", ["k.cu:3", "its own parent"]),
        ("load_2_2_2_tiles", "load_2_2_tiles", ["k.cu:8", "'load_2_2_tiles'"]),
        ("sm_80", "ampere", ["k.cu:9", "'ampere'"]),
        ("speedup@4096", "speedup@sm_80", ["k.cu:7", "'speedup@sm_80=1.01..1.03'", "a length"]),
        (" */\n", "", ["k.cu"]),
        (" * parent    v09", " * parent v09", ["k.cu:3", "two or more spaces"]),
        (" * parent    v09", "parent    v09", ["k.cu:3"]),
    ],
)
def test_a_bad_header_is_refused_with_its_line(old: str, new: str, words: list[str]) -> None:
    assert old in GOOD
    with pytest.raises(AnalysisError) as error:
        parse_header(GOOD.replace(old, new), "k.cu")
    assert all(word in str(error.value) for word in words), str(error.value)


def test_configs_for_other_sizes_of_heads() -> None:
    forms = "(FP16, 64, 128, 64, 4): load_0_0_0_tiles;\n *           (FP16, 256, 64, 32, 4): load_0_0_0_tiles"
    source = GOOD.replace(" * arch", f" * others    {forms}\n * arch")
    assert [config.d_head for config in parse_header(source, "k.cu").others] == [64, 256]
    assert parse_header(GOOD, "k.cu").others == ()
    with pytest.raises(AnalysisError, match=r"k.cu:9: config and others must have .* each, found 128, 64, 64"):
        parse_header(source.replace("256", "64"), "k.cu")
    with pytest.raises(AnalysisError, match=r"k.cu:9: .*unknown feature 'turbo'"):
        parse_header(source.replace("load_0_0_0_tiles;", "turbo;"), "k.cu")


def first_version(one_arch: bool, has: Callable[[Header], object]) -> str:
    """The first version whose header has something, of those for sm_90a alone or of the others; "" where none has."""
    versions = (each for each in load_all(root()).values() if each.one_arch is one_arch and has(each.header))
    return next((version.version for version in versions), "")


@pytest.mark.parametrize("row", FIELDS.values(), ids=lambda row: row.name)
def test_a_row_names_the_first_versions_with_the_field(row: Field) -> None:
    """In use in a header: of mma_sync, of wgmma."""
    first = [first_version(one_arch, lambda header: getattr(header.config, row.name)) for one_arch in (False, True)]
    assert [row.mma_sync, row.wgmma] == first


@given(st.text(max_size=200))
def test_any_text_is_a_header_or_an_error(text: str) -> None:
    for source in (text, GOOD[:60] + text, GOOD.replace("v09", text)):
        try:
            parse_header(source, "k.cu")
        except AnalysisError:
            continue


def write(root: Path, name: str, text: str = GOOD) -> None:
    (root / "kernels/mma_sync").mkdir(parents=True, exist_ok=True)
    (root / "kernels/mma_sync" / name).write_text(text)


def test_versions_come_from_file_names(tmp_path: Path) -> None:
    write(tmp_path, "v10_peel.cu")
    write(tmp_path, "v09_rows.cu", GOOD.replace("v10", "v09", 1).replace("parent    v09", "parent    none"))
    write(tmp_path, "notes.cu")
    assert list(kernel_files(tmp_path)) == ["v09", "v10"]
    assert load(tmp_path, "v10").name == "peel"
    assert list(load_chosen(tmp_path, "v10 v09")) == ["v10", "v09"]
    assert list(load_chosen(tmp_path, "")) == ["v09", "v10"]
    with pytest.raises(AnalysisError, match="no version 'v11'; there are: v09 v10"):
        load(tmp_path, "v11")
    write(tmp_path, "v10_again.cu")
    with pytest.raises(AnalysisError, match="both v10"):
        kernel_files(tmp_path)


def test_a_parent_must_be_there(tmp_path: Path) -> None:
    write(tmp_path, "v10_peel.cu", GOOD.replace("parent    v09", "parent    v88"))
    with pytest.raises(AnalysisError, match=r"v10_peel.cu: its parent v88 is not a version; there are: v10"):
        load(tmp_path, "v10")
    with pytest.raises(AnalysisError, match="its parent v88 is not a version"):
        load_all(tmp_path)


def test_header_and_file_name_must_agree(tmp_path: Path) -> None:
    write(tmp_path, "v11_peel.cu")
    with pytest.raises(AnalysisError, match="header says v10, the file name v11"):
        load(tmp_path, "v11")


def test_a_folder_without_kernels_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(AnalysisError, match="no file"):
        kernel_files(tmp_path)


def test_changed_lines_leave_the_header_out(tmp_path: Path) -> None:
    parent, child = tmp_path / "v09_a.cu", tmp_path / "v10_b.cu"
    parent.write_text(GOOD.replace("v10", "v09", 1).replace("parent    v09", "parent    v08") + "same\n-- old\nsame\n")
    child.write_text(GOOD.replace(" * predict   loop 892 -> about 870\n", "") + "same\n++ new\nmore\nsame\n")
    assert changed_lines(read_version(parent), read_version(child)) == 3
    assert changed_lines(read_version(parent), read_version(parent)) == 0
    assert source_diff(read_version(parent), read_version(child))[2] == "@@ -11,4 +10,5 @@"
    assert source_diff(read_version(parent), read_version(parent)) == []


WITHOUT_PARENT = ["v00", "v01"]  # v00 is attention without tensor cores; with them the ladder begins


@pytest.mark.whole_ladder
def test_every_parent_is_an_earlier_version() -> None:
    versions = load_all(root())
    for version in versions.values():
        parent = version.header.parent
        assert (parent in versions and parent < version.version) if parent else version.version in WITHOUT_PARENT


# Changed lines, 120 for every other version; v00a begins with tensor cores and v26 again with wgmma.
BUDGET = {"v00a": 200, "v08": 150, "v26": 700}


def test_smaller_configs_take_less_shared_memory() -> None:
    own, small = "(FP16, 128, 64, 64, 4): load_0_0_0_tiles", "(FP16, 128, 64, 32, 4): load_0_0_0_tiles"
    lines = GOOD.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith(" * arch"))
    header = GOOD[: GOOD.index(" * config")] + f" * config    {own}\n * smaller   {{}}\n" + "\n".join(lines[at:])
    read = parse_header(header.format(small), "k.cu")
    assert [config.B_c for config in read.smaller] == [32] and read.beside == read.smaller and not read.others
    for wrong in (own, small.replace("128", "64", 1)):
        with pytest.raises(AnalysisError, match="must take less shared memory than the config for d_head"):
            parse_header(header.format(wrong), "k.cu")


def test_configs_that_take_serving_args_have_a_key_of_their_own() -> None:
    plain, serves = (f"(FP16, 128, 128, 128, 8): wgmma+stages_2{word}" for word in ("", "+serve"))
    lines = GOOD.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith(" * arch"))
    header = GOOD[: GOOD.index(" * config")] + " * config    {}\n * serving   {}\n" + "\n".join(lines[at:])
    read = parse_header(header.format(plain, f"{serves};{serves}+cap"), "k.cu")
    assert [config.cap for config in read.serving] == [False, True] and read.beside == read.serving
    for wrong in ((plain, plain), (serves, serves)):
        with pytest.raises(AnalysisError, match="configs with serve stand under the key serving"):
            parse_header(header.format(*wrong), "k.cu")


@pytest.mark.whole_ladder
def test_the_diff_from_the_parent_stays_within_the_budget() -> None:
    """At most the budget of each version, and 60 lines in the median."""
    versions = load_all(root())
    steps = {
        name: changed_lines(versions[version.header.parent], version)
        for name, version in versions.items()
        if version.header.parent
    }
    assert {name: lines for name, lines in steps.items() if lines > BUDGET.get(name, 120)} == {}
    assert statistics.median([*steps.values()] or [0]) <= 60


def test_diff_command(capsys: pytest.CaptureFixture[str]) -> None:
    first = next(iter(load_all(root())))
    assert main(["diff", first, first, "--exit-code"]) == 0
    assert capsys.readouterr().out == f"{first} -> {first}: 0 lines added or removed, header blocks not counted\n"
    assert main(["diff", first, "v99"]) == 2
    assert "no version 'v99'" in capsys.readouterr().err
