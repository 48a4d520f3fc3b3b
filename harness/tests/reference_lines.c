/* reference_lines.c - what the reference says of each problem of standard input, for tests that ask NumPy the same.
 *
 *     echo "2 4 2 17 33 64 fp16 causal 0.3 7" | reference_lines > doubles
 *
 * A line is batch, heads, KV heads, queries, keys, d_head, type, causal or full, scale (0: 1 / sqrt(d_head)) and seed.
 * Writes raw doubles: O [batch, heads, seq_q, d_head], sum of p |v| in the same shape, then log-sum-exp.
 */
#include "harness/reference.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

int main(void) {
    struct problem problem = {.dtype = FP16};
    char type[8], mask[8];
    while (scanf("%" SCNd64 "%" SCNd64 "%" SCNd64 "%" SCNd64 "%" SCNd64 "%d%7s%7s%lf%" SCNu64, &problem.batch,
                 &problem.heads, &problem.KV_heads, &problem.seq_q, &problem.seq_k, &problem.d_head, type, mask,
                 &problem.scale, &problem.seed) == 10) {
        problem.dtype = !strcmp(type, "bf16") ? BF16 : FP16;
        problem.causal = !strcmp(mask, "causal");
        if (!answer(&problem)) return 1;
    }
    return 0;
}
