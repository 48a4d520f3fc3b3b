/* graph.c - graphs: nodes in the order in which they were added, which depend on others; a launch runs them at once. */
#include "graph.h"

#include <stdlib.h>
#include <string.h>

/* ---- graphs ---- */

CUresult new_graph(CUgraph *graph) {
    *graph = calloc(1, sizeof **graph);
    return *graph ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static void delete_node(CUgraphNode node) {
    free_operation(&node->what);
    free(node->needs.nodes);
    free(node);
}

void delete_graph(CUgraph graph) {
    if (!graph) return;
    for (size_t i = 0; i < graph->nodes.count; i++) delete_node(graph->nodes.nodes[i]);
    free(graph->nodes.nodes);
    free(graph);
}

CUresult add_node(CUgraph graph, const CUgraphNode *needs, size_t count, operation *o, CUgraphNode *node) {
    CUgraphNode made = calloc(1, sizeof *made);
    bool complete = made != NULL;
    for (size_t i = 0; complete && i < count; i++) complete = list_add(&made->needs, needs[i]);
    if (!complete || !list_add(&graph->nodes, made)) {
        if (made) free(made->needs.nodes);
        free(made);
        free_operation(o);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    made->what = *o;
    made->graph = graph;
    made->enabled = true;
    *node = made;
    return CUDA_SUCCESS;
}

bool comes_before(CUgraphNode node, const node_list *last) {
    for (size_t i = 0; i < last->count; i++)
        if (last->nodes[i] == node || comes_before(node, &last->nodes[i]->needs)) return true;
    return false;
}

static CUgraphNode copy_of(CUgraph copy, CUgraphNode origin) {
    for (size_t i = 0; i < copy->nodes.count; i++)
        if (copy->nodes.nodes[i]->origin == origin) return copy->nodes.nodes[i];
    return NULL;
}

CUresult copy_graph(CUgraph from, CUgraph *to) {
    CUresult status = new_graph(to);
    for (size_t i = 0; status == CUDA_SUCCESS && i < from->nodes.count; i++) {
        operation o;
        CUgraphNode made;
        status = copy_operation(&from->nodes.nodes[i]->what, &o);
        if (status == CUDA_SUCCESS) status = add_node(*to, NULL, 0, &o, &made);
        if (status == CUDA_SUCCESS) made->origin = from->nodes.nodes[i];
    }
    for (size_t i = 0; status == CUDA_SUCCESS && i < from->nodes.count; i++) {
        const node_list *needs = &from->nodes.nodes[i]->needs;
        for (size_t k = 0; k < needs->count; k++)
            if (!list_add(&(*to)->nodes.nodes[i]->needs, copy_of(*to, needs->nodes[k])))
                status = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (status != CUDA_SUCCESS) {
        delete_graph(*to);
        *to = NULL;
    }
    return status;
}

static bool is_ready(const struct CUgraphNode_st *node) {
    for (size_t i = 0; i < node->needs.count; i++)
        if (!node->needs.nodes[i]->done) return false;
    return true;
}

/* The lane of a node: that of one that it needs and that nothing has continued, the graph's own for a first node, or a
 * new branch. */
static unsigned lane_of(struct CUgraphNode_st *node, unsigned own, bool *begun) {
    for (size_t i = 0; i < node->needs.count; i++) {
        CUgraphNode need = node->needs.nodes[i];
        if (need->continued) continue;
        need->continued = true;
        return need->lane;
    }
    if (*begun || node->needs.count) return overlap_branch();
    *begun = true;
    return own;
}

/* Run a node after those that it needs, and after what was before the graph. */
static CUresult run_node(CUgraphNode node, const order_clock *before, unsigned own, bool *begun) {
    node->continued = false;
    node->lane = lane_of(node, own, begun);
    overlap_continue(node->lane);
    overlap_join(before);
    for (size_t i = 0; i < node->needs.count; i++) overlap_join(&node->needs.nodes[i]->clock);
    const CUresult status = node->enabled ? run_operation(&node->what) : CUDA_SUCCESS;
    overlap_snapshot(&node->clock);
    return status;
}

/* The stream continues after all nodes. */
static void join_nodes(CUgraph graph, unsigned own) {
    overlap_continue(own);
    for (size_t i = 0; i < graph->nodes.count; i++) {
        CUgraphNode node = graph->nodes.nodes[i];
        if (!node->done) continue;
        overlap_join(&node->clock);
        free_clock(&node->clock);
        if (node->lane != own) overlap_branch_ends(node->lane);
    }
}

/* Each node after those that it needs; `runs` or only looks. CUDA_ERROR_INVALID_VALUE where they go in circles. */
static CUresult pass(CUgraph graph, bool runs) {
    size_t left = graph->nodes.count;
    CUresult status = CUDA_SUCCESS;
    const unsigned own = overlap_current();
    order_clock before = {0};
    bool begun = false;
    if (runs && left > 1) overlap_streams_exist();
    overlap_snapshot(&before);
    for (size_t i = 0; i < graph->nodes.count; i++) graph->nodes.nodes[i]->done = false;
    for (bool moved = true; left && moved && status == CUDA_SUCCESS;) {
        moved = false;
        for (size_t i = 0; i < graph->nodes.count && status == CUDA_SUCCESS; i++) {
            CUgraphNode node = graph->nodes.nodes[i];
            if (node->done || !is_ready(node)) continue;
            if (runs) status = run_node(node, &before, own, &begun);
            node->done = moved = true;
            left--;
        }
    }
    if (runs) join_nodes(graph, own);
    free_clock(&before);
    return status == CUDA_SUCCESS && left ? CUDA_ERROR_INVALID_VALUE : status;
}

CUresult run_graph(CUgraph graph) {
    return pass(graph, true);
}

CUresult cuGraphCreate(CUgraph *graph, unsigned flags) {
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS && (!graph || flags)) status = CUDA_ERROR_INVALID_VALUE;
    return driver_leave(status == CUDA_SUCCESS ? new_graph(graph) : status);
}

CUresult cuGraphDestroy(CUgraph graph) {
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS && !graph) status = CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS) delete_graph(graph);
    return driver_leave(status);
}

