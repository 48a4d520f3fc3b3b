"""Tries the emulator on other people's kernels: `./fl corpus FOLDER` tabulates what it accepts and what it refuses.

Every .cu file below the folder is compiled by nvcc, every .ptx file is read; `bin/ptxrun --list` decodes each entry.
The file corpus.txt in the folder, or --settings FILE, says how, one line for each subfolder or file; the longest name
that fits a file counts. Flags run in the folder, so that -I names are relative to it:

    samples: -Isamples/include -std=c++17
    samples/graphics: skip needs OpenGL
    run samples/saxpy.cu --entry saxpy --block 256 --arg f32:2 --arg buf:f32:256:ramp --arg out:f32:256

A `run` line launches an entry with these options of ptxrun. PTX that nvcc made is kept (docs/debug-your-kernel.md), so
that a run that was stopped continues where it was.
"""

import argparse
import os
import re
import shlex
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from analysis.building import built
from analysis.errors import DONE, AnalysisError
from analysis.files import read_text, root
from analysis.measure.executables import TIMED_OUT, run_command
from analysis.table import Cell, Table, add_table_arguments, print_table

SETTINGS = "corpus.txt"
TIMEOUT = 600.0
CLEAN, FOUND, FAULT = 0, 1, 3  # exit statuses of ptxrun
OPCODE = re.compile(r"(?:@!?[\w%$]+\s+)?([a-z][\w.:]*)")


