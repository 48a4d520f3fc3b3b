"""The foreign function for JAX, on the CPU: in and out of jit, under vmap, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flashladder

jax: Any = pytest.importorskip("jax", reason="JAX is not installed, and make check does without it")
jnp: Any = jax.numpy
from flashladder.jax import attention  # noqa: E402


def arrays(dtype: Any = None) -> Any:
    random = np.random.default_rng(0)
    shapes = [(1, 24, 2, 64), (1, 40, 1, 64), (1, 40, 1, 64)]
    return [jnp.asarray(random.standard_normal(shape), dtype or jnp.bfloat16) for shape in shapes]


def reference(q: Any, k: Any, v: Any, causal: bool) -> tuple[Any, Any]:
    q, k, v = (np.asarray(array, np.float64) for array in (q, k, v))
    k, v = (np.repeat(array, q.shape[2] // k.shape[2], axis=2) for array in (k, v))
    scores = np.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(q.shape[3])
    if causal:
        rows, keys = scores.shape[2:]
        scores = np.where(np.tri(rows, keys, keys - rows, dtype=bool), scores, -np.inf)
    lse = np.log(np.exp(scores).sum(-1))
    return np.einsum("bhqk,bkhd->bqhd", np.exp(scores - lse[..., None]), v), lse


def agrees(out: Any, expected: Any) -> bool:
    allowed = 3 * float(jnp.finfo(out.dtype).eps) * np.abs(expected).max(-1, keepdims=True)
    return bool((np.abs(np.asarray(out, np.float64) - expected) <= allowed).all())


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_one_call_and_a_compiled_program_agree(dtype: str, causal: bool) -> None:
    q, k, v = arrays(dtype)
    expected, expected_lse = reference(q, k, v, causal)
    out, lse = attention(q, k, v, causal=causal, return_lse=True)
    assert agrees(out, expected)
    np.testing.assert_allclose(np.asarray(lse), expected_lse, atol=1e-4)
    compiled = jax.jit(lambda q, k, v: attention(q, k, v, causal=causal) * 2)(q, k, v)
    assert (compiled == out * 2).all()


def test_the_package_takes_arrays_of_jax() -> None:
    q, k, v = arrays()
    out = flashladder.attention(q, k, v, causal=True)
    assert isinstance(out, jax.Array) and (out == attention(q, k, v, causal=True)).all()
    assert flashladder.supports(q, k, v)


@pytest.mark.parametrize("causal", [False, True])
def test_gradients_are_those_of_float64(causal: bool) -> None:
    q, k, v = arrays("float16")
    out, pull = jax.vjp(lambda q, k, v: attention(q, k, v, causal=causal), q, k, v)
    dout = jnp.asarray(np.random.default_rng(1).standard_normal(out.shape), out.dtype)
    found = pull(dout)
    Q, K, V, dO = (np.asarray(array, np.float64).transpose(0, 2, 1, 3) for array in (q, k, v, dout))
    scores = Q @ K.transpose(0, 1, 3, 2) / 8
    if causal:
        scores = np.where(np.tri(24, 40, 16, dtype=bool), scores, -np.inf)
    P = np.exp(scores - scores.max(-1, keepdims=True))
    P /= P.sum(-1, keepdims=True)
    dS = P * (dO @ V.transpose(0, 1, 3, 2) - (dO * (P @ V)).sum(-1, keepdims=True)) / 8
    by_key = [(one.transpose(0, 1, 3, 2) @ rows).sum(1, keepdims=True) for one, rows in ((dS, Q), (P, dO))]
    for gradient, expected in zip(found, (dS @ K, *by_key), strict=True):
        difference = np.asarray(gradient, np.float64).transpose(0, 2, 1, 3) - expected
        assert np.linalg.norm(difference) < 1.2 * 2**-11 * np.linalg.norm(expected)


def test_a_gradient_inside_jit() -> None:
    q, k, v = arrays()

    def loss(q: Any) -> Any:
        return (attention(q, k, v).astype(jnp.float32) ** 2).sum()

    assert (jax.jit(jax.grad(loss))(q) == jax.grad(loss)(q)).all()
    with pytest.raises(RuntimeError, match="d_head 256: attention/backward is for 64, 128"):
        wide = jnp.zeros((1, 8, 1, 256), jnp.float16)
        jax.block_until_ready(jax.grad(lambda q: attention(q, wide, wide).sum())(wide))


def test_vmap_is_a_call_for_each() -> None:
    q, k, v = arrays()
    many = jax.vmap(lambda q: attention(q, k, v))(jnp.stack([q, q * 2]))
    assert (many[1] == attention(q * 2, k, v)).all()


def test_errors_say_what_is_wrong() -> None:
    q, k, v = arrays()
    with pytest.raises(ValueError, match="3 dimensions"):
        attention(q[0], k, v)
    with pytest.raises(ValueError, match="float32"):
        attention(q.astype(jnp.float32), k, v)
    with pytest.raises(ValueError, match="float16"):
        attention(q, k.astype(jnp.float16), v)
    with pytest.raises(ValueError, match="one shape"):
        attention(q, k, v[:, :30])
    with pytest.raises(ValueError, match="scale"):
        attention(q, k, v, scale=-1.0)
    with pytest.raises(TypeError, match="causal is 'no'"):
        attention(q, k, v, causal="no")
    with pytest.raises(RuntimeError, match="40"):
        jax.block_until_ready(attention(*(array[..., :40] for array in (q, k, v))))
    with pytest.raises(RuntimeError, match="v99"):
        jax.block_until_ready(attention(q, k, v, version="v99"))
