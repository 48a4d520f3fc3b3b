/* test_reference.c - the reference against the formula written plainly, and on cases whose answer is known. */
#include "common/tests/tap.h"
#include "harness/block_mask.h"
#include "harness/half.h"
#include "harness/reference.h"
#include "harness/tests/problems.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

static double element(const struct inputs *inputs, enum tensor tensor, int64_t batch, int64_t head, int64_t row,
                      int c) {
    const int64_t at = problem_row_offset(&inputs->problem, tensor, batch, head, row) + c;
    return half_to_float(inputs->tensors[tensor][at], inputs->problem.dtype);
}

static uint8_t mask[1 << 10]; /* that a kernel reads */

/* The masks as they are written in the interface, key by key. */
static bool sees(const struct problem *problem, int64_t batch, int64_t head, int64_t row, int64_t key) {
    const tensor_strides strides = block_mask_strides(problem);
    const int64_t at = batch * strides.batch + head * strides.head + row / MASK_ROWS * strides.seq + key / MASK_ROWS;
    return (!problem->causal || key <= row + problem->seq_k - problem->seq_q) && (!problem->block_mask || mask[at]);
}

static void plain_row(const struct inputs *inputs, int64_t batch, int64_t head, int64_t row, double *output,
                      double *weight, double *lse) {
    const struct problem *problem = &inputs->problem;
    const int64_t seq = problem->seq_k, KV_head = head * problem->KV_heads / problem->heads;
    double *p = malloc((size_t)seq * sizeof *p), most = -INFINITY, sum = 0;
    for (int64_t j = 0; j < seq; j++) {
        p[j] = 0;
        for (int c = 0; c < problem->d_head; c++)
            p[j] += element(inputs, TENSOR_Q, batch, head, row, c) * element(inputs, TENSOR_K, batch, KV_head, j, c);
        p[j] = problem->scale > 0 ? p[j] * (float)problem->scale : p[j] / sqrt((double)problem->d_head);
        if (!sees(problem, batch, head, row, j)) p[j] = -INFINITY;
        most = fmax(most, p[j]);
    }
    for (int64_t j = 0; j < seq; j++) sum += p[j] = p[j] > -INFINITY ? exp(p[j] - most) : 0;
    for (int c = 0; c < problem_d_head(problem, TENSOR_V); c++) {
        output[c] = weight[c] = 0;
        for (int64_t j = 0; j < seq && sum > 0; j++) {
            const double term = p[j] / sum * element(inputs, TENSOR_V, batch, KV_head, j, c);
            output[c] += term;
            weight[c] += fabs(term);
        }
    }
    *lse = most + log(sum);
    free(p);
}

static void against_plain(struct problem problem) {
    struct inputs inputs;
    struct failure failure;
    double worst = 0;
    int wrong = 0;
    if (!ok(!inputs_generate(&inputs, &problem, &failure), "inputs")) return;
    block_mask_fill(&problem, mask);
    struct reference_scratch *scratch = reference_scratch_new(&problem);
    for (int64_t head = 0; head < problem.heads; head++)
        for (int n = 1; n <= MAX_REFERENCE_ROWS; n += 5) {
            struct reference_row results[MAX_REFERENCE_ROWS];
            int64_t rows[MAX_REFERENCE_ROWS];
            for (int i = 0; i < n; i++) rows[i] = (i * 37 + head * 11) % problem.seq_q;
            reference_rows(&inputs, problem.batch - 1, head, rows, n, results, scratch);
            for (int i = 0; i < n; i++) {
                double output[MAX_D_HEAD], weight[MAX_D_HEAD], lse;
                plain_row(&inputs, problem.batch - 1, head, rows[i], output, weight, &lse);
                for (int c = 0; c < problem_d_head(&problem, TENSOR_V); c++) {
                    worst = fmax(worst, fabs(results[i].output[c] - output[c]));
                    worst = fmax(worst, fabs(results[i].weight[c] - weight[c]));
                }
                wrong += !(results[i].lse == lse || fabs(results[i].lse - lse) < 1e-12);
            }
        }
    ok(worst < 1e-12 && !wrong,
       "%s, batch %" PRId64 ", heads %" PRId64 " on %" PRId64 ", seq %" PRId64 " on %" PRId64
       ", d_head %d%s: differs by %.2g, %d wrong log-sum-exp",
       distribution_name(problem.dist), problem.batch, problem.heads, problem.KV_heads, problem.seq_q, problem.seq_k,
       problem.d_head, problem.causal ? ", causal" : "", worst, wrong);
    reference_scratch_free(scratch);
    inputs_free(&inputs);
}

/* Features that plain attention lacks: other numbers of keys and of KV heads, another head size, a mask, a scale. */
static void general(void) {
    static const struct {
        int64_t heads, KV_heads, seq_q, seq_k;
        int d_head;
        bool causal;
        double scale;
    } cases[] = {
        {4, 2, 40, 72, 64, false, 0},                                /* grouped heads */
        {3, 1, 33, 33, 128, true, 0},   {2, 2, 1, 97, 256, true, 0}, /* one query sees all keys */
        {2, 1, 50, 20, 16, true, 0},                                 /* 30 rows see no key */
        {2, 2, 17, 100, 96, true, 0.3}, {1, 1, 5, 1, 192, false, 2.5}, {6, 3, 64, 65, 80, true, 0.01},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct problem problem = square(2, cases[i].heads, cases[i].seq_q, i % 2 ? BF16 : FP16, DIST_NORMAL, 7 + i);
        problem.KV_heads = cases[i].KV_heads;
        problem.seq_k = cases[i].seq_k;
        problem.d_head = cases[i].d_head;
        problem.causal = cases[i].causal;
        problem.scale = cases[i].scale;
        against_plain(problem);
    }
}

/* Hidden blocks, in some rows all, and rows of V of another size. */
static void extended(void) {
    static const struct {
        int64_t seq_q, seq_k;
        int d_head_v;
        enum block_mask mask;
    } cases[] = {{40, 72, 24, MASK_NONE},
                 {300, 520, 40, MASK_RANDOM},
                 {520, 300, 0, MASK_RANDOM},
                 {300, 1000, 8, MASK_DOCUMENT},
                 {520, 300, 0, MASK_CAUSAL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct problem problem = square(2, 3, cases[i].seq_q, FP16, DIST_NORMAL, i);
        problem.seq_k = cases[i].seq_k, problem.d_head = 24, problem.d_head_v = cases[i].d_head_v;
        problem.causal = i == 2, problem.block_mask = cases[i].mask, problem.mask_seed = i;
        against_plain(problem);
    }
}

int main(void) {
    against_plain(square(2, 3, 128, FP16, DIST_NORMAL, 1));
    against_plain(square(1, 5, 96, BF16, DIST_NORMAL, 2));
    against_plain(square(1, 2, 80, BF16, DIST_LARGE, 3)); /* a last block of 16 keys */
    against_plain(square(3, 1, 16, FP16, DIST_RAMP, 4));  /* less than a block */
    against_plain(square(1, 1, 256, FP16, DIST_UNIFORM, 5));
    general();
    extended();
    return tap_done();
}
