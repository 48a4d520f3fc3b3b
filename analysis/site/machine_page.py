"""The files of the machine: a page of the site on which versions run in the browser, also from file://.

    for name, text in machine_files(root()).items(): ...     # build/site/sources/linked/machine/NAME
    (root() / SINGLE).write_text(single_page(root()))         # docs/machine.html: some versions, in one file

The page is that of docs/site/machine. A page that is read from a file may fetch nothing, so the module, the worker and
each version's PTX and source are scripts that hold them as texts.
"""

import base64
import difflib
import gzip
import html
import json
import re
from pathlib import Path, PurePosixPath

from analysis.errors import AnalysisError
from analysis.files import read_text
from analysis.ladder.folding import folded_body
from analysis.ladder.headers import Version, load_all
from analysis.site.exercise_page import LESSON, LESSON_FILE, tasks
from analysis.site.exercise_page import PAGES as EXERCISES

PAGES = Path("docs/site/machine")
MACHINE_LINK = re.compile(r"<!-- machine: (v\d\d[a-z]?) (\w+) (\d+) -->")
PARTS = ("index.html", "machine.css", "pictures.js", "machine.js")
SYMBOL = r"(?<![\w$])_Z\w+?(?=_param_\d+\b|\b)"
WASM = Path("build/wasm/emulator.wasm")
SINGLE = Path("docs/machine.html")
SINGLE_VERSIONS = ("v01", "v02", "v08", "v17", "v25", "v26", "v28", "v29", "v37")
SINGLE_TASKS = 3
LESSON_TITLE = "a first tcgen05 kernel"
# The targets of the story's links: the first instruction of that kind of a warp.
STARTS = {
    "v01": ("ldmatrix", 0),
    "v02": ("ldmatrix", 0),
    "v08": ("ldmatrix", 0),
    "v09": ("mma", 0),
    "v17": ("shuffle", 0),
    "v19": ("mbarrier", 0),
    "v25": ("mbarrier", 0),
    "v26": ("wgmma", 0),
    "v28": ("copy", 0),
    "v29": ("wgmma", 4),
    "v35": ("exponential", 4),
    "v37": ("wgmma", 4),
}


def first_entry(ptx: str) -> str:
    """The PTX without all entries but the first, and without lines that hold comments alone."""
    begins = [found.start() for found in re.finditer(r"^\.visible \.entry ", ptx, re.MULTILINE)]
    ends = [found.end() for found in re.finditer(r"^\}\n", ptx, re.MULTILINE)]
    if not begins or not ends:
        raise AnalysisError("expected PTX with an .entry, found none")
    first = next(end for end in ends if end > begins[0])
    text = ptx[:first] + ptx[ends[-1] :]
    return "".join(line for line in text.splitlines(keepends=True) if not line.lstrip().startswith("//"))


def packed(data: bytes) -> str:
    """Compressed, as text; equal for equal data."""
    return base64.b64encode(gzip.compress(data, 9, mtime=0)).decode()


def short_name(symbol: str) -> str:
    """The function or variable that a mangled name means, without its scope and template arguments."""
    found, at = [], 0
    while number := re.compile(r"\d+").search(symbol, at):
        begin, length = number.end(), int(number[0])
        name = symbol[begin : begin + length]
        at = number.end()
        if len(name) == length and re.fullmatch(r"[A-Za-z_]\w*", name):
            found.append((begin, name))
            at = begin + length
            if not symbol.startswith("_ZZ") and symbol[at : at + 1] in "IEvP":
                break
    return found[-1][1] if found else symbol.lstrip("_")


def with_short_names(ptx: str) -> tuple[str, str, str]:
    """PTX with short names for mangled ones, and the short and the mangled name of its entry."""
    symbols = sorted(set(re.findall(SYMBOL, ptx)))
    taken = set(re.findall(r"[A-Za-z_$%][\w$]*", ptx)) - set(symbols)
    names: dict[str, str] = {}
    for symbol in symbols:
        name = base = short_name(symbol)
        number = 1
        while name in taken:
            number += 1
            name = f"{base}_{number}"
        taken.add(name)
        names[symbol] = name
    entry = re.search(r"^\.visible \.entry ([\w$]+)", ptx, re.MULTILINE)
    if not entry:
        raise AnalysisError("expected PTX with an .entry, found none")
    text = re.sub(SYMBOL, lambda found: names[found[0]], ptx)
    return text, names.get(entry[1], entry[1]), entry[1]


def hidden_lines(version: Version, ptx: str) -> list[int]:
    """The lines of a source that `make read` leaves out and that no instruction comes from."""
    files = dict(re.findall(r'^\s*\.file\s+(\d+) "([^"]*)"', ptx, re.MULTILINE))
    own = {number for number, name in files.items() if name.endswith(version.path.name)}
    used = {int(line) for number, line in re.findall(r"\.loc\s+(\d+) (\d+)", ptx) if number in own}
    lines = [line.strip() for line in version.source.splitlines()]
    read = [line.strip() for line in folded_body(version).splitlines()]
    for block in difflib.SequenceMatcher(None, lines, read, autojunk=False).get_matching_blocks():
        used |= set(range(block.a + 1, block.a + block.size + 1))
    return [number for number in range(1, len(lines) + 1) if number not in used]


def held_version(folder: Path, version: Version, built: bool = True) -> dict[str, object]:
    """Return the page's data of a version, its PTX and source, packed; AnalysisError if it is not built."""
    source = packed(version.source.encode())
    if not built:
        return {"ptx": "", "source": source, "entry": "", "symbol": "", "hidden": []}
    name = version.version
    path = folder / f"build/{name}/{name}.ptx"
    if not path.exists():
        raise AnalysisError(f"{path}: expected the PTX of {name}: run `make site`, which makes it")
    ptx, entry, symbol = with_short_names(first_entry(read_text(path)))
    hidden = hidden_lines(version, ptx)
    return {"ptx": packed(ptx.encode()), "source": source, "entry": entry, "symbol": symbol, "hidden": hidden}


