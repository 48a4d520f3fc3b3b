#include "harness/inputs.h"

#include "harness/e4m3.h"
#include "harness/half.h"
#include "harness/parallel.h"
#include "harness/philox.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The functions below use additions, multiplications, divisions and square roots only, which IEEE 754 rounds in one
 * way: a libm's logarithm and cosine may differ in the last bit from another's, and so would the inputs. */

/* Natural logarithm of x in (0, 1]: x = 2^e * m with m in [sqrt(1/2), sqrt(2)), log m = 2 atanh((m - 1) / (m + 1)). */
static double portable_log(double x) {
    int e;
    double m = frexp(x, &e);
    if (m < 0.70710678118654752440) m *= 2, e--;
    const double t = (m - 1) / (m + 1), square = t * t;
    double series = 0;
    for (int n = 15; n >= 1; n -= 2) series = series * square + 1.0 / n;
    return e * 0.69314718055994530942 + 2 * t * series;
}

/* Cosine and sine of 2 pi u, u in [0, 1): Taylor series on the eighth of a turn around the nearest quarter. */
static void portable_turn(double u, double *cosine, double *sine) {
    const int quarter = (int)(4 * u + 0.5);
    const double x = (u - quarter * 0.25) * 6.28318530717958647693, square = x * x;
    double c = 0, s = 0;
    for (int n = 16; n >= 2; n -= 2) {
        c = (1 - c) * square / (n * (n - 1));
        s = (1 - s) * square / (n * (n + 1));
    }
    c = 1 - c;
    s = x * (1 - s);
    *cosine = quarter % 4 == 0 ? c : quarter % 4 == 1 ? -s : quarter % 4 == 2 ? -c : s;
    *sine = quarter % 4 == 0 ? s : quarter % 4 == 1 ? c : quarter % 4 == 2 ? -s : -c;
}

/* 251 is prime and 256 values are exact in bf16: neighboring rows, heads and columns differ. */
static float ramp_value(uint64_t index) {
    return (float)(index % 251) / 256;
}

/* Random values are made from four random words at a time; normal ones by the method of Box and Muller. */
void input_block(enum distribution dist, uint64_t seed, enum tensor tensor, uint64_t block, float values[4]) {
    const uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), (uint32_t)tensor, 0};
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t words[4];
    if (dist == DIST_RAMP) {
        for (int i = 0; i < 4; i++) values[i] = ramp_value(4 * block + (uint64_t)i);
        return;
    }
    philox(counter, key, words);
    if (dist == DIST_UNIFORM) { /* 24 bits are exact in a float; rounding to 16 bits may still give 1 */
        for (int i = 0; i < 4; i++) values[i] = (float)(words[i] >> 8) * 0x1p-24f;
        return;
    }
    const double factor = dist == DIST_LARGE ? 8 : 1;
    for (int i = 0; i < 4; i += 2) {
        const double radius = sqrt(-2 * portable_log((words[i] + 1.0) * 0x1p-32)); /* of a number in (0, 1] */
        double cosine, sine;
        portable_turn(words[i + 1] * 0x1p-32, &cosine, &sine);
        values[i] = (float)(factor * radius * cosine);
        values[i + 1] = (float)(factor * radius * sine);
    }
}

enum { CHUNK = 1 << 16 }; /* elements of one parallel iteration, a multiple of 4 */

struct fill {
    const struct problem *problem;
    enum tensor tensor;
    uint16_t *out;
};

static void fill_chunk(int64_t i, void *context) {
    const struct fill *fill = context;
    const struct problem *problem = fill->problem;
    const int64_t elements = problem_elements(problem, fill->tensor);
    const bool of_bytes = problem_is_of_bytes(problem, fill->tensor);
    const int64_t first = i * CHUNK, end = first + CHUNK < elements ? first + CHUNK : elements;
    for (int64_t index = first; index < end; index += 4) { /* elements is a multiple of d_head, and so of 4 */
        float values[4];
        input_block(problem->dist, problem->seed, fill->tensor, (uint64_t)index / 4, values);
        for (int k = 0; k < 4; k++) {
            const float value = !of_bytes             ? values[k]
                                : problem->cache_int8 ? (float)int8_from_float(INT8_ONE * values[k])
                                                      : e4m3_to_float(e4m3_from_float(values[k]));
            fill->out[index + k] = half_from_float(value, problem->dtype);
        }
    }
}

