"""Device printf: what a host's printf() makes of the same format and arguments, and the number of arguments."""

import struct
from pathlib import Path

from support.emulation import entry, ptxrun

Argument = int | float | str
CASES: list[tuple[str, list[Argument], str]] = [
    ("plain, %d%%", [7], "plain, 7%"),
    ("[%*d|%-*d|%d]", [6, 42, 4, 1, 5], "[    42|1   |5]"),
    ("[%*d]", [-6, 42], "[42    ]"),
    ("[%8s|%-8s|%.2s|%*s]", ["ab", "cd", "efgh", 3, "i"], "[      ab|cd      |ef|  i]"),
    ("[%5c|%-3c]", [ord("x"), ord("y")], "[    x|y  ]"),
    ("[%hd|%hhu|%hhd|%hu]", [70000, 300, 200, 70000], "[4464|44|-56|4464]"),
    ("[%600d]", [1], f"[{' ' * 599}1]"),
    ("[%.*f|%8.3f|%-8.1e|%G]", [2, 2.5, 3.14159, 12345.0, 0.5], "[2.50|   3.142|1.2e+04 |0.5]"),
    ("[%.3d|%+d|% d|%05d|%#x|%08X|%o]", [5, 3, 4, -42, 255, 48879, 8], "[005|+3| 4|-0042|0xff|0000BEEF|10]"),
    ("[%i|%u]", [-3, -1], "[-3|4294967295]"),
    ("50% ! 5", [], "50% ! 5"),
]
WIDE: tuple[str, list[Argument], str] = (
    "[%ld|%lld|%p|%zu|%d]",
    [-5, 1 << 40, 4096, 9, 1],
    "[-5|1099511627776|0x1000|9|1]",
)
ALL = [*CASES, WIDE]


def text_bytes(text: str) -> str:
    """A PTX initializer."""
    return ", ".join(map(str, [*text.encode(), 0]))


def call(number: int, arguments: list[Argument], wide: bool) -> tuple[str, str]:
    """A call with format number `number` whose result is added to %sum, and the strings it passes."""
    lines, variables, at = [f"mov.u64 %f, format{number};", "cvta.global.u64 %f, %f;"], "", 0
    for i, value in enumerate(arguments):
        size = 4 if isinstance(value, int) and (not wide or i == len(arguments) - 1) else 8
        at = (at + size - 1) // size * size
        bits = value if isinstance(value, int) else 0
        if isinstance(value, float):
            (bits,) = struct.unpack("<q", struct.pack("<d", value))
        if isinstance(value, str):
            variables += f".global .align 1 .b8 text{number}_{i}[{len(value) + 1}] = {{{text_bytes(value)}}};\n"
            lines += [f"mov.u64 %x, text{number}_{i};", "cvta.global.u64 %x, %x;", f"st.u64 [%v+{at}], %x;"]
        else:
            lines.append(f"st.{'u32' if size == 4 else 'u64'} [%v+{at}], {bits};")
        at += size
    lines += ["{", ".param .b64 param0;", "st.param.b64 [param0+0], %f;", ".param .b64 param1;"]
    lines += ["st.param.b64 [param1+0], %v;", ".param .b32 retval0;"]
    lines += ["call.uni (retval0), vprintf, (param0, param1);", "ld.param.b32 %r, [retval0+0];", "}"]
    return "\n".join([*lines, "add.u32 %sum, %sum, %r;"]), variables


def test_conversions_are_those_of_the_host(tmp_path: Path) -> None:
    directives = ".extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 v);\n"
    body = ".reg .b64 %f, %v, %x;\n.reg .b32 %r, %sum;\n.local .align 8 .b8 frame[64];\nmov.u32 %sum, 0;\n"
    body += "mov.u64 %v, frame;\ncvta.local.u64 %v, %v;\n"
    for number, (form, arguments, _) in enumerate(ALL):
        lines, variables = call(number, list(arguments), wide=number == len(CASES))
        directives += variables
        directives += f".global .align 1 .b8 format{number}[{len(form) + 2}] = {{{text_bytes(form + chr(10))}}};\n"
        body += lines + "\n"
    path = tmp_path / "printf.ptx"
    body += "ld.param.u64 %x, [out];\nst.global.u32 [%x], %sum;"
    path.write_text(entry(body, ".param .u64 out", directives=directives))
    done = ptxrun(path, "--block", 1, "--arg", "buf:u32:1", "--print", "0")
    printed = done.stdout.splitlines()
    assert (done.returncode, printed[: len(ALL)], done.stderr) == (0, [want for *_, want in ALL], "")
    taken = sum(len(arguments) for _, arguments, _ in ALL)
    assert printed[-1].split() == ["0:", str(taken)], "printf() returns how many arguments it took"
