"""`make read`: a kernel with its configuration folded in compiles to the machine code of its version."""

import re
import subprocess
from pathlib import Path

import pytest

from analysis.__main__ import main
from analysis.errors import AnalysisError
from analysis.files import root
from analysis.ladder.c_source import without_comments
from analysis.ladder.folding import folded
from analysis.ladder.headers import load, load_all
from analysis.machine_code.contents import code_summary
from analysis.machine_code.regs import read_registers
from analysis.tests.support.kinds import one_of_each_kind

TOOLKIT = root() / ".venv/toolkit/bin"
COMPILED = ("v00b", "v02", "v09", "v16", "v21", "v25", "v29", "v37")


@pytest.mark.parametrize("name", one_of_each_kind(load_all(root())))
def test_no_configuration_assert_or_hook_is_left(name: str) -> None:
    version = load(root(), name)
    bare = without_comments(folded(version))
    assert not re.search(r"\bcfg\b|static_assert|\bdump_|debug|check_config|cfg\.dtype|instances", bare)
    assert len(bare.splitlines()) < 0.9 * len(version.source.splitlines())


def test_what_a_configuration_decides_is_decided() -> None:
    text = folded(load(root(), "v29"))
    assert "if (threadIdx.x == 0) produce(args, maps, at);" in text, "an `if` of the launch stays"
    assert "        wgmma_m64n128k16_f16(S, Q_step, K_step, k != 0);\n" in text and "m64n64k16" not in text
    assert "    return cvt_f16x2(low, high);\n" in text and "bf16" not in text
    assert "constexpr int stages = 2;\n" in text and "block % stages" in text
    assert text.startswith("/* v29 - scores one block ahead, for (FP16, 128, 128, 128, 8):\n")


def test_a_kernel_of_several_files_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(AnalysisError, match=r"has several files: read kernels/attention/wgmma\.cu"):
        folded(load(root(), "attention/wgmma"))
    assert main(["read", "v99"]) == 2 and "no version 'v99'" in capsys.readouterr().err


def test_folded_sources_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", "v01", "v02", "--folded"]) == 0
    out = capsys.readouterr().out
    assert "static_assert" not in out and "lines added or removed" in out and out.startswith("--- v01, folded")


@pytest.mark.long
@pytest.mark.skipif(not (TOOLKIT / "nvcc").exists(), reason="the toolkit is not installed: make setup")
@pytest.mark.parametrize("name", COMPILED)
def test_the_machine_code_is_that_of_the_version(name: str, tmp_path: Path) -> None:
    version = load(root(), name)
    source, ptx, cubin = (tmp_path / f"read.{end}" for end in ("cu", "ptx", "cubin"))
    source.write_text(folded(version))
    arch = version.header.arch.removeprefix("sm_")
    compiler = [str(TOOLKIT / "nvcc"), "-std=c++20", "-O3", "--use_fast_math", "-lineinfo", "-ptx", "-I."]
    assembler = [str(TOOLKIT / "ptxas"), "-O3", "--generate-line-info", f"-arch=sm_{arch}"]
    subprocess.run([*compiler, f"-arch=compute_{arch}", "-o", ptx, source], cwd=root(), check=True)
    subprocess.run([*assembler, "-o", cubin, ptx], check=True)
    (made,) = (kernel.code_hash for kernel in code_summary(cubin).values())
    rows = read_registers(root())[name]
    assert made in {row.code_hash for row in rows if row.config == str(version.header.config)}
