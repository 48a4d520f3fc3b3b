/* calls.c - the device, streams, events, graphs and functions: each call is one of the driver. */
#include "cudart.h"

#include <string.h>

/* The entry of a kernel, whose `function` is the driver's. */
#define RUN_KERNEL(kernel, call)                                                                                       \
    CUfunction function = NULL;                                                                                        \
    CUresult status = runtime_enter();                                                                                 \
    if (status == CUDA_SUCCESS) status = find_kernel(kernel, &function);                                               \
    if (status == CUDA_ERROR_NOT_FOUND) return runtime_failed(cudaErrorInvalidDeviceFunction);                         \
    if (status == CUDA_SUCCESS) status = (call);                                                                       \
    return runtime_leave(status)

/* ---- the device ---- */

/* The driver calls cuInit() once; a context that the program has made current stays so. */
CUresult runtime_enter(void) {
    static _Thread_local bool has_context;
    CUcontext context = NULL;
    CUresult status = cuInit(0);
    if (status != CUDA_SUCCESS || has_context) return status;
    status = cuCtxGetCurrent(&context);
    if (status == CUDA_SUCCESS && !context) {
        status = cuDevicePrimaryCtxRetain(&context, 0);
        if (status == CUDA_SUCCESS) status = cuCtxSetCurrent(context);
    }
    has_context = status == CUDA_SUCCESS;
    return status;
}

cudaError_t cudaGetDeviceCount(int *count) {
    RUN(cuDeviceGetCount(count));
}

cudaError_t cudaGetDevice(int *device) {
    RUN(device ? (*device = 0, CUDA_SUCCESS) : CUDA_ERROR_INVALID_VALUE);
}

cudaError_t cudaSetDevice(int device) {
    CUdevice found;
    RUN(cuDeviceGet(&found, device));
}

cudaError_t cudaInitDevice(int device, unsigned device_flags, unsigned flags) {
    (void)device_flags, (void)flags;
    return cudaSetDevice(device);
}

cudaError_t cudaSetDeviceFlags(unsigned flags) {
    RUN(cuCtxSetFlags(flags));
}

cudaError_t cudaGetDeviceFlags(unsigned *flags) {
    RUN(cuCtxGetFlags(flags));
}

cudaError_t cudaDeviceSynchronize(void) {
    RUN(cuCtxSynchronize());
}

cudaError_t cudaDeviceReset(void) {
    RUN(cuCtxSynchronize());
}

/* The attributes of both APIs have the same numbers; so have the limits. */
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr which, int device) {
    RUN(cuDeviceGetAttribute(value, (CUdevice_attribute)which, device));
}

cudaError_t cudaDeviceGetLimit(size_t *value, enum cudaLimit limit) {
    RUN(cuCtxGetLimit(value, (CUlimit)limit));
}

cudaError_t cudaDeviceSetLimit(enum cudaLimit limit, size_t value) {
    RUN(cuCtxSetLimit((CUlimit)limit, value));
}

cudaError_t cudaDeviceSetCacheConfig(enum cudaFuncCache config) {
    RUN(cuCtxSetCacheConfig((CUfunc_cache)config));
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    RUN(cuCtxGetStreamPriorityRange(least, greatest));
}

cudaError_t cudaProfilerStart(void) {
    RUN(CUDA_SUCCESS);
}

cudaError_t cudaProfilerStop(void) {
    RUN(CUDA_SUCCESS);
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer) {
    RUN(cuDeviceCanAccessPeer(can, device, peer));
}

static int attribute(CUdevice_attribute which, int device) {
    int value = 0;
    cuDeviceGetAttribute(&value, which, device);
    return value;
}

#define ATTRIBUTE(name) attribute(CU_DEVICE_ATTRIBUTE_##name, device)

