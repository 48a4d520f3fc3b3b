#include "library/workspaces.h"

bool workspaces_of_stream(struct workspaces *workspaces, uint64_t stream_id, uint64_t *offset) {
    const uint64_t key = stream_id + 1, start = key * UINT64_C(0x9e3779b97f4a7c15) >> 52; /* of 4096 slots */
    for (uint64_t i = 0; i < STREAM_WORKSPACES; i++) {
        const uint64_t slot = (start + i) % STREAM_WORKSPACES;
        uint64_t found = atomic_load_explicit(&workspaces->streams[slot], memory_order_relaxed);
        if (!found && atomic_compare_exchange_strong(&workspaces->streams[slot], &found, key)) found = key;
        if (found != key) continue;
        *offset = WORKSPACE_BYTES * slot;
        return true;
    }
    return false;
}

bool workspaces_of_graph(struct workspaces *workspaces, uint64_t *offset) {
    uint64_t slot = atomic_load(&workspaces->captured);
    do
        if (slot >= GRAPH_WORKSPACES) return false;
    while (!atomic_compare_exchange_weak(&workspaces->captured, &slot, slot + 1));
    *offset = WORKSPACE_BYTES * (STREAM_WORKSPACES + slot);
    return true;
}

uint64_t workspaces_cut(struct workspaces *workspaces, uint64_t bytes) {
    const uint64_t whole = (bytes + 255) / 256 * 256, at = workspaces->used;
    if (!workspaces->n_chunks || at + whole > workspaces->size) return 0;
    workspaces->used = at + whole;
    return workspaces->chunks[workspaces->n_chunks - 1] + at;
}
