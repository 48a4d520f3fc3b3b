/* test_problem.c - sizes, their limits and what a problem costs. */
#include "common/tests/tap.h"
#include "harness/block_mask.h"
#include "harness/flop.h"

#include <inttypes.h>
#include <string.h>

static const struct kernel_config CONFIG = {.dtype = FP16, .d_head = 128, .B_r = 128, .B_c = 64, .n_warps = 4};

static void costs(void) {
    const struct problem problem = problem_square(16, 16, 4096);
    ok(problem_elements(&problem, TENSOR_Q) == 134217728 && problem_bytes(&problem, TENSOR_K) == 268435456 &&
           problem_all_bytes(&problem) == 4 * 268435456ll,
       "elements and bytes");
    ok(problem_flop(&problem) == 4.0 * 256 * 4096 * 4096 * 128, "operations of the two matmuls");
    ok(problem_attn_flop(&problem) == problem_flop(&problem) + 6.0 * 256 * 4096 * 4096, "and of the softmax");
    ok(problem_row_offset(&problem, TENSOR_V, 0, 0, 1) == 16 * 128 &&
           problem_row_offset(&problem, TENSOR_V, 0, 1, 0) == 128 &&
           problem_row_offset(&problem, TENSOR_V, 1, 0, 0) == 4096 * 16 * 128,
       "(batch, seq, heads, d_head) is contiguous");
    const attention_args general = problem_args(&problem);
    forward_args args;
    memcpy(&args, &general, sizeof args);
    ok(args.batch_stride == 4096 * 16 * 128 && args.seq_stride == 16 * 128 && args.head_stride == 128 &&
           args.seq == 4096 && args.heads == 16,
       "strides handed to the kernel are the same");
    ok(problem_default_batch(512) == 16 && problem_default_batch(4096) == 16 && problem_default_batch(8192) == 8 &&
           problem_default_batch(16384) == 4 && problem_default_batch(32768) == 4,
       "the batch follows the length");
    struct problem other = problem;
    ok(problem_equal(&problem, &other), "a copy is equal");
    other.seed = 7;
    ok(!problem_equal(&problem, &other), "another seed is another problem");
}

/* Pairs of a query and a key that it sees, counted one by one. */
static double counted_pairs(const struct problem *problem) {
    double pairs = 0;
    for (int64_t row = 0; row < problem->seq_q; row++)
        for (int64_t key = 0; key < problem->seq_k; key++)
            pairs += !problem->causal || key <= row + problem->seq_k - problem->seq_q;
    return pairs;
}

static void costs_of_general_attention(void) {
    static const int64_t lengths[][2] = {{1, 1}, {1, 9}, {9, 1}, {7, 7}, {7, 12}, {12, 7}};
    int wrong = 0;
    for (size_t i = 0; i < 2 * sizeof lengths / sizeof *lengths; i++) {
        struct problem problem = problem_square(2, 6, lengths[i / 2][0]);
        problem.seq_k = lengths[i / 2][1];
        problem.KV_heads = 3;
        problem.d_head = 64;
        problem.causal = i % 2;
        const double pairs = 12 * counted_pairs(&problem);
        int64_t seen = 0;
        for (int64_t row = 0; row < problem.seq_q; row++) seen += problem_seen_keys(&problem, 0, row).end;
        wrong += problem_flop(&problem) != 4 * 64 * pairs || problem_attn_flop(&problem) != (4 * 64 + 6) * pairs ||
                 (double)(12 * seen) != pairs;
    }
    ok(!wrong, "operations are those of the pairs that the mask leaves");
    struct problem masked = problem_square(2, 6, 300);
    masked.seq_k = 700, masked.d_head_v = 40, masked.causal = true, masked.block_mask = MASK_RANDOM;
    double pairs = 0;
    for (int64_t i = 0; i < 2 * 6 * 300 * 700; i++) {
        const int64_t key = i % 700, row = i / 700 % 300, head = i / 700 / 300;
        pairs += key <= row + 400 && block_mask_shows(&masked, head / 6, head % 6, row, key);
    }
    ok(pairs > 0 && problem_flop(&masked) == 2 * (128 + 40) * pairs, "and with a block mask and shorter rows of V");
    struct problem problem = problem_square(2, 6, 10);
    problem.seq_k = 20;
    problem.KV_heads = 2;
    problem.scale = 0.1;
    problem.causal = true;
    problem.layout = LAYOUT_PADDED;
    const attention_args args = problem_args(&problem);
    ok(args.seq_q == 10 && args.seq_k == 20 && args.heads == 6 && args.KV_heads == 2 && args.batch == 2 &&
           args.causal == 1 && args.softmax_scale == 0.1f && !args.LSE && !args.tickets,
       "a kernel is told of all of it");
    ok(args.Q_strides.head == 136 && args.K_strides.head == 144 && args.V_strides.head == 152 &&
           args.O_strides.head == 160,
       "with each tensor's own strides");
    ok(problem_bytes(&problem, TENSOR_K) == 2 * 2 * 20 * 2 * 128 &&
           problem_bytes(&problem, TENSOR_O) == 2 * 2 * 10 * 768 &&
           problem_all_bytes(&problem) == 2 * (2 * 2 * 20 * 256 + 2 * 2 * 10 * 768) &&
           problem_lse_bytes(&problem) == 4 * 2 * 6 * 10,
       "K and V have their own size");
    struct problem others[8];
    int equal = 0;
    for (int i = 0; i < 8; i++) others[i] = problem;
    others[0].KV_heads = 3, others[1].seq_k = 21, others[2].scale = 0.2, others[3].causal = false;
    others[4].layout = LAYOUT_BHSD, others[5].lse = true, others[6].seq_q = 11, others[7].d_head = 64;
    for (int i = 0; i < 8; i++) equal += problem_equal(&problem, &others[i]);
    ok(!equal, "each of them makes another problem");
}

static void limits(void) {
    static const struct {
        int64_t batch, heads, seq;
        const char *word; /* NULL: accepted */
    } cases[] = {
        {1, 1, 128, NULL},          {65535, 1, 128, NULL},
        {0, 1, 128, "--batch 0"},   {1, -3, 128, "--heads -3"},
        {1, 1, 0, "--seq 0"},       {65536, 1, 128, "65535"},
        {1, 65536, 128, "65535"},   {65535, 65535, 1 << 20, "product"},
        {1, 1, 1 << 30, "product"}, {1, 1, 100, "use 128 or 256"},
        {1, 1, 192, "B_r = 128"},   {1, 1, 300, "use 256 or 384"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct problem problem = problem_square(cases[i].batch, cases[i].heads, cases[i].seq);
        struct failure failure = {""};
        const enum status status = problem_check(&problem, &CONFIG, &failure);
        ok(status == (cases[i].word ? STATUS_USAGE : STATUS_OK), "batch %" PRId64 " heads %" PRId64 " seq %" PRId64,
           cases[i].batch, cases[i].heads, cases[i].seq);
        if (cases[i].word) says(failure.text, cases[i].word, "the size");
    }
    struct kernel_config wide = CONFIG;
    struct failure failure;
    const struct problem problem = problem_square(1, 1, 64);
    wide.B_r = 64;
    wide.B_c = 128;
    ok(problem_check(&problem, &wide, &failure) == STATUS_USAGE, "a length below B_c");
    says(failure.text, "B_c = 128", "the length");
}

int main(void) {
    costs();
    costs_of_general_attention();
    limits();
    return tap_done();
}
