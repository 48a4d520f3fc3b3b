"""Copies of the checkout to break: each worker has its own below build/mutate, and the working tree stays as it is.

tree = make_tree(root(), root() / "build/mutate/tree.0")
with tree.changed("harness/stats.c", text):
    tree.compile("harness/stats.c")
"""

import contextlib
import math
import os
import resource
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path

from analysis.errors import AnalysisError

LIBRARIES = ("-pthread", "-ldl", "-lm")
PTXRUN = "bin/ptxrun"
DUMPING = "bin/dump/v01"  # writes intermediate values
BUILT = (
    *(
        "build/flags",
        "build/emulator",
        "build/runtime",
        "build/harness",
        "build/san",
        "build/v01",
        "build/device",
        "build/dump/v01",
        "build/dump/device",
    ),
    *("build/library", "build/regs", "logs/ptxas"),
)
BUILT_OBJECTS = ("build/tests", "build/tests-san")
EMBEDDED = "build/flags/library"  # names the folders of the kernels in the library
BUILT_FILES = ("build/tests/libcuda.so.1", EMBEDDED, "build/revision.h", "build/toolkit.h", "bin/v01", PTXRUN, DUMPING)
LINKED = (".venv", "lib")
SANITIZED = "build/tests-san/"
ALONE = {"harness/main.c", "harness/about.c", "emulator/tool/ptxrun.c", "library/version.c"}
SANITIZERS = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")  # as in make/tests.mk
COVERAGE = ("-O0", "--coverage")
WAITING = 20.0  # times its processor time may pass until a process is ended: it waits for what never comes
MEMORY = 16 << 30  # bytes of address space for a test: a mutant that allocates without end fails


@dataclass(frozen=True)
class Tree:
    """One copy and how C is compiled in it."""

    folder: Path
    compiler: tuple[str, ...]
    linker: tuple[str, ...]
    flags: tuple[str, ...] = ()

    @contextlib.contextmanager
    def changed(self, file: str, text: str) -> Iterator[None]:
        """The file holds this text for a while. No byte code of it stays, which a test could take for current."""
        path = self.folder / file
        before = path.read_bytes()
        forget(path)
        path.write_text(text, encoding="utf-8")
        try:
            yield
        finally:
            path.write_bytes(before)
            forget(path)

    def object_of(self, file: str, sanitized: bool = False) -> Path:
        """The object of a C file; harness/about.c is compiled for each version."""
        name = "v01/about.c" if file == "harness/about.c" else f"san/{file}" if sanitized else file
        return self.folder / "build" / Path(name).with_suffix(".o")

    def compile(self, file: str, sanitized: bool = False) -> bool:
        """Whether the C file compiles; its object replaces the one that was there."""
        flags = [*self.compiler, *(SANITIZERS if sanitized else self.flags), "-Werror", "-Ibuild/v01", "-Ibuild"]
        return self.run([*flags, "-c", "-o", str(self.object_of(file, sanitized)), file]) == 0

    def link(self, program: str) -> bool:
        """A version, ptxrun, or a C program of the tests, plain or under the sanitizers, from this copy."""
        sanitized = program.startswith(SANITIZED)
        folder = "build/dump" if program == DUMPING else "build"
        own = [f"{folder}/v01/code.o", f"{folder}/v01/about.o", f"{folder}/device/code.o"]
        if program == PTXRUN:
            own = ["build/emulator/tool/ptxrun.o"]
        else:
            own.append(f"{program}.o" if program.startswith("build/") else "build/harness/main.o")
        if is_of_library(self.folder, program):
            own += [*library_code(self.folder)]
        linked = [str(self.object_of(file, sanitized)) for file in linked_sources(self.folder, program)]
        flags = SANITIZERS if sanitized else self.flags
        return self.run([*self.linker, *flags, "-o", program, *own, *linked, *LIBRARIES]) == 0

    def run(self, command: Sequence[str], seconds: float = 120.0, sanitized: bool = False) -> int | None:
        """The exit status of a command, whose output is dropped; None when it ran past the limit and was ended.

        The seconds are those of a processor: a busy machine ends nothing early.
        """
        process = subprocess.Popen(
            command,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=lambda: limit_resources(seconds, resource.RLIM_INFINITY if sanitized else MEMORY),
        )
        try:
            status = process.wait(WAITING * seconds)
            return None if status == -signal.SIGXCPU else status
        except subprocess.TimeoutExpired:
            return None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def limit_resources(seconds: float, memory: int = MEMORY) -> None:
    """Of this process and each that it starts: processor time, address space, no core files."""
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(seconds), math.ceil(seconds) + 1))
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def forget(path: Path) -> None:
    """Drop the byte code of a Python file."""
    for compiled in Path(cache_from_source(path)).parent.glob(f"{path.stem}.*.pyc"):
        compiled.unlink()


def is_of_library(folder: Path, program: str) -> bool:
    return (folder / f"library/tests/{Path(program).name}.c").exists()


def library_code(folder: Path) -> list[str]:
    """The objects that hold the kernels of the library."""
    folders = (folder / EMBEDDED).read_text(encoding="utf-8").split()
    return [
        "build/library/versions.o",
        *(f"{each}/{name}.o" for each in folders for name in ("library", "library.code")),
    ]


def linked_sources(folder: Path, program: str) -> list[str]:
    """What a program links, as in make/harness.mk: all files but those with a main() or a version's name."""
    own = (*folder.glob("harness/*.c"), *folder.glob("runtime/*.c")) if program != PTXRUN else ()
    own = (*own, *(folder.glob("library/*.c") if is_of_library(folder, program) else ()))
    sources = [*own, *folder.glob("emulator/[!dt]*/*.c"), *folder.glob("emulator/tool/*.c")]
    return sorted({str(path.relative_to(folder)) for path in sources} - ALONE)


def make_tree(source: Path, folder: Path, flags: Sequence[str] = ()) -> Tree:
    """A fresh copy: the files that git knows or does not ignore, and what the tests need of the build."""
    shutil.rmtree(folder, ignore_errors=True)
    listed = subprocess.run(
        ["git", "ls-files", "-coz", "--exclude-standard"], cwd=source, capture_output=True, text=True, check=True
    )
    names = [name for name in listed.stdout.split("\0") if name and (source / name).is_file()]
    names += [str(path.relative_to(source)) for top in BUILT for path in (source / top).rglob("*") if path.is_file()]
    names += [str(path.relative_to(source)) for top in BUILT_OBJECTS for path in (source / top).glob("*.o")]
    for name in [*names, *BUILT_FILES, *library_code(source)]:
        if not (source / name).exists():
            raise AnalysisError(f"{source / name} is not built: run `make mutate`, which builds it")
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source / name, folder / name)
    for name in LINKED:
        if (source / name).exists():
            (folder / name).symlink_to((source / name).resolve())
    commands = [(source / f"build/flags/{name}").read_text(encoding="utf-8").split() for name in ("cc", "ld")]
    return Tree(folder, tuple(commands[0]), tuple(commands[1]), tuple(flags))
