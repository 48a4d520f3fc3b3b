/* problem.c - a problem of the harness for a page: the inputs, addresses and launch of a version, as bin/vNN has them.
 *
 *     page_problem(entry, 256, 1, 0, DIST_NORMAL, 1, 0);    // then emu_view_run(): see emulator/wasm/view.h
 *
 * The kernel of the lesson, examples/first_tcgen05.ptx, gets matrices of small numbers.
 *
 * Host pointers have 32 bits there and device addresses 64, so this is compiled with headers in which each pointer of
 * the parameters has a second name, X_address, of 64 bits: see make/wasm.mk.
 */
#include "common/debug_layout.h"
#include "emulator/wasm/view.h"
#include "harness/about.h"
#include "harness/inputs.h"
#include "harness/parallel.h"
#include "runtime/config.h"
#include "runtime/launch.h"
#include "runtime/parameters.h"

#include <stdio.h>
#include <string.h>

enum { MULTIPROCESSORS = 16, POISON = 0xff };

static struct inputs inputs;
static struct parameter_block block;
static uint64_t tensors[N_TENSORS];
static uint32_t sizes[N_TENSORS]; /* in bytes */
static struct problem problem;
static struct kernel_config config;
static bool dumps;     /* the PTX has the hooks of common/debug.cuh */
static uint64_t dump;  /* address of what they write */
static int64_t blocks; /* of Q */

/* The data of an executable's about.c; a page has no version of its own. */
const char *about_version(void) {
    return "";
}
const char *about_exact(void) {
    return NULL;
}

#if defined(__wasm__)
void parallel_for(int64_t count, void (*body)(int64_t i, void *context), void *context) {
    for (int64_t i = 0; i < count; i++) body(i, context);
}
#endif

static int refuse(const char *why) {
    emu_view()->error = (emu_error){0};
    snprintf(emu_view()->error.text, sizeof emu_view()->error.text, "%.300s", why);
    return -1;
}

/* A launch that dumps has one CTA for each Q block, or one for all. */
static int multiprocessors(void) {
    return dumps ? 1 : MULTIPROCESSORS;
}

static bool allocate_dump(emu_device *device, attention_args *args) {
    blocks = launch_Q_blocks(&config, args);
    const int64_t floats =
        debug_buffer_floats(blocks, launch_KV_blocks(&config, args), config.B_r, config.B_c, config.d_head);
    dump = emu_alloc(device, "dump", (uint64_t)floats * sizeof(float), EMU_BUFFER);
    if (dump) memset(emu_host_bytes(device, dump), POISON, (size_t)floats * sizeof(float));
    args->debug_address = dump;
    return dump != 0;
}

/* Memory of the device: Q, K, V as generated, O, tickets and the dump. */
static bool allocate(emu_device *device, attention_args *args) {
    static const char *const names[N_TENSORS] = {"Q", "K", "V", "O"};
    for (int t = 0; t < N_TENSORS; t++) {
        const size_t bytes = (size_t)problem_device_bytes(&problem, (enum tensor)t);
        sizes[t] = (uint32_t)bytes;
        tensors[t] = emu_alloc(device, names[t], bytes, t == TENSOR_O ? EMU_OUTPUT : EMU_BUFFER);
        if (!tensors[t]) return false;
        if (t == TENSOR_O)
            memset(emu_host_bytes(device, tensors[t]), POISON, bytes);
        else
            memcpy(emu_host_bytes(device, tensors[t]), inputs.tensors[t], bytes);
    }
    args->Q_address = tensors[TENSOR_Q], args->K_address = tensors[TENSOR_K];
    args->V_address = tensors[TENSOR_V], args->O_address = tensors[TENSOR_O];
    if (dumps && !allocate_dump(device, args)) return false;
    if (!config_has(&config, TICKETS)) return true;
    const size_t bytes = (size_t)launch_workspace_bytes(&config, args, multiprocessors());
    args->tickets_address = emu_alloc(device, "tickets", bytes, EMU_BUFFER);
    return args->tickets_address != 0;
}

/* True if the modules that are loaded from now on dump S, m, P, l and O after every KV block. */
EMU_EXPORT(page_dumps) void page_dumps(int on) {
    dumps = on != 0;
}

/* The dump of the launch, as in common/debug_layout.h; shape: B_r, B_c, d_head, KV blocks, Q blocks. */
EMU_EXPORT(page_dump) const void *page_dump(uint32_t shape[5]) {
    const attention_args args = problem_args(&problem);
    const int64_t KV_blocks = launch_KV_blocks(&config, &args);
    const int64_t numbers[] = {config.B_r, config.B_c, config.d_head, KV_blocks, blocks};
    for (int i = 0; i < 5; i++) shape[i] = (uint32_t)numbers[i];
    return emu_host_bytes(emu_view()->device, dump);
}

