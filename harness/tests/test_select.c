/* test_select.c - which instances and problems a command line asks for, in which order, and what is said otherwise. */
#include "harness/select.h"
#include "harness/tests/tap.h"
#include "runtime/config.h"

#include <inttypes.h>
#include <stdlib.h>

enum { MADE = 10, CAPACITY = 16 };

static struct instance made[MADE];

/* Ten configurations that are as long as they come; the odd ones are bf16. */
static struct instance_table make_table(size_t count) {
    for (int i = 0; i < MADE; i++) {
        char text[200];
        struct failure failure;
        snprintf(text, sizeof text,
                 "(%s, 128, 256, 256, 8): async+eager+swizzled+load_2_2_2_tiles+buffer+opt_softmax+lazy+stages_%d",
                 i % 2 ? "BF16" : "FP16", 2 + i / 2);
        if (config_parse(text, &made[i].config, &failure)) ok(false, "%s: %s", text, failure.text);
        made[i].entry = i;
    }
    return (struct instance_table){made, count};
}

static const KernelConfig FP16_128 = {.dtype = FP16, .d_head = 128}, BF16_128 = {.dtype = BF16, .d_head = 128};

static void problems(void) {
    struct options options = {.dtype = FP16, .dist = DIST_RAMP, .seed = 9};
    struct problem problem;
    ok(problem_count(&options) == 1, "without lists there is one problem");
    problem_at(&options, true, 0, &BF16_128, &problem);
    ok(problem.batch == 16 && problem.heads == 16 && problem.seq_q == 4096 && problem.d_head == 128 &&
           problem.dtype == BF16 && problem.dist == DIST_RAMP && problem.seed == 9,
       "the default of a GPU");
    problem_at(&options, false, 0, &FP16_128, &problem);
    ok(problem.batch == 1 && problem.heads == 2 && problem.seq_q == 256 && problem.dtype == FP16,
       "the default of the emulator");
    options.seq = (struct number_list){2, {64, 16384}};
    options.heads = (struct number_list){3, {1, 2, 3}};
    ok(problem_count(&options) == 6, "two lengths with three numbers of heads are 6");
    problem_at(&options, true, 5, &FP16_128, &problem);
    ok(problem.seq_q == 16384 && problem.heads == 3 && problem.batch == 4, "the batch of a long problem is smaller");
    options.batch = (struct number_list){2, {7, 8}};
    ok(problem_count(&options) == 12, "with two batches they are 12");
    int wrong = 0;
    for (int64_t i = 0; i < 12; i++) {
        problem_at(&options, false, i, &FP16_128, &problem);
        wrong += problem.batch != 7 + i % 2 || problem.heads != 1 + i / 2 % 3 || problem.seq_q != (i < 6 ? 64 : 16384);
    }
    ok(!wrong, "lengths outermost, then heads, then batches");
    options = (struct options){.dtype = FP16, .tokens = 16384, .seq = {3, {512, 1024, 16384}}};
    wrong = 0;
    for (int64_t i = 0; i < problem_count(&options); i++) {
        problem_at(&options, i % 2, i, &FP16_128, &problem);
        wrong += problem.batch * problem.seq_q != 16384 || problem.seq_q != options.seq.values[i];
    }
    ok(!wrong && problem_count(&options) == 3, "with a number of tokens the batch is what makes it");
}

