/* verify_gradients.c - compare the gradients that a launch left with the float64 reference, element by element. */
#include "harness/gradients.h"

#include "harness/half.h"
#include "harness/options.h"
#include "harness/parallel.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct check {
    const struct inputs *inputs;
    const struct output *output;
    const int64_t *rows; /* of queries or of keys, as choose_rows() has them */
    int64_t n_rows;
    bool of_keys;
    double off[N_INPUTS], size[N_INPUTS]; /* sums of squares, of the differences and of the reference */
    bool out_of_memory;
    pthread_mutex_t lock; /* of what is written from here on and above */
    struct verdict *verdict;
};

/* The results of a thread. */
struct part {
    struct verdict verdict;
    double off[N_INPUTS], size[N_INPUTS];
};

static const char *const NAMES[N_INPUTS] = {"dQ", "dK", "dV"};

static void compare_row(const struct check *check, enum tensor tensor, int64_t batch, int64_t head, int64_t row,
                        const struct gradient_row *reference, struct part *part) {
    const struct problem *problem = &check->inputs->problem;
    const double u = problem->dtype == FP16 ? 0x1p-11 : 0x1p-8, t = problem->dtype == FP16 ? 0x1p-25 : 0x1p-134;
    const uint16_t *const got =
        check->output->gradients[tensor] + problem_row_offset(problem, tensor, batch, head, row);
    for (int column = 0; column < problem->d_head; column++) {
        const double expected = reference->value[column];
        const struct wrong_element element = {.gradient = NAMES[tensor],
                                              .batch = batch,
                                              .row = row,
                                              .head = head,
                                              .column = column,
                                              .got = half_to_float(got[column], problem->dtype),
                                              .expected = expected,
                                              .bound = 1.05 * (reference->error[column] + u * fabs(expected) + t)};
        verdict_compare(&element, &part->verdict.max_error, &part->verdict.max_over_bound, &part->verdict);
        part->off[tensor] += (element.got - expected) * (element.got - expected);
        part->size[tensor] += expected * expected;
    }
}

static void compare_rows(const struct check *check, int64_t batch, int64_t head, const int64_t *rows, int n,
                         struct gradient_scratch *scratch, struct part *part) {
    struct gradient_row first[MAX_REFERENCE_ROWS], second[MAX_REFERENCE_ROWS];
    if (check->of_keys)
        reference_dKV(check->inputs, batch, head, rows, n, first, second, scratch);
    else
        reference_dQ(check->inputs, batch, head, rows, n, first, scratch);
    for (int i = 0; i < n; i++) {
        part->verdict.rows++;
        compare_row(check, check->of_keys ? TENSOR_K : TENSOR_Q, batch, head, rows[i], &first[i], part);
        if (check->of_keys) compare_row(check, TENSOR_V, batch, head, rows[i], &second[i], part);
    }
}

static void add_part(struct check *check, const struct part *part, bool out_of_memory) {
    pthread_mutex_lock(&check->lock);
    check->out_of_memory |= out_of_memory;
    verdict_merge(check->verdict, &part->verdict);
    for (int t = 0; t < N_INPUTS; t++) {
        check->off[t] += part->off[t];
        check->size[t] += part->size[t];
    }
    pthread_mutex_unlock(&check->lock);
}

