/* forwarded.c - streams, pools and graphs: functions whose arguments are those of one function of the driver.
 *
 * Structs and enumerations of the runtime have the layout and the numbers of the driver's.
 */
#include "cudart.h"

#include <stdint.h>

static_assert(sizeof(cudaGraphEdgeData) == sizeof(CUgraphEdgeData), "edges of graphs");
static_assert(sizeof(struct cudaMemPoolProps) == sizeof(CUmemPoolProps), "properties of pools");
static_assert(sizeof(struct cudaMemAccessDesc) == sizeof(CUmemAccessDesc), "accesses to pools");
static_assert(sizeof(struct cudaHostNodeParams) == sizeof(CUDA_HOST_NODE_PARAMS), "callbacks of graphs");
static_assert(sizeof(cudaGraphInstantiateParams) == sizeof(CUDA_GRAPH_INSTANTIATE_PARAMS), "parameters of graphs");
static_assert(sizeof(cudaGraphExecUpdateResultInfo) == sizeof(CUgraphExecUpdateResultInfo), "results of updates");

static CUdeviceptr address_of(const void *pointer) {
    return (CUdeviceptr)(uintptr_t)pointer;
}

static CUmemLocation driver_location(struct cudaMemLocation location) {
    return (CUmemLocation){.type = (CUmemLocationType)location.type, .id = location.id};
}

/* ---- the device ---- */

cudaError_t cudaDeviceGetPCIBusId(char *id, int bytes, int device) {
    RUN(cuDeviceGetPCIBusId(id, bytes, device));
}

cudaError_t cudaDeviceGetByPCIBusId(int *device, const char *id) {
    RUN(cuDeviceGetByPCIBusId(device, id));
}

cudaError_t cudaDeviceGetP2PAttribute(int *value, enum cudaDeviceP2PAttr which, int device, int peer) {
    RUN(cuDeviceGetP2PAttribute(value, (CUdevice_P2PAttribute)which, device, peer));
}

cudaError_t cudaDeviceGetCacheConfig(enum cudaFuncCache *config) {
    RUN(cuCtxGetCacheConfig((void *)config));
}

cudaError_t cudaCtxResetPersistingL2Cache(void) {
    RUN(cuCtxResetPersistingL2Cache());
}

cudaError_t cudaLogsRegisterCallback(cudaLogsCallback_t callback, void *data, cudaLogsCallbackHandle *handle) {
    RUN(cuLogsRegisterCallback((CUlogsCallback)callback, data, handle));
}

cudaError_t cudaLogsUnregisterCallback(cudaLogsCallbackHandle handle) {
    RUN(cuLogsUnregisterCallback(handle));
}

/* ---- streams and events ---- */

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *priority) {
    RUN(cuStreamGetPriority(stream, priority));
}

cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned *flags) {
    RUN(cuStreamGetFlags(stream, flags));
}

cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long *id) {
    RUN(cuStreamGetId(stream, id));
}

cudaError_t cudaStreamGetDevice(cudaStream_t stream, int *device) {
    RUN(cuStreamGetDevice(stream, device));
}

cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback, void *data, unsigned flags) {
    RUN(cuStreamAddCallback(stream, (CUstreamCallback)callback, data, flags));
}

cudaError_t cudaStreamAttachMemAsync(cudaStream_t stream, void *at, size_t bytes, unsigned flags) {
    RUN(cuStreamAttachMemAsync(stream, address_of(at), bytes, flags));
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
    RUN(cuEventRecordWithFlags(event, stream, flags));
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode) {
    RUN(cuThreadExchangeStreamCaptureMode((void *)mode));
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus *captured,
                                     unsigned long long *id, cudaGraph_t *graph, const cudaGraphNode_t **nodes,
                                     const cudaGraphEdgeData **edges, size_t *count) {
    RUN(cuStreamGetCaptureInfo(stream, (void *)captured, (cuuint64_t *)id, graph, nodes, (void *)edges, count));
}

cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t stream, cudaGraphNode_t *nodes,
                                                const cudaGraphEdgeData *edges, size_t count, unsigned flags) {
    RUN(cuStreamUpdateCaptureDependencies(stream, nodes, (const void *)edges, count, flags));
}

/* ---- memory and its pools ---- */

cudaError_t cudaHostGetFlags(unsigned *flags, void *at) {
    RUN(cuMemHostGetFlags(flags, at));
}

cudaError_t cudaMemAdvise(const void *at, size_t bytes, enum cudaMemoryAdvise advice, struct cudaMemLocation location) {
    RUN(cuMemAdvise(address_of(at), bytes, (CUmem_advise)advice, driver_location(location)));
}

cudaError_t cudaMemPrefetchAsync(const void *at, size_t bytes, struct cudaMemLocation location, unsigned flags,
                                 cudaStream_t stream) {
    RUN(cuMemPrefetchAsync(address_of(at), bytes, driver_location(location), flags, stream));
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device) {
    RUN(cuDeviceGetDefaultMemPool(pool, device));
}

cudaError_t cudaDeviceGetMemPool(cudaMemPool_t *pool, int device) {
    RUN(cuDeviceGetMemPool(pool, device));
}

cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t pool) {
    RUN(cuDeviceSetMemPool(device, pool));
}

cudaError_t cudaMemPoolCreate(cudaMemPool_t *pool, const struct cudaMemPoolProps *properties) {
    RUN(cuMemPoolCreate(pool, (const void *)properties));
}

cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
    RUN(cuMemPoolDestroy(pool));
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr which, void *value) {
    RUN(cuMemPoolGetAttribute(pool, (CUmemPool_attribute)which, value));
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr which, void *value) {
    RUN(cuMemPoolSetAttribute(pool, (CUmemPool_attribute)which, value));
}

cudaError_t cudaMemPoolGetAccess(enum cudaMemAccessFlags *flags, cudaMemPool_t pool, struct cudaMemLocation *location) {
    RUN(cuMemPoolGetAccess((void *)flags, pool, (void *)location));
}

cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const struct cudaMemAccessDesc *accesses, size_t count) {
    RUN(cuMemPoolSetAccess(pool, (const void *)accesses, count));
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t bytes) {
    RUN(cuMemPoolTrimTo(pool, bytes));
}

cudaError_t cudaMallocFromPoolAsync(void **at, size_t bytes, cudaMemPool_t pool, cudaStream_t stream) {
    RUN(cuMemAllocFromPoolAsync((CUdeviceptr *)(void *)at, bytes, pool, stream));
}

/* No bytes are NULL, which may be freed, as for cudaMalloc(). */
cudaError_t cudaMallocAsync(void **at, size_t bytes, cudaStream_t stream) {
    if (at) *at = NULL;
    RUN(at && !bytes ? CUDA_SUCCESS : cuMemAllocAsync((CUdeviceptr *)(void *)at, bytes, stream));
}

cudaError_t cudaFreeAsync(void *at, cudaStream_t stream) {
    RUN(at ? cuMemFreeAsync(address_of(at), stream) : CUDA_SUCCESS);
}

/* ---- graphs ---- */

cudaError_t cudaGraphCreate(cudaGraph_t *graph, unsigned flags) {
    RUN(cuGraphCreate(graph, flags));
}

cudaError_t cudaGraphClone(cudaGraph_t *clone, cudaGraph_t graph) {
    RUN(cuGraphClone(clone, graph));
}

cudaError_t cudaGraphAddEmptyNode(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *after,
                                  size_t count) {
    RUN(cuGraphAddEmptyNode(node, graph, after, count));
}

cudaError_t cudaGraphAddHostNode(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *after, size_t count,
                                 const struct cudaHostNodeParams *parameters) {
    RUN(cuGraphAddHostNode(node, graph, after, count, (const void *)parameters));
}

cudaError_t cudaGraphAddChildGraphNode(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *after,
                                       size_t count, cudaGraph_t child) {
    RUN(cuGraphAddChildGraphNode(node, graph, after, count, child));
}

