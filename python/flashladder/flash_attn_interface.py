"""flash-attention's functions with its names and arguments, for PyTorch.

    from flashladder.flash_attn_interface import flash_attn_func, flash_attn_with_kvcache

    out = flash_attn_func(q, k, v, causal=True, window_size=(127, 0))       # [batch, seq, heads, d_head]

The arguments by position are those of flash-attention 2; those that version 3 adds are taken by name. An argument that
the kernels do not compute raises NotImplementedError, which names it and what to use instead. Gradients exist where
flashladder.torch has them. Three things differ: log-sum-exp of a row without keys is -infinity; new rows that do not
fit their cache are an error in host memory; and the attention probabilities of return_attn_probs are always empty.
Calls over caches and pages compute also where gradients are on, and their backward pass is an error.

Heads whose size is no multiple of 8 are padded with zeros, which copies q, k, v and caches, as flash-attention does.
Heads of v may have another size.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import torch

from flashladder._append import append
from flashladder._autograd import CACHES, NO_BACKWARD, _Function, wanted_by
from flashladder._call import PAGE_UNIT
from flashladder._frameworks import kind_of
from flashladder._options import ARGUMENT_ERRORS, flag, naming, number, renamed, sides, size
from flashladder.torch import attention, attention_varlen, attention_with_cache

Tensor = Any  # torch.Tensor; this file is checked without PyTorch, too
HEAD_UNIT = 8  # kernels have heads of multiples
# Arguments that are taken with one value: that value, why, and what to do instead of passing another.
ONE_VALUE: dict[str, tuple[Any, str]] = {
    "qv": (None, "scores have no second product; concatenate q with qv and k with v"),
    "q_descale": (None, "q has no scale here; use flashladder.attention_e4m3(q_scale=)"),
    "k_descale": (None, "k has no scale here; use attention_e4m3(k_scale=) or attention_with_cache(k_scale=)"),
    "v_descale": (None, "v has no scale here; use attention_e4m3(v_scale=) or attention_with_cache(v_scale=)"),
    "attention_chunk": (0, "there are no chunks; use window_size, or flash_attn_varlen_func with a sequence per chunk"),
    "cu_seqlens_k_new": (None, "new rows have no offsets; write them into the cache first"),
    "scheduler_metadata": (None, "the kernels schedule themselves; leave it out"),
    "sm_margin": (0, "kernels use all SMs; leave it out"),
}
HINTS: dict[str, Any] = {"num_splits": int, "pack_gqa": bool}  # about speed, not about the result
NAMES = {
    "scale": "softmax_scale",
    "window": "window_size",
    "sinks": "s_aux",
    "seqlens_q": "seqused_q",
    "seqlens_k": "seqused_k",
    "return_lse": "return_attn_probs",
}
NAMES_OF_CACHES = NAMES | {"seqlens_k": "cache_seqlens", "return_lse": "return_softmax_lse", "k_new": "k", "v_new": "v"}


def _options(
    causal: Any,
    softmax_scale: Any,
    window_size: Any,
    softcap: Any,
    deterministic: Any,
    sinks: Any,
    alibi_slopes: Any,
    others: dict[str, Any],
) -> dict[str, Any]:
    """flashladder's arguments. NotImplementedError or TypeError where `others` has one that is not computed."""
    for name, value in others.items():
        if name in HINTS:
            if value is not None and (type(value) is not HINTS[name] or not 0 <= value < 1 << 30):
                kind = "an integer from 0 on" if name == "num_splits" else "True or False"
                raise ValueError(f"{name} is {value!r}: {kind} is needed, or None")
            continue
        if name not in ONE_VALUE:
            raise TypeError(f"unexpected argument {name!r}: neither flash-attention 2 nor 3 has it")
        allowed, why = ONE_VALUE[name]
        if value is not None and not (isinstance(value, (int, float)) and value == allowed):
            shown = repr(value) if isinstance(value, (int, float, str)) else kind_of(value)
            raise NotImplementedError(f"{name} is {shown}: {why}")
    try:
        window = sides([max(operator.index(side), -1) for side in window_size])
    except TypeError:
        raise TypeError(f"window_size is {window_size!r}: (left, right) is needed, -1 for no end") from None
    if not isinstance(deterministic, bool):
        raise TypeError(f"deterministic is {deterministic!r}: True or False is needed")
    cap = number("softcap", softcap) or 0.0
    if not math.isfinite(cap):
        raise ValueError(f"softcap is {cap}: a finite number is needed, 0 for no cap")
    return {
        "causal": causal,
        "scale": softmax_scale,
        "window": None if window == (-1, -1) else window,
        "softcap": cap if cap > 0 else None,
        "sinks": sinks,
        "alibi_slopes": alibi_slopes,
        "deterministic": deterministic,
    }


