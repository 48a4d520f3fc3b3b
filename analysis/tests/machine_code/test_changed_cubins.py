"""sass-diff, regs, the gate and captures see what a changed cubin runs, and how; a rebuilt one is identical."""

import json
import re
import struct
from pathlib import Path

import pytest

from analysis.__main__ import main
from analysis.errors import NOTHING_IN_COMMON
from analysis.machine_code.contents import code_summary
from analysis.machine_code.cubin import WORD_BYTES, Cubin
from analysis.machine_code.gate import compare_rows
from analysis.machine_code.ptxas_log import read_log
from analysis.machine_code.regs import Row, capture_changes, rows_of, rows_of_code
from analysis.tests.support.compiled import cubin, linked_later, without_lines

KERNEL = "."  # and its name
# The change: section, attribute of .nv.info or .nv.compat, byte of the value, and what the tools name.
FACTS = {
    "registers": (".nv.info", 0x2F, 4, "registers"),
    "stack frame": (".nv.info", 0x11, 4, "stack frame"),
    "barriers": (".nv.info" + KERNEL, 0x4C, 0, "barriers"),
    "launch bounds": (".nv.info" + KERNEL, 0x05, 0, "max threads"),
    "cluster": (".nv.info" + KERNEL, 0x3D, 0, "CTAs of a cluster"),
    "parameters": (".nv.info" + KERNEL, 0x17, 10, "parameter"),
    "shared memory": (".nv.shared" + KERNEL, None, 0, "shared memory"),
    "constant bank of the kernel": (".nv.constant2" + KERNEL, None, 0, ".nv.constant2"),
    "__constant__ table": (".nv.constant3", None, 0, "value"),
    "initial value": (".nv.global.init", None, 0, "value"),
    "compatibility": (".nv.compat", 0x02, 0, ".nv.compat 0x02"),
}


def place_of(data: bytes, name: str, attribute: int | None) -> int:
    """Start of the last such section's contents, or of the attribute's value in it, or of the size if that is empty."""
    found = 0
    for index, section in enumerate(Cubin(data).sections):
        if section.name != name and not (name.endswith(KERNEL) and section.name.startswith(name)):
            continue
        if attribute is None:
            size_at = struct.unpack_from("<Q", data, 40)[0] + 64 * index + 32
            found = section.offset if section.data else size_at
            continue
        at = 0
        while at < len(section.data):
            form, number, value = struct.unpack_from("<BBH", section.data, at)
            if number == attribute:
                found = section.offset + at + (4 if form == 4 else 2)
            at += 4 + (value if form == 4 else 0)
    assert found
    return found


def changed(path: Path, at: int, folder: Path) -> Path:
    """The file with another lowest bit of one byte."""
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    (folder / "changed.cubin").write_bytes(data)
    return folder / "changed.cubin"


def with_fact(what: str, path: Path, folder: Path) -> Path:
    name, attribute, byte, _ = FACTS[what]
    return changed(path, place_of(path.read_bytes(), name, attribute) + byte, folder)


