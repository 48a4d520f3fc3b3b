"""How the emulator is built: includes go down its folders.

The floors are emu.h, ptx/ (text to program), machine/ (program to effects), check/ (what it finds), explore/ (which
interleavings run), cuda/ (calls nvcc) and tool/ (ptxrun). The machine includes one header of a higher floor: the events
that it tells the checks (check/events.h).
INTERFACES lists the headers that declare functions of a higher floor. Only what they declare is called upwards.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

import pytest
from support.emulation import ROOT

EMU = ROOT / "emulator"
FLOORS = ["", "ptx", "machine", "check", "explore", "cuda", "tool"]
EVENTS = EMU / "check/events.h"  # all that machine/ knows of check/
INTERFACES = {
    ("ptx", "machine"): [EMU / "ptx/lanes.h"],
    ("machine", "check"): [EVENTS],
    ("machine", "explore"): [EMU / "machine/interleaving.h", EVENTS],
    ("check", "explore"): [EMU / "check/orders.h", EMU / "check/races.h"],
}
OPEN = [EMU / "machine/numbers.h", EMU / "ptx/errors.h"]  # 16-bit numbers exist once, and how errors are filled
FILES = sorted(EMU.glob("emu.h")) + sorted(path for floor in FLOORS[1:] for path in (EMU / floor).glob("*.[ch]"))
OBJECTS = {path: ROOT / "build" / path.relative_to(ROOT).with_suffix(".o") for path in FILES if path.suffix == ".c"}


def floor(path: Path) -> str:
    return path.parent.relative_to(EMU).as_posix().removeprefix(".")


def includes(path: Path) -> list[Path]:
    """The files that a file includes by name in quotes."""
    return [(path.parent / name).resolve() for name in re.findall(r'^\s*#include "([^"]+)"', path.read_text(), re.M)]


def circle(graph: Mapping[str, Iterable[str]]) -> list[str]:
    """The nodes of one circle, or none."""
    done: set[str] = set()

    def visit(node: str, above: list[str]) -> list[str]:
        if node in above:
            return above[above.index(node) :]
        if node in done:
            return []
        done.add(node)
        return next(filter(None, (visit(next_, [*above, node]) for next_ in graph.get(node, ()))), [])

    return next(filter(None, (visit(node, []) for node in graph)), [])


# ---- includes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_includes_go_down(path: Path) -> None:
    for included in includes(path):
        assert included.is_relative_to(EMU), f"{path.name} includes {included}, which is not the emulator's"
        down = FLOORS.index(floor(included)) <= FLOORS.index(floor(path))
        assert down or (floor(path), included) == ("machine", EVENTS), f"{path.name} includes upwards: {included}"
        if floor(path) == "tool":
            assert floor(included) in ("", "tool") or included in OPEN, f"{path.name} includes {included}"


def test_the_events_need_only_programs() -> None:
    """The machine includes them, and the checks include the machine: they must not include it themselves."""
    assert includes(EVENTS) == [EMU / "ptx/program.h"]


def test_the_driver_stands_on_the_interface() -> None:
    """libcuda is a user of emu.h, as any other program."""
    for path in (EMU / "driver").glob("*.[ch]"):
        for included in includes(path):
            assert included == EMU / "emu.h" or included.parent == path.parent, f"{path.name} includes {included}"


def test_the_page_stands_on_the_machine() -> None:
    """WebAssembly's part looks into the machine and its checks, and nothing looks into it."""
    own = [path for path in (EMU / "wasm").rglob("*") if path.suffix in (".c", ".h")]
    for path in own:
        for each in includes(path):
            known = floor(each) in ("", "machine", "check")
            assert known or each.is_relative_to(EMU / "wasm"), f"{path.name} includes {each}"
    assert not [path for path in FILES if set(includes(path)) & set(own)]


def test_no_headers_include_each_other() -> None:
    assert not circle({str(path): [str(each) for each in includes(path)] for path in FILES})


def test_a_source_includes_its_own_header_first() -> None:
    """So that each header is seen to compile alone."""
    for path in FILES:
        header = path.with_suffix(".h")
        if path.suffix == ".c" and header.exists():
            assert includes(path)[0] == header, path


# ---- symbols ---------------------------------------------------------------------------------------------------------


