# mypy: ignore-errors
"""Attention of e4m3 inputs, output in fp16: Q, K and V are their codes times the scales q_scale, k_scale, v_scale."""

import numpy as np

from analysis.judge import attention
from analysis.judge.arrays import Tensor, from_floats, to_floats

CASES = (
    {"batch": 1, "seq": 128, "heads": 2, "d_head": 128},
    {"batch": 1, "seq": 256, "heads": 1, "d_head": 128},
)
TIMED = ({"batch": 1, "seq": 1024, "heads": 2, "d_head": 128},)
KINDS = ("normal", "large", "needle", "equal", "rising")
TOLERANCE = (
    "P is rounded to e4m3 (2^-4 of each probability), which the error of O averages: 2^-4 of the root of the sum of "
    "squares of P |V|, times 5 for the largest of many elements, and one rounding of O to fp16."
)
LOWER = r"e2m1|e2m3|e3m2|\.s8|\.s4"


def _shape(case):
    return case["batch"], case["seq"], case["heads"], case["d_head"]


def inputs(case):
    return {name: Tensor("e4m3", _shape(case)) for name in "QKV"}


def scalars(case):
    return {"q_scale": 1.0, "k_scale": 0.5, "v_scale": 2.0}


def outputs(case):
    return {"O": Tensor("f16", _shape(case))}


def generate(case, kind, rng):
    Q, K, V = attention.generate(_shape(case), _shape(case), kind, rng)
    scale = scalars(case)
    tensors = (Q / scale["q_scale"], K / scale["k_scale"], V / scale["v_scale"])
    return {name: from_floats(tensor, "e4m3") for name, tensor in zip("QKV", tensors, strict=True)}


def _attended(inputs, case):
    Q, K, V = (to_floats(inputs[name], "e4m3") * scalars(case)[f"{name.lower()}_scale"] for name in "QKV")
    return attention.attend(Q, K, V), V


def reference(inputs, case):
    return {"O": _attended(inputs, case)[0].O}


def bound(inputs, case, expected):
    attended, V = _attended(inputs, case)
    spread = np.sqrt(np.square(attended.P) @ np.square(attention.heads_of(V, case["heads"]))).transpose(0, 2, 1, 3)
    return {"O": 5 * 2.0**-4 * spread + attention.HALF * np.abs(expected["O"]) + 1e-6}


def bytes_moved(case):
    return 5 * case["batch"] * case["seq"] * case["heads"] * case["d_head"]


def operations(case):
    return 4 * case["batch"] * case["seq"] ** 2 * case["heads"] * case["d_head"]
