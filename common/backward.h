/* backward.h - configuration, parameters and launch shapes of the backward-pass kernels.
 *
 *     flash_backward<backward_config{FP16, 128, 64, 64, 4, MMA_SYNC, true}>
 *     backward_args args = {.attention = attention, .dO = dO, .dQ = dQ, .dK = dK, .dV = dV, .delta = delta};
 *
 * Given dO, the gradient of a scalar loss with respect to O, the kernels compute dQ, dK and dV (FlashAttention-2,
 * section 3.1.2). With S = scale Q Kᵀ, P = softmax(S), O = P V, and delta, the row sums of dO ∘ O:
 *
 *     dV = Pᵀ dO    dP = dO Vᵀ    dS = P ∘ (dP - delta)    dQ = scale dS K    dK = scale dSᵀ Q
 *
 * A pass launches up to three kernels: row_sums computes delta, flash_backward computes the gradients, and round_dQ
 * rounds the fp32 accumulator of dQ to 16 bits and adds up the gradients of sinks. round_dQ runs only with `dQ_sums`,
 * and if the last CTA in order rounds dQ only for sinks.
 *
 * A soft cap replaces S by softcap * tanh(S / softcap), so dS gets the factor 1 - tanh(S / softcap)². A sink is in the
 * log-sum-exp and has no value: dP = 0 there, so its gradient is the sum of -exp(sink - log-sum-exp) * delta.
 *
 * Kernels that use TMA copies take the tensor maps as a second parameter. The map of O describes dO.
 *
 * Each field of the configuration is a row of common/backward_fields.h.
 */
#ifndef FL_BACKWARD_H
#define FL_BACKWARD_H

#include "common/config.h"

typedef struct backward_config {
#define FIELD(type, name, word, ...) type name;
#include "common/backward_fields.h"
} backward_config;

/* O and LSE of attention_args are inputs, from the forward pass. dO has the strides of O, dQ those of Q, dK those of K
 * and dV those of V.
 *
 * With any_rows there may be any number of queries and keys, and the causal mask is aligned to the bottom right. With
 * tensor_copies the tensor maps describe Q, K and V; the strides of Q, K and V are those of dQ, dK and dV. The
 * workspace is padded to full Q blocks: `delta` is [batch, heads, blocks, 2, B_r], log-sum-exp * log2 e and delta of
 * each block, and `sums` [batch, heads, blocks, B_r * d_head], where a block is [d_head / 64][4 warps][8 tiles][32
 * lanes][4], as wgmma leaves it; without tensor_copies an element of all 32 lanes before the next element. row_sums
 * sets the turns and the words before them to 0. With in_order and tensor_copies it does not clear the accumulator: the
 * first CTA in order stores its partial result, and the last rounds dQ. */
