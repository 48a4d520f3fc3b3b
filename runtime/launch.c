#include "runtime/launch.h"

#include "common/backward.h"
#include "common/decode_config.h"
#include "common/fp8.h"
#include "common/serving.h"
#include "runtime/config.h"

/* What attention/decode shares out. Where each sequence has queries of its own number, it is that of one with queries
 * enough for as many row blocks as all of them may need: rows one behind the other fill so many, and each sequence may
 * have one more that is partly filled. */
static attention_args decode_args(const KernelConfig *config, const attention_args *args) {
    attention_args one = *args;
    if (!config_has_ragged_queries(config)) return one;
    const int64_t group = args->heads / args->KV_heads, packed = ((const serving_args *)args)->Q_rows;
    const int64_t row_blocks =
        packed ? packed * group / config->B_r + args->batch : args->batch * decode_row_blocks(config, args);
    one.batch = 1;
    one.seq_q = (int32_t)((row_blocks * config->B_r + group - 1) / group);
    return one;
}

launch_shape launch_of(const KernelConfig *config, const attention_args *args, int64_t multiprocessors) {
    if (config_is_backward(config)) return backward_launch_shape(config, args, multiprocessors);
    if (config_is_fp8(config)) return fp8_launch_shape(config, args, multiprocessors);
    if (!config_shares_keys(config)) return config_launch_shape(config, args, multiprocessors);
    const attention_args shared = decode_args(config, args);
    return decode_launch_shape(config, &shared, multiprocessors);
}

int launch_threads(const KernelConfig *config) {
    if (config_is_backward(config)) return backward_threads(config);
    if (config_is_fp8(config)) return fp8_threads(config);
    return config_shares_keys(config) ? decode_threads(config) : config_threads(config);
}

int launch_smem_bytes(const KernelConfig *config) {
    if (config_is_backward(config)) return backward_smem_bytes(config);
    if (config_is_fp8(config)) return fp8_smem_bytes(config);
    return config_shares_keys(config) ? decode_smem_bytes(config) : config_smem_bytes(config);
}

int64_t launch_workspace_bytes(const KernelConfig *config, const attention_args *args, int64_t multiprocessors) {
    if (!config_shares_keys(config)) return TICKETS_BYTES;
    const int32_t split_keys = config->serves ? ((const serving_args *)args)->split_keys : 0;
    const attention_args shared = decode_args(config, args);
    return decode_workspace_bytes(config, &shared, multiprocessors, split_keys);
}

int64_t launch_counter_bytes(const KernelConfig *config) {
    return config_shares_keys(config) ? 4 * DECODE_COUNTERS : TICKETS_BYTES;
}

int64_t launch_most_bytes(const KernelConfig *config, int64_t multiprocessors) {
    return config_shares_keys(config)
               ? 4 * DECODE_COUNTERS + decode_part_bytes(config, 2 * multiprocessors, config->B_r)
               : TICKETS_BYTES;
}

int backward_steps(const struct instance *instance, const attention_args *args, int64_t multiprocessors,
                   struct step steps[MOST_STEPS]) {
    const launch_shape small = backward_small_shape(&instance->config, args);
    int count = 0;
    if (instance->before.symbol)
        steps[count++] = (struct step){instance->before.symbol, instance->before.entry, small, false};
    steps[count++] = (struct step){instance->symbol, instance->entry,
                                   backward_launch_shape(&instance->config, args, multiprocessors), true};
    if (instance->behind.symbol)
        steps[count++] = (struct step){instance->behind.symbol, instance->behind.entry, small, false};
    return count;
}
