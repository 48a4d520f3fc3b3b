/* ptxrun.c - run one entry of a PTX or CUDA file on the emulator, from the command line.
 *
 *     ptxrun saxpy.cu --grid 4 --block 256 --arg f32:2 --arg buf:f32:1024:ramp --arg out:f32:1024 --print 2
 *
 * Arguments are given in the order of the parameters and numbered from 0, as in the PTX. Data that was asked for goes
 * to stdout, findings and errors to stderr. Exit status: that of emu_run(), 1 for results that --expect
 * denies, and 2 for bad usage and for what cannot be written.
 */
#include "arguments.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_ARGS = 64, MAX_REQUESTS = 64, PRINT_DEFAULT = 64, MAX_PTX_BYTES = 1 << 28 };

/* --dump, --expect and --print: an argument's buffer, and what to do with it. */
typedef struct request {
    char label[LABEL_BYTES]; /* "3", "3.1" for the second member of a struct, or a variable */
    const char *file;        /* NULL for --print */
    bool expects;            /* --expect: the file is what the buffer should hold */
    uint64_t count;          /* elements to print */
} request;

typedef struct options {
    const char *file, *entry, *counters_csv, *explain;
    const char *ptx_file;          /* the same, or what was made of a CUDA file */
    const char *const *nvcc_flags; /* those after "--", NULL where there is none */
    const char *args[MAX_ARGS], *data[MAX_ARGS];
    int arg_count, data_count;
    request requests[MAX_REQUESTS];
    int request_count;
    uint32_t grid[3], block[3], cluster[3];
    uint64_t smem, schedule, threads, seed, steps, race_memory, runs;
    int delay_warp, delay_line;
    double tolerance;
    emu_trace trace;
    char ignore[2048];
    bool checks, stale, wgmma_wait_per_warp, strict_tcgen05, fence_behind_reads, counters, first, list, forms, help;
    bool orders, all_orders;
} options;

/* ---- options ---- */

static bool parse_extent(const char *name, const char *text, uint32_t extent[3], emu_error *error) {
    char copy[64];
    snprintf(copy, sizeof copy, "%s", text);
    extent[0] = extent[1] = extent[2] = 1;
    char *next = copy;
    for (int i = 0; next; i++) {
        char *part = next, *comma = strchr(part, ',');
        next = comma ? comma + 1 : NULL;
        if (comma) *comma = 0;
        uint64_t value;
        if (i == 3 || !emu_parse_unsigned(part, UINT32_MAX, &value) || value == 0)
            return emu_fail(error, "%s %s: must be X, X,Y or X,Y,Z, each at least 1", name, text);
        extent[i] = (uint32_t)value;
    }
    return true;
}

static bool set_grid(options *options, const char *text, emu_error *error) {
    return parse_extent("--grid", text, options->grid, error);
}

static bool set_block(options *options, const char *text, emu_error *error) {
    return parse_extent("--block", text, options->block, error);
}

static bool set_cluster(options *options, const char *text, emu_error *error) {
    return parse_extent("--cluster", text, options->cluster, error);
}

static bool set_arg(options *options, const char *text, emu_error *error) {
    if (options->arg_count == MAX_ARGS)
        return emu_fail(error, "--arg %s: must be one of at most %d arguments", text, MAX_ARGS);
    options->args[options->arg_count++] = text;
    return true;
}

static bool set_data(options *options, const char *text, emu_error *error) {
    if (options->data_count == MAX_ARGS)
        return emu_fail(error, "--data %s: must be one of at most %d variables", text, MAX_ARGS);
    options->data[options->data_count++] = text;
    return true;
}

