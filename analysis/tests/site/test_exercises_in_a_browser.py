"""The exercises in browsers, read from a file: each right answer is accepted, a wrong one refused; progress stays."""

from typing import Any

import pytest

from analysis.files import root
from analysis.site.exercise_page import tasks
from analysis.tests.site.browsers import SITE

pytestmark = pytest.mark.site
PAGE = SITE / "exercises/index.html"
TASKS = tasks(root())
LONG = 120_000  # ms that a busy machine may take
# Counted by hand; what the machine counts must be equal.
NUMBERS = {
    "count-mma": 2 * 128 * 128 * 128 // (16 * 8 * 16),
    "count-ldmatrix": 2 * 4 * (8 + 2 * (32 + 32)),
    "count-barriers": 2 * 4 * 2 * 3,
    "count-exponentials": 2 * 4 * 2 * (16 * 64 // 32 + 2),
    "count-wgmma": 4 * 4 * 2 * (8 + 8),
    "count-tcgen05-ld": 4 * (64 // 16),
}
CHOICES = {"least-wavefronts": ("v02", "v01"), "least-instructions": ("v16", "v02"), "fewest-shuffles": ("v17", "v09")}


@pytest.fixture(scope="module")
def tab(browser_tab: Any) -> Any:
    browser_tab.set_default_timeout(LONG)
    browser_tab.goto(PAGE.as_uri())
    return browser_tab


def opened(tab: Any, task: dict[str, Any]) -> None:
    tab.evaluate("(id) => open(tasks.find((one) => one.id === id))", task["id"])
    if task["kind"] == "position":
        tab.wait_for_selector(".gap")


def verdict(tab: Any) -> tuple[str, str]:
    """True if an answer was good or bad, and what was said."""
    tab.wait_for_selector("#verdict.good, #verdict.bad")
    return str(tab.get_attribute("#verdict", "class")), str(tab.inner_text("#verdict"))


def answer(tab: Any, task: dict[str, Any], right: bool) -> None:
    kind, name = task["kind"], task["id"]
    tab.evaluate("verdict('')")
    if kind == "number":
        tab.fill("#number", str(NUMBERS[name] + (not right)))
        tab.press("#number", "Enter")
    elif kind == "choice":
        tab.click(f"[data-option={CHOICES[name][not right]}]")
    elif kind == "line":
        tab.click(
            f".lines button:nth-child({1 + (task['wrong'] if right else (task['wrong'] + 1) % len(task['shown']))})"
        )
    else:
        own = tab.evaluate("""async () => { const made = await broken(current);
            return made.rows.find((row) => row.text === made.after).at; }""")
        first = tab.get_attribute(".gap", "data-at")
        tab.click(f".gap[data-at='{own if right else first}']")


@pytest.mark.parametrize("task", TASKS, ids=lambda task: str(task["id"]))
def test_a_wrong_answer_is_refused_and_a_right_one_accepted(tab: Any, task: dict[str, Any]) -> None:
    opened(tab, task)
    answer(tab, task, right=False)
    state, said = verdict(tab)
    assert state == "bad" and said, said
    answer(tab, task, right=True)
    state, said = verdict(tab)
    assert state == "good" and said.startswith("Right."), said
    assert tab.evaluate("(id) => JSON.parse(localStorage.getItem(STORE))[id]", task["id"]) == "solved"


def test_progress_stays_in_the_browser_until_it_is_forgotten(tab: Any) -> None:
    tab.evaluate("localStorage.setItem(STORE, JSON.stringify({'count-mma': 'solved'}))")
    tab.reload()
    assert tab.inner_text("#progress") == f"1 of {len(TASKS)} solved"
    assert tab.inner_text("#list button").startswith("✓ ")
    tab.click("#forget")
    assert tab.inner_text("#progress") == f"0 of {len(TASKS)} solved" and not tab.evaluate("localStorage.length")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone(tab: Any, scheme: str) -> None:
    tab.emulate_media(color_scheme=scheme)
    tab.set_viewport_size({"width": 390, "height": 800})
    for task in (TASKS[0], next(one for one in TASKS if one["kind"] == "position"), TASKS[-1]):
        opened(tab, task)
        assert tab.evaluate("document.documentElement.scrollWidth") <= 390, task["id"]
        tab.screenshot(path=str(root() / f"build/screens/exercise-{task['id']}-{scheme}.png"), full_page=True)
    tab.set_viewport_size({"width": 1280, "height": 800})
