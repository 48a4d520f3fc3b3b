"""Attention for JAX, inside and outside jax.jit: a foreign function of XLA that is part of libflashladder.so.

    from flashladder.jax import attention

    out = jax.jit(lambda q, k, v: attention(q, k, v, causal=True))(q, k, v)  # [batch, seq, heads, d_head]

On a GPU the launch goes into XLA's stream, on the CPU the arrays are taken where they lie. No compiler of ours runs and
nothing is copied. jax.vmap calls the kernel once for each element.

attention_varlen and attention_with_cache have the arguments of the package's, but seqlens_q, out, stream and new rows:
arrays of JAX do not change, so those are written with .at[].set() before. k and v, or the caches, may be of
float8_e4m3fn, as quantize_e4m3 makes them; attention_e4m3 takes q of it, too. On a GPU these and windows, lengths,
sinks and soft caps need compute capability 9.0; packed sequences alone have gradients.

jax.grad and jax.vjp differentiate attention by q, k and v with d_head 64, 128 and 256, on an H100 or H200 or a CPU.
Log-sum-exp has no derivative, and there is no forward mode.
"""

from __future__ import annotations

from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from flashladder._call import PACKED, PAGED, SPLIT_KEYS, made_for, packed, present, refuse_scales
from flashladder._library import ARRAYS, LIBRARY
from flashladder._options import (
    OF_E4M3,
    OPTIONS,
    Options,
    number_of_scale,
    options,
    options_of_e4m3,
    positive_scale,
    refuse_unknown,
    scale_of,
    size,
)
from flashladder._quantize import quantize_e4m3 as quantize_e4m3

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


