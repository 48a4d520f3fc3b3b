"""Cubins, PTX and executables that the tests of the machine-code tools read, compiled once from fixtures/code.

    path = cubin("attention.cu", "sm_80", "-DPEELED")

Outputs are kept in build/tests-analysis under a hash of source and options, so that a second run compiles nothing;
what nvdisasm prints, in every test of this folder, under a hash of the cubin and options (conftest.py).
"""

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from analysis.files import root
from analysis.ladder.headers import load_all
from analysis.machine_code import toolkit
from analysis.machine_code.cubin import LDL, NOP, OPCODE_MASK, STL, Cubin
from analysis.machine_code.sass import Listing, parse_listing, with_control
from analysis.machine_code.toolkit import find_tool

SOURCES = root() / "analysis/tests/fixtures/code"
KEPT = root() / "build/tests-analysis"
NVCC_FLAGS = ("-std=c++20", "-O3", "--use_fast_math", "-lineinfo")
PTXAS_FLAGS = ("-O3", "-v", "--generate-line-info")
ARCHS = ("sm_80", "sm_90", "sm_90a", "sm_100a", "sm_120")
FOR_ONE_ARCH = (
    "pipes.cu",
    "pipeline.cu",
    "tcgen05.cu",
    "warp_product.cu",
    "contents.cu",
)  # instructions that other architectures do not have


@cache
def _folder(*key: str) -> Path:
    """A folder for what is made with the toolkit of these words."""
    digest = hashlib.sha256()
    for part in (*key, str(find_tool("ptxas").resolve())):
        digest.update(part.encode() + b"\0")
    return KEPT / digest.hexdigest()[:16]


@cache
def _headers() -> str:
    digest = hashlib.sha256()
    for header in ("common/abi.h", "common/config.h", "common/config_fields.h"):
        digest.update((root() / header).read_bytes())
    return digest.hexdigest()


