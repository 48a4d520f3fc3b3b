"""The KV loops of a kernel and which of them runs: regs/loops.csv, from the emulator's counts.

    parts = parts_of(listing)               # split at the loop that runs
    parts = parts_of(listing, "tail slice") # at another one: by role, number or address

A kernel may hold several copies of its KV loop, each for some problems, and on sm_90a the loops of its producers, which
copy what the consumers' KV loops multiply. The emulator runs every version on the problem BENCHMARK, and on two more
that tell what the other copies are for; it counts by PTX line, and the line table of the cubin says which instructions
come from a line. `make accept` records that with the figures of each loop, and of the
rest of the kernel, which the gate compares (gate.py).
"""

import argparse
import csv
import io
import random
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from functools import cache, lru_cache
from itertools import pairwise
from math import ceil, erf, inf, sqrt
from pathlib import Path
from statistics import median
from weakref import WeakKeyDictionary

from analysis.errors import AnalysisError
from analysis.files import read_text, root
from analysis.ladder.c_source import struct_members
from analysis.ladder.config import Dtype, KernelConfig
from analysis.machine_code.maps import source_map
from analysis.machine_code.notes import note
from analysis.machine_code.opcodes import COPY_ENGINE, MATRIX, WARP_GROUP, pipe_of
from analysis.machine_code.ptx import EMBEDDED, embedded_ptx
from analysis.machine_code.regions import (
    PRODUCER,
    READER,
    REPEATS,
    Graph,
    Loop,
    Parts,
    every_pass,
    find_kv_loop,
    kv_loops,
    matrix_count,
    producer_loops,
    reader_loops,
    split_at,
    what_it_is,
)
from analysis.machine_code.sass import Instruction, Listing
from analysis.machine_code.subjects import Subject
from analysis.table import Cell, Table, read_columns

REST = "rest"  # of the kernel, in the column `part`
TIMEOUT = 600.0
ABI = "common/abi.h"
PTXRUN = root() / "bin/ptxrun"


@dataclass(frozen=True)
class Problem:
    """One head of a tensor with `heads`, as a GPU with that number of multiprocessors would compute it."""

    heads: int
    seq: int
    multiprocessors: int

    def ctas(self, config: KernelConfig) -> int:
        """The multiprocessors; two more for a kernel that decides itself what is cut into slices, and cuts less."""
        decides = config.tickets and config.split_tail
        return self.multiprocessors + (2 if decides and self.multiprocessors > 1 else 0)


# The path through a kernel depends on the heads of the tensors, which are the stride between rows, on the number of KV
# blocks, and on whether Q blocks are left over for a last wave, which CTAs then compute in slices. The benchmark has 16
# heads and seq 4096; on the 132 multiprocessors of an H200, 4 of the 4096 Q blocks of 256 rows are left over. Here they
# are 1 of 16 on 3 multiprocessors. The other problems have nothing left over, and other heads.
BENCHMARK = Problem(16, 4096, 3)
NOTHING_LEFT = Problem(16, 1024, 1)
OTHER_HEADS = Problem(2, 1024, 1)
PROBLEMS = (BENCHMARK, NOTHING_LEFT, OTHER_HEADS)
SHORTER = Problem(16, 1536, 3)  # instead of the benchmark for kernels of fp8, whose one loop serves every length
# The role of a loop, by the problems of PROBLEMS in which it runs.
ROLES = {
    (True, True, True): "every problem",
    (True, True, False): f"{BENCHMARK.heads} heads",
    (False, False, True): "any stride",
    (True, False, False): "tail slice",
}
NEVER = "not seen to run"


@dataclass(frozen=True)
class Figures:
    """The metrics of a part of a kernel that the gate compares."""

    instructions: int
    matrix: int
    local_loads: int
    local_stores: int
    global_loads: int
    global_stores: int
    shared: int  # loads and stores of shared memory, matrices too
    synchronisation: int  # barriers, fences and waits for copies
    stalls: int  # the stall counts added up


