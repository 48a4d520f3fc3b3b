"""The KV loop of a version as SASS, PTX and CUDA side by side: a line of one highlights its lines in the other two.

    found = read_linked(root(), version)         # None where the version is not built
    text = linked_html(found)                    # for a page of the site; docs/site/linked.js lights the lines

nvdisasm says which line of PTX and of the source an instruction comes from, and which registers are live there. The
counters are those of the version's own kernel on the emulator: SEQ rows, one head.
"""

import ctypes
import html
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from analysis.errors import AnalysisError
from analysis.files import read_text, root
from analysis.ladder.headers import Version
from analysis.machine_code.live import LIVE_OPTIONS, LiveLoop, read_live
from analysis.machine_code.maps import MapRow, source_map
from analysis.machine_code.subjects import DEFAULT_ARCH, resolve, start

EMULATOR = Path("build/wasm/page.so")
SEQ = 256
ALL_STEPS = 0xFFFFFFFF
AROUND = 2  # lines of the source that are shown around those of the loop


@dataclass(frozen=True)
class Counted:
    """Counters of one line of PTX in a launch. `ideal` is the wavefronts of the same accesses without bank
    conflicts."""

    ptx_line: int
    line: int  # of the kernel's own file
    executed: int
    wavefronts: int
    ideal: int
    sectors: int

    def __add__(self, other: "Counted") -> "Counted":
        sums = (self.executed + other.executed, self.wavefronts + other.wavefronts, self.ideal + other.ideal)
        return Counted(self.ptx_line, self.line, *sums, self.sectors + other.sectors)


@dataclass(frozen=True)
class Linked:
    """The loop of a version, its positions in PTX and source, and what each line did."""

    version: Version
    ptx: Sequence[str]  # lines of the PTX file
    loop: LiveLoop
    rows: Sequence[MapRow]  # the instructions of the loop
    counted: Sequence[Counted]

    def own_line(self, row: MapRow) -> int | None:
        """The innermost line of the kernel's own file."""
        file = f"kernels/{self.version.file}:"
        return next((int(location[len(file) :]) for location in row.source if location.startswith(file)), None)


@cache
def emulator(path: Path) -> ctypes.CDLL:
    """The emulator of the pages as a library of this machine."""
    library = ctypes.CDLL(str(path))
    library.emu_view_text.restype = ctypes.c_char_p
    library.emu_view_load.argtypes = (ctypes.c_char_p, ctypes.c_uint32)
    return library


def count(path: Path, ptx: bytes, symbol: str, name: str) -> list[Counted]:
    """Run a kernel on a problem of SEQ rows, and count by line of its PTX."""
    library = emulator(path)
    if library.emu_view_load(ptx, len(ptx)):
        raise AnalysisError(f"{name}: {refusal(library)}")
    entry = json.loads(library.emu_view_text()).index(symbol)
    if library.page_problem(entry, SEQ, 0, 0, 0, 1, 0) or library.emu_view_run(ALL_STEPS):
        raise AnalysisError(f"{name}: {refusal(library)}")
    library.emu_view_counters()
    return [Counted(*row) for row in json.loads(library.emu_view_text())["rows"]]


def refusal(library: ctypes.CDLL) -> str:
    library.emu_view_refusal()
    return json.loads(library.emu_view_text())["text"] or "expected a launch without a finding"


def read_linked(folder: Path, version: Version) -> Linked | None:
    """A version's own kernel; None where its PTX, its machine code or the emulator is not built."""
    name = version.version
    ptx = folder / f"build/{name}/{name}.ptx"
    if folder != root() or not all(path.exists() for path in (ptx, folder / EMULATOR, *cubins(folder, version)[:1])):
        return None
    subject = resolve(name)
    loop = read_live(start(subject, LIVE_OPTIONS))
    _, rows = source_map(subject)
    inside = {at.address for at in loop.parts.loop}
    counted = count(folder / EMULATOR, ptx.read_bytes(), subject.symbol, name)
    return Linked(
        version, read_text(ptx).splitlines(), loop, [row for row in rows if row.instruction.address in inside], counted
    )


def cubins(folder: Path, version: Version) -> list[Path]:
    """The machine code that the page shows, which may not be built."""
    return [folder / f"build/{version.version}/{arch}.cubin" for arch in version.archs((DEFAULT_ARCH,))]


# ---- the three texts -------------------------------------------------------------------------------------------------


def by_line(counted: Iterable[Counted], key: str) -> dict[int, Counted]:
    """Sums by "line" or "ptx_line"."""
    found: dict[int, Counted] = {}
    for one in counted:
        at = getattr(one, key)
        found[at] = found[at] + one if at in found else one
    return found


def cell(number: int | None, width: int) -> str:
    return f"{number or '':>{width}}"


