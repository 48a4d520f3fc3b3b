/* config.h - the thirteen-field kernel configuration and the launch shape that follows from it.
 *
 *     launch_shape shape = config_launch_shape(&config, seq, heads, batch);
 *
 * Included by the kernels (C++20) and by the harness (C11); analysis/config.py mirrors the field order. A field added
 * later goes to the end and is zero in older configurations, so that every short form keeps its meaning.
 */
#ifndef FL_CONFIG_H
#define FL_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

/* Element type of Q, K, V and O. The numbers are those of the kernel symbols. */
enum dtype { FP16 = 5, BF16 = 15 };

typedef struct KernelConfig {
    enum dtype dtype;
    int d_head;  /* elements of one head's row; 128 in every version so far */
    int B_r;     /* query rows of one CTA */
    int B_c;     /* keys and values of one KV block */
    int n_warps; /* warps of one CTA, each with B_r / n_warps query rows */
    bool async_copy;
    bool eager_load_blocks;
    bool swizzled;
    /* 8-wide fragments read from shared memory for one step of the matmul; 0 is the whole block before the matmul */
    int Q_mma_load_K_tiles;
    int K_mma_load_K_tiles;
    int V_mma_load_K_tiles;
    bool mma_double_buffer_loads;
    bool optimized_softmax;
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

/* Threads of one CTA. */
FL_CONFIG_FN int config_threads(const KernelConfig *config) { return config->n_warps * 32; }

/* Bytes of dynamic shared memory: one Q block, one K block and one V block of 16-bit elements; O reuses the space of Q. */
FL_CONFIG_FN int config_smem_bytes(const KernelConfig *config) {
    return (config->B_r + 2 * config->B_c) * config->d_head * 2;
}

/* Grid (Q blocks, heads, batch): x varies fastest, so CTAs that run together share K and V. seq is a multiple of B_r. */
FL_CONFIG_FN launch_shape config_launch_shape(const KernelConfig *config, int64_t seq, int64_t heads, int64_t batch) {
    launch_shape shape = {(uint32_t)(seq / config->B_r), (uint32_t)heads, (uint32_t)batch,
                          (uint32_t)config_threads(config), (uint32_t)config_smem_bytes(config)};
    return shape;
}

#endif
