"""Device code inside files: our executables, shared objects, fatbinaries, cubins, ours or not.

    for image in read_images(Path("bin/v07")): print(image.kind, image.arch, len(image.data))

Cubins and PTX that stand in a file as they are, as in our executables, are found by their own headers. What nvcc wraps
in a fatbinary, often compressed, is unpacked by cuobjdump.
"""

import argparse
import contextlib
import re
import struct
import tempfile
from dataclasses import dataclass
from pathlib import Path

from analysis.errors import DONE, AnalysisError
from analysis.ladder.config import kernel_label
from analysis.machine_code.cubin import EM_CUDA, SHT_NOBITS, Cubin
from analysis.machine_code.toolkit import run
from analysis.table import Table, add_table_arguments, print_table

ELF_MAGIC = b"\x7fELF"
FATBIN_MAGIC = b"\x50\xed\x55\xba"
PTX_START = re.compile(rb"(?://[^\n\0]*\n|\s)*\.version[ \t]+\d+\.\d+\s")


@dataclass(frozen=True)
class Image:
    kind: str  # "cubin" or "ptx"
    arch: str  # sm_80; for PTX its .target
    data: bytes
    origin: str  # where in the file

    def cubin(self, name: str) -> Cubin:
        return Cubin(self.data, f"{name} ({self.origin})")


def read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise AnalysisError(f"{path}: {error.strerror}") from error


def read_images(path: Path) -> list[Image]:
    """All device code of a file; AnalysisError when there is none."""
    data = read_bytes(path)
    if is_cubin(data):
        return [Image("cubin", Cubin(data, str(path)).arch, data, "the file")]
    images = [*_plain_cubins(data, str(path)), *_plain_ptx(data)]
    if FATBIN_MAGIC in data:
        known = {image.data for image in images}
        images += [image for image in _unpacked(path) if image.data not in known]
    if not images:
        raise AnalysisError(f"{path}: no device code: neither a cubin, nor PTX, nor a fatbinary in {len(data)} bytes")
    return images


def is_cubin(data: bytes) -> bool:
    return data[:4] == ELF_MAGIC and len(data) >= 20 and struct.unpack_from("<H", data, 18)[0] == EM_CUDA


def _plain_cubins(data: bytes, name: str) -> list[Image]:
    found = []
    at = data.find(ELF_MAGIC, 1)
    while at >= 0:
        if is_cubin(data[at : at + 64]):
            size = _elf_size(data, at)
            if size is None:
                raise AnalysisError(f"{name}: the cubin at byte {at} is truncated")
            body = data[at : at + size]
            found.append(Image("cubin", Cubin(body, f"{name} at byte {at}").arch, body, f"byte {at}"))
        at = data.find(ELF_MAGIC, at + 4)
    return found


def _elf_size(data: bytes, start: int) -> int | None:
    """Bytes of the ELF file at `start`: the end of its last section or of its headers; None past the data."""
    try:
        phoff, shoff = struct.unpack_from("<QQ", data, start + 32)
        phnum, _, shnum = struct.unpack_from("<HHH", data, start + 56)
        end = max(phoff + 56 * phnum, shoff + 64 * shnum)
        for index in range(shnum):
            header = struct.unpack_from("<IIQQQQIIQQ", data, start + shoff + 64 * index)
            if header[1] != SHT_NOBITS:
                end = max(end, header[4] + header[5])
    except struct.error:
        return None
    return int(end) if start + end <= len(data) else None


def _plain_ptx(data: bytes) -> list[Image]:
    """PTX as zero-terminated text, outside the debug sections of cubins."""
    found: list[Image] = []
    for match in PTX_START.finditer(data):
        end = data.find(b"\0", match.end())
        text = data[match.start() : end if end >= 0 else len(data)]
        target = re.search(rb"\.target\s+(sm_\w+)", text)
        if target and b".entry" in text and not found:
            found.append(Image("ptx", target[1].decode(), text.lstrip(), f"byte {match.start()}"))
    return found


def _unpacked(path: Path) -> list[Image]:
    with tempfile.TemporaryDirectory() as folder:
        images = []
        for option in ("-xelf", "-xptx"):
            # It fails when the file holds none of this kind; a file with neither is reported by read_images.
            with contextlib.suppress(AnalysisError):
                run("cuobjdump", [option, "all", str(path.resolve())], Path(folder))
        for file in sorted(Path(folder).iterdir()):
            kind = "cubin" if file.suffix == ".cubin" else "ptx"
            data = file.read_bytes()
            arch = Cubin(data, file.name).arch if kind == "cubin" else _ptx_target(data)
            images.append(Image(kind, arch, data, file.name))
        return images


def _ptx_target(data: bytes) -> str:
    target = re.search(rb"\.target\s+(sm_\w+)", data)
    return target[1].decode() if target else "ptx"


# ---- commands --------------------------------------------------------------------------------------------------------


def image_table(path: Path, images: list[Image]) -> Table:
    """One row a kernel of each cubin, and one for each PTX text."""
    rows: list[tuple[str, int, str, str, str, int | None, str]] = []
    for number, image in enumerate(images):
        if image.kind == "ptx":
            entries = len(re.findall(rb"\.entry\s", image.data))
            rows.append(("ptx", number, image.arch, f"{entries} entries", "", None, image.origin))
            continue
        for index, kernel in enumerate(each for each in image.cubin(str(path)).kernels if each.entry):
            name = kernel_label(kernel.symbol)
            rows.append(("cubin", number, image.arch, name, str(index), kernel.registers, image.origin))
    return Table(("kind", "image", "arch", "kernel", "index", "registers", "where"), rows)


def add_images_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("list", "extract"), help="list kernels and PTX, or write them as files")
    parser.add_argument("file", type=Path, help="executable, shared object, fatbinary or cubin")
    parser.add_argument("--image", type=int, metavar="N", help="only this image of the list")
    parser.add_argument("--out", type=Path, default=Path(), metavar="DIR", help="folder of the extracted files")
    parser.add_argument("--base", metavar="NAME", help="base name of the extracted files instead of the file's own")
    add_table_arguments(parser)


def run_images(args: argparse.Namespace) -> int:
    images = read_images(args.file)
    if args.image is not None:
        if not 0 <= args.image < len(images):
            raise AnalysisError(f"{args.file}: no image {args.image}; there are {len(images)}")
        images = [images[args.image]]
    if args.action == "list":
        print_table(image_table(args.file, images), args)
        return DONE
    base = args.base or args.file.stem
    written = []
    for number, image in enumerate(images):
        suffix = "cubin" if image.kind == "cubin" else "ptx"
        same = sum(other.kind == image.kind and other.arch == image.arch for other in images[:number])
        path = args.out / f"{base}.{image.arch}{f'.{same}' if same else ''}.{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(image.data)
        written.append((str(path), image.kind, image.arch, len(image.data)))
    print_table(Table(("file", "kind", "arch", "bytes"), written), args)
    return DONE
