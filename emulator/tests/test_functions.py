"""Functions that are called: parameters, results, recursion, calls by address, lanes that part around and in them."""

import math
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from support.emulation import POINTERS, Array, compiled, entry, ptxrun

SOURCE = Path(__file__).resolve().parent / "support/kernels/functions.cu"
SEEDS = range(0, 21, 4)  # of --schedule
T = np.arange(32)
START = """.reg .b32 %t, %x, %y, %z;
.reg .b64 %in, %out, %own, %f, %wide; .reg .pred %p, %q;
ld.param.u64 %in, [a]; ld.param.u64 %out, [b]; mov.u32 %t, %tid.x; mad.wide.u32 %own, %t, 4, %out;
"""
STORE = "st.global.u32 [%own], %x;\n"
RETURN = ".func (.param .b32 r) "


def call(function: str, parameter: str = "%t", result: str = "%x", guard: str = "", more: str = "") -> str:
    """A call as nvcc writes it, of a function that takes and gives 32 bits."""
    return (
        f"{{\n.param .b32 param0;\nst.param.b32 [param0+0], {parameter};\n.param .b32 retval0;\n"
        f"{guard}call (retval0), {function}, (param0){more};\nld.param.b32 {result}, [retval0+0];\n}}\n"
    )


def function(name: str, body: str, parameter: str = "n") -> str:
    """A function of 32 bits; %n is its parameter, and it gives %d."""
    return (
        f"{RETURN}{name}(.param .b32 {parameter})\n{{\n.reg .b32 %n, %d, %e;\n.reg .pred %p;\n.reg .b64 %a;\n"
        f"ld.param.b32 %n, [{parameter}];\n{body}\nst.param.b32 [r], %d;\nret;\n}}\n"
    )


FACTORIAL = ".func (.param .b32 r) fact(.param .b32 n);\n" + function(
    "fact",
    "mov.b32 %d, 1;\nsetp.lt.u32 %p, %n, 2;\n@%p bra done;\nsub.u32 %e, %n, 1;\n"
    + call("fact", "%e", "%d")
    + "mul.lo.u32 %d, %d, %n;\ndone:",
)
# each calls the other; local memory of each frame keeps what it was given
MUTUAL = (
    ".func (.param .b32 r) odd(.param .b32 n);\n"
    + function(
        "even",
        ".local .align 4 .b8 kept[8];\nst.local.u32 [kept+4], %n;\nmov.b32 %d, 1000;\nsetp.eq.u32 %p, %n, 0;\n"
        "@%p bra done;\nsub.u32 %e, %n, 1;\n"
        + call("odd", "%e", "%d")
        + "mov.u64 %a, kept;\nld.local.u32 %e, [%a+4];\n"
        "add.u32 %d, %d, %e;\ndone:",
    )
    + function(
        "odd",
        ".local .align 4 .b8 kept[4];\nst.local.u32 [kept], %n;\nmov.b32 %d, 2000;\nsetp.eq.u32 %p, %n, 0;\n"
        "@%p bra done;\nsub.u32 %e, %n, 1;\n" + call("even", "%e", "%d") + "ld.local.u32 %e, [kept];\n"
        "add.u32 %d, %d, %e;\ndone:",
    )
)
SQUARE = function("square", "mul.lo.u32 %d, %n, %n;")
TRIPLE = function("triple", "mul.lo.u32 %d, %n, 3;")
# lanes return at different instructions
EARLY = function(
    "early", "mov.b32 %d, 7;\nst.param.b32 [r], %d;\nsetp.lt.u32 %p, %n, 9;\n@%p ret;\nadd.u32 %d, %n, 100;"
)
WARP_SUM = function(
    "warp_sum", "".join(f"shfl.sync.bfly.b32 %d, %n, {d}, 0x1f, -1;\nadd.u32 %n, %n, %d;\n" for d in (16, 8, 4, 2, 1))
    + "mov.b32 %d, %n;"
)  # fmt: skip
LOCK = function(
    "take_turns",
    "mov.u64 %a, lock;\nagain:\natom.global.cas.b32 %e, [%a], 0, 1;\nsetp.ne.u32 %p, %e, 0;\n@%p bra again;\n"
    "ld.volatile.global.u32 %d, [%a+4];\nadd.u32 %d, %d, 1;\nst.volatile.global.u32 [%a+4], %d;\nmembar.gl;\n"
    "atom.global.exch.b32 %e, [%a], 0;",
)


