"""ptxrun: buffers that hold addresses of buffers, and results compared with a file."""

from pathlib import Path

import numpy as np
import pytest
from support.emulation import entry, ptxrun

ADDRESSES = """.reg .b64 %p<5>;
    .reg .b32 %r<3>;
    ld.param.u64 %p1, [out]; ld.global.u64 %p2, [%p1]; ld.global.u64 %p3, [%p1+8];
    ld.global.u32 %r1, [%p2+4]; add.u32 %r2, %r1, 40;
    st.global.u32 [%p3], %r2;"""


def test_a_buffer_of_addresses(tmp_path: Path) -> None:
    """As a grouped GEMM has: the members have numbers of their own."""
    (tmp_path / "k.ptx").write_text(entry(ADDRESSES, ".param .u64 out"))
    spec = "addresses:[buf:u32:3:ramp,out:u32:1]"
    done = ptxrun(tmp_path / "k.ptx", "--block", 1, "--arg", spec, "--print", "0.1")
    assert (done.returncode, done.stderr, done.stdout.split()[-1]) == (0, "", "41")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("buf:u32:1", "must be addresses:[MEMBER,MEMBER,...]"),
        ("[buf:u32:1,u64:7]", "must only have members buf:... and out:..."),
        ("[struct:[u64:1]]", "must not nest structs"),
        ("[buf:u32:0]", "argument 0.0: '0': must be a number of elements"),
    ],
)
def test_addresses_of_no_buffers_are_refused(spec: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "k.ptx").write_text(entry(ADDRESSES, ".param .u64 out"))
    done = ptxrun(tmp_path / "k.ptx", "--block", 1, "--arg", f"addresses:{spec}")
    assert done.returncode == 2 and message in done.stderr


EXPECTED = """.reg .b64 %p;
    ld.param.u64 %p, [out];
    st.global.v4.b32 [%p], {0f3f800000, 0f44800000, 0f7f800000, 0f7fffffff};"""  # 1, 1024, infinity, NaN


@pytest.mark.parametrize(
    ("values", "tolerance", "said"),
    [
        ([1, 1024, np.inf, None], "0", None),
        ([1.25, 1024, np.inf, None], "0.25", None),
        (
            [1.5, 1024, np.inf, None],
            "0.25",
            "1 of 4 elements differ; the first, element 0, is 1 where the file has 1.5",
        ),
        ([1, 1040, np.inf, None], "0.02", None),
        ([1, 1040, 7, 7], "0.01", "3 of 4 elements differ; the first, element 1, is 1024 where the file has 1040"),
        ([1, np.inf, np.inf, None], "1", "element 1, is 1024 where the file has inf"),
    ],
)
def test_results_are_compared_with_a_file(
    values: list[float | None], tolerance: str, said: str | None, tmp_path: Path
) -> None:
    (tmp_path / "k.ptx").write_text(entry(EXPECTED, ".param .u64 out"))
    words = [0x7FFFFFFF if value is None else int(np.float32(value).view(np.uint32)) for value in values]
    (tmp_path / "right").write_bytes(np.array(words, np.uint32).tobytes())
    launch = (tmp_path / "k.ptx", "--block", 1, "--arg", "out:f32:4", "--tolerance", tolerance)
    done = ptxrun(*launch, "--expect", f"0={tmp_path / 'right'}")
    assert done.returncode == (1 if said else 0)
    assert said in done.stderr if said else done.stderr == ""


def test_integers_are_compared_whole(tmp_path: Path) -> None:
    """A double cannot tell these two apart."""
    body = ".reg .b64 %p;\nld.param.u64 %p, [out];\nst.global.u64 [%p], 9007199254740993;"
    (tmp_path / "k.ptx").write_text(entry(body, ".param .u64 out"))
    (tmp_path / "near").write_bytes(np.array([9007199254740992], np.uint64).tobytes())
    done = ptxrun(tmp_path / "k.ptx", "--block", 1, "--arg", "out:u64:1", "--expect", f"0={tmp_path / 'near'}")
    assert done.returncode == 1 and "is 9007199254740993 where the file has 9007199254740992" in done.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--expect", "0=nowhere"), "--expect 0=nowhere: cannot read nowhere: No such file"),
        (("--expect", "0"), "--expect 0: must be N=FILE"),
        (("--expect", "3=FILE"), "--expect 3: argument 3 has no buffer"),
        (("--expect", "0=FILE"), "the file has 3 bytes, but 4 x f32 takes 16"),
        (("--tolerance", "-1"), "--tolerance -1: must be 0 or more"),
        (("--tolerance", "nan"), "--tolerance nan: must be 0 or more"),
    ],
)
def test_what_cannot_be_compared_is_refused(options: tuple[str, str], message: str, tmp_path: Path) -> None:
    (tmp_path / "k.ptx").write_text(entry(EXPECTED, ".param .u64 out"))
    (tmp_path / "short").write_bytes(b"abc")
    words = [word.replace("FILE", str(tmp_path / "short")) if "=FILE" in word else word for word in options]
    done = ptxrun(tmp_path / "k.ptx", "--block", 1, "--arg", "out:f32:4", *words)
    assert done.returncode == 2 and message in done.stderr
