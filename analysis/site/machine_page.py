"""The files of the machine: a page of the site on which versions run in the browser, also from file://.

    for name, text in machine_files(root()).items(): ...     # build/site/sources/linked/machine/NAME

The page is that of docs/site/machine. A page that is read from a file may fetch nothing, so the module, the worker and
each version's PTX and source are scripts that hold them as texts.
"""

import base64
import gzip
import json
import re
from pathlib import Path, PurePosixPath

from analysis.errors import AnalysisError
from analysis.files import read_text
from analysis.ladder.headers import load_all

PAGES = Path("docs/site/machine")
MACHINE_LINK = re.compile(r"<!-- machine: (v\d\d[a-z]?) (\w+) (\d+) -->")
PARTS = ("index.html", "machine.css", "pictures.js", "machine.js")
WASM = Path("build/wasm/emulator.wasm")
# Where the links of the story lead: the first instruction of that kind of a warp.
PLACES = {
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


def machine_files(folder: Path) -> dict[str, str]:
    """Every file by its name below machine/; none where `make wasm` has made no module."""
    if not (folder / WASM).exists():
        return {}
    made = {name: read_text(folder / PAGES / name) for name in PARTS}
    titles = {}
    for name, version in load_all(folder).items():
        path = folder / f"build/{name}/{name}.ptx"
        if not path.exists():
            raise AnalysisError(f"{path}: expected the PTX of {name}: run `make site`, which makes it")
        titles[name] = version.header.title
        held = {"ptx": packed(first_entry(read_text(path)).encode()), "source": version.source}
        made[f"data/{name}.js"] = f"flashladder.versions.{name} = {json.dumps(held)};\n"
    for name in PLACES:
        dump = packed(first_entry(read_text(folder / f"build/dump/{name}/{name}.ptx")).encode())
        made[f"data/{name}.dump.js"] = f"flashladder.versions.{name}.dump = {json.dumps(dump)};\n"
    worker = read_text(folder / PAGES / "worker.js")
    book = {
        "wasm": packed((folder / WASM).read_bytes()),
        "worker": worker,
        "titles": titles,
        "versions": {},
        "dumps": [*PLACES],
    }
    made["emulator.js"] = f"window.flashladder = {json.dumps(book)};\n"
    return made


def place_in_machine(version: str) -> str:
    """Where the story's link leads, from the top of the site."""
    kind, warp = PLACES[version]
    return f"machine/index.html?v={version}&kind={kind}&warp={warp}"


def with_machine_links(text: str, base: PurePosixPath) -> str:
    """A document with a link in place of each `<!-- machine: v28 wgmma 4 -->`; `base` is the folder of its page."""

    def link(found: re.Match[str]) -> str:
        version, kind, warp = found.groups()
        top = "../" * len(base.parts)
        address = f"{top}machine/index.html?v={version}&kind={kind}&warp={warp}"
        return f'<a href="{address}">In the machine: the first {kind} of warp {warp} of {version}</a>'

    return MACHINE_LINK.sub(link, text)


def with_places(story: str) -> str:
    """The story with a link into the machine behind each step's block."""

    def link(found: re.Match[str]) -> str:
        kind, warp = PLACES[found[1]]
        words = f"In the machine: the first {kind} of warp {warp} of {found[1]}"
        return f'{found[0]}\n\n<a href="{place_in_machine(found[1])}">{words}</a>'

    return re.sub(r"^<!-- /(v\d\d) -->$", link, story, flags=re.MULTILINE)