static void fill_properties(struct cudaDeviceProp *p, int device) {
    p->sharedMemPerBlock = (size_t)ATTRIBUTE(MAX_SHARED_MEMORY_PER_BLOCK);
    p->sharedMemPerBlockOptin = (size_t)ATTRIBUTE(MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
    p->sharedMemPerMultiprocessor = (size_t)ATTRIBUTE(MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
    p->reservedSharedMemPerBlock = (size_t)ATTRIBUTE(RESERVED_SHARED_MEMORY_PER_BLOCK);
    p->regsPerBlock = ATTRIBUTE(MAX_REGISTERS_PER_BLOCK);
    p->regsPerMultiprocessor = ATTRIBUTE(MAX_REGISTERS_PER_MULTIPROCESSOR);
    p->warpSize = ATTRIBUTE(WARP_SIZE);
    p->memPitch = (size_t)ATTRIBUTE(MAX_PITCH);
    p->maxThreadsPerBlock = ATTRIBUTE(MAX_THREADS_PER_BLOCK);
    p->maxThreadsPerMultiProcessor = ATTRIBUTE(MAX_THREADS_PER_MULTIPROCESSOR);
    p->maxBlocksPerMultiProcessor = ATTRIBUTE(MAX_BLOCKS_PER_MULTIPROCESSOR);
    for (int i = 0; i < 3; i++) {
        p->maxThreadsDim[i] = attribute((CUdevice_attribute)(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + i), device);
        p->maxGridSize[i] = attribute((CUdevice_attribute)(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + i), device);
    }
    p->totalConstMem = (size_t)ATTRIBUTE(TOTAL_CONSTANT_MEMORY);
    p->major = ATTRIBUTE(COMPUTE_CAPABILITY_MAJOR);
    p->minor = ATTRIBUTE(COMPUTE_CAPABILITY_MINOR);
    p->multiProcessorCount = ATTRIBUTE(MULTIPROCESSOR_COUNT);
    p->l2CacheSize = ATTRIBUTE(L2_CACHE_SIZE);
    p->memoryBusWidth = ATTRIBUTE(GLOBAL_MEMORY_BUS_WIDTH);
    p->asyncEngineCount = ATTRIBUTE(ASYNC_ENGINE_COUNT);
    p->canMapHostMemory = ATTRIBUTE(CAN_MAP_HOST_MEMORY);
    p->concurrentKernels = ATTRIBUTE(CONCURRENT_KERNELS);
    p->unifiedAddressing = ATTRIBUTE(UNIFIED_ADDRESSING);
    p->managedMemory = ATTRIBUTE(MANAGED_MEMORY);
    p->cooperativeLaunch = ATTRIBUTE(COOPERATIVE_LAUNCH);
    p->clusterLaunch = ATTRIBUTE(CLUSTER_LAUNCH);
    p->textureAlignment = (size_t)ATTRIBUTE(TEXTURE_ALIGNMENT);
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device) {
    CUresult status = runtime_enter();
    if (status == CUDA_SUCCESS && !p) status = CUDA_ERROR_INVALID_VALUE;
    if (status != CUDA_SUCCESS) return runtime_leave(status);
    memset(p, 0, sizeof *p);
    status = cuDeviceGetName(p->name, sizeof p->name, device);
    if (status == CUDA_SUCCESS) status = cuDeviceTotalMem(&p->totalGlobalMem, device);
    if (status == CUDA_SUCCESS) fill_properties(p, device);
    return runtime_leave(status);
}

cudaError_t cudaDriverGetVersion(int *version) {
    return runtime_leave(cuDriverGetVersion(version));
}

cudaError_t cudaRuntimeGetVersion(int *version) {
    if (!version) return runtime_failed(cudaErrorInvalidValue);
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version,
                                             unsigned long long flags, enum cudaDriverEntryPointQueryResult *found) {
    CUdriverProcAddressQueryResult result = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    CUresult status = runtime_enter();
    if (status == CUDA_SUCCESS) status = cuGetProcAddress(name, function, (int)version, flags, &result);
    if (found) *found = (enum cudaDriverEntryPointQueryResult)result;
    return runtime_leave(status);
}

cudaError_t cudaGetDriverEntryPoint(const char *name, void **function, unsigned long long flags,
                                    enum cudaDriverEntryPointQueryResult *found) {
    return cudaGetDriverEntryPointByVersion(name, function, CUDART_VERSION, flags, found);
}

/* ---- streams and events ---- */

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority) {
    RUN(cuStreamCreateWithPriority(stream, flags, priority));
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
    RUN(cuStreamCreate(stream, flags));
}

cudaError_t cudaStreamCreate(cudaStream_t *stream) {
    return cudaStreamCreateWithFlags(stream, 0);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    RUN(cuStreamDestroy(stream));
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    RUN(cuStreamSynchronize(stream));
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
    RUN(cuStreamQuery(stream));
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
    RUN(cuStreamWaitEvent(stream, event, flags));
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *data) {
    RUN(cuLaunchHostFunc(stream, function, data));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
    RUN(cuEventCreate(event, flags));
}

cudaError_t cudaEventCreate(cudaEvent_t *event) {
    return cudaEventCreateWithFlags(event, 0);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    RUN(cuEventRecord(event, stream));
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    RUN(cuEventQuery(event));
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    RUN(cuEventSynchronize(event));
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t end) {
    RUN(cuEventElapsedTime(milliseconds, start, end));
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    RUN(cuEventDestroy(event));
}

/* ---- capture and graphs ---- */

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
    RUN(cuStreamBeginCapture(stream, (CUstreamCaptureMode)mode));
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
    RUN(cuStreamEndCapture(stream, graph));
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *captured) {
    CUstreamCaptureStatus found = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult status = runtime_enter();
    if (status == CUDA_SUCCESS) status = cuStreamIsCapturing(stream, captured ? &found : NULL);
    if (captured) *captured = (enum cudaStreamCaptureStatus)found;
    return runtime_leave(status);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *executable, cudaGraph_t graph, unsigned long long flags) {
    RUN(cuGraphInstantiate(executable, graph, flags));
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
    RUN(cuGraphLaunch(executable, stream));
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
    RUN(cuGraphExecDestroy(executable));
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    RUN(cuGraphDestroy(graph));
}

