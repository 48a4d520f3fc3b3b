"""Kernels that nvcc makes from ordinary CUDA run and are right; what the emulator does not know is refused by name."""

from pathlib import Path

import numpy as np
import pytest
from support.emulation import POINTERS, compiled, entry, ptxrun

PIPELINE = Path(__file__).resolve().parent / "support/kernels/pipeline.cu"


def run_pipeline(ptx: Path, folder: Path, *options: object) -> tuple[int, str]:
    done = ptxrun(ptx, "--block", 128, "--arg", "struct:[buf:f32:1280:rand,out:f32:1152,i32:10]", "--dump",
        f"0.0={folder / 'in.bin'}", "--dump", f"0.1={folder / 'out.bin'}", *options)  # fmt: skip
    return done.returncode, done.stderr


def test_asynchronous_pipeline(tmp_path: Path) -> None:
    ptx = compiled(PIPELINE, tmp_path)
    for schedule in range(4):
        assert run_pipeline(ptx, tmp_path, "--schedule", schedule) == (0, "")
        rows = np.fromfile(tmp_path / "in.bin", np.float32).reshape(10, 128)
        assert np.array_equal(np.fromfile(tmp_path / "out.bin", np.float32), (0.5 * (rows[:-1] + rows[1:])).ravel())


def test_pipeline_that_waits_too_little(tmp_path: Path) -> None:
    """It keeps one group too many in flight."""
    status, text = run_pipeline(compiled(PIPELINE, tmp_path, "compute_80", "-DKEEP=2"), tmp_path)
    assert status == 1 and "async-in-flight" in text and "pipeline.cu:" in text, text


REFUSED = [
    ("an opcode", "vadd.s32.s32.s32 %r1, %r1, %r1;", "vadd"),
    ("a type", "add.s8 %r1, %r1, %r1;", "s8"),
    ("a shape", "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 {%f1}, {%r1}, {%r1}, {%f1};", "m8n8k4"),
    ("an instruction of another architecture", "tcgen05.wait::ld.sync.aligned;", "tcgen05"),
    ("a narrow source", "add.s64 %rd1, %rd1, %r1;", "%r1"),
    ("a narrow result of a load", "ld.global.u32 %rs1, [%rd1];", "%rs1"),
    ("a 16-bit address", "ld.global.u32 %r1, [%rs1];", "%rs1"),
    ("a predicate as a number", "add.s32 %r1, %r1, %p1;", "%p1"),
    ("a guard that is no predicate", "@%r1 add.s32 %r1, %r1, 1;", "%r1"),
    ("a missing operand", "add.s32 %r1, %r1;", "add"),
    ("an undeclared register", "add.s32 %r1, %r1, %r99;", "%r99"),
    ("an undeclared variable", "mov.u64 %rd1, nothing;", "nothing"),
    ("a fragment of the wrong length", "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1, %r2}, [%r1];", "ldmatrix"),
    ("an operand that is no immediate", "lop3.b32 %r1, %r1, %r1, %r1, %r1;", "lop3"),
    ("a copy of 5 bytes", "cp.async.ca.shared.global [%r1], [%rd1], 5;", "5"),
    ("a comparison that flushes another type", "setp.lt.ftz.bf16 %p1, %rs1, %rs1;", ".lt.ftz does not exist for .bf16"),
    ("a vote without .sync", "vote.ballot.b32 %r1, %p1;", ".sync is missing"),
    ("a missing semicolon", "add.s32 %r1, %r1, %r1", ""),
]  # fmt: skip