static bool add_request(options *options, const char *name, const char *text, const char *split, emu_error *error) {
    if (options->request_count == MAX_REQUESTS)
        return emu_fail(error, "%s %s: must be one of at most %d of --dump, --expect and --print", name, text,
                        MAX_REQUESTS);
    request *request = &options->requests[options->request_count++];
    size_t length = split ? (size_t)(split - text) : strlen(text);
    snprintf(request->label, sizeof request->label, "%.*s", (int)(length < LABEL_BYTES - 1 ? length : LABEL_BYTES - 1),
             text);
    request->count = PRINT_DEFAULT;
    return true;
}

/* N=FILE of --dump and --expect. */
static bool add_file(options *options, const char *name, const char *text, emu_error *error) {
    const char *equals = strchr(text, '=');
    if (!equals || equals == text || equals[1] == 0)
        return emu_fail(error, "%s %s: must be N=FILE, where N is an argument's number, counted from 0, or a variable",
                        name, text);
    bool added = add_request(options, name, text, equals, error);
    if (added) options->requests[options->request_count - 1].file = equals + 1;
    return added;
}

static bool set_dump(options *options, const char *text, emu_error *error) {
    return add_file(options, "--dump", text, error);
}

/* The file is looked for before the launch, which may be long. */
static bool set_expect(options *options, const char *text, emu_error *error) {
    if (!add_file(options, "--expect", text, error)) return false;
    request *request = &options->requests[options->request_count - 1];
    request->expects = true;
    return access(request->file, R_OK) == 0 ||
           emu_fail(error, "--expect %s: cannot read %s: %s", text, request->file, strerror(errno));
}

static bool set_tolerance(options *options, const char *text, emu_error *error) {
    char *end;
    options->tolerance = strtod(text, &end);
    return (end != text && *end == 0 && options->tolerance >= 0 && options->tolerance < HUGE_VAL) ||
           emu_fail(error, "--tolerance %s: must be 0 or more, for example 1e-3", text);
}

static bool set_print(options *options, const char *text, emu_error *error) {
    const char *colon = strchr(text, ':');
    if (!add_request(options, "--print", text, colon, error)) return false;
    request *request = &options->requests[options->request_count - 1];
    return !colon || emu_parse_unsigned(colon + 1, UINT64_MAX, &request->count) ||
           emu_fail(error, "--print %s: must be N or N:COUNT", text);
}

/* The text restricts only what it names. */
static bool set_trace(options *options, const char *text, emu_error *error) {
    emu_error reason;
    options->trace = (emu_trace){.file = stdout, .cta = -1, .warp = -1, .lane = -1};
    return emu_parse_trace(text, &options->trace, &reason) || emu_fail(error, "--trace %s: %s", text, reason.text);
}

/* The texts of several options in one list. */
static bool set_ignore(options *options, const char *text, emu_error *error) {
    size_t used = strlen(options->ignore), room = sizeof options->ignore - used;
    int length = snprintf(options->ignore + used, room, "%s%s", used ? "," : "", text);
    return (size_t)length < room ||
           emu_fail(error, "--ignore %s: too many; a class without a line ignores all its findings", text);
}

static bool set_checks(options *options, const char *text, emu_error *error) {
    options->checks = strcmp(text, "on") == 0;
    return options->checks || strcmp(text, "off") == 0 || emu_fail(error, "--checks %s: must be on or off", text);
}

static bool set_orders(options *options, const char *text, emu_error *error) {
    options->orders = true;
    options->all_orders = text != NULL;
    return !text || strcmp(text, "all") == 0 || emu_fail(error, "--orders %s: must be --orders or --orders all", text);
}

static bool set_delay(options *options, const char *text, emu_error *error) {
    const char *at = strchr(text, '@');
    char warp[16];
    uint64_t index, line;
    snprintf(warp, sizeof warp, "%.*s", at ? (int)(at - text) : 0, text);
    if (!at || !emu_parse_unsigned(warp, 31, &index) || !emu_parse_unsigned(at + 1, INT32_MAX, &line) || !line)
        return emu_fail(
            error, "--delay %s: must be WARP@LINE, a warp of the CTA, counted from 0, and a line of the PTX", text);
    options->delay_warp = (int)index;
    options->delay_line = (int)line;
    return true;
}

