/* test_options.c - the option table, defaults, good and bad command lines, and the problems that they ask for. */
#include "common/tests/tap.h"
#include "harness/options.h"
#include "runtime/config.h"

#include <inttypes.h>
#include <stdlib.h>

/* Parse words separated by blanks; quotes are not known here. */
static enum status parse(struct options *options, const char *line, struct failure *failure) {
    static char copies[16][400]; /* options borrow from argv */
    static int next;
    char *argv[64], *copy = copies[next++ % 16];
    int argc = 0;
    snprintf(copy, sizeof copies[0], "v01 %s", line);
    for (char *word = strtok(copy, " "); word && argc < 64; word = strtok(NULL, " ")) argv[argc++] = word;
    failure->text[0] = 0;
    return options_parse(options, argc, argv, failure);
}

static void good_lines(void) {
    struct options options;
    struct failure failure;
    ok(!parse(&options, "--seq 512,1024 --batch=2 --heads 3:12:*2", &failure) && options.seq.count == 2 &&
           options.seq.values[1] == 1024 && options.batch.values[0] == 2 && options.heads.count == 3 &&
           options.heads.values[2] == 12,
       "lists and ranges, joined or apart");
    ok(!parse(&options, "--check all", &failure) && options.check_rows == CHECK_ALL, "--check all");
    ok(!parse(&options, "--check all --no-check", &failure) && options.check_rows == CHECK_NONE, "the last one counts");
    ok(!parse(&options, "--no-check --check 7", &failure) && options.check_rows == 7, "--check after --no-check");
    ok(!parse(&options, "--hot", &failure) && !options.cold, "--hot");
    ok(!parse(&options, "--hot --cold", &failure) && options.cold, "--cold after --hot");
    ok(!parse(&options, "--max-noise 0.3% --min-time 2s --timeout 5", &failure) && options.max_noise == 0.3 &&
           options.min_time == 2 && options.timeout == 5,
       "units may follow");
    ok(!parse(&options, "--config a --config=b", &failure) && options.n_configs == 2 &&
           !strcmp(options.configs[0], "a") && !strcmp(options.configs[1], "b"),
       "--config adds up");
    ok(!parse(&options, "--dtype bf16 --dist large --backend emu --checks off", &failure) && options.dtype == BF16 &&
           options.dist == DIST_LARGE && options.backend == BACKEND_EMU && !options.checks,
       "words become their numbers");
    ok(!parse(&options, "--checks off --checks on", &failure) && options.checks, "--checks on after off");
    ok(!parse(&options, "--dtype fp16", &failure) && options.dtype == FP16, "--dtype fp16");
    ok(!parse(&options, "-h", &failure) && options.help, "-h is --help");
    ok(!parse(&options, "--help", &failure) && options.help, "--help");
    ok(!parse(&options, "--seed 9000000000000000000", &failure) && options.seed == 9000000000000000000, "a large seed");
}