def _dimensions(count: int, axes: str, **tensors: Tensor) -> None:
    for name, tensor in tensors.items():
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{name} is {kind_of(tensor)}: a torch.Tensor is needed")
        if tensor.dim() != count:
            raise ValueError(f"{name} has the shape {tuple(tensor.shape)}: {count} dimensions are needed, {axes}")


class _Inferred(_Function):  # type: ignore[misc]
    """Results over caches as autograd sees them: only a backward pass, which there is none of, is an error."""

    @staticmethod
    def forward(ctx: Any, wanted: str, source: Tensor, *made: Tensor) -> Any:
        ctx.wanted = wanted
        return made if len(made) > 1 else made[0]

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise NotImplementedError(NO_BACKWARD.format(ctx.wanted, CACHES))


def _computed(function: Any, tensors: tuple[Tensor, ...], arrays: tuple[Any, ...], given: dict[str, Any]) -> Any:
    """A function of flashladder.torch on q, k and v, or caches, with heads of a size that kernels have."""
    d_head, of_k, of_v = (one.shape[-1] for one in tensors)
    leaves = dict(zip("qkv", tensors)) | {"s_aux": given["sinks"]}
    leaf = wanted_by(leaves)
    if leaf and (function is attention_with_cache or given.get("block_table") is not None):
        with torch.no_grad():
            found = _computed(function, tensors, arrays, given)
        return _Inferred.apply(leaf, leaves[leaf], *(found if isinstance(found, tuple) else (found,)))
    if of_k == d_head and (d_head % HEAD_UNIT or of_v % HEAD_UNIT):
        tensors = tuple(torch.nn.functional.pad(one, (0, -one.shape[-1] % HEAD_UNIT)) for one in tensors)
        given["scale"] = d_head**-0.5 if given["scale"] is None else given["scale"]
    found = function(*tensors, *arrays, **given)
    if tensors[2].shape[-1] == of_v:
        return found
    return (found[0][..., :of_v], *found[1:]) if isinstance(found, tuple) else found[..., :of_v]


def _returned(found: Any, like: Tensor) -> Any:
    """With return_attn_probs: O, log-sum-exp and probabilities, which flash-attention has with dropout alone."""
    return (*found, like.new_empty(0)) if isinstance(found, tuple) else found


@naming(**NAMES)
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
    dropout = {"dropout_p": dropout_p, "generator": of_version_3.pop("generator", None)}
    options = (causal, softmax_scale, window_size, softcap, deterministic, s_aux, alibi_slopes)
    given = _options(*options, of_version_3) | dropout
    _dimensions(4, "[batch, seq, heads, d_head]", q=q, k=k, v=v)
    return _returned(_computed(attention, (q, k, v), (), given | {"return_lse": return_attn_probs}), q)


@naming(k="kv", v="kv")
def flash_attn_kvpacked_func(q: Tensor, kv: Tensor, *arguments: Any, **options: Any) -> Any:
    """flash_attn_func of kv [batch, seq, 2, kv_heads, d_head], with the arguments after v."""
    _dimensions(5, "[batch, seq, 2, kv_heads, d_head]", kv=kv)
    return flash_attn_func(q, *_unpacked("kv", kv, 2), *arguments, **options)


