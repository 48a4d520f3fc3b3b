"""Attention for Hugging Face transformers: attn_implementation="flashladder".

    import flashladder.transformers
    model = AutoModelForCausalLM.from_pretrained(NAME, dtype=torch.bfloat16, attn_implementation="flashladder")

Importing this module registers it. It serves prefill, prefill in pieces and decoding, causal or bidirectional, with
grouped heads, in fp16 or bf16; also padding on either side, sliding windows, packed sequences,
static caches, continuous batching, soft-capped scores, attention sinks, and masks and biases of four dimensions.
Padding before the first key costs a copy of K and V in each layer. Padding with gaps, as generate() makes it after a
prompt that is padded on the right, costs a mask with a bool for each query and key. Unsupported features raise
NotImplementedError and are never ignored: attention weights as a result. A model trains where flashladder.torch has
gradients, also with dropout, padding, windows, sinks and soft caps. torch.compile traces all of this with
PyTorch 2.15; 2.11 breaks the graph where the mask of a window or of packed sequences is read, so that fullgraph=True
fails there.
generate_batch() needs transformers 5.23 or newer, because older ones batch continuously with their own implementations
only.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface, masking_utils, modeling_utils

from flashladder.torch import attention, attention_varlen

NAME = "flashladder"
# Keyword arguments by which models ask for more than the kernels compute, and what each asks for.
UNSERVED = {
    "position_bias": "a bias of the scores",
    "head_mask": "a mask of heads",
    "block_table": "a table of pages",
}


def _refuse(what: str, remedy: str = 'attn_implementation="sdpa" serves it') -> None:
    raise NotImplementedError(f'attn_implementation="{NAME}": {what} is not served; {remedy}')


def _is_ours(mask: Any) -> bool:
    """True if attention_mask() made it."""
    if mask.dtype != torch.int32 or mask.dim() != 4:
        return False
    return bool(mask.shape[3] == 1 or (mask.shape[2] == 1 and mask.shape[3] <= 3))


def _bias(mask: Any, query: Any, key: Any) -> Any:
    """A mask of the model's own, [batch, heads, seq_q, seq_k] with a number or a bool for each query and key."""
    if mask.dim() != 4 or mask.shape[3] < key.shape[2]:
        _refuse(f"an attention mask of the shape {tuple(mask.shape)} for {key.shape[2]} keys")
    kinds = (torch.bool, torch.float32, query.dtype)
    return (mask if mask.dtype in kinds else mask.to(torch.float32))[..., : key.shape[2]]


def attention_forward(
    module: Any,
    query: Any,
    key: Any,
    value: Any,
    attention_mask: Any,
    scaling: float | None = None,
    dropout: float = 0.0,
    is_causal: bool | None = None,
    sliding_window: int | None = None,
    cache: Any = None,
    **kwargs: Any,
) -> tuple[Any, None]:
    """The attention function that transformers calls in each layer: [batch, heads, seq, d_head] in, [batch, seq, heads,
    d_head] out."""
    bias = None
    if attention_mask is not None and not _is_ours(attention_mask):
        bias, attention_mask, is_causal = _bias(attention_mask, query, key), None, False
    if kwargs.get("output_attentions"):
        _refuse("output_attentions=True", 'attn_implementation="eager" serves it')
    for name, what in UNSERVED.items():
        if kwargs.get(name) is not None:
            _refuse(f"{name} ({what})")
    causal = bool(getattr(module, "is_causal", True) if is_causal is None else is_causal)
    options: dict[str, Any] = {"causal": causal, "scale": scaling, "dropout_p": float(dropout or 0)}
    if bias is None and sliding_window is not None and key.shape[2] > sliding_window:
        if not causal:
            _refuse(f"a sliding window of {sliding_window} over {key.shape[2]} keys, without a causal mask")
        options["window"] = (sliding_window - 1, -1)
    if kwargs.get("softcap"):
        options["softcap"] = float(kwargs["softcap"])
    if kwargs.get("s_aux") is not None:
        options["sinks"] = kwargs["s_aux"].to(torch.float32)
    if cache is not None:
        key, value = _continued(cache, key, value, module, kwargs)
    q, k, v = (tensor.transpose(1, 2) for tensor in (query, key, value))
    offsets, most = _offsets(attention_mask, q.shape[1], kwargs)
    if offsets is not None:
        rows_q, rows_k, rows_v = (tensor.reshape(-1, *tensor.shape[2:]) for tensor in (q, k, v))
        out = attention_varlen(rows_q, rows_k, rows_v, offsets[0], offsets[1], most[0], most[1], **options)
        return out.reshape(*q.shape[:3], -1), None
    if attention_mask is None:
        return attention(q, k, v, bias=bias, **options), None
    return _attend_lengths(q, k, v, attention_mask, options), None


