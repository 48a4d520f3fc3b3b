"""Listings and control-flow graphs as files: `python3 -m analysis sass v07 -o sass/v07.sm_80.sass`.

The listing of a version holds its own config only, with control codes beside each instruction. `sass --bare` strips any
listing of what moves when code is inserted, in place on request; `cfg` draws the basic blocks as DOT, or as SVG where
Graphviz is installed.
"""

import argparse
import json
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

from analysis.errors import DONE, AnalysisError
from analysis.files import read_text, write_atomically
from analysis.machine_code.loops import add_loop_argument, parts_of
from analysis.machine_code.notes import progress
from analysis.machine_code.regions import Graph, Parts, to_dot
from analysis.machine_code.sass import Listing, bare, format_listing, parse_listing
from analysis.machine_code.subjects import Subject, add_subject_arguments, listings_of, start, subject_of, subjects_of
from analysis.table import Table, add_output_arguments, emit, print_table


def add_sass_arguments(parser: argparse.ArgumentParser) -> None:
    add_subject_arguments(parser, many=True)
    add_output_arguments(parser)
    parser.add_argument("--bare", action="store_true", help="no addresses and no control codes, for diff(1)")
    parser.add_argument("--in-place", action="store_true", help="with --bare and a listing: rewrite the file itself")
    add_loop_argument(parser)
    parser.add_argument("--all", action="store_true", help="every kernel of the file, one file each in --out")
    parser.add_argument("--list", action="store_true", help="list the kernels instead of disassembling one")
    parser.add_argument("--out", type=Path, metavar="DIR", help="one file per subject, named NAME.ARCH.sass")
    parser.add_argument("--base", metavar="NAME", help="with --out: base name instead of the subject's own")
    parser.add_argument(
        "--nvdisasm-args",
        metavar="ARGS",
        help="print what nvdisasm prints with these options: --nvdisasm-args='-hex -g'",
    )


def run_sass(args: argparse.Namespace) -> int:
    if args.in_place:
        return _strip_in_place(args)
    subjects = _any_kernel(args) if args.all or args.list else subjects_of(args)
    if args.list:
        rows = [
            (subject.name, subject.arch, index, subject.label) for index, subject in enumerate(_all_kernels(subjects))
        ]
        args.csv = args.markdown = False
        args.sort = None
        print_table(Table(("subject", "arch", "index", "kernel"), rows), args)
        return DONE
    subjects = _all_kernels(subjects) if args.all else subjects
    if len(subjects) > 1 and args.out is None:
        raise AnalysisError("several kernels need --out DIR")
    options = shlex.split(args.nvdisasm_args) if args.nvdisasm_args else []
    written = 0
    for subject, text in progress(_texts(args, subjects, options), "kernels", len(subjects)):
        emit(text, args.out / _file_name(args, subject, len(subjects)) if args.out else args.output)
        written += 1
    if written < len(subjects):
        raise AnalysisError(f"{len(subjects) - written} of {len(subjects)} kernels are not read, see the notes")
    return DONE


def _texts(args: argparse.Namespace, subjects: list[Subject], options: list[str]) -> Iterator[tuple[Subject, str]]:
    """What is printed of each subject."""
    if options:
        for subject in subjects:
            subject.cubin_or_refuse("--nvdisasm-args")
        for subject, pending in [(subject, start(subject, options)) for subject in subjects]:
            assert pending.job is not None
            yield subject, pending.job.text()
        return
    if args.all:
        listings = listings_of(subjects)
    else:
        listings = ((subject, pending.listing()) for subject, pending in [(each, start(each)) for each in subjects])
    for subject, listing in listings:
        shown = only(listing, parts_of(listing, args.loop)) if args.loop else listing
        text = _json(shown) if args.json else format_listing(shown)
        yield subject, bare(text) if args.bare else text


def only(listing: Listing, parts: Parts) -> Listing:
    """The listing of a KV loop alone."""
    inside = {at.address for at in parts.graph.instructions(parts.kv.blocks)}
    labels = {name: address for name, address in listing.labels.items() if address in inside}
    return replace(listing, instructions=tuple(at for at in listing.code if at.address in inside), labels=labels)


def _any_kernel(args: argparse.Namespace) -> list[Subject]:
    """The subjects where each kernel is as good as another."""
    args.config = args.config or "0"
    return subjects_of(args)


def _all_kernels(subjects: list[Subject]) -> list[Subject]:
    every = []
    for subject in subjects:
        cubin, _ = subject.cubin_or_refuse("listing its kernels")
        every += [
            Subject(subject.name, subject.path, subject.arch, kernel, cubin, None, subject.folder)
            for kernel in cubin.entries
        ]
    return every


def _file_name(args: argparse.Namespace, subject: Subject, of: int) -> str:
    base = args.base or (subject.name if subject.is_version else Path(subject.name).name.split(".")[0])
    if args.all and of > 1:
        name = "".join(mark if mark.isalnum() or mark in "+_" else "_" for mark in subject.label)
        base = f"{base}.{name}"
    return f"{base}.{subject.arch}.sass"


def _strip_in_place(args: argparse.Namespace) -> int:
    if not args.bare:
        raise AnalysisError("--in-place goes with --bare")
    for name in [*args.subjects, *([args.cubin] if args.cubin else [])]:
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
    return json.dumps(record, indent=1) + "\n"


def add_cfg_arguments(parser: argparse.ArgumentParser) -> None:
    add_subject_arguments(parser)
    add_loop_argument(parser)
    add_output_arguments(parser)
    parser.add_argument("--svg", action="store_true", help="SVG instead of DOT; needs dot of Graphviz")


def run_cfg(args: argparse.Namespace) -> int:
    listing = start(subject_of(args)).listing()
    graph = Graph(listing)
    if args.json:
        blocks = [
            {"first": first, "instructions": len(block.instructions), "successors": block.successors}
            for first, block in sorted(graph.blocks.items())
        ]
        emit(json.dumps(blocks, indent=1) + "\n", args.output)
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
