#include "harness/verify.h"

#include "harness/block_mask.h"
#include "harness/fp8.h"
#include "harness/half.h"
#include "harness/options.h"
#include "harness/parallel.h"
#include "harness/philox.h"
#include "harness/reference.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Random number in [0, below) that depends on seed and index alone. */
static int64_t pick(uint64_t seed, int64_t index, int64_t below) {
    const uint32_t counter[4] = {(uint32_t)index, (uint32_t)(index >> 32), 0xc0ffee, 1};
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t words[4];
    philox(counter, key, words);
    return (int64_t)((((uint64_t)words[0] << 32 | words[1]) >> 1) % (uint64_t)below);
}

/* Start of piece i of `total` rows cut into `count` pieces, total * i / count without overflow. */
static int64_t piece_start(int64_t total, int64_t count, int64_t i) {
    return total / count * i + total % count * i / count;
}

int64_t choose_rows(const struct problem *problem, int64_t wanted, int64_t **chosen) {
    const int64_t heads = problem->batch * problem->heads, seq = problem->seq_q, total = heads * seq;
    const int64_t count = wanted == CHECK_ALL || wanted > total ? total : wanted;
    int64_t *rows = malloc((size_t)count * sizeof *rows);
    *chosen = rows;
    if (!rows) return count;
    /* Cut the list of all rows, head after head, into `count` even pieces and take one row of each. */
    for (int64_t i = 0; i < count; i++) {
        const int64_t first = piece_start(total, count, i), end = piece_start(total, count, i + 1);
        rows[i] = first + (end - first == 1 ? 0 : pick(problem->seed, i, end - first));
    }
    return count;
}

struct check {
    const struct inputs *inputs;
    const struct output *output;
    const int64_t *rows;
    int64_t n_rows;
    bool out_of_memory;
    pthread_mutex_t lock; /* of out_of_memory and the verdict */
    struct verdict *verdict;
};

static bool before(const struct wrong_element *a, const struct wrong_element *b) {
    if (a->batch != b->batch) return a->batch < b->batch;
    if (a->row != b->row) return a->row < b->row;
    if (a->head != b->head) return a->head < b->head;
    return a->column < b->column;
}

static void keep_largest(double *largest, double value) {
    if (value > *largest) *largest = value;
}

void verdict_merge(struct verdict *into, const struct verdict *part) {
    if (part->mismatches && (!into->mismatches || before(&part->first, &into->first))) into->first = part->first;
    into->rows += part->rows;
    into->elements += part->elements;
    into->mismatches += part->mismatches;
    into->specials += part->specials;
    keep_largest(&into->max_error, part->max_error);
    keep_largest(&into->max_over_bound, part->max_over_bound);
    keep_largest(&into->lse_max_error, part->lse_max_error);
    keep_largest(&into->lse_max_over_bound, part->lse_max_over_bound);
}

void verdict_compare(const struct wrong_element *element, double *max_error, double *max_over_bound,
                     struct verdict *part) {
    /* -infinity is right where it is expected; NaN is wrong everywhere */
    double error = element->got == element->expected ? 0 : fabs(element->got - element->expected);
    if (isnan(error)) error = INFINITY;
    part->elements++;
    keep_largest(max_error, error);
    keep_largest(max_over_bound, error / element->bound);
    if (error <= element->bound) return;
    if (!part->mismatches || before(element, &part->first)) part->first = *element;
    part->mismatches++;
}

double lse_bound(const struct problem *problem, const struct reference_row *reference) {
    const double keys = (double)reference->keys, most = reference->largest;
    const double lse = isfinite(reference->lse) ? fabs(reference->lse) : 0;
    /* tanh from an exponential and a reciprocal: a few roundings of numbers of about 1, times the cap */
    const double of_cap = 8 * problem->softcap;
    const double roundings =
        problem->d_head * reference->products + 8 * sqrt(keys) + 15 * most + 6 * (lse + most) + 9 + of_cap;
    return 1.05 * 0x1p-24 * roundings + (problem->e4m3 ? e4m3_lse_bound(problem, reference) : 0);
}

/* Factor by which the errors of fp32 arithmetic are larger than with a scale of 1 / sqrt(d_head). */
static double growth(const struct problem *problem) {
    const double of_K = problem_has_cache_of_bytes(problem) ? problem_cache_scale(problem, TENSOR_K, 3) : 1;
    const double factor = problem_scale(problem) * sqrt(problem->d_head) * of_K;
    return factor > 1 ? factor : 1;
}

static void compare_row(const struct check *check, int64_t batch, int64_t head, int64_t row,
                        const struct reference_row *reference, struct verdict *part) {
    const struct problem *problem = &check->inputs->problem;
    const double roundoff = problem->dtype == FP16 ? 0x1p-11 : 0x1p-8, share = 1 + 0.05 * growth(problem);
    const uint16_t *got = check->output->O + problem_row_offset(problem, TENSOR_O, batch, head, row);
    part->rows++;
    for (int column = 0; column < problem_d_head(problem, TENSOR_V); column++) {
        const double expected = reference->output[column];
        const double bound = problem->e4m3 ? e4m3_O_bound(problem, reference, column)
                                           : roundoff * (reference->weight[column] + fabs(expected)) * share + 1e-6;
        const struct wrong_element element = {
            NULL, batch, row, head, column, half_to_float(got[column], problem->dtype), expected, bound};
        verdict_compare(&element, &part->max_error, &part->max_over_bound, part);
    }
    if (!check->output->lse) return;
    const double lse = check->output->lse[(batch * problem->heads + head) * problem->seq_q + row];
    const struct wrong_element element = {
        NULL, batch, row, head, LSE_COLUMN, lse, reference->lse, lse_bound(problem, reference)};
    verdict_compare(&element, &part->lse_max_error, &part->lse_max_over_bound, part);
}

