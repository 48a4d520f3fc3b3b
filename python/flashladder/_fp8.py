"""Attention of q, k and v in float8_e4m3fn.

    q8, q_scale = quantize_e4m3(q)      # and k, v
    o = attention_e4m3(q8, k8, v8, q_scale=q_scale, k_scale=k_scale, v_scale=v_scale, causal=True)

It needs compute capability 9.0, or the emulator.
"""

from __future__ import annotations

import ctypes
import importlib
from typing import Any, NamedTuple, NoReturn

from flashladder import _arrays, _call, _serving
from flashladder._library import ARRAYS, E4M3

NAMES = (
    "q_scale", "k_scale", "v_scale", "o_scale", "scale_keys", "cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q",
    "max_seqlen_k", "seqlens_q", "seqlens_k", "causal", "scale", "accurate", "return_lse", "dtype",
)  # fmt: skip


class Options(NamedTuple):
    """The arguments that are no arrays, checked."""

    causal: bool
    scale: float | None
    accurate: bool
    return_lse: bool
    scale_keys: int
    dtype: str


def options(
    causal: Any, scale: Any, accurate: Any, return_lse: Any, scale_keys: Any, dtype: Any, o_scale: Any
) -> Options:
    """TypeError or ValueError for what is wrong in itself."""
    causal, scale, return_lse, _ = _call.options(causal, scale, return_lse, "best")
    accurate = _call._flag("accurate", accurate)
    scale_keys = _serving._size("scale_keys", scale_keys) if scale_keys else 0
    if dtype not in (*_arrays.DTYPES, _arrays.CACHE_DTYPE):
        raise ValueError(f"dtype is {dtype!r}: bfloat16, float16 or float8_e4m3fn is needed")
    if o_scale is not None and dtype != _arrays.CACHE_DTYPE:
        raise ValueError(f"o_scale is for O of float8_e4m3fn: dtype is {dtype!r}")
    return Options(causal, scale, accurate, return_lse, scale_keys, dtype)


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
    """softmax(scale · QKᵀ) V of [batch, seq, heads, d_head] in float8_e4m3fn, of PyTorch, JAX, NumPy; O is of `dtype`.

    q_scale    what an element of each head of q stands for, times its value: a number, or float32 [heads], positive
               and finite; None: 1. Likewise k_scale and v_scale, [kv_heads], and o_scale where O is e4m3
    scale_keys each so many keys, a power of two from 32 on, have factors of their own: k_scale and v_scale are arrays
               [batch, kv_heads, blocks of the longest sequence]; 0: none
    cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, seqlens_q, seqlens_k
               sequences of several lengths, as attention_varlen() has them: with cu_seqlens q is [tokens, heads,
               d_head]; with seqlens alone sequences are padded. O is 0 in rows that belong to no sequence
    accurate   add O up in float: without it O of values with a mean is 5 % too small at 4096 keys (fp8-accuracy.md)
    dtype      "bfloat16", "float16" or "float8_e4m3fn"

    d_head is 64, 128 or 256; heads may share K and V; the causal mask is aligned to the bottom right.
    """
    if unknown:
        _call.refuse_unknown("attention_e4m3", NAMES, unknown)
    chosen = options(causal, scale, accurate, return_lse, scale_keys, dtype, o_scale)
    causal, scale, accurate, return_lse, scale_keys, dtype = chosen
    in_bytes = dtype == _arrays.CACHE_DTYPE
    packed = cu_seqlens_q is not None or cu_seqlens_k is not None
    if packed and (cu_seqlens_q is None or cu_seqlens_k is None):
        raise TypeError("cu_seqlens_q and cu_seqlens_k must be there together")
    framework = _arrays._common(q, k, v, None)
    if type(framework) is _arrays.JAX:
        return importlib.import_module("flashladder.jax").attention_e4m3(
            q, k, v, q_scale=q_scale, k_scale=k_scale, v_scale=v_scale, o_scale=o_scale, cu_seqlens_q=cu_seqlens_q,
            cu_seqlens_k=cu_seqlens_k, max_seqlen_q=max_seqlen_q, max_seqlen_k=max_seqlen_k, seqlens_q=seqlens_q,
            seqlens_k=seqlens_k, **chosen._asdict(),
        )  # fmt: skip
    if type(framework) not in (_arrays.Torch, _arrays.NumPy):
        raise NotImplementedError(f"q is {_arrays._a(q)}: PyTorch, JAX and NumPy arrays are taken")
    layouts = {
        name: _serving._unpacked(name, _arrays._layout(framework, name, array), packed)
        for name, array in (("q", q), ("k", k), ("v", v))
    }
    for name, layout in layouts.items():
        if layout.dtype != _arrays.CACHE_DTYPE:
            raise ValueError(f"{name} is {layout.dtype}: float8_e4m3fn is needed")
        _arrays._check(name, layout, layouts["q"], _arrays.CACHE_DTYPE)
    _arrays._check_shapes(layouts)
    batch, rows, heads, d_head = layouts["q"].shape
    seq_q, seq_k, kv_heads, gpu = rows, *layouts["k"].shape[1:3], layouts["q"].gpu
    if packed:
        batch = max(0, _arrays._layout(framework, "cu_seqlens_q", cu_seqlens_q).shape[0] - 1)
        seq_q = _serving._size("max_seqlen_q", max_seqlen_q)
        seq_k = _serving._size("max_seqlen_k", max_seqlen_k)
    sizes = {"q": heads, "k": kv_heads, "v": kv_heads, "o": heads}
    given = {"q": q_scale, "k": k_scale, "v": v_scale, "o": o_scale}
    arrays = _serving.present(
        cu_seqlens_q=cu_seqlens_q,
        cu_seqlens_k=cu_seqlens_k,
        seqlens_q=seqlens_q,
        seqlens_k=seqlens_k,
        **{f"{x}_scales": _scales(framework, f"{x}_scale", given[x], q, sizes[x], scale_keys, x) for x in given},
    )
    for name, array in arrays.items():
        if _arrays.framework_of(name, array) is not framework:
            raise TypeError(f"{name} is {_arrays._a(array)} and q {_arrays._a(q)}: arrays of one package are needed")
    extra = {name: _arrays._layout(framework, name, array) for name, array in arrays.items()}
    blocks = -(-seq_k // scale_keys) if scale_keys > 0 else 0
    _serving._check_arrays(extra, layouts["q"], batch, heads, kv_heads, blocks)
    more = {"arrays": sum(1 << i for i, name in enumerate(ARRAYS) if name in arrays)}
    more |= {"kv_dtype": E4M3, "q_dtype": E4M3, "sums": int(accurate), "scale_keys": scale_keys}
    if in_bytes:
        more |= {"o_dtype": E4M3}
    if packed:
        more |= {"total_q": rows, "total_k": layouts["k"].shape[1]}
    problem = _call.problem(
        _arrays.DTYPES["bfloat16" if in_bytes else dtype],
        gpu,
        (batch, heads, kv_heads, seq_q, seq_k, d_head),
        (*(layouts[name].strides[:3] for name in "qkv"), (rows * heads * d_head, heads * d_head, d_head)),
        causal,
        scale,
        "best",
        None,
        tuple(more.items()),
    )
    lse_shape = (heads, rows) if packed else (batch, heads, rows)
    ragged = packed or seqlens_q is not None
    out, lse = _results(framework, q, dtype, lse_shape if return_lse else None, ragged)
    addresses = [framework.address(array) for array in (q, k, v, out)]
    _call.launch_served(
        ctypes.addressof(problem),
        (*addresses, 0 if lse is None else framework.address(lse)),
        [framework.address(arrays[name]) if name in arrays else 0 for name in ARRAYS],
        0 if gpu is None else framework.current_stream(gpu),
    )
    return (out, lse) if return_lse else out


def _scales(framework: Any, name: str, scale: Any, q: Any, heads: int, scale_keys: int, tensor: str) -> Any:
    """A number as an array of all heads; others as they are."""
    if scale_keys and tensor in "kv":
        if scale is not None and not hasattr(scale, "shape"):
            raise ValueError(f"{name} is {scale}: with scale_keys an array [batch, kv_heads, blocks of keys] is needed")
        return scale
    return _serving.scales_of(name, scale, q, heads)


def _results(framework: Any, q: Any, dtype: str, lse_shape: tuple[int, ...] | None, ragged: bool) -> tuple[Any, Any]:
    """O and log-sum-exp; a kernel writes rows of sequences alone."""
    package = framework.package()
    kinds = package if hasattr(package, "bfloat16") else importlib.import_module("ml_dtypes")
    kind = package.float16 if dtype == "float16" else getattr(kinds, dtype)
    beside = framework.beside(q)
    make = package.zeros if ragged else package.empty
    lse = package.empty(lse_shape, dtype=package.float32, **beside) if lse_shape else None
    if ragged and lse is not None:
        lse[...] = -float("inf")
    return make(tuple(q.shape), dtype=kind, **beside), lse
