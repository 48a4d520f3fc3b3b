"""Attention for JAX, inside and outside jax.jit: a foreign function of XLA that is part of libflashladder.so.

    from flashladder.jax import attention

    out = jax.jit(lambda q, k, v: attention(q, k, v, causal=True))(q, k, v)  # [batch, seq, heads, d_head]

On a GPU the launch goes into XLA's stream, on the CPU the arrays are taken where they lie. No compiler of ours runs and
nothing is copied. jax.vmap calls the kernel once for each element.

jax.grad and jax.vjp differentiate it by q, k and v where d_head is 64 or 128, on an H100 or H200 or the CPU.
Log-sum-exp has no derivative, and there is no forward mode.
"""

from __future__ import annotations

from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from flashladder import _call
from flashladder._library import LIBRARY

TARGET, BACKWARD = "flashladder_attention", "flashladder_backward"
HANDLERS = {
    (TARGET, "CUDA"): LIBRARY.fl_xla_ffi_attention,
    (TARGET, "cpu"): LIBRARY.fl_xla_ffi_attention_host,
    (BACKWARD, "CUDA"): LIBRARY.fl_xla_ffi_backward,
    (BACKWARD, "cpu"): LIBRARY.fl_xla_ffi_backward_host,
}
DTYPES = (jnp.float16, jnp.bfloat16)

for (_target, _platform), _handler in HANDLERS.items():
    jax.ffi.register_ffi_target(_target, jax.ffi.pycapsule(_handler), platform=_platform)


def _forward(q: Any, k: Any, v: Any, causal: bool, scale: float, return_lse: bool, version: str) -> Any:
    results = [jax.ShapeDtypeStruct(q.shape, q.dtype)]
    if return_lse:
        batch, rows, heads, _ = q.shape
        results.append(jax.ShapeDtypeStruct((batch, heads, rows), jnp.float32))
    call = jax.ffi.ffi_call(TARGET, results, vmap_method="sequential")
    return call(q, k, v, causal=np.int32(causal), scale=np.float32(scale), version=version)


def _keep(q: Any, k: Any, v: Any, causal: bool, scale: float, return_lse: bool, version: str) -> Any:
    """The results, and what the backward pass reads."""
    out, lse = _forward(q, k, v, causal, scale, True, version)
    return [out, lse] if return_lse else [out], (q, k, v, out, lse)


def _workspace_words(batch: int, rows: int, heads: int, d_head: int) -> int:
    """float32 of the workspace, as fl_query_backward() says: of blocks of 64 rows sums, log-sum-exp, delta, turns."""
    blocks = batch * heads * -(-rows // 64)
    return blocks * 64 * (d_head + 2) + -(-blocks // 4) * 4


def _backward(causal: bool, scale: float, return_lse: bool, version: str, kept: Any, cotangents: Any) -> Any:
    q, k, v, out, lse = kept
    results = [jax.ShapeDtypeStruct(one.shape, one.dtype) for one in (q, k, v)]
    batch, rows, heads, d_head = q.shape
    results.append(jax.ShapeDtypeStruct((_workspace_words(batch, rows, heads, d_head),), jnp.float32))
    call = jax.ffi.ffi_call(BACKWARD, results, vmap_method="sequential")
    arguments = cotangents[0], q, k, v, out, lse
    return tuple(call(*arguments, causal=np.int32(causal), scale=np.float32(scale), version=version)[:3])


_differentiable = jax.custom_vjp(_forward, nondiff_argnums=(3, 4, 5, 6))
_differentiable.defvjp(_keep, _backward)
_compiled = jax.jit(_differentiable, static_argnums=(3, 4, 5, 6))


def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    causal: bool = False,
    scale: float | None = None,
    return_lse: bool = False,
    version: str = "best",
    **unknown: NoReturn,
) -> Any:
    """softmax(scale · QKᵀ) V of [batch, seq, heads, d_head]; with return_lse also log-sum-exp [batch, heads, seq_q].

    K and V may have fewer heads and another length. The causal mask is aligned to the bottom right: row i of Q sees the
    keys up to i + seq_k - seq_q. What no kernel computes is refused when the call runs: jax.errors.JaxRuntimeError.
    """
    if unknown:
        _call.refuse_unknown("attention", ("causal", "scale", "return_lse", "version"), unknown)
    causal, scale, return_lse, version = _call.options(causal, scale, return_lse, version)
    _call.check_arrays(q, k, v, DTYPES)
    out, *lse = _compiled(q, k, v, causal, _call.scale_of(scale), return_lse, version)
    return (out, lse[0]) if return_lse else out
