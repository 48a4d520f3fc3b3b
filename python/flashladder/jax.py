"""Attention for JAX, inside and outside jax.jit: a foreign function of XLA that is part of libflashladder.so.

    from flashladder.jax import attention

    out = jax.jit(lambda q, k, v: attention(q, k, v, causal=True))(q, k, v)  # [batch, seq, heads, d_head]

On a GPU the launch goes into XLA's stream, on the CPU the arrays are taken where they lie. No compiler of ours runs and
nothing is copied. There is no derivative. jax.vmap calls the kernel once for each element.
"""

from __future__ import annotations

from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from flashladder import _call
from flashladder._library import LIBRARY

TARGET = "flashladder_attention"
HANDLERS = {"CUDA": LIBRARY.fl_xla_ffi_attention, "cpu": LIBRARY.fl_xla_ffi_attention_host}
DTYPES = (jnp.float16, jnp.bfloat16)
NO_DERIVATIVE = "flashladder has no derivative: keep it outside of jax.grad, or behind jax.lax.stop_gradient"

for _platform, _handler in HANDLERS.items():
    jax.ffi.register_ffi_target(TARGET, jax.ffi.pycapsule(_handler), platform=_platform)


def _forward(q: Any, k: Any, v: Any, causal: bool, scale: float, return_lse: bool, version: str) -> Any:
    results = [jax.ShapeDtypeStruct(q.shape, q.dtype)]
    if return_lse:
        batch, rows, heads, _ = q.shape
        results.append(jax.ShapeDtypeStruct((batch, heads, rows), jnp.float32))
    call = jax.ffi.ffi_call(TARGET, results, vmap_method="sequential")
    return call(q, k, v, causal=np.int32(causal), scale=np.float32(scale), version=version)


def _no_derivative(*arguments: Any) -> None:
    raise NotImplementedError(NO_DERIVATIVE)


_underived = jax.custom_jvp(_forward, nondiff_argnums=(3, 4, 5, 6))
_underived.defjvp(_no_derivative)
_compiled = jax.jit(_underived, static_argnums=(3, 4, 5, 6))


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
