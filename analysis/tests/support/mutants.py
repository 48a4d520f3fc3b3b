"""Cubins with one field changed: every byte of a cubin belongs to a field, and each kind of field has a name.

    for each in fields(data): print(each.name, each.start, each.size)
    changed = mutated(data, some_field)

The walker knows nothing of analysis/machine_code, whose eyes it tests.
"""

import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

HEADER = (
    *(("magic", 4), ("class", 1), ("byte order", 1), ("ELF version", 1), ("OS ABI", 1), ("ABI version", 1)),
    *(("padding", 7), ("type", 2), ("machine", 2), ("version", 4), ("entry", 8), ("offset of program headers", 8)),
    *(("offset of section headers", 8), ("flags", 4), ("size of this header", 2), ("size of a program header", 2)),
    *(("number of program headers", 2), ("size of a section header", 2), ("number of section headers", 2)),
    ("index of section names", 2),
)
SEGMENT = (
    *(("type", 4), ("flags", 4), ("offset", 8), ("address", 8), ("physical address", 8), ("size in the file", 8)),
    *(("size", 8), ("alignment", 8)),
)
SECTION = (
    *(("name", 4), ("type", 4), ("flags", 8), ("address", 8), ("offset", 8), ("size", 8), ("link", 4), ("info", 4)),
    *(("alignment", 8), ("entry size", 8)),
)
SYMBOL = (("name", 4), ("type and binding", 1), ("visibility and kind", 1), ("section", 2), ("value", 8), ("size", 8))
RELOCATION = (("offset", 8), ("type", 4), ("symbol", 4), ("addend", 8))
SYMTAB, STRTAB, RELA, NOBITS, REL, INFO, COMPAT = 2, 3, 4, 8, 9, 0x70000000, 0x70000086
WITHOUT_BYTES = (0, NOBITS, 0x70000007, 0x70000009, 0x7000000A, 0x70000015)
NOP = 0x918


@dataclass(frozen=True)
class Field:
    name: str  # the kind: the same for the same field of all symbols, for example
    start: int
    size: int


def _record(name: str, layout: Iterable[tuple[str, int]], at: int) -> Iterator[Field]:
    for part, size in layout:
        yield Field(f"{name}: {part}", at, size)
        at += size


def fields(data: bytes) -> list[Field]:
    """The fields in order of their bytes; what no header mentions is "between sections"."""
    found = list(_record("ELF header", HEADER, 0))
    phoff, shoff = struct.unpack_from("<QQ", data, 32)
    phnum, _, shnum, names_at = struct.unpack_from("<HHHH", data, 56)
    for index in range(phnum):
        found += _record("program header", SEGMENT, phoff + 56 * index)
    headers = [struct.unpack_from("<IIQQQQIIQQ", data, shoff + 64 * index) for index in range(shnum)]
    names = [_text(data, headers[names_at][4] + header[0]) for header in headers]
    taken = set()
    for index, header in enumerate(headers):
        kind, offset, size = header[1], header[4], header[5]
        what = "section header 0" if index == 0 else f"header of {_family(names[index])}"
        found += _record(what, SECTION, shoff + 64 * index)
        if kind not in WITHOUT_BYTES and size and (offset, size) not in taken:
            taken.add((offset, size))  # .nv.merc sections may lie on others
            found += _contents(data, _family(names[index]), header, names)
    return _complete(found, len(data))


def _complete(found: list[Field], end: int) -> list[Field]:
    at, whole = 0, []
    for each in sorted(found, key=lambda each: each.start):
        assert each.start >= at, f"{each} begins before {at}"
        if each.start > at:
            whole.append(Field("between sections", at, each.start - at))
        whole.append(each)
        at = each.start + each.size
    return [*whole, Field("between sections", at, end - at)] if end > at else whole


def _family(name: str) -> str:
    """A section's name without that of its function."""
    if name.startswith(".nv.shared.reserved."):
        return ".nv.shared.reserved"
    if name.startswith(".nv.merc."):
        return ".nv.merc.*"
    if re.match(r"(\.rela?)?\.(nv_)?debug_", name):
        return ".debug_*"
    for prefix in (".nv.capmerc.text", ".rela.text", ".rel.text", ".text", ".nv.info", ".nv.shared", ".nv.local"):
        if name.startswith(prefix + "."):
            return f"{prefix}.KERNEL"
    parts = name.split(".")
    constant = next((place for place, part in enumerate(parts) if part.startswith("constant")), None)
    return ".".join([*parts[: constant + 1], "KERNEL"]) if constant is not None and constant + 1 < len(parts) else name


def _contents(data: bytes, name: str, header: tuple[int, ...], names: list[str]) -> Iterator[Field]:
    kind, start, size = header[1], header[4], header[5]
    if kind == SYMTAB:
        for at in range(start, start + size, 24):
            info, other, section = data[at + 4], data[at + 5], struct.unpack_from("<H", data, at + 6)[0]
            what = _symbol(info, other, section, names) if at > start else "symbol 0"
            yield from _record(what, SYMBOL, at)
    elif kind in (REL, RELA) and not name.endswith("*"):
        layout = RELOCATION if kind == RELA else RELOCATION[:3]
        for at in range(start, start + size, sum(part for _, part in layout)):
            yield from _record(f"relocation in {name}", layout, at)
    elif kind in (INFO, COMPAT):
        yield from _attributes(data, name, start, start + size)
    elif name == ".text.KERNEL":
        for at in range(start, start + size, 16):
            nop = struct.unpack_from("<H", data, at)[0] & 0xFFF == NOP
            what = "NOP" if nop else "instruction"
            yield from _record(what, (("opcode", 2), ("operands", 11), ("control code", 3)), at)
    else:
        yield Field(f"contents of {name}", start, size)


def _symbol(info: int, other: int, section: int, names: list[str]) -> str:
    kind = {0: "no type", 1: "variable", 2: "function", 3: "section", 13: "variable"}.get(
        info & 15, f"type {info & 15}"
    )
    if kind == "function":
        kind = "kernel" if other & 0x10 else "function"
    elif kind == "variable":
        kind += " of " + (_family(names[section]) if 0 < section < len(names) else "another file")
    return f"symbol of a {kind}"


def _attributes(data: bytes, name: str, at: int, end: int) -> Iterator[Field]:
    while at + 4 <= end:
        form, attribute, value = struct.unpack_from("<BBH", data, at)
        what = f"{name} {attribute:#04x}"
        yield from _record(what, (("format", 1), ("number", 1), ("length" if form == 4 else "value", 2)), at)
        at += 4
        if form == 4 and value:
            yield Field(f"{what}: value", at, value)
            at += value
    if at < end:
        yield Field(f"{name}: rest", at, end - at)


def _text(data: bytes, at: int) -> str:
    return data[at : data.index(b"\0", at)].decode()


def mutated(data: bytes, field: Field, byte: int = 0) -> bytes:
    """The lowest bit of one byte of a field is another."""
    changed = bytearray(data)
    changed[field.start + byte] ^= 1
    return bytes(changed)
