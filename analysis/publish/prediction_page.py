"""docs/predict.md: how far the model is from what was measured, from regs/tiles.csv and the records of both GPUs.

print(page_parts(root())["lengths"]())
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from analysis.errors import AnalysisError
from analysis.files import read_text
from analysis.ladder.headers import load_all, load_attention
from analysis.measure.autotune import PREDICTED, models_of, read_predicted
from analysis.measure.executables import standard_batch
from analysis.measure.profile import kept
from analysis.measure.validation import CLEARLY, FITTED, Case, cases_of, leave_one_out, mean_error, of_fit, order
from analysis.predict.clock import ENERGIES
from analysis.predict.launch import Tile
from analysis.predict.machine import Machine, model_digest, read_machine, read_values
from analysis.predict.multiprocessor import STALLS
from analysis.predict.tiles import FITTED_BY, GPU, read_tiles
from analysis.publish.overview import LENGTHS
from analysis.publish.space import searched
from analysis.table import Cell, Table, read_columns

GPUS = ("h200", "h100")
NONE = "–"
OF_NCU = {
    "issue": ("not_selected", "dispatch_stall"),
    "pipe": ("math_pipe_throttle",),
    "wait": ("wait",),
    "barrier": ("barrier",),
    "queue": ("mio_throttle", "lg_throttle"),
    "data": ("short_scoreboard", "long_scoreboard", "gmma"),
}
TITLES = {
    "issue": "not selected, dispatch",
    "pipe": "math pipe throttle",
    "wait": "wait",
    "barrier": "barrier",
    "queue": "MIO throttle",
    "data": "scoreboards",
}
HOW = ("measured", "published", "fitted", "assumed")  # how a number of a description is known


@dataclass(frozen=True)
class Validation:
    """Errors of cycles on each GPU: those of the versions that the numbers are fitted by, and of the others."""

    left_out: dict[Case, float]  # H200, each version with numbers that the others chose
    chosen: dict[str, set[float]]
    fitted: dict[str, dict[Case, float]]  # by GPU, with the numbers of the description
    others: dict[str, dict[Case, float]]
    of_time: dict[str, dict[Case, float]]  # H200: leaving one out


@cache
def validation(folder: Path) -> Validation:
    known = read_tiles(folder)
    cases = {gpu: cases_of(folder, gpu, known) for gpu in GPUS}
    left_out = leave_one_out(of_fit(cases["h200"]), read_machine("h200"))
    fitted, others, of_time = {}, {}, {}
    for gpu, found in cases.items():
        machine, own = read_machine(gpu), set(of_fit(found))
        fitted[gpu] = {case: case.error(machine) for case in found if case in own}
        others[gpu] = {case: case.error(machine) for case in found if case not in own}
        of_time[gpu] = {case: case.error_of_time(machine) for case in own}
    return Validation(left_out.cycles, left_out.chosen, fitted, others, of_time | {"h200": left_out.time})


def percent(error: float) -> str:
    return f"{100 * error:.1f} %"


def largest(errors: Mapping[Case, float]) -> Case:
    return max(errors, key=lambda case: abs(errors[case]))


def at(errors: Mapping[Case, float], seq: int) -> dict[Case, float]:
    return {case: error for case, error in errors.items() if case.shape.seq == seq}


def headline(folder: Path) -> str:
    """Mean error, largest one, order of pairs."""
    found = validation(folder)
    errors, h100 = found.left_out, found.fitted["h100"]
    worst, all_pairs, clear = largest(errors), order(errors), order(errors, CLEARLY)
    here = at(errors, 4096)
    return (
        f"**Mean error {percent(mean_error(errors.values()))}** over {len(errors)} figures of the H200, versions "
        f"{FITTED_BY[0]} to {FITTED_BY[-1]} at all lengths, each version predicted with numbers that were fitted "
        f"without it. The largest error is {percent(abs(errors[worst]))}: {worst.version} at {shape_name(worst)}. "
        f"At 4096: mean {percent(mean_error(here.values()))}, largest {percent(abs(here[largest(here)]))}. "
        f"On the H100, nothing fitted to it: mean {percent(mean_error(h100.values()))}, largest "
        f"{percent(abs(h100[largest(h100)]))}, {len(h100)} figures. Of the {all_pairs.pairs} pairs of versions at one "
        f"problem whose cycles differ by more than 1 %, {100 * all_pairs.share:.1f} % are in the right order, of the "
        f"{clear.pairs} that differ by more than 2 % {100 * clear.share:.1f} %. Noise is "
        f"no excuse: of the {all_pairs.pairs - all_pairs.right} in the wrong order the records of both versions "
        f"overlap in {all_pairs.unclear}.\n\n"
        f"Of time, at the clock that the model gives: mean {percent(mean_error(found.of_time['h200'].values()))}, "
        f"largest {percent(abs(found.of_time['h200'][largest(found.of_time['h200'])]))}, on the H100 mean "
        f"{percent(mean_error(found.of_time['h100'].values()))}.\n"
    )


def shape_name(case: Case) -> str:
    return f"{case.shape.batch} × {case.shape.seq}" + (", causal" if case.shape.causal else "")


def errors_table(errors: Mapping[Case, float], causal: bool = False) -> Table:
    """Predicted / measured - 1 in percent: a row per version, a column per length, the standard batch first."""
    chosen: dict[tuple[str, int], tuple[bool, int, float]] = {}
    for case, error in errors.items():
        key = case.version, case.shape.seq
        if case.shape.causal == causal:
            batch = case.shape.batch
            mine = (batch == standard_batch(case.shape.seq), batch, error)
            chosen[key] = max(chosen.get(key, (False, 0, 0.0)), mine)
    versions = sorted({version for version, _ in chosen})
    rows: list[list[Cell]] = []
    for version in versions:
        cells = [chosen.get((version, seq)) for seq in LENGTHS]
        rows.append([version, *(NONE if cell is None else f"{100 * cell[2]:+.1f}" for cell in cells)])
    return Table(("", *map(str, LENGTHS)), rows)


def lengths_table(folder: Path) -> Table:
    """Mean and largest error by length, of each GPU."""
    found = validation(folder)
    rows: list[list[Cell]] = []
    for name, errors in (("H200, leaving one out", found.left_out), ("H100", found.fitted["h100"])):
        cells = [at(errors, seq) for seq in LENGTHS]
        rows.append([name, *(_mean_and_most(here) for here in cells)])
    return Table(("mean / largest, %", *map(str, LENGTHS)), rows)


def _mean_and_most(errors: Mapping[Case, float]) -> str:
    if not errors:
        return NONE
    return f"{100 * mean_error(errors.values()):.1f} / {100 * max(map(abs, errors.values())):.1f}"


def fitted_table(folder: Path) -> Table:
    """The numbers that no microbenchmark gave: the value, and what leaving a version out chose."""
    found = validation(folder)
    values = {value.name: value for value in read_values()[1]}
    rows: list[list[Cell]] = []
    shown = {name: ", ".join(f"{value:g}" for value in sorted(found.chosen[name])) for name in FITTED}
    for name in ENERGIES:
        shown[f"energy.{name}"] = f"{min(found.chosen[name]):.2f} … {max(found.chosen[name]):.2f}"
    for name, chosen in shown.items():
        value = values[name]
        source = value.source.removeprefix("stands for ")
        rows.append([f"`{name}`", f"{value.of['h200']:g} {value.unit}".strip(), chosen, source])
    return Table(("number", "value", "without a version", "stands for"), rows)


def sources_text() -> str:
    """How many numbers of the description are of each kind, and which are assumed."""
    names = {how: [value.name for value in read_values()[1] if value.how == how] for how in HOW}
    counts = ", ".join(f"{len(names[how])} are {how}" for how in HOW)
    return f"{counts}: {', '.join(f'`{name}`' for name in names[HOW[-1]])}.\n"


def unknown_text(folder: Path) -> str:
    """The kernels that the model does not know."""
    known = read_tiles(folder)
    names = [*(name for name in load_all(folder) if name >= FITTED_BY[0]), *load_attention(folder)]
    return f"Not modelled: {', '.join(name for name in names if name not in known) or 'none'}.\n"


def winners_table(folder: Path) -> Table:
    """For each committed search in fp16: the place that the prediction gives the configuration that won it."""
    rows: list[list[Cell]] = []
    for (version, dtype, seq), times in sorted(read_predicted(folder / PREDICTED).items()):
        for space in searched(folder, version):
            if (space.problem.dtype, space.problem.seq) == (dtype, seq) and space.winner in times:
                order = sorted((config for config in times if config in space.stages), key=lambda config: times[config])
                place = order.index(space.winner) + 1
                lost = NONE if place == 1 else str(space.slower(order[0]) or NONE)
                rows.append([version, seq, len(order), place, lost])
    return Table(("version", "length", "kernels", "place of the fastest", "time of the first / of the fastest"), rows)


def winners_text(folder: Path) -> str:
    """How often the fastest of a search is among the first three."""
    table = winners_table(folder)
    among = sum(int(str(row[3])) <= 3 for row in table.rows)
    first = sum(row[3] == 1 for row in table.rows)
    models = models_of(folder / PREDICTED)
    older = sum(model != model_digest() for model in models.values())
    return (
        f"Of {len(table.rows)} searches the prediction has the measured winner in the first place in {first}, among "
        f"its first three in {among}. An older state of the model predicted {older} of {len(models)} searches.\n"
    )


def stalls_of(tile: Tile, machine: Machine) -> dict[str, float]:
    """By kind, of a pass with what `excess` adds to it. Those cycles are waits, and by ncu for scoreboards: in eight
    versions of nine the model's are then within 0.15 of ncu's."""
    stalls = dict(zip(STALLS, tile.stalls, strict=True))
    longer = (machine.excess - 1) * (1 - tile.busiest / tile.per_pass)
    stalls["data"] += longer * (sum(tile.stalls) + 1)  # and the one that is issued
    return stalls


def stalls_table(folder: Path) -> Table:
    """Warps that wait for each issued instruction, by the model / by ncu: versions that multiply with mma.sync."""
    known, profiles, machine = read_tiles(folder), kept(folder), read_machine(GPU)
    rows: list[list[Cell]] = []
    for version, launch in sorted(profiles.items()):
        tiles = known.get(version)
        if tiles is None or not tiles.activity.mma_sync:
            continue
        own = stalls_of(tiles.of[tiles.ctas], machine)
        theirs = {kind: sum(launch.stalls.get(name, 0.0) for name in names) for kind, names in OF_NCU.items()}
        rows.append([version, *(f"{own[kind]:.2f} / {theirs[kind]:.2f}" for kind in STALLS)])
    return Table(("", *(TITLES[kind] for kind in STALLS)), rows)


def stalls_text(folder: Path) -> str:
    """How near the kinds of stalls are to ncu's."""
    table = stalls_table(folder)
    pairs = [tuple(map(float, str(cell).split(" / "))) for row in table.rows for cell in row[1:]]
    gaps = [abs(own - ncu) for own, ncu in pairs]
    near = sum(gap <= 0.2 for gap in gaps) / len(gaps)
    return (
        f"Of {len(gaps)} figures {100 * near:.0f} % are within 0.2 of ncu's; the mean "
        f"difference is {sum(gaps) / len(gaps):.2f}, the largest {max(gaps):.2f}.\n"
    )