def held_lesson(folder: Path, built: bool = True) -> dict[str, object]:
    """Return the page entry of chapter 9's kernel, whose source is PTX."""
    text, name = packed(read_text(folder / LESSON_FILE).encode()), LESSON if built else ""
    return {"ptx": text if built else "", "source": text, "entry": name, "symbol": name, "hidden": []}


def held_dump(folder: Path, name: str) -> str:
    return packed(with_short_names(first_entry(read_text(folder / f"build/dump/{name}/{name}.ptx")))[0].encode())


def machine_files(folder: Path) -> dict[str, str]:
    """Every file by its name below machine/; none where make has built no module."""
    if not (folder / WASM).exists():
        return {}
    made = {name: read_text(folder / PAGES / name) for name in PARTS}
    titles = {}
    for name, version in load_all(folder).items():
        titles[name] = version.header.title
        made[f"data/{name}.js"] = f"flashladder.versions.{name} = {json.dumps(held_version(folder, version))};\n"
    titles[LESSON] = LESSON_TITLE
    made[f"data/{LESSON}.js"] = f"flashladder.versions.{LESSON} = {json.dumps(held_lesson(folder))};\n"
    for name in STARTS:
        made[f"data/{name}.dump.js"] = f"flashladder.versions.{name}.dump = {json.dumps(held_dump(folder, name))};\n"
    made["emulator.js"] = f"window.flashladder = {json.dumps(book_of(folder, titles, [*STARTS]))};\n"
    return made


def book_of(folder: Path, titles: dict[str, str], dumps: list[str], built: bool = True) -> dict[str, object]:
    return {
        "wasm": packed((folder / WASM).read_bytes()) if built else "",
        "worker": read_text(folder / PAGES / "worker.js"),
        "titles": titles,
        "versions": {},
        "dumps": dumps,
    }


# ---- one file --------------------------------------------------------------------------------------------------------


def _script(text: str) -> str:
    return "<script>\n" + text.replace("</script", "<\\/script") + "</script>\n"


def lessons(folder: Path) -> str:
    """The first exercises and those of chapter 9 as a page, which uses the machine of the page around it."""
    page = read_text(folder / EXERCISES / "index.html")
    style = f"<style>\n{read_text(folder / EXERCISES / 'exercises.css')}</style>"
    page = page.replace('<link rel="stylesheet" href="exercises.css">', style)
    page = re.sub(r'\s*<a href="../index.html">flashladder</a>', "", page)
    found = tasks(folder)
    shown = json.dumps(found[:SINGLE_TASKS] + [task for task in found if task.get("version") == LESSON])
    given = _script(f"window.flashladder = parent.flashladder; window.tasks = {shown};\n")
    page = page.replace('<script src="tasks.js"></script>\n', given)
    return page.replace(
        '<script src="exercises.js"></script>\n', _script(read_text(folder / EXERCISES / "exercises.js"))
    )


def single_page(folder: Path, built: bool = True) -> str:
    """docs/machine.html: the emulator, some versions and the first exercises in a file that opens by a double click.

    Without `built` what compilers make is left out, and nothing need be built: test_machine_page.py compares the rest.
    """
    versions = load_all(folder)
    titles = {name: versions[name].header.title for name in SINGLE_VERSIONS} | {LESSON: LESSON_TITLE}
    book = book_of(folder, titles, [], built)
    held = {name: held_version(folder, versions[name], built) for name in SINGLE_VERSIONS}
    book["versions"] = held | {LESSON: held_lesson(folder, built)}
    page = read_text(folder / PAGES / "index.html")
    page = page.replace('<a href="../index.html">', '<a href="index.md">')
    page = page.replace(
        '<link rel="stylesheet" href="machine.css">', f"<style>\n{read_text(folder / PAGES / 'machine.css')}</style>"
    )
    page = page.replace(
        '<script src="emulator.js"></script>\n',
        f"<details><summary><b>Six exercises</b>, graded by the machine</summary>\n"
        f'<iframe id="lessons" title="exercises" srcdoc="{html.escape(lessons(folder))}"></iframe></details>\n'
        + _script(f"window.flashladder = {json.dumps(book)};\n"),
    )
    for name in ("pictures.js", "machine.js"):
        page = page.replace(f'<script src="{name}"></script>\n', _script(read_text(folder / PAGES / name)))
    return page


def link_to_machine(version: str) -> str:
    """The target of the story's link, from the top of the site."""
    kind, warp = STARTS[version]
    return f"machine/index.html?v={version}&kind={kind}&warp={warp}"


def with_machine_links(text: str, base: PurePosixPath) -> str:
    """A document with a link instead of each `<!-- machine: v28 wgmma 4 -->`; `base` is the folder of its page."""

    def link(found: re.Match[str]) -> str:
        version, kind, warp = found.groups()
        top = "../" * len(base.parts)
        address = f"{top}machine/index.html?v={version}&kind={kind}&warp={warp}"
        return f'<a href="{address}">In the machine: the first {kind} of warp {warp} of {version}</a>'

    return MACHINE_LINK.sub(link, text)


def with_places(story: str) -> str:
    """The story with a link into the machine after each step's block."""

    def link(found: re.Match[str]) -> str:
        kind, warp = STARTS[found[1]]
        words = f"In the machine: the first {kind} of warp {warp} of {found[1]}"
        return f'{found[0]}\n\n<a href="{link_to_machine(found[1])}">{words}</a>'

    return re.sub(r"^<!-- /(v\d\d) -->$", link, story, flags=re.MULTILINE)
