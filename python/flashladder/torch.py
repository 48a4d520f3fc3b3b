"""Attention for PyTorch: an operator that torch.compile traces, and PyTorch's own scaled_dot_product_attention on it.

    from flashladder.torch import attention, scaled_dot_product_attention

    out = attention(q, k, v, causal=True)                               # [batch, seq, heads, d_head]
    out = scaled_dot_product_attention(query, key, value, is_causal=True)  # [batch, heads, seq, d_head]

The operator is torch.ops.flashladder.attention. It takes CUDA tensors in place, on the current stream, and CPU
tensors in host memory. Autograd has its gradients:

    attention(q, k, v, causal=True).sum().backward()

So have attention_varlen and the log-sum-exp, and so have windows, soft caps, used lengths and sinks. Kernels compute
gradients where d_head is 64, 128 or 256; smaller heads, and v of another size, are padded with zeros in copies. Larger
heads, biases, ALiBi slopes and dropout get gradients from operations of PyTorch, which are slow. Caches have none: call
these under torch.no_grad(). torch.func.grad, vjp and vmap transform attention without these features; forward mode
(jvp) is an error. Under torch.autocast fp32 tensors are cast, as PyTorch's own attention does.

    flashladder.torch.register()
    torch.nn.attention.activate_flash_attention_impl("flashladder")     # PyTorch 2.11 and newer

makes torch.nn.functional.scaled_dot_product_attention itself call the kernels; register() lists the supported calls.
"""

from __future__ import annotations

from typing import Any, NoReturn

import torch

import flashladder
from flashladder import _autograd
from flashladder._call import AXES, Call, made_for, packed, present, returned, with_max_logits
from flashladder._frameworks import attribute, framework_of
from flashladder._functions import cached
from flashladder._library import ARRAYS, Unavailable
from flashladder._options import Options, flag, naming, options, positive_scale, refuse_unknown, sides, size

Tensor = Any  # torch.Tensor; this file is checked without PyTorch, too

# Older versions of torch.compile look up only types that are known before.
_none = torch.empty((0,), dtype=torch.float32, device="cpu")
for _known in (_none, torch.nn.Parameter(_none)):
    framework_of("q", _known)


def _check_tensors(**tensors: Any) -> None:
    for name, tensor in tensors.items():
        if type(tensor) is not torch.Tensor and not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{name} is {type(tensor).__name__}: a torch.Tensor is needed")
        if tensor.is_nested:
            raise TypeError(f"{name} is a nested tensor: pass the rows of all sequences to attention_varlen")


def _kind(tensor: Tensor) -> str:
    return str(tensor.dtype).rpartition(".")[2]


def _check(q: Tensor, k: Tensor, v: Tensor) -> None:
    """The facts that follow from shapes and types, without reading memory, as the fake kernel needs them."""
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if tensor.ndim != 4:
            raise ValueError(f"{name} has the shape {tuple(tensor.shape)}: four dimensions are needed, {AXES}")
        if tensor.dtype not in _autograd.DTYPES:
            raise ValueError(f"{name} is {_kind(tensor)}: float16 or bfloat16 is needed")
        if tensor.dtype != q.dtype:
            raise ValueError(f"{name} is {_kind(tensor)} and q {_kind(q)}: they must be of one type")
        if tensor.device != q.device:
            raise ValueError(f"{name} is on {tensor.device} and q on {q.device}: pass both on one device")
    if k.shape[:3] != v.shape[:3]:
        raise ValueError(
            f"v has the shape {tuple(v.shape)} and k {tuple(k.shape)}: only the last axis may differ, d_head"
        )
    if (k.shape[0] != q.shape[0] and 1 not in (k.shape[0], q.shape[0])) or k.shape[3] != q.shape[3]:
        raise ValueError(f"k has the shape {tuple(k.shape)} and q {tuple(q.shape)}: batch and d_head must be equal")
    if q.device.type not in ("cuda", "cpu", "meta"):
        raise ValueError(f"q is on {q.device}: must be in host memory or on a CUDA GPU")


def _results(q: Tensor, v: Tensor, return_lse: bool) -> tuple[Tensor, Tensor]:
    batch, rows, heads, _ = q.shape
    out = torch.empty((batch, rows, heads, v.shape[3]), dtype=q.dtype, device=q.device)
    lse = torch.empty((batch, heads, rows) if return_lse else (0,), dtype=torch.float32, device=q.device)
    return out, lse


def _attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    causal: bool = False,
    scale: float | None = None,
    return_lse: bool = False,
    version: str = "best",
    ordered: bool = False,
    batch_invariant: bool = False,
) -> tuple[Tensor, Tensor]:
    _check(q, k, v)
    chosen = Options(causal, scale, batch_invariant=batch_invariant, return_lse=return_lse, version=version)
    out, lse = Call(q, k, v, chosen).run()
    return out, torch.empty(0, dtype=torch.float32, device=q.device) if lse is None else lse


def _fake(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    causal: bool = False,
    scale: float | None = None,
    return_lse: bool = False,
    version: str = "best",
    ordered: bool = False,
    batch_invariant: bool = False,
) -> tuple[Tensor, Tensor]:
    _check(q, k, v)
    return _results(q, v, return_lse)