@naming(q="qkv", k="qkv", v="qkv")
def flash_attn_qkvpacked_func(qkv: Tensor, *arguments: Any, num_heads_q: int | None = None, **options: Any) -> Any:
    """flash_attn_func of qkv [batch, seq, 3, heads, d_head], or [batch, seq, heads of q, k and v, d_head] with
    num_heads_q, and the arguments after v."""
    if num_heads_q is None:
        _dimensions(5, "[batch, seq, 3, heads, d_head]", qkv=qkv)
        return flash_attn_func(*_unpacked("qkv", qkv, 3), *arguments, **options)
    _dimensions(4, "[batch, seq, heads of q, k and v, d_head]", qkv=qkv)
    try:
        others = qkv.shape[2] - operator.index(num_heads_q)
    except TypeError:
        raise TypeError(f"num_heads_q is {num_heads_q!r}: an integer is needed") from None
    if isinstance(num_heads_q, bool) or num_heads_q < 1 or others < 2 or others % 2:
        raise ValueError(
            f"num_heads_q is {num_heads_q}: qkv has {qkv.shape[2]} heads, of which the others must be an even number, "
            "half for keys and half for values"
        )
    return flash_attn_func(*qkv.split([num_heads_q, others // 2, others // 2], dim=2), *arguments, **options)


def _unpacked(name: str, tensor: Tensor, count: int) -> tuple[Tensor, ...]:
    if tensor.shape[-3] != count:
        raise ValueError(f"{name} has the shape {tuple(tensor.shape)}: {count} is needed before heads and d_head")
    return tensor.unbind(dim=-3)  # type: ignore[no-any-return]


@naming(**NAMES)
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
    dropout = {"dropout_p": dropout_p, "generator": of_version_3.pop("generator", None)}
    options = (causal, softmax_scale, window_size, softcap, deterministic, s_aux, alibi_slopes)
    given = _options(*options, of_version_3) | dropout
    _dimensions(3, "[tokens, heads, d_head]", q=q)
    pages = block_table is not None
    if pages:
        _dimensions(2, "[batch, pages of a sequence]", block_table=block_table)
    if cu_seqlens_k is not None:
        _dimensions(1, "[batch + 1]", cu_seqlens_k=cu_seqlens_k)
    _dimensions(4 if pages else 3, "[pages, rows, heads, d_head]" if pages else "[tokens, heads, d_head]", k=k, v=v)
    if pages and seqused_k is not None:
        cu_seqlens_k = None  # it counts the same keys
    given |= {"seqlens_q": seqused_q, "seqlens_k": seqused_k, "block_table": block_table}
    arrays = (cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k)
    return _returned(_computed(attention_varlen, (q, k, v), arrays, given | {"return_lse": return_attn_probs}), q)


@naming(k="kv", v="kv")
def flash_attn_varlen_kvpacked_func(q: Tensor, kv: Tensor, *arguments: Any, **options: Any) -> Any:
    """flash_attn_varlen_func of kv [tokens, 2, kv_heads, d_head], with the arguments after v."""
    _dimensions(4, "[tokens, 2, kv_heads, d_head]", kv=kv)
    return flash_attn_varlen_func(q, *_unpacked("kv", kv, 2), *arguments, **options)


@naming(
    q="qkv",
    k="qkv",
    v="qkv",
    cu_seqlens_q="cu_seqlens",
    cu_seqlens_k="cu_seqlens",
    max_seqlen_q="max_seqlen",
    max_seqlen_k="max_seqlen",
)
def flash_attn_varlen_qkvpacked_func(
    qkv: Tensor, cu_seqlens: Tensor, max_seqlen: int, *arguments: Any, **options: Any
) -> Any:
    """flash_attn_varlen_func of qkv [tokens, 3, heads, d_head], with the arguments after max_seqlen_k."""
    _dimensions(4, "[tokens, 3, heads, d_head]", qkv=qkv)
    q, k, v = _unpacked("qkv", qkv, 3)
    return flash_attn_varlen_func(q, k, v, cu_seqlens, cu_seqlens, max_seqlen, max_seqlen, *arguments, **options)


# ---- caches ----------------------------------------------------------------------------------------------------------


@naming(**NAMES_OF_CACHES)
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
    others = {"num_splits": num_splits, **of_version_3}
    if block_table is not None and page_table is not None:
        raise TypeError("block_table and page_table: both name the pages; pass one")
    name_of_table, table = ("page_table", page_table) if block_table is None else ("block_table", block_table)
    _dimensions(4, "[batch, capacity, kv_heads, d_head], or pages", k_cache=k_cache, v_cache=v_cache)
    if cu_seqlens_q is not None:
        _dimensions(1, "[batch + 1]", cu_seqlens_q=cu_seqlens_q)
    _dimensions(*((4, "[batch, seq, heads, d_head]") if cu_seqlens_q is None else (3, "[tokens, heads, d_head]")), q=q)
    if table is not None:
        _dimensions(2, "[batch, pages of a sequence]", **{name_of_table: table})
    sequences = q.shape[0] if cu_seqlens_q is None else cu_seqlens_q.shape[0] - 1
    given = _options(causal, softmax_scale, window_size, softcap, False, s_aux, alibi_slopes, others)
    given |= {"return_lse": return_softmax_lse, "deterministic": "batch" if num_splits == 1 else None}
    capacity = k_cache.shape[1] * (1 if table is None else table.shape[1])
    for name, array, most in (
        ("cache_batch_idx", cache_batch_idx, k_cache.shape[0] - 1),
        ("cache_leftpad", cache_leftpad, capacity),
        ("rotary_seqlens", rotary_seqlens, capacity),
    ):
        if array is not None:
            _numbers(name, array, sequences, most, q)
            for other, there in ((name_of_table, table), ("cu_seqlens_q", cu_seqlens_q)):
                if there is not None and name != "rotary_seqlens":
                    raise NotImplementedError(
                        f"{name} with {other}: pages are chosen by {name_of_table}; pass it alone"
                    )
    longest = q.shape[0] if max_seqlen_q is None else size("max_seqlen_q", max_seqlen_q)
    lengths = capacity if cache_seqlens is None else cache_seqlens
    if type(lengths) is int:
        lengths = torch.full((sequences,), size("cache_seqlens", lengths), dtype=torch.int32, device=q.device)
    if k is None and (rotary_cos is not None or v is not None):
        raise ValueError("k is None: rotary_cos and v need it; pass k or leave them out")
    if k is not None:
        _dimensions(4, "[batch, seq_new, kv_heads, d_head]", k=k, v=v)
        if k.shape[0] != sequences:
            raise ValueError(f"k has the shape {tuple(k.shape)}: its first axis must be {sequences}, as that of q is")
    flag("rotary_interleaved", rotary_interleaved)
    if rotary_cos is not None:
        if cu_seqlens_q is not None:
            raise NotImplementedError("rotary_cos with cu_seqlens_q: rotate q and k before the call")
        if rotary_seqlens is None:
            _numbers("cache_seqlens", lengths, sequences, capacity, q)
        first = lengths if rotary_seqlens is None else rotary_seqlens
        k = rotated("k", k, rotary_cos, rotary_sin, first, rotary_interleaved)
        along = flag("causal", causal) or given["window"] is not None
        q = rotated("q", q, rotary_cos, rotary_sin, first, rotary_interleaved, step=int(along))
    elif rotary_sin is not None:
        raise ValueError("rotary_sin is given and rotary_cos is None: pass both or none")
    if cache_batch_idx is not None:
        table = cache_batch_idx[:, None]  # a sequence of the cache is a page
    try:
        padded = any(one.shape[-1] % HEAD_UNIT for one in (q, v_cache))
        if k is not None and (padded or not cache_batch_idx is cache_leftpad is cu_seqlens_q is None):
            lengths, k, v = append(k_cache, v_cache, lengths, table, k, v), None, None
        if cache_batch_idx is not None and (cache_leftpad is not None or capacity % PAGE_UNIT):
            k_cache, v_cache, table = k_cache[cache_batch_idx.long()], v_cache[cache_batch_idx.long()], None
        if cache_leftpad is not None:
            return _left_padded(q, k_cache, v_cache, lengths, cache_leftpad, given)
        if cu_seqlens_q is None:
            return _computed(attention_with_cache, (q, k_cache, v_cache), (lengths, table, k, v), given)
        if table is None:
            table = torch.arange(sequences, dtype=torch.int32, device=q.device)[:, None]
        given |= {"seqlens_k": lengths, "block_table": table}
        return _computed(attention_varlen, (q, k_cache, v_cache), (cu_seqlens_q, None, longest, 0), given)
    except ARGUMENT_ERRORS as error:
        names = {} if cu_seqlens_q is None else {"k": "k_cache", "v": "v_cache"}
        raise renamed(error, block_table=name_of_table, **names) from None


def _numbers(name: str, array: Tensor, sequences: int, most: int, like: Tensor) -> None:
    """Check int32 [sequences]; in host memory also that each is from 0 to `most`."""
    _dimensions(1, "[batch]", **{name: array})
    if array.dtype != torch.int32:
        raise ValueError(f"{name} is {array.dtype}: int32 is needed")
    if array.shape[0] != sequences:
        raise ValueError(f"{name} has the shape {tuple(array.shape)}: ({sequences},) is needed, as q has {sequences}")
    if array.device != like.device:
        raise ValueError(f"{name} is on {array.device} and q on {like.device}: pass both on one device")
    if array.device.type == "cpu" and not torch.compiler.is_compiling():
        for b, value in enumerate(array.tolist()):
            if not 0 <= value <= most:
                raise ValueError(f"{name}[{b}] is {value}: it must be from 0 to {most}")


def rotated(
    name: str, x: Tensor, cos: Tensor, sin: Tensor, first: Tensor, interleaved: bool = True, step: int = 1
) -> Tensor:
    """x [batch, seq, heads, d_head] with rotary embedding: row i of sequence b is at position first[b] + step · i.

    cos and sin are [positions, half of the rotated elements]. A pair is two neighbors, or with interleaved=False an
    element of each half. Positions beyond those of cos are an error in host memory, and on a GPU the last one.
    """
    _dimensions(2, f"[positions, at most half of the {x.shape[-1]} elements of {name}]", rotary_cos=cos, rotary_sin=sin)
    for table, array in (("rotary_cos", cos), ("rotary_sin", sin)):
        if not array.is_floating_point():
            raise ValueError(f"{table} is {array.dtype}: float32, float16 or bfloat16 is needed")
        if array.device != x.device:
            raise ValueError(f"{table} is on {array.device} and {name} on {x.device}: pass both on one device")
    if cos.shape != sin.shape or 2 * cos.shape[1] > x.shape[-1]:
        raise ValueError(
            f"rotary_cos has the shape {tuple(cos.shape)} and rotary_sin {tuple(sin.shape)}: both must be [positions, "
            f"at most half of the {x.shape[-1]} elements of {name}]"
        )
    at = first[:, None].long() + step * torch.arange(x.shape[1], device=x.device)
    if x.device.type == "cpu" and not torch.compiler.is_compiling() and int(at.amax()) >= cos.shape[0]:
        raise ValueError(f"rotary_cos has {cos.shape[0]} positions: {name} needs position {int(at.amax())}")
    at = at.clamp(0, cos.shape[0] - 1)
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
    arrays = (counting * rows, starts, rows, 2 * capacity)
    given |= {"seqlens_k": (lengths - leftpad).clamp(min=0).to(torch.int32)}
    found = _computed(attention_varlen, (flat_q, flat_k, flat_v), arrays, given)
    if not isinstance(found, tuple):
        return found.view(*q.shape[:-1], -1)
    out, lse = found
    return out.view(*q.shape[:-1], -1), lse.view(lse.shape[0], batch, rows).transpose(0, 1)
