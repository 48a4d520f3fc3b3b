/* bench_emu.c - how fast the emulator is on this machine: one thread, one head, the version that is linked in.
 *
 *     make bench-emu
 *
 * Times are those of the processor for this process, the least of several runs, so that other work on the machine
 * disturbs little. The limits are the figures of docs/emulator.md, for one core of a server CPU.
 */
#include "common/abi.h"
#include "harness/about.h"
#include "harness/emu/emu.h"
#include "harness/image.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

enum { HEADS = 1, BATCH = 1, LOAD_RUNS = 20, LAUNCH_RUNS = 5 };

static double processor_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

static void print_row(const char *what, double value, const char *unit, double limit) {
    printf("%-34s %8.1f %-3s %8.0f %-3s %s\n", what, value, unit, limit, unit, value <= limit ? "" : "above the limit");
}

/* The entry that is run is decoded, as a launch would; the others are not. */
static emu_module *load(const struct code_image *ptx, int entry, double *least_ms) {
    emu_module *module = NULL;
    *least_ms = 1e30;
    for (int run = 0; run < LOAD_RUNS; run++) {
        emu_error error;
        emu_unload(module);
        double begin = processor_ms();
        module = emu_load((const char *)ptx->bytes, ptx->size, &error);
        bool decoded = module && emu_decode(module, entry, &error);
        double spent = processor_ms() - begin;
        if (spent < *least_ms) *least_ms = spent;
        if (!decoded) {
            fprintf(stderr, "bench_emu: PTX line %d: %s\n", error.line, error.text);
            emu_unload(module);
            return NULL;
        }
    }
    return module;
}

/* Fill with values of about [-2, 2) that are cheap to make and not alike. */
static void fill(uint16_t *values, size_t count, bool bfloat, uint32_t seed) {
    for (size_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        uint32_t mantissa = seed >> 22, sign = seed >> 6 & 0x8000u;
        values[i] = (uint16_t)(bfloat ? sign | 0x3f80u | mantissa >> 3 : sign | 0x3c00u | mantissa);
    }
}

/* Least time of a launch of seq rows; negative when it went wrong. */
static double time_launch(const emu_module *module, const struct instance *instance, int seq, bool checks) {
    static const char *const names[4] = {"Q", "K", "V", "O"};
    size_t elements = (size_t)seq * HEADS * (size_t)instance->config.d_head;
    emu_device *device = emu_device_new();
    uint64_t tensors[4] = {0};
    for (int i = 0; device && i < 4; i++) {
        tensors[i] = emu_alloc(device, names[i], elements * 2, i == 3 ? EMU_OUTPUT : EMU_BUFFER);
        if (!tensors[i]) return -1;
        fill(emu_host_bytes(device, tensors[i]), elements, instance->config.dtype == BF16, (uint32_t)i + 1);
    }
    if (!device) return -1;
    int64_t row = (int64_t)HEADS * instance->config.d_head;
    const forward_args args = {.Q = (const void *)(uintptr_t)tensors[0],
                               .K = (const void *)(uintptr_t)tensors[1],
                               .V = (const void *)(uintptr_t)tensors[2],
                               .O = (void *)(uintptr_t)tensors[3],
                               .batch_stride = seq * row,
                               .seq_stride = row,
                               .head_stride = instance->config.d_head,
                               .seq = seq,
                               .heads = HEADS,
                               .batch = BATCH};
    launch_shape shape = config_launch_shape(&instance->config, seq, HEADS, BATCH, 1);
    emu_launch launch = {.entry = instance->entry,
                         .grid = {shape.grid_x, shape.grid_y, shape.grid_z},
                         .block = {shape.threads, 1, 1},
                         .dynamic_shared = shape.smem_bytes,
                         .params = &args,
                         .param_bytes = sizeof args,
                         .checks = checks,
                         .threads = 1};
    double least = 1e30;
    for (int run = 0; run < LAUNCH_RUNS && least >= 0; run++) {
        emu_error error;
        double begin = processor_ms();
        emu_status status = emu_run(device, module, &launch, &error);
        double spent = processor_ms() - begin;
        if (status != EMU_OK) fprintf(stderr, "bench_emu: the launch ended with status %d %s\n", status, error.text);
        least = status != EMU_OK ? -1 : spent < least ? spent : least;
    }
    emu_device_free(device);
    return least;
}

static const struct instance *instance_of_type(const struct instance_table *table, enum dtype dtype) {
    for (size_t i = 0; i < table->count; i++) {
        if (table->instances[i].config.dtype == dtype) return &table->instances[i];
    }
    return NULL;
}

static int bench(const struct code_image *ptx, const struct instance *instance) {
    static const struct {
        int seq;
        bool checks;
        double limit_ms;
    } problems[] = {{256, true, 25}, {512, true, 60}, {1024, true, 200}, {1024, false, 120}};
    double load_ms;
    emu_module *module = load(ptx, instance->entry, &load_ms);
    if (!module) return 1;
    printf("%s in BF16, one head, one thread\n%-34s %12s %12s\n", about_version(), "", "measured", "limit");
    print_row("load the PTX, decode one entry", load_ms, "ms", 5);
    bool complete = true;
    for (size_t i = 0; i < sizeof problems / sizeof *problems; i++) {
        char what[64];
        double spent = time_launch(module, instance, problems[i].seq, problems[i].checks);
        snprintf(what, sizeof what, "seq %d, checks %s", problems[i].seq, problems[i].checks ? "on" : "off");
        complete &= spent >= 0;
        if (spent >= 0) print_row(what, spent, "ms", problems[i].limit_ms);
    }
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    print_row("memory of the whole process", (double)usage.ru_maxrss / 1024, "MB", 200);
    emu_unload(module);
    return complete ? 0 : 1;
}

int main(void) {
    struct instance_table table = {0};
    struct failure failure = {{0}};
    const struct code_image *ptx = image_find(fl_images, fl_image_count, "ptx");
    if (!ptx || instance_table_read(&table, fl_images, fl_image_count, &failure) != STATUS_OK) {
        fprintf(stderr, "bench_emu: no PTX is linked in: %s\n", failure.text);
        return 1;
    }
    const struct instance *instance = instance_of_type(&table, BF16);
    int result = instance ? bench(ptx, instance) : 1;
    instance_table_free(&table);
    return result;
}
