"""No public name of analysis/ that nothing but tests uses: code that only tests call is code that nobody needs."""

import ast
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from analysis.__main__ import COMMANDS
from analysis.files import root


def definitions(tree: ast.Module) -> list[str]:
    """Public functions, classes and constants of a module, and public methods as Class.method."""
    found = []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.append(node.name)
        if isinstance(node, ast.ClassDef):
            found += [f"{node.name}.{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef)]
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found += [name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]
    return [name for name in found if not re.search(r"(^|\.)(_|pytest_)", name)]  # pytest calls its hooks


def uses(tree: ast.AST) -> Iterable[str]:
    """Names that code reads or calls, with or without something before the dot. An import alone is no use."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "getattr":
            yield from (str(each.value) for each in node.args[1:2] if isinstance(each, ast.Constant))


def only_tests_use(folder: Path, commands: Iterable[str]) -> list[str]:
    """`file: name` of every public name below analysis/ that no code outside tests uses."""
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("analysis/**/*.py"))}
    code = {path: tree for path, tree in trees.items() if "tests" not in path.relative_to(folder).parts}
    used = Counter(name for tree in code.values() for name in uses(tree))
    for path in folder.glob("notebooks/*.ipynb"):
        used.update(re.findall(r"[A-Za-z_]\w*", path.read_text(encoding="utf-8")))
    for path in (*folder.glob("emulator/**/*.py"), *folder.glob("harness/**/*.py")):
        if not path.name.startswith("test_"):
            used.update(uses(ast.parse(path.read_text(encoding="utf-8"))))
    for path in folder.glob("analysis/judge/corpus/*.txt"):  # submissions name the templates and the arrays
        used.update(re.findall(r"[A-Za-z_]\w*", path.read_text(encoding="utf-8")))
    for path in folder.glob("common/*_fields.h"):  # a field is read by its name
        used.update(re.findall(r"^FIELD\(.*?, (\w+),", path.read_text(encoding="utf-8"), re.MULTILINE))
    called = {name.replace("-", "_") for name in commands}
    used.update(f"run_{name}" for name in called)
    used.update(f"add_{name}_arguments" for name in called)
    torch_module = folder / "analysis/judge/inside/torch_tensors.py"  # has PyTorch's names, which submissions call
    return [
        f"{path.relative_to(folder)}: {name}"
        for path, tree in code.items()
        for name in definitions(tree)
        if not used[name.rpartition(".")[2]] and path != torch_module
    ]


def test_no_public_name_is_for_tests_alone() -> None:
    assert only_tests_use(root(), [command.name for command in COMMANDS]) == []
