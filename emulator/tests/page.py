"""Fills the generated parts of docs/emulator.md: a message, what came of other people's
kernels, and how the outputs of GPUs compare.

.venv/bin/python emulator/tests/page.py             # rewrite the page
.venv/bin/python emulator/tests/page.py ncu         # print a table that the page leaves out: PARTS
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import hopper_trials
import ncu
import speed
import tried
from support.forms import TYPE, Form, read_forms
from support.markers import PAGE, ROOT, fill

EXAMPLE = """\
.version 8.0
.target sm_80
.address_size 64
.entry reverse(.param .u64 out)
{
    .reg .b32 %r<5>;
    .reg .b64 %rd<3>;
    .shared .align 4 .b8 tile[256];
    .loc 1 6 5
    mov.u32 %r1, %tid.x;
    shl.b32 %r2, %r1, 2;
    mov.u32 %r3, tile;
    add.s32 %r3, %r3, %r2;
    st.shared.u32 [%r3], %r1;
    .loc 1 7 5
    xor.b32 %r2, %r2, 252;
    mov.u32 %r3, tile;
    add.s32 %r3, %r3, %r2;
    @MISSING bar.sync 0;
    ld.shared.u32 %r4, [%r3];
    mul.wide.u32 %rd1, %r1, 4;
    ld.param.u64 %rd2, [out];
    add.s64 %rd1, %rd1, %rd2;
    st.global.u32 [%rd1], %r4;
    ret;
}
.file 1 "reverse.cu"
"""


LOGS = {"an H200": "logs/gpu-check.h200.txt", "an H100": "logs/gpu-check.h100.txt"}  # of `make gpu-check`


def outputs(logs: Mapping[str, str]) -> str:
    """One sentence: how the outputs of versions on each device, by its log, compare with the emulator's."""
    found = {
        device: re.findall(r"(v\d\d) (?:fp16|bf16) output as the emulator's: ok (.*)", log)
        for device, log in logs.items()
    }
    notes = [
        note
        for each in found.values()
        for _, text in each
        for note in re.findall(r"([\d.]+) % differ, by at most ([\d.]+) steps", text)
    ]
    share, steps = (max(float(note[i]) for note in notes) for i in range(2))
    differ = f"at most {share:.2f} % of the outputs differ, by up to {steps:.2f} rounding steps"
    devices: dict[str, list[str]] = {}
    for device, each in found.items():
        devices.setdefault(f"{min(each)[0]} to {max(each)[0]}", []).append(device)
    compared = " and ".join(f"{versions} on {' and '.join(names)}" for versions, names in devices.items())
    return f"{compared}: {differ if steps else 'no output differs'}"


def comparison() -> str:
    """The item of the page about outputs."""
    said = outputs({device: (ROOT / log).read_text() for device, log in LOGS.items()})
    links = ",\n  ".join(f"[{log}](../{log})" for log in LOGS.values())
    return f"- Outputs for five inputs in fp16 and bf16, compared with the emulator's, of {said}\n  ({links})."


def family(form: Form) -> str:
    """The opcode of a form, with the modifier that tells it from others of its opcode."""
    words = [word for token in form.tokens for word in token.rstrip("?").split("|")]
    return ".".join([form.opcode, *(word for word in ("approx", "full", "oob") if word in words)])


def fidelity(forms: Sequence[Form]) -> str:
    """How many forms compute exact bits, and which compute others."""

    def of(bits: str) -> str:
        types: dict[str, set[str]] = {}
        for form in forms:
            if form.bits == bits:
                last = [token for token in form.tokens if TYPE.match(token)][-1:]
                types.setdefault(family(form), set()).update(*(token.split("|") for token in last))
        mixed = {name for name in types if {form.bits for form in forms if family(form) == name} != {bits}}
        return ", ".join(
            f"`{name}`" + (f" of {' and '.join(sorted(words))}" if name in mixed else "")
            for name, words in types.items()
        )

    exact = sum(form.bits == "exact" for form in forms)
    return (
        f"- {exact} of the {len(forms)} forms compute exactly the bits that the PTX ISA defines.\n"
        f"- The bits of {of('recorded')} are those of an H200.\n"
        f"- The bits of {of('formula')} follow a formula of the emulator, and a GPU may give others.\n"
        "- The other forms compute no value."
    )


def wrapped(items: str) -> str:
    """Items of a list, one a line, as paragraphs of at most 120 characters."""
    return "\n".join(
        textwrap.fill(item, 120, subsequent_indent="  ", break_on_hyphens=False) for item in items.splitlines()
    )


def run(*arguments: str) -> str:
    """Output of ptxrun, messages included."""
    done = subprocess.run([ROOT / "bin" / "ptxrun", *arguments], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def message(folder: Path) -> str:
    """What ptxrun says of a kernel that reverses a tile without a barrier: the race alone."""
    source = folder / "reverse.ptx"
    source.write_text(EXAMPLE.replace("    @MISSING bar.sync 0;\n", ""))
    output = run(str(source), "--block", "64", "--arg", "out:u32:64")
    return next(part for part in output.split("\n\n") if part.startswith("race"))


def generate(page: str, folder: Path) -> str:
    """The page with its generated parts as the emulator has them now."""
    page = fill(page, "tried", tried.summary())
    page = fill(page, "outputs", comparison())
    page = fill(page, "fidelity", wrapped(fidelity(read_forms())))
    page = fill(page, "limits", wrapped(run("--explain", "limits")))
    return fill(page, "message", "```text\n" + message(folder) + "\n```")


PARTS: Mapping[str, Callable[[Path], str]] = {
    "hopper": lambda _: hopper_trials.table(),
    "ncu": ncu.table,
    "ncu-hopper": ncu.hopper_table,
    "speed": lambda _: speed.recorded_table(),
    "tried": lambda _: tried.table(),
    "tried-hopper": lambda _: tried.hopper_table(),
}


def main(arguments: Sequence[str]) -> int:
    """Rewrite the page, or print a part; the exit status."""
    if len(arguments) > 1 or not set(arguments) <= PARTS.keys():
        print(f"page.py: there are {', '.join(PARTS)}, not {' '.join(arguments)}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        if arguments:
            print(PARTS[arguments[0]](Path(folder)))
        else:
            PAGE.write_text(generate(PAGE.read_text(), Path(folder)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
