"""Joules per launch of the versions and the libraries, from the records of one GPU.

print(energy_text(root(), read_steps(root())))
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from analysis.errors import AnalysisError
from analysis.measure.records import Problem, Record
from analysis.measure.stats import median
from analysis.publish.libraries import NAMES, SIZES, records_of
from analysis.publish.overview import HEADLINE, Step, own_records
from analysis.table import Cell, Table

NOTHING = "No record with energy yet: `bench --energy` measures it.\n"


def energies(records: Sequence[Record]) -> dict[str, list[dict[str, Any]]]:
    """By subject, what the newest run that measured its energy found, a value for each round."""
    newest: dict[str, str] = {}
    for record in records:
        if record.raw.get("energy") and record.passed is not False:
            newest[record.subject] = max(record.run_id, newest.get(record.subject, ""))
    return {
        subject: [
            record.raw["energy"]
            for record in records
            if (record.subject, record.run_id) == (subject, run) and record.raw.get("energy")
        ]
        for subject, run in newest.items()
    }


def energy_table(folder: Path, steps: Sequence[Step]) -> Table:
    """A row per subject, type and size at the headline length: joules, how much they compute, watts and the clock.

    Idle is the most of all rounds.
    """
    records, versions = records_of(folder), {step.name: step.version for step in steps}
    names = {step.name: step.name for step in steps} | NAMES
    rows: list[Sequence[Cell]] = []
    for dtype in ("fp16", "bf16"):
        for size in SIZES.values():
            problem = size(HEADLINE.seq, dtype)
            found = energies(own_records(records, problem, versions))
            rows += [_row(name, problem, found[subject]) for subject, name in names.items() if subject in found]
    return Table(("", "type", "batch", "J per launch", "TFLOP per J", "W", "SM MHz", "°C", "idle"), rows)


def _row(name: str, problem: Problem, found: Sequence[dict[str, Any]]) -> Sequence[Cell]:
    def middle(field: str) -> float | None:
        values = [one[field] for one in found if one.get(field)]
        return median(values) if values else None

    joules, watts, clock, celsius = map(middle, ("joules", "watts", "sm_clock_hz", "celsius"))
    idle = [one["idle"] for one in found if one.get("idle") is not None]
    if not joules:
        raise AnalysisError(f"{name} on {problem}: a record with energy has no joules")
    return (
        name,
        problem.dtype,
        problem.batch,
        f"{joules:.3g}",
        f"{problem.flop() / joules / 1e12:.3f}",
        None if watts is None else round(watts),
        None if clock is None else round(clock / 1e6),
        None if celsius is None else round(celsius),
        f"{100 * max(idle):.2g} %" if idle else None,
    )


def joules_and_watts(folder: Path, steps: Sequence[Step]) -> dict[str, tuple[float, float]]:
    """Joules and power of a launch of the headline problem, of every version with a record of it."""
    records, versions = records_of(folder), {step.name: step.version for step in steps}
    found = energies(own_records(records, HEADLINE, versions))
    return {
        name: (median([one["joules"] for one in rounds]), median([one["watts"] for one in rounds]))
        for name, rounds in found.items()
        if name in versions and all(one.get("joules") and one.get("watts") for one in rounds)
    }


def energy_text(folder: Path, steps: Sequence[Step]) -> str:
    """The table, or a line that says how to get one."""
    table = energy_table(folder, steps)
    return table.markdown() if table.rows else NOTHING
