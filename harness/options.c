#include "harness/options.h"
#include "harness/emu/emu.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define AT(field) offsetof(struct options, field)

static const struct option TABLE[] = {
    {"--backend", OPTION_CHOICE, "auto|gpu|emu", AT(backend), 0, 0, "", "auto",
     "where to run; auto takes the GPU if there is one, else the emulator, and says so", BACKEND_AUTO},
    {"--device", OPTION_INTEGER, "N", AT(device), 0, 1023, "", "0", "number of the GPU", BACKEND_GPU},
    {"--batch", OPTION_LIST, "LIST", AT(batch), 0, 0, "", NULL,
     "sequences; a number, a list 1,2 or a range 1:16:*2 (GPU: 16, 8 at seq 8192, 4 beyond; emulator: 1)",
     BACKEND_AUTO},
    {"--heads", OPTION_LIST, "LIST", AT(heads), 0, 0, "", NULL, "heads of each sequence (GPU: 16; emulator: 2)",
     BACKEND_AUTO},
    {"--seq", OPTION_LIST, "LIST", AT(seq), 0, 0, "", NULL,
     "sequence lengths, 512:16384:*2 for instance (GPU: 4096; emulator: 256)", BACKEND_AUTO},
    {"--dtype", OPTION_CHOICE, "fp16|bf16", AT(dtype), 0, 0, "", NULL, "element type (that of the version's config)",
     BACKEND_AUTO},
    {"--config", OPTION_CONFIGS, "FORM|all", AT(configs), 0, 0, "", NULL,
     "configuration in its short form, may be repeated; all: every one built (the version's config)", BACKEND_AUTO},
    {"--list", OPTION_FLAG, "", AT(list), 0, 0, "", NULL, "list the instances: registers, shared memory, symbol",
     BACKEND_AUTO},
    {"--seed", OPTION_INTEGER, "N", AT(seed), 0, 9e18, "", "1", "of the inputs, which depend on it and nothing else",
     BACKEND_AUTO},
    {"--dist", OPTION_CHOICE, "normal|uniform|large|ramp", AT(dist), 0, 0, "", "normal",
     "N(0,1); U[0,1); N(0,1)*8, whose scores overflow exp() without the running maximum; values that name their index",
     BACKEND_AUTO},
    {"--check", OPTION_ROWS, "ROWS|all", AT(check_rows), 1, 1e15, "", "256",
     "rows compared with the float64 reference, spread over all heads", BACKEND_AUTO},
    {"--no-check", OPTION_NO_ROWS, "", AT(check_rows), 0, 0, "", NULL, "compare nothing", BACKEND_AUTO},
    {"--diff", OPTION_FLAG, "", AT(diff), 0, 0, "", NULL, "count mismatches, name the first wrong element",
     BACKEND_AUTO},
    {"--runs", OPTION_INTEGER, "N", AT(runs), 1, 1e6, "", NULL, "exactly N timed launches, no stopping rule",
     BACKEND_GPU},
    {"--cold", OPTION_FLAG, "", AT(cold), 0, 0, "", "true", "flush the L2 cache before each timed launch (default)",
     BACKEND_GPU},
    {"--hot", OPTION_UNFLAG, "", AT(cold), 0, 0, "", NULL, "do not flush it", BACKEND_GPU},
    {"--warmup", OPTION_INTEGER, "N", AT(warmup), 0, 1e6, "", "3", "launches before the first timed one", BACKEND_GPU},
    {"--min-samples", OPTION_INTEGER, "N", AT(min_samples), 1, 1e6, "", "10", "timed launches at the least",
     BACKEND_GPU},
    {"--max-noise", OPTION_NUMBER, "PERCENT", AT(max_noise), 0, 100, "%", "0.5",
     "stop when the relative error of the median is below", BACKEND_GPU},
    {"--min-time", OPTION_NUMBER, "SECONDS", AT(min_time), 0, 86400, "s", "0.5",
     "measured time at the least, unless there are 1000 samples", BACKEND_GPU},
    {"--timeout", OPTION_NUMBER, "SECONDS", AT(timeout), 0, 86400, "s", "15",
     "stop measuring a problem after this time, converged or not", BACKEND_GPU},
    {"--throttle-threshold", OPTION_NUMBER, "PERCENT", AT(throttle_threshold), 0, 100, "%", "75",
     "discard samples during which the SM clock was lower than this share of its peak", BACKEND_GPU},
    {"--strict", OPTION_FLAG, "", AT(strict), 0, 0, "", NULL, "exit with 4 where a measurement has not converged",
     BACKEND_GPU},
    {"--json", OPTION_TEXT, "FILE|-", AT(json), 0, 0, "", NULL, "append one JSON line a problem to FILE, or print it",
     BACKEND_AUTO},
    {"--csv", OPTION_FLAG, "", AT(csv), 0, 0, "", NULL, "print comma-separated values", BACKEND_AUTO},
    {"--quiet", OPTION_FLAG, "", AT(quiet), 0, 0, "", NULL, "print warnings and errors only", BACKEND_AUTO},
    {"--profile", OPTION_FLAG, "", AT(profile), 0, 0, "", NULL,
     "one launch and nothing else, for ncu and compute-sanitizer", BACKEND_AUTO},
    {"--counters", OPTION_FLAG, "", AT(counters), 0, 0, "", NULL, "emulator: what each CUDA source line did",
     BACKEND_EMU},
    {"--trace", OPTION_TEXT, "WHAT", AT(trace), 0, 0, "", NULL,
     "emulator: print executed instructions; WHAT is " EMU_TRACE_FORM, BACKEND_EMU},
    {"--schedule", OPTION_INTEGER, "SEED", AT(schedule), 0, 9e18, "", "0",
     "emulator: order of warps, 0 for the plain one", BACKEND_EMU},
    {"--checks", OPTION_CHOICE, "on|off", AT(checks), 0, 0, "", "on", "emulator: look for races and unset data",
     BACKEND_EMU},
    {"--threads", OPTION_INTEGER, "N", AT(threads), 0, 1024, "", "0", "emulator: host threads, 0 for one a core",
     BACKEND_EMU},
    {"--output", OPTION_TEXT, "FILE", AT(output), 0, 0, "", NULL,
     "write O of the checked launch, raw 16-bit elements; of several problems the last stays", BACKEND_AUTO},
    {"--dump", OPTION_TEXT, "FILE", AT(dump), 0, 0, "", NULL,
     "write S, m, P, l and O after every KV block, raw floats; needs a build with DUMP=1", BACKEND_AUTO},
    {"--info", OPTION_FLAG, "", AT(info), 0, 0, "", NULL, "print what this executable holds as JSON; needs no GPU",
     BACKEND_AUTO},
    {"--version", OPTION_FLAG, "", AT(version), 0, 0, "", NULL, "print version, revision and toolkit", BACKEND_AUTO},
    {"--help", OPTION_FLAG, "", AT(help), 0, 0, "", NULL, "print this text", BACKEND_AUTO},
};
enum { N_OPTIONS = sizeof TABLE / sizeof *TABLE };