# torch.ops.flashladder.attention(q, k, v, causal, scale, ...) -> (out, lse); lse is empty if unwanted.
_operator = _autograd.define(
    "attention",
    _attention,
    'Tensor q, Tensor k, Tensor v, bool causal=False, float? scale=None, bool return_lse=False, str version="best", '
    "bool ordered=False, bool batch_invariant=False",
    results=2,
)
_operator.register_fake(_fake)
_operator.register_autograd(_autograd.backward, setup_context=_autograd.setup_context)
if hasattr(_operator, "register_vmap"):
    _operator.register_vmap(_autograd.folded(_operator, 3))
    _autograd._of_whole.register_vmap(_autograd.folded(_autograd._of_whole, 6))


# ---- several lengths, caches, windows, sinks and soft caps -----------------------------------------------------------


# A Call with its arrays and Options one by one.
def _serve(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor | None = None,
    cu_seqlens_k: Tensor | None = None,
    seqlens_q: Tensor | None = None,
    seqlens_k: Tensor | None = None,
    block_table: Tensor | None = None,
    sinks: Tensor | None = None,
    k_scales: Tensor | None = None,
    v_scales: Tensor | None = None,
    max_seqlen_q: int = 0,
    max_seqlen_k: int = 0,
    causal: bool = False,
    scale: float | None = None,
    window_left: int = -1,
    window_right: int = -1,
    softcap: float = 0.0,
    batch_invariant: bool = False,
    return_lse: bool = False,
    version: str = "best",
    ordered: bool = False,
    bias: Tensor | None = None,
    alibi_slopes: Tensor | None = None,
    dropout_p: float = 0.0,
    rng_state: Tensor | None = None,
    return_max_logits: bool = False,
    block_mask: Tensor | None = None,
    mask_queries: int = 128,
    mask_keys: int = 128,
) -> tuple[Tensor, Tensor, Tensor]:
    window = None if window_left == window_right == -1 else (window_left, window_right)
    chosen = Options(
        causal, scale, window, softcap, batch_invariant, return_lse, version, return_max_logits=return_max_logits,
        dropout_p=dropout_p, block_size=(mask_queries, mask_keys),
    )  # fmt: skip
    arrays = present(
        cu_seqlens_q=cu_seqlens_q,
        cu_seqlens_k=cu_seqlens_k,
        seqlens_q=seqlens_q,
        seqlens_k=seqlens_k,
        block_table=block_table,
        sinks=sinks,
        k_scales=k_scales,
        v_scales=v_scales,
        bias=bias,
        alibi_slopes=alibi_slopes,
        rng_state=rng_state,
        block_mask=block_mask,
    )
    sequences = q.shape[0] if cu_seqlens_q is None else cu_seqlens_q.shape[0] - 1
    arrays = with_max_logits(q, sequences, arrays, chosen)
    out, lse = Call(q, k, v, chosen, arrays, (max_seqlen_q, max_seqlen_k)).run()
    nothing = torch.empty(0, dtype=torch.float32, device=q.device)
    return out, nothing if lse is None else lse, arrays.get("max_logits", nothing.clone())


def _fake_serve(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *arrays: Any,
    return_lse: bool = False,
    return_max_logits: bool = False,
    **others: Any,
) -> tuple[Tensor, Tensor, Tensor]:
    # Positions are those of the schema: arrays and numbers after q, k and v.
    return_lse = arrays[16] if len(arrays) > 16 else return_lse
    return_max_logits = arrays[23] if len(arrays) > 23 else return_max_logits
    starts = arrays[0] if arrays else others.get("cu_seqlens_q")
    shape = (q.shape[1], q.shape[0]) if q.dim() == 3 else (q.shape[0], q.shape[2], q.shape[1])
    heads = (q.shape[0] if starts is None else starts.shape[0] - 1, q.shape[-2])
    floats = (shape if return_lse else (0,), heads if return_max_logits else (0,))
    lse, most = (torch.empty(one, dtype=torch.float32, device=q.device) for one in floats)
    return torch.empty((*q.shape[:-1], v.shape[-1]), dtype=q.dtype, device=q.device), lse, most


# torch.ops.flashladder.serve(q, k, v, cu_seqlens_q, ...) -> (out, lse, max_logits); an unwanted result is empty.
_serve_operator = _autograd.define(
    "serve",
    _serve,
    "Tensor q, Tensor k, Tensor v, Tensor? cu_seqlens_q=None, Tensor? cu_seqlens_k=None, Tensor? seqlens_q=None, "
    "Tensor? seqlens_k=None, Tensor? block_table=None, Tensor? sinks=None, Tensor? k_scales=None, "
    "Tensor? v_scales=None, SymInt max_seqlen_q=0, SymInt max_seqlen_k=0, bool causal=False, float? scale=None, "
    "SymInt window_left=-1, SymInt window_right=-1, float softcap=0.0, bool batch_invariant=False, "
    'bool return_lse=False, str version="best", bool ordered=False, Tensor? bias=None, Tensor? alibi_slopes=None, '
    "float dropout_p=0.0, Tensor? rng_state=None, bool return_max_logits=False, Tensor? block_mask=None, "
    "int mask_queries=128, int mask_keys=128",
    results=3,
)
_serve_operator.register_fake(_fake_serve)
_serve_operator.register_autograd(_autograd.backward, setup_context=_autograd.setup_context_of_serve)