/* Compare chosen rows [MAX_REFERENCE_ROWS * i, ...), those of one head at a time. */
static void check_rows(int64_t i, void *context) {
    struct check *check = context;
    const struct problem *problem = &check->inputs->problem;
    struct verdict part = {0};
    struct reference_scratch *scratch = reference_scratch_new(problem);
    const int64_t last = (i + 1) * MAX_REFERENCE_ROWS < check->n_rows ? (i + 1) * MAX_REFERENCE_ROWS : check->n_rows;
    for (int64_t at = i * MAX_REFERENCE_ROWS; scratch && at < last;) {
        const int64_t batch_head = check->rows[at] / problem->seq_q;
        const int64_t batch = batch_head / problem->heads, head = batch_head % problem->heads;
        int64_t rows[MAX_REFERENCE_ROWS];
        struct reference_row results[MAX_REFERENCE_ROWS];
        int n = 0;
        for (; at < last && check->rows[at] / problem->seq_q == batch_head; at++)
            if (check->rows[at] % problem->seq_q < problem_length(problem, TENSOR_Q, batch))
                rows[n++] = check->rows[at] % problem->seq_q;
        if (!n) continue;
        reference_rows(check->inputs, batch, head, rows, n, results, scratch);
        for (int r = 0; r < n; r++) compare_row(check, batch, head, rows[r], &results[r], &part);
    }
    pthread_mutex_lock(&check->lock);
    if (!scratch) check->out_of_memory = true;
    verdict_merge(check->verdict, &part);
    pthread_mutex_unlock(&check->lock);
    reference_scratch_free(scratch);
}

enum { CHUNK = 1 << 20 };

static void add_specials(struct check *check, int64_t specials) {
    pthread_mutex_lock(&check->lock);
    check->verdict->specials += specials;
    pthread_mutex_unlock(&check->lock);
}

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static void count_specials(int64_t i, void *context) {
    struct check *check = context;
    const struct problem *problem = &check->inputs->problem;
    const int64_t end = least((i + 1) * CHUNK, problem_elements(problem, TENSOR_O));
    int64_t specials = 0;
    for (int64_t index = i * CHUNK; index < end; index++)
        specials += half_is_special(check->output->O[index], problem->dtype);
    add_specials(check, specials);
}

/* Compare log-sum-exp; a row that attends to no key must have -infinity. */
static void count_lse_specials(int64_t i, void *context) {
    struct check *check = context;
    const struct problem *problem = &check->inputs->problem;
    const int64_t end = least((i + 1) * CHUNK, problem_lse_bytes(problem) / (int64_t)sizeof(float));
    int64_t specials = 0;
    for (int64_t index = i * CHUNK; index < end; index++) {
        const float value = check->output->lse[index];
        const int64_t row = index % problem->seq_q, of_head = index / problem->seq_q, batch = of_head / problem->heads;
        if (row >= problem_length(problem, TENSOR_Q, batch)) continue;
        const bool any = problem->sinks || block_mask_keys(problem, batch, of_head % problem->heads, row) > 0;
        specials += any ? !isfinite(value) : value != -INFINITY;
    }
    add_specials(check, specials);
}

static int64_t chunks(int64_t elements) {
    return (elements + CHUNK - 1) / CHUNK;
}

enum status verify_output(const struct inputs *inputs, const struct output *output, int64_t wanted,
                          struct verdict *verdict, struct failure *failure) {
    const struct problem *problem = &inputs->problem;
    int64_t *rows;
    struct check check = {.inputs = inputs, .output = output, .verdict = verdict, .lock = PTHREAD_MUTEX_INITIALIZER};
    *verdict = (struct verdict){.has_lse = output->lse != NULL, .strays = output->strays};
    check.n_rows = choose_rows(problem, wanted, &rows);
    check.rows = rows;
    if (!rows) return fail_memory(failure, (uint64_t)check.n_rows * sizeof *rows, "the rows to check");
    parallel_for((check.n_rows + MAX_REFERENCE_ROWS - 1) / MAX_REFERENCE_ROWS, check_rows, &check);
    parallel_for(chunks(problem_elements(problem, TENSOR_O)), count_specials, &check);
    if (output->lse)
        parallel_for(chunks(problem_lse_bytes(problem) / (int64_t)sizeof(float)), count_lse_specials, &check);
    free(rows);
    if (check.out_of_memory)
        return fail_memory(failure, (uint64_t)problem->seq_k * (MAX_REFERENCE_ROWS + 1) * sizeof(double),
                           "the scores of the reference");
    verdict->pass = !verdict->mismatches && !verdict->specials && !verdict->strays;
    return STATUS_OK;
}