CUresult cuGraphClone(CUgraph *clone, CUgraph graph) {
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS && !(clone && graph)) status = CUDA_ERROR_INVALID_VALUE;
    return driver_leave(status == CUDA_SUCCESS ? copy_graph(graph, clone) : status);
}

CUresult cuGraphNodeFindInClone(CUgraphNode *node, CUgraphNode origin, CUgraph clone) {
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS && !(node && origin && clone)) status = CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS && !(*node = copy_of(clone, origin))) status = CUDA_ERROR_INVALID_VALUE;
    return driver_leave(status);
}

/* ---- nodes ---- */

/* The operation is taken over, whatever happens. */
CUresult add_checked(CUgraphNode *node, CUgraph graph, const CUgraphNode *needs, size_t count, operation *o) {
    CUresult status = node && graph && (needs || !count) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; status == CUDA_SUCCESS && i < count; i++)
        if (!needs[i] || needs[i]->graph != graph) status = CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS) return add_node(graph, needs, count, o, node);
    free_operation(o);
    return status;
}

CUresult cuGraphAddKernelNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *needs, size_t count,
                              const CUDA_KERNEL_NODE_PARAMS *parameters) {
    operation o;
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS) status = fill_kernel_node(&o, parameters);
    return driver_leave(status == CUDA_SUCCESS ? add_checked(node, graph, needs, count, &o) : status);
}

CUresult cuGraphAddMemcpyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *needs, size_t count,
                              const CUDA_MEMCPY3D *copy, CUcontext context) {
    (void)context;
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS && !copy) status = CUDA_ERROR_INVALID_VALUE;
    if (status != CUDA_SUCCESS) return driver_leave(status);
    operation o = {.kind = DO_COPY, .copy = *copy};
    return driver_leave(add_checked(node, graph, needs, count, &o));
}

CUresult fill_set_node(operation *o, const CUDA_MEMSET_NODE_PARAMS *p) {
    return p ? fill_set(o, p->dst, p->pitch, p->value, p->elementSize, p->width, p->height) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphAddMemsetNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *needs, size_t count,
                              const CUDA_MEMSET_NODE_PARAMS *parameters, CUcontext context) {
    (void)context;
    operation o;
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS) status = fill_set_node(&o, parameters);
    return driver_leave(status == CUDA_SUCCESS ? add_checked(node, graph, needs, count, &o) : status);
}

