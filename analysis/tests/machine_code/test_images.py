"""Device code inside executables, objects, fatbinaries and cubins, and the sass and cfg commands on them."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from analysis.__main__ import main
from analysis.files import root
from analysis.machine_code.cubin import Cubin
from analysis.machine_code.images import read_images
from analysis.tests.support.compiled import cubin, fatbinary, ptx


@pytest.fixture(scope="session")
def executable(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that carries PTX and two cubins the way our executables do, after the PTX of helper kernels."""
    folder = tmp_path_factory.mktemp("executable with spaces")
    for arch in ("sm_80", "sm_90"):
        shutil.copyfile(cubin("attention.cu", arch), folder / f"{arch}.cubin")
    shutil.copyfile(ptx("attention.cu"), folder / "made.ptx")
    shutil.copyfile(ptx("plain.cu", "sm_75"), folder / "helpers.ptx")
    shutil.copyfile(cubin("plain.cu", "sm_75"), folder / "sm_75.cubin")
    main_c = folder / "main.c"
    main_c.write_text("int main(void) { return 0; }\n", encoding="utf-8")
    made = folder / "made"
    # The path of -Wa is split at spaces, so the assembler runs in the folder itself.
    for name, archs in (("helpers", "75"), ("made", "80,90")):
        table = [f"-DIMAGES={name}", f"-DIMAGE_COUNT={name}_count", f'-DPTX="{name}.ptx"', f"-DARCHS={archs}"]
        code = [*table, "-Wa,-I.", "-c", "-o", f"{name}.o", str(root() / "runtime/code.S")]
        subprocess.run(["cc", *code], cwd=folder, check=True)
    subprocess.run(["cc", "-o", str(made), str(main_c), "helpers.o", "made.o"], cwd=folder, check=True)
    return made


def test_our_executables(executable: Path) -> None:
    images = read_images(executable)
    assert [(image.kind, image.arch) for image in images] == [
        ("cubin", "sm_75"),
        ("cubin", "sm_80"),
        ("cubin", "sm_90"),
        ("ptx", "sm_75"),
        ("ptx", "sm_80"),
    ]
    assert images[1].data == cubin("attention.cu", "sm_80").read_bytes()
    assert images[2].data == cubin("attention.cu", "sm_90").read_bytes()
    for image, text in zip(images[3:], (ptx("plain.cu", "sm_75"), ptx("attention.cu")), strict=True):
        assert image.data.rstrip() == text.read_bytes().strip()


def test_an_architecture_that_is_not_there_is_refused(executable: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for subject, asked, there in (
        (executable, "86", "sm_75, sm_80, sm_90"),
        (executable, "90a", "sm_75, sm_80, sm_90"),
        (cubin("attention.cu", "sm_90"), "80", "sm_90"),
        (cubin("attention.cu", "sm_90a"), "90", "sm_90a"),
    ):
        assert main(["sass", str(subject), "--arch", asked]) == 2
        assert f"no code for sm_{asked}; choose with --arch: {there}" in capsys.readouterr().err
    assert main(["sass", str(cubin("attention.cu", "sm_90a"))]) == 0
    assert "sm_90a" in capsys.readouterr().out


@pytest.mark.parametrize("form", ["o", "fatbin"])
def test_fatbinaries(form: str) -> None:
    images = read_images(fatbinary("plain.cu", form))
    assert sorted((image.kind, image.arch) for image in images) == [
        ("cubin", "sm_80"),
        ("cubin", "sm_90"),
        ("ptx", "sm_90"),
    ]
    names = {kernel.symbol for image in images if image.kind == "cubin" for kernel in image.cubin("f").entries}
    assert names == {kernel.symbol for kernel in Cubin.read(cubin("plain.cu")).entries}


def test_list_and_extract(executable: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["images", "list", str(executable), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["kind"] for row in rows] == ["cubin"] * 9 + ["ptx"] * 7
    assert rows[6]["kernel"] == "(FP16, 128, 64, 64, 4): async+load_0_0_0_tiles"
    out = tmp_path / "out"
    assert main(["images", "extract", str(executable), "--out", str(out), "--base", "name", "--json"]) == 0
    assert sorted(path.name for path in out.iterdir()) == [
        "name.sm_75.cubin",
        "name.sm_75.ptx",
        "name.sm_80.cubin",
        "name.sm_80.ptx",
        "name.sm_90.cubin",
    ]
    assert (out / "name.sm_90.cubin").read_bytes() == cubin("attention.cu", "sm_90").read_bytes()
    capsys.readouterr()
    assert main(["images", "list", str(executable), "--image", "7"]) == 2
    assert "--image 7: must be less than 5" in capsys.readouterr().err


def test_sass_of_every_form_is_the_same(executable: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sass", str(cubin("attention.cu", "sm_90"))]) == 0
    from_cubin = capsys.readouterr().out
    assert main(["sass", str(executable), "--arch", "90"]) == 0
    assert capsys.readouterr().out == from_cubin
    assert "kernel (FP16, 128, 64, 64, 4): async+load_0_0_0_tiles" in from_cubin
    assert "_Z13flash_forward" not in from_cubin


def test_sass_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(cubin("attention.cu"))
    assert main(["sass", path, "--all", "--out", str(tmp_path / "all"), "--base", "name"]) == 0
    assert sorted(file.name for file in (tmp_path / "all").iterdir()) == [
        "name._BF16__128__64__32__4___async+load_0_0_0_tiles.sm_80.sass",
        "name._FP16__128__64__64__4___async+load_0_0_0_tiles.sm_80.sass",
    ]
    one = tmp_path / "one.sass"
    assert main(["sass", path, "-o", str(one)]) == 0
    assert main(["sass", path, "--bare"]) == 0
    bare = capsys.readouterr().out
    assert main(["sass", str(one), "--bare", "--in-place"]) == 0
    assert one.read_text(encoding="utf-8") == bare
    assert main(["sass", path, '--nvdisasm-args="-hex']) == 2
    assert main(["sass", path, "--nvdisasm-args=-hex -g"]) == 0
    out = capsys.readouterr().out
    assert "/* 0x" in out
    assert "//## File" in out
    assert main(["sass", path, "--list", "--json"]) == 0
    assert [row["index"] for row in json.loads(capsys.readouterr().out)["rows"]] == [0, 1]
    assert main(["sass", path, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["instructions"][0]["control"] == "B------:R-:W-:-:S02"
