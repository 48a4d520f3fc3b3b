"""flash-attention's functions with its names and arguments, for PyTorch.

    from flashladder.flash_attn_interface import flash_attn_func, flash_attn_with_kvcache

    out = flash_attn_func(q, k, v, causal=True, window_size=(127, 0))       # [batch, seq, heads, d_head]

The arguments by position are those of flash-attention 2; those that version 3 adds are taken by name. An argument that
the kernels do not compute raises NotImplementedError, which names it and what to use instead. Gradients exist where
flashladder.torch has them. Three things differ: log-sum-exp of a row without keys is -infinity; new rows that do not
fit their cache are an error in host memory; and the attention probabilities of return_attn_probs are always empty.

Heads of other sizes than 64, 128 and 256 are padded with zeros, which copies q, k and v. Caches are not padded.
"""

from __future__ import annotations

from typing import Any

import torch

from flashladder._append import append
from flashladder._call import PAGE_UNIT
from flashladder._options import number
from flashladder.torch import attention, attention_varlen, attention_with_cache

Tensor = Any  # torch.Tensor; this file is checked without PyTorch, too
HEAD_SIZES = (64, 128, 256)
# Arguments that are taken with one value: that value, and what to do instead of passing another.
ONE_VALUE: dict[str, tuple[Any, str]] = {
    "dropout_p": (0.0, "there is no dropout: call model.eval() or pass 0"),
    "alibi_slopes": (None, "scores have no bias: use flash-attention or torch.nn.attention.flex_attention"),
    "qv": (None, "scores have no second product: concatenate q with qv and k with v"),
    "q_descale": (None, "use flashladder.attention_e4m3(q_scale=)"),
    "k_descale": (None, "use flashladder.attention_e4m3(k_scale=), or attention_with_cache(k_scale=)"),
    "v_descale": (None, "use flashladder.attention_e4m3(v_scale=), or attention_with_cache(v_scale=)"),
    "attention_chunk": (0, "there are no chunks: use window_size, or flash_attn_varlen_func with a sequence per chunk"),
    "cu_seqlens_k_new": (None, "write the new rows into the cache first"),
    "scheduler_metadata": (None, "the kernels schedule themselves: leave it out"),
    "sm_margin": (0, "kernels use all SMs: leave it out"),
    "generator": (None, "there is no dropout: leave it out"),
}
HINTS = ("num_splits", "pack_gqa")  # about speed, not about the result


def _options(
    causal: Any,
    softmax_scale: Any,
    window_size: Any,
    softcap: Any,
    deterministic: Any,
    sinks: Any,
    others: dict[str, Any],
) -> dict[str, Any]:
    """flashladder's arguments. NotImplementedError or TypeError where `others` has one that is not served."""
    for name, value in others.items():
        if name in HINTS:
            if value is not None and not (isinstance(value, int) and value >= 0):
                raise ValueError(f"{name} is {value!r}: an integer from 0 on is needed, or None")
            continue
        if name not in ONE_VALUE:
            raise TypeError(f"unexpected argument {name!r}: neither flash-attention 2 nor 3 has it")
        allowed, remedy = ONE_VALUE[name]
        if value is not None and (allowed is None or value != allowed):
            raise NotImplementedError(f"{name} is not served: {remedy}")
    try:
        left, right = (int(side) for side in window_size)
    except (TypeError, ValueError):
        raise TypeError(f"window_size is {window_size!r}: (left, right) is needed, -1 for no end") from None
    if not isinstance(deterministic, bool):
        raise TypeError(f"deterministic is {deterministic!r}: True or False is needed")
    cap = number("softcap", softcap) or 0.0
    return {
        "causal": causal,
        "scale": softmax_scale,
        "window": None if left < 0 and right < 0 else (max(left, -1), max(right, -1)),
        "softcap": cap if cap > 0 else None,
        "sinks": sinks,
        "deterministic": deterministic,
    }


def _dimensions(count: int, axes: str, **tensors: Tensor) -> None:
    for name, tensor in tensors.items():
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{name} is {type(tensor).__name__}: a torch.Tensor is needed")
        if tensor.dim() != count:
            raise ValueError(f"{name} has the shape {tuple(tensor.shape)}: {count} dimensions are needed, {axes}")


