"""Declarations of modules: repeated names, alignments, textures, rejected entries next to others, variables, limits."""

from pathlib import Path

import numpy as np
import pytest
from support.emulation import HEADER, entry, ptxrun

FINE = "mov.u32 %r1, 0;"


def refusal(tmp_path: Path, text: str) -> str:
    (tmp_path / "k.ptx").write_text(text)
    done = ptxrun(tmp_path / "k.ptx", "--entry", "test")
    assert done.returncode == 2
    return done.stderr.strip()


def of_body(body: str, directives: str = "") -> str:
    return entry(".reg .b32 %r<3>;\n.reg .pred %p;\n" + body, directives=directives)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (of_body("again:\nagain:\n" + FINE), "label 'again' is defined twice: line 9 has it too"),
        (of_body(FINE) + entry(FINE).removeprefix(HEADER), "entry 'test' is defined twice"),
        (of_body(FINE, ".global .b32 x;\n.global .f32 x;"), "'x' is declared twice in one scope"),
        (of_body(".reg .b32 %a;\n.reg .b32 %a;"), "'%a' is declared twice in one scope"),
        (of_body(".reg .b32 %a<2>;\n.reg .b64 %a<3>;"), "'%a' is declared twice in one scope"),
        (of_body(".shared .b32 s;\n.local .b32 s;"), "'s' is declared twice in one scope"),
        (of_body(FINE, ".global .align 0 .b32 x;"), "the alignment is 0 where a power of two is needed"),
        (of_body(FINE, ".const .align 3 .b32 x;"), "the alignment is 3 where a power of two is needed"),
        (of_body(".local .align 12 .b32 x;"), "the alignment is 12 where a power of two is needed"),
        (of_body(FINE, ".global .u64 x = {y};"), "'y' is not a variable whose address an initial value can be"),
        (of_body("tld4.r.2d.v4.f32.f32 {%r1, %r1, %r1, %r1}, [%d1, {%f1, %f2}];"),
         "gathers of textures are not supported: 'tld4.r.2d.v4.f32.f32'"),
        (of_body("tex.1d.v4.f32.s32 {%r1, %r1, %r1, %r1}, [t, {%r2}];", ".global .texref t;"),
         "unknown name 't' in an address: textures and surfaces by name are not supported, objects are"),
        (of_body("tex.2d.v4.f32.s32 {%r1, %r1, %r1, %r1}, [%d, {%r2}];\n.reg .b64 %d;"), "unknown name '%d'"),
        (of_body(".reg .b64 %d;\ntex.2d.v4.f32.s32 {%r1, %r1, %r1, %r1}, [%d, {%r2}];"),
         "2 coordinates are needed, not 1"),
        (of_body("multimem.ld_reduce.global.add.f32 {%r1}, p, q, 1;"),
         "opcode 'multimem' of 'multimem.ld_reduce.global.add.f32' is not supported"),
        (of_body("ld.relaxed.global.u32 %r1, [x];", ".global .b32 x;"),
         "a scope is missing: .cta, .cluster, .gpu or .sys"),
        (of_body("ld.gpu.global.u32 %r1, [x];", ".global .b32 x;"), "a scope without an order"),
        (of_body("mov.u64 %r1, %clock;"), "%clock has 32 bits where 64 are needed"),
        (of_body(FINE).replace("sm_90a", "sm_80").replace("()", "() .reqnctapercluster 2"),
         ".reqnctapercluster needs .target sm_90 or later, not sm_80: nvcc -arch=sm_90"),
        (of_body("discard.global.L2 [x], 64;", ".global .align 128 .b8 x[128];"), "the size is 128 bytes"),
    ],
)  # fmt: skip
def test_refused_as_by_ptxas(text: str, message: str, tmp_path: Path) -> None:
    assert message in refusal(tmp_path, text)


def test_a_shorter_range_hides_only_its_own_numbers(tmp_path: Path) -> None:
    """As where inline asm declares registers named as those that nvcc numbers."""
    body = """.reg .b32 %r<9>;
    .reg .b64 %p;
    mov.u32 %r1, 5; mov.u32 %r8, 6;
    {
    .reg .b32 %r<2>;
    mov.u32 %r1, 30; add.u32 %r8, %r1, %r8;
    }
    ld.param.u64 %p, [out];
    st.global.v2.u32 [%p], {%r1, %r8};"""
    (tmp_path / "k.ptx").write_text(entry(body, ".param .u64 out"))
    done = ptxrun(tmp_path / "k.ptx", "--block", 1, "--arg", "out:u32:2", "--print", "0")
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.split()[-2:] == ["5", "36"]
    (tmp_path / "k.ptx").write_text(entry(body.replace("%r1, %r8;\n    }", "%r1, %r9;\n    }"), ".param .u64 out"))
    assert "unknown register '%r9'" in ptxrun(tmp_path / "k.ptx", "--arg", "out:u32:2").stderr


