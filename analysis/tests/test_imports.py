"""The import graph of analysis/: imports go down only, and never round in a circle."""

import ast
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from analysis.files import root

# From the lowest up.
FLOORS = (
    "ladder", "machine_code", "predict", "measure", "emulate", "judge", "tools", "learn", "inspect", "publish", "site"
)  # fmt: skip
GROUND = ("building", "errors", "files", "table")
PROGRAM = "__main__"  # imports all floors; no module imports it


def modules_of(folder: Path) -> dict[str, Path]:
    """Dotted name below the folder (errors, ladder.config, ladder for its __init__.py) to file; tests are left out."""
    found = {}
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder).with_suffix("").parts
        if parts[0] != "tests":
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports_of(name: str, path: Path, modules: dict[str, Path], package: str) -> set[str]:
    """The modules that one imports anywhere: at its top, inside functions, and for type checks."""
    inside = path.name == "__init__.py"
    here = [package, *(name.split(".") if name else [])]
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            dotted = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = here[: len(here) - node.level + inside] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            dotted = [f"{source}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "import_module":
            dotted = [one.value for one in node.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        else:
            continue
        for word in dotted:
            first, _, rest = word.partition(".")
            if first != package:
                continue
            while rest and rest not in modules:  # a function or a constant of the module before the last dot
                rest = rest.rpartition(".")[0]
            found.add(rest)
    return found - {""}


def graph_of(folder: Path) -> dict[str, set[str]]:
    """Every module to those that it imports."""
    modules = modules_of(folder)
    return {name: imports_of(name, path, modules, folder.name) - {name} for name, path in modules.items()}


def floor_of(module: str) -> int | None:
    """0 for the ground, then 1 for the lowest floor; the top for the program; None for a module that has no floor."""
    package, dot, _ = module.partition(".")
    if package in FLOORS:
        return 1 + FLOORS.index(package)
    if dot:
        return None
    return {PROGRAM: 1 + len(FLOORS), "": 0}.get(package, 0 if package in GROUND else None)


def faults_of(folder: Path) -> list[str]:
    """The errors of the graph, a sentence each."""
    graph = graph_of(folder)
    found = [f"{module} is in no package" for module in graph if floor_of(module) is None]
    for module, imported in graph.items():
        for other in sorted(imported):
            ours, theirs = floor_of(module), floor_of(other)
            if ours is not None and theirs is not None and theirs > ours:
                found.append(f"{module} imports {other}, which is above it")
    return found + circles_of(graph)


def circles_of(graph: dict[str, set[str]]) -> list[str]:
    """The modules of a circle, in a sentence; nothing where there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        ring = error.args[1][:0:-1]
        first = ring.index(min(ring))
        return ["circle: " + " needs ".join([*ring[first:], *ring[: first + 1]])]
    return []


def test_no_modules_of_the_package_import_each_other_in_a_circle() -> None:
    """Also where a function imports a module by its name, as those of JAX are."""
    graph = graph_of(root() / "python/flashladder")
    assert "_call" in graph["jax"]
    assert circles_of(graph) == []


def test_imports_of_analysis_go_down_only() -> None:
    graph = graph_of(root() / "analysis")
    assert {"ladder.config", "errors"} <= graph["ladder.headers"] and len(graph) > 50
    assert faults_of(root() / "analysis") == []


def test_a_command_loads_its_own_modules_only() -> None:
    """Lazy imports keep the help fast: no floor is loaded before a command is chosen."""
    script = "import sys, analysis.__main__; print(*(name for name in sys.modules if name.startswith('analysis.')))"
    done = subprocess.run([sys.executable, "-c", script], cwd=root(), capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == {f"analysis.{name}" for name in ("__main__", "building", "errors", "files")}
