"""lib/emu.py: arguments of every kind reach the kernel, arrays come back, findings are exceptions."""

import ctypes
import gc
import subprocess
from pathlib import Path

import emu
import numpy as np
import pytest
from support.emulation import ROOT, entry

# Copies every parameter, byte by byte where it is a struct, to `out`.
ARGUMENTS = entry(
    """.reg .b64 %out, %p;
.reg .b32 %r;
.reg .b16 %h;
ld.param.u64 %out, [out];
ld.param.u32 %r, [word];
st.global.u32 [%out], %r;
ld.param.u32 %r, [real];
st.global.u32 [%out+4], %r;
ld.param.u64 %p, [wide];
st.global.u64 [%out+8], %p;
ld.param.u16 %h, [half];
st.global.u16 [%out+16], %h;
ld.param.u8 %h, [flag];
st.global.u8 [%out+18], %h;
ld.param.u32 %r, [pair+4];
st.global.u32 [%out+20], %r;
ld.param.u64 %p, [double];
st.global.u64 [%out+24], %p;""",
    ".param .u64 out, .param .u32 word, .param .f32 real, .param .u64 wide, .param .align 2 .b8 half[2], "
    ".param .u8 flag, .param .align 4 .b8 pair[8], .param .f64 double",
)
ADD = entry(  # [to] = [from] + 1, by each thread of one CTA; %r is dynamic shared memory, to be counted
    """.reg .b64 %to, %from, %i;
.reg .b32 %r;
ld.param.u64 %to, [to];
ld.param.u64 %from, [from];
mov.u32 %r, %tid.x;
mul.wide.u32 %i, %r, 4;
add.s64 %to, %to, %i;
add.s64 %from, %from, %i;
ld.global.u32 %r, [%from];
add.s32 %r, %r, 1;
st.global.u32 [%to], %r;""",
    ".param .u64 to, .param .u64 from",
    name="_Z3addPiS_",
)
TRAP = entry("trap;", name="stop") + ".entry two()\n{\nfrobnicate.b32 1;\n}\n"


class Pair(ctypes.Structure):
    _fields_ = (("first", ctypes.c_int32), ("second", ctypes.c_int32))


def arguments(*values: object) -> bytes:
    out = np.zeros(32, np.uint8)
    emu.Module(ARGUMENTS)["test"][1, 1](out, *values)
    return out.tobytes()


def test_numbers_take_the_type_of_their_parameter() -> None:
    got = arguments(-5, 0.1, 2**63 + 1, np.float16(1.5), True, Pair(7, 8), 0.1)
    assert np.frombuffer(got, np.int32, 1)[0] == -5
    assert np.frombuffer(got, np.float32, 1, 4)[0] == np.float32(0.1)
    assert np.frombuffer(got, np.uint64, 1, 8)[0] == 2**63 + 1
    assert np.frombuffer(got, np.float16, 1, 16)[0] == 1.5 and got[18] == 1
    assert np.frombuffer(got, np.int32, 1, 20)[0] == 8
    assert np.frombuffer(got, np.float64, 1, 24)[0] == 0.1
    record = np.array((1, 9), [("a", "<i4"), ("b", "<i4")])
    got = arguments(
        np.uint32(2**32 - 1), np.float64(0.5), np.int64(-1), b"\1\2", np.uint8(200), record, np.float32(0.5)
    )
    assert np.frombuffer(got, np.uint32, 1)[0] == 2**32 - 1
    assert np.frombuffer(got, np.float32, 1, 4)[0] == 0.5
    assert np.frombuffer(got, np.int64, 1, 8)[0] == -1
    assert got[16:19] == b"\1\2\xc8" and np.frombuffer(got, np.int32, 1, 20)[0] == 9
    assert np.frombuffer(got, np.float64, 1, 24)[0] == 0.5
    assert np.frombuffer(arguments(1, 2, None, b"\1\2", 0, bytes(8), 3), np.float32, 1, 4)[0] == 2


