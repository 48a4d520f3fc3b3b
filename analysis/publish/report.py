"""One page over all versions, as Markdown and as one HTML file without anything outside it.

    python3 -m analysis report            # build/report.html; build/report.md with its pictures in build/report/

The page is made from committed files: header blocks, regs/, sass/, logs/bench/ and the published figures. A section
whose files are not there says so.
"""

import argparse
import html
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.emulate.traffic import MODELLED
from analysis.errors import DONE
from analysis.files import root, write_if_changed
from analysis.machine_code.bounds import UNKNOWN, loop_bound
from analysis.machine_code.counts import count_instructions, counts_table
from analysis.machine_code.occupancy import occupancy_of
from analysis.machine_code.regs import read_accepted
from analysis.machine_code.sass_diff import compare
from analysis.measure.records import Record, RecordError, latest_run, records_in
from analysis.measure.summary import rows as summary_rows
from analysis.measure.summary import wide_table
from analysis.publish import drawing, pictures, predictions
from analysis.publish.libraries import NOT_MEASURED, Standing, libraries_at, records_of
from analysis.publish.overview import ARCHS, HEADLINE, PEER, Step, read_steps
from analysis.publish.readme import (
    MISSING,
    families,
    ladder_record,
    ladder_table,
    published_speed_table,
    published_table,
    shown,
)
from analysis.table import Cell, Table, emit, json_text

HEADLINE_TEXT = f"{HEADLINE.dtype}, batch {HEADLINE.batch}, {HEADLINE.heads} heads, seq {HEADLINE.seq}"


@dataclass(frozen=True)
class Picture:
    """A figure of pictures.py. `name` is that of its file beside the Markdown page."""

    name: str
    title: str
    alt: str
    figure: Any


Block = Table | Picture


@dataclass(frozen=True)
class Section:
    """A heading, what to know before reading, and tables and pictures."""

    title: str
    text: str
    blocks: Sequence[Block]


# ---- what the page holds ---------------------------------------------------------------------------------------------


def sections(folder: Path) -> list[Section]:
    """The whole page in order."""
    steps = read_steps(folder)
    page = [
        Section(
            "Versions",
            f"Each version at its own config. TFLOP/s are those of {HEADLINE_TEXT}. Speed / FA2 is the speed divided "
            "by FlashAttention-2's in the same run, ± the half-width of the 95 % interval. Loop / HMMA is the number "
            "of instructions in the KV loop per matrix instruction. Wavefronts / ideal is what the emulator models, "
            "divided by the same accesses without bank conflicts.",
            [
                progress_picture(steps, libraries_at(records_of(folder), steps)),
                *(ladder_table(found, links=False, archs=archs) for archs, found in families(steps).items() if found),
                *speed_charts(steps),
            ],
        )
    ]
    page += [speed_section(path.stem, records_in(path)) for path in sorted((folder / "logs/bench").glob("*.jsonl"))]
    page += [resource_section(steps), steps_section(steps), *(loop_section(steps, arch) for arch in loop_archs(steps))]
    page += [bounds_section(steps), traffic_section(steps), predictions_section(steps), published_section(steps)]
    page += [accepted_section(folder)]
    return page


def progress_picture(steps: Sequence[Step], libraries: Sequence[Standing]) -> Picture:
    """The ladder as lines, ours beside the published ones and the libraries."""
    ours = [
        f"{step.name} {100 * speed.ratio.mid:.0f} % on {gpu}"
        for step in steps
        for gpu, speed in sorted(step.speeds.items())
        if speed.ratio
    ]
    alt = "Percent of FlashAttention-2's speed by version: " + (
        ", ".join(ours) or "none of this ladder is measured yet"
    )
    return Picture(
        "progress",
        "Speed of every version",
        f"{alt}; beside it the published ladder and libraries.",
        pictures.progress(steps, libraries),
    )