def _computed(function: Any, tensors: tuple[Tensor, ...], arrays: tuple[Any, ...], given: dict[str, Any]) -> Any:
    """A function of flashladder.torch on q, k and v with heads of a size that kernels have."""
    d_head = tensors[0].shape[-1]
    wanted = next((size for size in HEAD_SIZES if size >= d_head), None)
    if wanted is None:
        raise NotImplementedError(f"d_head {d_head}: at most {HEAD_SIZES[-1]} is served")
    if wanted != d_head:
        tensors = tuple(torch.nn.functional.pad(one, (0, wanted - one.shape[-1])) for one in tensors)
        given["scale"] = d_head**-0.5 if given["scale"] is None else given["scale"]
    found = function(*tensors, *arrays, **given)
    if wanted == d_head:
        return found
    return (found[0][..., :d_head], *found[1:]) if isinstance(found, tuple) else found[..., :d_head]


def _returned(found: Any, like: Tensor) -> Any:
    """With return_attn_probs: O, log-sum-exp and probabilities, which flash-attention has with dropout alone."""
    return (*found, like.new_empty(0)) if isinstance(found, tuple) else found


def flash_attn_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Any = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    *,
    s_aux: Tensor | None = None,
    **of_version_3: Any,
) -> Any:
    """Attention of [batch, seq, heads, d_head]; k and v may have fewer heads and another length."""
    others = {"dropout_p": dropout_p, "alibi_slopes": alibi_slopes, **of_version_3}
    given = _options(causal, softmax_scale, window_size, softcap, deterministic, s_aux, others)
    _dimensions(4, "[batch, seq, heads, d_head]", q=q, k=k, v=v)
    return _returned(_computed(attention, (q, k, v), (), given | {"return_lse": return_attn_probs}), q)


def flash_attn_kvpacked_func(q: Tensor, kv: Tensor, *arguments: Any, **options: Any) -> Any:
    """flash_attn_func of kv [batch, seq, 2, kv_heads, d_head], with the arguments after v."""
    _dimensions(5, "[batch, seq, 2, kv_heads, d_head]", kv=kv)
    return flash_attn_func(q, *_unpacked("kv", kv, 2), *arguments, **options)