/* V is the first columns of K. */
static void take_V_from_K(const struct inputs *inputs) {
    const struct problem *const problem = &inputs->problem;
    const size_t bytes = 2 * (size_t)problem_d_head(problem, TENSOR_V);
    for (int64_t batch = 0; batch < problem->batch; batch++)
        for (int64_t head = 0; head < problem->KV_heads; head++)
            for (int64_t row = 0; row < problem_length(problem, TENSOR_K, batch); row++)
                memcpy(inputs->tensors[TENSOR_V] + problem_row_offset(problem, TENSOR_V, batch, head, row),
                       inputs->tensors[TENSOR_K] + problem_row_offset(problem, TENSOR_K, batch, head, row), bytes);
}

enum status inputs_generate(struct inputs *inputs, const struct problem *problem, struct failure *failure) {
    *inputs = (struct inputs){.problem = *problem};
    for (int t = 0; t < N_INPUTS; t++) {
        const int64_t bytes = problem_bytes(problem, (enum tensor)t);
        struct fill fill = {problem, (enum tensor)t, malloc((size_t)bytes)};
        if (!fill.out) return fail_memory(failure, (uint64_t)bytes, "an input tensor");
        inputs->tensors[t] = fill.out;
        parallel_for((bytes / 2 + CHUNK - 1) / CHUNK, fill_chunk, &fill);
    }
    if (problem->latent) take_V_from_K(inputs);
    return STATUS_OK;
}

void inputs_negate(struct inputs *inputs) {
    for (int t = 0; t < N_INPUTS; t++) {
        const int64_t elements = problem_elements(&inputs->problem, (enum tensor)t);
        for (int64_t i = 0; i < elements; i++) inputs->tensors[t][i] ^= 0x8000;
    }
}

void inputs_free(struct inputs *inputs) {
    for (int t = 0; t < N_INPUTS; t++) free(inputs->tensors[t]);
    free(inputs->dO);
    free(inputs->O);
    free(inputs->lse);
    free(inputs->query_rows);
    memset(inputs, 0, sizeof *inputs);
}

void output_free(struct output *output) {
    free(output->O);
    free(output->lse);
    for (int t = 0; t < N_INPUTS; t++) free(output->gradients[t]);
    free(output->dsinks);
    *output = (struct output){0};
}

bool output_is_there(const struct output *output) {
    return output->O || output->gradients[TENSOR_Q];
}

static enum status gradients_new(struct output *output, const struct problem *problem, struct failure *failure) {
    *output = (struct output){0};
    for (int t = 0; t < N_INPUTS; t++) {
        const int64_t bytes = problem_bytes(problem, (enum tensor)t);
        if ((output->gradients[t] = malloc((size_t)bytes))) continue;
        output_free(output);
        return fail_memory(failure, (uint64_t)bytes, "a gradient");
    }
    if (!problem->sinks || (output->dsinks = malloc((size_t)problem->heads * sizeof *output->dsinks))) return STATUS_OK;
    output_free(output);
    return fail_memory(failure, (uint64_t)problem->heads * sizeof *output->dsinks, "the gradients of sinks");
}

enum status output_new(struct output *output, const struct problem *problem, struct failure *failure) {
    if (problem->backward) return gradients_new(output, problem, failure);
    const int64_t bytes = problem_bytes(problem, TENSOR_O), lse_bytes = problem->lse ? problem_lse_bytes(problem) : 0;
    *output = (struct output){.O = malloc((size_t)bytes), .lse = lse_bytes ? malloc((size_t)lse_bytes) : NULL};
    if (output->O && (output->lse || !lse_bytes)) return STATUS_OK;
    output_free(output);
    return fail_memory(failure, (uint64_t)(bytes + lse_bytes), "the output");
}