_COUNTED = {
    "local_loads": {"LDL"},
    "local_stores": {"STL"},
    "global_loads": {"LDG", "LDGSTS", "LD", "UTMALDG", "UBLKCP"},
    "global_stores": {"STG", "ST", "RED", "REDG", "ATOMG", "ATOM", "UTMASTG", "UTMAREDG", "UBLKRED"},
    "shared": {"LDS", "LDSM", "STS", "STSM", "ATOMS", "REDS"},
    "synchronisation": {
        *("BAR", "MEMBAR", "ERRBAR", "FENCE", "DEPBAR", "LDGDEPBAR", "WARPSYNC", "SYNCS", "ARRIVES", "CCTL"),
        *("WARPGROUP", "UTMACMDFLUSH", "UCGABAR_ARV", "UCGABAR_WAIT"),
    },
}


@dataclass(frozen=True)
class Part:
    """A row of regs/loops.csv: a KV loop or producer's loop of a version's own config, or the rest of the kernel."""

    version: str
    arch: str
    config: str
    part: str  # the number of the loop in address order, from 1, or REST
    role: str  # of ROLES, or of roles_of() with a number where there are several; "" for the rest
    first: str  # address of the loop's header
    passes: int  # of warps through the loop in BENCHMARK; of the rest: warps times Q blocks in NOTHING_LEFT
    shares: str  # "0d320=0.984": of the passes, of blocks and predicated instructions that not every pass executes
    figures: Figures

    @property
    def name(self) -> str:
        return f"loop {self.part} ({self.role})" if self.part != REST else "the rest of the kernel"

    def cells(self) -> list[Cell]:
        return [*(getattr(self, name) for name in _OWN), *astuple(self.figures)]


_OWN = tuple(field.name for field in fields(Part) if field.name != "figures")
COLUMNS = (*_OWN, *(field.name for field in fields(Figures)))
PART_FIGURES = tuple(field.name for field in fields(Figures))


# ---- figures ---------------------------------------------------------------------------------------------------------


def figures_of(code: Sequence[Instruction], matrix: frozenset[str] = MATRIX) -> Figures:
    bases = Counter(at.base for at in code if not at.never)
    counted = {name: sum(bases[base] for base in opcodes) for name, opcodes in _COUNTED.items()}
    stalls = sum(max(1, at.control.stall) for at in code if at.control)
    return Figures(instructions=len(code), matrix=matrix_count(code, matrix), **counted, stalls=stalls)


def named_loops(graph: Graph) -> list[Loop]:
    """The KV loops, the producers' loops and those that read tensor memory, in address order."""
    return sorted([*kv_loops(graph), *producer_loops(graph), *reader_loops(graph)], key=lambda loop: loop.header)


def roles_of(graph: Graph) -> dict[int, str]:
    """Header to the role of a named loop, if the code shows it: with wgmma and tcgen05.mma. Empty for others."""
    if not graph.has_roles:
        return {}
    found = {}
    by_role = ((graph.multiplier, kv_loops), (PRODUCER, producer_loops), (READER, reader_loops))
    for role, loops in ((role, loops_in(graph)) for role, loops_in in by_role):
        several = len(loops) > 1
        found.update({loop.header: f"{role} {n}" if several else role for n, loop in enumerate(loops, start=1)})
    return found


def parts_with_figures(graph: Graph) -> list[tuple[Loop | None, Figures]]:
    """Each named loop, whole, with what is inside it; then None with what is outside all of them."""
    loops = named_loops(graph)
    inside: set[int] = set().union(*(loop.blocks for loop in loops))
    parts: list[tuple[Loop | None, Iterable[int]]] = [(loop, loop.blocks) for loop in loops]
    parts.append((None, graph.blocks.keys() - inside))
    return [(loop, figures_of(graph.instructions(blocks), graph.matrix)) for loop, blocks in parts]


# ---- the record ------------------------------------------------------------------------------------------------------


def loops_path(folder: Path) -> Path:
    return folder / "regs/loops.csv"


def loops_text(parts: Iterable[Part]) -> str:
    """The text of loops.csv, sorted."""
    ordered = sorted(parts, key=lambda part: (part.version, part.arch, part.part))
    return Table(COLUMNS, [part.cells() for part in ordered]).csv()