HEAP = (
    ".extern .func (.param .b64 r) malloc(.param .b64 n);\n.extern .func free(.param .b64 p);\n"
    ".global .align 8 .u64 made[64];\n"
)


def malloc(size: str, result: str) -> str:
    return (
        f"{{\n.param .b64 param0;\nst.param.b64 [param0+0], {size};\n.param .b64 retval0;\n"
        f"call.uni (retval0), malloc, (param0);\nld.param.b64 {result}, [retval0+0];\n}}\n"
    )


def free(address: str) -> str:
    return f"{{\n.param .b64 param0;\nst.param.b64 [param0+0], {address};\ncall.uni free, (param0);\n}}\n"


@dataclass(frozen=True)
class Right:
    label: str
    functions: str
    body: str
    want: Array | list[int]
    sort: bool = False


PROTOTYPE = "p0 : .callprototype (.param .b32 _) _ (.param .b32 _);\n"
RIGHT = [
    Right("one call", SQUARE, call("square"), T * T),
    Right("a guarded call", SQUARE, "mov.u32 %x, 5;\nsetp.lt.u32 %p, %t, 9;\n@!%p bra no;\n" + call("square")
          + "no:\n", np.where(T < 9, T * T, 5)),
    Right("recursion", FACTORIAL, "and.b32 %y, %t, 7;\n" + call("fact", "%y"),
          [math.factorial(i % 8) for i in range(32)]),
    Right("mutual recursion with local memory", MUTUAL, call("even"),
          [(1000 if i % 2 == 0 else 2000) + i * (i + 1) // 2 for i in range(32)]),
    Right("lanes that return early", EARLY, call("early"), np.where(T < 9, 7, T + 100)),
    Right("two sides call one function", WARP_SUM, "setp.lt.u32 %p, %t, 5;\n@%p bra few;\n" + call("warp_sum")
          + "bra.uni end;\nfew:\n" + call("warp_sum") + "end:\n", np.full(32, 496)),
    Right("lanes meet in a function", WARP_SUM, "setp.lt.u32 %p, %t, 5;\n@%p bra few;\nadd.u32 %t, %t, 1;\nfew:\n"
          + call("warp_sum"), np.full(32, 496 + 27)),
    Right("by address", SQUARE + TRIPLE, "mov.u64 %f, square;\nand.b32 %y, %t, 1;\nsetp.eq.u32 %p, %y, 0;\n"
          "@%p bra go;\nmov.u64 %f, triple;\ngo:\n" + PROTOTYPE + call("%f", more=", p0"),
          np.where(T % 2, 3 * T, T * T)),
    Right("recursion by address", ".func (.param .b32 r) down(.param .b32 n);\n" + function("down",
          "mov.b32 %d, 0;\nsetp.eq.u32 %p, %n, 0;\n@%p bra done;\nsub.u32 %e, %n, 1;\nmov.u64 %a, down;\n" + PROTOTYPE
          + call("%a", "%e", "%d", more=", p0") + "add.u32 %d, %d, %n;\ndone:"), call("down"), T * (T + 1) // 2),
    Right("from a table", SQUARE + TRIPLE + ".global .align 8 .u64 table[3] = {0, square, triple};\n",
          "and.b32 %y, %t, 1;\nmul.wide.u32 %wide, %y, 8;\nmov.u64 %f, table;\nadd.u64 %f, %f, %wide;\n"
          "ld.global.u64 %f, [%f+8];\n" + PROTOTYPE + call("%f", more=", p0"),
          np.where(T % 2, 3 * T, T * T)),
    Right("among call targets", SQUARE + TRIPLE, "ts : .calltargets square, triple;\nmov.u64 %f, triple;\n"
          + call("%f", more=", ts"), 3 * T),
    Right("registers as parameters", ".func (.reg .b32 d) sum(.reg .b32 a, .reg .b64 b)\n{\n.reg .b32 %l;\n"
          "again:\nadd.u32 a, a, 1;\ncvt.u32.u64 %l, b;\nadd.u32 d, a, %l;\n.reg .pred %p;\nsetp.lt.u32 %p, a, 10;\n"
          "@%p bra again;\nret;\n}\n", "cvt.u64.u32 %wide, %t;\ncall (%x), sum, (%t, 5);\n", np.maximum(T + 1, 10) + 5),
    Right("a struct", ".func (.param .align 8 .b8 r[16]) turn(.param .align 8 .b8 s[16])\n{\n.reg .b32 %u;\n"
          ".reg .b64 %v;\nld.param.b32 %u, [s+4];\nld.param.b64 %v, [s+8];\nst.param.b64 [r], %v;\n"
          "st.param.b32 [r+12], %u;\nret;\n}\n", "{\n.param .align 8 .b8 param0[16];\nst.param.b32 [param0+4], %t;\n"
          "mov.u64 %wide, 0x500000007;\nst.param.b64 [param0+8], %wide;\n.param .align 8 .b8 retval0[16];\n"
          "call.uni (retval0), turn, (param0);\nld.param.v2.b32 {%x, %y}, [retval0];\n"
          "ld.param.b32 %z, [retval0+12];\n}\n"
          "add.u32 %x, %x, %y;\nadd.u32 %x, %x, %z;\n", T + 12),
    Right("a lock in a function", ".global .align 4 .u32 lock[2];\n" + LOCK, call("take_turns"), T + 1, sort=True),
    Right("exit in a function", ".func leave(.param .b32 n)\n{\n.reg .b32 %n;\n.reg .pred %p;\nld.param.b32 %n, [n];\n"
          "setp.lt.u32 %p, %n, 4;\n@%p exit;\nret;\n}\n", "st.global.u32 [%own], 3;\n{\n.param .b32 param0;\n"
          "st.param.b32 [param0], %t;\ncall leave, (param0);\n}\nsetp.lt.u32 %p, %t, 4;\nmov.u32 %x, 9;\n",
          np.where(T < 4, 3, 9)),
    Right("a function that nobody calls", ".func bad()\n{\nno.such.opcode %r1;\nret;\n}\n" + SQUARE,
          call("square"), T * T),
    Right("malloc and free, by another thread", HEAP, malloc("8", "%f") + "st.u32 [%f+4], %t;\nmov.u64 %wide, made;\n"
          "mad.wide.u32 %in, %t, 8, %wide;\nst.global.u64 [%in], %f;\nbar.sync 0;\nxor.b32 %y, %t, 1;\n"
          "mad.wide.u32 %in, %y, 8, %wide;\nld.global.u64 %f, [%in];\nld.u32 %x, [%f+4];\n" + free("%f"), T ^ 1),
    Right("malloc without memory left", HEAP, "cvt.u64.u32 %wide, %t;\nsetp.eq.u32 %p, %t, 9;\n"
          "@%p mov.u64 %wide, 9000000;\n" + malloc("%wide", "%f") + "setp.ne.u64 %p, %f, 0;\nselp.u32 %x, 1, 0, %p;\n",
          (T != 0) & (T != 9)),
    Right("an empty function", ".func nothing()\n{\n}\n", "call nothing;\nmov.u32 %x, %t;\n", T),
]  # fmt: skip


def save(functions: str, body: str, folder: Path) -> Path:
    ptx = folder / "test.ptx"
    ptx.write_text(entry(START + body + STORE, POINTERS, directives='.file 1 "lesson.cu"\n' + functions))
    return ptx


def run(ptx: Path, folder: Path, seed: int = 0, *options: object) -> tuple[int, str, Array]:
    done = ptxrun(
        ptx, "--arg", "buf:u32:32", "--arg", "buf:u32:64", "--dump", f"1={folder / 'out.bin'}", "--schedule", seed,
        *options,
    )  # fmt: skip
    return done.returncode, done.stderr, np.fromfile(folder / "out.bin", np.uint32)[:32]


@pytest.mark.parametrize("case", RIGHT, ids=lambda case: case.label)
def test_right(case: Right, tmp_path: Path) -> None:
    ptx = save(case.functions, case.body, tmp_path)
    for seed in SEEDS:
        status, said, out = run(ptx, tmp_path, seed)
        assert (status, said) == (0, ""), seed
        assert np.array_equal(np.sort(out) if case.sort else out, case.want), (seed, out)


BAD = function("f", ".loc 1 30 0\nsub.u32 %e, %n, 40;\nmov.u64 %a, 0;\nld.global.u32 %d, [%a];")
LOOP = ".func (.param .b32 r) loop(.param .b32 n);\n" + function(
    "loop", "add.u32 %e, %n, 1;\n" + call("loop", "%e", "%d")
)
WRONG = [
    ("the chain of calls", BAD + function("g", ".loc 1 20 0\n" + call("f", "%n", "%d")), ".loc 1 10 0\n" + call("g"),
     ["out-of-bounds at lesson.cu:30", "This is in function 'f', called at lesson.cu:20, PTX line",
      "in function 'g', called at lesson.cu:10, PTX line"], 1),
    ("recursion without end", LOOP, call("loop"), ["the recursion may have no end", "and 10"], 3),
    ("an address that is none", "", "mov.u64 %f, 4096;\n" + PROTOTYPE + call("%f", more=", p0"),
     ["calls 0x1000, where no function begins"], 3),
    ("other parameters by address", ".func (.param .b32 r) wide(.param .b64 n)\n{\nret;\n}\n",
     "mov.u64 %f, wide;\n" + PROTOTYPE + call("%f", more=", p0"), ["Function 'wide' takes other parameters"], 3),
    ("a register that a function does not write", function("f", "add.u32 %d, %e, %n;"), call("f") + call("f"),
     ["uninitialised-register", "%e", "(2 times)"], 1),
    ("a second free", HEAP, malloc("8", "%f") + free("%f") + free("%f"), ["which was freed before", "(32 times)"], 1),
    ("free of a buffer", HEAP, free("%in"), ["which malloc() did not give"], 1),
    ("past what malloc gave", HEAP, malloc("8", "%f") + "ld.u32 %x, [%f+8];\n",
     ["byte 8 of buffer 'malloc at PTX line", "which has 8"], 1),
    ("after free", HEAP, malloc("8", "%f") + free("%f") + "ld.u32 %x, [%f];\n", ["which was freed"], 1),
    ("lanes that wait in a function for those outside", WARP_SUM, "setp.lt.u32 %p, %t, 5;\n@%p bra end;\n"
     + call("warp_sum") + "end:\nbar.warp.sync -1;\n", ["divergent-sync", "function 'warp_sum'"], 1),
]  # fmt: skip


@pytest.mark.parametrize(("functions", "body", "says", "wanted"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG])
def test_wrong(functions: str, body: str, says: list[str], wanted: int, tmp_path: Path) -> None:
    ptx = save(functions, "mov.u32 %x, 0;\n" + body, tmp_path)
    for seed in SEEDS[:5]:
        status, said, _ = run(ptx, tmp_path, seed)
        assert status == wanted, said
        for words in says:
            assert words in said, said


REFUSED = [
    ("unknown function", "", call("nowhere"), "a call needs a function that is declared before it"),
    ("without a body", ".extern .func (.param .b32 r) f(.param .b32 n);\n", call("f"), "function 'f' has no body"),
    ("other size", ".func (.param .b32 r) f(.param .b64 n)\n{\nret;\n}\n", call("f"), "'param0' has 4 bytes where"),
    ("too few", ".func (.param .b32 r) f(.param .b32 n, .param .b32 m)\n{\nret;\n}\n", call("f"),
     "1 results and 1 arguments where 'f' has 1 and 2"),
    ("two bodies", SQUARE + SQUARE, call("square"), "function 'square' is defined twice"),
    ("two kinds", ".func f(.param .b32 n);\n.func f(.param .b64 n);\n", "", "was declared with other parameters"),
    ("bad opcode in a body", function("f", "no.such.opcode %d;"), call("f"), "'no.such.opcode'"),
]  # fmt: skip


@pytest.mark.parametrize(("functions", "body", "says"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
def test_refused(functions: str, body: str, says: str, tmp_path: Path) -> None:
    done = ptxrun(save(functions, body, tmp_path), "--arg", "buf:u32:32", "--arg", "buf:u32:64")
    assert done.returncode == 2
    assert says in done.stderr


def test_many_functions(tmp_path: Path) -> None:
    """The depth of calls is computed in time proportional to the calls, not to their product with the functions."""
    count = 1900
    functions = "".join(f".func f{i}();\n" for i in range(count))
    for i in range(count):
        calls = "".join(f"call f{callee};\n" for callee in range(i + 1, min(i + 40, count), 7))
        functions += f".func f{i}()\n{{\n{calls}ret;\n}}\n"
    (tmp_path / "many.ptx").write_text(
        entry(START + "setp.gt.u32 %p, %t, 99;\n@%p call f0;", POINTERS, "test", functions)
    )
    done = ptxrun(tmp_path / "many.ptx", "--arg", "buf:u32:32", "--arg", "buf:u32:64", timeout=600)
    assert (done.returncode, done.stderr) == (0, "")


def test_counters_of_functions(tmp_path: Path) -> None:
    """Each line of a function counts once per call, in a region of its own name; its loops are regions too."""
    body = (
        ".loc 1 31 0\nmov.b32 %d, 0;\nagain:\nadd.u32 %d, %d, 2;\n.loc 1 33 0\nsetp.lt.u32 %p, %d, 6;\n@%p bra again;"
    )
    ptx = save(function("f", body), ".loc 1 10 0\n" + call("f") + call("f"), tmp_path)
    status, said, out = run(ptx, tmp_path, 0, "--counters-csv", tmp_path / "counts.csv")
    assert (status, said) == (0, "")
    assert (out == 6).all()
    rows = [line.split(",") for line in (tmp_path / "counts.csv").read_text().splitlines()]
    executed, ptx_text = rows[0].index("executed"), rows[0].index("ptx")
    text = (tmp_path / "counts.csv").read_text()
    assert re.search(r'"?mov.b32 %d, 0;.*', text)
    found = {row[ptx_text].strip('"').split(" ")[0]: row[executed] for row in rows[1:] if "%d" in ",".join(row)}
    assert found["mov.b32"] == "2"
    assert found["add.u32"] == "6"
    done = ptxrun(ptx, "--arg", "buf:u32:32", "--arg", "buf:u32:64", "--counters")
    assert "function f" in done.stdout and "loop at lesson.cu:33" in done.stdout


def test_functions_that_nvcc_makes(tmp_path: Path) -> None:
    """Recursion, structs, virtual functions, a table of functions, and f64 functions of the CUDA library."""
    ptx = compiled(SOURCE, tmp_path)
    fibonacci = [0, 1]
    for _ in range(20):
        fibonacci.append(fibonacci[-1] + fibonacci[-2])
    seen = [
        fibonacci[i % 13] + (i + 5 if i & 2 else i * 6) * 1000 + (-i if (i + 5) & 1 else i * i) * 100_000
        for i in range(32)
    ]
    for seed in SEEDS:
        done = ptxrun(
            ptx, "--entry", "calls", "--arg", "out:i32:32", "--arg", "i32:5", "--dump", f"0={tmp_path / 'out.bin'}",
            "--schedule", seed,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, ""), seed
        assert np.fromfile(tmp_path / "out.bin", np.int32).tolist() == seen, seed
    values = np.array([0.1, 1, 2.5, -3.75, 100, 1e5, -1e9, 3e15, 1e22, 1e300, 5e-300, -7e200, 12345.678] * 5)[:64]
    (tmp_path / "in.bin").write_bytes(values.tobytes())
    done = ptxrun(
        ptx, "--entry", "doubles", "--block", 64, "--arg", f"buf:f64:64:@{tmp_path / 'in.bin'}", "--arg", "out:f64:64",
        "--arg", "out:f64:64", "--dump", f"1={tmp_path / 'pow.bin'}", "--dump", f"2={tmp_path / 'sin.bin'}",
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    for name, want in (("pow", np.abs(values) ** 0.7), ("sin", np.sin(values))):
        got = np.fromfile(tmp_path / f"{name}.bin", np.float64)
        assert np.all(np.abs(got - want) <= 2 * np.spacing(np.abs(want))), name
