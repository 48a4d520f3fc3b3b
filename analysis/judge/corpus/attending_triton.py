# mypy: ignore-errors
# ruff: noqa: E741
"""Attention in Triton with an online softmax; tensors are [batch, seq, heads, d_head]."""

import triton
import triton.language as tl


@triton.jit
def kernel(
    q,
    k,
    v,
    o,
    seq_q,
    seq_k,
    heads,
    group,
    scale,
    D: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    CAUSAL: tl.constexpr,
):
    head, sequence = tl.program_id(1), tl.program_id(2)
    m, d = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, D)
    rows = (sequence * seq_q + m)[:, None] * heads * D + head * D + d[None, :]
    x = tl.load(q + rows, mask=m[:, None] < seq_q, other=0.0)
    most, total, acc = tl.full((BM,), -1e30, tl.float32), tl.zeros((BM,), tl.float32), tl.zeros((BM, D), tl.float32)
    for first in range(0, seq_k, BN):
        n = first + tl.arange(0, BN)
        keys = (sequence * seq_k + n)[:, None] * (heads // group) * D + head // group * D + d[None, :]
        s = tl.dot(x, tl.trans(tl.load(k + keys, mask=n[:, None] < seq_k, other=0.0))) * scale
        seen = n[None, :] < seq_k
        if CAUSAL:
            seen = seen & (n[None, :] <= m[:, None] + seq_k - seq_q)
        s = tl.where(seen, s, -float("inf"))
        new = tl.maximum(most, tl.max(s, axis=1))
        p, factor = tl.exp2(s - new[:, None]), tl.exp2(most - new)
        total = total * factor + tl.sum(p, axis=1)
        acc = tl.dot(p.to(tl.float16), tl.load(v + keys, mask=n[:, None] < seq_k, other=0.0), acc * factor[:, None])
        most = new
    tl.store(o + rows, (acc / total[:, None]).to(tl.float16), mask=m[:, None] < seq_q)


def attend(Q, K, V, O, causal, BM, BN):
    batch, seq, heads, d = Q.shape
    grid = (triton.cdiv(seq, BM), heads, batch)
    scale = 1.4426950408889634 / d**0.5
    kernel[grid](
        Q, K, V, O, seq, K.shape[1], heads, heads // K.shape[2], scale, D=d, BM=BM, BN=BN, CAUSAL=causal, num_warps=4
    )
    return O
