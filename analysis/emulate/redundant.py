"""Which barriers, fences and waits of a kernel does no run need? `./fl redundant v16`, or with the options of ptxrun:

    ./fl redundant sums.ptx --grid 2 --block 1024 --arg buf:f32:2048:ramp --arg out:f32:64

The command removes each of them in turn from the PTX, runs the kernel in the default order and under seeds, with loads
that may return earlier values, and compares status, findings, the bits of the results and what the run proves about
all orders. An instruction is needed if a run differs. The list is a hint for one problem: another length or input may
take another path, and the emulator has no caches and no proxies that are late. A wgmma.wait_group counts for the four
warps of its warpgroup, and the loads of a version never return earlier values. If sums of a version depend on the order
of its atomics, so that seeds give other bits, only its own check compares the results.

    ./fl redundant --write                                            # the whole ladder
    ./fl redundant --write --launches emulator/suite/public_kernels.txt ../kernels   # PTX files of that folder

`--write` replaces the records' rows of the kernels that ran. No GPU has measured what leaving an instruction out gains.
"""

import argparse
import csv
import json
import re
import subprocess
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from analysis.building import built
from analysis.emulate.corpus import parse_settings
from analysis.errors import DONE, AnalysisError
from analysis.files import read_text, root, write_if_changed
from analysis.ladder.headers import load_all
from analysis.measure import executables
from analysis.table import Cell, Table, add_table_arguments, print_table

TIMEOUT = 120.0
COLUMNS = ("kernel", "source", "PTX line", "instruction", "without it")
RECORD = "logs/emulator/redundant.csv"
SUMMARY = "logs/emulator/redundant_kernels.csv"
SUMMARY_COLUMNS = ("kernel", "problem", "instructions", "not needed", "orders")
NOT_NEEDED = "no run needs it"
SYNCHRONIZES = re.compile(
    r"(?<![\w.%$])(?:@!?%p\d+\s+)?(?:bar(?:rier)?\.(?:cta\.)?(?:sync|arrive)|bar\.warp\.sync|barrier\.cluster\.(?:arrive|wait)"
    r"|fence\.|membar\.|cp\.async\.wait_|cp\.async\.bulk\.wait_group|wgmma\.(?:fence|wait_group)"
    r"|griddepcontrol\.wait|mbarrier\.(?:try|test)_wait)[\w.:]*"
)
WAITS = re.compile(r"mbarrier\.(?:try|test)_wait[\w.:]*\s+(%?\w+)")
ORDERS = re.compile(r"^\s*orders: (.*)$", re.M)
ENTRY = re.compile(r"\.entry\s+(\w+)")


@dataclass(frozen=True)
class Instruction:
    line: int  # of the PTX, from 1
    text: str
    source: str  # FILE:LINE, "" without .loc


@dataclass(frozen=True)
class Outcome:
    """Result of a run: exit status, classes of the findings, what it proves about all orders, and the output."""

    status: int
    found: str
    orders: str
    results: bytes


Run = Callable[[Path, int], Outcome]  # of a PTX file under a seed


def instructions(text: str, entry: str) -> Iterator[Instruction]:
    """Instructions of an entry that synchronize, in the order of the PTX."""
    files = dict(re.findall(r"^\s*\.file\s+(\d+)\s+\"(?:[^\"]*/)?([^\"/]+)\"", text, re.M))
    inside, source = False, ""
    for number, line in enumerate(text.splitlines(), 1):
        if begins := ENTRY.search(line):
            inside = begins[1] == entry
        if at := re.match(r"\s*\.loc\s+(\d+)\s+(\d+)", line):
            source = f"{files.get(at[1], '')}:{at[2]}"
        if inside and (found := SYNCHRONIZES.search(line)):
            yield Instruction(number, " ".join(line[found.start() :].partition(";")[0].split()), source)


def without(text: str, removed: Instruction, instead: str = "") -> str:
    """The PTX without one of them, or with another instruction. A wait for an mbarrier answers that it may continue."""
    lines = text.splitlines()
    line = lines[removed.line - 1]
    waits = WAITS.search(line)
    put = instead or (f"setp.eq.u32 {waits[1]}, 0, 0;" if waits else "")
    lines[removed.line - 1] = re.sub(SYNCHRONIZES.pattern + r"[^;]*;", put, line, count=1)
    return "\n".join(lines) + "\n"


