"""The problems of FlashAttention-3's and FlashInfer's own tests that the package computes: shapes and numbers alone.

    for case in all_cases(): case.origin, case.rows, case.keys, case.options

From hopper/test_flash_attn.py of FlashAttention at 0251105a and tests/attention/ of FlashInfer at fb28d7242. What they
draw at random is drawn here, by the case. Left out, as no kernel has it: heads of other sizes than 64, 128 and 256,
pages of fewer than 16 rows, other masks, rotation, padding on the left, a second pair of Q and V, e4m3 beside windows.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache
from itertools import pairwise, product
from typing import Any, NamedTuple

SIZES_OF_HEADS = (64, 128, 256)
DTYPES = ("float16", "bfloat16")
FULL, CAUSAL, LOCAL = "full", "causal", "local"


class Case(NamedTuple):
    """A call: attention(), attention_varlen(), or attention_with_cache() where `cached`."""

    origin: str
    rows: tuple[int, ...]
    keys: tuple[int, ...]
    heads: int
    kv_heads: int
    d_head: int
    dtype: str = "float16"
    causal: bool = False
    window: tuple[int, int] | None = None
    softcap: float = 0.0
    sinks: bool = False
    page: int = 0
    packed: bool = False
    cached: bool = False
    new: int = 0  # of the keys those that come with the call

    @property
    def options(self) -> dict[str, Any]:
        return {"causal": self.causal, "window": self.window, "softcap": self.softcap or None}

    @property
    def work(self) -> int:
        """Multiply-adds, but for a factor."""
        return self.heads * self.d_head * sum(q * (k + 64) for q, k in zip(self.rows, self.keys, strict=True))


@cache
def all_cases() -> list[Case]:
    return [*flash_attention_3(), *flashinfer()]


def _drawn(*seed: object) -> random.Random:
    return random.Random(repr(seed))


def _mask(kind: str, keys: int, *seed: object) -> dict[str, Any]:
    """Windows of FlashAttention-3's tests end anywhere up to the number of keys."""
    drawn = _drawn(keys, *seed)
    return {
        "causal": kind == CAUSAL,
        "window": (drawn.randrange(keys), drawn.randrange(keys)) if kind == LOCAL else None,
    }


def _padded(size: int, batch: int, *seed: object) -> tuple[int, ...]:
    """At most twenty rows fewer, as random padding is there."""
    drawn = _drawn(size, *seed)
    return tuple(drawn.randint(max(1, size - 20), size) for _ in range(batch))


# ---- FlashAttention-3 ------------------------------------------------------------------------------------------------

WHOLE = (
    (1, 1), (64, 128), (128, 192), (256, 256), (239, 1), (799, 3), (113, 203), (113, 128), (128, 217), (113, 211),
    (108, 256), (256, 512), (384, 256), (640, 128), (512, 256), (1024, 1024), (1023, 1024), (1024, 1023), (4096, 4096),
    (4224, 4224),
)  # fmt: skip
VARLEN = (
    (1, 1), (1, 3), (2, 1), (511, 1), (3, 513), (64, 128), (128, 128), (256, 256), (113, 203), (128, 217), (113, 211),
    (108, 256), (256, 512), (307, 256), (640, 128), (512, 256), (1024, 1024), (1023, 1024), (1024, 1023), (2048, 2048),
    (4096, 4096),
)  # fmt: skip
KVCACHE = (
    (1, 128), (1, 339), (3, 1024), (64, 800), (64, 256), (3, 799), (64, 2048), (16, 20000), (128, 128), (256, 512),
    (2048, 3577),
)  # fmt: skip