/* Effect of an option: it sets a flag, stores a text or a number in the options, or calls a function. */
typedef enum option_kind { FLAG, TEXT, NUMBER, CALL } option_kind;

typedef struct option {
    const char *name, *value; /* value NULL: takes none; "[all]": optional word */
    option_kind kind;
    size_t at;      /* of the member of options, except CALL */
    uint64_t limit; /* of a NUMBER */
    bool (*call)(options *options, const char *text, emu_error *error);
    const char *help;
} option;

#define AT(member) offsetof(options, member)
static const option option_table[] = {
    {"--entry", "NAME", TEXT, AT(entry), 0, NULL, "entry to run, or part of its name (default: the only entry)"},
    {"--grid", "X[,Y[,Z]]", CALL, 0, 0, set_grid, "CTAs (1)"},
    {"--block", "X[,Y[,Z]]", CALL, 0, 0, set_block, "threads of a CTA (32)"},
    {"--cluster", "X[,Y[,Z]]", CALL, 0, 0, set_cluster,
     "CTAs of a cluster (default: as the entry declares, else none)"},
    {"--smem", "BYTES", NUMBER, AT(smem), UINT32_MAX, NULL, "dynamic shared memory (0)"},
    {"--arg", "SPEC", CALL, 0, 0, set_arg, "value of the next parameter, see below"},
    {"--data", "NAME=SPEC", CALL, 0, 0, set_data, "value of a __device__ or __constant__ variable, see below"},
    {"--dump", "N=FILE", CALL, 0, 0, set_dump, "after the run, write the buffer of argument N, or variable N, to FILE"},
    {"--expect", "N=FILE", CALL, 0, 0, set_expect,
     "after the run, compare the buffer of argument N, or variable N, with the bytes of FILE"},
    {"--tolerance", "X", CALL, 0, 0, set_tolerance,
     "let --expect accept differences up to X * max(1, expected magnitude) (0)"},
    {"--print", "N[:COUNT]", CALL, 0, 0, set_print,
     "after the run, show the first COUNT elements (64) of the buffer of argument N, or of variable N"},
    {"--list", NULL, FLAG, AT(list), 0, NULL, "list the entries and their parameters; run nothing"},
    {"--counters", NULL, FLAG, AT(counters), 0, NULL, "show what ran, by source line, region and group"},
    {"--counters-csv", "FILE", TEXT, AT(counters_csv), 0, NULL, "write the counters of every PTX instruction"},
    {"--trace", "WHAT", CALL, 0, 0, set_trace, "show instructions as they run: " EMU_TRACE_FORM},
    {"--schedule", "SEED", NUMBER, AT(schedule), UINT64_MAX, NULL,
     "0: run each warp until it must wait (0); other seeds shuffle and preempt warps"},
    {"--stale", NULL, FLAG, AT(stale), 0, NULL,
     "with --schedule: loads may return earlier values where no fence or barrier forbids it"},
    {"--delay", "WARP@LINE", CALL, 0, 0, set_delay,
     "hold a warp of each CTA before a line of the PTX until nothing else can run"},
    {"--checks", "on|off", CALL, 0, 0, set_checks, "find races, uninitialized data and other defects (on)"},
    {"--wgmma-wait-per-warp", NULL, FLAG, AT(wgmma_wait_per_warp), 0, NULL,
     "do not assume that the wait_group of one warp covers the reads of the other three"},
    {"--strict-tcgen05", NULL, FLAG, AT(strict_tcgen05), 0, NULL,
     "also require tcgen05.wait::ld before registers are used, wait::st before other threads are signaled, "
     "tcgen05.fence, and addresses in a warp's own lanes"},
    {"--fence-behind-reads", NULL, FLAG, AT(fence_behind_reads), 0, NULL,
     "also require a fence.proxy.async between ordinary reads and a bulk copy that overwrites their data"},
    {"--threads", "N", NUMBER, AT(threads), 1024, NULL,
     "host threads; 0: one per core (0); results do not depend on it"},
    {"--seed", "N", NUMBER, AT(seed), UINT64_MAX, NULL, "seed of buffers filled with rand (1)"},
    {"--steps", "N", NUMBER, AT(steps), UINT64_MAX, NULL, "limit of warp instructions per CTA; 0: 4e9 (0)"},
    {"--race-memory", "BYTES", NUMBER, AT(race_memory), UINT64_MAX, NULL,
     "memory for finding races in global memory; 0: 1 GiB (0)"},
    {"--ignore", "CLASS[@LINE]", CALL, 0, 0, set_ignore, "suppress this class of findings, everywhere or at one line"},
    {"--first", NULL, FLAG, AT(first), 0, NULL, "end the run at the first finding, with status 3"},
    {"--orders", "[all]", CALL, 0, 0, set_orders,
     "report whether every interleaving of warps and copies behaves like this one; all: also run those that differ"},
    {"--runs", "N", NUMBER, AT(runs), UINT64_MAX, NULL, "maximum number of runs of --orders all (10000)"},
    {"--forms", NULL, FLAG, AT(forms), 0, NULL, "print the table of accepted PTX forms as Markdown; needs no file"},
    {"--explain", "FORM", TEXT, AT(explain), 0, NULL,
     "explain a PTX form such as ex2.approx.f32, and whether its bits equal a GPU's; limits: what the emulator does "
     "not find"},
    {"--help", NULL, FLAG, AT(help), 0, NULL, "show this text"},
};
#undef AT