def flash_attn_qkvpacked_func(qkv: Tensor, *arguments: Any, num_heads_q: int | None = None, **options: Any) -> Any:
    """flash_attn_func of qkv [batch, seq, 3, heads, d_head], or [batch, seq, heads of q, k and v, d_head] with
    num_heads_q, and the arguments after v."""
    if num_heads_q is None:
        _dimensions(5, "[batch, seq, 3, heads, d_head]", qkv=qkv)
        return flash_attn_func(*_unpacked("qkv", qkv, 3), *arguments, **options)
    _dimensions(4, "[batch, seq, heads of q, k and v, d_head]", qkv=qkv)
    others = qkv.shape[2] - num_heads_q
    if num_heads_q < 1 or others < 2 or others % 2:
        raise ValueError(f"num_heads_q is {num_heads_q}: qkv has {qkv.shape[2]} heads, of which k and v have as many")
    return flash_attn_func(*qkv.split([num_heads_q, others // 2, others // 2], dim=2), *arguments, **options)


def _unpacked(name: str, tensor: Tensor, count: int) -> tuple[Tensor, ...]:
    if tensor.shape[-3] != count:
        raise ValueError(f"{name} has the shape {tuple(tensor.shape)}: {count} is needed before heads and d_head")
    return tensor.unbind(dim=-3)  # type: ignore[no-any-return]


def flash_attn_varlen_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor | None,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Any = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    block_table: Tensor | None = None,
    *,
    seqused_q: Tensor | None = None,
    seqused_k: Tensor | None = None,
    s_aux: Tensor | None = None,
    **of_version_3: Any,
) -> Any:
    """Attention of packed sequences [tokens, heads, d_head]; with block_table k and v are pages."""
    others = {"dropout_p": dropout_p, "alibi_slopes": alibi_slopes, **of_version_3}
    given = _options(causal, softmax_scale, window_size, softcap, deterministic, s_aux, others)
    _dimensions(3, "[tokens, heads, d_head]", q=q)
    pages = block_table is not None
    _dimensions(4 if pages else 3, "[pages, rows, heads, d_head]" if pages else "[tokens, heads, d_head]", k=k, v=v)
    if pages and seqused_k is not None:
        cu_seqlens_k = None  # it counts the same keys
    given |= {"seqlens_q": seqused_q, "seqlens_k": seqused_k, "block_table": block_table}
    arrays = (cu_seqlens_q, cu_seqlens_k, int(max_seqlen_q), int(max_seqlen_k))
    function = _computed if not pages else lambda call, tensors, arrays, given: call(*tensors, *arrays, **given)
    return _returned(function(attention_varlen, (q, k, v), arrays, given | {"return_lse": return_attn_probs}), q)


def flash_attn_varlen_kvpacked_func(q: Tensor, kv: Tensor, *arguments: Any, **options: Any) -> Any:
    """flash_attn_varlen_func of kv [tokens, 2, kv_heads, d_head], with the arguments after v."""
    _dimensions(4, "[tokens, 2, kv_heads, d_head]", kv=kv)
    return flash_attn_varlen_func(q, *_unpacked("kv", kv, 2), *arguments, **options)


def flash_attn_varlen_qkvpacked_func(
    qkv: Tensor, cu_seqlens: Tensor, max_seqlen: int, *arguments: Any, **options: Any
) -> Any:
    """flash_attn_varlen_func of qkv [tokens, 3, heads, d_head], with the arguments after max_seqlen_k."""
    _dimensions(4, "[tokens, 3, heads, d_head]", qkv=qkv)
    q, k, v = _unpacked("qkv", qkv, 3)
    return flash_attn_varlen_func(q, k, v, cu_seqlens, cu_seqlens, max_seqlen, max_seqlen, *arguments, **options)


# ---- caches ----------------------------------------------------------------------------------------------------------


def flash_attn_with_kvcache(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    k: Tensor | None = None,
    v: Tensor | None = None,
    rotary_cos: Tensor | None = None,
    rotary_sin: Tensor | None = None,
    cache_seqlens: Any = None,
    cache_batch_idx: Tensor | None = None,
    cache_leftpad: Tensor | None = None,
    block_table: Tensor | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    rotary_interleaved: bool = True,
    alibi_slopes: Any = None,
    num_splits: int = 0,
    return_softmax_lse: bool = False,
    *,
    page_table: Tensor | None = None,
    cu_seqlens_q: Tensor | None = None,
    max_seqlen_q: int | None = None,
    rotary_seqlens: Tensor | None = None,
    s_aux: Tensor | None = None,
    **of_version_3: Any,
) -> Any:
    """Attention over caches [batch, capacity, kv_heads, d_head], or pages [pages, rows, kv_heads, d_head].

    k and v are written to the caches after cache_seqlens. num_splits=1 gives a sequence the same bits in every batch;
    another number leaves the splits to the kernel. cache_batch_idx costs no copy where the capacity is a multiple of 16
    and there is no cache_leftpad.
    """
    others = {"alibi_slopes": alibi_slopes, "num_splits": num_splits, **of_version_3}
    given = _options(causal, softmax_scale, window_size, softcap, False, s_aux, others)
    given |= {"return_lse": return_softmax_lse, "deterministic": "batch" if num_splits == 1 else None}
    table = block_table if block_table is not None else page_table
    _dimensions(4, "[batch, capacity, kv_heads, d_head], or pages", k_cache=k_cache, v_cache=v_cache)
    _dimensions(*((4, "[batch, seq, heads, d_head]") if cu_seqlens_q is None else (3, "[tokens, heads, d_head]")), q=q)
    sequences = q.shape[0] if cu_seqlens_q is None else cu_seqlens_q.shape[0] - 1
    if table is not None:
        for name, array in (("cache_batch_idx", cache_batch_idx), ("cache_leftpad", cache_leftpad)):
            if array is not None:
                raise NotImplementedError(f"{name} is not served with pages: change the rows of block_table")
    lengths = cache_seqlens
    if lengths is None:
        lengths = k_cache.shape[1] * (1 if table is None else table.shape[1])
    if isinstance(lengths, int):
        lengths = torch.full((sequences,), lengths, dtype=torch.int32, device=q.device)
    if k is None and (rotary_cos is not None or v is not None):
        raise ValueError("k is None: rotary_cos and v need it")
    if cu_seqlens_q is not None and k is not None:
        raise NotImplementedError("k is not served with cu_seqlens_q: write the new rows into the cache first")
    if rotary_cos is not None:
        first = lengths if rotary_seqlens is None else rotary_seqlens
        k = rotated("k", k, rotary_cos, rotary_sin, first, rotary_interleaved)
        along = causal or given["window"] is not None
        q = rotated("q", q, rotary_cos, rotary_sin, first, rotary_interleaved, step=int(along))
    elif rotary_sin is not None:
        raise ValueError("rotary_sin is given and rotary_cos is None: pass both or none")
    if cache_batch_idx is not None or cache_leftpad is not None:
        if cu_seqlens_q is not None:
            raise NotImplementedError(
                "cu_seqlens_q is not served with cache_batch_idx and cache_leftpad: use page_table"
            )
        if cache_batch_idx is not None:
            table = cache_batch_idx[:, None].to(torch.int32)  # a sequence of the cache is a page
        if k is not None:
            lengths, k, v = append(k_cache, v_cache, lengths, table, k, v), None, None
        if cache_batch_idx is not None and (cache_leftpad is not None or k_cache.shape[1] % PAGE_UNIT):
            k_cache, v_cache, table = k_cache[cache_batch_idx.long()], v_cache[cache_batch_idx.long()], None
        if cache_leftpad is not None:
            return _left_padded(q, k_cache, v_cache, lengths, cache_leftpad, given)
    if cu_seqlens_q is None:
        return attention_with_cache(q, k_cache, v_cache, lengths, table, k, v, **given)
    if table is None:
        table = torch.arange(sequences, dtype=torch.int32, device=q.device)[:, None]
    longest = q.shape[0] if max_seqlen_q is None else max_seqlen_q
    return attention_varlen(
        q, k_cache, v_cache, cu_seqlens_q, None, longest, 0, seqlens_k=lengths, block_table=table, **given
    )


def rotated(
    name: str, x: Tensor, cos: Tensor, sin: Tensor, first: Tensor, interleaved: bool = True, step: int = 1
) -> Tensor:
    """x [batch, seq, heads, d_head] with rotary embedding: row i of sequence b is at position first[b] + step · i.

    cos and sin are [positions, half of the rotated elements]. A pair is two neighbors, or with interleaved=False an
    element of each half.
    """
    if sin is None or cos.dim() != 2 or cos.shape != sin.shape or 2 * cos.shape[1] > x.shape[-1]:
        found = None if sin is None else tuple(sin.shape)
        raise ValueError(
            f"rotary_cos has the shape {tuple(cos.shape)} and rotary_sin {found}: both must be [positions, at most "
            f"half of the {x.shape[-1]} elements of {name}]"
        )
    at = first[:, None].long() + step * torch.arange(x.shape[1], device=x.device)
    at = at.clamp(max=cos.shape[0] - 1)
    c, s = (table[at][:, :, None].float() for table in (cos, sin))
    half = cos.shape[1]
    turning = x[..., : 2 * half].float()
    a, b = (turning[..., ::2], turning[..., 1::2]) if interleaved else (turning[..., :half], turning[..., half:])
    pair = (a * c - b * s, a * s + b * c)
    made = torch.stack(pair, dim=-1).flatten(-2) if interleaved else torch.cat(pair, dim=-1)
    return torch.cat([made.to(x.dtype), x[..., 2 * half :]], dim=-1)


def _left_padded(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, lengths: Tensor, leftpad: Tensor, given: dict[str, Any]
) -> Any:
    """Keys before cache_leftpad are not seen: each sequence is packed from its first key on."""
    (batch, capacity), rows = k_cache.shape[:2], q.shape[1]
    counting = torch.arange(batch + 1, dtype=torch.int32, device=q.device)
    starts = counting * capacity
    starts[:-1] += leftpad
    flat_q, flat_k, flat_v = (tensor.flatten(0, 1) for tensor in (q, k_cache, v_cache))
    found = attention_varlen(
        flat_q, flat_k, flat_v, counting * rows, starts, rows, 2 * capacity,
        seqlens_k=(lengths - leftpad).clamp(min=0).to(torch.int32), **given,
    )  # fmt: skip
    if not isinstance(found, tuple):
        return found.view(q.shape)
    out, lse = found
    return out.view(q.shape), lse.view(lse.shape[0], batch, rows).transpose(0, 1)