def test_elements_of_vectors_of_registers(tmp_path: Path) -> None:
    body = """.reg .v2 .f32 v, %w;
    .reg .v4 .b32 q; .reg .b64 %p;
    mov.f32 v.x, 0f40000000; mov.f32 v.y, 0f40400000; mul.f32 %w.x, v.x, v.y; mov.u32 q.w, 7;
    cvt.rzi.u32.f32 q.x, %w.x; add.u32 q.z, q.w, q.x; ld.param.u64 %p, [out];
    st.global.v2.u32 [%p], {q.z, q.w};"""
    (tmp_path / "k.ptx").write_text(entry(body, ".param .u64 out"))
    done = ptxrun(tmp_path / "k.ptx", "--block", 1, "--arg", "out:u32:2", "--print", "0")
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.split()[-2:] == ["13", "7"]
    for element in ("v.z", "v"):
        (tmp_path / "k.ptx").write_text(entry(body.replace("v.x, v.y", f"v.x, {element}"), ".param .u64 out"))
        assert ptxrun(tmp_path / "k.ptx", "--arg", "out:u32:2").returncode == 2


def test_ranges_of_vectors_of_registers(tmp_path: Path) -> None:
    body = """.reg .v2.b32 %v<3>, w<2>;
    .reg .b64 %p;
    mov.v2.b32 %v2, {3, 4}; mov.v2.b32 %v0, {1, 2}; mov.v2.b32 w1, {%v2.y, %v0.x};
    ld.param.u64 %p, [out];
    st.global.v2.u32 [%p], w1;"""
    (tmp_path / "k.ptx").write_text(entry(body, ".param .u64 out"))
    done = ptxrun(tmp_path / "k.ptx", "--block", 1, "--arg", "out:u32:2", "--print", "0")
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.split()[-2:] == ["4", "1"]
    for wrong in ("%v3, {3", "w2, {3"):
        (tmp_path / "k.ptx").write_text(entry(body.replace("%v2, {3", wrong), ".param .u64 out"))
        assert ptxrun(tmp_path / "k.ptx", "--arg", "out:u32:2").returncode == 2
    (tmp_path / "k.ptx").write_text(entry(body.replace("w<2>", f"{'w' * 80}<2>"), ".param .u64 out"))
    assert "the name of a vector is too long" in ptxrun(tmp_path / "k.ptx", "--arg", "out:u32:2").stderr


WHOLE = """.reg .v4 .b32 q, t;
    .reg .v2 .b32 w; .reg .b32 %r<3>; .reg .b64 %p, %d;
    mov.v4.u32 q, {10, 20, 30, 40}; mov.v4.b32 t, q;
    mov.v2.u32 {%r1, %r2}, {t.z, t.w};
    mov.v2.u32 {%r2, %r1}, {%r1, %r2};
    mov.v2.u32 {_, t.x}, 5; mov.b64 %d, {%r1, %r2}; mov.b64 w, %d; ld.param.u64 %p, [out];
    st.global.v4.u32 [%p], t; st.global.v2.u32 [%p+16], w; ld.global.v4.u32 q, [%p]; mov.b64 %d, w;
    st.global.v2.u32 [%p+24], {q.y, q.z};
    st.global.u64 [%p+32], %d;"""


def test_a_vector_of_registers_as_a_whole(tmp_path: Path) -> None:
    (tmp_path / "k.ptx").write_text(entry(WHOLE, ".param .u64 out"))
    done = ptxrun(tmp_path / "k.ptx", "--block", 1, "--arg", "out:u32:10", "--print", "0")
    assert (done.returncode, done.stderr) == (0, "")
    words = [word for word in done.stdout.split() if not word.endswith(":")]
    assert [int(word) for word in words[-10:]] == [5, 20, 30, 40, 40, 30, 20, 30, 40, 30]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("mov.v4.b32 q, w;", "a vector of 4 elements is needed"),
        ("mov.v4.b64 {%d, %d, %d, %d}, {%d, %d, %d, %d};", "a move takes at most 16 bytes"),
        ("mov.v2.b128 w, w;", "modifier '.b128' of 'mov.v2.b128' is not supported in this position"),
        ("add.u32 q, q, q;", "in 'add.u32 q, q, q;'"),
        ("st.global.v2.u32 [%p], {w, %r1};", "the vector 'w' is in a list: name its elements"),
        (".reg .b32 w;", "'w' is declared twice in one scope"),
    ],
)
def test_a_whole_vector_refused_as_by_ptxas(line: str, message: str, tmp_path: Path) -> None:
    assert message in refusal(tmp_path, entry(WHOLE + line, ".param .u64 out"))


