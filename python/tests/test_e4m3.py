"""attention_e4m3() on the emulator: NumPy arrays of float8_e4m3fn, scales, both sums, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flashladder

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


@pytest.mark.parametrize("d_head", [64, 128])
@pytest.mark.parametrize("accurate", [False, True])
def test_quantised_inputs_come_out_right(d_head: int, accurate: bool) -> None:
    given = arrays(d_head)
    (q, q_scale), (k, k_scale), (v, v_scale) = (flashladder.quantize_e4m3(each) for each in given)
    out, lse = flashladder.attention_e4m3(
        q, k, v, q_scale=q_scale, k_scale=k_scale, v_scale=v_scale, causal=True, accurate=accurate, return_lse=True
    )
    exact = reference(
        *(each.astype(np.float64) * factor[:, None] for each, factor in ((q, q_scale), (k, k_scale), (v, v_scale))),
        True,
    )
    assert out.dtype == ml_dtypes.bfloat16 and lse.shape == (1, 4, 40) and np.isfinite(lse).all()
    assert np.linalg.norm(out.astype(np.float64) - exact) < 0.05 * np.linalg.norm(exact)


def test_a_number_is_the_scale_of_all_heads() -> None:
    q, k, v = (each.astype(ml_dtypes.float8_e4m3fn) for each in arrays())
    once, twice = (flashladder.attention_e4m3(q, k, v, v_scale=factor, dtype="float16") for factor in (None, 2.0))
    assert once.dtype == np.float16 and np.allclose(2 * once.astype(np.float32), twice, 2e-3, 1e-6)


@pytest.mark.parametrize(
    ("change", "error", "sentence"),
    [
        ({"k_scale": 0}, ValueError, "k_scale is 0"),
        ({"v_scale": float("nan")}, ValueError, "v_scale is nan"),
        (
            {"q_scale": np.array([1, 1, -1, 1], np.float32)},
            ValueError,
            r"q_scales\[2\] -1: must be positive and finite",
        ),
        ({"q_scale": np.ones(3, np.float32)}, ValueError, r"q_scales has the shape \(3,\): \(4,\) is needed"),
        ({"dtype": "float32"}, ValueError, "bfloat16 or float16 is needed"),
        ({"accurate": "no"}, TypeError, "accurate is 'no': True or False is needed"),
        ({"window": (3, 0)}, TypeError, "window"),
    ],
)
def test_what_is_wrong_is_said(change: dict[str, Any], error: type[Exception], sentence: str) -> None:
    q, k, v = (each.astype(ml_dtypes.float8_e4m3fn) for each in arrays())
    with pytest.raises(error, match=sentence):
        flashladder.attention_e4m3(q, k, v, **change)


def test_other_types_and_sizes_are_refused() -> None:
    q, k, v = (each.astype(ml_dtypes.float8_e4m3fn) for each in arrays())
    with pytest.raises(ValueError, match="k is float16: float8_e4m3fn is needed"):
        flashladder.attention_e4m3(q, k.astype(np.float16), v)
    with pytest.raises(NotImplementedError, match="d_head 32: the versions of this library are for 64, 128"):
        flashladder.attention_e4m3(q[..., :32].copy(), k[..., :32].copy(), v[..., :32].copy())
