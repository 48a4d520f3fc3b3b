"""Values that nothing gave are followed: silent where they are dropped, and a finding where they matter."""

from pathlib import Path

import pytest
from support.emulation import entry, ptxrun

START = """.reg .b32 %t, %s, %x, %y, %z, %a<4>, %b<2>;
.reg .f32 %c<4>, %d<4>; .reg .b64 %p, %w; .reg .pred %q, %r, %v;
.loc 1 10 0
ld.param.u64 %p, [data]; mov.u32 %t, %tid.x; mov.u32 %s, smem; mad.lo.u32 %s, %t, 16, %s;
mad.wide.u32 %p, %t, 4, %p;
"""
# %x comes from shared memory that nobody has written, but in the first 16 threads.
TAIL = (
    START + "setp.lt.u32 %q, %t, 16;\n@%q st.shared.u32 [%s], 7;\n.loc 1 11 0\nld.shared.u32 %x, [%s];\n.loc 1 12 0\n"
)
# %x is a register that only the first 16 threads have written.
SOME = START + "setp.lt.u32 %q, %t, 16;\n@%q mov.u32 %x, 7;\n.loc 1 12 0\n"

DROPPED = {
    "unused": "add.u32 %y, %x, 1;",
    "guarded store": "add.u32 %y, %x, 1;\n@%q st.global.u32 [%p], %y;",
    "select": "add.u32 %y, %x, 1;\nselp.b32 %y, %y, 0, %q;\nst.global.u32 [%p], %y;",
    "and": "setp.gt.u32 %v, %x, 3;\nand.pred %v, %v, %q;\n@%v st.global.u32 [%p], %t;",
    "compare and": "setp.gt.and.u32 %v, %x, 3, %q;\n@%v bra end;\nst.global.u32 [%p], %t;",
    "or": "not.pred %r, %q;\nsetp.gt.u32 %v, %x, 3;\nor.pred %v, %v, %r;\n@%v st.global.u32 [%p], %t;",
    "overwritten": "add.u32 %y, %x, 1;\nmov.u32 %y, 3;\nst.global.u32 [%p], %y;",
    "dropped in shared memory": "st.shared.u32 [%s+4], %x;\nld.shared.u32 %y, [%s+4];\n@%q st.global.u32 [%p], %y;",
    "overwritten in shared memory": "st.shared.u32 [%s+4], %x;\nst.shared.u32 [%s+4], 1;\nld.shared.u32 %y, [%s+4];\n"
    "st.global.u32 [%p], %y;",
    "other lanes that drop it": "shfl.sync.bfly.b32 %y, %x, 16, 31, -1;\nselp.b32 %y, 0, %y, %q;\n"
    "st.global.u32 [%p], %y;",
    "lanes apart": "shfl.sync.bfly.b32 %y, %x, 1, 31, -1;\n@%q st.global.u32 [%p], %y;",
    "beyond the segment": "shfl.sync.up.b32 %y, %t, 8, 0, -1;\nshfl.sync.down.b32 %z, %x, 1, 0x100f, -1;\n"
    "@%q st.global.u32 [%p], %z;",
    "guarded address": "mul.wide.u32 %w, %x, 0;\nadd.u64 %w, %w, %p;\n@%q ld.global.u32 %y, [%w];",
}
HALVES = ".reg .b16 %l, %h;\ncvt.u16.u32 %l, %t;\ncvt.u16.u32 %h, %x;\n"
DROPPED["upper half"] = f"{HALVES}mov.b32 %y, {{%l, %h}};\nst.global.u16 [%p], %y;"
MATTERS = {
    "both halves": (f"{HALVES}mov.b32 %y, {{%l, %h}};\nst.global.u32 [%p], %y;", "to global memory"),
    "lower half": (f"{HALVES}mov.b32 %y, {{%h, %l}};\nst.global.u16 [%p], %y;", "to global memory"),
    "store": ("add.u32 %y, %x, 1;\nst.global.u32 [%p], %y;", "to global memory"),
    "wide store": ("mul.wide.u32 %w, %x, 3;\nst.global.u32 [%p], %w;", "to global memory"),
    "address": ("mul.wide.u32 %w, %x, 0;\nadd.u64 %w, %w, %p;\nld.global.u32 %y, [%w];", "as an address"),
    "branch": ("setp.gt.u32 %v, %x, 3;\n@%v bra end;", "to choose a branch"),
    "guard of a store": ("setp.gt.u32 %v, %x, 3;\n@%v st.global.u32 [%p], %t;", "as its guard"),
    "guard of a value": ("setp.gt.u32 %v, %x, 3;\nmov.u32 %y, 1;\n@%v mov.u32 %y, 2;\nst.global.u32 [%p], %y;",
                         "to global memory"),
    "another lane": ("shfl.sync.bfly.b32 %y, %x, 16, 31, -1;\n@%q st.global.u32 [%p], %y;", "to global memory"),
    "lane of a shuffle": ("shfl.sync.idx.b32 %y, %t, %x, 31, -1;", "as a lane of a shuffle"),
    "vote": ("setp.gt.u32 %v, %x, 3;\nvote.sync.any.pred %v, %v, -1;", "as data for other lanes"),
    "select": ("not.pred %r, %q;\nselp.b32 %y, %x, 0, %r;\nst.global.u32 [%p], %y;", "to global memory"),
    "and": ("not.pred %r, %q;\nsetp.gt.u32 %v, %x, 3;\nand.pred %v, %v, %r;\n@%v st.global.u32 [%p], %t;",
            "as its guard"),
    "shared memory": ("st.shared.u32 [%s+4], %x;\nbar.sync 0;\nld.shared.u32 %y, [%s+4];\nst.global.u32 [%p], %y;",
                      "to global memory"),
    "atomic": ("atom.global.add.u32 %y, [%p], %x;", "as an operand"),
}  # fmt: skip


