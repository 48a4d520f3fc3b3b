/* legacy_entry_points.c - functions of earlier releases that take other arguments than their successors, or have none.
 *
 * Programs still load them by their old names. cuda.h declares only the successors, and renames them by macros. */
#define CUDA_ENABLE_DEPRECATED /* some of these functions */
#include "driver.h"

#include <string.h>

#undef cuGraphAddDependencies
#undef cuGraphAddKernelNode
#undef cuGraphExecKernelNodeSetParams
#undef cuGraphKernelNodeSetParams
#undef cuGraphNodeGetDependencies
#undef cuGraphAddNode
#undef cuGraphExecUpdate
#undef cuGraphGetEdges
#undef cuGraphKernelNodeGetParams
#undef cuGraphNodeGetDependentNodes
#undef cuGraphRemoveDependencies
#undef cuStreamBeginCapture
#undef cuMemAdvise
#undef cuMemPrefetchAsync
#undef cuStreamGetCaptureInfo
#undef cuStreamUpdateCaptureDependencies

#pragma GCC visibility push(default)
CUresult cuGraphAddDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count);
CUresult cuGraphAddKernelNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *needs, size_t count,
                              const CUDA_KERNEL_NODE_PARAMS_v1 *parameters);
CUresult cuGraphExecKernelNodeSetParams(CUgraphExec executable, CUgraphNode node,
                                        const CUDA_KERNEL_NODE_PARAMS_v1 *parameters);
CUresult cuGraphKernelNodeSetParams(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *parameters);
CUresult cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode *needs, size_t *count);
CUresult cuStreamBeginCapture(CUstream stream);
CUresult cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus *capture, cuuint64_t *id);
CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus *capture, cuuint64_t *id, CUgraph *graph,
                                   const CUgraphNode **last, size_t *count);
CUresult cuMemAdvise(CUdeviceptr address, size_t bytes, CUmem_advise advice, CUdevice device);
CUresult cuMemPrefetchAsync(CUdeviceptr address, size_t bytes, CUdevice device, CUstream stream);
CUresult cuStreamUpdateCaptureDependencies(CUstream stream, CUgraphNode *nodes, size_t count, unsigned flags);
CUresult cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *needs, size_t count,
                        CUgraphNodeParams *parameters);
CUresult cuGraphExecUpdate(CUgraphExec executable, CUgraph graph, CUgraphNode *error, CUgraphExecUpdateResult *result);
CUresult cuGraphGetEdges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *count);
CUresult cuGraphKernelNodeGetParams(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1 *parameters);
CUresult cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode *dependents, size_t *count);
CUresult cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count);
#pragma GCC visibility pop

CUresult cuGraphAddDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count) {
    return cuGraphAddDependencies_v2(graph, from, to, NULL, count);
}

CUresult cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode *needs, size_t *count) {
    return cuGraphNodeGetDependencies_v2(node, needs, NULL, count);
}

CUresult cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *needs, size_t count,
                        CUgraphNodeParams *parameters) {
    return cuGraphAddNode_v2(node, graph, needs, NULL, count, parameters);
}

CUresult cuGraphExecUpdate(CUgraphExec executable, CUgraph graph, CUgraphNode *error, CUgraphExecUpdateResult *result) {
    CUgraphExecUpdateResultInfo info = {0};
    CUresult status = result ? cuGraphExecUpdate_v2(executable, graph, &info) : CUDA_ERROR_INVALID_VALUE;
    if (error) *error = info.errorNode;
    if (result) *result = info.result;
    return status;
}

CUresult cuGraphGetEdges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *count) {
    return cuGraphGetEdges_v2(graph, from, to, NULL, count);
}

CUresult cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode *dependents, size_t *count) {
    return cuGraphNodeGetDependentNodes_v2(node, dependents, NULL, count);
}

CUresult cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count) {
    return cuGraphRemoveDependencies_v2(graph, from, to, NULL, count);
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

CUresult cuStreamUpdateCaptureDependencies(CUstream stream, CUgraphNode *nodes, size_t count, unsigned flags) {
    return cuStreamUpdateCaptureDependencies_v2(stream, nodes, NULL, count, flags);
}

/* Location from a device number, or -1 for the host. */
static CUmemLocation location_of(CUdevice device) {
    return (CUmemLocation){.type = device == CU_DEVICE_CPU ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE,
                           .id = device == CU_DEVICE_CPU ? 0 : device};
}

CUresult cuMemAdvise(CUdeviceptr address, size_t bytes, CUmem_advise advice, CUdevice device) {
    return cuMemAdvise_v2(address, bytes, advice, location_of(device));
}

CUresult cuMemPrefetchAsync(CUdeviceptr address, size_t bytes, CUdevice device, CUstream stream) {
    return cuMemPrefetchAsync_v2(address, bytes, location_of(device), 0, stream);
}

/* Parameters with the later members. */
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

CUresult cuGraphKernelNodeGetParams(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1 *parameters) {
    CUDA_KERNEL_NODE_PARAMS later;
    CUresult status = parameters ? cuGraphKernelNodeGetParams_v2(node, &later) : CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS) memcpy(parameters, &later, sizeof *parameters); /* which the later one begins with */
    return status;
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

/* ---- contexts with a count of uses: here a context lives until cuCtxDestroy() ---- */

CUresult cuCtxAttach(CUcontext *context, unsigned flags) {
    CUresult status = flags ? CUDA_ERROR_INVALID_VALUE : cuCtxGetCurrent(context);
    return status == CUDA_SUCCESS && !*context ? CUDA_ERROR_INVALID_CONTEXT : status;
}

CUresult cuCtxDetach(CUcontext context) {
    CUcontext current;
    CUresult status = cuCtxGetCurrent(&current);
    return status == CUDA_SUCCESS && context != current ? CUDA_ERROR_INVALID_CONTEXT : status;
}

/* ---- the width of shared memory banks, which compute capability 3 could choose ---- */

CUresult cuCtxGetSharedMemConfig(CUsharedconfig *config) {
    if (!config) return CUDA_ERROR_INVALID_VALUE;
    *config = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;
    return cuCtxSynchronize();
}

CUresult cuCtxSetSharedMemConfig(CUsharedconfig config) {
    return (unsigned)config > CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE ? CUDA_ERROR_INVALID_VALUE : cuCtxSynchronize();
}

CUresult cuFuncSetSharedMemConfig(CUfunction function, CUsharedconfig config) {
    return function ? cuCtxSetSharedMemConfig(config) : CUDA_ERROR_INVALID_HANDLE;
}
