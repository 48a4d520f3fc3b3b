"""The predicted kernel: a version's, of its build or as committed, or one of a file.

kernel = committed("v16", machine)      # sass/, regs/: what the validation reads
kernel = kernel_of(subject, machine)    # a built version or a cubin
"""

from collections.abc import Sequence
from dataclasses import replace

from analysis.errors import AnalysisError
from analysis.files import read_text, root
from analysis.ladder.config import KernelConfig
from analysis.ladder.headers import load, stem_of
from analysis.machine_code.loops import parts_of
from analysis.machine_code.occupancy import occupancy_of
from analysis.machine_code.opcodes import COPY_ENGINE
from analysis.machine_code.regions import Parts
from analysis.machine_code.regs import read_registers
from analysis.machine_code.sass import Instruction, parse_listing
from analysis.machine_code.subjects import Subject, start
from analysis.machine_code.traffic import conflicts_of
from analysis.predict.copies import copies_of
from analysis.predict.launch import Foreign, Kernel
from analysis.predict.machine import Machine
from analysis.predict.multiprocessor import SHARED_LINE
from analysis.predict.operations import SHARED, Kind, Operation, tensor_copy, wavefronts
from analysis.predict.path import pass_of, path_of

GPU_ARCH = "sm_90"  # of all GPUs that are described


def conflict_factor(config: KernelConfig, loop: Sequence[Instruction]) -> float:
    """Wavefronts of the shared accesses of a pass, divided by those without bank conflicts; 1 where not recorded."""
    lost = conflicts_of(root(), config)
    least = sum(wavefronts(at.opcode) for at in loop if at.base in SHARED)
    return 1 + lost / least if lost and least else 1.0


def made(parts: Parts, config: KernelConfig, arch: str, registers: int, machine: Machine) -> Kernel:
    fit = occupancy_of(arch, registers, config).ctas
    if fit < 1:
        raise AnalysisError(f"{config}: no CTA fits on a multiprocessor")
    path = path_of(parts, config, machine, conflict_factor(config, pass_of(parts)))
    return Kernel(config, path, 1 if config.persistent else fit)


def committed(version: str, machine: Machine, config: KernelConfig | None = None) -> Kernel:
    """A version's own kernel from the files that are committed of it."""
    known = load(root(), version)
    wanted = config or known.header.config
    arch = known.header.arch if known.one_arch else GPU_ARCH
    path = root() / "sass" / f"{stem_of(version)}.{arch}.sass"
    listings = [each for each in parse_listing(read_text(path), str(path)) if each.config == wanted]
    rows = [row for row in read_registers(root()).get(version, []) if row.arch == arch and row.config == str(wanted)]
    if not listings or not rows:
        raise AnalysisError(f"{version}: {path.name} or regs/registers.csv has no {wanted}")
    return made(parts_of(listings[0]), wanted, arch, rows[0].registers, machine)


def foreign_kernel(subject: Subject, launch: Foreign, ctas: int, loop: str | None, machine: Machine) -> Kernel:
    """A kernel that is not ours, of which `ctas` fit on a multiprocessor: the loop that `loop` names, else the one with
    the most matrix instructions; all other code runs once per CTA."""
    parts = parts_of(start(subject).listing(), loop, subject)
    path = path_of(parts, None, machine)
    copies = copies_of(parts, sum(each.kind is Kind.PHASE_WAIT for each in path.loop))
    turns = any(each.kind is Kind.ARRIVE and each.turn for each in path.loop)
    copied = launch.n_warps * SHARED_LINE * sum(each.kind is Kind.COPY for each in path.loop) + (copies.bytes or 0)
    if copies.stages == 1 and copies.bytes:
        path = replace(path, loop=_waited_for(path.loop, copies.bytes / copies.count))
    started = sum(each.kind is Kind.TENSOR_COPY for each in path.loop)
    launch = replace(launch, groups=2 if turns else 1, pass_bytes=copied, copies_of_pass=started)
    return Kernel(launch, path, ctas, copies)


def _waited_for(loop: Sequence[Operation], size: float) -> list[Operation]:
    """The loop, whose TMA copies of `size` bytes each complete before the loop goes on."""
    return [
        tensor_copy(each, size) if each.instruction is not None and each.instruction.base in COPY_ENGINE else each
        for each in loop
    ]


def alone(machine: Machine) -> Machine:
    """The machine for a kernel that is not ours: who else reads what it copies is not known, so it comes from DRAM."""
    return machine.with_values(copy_latency=machine.dram_latency)


def kernel_of(subject: Subject, machine: Machine) -> Kernel:
    """The kernel of a cubin. It must be one of ours: the config says how a launch divides the problem."""
    _, kernel = subject.cubin_or_refuse("predicting its time")
    config = subject.config
    if config is None:
        raise AnalysisError(f"{subject.name}: {subject.label} is not one of our kernels: its launch is not known")
    if not subject.arch.startswith(GPU_ARCH):
        raise AnalysisError(f"{subject.name}: code for {subject.arch}, but {machine.gpu} runs that of {GPU_ARCH}")
    if kernel.registers is None:
        raise AnalysisError(f"{subject.name}: {subject.label}: the cubin does not say how many registers it takes")
    parts = parts_of(start(subject).listing(), subject=subject)
    return made(parts, config, subject.arch, kernel.registers, machine)
