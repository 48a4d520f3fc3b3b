"""Arguments that callers have in other forms than the kernels read: each gives the result of the plain form."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import flashladder

HALF = np.float16


def random(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(HALF)


Q, K, V = (random(1, rows, 2, 64, seed=rows) for rows in (3, 40, 41))
V = V[:, :40]


def test_the_stride_of_an_axis_of_size_1_is_not_read() -> None:
    column = np.array([[33, 2, 7]], np.int32)[:, 0]
    assert column.strides == (12,)
    expected = flashladder.attention(Q, K, V, seqlens_k=np.array([33], np.int32))
    assert np.array_equal(flashladder.attention(Q, K, V, seqlens_k=column), expected)
    assert np.array_equal(flashladder.attention_with_cache(Q, K, V, column), expected)


@pytest.mark.parametrize("batch", [1, 2])
def test_a_block_table_may_be_a_slice_of_a_wider_one(batch: int) -> None:
    pages = [each.reshape(-1, 16, 2, 64) for each in (random(1, 48, 2, 64), random(1, 48, 2, 64, seed=1))]
    wide = np.full((batch, 100), -1, np.int32)
    wide[:, :2] = [[0, 1], [2, 0]][:batch]
    lengths = np.array([32, 20][:batch], np.int32)
    q = np.repeat(Q, batch, axis=0)
    expected = flashladder.attention_with_cache(q, *pages, lengths, wide[:, :2].copy())
    assert np.array_equal(flashladder.attention_with_cache(q, *pages, lengths, wide[:, :2]), expected)


def test_a_length_may_be_one_number() -> None:
    q, k, v = (np.repeat(each, 2, axis=0) for each in (Q, K, V))
    expected = flashladder.attention(q, k, v, seqlens_k=np.array([20, 20], np.int32))
    assert np.array_equal(flashladder.attention(q, k, v, seqlens_k=20), expected)
    assert np.array_equal(flashladder.attention_with_cache(q, k, v, 20), expected)


@pytest.mark.parametrize("dtype", [HALF, ml_dtypes.bfloat16])
def test_sinks_may_have_16_bits(dtype: Any) -> None:
    sinks = np.array([0.5, -1.25])
    expected = flashladder.attention(Q, K, V, sinks=sinks.astype(np.float32))
    assert np.array_equal(flashladder.attention(Q, K, V, sinks=sinks.astype(dtype)), expected)


@pytest.mark.parametrize("scale", [-0.5, 0, -0.0])
def test_a_scale_may_be_0_or_negative(scale: float) -> None:
    s = np.einsum("bihd,bjhd->bhij", Q.astype(float), K.astype(float)) * scale
    p = np.exp(s - s.max(-1, keepdims=True))
    expected = np.einsum("bhij,bjhd->bihd", p / p.sum(-1, keepdims=True), V.astype(float))
    o, lse = flashladder.attention(Q, K, V, scale=scale, return_lse=True)
    np.testing.assert_allclose(o, expected, atol=4e-3)
    np.testing.assert_allclose(lse, np.log(np.exp(s).sum(-1)), atol=4e-3)
    length = np.array([40], np.int32)
    np.testing.assert_allclose(flashladder.attention_with_cache(Q, K, V, length, scale=scale), expected, atol=4e-3)
    starts = [np.array([0, rows], np.int32) for rows in (3, 40)]
    packed = flashladder.attention_varlen(Q[0], K[0], V[0], *starts, 3, 40, scale=scale)
    np.testing.assert_allclose(packed, expected[0], atol=4e-3)


def test_sequences_may_all_be_empty() -> None:
    q = random(4, 2, 64)
    nothing = np.zeros(3, np.int32)
    o, lse = flashladder.attention_varlen(q, q, q, nothing, nothing, 0, 0, return_lse=True)
    assert not o.any() and np.isneginf(lse).all()


def test_rows_of_no_sequence_are_0() -> None:
    """They would hold whatever the memory of the result held before."""
    q = random(300, 2, 64)
    starts = np.array([0, 40, 100], np.int32)
    for _ in range(5):
        old = np.full(q.shape, np.nan, HALF)
        del old
        o, lse = flashladder.attention_varlen(q, q, q, starts, starts, 60, 60, return_lse=True)
        assert not o[100:].any() and np.isneginf(lse[:, 100:]).all()
        assert o[:100].any(axis=(1, 2)).all()
