/* config.h - the configuration of the ladder's kernels and the launch shape that follows from it.
 *
 *     launch_shape shape = config_launch_shape(&config, &args, multiprocessors);
 *
 * Included by the kernels (C++20) and by host code (C11). Each field is a row of common/config_fields.h. The other
 * kinds of kernels have a header like this one each: common/families.h lists them.
 */
#ifndef FL_CONFIG_H
#define FL_CONFIG_H

#include "common/abi.h"

#include <stdbool.h>
#include <stdint.h>

/* Element type of Q, K, V and O. The numbers are those of the kernel symbols. */
enum dtype { FP16 = 5, BF16 = 15 };

/* The multiplying instruction: of the tensor cores, or plain multiply-adds with FMA. The numbers are those of the
 * kernel symbols. */
enum instruction { MMA_SYNC = 1, WGMMA, FMA, FP8_WGMMA, FP8_MMA_SYNC };

typedef struct KernelConfig {
#define FIELD(type, name, word, ...) type name;
#include "common/config_fields.h"
} KernelConfig;

typedef struct launch_shape {
    uint32_t grid_x, grid_y, grid_z;
    uint32_t threads;
    uint32_t smem_bytes; /* dynamic shared memory */
} launch_shape;

#ifdef __cplusplus
#define FL_CONFIG_FN constexpr
#else
#define FL_CONFIG_FN static inline
#endif

/* Threads of one CTA: a producer is a warpgroup of its own. */
FL_CONFIG_FN int config_threads(const KernelConfig *config) {
    return 32 * (config->n_warps + (config->producer ? 4 : 0));
}

/* Bytes of a row of 16-bit elements in shared memory. */
FL_CONFIG_FN int config_row_bytes(const KernelConfig *config) {
    return config->d_head * 2 + (config->padded_rows ? 16 : 0);
}

/* Rows of Q, K, V and O in shared memory: one Q block, whose space O may reuse, and one K and one V block or `stages`
 * of each. With double_buffer_Q there are two Q blocks, and O has a space of its own. */
FL_CONFIG_FN int config_smem_rows(const KernelConfig *config) {
    const int KV_blocks = config->stages ? config->stages : 1;
    return config->B_r * (config->double_buffer_Q ? 3 : 1) + 2 * config->B_c * KV_blocks;
}

/* Bytes of dynamic shared memory: the rows, and two mbarriers of 8 bytes per stage. Blocks of TMA copies begin at
 * multiples of 1024 bytes, and 1024 bytes hold all mbarriers. */
FL_CONFIG_FN int config_smem_bytes(const KernelConfig *config) {
    const int rows = config_smem_rows(config) * config_row_bytes(config);
    return config->tensor_copies ? 1024 + rows + 1024 : rows + 16 * config->stages;
}

/* Q blocks of a launch. */
FL_CONFIG_FN int64_t config_Q_blocks(const KernelConfig *config, const attention_args *args) {
    return ((int64_t)args->seq_q + config->B_r - 1) / config->B_r * args->heads * args->batch;
}

/* Rows of CTAs for slices. With split_tail Q blocks left over for a last, partly filled wave get n_warps CTAs each, one
 * per slice, if that is faster: when waves * (KV_blocks / n_warps + 3) < KV_blocks; else 0. A warp of a slice reads its
 * n_warps-th part of the KV blocks, and the time of three blocks is a slice's fixed cost. */
FL_CONFIG_FN int64_t config_slice_waves(const KernelConfig *config, const attention_args *args,
                                        int64_t multiprocessors) {
    const int64_t left = config_Q_blocks(config, args) % multiprocessors, KV_blocks = args->seq_k / config->B_c;
    const int64_t waves = (left * config->n_warps + multiprocessors - 1) / multiprocessors;
    const bool faster = waves * (KV_blocks + 3 * config->n_warps) < config->n_warps * KV_blocks;
    return config->split_tail && faster ? waves : 0;
}

/* Grid (Q blocks, heads, batch): x varies fastest, so CTAs that run together share K and V. With split_tail the Q
 * blocks, numbered in that order, are the grid's x, and slices follow. A persistent kernel has one row of CTAs, one per
 * multiprocessor, for the entire Q blocks, and below it the rows for slices. */
FL_CONFIG_FN int64_t config_grid_x(const KernelConfig *config, const attention_args *args, int64_t multiprocessors) {
    const int64_t blocks = config_Q_blocks(config, args), waves = config_slice_waves(config, args, multiprocessors);
    const int64_t slices = waves ? blocks % multiprocessors * config->n_warps : 0;
    return config->persistent   ? (waves || blocks > multiprocessors ? multiprocessors : blocks)
           : config->split_tail ? blocks - slices / config->n_warps + slices
                                : blocks / args->heads / args->batch;
}
FL_CONFIG_FN int64_t config_grid_y(const KernelConfig *config, const attention_args *args, int64_t multiprocessors) {
    return config->persistent   ? 1 + config_slice_waves(config, args, multiprocessors)
           : config->split_tail ? 1
                                : args->heads;
}
FL_CONFIG_FN int64_t config_grid_z(const KernelConfig *config, const attention_args *args) {
    return config->persistent || config->split_tail ? 1 : args->batch;
}

FL_CONFIG_FN launch_shape config_launch_shape(const KernelConfig *config, const attention_args *args,
                                              int64_t multiprocessors) {
    const launch_shape shape = {
        (uint32_t)config_grid_x(config, args, multiprocessors), (uint32_t)config_grid_y(config, args, multiprocessors),
        (uint32_t)config_grid_z(config, args), (uint32_t)config_threads(config), (uint32_t)config_smem_bytes(config)};
    return shape;
}

#endif