def test_a_name_says_the_space_of_a_generic_access(tmp_path: Path) -> None:
    body = """.shared .align 4 .b32 s;
    .shared .align 4 .b32 count;
    .local .b32 l;
    .reg .b32 %r<5>; .reg .b64 %p;
    st.u32 [s], 5; ld.shared.u32 %r1, [s]; st.local.u32 [l], 7; ld.u32 %r2, [l];
    st.shared.u32 [count], 1; atom.add.u32 %r3, [count], 8; ld.u32 %r4, [count];
    ld.param.u64 %p, [out];
    st.global.v4.u32 [%p], {%r1, %r2, %r3, %r4};"""
    (tmp_path / "k.ptx").write_text(entry(body, ".param .u64 out"))
    done = ptxrun(tmp_path / "k.ptx", "--block", 1, "--arg", "out:u32:4", "--print", "0")
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.split()[-4:] == ["5", "7", "1", "9"]
    wrong = entry(body.replace("ld.u32 %r2, [l]", "ld.u32 %r2, [out]"), ".param .u64 out")
    assert "'out' is not in the space of this access" in refusal(tmp_path, wrong)


def test_names_may_be_given_again_in_another_scope(tmp_path: Path) -> None:
    body = "again:\n{ .reg .b32 %r1;\nagain:\nmov.u32 %r1, 1; }\n.shared .b32 other;\n"
    text = of_body(body, ".extern .global .b32 x;\n.global .b32 x;\n.global .b32 other;")
    (tmp_path / "k.ptx").write_text(text.replace("test()", "test(.param .u32 other)"))
    done = ptxrun(tmp_path / "k.ptx", "--arg", "u32:1")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_refused_entry_leaves_the_others(tmp_path: Path) -> None:
    """--list names it with the reason, and the others run."""
    bad = ".reg .b32 %r<2>;\nsuq.width.b32 %r1, [s];"
    text = entry("", name="first") + entry(bad, name="bad").removeprefix(HEADER)
    text += entry("", ".param .f32 x", name="last").removeprefix(HEADER)
    (tmp_path / "k.ptx").write_text(text.replace(".address_size 64\n", ".address_size 64\n.global .surfref s;\n", 1))
    done = ptxrun(tmp_path / "k.ptx", "--list")
    assert done.returncode == 2 and done.stderr.endswith("k.ptx: 1 of 3 entries are rejected\n")
    line = text.splitlines().index("suq.width.b32 %r1, [s];") + 2
    assert done.stdout.splitlines() == [
        "first",
        "  1 PTX instructions, 0 bytes of static shared memory",
        "bad",
        f"  rejected: {tmp_path}/k.ptx:{line}: questions about surfaces are not supported: 'suq.width.b32'",
        "last",
        "  1 PTX instructions, 0 bytes of static shared memory",
        "  parameter 0: f32, 4 bytes at 0",
    ]
    assert ptxrun(tmp_path / "k.ptx", "--entry", "last", "--arg", "f32:1").returncode == 0


VARIABLES = """
.const .align 4 .f32 factors[4] = {1.0, -2.0, 0f40400000};
.global .align 4 .s32 counter = -7;
.global .align 8 .u64 address = {generic(factors)+4};
.global .align 1 .b8 low[2] = {0xff(counter), 0xff00(counter)};
.global .align 8 .f64 unset;
"""
READS = """
.reg .b32 %r<4>; .reg .f32 %f<4>; .reg .b64 %d<4>;
ld.param.u64 %d1, [out]; ld.global.u64 %d2, [address]; ld.f32 %f1, [%d2];
ld.const.f32 %f2, [factors+8]; add.f32 %f1, %f1, %f2; st.global.f32 [%d1], %f1;
atom.global.add.s32 %r1, [counter], 1; ld.global.u8 %r2, [low]; mov.u64 %d3, counter;
cvt.u32.u64 %r3, %d3; and.b32 %r3, %r3, 255; sub.s32 %r2, %r2, %r3; add.s32 %r1, %r1, %r2;
st.global.s32 [%d1+4], %r1;
"""


