"""`pytest --shuffle SEED`: another order of the tests, the same one for a seed, so that a failure is found again."""

from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from analysis.files import root

TESTS = [(Path(f"test_{file}.py"), number) for file in range(8) for number in range(8)]


@pytest.fixture
def ordered(request: pytest.FixtureRequest) -> Any:
    """The tests as conftest.py orders them; the last one is marked to be first."""
    plugins = request.config.pluginmanager.get_plugins()
    (conftest,) = [one for one in plugins if getattr(one, "__file__", "") == str(root() / "conftest.py")]

    def order(seed: int | None) -> list[tuple[Path, int]]:
        def item(path: Path, number: int) -> Any:
            first = (path, number) == TESTS[-1]
            return SimpleNamespace(path=path, number=number, get_closest_marker=lambda name: first or None)

        items = [item(*test) for test in TESTS]
        conftest.pytest_collection_modifyitems(SimpleNamespace(getoption=lambda name: seed), items)
        return [(one.path, one.number) for one in items]

    return order


def test_without_a_seed_only_what_is_marked_moves(ordered: Any) -> None:
    assert ordered(None) == [TESTS[-1], *TESTS[:-1]]


def test_a_seed_is_an_order(ordered: Any) -> None:
    assert ordered(1) == ordered(1) != ordered(2)
    assert sorted(ordered(1)) == TESTS
    for seed in (1, 2):
        files = [path for path, _ in ordered(seed)]
        assert files != sorted(files) and len([1 for a, b in pairwise(files) if a != b]) == 7
        assert any([n for path, n in ordered(seed) if path == file] != list(range(8)) for file in set(files))