/* Chosen rows [MAX_REFERENCE_ROWS * i, ...), those of one head at a time. */
static void check_rows(int64_t i, void *context) {
    struct check *check = context;
    const struct problem *problem = &check->inputs->problem;
    const enum tensor tensor = check->of_keys ? TENSOR_K : TENSOR_Q;
    const int64_t seq = problem_rows(problem, tensor), heads = problem_heads(problem, tensor);
    const int64_t group = heads / problem->KV_heads;
    const int64_t most = (i + 1) * MAX_REFERENCE_ROWS, last = most < check->n_rows ? most : check->n_rows;
    struct gradient_scratch *const scratch = gradient_scratch_new();
    struct part part = {0};
    for (int64_t at = i * MAX_REFERENCE_ROWS; scratch && at < last;) {
        const int64_t number = check->rows[at] / seq; /* of the heads that are compared */
        const int64_t pair = backward_exact_pair(check->inputs, number / group);
        const int64_t batch = pair / problem->KV_heads, head = pair % problem->KV_heads * group + number % group;
        int64_t rows[MAX_REFERENCE_ROWS];
        const int64_t length = problem_length(problem, tensor, batch);
        int n = 0;
        for (; at < last && check->rows[at] / seq == number; at++)
            if (check->rows[at] % seq < length) rows[n++] = check->rows[at] % seq;
        if (n) compare_rows(check, batch, head, rows, n, scratch, &part);
    }
    add_part(check, &part, !scratch);
    gradient_scratch_free(scratch);
}

static enum status check_some(struct check *check, int64_t wanted, bool of_keys, struct failure *failure) {
    struct problem problem = check->inputs->problem;
    int64_t *rows;
    problem.heads = of_keys ? 1 : problem.heads / problem.KV_heads;
    problem.batch = check->inputs->exact_pairs;
    if (of_keys) problem.seq_q = problem.seq_k;
    check->n_rows = choose_rows(&problem, wanted, &rows);
    check->rows = rows;
    check->of_keys = of_keys;
    if (!rows) return fail_memory(failure, (uint64_t)check->n_rows * sizeof *rows, "the rows to check");
    parallel_for((check->n_rows + MAX_REFERENCE_ROWS - 1) / MAX_REFERENCE_ROWS, check_rows, check);
    free(rows);
    return check->out_of_memory ? fail_memory(failure, sizeof(struct gradient_row), "the reference") : STATUS_OK;
}

/* The gradients of all sinks, which are sums over all rows, unless the forward pass of some was left out. */
static void check_sinks(const struct inputs *inputs, const struct output *output, struct verdict *verdict) {
    const struct problem *problem = &inputs->problem;
    if (!output->dsinks || inputs->exact_pairs < problem->batch * problem->KV_heads) return;
    for (int64_t head = 0; head < problem->heads; head++) {
        const struct sink_gradient expected = reference_dsink(inputs, head);
        const struct wrong_element element = {.gradient = "dsinks",
                                              .head = head,
                                              .got = output->dsinks[head],
                                              .expected = expected.value,
                                              .bound = 1.05 * (expected.error + 0x1p-24 * fabs(expected.value))};
        verdict_compare(&element, &verdict->max_error, &verdict->max_over_bound, verdict);
    }
}

static int64_t count_specials(const struct problem *problem, const struct output *output) {
    int64_t specials = 0;
    for (int t = 0; t < N_INPUTS; t++)
        for (int64_t i = 0; i < problem_elements(problem, (enum tensor)t); i++)
            specials += half_is_special(output->gradients[t][i], problem->dtype);
    return specials;
}

enum status verify_gradients(const struct inputs *inputs, const struct output *output, int64_t wanted,
                             struct verdict *verdict, struct failure *failure) {
    struct check check = {.inputs = inputs, .output = output, .verdict = verdict, .lock = PTHREAD_MUTEX_INITIALIZER};
    *verdict = (struct verdict){.has_gradients = true, .strays = output->strays};
    enum status status = check_some(&check, wanted, false, failure);
    if (!status) status = check_some(&check, wanted, true, failure);
    if (status) return status;
    check_sinks(inputs, output, verdict);
    verdict->specials = count_specials(&inputs->problem, output);
    for (int t = 0; t < N_INPUTS; t++)
        verdict->relative_error[t] = check.size[t] > 0 ? sqrt(check.off[t] / check.size[t]) : 0;
    verdict->pass = !verdict->mismatches && !verdict->specials && !verdict->strays;
    return STATUS_OK;
}