static void print_help(void) {
    puts("usage: ptxrun FILE.ptx [--entry NAME] [--grid X,Y,Z] [--block X,Y,Z] [--arg SPEC]... [options]\n"
         "       ptxrun FILE.cu [options] [-- NVCC_FLAG...]\n"
         "Runs one entry of a PTX or CUDA file on the emulator and checks it. No GPU is used and no time is\n"
         "measured. CUDA=FOLDER chooses the toolkit with nvcc (default: that of this checkout or package).\n");
    for (size_t i = 0; i < sizeof option_table / sizeof option_table[0]; i++) {
        char left[48];
        snprintf(left, sizeof left, "%s %s", option_table[i].name, option_table[i].value ? option_table[i].value : "");
        printf("  %-24s %s\n", left, option_table[i].help);
    }
    puts("\nArguments, in the order of the parameters, numbered from 0:\n"
         "  TYPE:VALUE               a number; TYPE is " ARGUMENT_TYPES "\n"
         "  buf:TYPE:COUNT[:FILL]    address of a new buffer; FILL is zero (default), ramp, rand, poison or @FILE\n"
         "  out:TYPE:COUNT[:FILL]    output buffer, filled with poison; bytes that the kernel never writes are "
         "reported\n"
         "  tmap:SIZES[/STRIDES]:BOX:SWIZZLE:BUFFER\n"
         "                           a tensor map (CUtensorMap) of a new buffer, buf:... or out:..., or of:N, the\n"
         "                           buffer of an argument before it; sizes, strides in bytes and box such as\n"
         "                           64x512; SWIZZLE is none, 32B, 64B or 128B\n"
         "  bytes:@FILE              the bytes of a file, for a struct parameter\n"
         "  struct:[SPEC,SPEC,...]   a struct of such members, each at its natural alignment; member M of\n"
         "                           argument N is N.M in --dump and --print\n"
         "  addresses:[SPEC,SPEC,...]  address of a new buffer with the addresses of these, buf:... or out:...\n"
         "\nVariables, by their name in the PTX or a part that fits one only; those that are not set have their "
         "initial\n"
         "values. SPEC is that of an argument, or TYPE:COUNT:FILL:\n"
         "  --data scale=f32:2 --data table=f32:64:ramp --data table=f32:64:@FILE\n"
         "\nExit status: 0 no findings, 1 findings or a failed --expect, 2 bad usage, rejected PTX "
         "or an\n"
         "output that cannot be written, 3 fault (deadlock, livelock, step limit, trap, assert).");
}

