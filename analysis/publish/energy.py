"""Both states of the GPU, and joules: versions, production kernels and libraries, from the records of one GPU.

print(energy_table(root(), read_steps(root())).markdown())
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from analysis.errors import AnalysisError
from analysis.ladder.headers import load_attention
from analysis.measure.records import Problem, Record
from analysis.measure.stats import median
from analysis.publish.libraries import NAMES, fastest, records_of
from analysis.publish.overview import GPU, HEADLINE, Step, own_records, problem_at, problem_of_tokens
from analysis.table import Cell, Table


def energies(records: Sequence[Record]) -> dict[str, list[dict[str, Any]]]:
    """By subject, what the newest run that measured its energy found, a value for each round."""
    measured = [record for record in records if record.raw.get("energy")]
    newest: dict[str, str] = {}
    for one in measured:
        if one.passed is not False:
            newest[one.subject] = max(one.run_id, newest.get(one.subject, ""))
    found: dict[str, list[dict[str, Any]]] = {subject: [] for subject in newest}
    for one in measured:
        if newest.get(one.subject) == one.run_id:
            found[one.subject].append(one.raw["energy"])
    return found


COLUMNS = (
    *("", "type", "batch", "TFLOP/s first", "TFLOP/s sustained", "SM MHz first", "SM MHz sustained"),
    *("J per launch", "TFLOP per J", "W", "°C", "idle"),
)


def energy_table(folder: Path, steps: Sequence[Step], gpu: str = GPU) -> Table:
    """A row per subject, type and size at the headline length: speed and clock in both states (harness/energy.h), then
    joules, how much they compute, watts, and the temperature at the end. Idle is the most of all rounds.
    """
    records, versions = records_of(folder, gpu), {step.name: step.version for step in steps}
    production = load_attention(folder)
    names = {name: name for name in (*versions, *production)} | NAMES
    rows: list[Sequence[Cell]] = []
    for dtype in ("fp16", "bf16"):
        for size in (problem_at, problem_of_tokens):
            problem = size(HEADLINE.seq, dtype)
            found = energies(own_records(records, problem, versions | production))
            rows += [_row(name, problem, found[subject]) for subject, name in names.items() if subject in found]
    return Table(COLUMNS, rows)


def _row(name: str, problem: Problem, found: Sequence[dict[str, Any]]) -> Sequence[Cell]:
    def middle(field: str) -> float | None:
        values = [one[field] for one in found if one.get(field)]
        return median(values) if values else None

    joules, watts, celsius, first_ns = map(middle, ("joules", "watts", "celsius", "first_ns"))
    idle = [one["idle"] for one in found if one.get("idle") is not None]
    if not joules:
        raise AnalysisError(f"{name} on {problem}: a record with energy has no joules")
    sustained_ns = 1e9 * joules / watts if watts else None  # joules per launch are the watts times its time
    return (
        name,
        problem.dtype,
        problem.batch,
        *(None if ns is None else round(problem.flop() / ns / 1e3) for ns in (first_ns, sustained_ns)),
        *(None if hz is None else round(hz / 1e6) for hz in map(middle, ("first_sm_clock_hz", "sm_clock_hz"))),
        f"{joules:.3g}",
        f"{problem.flop() / joules / 1e12:.3f}",
        None if watts is None else round(watts),
        None if celsius is None else round(celsius),
        f"{100 * max(idle):.2g} %" if idle else None,
    )


def states_table(folder: Path, steps: Sequence[Step]) -> Table:
    """TFLOP/s in both states, and TFLOP per J, of the fastest version, the production kernels and the libraries."""
    shown = {fastest(steps).name, *load_attention(folder), *NAMES.values()}
    rows = [row for row in energy_table(folder, steps).rows if row[0] in shown and row[1:3] == ("fp16", HEADLINE.batch)]
    return Table(("", "first", "sustained", "TFLOP per J"), [(row[0], row[3], row[4], row[8]) for row in rows])


def joules_and_watts(folder: Path, steps: Sequence[Step]) -> dict[str, tuple[float, float]]:
    """Joules and power of a launch of the headline problem, of every version with a record of it."""
    records, versions = records_of(folder), {step.name: step.version for step in steps}
    found = energies(own_records(records, HEADLINE, versions))
    return {
        name: (median([one["joules"] for one in rounds]), median([one["watts"] for one in rounds]))
        for name, rounds in found.items()
        if name in versions and all(one.get("joules") and one.get("watts") for one in rounds)
    }
