"""Pages of each kind under axe-core, by the rules of WCAG 2.2 at level AA, on a phone and a desktop."""

import importlib
from collections.abc import Iterator
from typing import Any

import pytest

from analysis.tests.site.browsers import LONG, SITE, chromium_tab

pytestmark = pytest.mark.site
PAGES = (
    "index.html", "versions/v02.html", "machine/index.html?v=v28&kind=wgmma&warp=4", "docs/learn/1-tensor-cores.html",
    "notebooks/02_bank_conflicts.html", "docs/learn/glossary.html", "tables/index.html", "docs/emulator.html",
)  # fmt: skip
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]


@pytest.fixture(scope="module")
def tab() -> Iterator[Any]:
    with chromium_tab() as opened:
        yield opened


def violations(tab: Any) -> list[str]:
    """Rule, element and text of each, on the page that is open."""
    try:
        axe = importlib.import_module("axe_playwright_python.sync_playwright")
    except ImportError:
        pytest.skip("axe-playwright-python is not installed: run `make check-site`")
    found = axe.Axe().run(tab, options={"runOnly": RULES}).response
    assert len(found["passes"]) > 2, "the rules were not run"
    return [f"{rule['id']}: {node['target']} {node['html'][:90]}" for rule in found["violations"]
            for node in rule["nodes"]]  # fmt: skip


@pytest.mark.parametrize("width", [400, 1280])
@pytest.mark.parametrize("page", PAGES)
def test_a_page_keeps_the_rules(tab: Any, page: str, width: int) -> None:
    tab.set_viewport_size({"width": width, "height": 900})
    tab.goto(f"{SITE.as_uri()}/{page}")
    if page.startswith("machine/"):
        tab.wait_for_function("document.body.dataset.ready && document.body.dataset.step", timeout=LONG)
    if page.startswith("versions/"):
        tab.click(".three summary")
    assert violations(tab) == []
