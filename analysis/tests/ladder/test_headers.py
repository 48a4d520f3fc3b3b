"""Header blocks, the list of versions, and the budget of changed lines."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.__main__ import main
from analysis.errors import AnalysisError
from analysis.files import root
from analysis.ladder.headers import kernel_files, load, load_all, load_chosen, parse_header

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
        (" * parent    v09\n", "", ["lacks parent"]),
        ("parent    v09", "parent    v10", ["k.cu:3", "its own parent"]),
        ("load_2_2_2_tiles", "load_2_2_tiles", ["k.cu:8", "'load_2_2_tiles'"]),
        ("speedup@4096", "speedup@sm_80", ["k.cu:7", "'speedup@sm_80=1.01..1.03'", "a length"]),
        (" */\n", "", ["k.cu"]),
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
    with pytest.raises(AnalysisError, match=r"k.cu:9: .*unknown flag 'turbo'"):
        parse_header(source.replace("load_0_0_0_tiles;", "turbo;"), "k.cu")


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
    with pytest.raises(AnalysisError, match="no version 'v11'; versions are v09 to v10"):
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


WITHOUT_PARENT = ["v00", "v01"]  # v00 is attention without tensor cores; with them the ladder begins


@pytest.mark.whole_ladder
def test_every_parent_is_an_earlier_version() -> None:
    versions = load_all(root())
    for version in versions.values():
        parent = version.header.parent
        assert (parent in versions and parent < version.version) if parent else version.version in WITHOUT_PARENT


def test_diff_command(capsys: pytest.CaptureFixture[str]) -> None:
    first = next(iter(load_all(root())))
    assert main(["diff", first, first, "--exit-code"]) == 0
    assert capsys.readouterr().out == f"{first} -> {first}: 0 lines added or removed, header blocks not counted\n"
    assert main(["diff", first, "v99"]) == 2
    assert "no version 'v99'" in capsys.readouterr().err
