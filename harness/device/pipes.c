/* pipes.c - what single instructions, copies and launches cost on a GPU, as one JSON object: what the machine of
 * analysis/predict is made of.
 *
 *     bin/pipes > pipes.json           (./fl pipes: logs/bench/pipes.GPU.json)
 *     bin/pipes HMMA 2                 HMMA on all multiprocessors for two seconds, so that its power can be read
 *
 * cycles are those of the SM from one operation of a warp to its next one, companion_cycles the same for the companion
 * operation; warps w, w + 4, ... share a scheduler. Medians over the SMs, the second of two launches. Exit status 77
 * without a GPU of compute capability 9.0.
 */
#include "harness/device/pipes.h"
#include "common/abi.h"
#include "harness/device/microbenchmark.h"
#include "harness/stats.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

extern const struct code_image fl_pipes_images[];
extern const uint64_t fl_pipes_image_count;

enum { ROUNDS = 40, HOLD_ROUNDS = 2000, HOLD_WARPS = 8, COPIES = 400, PAUSE = 1500, LOADS = 4000, LAUNCHES = 21 };
enum { GROUPS = ROUNDS * PIPE_ROUND / PIPE_GROUP };
static const size_t MEMORY = (size_t)256 << 20; /* more than L2 holds */
static const uint64_t NEAR = 4096, NEAR_NODES = 256, FAR_NODES = 65536;

#define NAME_OF(name, text) text,
static const char *const NAMES[] = {FL_PIPE_OPERATIONS(NAME_OF)};
#undef NAME_OF

struct gpu {
    struct bench_gpu on;
    CUdeviceptr results, sums, memory, flushed;
    CUevent events[2];
};

/* A row of the record. */
struct run {
    enum pipe_operation operation, companion;
    int warps, companion_warps, sms;
};

static enum status open_gpu(struct gpu *gpu, struct failure *failure) {
    const struct cuda_driver *cuda = &gpu->on.cuda;
    const enum status status = bench_gpu_open(&gpu->on, fl_pipes_images, fl_pipes_image_count, "pipes", failure);
    if (status) return status;
    BENCH_CHECK(cuda->cuMemAlloc_v2(&gpu->results, (size_t)gpu->on.sms * sizeof(pipe_result)), "cuMemAlloc");
    BENCH_CHECK(cuda->cuMemAlloc_v2(&gpu->sums, (size_t)gpu->on.sms * 32 * PIPE_MOST_WARPS * sizeof(float)),
                "cuMemAlloc");
    BENCH_CHECK(cuda->cuMemAlloc_v2(&gpu->memory, MEMORY), "cuMemAlloc");
    BENCH_CHECK(cuda->cuMemAlloc_v2(&gpu->flushed, MEMORY), "cuMemAlloc");
    for (int i = 0; i < 2; i++) BENCH_CHECK(cuda->cuEventCreate(&gpu->events[i], CU_EVENT_DEFAULT), "cuEventCreate");
    return STATUS_OK;
}

static enum status launch(const struct gpu *gpu, const char *name, unsigned ctas, unsigned threads,
                          unsigned shared_bytes, void **parameters, struct failure *failure) {
    const struct cuda_driver *cuda = &gpu->on.cuda;
    CUfunction function;
    BENCH_CHECK(cuda->cuModuleGetFunction(&function, gpu->on.module, name), "cuModuleGetFunction of %s", name);
    if (shared_bytes)
        BENCH_CHECK(
            cuda->cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)shared_bytes),
            "cuFuncSetAttribute of %s", name);
    BENCH_CHECK(cuda->cuLaunchKernel(function, ctas, 1, 1, threads, 1, 1, shared_bytes, NULL, parameters, NULL),
                "cuLaunchKernel of %s", name);
    return STATUS_OK;
}

static enum status zero_memory(const struct gpu *gpu, struct failure *failure) {
    const struct cuda_driver *cuda = &gpu->on.cuda;
    BENCH_CHECK(cuda->cuMemsetD8Async(gpu->memory, 0, MEMORY, NULL), "cuMemsetD8Async");
    return STATUS_OK;
}

