"""The Chromium of this machine, driven by Playwright, for the tests of pages."""

import contextlib
import importlib
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from analysis.files import root

SITE = root() / "site"
LONG = 60_000  # ms that a busy machine may take
CHROMIUMS = ("chromium", "chromium-headless-shell", "chromium-browser", "google-chrome", "google-chrome-stable")


@contextlib.contextmanager
def chromium() -> Iterator[Any]:
    """A running browser; the test is skipped where there is none."""
    program = next((path for name in CHROMIUMS if (path := shutil.which(name))), None)
    if not program:
        pytest.skip(f"none of {', '.join(CHROMIUMS)} is on the PATH: install one, with `apt-get install chromium`")
    try:
        playwright = importlib.import_module("playwright.sync_api")
    except ImportError:
        pytest.skip("playwright is not installed: run `make check-site`")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextlib.contextmanager
def chromium_tab() -> Iterator[Any]:
    with chromium() as browser:
        tab = browser.new_page()
        tab.set_default_timeout(LONG)
        yield tab
