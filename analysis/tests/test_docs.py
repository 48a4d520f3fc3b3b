"""The documents: commands exist with their options, cheap ones run, links lead somewhere, generated parts are fresh."""

import re
import shlex
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from analysis.__main__ import COMMANDS, _parser, main
from analysis.files import root
from analysis.ladder.claims import RUNG
from analysis.ladder.headers import attention_files, backward_files, fp8_files, kernel_files, stem_of
from analysis.publish.documents import documents
from analysis.publish.overview import Step, read_steps
from analysis.tests.support.copies import environment

PAGES = sorted(
    path
    for folder in (".", "docs", "docs/learn", "kernels", "analysis/data", "analysis/measure", "emulator/suite")
    for path in (root() / folder).glob("*.md")
)
OURS = [root() / "docs" / f"{name}.md" for name in ("architecture", "hopper", "measuring", "performance")] + [
    root() / "README.md"
]
GPU_GOALS = ("bench", "gpu-check")
GPU_PAGES = (
    "one-hour.md", "new-gpu.md", "your-gpu.md", "internals.md", "measuring.md", "adding-a-version.md", "CONTRIBUTING.md"
)  # fmt: skip
EXAMPLE = "v99"  # of docs/adding-a-version.md, which test_walk.py runs
VERSION_GOAL = re.compile(RUNG)
VERSIONS = kernel_files(root()) | backward_files(root()) | fp8_files(root())
PRODUCTION = {stem_of(name) for name in attention_files(root())}
LONGEST = 512  # seq that the emulator is asked to run here


@cache
def steps() -> list[Step]:
    return read_steps(root())


def ids(values: list[tuple[Path, str]]) -> list[str]:
    return [f"{page.name}: {command}"[:70] for page, command in values]


def commands_of(page: Path) -> list[str]:
    """Commands in indented and fenced blocks, without their comments."""
    found = []
    fenced = False
    for line in page.read_text().splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
        text = line.strip().removeprefix("$ ")
        if not (fenced or line.startswith("    ")) or not re.match(
            r"(make|\./bin/|\./fl|python3 -m analysis|LAUNCH=)", text
        ):
            continue
        text = re.split(r"\s{2,}# ?|\s+# ", text)[0]
        found += [part.strip() for part in text.rstrip("\\").split(" && ")]
    return found


EVERY = [(page, command) for page in PAGES for command in commands_of(page)]
MAKE = [(page, command) for page, command in EVERY if command.startswith("make ")]
ANALYSIS = [
    (page, re.sub(r"^.*?(python3 -m analysis|\./fl) ", "-m analysis ", command))
    for page, command in EVERY
    if re.search(r"python3 -m analysis|^\./fl", command)
]
BIN = [(page, command) for page, command in EVERY if re.match(rf"\./bin/v(?!{EXAMPLE[1:]})", command)]


def test_commands_are_found() -> None:
    assert len(MAKE) > 30
    assert len(ANALYSIS) > 20
    assert len(BIN) > 5


OTHER_MAKEFILES = ("harness/peers/peers.mk", "emulator/suite/suite.mk")


@cache
def makefiles() -> str:
    """The text of the Makefile and of what it includes."""
    files = [root() / "Makefile", *sorted((root() / "make").glob("*.mk")), *map(root().joinpath, OTHER_MAKEFILES)]
    return "\n".join(file.read_text() for file in files).replace("\\\n", " ")


@cache
def goals() -> frozenset[str]:
    phony = re.findall(r"^\.PHONY:(.*)$", makefiles(), re.MULTILINE)
    rules = re.findall(r"^([a-z0-9][a-z0-9 ._/-]*):(?!=)", makefiles(), re.MULTILINE)
    return frozenset(" ".join([*phony, *rules]).split())


@cache
def takers() -> dict[str, str]:
    """Variable to the goals whose lines in `make help-all` name it."""
    found: dict[str, str] = {}
    for goals_of_line, text in re.findall(r"^([a-z0-9._ -]+):.*?##\+? (.*)$", makefiles(), re.MULTILINE):
        for name in re.findall(r"\b([A-Z][A-Z0-9_]*)=", text):
            found[name] = f"{found.get(name, '')} {goals_of_line}"
    return found


def problems_of_make(command: str) -> list[str]:
    """Goals and variables of a command line that make does not know, or that do not go together."""
    (general,) = re.findall(r"^GENERAL := (.*)$", makefiles(), re.MULTILINE)
    words = shlex.split(command)[1:]
    found = []
    for word in words:
        name, assigned, _ = word.partition("=")
        if assigned and name not in general.split() and not set(takers().get(name, "").split()) & set(words):
            found.append(f"variable {name}")
        if assigned or word.startswith(("-", "build/")) or word in OTHER_MAKEFILES:
            continue
        version = VERSION_GOAL.fullmatch(word)
        if not (word in goals() | PRODUCTION or (version and (word in VERSIONS or word == EXAMPLE))):
            found.append(f"goal {word}")
    return found


@pytest.mark.parametrize(("page", "command"), MAKE, ids=ids(MAKE))
def test_make_knows_goals_and_variables(page: Path, command: str) -> None:
    assert not problems_of_make(command)


READ_ONLY = ("debug", "diff", "help", "sass-diff")
PRINTED = {  # in blocks whose output test_learn.py compares, so that it runs them
    command for page, command in MAKE if page.parent.name == "learn" and f"\n$ {command}\n" in page.read_text()
}
SHOWN = sorted(
    {
        command
        for _, command in MAKE
        if command.split()[1] in READ_ONLY and not re.search(rf"{EXAMPLE}|\.(csv|json)", command)
    }
    - PRINTED
)


