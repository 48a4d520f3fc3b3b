"""The static site: lays out documents, notebooks and tables for Sphinx, and looks for broken links in what it made.

    python3 -m analysis site --stage build/site/sources     # what docs/site/conf.py makes pages of
    python3 -m analysis site --single                       # docs/machine.html: the machine in one file
    python3 -m analysis site --check site                   # every link and anchor of the pages

The first page is the story. The navigation is that of docs/index.md: each of its groups is one, in that order. A link
to a file that is no document becomes a link to a page with the file's text.
"""

import argparse
import importlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path, PurePosixPath
from urllib.parse import unquote

from analysis.errors import DONE, AnalysisError
from analysis.files import read_text, root, write_if_changed
from analysis.site.machine_page import SINGLE, with_machine_links

FRONT = "docs/story.md"
INDEX = "index.md"  # what the front page is called in the site
CONTENTS = "docs/index.md"  # lists the pages in order
README = "README.md"
REPORT = "tables/index.md"
REPORT_PAGE = """# All versions

<a href="report.html">The report</a> has the numbers of every version on one page. A click on a column sorts its table.
"""
PICTURES = (".svg", ".png")
LONGEST_SOURCE = 300_000  # characters; a longer file has a page with its beginning

# Code comes first, so that a bracket within it starts no link.
_CODE_OR_LINK = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)|(!?\[(?:`[^`]*`|[^\[\]`])*\])\(([^)\s]+)\)", re.DOTALL)


@dataclass
class Site:
    """The staged files: the pages of the repository, and the files to which a page links."""

    folder: Path
    tracked: frozenset[str]
    pages: dict[str, str]  # path in the repository to path in the site
    sources: dict[str, list[str] | None] = field(default_factory=dict)  # the entries of a folder; None for a file
    pictures: dict[str, str] = field(default_factory=dict)  # path among the pages to path in the repository


# ---- links of Markdown -----------------------------------------------------------------------------------------------


def prose_and_code(text: str) -> Iterable[tuple[bool, str]]:
    """The text in pieces, True for those that are prose: neither a fenced block nor an indented one."""
    piece: list[str] = []
    kind, fence, after_blank = True, "", True
    for line in text.splitlines(keepends=True):
        opened = re.match(r" {0,3}(```+|~~~+)", line)
        if fence:
            now = False
            if opened and opened[1].startswith(fence):
                fence = ""
        elif opened:
            now, fence = False, opened[1]
        else:
            now = not (line.startswith("    ") and (after_blank or not kind))
        after_blank = not line.strip()
        if now != kind and piece:
            yield kind, "".join(piece)
            piece = []
        kind = now
        piece.append(line)
    if piece:
        yield kind, "".join(piece)


def with_links(text: str, changed: Callable[[str, str], str]) -> str:
    """The Markdown with changed(label, target) instead of each `[label](target)` and `![label](target)`."""

    def one(found: re.Match[str]) -> str:
        return found[0] if found[2] is None else changed(found[2], found[3])

    return "".join(_CODE_OR_LINK.sub(one, piece) if prose else piece for prose, piece in prose_and_code(text))


def links_of(text: str) -> list[str]:
    """The targets of all links of a Markdown text."""
    found: list[str] = []

    def note(label: str, target: str) -> str:
        found.append(target)
        return f"{label}({target})"

    with_links(text, note)
    return found


# ---- laying out ------------------------------------------------------------------------------------------------------


def read_site(folder: Path) -> Site:
    """The Markdown files and notebooks that git tracks or will, each with its path in the site."""
    listing = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=folder, capture_output=True, text=True, check=True
    )
    tracked = frozenset(name for name in listing.stdout.splitlines() if (folder / name).is_file())
    pages = {name: name for name in sorted(tracked) if name.endswith((".md", ".ipynb"))}
    return Site(folder, tracked, pages | {FRONT: INDEX})


def navigation(site: Site) -> dict[str, list[str]]:
    """Group to its pages. AnalysisError for a page of docs/ that no group of docs/index.md has."""
    groups: dict[str, list[str]] = {}
    located: set[str] = {FRONT, CONTENTS}
    here: list[str] = []
    base = PurePosixPath(CONTENTS).parent
    for paragraph in re.split(r"\n\s*\n", read_text(site.folder / CONTENTS)):
        title = re.fullmatch(r"(?:#{3,} (.+)|([^\n]{1,60}):)", paragraph.strip())
        if title:
            here = groups.setdefault((title[1] or title[2]).strip("*"), [])
        for target in links_of(paragraph):
            page = os.path.normpath(base / target.partition("#")[0])
            inside = _folder_of(page, site) if PurePosixPath(page).name in (README, INDEX) else [page]
            new = [one for one in inside if one in site.pages and one not in located]
            here += new
            located |= set(new)
    groups.setdefault("Notebooks", []).extend(
        name for name in site.pages if name.endswith(".ipynb") and name not in located
    )
    tables = [name for name in site.pages if PurePosixPath(name).name == README and name not in located]
    groups["Tables"] = [CONTENTS, REPORT, *tables]
    missing = {name for name in site.pages if name.startswith("docs/")} - located
    if missing:
        raise AnalysisError(f"{', '.join(sorted(missing))}: no group of {CONTENTS} has a link to it")
    return {title: names for title, names in groups.items() if names}


