"""Cycles of a KV loop's pass and of a launch from machine code, on a GPU that need not be there.

    python3 -m analysis predict v16 --gpu h200

The model is analysis/predict; docs/internals.md says how far it is from what was measured.
"""

import argparse
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from analysis.errors import DONE, AnalysisError
from analysis.files import root, write_if_changed
from analysis.ladder.config import KernelConfig
from analysis.ladder.headers import VERSION, load, name_of_stem
from analysis.machine_code.subjects import Subject, resolve
from analysis.measure.executables import standard_batch
from analysis.predict.clock import Activity, activity_of, clock_of
from analysis.predict.copies import Copies
from analysis.predict.iteration import LEGEND, Iteration, iteration_of, time_line, worth
from analysis.predict.kernels import GPU_ARCH, alone, foreign_kernel, kernel_of
from analysis.predict.launch import Foreign, Kernel, Shape, Tile, launch_cycles, residents_of, tile_of
from analysis.predict.machine import Machine, model_digest, read_machine
from analysis.predict.tiles import GPU, Tiles, all_names, read_tiles, simulated_all, tiles_path, tiles_text
from analysis.table import add_output_arguments, emit, json_text

HEADS, SEQ = 16, 4096


@dataclass(frozen=True)
class Prediction:
    """A launch: its cycles, and its time at the clock that the limit of power leaves."""

    cycles: float
    hz: float
    flop: float

    @property
    def ms(self) -> float:
        return 1e3 * self.cycles / self.hz

    @property
    def tflops(self) -> float:
        return self.flop / self.cycles * self.hz / 1e12


def predict(kernel: Kernel, machine: Machine, shape: Shape) -> Prediction:
    """The launch of a kernel. AnalysisError where the model does not know its code."""
    config, path = kernel.config, kernel.path
    tiles = {ctas: tile_of(path, machine, residents_of(config, ctas)) for ctas in sorted({1, kernel.ctas})}
    return of_tiles(config, path.peeled, kernel.ctas, tiles, activity_of(path.loop), shape, machine)


def recorded(tiles: Tiles, machine: Machine, shape: Shape) -> Prediction:
    """The launch of a version whose tiles are in regs/tiles.csv."""
    return of_tiles(tiles.config, tiles.peeled, tiles.ctas, tiles.of, tiles.activity, shape, machine)


def of_tiles(
    config: KernelConfig | Foreign,
    peeled: bool,
    ctas: int,
    tiles: Mapping[int, Tile],
    activity: Activity,
    shape: Shape,
    machine: Machine,
) -> Prediction:
    launch = config, peeled, ctas, tiles
    hz = clock_of(*launch, activity, shape, machine)
    cycles = launch_cycles(*launch, shape, machine, hz)
    pairs = shape.seq * (shape.seq + 1) / 2 if shape.causal else shape.seq**2
    flop = 0.0 if isinstance(config, Foreign) else 4 * shape.batch * shape.heads * pairs * config.d_head
    return Prediction(cycles, hz, flop)


def add_predict_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("subject", nargs="?", metavar="SUBJECT", help="version (v07), cubin or executable")
    parser.add_argument("--gpu", default=GPU, metavar="NAME", help=f"GPU to predict: h200 or h100 ({GPU})")
    parser.add_argument(
        "--config", metavar="CONFIG", help="the kernel to predict, if there are several, as a short form"
    )
    parser.add_argument(
        "--launch",
        metavar="CTAS,WARPS,FIT,PASSES",
        help="of a kernel that is not ours: CTAs, or tiles where CTAs stay; warps of each that execute the loop; CTAs "
        "that fit on a multiprocessor; passes of the loop",
    )
    parser.add_argument("--loop", metavar="LOOP", help="with --launch: the loop, as a number or an address in it")
    parser.add_argument("--batch", type=int, metavar="N", help="sequences (16; 8 at 8192; 4 beyond)")
    parser.add_argument("--heads", type=int, default=HEADS, metavar="N", help=f"heads ({HEADS})")
    parser.add_argument("--seq", type=int, default=SEQ, metavar="N", help=f"queries and keys ({SEQ})")
    parser.add_argument("--causal", action="store_true", help="use the causal mask")
    parser.add_argument(
        "--write", action="store_true", help="record the tiles of SUBJECT, or of all versions, in regs/tiles.csv"
    )
    add_output_arguments(parser)