CUresult cuGraphAddHostNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *needs, size_t count,
                            const CUDA_HOST_NODE_PARAMS *parameters) {
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS && !(parameters && parameters->fn)) status = CUDA_ERROR_INVALID_VALUE;
    if (status != CUDA_SUCCESS) return driver_leave(status);
    operation o = {.kind = DO_HOST, .host = *parameters};
    return driver_leave(add_checked(node, graph, needs, count, &o));
}

CUresult cuGraphAddEmptyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *needs, size_t count) {
    operation o = {.kind = DO_NOTHING};
    CUresult status = driver_enter();
    return driver_leave(status == CUDA_SUCCESS ? add_checked(node, graph, needs, count, &o) : status);
}

CUresult cuGraphAddChildGraphNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *needs, size_t count,
                                  CUgraph child) {
    operation o = {.kind = DO_GRAPH};
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS && !child) status = CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS) status = copy_graph(child, &o.graph);
    return driver_leave(status == CUDA_SUCCESS ? add_checked(node, graph, needs, count, &o) : status);
}

static CUresult add_event(CUgraphNode *node, CUgraph graph, const CUgraphNode *needs, size_t count, CUevent event,
                          operation_kind kind) {
    operation o = {.kind = kind, .event = event};
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS && !event) status = CUDA_ERROR_INVALID_HANDLE;
    return driver_leave(status == CUDA_SUCCESS ? add_checked(node, graph, needs, count, &o) : status);
}

CUresult cuGraphAddEventRecordNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *needs, size_t count,
                                   CUevent event) {
    return add_event(node, graph, needs, count, event, DO_RECORD);
}

CUresult cuGraphAddEventWaitNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *needs, size_t count,
                                 CUevent event) {
    return add_event(node, graph, needs, count, event, DO_WAIT);
}

static void remove_need(CUgraphNode node, CUgraphNode need) {
    size_t others = 0;
    for (size_t k = 0; k < node->needs.count; k++)
        if (node->needs.nodes[k] != need) node->needs.nodes[others++] = node->needs.nodes[k];
    node->needs.count = others;
}

CUresult cuGraphDestroyNode(CUgraphNode node) {
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS && !node) status = CUDA_ERROR_INVALID_VALUE;
    if (status != CUDA_SUCCESS) return driver_leave(status);
    node_list *all = &node->graph->nodes;
    size_t kept = 0;
    for (size_t i = 0; i < all->count; i++) {
        remove_need(all->nodes[i], node);
        if (all->nodes[i] != node) all->nodes[kept++] = all->nodes[i];
    }
    all->count = kept;
    delete_node(node);
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType *type) {
    static const CUgraphNodeType types[] = {
        [DO_NOTHING] = CU_GRAPH_NODE_TYPE_EMPTY,       [DO_KERNEL] = CU_GRAPH_NODE_TYPE_KERNEL,
        [DO_COPY] = CU_GRAPH_NODE_TYPE_MEMCPY,         [DO_SET] = CU_GRAPH_NODE_TYPE_MEMSET,
        [DO_HOST] = CU_GRAPH_NODE_TYPE_HOST,           [DO_GRAPH] = CU_GRAPH_NODE_TYPE_GRAPH,
        [DO_RECORD] = CU_GRAPH_NODE_TYPE_EVENT_RECORD, [DO_WAIT] = CU_GRAPH_NODE_TYPE_WAIT_EVENT,
    };
    if (!node || !type) return CUDA_ERROR_INVALID_VALUE;
    *type = types[node->what.kind];
    return CUDA_SUCCESS;
}

/* Lists that are asked for twice: how many there are, then all of them. */
static CUresult give_list(const node_list *list, CUgraphNode *nodes, size_t *count) {
    if (!count) return CUDA_ERROR_INVALID_VALUE;
    const size_t room = nodes ? *count : 0;
    for (size_t i = 0; i < room; i++) nodes[i] = i < list->count ? list->nodes[i] : NULL;
    if (!nodes || *count > list->count) *count = list->count;
    return CUDA_SUCCESS;
}

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count) {
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS) status = graph ? give_list(&graph->nodes, nodes, count) : CUDA_ERROR_INVALID_VALUE;
    return driver_leave(status);
}

