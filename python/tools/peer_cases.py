"""Problems of the tests of FlashAttention-3, FlashInfer, vLLM and SGLang: shapes and numbers alone.

    for case in all_cases(): case.origin, case.rows, case.keys, case.options
    for case in servers(): case.small()

From hopper/test_flash_attn.py of FlashAttention at 0251105a, tests/attention/ of FlashInfer at fb28d7242,
tests/kernels/attention/ of vLLM at 00df0753, and test/srt/ and sgl-kernel/tests/ of SGLang at 0c74cb49. What they draw
at random is drawn here, by the case. Left out, as no kernel has it: other masks, rotation, padding on the left, a
second pair of Q and V, V with heads of another size, e4m3 with windows. all_cases(), from the first two, also leaves
out heads of other sizes than 64, 128 and 256 and pages of fewer than 16 rows. servers(), from the engines, has these,
because an engine must learn from the message what it cannot use.
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

    def small(self) -> Case:
        """The problem with at most three sequences of 24 queries and 150 keys, and two KV heads."""
        last = slice(-3, None)
        keys = tuple(_shorter(n, 150) for n in self.keys[last])
        rows = tuple(_shorter(n, 24) for n in self.rows[last])
        if self.causal:
            rows = tuple(min(n, k) for n, k in zip(rows, keys, strict=True))
        if self.cached:
            rows = (min(rows),) * len(rows)
        kv_heads = min(2, self.kv_heads)
        window = self.window and (min(self.window[0], 20), self.window[1])
        heads = self.heads // self.kv_heads * kv_heads
        return self._replace(rows=rows, keys=keys, heads=heads, kv_heads=kv_heads, window=window)


def _shorter(n: int, most: int) -> int:
    """At most so many rows, with the remainder by 16 that n has, and no fewer than 1."""
    return n if n <= most else most // 2 // 16 * 16 + (n - 1) % 16 + 1


@cache
def all_cases() -> list[Case]:
    return [*flash_attention_3(), *flashinfer()]


def servers() -> Iterator[Case]:
    yield from vllm()
    yield from sglang()


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
            continue  # offsets of Q alone, with a cache without pages
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


# ---- vLLM: packed queries over pages ---------------------------------------------------------------------------------

MIXED = (((1, 1328), (5, 18), (129, 463)), ((1, 523), (1, 37), (1, 2011)))
DECODED = ((1328, 18, 463), (1, 54, 293, 70))
CASCADES = (
    ((129, 871), (18, 280), (37, 988), (1023, 2304), (1, 257)),
    ((1, 1023), (1, 879), (1, 778), (1, 1777)) * 100,
)
BLOCKS = (16, 32)


def vllm() -> Iterator[Case]:
    yield from _mixed("test_varlen_with_paged_kv", ((4, 4), (8, 2)), (40, 72, 80, 128, 256), (None, 256), (0.0, 50.0))
    yield from _mixed(
        "test_triton_unified_attn", ((4, 4), (8, 2), (5, 1)), (128, 256), (None, 64, 128, 256), (0.0, 50.0)
    )
    yield from _mixed("test_flashinfer_prefill", ((32, 8), (6, 1)), (128, 256), (None, 64), (0.0, 30.0), MIXED[:1])
    yield from _mixed(
        "test_cascade", ((4, 4), (8, 2), (16, 2)), (128, 192, 256), (None,), (0.0, 50.0), CASCADES, DTYPES
    )
    for keys, (heads, kv), d, page, cap, window in product(
        DECODED, ((32, 8), (6, 1)), (128, 256), BLOCKS, (0.0, 30.0), (None, (63, -1))
    ):
        yield Case(
            "test_flashinfer_decode", (1,) * len(keys), keys, heads, kv, d, "bfloat16", window=window, softcap=cap,
            page=page, cached=True,
        )  # fmt: skip
    for (heads, kv), d, page, dtype in product(
        ((32, 8), (40, 40), (64, 8)), (32, 64, 80, 96, 128, 160, 192, 224, 256), BLOCKS, DTYPES
    ):
        drawn = _drawn(heads, d, page)
        keys = tuple(drawn.randint(1, 57600) for _ in range(6))
        yield Case(
            "test_paged_attention", (1,) * 7, (*keys, 57600), heads, kv, d, dtype, page=page, cached=True
        )  # fmt: skip
    for group, d, left in product((1, 64), (24, 128), (None, 15, 2047)):
        drawn = _drawn(group, d)
        rows = (*(drawn.randint(16, 1024) for _ in range(9)), 1)
        keys = tuple(n + drawn.randint(16, 1024) for n in rows)
        window = None if left is None else (left, 0)
        yield Case(
            "test_contexted_kv_attention", rows, keys, 64, 64 // group, d, causal=True, window=window, page=32,
            packed=True,
        )  # fmt: skip
    for batch, heads, d, dtype in product((1, 16), (1, 16), (64, 80), DTYPES):
        yield Case("test_mha_attn_forward", (1,) * batch, (1,) * batch, heads, 1, d, dtype)


def _mixed(
    origin: str,
    heads: tuple[tuple[int, int], ...],
    sizes: tuple[int, ...],
    windows: tuple[int | None, ...],
    caps: tuple[float, ...],
    batches: tuple[tuple[tuple[int, int], ...], ...] = MIXED,
    dtypes: tuple[str, ...] = ("bfloat16",),
) -> Iterator[Case]:
    """Batches of queries and keys over pages of 16 rows, causal; a window counts the query's own key."""
    for batch, (n_heads, kv), d, keys_seen, cap, dtype in product(batches, heads, sizes, windows, caps, dtypes):
        rows, keys = zip(*batch, strict=True)
        window = None if keys_seen is None else (keys_seen - 1, 0)
        yield Case(origin, rows, keys, n_heads, kv, d, dtype, True, window, cap, page=16, packed=True)


# ---- SGLang: its pool has pages of 1 row, or of as many as --page-size says ------------------------------------------

PAGE_SIZES = (1, 16, 64)
OF_13_ROWS_AND_MORE = (128, 96, 80, 13)


def sglang() -> Iterator[Case]:
    for d, page in product(OF_13_ROWS_AND_MORE, PAGE_SIZES):
        drawn = _drawn(d)
        rows = tuple(drawn.randrange(1, 6165) for _ in range(19))
        keys = tuple(n + drawn.randrange(1, 6165) for n in rows)
        yield Case("test_extend_attention", rows, keys, 12, 4, d, "bfloat16", True, page=page, packed=True)
    for d, causal in product(OF_13_ROWS_AND_MORE, (True, False)):
        yield Case("test_context_attention", (8, 12), (8, 12), 4, 4, d, causal=causal, packed=True)
    for (heads, kv, d), page in product(((4, 4, 64), (4, 2, 64), (4, 4, 80), (4, 4, 13)), PAGE_SIZES):
        yield Case("test_decode_attention", (1, 1), (10, 10), heads, kv, d, "bfloat16", page=page, cached=True)
    for keys, (heads, kv, d), page in product(
        (5, 100, 128, 500),
        ((16, 16, 64), (16, 1, 64), (64, 1, 13), (128, 1, 80), (128, 2, 512)),
        PAGE_SIZES,
    ):
        yield Case(
            "test_grouped_decode_attention", (1, 1), (keys, keys), heads, kv, d, "bfloat16", page=page, cached=True
        )
    for q, k in KVCACHE:
        drawn = _drawn(q, k)
        keys = tuple(drawn.randint(1, k) for _ in range(5))
        yield Case("sgl-kernel test_flash_attn_kvcache", (q,) * 5, keys, 6, 6, 64, "bfloat16", cached=True)
