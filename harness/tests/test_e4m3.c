/* test_e4m3.c - the bytes of e4m3, their layout on the device, and what passes as their result. */
#include "common/tests/tap.h"
#include "harness/e4m3.h"
#include "harness/fp8.h"
#include "harness/half.h"
#include "harness/options.h"
#include "harness/tensor_memory.h"
#include "harness/tests/problems.h"
#include "harness/verify.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void bytes_are_values(void) {
    static const struct {
        float value;
        uint8_t byte;
    } cases[] = {{0, 0}, {-0.0f, 0x80}, {1, 0x38}, {-448, 0xfe}, {0x1p-9f, 1}, {0x7p-9f, 7}, {0x1p-6f, 8}, {240, 0x77}};
    int wrong = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        ok(e4m3_from_float(cases[i].value) == cases[i].byte && e4m3_to_float(cases[i].byte) == cases[i].value,
           "%g is 0x%02x", (double)cases[i].value, cases[i].byte);
    for (int byte = 0; byte < 256; byte++)
        if ((byte & 0x7f) != 0x7f) {
            const float value = e4m3_to_float((uint8_t)byte);
            wrong += e4m3_from_float(value) != byte || half_to_float(half_from_float(value, FP16), FP16) != value ||
                     half_to_float(half_from_float(value, BF16), BF16) != value;
        }
    ok(!wrong, "every byte is its value again, and fp16 and bf16 have it");
    ok(isnan(e4m3_to_float(0x7f)) && isnan(e4m3_to_float(0xff)) && e4m3_from_float(NAN) == 0x7f, "0x7f and 0xff: NaN");
    ok(e4m3_from_float(1e9f) == 0x7e && e4m3_from_float(-INFINITY) == 0xfe, "what is too large becomes 448");
}

/* The nearest value of all bytes, of two as near the one with an even last bit. */
static void rounding_is_to_the_nearest(void) {
    int wrong = 0;
    for (int byte = 0; byte < 0x7e; byte++) {
        const float low = e4m3_to_float((uint8_t)byte), high = e4m3_to_float((uint8_t)(byte + 1));
        const float middle = (low + high) / 2;
        wrong += e4m3_from_float(nextafterf(middle, 0)) != byte;
        wrong += e4m3_from_float(nextafterf(middle, 500)) != byte + 1;
        wrong += e4m3_from_float(middle) != (byte % 2 ? byte + 1 : byte);
        wrong += e4m3_from_float(-middle) != (0x80 | (byte % 2 ? byte + 1 : byte));
    }
    ok(!wrong, "between neighbors the nearest is taken, and of the middle the even one");
}

static struct problem e4m3_problem(int64_t seq) {
    struct problem problem = square(1, 2, seq, FP16, DIST_NORMAL, 5);
    problem.e4m3 = true;
    return problem;
}

static bool made(struct inputs *inputs, const struct problem *problem) {
    struct failure failure;
    return !inputs_generate(inputs, problem, &failure) || ok(false, "inputs: %s", failure.text);
}

/* True if O of the reference passes, made smaller by a share, with NaN at an index that is not 0. */
static bool passes(const struct inputs *inputs, double shrink, int poisoned) {
    const struct problem *problem = &inputs->problem;
    struct output output;
    struct verdict verdict;
    struct failure failure;
    struct reference_scratch *const scratch = reference_scratch_new(problem);
    if (output_new(&output, problem, &failure)) return false;
    for (int64_t head = 0; head < problem->heads; head++)
        for (int64_t row = 0; row < problem->seq_q; row++) {
            struct reference_row result;
            reference_rows(inputs, 0, head, &row, 1, &result, scratch);
            uint16_t *const O = output.O + problem_row_offset(problem, TENSOR_O, 0, head, row);
            for (int c = 0; c < problem->d_head; c++)
                O[c] = half_from_float((float)(result.output[c] * (1 - shrink)), problem->dtype);
        }
    if (poisoned) output.O[poisoned] = HALF_NAN;
    const enum status status = verify_output(inputs, &output, CHECK_ALL, &verdict, &failure);
    output_free(&output);
    reference_scratch_free(scratch);
    return !status && verdict.pass;
}

static void the_bound_tells_right_from_wrong(void) {
    struct problem problem = e4m3_problem(64);
    struct inputs inputs;
    problem.dist = DIST_UNIFORM;
    problem.summed_keys = 64;
    if (!made(&inputs, &problem)) return;
    ok(passes(&inputs, 0, 0), "the reference passes");
    ok(passes(&inputs, 0.03, 0), "O too small by 3 %% passes: half a unit of P");
    ok(!passes(&inputs, 0.25, 0), "O too small by 25 %% does not");
    ok(!passes(&inputs, 0, 777), "NaN does not");
    inputs.problem.descale[TENSOR_V] = 2;
    ok(passes(&inputs, 0, 0) && !passes(&inputs, 0.5, 0), "with a factor of V its double is right");
    inputs_free(&inputs);
}

int main(void) {
    bytes_are_values();
    rounding_is_to_the_nearest();
    the_bound_tells_right_from_wrong();
    return tap_done();
}
