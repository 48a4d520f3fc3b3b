/* microbenchmark.h - what bin/peak and bin/pipes share: the first GPU with their machine code on it, and their record.
 *
 *     struct bench_gpu gpu = {0};
 *     status = bench_gpu_open(&gpu, images, count, "peak", &failure);
 */
#ifndef FL_MICROBENCHMARK_H
#define FL_MICROBENCHMARK_H

#include "runtime/cuda_driver.h"
#include "runtime/image.h"
#include "runtime/json.h"

enum { BENCH_MAX_SMS = 512 };

struct bench_gpu {
    struct cuda_driver cuda;
    CUdevice device;
    CUcontext context;
    CUmodule module;
    char name[128], bus[32]; /* bus: "0000:00:06.0", by which NVML knows it */
    int major, minor, sms, driver;
};

/* In a function that returns a status and has `cuda` and `failure`. */
#define BENCH_CHECK(call, ...)                                                                                         \
    do {                                                                                                               \
        const enum status check_status = cuda_check(cuda, (call), failure, __VA_ARGS__);                               \
        if (check_status) return check_status;                                                                         \
    } while (0)

/* STATUS_CANNOT_RUN where there is no GPU of compute capability 9.0; the sentence says that the program needs it. */
enum status bench_gpu_open(struct bench_gpu *gpu, const struct code_image *images, uint64_t image_count,
                           const char *program, struct failure *failure);
/* May be called whatever was opened. The caller frees its memory and events before. */
void bench_gpu_close(struct bench_gpu *gpu);

/* "schema", "toolkit" and "device" of the open object. */
void bench_add_device(struct json *json, const struct bench_gpu *gpu);
/* Prints the record, or why there is none. Returns the exit status. */
int bench_finish(const char *program, enum status status, struct json *json, struct failure *failure);

#endif
