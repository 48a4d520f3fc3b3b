"""Numbers of docs/library.md and docs/frameworks.md, from logs/library/: overheads, prefills, several GPUs, checks.

text = library_text(root()), frameworks_text(root())

A line of logs/library/GPU.jsonl is one measurement, as examples write with --record. The checks from C and Python are
what build/tests/gpu_library and python/tools/gpu_arrays.py print, with "figure" for who printed it and "what" for its
name.
"""

import csv
import json
from collections.abc import Mapping, Sequence
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
C, PYTHON, CHECK = "c_library", "python_package", "check"
# Each row: the program that printed it, its name, the keys of the value (`*`: the largest of all head sizes), its
# meaning, and its unit.
TIMES: Sequence[tuple[str, str, str, str, str]] = (
    (C, "overhead", "overhead_us", "`fl_forward`, beyond a bare launch", "µs"),
    (C, "first call", "total_ms", "`fl_open`, `fl_prepare` and the first `fl_forward`", "ms"),
    (PYTHON, "overhead", "over_bare_us/torch", "`attention` of PyTorch tensors, beyond a bare launch", "µs"),
    (PYTHON, "overhead", "over_bare_us/torch_out", "`attention` of PyTorch tensors with `out=`", "µs"),
    (PYTHON, "overhead", "over_bare_us/torch_lse", "`attention` of PyTorch tensors with `return_lse=True`", "µs"),
    (PYTHON, "overhead", "over_bare_us/torch_stream", "`attention` of PyTorch tensors with `stream=`", "µs"),
    (PYTHON, "overhead", "over_bare_us/cupy", "`attention` of CuPy arrays with `out=`", "µs"),
    (PYTHON, "overhead", "over_bare_us/sdpa", "PyTorch's `scaled_dot_product_attention`", "µs"),
    (PYTHON, "first_call", "*/import_ms", "`import flashladder`", "ms"),
    (PYTHON, "first_call", "*/first_call_ms", "the first call from Python", "ms"),
)


def figures(folder: Path) -> list[Figure]:
    """Every measurement of every GPU, in the order of the files. Any other line is an error that names it."""
    found: list[Figure] = []
    for path in sorted((folder / FOLDER).glob("*.jsonl")):
        for number, line in enumerate(read_text(path).splitlines(), 1):
            try:
                figure = json.loads(line)
            except ValueError as error:
                raise AnalysisError(f"{path}:{number}: not a line of JSON: {error}") from error
            if not (isinstance(figure, dict) and {"figure", "gpu", "versions", "command"} <= figure.keys()):
                raise AnalysisError(
                    f"{path}:{number}: must be an object with 'figure', 'gpu', 'versions' and 'command'"
                )
            found.append(figure)
    return found


def _gpu(figure: Figure) -> str:
    """ "H100" of "NVIDIA H100 80GB HBM3"."""
    return str(figure["gpu"]).removeprefix("NVIDIA ").split()[0]


def library_text(folder: Path) -> str:
    """Host times of the library's calls."""
    recorded = figures(folder)
    rows = [
        (_gpu(figure), what, f"{_value(figure, keys):.1f} {unit}")
        for who, name, keys, what, unit in TIMES
        for figure in recorded
        if (figure["figure"], figure.get("what")) == (who, name)
    ]
    return Table(("GPU", "host time", "measured"), rows).markdown() if rows else NOTHING


def _value(figure: Figure, keys: str) -> float:
    outer, _, inner = keys.partition("/")
    if outer == "*":
        return max(float(value[inner]) for key, value in figure.items() if key.startswith("d_head"))
    return float(figure[outer][inner] if inner else figure[outer])