static const option *find_option(const char *name, size_t length) {
    for (size_t i = 0; i < sizeof option_table / sizeof option_table[0]; i++)
        if (strlen(option_table[i].name) == length && memcmp(option_table[i].name, name, length) == 0)
            return &option_table[i];
    return NULL;
}

/* True if a word is the one that may follow an option. */
static bool is_optional(const option *option, const char *word) {
    return option->value && option->value[0] == '[' && word && strlen(word) + 2 == strlen(option->value) &&
           memcmp(option->value + 1, word, strlen(word)) == 0;
}

static bool apply_option(options *options, const option *option, const char *value, emu_error *error) {
    void *member = (char *)options + option->at;
    switch (option->kind) {
    case FLAG:
        *(bool *)member = true;
        return true;
    case TEXT:
        *(const char **)member = value;
        return true;
    case NUMBER:
        return emu_parse_unsigned(value, option->limit, member) ||
               emu_fail(error, "%s %s: must be a number from 0 to %" PRIu64, option->name, value, option->limit);
    default:
        return option->call(options, value, error);
    }
}

static bool is_cuda(const char *file) {
    const char *dot = strrchr(file, '.');
    return dot && strcmp(dot, ".cu") == 0;
}

static bool parse_options(options *options, int argc, char **argv, emu_error *error) {
    for (int i = 1; i < argc; i++) {
        const char *word = strcmp(argv[i], "-h") == 0 ? "--help" : argv[i];
        if (word[0] != '-') {
            if (options->file)
                return emu_fail(error, "'%s': must be the only file, but '%s' was also given", word, options->file);
            options->file = word;
            continue;
        }
        if (strcmp(word, "--") == 0) {
            options->nvcc_flags = (const char *const *)&argv[i + 1];
            break;
        }
        size_t length = strcspn(word, "=");
        const option *option = find_option(word, length);
        if (!option) return emu_fail(error, "%.*s: no such option; --help lists all", (int)length, word);
        const char *value = word[length] == '=' ? word + length + 1 : NULL;
        const bool optional = option->value && option->value[0] == '[';
        if (optional ? !value && i + 1 < argc && is_optional(option, argv[i + 1]) : option->value && !value)
            value = ++i < argc ? argv[i] : NULL;
        if (!optional && !option->value != !value) {
            return option->value ? emu_fail(error, "%s: the value is missing; write %s", option->name, option->value)
                                 : emu_fail(error, "%s: does not accept a value", option->name);
        }
        if (!apply_option(options, option, value, error)) return false;
    }
    if (options->file && options->nvcc_flags && !is_cuda(options->file))
        return emu_fail(error, "%s: must be a CUDA file, NAME.cu, if flags for nvcc follow after --", options->file);
    if (options->all_orders && (options->schedule || options->delay_line || !options->checks || !options->runs))
        return emu_fail(error, "--orders all: needs checks and at least one run, and chooses the interleavings itself; "
                               "remove --schedule, --delay, --checks off and --runs 0");
    return options->file || options->help || options->forms || options->explain ||
           emu_fail(error, "the file is missing; name a PTX or CUDA file, as --help shows");
}

/* ---- running ---- */

/* The error in a line of the PTX, with the file. */
static bool fail_in_ptx(const options *options, const emu_error *reason, emu_error *error) {
    return emu_fail(error, "%s:%d: %s", options->ptx_file, reason->line, reason->text);
}

