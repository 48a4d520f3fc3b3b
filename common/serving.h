/* serving.h - parameters of flash_forward for varlen and paged batches, windows, sinks and soft caps.
 *
 *     serving_args args = serving_of_one_length(attention);     as attention_args alone
 *     args.window_left = 1023, args.sinks = sinks;
 *
 * A kernel whose configuration has the field `serves` takes serving_args instead of attention_args. Arrays are in
 * device memory and are read there: a launch may be captured, and what they hold may change between launches.
 * Out-of-range entries are clamped, so they cannot cause an out-of-bounds access.
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
    /* Without offsets sequence b has the seq_q and seq_k rows of batch entry b. With offsets the sequences are packed
     * in tensors of one batch entry: sequence b has rows offsets[b] to offsets[b + 1] - 1, at most seq_q or seq_k, and
     * all tensors together have Q_rows or KV_rows. Log-sum-exp is then [heads, Q_rows]. Either tensor may have offsets.
     */
    const int32_t *Q_offsets, *KV_offsets; /* [batch + 1]; NULL: none */
    int32_t Q_rows, KV_rows;               /* read where there are offsets */

    /* Only the first Q_lengths[b] and KV_lengths[b] rows of sequence b are used. Later rows have no effect, and the
     * corresponding rows of O and log-sum-exp are not written. The causal mask and windows are aligned to the last used
     * query and key. */
    const int32_t *Q_lengths, *KV_lengths; /* [batch]; NULL: all rows */

    /* Row r of sequence b of K and V is row r % page_rows of page pages[b * pages_of_sequence + r / page_rows]. K and V
     * are [n_pages, page_rows, KV_heads, d_head], and seq_k is the largest number of keys of a sequence. */
    const int32_t *pages; /* [batch, pages_of_sequence]; NULL: no pages */
    int32_t page_rows, pages_of_sequence, n_pages;

    /* Row i attends to keys from i + seq_k - seq_q - window_left to i + seq_k - seq_q + window_right; -1: no end. With
     * the causal mask it attends to none after i + seq_k - seq_q. */
    int32_t window_left, window_right;

    float softcap;      /* scores are softcap * tanh(score * softmax_scale / softcap); 0: they are not */
    const float *sinks; /* [heads]: an unscaled score without a value that is added to the softmax of every row; a row
                           without keys has O = 0 and its sink as log-sum-exp; NULL: none */
    int32_t split_keys; /* attention/decode: keys of the smallest part of a sequence, a multiple of B_c, so that its
                           result does not depend on the rest of the batch; 0: split the batch evenly. attention/wgmma
                           with the field `extended`: keys of a part; 0: no parts */
    int32_t scale_keys; /* attention/fp8: number of keys that share a scale, a power of two from 32 on: K_scales and
                           V_scales are [batch, KV_heads, ceil(seq_k / scale_keys)]; 0: none */
    const float *K_scales, *V_scales; /* [KV_heads]: positive, finite scales of e4m3 K and V; NULL: 1 */
    const float *Q_scales;            /* [heads]: scales of an e4m3 Q */
    const float *O_scales;            /* [heads]: scales of O with O_e4m3 */
    int32_t O_e4m3; /* attention/fp8: O is e4m3, strides count bytes; 0: of the configuration's dtype */
    int32_t d_head; /* kernels with the field `extended`: elements of a row of Q and K, a multiple of 8 up to the
                       configuration's; missing columns are zeros */
} serving_args;

static_assert(sizeof(serving_args) == 320, "tensor maps follow it without padding");
static_assert(sizeof(serving_args) % alignof(tensor_maps) == 0, "tensor maps follow it without padding");

/* Elements of a bias: bytes of which 0 hides the key, numbers of the configuration's dtype, or floats. */
enum bias_type { NO_BIAS, BIAS_BYTES, BIAS_HALVES, BIAS_FLOATS };

/* The first parameter of an attention kernel with the field `extended`. */
#ifdef __cplusplus
typedef struct extended_args : serving_args {
#else
typedef struct extended_args {
    serving_args serving;
#endif
    /* Added to the scores after the scale and the cap, [batch, heads, seq_q, seq_k]; a stride of 0 repeats a row. The
     * elements of a row are contiguous. Sequences, queries and keys are numbered as without offsets and pages. */
    const void *bias; /* NULL: none */
    tensor_strides bias_strides;
    const float *alibi_slopes; /* [batch, heads], positive: slope * |i + seq_k - seq_q - j| is subtracted; NULL: none */
    int64_t alibi_batch_stride;
    int32_t bias_type;  /* enum bias_type */
    int32_t bias_pairs; /* not 0: two keys are one aligned load, because the address and all strides are even */
    int32_t d_head_v;   /* elements of a row of V and O, like d_head; missing columns of O are not written */
    int32_t combines;   /* not 0: instead of all else, add up the parts that a launch with split_keys has left */
    float
        *max_logits; /* [batch, heads], -infinity before the launch: the largest score of each sequence and head, after
                        the scale and the cap and before biases, of the keys that a row attends to; NULL: not wanted */
    /* Dropout of weights (kernels/attention/dropout.cuh). */
    const int64_t *rng_state; /* [2]: seed and offset; NULL: the next two fields */
    int64_t rng_seed, rng_offset;
    uint32_t keep_from;  /* dropout_keep_from() of the probability; 0: no dropout */
    float dropout_scale; /* 1 / (1 - probability) */
    /* Blocks of the scores that are hidden, [batch, heads, blocks of queries, blocks of keys] with strides in bytes, of
     * which those of batch and head may be 0. Values are enum block_kind. Queries and keys are numbered as above. */
    const uint8_t *block_mask; /* NULL: none */
    tensor_strides block_mask_strides;
    int32_t mask_query_shift, mask_key_shift; /* log2 of the queries and keys of a block, at least 7 */
    int64_t reserved[6];                      /* up to 512 bytes, where tensor maps begin */
} extended_args;

static_assert(sizeof(extended_args) == 512, "tensor maps follow it without padding");

/* No query of the block attends to a key of it, some may, or a bias changes no score of it. */
enum block_kind { BLOCK_HIDDEN, BLOCK_PARTIAL, BLOCK_FULL };

/* A word that a kernel adds to another one, whose halves hold the random numbers of two weights. It carries into the
 * top bit of a half if that weight is kept. A number is in bits 8 to 14 and 0 to 6 of its half, so the probability is
 * rounded to a multiple of 2^-14. */
static inline uint32_t dropout_keep_from(double probability) {
    const int rounded = (int)(probability * 16384 + 0.5);
    const uint32_t drop = (uint32_t)(rounded < 1 ? 1 : rounded > 16383 ? 16383 : rounded);
    return probability > 0 ? (0x8000 - (drop / 128 * 256 + drop % 128)) * 0x10001 : 0;
}

#ifndef __cplusplus
static_assert(offsetof(serving_args, attention) == 0, "a serving_args begins as attention_args");

/* Parameters with the meaning of plain attention_args. */
static inline serving_args serving_of_one_length(attention_args attention) {
    return (serving_args){.attention = attention, .window_left = -1, .window_right = -1};
}
#endif

#endif
