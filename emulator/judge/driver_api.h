/* driver_api.h - the functions of libcuda that a replay calls, of a GPU's driver or of the emulated one.
 *
 *     driver_api cuda;
 *     if (!driver_api_open(&cuda, NULL)) return 4;  // libcuda.so.1 as the loader finds it
 *     cuda.cuInit(0);
 */
#ifndef FL_JUDGE_DRIVER_API_H
#define FL_JUDGE_DRIVER_API_H

#include <cuda.h>
#include <stdbool.h>

#define DRIVER_FUNCTIONS(X)                                                                                            \
    X(cuInit)                                                                                                          \
    X(cuGetErrorName)                                                                                                  \
    X(cuDeviceGet)                                                                                                     \
    X(cuDeviceGetName)                                                                                                 \
    X(cuDeviceGetAttribute)                                                                                            \
    X(cuDevicePrimaryCtxRetain)                                                                                        \
    X(cuCtxSetCurrent)                                                                                                 \
    X(cuCtxSynchronize)                                                                                                \
    X(cuMemAlloc)                                                                                                      \
    X(cuMemFree)                                                                                                       \
    X(cuMemHostAlloc)                                                                                                  \
    X(cuMemFreeHost)                                                                                                   \
    X(cuMemAllocManaged)                                                                                               \
    X(cuMemHostRegister)                                                                                               \
    X(cuMemHostUnregister)                                                                                             \
    X(cuMemHostGetDevicePointer)                                                                                       \
    X(cuMemcpyHtoD)                                                                                                    \
    X(cuMemcpyDtoH)                                                                                                    \
    X(cuDeviceGetPCIBusId)                                                                                             \
    X(cuDriverGetVersion)                                                                                              \
    X(cuCtxResetPersistingL2Cache)                                                                                     \
    X(cuStreamCreate)                                                                                                  \
    X(cuStreamSynchronize)                                                                                             \
    X(cuStreamWaitValue32)                                                                                             \
    X(cuEventCreate)                                                                                                   \
    X(cuEventRecord)                                                                                                   \
    X(cuEventElapsedTime)                                                                                              \
    X(cuMemcpyDtoDAsync)                                                                                               \
    X(cuMemsetD2D32)                                                                                                   \
    X(cuMemsetD2D8Async)                                                                                               \
    X(cuMemsetD2D16Async)                                                                                              \
    X(cuMemsetD2D32Async)                                                                                              \
    X(cuModuleLoadDataEx)                                                                                              \
    X(cuModuleUnload)                                                                                                  \
    X(cuModuleGetFunction)                                                                                             \
    X(cuModuleGetGlobal)                                                                                               \
    X(cuFuncGetParamInfo)                                                                                              \
    X(cuFuncSetAttribute)                                                                                              \
    X(cuLaunchKernelEx)                                                                                                \
    X(cuTensorMapEncodeTiled)                                                                                          \
    X(cuMemGetAllocationGranularity)                                                                                   \
    X(cuMemAddressReserve)                                                                                             \
    X(cuMemAddressFree)                                                                                                \
    X(cuMemCreate)                                                                                                     \
    X(cuMemRelease)                                                                                                    \
    X(cuMemMap)                                                                                                        \
    X(cuMemUnmap)                                                                                                      \
    X(cuMemSetAccess)

typedef struct driver_api {
#define MEMBER(function) __typeof__(function) *function;
    DRIVER_FUNCTIONS(MEMBER)
#undef MEMBER
    /* Of the emulated driver, NULL on a GPU: see emulator/driver/watch.c. */
    CUresult (*poison)(CUdeviceptr address, size_t bytes, const void *pattern, size_t pattern_bytes);
    CUresult (*touch_begin)(void);
    CUresult (*touched)(void *how, CUdeviceptr address, size_t bytes);
} driver_api;

/* False with a sentence on stderr where the library is missing, or one of its functions. NULL: libcuda.so.1. */
bool driver_api_open(driver_api *cuda, const char *path);

#endif