def speed_charts(steps: Sequence[Step]) -> list[Block]:
    """The ladder as bars, one chart a GPU."""
    charts: list[Block] = []
    for gpu in sorted({gpu for step in steps for gpu in step.speeds}):
        bars = [
            (step.name, speed.ratio.mid, f"{speed.ratio.mid:.3f}")
            for step in steps
            if (speed := step.speeds.get(gpu)) and speed.ratio
        ]
        title = f"Speed / FA2, {gpu.upper()}, {HEADLINE_TEXT}"
        alt = f"{title}: " + ", ".join(f"{name} {text}" for name, _, text in bars)
        charts.append(Picture(f"speed-{gpu}", title, alt, pictures.bars(bars, "speed / FA2", 1.0, "FlashAttention-2")))
    return charts


def speed_section(gpu: str, records: tuple[Record, ...]) -> Section:
    """Every problem of the newest run on one GPU, a table per type: the headline's first."""
    title = f"Speed on {gpu.upper()}"
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
    if not tables:
        return Section(title, "No run is recorded.", [])
    return Section(title, " ".join(["TFLOP/s by type and length, in brackets the ratio.", *said]), tables)


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
    text = "Of each version's own config. LDL and STL are counted in the code: zero spills is not zero local memory."
    known = [f"{step.name} {row.registers}" for step in steps for arch, row in step.rows.items() if arch == "sm_80"]
    alt = "Loop instructions per HMMA, registers and source lines changed; registers on sm_80: " + ", ".join(known)
    picture = Picture("figures", "Loop, registers and source lines", alt, pictures.figures_by_version(steps))
    return Section("Registers and memory", text, [*([picture] if known else []), Table(columns, rows)])


def steps_section(steps: Sequence[Step]) -> Section:
    """What each version changed against its parent, in source and machine code."""
    by_name = {step.name: step for step in steps}
    rows: list[list[Cell]] = []
    for step in steps:
        parent = by_name.get(step.version.header.parent)
        if parent is None:
            continue
        row: list[Cell] = [f"{parent.name} -> {step.name}", step.version.header.title, step.changed]
        for arch in ARCHS:
            both = arch in step.parts and arch in parent.parts
            row.append(compare(parent.parts[arch], step.parts[arch]).verdict if both else MISSING)
        rows.append(row)
    text = "Source lines added and removed, and what changed in the KV loop, each version at its own config."
    return Section("Steps", text, [Table(("step", "idea", "lines changed", *ARCHS), rows)])


def loop_archs(steps: Sequence[Step]) -> list[str]:
    """The architectures of the loops: ARCHS, and those that a version is for alone."""
    return [*ARCHS, *sorted({step.version.header.arch for step in steps if step.version.one_arch and step.parts})]


def loop_section(steps: Sequence[Step], arch: str) -> Section:
    """Opcode families of the KV loop, one column per version."""
    there = [step for step in steps if arch in step.parts]
    bars = [(step.name, value, f"{value:.2f}") for step in there if (value := step.loop_per_matrix(arch))]
    unit = there[0].unit(arch) if there else "HMMA"
    alt = f"Instructions of the KV loop per {unit}, {arch}: " + ", ".join(f"{name} {text}" for name, _, text in bars)
    counts = [
        (step.name, count_instructions("loop", step.parts[arch].loop, matrix=step.parts[arch].graph.matrix))
        for step in there
    ]
    table = counts_table(counts, per_matrix=False) if counts else Table(("opcode",), [])
    text = "Instructions by family. !PT marks dummies that are never executed; they count in the total."
    mix: Block = Picture(f"loop-{arch}", f"Instructions per {unit} by purpose", alt, pictures.loop_mix(there, arch))
    return Section(f"KV loop, {arch}", text, [mix, table] if there else [table])


