"""Device code inside files: our executables, shared objects, fatbinaries, cubins, ours or not.

    for image in read_images(Path("bin/v07")): print(image.kind, image.arch, len(image.data))

Cubins and PTX that a file holds uncompressed, as our executables do, are found by their own headers. cuobjdump
unpacks the fatbinaries of nvcc, which are often compressed, into a folder that lives as long as its images. An image's
bytes are read on request, so that a library of many images does not fill memory. An image that can't
be read is left out and named; a file of nothing but such images is an error.
"""

import argparse
import hashlib
import mmap
import re
import struct
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from analysis.errors import DONE, AnalysisError, NoDeviceCode
from analysis.files import write_atomically
from analysis.ladder.config import library_of
from analysis.machine_code.cubin import EM_CUDA, SHT_WITHOUT_BYTES, Cubin, Kernel
from analysis.machine_code.names import add_filter_argument, filter_by_name, names_of
from analysis.machine_code.notes import note
from analysis.machine_code.occupancy import most_warps
from analysis.machine_code.toolkit import run
from analysis.table import Cell, Table, add_table_arguments, print_table

ELF_MAGIC = b"\x7fELF"
FATBIN_MAGIC = b"\x50\xed\x55\xba"
ARCHIVE_MAGIC = b"!<arch>\n"
KIND_LTO_IR = 8  # of a program in a fatbinary; its architecture is stored 28 bytes after the start of its header
WHOLE = "the file"
KEPT_BYTES = 32 << 20  # of cubins that stay in memory as they were parsed
NO_KERNEL = ""  # instead of a symbol
Row = tuple[int, int | None, Kernel | None, str]  # image, index of a kernel, the kernel, symbol
_LONGEST_COMMENT = 1000  # of a line before .version
_PTX_VERSION = re.compile(rb"\.version[ \t]+\d+\.\d+\s")
_PTX_TARGET = re.compile(rb"\.target\s+(sm_\w+)")
_PTX_ENTRY = re.compile(rb"\.entry\s+([\w$]+)")


@dataclass(frozen=True)
class Image:
    kind: str  # "cubin" or "ptx"
    arch: str  # sm_80; for PTX its .target
    origin: str  # where in the file
    path: Path  # of the file that holds its bytes
    start: int
    size: int
    folder: "tempfile.TemporaryDirectory[str] | None" = None  # of an unpacked image, which lives as long as this
    kernels: int = 0  # of a cubin
    parsed: Cubin | None = field(default=None, compare=False, repr=False)  # where not too much is kept already

    @property
    def data(self) -> bytes:
        with self.path.open("rb") as file:
            file.seek(self.start)
            return file.read(self.size)

    def cubin(self, name: str) -> Cubin:
        mine = self.named(name)
        return self.parsed if self.parsed and self.parsed.name == mine else Cubin(self.data, mine)

    def named(self, file: str) -> str:
        return file if self.origin == WHOLE else f"{file} ({self.origin})"

    def as_file(self, folder: Path) -> Path:
        """The image as a file of its own: the one it is already in, or a new one in the folder."""
        if self.start == 0 and self.size == self.path.stat().st_size:
            return self.path
        path = folder / f"{self.start}.{self.kind}"
        path.write_bytes(self.data)
        return path

    def comparable_ptx(self) -> str:
        """A PTX text without comments and what is for debuggers."""
        text = re.sub(r"//[^\n]*|/\*.*?\*/", "", self.data.decode("utf-8", "replace"), flags=re.DOTALL)
        text = re.sub(r"^\s*\.section\s+\.debug.*?^\s*}", "", text, flags=re.DOTALL | re.MULTILINE)
        lines = (line.strip() for line in text.split("\n"))
        return "\n".join(line for line in lines if line and not line.startswith((".loc", ".file")))

    def entries(self) -> list[str]:
        """The kernels that a PTX text declares."""
        return [name.decode() for name in _PTX_ENTRY.findall(self.data)]


def read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise AnalysisError(f"{path}: {error.strerror}") from error


@dataclass(frozen=True)
class Skipped:
    """An image that can't be read."""

    error: AnalysisError
    digest: str  # of its bytes

    @property
    def reason(self) -> str:
        return str(self.error)


def read_images(path: Path) -> list[Image]:
    """All device code of a file. Images that can't be read are named in notes; AnalysisError when no other is there."""
    images, skipped = survey(path)
    if skipped and not images:
        raise skipped[0].error
    for each in skipped:
        note(f"skipped: {each.reason}")
    return images


