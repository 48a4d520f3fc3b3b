/* attention_config.h - the configuration of kernels/attention/mma_sync.cu and wgmma.cu, and their launch.
 *
 *     flash_forward<attention_config{FP16, 128, 128, 128, 8, WGMMA, 2, 32, true}>
 *
 * Each field is a row of common/attention_fields.h.
 */
#ifndef FL_ATTENTION_CONFIG_H
#define FL_ATTENTION_CONFIG_H

#include "common/config.h"

typedef struct attention_config {
#define FIELD(type, name, word, ...) type name;
#include "common/attention_fields.h"
} attention_config;

/* Elements of a row of V and O. */
FL_CONFIG_FN int attention_d_head_v(const attention_config *config) {
    return config->d_head_v ? config->d_head_v : config->d_head;
}

/* CTAs of a cluster that share a Q block. O of 128 rows and 512 columns fills the registers of two, so each has half of
 * the columns of Q, K, V and O. */
FL_CONFIG_FN int attention_cluster(const attention_config *config) {
    return config->instruction == WGMMA && config->d_head == 512 ? 2 : 1;
}

/* Warps, of different warpgroups with wgmma, that share rows: each has a part of the columns of V and O. */
FL_CONFIG_FN int attention_V_parts(const attention_config *config) {
    const int rows = 16 * config->n_warps;
    return rows > config->B_r ? rows / config->B_r : 1;
}

/* With wgmma a warpgroup at the front copies the blocks. */
FL_CONFIG_FN int attention_threads(const attention_config *config) {
    return 32 * (config->n_warps + (config->instruction == WGMMA ? 4 : 0));
}

/* Bytes of dynamic shared memory: the rings of K and V, and Q, whose space O reuses. With mma_sync rows have 16 bytes
 * of padding, and each stage two mbarriers. With wgmma and d_head up to 128 there are two Q blocks and O has a space of
 * its own; blocks begin at multiples of 1024 bytes, and 1024 bytes hold all mbarriers. Warpgroups that share rows, in a
 * CTA or a cluster, exchange a block of S, in fp32, each. With `latent` K holds V. */
FL_CONFIG_FN int attention_smem_bytes(const attention_config *config) {
    const bool wgmma = config->instruction == WGMMA;
    const int padding = wgmma ? 0 : 16, Q_rows = config->B_r * (wgmma && config->d_head <= 128 ? 3 : 1);
    const int keys = config->B_c * config->stages, parts = attention_V_parts(config);
    const int cluster = attention_cluster(config);
    const int V_bytes = config->latent ? 0 : attention_d_head_v(config) / cluster * 2 + padding;
    const int rows = (Q_rows + keys) * (config->d_head / cluster * 2 + padding) + keys * V_bytes;
    const int exchanged = parts * cluster > 1 ? parts * config->B_r * config->B_c * 4 : 0;
    return wgmma ? 1024 + rows + exchanged + 1024 : rows + 16 * config->stages;
}

/* Persistent CTAs that run at the same time: one per multiprocessor, in whole clusters. */
FL_CONFIG_FN int64_t attention_most_ctas(const attention_config *config, int64_t multiprocessors) {
    const int64_t cluster = attention_cluster(config);
    return multiprocessors < cluster ? cluster : multiprocessors - multiprocessors % cluster;
}

/* CTAs of a launch. With mma_sync a Q block may be split into n_warps slices. */
FL_CONFIG_FN int64_t attention_ctas(const attention_config *config, const attention_args *args,
                                    int64_t multiprocessors) {
    const int64_t blocks = ((int64_t)args->seq_q + config->B_r - 1) / config->B_r * args->heads * args->batch;
    const int64_t most = attention_most_ctas(config, multiprocessors);
    const int64_t work = blocks * (config->instruction == WGMMA ? attention_cluster(config) : config->n_warps);
    return work > most ? most : work;
}

/* The results of parts of the keys, which follow attention_args.tickets: O of a row as fp32, its log-sum-exp, and three
 * floats that are not used. Words before the first, which are the counters of attention/decode in launches with the
 * same workspace, and floats of a row in addition to O. */
enum { ATTENTION_PART_OFFSET = 1024, ATTENTION_PART_PADDING = 4 };
FL_CONFIG_FN int64_t attention_part_bytes(const attention_config *config, const attention_args *args,
                                          int32_t split_keys) {
    const int64_t rows = (int64_t)args->batch * args->heads * args->seq_q;
    const int64_t parts = ((int64_t)args->seq_k + split_keys - 1) / split_keys;
    return 4 * (parts * rows * (attention_d_head_v(config) + ATTENTION_PART_PADDING) + ATTENTION_PART_OFFSET);
}

FL_CONFIG_FN launch_shape attention_launch_shape(const attention_config *config, const attention_args *args,
                                                 int64_t multiprocessors) {
    const launch_shape shape = {(uint32_t)attention_ctas(config, args, multiprocessors), 1, 1,
                                (uint32_t)attention_threads(config), (uint32_t)attention_smem_bytes(config)};
    return shape;
}

#endif
