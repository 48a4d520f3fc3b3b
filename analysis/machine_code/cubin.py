"""Reads cubins: sections, kernels, code bytes and what can be told from them without a disassembler.

    for kernel in Cubin.read(Path("build/v07/sm_80.cubin")).kernels: print(kernel.symbol, kernel.registers)

A cubin is a little-endian ELF64 file of machine 190. Registers, stack and barriers come from the .nv.info attributes;
code is the bytes of the function symbol in its .text section, 16 bytes per instruction.
"""

import hashlib
import math
import re
import struct
import sys
from array import array
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from analysis.errors import AnalysisError, DamagedFile, UnknownArchitecture

EM_CUDA = 190
SHT_SYMTAB, SHT_RELA, SHT_NOBITS, SHT_REL = 2, 4, 8, 9
# The names of .nv.global, .nv.local and .nv.shared in a relocatable cubin: they also occupy no bytes of the file.
SHT_WITHOUT_BYTES = {SHT_NOBITS, 0x70000007, 0x70000009, 0x7000000A, 0x70000015}
STT_FUNC = 2
STO_CUDA_ENTRY = 0x10
WORD_BYTES = 16
SEGMENT_BYTES = 56  # of a program header

# The architectures that nvdisasm of CUDA 12 or 13 supports, by the numbers after "sm_".
ARCHITECTURES = frozenset((50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 88, 89, 90, 100, 101, 103, 110, 120, 121))
FIRST_DECODED = 70  # the first architecture with instructions of 16 bytes
# Marks of an architecture with an "a", as ptxas 12.0 to 13.5 write them: flags of the ELF header of ABI 7 and, in CUDA
# 12.9, of ABI 8, and from CUDA 13 on an attribute of .nv.compat, which cuobjdump -elf calls CUDA_ACCELERATOR_TARGET.
ACCELERATED_ABI7, ACCELERATED_ABI8, COMPAT_ACCELERATED = 0x800, 0x8, 9
# .nv.info attributes with one value for each function symbol, and the per-kernel one-byte attribute of barriers.
REGCOUNT, FRAME_SIZE, NUM_BARRIERS = 0x2F, 0x11, 0x4C
# The addresses of a kernel's indirect branches, each with its targets.
INDIRECT_BRANCH_TARGETS = 0x34
MAX_THREADS, REQUIRED_THREADS = 0x05, 0x10  # of a CTA in three dimensions: __launch_bounds__, .reqntid
JUMP_TABLES = ".nv.constant2"
# From 9.0 on the driver reserves the first bytes of shared memory. A kernel's section includes them once it is linked,
# and the file names the reserved memory: by a section, or only by a symbol if ptxas -g or nvlink wrote it.
RESERVED_SHARED, RESERVED_SYMBOL, RESERVED_BYTES = ".nv.shared.reserved.0", ".nv.reservedSmem.offset0", 1024
# Low twelve bits of an instruction word: opcode and operand form. Each has one form; tests compare with nvdisasm.
LDL, STL, NOP = 0x983, 0x387, 0x918
OPCODE_MASK = 0xFFF


@dataclass(frozen=True)
class Section:
    name: str
    kind: int
    flags: int
    info: int
    link: int
    size: int
    data: bytes  # empty for NOBITS
    address: int
    offset: int
    align: int
    entry_size: int


@dataclass(frozen=True)
class FileHeader:
    os_abi: int
    abi: int
    kind: int  # executable or relocatable
    version: int
    entry: int
    flags: int
    segments_at: int
    segments: int


@dataclass(frozen=True)
class Segment:
    kind: int
    flags: int
    offset: int
    address: int
    physical: int
    file_size: int
    size: int
    align: int


@dataclass(frozen=True)
class Symbol:
    index: int
    name: str
    kind: int
    binding: int
    other: int
    section: int
    value: int
    size: int


@dataclass(frozen=True)
class IndirectBranch:
    """A BRX as .nv.info knows it. In cubins of CUDA 11 all targets are 0, as a relocation would fill them in."""

    address: int
    targets: tuple[int, ...]


