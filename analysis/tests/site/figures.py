"""What the pages cost in Chromium and Firefox: writes logs/site.csv, by hand and on a quiet machine.

    PYTHONPATH=.:$(echo .venv/site/lib/python3*/site-packages) .venv/bin/python -m analysis.tests.site.figures

Times are by the browser's clock, each the least of several runs.
"""

from __future__ import annotations

import csv
import gzip
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple
from urllib.parse import unquote, urlparse

from analysis.files import root
from analysis.tests.site.browsers import SITE, chromium_tab, firefox_tab

RECORD = root() / "logs/site.csv"
RUNS, STEPS = 8, 15
STEPPED = ("v02", "v16", "v28", "v37")
MACHINE = "document.body.dataset.ready && document.body.dataset.step"
PAINTED = """(() => {
    const [first] = performance.getEntriesByName("first-contentful-paint");
    return [first.startTime, performance.getEntriesByType("navigation")[0].domContentLoadedEventEnd];
})()"""
LAUNCH = """(async () => {
    const problem = { seq: 256, schedule: 0, turns: [] };
    return (await ask("run", { program: original, problem })).ms;
})()"""
# What the key of the next step does once the step ahead is at hand, as it is while nobody does anything.
STEP = """(async () => {
    await look(step + 1, warpOf(step + 1));
    const began = performance.now();
    await show(step + 1, warpOf(step + 1));
    document.body.getBoundingClientRect(); // with its layout
    return performance.now() - began;
})()"""


class Figure(NamedTuple):
    """One line of the record."""

    browser: str
    what: str
    version: str
    ms: float


def first_page(tab: Any) -> set[Path]:
    """The files that the first page is made of."""
    tab.goto((SITE / "index.html").as_uri())
    every = "document.querySelectorAll('link[rel=stylesheet], script[src], img')"
    named = tab.evaluate(f"[...{every}].map((one) => one.href || one.src)")
    return {SITE / "index.html", *(Path(unquote(urlparse(name).path)) for name in named)}


def compressed(files: set[Path]) -> dict[str, int]:
    return {file.name: len(gzip.compress(file.read_bytes())) for file in files}


def launches(tab: Any, browser: str) -> Iterator[Figure]:
    for name in tab.evaluate("Object.keys(book.titles)"):
        tab.evaluate(f"open('{name}')")
        tab.wait_for_function(f"document.body.dataset.ready === '{name}'")
        yield Figure(browser, "launch", name, min(tab.evaluate(LAUNCH) for _ in range(RUNS)))


def steps(tab: Any, browser: str) -> Iterator[Figure]:
    for name in STEPPED:
        tab.goto("about:blank")
        tab.goto(f"{(SITE / 'machine/index.html').as_uri()}?v={name}&step=500")
        tab.wait_for_function(MACHINE)
        yield Figure(
            browser, "step drawn", name, min(median(tab.evaluate(STEP) for _ in range(STEPS)) for _ in range(3))
        )


def figures(tab: Any, browser: str) -> Iterator[Figure]:
    painted = []
    for _ in range(RUNS):
        tab.goto("about:blank")
        tab.goto((SITE / "index.html").as_uri())
        tab.wait_for_function("performance.getEntriesByName('first-contentful-paint').length")
        painted.append(tab.evaluate(PAINTED))
    yield Figure(browser, "first page painted", "", min(first for first, _ in painted))
    yield Figure(browser, "first page loaded", "", min(loaded for _, loaded in painted))
    tab.goto(f"{(SITE / 'machine/index.html').as_uri()}?v=v02")
    tab.wait_for_function(MACHINE)
    yield from launches(tab, browser)
    yield from steps(tab, browser)


def main() -> None:
    found: list[Figure] = []
    with chromium_tab() as tab:
        found += figures(tab, "chromium")
    with tempfile.TemporaryDirectory() as profile, firefox_tab(Path(profile)) as fox:
        found += figures(fox, "firefox")
    with RECORD.open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(Figure._fields)
        rows.writerows([*one[:3], f"{one.ms:.1f}"] for one in found)


if __name__ == "__main__":
    main()
