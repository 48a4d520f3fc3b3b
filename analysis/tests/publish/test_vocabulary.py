"""The table of terms for Hopper: every function has a term, links lead to its line, the first version is the first."""

import re
import shutil
from pathlib import Path

import pytest

from analysis.errors import AnalysisError
from analysis.files import read_text, root
from analysis.publish.vocabulary import HEADER, TERMS, functions, vocabulary_table


def test_every_function_of_the_header_has_one_term() -> None:
    named = [name for names in TERMS.values() for name in names]
    assert sorted(named) == sorted(functions(read_text(root() / HEADER)))


def test_a_link_leads_to_the_line_of_its_function() -> None:
    lines = read_text(root() / HEADER).splitlines()
    links = re.findall(rf"\[`(\w+)`\]\(\.\./{HEADER}#L(\d+)\)", vocabulary_table(root()).markdown())
    assert len(links) == sum(map(len, TERMS.values()))
    for name, number in links:
        line = lines[int(number) - 1]
        assert f"{name}(" in line or line.startswith("FL_WGMMA"), (name, line)


def test_the_first_version_is_the_one_that_brings_the_term() -> None:
    rows = {str(row[0]): str(row[1]) for row in vocabulary_table(root()).rows}
    first = {term: cell[1:4] for term, cell in rows.items()}
    assert first["wgmma"] == first["stmatrix"] == "v26"
    assert first["tensor map, copy engine"] == first["mbarrier that counts bytes"] == "v27"
    assert first["setmaxnreg"] == "v28"


def test_a_function_that_is_gone_is_an_error(tmp_path: Path) -> None:
    for name in ("common", "kernels/mma_sync"):
        (tmp_path / name).mkdir(parents=True)
    text = read_text(root() / HEADER).replace("bar_arrive(", "arrive_at(")
    (tmp_path / HEADER).write_text(text)
    shutil.copy(root() / "kernels/mma_sync/v01_base.cu", tmp_path / "kernels/mma_sync")
    with pytest.raises(AnalysisError, match="has no function bar_arrive, which the term 'named barrier' names"):
        vocabulary_table(tmp_path)
