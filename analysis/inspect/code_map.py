"""CUDA source, PTX and SASS side by side: as a table, or as one HTML page without anything outside it.

    python3 -m analysis map v01                                  # a table for the terminal
    ./fl map v01 --html -o map.html

On the page a line under the mouse lights up what it became and what it came from; a click also moves the other panes
there. Each line shows counts: those of the emulator by source line, and ncu's samples by instruction.
"""

import argparse
import html
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from analysis.emulate.lines import Line, lines_of, read_lines
from analysis.errors import DONE, AnalysisError
from analysis.files import in_checkout, read_text, root
from analysis.ladder.headers import load
from analysis.machine_code.live import LIVE_OPTIONS, Live, live_everywhere
from analysis.machine_code.loops import parts_of
from analysis.machine_code.maps import MapRow, location_order, note_newer_sources, short_path, source_lines, source_map
from analysis.machine_code.ptx import EMBEDDED, Function, embedded_ptx, parse_ptx
from analysis.machine_code.sass import Listing
from analysis.machine_code.subjects import Subject, add_subject_arguments, start, subject_of
from analysis.measure.samples import Sampled, parse_samples
from analysis.table import Cell, Table, add_table_arguments, emit, json_text, print_table

Location = tuple[str, int]  # short path of a file, line


# ---- what the page shows ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CodeMap:
    """A kernel with everything that is known of its lines."""

    title: str
    listing: Listing
    rows: Sequence[MapRow]
    ptx: Sequence[str]  # all lines of the text that ptxas read
    function: Function  # the kernel in it
    loop: frozenset[int]  # addresses of the KV loop
    live: Live
    counted: Mapping[Location, Line]  # by the emulator
    sampled: Mapping[int, Sampled]  # by ncu, by address
    notes: Sequence[str] = ()  # where the counts are from

    def locations(self) -> dict[Location, list[MapRow]]:
        """Source lines with the instructions that come from them, inlined calls included."""
        found: dict[Location, list[MapRow]] = {}
        for row in self.rows:
            for location in dict.fromkeys(row.source):
                found.setdefault(location_order(location), []).append(row)
        return found

    def files(self) -> list[str]:
        """The source files, first those that most instructions come from."""
        times = Counter({file: 0 for file, _ in self.counted})
        times.update(file for (file, _), rows in self.locations().items() for _ in rows)
        return [file for file, _ in times.most_common()]

    def samples(self, rows: Iterable[MapRow]) -> int | None:
        """Samples of the instructions of some rows; None if nothing was sampled."""
        if not self.sampled:
            return None
        addresses = {row.instruction.address for row in rows}
        return sum(self.sampled[at].samples for at in addresses if at in self.sampled)


def code_map(subject: Subject, counters: Path | None, samples: Path | None) -> CodeMap:
    """Everything that is known of a subject's kernel. Without files: what regs/lines.csv and logs/samples/ hold."""
    cubin, kernel = subject.cubin_or_refuse("a map")
    counted, of_counts = counts_of(subject, counters)
    pending = start(subject, LIVE_OPTIONS)
    listing, rows = source_map(subject)
    note_newer_sources(subject, rows)
    text = embedded_ptx(cubin)
    function = next(each for each in parse_ptx(text, subject.name).functions if each.name == kernel.symbol)
    _, live = live_everywhere(pending)
    parts = parts_of(listing, subject=subject)
    sampled, of_samples = samples_of(subject, listing, samples)
    return CodeMap(
        f"{subject.name} {subject.arch} {subject.label}", listing, rows, text.splitlines(), function,
        frozenset(at.address for at in parts.loop), live, counted, sampled, (of_counts, of_samples),
    )  # fmt: skip


def counts_of(subject: Subject, path: Path | None) -> tuple[dict[Location, Line], str]:
    """Counters of the emulator by line of a version's own file, and their source."""
    if path is None:
        lines = read_lines(root()).get(subject.name, [])
        if not lines or subject.config != load(root(), subject.name).header.config:
            return {}, "The emulator's counts are not recorded; --counters FILE takes them."
        source = "regs/lines.csv"
    else:
        try:
            records = [json.loads(line) for line in read_text(path).splitlines()]
            configs = [record["config"] for record in records]
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise AnalysisError(f"{path}: not a record that --counters --json wrote ({error!r})") from None
        fitting = [record for record in records if record["config"] == str(subject.config)]
        if not fitting:
            raise AnalysisError(f"{path}: counts {', '.join(configs) or 'nothing'}, but the kernel is {subject.label}")
        record = fitting[-1]  # runs append to the file
        lines, source = lines_of(record, record.get("version", "")), str(path)
    files = {name: str(load(root(), name).path.relative_to(root())) for name in {line.version for line in lines}}
    return {(files[line.version], line.line): line for line in lines}, f"The emulator's counts are from {source}."