CUresult cuGraphGetRootNodes(CUgraph graph, CUgraphNode *nodes, size_t *count) {
    node_list roots = {0};
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS && !graph) status = CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; status == CUDA_SUCCESS && i < graph->nodes.count; i++)
        if (!graph->nodes.nodes[i]->needs.count && !list_add(&roots, graph->nodes.nodes[i]))
            status = CUDA_ERROR_OUT_OF_MEMORY;
    if (status == CUDA_SUCCESS) status = give_list(&roots, nodes, count);
    free(roots.nodes);
    return driver_leave(status);
}

/* One answer of the edges of a graph: with data, which is all zeros, where the caller has room for it. */
static void give_edge_data(CUgraphEdgeData *edges, size_t room) {
    if (edges) memset(edges, 0, room * sizeof *edges);
}

CUresult cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode *needs, CUgraphEdgeData *edges, size_t *count) {
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS) status = node ? give_list(&node->needs, needs, count) : CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS && needs) give_edge_data(edges, *count);
    return driver_leave(status);
}

static bool has_need(CUgraphNode node, CUgraphNode need) {
    for (size_t i = 0; i < node->needs.count; i++)
        if (node->needs.nodes[i] == need) return true;
    return false;
}

CUresult cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode *dependents, CUgraphEdgeData *edges,
                                      size_t *count) {
    node_list found = {0};
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS && !node) status = CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; status == CUDA_SUCCESS && i < node->graph->nodes.count; i++) {
        CUgraphNode each = node->graph->nodes.nodes[i];
        if (has_need(each, node) && !list_add(&found, each)) status = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (status == CUDA_SUCCESS) status = give_list(&found, dependents, count);
    if (status == CUDA_SUCCESS && dependents) give_edge_data(edges, *count);
    free(found.nodes);
    return driver_leave(status);
}

CUresult cuGraphGetEdges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *edges, size_t *count) {
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS && (!graph || !count || !from != !to)) status = CUDA_ERROR_INVALID_VALUE;
    if (status != CUDA_SUCCESS) return driver_leave(status);
    const size_t room = from ? *count : 0;
    size_t found = 0;
    for (size_t i = 0; i < graph->nodes.count; i++) {
        CUgraphNode node = graph->nodes.nodes[i];
        for (size_t k = 0; k < node->needs.count; k++, found++) {
            if (found >= room) continue;
            from[found] = node->needs.nodes[k];
            to[found] = node;
        }
    }
    for (size_t i = found; i < room; i++) from[i] = to[i] = NULL;
    if (from) give_edge_data(edges, room);
    if (!from || room > found) *count = found;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuGraphAddDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                const CUgraphEdgeData *edges, size_t count) {
    (void)edges;
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS && (!graph || (count && !(from && to)))) status = CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; status == CUDA_SUCCESS && i < count; i++)
        if (from[i]->graph != graph || to[i]->graph != graph || !list_add(&to[i]->needs, from[i]))
            status = CUDA_ERROR_INVALID_VALUE;
    return driver_leave(status);
}

CUresult cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                   const CUgraphEdgeData *edges, size_t count) {
    (void)edges;
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS && (!graph || (count && !(from && to)))) status = CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; status == CUDA_SUCCESS && i < count; i++)
        if (!from[i] || !to[i] || to[i]->graph != graph || !has_need(to[i], from[i])) status = CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; status == CUDA_SUCCESS && i < count; i++) remove_need(to[i], from[i]);
    return driver_leave(status);
}

/* ---- executable graphs ---- */

static CUresult instantiate(CUgraphExec *executable, CUgraph graph, unsigned long long flags) {
    if (!executable || !graph) return CUDA_ERROR_INVALID_VALUE;
    CUresult status = pass(graph, false);
    if (status != CUDA_SUCCESS) return status;
    CUgraphExec made = calloc(1, sizeof *made);
    if (!made) return CUDA_ERROR_OUT_OF_MEMORY;
    made->flags = flags;
    status = copy_graph(graph, &made->graph);
    if (status == CUDA_SUCCESS)
        *executable = made;
    else
        free(made);
    return status;
}

CUresult cuGraphInstantiate(CUgraphExec *executable, CUgraph graph, unsigned long long flags) {
    CUresult status = driver_enter();
    return driver_leave(status == CUDA_SUCCESS ? instantiate(executable, graph, flags) : status);
}