/* Write more than L2 holds in addition to `memory`. */
static enum status flush(const struct gpu *gpu, struct failure *failure) {
    const struct cuda_driver *cuda = &gpu->on.cuda;
    BENCH_CHECK(cuda->cuMemsetD8Async(gpu->flushed, 0, MEMORY, NULL), "cuMemsetD8Async");
    return STATUS_OK;
}

static enum status read_results(const struct gpu *gpu, int ctas, pipe_result *results, struct failure *failure) {
    const struct cuda_driver *cuda = &gpu->on.cuda;
    BENCH_CHECK(cuda->cuStreamSynchronize(NULL), "cuStreamSynchronize");
    BENCH_CHECK(cuda->cuMemcpyDtoH_v2(results, gpu->results, (size_t)ctas * sizeof *results), "cuMemcpyDtoH");
    return STATUS_OK;
}

/* Cycles from one operation to the next, median over the CTAs, and the SM clock meanwhile. */
static double cycles_of(const pipe_result *results, int ctas, int kind) {
    double cycles[BENCH_MAX_SMS];
    for (int i = 0; i < ctas; i++) cycles[i] = (double)results[i].cycles[kind] / (double)results[i].count[kind];
    return median(cycles, (size_t)ctas);
}
static void add_cycles(struct json *json, const pipe_result *results, int ctas) {
    double hz[BENCH_MAX_SMS];
    for (int i = 0; i < ctas; i++) hz[i] = 1e9 * (double)results[i].cycles[0] / (double)results[i].ns;
    json_number(json, "cycles", cycles_of(results, ctas, 0), 6);
    json_number(json, "sm_clock_hz", median(hz, (size_t)ctas), 4);
}

static enum status launch_run(const struct gpu *gpu, const struct run *run, int rounds, struct failure *failure) {
    pipe_job job = {(int)run->operation, (int)run->companion, run->warps, rounds, gpu->memory};
    CUdeviceptr results = gpu->results, sums = gpu->sums;
    void *parameters[] = {&results, &sums, &job};
    return launch(gpu, "pipes", (unsigned)run->sms, 32u * (unsigned)(run->warps + run->companion_warps), 0, parameters,
                  failure);
}

/* A row: `name` is the operation's. */
static void add_row(struct json *json, const char *name, const struct run *run, const pipe_result *results) {
    json_open(json, NULL, '{');
    json_string(json, "operation", name);
    json_int(json, "warps", run->warps);
    json_string(json, "companion", NAMES[run->companion]);
    json_int(json, "companion_warps", run->companion_warps);
    json_int(json, "sms", run->sms);
    add_cycles(json, results, run->sms);
    if (run->companion)
        json_number(json, "companion_cycles", cycles_of(results, run->sms, 1), 6);
    else
        json_null(json, "companion_cycles");
    json_close(json, '}');
}

static enum status add_run(struct json *json, const struct gpu *gpu, const struct run *run, struct failure *failure) {
    pipe_result results[BENCH_MAX_SMS];
    enum status status = STATUS_OK;
    for (int i = 0; i < 2 && !status; i++) status = launch_run(gpu, run, ROUNDS, failure);
    if (!status) status = read_results(gpu, run->sms, results, failure);
    if (!status) add_row(json, NAMES[run->operation], run, results);
    return status;
}

static bool is_wgmma(enum pipe_operation operation) {
    return (operation >= PIPE_WGMMA && operation <= PIPE_E4M3_REGISTERS) || operation == PIPE_WGMMA_CHAIN ||
           operation == PIPE_E4M3_CHAIN;
}

