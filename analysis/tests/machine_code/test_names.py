"""Names of kernels: demangled, with the library next to them; chosen by a pattern; unique in file names."""

import json
import re
import shutil
from pathlib import Path

import pytest

from analysis.__main__ import main
from analysis.errors import NO_DEVICE_CODE
from analysis.machine_code import names
from analysis.machine_code.cubin import Cubin
from analysis.machine_code.names import FILE_PART, names_of
from analysis.machine_code.ptxas_log import demangled_names
from analysis.tests.support.compiled import cubin, fatbinary

# Kernels as libraries have them: many instances of one template, whose names differ at the end alone.
FOREIGN = """
struct Flash_fwd_kernel_traits {{}};
template <typename T, int a, int b, bool c, bool d, bool e> __global__ void flash_fwd_kernel(T *out) {{ *out = a + b; }}
template <typename T> __global__ void cutlass_gemm(T *out) {{ *out = {0}; }}
template __global__ void flash_fwd_kernel<int, 64, 64, false, false, false>(int *);
template __global__ void flash_fwd_kernel<int, 64, 64, false, false, true>(int *);
template __global__ void cutlass_gemm<int>(int *);
extern "C" __global__ void plain(int *out) {{ *out = 3; }}
"""
CASES = (
    ("_Z6triplePi", "triple(int*)"),
    ("plain", "plain"),
    ("_ZN12_GLOBAL__N_11kEv", "(anonymous namespace)::k()"),
    ("_Zno_name", "_Zno_name"),
    ("", ""),
)


def foreign(number: int = 1) -> Path:
    return cubin(f"foreign{number}.cu", text=FOREIGN.format(number))


def library_of_two(folder: Path) -> Path:
    """A file of two cubins for one architecture, which share three kernels by name."""
    path = folder / "two.so"
    data = b"\x7fELF" + bytes(60) + foreign(1).read_bytes() + bytes(8) + foreign(2).read_bytes()
    path.write_bytes(data)
    return path


def test_names_are_demangled_in_one_run(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []

    def counted(text: str) -> dict[str, str]:
        runs.append(text)
        return demangled_names(text)

    monkeypatch.setattr(names, "demangled_names", counted)
    assert names_of(symbol for symbol, _ in CASES) == dict(CASES)
    assert len(runs) == 1
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert names_of(symbol for symbol, _ in CASES) == {symbol: symbol for symbol, _ in CASES}


def rows(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, str | int]]:
    assert main([*arguments, "--json"]) == 0
    found: list[dict[str, str | int]] = json.loads(capsys.readouterr().out)["rows"]
    return found


def test_list_has_every_image_and_the_index_that_config_takes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(library_of_two(tmp_path))
    listed = rows(capsys, "sass", "--list", file)
    assert [(row["image"], row["index"]) for row in listed] == [(n // 4, n) for n in range(8)]
    assert main(["sass", file, "--config", "6", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kernel"] == listed[6]["kernel"]
    both = rows(capsys, "sass", "--list", str(fatbinary("plain.cu", "fatbin")))
    assert [(row["arch"], row["index"]) for row in both] == [(a, n) for a in ("sm_80", "sm_90") for n in range(5)]
    empty = tmp_path / "empty.ptx"
    empty.write_text(".version 8.0\n.target sm_80\n", encoding="utf-8")
    assert main(["sass", "--list", str(empty)]) == NO_DEVICE_CODE


def test_all_never_writes_two_kernels_to_one_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, out = str(library_of_two(tmp_path)), tmp_path / "out"
    assert main(["sass", file, "--all", "--out", str(out)]) == 0
    files = sorted(path.name for path in out.iterdir())
    assert len(files) == 8
    assert {"two.plain.sm_80.sass", "two.plain.1.sm_80.sass"} <= set(files)
    kernels = [re.findall(r"kernel (\S+)", path.read_text(encoding="utf-8")) for path in out.iterdir()]
    assert sorted(symbol for (symbol,) in kernels) == sorted(
        2 * [each.symbol for each in Cubin.read(foreign()).entries]
    )
    assert max(map(len, files)) <= FILE_PART + 40
    # the same names for a choice of them, and for what nvdisasm prints
    some = tmp_path / "some"
    assert main(["sass", file, "--all", "--out", str(some), "--filter", "plain", "--nvdisasm-args=-hex"]) == 0
    assert sorted(path.name for path in some.iterdir()) == ["two.plain.1.sm_80.sass", "two.plain.sm_80.sass"]
    again = tmp_path / "again"
    assert main(["sass", file, file, "--all", "--out", str(again)]) == 2
    assert "two kernels would be written to two." in capsys.readouterr().err
    assert main(["sass", str(foreign(1)), str(foreign(1)), "--config", "0", "--out", str(again)]) == 2
    assert "two kernels would be written to sm_80.sm_80.sass" in capsys.readouterr().err
    assert not again.exists()


def test_filter(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(library_of_two(tmp_path))
    for pattern, number in (("FlashAttention", 4), ("true>", 2), ("^_Z16flash", 4), ("^plain$", 2)):
        assert len(rows(capsys, "sass", "--list", file, "--filter", pattern)) == number, pattern
    for command in (["counts", "--all"], ["images", "list"]):
        assert len(rows(capsys, *command, file, "--filter", "^plain$")) == 2, command
    assert main(["sass-diff", str(foreign(1)), str(foreign(2)), "--filter", "gemm", "--json"]) == 0
    (only,) = json.loads(capsys.readouterr().out)["kernels"]
    assert (only["status"], only["name"], only["library"]) == ("changed", "void cutlass_gemm<int>(int*)", "CUTLASS")
    for arguments, message in (
        (["sass", "--list", file, "--filter", "nobody"], "--filter nobody fits none of 8 kernels"),
        (["sass", "--list", file, "--filter", "("], "--filter (: not a regular expression"),
        (["sass", file, "--filter", "plain"], "--filter: requires --list or --all"),
        (["sass", file, "--csv"], "--csv, --markdown, --sort: require --list"),
        (["counts", file, "--filter", "plain"], "--filter: requires --all"),
        (["images", "extract", file, "--filter", "plain"], "--filter: requires list"),
    ):
        assert main(arguments) == 2
        assert message in capsys.readouterr().err
