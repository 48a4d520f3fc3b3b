"""The emulator's own table of PTX forms, and which of its alternatives a text of PTX uses.

table = read_forms()                      # rows of `ptxrun --forms`
unused = missing(table, ptx_text)         # "cvt rn|rz? ...: rz" for each alternative that no instruction uses
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from support.emulation import ptxrun

TYPE = re.compile(r"pred|[bsuf]\d+|bf16|f16x2|bf16x2|tf32|e[45]m[23].*")
OPCODE = re.compile(r"^(?:@!?%?\w+\s+)?([a-z0-9]+(?:\.[\w:]+)*)")


@dataclass(frozen=True)
class Form:
    opcode: str
    tokens: tuple[str, ...]  # "rn|rz?", as the table writes them
    operands: str
    bits: str  # "exact", "recorded", "formula", or "" where it computes no value

    def match(self, pieces: list[str]) -> list[tuple[int, str]] | None:
        """(token, alternative) of each modifier, or None. Types keep their order, as in forms.c for legal PTX."""
        if pieces[0] != self.opcode:
            return None
        used: dict[int, str] = {}
        after = 0
        for piece in pieces[1:]:
            kept = TYPE.fullmatch(piece)
            fitting = [
                index
                for index, token in enumerate(self.tokens)
                if index not in used and piece in token.rstrip("?").split("|") and (index >= after or not kept)
            ]
            if not fitting:
                return None
            used[fitting[0]] = piece
            after = fitting[0] + 1 if kept else after
        missing = [token for index, token in enumerate(self.tokens) if index not in used and not token.endswith("?")]
        return None if missing else sorted(used.items())

    def __str__(self) -> str:
        return " ".join([self.opcode, *self.tokens])


def read_forms() -> list[Form]:
    rows = []
    for line in ptxrun("--forms").stdout.splitlines()[2:]:
        opcode, modifiers, operands, _, bits, *_ = (cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:])
        rows.append(Form(opcode, tuple(modifiers.replace("\\|", "|").split()), operands, bits))
    return rows


def opcodes(text: str) -> set[str]:
    """The distinct opcodes with their modifiers."""
    lines = text.replace(";", ";\n").splitlines()
    return {match[1] for line in lines if (match := OPCODE.match(line.strip())) and line.rstrip().endswith(";")}


# Tokens that mean the same in all rows of an opcode: one row with each of their words will do.
COMMON = ("relaxed|", "cta|cluster|", "shared|shared::cta", "global|shared|", "L2::cache_hint")


def missing(table: Iterable[Form], text: str) -> list[str]:
    """Forms that no instruction uses: entire rows, and alternatives of one row, or of all rows if they are common."""
    rows = list(table)

    def key(row: Form, token: str) -> tuple[str, str]:
        return (row.opcode if token.startswith(COMMON) else str(row)), token

    unused = {(key(row, token), word) for row in rows for token in row.tokens for word in token.rstrip("?").split("|")}
    unused_rows = set(rows)
    for opcode in opcodes(text):
        for row in rows:
            used = row.match(opcode.split("."))
            if used is not None:
                unused_rows.discard(row)
                unused -= {(key(row, row.tokens[index]), word) for index, word in used}
                break
    whole = {str(row) for row in unused_rows}
    partly: dict[str, list[str]] = {}
    for (where, token), word in unused:
        if where not in whole:
            partly.setdefault(f"{where} ({token})", []).append(word)
    return sorted([f"{row}: all of it" for row in whole]) + sorted(
        f"{where}: {'|'.join(sorted(words))}" for where, words in partly.items()
    )