def frameworks_text(folder: Path) -> str:
    """A table of prefills, one of several GPUs, and which stages failed."""
    recorded = figures(folder)
    prefills = [prefill_row(figure) for figure in recorded if figure["figure"] == "prefill"]
    parts = []
    if prefills:
        columns = ("GPU", "model", "tokens", "flashladder, ms", "sdpa, ms", "sdpa / flashladder")
        parts.append("The prefill of a model, batch 1, bf16:\n\n" + Table(columns, prefills).markdown())
    if parallel := parallel_rows(recorded):
        problems = [figure["problem"] for figure in recorded if figure["figure"] == "context_parallel"]
        shapes = {f"{p['heads']} heads on {p['kv_heads']}, d_head {p['d_head']}, {p['dtype']}" for p in problems}
        said = f"One causal sequence on several GPUs ({'; '.join(sorted(shapes))}). Efficiency is the speedup over\n"
        said += "one GPU divided by the number of GPUs, for one call and for calls in a row:\n\n"
        names = ("GPU", "GPUs", "keys", "method", "ms", "efficiency", "in a row")
        parts.append(said + Table(names, parallel).markdown())
    for gpu in sorted({_gpu(figure) for figure in recorded}):
        mine = [figure for figure in recorded if figure["figure"] == CHECK and _gpu(figure) == gpu]
        failed = [f"{figure['stage']} ({figure['last_line'].strip('= ')})" for figure in mine if not figure["passed"]]
        parts += [f"FAILED on an {gpu}: {'; '.join(failed)}.\n"] if failed else []
    return "\n".join(parts) or NOTHING


def prefill_row(figure: Figure) -> Sequence[Cell]:
    ours, theirs = figure["median_ms"]["flashladder"], figure["median_ms"]["sdpa"]
    kernel = figure["sdpa_kernel"].lower().replace("_", " ")
    shown = (f"{ours:.2f}", f"{theirs:.2f} ({kernel})", f"{theirs / ours:.3f}")
    return _gpu(figure), figure["model"], figure["seq"], *shown


def parallel_rows(recorded: Sequence[Figure]) -> list[list[Cell]]:
    """A row for each named method and problem; a record of calls in a row adds its efficiency to the row before it.

    Only the largest number of GPUs is shown.
    """
    rows: list[list[Cell]] = []
    for figure in recorded:
        if (
            figure["figure"] != "context_parallel"
            or "method" not in figure
            or "NCCL_MAX_CTAS" in figure.get("nccl", {})
        ):
            continue
        if figure.get("calls_in_a_row", 1) > 1:
            rows[-1][-1] = f"{figure['efficiency']:.3f}"
            continue
        parallel, method = figure["ms_parallel"], figure["method"]
        efficiency = figure["ms_one_gpu"] / (figure["ranks"] * parallel)
        row: list[Cell] = [_gpu(figure), figure["ranks"], figure["problem"]["seq"], method]
        rows.append([*row, f"{parallel:.2f}", f"{efficiency:.3f}", "–"])
    most = max((int(str(row[1])) for row in rows), default=0)
    return [row for row in rows if row[1] == most]


def timeline(folder: Path, _: object = None) -> Any:
    """Kernels and messages of the first of two GPUs during one call, from a trace of each method."""
    if not (folder / TIMELINE).exists():
        return None
    rows = list(csv.DictReader(read_text(folder / TIMELINE).splitlines()))
    kinds = {"attention": BLUE, "messages": ORANGE, "other": GREY}
    lanes = [(method, kind) for method in dict.fromkeys(row["method"] for row in rows) for kind in kinds]
    figure, axes = new_figure(WIDE, 0.6 + 0.25 * len(lanes))
    for lane, (method, kind) in enumerate(lanes):
        mine = [row for row in rows if row["method"] == method and row["kernel"] == kind]
        spans = [(float(row["start_ms"]), float(row["ms"])) for row in mine]
        axes.broken_barh(spans, (lane - 0.35, 0.7), color=kinds[kind], edgecolor="white", linewidth=0.5)
    axes.set_yticks(range(len(lanes)), [f"{method}: {kind}" for method, kind in lanes])
    axes.invert_yaxis()
    axes.set_xlim(0, None)
    axes.set_xlabel("ms of one call: 65536 rows, 32 heads on 8, two H100")
    return figure
