"""The model's description of a GPU: analysis/data/machines.csv, a value, its kind and its source in each row.

    machine = read_machine("h200")
    machine.latency("MUFU")

A value is "measured" (ncu or a microbenchmark of this repository), "published", "assumed" or "fitted" to times of the
versions; the page docs/internals.md says how much the fitted ones matter.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path

from analysis.errors import AnalysisError
from analysis.files import read_text, root
from analysis.table import read_columns

FIXED = ("name", "unit", "how", "source")
HOW = ("measured", "published", "assumed", "fitted")
OTHER = "other"


@dataclass(frozen=True)
class Machine:
    """One GPU. Cycles are those of a multiprocessor's clock; bytes and wavefronts are of one multiprocessor."""

    gpu: str
    multiprocessors: float
    dram_bytes: float  # a second
    l2_bytes: float  # a second, that all multiprocessors get together
    clock_limit: float  # Hz, of kernels that multiply matrices
    power: float  # W, at which the clock falls
    pause_us: float  # between timed launches
    hmma: float  # cycles of the tensor pipe for an HMMA.16816
    hmma_dispatch: float  # cycles until the scheduler issues again
    wgmma_columns: float  # columns of m64nNk16 per cycle
    operand_ports: float  # registers that a sub-partition reads in a cycle
    wgmma_port: float
    wgmma_queue: float  # of a warp, issued and not begun
    wgmma_end: float  # from the end of the last one to the end of a wait for it
    fma: float
    imad: float
    alu: float
    xu: float
    uniform: float
    fp64: float
    address: float  # S2R, LDC and the like
    wavefront: float  # cycles of 128 bytes of shared memory
    queue: float  # memory instructions of a sub-partition that wait before issue stalls
    operands_read: float  # from service to the scoreboard of a read
    barrier: float  # from the last arrival to the release
    barrier_warp: float  # between the arrivals of two warps
    copy_wavefronts: float  # of shared memory, for a cp.async of 16 bytes a lane
    copy_latency: float  # cp.async, from L2
    dram_latency: float  # the same where the bytes are not in L2
    copy_bytes: float  # a cycle: what one multiprocessor takes from L2 alone
    crowd_bytes: float  # a cycle: what each takes when all do
    tensor_copy_latency: float
    stagger: float  # cycles between the starts of warps
    excess: float  # cycles in which the busiest pipe is idle, real ones divided by modeled ones
    launch_us: float
    energies: Mapping[str, float]  # nJ, by what takes them (clock.py)
    during_wgmma: Mapping[str, float]  # cycles of arithmetic while wgmma runs, by pipe; "imad" for IMAD
    latencies: Mapping[str, float]  # by opcode, from issue or the end of service to the result

    def latency(self, base: str) -> float:
        return self.latencies.get(base, self.latencies[OTHER])

    @property
    def shared_copy_bytes(self) -> float:
        """Bytes per cycle that each SM receives from L2 when all copy."""
        return self.l2_bytes / self.multiprocessors / self.clock_limit

    def with_values(self, **values: float) -> "Machine":
        return replace(self, **values)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Value:
    """A row: the value of each GPU, and where it comes from."""

    name: str
    unit: str
    how: str
    source: str
    of: Mapping[str, float]  # by GPU


def machines_path() -> Path:
    return root() / "analysis/data/machines.csv"


@cache
def read_values() -> tuple[tuple[str, ...], tuple[Value, ...]]:
    """The GPUs that are described, and all rows."""
    path = machines_path()
    text = read_text(path)
    header = text.partition("\n")[0].split(",")
    gpus = tuple(name for name in header if name not in FIXED)
    rows = []
    for where, row in read_columns(text, header, str(path)):
        if row["how"] not in HOW:
            raise AnalysisError(f"{where}: how = {row['how']!r}: expected {', '.join(HOW)}")
        try:
            of = {gpu: float(row[gpu]) for gpu in gpus}
        except ValueError as error:
            raise AnalysisError(f"{where}: {error}") from None
        rows.append(Value(row["name"], row["unit"], row["how"], row["source"], of))
    return gpus, tuple(rows)


MODEL = ("launch", "multiprocessor", "operations", "path")  # modules that the cycles of a launch depend on


@cache
def model_digest() -> str:
    """A hash of the model's code and numbers: it identifies the state of the model that made a recorded prediction."""
    code = [Path(__file__).with_name(f"{name}.py").read_text() for name in MODEL]
    numbers = [(value.name, sorted(value.of.items())) for value in read_values()[1]]
    return hashlib.sha256(repr([*code, *numbers]).encode()).hexdigest()[:12]


@cache
def read_machine(gpu: str) -> Machine:
    """The description of a GPU by its short name; AnalysisError names those that there are."""
    gpus, rows = read_values()
    if gpu not in gpus:
        raise AnalysisError(f"--gpu {gpu}: no description of it in {machines_path().name}; there are {', '.join(gpus)}")
    values = {row.name: row.of[gpu] for row in rows}
    latencies, energies, during_wgmma = (
        {name.partition(".")[2]: value for name, value in values.items() if name.startswith(kind)}
        for kind in ("latency.", "energy.", "during_wgmma.")
    )
    plain = {name: value for name, value in values.items() if "." not in name}
    wanted = {field.name for field in fields(Machine)} - {"gpu", "latencies", "energies", "during_wgmma"}
    if wanted != plain.keys() or OTHER not in latencies:
        odd = sorted(wanted ^ plain.keys()) or [f"latency.{OTHER}"]
        raise AnalysisError(f"{machines_path()}: missing or unknown: {', '.join(odd)}")
    return Machine(gpu=gpu, energies=energies, latencies=latencies, during_wgmma=during_wgmma, **plain)