GOOD = (1, 0.5, 0, b"\1\2", 0, bytes(8), 0.5)


@pytest.mark.parametrize(
    ("at", "value", "error", "says"),
    [
        (0, 2.5, TypeError, "argument 1 of test: 2.5 is no value for a parameter of type u32 with 4 bytes"),
        (0, 2**32, ValueError, "argument 1 of test: 4294967296 does not fit into u32"),
        (0, -(2**31) - 1, ValueError, "does not fit into u32"),
        (0, np.zeros(1), TypeError, "the parameter is u32 with 4 bytes, no pointer"),
        (0, np.int64(1), TypeError, "int64 has 8 bytes, and the parameter, u32, has 4"),
        (1, "one", TypeError, "'one' is no value for a parameter of type f32"),
        (3, np.float32(1), TypeError, "float32 has 4 bytes, and the parameter, b8, has 2"),
        (5, bytes(7), TypeError, "bytes has 7 bytes, and the parameter, b8, has 8"),
        (5, 3, TypeError, "3 is no value for a parameter of type b8 with 8 bytes"),
        (2, np.zeros((4, 4))[:, 1], ValueError, "argument 3 of test: the array is not contiguous"),
        (2, np.zeros(0), ValueError, "an array without elements"),
    ],
)
def test_an_argument_that_does_not_fit(at: int, value: object, error: type[Exception], says: str) -> None:
    values = list(GOOD)
    values[at] = value
    with pytest.raises(error) as caught:
        arguments(*values)
    assert says in str(caught.value)


def test_the_number_of_arguments() -> None:
    with pytest.raises(TypeError, match=r"test takes 8 arguments \(u64, u32, f32, u64, b8, u8, b8, f64\), not 2"):
        arguments(1)


def test_arrays_come_back_and_buffers_stay() -> None:
    module = emu.Module(ADD)
    add = module["add"]
    assert add.name == "_Z3addPiS_" and list(module) == [add.name]
    x, y = np.arange(32, dtype=np.int32), np.zeros(32, np.int32)
    total = add[1, 32](y, x).counters.total
    assert np.array_equal(y, x + 1) and np.array_equal(x, np.arange(32))
    assert (total.executed, total.lanes, total.sectors, total.bytes) == (10, 320, 8, 256 + 512)  # and the parameters
    add[1, 32](x, x)
    assert np.array_equal(x, np.arange(32) + 1), "one array, given twice, is one buffer"
    buffer = module.buffer(x, "kept")
    add[1, 32](buffer, buffer)
    add[(1,), (32, 1)](buffer.address, buffer)
    view = buffer.array
    assert np.array_equal(view, x + 2)
    del buffer
    gc.collect()
    module.buffer(np.zeros(32, np.int32))
    assert np.array_equal(view, x + 2), "a view keeps its buffer"


def test_overlapping_arrays_are_refused() -> None:
    both = np.zeros(64, np.int32)
    with pytest.raises(ValueError, match="argument 1 of _Z3addPiS_: the array overlaps another argument"):
        emu.Module(ADD)["add"][1, 32](both[:32], both[1:33])


def test_a_read_only_array() -> None:
    x, y = np.arange(32, dtype=np.int32), np.zeros(32, np.int32)
    x.setflags(write=False)
    y.setflags(write=False)
    add = emu.Module(ADD)["add"]
    add[1, 32](np.zeros(32, np.int32), x)
    with pytest.raises(ValueError, match="wrote to an array that is read-only"):
        add[1, 32](y, x)


