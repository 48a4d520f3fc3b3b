"""docs/learn: its commands print what stands below them, its pages lead to one another and to the glossary."""

import re
import subprocess
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from analysis.files import root
from analysis.ladder.claims import RUNG
from analysis.ladder.config import SMEM_MOST, KernelConfig
from analysis.ladder.headers import load_all, load_attention
from analysis.machine_code.regs import read_registers
from analysis.publish.ladder_page import CHAPTERS, chapter_part
from analysis.tests.support.copies import environment, whole_checkout
from analysis.tests.test_docs import steps
from analysis.tools.notebooks import notebooks

FOLDER = root() / "docs/learn"
PAGES = sorted(FOLDER.glob("*.md"))
SECONDS = 600
BUILT = r"^  (?:CC|NVCC|PTXAS|EMBED|LINK|NVDISASM) +\S.*\n"  # what make says that it builds


@dataclass(frozen=True)
class Command:
    """A command of a console block, and the lines that stand below it; "..." stands for any lines."""

    text: str
    expected: tuple[str, ...]


def blocks(text: str) -> list[list[Command]]:
    """The commands of every console block of a page."""
    found = []
    for block in re.findall(r"^```console\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        parts = re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
        lines = [part.rstrip("\n").split("\n") for part in parts]
        found.append([Command(first, tuple(rest)) for first, *rest in lines])
    return found


def missing(expected: tuple[str, ...], printed: str) -> str | None:
    """The first expected line that the output lacks; between lines without "..." nothing else may stand."""
    lines = [line.rstrip() for line in printed.splitlines()]
    at, free = 0, False
    for line in expected:
        if line == "...":
            free = True
            continue
        pattern = re.compile(".*".join(map(re.escape, line.rstrip().split("..."))))
        places = range(at, len(lines)) if free else range(at, min(at + 1, len(lines)))
        place = next((place for place in places if pattern.fullmatch(lines[place])), None)
        if place is None:
            return line
        at, free = place + 1, False
    return None


def check(block: list[Command], folder: Path) -> None:
    for command in block:
        done = subprocess.run(
            ["bash", "-c", command.text], cwd=folder, env=environment(), capture_output=True, text=True,
            timeout=SECONDS, check=False,
        )  # fmt: skip
        printed = re.sub(BUILT, "", done.stdout + done.stderr, flags=re.MULTILINE)
        lacking = missing(command.expected, printed)
        assert lacking is None, f"$ {command.text}\nlacks the line {lacking!r}:\n{printed[-3000:]}"
        fails = bool(command.expected) and re.match(r"[1-9]\d* findings?:", command.expected[-1])
        assert done.returncode == (1 if fails else 0), f"$ {command.text}\n{printed[-3000:]}"


BLOCKS = [(page, block) for page in PAGES for block in blocks(page.read_text(encoding="utf-8"))]
EDITS = [(page, block) for page, block in BLOCKS if block[0].text.startswith("sed ")]
QUICK = [
    (page, block)
    for page, block in BLOCKS
    if all(re.match(r"\./bin/|python3 docs/", command.text) for command in block)
]
SLOW = [one for one in BLOCKS if one not in EDITS and one not in QUICK]


def ids(found: list[tuple[Path, list[Command]]]) -> list[str]:
    return [f"{page.stem}: {block[0].text}"[:60] for page, block in found]


def built(block: list[Command]) -> None:
    for name in re.findall(r"\./(bin/v\d+)", " ".join(command.text for command in block)):
        if not (root() / name).exists():
            pytest.skip(f"{name} is not built")


@pytest.mark.parametrize(("page", "block"), QUICK, ids=ids(QUICK))
def test_a_run_prints_what_the_page_says(page: Path, block: list[Command]) -> None:
    built(block)
    check(block, root())


@pytest.mark.long
@pytest.mark.parametrize(("page", "block"), SLOW, ids=ids(SLOW))
def test_a_tool_prints_what_the_page_says(page: Path, block: list[Command]) -> None:
    check(block, root())


@pytest.mark.long
@pytest.mark.parametrize(("page", "block"), EDITS, ids=ids(EDITS))
def test_a_change_does_what_the_page_says(page: Path, block: list[Command], tmp_path: Path) -> None:
    folder = whole_checkout(tmp_path / "copy")
    before = {path: path.read_text() for path in (folder / "kernels").glob("*/*.cu")}
    check(block, folder)
    assert [path for path, text in before.items() if path.read_text() != text], "no line of a kernel changed"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_a_chapter_runs_is_built_before(page: Path) -> None:
    """By its own first make, or by one in front of the command. A reader has built v01 alone."""
    built_by = re.compile(r"make ([^#\n]*)")
    text = page.read_text(encoding="utf-8")
    for found in re.finditer(r"^\$ .*(?:\./bin/|analysis pipeline )(v\d\d)", text, re.MULTILINE):
        made = " ".join(built_by.findall(text[: found.end()]))
        assert found[1] in made.split(), f"{page.name}: nothing builds {found[1]} before {found[0]}"


def test_blocks_are_found() -> None:
    assert len(QUICK) > 4 and len(SLOW) > 8 and len(EDITS) > 5


def test_a_line_that_is_missing_is_found() -> None:
    printed = "one\ntwo  2\nthree 0.5 s\n"
    assert missing(("one", "...", "three ... s"), printed) is None
    assert missing(("...", "two  2", "three 0.5 s"), printed) is None
    assert missing(("one", "three 0.5 s"), printed) == "three 0.5 s"
    assert missing(("...", "two 2"), printed) == "two 2"
    assert missing(("...", "three 0.5 s", "four"), printed) == "four"
    assert blocks("```console\n$ a\nb\n...\n$ c\n```\n") == [[Command("a", ("b", "...")), Command("c", ())]]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_page_leads_to_the_glossary_and_is_reached_from_the_index(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert page.name == "glossary.md" or "](glossary.md" in text
    assert page.name == "index.md" or f"]({page.name}" in (FOLDER / "index.md").read_text(encoding="utf-8")


def test_every_notebook_is_linked_from_a_chapter() -> None:
    linked = set(re.findall(r"notebooks/([0-9a-z_]+)\.ipynb", "".join(page.read_text() for page in PAGES)))
    assert linked == {path.stem for path in notebooks(root())} - {"01_the_ladder"}  # the README's


def test_an_exercise_refers_to_a_chapter_that_comes_before_it() -> None:
    table = (FOLDER / "exercises.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \[(\d)\. .*?\]\(.*?\) \| (.*) \|$", table, re.MULTILINE)
    found = 0
    for chapter, exercises in rows:
        for slug in re.findall(r"exercises/(\w+)/task\.md", exercises):
            task = (root() / "exercises" / slug / "task.md").read_text(encoding="utf-8")
            for other in re.findall(r"docs/learn/(\d)-", task):
                assert other <= chapter, f"{slug} is an exercise of chapter {chapter}, and refers to chapter {other}"
                found += 1
    assert found > 8


def test_new_gpu_says_how_much_shared_memory_the_versions_take() -> None:
    page = (FOLDER / "new-gpu.md").read_text(encoding="utf-8")
    limits = {
        arch: int(most.replace(",", ""))
        for most, archs in re.findall(r"([\d,]{6,})(?: bytes)?\sfor\s((?:\d+\.\d(?:,\s| and )?)+)", page)
        for arch in re.findall(r"\d+\.\d", archs)
    }
    assert sorted(limits, key=float) == ["8.0", "8.6", "8.9", "9.0", "10.0", "12.0"]
    assert {arch: SMEM_MOST[arch] for arch in limits} == limits
    ladder = (root() / "kernels/README.md").read_text(encoding="utf-8")
    assert f"[{shared_memory()['v18'] // 1024} KB of shared memory]" in ladder


def shared_memory() -> dict[str, int]:
    """Version with mma.sync to the most bytes that a CTA of it takes."""
    static = read_registers(root())
    return {
        name: max(
            config.smem_bytes() + row.static_smem
            for config in (version.header.config, *version.header.others)
            for row in static[name]
            if row.config == config.short_form()
        )
        for name, version in load_all(root()).items()
        if not version.one_arch
    }


def test_versions_fit_where_the_page_says() -> None:
    """Each sentence names the shared memory of its versions, and the GPUs that allow it."""
    page = " ".join((FOLDER / "new-gpu.md").read_text(encoding="utf-8").split())
    taken = shared_memory()
    small, v18, large = (
        {taken[name] for name in taken if first <= name <= last}
        for first, last in (("v00", "v17"), ("v18", "v18"), ("v19", "v25"))
    )
    assert f"v00 to v17 take at most {max(small):,} bytes per CTA and fit every GPU" in page
    assert f"v18 takes {max(v18):,} bytes and fits 8.0, 9.0 and 10.0." in page
    assert f"v19 to v25 take {min(large):,} to {max(large):,} bytes and fit 9.0 and 10.0." in page
    archs = ("8.0", "8.6", "8.9", "9.0", "10.0", "12.0")
    for bytes_, fit in ((max(small), archs), (max(v18), ("8.0", "9.0", "10.0")), (max(large), ("9.0", "10.0"))):
        assert tuple(arch for arch in archs if SMEM_MOST[arch] >= bytes_) == fit


def test_the_library_page_says_how_much_shared_memory_kernels_take() -> None:
    page = " ".join((root() / "docs/library.md").read_text(encoding="utf-8").split())
    static, versions = read_registers(root()), load_all(root()) | load_attention(root())
    newest = "attention/mma_sync"

    def kilobytes(name: str, config: KernelConfig) -> int:
        (row, *_) = (row for row in static[name] if row.config == config.short_form())
        return round((config.smem_bytes() + row.static_smem) / 1024)

    own = [kilobytes(newest, config) for config in (versions[newest].header.config, *versions[newest].header.others)]
    assert f"take {min(own)} to {max(own)} KB of shared memory per CTA" in page
    small = [f"{kilobytes(newest, config)} KB for {config.d_head}" for config in versions[newest].header.smaller]
    assert f"for the head size: {', '.join(small)}." in page


def edited(*changes: tuple[str, str]) -> str:
    """What online_softmax.py prints, or dies of, with some of its text replaced."""
    text = (FOLDER / "online_softmax.py").read_text(encoding="utf-8")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_the_changes_of_online_softmax_do_what_chapter_0_says() -> None:
    front = edited(
        ("(1.0, 3.0, 2.0, 5.0,", "(5.0, 1.0, 3.0, 2.0,"), ("(10.0, 20.0, 30.0, 40.0,", "(40.0, 10.0, 20.0, 30.0,")
    )
    rows = [line.split() for line in front.splitlines()[1:4]]
    assert rows[-1][-1] == "40.038" and [row[4] for row in rows] == ["0.000", "1.000", "1.000"]
    first = ("max(m, *S)", "S[0]")
    assert edited(first).splitlines()[3].endswith("40.038")
    assert "OverflowError" in edited(first, ("5.0, 4.0", "800.0, 4.0"))


def test_every_version_stands_in_one_chapter() -> None:
    """The plan and the tables name the same versions, without gap or overlap."""
    plan = (FOLDER / "index.md").read_text(encoding="utf-8")
    there = [step.name for step in steps()]
    spans = list(CHAPTERS.values())
    assert sorted(name for span in spans for name in there if span[0] <= name <= span[1]) == there
    assert all(last < following for (_, last), (following, _) in pairwise(spans))
    for chapter, (first, last) in CHAPTERS.items():
        open_end = f"{first} on" if last > there[-1] else f"{first} to {last}"
        versions = open_end if last > first else first
        assert f"]({chapter}.md) | {versions} |" in plan
        shown = re.findall(rf"^\| \[({RUNG})\]", chapter_part(steps(), first, last), re.MULTILINE)
        assert sorted(shown) == [name for name in there if first <= name <= last]


def test_a_chapter_leaves_out_what_all_its_versions_share() -> None:
    def columns(first: str, last: str) -> str:
        return chapter_part(steps(), first, last).splitlines()[0]

    assert "registers" in columns("v06", "v10") and "registers" not in columns("v17", "v25")
    assert "wavefronts" in columns("v00a", "v05") and "wavefronts" not in columns("v06", "v10")


def test_every_term_of_the_glossary_is_in_order_and_used() -> None:
    text = (FOLDER / "glossary.md").read_text(encoding="utf-8")
    terms = re.findall(r"^### (.*)$", text, re.MULTILINE)
    assert terms == sorted(terms, key=str.lower) and len(terms) > 40
    for term in ("CTA", "HMMA", "LDSM", "Wavefront", "Scoreboard", "Phase"):
        assert term in terms