/* Each operation alone: on one scheduler and on four, one to four warps on each. Copies also from one SM alone. */
static enum status run_alone(struct json *json, const struct gpu *gpu, struct failure *failure) {
    static const int WARPS[] = {1, 4, 8, 16};
    enum status status = STATUS_OK;
    for (int operation = PIPE_NOTHING + 1; operation < N_PIPES; operation++) {
        const bool once = operation >= PIPE_FFMA_CHAIN;
        for (size_t i = 0; i < (once ? 1 : sizeof WARPS / sizeof *WARPS) && !status; i++) {
            struct run run = {.operation = (enum pipe_operation)operation, .warps = WARPS[i], .sms = gpu->on.sms};
            if (operation == PIPE_ATOMIC_CHAIN) run.sms = 1;
            if (is_wgmma(run.operation) && run.warps < 4) {
                if (!once) continue;
                run.warps = 4;
            }
            status = add_run(json, gpu, &run, failure);
            if (operation != PIPE_COPY || status) continue;
            run.sms = 1;
            status = add_run(json, gpu, &run, failure);
        }
    }
    return status;
}

/* Tensor cores together with everything else, and pairs of which the issue slots or shared memory are known to bind. */
static enum status run_companion(struct json *json, const struct gpu *gpu, struct failure *failure) {
    static const enum pipe_operation FIRST[] = {PIPE_HMMA, PIPE_HMMA_REUSE,     PIPE_WGMMA, PIPE_WGMMA_REGISTERS,
                                                PIPE_E4M3, PIPE_E4M3_REGISTERS, PIPE_EX2,   PIPE_LDSM};
    enum status status = STATUS_OK;
    for (size_t i = 0; i < sizeof FIRST / sizeof *FIRST; i++)
        for (int companion = PIPE_FFMA; companion <= PIPE_COPY; companion++) {
            const bool tensor = companion >= PIPE_HMMA && companion <= PIPE_E4M3_REGISTERS;
            const bool reads_shared = FIRST[i] == PIPE_LDSM || is_wgmma(FIRST[i]);
            if (tensor || (companion == PIPE_COPY && !reads_shared) || companion == (int)FIRST[i]) continue;
            for (int warps = 4; warps <= (FIRST[i] == PIPE_LDSM ? 4 : 8) && !status; warps += 4)
                for (int others = 4; others <= 8 && !status; others += 4) {
                    const struct run run = {FIRST[i], (enum pipe_operation)companion, warps, others, gpu->on.sms};
                    status = add_run(json, gpu, &run, failure);
                }
        }
    return status;
}

/* Latencies while tensor cores read and write the registers of the same sub-partition. */
static enum status run_loaded_chains(struct json *json, const struct gpu *gpu, struct failure *failure) {
    static const enum pipe_operation CHAINS[] = {PIPE_LDSM_CHAIN, PIPE_LDS_CHAIN, PIPE_SHFL_CHAIN, PIPE_EX2_CHAIN};
    static const enum pipe_operation COMPANIONS[] = {PIPE_HMMA, PIPE_WGMMA, PIPE_LDSM};
    enum status status = STATUS_OK;
    for (size_t i = 0; i < sizeof CHAINS / sizeof *CHAINS; i++)
        for (size_t k = 0; k < sizeof COMPANIONS / sizeof *COMPANIONS && !status; k++) {
            const struct run run = {CHAINS[i], COMPANIONS[k], 4, 4, gpu->on.sms};
            status = add_run(json, gpu, &run, failure);
        }
    return status;
}

static enum status add_width(struct json *json, const struct gpu *gpu, int columns, bool registers, int warps,
                             struct failure *failure) {
    const struct run run = {.warps = warps, .sms = gpu->on.sms};
    pipe_result results[BENCH_MAX_SMS];
    CUdeviceptr to = gpu->results, sums = gpu->sums;
    int groups = GROUPS;
    void *parameters[] = {&to, &sums, &groups};
    enum status status = STATUS_OK;
    char kernel[64], name[64];
    snprintf(kernel, sizeof kernel, "pipes_e4m3_n%d_%s", columns, registers ? "registers" : "smem");
    snprintf(name, sizeof name, "QGMMA.64x%dx32%s", columns, registers ? ", A in registers" : "");
    for (int i = 0; i < 2 && !status; i++)
        status = launch(gpu, kernel, (unsigned)run.sms, 32u * (unsigned)warps, 0, parameters, failure);
    if (!status) status = read_results(gpu, run.sms, results, failure);
    if (!status) add_row(json, name, &run, results);
    return status;
}