DIRECTIVES = '.file 1 "lesson.cu"\n.shared .align 16 .b8 smem[1024];\n'


def run(body: str, folder: Path, directives: str = "") -> tuple[int, str]:
    path = folder / "undefined.ptx"
    path.write_text(entry(body + "\nend:", ".param .u64 data", directives=DIRECTIVES + directives))
    done = ptxrun(path, "--block", 32, "--arg", "buf:u32:64")
    return done.returncode, done.stderr


@pytest.mark.parametrize("source", [TAIL, SOME], ids=["shared", "register"])
@pytest.mark.parametrize("kind", DROPPED)
def test_dropped_values_are_silent(kind: str, source: str, tmp_path: Path) -> None:
    assert run(source + DROPPED[kind], tmp_path) == (0, "")


@pytest.mark.parametrize("source", [TAIL, SOME], ids=["shared", "register"])
@pytest.mark.parametrize("kind", MATTERS)
def test_values_that_matter_are_reported(kind: str, source: str, tmp_path: Path) -> None:
    code, says = MATTERS[kind]
    status, text = run(source + code, tmp_path)
    shared = source is TAIL
    assert status == 1 and text.startswith(f"uninitialised-{'shared' if shared else 'register'} at lesson.cu:12"), text
    assert says in text and "warp 0, lane" in text
    if kind == "another lane":
        assert "warp 0, lane 0" in text
    elif kind != "vote":
        assert "lane 16" in text
    if shared:
        assert "The other instruction is at lesson.cu:11" in text and "read from shared memory at 0x" in text
    else:
        assert "comes from register %x, which 16 lanes of the warp never wrote" in text


# One matrix of B, whose row 5 (of eight columns of the product) nobody has written.
MATRICES = (
    START
    + """setp.ne.u32 %q, %t, 5;
@%q st.shared.v4.u32 [%s], {%t, %t, %t, %t};
bar.sync 0;
.loc 1 11 0
ldmatrix.sync.aligned.m8n8.x1TRANS.shared.b16 {%b0}, [%s]; mov.u32 %a0, 0; mov.f32 %c0, 0f00000000;
mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%d0, %d1, %d2, %d3}, {%a0, %a0}, {%b0}, {%c0, %c0, %c0, %c0};
and.b32 %x, %t, 3;
setp.LANES.u32 %v, %x, 2;
.loc 1 12 0
@%v st.global.f32 [%p], %dRESULT;"""
)


@pytest.mark.parametrize(
    ("transposed", "lanes", "result", "found"),
    [
        ("", "ne", 0, False),  # columns 0, 2, 6
        ("", "ne", 1, False),
        ("", "eq", 0, False),  # column 4
        ("", "eq", 1, True),  # column 5
        ("", "eq", 3, True),
        (".trans", "ne", 0, True),  # a row of k is in all columns
    ],
)
def test_mma_passes_a_column_on(transposed: str, lanes: str, result: int, found: bool, tmp_path: Path) -> None:
    body = MATRICES.replace("TRANS", transposed).replace("LANES", lanes).replace("RESULT", str(result))
    status, text = run(body, tmp_path)
    assert status == found, text
    assert not found or ("lesson.cu:12" in text and "lesson.cu:11" in text)
    assert not found or "read from shared memory at 0x450" in text, "row 5 of 16 bytes, of a matrix at 0x400"


def test_local_memory_is_not_followed(tmp_path: Path) -> None:
    """It starts with zeros here, and what is stored there counts as defined: docs/emulator.md says so."""
    body = (
        SOME + ".local .align 4 .b8 own[4];\nst.local.u32 [own], %x;\nld.local.u32 %y, [own];\nst.global.u32 [%p], %y;"
    )
    assert run(body, tmp_path) == (0, "")


# A struct of eight bytes, of which the last three are padding, as nvcc passes it.
TAKE = ".func take(.param .align 4 .b8 one[8]) {\n.reg .b32 %r;\nld.param.b32 %r, [one+4];\nret;\n}\n"
PASS = """.reg .b16 %h<2>;
cvt.u16.u32 %h0, %t;
{
.param .align 4 .b8 one[8];
st.param.b32 [one], MEMBER;
st.param.v4.b8 [one+4], {%h0, %h1, %h1, %h1};
call.uni take, (one);
}"""


def test_padding_of_a_struct_is_passed_silently(tmp_path: Path) -> None:
    assert run(SOME + PASS.replace("MEMBER", "%t"), tmp_path, TAKE) == (0, "")
    status, text = run(SOME + PASS.replace("MEMBER", "%x"), tmp_path, TAKE)
    assert status == 1 and "as a parameter or result of a function" in text and "register %x" in text, text
