"""The package flashladder-tools as a wheel: `make wheel-tools`, which builds the programs that it packs.

The package contains the modules of analysis/ that read any user's files, at the same paths as in a checkout, with
the records that they read, and the emulator. Equal sources make equal wheels, byte for byte.
"""

import hashlib
import os
import runpy
import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parents[2]
WHEEL = runpy.run_path(str(ROOT / "setup.py"), run_name="wheel")  # that of the package flashladder
BUILD = ROOT / "build/wheel-tools"
PACKED = (
    *("analysis/*.py", "analysis/ladder/*.py", "analysis/machine_code/*.py", "analysis/measure/*.py"),
    *("analysis/emulate/__init__.py", "analysis/emulate/lines.py"),
    *("analysis/inspect/__init__.py", "analysis/inspect/code_map.py"),
    *("analysis/judge/*.py", "analysis/judge/inside/*.py", "analysis/judge/inside/*.h", "analysis/judge/problems/*.py"),
    *("common/*.h", "logs/bench/wgmma.*.json", "regs/loops.csv", "regs/traffic.csv"),
    *("bin/ptxrun", "bin/emulated-gpu", "bin/judge-replay", "bin/judge-jail"),
    *("lib/emulated/*", "lib/libflconfig.so"),
)
EMULATOR = ("emu.py", "emu.h", "libflemu.so")  # of lib/, next to the package's own modules


def packed() -> dict[str, Path]:
    """The files of the package that are not its own modules, by their paths in it."""
    found = {str(path.relative_to(ROOT)): path for pattern in PACKED for path in sorted(ROOT.glob(pattern))}
    found |= {name: ROOT / "lib" / name for name in EMULATOR}
    libraries = ("emulated/libcuda.so.1", "emulated/libcudart.so.13", "libflconfig.so")
    programs = ("ptxrun", "emulated-gpu", "judge-replay", "judge-jail")
    built = (*(f"bin/{name}" for name in programs), *(f"lib/{name}" for name in libraries), *EMULATOR)
    missing = [name for name in built if name not in found or not found[name].is_file()]
    if missing:
        raise SystemExit(f"{', '.join(missing)} not built: run `make wheel-tools`")
    return found


def programs() -> bytes:
    """All machine code, to ask for what it imports."""
    return b"".join(path.read_bytes() for name, path in packed().items() if path.read_bytes()[:4] == b"\x7fELF")


def version() -> str:
    """The release, and a hash of what is packed: pip would keep an installed package of the same version."""
    found = hashlib.sha256()
    own = {path.name: path for path in sorted((ROOT / "python/tools").rglob("*.*")) if path.suffix in (".py", ".toml")}
    for name, path in (*packed().items(), *own.items()):
        found.update(name.encode() + b"\0" + path.read_bytes())
    return f"{WHEEL['release']()}+sha{found.hexdigest()[:12]}"


class BuildWithEmulator(build_py):
    """Copies the other files next to the modules."""

    def run(self) -> None:
        super().run()
        for name, path in packed().items():
            to = Path(self.build_lib) / "flashladder_tools" / name
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, to)
        licence = Path(self.build_lib) / "flashladder_tools/LICENSE"
        shutil.copy(ROOT / "LICENSE", licence)


class WheelForAnyPython(bdist_wheel):
    """The machine code knows nothing of Python: one wheel per platform."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", WHEEL["platform_tag"](programs())


if __name__ == "__main__":
    os.environ.setdefault("SOURCE_DATE_EPOCH", "315532800")  # of the files in the wheel: 1980, where zip's time begins
    BUILD.mkdir(parents=True, exist_ok=True)
    setup(
        version=version(),
        packages=["flashladder_tools"],
        distclass=WHEEL["WithMachineCode"],
        cmdclass={"build_py": BuildWithEmulator, "bdist_wheel": WheelForAnyPython},
        options={"build": {"build_base": str(BUILD)}, "egg_info": {"egg_base": str(BUILD)}},
    )
