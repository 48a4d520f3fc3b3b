"""Runs one kernel file on the emulator and compares its output with float64: what exercises are graded by.

    run = run_kernel(path, load(root(), "v00"), Case(seq=128))
    print(run.error, run.finding, run.total("wavefronts"))

The file is a version's own or a changed one. It is compiled for the configuration of the version's header block.
"""

import csv
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from analysis.emulate.online_softmax import output_bound
from analysis.errors import AnalysisError
from analysis.files import read_text, root, write_if_changed
from analysis.ladder.headers import Version
from analysis.ladder.instances import instances_text
from analysis.machine_code.loops import PTXRUN, argument_fields, tensor_maps_argument

Array = NDArray[np.float64]
FLAGS = ("-I.", "-std=c++20", "-O3", "--use_fast_math", "-lineinfo")
SILENT, FINDINGS, REFUSED, FAULT = range(4)  # exit statuses of ptxrun
STEPS = 20_000_000  # warp instructions of a CTA: ten times what an exercise takes
TIMEOUT = 600.0


class NotCompiledError(Exception):
    """nvcc or the emulator refuses the file; the text is what they say."""


@dataclass(frozen=True)
class Case:
    """A problem of one sequence in fp16. `inputs` is "normal": N(0, 1); "large": Q is 32 times that; or "falling": the
    scores of every 64 keys are lower than those of the 64 before."""

    seq: int
    heads: int = 1
    inputs: str = "normal"
    causal: bool = False  # a row sees the keys up to its own number
    schedules: tuple[int, ...] = (0,)  # orders in which warps run

    def __str__(self) -> str:
        heads = f"{self.heads} heads" if self.heads > 1 else ""
        words = (f"seq {self.seq}", heads, self.inputs, "causal" * self.causal)
        return ", ".join(word for word in words if word and word != "normal")


@dataclass(frozen=True)
class Run:
    """The result of one case: that of the first schedule with a finding or a wrong result, else of the first."""

    case: Case
    status: int  # SILENT, FINDINGS or FAULT
    said: str  # by the emulator
    error: float  # largest |O - float64| divided by the tolerance of the element; infinite without a result
    rows: Sequence[Mapping[str, str]]  # the counters of every PTX instruction

    @property
    def finding(self) -> str:
        """The class of the first finding or fault, such as "race"; "" where there is none."""
        first = re.match(r"(?:ptxrun: )?([a-z-]+)", self.said)
        return first[1] if self.status != SILENT and first else ""

    def total(self, field: str, opcode: str = "") -> int:
        """The sum of a counter over the instructions whose PTX text begins like this, a predicate left out."""
        return sum(int(row[field]) for row in self.rows if re.sub(r"^@!?%\w+ ", "", row["ptx"]).startswith(opcode))


# ---- inputs and reference --------------------------------------------------------------------------------------------


def inputs_of(case: Case, d_head: int) -> tuple[Array, Array, Array]:
    """Q, K and V as [heads, seq, d_head], exact in fp16."""
    shape = (case.heads, case.seq, d_head)
    numbers = np.random.default_rng(1)
    q, k, v = (numbers.standard_normal(shape).astype(np.float16).astype(np.float64) for _ in range(3))
    if case.inputs == "large":
        q *= 32
    if case.inputs == "falling":  # a factor of 2^5.3333 for each 64 keys: three of them just fail to fit fp16
        q[:], k[:] = 0, 0
        q[..., 0], q[..., 1] = 41.8125, 1
        k[..., 0], k[..., 1] = -(np.arange(case.seq) // 64), -0.0116 * (np.arange(case.seq) // 64)
        k = k.astype(np.float16).astype(np.float64)
    return q, k, v


def reference(q: Array, k: Array, v: Array, causal: bool) -> tuple[Array, Array]:
    """softmax(Q K^T / sqrt(d)) V in float64, and the tolerance of each element: that of harness/verify.c."""
    scores = q @ k.swapaxes(1, 2) / np.sqrt(q.shape[-1])
    if causal:
        scores[:, np.triu(np.ones(scores.shape[1:], bool), 1)] = -np.inf
    p = np.exp(scores - scores.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    wanted = p @ v
    return wanted, output_bound(wanted, p @ np.abs(v), "fp16")


# ---- running ---------------------------------------------------------------------------------------------------------


def run_kernel(path: Path, version: Version, case: Case) -> Run:
    """Compile the file for the version's configuration and run the case in each of its schedules."""
    if not PTXRUN.exists():
        raise AnalysisError("bin/ptxrun: not built; run `make bin/ptxrun`")
    with tempfile.TemporaryDirectory(prefix="flashladder.") as folder:
        runs = [_run_once(path, version, case, schedule, Path(folder)) for schedule in case.schedules]
    return next((run for run in runs if run.status != SILENT or not run.error <= 1), runs[0])


def _run_once(path: Path, version: Version, case: Case, schedule: int, folder: Path) -> Run:
    config = version.header.config
    includes = root() / "build/exercises" / version.version
    write_if_changed(includes / "instances.cuh", instances_text([config]))
    tensors = inputs_of(case, config.d_head)
    for name, tensor in zip("qkv", tensors, strict=True):
        tensor.swapaxes(0, 1).astype(np.float16).tofile(folder / name)  # [seq, heads, d_head]
    row, count = case.heads * config.d_head, tensors[0].size
    buffers = [*(f"buf:f16:{count}:@{folder / name}" for name in "qkv"), f"out:f16:{count}"]
    strides = (case.seq * row, row, config.d_head)
    arguments = [argument_fields(config, buffers, case.seq, case.heads, 1, strides)]
    if config.tensor_copies:
        arguments.append(tensor_maps_argument(config, case.seq, case.heads))
    output, counters = folder / "o", folder / "counters.csv"
    output.unlink(missing_ok=True)
    command = [str(PTXRUN), str(path), "--grid", ",".join(map(str, config.grid(case.seq, case.heads, 1, 132)))]
    command += ["--block", str(config.threads()), "--smem", str(config.smem_bytes()), "--steps", str(STEPS)]
    command += [word for argument in arguments for word in ("--arg", argument)]
    command += ["--schedule", str(schedule), "--dump", f"0.3={output}", "--counters-csv", str(counters)]
    arch = "90a" if version.one_arch else version.header.arch.removeprefix("sm_")
    command += ["--", *FLAGS, f"-I{includes}", f"-arch=compute_{arch}"]
    try:
        done = subprocess.run(command, cwd=root(), capture_output=True, text=True, check=False, timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        return Run(case, FAULT, f"time-limit: the kernel did not end within {TIMEOUT:.0f} s\n", np.inf, [])
    if done.returncode == REFUSED:
        raise NotCompiledError(done.stderr.strip())
    if done.returncode not in (SILENT, FINDINGS, FAULT):
        raise AnalysisError(f"ptxrun ended with status {done.returncode}: {done.stderr.strip()[-400:]}")
    rows = list(csv.DictReader(read_text(counters).splitlines())) if counters.exists() else []
    return Run(case, done.returncode, done.stderr, _error(output, case, config.d_head, tensors), rows)


def _error(output: Path, case: Case, d_head: int, tensors: tuple[Array, Array, Array]) -> float:
    if not output.exists():
        return float(np.inf)
    got = np.fromfile(output, np.float16).astype(np.float64).reshape(case.seq, case.heads, d_head).swapaxes(0, 1)
    wanted, tolerance = reference(*tensors, causal=case.causal)
    with np.errstate(invalid="ignore"):
        ratio = np.abs(got - wanted) / tolerance
    return float(np.where(np.isnan(ratio), np.inf, ratio).max())
