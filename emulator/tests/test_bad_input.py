"""Input that a device would reject is rejected, with the line and the allowed values: sm_90a and tensor maps."""

from pathlib import Path

import pytest
from support.emulation import entry, ptxrun

PROGRAM = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry f(.param .u64 p)
{
.reg .b32 %r<4>; .reg .b64 %x, %y; .reg .f32 %d<4>;
BODY
ret;
}
"""
EIGHT = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%d0, %d1, %d2, %d3}, "


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("wgmma.mma_async.sync.aligned.m64n20k16.f32.f16.f16 {%d0, %d1}, %x, %y, 1, 1, 1, 0, 0;",
         "shape '.m64n20k16' of 'wgmma.mma_async.sync.aligned.m64n20k16.f32.f16.f16' is not supported: n is a "
         "multiple of 8 from 8 to 256"),
        ("wgmma.mma_async.sync.aligned.m64n264k16.f32.f16.f16 {%d0}, %x, %y, 1, 1, 1, 0, 0;", "from 8 to 256"),
        ("wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {%d0, %d1, %d2, %d3}, %x, %y, 1, 1, 1, 0, 0;",
         "D is a vector of 8 registers for 16 columns"),
        (EIGHT + "%x, %y, 1, 2, 1, 0, 0;", "scale-a is 1 or -1"),
        (EIGHT + "%x, %y, 1, 1, 0, 0, 0;", "scale-b is 1 or -1"),
        (EIGHT + "%x, %y, 2, 1, 1, 0, 0;", "scale-d is 0 or 1"),
        (EIGHT + "%x, %y, 1, 1, 1, 2, 0;", "trans-a is 0 or 1"),
        (EIGHT + "{%r0, %r1}, %y, 1, 1, 1, 0;", "A is a descriptor or a vector of 4 registers"),
        ("wgmma.wait_group.sync.aligned 8;", "a number of groups from 0 to 7 is needed"),
        ("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r0], [%x, {%r1}], [%r3];",
         "2 coordinates are needed, not 1"),
        ("cp.async.bulk.tensor.6d.shared::cluster.global.mbarrier::complete_tx::bytes [%r0], [%x, {%r1}], [%r3];",
         "modifier '.6d'"),
    ],
)  # fmt: skip
def test_an_instruction_is_refused_with_its_line(line: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "bad.ptx").write_text(PROGRAM.replace("BODY", line))
    done = ptxrun(tmp_path / "bad.ptx", "--block", 128, "--arg", "buf:u32:4")
    assert done.returncode == 2 and "bad.ptx:7: " in done.stderr and says in done.stderr, done.stderr


TAKES_A_MAP = """.version 8.6
.target sm_90
.address_size 64
.visible .entry f(.param .align 64 .b8 map[128])
{
ret;
}
"""


def check(ptx: str, folder: Path, arguments: list[object], status: int, says: str) -> None:
    """That ptxrun ends with this status and says this, or nothing if this is empty."""
    (folder / "map.ptx").write_text(ptx)
    done = ptxrun(folder / "map.ptx", *arguments)
    assert done.returncode == status and says in done.stderr and (says or not done.stderr), done.stderr


@pytest.mark.parametrize(
    ("argument", "status", "says"),
    [
        ("tmap:64x16:64x32:none:buf:f16:1024", 0, "size 1 of the box is 32, that of the tensor 16: the rest of a box"),
        ("tmap:8x16:64x8:128B:buf:f16:128", 0, "size 0 of the box is 64, that of the tensor 8"),
        ("tmap:64x16:64x16:128B:buf:f16:1024", 0, ""),
        ("tmap:64x16:64x8:none:buf:half:1024", 2, "with TYPE one of u8, i8, u16"),
        ("tmap:64x16:8x8:none:buf:u8:1024", 2, "a row of the box has 8 bytes: it must be a multiple of 16"),
        ("tmap:64x16/24:64x8:none:buf:f16:2048", 2, "stride 1 is 24 bytes: it must be a multiple of 16"),
        ("tmap:64x16x2/128x2056:64x8x1:none:buf:f16:4096", 2, "stride 2 is 2056 bytes: it must be a multiple of 16"),
        ("tmap:128x16:128x8:128B:buf:f16:2048", 2, "a row of the box has 256 bytes: with this swizzle it has at most"),
        ("tmap:64x16:64x257:none:buf:f16:1024", 2, "size 1 of the box is 257: it must be from 1 to 256"),
        ("tmap:4294967360x16:64x8:none:buf:f16:1024", 2, "must be tmap:SIZES"),
        ("tmap:64x16:4294967360x8:none:buf:f16:1024", 2, "must be tmap:SIZES"),
        ("tmap:64x16:64x8:16B:buf:f16:1024", 2, "must be tmap:SIZES"),
        ("tmap:64x16:64:none:buf:f16:1024", 2, "must be tmap:SIZES"),
        ("tmap:64x16:64x8:none:f16:1024", 2, "must be tmap:SIZES"),
        ("tmap:64x16:64x8:none:of:7", 2, "'of:7': must be the number of an earlier argument"),
        ("tmap:64x17:64x8:none:buf:f16:1024", 2, "the tensor reaches byte 2176 of a buffer of 2048"),
        ("tmap:64x16:64x0:none:buf:f16:1024", 2, "size 1 of the box is 0"),
        ("buf:u32:4", 2, "has 8 bytes, but parameter 0 of f has 128"),
    ],
)
def test_a_tensor_map_that_is_odd(argument: str, status: int, says: str, tmp_path: Path) -> None:
    """Refused where the driver refuses; a box that is larger than the tensor is legal, and named."""
    check(TAKES_A_MAP, tmp_path, ["--arg", argument], status, says)


@pytest.mark.parametrize(
    ("parameter", "argument", "says"),
    [
        (".u32", "f32:256", "'f32:256' is a number of another kind than parameter 0 of f; write u32:256"),
        (".u64", "f32:256", "parameter 0 of f; write u64:256, or for a buffer buf:f32:256"),
        (".s32", "f32:256", "write i32:256"),
        (".f32", "u32:256", "write f32:256"),
        (".b32", "f32:256", ""),
    ],
)
def test_a_number_of_another_kind_is_refused(parameter: str, argument: str, says: str, tmp_path: Path) -> None:
    text = TAKES_A_MAP.replace(".align 64 .b8 map[128]", f"{parameter} one")
    check(text, tmp_path, ["--arg", argument], 2 if says else 0, says)


@pytest.mark.parametrize(("threads", "missing"), [(32, ""), (16, "64 of 128 bytes of this output were never written")])
def test_atomics_write_an_output(threads: int, missing: str, tmp_path: Path) -> None:
    body = """.reg .b64 %p, %q;