def bounds_section(steps: Sequence[Step]) -> Section:
    """Lower bounds of one pass through the loop."""
    columns = ("version", "arch", "one warp alone", "binding pipe", "pipe cycles", "cycles / HMMA")
    rows: list[list[Cell]] = []
    for step in steps:
        for arch, parts in step.parts.items():
            bound = loop_bound(parts)
            pipe, cycles = (bound.binding.pipe, bound.binding.cycles or 0) if bound.binding else (UNKNOWN, None)
            rows.append([step.name, arch, bound.issue_cycles, pipe, None if cycles is None else round(cycles, 1)])
            rows[-1].append(
                MISSING if cycles is None or not parts.matrix_count else shown(cycles / parts.matrix_count, 2)
            )
    text = (
        "Bounds, not times: the stall counts of one warp added up, and the busiest pipe of a sub-partition, "
        "in cycles of one pass through the loop by one warp."
    )
    return Section("Bounds", text, [Table(columns, rows)])


def traffic_section(steps: Sequence[Step]) -> Section:
    """What the emulator counts."""
    columns = ("version", "PTX instructions", "shared wavefronts", "without conflicts", "global sectors")
    rows: list[list[Cell]] = [
        [step.name, step.traffic.executed, step.traffic.wavefronts, step.traffic.ideal, step.traffic.sectors]
        for step in steps
        if step.traffic
    ]
    text = f"Modelled on {MODELLED}; exact counts of the model, no times."
    return Section("Memory traffic", text, [Table(columns, rows)])


def predictions_section(steps: Sequence[Step]) -> Section:
    """Every claim of the header blocks, with its score."""
    claims = predictions.judge(steps)
    text = (
        "Claims of the header blocks, written before measuring. A hit lies within the tolerance, near outside of "
        "it by at most 5 % of the figure, and twice the tolerance where it is relative to the parent. Speeds are those "
        "of the H200 at the length given."
    )
    return Section("Predictions", text, [predictions.tally(claims), predictions.table(claims)])


def published_section(steps: Sequence[Step]) -> Section:
    """Our loops and speeds beside those of the ladder that this one follows."""
    text = (
        "KV loops for sm_80 beside the published listing whose config is nearest, opcodes that differ as "
        "ours/published; then percent of FlashAttention-2 at seq 4096. Sources: analysis/data/README.md."
    )
    return Section("Beside the published ladder", text, [published_table(steps), published_speed_table(steps)])


def accepted_section(folder: Path) -> Section:
    """The reasons in the baseline."""
    reasons = dict.fromkeys((key[0], one.why) for key, one in read_accepted(folder).items())
    rows = [list(reason) for reason in reasons]
    return Section(
        "Accepted figures", "Why the figures in regs/registers.csv are accepted.", [Table(("version", "why"), rows)]
    )


# ---- Markdown --------------------------------------------------------------------------------------------------------

TITLE = "flashladder: all versions"
NOTHING = "Nothing is recorded yet."
LONG = 14  # characters of a cell that gets a column of some width, on a phone too


def to_markdown(page: Sequence[Section]) -> str:
    """The page as Markdown: the first section open, what the others hold folded."""
    parts = [f"# {TITLE}\n"]
    for index, section in enumerate(page):
        parts.append(f"## {section.title}\n\n{section.text}\n")
        seen, folded = _markdown_blocks(section, index > 0)
        parts += seen
        if folded:
            parts += [
                f'<details class="more"><summary>{_many(section, index > 0)}</summary>\n',
                *folded,
                "</details>\n",
            ]
    return "\n".join(parts)


def _markdown_blocks(section: Section, later: bool) -> tuple[list[str], list[str]]:
    """What is seen at once, and what is folded."""
    seen: list[str] = []
    folded: list[str] = []
    for block in section.blocks:
        if isinstance(block, Picture):
            text = f"![{block.alt}](report/{block.name}.svg)\n"
        else:
            text = block.markdown() if block.rows else ""
        if text:
            (folded if is_folded(block, later) else seen).append(text)
    tables = [block for block in section.blocks if isinstance(block, Table)]
    return (seen if any(table.rows for table in tables) or not tables else [*seen, f"{NOTHING}\n"]), folded


def is_folded(block: Block, later: bool) -> bool:
    """All of the sections after the first, and of the first the long charts, whose figures stand in its tables."""
    return later or (isinstance(block, Picture) and block.name.startswith("speed-"))


