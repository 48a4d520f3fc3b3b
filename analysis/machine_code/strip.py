"""Cubins without debug sections: the machine code stays as it is, and the file is a quarter as long.

    python3 -m analysis strip build/v07/sm_80.cubin -o build/v07/library/sm_80.cubin

`ptxas -lineinfo` stores line tables and the PTX text next to the code, and the CUDA driver ignores them. A section
that goes keeps its number, because symbols and other headers refer to sections by number: it becomes an unused header
(SHT_NULL) without bytes.
"""

import argparse
import struct
from pathlib import Path

from analysis.errors import DONE, AnalysisError
from analysis.files import write_atomically
from analysis.machine_code.cubin import SEGMENT_BYTES, Cubin

ELF_HEADER, SECTION_HEADER = "<16sHHIQQQIHHHHHH", "<IIQQQQIIQQ"
DEBUG = (".debug_", ".nv_debug_", ".rel.debug_", ".rela.debug_", ".rel.nv_debug_", ".rela.nv_debug_")
SHT_NULL = 0
UNIT = 128  # bytes: the largest alignment in a cubin


def without_debug(data: bytes, name: str = "cubin") -> bytes:
    """The bytes of a cubin without its debug sections. The call frames (.debug_frame) stay."""
    cubin = Cubin(data, name)
    header = list(struct.unpack_from(ELF_HEADER, data))
    phoff, shoff = header[5], header[6]
    gone = {
        number: section
        for number, section in enumerate(cubin.sections)
        if section.name.startswith(DEBUG) and not section.name.endswith(".debug_frame")
    }
    # A multiple of every alignment is cut, so that what is left keeps its layout; zeros fill the rest.
    cuts = sorted((section.offset, len(section.data), len(section.data) // UNIT * UNIT) for section in gone.values())

    def moved(at: int) -> int:
        return at - sum(cut for begin, _, cut in cuts if begin < at)

    out, copied = bytearray(), 0
    for begin, size, cut in cuts:
        out += data[copied:begin] + bytes(size - cut)
        copied = begin + size
    out += data[copied:]
    for number, section in enumerate(cubin.sections):
        fields = list(struct.unpack_from(SECTION_HEADER, data, shoff + 64 * number))
        fields[4] = moved(section.offset)
        if number in gone:
            fields[1:] = [SHT_NULL, *[0] * 8]
        struct.pack_into(SECTION_HEADER, out, moved(shoff) + 64 * number, *fields)
    for number, segment in enumerate(cubin.segments):
        struct.pack_into("<Q", out, moved(phoff) + SEGMENT_BYTES * number + 8, moved(segment.offset))
    header[5:7] = moved(phoff), moved(shoff)
    struct.pack_into(ELF_HEADER, out, 0, *header)
    return bytes(out)


def add_strip_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("cubin", type=Path, help="the file to read")
    parser.add_argument("-o", "--output", type=Path, required=True, help="the file to write")


def run_strip(args: argparse.Namespace) -> int:
    try:
        data = args.cubin.read_bytes()
    except OSError as error:
        raise AnalysisError(f"{args.cubin}: {error.strerror}") from error
    write_atomically(args.output, without_debug(data, str(args.cubin)))
    return DONE