BIASES = _autograd.BIASES
OPTIONS = (
    "causal", "scale", "window", "softcap", "deterministic", "return_lse", "version", "return_max_logits", "dropout_p",
)  # fmt: skip


def _state(q: Tensor, dropout_p: Any, rng_state: Any = None, generator: Any = None, words: int = 2) -> Any:
    """Seed and offset of dropout: the given ones, else two numbers of a generator, whose state advances. A CUDA graph
    captures the draw, so that each replay has others."""
    if type(dropout_p) is float and dropout_p == 0.0 and rng_state is generator is None:
        return None
    dropout_p = options(dropout_p=dropout_p).dropout_p
    if generator is not None and not isinstance(generator, torch.Generator):
        raise TypeError(f"generator is {type(generator).__name__}: a torch.Generator is needed, or None")
    if rng_state is not None and generator is not None:
        raise TypeError("rng_state and generator: both choose the weights that are dropped; pass one")
    if isinstance(rng_state, (tuple, list)):
        return made_for(q, q, 0, {"rng_state": rng_state})["rng_state"]
    if rng_state is not None or not dropout_p:
        return rng_state
    device = q.device if generator is None else generator.device
    return torch.randint(1 << 62, (words,), dtype=torch.int64, device=device, generator=generator).to(q.device)[:2]


def _is_eager(q: Any) -> bool:
    """True if the package may be called without the dispatcher, which costs more time than the rest of the call."""
    return type(q) is torch.Tensor and not torch.compiler.is_compiling() and not _autograd.are_transformed()


def _operate(
    q: Tensor, k: Tensor, v: Tensor, arrays: dict[str, Any], chosen: Options, most: tuple[int, int] = (0, 0)
) -> Any:
    """A call through the operator, with gradients unless K and V are a cache."""
    if _autograd.are_transformed():
        raise NotImplementedError(_autograd.ONLY_ATTENTION)
    others = {name: arrays.get(name) for name in (*ARRAYS[2:8], *BIASES)}
    wanted = _autograd.wanted_by({"q": q, "k": k, "v": v, **others})
    if wanted:
        caches = ", ".join(name for name in arrays if name not in _autograd.DIFFERENTIABLE)
        if caches:
            said = _autograd.NO_BACKWARD.format(wanted, f"caches ({caches}) have")
            raise NotImplementedError(said.replace("_scales", "_scale"))
        sequences = q.shape[0] if "cu_seqlens_q" not in arrays else arrays["cu_seqlens_q"].shape[0] - 1
        _autograd.refuse_batch(q, v, arrays, chosen)
        if _is_eager(q):
            _autograd.check(q, k, v, _autograd.asked_for(chosen, most), arrays)
            floats = [arrays.get(name) for name in _autograd.FLOATS]
            arrays = with_max_logits(q, sequences, arrays, chosen)
            out, lse = _autograd.apply_eagerly(q, k, v, *floats, chosen, arrays, most, None)
            return returned(out, lse, arrays, chosen)
    left, right = chosen.window or (-1, -1)
    named, biases = ([arrays.get(name) for name in names] for names in (ARRAYS[:8], BIASES))
    out, lse, max_logits = torch.ops.flashladder.serve(
        q, k, v, *named, *most, chosen.causal, chosen.scale, left, right, chosen.softcap, chosen.batch_invariant,
        chosen.return_lse or bool(wanted), chosen.version, chosen.ordered, *biases, chosen.dropout_p,
        arrays.get("rng_state"), chosen.return_max_logits, arrays.get("block_mask"), *chosen.block_size,
    )  # fmt: skip
    return returned(out, lse, {"max_logits": max_logits}, chosen)