CUresult cuGraphInstantiate_v2(CUgraphExec *executable, CUgraph graph, CUgraphNode *error, char *log, size_t bytes) {
    if (error) *error = NULL;
    if (log && bytes) *log = 0;
    return cuGraphInstantiate(executable, graph, 0);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *executable, CUgraph graph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS *parameters) {
    if (!parameters) return CUDA_ERROR_INVALID_VALUE;
    parameters->hErrNode_out = NULL;
    parameters->result_out = CUDA_GRAPH_INSTANTIATE_SUCCESS;
    return cuGraphInstantiate(executable, graph, parameters->flags);
}

/* True if both have the same nodes and edges, in the order in which they were added; *error: the node where not. */
static CUgraphExecUpdateResult compare_graphs(CUgraph before, CUgraph after, CUgraphNode *error) {
    if (before->nodes.count != after->nodes.count) return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    for (size_t i = 0; i < before->nodes.count; i++) {
        CUgraphNode a = before->nodes.nodes[i], b = *error = after->nodes.nodes[i];
        if (a->what.kind != b->what.kind) return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
        if (a->needs.count != b->needs.count) return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
        for (size_t k = 0; k < b->needs.count; k++) {
            size_t at = 0;
            while (after->nodes.nodes[at] != b->needs.nodes[k]) at++;
            if (!has_need(a, before->nodes.nodes[at])) return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
        }
    }
    *error = NULL;
    return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

CUresult cuGraphExecUpdate(CUgraphExec executable, CUgraph graph, CUgraphExecUpdateResultInfo *result) {
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS && !(executable && graph && result)) status = CUDA_ERROR_INVALID_VALUE;
    if (status != CUDA_SUCCESS) return driver_leave(status);
    *result = (CUgraphExecUpdateResultInfo){0};
    result->result = compare_graphs(executable->graph, graph, &result->errorNode);
    if (result->result != CU_GRAPH_EXEC_UPDATE_SUCCESS) return driver_leave(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    for (size_t i = 0; status == CUDA_SUCCESS && i < graph->nodes.count; i++) {
        operation o;
        status = copy_operation(&graph->nodes.nodes[i]->what, &o);
        if (status == CUDA_SUCCESS) status = replace_operation(executable->graph->nodes.nodes[i], &o);
    }
    return driver_leave(status);
}

CUresult cuGraphExecDestroy(CUgraphExec executable) {
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS && !executable) status = CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS) {
        delete_graph(executable->graph);
        free_clock(&executable->last);
        free(executable);
    }
    return driver_leave(status);
}

CUresult cuGraphExecGetFlags(CUgraphExec executable, cuuint64_t *flags) {
    if (!executable || !flags) return CUDA_ERROR_INVALID_VALUE;
    *flags = executable->flags;
    return CUDA_SUCCESS;
}

CUresult cuGraphUpload(CUgraphExec executable, CUstream stream) {
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS && !(executable && find_stream(stream))) status = CUDA_ERROR_INVALID_VALUE;
    return driver_leave(status);
}

CUresult cuGraphLaunch(CUgraphExec executable, CUstream stream) {
    operation o = {.kind = DO_GRAPH};
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS && !executable) status = CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS) status = copy_graph(executable->graph, &o.graph);
    if (status != CUDA_SUCCESS) return driver_leave(status);
    CUstream found = find_stream(stream);
    const bool runs = found && !found->captured;
    if (runs) overlap_wait(found, &executable->last);
    status = submit(stream, &o);
    if (runs) overlap_snapshot(&executable->last);
    return driver_leave(status);
}

CUgraphNode node_of(CUgraphExec executable, CUgraphNode node) {
    return executable ? copy_of(executable->graph, node) : NULL;
}

CUresult cuGraphNodeSetEnabled(CUgraphExec executable, CUgraphNode node, unsigned enabled) {
    CUresult status = driver_enter();
    CUgraphNode own = status == CUDA_SUCCESS ? node_of(executable, node) : NULL;
    if (status == CUDA_SUCCESS && !own) status = CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS) own->enabled = enabled != 0;
    return driver_leave(status);
}

CUresult cuGraphNodeGetEnabled(CUgraphExec executable, CUgraphNode node, unsigned *enabled) {
    CUresult status = driver_enter();
    const struct CUgraphNode_st *own = status == CUDA_SUCCESS ? node_of(executable, node) : NULL;
    if (status == CUDA_SUCCESS && !(own && enabled)) status = CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS) *enabled = own->enabled;
    return driver_leave(status);
}
