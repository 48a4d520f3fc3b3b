"""Attention for Hugging Face transformers: attn_implementation="flashladder".

    import flashladder.transformers
    model = AutoModelForCausalLM.from_pretrained(NAME, dtype=torch.bfloat16, attn_implementation="flashladder")

Importing this module registers it. It serves prefill, prefill in pieces and decoding with a growing cache, causal or
bidirectional, with grouped heads, in fp16 or bf16. What the kernels lack is refused with NotImplementedError, never
ignored: padding, other masks, dropout, windows that are shorter than the keys, packed sequences, static caches,
soft-capped scores, attention sinks, attention weights as a result. There is no backward: use torch.no_grad().
"""

from __future__ import annotations

from typing import Any

from transformers import AttentionInterface, AttentionMaskInterface, modeling_utils

from flashladder.torch import attention

NAME = "flashladder"
# Keyword arguments by which models ask for more than softmax(scale * Q K^T) V, and what each asks for.
UNSERVED = {
    "softcap": "soft-capped scores",
    "s_aux": "attention sinks",
    "position_bias": "a bias of the scores",
    "head_mask": "a mask of heads",
    "cu_seq_lens_q": "packed sequences",
    "cu_seq_lens_k": "packed sequences",
    "block_table": "a paged cache",
    "cache": "a paged cache",  # of continuous batching; other caches hand their keys on
}


def _refuse(what: str, remedy: str = 'attn_implementation="sdpa" serves it') -> None:
    raise NotImplementedError(f'attn_implementation="{NAME}": {what} is not served; {remedy}')


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
    **kwargs: Any,
) -> tuple[Any, None]:
    """What transformers calls in each layer: [batch, heads, seq, d_head] in, [batch, seq, heads, d_head] out."""
    if attention_mask is not None:
        _refuse("an attention mask")
    if dropout:
        _refuse(f"dropout of {dropout}", "call model.eval()")
    if sliding_window is not None and key.shape[2] > sliding_window:
        _refuse(f"a sliding window of {sliding_window} over {key.shape[2]} keys")
    if kwargs.get("output_attentions"):
        _refuse("output_attentions=True", 'attn_implementation="eager" serves it')
    for name, what in UNSERVED.items():
        if kwargs.get(name) is not None:
            _refuse(f"{name} ({what})")
    if is_causal is None:
        is_causal = getattr(module, "is_causal", True)
    q, k, v = (tensor.transpose(1, 2) for tensor in (query, key, value))
    return attention(q, k, v, causal=bool(is_causal), scale=scaling), None


def attention_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int = 0,
    kv_offset: int = 0,
    attention_mask: Any = None,
    local_size: int | None = None,
    allow_is_causal_skip: bool = True,
    allow_is_bidirectional_skip: bool = False,
    **kwargs: Any,
) -> None:
    """What transformers calls once a forward pass to make masks: None where the kernels need none, else an error.

    transformers allows no skip where a model asks for a mask of its own. The causal mask of the kernels ends at the
    last key, so the last query must be there.
    """
    if attention_mask is not None and not bool(attention_mask[:, -kv_length:].all()):
        _refuse("a batch with padding", "take sequences of one length, or one at a time")
    if not (allow_is_causal_skip or allow_is_bidirectional_skip):
        _refuse("a mask of the model's own, packed sequences or decoding with a static cache")
    if local_size is not None and (kv_length > local_size or not allow_is_causal_skip):
        _refuse(f"a window or chunks of {local_size} over {kv_length} keys")
    if allow_is_causal_skip and bool(q_offset + q_length != kv_offset + kv_length):
        _refuse(f"a cache of {kv_length} keys with places behind the last query (StaticCache)", "use DynamicCache")


def _without_import(load: Any) -> Any:
    """transformers takes each name with "flash" in it for a package with flash_attn_varlen_func, and imports that."""

    def lazy_import_flash_attention(implementation: str | None, *args: Any, **kwargs: Any) -> Any:
        return None if implementation == NAME else load(implementation, *args, **kwargs)

    return lazy_import_flash_attention


if hasattr(modeling_utils, "lazy_import_flash_attention"):
    modeling_utils.lazy_import_flash_attention = _without_import(modeling_utils.lazy_import_flash_attention)
AttentionInterface.register(NAME, attention_forward)
AttentionMaskInterface.register(NAME, attention_mask)
