/* graph_nodes.c - what the nodes of graphs do: asked for, replaced, and added by one function for all kinds. */
#include "graph.h"

#include <stdlib.h>
#include <string.h>

/* ---- replaced ---- */

CUresult replace_operation(CUgraphNode node, operation *o) {
    if (!node || node->what.kind != o->kind) {
        free_operation(o);
        return CUDA_ERROR_INVALID_VALUE;
    }
    free_operation(&node->what);
    node->what = *o;
    return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeSetParams(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *parameters) {
    operation o;
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS) status = fill_kernel_node(&o, parameters);
    return driver_leave(status == CUDA_SUCCESS ? replace_operation(node, &o) : status);
}

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec executable, CUgraphNode node,
                                        const CUDA_KERNEL_NODE_PARAMS *parameters) {
    operation o;
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS) status = fill_kernel_node(&o, parameters);
    return driver_leave(status == CUDA_SUCCESS ? replace_operation(node_of(executable, node), &o) : status);
}

static CUresult replace_copy(CUgraphNode node, const CUDA_MEMCPY3D *copy) {
    operation o = {.kind = DO_COPY};
    if (!copy) return CUDA_ERROR_INVALID_VALUE;
    o.copy = *copy;
    return replace_operation(node, &o);
}

CUresult cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D *copy) {
    CUresult status = driver_enter();
    return driver_leave(status == CUDA_SUCCESS ? replace_copy(node, copy) : status);
}

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec executable, CUgraphNode node, const CUDA_MEMCPY3D *copy,
                                        CUcontext context) {
    (void)context;
    CUresult status = driver_enter();
    return driver_leave(status == CUDA_SUCCESS ? replace_copy(node_of(executable, node), copy) : status);
}

CUresult cuGraphMemsetNodeSetParams(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *parameters) {
    operation o;
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS) status = fill_set_node(&o, parameters);
    return driver_leave(status == CUDA_SUCCESS ? replace_operation(node, &o) : status);
}

CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec executable, CUgraphNode node,
                                        const CUDA_MEMSET_NODE_PARAMS *parameters, CUcontext context) {
    (void)context;
    return cuGraphMemsetNodeSetParams(node_of(executable, node), parameters);
}

CUresult cuGraphExecHostNodeSetParams(CUgraphExec executable, CUgraphNode node,
                                      const CUDA_HOST_NODE_PARAMS *parameters) {
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS && !(parameters && parameters->fn)) status = CUDA_ERROR_INVALID_VALUE;
    if (status != CUDA_SUCCESS) return driver_leave(status);
    operation o = {.kind = DO_HOST, .host = *parameters};
    return driver_leave(replace_operation(node_of(executable, node), &o));
}

CUresult cuGraphHostNodeSetParams(CUgraphNode node, const CUDA_HOST_NODE_PARAMS *parameters) {
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS && !(parameters && parameters->fn)) status = CUDA_ERROR_INVALID_VALUE;
    if (status != CUDA_SUCCESS) return driver_leave(status);
    operation o = {.kind = DO_HOST, .host = *parameters};
    return driver_leave(replace_operation(node, &o));
}

static CUresult replace_event(CUgraphNode node, operation_kind kind, CUevent event) {
    operation o = {.kind = kind, .event = event};
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS && !event) status = CUDA_ERROR_INVALID_HANDLE;
    return driver_leave(status == CUDA_SUCCESS ? replace_operation(node, &o) : status);
}

CUresult cuGraphEventRecordNodeSetEvent(CUgraphNode node, CUevent event) {
    return replace_event(node, DO_RECORD, event);
}

CUresult cuGraphEventWaitNodeSetEvent(CUgraphNode node, CUevent event) {
    return replace_event(node, DO_WAIT, event);
}

CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec executable, CUgraphNode node, CUevent event) {
    return replace_event(node_of(executable, node), DO_RECORD, event);
}

CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec executable, CUgraphNode node, CUevent event) {
    return replace_event(node_of(executable, node), DO_WAIT, event);
}

CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec executable, CUgraphNode node, CUgraph child) {
    operation o = {.kind = DO_GRAPH};
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS && !child) status = CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS) status = copy_graph(child, &o.graph);
    return driver_leave(status == CUDA_SUCCESS ? replace_operation(node_of(executable, node), &o) : status);
}

/* ---- asked for ---- */

/* A call about a node of a kind, with what it is to write. */
static CUresult enter_node(CUgraphNode node, operation_kind kind, const void *answer) {
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS && !(node && answer && node->what.kind == kind)) status = CUDA_ERROR_INVALID_VALUE;
    return status;
}

/* The pointers to the parameters in the block of a kernel; they live as long as the node keeps it. */
static CUresult point_to_parameters(kernel_launch *k) {
    const emu_entry_info *info = emu_entry(k->function->module->module, k->function->entry);
    if (!k->pointers) k->pointers = calloc((size_t)info->params + 1, sizeof *k->pointers);
    if (!k->pointers) return CUDA_ERROR_OUT_OF_MEMORY;
    for (int i = 0; i < info->params; i++) k->pointers[i] = k->parameters + info->param_offsets[i];
    return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeGetParams(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *parameters) {
    CUresult status = enter_node(node, DO_KERNEL, parameters);
    if (status == CUDA_SUCCESS) status = point_to_parameters(&node->what.kernel);
    if (status != CUDA_SUCCESS) return driver_leave(status);
    const kernel_launch *k = &node->what.kernel;
    *parameters = (CUDA_KERNEL_NODE_PARAMS){.func = k->function,
                                            .gridDimX = k->grid[0],
                                            .gridDimY = k->grid[1],
                                            .gridDimZ = k->grid[2],
                                            .blockDimX = k->block[0],
                                            .blockDimY = k->block[1],
                                            .blockDimZ = k->block[2],
                                            .sharedMemBytes = k->dynamic_shared,
                                            .kernelParams = k->pointers};
    return driver_leave(status);
}

CUresult cuGraphMemcpyNodeGetParams(CUgraphNode node, CUDA_MEMCPY3D *copy) {
    CUresult status = enter_node(node, DO_COPY, copy);
    if (status == CUDA_SUCCESS) *copy = node->what.copy;
    return driver_leave(status);
}

CUresult cuGraphMemsetNodeGetParams(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS *parameters) {
    CUresult status = enter_node(node, DO_SET, parameters);
    if (status != CUDA_SUCCESS) return driver_leave(status);
    const memory_set *s = &node->what.set;
    *parameters = (CUDA_MEMSET_NODE_PARAMS){.dst = s->address,
                                            .pitch = s->pitch,
                                            .value = s->value,
                                            .elementSize = s->element,
                                            .width = s->width,
                                            .height = s->height};
    return driver_leave(status);
}

CUresult cuGraphHostNodeGetParams(CUgraphNode node, CUDA_HOST_NODE_PARAMS *parameters) {
    CUresult status = enter_node(node, DO_HOST, parameters);
    if (status == CUDA_SUCCESS) *parameters = node->what.host;
    return driver_leave(status);
}

CUresult cuGraphEventRecordNodeGetEvent(CUgraphNode node, CUevent *event) {
    CUresult status = enter_node(node, DO_RECORD, event);
    if (status == CUDA_SUCCESS) *event = node->what.event;
    return driver_leave(status);
}

CUresult cuGraphEventWaitNodeGetEvent(CUgraphNode node, CUevent *event) {
    CUresult status = enter_node(node, DO_WAIT, event);
    if (status == CUDA_SUCCESS) *event = node->what.event;
    return driver_leave(status);
}

CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph *graph) {
    CUresult status = enter_node(node, DO_GRAPH, graph);
    if (status == CUDA_SUCCESS) *graph = node->what.graph;
    return driver_leave(status);
}

/* ---- attributes of kernels ---- */

CUresult cuGraphKernelNodeSetAttribute(CUgraphNode node, CUlaunchAttributeID which,
                                       const CUlaunchAttributeValue *value) {
    CUresult status = enter_node(node, DO_KERNEL, value);
    if (status != CUDA_SUCCESS) return driver_leave(status);
    return driver_leave(apply_attribute(&node->what, &(CUlaunchAttribute){.id = which, .value = *value}));
}

