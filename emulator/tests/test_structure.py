"""The structure of the emulator: includes go down its folders.

The floors are emu.h, ptx/ (text to program), machine/ (program to effects), check/ (what it finds), explore/ (which
interleavings run), cuda/ (calls nvcc) and tool/ (ptxrun). The machine includes one header of a higher floor: the events
that it tells the checks (check/events.h).
"""

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest
from support.emulation import ROOT

EMU = ROOT / "emulator"
FLOORS = ["", "ptx", "machine", "check", "explore", "cuda", "tool"]
EVENTS = EMU / "check/events.h"  # all that machine/ knows of check/
OPEN = [EMU / "machine/numbers.h", EMU / "ptx/errors.h"]  # 16-bit numbers exist once, and how errors are filled
FILES = sorted(EMU.glob("emu.h")) + sorted(path for floor in FLOORS[1:] for path in (EMU / floor).glob("*.[ch]"))
OBJECTS = {path: ROOT / "build" / path.relative_to(ROOT).with_suffix(".o") for path in FILES if path.suffix == ".c"}


def floor(path: Path) -> str:
    return path.parent.relative_to(EMU).as_posix().removeprefix(".")


def includes(path: Path) -> list[Path]:
    """The files that a file includes by name in quotes."""
    return [(path.parent / name).resolve() for name in re.findall(r'^\s*#include "([^"]+)"', path.read_text(), re.M)]


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


def test_a_source_includes_its_own_header_first() -> None:
    """So that each header is seen to compile alone."""
    for path in FILES:
        header = path.with_suffix(".h")
        if path.suffix == ".c" and header.exists():
            assert includes(path)[0] == header, path


@cache
def symbols(path: Path) -> list[tuple[str, str]]:
    """Global symbols of an object: kind as nm writes it, and name; without resolvers of functions for wider vectors."""
    done = subprocess.run(["nm", "-g", path], capture_output=True, text=True, check=True)
    each = (line.split()[-2:] for line in done.stdout.splitlines())
    return [(kind, name) for kind, name in each if "." not in name]


def test_all_objects_are_there() -> None:
    missing = [str(each) for each in OBJECTS.values() if not each.exists()]
    assert not missing, "run `make bin/ptxrun`"


def test_every_global_name_begins_with_emu() -> None:
    for path, at in OBJECTS.items():
        names = [name for kind, name in symbols(at) if kind != "U" and not name.startswith("emu_")]
        assert names == (["main"] if path.name == "ptxrun.c" else []), path


def test_only_the_interface_is_visible() -> None:
    """A shared library can export exactly the declarations of emu.h.

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
    assert len(values) == len(set(values)) == 12


def test_only_ptxrun_prints_and_exits() -> None:
    """Every other function writes to the file it is given, and returns what is wrong."""
    own = {"stdout", "stderr", "printf", "puts", "putchar", "perror", "vprintf"}
    own |= {"exit", "_exit", "abort", "err", "errx"}
    for path, at in OBJECTS.items():
        used = {name for kind, name in symbols(at) if kind == "U"} & own
        if path.name == "copies.c":  # a copy of the process ends there
            used -= {"_exit"}
        assert not used or path.name == "ptxrun.c", path