.reg .b32 %t;
ld.param.u64 %p, [o];
mov.u32 %t, %tid.x;
mul.wide.u32 %q, %t, 4;
add.s64 %p, %p, %q;
red.global.add.u32 [%p], 1;
"""
    arguments = ["--block", threads, "--arg", "out:u32:32:zero"]
    check(entry(body, ".param .u64 o"), tmp_path, arguments, bool(missing), missing)


@pytest.mark.parametrize(
    ("option", "sizes", "says"),
    [
        ("--block", "1025", "size x of the block is 1025: it must be from 1 to 1024"),
        ("--block", "2,1,65", "size z of the block is 65: it must be from 1 to 64"),
        ("--block", "16,1,64", ""),
        ("--block", "64,32", "the block has 2048 threads, above 1024"),
        ("--grid", "1,65536", "size y of the grid is 65536: it must be from 1 to 65535"),
        ("--grid", "2147483648", "size x of the grid is 2147483648: it must be from 1 to 2147483647"),
    ],
)
def test_a_launch_that_no_device_takes(option: str, sizes: str, says: str, tmp_path: Path) -> None:
    arguments = [option, sizes, "--arg", "tmap:64x16:64x8:none:buf:f16:1024"]
    check(TAKES_A_MAP, tmp_path, arguments, 2 if says else 0, says)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (PROGRAM.partition("\n")[2].encode(), "the text has no .version"),
        (b"\x7fELF\x02\x01", "an ELF file, such as a cubin or a program, not PTX"),
        (b"\x50\xed\x55\xba\x01\x00", "a fat binary, not PTX"),
        (b"\x1f\x8b\x08", "this begins with byte 0x1f: it is no text of PTX"),
        (b"\xef\xbb\xbf.version 8.6", "this begins with byte 0xef"),
    ],
    ids=["no version", "cubin", "fat binary", "compressed", "byte-order mark"],
)
def test_what_is_no_ptx_is_named(text: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / "odd.ptx"
    path.write_bytes(text)
    done = ptxrun(path, "--block", 32)
    assert done.returncode == 2 and "odd.ptx:1: " in done.stderr and says in done.stderr, done.stderr
