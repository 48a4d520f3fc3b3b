#include "harness/gradients.h"

#include "harness/flop.h"
#include "harness/half.h"
#include "harness/parallel.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 32 }; /* rows that a step reads */

struct gradient_scratch {
    double own[2][MAX_REFERENCE_ROWS][MAX_D_HEAD]; /* Q and dO, or K and V */
    double lengths[2][MAX_REFERENCE_ROWS];
    double block[2][BLOCK][MAX_D_HEAD]; /* the others */
    double block_lengths[2][BLOCK];
};

struct gradient_scratch *gradient_scratch_new(void) {
    return calloc(1, sizeof(struct gradient_scratch));
}

void gradient_scratch_free(struct gradient_scratch *scratch) {
    free(scratch);
}

static double unit_roundoff(const struct problem *problem) {
    return problem->dtype == FP16 ? 0x1p-11 : 0x1p-8;
}

/* Half the least number of the type. */
static double half_least(const struct problem *problem) {
    return problem->dtype == FP16 ? 0x1p-25 : 0x1p-134;
}

static double product(const double *a, const double *b, int n) {
    double sums[4] = {0};
    for (int c = 0; c < n; c += 4) /* n is a multiple of 16 */
        for (int i = 0; i < 4; i++) sums[i] += a[c + i] * b[c + i];
    return sums[0] + sums[1] + (sums[2] + sums[3]);
}

/* Widen a row of a tensor, and its length. */
static double take_row(const struct inputs *inputs, const uint16_t *tensor, enum tensor like, int64_t batch,
                       int64_t head, int64_t row, double *out) {
    const struct problem *problem = &inputs->problem;
    const uint16_t *const from = tensor + problem_row_offset(problem, like, batch, head, row);
    for (int c = 0; c < problem->d_head; c++) out[c] = half_to_float(from[c], problem->dtype);
    return sqrt(product(out, out, problem->d_head));
}

static const struct query_row *query_row_of(const struct inputs *inputs, int64_t batch, int64_t head, int64_t row) {
    const struct problem *problem = &inputs->problem;
    return &inputs->query_rows[(batch * problem->heads + head) * problem->seq_q + row];
}

/* ---- one query and one key ---- */

/* Probability and its gradient, with the largest errors that a kernel may make. */
struct pair {
    double p, ds, p_error, ds_error;
};

/* A score with its soft cap, and the derivative of the cap with the largest error of a kernel, which computes it from
 * the rounded p. */
struct capped {
    double s, slope, slope_error;
};

static struct capped cap_of(const struct problem *problem, double s, double p_error) {
    const double cap = (float)problem->softcap;
    if (!(cap > 0)) return (struct capped){s, 1, 0};
    const double t = tanh(s / cap), of_t = p_error / cap;
    return (struct capped){cap * t, 1 - t * t, 2 * fabs(t) * of_t + of_t * of_t + 0x1p-22};
}

static struct pair pair_of(const struct problem *problem, double scaled, double dp, const struct query_row *query,
                           double K_length, double V_length) {
    const double e = 0x1p-24, u = unit_roundoff(problem), t = half_least(problem), d = problem->d_head;
    const double of_cap = 8 * problem->softcap; /* of tanh by ex2.approx and rcp.approx */
    const double s = cap_of(problem, scaled, 0).s;
    const double p = exp(s - query->lse), difference = dp - query->delta;
    const double x =
        e * (d * problem_scale(problem) * query->Q_length * K_length + 8 * (fabs(s) + fabs(query->lse)) + 8 + of_cap);
    const double a = e * d * query->dO_length * V_length + (u + e * d) * query->delta_products + t * query->dO_sum;
    const double of_p = (u + x) * fabs(difference) + a;
    const struct capped cap = cap_of(problem, scaled, u + x + (p > 0 ? t / p : 0));
    const double ds = cap.slope * p * difference, of_slope = fmin(1, cap.slope_error) * p * fabs(difference);
    return (struct pair){p, ds, p * (u + x) + t,
                         cap.slope * (p * of_p + t * fabs(difference)) + of_slope + u * fabs(ds) + t};
}

/* row += factor * other, and its error. `sum` is the share of a term that adding it up may cost. */
static void add_row(struct gradient_row *row, double factor, double error, double sum, const double *other, int n) {
    const double of_term = error + sum * fabs(factor);
    for (int c = 0; c < n; c++) {
        row->value[c] += factor * other[c];
        row->error[c] += of_term * fabs(other[c]);
    }
}

static double share_of_sum(int64_t n) {
    return 0x1p-24 * 8 * sqrt((double)n);
}

/* ---- rows ---- */

