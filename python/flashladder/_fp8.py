"""Attention of q, k and v in float8_e4m3fn.

    q8, q_scale = quantize_e4m3(q)      # and k, v
    o = attention_e4m3(q8, k8, v8, q_scale=q_scale, k_scale=k_scale, v_scale=v_scale, causal=True)

It needs compute capability 9.0, or the emulator.
"""

from __future__ import annotations

import ctypes
import importlib
from typing import Any, NoReturn

from flashladder import _arrays, _call, _serving
from flashladder._library import ARRAYS, E4M3

NAMES = ("q_scale", "k_scale", "v_scale", "causal", "scale", "accurate", "return_lse", "dtype")


def attention_e4m3(
    q: Any,
    k: Any,
    v: Any,
    *,
    q_scale: Any = None,
    k_scale: Any = None,
    v_scale: Any = None,
    causal: bool = False,
    scale: float | None = None,
    accurate: bool = False,
    return_lse: bool = False,
    dtype: str = "bfloat16",
    **unknown: NoReturn,
) -> Any:
    """softmax(scale · QKᵀ) V of [batch, seq, heads, d_head] in float8_e4m3fn, of PyTorch or NumPy; O is of `dtype`.

    q_scale    what an element of each head of q stands for, times its value: a number, or float32 [heads], positive
               and finite; None: 1. Likewise k_scale and v_scale, [kv_heads]
    accurate   add O up in float: without it O of values with a mean is 5 % too small at 4096 keys (fp8-accuracy.md)
    dtype      "bfloat16" or "float16"

    d_head is 64 or 128; heads may share K and V; the causal mask is aligned to the bottom right.
    """
    if unknown:
        _call.refuse_unknown("attention_e4m3", NAMES, unknown)
    causal, scale, return_lse, version = _call.options(causal, scale, return_lse, "best")
    accurate = _call._flag("accurate", accurate)
    if dtype not in _arrays.DTYPES:
        raise ValueError(f"dtype is {dtype!r}: bfloat16 or float16 is needed")
    framework = _arrays._common(q, k, v, None)
    if type(framework) not in (_arrays.Torch, _arrays.NumPy):
        raise NotImplementedError(f"q is {_arrays._a(q)}: PyTorch and NumPy arrays are taken")
    layouts = {name: _arrays._layout(framework, name, array) for name, array in (("q", q), ("k", k), ("v", v))}
    for name, layout in layouts.items():
        if layout.dtype != _arrays.CACHE_DTYPE:
            raise ValueError(f"{name} is {layout.dtype}: float8_e4m3fn is needed")
        _arrays._check(name, layout, layouts["q"], _arrays.CACHE_DTYPE)
    _arrays._check_shapes(layouts)
    batch, rows, heads, d_head = layouts["q"].shape
    kv_heads, gpu = layouts["k"].shape[2], layouts["q"].gpu
    scales = _serving.present(
        q_scales=_serving.scales_of("q_scale", q_scale, q, q),
        k_scales=_serving.scales_of("k_scale", k_scale, q, k),
        v_scales=_serving.scales_of("v_scale", v_scale, q, v),
    )
    for name, array in scales.items():
        if _arrays.framework_of(name, array) is not framework:
            raise TypeError(f"{name} is {_arrays._a(array)} and q {_arrays._a(q)}: arrays of one package are needed")
    extra = {name: _arrays._layout(framework, name, array) for name, array in scales.items()}
    _serving._check_arrays(extra, layouts["q"], batch, heads, kv_heads)
    more = {"arrays": sum(1 << i for i, name in enumerate(ARRAYS) if name in scales)}
    more |= {"kv_dtype": E4M3, "q_dtype": E4M3, "sums": int(accurate)}
    problem = _call.problem(
        _arrays.DTYPES[dtype],
        gpu,
        (batch, heads, kv_heads, rows, layouts["k"].shape[1], d_head),
        (*(layouts[name].strides[:3] for name in "qkv"), (rows * heads * d_head, heads * d_head, d_head)),
        causal,
        scale,
        version,
        None,
        tuple(more.items()),
    )
    out, lse = _results(framework, q, dtype, (batch, heads, rows) if return_lse else None)
    addresses = [framework.address(array) for array in (q, k, v, out)]
    _call.launch_served(
        ctypes.addressof(problem),
        (*addresses, 0 if lse is None else framework.address(lse)),
        [framework.address(scales[name]) if name in scales else 0 for name in ARRAYS],
        0 if gpu is None else framework.current_stream(gpu),
    )
    return (out, lse) if return_lse else out


def _results(framework: Any, q: Any, dtype: str, lse_shape: tuple[int, ...] | None) -> tuple[Any, Any]:
    package = framework.package()
    bfloat16 = package.bfloat16 if hasattr(package, "bfloat16") else importlib.import_module("ml_dtypes").bfloat16
    kind = package.float16 if dtype == "float16" else bfloat16
    beside = framework.beside(q)
    lse = package.empty(lse_shape, dtype=package.float32, **beside) if lse_shape else None
    return package.empty(tuple(q.shape), dtype=kind, **beside), lse
