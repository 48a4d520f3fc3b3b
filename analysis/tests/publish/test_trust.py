"""What docs/testing.md promises: its files exist, and its figures are those of the tests."""

import re
from pathlib import Path

import pytest

from analysis.errors import AnalysisError
from analysis.files import root
from analysis.publish.trust import COUNTS, PROMISES, Count, trust_text
from analysis.tests import test_parsers


def test_every_promise_names_tests_that_exist() -> None:
    for promise in PROMISES:
        assert promise.tests and all((root() / file).is_file() for file in promise.tests), promise.text


def test_figures_are_those_of_the_tests() -> None:
    values = {count.file: count.value(root()) for count in COUNTS}
    formats = len(test_parsers.PARSERS)
    assert values["analysis/tests/test_parsers.py"] == formats * int(
        re.findall(r"EXAMPLES = .*else (\d+)", Path(test_parsers.__file__).read_text())[0]
    )
    assert all(f"{value:,}" in trust_text(root()) for value in values.values())


def test_a_figure_follows_its_file(tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text("SIZE = 7\nTABLE: dict[str, int] = {'a': 1, 'b': 2, 'c': 3}\nROWS = (1, 2)\n")
    assert Count("", "t.py", r"SIZE = (\d+)", ("TABLE", "ROWS")).value(tmp_path) == 42
    with pytest.raises(AnalysisError, match=r"t.py: 0 places read .* expected one"):
        Count("", "t.py", r"LENGTH = (\d+)").value(tmp_path)
    with pytest.raises(AnalysisError, match=r"t.py: no table OTHER"):
        Count("", "t.py", tables=("OTHER",)).value(tmp_path)
