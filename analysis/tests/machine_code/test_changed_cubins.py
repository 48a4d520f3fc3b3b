"""sass-diff, regs, the gate and captures see what a changed cubin runs, and how; a rebuilt one is identical."""

import json
import re
import struct
from pathlib import Path

import pytest

from analysis.__main__ import main
from analysis.errors import NOTHING_IN_COMMON
from analysis.machine_code.contents import code_summary
from analysis.machine_code.gate import compare_rows
from analysis.machine_code.ptxas_log import read_log
from analysis.machine_code.regs import Row, capture_changes, rows_of, rows_of_code
from analysis.tests.support.compiled import cubin, fatbinary, linked_later, log_of, without_lines
from analysis.tests.support.mutants import fields, mutated

# What is changed: field, byte of it, and what the tools name.
OF_KERNEL = {
    "registers": (".nv.info 0x2f: value", 4, "registers"),
    "stack frame": (".nv.info 0x11: value", 4, "stack frame"),
    "barriers": (".nv.info.KERNEL 0x4c: value", 0, "barriers"),
    "launch bounds": (".nv.info.KERNEL 0x05: value", 0, "max threads"),
    "cluster": (".nv.info.KERNEL 0x3d: value", 0, "CTAs of a cluster"),
    "parameters": (".nv.info.KERNEL 0x17: value", 10, "parameter"),
    "shared memory": ("header of .nv.shared.KERNEL: size", 0, "shared memory"),
    "constant bank of the kernel": ("contents of .nv.constant2.KERNEL", 0, ".nv.constant2"),
}
OF_FILE = {
    "flags": ("ELF header: flags", 0, "flags"),
    "__constant__ table": ("contents of .nv.constant3", 0, "value"),
    "initial value": ("contents of .nv.global.init", 0, "value"),
    "compatibility": (".nv.compat 0x02: value", 0, ".nv.compat 0x02"),
}


def changed(path: Path, field: str, byte: int, folder: Path, which: int = -1) -> Path:
    data = path.read_bytes()
    found = [each for each in fields(data) if each.name == field]
    target = folder / "changed.cubin"
    target.write_bytes(mutated(data, found[which], byte))
    return target


@pytest.mark.parametrize("what", [*OF_KERNEL, *OF_FILE])
def test_a_changed_fact_is_named(what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    field, byte, name = (OF_KERNEL | OF_FILE)[what]
    path = cubin("contents.cu", "sm_90a")
    other = str(changed(path, field, byte, tmp_path))
    assert main(["sass-diff", str(path), other, "--exit-code"]) == 1
    assert name in capsys.readouterr().out
    assert main(["regs", str(path), other, "--exit-code"]) == 1
    assert name in capsys.readouterr().out


def test_instructions_and_nops_of_every_kernel(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The last field is of the last kernel of the file."""
    path = cubin("contents.cu", "sm_90a")
    for field, byte in (("NOP: control code", 1), ("instruction: control code", 1), ("instruction: operands", 2)):
        other = str(changed(path, field, byte, tmp_path))
        assert main(["sass-diff", str(path), other, "--exit-code"]) == 1
        out = capsys.readouterr().out
        assert "4 kernels: 3 identical, 1 changed" in out
        if field.startswith("NOP"):
            assert "the same instructions; NOPs differ" in out
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
    """Two cubins one after another; the sections of the second end behind the file."""
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


def test_ptx_that_a_newer_gpu_would_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = fatbinary("plain.cu", "fatbin")
    assert main(["sass-diff", str(path), str(path), "--all", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert {each["kind"] for each in record["others"]} == {"file", "PTX"}


def test_files_without_a_kernel_in_common(capsys: pytest.CaptureFixture[str]) -> None:
    plain, other = str(cubin("plain.cu")), str(cubin("contents.cu"))
    assert main(["sass-diff", plain, other]) == NOTHING_IN_COMMON
    assert "have no kernel in common: none of 5 and 3 kernels" in capsys.readouterr().err
    assert main(["regs", plain]) == 2
    assert "two files are compared" in capsys.readouterr().err


# ---- the gate and captures -------------------------------------------------------------------------------------------


def rows(path: Path, log: Path) -> list[Row]:
    return rows_of_code(read_log(log.with_suffix(".log")), code_summary(path))


@pytest.mark.parametrize("what", [*OF_KERNEL, *OF_FILE])
def test_the_gate_reads_the_cubin(what: str, tmp_path: Path) -> None:
    """The log is the same."""
    field, byte, _ = (OF_KERNEL | OF_FILE)[what]
    path = cubin("contents.cu", "sm_90a")
    assert log_of(path)
    recorded, fresh = rows(path, path), rows(changed(path, field, byte, tmp_path), path)
    assert recorded == rows_of(read_log(path.with_suffix(".log")), code_summary(path))
    found = compare_rows("v01", fresh, recorded)
    assert found
    if what in ("registers", "stack frame", "barriers", "shared memory"):
        assert {each.figure for each in found} > {"attributes"}
    keyed = [{("", row.config, row.arch): row for row in each} for each in (recorded, fresh)]
    assert capture_changes(*keyed)
    assert compare_rows("v01", recorded, recorded) == []
    assert capture_changes(keyed[0], keyed[0]) == []
