/* microbenchmark.c - see microbenchmark.h */
#include "harness/device/microbenchmark.h"

#include <stdio.h>
#include <toolkit.h>

enum status bench_gpu_open(struct bench_gpu *gpu, const struct code_image *images, uint64_t image_count,
                           const char *program, struct failure *failure) {
    const struct cuda_driver *cuda = &gpu->cuda;
    int count = 0;
    enum status status = cuda_driver_open(&gpu->cuda, failure);
    if (status || (status = cuda_driver_start(cuda, &count, failure))) return status;
    BENCH_CHECK(cuda->cuDeviceGet(&gpu->device, 0), "cuDeviceGet");
    BENCH_CHECK(cuda->cuDeviceGetName(gpu->name, sizeof gpu->name, gpu->device), "cuDeviceGetName");
    BENCH_CHECK(cuda->cuDeviceGetPCIBusId(gpu->bus, sizeof gpu->bus, gpu->device), "cuDeviceGetPCIBusId");
    BENCH_CHECK(cuda->cuDeviceGetAttribute(&gpu->major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, gpu->device),
                "cuDeviceGetAttribute");
    BENCH_CHECK(cuda->cuDeviceGetAttribute(&gpu->minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, gpu->device),
                "cuDeviceGetAttribute");
    BENCH_CHECK(cuda->cuDeviceGetAttribute(&gpu->sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, gpu->device),
                "cuDeviceGetAttribute");
    BENCH_CHECK(cuda->cuDriverGetVersion(&gpu->driver), "cuDriverGetVersion");
    const struct code_image *code = image_for_gpu(images, image_count, gpu->major, gpu->minor);
    if (!code || gpu->sms > BENCH_MAX_SMS)
        return fail(failure, STATUS_CANNOT_RUN,
                    "%s needs a GPU of compute capability 9.0, such as H100 or H200: %s has %d.%d", program, gpu->name,
                    gpu->major, gpu->minor);
    BENCH_CHECK(cuda->cuDevicePrimaryCtxRetain(&gpu->context, gpu->device), "cuDevicePrimaryCtxRetain");
    BENCH_CHECK(cuda->cuCtxSetCurrent(gpu->context), "cuCtxSetCurrent");
    BENCH_CHECK(cuda->cuModuleLoadData(&gpu->module, code->bytes), "cuModuleLoadData of the %s code", code->kind);
    return STATUS_OK;
}

void bench_gpu_close(struct bench_gpu *gpu) {
    const struct cuda_driver *cuda = &gpu->cuda;
    if (gpu->module) cuda->cuModuleUnload(gpu->module);
    if (gpu->context) cuda->cuDevicePrimaryCtxRelease_v2(gpu->device);
    cuda_driver_close(&gpu->cuda);
}

void bench_add_device(struct json *json, const struct bench_gpu *gpu) {
    char text[32];
    json_int(json, "schema", 1);
    json_string(json, "toolkit", FL_TOOLKIT);
    json_open(json, "device", '{');
    json_string(json, "name", gpu->name);
    snprintf(text, sizeof text, "%d.%d", gpu->major, gpu->minor);
    json_string(json, "cc", text);
    json_int(json, "sms", gpu->sms);
    snprintf(text, sizeof text, "CUDA %d.%d", gpu->driver / 1000, gpu->driver % 1000 / 10);
    json_string(json, "driver", text);
    json_string(json, "bus", gpu->bus);
    json_close(json, '}');
}

int bench_finish(const char *program, enum status status, struct json *json, struct failure *failure) {
    if (!status && json->failed) status = fail(failure, STATUS_ERROR, "out of memory for the record");
    if (!status && (puts(json->text) == EOF || fflush(stdout)))
        status = fail(failure, STATUS_ERROR, "standard output cannot be written");
    if (status) fprintf(stderr, "%s: %s\n", program, failure->text);
    json_free(json);
    return (int)status;
}
