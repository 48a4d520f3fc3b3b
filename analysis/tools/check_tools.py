"""`./fl check-tools ...`: what the parsers make of any files, so that users can try their own.

Each file is recognized by its content: cubin, executable or fatbinary, listing, PTX, ptxas log, record of measurements,
kernel source. A file that no parser recognizes, or that one refuses, is named with the reason, and the status is 2.
"""

import argparse
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from analysis.errors import DONE, REFUSED, AnalysisError
from analysis.ladder.config import library_of
from analysis.ladder.headers import read_version
from analysis.machine_code.control import inconsistencies
from analysis.machine_code.cubin import Cubin, Kernel
from analysis.machine_code.images import FATBIN_MAGIC, is_cubin, read_bytes, survey
from analysis.machine_code.loops import parts_in
from analysis.machine_code.names import names_of
from analysis.machine_code.notes import progress
from analysis.machine_code.ptx import parse_ptx
from analysis.machine_code.ptxas_log import looks_like_log, parse_log
from analysis.machine_code.regions import Graph
from analysis.machine_code.sass import Listing, Refused, disassemble_all, parse_listing
from analysis.measure.records import parse_lines
from analysis.table import Cell, Table, add_table_arguments, print_table


@dataclass(frozen=True)
class Finding:
    """One thing recognized in a file, or the reason why nothing was."""

    kind: str
    what: str
    detail: str
    bad: bool = False


def check_file(path: Path) -> list[Finding]:
    """Everything recognized in a file; a single bad finding when it is none of the known kinds."""
    try:
        data = read_bytes(path)
        if is_cubin(data):
            return _cubin(Cubin(data, str(path)), path)
        if data.startswith((b"\x7fELF", FATBIN_MAGIC)):
            return _executable(path)
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return [Finding("unknown", "", f"binary, but neither ELF nor a fatbinary ({len(data)} bytes)", True)]
    except AnalysisError as error:
        return [Finding("refused", "", str(error), True)]
    refused = []
    for kind, looks_like, read in _TEXTS:
        if looks_like(text):
            try:
                return read(text, path)
            except AnalysisError as error:
                refused.append(Finding(f"refused {kind}", "", str(error), True))
    return refused or [Finding("unknown", "", f"none of: {', '.join(kind for kind, _, _ in _TEXTS)}", True)]


def _cubins(cubins: Iterable[tuple[Cubin, Path, Sequence[Kernel]]], total: int, name: str) -> Iterator[Finding]:
    """Every kernel of some cubins: disassembled, joined with its bytes, split into regions."""
    for cubin, kernel, listing in progress(disassemble_all(cubins), f"kernels of {name}", total):
        label = kernel.symbol
        try:
            if isinstance(listing, Refused):
                raise AnalysisError(listing.reason)
            graph = Graph(listing)
            nest = f"{len(graph.loops())} loops" if graph.nest else "no loop"
            loop = f", KV loop of {len(parts_in(graph).loop)}" if graph.nest else ""
            registers = "" if kernel.registers is None else f", {kernel.registers} registers"
            detail = f"{len(listing.body)} instructions{registers}, {nest}{loop}{_unknown(listing)}"
            yield Finding(f"kernel {cubin.arch}", label, detail)
            strange = inconsistencies(graph)
            if strange:
                yield Finding("control codes", label, strange[0], True)
        except AnalysisError as error:
            yield Finding(f"refused kernel {cubin.arch}", label, str(error), True)


def _cubin(cubin: Cubin, path: Path) -> list[Finding]:
    found = list(_cubins([(cubin, path, cubin.entries)], len(cubin.entries), str(path)))
    return found or [Finding("cubin", "", "no kernel", True)]


def _executable(path: Path) -> list[Finding]:
    images, skipped = survey(path)
    found = [Finding("refused image", "", each.reason, True) for each in skipped]
    total = sum(image.kernels for image in images)
    with tempfile.TemporaryDirectory(prefix="flashladder.") as folder:
        cubins = [image for image in images if image.kind == "cubin"]
        opened = ((image.cubin(str(path)), image.as_file(Path(folder))) for image in cubins)
        found += _cubins(((cubin, file, cubin.entries) for cubin, file in opened), total, str(path))
    for image in images:
        if image.kind == "ptx":
            text = image.data.decode("utf-8", "replace")
            if not re.search(r"\.(entry|func)\b", text):
                found.append(Finding(f"PTX {image.arch}", image.origin, "no function"))
                continue
            try:
                found += _ptx(text, path)
            except AnalysisError as error:
                found.append(Finding("refused PTX", image.origin, str(error), True))
    return found


def _unknown(listing: Listing) -> str:
    other = ", ".join(f"{times} {opcode}" for opcode, times in sorted(listing.unknown.items()))
    return f", not known: {other}" if other else ""


def _listing(text: str, path: Path) -> list[Finding]:
    return [
        Finding(
            "listing",
            listing.symbol or listing.label,
            f"{len(listing.body)} instructions"
            + (", control codes" if listing.instructions[0].control else "")
            + (f", {len(Graph(listing).loops())} loops" if listing.labels else "")
            + _unknown(listing),
        )
        for listing in parse_listing(text, str(path))
    ]


def _ptx(text: str, path: Path) -> list[Finding]:
    module = parse_ptx(text, str(path))
    return [
        Finding(f"PTX {module.version} {module.target}", each.name, f"{len(each.statements)} statements")
        for each in module.functions
    ]


def _log(text: str, path: Path) -> list[Finding]:
    log = parse_log(text, str(path))
    found = [Finding(f"log {usage.arch}".strip(), usage.name, usage.sentence()) for usage in log.functions]
    return found + [Finding("log note", note.code, note.text) for note in log.notes]


def _records(text: str, path: Path) -> list[Finding]:
    return [
        Finding("record", f"{record.subject} {record.device}", f"{record.problem}, {len(record.samples_ns)} samples")
        for record in parse_lines(text.split("\n"), str(path))
    ]


def _source(text: str, path: Path) -> list[Finding]:
    version = read_version(path)
    return [Finding("kernel source", version.version, f"{version.header.config}; {len(version.checks)} checks")]


# Kinds of text in the order in which they are tried: name, what such a text holds, and the parser.
_TEXTS: tuple[tuple[str, Callable[[str], bool], Callable[[str, Path], list[Finding]]], ...] = (
    ("record", lambda text: text.lstrip().startswith("{"), _records),
    ("ptxas log", looks_like_log, _log),
    ("PTX", lambda text: "\n.version" in "\n" + text and ".target" in text, _ptx),
    ("listing", lambda text: "/*0000*/" in text, _listing),
    ("kernel source", lambda text: "__global__" in text, _source),
)


def add_check_tools_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="logs, cubins, executables, listings, PTX")
    add_table_arguments(parser)


def run_check_tools(args: argparse.Namespace) -> int:
    rows: list[list[Cell]] = []
    bad = 0
    for path in args.files:
        found = check_file(path)
        names = names_of(finding.what for finding in found)
        for finding in found:
            bad += finding.bad
            what = finding.what
            rows.append([str(path), finding.kind, finding.detail, library_of(what), names[what]])
    print_table(Table(("file", "kind", "detail", "library", "what"), rows), args)
    if bad:
        print(f"analysis check-tools: {bad} not recognized", file=sys.stderr)
    return REFUSED if bad else DONE
