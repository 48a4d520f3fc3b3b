"""Attention in float64, its inputs and its bounds: what the shipped problems of attention share.

All tensors are [batch, seq, heads, d_head], as the project's kernels take them. K and V may have fewer heads than Q.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from analysis.judge.arrays import Array, Floats

HALF = 2.0**-11  # relative error of one rounding to fp16
TOLERANCE = (
    "One rounding of P and one of O to fp16, 2^-11 of P |V| and of |O|, and 10 % for fp32 arithmetic. A kernel that "
    "sums in fp16, or rounds the scores to fp16, exceeds it on large scores."
)
KINDS = ("normal", "large", "needle", "equal", "falling", "rising")


class Attention(NamedTuple):
    """Probabilities [batch, heads, queries, keys], output and log-sum-exp in float64."""

    P: Floats
    O: Floats  # noqa: E741
    LSE: Floats


def generate(
    shape_Q: tuple[int, int, int, int], shape_KV: tuple[int, int, int, int], kind: str, rng: np.random.Generator
) -> tuple[Floats, Floats, Floats]:
    """Q, K and V of a kind, not yet rounded."""
    Q, K, V = (rng.standard_normal(shape) for shape in (shape_Q, shape_KV, shape_KV))
    seq_k = shape_KV[1]
    if kind == "large":
        Q, K = 6 * Q, 6 * K
    if kind == "needle":  # one key takes nearly all of the weight, and its V is large
        key = rng.integers(seq_k)
        K[:, key] *= 8
        V[:, key] *= 20
    if kind == "equal":
        K[...] = K[:, :1]
    if kind in ("falling", "rising"):  # each block of 32 keys has larger scores than the one before, or smaller
        step = np.arange(seq_k) // 32 * (1.0 if kind == "rising" else -1.0)
        Q[..., 0], K[..., 0] = 16, step[None, :, None]
    return Q, K, V


def heads_of(KV: Floats, heads: int) -> Floats:
    """[batch, seq, KV heads, d] as [batch, heads, seq, d], each KV head repeated for its group of query heads."""
    return np.repeat(KV.transpose(0, 2, 1, 3), heads // KV.shape[2], axis=1)


def attend(Q: Floats, K: Floats, V: Floats, visible: Array | None = None) -> Attention:
    """softmax(Q K^T / sqrt(d_head)) V; `visible` broadcasts to [batch, heads, queries, keys]. An empty row gives 0."""
    heads = Q.shape[2]
    S = Q.transpose(0, 2, 1, 3) @ heads_of(K, heads).swapaxes(2, 3) / np.sqrt(Q.shape[3])
    if visible is not None:
        S = np.where(visible, S, -np.inf)
    m = S.max(axis=3, keepdims=True)
    P = np.exp(S - np.where(np.isneginf(m), 0, m))
    total = P.sum(axis=3, keepdims=True)
    P = P / np.where(total == 0, 1, total)
    with np.errstate(divide="ignore"):
        LSE = (m + np.log(total))[..., 0]
    return Attention(P, (P @ heads_of(V, heads)).transpose(0, 2, 1, 3), LSE)


def output_bound(P: Floats, V: Floats, expected: Floats) -> Floats:
    """The allowed distance of each element of O."""
    weight = (P @ np.abs(heads_of(V, P.shape[1]))).transpose(0, 2, 1, 3)
    return np.asarray(1.1 * HALF * (weight + np.abs(expected)) + 1e-6)


def causal(seq_q: int, seq_k: int) -> Array:
    """Query i attends to keys up to i + seq_k - seq_q."""
    return np.asarray(np.arange(seq_k)[None, :] <= np.arange(seq_q)[:, None] + seq_k - seq_q)


def as_floats(inputs: Mapping[str, Array], names: str) -> tuple[Floats, ...]:
    return tuple(inputs[name].astype(np.float64) for name in names)