def _folder_of(index: str, site: Site) -> list[str]:
    """The index page of a folder, then the other pages of the folder by name; nothing else of the top folder."""
    folder = PurePosixPath(index).parent
    if str(folder) == ".":
        return [index]
    return [index, *(name for name in site.pages if PurePosixPath(name).parent == folder and name != index)]


def moved(site: Site, page: str, text: str) -> str:
    """The Markdown of a page with its links as the site has them; AnalysisError for one that leads nowhere."""
    base = PurePosixPath(site.pages[page]).parent

    def changed(label: str, target: str) -> str:
        if re.match(r"https?:", target) or target.startswith("#"):
            return f"{label}({target})"
        path, _, anchor = target.partition("#")
        there = os.path.normpath(PurePosixPath(page).parent / unquote(path))
        if there == str(SINGLE):
            return f'<a href="{os.path.relpath("machine/index.html", base)}">{label[1:-1]}</a>'
        if there in site.pages:
            location = os.path.relpath(site.pages[there], base)
            return f"{label}({location}{'#' * bool(anchor)}{anchor})"
        if label.startswith("!") and there in site.tracked:
            site.pictures[there] = there
            return f"{label}({os.path.relpath(there, base)})"
        if there.endswith(PICTURES) and there in site.tracked:
            site.pictures[f"linked/{there}"] = there
            return f'<a href="{os.path.relpath(there, base)}">{label[1:-1]}</a>'
        location = os.path.relpath(f"source/{_source(site, page, there, target)}.html", base)
        line = re.sub("^L", "#L-", anchor)
        return f'<a href="{location}{line}">{label[1:-1]}</a>'

    return with_machine_links(with_links(text, changed), base)


def _source(site: Site, page: str, name: str, target: str) -> str:
    """Note a file or folder that a page links to; the name of its page below source/."""
    if name in site.tracked:
        site.sources[name] = None
        return name
    below = [PurePosixPath(one).relative_to(name) for one in site.tracked if PurePosixPath(one).is_relative_to(name)]
    if not below:
        raise AnalysisError(f"{page}: the link to {target} leads to no file of the repository")
    files = sorted(str(one) for one in below if len(one.parts) == 1)
    site.sources[name] = files
    site.sources.update({f"{name}/{one}": None for one in files})
    return f"{name}/index"


def moved_notebook(site: Site, page: str, text: str) -> str:
    """The links of a notebook: its Markdown cells and outputs; the text of a picture is where MyST-NB expects it."""
    book = json.loads(text)
    for cell in book["cells"]:
        if cell["cell_type"] == "markdown":
            cell["source"] = moved(site, page, "".join(cell["source"]))
        for output in cell.get("outputs", []):
            if words := output.get("data", {}).get("text/markdown"):
                output["data"]["text/markdown"] = moved(site, page, "".join(words))
            for kind in ("image/png", "image/svg+xml"):
                if alt := output.get("metadata", {}).get(kind, {}).get("alt"):
                    cell["metadata"]["mystnb"] = {"image": {"alt": alt}}
    return json.dumps(book)


def contents(groups: dict[str, list[str]], site: Site) -> str:
    """The navigation as Sphinx's directives, for the end of the front page."""
    blocks = []
    for title, names in groups.items():
        lines = "\n".join(os.path.splitext(site.pages.get(name, name))[0] for name in names)  # noqa: PTH122
        blocks.append(f"```{{toctree}}\n:hidden:\n:caption: {title}\n\n{lines}\n```\n")
    return "\n".join(blocks)


