# mypy: ignore-errors
"""y = (x - mean) / sqrt(variance + 1e-5) * weight + bias over the rows of x, in fp32. Rows of x may have gaps."""

import numpy as np

from analysis.judge.arrays import Tensor

CASES = (
    {"rows": 4, "columns": 256, "pitch": 256},
    {"rows": 5, "columns": 781, "pitch": 800},
    {"rows": 3, "columns": 1024, "pitch": 1024},
)
TIMED = ({"rows": 64, "columns": 8192, "pitch": 8192},)
KINDS = ("normal", "offset", "large", "small", "needle", "constant", "nan", "tail")
TOLERANCE = (
    "2^-18 of |x - mean| / deviation, of |mean| / deviation and of the bias: x - mean cancels, so its error is a "
    "rounding of the mean, which is summed in fp32 in any order. fp16 sums, and E[x^2] - E[x]^2 where the mean is "
    "far from 0, exceed it."
)
LOWER = r"mma|\.f16|\.bf16|e4m3|e5m2"
EPSILON = 1e-5


def inputs(case):
    columns = case["columns"]
    return {
        "x": Tensor("f32", (case["rows"], columns), (case["pitch"], 1)),
        "weight": Tensor("f32", (columns,)),
        "bias": Tensor("f32", (columns,)),
    }


def outputs(case):
    return {"y": Tensor("f32", (case["rows"], case["columns"]))}


def generate(case, kind, rng):
    rows, columns = case["rows"], case["columns"]
    x = rng.standard_normal((rows, columns))
    if kind == "offset":
        x += rng.uniform(50, 100, (rows, 1))
    if kind == "large":
        x *= 1e6
    if kind == "small":
        x *= 1e-4  # epsilon matters
    if kind == "needle":
        x[np.arange(rows), rng.integers(columns, size=rows)] = 1000
    if kind == "constant":
        x[...] = np.round(rng.standard_normal((rows, 1)) * 8)
    if kind == "nan":
        _, *others = rng.permutation(rows)  # one row is clean; one NaN in some rows, many in the others
        one, many = others[: rows // 4 + 1], others[rows // 4 + 1 :]
        x[one, rng.integers(columns, size=len(one))] = np.nan
        x[many] = np.where(rng.random((len(many), columns)) < 0.3, np.nan, x[many])
    if kind == "tail":
        x[:, -1] = 300
    weight, bias = 1 + 0.5 * rng.standard_normal(columns), rng.standard_normal(columns)
    return {"x": x.astype(np.float32), "weight": weight.astype(np.float32), "bias": bias.astype(np.float32)}


def _parts(inputs):
    x = inputs["x"].astype(np.float64)
    mean = x.mean(axis=1, keepdims=True)
    return x - mean, mean, np.sqrt(np.square(x - mean).mean(axis=1, keepdims=True) + EPSILON)


def reference(inputs, case):
    difference, _, deviation = _parts(inputs)
    return {"y": difference / deviation * inputs["weight"].astype(np.float64) + inputs["bias"].astype(np.float64)}


def bound(inputs, case, expected):
    difference, mean, deviation = _parts(inputs)
    weight, bias = (np.abs(inputs[name].astype(np.float64)) for name in ("weight", "bias"))
    return {"y": 2.0**-18 * ((np.abs(difference) + np.abs(mean)) / deviation * weight + bias) + 1e-30}


def bytes_moved(case):
    return 4 * (2 * case["rows"] + 2) * case["columns"]


def operations(case):
    return 6 * case["rows"] * case["columns"]
