"""Sequences of several lengths, caches, windows, sinks and soft caps: what attention() lets by, and two calls more.

    attention_varlen(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, causal=True)
    attention_with_cache(q, k_cache, v_cache, seqlens_k, block_table)

They need compute capability 9.0, or the emulator. Arrays of integers are read by the kernel: nothing waits for them.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Collection
from typing import Any, NamedTuple, NoReturn

from flashladder import _arrays, _call
from flashladder._append import append
from flashladder._arrays import Layout, Plan
from flashladder._library import ARRAYS, E4M3

SPLIT_KEYS = 2048  # of a part, where the bits of a result must not depend on the batch
PACKED, PAGED = "[tokens, heads, d_head]", "[n_pages, page_rows, kv_heads, d_head]"
OPTIONS = tuple(name for name in _arrays.OPTIONS if not name.startswith("seqlens"))


class Options(NamedTuple):
    """The arguments that are no arrays, checked."""

    causal: bool = False
    scale: float | None = None
    window: tuple[int, int] | None = None  # left, right; -1: no end
    softcap: float = 0.0
    batch_invariant: bool = False
    return_lse: bool = False
    version: str = "best"


def options(
    causal: Any, scale: Any, window: Any, softcap: Any, deterministic: Any, return_lse: Any, version: Any
) -> Options:
    """TypeError or ValueError for what is wrong in itself."""
    causal, scale, return_lse, version = _call.options(causal, scale, return_lse, version)
    if deterministic not in (None, False, True, "batch"):
        raise ValueError(f'deterministic is {deterministic!r}: "batch" is needed; without it each call gives its bits')
    return Options(causal, scale, _window(window), _softcap(softcap), deterministic == "batch", return_lse, version)


def _window(window: Any) -> tuple[int, int] | None:
    if window is None:
        return None
    try:
        left, right = (int(side) for side in window)
    except (TypeError, ValueError):
        raise TypeError(f"window is {window!r}: (left, right) is needed, two integers, -1 for no end") from None
    if left < -1 or right < -1:
        raise ValueError(f"window is {window!r}: both must be at least -1, which is no end")
    return None if (left, right) == (-1, -1) else (left, right)


def _softcap(softcap: Any) -> float:
    found = _call._number("softcap", softcap)
    if found is None or found == 0.0:
        return 0.0
    try:
        return _call.scale_of(found)
    except ValueError:
        raise ValueError(f"softcap is {softcap}: it must be a positive number, or None for no cap") from None


# ---- plans -----------------------------------------------------------------------------------------------------------

_plans: dict[Any, Plan] = {}


def _plan(
    framework: Any, q: Any, k: Any, v: Any, out: Any, arrays: dict[str, Any], most: tuple[int, int], chosen: Options
) -> Plan:
    """What a call needs. `most` are the most rows of a sequence of packed tensors."""
    facts = framework.facts
    given = tuple((name, facts(array)) for name, array in arrays.items())
    key = (facts(q), facts(k), facts(v), None if out is None else facts(out), given, most, chosen)
    plan = _plans.get(key)
    if plan is None:
        if len(_plans) >= _arrays.MOST_PLANS:
            _plans.clear()
        plan = _plans[key] = _new_plan(framework, q, k, v, out, arrays, most, chosen)
    return plan


def _new_plan(
    framework: Any, q: Any, k: Any, v: Any, out: Any, arrays: dict[str, Any], most: tuple[int, int], chosen: Options
) -> Plan:
    packed, paged = "cu_seqlens_q" in arrays, "block_table" in arrays
    named = {"q": q, "k": k, "v": v} | ({} if out is None else {"out": out})
    layouts = {
        name: _unpacked(name, _arrays._layout(framework, name, array), packed and not (paged and name in "kv"))
        for name, array in named.items()
    }
    in_bytes = layouts["k"].dtype == _arrays.CACHE_DTYPE
    for name, layout in layouts.items():
        _arrays._check(name, layout, layouts["q"], _arrays.CACHE_DTYPE if in_bytes and name in "kv" else "")
    _arrays._check_shapes(layouts, same_batch=not paged)
    samples, rows_q, heads, d_head = layouts["q"].shape
    n_pages, rows_k, kv_heads, _ = layouts["k"].shape
    extra = {name: _arrays._layout(framework, name, array) for name, array in arrays.items()}
    batch = samples
    if packed:
        starts = extra["cu_seqlens_q"].shape
        batch = max(0, starts[0] - 1) if len(starts) == 1 else 0
    if not in_bytes:
        refuse_scales(extra, packed, layouts["k"].dtype)
    _check_arrays(extra, layouts["q"], batch, heads, kv_heads)
    more: dict[str, Any] = {"arrays": sum(1 << i for i, name in enumerate(ARRAYS) if name in arrays)}
    seq_q, seq_k = rows_q, rows_k
    if packed:
        seq_q, seq_k = most
        more |= {"total_q": rows_q} | ({} if paged else {"total_k": rows_k})
    if paged:
        pages = extra["block_table"].shape[1]
        seq_k = pages * rows_k
        more |= {"n_pages": n_pages, "page_rows": rows_k, "pages_of_sequence": pages}
    if chosen.window is not None:
        left, right = (min(side, 1 << 30) for side in chosen.window)
        more |= {"windowed": 1, "window_left": left, "window_right": right}
    if in_bytes:
        more |= {"kv_dtype": E4M3}
    more |= {"softcap": chosen.softcap, "split_keys": SPLIT_KEYS if chosen.batch_invariant else 0}
    o_strides = (rows_q * heads * d_head, heads * d_head, d_head) if out is None else layouts["out"].strides[:3]
    problem = _call.problem(
        _arrays.DTYPES[layouts["q"].dtype],
        layouts["q"].gpu,
        (batch, heads, kv_heads, seq_q, seq_k, d_head),
        (*(layouts[name].strides[:3] for name in "qkv"), o_strides),
        chosen.causal,
        chosen.scale,
        chosen.version,
        None,
        tuple(more.items()),
    )
    gpu = layouts["q"].gpu
    lse_shape = (heads, rows_q) if packed else (batch, heads, rows_q)
    seconds = _arrays._seconds(problem) if gpu is None else 0.0
    inputs = (layouts["q"], layouts["k"], layouts["v"])
    return Plan(problem, ctypes.addressof(problem), lse_shape, gpu, seconds, inputs, layouts.get("out"))


def refuse_scales(arrays: Collection[str], packed: bool, dtype: Any) -> None:
    """ValueError for factors of K and V beside K and V that are not of e4m3."""
    if "k_scales" in arrays or "v_scales" in arrays:
        names, name = ("k and v", "k") if packed else ("caches", "k_cache")
        raise ValueError(f"k_scale and v_scale are for {names} of float8_e4m3fn: {name} is {dtype}")


def _unpacked(name: str, layout: Layout, packed: bool) -> Layout:
    """With a first axis of one sample where the sequences lie one behind the other."""
    if not packed:
        return layout
    if len(layout.shape) != 3:
        raise ValueError(f"{name} has the shape {layout.shape}: three dimensions are needed, {PACKED}")
    return layout._replace(shape=(1, *layout.shape), strides=(0, *layout.strides))


def _check_arrays(extra: dict[str, Layout], q: Layout, batch: int, heads: int, kv_heads: int, blocks: int = 0) -> None:
    """`blocks` are those of keys that have factors of their own."""
    shapes: dict[str, tuple[int, ...]] = {"cu_seqlens_q": (batch + 1,), "cu_seqlens_k": (batch + 1,), "sinks": (heads,)}
    of_keys = (batch, kv_heads, blocks) if blocks else (kv_heads,)
    shapes |= {"k_scales": of_keys, "v_scales": of_keys, "q_scales": (heads,), "o_scales": (heads,)}
    for name, layout in extra.items():
        dtype = "float32" if name == "sinks" or name.endswith("_scales") else "int32"
        if layout.place != q.place:
            raise ValueError(f"{name} lies on {layout.place} and q on {q.place}: they must lie together")
        if layout.dtype != dtype:
            raise ValueError(f"{name} is {layout.dtype}: {dtype} is needed")
        if name == "block_table":
            if len(layout.shape) != 2 or layout.shape[0] != batch or not layout.shape[1]:
                raise ValueError(f"block_table has the shape {layout.shape}: ({batch}, pages of a sequence) is needed")
        elif layout.shape != shapes.get(name, (batch,)):
            raise ValueError(f"{name} has the shape {layout.shape}: {shapes.get(name, (batch,))} is needed")
        if batch and not _is_contiguous(layout):
            raise ValueError(f"{name} has the strides {layout.strides}: copy it to a contiguous one")


def _is_contiguous(layout: Layout) -> bool:
    """Whether the elements follow one another; the stride of an axis of size 1 is never used."""
    steps = (math.prod(layout.shape[axis + 1 :]) for axis in range(len(layout.shape)))
    return all(size == 1 or at == step for size, at, step in zip(layout.shape, layout.strides, steps))


# ---- the calls -------------------------------------------------------------------------------------------------------


def serve(
    q: Any,
    k: Any,
    v: Any,
    arrays: dict[str, Any],
    chosen: Options,
    most: tuple[int, int] = (0, 0),
    out: Any = None,
    stream: Any = None,
) -> tuple[Any, Any]:
    """O and log-sum-exp, None where that is not wanted. `arrays` has those of ARRAYS that are there, in their order."""
    framework = _arrays._common(q, k, v, out)
    if type(framework) in (_arrays.JAX, _arrays.DLPack):
        raise NotImplementedError(
            "lengths, pages, windows, sinks and soft caps are served for PyTorch, CuPy and NumPy arrays, and by "
            f"flashladder.jax: {_arrays._a(q)} has whole sequences alone"
        )
    arrays = with_lengths(arrays, q)
    for name, array in arrays.items():
        if _arrays.framework_of(name, array) is not framework:
            raise TypeError(f"{name} is {_arrays._a(array)} and q {_arrays._a(q)}: arrays of one package are needed")
    if stream is None:  # a copy is made in the framework's current stream
        arrays = {name: framework.readable(array, name == "sinks") for name, array in arrays.items()}
    plan = _plan(framework, q, k, v, out, arrays, most, chosen)
    framework.refuse(q, k, v, out)
    handle = None if stream is None else _arrays.stream_handle(stream)
    current = _arrays._stream_of(framework, plan, handle, stream, calls=3)
    made, lse = framework.results(q, chosen.return_lse and plan.lse_shape, out, handle)
    # The kernels do not write rows that belong to no sequence.
    unwritten = "seqlens_q" in arrays or "cu_seqlens_q" in arrays
    if unwritten and out is None:
        framework.fill(made, 0.0, handle)
    if unwritten and lse is not None:
        framework.fill(lse, -float("inf"), handle)
    address = framework.address
    inputs = (address(q), address(k), address(v))
    if out is not None:
        _arrays._check_apart(plan, address(made), inputs)
    at = [address(arrays[name]) if name in arrays else 0 for name in ARRAYS]
    _call.launch_served(plan.address, (*inputs, address(made), 0 if lse is None else address(lse)), at, current)
    return made, lse


def with_lengths(arrays: dict[str, Any], q: Any) -> dict[str, Any]:
    """The arrays, where a length that is one number has become an array of it."""
    if not any(type(arrays.get(name)) is int for name in ("seqlens_q", "seqlens_k")):
        return arrays
    batch = arrays["cu_seqlens_q"].shape[0] - 1 if "cu_seqlens_q" in arrays else q.shape[0]
    return {name: lengths(array, batch, q) if type(array) is int else array for name, array in arrays.items()}


def lengths(number: int, batch: int, q: Any) -> Any:
    """int32 [batch] of a length that all sequences have, where q is."""
    framework = _arrays.framework_of("q", q)
    if type(framework) in (_arrays.JAX, _arrays.DLPack):
        return number
    package = framework.package()
    return package.full((batch,), number, dtype=package.int32, **framework.beside(q))


def present(**arrays: Any) -> dict[str, Any]:
    """Those that are there, in the order of ARRAYS."""
    return {name: arrays[name] for name in ARRAYS if arrays.get(name) is not None}


def attention_varlen(
    q: Any,
    k: Any,
    v: Any,
    cu_seqlens_q: Any,
    cu_seqlens_k: Any,
    max_seqlen_q: int,
    max_seqlen_k: int,
    *,
    seqlens_q: Any = None,
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
    out: Any = None,
    stream: Any = None,
    **unknown: NoReturn,
) -> Any:
    """Attention of sequences that lie one behind the other: what flash_attn_varlen_func computes.

    q is [tokens_q, heads, d_head]; k and v are [tokens_k, kv_heads, d_head]. Sequence b has the rows cu_seqlens_q[b] to
    cu_seqlens_q[b + 1] - 1 of q, and likewise of k and v: int32 [batch + 1], where q lies.

    max_seqlen_q, max_seqlen_k  the most rows of a sequence; of a longer one the first so many are taken on a GPU
    seqlens_q, seqlens_k        int32 [batch]: rows that a sequence uses of its own, from the first on; None: all
    block_table                 int32 [batch, pages of a sequence]: k and v are pages of a cache, as those of
                                attention_with_cache(), with seqlens_k keys of each sequence, or as many as cu_seqlens_k
                                says, one of which is None. max_seqlen_k is not read
    k_scale, v_scale            of k and v of float8_e4m3fn, as those of attention_with_cache()

    The other arguments are those of attention(). Log-sum-exp is [heads, tokens_q]. A sequence without keys gives 0
    and -infinity, as do rows of q that belong to no sequence; `out` keeps what it holds in such rows.
    """
    if unknown:
        known = ("seqlens_q", "seqlens_k", "block_table", "k_scale", "v_scale", *OPTIONS)
        _call.refuse_unknown("attention_varlen", known, unknown)
    q, scale = _call.with_positive_scale(q, scale)
    chosen = options(causal, scale, window, softcap, deterministic, return_lse, version)
    _refuse_numbers_beside(stream, k_scale, v_scale)
    arrays, most = packed(
        cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, seqlens_q, seqlens_k, block_table, sinks
    )
    arrays = with_scales(arrays, q, k, v, k_scale, v_scale)
    made, lse = serve(q, k, v, arrays, chosen, most, out, stream)
    return (made, lse) if return_lse else made


def packed(
    cu_seqlens_q: Any,
    cu_seqlens_k: Any,
    max_seqlen_q: int,
    max_seqlen_k: int,
    seqlens_q: Any,
    seqlens_k: Any,
    block_table: Any,
    sinks: Any,
) -> tuple[dict[str, Any], tuple[int, int]]:
    """What attention_varlen() passes on: the arrays, and the most rows of a sequence, 0 of those in pages."""
    if cu_seqlens_q is None:
        raise TypeError("cu_seqlens_q is None: an int32 array [batch + 1] is needed")
    if block_table is None and cu_seqlens_k is None:
        raise TypeError("cu_seqlens_k is None: an int32 array [batch + 1] is needed, or block_table")
    if block_table is not None:
        if (cu_seqlens_k is None) == (seqlens_k is None):
            raise TypeError("block_table is there: one of cu_seqlens_k and seqlens_k is needed, the other must be None")
        if seqlens_k is None:
            seqlens_k, cu_seqlens_k = cu_seqlens_k[1:] - cu_seqlens_k[:-1], None
    arrays = present(
        cu_seqlens_q=cu_seqlens_q,
        cu_seqlens_k=cu_seqlens_k,
        seqlens_q=seqlens_q,
        seqlens_k=seqlens_k,
        block_table=block_table,
        sinks=sinks,
    )
    most_k = 0 if block_table is not None else _size("max_seqlen_k", max_seqlen_k)
    return arrays, (_size("max_seqlen_q", max_seqlen_q), most_k)


def _size(name: str, value: Any) -> int:
    if isinstance(value, bool) or not hasattr(type(value), "__index__"):
        raise TypeError(f"{name} is {value!r}: an integer is needed")
    if not 0 <= int(value) <= 1 << 30:
        raise ValueError(f"{name} is {value}: it must be from 0 to 2^30")
    return max(1, int(value))  # the library has no problem without rows; sequences may have none


def number_of_scale(name: str, scale: Any) -> float:
    try:
        return _call.scale_of(_call._number(name, scale))
    except ValueError:
        raise ValueError(f"{name} is {scale}: it must be a positive number that float32 can hold") from None


def scales_of(name: str, scale: Any, q: Any, heads: int) -> Any:
    """A number, or an array of one, as an array of so many heads; others as they are. ValueError for a number that is
    none of a scale."""
    if scale is None or math.prod(getattr(scale, "shape", ())) != 1:
        return scale
    if not hasattr(scale, "shape"):
        scale = number_of_scale(name, scale)
    framework = _arrays.framework_of("q", q)
    if type(framework) in (_arrays.JAX, _arrays.DLPack):
        return scale
    package = framework.package()
    return package.ones((heads,), dtype=package.float32, **framework.beside(q)) * scale


def with_scales(arrays: dict[str, Any], q: Any, k: Any, v: Any, k_scale: Any, v_scale: Any) -> dict[str, Any]:
    """The arrays, and the factors of k and v for each KV head where they are there."""
    scales = {
        f"{name}_scales": scales_of(f"{name}_scale", scale, q, tensor.shape[-2])
        for name, scale, tensor in (("k", k_scale, k), ("v", v_scale, v))
        if scale is not None
    }
    return present(**arrays, **scales)


def _refuse_numbers_beside(stream: Any, *scales: Any) -> None:
    if stream is not None and any(scale is not None and not hasattr(scale, "shape") for scale in scales):
        raise ValueError("stream is given beside a scale that is a number: pass a float32 array [kv_heads]")


def attention_with_cache(
    q: Any,
    k_cache: Any,
    v_cache: Any,
    seqlens_k: Any,
    block_table: Any = None,
    k_new: Any = None,
    v_new: Any = None,
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
    out: Any = None,
    stream: Any = None,
    **unknown: NoReturn,
) -> Any:
    """Attention over caches of keys and values, as flash_attn_with_kvcache without rotation.

    q is [batch, seq_q, heads, d_head]. The caches are [batch, capacity, kv_heads, d_head], or with block_table
    [n_pages, page_rows, kv_heads, d_head], page_rows a power of two from 16 on: row r of sequence b is row
    r % page_rows of page block_table[b, r // page_rows].

    seqlens_k     int32 [batch]: keys in the cache. What lies behind them has no effect
    block_table   int32 [batch, pages of a sequence]
    k_new, v_new  [batch, seq_new, kv_heads, d_head]: written to the caches behind seqlens_k first, and seen. The
                  caller adds seq_new to seqlens_k afterwards. Rows that do not fit are refused in host memory and left
                  out on a GPU, as is the end of a length above the cache

    k_scale, v_scale  of caches of float8_e4m3fn: what an element of each KV head stands for, times its value. A number,
                  or float32 [kv_heads], positive and finite; None: 1. quantize_e4m3() makes such caches

    The causal mask and windows end at the last key. The other arguments are those of attention(). Caches of
    float8_e4m3fn are served with d_head 128, without window, softcap and sinks.
    """
    if unknown:
        known = ("block_table", "k_new", "v_new", "k_scale", "v_scale", *OPTIONS)
        _call.refuse_unknown("attention_with_cache", known, unknown)
    q, scale = _call.with_positive_scale(q, scale)
    chosen = options(causal, scale, window, softcap, deterministic, return_lse, version)
    _refuse_numbers_beside(stream, k_scale, v_scale)
    if seqlens_k is None:
        raise TypeError("seqlens_k is None: an int32 array [batch] is needed")
    if (k_new is None) != (v_new is None):
        raise ValueError("one of k_new and v_new is None: pass both or none")
    if type(seqlens_k) is int:
        seqlens_k = lengths(seqlens_k, q.shape[0], q)
    if k_new is not None:
        if stream is not None:
            raise ValueError("stream is given beside k_new, which the framework's current stream writes: leave it out")
        seqlens_k = append(k_cache, v_cache, seqlens_k, block_table, k_new, v_new)
    arrays = present(seqlens_k=seqlens_k, block_table=block_table, sinks=sinks)
    arrays = with_scales(arrays, q, k_cache, v_cache, k_scale, v_scale)
    made, lse = serve(q, k_cache, v_cache, arrays, chosen, out=out, stream=stream)
    return (made, lse) if return_lse else made
