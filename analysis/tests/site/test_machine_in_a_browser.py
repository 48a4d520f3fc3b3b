"""The machine in browsers, read from a file: a link leads to its step, steps lead on and back, PTX can be broken."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import pytest

from analysis.files import root
from analysis.tests.site.browsers import SITE, browser_tab

pytestmark = pytest.mark.site
PAGE = SITE / "machine/index.html"
Open = Callable[[str], Any]
browser = browser_tab  # the name of the fixture


@pytest.fixture
def open_page(browser_tab: Any) -> Open:
    """Opens the page with a query, and waits until its version has run."""

    def opened(query: str) -> Any:
        browser_tab.goto("about:blank")
        browser_tab.goto(f"{PAGE.as_uri()}?{query}")
        browser_tab.wait_for_function("document.body.dataset.ready && document.body.dataset.step")
        return browser_tab

    return opened


def step_of(tab: Any) -> int:
    return int(tab.evaluate("document.body.dataset.step"))


def moved(tab: Any, act: Callable[[], None]) -> int:
    """The step that the page shows once it has done something."""
    before = step_of(tab)
    act()
    tab.wait_for_function(f"document.body.dataset.step !== '{before}'")
    return step_of(tab)


def shown_ptx(tab: Any) -> str:
    return str(tab.inner_text("#operands code"))


def test_a_link_leads_to_its_instruction(open_page: Open) -> None:
    tab = open_page("v=v02&kind=ldmatrix&warp=1")
    assert shown_ptx(tab).startswith("ldmatrix.sync")
    assert tab.evaluate("seen.shown") == 1
    assert "ldmatrix_x4" in tab.inner_text("#source .here")
    assert "ldmatrix" in tab.inner_text("#warps tr.here")
    assert tab.evaluate("document.querySelectorAll('#banks .banks span').length") > 32


def test_steps_lead_on_and_back(open_page: Open) -> None:
    tab = open_page("v=v16&kind=mma&warp=2")
    first, state = step_of(tab), tab.inner_html("#operands")
    assert "A, 16 × 16" in state and "B, 16 × 8" in state
    assert moved(tab, lambda: tab.keyboard.press("ArrowRight")) == first + 1
    assert moved(tab, lambda: tab.click("#back")) == first
    assert tab.inner_html("#operands") == state
    assert moved(tab, lambda: tab.click("#line-next")) > first
    assert moved(tab, lambda: tab.click("#line-back")) <= first
    tab.select_option("#kind", "barrier")
    moved(tab, lambda: tab.click("#go"))
    assert shown_ptx(tab).startswith("bar")


def test_a_line_is_run_to(open_page: Open) -> None:
    tab = open_page("v=v02")
    line = (root() / "kernels/mma_sync/v02_swizzle.cu").read_text().splitlines().index("    __syncthreads();") + 1
    moved(tab, lambda: tab.click(f"#source .row:nth-child({line}) button"))
    assert tab.evaluate("instructionOf(step).line") == line


def test_what_a_barrier_does_is_found_where_it_is_lost(open_page: Open) -> None:
    tab = open_page("v=v02")
    assert "nothing found" in tab.inner_text("#result")
    tab.click("#tab-ptx")
    tab.evaluate("text.value = text.value.replace('bar.sync', '//bar.sync')")
    tab.click("#run-ptx")
    tab.wait_for_selector("#findings li")
    assert "with findings" in tab.inner_text("#result")
    tab.click("#restore")
    tab.wait_for_selector("#findings li", state="detached")


def test_ptx_that_is_refused_says_so_at_its_line(open_page: Open) -> None:
    tab = open_page("v=v02")
    tab.click("#tab-ptx")
    line = tab.evaluate("""() => {
        text.value = text.value.replace("ldmatrix.sync", "ldmatrix.sink");
        return text.value.slice(0, text.value.indexOf("sink")).split("\\n").length;
    }""")
    tab.click("#run-ptx")
    tab.wait_for_function("refusal.textContent")
    assert tab.inner_text("#refusal").startswith(f"line {line}: ") and "sink" in tab.inner_text("#refusal")
    chosen = tab.evaluate("text.value.slice(text.selectionStart, text.selectionEnd)")
    assert "ldmatrix.sink" in chosen
    tab.click("#restore")
    tab.wait_for_function("document.getElementById('result').textContent.includes('nothing found')")


def test_every_version_of_the_page_runs(open_page: Open) -> None:
    tab = open_page("v=v01")
    counters = {"v01": tab.evaluate("launch.counters")}
    for name in tab.evaluate("Object.keys(book.titles)"):
        tab.evaluate(f"open('{name}')")
        tab.wait_for_function(f"document.body.dataset.ready === '{name}'")
        assert "nothing found" in tab.inner_text("#result"), name
        counters[name] = tab.evaluate("launch.counters")
    assert counters["v01"]["wavefronts"] > 5 * counters["v01"]["ideal"]
    assert counters["v02"]["wavefronts"] == counters["v02"]["ideal"]


def test_the_first_page_is_small(browser_tab: Any) -> None:
    """300 KB before the machine is asked for: the story, its styles, scripts and pictures, compressed."""
    browser_tab.goto((SITE / "index.html").as_uri())
    browser_tab.wait_for_function("document.querySelector('a[href*=\"machine/index.html?v=v02\"]')")
    every = "document.querySelectorAll('link[rel=stylesheet], script[src], img')"
    named = f"[...{every}].map((one) => one.href || one.src)"
    files = {SITE / "index.html", *(Path(unquote(urlparse(name).path)) for name in browser_tab.evaluate(named))}
    sizes = {file.name: len(gzip.compress(file.read_bytes())) for file in files}
    assert not [file for file in files if "machine" in file.parts]
    assert sum(sizes.values()) < 300_000, sizes
