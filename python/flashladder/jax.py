"""Attention for JAX, inside and outside jax.jit: foreign functions of XLA that are part of libflashladder.so.

    from flashladder.jax import attention

    out = jax.jit(lambda q, k, v: attention(q, k, v, causal=True))(q, k, v)  # [batch, seq, heads, d_head]

The functions are those of the package, without out, stream and new rows: arrays of JAX do not change, so new rows are
written with .at[].set() before. On a GPU the launch goes into XLA's stream, on the CPU the arrays are taken where they
lie. No compiler of ours runs and nothing is copied. jax.vmap calls the kernel once for each element.

rng_state of dropout is int32, uint32 or int64 [2], seed and offset, or uint32 [4], the low and the high word of both:
JAX has int64 only with jax_enable_x64. jax.random.key_data(key) is one.

jax.grad and jax.vjp differentiate attention and attention_varlen, and log-sum-exp, by q, k and v with d_head 64,
128 and 256; lengths, windows, sinks, soft caps, biases, dropout, block masks, the largest scores and caches have no
gradient, and an error says so. There is no forward mode.

deterministic=True asks for gradients with the same bits in every run. Arguments are checked when a call is traced; what
no kernel computes, and wrong values, are refused when it runs: jax.errors.JaxRuntimeError.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from flashladder import _call
from flashladder._call import Call, split_keys
from flashladder._frameworks import framework_of
from flashladder._functions import attention as attention
from flashladder._functions import attention_e4m3 as attention_e4m3
from flashladder._functions import attention_varlen as attention_varlen
from flashladder._functions import attention_with_cache as attention_with_cache
from flashladder._library import ARRAYS, LIBRARY
from flashladder._options import Options, scale_of
from flashladder._quantize import quantize_e4m3 as quantize_e4m3
from flashladder._quantize import quantize_int8 as quantize_int8

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


def run(call: Call) -> tuple[Any, Any]:
    """O and log-sum-exp, None where that is not wanted. The largest scores replace the entry of call.arrays."""
    framework, given = framework_of("q", call.q), call.arrays
    call = call.prepared(framework)
    if call.sequences() > _call.MOST_SEQUENCES:
        parts = [call.chunk(first) for first in range(0, call.sequences(), _call.MOST_SEQUENCES)]
        made = _joined([run(part) for part in parts], call)
        if "max_logits" in given:
            given["max_logits"] = jnp.concatenate([part.arrays["max_logits"] for part in parts])
        return made
    plan = call.plan(framework)
    q, k, v, chosen = call.q, call.k, call.v, call.options
    flat = ("_scales", "_slopes")
    arrays = {name: one.reshape(-1) if name.endswith(flat) else one for name, one in call.arrays.items()}
    most = arrays.pop("max_logits", None)
    if "rng_state" in arrays:
        arrays["rng_state"] = _words(arrays["rng_state"])
    if plan.problem is None or (most is not None and not q.shape[-3]):
        out, lse = jnp.zeros((*q.shape[:-1], v.shape[-1]), q.dtype), jnp.full(plan.lse_shape, -jnp.inf, jnp.float32)
        given |= {} if most is None else {"max_logits": jnp.full(most.shape, -jnp.inf, jnp.float32)}
    elif most is not None:
        out, lse, given["max_logits"] = _compiled_served(q, k, v, arrays, chosen, call.most)
    elif not arrays and chosen == _plain(chosen):
        out, *rest = _compiled(q, k, v, chosen)
        return out, rest[0] if rest else None
    elif list(arrays) == list(ARRAYS[:2]) and k.dtype in DTYPES and chosen.window is None and not chosen.softcap:
        out, lse = _compiled_packed(q, k, v, tuple(arrays.values()), chosen, call.most)
    else:
        out, lse = _compiled_served(q, k, v, arrays, chosen, call.most)
    return out, lse if chosen.return_lse else None


def _plain(chosen: Options) -> Options:
    """Those of the options that fl_forward() of whole sequences has."""
    kept = Options(chosen.causal, chosen.scale, return_lse=chosen.return_lse, version=chosen.version)
    return kept._replace(ordered=chosen.ordered, block_size=chosen.block_size)


def _words(state: Any) -> Any:
    """Seed and offset as four int32, the low and the high word of each."""
    if state.shape == (2,) and state.dtype in (jnp.int32, jnp.uint32):
        state = jnp.stack([state, state >> 31 if state.dtype == jnp.int32 else state * 0], 1).reshape(-1)
    return state.view(jnp.int32)


def _joined(parts: list[tuple[Any, Any]], call: Call) -> tuple[Any, Any]:
    """The results of all sequences from those of some. Where they are packed, a part has 0 and -infinity elsewhere."""
    outs, lses = zip(*parts)
    if "cu_seqlens_q" not in call.arrays:
        return jnp.concatenate(outs), None if lses[0] is None else jnp.concatenate(lses)
    out, lse = outs[0], lses[0]
    for more, of_more in parts[1:]:
        out, lse = out + more, None if lse is None else jnp.maximum(lse, of_more)
    return out, lse


def _forward(q: Any, k: Any, v: Any, chosen: Options) -> Any:
    results = [jax.ShapeDtypeStruct((*q.shape[:-1], v.shape[-1]), q.dtype)]
    if chosen.return_lse:
        batch, rows, heads, _ = q.shape
        results.append(jax.ShapeDtypeStruct((batch, heads, rows), jnp.float32))
    call = jax.ffi.ffi_call(TARGET, results, vmap_method="sequential")
    numbers = {"causal": np.int32(chosen.causal), "scale": np.float32(scale_of(chosen.scale))}
    return call(q, k, v, **numbers, version=chosen.version)


def _keep(q: Any, k: Any, v: Any, chosen: Options) -> Any:
    """The results, and what the backward pass reads."""
    out, lse = _forward(q, k, v, chosen._replace(return_lse=True))
    return [out, lse] if chosen.return_lse else [out], (q, k, v, out, lse)


def _workspace_words(blocks: int, d_head: int) -> int:
    """float32 of the workspace, enough for fl_query_backward(): of blocks of 128 rows sums, log-sum-exp and delta, and
    of blocks of 64 eight turns or of 32 four. A kernel with blocks of 32 or 64 rows needs no more."""
    return blocks * (128 * (d_head + 2) + 16) + 4


def _backward(chosen: Options, kept: Any, cotangents: Any) -> Any:
    def attend(q: Any, k: Any, v: Any) -> Any:
        return _forward(q, k, v, chosen._replace(return_lse=False))[0]

    def gradients(dout: Any, *tensors: Any) -> Any:
        batch, rows, heads, _ = tensors[0].shape
        return _gradients(dout, tensors, chosen, heads * (batch * rows // 128 + batch), {})

    return _with_lse(kept, cotangents, scale_of(chosen.scale), attend, gradients)


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


def _gradients(dout: Any, tensors: Any, chosen: Options, blocks: int, more: dict[str, int]) -> tuple[Any, Any, Any]:
    """dq, dk and dv with a workspace of so many blocks of 128 queries. `more`: further attributes."""
    results = [jax.ShapeDtypeStruct(one.shape, one.dtype) for one in tensors[:3]]
    results.append(jax.ShapeDtypeStruct((_workspace_words(blocks, tensors[0].shape[-1]),), jnp.float32))
    numbers = {"causal": chosen.causal, "deterministic": chosen.ordered, **more}
    call = jax.ffi.ffi_call(BACKWARD, results, vmap_method="sequential")
    made = call(
        dout,
        *tensors,
        **{name: np.int32(number) for name, number in numbers.items()},
        scale=np.float32(scale_of(chosen.scale)),
        version=chosen.version,
    )
    return tuple(made[:3])


# ---- several lengths, caches, windows, sinks and soft caps -----------------------------------------------------------


def _served(
    q: Any,
    k: Any,
    v: Any,
    arrays: dict[str, Any],
    chosen: Options,
    most: tuple[int, int],
) -> Any:
    """O, log-sum-exp and, where they are wanted, the largest scores. Rows past the used ones are not written: they
    become 0 and -infinity."""
    names = [name for name in ARRAYS if name in arrays]
    rows, heads = q.shape[-3:-1]
    results = [
        jax.ShapeDtypeStruct((*q.shape[:-1], v.shape[-1]), getattr(jnp, chosen.dtype) if chosen.dtype else q.dtype),
        jax.ShapeDtypeStruct((*q.shape[:-3], heads, rows), jnp.float32),
    ]
    bits = sum(1 << ARRAYS.index(name) for name in names)
    if chosen.return_max_logits:
        sequences = arrays["cu_seqlens_q"].shape[0] - 1 if "cu_seqlens_q" in arrays else q.shape[0]
        results.append(jax.ShapeDtypeStruct((sequences, heads), jnp.float32))
        bits |= 1 << ARRAYS.index("max_logits")
    left, right = (min(side, 1 << 30) for side in chosen.window or (-1, -1))
    numbers = {
        "causal": chosen.causal,
        "arrays": bits,
        "seq_q": most[0],
        "seq_k": most[1],
        "windowed": chosen.window is not None,
        "window_left": left if chosen.window else 0,
        "window_right": right if chosen.window else 0,
        "split_keys": split_keys(chosen, q.shape[-3] * q.shape[-2] // k.shape[-2], names),
    }
    if "alibi_slopes" in arrays and arrays["alibi_slopes"].shape[0] > heads:
        numbers |= {"alibi_batch": heads}
    if chosen.dtype:
        numbers |= {"sums": chosen.accurate, "scale_keys": chosen.scale_keys}
    if "block_mask" in arrays:
        numbers |= dict(zip(("mask_queries", "mask_keys"), chosen.block_size))
    floats = {"softcap": chosen.softcap} | ({"dropout_p": chosen.dropout_p} if chosen.dropout_p else {})
    call = jax.ffi.ffi_call(SERVE, results, vmap_method="sequential")
    out, lse, *rest = call(
        q,
        k,
        v,
        *(arrays[name] for name in names),
        **{name: np.int32(number) for name, number in numbers.items()},
        **{name: np.float32(number) for name, number in floats.items()},
        scale=np.float32(scale_of(chosen.scale)),
        version=chosen.version,
    )
    if "cu_seqlens_q" in arrays:
        used = _packed_rows(rows, arrays["cu_seqlens_q"], arrays.get("seqlens_q"))
        return jnp.where(used[:, None, None], out, jnp.zeros_like(out)), jnp.where(used, lse, -jnp.inf), *rest
    if "seqlens_q" not in arrays:
        return out, lse, *rest
    used = jnp.arange(rows) < arrays["seqlens_q"][:, None]
    return jnp.where(used[:, :, None, None], out, 0), jnp.where(used[:, None], lse, -jnp.inf), *rest


def _packed_rows(rows: int, starts: Any, lengths: Any) -> Any:
    """A mask of the rows that belong to a sequence."""
    row, starts = jnp.arange(rows), starts.reshape(-1)  # the library names offsets of another shape
    sequence = jnp.clip(jnp.searchsorted(starts, row, side="right") - 1, 0, starts.shape[0] - 2)
    end = starts[sequence + 1]
    if lengths is not None:
        end = jnp.minimum(end, starts[sequence] + lengths[sequence])
    return (row >= starts[sequence]) & (row < end)


def _refuse_gradient(chosen: Options, most: tuple[int, int], primals: Any, tangents: Any) -> Any:
    """XLA's own error names a function of ours instead of the argument."""
    asked = [name.replace("_scales", "_scale") for name in primals[3] if name != "rng_state" and name[:3] != "cu_"]
    asked += [name for name in ("window", "softcap", "dropout_p", "return_max_logits") if getattr(chosen, name)]
    what = ", ".join(asked) or primals[1].dtype.name
    raise NotImplementedError(
        f"attention with {what} has no gradient in JAX: use flashladder.torch, leave "
        "it out, or call jax.lax.stop_gradient() on q, k, v and the other arrays"
    )


