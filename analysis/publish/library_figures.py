"""Figures of docs/library.md and docs/frameworks.md, from logs/library/: overheads, prefills, several GPUs, checks.

text = library_text(root()), frameworks_text(root())

A line of logs/library/GPU.jsonl is one figure. Examples write such lines with --record. Those of the checks from C and
Python are what build/tests/gpu_library and python/tests/gpu_arrays.py print, with "figure" for who printed it and
"what" for its name.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from analysis.errors import AnalysisError
from analysis.files import read_text
from analysis.publish.drawing import BLUE, GREY, ORANGE, WIDE, new_figure
from analysis.table import Cell, Table

FOLDER = "logs/library"
TIMELINE = f"{FOLDER}/timeline.h100.csv"
NOTHING = "Nothing is recorded yet.\n"
Figure = Mapping[str, Any]


def figures(folder: Path) -> list[Figure]:
    """Every figure of every GPU, in the order of the files. A line that is no figure is an error naming it."""
    found: list[Figure] = []
    for path in sorted((folder / FOLDER).glob("*.jsonl")):
        for number, line in enumerate(read_text(path).splitlines(), 1):
            try:
                figure = json.loads(line)
            except ValueError as error:
                raise AnalysisError(f"{path}:{number}: not a line of JSON: {error}") from error
            if not (isinstance(figure, dict) and {"figure", "gpu", "versions", "command"} <= figure.keys()):
                raise AnalysisError(
                    f"{path}:{number}: expected an object with 'figure', 'gpu', 'versions' and 'command'"
                )
            found.append(figure)
    return found


# ---- docs/library.md -------------------------------------------------------------------------------------------------


C, PYTHON, CHECK = "c_library", "python_package", "check"
# Who printed it, its name, the keys of the value (`*`: the largest of all sizes of heads), what it is, target and unit.
TIMES: Sequence[tuple[str, str, str, str, int | None, str]] = (
    (C, "overhead", "overhead_us", "`fl_forward`, beyond a bare launch", 2, "µs"),
    (C, "first call", "total_ms", "`fl_open`, `fl_prepare` and the first `fl_forward`", 150, "ms"),
    (PYTHON, "overhead", "over_bare_us/torch", "`attention` of PyTorch tensors, beyond a bare launch", 15, "µs"),
    (PYTHON, "overhead", "over_bare_us/torch_out", "the same with `out=`", 15, "µs"),
    (PYTHON, "overhead", "over_bare_us/torch_lse", "the same with `return_lse=True`", 15, "µs"),
    (PYTHON, "overhead", "over_bare_us/torch_stream", "the same with `stream=`", 15, "µs"),
    (PYTHON, "overhead", "over_bare_us/cupy", "`attention` of CuPy arrays with `out=`", 15, "µs"),
    (PYTHON, "overhead", "over_bare_us/sdpa", "PyTorch's `scaled_dot_product_attention`", None, "µs"),
    (PYTHON, "first_call", "*/import_ms", "`import flashladder`", 50, "ms"),
    (PYTHON, "first_call", "*/first_call_ms", "the first call from Python", 150, "ms"),
)
CHECKED = {C: "from C", PYTHON: "from Python"}


def _value(figure: Figure, keys: str) -> float:
    outer, _, inner = keys.partition("/")
    if outer == "*":
        return max(float(value[inner]) for key, value in figure.items() if key.startswith("d_head"))
    return float(figure[outer][inner] if inner else figure[outer])


def library_text(folder: Path) -> str:
    """Host times beside what they may be, and the names of what was checked."""
    recorded = figures(folder)
    rows: list[Sequence[Cell]] = []
    for who, name, keys, what, target, unit in TIMES:
        for figure in recorded:
            if (figure["figure"], figure.get("what")) == (who, name):
                limit = "–" if target is None else f"{target} {unit}"
                rows.append((_gpu(figure), what, limit, f"{_value(figure, keys):.1f} {unit}"))
    if not rows:
        return NOTHING
    lines = [_titled("Host times", Table(("GPU", "host time", "target", "measured"), rows))]
    for who, where in CHECKED.items():
        for gpu in sorted({_gpu(figure) for figure in recorded}):
            mine = [figure for figure in recorded if (figure["figure"], _gpu(figure)) == (who, gpu)]
            if names := ", ".join(figure["what"].replace("_", " ") for figure in mine):
                lines.append(f"Checked {where} on an {gpu}, all passed: {names}.\n")
    return "\n".join(lines)


def _gpu(figure: Figure) -> str:
    """ "H100" of "NVIDIA H100 80GB HBM3"."""
    name = str(figure["gpu"]).removeprefix("NVIDIA ").split()
    return name[0] if name[0] in ("H100", "H200") else str(figure["gpu"])


def _titled(title: str, table: Table, shared: Sequence[str] = ("GPU", "heads", "model")) -> str:
    """The table below its title, which also says what all rows share of these columns."""
    cells = {name: {str(row[place]) for row in table.rows} for place, name in enumerate(table.columns)}
    same = {name: min(cells[name]) for name in shared if len(cells.get(name, ())) == 1}
    return f"{', '.join((title, *same.values()))}:\n\n{table.without(same).markdown()}"


# ---- docs/frameworks.md ----------------------------------------------------------------------------------------------


def prefill_row(figure: Figure) -> Sequence[Cell]:
    ours, theirs = figure["median_ms"]["flashladder"], figure["median_ms"]["sdpa"]
    kernel = figure["sdpa_kernel"].lower().replace("_", " ")
    return (
        _gpu(figure),
        figure["model"],
        figure["seq"],
        f"{ours:.2f}",
        f"{theirs:.2f} ({kernel})",
        f"{theirs / ours:.3f}",
    )


def parallel_row(figure: Figure) -> Sequence[Cell]:
    """Records before the methods had names are of a ring whose messages were queued one step ahead."""
    problem, one, parallel = figure["problem"], figure["ms_one_gpu"], figure.get("ms_parallel") or figure["ms_ring"]
    heads = f"{problem['heads']} heads on {problem['kv_heads']}, d_head {problem['d_head']}, {problem['dtype']}"
    method, efficiency = figure.get("method", "ring, a step ahead"), one / (figure["ranks"] * parallel)
    if most := figure.get("nccl", {}).get("NCCL_MAX_CTAS"):
        method += f", NCCL_MAX_CTAS={most}"
    shape = (_gpu(figure), figure["ranks"], problem["seq"], heads)
    in_a_row = figure.get("efficiency_in_a_row")
    return *shape, method, f"{parallel:.2f}", f"{efficiency:.3f}", f"{in_a_row:.3f}" if in_a_row else "–"


def beside_one_call(recorded: Sequence[Figure]) -> list[Figure]:
    """The figures without those of calls in a row, each of which follows that of one call, and stands in it here."""
    found: list[Figure] = []
    for figure in recorded:
        if figure.get("calls_in_a_row", 1) == 1:
            found.append(figure)
        else:
            found[-1] = {**found[-1], "efficiency_in_a_row": figure["efficiency"]}
    return found


def timeline(folder: Path, _: object = None) -> Any:
    """Kernels and messages of the first of two GPUs during one call, from a trace of each method."""
    if not (folder / TIMELINE).exists():
        return None
    rows = list(csv.DictReader(read_text(folder / TIMELINE).splitlines()))
    methods = list(dict.fromkeys(row["method"] for row in rows))
    kinds = {"attention": BLUE, "messages": ORANGE, "other": GREY}
    places = [(method, kind) for method in methods for kind in kinds]
    figure, axes = new_figure(WIDE, 0.6 + 0.25 * len(places))
    for place, (method, kind) in enumerate(places):
        mine = [row for row in rows if row["method"] == method and row["kernel"] == kind]
        spans = [(float(row["start_ms"]), float(row["ms"])) for row in mine]
        axes.broken_barh(spans, (place - 0.35, 0.7), color=kinds[kind], edgecolor="white", linewidth=0.5)
    axes.set_yticks(range(len(places)), [f"{method}: {kind}" for method, kind in places])
    axes.invert_yaxis()
    axes.set_xlim(0, None)
    axes.set_xlabel("ms of one call: 65536 rows, 32 heads on 8, two H100")
    return figure


PARTS: Mapping[str, tuple[str, Sequence[str], Callable[[Figure], Sequence[Cell]]]] = {
    "prefill": (
        "A whole prefill, batch 1, bf16, median of rounds in turns",
        ("GPU", "model", "tokens", "flashladder, ms", "sdpa, ms", "sdpa / flashladder"),
        prefill_row,
    ),
    "context_parallel": (
        "One causal sequence on several GPUs, efficiency: time on one / (GPUs · time on all), of one call and in a row",
        ("GPU", "GPUs", "seq", "heads", "method", "ms", "efficiency", "in a row"),
        parallel_row,
    ),
}


def frameworks_text(folder: Path) -> str:
    """A table for each kind of figure that is recorded, and a sentence on what was checked."""
    recorded = beside_one_call(figures(folder))
    tables = []
    for kind, (title, columns, row) in PARTS.items():
        if rows := [row(figure) for figure in recorded if figure["figure"] == kind]:
            tables.append(_titled(title, Table(columns, rows)))
    return "\n".join((*tables, *_checks(recorded))) or NOTHING


def _checks(recorded: Sequence[Figure]) -> list[str]:
    """Which stages passed on a GPU, and which did not with the last line that they printed."""
    found: list[str] = []
    for gpu in sorted({_gpu(figure) for figure in recorded}):
        mine = [figure for figure in recorded if figure["figure"] == CHECK and _gpu(figure) == gpu]
        passed = "; ".join(figure["stage"] for figure in mine if figure["passed"])
        failed = [f"{figure['stage']} ({figure['last_line'].strip('= ')})" for figure in mine if not figure["passed"]]
        found += [f"Passed on an {gpu}: {passed}.\n"] if passed else []
        found += [f"FAILED on an {gpu}: {'; '.join(failed)}.\n"] if failed else []
    return found
