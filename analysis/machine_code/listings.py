"""Listings and control-flow graphs as files: `python3 -m analysis sass v07 -o sass/v07.sm_80.sass`.

The listing of a version holds its own config only, with control codes next to each instruction. `sass --bare` strips
any listing of what moves when code is inserted, in place on request; `cfg` draws the basic blocks as DOT, or as SVG
where Graphviz is installed.
"""

import argparse
import shlex
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from analysis.errors import DONE, AnalysisError
from analysis.files import read_text, write_atomically
from analysis.ladder.config import library_of
from analysis.ladder.headers import VERSION
from analysis.machine_code.library import (
    Figures,
    Library,
    chosen_from,
    disassemble_library,
    opened,
    read_library,
)
from analysis.machine_code.loops import add_loop_argument, parts_of
from analysis.machine_code.names import add_filter_argument, file_part, names_of
from analysis.machine_code.regions import Graph, Parts, to_dot
from analysis.machine_code.sass import Listing, bare, format_listing, parse_listing, start_job
from analysis.machine_code.subjects import (
    add_subject_arguments,
    names_in,
    resolve,
    start,
    subject_of,
    subjects_of,
)
from analysis.table import Cell, Table, add_output_arguments, add_table_arguments, emit, json_text, print_table


def add_sass_arguments(parser: argparse.ArgumentParser) -> None:
    add_subject_arguments(parser, many=True)
    add_table_arguments(parser)
    parser.add_argument("--bare", action="store_true", help="leave out addresses and control codes, for diff(1)")
    parser.add_argument("--in-place", action="store_true", help="with --bare and a disassembly file: rewrite that file")
    add_loop_argument(parser)
    parser.add_argument("--all", action="store_true", help="write every kernel of every image to its own file in --out")
    parser.add_argument("--list", action="store_true", help="list the kernels of every image, as a table")
    add_filter_argument(parser, "with --all and --list: the kernels")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for one file per subject, named NAME.ARCH.sass")
    parser.add_argument("--base", metavar="NAME", help="with --out: base name (the subject's own)")
    parser.add_argument(
        "--nvdisasm-args",
        metavar="ARGS",
        help="print what nvdisasm prints with these options: --nvdisasm-args='-hex -g'",
    )


def run_sass(args: argparse.Namespace) -> int:
    if args.in_place:
        return _strip_in_place(args)
    if args.list:
        print_table(_list(args), args)
        return DONE
    if args.csv or args.markdown or args.sort:
        raise AnalysisError("--csv, --markdown, --sort: require --list")
    if args.filter is not None and not args.all:
        raise AnalysisError("--filter: requires --list or --all")
    return _print_all(args) if args.all else _print_chosen(args)


def _print_chosen(args: argparse.Namespace) -> int:
    subjects = subjects_of(args)
    if len(subjects) > 1 and args.out is None:
        raise AnalysisError("several kernels need --out DIR")
    names = _checked([f"{_base(args, subject.name)}.{subject.arch}.sass" for subject in subjects])
    options = _nvdisasm_options(args)
    if options:
        for subject in subjects:
            subject.cubin_or_refuse("--nvdisasm-args")
    for name, pending in zip(names, [start(subject, options) for subject in subjects], strict=True):
        text = pending.job.text() if options and pending.job else _text(args, pending.listing())
        emit(text, args.out / name if args.out else args.output)
    return DONE


def _print_all(args: argparse.Namespace) -> int:
    """Every kernel of the subjects; those that are not read are named in notes."""
    libraries = [(name, _library(args, name)) for name in names_in(args)]
    whole = [list(_file_names(_base(args, name), library).values()) for name, library in libraries]
    _checked([name for names in whole for name in names])
    chosen = [(name, library, chosen_from(library, args.filter)) for name, library in libraries]
    total = sum(len(library.kernels) for *_, library in chosen)
    if total > 1 and args.out is None:
        raise AnalysisError("several kernels need --out DIR")
    options = _nvdisasm_options(args)
    written = 0
    for name, library, part in chosen:
        names = _file_names(_base(args, name), library)
        listed = ((figures, _text(args, listing)) for figures, listing in disassemble_library(part))
        for figures, text in _raw(part, options) if options else listed:
            emit(text, args.out / names[figures.image, figures.index] if args.out else args.output)
            written += 1
    if written < total:
        raise AnalysisError(f"{total - written} of {total} kernels are not read, see the notes")
    return DONE


def _raw(library: Library, options: list[str]) -> Iterator[tuple[Figures, str]]:
    """The disassembly of each kernel by nvdisasm."""
    figures = {(each.image, each.index): each for each in library.kernels}
    with tempfile.TemporaryDirectory(prefix="flashladder.") as folder:
        for image, cubin, path, kernels in opened(library, Path(folder)):
            for job in [start_job(cubin, kernel, path, options) for kernel in kernels]:
                yield figures[image, job.kernel.index], job.text()


