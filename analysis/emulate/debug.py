"""Compares what a kernel holds after every KV block with NumPy, and says in words where it first goes wrong.

    make debug VER=v07 SEQ=256 DTYPE=bf16 DIST=large

The kernel is bin/dump/vNN, built by `make DUMP=1 vNN`; it runs on the GPU or on the emulator. Both sides are kept as
.npz files. docs/adding-a-version.md walks through a report.
"""

import argparse
import itertools
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.building import built
from analysis.emulate.online_softmax import (
    NO_SCORE,
    UNIT_ROUNDOFF,
    Array,
    Blocks,
    inputs,
    order_of,
    read_dump,
    reference,
)
from analysis.errors import DIFFERENT, DONE, AnalysisError
from analysis.files import root
from analysis.ladder.config import Dtype, KernelConfig, parse_short_form
from analysis.ladder.headers import Version, load
from analysis.measure import executables
from analysis.measure.executables import RIGHT, WRONG
from analysis.measure.records import Problem
from analysis.table import Cell, Table, emit, json_text

TIMEOUT = 600.0
HOOKS = ("common/debug.cuh", "kernels/attention/dump.cuh")  # headers that bring the hooks
TILE_COLUMNS = 8  # of an accumulator of mma.m16n8k16
WORST_SHOWN = 8
MOVES_SHOWN = 4
Mask = NDArray[np.bool_]
Index = tuple[int, int, int, int]  # batch, head, Q block, KV block
MEANING = {
    "S": "raw scores Q·Kᵀ",
    "m": "row maxima",
    "P": "exponentials",
    "l": "row sums",
    "O": "output accumulator",
}


@dataclass(frozen=True)
class Location:
    """The first error of a kernel: one array after one KV block of one Q block."""

    quantity: str
    batch: int
    head: int
    Q_block: int
    KV_block: int
    step: int  # the block was the kernel's first (0), second, ...
    rows: tuple[int, ...]  # that hold a wrong element
    columns: tuple[int, ...]  # the same; empty for m and l
    warps: tuple[int, ...]
    wrong: int  # elements
    of: int
    worst: tuple[int, ...]  # row, or row and column
    got: float
    wanted: float
    bound: float
    looks_like: str  # "" when no known pattern fits


@dataclass(frozen=True)
class Comparison:
    """Dump and reference side by side. `errors` is |got - wanted| / bound, infinite for what is not a number."""

    config: KernelConfig
    problem: Problem
    seed: int
    order: Sequence[int]
    got: Blocks
    wanted: Blocks
    bound: Blocks
    errors: Blocks
    first: Location | None = None


# ---- comparing -------------------------------------------------------------------------------------------------------


def compare(config: KernelConfig, problem: Problem, seed: int, got: Blocks, scale: float = 0.0) -> Comparison:
    """Compare a dump with the reference in the dump's own block order."""
    order = order_of(got)
    wanted, bound = reference(config, problem, seed, order, got.m if config.lazy_rescale else None, scale)
    pairs = zip(got.items(), wanted.items(), bound.items(), strict=True)
    errors = Blocks(*(_over_bound(a, b, limit) for (_, a), (_, b), (_, limit) in pairs))
    side = Comparison(config, problem, seed, order, got, wanted, bound, errors)
    return replace(side, first=_first_wrong(side))


def _over_bound(got: Array, wanted: Array, bound: Array) -> Array:
    masked = wanted == -np.inf
    with np.errstate(invalid="ignore", divide="ignore"):
        error = np.where(masked, np.where(got < NO_SCORE, 0.0, np.inf), abs(got - wanted) / bound)
    return np.where(bound == np.inf, 0.0, np.where(np.isfinite(got) | masked, error, np.inf))


def _first_wrong(sides: Comparison) -> Location | None:
    """The earliest KV block in the kernel's order, in it the earliest array, of that the first Q block."""
    for step, j in enumerate(sides.order):
        for name, error in sides.errors.items():
            found = np.argwhere(error[:, :, :, j] > 1)
            if len(found):
                batch, head, Q_block = (int(i) for i in found[0][:3])
                return _location(sides, name, (batch, head, Q_block, j), step)
    return None