def samples_of(subject: Subject, listing: Listing, path: Path | None) -> tuple[dict[int, Sampled], str]:
    """ncu's samples by address, and where they are from: of the file whose machine code is that of the listing."""
    paths = [path] if path else sorted((root() / "logs/samples").glob(f"*.{subject.name}.*.csv"))
    code = [(at.address, at.opcode) for at in listing.instructions]
    for each in paths:
        for kernel in parse_samples(read_text(each), str(each)):
            if [(at.offset, at.opcode) for at in kernel.instructions] == code:
                return {at.offset: at for at in kernel.instructions}, f"ncu's samples are from {_shown_path(each)}."
    if path:
        raise AnalysisError(f"{path}: no kernel in it has the machine code of {subject.name} for {subject.arch}")
    if paths:
        return {}, f"ncu's samples in {', '.join(map(_shown_path, paths))} are of other machine code, see --arch."
    return {}, "ncu's samples are not recorded; --samples FILE takes them."


def _shown_path(path: Path) -> str:
    return str(path.relative_to(root())) if path.is_relative_to(root()) else str(path)


# ---- the page --------------------------------------------------------------------------------------------------------

STYLE = """
:root { color-scheme: light dark; --back: #fff; --text: #1c1e21; --soft: #667; --line: #d8dce0; --mark: #ffe08a;
  --pick: #ffc83d; --loop: #2f6db5; --heat: #e0703a; }
@media (prefers-color-scheme: dark) {
  :root { --back: #15181b; --text: #e4e6e8; --soft: #9aa2aa; --line: #363c42; --mark: #4d4418; --pick: #6e5f14;
    --loop: #6aa5e8; --heat: #b4532a; }
}
* { box-sizing: border-box; }
body { margin: 0; height: 100vh; display: flex; flex-direction: column; background: var(--back); color: var(--text);
  font: 13px/1.4 system-ui, sans-serif; }
header { padding: .4rem .6rem; } h1 { font-size: 1rem; margin: 0; } header p { margin: 0; color: var(--soft); }
main { flex: 1; min-height: 0; display: grid; grid-template-columns: 37fr 23fr 40fr; }
body:has(#with-ptx:not(:checked)) main { grid-template-columns: 1fr 1fr; }
body:has(#with-ptx:not(:checked)) #ptx { display: none; }
section { overflow-y: auto; overflow-x: hidden; border-left: 1px solid var(--line); position: relative;
  scrollbar-width: thin; }
table { border-collapse: collapse; width: 100%; font: 11px/1.35 ui-monospace, Consolas, monospace; }
th { position: sticky; top: 0; background: var(--back); color: var(--soft); font-weight: 400; text-align: right;
  box-shadow: 0 1px var(--line); padding: 1px 3px; }
th:last-child, th.file { text-align: left; } th.file { color: var(--text); font-weight: 600; top: 1.4em; }
td { padding: 0 3px; text-align: right; vertical-align: top; white-space: nowrap; color: var(--soft); }
td.code { width: 100%; text-align: left; white-space: pre-wrap; overflow-wrap: anywhere; color: var(--text);
  padding-left: 2ch; text-indent: -1.5ch; }
td.control { text-align: left; }
td.heat { background: linear-gradient(to left, color-mix(in srgb, var(--heat) 45%, transparent) var(--part),
  transparent var(--part)); }
a { color: inherit; text-decoration: none; } a:hover { text-decoration: underline; }
tr.loop td:first-child { border-left: 3px solid var(--loop); }
tr.lit, tr:target { background: var(--mark); } tr.picked { background: var(--pick); }
@media (max-width: 900px) { main { grid-template-columns: none; grid-template-rows: repeat(3, 1fr); } }
""".strip()