def needed(base: Sequence[Outcome], text: str, each: Instruction, run: Run, folder: Path) -> str:
    """Why a run needs an instruction; "" where none does, and a remark if no run executes it."""
    path = folder / "without.ptx"
    path.write_text(without(text, each, "trap;"))
    if run(path, 0) == base[0]:
        return "no run executes it"
    path.write_text(without(text, each))
    for seed, before in enumerate(base):
        after = run(path, seed)
        if after.status != before.status:
            return after.found or f"exit status {after.status}"
        if after.found != before.found:
            return after.found
        if after.results != before.results:
            return f"other results under seed {seed}"
        if after.orders != before.orders:
            return after.orders
    return ""


def found_in(text: str) -> str:
    classes = re.search(r"^\d+ findings?: (.*)$", text, re.M)
    names = re.findall(r"^\s*(?:warning: |error: )?([a-z-]+) at ", text, re.M)
    named = re.sub(r" \(\d+ times\)", "", classes[1]).split(", ") if classes else names
    return ", ".join(dict.fromkeys(named))


def outcome(done: subprocess.CompletedProcess[str], results: Sequence[Path]) -> Outcome:
    bits = b"".join(each.read_bytes() for each in results if each.exists())
    orders = ORDERS.search(done.stdout + done.stderr)
    return Outcome(done.returncode, found_in(done.stdout + done.stderr), orders[1] if orders else "", bits)


def call(command: Sequence[str], results: Sequence[Path]) -> Outcome:
    """results: the files that it writes."""
    for each in results:
        each.unlink(missing_ok=True)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        return Outcome(-1, "it never ends", "", b"")
    return outcome(done, results)


def run_of_version(name: str, seq: int, folder: Path) -> tuple[str, str, Run]:
    """A built version on the emulator: its PTX, the symbol of its entry, and how it runs."""
    built(name)
    path, results = root() / "bin" / name, folder / "results"
    if not path.exists():
        raise AnalysisError(f"bin/{name}: is missing; run `make {name}`")
    problem = f"--backend emu --batch 1 --heads 1 --seq {seq} --check all".split()
    about = executables.checked(executables.run_command([str(path), *problem, "--json", "-"], TIMEOUT)).stdout
    symbol = str(json.loads(about.strip().splitlines()[-1])["symbol"])

    def run(ptx: Path, seed: int) -> Outcome:
        command = [str(path), *problem, "--ptx", str(ptx), "--schedule", str(seed), "--output", str(results)]
        return call(command, [results])

    return read_text(root() / f"build/{name}/{name}.ptx"), symbol, run


def run_of_file(path: Path, options: Sequence[str], folder: Path) -> tuple[str, str, Run]:
    """A PTX file on ptxrun, with its options."""
    built("bin/ptxrun")
    tool, text = str(root() / "bin/ptxrun"), read_text(path)
    entries = ENTRY.findall(text)
    chosen = options[options.index("--entry") + 1] if "--entry" in options[:-1] else ""
    matching = [each for each in entries if chosen in each]
    if len(matching) != 1:
        raise AnalysisError(f"{path}: has the entries {', '.join(entries) or 'none'}; choose one by --entry NAME")
    buffers = [n for n, spec in enumerate(arguments_of(options)) if spec.startswith(("buf:", "out:"))]
    dumps = {n: folder / f"argument{n}" for n in buffers}

    def run(ptx: Path, seed: int) -> Outcome:
        dump = [word for n, to in dumps.items() for word in ("--dump", f"{n}={to}")]
        stale = ["--schedule", str(seed), "--stale"] if seed else []
        return call([tool, str(ptx), *options, *dump, *stale, "--orders"], [*dumps.values()])

    return text, matching[0], run


def arguments_of(options: Sequence[str]) -> list[str]:
    return [options[i + 1] for i, option in enumerate(options[:-1]) if option == "--arg"]


@dataclass(frozen=True)
class Subject:
    """A version, or a PTX file with its options of ptxrun."""

    name: str
    options: tuple[str, ...] = ()

    @property
    def kernel(self) -> str:
        """Its name in the tables: that of the file, with the entry if there are several."""
        if not self.name.endswith(".ptx"):
            return self.name
        entry = self.options[self.options.index("--entry") + 1] if "--entry" in self.options[:-1] else ""
        return " ".join([Path(self.name).stem, *([entry] if entry else [])])


