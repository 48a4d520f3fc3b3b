"""A version's page in browsers: a line of SASS, PTX or CUDA lights its lines of the others, by pointer and by key."""

from typing import Any

import pytest

from analysis.tests.site.browsers import SITE

pytestmark = pytest.mark.site
LIT = "[...document.querySelectorAll('.three ol')].map((list) => list.querySelectorAll('[aria-selected]').length)"
FIRST = "document.querySelectorAll('.three ol')[{list}].querySelector('[aria-selected]')"


@pytest.fixture
def loop(browser: Any) -> Any:
    """The page of v02 with its loop unfolded."""
    browser.goto((SITE / "versions/v02.html").as_uri())
    browser.click(".three summary")
    return browser


def test_a_line_of_ptx_lights_its_sass_and_cuda(loop: Any) -> None:
    text = "document.querySelectorAll('.three ol')[1].querySelectorAll('li')"
    at = loop.evaluate(f"[...{text}].findIndex((row) => row.textContent.includes('ldmatrix'))")
    loop.hover(f".three .pane:nth-child(2) li:nth-child({at + 1})")
    sass, ptx, cuda = loop.evaluate(LIT)
    assert sass >= 1 and (ptx, cuda) == (1, 1)
    assert "LDSM" in loop.evaluate(FIRST.format(list=0) + ".textContent")
    line = loop.evaluate(FIRST.format(list=2) + ".dataset.c")
    assert "ldmatrix" in loop.evaluate(FIRST.format(list=2) + ".textContent")
    assert loop.evaluate("document.querySelector('.three .machine').href").endswith(f"?v=v02&line={line}")
    for index in (0, 2):  # within what its list shows
        assert loop.evaluate(f"""(() => {{
            const row = {FIRST.format(list=index)}, pane = row.closest('.scroll');
            return row.offsetTop >= pane.scrollTop && row.offsetTop < pane.scrollTop + pane.clientHeight;
        }})()""")


def test_keys_go_through_a_list(loop: Any) -> None:
    loop.evaluate("document.querySelectorAll('.three ol')[2].focus()")
    loop.keyboard.press("ArrowDown")
    first = loop.evaluate(FIRST.format(list=2) + ".dataset.c")
    loop.keyboard.press("ArrowDown")
    second = loop.evaluate(FIRST.format(list=2) + ".dataset.c")
    sass, ptx, cuda = loop.evaluate(LIT)
    assert int(second) > int(first) and sass >= 1 and ptx >= 1 and cuda == 1
    loop.keyboard.press("ArrowUp")
    assert loop.evaluate(FIRST.format(list=2) + ".dataset.c") == first


def test_the_page_is_light(browser: Any) -> None:
    largest = max((SITE / "versions").glob("*.html"), key=lambda path: path.stat().st_size)
    assert largest.stat().st_size < 800_000, largest  # a ninth of it, compressed
