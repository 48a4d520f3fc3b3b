"""A page for each version on the site: idea, prediction and outcome, figures, its difference side by side, the loop.

    for name, text in version_pages(root(), steps).items(): ...     # "versions/v02.md": Markdown

Everything comes from header blocks, sources, regs/, sass/ and logs/, so that the pages can be made without a GPU.
The difference is that of the kernels as `make read` prints them.
"""

import difflib
import html
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from analysis.emulate.lines import Line, read_lines
from analysis.inspect.linked_code import Linked, banks, linked_html, live_picture
from analysis.ladder.headers import Version
from analysis.publish.jumps import measured
from analysis.publish.ladder_page import families, ladder_table
from analysis.publish.libraries import NOT_MEASURED
from analysis.publish.overview import GPU, Step
from analysis.publish.predictions import Judged, judge, shown
from analysis.publish.story import steps_table
from analysis.site.machine_page import STARTS, link_to_machine
from analysis.table import Table

AROUND = 3  # lines that stay around a change
COLUMNS = "<colgroup><col><col><col><col></colgroup>"
Sides = list[tuple[int | None, str, int | None, str]]  # number and text of the parent's line, and of the version's


def sides(old: Sequence[str], new: Sequence[str], first: tuple[int, int] = (1, 1)) -> list[Sides]:
    """Groups of changed lines with those around them, a line of the parent next to the one that replaces it.

    `first` are the numbers of the first line of each.
    """
    groups: list[Sides] = []
    for group in difflib.SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes(AROUND):
        rows: Sides = []
        for _, a, a_end, b, b_end in group:
            for k in range(max(a_end - a, b_end - b)):
                left = (first[0] + a + k, old[a + k]) if a + k < a_end else (None, "")
                right = (first[1] + b + k, new[b + k]) if b + k < b_end else (None, "")
                rows.append((*left, *right))
        groups.append(rows)
    return groups


def below_header(source: str) -> tuple[int, list[str]]:
    """The number of the first line after a kernel's header block, and the lines from there on."""
    header, end, body = source.partition("*/\n")
    return 1 + (header + end).count("\n"), body.splitlines()


def difference(parent: Version, version: Version, bodies: Mapping[str, str]) -> list[Sides]:
    """The groups of what `make read` prints of both; of the sources where `bodies` lacks one."""
    if {parent.version, version.version} <= bodies.keys():
        return sides(bodies[parent.version].splitlines(), bodies[version.version].splitlines())
    (first, old), (first_new, new) = below_header(parent.source), below_header(version.source)
    return sides(old, new, (first, first_new))


def side_by_side(parent: str, version: str, groups: Iterable[Sides]) -> str:
    """The difference as an HTML table; a changed line is marked on its side."""
    rows = []
    for group in groups:
        rows.append('<tr><td colspan="4">⋯</td></tr>')
        for a, left, b, right in group:
            same = a is not None and b is not None and left == right
            gone, come = ("", "") if same else (' class="gone"' * (a is not None), ' class="come"' * (b is not None))
            rows.append(
                f"<tr><td>{a or ''}</td><td{gone}><code>{html.escape(left)}</code></td>"
                f"<td>{b or ''}</td><td{come}><code>{html.escape(right)}</code></td></tr>"
            )
    head = f'<tr><th colspan="2">{parent}</th><th colspan="2">{version}</th></tr>'
    return f'<div class="sides" tabindex="0"><table>{COLUMNS}{head}{"".join(rows)}</table></div>\n'


def folded(title: str, body: str) -> str:
    return f"<details><summary>{html.escape(title)}</summary>\n\n{body}\n</details>\n"


def kernel(step: Step, body: str) -> str:
    """The kernel as its configuration leaves it, folded."""
    title = f"The kernel as its configuration leaves it: {body.count(chr(10))} lines (make read VER={step.name})"
    return folded(title, f"```{{code-block}} cuda\n:linenos:\n:force:\n\n{body}```\n") + "\n"


def loop_listing(step: Step) -> str:
    """The KV loop with control codes: `B-` waits for barriers, R and W set them, S is the stall."""
    arch, parts = next(iter(step.parts.items()))
    lines = "\n".join(f"{at.address:05x}  {at.control or ''!s:24}  {at.text}".rstrip() for at in parts.loop)
    return folded(f"The KV loop on {arch}: {len(parts.loop)} instructions", f"```text\n{lines}\n```\n") + "\n"