const struct option *options_table(size_t *count) {
    *count = N_OPTIONS;
    return TABLE;
}

static bool takes_argument(const struct option *option) {
    return option->argument[0] != 0;
}

static enum status set_choice(const struct option *option, int *field, const char *value, struct failure *failure) {
    const size_t length = strlen(value);
    int position = 0;
    for (const char *word = option->argument; word; position++) {
        const char *const bar = strchr(word, '|');
        const size_t size = bar ? (size_t)(bar - word) : strlen(word);
        if (size == length && !memcmp(word, value, size)) {
            *field = position;
            return STATUS_OK;
        }
        word = bar ? bar + 1 : NULL;
    }
    return fail(failure, STATUS_USAGE, "%s '%s': must be one of %s", option->name, value, option->argument);
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
    if (end != value && !strcmp(end, option->unit)) end += strlen(end);
    if (end == value || *end || value[0] == ' ' || !isfinite(number))
        return fail(failure, STATUS_USAGE, "%s '%s': must be a number in %s", option->name, value,
                    option->unit[0] == '%' ? "percent" : "seconds");
    if (number < option->least || number > option->most)
        return fail(failure, STATUS_USAGE, "%s '%s': must be from %g to %g %s", option->name, value, option->least,
                    option->most, option->unit);
    *field = number;
    return STATUS_OK;
}