def half_indented(text: str) -> str:
    """A line of a list that is narrow."""
    body = text.lstrip(" ")
    return " " * ((len(text) - len(body)) // 2) + body


def row_html(text: str, ptx: int | None = None, line: int | None = None, mark: str = "") -> str:
    """One line; `ptx` and `line` name the lines of PTX and source that it belongs to."""
    names = "".join(f" data-{name}={value}" for name, value in (("p", ptx), ("c", line)) if value)
    return f"<li{names}{mark}>{html.escape(text) or '&nbsp;'}</li>"


def sass_rows(linked: Linked) -> list[str]:
    """Address, control code, live registers, instruction."""
    live = linked.loop.live
    return [
        row_html(
            f"{at.address:05x} {at.control or ''!s:18} {live[at.address].get('GPR', 0):>3}  {at.text}",
            row.ptx_line,
            linked.own_line(row),
        )
        for row in linked.rows
        for at in (row.instruction,)
    ]


def ptx_rows(linked: Linked) -> list[str]:
    """The lines that the loop comes from: number, executed, text."""
    lines = {row.ptx_line: linked.own_line(row) for row in linked.rows if row.ptx_line}
    sums = by_line(linked.counted, "ptx_line")
    return [
        row_html(
            f"{number:>5} {cell(sums[number].executed if number in sums else None, 6)}  "
            + " ".join(linked.ptx[number - 1].split()),
            number,
            lines[number],
        )
        for number in sorted(lines)
    ]


def source_rows(linked: Linked) -> list[str]:
    """Lines of the kernel around those of the loop: number, executed, wavefronts, most live registers, text."""
    source = linked.version.source.splitlines()
    sums = by_line(linked.counted, "line")
    most: dict[int, int] = defaultdict(int)
    for row in linked.rows:
        if line := linked.own_line(row):
            most[line] = max(most[line], linked.loop.live[row.instruction.address].get("GPR", 0))
    near = sorted({n for line in most for n in range(line - AROUND, line + AROUND + 1) if 1 <= n <= len(source)})
    rows = []
    for before, number in zip([0, *near], near, strict=False):
        if number != before + 1:
            rows.append(row_html("     ⋯"))
        one = sums.get(number)
        counts = [cell(one.executed if one else None, 6), cell(one.wavefronts if one else None, 5)]
        live = cell(most.get(number), 4)
        conflict = " class=conflict" if one and one.wavefronts > one.ideal else ""
        linked_to = number if number in most else None
        text = f"{number:>4} {' '.join(counts)} {live}  {half_indented(source[number - 1])}"
        rows.append(row_html(text, None, linked_to, conflict))
    return rows


PANES = (
    ("SASS", "addr  control            live  instruction", sass_rows),
    ("PTX", " line   runs  instruction", ptx_rows),
    ("CUDA", "line   runs waves live  source", source_rows),
)


def linked_html(linked: Linked) -> str:
    """The three panes; an empty line would end them in Markdown."""
    version, panes = linked.version.version, ""
    for name, head, rows in PANES:
        panes += (
            f'<div class="pane"><h3 id="{version}-{name}">{name}</h3><div class="scroll"><p class="head">{head}</p>'
            f'<ol role="listbox" aria-labelledby="{version}-{name}" aria-multiselectable="true" tabindex="0">'
            f"{''.join(rows(linked))}</ol></div></div>\n"
        )
    arch, many = linked.loop.parts.listing.arch, len(linked.rows)
    return (
        f"<details class='three' data-version='{version}'><summary>The KV loop on {arch} three ways: {many} "
        "instructions of SASS, their PTX, their CUDA</summary>\n"
        "<p>Point at a line, tap it, or go through a list with ↑ and ↓: "
        f"its lines in the other two light up. <i>live</i>: registers of a thread that hold a value; <i>runs</i>: warp "
        f"instructions, <i>waves</i>: wavefronts of shared memory, both on the emulator for {SEQ} rows of one head. "
        f"A red line has bank conflicts. <a class='machine' href='../machine/index.html?v={version}'>In the machine</a>"
        f"</p>\n<div class='panes'>\n{panes}</div>\n</details>\n"
        '<script defer src="../_static/linked.js"></script>\n'
    )


# ---- numbers next to them --------------------------------------------------------------------------------------------


def live_picture(linked: Linked) -> str:
    """Live registers along the loop, under the limit of a thread, as SVG."""
    counts = [linked.loop.live[row.instruction.address].get("GPR", 0) for row in linked.rows]
    limit = linked.loop.limit or max(counts)
    top, wide, high = max(256, limit, *counts), 600, 110
    x = [round(at * wide / max(1, len(counts) - 1), 1) for at in range(len(counts))]
    points = " ".join(f"{left:g},{high - value * high / top:.1f}" for left, value in zip(x, counts, strict=True))
    words = f"Live registers along the loop: {min(counts)} to {max(counts)}; a thread has {limit}"
    return (
        f'<figure class="live"><svg viewBox="0 -4 {wide} {high + 8}" role="img" aria-label="{words}">'
        f'<line x1="0" x2="{wide}" y1="{high - limit * high / top:.1f}" y2="{high - limit * high / top:.1f}"/>'
        f'<polyline points="{points}"/></svg><figcaption>{words} (dashed).</figcaption></figure>\n'
    )


def banks(linked: Linked) -> str:
    """The lines of the kernel that wait for banks of shared memory."""
    sums = by_line(linked.counted, "line")
    waves, ideal = sum(one.wavefronts for one in sums.values()), sum(one.ideal for one in sums.values())
    slow = [(line, one) for line, one in sorted(sums.items()) if one.wavefronts > one.ideal]
    many = f"{waves} wavefronts of shared memory for {SEQ} rows of one head"
    if not slow:
        return f"{many}: as many as without bank conflicts.\n"
    text = f"{many}, {waves / ideal:.2f} times those without bank conflicts ({ideal}):\n\n"
    source, version = linked.version.source.splitlines(), linked.version.version
    for line, one in slow:
        words = f"`{source[line - 1].strip()[:60]}`: {one.wavefronts} for {one.ideal}"
        text += f'- <a href="../machine/index.html?v={version}&line={line}">line {line}</a>, {words}\n'
    return text
