"""Fixtures of all tests of analysis."""

from collections.abc import Iterator

import pytest

from analysis.machine_code import toolkit
from analysis.tests.support.compiled import keeping


@pytest.fixture(scope="session", autouse=True)
def kept_disassemblies() -> Iterator[None]:
    """nvdisasm runs once for each cubin and options."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(toolkit, "execute", keeping(toolkit.execute))
        yield
