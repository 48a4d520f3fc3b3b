/* bench_emu.c - how fast the emulator is on this machine: one thread, one head, BF16.
 *
 *     suite.mk bench-emu
 *     build/tests/bench_emu.v16 build/v01/v01.ptx build/v02/v02.ptx
 *
 * Loads each PTX file and decodes its entry; launches the version that is linked in. Prints rows of CSV:
 * median and least of several runs, in processor time of this process, which other work on the machine disturbs little.
 */
#include "common/abi.h"
#include "emulator/emu.h"
#include "harness/about.h"
#include "harness/inputs.h"
#include "harness/problem.h"
#include "runtime/image.h"
#include "runtime/launch.h"
#include "runtime/parameters.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

enum { LOAD_RUNS = 21, LAUNCH_RUNS = 5 };

static double processor_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_row(const char *version, const char *what, int seq, bool checks, double *ms, int runs) {
    qsort(ms, (size_t)runs, sizeof *ms, compare_doubles);
    printf("%s,%s,%d,%s,1,ms,%.2f,%.2f\n", version, what, seq, checks ? "on" : "off", ms[runs / 2], ms[0]);
}

static const struct instance *instance_of_type(const struct instance_table *table, enum dtype dtype) {
    for (size_t i = 0; i < table->count; i++) {
        if (table->instances[i].config.dtype == dtype) return &table->instances[i];
    }
    return NULL;
}

/* The entry that is run is decoded, as a launch would; the others are not. NULL when it is refused. */
static emu_module *load(const struct code_image *ptx, int entry, double *ms) {
    emu_error error;
    double begin = processor_ms();
    emu_module *module = emu_load((const char *)ptx->bytes, ptx->size, &error);
    bool decoded = module && emu_decode(module, entry, &error);
    *ms = processor_ms() - begin;
    if (decoded) return module;
    fprintf(stderr, "bench_emu: PTX line %d: %s\n", error.line, error.text);
    emu_unload(module);
    return NULL;
}

static bool time_loads(const char *version, const struct code_image *ptx, int entry) {
    double ms[LOAD_RUNS];
    for (int run = 0; run < LOAD_RUNS; run++) {
        emu_module *module = load(ptx, entry, &ms[run]);
        if (!module) return false;
        emu_unload(module);
    }
    print_row(version, "load", 0, false, ms, LOAD_RUNS);
    return true;
}

/* Fill with values of about [-2, 2) that are cheap to make and not alike. */
static void fill(uint16_t *values, size_t count, bool bfloat, uint32_t seed) {
    for (size_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        uint32_t mantissa = seed >> 22, sign = seed >> 6 & 0x8000u;
        values[i] = (uint16_t)(bfloat ? sign | 0x3f80u | mantissa >> 3 : sign | 0x3c00u | mantissa);
    }
}

static bool time_launches(const emu_module *module, const struct instance *instance, int seq, bool checks) {
    static const char *const names[N_TENSORS] = {"Q", "K", "V", "O"};
    struct problem problem = problem_square(1, 1, seq);
    problem.d_head = instance->config.d_head;
    problem.dtype = instance->config.dtype;
    emu_device *device = emu_device_new();
    uint64_t tensors[N_TENSORS] = {0};
    for (int i = 0; device && i < N_TENSORS; i++) {
        tensors[i] =
            emu_alloc(device, names[i], (uint64_t)problem_bytes(&problem, i), i == TENSOR_O ? EMU_OUTPUT : EMU_BUFFER);
        if (!tensors[i]) return false;
        fill(emu_host_bytes(device, tensors[i]), (size_t)problem_elements(&problem, i), problem.dtype == BF16,
             (uint32_t)i + 1);
    }
    const uint64_t tickets = device ? emu_alloc(device, "tickets", TICKETS_BYTES, EMU_BUFFER) : 0;
    if (!tickets) return false;
    memset(emu_host_bytes(device, tickets), 0, TICKETS_BYTES);
    attention_args args = problem_args(&problem);
    args.Q = (const void *)(uintptr_t)tensors[TENSOR_Q];
    args.K = (const void *)(uintptr_t)tensors[TENSOR_K];
    args.V = (const void *)(uintptr_t)tensors[TENSOR_V];
    args.O = (void *)(uintptr_t)tensors[TENSOR_O];
    args.tickets = (int32_t *)(uintptr_t)tickets;
    struct parameter_block block;
    struct failure failure = {{0}};
    if (parameters_of_emulator(&instance->config, &args, &block, &failure)) {
        fprintf(stderr, "bench_emu: %s\n", failure.text);
        return false;
    }
    launch_shape shape = launch_of(&instance->config, &args, 1);
    emu_launch launch = {.entry = instance->entry,
                         .grid = {shape.grid_x, shape.grid_y, shape.grid_z},
                         .block = {shape.threads, 1, 1},
                         .dynamic_shared = shape.smem_bytes,
                         .params = block.bytes,
                         .param_bytes = block.size,
                         .checks = checks,
                         .threads = 1};
    double ms[LAUNCH_RUNS];
    bool complete = true;
    for (int run = 0; run < LAUNCH_RUNS && complete; run++) {
        emu_error error;
        double begin = processor_ms();
        emu_status status = emu_run(device, module, &launch, &error);
        ms[run] = processor_ms() - begin;
        complete = status == EMU_OK;
        if (!complete) fprintf(stderr, "bench_emu: the launch ended with status %d %s\n", status, error.text);
    }
    emu_device_free(device);
    if (complete) print_row(about_version(), "run", seq, checks, ms, LAUNCH_RUNS);
    return complete;
}

