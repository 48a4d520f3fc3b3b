"""Cubins: what is read from the bytes agrees with ptxas and nvdisasm, and damage is refused by name."""

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.errors import AnalysisError
from analysis.machine_code.cubin import Cubin
from analysis.tests.support.compiled import ARCHS, cubin, linked, listings, log_of, made_by_ptxas, misread_opcodes
from analysis.tests.support.kinds import some_in_check


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("source", ["attention.cu", "plain.cu"])
def test_figures_are_those_of_ptxas(source: str, arch: str) -> None:
    path = cubin(source, arch)
    read = Cubin.read(path)
    assert read.arch == arch
    log = log_of(path)
    said = {}
    for name, stack, registers in re.findall(
        r"Function properties for (\S+)\n\s+(\d+) bytes stack frame.*\nptxas info\s+: Used (\d+) registers", log
    ):
        said[name] = (int(registers), int(stack))
    assert said == {kernel.symbol: (kernel.registers, kernel.stack) for kernel in read.entries}
    static = [int(n or 0) for n in re.findall(r"Used \d+ registers(?:.*?, (\d+) bytes smem)?", log)]
    assert sorted(static) == sorted(kernel.static_smem for kernel in read.entries)
    barriers = [int(n) for n in re.findall(r"used (\d+) barriers", log)]
    assert sorted(barriers) == sorted(kernel.barriers or 0 for kernel in read.entries)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100", "sm_120"])
@pytest.mark.parametrize(
    "way", [("-O3",), ("-g", "-O0"), ("-O3", "-c"), ("-g", "-O0", "-c"), ("-O3", "-c", "nvlink")], ids=" ".join
)
def test_static_shared_memory_excludes_what_the_driver_reserves(way: tuple[str, ...], arch: str) -> None:
    """Only a file that is linked includes those 1,024 bytes, and ptxas marks them in two ways."""
    text = """.version 8.6
.target sm_80
.address_size 64
.visible .entry kernel(.param .u64 out)
{
.shared .align 4 .b8 tile[516];
.reg .b32 %r<3>;
.reg .b64 %p;
ld.param.u64 %p, [out];
mov.u32 %r0, %tid.x;
mov.u32 %r1, tile;
mad.lo.u32 %r1, %r0, 4, %r1;
st.shared.u32 [%r1], %r0;
bar.sync 0;
ld.shared.u32 %r2, [tile+512];
st.global.u32 [%p], %r2;
ret;
}
"""
    path = made_by_ptxas(text, arch, *[option for option in way if option != "nvlink"])
    (kernel,) = Cubin.read(linked(path, arch) if "nvlink" in way else path).entries
    assert kernel.static_smem == 516


@pytest.mark.parametrize("arch", some_in_check(ARCHS, ("sm_80", "sm_90a", "sm_120")))
@pytest.mark.parametrize("source", ["attention.cu", "plain.cu"])
def test_decoded_opcodes_of_test_kernels(source: str, arch: str) -> None:
    """LDL, STL and NOP are told apart by bytes as nvdisasm does by text, for every instruction."""
    path = cubin(source, arch)
    assert misread_opcodes(path, listings(path)) == []


def test_local_memory_is_counted() -> None:
    by_name = {kernel.symbol: kernel for kernel in Cubin.read(cubin("plain.cu")).kernels}
    array = by_name["_Z11local_arrayPii"]
    assert (array.ldl, array.stl, array.stack) == (2, 64, 1024)
    assert (by_name["_Z3sumPfi"].ldl, by_name["_Z3sumPfi"].stl) == (0, 0)


def only_hash(path: Path) -> str:
    (kernel,) = Cubin.read(path).entries
    return kernel.code_hash


def test_code_hash_ignores_names_and_lines() -> None:
    source = (Path(__file__).parents[1] / "fixtures/code/attention.cu").read_text(encoding="utf-8")
    plain = only_hash(cubin("attention.cu", "sm_80", "-DONE"))
    assert only_hash(cubin("attention.cu", "sm_80", "-DONE", "-DNAME=other")) == plain
    shifted = "/* two more\n lines */\n" + source
    assert only_hash(cubin("attention.cu", "sm_80", "-DONE", text=shifted)) == plain
    changed = source.replace("base + 4096", "base + 8192")
    assert only_hash(cubin("attention.cu", "sm_80", "-DONE", text=changed)) != plain


def test_not_a_cubin() -> None:
    with pytest.raises(AnalysisError, match="cubin: not a cubin: no ELF header"):
        Cubin(b"PTX")
    host = bytearray(cubin("attention.cu").read_bytes())
    host[18:20] = (62).to_bytes(2, "little")
    with pytest.raises(AnalysisError, match="ELF machine 62, a cubin has 190"):
        Cubin(bytes(host), "cubin")
    with pytest.raises(AnalysisError, match="there: No such file"):
        Cubin.read(Path("there"))


@given(st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), min_size=1, max_size=6))
@settings(max_examples=100)
def test_damaged_cubins_never_crash(changes: list[tuple[int, int]]) -> None:
    damaged = bytearray(cubin("attention.cu").read_bytes())
    for offset, value in changes:
        damaged[offset % len(damaged)] = value
    try:
        kernels = Cubin(bytes(damaged), "damaged").kernels
        assert all(len(kernel.code_hash) == 16 for kernel in kernels)
    except AnalysisError as error:
        assert str(error).startswith("damaged: ")
