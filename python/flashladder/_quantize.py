"""Keys and values in e4m3 or int8: half the bytes of fp16 and bf16, and a scale for each head.

k_cache, k_scale = quantize_e4m3(k)      # k: [batch, seq, kv_heads, d_head], a value is about k_cache * k_scale
"""

from __future__ import annotations

import importlib
from typing import Any

from flashladder._frameworks import JAX, NumPy, Torch, framework_of, kind_of

LARGEST = 448.0  # of e4m3
LARGEST_INT8 = 127.0


def _is_float(array: Any) -> bool:
    return str(array.dtype).rpartition(".")[2] in ("float16", "bfloat16", "float32", "float64")


def quantize_e4m3(x: Any, scale: Any = None) -> tuple[Any, Any]:
    """x in float8_e4m3fn, and the scale of each head, float32 [kv_heads]: x is about the first times the second.

    x is [batch, seq, kv_heads, d_head] or [tokens, kv_heads, d_head], of PyTorch, JAX or NumPy, which needs the package
    ml_dtypes. The scale is the largest size in the head divided by 448, the largest number of e4m3, or `scale`
    where it is given, for rows that go into a cache which has one: what is too large for it becomes 448. A NaN stays
    one, and an infinity becomes one where `scale` is not given.
    """
    framework, values, scale = _scaled(x, scale, LARGEST)
    if type(framework) is Torch:
        return values.to(framework.package().float8_e4m3fn), scale
    return values.astype(importlib.import_module("ml_dtypes").float8_e4m3fn), scale


def quantize_int8(x: Any, scale: Any = None) -> tuple[Any, Any]:
    """x in int8, and the scale of each head: as quantize_e4m3() with 127 instead of 448.

    Elements of a head have equal distances, so that small ones lose more than in e4m3 and large ones less. int8 has no
    NaN: one in x becomes 0, and a NaN or an infinity is the scale of its head where `scale` is not given.
    """
    framework, values, scale = _scaled(x, scale, LARGEST_INT8)
    package = framework.package()
    values = package.where(values == values, package.round(values), package.zeros_like(values))
    return (values.to(package.int8) if type(framework) is Torch else values.astype("int8")), scale


def _scaled(x: Any, scale: Any, largest: float) -> tuple[Any, Any, Any]:
    """The framework of x, x divided by the scale of its head and limited to `largest`, in float32, and the scales."""
    framework = framework_of("x", x)
    if type(framework) not in (Torch, JAX, NumPy):
        raise NotImplementedError(f"x is {kind_of(x)}: PyTorch, JAX and NumPy arrays are quantized")
    if x.ndim not in (3, 4):
        raise ValueError(f"x has {x.ndim} dimensions: [batch, seq, kv_heads, d_head] or [tokens, kv_heads, d_head]")
    if not _is_float(x):
        raise ValueError(f"x is {x.dtype}: float16, bfloat16 or float32 is needed")
    if scale is not None and (tuple(getattr(scale, "shape", ())) != tuple(x.shape[-2:-1]) or not _is_float(scale)):
        found = f"{scale.dtype} of the shape {tuple(scale.shape)}" if hasattr(scale, "dtype") else kind_of(scale)
        raise TypeError(f"scale is {found}: a float32 array ({x.shape[-2]},) is needed, one for each KV head of x")
    if scale is not None and framework_of("scale", scale) is not framework:
        raise TypeError(f"scale is {kind_of(scale)} and x {kind_of(x)}: pass arrays of one package")
    devices = [framework.layout(one).device for one in (x, scale) if one is not None]
    if len(set(devices)) > 1:
        raise ValueError(f"scale is on {devices[1]} and x on {devices[0]}: pass both on one device")
    package = framework.package()
    wide = x.float() if type(framework) is Torch else x.astype("float32")
    if scale is None:
        rows = wide.reshape(-1, *x.shape[-2:])
        size = package.amax(abs(rows), (0, 2)) if rows.shape[0] else package.zeros_like(wide, shape=x.shape[-2:-1])
        scale = package.where(size == 0, size + 1, size) / largest
    return framework, package.clip(wide / scale[..., None], -largest, largest), scale