def run_predict(args: argparse.Namespace) -> int:
    machine = read_machine(args.gpu)
    if args.write and not args.subject:
        return write_tiles()
    if args.write:
        return write_version(args.subject, shape_of(args))
    if not args.subject:
        raise AnalysisError("SUBJECT: missing; name a version (v07), a cubin or an executable")
    shape = shape_of(args)
    subject = subject_named(args.subject, args.config)
    if args.launch:
        return run_foreign(args, subject, machine, shape)
    if shape.causal and not (subject.config and subject.config.causal):
        raise AnalysisError(f"--causal: {subject.name} has no causal mask")
    kernel = kernel_of(subject, machine)
    iteration, launch, ideas = iteration_of(kernel, machine), predict(kernel, machine, shape), worth(kernel, machine)
    if args.json:
        emit(json_text(as_json(subject, machine, shape, iteration, launch, ideas)), args.output)
    else:
        emit(sheet(subject, kernel, machine, shape, iteration, launch, ideas), args.output)
    return DONE


def run_foreign(args: argparse.Namespace, subject: Subject, machine: Machine, shape: Shape) -> int:
    launch, fit = foreign_launch(args.launch)
    machine = alone(machine)
    kernel = foreign_kernel(subject, launch, fit, args.loop, machine)
    found = predict(kernel, machine, shape)
    if kernel.config.copies_of_pass:  # L2 delivers bytes per second: at this clock, more of them per cycle
        machine = machine.with_values(clock_limit=found.hz)
        found = predict(kernel, machine, shape)
    iteration = iteration_of(kernel, machine)
    lines = [
        f"{subject.name} on {machine.gpu}, predicted, not measured: {subject.label}",
        f"launch      {found.cycles:.0f} cycles; at {found.hz / 1e9:.2f} GHz {found.ms:.3f} ms",
        *iteration_lines(kernel, iteration),
        *copy_lines(kernel.copies),
        f"model       {model_digest()}",
    ]
    emit("\n".join(lines) + "\n", args.output)
    return DONE


def copy_lines(copies: Copies) -> list[str]:
    """The TMA copies of a foreign kernel's loop, and what the prediction assumes about them."""
    if not copies.count:
        return []
    size = "unknown" if copies.bytes is None else copies.bytes
    line = f"copies      {size} bytes by TMA in a pass"
    if copies.stages == 1 and copies.bytes:
        return [f"{line}, 1 stage: each pass waits for the copies that it starts"]
    stages = "1 stage" if copies.stages == 1 else "number of stages unknown"
    limit = "they are limited only by the bandwidth of L2" if copies.bytes else "they take no time"
    return [
        f"{line}, {stages}",
        f"caveat      the prediction assumes that the loop never waits for these copies and that {limit}:",
        "            a kernel that waits for them takes longer",
    ]


def foreign_launch(text: str) -> tuple[Foreign, int]:
    """Parse CTAS,WARPS,FIT,PASSES: the launch, and the number of CTAs that fit on an SM."""
    numbers = text.split(",")
    if len(numbers) != 4 or not all(re.fullmatch("[1-9][0-9]{0,8}", each) for each in numbers):
        raise AnalysisError(f"--launch {text}: expected four positive numbers, CTAS,WARPS,FIT,PASSES")
    ctas, warps, fit, passes = map(int, numbers)
    return Foreign(ctas, warps, passes), fit


def shape_of(args: argparse.Namespace) -> Shape:
    batch = standard_batch(args.seq) if args.batch is None else args.batch
    for name, value in (("--batch", batch), ("--heads", args.heads), ("--seq", args.seq)):
        if value < 1:
            raise AnalysisError(f"{name} {value}: must be positive")
    return Shape(batch, args.heads, args.seq, args.causal)


def subject_named(name: str, config: str | None) -> Subject:
    """A version's code, or a file's, for the GPUs that are described."""
    if VERSION.fullmatch(name):
        return resolve(name, None if load(root(), name).one_arch else GPU_ARCH, config)
    try:
        return resolve(name, GPU_ARCH, config)
    except AnalysisError as error:
        try:
            return resolve(name, f"{GPU_ARCH}a", config)
        except AnalysisError:
            raise error from None


def write_tiles() -> int:
    """Simulates all versions; progress goes to standard error."""
    found: list[Tiles] = []
    names = all_names()
    for done, tiles in enumerate(simulated_all(names), start=1):
        if isinstance(tiles, Tiles):
            found.append(tiles)
            print(f"{done} of {len(names)}: {tiles.version}", file=sys.stderr)
        else:
            print(f"{done} of {len(names)}: {tiles}", file=sys.stderr)
    path: Path = tiles_path(root())
    write_if_changed(path, tiles_text(found))
    print(path.relative_to(root()))
    return DONE


