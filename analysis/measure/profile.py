"""Hardware counters of one launch, by Nsight Compute: runs ncu over versions, or reads what it saved.

    python3 -m analysis profile --versions v09,v10 --seqs 4096      # needs a GPU and ncu; keeps logs/profile/*.csv
    python3 -m analysis profile logs/profile/h200.fp16.4096.csv     # needs neither

The clocks are left alone (--clock-control none), so cycles compare better than times. Reads the pages raw and details
of `ncu --csv`, of any kernel: those that are not ours are named by kind. A figure that was not collected stays empty.
"""

import argparse
import csv
import math
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

from analysis.errors import DONE, AnalysisError
from analysis.files import read_text, root, write_atomically
from analysis.ladder.config import ConfigError, KernelConfig, library_of, parse_config
from analysis.measure import executables
from analysis.measure.bench import dtypes_of
from analysis.measure.executables import CANNOT_RUN, RIGHT
from analysis.table import Cell, Table, add_table_arguments, print_table

SECTIONS = (
    "SpeedOfLight",
    "ComputeWorkloadAnalysis",
    "MemoryWorkloadAnalysis",
    "WarpStateStats",
    "LaunchStats",
    "Occupancy",
    "InstructionStats",
)
METRICS = (
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    "dram__bytes.sum",
    "smsp__inst_executed.sum",
)
TIMEOUT = 300.0

# Figure: its metrics on the raw page, older names last, and its label on the details page.
FIGURES = {
    "duration_ns": ("gpu__time_duration.sum", "Duration"),
    "cycles": ("gpc__cycles_elapsed.max", "sm__cycles_elapsed.max", "Elapsed Cycles"),
    "registers": ("launch__registers_per_thread", "Registers Per Thread"),
    "occupancy": ("sm__warps_active.avg.pct_of_peak_sustained_active", "Achieved Occupancy"),
    "l2_hit": ("lts__t_sector_hit_rate.pct", "L2 Hit Rate"),
    "instructions": ("smsp__inst_executed.sum", "Executed Instructions"),
    "wavefronts": (METRICS[0], METRICS[0]),
    "conflicts": (METRICS[1], METRICS[1]),
    "dram_bytes": (METRICS[2], METRICS[2]),
    "shared_pipe": ("l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_elapsed", ""),
}
PIPE = re.compile(r"sm__(?:inst_executed_pipe|pipe)_(\w+?)(_cycles_active)?\.avg\.pct_of_peak_sustained_active")
PART_OF_PIPE = re.compile(r"shared$|tensor_(op|type)_|fma_type_|cbu_|fmaheavy$")  # shown as its whole
STALL = re.compile(r"smsp__average_warps_issue_stalled_(\w+?)_per_issue_active(?:\.ratio)?$")
SCALE = {  # to nanoseconds, bytes and plain numbers
    "s": 1e9,
    "second": 1e9,
    "ms": 1e6,
    "msecond": 1e6,
    "us": 1e3,
    "usecond": 1e3,
    "ns": 1.0,
    "nsecond": 1.0,
    "byte": 1.0,
    "Kbyte": 1e3,
    "Mbyte": 1e6,
    "Gbyte": 1e9,
    "Tbyte": 1e12,
}


@dataclass(frozen=True)
class Profile:
    """One launch. Shares are percent of peak, stalls are warps stalled for each issued instruction."""

    source: str  # version, or the file's name; of a file with launches of several programs the program
    kernel: str  # symbol or demangled name, as ncu printed it
    grid: tuple[int, ...]
    figures: dict[str, float]
    pipes: dict[str, float] = field(default_factory=dict)
    stalls: dict[str, float] = field(default_factory=dict)
    problem: tuple[int, int, int] | None = None  # batch, heads, seq, where known
    program: str = ""

    @property
    def config(self) -> KernelConfig | None:
        try:
            return parse_config(self.kernel)
        except ConfigError:
            return None

    def sizes(self) -> tuple[int, int, int] | None:
        """Batch, heads and length: those it was run with, or of a saved file those that the grid tells."""
        if self.problem is not None or self.config is None or self.config.split_tail or len(self.grid) != 3:
            return self.problem
        return self.grid[2], self.grid[1], self.grid[0] * self.config.B_r

    def tflops(self) -> float | None:
        """4·batch·heads·seq²·d over the duration, of one of our kernels."""
        config, time, sizes = self.config, self.figures.get("duration_ns"), self.sizes()
        if config is None or sizes is None or not time:
            return None
        batch, heads, seq = sizes
        return 4 * batch * heads * seq**2 * config.d_head / time / 1e3

    def seq(self) -> int | None:
        sizes = self.sizes()
        return sizes[2] if sizes else None


