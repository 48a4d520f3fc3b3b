#include "harness/options.h"
#include "emulator/emu.h"
#include "runtime/config.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define AT(field) .offset = offsetof(struct options, field)

static const struct choice BACKENDS[] = {{"auto", BACKEND_AUTO}, {"gpu", BACKEND_GPU}, {"emu", BACKEND_EMU}, {NULL, 0}};
static const struct choice DTYPES[] = {{"fp16", FP16}, {"bf16", BF16}, {NULL, 0}};
static const struct choice DISTRIBUTIONS[] = {
    {"normal", DIST_NORMAL}, {"uniform", DIST_UNIFORM}, {"large", DIST_LARGE}, {"ramp", DIST_RAMP}, {NULL, 0}};
static const struct choice LAYOUTS[] = {
    {"bshd", LAYOUT_BSHD}, {"bhsd", LAYOUT_BHSD}, {"padded", LAYOUT_PADDED}, {"packed", LAYOUT_PACKED}, {NULL, 0}};
static const struct choice ON_OFF[] = {{"on", true}, {"off", false}, {NULL, 0}};

/* The abilities of which kernels that accept an option have at least one. */
#define HAS(feature) (1u << (feature))
enum {
    OF_LENGTHS = HAS(ANY_LENGTH) | HAS(E4M3_INPUTS) | HAS(SERVES),
    OF_SCALES = HAS(ANY_LENGTH) | HAS(E4M3_INPUTS) | HAS(BACKWARD_PASS),
    OF_PAGES = HAS(PAGED_KV) | HAS(SHARES_KEYS),
    OF_BYTES = HAS(E4M3_INPUTS) | HAS(E4M3_CACHE) | HAS(INT8_CACHE)
};

