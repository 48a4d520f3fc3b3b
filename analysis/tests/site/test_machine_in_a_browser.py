"""The machine in browsers, read from a file: a link leads to its step, steps lead on and back, PTX can be broken."""

from collections.abc import Callable
from typing import Any

import pytest

from analysis.files import root
from analysis.site.machine_page import MACHINE_LINK, SINGLE, STARTS, single_page
from analysis.tests.site.browsers import SITE

pytestmark = pytest.mark.site
PAGE = SITE / "machine/index.html"
Open = Callable[[str], Any]


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


def test_every_link_of_story_and_chapters_leads_to_its_instruction(open_page: Open) -> None:
    """Also in v25, where slices share the one Q block and CTA 0 has nothing to do."""
    pages = [*(root() / "docs/learn").glob("*.md"), *(root() / "notebooks").glob("*.ipynb")]
    linked = {found for page in pages for found in MACHINE_LINK.findall(page.read_text(encoding="utf-8"))}
    links = linked | {(version, kind, str(warp)) for version, (kind, warp) in STARTS.items()}
    assert {"v00", "v25", "v37"} <= {version for version, _, _ in links}
    for version, kind, warp in sorted(links):
        tab = open_page(f"v={version}&kind={kind}&warp={warp}")
        assert tab.evaluate(f"KINDS['{kind}'](instructionOf(step), step) && warpOf(step) === {warp}"), (version, kind)


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


def test_what_a_barrier_does_is_found_where_it_is_lost(open_page: Open) -> None:
    tab = open_page("v=v02")
    assert "no findings" in tab.inner_text("#result")
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
    assert not tab.query_selector_all("#findings li")
    chosen = tab.evaluate("text.value.slice(text.selectionStart, text.selectionEnd)")
    assert "ldmatrix.sink" in chosen
    tab.click("#restore")
    tab.wait_for_function("document.getElementById('result').textContent.includes('no findings')")


def test_the_wavefronts_of_an_access_are_those_that_are_counted(open_page: Open) -> None:
    """The picture has a row for each; the counters are sums over all warps, whose accesses are alike here."""
    for version, query in (("v01", "kind=ldmatrix&warp=0"), ("v02", "kind=ldmatrix&warp=0"), ("v16", "kind=store")):
        tab = open_page(f"v={version}&{query}")
        tab.wait_for_selector("#banks .phase")
        line = tab.evaluate("instructionOf(step).ptx_line")
        executed, wavefronts = tab.evaluate(f"launch.counters.rows.find((row) => row[0] === {line}).slice(2, 4)")
        shown = tab.evaluate("document.querySelectorAll('#banks .phase').length")
        assert shown == wavefronts / executed, version
        assert tab.inner_text("#banks .note").startswith(f"{shown} wavefront")


def test_every_version_of_the_page_runs(open_page: Open) -> None:
    tab = open_page("v=v01")
    counters = {"v01": tab.evaluate("launch.counters")}
    for name in tab.evaluate("Object.keys(book.titles)"):
        tab.evaluate(f"open('{name}')")
        tab.wait_for_function(f"document.body.dataset.ready === '{name}'")
        assert "no findings" in tab.inner_text("#result"), name
        counters[name] = tab.evaluate("launch.counters")
    assert counters["v01"]["wavefronts"] > 5 * counters["v01"]["ideal"]
    assert counters["v02"]["wavefronts"] == counters["v02"]["ideal"]


def test_the_single_page_is_current_and_runs(browser_tab: Any) -> None:
    """It holds what this build makes; it opens at v02's first ldmatrix, and grades an exercise."""
    page = root() / SINGLE
    assert page.read_text(encoding="utf-8") == single_page(root()), "run `make site`, which writes it"
    browser_tab.goto(page.as_uri())
    browser_tab.wait_for_function("document.body.dataset.ready && document.body.dataset.step")
    assert shown_ptx(browser_tab).startswith("ldmatrix.sync") and browser_tab.input_value("#version") == "v02"
    assert "_Z" not in browser_tab.inner_text("body") + browser_tab.input_value("#text")
    browser_tab.click("text=Six exercises")
    lessons = browser_tab.frame_locator("#lessons")
    lessons.locator("#number").fill("2048")
    lessons.locator("form button").click()
    lessons.locator("#verdict.good").wait_for()
