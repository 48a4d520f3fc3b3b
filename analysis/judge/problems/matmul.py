# mypy: ignore-errors
"""c = a b, in fp16 with sums in fp32; row-major, any sizes."""

import numpy as np

from analysis.judge.arrays import Tensor

CASES = ({"M": 64, "N": 64, "K": 64}, {"M": 50, "N": 40, "K": 96}, {"M": 32, "N": 48, "K": 520})
TIMED = ({"M": 512, "N": 512, "K": 1024},)
KINDS = ("normal", "positive", "cancel", "needle", "nan", "infinity", "tail")
TOLERANCE = (
    "One rounding of the result to fp16 (2^-11 of it), and 2^-20 of the sum of |a| |b| for fp32 sums in any order. "
    "Sums in fp16 exceed it by two orders of magnitude on inputs that cancel."
)
LOWER = r"mma\S*\.f16\.f16\.f16\.f16|mma\S*\.tf32|e4m3|e5m2|e2m1|\.s8|fma\S*\.f16|mul\S*\.f16|add\S*\.f16"


def inputs(case):
    return {"a": Tensor("f16", (case["M"], case["K"])), "b": Tensor("f16", (case["K"], case["N"]))}


def outputs(case):
    return {"c": Tensor("f16", (case["M"], case["N"]))}


def generate(case, kind, rng):
    M, N, K = case["M"], case["N"], case["K"]
    a, b = rng.standard_normal((M, K)), rng.standard_normal((K, N))
    if kind == "positive":
        a, b = np.abs(a) + 1, np.abs(b) + 1
    if kind == "cancel":  # the second half of K takes away what the first adds, but for a small rest
        half = K // 2
        a, b = np.abs(a) * 40, np.abs(b) * 40
        a[:, half : 2 * half] = -a[:, :half]
        b[half : 2 * half] = b[:half] + 0.5 * rng.standard_normal((half, N))
    if kind == "needle":
        a, b = a * 0.01, b * 0.01
        a[rng.integers(M, size=4), rng.integers(K, size=4)] = 50
        b[rng.integers(K, size=4), rng.integers(N, size=4)] = 50
    if kind == "nan":
        a[rng.integers(M), rng.integers(K)] = np.nan
    if kind == "infinity":
        b[rng.integers(K), rng.integers(N)] = np.inf
    if kind == "tail":
        a[:, -1], b[-1] = 30, 30
    return {"a": a.astype(np.float16), "b": b.astype(np.float16)}


def reference(inputs, case):
    with np.errstate(invalid="ignore"):
        return {"c": inputs["a"].astype(np.float64) @ inputs["b"].astype(np.float64)}


def bound(inputs, case, expected):
    with np.errstate(invalid="ignore"):
        size = np.abs(inputs["a"].astype(np.float64)) @ np.abs(inputs["b"].astype(np.float64))
        return {"c": 1.01 * 2.0**-11 * np.abs(expected["c"]) + 2.0**-20 * size + 2.0**-24}


def bytes_moved(case):
    return 2 * (case["M"] * case["K"] + case["K"] * case["N"] + case["M"] * case["N"])


def operations(case):
    return 2 * case["M"] * case["N"] * case["K"]