const struct option fl_options[] = {
    {"--backend", .kind = OPTION_CHOICE, .choices = BACKENDS, AT(backend), .initial = "auto",
     .help = "where to run; auto: the GPU if the machine has one, else the emulator, as a note reports"},
    {"--device", .kind = OPTION_INTEGER, .argument = "N", AT(device), .most = 1023, .initial = "0",
     .help = "number of the GPU", .only = BACKEND_GPU},
    {"--batch", .kind = OPTION_LIST, .argument = "LIST", AT(batch),
     .help = "batch size: a number, a list 1,2 or a range 1:16:*2 (GPU: 16, 8 at seq 8192, 4 beyond; emulator: 1)"},
    {"--tokens", .kind = OPTION_INTEGER, .argument = "N", AT(tokens), .least = 1, .most = 1e12,
     .help = "instead of --batch: run N / seq sequences, so every length has N rows"},
    {"--heads", .kind = OPTION_LIST, .argument = "LIST", AT(heads),
     .help = "query heads per sequence (GPU: 16; emulator: 2)"},
    {"--seq", .kind = OPTION_LIST, .argument = "LIST", AT(seq),
     .help = "queries and keys per sequence, for example 512:16384:*2 (GPU: 4096; emulator: 256)"},
    {"--seq-q", .kind = OPTION_LIST, .argument = "LIST", AT(seq_q),
     .help = "queries per sequence, instead of --seq (default: the number of keys)", .needs = OF_LENGTHS},
    {"--seq-k", .kind = OPTION_LIST, .argument = "LIST", AT(seq_k),
     .help = "keys per sequence, instead of --seq (default: the number of queries)", .needs = OF_LENGTHS},
    {"--kv-heads", .kind = OPTION_INTEGER, .argument = "N", AT(KV_heads), .least = 1, .most = 65535,
     .help = "heads of K and V; must divide --heads (default: --heads)", .needs = HAS(GROUPED_HEADS)},
    {"--d-head", .kind = OPTION_INTEGER, .argument = "N", AT(d_head), .least = 1, .most = MAX_D_HEAD,
     .help = "head size; chooses the config that supports it (default: the version's)"},
    {"--d-head-v", .kind = OPTION_INTEGER, .argument = "N", AT(d_head_v), .least = 1, .most = MAX_D_HEAD_V,
     .help = "head size of V and O, a multiple of 8 (default: --d-head)", .needs = HAS(EXTENDED)},
    {"--causal", .kind = OPTION_TRUE, AT(causal),
     .help = "causal mask: the last query attends to all keys, each query before it to one key less",
     .needs = HAS(CAUSAL)},
    {"--scale", .kind = OPTION_NUMBER, .argument = "X", AT(scale), .least = 1e-6, .most = 1e6, .unit = "",
     .help = "softmax scale (default: 1 / sqrt(d_head))", .needs = OF_SCALES},
    {"--descale-q", .kind = OPTION_NUMBER, .argument = "X", AT(descale_Q), .least = 1e-30, .most = 1e30, .unit = "",
     .initial = "1", .help = "fp8: scale of Q; an element e dequantizes to e * X", .needs = HAS(E4M3_INPUTS)},
    {"--descale-k", .kind = OPTION_NUMBER, .argument = "X", AT(descale_K), .least = 1e-30, .most = 1e30, .unit = "",
     .initial = "1", .help = "fp8: scale of K", .needs = OF_BYTES},
    {"--descale-v", .kind = OPTION_NUMBER, .argument = "X", AT(descale_V), .least = 1e-30, .most = 1e30, .unit = "",
     .initial = "1", .help = "fp8: scale of V", .needs = OF_BYTES},
    {"--lse", .kind = OPTION_TRUE, AT(lse), .help = "also compute and check the log-sum-exp",
     .needs = HAS(ANY_LENGTH) | HAS(E4M3_INPUTS)},
    {"--layout", .kind = OPTION_CHOICE, .choices = LAYOUTS, AT(layout), .initial = "bshd",
     .help = "order in memory; bshd: batch, seq, heads, d_head; bhsd: heads before seq; padded: bshd with gaps that "
             "differ between tensors; packed: sequences one after another, found by offsets",
     .needs = HAS(ANY_LENGTH) | HAS(SERVES)},
    {"--seqlens-q", .kind = OPTION_LENGTHS, .argument = "LIST", AT(Q_lengths),
     .help = "queries of each sequence, instead of --batch and --seq-q, for example 1,130,1", .needs = HAS(SERVES)},
    {"--seqlens-k", .kind = OPTION_LENGTHS, .argument = "LIST", AT(KV_lengths),
     .help = "keys of each sequence (default: --seqlens-q)", .needs = HAS(SERVES)},
    {"--window", .kind = OPTION_WINDOW, .argument = "L,R", AT(window), .initial = "-1,-1",
     .help = "keys before and after its own position that a query attends to; -1: unlimited", .needs = HAS(CAP)},
    {"--softcap", .kind = OPTION_NUMBER, .argument = "X", AT(softcap), .least = 1e-6, .most = 1e6, .unit = "",
     .help = "soft cap: replace each score by X tanh(score / X)", .needs = HAS(CAP)},
    {"--sinks", .kind = OPTION_TRUE, AT(sinks),
     .help = "attention sinks: each head adds one score to the softmax sum that has no value", .needs = HAS(CAP)},
    {"--block-mask", .kind = OPTION_MASK, .argument = "MASK", AT(block_mask),
     .help = "hide blocks of 128 queries and 128 keys; MASK is causal, document (1, 2, 3, 1, ... blocks long) or "
             "random:SEED (half of them)",
     .needs = HAS(BIAS)},
    {"--page-rows", .kind = OPTION_INTEGER, .argument = "N", AT(page_rows), .least = 1, .most = 1 << 20,
     .help = "store K and V in a paged cache with N rows per page", .needs = OF_PAGES},
    {"--split-keys", .kind = OPTION_INTEGER, .argument = "N", AT(split_keys), .least = 1, .most = 1 << 30,
     .help = "split the keys every N, so results do not depend on the rest of the batch",
     .needs = HAS(SHARES_KEYS) | HAS(SPLITS_KEYS)},
    {"--dtype", .kind = OPTION_CHOICE, .choices = DTYPES, AT(dtype), .help = "element type (default: the version's)"},
    {"--config", .kind = OPTION_CONFIGS, .argument = "FORM|all", AT(configs),
     .help = "configuration as --list prints it; repeatable; all: every one built (default: the version's)"},
    {"--list", .kind = OPTION_TRUE, AT(list), .help = "list the instances with registers, shared memory and symbol"},
    {"--seed", .kind = OPTION_INTEGER, .argument = "N", AT(seed), .most = 9e18, .initial = "1",
     .help = "seed of the inputs"},
    {"--dist", .kind = OPTION_CHOICE, .choices = DISTRIBUTIONS, AT(dist), .initial = "normal",
     .help = "inputs: N(0,1); U[0,1); N(0,1)*8, whose scores overflow exp() unless the maximum is subtracted; the "
             "index of each "
             "element"},
    {"--check", .kind = OPTION_ROWS, .argument = "ROWS|all", AT(check_rows), .least = 1, .most = 1e15, .initial = "256",
     .help = "rows compared with the float64 reference, spread over all heads"},
    {"--no-check", .kind = OPTION_NO_ROWS, AT(check_rows), .help = "do not compare with the reference"},
    {"--diff", .kind = OPTION_TRUE, AT(diff), .help = "print the number of mismatches and the first wrong element"},
    {"--runs", .kind = OPTION_INTEGER, .argument = "N", AT(runs), .least = 1, .most = 1e6,
     .help = "time exactly N launches, without the stopping rule", .only = BACKEND_GPU},
    {"--cold", .kind = OPTION_TRUE, AT(cold), .initial = "true",
     .help = "flush the L2 cache before each timed launch (default)", .only = BACKEND_GPU},
    {"--hot", .kind = OPTION_FALSE, AT(cold), .help = "do not flush the L2 cache", .only = BACKEND_GPU},
    {"--warmup", .kind = OPTION_INTEGER, .argument = "N", AT(warmup), .most = 1e6, .initial = "3",
     .help = "number of launches before the first timed one", .only = BACKEND_GPU},
    {"--min-samples", .kind = OPTION_INTEGER, .argument = "N", AT(min_samples), .least = 1, .most = 1e6,
     .initial = "10", .help = "minimum number of timed launches", .only = BACKEND_GPU},
    {"--max-noise", .kind = OPTION_NUMBER, .argument = "PERCENT", AT(max_noise), .most = 100, .unit = "%",
     .initial = "0.5", .help = "stop when the relative error of the median is at most PERCENT", .only = BACKEND_GPU},
    {"--min-time", .kind = OPTION_NUMBER, .argument = "SECONDS", AT(min_time), .most = 86400, .unit = "s",
     .initial = "0.5", .help = "minimum measured time; 1000 samples end it earlier", .only = BACKEND_GPU},
    {"--timeout", .kind = OPTION_NUMBER, .argument = "SECONDS", AT(timeout), .most = 86400, .unit = "s",
     .initial = "15", .help = "stop measuring a problem after SECONDS, converged or not", .only = BACKEND_GPU},
    {"--throttle-threshold", .kind = OPTION_NUMBER, .argument = "PERCENT", AT(throttle_threshold), .most = 100,
     .unit = "%", .initial = "50", .help = "discard samples whose SM clock is below PERCENT of its peak",
     .only = BACKEND_GPU},
    {"--strict", .kind = OPTION_TRUE, AT(strict), .help = "exit with status 4 if a measurement did not converge",
     .only = BACKEND_GPU},
    {"--energy", .kind = OPTION_TRUE, AT(energy),
     .help = "then launch without pauses for three seconds: report cold-start and sustained speed, joules and watts",
     .only = BACKEND_GPU},
    {"--json", .kind = OPTION_TEXT, .argument = "FILE|-", AT(json),
     .help = "append one JSON line per problem to FILE, or print it"},
    {"--csv", .kind = OPTION_TRUE, AT(csv), .help = "print comma-separated values"},
    {"--quiet", .kind = OPTION_TRUE, AT(quiet), .help = "print warnings and errors only"},
    {"--profile", .kind = OPTION_TRUE, AT(profile),
     .help = "launch once and do nothing else, for ncu and compute-sanitizer"},
    {"--counters", .kind = OPTION_TRUE, AT(counters), .help = "emulator: print the counts of each CUDA source line",
     .only = BACKEND_EMU},
    {"--ptx", .kind = OPTION_TEXT, .argument = "FILE", AT(ptx),
     .help = "emulator: run the PTX of FILE, with the same entries, instead of that of this executable",
     .only = BACKEND_EMU},
    {"--trace", .kind = OPTION_TEXT, .argument = "WHAT", AT(trace),
     .help = "emulator: print executed instructions; WHAT is " EMU_TRACE_FORM, .only = BACKEND_EMU},
    {"--trace-events", .kind = OPTION_TEXT, .argument = "FILE", AT(trace_events),
     .help = "emulator: write a trace of CTAs, warps, copies and mbarriers for ui.perfetto.dev; its axis is steps, not "
             "time",
     .only = BACKEND_EMU},
    {"--schedule", .kind = OPTION_INTEGER, .argument = "SEED", AT(schedule), .most = 9e18, .initial = "0",
     .help = "emulator: seed of the warp interleaving; 0: run each warp until it must wait", .only = BACKEND_EMU},
    {"--checks", .kind = OPTION_SWITCH, .choices = ON_OFF, AT(checks), .initial = "on",
     .help = "emulator: find races, uninitialized data and other defects", .only = BACKEND_EMU},
    {"--wgmma-wait-per-warp", .kind = OPTION_TRUE, AT(wgmma_wait_per_warp),
     .help = "emulator: do not assume that the wait_group of one warp covers the reads of the other three",
     .only = BACKEND_EMU},
    {"--threads", .kind = OPTION_INTEGER, .argument = "N", AT(threads), .most = 1024, .initial = "0",
     .help = "emulator: number of host threads; 0: one per core", .only = BACKEND_EMU},
    {"--output", .kind = OPTION_TEXT, .argument = "FILE", AT(output),
     .help = "write O of the checked launch as raw 16-bit elements, with --lse also FILE.lse as raw floats; backward "
             "pass: write dQ, FILE.dK and FILE.dV; keep only the last of several problems"},
    {"--dump", .kind = OPTION_TEXT, .argument = "FILE", AT(dump),
     .help = "write S, m, P, l and O after every KV block as raw floats; needs a build with DUMP=1"},
    {"--info", .kind = OPTION_TRUE, AT(info), .help = "print the contents of this executable as JSON; needs no GPU"},
    {"--version", .kind = OPTION_TRUE, AT(version), .help = "print version, revision and toolkit"},
    {"--help", .letter = "-h", .kind = OPTION_TRUE, AT(help), .help = "print this text"},
};
const size_t fl_option_count = sizeof fl_options / sizeof *fl_options;