@dataclass(frozen=True)
class Tried:
    """The synchronizing instructions of a kernel, and what each run without one shows."""

    rows: list[list[Cell]]
    summary: list[Cell]


def without_results(run: Run) -> Run:
    """The run, whose status still tells whether its results are right."""
    return lambda ptx, seed: replace(run(ptx, seed), results=b"")


def tried(subject: Subject, args: argparse.Namespace, folder: Path) -> Tried:
    path = Path(subject.name)
    if path.suffix == ".cu":
        raise AnalysisError(f"{path}: expected a PTX file; run `nvcc -ptx -lineinfo {path}` first")
    is_file = path.suffix == ".ptx"
    text, entry, run = (
        run_of_file(path, subject.options, folder) if is_file else run_of_version(subject.name, args.seq, folder)
    )
    unchanged = folder / "unchanged.ptx"
    unchanged.write_text(text)
    base = [run(unchanged, seed) for seed in range(args.seeds + 1)]
    if not is_file and any(each.results != base[0].results for each in base):
        run, base = without_results(run), [replace(each, results=b"") for each in base]
    wrong = next((each for each in base if each.status), None)
    if wrong or any(each.results != base[0].results for each in base):
        found = (wrong.found or f"exit status {wrong.status}") if wrong else "other results under some seed"
        raise AnalysisError(
            f"{subject.name}: the unchanged kernel must run without findings and with equal bits under all seeds; it "
            f"has {found}"
        )
    rows: list[list[Cell]] = [
        [subject.kernel, each.source, each.line, each.text, why or NOT_NEEDED]
        for each in instructions(text, entry)
        for why in [needed(base, text, each, run, folder)]
    ]
    problem = " ".join(subject.options) if is_file else f"--batch 1 --heads 1 --seq {args.seq}"
    without_need = sum(row[-1] == NOT_NEEDED for row in rows)
    return Tried(rows, [subject.kernel, problem, len(rows), without_need, base[0].orders])


def merged(path: Path, columns: Sequence[str], rows: Sequence[Sequence[Cell]], kernels: Collection[str]) -> str:
    """A record with the rows of these kernels replaced, in the order of their names."""
    kept: list[list[Cell]] = []
    if path.exists():
        kept = [[*row] for row in list(csv.reader(read_text(path).splitlines()))[1:] if row[0] not in kernels]
    return Table(columns, sorted([*kept, *map(list, rows)], key=lambda row: str(row[0]))).csv()


def subjects_of(args: argparse.Namespace) -> list[Subject]:
    if args.launches:
        if not args.subject:
            raise AnalysisError("redundant --launches: names no folder; give that of the PTX files")
        settings = parse_settings(read_text(args.launches), str(args.launches))
        return [Subject(str(Path(args.subject) / name), options) for name, options in settings.launches]
    if args.subject:
        return [Subject(args.subject, tuple(args.options))]
    if args.write:
        return [Subject(version) for version in load_all(root())]
    raise AnalysisError("redundant: names no kernel; give a version such as v16 or a PTX file")


def add_redundant_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "subject", nargs="?", metavar="VERSION|FILE.ptx", help="a built version, or a PTX file with options of ptxrun"
    )
    parser.add_argument("--seq", type=int, default=512, help="keys of a version's problem (512)")
    parser.add_argument("--seeds", type=int, default=1, help="seeds to try besides the default order (1)")
    parser.add_argument(
        "--launches",
        type=Path,
        metavar="FILE",
        help="run each PTX file that FILE lists, as corpus.txt does, in a folder",
    )
    parser.add_argument("--write", action="store_true", help=f"write what no run needs to {RECORD} and {SUMMARY}")
    add_table_arguments(parser)
    parser.add_argument("options", nargs=argparse.REMAINDER, help="for a file: options of ptxrun")


def run_redundant(args: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory() as name:
        each = [tried(subject, args, Path(name)) for subject in subjects_of(args)]
    rows = [row for one in each for row in one.rows]
    if not args.write:
        print_table(Table(COLUMNS, rows), args)
        return DONE
    kernels = {str(one.summary[0]) for one in each}
    kept = [row[:-1] for row in rows if row[-1] == NOT_NEEDED]
    write_if_changed(root() / RECORD, merged(root() / RECORD, COLUMNS[:-1], kept, kernels))
    summaries = [one.summary for one in each]
    write_if_changed(root() / SUMMARY, merged(root() / SUMMARY, SUMMARY_COLUMNS, summaries, kernels))
    return DONE