_without_gradient = jax.custom_jvp(_served, nondiff_argnums=(4, 5))
_without_gradient.defjvp(_refuse_gradient)
_compiled_served = jax.jit(_without_gradient, static_argnums=(4, 5))


def _packed(q: Any, k: Any, v: Any, starts: tuple[Any, Any], chosen: Options, most: tuple[int, int]) -> Any:
    """Packed sequences without other options: what has gradients."""
    return _served(q, k, v, dict(zip(ARRAYS, starts)), chosen, most)


def _keep_packed(q: Any, k: Any, v: Any, starts: Any, chosen: Options, most: tuple[int, int]) -> Any:
    out, lse = _packed(q, k, v, starts, chosen, most)
    return (out, lse), (q, k, v, out, lse, *starts)


def _backward_packed(chosen: Options, most: tuple[int, int], kept: Any, cotangents: Any) -> Any:
    starts = kept[5:]

    def attend(q: Any, k: Any, v: Any) -> Any:
        return _packed(q, k, v, starts, chosen, most)[0]

    def gradients(dout: Any, *tensors: Any) -> Any:
        (tokens, heads, _), sequences = tensors[0].shape, starts[0].shape[0] - 1
        blocks, sizes = heads * (tokens // 128 + sequences), {"seq_q": most[0], "seq_k": most[1]}
        return _gradients(dout, (*tensors, *starts), chosen, blocks, sizes)

    used = _packed_rows(kept[0].shape[0], starts[0], None)
    more = [jnp.where(used, cotangents[1], 0)] if chosen.return_lse else []
    return (*_with_lse(kept[:5], [cotangents[0], *more], scale_of(chosen.scale), attend, gradients), None)


_differentiable_packed = jax.custom_vjp(_packed, nondiff_argnums=(4, 5))
_differentiable_packed.defvjp(_keep_packed, _backward_packed)
_compiled_packed = jax.jit(_differentiable_packed, static_argnums=(4, 5))


_differentiable = jax.custom_vjp(_forward, nondiff_argnums=(3,))
_differentiable.defvjp(_keep, _backward)
_compiled = jax.jit(_differentiable, static_argnums=(3,))