/* The own rows of two tensors, both like `like`. */
static void take_own(const struct inputs *inputs, const uint16_t *const tensors[2], enum tensor like, int64_t batch,
                     int64_t head, const int64_t *rows, int n_rows, struct gradient_scratch *scratch) {
    for (int i = 0; i < n_rows; i++)
        for (int t = 0; t < 2; t++)
            scratch->lengths[t][i] = take_row(inputs, tensors[t], like, batch, head, rows[i], scratch->own[t][i]);
}

static int take_block(const struct inputs *inputs, const uint16_t *const tensors[2], enum tensor like, int64_t batch,
                      int64_t head, int64_t first, int64_t end, struct gradient_scratch *scratch) {
    const int n = end - first < BLOCK ? (int)(end - first) : BLOCK;
    for (int i = 0; i < n; i++)
        for (int t = 0; t < 2; t++)
            scratch->block_lengths[t][i] =
                take_row(inputs, tensors[t], like, batch, head, first + i, scratch->block[t][i]);
    return n;
}

void reference_dQ(const struct inputs *inputs, int64_t batch, int64_t head, const int64_t *rows, int n_rows,
                  struct gradient_row *dQ, struct gradient_scratch *scratch) {
    const struct problem *problem = &inputs->problem;
    const int64_t KV_head = head / (problem->heads / problem->KV_heads);
    const uint16_t *const of_queries[] = {inputs->tensors[TENSOR_Q], inputs->dO};
    const uint16_t *const of_keys[] = {inputs->tensors[TENSOR_K], inputs->tensors[TENSOR_V]};
    const double scale = problem_scale(problem), sum = share_of_sum(problem_length(problem, TENSOR_K, batch));
    const int d = problem->d_head;
    memset(dQ, 0, (size_t)n_rows * sizeof *dQ);
    take_own(inputs, of_queries, TENSOR_Q, batch, head, rows, n_rows, scratch);
    const int64_t keys = problem_length(problem, TENSOR_K, batch);
    for (int64_t first = 0; first < keys; first += BLOCK) {
        const int n = take_block(inputs, of_keys, TENSOR_K, batch, KV_head, first, keys, scratch);
        for (int i = 0; i < n_rows; i++) {
            const struct key_span seen = problem_seen_keys(problem, batch, rows[i]);
            for (int j = 0; j < n; j++) {
                if (first + j < seen.first || first + j >= seen.end) continue;
                const double s = scale * product(scratch->own[0][i], scratch->block[0][j], d);
                const double dp = product(scratch->own[1][i], scratch->block[1][j], d);
                const struct pair pair = pair_of(problem, s, dp, query_row_of(inputs, batch, head, rows[i]),
                                                 scratch->block_lengths[0][j], scratch->block_lengths[1][j]);
                add_row(&dQ[i], scale * pair.ds, scale * pair.ds_error, sum, scratch->block[0][j], d);
            }
        }
    }
}

/* The contribution of the queries of one head. */
static void add_queries(const struct inputs *inputs, int64_t batch, int64_t head, const int64_t *rows, int n_rows,
                        struct gradient_row *dK, struct gradient_row *dV, struct gradient_scratch *scratch) {
    const struct problem *problem = &inputs->problem;
    const uint16_t *const of_queries[] = {inputs->tensors[TENSOR_Q], inputs->dO};
    const double scale = problem_scale(problem);
    const int64_t queries = problem_length(problem, TENSOR_Q, batch);
    const double sum = share_of_sum(queries * (problem->heads / problem->KV_heads));
    const int d = problem->d_head;
    for (int64_t first = 0; first < queries; first += BLOCK) {
        const int n = take_block(inputs, of_queries, TENSOR_Q, batch, head, first, queries, scratch);
        for (int j = 0; j < n; j++) {
            const struct key_span seen = problem_seen_keys(problem, batch, first + j);
            const struct query_row *const query = query_row_of(inputs, batch, head, first + j);
            for (int i = 0; i < n_rows; i++) {
                if (rows[i] < seen.first || rows[i] >= seen.end) continue;
                const double s = scale * product(scratch->own[0][i], scratch->block[0][j], d);
                const double dp = product(scratch->own[1][i], scratch->block[1][j], d);
                const struct pair pair = pair_of(problem, s, dp, query, scratch->lengths[0][i], scratch->lengths[1][i]);
                add_row(&dK[i], scale * pair.ds, scale * pair.ds_error, sum, scratch->block[0][j], d);
                add_row(&dV[i], pair.p, pair.p_error, sum, scratch->block[1][j], d);
            }
        }
    }
}

