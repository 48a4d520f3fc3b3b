# mypy: ignore-errors
"""Causal attention in fp16, any lengths: query i attends to keys up to i + seq_k - seq_q.

K and V may have fewer heads than Q.
"""

import numpy as np

from analysis.judge import attention
from analysis.judge.arrays import Tensor

CASES = (
    {"batch": 1, "seq_q": 128, "seq_k": 128, "heads": 2, "KV_heads": 2, "d_head": 128},
    {"batch": 2, "seq_q": 77, "seq_k": 200, "heads": 2, "KV_heads": 1, "d_head": 128},
)
TIMED = ({"batch": 1, "seq_q": 512, "seq_k": 1024, "heads": 4, "KV_heads": 2, "d_head": 128},)
KINDS, TOLERANCE = attention.KINDS, attention.TOLERANCE
LOWER = r"mma\S*\.f16\.f16\.f16\.f16|e4m3|e5m2|\.s8|\.s4"


def _shapes(case):
    return (
        (case["batch"], case["seq_q"], case["heads"], case["d_head"]),
        (case["batch"], case["seq_k"], case["KV_heads"], case["d_head"]),
    )


def inputs(case):
    Q, KV = _shapes(case)
    return {"Q": Tensor("f16", Q), "K": Tensor("f16", KV), "V": Tensor("f16", KV)}


def outputs(case):
    return {"O": Tensor("f16", _shapes(case)[0])}


def generate(case, kind, rng):
    tensors = attention.generate(*_shapes(case), kind, rng)
    return {name: tensor.astype(np.float16) for name, tensor in zip("QKV", tensors, strict=True)}


def _attended(inputs, case):
    return attention.attend(*attention.as_floats(inputs, "QKV"), attention.causal(case["seq_q"], case["seq_k"]))


def reference(inputs, case):
    return {"O": _attended(inputs, case).O}


def bound(inputs, case, expected):
    return {"O": attention.output_bound(_attended(inputs, case).P, inputs["V"].astype(np.float64), expected["O"])}


def bytes_moved(case):
    rows = 2 * case["seq_q"] * case["heads"] + 2 * case["seq_k"] * case["KV_heads"]
    return 2 * case["batch"] * rows * case["d_head"]


def operations(case):
    pairs = int(attention.causal(case["seq_q"], case["seq_k"]).sum())
    return 4 * case["batch"] * pairs * case["heads"] * case["d_head"]
