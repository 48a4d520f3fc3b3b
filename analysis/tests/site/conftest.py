"""Fixtures of the tests in a browser."""

from collections.abc import Iterator
from typing import Any

import pytest

from analysis.tests.site.browsers import chromium_tab


@pytest.fixture(scope="module")
def browser_tab() -> Iterator[Any]:
    with chromium_tab() as tab:
        yield tab
