/* graph.h - graphs and their nodes: what graph.c and graph_nodes.c share.
 *
 *     CUgraphNode own = node_of(executable, node);       // NULL where the executable graph has no such node
 *     if (own) status = replace_operation(own, &other);
 */
#ifndef FL_EMU_GRAPH_H
#define FL_EMU_GRAPH_H

#include "driver.h"

struct CUgraphNode_st {
    operation what;
    node_list needs;
    CUgraph graph;
    CUgraphNode origin;            /* of a node of an executable graph: that of the graph it was made from */
    bool enabled, done, continued; /* done and the rest: of the pass at work */
    unsigned lane;
    order_clock clock;
};

struct CUgraph_st {
    node_list nodes; /* owned */
};

struct CUgraphExec_st {
    CUgraph graph; /* owned: a copy */
    unsigned long long flags;
    order_clock last; /* its last launch, which it follows on any stream */
};

/* A node of a program; an error where a node that it needs is of another graph. The operation is taken over. */
CUresult add_checked(CUgraphNode *node, CUgraph graph, const CUgraphNode *needs, size_t count, operation *o);
/* Put another operation into a node; it must be of the same kind. It is taken over. */
CUresult replace_operation(CUgraphNode node, operation *o);
/* The node of an executable graph that was made from this one; NULL where there is none. */
CUgraphNode node_of(CUgraphExec executable, CUgraphNode node);
CUresult fill_set_node(operation *o, const CUDA_MEMSET_NODE_PARAMS *parameters);

#endif
