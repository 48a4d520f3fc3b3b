"""Loading libflashladder.so: which file, what is rejected, and that Python's structs are those of the header."""

import ctypes
import re
import subprocess
from pathlib import Path

import pytest
from fake_frameworks import ROOT, Recorded, compiled

HEADER = ROOT / "include/flashladder.h"
STRUCTS = {
    "fl_strides": "Strides", "fl_problem": "Problem", "fl_tensors": "Tensors", "fl_gradients": "Gradients",
    "fl_support": "Support", "fl_kernel_info": "KernelInfo", "fl_description": "Description",
    "fl_device_info": "DeviceInfo",
}  # fmt: skip
CONSTANTS = {
    "FL_ABI": "ABI", "FL_MAX_CONFIG": "MAX_CONFIG", "FL_MAX_TEXT": "MAX_TEXT", "FL_ERROR": "ERROR",
    "FL_INVALID": "INVALID", "FL_UNSUPPORTED": "UNSUPPORTED", "FL_UNAVAILABLE": "UNAVAILABLE", "FL_AUTO": "AUTO",
    "FL_GPU": "GPU", "FL_EMULATOR": "EMULATOR", "FL_DEVICE_MEMORY": "DEVICE_MEMORY", "FL_HOST_MEMORY": "HOST_MEMORY",
    "FL_ANY_LENGTH": "ANY_LENGTH", "FL_CAUSAL": "CAUSAL", "FL_GROUPED": "GROUPED",
}  # fmt: skip


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return Recorded(tmp_path_factory.mktemp("fake"))


def test_structs_and_constants_are_those_of_the_header(package: Recorded, tmp_path: Path) -> None:
    library = package.library
    lines, wanted = [], []
    for c_name, name in STRUCTS.items():
        struct = getattr(library, name)
        lines.append(f"sizeof({c_name})")
        wanted.append(ctypes.sizeof(struct))
        for field, _ in struct._fields_:
            lines += [f"offsetof({c_name}, {field})", f"sizeof((({c_name} *)0)->{field})"]
            wanted += [getattr(struct, field).offset, getattr(struct, field).size]
    lines += CONSTANTS
    wanted += [getattr(library, name) for name in CONSTANTS.values()]
    program = '#include <stdio.h>\n#include "flashladder.h"\nint main(void) {\n'
    program += "".join(f'    printf("%lld\\n", (long long)({line}));\n' for line in lines) + "}\n"
    (tmp_path / "offsets.c").write_text(program)
    command = ["cc", "-std=c11", f"-I{HEADER.parent}", "-o", tmp_path / "offsets", tmp_path / "offsets.c"]
    subprocess.run(command, check=True, timeout=600)
    printed = subprocess.run([tmp_path / "offsets"], capture_output=True, text=True, check=True).stdout.split()
    assert dict(zip(lines, map(int, printed), strict=True)) == dict(zip(lines, wanted, strict=True))
    assert {"fp16": 0, "bf16": 1} == library.DTYPES


def test_every_function_that_is_called_is_in_the_header(package: Recorded) -> None:
    declared = set(re.findall(r"^[a-z_0-9 *]+?\b(fl_\w+)\(", HEADER.read_text(), re.MULTILINE))
    assert set(package.library._FUNCTIONS) <= declared


def test_a_library_that_is_too_old(tmp_path: Path, package: Recorded) -> None:
    old = compiled(tmp_path, "-DFAKE_ABI=1")
    with pytest.raises(
        ImportError, match=rf"{re.escape(str(old))} has ABI 1, and this package needs ABI 10 or newer: build"
    ):
        package.library.load(old)
    package.library.load(compiled(tmp_path / "new", "-DFAKE_ABI=10"))  # the ABI grows, it does not change


def test_files_that_are_no_library(tmp_path: Path, package: Recorded) -> None:
    text = tmp_path / "libflashladder.so"
    text.write_text("no library" * 100)
    with pytest.raises(ImportError, match=r"libflashladder.so cannot be loaded: .*invalid ELF header"):
        package.library.load(text)
    with pytest.raises(ImportError, match=r"is not a libflashladder.so for this package: .*fl_abi"):
        package.library.load(Path(_other_library()))


def _other_library() -> str:
    import _ctypes

    return str(_ctypes.__file__)


def test_where_the_library_is_looked_for(tmp_path: Path, package: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    """FLASHLADDER_LIBRARY, next to the package, in lib/ of the checkout; else all three are named."""
    module = tmp_path / "python/flashladder/_library.py"
    module.parent.mkdir(parents=True)
    monkeypatch.setattr(package.library, "__file__", str(module))
    monkeypatch.delenv("FLASHLADDER_LIBRARY", raising=False)
    with pytest.raises(
        ImportError,
        match=r"was found neither at .*python/flashladder/.* nor at .*/lib/.*: build it with `make lib` in a checkout",
    ):
        package.library.find()
    in_checkout, in_package = tmp_path / "lib/libflashladder.so", module.with_name("libflashladder.so")
    in_checkout.parent.mkdir()
    in_checkout.touch()
    assert package.library.find() == in_checkout
    in_package.touch()
    assert package.library.find() == in_package
    named = tmp_path / "another.so"
    monkeypatch.setenv("FLASHLADDER_LIBRARY", str(named))
    with pytest.raises(ImportError, match=r"FLASHLADDER_LIBRARY names .*another.so, which is not a file: unset it"):
        package.library.find()
    named.touch()
    assert package.library.find() == named
