#include "harness/reference.h"

#include "harness/half.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Loops over a block have constant bounds and independent lanes, so that a compiler vectorises them without changing
 * the order of any sum; where it can, it does so for several instruction sets and the machine picks one. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__)
#define FOR_EACH_VECTOR_WIDTH __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define FOR_EACH_VECTOR_WIDTH
#endif

enum { KEYS = 32 }; /* of one block: D_HEAD * KEYS doubles are 32 KB */

struct reference_scratch {
    double query[MAX_REFERENCE_ROWS][D_HEAD];
    double keys[D_HEAD][KEYS];   /* a block of K, transposed */
    double values[KEYS][D_HEAD]; /* a block of V */
    double *scores;              /* [MAX_REFERENCE_ROWS][seq] */
};

struct reference_scratch *reference_scratch_new(int64_t seq) {
    struct reference_scratch *scratch = calloc(1, sizeof *scratch);
    if (!scratch) return NULL;
    scratch->scores = malloc((size_t)(MAX_REFERENCE_ROWS * seq) * sizeof *scratch->scores);
    if (scratch->scores) return scratch;
    free(scratch);
    return NULL;
}

void reference_scratch_free(struct reference_scratch *scratch) {
    if (!scratch) return;
    free(scratch->scores);
    free(scratch);
}

FOR_EACH_VECTOR_WIDTH
static void widen_row(const uint16_t *row, enum dtype dtype, double *restrict out) {
    if (dtype == FP16)
        for (int c = 0; c < D_HEAD; c++) out[c] = half_value(row[c]);
    else
        for (int c = 0; c < D_HEAD; c++) out[c] = bfloat_value(row[c]);
}

/* scores[j] = query . keys[.][j] */
FOR_EACH_VECTOR_WIDTH
static void score_block(const double query[D_HEAD], double (*keys)[KEYS], double *restrict scores) {
    double sum[KEYS] = {0};
    for (int c = 0; c < D_HEAD; c++)
        for (int j = 0; j < KEYS; j++) sum[j] += query[c] * keys[c][j];
    memcpy(scores, sum, sizeof sum);
}

/* output += sum_j p[j] * values[j], weight likewise with absolute values; p and n of them from one block */
FOR_EACH_VECTOR_WIDTH
static void weigh_block(const double *p, int n, double (*values)[D_HEAD], double *restrict output,
                        double *restrict weight) {
    for (int j = 0; j < n; j++)
        for (int c = 0; c < D_HEAD; c++) {
            const double term = p[j] * values[j][c];
            output[c] += term;
            weight[c] += fabs(term);
        }
}

/* Scores to probabilities, in place. */
static void softmax(double *scores, int64_t seq) {
    double most = scores[0], sum = 0;
    for (int64_t j = 1; j < seq; j++)
        if (scores[j] > most) most = scores[j];
    for (int64_t j = 0; j < seq; j++) sum += scores[j] = exp(scores[j] - most);
    for (int64_t j = 0; j < seq; j++) scores[j] /= sum;
}

void reference_rows(const struct inputs *inputs, int64_t batch, int64_t head, const int64_t *rows, int n_rows,
                    double (*output)[D_HEAD], double (*weight)[D_HEAD], struct reference_scratch *scratch) {
    const struct problem *problem = &inputs->problem;
    const int64_t seq = problem->seq_k, stride = problem->heads * D_HEAD;
    const int64_t start = problem_row_offset(problem, TENSOR_K, batch, head, 0);
    const uint16_t *Q = inputs->tensors[TENSOR_Q] + start, *K = inputs->tensors[TENSOR_K] + start,
                   *V = inputs->tensors[TENSOR_V] + start;
    for (int i = 0; i < n_rows; i++) {
        widen_row(Q + rows[i] * stride, problem->dtype, scratch->query[i]);
        for (int c = 0; c < D_HEAD; c++) scratch->query[i][c] /= sqrt(D_HEAD);
    }
    for (int64_t first = 0; first < seq; first += KEYS) {
        const int n = seq - first < KEYS ? (int)(seq - first) : KEYS;
        for (int j = 0; j < n; j++) {
            double row[D_HEAD];
            widen_row(K + (first + j) * stride, problem->dtype, row);
            for (int c = 0; c < D_HEAD; c++) scratch->keys[c][j] = row[c];
        }
        for (int i = 0; i < n_rows; i++) {
            double scores[KEYS];
            score_block(scratch->query[i], scratch->keys, scores);
            memcpy(scratch->scores + i * seq + first, scores, (size_t)n * sizeof *scores);
        }
    }
    for (int i = 0; i < n_rows; i++) softmax(scratch->scores + i * seq, seq);
    memset(output, 0, (size_t)n_rows * sizeof *output);
    memset(weight, 0, (size_t)n_rows * sizeof *weight);
    for (int64_t first = 0; first < seq; first += KEYS) {
        const int n = seq - first < KEYS ? (int)(seq - first) : KEYS;
        for (int j = 0; j < n; j++) widen_row(V + (first + j) * stride, problem->dtype, scratch->values[j]);
        for (int i = 0; i < n_rows; i++)
            weigh_block(scratch->scores + i * seq + first, n, scratch->values, output[i], weight[i]);
    }
}