def test_findings_are_an_exception_with_records() -> None:
    module = emu.Module(ADD)
    y = np.zeros(33, np.int32)
    with pytest.raises(emu.FindingsError) as caught:
        module["add"][1, 32](emu.Output(y), np.arange(31, dtype=np.int32))
    bounds, never = caught.value.findings
    assert (bounds.kind, bounds.count, bounds.warp, bounds.lane) == ("out-of-bounds", 1, 0, 31)
    assert bounds.here.ptx == "ld.global.u32 %r, [%from];" and bounds.here.line == 0 and bounds.here.file == ""
    assert ADD.splitlines()[bounds.here.ptx_line - 1] == bounds.here.ptx
    assert (never.kind, never.count) == ("output-never-written", 4) and "buffer 'argument 0'" in never.message
    assert bounds.message in str(caught.value) and not isinstance(caught.value, emu.Fault)
    assert y[:32].tolist() == [*range(1, 32), 1], "arrays are copied back all the same"
    assert caught.value.launched.counters.total.executed == 10
    module["add"][1, 32](np.zeros(32, np.int32), np.zeros(32, np.int32))


def test_a_fault() -> None:
    with pytest.raises(emu.Fault) as caught:
        emu.Module(TRAP)["stop"][1, 32]()
    assert [finding.kind for finding in caught.value.findings] == ["trap"]


def test_what_is_refused(tmp_path: Path) -> None:
    module = emu.Module(TRAP)
    line = TRAP.split("frobnicate")[0].count("\n") + 1
    with pytest.raises(emu.Refused, match=f"PTX:{line}: opcode 'frobnicate'") as caught:
        module["two"]
    assert caught.value.line == line
    with pytest.raises(KeyError, match="no kernel has 'none' in its name; there are: stop, two"):
        module["none"]
    with pytest.raises(KeyError, match="2 kernels have 't'"):
        module["t"]
    with pytest.raises(emu.Refused, match="stop: the block has 2048 threads"):
        module["stop"][1, (64, 32)]()
    with pytest.raises(ValueError, match=r"block \(1, 2, 3, 4\): expected 1 to 3 sizes"):
        module["stop"][1, (1, 2, 3, 4)]
    with pytest.raises(TypeError, match=r"no setting 'chekcs'; there are .*checks.*schedule"):
        module["stop"][1, 1](chekcs=False)
    with pytest.raises(ValueError, match="flags are for nvcc"):
        emu.Module(TRAP, flags=["-I."])
    (tmp_path / "wrong.ptx").write_text(".version 8.3\nnonsense\n")
    with pytest.raises(emu.Refused, match=r"wrong\.ptx:2: "):
        emu.Module(tmp_path / "wrong.ptx")
    (tmp_path / "wrong.cu").write_text("__global__ void f() { y = 1; }\n")
    with pytest.raises(emu.Refused, match='identifier "y" is undefined'):
        emu.Module(tmp_path / "wrong.cu")


def test_settings_and_printing(tmp_path: Path) -> None:
    (tmp_path / "hello.cu").write_text(
        "#include <cstdio>\n__global__ void hello(int *out) {\n    extern __shared__ int kept[];\n"
        "    kept[threadIdx.x] = threadIdx.x;\n    out[threadIdx.x] = kept[LAST - threadIdx.x];\n"
        '    if (threadIdx.x < 2) printf("lane %d\\n", threadIdx.x);\n}\n'
    )
    hello = emu.Module(tmp_path / "hello.cu", flags=["-DLAST=63"])["hello"]
    out = np.zeros(64, np.int32)
    launched = hello[1, 64, 256](out, checks=False, threads=1)
    assert launched.printed == "lane 0\nlane 1\n"
    with pytest.raises(emu.FindingsError, match="uninitialised-shared"):
        hello[1, 64, 256](out)
    with pytest.raises(emu.FindingsError, match="out-of-bounds"):
        hello[1, 64, 128](out, checks=False)
    sums = launched.counters.lines()
    assert [line for _, line in sums] == sorted({line for _, line in sums})
    shared = sums[str(tmp_path / "hello.cu"), 4]
    assert (shared.wavefronts, shared.ideal, shared.bytes) == (2, 2, 256)
    assert sum(counts.executed for counts in sums.values()) == launched.counters.total.executed
    group = {row.group for row in launched.counters.rows if row.location.line == 4}
    assert "memory" in group