def _many(section: Section, later: bool) -> str:
    """What is folded of a section: "2 charts, 1 table"."""
    blocks = [block for block in section.blocks if is_folded(block, later)]
    counts = (("chart", sum(isinstance(one, Picture) for one in blocks)),
              ("table", sum(isinstance(one, Table) and bool(one.rows) for one in blocks)))  # fmt: skip
    return ", ".join(f"{count} {name}{'s' * (count > 1)}" for name, count in counts if count)


# ---- HTML ------------------------------------------------------------------------------------------------------------

STYLE = """
:root { color-scheme: light dark; --back: #fff; --text: #1c1e21; --soft: #5c636b; --line: #d8dce0; --bar: #2f6db5; }
@media (prefers-color-scheme: dark) {
  :root { --back: #15181b; --text: #e4e6e8; --soft: #9aa2aa; --line: #363c42; --bar: #6aa5e8; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 100rem; background: var(--back); color: var(--text);
  font: 1rem/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2.5rem; }
nav a { display: inline-block; margin-right: 1rem; padding: .25rem 0; } a { color: var(--bar); }
p { max-width: 45rem; color: var(--soft); }
.wide { overflow: auto; max-height: 95vh; margin: 1rem 0; }
/* A shade at an edge behind which there is more: the first two layers scroll along, and cover it where there is not. */
.wide, .scroll { --shade: color-mix(in srgb, var(--text) 25%, transparent); background:
  linear-gradient(to right, var(--back) 40%, transparent) left / 2.5rem 100% no-repeat local,
  linear-gradient(to left, var(--back) 40%, transparent) right / 2.5rem 100% no-repeat local,
  linear-gradient(to right, var(--shade), transparent) left / .75rem 100% no-repeat scroll,
  linear-gradient(to left, var(--shade), transparent) right / .75rem 100% no-repeat scroll; }
table { border-collapse: separate; border-spacing: 0; font-size: .8125rem; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .375rem; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
th { vertical-align: bottom; } td { white-space: nowrap; }
td.long { white-space: normal; min-width: 6.5rem; overflow-wrap: anywhere; }
td.none { white-space: normal; color: var(--soft); }
th.number, td.number { text-align: right; } th { max-width: 7rem; }
td.long:nth-child(2) { min-width: 10rem; }
@media (max-width: 40rem) { .wide { max-height: 80vh; }
  td.long, td.long:nth-child(2) { min-width: 5.5rem; } th, td { padding: .25rem; } }
@media print { .wide { max-height: none; } }
thead th { position: sticky; top: 0; z-index: 1; background: var(--back); }
td:first-child, th:first-child { position: sticky; left: 0; background: var(--back); } th:first-child { z-index: 2; }
tbody tr:hover { background: color-mix(in srgb, var(--bar) 12%, transparent); }
summary { cursor: pointer; padding: .25rem 0; color: var(--bar); }
figure { margin: 1rem 0; } figcaption { font-weight: 600; } .scroll { overflow-x: auto; }
svg { width: 100%; height: auto; font: 12px system-ui, sans-serif; min-width: 44rem; max-width: 60rem;
  color: var(--text); }
svg text { fill: var(--text); }
""".strip()

NUMBER = ' class="number"'
# A number as cells show it: 5.20, 1,024, 1.102 ± 0.005, 367.1 (1.239), 12 %, 41/39; a dash stands for none.
_NUMBER = re.compile(rf"[+−-]?[\d.,]+( ± (< )?[\d.,]+)?( ?\([\d.,]+\))?( ?%)?(/[\d.,]+)?|[–-]||{NOT_MEASURED}")


