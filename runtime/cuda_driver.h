/* cuda_driver.h - the part of the CUDA driver API that harness and library use, declared here and looked up at run
 * time.
 *
 *     struct cuda_driver cuda;
 *     int gpus;
 *     cuda_driver_open(&cuda, &failure);
 *     cuda_driver_start(&cuda, &gpus, &failure);
 *
 * The executable is not linked with libcuda and is built without CUDA's headers, so that it starts on any machine.
 * Names, types and numbers are those of the CUDA driver API reference (binary interface since CUDA 12).
 */
#ifndef FL_CUDA_DRIVER_H
#define FL_CUDA_DRIVER_H

#include "runtime/status.h"

#include <stddef.h>
#include <stdint.h>

typedef int CUresult;
typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;

enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NO_DEVICE = 100,
    CUDA_ERROR_NO_BINARY_FOR_GPU = 209,
    CUDA_ERROR_UNSUPPORTED_LIMIT = 215,
    CUDA_ERROR_NOT_READY = 600,
    CUDA_ERROR_NOT_SUPPORTED = 801,

    CU_DEVICE_ATTRIBUTE_CLOCK_RATE = 13, /* kHz, the peak */
    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
    CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE = 38,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97,

    CU_LIMIT_PERSISTING_L2_CACHE_SIZE = 6,

    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,

    CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2,
    CU_POINTER_ATTRIBUTE_IS_MANAGED = 8,
    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9,
    CU_MEMORYTYPE_HOST = 1,
    CU_MEMORYTYPE_DEVICE = 2,

    CU_STREAM_CAPTURE_STATUS_NONE = 0,
    CU_STREAM_CAPTURE_MODE_RELAXED = 2,

    CU_MEMHOSTALLOC_DEVICEMAP = 2,
    CU_STREAM_DEFAULT = 0, /* waits for the default stream, and that one for it */
    CU_STREAM_NON_BLOCKING = 1,
    CU_STREAM_PER_THREAD = 2, /* instead of a handle: the default stream of the calling thread; 0 and 1: of all */
    CU_EVENT_DEFAULT = 0,

    CU_TENSOR_MAP_DATA_TYPE_UINT8 = 0,
    CU_TENSOR_MAP_DATA_TYPE_FLOAT16 = 6,
    CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 = 9,
    CU_TENSOR_MAP_INTERLEAVE_NONE = 0,
    CU_TENSOR_MAP_SWIZZLE_64B = 2,
    CU_TENSOR_MAP_SWIZZLE_128B = 3,
    CU_TENSOR_MAP_L2_PROMOTION_L2_128B = 2,
    CU_TENSOR_MAP_L2_PROMOTION_L2_256B = 3,
    CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE = 0 /* zeros */
};

