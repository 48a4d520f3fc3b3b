"""Online softmax block by block in NumPy, and the dumps of real kernels in the same shape.

    wanted = reference(config, problem, order=range(n_blocks))
    got = read_dump(path, config, problem)

Both sides are `Blocks`: what FlashAttention-2 (Dao 2023, algorithm 1) holds after each KV block. The reference is in
float64 from the 16-bit inputs, without the kernel's roundings; `bounds` says how far these may lead.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from analysis.errors import AnalysisError
from analysis.ladder.config import Dtype, KernelConfig
from analysis.measure.inputs import elements
from analysis.measure.records import Problem

Array = NDArray[np.float64]
UNIT_ROUNDOFF = {"fp16": 2.0**-11, "bf16": 2.0**-8}
TINY = {"fp16": 2.0**-24, "bf16": 2.0**-125}  # half a step of the smallest numbers with room; fp32 flushed to zero
FP32 = 2.0**-20  # relative error of sums of a few hundred fp32 products, on tensor cores that truncate
EXP = 2.0**-20  # of ex2.approx and of the products before it
LAZY_EXPONENT = 8  # log2 of the largest exponential of a kernel with lazy_rescale
FIRST_MAX_EXPONENT = {Dtype.FP16: 15, Dtype.BF16: 60}  # the same with first_max, which looks at sums of exponentials
NO_SCORE = -1e29  # a kernel overwrites masked scores with a value below this
SHAPE = "(batch, head, Q block, KV block, row of the Q block, column)"


@dataclass(frozen=True)
class Blocks:
    """Float arrays of SHAPE; m and l lack its last dimension. KV blocks keep their position in the sequence."""

    S: Array  # raw scores, [..., B_r, B_c]
    m: Array  # largest raw score of the row so far, [..., B_r]
    P: Array  # exponentials, as the second matmul sees them, [..., B_r, B_c]
    l: Array  # sum of the row's exponentials so far, relative to m, [..., B_r]  # noqa: E741
    O: Array  # accumulator, not yet divided by l, [..., B_r, d_head]  # noqa: E741

    def items(self) -> list[tuple[str, Array]]:
        """The arrays in the order in which a kernel computes them."""
        return [(field.name, getattr(self, field.name)) for field in fields(self)]

    def save(self, path: Path) -> None:
        """Keep the arrays as .npz."""
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(path, S=self.S, m=self.m, P=self.P, l=self.l, O=self.O)


def rounded(values: Array, dtype: str) -> Array:
    """The nearest 16-bit numbers, ties to even, widened again: through fp32, as the executables round."""
    single = values.astype(np.float32)
    if dtype == "fp16":
        return single.astype(np.float16).astype(np.float64)
    bits = single.view(np.uint32).astype(np.int64)
    bits = bits + 0x7FFF + (bits >> 16 & 1) & 0xFFFF0000
    return bits.astype(np.uint32).view(np.float32).astype(np.float64)


def inputs(problem: Problem, seed: int) -> tuple[Array, Array, Array]:
    """Q as [batch, head, seq, d_head], K and V with their own heads and keys, equal to those of the executables."""

    def tensor(number: int, seq: int, heads: int) -> Array:
        shape = (problem.batch, seq, heads, problem.d_head)
        values = elements(np, problem.dist, seed, number, 0, int(np.prod(shape)))
        return rounded(np.asarray(values, dtype=np.float64), problem.dtype).reshape(shape).transpose(0, 2, 1, 3)

    keys, KV_heads = problem.seq_k or problem.seq, problem.kv_heads or problem.heads
    return tensor(0, problem.seq, problem.heads), tensor(1, keys, KV_heads), tensor(2, keys, KV_heads)


def visible(problem: Problem) -> NDArray[np.bool_]:
    """The keys (columns) to which each query (row) attends; with a causal mask the last query attends to every key."""
    queries, keys = problem.seq, problem.seq_k or problem.seq
    sees = np.tri(queries, keys, keys - queries, dtype=np.bool_)
    return sees if problem.causal else np.ones_like(sees)


def attention(problem: Problem, seed: int, scale: float = 0.0) -> tuple[Array, Array, Array]:
    """softmax(Q·Kᵀ·scale)·V, the same with |V|, both [batch, head, seq, d_head], and log-sum-exp [batch, head, seq].

    A scale of 0 is 1 / √d_head. Both are 0, and log-sum-exp is -∞, if a row attends to no key.
    """
    Q, K, V = inputs(problem, seed)
    K, V = (np.repeat(tensor, problem.heads // tensor.shape[1], axis=1) for tensor in (K, V))
    S = Q @ K.swapaxes(2, 3) * (scale or problem.d_head**-0.5)
    S = np.where(visible(problem), S, -np.inf)
    highest = np.maximum(S.max(-1, keepdims=True), np.finfo(np.float64).min)  # a number where there is no key
    P = np.exp(S - highest)
    sums = P.sum(-1, keepdims=True)
    with np.errstate(divide="ignore"):
        lse = np.where(sums > 0, highest + np.log(sums), -np.inf)[..., 0]
    P = P / np.where(sums > 0, sums, 1)
    return P @ V, P @ abs(V), lse


def output_bound(output: Array, weight: Array, dtype: str, scale: float = 0.0) -> Array:
    """The allowed distance of O from attention()'s first two results: the bound of the executables (harness/verify.h).

    One rounding of P and one of O, and 5 % for fp32 arithmetic, whose errors grow with a scale above 1 / √d_head.
    """
    growth = max(1.0, scale * np.sqrt(output.shape[-1]))
    bound: Array = UNIT_ROUNDOFF[dtype] * (weight + abs(output)) * (1 + 0.05 * growth) + 1e-6
    return bound


def blocks_of(config: KernelConfig, problem: Problem) -> tuple[int, int]:
    """Q blocks and KV blocks of a head; the last ones may be partly filled."""
    return -(-problem.seq // config.B_r), -(-(problem.seq_k or problem.seq) // config.B_c)


def _in_blocks(tensor: Array, blocks: int, rows: int) -> Array:
    """[batch, head, seq, d_head] as [batch, head, block, row, d_head], filled up with zeros."""
    missing = blocks * rows - tensor.shape[2]
    return np.pad(tensor, ((0, 0), (0, 0), (0, missing), (0, 0))).reshape(*tensor.shape[:2], blocks, rows, -1)


def _visible_blocks(config: KernelConfig, problem: Problem) -> NDArray[np.bool_]:
    """The mask of each row, [Q block, KV block, row, key]; no row attends past the ends."""
    n_Q, n_KV = blocks_of(config, problem)
    sees = visible(problem)
    missing = ((0, n_Q * config.B_r - sees.shape[0]), (0, n_KV * config.B_c - sees.shape[1]))
    return np.pad(sees, missing).reshape(n_Q, config.B_r, n_KV, config.B_c).swapaxes(1, 2)


def reference(
    config: KernelConfig,
    problem: Problem,
    seed: int,
    order: Sequence[int],
    lagging: Array | None = None,
    scale: float = 0.0,
) -> tuple[Blocks, Blocks]:
    """The values that a kernel should hold if it processes the KV blocks in this order, and the bound on each value's
    error.

    With lazy_rescale, m may be smaller than the largest score: `lagging` is the kernel's m, used where it is not too
    small. The bound is infinite where a value means nothing: in rows past the last query, in blocks of which no row of
    a warp sees a key, which the warp may skip, and in m of rows that have seen no key so far.
    """
    Q, K, V = inputs(problem, seed)
    K, V = (np.repeat(tensor, problem.heads // tensor.shape[1], axis=1) for tensor in (K, V))
    n_Q, n_KV = blocks_of(config, problem)
    B_r, d, heads = config.B_r, problem.d_head, (problem.batch, problem.heads)
    Q, K, V = _in_blocks(Q, n_Q, B_r), _in_blocks(K, n_KV, config.B_c), _in_blocks(V, n_KV, config.B_c)
    scale, unit, tiny = scale or d**-0.5, UNIT_ROUNDOFF[problem.dtype], TINY[problem.dtype]
    most_lag = np.log(2) * (FIRST_MAX_EXPONENT[config.dtype] if config.first_max else LAZY_EXPONENT)
    sees = _visible_blocks(config, problem)
    S = np.where(sees, np.einsum("bhqrd,bhkcd->bhqkrc", Q, K, optimize=True), -np.inf)
    S_bound = np.where(sees, FP32 * np.einsum("bhqrd,bhkcd->bhqkrc", abs(Q), abs(K), optimize=True) + 1e-30, 0)
    wanted = Blocks(S, *(np.empty(s) for s in (S.shape[:-1], S.shape, S.shape[:-1], (*S.shape[:-1], d))))
    bound = Blocks(S_bound, *(np.empty_like(array) for _, array in wanted.items()[1:]))
    rows = (*heads, n_Q, B_r)
    highest, m, sums, out = np.full(rows, -np.inf), np.full(rows, -np.inf), np.zeros(rows), np.zeros((*rows, d))
    m_bound, sums_bound, out_bound = np.zeros(rows), np.zeros(rows), np.zeros((*rows, d))
    for j in order:
        scores, scores_bound, V_j = S[:, :, :, j], S_bound[:, :, :, j], V[:, :, None, j]
        highest = np.maximum(highest, scores.max(-1))
        m_bound = np.maximum(m_bound, scores_bound.max(-1))
        some = highest > -np.inf  # rows that have seen a key
        new = highest
        if lagging is not None:
            with np.errstate(invalid="ignore"):
                lag = highest - lagging[:, :, :, j]
            new = np.where((lag >= -m_bound) & (lag * scale <= most_lag + EXP), lagging[:, :, :, j], highest)
        least = np.where(some, new, 0.0)  # a number, for what is subtracted
        factor, m = np.where(m > -np.inf, np.exp((np.where(m > -np.inf, m, 0) - least) * scale), 0), new
        below = np.where(sees[:, j], scores - least[..., None], -np.inf)
        P = np.exp(below * scale)
        slack = EXP * (1 + scale * abs(least)) + scale * m_bound  # relative error of an exponential, from m
        P_bound = P * (slack[..., None] + scale * scores_bound + EXP * scale * np.where(sees[:, j], abs(below), 0))
        sums = sums * factor + P.sum(-1)
        sums_bound = sums_bound * factor + (P_bound + P * FP32).sum(-1) + sums * slack
        P_bound += unit * P + tiny
        out = out * factor[..., None] + P @ V_j
        out_bound = out_bound * factor[..., None] + (P_bound + P * FP32) @ abs(V_j)
        out_bound += abs(out) * (slack[..., None] + FP32)
        for name, value, error in (
            ("m", m, np.where(some, m_bound + FP32 * abs(least), np.inf)),
            ("P", P, P_bound),
            ("l", sums, sums_bound + 1e-30),
            ("O", out, out_bound + 1e-30),
        ):
            getattr(wanted, name)[:, :, :, j], getattr(bound, name)[:, :, :, j] = value, error
    warp_sees = sees.any(3).reshape(n_Q, n_KV, config.n_warps, -1).any(-1).repeat(B_r // config.n_warps, 2)
    for _, error in bound.items():
        error[:, :, ~warp_sees] = np.inf
        error[:, :, -1, :, problem.seq - (n_Q - 1) * B_r :] = np.inf
    return wanted, bound


def read_dump(path: Path, config: KernelConfig, problem: Problem) -> Blocks:
    """The file that `bin/dump/vNN --dump` writes; common/debug_layout.h says how it is laid out."""
    B_r, B_c, d = config.B_r, config.B_c, problem.d_head
    n_Q, n_KV = blocks_of(config, problem)
    parts = {"S": (B_r, B_c), "m": (B_r,), "P": (B_r, B_c), "l": (B_r,), "O": (B_r, d)}
    record = sum(int(np.prod(shape)) for shape in parts.values())
    values = np.fromfile(path, dtype="<f4")
    grid = (problem.batch, problem.heads, n_Q, n_KV)
    if values.size != record * int(np.prod(grid)):
        raise AnalysisError(f"{path}: holds {values.size} floats, {record} for each of {grid} blocks were expected")
    values = values.reshape(*grid, record)
    arrays, at = [], 0
    for shape in parts.values():
        size = int(np.prod(shape))
        arrays.append(values[..., at : at + size].reshape(*grid, *shape).astype(np.float64))
        at += size
    return Blocks(*arrays)


def order_of(dump: Blocks) -> list[int]:
    """The order in which the kernel took the KV blocks: forwards or backwards.

    After the first block that it takes, m is the largest score of that block, whatever else is wrong. The last Q block
    takes every KV block, with a mask too.
    """
    n = dump.S.shape[3]

    def misses(first: int) -> float:
        wanted, m = dump.S[:, :, -1, first].max(-1), dump.m[:, :, -1, first]
        seen = wanted > NO_SCORE
        close = abs(m - np.where(seen, wanted, 0)) <= 1e-5 * abs(np.where(seen, wanted, 0)) + 1e-30
        return float(np.mean(~close[seen])) if seen.any() else 1.0

    return list(range(n - 1, -1, -1)) if misses(n - 1) < misses(0) else list(range(n))