cudaError_t cudaGraphAddEventRecordNode(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *after,
                                        size_t count, cudaEvent_t event) {
    RUN(cuGraphAddEventRecordNode(node, graph, after, count, event));
}

cudaError_t cudaGraphAddEventWaitNode(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *after,
                                      size_t count, cudaEvent_t event) {
    RUN(cuGraphAddEventWaitNode(node, graph, after, count, event));
}

cudaError_t cudaGraphHostNodeGetParams(cudaGraphNode_t node, struct cudaHostNodeParams *parameters) {
    RUN(cuGraphHostNodeGetParams(node, (void *)parameters));
}

cudaError_t cudaGraphHostNodeSetParams(cudaGraphNode_t node, const struct cudaHostNodeParams *parameters) {
    RUN(cuGraphHostNodeSetParams(node, (const void *)parameters));
}

cudaError_t cudaGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t *from, const cudaGraphNode_t *to,
                                     const cudaGraphEdgeData *edges, size_t count) {
    RUN(cuGraphAddDependencies(graph, from, to, (const void *)edges, count));
}

cudaError_t cudaGraphRemoveDependencies(cudaGraph_t graph, const cudaGraphNode_t *from, const cudaGraphNode_t *to,
                                        const cudaGraphEdgeData *edges, size_t count) {
    RUN(cuGraphRemoveDependencies(graph, from, to, (const void *)edges, count));
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count) {
    RUN(cuGraphGetNodes(graph, nodes, count));
}

cudaError_t cudaGraphGetRootNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count) {
    RUN(cuGraphGetRootNodes(graph, nodes, count));
}

cudaError_t cudaGraphGetEdges(cudaGraph_t graph, cudaGraphNode_t *from, cudaGraphNode_t *to, cudaGraphEdgeData *edges,
                              size_t *count) {
    RUN(cuGraphGetEdges(graph, from, to, (void *)edges, count));
}

cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t *nodes, cudaGraphEdgeData *edges,
                                         size_t *count) {
    RUN(cuGraphNodeGetDependencies(node, nodes, (void *)edges, count));
}

cudaError_t cudaGraphNodeGetDependentNodes(cudaGraphNode_t node, cudaGraphNode_t *nodes, cudaGraphEdgeData *edges,
                                           size_t *count) {
    RUN(cuGraphNodeGetDependentNodes(node, nodes, (void *)edges, count));
}

cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, enum cudaGraphNodeType *type) {
    RUN(cuGraphNodeGetType(node, (void *)type));
}

cudaError_t cudaGraphDestroyNode(cudaGraphNode_t node) {
    RUN(cuGraphDestroyNode(node));
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *executable, cudaGraph_t graph, unsigned long long flags) {
    return cudaGraphInstantiate(executable, graph, flags);
}

cudaError_t cudaGraphInstantiateWithParams(cudaGraphExec_t *executable, cudaGraph_t graph,
                                           cudaGraphInstantiateParams *parameters) {
    RUN(cuGraphInstantiateWithParams(executable, graph, (void *)parameters));
}

cudaError_t cudaGraphUpload(cudaGraphExec_t executable, cudaStream_t stream) {
    RUN(cuGraphUpload(executable, stream));
}

cudaError_t cudaGraphExecUpdate(cudaGraphExec_t executable, cudaGraph_t graph, cudaGraphExecUpdateResultInfo *result) {
    RUN(cuGraphExecUpdate(executable, graph, (void *)result));
}

cudaError_t cudaGraphExecGetFlags(cudaGraphExec_t executable, unsigned long long *flags) {
    RUN(cuGraphExecGetFlags(executable, (cuuint64_t *)flags));
}

cudaError_t cudaGraphNodeSetEnabled(cudaGraphExec_t executable, cudaGraphNode_t node, unsigned enabled) {
    RUN(cuGraphNodeSetEnabled(executable, node, enabled));
}

cudaError_t cudaGraphNodeGetEnabled(cudaGraphExec_t executable, cudaGraphNode_t node, unsigned *enabled) {
    RUN(cuGraphNodeGetEnabled(executable, node, enabled));
}