def _of_one_batch(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """As many samples of K and V as of Q, whose gradients are then sums over the samples."""
    batches = q.shape[:1], k.shape[:1]
    if batches[0] == batches[1] or (1,) not in batches or not q.dim() == k.dim() == v.dim() == 4:
        return q, k, v
    batch = max(batches)
    return tuple(one.expand(*batch, *one.shape[1:]).contiguous() for one in (q, k, v))


def _cast(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Under torch.autocast, tensors of fp32 and 16 bits become those of its type."""
    kind = tensors[0].device.type
    if kind not in ("cuda", "cpu") or not hasattr(torch, "get_autocast_dtype") or not torch.is_autocast_enabled(kind):
        return tensors
    wanted = torch.get_autocast_dtype(kind)
    casts = (torch.float32, torch.float16, torch.bfloat16)
    return tuple(one.to(wanted) if one.dtype in casts and wanted in casts[1:] else one for one in tensors)


def attention_varlen(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor | None,
    max_seqlen_q: int,
    max_seqlen_k: int,
    *,
    seqlens_q: Tensor | None = None,
    seqlens_k: Tensor | None = None,
    block_table: Tensor | None = None,
    k_scale: Tensor | float | None = None,
    v_scale: Tensor | float | None = None,
    causal: bool = False,
    scale: float | None = None,
    window: tuple[int, int] | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
    deterministic: Any = None,
    return_lse: bool = False,
    version: str = "best",
    bias: Tensor | None = None,
    alibi_slopes: Tensor | None = None,
    return_max_logits: bool = False,
    dropout_p: float = 0.0,
    rng_state: Tensor | tuple[int, int] | None = None,
    generator: Any = None,
) -> Any:
    """flashladder.attention_varlen, which torch.compile(fullgraph=True) traces.

    Autograd differentiates it, and its log-sum-exp, by q, k, v, sinks, bias and alibi_slopes, unless K and V are pages.
    deterministic="batch" gives gradients the same bits in every batch, too.
    """
    given = (causal, scale, window, softcap, deterministic, return_lse, version, return_max_logits, dropout_p)
    biases = {"bias": bias, "alibi_slopes": alibi_slopes}
    tensors = {"q": q, "k": k, "v": v, "sinks": sinks, "k_scale": k_scale, "v_scale": v_scale, **biases}
    _check_tensors(q=q, k=k, v=v)
    _autograd.refuse_forward_mode({name: one for name, one in tensors.items() if isinstance(one, torch.Tensor)})
    q, k, v = _cast(q, k, v)
    biases["rng_state"] = _state(q, dropout_p, rng_state, generator)
    if _is_eager(q) and not _autograd.wanted_by(tensors):
        more: dict[str, Any] = dict(zip(OPTIONS, given, strict=True)) | {
            "sinks": sinks,
            "seqlens_q": seqlens_q,
            "seqlens_k": seqlens_k,
            "block_table": block_table,
            "k_scale": k_scale,
            "v_scale": v_scale,
            **biases,
        }
        return flashladder.attention_varlen(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, **more)
    arrays, most = packed(
        cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, seqlens_q, seqlens_k, block_table, sinks
    )
    arrays = present(**arrays, k_scales=k_scale, v_scales=v_scale, **biases)
    arrays = made_for(q, k, cu_seqlens_q.shape[0] - 1, arrays)
    q, chosen = positive_scale(q, options(*given))
    return _operate(q, k, v, arrays, chosen, most)


def attention_with_cache(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    seqlens_k: Tensor,
    block_table: Tensor | None = None,
    k_new: Tensor | None = None,
    v_new: Tensor | None = None,
    *,
    k_scale: Tensor | float | None = None,
    v_scale: Tensor | float | None = None,
    causal: bool = False,
    scale: float | None = None,
    window: tuple[int, int] | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
    deterministic: Any = None,
    return_lse: bool = False,
    version: str = "best",
    bias: Tensor | None = None,
    alibi_slopes: Tensor | None = None,
    return_max_logits: bool = False,
    dropout_p: float = 0.0,
    rng_state: Tensor | tuple[int, int] | None = None,
    generator: Any = None,
) -> Any:
    """flashladder.attention_with_cache, which torch.compile(fullgraph=True) traces with the rows that it writes."""
    given = (causal, scale, window, softcap, deterministic, return_lse, version, return_max_logits, dropout_p)
    _check_tensors(q=q, k_cache=k_cache, v_cache=v_cache)
    biases = {"bias": bias, "alibi_slopes": alibi_slopes}
    tensors = {"q": q, "k_cache": k_cache, "v_cache": v_cache, "sinks": sinks, "k_new": k_new, "v_new": v_new}
    tensors = {**tensors, "k_scale": k_scale, "v_scale": v_scale, **biases}
    _autograd.refuse_forward_mode({name: one for name, one in tensors.items() if isinstance(one, torch.Tensor)})
    wanted = _autograd.wanted_by(tensors)
    if wanted:
        raise NotImplementedError(_autograd.NO_BACKWARD.format(wanted, _autograd.CACHES))
    (q,) = _cast(q)
    biases["rng_state"] = _state(q, dropout_p, rng_state, generator)
    if _is_eager(q):
        more: dict[str, Any] = dict(zip(OPTIONS, given, strict=True)) | {"sinks": sinks}
        more |= {"k_scale": k_scale, "v_scale": v_scale, **biases}
        return flashladder.attention_with_cache(q, k_cache, v_cache, seqlens_k, block_table, k_new, v_new, **more)
    of_keys = {"k_scales": k_scale, "v_scales": v_scale}
    arrays = cached(q, k_cache, v_cache, seqlens_k, block_table, k_new, v_new, None, sinks=sinks, **of_keys, **biases)
    q, chosen = positive_scale(q, options(*given))
    return _operate(q, k_cache, v_cache, arrays, chosen)


_PYTORCHS_NAMES = {
    "q": "query",
    "k": "key",
    "v": "value",
    "k_cache": "key",
    "v_cache": "value",
    "cu_seqlens_q": "cu_seq_q",
    "cu_seqlens_k": "cu_seq_k",
    "max_seqlen_q": "max_q",
    "max_seqlen_k": "max_k",
    "seqlens_k": "seqused_k",
    "window": "window_size",
    "causal": "is_causal",
    "bias": "attn_mask",
}


@naming(**_PYTORCHS_NAMES)
def varlen_attn(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor | None,
    max_q: int,
    max_k: int,
    *,
    return_aux: Any = None,
    scale: float | None = None,
    window_size: tuple[int, int] = (-1, -1),
    enable_gqa: bool = False,
    seqused_k: Tensor | None = None,
    block_table: Tensor | None = None,
    num_splits: int | None = None,
) -> Any:
    """torch.nn.attention.varlen.varlen_attn, with its arguments: its result, or an error.

    window_size (-1, 0) is the causal mask, aligned to the bottom right as there. num_splits=1 gives a sequence the same
    bits in every batch; other numbers are refused. A paged sequence uses seqused_k keys, or without it the number in
    cu_seq_k.
    """
    _check_tensors(query=query, key=key, value=value)
    if query.dim() > 2 and key.dim() > 2:
        _check_heads(query, key, -2, enable_gqa)
    if return_aux is not None and not hasattr(return_aux, "lse"):
        raise TypeError(f"return_aux is {return_aux!r}: an AuxRequest is needed, or None")
    lse = bool(return_aux is not None and return_aux.lse)
    options = {**_varlen_options(False, scale, window_size, num_splits), "return_lse": lse}
    if block_table is None and cu_seq_k is None:
        raise ValueError("cu_seq_k is None: an int32 tensor [batch + 1] is needed, or block_table")
    offsets = cu_seq_k if block_table is None or seqused_k is None else None
    if cu_seq_k is not None:
        _check_tensors(cu_seq_k=cu_seq_k)
    size("max_seqlen_k", max_k)
    if block_table is None or seqused_k is None or not _may_be_padded(query, cu_seq_q, max_q):
        options = {**options, "seqlens_k": seqused_k, "block_table": block_table}
        return attention_varlen(query, key, value, cu_seq_q, offsets, max_q, max_k, **options)
    padded = _Padded(query, cu_seq_q, max_q)
    found = attention_with_cache(padded.queries(query), key, value, seqused_k, block_table, **options)
    return (padded.rows(found[0]), padded.lse(found[1])) if lse else padded.rows(found)


def _check_heads(query: Tensor, key: Tensor, axis: int, enable_gqa: bool) -> None:
    flag("enable_gqa", enable_gqa)
    heads, kv_heads = query.shape[axis], key.shape[axis]
    if heads != kv_heads and not enable_gqa:
        raise ValueError(f"query has {heads} heads and key has {kv_heads}: set enable_gqa=True")


def _varlen_options(causal: bool, scale: float | None, window: Any, num_splits: int | None) -> dict[str, Any]:
    """Ours for those of PyTorch. A window that ends at the query itself is the causal mask."""
    if not (num_splits is None or (type(num_splits) is int and num_splits in (0, 1))):
        raise NotImplementedError(
            f"num_splits is {num_splits!r}: only 1 is supported, for bits that do not depend on the batch, or None"
        )
    left, right = sides(window)
    return {
        "causal": causal or right == 0,
        "scale": scale,
        "window": (left, -1 if right == 0 else right),
        "deterministic": "batch" if num_splits == 1 else None,
    }


def _may_be_padded(query: Tensor, starts: Tensor, most: Any) -> bool:
    """True if packed sequences have as many rows as sequences of one length would, and offsets that name these."""
    if attribute(starts, "ndim", 0) != 1 or query.dim() != 3:
        return False
    right = isinstance(starts, torch.Tensor) and starts.dtype == torch.int32 and starts.device == query.device
    if not right or query.shape[0] != (starts.shape[0] - 1) * size("max_seqlen_q", most):
        return False
    if query.device.type != "cpu" or torch.compiler.is_compiling():
        return True
    counts = starts.diff()  # those of host memory are checked, as the library does
    return bool(starts[0] >= 0 and starts[-1] <= query.shape[0] and ((counts >= 0) & (counts <= most)).all())


class _Padded:
    """Packed sequences of few queries as [batch, max_q, …], which attention/decode computes faster. Sequences end at
    the last row, as masks do; the offsets stay on their device, so that a graph may capture this."""

    def __init__(self, query: Tensor, starts: Tensor, most: int) -> None:
        rows, batch = query.shape[0], starts.shape[0] - 1
        counts = starts[1:] - starts[:-1]
        positions = torch.arange(most, device=query.device)
        self.source = (starts[1:, None] - most + positions).clamp(0, max(rows - 1, 0)).long()
        row = torch.arange(rows, device=query.device, dtype=starts.dtype)
        sequence = (torch.searchsorted(starts, row, right=True) - 1).clamp(0, batch - 1)
        self.used = (row >= starts[0]) & (row < starts[-1])
        at = sequence * most + row - starts[sequence] + most - counts[sequence]
        self.back = at.clamp(0, max(batch * most - 1, 0)).long()

    def queries(self, query: Tensor) -> Tensor:
        return query[self.source]

    def rows(self, out: Tensor) -> Tensor:
        """[tokens, heads, d_head], 0 in rows that belong to no sequence."""
        return torch.where(self.used[:, None, None], out.flatten(0, 1)[self.back], 0)

    def lse(self, lse: Tensor) -> Tensor:
        """[heads, tokens], -infinity in rows that belong to no sequence."""
        return torch.where(self.used, lse.transpose(0, 1).flatten(1)[:, self.back], -float("inf"))


# ---- block masks of FlexAttention -----------------------------------------------------------------------------------


def _kinds(mask: Any) -> Tensor:
    """[batch, heads, blocks of queries, blocks of keys] of uint8: 0 where a BlockMask hides a block, 1 where mask_mod
    decides about each score, 2 where no score is hidden."""
    columns = mask.kv_indices.shape[-1]
    kinds = torch.zeros((*mask.kv_indices.shape[:-1], columns + 1), dtype=torch.uint8, device=mask.kv_indices.device)
    for kind, count, indices in (
        (1, mask.kv_num_blocks, mask.kv_indices),
        (2, mask.full_kv_num_blocks, mask.full_kv_indices),
    ):
        if count is not None:
            number = torch.arange(columns, device=indices.device)
            used = torch.where(number < count[..., None], indices, columns)
            kinds.scatter_(-1, used.long(), torch.full_like(used, kind, dtype=torch.uint8))
    return kinds[..., :columns].contiguous()


def _of_flex(mask: Any, q: Tensor, k: Tensor, bias: Tensor | None) -> tuple[Tensor, tuple[int, int], Tensor | None]:
    """A BlockMask as block_mask, block_size and a bias, which its partial blocks need."""
    lengths = (q.shape[1], k.shape[1])
    if tuple(mask.seq_lengths) != lengths:
        raise ValueError(f"block_mask is for {tuple(mask.seq_lengths)} queries and keys, and q and k have {lengths}")
    if mask.kv_num_blocks.device != q.device:
        raise ValueError(f"block_mask is on {mask.kv_num_blocks.device} and q on {q.device}: pass both on one device")
    kept = getattr(mask, "_flashladder", None)
    if kept is None:
        from torch.nn.attention.flex_attention import create_mask

        kinds = _kinds(mask)
        batch, heads = kinds.shape[:2]
        partial = bool((kinds == 1).any())
        seen = create_mask(mask.mask_mod, batch, heads, *lengths, device=str(q.device)) if partial else None
        kept = mask._flashladder = (kinds, seen)
    kinds, seen = kept
    if bias is not None:
        kinds = kinds.clamp(max=1)  # blocks without hidden scores get the bias, too
        if seen is not None:
            bias = bias & seen if bias.dtype == torch.bool else torch.where(seen, bias, -float("inf"))
    return kinds, tuple(mask.BLOCK_SIZE), seen if bias is None else bias


# ---- whole sequences -------------------------------------------------------------------------------------------------


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    scale: float | None = None,
    window: tuple[int, int] | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
    seqlens_k: Tensor | None = None,
    seqlens_q: Tensor | None = None,
    deterministic: Any = None,
    return_lse: bool = False,
    version: str = "best",
    bias: Tensor | None = None,
    alibi_slopes: Tensor | None = None,
    return_max_logits: bool = False,
    dropout_p: float = 0.0,
    rng_state: Tensor | tuple[int, int] | None = None,
    generator: Any = None,
    block_mask: Any = None,
    block_size: tuple[int, int] = (128, 128),
    **unknown: NoReturn,
) -> Any:
    """flashladder.attention: softmax(scale · QKᵀ) V of [batch, seq, heads, d_head], with its arguments.

    K and V may have fewer heads and another length. The causal mask is aligned to the bottom right: row i of Q sees the
    keys up to i + seq_k - seq_q. Strides are free but for the last one. torch.compile(fullgraph=True) traces it.

    Autograd differentiates it, and its log-sum-exp, by q, k, v, sinks, bias and alibi_slopes. deterministic=True or
    torch.use_deterministic_algorithms(True) asks for gradients with the same bits in every run, deterministic="batch"
    for results and gradients that do not depend on the batch either. NotImplementedError: no kernel computes them.

    Without rng_state, dropout draws seed and offset from `generator`, or the default one of q's device, whose state
    advances. Its gradients, and those with a block mask, are those of slower operations of PyTorch. max_logits has no
    gradient.

    block_mask may also be a BlockMask of torch.nn.attention.flex_attention. Its partial blocks get a bool for each
    query and key, which the first call makes and the BlockMask keeps.
    """
    if unknown:
        refuse_unknown(attention, unknown)
    given = (causal, scale, window, softcap, deterministic, return_lse, version, return_max_logits, dropout_p)
    _check_tensors(q=q, k=k, v=v)
    more: dict[str, Any] = {"sinks": sinks, "bias": bias, "alibi_slopes": alibi_slopes}
    _autograd.refuse_forward_mode({"q": q, "k": k, "v": v, **more})
    q, k, v = _cast(q, k, v)
    wanted = _autograd.wanted_by({"q": q, "k": k, "v": v, **more})
    eager = _is_eager(q)
    transformed = not eager and _autograd.are_transformed()
    more["rng_state"] = _state(q, dropout_p, rng_state, generator)
    if block_mask is not None and hasattr(block_mask, "kv_num_blocks"):
        block_mask, block_size, more["bias"] = _of_flex(block_mask, q, k, bias)
    arrays = present(seqlens_q=seqlens_q, seqlens_k=seqlens_k, block_mask=block_mask, **more)
    if eager and not wanted:
        return flashladder.attention(q, k, v, block_size=block_size, **dict(zip(OPTIONS, given)), **arrays)
    plain = not arrays and window is None and softcap is None and not return_max_logits
    q, chosen = positive_scale(q, options(*given, block_size))
    if wanted or transformed:
        q, k, v = _of_one_batch(q, k, v)
    if not plain:
        return _operate(q, k, v, made_for(q, k, q.shape[0], arrays), chosen)
    if wanted and eager:
        if not (q.dim() == k.dim() == v.dim() == 4 and q.dtype in _autograd.DTYPES):
            _check(q, k, v)
        _autograd.refuse_batch(q, v, {}, chosen)
        asked = _autograd.Asked(chosen.causal, chosen.scale)
        planned = _autograd.plan(q, k, v, asked) if _autograd.is_exact(q, v) else None
        out, lse = _autograd.apply_eagerly(q, k, v, None, None, None, chosen, {}, (0, 0), planned)
        return (out, lse) if return_lse else out
    with_lse = return_lse or bool(wanted) or transformed
    operate = _autograd.Transformed.apply if transformed else torch.ops.flashladder.attention
    out, lse = operate(q, k, v, chosen.causal, chosen.scale, with_lse, version, chosen.ordered, chosen.batch_invariant)
    return (out, lse) if return_lse else out


@naming(**_PYTORCHS_NAMES)
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """PyTorch's function of this name, with its arguments, on [batch, heads, seq, d_head]: its result, or an error.

    PyTorch aligns the causal mask to the top left, the kernels to the bottom right. So is_causal needs as many queries
    as keys. The result has the memory order of [batch, seq, heads, d_head], as that of PyTorch's flash attention has.
    """
    _check_tensors(query=query, key=key, value=value)
    if attn_mask is not None and is_causal:
        raise ValueError(
            "attn_mask and is_causal=True: pass one of them; PyTorch accepts no mask with is_causal either"
        )
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        if tensor.dim() != 4:
            raise ValueError(
                f"{name} has the shape {tuple(tensor.shape)}: four dimensions are needed, [batch, heads, seq, d_head]"
            )
    if value.shape[:3] != key.shape[:3]:
        raise ValueError(
            f"value has the shape {tuple(value.shape)} and key {tuple(key.shape)}: only the last axis may differ"
        )
    if not isinstance(is_causal, bool):
        raise TypeError(f"is_causal is {is_causal!r}: True or False is needed")
    if is_causal and query.shape[2] != key.shape[2]:
        raise NotImplementedError(
            f"is_causal with {query.shape[2]} queries and {key.shape[2]} keys: here the mask begins at the first key; "
            "use flashladder.torch.attention(causal=True), which ends it at the last key"
        )
    _check_heads(query, key, 1, enable_gqa)
    q, k, v = (tensor.transpose(1, 2) for tensor in (query, key, value))
    return attention(q, k, v, causal=is_causal, scale=scale, bias=attn_mask, dropout_p=dropout_p).transpose(1, 2)


# ---- PyTorch's own scaled_dot_product_attention ----------------------------------------------------------------------

SDPA = "_scaled_dot_product_flash_attention"
VARLEN = "_flash_attention_forward"  # what torch.nn.attention.varlen calls, and PyTorch's own kernel of SDPA
VARLEN_INTO = f"{VARLEN}_no_dropout_inplace"


def _varlen(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor | None,
    most: tuple[int, int],
    given: dict[str, Any],
    seqused_k: Tensor | None,
    block_table: Tensor | None,
    out: Tensor,
) -> Tensor:
    """Log-sum-exp [heads, tokens]; O into `out`, which has q's strides. Gradients are PyTorch's own."""
    chosen = options(**given, return_lse=True)
    with torch.no_grad():
        if block_table is None and cu_seq_k is None:
            raise NotImplementedError("keys without offsets")
        offsets = cu_seq_k if block_table is None or seqused_k is None else None
        arrays, most = packed(cu_seq_q, offsets, *most, None, seqused_k, block_table, None)
        if block_table is None or seqused_k is None or not _may_be_padded(q, cu_seq_q, most[0]):
            return Call(q, k, v, chosen, arrays, most, out).run()[1]
        padded = _Padded(q, cu_seq_q, most[0])
        del arrays["cu_seqlens_q"]
        found, lse = Call(padded.queries(q), k, v, chosen, arrays).run()
        out.copy_(padded.rows(found))
        return padded.lse(lse)


class _Registration:
    """The kernels instead of PyTorch's flash attention and of its backward pass, until remove()."""

    def __init__(self) -> None:
        self.original = torch.library.get_kernel(f"aten::{SDPA}", "CUDA")
        self.original_backward = torch.library.get_kernel(f"aten::{SDPA}_backward", "CUDA")
        self.library = torch.library.Library("aten", "IMPL", "CUDA")
        self.library.impl(SDPA, self.forward, "CUDA", with_keyset=True)
        self.library.impl(f"{SDPA}_backward", self.backward, "CUDA", with_keyset=True)
        self.original_varlen = torch.library.get_kernel(f"aten::{VARLEN}", "CUDA")
        self.library.impl(VARLEN, self.varlen, "CUDA", with_keyset=True)
        if hasattr(torch.ops.aten, VARLEN_INTO):  # newer than 2.11
            self.original_varlen_into = torch.library.get_kernel(f"aten::{VARLEN_INTO}", "CUDA")
            self.library.impl(VARLEN_INTO, self.varlen_into, "CUDA", with_keyset=True)

    def remove(self) -> None:
        self.library = None

    WORDS = 4  # of the memory whose first two are seed and offset; PyTorch's own kernels have two

    def drew(self, dropout_p: float, seed: Tensor) -> bool:
        """True if forward() below dropped weights, whose gradients depend on which these are, or none were."""
        own = isinstance(seed, torch.Tensor) and seed.untyped_storage().nbytes() == 8 * self.WORDS
        return own or not dropout_p

    def forward(
        self,
        keyset: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        return_debug_mask: bool = False,
        *,
        scale: float | None = None,
    ) -> Any:
        """aten::_scaled_dot_product_flash_attention, whose causal mask is aligned to the bottom right, as ours is."""
        if not return_debug_mask:
            out = torch.empty_like(query)
            q, k, v, o = (tensor.transpose(1, 2) for tensor in (query, key, value, out))
            try:
                _check(q, k, v)
                state = _state(q, dropout_p, words=self.WORDS)
                arrays = {} if state is None else {"rng_state": state}
                lse = Call(
                    q, k, v, Options(is_causal, scale, return_lse=True, dropout_p=dropout_p), arrays, out=o
                ).run()[1]
            except (NotImplementedError, ValueError, Unavailable):
                pass  # PyTorch's own kernel takes it, or says what is wrong
            else:
                # The state of a random number generator: with dropout our seed and offset.
                seed, offset = (torch.empty(shape, dtype=torch.uint64, device=query.device) for shape in ((2,), ()))
                seed = seed if state is None else state.view(torch.uint64)
                debug_mask = torch.empty(0, dtype=query.dtype, device=query.device)
                return out, lse, None, None, query.shape[2], key.shape[2], seed, offset, debug_mask
        return self.original.call_boxed(keyset, query, key, value, dropout_p, is_causal, return_debug_mask, scale=scale)

    def backward(
        self,
        keyset: Any,
        grad_out: Tensor,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        out: Tensor,
        logsumexp: Tensor,
        *more: Any,
        scale: float | None = None,
    ) -> Any:
        """aten::_scaled_dot_product_flash_attention_backward: `more` begins with offsets and lengths, and then has
        dropout_p and is_causal."""
        dropout_p, is_causal, seed = more[4:7]
        inputs = (query, key, value, out)
        ours = _autograd.is_exact(query, value) and self.drew(dropout_p, seed)
        if ours and logsumexp.shape == query.shape[:3] and logsumexp.is_contiguous():
            try:
                dout, q, k, v, o = (tensor.transpose(1, 2) for tensor in (grad_out, *inputs))
                ordered = torch.are_deterministic_algorithms_enabled()
                asked = _autograd.Asked(is_causal, scale, dropout_p=dropout_p)
                arrays = {"rng_state": seed.view(torch.int64)} if dropout_p else {}
                found = _autograd.compute(dout, q, k, v, o, logsumexp, asked, ordered, arrays)
            except (NotImplementedError, ValueError, Unavailable):
                pass  # PyTorch's own kernel takes it, or says what is wrong
            else:
                return tuple(gradient.transpose(1, 2) for gradient in found)
        return self.original_backward.call_boxed(keyset, grad_out, *inputs, logsumexp, *more, scale=scale)

    def varlen(self, keyset: Any, query: Tensor, *arguments: Any, **options: Any) -> Any:
        """aten::_flash_attention_forward."""
        out = torch.empty_like(query)
        lse = self._try_varlen(out, query, arguments, options)
        if lse is None:
            return self.original_varlen.call_boxed(keyset, query, *arguments, **options)
        seed, offset = (torch.empty(shape, dtype=torch.uint64, device=query.device) for shape in ((2,), ()))
        return out, lse, seed, offset, torch.empty(0, dtype=query.dtype, device=query.device)

    def varlen_into(self, keyset: Any, out: Tensor, query: Tensor, *arguments: Any, **options: Any) -> Any:
        """aten::_flash_attention_forward_no_dropout_inplace: log-sum-exp."""
        lse = self._try_varlen(out, query, arguments, options)
        if lse is None:
            return self.original_varlen_into.call_boxed(keyset, out, query, *arguments, **options)
        return lse

    def _try_varlen(self, out: Tensor, query: Tensor, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Log-sum-exp, None if PyTorch's own kernel takes the call. `arguments` are those after query."""
        key, value, cu_seq_q, cu_seq_k, max_q, max_k, dropout_p, is_causal, return_debug_mask = arguments
        if cu_seq_q is None or dropout_p != 0.0 or return_debug_mask or options.get("alibi_slopes") is not None:
            return None
        window = [-1 if side is None else side for side in map(options.get, ("window_size_left", "window_size_right"))]
        try:
            ours = _varlen_options(is_causal, options.get("scale"), window, options.get("num_splits"))
            used, table = options.get("seqused_k"), options.get("block_table")
            return _varlen(query, key, value, cu_seq_q, cu_seq_k, (max_q, max_k), ours, used, table, out)
        except (NotImplementedError, ValueError, Unavailable):
            return None  # PyTorch's own kernel takes it, or says what is wrong


def register() -> None:
    """Names the kernels "flashladder" for torch.nn.attention.activate_flash_attention_impl (PyTorch 2.11 and newer).

    Once activated they compute the forward and the backward pass wherever scaled_dot_product_attention chooses
    flash attention for CUDA tensors, and the forward pass of torch.nn.attention.varlen.
    PyTorch's own kernel computes all other calls as before: sizes of heads that no kernel has or that the GPU
    has too little shared memory for, strides that are no multiples of 16 bytes. They have no part in what PyTorch
    computes by other operators: masks, nested tensors, cuDNN, CPUs.
    """
    if not hasattr(torch.nn.attention, "register_flash_attention_impl"):
        raise RuntimeError(f"PyTorch {torch.__version__} has no register_flash_attention_impl: 2.11 or newer is needed")
    torch.nn.attention.register_flash_attention_impl("flashladder", register_fn=_Registration)
