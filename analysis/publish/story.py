"""The table of docs/performance.md: every version's prediction, its speed at three lengths, and what held it up.

    story_table(root(), read_steps(root())).markdown()

Speeds are those of fp16 with 16 heads in the newest run on the H200 that holds the version and FlashAttention-2, over
FlashAttention-2's. What held it up is what ncu said of one launch that is kept in logs/profile.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from analysis.files import read_text
from analysis.measure.executables import standard_batch
from analysis.measure.profile import parse
from analysis.measure.records import Record, RecordError, latest_run, read
from analysis.measure.summary import Row
from analysis.measure.summary import rows as summary_rows
from analysis.publish.overview import HEADLINE, PEER, Step
from analysis.table import Cell, Table

LENGTHS = (512, 4096, 16384)
MISSING = "–"


def story_table(folder: Path, steps: Sequence[Step]) -> Table:
    """One row a version: idea, prediction, ratio to FlashAttention-2, clock of the SMs, and what ncu saw."""
    path = folder / "logs/bench/h200.jsonl"
    found = read(path).records if path.exists() else ()
    columns = (
        "version",
        "idea",
        "predicted",
        *(f"of FA2 at {seq}" for seq in LENGTHS),
        "SM MHz",
        "tensor pipe, stalls",
    )
    table: list[list[Cell]] = []
    for step in steps:
        header = step.version.header
        measured = [speed_at(found, step, seq) for seq in LENGTHS]
        cells: list[Cell] = [f"{row.ratio.mid:.3f}" if row and row.ratio else MISSING for row in measured]
        headline = measured[LENGTHS.index(HEADLINE.seq)]
        clock = f"{1000 * headline.sm_ghz:.0f}" if headline and headline.sm_ghz else MISSING
        table.append([step.name, header.title, header.predict or "nothing", *cells, clock, held_up(folder, step.name)])
    return Table(columns, table)


def speed_at(records: Sequence[Record], step: Step, seq: int) -> Row | None:
    """The version's own configuration at that length beside FlashAttention-2, in the newest run of both."""
    problem = replace(HEADLINE, seq=seq, batch=standard_batch(seq))
    config = str(step.version.header.config)
    mine = [
        record
        for record in records
        if record.problem == problem
        and (record.subject == PEER or (record.subject == step.name and record.config == config))
    ]
    try:
        run = latest_run(mine, [step.name, PEER])
    except RecordError:
        return None
    found, _ = summary_rows([record for record in mine if record.run_id == run], against=PEER)
    return next((row for row in found if row.subject == step.name), None)


def held_up(folder: Path, version: str) -> str:
    """How busy the tensor pipe was, and the two largest reasons why warps did not issue, per issued instruction."""
    path = folder / f"logs/profile/{version}.fp16.4096.csv"
    if not path.exists():
        return MISSING
    launch = parse(read_text(path), str(path))[0]
    reasons = {name: stall for name, stall in launch.stalls.items() if name not in ("selected", "not_selected")}
    largest = sorted(reasons, key=lambda name: -reasons[name])[:2]
    return ", ".join([f"{launch.pipes['tensor']:.0f} %", *(f"{name} {reasons[name]:.2f}" for name in largest)])
