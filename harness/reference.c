#include "harness/reference.h"

#include "harness/block_mask.h"
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

enum { KEYS = 32 };   /* of one block: 256 * KEYS doubles are 64 KB */
enum { COLUMNS = 8 }; /* of a step: every d_head is a multiple */

struct reference_scratch {
    double query[MAX_REFERENCE_ROWS][MAX_D_HEAD]; /* times the scale */
    double keys[MAX_D_HEAD][KEYS];                /* a block of K, transposed */
    double values[KEYS][MAX_D_HEAD];              /* a block of V */
    double *scores;                               /* [MAX_REFERENCE_ROWS][seq_k] */
    double *lengths;                              /* [seq_k], of the keys */
};

struct reference_scratch *reference_scratch_new(const struct problem *problem) {
    struct reference_scratch *scratch = calloc(1, sizeof *scratch);
    if (!scratch) return NULL;
    scratch->scores = malloc((size_t)(MAX_REFERENCE_ROWS * problem->seq_k) * sizeof *scratch->scores);
    scratch->lengths = malloc((size_t)problem->seq_k * sizeof *scratch->lengths);
    if (scratch->scores && scratch->lengths) return scratch;
    reference_scratch_free(scratch);
    return NULL;
}

void reference_scratch_free(struct reference_scratch *scratch) {
    if (!scratch) return;
    free(scratch->scores);
    free(scratch->lengths);
    free(scratch);
}

FOR_EACH_VECTOR_WIDTH
static void widen_row(const uint16_t *row, int d_head, enum dtype dtype, double *restrict out) {
    for (int first = 0; first < d_head; first += COLUMNS)
        if (dtype == FP16)
            for (int c = first; c < first + COLUMNS; c++) out[c] = half_value(row[c]);
        else
            for (int c = first; c < first + COLUMNS; c++) out[c] = bfloat_value(row[c]);
}

/* scores[j] = query . keys[.][j] */
FOR_EACH_VECTOR_WIDTH
static void score_block(const double *query, int d_head, double (*keys)[KEYS], double *restrict scores) {
    double sum[KEYS] = {0};
    for (int c = 0; c < d_head; c++)
        for (int j = 0; j < KEYS; j++) sum[j] += query[c] * keys[c][j];
    memcpy(scores, sum, sizeof sum);
}

/* output += sum_j p[j] * values[j], weight likewise with absolute values; p and n of them from one block */
FOR_EACH_VECTOR_WIDTH
static void weigh_block(const double *p, int n, int d_head, double (*values)[MAX_D_HEAD], double *restrict output,
                        double *restrict weight) {
    for (int j = 0; j < n; j++)
        for (int first = 0; first < d_head; first += COLUMNS)
            for (int c = first; c < first + COLUMNS; c++) {
                const double term = p[j] * values[j][c];
                output[c] += term;
                weight[c] += fabs(term);
            }
}

/* Terms of the bound of an e4m3 problem, from the block whose p and V have just been added to the row's output.
 * `weight_before` is the row's weight without it. */
static void add_sums(struct reference_row *row, const double *p, int keys, int d_head, double (*values)[MAX_D_HEAD],
                     const double *weight_before) {
    for (int j = 0; j < keys; j++) {
        row->p_squares += p[j] * p[j];
        for (int c = 0; c < d_head; c++) {
            const double v = values[j][c];
            row->term_squares[c] += p[j] * p[j] * v * v;
            row->V_squares[c] += v * v;
            row->signs[c] += (v > 0) - (v < 0);
        }
    }
    for (int c = 0; c < d_head; c++) {
        const double terms = row->weight[c] - weight_before[c];
        row->largest_sum[c] = fmax(row->largest_sum[c], fabs(row->output[c]));
        row->largest_terms[c] = fmax(row->largest_terms[c], terms);
    }
}

static double length_of(const double *vector, int d_head) {
    double sum = 0;
    for (int c = 0; c < d_head; c++) sum += vector[c] * vector[c];
    return sqrt(sum);
}

/* The scores of hidden blocks become -infinity. */
static void hide_blocks(const struct problem *problem, int64_t batch, int64_t head, int64_t row, struct key_span seen,
                        double *scores) {
    for (int64_t key = seen.first; key < seen.end; key++)
        if (!block_mask_shows(problem, batch, head, row, key)) scores[key] = -INFINITY;
}

/* The `keys` scores of a row to probabilities, in place, and what the row's log-sum-exp is judged by. A score of
 * -infinity is that of a key which the row does not see. */
static void softmax(double *scores, int64_t keys, double sink, const double *lengths, double query_length,
                    struct reference_row *result) {
    const bool sinks = sink > -INFINITY;
    double most = sink, least = sinks ? sink : INFINITY, sum = 0, length = 0;
    for (int64_t j = 0; j < keys; j++) {
        if (scores[j] == -INFINITY) continue;
        result->keys++;
        if (scores[j] > most) most = scores[j];
        if (scores[j] < least) least = scores[j];
    }
    const bool any = result->keys || sinks;
    if (sinks) sum = exp(sink - most);
    for (int64_t j = 0; j < keys; j++) sum += scores[j] = any ? exp(scores[j] - most) : 0;
    for (int64_t j = 0; j < keys && any; j++) {
        scores[j] /= sum;
        length += scores[j] * lengths[j];
    }
    result->lse = any ? most + log(sum) : -INFINITY;
    result->largest = any ? fmax(fabs(most), fabs(least)) : 0;
    result->products = query_length * length;
}