@dataclass(frozen=True)
class Settings:
    """The contents of corpus.txt: flags or a reason to skip by name of a folder or file, and launches by file."""

    flags: dict[str, tuple[str, ...]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    launches: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def nearest(self, name: str) -> str:
        """The longest of the names given that is the file or a folder above it; "" for none."""
        above = [name, *(parent.as_posix() for parent in Path(name).parents)]
        return next((each for each in above if each in self.flags or each in self.skipped), "")


def parse_settings(text: str, name: str) -> Settings:
    """The settings of a text; `name` is for messages."""
    flags: dict[str, tuple[str, ...]] = {}
    skipped: dict[str, str] = {}
    launches = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        try:
            words = shlex.split(line)
        except ValueError as error:
            raise AnalysisError(f"{name}:{number}: {error}") from error
        if words[0] == "run" and len(words) > 1:
            launches.append((words[1], tuple(words[2:])))
        elif words[0].endswith(":") and len(words[0]) > 1:
            key = words[0].rstrip(":").rstrip("/")
            if words[1:2] == ["skip"]:
                skipped[key] = " ".join(words[2:]) or "no reason given"
            else:
                flags[key] = tuple(words[1:])
        else:
            wanted = "'FOLDER: FLAGS', 'FOLDER: skip REASON' or 'run FILE OPTIONS'"
            raise AnalysisError(f"{name}:{number}: expected {wanted}, found '{line[:60]}'")
    return Settings(flags, skipped, tuple(launches))


@dataclass(frozen=True)
class Refusal:
    """An entry that is refused: the instruction that its reason names, and the reason."""

    entry: str
    opcode: str
    reason: str


@dataclass(frozen=True)
class Tried:
    """The result of one file. `problem` is why it has no PTX that is read; then its entries are not known."""

    name: str
    accepted: int = 0
    refused: tuple[Refusal, ...] = ()
    problem: str = ""
    skipped: bool = False
    launches: tuple[int, ...] = ()  # exit statuses of ptxrun


def opcode_at(path: Path, number: int) -> str:
    """The opcode with its modifiers at a line of a PTX file; "declaration" where there is no instruction."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    match = OPCODE.match(lines[number - 1].lstrip(" \t{}")) if 0 < number <= len(lines) else None
    return match[1].rstrip(".:") if match else "declaration"


def parse_list(text: str, folder: Path) -> tuple[int, list[Refusal]]:
    """The number of entries that `ptxrun --list`, run in a folder, prints as accepted, and the entries that it
    rejects."""
    accepted, refused, entry = 0, [], ""
    for line in text.splitlines():
        if not line.startswith(" "):
            entry = line
        elif " PTX instructions, " in line:
            accepted += 1
        elif match := re.match(r"  rejected: (.*?):(\d+): (.*)", line):
            refused.append(Refusal(entry, opcode_at(folder / match[1], int(match[2])), match[3]))
    return accepted, refused


def try_file(folder: Path, name: str, settings: Settings, timeout: float) -> Tried:
    """Compile or read one file, decode its entries, and launch those that the settings launch."""
    key = settings.nearest(name)
    if key in settings.skipped:
        return Tried(name, problem=settings.skipped[key], skipped=True)
    flags = ["--", *settings.flags[key]] if name.endswith(".cu") and settings.flags.get(key) else []
    tool = ["env", "-C", str(folder), str(root() / "bin/ptxrun"), name]
    listed = run_command([*tool, "--list", *flags], timeout)
    accepted, refused = parse_list(listed.stdout, folder)
    if listed.status == TIMED_OUT or (listed.status != CLEAN and not refused):
        return _not_read(folder, name, _reason(listed.stderr, listed.status, timeout))
    launches = [
        run_command([*tool, *options, *flags], timeout).status
        for launched, options in settings.launches
        if launched == name
    ]
    return Tried(name, accepted, tuple(refused), launches=tuple(launches))


def _not_read(folder: Path, name: str, reason: str) -> Tried:
    """The result of a file for which --list fails: PTX that is refused as a whole has all its entries refused."""
    match = re.match(r"(.*\.ptx):(\d+): (.*)", reason)
    if match is None:
        return Tried(name, problem=reason)
    text = (folder / match[1]).read_text(encoding="utf-8", errors="replace")
    entries = re.findall(r"^[^/\n]*\.entry\s+([\w$]+)", text, re.MULTILINE)
    opcode = opcode_at(folder / match[1], int(match[2]))
    return Tried(name, refused=tuple(Refusal(entry, opcode, match[3]) for entry in entries))


def _reason(stderr: str, status: int, timeout: float) -> str:
    if status == TIMED_OUT:
        return f"stopped after {timeout:g} s"
    return (stderr.strip().splitlines() or [f"exit status {status}"])[-1].removeprefix("ptxrun: ")


def try_folder(folder: Path, settings: Settings, timeout: float, jobs: int) -> Iterator[Tried]:
    """All .cu and .ptx files below a folder, in order; progress goes to standard error."""
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.suffix in (".cu", ".ptx"))
    if not names:
        raise AnalysisError(f"{folder}: must contain .cu or .ptx files")
    unknown = {name for name, _ in settings.launches} - set(names)
    if unknown:
        raise AnalysisError(f"run {min(unknown)}: must be a file in {folder}")
    with ThreadPoolExecutor(jobs) as pool:
        tries = [pool.submit(try_file, folder, name, settings, timeout) for name in names]
        for number, tried in enumerate(tries, start=1):
            done = tried.result()
            print(f"[{number}/{len(names)}] {done.name}: {_said(done)}", file=sys.stderr, flush=True)
            yield done


def _said(tried: Tried) -> str:
    if tried.problem:
        return f"{'skipped' if tried.skipped else 'not read'}: {tried.problem}"
    launched = f", {len(tried.launches)} launched" if tried.launches else ""
    return f"{tried.accepted} accepted, {len(tried.refused)} refused{launched}"


COLUMNS = ("folder", "files", "not read", "entries", "accepted", "refused", "launched", "clean", "findings")


def by_folder(tried: Iterable[Tried], depth: int) -> Table:
    """A row for each folder, `depth` names deep, and their sum. Files that were skipped are not counted."""
    folders: dict[str, list[Tried]] = {}
    for each in tried:
        if not each.skipped:
            folders.setdefault("/".join(each.name.split("/")[:-1][:depth]) or ".", []).append(each)
    rows = [_row(folder, files) for folder, files in sorted(folders.items())]
    return Table(COLUMNS, [*rows, _row("all", [each for files in folders.values() for each in files])])


def _row(folder: str, files: Sequence[Tried]) -> list[Cell]:
    accepted = sum(each.accepted for each in files)
    refused = Counter(refusal.opcode.split(".")[0] for each in files for refusal in each.refused)
    statuses = Counter(status for each in files for status in each.launches)
    opcodes = ", ".join(
        f"{opcode} {count}" for opcode, count in sorted(refused.items(), key=lambda row: (-row[1], row[0]))
    )
    return [
        folder,
        len(files),
        sum(bool(each.problem) for each in files),
        accepted + refused.total(),
        accepted,
        opcodes or None,
        statuses.total(),
        statuses[CLEAN],
        statuses[FOUND] + statuses[FAULT],
    ]


def refusals(tried: Iterable[Tried]) -> Table:
    """Every file that was not read and every entry that was refused, with the reason."""
    rows: list[list[Cell]] = []
    for each in tried:
        if each.problem and not each.skipped:
            rows.append([each.name, None, None, each.problem])
        rows += [[each.name, refusal.entry, refusal.opcode, refusal.reason] for refusal in each.refused]
    return Table(("file", "entry", "opcode", "reason"), rows)


def add_corpus_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, metavar="DIR", help="folder with .cu and .ptx files")
    parser.add_argument(
        "--settings", type=Path, metavar="FILE", help=f"flags, files to skip, launches (DIR/{SETTINGS})"
    )
    parser.add_argument("--depth", type=int, default=1, metavar="N", help="folder levels that make a row (1)")
    parser.add_argument("--refused", action="store_true", help="list the rejected kernels instead, with the reasons")
    parser.add_argument("--timeout", type=float, default=TIMEOUT, metavar="S", help="time limit for each command (600)")
    add_table_arguments(parser)


def run_corpus(args: argparse.Namespace) -> int:
    if not args.folder.is_dir():
        raise AnalysisError(f"{args.folder}: no such folder")
    built("bin/ptxrun")
    if not (root() / "bin/ptxrun").exists():
        raise AnalysisError("bin/ptxrun: not built; run `make bin/ptxrun`")
    path = args.settings or args.folder / SETTINGS
    settings = parse_settings(read_text(path), str(path)) if args.settings or path.exists() else Settings()
    tried = list(try_folder(args.folder.resolve(), settings, args.timeout, len(os.sched_getaffinity(0))))
    print_table(refusals(tried) if args.refused else by_folder(tried, args.depth), args)
    return DONE
