"""Fixtures of all tests of analysis."""

from collections.abc import Iterator

import pytest

from analysis.machine_code import toolkit
from analysis.tests.support.compiled import keeping

EXECUTE = toolkit.execute


@pytest.fixture(scope="session", autouse=True)
def kept_disassemblies() -> Iterator[None]:
    """nvdisasm runs once for each cubin and options."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(toolkit, "execute", keeping(EXECUTE))
        yield


@pytest.fixture
def no_kept_disassemblies(monkeypatch: pytest.MonkeyPatch) -> None:
    """nvdisasm runs, in a test of what that costs."""
    monkeypatch.setattr(toolkit, "execute", EXECUTE)
