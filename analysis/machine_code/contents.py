"""The contents of a cubin that the driver and the hardware read, item by item, so that two builds can be compared
completely.

    for item in items_of(Cubin.read(path)): print(item.kind, item.symbol, item.facts)

An item is a kernel, a device function with a section of its own, a variable, or the file itself. Its facts are
everything that the cubin says of it but what IGNORED names: what is not known is compared as bytes. Indices of symbols
and sections are replaced by names, so that facts do not depend on what else is in the file or where it is stored.
"""

import hashlib
import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from analysis.errors import AnalysisError
from analysis.ladder.config import KernelConfig
from analysis.machine_code.cubin import (
    FRAME_SIZE,
    REGCOUNT,
    SEGMENT_BYTES,
    SHT_REL,
    SHT_RELA,
    SHT_WITHOUT_BYTES,
    STO_CUDA_ENTRY,
    STT_FUNC,
    Cubin,
    Section,
    Symbol,
)
from analysis.machine_code.names import config_of

KERNEL, FUNCTION, VARIABLE, FILE = "kernel", "function", "variable", "file"
OF_FILE = "the file"  # instead of a symbol
CODE, CAPSULE = "code", ".nv.capmerc.text"

# Sections that neither the driver nor the hardware reads, and why.
IGNORED = {
    r"\.strtab|\.shstrtab|\.symtab": "tables of names: every name is compared where it is used",
    r"\.debug_\w+|\.nv_debug_\w+(\..*)?|\.rela?\.(debug_\w+|nv_debug_\w+)(\..*)?": "for debuggers and profilers",
    r"\.note\.nv\.tkinfo": "which compiler made it, with which options",
    r"\.nv\.merc\..*": "what a finaliser for another architecture needs; its code, .nv.capmerc.text, is compared",
}
_IGNORED = re.compile("|".join(f"(?:{pattern})" for pattern in IGNORED))

STT_OBJECT, STT_SECTION, STT_CUDA_OBJECT = 1, 3, 13
SHT_INFO, SHT_CAPSULE = 0x70000000, 0x70000016
NOT_DEBUG = 0xFFFFFF  # of the flags of ABI 8; the highest byte says what the file holds for debuggers
SHF_ALLOC, SHF_EXECUTE, SHF_INFO_LINK = 2, 4, 0x40
MIN_STACK_SIZE, MAX_STACK_SIZE, PARAM_CBANK, EXTERNS, CUDA_API_VERSION = 0x12, 0x23, 0x0A, 0x0F, 0x37
OF_SYMBOLS = {REGCOUNT: "registers", FRAME_SIZE: "stack frame", MIN_STACK_SIZE: "stack", MAX_STACK_SIZE: "stack"}
ATTRIBUTES = {
    0x05: "max threads",
    0x10: "required threads",
    0x17: "parameter",
    0x19: "parameter bytes",
    0x1B: "register limit",
    0x1C: "exits",
    0x1E: "call stack",
    0x28: "warp-wide instructions of cooperative groups",
    0x31: "warp-wide instructions",
    0x34: "indirect branches",
    0x36: "hardware workarounds",
    0x38: "mbarriers",
    0x39: "instructions with mbarriers",
    0x3D: "CTAs of a cluster",
    0x3E: "explicit cluster",
    0x3F: "largest cluster",
    0x41: "reserved shared memory",
    0x45: "parameter",
    0x4C: "barriers",
}
# Sections of one function, by the prefix of its name.
_OWNED = re.compile(
    r"(\.(?:rela?\.)?(?:text|nv\.(?:info|shared|local|constant\d+|rel\.action))|\.nv\.capmerc\.text)\.(.+)", re.DOTALL
)
_VARIABLES = re.compile(r"\.nv\.(constant\d+|global(\.init)?)$")
# Hashes of the file that the compiler puts in the names of its own functions, and which change from build to build.
FILE_HASH = re.compile(r"_[0-9a-f]{8}_\d+(?=[A-Za-z_])|(?<=_)[0-9a-f]{8}(?=_)")
_LONGEST = 40  # characters of a value that is kept as it is


FactChange = tuple[str, str | None, str | None]  # name, before, after