def _workspace_words(blocks: int, d_head: int) -> int:
    """float32 of the workspace, as fl_query_backward() says: of blocks of 64 rows sums, log-sum-exp, delta, turns."""
    return blocks * 64 * (d_head + 2) + -(-blocks // 4) * 4 + 4


def _backward(causal: bool, scale: float, return_lse: bool, version: str, kept: Any, cotangents: Any) -> Any:
    def attend(q: Any, k: Any, v: Any) -> Any:
        return _forward(q, k, v, causal, scale, False, version)[0]

    def gradients(dout: Any, *tensors: Any) -> Any:
        return _gradients(dout, tensors, causal, scale, version)

    return _with_lse(kept, cotangents, scale, attend, gradients)


def _with_lse(kept: Any, cotangents: Any, scale: float, attend: Any, gradients: Any) -> tuple[Any, Any, Any]:
    """dq, dk and dv. Log-sum-exp, where it was returned, adds scale · dlse · attention(q, k, k) to dq, and to dk what
    a backward pass with dout = scale · dlse · q gives for v."""
    q, k, v, out, lse = kept
    dq, dk, dv = gradients(cotangents[0], q, k, v, out, lse)
    if len(cotangents) > 1:
        weight = jnp.swapaxes(cotangents[1], -1, -2)[..., None] * (scale or q.shape[-1] ** -0.5)
        means = attend(q, k, k)
        dq += (weight * means).astype(q.dtype)
        dk += gradients((weight * q).astype(q.dtype), q, k, k, means, lse)[2]
    return dq, dk, dv


def _gradients(dout: Any, tensors: Any, causal: bool, scale: float, version: str) -> tuple[Any, Any, Any]:
    q, k, v, out, lse = tensors
    results = [jax.ShapeDtypeStruct(one.shape, one.dtype) for one in (q, k, v)]
    batch, rows, heads, d_head = q.shape
    words = _workspace_words(batch * heads * -(-rows // 64), d_head)
    results.append(jax.ShapeDtypeStruct((words,), jnp.float32))
    call = jax.ffi.ffi_call(BACKWARD, results, vmap_method="sequential")
    return tuple(call(dout, q, k, v, out, lse, causal=np.int32(causal), scale=np.float32(scale), version=version)[:3])


# ---- several lengths, caches, windows, sinks and soft caps -----------------------------------------------------------


def _served(
    q: Any,
    k: Any,
    v: Any,
    arrays: dict[str, Any],
    chosen: Options,
    most: tuple[int, int],
) -> Any:
    """O and log-sum-exp. Rows behind the used ones are not written: they become 0 and -infinity."""
    names = [name for name in ARRAYS if name in arrays]
    rows, heads = q.shape[-3:-1]
    results = [
        jax.ShapeDtypeStruct(q.shape, getattr(jnp, chosen.dtype) if chosen.dtype else q.dtype),
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
        "split_keys": SPLIT_KEYS if chosen.batch_invariant else 0,
    }
    if chosen.dtype:
        numbers |= {"sums": chosen.accurate, "scale_keys": chosen.scale_keys}
    call = jax.ffi.ffi_call(SERVE, results, vmap_method="sequential")
    out, lse = call(
        q,
        k,
        v,
        *(arrays[name] for name in names),
        **{name: np.int32(number) for name, number in numbers.items()},
        scale=np.float32(scale_of(chosen.scale)),
        softcap=np.float32(chosen.softcap),
        version=chosen.version,
    )
    if "cu_seqlens_q" in arrays:
        used = _packed_rows(rows, arrays["cu_seqlens_q"], arrays.get("seqlens_q"))
        return jnp.where(used[:, None, None], out, jnp.zeros_like(out)), jnp.where(used, lse, -jnp.inf)
    if "seqlens_q" not in arrays:
        return out, lse
    used = jnp.arange(rows) < arrays["seqlens_q"][:, None]
    return jnp.where(used[:, :, None, None], out, 0), jnp.where(used[:, None], lse, -jnp.inf)


def _packed_rows(rows: int, starts: Any, lengths: Any) -> Any:
    """A mask of the rows that belong to a sequence."""
    row, starts = jnp.arange(rows), starts.reshape(-1)  # the library names offsets of another shape
    sequence = jnp.clip(jnp.searchsorted(starts, row, side="right") - 1, 0, starts.shape[0] - 2)
    end = starts[sequence + 1]
    if lengths is not None:
        end = jnp.minimum(end, starts[sequence] + lengths[sequence])
    return (row >= starts[sequence]) & (row < end)


_compiled_served = jax.jit(_served, static_argnums=(4, 5))


def _packed(q: Any, k: Any, v: Any, starts: tuple[Any, Any], chosen: Options, most: tuple[int, int]) -> Any:
    """Sequences one behind the other, and nothing else that is asked for: what has gradients."""
    return _served(q, k, v, dict(zip(ARRAYS, starts)), chosen, most)


def _keep_packed(q: Any, k: Any, v: Any, starts: Any, chosen: Options, most: tuple[int, int]) -> Any:
    out, lse = _packed(q, k, v, starts, chosen, most)
    return (out, lse), (q, k, v, out, lse, *starts)


def _backward_packed(chosen: Options, most: tuple[int, int], kept: Any, cotangents: Any) -> Any:
    starts = kept[5:]

    def attend(q: Any, k: Any, v: Any) -> Any:
        return _packed(q, k, v, starts, chosen, most)[0]

    def gradients(dout: Any, *tensors: Any) -> Any:
        return _gradients_packed(dout, (*tensors, *starts), chosen, most)

    used = _packed_rows(kept[0].shape[0], starts[0], None)
    more = [jnp.where(used, cotangents[1], 0)] if chosen.return_lse else []
    return (*_with_lse(kept[:5], [cotangents[0], *more], scale_of(chosen.scale), attend, gradients), None)


def _gradients_packed(dout: Any, tensors: Any, chosen: Options, most: tuple[int, int]) -> tuple[Any, Any, Any]:
    q, k, v, *_, starts, _ = tensors
    (tokens, heads, d_head), sequences = q.shape, starts.shape[0] - 1
    results = [jax.ShapeDtypeStruct(one.shape, one.dtype) for one in (q, k, v)]
    words = _workspace_words(heads * (tokens // 64 + sequences), d_head)
    results.append(jax.ShapeDtypeStruct((words,), jnp.float32))
    call = jax.ffi.ffi_call(BACKWARD, results, vmap_method="sequential")
    numbers = {"causal": chosen.causal, "seq_q": most[0], "seq_k": most[1]}
    made = call(
        dout,
        *tensors,
        **{name: np.int32(number) for name, number in numbers.items()},
        scale=np.float32(scale_of(chosen.scale)),
        version=chosen.version,
    )
    return tuple(made[:3])


_differentiable_packed = jax.custom_vjp(_packed, nondiff_argnums=(4, 5))
_differentiable_packed.defvjp(_keep_packed, _backward_packed)
_compiled_packed = jax.jit(_differentiable_packed, static_argnums=(4, 5))


def _with_scales(arrays: dict[str, Any], q: Any, k: Any, v: Any, k_scale: Any, v_scale: Any) -> dict[str, Any]:
    """The arrays, and the factors of K and V of e4m3. ValueError where types do not belong together."""
    packed, in_bytes = "cu_seqlens_q" in arrays, k.dtype == jnp.float8_e4m3fn
    of_k, of_v = ("k", "v") if packed else ("k_cache", "v_cache")
    if q.dtype not in DTYPES:
        raise ValueError(f"q is {q.dtype}: float16 or bfloat16 is needed")
    if not in_bytes and k.dtype != q.dtype:
        raise ValueError(f"{of_k} is {k.dtype} and q {q.dtype}: {q.dtype} or float8_e4m3fn is needed")
    if v.dtype != k.dtype:
        raise ValueError(f"{of_v} is {v.dtype} and {of_k} {k.dtype}: they must be of one type")
    given = {"k_scale": k_scale, "v_scale": v_scale}
    scales = {f"{name}s": _scales(name, scale, (k.shape[-2],)) for name, scale in given.items()}
    found = present(**arrays, **scales)
    if not in_bytes:
        refuse_scales(found, packed, k.dtype)
    return found


def _is_plain(arrays: dict[str, Any], chosen: Options) -> bool:
    """True if packed sequences alone are asked for, whose gradients fl_backward() computes."""
    return list(arrays) == list(ARRAYS[:2]) and chosen.window is None and not chosen.softcap


def _serve(
    q: Any,
    k: Any,
    v: Any,
    arrays: dict[str, Any],
    chosen: Options,
    most: tuple[int, int] = (0, 0),
) -> Any:
    for name, array in arrays.items():
        dtype = jnp.float32 if name == "sinks" or name.endswith("_scales") else jnp.int32
        if array.dtype != dtype:
            raise ValueError(f"{name} is {array.dtype}: {np.dtype(dtype)} is needed")
    if _is_plain(arrays, chosen) and k.dtype in DTYPES:
        out, lse = _compiled_packed(q, k, v, tuple(arrays.values()), chosen, most)
    else:
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
    k_scale: Any = None,
    v_scale: Any = None,
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
    chosen = options(causal, scale, window, softcap, deterministic, return_lse, version)
    if (q.ndim, k.ndim, v.ndim) != ((3, 3, 3) if block_table is None else (3, 4, 4)):
        raise ValueError(f"q, k and v must have three dimensions, {PACKED}, or k and v four in pages, {PAGED}")
    arrays, most = packed(cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, None, seqlens_k, block_table, sinks)
    arrays = _with_scales(arrays, q, k, v, k_scale, v_scale)
    return _serve(q, k, v, arrays, chosen, most)


def attention_with_cache(
    q: Any,
    k_cache: Any,
    v_cache: Any,
    seqlens_k: Any,
    block_table: Any = None,
    *,
    k_scale: Any = None,
    v_scale: Any = None,
    causal: bool = False,
    scale: float | None = None,
    window: tuple[int, int] | None = None,
    softcap: float | None = None,
    sinks: Any = None,
    deterministic: Any = None,
    return_lse: bool = False,
    version: str = "best",
) -> Any:
    """flashladder.attention_with_cache of caches that hold the new rows already."""
    chosen = options(causal, scale, window, softcap, deterministic, return_lse, version)
    if any(array.ndim != 4 for array in (q, k_cache, v_cache)):
        raise ValueError("q, k_cache and v_cache must have four dimensions")
    arrays = present(seqlens_k=seqlens_k, block_table=block_table, sinks=sinks)
    arrays = _with_scales(arrays, q, k_cache, v_cache, k_scale, v_scale)
    return _serve(q, k_cache, v_cache, arrays, chosen)


# ---- e4m3 ------------------------------------------------------------------------------------------------------------


def attention_e4m3(
    q: Any,
    k: Any,
    v: Any,
    *,
    q_scale: Any = None,
    k_scale: Any = None,
    v_scale: Any = None,
    o_scale: Any = None,
    scale_keys: int = 0,
    cu_seqlens_q: Any = None,
    cu_seqlens_k: Any = None,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    seqlens_q: Any = None,
    seqlens_k: Any = None,
    causal: bool = False,
    scale: float | None = None,
    accurate: bool = False,
    return_lse: bool = False,
    dtype: str = "bfloat16",
    **unknown: NoReturn,
) -> Any:
    """flashladder.attention_e4m3, also inside jax.jit: q8, q_scale = quantize_e4m3(q), and so k and v."""
    if unknown:
        refuse_unknown("attention_e4m3", OF_E4M3, unknown)
    chosen = options_of_e4m3(causal, scale, accurate, return_lse, scale_keys, dtype, o_scale)
    packed = cu_seqlens_q is not None or cu_seqlens_k is not None
    if packed and (cu_seqlens_q is None or cu_seqlens_k is None):
        raise TypeError("cu_seqlens_q and cu_seqlens_k must be there together")
    for name, array in (("q", q), ("k", k), ("v", v)):
        if array.dtype != jnp.float8_e4m3fn:
            raise ValueError(f"{name} is {array.dtype}: float8_e4m3fn is needed")
        if array.ndim != (3 if packed else 4):
            wanted = f"three are needed, {PACKED}" if packed else "[batch, seq, heads, d_head] is needed"
            raise ValueError(f"{name} has {array.ndim} dimensions: {wanted}")
    most = (size("max_seqlen_q", max_seqlen_q), size("max_seqlen_k", max_seqlen_k)) if packed else (0, 0)
    keys = most[1] if packed else k.shape[1]
    batch = cu_seqlens_q.shape[0] - 1 if packed else q.shape[0]
    of_keys = (batch, k.shape[-2], -(-keys // scale_keys)) if chosen.scale_keys else (k.shape[-2],)
    of_heads = (q.shape[-2],)
    shapes = {"q": of_heads, "k": of_keys, "v": of_keys, "o": of_heads}
    scales = {"q": q_scale, "k": k_scale, "v": v_scale, "o": o_scale}
    arrays = present(
        cu_seqlens_q=cu_seqlens_q,
        cu_seqlens_k=cu_seqlens_k,
        seqlens_q=seqlens_q,
        seqlens_k=seqlens_k,
        **{f"{x}_scales": _scales(f"{x}_scale", scales[x], shapes[x]) for x in scales},
    )
    return _serve(q, k, v, arrays, chosen, most)


def _scales(name: str, scale: Any, shape: tuple[int, ...]) -> Any:
    """A number or an array of one for all heads, or an array of a shape, one behind the other; None: all are 1."""
    if scale is None:
        return None
    if not hasattr(scale, "shape"):
        if len(shape) > 1:
            raise ValueError(f"{name} is {scale}: with scale_keys an array [batch, kv_heads, blocks of keys] is needed")
        scale = jnp.float32(number_of_scale(name, scale))
    if scale.shape == () or (scale.shape == (1,) and len(shape) == 1):
        scale = jnp.broadcast_to(scale, shape)
    if scale.shape != shape:
        raise ValueError(f"{name} has the shape {scale.shape}: {shape} is needed")
    return scale.reshape(-1)


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
    keys up to i + seq_k - seq_q. An unsupported call raises jax.errors.JaxRuntimeError when it runs.
    """
    if unknown:
        refuse_unknown("attention", OPTIONS, unknown)
    _check(q, k, v)
    q, chosen = positive_scale(q, options(causal, scale, window, softcap, deterministic, return_lse, version))
    if any(one is not None for one in (window, softcap, sinks, seqlens_k, seqlens_q, deterministic)):
        given = present(seqlens_k=seqlens_k, seqlens_q=seqlens_q, sinks=sinks)
        return _serve(q, k, v, made_for(q, k, q.shape[0], given), chosen)
    out, *lse = _compiled(q, k, v, chosen.causal, scale_of(chosen.scale), chosen.return_lse, version)
    return (out, lse[0]) if return_lse else out


def _check(q: Any, k: Any, v: Any) -> None:
    """The facts that follow from shapes and types."""
    for name, array in (("q", q), ("k", k), ("v", v)):
        if array.ndim != 4:
            raise ValueError(f"{name} has {array.ndim} dimensions, not 4: [batch, seq, heads, d_head]")
        if array.dtype not in DTYPES:
            raise ValueError(f"{name} is {array.dtype}, not float16 or bfloat16")
        if array.dtype != q.dtype:
            raise ValueError(f"q is {q.dtype} and {name} is {array.dtype}: they must be of one type")
    if k.shape != v.shape:
        raise ValueError(f"k is {list(k.shape)} and v is {list(v.shape)}: they must have one shape")
    if k.shape[0] != q.shape[0] or k.shape[3] != q.shape[3]:
        raise ValueError(f"q is {list(q.shape)} and k is {list(k.shape)}: batch and d_head must be the same")
