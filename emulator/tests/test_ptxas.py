"""The emulator accepts what ptxas accepts and rejects what it rejects: forms of arithmetic, comparisons, conversions
and votes, the order of modifiers, and the targets of each form."""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.candidates import REGISTERS, candidates, lines_refused_by_ptxas, orders, refused_by_ptxas
from support.emulation import ptxrun
from test_opcodes import texts

from analysis.tests.support.blackwell import every_tcgen05, every_warp_product

TARGETS = [
    *("sm_53", "sm_60", "sm_61", "sm_70", "sm_72"),  # ptxas checks texts for them, but makes no code for them
    *("sm_75", "sm_80", "sm_86", "sm_87", "sm_88", "sm_89", "sm_90", "sm_90a"),
    *(f"sm_{number}{letter}" for number in (100, 103, 110, 120, 121) for letter in ("", "a", "f")),
]
SOME = ("sm_70", "sm_75", "sm_80", "sm_90", "sm_100", "sm_103f", "sm_110a", "sm_120f")
SPECIAL = re.compile(r"%(?:n?cluster|reserved|is_)\w+")
STATEMENT = re.compile(r"(?:@!?%\w+\s+)?(?!bra|brx|call)([a-z]\w*(?:\.[\w:]+)*)\s*([^;]*);")
# Taken by ptxas and refused here, as the PTX ISA does not have them and ptxas makes code of another instruction:
# fma.rz.bf16 multiplies f16, madc.hi.sat does not saturate, and madc.hi of 16 bits has no product; and forms of PTX ISA
# 9.2 that are not here yet: add.sat of other types than s32, and e4m3 to bf16 with .satfinite.
LEFT_OUT = re.compile(r"fma\b.*\.r[zmp]\..*bf16|madc\.hi.*\.(sat|[us]16)|add\.sat\.(u|s16)|cvt.*\.satfinite\.bf16x2\.e")


def refused_here(path: Path) -> dict[int, str]:
    """What is said of the line at which an entry is rejected."""
    listed = ptxrun(path, "--list")
    return {int(line): said for line, said in re.findall(r"rejected: .*?\.ptx:(\d+): (.*)", listed.stdout)}


def disagreements(instructions: Sequence[str], target: str, folder: Path) -> list[str]:
    bodies = (f".entry e{i}()\n{{\n{REGISTERS}\n{text}\nret;\n}}\n" for i, text in enumerate(instructions))
    (folder / "all.ptx").write_text(f".version 9.2\n.target {target}\n.address_size 64\n" + "".join(bodies))
    ptxas, lines = refused_by_ptxas(instructions, target, folder), refused_here(folder / "all.ptx")
    here = {text: lines[7 + 6 * i] for i, text in enumerate(instructions) if 7 + 6 * i in lines}
    wrong = [f"{target}: {text} ptxas takes it, here: {reason}" for text, reason in here.items()
             if text not in ptxas and not LEFT_OUT.match(text)]  # fmt: skip
    return wrong + [f"{target}: {text} taken here, ptxas: {said}" for text, said in ptxas.items() if text not in here]


def test_a_part_of_all_forms_is_taken_as_ptxas_does(tmp_path: Path) -> None:
    instructions = list(dict.fromkeys([*candidates()[::23], *orders()]))
    wrong = [each for target in SOME for each in disagreements(instructions, target, tmp_path)]
    assert not wrong, f"{len(wrong)}\n" + "\n".join(wrong[:50])


@pytest.mark.long
@pytest.mark.parametrize("target", TARGETS)
def test_all_forms_are_taken_as_ptxas_does(target: str, tmp_path: Path) -> None:
    wrong = disagreements(candidates(), target, tmp_path)
    assert not wrong, f"{len(wrong)}\n" + "\n".join(wrong[:200])


def entries(text: str, seen: set[str]) -> str:
    """The declarations of a module, and for each statement not seen yet an entry with it and with what it may use."""
    made, head, scopes = "", "", [""]
    for line in map(str.strip, text.replace(";", ";\n").replace(",\n    .param", ", .param").splitlines()[3:]):
        found = STATEMENT.fullmatch(line)
        if ".entry" in line:
            head = line.partition(")")[0].partition("(")[2]
        elif line in ("{", "}"):
            scopes = [*scopes, ""] if line == "{" else scopes[:-1]
        elif line.startswith("."):
            scopes[-1] += line + "\n"
        elif found and (key := f"{found[1]} {found[2].count(',')} {SPECIAL.findall(found[2])}") not in seen:
            seen.add(key)
            body = "".join(f"{{\n{each}" for each in scopes[1:])
            made += f".entry e{len(seen)}({head})\n{body}{line}\n{'}' * (len(scopes) - 1)}\n"
    return scopes[0] + made


def with_other_targets(targets: Sequence[str], folder: Path) -> list[str]:
    seen: set[str] = set()
    wrong = []
    for text in [entries(each, seen) for each in (*texts(), every_tcgen05(), every_warp_product())]:
        for target in targets:
            (folder / "k.ptx").write_text(f".version 9.2\n.target {target}\n.address_size 64\n{text}")
            ptxas, here = lines_refused_by_ptxas(folder / "k.ptx"), refused_here(folder / "k.ptx")
            wrong += [f"{target}: {line}, ptxas: {ptxas.get(at)}, here: {here.get(at)}"
                      for at, line in enumerate(text.splitlines(), 4)
                      if (at in ptxas) != (at in here) and not line.startswith(".reg")]  # fmt: skip
    return wrong


@pytest.mark.parametrize("targets", [SOME, pytest.param(TARGETS, marks=pytest.mark.long)], ids=("some", "all"))
def test_targets_are_those_of_ptxas(targets: Sequence[str], tmp_path: Path) -> None:
    wrong = with_other_targets(targets, tmp_path)
    assert not wrong, f"{len(wrong)}\n" + "\n".join(wrong[:50])
