"""The package flashladder with libflashladder.so in it, as a wheel for any Python 3: `make wheel`, or `pip install .`.

`make lib GPUS=all` builds the library, and FOR=aarch64 or FOR=windows builds it for another machine. The wheel's tag
names the oldest glibc that has every symbol that the library imports. The same sources produce the same wheel, byte for
byte.
"""

import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
FOR = os.environ.get("FOR", "")
LIBRARY = ROOT / "lib" / FOR / ("flashladder.dll" if FOR == "windows" else "libflashladder.so")
MACHINES = {62: "x86_64", 183: "aarch64"}  # by e_machine of its ELF header
BUILD = ROOT / "build/wheel"  # of setuptools, which would take build/ itself


def release() -> str:
    """FL_RELEASE of the header: the version of the library and of the package."""
    found = re.search(r'#define FL_RELEASE "([^"]+)"', (ROOT / "include/flashladder.h").read_text(encoding="utf-8"))
    if not found:
        raise SystemExit("include/flashladder.h has no FL_RELEASE")
    return found[1]


def version() -> str:
    """The release, and a hash of what is packed: pip would keep an installed package of the same version."""
    packed = hashlib.sha256()
    for path in (LIBRARY, *sorted((ROOT / "python/flashladder").glob("*.py"))):
        packed.update(path.read_bytes())
    return f"{release()}+sha{packed.hexdigest()[:12]}"


def platform_tag(library: bytes) -> str:
    """manylinux_2_X_MACHINE, 2.X the newest glibc version among the symbols that a library imports; or Windows."""
    if library.startswith(b"MZ"):
        return "win_amd64"
    machine = MACHINES[int.from_bytes(library[18:20], "little")]
    versions = [(int(major), int(minor)) for major, minor in re.findall(rb"\0GLIBC_(\d+)\.(\d+)", library)]
    if not versions:
        raise SystemExit(f"{LIBRARY.name} names no version of glibc: it is no library for Linux")
    return "manylinux_{}_{}_{}".format(*max(versions), machine)


def make_library() -> None:
    """`make lib`, and the reason where that is not possible."""
    if not (ROOT / "Makefile").is_file():
        raise SystemExit("there is no Makefile: build from a checkout, or install a wheel")
    if not shutil.which("make"):
        raise SystemExit("make is missing: docs/building.md says what else a build needs")
    if subprocess.run(["make", "--no-print-directory", "lib", "GPUS=all"], cwd=ROOT, check=False).returncode:
        raise SystemExit("`make lib` failed: see its messages above; docs/building.md lists what a build needs")


class BuildWithLibrary(build_py):
    """Copies the library next to the modules."""

    def run(self) -> None:
        super().run()
        shutil.copy2(LIBRARY, Path(self.build_lib) / "flashladder" / LIBRARY.name)


class WithMachineCode(Distribution):
    """The package is stored with those of one platform."""

    def has_ext_modules(self) -> bool:
        return True


class WheelForAnyPython(bdist_wheel):
    """The machine code knows nothing of Python: one wheel per platform."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", platform_tag(LIBRARY.read_bytes())


if __name__ == "__main__":
    os.environ.setdefault("SOURCE_DATE_EPOCH", "315532800")  # of the files in the wheel: 1980, where zip's time begins
    BUILD.mkdir(parents=True, exist_ok=True)
    make_library()
    setup(
        version=version(),
        distclass=WithMachineCode,
        cmdclass={"build_py": BuildWithLibrary, "bdist_wheel": WheelForAnyPython},
        options={"build": {"build_base": str(BUILD)}, "egg_info": {"egg_base": str(BUILD)}},
    )