def write_version(name: str, shape: Shape) -> int:
    """Simulates one version and records its tiles; its predicted speed, and its parent's, are printed."""
    names, wanted = all_names(), name_of_stem(name)
    if wanted not in names:
        raise AnalysisError(f"--write {name}: must be a version of the forward pass; without a name all are written")
    machine, known = read_machine(GPU), dict(read_tiles(root()))
    known.pop(wanted, None)
    (found,) = simulated_all([wanted])
    if isinstance(found, Tiles):
        known[wanted] = found
        print(speed_line(found, known.get(load(root(), wanted).header.parent), machine, shape))
    else:
        print(f"not predicted: {found}")
    write_if_changed(tiles_path(root()), tiles_text(known[each] for each in names if each in known))
    return DONE


def speed_line(tiles: Tiles, parent: Tiles | None, machine: Machine, shape: Shape) -> str:
    """Its predicted speed, and that divided by its parent's."""
    own = recorded(tiles, machine, shape)
    text = (
        f"{tiles.version} on {machine.gpu}, predicted, not measured: {own.tflops:.0f} TFLOP/s, {own.ms:.3f} ms at "
        f"batch {shape.batch}, heads {shape.heads}, seq {shape.seq}"
    )
    return f"{text}; {recorded(parent, machine, shape).ms / own.ms:.3f} of {parent.version}'s speed" if parent else text


# ---- what is printed -------------------------------------------------------------------------------------------------


def sheet(
    subject: Subject,
    kernel: Kernel,
    machine: Machine,
    shape: Shape,
    iteration: Iteration,
    launch: Prediction,
    ideas: dict[str, float],
) -> str:
    mask = ", causal" if shape.causal else ""
    lines = [
        f"{subject.name} on {machine.gpu}, predicted, not measured: {kernel.config}",
        f"batch {shape.batch}, heads {shape.heads}, seq {shape.seq}{mask}",
        "",
        f"launch      {launch.cycles:.0f} cycles; at {launch.hz / 1e9:.2f} GHz {launch.ms:.3f} ms, "
        f"{launch.tflops:.0f} TFLOP/s",
        *iteration_lines(kernel, iteration),
        "",
        "One iteration (a pipe: # always busy, 1 to 9 tenths; a warp of the first scheduler:",
        f"{LEGEND}):",
        time_line(iteration),
        "What a change would be worth, for an iteration:",
        *(
            f"{idea:<40} {cycles:>6.0f} cycles, {100 * (cycles / iteration.cycles - 1):+.1f} %"
            for idea, cycles in ideas.items()
        ),
    ]
    return "\n".join(lines) + "\n"


def iteration_lines(kernel: Kernel, iteration: Iteration) -> list[str]:
    """A pass of the loop: cycles, busy pipes, stalls, what binds."""
    config = kernel.config
    keys = "" if isinstance(config, Foreign) else f" and {config.B_c} keys"
    pipes = sorted(iteration.busy.items(), key=lambda item: -item[1])
    waits = sorted(iteration.stalls.items(), key=lambda item: -item[1])
    return [
        f"iteration   {iteration.cycles:.0f} cycles for {kernel.ctas} CTA{'s' * (kernel.ctas > 1)} of "
        f"{config.n_warps} warps{keys}; {iteration.issued:.0f} instructions per scheduler",
        "busy        " + ", ".join(f"{pipe} {100 * share:.0f} %" for pipe, share in pipes if share >= 0.05),
        "stalls      " + ", ".join(f"{why} {share:.2f}" for why, share in waits if share >= 0.05),
        f"binds       {iteration.busiest}, busy {100 * iteration.busy[iteration.busiest]:.0f} %; "
        f"warps wait most for: {iteration.longest_stall}",
    ]


def as_json(
    subject: Subject, machine: Machine, shape: Shape, iteration: Iteration, launch: Prediction, ideas: dict[str, float]
) -> dict[str, object]:
    return {
        "subject": subject.name,
        "config": str(subject.config),
        "gpu": machine.gpu,
        "problem": {"batch": shape.batch, "heads": shape.heads, "seq": shape.seq, "causal": shape.causal},
        "cycles": round(launch.cycles),
        "clock_hz": launch.hz,
        "ms": round(launch.ms, 6),
        "tflops": round(launch.tflops, 3),
        "iteration": {
            "cycles": round(iteration.cycles, 3),
            "instructions": round(iteration.issued, 3),
            "busy": {pipe: round(share, 4) for pipe, share in iteration.busy.items()},
            "stalls": {why: round(share, 4) for why, share in iteration.stalls.items()},
            "binds": iteration.busiest,
        },
        "changes": {idea: round(cycles, 3) for idea, cycles in ideas.items()},
    }