/* Entry points, each under the name it is looked up by. */
struct cuda_driver {
    void *library;
    CUresult (*cuInit)(unsigned flags);
    CUresult (*cuGetErrorName)(CUresult error, const char **name);
    CUresult (*cuGetErrorString)(CUresult error, const char **text);
    CUresult (*cuDriverGetVersion)(int *version);
    CUresult (*cuDeviceGetCount)(int *count);
    CUresult (*cuDeviceGet)(CUdevice *device, int ordinal);
    CUresult (*cuDeviceGetName)(char *name, int length, CUdevice device);
    CUresult (*cuDeviceGetAttribute)(int *value, int attribute, CUdevice device);
    CUresult (*cuDeviceGetPCIBusId)(char *text, int length, CUdevice device);
    CUresult (*cuDeviceTotalMem_v2)(size_t *bytes, CUdevice device);
    CUresult (*cuDevicePrimaryCtxRetain)(CUcontext *context, CUdevice device);
    CUresult (*cuDevicePrimaryCtxRelease_v2)(CUdevice device);
    CUresult (*cuCtxSetCurrent)(CUcontext context);
    CUresult (*cuCtxGetCurrent)(CUcontext *context);
    CUresult (*cuCtxPushCurrent_v2)(CUcontext context);
    CUresult (*cuCtxPopCurrent_v2)(CUcontext *context);
    CUresult (*cuCtxGetDevice)(CUdevice *device);
    CUresult (*cuCtxGetId)(CUcontext context, uint64_t *id);
    CUresult (*cuCtxSetLimit)(int limit, size_t value);
    CUresult (*cuCtxResetPersistingL2Cache)(void); /* of all lines of the L2 */
    CUresult (*cuModuleLoadData)(CUmodule *module, const void *image);
    CUresult (*cuModuleUnload)(CUmodule module);
    CUresult (*cuModuleGetFunction)(CUfunction *function, CUmodule module, const char *name);
    CUresult (*cuFuncSetAttribute)(CUfunction function, int attribute, int value);
    CUresult (*cuFuncLoad)(CUfunction function); /* NULL before CUDA 12.4: the first launch loads */
    CUresult (*cuPointerGetAttributes)(unsigned count, int *attributes, void **values, CUdeviceptr address);
    CUresult (*cuMemGetInfo_v2)(size_t *free, size_t *total);
    CUresult (*cuMemAlloc_v2)(CUdeviceptr *address, size_t bytes);
    CUresult (*cuMemFree_v2)(CUdeviceptr address);
    CUresult (*cuMemHostAlloc)(void **memory, size_t bytes, unsigned flags);
    CUresult (*cuMemFreeHost)(void *memory);
    CUresult (*cuMemHostGetDevicePointer_v2)(CUdeviceptr *address, void *memory, unsigned flags);
    CUresult (*cuMemcpyHtoD_v2)(CUdeviceptr to, const void *from, size_t bytes);
    CUresult (*cuMemcpyDtoH_v2)(void *to, CUdeviceptr from, size_t bytes);
    CUresult (*cuMemsetD8Async)(CUdeviceptr address, unsigned char value, size_t count, CUstream stream);
    CUresult (*cuMemsetD32Async)(CUdeviceptr address, unsigned value, size_t count, CUstream stream);
    CUresult (*cuStreamCreate)(CUstream *stream, unsigned flags);
    CUresult (*cuStreamDestroy_v2)(CUstream stream);
    CUresult (*cuStreamSynchronize)(CUstream stream);
    CUresult (*cuCtxSynchronize)(void); /* all streams */
    CUresult (*cuStreamGetCtx)(CUstream stream, CUcontext *context);
    CUresult (*cuStreamGetId)(CUstream stream, uint64_t *id);
    CUresult (*cuStreamIsCapturing)(CUstream stream, int *status);
    CUresult (*cuStreamGetCaptureInfo_v2)(CUstream stream, int *status, uint64_t *id, void *graph, void *nodes,
                                          void *count);
    CUresult (*cuThreadExchangeStreamCaptureMode)(int *mode);
    CUresult (*cuEventCreate)(CUevent *event, unsigned flags);
    CUresult (*cuEventDestroy_v2)(CUevent event);
    CUresult (*cuEventRecord)(CUevent event, CUstream stream);
    CUresult (*cuEventQuery)(CUevent event);
    CUresult (*cuEventElapsedTime)(float *milliseconds, CUevent start, CUevent end);
    CUresult (*cuLaunchKernel)(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                               unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream,
                               void **parameters, void **extra);
    CUresult (*cuTensorMapEncodeTiled)(void *map, int data_type, uint32_t rank, CUdeviceptr address,
                                       const uint64_t *sizes, const uint64_t *strides, const uint32_t *box,
                                       const uint32_t *element_strides, int interleave, int swizzle, int l2_promotion,
                                       int fill);
};

/* Open libcuda.so.1 and look every entry point up. STATUS_CANNOT_RUN where there is no driver, or one that is too old
 * to know an entry point. */
enum status cuda_driver_open(struct cuda_driver *cuda, struct failure *failure);
void cuda_driver_close(struct cuda_driver *cuda);

/* Initialize the driver and count its GPUs. STATUS_CANNOT_RUN where there is none. */
enum status cuda_driver_start(const struct cuda_driver *cuda, int *gpus, struct failure *failure);

/* STATUS_OK for CUDA_SUCCESS, else STATUS_ERROR with "WHAT: CUDA_ERROR_NAME (text)". */
enum status cuda_check(const struct cuda_driver *cuda, CUresult result, struct failure *failure, const char *what, ...)
    __attribute__((format(printf, 4, 5)));

#endif
