/* earlier.c - functions of earlier releases that programs still call by their old names: cuda.h declares their
 * successors alone, and gives those the old names by macros. */
#include "driver.h"

#undef cuCtxPopCurrent
#undef cuCtxPushCurrent
#undef cuDeviceGetUuid
#undef cuDevicePrimaryCtxRelease
#undef cuDevicePrimaryCtxReset
#undef cuDevicePrimaryCtxSetFlags
#undef cuEventElapsedTime
#undef cuGraphAddDependencies
#undef cuGraphAddKernelNode
#undef cuGraphExecKernelNodeSetParams
#undef cuGraphInstantiate
#undef cuGraphKernelNodeSetParams
#undef cuGraphNodeGetDependencies
#undef cuStreamBeginCapture
#undef cuStreamGetCaptureInfo

#pragma GCC visibility push(default)
CUresult cuCtxPopCurrent(CUcontext *context);
CUresult cuCtxPushCurrent(CUcontext context);
CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device);
CUresult cuDevicePrimaryCtxRelease(CUdevice device);
CUresult cuDevicePrimaryCtxReset(CUdevice device);
CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned flags);
CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end);
CUresult cuGraphAddDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count);
CUresult cuGraphAddKernelNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *needs, size_t count,
                              const CUDA_KERNEL_NODE_PARAMS_v1 *parameters);
CUresult cuGraphExecKernelNodeSetParams(CUgraphExec executable, CUgraphNode node,
                                        const CUDA_KERNEL_NODE_PARAMS_v1 *parameters);
CUresult cuGraphInstantiate(CUgraphExec *executable, CUgraph graph, CUgraphNode *error, char *log, size_t bytes);
CUresult cuGraphKernelNodeSetParams(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *parameters);
CUresult cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode *needs, size_t *count);
CUresult cuStreamBeginCapture(CUstream stream);
CUresult cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus *capture, cuuint64_t *id);
CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus *capture, cuuint64_t *id, CUgraph *graph,
                                   const CUgraphNode **last, size_t *count);
#pragma GCC visibility pop

CUresult cuCtxPopCurrent(CUcontext *context) {
    return cuCtxPopCurrent_v2(context);
}

CUresult cuCtxPushCurrent(CUcontext context) {
    return cuCtxPushCurrent_v2(context);
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device) {
    return cuDeviceGetUuid_v2(uuid, device);
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
    return cuDevicePrimaryCtxRelease_v2(device);
}

CUresult cuDevicePrimaryCtxReset(CUdevice device) {
    return cuDevicePrimaryCtxReset_v2(device);
}

CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned flags) {
    return cuDevicePrimaryCtxSetFlags_v2(device, flags);
}

CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end) {
    return cuEventElapsedTime_v2(milliseconds, start, end);
}

CUresult cuGraphAddDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count) {
    return cuGraphAddDependencies_v2(graph, from, to, NULL, count);
}

CUresult cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode *needs, size_t *count) {
    return cuGraphNodeGetDependencies_v2(node, needs, NULL, count);
}

CUresult cuGraphInstantiate(CUgraphExec *executable, CUgraph graph, CUgraphNode *error, char *log, size_t bytes) {
    return cuGraphInstantiate_v2(executable, graph, error, log, bytes);
}

CUresult cuStreamBeginCapture(CUstream stream) {
    return cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus *capture, cuuint64_t *id, CUgraph *graph,
                                   const CUgraphNode **last, size_t *count) {
    return cuStreamGetCaptureInfo_v3(stream, capture, id, graph, last, NULL, count);
}

CUresult cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus *capture, cuuint64_t *id) {
    return cuStreamGetCaptureInfo_v3(stream, capture, id, NULL, NULL, NULL, NULL);
}

/* The same with the later members. */
static CUDA_KERNEL_NODE_PARAMS now(const CUDA_KERNEL_NODE_PARAMS_v1 *p) {
    return (CUDA_KERNEL_NODE_PARAMS){.func = p->func,
                                     .gridDimX = p->gridDimX,
                                     .gridDimY = p->gridDimY,
                                     .gridDimZ = p->gridDimZ,
                                     .blockDimX = p->blockDimX,
                                     .blockDimY = p->blockDimY,
                                     .blockDimZ = p->blockDimZ,
                                     .sharedMemBytes = p->sharedMemBytes,
                                     .kernelParams = p->kernelParams,
                                     .extra = p->extra};
}

CUresult cuGraphAddKernelNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *needs, size_t count,
                              const CUDA_KERNEL_NODE_PARAMS_v1 *parameters) {
    if (!parameters) return CUDA_ERROR_INVALID_VALUE;
    const CUDA_KERNEL_NODE_PARAMS later = now(parameters);
    return cuGraphAddKernelNode_v2(node, graph, needs, count, &later);
}

CUresult cuGraphKernelNodeSetParams(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *parameters) {
    if (!parameters) return CUDA_ERROR_INVALID_VALUE;
    const CUDA_KERNEL_NODE_PARAMS later = now(parameters);
    return cuGraphKernelNodeSetParams_v2(node, &later);
}

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec executable, CUgraphNode node,
                                        const CUDA_KERNEL_NODE_PARAMS_v1 *parameters) {
    if (!parameters) return CUDA_ERROR_INVALID_VALUE;
    const CUDA_KERNEL_NODE_PARAMS later = now(parameters);
    return cuGraphExecKernelNodeSetParams_v2(executable, node, &later);
}
