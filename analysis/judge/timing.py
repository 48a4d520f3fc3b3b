"""Times of a recording on a GPU: by the judge's clocks, on its inputs, in processes of their own, in random order.

    why = why_no_gpu()                       # "" where --time can work
    time_submission(problem, {"submission": recording, "baseline": other}, rng, folder, verdict)

The submission is timed twice, under two names. What these differ by is what the measurement cannot tell apart. Every
process of judge-replay leaves times.json (emulator/judge/README.md), of which decide() makes rows, reasons and
reservations of the verdict.
"""

import ctypes
import hashlib
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from analysis.errors import AnalysisError
from analysis.judge import machine
from analysis.judge.arrays import STORED, Array
from analysis.judge.compare import wrong_values
from analysis.judge.problem import Case, Problem, case_text
from analysis.judge.record import Recording
from analysis.judge.verdict import Point, TimeRow, Verdict
from analysis.machine_code.cubin import Cubin
from analysis.machine_code.toolkit import find_tool
from analysis.measure.driver import why_none
from analysis.measure.plausible import MULTIPLY_ADDS
from analysis.measure.stats import median

SUBMISSION, AGAIN, BASELINE = "submission", "submission again", "baseline"
PROCESSES, SAMPLES, SETS = 5, 100, 2  # of each program; samples and sets of inputs of a process
SECONDS = 300  # of a process
STOPPED = 5  # judge-replay: a kernel faulted or did not end
UNSTEADY = 0.03  # by which the two times of the submission may differ
APART_NS, APART = 10_000, 0.1  # how far the clocks may be apart: 3 to 4 us on an H200
IDLE = 1  # a reason for low clocks that is no slowdown
FASTEST = 8  # dense 16-bit products to sparse 4-bit ones: 4 for the bits, 2 for the zeros
CAPABILITY = (75, 76)  # attributes of a device


class NoGpu(AnalysisError):
    """--time on a machine without a GPU."""

    status = 21


@dataclass(frozen=True)
class Work:
    """The least that any program does in the call, and the GPU's compute capability."""

    case: str
    bytes: int
    operations: int
    capability: str


def why_no_gpu() -> str:
    """Why nothing can be timed here; "" where it can."""
    why = why_none()
    if not why and hasattr(ctypes.CDLL("libcuda.so.1"), "cuEmulatedGpuMark"):
        return "the loader finds the emulated driver"
    return why


def time_submission(
    problem: Problem,
    recordings: Mapping[str, Recording],
    rng: np.random.Generator,
    folder: Path,
    verdict: Verdict,
) -> None:
    """Time the first of the problem's timed cases, and add to the verdict what that shows."""
    case = problem.timed[0]
    capability = compute_capability()
    timer = _Timer(problem, case, [problem.generate(case, "normal", rng) for _ in range(SETS)], folder)
    programs = {name: timer.compiled(each, capability) for name, each in recordings.items()}
    programs[AGAIN] = programs[SUBMISSION]
    order = rng.permutation([name for name in programs for _ in range(PROCESSES)])
    times: dict[str, list[dict[str, Any]]] = {name: [] for name in programs}
    for name in order:
        taken, wrong = timer.run(programs[name])
        if wrong and name == BASELINE:
            raise AnalysisError(f"the baseline fails on the GPU: {wrong.evidence}")
        if wrong:
            verdict.reject(wrong)
            return
        times[name].append(taken)
    work = Work(case_text(case), input_bytes(problem, case), problem.operations(case), capability)
    decide(times, work, {name: each.sass for name, each in programs.items()}, verdict)


def input_bytes(problem: Problem, case: Case) -> int:
    """Fewest bytes that a call reads from memory. Outputs do not count: they may still be in L2 when it ends."""
    written = sum(tensor.size for tensor in problem.outputs(case).values())
    return max(0, problem.bytes_moved(case) - written)


# ---- the decision ----------------------------------------------------------------------------------------------------