/* ---- the kernel of the lesson: D = A * B^T ---- */

static const char LESSON[] = "first_tcgen05";
enum { LESSON_ROWS = 128, LESSON_COLUMNS = 64, LESSON_K = 64 };

static int lesson_problem(int entry, uint32_t schedule) {
    static const uint16_t numbers[] = {0, 0x3c00, 0xbc00, 0x3800, 0x4000, 0xb800, 0xc000}; /* f16 */
    static const char *const names[N_TENSORS] = {"A", "B", NULL, "D"};
    static const uint32_t elements[N_TENSORS] = {LESSON_ROWS * LESSON_K, LESSON_COLUMNS * LESSON_K, 0,
                                                 LESSON_ROWS * LESSON_COLUMNS};
    static uint64_t parameters[3];
    emu_view_state *const view = emu_view();
    if (!emu_decode(view->module, entry, &view->error)) return -1;
    view->device = emu_device_new();
    if (!view->device) return refuse("out of memory");
    for (int t = 0, count = 0; t < N_TENSORS; t++) {
        if (!names[t]) continue;
        sizes[t] = elements[t] * (uint32_t)(t == TENSOR_O ? sizeof(float) : sizeof numbers[0]);
        tensors[t] = emu_alloc(view->device, names[t], sizes[t], t == TENSOR_O ? EMU_OUTPUT : EMU_BUFFER);
        if (!tensors[t]) return refuse("out of memory");
        parameters[count++] = tensors[t];
        uint8_t *const bytes = emu_host_bytes(view->device, tensors[t]);
        memset(bytes, POISON, sizes[t]);
        for (uint32_t i = 0; i < elements[t] && t != TENSOR_O; i++)
            memcpy(bytes + i * sizeof numbers[0], &numbers[(i + i / LESSON_K * 3 + (uint32_t)t) % 7],
                   sizeof numbers[0]);
    }
    view->launch = (emu_launch){.entry = entry,
                                .grid = {1, 1, 1},
                                .block = {LESSON_ROWS, 1, 1},
                                .params = parameters,
                                .param_bytes = sizeof parameters,
                                .checks = true,
                                .schedule = schedule};
    return 0;
}

/* Make the launch of an entry on one head: -1 with a refusal where it cannot compute that. */
EMU_EXPORT(page_problem)
int page_problem(int entry, int seq, int d_head, int causal, int dist, uint32_t seed, uint32_t schedule) {
    emu_view_state *const view = emu_view();
    const emu_entry_info *info = emu_entry(view->module, entry);
    struct failure failure;
    if (info && !strcmp(info->name, LESSON)) return lesson_problem(entry, schedule);
    if (!info || !config_from_symbol(info->name, strlen(info->name), &config))
        return refuse("the entry is no flash_forward with a configuration in its symbol");
    view->launch.entry = entry;
    if (!emu_decode(view->module, entry, &view->error)) return -1;
    problem = problem_square(1, 1, seq);
    problem.d_head = d_head ? d_head : config.d_head;
    problem.dtype = config.dtype;
    problem.dist = (enum distribution)dist;
    problem.seed = seed;
    problem.causal = causal != 0;
    if (problem_check(&problem, &config, &failure)) return refuse(failure.text);
    if (inputs_generate(&inputs, &problem, &failure)) return refuse(failure.text);
    attention_args args = problem_args(&problem);
    view->device = emu_device_new();
    const bool complete = view->device && allocate(view->device, &args);
    inputs_free(&inputs);
    if (!complete) return refuse("out of memory");
    if (parameters_of_emulator(&config, &args, &block, &failure)) return refuse(failure.text);
    const launch_shape shape = launch_of(&config, &args, multiprocessors());
    view->launch = (emu_launch){.entry = entry,
                                .grid = {shape.grid_x, shape.grid_y, shape.grid_z},
                                .block = {shape.threads, 1, 1},
                                .dynamic_shared = shape.smem_bytes,
                                .params = block.bytes,
                                .param_bytes = block.size,
                                .checks = true,
                                .schedule = schedule};
    return 0;
}

/* The bytes of a tensor: 0 to 3 are Q, K, V and O. */
EMU_EXPORT(page_tensor) const void *page_tensor(int tensor) {
    return emu_host_bytes(emu_view()->device, tensors[tensor]);
}

EMU_EXPORT(page_tensor_bytes) uint32_t page_tensor_bytes(int tensor) {
    return sizes[tensor];
}
