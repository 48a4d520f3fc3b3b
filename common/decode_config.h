/* decode_config.h - the configuration of kernels/attention/decode.cu and decode_mma_sync.cu, its launch, and the
 * workspace that it needs.
 *
 *     flash_forward<decode_config{FP16, 128, 16, 64, 4, MMA_SYNC, true, 3}>
 *     const int64_t bytes = decode_workspace_bytes(&config, &args, multiprocessors, 0);
 *
 * attention_args.tickets is the workspace: counters, zero before each launch and after it, then the parts of a result
 * that CTAs leave for the last of them.
 *
 * Each field is a row of common/decode_fields.h.
 */
#ifndef FL_DECODE_CONFIG_H
#define FL_DECODE_CONFIG_H

#include "common/config.h"

typedef struct decode_config {
#define FIELD(type, name, word, ...) type name;
#include "common/decode_fields.h"
} decode_config;

/* Keys of a warp in a KV block: it has 16 of B_r rows. */
FL_CONFIG_FN int decode_warp_keys(const decode_config *config) {
    return config->B_c * config->B_r / 16 / config->n_warps;
}

/* Keys of the smallest page, and of one TMA copy where there may be pages. */
enum { DECODE_PAGE_KEYS = 16 };

/* One more warp starts the copies. With 8 warps or with wgmma it has a warpgroup of its own, which gives registers
 * away. With cp.async four warps copy. */
FL_CONFIG_FN int decode_threads(const decode_config *config) {
    const bool four = config->n_warps == 8 || config->instruction == WGMMA || config->cp_async;
    return 32 * (config->n_warps + (four ? 4 : 1));
}

/* The ring of K and V blocks, two buffers of Q, the warps' sums of O in rows with 8 floats of padding, their m and l,
 * if there is more than one key group, and what 1024 bytes hold: mbarriers and slots of pieces. Tiles begin at
 * multiples of 1024 bytes. */
FL_CONFIG_FN int decode_smem_bytes(const decode_config *config) {
    const int bytes = config->e4m3_cache || config->int8_cache ? 1 : 2;
    const int KV = config->stages * 2 * bytes * config->B_c * config->d_head;
    const int Q = 4 * config->B_r * config->d_head;
    const int rows = config->instruction == WGMMA ? 0 : 16 * config->n_warps;
    return 1024 + KV + Q + 4 * rows * (config->d_head + 8) + 8 * rows + 1024;
}

/* Blocks of rows of each KV head. */
FL_CONFIG_FN int64_t decode_row_blocks(const decode_config *config, const attention_args *args) {
    return ((int64_t)args->seq_q * (args->heads / args->KV_heads) + config->B_r - 1) / config->B_r;
}

/* KV blocks that a KV head's row blocks read, all sequences together. */
FL_CONFIG_FN int64_t decode_KV_blocks(const decode_config *config, const attention_args *args) {
    const int64_t of_rows = ((int64_t)args->seq_k + config->B_c - 1) / config->B_c;
    return args->batch * decode_row_blocks(config, args) * (of_rows > 1 ? of_rows : 1);
}

/* Words at the front of the workspace, one for each CTA. Launches with fewer leave the others alone, so that launches
 * one after the other may have the same workspace. */
enum { DECODE_COUNTERS = 1024 };

/* Most parts of a sequence: with those of all KV heads about as many as a GPU has multiprocessors, between two bounds.
 * A part has at least split_keys keys, and a longer sequence has larger ones. */
enum { DECODE_ALL_PARTS = 128, DECODE_LEAST_PARTS = 16, DECODE_MOST_PARTS = 64 };

/* CTAs of each KV head: all that the GPU runs at a time, as long as each has a KV block. */
FL_CONFIG_FN int64_t decode_shares(const decode_config *config, const attention_args *args, int64_t multiprocessors) {
    const int64_t at_once = multiprocessors < DECODE_COUNTERS ? multiprocessors : DECODE_COUNTERS;
    const int64_t most = at_once / args->KV_heads > 1 ? at_once / args->KV_heads : 1;
    const int64_t blocks = decode_KV_blocks(config, args);
    return blocks < most ? blocks : most;
}

FL_CONFIG_FN int64_t decode_ctas(const decode_config *config, const attention_args *args, int64_t multiprocessors) {
    return args->KV_heads * decode_shares(config, args, multiprocessors);
}

/* Log-sum-exp and O of the parts after them, in `slots` slots: two for each CTA, or one for each part of a size. Two
 * or more CTAs of a KV head are at most as many as there are words; of one CTA each there are no parts. */
FL_CONFIG_FN int64_t decode_part_bytes(const decode_config *config, int64_t slots, int64_t rows) {
    return slots * (rows < config->B_r ? rows : config->B_r) * 4 * (config->d_head + 1);
}
FL_CONFIG_FN int64_t decode_parts(const decode_config *config, const attention_args *args, int64_t split_keys) {
    const int64_t of_KV_heads = DECODE_ALL_PARTS / args->KV_heads;
    const int64_t most = of_KV_heads < DECODE_LEAST_PARTS  ? DECODE_LEAST_PARTS
                         : of_KV_heads > DECODE_MOST_PARTS ? DECODE_MOST_PARTS
                                                           : of_KV_heads;
    const int64_t of_size = (args->seq_k + split_keys - 1) / split_keys, parts = of_size < most ? of_size : most;
    return parts * args->KV_heads * args->batch * decode_row_blocks(config, args);
}
FL_CONFIG_FN int64_t decode_workspace_bytes(const decode_config *config, const attention_args *args,
                                            int64_t multiprocessors, int64_t split_keys) {
    const int64_t shares = decode_shares(config, args, multiprocessors), ctas = args->KV_heads * shares;
    const int64_t rows = (int64_t)args->seq_q * (args->heads / args->KV_heads);
    const int64_t slots = split_keys ? decode_parts(config, args, split_keys) : shares > 1 ? 2 * ctas : 0;
    return 4 * DECODE_COUNTERS + decode_part_bytes(config, slots, rows);
}

FL_CONFIG_FN launch_shape decode_launch_shape(const decode_config *config, const attention_args *args,
                                              int64_t multiprocessors) {
    const launch_shape shape = {(uint32_t)decode_ctas(config, args, multiprocessors), 1, 1,
                                (uint32_t)decode_threads(config), (uint32_t)decode_smem_bytes(config)};
    return shape;
}

#endif