/* ---- functions ---- */

cudaError_t cudaGetFuncBySymbol(cudaFunction_t *found, const void *kernel) {
    RUN_KERNEL(kernel, found ? (*found = function, CUDA_SUCCESS) : CUDA_ERROR_INVALID_VALUE);
}

cudaError_t cudaFuncSetAttribute(const void *kernel, enum cudaFuncAttribute which, int value) {
    RUN_KERNEL(kernel, cuFuncSetAttribute(function, (CUfunction_attribute)which, value));
}

cudaError_t cudaFuncSetCacheConfig(const void *kernel, enum cudaFuncCache config) {
    RUN_KERNEL(kernel, cuFuncSetCacheConfig(function, (CUfunc_cache)config));
}

static CUresult fill_attributes(struct cudaFuncAttributes *a, CUfunction function) {
    int values[CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT + 1] = {0};
    if (!a) return CUDA_ERROR_INVALID_VALUE;
    for (int i = 0; i <= CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT; i++)
        cuFuncGetAttribute(&values[i], (CUfunction_attribute)i, function);
    *a = (struct cudaFuncAttributes){
        .sharedSizeBytes = (size_t)values[CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES],
        .constSizeBytes = (size_t)values[CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES],
        .localSizeBytes = (size_t)values[CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES],
        .maxThreadsPerBlock = values[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK],
        .numRegs = values[CU_FUNC_ATTRIBUTE_NUM_REGS],
        .ptxVersion = values[CU_FUNC_ATTRIBUTE_PTX_VERSION],
        .binaryVersion = values[CU_FUNC_ATTRIBUTE_BINARY_VERSION],
        .maxDynamicSharedSizeBytes = values[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES],
        .preferredShmemCarveout = values[CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT],
    };
    return CUDA_SUCCESS;
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *kernel) {
    RUN_KERNEL(kernel, fill_attributes(attributes, function));
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *kernel, int threads, size_t shared) {
    RUN_KERNEL(kernel, cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads, shared));
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *kernel, int threads,
                                                                   size_t shared, unsigned flags) {
    RUN_KERNEL(kernel, cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads, shared, flags));
}

cudaError_t cudaOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, const void *kernel, int blocks, int threads) {
    RUN_KERNEL(kernel, cuOccupancyAvailableDynamicSMemPerBlock(bytes, function, blocks, threads));
}
