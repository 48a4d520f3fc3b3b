# mypy: ignore-errors
"""y = softmax over the rows of x, in fp32. Rows of x may have gaps. A NaN makes its row NaN; -inf counts as 0."""

import numpy as np

from analysis.judge.arrays import Tensor

CASES = (
    {"rows": 4, "columns": 128, "pitch": 128},
    {"rows": 7, "columns": 1000, "pitch": 1000},
    {"rows": 3, "columns": 333, "pitch": 341},
    {"rows": 3, "columns": 2048, "pitch": 2048},  # no lane of a usual block is past the end of the row
)
TIMED = ({"rows": 64, "columns": 8192, "pitch": 8192},)
KINDS = ("normal", "large", "needle", "masked", "nan", "constant", "tail", "falling")
TOLERANCE = (
    "A relative error of 2e-5: exp(x - max) amplifies the rounding of x - max by up to 100 ulp, and ex2.approx, "
    "approximate division and a sum in any order add a few ulp each. fp16 arithmetic errs by 5e-4."
)
LOWER = r"mma|\.f16|\.bf16|e4m3|e5m2"


def inputs(case):
    return {"x": Tensor("f32", (case["rows"], case["columns"]), (case["pitch"], 1))}


def outputs(case):
    return {"y": Tensor("f32", (case["rows"], case["columns"]))}


def generate(case, kind, rng):
    rows, columns = case["rows"], case["columns"]
    x = rng.standard_normal((rows, columns))
    if kind == "large":
        x *= 1e4
    if kind == "needle":
        x *= 0.01
        x[np.arange(rows), rng.integers(columns, size=rows)] = rng.uniform(2, 12, rows)
    if kind == "masked":
        x[rng.random(x.shape) < 0.3] = -np.inf
        x[0, : columns // 2] = -np.inf  # the first block of an online softmax has no maximum
    if kind == "nan":
        _, *others = rng.permutation(rows)  # one row is clean; one NaN in some rows, many in the others
        one, many = others[: rows // 4 + 1], others[rows // 4 + 1 :]
        x[one, rng.integers(columns, size=len(one))] = np.nan
        x[many] = np.where(rng.random((len(many), columns)) < 0.3, np.nan, x[many])
    if kind == "constant":
        x[...] = rng.standard_normal((rows, 1)) * 100
    if kind == "tail":
        x[:, -1] = 9
    if kind == "falling":
        x = -np.sort(-x * 5, axis=1)
    return {"x": x.astype(np.float32)}


def reference(inputs, case):
    x = inputs["x"].astype(np.float64)
    with np.errstate(invalid="ignore"):
        e = np.exp(x - x.max(axis=1, keepdims=True))
        return {"y": e / e.sum(axis=1, keepdims=True)}


def bound(inputs, case, expected):
    return {"y": 2e-5 * np.abs(expected["y"]) + 1e-30}


def bytes_moved(case):
    return 2 * 4 * case["rows"] * case["columns"]


def operations(case):
    return 3 * case["rows"] * case["columns"]  # an exponential, a sum and a scaling for each element