def survey(path: Path) -> tuple[list[Image], list[Skipped]]:
    """The images of a file, and why others of it can't be read; AnalysisError when there is no device code."""
    images: list[Image] = []
    skipped: list[Skipped] = []
    known: set[str] = set()  # an image that a fatbinary holds as it is, is found twice
    for found in _candidates(path):
        name = found.named(str(path))
        data = found.data
        digest = hashlib.sha256(data).hexdigest()
        if digest in known:
            continue
        known.add(digest)
        try:
            if found.kind == "ptx":
                target = _PTX_TARGET.search(data)
                images.append(replace(found, arch=target[1].decode() if target else "ptx"))
            else:
                cubin = Cubin(data, name)
                kept = sum(image.size for image in images if image.parsed) + found.size <= KEPT_BYTES
                parsed = cubin if kept else None
                images.append(replace(found, arch=cubin.arch, kernels=len(cubin.entries), parsed=parsed))
        except AnalysisError as error:
            skipped.append(Skipped(error, digest))
    if not images and not skipped:
        kind = f"neither a cubin, nor PTX, nor a fatbinary in {path.stat().st_size} bytes"
        if lto := _lto_architectures(path):
            kind = f"only LTO-IR for {lto}, from which nvcc and nvlink -lto make machine code: read the file they link"
        elif is_archive(path):
            kind = "an archive of host objects"
        raise NoDeviceCode(f"{path}: no device code: {kind}")
    return images, skipped