@pytest.mark.parametrize("what", FACTS)
def test_a_changed_fact_is_named(what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = cubin("contents.cu", "sm_90a")
    other = str(with_fact(what, path, tmp_path))
    assert main(["sass-diff", str(path), other, "--exit-code"]) == 1
    assert FACTS[what][3] in capsys.readouterr().out
    assert main(["regs", str(path), other, "--exit-code"]) == 1
    assert FACTS[what][3] in capsys.readouterr().out


def test_instructions_and_nops_of_every_kernel(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = cubin("contents.cu", "sm_90a")
    last = [section for section in Cubin.read(path).sections if section.name.startswith(".text" + KERNEL)][-1]
    nop = last.offset + len(last.data) - WORD_BYTES
    code = next(at for at in range(nop, 0, -WORD_BYTES) if path.read_bytes()[at : at + 2] != b"\x18\x79")
    for at in (nop + 14, code + 14, code + 4):  # two bytes of control codes, one of operands
        other = str(changed(path, at, tmp_path))
        assert main(["sass-diff", str(path), other, "--exit-code"]) == 1
        out = capsys.readouterr().out
        assert "4 kernels: 3 identical, 1 changed" in out
        assert at != nop + 14 or "the same instructions; NOPs differ" in out
        assert main(["regs", str(path), other, "--exit-code"]) == 1
        capsys.readouterr()


def test_a_function_in_a_section_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Relocatable code: the kernel that calls it has the same bytes."""
    path = linked_later("contents.cu", "sm_80")
    data = path.read_bytes()
    at = data.index(struct.pack("<f", 1.5))
    other = tmp_path / "other.cubin"
    other.write_bytes(data[:at] + struct.pack("<f", 2.5) + data[at + 4 :])
    assert main(["sass-diff", str(path), str(other), "--exit-code", "--json"]) == 1
    record = json.loads(capsys.readouterr().out)
    assert record["summary"]["identical"] == len(record["kernels"]) == 3
    differing = [each["kernel"] for each in record["others"] if each["status"] == "changed"]
    assert differing == ["_Z6scaledf"]


def test_a_kernel_without_a_loop_is_compared(capsys: pytest.CaptureFixture[str]) -> None:
    path = str(cubin("plain.cu"))
    triple, divide = (["--a-config", name, "--b-config", name] for name in ("_Z6triplePi", "_Z6dividePlPKl"))
    assert main(["sass-diff", path, path, *triple, "--exit-code"]) == 0
    assert "identical machine code" in capsys.readouterr().out
    assert main(["sass-diff", path, path, *triple[:2], *divide[2:], "--exit-code", "--text"]) == 1
    out = capsys.readouterr().out
    assert re.search(r": kernel \d+ -> \d+ instructions$", out.splitlines()[0])
    assert "@@ whole:" in out


def test_what_is_rebuilt_moved_or_has_other_lines_is_identical(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for arch in ("sm_80", "sm_120"):
        path = cubin("contents.cu", arch)
        moved = tmp_path / f"moved to another {arch}.cubin"
        moved.write_bytes(path.read_bytes())
        for other in (moved, without_lines("contents.cu", arch)):
            assert main(["sass-diff", str(path), str(other), "--exit-code"]) == 0
            assert main(["regs", str(path), str(other), "--exit-code"]) == 0
    capsys.readouterr()


def test_an_image_that_is_not_read_is_compared_by_its_bytes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two cubins one after another; the sections of the second end past the file."""
    one, other = cubin("plain.cu", "sm_80").read_bytes(), bytearray(cubin("plain.cu", "sm_90").read_bytes())
    files = []
    for name, byte in (("before", 0), ("after", 1)):
        header = struct.unpack_from("<Q", other, 40)[0] + 64
        struct.pack_into("<Q", other, header + 32, 1 << 40)
        other[0x100] = byte
        files.append(tmp_path / name)
        files[-1].write_bytes(b"\x7fELF" + bytes(60) + one + bytes(other))
    assert main(["sass-diff", *map(str, files), "--exit-code"]) == 1
    found = capsys.readouterr()
    assert "images changed: 1" in found.out
    assert "compared by its bytes alone" in found.err
    assert main(["sass-diff", str(files[0]), str(files[0]), "--exit-code"]) == 0


def test_files_without_a_kernel_in_common(capsys: pytest.CaptureFixture[str]) -> None:
    plain, other = str(cubin("plain.cu")), str(cubin("contents.cu"))
    assert main(["sass-diff", plain, other]) == NOTHING_IN_COMMON
    assert "have no kernel in common: none of 5 and 3 kernels" in capsys.readouterr().err
    assert main(["regs", plain]) == 2
    assert "two files are compared" in capsys.readouterr().err


def rows(path: Path, log: Path) -> list[Row]:
    return rows_of_code(read_log(log.with_suffix(".log")), code_summary(path))


@pytest.mark.parametrize("what", FACTS)
def test_the_gate_reads_the_cubin(what: str, tmp_path: Path) -> None:
    """The log is the same."""
    path = cubin("contents.cu", "sm_90a")
    recorded, fresh = rows(path, path), rows(with_fact(what, path, tmp_path), path)
    assert recorded == rows_of(read_log(path.with_suffix(".log")), code_summary(path))
    found = compare_rows("v01", fresh, recorded)
    assert found
    if what in ("registers", "stack frame", "barriers", "shared memory"):
        assert {each.figure for each in found} > {"attributes"}
    keyed = [{("", row.config, row.arch): row for row in each} for each in (recorded, fresh)]
    assert capture_changes(*keyed)
    assert compare_rows("v01", recorded, recorded) == []
    assert capture_changes(keyed[0], keyed[0]) == []
