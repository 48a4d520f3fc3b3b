"""Bad input: each kind has a sentence and a status of its own."""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from analysis.__main__ import main
from analysis.files import root

CUBIN = root() / "build/device/sm_80.cubin"
OTHER = root() / "build/v01/sm_80.cubin"
COMMANDS = ("images list {}", "counts --all {}", "counts --config 0 {}", "sass-diff {} {}", "regs {} {}", "ptx {}",
            "gate {} --baseline none")  # fmt: skip


def archive(*members: bytes) -> bytes:
    """As ar writes it."""
    return b"!<arch>\n" + b"".join(
        b"%-16s%-12d%-6d%-6d%-8o%-10d`\n" % (b"%d.o/" % number, 0, 0, 0, 0o644, len(member))
        + member
        + b"\n" * (len(member) % 2)
        for number, member in enumerate(members)
    )


def with_architecture(number: int) -> bytes:
    data = bytearray(CUBIN.read_bytes())
    data[49] = number  # of the flags
    return bytes(data)


def cut_short() -> bytes:
    return CUBIN.read_bytes()[:9000]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("made", "status", "sentence"),
    [  # made when the test runs: `make check VER=` collects this file where no cubin is built
        (partial(with_architecture, 201), 4, r"sm_201 is not known: sm_50 to sm_121 are read"),
        (cut_short, 5, r"truncated: program headers end at byte \d+ of 9000"),
        (partial(archive, b"\x7fELF host", b"host"), 6, r"no device code: an archive of host objects"),
    ],
)
def test_a_file(
    command: str,
    made: Callable[[], bytes],
    status: int,
    sentence: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "bad"
    path.write_bytes(made())
    (tmp_path / "none").write_text('{"schema": 1, "files": {}}')
    words = [str(tmp_path / "none") if word == "none" else word.format(path) for word in command.split()]
    assert main(words) == status
    said = capsys.readouterr().err.splitlines()[-1]
    assert re.search(rf"analysis {words[0]}: {re.escape(str(path))}: {sentence}", said), said


def test_an_archive_with_device_code_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "library.a"
    path.write_bytes(archive(b"host", CUBIN.read_bytes()))
    assert main(["sass-diff", str(path), str(CUBIN), "--exit-code"]) == 0
    assert "4 kernels: 4 identical" in capsys.readouterr().out
    (tmp_path / "old").mkdir()
    path.rename(tmp_path / "old/library.a")
    assert main(["sass-diff", str(tmp_path / "old"), str(tmp_path / "old"), "--exit-code"]) == 0
    assert "4 kernels: 4 identical" in capsys.readouterr().out


def test_a_folder_without_cubins(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "host.a").write_bytes(archive(b"host"))
    (tmp_path / "notes.txt").write_text("nothing")
    assert main(["sass-diff", str(tmp_path), str(tmp_path)]) == 7
    assert "no file below it holds device code" in capsys.readouterr().err


def test_two_builds_with_no_kernel_in_common(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, cubin in (("old", CUBIN), ("new", OTHER)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "k.cubin").write_bytes(cubin.read_bytes())
    assert main(["sass-diff", str(tmp_path / "old"), str(tmp_path / "new")]) == 8
    said = capsys.readouterr().err
    assert "have no kernel in common: none of 4 and 2 kernels" in said and "--a-config" not in said
    assert main(["sass-diff", str(CUBIN), str(OTHER)]) == 8
    assert "--a-config and --b-config choose one of each" in capsys.readouterr().err
