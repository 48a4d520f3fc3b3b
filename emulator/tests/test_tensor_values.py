"""Copies through tensor maps: bits, fill and corners as an H200 has them, records/tensor_copies.h200.csv."""

import csv
from pathlib import Path

import numpy as np
import pytest
from support.emulation import Array, ptxrun
from vectors.tensor_fields import HEADER

WORDS, ROW_BYTES, ROWS = 64, 64, 8  # of the box; of the tensor
BYTES = (1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4)  # of an element, by CUtensorMapDataType
ELEMENTS = (0, 1, 2, 3, 4, 5, 6, 7, 9, 10, 8, 11, 12)  # the elemtype field of tensormap.replace, likewise
LOAD = """mbarrier.init.shared.b64 [%bar], 1;
fence.mbarrier_init.release.cluster;
mbarrier.arrive.expect_tx.shared.b64 _, [%bar], 256;
cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%box], [%maps, {COLUMN, ROW}], [%bar];
wait:
mbarrier.try_wait.parity.shared.b64 %p, [%bar], 0;
@!%p bra wait;"""
GROUP = "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;"
DOES = {
    "load": LOAD,
    "store": "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%maps, {COLUMN, ROW}], [%box];\n" + GROUP,
    "add": "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.bulk_group [%maps, {COLUMN, ROW}], [%box];\n" + GROUP,
    "bulk add": "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%tensor], [%box], 256;\n" + GROUP,
}
KERNEL = (
    HEADER
    + """.shared .align 128 .b8 map[128];
.shared .align 128 .b8 smem[256];
.shared .align 8 .b64 mbarrier;
.visible .entry copy(.param .u64 tensor, .param .u64 values, .param .u64 maps, .param .u64 out)
{
.reg .b32 %t, %s, %box, %bar, %v<2>, %at;
.reg .b64 %tensor, %values, %maps, %out, %map, %stride, %offset; .reg .pred %p, %other;
ld.param.u64 %tensor, [tensor]; ld.param.u64 %values, [values]; ld.param.u64 %maps, [maps];
ld.param.u64 %out, [out]; mov.u32 %t, %tid.x; mov.u32 %s, map; mov.u32 %box, smem;
mov.u32 %bar, mbarrier; cvt.u64.u32 %map, %s; shl.b32 %at, %t, 2; add.u32 %s, %s, %at;
st.shared.b32 [%s], 0; shl.b32 %at, %t, 3; cvt.u64.u32 %offset, %at;
add.u64 %values, %values, %offset; add.u64 %out, %out, %offset;
ld.global.v2.b32 {%v0, %v1}, [%values]; add.u32 %s, %box, %at; st.shared.v2.b32 [%s], {%v0, %v1};
fence.proxy.async.shared::cta;
bar.warp.sync -1;
setp.ne.u32 %other, %t, 0;
@%other bra made;
mov.u64 %stride, 64;
mov.u32 %v0, COLUMNS;
mov.u32 %v1, 8; tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%map], %tensor;
tensormap.replace.tile.rank.shared::cta.b1024.b32 [%map], 1;
tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%map], 0, COLUMNS;
tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%map], 1, 4;
tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%map], 0, %v0;
tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%map], 1, %v1;
tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [%map], 0, %stride;
tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%map], 0, 1;
tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%map], 1, 1;
tensormap.replace.tile.elemtype.shared::cta.b1024.b32 [%map], ELEMENT;
tensormap.replace.tile.fill_mode.shared::cta.b1024.b32 [%map], FILL;
made:
bar.warp.sync -1;
tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%maps], [%map], 128;
fence.proxy.tensormap::generic.acquire.gpu [%maps], 128;
bar.warp.sync -1;
@%other bra done;
DOES
done:
bar.warp.sync -1;
KEEP
ret;
}
"""
)
KEEP = "ld.shared.v2.b32 {%v0, %v1}, [%s];\nst.global.v2.b32 [%out], {%v0, %v1};"


def recorded() -> list[dict[str, str]]:
    path = Path(__file__).parent / "records/tensor_copies.h200.csv"
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


RECORD = recorded()
VALUES = next(row["words"] for row in RECORD if (row["operation"], row["type"]) == ("load", "7"))


def words(text: str) -> Array:
    return np.array([int(each, 16) for each in text.split()], np.uint32)