def decide(
    times: Mapping[str, Sequence[Mapping[str, Any]]], work: Work, sass: Mapping[str, str], verdict: Verdict
) -> None:
    """Rows, reasons and reservations from the times.json of each process of each program."""
    rows = {name: row_of(name, of_program, work, sass[name]) for name, of_program in times.items()}
    verdict.times += rows.values()
    for name in (SUBMISSION, AGAIN):
        if rows[name].median_ns < rows[name].floor_ns:
            said = f"{rows[name].median_ns:.0f} ns: the GPU needs at least {rows[name].floor_ns:.0f} ns"
            verdict.reject(Point("impossible time", said, work.case))
    for name, of_program in times.items():
        _look_at_clocks(name, of_program, work.case, verdict)
    one, two = rows[SUBMISSION].median_ns, rows[AGAIN].median_ns
    apart = abs(one - two) / max(one, two)
    verdict.note(f"the submission and itself differ by {apart:.1%} in time")
    if apart > UNSTEADY:
        verdict.reserve(Point("unsteady time", f"{one:.0f} and {two:.0f} ns for the same program", work.case))
    if BASELINE in rows:
        verdict.note(compared(one, rows[BASELINE].median_ns, apart))


def row_of(name: str, of_program: Sequence[Mapping[str, Any]], work: Work, sass: str) -> TimeRow:
    """Times of all processes of a program; the median is that of the processes' medians."""
    samples = [sample for each in of_program for sample in each["samples"]]
    medians = [median_of(each, "event_ns") for each in of_program]
    return TimeRow(
        name,
        work.case,
        str(of_program[0]["device"]),
        len(of_program),
        len(samples),
        median(medians),
        min(medians),
        max(medians),
        max(floor_ns(each, work) for each in of_program),
        min(sample["sm_MHz"] for sample in samples),
        max(sample["sm_MHz"] for sample in samples),
        max(sample["milliwatts"] for sample in samples) / 1000,
        max(sample["celsius"] for sample in samples),
        sass,
    )


def median_of(process: Mapping[str, Any], clock: str) -> float:
    return median([float(sample[clock]) for sample in process["samples"]])


def floor_ns(process: Mapping[str, Any], work: Work) -> float:
    """The time of the least work at the memory's bandwidth and the highest speed of the tensor cores."""
    bytes_per_ns = 2 * process["memory_kHz"] * 1e3 * process["bus_bits"] / 8 / 1e9
    clock = max(sample["sm_MHz"] for sample in process["samples"])
    per_clock = 2 * FASTEST * MULTIPLY_ADDS.get(work.capability, 0) * process["multiprocessors"]
    floor = work.bytes / bytes_per_ns if bytes_per_ns > 0 else 0.0
    return max(floor, 1e3 * work.operations / (per_clock * clock) if per_clock and clock > 0 else 0.0)


def _look_at_clocks(name: str, of_program: Sequence[Mapping[str, Any]], case: str, verdict: Verdict) -> None:
    """Three clocks that a kernel would have to fool, and what the GPU itself says of its clocks."""
    for each in of_program:
        event, stamps, host = (median_of(each, clock) for clock in ("event_ns", "stamps_ns", "host_ns"))
        if abs(stamps - event) > APART_NS + APART * max(stamps, event) or host < (1 - APART) * event:
            said = f"{name}: {event:.0f} ns by events, {stamps:.0f} by the GPU's timer, {host:.0f} by the host"
            verdict.reserve(Point("clocks", said, case))
        slowed = sum(1 for sample in each["samples"] if int(sample["slowdowns"]) & ~IDLE)
        if slowed:
            said = f"{name}: the GPU was slowed down after {slowed} of {len(each['samples'])} samples"
            verdict.reserve(Point("unsteady time", said, case))
        if not each["held"]:
            verdict.note("the GPU cannot hold a stream: gaps between launches are part of the times")


def compared(ours: float, baseline: float, apart: float) -> str:
    """A sentence; a difference within that of the submission and itself is none."""
    if abs(ours - baseline) <= apart * max(ours, baseline):
        return "the submission takes as long as the baseline, as far as this measurement can tell"
    return f"the baseline takes {baseline / ours:.3f} times as long as the submission"


# ---- the processes ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Program:
    """A recording, the machine code of its modules, and a hash of that."""

    recording: Recording
    cubins: Mapping[int, Path]
    sass: str