enum { ARGUMENT_SIZE = 60 }; /* enough for every option_argument() */

static_assert(sizeof fl_options / sizeof *fl_options <= MAX_OPTIONS, "struct options has a `given` for every row");
static_assert(sizeof(enum backend_choice) == sizeof(int) && sizeof(enum dtype) == sizeof(int) &&
                  sizeof(enum distribution) == sizeof(int) && sizeof(enum layout) == sizeof(int),
              "a choice is stored as an int");

static bool takes_argument(const struct option *option) {
    return option->argument || option->choices;
}

char *option_argument(const struct option *option, char *text, size_t size) {
    size_t used = (size_t)snprintf(text, size, "%s", option->argument ? option->argument : "");
    for (const struct choice *choice = option->choices; choice && choice->word && used < size; choice++)
        used += (size_t)snprintf(text + used, size - used, "%s%s", used ? "|" : "", choice->word);
    return text;
}

/* The value of one of the words of `choices`. */
static enum status read_choice(const struct option *option, const char *value, int *number, struct failure *failure) {
    char words[ARGUMENT_SIZE];
    for (const struct choice *choice = option->choices; choice->word; choice++)
        if (!strcmp(choice->word, value)) {
            *number = choice->value;
            return STATUS_OK;
        }
    return fail(failure, STATUS_USAGE, "%s '%s': must be one of %s", option->name, value,
                option_argument(option, words, sizeof words));
}

