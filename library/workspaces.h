/* workspaces.h - what CTAs of a launch share in device memory: one for each stream, one for each captured launch.
 *
 *     uint64_t offset;
 *     if (workspaces_of_stream(workspaces, stream_id, &offset)) address = pool + offset;
 *
 * A kernel leaves its counters at zero, so launches that run one after the other share them. Launches of one stream
 * share one. A graph may run concurrently with its stream and other graphs, so a captured launch shares none with
 * those.
 *
 * Small ones are counters that CTAs draw from. Large ones, for parts of results too, are pieces of chunks, which are
 * allocated as they are needed. Captured launches that follow each other in a stream share a large one, because a model
 * captures thousands.
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
    WORKSPACES_BYTES = WORKSPACE_BYTES * (STREAM_WORKSPACES + GRAPH_WORKSPACES),
    CHUNK_BYTES = 16 << 20, /* at least */
    MOST_CHUNKS = 2048
};

/* All zero at first. */
struct workspaces {
    _Atomic uint64_t streams[STREAM_WORKSPACES]; /* ids of streams plus 1; 0: free */
    _Atomic uint64_t captured;                   /* launches so far */
    _Atomic uint64_t large[STREAM_WORKSPACES];   /* addresses of large ones; written before their bytes */
    _Atomic uint64_t bytes[STREAM_WORKSPACES];   /* of the large ones; 0: the stream has none yet */
    uint64_t chunks[MOST_CHUNKS];                /* addresses; under a lock of the caller, as the next three */
    int n_chunks;
    uint64_t used, size; /* of the last chunk, in bytes */
    struct {
        uint64_t capture, stream, address, bytes; /* its id, the handle of the stream, and the large one */
    } last_captured;
};

/* The workspace of a stream, by an id that no other stream of the process ever has. False where all are taken. Lock
 * free. */
bool workspaces_of_stream(struct workspaces *workspaces, uint64_t stream_id, uint64_t *offset);

/* A workspace for one captured launch. False where all are taken. */
bool workspaces_of_graph(struct workspaces *workspaces, uint64_t *offset);

/* The address of a large one in the last chunk; 0 where that has too few bytes left. */
uint64_t workspaces_cut(struct workspaces *workspaces, uint64_t bytes);

#endif
