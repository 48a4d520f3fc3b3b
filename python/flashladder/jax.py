"""Attention for JAX, inside and outside jax.jit: a foreign function of XLA that is part of libflashladder.so.

    from flashladder.jax import attention

    out = jax.jit(lambda q, k, v: attention(q, k, v, causal=True))(q, k, v)  # [batch, seq, heads, d_head]

On a GPU the launch goes into XLA's stream, on the CPU the arrays are taken where they lie. No compiler of ours runs and
nothing is copied. jax.vmap calls the kernel once for each element.

attention_varlen and attention_with_cache have the arguments of the package's, but seqlens_q, out, stream, scales of
e4m3 and new rows: arrays of JAX do not change, so those are written with .at[].set() before. On a GPU these and
windows, lengths, sinks and soft caps need compute capability 9.0, and have no gradients.

jax.grad and jax.vjp differentiate attention by q, k and v with d_head 64, 128 and 256, on an H100 or H200 or a CPU.
Log-sum-exp has no derivative, and there is no forward mode.
"""

from __future__ import annotations

from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from flashladder import _call, _serving
from flashladder._library import ARRAYS, LIBRARY

TARGET, BACKWARD, SERVE = "flashladder_attention", "flashladder_backward", "flashladder_serve"
HANDLERS = {
    (TARGET, "CUDA"): LIBRARY.fl_xla_ffi_attention,
    (TARGET, "cpu"): LIBRARY.fl_xla_ffi_attention_host,
    (SERVE, "CUDA"): LIBRARY.fl_xla_ffi_serve,
    (SERVE, "cpu"): LIBRARY.fl_xla_ffi_serve_host,
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


# ---- several lengths, caches, windows, sinks and soft caps -----------------------------------------------------------


def _served(q: Any, k: Any, v: Any, arrays: dict[str, Any], chosen: _serving.Options, most: tuple[int, int]) -> Any:
    """O and log-sum-exp. Rows behind the used ones are not written: they become 0 and -infinity."""
    names = [name for name in ARRAYS if name in arrays]
    rows, heads = q.shape[-3:-1]
    results = [
        jax.ShapeDtypeStruct(q.shape, q.dtype),
        jax.ShapeDtypeStruct((*q.shape[:-3], heads, rows), jnp.float32),
    ]
    left, right = (min(side, 1 << 30) for side in chosen.window or (-1, -1))
    numbers = {
        "causal": chosen.causal,
        "arrays": sum(1 << ARRAYS.index(name) for name in names),
        "seq_q": most[0],
        "seq_k": most[1],
        "windowed": chosen.window is not None,
        "window_left": left if chosen.window else 0,
        "window_right": right if chosen.window else 0,
        "split_keys": _serving.SPLIT_KEYS if chosen.batch_invariant else 0,
    }
    call = jax.ffi.ffi_call(SERVE, results, vmap_method="sequential")
    out, lse = call(
        q,
        k,
        v,
        *(arrays[name] for name in names),
        **{name: np.int32(number) for name, number in numbers.items()},
        scale=np.float32(_call.scale_of(chosen.scale)),
        softcap=np.float32(chosen.softcap),
        version=chosen.version,
    )
    if "seqlens_q" not in arrays:
        return out, lse
    used = jnp.arange(rows) < arrays["seqlens_q"][:, None]
    return jnp.where(used[:, :, None, None], out, 0), jnp.where(used[:, None], lse, -jnp.inf)


_compiled_served = jax.jit(_served, static_argnums=(4, 5))


def _serve(
    q: Any, k: Any, v: Any, arrays: dict[str, Any], chosen: _serving.Options, most: tuple[int, int] = (0, 0)
) -> Any:
    for name, array in arrays.items():
        dtype = jnp.float32 if name == "sinks" else jnp.int32
        if array.dtype != dtype:
            raise ValueError(f"{name} is {array.dtype}: {np.dtype(dtype)} is needed")
    out, lse = _compiled_served(q, k, v, arrays, chosen, most)
    return (out, lse) if chosen.return_lse else out


def attention_varlen(
    q: Any,
    k: Any,
    v: Any,
    cu_seqlens_q: Any,
    cu_seqlens_k: Any,
    max_seqlen_q: int,
    max_seqlen_k: int,
    *,
    seqlens_k: Any = None,
    block_table: Any = None,
    causal: bool = False,
    scale: float | None = None,
    window: tuple[int, int] | None = None,
    softcap: float | None = None,
    sinks: Any = None,
    deterministic: Any = None,
    return_lse: bool = False,
    version: str = "best",
) -> Any:
    """flashladder.attention_varlen: [tokens, heads, d_head]. Rows of q that belong to no sequence are not written."""
    chosen = _serving.options(causal, scale, window, softcap, deterministic, return_lse, version)
    if (q.ndim, k.ndim, v.ndim) != ((3, 3, 3) if block_table is None else (3, 4, 4)):
        raise ValueError(
            f"q, k and v must have three dimensions, {_serving.PACKED}, or k and v four in pages, {_serving.PAGED}"
        )
    arrays, most = _serving.packed(
        cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, None, seqlens_k, block_table, sinks
    )
    return _serve(q, k, v, arrays, chosen, most)


def attention_with_cache(
    q: Any,
    k_cache: Any,
    v_cache: Any,
    seqlens_k: Any,
    block_table: Any = None,
    *,
    causal: bool = False,
    scale: float | None = None,
    window: tuple[int, int] | None = None,
    softcap: float | None = None,
    sinks: Any = None,
    deterministic: Any = None,
    return_lse: bool = False,
    version: str = "best",
) -> Any:
    """flashladder.attention_with_cache of 16-bit caches that hold the new rows already."""
    chosen = _serving.options(causal, scale, window, softcap, deterministic, return_lse, version)
    if any(array.ndim != 4 for array in (q, k_cache, v_cache)):
        raise ValueError("q, k_cache and v_cache must have four dimensions")
    arrays = _serving.present(seqlens_k=seqlens_k, block_table=block_table, sinks=sinks)
    return _serve(q, k_cache, v_cache, arrays, chosen)


# ---- whole sequences -------------------------------------------------------------------------------------------------

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
    window: tuple[int, int] | None = None,
    softcap: float | None = None,
    sinks: Any = None,
    seqlens_k: Any = None,
    seqlens_q: Any = None,
    deterministic: Any = None,
    return_lse: bool = False,
    version: str = "best",
    **unknown: NoReturn,
) -> Any:
    """softmax(scale · QKᵀ) V of [batch, seq, heads, d_head]; with return_lse also log-sum-exp [batch, heads, seq_q].

    K and V may have fewer heads and another length. The causal mask is aligned to the bottom right: row i of Q sees the
    keys up to i + seq_k - seq_q. What no kernel computes is refused when the call runs: jax.errors.JaxRuntimeError.
    """
    if unknown:
        _call.refuse_unknown("attention", _serving.OPTIONS, unknown)
    _call.check_arrays(q, k, v, DTYPES)
    if any(one is not None for one in (window, softcap, sinks, seqlens_k, seqlens_q, deterministic)):
        chosen = _serving.options(causal, scale, window, softcap, deterministic, return_lse, version)
        return _serve(q, k, v, _serving.present(seqlens_k=seqlens_k, seqlens_q=seqlens_q, sinks=sinks), chosen)
    causal, scale, return_lse, version = _call.options(causal, scale, return_lse, version)
    out, *lse = _compiled(q, k, v, causal, _call.scale_of(scale), return_lse, version)
    return (out, lse[0]) if return_lse else out