/* Products of e4m3 by columns, A in shared memory or in registers, of one warpgroup and of two. */
static enum status run_widths(struct json *json, const struct gpu *gpu, struct failure *failure) {
#define WIDTH(n) n,
    static const int WIDTHS[] = {FL_PIPE_WIDTHS(WIDTH)};
#undef WIDTH
    enum status status = STATUS_OK;
    for (size_t i = 0; i < sizeof WIDTHS / sizeof *WIDTHS; i++)
        for (int registers = 0; registers < 2; registers++)
            for (int warps = 4; warps <= PIPE_WIDE_THREADS / 32 && !status; warps += 4)
                status = add_width(json, gpu, WIDTHS[i], registers, warps, failure);
    return status;
}

/* Cycles per operation until each warp of the first scheduler is done: who goes first where all are ready. */
static void add_ends(struct json *json, const char *name, int warps, const pipe_result *results, int ctas) {
    double ends[BENCH_MAX_SMS];
    json_open(json, NULL, '{');
    json_string(json, "order", name);
    json_int(json, "warps", warps);
    json_open(json, "ends", '[');
    for (int warp = 0; warp < warps; warp += 4) {
        for (int i = 0; i < ctas; i++) ends[i] = (double)results[i].ends[warp] / (double)results[i].count[0];
        json_number(json, NULL, median(ends, (size_t)ctas), 6);
    }
    json_close(json, ']');
    json_close(json, '}');
}

/* Two to four warps of each scheduler that all execute the same: in which order a pipe serves them. */
static enum status run_orders(struct json *json, const struct gpu *gpu, struct failure *failure) {
    static const enum pipe_operation SAME[] = {PIPE_EX2, PIPE_FFMA, PIPE_FMNMX, PIPE_LDSM, PIPE_SHFL, PIPE_HMMA};
    pipe_result results[BENCH_MAX_SMS];
    enum status status = STATUS_OK;
    for (size_t i = 0; i < sizeof SAME / sizeof *SAME; i++)
        for (int warps = 8; warps <= PIPE_MOST_WARPS && !status; warps += 4) {
            const struct run run = {.operation = SAME[i], .warps = warps, .sms = gpu->on.sms};
            for (int k = 0; k < 2 && !status; k++) status = launch_run(gpu, &run, ROUNDS, failure);
            if (!status) status = read_results(gpu, run.sms, results, failure);
            if (!status) add_ends(json, NAMES[SAME[i]], warps, results, run.sms);
        }
    for (int warps = 4; warps <= PIPE_GROUPS_THREADS / 32 && !status; warps += 4) {
        CUdeviceptr to = gpu->results, sums = gpu->sums;
        void *parameters[] = {&to, &sums};
        for (int k = 0; k < 2 && !status; k++)
            status = launch(gpu, "pipes_groups", (unsigned)gpu->on.sms, 32u * (unsigned)warps, 0, parameters, failure);
        if (!status) status = read_results(gpu, gpu->on.sms, results, failure);
        if (!status) add_ends(json, "a group of 8 QGMMA.64x96x32", warps, results, gpu->on.sms);
    }
    return status;
}

