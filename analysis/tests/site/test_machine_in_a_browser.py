"""The machine in Chromium, read from a file: a link leads to its step, steps lead on and back, PTX can be broken."""

from __future__ import annotations

import importlib
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from analysis.files import root
from analysis.tests.site.test_pages_in_a_browser import BROWSERS, SITE

pytestmark = pytest.mark.site
PAGE = SITE / "machine/index.html"
LONG = 60_000  # ms that a busy machine may take
Open = Callable[[str], Any]


@pytest.fixture(scope="module")
def open_page() -> Iterator[Open]:
    """Opens the page with a query, and waits until its version has run."""
    try:
        playwright = importlib.import_module("playwright.sync_api")
    except ImportError:
        pytest.skip("playwright is not installed: run `make check-site`")
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if not found:
        pytest.skip(f"none of {', '.join(BROWSERS)} is on the PATH: install one, with `apt-get install chromium`")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=found, args=["--no-sandbox"])
        tab = browser.new_page()
        tab.set_default_timeout(LONG)

        def opened(query: str) -> Any:
            tab.goto("about:blank")
            tab.goto(f"{PAGE.as_uri()}?{query}")
            tab.wait_for_function("document.body.dataset.ready && document.body.dataset.step")
            return tab

        yield opened
        browser.close()


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
    assert len(tab.query_selector_all("#banks .banks span")) > 32


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


def test_the_first_page_is_small(open_page: Open) -> None:
    """300 KB before the machine is asked for: the story with its styles, scripts and fonts; pictures come as needed."""
    tab = open_page("v=v02")
    sizes: list[int] = []
    tab.on("response", lambda answer: sizes.append(len(answer.body())))
    tab.goto((SITE / "index.html").as_uri())
    assert "machine/index.html?v=v02" in tab.content()
    pictures = [tab.evaluate("document.images.length")]
    assert pictures[0] >= 11
    assert not [one for one in tab.evaluate("performance.getEntriesByType('resource').map((one) => one.name)")
                if "machine/" in one]  # fmt: skip