static void bad_lines(void) {
    static const struct {
        const char *line, *word;
    } cases[] = {
        {"--nope", "--nope"},
        {"--sequence 5", "did you mean --seq?"},
        {"--war", "did you mean --warmup?"},
        {"--x", "did you mean --help?"},
        {"512", "'512': is not an option"},
        {"-x", "-x: no such option"},
        {"-h=1", "--help '1': takes no value"},
        {"--seq", "--seq: the value is missing; write --seq LIST"},
        {"--seq --csv", "--seq '--csv'"},
        {"--seq 0", "'0'"},
        {"--seq -5", "'-5'"},
        {"--seq 12x", "at 'x'"},
        {"--seq 512,", "at ''"},
        {"--seq 512:256:*2", "ends at 256"},
        {"--seq 512:1024", "':*factor' or ':+step'"},
        {"--seq 512:1024:2", "'*factor' or '+step'"},
        {"--seq 512:1024:*1", "at least 2"},
        {"--seq 512:1024:+0", "positive"},
        {"--seq 1:100000:+1", "more than 256"},
        {"--seq 99999999999999999999", "1073741824"},
        {"--dtype fp32", "fp16|bf16"},
        {"--dtype", "fp16|bf16"},
        {"--dtype=fp16|bf16", "must be one of"},
        {"--backend cpu", "auto|gpu|emu"},
        {"--check 0", "from 1"},
        {"--check some", "whole number or all"},
        {"--runs 0", "from 1"},
        {"--runs 1000001", "to 1000000"},
        {"--runs 1.5", "whole number"},
        {"--runs 99999999999999999999", "from 1"},
        {"--max-noise 5s", "percent"},
        {"--max-noise nan", "percent"},
        {"--max-noise 101", "to 100"},
        {"--min-time -1", "from 0"},
        {"--min-time 5%", "seconds"},
        {"--csv=1", "takes no value"},
        {"--json=", "must not be empty"},
        {"--device -1", "from 0"},
        {"--checks 1", "on|off"},
        {"--dist gauss", "normal|uniform|large|ramp"},
        {"--scale 0", "from 1e-06 to 1e+06"},
        {"--scale nan", "must be a number"},
        {"--block-mask document:3", "must be causal, document or random:SEED"},
        {"--block-mask random:99999999999999999999", "a whole number from 0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct options options;
        struct failure failure;
        if (!ok(parse(&options, cases[i].line, &failure) == STATUS_USAGE, "refuses %s", cases[i].line)) continue;
        says(failure.text, cases[i].word, cases[i].line);
    }
}

/* As many configs as there is room for, and one more. */
static void many_configs(void) {
    char *argv[2 * (MAX_CONFIGS + 1) + 1] = {"v01"};
    struct options options;
    struct failure failure = {""};
    for (int i = 0; i <= MAX_CONFIGS; i++) {
        argv[1 + 2 * i] = "--config";
        argv[2 + 2 * i] = "all";
    }
    ok(!options_parse(&options, 2 * MAX_CONFIGS + 1, argv, &failure) && options.n_configs == MAX_CONFIGS,
       "takes %d configs", MAX_CONFIGS);
    ok(options_parse(&options, 2 * (MAX_CONFIGS + 1) + 1, argv, &failure) == STATUS_USAGE, "refuses one more");
    says(failure.text, "at most 64 times", "one config too many");
}

/* Options of one back end: the other names them. */
static void back_ends(void) {
    static const struct {
        const char *line, *gpu, *emulator;
    } cases[] = {
        {"--device 1", "--device", ""},
        {"--runs 3", "--runs", ""},
        {"--cold", "--cold", ""},
        {"--hot", "--hot", ""},
        {"--warmup 0", "--warmup", ""},
        {"--min-samples 3", "--min-samples", ""},
        {"--max-noise 1", "--max-noise", ""},
        {"--min-time 0", "--min-time", ""},
        {"--timeout 1", "--timeout", ""},
        {"--throttle-threshold 0", "--throttle-threshold", ""},
        {"--strict", "--strict", ""},
        {"--energy", "--energy", ""},
        {"--counters", "", "--counters"},
        {"--trace cta=0", "", "--trace"},
        {"--trace-events t.json", "", "--trace-events"},
        {"--schedule 0", "", "--schedule"}, /* given, though it is the default */
        {"--checks on", "", "--checks"},
        {"--wgmma-wait-per-warp", "", "--wgmma-wait-per-warp"},
        {"--ptx x.ptx", "", "--ptx"},
        {"--threads 2", "", "--threads"},
        {"--backend emu --seq 64 --check all --csv --diff", "", ""},
        {"--hot --threads 2 --seed 3 --runs=4 --hot", "--runs, --hot", "--threads"}, /* in the order of the table */
    };
    size_t of_one = 0;
    for (size_t i = 0; i < fl_option_count; i++) of_one += fl_options[i].only != BACKEND_AUTO;
    ok(of_one == sizeof cases / sizeof *cases - 2, "%zu options act on one back end: each is tried", of_one);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct options options;
        struct failure failure;
        char gpu[100] = "?", emulator[100] = "?", cut[9];
        const bool parsed = !parse(&options, cases[i].line, &failure);
        const int count = options_only_for(&options, BACKEND_GPU, gpu, sizeof gpu);
        options_only_for(&options, BACKEND_EMU, emulator, sizeof emulator);
        options_only_for(&options, BACKEND_GPU, cut, sizeof cut);
        ok(parsed && !strcmp(gpu, cases[i].gpu) && !strcmp(emulator, cases[i].emulator) &&
               (count > 0) == (gpu[0] != 0) && !strncmp(cut, gpu, sizeof cut - 1),
           "%s: for the GPU '%s', for the emulator '%s'", cases[i].line, gpu, emulator);
    }
}