static enum status set_integer(const struct option *option, int64_t *field, const char *value,
                               struct failure *failure) {
    char *end;
    errno = 0;
    const long long number = strtoll(value, &end, 10);
    if (end == value || *end || value[0] == ' ')
        return fail(failure, STATUS_USAGE, "%s '%s': must be a whole number%s", option->name, value,
                    option->kind == OPTION_ROWS ? " or all" : "");
    if (errno || (double)number < option->least || (double)number > option->most)
        return fail(failure, STATUS_USAGE, "%s '%s': must be from %.0f to %.0f", option->name, value, option->least,
                    option->most);
    *field = number;
    return STATUS_OK;
}

static enum status set_number(const struct option *option, double *field, const char *value, struct failure *failure) {
    char *end;
    const double number = strtod(value, &end);
    if (end != value && option->unit && !strcmp(end, option->unit)) end += strlen(end);
    if (end == value || *end || value[0] == ' ' || !isfinite(number))
        return fail(failure, STATUS_USAGE, "%s '%s': must be a number%s", option->name, value,
                    option->unit[0] == '%' ? " in percent"
                    : option->unit[0]      ? " in seconds"
                                           : "");
    if (number < option->least || number > option->most)
        return fail(failure, STATUS_USAGE, "%s '%s': must be from %g to %g%s%s", option->name, value, option->least,
                    option->most, option->unit[0] ? " " : "", option->unit);
    *field = number;
    return STATUS_OK;
}

