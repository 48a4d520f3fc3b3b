/* workspaces.h - counters that CTAs draw from, in device memory: one for each stream, one for each captured launch.
 *
 *     uint64_t offset;
 *     if (workspaces_of_stream(workspaces, stream_id, &offset)) address = pool + offset;
 *
 * A kernel leaves its counters at zero, so launches that run one after the other share them. Those of one stream do. A
 * graph may run beside its stream and beside other graphs, so a captured launch never shares.
 */
#ifndef FL_LIBRARY_WORKSPACES_H
#define FL_LIBRARY_WORKSPACES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    WORKSPACE_BYTES = 16,      /* of which a kernel uses TICKETS_BYTES */
    STREAM_WORKSPACES = 4096,  /* a power of two */
    GRAPH_WORKSPACES = 126976, /* 2 MiB in all */
    WORKSPACES_BYTES = WORKSPACE_BYTES * (STREAM_WORKSPACES + GRAPH_WORKSPACES)
};

/* All zero at first. */
struct workspaces {
    _Atomic uint64_t streams[STREAM_WORKSPACES]; /* ids of streams plus 1; 0: free */
    _Atomic uint64_t captured;                   /* launches so far */
};

/* The workspace of a stream, by an id that no other stream of the process ever has. False where all are taken. Lock
 * free. */
bool workspaces_of_stream(struct workspaces *workspaces, uint64_t stream_id, uint64_t *offset);

/* A workspace for one captured launch. False where all are taken. */
bool workspaces_of_graph(struct workspaces *workspaces, uint64_t *offset);

#endif
