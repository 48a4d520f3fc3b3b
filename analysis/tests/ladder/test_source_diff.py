"""Parts of kernels and their differences: the KV loop, and functions by name."""

from pathlib import Path

import pytest

from analysis.errors import AnalysisError
from analysis.files import root
from analysis.ladder.headers import Version, load_all, read_version
from analysis.ladder.source_diff import KV_LOOP, part_of

HEADER = """/* {version} - made
 *
 * parent    none
 * idea      a made-up kernel
 * predict   nothing
 * config    (FP16, 128, 64, 64, 4): async+load_0_0_0_tiles
 * arch      sm_80
 */
"""
BODY = """static int twice(int a) {
    return 2 * a; /* a brace in a comment: } */
}
struct point {
    int at(int row) const { return row; }
};

void kernel() {
    const auto copy = [&](int block) {
        use(twice(block));
    };
#pragma unroll 1
    for (int k = 0; k < 2; k++) copy(k);
#pragma unroll 1
    for (int block = 0; block < n; block++) {
        copy(block);
        if (block) {
            use(block);
        }
    }
}
"""


def made(folder: Path, version: str, body: str) -> Version:
    path = folder / f"{version}_made.cu"
    path.write_text(HEADER.format(version=version) + body)
    return read_version(path)


def test_a_part_is_a_function_a_lambda_or_the_last_loop(tmp_path: Path) -> None:
    version = made(tmp_path, "v01", BODY)
    first = len(HEADER.splitlines())
    assert part_of(version, "twice") == (first + 1, BODY.splitlines()[:3])
    assert part_of(version, "at") == (first + 5, ["int at(int row) const { return row; }"])
    assert part_of(version, "copy") == (first + 9, [line[4:] for line in BODY.splitlines()[8:11]])
    assert part_of(version, KV_LOOP) == (
        first + 14,
        ["#pragma unroll 1", *(line[4:] for line in BODY.splitlines()[14:20])],
    )


def test_a_loop_that_calls_a_function_is_that_function(tmp_path: Path) -> None:
    called = BODY.replace("block++) {\n        copy(block);", "block++) copy(block);\n    {")
    version = made(tmp_path, "v01", called)
    assert part_of(version, KV_LOOP) == part_of(version, "copy")


def test_a_part_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(AnalysisError, match=r"v01_made.cu: no function 'use': give 'KV loop' or the name of one in it"):
        part_of(made(tmp_path, "v01", BODY), "use")


def test_the_KV_loop_of_every_version_is_the_one_with_the_products() -> None:
    for name, version in load_all(root()).items():
        text = "\n".join(part_of(version, KV_LOOP)[1])
        assert name < "v01" or "dump_S" in text or "start_S" in text, name
