"""Tensor maps that a kernel makes: fields that are right, those that no driver would take, and the checks around."""

from pathlib import Path

import numpy as np
import pytest
from support.emulation import ptxrun
from vectors.tensor_fields import MADE, every_form

ROWS, COLUMNS = 6, 12
TO_GLOBAL = "cp.async.bulk.tensor.1d.global.shared::cta"


def run(text: str, folder: Path, *options: object) -> tuple[int, str]:
    (folder / "made.ptx").write_text(text)
    done = ptxrun(
        folder / "made.ptx", "--entry", "made", "--block", 32, "--arg", f"buf:f32:{ROWS * COLUMNS}:ramp", "--arg",
        "buf:u8:128", "--dump", f"0={folder / 'tensor.bin'}", *options,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("schedule", [0, 4])
def test_a_box_is_added_through_a_map_that_the_kernel_made(schedule: int, tmp_path: Path) -> None:
    assert run(MADE, tmp_path, "--schedule", schedule)[0] == 0
    expected = np.arange(ROWS * COLUMNS, dtype=np.float32).reshape(ROWS, COLUMNS)
    expected[4:, 8:] += np.arange(1, 33, dtype=np.float32).reshape(4, 8)[:2, :4]
    assert (np.fromfile(tmp_path / "tensor.bin", np.float32).reshape(ROWS, COLUMNS) == expected).all()


@pytest.mark.parametrize(("left_out", "first", "count"), [("nothing else", 8, 4), (".elemtype.", 0, 3)])
def test_fields_that_are_not_written_are_0(left_out: str, first: int, count: int, tmp_path: Path) -> None:
    """As Triton leaves them: one dimension, of bytes. The 12 elements from `first` on are copied."""
    zeros = (".rank.", "[%rd3], 1, ", ".global_stride.", ".interleave_", ".swizzle_", ".fill_", left_out)
    text = "\n".join(line for line in MADE.split("\n") if not any(field in line for field in zeros))
    text = text.replace("[%rd3], 0, 8;", "[%rd3], 0, 16;").replace("{%r10, %r11}", "{%r10}")
    text = text.replace("mov.u32 %r10, 8;", f"mov.u32 %r10, {first};")
    code, said = run(text.replace("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add", TO_GLOBAL), tmp_path)
    assert code == 0, said
    expected = np.arange(ROWS * COLUMNS, dtype=np.float32)
    expected[first : first + count] = np.arange(1, count + 1)
    assert (np.fromfile(tmp_path / "tensor.bin", np.float32) == expected).all()


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        (".rank.shared::cta.b1024.b32 [%rd3], 1;", ".rank.shared::cta.b1024.b32 [%rd3], 5;", "rank of the tensor map"),
        (".elemtype.shared::cta.b1024.b32 [%rd3], 7;", ".elemtype.shared::cta.b1024.b32 [%rd3], 13;", "element type"),
        ("[%rd3], 1, 1;", "[%rd3], 1, 9;", "element stride of the tensor map at 0x400 becomes 9"),
        (".swizzle_mode.shared::cta.b1024.b32 [%rd3], 0;", ".swizzle_mode.shared::cta.b1024.b32 [%rd3], 4;", "swizzle"),
        ("mov.u64 %rd4, 48;", "mov.u64 %rd4, 40;", "stride 1 is 40 bytes: it must be a multiple of 16"),
        ("mov.b32 %r5, 0;", "mov.b32 %r5, 3;", "are neither zeros nor a tensor map"),
    ],
)
def test_fields_that_make_no_map(old: str, new: str, what: str, tmp_path: Path) -> None:
    assert MADE.count(old) == 1
    code, text = run(MADE.replace(old, new), tmp_path)
    assert code == 1 and "bad-tensor-map" in text and what in text, text


def test_fields_are_ordered_with_what_other_lanes_store(tmp_path: Path) -> None:
    first, rest = MADE.split("bar.warp.sync -1;", 1)
    code, text = run(first + rest, tmp_path)
    assert code == 1 and "race" in text, text


def test_a_copy_in_flight_keeps_the_map_that_it_was_issued_with(tmp_path: Path) -> None:
    later = "tensormap.replace.tile.global_dim.global.b1024.b32 [%rd2], 0, 1;\ncp.async.bulk.commit_group;"
    code, text = run(MADE.replace("cp.async.bulk.commit_group;", later), tmp_path)
    assert code == 1 and "async-in-flight" in text and "changes the tensor map" in text, text
    assert np.fromfile(tmp_path / "tensor.bin", np.float32)[4 * COLUMNS + 11] == 4 * COLUMNS + 11 + 4


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("[%rd3], 1, 4;", "[%rd3], 5, 4;", "the axis is a number from 0 to 4"),
        ("[%rd3], 0, %rd4;", "[%rd3], 4, %rd4;", "the axis is a number from 0 to 3"),
        ("[%rd2], [%rd3], 128;", "[%rd2], [%rd3], 64;", "a tensor map has 128 bytes"),
    ],
)
def test_refusals(old: str, new: str, what: str, tmp_path: Path) -> None:
    code, text = run(MADE.replace(old, new), tmp_path)
    assert code == 2 and what in text, text


def test_every_form_is_read(tmp_path: Path) -> None:
    (tmp_path / "forms.ptx").write_text(every_form().replace("\n{\n", "\n{\nret;\n", 1))
    assert ptxrun(tmp_path / "forms.ptx", "--block", 32).returncode == 0


ELEMENTS = """.version 8.0
.target sm_80
.address_size 64
.visible .entry made(.param .u64 out, .param .u64 unused)
{
.shared .align 8 .u16 halves[8];
.reg .b32 %r<4>; .reg .b64 %rd<3>;
ld.param.u64 %rd1, [out]; mov.u32 %r1, halves[3]; mov.u64 %rd2, halves[2]+2; cvt.u32.u64 %r2, %rd2;
mov.u32 %r3, halves; sub.u32 %r1, %r1, %r3; sub.u32 %r2, %r2, %r3;
st.global.v2.u32 [%rd1], {%r1, %r2};
ret;
}
"""


def test_an_element_of_an_array_is_an_address(tmp_path: Path) -> None:
    code, text = run(ELEMENTS, tmp_path)
    assert code == 0, text
    assert np.fromfile(tmp_path / "tensor.bin", np.uint32)[:2].tolist() == [6, 6]