/* Which lengths --seq, --seq-q and --seq-k give together, and the batch that --tokens gives. */
static void lengths(void) {
    static const struct {
        int64_t seq, seq_q, seq_k; /* 0: not given */
        int64_t queries, keys, batch;
    } cases[] = {
        {512, 0, 0, 512, 512, 16}, {0, 100, 0, 100, 100, 16}, {0, 0, 100, 100, 100, 16}, {0, 1, 9000, 1, 9000, 4},
        {512, 7, 0, 7, 512, 16},   {512, 0, 7, 512, 7, 16},   {0, 0, 0, 4096, 4096, 16}, {8192, 1, 0, 1, 8192, 8},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct problem problem;
        const struct options options = {.dtype = ANY_DTYPE,
                                        .seq = {cases[i].seq != 0, {cases[i].seq}},
                                        .seq_q = {cases[i].seq_q != 0, {cases[i].seq_q}},
                                        .seq_k = {cases[i].seq_k != 0, {cases[i].seq_k}}};
        problem_at(&options, true, 0, &FP16_128, &problem);
        ok(problem.seq_q == cases[i].queries && problem.seq_k == cases[i].keys && problem.batch == cases[i].batch,
           "--seq %" PRId64 " --seq-q %" PRId64 " --seq-k %" PRId64 ": %" PRId64 " queries, %" PRId64
           " keys, batch %" PRId64,
           cases[i].seq, cases[i].seq_q, cases[i].seq_k, problem.seq_q, problem.seq_k, problem.batch);
    }
    const struct options grid = {.dtype = ANY_DTYPE,
                                 .seq_q = {2, {1, 2}},
                                 .seq_k = {3, {10, 20, 30}},
                                 .tokens = 64,
                                 .heads = {1, {8}},
                                 .KV_heads = 2,
                                 .causal = true,
                                 .lse = true,
                                 .scale = 0.5,
                                 .layout = LAYOUT_PADDED};
    struct problem problem;
    problem_at(&grid, false, 5, &FP16_128, &problem);
    ok(problem_count(&grid) == 6 && problem.seq_q == 2 && problem.seq_k == 30 && problem.batch == 32,
       "two numbers of queries with three of keys are 6");
    ok(problem.heads == 8 && problem.KV_heads == 2 && problem.causal && problem.lse && problem.scale == 0.5 &&
           problem.layout == LAYOUT_PADDED,
       "what is not a list is that of all problems");
}

static void instances(void) {
    const struct instance *chosen[CAPACITY];
    struct instance_table table = make_table(MADE);
    struct options options = {.dtype = ANY_DTYPE, .n_configs = 1, .configs = {"all"}};
    struct failure failure;
    char text[CONFIG_TEXT_SIZE], twice[CONFIG_TEXT_SIZE];
    size_t count;
    ok(!select_instances(&options, &table, chosen, CAPACITY, &count, &failure) && count == MADE &&
           chosen[9] == &made[9],
       "all are chosen");
    ok(select_instances(&options, &table, chosen, MADE - 1, &count, &failure) == STATUS_USAGE,
       "more than there is room");
    says(failure.text, "more than 9 configs are chosen", "more than there is room");
    options.dtype = BF16;
    ok(!select_instances(&options, &table, chosen, CAPACITY, &count, &failure) && count == 5 && chosen[0] == &made[1],
       "all of one type");
    table.count = 1;
    ok(select_instances(&options, &table, chosen, CAPACITY, &count, &failure) == STATUS_USAGE, "none of the type");
    says(failure.text, "no bf16 config is built", "none of the type");
    table.count = MADE;
    options = (struct options){.dtype = ANY_DTYPE, .n_configs = 3};
    options.configs[0] = options.configs[2] = config_format(&made[4].config, text);
    options.configs[1] = config_format(&made[2].config, twice);
    ok(!select_instances(&options, &table, chosen, CAPACITY, &count, &failure) && count == 2 && chosen[0] == &made[4] &&
           chosen[1] == &made[2],
       "those that are named, in their order, each once");
    options.dtype = BF16;
    ok(select_instances(&options, &table, chosen, CAPACITY, &count, &failure) == STATUS_USAGE, "another type");
    says(failure.text, "is of type fp16, but --dtype is bf16", "another type");
}

static void what_is_not_built(void) {
    const struct instance *chosen[CAPACITY];
    struct instance_table table = make_table(MADE);
    struct options options = {
        .dtype = ANY_DTYPE, .n_configs = 1, .configs = {"(FP16, 128, 64, 64, 4): async+load_0_0_0_tiles"}};
    struct failure failure;
    char text[CONFIG_TEXT_SIZE];
    size_t count;
    ok(select_instances(&options, &table, chosen, CAPACITY, &count, &failure) == STATUS_USAGE, "one that is not built");
    says(failure.text, "and 2 more, see --list", "one of 10");
    says(failure.text, "build it with: make v01 KERNELS=", "one that is not built");
    says(failure.text, config_format(&made[7].config, text), "the eighth");
    ok(!strstr(failure.text, config_format(&made[8].config, text)), "the ninth is not listed");
    table.count = 8;
    ok(select_instances(&options, &table, chosen, CAPACITY, &count, &failure) == STATUS_USAGE &&
           !strstr(failure.text, "more"),
       "eight are listed in full");
    options.configs[0] = "(FP16";
    ok(select_instances(&options, &table, chosen, CAPACITY, &count, &failure) == STATUS_USAGE, "one that is not read");
}

int main(void) {
    problems();
    lengths();
    instances();
    what_is_not_built();
    return tap_done();
}