enum { MOST_OF_WINDOW = 999999999 };

/* One end of a window at *text, which is moved past it. */
static bool read_end(const char **text, int64_t *keys) {
    char *end;
    if (**text != '-' && !isdigit((unsigned char)**text)) return false;
    *keys = strtoll(*text, &end, 10);
    const bool found = end != *text;
    *text = end;
    return found && *keys >= -1 && *keys <= MOST_OF_WINDOW;
}

static enum status set_window(const struct option *option, struct window *window, const char *value,
                              struct failure *failure) {
    struct window read;
    const char *at = value;
    if (!read_end(&at, &read.left) || *at++ != ',' || !read_end(&at, &read.right) || *at)
        return fail(failure, STATUS_USAGE, "%s '%s': must be two numbers from -1 to %d, left,right", option->name,
                    value, MOST_OF_WINDOW);
    *window = read;
    return STATUS_OK;
}

static enum status set_mask(const struct option *option, struct mask_choice *mask, const char *value,
                            struct failure *failure) {
    static const struct choice masks[] = {
        {"causal", MASK_CAUSAL}, {"document", MASK_DOCUMENT}, {"random:", MASK_RANDOM}};
    for (size_t i = 0; i < sizeof masks / sizeof *masks; i++) {
        const size_t length = strlen(masks[i].word);
        char *end = (char *)value + length;
        if (strncmp(value, masks[i].word, length) != 0) continue;
        const bool seeded = masks[i].value == MASK_RANDOM && isdigit((unsigned char)*end);
        errno = 0;
        *mask = (struct mask_choice){(enum block_mask)masks[i].value, seeded ? strtoll(end, &end, 10) : 0};
        if (!*end && !errno && seeded == (masks[i].value == MASK_RANDOM)) return STATUS_OK;
    }
    return fail(failure, STATUS_USAGE,
                "%s '%s': must be causal, document or random:SEED, a whole number from 0 to 2^63 - 1", option->name,
                value);
}

static enum status set_value(struct options *options, const struct option *option, const char *value,
                             struct failure *failure) {
    void *field = (char *)options + option->offset;
    char expected[ARGUMENT_SIZE];
    enum status status;
    int number;
    switch (option->kind) {
    case OPTION_TRUE:
    case OPTION_FALSE:
        *(bool *)field = option->kind == OPTION_TRUE;
        return STATUS_OK;
    case OPTION_NO_ROWS:
        *(int64_t *)field = CHECK_NONE;
        return STATUS_OK;
    case OPTION_SWITCH:
        if ((status = read_choice(option, value, &number, failure))) return status;
        *(bool *)field = number != 0;
        return STATUS_OK;
    case OPTION_CHOICE:
        if ((status = read_choice(option, value, &number, failure))) return status;
        memcpy(field, &number, sizeof number);
        return STATUS_OK;
    case OPTION_ROWS:
        if (!strcmp(value, "all")) {
            *(int64_t *)field = CHECK_ALL;
            return STATUS_OK;
        }
        return set_integer(option, field, value, failure);
    case OPTION_INTEGER:
        return set_integer(option, field, value, failure);
    case OPTION_NUMBER:
        return set_number(option, field, value, failure);
    case OPTION_LENGTHS:
        return length_list_parse(option->name, value, field, failure);
    case OPTION_WINDOW:
        return set_window(option, field, value, failure);
    case OPTION_MASK:
        return set_mask(option, field, value, failure);
    case OPTION_LIST:
        return number_list_parse(option->name, value, field, failure);
    case OPTION_TEXT:
        if (!*value)
            return fail(failure, STATUS_USAGE, "%s '': must not be empty; write %s", option->name,
                        option_argument(option, expected, sizeof expected));
        *(const char **)field = value;
        return STATUS_OK;
    case OPTION_CONFIGS:
        if (options->n_configs == MAX_CONFIGS)
            return fail(failure, STATUS_USAGE, "%s '%s': repeated too often; at most %d times are allowed",
                        option->name, value, MAX_CONFIGS);
        options->configs[options->n_configs++] = value;
        return STATUS_OK;
    }
    return STATUS_OK;
}

