"""Headers of emulator, runtime and harness: each compiles alone, and no function is public without a user."""

import re
import subprocess
from collections import Counter, defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("emulator", "runtime", "harness")
HEADERS = sorted(
    path
    for room in (*ROOMS, "common/tests")
    for path in (ROOT / room).rglob("*.h")
    if path.name not in ("forms_table.h", "functions_table.h", "refused_table.h", "mma_rows.h")  # for includers only
    and path.parent not in (ROOT / "emulator/wasm/include", ROOT / "runtime/windows")  # instead of the C library's
)
NOT_IN_VERSIONS = {"tests", "bench", "peers", "device", "wasm", "browser", "windows", "cudart", "judge", "suite"}
SOURCES = [
    path
    for room in ROOMS
    for path in (ROOT / room).rglob("*.c")
    if not NOT_IN_VERSIONS & {*path.relative_to(ROOT).parts}
]
DRIVER = ROOT / "emulator/driver"  # a shared object of its own, whose functions are those of CUDA's driver
CUDART = ROOT / "emulator/cudart"  # likewise, those of CUDA's runtime
PAGE = ROOT / "emulator/wasm"  # likewise, whose functions a page calls
BUILT = {
    path: ROOT / "build" / path.relative_to(ROOT).with_suffix(".o")
    for path in SOURCES
    if path.name != "about.c" and path.parent != DRIVER
}
BUILT[ROOT / "harness/about.c"] = ROOT / "build/v01/about.o"  # compiled for each version


def compile_text(text: str) -> str:
    """Return the compiler's messages about a text; "" if it is correct."""
    command = ["cc", "-x", "c", "-std=c11", "-D_GNU_SOURCE", f"-I{ROOT}", f"-isystem{ROOT}/.venv/toolkit/include"]
    command += ["-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=600).stderr


def name(header: Path) -> str:
    return header.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("header", HEADERS, ids=name)
def test_a_header_compiles_alone(header: Path) -> None:
    assert compile_text(f'#include "{name(header)}"\n') == ""


def symbols(path: Path) -> list[tuple[str, str]]:
    """Global symbols of an object, kind and name; resolvers of functions for wider vectors left out."""
    lines = subprocess.run(["nm", "-g", path], capture_output=True, text=True, check=True).stdout.splitlines()
    return [(line.split()[-2], line.split()[-1]) for line in lines if "." not in line.split()[-1]]


@pytest.fixture(scope="module")
def table() -> dict[str, dict[str, set[Path]]]:
    """By name: the sources whose objects define it, and those that use it."""
    assert not [str(path) for path in BUILT.values() if not path.exists()], "run `make v01 bin/ptxrun`"
    found: dict[str, dict[str, set[Path]]] = defaultdict(lambda: {"defined": set(), "used": set()})
    for source, at in BUILT.items():
        for kind, symbol in symbols(at):
            found[symbol]["used" if kind == "U" else "defined"].add(source)
    return found


def words(*paths: Path) -> Counter[str]:
    """Count each word in some files."""
    return Counter(word for path in paths for word in re.findall(r"\w+", path.read_text()))


def test_what_is_not_static_is_used_elsewhere(table: dict[str, dict[str, set[Path]]]) -> None:
    """By another source, a row of the emulator's table of forms, the shared objects, the page, a C test of what its own
    source uses, or a test of what emu.h offers."""
    folders = (ROOT / "library", ROOT / "analysis/ladder", DRIVER, CUDART, PAGE)
    users = [path for folder in folders for path in folder.glob("*.c")]
    called = words(ROOT / "emulator/ptx/forms_table.h", *users)
    tests = words(*(path for room in ROOMS for path in (ROOT / room).rglob("tests/*.[ch]")))
    offered = (
        words(ROOT / "emulator/emu.h").keys()
        & words(*(path for room in ROOMS for path in (ROOT / room).rglob("tests/test_*.py"))).keys()
    )
    in_source = {source: words(source) for uses in table.values() for source in uses["defined"]}
    lonely = set()
    for symbol, uses in table.items():
        for source in uses["defined"]:
            tested = symbol in offered or (symbol in tests and in_source[source][symbol] > 1)
            if symbol != "main" and symbol not in called and not tested and not uses["used"] - {source}:
                lonely.add(f"{source.relative_to(ROOT)}: {symbol}")
    assert not lonely, "make them static, or delete them"


def test_64_bit_numbers_are_printed_one_way() -> None:
    """By PRId64 and PRIu64, or by j of a format that is made up at run time: never by a cast to long long."""
    others = [
        str(path) for path in SOURCES if re.search(r"%[-0*.\d]*ll?[diux]|\((unsigned )?long long\)", path.read_text())
    ]
    assert not others