/* All entries, those that are refused with the reason; false where there are such. */
static bool print_entries(const options *options, const emu_module *module, emu_error *error) {
    int count = emu_entry_count(module), refused = 0;
    for (int i = 0; i < count; i++) {
        emu_error reason;
        bool decoded = emu_decode(module, i, &reason);
        const emu_entry_info *entry = emu_entry(module, i);
        puts(entry->name);
        if (decoded) {
            printf("  %" PRIu32 " PTX instructions, %" PRIu32 " bytes of static shared memory", entry->instructions,
                   entry->shared_bytes);
            if (entry->max_threads) printf(", at most %" PRIu32 " threads", entry->max_threads);
            if (entry->cluster[0])
                printf(", clusters of %" PRIu32 " x %" PRIu32 " x %" PRIu32, entry->cluster[0], entry->cluster[1],
                       entry->cluster[2]);
            puts("");
        } else {
            printf("  rejected: %s:%d: %s\n", options->ptx_file, reason.line, reason.text);
            refused++;
        }
        for (int p = 0; p < entry->params; p++) {
            printf("  parameter %d: %s, %" PRIu32 " bytes at %" PRIu32 "\n", p, entry->param_types[p],
                   entry->param_sizes[p], entry->param_offsets[p]);
        }
    }
    emu_variable variable;
    for (size_t i = 0; emu_variable_at(module, i, &variable); i++)
        printf("variable %s: %" PRIu64 " bytes of .%s\n", variable.name, variable.bytes, variable.type);
    return !refused || emu_fail(error, "%s: %d of %d entries are rejected", options->ptx_file, refused, count);
}

/* The entry that --entry names, whole or in a part that fits one entry only; -1 with a message. */
static int choose_entry(const emu_module *module, const char *wanted, emu_error *error) {
    int count = emu_entry_count(module), found = -1, fitting = 0;
    for (int i = 0; i < count; i++) {
        const char *name = emu_entry(module, i)->name;
        if (wanted && strcmp(name, wanted) == 0) return i;
        if (!wanted || strstr(name, wanted)) {
            found = i;
            fitting++;
        }
    }
    if (fitting == 1) return found;
    if (count == 0) {
        emu_fail(error, "the file has no .entry; declare a kernel with __global__");
    } else if (fitting == 0) {
        emu_fail(error, "--entry %s: must be part of an entry's name; the first is %s, --list shows all", wanted,
                 emu_entry(module, 0)->name);
    } else {
        emu_fail(error, "%s%s matches %d entries; name one with --entry, --list shows all",
                 wanted ? "--entry " : "the file", wanted ? wanted : "", fitting);
    }
    return -1;
}

static bool flush_stdout(emu_error *error) {
    if (!fflush(stdout) && !ferror(stdout)) return true;
    return emu_fail(error, "standard output: cannot be written: %s", strerror(errno));
}

/* Prints, writes or compares what was asked for; *different: elements that are not as expected. */
static bool answer(const options *options, argument_list *list, const emu_module *module, uint64_t *different,
                   emu_error *error) {
    for (int i = 0; i < options->request_count; i++) {
        const request *request = &options->requests[i];
        const argument_buffer *buffer = emu_arguments_find(list, module, request->label);
        if (!request->file) {
            emu_arguments_print(stdout, list, buffer, request->count);
        } else if (request->expects) {
            uint64_t count;
            if (!emu_arguments_compare(stderr, list, buffer, request->file, options->tolerance, &count, error))
                return false;
            *different += count;
        } else if (!emu_write_file(request->file, emu_host_bytes(list->device, buffer->address), (size_t)buffer->bytes,
                                   error)) {
            return false;
        }
    }
    if (options->counters && !emu_print_counters(stdout, emu_counts(list->device)))
        return emu_fail(error, "out of memory for the counters");
    if (options->counters_csv) {
        FILE *file = fopen(options->counters_csv, "w");
        if (file) emu_write_counters(file, emu_counts(list->device));
        if (!file || fclose(file) != 0)
            return emu_fail(error, "cannot write %s: %s", options->counters_csv, strerror(errno));
    }
    return flush_stdout(error);
}