/* Row of the table whose name, or letter, is the first `length` bytes of text; fl_option_count where there is none. */
static size_t find(const char *text, size_t length) {
    for (size_t i = 0; i < fl_option_count; i++) {
        const struct option *option = &fl_options[i];
        if (strlen(option->name) == length && !memcmp(option->name, text, length)) return i;
        if (option->letter && strlen(option->letter) == length && !memcmp(option->letter, text, length)) return i;
    }
    return fl_option_count;
}

static bool is_given(const struct options *options, const char *name) {
    return options->given[find(name, strlen(name))];
}

/* The option with the longest common beginning, for the message about an unknown one. */
static const char *nearest(const char *text) {
    const char *best = "--help";
    size_t best_length = 2;
    for (size_t i = 0; i < fl_option_count; i++) {
        size_t same = 0;
        while (text[same] && text[same] == fl_options[i].name[same]) same++;
        if (same > best_length) {
            best = fl_options[i].name;
            best_length = same;
        }
    }
    return best;
}

/* Take argv[*i], and argv[*i + 1] where that is its value. */
static enum status take_word(struct options *options, int argc, char **argv, int *i, struct failure *failure) {
    const char *const name = argv[*i];
    const size_t length = strcspn(name, "="), row = find(name, length);
    const char *value = name[length] ? name + length + 1 : NULL;
    char expected[ARGUMENT_SIZE];
    if (row == fl_option_count && name[0] != '-')
        return fail(failure, STATUS_USAGE, "'%s': is not an option; options begin with --, as --help shows", name);
    if (row == fl_option_count)
        return fail(failure, STATUS_USAGE, "%.*s: no such option; did you mean %s? --help lists all", (int)length, name,
                    nearest(name));
    const struct option *const option = &fl_options[row];
    if (!takes_argument(option) && value)
        return fail(failure, STATUS_USAGE, "%s '%s': takes no value", option->name, value);
    if (takes_argument(option) && !value) {
        if (*i + 1 == argc)
            return fail(failure, STATUS_USAGE, "%s: the value is missing; write %s %s", option->name, option->name,
                        option_argument(option, expected, sizeof expected));
        value = argv[++*i];
    }
    options->given[row] = true;
    return set_value(options, option, value, failure);
}

enum status options_parse(struct options *options, int argc, char **argv, struct failure *failure) {
    enum status status = STATUS_OK;
    *options = (struct options){.dtype = ANY_DTYPE};
    for (size_t i = 0; i < fl_option_count && !status; i++)
        if (fl_options[i].initial) status = set_value(options, &fl_options[i], fl_options[i].initial, failure);
    for (int i = 1; i < argc && !status; i++) status = take_word(options, argc, argv, &i, failure);
    return status;
}

int options_only_for(const struct options *options, enum backend_choice backend, char *text, size_t size) {
    int count = 0;
    size_t used = 0;
    text[0] = 0;
    for (size_t i = 0; i < fl_option_count; i++) {
        if (!options->given[i] || fl_options[i].only != backend) continue;
        if (used < size)
            used += (size_t)snprintf(text + used, size - used, "%s%s", count ? ", " : "", fl_options[i].name);
        count++;
    }
    return count;
}

