#include "harness/serving.h"

#include "harness/block_mask.h"

#include <string.h>

/* Arrays of offsets and of lengths, for Q and for K and V, and others. */
enum { Q_OFFSETS, KV_OFFSETS, Q_LENGTHS, KV_LENGTHS, SINKS, PAGES, K_SCALES, V_SCALES, Q_SCALES, MASK, N_ARRAYS };

/* The 4-byte elements before an array, or of all. */
static int64_t elements_before(const struct problem *problem, int array) {
    const int64_t pages = problem->page_rows ? problem->batch * problem_pages_of_sequence(problem) : 0;
    const int64_t scales = problem_has_cache_of_bytes(problem) || problem->e4m3_serves ? problem->KV_heads : 0;
    const int64_t counts[N_ARRAYS] = {problem->batch + 1,
                                      problem->batch + 1,
                                      problem->batch,
                                      problem->batch,
                                      problem->heads,
                                      pages,
                                      scales,
                                      scales,
                                      problem->e4m3_serves ? problem->heads : 0,
                                      (block_mask_bytes(problem) + 3) / 4};
    int64_t elements = 0;
    for (int i = 0; i < array; i++) elements += counts[i];
    return elements;
}

int64_t serving_bytes(const struct problem *problem) {
    return 4 * elements_before(problem, N_ARRAYS);
}

/* The entry after the last page of a sequence is not a valid page number. */
static void fill_pages(const struct problem *problem, int32_t *pages) {
    const int64_t of_sequence = problem_pages_of_sequence(problem), page_rows = problem->page_rows;
    for (int64_t batch = 0; batch < problem->batch; batch++) {
        const int64_t used = (problem_length(problem, TENSOR_K, batch) + page_rows - 1) / page_rows;
        for (int64_t number = 0; number < of_sequence; number++)
            *pages++ = number < used ? (int32_t)problem_page(problem, batch, number) : INT32_MAX;
    }
}

/* All heads of a tensor have the same. */
static void fill_descale(const struct problem *problem, int32_t *integers) {
    static const int arrays[N_INPUTS] = {Q_SCALES, K_SCALES, V_SCALES};
    for (int t = 0; t < N_INPUTS; t++) {
        const float scale = (float)problem->descale[t];
        for (int64_t head = 0; head < problem_heads(problem, (enum tensor)t); head++)
            memcpy(integers + elements_before(problem, arrays[t]) + head, &scale, sizeof scale);
    }
}

void serving_fill(const struct problem *problem, void *memory) {
    static const enum tensor tensors[] = {TENSOR_Q, TENSOR_K};
    int32_t *const integers = memory;
    for (int t = 0; t < 2; t++) {
        int32_t *const offsets = integers + elements_before(problem, Q_OFFSETS + t);
        int32_t *const lengths = integers + elements_before(problem, Q_LENGTHS + t);
        offsets[0] = 0;
        for (int64_t batch = 0; batch < problem->batch; batch++) {
            lengths[batch] = (int32_t)problem_length(problem, tensors[t], batch);
            offsets[batch + 1] = offsets[batch] + lengths[batch];
        }
    }
    if (problem->page_rows) fill_pages(problem, integers + elements_before(problem, PAGES));
    for (int64_t head = 0; head < problem->heads; head++) {
        const float sink = (float)problem_sink(problem, head);
        memcpy(integers + elements_before(problem, SINKS) + head, &sink, sizeof sink);
    }
    for (int t = 0; t < 2 && problem_has_cache_of_bytes(problem); t++)
        for (int64_t head = 0; head < problem->KV_heads; head++) {
            const float scale = problem_cache_scale(problem, t ? TENSOR_V : TENSOR_K, head);
            memcpy(integers + elements_before(problem, K_SCALES + t) + head, &scale, sizeof scale);
        }
    if (problem->e4m3_serves) fill_descale(problem, integers);
    if (problem->block_mask) block_mask_fill(problem, (uint8_t *)(integers + elements_before(problem, MASK)));
}

static const float *floats_at(const struct problem *problem, int array, uint64_t address) {
    return (const float *)(uintptr_t)(address + 4 * (uint64_t)elements_before(problem, array));
}

serving_args serving_args_of(const struct problem *problem, attention_args attention, uint64_t address) {
    serving_args args = serving_of_one_length(attention);
    const int32_t *const arrays = (const int32_t *)(uintptr_t)address;
    if (problem->layout == LAYOUT_PACKED) {
        args.Q_offsets = arrays + elements_before(problem, Q_OFFSETS);
        args.Q_rows = (int32_t)problem_rows_before(problem, TENSOR_Q, problem->batch);
    } else if (problem->Q_lengths) {
        args.Q_lengths = arrays + elements_before(problem, Q_LENGTHS);
    }
    if (problem->layout == LAYOUT_PACKED && !problem->page_rows) {
        args.KV_offsets = arrays + elements_before(problem, KV_OFFSETS);
        args.KV_rows = (int32_t)problem_rows_before(problem, TENSOR_K, problem->batch);
    } else if (problem->KV_lengths) {
        args.KV_lengths = arrays + elements_before(problem, KV_LENGTHS);
    }
    if (problem->windowed) args.window_left = (int32_t)problem->window_left;
    if (problem->windowed) args.window_right = (int32_t)problem->window_right;
    args.softcap = (float)problem->softcap;
    args.d_head = problem->d_head;
    args.split_keys = (int32_t)problem->split_keys;
    if (problem->page_rows) {
        args.pages = arrays + elements_before(problem, PAGES);
        args.page_rows = (int32_t)problem->page_rows;
        args.pages_of_sequence = (int32_t)problem_pages_of_sequence(problem);
        args.n_pages = (int32_t)problem_pages(problem);
    }
    if (problem->sinks) args.sinks = floats_at(problem, SINKS, address);
    if (problem->e4m3_serves) args.Q_scales = floats_at(problem, Q_SCALES, address);
    if (problem_has_cache_of_bytes(problem) || problem->e4m3_serves) {
        args.K_scales = floats_at(problem, K_SCALES, address);
        args.V_scales = floats_at(problem, V_SCALES, address);
    }
    return args;
}

extended_args extended_args_of(const struct problem *problem, attention_args attention, uint64_t address) {
    const uint32_t keep_all = 0x80008000; /* added to any two random numbers it sets the top bits of both */
    extended_args args = {.serving = serving_args_of(problem, attention, address),
                          .d_head_v = problem_d_head(problem, TENSOR_V),
                          .keep_from = problem->drops ? keep_all : 0,
                          .dropout_scale = 1};
    if (!problem->block_mask) return args;
    args.block_mask = (const uint8_t *)(uintptr_t)(address + 4 * (uint64_t)elements_before(problem, MASK));
    args.block_mask_strides = block_mask_strides(problem);
    args.mask_query_shift = args.mask_key_shift = MASK_SHIFT;
    return args;
}