def errors_text(folder: Path) -> str:
    """Every kernel's error at every length: on the H200 fitted without it, on the H100 nothing fitted."""
    found = validation(folder)
    others = found.others["h200"]
    tables = {
        "H200, leaving one out": errors_table(found.left_out),
        "H100, nothing fitted": errors_table(found.fitted["h100"]),
        "H200, kernels that nothing was fitted to": errors_table(others),
        "the same with the causal mask": errors_table(others, causal=True),
    }
    title = "Predicted cycles divided by measured ones, minus 1, in percent"
    return "\n".join(f"{title}, {which}:\n\n{table.markdown()}" for which, table in tables.items())


FOREIGN = "logs/bench/foreign.h200.csv"
FOREIGN_COLUMNS = (
    "kernel",
    "problem",
    "ctas",
    "warps",
    "fit",
    "passes",
    "loop",
    "ms",
    "sm_clock_mhz",
    "predicted_cycles",
    "model",
)
NEAR = 0.1  # of cycles: what is wanted of kernels that are not ours


def foreign_rows(folder: Path) -> list[tuple[str, dict[str, str]]]:
    return list(read_columns(read_text(folder / FOREIGN), FOREIGN_COLUMNS, FOREIGN))


def foreign_errors(folder: Path) -> list[tuple[str, str, str, float]]:
    """Of each recorded launch: kernel, problem, launch as the command takes it, error."""
    found = []
    for where, row in foreign_rows(folder):
        try:
            measured = 1e3 * float(row["ms"]) * float(row["sm_clock_mhz"])
            error = float(row["predicted_cycles"]) / measured - 1
        except (ValueError, ZeroDivisionError) as problem:
            raise AnalysisError(f"{where}: {problem}") from None
        loop = f" --loop {row['loop']}" if row["loop"] else ""
        launch = ",".join(row[name] for name in ("ctas", "warps", "fit", "passes")) + loop
        found.append((row["kernel"], row["problem"], launch, error))
    return found


