/* judge_replay.c - judge-replay: runs the last call of a recording on fresh inputs.
 *
 *     judge-replay --input x=x.bin softmax.recording results
 *
 * On the emulated driver it also shows how the call touched each byte of memory. README.md describes its files.
 */
#include "recording.h"
#include "report.h"
#include "samples.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char help[] =
    "judge-replay [OPTION...] RECORDING FOLDER\n"
    "judge-replay --list RECORDING\n"
    "judge-replay --ptx ID RECORDING\n"
    "\n"
    "Runs what a program did on a GPU again: its setup as recorded, then its last call on fresh inputs. FOLDER "
    "receives\n"
    "result.json, the bytes of the outputs and, on the emulator, how each byte of the inputs was touched first.\n"
    "\n"
    "  --input NAME=FILE  the bytes of an input (default: as recorded)\n"
    "  --poison HEX       1, 2 or 4 bytes that fill memory that nothing has written (default: ff)\n"
    "  --cubin ID=FILE    machine code for a module, where the GPU's driver is older than the PTX\n"
    "  --calls N          run the call N times, with the inputs restored before each (default: 1)\n"
    "  --time N           take N samples of the call's time: times.json\n"
    "  --sets N           the file of each input holds N inputs, which the samples take in turn (default: 1)\n"
    "  --libcuda FILE     the driver (default: libcuda.so.1)\n"
    "  --list             print the records, one line of JSON each, and run nothing\n"
    "  --ptx ID           print the PTX of a module\n"
    "\n"
    "For the emulated driver:\n"
    "  --arch ARCH        the architecture, such as sm_90a\n"
    "  --gpu NAME         the attributes of a GPU, such as H100\n"
    "  --schedule SEED    another order of the warps\n"
    "  --noise SEED       draw the bits that PTX leaves open (default: 0, the emulator's own)\n"
    "  --ctas N           run N CTAs of larger launches whose CTAs tell each other nothing\n"
    "  --orders N         run each launch in up to N other orders that can matter, if its CTAs fit the GPU together\n"
    "  --steps N          the most warp instructions of a CTA\n"
    "\n"
    "Exit status: 0 replayed, 2 usage, 3 malformed recording, 4 refused by the driver, 5 a kernel was stopped, 6 out "
    "of\n"
    "memory or files.\n";

typedef struct options {
    const char *recording, *folder, *libcuda, *ptx;
    const char *inputs[MOST_BUFFERS]; /* "NAME=FILE" */
    size_t input_count;
    const char *cubins[MOST_BUFFERS]; /* "ID=FILE" */
    size_t cubin_count;
    uint32_t poison;
    uint64_t calls, samples, sets;
    bool lists;
} options;

static int complain(const char *sentence, const char *value) {
    fprintf(stderr, "judge-replay: %s%s\n", sentence, value);
    return REPLAY_USAGE;
}

/* ---- options ---- */

static bool read_number(const char *text, uint64_t most, uint64_t *number) {
    char *end;
    *number = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && !*end && *number <= most;
}

/* Four bytes of a pattern of 1, 2 or 4 bytes, as memory has them. */
static bool read_poison(const char *text, uint32_t *poison) {
    const size_t digits = strlen(text);
    uint8_t bytes[4];
    if ((digits != 2 && digits != 4 && digits != 8) || text[strspn(text, "0123456789abcdefABCDEF")]) return false;
    for (size_t i = 0; i < 4; i++) {
        const char *at = text + 2 * i % digits;
        bytes[i] = (uint8_t)strtoul((const char[]){at[0], at[1], 0}, NULL, 16);
    }
    memcpy(poison, bytes, sizeof bytes);
    return true;
}