def run_variables(tmp_path: Path, *options: object) -> tuple[str, np.ndarray]:  # type: ignore[type-arg]
    (tmp_path / "k.ptx").write_text(entry(READS, ".param .u64 out", directives=VARIABLES))
    done = ptxrun(tmp_path / "k.ptx", "--block", 1, "--arg", "out:u8:8", "--dump", f"0={tmp_path / 'out'}", *options)
    assert done.returncode == 0, done.stderr
    return done.stdout, np.fromfile(tmp_path / "out", np.int32)


def test_variables_have_their_initial_values(tmp_path: Path) -> None:
    shown, out = run_variables(tmp_path, "--print", "counter", "--print", "factors:2", "--print", "unset")
    assert (out[:1].view(np.float32)[0], out[1]) == (1.0, -7)
    assert shown == (
        "variable counter: 1 x i32\n       0: -6\n"
        "variable factors: 4 x f32\n       0: 1 -2\n   and 2 more; --print factors:COUNT shows more, "
        "--dump factors=FILE writes all\nvariable unset: 1 x f64\n       0: 0\n"
    )


def test_variables_are_set_by_name(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(np.array([0, 10, 20, 0], np.float32).tobytes())
    _, out = run_variables(tmp_path, "--data", f"factors=f32:4:@{tmp_path / 'f'}", "--data", "count=i32:41")
    assert (out[:1].view(np.float32)[0], out[1]) == (30.0, 41)
    _, out = run_variables(tmp_path, "--data", "factors=f32:4:ramp", "--data", "address=buf:f32:1:poison",
                           "--dump", f"counter={tmp_path / 'counter'}")  # fmt: skip
    assert np.isnan(out[:1].view(np.float32)[0])
    assert np.fromfile(tmp_path / "counter", np.int32) == [-6]


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (("--data", "nothing=f32:1"), "--data nothing=f32:1: nothing does not match exactly one variable"),
        (("--data", "t=f32:1"), "t does not match exactly one variable"),
        (("--data", "factors=f32:1"), "'f32:1' has 4 bytes, but the variable has 16"),
        (("--data", "factors=f32:3:ramp"), "'3' x f32 does not match the variable, which has 16 bytes"),
        (("--data", "factors=f32:4:zigzag"), "'zigzag': is not a fill"),
        (("--data", "counter"), "must be NAME=SPEC"),
        (("--data", "counter=i32:x"), "'x': must be a value of type i32"),
        (("--print", "nothing"), "--print nothing: does not match exactly one variable"),
    ],
)
def test_what_is_wrong_with_a_variable_is_said(option: tuple[str, str], message: str, tmp_path: Path) -> None:
    (tmp_path / "k.ptx").write_text(entry(READS, ".param .u64 out", directives=VARIABLES))
    done = ptxrun(tmp_path / "k.ptx", "--block", 1, "--arg", "out:u8:8", *option)
    assert done.returncode == 2 and message in done.stderr


def test_an_endless_file_is_refused() -> None:
    done = ptxrun("/dev/zero")
    assert done.returncode == 2
    assert done.stderr == "ptxrun: /dev/zero: must have at most 268435456 bytes\n"


def test_vectors_of_bytes_are_packed_and_unpacked(tmp_path: Path) -> None:
    body = """.reg .b64 %o;
.reg .b32 %x, %y, %z; .reg .b8 %c<4>;
ld.param.u64 %o, [out]; ld.param.u32 %x, [x]; mov.b32 {%c0, %c1, %c2, %c3}, %x; cvt.u32.u8 %y, %c3;
mov.b32 %z, {%c3, %c2, %c1, %c0}; st.global.u32 [%o], %y;
st.global.u32 [%o+4], %z;"""
    (tmp_path / "bytes.ptx").write_text(entry(body, ".param .u64 out, .param .u32 x"))
    done = ptxrun(tmp_path / "bytes.ptx", "--block", 1, "--arg", "buf:u32:2", "--arg", f"u32:{0x84030201}",
                  "--print", 0)  # fmt: skip
    assert done.stdout.split(":")[-1].split() == [str(0x84), str(0x01020384)], done.stderr