@dataclass(frozen=True)
class Item:
    kind: str  # KERNEL, FUNCTION, VARIABLE or FILE
    symbol: str
    facts: Mapping[str, str]
    index: int = -1  # of its symbol

    @property
    def digest(self) -> str:
        """Sixteen hexadecimal digits over all facts."""
        return digest_of(self.facts)

    def own_facts(self) -> dict[str, str]:
        """The facts without the code, which its hash covers."""
        return {name: value for name, value in self.facts.items() if name != CODE}


def digest_of(facts: Mapping[str, str]) -> str:
    return hashlib.sha256(repr(sorted(facts.items())).encode()).hexdigest()[:16]


def changed_facts(before: Mapping[str, str], after: Mapping[str, str]) -> list[FactChange]:
    """The differences, in order of the names."""
    return [
        (name, before.get(name), after.get(name))
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    ]


def describe(changes: Iterable[FactChange]) -> str:
    """The changes of facts in words: "max threads 128,1,1 -> 256,1,1; code"."""
    return "; ".join(
        name
        if _HASH.fullmatch(one or "") or _HASH.fullmatch(other or "")
        else f"{name} {one or 'none'} -> {other or 'none'}"
        for name, one, other in changes
    )


_HASH = re.compile(r"\d+ bytes, [0-9a-f]{16}|#[0-9a-f]{16}")


def items_of(cubin: Cubin) -> list[Item]:
    """The file first, then what it defines in the order of the symbol table."""
    return _Reader(cubin).items()


def facts_of(cubin: Cubin, symbol: str) -> dict[str, str]:
    """All facts of a kernel, with those of the rest of the file: of each function and variable its hash."""
    items = items_of(cubin)
    found = {name: value for item in items if item.symbol == symbol for name, value in item.facts.items()}
    for item in items:
        if item.kind == FILE:
            found |= {f"{OF_FILE}: {name}": value for name, value in item.facts.items()}
        elif item.kind != KERNEL:
            found[f"{item.kind} {FILE_HASH.sub('', item.symbol)}"] = f"#{item.digest}"
    return found


@dataclass(frozen=True)
class CodeSummary:
    """The data of one kernel that the register reports and the gate need."""

    symbol: str
    config: KernelConfig | None  # None for a kernel that is not ours
    code_hash: str
    ldl: int
    stl: int
    registers: int | None
    stack: int | None
    static_smem: int
    barriers: int | None
    attributes: str | None = None  # a hash of all other facts, of the kernel and of its file


def code_summary(path: Path) -> dict[str, CodeSummary]:
    """Figures of each kernel of a cubin by symbol; device functions are left out."""
    cubin = Cubin.read(path)
    items = items_of(cubin)
    others = {f"{item.kind} {FILE_HASH.sub('', item.symbol)}": item.digest for item in items if item.kind != KERNEL}
    attributes = {item.symbol: digest_of(item.own_facts() | others) for item in items if item.kind == KERNEL}
    summaries = {
        kernel.symbol: CodeSummary(
            symbol=kernel.symbol,
            config=config_of(kernel.symbol),
            code_hash=kernel.code_hash,
            ldl=kernel.ldl,
            stl=kernel.stl,
            registers=kernel.registers,
            stack=kernel.stack,
            static_smem=kernel.static_smem,
            barriers=kernel.barriers,
            attributes=attributes.get(kernel.symbol),
        )
        for kernel in cubin.entries
    }
    if not summaries:
        raise AnalysisError(f"{path}: no kernel in this cubin")
    return summaries


def kept(text: str) -> str:
    """A value as it is, or a hash of a long one."""
    return text if len(text) <= _LONGEST else "#" + hashlib.sha256(text.encode()).hexdigest()[:16]


def _bytes(data: bytes) -> str:
    return f"{len(data)} bytes, {hashlib.sha256(data).hexdigest()[:16]}" if data else "none"


@dataclass
class _Facts:
    symbol: Symbol | None
    kind: str
    own: str  # its name
    facts: dict[str, list[str]] = field(default_factory=dict)

    def add(self, name: str, value: str) -> None:
        self.facts.setdefault(name, []).append(value)

    def name_of(self, name: str) -> str:
        """A name as this item sees it: its own name plays no part, nor do hashes of files."""
        return FILE_HASH.sub("", name.replace(self.own, "self") if self.own else name)