/* Launches of the version that is linked in. */
static bool bench_runs(const struct code_image *ptx, const struct instance *instance) {
    static const struct {
        int seq;
        bool checks;
    } problems[] = {{256, true}, {512, true}, {1024, true}, {1024, false}};
    double ms;
    emu_module *module = load(ptx, instance->entry, &ms);
    bool complete = module != NULL;
    for (size_t i = 0; i < sizeof problems / sizeof *problems && complete; i++)
        complete = time_launches(module, instance, problems[i].seq, problems[i].checks);
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    double megabytes = (double)usage.ru_maxrss / 1024;
    if (complete) printf("%s,memory,1024,on,1,MB,%.1f,%.1f\n", about_version(), megabytes, megabytes);
    emu_unload(module);
    return complete;
}

/* Reads the instances of the PTX, and times what is wanted of the one in BF16. */
static bool bench(const char *version, const struct code_image *ptx, bool runs) {
    struct instance_table table = {0};
    struct failure failure = {{0}};
    if (instance_table_read(&table, ptx, 1, &failure) != STATUS_OK) {
        fprintf(stderr, "bench_emu: %s: %s\n", version, failure.text);
        return false;
    }
    const struct instance *instance = instance_of_type(&table, BF16);
    bool complete = instance && (runs ? bench_runs(ptx, instance) : time_loads(version, ptx, instance->entry));
    instance_table_free(&table);
    return complete;
}

static bool bench_file(const char *path) {
    struct code_image image = {.kind = "ptx"};
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END) || (image.size = (uint64_t)ftell(file)) > 1u << 30) {
        fprintf(stderr, "bench_emu: cannot read %s\n", path);
        if (file) fclose(file);
        return false;
    }
    rewind(file);
    unsigned char *bytes = calloc(image.size + 1, 1);
    bool complete = bytes && fread(bytes, 1, image.size, file) == image.size;
    fclose(file);
    image.bytes = bytes;
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    char version[32];
    snprintf(version, sizeof version, "%.*s", (int)strcspn(name, "."), name);
    complete = complete && bench(version, &image, false);
    free(bytes);
    return complete;
}

int main(int argc, char **argv) {
    const struct code_image *ptx = image_find(fl_images, fl_image_count, "ptx");
    if (!ptx) {
        fprintf(stderr, "bench_emu: no PTX is linked in\n");
        return 1;
    }
#ifdef __GLIBC__
    mallopt(M_MMAP_THRESHOLD, 128 * 1024); /* each load takes its memory from the system, as the first of a process */
#endif
    printf("# revision: %s%s\n", about_revision(), about_dirty() ? " with changes" : "");
    printf("version,what,seq,checks,cores,unit,median,least\n");
    bool complete = true;
    for (int i = 1; i < argc; i++) complete = bench_file(argv[i]) && complete;
    complete = bench(about_version(), ptx, true) && complete;
    if (fflush(stdout) || ferror(stdout)) {
        fprintf(stderr, "bench_emu: standard output cannot be written\n");
        return 1;
    }
    return complete ? 0 : 1;
}
