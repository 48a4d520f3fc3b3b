"""One page over all versions: build/report.html, a file that fetches nothing.

    python3 -m analysis report

A summary comes first, then the ladder. Everything else is folded. A click on the name of a column sorts its table. The
page is made from committed files: header blocks, regs/, sass/ and logs/bench/.
"""

import argparse
import html
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.errors import DONE
from analysis.files import root, write_if_changed
from analysis.machine_code.counts import count_instructions, counts_table
from analysis.machine_code.occupancy import occupancy_of
from analysis.machine_code.sass_diff import compare
from analysis.measure.records import Record, RecordError, latest_run, records_in
from analysis.measure.summary import rows as summary_rows
from analysis.measure.summary import wide_table
from analysis.publish import drawing, pictures, predictions
from analysis.publish.ladder_page import MISSING, families, ladder_table
from analysis.publish.libraries import NOT_MEASURED, fastest, libraries_at
from analysis.publish.overview import GPU, HEADLINE, LISTED, PEER, Step, read_steps
from analysis.table import Cell, Table, emit, json_text

TITLE = "flashladder: all versions"
OPEN = 2  # sections that are not folded


@dataclass(frozen=True)
class Picture:
    """A figure of pictures.py; `name` keeps its parts apart from those of other figures, `alt` says what it shows."""

    name: str
    alt: str
    figure: Any


@dataclass(frozen=True)
class Section:
    """A heading, what to know before reading, and tables and pictures."""

    title: str
    text: str
    blocks: Sequence[Table | Picture]


# ---- what the page holds ---------------------------------------------------------------------------------------------


def sections(folder: Path) -> list[Section]:
    """The entire page in order."""
    steps = read_steps(folder)
    page = [summary_section(folder, steps), versions_section(steps)]
    page += [speed_section(path.stem, records_in(path)) for path in sorted((folder / "logs/bench").glob("*.jsonl"))]
    loops = [loop_section(steps, arch) for arch in sorted({arch for step in steps for arch in step.parts})]
    return [*page, resource_section(steps), steps_section(steps), *loops, predictions_section(steps)]


def summary_section(folder: Path, steps: Sequence[Step]) -> Section:
    """The state of the ladder, in sentences and one picture."""
    best = fastest(steps)
    said = [f"{len(steps)} versions."]
    if speed := best.speeds.get(GPU):
        said.append(f"The fastest is {best.name} with {speed.tflops:.0f} TFLOP/s on an {GPU.upper()} ({HEADLINE}).")
        others = [f"{name} {row.tflops:.0f}" for name, row in libraries_at(folder, steps).items()]
        said += [f"Libraries on the same problem: {', '.join(others)}."] if others else []
        gains = {step.name: gain for step in steps if (gain := step.gain())}
        largest = sorted(gains, key=lambda name: -gains[name])[:3]
        said.append("Largest steps: " + ", ".join(f"{name} (× {gains[name]:.2f})" for name in largest) + ".")
    figure = pictures.progress(folder, steps)
    alt = "Percent of FlashAttention-2's speed by version, with the libraries as horizontal lines"
    return Section("Summary", " ".join(said), [Picture("progress", alt, figure)] if figure else [])


def versions_section(steps: Sequence[Step]) -> Section:
    text = (
        f"Each version in its own configuration ({HEADLINE}). Speed / FA2 is the speed divided by FlashAttention-2's "
        "in the same run, ± half of the 95 % interval. Loop / HMMA is the number of instructions in the KV loop per "
        "matrix instruction. Wavefronts / ideal divides the emulator's count by that without bank conflicts."
    )
    tables = [ladder_table(found, links=False, archs=archs) for archs, found in families(steps).items() if found]
    return Section("Versions", text, tables)


def speed_section(gpu: str, records: tuple[Record, ...]) -> Section:
    """Every problem of the newest run on one GPU, a table per type: the headline's first."""
    said, tables = [], []
    for dtype in dict.fromkeys((HEADLINE.dtype, "fp16", "bf16")):
        of_type = [record for record in records if record.problem.dtype == dtype]
        try:
            run = latest_run(of_type, [PEER] if any(record.subject == PEER for record in of_type) else [])
        except RecordError:
            continue
        found, reference = summary_rows([record for record in of_type if record.run_id == run])
        said.append(f"{dtype}: run {run}, ratio to {reference}.")
        tables.append(wide_table(found, reference))
    text = " ".join(["TFLOP/s by type and length, in brackets the ratio.", *said])
    return Section(f"Speed on {gpu.upper()}", text, tables)