/* All but the cluster change no result, and are as if they were never set. */
CUresult cuGraphKernelNodeGetAttribute(CUgraphNode node, CUlaunchAttributeID which, CUlaunchAttributeValue *value) {
    CUresult status = enter_node(node, DO_KERNEL, value);
    if (status != CUDA_SUCCESS) return driver_leave(status);
    memset(value, 0, sizeof *value);
    if (which == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) {
        value->clusterDim.x = node->what.kernel.cluster[0];
        value->clusterDim.y = node->what.kernel.cluster[1];
        value->clusterDim.z = node->what.kernel.cluster[2];
    }
    return driver_leave(status);
}

CUresult cuGraphKernelNodeCopyAttributes(CUgraphNode to, CUgraphNode from) {
    CUresult status = enter_node(to, DO_KERNEL, from);
    if (status == CUDA_SUCCESS && from->what.kind != DO_KERNEL) status = CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS)
        memcpy(to->what.kernel.cluster, from->what.kernel.cluster, sizeof to->what.kernel.cluster);
    return driver_leave(status);
}

/* ---- all kinds ---- */

static CUresult fill_node(operation *o, const CUgraphNodeParams *p) {
    *o = (operation){.kind = DO_NOTHING};
    if (!p) return CUDA_ERROR_INVALID_VALUE;
    switch ((int)p->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return fill_kernel_node(o, &(CUDA_KERNEL_NODE_PARAMS){.func = p->kernel.func,
                                                              .gridDimX = p->kernel.gridDimX,
                                                              .gridDimY = p->kernel.gridDimY,
                                                              .gridDimZ = p->kernel.gridDimZ,
                                                              .blockDimX = p->kernel.blockDimX,
                                                              .blockDimY = p->kernel.blockDimY,
                                                              .blockDimZ = p->kernel.blockDimZ,
                                                              .sharedMemBytes = p->kernel.sharedMemBytes,
                                                              .kernelParams = p->kernel.kernelParams,
                                                              .extra = p->kernel.extra,
                                                              .kern = p->kernel.kern});
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        *o = (operation){.kind = DO_COPY, .copy = p->memcpy.copyParams};
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return fill_set(o, p->memset.dst, p->memset.pitch, p->memset.value, p->memset.elementSize, p->memset.width,
                        p->memset.height);
    case CU_GRAPH_NODE_TYPE_HOST:
        *o = (operation){.kind = DO_HOST, .host = {.fn = p->host.fn, .userData = p->host.userData}};
        return p->host.fn ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_GRAPH_NODE_TYPE_GRAPH:
        o->kind = DO_GRAPH;
        return p->graph.graph ? copy_graph(p->graph.graph, &o->graph) : CUDA_ERROR_INVALID_VALUE;
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        *o = (operation){.kind = DO_RECORD, .event = p->eventRecord.event};
        return p->eventRecord.event ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        *o = (operation){.kind = DO_WAIT, .event = p->eventWait.event};
        return p->eventWait.event ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
    case CU_GRAPH_NODE_TYPE_EMPTY:
        return CUDA_SUCCESS;
    default:
        driver_say("a node of type %d is not supported in a graph", (int)p->type);
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

CUresult cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *needs, const CUgraphEdgeData *edges,
                        size_t count, CUgraphNodeParams *parameters) {
    (void)edges;
    operation o;
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS) status = fill_node(&o, parameters);
    return driver_leave(status == CUDA_SUCCESS ? add_checked(node, graph, needs, count, &o) : status);
}

CUresult cuGraphNodeSetParams(CUgraphNode node, CUgraphNodeParams *parameters) {
    operation o;
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS) status = fill_node(&o, parameters);
    return driver_leave(status == CUDA_SUCCESS ? replace_operation(node, &o) : status);
}

CUresult cuGraphExecNodeSetParams(CUgraphExec executable, CUgraphNode node, CUgraphNodeParams *parameters) {
    return cuGraphNodeSetParams(node_of(executable, node), parameters);
}