def flash_attention_3() -> Iterator[Case]:
    masks, heads, caps = (FULL, CAUSAL, LOCAL), (6, 2, 1), (0.0, 15.0)
    for (q, k), d, kv, mask, cap, dtype in product(WHOLE, SIZES_OF_HEADS, heads, masks, caps, DTYPES):
        batch = 9 if k <= 2048 else 2
        more = _mask(mask, k, d, cap)
        yield Case("test_flash_attn_output", (q,) * batch, (k,) * batch, 6, kv, d, dtype, softcap=cap, **more)
    for (q, k), d, kv, mask, cap, dtype in product(VARLEN, SIZES_OF_HEADS, heads, masks, caps, DTYPES):
        batch = 9 if q <= 2048 else 2
        rows, keys, more = _padded(q, batch, d), _padded(k, batch, d, kv), _mask(mask, k, d, cap)
        yield Case(
            "test_flash_attn_varlen_output", rows, keys, 6, kv, d, dtype, softcap=cap, packed=True, **more
        )  # fmt: skip
    for (q, k), kv, mask, page, packed, new in product(
        KVCACHE, (6, 3, 1), masks, (0, 128), (False, True), (False, True)
    ):
        if (page and k % page) or (new and (packed or q > k)):
            continue
        if packed and not page:
            continue  # offsets of Q alone, beside a cache without pages
        drawn = _drawn(q, k, kv, mask, page)
        keys = tuple(drawn.randint(q if new else 1, k) for _ in range(5))
        rows, more = _padded(q, 5, kv) if packed else (q,) * 5, _mask(mask, k, kv)
        yield Case(
            "test_flash_attn_kvcache", rows, keys, 6, kv, 128, "bfloat16", page=page, packed=packed,
            cached=not packed, new=q if new else 0, **more,
        )  # fmt: skip


# ---- FlashInfer: pages of 16 rows ------------------------------------------------------------------------------------

INDPTR = (
    ((0, 32, 64, 128, 256), (0, 128, 256, 512, 1024)),
    ((0, 1, 2, 3, 4), (0, 128, 256, 384, 512)),
    ((0, 50, 150, 200), (0, 200, 600, 800)),
    ((0, 100, 200, 400, 600, 1000), (0, 300, 600, 1200, 1800, 3000)),
    ((0, 16, 32, 96, 128), (0, 64, 128, 384, 512)),
)
PAIRS = (  # keys and queries of one batch
    ((146, 146),),
    ((67, 67),),
    ((8190, 7939),),
    ((2048, 1),) * 77,
    ((4099, 129),) * 2,
    ((600, 1),) * 264 + ((5000, 3),) * 128,
    ((1024, 1),) * 100 + ((8192, 17),) * 8,
    ((766, 2),) * 99 + ((1024, 512),),
    ((2, 235), (1, 13353)),
)


def flashinfer() -> Iterator[Case]:
    for batch, k, heads, d in product((12, 17, 128), (54, 97, 512, 2048, 16384), (4, 32), (128, 256)):
        yield Case(
            "test_batch_decode_with_paged_kv_cache", (1,) * batch, (k,) * batch, heads, 4, d, page=16, cached=True
        )
    grid = product((12, 17, 128), (54, 97, 512, 2048), (37, 17, 127, 577), (4, 32), SIZES_OF_HEADS, (False, True))
    for batch, k, q, heads, d, causal in grid:
        if causal and q > k:
            continue
        sizes = ((q,) * batch, (k,) * batch, heads, 4, d)
        yield Case("test_batch_prefill_with_paged_kv_cache", *sizes, causal=causal, page=16, packed=True)
        yield Case("test_batch_prefill_with_ragged_kv_cache", *sizes, causal=causal, packed=True)
    for k, q, heads, d, causal in product(
        (501, 2042, 3771, 4932), (37, 127, 577, 1024), (4, 7), SIZES_OF_HEADS, (True, False)
    ):
        if not causal or q <= k:
            yield Case(
                "test_single_prefill_with_paged_kv_cache", (q,), (k,), heads, 1, d, causal=causal, page=16, packed=True
            )
    yield from _flashinfer_windows()
    yield from _flashinfer_caps_and_sinks()
    for pairs, kv, group, d, causal, dtype, cap in product(
        PAIRS, (1, 4), (1, 4, 7, 8), SIZES_OF_HEADS, (False, True), DTYPES, (0.0, 50.0)
    ):
        keys, rows = zip(*pairs, strict=True)
        yield Case(
            "test_batch_attention_correctness", rows, keys, kv * group, kv, d, dtype, causal, softcap=cap, page=16,
            packed=True,
        )  # fmt: skip