/* Keys of a block before `end`. */
static int before_in_block(int64_t end, int64_t first) {
    return end <= first ? 0 : end - first < KEYS ? (int)(end - first) : KEYS;
}

/* Scales of the scores and the values of a KV head: 1 without bytes. */
struct factors {
    double of_scores, of_V;
};

static struct factors factors_of(const struct problem *problem, int64_t KV_head) {
    if (problem_has_cache_of_bytes(problem))
        return (struct factors){problem_cache_scale(problem, TENSOR_K, KV_head),
                                problem_cache_scale(problem, TENSOR_V, KV_head)};
    return (struct factors){(float)problem->descale[TENSOR_Q] * (double)(float)problem->descale[TENSOR_K],
                            (float)problem->descale[TENSOR_V]};
}

void reference_rows(const struct inputs *inputs, int64_t batch, int64_t head, const int64_t *rows, int n_rows,
                    struct reference_row *results, struct reference_scratch *scratch) {
    const struct problem *problem = &inputs->problem;
    const int d_head = problem->d_head, d_head_v = problem_d_head(problem, TENSOR_V);
    const int64_t seq_k = problem->seq_k, stride = problem->KV_heads * d_head, V_stride = problem->KV_heads * d_head_v;
    const int64_t KV_head = head / (problem->heads / problem->KV_heads);
    const uint16_t *K = inputs->tensors[TENSOR_K] + problem_row_offset(problem, TENSOR_K, batch, KV_head, 0),
                   *V = inputs->tensors[TENSOR_V] + problem_row_offset(problem, TENSOR_V, batch, KV_head, 0);
    const struct factors factors = factors_of(problem, KV_head);
    struct key_span seen[MAX_REFERENCE_ROWS];
    int64_t end = 0, begin = INT64_MAX;
    memset(results, 0, (size_t)n_rows * sizeof *results);
    for (int i = 0; i < n_rows; i++) {
        const int64_t at = problem_row_offset(problem, TENSOR_Q, batch, head, rows[i]);
        widen_row(inputs->tensors[TENSOR_Q] + at, d_head, problem->dtype, scratch->query[i]);
        for (int c = 0; c < d_head; c++) scratch->query[i][c] *= problem_scale(problem) * factors.of_scores;
        seen[i] = problem_seen_keys(problem, batch, rows[i]);
        if (seen[i].end > end) end = seen[i].end;
        if (seen[i].first < begin) begin = seen[i].first;
    }
    for (int64_t first = begin; first < end; first += KEYS) {
        const int n = before_in_block(end, first);
        for (int j = 0; j < n; j++) {
            double row[MAX_D_HEAD];
            widen_row(K + (first + j) * stride, d_head, problem->dtype, row);
            for (int c = 0; c < d_head; c++) scratch->keys[c][j] = row[c];
            scratch->lengths[first + j] = length_of(row, d_head);
        }
        for (int i = 0; i < n_rows; i++) {
            double scores[KEYS];
            score_block(scratch->query[i], d_head, scratch->keys, scores);
            for (int j = 0; j < KEYS && problem->softcap > 0; j++)
                scores[j] = (float)problem->softcap * tanh(scores[j] / (float)problem->softcap);
            memcpy(scratch->scores + i * seq_k + first, scores, (size_t)n * sizeof *scores);
        }
    }
    for (int i = 0; i < n_rows && problem->block_mask; i++)
        hide_blocks(problem, batch, head, rows[i], seen[i], scratch->scores + i * seq_k);
    for (int i = 0; i < n_rows; i++)
        softmax(scratch->scores + i * seq_k + seen[i].first, seen[i].end - seen[i].first, problem_sink(problem, head),
                scratch->lengths + seen[i].first, length_of(scratch->query[i], d_head), &results[i]);
    for (int64_t first = begin; first < end; first += KEYS) {
        const int n = before_in_block(end, first);
        for (int j = 0; j < n; j++) {
            widen_row(V + (first + j) * V_stride, d_head_v, problem->dtype, scratch->values[j]);
            for (int c = 0; c < d_head_v; c++) scratch->values[j][c] *= factors.of_V;
        }
        for (int i = 0; i < n_rows; i++) {
            const int skipped = before_in_block(seen[i].first, first);
            const int keys = before_in_block(seen[i].end, first) - skipped;
            const double *const p = scratch->scores + i * seq_k + first + skipped;
            double weight_before[MAX_D_HEAD];
            memcpy(weight_before, results[i].weight, sizeof weight_before);
            weigh_block(p, keys, d_head_v, scratch->values + skipped, results[i].output, results[i].weight);
            if (problem->e4m3) add_sums(&results[i], p, keys, d_head_v, scratch->values + skipped, weight_before);
        }
    }
}
