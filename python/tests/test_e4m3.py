"""attention_e4m3() on the emulator: NumPy arrays of float8_e4m3fn, scales, both sums, and what is refused."""

from typing import Any

import numpy as np
import pytest

import flashladder
from flashladder import _frameworks

ml_dtypes = pytest.importorskip("ml_dtypes")


def arrays(d_head: int = 128, V_mean: float = 0) -> tuple[Any, Any, Any]:
    """4 heads of 40 queries on 2 of 150 keys."""
    rng = np.random.default_rng(1)
    shapes = ((1, 40, 4, d_head), (1, 150, 2, d_head), (1, 150, 2, d_head))
    q, k, v = (rng.standard_normal(shape).astype(np.float32) for shape in shapes)
    return q, k, v + V_mean


def reference(q: Any, k: Any, v: Any, causal: bool) -> Any:
    k, v = (np.repeat(each, 2, axis=2) for each in (k, v))
    S = np.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(q.shape[3])
    if causal:
        S = np.where(np.tri(40, 150, 110, dtype=bool), S, -np.inf)
    P = np.exp(S - S.max(-1, keepdims=True))
    return np.einsum("bhqk,bkhd->bqhd", P / P.sum(-1, keepdims=True), v)


@pytest.mark.parametrize("d_head", [64, 128, 256])
@pytest.mark.parametrize("accurate", [False, True])
def test_quantised_inputs_come_out_right(d_head: int, accurate: bool) -> None:
    given = arrays(d_head)
    (q, q_scale), (k, k_scale), (v, v_scale) = (flashladder.quantize_e4m3(each) for each in given)
    out, lse = flashladder.attention_e4m3(
        q, k, v, q_scale=q_scale, k_scale=k_scale, v_scale=v_scale, causal=True, accurate=accurate, return_lse=True
    )
    meant = [each.astype(np.float64) * factor[:, None] for each, factor in ((q, q_scale), (k, k_scale), (v, v_scale))]
    exact = reference(meant[0], meant[1], meant[2], True)
    assert out.dtype == ml_dtypes.bfloat16 and lse.shape == (1, 4, 40) and np.isfinite(lse).all()
    assert np.linalg.norm(out.astype(np.float64) - exact) < 0.05 * np.linalg.norm(exact)


def test_a_number_is_the_scale_of_all_heads() -> None:
    q, k, v = (each.astype(ml_dtypes.float8_e4m3fn) for each in arrays())
    once, twice = (flashladder.attention_e4m3(q, k, v, v_scale=factor, dtype="float16") for factor in (None, 2.0))
    assert once.dtype == np.float16 and np.allclose(2 * once.astype(np.float32), twice, 2e-3, 1e-6)


def test_packed_sequences_are_those_alone() -> None:
    """Bytes that belong to no sequence are NaN, and rows of O there 0."""
    q, k, v = (each.astype(ml_dtypes.float8_e4m3fn) for each in arrays())
    nan = np.float32("nan")
    rows, keys = (12, 0, 40), (150, 30, 70)
    lie = [np.full((size, *each.shape[2:]), nan).astype(each.dtype) for size, each in ((55, q), (253, k), (253, v))]
    starts_q, starts_k = (np.cumsum([0, *each]).astype(np.int32) for each in (rows, keys))
    for b in range(3):
        for to, of, starts in zip(lie, (q, k, v), (starts_q, starts_k, starts_k), strict=True):
            to[starts[b] : starts[b + 1]] = of[0, : starts[b + 1] - starts[b]]
    out, lse = flashladder.attention_e4m3(
        *lie, cu_seqlens_q=starts_q, cu_seqlens_k=starts_k, max_seqlen_q=40, max_seqlen_k=150, causal=True,
        return_lse=True,
    )  # fmt: skip
    assert not out[52:].any() and np.isneginf(lse[:, 52:]).all()
    for b in (0, 2):
        one = [each[:, :size] for each, size in ((q, rows[b]), (k, keys[b]), (v, keys[b]))]
        alone, of_alone = flashladder.attention_e4m3(*(each.copy() for each in one), causal=True, return_lse=True)
        here = slice(starts_q[b], starts_q[b + 1])
        assert np.array_equal(out[here].view(np.uint16), alone[0].view(np.uint16))
        assert np.array_equal(lse[:, here], of_alone[0])


def test_padded_sequences_have_their_lengths() -> None:
    q, k, v = (np.repeat(each, 2, axis=0).astype(ml_dtypes.float8_e4m3fn) for each in arrays())
    k[1, 60:] = v[1, 60:] = np.float32("nan")
    out = flashladder.attention_e4m3(q, k, v, seqlens_k=np.array([150, 60], np.int32))
    alone = flashladder.attention_e4m3(q[1:].copy(), k[1:, :60].copy(), v[1:, :60].copy())
    assert np.array_equal(out[1:].view(np.uint16), alone.view(np.uint16))