# The cells `from` of PTX and SASS say what belongs together; other links only lead to the first instruction.
SCRIPT = """
const related = new Map();
const relate = (a, b) => (related.get(a) ?? related.set(a, new Set()).get(a)).add(b);
for (const row of document.querySelectorAll('#ptx tr[id], #sass tr[id]')) {
  const ids = [row.id, ...[...row.querySelectorAll('td.from a')].map(link => link.hash.slice(1))];
  for (const a of ids) for (const b of ids) if (a[0] !== b[0]) relate(a, b);
}
let picked = null, lit = [];
function light(row) {
  for (const each of lit) each.classList.remove('lit', 'picked');
  lit = row ? [row, ...[...related.get(row.id) ?? []].map(id => document.getElementById(id))] : [];
  lit.forEach((each, index) => each.classList.add(index ? 'lit' : 'picked'));
}
const rowOf = event => event.target.closest('tr[id]');
document.addEventListener('mouseover', event => light(rowOf(event) ?? picked));
document.addEventListener('mouseout', () => light(picked));
document.addEventListener('click', event => {
  const row = rowOf(event);
  if (event.target.closest('a')) return;
  picked = row === picked ? null : row;
  light(picked);
  const moved = new Set([row?.closest('section')]), inLoop = each => each.classList.contains('loop');
  const order = row && inLoop(row) ? [...lit.filter(inLoop), ...lit] : lit;
  for (const each of picked ? order : []) {
    const other = each.closest('section');
    if (!moved.has(other)) other.scrollTop = each.offsetTop - other.clientHeight / 3;
    moved.add(other);
  }
});
""".strip()


