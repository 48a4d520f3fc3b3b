"""A verdict as one HTML page that fetches nothing."""

import html
from collections.abc import Sequence

from analysis.judge.problem import Problem
from analysis.judge.verdict import ACCEPTED, REJECTIONS, RESERVATIONS, RESERVED, Point, Verdict

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em }
html { color-scheme: light dark }
table { border-collapse: collapse } th, td { padding: .2em .8em .2em 0; text-align: left; vertical-align: top }
td.number { text-align: right; font-variant-numeric: tabular-nums } code { overflow-wrap: anywhere }
.accepted { color: #1a7f37 } .rejected { color: #cf222e } .reserved { color: #9a6700 }
"""
MEANING = {
    ACCEPTED: "Nothing wrong was found in any replay, and nothing was left undecided.",
    RESERVED: "Nothing wrong was found, but something could not be decided. A person must look at it.",
}


def page(verdict: Verdict, problem: Problem) -> str:
    """The verdict, its evidence, what was measured, and how to repeat it."""
    text = html.escape
    about = MEANING.get(verdict.verdict, "The submission does not solve the problem, or not by itself.")
    rows = [
        (each.case, each.replays, each.launches, each.warp_instructions, each.bytes_moved, each.bytes_floor,
         f"{each.worst_error:.2f}")
        for each in verdict.cases
    ]  # fmt: skip
    head = ("case", "replays", "launches", "warp instructions", "bytes moved", "at least", "error / bound")
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>",
        f"<title>{text(verdict.submission)}: {verdict.verdict}</title><style>{STYLE}</style>",
        f"<h1 class={verdict.verdict}>{verdict.verdict.capitalize()}</h1>",
        f"<p><code>{text(verdict.submission)}</code> as <b>{text(verdict.problem)}</b>, on {text(verdict.device)}. "
        f"{about}</p>",
        _points("Reasons", verdict.reasons, REJECTIONS),
        _points("Undecided", verdict.reservations, RESERVATIONS),
        "<h2>What was measured</h2>" + _table(head, rows),
        _times(verdict),
        f"<p>Tolerance: {text(problem.tolerance)}</p>",
        "".join(f"<p>Note: {text(note)}.</p>" for note in verdict.notes),
        f"<p>Seed {verdict.seed}; {verdict.seconds} s; problem <code>{verdict.problem_sha256[:16]}</code>, submission "
        f"<code>{verdict.submission_sha256[:16]}</code> (SHA-256).</p></html>",
    ]
    return "\n".join(part for part in parts if part) + "\n"


def _times(verdict: Verdict) -> str:
    rows = [
        (each.program, each.case, f"{each.median_ns:.0f}", f"{each.least_ns:.0f} to {each.most_ns:.0f}",
         f"{each.floor_ns:.0f}", f"{each.least_MHz} to {each.most_MHz}", f"{each.watts:.0f}", each.celsius, each.sass)
        for each in verdict.times
    ]  # fmt: skip
    head = ("program", "case", "ns", "medians of processes", "at least", "MHz", "W", "°C", "SASS")
    return f"<h2>Times on {html.escape(verdict.times[0].gpu)}</h2>{_table(head, rows)}" if rows else ""


def _points(title: str, points: Sequence[Point], meanings: dict[str, str]) -> str:
    if not points:
        return ""
    items = []
    for point in points:
        where = ", ".join(word for word in (point.case, point.inputs and f"{point.inputs} inputs") if word)
        about = html.escape(meanings[point.mechanism] + (f" ({where})" if where else ""))
        items.append(f"<dt><b>{point.mechanism}</b>: {about}<dd><code>{html.escape(point.evidence)}</code>")
    return f"<h2>{title}</h2><dl>{''.join(items)}</dl>"


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    cells = "".join(
        "<tr>" + "".join(f"<td{' class=number' if i else ''}>{html.escape(str(cell))}" for i, cell in enumerate(row))
        for row in rows
    )
    return f"<table><tr>{''.join(f'<th>{each}' for each in head)}{cells}</table>"