def parse_loops(text: str, name: str) -> dict[tuple[str, str], list[Part]]:
    """Version and architecture to the parts of that kernel."""
    found: dict[tuple[str, str], list[Part]] = {}
    for where, row in read_columns(text, COLUMNS, name):
        for column in ("passes", *PART_FIGURES):
            if not re.fullmatch("[0-9]{1,18}", row[column]):
                raise AnalysisError(f"{where}: {column} = {row[column]!r}: not a number")
        own = {column: row[column] for column in _OWN if column != "passes"}
        figures = Figures(*(int(row[column]) for column in PART_FIGURES))
        part = Part(**own, passes=int(row["passes"]), figures=figures)
        if not re.fullmatch("([0-9a-f]{4,8})?", part.first) or not re.fullmatch(_SHARES, part.shares):
            raise AnalysisError(f"{where}: first = {part.first!r}, shares = {part.shares!r}: not understood")
        found.setdefault((part.version, part.arch), []).append(part)
    return found


_SHARES = r"([0-9a-f]{4,8}=[01](\.[0-9]{1,6})?( (?=.))?)*"


def read_shares(text: str) -> dict[int, float]:
    """Address to share of the passes."""
    return {int(at, 16): float(share) for at, _, share in (word.partition("=") for word in text.split())}


def read_loops(folder: Path) -> dict[tuple[str, str], list[Part]]:
    """The committed record below `folder`; empty when there is none."""
    path = loops_path(folder)
    return parse_loops(read_text(path), str(path)) if path.exists() else {}


# ---- counting on the emulator ----------------------------------------------------------------------------------------


def tensor_maps_argument(config: KernelConfig, seq: int, heads: int, batch: int = 1, row_heads: int = 0) -> str:
    """The second parameter of a kernel with tensor copies, as ptxrun takes it: maps of members 0 to 3 of the first.

    runtime/tensor_maps.h describes them. A row in memory has row_heads heads, or `heads` where that is 0.
    """
    row = (row_heads or heads) * config.d_head
    maps = []
    for tensor, (rows, size) in enumerate(zip(config.box_rows(), config.element_bytes(), strict=True)):
        span = 128 // size
        spans = config.d_head // span
        strides = f"{size * row}x128x{size * config.d_head}x{size * seq * row}"
        maps.append(f"tmap:{span}x{seq}x{spans}x{heads}x{batch}/{strides}:{span}x{rows}x{spans}x1x1:128B:of:0.{tensor}")
    if getattr(config, "packs", False):  # where O's is: Q as groups, here of one head
        (size, *_), d = config.element_bytes(), config.d_head
        strides = f"{size * d}x{size * row}x{size * d}x{size * seq * row}"
        maps[3] = f"tmap:{d}x1x{seq}x{heads}x{batch}/{strides}:{128 // size}x1x64x1x1:128B:of:0.0"
    return f"struct:[{','.join(maps)}]"


def byte_maps_argument(config: KernelConfig, seq: int, heads: int) -> str:
    """The arguments of an fp8 kernel: rows of bytes, V transposed or rows of K permuted if the config requires it."""
    d = config.d_head
    row, box = heads * d, f"{d}x{config.B_c}x1x1x1:{min(d, 128)}B:of:0"
    rows = f"{d}x{seq}x1x1x1/{row}x128x{d}x{seq * row}"
    of_V = f"{seq}x{d}x1x1x1/{seq}x128x{seq * d}x{seq * d}:{config.B_c}x{d}x1x1x1:128B:of:0.2"
    of_K = f"{row}x2x4x2x{seq // 16}/{row}x{4 * row}x{2 * row}x{16 * row}:{d}x2x4x2x{config.B_c // 16}:128B:of:0.1"
    maps = [f"{rows}:{d}x64x1x1x1:{min(d, 128)}B:of:0.0", of_K if config.K_permuted else f"{rows}:{box}.1"]
    maps.append(of_V if config.V_transposed else f"{rows}:{box}.2")
    of_O = tensor_maps_argument(config, seq, 1, row_heads=heads).removesuffix("]").rpartition("tmap:")[2]
    return f"struct:[{','.join(f'tmap:{each}' for each in (*maps, of_O))}]"


MOST_CTAS = 132  # of a launch of a persistent kernel
PTXRUN_TYPES = {"int64_t": "i64:{}", "int32_t": "i32:{}", "float": "f32:{:.9g}", "*": "u64:{}"}


