"""Every field of a cubin that is changed is seen, or stands in the table of ../records/cubin_fields.md with its reason.

`python3 -m analysis.tests.machine_code.test_contents` writes that page.
"""

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from analysis.errors import AnalysisError
from analysis.files import root, write_if_changed
from analysis.machine_code.contents import items_of
from analysis.machine_code.cubin import Cubin
from analysis.table import Table
from analysis.tests.support.compiled import cubin, linked_later, without_lines
from analysis.tests.support.mutants import Field, fields, mutated

PAGE = root() / "analysis/tests/records/cubin_fields.md"
ARCHS = ("sm_80", "sm_90a", "sm_120")
SOURCES = ("attention.cu", "contents.cu", "jumps.cu", "plain.cu")
IN_ARCH = 2  # fields of a kind and architecture that are changed, in the short test
IN_ARCH_LONG = 5  # in the long one, each byte of them
RECORD = 64  # bytes of a field up to which the long test changes each

# What need not be seen: what it is, which fields, and why. Neither the driver nor the hardware reads it, or it says
# where something else stands.
REASONS = (
    ("padding of the ELF header", r"ELF header: padding", "unused"),
    ("section header 0, symbol 0", r"section header 0: .*|symbol 0: .*", "reserved by ELF, unused"),
    (
        "place and size of program headers",
        r"ELF header: (offset of program headers|size of a program header)",
        "of a relocatable file, which has none",
    ),
    ("bytes between sections", r"between sections", "they align the next section"),
    (".debug_*, .nv_debug_*", r"(contents|header) of \.debug_\*.*", "for debuggers and profilers"),
    ("highest byte of the flags", r"ELF header: flags", "what the file holds for debuggers"),
    (".note.nv.tkinfo", r"(contents|header) of \.note\.nv\.tkinfo.*", "which compiler made it, with which options"),
    (
        ".nv.merc.*",
        r"(contents|header) of \.nv\.merc\.\*.*|ELF header: number of section headers",
        "for a finaliser of another architecture; its code, .nv.capmerc.text, is compared",
    ),
    (
        ".strtab, .shstrtab",
        r"contents of \.(sh)?strtab|header of \.(sh)?strtab: .*",
        "tables of names: each name is compared where it is used",
    ),
    (
        "header of .symtab",
        r"header of \.symtab: (address|alignment|entry size|flags|info)",
        "of the table alone: each symbol is compared",
    ),
    (
        "place of a section in the file",
        r"header of .*: offset|program header: offset",
        "seen by the bytes there; a section of zeros or without bytes has no other",
    ),
    (
        "symbol of a section",
        r"symbol of a section: .*",
        "stands for its section in relocations; compared where one names it",
    ),
)


def corpus() -> Iterator[tuple[str, str, Path]]:
    """Source, architecture, cubin."""
    for arch in ARCHS:
        for source in SOURCES:
            yield source, arch, without_lines(source, arch)
        yield "contents.cu, relocatable", arch, linked_later("contents.cu", arch)
        yield "plain.cu, relocatable", arch, linked_later("plain.cu", arch)
    yield "warp_group.cu", "sm_90a", without_lines("warp_group.cu", "sm_90a")
    yield "pipeline.cu", "sm_90a", without_lines("pipeline.cu", "sm_90a")


View = list[tuple[str, str, str]] | None


def seen_of(data: bytes) -> View:
    """What two cubins are compared by; None where one is refused."""
    try:
        return [(item.kind, item.symbol, item.digest) for item in items_of(Cubin(data))]
    except AnalysisError:
        return None


def reason_of(field: str) -> str | None:
    return next((reason for _, pattern, reason in REASONS if re.fullmatch(pattern, field)), None)


