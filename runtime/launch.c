#include "runtime/launch.h"

#include "common/backward.h"
#include "common/decode_config.h"
#include "common/fp8.h"
#include "common/serving.h"
#include "runtime/config.h"

launch_shape launch_of(const KernelConfig *config, const attention_args *args, int64_t multiprocessors) {
    if (config_is_backward(config)) return backward_launch_shape(config, args, multiprocessors);
    if (config_is_fp8(config)) return fp8_launch_shape(config, args, multiprocessors);
    return config_shares_keys(config) ? decode_launch_shape(config, args, multiprocessors)
                                      : config_launch_shape(config, args, multiprocessors);
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
    const int32_t split_keys = config->serves ? ((const serving_args *)args)->split_keys : 0;
    return config_shares_keys(config) ? decode_workspace_bytes(config, args, multiprocessors, split_keys)
                                      : TICKETS_BYTES;
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