@cache
def parameter_members(any_length: bool) -> list[tuple[str, str]]:
    """Type and name of each member of a kernel's first parameter, those of strides as "Q_strides.seq": common/abi.h."""
    source = read_text(root() / ABI)
    members = []
    for kind, name in struct_members(source, "attention_args", ABI):
        inner = struct_members(source, kind, ABI) if kind == "tensor_strides" else []
        members += [(part_kind, f"{name}.{part}") for part_kind, part in inner] or [(kind, name)]
    return members if any_length else members[: len(struct_members(source, "forward_args", ABI))]


def argument_fields(
    config: KernelConfig, tensors: Sequence[str], seq: int, heads: int, batch: int, strides: tuple[int, int, int]
) -> str:
    """The first parameter of a kernel, as ptxrun takes it. All tensors have the same strides, of batch, seq and head.

    `tensors` are Q, K, V and O as ptxrun takes them.
    """
    given = dict(zip("QKVO", tensors, strict=True)) | (
        {"tickets": f"buf:i32:{config.tickets_bytes(MOST_CTAS) // 4}"} if config.tickets else {}
    )
    values: dict[str, float] = {"seq_q": seq, "seq_k": seq, "heads": heads, "KV_heads": heads, "batch": batch}
    values["softmax_scale"] = config.d_head**-0.5
    for tensor in "QKVO":
        values |= {f"{tensor}_strides.{name}": at for name, at in zip(("batch", "seq", "head"), strides, strict=True)}
    fields = [
        given.get(name) or PTXRUN_TYPES[kind].format(values.get(name, 0))
        for kind, name in parameter_members(config.any_length or config.e4m3_inputs)
    ]
    return f"struct:[{','.join(fields)}]"


# The part of fp8_args after attention_args: three scales of 1, no scales of heads (common/fp8.h).
FP8_FACTORS = ",".join(["f32:1"] * 3 + ["i32:0"] + ["u64:0"] * 3 + ["i32:0"] * 6)


PERIOD = 65521  # a prime: rows of inputs differ, though numbers are drawn for no more than this


