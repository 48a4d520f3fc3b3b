"""The module map of docs/architecture.md: every source file with its first sentence.

print(module_map(root()))

A sentence comes from where a reader of the file finds it: a module's docstring, else the comment at the top. A .c file
stands in one line with the header of its name, under the header's sentence. Tests are left out.
"""

import ast
import re
from pathlib import Path

from analysis import FLOORS
from analysis.errors import AnalysisError
from analysis.files import read_text
from analysis.ladder.headers import ATTENTION

ROOTS = (
    "kernels",
    "common",
    "emulator",
    "runtime",
    "harness",
    "include",
    "library",
    "python",
    "examples",
    "analysis",
    "make",
    "docs",
)
SUFFIXES = (".h", ".cuh", ".c", ".cu", ".S", ".py", ".mk", ".awk")


def first_sentence(path: Path, name: str) -> str:
    """The first sentence of a source file, without its last dot; AnalysisError with `name` when there is none."""
    text = read_text(path)
    if path.suffix == ".py":
        wanted, top = "a docstring", ast.get_docstring(ast.parse(text)) or ""
    elif path.suffix in (".mk", ".awk"):
        lines = re.match(r"(?:#.*\n)*", text)
        wanted, top = "a comment", re.sub(r"^#", "", lines[0] if lines else "", flags=re.MULTILINE)
    else:
        title = path.name
        if path.suffix == ".cu" and path.parent.parent.name == "kernels":  # "v07", "attention/wgmma"
            title = f"attention/{path.stem}" if path.parent.name == ATTENTION else path.stem.partition("_")[0]
        comment = re.match(rf"/\* {re.escape(title)} - (.*?)\*/", text, re.DOTALL)
        wanted = f"a comment '/* {title} - SENTENCE'"
        top = re.sub(r"^ \*", "", comment[1] if comment else "", flags=re.MULTILINE)
    paragraph = re.split(r"\n\s*\n", top.strip())[0]
    sentence = " ".join(paragraph.split()).split(". ")[0].rstrip(".")
    if not sentence:
        raise AnalysisError(f"{name}: expected {wanted} at its top, whose first sentence says what the file is for")
    return sentence


def sources(root: Path) -> dict[str, list[Path]]:
    """Folder to source files in the order of the map: by ROOTS, then name, the floors of analysis/ from the lowest."""
    found: dict[str, list[Path]] = {}
    for top in ROOTS:
        for path in sorted((root / top).rglob("*")):
            folder = path.parent.relative_to(root)
            if path.suffix in SUFFIXES and "tests" not in folder.parts:
                found.setdefault(str(folder), []).append(path)
    floors = [f"analysis/{floor}" for floor in FLOORS]
    rank = {
        folder: (ROOTS.index(folder.split("/")[0]), floors.index(folder) if folder in floors else -1)
        for folder in found
    }
    return {folder: found[folder] for folder in sorted(found, key=lambda folder: (rank[folder], folder))}


def lines_of(files: list[Path], root: Path) -> list[str]:
    """One line a file, a header and its .c file together; a package's own sentence is not among them."""
    names = {path.name for path in files}
    lines = []
    for path in files:
        if path.name == "__init__.py" or (path.suffix == ".c" and f"{path.stem}.h" in names):
            continue
        code = f", `{path.stem}.c`" if path.suffix == ".h" and f"{path.stem}.c" in names else ""
        lines.append(f"- `{path.name}`{code}: {first_sentence(path, str(path.relative_to(root)))}")
    return lines


def module_map(root: Path) -> str:
    """The whole map as Markdown: a heading per folder, and below it the package's sentence and one line per file."""
    parts = []
    for folder, files in sources(root).items():
        parts.append(f"\n### {folder}/\n")
        package = root / folder / "__init__.py"
        if package in files:
            parts.append(f"{first_sentence(package, f'{folder}/__init__.py')}.\n")
        parts += lines_of(files, root)
    return "\n".join([*parts, "", ""])