def resource_section(steps: Sequence[Step]) -> Section:
    """Registers, local memory, shared memory and what they leave of an SM."""
    columns = ("version", "arch", "registers", "stack", "spill B", "LDL", "STL", "smem B", "CTAs per SM", "config")
    rows: list[list[Cell]] = []
    for step in steps:
        config = step.version.header.config
        for arch, row in step.rows.items():
            rows.append([step.name, arch, row.registers, row.stack, row.spill_stores + row.spill_loads])
            rows[-1] += [row.ldl, row.stl, config.smem_bytes()]
            rows[-1] += [occupancy_of(arch, row.registers, config).ctas or "does not fit", str(config)]
    text = "LDL and STL are counted in the code: a kernel without spills can still use local memory."
    return Section("Registers and memory", text, [Table(columns, rows)])


def steps_section(steps: Sequence[Step]) -> Section:
    """The changes of each version from its parent, in source and machine code."""
    by_name = {step.name: step for step in steps}
    rows: list[list[Cell]] = []
    for step in steps:
        if parent := by_name.get(step.version.header.parent):
            row: list[Cell] = [f"{parent.name} -> {step.name}", step.version.header.title, step.changed]
            both = step.arch in step.parts and step.arch in parent.parts
            row.append(compare(parent.parts[step.arch], step.parts[step.arch]).verdict if both else MISSING)
            rows.append(row)
    text = "Source lines added and removed, and what changed in the KV loop."
    return Section("Steps", text, [Table(("step", "idea", "lines changed", f"KV loop, {LISTED}"), rows)])


def loop_section(steps: Sequence[Step], arch: str) -> Section:
    """Opcode families of the KV loop, one column per version."""
    there = [step for step in steps if arch in step.parts]
    counts = [
        (step.name, count_instructions("loop", step.parts[arch].loop, matrix=step.parts[arch].graph.matrix))
        for step in there
    ]
    alt = f"Instructions of the KV loop per {there[0].unit(arch)} by purpose, {arch}"
    mix = Picture(f"loop-{arch}", alt, pictures.loop_mix(there, arch))
    text = "Instructions by family. !PT marks dummies that are never executed; they count in the total."
    return Section(f"KV loop, {arch}", text, [mix, counts_table(counts, per_matrix=False)])


def predictions_section(steps: Sequence[Step]) -> Section:
    """Every claim of the header blocks, with its score."""
    claims = predictions.judge(steps)
    text = (
        "Claims of the header blocks, written before measuring. A hit is within the tolerance. Near misses it by at "
        "most 5 % of the number, or by twice the tolerance where it is relative to the parent."
    )
    return Section("Predictions", text, [predictions.tally(claims), predictions.table(claims)])


# ---- HTML ------------------------------------------------------------------------------------------------------------

STYLE = """
:root { color-scheme: light dark; --back: #fff; --text: #1c1e21; --soft: #5c636b; --line: #d8dce0; --bar: #2f6db5; }
@media (prefers-color-scheme: dark) {
  :root { --back: #15181b; --text: #e4e6e8; --soft: #9aa2aa; --line: #363c42; --bar: #6aa5e8; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 100rem; background: var(--back); color: var(--text);
  font: 1rem/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2rem; }
nav a { display: inline-block; margin-right: 1rem; padding: .25rem 0; } a { color: var(--bar); }
p { max-width: 45rem; color: var(--soft); }
.wide { overflow: auto; max-height: 95vh; margin: 1rem 0; }
/* A shade at an edge past which there is more: the first two layers scroll along and cover it where there is not. */
.wide, .scroll { --shade: color-mix(in srgb, var(--text) 25%, transparent); background:
  linear-gradient(to right, var(--back) 40%, transparent) left / 2.5rem 100% no-repeat local,
  linear-gradient(to left, var(--back) 40%, transparent) right / 2.5rem 100% no-repeat local,
  linear-gradient(to right, var(--shade), transparent) left / .75rem 100% no-repeat scroll,
  linear-gradient(to left, var(--shade), transparent) right / .75rem 100% no-repeat scroll; }
table { border-collapse: separate; border-spacing: 0; font-size: .8125rem; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .375rem; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
th { vertical-align: bottom; max-width: 7rem; cursor: pointer; } td { white-space: nowrap; }
td.long { white-space: normal; min-width: 10rem; overflow-wrap: anywhere; }
th.number, td.number { text-align: right; }
@media (max-width: 40rem) { .wide { max-height: 80vh; } td.long { min-width: 5.5rem; } th, td { padding: .25rem; } }
@media print { .wide { max-height: none; } }
thead th { position: sticky; top: 0; z-index: 1; background: var(--back); }
td:first-child, th:first-child { position: sticky; left: 0; background: var(--back); } th:first-child { z-index: 2; }
tbody tr:hover { background: color-mix(in srgb, var(--bar) 12%, transparent); }
summary { cursor: pointer; padding: .25rem 0; } summary h2 { display: inline; }
figure { margin: 1rem 0; } .scroll { overflow-x: auto; }
svg { width: 100%; height: auto; font: 12px system-ui, sans-serif; min-width: 44rem; max-width: 60rem;
  color: var(--text); }
svg text { fill: var(--text); }
""".strip()
SCRIPT = """
document.addEventListener('click', event => {
  const head = event.target.closest('th');
  if (!head) return;
  const body = head.closest('table').tBodies[0], down = head.ariaSort === 'ascending';
  const value = row => row.cells[head.cellIndex].textContent, number = row => parseFloat(value(row).replace(/,/g, ''));
  const order = (a, b) => isNaN(number(a)) || isNaN(number(b))
    ? isNaN(number(a)) - isNaN(number(b)) || value(a).localeCompare(value(b)) : number(a) - number(b);
  const rows = [...body.rows].sort(order);
  body.append(...(down ? rows.reverse() : rows));
  for (const other of head.parentNode.cells) other.removeAttribute('aria-sort');
  head.ariaSort = down ? 'descending' : 'ascending';
});
""".strip()
# A number as cells show it: 5.20, 1,024, 1.102 ± 0.005, 367.1 (1.239), 12 %, 41/39; a dash means none.
_NUMBER = re.compile(rf"[+−-]?[\d.,]+( ± (< )?[\d.,]+)?( ?\([\d.,]+\))?( ?%)?(/[\d.,]+)?|[–-]||{NOT_MEASURED}")
LONG = 14  # characters of a cell that gets a column of some width, on a phone too