class _Reader:
    def __init__(self, cubin: Cubin) -> None:
        self.cubin = cubin
        self.file = _Facts(None, FILE, "")
        self.functions: dict[str, _Facts] = {}  # that have sections of their own, by name
        self.by_section: dict[int, _Facts] = {}  # the same
        self.variables: dict[int, _Facts] = {}  # by index of the symbol
        self.covered: dict[int, list[tuple[int, int]]] = {}  # section to the bytes that variables cover
        for symbol in cubin.symbols:
            self._define(symbol)

    def items(self) -> list[Item]:
        self._header()
        self._segments()
        for index, section in enumerate(self.cubin.sections):
            if index and not _IGNORED.fullmatch(section.name):
                self._section(section)
        self._symbols()
        found = [self.file, *self.functions.values(), *self.variables.values()]
        return [
            Item(
                each.kind,
                each.symbol.name if each.symbol else OF_FILE,
                {name: kept(", ".join(_ordered(name, values))) for name, values in each.facts.items()},
                each.symbol.index if each.symbol else -1,
            )
            for each in found
        ]

    # ---- what there is ----

    def _define(self, symbol: Symbol) -> None:
        sections = self.cubin.sections
        if not 0 < symbol.section < len(sections):
            return
        section = sections[symbol.section]
        owned = _OWNED.fullmatch(section.name)
        if symbol.kind == STT_FUNC and owned and owned[2] == symbol.name:
            kind = KERNEL if symbol.other & STO_CUDA_ENTRY else FUNCTION
            found = self.functions[symbol.name] = _Facts(symbol, kind, symbol.name)
            self.by_section[symbol.section] = found
        elif symbol.kind in (STT_OBJECT, STT_CUDA_OBJECT) and _VARIABLES.match(section.name):
            self.variables[symbol.index] = _Facts(symbol, VARIABLE, symbol.name)

    def _owner(self, section: Section) -> tuple[_Facts, str]:
        """The owner of a section, and its name for that owner."""
        owned = _OWNED.fullmatch(section.name)
        found = self.functions.get(owned[2]) if owned else None
        if owned is None or found is None:
            return self.file, section.name
        return found, owned[1]

    def _name(self, index: int, of: _Facts) -> str:
        """The description of a symbol, for the item that mentions it."""
        if not 0 <= index < len(self.cubin.symbols):
            return f"symbol {index}"
        symbol = self.cubin.symbols[index]
        if symbol.kind == STT_SECTION or not symbol.name:
            return f"{self._section_name(symbol.section, of)}+{symbol.value}"
        return of.name_of(symbol.name)

    def _section_name(self, index: int, of: _Facts) -> str:
        if not 0 <= index < len(self.cubin.sections):
            return f"section {index}"
        owner, name = self._owner(self.cubin.sections[index])
        return name if owner is of else of.name_of(self.cubin.sections[index].name)

    # ---- the file ----

    def _header(self) -> None:
        header = self.cubin.header
        self.file.add("ABI", f"{header.os_abi:#x} {header.abi}")
        self.file.add("kind of file", f"{header.kind} {header.version} {header.entry}")
        self.file.add("flags", f"{header.flags & (NOT_DEBUG if header.abi >= 8 else header.flags):#x}")

    def _segments(self) -> None:
        """Each program header by what it covers, as the offsets depend on what else is in the file."""
        unstored = sum(
            section.size
            for section in self.cubin.sections
            if section.kind in SHT_WITHOUT_BYTES and section.flags & SHF_ALLOC
        )
        for each in self.cubin.segments:
            inside = [
                section
                for section in self.cubin.sections
                if section.data and section.flags & SHF_ALLOC
                and each.offset <= section.offset < each.offset + each.file_size
                and not _IGNORED.fullmatch(section.name)
            ]  # fmt: skip
            start = self.cubin.header.segments_at
            end = start + SEGMENT_BYTES * self.cubin.header.segments
            if inside:
                start, end = inside[0].offset, max(section.offset + len(section.data) for section in inside)
            names = sorted({self._owner(section)[1] for section in inside}) or ["program headers"]
            if not each.file_size:
                start, end, names = each.offset, each.offset, ["nothing stored"]
            more = each.size - each.file_size
            held = f"{more - unstored if more else 0:+d}"
            self.file.add(
                "segments",
                f"{each.kind} {each.flags} {each.address} {each.physical} {each.align} {' '.join(names)} "
                f"{each.offset - start:+d} {each.offset + each.file_size - end:+d} {held}",
            )

    # ---- sections ----

    def _section(self, section: Section) -> None:
        owner, name = self._owner(section)
        link = self._section_name(section.link, owner) if section.link else ""
        owner.add(
            f"{name}: header",
            f"{section.kind:#x} {section.flags:#x} {section.address} {section.align} {section.entry_size} "
            f"{link} {self._info(section, owner)}",
        )
        if section.kind in (SHT_REL, SHT_RELA):
            self._relocations(section, owner, name)
        elif section.kind == SHT_INFO:
            self._attributes(section, owner)
        elif name == ".nv.compat":
            for attribute, value in _records(section.data):
                owner.add(f".nv.compat {attribute:#04x}", value.hex())
        elif section.name == ".nv.callgraph" and len(section.data) % 8 == 0:
            self._calls(section)
        elif _VARIABLES.match(section.name):
            pass  # its variables; what is between them is in _symbols
        elif section.kind in SHT_WITHOUT_BYTES:
            owner.add(f"{name}: bytes" if name != ".nv.shared" else "shared memory", str(section.size))
        else:
            data = section.data
            if name == CAPSULE and len(data) >= 4:  # begins with the index of the section of the code
                owner.add(f"{name}: of", self._section_name(int.from_bytes(data[:4], "little"), owner))
                data = data[4:]
            owner.add(CODE if name == ".text" else name, _bytes(data))

    def _info(self, section: Section, of: _Facts) -> str:
        """sh_info: a section; of code the symbol of the function and, up to ABI 7, its registers."""
        if section.kind == SHT_CAPSULE:
            return self._name(section.info, of)
        if section.flags & SHF_INFO_LINK or section.kind in (SHT_REL, SHT_RELA):
            return self._section_name(section.info, of)
        if section.flags & SHF_EXECUTE:
            return f"{section.info >> 24} {self._name(section.info & 0xFFFFFF, of)}"
        return str(section.info)

    def _relocations(self, section: Section, owner: _Facts, name: str) -> None:
        form = "<QQq" if section.kind == SHT_RELA else "<QQ"
        size = struct.calcsize(form)
        for at in range(0, len(section.data) - size + 1, size):
            offset, info, *addend = struct.unpack_from(form, section.data, at)
            holder = owner
            if owner is self.file:
                holder, offset = self._holder(section.info, offset)
            what = self._name(info >> 32, holder)
            holder.add(f"{name}: relocations", f"{offset} {info & 0xFFFFFFFF:#x} {what} {addend[0] if addend else ''}")
        rest = len(section.data) % size
        if rest:
            owner.add(f"{name}: relocations", section.data[-rest:].hex())

    def _holder(self, section: int, offset: int) -> tuple[_Facts, int]:
        """The variable that an offset in a section belongs to, and the offset in it."""
        for index, each in self.variables.items():
            symbol = self.cubin.symbols[index]
            if symbol.section == section and symbol.value <= offset < symbol.value + symbol.size:
                return each, offset - symbol.value
        return self.file, offset

    def _attributes(self, section: Section, owner: _Facts) -> None:
        for attribute, value in _records(section.data):
            words = struct.unpack(f"<{len(value) // 4}I", value[: len(value) // 4 * 4])
            name = ATTRIBUTES.get(attribute, f"attribute {attribute:#04x}")
            if owner is self.file and attribute in OF_SYMBOLS and len(value) == 8:
                holder = self._function(words[0])
                of = self._name(words[0], holder)
                what = OF_SYMBOLS[attribute]
                holder.add(what if of == "self" else f"{what} of {of}", str(words[1]))
            elif attribute == PARAM_CBANK and len(words) == 2:
                owner.add("parameters", f"{self._name(words[0], owner)} {words[1]:#x}")
            elif attribute == EXTERNS:
                owner.add("externs", " ".join(self._name(word, owner) for word in words))
            elif attribute == CUDA_API_VERSION:
                if value.hex() not in self.file.facts.get("CUDA version", ()):
                    self.file.add("CUDA version", value.hex())
            else:
                text = ",".join(map(str, words)) if len(value) % 4 == 0 and len(value) <= 12 else value.hex()
                owner.add(name, text)

    def _function(self, index: int) -> _Facts:
        """The item whose code a symbol names: a kernel also for the functions after it."""
        symbols = self.cubin.symbols
        section = symbols[index].section if 0 <= index < len(symbols) else 0
        return self.by_section.get(section, self.file)

    def _calls(self, section: Section) -> None:
        """Pairs of symbols, caller and callee; -1 to -4 are marks of the linker."""
        for caller, callee in struct.iter_unpack("<ii", section.data):
            holder = self._function(caller)
            to = self._name(callee, holder) if callee >= 0 else str(callee)
            holder.add("calls", f"{self._name(caller, holder) if caller else ''} {to}")

    # ---- symbols ----

    def _symbols(self) -> None:
        for symbol in self.cubin.symbols:
            if symbol.kind == STT_SECTION or not symbol.index:
                continue
            inside = 0 < symbol.section < len(self.cubin.sections)
            section = self.cubin.sections[symbol.section] if inside else None
            if section and _IGNORED.fullmatch(section.name):
                continue
            if section and symbol.index in self.variables:
                self._variable(self.variables[symbol.index], symbol, section)
                continue
            holder = self._owner(section)[0] if section else self.file
            name = holder.name_of(symbol.name)
            where = self._section_name(symbol.section, holder)
            holder.add(
                f"symbol {name}",
                f"{symbol.kind} {symbol.binding} {symbol.other:#x} {where} {symbol.value} {symbol.size}",
            )
        self._between_variables()

    def _variable(self, own: _Facts, symbol: Symbol, section: Section) -> None:
        """Code knows the address of a constant; that of a global variable is the linker's choice, and relocated."""
        location = f" at {symbol.value}" if "constant" in section.name else ""
        own.add("symbol", f"{symbol.kind} {symbol.binding} {symbol.other:#x} {section.name}{location}")
        own.add("bytes", str(symbol.size))
        if section.data:
            own.add("value", _bytes(section.data[symbol.value : symbol.value + symbol.size]))
        if symbol.value + symbol.size > section.size:
            own.add("outside its section", f"{symbol.value} {symbol.size} {section.size}")
        self.covered.setdefault(symbol.section, []).append((symbol.value, symbol.value + symbol.size))

    def _between_variables(self) -> None:
        """Bytes that no variable covers: zeros that align the next one, or what has no symbol."""
        for index, section in enumerate(self.cubin.sections):
            if not _VARIABLES.match(section.name) or _OWNED.fullmatch(section.name):
                continue
            at, loose, overlap = 0, b"", 0
            covered = sorted(self.covered.get(index, []))
            for start, end in covered:
                loose += section.data[at:start]
                overlap += max(0, at - start)
                at = max(at, end)
            loose += section.data[at:]
            if loose.strip(b"\0"):
                self.file.add(f"{section.name}: without a name", _bytes(loose))
            if overlap:
                self.file.add(f"{section.name}: overlapping", str(overlap))
            if section.size != at or not covered:
                self.file.add(f"{section.name}: bytes without a name", str(section.size - at))


def _ordered(name: str, values: Sequence[str]) -> Sequence[str]:
    """The order of relocations and calls has no meaning; that of parameters has."""
    return sorted(values) if name == "calls" or name.endswith(": relocations") else values


def _records(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Attributes of .nv.info and .nv.compat: format, number, then a 16-bit value or length. The format counts."""
    at = 0
    while at + 4 <= len(data):
        form, attribute, value = struct.unpack_from("<BBH", data, at)
        at += 4
        if form == 4:
            yield attribute, data[at : at + value]
            at += value
        else:
            yield attribute, struct.pack("<BH", form, value)
    if at != len(data):
        yield -1, data[min(at, len(data)) :]