/* Options that the emulated driver reads from its environment. */
static const char *variable_of(const char *option) {
    static const char *const all[][2] = {{"--arch", "EMULATED_GPU_ARCH"},         {"--gpu", "EMULATED_GPU_MODEL"},
                                         {"--schedule", "EMULATED_GPU_SCHEDULE"}, {"--noise", "EMULATED_GPU_NOISE"},
                                         {"--ctas", "EMULATED_GPU_CTAS"},         {"--orders", "EMULATED_GPU_ORDERS"},
                                         {"--steps", "EMULATED_GPU_STEPS"}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (!strcmp(option, all[i][0])) return all[i][1];
    return NULL;
}

/* 0, or the exit status after a sentence. */
static int read_option(options *o, const char *option, const char *value) {
    const char *variable = variable_of(option);
    if (variable) return setenv(variable, value, 1) ? complain("out of memory", "") : 0;
    if (!strcmp(option, "--libcuda")) {
        o->libcuda = value;
    } else if (!strcmp(option, "--ptx")) {
        o->ptx = value;
    } else if (!strcmp(option, "--poison")) {
        if (!read_poison(value, &o->poison))
            return complain("--poison is 1, 2 or 4 bytes as hexadecimal digits, not ", value);
    } else if (!strcmp(option, "--calls")) {
        if (!read_number(value, 1000, &o->calls) || !o->calls)
            return complain("--calls is from 1 to 1000, not ", value);
    } else if (!strcmp(option, "--time")) {
        if (!read_number(value, 100000, &o->samples) || !o->samples)
            return complain("--time is a number of samples from 1 to 100000, not ", value);
    } else if (!strcmp(option, "--sets")) {
        if (!read_number(value, 1000, &o->sets) || !o->sets) return complain("--sets is from 1 to 1000, not ", value);
    } else if (!strcmp(option, "--input")) {
        if (!strchr(value, '=') || o->input_count == MOST_BUFFERS) return complain("--input is NAME=FILE, not ", value);
        o->inputs[o->input_count++] = value;
    } else if (!strcmp(option, "--cubin")) {
        if (!strchr(value, '=') || o->cubin_count == MOST_BUFFERS) return complain("--cubin is ID=FILE, not ", value);
        o->cubins[o->cubin_count++] = value;
    } else {
        return complain("there is no such option; see --help: ", option);
    }
    return 0;
}

static int read_options(options *o, char **arguments) {
    for (; *arguments && !strncmp(*arguments, "--", 2); arguments++) {
        if (!strcmp(*arguments, "--list")) {
            o->lists = true;
            continue;
        }
        if (!arguments[1]) return complain("a value is missing after ", *arguments);
        const int wrong = read_option(o, arguments[0], arguments[1]);
        if (wrong) return wrong;
        arguments++;
    }
    o->recording = *arguments;
    o->folder = *arguments ? arguments[1] : NULL;
    const bool prints = o->lists || o->ptx;
    if (!o->recording || (!prints && !o->folder)) return complain("name a recording and a folder; see --help", "");
    return 0;
}

/* ---- inputs ---- */

static uint8_t *read_input(const char *path, uint64_t bytes) {
    FILE *file = fopen(path, "rb");
    uint8_t *data = file ? malloc(bytes + 1) : NULL;
    const bool exact = data && fread(data, 1, bytes + 1, file) == bytes && feof(file);
    if (file) fclose(file);
    if (exact) return data;
    free(data);
    return NULL;
}

/* The bytes of each input of the recording that an option names, owned. */
static int read_inputs(const options *o, const marked_buffers *inputs, uint8_t **given) {
    for (size_t i = 0; i < o->input_count; i++) {
        const char *value = o->inputs[i], *path = strchr(value, '=') + 1;
        size_t k = 0;
        while (k < inputs->count && (strncmp(inputs->all[k].name, value, (size_t)(path - 1 - value)) != 0 ||
                                     inputs->all[k].name[path - 1 - value]))
            k++;
        if (k == inputs->count) return complain("the recording has no such input: ", value);
        const uint64_t bytes = o->sets * inputs->all[k].bytes;
        if (!given[k]) given[k] = read_input(path, bytes);
        if (given[k]) continue;
        fprintf(stderr, "judge-replay: %s must have %" PRIu64 " bytes\n", path, bytes);
        return REPLAY_USAGE;
    }
    return 0;
}

/* ---- machine code ---- */

static void *read_whole(const char *path) {
    FILE *file = fopen(path, "rb");
    void *data = NULL;
    const long length = file && !fseek(file, 0, SEEK_END) ? ftell(file) : -1;
    if (length > 0 && !fseek(file, 0, SEEK_SET)) data = malloc((size_t)length);
    const bool whole = data && fread(data, 1, (size_t)length, file) == (size_t)length;
    if (file) fclose(file);
    if (whole) return data;
    free(data);
    return NULL;
}

/* The files that --cubin names. Their data is never freed: the driver may read it until the process ends. */
static int read_cubins(const options *o, module_cubin cubins[MOST_BUFFERS]) {
    for (size_t i = 0; i < o->cubin_count; i++) {
        char *end;
        cubins[i] = (module_cubin){strtoull(o->cubins[i], &end, 10), NULL};
        if (end == o->cubins[i] || *end != '=') return complain("--cubin is ID=FILE, not ", o->cubins[i]);
        cubins[i].data = read_whole(end + 1);
        if (!cubins[i].data) return complain("this file cannot be read: ", end + 1);
    }
    return 0;
}

/* ---- the replay ---- */

static bool write_inputs(replay *r, uint8_t *const *given) {
    const marked_buffers *inputs = &r->recorded->inputs;
    bool done = true;
    for (size_t i = 0; done && i < inputs->count; i++)
        if (given[i]) done = replay_write(r, inputs->all[i].address, given[i], inputs->all[i].bytes);
    return done;
}

/* Outputs in memory that is older than the call hold nothing of what was there; inputs are kept where one is both. */
static bool poison_outputs(replay *r) {
    const marked_buffers *outputs = &r->recorded->outputs;
    bool done = true;
    for (size_t i = 0; done && i < outputs->count; i++) {
        const memory *m = replay_find(r, outputs->all[i].address, outputs->all[i].bytes);
        if (m) done = replay_poison(r, m, outputs->all[i].address, outputs->all[i].bytes);
    }
    return done;
}

static bool run_calls(replay *r, const options *o, const char *notes, const char *counters, uint8_t *const *given) {
    if (!replay_setup(r)) return false;
    setenv("EMULATED_GPU_NOTES", notes, 1);
    if (o->samples) return time_samples(r, o->samples, o->sets, given, o->folder);
    r->keeps = o->calls > 1;
    for (uint64_t i = 0; i < o->calls; i++) {
        if (i + 1 == o->calls) setenv("EMULATED_GPU_COUNTERS", counters, 1);
        if (!poison_outputs(r) || !write_inputs(r, given) || !report_before(r) || !replay_call(r)) return false;
    }
    return true;
}

/* A file of the folder that the emulated driver adds lines to: empty. */
static bool begin_file(const char *folder, const char *name, char *path, size_t bytes) {
    snprintf(path, bytes, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    return file && !fclose(file);
}

static int run(const options *o, const recording *recorded, uint8_t *const *given) {
    char notes[4096], counters[4096];
    driver_api cuda;
    replay r;
    module_cubin cubins[MOST_BUFFERS];
    const int wrong = read_cubins(o, cubins);
    if (wrong) return wrong;
    mkdir(o->folder, 0777);
    if (!begin_file(o->folder, "notes", notes, sizeof notes) ||
        !begin_file(o->folder, "counters", counters, sizeof counters))
        return complain("files cannot be written into the folder ", o->folder), REPLAY_NO_MEMORY;
    setenv("EMULATED_GPU_REPLAY", "1", 1);
    unsetenv("EMULATED_GPU_NOTES"); /* not of the setup: an autotuner's candidates are not judged */
    unsetenv("EMULATED_GPU_RECORD");
    unsetenv("EMULATED_GPU_COUNTERS");
    if (!driver_api_open(&cuda, o->libcuda)) return REPLAY_REFUSED;
    if (replay_start(&r, recorded, &cuda, o->poison)) {
        r.cubins = cubins;
        r.cubin_count = o->cubin_count;
        run_calls(&r, o, notes, counters, given);
    }
    report_write(&r, o->folder, given);
    if (r.status) fprintf(stderr, "judge-replay: %s\n", r.error);
    const int status = (int)r.status;
    replay_free(&r);
    return status;
}

static int print_ptx(const recording *recorded, const char *text) {
    uint64_t id;
    if (!read_number(text, UINT64_MAX, &id)) return complain("--ptx is the number of a module, not ", text);
    for (size_t i = 0; i < recorded->count; i++) {
        const record *at = &recorded->records[i];
        if (at->kind != RECORD_MODULE || at->numbers[0] != id) continue;
        return fwrite(at->data, 1, at->bytes, stdout) == at->bytes ? 0 : REPLAY_NO_MEMORY;
    }
    return complain("the recording has no such module: ", text);
}

int main(int count, char **arguments) {
    options o = {.poison = UINT32_MAX, .calls = 1, .sets = 1};
    recording recorded;
    char error[RECORDING_ERROR];
    uint8_t *given[MOST_BUFFERS] = {NULL};
    if (count > 1 && (!strcmp(arguments[1], "--help") || !strcmp(arguments[1], "-h"))) {
        fputs(help, stdout);
        return 0;
    }
    int status = read_options(&o, arguments + 1);
    if (status) return status;
    if (!recording_read(&recorded, o.recording, error)) {
        fprintf(stderr, "judge-replay: %s: %s\n", o.recording, error);
        return REPLAY_MALFORMED;
    }
    if (o.lists)
        recording_list(&recorded);
    else if (o.ptx)
        status = print_ptx(&recorded, o.ptx);
    else if (!recorded.call)
        status = complain("the recording has no call that returned", ""), status = REPLAY_MALFORMED;
    else
        status = read_inputs(&o, &recorded.inputs, given);
    if (!status && !o.lists && !o.ptx) status = run(&o, &recorded, given);
    for (size_t i = 0; i < MOST_BUFFERS; i++) free(given[i]);
    recording_free(&recorded);
    return status;
}