def to_html(page: Sequence[Section]) -> str:
    """The page as one HTML file: nothing is fetched, light and dark, readable on a phone."""
    links = "\n".join(f'<a href="#s{i}">{html.escape(section.title)}</a>' for i, section in enumerate(page))
    body = "\n".join(_section(i, section) for i, section in enumerate(page))
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(TITLE)}</title>
<style>{STYLE}</style></head>
<body><h1>{html.escape(TITLE)}</h1>
<nav>{links}</nav>
{body}
<script>{SCRIPT}</script>
</body></html>
"""


def _section(index: int, section: Section) -> str:
    blocks = [text for block in section.blocks if (text := _block(block))] or ["<p>Nothing is recorded yet.</p>"]
    text, title = f"<p>{html.escape(section.text)}</p>", f"<h2>{html.escape(section.title)}</h2>"
    if index < OPEN:
        return "\n".join([f'<section id="s{index}">', title, text, *blocks, "</section>"])
    return "\n".join([f'<details id="s{index}"><summary>{title}</summary>', text, *blocks, "</details>"])


def _block(block: Table | Picture) -> str:
    """A picture or a table, in an element that the keys can scroll; nothing for a table without rows."""
    if isinstance(block, Picture):
        drawn = drawing.inline_svg(block.figure, block.name, block.alt)
        return f'<figure><div class="scroll" {_reachable(block.alt)}>{drawn}</div></figure>'
    if not block.rows:
        return ""
    numbers = [all(_NUMBER.fullmatch(_text(row[at])) for row in block.rows) for at in range(len(block.columns))]
    pairs = zip(block.columns, numbers, strict=True)
    head = "".join(f'<th scope="col"{_class("number" * number)}>{html.escape(name)}</th>' for name, number in pairs)
    rows = "\n".join(
        f"<tr>{''.join(_cell(_text(cell), number) for cell, number in zip(row, numbers, strict=True))}</tr>"
        for row in block.rows
    )
    name = f"table of {block.columns[0]}, {', '.join(block.columns[1:3])}"
    body = f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table>"
    return f'<div class="wide" {_reachable(name)}>{body}</div>'


def _reachable(name: str) -> str:
    return f'tabindex="0" role="region" aria-label="{html.escape(name)}"'


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""


def _text(cell: Cell) -> str:
    return f"{cell:.4g}" if isinstance(cell, float) else "" if cell is None else str(cell)


def _cell(text: str, number: bool) -> str:
    return f"<td{_class('number' if number else 'long' * (len(text) > LONG))}>{html.escape(text)}</td>"


# ---- the command -----------------------------------------------------------------------------------------------------


def add_report_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="folder for report.html (build/)")
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON instead of writing the page")


def run_report(args: argparse.Namespace) -> int:
    folder = root()
    if args.json:
        from analysis.publish.documents import ladder_record

        emit(json_text(ladder_record(read_steps(folder))), None)
        return DONE
    write_if_changed(path := (args.out or folder / "build") / "report.html", to_html(sections(folder)))
    print(path)
    return DONE
