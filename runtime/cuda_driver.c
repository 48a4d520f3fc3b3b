#include "runtime/cuda_driver.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* clang-format off */
#define ENTRY(name) {#name, offsetof(struct cuda_driver, name)}
static const struct {
    const char *name;
    size_t offset;
} ENTRIES[] = {
    ENTRY(cuInit), ENTRY(cuGetErrorName), ENTRY(cuGetErrorString), ENTRY(cuDriverGetVersion),
    ENTRY(cuDeviceGetCount), ENTRY(cuDeviceGet), ENTRY(cuDeviceGetName), ENTRY(cuDeviceGetAttribute),
    ENTRY(cuDeviceGetPCIBusId), ENTRY(cuDeviceTotalMem_v2), ENTRY(cuDevicePrimaryCtxRetain),
    ENTRY(cuDevicePrimaryCtxRelease_v2), ENTRY(cuCtxSetCurrent), ENTRY(cuModuleLoadData), ENTRY(cuModuleUnload),
    ENTRY(cuModuleGetFunction), ENTRY(cuFuncSetAttribute), ENTRY(cuMemGetInfo_v2),
    ENTRY(cuMemAlloc_v2), ENTRY(cuMemFree_v2), ENTRY(cuMemHostAlloc), ENTRY(cuMemFreeHost),
    ENTRY(cuMemHostGetDevicePointer_v2), ENTRY(cuMemcpyHtoD_v2), ENTRY(cuMemcpyDtoH_v2), ENTRY(cuMemsetD8Async),
    ENTRY(cuStreamCreate), ENTRY(cuStreamDestroy_v2), ENTRY(cuStreamSynchronize), ENTRY(cuCtxSynchronize),
    ENTRY(cuEventCreate),
    ENTRY(cuEventDestroy_v2), ENTRY(cuEventRecord), ENTRY(cuEventQuery), ENTRY(cuEventElapsedTime),
    ENTRY(cuLaunchKernel), ENTRY(cuTensorMapEncodeTiled), ENTRY(cuCtxGetCurrent), ENTRY(cuCtxPushCurrent_v2),
    ENTRY(cuCtxPopCurrent_v2), ENTRY(cuCtxGetDevice), ENTRY(cuCtxGetId), ENTRY(cuPointerGetAttributes),
    ENTRY(cuMemsetD32Async), ENTRY(cuStreamGetCtx), ENTRY(cuStreamGetId), ENTRY(cuStreamIsCapturing),
    ENTRY(cuStreamGetCaptureInfo_v2), ENTRY(cuThreadExchangeStreamCaptureMode), ENTRY(cuFuncLoad), ENTRY(cuCtxSetLimit),
    ENTRY(cuCtxResetPersistingL2Cache),
};
/* clang-format on */

enum status cuda_driver_open(struct cuda_driver *cuda, struct failure *failure) {
    *cuda = (struct cuda_driver){0};
    cuda->library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!cuda->library) return fail(failure, STATUS_CANNOT_RUN, "no NVIDIA driver: %s", dlerror());
    for (size_t i = 0; i < sizeof ENTRIES / sizeof *ENTRIES; i++) {
        void *address = dlsym(cuda->library, ENTRIES[i].name);
        if (!address && ENTRIES[i].offset != offsetof(struct cuda_driver, cuFuncLoad)) {
            cuda_driver_close(cuda);
            return fail(failure, STATUS_CANNOT_RUN,
                        "the NVIDIA driver (libcuda.so.1) has no %s; install a driver for CUDA 12 or newer",
                        ENTRIES[i].name);
        }
        /* ISO C converts no object pointer to a function pointer; POSIX gives both one representation. */
        memcpy((char *)cuda + ENTRIES[i].offset, &address, sizeof address);
    }
    return STATUS_OK;
}

enum status cuda_driver_start(const struct cuda_driver *cuda, int *gpus, struct failure *failure) {
    const CUresult started = cuda->cuInit(0);
    if (started == CUDA_ERROR_NO_DEVICE)
        return fail(failure, STATUS_CANNOT_RUN, "there is an NVIDIA driver, but no GPU (cuInit: CUDA_ERROR_NO_DEVICE)");
    enum status status = cuda_check(cuda, started, failure, "cuInit");
    if (!status) status = cuda_check(cuda, cuda->cuDeviceGetCount(gpus), failure, "cuDeviceGetCount");
    if (status || *gpus) return status;
    return fail(failure, STATUS_CANNOT_RUN, "there is an NVIDIA driver, but no GPU it may use");
}

void cuda_driver_close(struct cuda_driver *cuda) {
    if (cuda->library) dlclose(cuda->library);
    *cuda = (struct cuda_driver){0};
}

enum status cuda_check(const struct cuda_driver *cuda, CUresult result, struct failure *failure, const char *what,
                       ...) {
    if (result == CUDA_SUCCESS) return STATUS_OK;
    char action[1000];
    va_list arguments;
    va_start(arguments, what);
    vsnprintf(action, sizeof action, what, arguments);
    va_end(arguments);
    const char *name = NULL, *text = NULL;
    if (cuda->cuGetErrorName(result, &name) || !name) name = "an unknown error";
    if (cuda->cuGetErrorString(result, &text) || !text) text = "no description";
    return fail(failure, STATUS_ERROR, "%s: %s (%d, %s)", action, name, result, text);
}
