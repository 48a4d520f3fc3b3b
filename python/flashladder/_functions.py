"""The functions of the package: each checks its own arguments and runs a Call.

    o = attention(q, k, v, causal=True)

The functions of flashladder.jax are these; flashladder.torch has its own, with gradients.
"""

from __future__ import annotations

from typing import Any, NoReturn

from flashladder._append import append
from flashladder._call import Call, made_for, packed, present, returned, with_max_logits
from flashladder._frameworks import framework_of
from flashladder._options import (
    ARGUMENT_ERRORS,
    options,
    options_of_e4m3,
    positive_scale,
    refuse_unknown,
    renamed,
)

SCALES = {f"{tensor}_scales": f"{tensor}_scale" for tensor in "qkvo"}


def _refuse_numbers(stream: Any, **numbers: Any) -> None:
    """An array made of a number is made in the framework's stream, which another one does not wait for."""
    for name, number in numbers.items():
        if stream is not None and number is not None and not getattr(number, "shape", ()):
            raise ValueError(f"stream is given with {name}, which is a number: pass an array on the GPU")


def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    causal: bool = False,
    scale: float | None = None,
    window: tuple[int, int] | None = None,
    softcap: float | None = None,
    sinks: Any = None,
    seqlens_k: Any = None,
    seqlens_q: Any = None,
    deterministic: Any = None,
    return_lse: bool = False,
    version: str = "best",
    out: Any = None,
    stream: Any = None,
    bias: Any = None,
    alibi_slopes: Any = None,
    return_max_logits: bool = False,
    dropout_p: float = 0.0,
    rng_state: Any = None,
    block_mask: Any = None,
    block_size: tuple[int, int] = (128, 128),
    **unknown: NoReturn,
) -> Any:
    """Compute softmax(scale · q kᵀ) v, without gradients: flashladder.torch and flashladder.jax have them.

    q is [batch, seq_q, heads, d_head]; k and v are [batch, seq_k, kv_heads, d_head], and d_head of v and of the result
    may be another one. All are float16 or bfloat16, on one GPU or in host memory; heads is a multiple of kv_heads, and
    v may be a slice of k. A batch of 1 is broadcast. The elements of a row must be
    contiguous and the other strides multiples of 8 elements, so q.transpose(1, 2) of [batch, heads, seq, d_head] works.

    causal      row i attends to the keys up to i + seq_k - seq_q: the mask is aligned to the bottom right
    scale       finite factor of the scores; None: 1 / √d_head
    window      (left, right): row i attends to keys i + seq_k - seq_q - left to i + seq_k - seq_q + right;
                -1: unlimited
    softcap     scores become softcap · tanh(score / softcap)
    sinks       [heads], float32 or 16 bits: an additional score of every row, not scaled and without a value
    seqlens_k   int32 [batch] or a number: only so many first keys of a sequence are used, and masks end at their last
    seqlens_q   int32 [batch] or a number: only so many first queries are used; the other rows of a new result are 0,
                and their log-sum-exp -infinity
    bias        [batch, heads, seq_q, seq_k], bool (False hides the key), float32 or the dtype of q: added to the scores
                after scale and softcap. Sizes of 1 except seq_k are broadcast; leading dimensions may be missing
    alibi_slopes    float32 [heads] or [batch, heads]: subtracts slope · |i + seq_k - seq_q - j| from the score of key j
    return_max_logits   also return the largest score of each sequence and head, float32 [batch, heads], after scale
                and softcap and before bias and slopes, of all keys that a query attends to; -infinity without keys
    dropout_p   probability, from 0 and less than 1, with which a weight becomes 0, rounded to a multiple of 2^-14; the
                others are divided by 1 - dropout_p. The log-sum-exp is that without dropout
    rng_state   of dropout: int64 [2] on q's device, seed and offset, or two integers. The same ones drop the same
                weights, whatever the kernel and the rest of the batch
    block_mask  [batch, heads, blocks of queries, blocks of keys], bool or uint8: no query of a block with 0 attends to
                a key of it; attention/wgmma neither reads nor multiplies such blocks. Where it is 2, no bias is added
    block_size  queries and keys of a block of block_mask, powers of two from 128 on
    deterministic   "batch": a sequence gives the same bits whatever else is in the batch. True: gradients of
                flashladder.torch have the same bits in every run. False or None: neither is promised
    return_lse  also return the natural logarithm of each row's sum of exponentials, float32 [batch, heads, seq_q]
    version     "best": the fastest kernel for this GPU, by its records; or one of versions(): "attention/wgmma"
    out         array for the result, with the dtype of q, its shape, and d_head of v; None: a new contiguous array
    stream      CUDA stream of the kernel; None: the framework's current stream

    Return out, or (out, log-sum-exp), as arrays of q's framework. On a GPU they are complete when the stream reaches
    this point; in host memory, when the call returns. Raise ValueError or TypeError if an argument is wrong,
    NotImplementedError if no version computes this or gradients are needed, and RuntimeError if the GPU or the emulator
    fails.
    """
    if unknown:
        refuse_unknown(attention, unknown)
    numbers = (causal, scale, window, softcap, deterministic, return_lse, version, return_max_logits, dropout_p)
    chosen = options(*numbers, block_size)
    arrays: dict[str, Any] = {}
    if chosen.return_max_logits or not (
        seqlens_q is seqlens_k is sinks is bias is alibi_slopes is rng_state is block_mask is None
    ):
        _refuse_numbers(stream, seqlens_q=seqlens_q, seqlens_k=seqlens_k)
        framework_of("q", q)
        given = present(
            seqlens_q=seqlens_q,
            seqlens_k=seqlens_k,
            sinks=sinks,
            bias=bias,
            alibi_slopes=alibi_slopes,
            rng_state=rng_state,
            block_mask=block_mask,
        )
        arrays = with_max_logits(q, q.shape[0], made_for(q, k, q.shape[0], given), chosen)
    q, chosen = positive_scale(q, chosen)
    made, lse = Call(q, k, v, chosen, arrays, out=out).run(stream)
    return returned(made, lse, arrays, chosen)


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
    bias: Any = None,
    alibi_slopes: Any = None,
    return_max_logits: bool = False,
    dropout_p: float = 0.0,
    rng_state: Any = None,
    **unknown: NoReturn,
) -> Any:
    """Compute attention of packed sequences, like flash_attn_varlen_func.

    q is [tokens_q, heads, d_head]; k and v are [tokens_k, kv_heads, d_head]. Sequence b has rows cu_seqlens_q[b] to
    cu_seqlens_q[b + 1] - 1 of q, and cu_seqlens_k does the same for k and v. Both are int32 [batch + 1] on q's device.

    max_seqlen_q, max_seqlen_k  maximum number of rows of a sequence; on a GPU, later rows of a longer one are ignored
    seqlens_q, seqlens_k        int32 [batch]: only so many first rows of each sequence are used; None: all
    block_table                 int32 [batch, pages of a sequence]: k and v are pages of a cache, as in
                                attention_with_cache(). Either seqlens_k or cu_seqlens_k gives the number of keys, and
                                the other is None. max_seqlen_k is ignored
    k_scale, v_scale            scales of k and v in float8_e4m3fn or int8, as in attention_with_cache()

    The other arguments are those of attention(). The log-sum-exp is [heads, tokens_q]. A sequence without keys gives 0
    and -infinity, and so do rows of a new result that belong to no sequence; in `out` such rows are not written.
    """
    if unknown:
        refuse_unknown(attention_varlen, unknown)
    chosen = options(causal, scale, window, softcap, deterministic, return_lse, version, return_max_logits, dropout_p)
    _refuse_numbers(stream, k_scale=k_scale, v_scale=v_scale)
    arrays, most = packed(
        cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, seqlens_q, seqlens_k, block_table, sinks
    )
    more = {
        "k_scales": k_scale,
        "v_scales": v_scale,
        "bias": bias,
        "alibi_slopes": alibi_slopes,
        "rng_state": rng_state,
    }
    sequences = cu_seqlens_q.shape[0] - 1
    arrays = with_max_logits(q, sequences, made_for(q, k, sequences, present(**arrays, **more)), chosen)
    q, chosen = positive_scale(q, chosen)
    try:
        made, lse = Call(q, k, v, chosen, arrays, most, out).run(stream)
    except ARGUMENT_ERRORS as error:
        longest = {
            f"seq_{tensor} is {max(1, rows)}": f"max_seqlen_{tensor} is {rows}" for tensor, rows in zip("qk", most)
        }
        raise renamed(error, **SCALES, **longest) from None
    return returned(made, lse, arrays, chosen)


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
    bias: Any = None,
    alibi_slopes: Any = None,
    return_max_logits: bool = False,
    dropout_p: float = 0.0,
    rng_state: Any = None,
    **unknown: NoReturn,
) -> Any:
    """Compute attention over caches of keys and values, like flash_attn_with_kvcache without rotary embedding.

    q is [batch, seq_q, heads, d_head]; k_cache and v_cache are [batch, capacity, kv_heads, d_head]. With block_table
    they are [n_pages, page_rows, kv_heads, d_head] with page_rows a multiple of 16: row r of sequence b is row
    r % page_rows of page block_table[b, r // page_rows].

    seqlens_k     int32 [batch] or a number: keys in the cache. Later rows have no effect
    block_table   int32 [batch, pages of a sequence]
    k_new, v_new  [batch, seq_new, kv_heads, d_head]: first written to the caches after seqlens_k rows, then attended
                  to. Afterwards the caller adds seq_new to seqlens_k. Rows that do not fit, and lengths beyond the
                  cache, are an error in host memory; a GPU ignores the rows that do not fit

    k_scale, v_scale  the scale that dequantizes each KV head of caches in float8_e4m3fn or int8: a number or float32
                  [kv_heads], positive and finite; None: 1. quantize_e4m3() and quantize_int8() make such caches

    The last n keys may be a tree of draft tokens, with n queries. Bit j of tree [batch, n], uint64, shows query i the
    draft token j, and all queries see the keys before:

        token = np.arange(k_cache.shape[1]) - (seqlens_k[:, None] - n)
        shown = tree[..., None] >> token.clip(0, 63)[:, None].astype(np.uint64) & np.uint64(1)
        attention_with_cache(q, k_cache, v_cache, seqlens_k, bias=((token < 0)[:, None] | (shown == 1))[:, None])

    The causal mask and windows are aligned to the last key. The other arguments are those of attention(). Caches in
    float8_e4m3fn and int8 require d_head 128 and support no window, softcap or sinks.
    """
    if unknown:
        refuse_unknown(attention_with_cache, unknown)
    chosen = options(causal, scale, window, softcap, deterministic, return_lse, version, return_max_logits, dropout_p)
    _refuse_numbers(stream, k_scale=k_scale, v_scale=v_scale, seqlens_k=seqlens_k)
    for name, array in (("q", q), ("k_cache", k_cache), ("v_cache", v_cache)):
        framework_of(name, array)
    more = {
        "k_scales": k_scale,
        "v_scales": v_scale,
        "bias": bias,
        "alibi_slopes": alibi_slopes,
        "rng_state": rng_state,
    }
    arrays = cached(q, k_cache, v_cache, seqlens_k, block_table, k_new, v_new, stream, sinks=sinks, **more)
    arrays = with_max_logits(q, q.shape[0], arrays, chosen)
    try:
        q, chosen = positive_scale(q, chosen)
        made, lse = Call(q, k_cache, v_cache, chosen, arrays, out=out).run(stream)
    except ARGUMENT_ERRORS as error:
        raise renamed(error, k="k_cache", v="v_cache", **SCALES) from None
    return returned(made, lse, arrays, chosen)