/* Every --dump and --print must name an argument with a buffer: said before the launch, not after it. */
static bool check_requests(const options *options, argument_list *list, const emu_module *module, emu_error *error) {
    for (int i = 0; i < options->request_count; i++) {
        const request *request = &options->requests[i];
        if (!emu_arguments_find(list, module, request->label)) {
            const char *what = request->expects ? "--expect" : request->file ? "--dump" : "--print";
            if (request->label[0] < '0' || request->label[0] > '9')
                return emu_fail(error, "%s %s: does not match exactly one variable; --list shows all", what,
                                request->label);
            return emu_fail(error, "%s %s: argument %s has no buffer; use an argument buf: or out:, counted from 0",
                            what, request->label, request->label);
        }
    }
    return true;
}

static void print_orders(const options *options, const emu_device *device, const emu_exploration *seen,
                         emu_status status) {
    const uint32_t gaps = emu_counts(device)->orders;
    char text[600];
    if (seen->difference[0]) fprintf(stderr, "other interleavings produce other results: %s\n", seen->difference);
    const bool counted = status == EMU_OK || seen->left || seen->difference[0]; /* a run with findings is no proof */
    if (options->all_orders && status != EMU_REFUSED && counted)
        fprintf(stderr, "orders: %s\n", emu_describe_classes(seen, gaps, text, sizeof text));
    else if (options->orders && !options->all_orders && status == EMU_OK)
        fprintf(stderr, "orders: %s\n", emu_describe_orders(gaps, text, sizeof text));
}

/* EMU_REFUSED with a reason in *error; else what emu_run() says, once its results were shown. */
static emu_status run(const options *options, const emu_module *module, argument_list *list, emu_error *error) {
    emu_error reason;
    unsigned char params[MAX_ARGUMENT_BYTES] = {0};
    int index = choose_entry(module, options->entry, error);
    if (index < 0) return EMU_REFUSED;
    if (!emu_decode(module, index, &reason)) {
        fail_in_ptx(options, &reason, error);
        return EMU_REFUSED;
    }
    const emu_entry_info *entry = emu_entry(module, index);
    if (entry->param_bytes > sizeof params) {
        emu_fail(error, "%s has %" PRIu32 " bytes of parameters, more than %zu", entry->name, entry->param_bytes,
                 sizeof params);
        return EMU_REFUSED;
    }
    if (!emu_arguments_pack(list, entry, options->args, options->arg_count, params, error)) return EMU_REFUSED;
    if (list->note[0]) fprintf(stderr, "ptxrun: %s\n", list->note);
    if (!emu_reset_variables(list->device, module)) {
        emu_fail(error, "out of memory for the variables");
        return EMU_REFUSED;
    }
    for (int i = 0; i < options->data_count; i++)
        if (!emu_arguments_set(list, module, options->data[i], error)) return EMU_REFUSED;
    if (!check_requests(options, list, module, error)) return EMU_REFUSED;
    emu_launch launch = {.entry = index,
                         .dynamic_shared = (uint32_t)options->smem,
                         .params = params,
                         .param_bytes = entry->param_bytes,
                         .checks = options->checks,
                         .schedule = options->schedule,
                         .stale = options->stale,
                         .delay_warp = options->delay_warp,
                         .delay_line = options->delay_line,
                         .threads = (int)options->threads,
                         .output = stdout,
                         .step_limit = options->steps,
                         .wgmma_wait_per_warp = options->wgmma_wait_per_warp,
                         .strict_tcgen05 = options->strict_tcgen05,
                         .fence_behind_reads = options->fence_behind_reads,
                         .race_memory = options->race_memory,
                         .first_finding_only = options->first,
                         .ignore = options->ignore,
                         .trace = options->trace};
    memcpy(launch.grid, options->grid, sizeof launch.grid);
    memcpy(launch.block, options->block, sizeof launch.block);
    memcpy(launch.cluster, options->cluster, sizeof launch.cluster);
    emu_exploration seen = {0};
    emu_status status = options->all_orders ? emu_run_orders(list->device, module, &launch, options->runs, &seen, error)
                                            : emu_run(list->device, module, &launch, error);
    if (status == EMU_REFUSED) return EMU_REFUSED;
    if (status == EMU_OK && launch.trace.file && !emu_counts(list->device)->traced) {
        emu_fail(error, "--trace: no such instruction ran; --counters lists the lines that ran");
        return EMU_REFUSED;
    }
    uint64_t different = 0;
    bool answered = answer(options, list, module, &different, error);
    emu_print_findings(stderr, list->device);
    print_orders(options, list->device, &seen, status);
    if (status == EMU_OK && different) status = EMU_FINDINGS;
    return answered ? status : EMU_REFUSED;
}