# ---- reading ncu's CSV -----------------------------------------------------------------------------------------------


def parse(text: str, source: str) -> list[Profile]:
    """Every launch in the output of `ncu --csv`; lines of the program and of ncu before the table are skipped."""
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID",')), None)
    if start is None:
        raise AnalysisError(f'{source}: no table of ncu --csv: no line begins with "ID"')
    table = [line for line in lines[start:] if line.startswith('"')]
    rows = list(csv.reader(table))
    header = rows[0]
    details = "Metric Name" in header
    for needed in ("Kernel Name", "Grid Size", *(("Metric Value", "Metric Unit") if details else ())):
        if needed not in header:
            raise AnalysisError(f"{source}: the table of ncu has no column {needed!r}")
    for number, row in enumerate(rows[1:], start=start + 2):
        if details:  # lines of metrics lack the columns that only lines of advice fill
            row += [""] * (len(header) - len(row))
        if len(row) != len(header):
            raise AnalysisError(f"{source}:{number}: {len(row)} cells, but the header has {len(header)}")
    found = _details(header, rows[1:], source) if details else _raw(header, rows[1:], source)
    if not found:
        raise AnalysisError(f"{source}: the table of ncu holds no kernel")
    several = len({one.program for one in found}) > 1
    return [replace(one, source=one.program) for one in found] if several else found


def _raw(header: list[str], rows: list[list[str]], source: str) -> list[Profile]:
    """Page raw: one column per metric, the second line holds units."""
    if not rows or rows[0][0]:
        raise AnalysisError(f"{source}: the line of units is missing below the header")
    units = dict(zip(header, rows[0], strict=True))
    profiles = []
    for row in rows[1:]:
        cells = dict(zip(header, row, strict=True))
        values = {name: (text, units[name]) for name, text in cells.items() if "__" in name}
        profiles.append(_profile(cells, values, source))
    return profiles


def _details(header: list[str], rows: list[list[str]], source: str) -> list[Profile]:
    """Page details: a line per metric, and lines of advice, which have no metric's name."""
    launches: dict[str, tuple[dict[str, str], dict[str, tuple[str, str]]]] = {}
    for row in rows:
        cells = dict(zip(header, row, strict=True))
        values = launches.setdefault(cells["ID"], (cells, {}))[1]
        values[cells["Metric Name"]] = (cells["Metric Value"], cells["Metric Unit"])
    return [_profile(cells, values, source) for cells, values in launches.values()]


def _profile(cells: dict[str, str], values: dict[str, tuple[str, str]], source: str) -> Profile:
    figures: dict[str, float] = {}
    pipes: dict[str, float] = {}
    stalls: dict[str, float] = {}
    for name, (text, unit) in values.items():
        value = _number(text, unit, f"{source}: {name}")
        if value is None:
            continue
        for figure, names in FIGURES.items():
            if name in names:
                figures[figure] = value
        if (pipe := PIPE.fullmatch(name)) and not PART_OF_PIPE.match(pipe[1]):
            pipes[pipe[1]] = max(value, pipes.get(pipe[1], 0.0))
        if (stall := STALL.fullmatch(name)) and stall[1] != "selected":
            stalls[stall[1]] = value
    grid = tuple(int(part) for part in re.findall(r"[0-9]{1,10}", cells["Grid Size"]))
    return Profile(source, cells["Kernel Name"], grid, figures, pipes, stalls, program=cells.get("Process Name", ""))


