#include "harness/verify.h"

#include "harness/half.h"
#include "harness/options.h"
#include "harness/parallel.h"
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
    if (!rows) return 0;
    /* Cut the list of all rows, head after head, into `count` even pieces and take one row of each. */
    for (int64_t i = 0; i < count; i++) {
        const int64_t first = piece_start(total, count, i), end = piece_start(total, count, i + 1);
        rows[i] = first + (end - first == 1 ? 0 : pick(problem->seed, i, end - first));
    }
    return count;
}

struct check {
    const struct inputs *inputs;
    const uint16_t *output;
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

/* Add what another part of the output gave. */
static void merge(struct verdict *into, const struct verdict *part) {
    if (part->mismatches && (!into->mismatches || before(&part->first, &into->first))) into->first = part->first;
    into->rows += part->rows;
    into->elements += part->elements;
    into->mismatches += part->mismatches;
    into->specials += part->specials;
    if (part->max_error > into->max_error) into->max_error = part->max_error;
    if (part->max_over_bound > into->max_over_bound) into->max_over_bound = part->max_over_bound;
}

static void compare_row(const struct check *check, int64_t batch, int64_t head, int64_t row, const double *reference,
                        const double *weight, struct verdict *part) {
    const struct problem *problem = &check->inputs->problem;
    const double roundoff = problem->dtype == FP16 ? 0x1p-11 : 0x1p-8;
    const uint16_t *got = check->output + problem_row_offset(problem, TENSOR_O, batch, head, row);
    part->rows++;
    for (int column = 0; column < D_HEAD; column++) {
        const double value = half_to_float(got[column], problem->dtype), expected = reference[column];
        const double bound = roundoff * (weight[column] + fabs(expected)) * 1.05 + 1e-6;
        double error = fabs(value - expected);
        if (isnan(error)) error = INFINITY;
        part->elements++;
        if (error > part->max_error) part->max_error = error;
        if (error / bound > part->max_over_bound) part->max_over_bound = error / bound;
        if (!(error <= bound)) {
            const struct wrong_element wrong = {batch, row, head, column, value, expected, bound};
            if (!part->mismatches || before(&wrong, &part->first)) part->first = wrong;
            part->mismatches++;
        }
    }
}

/* Compare chosen rows [MAX_REFERENCE_ROWS * i, ...), those of one head at a time. */
static void check_rows(int64_t i, void *context) {
    struct check *check = context;
    const struct problem *problem = &check->inputs->problem;
    struct verdict part = {0};
    struct reference_scratch *scratch = reference_scratch_new(problem->seq_k);
    const int64_t last = (i + 1) * MAX_REFERENCE_ROWS < check->n_rows ? (i + 1) * MAX_REFERENCE_ROWS : check->n_rows;
    for (int64_t at = i * MAX_REFERENCE_ROWS; scratch && at < last;) {
        const int64_t batch_head = check->rows[at] / problem->seq_q;
        const int64_t batch = batch_head / problem->heads, head = batch_head % problem->heads;
        int64_t rows[MAX_REFERENCE_ROWS];
        double output[MAX_REFERENCE_ROWS][D_HEAD], weight[MAX_REFERENCE_ROWS][D_HEAD];
        int n = 0;
        while (at < last && check->rows[at] / problem->seq_q == batch_head)
            rows[n++] = check->rows[at++] % problem->seq_q;
        reference_rows(check->inputs, batch, head, rows, n, output, weight, scratch);
        for (int r = 0; r < n; r++) compare_row(check, batch, head, rows[r], output[r], weight[r], &part);
    }
    pthread_mutex_lock(&check->lock);
    if (!scratch) check->out_of_memory = true;
    merge(check->verdict, &part);
    pthread_mutex_unlock(&check->lock);
    reference_scratch_free(scratch);
}

enum { CHUNK = 1 << 20 };

static void count_specials(int64_t i, void *context) {
    struct check *check = context;
    const struct problem *problem = &check->inputs->problem;
    const int64_t elements = problem_elements(problem, TENSOR_O),
                  end = (i + 1) * CHUNK < elements ? (i + 1) * CHUNK : elements;
    int64_t specials = 0;
    for (int64_t index = i * CHUNK; index < end; index++)
        specials += half_is_special(check->output[index], problem->dtype);
    pthread_mutex_lock(&check->lock);
    check->verdict->specials += specials;
    pthread_mutex_unlock(&check->lock);
}

enum status verify_output(const struct inputs *inputs, const uint16_t *output, int64_t wanted, struct verdict *verdict,
                          struct failure *failure) {
    int64_t *rows;
    struct check check = {.inputs = inputs, .output = output, .verdict = verdict, .lock = PTHREAD_MUTEX_INITIALIZER};
    *verdict = (struct verdict){0};
    check.n_rows = choose_rows(&inputs->problem, wanted, &rows);
    check.rows = rows;
    if (!check.n_rows) return fail_memory(failure, (uint64_t)wanted * sizeof *rows, "the rows to check");
    parallel_for((check.n_rows + MAX_REFERENCE_ROWS - 1) / MAX_REFERENCE_ROWS, check_rows, &check);
    parallel_for((problem_elements(&inputs->problem, TENSOR_O) + CHUNK - 1) / CHUNK, count_specials, &check);
    free(rows);
    if (check.out_of_memory)
        return fail_memory(failure, (uint64_t)inputs->problem.seq_k * MAX_REFERENCE_ROWS * sizeof(double),
                           "the scores of the reference");
    verdict->pass = !verdict->mismatches && !verdict->specials;
    return STATUS_OK;
}