@dataclass(frozen=True)
class Kernel:
    """One kernel or device function of a cubin."""

    symbol: str
    index: int  # of the symbol, as nvdisasm -fun takes it
    entry: bool  # a kernel, not a device function
    code: bytes
    constants: bytes  # constant banks of this function without its parameters
    registers: int | None
    stack: int | None  # bytes of frame per thread
    static_smem: int  # bytes, without those of the driver
    barriers: int | None
    max_threads: int | None = None  # of a CTA; None where the kernel says nothing of it
    branches: tuple[IndirectBranch, ...] = ()
    jump_tables: bytes = b""  # constant bank 2: addresses in the code, where the compiler put any

    @cached_property
    def words(self) -> tuple[int, ...]:
        return tuple(
            int.from_bytes(self.code[at : at + WORD_BYTES], "little") for at in range(0, len(self.code), WORD_BYTES)
        )

    @cached_property
    def code_hash(self) -> str:
        """Sixteen hexadecimal digits over the code bytes and constants; names and line information play no part."""
        return hashlib.sha256(self.code + self.constants).hexdigest()[:16]

    @cached_property
    def opcodes(self) -> Counter[int]:
        """The number of occurrences of each opcode."""
        found: Counter[int] = Counter()
        halves = array("H", self.code[: len(self.code) // 2 * 2])  # the first of a word holds the opcode
        if sys.byteorder == "big":
            halves.byteswap()
        for half, times in Counter(halves[:: WORD_BYTES // 2]).items():
            found[half & OPCODE_MASK] += times
        return found

    def count(self, opcode: int) -> int:
        return self.opcodes[opcode]

    @property
    def ldl(self) -> int:
        """Loads from local memory: spills, or arrays that are not in registers."""
        return self.count(LDL)

    @property
    def stl(self) -> int:
        return self.count(STL)


def _text(table: bytes, at: int) -> str:
    end = table.find(b"\0", at)
    if at >= len(table) or end < 0:
        raise AnalysisError(f"string {at} is outside its table of {len(table)} bytes")
    return table[at:end].decode("utf-8", "replace")


class Cubin:
    """A parsed cubin. Errors are AnalysisError and begin with the file's name."""

    def __init__(self, data: bytes, name: str = "cubin") -> None:
        self.name = name
        try:
            self._parse(data)
        except (struct.error, IndexError, OverflowError) as error:
            raise DamagedFile(f"{name}: truncated or damaged cubin ({len(data)} bytes): {error}") from error
        except AnalysisError as error:
            raise type(error)(f"{name}: {error}") from error

    @classmethod
    def read(cls, path: Path) -> "Cubin":
        try:
            data = path.read_bytes()
        except OSError as error:
            raise AnalysisError(f"{path}: {error.strerror}") from error
        return cls(data, str(path))

    def _parse(self, data: bytes) -> None:
        if data[:4] != b"\x7fELF":
            raise AnalysisError("not a cubin: no ELF header")
        ident, elf_kind, machine, version, start, phoff, shoff, flags, *sizes = struct.unpack_from(
            "<16sHHIQQQIHHHHHH", data
        )
        header_bytes, segment_bytes, phnum, section_bytes, shnum, shstrndx = sizes
        if machine != EM_CUDA:
            raise AnalysisError(f"not a cubin: ELF machine {machine}, a cubin has {EM_CUDA}")
        if tuple(ident[4:7]) != (2, 1, 1):
            raise AnalysisError("not a cubin of a known kind: 64-bit little-endian ELF expected")
        if (header_bytes, section_bytes) != (64, 64) or (phnum and segment_bytes != SEGMENT_BYTES):
            raise DamagedFile(f"damaged: headers of {header_bytes}, {segment_bytes} and {section_bytes} bytes")
        if phoff + SEGMENT_BYTES * phnum > len(data):
            raise DamagedFile(f"truncated: program headers end at byte {phoff + SEGMENT_BYTES * phnum} of {len(data)}")
        headers = [struct.unpack_from("<IIQQQQIIQQ", data, shoff + 64 * i) for i in range(shnum)]
        raw = []
        for _, kind, _, _, offset, size, *_ in headers:
            if kind not in SHT_WITHOUT_BYTES and offset + size > len(data):
                raise DamagedFile(f"truncated: a section ends at byte {offset + size} of {len(data)}")
            raw.append(b"" if kind in SHT_WITHOUT_BYTES else data[offset : offset + size])
        self.sections = [
            Section(_text(raw[shstrndx], name), kind, flag, info, link, size, body, address, offset, align, entry)
            for (name, kind, flag, address, offset, size, link, info, align, entry), body in zip(
                headers, raw, strict=True
            )
        ]
        self.header = FileHeader(ident[7], ident[8], elf_kind, version, start, flags, phoff, phnum)
        self.segments = [
            Segment(*struct.unpack_from("<IIQQQQQQ", data, phoff + SEGMENT_BYTES * i)) for i in range(phnum)
        ]
        self.flags = flags
        self.abi = ident[8]
        if self._number not in ARCHITECTURES:
            raise UnknownArchitecture(
                f"sm_{self._number} is not known: sm_{min(ARCHITECTURES)} to sm_{max(ARCHITECTURES)} are read, "
                "those of CUDA 12 and 13"
            )
        self.symbols = self._read_symbols()
        self._by_name: dict[str, Section] = {}
        for section in self.sections:
            self._by_name.setdefault(section.name, section)
        self._attributes = self._read_info(".nv.info")

    def _read_symbols(self) -> list[Symbol]:
        table = next((s for s in self.sections if s.kind == SHT_SYMTAB), None)
        if table is None:
            raise AnalysisError("no symbol table")
        names = self.sections[table.link].data
        symbols = []
        for index, at in enumerate(range(0, len(table.data), 24)):
            name, info, other, section, value, size = struct.unpack_from("<IBBHQQ", table.data, at)
            symbols.append(Symbol(index, _text(names, name), info & 15, info >> 4, other, section, value, size))
        return symbols

    def _read_info(self, section_name: str) -> dict[tuple[int, int], int]:
        """(attribute, symbol index or -1) to value. Each attribute: format, number, then a 16-bit value or length."""
        found = self.section(section_name)
        data = found.data if found else b""
        values = {}
        at = 0
        while at + 4 <= len(data):
            form, attribute, value = struct.unpack_from("<BBH", data, at)
            at += 4
            if form == 4:
                if value == 8:
                    symbol, number = struct.unpack_from("<II", data, at)
                    values[attribute, symbol] = number
                at += value
            else:
                values[attribute, -1] = value
        return values

    def _max_threads(self, section_name: str) -> int | None:
        """The least that a kernel's attributes allow."""
        found = self.section(section_name)
        data = found.data if found else b""
        allowed, at = [], 0
        while at + 4 <= len(data):
            form, attribute, size = struct.unpack_from("<BBH", data, at)
            at += 4
            if form == 4:
                if attribute in (MAX_THREADS, REQUIRED_THREADS) and size == 12:
                    allowed.append(math.prod(struct.unpack_from("<III", data, at)))
                at += size
        return min(allowed, default=None)

    def _read_branches(self, section_name: str) -> tuple[IndirectBranch, ...]:
        """Each entry: address of the branch, four bytes unused, number of targets, targets."""
        found = self.section(section_name)
        data = found.data if found else b""
        branches = []
        at = 0
        while at + 4 <= len(data):
            form, attribute, size = struct.unpack_from("<BBH", data, at)
            at += 4
            if form != 4:
                continue
            inside, end = at, at + size
            while attribute == INDIRECT_BRANCH_TARGETS and inside + 12 <= end:
                address, _, count = struct.unpack_from("<III", data, inside)
                if inside + 12 + 4 * count > end:
                    raise AnalysisError(f"{section_name}: {count} targets of the branch at {address:04x} do not fit")
                branches.append(IndirectBranch(address, struct.unpack_from(f"<{count}I", data, inside + 12)))
                inside += 12 + 4 * count
            at = end
        return tuple(branches)

    def section(self, name: str) -> Section | None:
        return self._by_name.get(name)

    @cached_property
    def arch(self) -> str:
        """sm_80, sm_90a, ...: from the tool note, which keeps the suffix, else from the ELF flags and .nv.compat."""
        note = self.section(".note.nv.tkinfo")
        named = re.search(rb"-arch[ =](sm_\d+[af]?)", note.data) if note else None
        if named:
            return named[1].decode()
        if self.abi < 8:
            return f"sm_{self._number}{'a' if self.flags & ACCELERATED_ABI7 else ''}"
        accelerated = self.flags & ACCELERATED_ABI8 or self._compat(COMPAT_ACCELERATED)
        return f"sm_{self._number}{'a' if accelerated else ''}"

    @property
    def _number(self) -> int:
        """The architecture in the flags of the ELF header."""
        number: int = self.flags if self.abi < 8 else self.flags >> 8
        return number & 0xFF

    @property
    def decoded(self) -> bool:
        """True if its instructions are words of 16 bytes; before sm_70 they were 8, with control codes apart."""
        return int(re.sub(r"\D", "", self.arch)) >= FIRST_DECODED

    def _compat(self, attribute: int) -> int:
        """A byte of .nv.compat, 0 where it is not there. Each attribute: format 2 or 3, number, 16-bit value."""
        section = self.section(".nv.compat")
        data = section.data if section else b""
        at = 0
        while at + 4 <= len(data):
            form, number, value = struct.unpack_from("<BBH", data, at)
            if form == 2 and number == attribute:
                return int(value & 0xFF)
            at += 4 + (value if form == 4 else 0)
        return 0

    @cached_property
    def kernels(self) -> list[Kernel]:
        """Functions in the order of their code, kernels and device functions."""
        found = []
        names_reserved = any(symbol.name == RESERVED_SYMBOL for symbol in self.symbols)
        reserves = names_reserved or self.section(RESERVED_SHARED) is not None
        banks: dict[str, list[tuple[str, bytes]]] = {}  # constant banks of each function, by what follows .text
        for each in self.sections:
            bank = re.fullmatch(r"(\.nv\.constant[1-9]\d*)(\..*)?", each.name, re.DOTALL)
            if bank:
                banks.setdefault(bank[2] or "", []).append((each.name, each.data))
        for symbol in self.symbols:
            if symbol.kind != STT_FUNC or not 0 < symbol.section < len(self.sections) or not symbol.size:
                continue
            section = self.sections[symbol.section]
            code = section.data[symbol.value : symbol.value + symbol.size]
            entry = bool(symbol.other & STO_CUDA_ENTRY)
            if len(code) != symbol.size or symbol.size % (WORD_BYTES if self.decoded else WORD_BYTES // 2):
                raise AnalysisError(
                    f"{self.name}: {symbol.name}: {symbol.size} bytes of code at {symbol.value} do not fit "
                    f"{section.name} of {len(section.data)} bytes"
                )
            if entry and symbol.value == 0:
                code = section.data  # with the subroutines after the kernel, which only it calls
            suffix = section.name.removeprefix(".text")
            shared = self.section(".nv.shared" + suffix)
            reserved = RESERVED_BYTES if reserves and shared and shared.kind == SHT_NOBITS else 0
            info = self._read_info(".nv.info" + suffix)
            barriers = info.get((NUM_BARRIERS, -1))
            registers = self._attributes.get((REGCOUNT, symbol.index))
            found.append(
                Kernel(
                    symbol=symbol.name,
                    index=symbol.index,
                    entry=entry,
                    code=code,
                    constants=b"".join(data for _, data in sorted(banks.get(suffix, []))),
                    registers=registers if registers is not None else section.info >> 24 or None,
                    stack=self._attributes.get((FRAME_SIZE, symbol.index)),
                    static_smem=max(0, shared.size - reserved) if shared else 0,
                    barriers=barriers & 0xFF if barriers is not None else section.flags >> 20 & 0x7F,
                    max_threads=self._max_threads(".nv.info" + suffix) if entry else None,
                    branches=self._read_branches(".nv.info" + suffix) if entry else (),
                    jump_tables=b"".join(data for name, data in banks.get(suffix, []) if name.startswith(JUMP_TABLES)),
                )
            )
        return sorted(found, key=lambda kernel: kernel.index)

    @property
    def entries(self) -> list[Kernel]:
        """Kernels without device functions."""
        return [kernel for kernel in self.kernels if kernel.entry]