void reference_dKV(const struct inputs *inputs, int64_t batch, int64_t KV_head, const int64_t *rows, int n_rows,
                   struct gradient_row *dK, struct gradient_row *dV, struct gradient_scratch *scratch) {
    const struct problem *problem = &inputs->problem;
    const uint16_t *const of_keys[] = {inputs->tensors[TENSOR_K], inputs->tensors[TENSOR_V]};
    const int64_t group = problem->heads / problem->KV_heads;
    memset(dK, 0, (size_t)n_rows * sizeof *dK);
    memset(dV, 0, (size_t)n_rows * sizeof *dV);
    take_own(inputs, of_keys, TENSOR_K, batch, KV_head, rows, n_rows, scratch);
    for (int64_t head = KV_head * group; head < (KV_head + 1) * group; head++)
        add_queries(inputs, batch, head, rows, n_rows, dK, dV, scratch);
}

struct sink_gradient reference_dsink(const struct inputs *inputs, int64_t head) {
    const struct problem *problem = &inputs->problem;
    const double e = 0x1p-24, u = unit_roundoff(problem), t = half_least(problem), d = problem->d_head;
    const double sink = problem_sink(problem, head);
    const double sum = share_of_sum(problem->batch * problem->seq_q);
    struct sink_gradient found = {0};
    for (int64_t batch = 0; batch < problem->batch; batch++)
        for (int64_t row = 0; row < problem_length(problem, TENSOR_Q, batch); row++) {
            const struct query_row *const query = query_row_of(inputs, batch, head, row);
            const double p = exp(sink - query->lse), x = e * (8 * (fabs(sink) + fabs(query->lse)) + 8);
            found.value -= p * query->delta;
            found.error +=
                p * ((sum + x) * fabs(query->delta) + (u + e * d) * query->delta_products + t * query->dO_sum);
        }
    return found;
}

/* ---- the inputs ---- */

struct making {
    struct inputs *inputs;
    int out_of_memory;
};

static void fill_dO(int64_t i, void *context) {
    const struct making *making = context;
    struct inputs *inputs = making->inputs;
    const struct problem *problem = &inputs->problem;
    const int64_t row = problem->heads * problem->d_head;
    for (int64_t index = i * row; index < (i + 1) * row; index += 4) {
        float values[4];
        /* of moderate size also where scores are large; O has no random values, and dO takes its number */
        input_block(problem->dist == DIST_LARGE ? DIST_NORMAL : problem->dist, problem->seed, TENSOR_O,
                    (uint64_t)index / 4, values);
        for (int k = 0; k < 4; k++) inputs->dO[index + k] = half_from_float(values[k], problem->dtype);
    }
}

/* The results of the forward pass for a row. */
static void keep_row(struct inputs *inputs, int64_t batch, int64_t head, int64_t row,
                     const struct reference_row *result) {
    const struct problem *problem = &inputs->problem;
    const int64_t at = (batch * problem->heads + head) * problem->seq_q + row;
    const int64_t offset = problem_row_offset(problem, TENSOR_O, batch, head, row);
    struct query_row query = {.lse = result->lse};
    double dO[MAX_D_HEAD], Q[MAX_D_HEAD];
    query.dO_length = take_row(inputs, inputs->dO, TENSOR_O, batch, head, row, dO);
    query.Q_length = take_row(inputs, inputs->tensors[TENSOR_Q], TENSOR_Q, batch, head, row, Q);
    for (int c = 0; c < problem->d_head; c++) {
        inputs->O[offset + c] = half_from_float((float)result->output[c], problem->dtype);
        query.delta += dO[c] * result->output[c];
        query.delta_products += fabs(dO[c] * result->output[c]);
        query.dO_sum += fabs(dO[c]);
    }
    inputs->lse[at] = (float)result->lse;
    inputs->query_rows[at] = query;
}

/* Pairs of a sample and a KV head whose forward pass is computed. */
static int64_t count_exact(const struct problem *problem, double most_flop) {
    const int64_t pairs = problem->batch * problem->KV_heads;
    const double of_pair = problem_flop(problem) * 2 / 5 / (double)pairs;
    const int64_t fitting = of_pair > 0 && most_flop / of_pair < (double)pairs ? (int64_t)(most_flop / of_pair) : pairs;
    return problem->dist != DIST_NORMAL ? pairs : fitting ? fitting : 1;
}

int64_t backward_exact_pair(const struct inputs *inputs, int64_t i) {
    return i * (inputs->problem.batch * inputs->problem.KV_heads) / inputs->exact_pairs;
}