class _Timer:
    """Runs judge-replay on one case, with the same sets of inputs for every program."""

    def __init__(self, problem: Problem, case: Case, sets: Sequence[Mapping[str, Array]], folder: Path) -> None:
        self.problem, self.case, self.sets, self.folder, self.count = problem, case, sets, folder, 0
        folder.mkdir()
        for name, tensor in problem.inputs(case).items():
            (folder / f"{name}.in").write_bytes(b"".join(tensor.laid_out(each[name]) for each in sets))

    def compiled(self, recording: Recording, capability: str) -> _Program:
        """Compile each module once: all processes run the same machine code."""
        cubins, found = {}, hashlib.sha256()
        for identity in sorted({each.numbers[0] for each in recording.operations if each.kind == "module"}):
            self.count += 1
            ptx, cubin = (self.folder / f"module.{self.count}.{kind}" for kind in ("ptx", "cubin"))
            ptx.write_text(_output([str(machine.tool("judge-replay")), "--ptx", str(identity), str(recording.path)]))
            arch = arch_for(ptx.read_text(), capability)
            _output([str(find_tool("ptxas")), f"-arch={arch}", "-o", str(cubin), str(ptx)])
            cubins[identity] = cubin
            for section in Cubin.read(cubin).sections:
                found.update(section.data if section.name.startswith(".text") else b"")
        return _Program(recording, cubins, found.hexdigest()[:16])

    def run(self, program: _Program) -> tuple[dict[str, Any], Point | None]:
        """times.json of one process, and what is wrong with the outputs of its samples."""
        results = self.folder / "results"
        results.mkdir()
        try:
            words = [f"--time={SAMPLES}", f"--sets={SETS}"]
            words += [f"--cubin={identity}={path}" for identity, path in program.cubins.items()]
            words += [f"--input={name}={self.folder / name}.in" for name in self.problem.inputs(self.case)]
            flat = [part for word in words for part in word.split("=", 1)]
            command = [str(machine.tool("judge-replay")), *flat, str(program.recording.path), str(results)]
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=SECONDS)
            if done.returncode == STOPPED:
                return {}, Point("stopped", f"on the GPU: {done.stderr.strip()[-300:]}", case_text(self.case))
            if done.returncode:
                raise AnalysisError(f"judge-replay ended with status {done.returncode}: {done.stderr.strip()[-300:]}")
            times = json.loads((results / "times.json").read_text(encoding="utf-8"))
            return times, self._wrong(times["samples"], lambda name: (results / name).read_bytes())
        except subprocess.TimeoutExpired:
            return {}, Point("stopped", f"on the GPU: no end after {SECONDS} s", case_text(self.case))
        finally:
            shutil.rmtree(results, ignore_errors=True)

    def _wrong(self, samples: Sequence[Mapping[str, Any]], read: Callable[[str], bytes]) -> Point | None:
        """The first sample with a wrong result: of each set the first one, and those that differ from it."""
        for number, sample in enumerate(samples):
            if number >= SETS and sample["same"]:
                continue
            outputs = {
                name: np.frombuffer(read(f"{name}.out.{number}"), STORED[tensor.kind]).reshape(tensor.shape)
                for name, tensor in self.problem.outputs(self.case).items()
            }
            said, _ = wrong_values(self.problem, self.case, self.sets[sample["set"]], outputs)
            if said:
                return Point("values", f"sample {number} on the GPU: {said}", case_text(self.case), "normal")
        return None


def arch_for(ptx: str, capability: str) -> str:
    """Target of ptxas: the GPU, or the architecture whose features the module requires."""
    target = re.search(r"^\s*\.target\s+(sm_\d+[af]?)", ptx, re.M)
    own = "sm_" + capability.replace(".", "")
    return target[1] if target and target[1][-1] in "af" else own


def compute_capability() -> str:
    """Compute capability of the first GPU, such as 9.0."""
    cuda, device, found = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), []
    cuda.cuInit(0)
    cuda.cuDeviceGet(ctypes.byref(device), 0)
    for attribute in CAPABILITY:
        value = ctypes.c_int()
        cuda.cuDeviceGetAttribute(ctypes.byref(value), attribute, device)
        found.append(str(value.value))
    return ".".join(found)


def _output(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    if done.returncode:
        raise AnalysisError(f"{Path(command[0]).name}: {done.stderr.strip()[:300]}")
    return done.stdout