def _run(tool: str, *arguments: str) -> str:
    done = subprocess.run([str(find_tool(tool)), *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{tool} {' '.join(arguments)}: {done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def _source(name: str) -> Path:
    return SOURCES / name


@cache
def ptx(name: str, arch: str = "sm_80", *defines: str, text: str = "") -> Path:
    """The PTX of a source file, or of `text` under that name: as with the ladder, one for many architectures."""
    if name not in FOR_ONE_ARCH and arch != "sm_75":
        arch = "sm_80"
    body = text or _source(name).read_text(encoding="utf-8")
    folder = _folder("ptx", _headers(), name, arch, *defines, body)
    target = folder / f"{Path(name).stem}.ptx"
    if not target.exists():
        with tempfile.TemporaryDirectory() as scratch:
            source = Path(scratch) / name
            source.write_text(body, encoding="utf-8")
            out = Path(scratch) / "out.ptx"
            virtual = arch.replace("sm_", "compute_")
            _run("nvcc", *NVCC_FLAGS, f"-arch={virtual}", f"-I{root()}", *defines, "-ptx", str(source), "-o", str(out))
            _keep(out, target)
    return target


@cache
def cubin(name: str, arch: str = "sm_80", *defines: str, text: str = "") -> Path:
    """A cubin; `log_of` gives what ptxas -v said."""
    source = ptx(name, arch, *defines, text=text)
    target = source.parent / f"{arch}.cubin"
    if not target.exists():
        _assemble(source, arch, target)
    return target


def _assemble(source: Path, arch: str, target: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        out, written = Path(scratch) / "out.cubin", Path(scratch) / "log"
        log = _run("ptxas", *PTXAS_FLAGS, f"-arch={arch}", str(source), "-o", str(out))
        written.write_text(log, encoding="utf-8")
        _keep(written, target.with_suffix(".log"))
        _keep(out, target)


@cache
def assembled(name: str, text: str, arch: str = "sm_90a") -> Path:
    """A cubin of PTX text, and its log as for cubin()."""
    target = _folder("assembled with log", name, arch, text) / f"{arch}.cubin"
    if not target.exists():
        with tempfile.TemporaryDirectory() as scratch:
            source = Path(scratch) / f"{name}.ptx"
            source.write_text(text, encoding="utf-8")
            _assemble(source, arch, target)
    return target


@cache
def without_lines(name: str, arch: str) -> Path:
    """The cubin of the same PTX without its line numbers."""
    text = ptx(name, arch).read_text(encoding="utf-8")
    text = re.sub(r"^\s*\.section\s+\.debug_str.*?^\s*}", "", text, flags=re.DOTALL | re.MULTILINE)
    return made_by_ptxas(re.sub(r"^\s*\.(loc|file)\b.*$", "", text, flags=re.MULTILINE), arch, "-O3")


@cache
def linked_later(name: str, arch: str) -> Path:
    """A relocatable cubin."""
    return made_by_ptxas(ptx(name, arch).read_text(encoding="utf-8"), arch, "-O3", "-c")


def made_by_ptxas(text: str, arch: str, *options: str) -> Path:
    target = _folder("assembled", text, arch, *options) / f"{arch}.cubin"
    if not target.exists():
        with tempfile.TemporaryDirectory() as scratch:
            source, out = Path(scratch) / "in.ptx", Path(scratch) / "out.cubin"
            source.write_text(text, encoding="utf-8")
            _run("ptxas", *options, f"-arch={arch}", str(source), "-o", str(out))
            _keep(out, target)
    return target


def linked(path: Path, arch: str) -> Path:
    """The cubin that nvlink makes of a relocatable one."""
    target = path.with_suffix(".linked.cubin")
    if not target.exists():
        with tempfile.TemporaryDirectory() as scratch:
            out = Path(scratch) / "out.cubin"
            _run("nvlink", f"-arch={arch}", str(path), "-o", str(out))
            _keep(out, target)
    return target


def log_of(path: Path) -> str:
    return path.with_suffix(".log").read_text(encoding="utf-8")


@cache
def fatbinary(name: str, form: str) -> Path:
    """A .fatbin, or an object file with one inside."""
    folder = _folder("fat", _headers(), name, form, _source(name).read_text(encoding="utf-8"))
    target = folder / f"{Path(name).stem}.{form}"
    if not target.exists():
        with tempfile.TemporaryDirectory() as scratch:
            out = Path(scratch) / f"out.{form}"
            option = {"fatbin": "-fatbin", "o": "-c"}[form]
            codes = ("-gencode=arch=compute_80,code=sm_80", "-gencode=arch=compute_90,code=[sm_90,compute_90]")
            _run("nvcc", *NVCC_FLAGS, f"-I{root()}", *codes, option, str(_source(name)), "-o", str(out))
            _keep(out, target)
    return target


def _keep(made: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent)
    os.close(handle)
    shutil.copyfile(made, name)
    Path(name).replace(target)


Execute = Callable[[Sequence[str], Path | None], subprocess.CompletedProcess[str]]


def keeping(execute: Execute) -> Execute:
    """Runs a tool, but nvdisasm once for each cubin and options: it needs a third of a second to start."""

    def kept(command: Sequence[str], folder: Path | None) -> subprocess.CompletedProcess[str]:
        tool, *options, name = command
        path = (folder or Path()) / name
        if Path(tool).name != "nvdisasm" or not path.is_file():
            return execute(command, folder)
        target = _folder(tool, *options, hashlib.sha256(path.read_bytes()).hexdigest()) / "listing"
        if not target.exists():
            done = execute(command, folder)
            if done.returncode != 0 or done.stderr:
                return done
            with tempfile.TemporaryDirectory() as scratch:
                out = Path(scratch) / "out"
                out.write_text(done.stdout, encoding="utf-8")
                _keep(out, target)
        return subprocess.CompletedProcess(command, 0, target.read_text(encoding="utf-8"), "")

    return kept


def disassembly(path: Path, *options: str) -> str:
    """The disassembly of a cubin by nvdisasm."""
    return toolkit.run("nvdisasm", [*options, str(path)])


def read_listings(path: Path) -> dict[str, Listing]:
    """The listing of every kernel of a cubin by symbol, from one run of nvdisasm."""
    read = Cubin.read(path)
    by_symbol = {each.symbol: each for each in parse_listing(disassembly(path, "-c"), path.name)}
    return {
        kernel.symbol: with_control(replace(by_symbol[kernel.symbol], arch=read.arch), kernel)
        for kernel in read.entries
    }


@cache
def listings(path: Path) -> dict[str, Listing]:
    """The disassembly of a small cubin, cached for the next test."""
    return read_listings(path)


def listing(path: Path, start: str = "_Z") -> Listing:
    """The listing of the only kernel, or of the one whose symbol begins like this."""
    return next(each for symbol, each in sorted(listings(path).items(), reverse=True) if symbol.startswith(start))


def misread_opcodes(path: Path, by_symbol: dict[str, Listing]) -> list[str]:
    """Opcodes decoded from a cubin's bytes that differ from nvdisasm's."""
    wrong = []
    kernels = {kernel.symbol: kernel for kernel in Cubin.read(path).entries}
    for symbol, listing in by_symbol.items():
        kernel = kernels[symbol]
        words = {16 * index: word for index, word in enumerate(kernel.words)}
        for at in listing.instructions:
            opcode = words[at.address] & OPCODE_MASK
            for name, number in (("LDL", LDL), ("STL", STL), ("NOP", NOP)):
                if (at.base == name) != (opcode == number):
                    wrong.append(f"{at.address:04x} {at.text}: {opcode:#x}")
        for name, counted in (("LDL", kernel.ldl), ("STL", kernel.stl)):
            if counted != sum(at.base == name for at in listing.instructions):
                wrong.append(f"{kernel.symbol}: {counted} {name}")
    return wrong


@cache
def landed() -> list[tuple[str, str]]:
    """(version, architecture) of every kernel source and the architectures that it is built for by default."""
    return [(name, arch) for name, version in load_all(root()).items() for arch in version.archs(("sm_80", "sm_90"))]


def built(version: str, arch: str) -> Path:
    """The cubin of a version; the test is skipped where it is not built."""
    path = root() / "build" / version / f"{arch}.cubin"
    if not path.exists():
        pytest.skip(f"{version} is not built for {arch}: run `make {version}`")
    return path