enum status options_check(const struct options *options, struct failure *failure) {
    static const char *const of_the_comparison[] = {"--diff", "--output"};
    static const char *const of_the_report[] = {"--diff", "--output",   "--dump", "--json",
                                                "--csv",  "--counters", "--runs", "--energy"};
    if (options->check_rows == CHECK_NONE)
        for (size_t i = 0; i < sizeof of_the_comparison / sizeof *of_the_comparison; i++)
            if (is_given(options, of_the_comparison[i]))
                return fail(failure, STATUS_USAGE, "%s: needs the checked launch; remove --no-check",
                            of_the_comparison[i]);
    if (options->profile)
        for (size_t i = 0; i < sizeof of_the_report / sizeof *of_the_report; i++)
            if (is_given(options, of_the_report[i]))
                return fail(failure, STATUS_USAGE,
                            "%s: cannot be combined with --profile, which only launches once; remove one of them",
                            of_the_report[i]);
    if (options->trace && options->trace_events)
        return fail(failure, STATUS_USAGE, "--trace: cannot be combined with --trace-events; remove one of them");
    if (options->seq.count && options->seq_q.count && options->seq_k.count)
        return fail(failure, STATUS_USAGE,
                    "--seq: --seq-q and --seq-k already set both lengths; remove one of the three");
    if (options->KV_lengths.count && !options->Q_lengths.count && !options->seq.count && !options->seq_q.count)
        return fail(failure, STATUS_USAGE,
                    "--seqlens-k: needs the number of queries; add --seqlens-q, --seq-q or --seq");
    if ((options->Q_lengths.count || options->KV_lengths.count) && (options->batch.count || options->tokens))
        return fail(failure, STATUS_USAGE,
                    "%s: cannot be combined with %s, because both set the number of sequences; remove one of them",
                    options->Q_lengths.count ? "--seqlens-q" : "--seqlens-k", options->tokens ? "--tokens" : "--batch");
    if (options->Q_lengths.count && (options->seq.count || options->seq_q.count))
        return fail(failure, STATUS_USAGE, "--seqlens-q: already sets the number of queries; remove %s",
                    options->seq.count ? "--seq" : "--seq-q");
    if (options->KV_lengths.count && options->seq_k.count)
        return fail(failure, STATUS_USAGE, "--seqlens-k: already sets the number of keys; remove --seq-k");
    if (options->tokens && options->batch.count)
        return fail(
            failure, STATUS_USAGE,
            "--tokens: cannot be combined with --batch, because both set the number of sequences; remove one of them");
    if (options->json && !strcmp(options->json, "-") && options->csv)
        return fail(
            failure, STATUS_USAGE,
            "--json -: cannot be combined with --csv, which also writes to standard output; give --json a file");
    return STATUS_OK;
}

bool options_print_records(const struct options *options) {
    return options->csv || (options->json && !strcmp(options->json, "-"));
}

void options_help(FILE *file, const char *program, unsigned features) {
    const char *before = "\nOther kernels of kernels/attention/ also accept ";
    fprintf(file,
            "usage: %s [options]\n\nRuns this version of FlashAttention, compares its result with a float64 reference "
            "and times it. Without a GPU it runs\non the emulator, which checks and counts but does not time.\n\n",
            program);
    for (size_t i = 0; i < fl_option_count; i++) {
        const struct option *option = &fl_options[i];
        char left[100], argument[ARGUMENT_SIZE];
        if (option->needs && !(option->needs & features)) {
            continue;
        }
        snprintf(left, sizeof left, "%s%s%s%s%s", option->name, option->letter ? ", " : "",
                 option->letter ? option->letter : "", takes_argument(option) ? " " : "",
                 option_argument(option, argument, sizeof argument));
        fprintf(file, strlen(left) > 24 ? "  %s\n%28s" : "  %-24s  %s", left, "");
        fprintf(file, "%s", option->help);
        if (option->initial && takes_argument(option)) fprintf(file, " [%s]", option->initial);
        fputc('\n', file);
    }
    for (size_t i = 0; i < fl_option_count; i++) {
        if (!fl_options[i].needs || (fl_options[i].needs & features)) continue;
        fprintf(file, "%s%s", before, fl_options[i].name);
        before = ", ";
    }
    if (before[0] == ',') fputs(".\n", file);
    fprintf(file,
            "\nExit status: 0 correct, 1 wrong result, 2 bad usage, 3 error of CUDA, the emulator or the system,\n"
            "4 measurement did not converge (--strict), 77 this machine cannot run the version\n");
}

/* ---- the problems ---- */

static int list_count(const struct number_list *list) {
    return list->count ? list->count : 1;
}

int64_t options_problem_count(const struct options *options) {
    return (int64_t)list_count(&options->seq) * list_count(&options->seq_q) * list_count(&options->seq_k) *
           list_count(&options->heads) * list_count(&options->batch);
}

/* The value of a list for problem *i, which becomes the number of what is left; `initial` where the list is empty. */
static int64_t take_value(const struct number_list *list, int64_t *i, int64_t initial) {
    const int64_t index = *i % list_count(list);
    *i /= list_count(list);
    return list->count ? list->values[index] : initial;
}

