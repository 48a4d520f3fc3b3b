"""Rows of any multiple of 8 elements, and of V with another number: each kernel against float64 on the emulator.

Heads are side by side in memory, so an element too many of a row is the first one of the next head, here a NaN.
"""

from typing import Any

import numpy as np
import pytest
from test_lengths import Case, check_cache, check_ragged_pages, check_varlen, reference, right, sequence

import flashladder

RNG = np.random.default_rng
KERNELS = ["attention/wgmma", "attention/mma_sync"]
SIZES = [8, 40, 72, 80, 104, 112, 136, 160, 200, 248]  # SD has 40, SigLIP 72, ViT-H and Phi-2 80
PAIRS = [(64, 8), (64, 128), (72, 40), (192, 128), (136, 256), (264, 136), (320, 512), (576, 512)]  # MLA: 576 and 512


def case(rng: Any, d_head: int, sizes: list[tuple[int, int]], heads: tuple[int, int], d_v: int, **options: Any) -> Case:
    q = [sequence(rng, n, heads[0], d_head) for n, _ in sizes]
    k, v = ([sequence(rng, n, heads[1], d) for _, n in sizes] for d in (d_head, d_v))
    return Case(q, k, v, options)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(("d_head", "d_v"), [*((d, d) for d in SIZES), *PAIRS])
def test_neighbouring_heads_have_no_effect(d_head: int, d_v: int, kernel: str) -> None:
    rng = RNG(d_head)
    shapes = ((70, d_head), (90, d_head), (90, d_v))
    q, k, v = (rng.standard_normal((1, rows, 3, d)).astype(np.float16) for rows, d in shapes)
    for x in (q, k, v):
        x[:, :, [0, 2]] = np.nan
    o, lse = flashladder.attention(q, k, v, causal=True, version=kernel, return_lse=True)
    expected = reference(q[0, :, 1:2], k[0, :, 1:2], v[0, :, 1:2], {"causal": True})
    right(o[0, :, 1:2], lse[0, 1:2], expected)
    assert np.isnan(o[:, 20:, [0, 2]]).all()


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(("d_head", "d_v"), [(40, 40), (72, 72), (160, 160), *PAIRS])
def test_packed_sequences_windows_caps_and_sinks(d_head: int, d_v: int, kernel: str) -> None:
    rng = RNG(d_head)
    sinks = rng.standard_normal(4).astype(np.float32)
    sizes = [(5, 130), (70, 70), (0, 3), (33, 200)]
    for options in ({"causal": True}, {"window": (37, 20), "softcap": 2.0, "sinks": sinks}):
        check_varlen(case(rng, d_head, sizes, (4, 2), d_v, **options), version=kernel)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    ("d_head", "d_v", "page_rows"),
    [(40, 40, 16), (72, 72, 32), (80, 80, 256), (160, 160, 16), (200, 200, 64),
     (192, 128, 16), (64, 160, 64), (512, 512, 16)],
)  # fmt: skip
def test_pages(d_head: int, d_v: int, page_rows: int, kernel: str) -> None:
    rng = RNG(d_head)
    options = {"causal": True, "softcap": 3.0 if page_rows == 32 else None}
    sequences = case(rng, d_head, [(5, 130), (40, 70), (9, 200)], (2, 1), d_v, **options)
    check_ragged_pages(sequences, rng, page_rows, False, version=kernel)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    ("d_head", "d_v", "page_rows"),
    [(8, 8, 0), (40, 40, 64), (72, 72, 16), (80, 80, 0), (120, 120, 128), (192, 128, 64), (64, 48, 0), (576, 512, 64)],
)
def test_decoding(d_head: int, d_v: int, page_rows: int, kernel: str) -> None:
    rng = RNG(d_head)
    for heads in ((2, 2), (4, 1)):
        sequences = case(rng, d_head, [(3, 170), (3, 1), (3, 333)], heads, d_v, causal=True)
        check_cache(sequences, rng, page_rows, 1, version=kernel, deterministic="batch" if heads[1] == 1 else None)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(("d_head", "d_v"), [(48, 48), (72, 72), (152, 152), (192, 128), (64, 24), (512, 320)])
