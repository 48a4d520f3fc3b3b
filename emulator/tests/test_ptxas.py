"""Forms that the emulator accepts and rejects, compared with ptxas: arithmetic, comparisons, conversions and votes; and
the order of modifiers."""

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.candidates import REGISTERS, candidates, orders, refused_by_ptxas
from support.emulation import ROOT

OBJECTS = [path for path in (ROOT / "build/emulator").glob("*/*.o") if path.name != "ptxrun.o"]

# Prints what the emulator says of each entry of a file: the refusal, or an empty line.
READER = """
#include "emulator/emu.h"

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    FILE *file = argc > 1 ? fopen(argv[1], "rb") : NULL;
    size_t room = 64u << 20;
    char *text = malloc(room);
    size_t bytes = file && text ? fread(text, 1, room, file) : 0;
    emu_error error;
    emu_module *module = emu_load(text, bytes, &error);
    if (!module) return printf("%s\\n", error.text), 1;
    for (int i = 0; i < emu_entry_count(module); i++)
        printf("%s\\n", emu_decode(module, i, &error) ? "" : error.text);
    return 0;
}
"""

# Taken by ptxas and refused here, as the PTX ISA does not have them and ptxas makes code of another instruction:
# fma.rz.bf16 multiplies f16, madc.hi.sat does not saturate, and madc.hi of 16 bits has no product.
LEFT_OUT = re.compile(r"fma\b.*\.r[zmp]\..*bf16|madc\.hi.*\.sat|madc\.hi\.[us]16")
# The emulator takes values of sm_100 and of a later PTX ISA for every target and version.
NEWER = re.compile(r"redux\.sync.*\.f32|cvt\.r[nz]\b.*\.satfinite\.tf32|cvt\..*(e.m.x2\.bf16x2|bf16x2\.e.m.x2)")


def refused_here(instructions: Sequence[str], folder: Path) -> dict[str, str]:
    (folder / "reader.c").write_text(READER)
    command = ["cc", "-std=c11", "-pthread", f"-I{ROOT}", "-o", folder / "reader", folder / "reader.c", *OBJECTS, "-lm"]
    subprocess.run(command, check=True, timeout=600)
    bodies = (f".entry e{i}()\n{{\n{REGISTERS}\n{text}\nret;\n}}\n" for i, text in enumerate(instructions))
    (folder / "all.ptx").write_text(".version 9.0\n.target sm_90\n.address_size 64\n" + "".join(bodies))
    done = subprocess.run([folder / "reader", folder / "all.ptx"], capture_output=True, text=True, timeout=600)
    answers = done.stdout.split("\n")
    assert done.returncode == 0 and len(answers) == len(instructions) + 1, done.stdout[-2000:] + done.stderr
    return {text: answer for text, answer in zip(instructions, answers, strict=False) if answer}


def disagreements(instructions: Sequence[str], folder: Path) -> list[str]:
    """ptxas of sm_90 takes everything that it takes for sm_80 and sm_89."""
    ptxas, here = refused_by_ptxas(instructions, "sm_90", folder), refused_here(instructions, folder)
    wrong = [f"{text} ptxas takes it, here: {reason}" for text, reason in here.items()
             if text not in ptxas and not LEFT_OUT.match(text)]  # fmt: skip
    return wrong + [f"{text} taken here, ptxas: {reason}" for text, reason in ptxas.items()
                    if text not in here and not NEWER.match(text)]  # fmt: skip


def test_a_part_of_all_forms_is_taken_as_ptxas_does(tmp_path: Path) -> None:
    wrong = disagreements(list(dict.fromkeys([*candidates()[::23], *orders()])), tmp_path)
    assert not wrong, f"{len(wrong)}\n" + "\n".join(wrong[:50])


@pytest.mark.long
def test_all_forms_are_taken_as_ptxas_does(tmp_path: Path) -> None:
    wrong = disagreements(candidates(), tmp_path)
    assert not wrong, f"{len(wrong)}\n" + "\n".join(wrong[:200])
