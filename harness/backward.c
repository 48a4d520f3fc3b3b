#include "harness/backward.h"

static const char *const NAMES[N_BACKWARD] = {"dO", "dQ", "dK", "dV", "delta", "sums of dQ", "turns"};

const char *backward_name(enum backward_memory what) {
    return NAMES[what];
}

int64_t backward_bytes(const struct problem *problem, enum backward_memory what) {
    enum { LEAST_B_R = 16, MOST_B_R = 128 };
    const int64_t whole = (problem->seq_q + MOST_B_R - 1) / MOST_B_R * MOST_B_R; /* rows that any config keeps */
    const int64_t rows = problem->batch * problem->heads * whole, blocks = whole / LEAST_B_R;
    switch (what) {
    case OF_DELTA:
        return 2 * (int64_t)sizeof(float) * rows;
    case OF_SUMS:
        return (int64_t)sizeof(float) * rows * problem->d_head;
    case OF_TURNS:
        return (int64_t)sizeof(int32_t) * (BACKWARD_COUNTERS + problem->batch * problem->heads * blocks);
    default:
        return problem_bytes(problem, what == OF_DK || what == OF_DV ? TENSOR_K : TENSOR_Q);
    }
}

bool backward_is_written(enum backward_memory what) {
    return what != OF_DO && what != OF_TURNS;
}

backward_args backward_args_of(attention_args attention, const uint64_t addresses[N_BACKWARD]) {
    return (backward_args){.attention = attention,
                           .dO = (const void *)(uintptr_t)addresses[OF_DO],
                           .dQ = (void *)(uintptr_t)addresses[OF_DQ],
                           .dK = (void *)(uintptr_t)addresses[OF_DK],
                           .dV = (void *)(uintptr_t)addresses[OF_DV],
                           .delta = (float *)(uintptr_t)addresses[OF_DELTA],
                           .sums = (float *)(uintptr_t)addresses[OF_SUMS],
                           .turns = (int32_t *)(uintptr_t)addresses[OF_TURNS]};
}
