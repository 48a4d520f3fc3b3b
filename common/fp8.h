/* fp8.h - configuration, parameters and launch shape of the fp8 forward kernels.
 *
 *     flash_forward<fp8_config{FP16, 128, 128, 128, 8, FP8_WGMMA, 2, true}>
 *     fp8_args args = {.attention = attention, .Q_descale = 1, .K_descale = 1, .V_descale = 1};
 *
 * The kernels read Q, K and V as e4m3: a sign bit, 4 exponent bits with bias 7 and 3 fraction bits. The largest value
 * is 448; 0x7f and 0xff are NaN, and there is no infinity. Each tensor has a scale that dequantizes its elements:
 *
 *     O = V_descale * softmax(softmax_scale * Q_descale * K_descale * Q Kᵀ) V
 *
 * O has 16 bits. The tensor maps are the second parameter. With V_transposed the caller passes V as [batch, heads,
 * d_head, seq_k], while V_strides still describe the untransposed tensor.
 *
 * Each field of the configuration is a row of common/fp8_fields.h.
 */
#ifndef FL_FP8_H
#define FL_FP8_H

#include "common/config.h"

typedef struct fp8_config {
#define FIELD(type, name, word, ...) type name;
#include "common/fp8_fields.h"
} fp8_config;

#ifdef __cplusplus
typedef struct fp8_args : attention_args {
#else
typedef struct fp8_args {
    attention_args attention;
#endif
    float Q_descale; /* positive and finite, as the two others are */
    float K_descale;
    float V_descale;
    int32_t unused;
    const float *Q_scales; /* with grouped_heads: additional scales, [heads]; NULL: 1 */
    const float *K_scales; /* [KV_heads] */
    const float *V_scales;
    int32_t padding[6]; /* up to 256 bytes, where tensor maps begin */
} fp8_args;

static_assert(sizeof(fp8_args) == 256, "tensor maps follow it without padding");

/* True if the kernel multiplies by mma.sync: it copies by cp.async, so there are no tensor maps, and transposes V and
 * adds up O in registers. */
FL_CONFIG_FN bool fp8_by_mma_sync(const fp8_config *config) {
    return config->instruction == FP8_MMA_SYNC;
}

/* Threads of a CTA: one warpgroup more than compute, which copies the blocks. */
FL_CONFIG_FN int fp8_threads(const fp8_config *config) {
    return 32 * (config->n_warps + 4);
}

/* Number of Q blocks in shared memory. Persistent CTAs prefetch the next one, so they use two. Only one fits with
 * d_head 256 and flush_blocks, because the fp32 accumulator of O takes 128 KB of shared memory. */
FL_CONFIG_FN bool fp8_fills_smem(const fp8_config *config) {
    return config->d_head == 256 && config->flush_blocks && !fp8_by_mma_sync(config);
}
FL_CONFIG_FN int fp8_Q_stages(const fp8_config *config) {
    return config->persistent && !fp8_fills_smem(config) ? 2 : 1;
}

FL_CONFIG_FN int fp8_V_stages(const fp8_config *config) {
    return fp8_fills_smem(config) ? 1 : config->stages;
}

/* Bytes in a row of transposed V; 0: it is in registers. A key takes one byte, so this is also the largest B_c that
 * fits. */
FL_CONFIG_FN int fp8_Vt_row_bytes(const fp8_config *config) {
    return fp8_by_mma_sync(config) ? 0 : config->d_head == 256 ? 64 : 128;
}

/* Bytes of rows of d_head bytes in shared memory: Q, in each stage K and V, and V transposed. */
FL_CONFIG_FN int fp8_rows_bytes(const fp8_config *config) {
    const int V_rows = config->V_transposed ? 0 : config->B_c;
    return (fp8_Q_stages(config) * config->B_r + config->stages * config->B_c +
            fp8_V_stages(config) * (V_rows + fp8_Vt_row_bytes(config))) *
           config->d_head;
}

/* Bytes of O in shared memory: 2 per element, plus 4 for the fp32 accumulator with flush_blocks. With tickets the
 * 16-bit result overwrites the accumulator and needs no space of its own. */
FL_CONFIG_FN int fp8_O_bytes(const fp8_config *config) {
    if (fp8_by_mma_sync(config)) return 0; /* it is stored from registers */
    const int rounded_bytes = config->flush_blocks && config->tickets ? 0 : 2;
    return config->B_r * config->d_head * (config->flush_blocks ? rounded_bytes + 4 : 2);
}

/* Bytes of dynamic shared memory. Blocks begin at multiples of 1024 bytes, and 1024 bytes hold all mbarriers. */
FL_CONFIG_FN int fp8_smem_bytes(const fp8_config *config) {
    return 1024 + fp8_rows_bytes(config) + fp8_O_bytes(config) + 1024;
}

FL_CONFIG_FN int64_t fp8_Q_blocks(const fp8_config *config, const attention_args *args) {
    return ((int64_t)args->seq_q + config->B_r - 1) / config->B_r;
}

/* Number of persistent CTAs: one per SM, but no more than there are Q blocks, and enough that none processes more than
 * 32. */
FL_CONFIG_FN int64_t fp8_staying(int64_t Q_blocks, int64_t multiprocessors) {
    return Q_blocks < multiprocessors        ? Q_blocks
           : Q_blocks > 32 * multiprocessors ? (Q_blocks + 31) / 32
                                             : multiprocessors;
}

FL_CONFIG_FN int64_t fp8_grid_x(const fp8_config *config, const attention_args *args, int64_t multiprocessors) {
    return config->persistent ? fp8_staying(fp8_Q_blocks(config, args) * args->heads * args->batch, multiprocessors)
                              : fp8_Q_blocks(config, args);
}

FL_CONFIG_FN int64_t fp8_grid_y(const fp8_config *config, const attention_args *args) {
    return config->persistent ? 1 : args->heads;
}

FL_CONFIG_FN int64_t fp8_grid_z(const fp8_config *config, const attention_args *args) {
    return config->persistent ? 1 : args->batch;
}

/* Grid (Q blocks, heads, batch), or with `persistent` a row of CTAs. */
FL_CONFIG_FN launch_shape fp8_launch_shape(const fp8_config *config, const attention_args *args,
                                           int64_t multiprocessors) {
    const launch_shape shape = {(uint32_t)fp8_grid_x(config, args, multiprocessors), (uint32_t)fp8_grid_y(config, args),
                                (uint32_t)fp8_grid_z(config, args), (uint32_t)fp8_threads(config),
                                (uint32_t)fp8_smem_bytes(config)};
    return shape;
}

#endif