static enum status encode_map(const struct gpu *gpu, tensor_map *map, struct failure *failure) {
    const struct cuda_driver *cuda = &gpu->on.cuda;
    static const uint32_t box[] = {64, PIPE_BOX_ROWS, 2, 1, 1}, steps[] = {1, 1, 1, 1, 1};
    const uint64_t bytes = (uint64_t)gpu->on.sms * PIPE_WINDOW;
    const uint64_t sizes[] = {64, bytes / 256, 2, 1, 1}, strides[] = {256, 128, bytes, bytes};
    BENCH_CHECK(cuda->cuTensorMapEncodeTiled(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 5, gpu->memory, sizes, strides, box,
                                             steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                             CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
                "cuTensorMapEncodeTiled");
    return STATUS_OK;
}

static enum status add_copies(struct json *json, const struct gpu *gpu, const tensor_map *map, int ahead, int ctas,
                              int pause, struct failure *failure) {
    pipe_result results[BENCH_MAX_SMS];
    CUdeviceptr to = gpu->results;
    int copies = COPIES;
    void *parameters[] = {&to, (void *)map, &copies, &ahead, &pause};
    enum status status = STATUS_OK;
    for (int i = 0; i < 2 && !status; i++)
        status = launch(gpu, "pipes_copy", (unsigned)ctas, 1, PIPE_STAGES * PIPE_BOX_BYTES, parameters, failure);
    if (status || (status = read_results(gpu, ctas, results, failure))) return status;
    json_open(json, NULL, '{');
    json_string(json, "copy", "tensor");
    json_int(json, "bytes", PIPE_BOX_BYTES);
    json_int(json, "ahead", ahead);
    json_int(json, "sms", ctas);
    json_int(json, "pause", pause);
    if (pause)
        json_number(json, "cycles", cycles_of(results, ctas, 0), 6); /* the clock's ns have the pauses, too */
    else
        add_cycles(json, results, ctas);
    json_close(json, '}');
    return STATUS_OK;
}

/* Boxes of 32 KB by the copy engine, from one SM and from all: one or four under way, or one now and then, as a loop of
 * attention asks for them; all data are in L2. */
static enum status run_copies(struct json *json, const struct gpu *gpu, struct failure *failure) {
    tensor_map map;
    enum status status = encode_map(gpu, &map, failure);
    for (int all = 0; all < 2; all++) {
        const int ctas = all ? gpu->on.sms : 1;
        if (!status) status = add_copies(json, gpu, &map, 1, ctas, 0, failure);
        if (!status) status = add_copies(json, gpu, &map, PIPE_STAGES, ctas, 0, failure);
        if (!status) status = add_copies(json, gpu, &map, 1, ctas, PAUSE, failure);
    }
    return status;
}

/* Loads one after the other, from L2 and from beyond it. */
static enum status run_loads(struct json *json, const struct gpu *gpu, struct failure *failure) {
    pipe_result result;
    enum status status = STATUS_OK;
    for (int beyond = 0; beyond < 2; beyond++) {
        CUdeviceptr memory = gpu->memory, to = gpu->results;
        uint64_t stride = NEAR, nodes = beyond ? FAR_NODES : NEAR_NODES;
        int loads = LOADS;
        void *of_link[] = {&memory, &stride, &nodes}, *of_chase[] = {&to, &memory, &loads};
        status = launch(gpu, "pipes_link", (unsigned)(nodes + 127) / 128, 128, 0, of_link, failure);
        if (!status) status = beyond ? flush(gpu, failure) : launch(gpu, "pipes_chase", 1, 1, 0, of_chase, failure);
        if (!status) status = launch(gpu, "pipes_chase", 1, 1, 0, of_chase, failure);
        if (status || (status = read_results(gpu, 1, &result, failure))) return status;
        json_open(json, NULL, '{');
        json_string(json, "load", beyond ? "DRAM" : "L2");
        add_cycles(json, &result, 1);
        json_close(json, '}');
    }
    return zero_memory(gpu, failure);
}

/* Time between two events around a kernel without instructions, after a write of all of L2 or after a kernel. */
static enum status run_empty(struct json *json, const struct gpu *gpu, struct failure *failure) {
    const struct cuda_driver *cuda = &gpu->on.cuda;
    const struct run before = {.operation = PIPE_FFMA, .warps = 4, .sms = gpu->on.sms};
    double us[LAUNCHES];
    for (int cold = 0; cold < 2; cold++) {
        for (int i = 0; i < LAUNCHES; i++) {
            float ms = 0;
            enum status status = cold ? zero_memory(gpu, failure) : launch_run(gpu, &before, ROUNDS, failure);
            if (status) return status;
            BENCH_CHECK(cuda->cuEventRecord(gpu->events[0], NULL), "cuEventRecord");
            if ((status = launch(gpu, "pipes_empty", (unsigned)gpu->on.sms, 384, 0, NULL, failure))) return status;
            BENCH_CHECK(cuda->cuEventRecord(gpu->events[1], NULL), "cuEventRecord");
            BENCH_CHECK(cuda->cuStreamSynchronize(NULL), "pipes_empty");
            BENCH_CHECK(cuda->cuEventElapsedTime(&ms, gpu->events[0], gpu->events[1]), "cuEventElapsedTime");
            us[i] = 1e3 * (double)ms;
        }
        json_open(json, NULL, '{');
        json_string(json, "launch", cold ? "empty, behind a write of L2" : "empty, behind a kernel");
        json_number(json, "us", median(us, LAUNCHES), 5);
        json_close(json, '}');
    }
    return STATUS_OK;
}

static enum status measure_all(struct json *json, const struct gpu *gpu, struct failure *failure) {
    enum status status = zero_memory(gpu, failure);
    json_open(json, NULL, '{');
    bench_add_device(json, &gpu->on);
    json_open(json, "pipes", '[');
    if (!status) status = run_alone(json, gpu, failure);
    if (!status) status = run_companion(json, gpu, failure);
    if (!status) status = run_loaded_chains(json, gpu, failure);
    if (!status) status = run_widths(json, gpu, failure);
    if (!status) status = run_orders(json, gpu, failure);
    if (!status) status = run_copies(json, gpu, failure);
    if (!status) status = run_loads(json, gpu, failure);
    if (!status) status = run_empty(json, gpu, failure);
    json_close(json, ']');
    json_close(json, '}');
    return status;
}

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* One operation for the given number of seconds, launch after launch; the row is that of the last one. */
static enum status hold(struct json *json, const struct gpu *gpu, const char *name, double seconds,
                        struct failure *failure) {
    pipe_result results[BENCH_MAX_SMS];
    struct run run = {.warps = HOLD_WARPS, .sms = gpu->on.sms};
    for (int i = PIPE_NOTHING + 1; i < N_PIPES; i++)
        if (!strcmp(NAMES[i], name)) run.operation = (enum pipe_operation)i;
    if (!run.operation) return fail(failure, STATUS_USAGE, "%s is no operation of pipes.h", name);
    enum status status = zero_memory(gpu, failure);
    for (const double end = now_s() + seconds; !status && now_s() < end;) {
        status = launch_run(gpu, &run, HOLD_ROUNDS, failure);
        if (!status) status = launch_run(gpu, &run, HOLD_ROUNDS, failure);
        if (!status) status = read_results(gpu, run.sms, results, failure);
    }
    if (status) return status;
    json_open(json, NULL, '{');
    bench_add_device(json, &gpu->on);
    json_string(json, "operation", name);
    json_int(json, "warps", run.warps);
    add_cycles(json, results, run.sms);
    json_close(json, '}');
    return STATUS_OK;
}

static void close_gpu(struct gpu *gpu) {
    const struct cuda_driver *cuda = &gpu->on.cuda;
    for (int i = 0; i < 2; i++)
        if (gpu->events[i]) cuda->cuEventDestroy_v2(gpu->events[i]);
    if (gpu->results) cuda->cuMemFree_v2(gpu->results);
    if (gpu->sums) cuda->cuMemFree_v2(gpu->sums);
    if (gpu->memory) cuda->cuMemFree_v2(gpu->memory);
    if (gpu->flushed) cuda->cuMemFree_v2(gpu->flushed);
    bench_gpu_close(&gpu->on);
}

int main(int count, char **arguments) {
    struct gpu gpu = {0};
    struct json json = {0};
    struct failure failure;
    enum status status = STATUS_OK;
    const double seconds = count == 3 ? strtod(arguments[2], NULL) : 0;
    if (count != 1 && !(seconds > 0))
        status = fail(&failure, STATUS_USAGE, "give nothing, or an operation and for how many seconds: HMMA 2");
    if (!status) status = open_gpu(&gpu, &failure);
    if (!status)
        status = count == 1 ? measure_all(&json, &gpu, &failure) : hold(&json, &gpu, arguments[1], seconds, &failure);
    close_gpu(&gpu);
    return bench_finish("pipes", status, &json, &failure);
}