def _continued(cache: Any, key: Any, value: Any, module: Any, kwargs: dict[str, Any]) -> Any:
    """Keys and values of all sequences of continuous batching, whose cache takes the new ones and says in `kwargs`
    where each sequence begins. Other caches hand their keys on before a layer attends."""
    if not hasattr(cache, "cache_allocators"):
        _refuse(f"cache={type(cache).__name__}")
    return cache.update(key, value, module.layer_idx, kwargs)


def _offsets(mask: Any, longest: int, kwargs: dict[str, Any]) -> tuple[Any, tuple[Any, ...]]:
    """Offsets of packed sequences in q and in k, and their largest number of rows; None if there are none. The caller's
    offsets have priority, because the mask has no keys of a cache."""
    names = (("cu_seq_lens_q", "max_length_q"), ("cu_seq_lens_k", "max_length_k"))
    if kwargs.get("cu_seq_lens_q") is not None and kwargs.get("cu_seq_lens_k") is not None:
        return (
            tuple(kwargs[name].to(torch.int32) for name, _ in names),
            tuple(int(kwargs[most]) if kwargs.get(most) is not None else longest for _, most in names),
        )
    if mask is None or mask.shape[2] == 1:
        return None, (0, 0)
    starts = mask.reshape(-1)
    if not starts.numel():
        _refuse("finding packed sequences while a CUDA graph is captured", "pass cu_seq_lens_q and cu_seq_lens_k")
    return (starts, starts), (longest, longest)


def _attend_lengths(q: Any, k: Any, v: Any, mask: Any, options: dict[str, Any]) -> Any:
    """With the columns that attention_mask() made: keys that end the used ones, queries, keys before the used ones."""
    columns = [column.contiguous() for column in mask[:, 0, 0].unbind(1)]
    if len(columns) == 1:
        return attention(q, k, v, seqlens_k=columns[0], **options)
    last, queries, *firsts = columns
    used = {"seqlens_k": last, "seqlens_q": queries.clamp(min=0)}
    if not firsts:
        out = attention(q, k, v, **used, **options)
    else:  # Padding comes first: the used keys become the first ones of each sequence.
        rows = torch.arange(k.shape[1], device=k.device)[None] + firsts[0][:, None]
        rows = rows.clamp(max=k.shape[1] - 1)[:, :, None, None].long()
        k_first, v_first = (tensor.gather(1, rows.expand(tensor.shape)) for tensor in (k, v))
        out = attention(q, k_first, v_first, **used | {"seqlens_k": (last - firsts[0]).to(torch.int32)}, **options)
    if torch.is_grad_enabled() or q.shape[1] == 1 or not options["causal"]:
        return out
    # generate() takes the first new token from the last row, also where that is padding.
    key, own = torch.arange(k.shape[1], device=k.device), (last - queries + q.shape[1] - 1)[:, None]
    seen = key < last[:, None]
    for first in firsts:
        seen = seen & (key >= first[:, None])
    if "window" in options:
        seen = seen & (key >= own - options["window"][0])
    alone = {name: one for name, one in options.items() if name not in ("causal", "window")}
    of_last = attention(q[:, -1:], k, v, bias=seen[:, None, None], **alone)
    padded = (queries < q.shape[1])[:, None, None, None]
    return torch.cat([out[:, :-1], torch.where(padded, of_last, out[:, -1:])], dim=1)


# ---- masks -----------------------------------------------------------------------------------------------------------


def _cells(function: Any) -> tuple[str, list[Any]]:
    """The name of a function that another one made, and what it keeps of that one's variables."""
    return getattr(function, "__qualname__", ""), [cell.cell_contents for cell in function.__closure__ or ()]


def _parts(function: Any) -> list[Any]:
    """The functions of a mask that all of them let by."""
    name, kept = _cells(function)
    if not name.startswith("and_masks."):
        return [function]
    return [part for parts in kept for one in parts for part in _parts(one)]


def _is_plain(function: Any) -> bool:
    """Causal, with or without a sliding window, or all keys."""
    known = ("causal_mask_function", "bidirectional_mask_function", "sliding_window_overlay.<locals>.inner_mask")
    return all(_cells(part)[0] in known for part in _parts(function))


def _packed(function: Any) -> Any:
    """Numbers of the packed sequences [batch, seq] that a mask keeps apart; None where it does something else."""
    numbers, others = [], []
    for part in _parts(function):
        name, kept = _cells(part)
        if name.startswith("packed_sequence_mask_function."):
            numbers += kept
        elif name.startswith("remap_positions_for_packed_sequence."):  # transformers 5.23 and newer
            others += [one for one in kept if callable(one)]
        else:
            others.append(part)
    return numbers[0] if len(numbers) == 1 and others and all(map(_is_plain, others)) else None


