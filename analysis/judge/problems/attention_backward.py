# mypy: ignore-errors
"""dQ, dK and dV in fp16 of attention without a mask, from Q, K, V, O, its log-sum-exp in fp32 and dO."""

import numpy as np

from analysis.judge import attention
from analysis.judge.arrays import Tensor

CASES = (
    {"batch": 1, "seq": 128, "heads": 1, "d_head": 64},
    {"batch": 2, "seq": 64, "heads": 2, "d_head": 64},
)
TIMED = ({"batch": 1, "seq": 512, "heads": 2, "d_head": 64},)
KINDS = ("normal", "large", "needle", "equal")
TOLERANCE = (
    "One rounding to fp16 of P, of dS and of each result, 2^-11 of the sums of absolute products, and 20 % for fp32 "
    "arithmetic. dS = P (dP - D) cancels, so 2^-6 of P (|dP| + |D|) is added to |dS|."
)
LOWER = r"mma\S*\.f16\.f16\.f16\.f16|e4m3|e5m2|\.s8|\.s4"


def _shape(case):
    return case["batch"], case["seq"], case["heads"], case["d_head"]


def inputs(case):
    shape = _shape(case)
    lse = Tensor("f32", (case["batch"], case["heads"], case["seq"]))
    return {name: Tensor("f16", shape) for name in ("Q", "K", "V", "O", "dO")} | {"LSE": lse}


def outputs(case):
    return {name: Tensor("f16", _shape(case)) for name in ("dQ", "dK", "dV")}


def generate(case, kind, rng):
    rounded = [each.astype(np.float16) for each in attention.generate(_shape(case), _shape(case), kind, rng)]
    forward = attention.attend(*(each.astype(np.float64) for each in rounded))
    dO = rng.standard_normal(_shape(case)).astype(np.float16)
    tensors = dict(zip("QKV", rounded, strict=True)) | {"O": forward.O.astype(np.float16), "dO": dO}
    return tensors | {"LSE": forward.LSE.astype(np.float32)}


def _gradients(inputs):
    """The three gradients, and the sums of absolute products of which each consists."""
    Q, K, V, out, dO = (inputs[name].astype(np.float64).transpose(0, 2, 1, 3) for name in ("Q", "K", "V", "O", "dO"))
    scale = Q.shape[3] ** -0.5
    P = np.exp(Q @ K.swapaxes(2, 3) * scale - inputs["LSE"].astype(np.float64)[..., None])
    dP, D = dO @ V.swapaxes(2, 3), (dO * out).sum(axis=3, keepdims=True)
    dS = P * (dP - D)
    size = np.abs(dS) + 2.0**-6 * P * (np.abs(dP) + np.abs(D))
    pairs = {
        "dQ": (dS @ K * scale, size @ np.abs(K) * scale),
        "dK": (dS.swapaxes(2, 3) @ Q * scale, size.swapaxes(2, 3) @ np.abs(Q) * scale),
        "dV": (P.swapaxes(2, 3) @ dO, P.swapaxes(2, 3) @ np.abs(dO)),
    }
    return {name: tuple(each.transpose(0, 2, 1, 3) for each in pair) for name, pair in pairs.items()}


def reference(inputs, case):
    return {name: gradient for name, (gradient, _) in _gradients(inputs).items()}


def bound(inputs, case, expected):
    sizes = {name: size for name, (_, size) in _gradients(inputs).items()}
    return {n: 1.2 * attention.HALF * (np.abs(expected[n]) + sizes[n]) + 1e-5 for n in expected}


def bytes_moved(case):
    elements = case["batch"] * case["seq"] * case["heads"]
    return elements * (8 * 2 * case["d_head"] + 4)


def operations(case):
    return 10 * case["batch"] * case["seq"] ** 2 * case["heads"] * case["d_head"]
