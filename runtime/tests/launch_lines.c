/* launch_lines.c - launches and tensor maps of the configurations on standard input, a short form a line.
 *
 * analysis/tests/machine_code/test_loops.py compares what it prints with what Python has.
 */
#include "common/serving.h"
#include "runtime/config.h"
#include "runtime/launch.h"
#include "runtime/tensor_maps.h"

#include "emulator/emu.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* tensor_maps.c names both where it makes a map; layouts are made without. */
bool emu_make_tensor_map(const emu_tensor_info *info, void *map, emu_error *error) {
    (void)info, (void)map, (void)error;
    return false;
}
enum status cuda_check(const struct cuda_driver *cuda, CUresult result, struct failure *failure, const char *what,
                       ...) {
    (void)cuda, (void)result, (void)failure, (void)what;
    return STATUS_ERROR;
}

/* Grid, threads and shared memory: whole Q blocks and others, and a GPU of few multiprocessors or of many. */
static void print_launches(const KernelConfig *config) {
    for (int blocks = 1; blocks < 70; blocks += 3)
        for (int multiprocessors = 1; multiprocessors < 140; multiprocessors += 13) {
            const int rows = config->B_r * blocks - blocks % 3;
            const attention_args args = {.seq_q = rows, .seq_k = 2 * rows, .heads = 2, .KV_heads = 2, .batch = 3};
            const serving_args serving = serving_of_one_length(args); /* for those that read it */
            const launch_shape s = launch_of(config, &serving.attention, multiprocessors);
            printf("%u %u %u %u %u\n", s.grid_x, s.grid_y, s.grid_z, s.threads, s.smem_bytes);
        }
}

/* As ptxrun takes a tensor map, up to the swizzle: for 3 heads of a row of 5, 2 batches and 320 rows. */
static void print_layouts(const KernelConfig *config) {
    const int64_t row = 5 * config->d_head;
    const tensor_strides strides = {320 * row, row, config->d_head};
    const attention_args args = {.seq_q = 320,
                                 .seq_k = 320,
                                 .heads = 3,
                                 .KV_heads = 3,
                                 .batch = 2,
                                 .Q_strides = strides,
                                 .K_strides = strides,
                                 .V_strides = strides,
                                 .O_strides = strides};
    struct tensor_layout layouts[N_TENSORS];
    serving_args serving = serving_of_one_length(args);
    serving.page_rows = config->B_c; /* a KV block of a page comes as one of contiguous keys */
    tensor_layouts(&serving.attention, config, layouts);
    for (int t = 0; t < N_TENSORS; t++) {
        for (int i = 0; i < TENSOR_RANK; i++) printf("%s%" PRIu64, i ? "x" : "", layouts[t].sizes[i]);
        for (int i = 0; i < TENSOR_RANK - 1; i++) printf("%s%" PRIu64, i ? "x" : "/", layouts[t].strides[i]);
        for (int i = 0; i < TENSOR_RANK; i++) printf("%s%" PRIu32, i ? "x" : ":", layouts[t].box[i]);
        printf("\n");
    }
}

int main(void) {
    char text[CONFIG_TEXT_SIZE];
    while (fgets(text, sizeof text, stdin)) {
        KernelConfig config;
        struct failure failure;
        text[strcspn(text, "\n")] = 0;
        if (config_parse(text, &config, &failure)) return 1;
        print_launches(&config);
        if (config.tensor_copies) print_layouts(&config);
    }
}