static int64_t longest_of(const struct number_list *list) {
    int64_t most = 1;
    for (int i = 0; i < list->count; i++)
        if (list->values[i] > most) most = list->values[i];
    return most;
}

/* Lengths, windows, caps and sinks. */
static void set_served(const struct options *options, struct problem *problem) {
    const struct number_list *const Q = &options->Q_lengths, *const KV = options->KV_lengths.count
                                                                             ? &options->KV_lengths
                                                                         : options->seq_k.count ? NULL
                                                                                                : Q;
    if (Q->count) problem->Q_lengths = Q, problem->seq_q = longest_of(Q), problem->batch = Q->count;
    if (KV && KV->count) problem->KV_lengths = KV, problem->seq_k = longest_of(KV);
    if (!Q->count && KV && KV->count) problem->batch = KV->count;
    problem->window_left = options->window.left, problem->window_right = options->window.right;
    problem->windowed = options->window.left >= 0 || options->window.right >= 0;
    problem->softcap = options->softcap;
    problem->sinks = options->sinks;
    problem->page_rows = options->page_rows, problem->split_keys = options->split_keys;
    problem->block_mask = options->block_mask.kind, problem->mask_seed = (uint64_t)options->block_mask.seed;
}

/* Elements of a row of Q and K, and of V. */
static void set_sizes(const struct options *options, const struct kernel_config *config, struct problem *problem) {
    const bool other = options->d_head && config_has(config, EXTENDED);
    const int own = config_d_head_v(config);
    problem->d_head = other ? (int)options->d_head : config->d_head;
    if (options->d_head_v)
        problem->d_head_v = (int)options->d_head_v;
    else if (own != config->d_head)
        problem->d_head_v = own;
    if (problem->d_head_v == problem->d_head) problem->d_head_v = 0;
}

/* The effect of an fp8_config on the inputs and on the errors. */
static void set_e4m3(const struct options *options, const struct kernel_config *config, struct problem *problem) {
    problem->e4m3 = config_has(config, E4M3_INPUTS);
    problem->e4m3_serves = problem->e4m3 && config_has(config, SERVES);
    problem->cache_e4m3 = config_has(config, E4M3_CACHE);
    problem->cache_int8 = config_has(config, INT8_CACHE);
    problem->descale[TENSOR_Q] = options->descale_Q;
    problem->descale[TENSOR_K] = options->descale_K;
    problem->descale[TENSOR_V] = options->descale_V;
    problem->transposed_V = problem->e4m3 && config->fp8.V_transposed;
    problem->rounded_sums_of_P = problem->e4m3 && config->fp8.rounded_sums;
    problem->summed_keys = problem->e4m3 ? config->fp8.flush_blocks * config->B_c : 0;
}

void options_problem_at(const struct options *options, bool gpu, int64_t i, const struct kernel_config *config,
                        struct problem *problem) {
    const int64_t batch = take_value(&options->batch, &i, 0), heads = take_value(&options->heads, &i, gpu ? 16 : 2);
    const int64_t seq_k = take_value(&options->seq_k, &i, 0), seq_q = take_value(&options->seq_q, &i, 0);
    /* where only one of --seq-q and --seq-k is given, and no --seq, there are as many of the others */
    const int64_t seq = take_value(&options->seq, &i, seq_q ? seq_q : seq_k ? seq_k : gpu ? 4096 : 256);
    *problem = problem_square(batch, heads, seq);
    if (seq_q) problem->seq_q = seq_q;
    if (seq_k) problem->seq_k = seq_k;
    if (options->KV_heads) problem->KV_heads = options->KV_heads;
    if (!batch) {
        const int64_t longest = problem->seq_q > problem->seq_k ? problem->seq_q : problem->seq_k;
        problem->batch = options->tokens ? options->tokens / problem->seq_q : gpu ? problem_default_batch(longest) : 1;
    }
    set_sizes(options, config, problem);
    problem->drops = config_has(config, DROPOUT);
    problem->latent = config_has(config, LATENT);
    problem->dtype = config->dtype;
    problem->dist = options->dist;
    problem->seed = (uint64_t)options->seed;
    problem->backward = config_has(config, BACKWARD_PASS);
    problem->causal = options->causal;
    problem->lse = options->lse;
    problem->scale = options->scale;
    problem->layout = options->layout;
    set_served(options, problem);
    set_e4m3(options, config, problem);
}
