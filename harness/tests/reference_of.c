/* reference_of.c - what the reference says of one problem, for tests that ask NumPy the same.
 *
 *     reference_of --batch 2 --heads 4 --kv-heads 2 --seq-q 17 --seq-k 33 --causal --seed 7 --dtype fp16 > doubles
 *
 * Takes the options of an executable. Writes raw doubles: O [batch, heads, seq_q, d_head], sum of p |v| in the same
 * shape, then log-sum-exp.
 */
#include "harness/options.h"
#include "harness/reference.h"

#include <stdio.h>
#include <stdlib.h>

static void put(const double *values, int64_t count) {
    fwrite(values, sizeof *values, (size_t)count, stdout);
}

static bool answer(const struct problem *problem) {
    struct inputs inputs;
    struct failure failure;
    const int64_t rows = problem->batch * problem->heads * problem->seq_q;
    struct reference_row *results = malloc((size_t)rows * sizeof *results);
    struct reference_scratch *scratch = reference_scratch_new(problem);
    if (!results || !scratch || inputs_generate(&inputs, problem, &failure)) return false;
    for (int64_t i = 0; i < rows; i++) {
        const int64_t row = i % problem->seq_q, head = i / problem->seq_q % problem->heads;
        reference_rows(&inputs, i / problem->seq_q / problem->heads, head, &row, 1, &results[i], scratch);
    }
    for (int64_t i = 0; i < rows; i++) put(results[i].output, problem->d_head);
    for (int64_t i = 0; i < rows; i++) put(results[i].weight, problem->d_head);
    for (int64_t i = 0; i < rows; i++) put(&results[i].lse, 1);
    reference_scratch_free(scratch);
    inputs_free(&inputs);
    free(results);
    return true;
}

int main(int argc, char **argv) {
    struct options options;
    struct failure failure;
    struct problem problem;
    if (options_parse(&options, argc, argv, &failure)) {
        fprintf(stderr, "%s\n", failure.text);
        return 1;
    }
    const struct kernel_config config = {.dtype = options.dtype, .d_head = (int)options.d_head};
    options_problem_at(&options, false, 0, &config, &problem);
    return !answer(&problem);
}
