# mypy: ignore-errors
"""Decoding in fp16: one query per sequence attends to the first `lengths` rows of a KV cache that is shared by a group
of heads. Rows past a length hold anything, NaN too, and do not affect O."""

import numpy as np

from analysis.judge import attention
from analysis.judge.arrays import Tensor

CASES = (
    {"batch": 2, "cache": 128, "heads": 8, "KV_heads": 2, "d_head": 128},
    {"batch": 3, "cache": 300, "heads": 4, "KV_heads": 1, "d_head": 128},
)
TIMED = ({"batch": 4, "cache": 1024, "heads": 8, "KV_heads": 2, "d_head": 128},)
KINDS, TOLERANCE = ("normal", "large", "needle", "equal", "short", "full"), attention.TOLERANCE
LOWER = r"mma\S*\.f16\.f16\.f16\.f16|e4m3|e5m2|\.s8|\.s4"


def _shapes(case):
    return (
        (case["batch"], 1, case["heads"], case["d_head"]),
        (case["batch"], case["cache"], case["KV_heads"], case["d_head"]),
    )


def inputs(case):
    Q, KV = _shapes(case)
    lengths = Tensor("i32", (case["batch"],))
    return {"Q": Tensor("f16", Q), "K": Tensor("f16", KV), "V": Tensor("f16", KV), "lengths": lengths}


def outputs(case):
    return {"O": Tensor("f16", _shapes(case)[0])}


def _visible(lengths, case):
    return np.arange(case["cache"])[None, :] < lengths[:, None]


def generate(case, kind, rng):
    Q, K, V = attention.generate(*_shapes(case), kind, rng)
    low, high = {"short": (1, 20), "full": (case["cache"], case["cache"] + 1)}.get(kind, (1, case["cache"] + 1))
    lengths = rng.integers(low, high, size=case["batch"])
    for tensor in (K, V):
        tensor[~_visible(lengths, case)] = np.nan
    tensors = {name: tensor.astype(np.float16) for name, tensor in zip("QKV", (Q, K, V), strict=True)}
    return tensors | {"lengths": lengths.astype(np.int32)}


def _attended(inputs, case):
    Q, K, V = (np.nan_to_num(tensor) for tensor in attention.as_floats(inputs, "QKV"))
    return attention.attend(Q, K, V, _visible(inputs["lengths"], case)[:, None, None, :]), V


def reference(inputs, case):
    return {"O": _attended(inputs, case)[0].O}


def bound(inputs, case, expected):
    attended, V = _attended(inputs, case)
    return {"O": attention.output_bound(attended.P, V, expected["O"])}


def needed(inputs, case):
    rows = np.broadcast_to(_visible(inputs["lengths"], case)[:, :, None, None], inputs["K"].shape)
    return {"K": rows, "V": rows}


def bytes_moved(case):
    return 2 * case["batch"] * case["d_head"] * (2 * case["heads"] + 2 * case["KV_heads"])  # a length may be 1


def operations(case):
    return 4 * case["batch"] * case["heads"] * case["d_head"]