def stage(folder: Path, out: Path) -> None:
    """Write the sources of all pages below `out`; what an earlier run left there goes."""
    site = read_site(folder)
    made: dict[str, str] = {}
    pages_of_versions = importlib.import_module("analysis.site.version_pages")
    steps = importlib.import_module("analysis.publish.overview").read_steps(folder)
    read_linked = importlib.import_module("analysis.inspect.linked_code").read_linked
    built = {step.name: found for step in steps if (found := read_linked(folder, step.version))}
    folded_body = importlib.import_module("analysis.ladder.folding").folded_body
    bodies = {step.name: folded_body(step.version) for step in steps} if folder == root() else {}
    made |= pages_of_versions.version_pages(folder, steps, built, bodies)
    of_versions = [*made]
    for page, location in site.pages.items():
        text = read_text(folder / page)
        made[location] = (moved_notebook if page.endswith(".ipynb") else moved)(site, page, text)
    groups = navigation(site) | ({"Versions": of_versions} if of_versions else {})
    for page in set(site.pages) - {FRONT} - {name for names in groups.values() for name in names}:
        made[site.pages[page]] = f"---\norphan: true\n---\n\n{made[site.pages[page]]}"
    made[INDEX] += "\n" + contents(groups, site)
    machine = importlib.import_module("analysis.site.machine_page")
    if files := machine.machine_files(folder):
        made |= {f"linked/machine/{name}": text for name, text in files.items()}
        made[INDEX] = machine.with_places(made[INDEX])
        exercises = importlib.import_module("analysis.site.exercise_page")
        made |= {f"linked/exercises/{name}": text for name, text in exercises.exercise_files(folder).items()}
        made[exercises.CHAPTER] = exercises.with_link(made[exercises.CHAPTER])
    report = importlib.import_module("analysis.publish.report")
    made[REPORT] = REPORT_PAGE
    made["linked/tables/report.html"] = report.to_html(report.sections(folder))
    for name, entries in site.sources.items():
        if entries is None:
            text = read_text(folder / name)
            cut = (
                f"\n… the first {LONGEST_SOURCE:,} of {len(text):,} characters\n" if len(text) > LONGEST_SOURCE else ""
            )
            made[f"texts/{name}"] = text[:LONGEST_SOURCE] + cut
    made["texts/index.json"] = json.dumps(site.sources, indent=1, sort_keys=True) + "\n"
    for old in [path for path in out.rglob("*") if path.is_file()] if out.exists() else []:
        if str(old.relative_to(out)) not in {*made, *site.pictures}:
            old.unlink()
    for name, text in made.items():
        write_if_changed(out / name, text)
    (out / "linked").mkdir(parents=True, exist_ok=True)
    for location, name in site.pictures.items():
        (out / location).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(folder / name, out / location)


# ---- links of the pages ----------------------------------------------------------------------------------------------


_FETCHED = {"img": "src", "script": "src", "link": "href", "iframe": "src", "source": "src"}


class _Page(HTMLParser):
    """The link targets of an HTML page and the names that links may point to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.names: set[str] = set()
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = dict(attrs)
        self.names |= {value for name in ("id", "name") if (value := known.get(name))}
        if tag == "a" and (link := known.get("href")):
            self.links.append(link)
        if (fetched := known.get(_FETCHED.get(tag, ""))) and "icon" not in (known.get("rel") or ""):
            self.fetched.append(fetched)


def broken_links(site: Path) -> list[str]:
    """`page: target` of each link that leads to no file or anchor of the site, and of all that is fetched elsewhere."""
    pages = {path: _Page(read_text(path)) for path in sorted(site.rglob("*.html"))}
    found = []
    for path, page in pages.items():
        name = path.relative_to(site)
        found += [f"{name}: fetches {one}" for one in page.fetched if re.match(r"(https?:)?//", one)]
        for target in [*page.links, *page.fetched]:
            if re.match(r"(https?:)?//|data:", target):
                continue
            to, _, anchor = target.partition("#")
            there = (path.parent / unquote(to.partition("?")[0])).resolve() if to else path
            if not there.is_file():
                found.append(f"{name}: {target} leads to no file")
            elif anchor and there in pages and unquote(anchor) not in pages[there].names:
                found.append(f"{name}: {target} leads to no heading or line of its page")
    return found


# ---- the command -----------------------------------------------------------------------------------------------------


def add_site_arguments(parser: argparse.ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--stage", type=Path, metavar="FOLDER", help="write the sources of the pages to FOLDER")
    which.add_argument("--single", action="store_true", help=f"write {SINGLE}, the machine in one file")
    which.add_argument("--check", type=Path, metavar="FOLDER", help="find broken links in the pages in FOLDER")


def run_site(args: argparse.Namespace) -> int:
    if args.stage:
        stage(root(), args.stage)
        return DONE
    if args.single:
        machine = importlib.import_module("analysis.site.machine_page")
        write_if_changed(root() / SINGLE, machine.single_page(root()))
        return DONE
    pages = len(list(args.check.resolve().rglob("*.html")))
    if not pages:
        raise AnalysisError(f"{args.check}: contains no HTML page; run `make site`")
    if broken := broken_links(args.check.resolve()):
        raise AnalysisError("\n".join([f"{args.check}: expected no broken link, found {len(broken)}:", *broken]))
    print(f"{args.check}: {pages} pages, no broken link")
    return DONE