@pytest.mark.parametrize("accurate", [False, True])
def test_blocks_of_keys_have_scales(accurate: bool) -> None:
    """Keys and values grow along the sequence, so that one scale of a head would leave the first ones little."""
    given = arrays()
    growth = (4.0 ** (np.arange(150) // 64)).astype(np.float32)[:, None, None]
    q, k, v = given[0], given[1] / growth, given[2] * growth
    scales = np.tile(4.0 ** np.arange(3), (2, 2, 1)).astype(np.float32)
    of_values = scales * np.array([1, 2], np.float32)[:, None, None]  # of the second sequence twice as large
    out = flashladder.attention_e4m3(
        *(np.repeat(each, 2, axis=0).astype(ml_dtypes.float8_e4m3fn) for each in given),
        k_scale=1 / scales, v_scale=of_values, scale_keys=64, accurate=accurate,
    )  # fmt: skip
    exact = reference(q.astype(np.float64), k.astype(np.float64), v.astype(np.float64), False)
    for factor, of_sequence in zip((1, 2), out.astype(np.float64), strict=True):
        assert np.linalg.norm(of_sequence - factor * exact[0]) < factor * 0.06 * np.linalg.norm(exact)


def test_nothing_is_written_behind_an_output_of_e4m3(monkeypatch: pytest.MonkeyPatch) -> None:
    q, k, v = (each.astype(ml_dtypes.float8_e4m3fn) for each in arrays(64))
    room = np.full(2 * q.size, 7, np.uint8)
    out = room[: q.size].view(ml_dtypes.float8_e4m3fn).reshape(q.shape)
    monkeypatch.setattr(_frameworks.NumPy, "results", lambda *_: (out, None))
    flashladder.attention_e4m3(q, k, v, dtype="float8_e4m3fn")
    assert (room[: q.size] != 7).mean() > 0.5 and (room[q.size :] == 7).all()


def test_the_output_is_e4m3() -> None:
    """Rounded once more than bf16, after a division by the scale of its head; what is too large becomes 448."""
    q, k, v = (each.astype(ml_dtypes.float8_e4m3fn) for each in arrays(64))
    o_scale = np.array([0.01, 0.02, 0.04, 1e-5], np.float32)
    wide = flashladder.attention_e4m3(q, k, v).astype(np.float32)
    out = flashladder.attention_e4m3(q, k, v, o_scale=o_scale, dtype="float8_e4m3fn")
    assert out.dtype == ml_dtypes.float8_e4m3fn
    got = out.astype(np.float32) * o_scale[:, None]
    assert np.linalg.norm((got - wide)[:, :, :3]) < 0.04 * np.linalg.norm(wide[:, :, :3])
    assert np.abs(out[:, :, 3].astype(np.float32)).max() == 448


TO_E4M3: dict[str, Any] = {"dtype": "float8_e4m3fn"}
POSITIVE = "must be positive and finite"


@pytest.mark.parametrize(
    ("change", "error", "sentence"),
    [
        ({"k_scale": 0}, ValueError, "k_scale is 0"),
        ({"v_scale": float("nan")}, ValueError, "v_scale is nan"),
        ({"q_scale": np.float32([1, 1, -1, 1])}, ValueError, rf"q_scale\[2\] -1: {POSITIVE}"),
        ({"window": (3, 0)}, TypeError, "window"),
        ({"o_scale": 1.0}, ValueError, "o_scale is for O of float8_e4m3fn: dtype is 'bfloat16'"),
        (TO_E4M3 | {"o_scale": float("inf")}, ValueError, "o_scale is inf"),
        (TO_E4M3 | {"o_scale": np.float32([1, -1, 1, 1])}, ValueError, rf"o_scale\[1\] -1: {POSITIVE}"),
        ({"scale_keys": 48}, ValueError, "scale_keys 48: must be 0 or a power of two, 32 or more"),
        ({"scale_keys": 64, "k_scale": 1.0}, ValueError, "with scale_keys an array"),
        ({"scale_keys": 64, "k_scale": np.ones((1, 2, 2), np.float32)}, ValueError, r"\(1, 2, 3\) is needed"),
        (
            {"scale_keys": 64, "v_scale": np.float32([[[1, 1, 1], [1, -1, 1]]])},
            ValueError,
            rf"v_scale\[4\] -1: {POSITIVE}",
        ),
        ({"cu_seqlens_q": np.array([0, 40], np.int32)}, TypeError, "pass both or neither"),
    ],
)
def test_what_is_wrong_is_said(change: dict[str, Any], error: type[Exception], sentence: str) -> None:
    q, k, v = (each.astype(ml_dtypes.float8_e4m3fn) for each in arrays())
    with pytest.raises(error, match=sentence):
        flashladder.attention_e4m3(q, k, v, **change)


def test_another_size_of_heads_is_refused() -> None:
    q, k, v = (each[..., :32].astype(ml_dtypes.float8_e4m3fn) for each in arrays())
    with pytest.raises(NotImplementedError, match="d_head 32: the kernels of this library support 64, 128"):
        flashladder.attention_e4m3(q, k, v)
