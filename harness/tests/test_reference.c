/* test_reference.c - the blocked float64 reference against a plain double loop, and against exact cases. */
#include "harness/half.h"
#include "harness/reference.h"
#include "harness/tests/problems.h"
#include "harness/tests/tap.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

static double element(const struct inputs *inputs, enum tensor tensor, int64_t batch, int64_t head, int64_t row,
                      int c) {
    const int64_t at = problem_row_offset(&inputs->problem, TENSOR_O, batch, head, row) + c;
    return (double)half_to_float(inputs->tensors[tensor][at], inputs->problem.dtype);
}

/* One row, in the most direct way. */
static void plain_row(const struct inputs *inputs, int64_t batch, int64_t head, int64_t row, double output[D_HEAD],
                      double weight[D_HEAD]) {
    const int64_t seq = inputs->problem.seq_q;
    double *p = malloc((size_t)seq * sizeof *p), most = -INFINITY, sum = 0;
    for (int64_t j = 0; j < seq; j++) {
        p[j] = 0;
        for (int c = 0; c < D_HEAD; c++)
            p[j] += element(inputs, TENSOR_Q, batch, head, row, c) * element(inputs, TENSOR_K, batch, head, j, c);
        p[j] /= sqrt((double)D_HEAD);
        most = fmax(most, p[j]);
    }
    for (int64_t j = 0; j < seq; j++) sum += p[j] = exp(p[j] - most);
    for (int c = 0; c < D_HEAD; c++) {
        output[c] = weight[c] = 0;
        for (int64_t j = 0; j < seq; j++) {
            const double v = element(inputs, TENSOR_V, batch, head, j, c);
            output[c] += p[j] / sum * v;
            weight[c] += p[j] / sum * fabs(v);
        }
    }
    free(p);
}

/* Rows of every head of a problem, 16 or fewer at a time, must agree with the plain loop to 1e-12. */
static void against_plain(struct problem problem) {
    struct inputs inputs;
    struct failure failure;
    double output[MAX_REFERENCE_ROWS][D_HEAD], weight[MAX_REFERENCE_ROWS][D_HEAD], plain[D_HEAD], plain_weight[D_HEAD];
    double worst = 0;
    if (!ok(!inputs_generate(&inputs, &problem, &failure), "inputs")) return;
    struct reference_scratch *scratch = reference_scratch_new(problem.seq_q);
    for (int64_t batch = 0; batch < problem.batch; batch++)
        for (int64_t head = 0; head < problem.heads; head++) {
            int64_t rows[MAX_REFERENCE_ROWS];
            const int n = (int)(1 + (batch * problem.heads + head) * 5 % MAX_REFERENCE_ROWS);
            for (int i = 0; i < n; i++) rows[i] = (i * 37 + head * 11) % problem.seq_q;
            reference_rows(&inputs, batch, head, rows, n, output, weight, scratch);
            for (int i = 0; i < n; i++) {
                plain_row(&inputs, batch, head, rows[i], plain, plain_weight);
                for (int c = 0; c < D_HEAD; c++) {
                    worst = fmax(worst, fabs(output[i][c] - plain[c]));
                    worst = fmax(worst, fabs(weight[i][c] - plain_weight[c]));
                }
            }
        }
    ok(worst < 1e-12 * (problem.dist == DIST_LARGE ? 32 : 1),
       "%s %s, %" PRId64 " x %" PRId64 " x %" PRId64 ": off by %.1e", problem.dtype == FP16 ? "fp16" : "bf16",
       distribution_name(problem.dist), problem.batch, problem.heads, problem.seq_q, worst);
    reference_scratch_free(scratch);
    inputs_free(&inputs);
}

/* Equal scores give the mean of V; one dominant score gives its row of V. */
static void exact_cases(void) {
    const struct problem problem = square(1, 1, 64, FP16, DIST_NORMAL, 4);
    struct inputs inputs;
    struct failure failure;
    double output[1][D_HEAD], weight[1][D_HEAD];
    const int64_t row = 7;
    if (!ok(!inputs_generate(&inputs, &problem, &failure), "inputs")) return;
    struct reference_scratch *scratch = reference_scratch_new(problem.seq_q);
    for (int c = 0; c < D_HEAD; c++) inputs.tensors[TENSOR_Q][row * D_HEAD + c] = 0;
    double worst = 0;
    reference_rows(&inputs, 0, 0, &row, 1, output, weight, scratch);
    for (int c = 0; c < D_HEAD; c++) {
        double mean = 0;
        for (int j = 0; j < 64; j++) mean += element(&inputs, TENSOR_V, 0, 0, j, c) / 64;
        worst = fmax(worst, fabs(output[0][c] - mean));
    }
    ok(worst < 1e-14, "equal scores give the mean of V (off by %.1e)", worst);
    for (int c = 0; c < D_HEAD; c++) {
        inputs.tensors[TENSOR_Q][row * D_HEAD + c] = half_from_float(8, FP16);
        inputs.tensors[TENSOR_K][50 * D_HEAD + c] = half_from_float(64, FP16);
    }
    reference_rows(&inputs, 0, 0, &row, 1, output, weight, scratch);
    worst = 0;
    for (int c = 0; c < D_HEAD; c++) worst = fmax(worst, fabs(output[0][c] - element(&inputs, TENSOR_V, 0, 0, 50, c)));
    ok(worst == 0, "a score of 5792 gives its row of V, without overflow (off by %.1e)", worst);
    reference_scratch_free(scratch);
    inputs_free(&inputs);
}

int main(void) {
    against_plain(square(2, 3, 128, FP16, DIST_NORMAL, 1));
    against_plain(square(1, 5, 96, BF16, DIST_NORMAL, 2));
    against_plain(square(1, 2, 80, BF16, DIST_LARGE, 3)); /* a last block of 16 keys */
    against_plain(square(3, 1, 16, FP16, DIST_RAMP, 4));  /* less than a block */
    against_plain(square(1, 1, 256, FP16, DIST_UNIFORM, 5));
    exact_cases();
    return tap_done();
}
