"""The pages of `make site` and `make report` in Chromium: nothing off the side, text with contrast, nothing fetched.

Each page is opened at the width of a phone and of a desktop, light and dark. The screenshots stay in build/screens/.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from analysis.files import root
from analysis.tests.site.browsers import SITE, chromium

pytestmark = pytest.mark.site
REPORT, SCREENS = root() / "build/report.html", root() / "build/screens"
LOOK = (Path(__file__).parent / "look.js").read_text()
WIDTHS = {"phone": (390, 844), "desktop": (1280, 900)}
SCHEMES = ("light", "dark")
CONTRAST = 4.5  # WCAG 2.2, level AA, for text of any size
SMALLEST = 8  # px


def pages() -> list[Path]:
    """All pages but those of sources, of which one with each ending represents the others; and the report."""
    made = [path for path in sorted(SITE.rglob("*.html")) if "source" not in path.relative_to(SITE).parts]
    sources = {path.with_suffix("").suffix: path for path in sorted((SITE / "source").rglob("*.html"))}
    return [*made, *sources.values(), REPORT]


@pytest.fixture(scope="module")
def windows() -> Iterator[dict[str, Any]]:
    """Windows of a browser by name: each width in each color scheme."""
    with chromium() as browser:
        yield {
            f"{name}.{scheme}": browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
            for name, (width, height) in WIDTHS.items()
            for scheme in SCHEMES
        }


def problems(windows: dict[str, Any], page: Path, screens: Path | None = None) -> list[str]:
    """The errors of a page in any of the windows, with the window's name."""
    found = []
    for window, context in windows.items():
        tab = context.new_page()
        noticed: list[str] = []
        tab.on("request", lambda request, seen=noticed: seen.append(f"fetches {request.url}"))
        tab.on("pageerror", lambda error, seen=noticed: seen.append(f"script: {error}"))
        tab.goto(page.as_uri())
        looked = tab.evaluate(LOOK, {"least": CONTRAST, "smallest": SMALLEST})
        looked += [one for one in noticed if not one.startswith(("fetches file:", "fetches data:", "fetches blob:"))]
        found += [f"{window}: {problem}" for problem in looked]
        if screens:
            name = "_".join(page.relative_to(root()).with_suffix("").parts)
            tab.screenshot(path=screens / f"{name}.{window}.png")
        tab.close()
    return found


@pytest.mark.parametrize("page", pages(), ids=lambda path: str(path.relative_to(root())))
def test_a_page_is_readable_on_a_phone_and_a_desktop(windows: dict[str, Any], page: Path) -> None:
    SCREENS.mkdir(parents=True, exist_ok=True)
    assert not problems(windows, page, SCREENS)


MORE_AT_THE_SIDE = """[...document.querySelectorAll(".wide, .scroll")].map((one) => [
    one.scrollWidth > one.clientWidth, getComputedStyle(one).backgroundImage.split("linear-gradient").length - 1,
    one.tabIndex, one.getBoundingClientRect().right <= innerWidth])"""


@pytest.mark.parametrize("width", [400, 1280])
def test_what_the_report_cuts_at_the_side_is_shaded_and_scrolls(windows: dict[str, Any], width: int) -> None:
    tab = windows["phone.light"].new_page()
    tab.set_viewport_size({"width": width, "height": 900})
    tab.goto(REPORT.as_uri())
    assert tab.evaluate("document.documentElement.scrollHeight") < 12000  # of what is not folded
    tab.evaluate("[...document.querySelectorAll('details')].forEach((one) => { one.open = true; })")
    boxes = tab.evaluate(MORE_AT_THE_SIDE)
    assert any(wider for wider, *_ in boxes)
    assert [one for one in boxes if one[1:] != [4, 0, True]] == []
    assert tab.evaluate("document.documentElement.scrollWidth") == width
    tab.close()
