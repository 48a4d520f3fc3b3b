#include "harness/backward.h"

#include "harness/serving.h"

static const char *const NAMES[N_BACKWARD] = {"dO", "dQ", "dK", "dV", "delta", "sums of dQ", "turns", "dsinks"};

const char *backward_name(enum backward_memory what) {
    return NAMES[what];
}

/* The tensor whose layout dO, dQ, dK or dV has. */
static enum tensor backward_tensor(enum backward_memory what) {
    return what == OF_DO ? TENSOR_O : (enum tensor)(TENSOR_Q + (what - OF_DQ));
}

/* Rows of all sequences. */
static int64_t all_rows(const struct problem *problem, enum tensor tensor) {
    const int64_t of_one = tensor == TENSOR_Q ? problem->seq_q : problem->seq_k;
    return problem->layout == LAYOUT_PACKED ? problem_rows_before(problem, tensor, problem->batch)
                                            : problem->batch * of_one;
}

/* Query rows that any configuration keeps, those of full Q blocks. */
static int64_t kept_rows(const struct problem *problem) {
    enum { MOST_B_R = 128 };
    return all_rows(problem, TENSOR_Q) + problem->batch * MOST_B_R;
}

int64_t backward_bytes(const struct problem *problem, enum backward_memory what) {
    enum { LEAST_ROWS_OF_TURN = 8 }; /* blocks of 64 queries with 8 turns */
    const int64_t rows = problem->heads * kept_rows(problem);
    switch (what) {
    case OF_DELTA:
        return 2 * (int64_t)sizeof(float) * rows;
    case OF_SUMS:
        return (int64_t)sizeof(float) * rows * problem->d_head;
    case OF_TURNS:
        return (int64_t)sizeof(int32_t) * (BACKWARD_COUNTERS + rows / LEAST_ROWS_OF_TURN);
    case OF_DSINKS:
        return (int64_t)sizeof(float) * problem->heads;
    default:
        return problem_device_bytes(problem, backward_tensor(what));
    }
}

bool backward_is_written(enum backward_memory what) {
    return what != OF_DO && what != OF_TURNS;
}

backward_strided_args backward_args_of(const struct problem *problem, attention_args attention,
                                       const uint64_t addresses[N_BACKWARD], uint64_t serving) {
    const serving_args served = serving_args_of(problem, attention, serving);
    attention.all_Q_rows = (int32_t)all_rows(problem, TENSOR_Q);
    attention.all_KV_rows = (int32_t)all_rows(problem, TENSOR_K);
    const backward_args backward = {.attention = attention,
                                    .dO = (const void *)(uintptr_t)addresses[OF_DO],
                                    .dQ = (void *)(uintptr_t)addresses[OF_DQ],
                                    .dK = (void *)(uintptr_t)addresses[OF_DK],
                                    .dV = (void *)(uintptr_t)addresses[OF_DV],
                                    .delta = (float *)(uintptr_t)addresses[OF_DELTA],
                                    .sums = (float *)(uintptr_t)addresses[OF_SUMS],
                                    .turns = (int32_t *)(uintptr_t)addresses[OF_TURNS]};
    return (backward_strided_args){.serving = {.backward = backward,
                                               .Q_offsets = served.Q_offsets,
                                               .KV_offsets = served.KV_offsets,
                                               .Q_lengths = served.Q_lengths,
                                               .KV_lengths = served.KV_lengths,
                                               .sinks = served.sinks,
                                               .dsinks = served.sinks ? (float *)(uintptr_t)addresses[OF_DSINKS] : NULL,
                                               .window_left = served.window_left,
                                               .window_right = served.window_right,
                                               .softcap = served.softcap},
                                   .dQ_strides = attention.Q_strides,
                                   .dK_strides = attention.K_strides,
                                   .dV_strides = attention.V_strides};
}