def normal_e4m3(count: int, seed: int) -> bytes:
    """Numbers of N(0, 1) in e4m3, as the benchmark has them: which blocks a pass skips depends on them."""
    values = [((8 + code % 8) * 2.0 ** (code // 8 - 10) if code >= 8 else code * 2.0**-9) for code in range(0x7F)]
    limits = [0.0, *((a + b) / 2 for a, b in pairwise(values)), inf]
    of_value = [erf(high / sqrt(2)) - erf(low / sqrt(2)) for low, high in pairwise(limits)]
    codes = [sign | code for sign in (0, 0x80) for code in range(0x7F)]
    drawn = bytes(random.Random(seed).choices(codes, of_value * 2, k=PERIOD))
    return (drawn * (count // PERIOD + 1))[:count]


def parameters_of(config: KernelConfig, problem: Problem, folder: Path) -> list[str]:
    """The parameters of a kernel, as ptxrun takes them. Inputs that it cannot make go into files of the folder."""
    heads, seq, d = problem.heads, problem.seq, config.d_head
    strides = (seq * heads * d, heads * d, d)
    output = f"buf:f16:{seq * heads * d}"
    if not config.e4m3_inputs:
        arguments = argument_fields(config, [f"{output}:rand"] * 3 + [output], seq, 1, 1, strides)
        return [arguments, *([tensor_maps_argument(config, seq, heads)] if config.tensor_copies else [])]
    inputs = []
    for tensor in "QKV":
        file = folder / tensor
        file.write_bytes(normal_e4m3(seq * heads * d, ord(tensor)))
        inputs.append(f"buf:u8:{seq * heads * d}:@{file}")
    arguments = argument_fields(config, [*inputs, output], seq, 1, 1, strides)
    maps = [byte_maps_argument(config, seq, heads)] if config.tensor_copies else []
    return [f"{arguments.removesuffix(']')},{FP8_FACTORS}]", *maps]


def executed_by_line(ptx: str, symbol: str, config: KernelConfig, problem: Problem) -> dict[int, int]:
    """PTX line to the number of times that warps executed it.

    For several instructions of one asm() it is the maximum in fp8 kernels, whose products all have two; the records of
    other kernels add them up.
    """
    if not PTXRUN.exists():
        raise AnalysisError("bin/ptxrun is missing, which counts what a kernel executes: run `make bin/ptxrun`")
    grid = config.grid(problem.seq, 1, 1, problem.ctas(config))
    with tempfile.TemporaryDirectory(prefix="flashladder.") as folder:
        text, counters = Path(folder) / "kernel.ptx", Path(folder) / "counters.csv"
        text.write_text(ptx, encoding="utf-8")
        command = [str(PTXRUN), str(text), "--entry", symbol, "--grid", ",".join(map(str, grid))]
        command += ["--block", str(config.threads()), "--smem", str(config.smem_bytes())]
        parameters = parameters_of(config, problem, Path(folder))
        command += [word for parameter in parameters for word in ("--arg", parameter)]
        command += ["--checks", "off", "--counters-csv", str(counters)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT)
        if done.returncode or not counters.exists():
            raise AnalysisError(f"ptxrun: exit {done.returncode}: {(done.stderr or done.stdout).strip()[-400:]}")
        executed: dict[int, int] = {}
        for row in csv.DictReader(io.StringIO(read_text(counters))):
            line = int(row["ptx_line"])
            before, times = executed.get(line, 0), int(row["executed"])
            executed[line] = max(before, times) if config.e4m3_inputs else before + times
    return executed


@cache
def executed_in(ptx: str, symbol: str, config: KernelConfig, problems: tuple[Problem, ...]) -> list[dict[int, int]]:
    """The emulator's counters of each problem; cubins of one version for several architectures share them."""
    return [executed_by_line(ptx, symbol, config, problem) for problem in problems]


def passes_of(loop: Sequence[Instruction], lines: Mapping[int, int | None], executed: Mapping[int, int]) -> int:
    """The number of passes of warps through a loop: the count of most of its matrix instructions.

    A masked block may have its own copy of half of them. Some wgmma and copies are in blocks that few passes
    execute, such as the end of a tile, and ptxas gives some wgmma the line of what follows, which may be a loop that
    waits.
    """
    bases = {at.base for at in loop}
    main = next(opcodes for opcodes in (WARP_GROUP, MATRIX, COPY_ENGINE) if opcodes & bases)
    counts = Counter(executed.get(lines.get(at.address) or 0, 0) for at in loop if at.base in main)
    return max(counts, key=lambda times: (counts[times], times))


def measure_loops(subject: Subject, version: str) -> list[Part]:
    """The parts of a version's kernel, from its cubin and the emulator."""
    cubin, kernel = subject.cubin_or_refuse("counting loops")
    config = subject.config
    if config is None:
        raise AnalysisError(f"{subject.name}: {kernel.symbol} is not one of our kernels: which loop runs is not known")
    listing, rows = source_map(subject)
    lines = {row.instruction.address: row.ptx_line for row in rows}
    graph = Graph(listing)
    # No loop of a kernel without matrix instructions has a name, because there is nothing to count. A backward pass has
    # one loop whose every pass is alike.
    counted = named_loops(graph) and not config.backward_pass
    problems = (SHORTER, *PROBLEMS[1:]) if config.e4m3_inputs else PROBLEMS
    by_problem = executed_in(embedded_ptx(cubin), kernel.symbol, config, problems) if counted else []
    by_structure = roles_of(graph)
    found = []
    for number, (loop, figures) in enumerate(parts_with_figures(graph), start=1):
        if loop is None:
            tiles = config.n_warps * ceil(PROBLEMS[1].seq / config.B_r) if counted else 0
            text = shares_text(rest_shares(graph, lines, by_problem[1], tiles)) if tiles else ""
            found.append(Part(version, subject.arch, str(config), REST, "", "", tiles, text, figures))
            continue
        code = graph.instructions(loop.blocks)
        if not counted:
            role, first = by_structure.get(loop.header, ""), f"{loop.header:04x}"
            found.append(Part(version, subject.arch, str(config), str(number), role, first, 0, "", figures))
            continue
        passes = [passes_of(code, lines, executed) for executed in by_problem]
        role = ROLES.get((passes[0] > 0, passes[1] > 0, passes[2] > 0), NEVER)
        if loop.header in by_structure:
            own = by_structure[loop.header]
            role = own if role == ROLES[True, True, True] else f"{own}, {role}"
        shares = shares_of(graph, loop, lines, by_problem[0], passes[0]) if passes[0] else {}
        text, first = shares_text(shares), f"{loop.header:04x}"
        found.append(Part(version, subject.arch, str(config), str(number), role, first, passes[0], text, figures))
    return found


def shares_text(shares: Mapping[int, float]) -> str:
    return " ".join(f"{at:04x}={share:.4f}" for at, share in sorted(shares.items()))


def rest_shares(
    graph: Graph, lines: Mapping[int, int | None], executed: Mapping[int, int], tiles: int
) -> dict[int, float]:
    """The share of the Q blocks that executes each block outside the named loops, if less than 1.

    Code that a CTA executes once has the share of CTAs per Q block. A block has the share of most of its instructions.
    """
    inside: set[int] = set().union(*(loop.blocks for loop in named_loops(graph)))
    found: dict[int, float] = {}
    for first in graph.blocks.keys() - inside:
        at_lines = [lines.get(at.address) for at in graph.blocks[first].instructions if not at.predicate]
        known = [min(1.0, executed[line] / tiles) for line in at_lines if line is not None and line in executed]
        if known and median(known) < 1:
            found[first] = median(known)
    return found


def shares_of(
    graph: Graph, loop: Loop, lines: Mapping[int, int | None], executed: Mapping[int, int], passes: int
) -> dict[int, float]:
    """The share of the passes that executes each block that a pass may skip, and each predicated instruction.

    A block has the share of most of its instructions, as the compiler moves some between blocks. The number of passes
    of an inner loop depends on the schedule, so it has the share of the block before it.
    """
    always = set(every_pass(graph, loop, sorted(loop.blocks)))
    inner = {first: child for child in loop.children for first in child.blocks}
    repeated = {lines.get(at.address) for first in inner for at in graph.blocks[first].instructions}

    def share(at: Instruction) -> float | None:
        line = lines.get(at.address)
        return None if line is None or line in repeated or line not in executed else min(1.0, executed[line] / passes)

    found: dict[int, float] = {}
    for first in loop.blocks - inner.keys():
        code = [at for at in graph.blocks[first].instructions if at.base != "NOP" and not at.never]
        known = [each for at in code if not at.predicate and (each := share(at)) is not None]
        of_block = 1.0 if first in always or not known else median(known)
        if of_block < 1:
            found[first] = of_block
        for at in code:
            own = share(at) if at.predicate and pipe_of(at.base) != "control" else None
            if own is not None and own < of_block and at.address != first:
                found[at.address] = own
    for first, child in inner.items():
        before = [each for each in graph.predecessors[child.header] if each not in child.blocks]
        of_block = max((found.get(each, 1.0) for each in before), default=1.0)
        if of_block < 1:
            found[first] = of_block
    return found


# ---- choosing --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class KvLoop:
    """A KV loop or a producer's loop of a kernel, and what is recorded of it."""

    number: int
    loop: Loop
    recorded: Part | None
    structure: str | None = None  # the role that shows in the code

    @property
    def role(self) -> str | None:
        return self.recorded.role if self.recorded else self.structure

    @property
    def produces(self) -> bool:
        return self.structure is not None and self.structure.startswith(PRODUCER)

    @property
    def multiplies(self) -> bool:
        return self.structure is None or not self.structure.startswith((PRODUCER, READER))

    @property
    def name(self) -> str:
        return f"loop {self.number}" + (f" ({self.role})" if self.role else "")

    def shares(self, graph: Graph) -> dict[int, float] | None:
        """The share of the passes that executes an instruction, by address, if less than 1."""
        if self.recorded is None or not self.recorded.passes:
            return None
        recorded = read_shares(self.recorded.shares)
        found = {}
        for first in self.loop.blocks & recorded.keys():
            found.update({at.address: recorded[first] for at in graph.blocks[first].instructions})
        return found | recorded

    def rare_blocks(self, graph: Graph) -> Iterator[tuple[list[Instruction], float]]:
        """The blocks that a pass may skip, inside no inner loop, with their share of the passes."""
        shares = read_shares(self.recorded.shares) if self.recorded else {}
        for first in sorted(self.loop.own_blocks() & shares.keys()):
            code = graph.instructions([first])
            if code:
                yield code, shares[first]


def recorded_loops(graph: Graph, folder: Path) -> list[Part]:
    """The record of a kernel's loops; empty where there is none."""
    return [part for part in recorded_parts(graph, folder) if part.part != REST]


def recorded_parts(graph: Graph, folder: Path) -> list[Part]:
    """The record of a kernel, found by architecture, config and the loops; empty where there is none.

    The two types have one record, as they differ in the opcodes of a few instructions.
    """
    listing = graph.listing
    if listing.config is None:
        return []
    config = str(listing.config.replace(dtype=Dtype.FP16))
    there = [(f"{loop.header:04x}", len(graph.instructions(loop.blocks))) for loop in named_loops(graph)]
    for (_, arch), parts in _read_once(loops_path(folder)).items():
        loops = [part for part in parts if part.part != REST]
        recorded = [(part.first, part.figures.instructions) for part in loops]
        if (arch, recorded) == (listing.arch, there) and config in (part.config for part in loops):
            return parts
    return []


def shares_outside(graph: Graph) -> dict[int, float]:
    """The share of the Q blocks that executes a block outside the named loops, if recorded and less than 1."""
    return {
        at: share
        for part in recorded_parts(graph, root())
        if part.part == REST
        for at, share in read_shares(part.shares).items()
    }


def _read_once(path: Path) -> dict[tuple[str, str], list[Part]]:
    return _read_version(path, path.stat().st_mtime_ns) if path.exists() else {}


@lru_cache(maxsize=4)
def _read_version(path: Path, _: int) -> dict[tuple[str, str], list[Part]]:
    return parse_loops(read_text(path), str(path))


def loops_of(graph: Graph, subject: Subject | None = None) -> list[KvLoop]:
    """The named loops of a kernel in address order, with what is recorded of each.

    If several loops have no record, for example those of another configuration, the emulator finds the one that runs,
    provided that `subject` is the kernel's cubin and bin/ptxrun is built.
    """
    if graph not in _KNOWN:
        loops, recorded = named_loops(graph), recorded_loops(graph, root())
        if subject and len(loops) > 1 and not recorded and _can_measure(subject):
            recorded = measure_loops(subject, subject.name)[:-1]
        known: Sequence[Part | None] = recorded or [None] * len(loops)
        roles = roles_of(graph)
        _KNOWN[graph] = [
            KvLoop(number, loop, part, roles.get(loop.header))
            for number, (loop, part) in enumerate(zip(loops, known, strict=True), start=1)
        ]
    return _KNOWN[graph]


_KNOWN: WeakKeyDictionary[Graph, list[KvLoop]] = WeakKeyDictionary()


def _can_measure(subject: Subject) -> bool:
    ours = subject.cubin is not None and subject.config is not None and subject.cubin.section(EMBEDDED) is not None
    return ours and PTXRUN.exists()


def running(loops: Sequence[KvLoop]) -> KvLoop | None:
    """The loop with the most passes in BENCHMARK; None if that is not recorded."""
    counted = [each for each in loops if each.recorded is not None and each.multiplies]
    return max(counted, key=lambda each: each.recorded.passes if each.recorded else 0, default=None)


def parts_of(listing: Listing, wanted: str | None = None, subject: Subject | None = None) -> Parts:
    """A kernel split at the loop that `wanted` names, else at the one that runs, else as split() chooses it."""
    return parts_in(Graph(listing), wanted, subject)


def parts_in(graph: Graph, wanted: str | None = None, subject: Subject | None = None) -> Parts:
    """The loop of a kernel whose control flow has been read."""
    loops = loops_of(graph, subject)
    if wanted and not loops:
        loops = [KvLoop(number, loop, None) for number, loop in enumerate(graph.loops(), start=1)]
    chosen = find(loops, wanted, graph.listing.label) if wanted else running(loops)
    if chosen is None:
        return split_at(graph, find_kv_loop(graph))
    return split_at(graph, chosen.loop, chosen.shares(graph))


def find(loops: Sequence[KvLoop], wanted: str, label: str) -> KvLoop:
    """The loop that a text names: its number, its role, or an address in it."""
    number = int(wanted, 16) if re.fullmatch(r"(0x)?[0-9a-f]{4,}", wanted) else None
    for each in loops:
        if wanted in (str(each.number), each.role) or (number is not None and number == each.loop.header):
            return each
    there = ", ".join(f"{each.name} at {each.loop.header:04x}" for each in loops)
    raise AnalysisError(f"--loop {wanted}: {label} has no such loop; it has {there or 'none'}")


def note_on(parts: Parts) -> str | None:
    """The loop that was chosen and why; None if there is only one."""
    loops = loops_of(parts.graph)
    if not loops:
        return _note_on_unnamed(parts)
    if len(loops) < 2:
        return None
    mine = next((each for each in loops if each.loop.header == parts.kv.header), None)
    if mine is None:
        return None
    others = ", ".join(each.name for each in loops if each is not mine)
    if not mine.multiplies:
        why = "copies for the consumers" if mine.produces else "reads tensor memory"
    elif sum(each.multiplies for each in loops) == 1:
        why = "the one that multiplies"
    elif mine.recorded is None:
        why = "which of them runs is not recorded"
    elif mine is running(loops):
        why = "the one that runs in the benchmark"
    else:
        why = f"not the one that runs in the benchmark, {getattr(running(loops), 'name', '')}"
    return f"{mine.name} of {len(loops)} at {mine.loop.header:04x}: {why}; --loop takes another: {others}"


def _note_on_unnamed(parts: Parts) -> str | None:
    """The note for a kernel without matrix instructions, in which nothing identifies the main loop."""
    found = parts.graph.loops()
    if len(found) < 2:
        return None
    own = len(parts.graph.instructions(parts.kv.own_blocks()))
    others = ", ".join(f"{loop.header:04x}" for loop in found if loop.header != parts.kv.header)
    return (
        f"loop at {parts.kv.header:04x} of {len(found)}: a guess from its {own} own instructions and its depth, "
        f"as none multiplies matrices; --loop takes another: {others}"
    )


def add_loop_argument(parser: argparse.ArgumentParser) -> None:
    """--loop of every command that shows a KV loop."""
    parser.add_argument("--loop", metavar="LOOP", help="another loop than the one that does the work: its "
                        " number, its role such as 'tail slice', mma or producer, or its address; `loop --nest` lists "
                        "them")  # fmt: skip


def print_note(name: str, parts: Parts) -> None:
    """Say which loop was taken where a kernel has several."""
    text = note_on(parts)
    if text:
        note(f"{name}: {text}")


# ---- the loops by level ----------------------------------------------------------------------------------------------


def nest_table(graph: Graph, subject: Subject | None = None) -> Table:
    """One row a loop, an outer one before the loops and the rare blocks inside it, with what each is."""
    by_header = {each.loop.header: each for each in loops_of(graph, subject)}
    runs = running(list(by_header.values()))
    rows: list[list[Cell]] = []

    def row(level: int, code: Sequence[Instruction], own: Sequence[Instruction], passes: Cell, what: str) -> None:
        first, last = f"{code[0].address:04x}", f"{code[-1].address:04x}"
        rows.append([level, first, last, len(code), len(own), matrix_count(own), passes, what])

    def add(loops: Iterable[Loop], level: int, around: KvLoop | None) -> None:
        for loop in loops:
            named = by_header.get(loop.header)
            passes = named.recorded.passes if named and named.recorded else None
            if named:
                kind = "" if not named.multiplies else "KV " if graph.listing.config else "matrix "
                what = kind + named.name + (", runs" if named is runs else "")
            else:
                what = _unnamed(graph, loop, around, list(by_header.values()))
            row(level, graph.instructions(loop.blocks), graph.instructions(loop.own_blocks()), passes, what)
            add(loop.children, level + 1, named or around)
            if named:
                for block, share in named.rare_blocks(graph):
                    row(level + 1, block, block, None, f"block in {100 * share:.3g} % of the passes")

    add(graph.nest, 1, None)
    return Table(("level", "first", "last", "instructions", "own", "matrix", "passes", "is"), rows)


def _unnamed(graph: Graph, loop: Loop, around: KvLoop | None, named: Iterable[KvLoop]) -> str:
    """The description of a loop without a name; "" if unknown."""
    inside = [each.role or "" for each in named if each.loop.header in loop.blocks]
    if inside:
        return f"around {', '.join(inside)}" if graph.has_roles else ""
    if matrix_count(graph.instructions(loop.blocks)):
        return "multiplies by mma.sync"
    what = what_it_is(graph, loop)
    return what if around or (graph.has_roles and what != REPEATS) else ""