def test_variables_by_name(tmp_path: Path) -> None:
    (tmp_path / "data.cu").write_text(
        "__constant__ float scale = 3;\n__constant__ int table[4];\n__device__ unsigned calls;\n"
        "__global__ void use(float *out) {\n    out[threadIdx.x] = scale * table[threadIdx.x];\n"
        "    if (threadIdx.x == 0) calls++;\n}\n"
    )
    module = emu.Module(tmp_path / "data.cu")
    out = np.zeros(4, np.float32)
    assert set(module.variables) == {"scale", "table", "calls"}
    assert module.variables["scale"].tolist() == [3.0] and module.variables["scale"].dtype == np.float32
    module.variables["table"] = np.array([1, 2, 3, 4], np.int32)
    use = module["use"]
    use[1, 4](out)
    assert out.tolist() == [3, 6, 9, 12]
    module.variables["scale"] = 0.5
    use[1, 4](out)
    assert out.tolist() == [0.5, 1, 1.5, 2], "the table stays"
    assert module.variables["calls"].tolist() == [2]
    with pytest.raises(ValueError, match="table has 16 bytes of type b8, and the value has 8"):
        module.variables["table"] = np.zeros(1)
    with pytest.raises(KeyError, match="no variable has 'nothing' in its name; there are: "):
        module.variables["nothing"]


def test_settings_of_text() -> None:
    add = emu.Module(ADD)["add"]
    add[1, 32](np.zeros(32, np.int32), np.zeros(31, np.int32), ignore="out-of-bounds")
    with pytest.raises(emu.Refused, match="nonsense"):
        add[1, 32](np.zeros(32, np.int32), np.zeros(31, np.int32), ignore="nonsense")


def test_structs_are_those_of_the_header(tmp_path: Path) -> None:
    """Sizes and offsets that the module reads from emu.h are those of a C compiler."""
    lines = []
    for name, struct in emu._library.structs.items():
        if name.startswith("emu_") and hasattr(struct, "_fields_"):
            lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
            lines += [
                f'printf("{name}.{member} %zu\\n", offsetof({name}, {member}));' for member, *_ in struct._fields_
            ]
    (tmp_path / "sizes.c").write_text("#include <emu.h>\nint main(void) {\n" + "\n".join(lines) + "\n}\n")
    command = ["cc", "-std=c11", f"-I{ROOT / 'lib'}", "-o", tmp_path / "sizes", tmp_path / "sizes.c"]
    subprocess.run(command, check=True, timeout=600)
    done = subprocess.run([tmp_path / "sizes"], capture_output=True, text=True, check=True)
    for line in done.stdout.splitlines():
        what, _, number = line.partition(" ")
        name, _, member = what.partition(".")
        struct = emu._library.structs[name]
        got = getattr(struct, member).offset if member else ctypes.sizeof(struct)
        assert got == int(number), what
    assert len(done.stdout.splitlines()) > 60


def test_clusters_are_launched() -> None:
    """Each thread writes the rank of its CTA."""
    text = ".reg .b64 %to;\n.reg .b32 %r;\nld.param.u64 %to, [to];\nmov.u32 %r, %ctaid.x;\n"
    text += "mad.wide.u32 %to, %r, 4, %to;\nmov.u32 %r, %cluster_ctarank;\nst.global.u32 [%to], %r;"
    kernel = emu.Module(entry(text, ".param .u64 to"))["test"]
    for cluster in (4, (4, 1), (4, 1, 1)):
        out = np.full(8, 99, np.uint32)
        kernel[8, 1](emu.Output(out), cluster=cluster)
        assert out.tolist() == [0, 1, 2, 3] * 2
    with pytest.raises(emu.Refused, match="size x of the grid is 8, not a multiple of the cluster's 3"):
        kernel[8, 1](None, cluster=3)
