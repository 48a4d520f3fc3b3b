#include "harness/tensor_memory.h"

#include "harness/backend.h"

#include <string.h>

enum { POISON = POISON_BYTE << 8 | POISON_BYTE };

bool tensor_is_contiguous(const struct problem *problem) {
    return problem->layout == LAYOUT_BSHD;
}

/* The rows of a tensor in the order of the host, and where the present one is on the device. */
struct rows {
    tensor_strides strides;
    int64_t batch, seq, heads;
};

static struct rows rows_of(const struct problem *problem, enum tensor tensor) {
    return (struct rows){problem_strides(problem, tensor), problem->batch, problem_rows(problem, tensor),
                         problem_heads(problem, tensor)};
}

/* Where row number i of the host's order begins on the device, in elements. */
static int64_t row_at(const struct rows *rows, int64_t i) {
    return i / rows->heads / rows->seq * rows->strides.batch + i / rows->heads % rows->seq * rows->strides.seq +
           i % rows->heads * rows->strides.head;
}

void tensor_spread(const struct problem *problem, enum tensor tensor, const uint16_t *contiguous, uint16_t *memory) {
    const struct rows rows = rows_of(problem, tensor);
    const int64_t d_head = problem->d_head;
    if (tensor_is_contiguous(problem)) {
        memcpy(memory, contiguous, (size_t)problem_bytes(problem, tensor));
        return;
    }
    memset(memory, POISON_BYTE, (size_t)problem_device_bytes(problem, tensor));
    for (int64_t i = 0; i < rows.batch * rows.seq * rows.heads; i++)
        memcpy(memory + row_at(&rows, i), contiguous + i * d_head, 2 * (size_t)d_head);
}

int64_t tensor_gather(const struct problem *problem, enum tensor tensor, const uint16_t *memory, uint16_t *contiguous) {
    const struct rows rows = rows_of(problem, tensor);
    const int64_t d_head = problem->d_head, elements = problem_device_bytes(problem, tensor) / 2;
    int64_t written = 0, written_in_rows = 0;
    if (tensor_is_contiguous(problem)) {
        memcpy(contiguous, memory, (size_t)problem_bytes(problem, tensor));
        return 0;
    }
    for (int64_t i = 0; i < elements; i++) written += memory[i] != POISON;
    for (int64_t i = 0; i < rows.batch * rows.seq * rows.heads; i++) {
        const uint16_t *const row = memory + row_at(&rows, i);
        for (int64_t c = 0; c < d_head; c++) written_in_rows += row[c] != POISON;
        memcpy(contiguous + i * d_head, row, 2 * (size_t)d_head);
    }
    return written - written_in_rows;
}
