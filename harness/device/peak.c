/* peak.c - how fast wgmma runs on a GPU, as one JSON object: what bounds of machine code for sm_90a are made of.
 *
 *     bin/peak > logs/bench/wgmma.h200.json        (./fl peak)
 *
 * cycles are those of the SM for one m64nNk16 of one warpgroup, where `warpgroups` of them share the tensor cores of an
 * SM. companion_cycles are those of one warp instruction of the kind `companion`, of which another warpgroup executes
 * as many as it can. Medians over all SMs. Exit status 77 without a GPU of compute capability 9.0.
 */
#include "harness/device/microbenchmark.h"
#include "harness/device/wgmma_peak.h"
#include "harness/stats.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const struct code_image fl_peak_images[];
extern const uint64_t fl_peak_image_count;

enum { WGMMAS = 160000 /* of all warpgroups of an SM */ };

static const int SHAPES[] = {64, 128, 256};
static const char *const TYPES[] = {"fp16", "bf16"}, *const SOURCES[] = {"smem", "registers"};
static const char *const OTHERS[N_COMPANIONS] = {[COMPANION_NOTHING] = "",  [COMPANION_EX2] = "MUFU.EX2",
                                                 [COMPANION_FMA] = "FFMA",  [COMPANION_ADD] = "FADD",
                                                 [COMPANION_MAX] = "FMNMX", [COMPANION_PACK] = "F2FP"};

struct gpu {
    struct bench_gpu on;
    CUdeviceptr results, sums;
};

/* One row of the record. */
struct run {
    const char *type, *source;
    int n, warpgroups;
    enum wgmma_companion companion;
};

static enum status open_gpu(struct gpu *gpu, struct failure *failure) {
    const struct cuda_driver *cuda = &gpu->on.cuda;
    const enum status status = bench_gpu_open(&gpu->on, fl_peak_images, fl_peak_image_count, "peak", failure);
    if (status) return status;
    BENCH_CHECK(cuda->cuMemAlloc_v2(&gpu->results, (size_t)gpu->on.sms * sizeof(wgmma_result)), "cuMemAlloc");
    BENCH_CHECK(cuda->cuMemAlloc_v2(&gpu->sums, (size_t)gpu->on.sms * WGMMA_MOST_THREADS * sizeof(float)),
                "cuMemAlloc");
    return STATUS_OK;
}

/* Launch twice, the first time to warm up, and read what every SM measured the second time. */
static enum status measure(const struct gpu *gpu, const struct run *run, wgmma_result results[BENCH_MAX_SMS],
                           struct failure *failure) {
    const struct cuda_driver *cuda = &gpu->on.cuda;
    const unsigned threads = 128 * (unsigned)(run->warpgroups + (run->companion != COMPANION_NOTHING));
    CUdeviceptr to = gpu->results, sums = gpu->sums;
    int iterations = WGMMAS / WGMMA_PER_ITERATION / run->warpgroups, companion = (int)run->companion;
    void *parameters[] = {&to, &sums, &iterations, &companion};
    CUfunction function;
    char name[64];
    snprintf(name, sizeof name, "wgmma_peak_%s_n%d_%s", run->type, run->n, run->source);
    BENCH_CHECK(cuda->cuModuleGetFunction(&function, gpu->on.module, name), "cuModuleGetFunction of %s", name);
    for (int i = 0; i < 2; i++) {
        BENCH_CHECK(
            cuda->cuLaunchKernel(function, (unsigned)gpu->on.sms, 1, 1, threads, 1, 1, 0, NULL, parameters, NULL),
            "cuLaunchKernel of %s", name);
        BENCH_CHECK(cuda->cuStreamSynchronize(NULL), "%s", name);
    }
    BENCH_CHECK(cuda->cuMemcpyDtoH_v2(results, gpu->results, (size_t)gpu->on.sms * sizeof *results), "cuMemcpyDtoH");
    return STATUS_OK;
}

/* Medians over the SMs. */
static void add_row(struct json *json, const struct gpu *gpu, const struct run *run,
                    const wgmma_result results[BENCH_MAX_SMS]) {
    double cycles[BENCH_MAX_SMS], seconds[BENCH_MAX_SMS], own[BENCH_MAX_SMS];
    for (int i = 0; i < gpu->on.sms; i++) {
        const wgmma_result *result = &results[i];
        cycles[i] = (double)result->cycles / (double)result->wgmma / run->warpgroups;
        seconds[i] = (double)result->ns / 1e9 / (double)result->wgmma / run->warpgroups;
        own[i] = result->others ? (double)result->own_cycles / (double)result->others : 0;
    }
    const size_t count = (size_t)gpu->on.sms;
    const double each = median(cycles, count), time = median(seconds, count);
    json_open(json, NULL, '{');
    json_int(json, "n", run->n);
    json_int(json, "k", 16);
    json_string(json, "dtype", run->type);
    json_string(json, "a", run->source);
    json_int(json, "warpgroups", run->warpgroups);
    json_string(json, "companion", OTHERS[run->companion]);
    json_number(json, "cycles", each, 6);
    if (run->companion)
        json_number(json, "companion_cycles", median(own, count), 6);
    else
        json_null(json, "companion_cycles");
    json_number(json, "tflops", 2.0 * 64 * run->n * 16 * gpu->on.sms / time / 1e12, 5);
    json_number(json, "sm_clock_hz", each / time, 6);
    json_close(json, '}');
}

static enum status run_one(struct json *json, const struct gpu *gpu, const struct run *run, struct failure *failure) {
    wgmma_result results[BENCH_MAX_SMS];
    const enum status status = measure(gpu, run, results, failure);
    if (!status) add_row(json, gpu, run, results);
    return status;
}

/* Every shape alone with one to three warpgroups, and with two next to a warpgroup of each companion instruction. */
static enum status run_all(struct json *json, const struct gpu *gpu, struct failure *failure) {
    enum status status = STATUS_OK;
    for (size_t shape = 0; shape < sizeof SHAPES / sizeof *SHAPES; shape++)
        for (int type = 0; type < 2; type++)
            for (int source = 0; source < 2; source++) {
                struct run run = {.type = TYPES[type], .source = SOURCES[source], .n = SHAPES[shape]};
                for (run.warpgroups = 1; run.warpgroups <= 3 && !status; run.warpgroups++)
                    status = run_one(json, gpu, &run, failure);
                run.warpgroups = 2;
                for (run.companion = COMPANION_EX2; run.companion < N_COMPANIONS && !status; run.companion++)
                    status = run_one(json, gpu, &run, failure);
            }
    return status;
}

static enum status write_record(struct gpu *gpu, struct json *json, struct failure *failure) {
    enum status status = open_gpu(gpu, failure);
    if (status) return status;
    json_open(json, NULL, '{');
    bench_add_device(json, &gpu->on);
    json_open(json, "wgmma", '[');
    status = run_all(json, gpu, failure);
    json_close(json, ']');
    json_close(json, '}');
    return status;
}

static void close_gpu(struct gpu *gpu) {
    const struct cuda_driver *cuda = &gpu->on.cuda;
    if (gpu->results) cuda->cuMemFree_v2(gpu->results);
    if (gpu->sums) cuda->cuMemFree_v2(gpu->sums);
    bench_gpu_close(&gpu->on);
}

int main(void) {
    struct gpu gpu = {0};
    struct json json = {0};
    struct failure failure;
    const enum status status = write_record(&gpu, &json, &failure);
    close_gpu(&gpu);
    return bench_finish("peak", status, &json, &failure);
}
