# mypy: ignore-errors
"""Products in Triton."""

import triton
import triton.language as tl


@triton.jit
def tile(a, b, M, N, K, begin, end, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n, k = tl.program_id(1) * BN + tl.arange(0, BN), tl.arange(0, BK)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for at in range(begin, end, BK):
        left = tl.load(
            a + m[:, None] * K + (at + k)[None, :], mask=(m[:, None] < M) & ((at + k)[None, :] < end), other=0
        )
        right = tl.load(
            b + (at + k)[:, None] * N + n[None, :], mask=((at + k)[:, None] < end) & (n[None, :] < N), other=0
        )
        total = tl.dot(left, right, total)
    return total, m[:, None] * N + n[None, :], (m[:, None] < M) & (n[None, :] < N)


@triton.jit
def product(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    total, at, inside = tile(a, b, M, N, K, 0, K, BM, BN, BK)
    tl.store(c + at, total.to(tl.float16), mask=inside)


@triton.jit
def split(a, b, w, M, N, K, step, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    begin = tl.program_id(2) * step
    total, at, inside = tile(a, b, M, N, K, begin, tl.minimum(K, begin + step), BM, BN, BK)
    tl.atomic_add(w + at, total, mask=inside)


@triton.jit
def rounded(w, c, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(c + at, tl.load(w + at, mask=at < count).to(tl.float16), mask=at < count)