static enum status set_value(struct options *options, const struct option *option, const char *value,
                             struct failure *failure) {
    void *field = (char *)options + option->offset;
    switch (option->kind) {
    case OPTION_FLAG:
        *(bool *)field = true;
        return STATUS_OK;
    case OPTION_UNFLAG:
        *(bool *)field = false;
        return STATUS_OK;
    case OPTION_NO_ROWS:
        *(int64_t *)field = CHECK_NONE;
        return STATUS_OK;
    case OPTION_CHOICE:
        return set_choice(option, field, value, failure);
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
    case OPTION_LIST:
        return number_list_parse(option->name, value, field, failure);
    case OPTION_TEXT:
        if (!*value)
            return fail(failure, STATUS_USAGE, "%s '': must not be empty; expected %s", option->name, option->argument);
        *(const char **)field = value;
        return STATUS_OK;
    case OPTION_CONFIGS:
        if (options->n_configs == CONFIGS_MOST)
            return fail(failure, STATUS_USAGE, "%s '%s': given more than %d times", option->name, value, CONFIGS_MOST);
        options->configs[options->n_configs++] = value;
        return STATUS_OK;
    }
    return STATUS_OK;
}

/* The option whose name is the first `length` bytes of text. */
static const struct option *find(const char *text, size_t length) {
    for (int i = 0; i < N_OPTIONS; i++)
        if (strlen(TABLE[i].name) == length && !memcmp(TABLE[i].name, text, length)) return &TABLE[i];
    return NULL;
}

/* The option that begins or is begun by the same letters, for the message about an unknown one. */
static const char *nearest(const char *text) {
    const char *best = "--help";
    size_t best_length = 2;
    for (int i = 0; i < N_OPTIONS; i++) {
        size_t same = 0;
        while (text[same] && text[same] == TABLE[i].name[same]) same++;
        if (same > best_length) {
            best = TABLE[i].name;
            best_length = same;
        }
    }
    return best;
}

enum status options_parse(struct options *options, int argc, char **argv, struct failure *failure) {
    *options = (struct options){.dtype = -1};
    for (int i = 0; i < N_OPTIONS; i++)
        if (TABLE[i].initial) {
            const enum status status = set_value(options, &TABLE[i], TABLE[i].initial, failure);
            if (status) return status;
        }
    for (int i = 1; i < argc; i++) {
        const char *const name = argv[i];
        const size_t length = strcspn(name, "=");
        const struct option *option = find(name, length);
        const char *value = name[length] ? name + length + 1 : NULL;
        if (!option && name[0] != '-')
            return fail(failure, STATUS_USAGE, "'%s': not an option; options begin with --, see --help", name);
        if (!option)
            return fail(failure, STATUS_USAGE, "%.*s: no such option; did you mean %s? See --help", (int)length, name,
                        nearest(name));
        if (!takes_argument(option) && value)
            return fail(failure, STATUS_USAGE, "%s '%s': takes no value", option->name, value);
        if (takes_argument(option) && !value) {
            if (i + 1 == argc)
                return fail(failure, STATUS_USAGE, "%s: its value is missing; expected %s", option->name,
                            option->argument);
            value = argv[++i];
        }
        const enum status status = set_value(options, option, value, failure);
        if (status) return status;
        if (option->only == BACKEND_GPU) options->for_gpu = option->name;
        if (option->only == BACKEND_EMU) options->for_emulator = option->name;
    }
    return STATUS_OK;
}

void options_help(FILE *file, const char *program) {
    fprintf(file,
            "usage: %s [options]\n\nChecks and times this version of flash_forward, or runs it on the emulator.\n\n",
            program);
    for (int i = 0; i < N_OPTIONS; i++) {
        const struct option *option = &TABLE[i];
        char left[80];
        snprintf(left, sizeof left, "%s%s%s", option->name, takes_argument(option) ? " " : "", option->argument);
        fprintf(file, strlen(left) > 24 ? "  %s\n%28s" : "  %-24s  %s", left, "");
        fprintf(file, "%s", option->help);
        if (option->initial && takes_argument(option)) fprintf(file, " [%s]", option->initial);
        fputc('\n', file);
    }
    fprintf(file, "\nexit status: 0 right, 1 wrong result, 2 usage, 3 CUDA, emulator or system error,\n"
                  "  4 measured but not trustworthy (--strict), 77 the back end can't run here\n");
}
