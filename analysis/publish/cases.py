"""README's table of cases: for each the fastest kernel that was measured beside FlashAttention-3, on each GPU.

    print(cases_table(root(), read_steps(root())).markdown())

Kernel, speed and ratios come from the newest run that holds it and the library; fp16, 4096 queries and keys.
"""

from collections.abc import Sequence
from pathlib import Path

from analysis.ladder.headers import load_attention
from analysis.measure.records import Record
from analysis.publish import general, libraries
from analysis.publish.general import Case, Speeds
from analysis.publish.overview import HEADLINE, Step, own_records
from analysis.publish.ranking import held_code, with_present_names
from analysis.table import Cell, Table

GPUS = ("h200", "h100")
CASES = {
    "no mask, d_head 128": Case(heads=16),
    "causal, d_head 128": Case(causal=True, heads=16),
    "four Q heads for a K and V head": Case(heads=32, kv_heads=8),
    "the same, causal": Case(causal=True, heads=32, kv_heads=8),
    "no mask, d_head 64": Case(d_head=64),
    "causal, d_head 64": Case(d_head=64, causal=True),
    "no mask, d_head 256": Case(d_head=256),
    "causal, d_head 256": Case(d_head=256, causal=True),
}
MISSING = "–"


def records_at(folder: Path, steps: Sequence[Step], case: Case, gpu: str) -> list[Record]:
    """Of logs/bench, versions in their own configuration, and of logs/general, both with a right result."""
    problem = case.problem(HEADLINE.dtype, HEADLINE.seq)
    mine = own_records(libraries.records_of(folder, gpu), problem, {step.name: step.version for step in steps})
    path = folder / general.FOLDER / f"{gpu}.jsonl"
    more = [one for one in general.records_of(folder, gpu) if one.problem == problem] if path.exists() else []
    more = [*with_present_names(more, held_code(folder, load_attention(folder)))]
    return [one for one in [*mine, *more] if one.passed is not False]


def cells_of(records: Sequence[Record], case: Case) -> tuple[str, str, str, str]:
    """The fastest kernel of the newest run that holds one and both libraries, or else FlashAttention-3 alone, its
    TFLOP/s, and the two ratios."""
    problem, speeds = case.problem(HEADLINE.dtype, HEADLINE.seq), Speeds(records)
    peers = {one.run_id for one in records if one.subject == "fa3"}
    kernels = [one for one in records if not one.is_peer and one.run_id in peers]
    if not kernels:
        return (MISSING,) * 4
    with_both = {one.run_id for one in records if one.subject == "cudnn"}
    run = max((one.run_id for one in kernels), key=lambda run_id: (run_id in with_both, run_id))
    found = {one.subject: speeds.tflops(run, (one.subject, problem)) or 0.0 for one in kernels if one.run_id == run}
    kernel = max(found, key=lambda name: found[name])
    side = (kernel, problem)
    ratios = [speeds.ratio(run, side, (peer, problem)) for peer in ("fa3", "cudnn")]
    shown = [MISSING if ratio is None else f"{ratio:.2f}" for ratio in ratios]
    return kernel, f"{found[kernel]:.0f}", shown[0], shown[1]


def cases_table(folder: Path, steps: Sequence[Step]) -> Table:
    """A row per case, and for each GPU the kernel, its TFLOP/s and its speed divided by both libraries'."""
    names = ("kernel, {}", "TFLOP/s", "/ FA3", "/ cuDNN")
    columns = ("your case", *(name.format(gpu.upper()) for gpu in GPUS for name in names))
    rows: list[list[Cell]] = []
    for text, case in CASES.items():
        rows.append([text, *(cell for gpu in GPUS for cell in cells_of(records_at(folder, steps, case, gpu), case))])
    return Table(columns, rows)