def to_html(page: Sequence[Section]) -> str:
    """The page as one HTML file: no script, nothing fetched, light and dark, readable on a phone."""
    links = "\n".join(f'<a href="#s{i}">{html.escape(section.title)}</a>' for i, section in enumerate(page))
    body = "\n".join(_html_section(i, section) for i, section in enumerate(page))
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(TITLE)}</title>
<style>
{STYLE}
</style>
</head>
<body>
<h1>{html.escape(TITLE)}</h1>
<nav>
{links}
</nav>
{body}
</body>
</html>
"""


def _html_section(index: int, section: Section) -> str:
    parts = [
        f'<section id="s{index}">',
        f"<h2>{html.escape(section.title)}</h2>",
        f"<p>{html.escape(section.text)}</p>",
    ]
    blocks = [(is_folded(block, index > 0), text) for block in section.blocks if (text := _html_block(block))]
    if section.blocks and not blocks:
        parts.append(f"<p>{NOTHING}</p>")
    parts += [text for folded, text in blocks if not folded]
    if more := [text for folded, text in blocks if folded]:
        parts += [f'<details class="more"><summary>{_many(section, index > 0)}</summary>', *more, "</details>"]
    return "\n".join([*parts, "</section>"])


def _html_block(block: Block) -> str:
    """Nothing for a table without rows and a chart without bars."""
    if isinstance(block, Picture):
        drawn = drawing.inline_svg(block.figure, block.name, block.alt)
        scrolled = f'<div class="scroll" {_reachable(block.title)}>{drawn}</div>'
        return f"<figure><figcaption>{html.escape(block.title)}</figcaption>\n{scrolled}</figure>"
    return _html_table(block) if block.rows else ""


def _reachable(name: str) -> str:
    """Attributes of what scrolls, so that the keys can scroll it too."""
    return f'tabindex="0" role="region" aria-label="{html.escape(name)}"'


def _html_table(table: Table) -> str:
    numbers = [all(_NUMBER.fullmatch(_shown(row[place])) for row in table.rows) for place in range(len(table.columns))]
    head = "".join(
        f'<th scope="col"{NUMBER * number}>{html.escape(name)}</th>'
        for name, number in zip(table.columns, numbers, strict=True)
    )
    rows = "\n".join(
        f"<tr>{''.join(_html_cell(cell, number) for cell, number in zip(row, numbers, strict=True))}</tr>"
        for row in table.rows
    )
    name = f"table of {table.columns[0]}, {', '.join(table.columns[1:3])}"
    body = f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table>"
    return f'<div class="wide" {_reachable(name)}>{body}</div>'


def _shown(cell: Cell) -> str:
    return f"{cell:.4g}" if isinstance(cell, float) else "" if cell is None else str(cell)


def _html_cell(cell: Cell, number: bool) -> str:
    text = _shown(cell)
    long, none = len(text) > LONG and not number, text == NOT_MEASURED
    kinds = " ".join(name for name, holds in (("number", number), ("long", long), ("none", none)) if holds)
    return f'<td class="{kinds}">{html.escape(text)}</td>' if kinds else f"<td>{html.escape(text)}</td>"


# ---- files -----------------------------------------------------------------------------------------------------------


def as_page(folder: Path) -> dict[str, str]:
    """The page as a folder of the static site: its Markdown and its pictures, by name."""
    page = sections(folder)
    return {"index.md": to_markdown(page)} | pictures_of(page)


def pictures_of(page: Sequence[Section]) -> dict[str, str]:
    """The pictures that the Markdown names, by file."""
    drawn = [block for section in page for block in section.blocks if isinstance(block, Picture)]
    return {f"report/{picture.name}.svg": drawing.svg(picture.figure) for picture in drawn}


# ---- the command -----------------------------------------------------------------------------------------------------


def add_report_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--out", type=Path, metavar="FOLDER", help="folder for report.md and report.html; build/ without it"
    )
    parser.add_argument("--json", action="store_true", help="print the figures as JSON instead of writing the page")


def run_report(args: argparse.Namespace) -> int:
    folder = root()
    if args.json:
        emit(json_text(ladder_record(read_steps(folder))), None)
        return DONE
    out = args.out or folder / "build"
    page = sections(folder)
    for name, text in pictures_of(page).items():
        write_if_changed(out / name, text)
    for name, text in (("report.md", to_markdown(page)), ("report.html", to_html(page))):
        write_if_changed(out / name, text)
        print(out / name)
    return DONE