def cached(
    q: Any,
    k_cache: Any,
    v_cache: Any,
    seqlens_k: Any,
    block_table: Any,
    k_new: Any,
    v_new: Any,
    stream: Any,
    **more: Any,
) -> dict[str, Any]:
    """The arrays of attention_with_cache(), after the new rows are written. `more` are those by name."""
    if seqlens_k is None:
        raise TypeError("seqlens_k is None: an int32 array [batch] is needed")
    if (k_new is None) != (v_new is None):
        raise ValueError("one of k_new and v_new is None: pass both or none")
    lengths = seqlens_k
    if type(seqlens_k) is int:
        lengths = made_for(q, k_cache, q.shape[0], {"seqlens_k": seqlens_k})["seqlens_k"]
    if block_table is k_new is None and all(one is None for one in more.values()):
        return {"seqlens_k": lengths}
    if k_new is not None:
        if stream is not None:
            raise ValueError(
                "stream is given with k_new, which the framework's current stream writes: leave stream out"
            )
        lengths = append(k_cache, v_cache, lengths, block_table, k_new, v_new)
    arrays = present(block_table=block_table, **more)
    return present(seqlens_k=lengths, **made_for(q, k_cache, q.shape[0], arrays))


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
    """Compute softmax(scale · QKᵀ) V of float8_e4m3fn arrays [batch, seq, heads, d_head] of PyTorch, JAX or NumPy.

    q_scale    the scale that dequantizes each head of q: a number or float32 [heads], positive and finite; None: 1.
               k_scale and v_scale, [kv_heads], do the same for k and v, and o_scale for an O in e4m3
    scale_keys number of keys, a power of two from 32 on, that share a scale: k_scale and v_scale are then
               [batch, kv_heads, blocks of the longest sequence]; 0: all keys of a head share it
    cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, seqlens_q, seqlens_k
               sequences of different lengths, as in attention_varlen(): with cu_seqlens q is [tokens, heads, d_head];
               with seqlens only, sequences are padded. O is 0 in rows that belong to no sequence
    accurate   accumulate O in float32: otherwise O is 5 % too small at 4096 keys if V has a nonzero mean
    dtype      of O: "bfloat16", "float16" or "float8_e4m3fn"

    d_head is 64, 128 or 256; heads may share K and V; the causal mask is aligned to the bottom right.
    """
    if unknown:
        refuse_unknown(attention_e4m3, unknown)
    q, chosen = positive_scale(q, options_of_e4m3(causal, scale, accurate, return_lse, scale_keys, dtype, o_scale))
    framework_of("q", q)
    most = (0, 0)
    if cu_seqlens_q is not None or cu_seqlens_k is not None:
        if cu_seqlens_q is None or cu_seqlens_k is None:
            raise TypeError("cu_seqlens_q and cu_seqlens_k: pass both or neither")
        most = packed(cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, None, None, None, None)[1]  # type: ignore[arg-type]
    else:
        for name, most_rows in (("max_seqlen_q", max_seqlen_q), ("max_seqlen_k", max_seqlen_k)):
            if most_rows is not None:
                raise TypeError(f"{name} is {most_rows!r}: leave it out without cu_seqlens_q and cu_seqlens_k")
    arrays: dict[str, Any] = {}
    if not (cu_seqlens_q is seqlens_q is seqlens_k is q_scale is k_scale is v_scale is o_scale is None):
        of_keys = {"k_scales": k_scale, "v_scales": v_scale}
        for name, number in of_keys.items():
            if chosen.scale_keys and number is not None and not hasattr(number, "shape"):
                raise ValueError(
                    f"{name[:-1]} is {number}: with scale_keys an array [batch, kv_heads, blocks of keys] is needed"
                )
        others = {"seqlens_q": seqlens_q, "seqlens_k": seqlens_k, "q_scales": q_scale, "o_scales": o_scale}
        others = others if chosen.scale_keys else {**others, **of_keys}
        sequences = q.shape[0] if cu_seqlens_q is None else cu_seqlens_q.shape[0] - 1
        arrays = {"cu_seqlens_q": cu_seqlens_q, "cu_seqlens_k": cu_seqlens_k, **of_keys}
        arrays = present(**{**arrays, **made_for(q, k, sequences, others)})
    try:
        made, lse = Call(q, k, v, chosen, arrays, most).run()
    except ARGUMENT_ERRORS as error:
        raise renamed(error, **SCALES) from None
    return (made, lse) if return_lse else made
