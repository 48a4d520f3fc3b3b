/* test_tensor_memory.c - where each row lies in each layout, and that the way to the device and back changes nothing.
 */
#include "common/tests/tap.h"
#include "harness/backend.h"
#include "harness/tensor_memory.h"
#include "harness/tests/problems.h"

#include <inttypes.h>
#include <stdlib.h>

static struct problem made(enum layout layout) {
    struct problem problem = square(2, 6, 5, FP16, DIST_NORMAL, 1);
    problem.KV_heads = 3;
    problem.seq_k = 7;
    problem.d_head = 16;
    problem.layout = layout;
    return problem;
}

static void places(void) {
    static const struct {
        enum layout layout;
        enum tensor tensor;
        tensor_strides strides;
        int64_t bytes;
    } cases[] = {
        {LAYOUT_BSHD, TENSOR_Q, {5 * 6 * 16, 6 * 16, 16}, 2 * 2 * 5 * 6 * 16},
        {LAYOUT_BSHD, TENSOR_K, {7 * 3 * 16, 3 * 16, 16}, 2 * 2 * 7 * 3 * 16},
        {LAYOUT_BHSD, TENSOR_O, {5 * 6 * 16, 16, 5 * 16}, 2 * 2 * 5 * 6 * 16},
        {LAYOUT_BHSD, TENSOR_V, {7 * 3 * 16, 16, 7 * 16}, 2 * 2 * 7 * 3 * 16},
        /* gaps of 8 elements in Q, 16 in K, ...: the last row ends the memory */
        {LAYOUT_PADDED, TENSOR_Q, {5 * 152 + 8, 6 * 24 + 8, 24}, 2 * (768 + 4 * 152 + 5 * 24 + 16)},
        {LAYOUT_PADDED, TENSOR_K, {7 * 112 + 16, 3 * 32 + 16, 32}, 2 * (800 + 6 * 112 + 2 * 32 + 16)},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct problem problem = made(cases[i].layout);
        const tensor_strides strides = problem_strides(&problem, cases[i].tensor);
        ok(strides.batch == cases[i].strides.batch && strides.seq == cases[i].strides.seq &&
               strides.head == cases[i].strides.head &&
               problem_device_bytes(&problem, cases[i].tensor) == cases[i].bytes,
           "%s, tensor %d: strides %" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64 " bytes",
           layout_name(problem.layout), cases[i].tensor, strides.batch, strides.seq, strides.head,
           problem_device_bytes(&problem, cases[i].tensor));
    }
    const struct problem problem = made(LAYOUT_PADDED);
    for (int t = 0; t < N_TENSORS; t++) {
        const tensor_strides strides = problem_strides(&problem, (enum tensor)t);
        ok(strides.batch % 8 == 0 && strides.seq % 8 == 0 && strides.head % 8 == 0,
           "tensor %d: all strides are multiples of 16 bytes", t);
    }
}

static void there_and_back(enum layout layout, enum tensor tensor) {
    const struct problem problem = made(layout);
    const int64_t elements = problem_elements(&problem, tensor), bytes = problem_device_bytes(&problem, tensor);
    const int64_t heads = problem_heads(&problem, tensor), rows = problem_rows(&problem, tensor);
    const tensor_strides strides = problem_strides(&problem, tensor);
    uint16_t *values = malloc(2 * (size_t)elements), *memory = malloc((size_t)bytes),
             *back = malloc(2 * (size_t)elements);
    int64_t wrong = 0, poison = 0;
    for (int64_t i = 0; i < elements; i++) values[i] = (uint16_t)i;
    tensor_spread(&problem, tensor, values, memory);
    for (int64_t b = 0; b < problem.batch; b++)
        for (int64_t s = 0; s < rows; s++)
            for (int64_t h = 0; h < heads; h++)
                wrong +=
                    memcmp(memory + b * strides.batch + s * strides.seq + h * strides.head,
                           values + problem_row_offset(&problem, tensor, b, h, s), 2 * (size_t)problem.d_head) != 0;
    for (int64_t i = 0; i < bytes / 2; i++) poison += memory[i] == 0xffff;
    ok(!wrong && poison == bytes / 2 - elements,
       "%s, tensor %d: every row is in its place, %" PRId64 " elements between", layout_name(layout), tensor, poison);
    ok(!tensor_gather(&problem, tensor, memory, back) && !memcmp(back, values, 2 * (size_t)elements), "and comes back");
    if (layout == LAYOUT_PADDED) {
        memory[problem.d_head] = 0; /* the first of the gap behind the first row */
        ok(tensor_gather(&problem, tensor, memory, back) == 1 && !memcmp(back, values, 2 * (size_t)elements),
           "one element that was written in a gap is counted");
    }
    free(values);
    free(memory);
    free(back);
}

int main(void) {
    places();
    for (int layout = LAYOUT_BSHD; layout <= LAYOUT_PADDED; layout++)
        for (int t = 0; t < N_TENSORS; t++) there_and_back((enum layout)layout, (enum tensor)t);
    return tap_done();
}