def _number(text: str, unit: str, where: str) -> float | None:
    """A cell's value in base units; None for an empty cell or words."""
    plain = text.replace(",", "").strip()
    if not re.match(r"[-+]?[0-9.]", plain):
        return None
    number = re.fullmatch(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?", plain)
    value = float(plain) * SCALE.get(unit.split("/")[0], 1.0) if number else math.inf
    if not math.isfinite(value):
        raise AnalysisError(f"{where}: {text[:60]!r} is not understood")
    return value


def mean(profiles: Sequence[Profile]) -> Profile:
    """Several launches of one kernel averaged figure by figure."""

    def average(maps: Iterable[dict[str, float]]) -> dict[str, float]:
        listed = list(maps)
        return {
            name: sum(one[name] for one in listed) / len(listed) for name in listed[0] if all(name in m for m in listed)
        }

    return replace(
        profiles[0],
        figures=average(p.figures for p in profiles),
        pipes=average(p.pipes for p in profiles),
        stalls=average(p.stalls for p in profiles),
    )


# ---- tables ----------------------------------------------------------------------------------------------------------


def columns(one: Profile, most: int) -> dict[str, Cell]:
    """The named figures of one kernel, with its `most` busiest pipes and worst stalls."""
    get = one.figures.get
    time, wavefronts, conflicts, dram = get("duration_ns"), get("wavefronts"), get("conflicts"), get("dram_bytes")
    config = one.config
    cells: dict[str, Cell] = {
        "from": one.source,
        "kernel": one.kernel if config is None else config.short_form(),
        "seq": one.seq(),
        "us": None if time is None else _short(time / 1e3),
        "TFLOP/s": _rounded(one.tflops(), 1),
        "cycles": _whole(get("cycles")),
        "registers": _whole(get("registers")),
        "occupancy %": _rounded(get("occupancy"), 1),
        "L2 hit %": _rounded(get("l2_hit"), 1),
        "DRAM MB": None if dram is None else round(dram / 1e6, 1),
        "instructions": _whole(get("instructions")),
        "shared wavefronts": _whole(wavefronts),
        "bank conflicts": _whole(conflicts),
        "L1 data pipe %": _rounded(get("shared_pipe"), 1),
    }
    library = library_of(one.kernel)
    if library:
        cells["library"] = library
    for name, value in sorted(one.pipes.items(), key=lambda item: -item[1])[:most]:
        cells[f"pipe {name} %"] = round(value, 1)
    for name, value in sorted(one.stalls.items(), key=lambda item: -item[1])[:most]:
        cells[f"stall {name}"] = round(value, 2)
    return cells


def _short(value: float) -> Cell:
    """Three digits or more, without an exponent in the table."""
    return round(value) if value >= 1000 else round(value, 1)


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def table(profiles: Sequence[Profile], most: int, transpose: bool) -> Table:
    """One row per kernel; transposed, one column per kernel and a row for each pipe and stall that any shows."""
    cells = [columns(one, most) for one in profiles]
    seen = dict.fromkeys(name for one in cells for name in one)
    fixed = [name for name in seen if not name.startswith(("pipe ", "stall "))]
    variable = [name for name in seen if name not in fixed]
    names = fixed + sorted(variable, key=lambda name: name.startswith("stall "))
    full = [columns(one, 99) for one in profiles]
    if not transpose:
        return Table(names, [[one.get(name) for name in names] for one in full])
    return Table(
        ("figure", *(f"{one['from']}" for one in cells)),
        [[name, *(one.get(name) for one in full)] for name in names if name != "from"],
    )


def kept(folder: Path) -> dict[str, Profile]:
    """The launches at 4096 in fp16 that are kept in logs/profile, by version, read once while the files stay the same.

    GPU.fp16.4096.csv has one line for each below one header; what `./fl profile` wrote since is in files of its own.
    """
    paths = sorted((folder / "logs/profile").glob("*.fp16.4096.csv"))
    return dict(_launches_of(tuple((path, path.stat().st_mtime_ns, path.stat().st_size) for path in paths)))


@lru_cache(4)
def _launches_of(files: tuple[tuple[Path, int, int], ...]) -> dict[str, Profile]:
    return {
        one.program: replace(one, source=one.program)
        for path, _, _ in files
        for one in parse(read_text(path), str(path))
    }


# ---- running ncu -----------------------------------------------------------------------------------------------------


def command(version: str, arguments: Sequence[str]) -> list[str]:
    """The command line of one profiled launch."""
    options = ["--csv", "--page", "raw", "--print-units", "base", "--clock-control", "none"]
    options += ["--kernel-name", "flash_forward"]
    for section in SECTIONS:
        options += ["--section", section]
    program = [str(executables.find(version)), "--backend", "gpu", "--profile", *arguments]
    ncu = executables.cuda_program("ncu", "saved CSV files can be read without it")
    return [*executables.launcher(), ncu, *options, "--metrics", ",".join(METRICS), *program]


def measure(version: str, dtype: str, seq: int, args: argparse.Namespace) -> list[Profile]:
    """Profile the version's own config, or those asked for, and keep ncu's output in the folder."""
    arguments = ["--dtype", dtype] if not args.config else []
    for config in args.config or []:
        arguments += ["--config", config]
    sizes = (args.batch or executables.standard_batch(seq), args.heads, seq)
    for option, value in zip(("--batch", "--heads", "--seq"), sizes, strict=True):
        arguments += [option, str(value)]
    runs: list[list[Profile]] = []
    for run in range(args.runs):
        outcome = executables.run_command(command(version, arguments), TIMEOUT)
        executables.checked(outcome, (RIGHT,))
        runs.append([replace(one, problem=sizes) for one in parse(outcome.stdout, version)])
        name = f"{version}.{dtype}.{seq}" + (f".{run + 1}" if args.runs > 1 else "") + ".csv"
        write_atomically(args.folder / name, outcome.stdout[outcome.stdout.find('"ID",') :])
    by_kernel = zip(*runs, strict=True)
    return [mean(launches) for launches in by_kernel]


def add_profile_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files", nargs="*", type=Path, metavar="FILE", help="saved output of ncu --csv, instead of running ncu"
    )
    parser.add_argument(
        "--versions", metavar="LIST", help="versions, separated by commas or spaces (all that are built)"
    )
    parser.add_argument("--config", action="append", metavar="FORM", help="a built configuration, or all")
    parser.add_argument("--seqs", default="4096", metavar="LIST", help="lengths (4096)")
    parser.add_argument("--dtypes", default="fp16", metavar="LIST", help="fp16,bf16 (fp16)")
    parser.add_argument("--batch", type=int, metavar="N", help="sequences (16; 8 at 8192; 4 beyond)")
    parser.add_argument("--heads", type=int, default=16, metavar="N", help="heads (16)")
    parser.add_argument("--runs", type=int, default=1, metavar="N", help="launches to average (1)")
    parser.add_argument("--most", type=int, default=5, metavar="N", help="number of pipes and stalls to show (5)")
    parser.add_argument("--transpose", action="store_true", help="one column per kernel")
    parser.add_argument(
        "--folder", type=Path, default=root() / "logs" / "profile", metavar="FOLDER", help="folder for ncu's output"
    )
    add_table_arguments(parser)


def run_profile(args: argparse.Namespace) -> int:
    """Run ncu or read files, and print the table. Status 77 without a GPU."""
    profiles: list[Profile] = []
    if missing := [path for path in args.files if not path.exists()]:
        there = ", ".join(path.name for path in sorted((root() / "logs/profile").glob("*.csv"))) or "no file"
        raise AnalysisError(f"{missing[0]}: no such file; logs/profile/ holds {there}, and `./fl profile` adds to it")
    for path in args.files:
        profiles += parse(read_text(path), path.name.removesuffix(".csv"))
    if not args.files:
        if args.runs < 1:
            raise AnalysisError(f"--runs {args.runs}: must be at least 1")
        try:
            executables.need_gpu()
            for version in executables.chosen_versions(args.versions):
                for dtype in dtypes_of(args):
                    for seq in executables.numbers(args.seqs, "--seqs"):
                        profiles += measure(version, dtype, seq, args)
        except executables.NoGpu as error:
            print(f"profile needs a GPU, and there is none; saved files can be read ({error})", file=sys.stderr)
            return CANNOT_RUN
    print_table(table(profiles, args.most, args.transpose), args)
    return DONE
