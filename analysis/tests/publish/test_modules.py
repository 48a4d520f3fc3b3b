"""The module map: first sentences by kind of file, pairs of header and code, and that no source file is missing."""

import re
import subprocess
from pathlib import Path

import pytest

from analysis import FLOORS
from analysis.errors import AnalysisError
from analysis.files import root
from analysis.publish.modules import SUFFIXES, first_sentence, module_map


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("a.py", '"""Reads a\nfile. Then more.\n\nMore."""\n', "Reads a file"),
        ("a.h", "/* a.h - one sentence, for\n * two lines.\n *\n *     use(); */\n", "one sentence, for two lines"),
        ("a.c", "/* a.c - .file and .loc. More. */\n#include <a.h>\n", ".file and .loc"),
        ("kernels/mma_sync/v07_tuned.cu", "/* v07 - tuned parameters\n *\n * parent  v06\n */\n", "tuned parameters"),
        ("a.mk", "# Rules for a:\n# and b.\n#\n#     more\n\nA := b\n", "Rules for a: and b"),
    ],
)
def test_the_first_sentence(tmp_path: Path, name: str, text: str, sentence: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    assert first_sentence(path, name) == sentence


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        ("a.py", "import re\n", "a docstring"),
        ("a.c", '#include "a.h"\n/* a.c - too late */\n', "a comment '/* a.c - SENTENCE'"),
        ("a.h", "/* b.h - of another file */\n", "a comment '/* a.h - SENTENCE'"),
        ("a.mk", "A := b\n", "a comment"),
    ],
)
def test_a_file_without_a_sentence_is_named(tmp_path: Path, name: str, text: str, wanted: str) -> None:
    folder = tmp_path / "harness"
    folder.mkdir()
    (folder / name).write_text(text)
    with pytest.raises(AnalysisError, match=re.escape(f"harness/{name}: expected {wanted} at its top")):
        module_map(tmp_path)


def test_a_header_and_its_code_share_a_line(tmp_path: Path) -> None:
    folder = tmp_path / "harness"
    folder.mkdir()
    (folder / "a.h").write_text("/* a.h - what a is for */\n")
    (folder / "a.c").write_text('#include "a.h"\n')
    (folder / "b.c").write_text("/* b.c - what b is for */\n")
    assert module_map(tmp_path) == ("\n### harness/\n\n- `a.h`, `a.c`: what a is for\n- `b.c`: what b is for\n\n")


def test_the_map_holds_every_source_file_once() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=root(),
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    files = {
        name
        for name in listed.splitlines()
        if "/" in name and name.endswith(SUFFIXES) and not name.endswith("__init__.py") and "tests/" not in name
    }
    found, folder = [], ""
    for line in module_map(root()).splitlines():
        if line.startswith("### "):
            folder = line.removeprefix("### ")
        elif line.startswith("- "):
            found += [folder + name for name in re.findall(r"`([^`]+)`", line.partition(": ")[0])]
    assert sorted(found) == sorted(files)


def test_floors_stand_from_the_lowest_up() -> None:
    headings = re.findall(r"^### analysis/(\w+)/$", module_map(root()), re.MULTILINE)
    assert tuple(headings) == FLOORS