def _starts(numbers: Any) -> Any:
    """cu_seqlens of sequences with these numbers, row after row; none during a capture, which cannot wait for them."""
    if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
        return numbers.new_empty((0,), dtype=torch.int32)
    begins = torch.ones_like(numbers, dtype=torch.bool)
    begins[:, 1:] = numbers[:, 1:] != numbers[:, :-1]
    starts = begins.reshape(-1).nonzero().reshape(-1)
    return torch.cat([starts, starts.new_full((1,), numbers.numel())]).to(torch.int32)


def attention_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: Any = 0,
    kv_offset: Any = 0,
    mask_function: Any = None,
    attention_mask: Any = None,
    local_size: int | None = None,
    allow_is_causal_skip: bool = True,
    allow_is_bidirectional_skip: bool = False,
    device: Any = None,
    **kwargs: Any,
) -> Any:
    """The function that transformers calls once per forward pass to make masks. It returns None where the kernels need
    none, else an error or int32: offsets of packed sequences [1, 1, sequences + 1, 1], or [batch, 1, 1, 1 to 3]: where
    the used keys end, used queries, where the used keys begin. transformers hands on what has four dimensions as it is.
    Masks that are neither causal nor windows nor padding have a bool for each query and key.

    Nothing waits for the GPU but where there is a mask of padding, which may be all ones, or sequences are packed.
    """
    if mask_function is not None and not _is_plain(mask_function):
        numbers = _packed(mask_function)
        if numbers is not None and attention_mask is None:
            return _starts(numbers)[None, None, :, None]
    plain = mask_function is not None and _is_plain(mask_function)

    def with_values(what: str) -> Any:
        """The mask that PyTorch's attention gets, a bool for each query and key."""
        if mask_function is None:
            _refuse(what)
        sizes = (batch_size, q_length, kv_length, q_offset, kv_offset, mask_function, attention_mask, local_size)
        return masking_utils.sdpa_mask(*sizes, allow_is_causal_skip=False, device=device, **kwargs)

    if not plain and not (allow_is_causal_skip or allow_is_bidirectional_skip):
        return with_values("a mask of the model's own")
    if not plain and local_size is not None and (kv_length > local_size or not allow_is_causal_skip):
        return with_values(f"a window or chunks of {local_size} over {kv_length} keys")
    causal = not allow_is_bidirectional_skip
    end = q_offset + q_length - kv_offset if causal else kv_length
    if attention_mask is not None:
        seen = attention_mask[:, -kv_length:] != 0
        if not bool(seen.all()):
            columns = _columns(seen, q_length, end, causal)
            return with_values("a mask with gaps") if columns is None else columns
    if isinstance(end, int) and end >= kv_length:
        return None
    return (torch.zeros((batch_size, 1, 1, 1), dtype=torch.int32, device=device) + end).to(torch.int32)


def _columns(seen: Any, q_length: int, end: Any, causal: bool) -> Any:
    """Lengths of a batch with padding, None where used keys are apart; `end` is the key after the last query's.

    A number of queries below 0 says that all of them are padding.
    """
    counts = seen.sum(1)
    first = seen.int().argmax(1)
    last = seen.shape[1] - seen.flip(1).int().argmax(1)
    last = torch.where(counts > 0, last, first)
    if bool((last - first != counts).any()):
        return None
    queries = last - end + q_length if causal else torch.full_like(last, q_length)
    columns = [last, queries, first]
    kept = columns[: 3 if bool((first > 0).any()) else 2]
    return torch.stack(kept, dim=1).to(torch.int32)[:, None, None, :]


def _without_import(load: Any) -> Any:
    """transformers takes each name with "flash" in it for a package with flash_attn_varlen_func, and imports that."""

    def lazy_import_flash_attention(implementation: str | None, *args: Any, **kwargs: Any) -> Any:
        return None if implementation == NAME else load(implementation, *args, **kwargs)

    return lazy_import_flash_attention


def _listed(check: Any) -> Any:
    """Models with sinks list what with "flash" in its name they work with, and take another of these instead."""

    def adjust(self: Any, implementation: str | None, *args: Any, **kwargs: Any) -> Any:
        listed = getattr(self, "_compatible_flash_implementations", None)
        if implementation == NAME and listed is not None and NAME not in listed:
            self._compatible_flash_implementations = [*listed, NAME]
        return check(self, implementation, *args, **kwargs)

    return adjust


_adjusting = getattr(getattr(modeling_utils, "PreTrainedModel", None), "_check_and_adjust_attn_implementation", None)
if _adjusting is not None:
    modeling_utils.PreTrainedModel._check_and_adjust_attn_implementation = _listed(_adjusting)
if hasattr(modeling_utils, "lazy_import_flash_attention"):
    modeling_utils.lazy_import_flash_attention = _without_import(modeling_utils.lazy_import_flash_attention)
AttentionInterface.register(NAME, attention_forward)
AttentionMaskInterface.register(NAME, attention_mask)