def _location(sides: Comparison, name: str, at: Index, step: int) -> Location:
    error = getattr(sides.errors, name)[at]
    mask = error > 1
    worst = tuple(int(i) for i in np.unravel_index(int(np.argmax(error)), error.shape))
    rows = tuple(int(i) for i in np.flatnonzero(mask.reshape(mask.shape[0], -1).any(1)))
    rows_of_warp = sides.config.B_r // sides.config.n_warps
    got, wanted, bound = (float(getattr(side, name)[at][worst]) for side in (sides.got, sides.wanted, sides.bound))
    return Location(
        quantity=name,
        batch=at[0],
        head=at[1],
        Q_block=at[2],
        KV_block=at[3],
        step=step,
        rows=rows,
        columns=tuple(int(i) for i in np.flatnonzero(mask.any(0))) if mask.ndim == 2 else (),
        warps=tuple(sorted({row // rows_of_warp for row in rows})),
        wrong=int(mask.sum()),
        of=int(mask.size),
        worst=worst,
        got=got,
        wanted=wanted,
        bound=bound,
        looks_like=_pattern(sides, name, at, step, mask),
    )


def _pattern(sides: Comparison, name: str, at: Index, step: int, mask: Mask) -> str:
    """A known fault that explains every wrong element, in words; "" without one."""
    mine, right, bound = (np.asarray(getattr(side, name)[at]) for side in (sides.got, sides.wanted, sides.bound))
    if np.isnan(mine[mask]).all():
        return "nothing was written there, or NaN was computed"
    if name in ("l", "O") and step:
        without = _without_rescale(sides, name, at, sides.order[step - 1])
        unit = UNIT_ROUNDOFF[sides.problem.dtype]
        if (abs(mine - without) <= 4 * bound + unit * abs(without))[mask].all():
            return f"{name} was not rescaled by exp(m_old - m) before this block's part was added"
    if mask.ndim == 2:
        for what, axis in (("column", 1), ("row", 0)):
            moved = _moved(mine, right, bound, mask, axis)
            if moved:
                return f"{what}s in the wrong position: " + runs_moved(what, moved)
    return ""


def _without_rescale(sides: Comparison, name: str, at: Index, before: int) -> Array:
    """l or O after a block, from the kernel's own P, if the values before had been kept as they were."""
    old, P = getattr(sides.got, name)[(*at[:3], before)], sides.got.P[at]
    if name == "l":
        return np.asarray(old + P.sum(-1))
    B_c, group = sides.config.B_c, sides.problem.heads // (sides.problem.kv_heads or sides.problem.heads)
    V = inputs(sides.problem, sides.seed)[2][at[0], at[1] // group, at[3] * B_c : (at[3] + 1) * B_c]
    return np.asarray(old + P[:, : len(V)] @ V)


def _moved(got: Array, wanted: Array, bound: Array, mask: Mask, axis: int) -> list[tuple[int, int]]:
    """(index, what it holds) for every wrong column (axis 1) or row (axis 0), when each holds another one's values."""
    if axis == 0:
        got, wanted, bound, mask = got.T, wanted.T, bound.T, mask.T
    found = []
    for location in np.flatnonzero(mask.any(0)):
        wrong = mask[:, location]
        with np.errstate(invalid="ignore"):  # of two masked scores
            close = (abs(got[:, [location]] - wanted) <= 2 * np.maximum(bound, bound[:, [location]]))[wrong]
        holds = np.flatnonzero(close.all(0))
        if len(holds) != 1:
            return []
        found.append((int(location), int(holds[0])))
    return found


# ---- saying it -------------------------------------------------------------------------------------------------------


def runs(numbers: Sequence[int]) -> str:
    """Numbers as ranges, evenly spaced ones as one pattern: "0-3, 8-11 and so on every 8 up to 59", "5", "0-63"."""
    groups: list[list[int]] = []
    for number in numbers:
        if groups and number == groups[-1][1] + 1:
            groups[-1][1] = number
        else:
            groups.append([number, number])
    texts = [f"{a}" if a == b else f"{a}-{b}" for a, b in groups]
    steps = {b[0] - a[0] for a, b in itertools.pairwise(groups)}
    if len(groups) > 3 and len(steps) == 1 and len({b - a for a, b in groups}) == 1:
        return f"{texts[0]}, {texts[1]} and so on every {steps.pop()} up to {groups[-1][1]}"
    return ", ".join(texts)


def runs_moved(what: str, moved: Sequence[tuple[int, int]]) -> str:
    """(index, what it holds) pairs, neighbors that moved by the same distance taken together."""
    parts = []
    for _, group in itertools.groupby(enumerate(moved), key=lambda one: (one[1][0] - one[0], one[1][1] - one[0])):
        pairs = [pair for _, pair in group]
        locations, held = runs([a for a, _ in pairs]), runs([b for _, b in pairs])
        verb, noun = ("hold", f"{what}s") if len(pairs) > 1 else ("holds", what)
        parts.append(f"{locations} {verb} what {noun} {held} should")
    return ", ".join(parts[:MOVES_SHOWN]) + (f" and {len(parts) - MOVES_SHOWN} more" if parts[MOVES_SHOWN:] else "")


def summary(sides: Comparison) -> Table:
    """The largest error divided by its tolerance, one row per KV block in the kernel's order."""
    rows: list[Sequence[Cell]] = []
    for j in sides.order:
        worst = [float(error[:, :, :, j].max()) for _, error in sides.errors.items()]
        rows.append((j, *(float(f"{value:.2g}") for value in worst)))
    return Table(("KV block", "S", "m", "P", "l", "O"), rows)


def by_warp(sides: Comparison, location: Location) -> Table:
    """The array and block that go wrong first: wrong elements and the sum of errors, one row per warp."""
    at = (location.batch, location.head, location.Q_block, location.KV_block)
    over, error = _wrong_and_error(sides, location.quantity, at)
    n = sides.config.n_warps
    wrong, sums = (values.reshape(n, -1).sum(1) for values in (over, error))
    rows_of_warp = sides.config.B_r // n
    rows: list[Sequence[Cell]] = [
        (w, f"{w * rows_of_warp}-{(w + 1) * rows_of_warp - 1}", int(wrong[w]), float(f"{sums[w]:.4g}"))
        for w in range(n)
    ]
    return Table(("warp", "rows", "wrong", "sum of errors"), rows)


def along(sides: Comparison, location: Location, axis: int) -> Table:
    """The rows (axis 0) or columns (axis 1) with the largest sums of errors."""
    at = (location.batch, location.head, location.Q_block, location.KV_block)
    over, error = _wrong_and_error(sides, location.quantity, at)
    if error.ndim == 1:
        wrong, sums = over, error
    else:
        wrong, sums = over.sum(1 - axis), error.sum(1 - axis)
    worst = sorted(np.argsort(-sums, kind="stable")[:WORST_SHOWN])
    rows: list[Sequence[Cell]] = [(int(i), int(wrong[i]), float(f"{sums[i]:.4g}")) for i in worst if wrong[i]]
    return Table((("row", "column")[axis], "wrong", "sum of errors"), rows)


def _wrong_and_error(sides: Comparison, name: str, at: Index) -> tuple[NDArray[np.int_], Array]:
    """Elements beyond their tolerance as 0 or 1, and absolute errors; what is not a number counts as nothing."""
    with np.errstate(invalid="ignore"):  # of two masked scores
        error = abs(getattr(sides.got, name)[at] - getattr(sides.wanted, name)[at])
    return (getattr(sides.errors, name)[at] > 1).astype(np.int_), np.nan_to_num(error, nan=0.0, posinf=0.0)


def sentence(location: Location, config: KernelConfig) -> str:
    """The first error in words."""
    block = f"KV block {location.KV_block}"
    when = f"{'the first' if location.step == 0 else f'number {location.step + 1}'} in the kernel's order"
    lines = [
        f"first wrong: {location.quantity} ({MEANING[location.quantity]}) of {block}, {when}; "
        f"batch {location.batch}, head {location.head}, Q block {location.Q_block}: "
        f"{location.wrong} of {location.of} elements",
        f"  rows {runs(location.rows)} of the Q block: " + _warps(location, config),
    ]
    if location.columns:
        of = "the head" if location.quantity == "O" else "the KV block"
        tiles = sorted({column // TILE_COLUMNS for column in location.columns})
        lines.append(f"  columns {runs(location.columns)} of {of}: {TILE_COLUMNS}-wide tiles {runs(tiles)}")
    where = f"row {location.worst[0]}" + (f", column {location.worst[1]}" if len(location.worst) > 1 else "")
    lines.append(
        f"  worst at {where}: {location.got:.6g} instead of {location.wanted:.6g}, tolerance {location.bound:.2g}"
    )
    if location.looks_like:
        lines.append(f"  looks like: {location.looks_like}")
    return "\n".join(lines) + "\n"


def _warps(location: Location, config: KernelConfig) -> str:
    return "all warps" if len(location.warps) == config.n_warps else f"warp {runs(location.warps)}"


def render(sides: Comparison, title: str) -> str:
    """The whole report."""
    order = " ".join(map(str, sides.order))
    parts = [
        f"{title}\nKV blocks in the order {order}; largest error divided by its tolerance:\n",
        summary(sides).text(),
    ]
    if sides.first is None:
        return "\n".join([*parts, "every value is within its tolerance\n"])
    parts += [sentence(sides.first, sides.config), by_warp(sides, sides.first).text()]
    parts += [along(sides, sides.first, axis).text() for axis in ((0, 1) if sides.first.columns else (0,))]
    return "\n".join(parts)


# ---- the command -----------------------------------------------------------------------------------------------------


def check_whole_blocks(config: KernelConfig, option: str, rows: int) -> None:
    """Reject a length that the kernel would reject, before it is built."""
    if getattr(config, "any_length", 0):
        return
    for block in (config.B_r, config.B_c):
        if rows % block:
            below = max(rows // block, 1) * block
            raise AnalysisError(f"{option} {rows}: must be a multiple of {block}; use {below} or {below + block}")


def run_kernel(args: argparse.Namespace, folder: Path) -> tuple[Blocks, KernelConfig, Problem, str]:
    """Run bin/dump/vNN once and read its dump. The last value is where it ran."""
    version = load(root(), args.version)
    if not any(f'#include "{header}"' in version.source for header in HOOKS):
        raise AnalysisError(f"{args.version}: writes no S and P, because it has no hooks of common/debug.cuh")
    for name in ("seq", "seq_k", "kv_heads", "scale"):
        value = getattr(args, name)
        if value is not None and not value > 0:
            raise AnalysisError(f"--{name.replace('_', '-')} {value}: must be positive")
    config = parse_short_form(args.config) if args.config else _own_config(version, args.d_head)
    if args.d_head not in (None, config.d_head):
        raise AnalysisError(f"--d-head {args.d_head}: must be {config.d_head}, as in --config {config}")
    if args.dtype:
        config = config.replace(dtype=Dtype[args.dtype.upper()])
    seq = args.seq or 4 * max(config.B_r, config.B_c)
    for option, rows in (("--seq", seq), ("--seq-k", args.seq_k or seq)):
        check_whole_blocks(config, option, rows)
    built(args.version, DUMP="1", KERNELS=str(config) if args.config else "")
    executable = executables.bin_folder() / "dump" / args.version
    if not executable.exists():
        build = f"make DUMP=1 {args.version}" + (f" KERNELS='{config}'" if args.config else "")
        raise AnalysisError(f"{executable}: not built; run `{build}`")
    problem = Problem(
        "attention",
        config.dtype.name.lower(),
        args.batch,
        args.heads,
        seq,
        config.d_head,
        args.dist,
        causal=args.causal,
        kv_heads=0 if args.kv_heads in (None, args.heads) else args.kv_heads,
        seq_k=0 if args.seq_k in (None, seq) else args.seq_k,
    )
    dump = folder / "dump"
    shape = ["--batch", str(args.batch), "--heads", str(args.heads), "--seq", str(seq), "--seed", str(args.seed)]
    shape += ["--seq-k", str(problem.seq_k)] if problem.seq_k else []
    shape += ["--kv-heads", str(problem.kv_heads)] if problem.kv_heads else []
    shape += ["--causal"] * problem.causal + (["--scale", str(args.scale)] if args.scale is not None else [])
    options = ["--backend", args.backend, "--config", str(config), "--dist", args.dist, *shape]
    outcome = executables.run(executable, [*options, "--no-check", "--json", "-", "--dump", str(dump)], TIMEOUT)
    executables.checked(outcome, (RIGHT, WRONG))  # WRONG: the emulator found something; the dump is there all the same
    if not dump.exists() or not outcome.records:
        raise AnalysisError(f"{executable}: wrote no dump: {outcome.problem()}")
    where = "emulator" if outcome.records[0]["backend"] == "emu" else str(outcome.records[0]["device"]["name"])
    if outcome.status == WRONG:
        where += f" ({outcome.problem()})"
    return read_dump(dump, config, problem), config, problem, where


def _own_config(version: Version, d_head: int | None) -> KernelConfig:
    """The config of the header, or the one there for another size of heads."""
    own = (version.header.config, *version.header.others)
    found = [config for config in own if d_head in (None, config.d_head)]
    if not found:
        sizes = ", ".join(str(config.d_head) for config in own)
        raise AnalysisError(f"--d-head {d_head}: must be one of {sizes} for {version.version}")
    return found[0]


def to_record(sides: Comparison, where: str) -> dict[str, Any]:
    """The report as JSON values."""
    return {
        "config": str(sides.config),
        "problem": asdict(sides.problem),
        "where": where,
        "order": list(sides.order),
        "errors": [dict(zip(summary(sides).columns, row, strict=True)) for row in summary(sides).rows],
        "first": asdict(sides.first) if sides.first else None,
    }


def add_debug_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--version", required=True, metavar="VER", help="a version built with DUMP=1")
    parser.add_argument("--config", metavar="FORM", help="configuration in its short form (the version's own)")
    parser.add_argument("--seq", type=int, metavar="N", help="sequence length (four blocks)")
    parser.add_argument("--dtype", choices=("fp16", "bf16"), help="element type (the config's)")
    parser.add_argument(
        "--dist",
        default="normal",
        choices=("normal", "uniform", "large", "ramp"),
        help="distribution of the inputs (normal)",
    )
    parser.add_argument("--batch", type=int, default=1, metavar="N", help="sequences (1)")
    parser.add_argument("--heads", type=int, default=1, metavar="N", help="heads (1)")
    parser.add_argument("--seq-k", type=int, metavar="N", help="number of keys (that of queries)")
    parser.add_argument("--kv-heads", type=int, metavar="N", help="number of KV heads (that of heads)")
    parser.add_argument("--causal", action="store_true", help="use the causal mask")
    parser.add_argument("--scale", type=float, metavar="X", help="softmax scale (1 / sqrt(d_head))")
    parser.add_argument("--d-head", type=int, metavar="N", help="use the version's config for this head size")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="seed of the inputs (1)")
    parser.add_argument("--backend", choices=("auto", "gpu", "emu"), default="auto", help="where to run (auto)")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="folder of the .npz files (build/debug-dumps)")
    parser.add_argument("--exit-code", action="store_true", help="exit status 1 if a value exceeds its tolerance")
    parser.add_argument("--json", action="store_true", help="print the errors as JSON")


def run_debug(args: argparse.Namespace) -> int:
    """Run, compare, keep both sides, print."""
    with tempfile.TemporaryDirectory() as folder:
        got, config, problem, where = run_kernel(args, Path(folder))
    sides = compare(config, problem, args.seed, got, float(np.float32(args.scale or 0.0)))
    out = args.out or root() / "build/debug-dumps"
    kept = [(out / f"{args.version}.{side}.npz", blocks) for side, blocks in (("kernel", got), ("numpy", sides.wanted))]
    for path, blocks in kept:
        blocks.save(path)
    if args.json:
        emit(json_text(to_record(sides, where)), None)
    else:
        print(render(sides, f"{args.version} {config}\n{problem}, seed {args.seed}, on the {where}"))
        print("kept: " + ", ".join(str(path) for path, _ in kept))
    return DIFFERENT if args.exit_code and sides.first else DONE
