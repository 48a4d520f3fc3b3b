"""The tool that tries the emulator on other people's kernels: settings, what counts as refused, and the tables."""

import json
from pathlib import Path

import pytest

from analysis.__main__ import main
from analysis.emulate.corpus import Refusal, Tried, by_folder, parse_settings, refusals
from analysis.files import root

HEADER = ".version 8.3\n.target sm_80\n.address_size 64\n"
STORE = (
    "(.param .u64 to)\n{\n.reg .b64 %rd<2>;\nld.param.u64 %rd1, [to];\nst.global.u32 [%rd1], 1;\n"
    "st.global.u32 [%rd1], 2;\nret;\n}\n"
)
SETTINGS = """# a comment
top: -Iinclude "-DX=a b"
top/graphics/: skip needs OpenGL
top/deep/file.cu: -DY
run top/a.ptx --entry store --block 1 --arg out:u32:1
run top/a.ptx --entry store --block 1 --arg buf:u32:1
"""


def test_settings() -> None:
    settings = parse_settings(SETTINGS, "corpus.txt")
    assert settings.flags == {"top": ("-Iinclude", "-DX=a b"), "top/deep/file.cu": ("-DY",)}
    assert settings.skipped == {"top/graphics": "needs OpenGL"}
    assert [(name, options[-1]) for name, options in settings.launches] == [
        ("top/a.ptx", "out:u32:1"),
        ("top/a.ptx", "buf:u32:1"),
    ]
    for name, nearest in {
        "top/x.cu": "top",
        "top/deep/x.cu": "top",
        "top/deep/file.cu": "top/deep/file.cu",
        "top/graphics/window/x.cu": "top/graphics",
        "topmost/x.cu": "",
    }.items():
        assert settings.nearest(name) == nearest, name


def test_the_tables() -> None:
    tex, wgmma = Refusal("f", "tex.2d", "no"), Refusal("g", "wgmma", "never")
    tried = [
        Tried("a/x/1.ptx", 3, (tex, wgmma, tex)),
        Tried("a/y/2.cu", 5, launches=(0, 1, 3, 2)),
        Tried("b/3.cu", problem="broken"),
        Tried("b/4.cu", problem="skip", skipped=True),
        Tried("5.ptx", 1),
    ]
    rows = {str(row[0]): tuple(row[1:]) for row in by_folder(tried, 1).rows}
    assert rows == {
        ".": (1, 0, 1, 1, None, 0, 0, 0),
        "a": (2, 0, 11, 8, "tex 2, wgmma 1", 4, 1, 2),
        "b": (1, 1, 0, 0, None, 0, 0, 0),
        "all": (4, 1, 12, 9, "tex 2, wgmma 1", 4, 1, 2),
    }
    assert [row[0] for row in by_folder(tried, 2).rows] == [".", "a/x", "a/y", "b", "all"]
    assert [list(row) for row in refusals(tried).rows] == [
        ["a/x/1.ptx", "f", "tex.2d", "no"],
        ["a/x/1.ptx", "g", "wgmma", "never"],
        ["a/x/1.ptx", "f", "tex.2d", "no"],
        ["b/3.cu", None, None, "broken"],
    ]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """PTX of several kinds, and a CUDA file that is no CUDA."""
    assert (root() / "bin/ptxrun").exists(), "run `make bin/ptxrun`"
    for name, text in (
        ("top/a.ptx", f"{HEADER}.entry store{STORE}.entry other()\n{{\nfrobnicate.b32 1;\n}}\n"),
        (
            "top/whole.ptx",
            f"{HEADER}.entry one()\n{{\nret;\n}}\n// .entry none()\nnonsense\n.entry two()\n{{\nret;\n}}\n",
        ),
        ("top/host.ptx", HEADER),
        ("top/graphics/window.cu", "no CUDA\n"),
        ("flags.cu", "__global__ void VALUE() {}\n"),
        ("broken.cu", "int x = y;\n"),
        ("corpus.txt", SETTINGS + "flags.cu: -DVALUE=given\n"),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_a_folder(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    assert main(["corpus", str(folder), "--json"]) == 0
    out, progress = capsys.readouterr()
    rows = {row.pop("folder"): row for row in json.loads(out)["rows"]}
    assert rows["."] == {
        "files": 2, "not read": 1, "entries": 1, "accepted": 1, "refused": None,
        "launched": 0, "clean": 0, "findings": 0,
    }  # fmt: skip
    assert rows["top"] == {
        "files": 3, "not read": 0, "entries": 4, "accepted": 1, "refused": "nonsense 2, frobnicate 1",
        "launched": 2, "clean": 1, "findings": 1,
    }  # fmt: skip
    lines = sorted(line.partition("] ")[2] for line in progress.splitlines())
    assert len(lines) == 6 and lines[2] == "top/a.ptx: 1 accepted, 1 refused, 2 launched"
    assert lines[0].startswith("broken.cu: not read: nvcc ended with status ")
    assert lines[3] == "top/graphics/window.cu: skipped: needs OpenGL"