def _flashinfer_windows() -> Iterator[Case]:
    grouped = ((4, 1), (8, 1), (4, 4), (8, 4))
    for k, left, (heads, kv), d in product(
        (1, 3, 19, 99, 199, 1177, 1999), (3, 13, 23, 37, 43), grouped, SIZES_OF_HEADS
    ):
        yield Case("test_single_decode_sliding_window", (1,), (k,), heads, kv, d, window=(left, -1))
    for batch, k, left, (heads, kv), d in product(
        (1, 3, 13, 32), (1, 3, 99, 199, 1999), (33, 533), grouped, SIZES_OF_HEADS
    ):
        yield Case(
            "test_batch_decode_sliding_window", (1,) * batch, (k,) * batch, heads, kv, d, window=(left, -1), page=16,
            cached=True,
        )  # fmt: skip
    for n, left, (heads, kv), d in product((99, 199, 1999), (43, 233), grouped, SIZES_OF_HEADS):
        yield Case("test_single_prefill_sliding_window", (n,), (n,), heads, kv, d, causal=True, window=(left, -1))
    for batch, k, q, left, (heads, kv), d in product(
        (12, 17, 30), (54, 397, 1177), (1, 37, 47), (13, 33, 111), (*grouped, (8, 8)), SIZES_OF_HEADS
    ):
        yield Case(
            "test_batch_paged_prefill_sliding_window", (q,) * batch, (k,) * batch, heads, kv, d, causal=True,
            window=(left, -1), page=16, packed=True,
        )  # fmt: skip
    for batch, k, q, left, (heads, kv), d in product((12, 17), (54, 397), (37, 47), (13, 33), grouped, SIZES_OF_HEADS):
        yield Case(
            "test_batch_ragged_prefill_sliding_window", (q,) * batch, (k,) * batch, heads, kv, d, causal=True,
            window=(left, -1), packed=True,
        )  # fmt: skip


def _flashinfer_caps_and_sinks() -> Iterator[Case]:
    caps = (1.0, 30.0, 50.0)
    for k, heads, d, cap in product((1, 9, 81, 729, 33001), (4, 8, 32), (128, 256), caps):
        yield Case("test_single_decode_logits_soft_cap", (1,), (k,), heads, heads, d, softcap=cap)
    for q, k, heads, d, cap in product((1, 17, 81, 987), (1, 17, 81, 987, 31111), (4, 8, 32), (128, 256), caps):
        yield Case("test_single_prefill_logits_soft_cap", (q,), (k,), heads, heads, d, softcap=cap)
    for dtype, batch, n, kv, left, causal in product(
        DTYPES, (1, 4, 16), (1, 4, 16, 128), (8, 32), (-1, 128), (True, False)
    ):
        window = (left, -1) if left >= 0 else None
        yield Case("test_attention_sink", (n,) * batch, (n,) * batch, 32, kv, 128, dtype, causal, window, sinks=True)
    for dtype, (starts_q, starts_k), kv, left, causal in product(DTYPES, INDPTR, (8, 32), (-1, 128), (True, False)):
        rows, keys = (tuple(b - a for a, b in pairwise(s)) for s in (starts_q, starts_k))
        window = (left, -1) if left >= 0 else None
        yield Case(
            "test_attention_sink_varlen", rows, keys, 32, kv, 128, dtype, causal, window, sinks=True, packed=True
        )
    for n, (heads, kv), causal, d, cap in product(
        (11, 99, 1763, 9999),
        ((1, 1), (4, 1), (8, 1), (4, 4), (8, 4), (8, 8)),
        (False, True),
        SIZES_OF_HEADS,
        (0.0, 30.0),
    ):
        yield Case("test_single_prefill", (n,), (n,), heads, kv, d, causal=causal, softcap=cap)
        for batch in (1, 4, 8, 16):
            if n < 9999:
                sizes = ((n,) * batch, (n,) * batch, heads, kv, d)
                yield Case("test_batch_paged_prefill", *sizes, causal=causal, softcap=cap, page=16, packed=True)