def _text(args: argparse.Namespace, listing: Listing) -> str:
    shown = only(listing, parts_of(listing, args.loop)) if args.loop else listing
    text = _json(shown) if args.json else format_listing(shown)
    return bare(text) if args.bare else text


def _nvdisasm_options(args: argparse.Namespace) -> list[str]:
    try:
        return shlex.split(args.nvdisasm_args or "")
    except ValueError as error:
        raise AnalysisError(f"--nvdisasm-args {args.nvdisasm_args}: {error}") from error


def only(listing: Listing, parts: Parts) -> Listing:
    """The listing of a KV loop alone."""
    inside = {at.address for at in parts.graph.instructions(parts.kv.blocks)}
    labels = {name: address for name, address in listing.labels.items() if address in inside}
    return replace(listing, instructions=tuple(at for at in listing.code if at.address in inside), labels=labels)


# ---- all kernels of a file -------------------------------------------------------------------------------------------


def _library(args: argparse.Namespace, name: str) -> Library:
    """The kernels of a file, of all its images or of one architecture; of a version, those that it is built with."""
    if VERSION.fullmatch(name):
        return read_library(resolve(name, args.arch, "0").path, None)
    return read_library(Path(name), args.arch)


def _list(args: argparse.Namespace) -> Table:
    """One row for each kernel of each image, with the index that --config takes in addition to --arch."""
    rows: list[list[Cell]] = []
    for name in names_in(args):
        library = _library(args, name)
        seen: Counter[str] = Counter()
        index = {}
        for figures in library.kernels:
            index[figures.image, figures.index] = seen[figures.arch]
            seen[figures.arch] += 1
        kernels = chosen_from(library, args.filter).kernels
        names = names_of(figures.symbol for figures in kernels)
        rows += [
            [name, each.arch, each.image, index[each.image, each.index], each.registers,
             library_of(each.symbol), names[each.symbol]]
            for each in kernels
        ]  # fmt: skip
    return Table(("subject", "arch", "image", "index", "registers", "library", "kernel"), rows)


def _base(args: argparse.Namespace, subject: str) -> str:
    return str(args.base or (subject if VERSION.fullmatch(subject) else Path(subject).name.split(".")[0]))


def _file_names(base: str, library: Library) -> dict[tuple[int, int], str]:
    """A file name for each kernel of a library, by image and index: no two are the same, whatever is chosen of them."""
    if len(library.kernels) == 1:
        (only_one,) = library.kernels
        return {(only_one.image, only_one.index): f"{base}.{only_one.arch}.sass"}
    names = names_of(figures.symbol for figures in library.kernels)
    seen: Counter[str] = Counter()
    found = {}
    for each in library.kernels:
        name = f"{base}.{file_part(each.symbol, names[each.symbol])}"
        location = f"{name} {each.arch}"
        found[each.image, each.index] = f"{name}{f'.{seen[location]}' if seen[location] else ''}.{each.arch}.sass"
        seen[location] += 1
    return found


def _checked(names: Sequence[str]) -> Sequence[str]:
    """File names of which no two are the same."""
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise AnalysisError(f"two kernels would be written to {twice[0]}: give each subject a call of its own")
    return names


def _strip_in_place(args: argparse.Namespace) -> int:
    if not args.bare:
        raise AnalysisError("--in-place: requires --bare")
    for name in names_in(args):
        path = Path(name)
        text = read_text(path)
        parse_listing(text, name)  # refuses what is not a listing before anything is written
        write_atomically(path, bare(text))
    return DONE


def _json(listing: Listing) -> str:
    record = {
        "kernel": listing.label,
        "arch": listing.arch,
        "instructions": [
            {**asdict(at), "control": str(at.control) if at.control else None} for at in listing.instructions
        ],
    }
    return json_text(record)


def add_cfg_arguments(parser: argparse.ArgumentParser) -> None:
    add_subject_arguments(parser)
    add_loop_argument(parser)
    add_output_arguments(parser)
    parser.add_argument("--svg", action="store_true", help="write SVG instead of DOT; requires dot from Graphviz")


def run_cfg(args: argparse.Namespace) -> int:
    listing = start(subject_of(args)).listing()
    graph = Graph(listing)
    if args.json:
        blocks = [
            {"first": first, "instructions": len(block.instructions), "successors": block.successors}
            for first, block in sorted(graph.blocks.items())
        ]
        emit(json_text(blocks), args.output)
        return DONE
    text = to_dot(graph, parts_of(listing, args.loop).kv.blocks if graph.nest else frozenset())
    if args.svg:
        text = _svg(text)
    emit(text, args.output)
    return DONE


def _svg(dot: str) -> str:
    program = shutil.which("dot")
    if program is None:
        raise AnalysisError("--svg needs dot, of the package graphviz; without --svg the graph is printed as DOT")
    done = subprocess.run([program, "-Tsvg"], input=dot, capture_output=True, text=True, check=False)
    if done.returncode:
        raise AnalysisError(f"dot: {done.stderr.strip()}")
    return done.stdout