def to_html(page: CodeMap) -> str:
    """The page as one HTML file: nothing is fetched; without its script the links still lead from line to line."""
    head = html.escape(page.title)
    notes = html.escape(" ".join(page.notes))
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{head}</title>
<style>
{STYLE}
</style>
</head>
<body>
<header><h1>{head}</h1>
<p>Point at a line to see what it became and what it comes from; click to go there. A bar on the left marks the KV loop.
Point at the name of a column or at a number to read what it counts. {notes}
<label><input type="checkbox" id="with-ptx" checked> PTX</label></p></header>
<main>
{_pane("cuda", _source_columns(page), _source_rows(page))}
{_pane("ptx", ("line", "CUDA", "PTX"), _ptx_rows(page))}
{_pane("sass", _sass_columns(page), _sass_rows(page))}
</main>
<script>
{SCRIPT}
</script>
</body>
</html>
"""


COLUMNS = {
    "line": "number of the line; the link leads to its first instruction",
    "n": "instructions that come from the line, inlined calls included",
    "live": "most live registers",
    "exec": "PTX instructions that warps executed on the emulator; × shared wavefronts for each without conflict",
    "%": "share of ncu's samples",
    "control": "wait, read and write scoreboards, yield and stall count",
}


def _pane(name: str, columns: Sequence[str], rows: Iterable[str]) -> str:
    head = "".join(f'<th scope="col" title="{COLUMNS.get(column, "")}">{column}</th>' for column in columns)
    body = "\n".join(rows)
    return f'<section id="{name}"><table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table></section>'


def _row(name: str, cells: Sequence[str], loop: bool) -> str:
    return f'<tr id="{name}"{" class=loop" * loop}>{"".join(cells)}</tr>'


def _link(name: str, text: object, title: str = "") -> str:
    said = f' title="{html.escape(title, quote=True)}"' if title else ""
    return f'<a href="#{name}"{said}>{text}</a>'


def _cell(value: object, title: str = "", part: float = 0) -> str:
    """A number with what it counts, and with a bar for its share of the largest."""
    heat = f' class="heat" style="--part:{100 * part:.0f}%"' if part else ""
    said = f' title="{html.escape(title, quote=True)}"' if title else ""
    return f"<td{heat}{said}>{value or ''}</td>"


def _executed_cell(line: Line | None, most: int) -> str:
    """The number of times that warps executed a line, and the factor by which bank conflicts repeat its accesses."""
    if line is None:
        return "<td></td>"
    times = f" ×{line.wavefronts / line.ideal:.2g}" if line.wavefronts > line.ideal else ""
    title = (
        f"{line.executed} PTX instructions executed, {line.wavefronts} shared wavefronts of {line.ideal} without "
        f"bank conflicts, {line.sectors} global sectors"
    )
    return _cell(f"{line.executed}{times}", title, line.executed / most)


def _samples_cell(samples: int | None, total: int, most: int) -> str:
    """The share of all samples of the kernel in percent."""
    if not samples:
        return "<td></td>"
    return _cell(f"{100 * samples / total:.1f}", f"{samples} of {total} samples", samples / most)


def _code(text: str) -> str:
    return f'<td class="code">{html.escape(text)}</td>'


def _source_columns(page: CodeMap) -> list[str]:
    counts = [*(["exec"] if page.counted else []), *(["%"] if page.sampled else [])]
    return ["line", "n", "live", *counts, "CUDA"]


def _source_rows(page: CodeMap) -> Iterator[str]:
    """Files of the checkout whole, of others the lines that instructions come from."""
    locations = page.locations()
    samples = {location: page.samples(rows) or 0 for location, rows in locations.items()}
    most_samples = max(samples.values(), default=0)
    most_executed = max((line.executed for line in page.counted.values()), default=0)
    total = page.samples(page.rows) or 0
    columns = len(_source_columns(page))
    for number, file in enumerate(page.files()):
        yield f'<tr><th class="file" colspan="{columns}">{html.escape(file)}</th></tr>'
        lines = source_lines(file)
        whole = [] if file.startswith(".") else lines  # .venv holds the toolkit
        named = {line for of, line in [*locations, *page.counted] if of == file}
        for line in sorted({*range(1, len(whole) + 1), *named}):
            rows = locations.get((file, line), [])
            addresses = [row.instruction.address for row in rows]
            live = max((page.live[at].get("GPR", 0) for at in addresses if at in page.live), default=0)
            cells = [f"<td>{_link(f's{addresses[0]:04x}', line) if rows else line}</td>"]
            cells += [_cell(len(rows)), _cell(live)]
            if page.counted:
                cells.append(_executed_cell(page.counted.get((file, line)), most_executed))
            if page.sampled:
                cells.append(_samples_cell(samples.get((file, line)), total, most_samples))
            cells.append(_code(lines[line - 1] if 0 < line <= len(lines) else ""))
            yield _row(f"c{number}-{line}", cells, any(at in page.loop for at in addresses))


def _ptx_rows(page: CodeMap) -> Iterator[str]:
    """The lines of the kernel, each with the source line that its .loc names. Only the top shows its symbol."""
    files = {file: number for number, file in enumerate(page.files())}
    known = page.locations()
    by_line: dict[int, list[int]] = {}
    for row in page.rows:
        if row.ptx_line is not None:
            by_line.setdefault(row.ptx_line, []).append(row.instruction.address)
    located = {each.line: short_path(each.location) for each in page.function.statements if each.location}
    first = page.function.line
    shown = [first, *(each.line for each in page.function.statements), *by_line]
    for line in range(min(shown), max(shown) + 1):
        addresses = by_line.get(line, [])
        location = location_order(located[line]) if line in located else None
        source = _source_link(location, files, located[line]) if location in known and location else ""
        text = " ".join(page.ptx[line - 1].split())
        number = _link(f"s{addresses[0]:04x}", line) if addresses else str(line)
        cells = [f"<td>{number}</td>", f"<td class=from>{source}</td>"]
        cells.append(_code(text if line == first else text.replace(page.function.name, "…")))
        yield _row(f"p{line}", cells, any(at in page.loop for at in addresses))


def _source_link(location: Location, files: Mapping[str, int], title: str = "") -> str:
    file, line = location
    return _link(f"c{files[file]}-{line}", line, title)


def _sass_columns(page: CodeMap) -> list[str]:
    return ["at", "live", *(["%"] if page.sampled else []), "control", "PTX", "CUDA", "SASS"]


def _sass_rows(page: CodeMap) -> Iterator[str]:
    files = {file: number for number, file in enumerate(page.files())}
    most = max((at.samples for at in page.sampled.values()), default=0)
    total = page.samples(page.rows) or 0
    for row in page.rows:
        at = row.instruction
        ptx = _link(f"p{row.ptx_line}", row.ptx_line) if row.ptx_line is not None else ""
        cells = [f"<td>{at.address:04x}</td>", _cell(page.live.get(at.address, {}).get("GPR"))]
        if page.sampled:
            found = page.sampled.get(at.address)
            cells.append(_samples_cell(found.samples if found else None, total, most))
        cells += [f"<td class=control>{at.control or ''}</td>", f"<td class=from>{ptx}</td>"]
        cells += [f"<td class=from>{_chain(row, files)}</td>", _code(at.text)]
        yield _row(f"s{at.address:04x}", cells, at.address in page.loop)


def _chain(row: MapRow, files: Mapping[str, int]) -> str:
    """The innermost line in the main file; its title lists the rest of the chain of inlined calls."""
    locations = [location_order(location) for location in dict.fromkeys(row.source)]
    if not locations:
        return ""
    chosen = next((location for location in locations if files[location[0]] == 0), locations[0])
    others = "".join(_source_link(location, files) for location in locations if location != chosen)
    title = " ← ".join(row.source)
    return _source_link(chosen, files, title) + (f"<span hidden>{others}</span>" if others else "")


# ---- the command -----------------------------------------------------------------------------------------------------


def map_table(listing: Listing, rows: list[MapRow], ptx: str | None) -> Table:
    texts = ptx.splitlines() if ptx else []
    cells: list[list[Cell]] = []
    last: tuple[object, ...] = ()
    for row in rows:
        source = " < ".join(row.source)
        text = texts[row.ptx_line - 1].strip() if row.ptx_line and row.ptx_line <= len(texts) else ""
        here = (source, row.ptx_line)
        repeated = here == last
        last = here
        cells.append(
            [
                "" if repeated else source,
                None if repeated else row.ptx_line,
                "" if repeated else " ".join(text.split())[:70],
                f"{row.instruction.address:04x}",
                row.instruction.text,
            ]
        )
    return Table(("source", "ptx line", "ptx", "address", "sass"), cells)


def add_map_arguments(parser: argparse.ArgumentParser) -> None:
    add_subject_arguments(parser)
    parser.add_argument(
        "--line", metavar="FILE:LINE", help="show only the code of this source line; LINE: of the main file"
    )
    parser.add_argument("--ptx-line", type=int, metavar="LINE", help="show only the code of this PTX line")
    parser.add_argument("--html", action="store_true", help="write the entire kernel as one HTML page")
    parser.set_defaults(counters=None)
    if in_checkout():
        parser.add_argument("--counters", type=Path, metavar="FILE", help="with --html: the emulator's counts by "
                            "source line, a record of `bin/v07 --backend emu --counters --json FILE`")  # fmt: skip
    parser.add_argument("--samples", type=Path, metavar="FILE", help="with --html: ncu's samples, as "
                        "`ncu --import REPORT --page source --print-source sass --csv` prints them")  # fmt: skip
    add_table_arguments(parser)


def run_map(args: argparse.Namespace) -> int:
    subject = subject_of(args)
    cubin, _ = subject.cubin_or_refuse("a map")
    if args.html:
        if args.line or args.ptx_line is not None or args.json or args.csv or args.markdown or args.sort:
            raise AnalysisError("--html: shows the entire kernel; combine it only with --counters, --samples and -o")
        emit(to_html(code_map(subject, args.counters, args.samples)), args.output)
        return DONE
    if args.counters or args.samples:
        raise AnalysisError("--counters, --samples: require --html")
    listing, rows = source_map(subject)
    note_newer_sources(subject, rows)
    if args.line:
        rows = [row for row in rows if any(_is_line(location, args.line) for location in row.source)]
        if not rows:
            raise AnalysisError(f"{subject.name}: --line {args.line}: no instruction comes from that line")
    if args.ptx_line is not None:
        rows = [row for row in rows if row.ptx_line == args.ptx_line]
        if not rows:
            raise AnalysisError(f"{subject.name}: --ptx-line {args.ptx_line}: no instruction comes from that line")
    if args.json:
        records = [
            {
                "address": row.instruction.address,
                "sass": row.instruction.text,
                "ptx_line": row.ptx_line,
                "source": list(row.source),
            }
            for row in rows
        ]
        emit(json_text(records), args.output)
        return DONE
    ptx = embedded_ptx(cubin) if cubin.section(EMBEDDED) else None
    print_table(map_table(listing, rows, ptx), args)
    return DONE


def _is_line(location: str, wanted: str) -> bool:
    return (
        location == wanted
        or location.endswith("/" + wanted)
        or (wanted.isdecimal() and location.endswith(":" + wanted))
    )
