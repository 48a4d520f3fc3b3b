#include "runtime/gpu_kernel.h"

#include "runtime/config.h"
#include "runtime/launch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(call, ...)                                                                                               \
    do {                                                                                                               \
        const enum status check_status = cuda_check(cuda, (call), failure, __VA_ARGS__);                               \
        if (check_status) return check_status;                                                                         \
    } while (0)

enum { ANY_KERNEL = 80, E4M3_PRODUCTS = 89 }; /* compute capabilities, 10 * major + minor */

/* The least compute capability of a GPU that has the instructions of the code. */
static int least_of(const struct gpu_code *code) {
    const long of_arch = code->exact ? 0 : strtol(code->arch + strlen("sm_"), NULL, 10);
    return of_arch > ANY_KERNEL ? (int)of_arch : ANY_KERNEL;
}

const struct code_image *gpu_code_find(const struct gpu_code *code, const struct gpu_target *target,
                                       struct failure *failure) {
    char kinds[200], needs[100];
    snprintf(needs, sizeof needs, "%s needs", code->version);
    const int least = least_of(code);
    if (10 * target->major + target->minor < least) {
        fail(failure, STATUS_CANNOT_RUN, "%s: has compute capability %d.%d; %s at least %d.%d, for %s", target->name,
             target->major, target->minor, least == ANY_KERNEL ? "the kernels need" : needs, least / 10, least % 10,
             least < E4M3_PRODUCTS ? "mma.sync m16n8k16 and cp.async" : "mma.sync of e4m3");
        return NULL;
    }
    const struct code_image *image = image_for_gpu(code->images, code->count, target->major, target->minor);
    if (image) return image;
    if (code->exact) {
        const bool hopper = !strcmp(code->exact, "sm_90a");
        fail(failure, STATUS_CANNOT_RUN, "%s was built for %s and needs %s (compute capability %s), but %s has %d.%d%s",
             code->version, code->exact, hopper ? "an H100 or H200" : "an RTX 50 or RTX PRO", hopper ? "9.0" : "12.0",
             target->name, target->major, target->minor, code->instead);
        return NULL;
    }
    image_kinds(code->images, code->count, kinds, sizeof kinds);
    const char *const name = strchr(code->goal, '/'); /* make calls attention/wgmma attention.wgmma */
    fail(failure, STATUS_CANNOT_RUN,
         "%s: no machine code for compute capability %d.%d in %s, which contains %s; build with: make ARCHS=\"80 90 "
         "%d%d\" %.*s%s%s",
         target->name, target->major, target->minor, code->holder, kinds, target->major, target->minor,
         (int)strcspn(code->goal, "/"), code->goal, name ? "." : "", name ? name + 1 : "");
    return NULL;
}

enum status gpu_smem_check(const struct gpu_code *code, const struct code_image *image, const struct gpu_target *target,
                           const struct instance *instance, struct failure *failure) {
    char text[CONFIG_TEXT_SIZE];
    int static_bytes;
    const enum status status = image_static_smem(image, instance->symbol, &static_bytes, failure);
    if (status) return status;
    const int bytes = launch_smem_bytes(&instance->config) + static_bytes;
    if (bytes <= target->shared_bytes) return STATUS_OK;
    return fail(failure, STATUS_CANNOT_RUN,
                "%s %s needs %d bytes of shared memory per CTA, %d of them static: %s has %d; use a smaller B_r or "
                "B_c",
                code->version, config_format(&instance->config, text), bytes, static_bytes, target->name,
                target->shared_bytes);
}

enum status gpu_code_load(const struct cuda_driver *cuda, const struct gpu_code *code, const struct gpu_target *target,
                          const struct code_image *image, CUmodule *module, struct failure *failure) {
    const struct code_image *const ptx = image_find(code->images, code->count, "ptx");
    CUresult loaded = cuda->cuModuleLoadData(module, image->bytes);
    if (loaded == CUDA_ERROR_NO_BINARY_FOR_GPU && ptx) loaded = cuda->cuModuleLoadData(module, ptx->bytes);
    CHECK(loaded, "cuModuleLoadData of the %s code, made by toolkit %s, under driver %s", image->kind, code->toolkit,
          target->driver);
    return STATUS_OK;
}

enum status gpu_kernel_find(const struct cuda_driver *cuda, CUmodule module, const struct instance *instance,
                            struct gpu_kernel *kernel, struct failure *failure) {
    const int dynamic_bytes = launch_smem_bytes(&instance->config);
    char text[CONFIG_TEXT_SIZE];
    *kernel = (struct gpu_kernel){.symbol = instance->symbol};
    CHECK(cuda->cuModuleGetFunction(&kernel->function, module, instance->symbol), "cuModuleGetFunction of %s",
          instance->symbol);
    CHECK(cuda->cuFuncSetAttribute(kernel->function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, dynamic_bytes),
          "cuFuncSetAttribute of %d bytes of dynamic shared memory for %s", dynamic_bytes,
          config_format(&instance->config, text));
    return STATUS_OK;
}

enum status gpu_kernel_launch(const struct cuda_driver *cuda, const struct gpu_kernel *kernel,
                              const launch_shape *shape, const attention_args *args, const tensor_maps *maps,
                              CUstream stream, struct failure *failure) {
    /* The driver takes as many parameters as the kernel has, and as many bytes of the first. */
    void *parameters[] = {(void *)(uintptr_t)args, (void *)(uintptr_t)maps};
    CHECK(cuda->cuLaunchKernel(kernel->function, shape->grid_x, shape->grid_y, shape->grid_z, shape->threads, 1, 1,
                               shape->smem_bytes, stream, parameters, NULL),
          "cuLaunchKernel of %s, grid %u x %u x %u, %u threads, %u bytes of shared memory", kernel->symbol,
          shape->grid_x, shape->grid_y, shape->grid_z, shape->threads, shape->smem_bytes);
    return STATUS_OK;
}