@cache
def symbols(path: Path) -> list[tuple[str, str]]:
    """Global symbols of an object: kind as nm writes it, and name; without resolvers of functions for wider vectors."""
    done = subprocess.run(["nm", "-g", path], capture_output=True, text=True, check=True)
    each = (line.split()[-2:] for line in done.stdout.splitlines())
    return [(kind, name) for kind, name in each if "." not in name]


def test_all_objects_are_there() -> None:
    missing = [str(each) for each in OBJECTS.values() if not each.exists()]
    assert not missing, "run `make bin/ptxrun`"


def test_calls_go_down_or_through_an_interface() -> None:
    for path, target, name in calls():
        if goes_up(path, target):
            interfaces = INTERFACES.get((floor(path), floor(target)), [])
            assert interfaces, f"{path.name} calls {name} of {target}"
            assert any(name in declared(each) for each in interfaces), f"{path.name} calls {name}, which none declares"


def test_no_modules_need_each_other() -> None:
    """A module is a source with the header of its name; it needs what it includes and what it calls.

    Calls through an interface go up, and the includes that match them down: they are left out.
    """
    needs: dict[str, set[str]] = {}
    pairs = [(path, each) for path in FILES for each in includes(path)]
    pairs += [(path, target) for path, target, _ in calls() if not goes_up(path, target)]
    for path, target in pairs:
        ours, theirs = str(path.with_suffix("")), str(target.with_suffix(""))
        if ours != theirs:
            needs.setdefault(ours, set()).add(theirs)
    assert not circle(needs)
    assert not circle({str(path): [str(target) for source, target, _ in calls() if source == path] for path in OBJECTS})


def calls() -> list[tuple[Path, Path, str]]:
    """Every name that a source uses and another one has."""
    home = {name: path for path, at in OBJECTS.items() for kind, name in symbols(at) if kind != "U"}
    used = [(path, name) for path, at in OBJECTS.items() for kind, name in symbols(at) if kind == "U"]
    return [(path, home[name], name) for path, name in used if name in home]


def goes_up(path: Path, target: Path) -> bool:
    return FLOORS.index(floor(target)) > FLOORS.index(floor(path))


@cache
def declared(header: Path) -> set[str]:
    """Names of functions that a header declares, those of the table of forms among them."""
    command = ["cc", "-std=c11", "-D_GNU_SOURCE", "-E", "-x", "c", header]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"\bemu_\w+", text))


def test_every_global_name_begins_with_emu() -> None:
    for path, at in OBJECTS.items():
        names = [name for kind, name in symbols(at) if kind != "U" and not name.startswith("emu_")]
        assert names == (["main"] if path.name == "ptxrun.c" else []), path


def test_only_the_interface_is_visible() -> None:
    """What emu.h declares can be exported from a shared library, and nothing else.

    GCC hides no function that it compiles for wider vectors too (IFUNC).
    """
    interface = set(re.findall(r"\b(emu_\w+)\(", (EMU / "emu.h").read_text()))
    seen: dict[str, set[str]] = {"DEFAULT": set(), "HIDDEN": set()}
    for path, at in OBJECTS.items():
        table = subprocess.run(["readelf", "-Ws", at], capture_output=True, text=True, check=True).stdout
        for visibility, name in re.findall(r" (?:FUNC|OBJECT) +GLOBAL +(\w+) +\d+ (\w+)$", table, re.M):
            if floor(path) != "tool":
                seen[visibility].add(name)
    assert seen["DEFAULT"] == interface
    assert len(seen["HIDDEN"]) > 200


def test_each_flag_of_an_op_has_one_meaning() -> None:
    text = (EMU / "ptx/program.h").read_text()
    values = re.findall(r"\bFLAG_\w+ = (\d+)", text[text.index("enum op_flags") :])
    assert len(values) == len(set(values)) == 11


def test_only_ptxrun_prints_and_exits() -> None:
    """Every other function writes to the file it is given, and returns what is wrong."""
    own = {"stdout", "stderr", "printf", "puts", "putchar", "perror", "vprintf"}
    own |= {"exit", "_exit", "abort", "err", "errx"}
    for path, at in OBJECTS.items():
        used = {name for kind, name in symbols(at) if kind == "U"} & own
        if path.name == "copies.c":  # a copy of the process ends there
            used -= {"_exit"}
        assert not used or path.name == "ptxrun.c", path