/* Two options of which one would have no effect. */
static void conflicts(void) {
    static const struct {
        const char *line, *word;
    } cases[] = {
        {"--diff --no-check", "--diff: needs the checked launch"},
        {"--output x --no-check", "--output: needs the checked launch"},
        {"--profile --output x", "--output: cannot be combined with --profile"},
        {"--profile --diff", "--diff: cannot be combined with --profile"},
        {"--profile --json x", "--json: cannot be combined with --profile"},
        {"--profile --csv", "--csv: cannot be combined with --profile"},
        {"--profile --dump x", "--dump: cannot be combined with --profile"},
        {"--profile --counters", "--counters: cannot be combined with --profile"},
        {"--profile --runs 3", "--runs: cannot be combined with --profile"},
        {"--json - --csv", "give --json a file"},
        {"--diff --no-check --check 5", NULL},
        {"--profile --seq 64 --no-check", NULL},
        {"--json x --csv --diff", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct options options;
        struct failure failure;
        const bool parsed = !parse(&options, cases[i].line, &failure);
        const enum status status = options_check(&options, &failure);
        ok(parsed && status == (cases[i].word ? STATUS_USAGE : STATUS_OK), "%s is %s", cases[i].line,
           cases[i].word ? "refused" : "accepted");
        if (cases[i].word) says(failure.text, cases[i].word, cases[i].line);
    }
}

/* Every row of the table: in the help, accepted with a value it names itself, refused without one. */
static void table(void) {
    char *help = NULL;
    size_t length = 0;
    FILE *file = open_memstream(&help, &length);
    options_help(file, "bin/v01", ~0u);
    fclose(file);
    for (size_t i = 0; i < fl_option_count; i++) {
        const struct option *row = &fl_options[i];
        char line[200], name[100], argument[60];
        struct options options;
        struct failure failure;
        option_argument(row, argument, sizeof argument);
        snprintf(name, sizeof name, "  %s%s%s%s%s", row->name, row->letter ? ", " : "", row->letter ? row->letter : "",
                 argument[0] ? " " : "", argument);
        ok(strstr(help, name) && *row->help && strstr(help, row->help), "--help explains %s", row->name);
        for (size_t k = 0; k < i; k++)
            if (!strcmp(fl_options[k].name, row->name)) ok(false, "%s is in the table twice", row->name);
        const char *const value = row->kind == OPTION_WINDOW ? "1,1" : row->kind == OPTION_MASK ? "random:7" : "1";
        snprintf(line, sizeof line, "%s %s", row->name, !argument[0] ? "" : row->choices ? row->choices->word : value);
        ok(parse(&options, line, &failure) == STATUS_OK && options.given[i], "accepts %s", line);
        if (argument[0])
            ok(parse(&options, row->name, &failure) == STATUS_USAGE && strstr(failure.text, row->name) &&
                   strstr(failure.text, argument),
               "%s alone is refused by name", row->name);
    }
    free(help);
}

/* ---- lists ---- */

static void lists(void) {
    struct number_list list;
    struct failure failure;
    ok(!number_list_parse("--seq", "512:16384:*2", &list, &failure) && list.count == 6 && list.values[0] == 512 &&
           list.values[5] == 16384,
       "512:16384:*2 is six lengths");
    ok(!number_list_parse("--seq", "128:1024:+128", &list, &failure) && list.count == 8 && list.values[7] == 1024,
       "128:1024:+128 is eight lengths");
    ok(!number_list_parse("--seq", "100:1000:*3", &list, &failure) && list.count == 3 && list.values[2] == 900,
       "a range ends at its last value that is not beyond");
    ok(!number_list_parse("--seq", "5:5:+1,1,7:8:+1", &list, &failure) && list.count == 4 && list.values[0] == 5 &&
           list.values[1] == 1 && list.values[3] == 8,
       "lists may hold ranges");
    ok(number_list_parse("--seq", "", &list, &failure) == STATUS_USAGE, "an empty list is refused");
    ok(number_list_parse("--seq", "1,,2", &list, &failure) == STATUS_USAGE, "an empty item is refused");
    ok(number_list_parse("--seq", " 1", &list, &failure) == STATUS_USAGE, "a blank is refused");
    ok(number_list_parse("--heads", "1:1073741825:*2", &list, &failure) == STATUS_USAGE, "a last value too large");
    says(failure.text, "--heads", "a bad range");
    ok(!number_list_parse("--seq", "1:256:+1", &list, &failure) && list.count == MAX_NUMBERS, "as many as fit");
    ok(number_list_parse("--seq", "1:257:+1", &list, &failure) == STATUS_USAGE, "one more than fits");
}

/* ---- problems ---- */

static const struct kernel_config FP16_128 = {.dtype = FP16, .d_head = 128}, BF16_128 = {.dtype = BF16, .d_head = 128};

static void problems(void) {
    struct options options = {.dtype = FP16, .dist = DIST_RAMP, .seed = 9};
    struct problem problem;
    ok(options_problem_count(&options) == 1, "without lists there is one problem");
    options_problem_at(&options, true, 0, &BF16_128, &problem);
    ok(problem.batch == 16 && problem.heads == 16 && problem.seq_q == 4096 && problem.d_head == 128 &&
           problem.dtype == BF16 && problem.dist == DIST_RAMP && problem.seed == 9,
       "the default of a GPU");
    options_problem_at(&options, false, 0, &FP16_128, &problem);
    ok(problem.batch == 1 && problem.heads == 2 && problem.seq_q == 256 && problem.dtype == FP16,
       "the default of the emulator");
    options.seq = (struct number_list){2, {64, 16384}};
    options.heads = (struct number_list){3, {1, 2, 3}};
    ok(options_problem_count(&options) == 6, "two lengths with three numbers of heads are 6");
    options_problem_at(&options, true, 5, &FP16_128, &problem);
    ok(problem.seq_q == 16384 && problem.heads == 3 && problem.batch == 4, "the batch of a long problem is smaller");
    options.batch = (struct number_list){2, {7, 8}};
    ok(options_problem_count(&options) == 12, "with two batches they are 12");
    int wrong = 0;
    for (int64_t i = 0; i < 12; i++) {
        options_problem_at(&options, false, i, &FP16_128, &problem);
        wrong += problem.batch != 7 + i % 2 || problem.heads != 1 + i / 2 % 3 || problem.seq_q != (i < 6 ? 64 : 16384);
    }
    ok(!wrong, "lengths outermost, then heads, then batches");
    options = (struct options){.dtype = FP16, .tokens = 16384, .seq = {3, {512, 1024, 16384}}};
    wrong = 0;
    for (int64_t i = 0; i < options_problem_count(&options); i++) {
        options_problem_at(&options, i % 2, i, &FP16_128, &problem);
        wrong += problem.batch * problem.seq_q != 16384 || problem.seq_q != options.seq.values[i];
    }
    ok(!wrong && options_problem_count(&options) == 3, "with a number of tokens the batch is what makes it");
}

/* Lengths that --seq, --seq-q and --seq-k give together, and the batch that --tokens gives. */
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
        options_problem_at(&options, true, 0, &FP16_128, &problem);
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
    options_problem_at(&grid, false, 5, &FP16_128, &problem);
    ok(options_problem_count(&grid) == 6 && problem.seq_q == 2 && problem.seq_k == 30 && problem.batch == 32,
       "two numbers of queries with three of keys are 6");
    ok(problem.heads == 8 && problem.KV_heads == 2 && problem.causal && problem.lse && problem.scale == 0.5 &&
           problem.layout == LAYOUT_PADDED,
       "what is not a list is that of all problems");
}

int main(void) {
    good_lines();
    bad_lines();
    many_configs();
    back_ends();
    conflicts();
    table();
    lists();
    problems();
    lengths();
    return tap_done();
}
