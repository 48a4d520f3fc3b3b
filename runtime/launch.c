#include "runtime/launch.h"

#include "runtime/config.h"

/* The work that attention/decode splits. If sequences have different numbers of queries, it is that of one sequence
 * with enough queries for all row blocks: packed rows fill that many, and each sequence may have one more that is
 * partly filled. */
static attention_args decode_args(const struct kernel_config *config, const attention_args *args) {
    attention_args one = *args;
    if (!config_has(config, RAGGED_QUERIES)) return one;
    const int64_t group = args->heads / args->KV_heads, packed = ((const serving_args *)args)->Q_rows;
    const int64_t row_blocks =
        packed ? packed * group / config->B_r + args->batch : args->batch * decode_row_blocks(&config->decode, args);
    one.batch = 1;
    one.seq_q = (int32_t)((row_blocks * config->B_r + group - 1) / group);
    return one;
}

static_assert((int)ATTENTION_PART_OFFSET >= (int)DECODE_COUNTERS, "parts leave the counters of another launch at zero");

static int32_t split_keys_of(const struct kernel_config *config, const attention_args *args) {
    return config_has(config, SERVES) ? ((const serving_args *)args)->split_keys : 0;
}

int launch_count(const struct kernel_config *config, const attention_args *args) {
    return config_has(config, SPLITS_KEYS) && split_keys_of(config, args) ? 2 : 1;
}

launch_shape launch_of(const struct kernel_config *config, const attention_args *args, int64_t multiprocessors) {
    const attention_args shared = decode_args(config, args);
    launch_shape shape = FAMILIES[config->family].launch(config, &shared, multiprocessors);
    if (launch_count(config, args) > 1)
        shape.grid_x = (uint32_t)attention_most_ctas(&config->attention, multiprocessors);
    return shape;
}

/* Resources of the smallest launch: neither threads nor shared memory depend on its size. */
static launch_shape smallest(const struct kernel_config *config) {
    const attention_args one = {.seq_q = 1, .seq_k = 1, .heads = 1, .KV_heads = 1, .batch = 1};
    return FAMILIES[config->family].launch(config, &one, 1);
}

int launch_threads(const struct kernel_config *config) {
    return (int)smallest(config).threads;
}

int launch_smem_bytes(const struct kernel_config *config) {
    return (int)smallest(config).smem_bytes;
}

int64_t launch_Q_blocks(const struct kernel_config *config, const attention_args *args) {
    return ((int64_t)args->seq_q + config->B_r - 1) / config->B_r * args->heads * args->batch;
}

int64_t launch_KV_blocks(const struct kernel_config *config, const attention_args *args) {
    return ((int64_t)args->seq_k + config->B_c - 1) / config->B_c;
}

int64_t launch_workspace_bytes(const struct kernel_config *config, const attention_args *args,
                               int64_t multiprocessors) {
    const int32_t split_keys = split_keys_of(config, args);
    if (launch_count(config, args) > 1) return attention_part_bytes(&config->attention, args, split_keys);
    if (!config_has(config, SHARES_KEYS)) return TICKETS_BYTES;
    const attention_args shared = decode_args(config, args);
    return decode_workspace_bytes(&config->decode, &shared, multiprocessors, split_keys);
}

int64_t launch_counter_bytes(const struct kernel_config *config) {
    return config_has(config, SHARES_KEYS) ? 4 * DECODE_COUNTERS : TICKETS_BYTES;
}

int64_t launch_most_bytes(const struct kernel_config *config, int64_t multiprocessors) {
    return config_has(config, SHARES_KEYS)
               ? 4 * DECODE_COUNTERS + decode_part_bytes(&config->decode, 2 * multiprocessors, config->B_r)
               : TICKETS_BYTES;
}

static bool adds_sinks(const struct instance *instance, const attention_args *args) {
    return config_has(&instance->config, SERVES) && ((const backward_serving_args *)args)->dsinks;
}

/* Where the last CTA in order rounds dQ, only sinks need the kernel after it. */
int backward_steps(const struct instance *instance, const attention_args *args, int64_t multiprocessors,
                   struct step steps[MOST_STEPS]) {
    const launch_shape small = backward_small_shape(&instance->config.backward, args);
    int count = 0;
    if (instance->before.symbol)
        steps[count++] = (struct step){instance->before.symbol, instance->before.entry, small, false};
    steps[count++] =
        (struct step){instance->symbol, instance->entry, launch_of(&instance->config, args, multiprocessors), true};
    if (instance->after.symbol && (!backward_rounds_in_order(&instance->config.backward) || adds_sinks(instance, args)))
        steps[count++] = (struct step){instance->after.symbol, instance->after.entry, small, false};
    return count;
}