def claims_table(claims: Iterable[Judged]) -> Table:
    """The claims of the header, and their results."""
    rows = [(one.claim.text, "–" if one.measured is None else shown(one.measured), one.score) for one in claims]
    return Table(("claim", "measured", "score"), rows)


def counted_table(lines: Sequence[Line], source: Sequence[str]) -> Table:
    """The lines that run most instructions."""
    most = sorted(lines, key=lambda one: -one.executed)[:12]
    rows = [
        (one.line, f"`{source[one.line - 1].strip()[:60]}`", one.executed, one.wavefronts, one.ideal)
        for one in sorted(most)
    ]
    return Table(("line", "source", "executed", "wavefronts", "without conflicts"), rows)


def machine_code(step: Step, linked: Linked | None) -> str:
    """The loop next to its PTX and its source, or only the loop if the version is not built."""
    if linked is None:
        return "## Machine code\n\n" + loop_listing(step) if step.parts else ""
    text = "## Banks of shared memory\n\n" + banks(linked) + "\n"
    return text + "## Machine code\n\n" + live_picture(linked) + "\n" + linked_html(linked)


def page(
    folder: Path,
    steps: Sequence[Step],
    location: int,
    claims: Sequence[Judged],
    lines: Sequence[Line],
    linked: Linked | None,
    bodies: Mapping[str, str],
) -> str:
    """The page of one version; `bodies` are kernels as `make read` prints them."""
    step = steps[location]
    version, header = step.version, step.version.header
    near = [f"[{one.name}]({one.name}.md)" for one in steps[max(0, location - 1) : location + 2] if one is not step]
    source = f'<a href="../source/kernels/{version.file}.html">source</a>'
    ways = " · ".join([*near, source, "[all versions](../kernels/README.md)"])
    text = f"# {step.name}: {header.title}\n\n{ways}\n\n"
    text += f"**Idea**: {header.idea}.\n\n**Predicted**: {header.predict or 'nothing'}.\n\n"
    text += f"**Measured**: {measured(folder, step)}.\n\n"
    if step.name in STARTS:
        kind, warp = STARTS[step.name]
        text += f'<a href="../{link_to_machine(step.name)}">In the machine: the first {kind} of warp {warp}</a>\n\n'
    else:
        text += f'<a href="../machine/index.html?v={step.name}">In the machine</a>\n\n'
    text += f"`{header.config}`\n\n"
    if claims:
        text += "## What it claimed\n\n" + claims_table(claims).markdown() + "\n"
    text += "## Figures\n\n"
    (archs,) = (archs for archs, members in families([step]).items() if members)
    figures = ladder_table([step], links=False, archs=archs)
    text += Table(("figure", "value"), list(zip(figures.columns, figures.rows[0], strict=True))[2:]).markdown() + "\n"
    if step.gains.get(GPU):
        gains = steps_table(steps, [step.name])
        text += f"Gain over {header.parent}, each in one run on the {GPU.upper()}:\n\n"
        shown_gains = Table(gains.columns[3:], [row[3:] for row in gains.rows])
        text += shown_gains.markdown().replace(NOT_MEASURED, "–") + "\n"
    if lines:
        text += "## By line, on the emulator\n\n" + counted_table(lines, version.source.splitlines()).markdown() + "\n"
    if step.parent is not None:
        groups = difference(step.parent, version, bodies)
        parent = step.parent.version
        text += f"## Compared with {parent}\n\n" + side_by_side(parent, step.name, groups) + "\n"
    if step.name in bodies:
        text += "## The kernel\n\n" + kernel(step, bodies[step.name])
    return text + machine_code(step, linked)


def version_pages(
    folder: Path,
    steps: Sequence[Step],
    linked: Mapping[str, Linked] | None = None,
    bodies: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Every page by its name; `linked` holds the versions that are built, `bodies` what `make read` prints."""
    claims, lines = judge(steps), read_lines(folder)
    return {
        f"versions/{step.name}.md": page(
            folder,
            steps,
            location,
            [one for one in claims if one.version == step.name],
            lines.get(step.name, []),
            (linked or {}).get(step.name),
            bodies or {},
        )
        for location, step in enumerate(steps)
    }
