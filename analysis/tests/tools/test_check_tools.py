"""check-tools: every kind of file is recognized, and what is not is named."""

import json
from pathlib import Path

import pytest

from analysis.__main__ import main
from analysis.files import root
from analysis.tests.support.compiled import cubin, fatbinary, log_of, ptx
from analysis.tools.check_tools import check_file


def kinds(path: Path) -> list[str]:
    return [finding.kind for finding in check_file(path)]


def test_kinds(tmp_path: Path) -> None:
    assert kinds(cubin("attention.cu")) == ["kernel sm_80", "kernel sm_80"]
    assert kinds(fatbinary("plain.cu", "o")) == ["kernel sm_80"] * 5 + ["kernel sm_90"] * 5 + ["PTX 9.5 sm_90"] * 5
    assert kinds(ptx("attention.cu")) == ["PTX 9.5 sm_80"] * 2
    log = tmp_path / "log"
    log.write_text(log_of(cubin("attention.cu")), encoding="utf-8")
    assert kinds(log) == ["log sm_80", "log sm_80"]
    listing = tmp_path / "listing"
    assert main(["sass", str(cubin("attention.cu")), "-o", str(listing)]) == 0
    assert kinds(listing) == ["listing"]
    source = next((root() / "kernels").glob("*/v01_*.cu"))
    assert kinds(source) == ["kernel source"]


def test_details() -> None:
    detail = check_file(cubin("attention.cu"))[1].detail
    assert detail == "95 instructions, 32 registers, 1 loops, KV loop of 50"
    assert "no loop" in check_file(cubin("plain.cu"))[4].detail


@pytest.mark.parametrize(
    ("data", "kind", "detail"),
    [
        (b"hello\n", "unknown", "none of: record, ptxas log, PTX, listing, kernel source"),
        (b"\xff\xfe\x00", "unknown", "binary, but neither ELF nor a fatbinary (3 bytes)"),
        (b"        /*0000*/  frob ;\n", "refused listing", "line not understood: '/*0000*/  frob ;'"),
    ],
)
def test_what_is_not_recognised(data: bytes, kind: str, detail: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(data)
    (finding,) = check_file(file)
    assert finding.bad
    assert finding.kind == kind
    assert detail in finding.detail


def test_an_opcode_that_is_not_known_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("        /*0000*/  FROB.X R1, R2 ;\n        /*0010*/  EXIT ;\n", encoding="utf-8")
    (finding,) = check_file(file)
    assert (finding.bad, finding.detail) == (False, "2 instructions, not known: 1 FROB")


def test_truncated_cubin(tmp_path: Path) -> None:
    file = tmp_path / "cut.cubin"
    file.write_bytes(cubin("attention.cu").read_bytes()[:9000])
    (finding,) = check_file(file)
    assert (finding.bad, finding.kind) == (True, "refused")
    assert "truncated" in finding.detail


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = str(cubin("attention.cu")), tmp_path / "bad"
    bad.write_text("hello\n", encoding="utf-8")
    assert main(["check-tools", good, "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["rows"]) == 2
    assert main(["check-tools", good, str(bad)]) == 2
    assert "1 not recognized" in capsys.readouterr().err