def foreign_table(folder: Path) -> Table:
    rows: list[list[Cell]] = [
        [kernel, problem, launch, f"{100 * error:+.1f}"] for kernel, problem, launch, error in foreign_errors(folder)
    ]
    return Table(("kernel", "problem", "--launch", "error, %"), rows)


def foreign_text(folder: Path) -> str:
    """How far kernels that are not ours are off: how many are near, and the span of each."""
    errors: dict[str, list[float]] = {}
    for kernel, _, _, error in foreign_errors(folder):
        errors.setdefault(kernel, []).append(error)
    near = sum(max(map(abs, each)) <= NEAR for each in errors.values())
    every = [error for each in errors.values() for error in each]
    rows: list[list[Cell]] = [
        [kernel, len(found), f"{100 * min(found):+.1f} … {100 * max(found):+.1f}"] for kernel, found in errors.items()
    ]
    older = sum(row["model"] != model_digest() for _, row in foreign_rows(folder))
    return (
        f"Of {len(errors)} kernels {near} are within 10 % in all of their launches; mean error "
        f"{percent(mean_error(every))} over {len(every)} launches. An older state of the model predicted "
        f"{older} of them.\n\n" + Table(("kernel", "launches", "error of cycles, %"), rows).markdown()
    )


def page_parts(folder: Path) -> dict[str, Callable[[], str]]:
    """The generated parts of docs/predict.md."""

    def others() -> str:
        errors = validation(folder).others["h200"]
        most = largest(errors)
        return (
            f"Mean error {percent(mean_error(errors.values()))} over {len(errors)} figures of the H200, with and "
            f"without the mask; the largest is {percent(abs(errors[most]))}: {most.version} at {shape_name(most)}. "
            f"{unknown_text(folder)}"
        )

    return {
        "headline": lambda: headline(folder),
        "lengths": lambda: lengths_table(folder).markdown(),
        "others": others,
        "sources": sources_text,
        "stalls": lambda: stalls_text(folder),
        "foreign": lambda: foreign_text(folder),
        "winners": lambda: winners_text(folder),
    }