@pytest.mark.long
@pytest.mark.parametrize("command", SHOWN)
def test_goals_that_only_show_something_run(command: str) -> None:
    done = subprocess.run(
        command, shell=True, cwd=root(), env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


@pytest.mark.parametrize(("page", "command"), MAKE, ids=ids(MAKE))
def test_what_needs_a_gpu_is_marked(page: Path, command: str) -> None:
    if set(shlex.split(command)[1:]) & set(GPU_GOALS) and page.name not in GPU_PAGES:
        (line,) = {line for line in page.read_text().splitlines() if command in line}
        assert "needs a GPU" in line


def arguments_of(command: str) -> list[str]:
    words = shlex.split(command.replace("\\", " "))[2:]
    return [word for word in words if not word.startswith("$")]


@pytest.mark.parametrize(("page", "command"), ANALYSIS, ids=ids(ANALYSIS))
def test_analysis_knows_commands_and_options(page: Path, command: str) -> None:
    words = arguments_of(command.split(" > ")[0].split(" | ")[0])
    assert words[0] in {known.name for known in COMMANDS}
    if "--help" not in words and "${" not in command:
        _parser(words[0]).parse_args(words)


WITH_PACKAGES = {known.name for known in COMMANDS if known.needs}  # they draw, or run what is built
READING = [
    (page, command)
    for page, command in ANALYSIS
    if page in OURS
    and not re.search(r" --write| (bench|merge|peers)\b| (compare|profile) (v|--versions)", command)
    and arguments_of(command)[0] not in WITH_PACKAGES
]


@pytest.mark.parametrize(("page", "command"), READING, ids=ids(READING))
def test_commands_that_only_read_run(page: Path, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = arguments_of(command)
    versions = [word for word in words if VERSION_GOAL.fullmatch(word)]
    missing = [version for version in versions if not list((root() / "build" / version).glob("*.cubin"))]
    if missing:
        pytest.skip(f"{missing[0]} is not built")
    assert main(words) == 0
    assert capsys.readouterr().out


def executable(command: str) -> list[str]:
    words = shlex.split(command)
    path = root() / words[0]
    if not path.exists():
        pytest.skip(f"{words[0]} is not built")
    return [str(path), *words[1:]]


@pytest.mark.parametrize(("page", "command"), BIN, ids=ids(BIN))
def test_an_executable_knows_its_options(page: Path, command: str) -> None:
    """Options are parsed before --info prints what the executable holds."""
    done = subprocess.run([*executable(command), "--info"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


CHEAP = [
    (page, command)
    for page, command in BIN
    if all(int(number) <= LONGEST for number in re.findall(r"[0-9]+", (re.search(r"--seq (\S+)", command) or [""])[0]))
]


@pytest.mark.parametrize(("page", "command"), CHEAP, ids=ids(CHEAP))
def test_cheap_runs_are_right(page: Path, command: str, tmp_path: Path) -> None:
    backend = [] if "--backend" in command else ["--backend", "emu"]
    done = subprocess.run([*executable(command), *backend], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def broken_links(page: Path, text: str) -> list[str]:
    """Relative links of a page that lead nowhere."""
    found = []
    for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "", text)):
        if re.match(r"https://", target):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        if not there.exists():
            found.append(target)
        elif anchor and (line := re.fullmatch(r"L(\d+)", anchor)) and there.suffix != ".md":
            if int(line[1]) > len(there.read_text().splitlines()):
                found.append(target)
        elif anchor:
            titles = re.findall(r"^#+ (.*)$", there.read_text(), re.MULTILINE)
            if anchor not in {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}:
                found.append(target)
    return found


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_links_lead_somewhere(page: Path) -> None:
    assert not broken_links(page, page.read_text())


def test_every_page_and_notebook_is_linked_from_the_list_of_documents() -> None:
    text = (root() / "docs/index.md").read_text()
    names = [page.name for page in (root() / "docs").glob("*.md") if page.name != "index.md"]
    names += [f"../notebooks/{book.name}" for book in (root() / "notebooks").glob("*.ipynb")]
    assert not [name for name in names if f"]({name})" not in text]
    front = (root() / "README.md").read_text()
    assert "](docs/index.md)" in front
    assert re.findall(r"\]\((docs/[\w.-]+)\)", front)[:2] == ["docs/machine.html", "docs/story.md"]


@pytest.mark.whole_ladder
def test_generated_parts_are_fresh() -> None:
    made = documents(root(), steps())
    stale = [path.name for path, text in made.items() if not path.exists() or path.read_text() != text]
    assert not stale, "run `make ladder`"


def test_a_gpu_machine_needs_no_other_folders_than_the_page_says(tmp_path: Path) -> None:
    page = (root() / "docs/building.md").read_text()
    (sentence,) = re.findall(r"A GPU machine needs only (.*?) and any python3", page)
    folders = re.findall(r"`(\w+)/`", sentence)
    assert {"bin", "analysis", "kernels"} <= set(folders)
    for name in set(folders) - {"bin"}:
        ignored = shutil.ignore_patterns("__pycache__", "tests")
        shutil.copytree(root() / name, tmp_path / name, ignore=ignored)
    run_main = "import sys; sys.path.insert(0, '.'); from analysis.__main__ import main; sys.exit(main(sys.argv[1:]))"
    plain = [sys.executable, "-I", "-S", "-c", run_main]  # the standard library alone
    measuring = [[command.name, "--help"] for command in COMMANDS if command.module.startswith("measure.")]
    for arguments in (*measuring, ["configs", "--set", "prog", "--version", "v01"]):
        done = subprocess.run([*plain, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{arguments}: {done.stderr[-2000:]}"
