"""docs/learn: its commands print what the page shows below them, its pages lead to one another and to the glossary."""

import re
import subprocess
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from analysis.files import root
from analysis.ladder.claims import RUNG
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
    """A command of a console block, and the lines below it; "..." matches any lines."""

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
    """The first expected line that the output lacks; between lines without "..." nothing else may appear."""
    lines = [line.rstrip() for line in printed.splitlines()]
    at, free = 0, False
    for line in expected:
        if line == "...":
            free = True
            continue
        pattern = re.compile(".*".join(map(re.escape, line.rstrip().split("..."))))
        options = range(at, len(lines)) if free else range(at, min(at + 1, len(lines)))
        index = next((index for index in options if pattern.fullmatch(lines[index])), None)
        if index is None:
            return line
        at, free = index + 1, False
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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_page_leads_to_the_glossary_and_is_reached_from_the_index(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert page.name == "glossary.md" or "](glossary.md" in text
    assert page.name == "index.md" or f"]({page.name}" in (FOLDER / "index.md").read_text(encoding="utf-8")


def test_every_notebook_is_linked_from_a_chapter() -> None:
    linked = set(re.findall(r"notebooks/([0-9a-z_]+)\.ipynb", "".join(page.read_text() for page in PAGES)))
    assert linked == {path.stem for path in notebooks(root())} - {"01_the_ladder"}  # the README's


def test_the_library_page_names_the_shared_memory_that_configurations_fit() -> None:
    """Each number of the page is the limit of a GPU on which another set of configurations is the first that fits."""
    page = " ".join((root() / "docs/library.md").read_text(encoding="utf-8").split())
    (found,) = re.findall(r"configurations for (\d+), (\d+) and (\d+) KB of shared memory per CTA", page)
    static, versions = read_registers(root()), load_all(root()) | load_attention(root())

    def first_fits(name: str, kilobytes: int) -> dict[int, str]:
        rows = {row.config: row.static_smem for row in static[name]}
        header = versions[name].header
        fits: dict[int, str] = {}
        for config in (header.config, *header.others, *header.smaller):
            if config.smem_bytes() + rows[config.short_form()] <= kilobytes * 1024:
                fits.setdefault(config.d_head, config.short_form())
        return fits

    for name in ("attention/mma_sync", "attention/decode_mma_sync"):
        header = versions[name].header
        small, *larger = [first_fits(name, int(number)) for number in found]
        assert small.keys() == {config.d_head for config in (header.config, *header.others)}
        assert larger[-1] == {config.d_head: config.short_form() for config in (header.config, *header.others)}
        assert small != larger[0]
        assert name != "attention/mma_sync" or larger[0] != larger[1]


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