static void print_file(FILE *to, const char *path) {
    FILE *file = fopen(path, "r");
    for (int byte; file && (byte = fgetc(file)) != EOF;) fputc(byte, to);
    if (file) fclose(file);
}

/* The PTX of a CUDA file, by the toolkit of the checkout that contains this program; path receives its name. */
static bool compile(options *options, char *path, size_t path_bytes, emu_error *error) {
    char toolkit[4096] = "";
    ssize_t length = readlink("/proc/self/exe", toolkit, sizeof toolkit / 2);
    if (length < 0) length = 0;
    toolkit[length] = 0;
    char *slash = strrchr(toolkit, '/');
    if (slash) strcpy(slash, "/../.venv/toolkit");
    char *whole = slash ? realpath(toolkit, NULL) : NULL;
    const emu_compiler compiler = {.toolkit = whole ? whole : toolkit, .flags = options->nvcc_flags};
    bool compiled = emu_compile(options->file, &compiler, path, path_bytes, error);
    free(whole);
    if (!compiled && path[0]) print_file(stderr, path);
    options->ptx_file = path;
    return compiled;
}

static emu_status load_and_run(options *options, emu_error *error) {
    size_t bytes = 0;
    emu_error reason;
    char path[4096];
    options->ptx_file = options->file;
    if (is_cuda(options->file) && !compile(options, path, sizeof path, error)) return EMU_REFUSED;
    char *text = emu_read_file(options->ptx_file, MAX_PTX_BYTES, &bytes, error);
    if (!text) return EMU_REFUSED;
    emu_status status = EMU_REFUSED;
    emu_module *module = emu_load(text, bytes, &reason);
    argument_list list = {.device = emu_device_new(), .seed = options->seed};
    if (!module)
        fail_in_ptx(options, &reason, error);
    else if (!list.device)
        emu_fail(error, "out of memory");
    else if (options->list)
        status = print_entries(options, module, error) ? EMU_OK : EMU_REFUSED;
    else
        status = run(options, module, &list, error);
    emu_device_free(list.device);
    emu_unload(module);
    free(text);
    return status;
}

int main(int argc, char **argv) {
    options options = {.seed = 1, .runs = 10000, .checks = true, .grid = {1, 1, 1}, .block = {32, 1, 1}};
    emu_error error;
    emu_status status = EMU_OK;
    if (!parse_options(&options, argc, argv, &error))
        status = EMU_REFUSED;
    else if (options.help)
        print_help();
    else if (options.forms)
        emu_print_forms(stdout);
    else if (options.explain)
        status = emu_explain_form(stdout, options.explain, &error) ? EMU_OK : EMU_REFUSED;
    else
        status = load_and_run(&options, &error);
    if (status != EMU_REFUSED && !flush_stdout(&error)) status = EMU_REFUSED;
    if (status == EMU_REFUSED) fprintf(stderr, "ptxrun: %s\n", error.text);
    return (int)status;
}
