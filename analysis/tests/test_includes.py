"""The graph of C and CUDA includes: includes go down the rooms only, and no modules need each other.

Emulator and common are the ground, runtime uses both, harness and library use runtime. Tests are separate: they see
all rooms, and of tests' headers those of their own room and of rooms before it. emulator/tests/test_structure.py checks
the rules inside the emulator.
"""

import re
from pathlib import Path

from analysis.files import root
from analysis.tests.test_imports import circles_of

BELOW = {
    "common": set[str](),  # what each room may include; every folder comes after those
    "include": set[str](),
    "emulator": set[str](),
    "runtime": {"common", "emulator"},
    "harness": {"common", "emulator", "runtime", "include"},  # a program measures the library
    "library": {"common", "emulator", "runtime", "include"},
    "kernels": {"common"},
    "examples": {"include"},
    "python": {"include"},
}
SEEN_OF_EMULATOR = {"emulator/emu.h", "emulator/wasm/view.h", "emulator/machine/numbers.h"}  # the last: 16-bit numbers
SUFFIXES = (".c", ".h", ".cu", ".cuh")


def room_of(name: str) -> str:
    return name.partition("/")[0]


def is_test(name: str) -> bool:
    """True if a file may include from every folder, as tests do and programs for developers."""
    return bool({"tests", "bench"} & {*name.split("/")})


def graph_of(folder: Path) -> dict[str, set[str]]:
    """Every file to those of the tree that it includes in quotes; what is generated or foreign is left out."""
    paths = [path for room in BELOW for path in sorted((folder / room).rglob("*")) if path.suffix in SUFFIXES]
    graph = {}
    for path in paths:
        found = set()
        for name in re.findall(r'^\s*#\s*include "([^"]+)"', path.read_text(encoding="utf-8"), re.M):
            paths = [(at / name).resolve() for at in (path.parent, folder, folder / "include")]
            found.update({file for file in paths if file.is_file() and file.is_relative_to(folder)})
        graph[path.relative_to(folder).as_posix()] = {file.relative_to(folder).as_posix() for file in found}
    return graph


def fault_of(name: str, included: str) -> str | None:
    """The error of one include."""
    ours, theirs = room_of(name), room_of(included)
    if is_test(included):
        if not is_test(name):
            return f"{name} includes {included}, a test's"
        order = list(BELOW)
        return None if order.index(theirs) <= order.index(ours) else f"{name} includes {included}"
    if ours == theirs:
        return None
    if not is_test(name) and theirs not in BELOW[ours]:
        return f"{name} includes {included}, which is not below it"
    if theirs == "emulator" and included not in SEEN_OF_EMULATOR:
        return f"{name} includes {included}, which is no interface"
    return None


def module_of(name: str) -> str:
    """A module is a source with the header of its name."""
    return name.rpartition(".")[0]


def modules_of(pairs: set[tuple[str, str]]) -> dict[str, set[str]]:
    """Every module to those that it needs."""
    needs: dict[str, set[str]] = {}
    for name, other in pairs:
        if module_of(name) != module_of(other):
            needs.setdefault(module_of(name), set()).add(module_of(other))
    return needs


def faults_of(folder: Path) -> list[str]:
    """The errors of the includes, a sentence each."""
    graph = graph_of(folder)
    pairs = {(name, other) for name, included in graph.items() for other in included}
    found = [fault for name, other in sorted(pairs) if (fault := fault_of(name, other))]
    return found + circles_of(modules_of(pairs))


def test_includes_go_down_only() -> None:
    graph = graph_of(root())
    assert {"runtime/image.h", "runtime/sha256.h"} <= graph["runtime/image.c"] and len(graph) > 200
    assert "include/flashladder.h" in graph["examples/minimal.c"]
    assert faults_of(root()) == []