@pytest.mark.parametrize(("code", "name"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_refused_by_line_and_name(code: str, name: str, tmp_path: Path) -> None:
    registers = ".reg .b16 %rs<4>;\n.reg .b32 %r<4>;\n.reg .b64 %rd<4>;\n.reg .f32 %f<8>;\n.reg .pred %p<4>;\n"
    text = entry(f"{registers}mov.u32 %r1, 0;\n{code}")
    line = text[: text.index(code)].count("\n") + 1
    path = tmp_path / "refused.ptx"
    path.write_text(text)
    done = ptxrun(path)
    assert done.returncode == 2, done.stderr
    where, _, why = done.stderr.partition(": ")[2].partition(": ")
    # a missing semicolon is seen at the next token
    assert where in (f"{path}:{line}", f"{path}:{line + (name == '')}"), done.stderr
    assert name in why and why.count("\n") == 1, done.stderr


@pytest.mark.parametrize(("args", "says"), [
    ([], "the file is missing"),
    (["nothing.ptx"], "nothing.ptx"),
    (["--frobnicate"], "--frobnicate"),
    (["FILE", "--arg", "i32:7"], "has 2 parameters"),
    (["FILE", "--arg", "i32:7", "--arg", "buf:f32:8"], "parameter 0"),
    (["FILE", "--arg", "buf:f32:0", "--arg", "i32:1"], "'0': must be a number of elements"),
    (["FILE", "--arg", "buf:f33:8", "--arg", "i32:1"], "bf16"),
    (["FILE", "--arg", "buf:f32:8:stripes", "--arg", "i32:1"], "stripes"),
    (["FILE", "--arg", "buf:f32:8:@/nothing/here", "--arg", "i32:1"], "/nothing/here"),
    (["FILE", "--arg", "buf:f32:8", "--arg", "i32:3000000000"], "3000000000"),
    (["FILE", "--arg", "buf:f32:8", "--arg", "i32:seven"], "seven"),
    (["FILE", "--arg", "buf:f32:8", "--arg", "struct:i32:7"], "struct:[MEMBER"),
    (["FILE", "--arg", "buf:f32:8", "--arg", "i32:1", "--print", "1"], "argument 1 has no buffer"),
    (["FILE", "--arg", "buf:f32:8", "--arg", "i32:1", "--dump", "0"], "N=FILE"),
    (["FILE", "--arg", "buf:f32:8", "--arg", "i32:1", "--entry", "other"], "other"),
    (["FILE", "--arg", "buf:f32:8", "--arg", "i32:1", "--grid", "0"], "--grid 0"),
    (["FILE", "--arg", "buf:f32:8", "--arg", "i32:1", "--block", "2048"], "1024"),
    (["FILE", "--arg", "buf:f32:8", "--arg", "i32:1", "--block", "1,2,3,4"], "X,Y,Z"),
    (["FILE", "--arg", "buf:f32:8", "--arg", "i32:1", "--smem", "999999999"], "999999999"),
    (["FILE", "--checks", "maybe"], "on or off"),
    (["FILE", "--trace", "cta=first"], "cta=N"),
    (["FILE", "--seed"], "--seed: the value is missing"),
    (["FILE", "--list=yes"], "does not accept a value"),
    (["FILE", "FILE"], "must be the only file"),
    (["FILE", "--", "-I."], "must be a CUDA file"),
])  # fmt: skip
def test_usage_errors_name_the_value(args: list[str], says: str, tmp_path: Path) -> None:
    path = tmp_path / "empty.ptx"
    path.write_text(entry("", ".param .u64 data, .param .u32 count"))
    done = ptxrun(*[str(path) if word == "FILE" else word for word in args])
    assert done.returncode == 2 and says in done.stderr and done.stderr.startswith("ptxrun: "), done.stderr


def test_help_has_a_short_name() -> None:
    done = ptxrun("-h")
    assert done.returncode == 0 and done.stdout.startswith("usage: ptxrun") and done.stdout == ptxrun("--help").stdout


def test_arguments_reach_the_kernel(tmp_path: Path) -> None:
    """One parameter of every kind, copied into a buffer and printed."""
    body = """.reg .b64 %p, %d;
.reg .b32 %r; .reg .b16 %h; .reg .f32 %f;
ld.param.u64 %p, [out]; ld.param.u32 %r, [number]; st.global.u32 [%p], %r; ld.param.f32 %f, [real];
st.global.f32 [%p+4], %f; ld.param.u64 %d, [long]; st.global.u64 [%p+8], %d;
ld.param.u64 %d, [both+8]; ld.global.u16 %h, [%d+2]; st.global.u16 [%p+16], %h;
ld.param.u16 %h, [both+2]; st.global.u16 [%p+18], %h; ld.param.u32 %r, [raw+4];
st.global.u32 [%p+20], %r;
"""
    path, raw = tmp_path / "args.ptx", tmp_path / "raw.bin"
    raw.write_bytes(np.array([1, 77, 3], np.uint32).tobytes())
    path.write_text(entry(body, ".param .u32 number, .param .f32 real, .param .u64 long, .param .u64 out, "
                          ".param .align 8 .b8 both[16], .param .align 4 .b8 raw[12]"))  # fmt: skip
    done = ptxrun(path, "--block", 1, "--arg", "i32:-5", "--arg", "f32:0.1", "--arg", "u64:0x123456789abcdef", "--arg",
        "out:u8:24", "--arg", "struct:[u8:1,u16:513,buf:f16:2:ramp]", "--arg", f"bytes:@{raw}", "--dump",
        f"3={tmp_path / 'out.bin'}", "--print", "3:2", "--print", "4.2")  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    blob = (tmp_path / "out.bin").read_bytes()
    assert np.frombuffer(blob, np.int32, 1)[0] == -5 and np.frombuffer(blob, np.float32, 1, 4)[0] == np.float32(0.1)
    assert np.frombuffer(blob, np.uint64, 1, 8)[0] == 0x123456789ABCDEF
    assert np.frombuffer(blob, np.float16, 1, 16)[0] == 1 and np.frombuffer(blob, np.uint16, 1, 18)[0] == 513
    assert np.frombuffer(blob, np.uint32, 1, 20)[0] == 77
    assert done.stdout.splitlines() == [
        "argument 3: 24 x u8",
        "       0: 251 255",
        "   and 22 more; --print 3:COUNT shows more, --dump 3=FILE writes all",
        "argument 4.2: 2 x f16",
        "       0: 0 1",
    ]


@pytest.mark.parametrize(("kind", "dtype"), [("u8", "u1"), ("i16", "i2"), ("u32", "u4"), ("i64", "i8"), ("f16", "f2"),
                                             ("f32", "f4"), ("f64", "f8"), ("bf16", "u2")])  # fmt: skip
def test_fills(kind: str, dtype: str, tmp_path: Path) -> None:
    path = tmp_path / "fill.ptx"
    path.write_text(entry("", POINTERS))

    def filled(how: str, seed: int = 1) -> np.ndarray:  # type: ignore[type-arg]
        done = ptxrun(path, "--arg", "buf:u8:1", "--arg", f"buf:{kind}:1000:{how}", "--seed", seed, "--dump",
                      f"1={tmp_path / 'fill.bin'}")  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")
        values = np.fromfile(tmp_path / "fill.bin", dtype)
        return (values.astype(np.uint32) << 16).view(np.float32) if kind == "bf16" else values

    assert not filled("zero").any()
    ramp = np.arange(1000) % 256 if kind == "u8" else np.arange(1000)
    error = np.abs(filled("ramp").astype(np.float64) - ramp)
    assert error.max() <= (2 if kind == "bf16" else 0)
    first = filled("rand")
    assert np.array_equal(first, filled("rand")) and not np.array_equal(first, filled("rand", 2))
    if kind in ("f16", "f32", "f64", "bf16"):
        assert np.isnan(filled("poison")).all()
        assert (
            np.abs(first).max() <= 1
            and abs(float(first.mean(dtype=np.float64))) < 0.1
            and first.std(dtype=np.float64) > 0.5
        )
    else:
        assert len(np.unique(first)) > 200


OLD = """.version 6.3
.target sm_70
.address_size 64
.visible .entry test(.param .u64 out)
{
.reg .b32 %r<6>; .reg .b64 %rd<3>; .reg .pred %p<3>;
ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4; add.s64 %rd1, %rd1, %rd2;
setp.lt.u32 %p1, %r1, 12; setp.lt.u32 %p2, %r1, 5; mov.u32 %r2, 7; @%p1 vote.ballot.b32 %r2, %p2;
@%p1 shfl.bfly.b32 %r3, %r1, 1, 31; @%p1 shl.b32 %r3, %r3, 8; @%p1 or.b32 %r2, %r2, %r3;
st.global.u32 [%rd1], %r2;
ret;
}
"""


def test_votes_and_shuffles_of_old_ptx(tmp_path: Path) -> None:
    """Without .sync they take the lanes that are there; newer PTX has no such form."""
    (tmp_path / "old.ptx").write_text(OLD)
    done = ptxrun(tmp_path / "old.ptx", "--block", 32, "--arg", "out:u32:32", "--dump", f"0={tmp_path / 'out'}")
    assert (done.returncode, done.stderr) == (0, "")
    want = [(lane ^ 1) << 8 | 0x1F if lane < 12 else 7 for lane in range(32)]
    assert np.fromfile(tmp_path / "out", np.uint32).tolist() == want
