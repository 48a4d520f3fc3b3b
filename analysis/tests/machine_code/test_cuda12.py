"""Cubins of CUDA 12, of an older ELF than the pinned toolkit writes. `make check-long` fetches its ptxas."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from analysis.__main__ import main
from analysis.files import root
from analysis.machine_code.control import inconsistencies
from analysis.machine_code.cubin import Cubin
from analysis.machine_code.regions import Graph
from analysis.machine_code.sass import Listing, disassemble_all
from analysis.tests.support.compiled import misread_opcodes, ptx

pytestmark = pytest.mark.long
ARCHS = ("sm_80", "sm_90", "sm_90a")
SOURCES = ("attention.cu", "jumps.cu", "pipes.cu", "plain.cu")


def old_ptxas() -> Path:
    folder = root() / "build/cuda12"
    found = folder / "nvidia/cuda_nvcc/bin/ptxas"
    if not found.exists():
        pytest.skip(f"no ptxas of CUDA 12 in {folder}: `make check-long` fetches it")
    return found


def compiled(source: str, arch: str, folder: Path) -> tuple[Path, str]:
    """A cubin from the PTX of the pinned nvcc, and what ptxas -v said."""
    text = ptx(source).read_text(encoding="utf-8")
    older = folder / "older.ptx"
    older.write_text(re.sub(r"^\.version .*$", ".version 8.4", text, flags=re.MULTILINE), encoding="utf-8")
    out = folder / f"{arch}.cubin"
    command = [str(old_ptxas()), "-v", f"-arch={arch}", str(older), "-o", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return out, done.stderr


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("source", SOURCES)
def test_cubins_of_cuda_12(source: str, arch: str, tmp_path: Path) -> None:
    path, log = compiled(source, arch, tmp_path)
    read = Cubin.read(path)
    assert (read.arch, read.abi) == (arch, 7)
    said = dict(re.findall(r"Function properties for (\S+)\n.*\nptxas info\s+: Used (\d+) registers", log))
    assert {kernel.symbol: str(kernel.registers) for kernel in read.entries} == said
    listings = {}
    for _, kernel, listing in disassemble_all([(read, path, read.entries)]):
        assert isinstance(listing, Listing), listing.reason
        listings[kernel.symbol] = listing
    assert misread_opcodes(path, listings) == []
    for listing in listings.values():
        assert listing.unknown == {}
        assert listing.lost == ()
        assert inconsistencies(Graph(listing)) == []
    if source == "jumps.cu":
        (outer,) = Graph(next(iter(listings.values()))).nest
        assert len(outer.children) == 1


@pytest.mark.parametrize("arch", ARCHS)
def test_live_registers_of_cuda_12(arch: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """nvdisasm does not analyze these cubins. The allocation is no smaller than what is live at a time."""
    path, _ = compiled("attention.cu", arch, tmp_path)
    kernel = next(each for each in Cubin.read(path).entries if "L5dtype5E" in each.symbol)
    assert main(["live", str(path), "--arch", arch, "--config", kernel.symbol, "--json"]) == 0
    said = capsys.readouterr()
    assert "nvdisasm does not analyze the data flow of this cubin" in said.err
    assert kernel.registers is not None and 16 <= json.loads(said.out)["most"] <= kernel.registers