def test_scores_that_exceed_the_first_maximum(d_head: int, d_v: int, kernel: str) -> None:
    """The kernels compute such a block again, from global memory."""
    rng = RNG(d_head)
    q, k, v = (rng.standard_normal((1, 300, 2, d)).astype(np.float16) for d in (d_head, d_head, d_v))
    k *= np.linspace(30, 0.1, 300).astype(np.float16)[None, :, None, None]
    q[:, :, 1] = k[:, :, 1] = v[:, :, 1] = np.nan
    o, lse = flashladder.attention(q, k, v, version=kernel, return_lse=True)
    right(o[0, :, :1], lse[0, :1], reference(q[0, :, :1], k[0, :, :1], v[0, :, :1], {}))


@pytest.mark.parametrize("version", ["best", "attention/mma_sync"])
@pytest.mark.parametrize(("d_head", "d_v"), [(44, 44), (260, 64), (584, 7), (64, 7), (64, 520)])
def test_other_sizes_are_rejected(d_head: int, d_v: int, version: str) -> None:
    q, v = (np.zeros((1, 4, 2, d), np.float16) for d in (d_head, d_v))
    if version != "best" and d_head == d_v:
        return
    found = flashladder.supports(q, q, v, version=version)
    of_v = "; pad v with zeros" if d_v < 512 else ""
    of_k = "; pad q, k and v with zeros and keep the scale" if d_head < 576 else ""
    what = f"d_head_v {d_v}: {{}} 512{of_v}" if d_head == 64 else f"d_head {d_head}: {{}} 576{of_k}"
    assert not found and found.reason == what.format("must be a multiple of 8 up to")
    assert "only the last axis may differ, d_head" in flashladder.supports(q, q, v[:, :2]).reason


@pytest.mark.parametrize("kernel", KERNELS)
def test_values_are_a_part_of_the_keys(kernel: str) -> None:
    """As in a cache of latent vectors (MLA)."""
    rng = RNG(1)
    lengths = np.array([90, 33], np.int32)
    for rows, heads, d_head, d_v in ((1, 70, 144, 128), (2, 3, 576, 512)):
        q = rng.standard_normal((2, rows, heads, d_head)).astype(np.float16)
        cache = rng.standard_normal((2, 90, 1, d_head)).astype(np.float16)
        cache[1, 33:] = np.nan
        given = {"causal": True, "version": kernel, "return_lse": True}
        o, lse = flashladder.attention_with_cache(q, cache, cache[..., :d_v], lengths, **given)
        for b, n in enumerate(lengths):
            right(o[b], lse[b], reference(q[b], cache[b, :n], cache[b, :n, :, :d_v], {"causal": True}))


def test_few_heads_with_many_keys_take_an_instance_that_splits_them() -> None:
    """Others pack the heads of a group, as where a result must not depend on the batch."""
    for batch, word, more in ((1, "extend", {}), (100, "pack", {}), (1, "pack", {"deterministic": "batch"})):
        q, k = np.zeros((batch, 1, 8, 256), np.float16), np.zeros((batch, 1024, 4, 256), np.float16)
        more |= {"seqlens_k": np.full(batch, 1024, np.int32), "version": "attention/wgmma"}
        assert word in flashladder.supports(q, k, k, **more).config


def test_a_size_takes_the_next_larger_instance() -> None:
    wgmma = ((40, 64), (72, 128), (96, 128), (136, 256), (256, 256), (264, 512), (512, 512))
    for version, d_head, size in (("mma_sync", 96, 96), *(("wgmma", *sizes) for sizes in wgmma)):
        q = np.zeros((1, 100, 2, d_head), np.float16)
        config = flashladder.supports(q, q, q, version=f"attention/{version}").config
        assert (config.startswith(f"(FP16, {size},"), "extend" in config) == (True, d_head < size or size == 512)
    found = flashladder.supports(q, q, q, version="attention/wgmma", dropout_p=0.5, rng_state=np.zeros(2, np.int64))
    assert found.reason.startswith("dropout_p 0.5: attention/wgmma does not support it with d_head 512 and d_head_v")
