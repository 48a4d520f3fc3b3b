"""The machine in browsers, read from a file: a link leads to its step, steps lead on and back, PTX can be broken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from analysis.files import root
from analysis.site.machine_page import MACHINE_LINK, PLACES
from analysis.tests.site.browsers import SITE, browser_tab
from analysis.tests.site.figures import compressed, first_page

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


def test_every_link_of_story_and_chapters_leads_to_its_instruction(open_page: Open) -> None:
    """Also in v25, where slices share the one Q block and CTA 0 has nothing to do."""
    pages = [*(root() / "docs/learn").glob("*.md"), *(root() / "notebooks").glob("*.ipynb")]
    linked = {found for page in pages for found in MACHINE_LINK.findall(page.read_text(encoding="utf-8"))}
    places = linked | {(version, kind, str(warp)) for version, (kind, warp) in PLACES.items()}
    assert {"v00", "v25", "v37"} <= {version for version, _, _ in places}
    for version, kind, warp in sorted(places):
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


def test_the_way_back_and_the_next_step_need_no_replay(open_page: Open) -> None:
    """The worker is asked for the step ahead alone, and that before anyone presses the key."""
    tab = open_page("v=v16&kind=mma&warp=2")
    first = step_of(tab)
    ahead = "[...looks.keys()].includes([step + 1, warpOf(step + 1), ''].join())"
    tab.wait_for_function(f"{ahead} && !waiting.size")
    asked = tab.evaluate("asked")
    assert moved(tab, lambda: tab.keyboard.press("ArrowRight")) == first + 1
    tab.wait_for_function(f"{ahead} && !waiting.size")
    assert moved(tab, lambda: tab.keyboard.press("ArrowLeft")) == first
    assert tab.evaluate("asked") == asked + 1
    tab.evaluate("(() => { for (let at = 0; at < 2 * LOOKS; at++) look(at, 0); })()")
    assert tab.evaluate("looks.size") == tab.evaluate("LOOKS")


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


def test_a_warp_is_chosen_by_hand(open_page: Open) -> None:
    tab = open_page("v=v02&step=100&warp=0")
    assert tab.evaluate("warpOf(100)") == 0
    outcome = "[launch.counters.wavefronts, launch.counters.executed, launch.steps.length]"
    before, output = tab.evaluate(outcome), "Array.from(launch.O).join()"
    result = tab.evaluate(output)
    tab.click('#warps button[data-turn="2"]')
    tab.wait_for_function(
        "turns.length && warpOf(100) === 2 && document.body.dataset.step === '100' && seen.turn === 2"
    )
    assert "warp 2 at step 101" in tab.inner_text("#turns")
    assert tab.evaluate(outcome) == before and tab.evaluate(output) == result
    tab.wait_for_function("location.hash.includes('turns=100.2')")
    again = open_page(tab.evaluate("location.hash.slice(1)"))
    assert again.evaluate("warpOf(100)") == 2 and again.evaluate("step") == 100
    again.click("#no-turns")
    again.wait_for_function("!turns.length && warpOf(100) === 0")


def test_the_next_KV_block_is_found(open_page: Open) -> None:
    tab = open_page("v=v02&kind=KV%20block&warp=1")
    assert tab.evaluate("passes().size") == 256 // 64 - 1
    first = step_of(tab)
    tab.select_option("#kind", "KV block")
    second = moved(tab, lambda: tab.click("#go"))
    multiplied = f"seek({first}, 1, (at) => mine(at) && MULTIPLIES.test(instructionOf(at).ptx))"
    assert first < tab.evaluate(multiplied) < second
    assert tab.evaluate(f"instructionOf({first}).ptx_line") == tab.evaluate(f"instructionOf({second}).ptx_line")


def test_the_tiles_of_wgmma_are_its_factors(open_page: Open) -> None:
    """One score of v28: row 1 of A times column 1 of B, summed over d_head, is what its register holds then."""
    tab = open_page("v=v28&kind=wgmma&warp=4")
    assert "64 × 16" in tab.inner_text("#operands") and "16 × 128" in tab.inner_text("#operands")
    row_and_column = """(() => {
        const { product: it, shared } = seen, read = factors(launch.code[seen.warps[seen.shown].instruction].ptx);
        const a = fromChunks(shared, it.chunks, it.a_along_k, read);
        const b = fromChunks(shared, it.chunks.subarray(128), it.b_along_k, read);
        return Array.from({ length: 16 }, (_, k) => [a(1, k), b(1, k)]);
    })()"""
    name = tab.evaluate("seen.operands[1].name")  # of row lane / 4, column 2 * (lane % 4) + 1
    tab.select_option("#kind", "wgmma")
    dot = 0.0
    for _ in range(128 // 16):
        dot += sum(one * other for one, other in tab.evaluate(row_and_column))
        moved(tab, lambda: tab.click("#go"))
    done = tab.evaluate("""(() => {
        const wait = seek(0, 1, (at) => mine(at) && instructionOf(at).ptx.startsWith("wgmma.wait_group"));
        return seek(wait + 1, 1, mine);
    })()""")
    tab.evaluate(f"void ($('register').value = '{name}', show({done}, warp))")
    tab.wait_for_function(f"document.body.dataset.step === '{done}' && seen.register")
    assert abs(tab.evaluate("float(seen.register[4])") - dot) < 1e-3 * abs(dot)


@pytest.mark.parametrize("version", ["v02", "v17", "v29", "v37"])
def test_what_a_block_holds_is_beside_the_reference(open_page: Open, version: str) -> None:
    """Errors are those of 16-bit factors; those of a wrong array, or of another block, would be as large as it."""
    tab = open_page(f"v={version}")
    tab.click("#compare")
    tab.wait_for_selector('#block[data-step="0"]')
    last = tab.evaluate("document.getElementById('KV-step').options.length - 1")
    assert last >= 1
    tab.select_option("#KV-step", str(last))
    tab.wait_for_selector(f'#block[data-step="{last}"]')
    errors = tab.evaluate("[...document.querySelectorAll('#block figure')].map((one) => +one.dataset.error)")
    names = tab.evaluate(
        "[...document.querySelectorAll('#block figcaption')].map((one) => one.textContent[0]).join('')"
    )
    assert names == "SmPlO"
    lags = version != "v02"
    assert all(error < 2e-3 for name, error in zip(names, errors, strict=True) if name != "m" or not lags), errors
    assert tab.evaluate("[...document.querySelectorAll('#block canvas')].every((one) => one.width > 1)")


def test_copies_under_way_are_boxes_of_their_tensors(open_page: Open) -> None:
    tab = open_page("v=v28&kind=wgmma&warp=4")
    assert tab.evaluate("seen.bulk.length") > 0
    assert tab.evaluate("document.querySelectorAll('#copies li svg .box').length") == tab.evaluate("seen.bulk.length")
    assert "elements of " in tab.inner_text("#copies") and "mbarrier" in tab.inner_text("#copies")
    moved_bytes = tab.evaluate("seen.bulk.every((one) => one.bytes === 2 * one.box.reduce((a, b) => a * b, 1))")
    assert moved_bytes


def test_the_cursor_in_the_PTX_is_run_to(open_page: Open) -> None:
    tab = open_page("v=v02")
    tab.click("#tab-ptx")
    line = tab.evaluate("""() => {
        const at = text.value.indexOf("mma.sync");
        text.setSelectionRange(at, at);
        return text.value.slice(0, at).split("\\n").length;
    }""")
    moved(tab, lambda: tab.click("#to-ptx"))
    assert tab.evaluate("instructionOf(step).ptx_line") == line


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
    files = first_page(browser_tab)
    sizes = compressed(files)
    assert browser_tab.evaluate("!!document.querySelector('a[href*=\"machine/index.html?v=v02\"]')")
    assert len(files) > 5 and not [file for file in files if "machine" in file.parts]
    assert sum(sizes.values()) < 300_000, sizes