def _candidates(path: Path) -> list[Image]:
    """Bytes that look like an image; the rest of a truncated file counts as one."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            if is_cubin(data[:64]):
                return [Image("cubin", "", WHOLE, path, 0, len(data))]
            found = [*_plain_cubins(data, path), *_plain_ptx(data, path)]
            wrapped = data.find(FATBIN_MAGIC) >= 0
    except ValueError:
        return []  # an empty file can't be mapped
    except OSError as error:
        raise AnalysisError(f"{path}: {error.strerror}") from error
    return [*found, *_unpacked(path)] if wrapped else found


def _lto_architectures(path: Path) -> str:
    """The architectures of the LTO-IR in the fatbinaries of a file, such as "sm_90"; empty where there is none."""
    data = read_bytes(path)
    found = set()
    at = data.find(FATBIN_MAGIC)
    while at >= 0:
        try:
            _, _, header, size = struct.unpack_from("<IHHQ", data, at)
            program, end = at + header, at + header + size
            while program < end:
                kind, _, bytes_ahead, payload = struct.unpack_from("<HHIQ", data, program)
                (architecture,) = struct.unpack_from("<I", data, program + 28)
                if kind == KIND_LTO_IR:
                    found.add(architecture)
                program += max(1, bytes_ahead + payload)
        except struct.error:
            pass  # cut short
        at = data.find(FATBIN_MAGIC, at + 1)
    return ", ".join(f"sm_{number}" for number in sorted(found))


def has_images(start: bytes) -> bool:
    """True if what begins like this may hold images: an ELF file, a fatbinary, an archive of such."""
    return start.startswith((ELF_MAGIC, FATBIN_MAGIC, ARCHIVE_MAGIC))


def is_archive(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(ARCHIVE_MAGIC)) == ARCHIVE_MAGIC


def is_binary(path: Path) -> bool:
    """True if a file is something that may hold images, not a listing."""
    try:
        with path.open("rb") as file:
            return has_images(file.read(len(ARCHIVE_MAGIC)))
    except OSError as error:
        raise AnalysisError(f"{path}: {error.strerror}") from error


def is_cubin(data: bytes) -> bool:
    return data[:4] == ELF_MAGIC and len(data) >= 20 and struct.unpack_from("<H", data, 18)[0] == EM_CUDA


def _plain_cubins(data: mmap.mmap, path: Path) -> Iterator[Image]:
    at = data.find(ELF_MAGIC, 1)
    while at >= 0:
        size = 4
        if is_cubin(data[at : at + 64]):
            size = min(_elf_size(data, at), len(data) - at)
            yield Image("cubin", "", f"byte {at}", path, at, size)
        at = data.find(ELF_MAGIC, at + size)


def _elf_size(data: mmap.mmap, start: int) -> int:
    """Bytes of the ELF file at `start`: the end of its last section or of its headers, which may be past the data."""
    try:
        phoff, shoff = struct.unpack_from("<QQ", data, start + 32)
        phnum, _, shnum = struct.unpack_from("<HHH", data, start + 56)
        end = max(64, phoff + 56 * phnum, shoff + 64 * shnum)
        for index in range(shnum):
            header = struct.unpack_from("<IIQQQQIIQQ", data, start + shoff + 64 * index)
            if header[1] not in SHT_WITHOUT_BYTES:
                end = max(end, header[4] + header[5])
    except (struct.error, OverflowError):
        return len(data)
    return int(end)


def _plain_ptx(data: mmap.mmap, path: Path) -> Iterator[Image]:
    """PTX with kernels as zero-terminated text, outside the debug sections of cubins."""
    after = 0
    for match in _PTX_VERSION.finditer(data):
        if match.start() < after:
            continue
        end = data.find(b"\0", match.end())
        end = end if end >= 0 else len(data)
        if _PTX_TARGET.search(data, match.end(), end) and _PTX_ENTRY.search(data, match.end(), end):
            start = _start_of_ptx(data, match.start())
            yield Image("ptx", "", f"byte {start}", path, start, end - start)
            after = end


def _start_of_ptx(data: mmap.mmap, at: int) -> int:
    """The start of the comments before .version, one line at a time."""
    start = at
    while start and data[start - 1 : start] == b"\n":
        reach = max(0, start - 1 - _LONGEST_COMMENT)
        begin = 1 + max(data.rfind(b"\n", reach, start - 1), data.rfind(b"\0", reach, start - 1), reach - 1)
        line = data[begin : start - 1].strip()
        if line and not line.startswith(b"//"):
            break
        start = begin
    while data[start : start + 1].isspace():
        start += 1
    return start


def _unpacked(path: Path) -> list[Image]:
    """The images of fatbinaries in the order in which cuobjdump numbers them."""
    folder = tempfile.TemporaryDirectory(prefix="flashladder.")
    try:
        run("cuobjdump", ["-xelf", "all", "-xptx", "all", str(path.resolve())], Path(folder.name))
    except AnalysisError as error:
        if "does not contain device code" not in str(error):
            note(f"{path}: {error}")
    files = sorted(Path(folder.name).iterdir(), key=lambda file: [int(n) for n in re.findall(r"\.(\d+)\.", file.name)])
    return [
        Image("cubin" if file.suffix == ".cubin" else "ptx", "", file.name, file, 0, file.stat().st_size, folder)
        for file in files
    ]


# ---- commands --------------------------------------------------------------------------------------------------------


def image_table(path: Path, images: list[Image], pattern: str | None = None) -> Table:
    """One row for each kernel that the pattern fits, and for each image without a kernel."""
    found: list[Row] = []
    own: list[Row]
    for number, image in enumerate(images):
        if image.kind == "ptx":
            own = [(number, None, None, name) for name in image.entries()]
        else:
            kernels = image.cubin(str(path)).entries
            own = [(number, index, kernel, kernel.symbol) for index, kernel in enumerate(kernels)]
        found += own or [(number, None, None, NO_KERNEL)]
    found = filter_by_name(found, lambda kernel: kernel[-1], pattern, str(path))
    names = names_of(symbol for *_, symbol in found)
    rows: list[list[Cell]] = [
        [images[number].kind, number, images[number].arch, index, *resources(images[number].arch, kernel),
         images[number].origin, library_of(symbol), names[symbol]]
        for number, index, kernel, symbol in found
    ]  # fmt: skip
    return Table(("kind", "image", "arch", "index", *RESOURCES, "where", "library", "kernel"), rows)


RESOURCES = ("registers", "local", "smem", "max threads", "warps")  # local: LDL and STL; warps: most of an SM


def resources(arch: str, kernel: Kernel | None) -> list[Cell]:
    """The resources of an SM that a kernel uses; shared memory is its static part, without what a launch adds."""
    if kernel is None:
        return [None] * len(RESOURCES)
    warps = most_warps(arch, kernel.registers, kernel.max_threads, kernel.static_smem)
    return [kernel.registers, kernel.ldl + kernel.stl, kernel.static_smem, kernel.max_threads, warps]


def add_images_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("list", "extract"), help="list kernels and PTX, or write them as files")
    parser.add_argument("file", type=Path, help="executable, shared object, fatbinary or cubin")
    parser.add_argument("--image", type=int, metavar="N", help="only this image of the list")
    parser.add_argument("--out", type=Path, default=Path(), metavar="DIR", help="folder of the extracted files")
    parser.add_argument("--base", metavar="NAME", help="base name of the extracted files (the file's own)")
    add_filter_argument(parser, "list the kernels")
    add_table_arguments(parser)


def run_images(args: argparse.Namespace) -> int:
    images = read_images(args.file)
    if args.image is not None:
        if not 0 <= args.image < len(images):
            raise AnalysisError(f"--image {args.image}: must be less than {len(images)} for {args.file}")
        images = [images[args.image]]
    if args.filter is not None and args.action != "list":
        raise AnalysisError("--filter: requires list")
    if args.action == "list":
        print_table(image_table(args.file, images, args.filter), args)
        return DONE
    base = args.base or args.file.stem
    written = []
    for number, image in enumerate(images):
        suffix = "cubin" if image.kind == "cubin" else "ptx"
        same = sum(other.kind == image.kind and other.arch == image.arch for other in images[:number])
        path = args.out / f"{base}.{image.arch}{f'.{same}' if same else ''}.{suffix}"
        write_atomically(path, image.data)
        written.append((str(path), image.kind, image.arch, len(image.data)))
    print_table(Table(("file", "kind", "arch", "bytes"), written), args)
    return DONE
