#include "harness/tensor_memory.h"

#include "harness/backend.h"
#include "harness/e4m3.h"
#include "harness/fp8.h"
#include "harness/half.h"
#include "harness/parallel.h"

#include <string.h>

enum { POISON = POISON_BYTE << 8 | POISON_BYTE };

bool tensor_is_contiguous(const struct problem *problem) {
    return problem->layout == LAYOUT_BSHD && !problem_is_ragged(problem) && !problem->page_rows;
}

/* The rows of a tensor in the order of the host, and where the present one is on the device. */
struct rows {
    const struct problem *problem;
    enum tensor tensor;
    tensor_strides strides;
    int64_t count, seq, heads, page_rows;
};

static struct rows rows_of(const struct problem *problem, enum tensor tensor) {
    const int64_t seq = problem_rows(problem, tensor), heads = problem_heads(problem, tensor);
    return (struct rows){problem,
                         tensor,
                         problem_strides(problem, tensor),
                         problem->batch * seq * heads,
                         seq,
                         heads,
                         tensor == TENSOR_K || tensor == TENSOR_V ? problem->page_rows : 0};
}

/* Offset on the device of row number i of the host's order, in elements; -1 if the sequence ends before it. */
static int64_t row_at(const struct rows *rows, int64_t i) {
    const int64_t head = i % rows->heads, row = i / rows->heads % rows->seq, batch = i / rows->heads / rows->seq;
    if (row >= problem_length(rows->problem, rows->tensor, batch)) return -1;
    if (rows->page_rows) {
        const int64_t page = problem_page(rows->problem, batch, row / rows->page_rows);
        return page * rows->strides.batch + row % rows->page_rows * rows->strides.seq + head * rows->strides.head;
    }
    const int64_t sequence = rows->problem->layout == LAYOUT_PACKED
                                 ? problem_rows_before(rows->problem, rows->tensor, batch) * rows->strides.seq
                                 : batch * rows->strides.batch;
    return sequence + row * rows->strides.seq + head * rows->strides.head;
}

enum { SPREAD_ROWS = 1 << 10 }; /* of one parallel iteration */

struct spread {
    const struct rows *rows;
    const uint16_t *contiguous;
    uint8_t *memory;
};

static void spread_rows(int64_t n, void *context) {
    const struct spread *const spread = context;
    const struct rows *const rows = spread->rows;
    const int64_t d_head = rows->problem->d_head;
    for (int64_t i = n * SPREAD_ROWS; i < rows->count && i < (n + 1) * SPREAD_ROWS; i++) {
        const int64_t at = row_at(rows, i);
        for (int64_t c = 0; c < d_head && at >= 0; c++) {
            const float value = half_to_float(spread->contiguous[i * d_head + c], rows->problem->dtype);
            spread->memory[at + c] =
                rows->problem->cache_int8 ? (uint8_t)int8_from_float(value) : e4m3_from_float(value);
        }
    }
}

/* A tensor of bytes for serving_args; what no row fills is NaN, as int8 127. */
static void spread_bytes(const struct rows *rows, const uint16_t *contiguous, uint8_t *memory) {
    struct spread spread = {rows, contiguous, memory};
    memset(memory, E4M3_NAN, (size_t)problem_device_bytes(rows->problem, rows->tensor));
    parallel_for((rows->count + SPREAD_ROWS - 1) / SPREAD_ROWS, spread_rows, &spread);
}

void tensor_spread(const struct problem *problem, enum tensor tensor, const uint16_t *contiguous, uint16_t *memory) {
    const struct rows rows = rows_of(problem, tensor);
    const int64_t d_head = problem_d_head(problem, tensor);
    if (problem->e4m3 && !problem->e4m3_serves) {
        e4m3_spread(problem, tensor, contiguous, (uint8_t *)memory);
        return;
    }
    if (problem_is_of_bytes(problem, tensor)) {
        spread_bytes(&rows, contiguous, (uint8_t *)memory);
        return;
    }
    if (tensor_is_contiguous(problem)) {
        memcpy(memory, contiguous, (size_t)problem_bytes(problem, tensor));
        return;
    }
    memset(memory, POISON_BYTE, (size_t)problem_device_bytes(problem, tensor));
    for (int64_t i = 0; i < rows.count; i++) {
        const int64_t at = row_at(&rows, i);
        if (at >= 0) memcpy(memory + at, contiguous + i * d_head, 2 * (size_t)d_head);
    }
}

int64_t tensor_gather(const struct problem *problem, enum tensor tensor, const uint16_t *memory, uint16_t *contiguous) {
    const struct rows rows = rows_of(problem, tensor);
    const int64_t d_head = problem_d_head(problem, tensor), elements = problem_device_bytes(problem, tensor) / 2;
    const uint16_t unused = problem->backward ? 0 : POISON; /* a pass sets gradients of unused rows to 0 */
    int64_t written = 0, written_in_rows = 0;
    if (tensor_is_contiguous(problem)) {
        memcpy(contiguous, memory, (size_t)problem_bytes(problem, tensor));
        return 0;
    }
    for (int64_t i = 0; i < elements; i++) written += memory[i] != unused;
    for (int64_t i = 0; i < rows.count; i++) {
        const int64_t at = row_at(&rows, i);
        if (at < 0) {
            memset(contiguous + i * d_head, 0, 2 * (size_t)d_head);
            continue;
        }
        for (int64_t c = 0; c < d_head; c++) written_in_rows += memory[at + c] != unused;
        memcpy(contiguous + i * d_head, memory + at, 2 * (size_t)d_head);
    }
    return written - written_in_rows;
}

void lse_spread(const struct problem *problem, const float *contiguous, float *memory) {
    const int64_t seq = problem->seq_q, tokens = problem_rows_before(problem, TENSOR_Q, problem->batch);
    if (problem->layout != LAYOUT_PACKED) {
        memcpy(memory, contiguous, (size_t)problem_lse_bytes(problem));
        return;
    }
    for (int64_t batch = 0, first = 0; batch < problem->batch; batch++) {
        const int64_t rows = problem_length(problem, TENSOR_Q, batch);
        for (int64_t head = 0; head < problem->heads; head++)
            memcpy(memory + head * tokens + first, contiguous + (batch * problem->heads + head) * seq,
                   (size_t)rows * sizeof *memory);
        first += rows;
    }
}

int64_t lse_gather(const struct problem *problem, const float *memory, float *contiguous) {
    const int64_t seq = problem->seq_q, tokens = problem_rows_before(problem, TENSOR_Q, problem->batch);
    int64_t strays = 0;
    for (int64_t batch = 0; batch < problem->batch; batch++)
        for (int64_t head = 0; head < problem->heads; head++)
            for (int64_t row = 0; row < seq; row++) {
                const int64_t i = (batch * problem->heads + head) * seq + row;
                const bool packed = problem->layout == LAYOUT_PACKED,
                           exists = row < problem_length(problem, TENSOR_Q, batch);
                const int64_t at = packed ? head * tokens + problem_rows_before(problem, TENSOR_Q, batch) + row : i;
                uint32_t bits = UINT32_MAX;
                if (exists || !packed) memcpy(&bits, memory + at, sizeof bits);
                strays += !exists && bits != UINT32_MAX; /* POISON_BYTE, four times */
                contiguous[i] = exists ? memory[at] : 0;
            }
    return strays;
}
