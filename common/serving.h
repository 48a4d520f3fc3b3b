/* serving.h - the parameters of flash_forward where it serves: sequences of several lengths, pages, windows, sinks,
 * caps.
 *
 *     serving_args args = serving_of_one_length(attention);     as attention_args alone
 *     args.window_left = 1023, args.sinks = sinks;
 *
 * A kernel whose configuration has the field `serves` takes serving_args in place of attention_args. Arrays are in
 * device memory and are read there: a launch may be captured, and what they hold may change between launches. Entries
 * that do not fit the tensors are cut: an access outside does not follow from them.
 */
#ifndef FL_SERVING_H
#define FL_SERVING_H

#include "common/abi.h"

#ifdef __cplusplus
typedef struct serving_args : attention_args {
#else
typedef struct serving_args {
    attention_args attention;
#endif
    /* Rows b * batch stride and on belong to sequence b, seq_q and seq_k of them; or, with offsets, the sequences lie
     * one behind the other in tensors of one sample: rows offsets[b] to offsets[b + 1] - 1, at most seq_q or seq_k, and
     * all tensors together have Q_rows or KV_rows. Log-sum-exp is then [heads, Q_rows]. Either tensor may have offsets.
     */
    const int32_t *Q_offsets, *KV_offsets; /* [batch + 1]; NULL: none */
    int32_t Q_rows, KV_rows;               /* read where there are offsets */

    /* Of these rows the first are used; those behind them have no effect, and rows of O and of log-sum-exp behind the
     * used queries are not written. The causal mask and windows are aligned to the last used query and key. */
    const int32_t *Q_lengths, *KV_lengths; /* [batch]; NULL: all rows */

    /* Row r of sequence b of K and V is row r % page_rows of page pages[b * pages_of_sequence + r / page_rows]. K and V
     * are [n_pages, page_rows, KV_heads, d_head], and seq_k is the most keys of a sequence. */
    const int32_t *pages; /* [batch, pages_of_sequence]; NULL: no pages */
    int32_t page_rows, pages_of_sequence, n_pages;

    /* Row i sees keys from i + seq_k - seq_q - window_left to i + seq_k - seq_q + window_right; -1: no end. With the
     * causal mask it sees none behind i + seq_k - seq_q. */
    int32_t window_left, window_right;

    float softcap;      /* scores are softcap * tanh(score * softmax_scale / softcap); 0: they are not */
    const float *sinks; /* [heads]: a score that every row of the head sees, times no scale, and that has no value: a
                           row of no key has O = 0 and its sink for log-sum-exp; NULL: none */
    int32_t split_keys; /* attention/decode: the keys of a sequence are divided into parts of so many, a multiple of
                           B_c, whatever else is in the batch, for the same bits in every batch; 0: into equal shares */
    int32_t scale_keys; /* attention/fp8: each so many keys of a sequence, a power of two from 32 on, have a factor of
                           their own: K_scales and V_scales are [batch, KV_heads, ceil(seq_k / scale_keys)]; 0: none */
    const float *K_scales, *V_scales; /* [KV_heads], of e4m3: an element of K and V stands for its value times that of
                                         its head, which is positive and finite; NULL: 1 */
    const float *Q_scales;            /* [heads], likewise of Q where it is e4m3 */
    const float *O_scales;            /* [heads], of O with O_e4m3: an element stands for its value times it */
    int32_t O_e4m3; /* attention/fp8: O is e4m3, strides count bytes; 0: of the configuration's dtype */
    int32_t unused; /* up to 320 bytes, where tensor maps begin */
} serving_args;

static_assert(sizeof(serving_args) == 320, "tensor maps begin behind it without padding");
static_assert(sizeof(serving_args) % alignof(tensor_maps) == 0, "tensor maps begin behind it without padding");

#ifndef __cplusplus
static_assert(offsetof(serving_args, attention) == 0, "a serving_args begins as attention_args");

/* What has the meaning of attention_args alone. */
static inline serving_args serving_of_one_length(attention_args attention) {
    return (serving_args){.attention = attention, .window_left = -1, .window_right = -1};
}
#endif

#endif
