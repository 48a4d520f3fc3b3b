#include "harness/flop.h"

#include "harness/block_mask.h"

/* Pairs of a query and a key that it sees, in one head: without the mask all; with it the last row sees all keys, each
 * row before it one key less, down to none. */
static double visible_pairs(const struct problem *problem) {
    const double seq_q = (double)problem->seq_q, seq_k = (double)problem->seq_k;
    if (!problem->causal) return seq_q * seq_k;
    const double rows = seq_q < seq_k ? seq_q : seq_k; /* that see a key */
    return rows * (2 * seq_k - rows + 1) / 2;
}

/* The total of all sequences and heads. */
static double all_pairs(const struct problem *problem) {
    const double heads = (double)problem->heads;
    int64_t pairs = 0;
    if (problem->block_mask) return (double)block_mask_pairs(problem);
    if (!problem_is_ragged(problem) && !problem->windowed)
        return heads * (double)problem->batch * visible_pairs(problem);
    for (int64_t batch = 0; batch < problem->batch; batch++)
        for (int64_t row = 0; row < problem_length(problem, TENSOR_Q, batch); row++) {
            const struct key_span seen = problem_seen_keys(problem, batch, row);
            pairs += seen.end - seen.first;
        }
    return heads * (double)pairs;
}

double problem_flop(const struct problem *problem) {
    const double of_K = problem->backward ? 3 : 1, of_V = problem->backward ? 2 : 1; /* products */
    return 2 * all_pairs(problem) * (of_K * problem->d_head + of_V * problem_d_head(problem, TENSOR_V));
}

double problem_attn_flop(const struct problem *problem) {
    return problem_flop(problem) + 6.0 * all_pairs(problem);
}
