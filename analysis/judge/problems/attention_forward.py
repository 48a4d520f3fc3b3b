# mypy: ignore-errors
"""O = softmax(Q K^T / sqrt(d_head)) V in fp16, tensors [batch, seq, heads, d_head]: the problem of the ladder.

A version of the ladder is a submission as it is, if its blocks divide 128 rows: `./fl judge attention_forward FILE`.
"""

import numpy as np

from analysis.judge import attention
from analysis.judge.arrays import Tensor

CASES = (
    {"batch": 2, "seq": 128, "heads": 2, "d_head": 128},
    {"batch": 1, "seq": 256, "heads": 1, "d_head": 128},
)
TIMED = ({"batch": 2, "seq": 1024, "heads": 2, "d_head": 128},)
KINDS, TOLERANCE = attention.KINDS, attention.TOLERANCE
LOWER = r"mma\S*\.f16\.f16\.f16\.f16|e4m3|e5m2|\.s8|\.s4"


def _shape(case):
    return case["batch"], case["seq"], case["heads"], case["d_head"]


def inputs(case):
    return {name: Tensor("f16", _shape(case)) for name in "QKV"}


def outputs(case):
    return {"O": Tensor("f16", _shape(case))}


def generate(case, kind, rng):
    tensors = attention.generate(_shape(case), _shape(case), kind, rng)
    return {name: tensor.astype(np.float16) for name, tensor in zip("QKV", tensors, strict=True)}


def reference(inputs, case):
    return {"O": attention.attend(*attention.as_floats(inputs, "QKV")).O}


def bound(inputs, case, expected):
    Q, K, V = attention.as_floats(inputs, "QKV")
    return {"O": attention.output_bound(attention.attend(Q, K, V).P, V, expected["O"])}


def bytes_moved(case):
    return 4 * 2 * case["batch"] * case["seq"] * case["heads"] * case["d_head"]


def operations(case):
    return 4 * case["batch"] * case["seq"] ** 2 * case["heads"] * case["d_head"]