def copied(row: dict[str, str], folder: Path, kernel: str = KERNEL) -> tuple[str, Array]:
    """The message of ptxrun, and the words of the record's last column."""
    kind, before = int(row["type"]), int(row["before"], 16)
    loads, columns = row["operation"] == "load", ROW_BYTES // BYTES[kind]
    text = kernel.replace("DOES", DOES[row["operation"]]).replace("KEEP", KEEP if loads else "")
    for name, value in (("COLUMNS", columns), ("COLUMN", row["column"]), ("ROW", row["row"]), ("FILL", row["fill"])):
        text = text.replace(name, str(value))
    (folder / "copy.ptx").write_text(text.replace("ELEMENT", str(ELEMENTS[kind])))
    tensor = np.full(ROWS * ROW_BYTES // 4, before, np.uint32)
    smem = np.full(WORDS, before, np.uint32)
    (tensor if loads else smem)[:WORDS] = words(VALUES)
    tensor.tofile(folder / "tensor.bin")
    smem.tofile(folder / "smem.bin")
    done = ptxrun(
        folder / "copy.ptx", "--block", 32, "--arg", f"buf:u32:{tensor.size}:@{folder / 'tensor.bin'}", "--arg",
        f"buf:u32:{WORDS}:@{folder / 'smem.bin'}", "--arg", "buf:u8:128", "--arg", f"buf:u32:{WORDS}",
        f"--dump={3 if loads else 0}={folder / 'out.bin'}",
    )  # fmt: skip
    assert done.returncode in (0, 1, 3), done.stderr
    return done.stderr, np.fromfile(folder / "out.bin", np.uint32)[:WORDS]


def name_of(row: dict[str, str]) -> str:
    return "-".join(value for field, value in row.items() if field not in ("end", "words"))


@pytest.mark.parametrize("row", [row for row in RECORD if row["end"] == "done"], ids=name_of)
def test_the_words_are_those_of_the_gpu(row: dict[str, str], tmp_path: Path) -> None:
    said, got = copied(row, tmp_path)
    assert said == "" and (got == words(row["words"])).all(), said


@pytest.mark.parametrize("row", [row for row in RECORD if row["end"] != "done"], ids=name_of)
def test_what_a_gpu_refuses_is_reported(row: dict[str, str], tmp_path: Path) -> None:
    said, _ = copied(row, tmp_path)
    column, line = int(row["column"]), int(row["row"])
    if row["end"] == "refused":
        says = "fill mode of the tensor map" if row["fill"] == "2" else "of integers cannot become NaN"
    elif row["operation"] == "add" and row["type"] == "1":
        says = "integers of 2 bytes"
    elif column * BYTES[int(row["type"])] % 16:
        says = f"begins at column {column}, byte {column * BYTES[int(row['type'])]} of a row: it must be a multiple of"
    else:
        assert min(column, line) < 0
        says = "must not begin before the tensor"
    assert says in said, said


ACQUIRE = "fence.proxy.tensormap::generic.acquire.gpu [%maps], 128;\n"
WRITTEN = "tensormap.cp_fenceproxy"
LATER = "tensormap.replace.tile.fill_mode.global.b1024.b32 [%maps], 0;\n"
FENCES = {
    "by all lanes": ("", "", ACQUIRE, ""),
    "by another lane, before a barrier": ("", "", "@%p " + ACQUIRE, ""),
    "by nobody": ("", "", "", "missing-proxy-fence"),
    "before the write": (ACQUIRE, "", "", "missing-proxy-fence"),
    "before another write": ("", ACQUIRE + "bar.warp.sync -1;\n@!%other " + LATER, "", "missing-proxy-fence"),
    "of the async proxy": ("", "", "fence.proxy.async;\n", "missing-proxy-fence"),
}


@pytest.mark.parametrize("who", FENCES)
def test_a_copy_needs_a_fence_after_its_tensor_map_is_written(who: str, tmp_path: Path) -> None:
    before, between, after, finding = FENCES[who]
    kernel = KERNEL.replace(ACQUIRE, "setp.eq.u32 %p, %t, 7;\n" + between + after)
    kernel = kernel.replace(WRITTEN, before + WRITTEN)
    row = next(row for row in RECORD if (row["operation"], row["type"], row["end"]) == ("load", "7", "done"))
    said, _ = copied(row, tmp_path, kernel)
    assert (f"1 finding: {finding} " in said) if finding else said == "", said