#ifdef __cplusplus
typedef struct backward_args : attention_args {
#else
typedef struct backward_args {
    attention_args attention;
#endif
    const void *dO;
    void *dQ;
    void *dK;
    void *dV;
    float *delta;   /* [batch, heads, seq_q]: row_sums writes it, and the other values of each query row */
    float *sums;    /* with dQ_sums: dQ / scale as fp32 [batch, heads, seq_q, d_head], which row_sums sets to 0 */
    int32_t *turns; /* with in_order: backward_turns() words for each Q block, 0 before each pass, and after it without
                       any_rows; with any_rows after BACKWARD_COUNTERS words */
    int64_t unused; /* up to 256 bytes, where tensor maps begin */
} backward_args;

static_assert(sizeof(backward_args) == 256, "tensor maps follow it without padding");

/* Parameters of a configuration with the field `serves`, whose features are those of serving_args. Without offsets
 * sequence b is batch entry b, and all_Q_rows is batch * seq_q. With offsets, of queries and of keys, Q, dO, O and dQ
 * are [all_Q_rows, heads, d_head], K, V, dK and dV [all_KV_rows, KV_heads, d_head], and sequence b has rows offsets[b]
 * to offsets[b + 1] - 1, at most seq_q or seq_k, perhaps none; log-sum-exp is [heads, all_Q_rows]. With lengths a
 * sequence uses only its first rows. The workspace has the blocks of all sequences: `delta` is [heads,
 * backward_Q_blocks(), 2, B_r], and the accumulator and the turns have as many blocks. Arrays are in device memory and
 * are read there; out-of-range entries are clamped. Gradients of rows that no sequence uses become 0. */
#ifdef __cplusplus
typedef struct backward_serving_args : backward_args {
#else
typedef struct backward_serving_args {
    backward_args backward;
#endif
    const int32_t *Q_offsets, *KV_offsets; /* [batch + 1]; NULL: none */
    const int32_t *Q_lengths, *KV_lengths; /* [batch]; NULL: all rows */
    const float *sinks;                    /* [heads]; NULL: none */
    float *dsinks;                         /* [heads]: gradients of the sinks, which round_dQ writes */
    int32_t window_left, window_right;     /* -1: no end */
    float softcap;                         /* 0: none */
    int32_t unused_word;                   /* up to 320 bytes, where tensor maps begin */
} backward_serving_args;

static_assert(sizeof(backward_serving_args) == 320, "tensor maps follow it without padding");

/* Parameters of a configuration with any_rows whose threads copy: here the strides of Q, K, V and O describe those
 * tensors, and the gradients have their own. */
#ifdef __cplusplus
typedef struct backward_strided_args : backward_serving_args {
#else
typedef struct backward_strided_args {
    backward_serving_args serving;
#endif
    tensor_strides dQ_strides, dK_strides, dV_strides;
} backward_strided_args;

/* Warps of a CTA of both small kernels. One warp processes 32 chunks of 16 bytes, of one row or of several. */
enum { BACKWARD_SMALL_THREADS = 128 };

/* Words before the turns with any_rows: the first counts the KV blocks that CTAs have fetched. */
enum { BACKWARD_COUNTERS = 4 };

/* Rows of a CTA of the small kernels. */
FL_CONFIG_FN int backward_small_rows(const backward_config *config) {
    return 8 * BACKWARD_SMALL_THREADS / config->d_head;
}

/* Padding bytes of a row in shared memory, which spread the rows that ldmatrix reads over the banks. */
FL_CONFIG_FN int backward_padding(const backward_config *config) {
    return config->instruction == MMA_SYNC ? 16 : 0;
}

/* Bytes of a row of d_head elements in shared memory. */
FL_CONFIG_FN int backward_row_bytes(const backward_config *config) {
    return config->d_head * 2 + backward_padding(config);
}

/* Rows in shared memory: K and V, and a Q block and its dO for each stage. Without the tensor cores only a block of two
 * tensors. */
FL_CONFIG_FN int backward_smem_rows(const backward_config *config) {
    const int Q_blocks = config->stages ? config->stages : 1;
    return config->instruction == FMA ? 2 * config->B_r : 2 * (config->B_c + config->B_r * Q_blocks);
}

/* True if two warpgroups compute everything, dQ of a Q block together with dV of the next one. */
FL_CONFIG_FN int backward_late_dQ(const backward_config *config) {
    return config->any_rows && config->tensor_copies && config->n_warps == 8;
}

/* Number of dO blocks in shared memory with any_rows and mma.sync: with d_head 64 as many as Q blocks. */
FL_CONFIG_FN int backward_dO_stages(const backward_config *config) {
    return config->d_head == 64 && config->stages ? config->stages : 1;
}

/* True if P is stored where dS is, with any_rows and mma.sync. */
FL_CONFIG_FN int backward_P_in_dS(const backward_config *config) {
    return config->d_head == 128 && !config->stages;
}

/* Bytes of dynamic shared memory with any_rows and mma.sync: K, V, the Q and dO blocks with a value for each row, dS,
 * from d_head 128 on P, mbarriers, and with in_order 16 bytes for each warp. */
FL_CONFIG_FN int backward_mma_smem_bytes(const backward_config *config) {
    const int Q_blocks = config->stages ? config->stages : 1, dO_blocks = backward_dO_stages(config);
    const int rows = 2 * config->B_c + config->B_r * (Q_blocks + dO_blocks);
    const int scores = config->d_head == 64 || backward_P_in_dS(config) ? 1 : 2;
    const int mbarriers = 2 * Q_blocks + 2 * dO_blocks + 2 + (config->in_order ? 5 : 3) * config->n_warps;
    return rows * 2 * config->d_head + 4 * config->B_r * (Q_blocks + dO_blocks) +
           scores * 2 * config->B_c * config->B_r + 8 * mbarriers;
}

/* Bytes of dynamic shared memory: the rows, log-sum-exp and delta of the Q blocks, and with dQ_sums dS of each. Blocks
 * begin at multiples of 1024 bytes with wgmma, and 1024 bytes hold all mbarriers with TMA copies. */
FL_CONFIG_FN int backward_smem_bytes(const backward_config *config) {
    const int rows = backward_smem_rows(config) * backward_row_bytes(config);
    const int Q_blocks = config->stages ? config->stages : 1, statistics = 8 * config->B_r * Q_blocks;
    if (config->any_rows && !config->tensor_copies) return backward_mma_smem_bytes(config);
    if (backward_late_dQ(config))
        return rows + statistics + 2 * config->B_c * config->B_r * (config->d_head == 64 ? 2 : 1) + 256;
    const int dS = config->dQ_sums ? config->B_c * (2 * config->B_r + backward_padding(config)) : 0;
    const int P = config->d_head == 256 ? dS : 0;
    return rows + statistics + (dS + P) * Q_blocks + (config->instruction == WGMMA ? 1024 : 0) +
           (config->tensor_copies ? 1024 : 0);
}

FL_CONFIG_FN int backward_threads(const backward_config *config) {
    return 32 * config->n_warps;
}

/* Number of KV blocks of a KV head, or of a head: with serve those of all sequences, plus one for each sequence. */
FL_CONFIG_FN int64_t backward_KV_blocks(const backward_config *config, const attention_args *args) {
    return config->serves ? (int64_t)args->all_KV_rows / config->B_c + args->batch
                          : ((int64_t)args->seq_k + config->B_c - 1) / config->B_c;
}

/* Number of Q blocks of a head, counted in the same way. */
FL_CONFIG_FN int64_t backward_Q_blocks(const backward_config *config, const attention_args *args) {
    return config->serves ? (int64_t)args->all_Q_rows / config->B_r + args->batch
                          : ((int64_t)args->seq_q + config->B_r - 1) / config->B_r;
}

/* True if CTAs of an any_rows kernel fetch KV blocks dynamically. With in_order a CTA waits only for CTAs that fetched
 * before it, and with d_head 256 and TMA K and V of the next block are copied during the last product. */
FL_CONFIG_FN int backward_draws(const backward_config *config) {
    return config->in_order || (config->d_head == 256 && config->tensor_copies);
}

/* True if the last CTA in order rounds dQ. Otherwise row_sums clears the accumulator and round_dQ rounds it. */
FL_CONFIG_FN int backward_rounds_in_order(const backward_config *config) {
    return config->in_order && config->any_rows && config->tensor_copies;
}

/* Number of turns of a Q block with in_order: without tensor_copies each warp waits for the turn of its part of dQ. */
FL_CONFIG_FN int backward_turns(const backward_config *config) {
    return config->any_rows && !config->tensor_copies ? config->n_warps : 1;
}

/* Number of CTAs in x. A CTA computes one KV block and, without dQ_sums, also the Q block with the same number. x
 * covers the KV blocks of one head; with any_rows, but without serve, it covers those of all KV heads and batch
 * entries. If CTAs fetch their blocks dynamically, x is the number of SMs, or the number of KV blocks if that is
 * smaller; without tensor_copies each CTA fetches one. */
FL_CONFIG_FN int64_t backward_grid_x(const backward_config *config, const attention_args *args,
                                     int64_t multiprocessors) {
    const int64_t blocks = backward_KV_blocks(config, args), samples = config->serves ? 1 : args->batch;
    const int64_t all = blocks * args->KV_heads * samples;
    const int64_t drawing = all < multiprocessors || !config->tensor_copies ? all : multiprocessors;
    return config->any_rows && backward_draws(config) ? drawing : !config->any_rows || config->serves ? blocks : all;
}

FL_CONFIG_FN int64_t backward_grid_y(const backward_config *config, const attention_args *args) {
    const int64_t of_tiles = config->serves && !backward_draws(config) ? args->KV_heads : 1;
    return config->any_rows ? of_tiles : config->grouped_heads ? args->KV_heads : args->heads;
}

FL_CONFIG_FN int64_t backward_grid_z(const backward_config *config, const attention_args *args) {
    return config->any_rows ? 1 : args->batch;
}

FL_CONFIG_FN launch_shape backward_launch_shape(const backward_config *config, const attention_args *args,
                                                int64_t multiprocessors) {
    const launch_shape shape = {(uint32_t)backward_grid_x(config, args, multiprocessors),
                                (uint32_t)backward_grid_y(config, args), (uint32_t)backward_grid_z(config, args),
                                (uint32_t)backward_threads(config), (uint32_t)backward_smem_bytes(config)};
    return shape;
}

/* Query rows of a head in the workspace: with any_rows those of full Q blocks. */
FL_CONFIG_FN int64_t backward_kept_rows(const backward_config *config, const attention_args *args) {
    return config->any_rows ? backward_Q_blocks(config, args) * config->B_r : args->seq_q;
}

/* Batch entries in the workspace: with serve one for all sequences. */
FL_CONFIG_FN int64_t backward_kept_samples(const backward_config *config, const attention_args *args) {
    return config->serves ? 1 : args->batch;
}

/* Launch shape of row_sums and round_dQ. */
FL_CONFIG_FN launch_shape backward_small_shape(const backward_config *config, const attention_args *args) {
    const int rows = backward_small_rows(config);
    const launch_shape shape = {(uint32_t)((backward_kept_rows(config, args) + rows - 1) / rows), (uint32_t)args->heads,
                                (uint32_t)backward_kept_samples(config, args), BACKWARD_SMALL_THREADS, 0};
    return shape;
}

/* Bytes of delta, of the accumulator and of the turns, each a multiple of 16. */
FL_CONFIG_FN int64_t backward_delta_bytes(const backward_config *config, const attention_args *args) {
    const int64_t rows = backward_kept_samples(config, args) * args->heads * backward_kept_rows(config, args);
    return (4 * rows * (config->any_rows ? 2 : 1) + 15) / 16 * 16;
}
FL_CONFIG_FN int64_t backward_sums_bytes(const backward_config *config, const attention_args *args) {
    const int64_t rows = backward_kept_samples(config, args) * args->heads * backward_kept_rows(config, args);
    return config->dQ_sums ? 4 * rows * config->d_head : 0;
}
FL_CONFIG_FN int64_t backward_turns_bytes(const backward_config *config, const attention_args *args) {
    const int64_t blocks = backward_kept_samples(config, args) * args->heads * backward_Q_blocks(config, args);
    const int64_t turns = config->in_order ? (4 * blocks * backward_turns(config) + 15) / 16 * 16 : 0;
    return turns + (config->any_rows ? 4 * BACKWARD_COUNTERS : 0);
}

#endif