def tried(choose: Callable[[Counter[tuple[str, str]], str, Field], range]) -> tuple[Counter[str], dict[str, str]]:
    """How often a mutant of each kind of field was seen, and of the kinds that were missed once, which."""
    seen: Counter[str] = Counter()
    missed: dict[str, str] = {}
    count: Counter[tuple[str, str]] = Counter()
    for source, arch, path in corpus():
        data = path.read_bytes()
        before = seen_of(data)
        assert before is not None
        for field in fields(data):
            count[arch, field.name] += 1
            for byte in choose(count, arch, field):
                if seen_of(mutated(data, field, byte)) == before:
                    missed[field.name] = f"{source} {arch}: byte {byte} of {field}"
                else:
                    seen[field.name] += 1
    return seen, missed


@cache
def tried_in_short() -> tuple[Counter[str], dict[str, str]]:
    return tried(lambda count, arch, field: range(count[arch, field.name] <= IN_ARCH))


def test_the_corpus_is_twenty_cubins() -> None:
    assert [len({path for *_, path in corpus()}), len(ARCHS)] == [20, 3]


@pytest.mark.long
def test_every_field_is_seen_or_has_a_reason() -> None:
    seen, missed = tried_in_short()
    assert [place for field, place in missed.items() if reason_of(field) is None] == []
    assert len(seen) > 300


@pytest.mark.long
def test_every_reason_is_one_of_a_field() -> None:
    _, missed = tried_in_short()
    # Of flags the short test changes the lowest byte, and of the first files of an architecture none is relocatable.
    also = {"ELF header: flags", "ELF header: offset of program headers"}
    unused = [
        name for name, pattern, _ in REASONS if not any(re.fullmatch(pattern, field) for field in {*missed, *also})
    ]
    assert unused == []


@pytest.mark.long
def test_every_byte_of_every_record() -> None:
    def choose(count: Counter[tuple[str, str]], arch: str, field: Field) -> range:
        bytes_of = field.size if field.size <= RECORD else 1
        return range(bytes_of if count[arch, field.name] <= IN_ARCH_LONG else 0)

    _, missed = tried(choose)
    assert [place for field, place in missed.items() if reason_of(field) is None] == []


def test_fields_cover_every_byte() -> None:
    for _, _, path in corpus():
        data = path.read_bytes()
        at = 0
        for field in fields(data):
            assert field.start == at
            at += field.size
        assert at == len(data)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("source", SOURCES)
def test_line_numbers_and_names_of_files_are_no_difference(source: str, arch: str) -> None:
    with_lines, without = cubin(source, arch).read_bytes(), without_lines(source, arch).read_bytes()
    assert with_lines != without
    assert seen_of(with_lines) == seen_of(without)


# ---- the page --------------------------------------------------------------------------------------------------------


def page() -> str:
    seen, missed = tried_in_short()
    groups = Counter(_group(field) for field in seen if field not in missed and reason_of(field) is None)
    compared = Table(("of", "kinds of fields"), sorted(groups.items()))
    left = Table(("what may differ", "why"), [(name, reason) for name, _, reason in REASONS])
    archs = f"{', '.join(ARCHS[:-1])} and {ARCHS[-1]}"
    return f"""# Fields of a cubin

<!-- written by `python3 -m analysis.tests.machine_code.test_contents`, and checked by it -->

What `sass-diff`, `regs` and the gate call identical agrees in everything that the driver and the hardware read. A test
changes a bit of each kind of field in 20 cubins for {archs}, relocatable ones among them, and all of
these are seen:

{compared.markdown()}
The rest may differ between two builds that are called identical:

{left.markdown()}"""


def _group(field: str) -> str:
    name = re.sub(r" 0x[0-9a-f]+", "", field).partition(": ")[0]
    for pattern, group in (
        (r"header of .*", "headers of sections"),
        (r"contents of .*", "contents of sections"),
        (r"relocation in .*", "relocations"),
        (r"symbol of .*", "symbols"),
        (r"instruction|NOP", "instructions and NOPs"),
        (r"\.nv\.info.*|\.nv\.compat", "attributes, in .nv.info and .nv.compat"),
        (r"program header", "program headers"),
    ):
        if re.fullmatch(pattern, name):
            return group
    return name


@pytest.mark.long
def test_the_page_is_fresh() -> None:
    assert PAGE.read_text(encoding="utf-8") == page()


if __name__ == "__main__":
    sys.exit(not write_if_changed(PAGE, page()))