static bool is_exact(const struct inputs *inputs, int64_t batch, int64_t head) {
    const struct problem *problem = &inputs->problem;
    const int64_t pair = batch * problem->KV_heads + head / (problem->heads / problem->KV_heads);
    const int64_t pairs = problem->batch * problem->KV_heads;
    const int64_t next = (pair * inputs->exact_pairs + pairs - 1) / pairs; /* the first that is no earlier pair */
    return next < inputs->exact_pairs && backward_exact_pair(inputs, next) == pair;
}

/* Replacement for the forward pass of a row: the mean of exp(s) of n normal s is exp(variance / 2). */
static void keep_likely_row(struct inputs *inputs, int64_t batch, int64_t head, int64_t row) {
    const struct problem *problem = &inputs->problem;
    const struct key_span seen = problem_seen_keys(problem, batch, row);
    const int64_t keys = seen.end - seen.first, at = (batch * problem->heads + head) * problem->seq_q + row;
    const int64_t KV_head = head / (problem->heads / problem->KV_heads);
    uint16_t *const O = inputs->O + problem_row_offset(problem, TENSOR_O, batch, head, row);
    double Q[MAX_D_HEAD];
    const double length = take_row(inputs, inputs->tensors[TENSOR_Q], TENSOR_Q, batch, head, row, Q);
    const double deviation = problem_scale(problem) * length;
    if (keys > 0)
        memcpy(O, inputs->tensors[TENSOR_V] + problem_row_offset(problem, TENSOR_V, batch, KV_head, row % keys),
               (size_t)problem->d_head * sizeof *O);
    else
        memset(O, 0, (size_t)problem->d_head * sizeof *O);
    inputs->lse[at] = keys > 0 ? (float)(log((double)keys) + deviation * deviation / 2) : -INFINITY;
}

/* Rows [MAX_REFERENCE_ROWS * i, ...) of all heads, one head after another. */
static void forward_rows(int64_t i, void *context) {
    struct making *making = context;
    struct inputs *inputs = making->inputs;
    const struct problem *problem = &inputs->problem;
    const int64_t steps = (problem->seq_q + MAX_REFERENCE_ROWS - 1) / MAX_REFERENCE_ROWS;
    const int64_t batch = i / steps / problem->heads, head = i / steps % problem->heads;
    const int64_t queries = problem_length(problem, TENSOR_Q, batch);
    int64_t rows[MAX_REFERENCE_ROWS];
    int n = 0;
    for (int64_t row = i % steps * MAX_REFERENCE_ROWS; n < MAX_REFERENCE_ROWS && row < queries; row++) rows[n++] = row;
    if (!is_exact(inputs, batch, head)) {
        for (int r = 0; r < n; r++) keep_likely_row(inputs, batch, head, rows[r]);
        return;
    }
    struct reference_scratch *scratch = reference_scratch_new(problem);
    struct reference_row results[MAX_REFERENCE_ROWS];
    if (!scratch) {
        __atomic_store_n(&making->out_of_memory, 1, __ATOMIC_RELAXED);
        return;
    }
    reference_rows(inputs, batch, head, rows, n, results, scratch);
    for (int r = 0; r < n; r++) keep_row(inputs, batch, head, rows[r], &results[r]);
    reference_scratch_free(scratch);
}

enum status backward_inputs_generate(struct inputs *inputs, double most_flop, struct failure *failure) {
    const struct problem *problem = &inputs->problem;
    const int64_t bytes = problem_bytes(problem, TENSOR_O), rows = problem->batch * problem->heads * problem->seq_q;
    const int64_t steps = (problem->seq_q + MAX_REFERENCE_ROWS - 1) / MAX_REFERENCE_ROWS;
    struct making making = {.inputs = inputs};
    inputs->exact_pairs = count_exact(problem, most_flop);
    inputs->dO = malloc((size_t)bytes);
    inputs->O = malloc((size_t)bytes);
    inputs->lse = malloc((size_t)rows * sizeof *inputs->lse);
    inputs->query_rows = malloc((size_t)rows * sizeof *inputs->query_rows);
    if (!inputs->dO || !inputs->O || !inputs->lse || !inputs->query_rows)
        return fail_memory(failure, (uint64_t)(2 * bytes) + (uint64_t)rows * sizeof *inputs->query_rows,
                           "the inputs of the backward pass");
    parallel_for(problem->batch * problem->seq_q, fill_dO, &making);
    parallel_for(problem->batch * problem->heads * steps, forward_rows, &making);
    if (!making.out_of_memory) return STATUS_OK;
    return fail_memory(failure, (uint64_t)problem->seq_k * (MAX_REFERENCE_ROWS + 1) * sizeof(double),
                       "the scores of the reference");
}
