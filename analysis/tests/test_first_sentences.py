"""Every source file says at its top what it is for: a docstring, or a comment that begins with the file's name."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

from analysis.files import read_text, root
from analysis.ladder.headers import ATTENTION

SUFFIXES = (".h", ".cuh", ".c", ".cu", ".S", ".py", ".mk", ".awk")


def first_sentence(path: Path) -> str:
    """Without its last dot; "" where the file has none."""
    text = read_text(path)
    if path.suffix == ".py":
        top = ast.get_docstring(ast.parse(text)) or ""
    elif path.suffix in (".mk", ".awk"):
        lines = re.match(r"(?:#.*\n)*", text)
        top = re.sub(r"^#", "", lines[0] if lines else "", flags=re.MULTILINE)
    else:
        title = path.name
        if path.suffix == ".cu" and path.parent.parent.name == "kernels":  # "v07", "attention/wgmma"
            title = f"attention/{path.stem}" if path.parent.name == ATTENTION else path.stem.partition("_")[0]
        comment = re.match(rf"/\* {re.escape(title)} - (.*?)\*/", text, re.DOTALL)
        top = re.sub(r"^ \*", "", comment[1] if comment else "", flags=re.MULTILINE)
    paragraph = re.split(r"\n\s*\n", top.strip())[0]
    return " ".join(paragraph.split()).split(". ")[0].rstrip(".")


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("a.py", '"""Reads a\nfile. Then more.\n\nMore."""\n', "Reads a file"),
        ("a.h", "/* a.h - one sentence, for\n * two lines.\n *\n *     use(); */\n", "one sentence, for two lines"),
        ("kernels/mma_sync/v07_tuned.cu", "/* v07 - tuned parameters\n *\n * parent  v06\n */\n", "tuned parameters"),
        ("a.mk", "# Rules for a:\n# and b.\n#\n#     more\n\nA := b\n", "Rules for a: and b"),
        ("a.py", "import re\n", ""),
        ("a.c", '#include "a.h"\n/* a.c - too late */\n', ""),
        ("a.h", "/* b.h - of another file */\n", ""),
        ("a.mk", "A := b\n", ""),
    ],
)
def test_the_first_sentence(tmp_path: Path, name: str, text: str, sentence: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    assert first_sentence(path) == sentence


def test_every_source_file_has_one() -> None:
    """A .c file beside the header of its name needs none, and a test is named for what it holds."""
    listed = subprocess.run(["git", "ls-files"], cwd=root(), capture_output=True, text=True, check=True).stdout
    files = [root() / name for name in listed.splitlines() if name.endswith(SUFFIXES) and "/" in name]
    files = [path for path in files if path.is_file() and not {"tests", "exercises"} & set(path.parts)]
    assert len(files) > 300
    lacking = [
        path
        for path in files
        if not first_sentence(path) and not (path.suffix == ".c" and path.with_suffix(".h").exists())
    ]
    assert not lacking
